//! The callers of a stack's outermost call, which are on other stacks: as they were when that call began. Stacks that
//! were begun in one call share them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::frame::Frame;

/// Names the callers of a stack: the number of the innermost one, plus one.
pub type Callers = u32;

/// Those of a thread's outermost call.
pub const NO_CALLERS: Callers = 0;
pub const UNKNOWN_CALLERS: Callers = Callers::MAX;

/// Most calls that are kept, and most callers of one stack.
const LIMIT: usize = 1 << 20;
const DEPTH_LIMIT: u32 = 1 << 10;
/// So many may be of no stack any more.
const SURPLUS: usize = 1 << 12;

/// A call in which others began on another stack. It may have ended since.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its own callers, which have lower numbers; and how many they are.
    callers: Callers,
    depth: u32,
    /// Its clock, site and style; in a tree that was read, without its slot.
    pub frame: Frame,
    pub arguments: Option<[u64; 6]>,
}

#[derive(Clone, Debug, Default)]
pub struct CallerTree {
    calls: Vec<Caller>,
    /// Those that were added last, outermost first, and their callers.
    recent: Vec<Callers>,
    recent_callers: Callers,
    /// The number of calls that were of some stack when this was last known.
    needed: usize,
}

impl CallerTree {
    /// Names the callers of a stack that began in the last of `frames`, whose own callers are `callers`.
    pub fn add(
        &mut self,
        callers: Callers,
        frames: &[Frame],
        arguments: impl Fn(&Frame) -> Option<[u64; 6]>,
    ) -> Callers {
        if callers == UNKNOWN_CALLERS {
            return UNKNOWN_CALLERS;
        }
        if callers != self.recent_callers {
            self.recent.clear();
            self.recent_callers = callers;
        }
        let both = frames.iter().zip(&self.recent);
        let is_known = |(frame, name): (&Frame, &Callers)| {
            let known = self.calls.get(*name as usize - 1);
            known.is_some_and(|known| known.frame.is_same_call(frame))
        };
        // All callers of one call are the same.
        let known = both.rev().position(is_known);
        let common = known.map_or(0, |at| frames.len().min(self.recent.len()) - at);
        self.recent.truncate(common);
        for frame in &frames[common..] {
            let callers = self.recent.last().copied().unwrap_or(callers);
            let depth = self.depth(callers);
            if depth >= DEPTH_LIMIT || self.calls.len() >= LIMIT {
                return UNKNOWN_CALLERS;
            }
            self.calls.push(Caller {
                callers,
                depth,
                arguments: arguments(frame),
                frame: frame.as_caller(),
            });
            self.recent.push(self.calls.len() as Callers);
        }
        self.recent.last().copied().unwrap_or(callers)
    }

    /// The callers of a stack, outermost first.
    pub fn named(&self, mut callers: Callers) -> Vec<&Caller> {
        let mut named = Vec::new();
        while let Some(caller) = self.get(callers) {
            named.push(caller);
            callers = caller.callers;
        }
        named.reverse();
        named
    }

    fn depth(&self, callers: Callers) -> u32 {
        self.get(callers).map_or(0, |caller| caller.depth + 1)
    }

    fn get(&self, name: Callers) -> Option<&Caller> {
        self.calls.get((name as usize).checked_sub(1)?)
    }

    pub fn has(&self, callers: Callers) -> bool {
        callers as usize <= self.calls.len()
    }

    /// Whether many calls may be of no stack any more.
    pub fn has_surplus(&self) -> bool {
        self.calls.len() > 2 * self.needed + SURPLUS
    }

    /// Drops the calls that are callers of none of some stacks, and names the others anew.
    pub fn keep_only(&mut self, stacks: &mut [&mut Callers]) {
        let mut names = vec![NO_CALLERS; self.calls.len() + 1];
        for stack in &*stacks {
            let mut name = **stack;
            while let Some(caller) = self.get(name)
                && names[name as usize] == NO_CALLERS
            {
                names[name as usize] = name;
                name = caller.callers;
            }
        }
        let mut number = 0;
        let mut next = 0;
        self.calls.retain_mut(|caller| {
            number += 1;
            caller.callers = names[caller.callers as usize];
            let is_needed = names[number] != NO_CALLERS;
            if is_needed {
                next += 1;
                names[number] = next;
            }
            is_needed
        });
        for stack in stacks {
            if let Some(name) = names.get(**stack as usize) {
                **stack = *name;
            }
        }
        self.needed = self.calls.len();
        self.recent.clear();
        self.recent_callers = NO_CALLERS;
    }

    /// Whether each call has callers before it, and not too many, for a tree that was read.
    pub fn is_sound(&self) -> bool {
        let mut calls = (0..).zip(&self.calls);
        calls.all(|(number, caller)| caller.callers <= number && caller.depth < DEPTH_LIMIT)
    }
}

/// How far its callers are before it, its clock above that of the one before, site and style, and arguments.
type WrittenCaller = (u32, i64, u32, Option<[u64; 6]>);

impl Serialize for CallerTree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut clock = 0u64;
        let written = (0u32..).zip(&self.calls).map(|(number, caller)| {
            let frame = &caller.frame;
            let before = std::mem::replace(&mut clock, frame.clock);
            (
                number - caller.callers,
                frame.clock.wrapping_sub(before).cast_signed(),
                frame.marks,
                caller.arguments,
            )
        });
        serializer.collect_seq(written)
    }
}

impl<'de> Deserialize<'de> for CallerTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CallerTree, D::Error> {
        let written: Vec<WrittenCaller> = Vec::deserialize(deserializer)?;
        let mut last = 0u64;
        let mut tree = CallerTree {
            needed: written.len(),
            ..CallerTree::default()
        };
        for (number, (before, clock, marks, arguments)) in (0u32..).zip(written) {
            last = last.wrapping_add_signed(clock);
            let callers = number.wrapping_sub(before);
            tree.calls.push(Caller {
                callers,
                depth: tree.depth(callers),
                frame: Frame {
                    clock: last,
                    child: 0,
                    slot: 0,
                    marks,
                    note: 0,
                },
                arguments,
            });
        }
        Ok(tree)
    }
}
