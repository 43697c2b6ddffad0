//! Positions of a stopped process in text that is about to change: instruction pointers, and words on stacks.

use std::ops::Range;

use anyhow::{Context, Result};

use crate::arch::{LONGEST_COMPUTED_CALL, SYSTEM_CALL, SYSTEM_CALLS, ends_with_computed_call};
use crate::blocked::blocked;
use crate::{Memory, Stopped, Thread};

/// A call that is repeated begins so many bytes before where it returns to.
const CALL_BYTES: u64 = SYSTEM_CALL.len() as u64;

impl Memory {
    /// Whether a system call instruction of the usual kind ends at an address.
    pub fn has_system_call_before(&self, address: u64) -> bool {
        let mut instruction = SYSTEM_CALL.map(|_| 0);
        let before = address.wrapping_sub(CALL_BYTES);
        self.read(before, &mut instruction).is_ok() && instruction == SYSTEM_CALL
    }

    /// Whether a call of an address in a register or in memory may end at an address. An error: it cannot be
    /// read.
    pub fn has_computed_call_before(&self, address: u64) -> Result<bool> {
        let mut code = [0; LONGEST_COMPUTED_CALL];
        let before = address.wrapping_sub(code.len() as u64);
        self.read(before, &mut code)?;
        Ok(ends_with_computed_call(&code))
    }
}

impl Stopped {
    /// Moves threads out of `windows`, which are sorted, do not overlap, and are about to be overwritten. `place` gives
    /// the new address of an instruction in a window, or directly behind it; it must be in memory already.
    ///
    /// A thread is inside a window if its next instruction is there and is not the window's first; or if its last
    /// instruction there was a system call, which the kernel may repeat.
    ///
    /// Returns the indices of windows in which a thread remains, because `place` had no answer, or the thread does not
    /// stop. Their text must not change.
    pub fn move_threads(
        &mut self,
        windows: &[Range<u64>],
        place: impl Fn(u64) -> Option<u64>,
    ) -> Result<Vec<usize>> {
        let memory = Memory::open(self.pid())?;
        // Most of many threads wait at the same place.
        let mut known = (0, false);
        let mut remain = Vec::new();
        for thread in self.threads_mut() {
            let mut registers = thread.registers()?;
            let at = registers.instruction_pointer();
            if known.0 != at {
                known = (at, follows_call(&memory, at));
            }
            let calls = registers.system_call() >= 0 && known.1;
            let Some(window) = enclosing(windows, at, calls) else {
                continue;
            };
            match place(at).filter(|&to| !calls || follows_call(&memory, to)) {
                Some(to) => {
                    registers.set_instruction_pointer(to);
                    thread.set_registers(&registers)?;
                }
                None => remain.push(window),
            }
        }
        for thread in self.late() {
            let at = position(thread)?;
            remain.extend(enclosing(windows, at.instruction, true));
        }
        remain.sort_unstable();
        remain.dedup();
        Ok(remain)
    }

    /// The instruction and stack pointers of all threads, also of those that do not stop.
    pub fn positions(&self) -> Result<Vec<Position>> {
        self.threads()
            .iter()
            .map(|thread| {
                let registers = thread.registers()?;
                Ok(Position {
                    instruction: registers.instruction_pointer(),
                    stack: registers.stack_pointer(),
                    thread_pointer: Some(registers.thread_pointer()),
                })
            })
            .chain(self.late().iter().map(position))
            .collect()
    }
}

/// The instruction and stack pointers of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The next instruction.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// Unknown of a thread that does not stop.
    pub thread_pointer: Option<u64>,
}

fn position(late: &Thread) -> Result<Position> {
    let found = blocked(late.pid(), late.tid());
    let found = found.with_context(|| {
        format!(
            "thread {} of process {} neither stops nor says where it is",
            late.tid(),
            late.pid()
        )
    })?;
    Ok(Position {
        instruction: found.instruction,
        stack: found.stack,
        thread_pointer: None,
    })
}

/// The index of the window that an address is inside of.
fn enclosing(windows: &[Range<u64>], address: u64, calls: bool) -> Option<usize> {
    let last_before = |address: u64| {
        let after = windows.partition_point(|window| window.start <= address);
        let index = after.checked_sub(1)?;
        windows[index].contains(&address).then_some(index)
    };
    // The kernel may also go back to a window's own first byte: the jump will be there.
    let repeated = calls.then(|| last_before(address.wrapping_sub(CALL_BYTES)));
    repeated
        .flatten()
        .or_else(|| last_before(address).filter(|&index| windows[index].start < address))
}

fn follows_call(memory: &Memory, address: u64) -> bool {
    let mut instruction = SYSTEM_CALL;
    memory
        .read(address.wrapping_sub(CALL_BYTES), &mut instruction)
        .is_ok()
        && SYSTEM_CALLS.contains(&instruction)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: [Range<u64>; 3] = [10..15, 15..20, 30..37];

    #[test]
    fn the_first_byte_and_the_end_are_outside() {
        for address in [9, 10, 15, 20, 29, 30, 37, 38, 0, u64::MAX] {
            assert_eq!(enclosing(&WINDOWS, address, false), None, "{address}");
        }
        for (address, window) in [(11, 0), (14, 0), (16, 1), (19, 1), (31, 2), (36, 2)] {
            assert_eq!(enclosing(&WINDOWS, address, false), Some(window));
        }
    }

    #[test]
    fn a_call_that_may_be_repeated_is_where_it_begins() {
        for (address, window) in [
            (12, 0),
            (15, 0),
            (16, 0),
            (17, 1),
            (21, 1),
            (32, 2),
            (38, 2),
        ] {
            assert_eq!(
                enclosing(&WINDOWS, address, true),
                Some(window),
                "{address}"
            );
        }
        for address in [10, 22, 39, 1] {
            assert_eq!(enclosing(&WINDOWS, address, true), None, "{address}");
        }
    }
}
