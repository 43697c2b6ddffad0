//! Facts from `/proc`.

mod common;

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::parent_id;
use std::process::{Command, Stdio};

use common::{Running, compile, eventually};
use nopal_process::{
    Ending, ExitWatch, Stopped, alive, arguments, auxiliary, executable, has_memory, name, parent,
    start_time, status, thread_alive, thread_name, threads,
};

fn own() -> i32 {
    std::process::id() as i32
}

#[test]
fn about_this_process() {
    assert_eq!(parent(own()).unwrap(), parent_id() as i32);
    assert_eq!(executable(own()).unwrap(), std::env::current_exe().unwrap());
    assert_eq!(
        arguments(own()).unwrap(),
        std::env::args_os().collect::<Vec<_>>()
    );
    assert!(alive(own()));
    let status = status(own()).unwrap();
    assert_eq!((status.process, status.tracer), (own(), 0));
    assert!(!status.is_dead());
    let users = unsafe { (libc::getuid(), libc::geteuid()) };
    assert_eq!((status.users[0], status.users[1]), users);
    assert_eq!(status.namespace_ids[0], own());
    assert!(start_time(own()).unwrap() >= start_time(parent(own()).unwrap()).unwrap());
}

#[test]
fn about_threads() {
    let inner = std::thread::Builder::new().name("odd) R (name".to_owned());
    let check = || {
        let tid = unsafe { libc::gettid() };
        assert!(threads(own()).unwrap().contains(&tid));
        assert!(thread_alive(own(), tid));
        assert_eq!(thread_name(own(), tid).unwrap(), "odd) R (name");
        tid
    };
    let tid = inner.spawn(check).unwrap().join().unwrap();
    eventually("gone", || !thread_alive(own(), tid));
}

#[test]
fn auxiliary_values_are_the_kernels() {
    let found = auxiliary(own()).unwrap();
    let value = |kind| Some(unsafe { libc::getauxval(kind) });
    assert_eq!(found.entry, value(libc::AT_ENTRY));
    assert_eq!(found.program_headers, value(libc::AT_PHDR));
    assert_eq!(found.program_header_count, value(libc::AT_PHNUM));
    assert_eq!(found.loader_base, value(libc::AT_BASE));
    assert_eq!(found.vdso, value(libc::AT_SYSINFO_EHDR));
}

#[test]
fn a_zombie_is_not_alive() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id() as i32;
    assert!(has_memory(own()));
    eventually("ended", || !alive(pid));
    assert!(!has_memory(pid));
    assert!(status(pid).unwrap().is_dead());
    assert_eq!(arguments(pid).unwrap(), Vec::<std::ffi::OsString>::new());
    child.wait().unwrap();
    status(pid).unwrap_err();
    name(pid).unwrap_err();
    ExitWatch::new(pid).unwrap_err();
}

#[test]
fn a_process_whose_first_thread_has_ended_is_alive_and_can_be_looked_at() {
    let program = compile("churn");
    let mut running = Running::start(&program, &["orphan"]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    eventually("orphaned", || !thread_alive(pid, pid));
    assert!(alive(pid) && has_memory(pid));
    assert_eq!(executable(pid).unwrap(), program.path);
    assert_eq!(arguments(pid).unwrap().len(), 2);
    assert!(auxiliary(pid).unwrap().entry.is_some());
    let modules = nopal_process::modules(pid).unwrap();
    assert!(modules.iter().any(|module| module.path == program.path));
    let stopped = Stopped::stop(pid, std::time::Duration::from_secs(100)).unwrap();
    let gadget = nopal_process::find_system_call_gadget(pid).unwrap();
    nopal_process::Memory::open(pid)
        .unwrap()
        .read(gadget.call, &mut [0; 2])
        .unwrap();
    drop(stopped);
}

#[test]
fn ends_of_children_and_of_others() {
    for (script, ending) in [
        ("exit 3", Ending::Exited(3)),
        (
            "kill -TERM $$",
            Ending::Killed {
                signal: libc::SIGTERM,
                core: false,
            },
        ),
    ] {
        // A child of ours, which says when, and one of a shell.
        let wrapped = format!("read x; {script}");
        let mut child = Command::new("sh");
        let mut child = child
            .args(["-c", &wrapped])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut watch = ExitWatch::new(child.id() as i32).unwrap();
        assert_eq!(watch.poll().unwrap(), None);
        assert!(!readable(&watch));
        drop(child.stdin.take());
        eventually("readable", || readable(&watch));
        assert_eq!(watch.poll().unwrap(), Some(ending));
        assert_eq!(watch.poll().unwrap(), Some(ending));
        assert!(!alive(watch.pid()));
        // It has been waited for.
        child.wait().unwrap_err();

        for waits in [true, false] {
            let end = if waits {
                "wait"
            } else {
                "exec tail -f /dev/null"
            };
            // The shell gives /dev/null to a command that it runs in the background.
            let outer = format!("exec 3<&0; sh -c '{wrapped}' <&3 & echo $!; {end}");
            let mut parent = Command::new("sh");
            let parent = parent
                .args(["-c", &outer])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut parent = parent.spawn().unwrap();
            let mut said = String::new();
            let mut out = BufReader::new(parent.stdout.take().unwrap());
            out.read_line(&mut said).unwrap();
            let mut watch = ExitWatch::new(said.trim().parse().unwrap()).unwrap();
            assert_eq!(watch.poll().unwrap(), None);
            drop(parent.stdin.take());
            let found = watch.wait().unwrap();
            let expected = match kernel_tells() {
                true => ending,
                false => Ending::Unknown,
            };
            assert_eq!(found, expected, "{wrapped}, waits: {waits}");
            // One that does not wait lives on.
            let _ = parent.kill();
            parent.wait().unwrap();
        }
    }
}

/// The status is that of the thread that ended the process, not that of the first, which ended with 0.
#[test]
fn the_end_of_a_process_whose_first_thread_has_ended() {
    let program = compile("churn");
    let path = program.path.display();
    for waits in [true, false] {
        let end = if waits {
            "wait"
        } else {
            "exec tail -f /dev/null"
        };
        let script = format!("exec 3<&0; {path} orphan ends <&3 >/dev/null & echo $!; {end}");
        let mut shell = Command::new("sh");
        let shell = shell
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(shell.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        let pid = said.trim().parse().unwrap();
        eventually("orphaned", || {
            name(pid).is_ok_and(|name| name == "churn") && !thread_alive(pid, pid)
        });
        let mut watch = ExitWatch::new(pid).unwrap();
        assert_eq!(watch.poll().unwrap(), None);
        drop(shell.stdin.take());
        let expected = match kernel_tells() {
            true => Ending::Exited(7),
            false => Ending::Unknown,
        };
        assert_eq!(watch.wait().unwrap(), expected, "waits: {waits}");
        let _ = shell.kill();
        shell.wait().unwrap();
    }
}

/// Before Linux 6.16, only the parent learns the status of the process for certain.
fn kernel_tells() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 16)
}

fn readable(watch: &ExitWatch) -> bool {
    let descriptor = std::os::fd::AsFd::as_fd(watch).as_raw_fd();
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}
