//! Stopping whole processes.

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::{Running, compile, compile_with, eventually};
use nopal_process::{
    Event, Options, Stop, StopError, Stopped, Thread, alive, find_system_call_gadget, parent,
    release_sleepers, status, thread_alive, thread_name, thread_status, threads,
};

const PATIENCE: Duration = Duration::from_secs(100);

/// Each thread makes a system call for us.
fn all_call_for_us(stopped: &mut Stopped) {
    let pid = stopped.pid();
    let gadget = find_system_call_gadget(pid).unwrap();
    for thread in stopped.threads_mut() {
        let result = thread.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
        assert_eq!(result.unwrap(), i64::from(pid));
    }
}

#[test]
fn fifty_threads_do_not_notice_a_thousand_stops() {
    let program = compile("sleepers");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for _ in 0..1000 {
        let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        assert_eq!(stopped.threads().len(), 50);
        assert!(stopped.late().is_empty());
        for thread in stopped.threads() {
            assert_eq!(thread.stop(), Some(Stop::Interrupted));
        }
        assert!(stopped.detach_all().is_empty());
        assert_eq!(status(running.pid()).unwrap().tracer, 0);
    }
    running.tell(".");
    assert_eq!(running.line(), "0 complaints, spinning");
}

#[test]
fn calls_with_timeouts_neither_fail_nor_end_early_under_a_thousand_stops() {
    let program = compile("timeouts");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for round in 0..1000 {
        let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        // Children that are waited for are no threads; those of the kernel's calls are all here.
        assert!(stopped.threads().len() >= 34);
        if round % 3 == 0 {
            all_call_for_us(&mut stopped);
        }
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_micros(round * 977 % 3000));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 complaints about 34 calls");
}

/// Timeouts that begin again with each stop would never be over.
#[test]
fn calls_with_timeouts_end_while_one_stop_follows_another() {
    let program = compile_with("timeouts", &["-DIMPATIENT", "-DLENGTH=300000000"]);
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for _ in 0..200 {
        let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_millis(15));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 complaints about 34 calls");
}

/// The pages come from a thread that would stand still.
#[test]
fn threads_that_wait_for_pages_of_another_one_stop_a_hundred_times() {
    let program = compile("provided");
    let mut running = Running::start(&program, &[]);
    if running.line() == "none" {
        eprintln!("not tested: this system has no userfaultfd for us");
        return;
    }
    for round in 0..100 {
        let mut stopped = Stopped::stop(running.pid(), Duration::from_secs(10)).unwrap();
        assert_eq!(stopped.threads().len(), 5, "round {round}");
        assert!(stopped.late().is_empty());
        if round % 3 == 0 {
            all_call_for_us(&mut stopped);
        }
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_micros(round * 977 % 3000));
    }
    // Also where that thread is the one that is held.
    for others in 0..20 {
        let mut one = Stopped::stop_one(running.pid(), others, PATIENCE).unwrap();
        let held = one.keep_one().unwrap();
        let rest = Stopped::stop_others(held, true, Duration::from_secs(10)).unwrap();
        assert_eq!(rest.threads().len(), 4, "beside {others}");
        assert!(rest.late().is_empty());
    }
    running.tell(".");
    assert_eq!(running.line(), "0 wrong");
}

#[test]
fn what_was_submitted_is_waited_for_under_two_hundred_stops() {
    let program = compile("submitting");
    let mut running = Running::start(&program, &[]);
    let line = running.line();
    if line == "no ring" {
        return;
    }
    assert_eq!(line, "ready");
    for round in 0..200 {
        let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        if round % 3 == 0 {
            all_call_for_us(&mut stopped);
        }
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_micros(round * 977 % 3000));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 early");
}

/// An ignored signal is thrown away, but not if the thread that it is sent to is traced: then another one wakes.
#[test]
fn ignored_signals_wake_nobody() {
    let program = compile("children");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for round in 0..1000 {
        let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_micros(round * 977 % 1000));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 failed");
}

/// A parent that waits for its child stops only when that goes on, and may end at once.
#[test]
fn ignored_signals_of_children_that_are_waited_for_wake_nobody() {
    let program = compile_with("children", &["-DVFORK"]);
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for round in 0..2000 {
        let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_micros(round * 977 % 1000));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 failed");
}

/// Until the last of many threads is traced, those that are traced already may stand still at their signals.
#[test]
fn ignored_signals_wake_nobody_in_a_crowd() {
    let program = compile_with("children", &["-DCROWD"]);
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for round in 0..100 {
        let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        assert!(stopped.detach_all().is_empty());
        std::thread::sleep(Duration::from_micros(round * 977 % 1000));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 failed");
}

#[test]
fn one_of_fifty_threads_stands_still_and_the_others_are_left_alone() {
    let program = compile("sleepers");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let mut held = HashSet::new();
    for others in 0..100 {
        let mut stopped = Stopped::stop_one(running.pid(), others, PATIENCE).unwrap();
        let thread = stopped.keep_one().unwrap().tid();
        let traced = |tid: &i32| thread_status(running.pid(), *tid).unwrap().tracer != 0;
        let mut all = threads(running.pid()).unwrap();
        all.retain(traced);
        assert_eq!(all, [thread]);
        // Signals for the process are sent to its first thread.
        assert_eq!(thread == running.pid(), others % 50 == 49, "{others}");
        held.insert(thread);
    }
    assert_eq!(held.len(), 50);
    running.tell(".");
    assert_eq!(running.line(), "0 complaints, spinning");
}

#[test]
fn the_others_stand_still_beside_one_that_is_held() {
    let program = compile("sleepers");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for others in 0..100 {
        let mut one = Stopped::stop_one(running.pid(), others, PATIENCE).unwrap();
        let held = one.keep_one().unwrap();
        let rest = Stopped::stop_others(held, false, PATIENCE).unwrap();
        assert_eq!(rest.threads().len(), 49);
        assert!(rest.late().is_empty());
        assert!(rest.threads().iter().all(|it| it.tid() != held.tid()));
        drop(rest);
        assert_eq!(held.stop(), Some(Stop::Interrupted));
    }
    running.tell(".");
    assert_eq!(running.line(), "0 complaints, spinning");
}

#[test]
fn dropping_lets_the_process_go() {
    let program = compile("sleepers");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    drop(Stopped::stop(running.pid(), PATIENCE).unwrap());
    for tid in threads(running.pid()).unwrap() {
        assert_eq!(thread_status(running.pid(), tid).unwrap().tracer, 0);
    }
    running.tell(".");
    assert_eq!(running.line(), "0 complaints, spinning");
}

#[test]
fn threads_that_come_and_go_are_all_found() {
    let program = compile("churn");
    for how in ["churn", "orphan"] {
        let mut running = Running::start(&program, &[how]);
        assert_eq!(running.line(), "ready");
        if how == "orphan" {
            // One that ends while it is being stopped is handed back.
            let first = || thread_status(running.pid(), running.pid()).unwrap();
            eventually("the end of the first", || first().state == 'Z');
        }
        for _ in 0..100 {
            let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
            let mut held = stopped
                .threads()
                .iter()
                .map(Thread::tid)
                .collect::<Vec<_>>();
            held.sort_unstable();
            let mut found = threads(running.pid()).unwrap();
            found.retain(|&tid| thread_alive(running.pid(), tid));
            assert_eq!(held, found);
            assert!(held.len() >= 4);
            assert!(stopped.detach_all().is_empty());
        }
        assert!(alive(running.pid()));
    }
}

#[test]
fn a_process_that_executes_survives() {
    let program = compile("churn");
    let mut running = Running::start(&program, &["execute"]);
    for _ in 0..200 {
        match Stopped::stop(running.pid(), PATIENCE) {
            Ok(stopped) => assert!(stopped.detach_all().is_empty()),
            Err(error) => assert_eq!(
                error.downcast_ref(),
                Some(&StopError::Executes),
                "{error:#}"
            ),
        }
        assert_eq!(running.line(), "ready");
    }
}

/// The thread that executes waits in the kernel until the others are gone, which are held.
#[test]
fn a_process_that_executes_while_one_thread_runs_survives() {
    let program = compile("churn");
    let mut running = Running::start(&program, &["execute"]);
    let mut executed = 0;
    while executed < 20 {
        assert_eq!(running.line(), "ready");
        let Ok(mut stopped) = Stopped::stop(running.pid(), PATIENCE) else {
            continue;
        };
        let mut goes_on = true;
        while goes_on {
            for thread in (0..stopped.threads().len()).rev() {
                match stopped.run_for_a_moment(thread) {
                    Ok(event) => goes_on &= matches!(event, Some(Event::Stopped(_))),
                    Err(error) => {
                        let expected = Some(&StopError::Executes);
                        assert_eq!(error.downcast_ref(), expected, "{error:#}");
                        (goes_on, executed) = (false, executed + 1);
                    }
                }
                if !goes_on {
                    break;
                }
            }
        }
        assert!(stopped.detach_all().is_empty());
    }
    assert_eq!(running.line(), "ready");
}

#[test]
fn a_thread_that_ends_while_it_runs_for_a_moment_is_not_held_any_more() {
    let program = compile("churn");
    let mut running = Running::start(&program, &["stay"]);
    assert_eq!(running.line(), "ready");
    let mut ended = 0;
    while ended < 3 {
        let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        for thread in (0..stopped.threads().len()).rev() {
            let held = stopped.threads().len();
            if let Some(Event::Ended(_)) = stopped.run_for_a_moment(thread).unwrap() {
                ended += 1;
                assert_eq!(stopped.threads().len(), held - 1);
                break;
            }
        }
        assert_eq!(stopped.positions().unwrap().len(), stopped.threads().len());
        assert!(stopped.detach_all().is_empty());
    }
    assert!(alive(running.pid()));
}

#[test]
fn a_child_in_the_memory_of_a_held_parent_stands_still() {
    let program = compile("parent");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    eventually("held", || status(pid).unwrap().state == 'D');
    let stopped = Stopped::stop(pid, Duration::from_secs(1000)).unwrap();
    let [child] = stopped.threads() else { panic!() };
    assert_eq!(parent(child.pid()).unwrap(), pid);
    let child = child.pid();
    assert_eq!(status(child).unwrap().state, 't');
    assert_eq!(stopped.late()[0].tid(), pid);
    // Both wait in the kernel; the parent says where without being stopped.
    let positions = stopped.positions().unwrap();
    assert_eq!(positions.len(), 2);
    assert!(
        positions
            .iter()
            .all(|position| position.stack != 0 && position.instruction != 0)
    );
    let mut left = stopped.detach_all();
    assert_eq!(left.len(), 1);
    assert_eq!(status(child).unwrap().tracer, 0);
    running.tell(".");
    assert_eq!(left[0].wait().unwrap(), Event::Stopped(Stop::Interrupted));
    assert!(left.remove(0).detach().is_ok());
    assert_eq!(running.line(), "child said 7");
}

/// It waits for a child when it is to be let go, and stops behind that wait.
#[test]
fn a_thread_that_is_left_while_it_does_not_stop_goes_on_later() {
    let program = compile("parent");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    eventually("held", || status(pid).unwrap().state == 'D');
    for _ in 0..2 {
        let stopped = Stopped::stop(pid, PATIENCE).unwrap();
        assert_eq!(stopped.late()[0].tid(), pid);
        drop(stopped);
        assert!(release_sleepers());
    }
    running.tell(".");
    eventually("let go", || !release_sleepers());
    assert_eq!(status(pid).unwrap().tracer, 0);
    assert_eq!(running.line(), "child said 7");
}

#[test]
fn a_process_that_creates_others_by_vfork_goes_on() {
    let program = compile("parent");
    let mut running = Running::start(&program, &["spawn"]);
    assert_eq!(running.line(), "ready");
    for _ in 0..200 {
        let stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
        drop(stopped);
    }
    running.tell(".");
    assert_eq!(running.line(), "all children ended well");
}

/// A thread that cannot be detached is left by the end of the OS thread that holds it.
#[test]
fn the_end_of_the_tracing_thread_lets_a_late_thread_go() {
    let program = compile("parent");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    eventually("held", || status(pid).unwrap().state == 'D');
    let hold = move || drop(Stopped::stop(pid, Duration::from_millis(20)).unwrap());
    std::thread::spawn(hold).join().unwrap();
    running.tell(".");
    assert_eq!(running.line(), "child said 7");
}

#[test]
fn failures_are_told_apart() {
    let program = compile("parent");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    let (report, tracer) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let _held = Thread::seize(pid, pid, Options::default()).unwrap();
        report.send(unsafe { libc::gettid() }).unwrap();
        ended.recv().unwrap_err();
    });
    let tracer = tracer.recv().unwrap();
    let own = std::process::id() as i32;
    let failure = Stopped::stop(pid, PATIENCE).unwrap_err();
    assert_eq!(
        failure.downcast_ref(),
        Some(&StopError::TracedBy {
            tracer,
            name: thread_name(own, tracer).unwrap()
        })
    );
    drop(end);
    running.child.kill().unwrap();
    holder.join().unwrap();
    eventually("dead", || !alive(pid));
    let failure = Stopped::stop(pid, PATIENCE).unwrap_err();
    assert_eq!(
        failure.downcast_ref(),
        Some(&StopError::Ended),
        "{failure:#}"
    );
    running.child.wait().unwrap();
    let failure = Stopped::stop(pid, PATIENCE).unwrap_err();
    assert_eq!(failure.downcast_ref(), Some(&StopError::Ended));
}

/// A stop wakes a thread that has written a part, and the kernel then returns the number of those bytes.
#[test]
fn transfers_are_whole_under_a_thousand_stops() {
    for (flags, stops) in [(&["-lutil"][..], 1000), (&["-lutil", "-DSIGNALS"], 300)] {
        let program = compile_with("transfers", flags);
        let mut running = Running::start(&program, &[]);
        assert_eq!(running.line(), "ready");
        for round in 0..stops {
            let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
            if round % 3 == 0 {
                all_call_for_us(&mut stopped);
            }
            assert!(stopped.detach_all().is_empty());
            std::thread::sleep(Duration::from_micros(round * 977 % 3000));
        }
        running.tell(".");
        assert_eq!(running.line(), "0 cut, 0 wrong, many calls");
    }
}

/// A handler ends a transfer, also where it runs while the thread stands still.
#[test]
fn signals_end_transfers() {
    let program = compile("interrupted");
    for stops in [1, 2, 5] {
        let mut running = Running::start(&program, &[]);
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        eventually("the pipe is full", || {
            let wait = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
            wait.is_ok_and(|wait| wait.starts_with(&format!("{} ", libc::SYS_write)))
        });
        for _ in 1..stops {
            assert!(
                Stopped::stop(pid, PATIENCE)
                    .unwrap()
                    .detach_all()
                    .is_empty()
            );
        }
        let stopped = Stopped::stop(pid, PATIENCE).unwrap();
        running.signal(libc::SIGUSR1);
        assert!(stopped.detach_all().is_empty());
        assert_eq!(running.line(), "wrote 65536 of 1048576, handled 1");
    }
}

/// An error amid a transfer is not lost, and no signal comes that would not have come.
#[test]
fn the_other_end_of_a_transfer_is_closed() {
    let program = compile("closed");
    // A sender is told of what was not read, or that nobody reads.
    let (reset, broken) = ("-1, Connection reset by peer", "-1, Broken pipe");
    for (way, call, ends) in [
        ("send", libc::SYS_sendto, &[reset, broken][..]),
        ("recv", libc::SYS_recvfrom, &[reset]),
    ] {
        let mut running = Running::start(&program, &[way]);
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        eventually("the call waits", || {
            let wait = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
            wait.is_ok_and(|wait| wait.starts_with(&format!("{call} ")))
        });
        for _ in 0..3 {
            let stopped = Stopped::stop(pid, PATIENCE).unwrap();
            assert!(stopped.detach_all().is_empty());
        }
        running.tell(".");
        let line = running.line();
        assert!(ends.contains(&line.as_str()), "{way}: {line}");
    }
}

#[test]
fn a_process_that_traces_itself_is_stopped_when_it_has_done_so() {
    let program = compile("traces_itself");
    let mut running = Running::start(&program, &[]);
    let pid = running.pid();
    for _ in 0..3 {
        assert_eq!(running.line(), "ready");
        running.tell(".");
        let tracer = || status(pid).unwrap().tracer;
        eventually("it traces itself", || tracer() != 0);
        let stopped = Stopped::stop(pid, PATIENCE).unwrap();
        let of_process = |thread: &&Thread| thread.pid() == pid;
        assert_eq!(stopped.threads().iter().filter(of_process).count(), 3);
        drop(stopped);
        assert_eq!(running.line(), "0 failed");
    }
}

#[test]
fn a_process_does_not_trace_itself_while_a_thread_is_held() {
    let program = compile("traces_itself");
    let mut running = Running::start(&program, &[]);
    let pid = running.pid();
    for together in [false, true] {
        assert_eq!(running.line(), "ready");
        let mut stopped = match together {
            true => Stopped::stop(pid, PATIENCE).unwrap(),
            false => Stopped::stop_one(pid, 0, PATIENCE).unwrap(),
        };
        stopped.stay_together(together);
        let held = stopped.keep_one().unwrap();
        let gadget = find_system_call_gadget(pid).unwrap();
        let result = held.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
        assert_eq!(result.unwrap(), i64::from(pid));
        let traced = |tid: &i32| thread_status(pid, *tid).unwrap().tracer != 0;
        let mut all = threads(pid).unwrap();
        all.retain(traced);
        assert_eq!(all.len(), if together { 3 } else { 1 });
        running.tell(".");
        std::thread::sleep(Duration::from_millis(100));
        drop(stopped);
        assert_eq!(running.line(), "0 failed");
    }
}
