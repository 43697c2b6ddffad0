//! Runs programs, by themselves and under tracers.

use anyhow::{Context, Result, ensure};
use nopal_trace::Trace;
use serde_json::Value;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The number of attempts to remove a directory in which another process still writes.
const TRIES: u32 = 20;

/// The output of a program: a name and a number a line.
pub struct Printed(HashMap<String, f64>);

impl Printed {
    /// Other lines are skipped.
    pub fn of(text: &str) -> Printed {
        let pair = |line: &str| -> Option<(String, f64)> {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Printed(text.lines().filter_map(pair).collect())
    }

    pub fn get(&self, name: &str) -> Result<f64> {
        self.0
            .get(name)
            .copied()
            .with_context(|| format!("the program did not print {name:?}"))
    }
}

pub struct Ran {
    pub printed: Printed,
    pub time: Duration,
    /// The processor time, in programs and in the kernel, of the command and of the processes that it waited for.
    pub processors: Duration,
}

/// Runs a command to its end, and returns its times and the numbers that it prints.
pub fn run(command: &mut Command) -> Result<Ran> {
    let start = Instant::now();
    let before = of_children();
    let output = command
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let time = start.elapsed();
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Ran {
        printed: Printed::of(&String::from_utf8_lossy(&output.stdout)),
        time,
        processors: of_children().saturating_sub(before),
    })
}

/// The output of a command.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The processor time of all children that have been waited for.
fn of_children() -> Duration {
    // SAFETY: the structure holds plain numbers, for which 0 is valid; the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// The paths that measurements use.
pub struct Paths {
    pub nopal: PathBuf,
    /// The directory of all files that are made.
    pub directory: PathBuf,
}

impl Paths {
    /// Takes the tool that was built beside this program.
    pub fn new() -> Result<Paths> {
        let ours = std::env::current_exe()?;
        let profile = ours.parent().context("no directory")?;
        let nopal = profile.join("nopal");
        ensure!(
            nopal.exists(),
            "{} is not there: `make` builds it",
            nopal.display()
        );
        let directory = profile.parent().context("no directory")?.join("bench");
        std::fs::create_dir_all(&directory)?;
        Ok(Paths { nopal, directory })
    }

    pub fn trace(&self) -> PathBuf {
        self.directory.join("trace")
    }

    pub fn peer_trace(&self) -> PathBuf {
        self.directory.join("peer")
    }

    /// Runs `nopal record OPTIONS -- PROGRAM ARGUMENTS`. The directory of the trace is empty before.
    pub fn record(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Result<Ran> {
        self.record_cached(options, program, arguments, &self.directory.join("cache"))
    }

    pub fn record_cached(
        &self,
        options: &[&str],
        program: &Path,
        arguments: &[&str],
        cache: &Path,
    ) -> Result<Ran> {
        remove(&self.trace())?;
        let mut command = Command::new(&self.nopal);
        command
            .env("XDG_CACHE_HOME", cache)
            .args(["record", "-o"])
            .arg(self.trace())
            .args(options);
        run(command.arg("--").arg(program).args(arguments))
    }

    /// The number of events that the last recording lost.
    pub fn lost(&self) -> Result<u64> {
        Ok(Trace::open(&self.trace())?.lost())
    }

    /// How often each function was called in the last recording.
    pub fn calls(&self) -> Result<HashMap<String, u64>> {
        let mut command = Command::new(&self.nopal);
        let text = output(command.args(["report", "--json"]).arg(self.trace()))?;
        let rows: Vec<Value> = serde_json::from_str(&text)?;
        let call =
            |row: &Value| Some((row["function"].as_str()?.to_owned(), row["calls"].as_u64()?));
        Ok(rows.iter().filter_map(call).collect())
    }

    /// Runs `uftrace record OPTIONS PROGRAM ARGUMENTS`.
    pub fn uftrace(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Result<Ran> {
        remove(&self.peer_trace())?;
        let mut command = Command::new("uftrace");
        command
            .args(["record", "--no-pager", "-d"])
            .arg(self.peer_trace())
            .args(options);
        run(command.arg(program).args(arguments))
    }
}

/// Frees a directory's name. A process that still writes there, such as a tracer's daemon that is ending, goes on in
/// the renamed directory; files that it creates after the removal stay.
pub fn remove(directory: &Path) -> Result<()> {
    static REMOVED: AtomicU32 = AtomicU32::new(0);
    let number = REMOVED.fetch_add(1, Ordering::Relaxed);
    let own = format!("removed-{}-{number}", std::process::id());
    let removed = directory.with_extension(own);
    match std::fs::rename(directory, &removed) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        renamed => renamed.with_context(|| directory.display().to_string())?,
    }
    for _ in 0..TRIES {
        match std::fs::remove_dir_all(&removed) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(10));
            }
            ended => return ended.with_context(|| removed.display().to_string()),
        }
    }
    Ok(())
}

/// The time that a command ran, and the peak of its anonymous memory, by samples.
pub struct Peak {
    pub time: Duration,
    pub anonymous: u64,
}

/// Runs a command whose output goes to `output`. Pages of mapped files do not count, since the kernel may reclaim them
/// at any time.
pub fn watch(command: &mut Command, output: impl Into<Stdio>) -> Result<Peak> {
    let start = Instant::now();
    let mut child = command.stdout(output).stderr(Stdio::null()).spawn()?;
    let mut peak = 0;
    let status = loop {
        peak = peak.max(anonymous(child.id()));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    ensure!(status.success(), "{command:?}: {status}");
    Ok(Peak {
        time: start.elapsed(),
        anonymous: peak,
    })
}

/// The bytes of anonymous memory that a process has; 0 if it is gone.
pub fn anonymous(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kibibytes.unwrap_or(0u64) << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_directory_is_free_while_others_write_into_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("trace");
        for _ in 0..20 {
            fs::create_dir(&directory).unwrap();
            let open = fs::File::open(&directory).unwrap();
            // This path leads to the same directory after it has been renamed.
            let itself = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut number = 0u32;
                    while !stop.load(Ordering::Relaxed) {
                        // This fails once the directory is gone.
                        let _ = fs::write(itself.join(number.to_string()), "");
                        number += 1;
                    }
                });
                let removed = remove(&directory);
                let is_there = directory.exists();
                stop.store(true, Ordering::Relaxed);
                removed.unwrap();
                assert!(!is_there);
            });
        }
    }
}
