//! Processor-specific code stands below `arch` in the crates that know processors. To add a processor, write the
//! counterparts of these files.

use std::path::{Path, PathBuf};

const CRATES: [&str; 3] = ["agent", "plan", "process"];

/// Words of x86-64. Opcodes count where they are whole instructions, or stand alone.
const WORDS: &[&str] = &[
    "iced_x86",
    "x86_64",
    "X86",
    "x86",
    "user_regs_struct",
    "asm",
    "_rdtsc",
    "cpuid",
    "int3",
    "rax",
    "rbx",
    "rcx",
    "rdx",
    "rsi",
    "rdi",
    "rbp",
    "rsp",
    "rip",
    "eax",
    "ecx",
    "edx",
    "esp",
    "eip",
    "r10",
    "r11",
    "orig_rax",
    "eflags",
    "rflags",
    "fs_base",
    "gs_base",
    "u_debugreg",
    "RFLAGS",
    "RAX",
    "RSP",
    "RBP",
    "RIP",
    "0xe8",
    "0xe9",
    "0xeb",
    "0xcc",
    "0xc3",
    "0x90",
    "Endbr64",
    "Mnemonic",
    "OpKind",
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            // Tests run on the processor of the machine.
            true if name == "arch" || name == "tests" => {}
            true => sources(&path, into),
            false => into.push(path),
        }
    }
}

/// The words of code outside tests, with the number of each line.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().zip(1..);
    let code = lines.take_while(|(line, _)| *line != "#[cfg(test)]");
    let code = code.filter(|(line, _)| !line.trim_start().starts_with("//"));
    code.flat_map(|(line, number)| {
        let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.map(move |word| (number, word))
    })
}

#[test]
fn processors_are_known_below_arch_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut found = Vec::new();
    for name in CRATES {
        assert!(crates.join(name).join("src/arch").is_dir(), "{name}");
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        assert!(files.len() > 2, "{name}");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let of_one = words(&text).filter(|(_, word)| WORDS.contains(word));
            found.extend(of_one.map(|(line, word)| format!("{}:{line}: {word}", file.display())));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
