//! The stacks of a thread, each as the one below it and a function.

use std::collections::HashMap;

/// The stack of no call.
pub const NOTHING: u32 = u32::MAX;

/// Deeper calls count as their callers'.
const DEPTH_LIMIT: u32 = 1000;

#[derive(Clone, Copy, Debug)]
pub struct Stack {
    pub prefix: u32,
    pub function: u32,
    depth: u32,
    /// The stack on top of it that was found last.
    last: u32,
}

#[derive(Debug, Default)]
pub struct Stacks {
    all: Vec<Stack>,
    numbers: HashMap<(u32, u32), u32>,
}

impl Stacks {
    pub fn all(&self) -> &[Stack] {
        &self.all
    }

    /// The stack with one call more; none if it is too deep, or if there would be more than `limit`.
    #[inline(always)]
    pub fn with(&mut self, prefix: u32, function: u32, limit: usize) -> Option<u32> {
        if let Some(below) = self.all.get(prefix as usize)
            && let Some(last) = self.all.get(below.last as usize)
            && last.function == function
        {
            return Some(below.last);
        }
        self.other_with(prefix, function, limit)
    }

    fn other_with(&mut self, prefix: u32, function: u32, limit: usize) -> Option<u32> {
        let below = self.all.get(prefix as usize);
        let depth = below.map_or(0, |below| below.depth + 1);
        let next = self.all.len();
        let number = match self.numbers.get(&(prefix, function)) {
            Some(number) => *number,
            None if depth >= DEPTH_LIMIT || next >= limit => return None,
            None => {
                self.all.push(Stack {
                    prefix,
                    function,
                    depth,
                    last: NOTHING,
                });
                self.numbers.insert((prefix, function), next as u32);
                next as u32
            }
        };
        if let Some(below) = self.all.get_mut(prefix as usize) {
            below.last = number;
        }
        Some(number)
    }
}
