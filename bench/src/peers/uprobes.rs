//! The kernel's breakpoints in user space: recorded by tracefs into the kernel's ring, and counted by bpftrace.

use super::tracer::{Attached, Built, Kept, Load, Rest, Session, Tracer};
use crate::programs::{Programs, is_installed};
use crate::resident::{self, Resident};
use crate::run::{Paths, remove};
use anyhow::{Context, Result, ensure};
use nopal_symbols::Image;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub const NAME: &str = "uprobes (tracefs)";
pub const BPF: &str = "uprobes (bpftrace)";

const TRACING: &str = "/sys/kernel/tracing";
const GROUP: &str = "nopal_bench";

struct Uprobes<'a> {
    paths: &'a Paths,
    built: Built,
}

pub fn new<'a>(paths: &'a Paths, programs: &Programs) -> Result<Box<dyn Tracer + 'a>> {
    let events = fs::OpenOptions::new()
        .append(true)
        .open(Path::new(TRACING).join("uprobe_events"));
    events.context("the kernel has no uprobe_events, or tracefs is not mounted, or not for us")?;
    Ok(Box::new(Uprobes {
        paths,
        built: Built::by(|work| programs.resident(work))?,
    }))
}

/// All functions of a program, in a ring of their own, until this is dropped.
struct Probes {
    instance: PathBuf,
    readers: Vec<resident::Kept>,
}

impl Probes {
    fn new(program: &Path) -> Result<Probes> {
        let instance = Path::new(TRACING).join("instances").join(GROUP);
        fs::create_dir_all(&instance)?;
        let probes = Probes {
            instance,
            readers: Vec::new(),
        };
        let path = program.display();
        let lines: String = offsets(program)?
            .iter()
            .map(|offset| {
                format!("p:{GROUP}/entry {path}:{offset:#x}\nr:{GROUP}/exit {path}:{offset:#x}\n")
            })
            .collect();
        write_events(&lines)?;
        Ok(probes)
    }

    fn enable(&self, word: &str) -> Result<()> {
        let file = self.instance.join("events").join(GROUP).join("enable");
        fs::write(file, word).context("enabling the probes")
    }

    /// Writes the ring's pages into files as they fill.
    fn read_into(&mut self, directory: &Path) -> Result<()> {
        remove(directory)?;
        fs::create_dir_all(directory)?;
        for processor in fs::read_dir(self.instance.join("per_cpu"))? {
            let processor = processor?;
            let file = fs::File::create(directory.join(processor.file_name()))?;
            let mut command = Command::new("cat");
            command
                .arg(processor.path().join("trace_pipe_raw"))
                .stdout(file);
            self.readers.push(resident::Kept::spawn(&mut command)?);
        }
        Ok(())
    }

    /// The sum of a number in the statistics of all processors.
    fn count(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for processor in fs::read_dir(self.instance.join("per_cpu"))? {
            let text = fs::read_to_string(processor?.path().join("stats"))?;
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.trim_start_matches(": ").parse::<u64>().ok());
            sum += number.unwrap_or(0);
        }
        Ok(sum)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // An error means that this part has not been made.
        let _ = self.enable("0");
        self.readers.clear();
        let _ = fs::remove_dir(&self.instance);
        let _ = write_events(&format!("-:{GROUP}/entry\n-:{GROUP}/exit\n"));
    }
}

/// Writes lines one by one, since the kernel takes no more than a page at once.
fn write_events(lines: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(Path::new(TRACING).join("uprobe_events"))?;
    for line in lines.split_inclusive('\n') {
        file.write_all(line.as_bytes())
            .with_context(|| format!("uprobe_events refuses {line:?}"))?;
    }
    Ok(())
}

/// The offsets of a program's functions in its file.
fn offsets(program: &Path) -> Result<Vec<u64>> {
    let image = Image::open(program)?;
    let output = Command::new("nm")
        .arg("--defined-only")
        .arg(program)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let offset = |line: &str| {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let (kind, name) = (words.next()?, words.next()?);
        let is_own = !name.starts_with('_') || name.starts_with("_Z");
        let segment = image.segments().iter().find(|segment| {
            (segment.address..segment.address + segment.memory_size).contains(&address)
        })?;
        (matches!(kind, "t" | "T" | "W") && is_own)
            .then_some(address - segment.address + segment.offset)
    };
    let mut offsets: Vec<u64> = text.lines().filter_map(offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    ensure!(!offsets.is_empty(), "it has no symbols");
    Ok(offsets)
}

impl Tracer for Uprobes<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self) -> Load {
        Load::Seldom
    }

    fn cannot(&self, what: &str) -> Option<&'static str> {
        match what {
            super::REPORT | super::EXPORT => Some("the kernel has none"),
            _ => None,
        }
    }

    fn note(&self, what: &str) -> Option<&'static str> {
        (what == super::FIB).then_some("fib(18)")
    }

    fn program(&self, work: &str) -> Option<&Path> {
        Some(self.built.of(work))
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        let program = self.built.of(work);
        let mut probes = Probes::new(program)?;
        if on {
            probes.read_into(&self.paths.peer_trace())?;
            probes.enable("1")?;
        }
        Session::by(&mut Command::new(program), Some(Box::new(probes)))
    }

    fn attach(&self, _: &Resident) -> Result<Option<Box<dyn Attached>>> {
        let probes = Probes::new(self.built.of("sqlite"))?;
        probes.enable("1")?;
        Ok(Some(Box::new(probes)))
    }

    fn kept(&self, rest: Rest) -> Result<Option<Kept>> {
        let probes = rest.and_then(|rest| rest.downcast::<Probes>().ok());
        let probes = probes.context("no probes")?;
        probes.enable("0")?;
        // Readers do not get pages that are not full yet.
        let unread = probes.count("entries")?;
        let read = probes.count("read events")?;
        let bytes =
            super::tracer::bytes_below(&self.paths.peer_trace())? + probes.count("bytes")?;
        Ok(Some(Kept {
            bytes,
            events: unread + read,
            calls: (unread + read) / 2,
        }))
    }
}

impl Attached for Probes {
    fn toggle(&mut self, _: &mut Resident) -> Result<Vec<f64>> {
        let time = |word: &&str| {
            let start = Instant::now();
            self.enable(word)?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        };
        ["0", "1"].iter().map(time).collect()
    }
}

struct Bpftrace {
    sqlite: PathBuf,
}

pub fn bpf(programs: &Programs) -> Result<Box<dyn Tracer>> {
    ensure!(is_installed("bpftrace"), "apt-get install bpftrace");
    let tried = Command::new("bpftrace")
        .args(["-e", "BEGIN { exit(); }"])
        .output()?;
    ensure!(
        tried.status.success(),
        "{}",
        String::from_utf8_lossy(&tried.stderr)
    );
    Ok(Box::new(Bpftrace {
        sqlite: programs.resident("sqlite")?,
    }))
}

impl Tracer for Bpftrace {
    fn name(&self) -> &'static str {
        BPF
    }

    fn load(&self) -> Load {
        Load::Seldom
    }

    fn cannot(&self, what: &str) -> Option<&'static str> {
        let measured = [super::EMPTY, super::FIB];
        (!measured.contains(&what)).then_some("tried with two functions only")
    }

    fn note(&self, what: &str) -> Option<&'static str> {
        Some(match what {
            super::FIB => "fib(18); calls and returns counted",
            _ => "calls and returns counted",
        })
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        if work != "sqlite" || !on {
            return Ok(None);
        }
        let program = self.sqlite.display();
        let script: String = ["empty", "fib"]
            .map(|function| {
                format!(
                    "uprobe:{program}:{function} {{ @calls = count(); }} \
                     uretprobe:{program}:{function} {{ @returns = count(); }} "
                )
            })
            .concat();
        let script = script + "interval:ms:100 { printf(\"ready\\n\"); }";
        let mut command = Command::new("bpftrace");
        command.args(["-e", &script]).stdout(Stdio::piped());
        let mut tool = resident::Kept::spawn(&mut command)?;
        let said = BufReader::new(tool.0.stdout.take().context("no pipe")?);
        let ready = said
            .lines()
            .any(|line| line.is_ok_and(|line| line == "ready"));
        ensure!(ready, "bpftrace has ended");
        Session::by(&mut Command::new(&self.sqlite), Some(Box::new(tool)))
    }
}
