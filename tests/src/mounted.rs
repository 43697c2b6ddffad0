//! A program that is traced while it runs, controlled through files by the tools of a shell.

use crate::process::assert_nothing_left;
use crate::{Case, End, Program, Running, Start, nopal, scratch};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use tempfile::TempDir;

pub struct Mounted {
    pub program: Running,
    pub stdin: ChildStdin,
    pub tool: Running,
    pub mount: Running,
    // Dropped before the directory that holds it.
    _directory: Directory,
    pub scratch: TempDir,
}

/// Unmounts the directory that a failed test leaves mounted.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a path; where nothing is mounted, nothing happens.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// A nopal command that sees only the sessions of the test.
pub fn start(scratch: &Path, words: &[&str]) -> Start {
    let mut start = Start::new([nopal()]);
    start.words.extend(words.iter().map(Into::into));
    start
        .environment
        .push(("XDG_RUNTIME_DIR".into(), scratch.into()));
    start
}

impl Mounted {
    /// Starts a program, which prints `ready` when it waits for lines; traces one of its functions; and mounts.
    pub fn new(program: Program, ready: &str, function: &str) -> Mounted {
        Mounted::with(program, ready, &["-F", function])
    }

    /// The same with other options for `nopal attach`.
    pub fn with(program: Program, ready: &str, options: &[&str]) -> Mounted {
        let scratch = scratch();
        let case = Case::new(program)
            .environment("XDG_RUNTIME_DIR", scratch.path())
            .options(options);
        let mut program = case.untraced_start().spawn();
        program.wait_for(|text| text.contains(ready));
        let stdin = program.stdin();
        let tool = case.attach(program.id(), &scratch.path().join("trace"));
        let directory = scratch.path().join("mount");
        std::fs::create_dir(&directory).expect("a new directory");
        let unmount = Directory(directory.clone());
        let mut mount = start(
            scratch.path(),
            &["mount", directory.to_str().expect("a plain path")],
        )
        .spawn();
        mount.wait_for_error(|text| text.contains("the sessions are in"));
        Mounted {
            program,
            stdin,
            tool,
            mount,
            _directory: unmount,
            scratch,
        }
    }

    /// Writes a line to the program, and waits for its answer.
    pub fn tell(&mut self, line: &str, said: &str) {
        let line = format!("{line}\n");
        self.stdin.write_all(line.as_bytes()).expect("it reads");
        self.program.wait_for(|text| text.contains(said));
    }

    /// Runs a script in the folder of the process.
    pub fn shell(&self, script: &str) -> Start {
        let mut start = Start::new(["timeout", "120", "bash", "-c", script]);
        let folder = format!("mount/{}", self.program.id());
        start.directory = Some(self.scratch.path().join(folder));
        start
    }

    /// The output of a script whose commands all succeed.
    pub fn good(&self, script: &str) -> String {
        let ended = self.shell(&format!("set -eo pipefail; {script}")).run("");
        let how = (ended.end, &*ended.stderr);
        assert_eq!(how, (End::Code(0), ""), "{script}");
        ended.stdout
    }

    /// The error output of a script that fails.
    pub fn bad(&self, script: &str) -> String {
        let ended = self.shell(script).run("");
        assert_ne!(ended.end, End::Code(0), "{script}");
        ended.stderr
    }

    /// Ends both: the session leaves nothing behind, and the program ends with this status.
    pub fn end(mut self, status: i32) {
        self.mount.signal_group(libc::SIGINT);
        let ended = self.mount.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        self.tool.signal_group(libc::SIGINT);
        assert_eq!(self.tool.wait().end, End::Code(0));
        assert_nothing_left(self.program.id());
        drop(self.stdin);
        assert_eq!(self.program.wait().end, End::Code(status));
    }
}
