//! Changes to a program's text.

use anyhow::{Context, Result};
use nopal_agent::{BREAKPOINT, Switched, Thunk, jump, short_jump};
use nopal_plan::{JUMP, LONGEST_WINDOW, SHORT_JUMP, Site};
use nopal_process::{Memory, Patch};
use nopal_symbols::MARKER_NOP;
use std::ops::Range;

/// The kind of text that is changed, which decides the bytes that are written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A jump to the thunk of a function with this number in the trace.
    Function(u32),
    /// A jump to code of nopal's that runs before a function of the program's.
    Hook,
    /// A jump to a marker's own code in place of its NOP; or, where it tests a word, the same bytes, which are not 0.
    Marker,
    /// The address of generated code in a word of data. It is written by other means.
    Word,
    /// A jump to the detour of a probe.
    Probe,
    /// A breakpoint that leads to one.
    Breakpoint,
    /// A jump to a function's thunk in padding, to which a short jump at the function leads. It is there before that is,
    /// and after: a thread may be on its way from one to the other.
    Hole,
}

/// A change at a place, and how to undo it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub address: u64,
    /// The target of the jump; a thunk's switch is its first two bytes.
    pub entry: u64,
    /// The address of the displaced instructions.
    pub body: u64,
    pub kind: Kind,
    /// The distance of a short jump to the hole that holds the jump to `entry`; 0 without.
    pub(super) reach: i8,
    pub(super) window: u8,
    pub(super) before: [u8; LONGEST_WINDOW],
}

impl Change {
    pub fn new(base: u64, site: &Site, thunk: &Thunk, kind: Kind) -> Result<Change> {
        let change = Change {
            address: base.wrapping_add(site.address),
            window: site.window,
            before: site.expected,
            entry: thunk.entry,
            body: thunk.body,
            kind,
            reach: site.reach().unwrap_or(0),
        };
        i32::try_from(change.distance()).context("a thunk is out of reach")?;
        Ok(change)
    }

    /// The jump in a function's hole, which has these bytes in the file.
    pub fn of_hole(function: &Change, padding: [u8; JUMP]) -> Result<Change> {
        let mut before = [0; LONGEST_WINDOW];
        before[..JUMP].copy_from_slice(&padding);
        let change = Change {
            address: function.hole().context("a function without a hole")?,
            window: JUMP as u8,
            before,
            kind: Kind::Hole,
            reach: 0,
            ..*function
        };
        i32::try_from(change.distance()).context("a thunk is out of reach")?;
        Ok(change)
    }

    /// Where the function's short jump leads, if it has one.
    pub fn hole(&self) -> Option<u64> {
        let end = self.address.wrapping_add(SHORT_JUMP as u64);
        (self.reach != 0).then(|| end.wrapping_add_signed(self.reach.into()))
    }

    pub fn is_hole(&self) -> bool {
        self.kind == Kind::Hole
    }

    /// Whether this is the jump in a function's hole, to the same thunk.
    pub fn serves(&self, function: &Change) -> bool {
        self.is_hole() && function.hole() == Some(self.address) && function.entry == self.entry
    }

    /// A word of data that is an address in generated code, and `idle` without.
    pub fn of_word(address: u64, idle: u64, value: u64) -> Change {
        let mut before = [0; LONGEST_WINDOW];
        before[..8].copy_from_slice(&idle.to_le_bytes());
        Change {
            address,
            entry: value,
            body: value,
            kind: Kind::Word,
            reach: 0,
            window: 8,
            before,
        }
    }

    /// Whether this may be changed, and undone: others could have written into generated code, from which it was read.
    pub(super) fn is_possible(&self) -> bool {
        let may_be_short = matches!(self.kind, Kind::Function(_) | Kind::Hook | Kind::Probe);
        let least = match self.kind {
            Kind::Breakpoint => 1,
            _ if self.reach != 0 => SHORT_JUMP,
            _ => JUMP,
        };
        let off = [MARKER_NOP, [0; JUMP]];
        (least..=LONGEST_WINDOW).contains(&self.window.into())
            && self.address < 1 << 47
            && (self.reach == 0 || may_be_short)
            && (self.kind == Kind::Word || i32::try_from(self.distance()).is_ok())
            && (self.kind != Kind::Marker || off.iter().any(|off| off == self.before()))
    }

    /// Whether it leads to generated code. A marker's jump leads to code of the program's.
    pub fn leads_into(&self, generated: &Range<u64>) -> bool {
        match self.kind {
            Kind::Marker | Kind::Word => true,
            _ => generated.contains(&self.entry),
        }
    }

    /// The number of the function whose thunk it leads to.
    pub fn function(&self) -> Option<u32> {
        match self.kind {
            Kind::Function(number) => Some(number),
            _ => None,
        }
    }

    pub fn is_probe(&self) -> bool {
        matches!(self.kind, Kind::Probe | Kind::Breakpoint)
    }

    pub fn is_breakpoint(&self) -> bool {
        self.kind == Kind::Breakpoint
    }

    /// Whether both need some of the same bytes.
    pub fn overlaps(&self, other: &Range<u64>) -> bool {
        self.window().start < other.end && other.start < self.window().end
    }

    /// The same of what leads to its thunk: it, or the jump in its hole.
    pub fn touches(&self, text: &Range<u64>) -> bool {
        let in_hole = |hole: u64| hole < text.end && text.start < hole + JUMP as u64;
        self.overlaps(text) || self.hole().is_some_and(in_hole)
    }

    /// The change that switches a marker on, whose code is at `on`.
    pub fn of_marker(address: u64, off: [u8; JUMP], on: u64) -> Result<Change> {
        let mut before = [0; LONGEST_WINDOW];
        before[..JUMP].copy_from_slice(&off);
        let change = Change {
            address,
            window: JUMP as u8,
            before,
            entry: on,
            body: on,
            kind: Kind::Marker,
            reach: 0,
        };
        i32::try_from(change.distance()).context("the code of a marker is out of reach")?;
        Ok(change)
    }

    fn distance(&self) -> i64 {
        let end = self.address.wrapping_add(JUMP as u64);
        self.entry.wrapping_sub(end) as i64
    }

    /// The two bytes with which the thunk begins. Only that of a function can count.
    pub fn switch(&self, to: Switched) -> [u8; 2] {
        let thunk = Thunk {
            entry: self.entry,
            body: self.body,
            after_call: None,
        };
        thunk.switch(to)
    }

    /// The bytes that, written at `entry`, lead past all recording. `None` if no jump in place of a function's first
    /// instructions leads to `entry`.
    pub fn way_past(&self) -> Option<Vec<u8>> {
        let end = self.entry.wrapping_add(JUMP as u64);
        let distance = i32::try_from(self.body.wrapping_sub(end) as i64);
        match self.kind {
            Kind::Function(_) => Some(self.switch(Switched::Off).to_vec()),
            Kind::Hook | Kind::Probe => Some(jump(distance.ok()?).to_vec()),
            Kind::Marker | Kind::Word | Kind::Breakpoint | Kind::Hole => None,
        }
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

    /// Whether the process holds what was there before.
    pub fn is_undone(&self, memory: &Memory) -> bool {
        let mut found = [0; LONGEST_WINDOW];
        let found = &mut found[..self.bytes()];
        memory.read(self.address, found).is_ok() && found == self.before()
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

    /// The bytes of a marker's place when it is displaced to an address.
    pub fn moved_to(&self, address: u64, on: bool) -> Result<[u8; JUMP]> {
        let mut bytes = [0; JUMP];
        bytes.copy_from_slice(&self.before[..JUMP]);
        if on {
            let distance = self.entry.wrapping_sub(address.wrapping_add(JUMP as u64)) as i64;
            let distance = i32::try_from(distance).context("a marker's code is out of reach")?;
            bytes = jump(distance);
        }
        Ok(bytes)
    }

    /// The window's bytes with the change: only the first ones, of the jump or the breakpoint, differ.
    fn after(&self) -> [u8; LONGEST_WINDOW] {
        let mut after = self.before;
        match self.kind {
            Kind::Word => after[..8].copy_from_slice(&self.entry.to_le_bytes()),
            Kind::Breakpoint => after[0] = BREAKPOINT,
            _ if self.reach != 0 => after[..SHORT_JUMP].copy_from_slice(&short_jump(self.reach)),
            _ => after[..JUMP].copy_from_slice(&jump(self.distance() as i32)),
        }
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

    /// Those of the same places that lead elsewhere, from what `others` have written there.
    pub fn redirection<'a>(&'a self, others: &'a Patches<'_>) -> Vec<Patch<'a>> {
        let pairs = self.pairs().zip(others.pairs());
        pairs
            .map(|((change, after), (_, before))| Patch {
                address: change.address,
                expected: before,
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
