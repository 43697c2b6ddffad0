//! One function for each check. A check reads text from the kernel and judges it.

use rustix::process::Resource;
use std::fs;
use std::io;
use std::path::Path;

use nopal_analysis::text::bytes;

use super::{Finding, State};
use crate::settings::Settings;
use nopal_record::Allowed;

type Check = fn() -> Finding;

pub const ALL: [(&str, Check); 17] = [
    ("kernel", kernel),
    ("ptrace", ptrace),
    ("yama", || {
        yama(read("/proc/sys/kernel/yama/ptrace_scope").as_deref())
    }),
    ("seccomp", || {
        seccomp(&status("Seccomp").unwrap_or_default())
    }),
    ("memfd", || {
        memfd(read("/proc/sys/vm/memfd_noexec").as_deref())
    }),
    ("overcommit", || {
        overcommit(read("/proc/sys/vm/overcommit_memory").as_deref())
    }),
    ("address space", || address_space(limit(Resource::As))),
    ("stack", || stack(limit(Resource::Stack))),
    ("core dumps", || core_dumps(limit(Resource::Core))),
    ("clock source", || {
        clock_source(read(CLOCK_SOURCE).as_deref())
    }),
    ("counter", || {
        counter(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }),
    ("rdtsc", rdtsc),
    ("container", container),
    ("fuse", || {
        let root = rustix::process::geteuid().is_root();
        fuse(opened("/dev/fuse"), root || has_program("fusermount3"))
    }),
    ("system events", || kernel_events(nopal_record::allowed())),
    ("kernel functions", || {
        kernel_functions(nopal_record::missing_for_functions())
    }),
    ("settings", || settings(Settings::of_process())),
];

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn settings(settings: &Settings) -> Finding {
    let what = match settings.origins.as_slice() {
        [] => "defaults only (NOPAL_… and ~/.config/nopal.toml would change them)".to_owned(),
        origins => origins.join(", "),
    };
    match settings.complaints.as_slice() {
        [] => Finding::good(what),
        complaints => Finding::new(State::Warning, what, complaints.join("; ")),
    }
}

/// The content of a small file of the kernel; empty if it does not exist.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_string())
}

/// A field of this process's status.
fn status(field: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_string())
}

/// The soft limit; none if it is unlimited or unknown.
fn limit(resource: Resource) -> Option<u64> {
    rustix::process::getrlimit(resource).current
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let machine = std::env::consts::ARCH;
    if version >= (5, 3) {
        Finding::good(format!("Linux {release} on {machine}"))
    } else {
        Finding::new(
            State::Warning,
            format!("Linux {release} on {machine}"),
            "nopal is made for Linux 5.3 and later",
        )
    }
}

/// Tries to trace a child, rather than reading the kernel's settings.
fn ptrace() -> Finding {
    match seize_a_child() {
        Ok(()) => Finding::good("a process that nopal starts can be traced"),
        Err(error) => Finding::new(
            State::Bad,
            format!("a process that nopal starts cannot be traced: {error}"),
            "allow ptrace: in a container, run it with --cap-add=SYS_PTRACE or a seccomp profile that permits it",
        ),
    }
}

fn seize_a_child() -> io::Result<()> {
    // SAFETY: the child makes plain system calls only, and is killed and waited for.
    unsafe {
        let child = libc::fork();
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            loop {
                libc::pause();
            }
        }
        let result = match libc::ptrace(libc::PTRACE_SEIZE, child, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
        result
    }
}

fn yama(scope: Option<&str>) -> Finding {
    match scope {
        None | Some("0") => Finding::good("processes of the same user may be attached to"),
        Some("1") => Finding::new(
            State::Note,
            "only a process's own ancestors may attach to it: enough for `nopal record`",
            "to attach to others: sysctl kernel.yama.ptrace_scope=0, as root",
        ),
        Some("2") => Finding::new(
            State::Warning,
            "only root may attach",
            "run nopal as root, or: sysctl kernel.yama.ptrace_scope=1, as root",
        ),
        Some(other) => Finding::new(
            State::Bad,
            format!("no process may attach (kernel.yama.ptrace_scope is {other})"),
            "this setting lasts until the next boot: boot with kernel.yama.ptrace_scope=1",
        ),
    }
}

fn seccomp(mode: &str) -> Finding {
    match mode {
        "0" | "" => Finding::good("nopal itself is not confined"),
        _ => Finding::new(
            State::Note,
            "nopal itself runs under a seccomp filter, as in a container",
            "if recording fails, run the container with --security-opt seccomp=unconfined",
        ),
    }
}

fn memfd(setting: Option<&str>) -> Finding {
    match setting {
        None | Some("0") => Finding::good("memory files may hold code"),
        Some("1") => Finding::good("memory files may hold code on request"),
        Some(other) => Finding::new(
            State::Bad,
            format!("memory files may not hold code (vm.memfd_noexec is {other})"),
            "sysctl vm.memfd_noexec=1, as root",
        ),
    }
}

fn overcommit(setting: Option<&str>) -> Finding {
    match setting {
        Some("2") => Finding::new(
            State::Warning,
            "memory is reserved before it is used: nopal's counts too, most of it --buffer; where the mirror of a stack is refused, only entries are recorded",
            "sysctl vm.overcommit_memory=0, as root, if durations are missing",
        ),
        _ => Finding::good("more memory may be reserved than the machine has"),
    }
}

fn address_space(limit: Option<u64>) -> Finding {
    match limit {
        None => Finding::good("the address space is not limited"),
        Some(limit) => Finding::new(
            State::Warning,
            format!(
                "the address space is limited to {}: nopal's mappings in a program count too",
                bytes(limit)
            ),
            "ulimit -v unlimited, or a smaller --buffer",
        ),
    }
}

fn stack(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) => Finding::good(format!("stacks grow to {}", bytes(limit))),
        None => Finding::new(
            State::Note,
            "stacks grow without limit: the kernel uses its legacy memory layout",
            "ulimit -s 8192 for the usual layout",
        ),
    }
}

fn core_dumps(limit: Option<u64>) -> Finding {
    match limit {
        Some(0) => Finding::new(
            State::Note,
            "a program that crashes leaves no core dump",
            "ulimit -c unlimited for one",
        ),
        Some(limit) => Finding::good(format!("core dumps are cut at {}", bytes(limit))),
        None => Finding::good("a program that crashes leaves a core dump"),
    }
}

fn clock_source(source: Option<&str>) -> Finding {
    match source {
        Some("tsc") => Finding::good("the kernel's clock is the counter that records use"),
        Some(other) => Finding::new(
            State::Warning,
            format!("the kernel's clock is {other}, not the counter that records use"),
            "durations may be off by the drift of the two in a second; boot with clocksource=tsc if the counter is reliable",
        ),
        None => Finding::new(
            State::Note,
            "the kernel's clock source is not known",
            "durations are measured by the counter",
        ),
    }
}

fn counter(cpuinfo: &str) -> Finding {
    let flags = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or_default();
    let lacking: Vec<&str> = ["constant_tsc", "nonstop_tsc"]
        .into_iter()
        .filter(|flag| !flags.split(' ').any(|word| word == *flag))
        .collect();
    if lacking.is_empty() {
        return Finding::good(
            "the counter runs at a constant rate, also while the processor sleeps",
        );
    }
    Finding::new(
        State::Warning,
        format!("the processor does not promise {}", lacking.join(" and ")),
        "counts are exact; durations may change with the processor's frequency or stop while it sleeps",
    )
}

fn rdtsc() -> Finding {
    let mut setting: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes one int, into a local of that type.
    let asked = unsafe { libc::prctl(libc::PR_GET_TSC, &mut setting) };
    if asked == 0 && setting == libc::PR_TSC_SIGSEGV {
        return Finding::new(
            State::Bad,
            "the counter may not be read",
            "start nopal from a process that may read it",
        );
    }
    Finding::good("the counter may be read")
}

fn container() -> Finding {
    let marks = [
        "/.dockerenv",
        "/run/.containerenv",
        "/run/systemd/container",
    ];
    match marks.into_iter().find(|mark| Path::new(mark).exists()) {
        None => Finding::good("not in a container, as far as nopal can see"),
        Some(mark) => Finding::new(
            State::Note,
            format!("in a container ({mark} exists)"),
            "programs that are started inside can be traced inside; the limits above are those of the container",
        ),
    }
}

fn opened(path: &str) -> io::Result<()> {
    fs::File::open(path).map(drop)
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn kernel_events(allowed: Allowed) -> Finding {
    match allowed {
        Allowed::Everything => {
            Finding::good("switches and wake-ups of all tasks can be recorded (-e sched)")
        }
        Allowed::Own(missing) => Finding::new(
            State::Note,
            "-e sched records the switches of traced threads, but no wake-ups and no other tasks",
            missing,
        ),
        Allowed::Nothing(missing) => Finding::new(
            State::Note,
            "-e sched cannot record anything; other functions of nopal do not need it",
            missing,
        ),
    }
}

fn kernel_functions(missing: Option<String>) -> Finding {
    match missing {
        None => Finding::good("functions of the kernel inside calls can be recorded (-k)"),
        Some(missing) => Finding::new(
            State::Note,
            "-k cannot record functions of the kernel; other functions of nopal do not need it",
            missing,
        ),
    }
}

/// `may_mount`: whether nopal may mount, by itself or by the program that mounts for users.
fn fuse(device: io::Result<()>, may_mount: bool) -> Finding {
    const WITHOUT: &str = "`nopal mount` cannot work; `nopal ctl` and recording do not need it";
    match device {
        Err(error) => Finding::new(State::Note, format!("/dev/fuse: {error}"), WITHOUT),
        Ok(()) if !may_mount => Finding::new(
            State::Note,
            "fusermount3, which users need to mount, is not in PATH",
            format!("install it (package fuse3): until then {WITHOUT}"),
        ),
        Ok(()) => Finding::good("sessions can be mounted as files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_can_be_seized_where_tests_run() {
        assert_eq!(ptrace().state, State::Good);
    }

    #[test]
    fn each_level_of_yama() {
        let states =
            [None, Some("0"), Some("1"), Some("2"), Some("3")].map(|scope| yama(scope).state);
        assert_eq!(
            states,
            [
                State::Good,
                State::Good,
                State::Note,
                State::Warning,
                State::Bad
            ]
        );
    }

    #[test]
    fn clock_sources() {
        let states = [Some("tsc"), Some("hpet"), None].map(|source| clock_source(source).state);
        assert_eq!(states, [State::Good, State::Warning, State::Note]);
    }

    #[test]
    fn counters() {
        assert_eq!(
            counter("flags\t\t: fpu constant_tsc nonstop_tsc\n").state,
            State::Good
        );
        let lacking = counter("flags\t\t: fpu constant_tsc_not nonstop_tsc\n");
        assert_eq!(lacking.state, State::Warning);
        assert!(lacking.what.ends_with("constant_tsc"), "{}", lacking.what);
    }

    #[test]
    fn limits_and_settings() {
        assert_eq!(address_space(Some(1 << 30)).state, State::Warning);
        assert!(address_space(Some(1 << 30)).what.contains("1.00 GiB"));
        assert_eq!(
            (stack(None).state, stack(Some(8 << 20)).state),
            (State::Note, State::Good)
        );
        assert_eq!(overcommit(Some("2")).state, State::Warning);
        assert_eq!(
            (memfd(Some("1")).state, memfd(Some("2")).state),
            (State::Good, State::Bad)
        );
    }

    #[test]
    fn what_mounting_needs() {
        let lacking = || Err(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(fuse(Ok(()), true).state, State::Good);
        assert_eq!(fuse(lacking(), true).state, State::Note);
        assert!(fuse(Ok(()), false).what.contains("fusermount3"));
    }

    #[test]
    fn every_finding_that_is_not_good_says_what_to_do() {
        for (name, check) in ALL {
            let finding = check();
            assert_eq!(
                finding.state != State::Good,
                finding.advice.is_some(),
                "{name}: {finding:?}"
            );
        }
    }
}
