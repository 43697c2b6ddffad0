//! Reading and patching memory. The process is this one.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr;

use nopal_process::{Behind, Memory, Outcome, Patch};

const PAGE: usize = 4096;

/// Pages of our own, in a mapping of nothing else.
struct Pages {
    start: *mut u8,
    count: usize,
}

impl Pages {
    fn new(count: usize, access: i32) -> Pages {
        Pages::map(count, access, libc::MAP_ANONYMOUS, -1)
    }

    /// Maps a file, from its start on.
    fn of(file: &File, count: usize, access: i32) -> Pages {
        Pages::map(count, access, 0, file.as_raw_fd())
    }

    fn map(count: usize, access: i32, flags: i32, file: i32) -> Pages {
        let flags = libc::MAP_PRIVATE | flags;
        let start = unsafe { libc::mmap(ptr::null_mut(), count * PAGE, access, flags, file, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Pages {
            start: start.cast(),
            count,
        }
    }

    fn address(&self, page: usize, offset: usize) -> u64 {
        (self.start.addr() + page * PAGE + offset) as u64
    }

    fn unmap(&self, page: usize) {
        unsafe { libc::munmap(self.start.add(page * PAGE).cast(), PAGE) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.start.cast(), self.count * PAGE) };
    }
}

fn memory() -> Memory {
    Memory::open(std::process::id() as i32).unwrap()
}

fn bytes(memory: &Memory, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.read(address, &mut bytes).unwrap();
    bytes
}

#[test]
fn protection_does_not_matter() {
    let (memory, pages) = (memory(), Pages::new(2, libc::PROT_READ | libc::PROT_EXEC));
    memory
        .write(pages.address(0, PAGE - 4), b"over pages")
        .unwrap();
    assert_eq!(
        bytes(&memory, pages.address(0, PAGE - 4), 10),
        b"over pages"
    );
    memory
        .write(pages.address(1, 8), &0x1122_3344_5566_7788u64.to_le_bytes())
        .unwrap();
    assert_eq!(
        memory.read_word(pages.address(1, 8)).unwrap(),
        0x1122_3344_5566_7788
    );
}

#[test]
fn what_is_not_mapped_is_an_error() {
    let (memory, pages) = (memory(), Pages::new(3, libc::PROT_READ));
    pages.unmap(1);
    let mut word = [0; 8];
    memory
        .read(pages.address(0, PAGE - 4), &mut word)
        .unwrap_err();
    memory.write(pages.address(0, PAGE - 4), &word).unwrap_err();
    memory.read(0, &mut word).unwrap_err();
    memory.read(u64::MAX - 3, &mut word).unwrap_err();
    memory.read(1 << 63, &mut word).unwrap_err();
}

#[test]
fn patches_are_written_where_the_bytes_are_as_expected() {
    let (memory, pages) = (memory(), Pages::new(6, libc::PROT_READ | libc::PROT_EXEC));
    let patch = |page, offset, expected, new| Patch {
        address: pages.address(page, offset),
        expected,
        new,
    };
    memory.write(pages.address(0, 100), b"other").unwrap();
    let patches = [
        patch(5, 4000, &[0; 5], b"later"),
        patch(0, 0, &[0; 5], b"first"),
        patch(0, 100, &[0; 5], b"wrong"),
        patch(0, PAGE - 2, &[0; 5], b"cross"),
        patch(1, 3, &[0; 3], b"abc"),
        patch(3, PAGE - 1, &[1], b"!"),
    ];
    let differs = |found: &[u8]| Outcome::Differs {
        found: found.to_vec(),
    };
    let outcomes = memory.write_patches(&patches).unwrap();
    let written = Outcome::Written;
    let expected = [
        written.clone(),
        written.clone(),
        differs(b"other"),
        written.clone(),
        written,
        differs(&[0]),
    ];
    assert_eq!(outcomes, expected);
    let mut page = vec![0; 6 * PAGE];
    for (patch, outcome) in patches.iter().zip(&outcomes) {
        let at = (patch.address - pages.address(0, 0)) as usize;
        let new = if *outcome == Outcome::Written {
            patch.new
        } else {
            continue;
        };
        page[at..at + new.len()].copy_from_slice(new);
    }
    page[100..105].copy_from_slice(b"other");
    assert_eq!(bytes(&memory, pages.address(0, 0), 6 * PAGE), page);
    assert_eq!(memory.write_patches(&[]).unwrap(), []);
}

#[test]
fn one_page_that_cannot_be_reached_does_not_spoil_others() {
    let (memory, pages) = (memory(), Pages::new(5, libc::PROT_READ));
    pages.unmap(2);
    let patch = |page, offset, expected, new| Patch {
        address: pages.address(page, offset),
        expected,
        new,
    };
    let patches = [
        patch(0, 8, &[0], b"a"),
        patch(1, 8, &[0], b"b"),
        patch(1, PAGE - 2, &[0; 4], b"gone"),
        patch(2, 8, &[0], b"c"),
        patch(3, 8, &[0], b"d"),
        patch(4, 8, &[1], b"e"),
    ];
    let outcomes = memory.write_patches(&patches).unwrap();
    assert_eq!(outcomes[0..2], [Outcome::Written, Outcome::Written]);
    assert_eq!(
        outcomes[2..4],
        [
            Outcome::Unreadable(libc::EIO),
            Outcome::Unreadable(libc::EIO)
        ]
    );
    assert_eq!(
        outcomes[4..],
        [Outcome::Written, Outcome::Differs { found: vec![0] }]
    );
    assert_eq!(bytes(&memory, pages.address(1, 8), 1), b"b");
    assert_eq!(bytes(&memory, pages.address(1, PAGE - 2), 2), [0, 0]);
}

/// Shared read-only memory of a file that was opened for reading cannot be written, not even by force.
#[test]
fn what_cannot_be_written_is_told_and_left() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; 3 * PAGE]).unwrap();
    let opened = std::fs::File::open(file.path()).unwrap();
    let (memory, pages) = (memory(), Pages::new(3, libc::PROT_READ));
    let middle = ptr::with_exposed_provenance_mut(pages.address(1, 0) as usize);
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&opened);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    let mapped = unsafe { libc::mmap(middle, PAGE, libc::PROT_READ, flags, descriptor, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    let patch = |page, offset, expected, new| Patch {
        address: pages.address(page, offset),
        expected,
        new,
    };
    let patches = [
        patch(0, 8, &[0], b"a"),
        patch(0, PAGE - 1, &[0, 7], b"xy"),
        patch(1, 8, &[7], b"b"),
        patch(1, 9, &[8], b"c"),
        patch(2, 8, &[0], b"d"),
    ];
    let outcomes = memory.write_patches(&patches).unwrap();
    assert_eq!(outcomes[0], Outcome::Written);
    assert!(
        matches!(outcomes[1], Outcome::Unwritable(_)),
        "{outcomes:?}"
    );
    assert!(
        matches!(outcomes[2], Outcome::Unwritable(_)),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[3], Outcome::Differs { found: vec![7] });
    assert_eq!(outcomes[4], Outcome::Written);
    assert_eq!(bytes(&memory, pages.address(0, PAGE - 1), 3), [0, 7, 7]);
    assert_eq!(std::fs::read(file.path()).unwrap(), vec![7; 3 * PAGE]);
}

#[test]
fn senseless_patches_are_refused_as_a_whole() {
    let (memory, pages) = (memory(), Pages::new(1, libc::PROT_READ));
    let patch = |address, expected, new| Patch {
        address,
        expected,
        new,
    };
    let good = patch(pages.address(0, 0), &[0][..], &b"x"[..]);
    for bad in [
        patch(pages.address(0, 8), &[0, 0][..], &b"x"[..]),
        patch(pages.address(0, 8), &[][..], &[][..]),
        patch(pages.address(0, 0), &[0, 0][..], &b"ab"[..]),
        patch(u64::MAX, &[0, 0][..], &b"ab"[..]),
        patch(u64::MAX - 4096, &[0, 0][..], &b"ab"[..]),
    ] {
        memory.write_patches(&[good, bad]).unwrap_err();
    }
    assert_eq!(bytes(&memory, pages.address(0, 0), 1), [0]);
}

/// More than is read and written at once, against a copy.
#[test]
fn many_patches() {
    let (memory, pages) = (memory(), Pages::new(700, libc::PROT_READ));
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = seed;
    let mut next = move |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let mut copy = vec![0; 700 * PAGE];
    for byte in copy.iter_mut().step_by(97) {
        *byte = next(2) as u8;
    }
    memory.write(pages.address(0, 0), &copy).unwrap();
    let mut offsets = Vec::new();
    let mut at = next(50);
    while at + 8 < copy.len() {
        offsets.push((at, 1 + next(8)));
        let gap = if next(50) == 0 { 20 * PAGE } else { 300 };
        at += 8 + next(gap);
    }
    let news = offsets
        .iter()
        .map(|_| [next(256) as u8; 8])
        .collect::<Vec<_>>();
    let patches = offsets
        .iter()
        .zip(&news)
        .rev()
        .map(|(&(at, length), new)| Patch {
            address: pages.address(0, at),
            expected: &[0; 8][..length],
            new: &new[..length],
        });
    let patches = patches.collect::<Vec<_>>();
    let outcomes = memory.write_patches(&patches).unwrap();
    let mut written = 0;
    for (patch, outcome) in patches.iter().zip(outcomes) {
        let at = (patch.address - pages.address(0, 0)) as usize;
        let old = &mut copy[at..at + patch.new.len()];
        match old.iter().all(|&byte| byte == 0) {
            true => {
                assert_eq!(outcome, Outcome::Written);
                old.copy_from_slice(patch.new);
                written += 1;
            }
            false => assert_eq!(
                outcome,
                Outcome::Differs {
                    found: old.to_vec()
                }
            ),
        }
    }
    assert!(written > 0 && written < patches.len());
    assert_eq!(bytes(&memory, pages.address(0, 0), 700 * PAGE), copy);
}

/// The bytes that are taken for the file's differ from them here, so that it shows which ones were read.
#[test]
fn pages_that_are_as_in_their_file_are_not_read() {
    let (memory, count) = (memory(), 20);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![b'f'; count * PAGE]).unwrap();
    let pages = Pages::of(&file, count, libc::PROT_READ | libc::PROT_EXEC);
    let taken_for = vec![b't'; count * PAGE];
    let behind = Behind::new(
        std::process::id() as i32,
        vec![(pages.address(0, 0), &taken_for[..])],
    );
    // One that is there as it is in the file, and one that is the process's own.
    assert_eq!(bytes(&memory, pages.address(2, 0), 1), b"f");
    memory.write(pages.address(4, 0), b"own").unwrap();
    let patch = |page, expected| Patch {
        address: pages.address(page, 8),
        expected,
        new: b"new",
    };
    let patches = [
        patch(0, b"ttt"),
        patch(2, b"ttt"),
        patch(4, b"fff"),
        patch(6, b"fff"),
    ];
    let outcomes = memory.write_patches_over(&behind, &patches).unwrap();
    let differs = Outcome::Differs {
        found: b"ttt".to_vec(),
    };
    let written = Outcome::Written;
    assert_eq!(
        outcomes,
        [written.clone(), written.clone(), written, differs]
    );
    let mut own = vec![b'f'; PAGE];
    own[..3].copy_from_slice(b"own");
    own[8..11].copy_from_slice(b"new");
    assert_eq!(bytes(&memory, pages.address(4, 0), PAGE), own);
    let mut taken = vec![b't'; PAGE];
    taken[8..11].copy_from_slice(b"new");
    for page in [0, 2] {
        assert_eq!(bytes(&memory, pages.address(page, 0), PAGE), taken);
    }
    assert_eq!(bytes(&memory, pages.address(6, 0), PAGE), [b'f'; PAGE]);

    // Behind the end of the known bytes of the file.
    let short = Behind::new(
        std::process::id() as i32,
        vec![(pages.address(0, 0), &taken_for[..8 * PAGE])],
    );
    let outcomes = memory.write_patches_over(&short, &[patch(8, b"fff")]);
    assert_eq!(outcomes.unwrap(), [Outcome::Written]);
}

/// A program that had executed another one while a change to the old one's loader was looked for had gigabytes of stack
/// afterwards, and no address space left where that is limited.
#[test]
fn an_address_below_the_stack_is_not_made_stack() {
    let stack = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    };
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // As after `ulimit -s unlimited`; only root may raise the hard limit.
    unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const unlimited) };
    nopal_process::lift_limits();
    let before = stack();
    // Nothing is mapped within 128 MiB of the stack's beginning.
    let read = memory().read(before - (64 << 20), &mut [0; 8]);
    assert!(read.is_err());
    assert!(before - stack() < 1 << 20);
}
