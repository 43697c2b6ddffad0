//! Runs patched functions: each begins with a jump to its body, as a thunk would reach it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use nopal_symbols::Image;

use super::Built;
use crate::{JUMP, Plan, Site};

/// A library in this process.
struct Loaded {
    handle: *mut c_void,
    base: u64,
}

impl Loaded {
    fn open(path: &Path, scope: c_int) -> Loaded {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the library is one that this machine's programs use, or was built by the test.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
        assert!(!handle.is_null(), "{}", path.display());
        // SAFETY: glibc's handle points to a link_map, which begins with the load address.
        let base = unsafe { *handle.cast::<u64>() };
        Loaded { handle, base }
    }

    fn function(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is open.
        let function = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!function.is_null(), "{name:?}");
        function
    }
}

/// Everything that patching will write, worked out beforehand.
struct Patches {
    bodies: (u64, Vec<u8>),
    jumps: Vec<(u64, [u8; JUMP])>,
    code: Vec<(u64, usize)>,
}

const PAGE: u64 = 4096;

impl Patches {
    fn new<'a>(image: &Image, base: u64, sites: impl Iterator<Item = &'a Site> + Clone) -> Patches {
        let length = sites
            .clone()
            .map(|site| site.body.code.len().next_multiple_of(16))
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
            let address = base + site.address;
            let distance =
                i32::try_from(body_at.wrapping_sub(address + JUMP as u64).cast_signed()).unwrap();
            let mut jump = [0xe9; JUMP];
            jump[1..].copy_from_slice(&distance.to_le_bytes());
            jumps.push((address, jump));
            next += site.body.code.len().next_multiple_of(16);
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
    unsafe fn apply(&self) {
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
            .flat_map(|&(at, jump)| (0..).zip(jump).map(move |(index, byte)| (at + index, byte)));
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
fn patch(path: &Path, loaded: &Loaded) -> usize {
    let image = Image::open(path).unwrap();
    let plan = Plan::make(&image).unwrap();
    let patches = Patches::new(&image, loaded.base, plan.sites.iter());
    // SAFETY: nothing runs in the library meanwhile.
    unsafe { patches.apply() };
    plan.sites.len()
}

fn library(name: &str) -> Option<std::path::PathBuf> {
    super::installed()
        .into_iter()
        .find(|path| path.ends_with(name))
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
        .filter(|site| site.body.code.len() > usize::from(site.window) + 10)
        .collect();
    assert!(calls.len() == 6, "{:?} {:?}", plan.sites, plan.refused);
    patch(&built.path, &loaded);
    assert_eq!(names.map(|(name, arguments)| call(name, arguments)), before);
}

#[test]
fn sqlite_computes_the_same() {
    let Some(path) = library("libsqlite3.so.0") else {
        return;
    };
    let loaded = Loaded::open(&path, libc::RTLD_LOCAL);
    assert!(patch(&path, &loaded) > 1000);
    type Callback = extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
    extern "C" fn collect(
        out: *mut c_void,
        count: c_int,
        values: *mut *mut c_char,
        _: *mut *mut c_char,
    ) -> c_int {
        // SAFETY: sqlite passes `count` strings, and what it was given as `out`.
        let (out, values) = unsafe {
            (
                &mut *out.cast::<Vec<String>>(),
                std::slice::from_raw_parts(values, count as usize),
            )
        };
        // SAFETY: each is a string.
        out.extend(values.iter().map(|&value| {
            unsafe { CStr::from_ptr(value) }
                .to_string_lossy()
                .into_owned()
        }));
        0
    }
    let mut rows: Vec<String> = Vec::new();
    let sql = c"create table t(a integer primary key, b text, c real);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
            insert into t select i, printf('%05d', i * 7919 % 5000), i / 3.0 from n;
        create index x on t(b);
        select count(*), sum(a), max(b), round(avg(c), 6) from t where b like '%7%';
        select group_concat(b, '-') from (select b from t where a between 10 and 14 order by b desc);
        select upper(hex(b)), json_extract('{\"k\":[1,2,3]}', '$.k[2]') from t where b = '00042';";
    // SAFETY: as sqlite3.h declares them.
    unsafe {
        let open: extern "C" fn(*const c_char, *mut *mut c_void) -> c_int =
            std::mem::transmute(loaded.function(c"sqlite3_open"));
        let exec: extern "C" fn(
            *mut c_void,
            *const c_char,
            Callback,
            *mut c_void,
            *mut *mut c_char,
        ) -> c_int = std::mem::transmute(loaded.function(c"sqlite3_exec"));
        let close: extern "C" fn(*mut c_void) -> c_int =
            std::mem::transmute(loaded.function(c"sqlite3_close"));
        let mut database = ptr::null_mut();
        assert_eq!(open(c":memory:".as_ptr(), &mut database), 0);
        assert_eq!(
            exec(
                database,
                sql.as_ptr(),
                collect,
                (&raw mut rows).cast(),
                ptr::null_mut()
            ),
            0
        );
        assert_eq!(close(database), 0);
    }
    let numbers: Vec<u64> = (1..=5000).collect();
    let text = |i: u64| format!("{:05}", i * 7919 % 5000);
    let with_seven: Vec<u64> = numbers
        .iter()
        .copied()
        .filter(|&i| text(i).contains('7'))
        .collect();
    assert_eq!(rows[0], with_seven.len().to_string());
    assert_eq!(rows[1], with_seven.iter().sum::<u64>().to_string());
    assert_eq!(rows[2], with_seven.iter().map(|&i| text(i)).max().unwrap());
    let average = with_seven.iter().map(|&i| i as f64 / 3.0).sum::<f64>() / with_seven.len() as f64;
    assert!((rows[3].parse::<f64>().unwrap() - average).abs() < 1e-5);
    let mut few: Vec<String> = (10..15).map(text).collect();
    few.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(rows[4], few.join("-"));
    assert_eq!(rows[5..], ["3030303432", "3"]);
}

#[test]
fn python_computes_the_same() {
    let Some(path) = library("libpython3.11.so.1.0") else {
        return;
    };
    // Its own modules look for its functions.
    let loaded = Loaded::open(&path, libc::RTLD_GLOBAL);
    assert!(patch(&path, &loaded) > 5000);
    let program = c"
import json, re, itertools, functools, collections, decimal, random, zlib
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
assert fib(18) == 2584
assert json.loads(json.dumps({'a': [1, 2.5, None, 'x'], 'b': {'c': True}}))['a'][1] == 2.5
assert re.sub(r'(\\w+) (\\w+)', r'\\2 \\1', 'hello world') == 'world hello'
assert sorted(random.Random(3).sample(range(1000), 500)) == sorted(set(random.Random(3).sample(range(1000), 500)))
assert sum(x * y for x, y in itertools.product(range(50), range(50))) == 1225 ** 2
assert str(decimal.Decimal(2).sqrt()) == '1.414213562373095048801688724'
assert zlib.decompress(zlib.compress(bytes(range(256)) * 99)) == bytes(range(256)) * 99
def generator():
    try:
        while True: yield 1
    finally: seen.append('closed')
seen = []
g = generator(); next(g); g.close()
try: {}['missing']
except KeyError as error: seen.append(str(error))
class A:
    def __getattr__(self, name): return functools.partial(pow, len(name))
assert A().abc(3) == 27 and seen == ['closed', \"'missing'\"]
assert 7 ** 321 % 1000003 == pow(7, 321, 1000003)
async def later(): return 5
try: later().send(None)
except StopIteration as result: assert result.value == 5
result = 'ok'
";
    // SAFETY: as Python.h declares them; only this thread uses Python.
    unsafe {
        let initialize: extern "C" fn(c_int) =
            std::mem::transmute(loaded.function(c"Py_InitializeEx"));
        let run: extern "C" fn(*const c_char) -> c_int =
            std::mem::transmute(loaded.function(c"PyRun_SimpleString"));
        let finalize: extern "C" fn() -> c_int =
            std::mem::transmute(loaded.function(c"Py_FinalizeEx"));
        initialize(0);
        assert_eq!(run(program.as_ptr()), 0);
        assert_eq!(finalize(), 0);
    }
}

#[test]
fn libcrypto_computes_the_same() {
    let Some(path) = library("libcrypto.so.3") else {
        return;
    };
    let loaded = Loaded::open(&path, libc::RTLD_LOCAL);
    assert!(patch(&path, &loaded) > 5000);
    let mut digest = [0u8; 32];
    // SAFETY: as openssl/sha.h and openssl/evp.h declare them.
    unsafe {
        let sha256: extern "C" fn(*const u8, usize, *mut u8) -> *mut u8 =
            std::mem::transmute(loaded.function(c"SHA256"));
        sha256(b"abc".as_ptr(), 3, digest.as_mut_ptr());
        assert_eq!(
            digest[..8],
            [0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea]
        );
        let kdf: extern "C" fn(
            *const u8,
            c_int,
            *const u8,
            c_int,
            c_int,
            *const c_void,
            c_int,
            *mut u8,
        ) -> c_int = std::mem::transmute(loaded.function(c"PKCS5_PBKDF2_HMAC"));
        let sha: extern "C" fn() -> *const c_void =
            std::mem::transmute(loaded.function(c"EVP_sha256"));
        assert_eq!(
            kdf(
                b"password".as_ptr(),
                8,
                b"salt".as_ptr(),
                4,
                4096,
                sha(),
                32,
                digest.as_mut_ptr()
            ),
            1
        );
        assert_eq!(
            digest[..8],
            [0xc5, 0xe4, 0x78, 0xd5, 0x92, 0x88, 0xc8, 0x41]
        );
    }
}

/// libc in a child: nothing else may run there while it is patched.
#[test]
fn libc_computes_the_same() {
    let Some(path) = library("libc.so.6") else {
        return;
    };
    let loaded = Loaded::open(&path, libc::RTLD_LOCAL);
    let image = Image::open(&path).unwrap();
    let plan = Plan::make(&image).unwrap();
    let patches = Patches::new(&image, loaded.base, plan.sites.iter());
    // SAFETY: the child is a single thread, calls only what may be called after a fork, and ends with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: only this thread runs, and it is not in libc.
        let result = unsafe {
            patches.apply();
            use_libc()
        };
        // SAFETY: it takes a number.
        unsafe { libc::_exit(result) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status is written.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "it died: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0);
}

extern "C" fn compare(a: *const c_void, b: *const c_void) -> c_int {
    // SAFETY: qsort passes elements of the array.
    let (a, b) = unsafe { (*a.cast::<u32>(), *b.cast::<u32>()) };
    a.cmp(&b) as c_int
}

/// 0, or the number of the first thing that is wrong.
///
/// # Safety
///
/// After a fork in a process with threads: the child's only thread calls this.
unsafe fn use_libc() -> c_int {
    let mut text = [0u8; 128];
    let out = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: every call has the arguments that its manual page asks for.
    unsafe {
        libc::snprintf(
            out,
            text.len(),
            c"%d %s %.3f %#x".as_ptr(),
            -42,
            c"nopal".as_ptr(),
            2.5f64,
            255,
        );
        if CStr::from_ptr(out) != c"-42 nopal 2.500 0xff" {
            return 1;
        }
        let mut numbers: [u32; 500] =
            std::array::from_fn(|i| (i as u32).wrapping_mul(2_654_435_761));
        libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare));
        if !numbers.is_sorted() {
            return 2;
        }
        if libc::strtod(c"1.25e3".as_ptr(), ptr::null_mut()) != 1250.0
            || libc::atoi(c"77".as_ptr()) != 77
        {
            return 3;
        }
        let mut when: libc::tm = std::mem::zeroed();
        let time = 1_000_000_000;
        libc::gmtime_r(&time, &mut when);
        if (when.tm_year, when.tm_mon, when.tm_mday, when.tm_hour) != (101, 8, 9, 1) {
            return 4;
        }
        let mut expression: libc::regex_t = std::mem::zeroed();
        let compiled = libc::regcomp(
            &mut expression,
            c"^(a|b)+c[0-9]{2}$".as_ptr(),
            libc::REG_EXTENDED,
        );
        if compiled != 0
            || libc::regexec(&expression, c"ababc42".as_ptr(), 0, ptr::null_mut(), 0) != 0
        {
            return 5;
        }
        libc::regfree(&mut expression);
        if libc::strlen(c"twelve chars".as_ptr()) != 12
            || libc::strcmp(c"a".as_ptr(), c"b".as_ptr()) >= 0
        {
            return 6;
        }
        let mut pipes = [0; 2];
        libc::pipe(pipes.as_mut_ptr());
        let child = libc::fork();
        if child == 0 {
            libc::write(pipes[1], b"x".as_ptr().cast(), 1);
            libc::_exit(9);
        }
        let mut status = 0;
        let mut byte = 0u8;
        let read = libc::read(pipes[0], (&raw mut byte).cast(), 1);
        if read != 1
            || byte != b'x'
            || libc::waitpid(child, &mut status, 0) != child
            || libc::WEXITSTATUS(status) != 9
        {
            return 7;
        }
        let mut blocks = [ptr::null_mut::<c_void>(); 200];
        for (index, block) in blocks.iter_mut().enumerate() {
            *block = libc::malloc(index * 97 + 1);
            libc::memset(*block, index as c_int, index * 97 + 1);
        }
        for (index, block) in blocks.iter_mut().enumerate() {
            *block = libc::realloc(*block, index * 131 + 1);
            if *block.cast::<u8>() != index as u8 {
                return 8;
            }
            libc::free(*block);
        }
    }
    0
}
