//! What lets `runtime/core` move into a kernel: it needs nothing but `port.h` and a few symbols of `arch/`.

use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that port.h and text.h declare, but for the race points of tests.
const PORT: [&str; 21] = [
    "port_allow_tracer",
    "port_block_signals",
    "port_clock",
    "port_clock_allowed",
    "port_map",
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

#[test]
fn core_links_against_the_port_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (mut needed, mut defined) = (BTreeSet::new(), BTreeSet::new());
    for file in core_files("c") {
        let object = folder
            .path()
            .join(file.file_name().unwrap())
            .with_extension("o");
        let compiled = Command::new("gcc")
            .args([
                "-std=c17",
                "-O2",
                "-ffreestanding",
                "-fno-builtin",
                "-mgeneral-regs-only",
                "-fPIE",
            ])
            .args(["-fno-stack-protector", "-mcx16", "-c"])
            .args(
                ["core", "port", "arch/x86_64"]
                    .map(|part| format!("-I{}", runtime().join(part).display())),
            )
            .args([file.as_path(), Path::new("-o"), &object])
            .status();
        assert!(compiled.expect("gcc must be installed").success());
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
    let allowed: BTreeSet<String> = PORT.iter().chain(&ARCH).map(ToString::to_string).collect();
    let missing: BTreeSet<String> = needed.difference(&defined).cloned().collect();
    assert_eq!(missing, allowed);
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

/// No `#if` in the core asks for a processor or a system, and no system call is made there.
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
        assert!(
            !text.contains("__asm__"),
            "{} holds assembly",
            file.display()
        );
    }
}
