//! Running processes under odd circumstances: without a first thread, without a free descriptor, from deleted files, in a
//! control group that is frozen or has little memory, or in 32-bit code.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nopal_tests::process::{assert_nothing_left, text_difference, wait_until};
use nopal_tests::{Case, End, Program, Report, Running, Start, c, nopal, scratch, sources};

/// Attaches for one phase, and lets the program end. Calls `meanwhile` before nopal attaches.
fn one_phase(case: &Case, meanwhile: impl FnOnce()) -> (Report, String) {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.contains("phase 0\n"));
    meanwhile();
    let process = program.id();
    let limits = || std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let before = limits();
    let mut stdin = program.stdin();
    let mut tool = case.attach(program.id(), &trace);
    assert_eq!(limits(), before, "limits are unchanged");
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 1\n"));
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert!(!memory(program.id()).contains("/memfd:nopal"));
    drop(stdin);
    let ended_program = program.wait();
    assert_eq!(ended_program.end, End::Code(5));
    assert!(ended_program.stdout.ends_with("phase 1\nend\n"));
    (Report::of(&trace), ended.stderr)
}

/// The mappings of a process, as its last thread shows them.
fn memory(process: i32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = threads.map(|thread| thread.unwrap().path().join("maps"));
    names
        .filter_map(|name| std::fs::read_to_string(name).ok())
        .collect()
}

fn assert_one_phase(report: &Report) {
    let calls = ["descend", "leaf"].map(|function| report.calls(function));
    assert_eq!(calls, [1100, 1000]);
}

#[test]
fn the_first_thread_has_ended() {
    for flags in [&[][..], &["-static"]] {
        let case = Case::new(c("odd", flags)).arguments(["leaderless"]);
        assert_one_phase(&one_phase(&case, || ()).0);
    }
}

#[test]
fn no_descriptor_is_free() {
    for words in [&["full"][..], &["leaderless", "full"]] {
        let case = Case::new(c("odd", &[])).arguments(words);
        assert_one_phase(&one_phase(&case, || ()).0);
    }
}

/// If the hard limit may not be raised, nopal reports it and changes nothing.
#[test]
fn no_descriptor_can_be_had() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("odd", &[])).arguments(["locked"]);
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.contains("phase 0\n"));
    let mut start = Start::new(["setpriv", "--bounding-set", "-sys_resource"]);
    start.words.push(nopal().into());
    start
        .words
        .extend(["attach".into(), program.id().to_string().into()]);
    start.words.extend(["-o".into(), trace.into()]);
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(1));
    assert!(
        ended.stderr.contains("no free file descriptor"),
        "{}",
        ended.stderr
    );
    assert!(!memory(program.id()).contains("/memfd:nopal"));
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// A program with a library, both copied to a folder where they can be replaced.
fn copied(folder: &Path) -> (Case, [std::path::PathBuf; 2]) {
    let program = folder.join("service");
    let library = folder.join("libservice.so");
    let source = folder.join("library.c");
    let text = "extern int puts(const char *);\n\
                __attribute__((noinline, noipa)) long of_library(long n) { return n < 2 ? n : of_library(n - 1) + n * 3; }\n\
                __attribute__((constructor)) static void start(void) { of_library(3); }\n";
    std::fs::write(&source, text).unwrap();
    let gcc = |words: &[&str]| {
        let built = std::process::Command::new("gcc")
            .current_dir(folder)
            .args(["-O2", "-g", "-std=gnu17", "-pthread"])
            .args(words)
            .status();
        assert!(built.expect("gcc runs").success());
    };
    gcc(&["-shared", "-fPIC", "library.c", "-o", "libservice.so"]);
    let phases = sources().join("phases.c");
    let main = phases.to_str().unwrap();
    gcc(&[
        "-Wl,--no-as-needed",
        main,
        "-L.",
        "-lservice",
        "-Wl,-rpath,$ORIGIN",
        "-o",
        "service",
    ]);
    (Case::new(Program::installed(&program)), [program, library])
}

#[test]
fn files_were_deleted_or_replaced_by_others() {
    for replaced in [false, true] {
        let scratch = scratch();
        let (case, files) = copied(scratch.path());
        let case = case.options(["--libs"]);
        let (report, said) = one_phase(&case, || {
            for file in &files {
                std::fs::remove_file(file).unwrap();
                if replaced {
                    // Another program takes the same name.
                    std::fs::copy(nopal(), file).unwrap();
                }
            }
        });
        assert_one_phase(&report);
        assert_eq!(report.calls("waits"), 21);
        let modules = report.rows_of("descend").map(|row| row["module"].clone());
        assert_eq!(modules.collect::<Vec<_>>(), ["service"], "{said}");
    }
}

/// Lets every user look into the folder, and run the nopal in it. Returns a folder there for files of any user.
fn for_nobody(folder: &Path) -> PathBuf {
    let own = folder.join("own");
    std::fs::copy(nopal(), folder.join("nopal")).unwrap();
    std::fs::create_dir(&own).unwrap();
    for (path, mode) in [(folder, 0o755), (&own, 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    own
}

/// Starts a program as a user who is not root, with `own` for files.
fn as_nobody(own: &Path, words: &[OsString]) -> Running {
    let identity = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut start = Start::new(["setpriv"]);
    let environment = [("LC_ALL", "C.UTF-8".into()), ("XDG_CACHE_HOME", own.into())];
    start
        .environment
        .extend(environment.map(|(name, value)| (name.into(), value)));
    start.words.extend(identity.map(Into::into));
    start.words.extend(words.iter().cloned());
    start.spawn()
}

/// Only root may trace the process from then on: nopal leaves its functions as long as it can, and says so if it cannot.
#[test]
fn a_process_becomes_secret() {
    for (how, says) in [("s", "is secret now"), ("i", "has become secret")] {
        let scratch = scratch();
        let (own, path) = (for_nobody(scratch.path()), scratch.path().join("service"));
        std::fs::copy(c("secret", &[]).path, &path).unwrap();
        let mut program = as_nobody(&own, &[path.into()]);
        program.wait_for(|text| text.contains("ready\n"));
        let (process, trace) = (program.id(), own.join("trace"));
        let nopal_there = scratch.path().join("nopal");
        let words = [
            "attach".into(),
            process.to_string().into(),
            "-o".into(),
            trace.clone().into(),
        ];
        let words: Vec<OsString> = [nopal_there.into()].into_iter().chain(words).collect();
        let mut tool = as_nobody(&own, &words);
        tool.wait_for_error(|text| text.contains("tracing process"));
        let mut stdin = program.stdin();
        for (turn, line) in ["on", how].into_iter().enumerate() {
            stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
            program.wait_for(|text| text.matches("worked\n").count() == turn + 1);
        }
        let asked = how == "s";
        assert_eq!(text_difference(process, "service").is_none(), asked);
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
        assert_eq!(
            Report::of(&trace).calls("work"),
            if asked { 1000 } else { 2000 }
        );

        let detach = [nopal().to_str().unwrap(), "detach", &process.to_string()];
        let detached = Start::new(detach).run("");
        assert_eq!(detached.end, End::Code(0), "{}", detached.stderr);
        assert_nothing_left(process);
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
    }
}

/// nopal may not read the mapped file, so the unwinder of its code is unknown: no frame is touched.
#[test]
fn a_library_was_replaced_and_cannot_be_read() {
    let scratch = scratch();
    let folder = scratch.path();
    let (case, [_, library]) = copied(folder);
    let own = for_nobody(folder);
    // Root can read mapped files.
    let mut program = as_nobody(&own, &case.untraced_start().words);
    program.wait_for(|text| text.contains("phase 0\n"));
    std::fs::remove_file(&library).unwrap();
    let number = program.id().to_string();
    let words = [
        folder.join("nopal").into(),
        "attach".into(),
        number.into(),
        "-o".into(),
        own.join("trace").into(),
    ];
    let mut tool = as_nobody(&own, &words);
    tool.wait_for_error(|text| text.contains("tracing process"));
    let mut stdin = program.stdin();
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 1\n"));
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    let expected = "libservice.so was replaced after it was loaded";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    let report = Report::of(&own.join("trace"));
    assert_one_phase(&report);
    assert!(report.rows_of("leaf").all(|row| row["total"].is_null()));
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

/// A control group of its own, which ends with its processes.
struct Group(PathBuf);

impl Group {
    /// Of the control groups below these mounts those that can be made here, by root, and have the file.
    fn all<const N: usize>(kinds: [(&str, &'static str); N]) -> Vec<(Group, &'static str)> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("nopal-test-{}-{number}", std::process::id());
        let made = kinds.map(|(root, file)| {
            let group = Path::new("/sys/fs/cgroup").join(root).join(&name);
            let is_made = std::fs::create_dir(&group).is_ok();
            is_made.then_some((Group(group), file))
        });
        let mut made: Vec<_> = made.into_iter().flatten().collect();
        made.retain(|(group, file)| group.0.join(file).exists());
        made
    }

    fn have(&self, process: i32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }

    fn number(&self, file: &str) -> u64 {
        let text = std::fs::read_to_string(self.0.join(file)).unwrap();
        text.trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A freezable control group; its file that freezes, and the words for frozen and thawed there.
struct Freezer {
    group: Group,
    file: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    fn all() -> Vec<Freezer> {
        let kinds = [
            ("freezer", "freezer.state"),
            ("unified", "cgroup.freeze"),
            ("", "cgroup.freeze"),
        ];
        let made = Group::all(kinds).into_iter();
        let freezers = made.map(|(group, file)| Freezer {
            group,
            file,
            words: match file {
                "freezer.state" => ["FROZEN", "THAWED"],
                _ => ["1", "0"],
            },
        });
        freezers.collect()
    }

    fn freeze(&self, freeze: bool) {
        let word = self.words[usize::from(!freeze)];
        std::fs::write(self.group.0.join(self.file), word).unwrap();
        // The newer kind reports the change in another file.
        let frozen = format!("frozen {word}");
        wait_until(&frozen, || {
            let [state, events] = [self.file, "cgroup.events"]
                .map(|file| std::fs::read_to_string(self.group.0.join(file)));
            match events {
                Ok(events) => events.lines().any(|line| line == frozen),
                Err(_) => state.unwrap().trim() == word,
            }
        });
    }
}

#[test]
fn a_frozen_process_is_left_when_it_goes_on() {
    for freezer in Freezer::all() {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let case = Case::new(c("phases", &[]));
        let mut program = case.untraced_start().spawn();
        program.wait_for(|text| text.contains("phase 0\n"));
        freezer.group.have(program.id());
        freezer.freeze(true);
        let process = program.id().to_string();
        let refused = Start::new([nopal().to_str().unwrap(), "attach", &process]).run("");
        freezer.freeze(false);
        assert_eq!(refused.end, End::Code(1), "{}", refused.stderr);
        let frozen = "is frozen by its control group";
        assert!(refused.stderr.contains(frozen), "{}", refused.stderr);

        let mut tool = case.attach(program.id(), &trace);
        freezer.freeze(true);
        tool.signal_group(libc::SIGINT);
        std::thread::sleep(Duration::from_secs(3));
        freezer.freeze(false);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        assert!(!ended.stderr.contains("try again"), "{}", ended.stderr);
        assert_nothing_left(program.id());
        drop(program.stdin());
        assert_eq!(program.wait().end, End::Code(5));
    }
}

/// nopal ends while it is frozen, and its guardian takes the rest out.
#[test]
fn a_process_that_stays_frozen_is_left_by_the_guardian() {
    for freezer in Freezer::all() {
        let scratch = scratch();
        let case = Case::new(c("phases", &[]));
        let mut program = case.untraced_start().spawn();
        program.wait_for(|text| text.contains("phase 0\n"));
        freezer.group.have(program.id());
        let mut tool = case.attach(program.id(), &scratch.path().join("trace"));
        freezer.freeze(true);
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        freezer.freeze(false);
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("when it goes on"), "{}", ended.stderr);
        wait_until("the guardian", || {
            !memory(program.id()).contains("/memfd:nopal")
        });
        assert_nothing_left(program.id());
        drop(program.stdin());
        assert_eq!(program.wait().end, End::Code(5));
    }
}

/// A process can have one tracer, and another one has it when nopal is to leave.
#[test]
fn a_process_that_is_debugged_is_left_by_the_guardian() {
    let scratch = scratch();
    let case = Case::new(c("phases", &[]));
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.contains("phase 0\n"));
    let mut tool = case.attach(program.id(), &scratch.path().join("trace"));
    let process = program.id();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let debugger = std::thread::spawn(move || {
        // SAFETY: the request has no buffers. It ends with this thread.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, process, 0, 0) };
        ready.send(seized).unwrap();
        let _ = left.recv();
    });
    assert_eq!(is_ready.recv(), Ok(0));
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("when it goes on"), "{}", ended.stderr);
    drop(leave);
    debugger.join().unwrap();
    wait_until("the guardian", || !memory(process).contains("/memfd:nopal"));
    assert_nothing_left(process);
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// The groups of both kinds whose memory can be limited, and the file of the limit.
fn limited_groups() -> Vec<(Group, &'static str)> {
    Group::all([
        ("memory", "memory.limit_in_bytes"),
        ("unified", "memory.max"),
        ("", "memory.max"),
    ])
}

/// The records that a program makes count as its memory, and it makes more than its group may use.
#[test]
fn a_group_with_little_memory() {
    let (program, words) = (c("full_speed", &[]), ["2", "5000000"]);
    for (group, limit) in limited_groups() {
        // It enters the group before its work.
        let enter = "echo $$ >\"$0\"; exec \"$@\"";
        let first = [
            "-c".into(),
            enter.into(),
            group.0.join("cgroup.procs").into(),
        ];
        let words = words.iter().map(OsString::from);
        let words = first
            .into_iter()
            .chain([program.path.clone().into()])
            .chain(words);
        let case = Case::new(Program::installed("/bin/sh")).arguments(words);
        std::fs::write(group.0.join(limit), "64M").unwrap();
        assert!(case.unchanged().report.calls("leaf") > 0);
        std::fs::write(group.0.join(limit), "2M").unwrap();
        let said = case.unchanged().said;
        let refused = "the limit of its control group leaves 1.";
        assert!(said.contains(refused), "{said}");
    }
}

/// The kernel kills a process of a group whose memory is used up: a buffer takes a small part of what is left.
#[test]
fn a_process_whose_memory_is_limited_by_its_control_group() {
    const MIB: u64 = 1 << 20;
    for (group, file) in limited_groups() {
        let used = match file {
            "memory.max" => "memory.current",
            _ => "memory.usage_in_bytes",
        };
        let leave = |bytes: u64| {
            let limit = group.number(used) + bytes;
            std::fs::write(group.0.join(file), limit.to_string()).unwrap();
        };
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        // The whole buffer of a flight recorder is used soon.
        let case = Case::new(c("phases", &[]))
            .arguments(["busy"])
            .options(["--flight", "--buffer", "256M"]);
        let mut program = case.untraced_start().spawn();
        program.wait_for(|text| text.contains("phase 0\n"));
        group.have(program.id());

        leave(1 << 20);
        let process = program.id().to_string();
        let refused = Start::new([nopal().to_str().unwrap(), "attach", &process]).run("");
        assert_eq!(refused.end, End::Code(1), "{}", refused.stderr);
        let why = "the limit of its control group leaves";
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
        assert_nothing_left(program.id());

        leave(64 * MIB);
        let mut stdin = program.stdin();
        let mut tool = case.attach(program.id(), &trace);
        std::thread::sleep(Duration::from_secs(2));
        assert!(group.number(used) < 32 * MIB, "{}", group.number(used));
        stdin.write_all(b"on\n").unwrap();
        program.wait_for(|text| text.contains("phase 1\n"));
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let told = "instead of 256 MiB: a memory limit of its process allows no more";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
    }
}

/// Its only thread is in 32-bit code nearly all the time, also when it makes nopal's calls.
#[test]
fn a_thread_in_32_bit_code() {
    Case::new(c("narrow", &["-no-pie"])).check_come_and_go();
}
