//! An instance of tracefs of nopal's own: a directory with the files of a tracer, and rings that nobody else reads. It
//! is named for the process that made it.

use crate::tracefs::tracing;
use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

const PREFIX: &str = "nopal-";

/// The kernel's records of one processor, read as pages. May be empty.
pub struct ProcessorRing {
    pub processor: u32,
    pub file: File,
    /// Events that have been reported as lost.
    pub reported: u64,
}

/// Removed on drop: its files must be closed by then.
pub struct Instance(PathBuf);

impl Instance {
    /// Makes the instance of this process for functions, which records nothing yet.
    pub fn create() -> Result<Instance> {
        let place = tracing()?;
        let tracers = place.join("available_tracers");
        let tracers = fs::read_to_string(&tracers).map_err(|error| refused(error, &tracers, ""))?;
        ensure!(
            tracers
                .split_whitespace()
                .any(|tracer| tracer == "function"),
            "this kernel has no function tracer: it was built without CONFIG_FUNCTION_TRACER"
        );
        const ENABLED: &str = "/proc/sys/kernel/ftrace_enabled";
        ensure!(
            fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "1"),
            "the kernel's function tracer is switched off; as root, sysctl kernel.ftrace_enabled=1 allows it"
        );
        let instance = Instance::named("")?;
        instance.write("options/function-fork", "1")?;
        Ok(instance)
    }

    /// Makes an instance of this process with this behind its name, which records nothing yet.
    pub fn named(suffix: &str) -> Result<Instance> {
        sees_all_processes()?;
        let instances = tracing()?.join("instances");
        remove_of_the_dead(&instances);
        let path = instances.join(format!("{}{suffix}", name(std::process::id())));
        fs::create_dir(&path).map_err(|error| refused(error, &path, ""))?;
        let instance = Instance(path);
        instance.write("tracing_on", "0")?;
        // Unset options have the values of the top-level instance.
        instance.write("options/overwrite", "1")?;
        Ok(instance)
    }

    /// Records only functions that match one of these globs; all without globs.
    pub fn only(&self, globs: &[String]) -> Result<()> {
        for glob in globs {
            // A colon would make it a command.
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.*?[]-".contains(&byte);
            ensure!(
                !glob.is_empty() && glob.bytes().all(is_plain),
                "{glob:?} is not a valid glob for functions of the kernel"
            );
            // Without a space at the end, the word is checked only when the file is closed, where errors are lost.
            self.add("set_ftrace_filter", &format!("{glob}\n"))?;
        }
        Ok(())
    }

    /// Selects the threads to record once `tracing_on` is 1: those of a process, and those that they start.
    pub fn choose(&self, process: i32) -> Result<()> {
        self.add_threads("set_ftrace_pid", process)?;
        self.write("current_tracer", "function")
    }

    /// Writes the threads of a process into a file that chooses whose events are recorded, and returns them.
    pub fn add_threads(&self, file: &str, process: i32) -> Result<HashSet<i32>> {
        let mut known = HashSet::new();
        loop {
            let threads = crate::threads(process)?;
            let new: Vec<String> = threads
                .into_iter()
                .filter(|thread| known.insert(*thread))
                .map(|thread| thread.to_string())
                .collect();
            // Threads that begin meanwhile are added by their creators, or found the next time.
            if new.is_empty() {
                break;
            }
            self.add(file, &new.join(" "))?;
        }
        ensure!(!known.is_empty(), "process {process} has ended");
        Ok(known)
    }

    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        self.put(file, text, OpenOptions::new().write(true).truncate(true))
    }

    /// Appends to the file.
    fn add(&self, file: &str, text: &str) -> Result<()> {
        self.put(file, text, OpenOptions::new().append(true))
    }

    fn put(&self, file: &str, text: &str, how: &OpenOptions) -> Result<()> {
        let path = self.0.join(file);
        let opened = how.open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| refused(error, &path, text))
    }

    /// The rings of these processors.
    pub fn rings(&self, processors: &[u32]) -> Result<Vec<ProcessorRing>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let ring = |&processor: &u32| {
            let path = self.of_processor(processor, "trace_pipe_raw");
            let opened = options.open(&path);
            Ok(ProcessorRing {
                processor,
                file: opened.with_context(|| path.display().to_string())?,
                reported: 0,
            })
        };
        processors.iter().map(ring).collect()
    }

    /// The number of events of a processor that were overwritten before they were read, or found no room.
    pub fn lost(&self, processor: u32) -> u64 {
        let text = fs::read_to_string(self.of_processor(processor, "stats")).unwrap_or_default();
        let lost = ["overrun: ", "dropped events: "].map(|name| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse::<u64>().ok())
        });
        lost.into_iter().flatten().sum()
    }

    fn of_processor(&self, processor: u32, file: &str) -> PathBuf {
        self.0.join(format!("per_cpu/cpu{processor}/{file}"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Removes the instance of a killed tool. The kernel may still be closing its files.
pub fn remove_left_behind(tool: u32) {
    const ATTEMPTS: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(20);
    let Ok(place) = tracing() else {
        return;
    };
    let instances = place.join("instances");
    let found = fs::read_dir(&instances).into_iter().flatten().flatten();
    let names = found.map(|entry| entry.file_name());
    for own in names.filter(|name| process_of(name) == Some(tool)) {
        for _ in 0..ATTEMPTS {
            match fs::remove_dir(instances.join(&own)) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => sleep(PAUSE),
                _ => break,
            }
        }
    }
}

/// If its guardian was killed, too.
fn remove_of_the_dead(instances: &Path) {
    let found = fs::read_dir(instances).into_iter().flatten().flatten();
    for name in found.map(|entry| entry.file_name()) {
        let process = process_of(&name);
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir(instances.join(name));
        }
    }
}

/// The process that made an instance: `nopal-4711` or `nopal-4711-events`.
fn process_of(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix(PREFIX)?;
    number.split('-').next()?.parse().ok()
}

fn name(tool: u32) -> String {
    format!("{PREFIX}{tool}")
}

/// The tracer uses the thread ids of the whole system.
fn sees_all_processes() -> Result<()> {
    /// The inode of the first PID namespace, the same in all kernels.
    const FIRST: &str = "pid:[4026531836]";
    let own = fs::read_link("/proc/self/ns/pid").context("/proc/self/ns/pid")?;
    if own != Path::new(FIRST) {
        bail!(
            "nopal is in a PID namespace, but the kernel's tracer uses the thread ids outside of it; run nopal there"
        );
    }
    Ok(())
}

/// Explains a failure and its remedy.
fn refused(error: io::Error, path: &Path, text: &str) -> Error {
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let advice = advice(&error, path, &lockdown);
    let text = match text.trim_end() {
        "" => String::new(),
        text => format!(": {text}"),
    };
    let below = tracing()
        .ok()
        .and_then(|place| path.strip_prefix(place).ok());
    let path = below.map_or(path.to_owned(), |below| Path::new("tracefs").join(below));
    anyhow!("{}{text}: {error}{advice}", path.display())
}

fn advice(error: &io::Error, path: &Path, lockdown: &str) -> &'static str {
    let is_root = rustix::process::geteuid().is_root();
    let is_locked = ["[integrity]", "[confidentiality]"].map(|level| lockdown.contains(level));
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if !is_root => "; run nopal as root",
        Some(libc::EACCES | libc::EPERM) if is_locked.contains(&true) => {
            "; the kernel is locked down; it permits this if booted without Secure Boot and lockdown="
        }
        Some(libc::EACCES | libc::EPERM) => {
            "; this is refused even to root: run nopal outside of its container, or with a kernel that is not locked down"
        }
        Some(libc::EINVAL) if path.ends_with("set_ftrace_filter") => {
            "; /sys/kernel/tracing/available_filter_functions lists those that can be recorded"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_that_are_commands_are_refused() {
        let nowhere = Instance(PathBuf::from("/nonexistent"));
        for glob in ["", "schedule:traceoff", "a b", "!vfs_*", "vfs_read\n*"] {
            let error = nowhere.only(&[glob.to_string()]).unwrap_err();
            assert!(error.to_string().contains("not a valid glob"), "{error:#}");
        }
    }

    #[test]
    fn an_instance_names_the_process_that_made_it() {
        let of = [
            "nopal-47",
            "nopal-47-events",
            "nopal-x",
            "other-47",
            "nopal-",
        ];
        let of = of.map(|name| process_of(OsStr::new(name)));
        assert_eq!(of, [Some(47), Some(47), None, None, None]);
    }

    #[test]
    fn what_is_forbidden_to_root_names_the_lockdown() {
        let path = Path::new("current_tracer");
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(advice(&error, path, "none [integrity] confidentiality"), "");
        if rustix::process::geteuid().is_root() {
            let error = io::Error::from_raw_os_error(libc::EPERM);
            assert!(
                advice(&error, path, "none [integrity] confidentiality")
                    .contains("kernel is locked down")
            );
            assert!(
                !advice(&error, path, "[none] integrity confidentiality")
                    .contains("kernel is locked down")
            );
        }
    }
}
