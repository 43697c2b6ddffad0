//! Calls of a thread in the kernel, inside the call of its program that led there.
//!
//! Calls of a thread nest in the kernel, on whichever stack: an interrupt returns before the call that it interrupted
//! goes on. So an exit ends the topmost call of its function, whatever its tag. A BPF trampoline calls the rest of a
//! function that has been entered, and so moves its slot. Calls above were left without an exit. When the thread is in
//! its program again, no call is open in the kernel.

use nopal_abi::{Cursor, Event, Style, key_of};

use super::frame::{Ending, Frame, Sink};
use super::known::lose;
use super::rebuilder::{CallRebuilder, DEPTH_LIMIT};
use super::stay::Stay;

impl CallRebuilder {
    /// The next records are the kernel's, or the program's.
    pub(super) fn turn(&mut self, is_of_kernel: bool, clock: u64, sink: &mut dyn Sink) {
        match self.stay {
            None if is_of_kernel => {
                self.stay = Some(Stay {
                    from: self.frames.len(),
                    since: clock,
                });
            }
            Some(stay) if !is_of_kernel => {
                self.leave_above(stay.from, sink);
                self.stay = None;
            }
            _ => {}
        }
    }

    /// Records of the kernel are missing.
    #[cold]
    pub(super) fn lose_stay(&mut self, mut stay: Stay, sink: &mut dyn Sink) {
        self.leave_above(stay.from, sink);
        stay.lose();
        self.stay = Some(stay);
    }

    /// Takes one record, as `step` does.
    pub(super) fn step_in_kernel(
        &mut self,
        stay: Stay,
        records: &mut Cursor,
        sink: &mut dyn Sink,
    ) -> bool {
        let Some(record) = records.take(self.last_clock) else {
            if records.word().is_some() {
                self.lose_stay(stay, sink);
            }
            return false;
        };
        let clock = record.clock;
        match record.event {
            Event::Entry {
                site,
                style,
                arguments,
                ..
            } => {
                self.tick(clock);
                if self.frames.len() >= DEPTH_LIMIT {
                    self.lose_stay(stay, sink);
                }
                // Above all frames of programs, as kernels are.
                let frame = Frame::new(clock, u64::MAX >> 4, key_of(site, 0), style);
                self.begin(frame, arguments.copied(), sink);
            }
            Event::Exit {
                site,
                result,
                unwound,
                ..
            } => {
                self.tick(clock);
                let ending = Ending {
                    clock,
                    result,
                    unwound,
                };
                self.exit_in_kernel(stay, key_of(site, 0), ending, sink);
            }
            Event::Hole => {
                self.lose_stay(stay, sink);
                self.last_clock = clock;
            }
            Event::CallSite { .. } | Event::Resync { .. } => self.last_clock = clock,
            Event::ShortCalls { sites } => self.short(clock, sites, sink),
            Event::Marker { event, payload } => {
                self.last_clock = clock;
                sink.mark(clock, event, payload, &self.frames);
            }
        }
        true
    }

    fn exit_in_kernel(&mut self, stay: Stay, key: u32, ending: Ending, sink: &mut dyn Sink) {
        let frames = &self.frames[stay.from.min(self.frames.len())..];
        let found = self.budget.search(frames, |frame| frame.ends_with(key));
        let Some(at) = found else {
            // It goes under the others: it began before the stay's records did.
            let since = match frames {
                [] => stay.since.min(ending.clock),
                _ => ending.clock,
            };
            let mut frame = Frame::new(since, u64::MAX >> 4, key, Style::Wrapped);
            frame.child = ending.clock - since;
            sink.stray(&frame, ending);
            return;
        };
        self.leave_above(stay.from + at + 1, sink);
        let cursor = self.cursor;
        self.finish(ending, sink);
        self.cursor = cursor;
    }

    /// Frames from here on were left at an unknown time.
    fn leave_above(&mut self, depth: usize, sink: &mut dyn Sink) {
        if self.frames.len() <= depth {
            return;
        }
        let clock = self.event_clock;
        let left = self.frames.split_off(depth);
        let begin = left.first().map_or(clock, |frame| frame.clock);
        lose(left, clock, true, &self.known, sink);
        if let Some(under) = self.frames.last_mut() {
            under.child = under.child.saturating_add(clock.saturating_sub(begin));
        }
    }
}
