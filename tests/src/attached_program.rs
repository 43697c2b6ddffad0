//! A running program that takes commands line by line, with nopal attached, and `nopal ctl` for it.

use crate::process::{assert_nothing_left, wait_until};
use crate::{Case, End, Ended, Program, Running, Start, nopal, scratch};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ChildStdin;
use tempfile::TempDir;

/// The program writes a line when it is ready and `done` after each command, and ends with 5 at the end of its input.
/// Its directory of sockets is its own.
pub struct AttachedProgram {
    pub scratch: TempDir,
    pub program: Running,
    /// The program's output when it was ready.
    pub said: String,
    pub stdin: Option<ChildStdin>,
    pub tool: Running,
    done: usize,
}

const RUNTIME: &str = "XDG_RUNTIME_DIR";

impl AttachedProgram {
    /// Starts the program and attaches to it with these options.
    pub fn new(program: Program, options: &[&str]) -> AttachedProgram {
        let scratch = scratch();
        let case = Case::new(program).options(options);
        let case = case.environment(RUNTIME, scratch.path());
        let mut program = case.untraced_start().spawn();
        let said = program.wait_for(|text| text.ends_with('\n'));
        let stdin = program.stdin();
        let tool = case.attach(program.id(), &scratch.path().join("trace"));
        AttachedProgram {
            scratch,
            program,
            said,
            stdin: Some(stdin),
            tool,
            done: 0,
        }
    }

    pub fn trace(&self) -> PathBuf {
        self.scratch.path().join("trace")
    }

    /// Sends the program a line and waits until it has obeyed it.
    pub fn run(&mut self, line: &str) -> String {
        self.done += 1;
        let done = self.done;
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.program
            .wait_for(|text| text.matches("done\n").count() == done)
    }

    pub fn try_ctl(&self, commands: &str) -> Ended {
        let words: [OsString; 3] = [
            nopal().into(),
            "ctl".into(),
            self.program.id().to_string().into(),
        ];
        let mut start = Start::new(words);
        let runtime = (RUNTIME.into(), self.scratch.path().into());
        start.environment.push(runtime);
        start.run(commands)
    }

    /// The output of `nopal ctl` for commands on its standard input; without commands, the state.
    pub fn ctl(&self, commands: &str) -> String {
        let ended = self.try_ctl(commands);
        assert_eq!(ended.end, End::Code(0), "{commands}: {}", ended.stderr);
        ended.stdout
    }

    pub fn refused(&self, command: &str) -> String {
        let ended = self.try_ctl(command);
        assert_eq!(ended.end, End::Code(1), "{command}");
        ended.stderr
    }

    pub fn state(&self) -> String {
        self.ctl("")
    }

    /// Waits until the state has a line that begins with `begin`, and returns the rest of that line.
    pub fn wait_for(&self, begin: &str) -> String {
        let mut found = None;
        wait_until(begin, || {
            let state = self.state();
            let line = state.lines().find_map(|line| line.strip_prefix(begin));
            found = line.map(str::to_owned);
            found.is_some()
        });
        found.expect("the line is there")
    }

    /// Ends both: the program is unharmed and holds nothing of nopal. The directory holds the trace.
    pub fn end(mut self) -> (TempDir, Ended) {
        self.tool.signal_group(libc::SIGINT);
        let ended = self.tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        assert_nothing_left(self.program.id());
        self.stdin = None;
        assert_eq!(self.program.wait().end, End::Code(5));
        (self.scratch, ended)
    }
}
