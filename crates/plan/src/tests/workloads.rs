//! Runs installed files of this machine with all their functions patched.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use nopal_symbols::Image;

use super::execution::{Loaded, Patches, patch};
use crate::Plan;

fn library(name: &str) -> Option<std::path::PathBuf> {
    super::installed()
        .into_iter()
        .find(|path| path.ends_with(name))
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
        if libc::strnlen(c"twelve chars".as_ptr(), 64) != 12
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
