//! Markers in compiled programs: `include/nopal.h` under every compiler, and the markers that are read from the files.

mod common;

use std::process::Command;

use common::BuildDirectory;
use nopal_symbols::{FieldKind, MARKER_NOP, Marker, Switch};

const PROGRAM: &str = r#"
#include <nopal.h>
#include <stdbool.h>
#include "shared.h"
enum state { IDLE, BUSY = 4 };
struct pair { int left, right; };

int leaf(int a, int b);
int looped(int n);
void every_type(char c, signed char i8, short i16, long i64, unsigned char u8, unsigned short u16, unsigned u32,
		unsigned long long u64, float f, double d, struct pair *pair, const char *text);

int leaf(int a, int b)
{
	int kept[4] = { a, b, a, b };
	NOPAL_MARK(leaf, "a=%d b=%d", a, b);
	return kept[a & 3] + kept[b & 3];
}

void every_type(char c, signed char i8, short i16, long i64, unsigned char u8, unsigned short u16, unsigned u32,
		unsigned long long u64, float f, double d, struct pair *pair, const char *text)
{
	char array[8] = "array";
	enum state state = BUSY;
	bool flag = true;
	NOPAL_MARK(integers, "c=%c %hhd i16=%hd i64=%ld u8=%hhu u16=%#hx %u u64=%llu state=%d{idle,busy=4} flag=%d", c, i8,
		   i16, i64, u8, u16, u32, u64, state, flag);
	NOPAL_MARK(others, "f=%f d=%.3e pair=%p text=%s array=%s text=%p bytes=%p part=%s 100%%", f, d, (void *)pair, text,
		   array, text, NOPAL_BYTES(array, sizeof array), NOPAL_BYTES(text, 3));
	NOPAL_MARK(twelve, "%d%d%d%d%d%d%d%d%d%d%d%ld", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12L);
}

int looped(int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++) {
		NOPAL_MARK(looped, "");
		sum += shared(i);
	}
	if (n > 100)
		NOPAL_MARK_GENERIC(generic, "n=%d", n);
	else
		NOPAL_MARK_GENERIC(generic, "n=%d, few", n);
	if (n > 1000)
		every_type(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, "text");
	return n > 1000 ? leaf(n, n) : sum;
}
"#;

const SHARED: &str = r#"
#include <nopal.h>
static inline int shared(int a)
{
	NOPAL_MARK(shared, "a=%d", a);
	return a + 1;
}
"#;

const MAIN: &str = r#"
#include "shared.h"
#ifdef __cplusplus
#include <string>
enum class kind : unsigned char { one = 1 };
template <typename T> T twice(T value)
{
	NOPAL_MARK(twice, "value=%ld", (long)value);
	kind k = kind::one;
	NOPAL_MARK(temporary, "kind=%u none=%p text=%s", k, nullptr, std::string("text").c_str());
	return value + value;
}
inline int in_every_file(int a) { NOPAL_MARK(in_every_file, "a=%d", a); return a; }
extern "C" int looped(int);
int other_file() { return (int)twice(3L) + twice(4) + in_every_file(5); }
#else
int looped(int);
int other_file(void) { return 0; }
#endif
int main(int count, char **arguments) { (void)arguments; return shared(count) == 2 ? 0 : looped(count) + other_file(); }
"#;

fn build() -> BuildDirectory {
    let build = BuildDirectory::new();
    build.write("shared.h", SHARED);
    for name in ["program.c", "program.cc"] {
        let extern_c = match name {
            "program.cc" => "extern \"C\" { int leaf(int, int); int looped(int); }\n",
            _ => "",
        };
        build.write(name, format!("{extern_c}{PROGRAM}"));
    }
    build.write("main.c", MAIN);
    build.write("main.cc", MAIN);
    build
}

const WARNINGS: &str = "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror";

fn named<'a>(markers: &'a [Marker], name: &str) -> Vec<&'a Marker> {
    markers
        .iter()
        .filter(|marker| marker.name == name)
        .collect()
}

fn check(build: &BuildDirectory, file: &str, how: &str, is_cxx: bool) {
    let image = build.open(file);
    let (markers, bad) = image.markers();
    assert_eq!(bad, [], "{how}");
    for marker in &markers {
        assert!(
            !marker.places.is_empty() && !marker.states.is_empty(),
            "{how}: {marker:?}"
        );
        for place in &marker.places {
            match place.switch {
                Switch::Patched => {
                    assert_eq!(
                        image.bytes(place.address, 5),
                        Some(&MARKER_NOP[..]),
                        "{how}"
                    );
                    let line = place.address / 64 == (place.address + 4) / 64;
                    assert!(line && place.address % 8 < 7, "{how}: {place:?}");
                }
                Switch::Tested => assert_eq!(marker.name, "generic", "{how}"),
            }
        }
    }
    let leaf = named(&markers, "leaf")[0];
    let names: Vec<&str> = leaf
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(
        (names, leaf.line),
        (vec!["a", "b"], 16 + u32::from(is_cxx)),
        "{how}"
    );
    assert!(
        leaf.file
            .ends_with(if is_cxx { "program.cc" } else { "program.c" }),
        "{how}"
    );
    let kinds = |name| -> Vec<FieldKind> {
        named(&markers, name)[0]
            .fields
            .iter()
            .map(|field| field.kind)
            .collect()
    };
    use FieldKind::*;
    let integers = [
        Character,
        Signed(8),
        Signed(16),
        Signed(64),
        Unsigned(8),
        Hexadecimal(16),
        Unsigned(32),
        Unsigned(64),
        Unsigned(32),
        Unsigned(8),
    ];
    assert_eq!(kinds("integers"), integers, "{how}");
    assert_eq!(
        kinds("others"),
        [
            Double, Double, Pointer, String, String, Pointer, Bytes, Text
        ],
        "{how}"
    );
    assert_eq!(kinds("twelve").len(), 12, "{how}");
    assert_eq!(kinds("looped"), [], "{how}");
    assert_eq!(named(&markers, "generic").len(), 2, "{how}: two lines");
    let labels = &named(&markers, "integers")[0].fields[8].labels;
    assert_eq!(
        labels,
        &[(0, "idle".to_owned()), (4, "busy".to_owned())],
        "{how}"
    );
    assert!(!named(&markers, "shared").is_empty(), "{how}");
    if is_cxx {
        for name in ["twice", "temporary", "in_every_file"] {
            assert_eq!(named(&markers, name).len(), 1, "{how}: {name}");
        }
    }
}

fn build_and_check(compiler: &str, standard: &str, flags: &str, is_cxx: bool) {
    let build = build();
    let suffix = if is_cxx { "cc" } else { "c" };
    let how = format!("{compiler} {standard} {flags}");
    build.run(&format!(
        "{compiler} {standard} {WARNINGS} {flags} -Iinclude program.{suffix} main.{suffix} -o out"
    ));
    if !flags.contains("-shared") {
        let status = Command::new(build.path("out")).status().unwrap();
        assert_eq!(status.code(), Some(0), "{how}");
    }
    check(&build, "out", &how, is_cxx);
}

const FLAGS: [&str; 10] = [
    "-O0",
    "-O1",
    "-O2",
    "-Os",
    "-O3 -funroll-loops",
    "-O2 -flto",
    "-O2 -fno-pie -no-pie",
    "-O2 -static",
    "-O2 -fPIC -shared",
    "-O2 -ffunction-sections -Wl,--gc-sections -g",
];

#[test]
fn gcc() {
    for flags in FLAGS {
        build_and_check("gcc", "-std=c11", flags, false);
    }
}

/// It puts all notes into one segment.
#[test]
fn linked_by_mold() {
    build_and_check("gcc", "-std=c11", "-O2 -fuse-ld=mold", false);
}

#[test]
fn clang() {
    for flags in FLAGS.iter().filter(|flags| !flags.contains("lto")) {
        build_and_check("clang", "-std=c11", flags, false);
    }
}

#[test]
fn gxx() {
    for flags in FLAGS {
        build_and_check("g++", "-std=c++17", flags, true);
    }
}

#[test]
fn clangxx() {
    for flags in FLAGS.iter().filter(|flags| !flags.contains("lto")) {
        build_and_check("clang++", "-std=c++17", flags, true);
    }
}

#[test]
fn nothing_is_left_with_nopal_off() {
    let build = build();
    for compiler in ["gcc -std=c11", "clang -std=c11"] {
        let flags = format!("{WARNINGS} -O0 -DNOPAL_OFF");
        build.run(&format!(
            "{compiler} {flags} -Iinclude program.c main.c -o off"
        ));
        assert_eq!(build.open("off").markers(), (vec![], vec![]), "{compiler}");
        assert!(!build.run("nm off").contains("nopal"), "{compiler}");
    }
}

/// The instructions of a function, without prefixes and operands.
fn instructions(build: &BuildDirectory, file: &str, function: &str) -> Vec<String> {
    let text = build.run(&format!(
        "objdump -d --no-show-raw-insn --disassemble={function} {file}"
    ));
    text.lines()
        .filter_map(|line| line.trim().split_once(":\t"))
        .map(|(_, instruction)| instruction.trim_start_matches("cs ").trim().to_owned())
        .collect()
}

#[test]
fn a_marker_that_is_off_is_one_instruction() {
    let build = BuildDirectory::new();
    build.write(
        "one.c",
        "#include <nopal.h>
         int leaf(int a, int b) { int kept[4] = { a, b, a, b }; MARK return kept[a & 3] + kept[b & 3]; }",
    );
    // gcc jumps over the values' code at -O1 and -Os, and both compilers at -O0.
    for (compiler, levels) in [
        ("gcc", &["-O2", "-O3"][..]),
        ("clang", &["-O1", "-O2", "-O3", "-Os"]),
    ] {
        for optimisation in levels {
            let build = |mark: &str, output| {
                build.write("mark.h", format!("#define MARK {mark}\n"));
                build.run(&format!(
                    "{compiler} {optimisation} -include mark.h -Iinclude -c one.c -o {output}"
                ));
                let all = instructions(&build, output, "leaf");
                let end = all
                    .iter()
                    .position(|instruction| instruction.starts_with("ret"));
                all[..=end.unwrap()].to_vec()
            };
            let without = build("", "without.o");
            let mut with = build("NOPAL_MARK(leaf, \"%d %d\", a, b);", "with.o");
            let at = with
                .iter()
                .position(|instruction| instruction.starts_with("nopl"));
            with.remove(at.expect("the NOP is on the way"));
            let names = |instructions: &[String]| -> Vec<String> {
                let name = |text: &String| text.split_whitespace().next().unwrap().to_owned();
                let mut names: Vec<String> = instructions.iter().map(name).collect();
                names.sort();
                names
            };
            assert_eq!(names(&with), names(&without), "{compiler} {optimisation}");
        }
    }
}

#[test]
fn formats_that_do_not_fit_do_not_compile() {
    let rejected = [
        r#"NOPAL_MARK(x, "%d", 1L)"#,
        r#"NOPAL_MARK(x, "%s", 1)"#,
        r#"NOPAL_MARK(x, "%d", "text")"#,
        r#"NOPAL_MARK(x, "%d")"#,
        r#"NOPAL_MARK(x, "%d", 1, 2)"#,
        r#"NOPAL_MARK(x, "", 1)"#,
        r#"NOPAL_MARK(x, "%f", 1)"#,
        r#"NOPAL_MARK(x, "%d", 1.0)"#,
        r#"NOPAL_MARK(x, "%d", NOPAL_BYTES("a", 1))"#,
        r#"NOPAL_MARK(x, "%Lf", 1.0L)"#,
        r#"NOPAL_MARK(x, "%y", 1)"#,
        r#"NOPAL_MARK(x, text, 1)"#,
        r#"NOPAL_MARK(x, "%d", structure)"#,
        r#"NOPAL_MARK(x, "%d%d%d%d%d%d%d%d%d%d%d%d%d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)"#,
        r#"NOPAL_MARK_GENERIC(x, "%d", 1L)"#,
    ];
    let build = BuildDirectory::new();
    for compiler in [
        "gcc -std=c11",
        "clang -std=c11",
        "g++ -std=c++17",
        "clang++ -std=c++17",
    ] {
        let compile = |statement: &str, off: bool| {
            let source = format!(
                "#include <nopal.h>\nstruct s {{ int i; }} structure;\nvoid f(const char *text) {{ (void)text; {statement}; }}\n"
            );
            let suffix = if compiler.contains("++") { "cc" } else { "c" };
            build.write(&format!("source.{suffix}"), source);
            let mut words = compiler.split(' ');
            let mut command = Command::new(words.next().unwrap());
            command.args(words).args(off.then_some("-DNOPAL_OFF"));
            command.args([
                "-Iinclude".to_owned(),
                "-c".into(),
                format!("source.{suffix}"),
            ]);
            command.current_dir(build.path(""));
            command.output().unwrap().status.success()
        };
        assert!(
            compile(r#"NOPAL_MARK(x, "%d %s", 1, "text")"#, false),
            "{compiler}"
        );
        let bytes = r#"NOPAL_MARK(x, "%d %s %s", 1, "text", NOPAL_BYTES("a", 1))"#;
        assert!(compile(bytes, false) && compile(bytes, true), "{compiler}");
        for statement in rejected {
            assert!(!compile(statement, false), "{compiler} accepts {statement}");
        }
        for statement in &rejected[..9] {
            assert!(
                !compile(statement, true),
                "{compiler} accepts {statement} when off"
            );
        }
    }
}

#[test]
fn notes_that_lie_are_refused() {
    let build = build();
    build.run("gcc -O2 -Iinclude program.c main.c -o out");
    let file = std::fs::read(build.path("out")).unwrap();
    let (markers, _) = build.open("out").markers();
    let owner = b"\x06\0\0\0\x18\0\0\0\x01\0\0\0nopal\0\0\0";
    let note = file
        .windows(owner.len())
        .position(|bytes| bytes == owner)
        .unwrap();
    for field in 0..6 {
        for value in [1u32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
            let mut damaged = file.clone();
            let at = note + owner.len() + field * 4;
            damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
            build.write("damaged", damaged);
            let image = build.open("damaged");
            let (found, _) = image.markers();
            for place in found.iter().flat_map(|marker| &marker.places) {
                let was = markers.iter().flat_map(|marker| &marker.places);
                let same = |other: &nopal_symbols::MarkerSite| other.address == place.address;
                assert!(
                    was.clone().any(same),
                    "field {field} = {value:#x}: {place:?}"
                );
            }
        }
    }
}
