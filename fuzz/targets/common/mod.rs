//! The common parts of the targets. Each target uses some of them.
#![allow(dead_code)]

pub mod elf;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file in memory, for code that takes a path.
pub struct File {
    path: PathBuf,
    _file: std::fs::File,
}

impl File {
    pub fn with(bytes: &[u8]) -> File {
        let file = std::fs::File::from(memory(c"input"));
        file.write_all_at(bytes, 0).unwrap();
        File {
            path: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
            _file: file,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

pub fn memory(name: &std::ffi::CStr) -> OwnedFd {
    // SAFETY: the name ends with a zero, and the descriptor is new and ours.
    unsafe {
        let file = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0);
        OwnedFd::from_raw_fd(file)
    }
}

/// Takes values off the front of the input; zeroes when there is no more.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The whole file, with the input's bytes laid over it: offset, count, bytes.
pub fn patched(whole: &[u8], mut input: Input) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    while !input.is_empty() {
        let at = usize::from(input.word()) % (bytes.len() + 1);
        let count = usize::from(input.byte());
        let new = input.bytes(count);
        let end = (at + new.len()).min(bytes.len());
        bytes.splice(at..end, new.iter().copied());
    }
    bytes
}

/// A directory in memory, which is removed with the value.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        let path = PathBuf::from(format!("/dev/shm/nopal-fuzz-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs every reader of a trace. Their results do not matter, as long as they return.
pub fn read_trace(path: &Path) {
    use nopal_analysis::drive::Drive;
    use nopal_analysis::dump::{self, Format, Latency, Weight, dump};
    use nopal_analysis::graph::{self, Shown};
    use nopal_analysis::names::Names;
    use nopal_analysis::replay::{Look, replay};
    use nopal_analysis::waits::Waits;
    use nopal_analysis::{info::info, report};

    let Ok(trace) = nopal_trace::Trace::open(path) else {
        return;
    };
    let mut out = std::io::sink();
    let waits = Waits::new(&trace);
    let drive = Drive {
        workers: 1,
        waits: waits.as_ref(),
        ..Drive::default()
    };
    if let Ok(report) = report::functions(&trace, &drive) {
        let _ = report.write_table(&mut out, 0);
        let _ = report.write_json(&trace, &mut out);
    }
    if let Ok(threads) = report::threads(&trace, &drive) {
        let _ = report::write_threads(&threads, &mut out, 100);
    }
    let names = Names::new(&trace);
    if let Ok(tree) = graph::tree(&trace, &names, &drive) {
        let shown = Shown {
            has_waits: waits.is_some(),
            ..Shown::default()
        };
        let _ = graph::write_tree(&mut out, &tree, &names, trace.clocks(), shown);
    }
    let _ = replay(&trace, &Look::default(), &mut out);
    let _ = info(&trace, &mut out, 100);
    let verbose = dump::Look {
        addresses: true,
        verbose: true,
    };
    let latency = |of: &str| {
        Format::Latency(Latency {
            of: Some(of.into()),
            look: verbose,
        })
    };
    for format in [
        Format::Devtrace,
        Format::Function(verbose),
        latency("function"),
        latency("events"),
        latency("sched_switch"),
        Format::Chrome,
        Format::Folded(Weight::Time),
        Format::Raw,
    ] {
        let _ = dump(&trace, format, &drive, &mut out);
    }
}
