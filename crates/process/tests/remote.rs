//! Making another process call the kernel, and stepping it.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Running, compile, eventually};
use nopal_process::{
    Event, Memory, Options, Stop, Stopped, SystemCall, Thread, find_system_call_gadget, maps, name,
    release_sleepers, status,
};

const PATIENCE: Duration = Duration::from_secs(100);

#[test]
fn the_gadget_is_a_system_call_in_a_file() {
    let program = compile("sleepers");
    let running = Running::start(&program, &[]);
    eventually("running", || {
        name(running.pid()).is_ok_and(|name| name == "sleepers")
    });
    eventually("loaded", || find_system_call_gadget(running.pid()).is_ok());
    let gadget = find_system_call_gadget(running.pid()).unwrap();
    let mut bytes = [0; 2];
    Memory::open(running.pid())
        .unwrap()
        .read(gadget.call, &mut bytes)
        .unwrap();
    assert_eq!(bytes, [0x0f, 0x05]);
    let maps = maps(running.pid()).unwrap();
    let home = maps
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&gadget.call))
        .unwrap();
    assert!(home.executable && home.path.is_some());
}

#[test]
fn a_gadget_that_has_been_changed_is_not_used() {
    let program = compile("sleepers");
    let mut processes = [(); 2].map(|()| Running::start(&program, &[]));
    let [changed, other] = processes.each_mut().map(|process| {
        assert_eq!(process.line(), "ready");
        process.pid()
    });
    let before = find_system_call_gadget(changed).unwrap();
    let memory = Memory::open(changed).unwrap();
    // Nobody comes there: all sleep.
    memory.write(before.call, &[0x90, 0x90]).unwrap();
    let after = find_system_call_gadget(changed).unwrap();
    assert_ne!(after.call, before.call);
    assert!(after.is_in(&memory));
    let there = find_system_call_gadget(other).unwrap();
    assert!(there.is_in(&Memory::open(other).unwrap()));
}

/// The program, and its thread that needs another one. `None`: this system has no userfaultfd for us.
fn provides() -> Option<(Running, i32)> {
    let mut running = Running::start(&compile("provides"), &[]);
    let tid = running.line().parse();
    if tid.is_err() {
        eprintln!("not tested: this system has no userfaultfd for us");
    }
    Some((running, tid.ok()?))
}

/// The call begins only when another thread has released a page.
#[test]
fn a_call_that_waits_for_a_thread_that_stands_still_is_made() {
    let Some((running, tid)) = provides() else {
        return;
    };
    let gadget = find_system_call_gadget(running.pid()).unwrap();
    let getpid = SystemCall {
        number: libc::SYS_getpid,
        arguments: [0; 6],
        expected: None,
    };
    for _ in 0..5 {
        let mut thread = Thread::seize(running.pid(), tid, Options::default()).unwrap();
        thread.interrupt().unwrap();
        thread.settle().unwrap();
        // It is protected meanwhile.
        std::thread::sleep(Duration::from_millis(10));
        let mut lent = thread.lend(gadget);
        lent.stop_others(Duration::from_secs(2)).unwrap();
        let results = lent.calls(&[getpid; 3]).unwrap();
        assert_eq!(results, [i64::from(running.pid()); 3]);
        lent.let_others_go();
        lent.give_back().unwrap();
    }
}

/// Where that other thread does not release it, nopal gives up, and the thread goes on as it was when it can.
#[test]
fn a_call_that_cannot_be_made_is_given_up() {
    let Some((mut running, tid)) = provides() else {
        return;
    };
    let gadget = find_system_call_gadget(running.pid()).unwrap();
    let exits = SystemCall {
        number: libc::SYS_exit_group,
        arguments: [3, 0, 0, 0, 0, 0],
        expected: None,
    };
    for beside in [true, false] {
        let mut thread = Thread::seize(running.pid(), tid, Options::default()).unwrap();
        thread.interrupt().unwrap();
        thread.settle().unwrap();
        running.tell("hold\n");
        assert_eq!(running.line(), "off");
        let begun = Instant::now();
        let mut lent = thread.lend(gadget);
        if beside {
            lent.stop_others(Duration::from_secs(2)).unwrap();
        }
        let error = format!("{:#}", lent.calls(&[exits]).unwrap_err());
        assert!(error.contains("does not come"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(9));
        lent.give_back().unwrap();
        lent.let_others_go();
        drop(lent);
        drop(thread);
        running.tell("go\n");
        running.line();
        eventually("let go", || !release_sleepers());
        running.tell("turns\n");
        assert_eq!(running.line(), "on");
    }
}

/// If we are killed amid a call, a thread on a stack of whose end nothing is known could not go back. The first one gets the
/// signals of the process, and is taken all the same.
#[test]
fn calls_are_made_by_a_thread_that_can_go_back() {
    let program = compile("own_stacks");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    for others in 0..4 {
        let mut one = Stopped::stop_one(running.pid(), others, PATIENCE).unwrap();
        assert_eq!(one.keep_one().unwrap().tid(), running.pid());
    }
    let mut all = Stopped::stop(running.pid(), PATIENCE).unwrap();
    assert_eq!(all.take_one().unwrap().tid(), running.pid());
    drop(all);
    let mut all = Stopped::stop(running.pid(), PATIENCE).unwrap();
    assert_eq!(all.keep_one().unwrap().tid(), running.pid());
}

/// Others may be unloaded while a thread is in them.
#[test]
fn the_gadget_is_in_the_libc_that_stays() {
    let program = compile("copies");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let gadget = find_system_call_gadget(running.pid()).unwrap();
    running.tell("\n");
    assert_eq!(running.line(), "unloaded");
    let memory = Memory::open(running.pid()).unwrap();
    assert!(gadget.is_in(&memory), "{gadget:x?} is in no libc any more");
}

#[test]
fn every_thread_can_map_memory_and_make_files_and_notices_nothing() {
    let program = compile("sleepers");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
    let gadget = find_system_call_gadget(pid).unwrap();
    let memory = Memory::open(pid).unwrap();
    for thread in stopped.threads_mut() {
        let registers = thread.registers().unwrap();
        let extended = thread.extended_state().unwrap();
        let mask = thread.signal_mask().unwrap();
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let arguments = [0, 8192, access, flags, u64::MAX, 0];
        let page = thread
            .remote_system_call(gadget, libc::SYS_mmap, arguments)
            .unwrap();
        assert!(page > 0);
        memory.write(page as u64, b"nopal\0").unwrap();
        let arguments = [page as u64, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0];
        let file = thread
            .remote_system_call(gadget, libc::SYS_memfd_create, arguments)
            .unwrap();
        let link = fs::read_link(format!("/proc/{pid}/fd/{file}")).unwrap();
        assert_eq!(link.to_str().unwrap(), "/memfd:nopal (deleted)");
        let closed = [file as u64, 0, 0, 0, 0, 0];
        assert_eq!(
            thread
                .remote_system_call(gadget, libc::SYS_close, closed)
                .unwrap(),
            0
        );
        let again = thread
            .remote_system_call(gadget, libc::SYS_close, closed)
            .unwrap();
        assert_eq!(again, i64::from(-libc::EBADF));
        let unmap = [page as u64, 8192, 0, 0, 0, 0];
        assert_eq!(
            thread
                .remote_system_call(gadget, libc::SYS_munmap, unmap)
                .unwrap(),
            0
        );
        let call = |number, first, expected| SystemCall {
            number,
            arguments: [first, 0, 0, 0, 0, 0],
            expected,
        };
        let own = i64::from(pid);
        let bad = i64::from(-libc::EBADF);
        let id = call(libc::SYS_getpid, 0, Some(own));
        let close = call(libc::SYS_close, u64::MAX, None);
        let other = call(libc::SYS_getpid, 0, Some(own + 1));
        for (calls, results) in [
            (&[id, id, id][..], &[own, own, own][..]),
            (&[id, close, id], &[own, bad]),
            (&[id, other, id], &[own, own]),
            (&[], &[]),
        ] {
            let made = thread.remote_system_calls(gadget, calls).unwrap();
            assert_eq!(made, results);
        }
        assert_eq!(thread.stop(), Some(Stop::Interrupted));
        assert_eq!(thread.registers().unwrap().words(), registers.words());
        assert_eq!(thread.extended_state().unwrap(), extended);
        assert_eq!(thread.signal_mask().unwrap(), mask);
    }
    drop(stopped);
    running.tell(".");
    assert_eq!(running.line(), "0 complaints, spinning");
}

#[test]
fn a_restartable_sequence_is_aborted() {
    let program = compile("sequence");
    let mut running = Running::start(&program, &[]);
    let line = running.line();
    let address = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let [start, end, abort] = *line.split(' ').map(address).collect::<Vec<_>>() else {
        panic!()
    };
    let pid = running.pid();
    // Whenever it has been aborted for another reason, a byte lets it begin again.
    let mut stopped = loop {
        running.tell(".");
        let stopped = Stopped::stop(pid, PATIENCE).unwrap();
        if (start..end).contains(
            &stopped.threads()[0]
                .registers()
                .unwrap()
                .instruction_pointer(),
        ) {
            break stopped;
        }
    };
    let gadget = find_system_call_gadget(pid).unwrap();
    let thread = &mut stopped.threads_mut()[0];
    thread
        .remote_system_call(gadget, libc::SYS_getpid, [0; 6])
        .unwrap();
    assert_eq!(thread.registers().unwrap().instruction_pointer(), abort);
    drop(stopped);
    drop(running.child.stdin.take());
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn a_filter_that_refuses_does_no_harm() {
    let program = compile("filtered");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    eventually("filtered", || status(pid).unwrap().seccomp == 2);
    assert_eq!(status(pid).unwrap().seccomp_filters, Some(1));
    let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
    let gadget = find_system_call_gadget(pid).unwrap();
    let thread = &mut stopped.threads_mut()[0];
    let before = thread.registers().unwrap().words();
    for _ in 0..3 {
        let error = thread
            .remote_system_call(gadget, libc::SYS_memfd_create, [0; 6])
            .unwrap_err();
        assert!(format!("{error:#}").contains("seccomp"), "{error:#}");
        assert_eq!(thread.registers().unwrap().words(), before);
        let refused = thread
            .remote_system_call(gadget, libc::SYS_socket, [0; 6])
            .unwrap();
        assert_eq!(refused, i64::from(-libc::EPROTO));
    }
    drop(stopped);
    running.tell(".");
    assert_eq!(running.line(), "alive");
}

#[test]
fn a_program_that_takes_its_own_system_calls_is_not_harmed() {
    let program = compile("filtered");
    let mut running = Running::start(&program, &["dispatch"]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    // It may stand still anywhere as long as it gets no processor.
    eventually("system calls are dispatched", || {
        let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
        let gadget = find_system_call_gadget(pid).unwrap();
        let thread = &mut stopped.threads_mut()[0];
        let before = thread.registers().unwrap().words();
        let call = thread.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
        assert_eq!(thread.registers().unwrap().words(), before);
        call.is_err()
    });
    assert!(nopal_process::alive(pid));
}

/// With the trap flag, each instruction ends in a signal of its own.
#[test]
fn a_program_that_steps_through_itself_can_be_made_to_call() {
    let program = compile("stepping");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    let gadget = find_system_call_gadget(pid).unwrap();
    let (mut seen, mut stops) = (0, 0);
    // It may stand still anywhere as long as it gets no processor.
    eventually("stopped between two steps", || {
        let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
        let thread = &mut stopped.threads_mut()[0];
        seen += u64::from(thread.registers().unwrap().steps());
        let number = thread.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
        assert_eq!(number.unwrap(), i64::from(pid));
        stops += 1;
        stops >= 200 && seen > 0
    });
    drop(running.child.stdin.take());
    assert_eq!(running.line(), "stepped");
    assert!(running.child.wait().unwrap().success());
}

/// A fault of its own may have come before, and is not taken for a refusal.
#[test]
fn a_program_that_faults_all_the_time_can_be_made_to_call() {
    let program = compile("faults");
    for kind in ["memory", "division", "undefined", "call"] {
        let mut running = Running::start(&program, &[kind]);
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        let gadget = find_system_call_gadget(pid).unwrap();
        for _ in 0..1000 {
            let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
            let thread = &mut stopped.threads_mut()[0];
            let number = thread.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
            assert_eq!(number.unwrap(), i64::from(pid), "{kind}");
        }
        drop(running.child.stdin.take());
        assert_eq!(running.line(), "all came", "{kind}");
        assert!(running.child.wait().unwrap().success());
    }
}

#[test]
fn a_moment_is_some_instructions() {
    let program = compile("sequence");
    let mut running = Running::start(&program, &[]);
    let line = running.line();
    let address = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let start = address(line.split(' ').next().unwrap());
    let mut stopped = Stopped::stop(running.pid(), PATIENCE).unwrap();
    let thread = &mut stopped.threads_mut()[0];
    // `pause; jmp` over and over, once the sequence is no sequence to the kernel any more.
    let mut registers = thread.registers().unwrap();
    registers.set_instruction_pointer(start);
    registers.leave_call();
    thread.set_registers(&registers).unwrap();
    let gadget = find_system_call_gadget(running.pid()).unwrap();
    let abort = thread.remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
    abort.unwrap();
    thread.set_registers(&registers).unwrap();
    for _ in 0..20 {
        let event = stopped.run_for_a_moment(0).unwrap();
        assert_eq!(event, Some(Event::Stopped(Stop::Interrupted)));
        let registers = stopped.threads()[0].registers().unwrap();
        let rip = registers.instruction_pointer();
        assert!([start, start + 2].contains(&rip));
    }
}
