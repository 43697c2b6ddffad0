//! Makes pieces of a thread's calls.

use nopal_analysis::calls::{CallRebuilder, Ending, Frame, Past, Plain, RUN, Sink, Style};
use nopal_analysis::range::LostCall;
use nopal_trace::ThreadInfo;

/// Takes the pieces of calls.
pub trait Pieces {
    /// A call of `site` begins at `clock`.
    fn call(&mut self, depth: usize, site: u32, clock: u64);
    /// A piece ends.
    fn piece(&mut self, depth: usize, open: Open, end: u64);
    /// Either of the two, which may be done without a branch: `exit` is 0 for a call at `clock`, and 1 for the end of
    /// `open` there. Both are of `site`.
    #[inline(always)]
    fn event(&mut self, depth: usize, site: u32, exit: u64, open: Open, clock: u64) {
        match exit {
            0 => self.call(depth, site, clock),
            _ => self.piece(depth, open, clock),
        }
    }
    /// A marker.
    fn marker(&mut self, _clock: u64, _event: u32, _payload: &[u64]) {}
    /// Records are missing in this time.
    fn missing(&mut self, _begin: u64, _end: u64) {}
}

/// A piece that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// `u64::MAX` for a call whose end is not recorded: its piece has no length.
    pub begin: u64,
    /// The clock at which its call began.
    pub clock: u64,
    pub site: u32,
}

impl Open {
    fn is(&self, frame: &Frame) -> bool {
        self.clock == frame.clock && self.site == frame.site()
    }
}

/// Follows the stack of a thread, and passes its pieces on.
///
/// The sink is told of most changes of the stack. Silent changes are found by comparing the top of the stack: below a
/// call that stands at the same depth as before, nothing has changed.
pub struct Chart<P> {
    /// The first `depth` of these.
    open: Vec<Open>,
    depth: usize,
    /// Counter at the last entry or exit.
    now: u64,
    /// Entries and exits.
    pub events: u64,
    /// The time since which a call without a known entry was open.
    pub stray: Option<u64>,
    /// The clock of the last state of the thread that is kept, and calls that were open there and were lost since, as last
    /// known to be open before.
    pub kept: u64,
    pub lost: Vec<LostCall>,
    pub past: Past,
    pub pieces: P,
}

impl<P: Pieces> Chart<P> {
    /// A thread with these calls open at `clock`.
    pub fn new(frames: &[Frame], clock: u64, pieces: P) -> Chart<P> {
        let mut chart = Chart {
            open: Vec::new(),
            depth: 0,
            now: clock,
            events: 0,
            stray: None,
            kept: 0,
            lost: Vec::new(),
            past: Past::default(),
            pieces,
        };
        chart.push(frames, clock);
        chart
    }

    /// The pieces that have begun.
    pub fn open(&self) -> &[Open] {
        &self.open[..self.depth]
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// The thread's records end, before which the rebuilder stands.
    pub fn reach(&mut self, rebuilder: &CallRebuilder, thread: &ThreadInfo) {
        if self.depth > 0 && thread.alive_until > 0 {
            self.now = self.now.max(rebuilder.open_until(thread.alive_until));
        }
    }

    /// Ends all pieces.
    pub fn finish(&mut self) {
        self.cut(0);
    }

    fn push(&mut self, frames: &[Frame], clock: u64) {
        self.open.resize(
            self.open.len().max(self.depth + frames.len()),
            Open::default(),
        );
        for (open, frame) in self.open[self.depth..].iter_mut().zip(frames) {
            *open = Open {
                begin: match frame.style() {
                    Style::Only => u64::MAX,
                    _ => clock,
                },
                clock: frame.clock,
                site: frame.site(),
            };
        }
        self.depth += frames.len();
    }

    /// Ends the pieces from a depth on, at the last event.
    fn cut(&mut self, depth: usize) {
        while self.depth > depth {
            self.depth -= 1;
            let open = self.open[self.depth];
            self.pieces.piece(self.depth, open, self.now);
        }
    }

    fn is_top(&self, frame: Option<&Frame>) -> bool {
        let top = self.open[..self.depth].last();
        top.is_none() && frame.is_none() || top.zip(frame).is_some_and(|(top, frame)| top.is(frame))
    }

    /// Makes the open pieces those of `frames`, as an event at `clock` shows them.
    #[inline(always)]
    fn follow(&mut self, frames: &[Frame], clock: u64) {
        if self.depth != frames.len() || !self.is_top(frames.last()) {
            self.follow_change(frames, clock);
        }
    }

    #[cold]
    fn follow_change(&mut self, frames: &[Frame], clock: u64) {
        let mut common = self.depth.min(frames.len());
        while common > 0 && !self.open[common - 1].is(&frames[common - 1]) {
            common -= 1;
        }
        self.cut(common);
        self.push(&frames[common..], clock);
    }
}

impl<P: Pieces> Sink for Chart<P> {
    fn takes_runs(&self) -> bool {
        true
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        if let Some((frame, under)) = frames.split_last() {
            self.follow(under, frame.clock);
            self.pieces.call(under.len(), frame.site(), frame.clock);
            self.push(&[*frame], frame.clock);
            self.now = frame.clock;
            self.events += 1;
        }
        self.past.enter(frames, arguments)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.cut(self.depth.min(frames.len() + 1));
        if self.depth == frames.len() + 1 && self.is_top(Some(frame)) {
            self.depth -= 1;
            let open = self.open[self.depth];
            self.pieces.piece(self.depth, open, ending.clock);
        }
        self.follow(frames, ending.clock);
        self.now = ending.clock;
        self.events += 1;
        self.past.leave(frame, ending, frames);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        if clock < self.kept {
            self.lost.push(LostCall::new(frame, clock));
        }
        self.past.lose(frame, clock, counted);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.now = ending.clock;
        if frame.clock < ending.clock {
            let since = self.stray.unwrap_or(u64::MAX);
            self.stray = Some(since.min(frame.clock));
        }
    }

    fn callers(&mut self, callers: u32, frames: &[Frame]) -> u32 {
        self.past.callers(callers, frames)
    }

    fn begin_run(&mut self, frames: &[Frame]) {
        self.follow(frames, self.now);
        let room = self.depth + RUN + 1;
        self.open.resize(self.open.len().max(room), Open::default());
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let Plain {
            site, exit, clock, ..
        } = call;
        let at = self.depth.wrapping_sub(exit as usize);
        let Some(open) = self.open.get_mut(at) else {
            return 0;
        };
        self.pieces.event(at, site, exit, *open, clock);
        // After an exit it is not used.
        *open = Open {
            begin: clock,
            clock,
            site,
        };
        self.depth = at + 1 - exit as usize;
        self.now = clock;
        self.events += 1;
        self.past.plain(call)
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], _frames: &[Frame]) {
        self.pieces.marker(clock, event, payload);
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        self.cut(0);
        self.pieces.missing(clock.saturating_sub(ticks), clock);
    }
}
