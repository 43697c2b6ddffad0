//! A call that has begun, and the sink of calls.

use nopal_abi::{Style, site_of, tag_of};

use crate::waits::InCall;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Counter at the entry.
    pub clock: u64,
    /// Ticks spent in frames called from this one, or away on other stacks.
    pub child: u64,
    /// Address of the return slot in units of 16 bytes: exact or too high.
    pub slot: u64,
    /// Site and tag as in a record's upper half; the style above them.
    pub(super) marks: u32,
    /// The sink's data for the frame.
    pub note: u32,
}

const STYLE_SHIFT: u32 = 28;
/// In the marks: part of the self time is uncertain.
const BOUNDED: u32 = 1 << 30;
/// In the marks: the slot is known.
const EXACT: u32 = 1 << 31;

impl Frame {
    #[inline(always)]
    pub(super) const fn new(clock: u64, slot: u64, key: u32, style: Style) -> Frame {
        Frame {
            clock,
            child: 0,
            slot,
            marks: key | (style as u32) << STYLE_SHIFT,
            note: 0,
        }
    }

    /// Whether an exit with `key` ends this frame.
    #[inline(always)]
    pub(super) fn ends_with(&self, key: u32) -> bool {
        self.marks & !(BOUNDED | EXACT) == key | (Style::Wrapped as u32) << STYLE_SHIFT
    }

    /// 0 where an exit with `key` ends this frame.
    #[inline(always)]
    pub(super) fn difference(&self, key: u32) -> u64 {
        u64::from(self.marks ^ key ^ (Style::Wrapped as u32) << STYLE_SHIFT)
    }

    /// 0 where the frame is timed.
    #[inline(always)]
    pub(super) fn only(&self) -> u64 {
        u64::from(self.marks & (Style::Only as u32) << STYLE_SHIFT)
    }

    #[inline(always)]
    pub fn style(&self) -> Style {
        match self.marks >> STYLE_SHIFT & 3 {
            0 => Style::Wrapped,
            1 => Style::Tail,
            _ => Style::Only,
        }
    }

    /// Whether its end is recorded. Otherwise it may have ended before what seems to be called in it.
    pub fn has_end(&self) -> bool {
        self.style() != Style::Only
    }

    #[inline(always)]
    pub fn site(&self) -> u32 {
        site_of(self.marks)
    }

    /// Whether the self time, by ticks and `child`, is a lower bound.
    pub fn is_bounded(&self) -> bool {
        self.marks & BOUNDED != 0
    }

    pub(super) fn bound(&mut self) {
        self.marks |= BOUNDED;
    }

    /// All of its self time is certain.
    pub(super) fn settle(&mut self) {
        self.marks &= !BOUNDED;
    }

    /// The part of it behind a clock.
    pub fn since(&self, clock: u64) -> Frame {
        let before = clock.saturating_sub(self.clock);
        Frame {
            clock: self.clock + before,
            child: self.child.saturating_sub(before),
            ..*self
        }
    }

    pub fn is_exact(&self) -> bool {
        self.marks & EXACT != 0
    }

    pub(super) fn with_slot_known(mut self) -> Frame {
        self.marks |= EXACT;
        self
    }

    /// The ticks that it adds to the time of its caller's callees if it is left at `clock`.
    pub(super) fn ticks_until(&self, clock: u64) -> u64 {
        match self.style() {
            Style::Only => self.child,
            Style::Wrapped | Style::Tail => clock.saturating_sub(self.clock),
        }
    }

    /// Whether both are the same call.
    pub(super) fn is_same_call(&self, other: &Frame) -> bool {
        (self.clock, self.slot, self.site()) == (other.clock, other.slot, other.site())
    }

    /// What is known of it as the caller of a stack.
    pub(super) fn as_caller(&self) -> Frame {
        Frame::new(self.clock, self.slot, self.site(), self.style())
    }

    /// Site and tag.
    pub(super) fn key(&self) -> u32 {
        self.marks & ((1 << STYLE_SHIFT) - 1)
    }

    pub fn tag(&self) -> u8 {
        tag_of(self.marks)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub clock: u64,
    pub result: Option<u64>,
    /// By exception, forced unwinding or cancellation.
    pub unwound: bool,
}

/// Receives calls as they begin and end. `frames`: the open ones on the thread's current stack, outermost first.
pub trait Sink {
    /// The last of `frames` has begun. Returns its note, which is less than `u32::MAX - 1`.
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32;
    /// The address that the call returns to which begins next. Not of every trace, nor of every call.
    fn call_site(&mut self, _return_address: u64) {}
    /// As `enter`, for a call of which only the entry is known, and which is left out, though calls in it may not be.
    /// Their frames include its frame.
    fn enter_left_out(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let note = self.enter(frames, arguments);
        if let Some(frame) = frames.last() {
            let mut frame = *frame;
            frame.note = note;
            self.dismiss(&frame, true);
        }
        note
    }
    /// The thread's records begin only here, behind those until `clock`. The calls that are open are passed to `reopen`.
    fn begin_at(&mut self, _clock: u64) {}
    /// As `enter`, for a call that has begun before.
    fn reopen(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.enter(frames, arguments)
    }
    /// The note of the last of `frames` as the caller of calls that are passed to `reopen` after it, and are on another
    /// stack. It has ended, or is passed to `reopen` itself.
    fn note_of_caller(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }
    /// Names the callers of a stack that began in the last of `frames`, whose own callers have the name `callers`. Of use
    /// to a [`super::Past`] only.
    fn callers(&mut self, _callers: u32, _frames: &[Frame]) -> u32 {
        0
    }
    /// `frame` has ended; `frames` are those under it.
    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]);
    /// `frame`, which has begun, is left out after all, as were all calls in it; `counted` as for [`Sink::lose`].
    fn dismiss(&mut self, _frame: &Frame, _counted: bool) {}
    /// The end of `frame` is not known; it was last known to be open at `clock`; `counted` unless it was set aside.
    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool);
    /// An exit of a call whose entry is not known: it was open at the clock of `frame`, which gives the least total and
    /// self time since.
    fn stray(&mut self, frame: &Frame, ending: Ending);
    /// Whether runs of plain calls are passed to `plain` instead of `enter` and `leave`.
    #[inline(always)]
    fn takes_runs(&self) -> bool {
        false
    }
    /// Whether calls of a site may be among those.
    #[inline(always)]
    fn is_plain(&self, _site: u32) -> bool {
        true
    }
    /// Nor are calls that began before the first clock, and records at the second or behind it.
    fn plain_within(&self) -> (u64, u64) {
        (0, u64::MAX)
    }
    /// A call of `site` has begun, with `exit` 0, in the call with this `note`, 0 if there is none; or the call with this
    /// `note` has ended, with `exit` 1, after `ticks`, of which it alone had `own`. Returns the note of a call that has
    /// begun. At most [`super::RUN`] of these come before the next `end_run`.
    fn plain(&mut self, _call: Plain) -> u32 {
        0
    }
    /// A run of plain calls begins, with these frames open.
    fn begin_run(&mut self, _frames: &[Frame]) {}
    fn end_run(&mut self) {}
    /// `frame`, just passed to `leave`, `lose` or `stray`, waited. Only a [`crate::waits::Waiting`] calls this, for calls that
    /// did wait.
    fn waited(&mut self, _frame: &Frame, _clock: u64, _waited: InCall) {}
    /// A marker in the last of `frames`: its event, and its record after the clock.
    fn mark(&mut self, _clock: u64, _event: u32, _payload: &[u64], _frames: &[Frame]) {}
    /// Calls of a site that were left out of the trace since they were short, some time before `clock`.
    fn short(&mut self, _clock: u64, _site: u32, _calls: u32) {}
    /// The selected time ends at `clock`, where this call was the innermost timed one: only calls that are open there end
    /// from here on. Not called if the thread has no later record.
    fn end_at(&mut self, _clock: u64, _innermost: Option<&Frame>) {}
    /// Records of the thread are missing for this many ticks, up to `clock`. All open calls have ended as lost.
    fn missing(&mut self, _clock: u64, _ticks: u64) {}
    /// The thread has left these frames, perhaps for good.
    fn aside(&mut self, _frames: &[Frame]) {}
    /// The thread has returned to these frames.
    fn resume(&mut self, _frames: &[Frame]) {}
}

/// The innermost of the frames that is timed: the time of others is their caller's.
pub fn timed(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().rev().find(|frame| frame.has_end())
}

/// The begin or the end of a call in a run. For a begin, `ticks`, `own` and `under` mean nothing.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    pub site: u32,
    pub exit: u64,
    pub note: u32,
    pub clock: u64,
    pub ticks: u64,
    pub own: u64,
    /// The innermost frame before: for an end, that of the call. If there was none, one that is not timed.
    pub top: &'a Frame,
    /// The frames under the call.
    pub under: &'a [Frame],
}

/// A sink that drops the calls. Its notes tell which calls have arguments.
impl Sink for () {
    fn takes_runs(&self) -> bool {
        true
    }

    fn enter(&mut self, _: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        u32::from(arguments.is_some())
    }
    fn leave(&mut self, _: &Frame, _: Ending, _: &[Frame]) {}
    fn lose(&mut self, _: &Frame, _: u64, _: bool) {}
    fn stray(&mut self, _: &Frame, _: Ending) {}
}
