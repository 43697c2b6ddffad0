//! Guests with nopal's module, in each kernel that Debian ships.

use crate::compile::{Program, c};
use crate::guest::Guest;
use crate::paths::{nopal, sources, target_directory};
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock};
use std::thread;
use tempfile::TempDir;

/// The commands before each script.
const BEGIN: &str = "
mount -t debugfs debugfs /sys/kernel/debug
mkdir -p /etc
echo user::1000:1000::/:/bin/sh >/etc/passwd
say() {
	said=$1
	shift
	step $said
	\"$@\" >/out/$said 2>&1
	echo $? >/out/$said.status
}
as_before() {
	kernel_text /tmp/text.after
	cmp -l /tmp/text.before /tmp/text.after >/out/text.changed 2>&1
	echo $? >/out/text.status
}
";

pub struct Booted {
    pub name: String,
    pub out: TempDir,
}

impl Booted {
    pub fn text(&self, name: &str) -> String {
        let path = self.out.path().join(name);
        let bytes =
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {name}: {error}", self.name));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Asserts that the kernel's text is as before the module was loaded, and that the kernel has logged no error.
    pub fn is_as_before(&self) {
        let changed = self.text("text.changed");
        assert_eq!(
            self.text("text.status").trim(),
            "0",
            "{}: {changed}",
            self.name
        );
        let log = self.text("kernel.log");
        let bad = [
            "BUG:",
            "WARNING:",
            "Oops",
            "Call Trace",
            "stall",
            "lockup",
            "general protection",
        ];
        let lines: Vec<&str> = log.lines().collect();
        let complaint = |line: &&str| bad.iter().any(|bad| line.contains(bad));
        if let Some(at) = lines.iter().position(complaint) {
            let end = lines.len().min(at + 60);
            panic!("{}: {}", self.name, lines[at..end].join("\n"));
        }
    }

    /// The output of a command of `say`, which ended well.
    pub fn said(&self, name: &str) -> String {
        let said = self.text(name);
        let status = self.text(&format!("{name}.status"));
        assert_eq!(status.trim(), "0", "{}: {name}: {said}", self.name);
        said
    }
}

/// The kernels that `.ci/packages test` fetches, or those in the folder that `NOPAL_KERNELS` names.
pub fn kernels() -> Vec<PathBuf> {
    let (directory, at_least) = match env::var_os("NOPAL_KERNELS") {
        Some(directory) => (PathBuf::from(directory), 1),
        None => (target_directory().join("kernel"), 2),
    };
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut kernels: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.join("vmlinuz").exists())
        .collect();
    kernels.sort();
    assert!(
        kernels.len() >= at_least,
        "{}: .ci/packages test puts kernels there",
        directory.display()
    );
    kernels
}

/// Whether to kill tools and to load modules as often as `make torture` does.
pub fn is_torture() -> bool {
    env::var("NOPAL_KILLS").is_ok_and(|kills| kills == "all")
}

/// nopal's module, and those of the tests.
const MODULES: [&str; 6] = [
    "nopal.ko",
    "nopal_sections.ko",
    "nopal_livepatch.ko",
    "nopal_leaves.ko",
    "nopal_markers.ko",
    "nopal_connected.ko",
];

/// The modules for a kernel.
struct Modules {
    kernel: PathBuf,
    directory: TempDir,
}

impl Modules {
    fn build(kernel: PathBuf) -> Modules {
        let directory = TempDir::new().expect("a directory can be made");
        let tests = sources().join("../kernel");
        let built = Command::new(sources().join("../../runtime/port/linux_kernel/build"))
            .args([kernel.as_path(), directory.path(), &tests])
            .output()
            .expect("the modules' build runs");
        let error = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{}: {error}", kernel.display());
        Modules { kernel, directory }
    }

    /// Runs a script with these programs as well.
    fn boot(
        &self,
        script: &str,
        more: &[&Path],
        processors: u32,
        counts_instructions: bool,
    ) -> Booted {
        let own: [Program; 2] = [c("kernel_work", &[]), c("kernel_text", &[])];
        let own = own.each_ref().map(|program| &*program.path);
        let programs: Vec<&Path> = [nopal()]
            .into_iter()
            .chain(own)
            .chain(more.iter().copied())
            .collect();
        let files = MODULES.map(|name| self.directory.path().join(name));
        let guest = Guest {
            programs: &programs,
            files: &files.each_ref().map(PathBuf::as_path),
            kernel: self.kernel.join("vmlinuz"),
            options: "",
            processors,
            counts_instructions,
        };
        let name = self.kernel.file_name().unwrap_or_default();
        Booted {
            name: name.to_string_lossy().into_owned(),
            out: guest.run(&format!("{BEGIN}{script}")),
        }
    }
}

/// A script's results in the newest kernel, with two processors.
pub fn boot_newest(script: &str, programs: &[&Path]) -> Booted {
    let newest = kernels().pop().expect("there are kernels");
    Modules::build(newest).boot(script, programs, 2, false)
}

/// Does the work for each item, all at once.
fn for_each<I: Send, O: Send>(
    of: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> O + Sync,
) -> Vec<O> {
    thread::scope(|scope| {
        let work = &work;
        let of = of.into_iter();
        let running: Vec<_> = of.map(|it| scope.spawn(move || work(it))).collect();
        let ended = running.into_iter().map(|running| running.join());
        ended.map(|result| result.expect("it is done")).collect()
    })
}

/// The right to run a guest of `boot_each`. They slow each other down: no more run at once than there are kernels.
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();
const WHOLE: &str = "nobody fails while he counts guests";

impl Turn {
    fn wait(at_most: usize) -> Turn {
        let running = RUNNING.lock().expect(WHOLE);
        let running = ENDED.wait_while(running, |running| *running >= at_most);
        *running.expect(WHOLE) += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().expect(WHOLE) -= 1;
        ENDED.notify_one();
    }
}

/// A script's results in each kernel.
pub fn boot_each(
    script: &str,
    programs: &[&Path],
    processors: u32,
    counts_instructions: bool,
) -> Vec<Booted> {
    static MODULES: OnceLock<Vec<Modules>> = OnceLock::new();
    let modules = MODULES.get_or_init(|| for_each(kernels(), Modules::build));
    for_each(modules, |of_kernel| {
        let _turn = Turn::wait(modules.len());
        of_kernel.boot(script, programs, processors, counts_instructions)
    })
}

/// The row of a function of the kernel in `nopal report --json`.
pub fn row(report: &str, function: &str) -> Value {
    let rows: Vec<Value> = serde_json::from_str(report).expect("a report");
    let is_it = |row: &&Value| row["module"] == "kernel" && row["function"] == function;
    rows.iter().find(is_it).cloned().unwrap_or_default()
}

/// The number after a word in the module's state.
pub fn number_after(state: &str, word: &str) -> u64 {
    let rest = state.split(word).nth(1).unwrap_or_default();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number after {word}: {state}"))
}

/// The state without the comments beside the commands.
pub fn commands(state: &str) -> Vec<&str> {
    state
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect()
}
