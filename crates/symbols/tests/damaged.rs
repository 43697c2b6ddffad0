mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::BuildDirectory;
use nopal_symbols::{Image, Selection, demangle, nearest, without_parameters};

/// xorshift64*
struct Random(u64);

impl Random {
    /// From NOPAL_SEED, or else the clock; printed, so that a failure can be repeated.
    fn new() -> Random {
        let seed = match std::env::var("NOPAL_SEED") {
            Ok(text) => text.parse().unwrap(),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64,
        };
        println!("NOPAL_SEED={seed}");
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A file with everything that is read: symbols, versions, unwinding, relocations, mini debug info, a link.
fn rich_file(build: &BuildDirectory, flags: &str) -> Vec<u8> {
    build.write(
        "a.cpp",
        "#include <cstdio>
         #include <string>
         namespace ns { template <class T> __attribute__((noinline)) T f(T x) { throw x; } }
         static int one() { return 1; }
         extern \"C\" int (*choose())() { return one; }
         extern \"C\" int chosen() __attribute__((ifunc(\"choose\")));
         int main(int argc, char **argv) {
             try { return ns::f(argc) + chosen(); } catch (int) { puts(std::string(argv[0]).c_str()); return 0; }
         }",
    );
    build.run(&format!("g++ -g -O2 {flags} a.cpp -o a"));
    build.run("objcopy --only-keep-debug a a.debug");
    build.run("cp a.debug mini");
    build.run("xz -f mini");
    build.run(
        "objcopy --strip-debug --add-section .gnu_debugdata=mini.xz --add-gnu-debuglink=a.debug a",
    );
    std::fs::read(build.path("a")).unwrap()
}

/// Reads everything; any answer is right, as long as it comes back and holds together.
fn read_everything(image: &Image) {
    image.identity();
    image.kind();
    image.is_static();
    image.interpreter();
    image.soname();
    image.needed();
    image.imports();
    image.pointers().for_each(drop);
    image.symbol("main");
    let (mut names, selection) = (
        Vec::new(),
        Selection::new(&["ns::*@a*".to_owned()], &[]).unwrap(),
    );
    if let Ok(functions) = image.functions() {
        for function in functions {
            let end = function.address.checked_add(function.size).unwrap();
            assert!(
                image
                    .bytes(function.address, function.size.try_into().unwrap())
                    .is_some()
            );
            image.unwind_rows(function.address);
            image.cfa_changes(function.address..end);
            let demangled = demangle(&function.name);
            without_parameters(&demangled);
            selection.chooses(&[&function.name], "a");
            names.push(function.name.as_str());
        }
    }
    nearest(names, "mian");
    image.function_at(image.entry()).ok();
}

fn try_to_read(build: &BuildDirectory, bytes: &[u8]) -> bool {
    let path = build.write("changed", bytes);
    match Image::open_with_debug_directories(&path, &[]) {
        Ok(image) => {
            read_everything(&image);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn cut_files_are_refused_or_read_in_part() {
    let build = BuildDirectory::new();
    let whole = rich_file(&build, "");
    let mut random = Random::new();
    assert!(try_to_read(&build, &whole));
    for _ in 0..100 {
        let cut = random.below(whole.len());
        try_to_read(&build, &whole[..cut]);
    }
    assert!(!try_to_read(&build, &whole[..whole.len() / 4]));
}

#[test]
fn changed_files_do_not_bring_the_reader_down() {
    let build = BuildDirectory::new();
    let mut random = Random::new();
    for flags in [
        "",
        "-static -no-pie",
        "-s -rdynamic",
        "-Wl,-z,pack-relative-relocs",
    ] {
        let whole = rich_file(&build, flags);
        let interesting = regions(&build, whole.len());
        let mut read = 0;
        let rounds = if whole.len() > 1 << 20 { 12 } else { 200 };
        for _ in 0..rounds {
            let mut changed = whole.clone();
            for _ in 0..=random.below(8) {
                change(&mut random, &mut changed, &interesting);
            }
            read += usize::from(try_to_read(&build, &changed));
        }
        assert!(
            read > rounds / 4,
            "most changes leave a file that opens: {read} of {rounds}"
        );
    }
}

/// The file's headers, section headers, and every section that is parsed.
fn regions(build: &BuildDirectory, len: usize) -> Vec<std::ops::Range<usize>> {
    let mut regions = vec![16..64, 64..64 + 14 * 56, len - 2200..len];
    let parsed = [
        ".eh_frame",
        ".eh_frame_hdr",
        ".dynamic",
        ".dynsym",
        ".dynstr",
        ".gnu.hash",
        ".gnu.version",
        ".rela.dyn",
        ".rela.plt",
        ".symtab",
        ".strtab",
        ".gnu_debugdata",
        ".gnu_debuglink",
        ".note.gnu.build-id",
    ];
    for line in build.run("readelf -SW a").lines() {
        let words: Vec<&str> = line
            .split(']')
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        if words.len() > 5 && parsed.contains(&words[0]) {
            let number = |word| usize::from_str_radix(word, 16).unwrap();
            let (offset, size) = (number(words[3]), number(words[4]));
            regions.push(offset..offset + size);
        }
    }
    regions
}

fn change(random: &mut Random, bytes: &mut [u8], regions: &[std::ops::Range<usize>]) {
    let region = regions[random.below(regions.len())].clone();
    let at = region.start + random.below(region.len());
    match random.below(4) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        _ => {
            let extremes = [
                0,
                1,
                u64::MAX,
                i64::MAX as u64,
                1 << 63,
                u64::from(u32::MAX),
                bytes.len() as u64,
                u64::MAX - 7,
            ];
            let value = extremes[random.below(extremes.len())].to_le_bytes();
            let at = at & !7;
            let width = [2, 4, 8][random.below(3)].min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
    }
}

#[test]
fn names_that_share_all_their_bytes_are_refused() {
    let build = BuildDirectory::new();
    // 4000 symbols, each named by the same 60,000 characters: little file, much text.
    let mut source = format!(
        ".text\n.globl {0}\n.type {0}, @function\n{0}: ret\n",
        "n".repeat(60_000)
    );
    for index in 0..4000 {
        source += &format!(".globl g{index}\n.type g{index}, @function\ng{index}: ret\n");
    }
    build.write("a.s", source);
    build.run("gcc -shared -nostdlib a.s -o a");
    let mut bytes = std::fs::read(build.path("a")).unwrap();
    let section = |name: &str| {
        let headers = build.run("readelf -SW a");
        let line = headers
            .lines()
            .find(|line| line.contains(&format!(" {name} ")))
            .unwrap();
        let words: Vec<&str> = line.split(']').nth(1).unwrap().split_whitespace().collect();
        let number = |word| usize::from_str_radix(word, 16).unwrap();
        number(words[3])..number(words[3]) + number(words[4])
    };
    let strings = bytes[section(".strtab")].to_vec();
    let long = strings
        .windows(1000)
        .position(|window| window.iter().all(|&byte| byte == b'n'))
        .unwrap() as u32;
    for symbol in bytes[section(".symtab")].chunks_mut(24).skip(1) {
        symbol[..4].copy_from_slice(&long.to_le_bytes());
    }
    build.write("b", bytes);
    let image = build.open("b");
    let error = format!("{:#}", image.functions().err().unwrap());
    assert!(error.contains("damaged"), "{error}");
}
