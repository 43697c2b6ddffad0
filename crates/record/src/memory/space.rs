//! Finds addresses for nopal's memory in a process: away from the program's, and within reach of the code that it
//! belongs to.

use nopal_agent::{ARENA_BYTES, MARK_MASK};
use nopal_process::Mapping;
use std::ops::Range;

/// User addresses on x86-64 with four levels of page tables.
const TOP: u64 = 0x7fff_ffff_f000;
const LOWEST: u64 = 0x1_0000;

/// The greatest distance of an arena from all that its code refers to: 2 GiB less room for the operand.
const REACH: u64 = (2 << 30) - (1 << 20);

/// Regions and process structures go here: a part of the address space that neither the kernel nor loaders choose, and
/// that the address, thread and memory sanitizers take for a program's own.
const OWN_MEMORY: u64 = 0x5500_0000_0000;

const MARK_SHIFT: u32 = MARK_MASK.trailing_zeros();
const MARKS: u32 = 32;

/// The address space of a process, with its taken ranges.
#[derive(Debug, Clone, Default)]
pub struct Space {
    taken: Vec<Range<u64>>,
}

impl Space {
    pub fn new(maps: &[Mapping]) -> Space {
        let mut taken: Vec<_> = maps
            .iter()
            .map(|mapping| mapping.start..mapping.end)
            .collect();
        taken.sort_by_key(|range| range.start);
        Space { taken }
    }

    pub fn take(&mut self, range: Range<u64>) {
        let place = self
            .taken
            .partition_point(|other| other.start < range.start);
        self.taken.insert(place, range);
    }

    pub fn is_free(&self, range: &Range<u64>) -> bool {
        if range.start < LOWEST || range.end > TOP || range.start >= range.end {
            return false;
        }
        let next = self.taken.partition_point(|other| other.end <= range.start);
        self.taken
            .get(next)
            .is_none_or(|other| other.start >= range.end)
    }

    /// A free place for memory that no code has to reach.
    pub fn own_memory(&self, bytes: u64, align: u64) -> Option<u64> {
        let mut at = OWN_MEMORY.next_multiple_of(align);
        while at + bytes <= TOP {
            let range = at..at + bytes;
            if self.is_free(&range) {
                return Some(at);
            }
            let next = self.taken.partition_point(|other| other.end <= range.start);
            at = self.taken.get(next)?.end.next_multiple_of(align);
        }
        None
    }

    /// A distance at which the mirrors of all `stacks` (each with room to grow around it) fall on free addresses.
    pub fn mirror(&self, stacks: &[Range<u64>]) -> Option<i64> {
        const STEP: i64 = 1 << 40;
        let shifted = |range: &Range<u64>, by: i64| {
            Some(range.start.checked_add_signed(by)?..range.end.checked_add_signed(by)?)
        };
        (1..64)
            .flat_map(|step| [-(step * 16 % 63 + 1) * STEP, (step * 16 % 63 + 1) * STEP])
            .find(|distance| {
                stacks.iter().all(|stack| {
                    shifted(stack, *distance).is_some_and(|range| self.is_free(&range))
                })
            })
    }

    /// A place for an arena that reaches all of `module` and whose address has `mark`'s bits; below the module where
    /// possible, since heaps and mappings grow on other sides.
    pub fn arena(&self, module: &Range<u64>, mark: u32) -> Option<u64> {
        let lowest = module
            .end
            .saturating_sub(REACH)
            .max(LOWEST)
            .next_multiple_of(ARENA_BYTES);
        let highest = (module.start + REACH).saturating_sub(ARENA_BYTES);
        let below = |at: &u64| *at < module.start;
        let fits = |at: &u64| mark_of(*at) == mark && self.is_free(&(*at..at + ARENA_BYTES));
        let places = || (lowest..=highest).step_by(ARENA_BYTES as usize);
        places()
            .filter(below)
            .find(fits)
            .or_else(|| places().filter(fits).last())
    }

    /// Bits that arenas for all of `modules` can have, and that none of their code has if that can be. An arena above a
    /// module at a fixed address ends the room of the heap that grows behind that: of several, the bits that leave most.
    pub fn mark(&self, modules: &[Range<u64>]) -> Option<u32> {
        let room = |mark: u32| {
            let rooms = modules.iter().map(|module| {
                let arena = self.arena(module, mark)?;
                Some(arena.checked_sub(module.end).unwrap_or(u64::MAX))
            });
            rooms.min().unwrap_or(Some(0))
        };
        let unmistakable = |mark: u32| {
            let step = ARENA_BYTES as usize;
            modules.iter().all(|module| {
                let begin = module.start / ARENA_BYTES * ARENA_BYTES;
                (begin..module.end)
                    .step_by(step)
                    .all(|at| mark_of(at) != mark)
            })
        };
        let mut best: Option<(bool, u64, u32)> = None;
        for mark in (0..MARKS).map(|mark| mark << MARK_SHIFT) {
            let Some(room) = room(mark) else {
                continue;
            };
            let known = best.map(|(unmistakable, room, _)| (unmistakable, room));
            let found = (unmistakable(mark), room);
            if known.is_none_or(|known| found > known) {
                best = Some((found.0, found.1, mark));
            }
            if found == (true, u64::MAX) {
                break;
            }
        }
        best.map(|(.., mark)| mark)
    }
}

pub fn mark_of(address: u64) -> u32 {
    address as u32 & MARK_MASK
}

/// Whether code in the arena at `arena` reaches everything in `module`, and the other way round.
pub fn reaches(arena: u64, module: &Range<u64>) -> bool {
    let low = arena.min(module.start);
    let high = (arena + ARENA_BYTES).max(module.end);
    high - low <= REACH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typical() -> Space {
        let mut space = Space::default();
        for range in [
            0x5555_5555_4000..0x5555_5560_0000,
            0x5555_5560_0000..0x5555_5570_0000,
            0x7f12_3400_0000..0x7f12_3500_0000,
            0x7ffc_1234_0000..0x7ffc_1236_1000,
        ] {
            space.take(range);
        }
        space
    }

    #[test]
    fn arenas_are_free_marked_and_in_reach() {
        let space = typical();
        let modules = [
            0x5555_5555_4000..0x5555_5560_0000,
            0x7f12_3400_0000..0x7f12_3500_0000,
        ];
        let mark = space.mark(&modules).unwrap();
        for module in &modules {
            let arena = space.arena(module, mark).unwrap();
            assert_eq!(mark_of(arena), mark);
            assert_eq!(arena % ARENA_BYTES, 0);
            assert!(space.is_free(&(arena..arena + ARENA_BYTES)));
            assert!(reaches(arena, module));
            assert!(arena < module.start, "below, where no heap grows");
        }
    }

    #[test]
    fn an_executable_at_a_fixed_low_address_gets_an_arena_above() {
        let mut space = Space::default();
        space.take(0x40_0000..0x60_0000);
        space.take(0x60_0000..0x80_0000);
        let module = 0x40_0000..0x60_0000;
        let mark = space.mark(std::slice::from_ref(&module)).unwrap();
        let arena = space.arena(&module, mark).unwrap();
        assert!(arena > module.end && reaches(arena, &module));
        assert!(arena - module.end > 0x7000_0000, "the heap has room");
    }

    #[test]
    fn mirrors_fall_on_free_addresses() {
        let mut space = typical();
        let stacks = [
            0x7ffc_0000_0000..0x7ffc_1236_1000,
            0x7f00_0000_0000..0x7f12_3400_0000,
        ];
        let first = space.mirror(&stacks).unwrap();
        let shifted = |by: i64| stacks[0].start.checked_add_signed(by).unwrap();
        space.take(shifted(first)..shifted(first) + 4096);
        let second = space.mirror(&stacks).unwrap();
        assert_ne!(first, second);
        for stack in &stacks {
            let at = stack.start.checked_add_signed(second).unwrap();
            assert!(space.is_free(&(at..at + (stack.end - stack.start))));
        }
    }

    #[test]
    fn own_memory_goes_around_what_is_there() {
        let mut space = Space::default();
        let first = space.own_memory(1 << 20, 1 << 16).unwrap();
        space.take(first..first + (1 << 20));
        let second = space.own_memory(1 << 20, 1 << 16).unwrap();
        assert!(second >= first + (1 << 20) && second % (1 << 16) == 0);
    }
}
