//! Finds where programs recover from faults: a signal handler that knows an instruction by its address, and has the
//! thread go on at another. In a displaced copy, it would not know the instruction.

use std::ops::RangeInclusive;

use nopal_symbols::Image;

use crate::arch::Flow;
use crate::code::{Code, Marks};

/// The places in functions' code that more than the function itself knows.
pub(crate) struct Recovery {
    /// Places amid functions or behind them, sorted, each with the instruction that takes its address, if it is one.
    places: Vec<(u64, Option<u64>)>,
    /// Functions whose addresses stand in data beside such a place, as in a table of instructions that may fault and of
    /// the places where to go on then. Sorted.
    paired: Vec<u64>,
}

impl Recovery {
    /// `pointers`: those in data.
    pub fn of(
        image: &Image,
        code: &Code<'_>,
        is_start: &Marks,
        flow: &Flow,
        pointers: &[(u64, u64)],
    ) -> Recovery {
        let is_place = |target: u64| {
            code.number(target)
                .is_some_and(|number| !is_start.get(number))
        };
        let instructions = flow
            .taken
            .iter()
            .map(|&(target, from)| (target, Some(from)));
        let exported = image.exports().places().filter(|&place| is_place(place));
        let mut in_data: Vec<(u64, u64)> = pointers.to_vec();
        in_data.retain(|pointer| code.number(pointer.1).is_some());
        in_data.sort_unstable();
        let named = in_data.iter().map(|pointer| pointer.1);
        let named = named.filter(|&target| is_place(target));
        let mut places: Vec<(u64, Option<u64>)> = instructions
            .chain(exported.chain(named).map(|place| (place, None)))
            .collect();
        places.sort_unstable();
        places.dedup();
        let mut paired: Vec<u64> = in_data
            .windows(2)
            .filter(|pair| pair[0].0 + 8 == pair[1].0)
            .filter(|pair| is_place(pair[1].1) && !is_place(pair[0].1))
            .map(|pair| pair[0].1)
            .collect();
        paired.sort_unstable();
        paired.dedup();
        Recovery { places, paired }
    }

    /// Whether a handler may know the first instructions of a function, and where to go on after a fault.
    /// `computes_jumps`: its code may go on at places that data names.
    pub fn knows(&self, function: RangeInclusive<u64>, computes_jumps: impl Fn() -> bool) -> bool {
        let (start, end) = (*function.start(), *function.end());
        if self.paired.binary_search(&start).is_ok() {
            return true;
        }
        let first = self.places.partition_point(|place| place.0 <= start);
        let places = self.places[first..].iter();
        let mut within = places.take_while(|place| place.0 <= end);
        within.any(|&(place, taken_by)| match taken_by {
            Some(from) => !(start..end).contains(&from),
            // Behind it, a part of another function may lie to which a table of jumps leads.
            None => place < end && !computes_jumps(),
        })
    }
}
