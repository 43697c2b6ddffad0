//! `runtime/core` can move into a kernel: it needs nothing but `port.h` and a few symbols of `arch/`.

use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that port.h and text.h declare, except the race points of tests.
const PORT: [&str; 21] = [
    "port_allow_tracer",
    "port_block_signals",
    "port_clock",
    "port_clock_allowed",
    "port_map_mirror",
    "port_process_id",
    "port_read",
    "port_readable",
    "port_restore_signals",
    "port_text_go",
    "port_text_move",
    "port_text_place",
    "port_text_stop",
    "port_text_store",
    "port_text_synchronise",
    "port_thread_ended",
    "port_thread_id",
    "port_thread_pointer",
    "port_wait",
    "port_wake",
    "port_yield",
];

/// The address of the process structure, in front of the image, and the landing pad of exceptions.
const ARCH: [&str; 2] = ["nopal_process", "nopal_landing"];

const FREESTANDING_HEADERS: [&str; 3] = ["<stdbool.h>", "<stddef.h>", "<stdint.h>"];
const OTHER_HEADERS: [&str; 3] = ["\"port.h\"", "\"text.h\"", "\"arch.h\""];

fn runtime() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime")
}

fn core_files(extension: &str) -> Vec<PathBuf> {
    let files = runtime()
        .join("core")
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|found| found == extension))
        .collect()
}

fn includes(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .filter_map(|line| Some(line.trim().strip_prefix("#include")?.trim().to_owned()))
        .collect()
}

/// A compiler, the folder of its CPU in `arch`, and its options.
struct Target {
    compiler: &'static str,
    arch: &'static str,
    flag: &'static str,
}

/// Compiles all of the core as a kernel would, and returns the symbols that it needs.
fn needed_by_core(target: &Target) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let (mut needed, mut defined) = (BTreeSet::new(), BTreeSet::new());
    for file in core_files("c") {
        let object = folder
            .path()
            .join(file.file_name().unwrap())
            .with_extension("o");
        let compiled = Command::new(target.compiler)
            .args([
                "-std=c17",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-ffreestanding",
                "-fno-builtin",
                "-mgeneral-regs-only",
                "-fPIE",
                "-fno-stack-protector",
                "-c",
                target.flag,
            ])
            .args(
                ["core", "port", target.arch]
                    .map(|part| format!("-I{}", runtime().join(part).display())),
            )
            .args([file.as_path(), Path::new("-o"), &object])
            .status();
        let compiler = target.compiler;
        let compiled = compiled.unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(compiled.success(), "{compiler}: {}", file.display());
        let data = std::fs::read(object).unwrap();
        let parsed = object::File::parse(&*data).unwrap();
        for symbol in parsed.symbols().filter(|symbol| symbol.is_global()) {
            let name = symbol.name().unwrap().to_owned();
            if symbol.is_undefined() {
                needed.insert(name)
            } else {
                defined.insert(name)
            };
        }
    }
    needed.difference(&defined).cloned().collect()
}

#[test]
fn core_links_against_the_port_alone() {
    let allowed: BTreeSet<String> = PORT.iter().chain(&ARCH).map(ToString::to_string).collect();
    let x86_64 = Target {
        compiler: "gcc",
        arch: "arch/x86_64",
        flag: "-mcx16",
    };
    assert_eq!(needed_by_core(&x86_64), allowed);
}

#[test]
fn core_compiles_for_another_processor() {
    let allowed: BTreeSet<String> = PORT.iter().chain(&ARCH).map(ToString::to_string).collect();
    let aarch64 = Target {
        compiler: "aarch64-linux-gnu-gcc",
        arch: "arch/aarch64",
        flag: "-mno-outline-atomics",
    };
    // Without generated code, no exception lands in any.
    let others: Vec<String> = needed_by_core(&aarch64)
        .difference(&allowed)
        .cloned()
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn core_includes_the_port_and_itself_alone() {
    let own: Vec<String> = core_files("h")
        .iter()
        .map(|file| format!("\"{}\"", file.file_name().unwrap().to_string_lossy()))
        .collect();
    for file in core_files("c").into_iter().chain(core_files("h")) {
        for include in includes(&file) {
            let known = FREESTANDING_HEADERS.contains(&&*include)
                || OTHER_HEADERS.contains(&&*include)
                || own.contains(&include);
            assert!(known, "{} includes {include}", file.display());
        }
    }
}

/// Names that only a host, its C library or a CPU defines.
const FOREIGN: [&str; 12] = [
    "__NR_",
    "SYS_",
    "SYSTEM_CALL",
    "SECCOMP_",
    "PR_SET_",
    "PR_TSC_",
    "SIGTRAP",
    "SIGNAL_TRAP",
    "dl_phdr",
    "link_map",
    "0x48, 0x8d",
    "eh_frame_header",
];

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
    }
    code + rest
}

/// No `#if` in the core asks for a processor or a system, no system call is made there, and none of their numbers and
/// structures are known.
#[test]
fn core_asks_for_no_processor() {
    for file in core_files("c").into_iter().chain(core_files("h")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text
            .lines()
            .filter(|line| line.starts_with("#if") || line.starts_with("#elif"))
        {
            let guards = line.starts_with("#ifndef NOPAL_") || line == "#ifndef __ASSEMBLER__";
            assert!(guards, "{}: {line}", file.display());
        }
        let code = without_comments(&text);
        for word in FOREIGN {
            assert!(!code.contains(word), "{} knows {word}", file.display());
        }
        assert!(
            !text.contains("__asm__"),
            "{} holds assembly",
            file.display()
        );
    }
}
