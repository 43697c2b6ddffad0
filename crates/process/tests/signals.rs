//! Signals that come while a process is held.

mod common;

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Program, Running, compile, eventually};
use nopal_process::{
    Ending, Event, Options, Stop, Stopped, Thread, find_system_call_gadget, status,
};

const PATIENCE: Duration = Duration::from_secs(100);

fn start(program: &Program, how: &str) -> Running {
    let mut running = Running::start(program, &[how]);
    assert_eq!(running.line(), "ready");
    running
}

fn queue(pid: i32, number: i32) {
    let value = libc::sigval {
        sival_ptr: ptr::without_provenance_mut(number as usize),
    };
    // A user may have so many waiting, which a process that gets no processor does not take.
    eventually("there is room for a signal", || {
        let queued = unsafe { libc::sigqueue(pid, libc::SIGRTMIN(), value) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert!(queued == 0 || error == Some(libc::EAGAIN), "{error:?}");
        queued == 0
    });
}

fn numbers(range: std::ops::Range<i32>, others: i32) -> String {
    let numbers = range.map(|number| format!("{number} ")).collect::<String>();
    format!("{numbers}and {others} others")
}

fn call_from_every_thread(stopped: &mut Stopped) {
    let gadget = find_system_call_gadget(stopped.pid()).unwrap();
    let pid = i64::from(stopped.pid());
    for thread in stopped.threads_mut() {
        let result = thread
            .remote_system_call(gadget, libc::SYS_getpid, [0; 6])
            .unwrap();
        assert_eq!(result, pid);
        assert_eq!(thread.stop(), Some(Stop::Interrupted));
    }
}

#[test]
fn signals_sent_during_a_stop_arrive_once() {
    let program = compile("signals");
    for how in ["wait", "spin", "threads"] {
        let mut running = start(&program, how);
        for round in 0..10 {
            let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
            for number in 0..5 {
                queue(running.pid(), round * 10 + number);
            }
            running.signal(libc::SIGUSR1);
            running.signal(libc::SIGSEGV);
            running.signal(libc::SIGTRAP);
            running.signal(libc::SIGWINCH);
            call_from_every_thread(&mut stopped);
            for number in 5..10 {
                queue(running.pid(), round * 10 + number);
            }
            assert!(stopped.detach_all().is_empty());
            // A plain signal that is pending already is not queued again.
            let pid = running.pid();
            eventually("delivered", || pending(pid) == 0);
        }
        running.tell(".");
        assert_eq!(running.line(), numbers(0..100, 30), "{how}");
    }
}

/// The number of queued signals of the process' user cannot tell; the sets of pending ones can.
fn pending(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let sets = text
        .lines()
        .filter(|line| line.starts_with("SigPnd") || line.starts_with("ShdPnd"));
    sets.map(|line| u64::from_str_radix(line[7..].trim(), 16).unwrap())
        .sum()
}

#[test]
fn signals_sent_at_any_moment_arrive_once_and_in_order() {
    let program = compile("signals");
    let mut running = start(&program, "wait");
    let pid = running.pid();
    let enough = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !enough.load(Ordering::Relaxed) && sent < 90_000 {
                queue(pid, sent);
                sent += 1;
                std::thread::sleep(Duration::from_micros(u64::from(sent as u32 % 50)));
            }
            sent
        });
        for _ in 0..200 {
            let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
            call_from_every_thread(&mut stopped);
            assert!(stopped.detach_all().is_empty());
        }
        enough.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    assert!(sent > 0);
    eventually("delivered", || pending(pid) == 0);
    running.tell(".");
    assert_eq!(running.line(), numbers(0..sent, 0));
}

/// A wait that was made to be repeated must nevertheless end if a signal came for which there is a handler.
#[test]
fn a_signal_during_a_stop_ends_an_atomic_wait() {
    let program = compile("signals");
    for remote in [false, true] {
        let mut running = start(&program, "pwait");
        for _ in 0..20 {
            let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
            if remote {
                call_from_every_thread(&mut stopped);
            }
            running.signal(libc::SIGWINCH);
            running.signal(libc::SIGUSR1);
            drop(stopped);
            assert_eq!(running.line(), "woken");
        }
        running.tell(".");
        assert_eq!(running.line(), numbers(0..0, 20));
    }
}

#[test]
fn a_stopped_process_stays_stopped() {
    let program = compile("signals");
    for how in ["wait", "spin", "threads"] {
        let mut running = start(&program, how);
        let pid = running.pid();
        running.signal(libc::SIGSTOP);
        eventually("stopped", || status(pid).unwrap().state == 'T');
        for _ in 0..10 {
            let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
            let gadget = find_system_call_gadget(pid).unwrap();
            for thread in stopped.threads_mut() {
                assert_eq!(thread.stop(), Some(Stop::Group(libc::SIGSTOP)));
                thread
                    .remote_system_call(gadget, libc::SYS_getpid, [0; 6])
                    .unwrap();
                assert_eq!(thread.stop(), Some(Stop::Group(libc::SIGSTOP)));
            }
            drop(stopped);
            eventually("stopped again", || status(pid).unwrap().state == 'T');
        }
        queue(pid, 0);
        running.signal(libc::SIGCONT);
        eventually("continued", || pending(pid) == 0);
        running.tell(".");
        assert_eq!(running.line(), numbers(0..1, 0));
    }
}

#[test]
fn a_process_stopped_while_held_stops() {
    let program = compile("signals");
    for how in ["wait", "spin", "threads"] {
        for remote in [false, true] {
            let mut running = start(&program, how);
            let pid = running.pid();
            let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
            running.signal(libc::SIGSTOP);
            if remote {
                let gadget = find_system_call_gadget(pid).unwrap();
                let thread = &mut stopped.threads_mut()[0];
                let result = thread.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
                assert_eq!(result.unwrap(), i64::from(pid));
                assert_eq!(thread.stop(), Some(Stop::Group(libc::SIGSTOP)));
            }
            drop(stopped);
            eventually("stopped", || status(pid).unwrap().state == 'T');
            running.signal(libc::SIGCONT);
            running.tell(".");
            assert_eq!(running.line(), numbers(0..0, 0));
        }
    }
}

#[test]
fn a_process_continued_while_held_goes_on() {
    let program = compile("signals");
    let mut running = start(&program, "threads");
    let pid = running.pid();
    running.signal(libc::SIGSTOP);
    eventually("stopped", || status(pid).unwrap().state == 'T');
    let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
    running.signal(libc::SIGCONT);
    call_from_every_thread(&mut stopped);
    drop(stopped);
    running.tell(".");
    assert_eq!(running.line(), numbers(0..0, 0));
}

#[test]
fn a_process_killed_while_held_ends() {
    let program = compile("signals");
    let mut running = start(&program, "threads");
    let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
    let gadget = find_system_call_gadget(running.pid()).unwrap();
    running.signal(libc::SIGKILL);
    eventually("dead", || !nopal_process::alive(stopped.pid()));
    let call = stopped.threads_mut()[0].remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
    assert!(call.is_err());
    assert!(stopped.detach_all().is_empty());
    let status = running.child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(libc::SIGKILL)
    );
}

#[test]
fn signals_wait_while_the_kernel_is_called() {
    let program = compile("signals");
    let mut running = start(&program, "wait");
    let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
    let before = stopped.threads()[0]
        .registers()
        .unwrap()
        .instruction_pointer();
    queue(running.pid(), 0);
    running.signal(libc::SIGUSR1);
    call_from_every_thread(&mut stopped);
    assert_eq!(
        stopped.threads()[0]
            .registers()
            .unwrap()
            .instruction_pointer(),
        before
    );
    drop(stopped);
    eventually("delivered", || pending(running.pid()) == 0);
    running.tell(".");
    assert_eq!(running.line(), numbers(0..1, 1));
}

#[test]
fn one_thread_that_is_followed_stops_and_continues_with_its_process() {
    let program = compile("signals");
    let mut running = start(&program, "wait");
    let pid = running.pid();
    let mut thread = Thread::seize(pid, pid, Options::default()).unwrap();
    running.signal(libc::SIGSTOP);
    assert_eq!(
        thread.wait().unwrap(),
        Event::Stopped(Stop::Signal(libc::SIGSTOP))
    );
    thread.resume().unwrap();
    assert_eq!(
        thread.wait().unwrap(),
        Event::Stopped(Stop::Group(libc::SIGSTOP))
    );
    thread.resume().unwrap();
    running.tell(".");
    assert_eq!(
        thread
            .wait_until(Instant::now() + Duration::from_millis(20))
            .unwrap(),
        None
    );
    assert_eq!(status(pid).unwrap().state, 't');
    running.signal(libc::SIGCONT);
    assert_eq!(thread.wait().unwrap(), Event::Stopped(Stop::Interrupted));
    thread.resume().unwrap();
    assert_eq!(
        thread.wait().unwrap(),
        Event::Stopped(Stop::Signal(libc::SIGCONT))
    );
    thread.resume().unwrap();
    assert_eq!(running.line(), numbers(0..0, 0));
    assert_eq!(thread.wait().unwrap(), Event::Ended(Ending::Exited(0)));
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}
