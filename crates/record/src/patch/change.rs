//! Changes to a program's text.

use anyhow::{Context, Result};
use nopal_agent::Thunk;
use nopal_plan::{JUMP, LONGEST_WINDOW, Site};
use nopal_process::{Memory, Patch};
use nopal_symbols::MARKER_NOP;
use std::ops::Range;

/// A jump at a site, to its thunk or hook, or a breakpoint that leads to its detour. Generated code holds it as these
/// bytes, so that the change can be undone without other knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Change {
    pub address: u64,
    /// The target of the jump; a thunk's switch is its first two bytes.
    pub entry: u64,
    /// The address of the displaced instructions.
    pub body: u64,
    /// In the trace; 0 for a hook or a marker; or what it is, see below.
    pub number: u32,
    window: u8,
    before: [u8; LONGEST_WINDOW],
}

/// The number of a word of data.
const WORD: u32 = u32::MAX;
/// The number of a probe, and of one that a breakpoint leads to.
pub const PROBE: u32 = u32::MAX - 1;
pub const BREAKPOINT: u32 = u32::MAX - 2;

const BREAKPOINT_BYTE: u8 = 0xcc;

const BYTES: usize = size_of::<Change>();
const _: () = assert!(BYTES == 3 * 8 + 4 + 1 + LONGEST_WINDOW, "no padding");

impl Change {
    pub fn new(base: u64, site: &Site, thunk: &Thunk, number: u32) -> Result<Change> {
        let change = Change {
            address: base.wrapping_add(site.address),
            window: site.window,
            before: site.expected,
            entry: thunk.entry,
            body: thunk.body,
            number,
        };
        i32::try_from(change.distance()).context("a thunk is out of reach")?;
        Ok(change)
    }

    /// The layout of changes in generated code.
    pub fn to_bytes(changes: &[Change]) -> &[u8] {
        // SAFETY: no padding, as the assertion above has it; bytes have no invalid values.
        unsafe { std::slice::from_raw_parts(changes.as_ptr().cast(), size_of_val(changes)) }
    }

    /// From memory that anybody may have written. Those that no window and jump can be are left out.
    pub fn from_bytes(bytes: &[u8]) -> Vec<Change> {
        let read = |bytes: &[u8; BYTES]| {
            // SAFETY: as many bytes as are read; any are a valid Change.
            unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<Change>()) }
        };
        let possible = |change: &Change| {
            let least = if change.is_breakpoint() { 1 } else { JUMP };
            (least..=LONGEST_WINDOW).contains(&change.window.into())
                && change.address < 1 << 47
                && (change.is_word() || i32::try_from(change.distance()).is_ok())
        };
        let all = bytes.as_chunks::<BYTES>().0.iter().map(read);
        all.filter(possible).collect()
    }

    /// A word of data that is an address in generated code, and `idle` without: it is written by other means.
    pub fn of_word(address: u64, idle: u64, value: u64) -> Change {
        let mut before = [0; LONGEST_WINDOW];
        before[..8].copy_from_slice(&idle.to_le_bytes());
        Change {
            address,
            entry: value,
            body: value,
            number: WORD,
            window: 8,
            before,
        }
    }

    /// Whether it leads to code that is not generated: the marker's own.
    pub fn is_of_marker(&self) -> bool {
        let off = [MARKER_NOP, [0; JUMP]];
        off.iter().any(|off| off == self.before())
    }

    /// Whether it is a function's, with a thunk that can be switched.
    pub fn has_thunk(&self) -> bool {
        self.number != 0 && !self.is_word() && !self.is_probe()
    }

    pub fn is_probe(&self) -> bool {
        self.number == PROBE || self.is_breakpoint()
    }

    pub fn is_breakpoint(&self) -> bool {
        self.number == BREAKPOINT
    }

    /// Whether both need some of the same bytes.
    pub fn overlaps(&self, other: &Range<u64>) -> bool {
        self.window().start < other.end && other.start < self.window().end
    }

    pub fn is_word(&self) -> bool {
        self.number == WORD
    }

    /// The change that switches a marker on: a jump to `on` replaces its NOP; if it tests a word, the same bytes, which
    /// are not 0.
    pub fn of_marker(address: u64, off: [u8; JUMP], on: u64) -> Result<Change> {
        let mut before = [0; LONGEST_WINDOW];
        before[..JUMP].copy_from_slice(&off);
        let change = Change {
            address,
            window: JUMP as u8,
            before,
            entry: on,
            body: on,
            number: 0,
        };
        i32::try_from(change.distance()).context("the code of a marker is out of reach")?;
        Ok(change)
    }

    fn distance(&self) -> i64 {
        let end = self.address.wrapping_add(JUMP as u64);
        self.entry.wrapping_sub(end) as i64
    }

    /// The two bytes with which the thunk begins when it is on, or off.
    pub fn switch(&self, on: bool) -> [u8; 2] {
        let thunk = Thunk {
            entry: self.entry,
            body: self.body,
            after_call: None,
        };
        thunk.switch(on)
    }

    /// The bytes that the jump displaces, or the instruction of which a breakpoint takes the first.
    pub fn window(&self) -> Range<u64> {
        self.address..self.address + self.bytes() as u64
    }

    fn bytes(&self) -> usize {
        usize::from(self.window).min(LONGEST_WINDOW)
    }

    /// Whether the process holds it.
    pub fn is_made(&self, memory: &Memory) -> bool {
        let mut found = [0; LONGEST_WINDOW];
        let found = &mut found[..self.bytes()];
        memory.read(self.address, found).is_ok() && *found == self.after()[..self.bytes()]
    }

    /// The bytes of the window without the change.
    pub fn before(&self) -> &[u8] {
        &self.before[..self.bytes()]
    }

    /// Whether the window of `other` lies in this one.
    pub fn displaces(&self, other: &Change) -> bool {
        self.window().start <= other.address && other.window().end <= self.window().end
    }

    /// Makes the change in displaced instructions that hold its window at `at`, of a body that runs at `body`. False
    /// where they hold something else.
    pub fn make_in_body(&self, code: &mut [u8], at: usize, body: u64) -> bool {
        let moved = self.moved_to(body.wrapping_add(at as u64), true);
        let (Some(window), Ok(moved)) = (code.get_mut(at..at + JUMP), moved) else {
            return false;
        };
        let fits = *window == *self.before();
        if fits {
            window.copy_from_slice(&moved);
        }
        fits
    }

    /// What a marker's place holds when it is displaced to an address.
    pub fn moved_to(&self, address: u64, on: bool) -> Result<[u8; JUMP]> {
        let mut bytes = [0; JUMP];
        bytes.copy_from_slice(&self.before[..JUMP]);
        if on {
            let distance = self.entry.wrapping_sub(address.wrapping_add(JUMP as u64)) as i64;
            let distance = i32::try_from(distance).context("a marker's code is out of reach")?;
            bytes[0] = 0xe9;
            bytes[1..].copy_from_slice(&distance.to_le_bytes());
        }
        Ok(bytes)
    }

    /// What it holds with it, in its first bytes: only those of the jump or the breakpoint differ.
    fn after(&self) -> [u8; LONGEST_WINDOW] {
        let mut after = self.before;
        if self.is_word() {
            after[..8].copy_from_slice(&self.entry.to_le_bytes());
            return after;
        }
        if self.is_breakpoint() {
            after[0] = BREAKPOINT_BYTE;
            return after;
        }
        after[0] = 0xe9;
        after[1..JUMP].copy_from_slice(&(self.distance() as i32).to_le_bytes());
        after
    }
}

/// Changes, in the order in which they are given, ready to be made or taken back.
pub struct Patches<'a> {
    changes: &'a [Change],
    after: Vec<[u8; LONGEST_WINDOW]>,
}

impl Patches<'_> {
    pub fn of(changes: &[Change]) -> Patches<'_> {
        Patches {
            changes,
            after: changes.iter().map(Change::after).collect(),
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&Change, &[u8])> {
        let both = self.changes.iter().zip(&self.after);
        both.map(|(change, after)| (change, &after[..change.bytes()]))
    }

    pub fn insertion(&self) -> Vec<Patch<'_>> {
        self.pairs()
            .map(|(change, after)| Patch {
                address: change.address,
                expected: change.before(),
                new: after,
            })
            .collect()
    }

    pub fn removal(&self) -> Vec<Patch<'_>> {
        self.pairs()
            .map(|(change, after)| Patch {
                address: change.address,
                expected: after,
                new: change.before(),
            })
            .collect()
    }
}
