#![allow(dead_code, reason = "every test file uses some of it")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// A C program of `tests/programs`, compiled.
pub struct Program {
    pub directory: TempDir,
    pub path: PathBuf,
}

pub fn compile(name: &str) -> Program {
    compile_with(name, &[])
}

pub fn compile_with(name: &str, flags: &[&str]) -> Program {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    compile_into(&path, name, flags);
    Program { directory, path }
}

pub fn compile_into(path: &Path, name: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-O1",
        "-g",
        "-Wall",
        "-Werror",
        "-pthread",
        "-D_GNU_SOURCE",
        "-o",
    ]);
    let status = gcc.arg(path).arg(source).args(flags).status().unwrap();
    assert!(status.success());
}

/// A program that runs, talks over pipes, and ends with the test.
pub struct Running {
    pub child: Child,
    pub output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(program: &Program, arguments: &[&str]) -> Running {
        let mut command = Command::new(&program.path);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn tell(&mut self, text: &str) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    pub fn signal(&self, signal: i32) {
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something that must come, and fails the test if it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never: {what}");
}
