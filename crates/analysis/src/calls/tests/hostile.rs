//! Records made to harm.

use nopal_abi as abi;
use nopal_trace::synthetic::Random;

use super::tape::{Tape, run};
use crate::calls::{CallRebuilder, Ending, Frame, Sink};

/// Checks that each entry ends once at most, and that none is both alive and lost.
#[derive(Default)]
struct Balance {
    entered: u64,
    ended: u64,
    strays: u64,
}

impl Sink for Balance {
    fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
        let wrapped = frames
            .last()
            .is_some_and(|frame| frame.style() != crate::calls::Style::Only);
        self.entered += u64::from(wrapped);
        0
    }

    fn leave(&mut self, _: &Frame, _: Ending, _: &[Frame]) {
        self.ended += 1;
    }

    fn lose(&mut self, _: &Frame, _: u64, _: bool) {
        self.ended += 1;
    }

    fn stray(&mut self, _: &Frame, _: Ending) {
        self.strays += 1;
    }
}

/// Records of all kinds at random, and a few words of no kind.
pub fn noise(random: &mut Random) -> Tape {
    let (sites, slots) = (1 + random.below(4), 1 + random.below(300));
    let mut tape = Tape {
        clock: random.number() >> random.below(64),
        ..Tape::default()
    };
    for _ in 0..3000 {
        let site = random.below(sites) as u32;
        let slot = (random.below(slots) * 16) << random.below(8);
        match random.below(40) {
            0 => tape.jump(slot),
            1 => tape.resync(random.below(6) as u32, random.number()),
            2 => tape.only(site, slot),
            3 => tape.tail(site, slot),
            4..20 => tape.entry(site, slot),
            _ => tape.exit(site, slot),
        };
        tape.wait(random.below(3));
    }
    for _ in 0..random.below(3) {
        let at = random.below(tape.words.len() as u64) as usize;
        tape.words[at] = random.number();
    }
    tape
}

#[test]
fn any_words_are_taken_and_every_call_is_accounted_for() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut balance = Balance::default();
        let mut rebuilder = CallRebuilder::default();
        for packet in 0..4 {
            let tape = noise(&mut random);
            run(&mut rebuilder, &tape.words, packet == 2, &mut balance);
        }
        rebuilder.end(0, &mut balance);
        assert_eq!(balance.entered, balance.ended, "seed {seed}");
    }
}

/// Without a bound on the search, these take hours.
#[test]
fn deep_stacks_and_exits_of_nothing_do_not_multiply() {
    let mut tape = Tape::default();
    for level in 0..300_000u64 {
        tape.entry(1, (1 << 40) - level * 0x40);
    }
    let mut rebuilder = CallRebuilder::default();
    let mut balance = Balance::default();
    run(&mut rebuilder, &tape.words, false, &mut balance);
    tape.words.clear();
    for turn in 0..600_000u64 {
        tape.exit(2, turn * 16);
    }
    run(&mut rebuilder, &tape.words, false, &mut balance);
    assert_eq!(balance.strays, 600_000);
    tape.words.clear();
    for turn in 0..100_000u64 {
        let slot = ((turn % 2) << 39) | 0x100_0000;
        tape.jump(slot).entry(3, slot);
    }
    run(&mut rebuilder, &tape.words, false, &mut balance);
    rebuilder.end(0, &mut balance);
    assert_eq!(balance.entered, balance.ended);
}

#[test]
fn depth_beyond_the_limit_is_counted_only() {
    let depth = (1u64 << 22) + 1000;
    let mut balance = Balance::default();
    let mut rebuilder = CallRebuilder::default();
    let mut tape = Tape::default();
    for level in 0..depth {
        tape.entry(1, (1 << 44) - level * 0x40);
    }
    run(&mut rebuilder, &tape.words, false, &mut balance);
    assert_eq!(rebuilder.frames().len(), 1 << 22);
    assert_eq!((balance.entered, balance.ended), (depth, 1000));
    tape.words.clear();
    for level in (0..depth).rev() {
        tape.exit(1, (1 << 44) - level * 0x40);
    }
    tape.event(abi::KIND_EXIT, 1, 1 << 44);
    run(&mut rebuilder, &tape.words, false, &mut balance);
    rebuilder.end(0, &mut balance);
    assert_eq!(
        (balance.entered, balance.ended, balance.strays),
        (depth, depth, 1)
    );
}
