//! A sink that gets a thread's calls from a checkpoint on is told the same as one that gets all of them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use nopal_abi::Cursor;
use nopal_trace::synthetic::Random;

use super::programs::Program;
use crate::calls::{CallRebuilder, Ending, Frame, Past, Sink};

/// Writes what it is told, with the path of each call from the outermost one, over all stacks, and the number of calls
/// of each site that are open on the present stack. A frame's note is its path.
#[derive(Default)]
struct Paths {
    numbers: HashMap<(u32, u32), u32>,
    paths: Vec<String>,
    active: BTreeMap<u32, i64>,
    lines: Vec<String>,
}

impl Paths {
    fn path(&mut self, frames: &[Frame]) -> u32 {
        let [under @ .., frame] = frames else {
            panic!("no frame");
        };
        let caller = under.last().map_or(0, |frame| frame.note);
        let outer = match caller {
            0 => "",
            some => self.paths[some as usize - 1].as_str(),
        };
        let path = format!("{outer}/{}", frame.site());
        let paths = &mut self.paths;
        *self
            .numbers
            .entry((caller, frame.site()))
            .or_insert_with(|| {
                paths.push(path);
                paths.len() as u32
            })
    }

    fn count(&mut self, frames: &[Frame], more: i64) {
        for frame in frames {
            *self.active.entry(frame.site()).or_default() += more;
        }
        self.active.retain(|_, number| *number != 0);
    }

    fn line(&mut self, what: &str, frame: &Frame, clock: u64) {
        let path = &self.paths[frame.note as usize - 1];
        let mut line = format!("{what} {path} at {clock}: ");
        let _ = write!(line, "{} {} {:?}", frame.clock, frame.child, self.active);
        self.lines.push(line);
    }
}

impl Sink for Paths {
    fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
        self.count(&frames[frames.len() - 1..], 1);
        self.path(frames)
    }

    fn note_of_caller(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
        self.path(frames)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        self.count(&[*frame], -1);
        self.line("ends", frame, ending.clock);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        if counted {
            self.count(&[*frame], -1);
        }
        self.line("is lost", frame, clock);
    }

    fn stray(&mut self, frame: &Frame, _: Ending) {
        panic!("all calls begin: {frame:?}");
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.count(frames, -1);
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.count(frames, 1);
    }
}

/// Compares at some records of a program. Returns at how many of them calls of other stacks were open.
fn check(words: &[u64], random: &mut Random, what: &str) -> u64 {
    let (mut whole, mut past) = (Paths::default(), Past::default());
    // One rebuilder passes all calls to the sink; another, which takes runs of them, keeps the state only.
    let mut rebuilders = [CallRebuilder::default(), CallRebuilder::default()];
    let mut cursors = [Cursor::new(words), Cursor::new(words)];
    rebuilders[0].begin_words(words, 0, false, &mut whole);
    rebuilders[1].begin_words(words, 0, false, &mut past);
    let mut begun = Vec::new();
    loop {
        rebuilders[1].run(&mut cursors[1], &mut past);
        while cursors[0].rest().len() > cursors[1].rest().len() {
            rebuilders[0].step(&mut cursors[0], &mut whole);
        }
        if random.below(10) == 0 && rebuilders[1].can_reopen() {
            let state = rebuilders[1].checkpoint(&mut past).unwrap();
            begun.push((whole.lines.len(), state, cursors[1]));
        }
        let goes_on = rebuilders[0].step(&mut cursors[0], &mut whole);
        assert_eq!(rebuilders[1].step(&mut cursors[1], &mut past), goes_on);
        if !goes_on {
            break;
        }
    }
    rebuilders[0].end(0, &mut whole);
    let mut with_others = 0;
    for (lines, state, mut cursor) in begun {
        let (mut rebuilder, mut past) = CallRebuilder::resume(&state).unwrap();
        with_others += u64::from(!rebuilder.fibers.is_empty());
        let mut part = Paths::default();
        rebuilder.reopen(&mut past, &mut part);
        while rebuilder.step(&mut cursor, &mut part) {}
        rebuilder.end(0, &mut part);
        assert_eq!(part.lines, whole.lines[lines..], "{what}");
    }
    with_others
}

#[test]
fn a_sink_that_begins_at_a_checkpoint_is_told_the_same() {
    let mut with_others = 0;
    for seed in 0..150 {
        let distance = [0x1_0000, 0x10_0000, 0x1000_0000][seed as usize % 3];
        let mut program = Program::new(seed, 1 + seed % 5, distance, false);
        program.jumped = true;
        for _ in 0..1000 {
            program.step();
        }
        let mut random = Random::new(seed);
        let what = format!("seed {seed}, stacks {distance:#x} apart");
        with_others += check(&program.tape.words, &mut random, &what);
    }
    assert!(with_others > 100, "{with_others}");
}
