//! Programs that call, return, tail call, throw, jump and switch stacks at random: the call rebuilder finds exactly
//! their calls.

use nopal_abi as abi;
use nopal_trace::synthetic::Random;

use super::tape::{Tape, run};
use crate::calls::{CallRebuilder, Ending, Frame, Sink};

const SITES: usize = 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    calls: u64,
    ended: u64,
    ticks: u64,
    own: u64,
    unfinished: u64,
    strays: u64,
}

#[derive(Default)]
struct Found {
    sums: [Sum; SITES],
}

impl Sink for Found {
    fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
        self.sums[frames.last().unwrap().site() as usize].calls += 1;
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        let sum = &mut self.sums[frame.site() as usize];
        sum.ended += 1;
        sum.ticks += ending.clock - frame.clock;
        sum.own += ending.clock - frame.clock - frame.child;
    }

    fn lose(&mut self, frame: &Frame, _: u64, _: bool) {
        self.sums[frame.site() as usize].unfinished += 1;
    }

    fn stray(&mut self, frame: &Frame, _: Ending) {
        self.sums[frame.site() as usize].strays += 1;
    }
}

struct Call {
    site: u32,
    slot: u64,
    /// The slots of its callees are so much lower.
    size: u64,
    begin: u64,
    own: u64,
    tail: bool,
}

struct Stack {
    top: u64,
    calls: Vec<Call>,
}

pub struct Program {
    random: Random,
    pub tape: Tape,
    stacks: Vec<Stack>,
    present: usize,
    /// The runtime must tell the place of the next event.
    pub jumped: bool,
    /// Frames of the present stack that a jump has left, until the next event.
    kept: Option<usize>,
    /// Some frames are larger than any part of the stack that the runtime knows at once.
    big: bool,
    /// Slots whose place the runtime need not tell.
    known: std::ops::Range<u64>,
    sums: [Sum; SITES],
}

impl Program {
    pub fn new(seed: u64, stacks: u64, distance: u64, big: bool) -> Program {
        let stack = |number| Stack {
            top: 0x7fff_ffff_0008 - number * distance,
            calls: Vec::new(),
        };
        Program {
            random: Random::new(seed),
            tape: Tape::default(),
            stacks: (0..stacks).map(stack).collect(),
            present: 0,
            jumped: false,
            kept: None,
            big,
            known: 0..0,
            sums: [Sum::default(); SITES],
        }
    }

    /// Time passes in the frame that the last event left on top.
    fn pass(&mut self, stack: usize) {
        let ticks = 1 + self.random.below(50);
        self.tape.wait(ticks);
        if let Some(top) = self.stacks[stack].calls.last_mut() {
            top.own += ticks;
        }
    }

    fn before_event(&mut self, slot: u64) {
        if let Some(kept) = self.kept.take() {
            for call in self.stacks[self.present].calls.drain(kept..) {
                self.sums[call.site as usize].unfinished += 1;
            }
        }
        if self.jumped {
            self.known = 0..0;
        }
        let moved = self.know(slot);
        if std::mem::take(&mut self.jumped) {
            self.tape.jump(slot);
        } else if moved {
            self.tape.resync(abi::RESYNC_STACK, slot);
        } else if self.big && self.random.below(50) == 0 {
            let reason = [abi::RESYNC_CHUNK, abi::RESYNC_CLOCK][self.random.below(2) as usize];
            self.tape.resync(reason, slot);
        }
    }

    /// Whether the runtime takes `slot` for one of another stack. It knows stacks in parts of 64 KiB, and lets the
    /// known range grow into the next part only near to it.
    fn know(&mut self, slot: u64) -> bool {
        const PART: u64 = 0x1_0000;
        const NEAR: u64 = 0x2000;
        let part = slot / PART * PART;
        let known = self.known.clone();
        if known.contains(&slot) {
            return false;
        }
        let down = part + PART == known.start && known.start - slot <= NEAR;
        let up = part == known.end && slot - known.end <= NEAR;
        self.known = match (down, up) {
            (true, _) => part..known.end,
            (_, true) => known.start..part + PART,
            _ => part..part + PART,
        };
        !(down || up)
    }

    fn enter(&mut self, tail: bool) {
        let size = 16 * (2 + self.random.below(60));
        let size = if self.big && self.random.below(50) == 0 {
            size + 0x2_2000
        } else {
            size
        };
        let stack = &self.stacks[self.present];
        let kept = &stack.calls[..self.kept.unwrap_or(stack.calls.len())];
        let slot = match kept.last() {
            None => stack.top,
            Some(caller) if tail => caller.slot,
            Some(caller) => caller.slot - caller.size,
        };
        let site = self.random.below(SITES as u64) as u32;
        self.before_event(slot);
        self.tape.event(
            if tail {
                abi::KIND_TAIL
            } else {
                abi::KIND_ENTRY
            },
            site,
            slot,
        );
        self.sums[site as usize].calls += 1;
        let begin = self.tape.clock;
        self.stacks[self.present].calls.push(Call {
            site,
            slot,
            size,
            begin,
            own: 0,
            tail,
        });
    }

    fn leave(&mut self) {
        let calls = &self.stacks[self.present].calls;
        let alive = self.kept.unwrap_or(calls.len());
        let Some(wrapped) = calls[..alive].iter().rposition(|call| !call.tail) else {
            return;
        };
        let (site, slot) = (calls[wrapped].site, calls[wrapped].slot);
        self.before_event(slot);
        let kind = if self.random.below(8) == 0 {
            abi::KIND_UNWIND
        } else {
            abi::KIND_EXIT
        };
        self.tape.event(kind, site, slot);
        for call in self.stacks[self.present].calls.drain(wrapped..) {
            let sum = &mut self.sums[call.site as usize];
            sum.ended += 1;
            sum.ticks += self.tape.clock - call.begin;
            sum.own += call.own;
        }
    }

    pub fn step(&mut self) {
        let before = self.present;
        let depth = self.stacks[before].calls.len();
        match self.random.below(100) {
            0..2 if depth > 3 => {
                // A tail call's frame cannot be jumped to.
                let kept = 1 + self.random.below(depth as u64 - 1) as usize;
                if !self.stacks[before]
                    .calls
                    .get(kept)
                    .is_some_and(|call| call.tail)
                    && self.kept.is_none()
                {
                    self.jumped = true;
                    self.kept = Some(kept);
                }
            }
            2..4 if self.stacks.len() > 1 && self.kept.is_none() => {
                self.present = self.random.below(self.stacks.len() as u64) as usize;
                self.jumped = true;
            }
            _ => {}
        }
        self.pass(before);
        let stack = &self.stacks[self.present];
        let alive = self.kept.unwrap_or(stack.calls.len());
        match self.random.below(20) {
            0 if alive > 0 && !self.jumped => self.enter(true),
            1..10 if alive < 20 => self.enter(false),
            _ if alive > 0 => self.leave(),
            _ => self.enter(false),
        }
    }

    /// The sums that a call rebuilder finds, and the true ones.
    fn find(mut self) -> ([Sum; SITES], [Sum; SITES]) {
        for call in self.stacks.iter().flat_map(|stack| &stack.calls) {
            self.sums[call.site as usize].unfinished += 1;
        }
        let mut found = Found::default();
        let mut rebuilder = CallRebuilder::default();
        run(&mut rebuilder, &self.tape.words, false, &mut found);
        rebuilder.end(0, &mut found);
        (found.sums, self.sums)
    }

    fn check(self, what: &str) {
        let several = self.stacks.len() > 1;
        let (mut found, mut truth) = self.find();
        if several {
            // A stack without calls may be the caller's or another one, so the owner of the time on it is not known.
            for sum in found.iter_mut().chain(&mut truth) {
                sum.own = 0;
            }
        }
        assert_eq!(found, truth, "{what}");
    }
}

#[test]
fn one_stack_with_jumps_and_exceptions() {
    for seed in 0..300 {
        let mut program = Program::new(seed, 1, 0, false);
        program.jumped = true;
        for _ in 0..2000 {
            program.step();
        }
        program.check(&format!("seed {seed}"));
    }
}

#[test]
fn several_stacks() {
    for seed in 0..300 {
        let distance = [0x1_0000, 0x10_0000, 0x1000_0000][seed as usize % 3];
        let mut program = Program::new(seed, 2 + seed % 4, distance, false);
        program.jumped = true;
        for _ in 0..2000 {
            program.step();
        }
        program.check(&format!("seed {seed}, stacks {distance:#x} apart"));
    }
}

/// If large frames and jumps leave open which stack an event is on, times may be wrong, but not counts.
#[test]
fn frames_larger_than_what_the_runtime_knows_at_once() {
    for seed in 0..200 {
        let mut program = Program::new(seed, 1 + seed % 3, 0x1000_0000, true);
        program.jumped = true;
        for _ in 0..2000 {
            program.step();
        }
        let (found, truth) = program.find();
        let calls = |sums: [Sum; SITES]| sums.map(|sum| sum.calls);
        assert_eq!(calls(found), calls(truth), "seed {seed}");
        let part =
            |sums: [Sum; SITES], part: fn(Sum) -> u64| sums.into_iter().map(part).sum::<u64>();
        let (ended, truly) = (part(found, |sum| sum.ended), part(truth, |sum| sum.ended));
        assert!(
            truly.abs_diff(ended) * 100 <= truly,
            "seed {seed}: {ended} of {truly}"
        );
        assert_eq!(
            ended + part(found, |sum| sum.unfinished),
            part(found, |sum| sum.calls),
            "seed {seed}"
        );
    }
}
