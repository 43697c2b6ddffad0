//! Runs patched functions: each begins with a jump to its body, as a thunk would reach it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::ptr;

use nopal_symbols::Image;

use super::Built;
use crate::{JUMP, Plan, Site};

/// A library in this process.
pub struct Loaded {
    handle: *mut c_void,
    pub base: u64,
}

impl Loaded {
    pub fn open(path: &Path, scope: c_int) -> Loaded {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the library is one that this machine's programs use, or was built by the test.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
        assert!(!handle.is_null(), "{}", path.display());
        // SAFETY: glibc's handle points to a link_map, which begins with the load address.
        let base = unsafe { *handle.cast::<u64>() };
        Loaded { handle, base }
    }

    pub fn function(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is open.
        let function = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!function.is_null(), "{name:?}");
        function
    }
}

/// All writes of patching, worked out beforehand.
pub struct Patches {
    bodies: (u64, Vec<u8>),
    jumps: Vec<(u64, Vec<u8>)>,
    code: Vec<(u64, usize)>,
}

const PAGE: u64 = 4096;

impl Patches {
    pub fn new<'a>(
        image: &Image,
        base: u64,
        sites: impl Iterator<Item = &'a Site> + Clone,
    ) -> Patches {
        let length = sites
            .clone()
            .map(|site| site.body.code().len().next_multiple_of(16))
            .sum::<usize>()
            + 1;
        let end = image
            .segments()
            .iter()
            .map(|segment| segment.address + segment.memory_size)
            .max()
            .unwrap();
        let at = near(base + end, length);
        let mut bodies = vec![0xcc; length];
        let mut jumps = Vec::new();
        let mut next = 0;
        for site in sites {
            let body_at = at + next as u64;
            site.body.place(base, body_at, &mut bodies[next..]).unwrap();
            let address = base + site.hole.unwrap_or(site.address);
            let distance =
                i32::try_from(body_at.wrapping_sub(address + JUMP as u64).cast_signed()).unwrap();
            let mut jump = vec![0xe9; JUMP];
            jump[1..].copy_from_slice(&distance.to_le_bytes());
            jumps.push((address, jump));
            let short = site.reach();
            jumps.extend(short.map(|reach| (base + site.address, vec![0xeb, reach as u8])));
            next += site.body.code().len().next_multiple_of(16);
        }
        let code = image
            .segments()
            .iter()
            .filter(|segment| segment.executable)
            .map(|segment| {
                let start = (base + segment.address) & !(PAGE - 1);
                (
                    start,
                    (base + segment.address + segment.memory_size - start) as usize,
                )
            })
            .collect();
        Patches {
            bodies: (at, bodies),
            jumps,
            code,
        }
    }

    /// Calls nothing while the code is half changed.
    ///
    /// # Safety
    ///
    /// Nobody else runs the code, and the image is the library at the base that this was made for.
    pub unsafe fn apply(&self) {
        const WRITABLE: c_int = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        for &(start, length) in &self.code {
            // SAFETY: the range is the library's code.
            assert_eq!(
                unsafe { libc::mprotect(start as *mut c_void, length, WRITABLE) },
                0
            );
        }
        let bodies = self
            .bodies
            .1
            .iter()
            .enumerate()
            .map(|(index, &byte)| (self.bodies.0 + index as u64, byte));
        let jumps = self
            .jumps
            .iter()
            .flat_map(|(at, jump)| (*at..).zip(jump.iter().copied()));
        for (at, byte) in bodies.chain(jumps) {
            // SAFETY: it is either in the room for bodies or in the code, both writable.
            unsafe { ptr::write_volatile(at as *mut u8, byte) };
        }
    }
}

/// Room for code within reach of an address.
fn near(address: u64, length: usize) -> u64 {
    for step in 1..1000 {
        let hint = (address.next_multiple_of(PAGE) + step * 0x10_0000) as *mut c_void;
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping, where nothing else is.
        let room = unsafe { libc::mmap(hint, length, protection, flags, -1, 0) };
        if room != libc::MAP_FAILED {
            return room as u64;
        }
    }
    panic!("no room near {address:#x}");
}

/// Patches all sites of a library, which nothing but this test may use, and says how many.
pub fn patch(path: &Path, loaded: &Loaded) -> usize {
    let image = Image::open(path).unwrap();
    let plan = Plan::make(&image).unwrap();
    let patches = Patches::new(&image, loaded.base, plan.sites.iter());
    // SAFETY: nothing runs in the library meanwhile.
    unsafe { patches.apply() };
    plan.sites.len()
}

const PROGRAM: &str = include_str!("program.c");
const EXCEPTIONS: &str = include_str!("exceptions.cc");

/// Runs `run` of a library before and after all its functions are patched.
fn same_result(compiler: &str, name: &str, source: &str, options: &[&str]) {
    let mut all = vec!["-shared", "-fPIC"];
    all.extend_from_slice(options);
    let built = Built::with(compiler, name, source, &all);
    let loaded = Loaded::open(&built.path, libc::RTLD_LOCAL);
    let run = loaded.function(c"run").cast::<c_void>();
    // SAFETY: both programs declare it so.
    let run: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(run) };
    let inputs = [0, 1, 7, 12345, u64::MAX];
    let before = inputs.map(|input| run(input));
    let patched = patch(&built.path, &loaded);
    assert!(patched > 8, "{options:?}");
    assert_eq!(inputs.map(|input| run(input)), before, "{options:?}");
}

const OPTIONS: &[&[&str]] = &[
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3", "-march=x86-64-v2"],
    &["-Os"],
    &["-O2", "-fcf-protection=full"],
    &["-O2", "-fno-omit-frame-pointer", "-fno-plt"],
    &["-O1", "-fno-inline", "-fno-optimize-sibling-calls"],
    &["-O2", "-fpatchable-function-entry=5"],
];

#[test]
fn compiled_functions_compute_the_same() {
    for options in OPTIONS {
        same_result("gcc", "program.c", PROGRAM, options);
    }
}

#[test]
fn exceptions_pass_through_calls_at_the_end_of_windows() {
    for options in OPTIONS {
        same_result("g++", "exceptions.cc", EXCEPTIONS, options);
    }
}

#[test]
fn callees_see_the_original_return_address() {
    let source = "
        .text
        .macro function name
        .globl \\name
        .type \\name, @function
        \\name:
        .endm
        .macro end name
        .size \\name, .-\\name
        .p2align 4
        .endm
        function who
        mov (%rsp), %rax
        ret
        end who
        function direct
        push %rbx
        call who@PLT
        pop %rbx
        ret
        end direct
        function through_register
        mov who@GOTPCREL(%rip), %rax
        call *%rax
        ret
        end through_register
        function through_register_at_the_end
        push %rdi
        push %rdi
        nop
        call *%rdi
        pop %rdi
        pop %rdi
        ret
        end through_register_at_the_end
        function through_memory
        push %rsi
        nop
        nop
        call *(%rsi)
        pop %rsi
        ret
        end through_memory
        function through_stack
        push %rdi
        nop
        call *(%rsp)
        pop %rdi
        ret
        end through_stack
        function through_extended
        push %rdi
        nop
        call *(%rdi,%rdx,8)
        pop %rdi
        ret
        end through_extended
        function through_word
        call *word(%rip)
        ret
        end through_word
        .data
        .p2align 3
        word: .quad who
    ";
    let built = Built::library(source);
    let loaded = Loaded::open(&built.path, libc::RTLD_LOCAL);
    let who = loaded.function(c"who") as u64;
    let words = [who];
    let names = [
        (c"direct", [0, 0, 0]),
        (c"through_register", [0, 0, 0]),
        (c"through_register_at_the_end", [who, 0, 0]),
        (c"through_memory", [0, words.as_ptr() as u64, 0]),
        (c"through_stack", [who, 0, 0]),
        (c"through_extended", [words.as_ptr() as u64, 0, 0]),
        (c"through_word", [0, 0, 0]),
    ];
    let call = |name, [a, b, c]: [u64; 3]| {
        // SAFETY: the functions above take what they need in registers and return a number.
        let function: extern "C" fn(u64, u64, u64) -> u64 =
            unsafe { std::mem::transmute(loaded.function(name)) };
        function(a, b, c)
    };
    let before = names.map(|(name, arguments)| call(name, arguments));
    let image = built.image();
    let plan = Plan::make(&image).unwrap();
    let calls: Vec<&Site> = plan
        .sites
        .iter()
        .filter(|site| site.body.code().len() > usize::from(site.window) + 10)
        .collect();
    assert!(calls.len() == 6, "{:?} {:?}", plan.sites, plan.refused);
    patch(&built.path, &loaded);
    assert_eq!(names.map(|(name, arguments)| call(name, arguments)), before);
}
