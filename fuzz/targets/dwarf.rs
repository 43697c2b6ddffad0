//! Damaged debug information, in which variables, lines of source and parameters are looked up.
//!
//! The input: a byte for the compilation, a byte for the instruction, then for each section a length of two bytes and
//! the bytes that are laid over it.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use nopal_symbols::{Image, VariablePath};
use object::{Object, ObjectSection};
use std::ops::Range;
use std::process::Command;
use std::sync::OnceLock;

const SOURCE: &str = "
enum colour { RED, GREEN = -3 };
typedef const char *text;
struct inner { struct inner *next; union { int whole; char parts[4]; }; unsigned bit : 3; };
struct pair { long first, second; struct inner inner, many[3][2]; };
static long total;
double share;
static inline int twice(int number) { int result = number * 2; total += result; return result; }
int each(enum colour colour, text name, struct pair *pair, unsigned char *bytes)
{
	char buffer[16];
	int sum = 0;
	for (int index = 0; index < 16; index++) {
		buffer[index] = name[index];
		sum += twice(bytes[index]) + (int)pair->second;
	}
	return sum + buffer[sum & 15] + (colour == RED);
}
struct mixed { float share; long bits : 40; double more; };
struct mixed passed(struct pair pair, struct mixed mixed, enum colour *to, __int128 wide, ...) { *to = RED; return mixed; }
int main(int count, char **words) { return each(GREEN, words[0], 0, (void *)words[1]) + count; }
";
const FILE: &str = "source.c";
const LINES: u32 = 22;
const VARIABLES: [&str; 20] = [
    "total",
    "share",
    "number",
    "result",
    "colour",
    "name",
    "pair",
    "bytes",
    "buffer",
    "index",
    "count",
    "none",
    "pair->second",
    "pair->inner.next->whole",
    "pair->inner.parts[3]",
    "pair->many[2][1].next",
    "pair->inner.bit",
    "pair->nothing",
    "bytes[3]",
    "words[0]",
];
const COMPILATIONS: [&[&str]; 4] = [
    &["-O2", "-g"],
    &["-O0", "-g", "-gdwarf-4"],
    &["-O1", "-g", "-gz"],
    &[
        "-O2",
        "-g",
        "-gdwarf-2",
        "-gstrict-dwarf",
        "-fno-pie",
        "-no-pie",
    ],
];

struct Whole {
    file: Vec<u8>,
    sections: Vec<Range<usize>>,
}

fn whole() -> &'static [Whole] {
    static WHOLE: OnceLock<Vec<Whole>> = OnceLock::new();
    WHOLE.get_or_init(|| COMPILATIONS.iter().map(|flags| compiled(flags)).collect())
}

fn compiled(flags: &[&str]) -> Whole {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(&folder)
        .args(flags)
        .args([FILE, "-o", "program"]);
    assert!(gcc.status().unwrap().success());
    let file = std::fs::read(folder.path().join("program")).unwrap();
    let parsed = object::File::parse(&*file).unwrap();
    let debug = parsed.sections().filter(|section| {
        let name = section.name().unwrap();
        name.starts_with(".debug_") || name == ".eh_frame"
    });
    let ranges = debug.filter_map(|section| section.file_range());
    let sections = ranges.map(|(at, length)| at as usize..(at + length) as usize);
    Whole {
        sections: sections.collect(),
        file,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = common::Input(data);
    let whole = &whole()[usize::from(input.byte()) % COMPILATIONS.len()];
    let instruction = usize::from(input.byte());
    let mut bytes = whole.file.clone();
    for section in &whole.sections {
        let length = usize::from(input.word());
        let damaged = common::patched(
            &whole.file[section.clone()],
            common::Input(input.bytes(length)),
        );
        bytes[section.clone()].copy_from_slice(&damaged[..section.len()]);
    }
    let file = common::File::with(&bytes);
    let image = Image::open_with_debug_directories(file.path(), &[]).unwrap();
    let functions = image.functions().unwrap();
    let code = functions
        .iter()
        .flat_map(|function| function.address..function.address + function.size);
    let code: Vec<u64> = code.collect();
    for name in VARIABLES {
        let path = VariablePath::parsed(name).unwrap();
        let _ = image.variable(code[(instruction * 5) % code.len()], &path);
    }
    for line in 0..LINES {
        let _ = image.places_of_line(FILE, line);
    }
    let _ = image.functions_at_line(FILE, 9);
    let addresses: Vec<u64> = functions.iter().map(|function| function.address).collect();
    let _ = image.prototypes(&addresses);
});
