//! The expected state of functions, selected and switched on.

use crate::program::FUNCTIONS;

/// Functions below this number belong to the trace whose calls are counted; the others are switched at random.
pub const COUNTED: usize = 1000;
pub const COUNTED_PATTERN: &str = "f_{?,??,???}";

/// How calls of a trace's functions are recorded. Of several traces of a function the greatest holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Off,
    Counted,
    Timed,
}

pub struct Trace {
    pub name: String,
    state: State,
    functions: Vec<u16>,
}

/// The traces whose functions are switched at random.
pub struct Traces {
    pub all: Vec<Trace>,
    /// For each function, how many traces that hold it are counted, and how many timed.
    holders: Vec<[u16; 2]>,
    number: u64,
    /// The number of times that a function went to another state.
    pub toggles: u64,
}

/// The functions that match a pattern of four characters: digits, or `?` for any.
fn matching(pattern: &[u8; 4]) -> Vec<u16> {
    let fits = |number: &u16| {
        let digits = format!("{number:04}");
        let mut both = digits.bytes().zip(pattern);
        both.all(|(digit, wanted)| *wanted == b'?' || *wanted == digit)
    };
    (COUNTED as u16..FUNCTIONS as u16).filter(fits).collect()
}

pub fn random_pattern(random: &mut fastrand::Rng) -> [u8; 4] {
    let mut pattern = *b"????";
    for _ in 0..random.usize(0..=4) {
        let at = random.usize(0..4);
        let lowest = if at == 0 { b'1' } else { b'0' };
        pattern[at] = random.u8(lowest..=b'9');
    }
    pattern
}

pub fn text(pattern: &[u8; 4]) -> String {
    let digits = pattern.iter().map(|byte| char::from(*byte));
    format!("f_{}", digits.collect::<String>())
}

impl Traces {
    pub fn new() -> Traces {
        Traces {
            all: Vec::new(),
            holders: vec![[0; 2]; FUNCTIONS],
            number: 0,
            toggles: 0,
        }
    }

    /// Adds an existing trace that is on.
    pub fn adopt(&mut self, name: &str, pattern: &[u8; 4]) {
        self.all.push(Trace {
            name: name.to_owned(),
            state: State::Off,
            functions: matching(pattern),
        });
        self.turn(self.all.len() - 1, State::Timed);
    }

    /// The command that makes a trace, and the trace, to be added to `all` when it has been made.
    pub fn make(&mut self, pattern: &[u8; 4]) -> (String, Trace) {
        self.named(&text(pattern), matching(pattern))
    }

    /// The same for the library's functions, which are loaded only at times.
    pub fn make_of_library(&mut self) -> (String, Trace) {
        self.named("library_*@liblibrary*", Vec::new())
    }

    fn named(&mut self, what: &str, functions: Vec<u16>) -> (String, Trace) {
        self.number += 1;
        let name = format!("t{}", self.number);
        let command = format!("trace {what} new {name}\n");
        let state = State::Off;
        (
            command,
            Trace {
                name,
                state,
                functions,
            },
        )
    }

    /// The command that brings a trace to one of the two other states.
    pub fn switch(&mut self, at: usize, first: bool) -> String {
        let (state, word) = match (self.all[at].state, first) {
            (State::Off, true) | (State::Counted, false) => (State::Timed, "on"),
            (State::Off, false) | (State::Timed, true) => (State::Counted, "count"),
            (State::Counted, true) | (State::Timed, false) => (State::Off, "off"),
        };
        self.turn(at, state);
        format!("trace {} {word}\n", self.all[at].name)
    }

    pub fn remove(&mut self, at: usize) -> String {
        self.turn(at, State::Off);
        format!("trace {} remove\n", self.all.swap_remove(at).name)
    }

    /// Forgets all traces, which are gone.
    pub fn clear(&mut self) {
        (0..self.all.len()).for_each(|at| self.turn(at, State::Off));
        self.all.clear();
    }

    fn turn(&mut self, at: usize, state: State) {
        let trace = &mut self.all[at];
        let before = std::mem::replace(&mut trace.state, state);
        let place = |state| match state {
            State::Off => None,
            State::Counted => Some(0),
            State::Timed => Some(1),
        };
        let of = |[counted, timed]: [u16; 2]| match (counted, timed) {
            (_, 1..) => State::Timed,
            (1.., 0) => State::Counted,
            (0, 0) => State::Off,
        };
        for function in &trace.functions {
            let holders = &mut self.holders[usize::from(*function)];
            let was = of(*holders);
            if let Some(place) = place(before) {
                holders[place] -= 1;
            }
            if let Some(place) = place(state) {
                holders[place] += 1;
            }
            self.toggles += u64::from(was != of(*holders));
        }
    }
}
