//! Functions by lines of source.

mod common;

use common::Workshop;
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
    let workshop = Workshop::new();
    workshop.write("src/main.c", SOURCE);
    for (number, compiler) in [
        "gcc -gdwarf-5",
        "gcc -gdwarf-4",
        "gcc -gdwarf-3",
        "clang -gdwarf-5",
    ]
    .into_iter()
    .enumerate()
    {
        workshop.run(&format!("{compiler} -O1 -o prog{number} src/main.c"));
        check(&workshop.open(&format!("prog{number}")));
    }
}

#[test]
fn lines_in_a_separate_file() {
    let workshop = Workshop::new();
    workshop.write("src/main.c", SOURCE);
    workshop.run("gcc -g -O1 -o prog src/main.c");
    workshop.run("objcopy --only-keep-debug prog prog.debug");
    workshop.run("strip --strip-debug prog");
    workshop.run("objcopy --add-gnu-debuglink=prog.debug prog");
    check(&workshop.open("prog"));
}

#[test]
fn no_lines() {
    let workshop = Workshop::new();
    workshop.write("src/main.c", SOURCE);
    workshop.run("gcc -O1 -o prog src/main.c");
    assert!(names(&workshop.open("prog"), "main.c", 6).is_empty());
    // What is compressed is not read.
    workshop.run("gcc -g -gz=zlib -O1 -o packed src/main.c");
    assert!(names(&workshop.open("packed"), "main.c", 6).is_empty());
}

/// Line tables with bytes changed, and cut short, at every place.
#[test]
fn damaged_lines_do_no_harm() {
    let workshop = Workshop::new();
    workshop.write("src/main.c", SOURCE);
    workshop.run("gcc -g -O1 -o prog src/main.c");
    let bytes = std::fs::read(workshop.path("prog")).unwrap();
    let sections = workshop.run("readelf -SW prog");
    let line = sections
        .lines()
        .find(|line| line.contains(".debug_line "))
        .unwrap();
    let words: Vec<&str> = line
        .split(".debug_line")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    let number = |word: &str| usize::from_str_radix(word, 16).unwrap();
    let (offset, size) = (number(words[2]), number(words[3]));
    assert!(size > 50 && size < 5000, "{line}");
    for at in offset..offset + size {
        for value in [0, 0xff, bytes[at] ^ 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            workshop.write("damaged", &damaged);
            let image = workshop.open("damaged");
            let _ = image.functions_at_line("main.c", 6).unwrap();
        }
    }
}
