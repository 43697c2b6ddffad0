//! `make torture`: a program whose threads call ten thousand functions, while these are inserted, timed, counted,
//! switched off and removed at random, signals come, libraries are loaded, children are forked, and sessions begin, end and are killed.
//!
//! `torture [seed=N] [seconds=N] [toggles=N]` ends when both numbers are reached. It prints the seed, which makes the
//! same choices again, at other moments. It ends with 1 at the first failure.

mod probes;
mod program;
mod session;
mod traces;

use program::Program;
use session::{Done, ENDINGS, Session};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The number of sessions after which the program's resources no longer grow.
const WARM: u32 = 3;

const PROGRESS: Duration = Duration::from_secs(60);

struct Wanted {
    seed: u64,
    seconds: u64,
    toggles: u64,
}

fn wanted() -> Wanted {
    let mut wanted = Wanted {
        seed: fastrand::u64(1..1_000_000_000),
        seconds: 20,
        toggles: 0,
    };
    for word in std::env::args().skip(1) {
        let (name, number) = word.split_once('=').unwrap_or((&word, ""));
        let place = match name {
            "seed" => &mut wanted.seed,
            "seconds" => &mut wanted.seconds,
            "toggles" => &mut wanted.toggles,
            _ => panic!("torture [seed=N] [seconds=N] [toggles=N]"),
        };
        *place = number.replace('_', "").parse().expect("a number");
    }
    wanted
}

fn main() {
    let wanted = wanted();
    println!("seed={}", wanted.seed);
    let mut random = fastrand::Rng::with_seed(wanted.seed);
    let scratch = nopal_tests::scratch();
    // SAFETY: this process has one thread. Sessions keep their files there, and their processes are known by it.
    unsafe {
        std::env::set_var("XDG_RUNTIME_DIR", scratch.path());
        std::env::set_var("TMPDIR", scratch.path());
    }
    let program = Program::start(scratch.path());
    let (mut done, mut endings) = (Done::default(), BTreeMap::new());
    let mut before = None;
    let begun = Instant::now();
    let (mut sessions, mut reported) = (0, begun);
    while begun.elapsed().as_secs() < wanted.seconds || done.toggles < wanted.toggles {
        sessions += 1;
        let longest = if sessions % 10 == 0 { 30_000 } else { 3_000 };
        let time = Duration::from_millis(random.u64(0..longest));
        let ending = random.choice(ENDINGS).expect("there are some");
        let mut session = Session::attach(&program, scratch.path(), &mut random, &mut done);
        session.torture(time);
        session.end(ending);
        *endings.entry(ending).or_insert(0) += 1;
        program.close();
        let holdings = program.holdings();
        if sessions > WARM {
            let before = before.get_or_insert_with(|| holdings.clone());
            assert_eq!(*before, holdings, "the program's resources have changed");
        }
        program.open();
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            println!("{sessions} sessions, {} toggles", done.toggles);
        }
    }
    program.close();
    let counted = program.counted();
    println!(
        "{sessions} sessions ({}), {} commands, {} toggles in {:.0} s",
        endings
            .iter()
            .map(|(ending, count)| format!("{ending:?} {count}"))
            .collect::<Vec<_>>()
            .join(", "),
        done.commands,
        done.toggles,
        begun.elapsed().as_secs_f64()
    );
    println!(
        "{} calls, {} in signal handlers; {} threads, {} children, {} libraries loaded",
        counted.calls.iter().sum::<u64>(),
        5 * counted.handled,
        counted.threads,
        counted.forks,
        counted.loads
    );
    println!(
        "{} calls compared in {} windows, and {} passed probes, all in the trace; {} others were reported as lost",
        done.compared, done.windows, done.passed, done.lost
    );
    program.end();
}
