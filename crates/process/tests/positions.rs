//! Text that changes under a process: the places to which its threads go, and the words on its stacks.

mod common;

use std::ops::Range;
use std::time::Duration;

use common::{Running, compile, eventually};
use nopal_process::{Memory, Search, Stopped, status};

const PATIENCE: Duration = Duration::from_secs(100);

/// A window, and where its copy begins.
fn places(running: &mut Running) -> (Range<u64>, u64) {
    let line = running.line();
    let address = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    match *line.split(' ').map(address).collect::<Vec<_>>() {
        [start, end, copy] => (start..end, copy),
        _ => panic!("{line}"),
    }
}

#[test]
fn threads_in_a_window_go_on_in_its_copy() {
    let program = compile("windows");
    for how in ["read", "spin"] {
        let mut running = Running::start(&program, &[how]);
        let (window, copy) = places(&mut running);
        let pid = running.pid();
        if how == "read" {
            eventually("in the call", || status(pid).unwrap().state == 'S');
        } else {
            assert_eq!(running.line(), "ready");
        }
        for _ in 0..100 {
            let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
            let inside = stopped.move_threads(std::slice::from_ref(&window), |address| {
                assert!(window.start < address && address <= window.end);
                Some(address - window.start + copy)
            });
            assert_eq!(inside.unwrap(), []);
            // A thread that came back would be killed; the first byte is where a jump would be.
            let trap = vec![0xcc; (window.end - window.start) as usize];
            Memory::open(pid)
                .unwrap()
                .write(window.start, &trap)
                .unwrap();
            assert!(stopped.detach_all().is_empty());
        }
        running.tell(".");
        assert_eq!(running.line(), "2", "{how}");
    }
}

#[test]
fn a_window_whose_threads_have_nowhere_to_go_is_told() {
    let program = compile("windows");
    for how in ["read", "spin"] {
        let mut running = Running::start(&program, &[how]);
        let (window, copy) = places(&mut running);
        let pid = running.pid();
        if how == "read" {
            eventually("in the call", || status(pid).unwrap().state == 'S');
        } else {
            assert_eq!(running.line(), "ready");
        }
        let windows = [0x10..0x20, window.clone(), copy + 0x1000..copy + 0x2000];
        let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
        assert_eq!(stopped.move_threads(&windows, |_| None).unwrap(), [1]);
        if how == "read" {
            // A call that may be repeated must be repeated by a system call.
            let nowhere = stopped.move_threads(&windows, |_| Some(copy));
            assert_eq!(nowhere.unwrap(), [1]);
        }
        drop(stopped);
        running.tell(".");
        assert_eq!(running.line(), "1", "{how}");
    }
}

fn search(pid: i32, window: &Range<u64>, elsewhere: u64) -> Search {
    let stopped = Stopped::stop(pid, PATIENCE).unwrap();
    stopped
        .search_stacks(
            &[0x1000_0010..0x1000_0020, window.start + 1..window.end],
            elsewhere,
        )
        .unwrap()
}

#[test]
fn what_a_handler_interrupted_is_found() {
    let program = compile("windows");
    // Nobody can tell whether a handler's own stack is in use: words left there count where everything is searched.
    for (how, on_stacks, anywhere) in [
        ("spin", 0, 0),
        ("handler", 1, 1),
        ("shared", 1, 1),
        ("coroutine", 0, 1),
        ("over", 0, 1),
    ] {
        let mut running = Running::start(&program, &[how]);
        let (window, _) = places(&mut running);
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        let found = search(pid, &window, 0);
        assert!(found.unread > 0);
        assert_eq!(found.found.len(), on_stacks, "{how} {found:x?}");
        let found = search(pid, &window, u64::MAX);
        assert!(found.unread == 0 && !found.hidden);
        assert_eq!(found.found.len(), anywhere, "{how} {found:x?}");
        running.tell(".");
        assert!(!running.line().is_empty());
    }
}

/// Where the kernel has no memory that other processes cannot read, the stack is shared memory.
#[test]
fn what_a_handler_interrupted_may_be_hidden() {
    // SAFETY: makes a file.
    let is_secret = unsafe { libc::syscall(libc::SYS_memfd_secret, 0) } >= 0;
    let mut running = Running::start(&compile("windows"), &["secret"]);
    let (window, _) = places(&mut running);
    assert_eq!(running.line(), "ready");
    let found = search(running.pid(), &window, 0);
    assert_eq!(found.hidden, is_secret, "{found:x?}");
    assert_eq!(found.found.len(), usize::from(!is_secret), "{found:x?}");
    running.tell(".");
    assert!(!running.line().is_empty());
}
