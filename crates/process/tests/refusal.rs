//! Processes that cannot be traced: the error tells each case apart, and says what to do.

mod common;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Running, compile, eventually};
use nopal_process::{
    Barrier, Options, StopError, Stopped, Thread, alive, examine, find_system_call_gadget, name,
    status,
};

const PATIENCE: Duration = Duration::from_secs(100);

/// Neither `examine` nor an attempt may succeed, and both say the same.
#[track_caller]
fn assert_refused(pid: i32, expected: &StopError, words: &str) {
    assert_eq!(examine(pid).as_ref(), Err(expected));
    let text = expected.to_string();
    assert!(text.contains(words), "{text}");
}

#[track_caller]
fn assert_not_stopped(pid: i32, expected: &StopError) {
    let error = Stopped::stop(pid, PATIENCE).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(expected), "{error:#}");
}

#[test]
fn an_ordinary_process_is_not_refused() {
    let program = compile("refused");
    let mut running = Running::start(&program, &[""]);
    assert_eq!(running.line(), "ready");
    let examined = examine(running.pid()).unwrap();
    assert_eq!(examined.own_number, running.pid());
    assert!(!examined.other_files && !examined.filtered);
}

#[test]
fn what_is_no_process_is_refused() {
    let none = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let none = none.trim().parse::<i32>().unwrap();
    assert_refused(none, &StopError::Ended, "no such process");
    assert_not_stopped(none, &StopError::Ended);

    let own = std::process::id() as i32;
    assert_refused(own, &StopError::Itself, "itself");

    let program = compile("refused");
    let mut running = Running::start(&program, &["thread"]);
    let thread = running.line().parse().unwrap();
    let words = running.pid().to_string();
    assert_refused(thread, &StopError::ThreadOf(running.pid()), &words);
}

#[test]
fn a_process_of_which_one_thread_is_traced_is_refused() {
    let program = compile("refused");
    let mut running = Running::start(&program, &["thread"]);
    let thread = running.line().parse().unwrap();
    let _held = Thread::seize(running.pid(), thread, Options::default()).unwrap();
    // SAFETY: a plain system call.
    let tracer = unsafe { libc::gettid() };
    let name = name(tracer).unwrap();
    let expected = StopError::TracedBy { tracer, name };
    assert_refused(running.pid(), &expected, "already traced");
}

#[test]
fn a_process_that_has_ended_is_refused() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id() as i32;
    eventually("ended", || !alive(pid));
    let parent = std::process::id() as i32;
    let zombie = StopError::Zombie {
        parent,
        name: name(parent).unwrap(),
    };
    assert_refused(pid, &zombie, &format!("parent {parent}"));
    assert_not_stopped(pid, &StopError::Ended);
    child.wait().unwrap();
    assert_refused(pid, &StopError::Ended, "no such process");
}

/// Process 2 is the kernel's, where its processes can be seen.
#[test]
fn a_thread_of_the_kernel_is_refused() {
    match name(2).as_deref() {
        Ok("kthreadd") => {
            assert_refused(2, &StopError::KernelThread, "kernel");
            assert!(Stopped::stop(2, PATIENCE).is_err());
        }
        _ => assert_ne!(examine(2), Err(StopError::KernelThread)),
    }
}

#[test]
fn a_32_bit_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("narrow");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/narrow.s");
    let built = Command::new("gcc")
        .args(["-m32", "-nostdlib", "-static", "-o"])
        .args([&path, &source])
        .status();
    assert!(built.unwrap().success());
    let mut child = Command::new(&path).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id() as i32;
    eventually("executed", || name(pid).is_ok_and(|name| name == "narrow"));
    assert_refused(pid, &StopError::ThirtyTwoBit, "32-bit");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_process_that_is_traced_is_refused() {
    let program = compile("refused");
    let mut running = Running::start(&program, &[""]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    let mut tracer = Command::new("gdb")
        .args(["-nx", "-q", "-p", &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("traced", || status(pid).unwrap().tracer != 0);
    let traced = StopError::TracedBy {
        tracer: tracer.id() as i32,
        name: "gdb".to_owned(),
    };
    assert_refused(pid, &traced, "(gdb)");
    assert_not_stopped(pid, &traced);
    drop(tracer.stdin.take());
    tracer.wait().unwrap();
    assert!(examine(pid).is_ok());
}

const NOBODY: u32 = 65534;

/// Runs with the rights of a user who has none. To the kernel, a thread has rights of its own.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = || {
            // SAFETY: changes this OS thread only.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            assert_eq!(changed, 0, "this test must run as root");
            work()
        };
        scope.spawn(run).join().unwrap()
    })
}

#[test]
fn a_process_of_another_user_is_refused() {
    let program = compile("refused");
    let mut running = Running::start(&program, &[""]);
    assert_eq!(running.line(), "ready");
    let (pid, user) = (running.pid(), 0);
    let refused = StopError::NotPermitted(Barrier::User(user));
    as_nobody(|| {
        assert_refused(pid, &refused, "user 0");
        assert_not_stopped(pid, &refused);
    });
}

#[test]
fn a_process_that_keeps_its_memory_secret_is_refused() {
    let program = compile("refused");
    std::fs::set_permissions(
        program.directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    for (how, barrier) in [("secret", Some(Barrier::NotDumpable)), ("", None)] {
        let mut child = Command::new(&program.path)
            .arg(how)
            .uid(NOBODY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, output };
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        as_nobody(|| match barrier {
            Some(barrier) => {
                let refused = StopError::NotPermitted(barrier);
                assert_refused(pid, &refused, "root");
                assert_not_stopped(pid, &refused);
            }
            // The kernel permits the tracing of a process that has the same user and no more rights.
            None => assert!(examine(pid).is_ok()),
        });
        assert!(examine(pid).is_ok());
    }
}

#[test]
fn a_process_in_namespaces_of_its_own_is_told() {
    let program = compile("refused");
    let mut child = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child"])
        .arg(&program.path)
        .arg("")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut outer = Running { child, output };
    assert_eq!(outer.line(), "ready");
    let children = format!("/proc/{0}/task/{0}/children", outer.pid());
    let children = std::fs::read_to_string(children).unwrap();
    let inner = children.trim().parse::<i32>().unwrap();
    let examined = examine(inner).unwrap();
    assert_eq!(examined.own_number, 1);
    assert!(examined.other_files);
}

#[test]
fn a_filter_can_be_suspended_by_root() {
    let program = compile("filtered");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    eventually("filtered", || status(pid).unwrap().seccomp == 2);
    assert!(examine(pid).unwrap().filtered);
    let gadget = find_system_call_gadget(pid).unwrap();
    let socket = |thread: &mut Thread| {
        let local = [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
        thread
            .remote_system_call(gadget, libc::SYS_socket, local)
            .unwrap()
    };
    let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
    let thread = &mut stopped.threads_mut()[0];
    assert_eq!(socket(thread), i64::from(-libc::EPROTO));
    thread.suspend_seccomp(true).unwrap();
    let descriptor = socket(thread);
    assert!(descriptor > 0);
    let close = [descriptor as u64, 0, 0, 0, 0, 0];
    assert_eq!(
        thread
            .remote_system_call(gadget, libc::SYS_close, close)
            .unwrap(),
        0
    );
    thread.suspend_seccomp(false).unwrap();
    assert_eq!(socket(thread), i64::from(-libc::EPROTO));
    // A suspension that is left on ends with the tracing.
    thread.suspend_seccomp(true).unwrap();
    assert!(stopped.detach_all().is_empty());
    let mut thread = Thread::seize(pid, pid, Options::default()).unwrap();
    thread.interrupt().unwrap();
    thread.settle().unwrap();
    assert_eq!(socket(&mut thread), i64::from(-libc::EPROTO));
    assert!(thread.detach().is_ok());
    running.tell(".");
    assert_eq!(running.line(), "alive");
}
