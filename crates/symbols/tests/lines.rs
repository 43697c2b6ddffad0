//! Functions by lines of source.

mod common;

use common::BuildDirectory;
use nopal_symbols::Image;

const SOURCE: &str = "\
int global;

/* A comment. */
__attribute__((noinline)) int first(int a)
{
	return a + global;
}

static inline __attribute__((always_inline)) int part(int a)
{
	return a * global + 7;
}

__attribute__((noinline)) int second(int a)
{
	return part(a) - 1;
}

int main(int count, char **words)
{
	(void)words;
	return first(count) + second(count) + part(count);
}
";

/// Lines enough that it pays to compress them.
fn long_source() -> String {
    let more = (0..200)
        .map(|number| format!("int more_{number}(int a)\n{{\n\treturn a + {number};\n}}\n"));
    SOURCE.to_owned() + &more.collect::<String>()
}

fn names(image: &Image, file: &str, line: u32) -> Vec<String> {
    let functions = image.functions_at_line(file, line).unwrap();
    functions
        .iter()
        .map(|function| function.name.clone())
        .collect()
}

fn check(image: &Image) {
    for (file, line, expected) in [
        ("main.c", 6, vec!["first"]),
        ("src/main.c", 6, vec!["first"]),
        // The comment's is the line of the function behind it.
        ("main.c", 3, vec!["first"]),
        // Inlined into both.
        ("main.c", 11, vec!["main", "second"]),
        ("main.c", 16, vec!["second"]),
        ("main.c", 22, vec!["main"]),
        ("main.c", 1000, vec![]),
        ("ain.c", 6, vec![]),
        ("other/main.c", 6, vec![]),
    ] {
        let mut found = names(image, file, line);
        found.sort();
        assert_eq!(found, expected, "{file}:{line}");
    }
}

#[test]
fn lines_of_all_versions_and_compilers() {
    let build = BuildDirectory::new();
    build.write("src/main.c", SOURCE);
    for (number, compiler) in [
        "gcc -gdwarf-5",
        "gcc -gdwarf-4",
        "gcc -gdwarf-3",
        "clang -gdwarf-5",
    ]
    .into_iter()
    .enumerate()
    {
        build.run(&format!("{compiler} -O1 -o prog{number} src/main.c"));
        check(&build.open(&format!("prog{number}")));
    }
}

#[test]
fn lines_in_a_separate_file() {
    let build = BuildDirectory::new();
    build.write("src/main.c", SOURCE);
    build.run("gcc -g -O1 -o prog src/main.c");
    build.run("objcopy --only-keep-debug prog prog.debug");
    build.run("strip --strip-debug prog");
    build.run("objcopy --add-gnu-debuglink=prog.debug prog");
    check(&build.open("prog"));
}

#[test]
fn no_lines() {
    let build = BuildDirectory::new();
    build.write("src/main.c", SOURCE);
    build.run("gcc -O1 -o prog src/main.c");
    assert!(names(&build.open("prog"), "main.c", 6).is_empty());
}

#[test]
fn compressed_lines() {
    let build = BuildDirectory::new();
    build.write("src/main.c", long_source());
    build.run("gcc -g -O1 -o prog src/main.c");
    for format in ["zlib", "zstd"] {
        build.run(&format!(
            "objcopy --compress-debug-sections={format} prog packed"
        ));
        let sections = build.run("readelf -tW packed");
        let (_, line) = sections.split_once(".debug_line\n").unwrap();
        let line: String = line.lines().take(3).collect();
        assert!(line.to_lowercase().contains(format), "{line}");
        check(&build.open("packed"));
    }
}

/// Sections that say they are as long as they like.
#[test]
fn compressed_lines_of_any_length_do_no_harm() {
    let build = BuildDirectory::new();
    build.write("src/main.c", long_source());
    build.run("gcc -g -gz=zlib -O1 -o packed src/main.c");
    let bytes = std::fs::read(build.path("packed")).unwrap();
    let (offset, _) = line_tables(&build, "packed");
    let length = offset + 8..offset + 16;
    let said = u64::from_le_bytes(bytes[length.clone()].try_into().unwrap());
    for other in [0, 1, said - 1, said + 1, 1 << 40, u64::MAX] {
        let mut damaged = bytes.clone();
        damaged[length.clone()].copy_from_slice(&other.to_le_bytes());
        build.write("damaged", &damaged);
        let _ = names(&build.open("damaged"), "main.c", 6);
    }
    let mut damaged = bytes.clone();
    damaged[length].copy_from_slice(&u64::MAX.to_le_bytes());
    build.write("damaged", &damaged);
    assert!(names(&build.open("damaged"), "main.c", 6).is_empty());
}

/// The offset and the length of the line tables in a file.
fn line_tables(build: &BuildDirectory, file: &str) -> (usize, usize) {
    let sections = build.run(&format!("readelf -SW {file}"));
    let mut lines = sections.lines();
    let line = lines.find(|line| line.contains(".debug_line ")).unwrap();
    let words: Vec<&str> = line
        .split(".debug_line")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    let number = |word: &str| usize::from_str_radix(word, 16).unwrap();
    (number(words[2]), number(words[3]))
}

/// Line tables with bytes changed, and cut short, at every place.
#[test]
fn damaged_lines_do_no_harm() {
    let build = BuildDirectory::new();
    build.write("src/main.c", SOURCE);
    build.run("gcc -g -O1 -o prog src/main.c");
    let bytes = std::fs::read(build.path("prog")).unwrap();
    let (offset, size) = line_tables(&build, "prog");
    assert!(size > 50 && size < 5000, "{size}");
    for at in offset..offset + size {
        for value in [0, 0xff, bytes[at] ^ 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            build.write("damaged", &damaged);
            let image = build.open("damaged");
            let _ = image.functions_at_line("main.c", 6).unwrap();
        }
    }
}
