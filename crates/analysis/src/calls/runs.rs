//! Runs of plain entries and exits, taken without a branch for each.
//!
//! A processor cannot predict whether the next record is an entry or an exit, and a misprediction takes longer than the
//! record. Here the same instructions handle both: a frame is written above the top in any case, and the depth goes up
//! or down by one. A record that is not plain ends the run, and is left to [`CallRebuilder::step`].

use std::hint::select_unpredictable;

use nopal_abi::{Cursor, KIND_ENTRY, Style, Word, site_of};

use super::frame::{Frame, Plain, Sink};
use super::rebuilder::{CallRebuilder, DEPTH_LIMIT, NEAR};
use super::slots::{ABOUT, below};
use super::stack::GROUND;

/// The longest run.
pub const RUN: usize = 256;

impl CallRebuilder {
    /// Takes plain records.
    pub fn run<S: Sink>(&mut self, records: &mut Cursor, sink: &mut S) {
        let (_, until) = sink.plain_within();
        while self.arrival.is_none()
            && self.last_clock < until
            && self.beyond == 0
            && !self.known.is_open()
            && self.stay.is_none()
            && !self.is_stopped
        {
            let taken = self.run_some(records.rest(), sink);
            records.skip(taken);
            if taken < RUN {
                break;
            }
        }
    }

    /// The number of words taken.
    fn run_some<S: Sink>(&mut self, words: &[u64], sink: &mut S) -> usize {
        let plain = words
            .iter()
            .take(RUN)
            .take_while(|word| exit_of(Word(**word)) <= 1 && sink.is_plain(Word(**word).site()))
            .count();
        let words = &words[..plain];
        let mut depth = self.frames.len();
        if words.is_empty() || depth + RUN > DEPTH_LIMIT {
            return 0;
        }
        sink.begin_run(&self.frames);
        let frames = self.frames.with_room(words.len() + 1);
        let (from, until) = sink.plain_within();
        let mut clock = self.last_clock;
        let mut cursor = self.cursor;
        let mut taken = 0;
        let first = depth;
        for word in words.iter().map(|word| Word(*word)) {
            let Some((callers, [top, next, ..])) = frames.split_at_mut_checked(depth + 1) else {
                break;
            };
            let Some(under) = callers.last_mut() else {
                break;
            };
            let (key, exit) = (word.key(), exit_of(word));
            let is_exit = 0u64.wrapping_sub(exit);
            let grounded = u64::from(depth == 0);
            let after = clock.wrapping_add(word.ticks_after(clock));
            let ends = top.difference(key) | grounded | u64::from(top.clock < from);
            let nests = top.only() | (top.slot.wrapping_sub(cursor) & !(NEAR - 1));
            let is_behind = u64::from(after >= until);
            if (ends & is_exit) | (nests & !is_exit & grounded.wrapping_sub(1)) | is_behind != 0 {
                break;
            }
            clock = after;
            let caller = select_unpredictable(depth == 0, cursor.wrapping_add(ABOUT), top.slot);
            let slot = below(caller, key);
            let ticks = clock.wrapping_sub(top.clock);
            under.child = under.child.wrapping_add(ticks & is_exit);
            cursor = (top.slot & is_exit) | (slot & !is_exit);
            let own = ticks.saturating_sub(top.child);
            *next = Frame::new(clock, slot, key, Style::Wrapped);
            next.note = sink.plain(Plain {
                site: site_of(key),
                exit,
                note: top.note,
                clock,
                ticks,
                own,
                top,
                under: callers.get(GROUND..).unwrap_or_default(),
            });
            depth = (depth + 1).wrapping_sub(2 * exit as usize);
            taken += 1;
        }
        let spent = self.frames.keep(depth);
        self.known.spend(spent);
        let has_callers = self.frames.has_callers();
        if (self.known.has_gaps() || has_callers) && enters_ground(&words[..taken], first) {
            self.known.estimate();
            self.frames.begin();
        }
        self.last_clock = clock;
        if let Some(&[before, last]) = words[..taken].last_chunk() {
            self.event_clock = clock - Word(last).ticks_after(before);
        }
        if taken > 0 {
            self.before = std::mem::replace(&mut self.event_clock, clock);
        }
        self.cursor = cursor;
        sink.end_run();
        taken
    }
}

/// Whether one of these is an entry with no frame under it, if `depth` frames are there before the first.
fn enters_ground(words: &[u64], mut depth: usize) -> bool {
    words.iter().any(|word| {
        let exit = exit_of(Word(*word)) as usize;
        let is_first = depth == 0 && exit == 0;
        depth = (depth + 1).wrapping_sub(2 * exit);
        is_first
    })
}

/// 0 for a plain entry, 1 for a plain exit, else more.
#[inline(always)]
fn exit_of(word: Word) -> u64 {
    u64::from(word.kind().wrapping_sub(KIND_ENTRY))
}
