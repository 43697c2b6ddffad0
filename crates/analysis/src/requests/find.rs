//! Finds the longest cases, and the critical path of each.

use std::cmp::Reverse;

use super::{Request, Step};
use crate::tracers::Case;
use crate::waits::Waits;

/// The most steps of a path, from its end backwards. The rest of the time is in the first of them.
const MOST_STEPS: usize = 10_000;

/// Keeps the longest cases, and whether each is open.
pub struct Longest {
    number: usize,
    value: Option<u64>,
    pub all: u64,
    cases: Vec<(Case, bool)>,
}

impl Longest {
    pub fn new(number: usize, value: Option<u64>) -> Longest {
        Longest {
            number: number.max(1),
            value,
            all: 0,
            cases: Vec::new(),
        }
    }

    pub fn add(&mut self, case: &Case, is_open: bool) {
        if self.value.is_some_and(|value| value != case.key) {
            return;
        }
        self.all += 1;
        self.cases.push((*case, is_open));
        if self.cases.len() >= 2 * self.number {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let rank =
            |(case, _): &(Case, bool)| (Reverse(case.ticks()), case.begin, case.begin_thread);
        self.cases.sort_by_key(rank);
        self.cases.truncate(self.number);
    }

    /// The longest first.
    pub fn into_cases(mut self) -> Vec<(Case, bool)> {
        self.cut();
        self.cases
    }
}

/// A case with its steps, which have only their times yet.
pub fn request(case: Case, is_open: bool, by_value: bool, waits: Option<&Waits>) -> Request {
    let [begin_stream, end_stream] = [case.begin_thread, case.end_thread].map(|at| at as usize);
    let waits = waits.filter(|waits| waits.knows_wakers() && !is_open);
    let steps = match waits {
        Some(waits) => path(waits, end_stream, case.begin, case.end),
        None if begin_stream == end_stream => vec![step(end_stream, case.begin, case.end)],
        None => [begin_stream, end_stream]
            .map(|stream| step(stream, case.begin, case.end))
            .into(),
    };
    Request {
        value: by_value.then_some(case.key),
        begin: case.begin,
        end: case.end,
        begin_stream,
        end_stream,
        is_open,
        has_path: waits.is_some(),
        steps,
        others: Vec::new(),
    }
}

pub fn step(stream: usize, begin: u64, end: u64) -> Step {
    Step {
        stream,
        begin,
        end,
        in_soft_interrupt: false,
        spent: Vec::new(),
        waited: None,
    }
}

/// Goes backwards from the end: a blocked thread went on when another woke it, and had waited for that thread's work.
fn path(waits: &Waits, last: usize, begin: u64, end: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut stream, mut until) = (last, end);
    while steps.len() + 1 < MOST_STEPS
        && let Some((woken, by)) = waits.last_woken(stream, begin, until)
    {
        steps.push(Step {
            in_soft_interrupt: by.in_soft_interrupt,
            ..step(stream, woken, until)
        });
        (stream, until) = (by.stream, woken);
    }
    steps.push(step(stream, begin, until));
    steps.reverse();
    steps
}
