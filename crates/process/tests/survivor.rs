//! A process that fails while a program that it has launched runs ends as the program does, however many of its threads
//! fail at once.

use nopal_process::{Ending, is_survivor, survive, wait_as_survivor};
use std::process::{Command, exit};
use std::sync::Barrier;

const STATUS: i32 = 7;
const THREADS: usize = 8;
const ROUNDS: usize = 50;

fn main() {
    if let Some(program) = is_survivor() {
        match wait_as_survivor(program) {
            Ending::Exited(status) => exit(status),
            _ => exit(1),
        }
    }
    if std::env::args().nth(1).as_deref() == Some("fail") {
        fail();
    }
    let own = std::env::current_exe().unwrap();
    for round in 0..ROUNDS {
        let ended = Command::new(&own).arg("fail").status().unwrap();
        assert_eq!(ended.code(), Some(STATUS), "round {round}: {ended}");
    }
    println!(
        "a process that fails in {THREADS} threads at once ends as its program, {ROUNDS} times"
    );
}

fn fail() -> ! {
    #[expect(
        clippy::zombie_processes,
        reason = "who survives this process waits for it"
    )]
    let program = Command::new("sh")
        .args(["-c", &format!("sleep 0.05; exit {STATUS}")])
        .spawn()
        .unwrap();
    survive(program.id() as i32);
    let all = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                all.wait();
                // SAFETY: ends this process by a signal.
                unsafe { libc::abort() }
            });
        }
    });
    unreachable!("this process has failed");
}
