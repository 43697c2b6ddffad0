//! The ways in which functions treat their return addresses and their flags.

use std::collections::HashMap;

use super::flags::Flags;
use super::spread::spread;
use crate::Reason;

/// Facts about functions by their code. All fields are addresses of functions.
#[derive(Default)]
pub(crate) struct Manners {
    /// The functions whose return address must stay in its place.
    pub entries_only: Vec<(u64, Reason)>,
    /// Jumps with the function's own return address on top of the stack: target, and function.
    pub tails: Vec<(u64, u64)>,
    /// The functions with jumps by pointers, with the return address on top of the stack.
    pub left: Vec<u64>,
    pub flags: Flags,
    /// One of the functions copies stacks.
    pub copies_stacks: bool,
}

/// The result, by function.
#[derive(Default)]
pub(crate) struct Judged {
    pub entries_only: HashMap<u64, Reason>,
    pub passes_flags: HashMap<u64, Reason>,
    pub copies_stacks: bool,
}

impl Manners {
    pub fn extend(&mut self, other: Manners) {
        self.entries_only.extend(other.entries_only);
        self.tails.extend(other.tails);
        self.left.extend(other.left);
        self.flags.extend(other.flags);
        self.copies_stacks |= other.copies_stacks;
    }

    pub fn judged(mut self) -> Judged {
        let mut entries_only: HashMap<u64, Reason> = self.entries_only.into_iter().collect();
        // Where functions pop their arguments, as in Swift, a pointer may lead to one that does: the stack pointer is
        // then elsewhere when it returns.
        if entries_only
            .values()
            .any(|&why| why == Reason::PopsArguments)
        {
            for function in self.left {
                entries_only
                    .entry(function)
                    .or_insert(Reason::PopsArguments);
            }
        }
        spread(&mut entries_only, &mut self.tails);
        Judged {
            entries_only,
            passes_flags: self.flags.judged(&self.tails),
            copies_stacks: self.copies_stacks,
        }
    }
}
