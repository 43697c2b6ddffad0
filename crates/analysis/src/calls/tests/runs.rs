//! Runs are nothing but steps.

use nopal_abi::Cursor;
use nopal_trace::synthetic::Random;

use super::hostile::noise;
use super::tape::Tape;
use crate::calls::{CallRebuilder, Ending, Frame, Plain, Sink};

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Entered(u32),
    Ended(u32, u64, u64),
    Lost(u32, u64),
    Stray(u32, u64, u64),
}

#[derive(Default)]
struct Steps(Vec<Step>);

impl Sink for Steps {
    fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
        self.0
            .extend(frames.last().map(|frame| Step::Entered(frame.site())));
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        let ticks = ending.clock.saturating_sub(frame.clock);
        self.0.push(Step::Ended(
            frame.site(),
            ticks,
            ticks.saturating_sub(frame.child),
        ));
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _: bool) {
        self.0.push(Step::Lost(frame.site(), clock));
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let ticks = ending.clock.saturating_sub(frame.clock);
        self.0.push(Step::Stray(frame.site(), ticks, frame.child));
    }
}

#[derive(Default)]
struct Runs {
    steps: Steps,
    plain: usize,
    waiting: usize,
}

impl Sink for Runs {
    fn takes_runs(&self) -> bool {
        true
    }

    fn plain(&mut self, call: Plain) -> u32 {
        let Plain {
            site,
            exit,
            ticks,
            own,
            ..
        } = call;
        let step = if exit == 0 {
            Step::Entered(site)
        } else {
            Step::Ended(site, ticks, own)
        };
        self.steps.0.push(step);
        self.plain += 1;
        self.waiting += 1;
        assert!(self.waiting <= crate::calls::RUN);
        0
    }

    fn end_run(&mut self) {
        self.waiting = 0;
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        assert_eq!(self.waiting, 0);
        self.steps.enter(frames, arguments)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.steps.leave(frame, ending, frames);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        self.steps.lose(frame, clock, counted);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.steps.stray(frame, ending);
    }
}

/// How many records were taken in runs.
fn compare(words: &[u64], what: &str) -> usize {
    let (mut stepping, mut running) = (CallRebuilder::default(), CallRebuilder::default());
    let (mut steps, mut runs) = (Steps::default(), Runs::default());
    stepping.begin_words(words, 0, false, &mut steps);
    let mut records = Cursor::new(words);
    while stepping.step(&mut records, &mut steps) {}
    running.begin_words(words, 0, false, &mut runs);
    running.words(Cursor::new(words), &mut runs);
    assert!(
        format!("{stepping:?}") == format!("{running:?}"),
        "{what}: another state"
    );
    stepping.end(0, &mut steps);
    running.end(0, &mut runs);
    assert!(steps.0 == runs.steps.0, "{what}: other calls");
    runs.plain
}

#[test]
fn of_random_calls() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let mut tape = Tape::default();
        let mut slots = Vec::new();
        tape.resync(1, 0x7ffd_0000_8008);
        for _ in 0..3000 {
            tape.wait(random.below(100));
            let rarely = random.below(100);
            if slots.is_empty() || slots.len() < 30 && random.below(2) == 0 {
                let slot = 0x7ffd_0000_8008 - 0x50 * slots.len() as u64;
                let site = random.below(20) as u32;
                match rarely {
                    0 if !slots.is_empty() => tape.tail(site, slot + 0x50),
                    1 => tape.only(site, slot),
                    _ => {
                        slots.push((site, slot));
                        tape.entry(site, slot)
                    }
                };
            } else if let Some((site, slot)) = slots.pop() {
                match rarely {
                    0 => &mut tape,
                    1 => tape.jump(slot).exit(site, slot),
                    _ => tape.exit(site, slot),
                };
            }
        }
        let plain = compare(&tape.words, &format!("seed {seed}"));
        assert!(plain > 2000, "seed {seed}: {plain}");
    }
}

#[test]
fn of_noise() {
    for seed in 0..50 {
        compare(
            &noise(&mut Random::new(seed)).words,
            &format!("seed {seed}"),
        );
    }
}
