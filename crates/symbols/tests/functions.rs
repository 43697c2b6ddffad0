mod common;

use common::{BuildDirectory, addresses, by_name};
use nopal_symbols::{Image, Source};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int leaf(int x) { __asm__ volatile("" : "+r"(x)); return x + 1; }
int _leaf_too(int) __attribute__((alias("leaf")));
static int local_leaf(int) __attribute__((alias("leaf"), used));
__attribute__((noinline)) static int hidden(int x) { __asm__ volatile("" : "+r"(x)); return leaf(x) * 2; }
__attribute__((weak)) int overridable(int x) { return hidden(x) + 3; }
int table = 5;
int main(int argc, char **argv) { printf("%d\n", overridable(argc) + table); return atoi(argv[0]); }
"#;

/// `f.cold` begins before `f` moved the stack pointer, `g.cold` after.
const WITH_COLD_PARTS: &str = r#"
#include <stdlib.h>
int volatile sink;
__attribute__((noinline, cold, noreturn)) void give_up(int x) { sink = x; abort(); }
__attribute__((noinline)) int f(int x) { if (__builtin_expect(x == 7, 0)) give_up(x); return x + sink; }
__attribute__((noinline)) int g(int *x) {
    int sum = 0;
    for (int i = 0; i < 10; i++) { sum += f(x[i]); if (__builtin_expect(sum == 99, 0)) give_up(sum); }
    return sum;
}
__attribute__((noinline)) int h(int x) { if (__builtin_expect(x > 100, 0)) { sink = x; abort(); } return f(x); }
int main(int argc, char **argv) { int x[10] = {argc}; return g(x) + h(argc) + (argv == 0); }
"#;

#[test]
fn symtab_names_every_function_once() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    build.run("gcc -O2 a.c -o a");
    let image = build.open("a");
    let functions = by_name(&image);

    for (name, address, kind) in build.nm("a") {
        let is_code = "tTi".contains(kind) || name == "overridable";
        let found = image
            .functions()
            .unwrap()
            .iter()
            .find(|function| function.address == address);
        let named =
            found.is_some_and(|function| function.name == name || function.aliases.contains(&name));
        assert_eq!(named, is_code, "{name} {kind}");
        assert_eq!(image.symbol(&name), Some(address), "{name}");
    }
    let leaf = functions["leaf"];
    assert_eq!(leaf.aliases, ["_leaf_too", "local_leaf"]);
    assert_eq!(
        (leaf.source, leaf.global, leaf.indirect),
        (Source::Symtab, true, false)
    );
    assert!(!functions["hidden"].global);
    assert!(functions["overridable"].global);
    assert!(addresses(&image).is_sorted_by(|a, b| a < b));
    assert_eq!(image.symbol("nowhere"), None);
    assert_eq!(image.symbol("printf"), None);
    assert_eq!(image.exported("leaf"), None, "only in .symtab");

    let inside = image
        .function_at(leaf.address + leaf.size - 1)
        .unwrap()
        .unwrap();
    assert_eq!(inside.name, "leaf");
    assert_eq!(image.function_at(0).unwrap(), None);
}

#[test]
fn sizes_are_those_of_the_compiler() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    build.run("gcc -O2 a.c -o a");
    let image = build.open("a");
    let mut compared = 0;
    for line in build.run("nm -S --defined-only a").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [address, size, "t" | "T" | "W", _] = words[..] {
            let address = u64::from_str_radix(address, 16).unwrap();
            let function = image.function_at(address).unwrap().unwrap();
            assert_eq!(
                function.size,
                u64::from_str_radix(size, 16).unwrap(),
                "{line}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 4);
}

#[test]
fn stripped_files_have_what_unwinding_knows() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    build.run("gcc -O2 a.c -o a");
    build.run("strip a -o b");
    let (whole, stripped) = (build.open("a"), build.open("b"));
    let found = addresses(&stripped);
    for name in ["main", "leaf", "hidden", "overridable"] {
        let function = by_name(&whole)[name];
        let same = stripped.function_at(function.address).unwrap().unwrap();
        assert_eq!(same.name, format!("b+{:#x}", function.address));
        assert_eq!(
            (same.source, same.size, same.global),
            (Source::Unwind, function.size, false)
        );
    }
    let all = addresses(&whole);
    assert!(
        found.iter().all(|address| all.contains(address)),
        "{found:x?} {all:x?}"
    );
    assert!(!found.contains(&whole.entry()), "nothing calls _start");
    assert_eq!(whole.identity(), stripped.identity());
}

#[test]
fn exported_functions_keep_their_names() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    build.run("gcc -O2 -rdynamic -s a.c -o a");
    let image = build.open("a");
    let functions = by_name(&image);
    assert_eq!(functions["main"].source, Source::Dynsym);
    assert_eq!(functions["leaf"].aliases, ["_leaf_too"]);
    assert_eq!(image.symbol("leaf"), Some(functions["leaf"].address));
    assert!(!functions.contains_key("printf"));
}

#[test]
fn nothing_is_lost_without_sections() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    for (flags, hash) in [
        ("", "gnu"),
        ("", "sysv"),
        ("-fcf-protection -Wl,-z,ibtplt", "gnu"),
    ] {
        build.run(&format!(
            "gcc -O2 -rdynamic -s {flags} -Wl,--hash-style={hash} a.c -o a"
        ));
        let mut bytes = std::fs::read(build.path("a")).unwrap();
        bytes[0x28..0x30].fill(0); // e_shoff
        bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
        build.write("b", bytes);
        let (with, without) = (build.open("a"), build.open("b"));
        let names = by_name(&without);
        for (name, function) in by_name(&with) {
            if function.source == Source::Dynsym {
                assert_eq!(names[name].address, function.address, "{name}");
            } else {
                assert!(
                    without.function_at(function.address).unwrap().is_some(),
                    "{name}"
                );
            }
        }
        assert_eq!(with.imports(), without.imports());
        assert_eq!(with.identity(), without.identity());
    }
}

#[test]
fn cold_parts_are_not_functions() {
    let build = BuildDirectory::new();
    build.write("a.c", WITH_COLD_PARTS);
    for flags in [
        "-O2",
        "-O2 -no-pie",
        "-O3 -fno-omit-frame-pointer",
        "-O2 -fcf-protection",
    ] {
        build.run(&format!("gcc {flags} a.c -o a"));
        build.run("strip a -o b");
        let cold: Vec<u64> = build
            .nm("a")
            .into_iter()
            .filter(|symbol| symbol.0.ends_with(".cold"))
            .map(|symbol| symbol.1)
            .collect();
        assert!(cold.len() >= 3, "this compiler splits no functions");
        for name in ["a", "b"] {
            let image = build.open(name);
            let found = addresses(&image);
            assert!(
                !cold.iter().any(|part| found.contains(part)),
                "{flags} {name}: {cold:x?} {found:x?}"
            );
            for function in ["f", "g", "h", "give_up", "main"] {
                assert!(
                    found.contains(&build.address("a", function)),
                    "{flags} {name}: {function}"
                );
            }
        }
    }
}

#[test]
fn assembly_without_sizes_or_types() {
    let build = BuildDirectory::new();
    build.write("main.c", "int main(void) { return 0; }");
    build.write(
        "a.s",
        r#"
        .text
        .globl with_frame, second, untyped, marker
        .type with_frame, @function
        .type second, @function
        .p2align 4
with_frame:
        .cfi_startproc
        nop
        nop
label:
        ret
        .cfi_endproc
        .p2align 4
second: nop
        ret
        .p2align 4
untyped:
        .cfi_startproc
        nop
        ret
        .cfi_endproc
marker: nop
        .section .note.GNU-stack,"",@progbits
"#,
    );
    build.run("gcc main.c a.s -o a");
    let image = build.open("a");
    let functions = by_name(&image);
    assert_eq!(functions["with_frame"].size, 3);
    assert_eq!(functions["second"].size, 16, "up to the next entry");
    assert_eq!(
        functions["untyped"].size, 2,
        "a label is a function where unwinding says so"
    );
    assert!(!functions.contains_key("label") && !functions.contains_key("marker"));
}

#[test]
fn indirect_functions_are_marked() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "static int one(void) { return 1; }
         static int (*choose(void))(void) { return one; }
         int chosen(void) __attribute__((ifunc(\"choose\")));
         int main(void) { return chosen(); }",
    );
    for flags in ["", "-static", "-s -rdynamic"] {
        build.run(&format!("gcc {flags} a.c -o a"));
        let image = build.open("a");
        let functions = by_name(&image);
        assert!(functions["chosen"].indirect, "{flags}");
        assert!(!functions["main"].indirect);
    }
}

#[test]
fn stubs_of_the_linker_are_not_functions() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "#include <stdio.h>
         #include <string.h>
         int main(int argc, char **argv) { int (*f)(const char *) = argc > 1 ? puts : (void *)strlen; return f(argv[0]) + puts(\"\"); }",
    );
    for flags in [
        "",
        "-Wl,-z,lazy",
        "-fcf-protection -Wl,-z,lazy",
        "-no-pie -Wl,-z,lazy",
        "-static",
        "-fno-plt",
    ] {
        build.run(&format!("gcc -O2 -s {flags} a.c -o a"));
        let image = build.open("a");
        let headers = build.run("readelf -SW a");
        let stubs: Vec<(u64, u64)> = headers
            .lines()
            .filter(|line| line.contains(" .plt"))
            .map(|line| {
                let words: Vec<&str> = line.split(']').nth(1).unwrap().split_whitespace().collect();
                let number = |word| u64::from_str_radix(word, 16).unwrap();
                (number(words[2]), number(words[4]))
            })
            .collect();
        assert!(!stubs.is_empty() || flags.contains("-fno-plt"), "{headers}");
        for function in image.functions().unwrap() {
            let is_stub = stubs
                .iter()
                .any(|&(start, size)| (start..start + size).contains(&function.address));
            assert!(!is_stub, "{flags} {function:?}");
        }
    }
}

#[test]
fn versions_are_not_part_of_a_name() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "__asm__(\".symver old, f@V1\");
         __asm__(\".symver new, f@@V2\");
         int old(void) { return 1; }
         int new(void) { return 2; }",
    );
    build.write("a.map", "V1 { f; }; V2 { f; } V1;");
    build.run("gcc -shared -fPIC -Wl,--version-script=a.map a.c -o a.so");
    let image = build.open("a.so");
    let new = build.address("a.so", "new");
    assert_eq!(
        image.symbol("f"),
        Some(new),
        "programs that are linked now get the default version"
    );
    assert!(
        image
            .functions()
            .unwrap()
            .iter()
            .all(|function| !function.name.contains('@'))
    );
    build.run("strip a.so");
    let stripped = build.open("a.so");
    assert_eq!(stripped.symbol("f"), Some(new));
    assert_eq!(addresses(&stripped).len(), 2);
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "int f_esc_name(void) { return 1; } int main(void) { return f_esc_name(); }",
    );
    build.run("gcc a.c -o a");
    let bytes = std::fs::read(build.path("a")).unwrap();
    let at = bytes
        .windows(10)
        .position(|window| window == b"f_esc_name")
        .unwrap();
    let mut changed = bytes.clone();
    changed[at + 2..at + 5].copy_from_slice(b"\x1b[\xff");
    build.write("b", changed);
    let image: Image = build.open("b");
    let name = &image
        .function_at(build.address("a", "f_esc_name"))
        .unwrap()
        .unwrap()
        .name;
    assert_eq!(name, "f_\u{fffd}[\u{fffd}_name");
}

#[test]
fn exported_names_are_found_as_symbols_are() {
    let build = BuildDirectory::new();
    build.write(
        "versions.c",
        r#"
__asm__(".symver old_way, chosen@V1\n.symver new_way, chosen@@V2");
int old_way(void) { return 1; }
int new_way(void) { return 2; }
__thread int variable;
int data = 3;
extern int missing(void);
int calls(void) { return missing(); }
"#,
    );
    build.write("map", "V1 { global: *; };\nV2 { } V1;\n");
    build.run("gcc -O2 -shared -fPIC versions.c -Wl,--version-script=map -o versions.so");
    let image = build.open("versions.so");
    for name in ["chosen", "old_way", "data", "calls"] {
        assert!(image.exported(name).is_some(), "{name}");
        assert_eq!(image.exported(name), image.symbol(name), "{name}");
    }
    for name in ["variable", "missing", "", "chose"] {
        assert_eq!(image.exported(name), None, "{name}");
    }

    let libc = Image::open(std::path::Path::new("/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
    let names = libc
        .functions()
        .unwrap()
        .iter()
        .map(|function| &function.name);
    let mut exported = 0;
    for name in names.step_by(7) {
        assert!(
            libc.exported(name)
                .is_none_or(|address| libc.symbol(name) == Some(address)),
            "{name}"
        );
        exported += usize::from(libc.exported(name).is_some());
    }
    assert!(exported > 100, "{exported}");
}
