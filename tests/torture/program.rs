//! The tortured program, and its state as seen from outside.

use nopal_tests::process::text_difference;
use nopal_tests::{Start, c, library};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub const FUNCTIONS: usize = 10_000;

/// The offset in `f_N`, by N % 5, of its last instruction but one, which no jump at its beginning reaches.
const BEHIND: [u32; 5] = [15, 31, 24, 20, 5];

/// Functions below this number have shorter instructions than others of their kind.
const REGULAR: usize = 128;

/// An instruction that each call of a function passes once, if it has one.
pub fn instruction(function: usize) -> Option<String> {
    (function >= REGULAR).then(|| format!("f_{function}+{:#x}", BEHIND[function % BEHIND.len()]))
}

/// Words at the front of `struct shared` in torture.c.
const WORDS: usize = 10;

/// More time than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Program {
    child: Child,
    shared: File,
}

/// The program's counts, read while no thread is in its functions.
pub struct Counted {
    pub wrong: u64,
    pub handled: u64,
    pub forks: u64,
    pub threads: u64,
    pub loads: u64,
    pub library_calls: u64,
    pub calls: Vec<u64>,
}

/// The resources of a process that could leak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    pub threads: usize,
    /// Mapped bytes, without the heap.
    pub mapped: u64,
}

impl Program {
    pub fn start(directory: &Path) -> Program {
        let path = directory.join("shared");
        let shared = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .expect("a file can be made");
        let program = c(
            "torture",
            &["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/../include")],
        );
        let mut start = Start::new([program.path, path]);
        let (_, library) = library("library.c");
        start.words.push(library.into());
        let child = start
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let program = Program {
            child: child.expect("the program starts"),
            shared,
        };
        program.be_idle(1000);
        program.wait("it to begin", || program.word(9) > 0);
        program
    }

    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    fn word(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        let read = self.shared.read_exact_at(&mut bytes, 8 * index as u64);
        // The file is empty until the program has set its length.
        read.map_or(0, |()| u64::from_le_bytes(bytes))
    }

    fn set(&self, index: usize, value: u64) {
        let written = self
            .shared
            .write_all_at(&value.to_le_bytes(), 8 * index as u64);
        written.expect("the file can be written");
    }

    fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(self.is_alive(), "the program has died");
            assert!(begun.elapsed() < PATIENCE, "timed out waiting for {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn is_alive(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        state.is_ok_and(|state| !state.contains(") Z"))
    }

    /// Keeps all threads out of the program's functions from its return to [`Program::open`].
    pub fn close(&self) {
        self.set(0, 1);
        self.wait("its threads to come out", || self.word(1) == 0);
    }

    pub fn open(&self) {
        self.set(0, 0);
    }

    /// Has each thread sleep so many microseconds between two bursts of calls.
    pub fn be_idle(&self, microseconds: u64) {
        self.set(2, microseconds);
    }

    pub fn counted(&self) -> Counted {
        let mut bytes = vec![0; 8 * (WORDS + FUNCTIONS)];
        let read = self.shared.read_exact_at(&mut bytes, 0);
        read.expect("the program has set the file's length");
        let words = bytes.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
        Counted {
            wrong: words[3],
            handled: words[5],
            forks: words[6],
            threads: words[7],
            loads: words[8],
            library_calls: words[9],
            calls: words[WORDS..].to_vec(),
        }
    }

    pub fn holdings(&self) -> Holdings {
        let entries = |folder: &str| {
            let path = format!("/proc/{}/{folder}", self.id());
            std::fs::read_dir(path).expect("the program lives").count()
        };
        let maps = self.maps();
        let sizes = maps
            .lines()
            .filter(|line| !line.ends_with("[heap]"))
            .map(|line| {
                let (range, _) = line.split_once(' ').expect("a line of maps");
                let (start, end) = range.split_once('-').expect("a range");
                let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
                number(end) - number(start)
            });
        Holdings {
            mapped: sizes.sum(),
            descriptors: entries("fd"),
            threads: entries("task"),
        }
    }

    pub fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.id())).expect("the program lives")
    }

    /// The code in memory that differs from its file.
    pub fn text_difference(&self, of: &str) -> Option<String> {
        text_difference(self.id(), of)
    }

    /// Ends the program, which must end with its own status.
    pub fn end(mut self) {
        self.open();
        drop(self.child.stdin.take());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(status.code(), Some(5), "the program ended with {status}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
