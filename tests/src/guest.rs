//! A virtual machine with a Debian kernel, in QEMU without KVM: for requests that the kernel of this machine refuses.
//! Its whole system is a few programs in memory, and a script that ends it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::kernel::is_torture;
use crate::paths::target_directory;
use crate::run::{Ended, Running, Start};

/// The begin of each script: sets up a usual system, and `/out`, which is copied back.
const BEGIN: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tracefs tracefs /sys/kernel/tracing
mount -t devtmpfs devtmpfs /dev
mkdir -p /out /root /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
cd /tmp
# Prints a line with the time since the boot: the last step of a guest that does not end.
step() {
	read -r uptime idle </proc/uptime
	echo \"$uptime $*\" >/dev/console
}
";
const END: &str = "
stty -F /dev/ttyS1 raw
tar -c -z -f /dev/ttyS1 -C /out .
poweroff -f
";

/// An emulated machine is slow, and slower beside other work.
const PATIENCE: Duration = Duration::from_secs(900);
/// The same for about ten times as much work.
const PATIENCE_WITH_TORTURE: Duration = Duration::from_secs(3600);
/// The kernel's default clock would be slow here, and its check of the timer fails when other work stops the machine
/// for a while. The last two options are for `QUESTIONS`.
const KERNEL_OPTIONS: &str = "console=ttyS0 quiet panic=-1 nowatchdog clocksource=tsc tsc=reliable no_timer_check \
    sysrq_always_enabled unknown_nmi_panic";

/// The requests to a guest that does not end, each with its time in seconds. C-a c changes between its serial line and
/// QEMU's monitor, and C-a b is a break on that line: the registers, three times; all messages, the stacks of the
/// processors and of all tasks (SysRq), if interrupts still come; a non-maskable interrupt, which ends the kernel with
/// a stack.
const QUESTIONS: [(&str, u64); 8] = [
    ("\x01c\ninfo registers -a\n", 1),
    ("info registers -a\n", 1),
    ("info registers -a\n\x01c", 1),
    ("\x01b9", 1),
    ("\x01bl", 10),
    ("\x01bt", 60),
    ("\x01c\nnmi\n\x01c", 10),
    ("\x01c\nquit\n", 5),
];

/// A machine to run a script on.
pub struct Guest<'a> {
    /// The programs are copied to `/bin`, with their libraries.
    pub programs: &'a [&'a Path],
    /// The files are copied to `/`: modules, for example.
    pub files: &'a [&'a Path],
    pub kernel: PathBuf,
    /// Further words of the kernel's command line.
    pub options: &'a str,
    /// With several, TCG may let one run code for ever that another has changed, unless one thread runs them all.
    pub processors: u32,
    /// Each instruction takes a nanosecond, and a tick; an idle processor advances the time to the next timer.
    pub counts_instructions: bool,
}

/// Runs a script in a guest with one processor and the kernel of `target/guest`.
pub fn run_in_guest(programs: &[&Path], script: &str) -> TempDir {
    let guest = Guest {
        programs,
        files: &[],
        kernel: kernel(),
        options: "",
        processors: 1,
        counts_instructions: false,
    };
    guest.run(script)
}

impl Guest<'_> {
    /// Boots, runs a shell script, and returns the files that it left in `/out`.
    pub fn run(&self, script: &str) -> TempDir {
        let directory = TempDir::new().expect("a directory can be made");
        let path = |name: &str| directory.path().join(name);
        let mut archive = Archive::default();
        for name in ["proc", "sys", "dev", "tmp"] {
            archive.directory(name);
        }
        let busybox = PathBuf::from("/usr/bin/busybox");
        let missing = "busybox is not there: .ci/packages test installs it";
        assert!(busybox.exists(), "{missing}");
        for program in self.programs.iter().copied().chain([busybox.as_path()]) {
            let name = program.file_name().and_then(|name| name.to_str());
            strip(program, &path("stripped"));
            archive.file(
                &format!("bin/{}", name.expect("a plain name")),
                &path("stripped"),
            );
            for library in libraries(program) {
                archive.file(library.trim_start_matches('/'), Path::new(&library));
            }
        }
        for file in self.files {
            let name = file.file_name().and_then(|name| name.to_str());
            strip(file, &path("stripped"));
            archive.file(name.expect("a plain name"), &path("stripped"));
        }
        archive.add("init", 0o100755, format!("{BEGIN}{script}{END}").as_bytes());
        fs::write(path("system"), archive.end()).expect("there is room for the guest's system");
        let mut start = Start::new(["qemu-system-x86_64"]);
        let fixed = "-accel tcg,thread=single -cpu max -m 1G -nodefaults -no-reboot -display none -serial mon:stdio -append";
        start.words.extend(fixed.split(' ').map(Into::into));
        let options = format!("{KERNEL_OPTIONS} {}", self.options);
        start.words.push(options.into());
        start
            .words
            .extend(["-smp".into(), self.processors.to_string().into()]);
        if self.counts_instructions {
            start
                .words
                .extend(["-icount".into(), "shift=0,sleep=off".into()]);
        }
        let out = format!("file:{}", path("out.tar.gz").display());
        start.words.extend(["-serial".into(), out.into()]);
        start
            .words
            .extend(["-kernel".into(), self.kernel.clone().into()]);
        start
            .words
            .extend(["-initrd".into(), path("system").into()]);
        let mut running = start.spawn();
        let ended = wait(&mut running);
        let out = TempDir::new().expect("a directory can be made");
        let unpacked = Command::new("tar")
            .arg("-xzf")
            .arg(path("out.tar.gz"))
            .arg("-C")
            .arg(out.path())
            .status();
        assert!(
            unpacked.is_ok_and(|status| status.success()),
            "nothing came back from the guest, which said:\n{}{}",
            ended.stdout,
            ended.stderr
        );
        out
    }
}

/// Waits for a guest's end. The output of a guest that does not end in time shows its state, as far as possible.
fn wait(running: &mut Running) -> Ended {
    let patience = if is_torture() {
        PATIENCE_WITH_TORTURE
    } else {
        PATIENCE
    };
    let deadline = Instant::now() + patience;
    while !running.has_ended() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    if !running.has_ended() {
        let mut stdin = running.stdin();
        for (keys, seconds) in QUESTIONS {
            // The guest may end now.
            let _ = stdin.write_all(keys.as_bytes());
            thread::sleep(Duration::from_secs(seconds));
        }
        // The output of `eprintln` is held until the tests end, and lost if a timeout ends them.
        let _ = writeln!(io::stderr(), "A guest does not end:\n{}", running.stdout());
    }
    running.be_patient(Duration::from_secs(60));
    running.wait()
}

/// Leaves out debug information, which would fill the guest's memory.
fn strip(file: &Path, to: &Path) {
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(to).arg(file);
    let status = strip.status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "strip {}",
        file.display()
    );
}

fn kernel() -> PathBuf {
    let directory = target_directory().join("guest");
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let kernel = entries.map(|entry| entry.path()).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
    });
    kernel.unwrap_or_else(|| {
        panic!(
            "no kernel for the guest in {}: .ci/packages test puts one there",
            directory.display()
        )
    })
}

/// The libraries that the loader maps for a program; none for a static one.
fn libraries(program: &Path) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(str::to_owned)
    });
    words.collect()
}

/// An archive of cpio's kind `newc`, as the kernel unpacks it.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Archive {
    fn directory(&mut self, name: &str) {
        if self.directories.insert(name.to_owned()) {
            if let Some((parent, _)) = name.rsplit_once('/') {
                self.directory(parent);
            }
            self.add(name, 0o040755, b"");
        }
    }

    fn file(&mut self, name: &str, from: &Path) {
        if self.files.insert(name.to_owned()) {
            if let Some((parent, _)) = name.rsplit_once('/') {
                self.directory(parent);
            }
            let content =
                fs::read(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            self.add(name, 0o100755, &content);
        }
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        let (links, size, name_size) = (1, content.len(), name.len() + 1);
        // Inode, mode, user, group, links, time, size, device, device of its own, length of its name, checksum.
        let number = self.files.len() + self.directories.len();
        let fields = [
            number,
            mode as usize,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.bytes
    }
}
