//! Arenas: the places of a process's generated code, in reach of the modules that it belongs to.

use crate::memory::code::Code;
use crate::memory::inject::Injector;
use anyhow::{Context, Result, ensure};
use nopal_agent::{ARENA_BYTES, EntryOnly};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
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
    /// The mapped bytes that this process may fill.
    mapped: u64,
    /// Room for blocks that are still to be put in.
    promised: u64,
    /// The file of the last piece, which begins here, while that is filled.
    filled: Option<(Rc<File>, u64)>,
}

impl Arena {
    pub fn new(base: u64) -> Arena {
        Arena {
            base,
            used: 0,
            pieces: Vec::new(),
            mapped: 0,
            promised: 0,
            filled: None,
        }
    }

    /// The same in a forked child. Mapped memory is shared with the parent, which may go on to fill it.
    pub fn fork(&self) -> Arena {
        Arena {
            used: self.mapped,
            promised: 0,
            filled: None,
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

    /// Whether a block of `bytes` fits without mapping more.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.used + bytes <= self.mapped
    }

    /// The address of the next block.
    pub fn next(&self) -> u64 {
        self.base + self.used
    }

    /// Forgets the promised room: no more code will be put there.
    pub fn forget_promises(&mut self) {
        self.promised = 0;
    }

    /// Promises room for a block of `bytes` at most, which is put in after the next `map_promised`.
    pub fn promise(&mut self, bytes: u64) {
        self.promised += whole_pages(bytes);
    }

    /// Whether there is not enough memory for all that is promised.
    pub fn needs_more(&self) -> bool {
        !self.has_room(self.promised)
    }

    /// Maps memory for all that is promised, in one piece. The other threads of the process stand still.
    pub fn map_promised(&mut self, injector: &mut Injector) -> Result<()> {
        if !self.needs_more() {
            return Ok(());
        }
        let bytes = piece(self.promised);
        let at = self.base + self.mapped;
        let (code, file) = injector.map_code(at, bytes)?;
        self.pieces.push(Rc::new(code));
        self.filled = Some((Rc::new(file), at));
        self.used = self.mapped;
        self.mapped += bytes;
        Ok(())
    }

    /// Puts code where `next` has said.
    pub fn put(&mut self, code: &[u8]) -> Result<()> {
        self.write(self.next(), code)?;
        self.keep(code.len());
        Ok(())
    }

    /// Writes code at `at`, behind all that is kept. It goes through the file, while that is open: to store it through our
    /// own mapping takes twice as long, for the page fault at each new page.
    pub fn write(&self, at: u64, code: &[u8]) -> Result<()> {
        let end = self.base + self.mapped;
        ensure!(
            at >= self.next() && at <= end && code.len() as u64 <= end - at,
            "generated code outside of its arena"
        );
        match &self.filled {
            Some((file, begin)) => file
                .write_all_at(code, at - begin)
                .context("no memory for generated code"),
            None => self.piece(at, code.len())?.write(at, code),
        }
    }

    /// Little more will be put in: a file for each process would stay open.
    pub fn close_file(&mut self) {
        self.filled = None;
    }

    /// There is code now in the next `bytes`.
    pub fn keep(&mut self, bytes: usize) {
        self.used += whole_pages(bytes as u64);
    }

    /// Has our own mapping hold all pages with code, before thunks are switched one by one.
    pub fn make_ready(&self) {
        let end = self.next();
        self.pieces.iter().for_each(|piece| piece.make_ready(end));
    }

    /// The piece with `bytes` of code at `address`.
    pub fn piece(&self, address: u64, bytes: usize) -> Result<&Rc<Code>> {
        self.pieces
            .iter()
            .find(|piece| piece.contains(address, bytes))
            .context("no room for generated code")
    }
}

/// A block of thunks that wrap calls, and the changes that make them wrap none.
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
