//! The facts about a file that are known before its code is read.

use iced_x86::{Instruction, Register};

use super::how::Callee;
use crate::code::{Code, Marks, Memory};
use crate::frames::Frames;

/// A function, or a part of one.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub address: u64,
    pub end: u64,
    /// Parts that functions may share: their code may belong to any function.
    pub is_part: bool,
}

pub(crate) struct Input<'a> {
    pub memory: &'a Memory<'a>,
    pub code: &'a Code<'a>,
    /// Known beginnings of instructions, sorted by address.
    pub starts: &'a [Start],
    pub is_start: &'a Marks,
    /// Whether addresses are final in the file, so that a number may be one.
    pub absolute: bool,
    pub frames: &'a Frames<'a>,
    /// The functions that leave frames by a jump, where the file may call them.
    pub leaver: Option<Callee>,
    /// The functions that copy or compare memory, of which they get the address as an argument.
    pub copier: Callee,
    /// The functions of other files whose result depends on their return address.
    pub looks_at_caller: Callee,
    /// The words through which code jumps to functions of the file itself, sorted: word, and function.
    pub own_slots: &'a [(u64, u64)],
}

impl Input<'_> {
    /// The function of the file itself to which an indirect branch leads, by the loader's doing.
    pub fn own_function(&self, branch: &Instruction) -> Option<u64> {
        let slot =
            (branch.memory_base() == Register::RIP).then(|| branch.ip_rel_memory_address())?;
        let found = self.own_slots.binary_search_by_key(&slot, |own| own.0);
        found.ok().map(|index| self.own_slots[index].1)
    }
}
