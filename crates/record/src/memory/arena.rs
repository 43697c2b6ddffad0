//! Arenas: where a process has its generated code, in reach of the modules that it belongs to.

use crate::memory::code::Code;
use crate::memory::inject::Injector;
use anyhow::{Context, Result};
use nopal_agent::{ARENA_BYTES, EntryOnly};
use std::ops::Range;
use std::rc::Rc;

const PAGE: u64 = 4096;

/// Memory is mapped in pieces of this size at least, so that later blocks need no thread to be stopped.
const PIECE_BYTES: u64 = 1 << 20;

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

fn piece(bytes: u64) -> u64 {
    whole_pages(bytes).max(PIECE_BYTES)
}

/// An aligned place of `ARENA_BYTES`, with the agent's image at its start, filled upwards.
#[derive(Debug, Clone)]
pub struct Arena {
    pub base: u64,
    used: u64,
    /// The memory that is mapped, in the order of addresses. A fork has those of its parent, which it does not fill.
    pieces: Vec<Rc<Code>>,
    /// How much is mapped, and may be filled by this process.
    mapped: u64,
    /// Room for blocks that are still to be put in.
    promised: u64,
}

impl Arena {
    pub fn new(base: u64) -> Arena {
        Arena {
            base,
            used: 0,
            pieces: Vec::new(),
            mapped: 0,
            promised: 0,
        }
    }

    /// The same in a forked child. What is mapped is shared with the parent, which may go on to fill it.
    pub fn fork(&self) -> Arena {
        Arena {
            used: self.mapped,
            promised: 0,
            ..self.clone()
        }
    }

    pub fn range(&self) -> Range<u64> {
        self.base..self.base + self.mapped
    }

    /// Whether `bytes` more fit into its place.
    pub fn has_place(&self, bytes: u64) -> bool {
        self.mapped + piece(self.promised + whole_pages(bytes)) <= ARENA_BYTES
    }

    /// Whether a block of `bytes` can be put in without mapping more.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.used + bytes <= self.mapped
    }

    /// Where the next block goes.
    pub fn next(&self) -> u64 {
        self.base + self.used
    }

    /// Nothing is to be put in any more of what room was promised for.
    pub fn forget_promises(&mut self) {
        self.promised = 0;
    }

    /// A block of `bytes` at most will be put in, after the next `map_promised`.
    pub fn promise(&mut self, bytes: u64) {
        self.promised += whole_pages(bytes);
    }

    /// Maps memory for all that is promised, in one piece.
    pub fn map_promised(&mut self, injector: &mut Injector) -> Result<()> {
        if self.has_room(self.promised) {
            return Ok(());
        }
        let bytes = piece(self.promised);
        let at = self.base + self.mapped;
        self.pieces.push(Rc::new(injector.map_code(at, bytes)?));
        self.used = self.mapped;
        self.mapped += bytes;
        Ok(())
    }

    /// Puts code where `next` has said.
    pub fn put(&mut self, code: &[u8]) -> Result<()> {
        self.room(code.len())?.copy_from_slice(code);
        self.keep(code.len());
        Ok(())
    }

    /// The memory at `next`, for a block of `bytes` at most, which `keep` then makes one of the arena's.
    pub fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let at = self.next();
        // SAFETY: behind all that is used; the arena, which nobody else can use meanwhile, gives it to this caller
        // only, and the process cannot write it.
        unsafe { self.piece(at, bytes)?.room(at, bytes) }
    }

    /// There is code now in the first `bytes` of `room`.
    pub fn keep(&mut self, bytes: usize) {
        self.used += whole_pages(bytes as u64);
    }

    /// The piece with `bytes` of code at `address`.
    pub fn piece(&self, address: u64, bytes: usize) -> Result<&Rc<Code>> {
        self.pieces
            .iter()
            .find(|piece| piece.contains(address, bytes))
            .context("no room for generated code")
    }
}

/// A block of thunks that wrap calls, and what makes them wrap none.
#[derive(Debug, Clone)]
pub struct Wrapping {
    code: Rc<Code>,
    low: u64,
    changes: Rc<[EntryOnly]>,
}

impl Wrapping {
    pub fn new(code: &Rc<Code>, low: u64, changes: Vec<EntryOnly>) -> Wrapping {
        Wrapping {
            code: code.clone(),
            low,
            changes: changes.into(),
        }
    }

    /// From now on the thunks wrap no call. Nothing may run in them meanwhile.
    pub fn record_entries_only(&self) -> Result<()> {
        for change in &*self.changes {
            self.code
                .write(self.low + change.offset as u64, &change.bytes)?;
        }
        Ok(())
    }
}
