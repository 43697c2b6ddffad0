mod common;

use std::path::Path;

use common::{BuildDirectory, by_name};
use nopal_symbols::{Image, Kind, Relocation};

const PROGRAM: &str = "
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int (*const table[])(const char *) = { puts, atoi };
int main(int argc, char **argv) { return table[argc & 1](argv[0]) + abs(getenv(\"A\") != 0) + (int)strlen(argv[0]); }
";

#[test]
fn kinds_of_files() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    for (flags, kind, is_static) in [
        ("-pie", Kind::PositionIndependent, false),
        ("-no-pie", Kind::Executable, false),
        ("-static", Kind::Executable, true),
        ("-static-pie", Kind::PositionIndependent, true),
        ("-shared -fPIC", Kind::Library, false),
        ("-shared -fPIC -Wl,-soname,liba.so.1", Kind::Library, false),
    ] {
        build.run(&format!("gcc -O2 {flags} a.c -o a"));
        let image = build.open("a");
        assert_eq!(
            (image.kind(), image.is_static()),
            (kind, is_static),
            "{flags}"
        );
        assert_eq!(
            image.soname(),
            flags.contains("-soname").then_some("liba.so.1"),
            "{flags}"
        );
        let is_dynamic = !is_static && kind != Kind::Library;
        assert_eq!(
            image
                .interpreter()
                .is_some_and(|path| path.contains("ld-linux")),
            is_dynamic,
            "{flags}"
        );
        assert_eq!(image.needed().contains(&"libc.so.6"), !is_static, "{flags}");
        assert!(by_name(&image).contains_key("main"), "{flags}");
        let headers = build.run("readelf -lW a");
        assert_eq!(
            image.has_unwind_header(),
            headers.contains("GNU_EH_FRAME"),
            "{flags}"
        );
    }
}

#[test]
fn segments_and_bytes_are_those_of_the_file() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "int main(void) { return 0; } const char text[] = \"here it is\"; int zeroes[4000];",
    );
    build.run("gcc -no-pie a.c -o a");
    let image = build.open("a");
    let text = image.symbol("text").unwrap();
    assert_eq!(image.bytes(text, 11).unwrap(), b"here it is\0");
    assert_eq!(image.bytes(0x400000, 4).unwrap(), b"\x7fELF");
    assert_eq!(image.bytes(0x400000, 1 << 20), None, "beyond the segment");
    assert_eq!(image.bytes(0, 1), None);
    assert_eq!(image.bytes(u64::MAX, 1), None);
    assert_eq!(
        image.bytes(image.symbol("zeroes").unwrap() + 8000, 1),
        None,
        "not in the file"
    );
    let executable = image
        .segments()
        .iter()
        .find(|segment| segment.executable)
        .unwrap();
    assert!(
        (executable.address..executable.address + executable.file_size).contains(&image.entry())
    );
    assert!(executable.readable && !executable.writable);
    assert!(
        image
            .segments()
            .iter()
            .any(|segment| segment.memory_size > segment.file_size && segment.writable)
    );
    assert_eq!(image.file_name(), "a");
}

#[test]
fn a_file_is_known_by_its_build_id_or_its_content() {
    let build = BuildDirectory::new();
    build.write("a.c", "int main(void) { return 0; }");
    build.run("gcc a.c -Wl,--build-id=0x00c0ffee11 -o a");
    assert_eq!(build.open("a").identity(), "00c0ffee11");
    assert_eq!(
        build.open("a").build_id().unwrap(),
        [0, 0xc0, 0xff, 0xee, 0x11]
    );
    build.run("gcc a.c -Wl,--build-id=none -o b");
    build.run("cp b c");
    build.run("gcc -O2 a.c -Wl,--build-id=none -o d");
    let identities = ["b", "c", "d"].map(|name| build.open(name).identity());
    assert!(
        identities[0].starts_with("x-") && identities[0].len() == 18,
        "{identities:?}"
    );
    assert_eq!(identities[0], identities[1]);
    assert_ne!(identities[0], identities[2]);
}

#[test]
fn what_is_no_program_gets_a_clear_error() {
    let build = BuildDirectory::new();
    build.write("a.c", "int main(void) { return 0; }");
    build.run("gcc a.c -o a");
    build.run("gcc -c a.c -o a.o");
    let program = std::fs::read(build.path("a")).unwrap();
    let changed = |at: usize, value: u8| {
        let mut bytes = program.clone();
        bytes[at] = value;
        bytes
    };
    for (name, bytes, expected) in [
        ("script", b"#!/bin/sh\n".to_vec(), "not an ELF file"),
        ("nothing", Vec::new(), "empty"),
        ("short", program[..40].to_vec(), "truncated"),
        ("half", program[..program.len() / 2].to_vec(), "truncated"),
        ("headless", program[..100].to_vec(), "truncated"),
        (
            "x86",
            [&changed(4, 1)[..18], &[3, 0], &program[20..]].concat(),
            "x86 (32-bit)",
        ),
        ("arm", changed(18, 183), "aarch64"),
        ("riscv", changed(18, 243), "riscv"),
        ("odd", changed(18, 99), "machine number 99"),
        ("big", changed(5, 2), "big-endian"),
        ("core", changed(16, 4), "core dump"),
        (
            "object",
            std::fs::read(build.path("a.o")).unwrap(),
            "object file",
        ),
    ] {
        let path = build.write(name, bytes);
        let error = format!("{:#}", Image::open(&path).err().unwrap());
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    for (path, expected) in [
        ("/nonexistent", "No such file"),
        ("/dev/null", "not a regular file"),
        ("/", "not a regular file"),
    ] {
        let error = format!("{:#}", Image::open(Path::new(path)).err().unwrap());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn imports_are_those_that_readelf_shows() {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    for flags in [
        "-Wl,-z,lazy",
        "-Wl,-z,now",
        "-fno-plt",
        "-no-pie",
        "-fcf-protection",
        "-s",
    ] {
        build.run(&format!("gcc -O2 -fno-builtin {flags} a.c -o a"));
        let image = build.open("a");
        let imports = image.imports();
        let mut compared = 0;
        for line in build.run("readelf -rW a").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [slot, _, kind, _, symbol, ..] = words[..] else {
                continue;
            };
            let kind = match kind {
                "R_X86_64_JUMP_SLOT" | "R_X86_64_JUMP_SLO" => Relocation::JumpSlot,
                "R_X86_64_GLOB_DAT" => Relocation::GlobDat,
                "R_X86_64_64" => Relocation::Pointer,
                _ => continue,
            };
            let name = symbol.split('@').next().unwrap();
            let slot = u64::from_str_radix(slot, 16).unwrap();
            let found = imports
                .iter()
                .find(|import| import.slot == slot && import.bound_as == kind);
            assert_eq!(
                found.map(|import| import.name.as_str()),
                Some(name),
                "{flags} {line}"
            );
            compared += 1;
        }
        assert_eq!(imports.len(), compared, "{flags} {imports:?}");
        for name in ["puts", "atoi", "getenv", "abs", "strlen"] {
            assert!(
                imports.iter().any(|import| import.name == name),
                "{flags} {name} {imports:?}"
            );
        }
    }
}

#[test]
fn pointers_are_those_in_tables_whether_packed_or_not() {
    let build = BuildDirectory::new();
    // More words than one entry of packed relocations covers, with gaps.
    build.write(
        "a.c",
        "static int first(int n) { return n + 1; }
         static int second(int n) { return n + 2; }
         int absent(int);
         int (*volatile table[200])(int) = { first, absent, first, [63] = first, [64] = first, [130] = second, [199] = first };",
    );
    for packing in ["pack-relative-relocs", "nopack-relative-relocs"] {
        build.run(&format!("gcc -shared -fPIC -Wl,-z,{packing} a.c -o a"));
        let is_packed = build.run("readelf -dW a").contains("RELR");
        assert_eq!(is_packed, packing == "pack-relative-relocs");
        let pointers: Vec<u64> = build.open("a").pointers().collect();
        for (name, count) in [("first", 5), ("second", 1)] {
            let address = build.address("a", name);
            let found = pointers.iter().filter(|pointer| **pointer == address);
            assert_eq!(found.count(), count, "{packing} {name} {pointers:x?}");
        }
    }
}

#[test]
fn resolvers_are_imports_without_a_name() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "static int one(void) { return 1; }
         static int (*choose(void))(void) { return one; }
         static int chosen(void) __attribute__((ifunc(\"choose\")));
         int main(void) { return chosen(); }",
    );
    for flags in ["", "-static", "-no-pie", "-static-pie"] {
        build.run(&format!("gcc {flags} a.c -o a"));
        let image = build.open("a");
        let resolver = build.address("a", "choose");
        let import = image
            .imports()
            .into_iter()
            .find(|import| import.bound_as == Relocation::Irelative { resolver });
        let import = import.unwrap_or_else(|| panic!("{flags}: {:?}", image.imports()));
        assert_eq!(import.name, "");
        assert!(image.segments().iter().any(|part| {
            part.writable && (part.address..part.address + part.memory_size).contains(&import.slot)
        }));
    }
}
