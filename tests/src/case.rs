//! One program, run untraced and traced.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::compile::Program;
use crate::paths::{nopal, scratch, target_directory};
use crate::report::{Report, announced_calls, expected_calls};
use crate::run::{Ended, Running, Start};

/// A program and the circumstances that it runs in.
pub struct Case {
    program: Program,
    arguments: Vec<OsString>,
    options: Vec<OsString>,
    input: String,
    start: Start,
    refused: Vec<&'static str>,
}

/// A recording that has ended. Its directory is deleted with the value.
pub struct Recording {
    pub ended: Ended,
    /// nopal's own messages.
    pub said: String,
    pub report: Report,
    scratch: TempDir,
}

impl Recording {
    pub fn directory(&self) -> PathBuf {
        self.scratch.path().join("trace")
    }
}

impl Case {
    pub fn new(program: Program) -> Case {
        let start = Start {
            environment: vec![
                ("LC_ALL".into(), "C.UTF-8".into()),
                (
                    "XDG_CACHE_HOME".into(),
                    target_directory().join("test-cache").into(),
                ),
            ],
            ..Start::default()
        };
        Case {
            program,
            arguments: Vec::new(),
            options: Vec::new(),
            input: String::new(),
            start,
            refused: Vec::new(),
        }
    }

    pub fn arguments<Word: Into<OsString>>(
        mut self,
        words: impl IntoIterator<Item = Word>,
    ) -> Case {
        self.arguments = words.into_iter().map(Into::into).collect();
        self
    }

    /// Adds options of `nopal record`.
    pub fn options<Word: Into<OsString>>(mut self, words: impl IntoIterator<Item = Word>) -> Case {
        self.options.extend(words.into_iter().map(Into::into));
        self
    }

    /// Names a function that this build of the program makes too short to trace.
    pub fn refused(mut self, function: &'static str) -> Case {
        self.refused.push(function);
        self
    }

    pub fn input(mut self, text: impl Into<String>) -> Case {
        self.input = text.into();
        self
    }

    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Case {
        self.start.environment.push((name.into(), value.into()));
        self
    }

    pub fn directory(mut self, path: &Path) -> Case {
        self.start.directory = Some(path.to_path_buf());
        self
    }

    pub fn limit(mut self, resource: libc::__rlimit_resource_t, value: u64) -> Case {
        self.start.limits.push((resource, value));
        self
    }

    pub fn untraced_start(&self) -> Start {
        let mut start = self.start.clone();
        start.words.push(self.program.path.clone().into());
        start.words.extend(self.arguments.iter().cloned());
        start
    }

    pub fn traced_start(&self, trace: &Path) -> Start {
        let mut start = self.start.clone();
        start
            .words
            .extend([nopal().into(), "record".into(), "-o".into(), trace.into()]);
        start.words.extend(self.options.iter().cloned());
        start
            .words
            .extend(["--".into(), self.program.path.clone().into()]);
        start.words.extend(self.arguments.iter().cloned());
        start
    }

    pub fn untraced(&self) -> Ended {
        self.untraced_start().run(&self.input)
    }

    pub fn traced(&self) -> Recording {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let ended = self.traced_start(&trace).run(&self.input);
        assert!(trace.exists(), "nothing was recorded: {ended:?}");
        let (ended, said) = without_own_words(ended);
        Recording {
            ended,
            said,
            report: Report::of(&trace),
            scratch,
        }
    }

    /// Attaches nopal before the program's work, which HOLD delays, and then repeatedly for 50 ms until the program
    /// ends. Output and status must be as untraced. Returns nopal's messages.
    pub fn check_come_and_go(&self) -> String {
        let scratch = scratch();
        let (trace, hold) = (scratch.path().join("trace"), scratch.path().join("hold"));
        let mut start = self.untraced_start();
        start.environment.push(("HOLD".into(), hold.clone().into()));
        let mut program = start.spawn();
        let mut said = String::new();
        while !program.has_ended() {
            let mut attach = self.start.clone();
            let words = ["attach", "--for", "50ms", "-o"].map(OsString::from);
            attach.words.push(nopal().into());
            attach.words.extend(words);
            attach.words.push(trace.clone().into());
            attach.words.extend(self.options.iter().cloned());
            attach.words.push(program.id().to_string().into());
            let mut session = attach.spawn();
            while !session.has_ended() && !session.stderr().contains("tracing process") {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::fs::write(&hold, "").expect("a file can be made");
            said += &session.wait().stderr;
        }
        assert!(said.contains("tracing process"), "{said}");
        if let Some(difference) = difference(&self.untraced(), &program.wait()) {
            panic!("{difference}; nopal said: {said}");
        }
        said
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether the case declares the function too short to trace.
    pub fn refuses(&self, function: &str) -> bool {
        self.refused.contains(&function)
    }

    pub fn argument_words(&self) -> &[OsString] {
        &self.arguments
    }

    pub fn option_words(&self) -> &[OsString] {
        &self.options
    }

    pub fn input_text(&self) -> &str {
        &self.input
    }

    /// Starts `nopal attach`, into `trace`, and waits until it traces `process`.
    pub fn attach(&self, process: i32, trace: &Path) -> Running {
        let mut start = self.start.clone();
        let number = process.to_string();
        start.words.extend([
            nopal().into(),
            "attach".into(),
            number.into(),
            "-o".into(),
            trace.into(),
        ]);
        start.words.extend(self.options.iter().cloned());
        let mut running = start.spawn();
        running.wait_for_error(|text| text.contains("nopal: tracing process"));
        running
    }

    /// Starts the program traced, into `trace`.
    pub fn spawn(&self, trace: &Path) -> Running {
        self.traced_start(trace).spawn()
    }

    /// The numbers of calls that the source and the output state.
    pub fn expected(&self, ended: &Ended) -> BTreeMap<String, u64> {
        let source = self.program.source.as_deref();
        let mut expected = source.map(expected_calls).unwrap_or_default();
        expected.extend(announced_calls(&ended.stdout).1);
        expected
    }

    /// Checks that the program does the same traced and untraced.
    pub fn unchanged(&self) -> Recording {
        let (untraced, traced) = (self.untraced(), self.traced());
        if let Some(difference) = difference(&untraced, &traced.ended) {
            let options = &self.options;
            panic!("{options:?}: {difference}\nnopal said:\n{}", traced.said);
        }
        traced
    }

    /// Checks the same, and that the program makes the calls that its source and its output state.
    pub fn check(&self) -> Recording {
        let traced = self.unchanged();
        let mut expected = self.expected(&traced.ended);
        for function in &self.refused {
            assert!(expected.remove(*function).is_some(), "{function} is called");
            assert_eq!(traced.report.calls(function), 0, "{function}");
        }
        let wrong = traced.report.difference(&expected);
        let said = &traced.said;
        assert!(
            wrong.is_empty(),
            "calls differ:\n{wrong}\nnopal said:\n{said}"
        );
        traced
    }
}

/// The differences of a program from its untraced run. Numbers of calls that it printed may differ in every run.
pub fn difference(untraced: &Ended, traced: &Ended) -> Option<String> {
    let [before, after] = [untraced, traced].map(|ended| announced_calls(&ended.stdout).0);
    if traced.end != untraced.end {
        let end = (traced.end, untraced.end);
        return Some(format!(
            "another end, {:?} instead of {:?}; output:\n{after}\nerrors:\n{}",
            end.0, end.1, traced.stderr
        ));
    }
    if after != before {
        return Some(format!("another output:\n{after}\ninstead of:\n{before}"));
    }
    (traced.stderr != untraced.stderr).then(|| format!("other errors:\n{}", traced.stderr))
}

/// nopal's own lines begin with its name; the rest is the program's.
pub fn without_own_words(mut ended: Ended) -> (Ended, String) {
    let (own, program): (Vec<&str>, Vec<&str>) = ended
        .stderr
        .split_inclusive('\n')
        .partition(|line| line.starts_with("nopal: "));
    let (own, program) = (own.concat(), program.concat());
    ended.stderr = program;
    (ended, own)
}
