//! Test programs, compiled once for each content and command line.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use xxhash_rust::xxh3::Xxh3;

use crate::paths::{sources, target_directory};

/// A program, with its source where it was compiled here.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub source: Option<PathBuf>,
    /// The compiler and its arguments, without the names of source and output.
    pub compiler: Vec<String>,
}

impl Program {
    /// A program that the machine has.
    pub fn installed(path: impl Into<PathBuf>) -> Program {
        Program {
            path: path.into(),
            source: None,
            compiler: Vec::new(),
        }
    }

    /// The number of the source's first line that holds a text.
    pub fn line_of(&self, text: &str) -> usize {
        let source = self.source.as_ref().expect("it has a source");
        let source = std::fs::read_to_string(source).expect("the source can be read");
        let line = source.lines().position(|line| line.contains(text));
        line.expect("the source holds it") + 1
    }
}

/// Compiles `tests/programs/NAME.c` with gcc, optimised, with `flags` after the source.
pub fn c(name: &str, flags: &[&str]) -> Program {
    compile(
        &format!("{name}.c"),
        &["gcc", "-std=gnu17", "-O2", "-g", "-pthread"],
        flags,
    )
}

pub fn cxx(name: &str, flags: &[&str]) -> Program {
    compile(
        &format!("{name}.cc"),
        &["g++", "-std=c++17", "-O2", "-g", "-pthread"],
        flags,
    )
}

pub fn rust(name: &str, flags: &[&str]) -> Program {
    compile(
        &format!("{name}.rs"),
        &["rustc", "--edition=2024", "-O", "-g"],
        flags,
    )
}

/// Builds an example of a package of this workspace.
pub fn example(package: &str, name: &str) -> Program {
    let directory = target_directory().join("test-examples");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", package])
        .args(["--example", name, "--target-dir"])
        .arg(&directory)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "{name} does not build");
    Program::installed(directory.join("release/examples").join(name))
}

/// Compiles a library and makes `count` copies, `lib{NAME}0.so` and so on; returns the directory that holds them.
pub fn copies(source: &str, name: &str, count: usize) -> PathBuf {
    let (directory, library) = library(source);
    for number in 0..count {
        let copy = directory.join(format!("lib{name}{number}.so"));
        if !copy.exists() {
            // Another test run may do the same.
            let own = tempfile::NamedTempFile::new_in(&directory).expect("a file can be made");
            std::fs::copy(&library, own.path()).expect("the library can be copied");
            own.persist(&copy).expect("within one directory");
        }
    }
    directory
}

/// Compiles a source to `lib{STEM}.so`; returns the directory that holds it and its path.
pub fn library(source: &str) -> (PathBuf, PathBuf) {
    let stem = Path::new(source)
        .file_stem()
        .and_then(OsStr::to_str)
        .expect("a plain name");
    let compiler = if source.ends_with(".cc") {
        "g++"
    } else {
        "gcc"
    };
    let output = format!("lib{stem}.so");
    let path = compile_to(
        &output,
        source,
        &[compiler, "-O2", "-g", "-shared", "-fPIC"],
        &[],
    )
    .path;
    (
        path.parent().expect("it lies in a directory").to_path_buf(),
        path,
    )
}

/// Runs `command SOURCE flags -o OUTPUT`.
pub fn compile(source: &str, command: &[&str], flags: &[&str]) -> Program {
    let stem = Path::new(source)
        .file_stem()
        .and_then(OsStr::to_str)
        .expect("a plain name");
    compile_to(stem, source, command, flags)
}

/// Does the same with a compiler that leaves files beside the source: `script` compiles a copy of it to "$2".
pub fn compile_copy(source: &str, script: &str) -> Program {
    let script = format!(
        "d=$(mktemp -d) && cp \"$0\" \"$d\" && (cd \"$d\" && {script}); s=$?; rm -r \"$d\"; exit $s"
    );
    compile(source, &["sh", "-c", &script], &[])
}

fn compile_to(output: &str, source: &str, command: &[&str], flags: &[&str]) -> Program {
    let source = sources().join(source);
    let directory = target_directory()
        .join("test-programs")
        .join(key(&source, command, flags));
    let path = directory.join(output);
    if !path.exists() {
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        let own = tempfile::tempdir_in(&directory).expect("a directory can be made");
        let unfinished = own.path().join(output);
        let mut compiler = Command::new(command[0]);
        compiler
            .args(&command[1..])
            .arg(&source)
            .args(flags)
            .arg("-o")
            .arg(&unfinished);
        let result = compiler
            .output()
            .unwrap_or_else(|error| panic!("{} must be installed: {error}", command[0]));
        let errors = String::from_utf8_lossy(&result.stderr);
        assert!(result.status.success(), "{compiler:?} failed:\n{errors}");
        // Two tests may compile the same program at once: the first result stays, since it may run already.
        match std::fs::hard_link(&unfinished, &path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                panic!("{}: {error}", path.display())
            }
            _ => {}
        }
    }
    let compiler = command.iter().chain(flags);
    Program {
        path,
        source: Some(source),
        compiler: compiler.map(|word| (*word).to_owned()).collect(),
    }
}

/// A hash of everything that the result depends on.
fn key(source: &Path, command: &[&str], flags: &[&str]) -> String {
    let mut hash = Xxh3::new();
    for file in [
        source,
        &sources().join("hard.h"),
        &sources().join("red_zone.h"),
        &sources().join("switch_stacks.h"),
        &sources().join("../../include/nopal.h"),
        &sources().join("../../include/nopal_probe.h"),
    ] {
        hash.update(
            &std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())),
        );
    }
    for word in command.iter().chain(flags) {
        hash.update(word.as_bytes());
        hash.update(&[0]);
        let library = word.strip_prefix("-L");
        let library = library.map(|folder| std::fs::read(Path::new(folder).join("libnopal.a")));
        hash.update(&library.and_then(Result::ok).unwrap_or_default());
    }
    format!("{:016x}", hash.digest())
}
