//! The tool's own memory while it starts a program.

use libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TOP_PAD, M_TRIM_THRESHOLD, MADV_HUGEPAGE};
use rustix::process::{Resource, getrlimit};

const HUGE_PAGE: usize = 2 << 20;
/// More than most programs' start needs; what is not used is address space only.
const ROOM: i32 = 16 << 20;
/// Most freed memory kept at the end of the heap.
const KEPT: i32 = 32 << 20;
/// Larger blocks are mapped separately, unless the heap has room.
const LARGE: i32 = 512 << 10;
/// More than can be left free at the end of a heap that grows by its usual steps.
const MORE_THAN_LEFT: usize = 256 << 10;

/// Has all threads use one heap, made of huge pages where the kernel has them: to touch a small page the first time
/// takes 1.0 to 2.9 µs on a virtual machine, a huge one, 512 times as large, 50 to 200. What is freed is kept, as it is
/// soon wanted again.
///
/// Called before there are other threads, and after `fork`: a huge page that two processes have is split. It is not
/// for a session in a process that runs already, whose lists of many sites are larger than this and come again with
/// each command: glibc finds out itself that these are worth keeping.
pub fn prepare() {
    // SAFETY: sets numbers of the allocator, which works as ever where it refuses one.
    unsafe {
        libc::mallopt(M_ARENA_MAX, 1);
        libc::mallopt(M_TRIM_THRESHOLD, KEPT);
        if !is_limited() {
            make_room();
        }
        libc::mallopt(M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(M_TOP_PAD, LARGE);
    }
}

/// Address space counts where it is limited.
fn is_limited() -> bool {
    let is_limited = |resource| getrlimit(resource).current.is_some();
    is_limited(Resource::As) || is_limited(Resource::Data)
}

/// Has the heap grow, and asks for huge pages for what it has got.
///
/// # Safety
/// There is one thread.
unsafe fn make_room() {
    // SAFETY: the advice is about address space of the heap alone; what is allocated is kept.
    unsafe {
        libc::mallopt(M_TOP_PAD, ROOM);
        libc::mallopt(M_MMAP_THRESHOLD, KEPT);
        // The rest of the heap after this begins before the first huge page, which must be untouched when the advice is
        // given: otherwise it would stay made of small pages.
        let end = libc::sbrk(0) as usize;
        let first = (end + MORE_THAN_LEFT).next_multiple_of(HUGE_PAGE);
        std::hint::black_box(libc::malloc(first - end));
        let end = libc::sbrk(0) as usize;
        if end > first {
            let first_page = std::ptr::without_provenance_mut(first);
            libc::madvise(first_page, end - first, MADV_HUGEPAGE);
        }
    }
}
