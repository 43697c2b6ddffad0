//! Following threads through `execve`.

mod common;

use common::{Program, Running, compile, eventually};
use nopal_process::{
    Ending, Event, ExecFollower, ExitWatch, Followed, Memory, Stop, executable, status, threads,
};

struct WaitingProgram {
    running: Running,
    pid: i32,
    tid: i32,
    word: u64,
}

fn start(program: &Program, how: &str, target: &str) -> WaitingProgram {
    let mut running = Running::start(program, &[how, target]);
    let line = running.line();
    let mut words = line.split(' ');
    let mut number = || words.next().unwrap().parse().unwrap();
    let (pid, tid) = (number(), number());
    let word = words.next().unwrap().strip_prefix("0x").unwrap();
    let word = u64::from_str_radix(word, 16).unwrap();
    WaitingProgram {
        running,
        pid,
        tid,
        word,
    }
}

impl WaitingProgram {
    fn follow(&self, answer: u32) -> Followed {
        let mut follower = ExecFollower::seize(self.pid, self.tid).unwrap();
        assert_eq!(follower.thread().stop(), Some(Stop::Interrupted));
        let memory = Memory::open(self.pid).unwrap();
        memory.write(self.word, &answer.to_le_bytes()).unwrap();
        follower.run().unwrap()
    }
}

#[test]
fn a_program_that_is_executed_has_not_begun() {
    let program = compile("executing");
    for how in [
        "main",
        "main at",
        "thread",
        "thread at",
        "vfork",
        "vfork at",
    ] {
        let mut waiting = start(&program, how, "/bin/sh");
        let mut watch = ExitWatch::new(waiting.pid).unwrap();
        let Followed::Executed(thread) = waiting.follow(1) else {
            panic!("{how}")
        };
        assert_eq!(thread.stop(), Some(Stop::Executed), "{how}");
        assert_eq!(
            (thread.pid(), thread.tid()),
            (waiting.pid, waiting.pid),
            "{how}"
        );
        assert_eq!(threads(waiting.pid).unwrap(), [waiting.pid], "{how}");
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(executable(waiting.pid).unwrap(), shell, "{how}");
        assert_eq!(thread.thread_pointer().unwrap(), 0, "{how}");
        thread.detach().unwrap();
        match how.starts_with("vfork") {
            true => assert_eq!(waiting.running.line(), "child ended 33"),
            false => assert_eq!(watch.wait().unwrap(), Ending::Exited(33), "{how}"),
        }
    }
}

#[test]
fn a_failure_is_told_and_the_thread_goes_on() {
    let program = compile("executing");
    for how in [
        "main",
        "main at",
        "thread",
        "thread at",
        "vfork",
        "vfork at",
    ] {
        for (target, errno) in [
            ("/nopal/nowhere", libc::ENOENT),
            ("/etc/passwd", libc::EACCES),
        ] {
            let mut waiting = start(&program, how, target);
            match waiting.follow(1) {
                Followed::Failed(found) => assert_eq!(found, errno, "{how}"),
                other => panic!("{how}: {other:?}"),
            }
            let said = waiting.running.line();
            match how.starts_with("vfork") {
                true => assert_eq!(said, "child ended 66"),
                false => assert!(said.starts_with("failed: "), "{said}"),
            }
        }
    }
}

#[test]
fn an_end_instead_is_told() {
    let program = compile("executing");
    for how in ["main", "thread", "vfork"] {
        let waiting = start(&program, how, "/bin/sh");
        match waiting.follow(2) {
            Followed::Ended(ending) => assert_eq!(ending, Ending::Exited(44), "{how}"),
            other => panic!("{how}: {other:?}"),
        }
    }
    let mut waiting = start(&program, "vfork", "/bin/sh");
    assert!(matches!(
        waiting.follow(2),
        Followed::Ended(Ending::Exited(44))
    ));
    assert_eq!(waiting.running.line(), "child ended 44");
}

#[test]
fn signals_pass_on_the_way() {
    let program = compile("executing");
    let waiting = start(&program, "main", "/bin/sh");
    let mut follower = ExecFollower::seize(waiting.pid, waiting.tid).unwrap();
    waiting.running.signal(libc::SIGWINCH);
    waiting.running.signal(libc::SIGSTOP);
    assert_eq!(
        follower.thread().settle().unwrap(),
        Event::Stopped(Stop::Interrupted)
    );
    let memory = Memory::open(waiting.pid).unwrap();
    memory.write(waiting.word, &1u32.to_le_bytes()).unwrap();
    let pid = waiting.pid;
    let resumer = std::thread::spawn(move || {
        eventually("stopped", || {
            status(pid).unwrap().state == 't' && stop_signal_seen(pid)
        });
        unsafe { libc::kill(pid, libc::SIGCONT) };
    });
    assert!(matches!(follower.run().unwrap(), Followed::Executed(_)));
    resumer.join().unwrap();
}

/// SIGSTOP is not pending any more.
fn stop_signal_seen(pid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pending = text
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:"))
        .unwrap();
    u64::from_str_radix(pending.trim(), 16).unwrap() & 1 << (libc::SIGSTOP - 1) == 0
}
