//! Passes on the selected calls of a thread only.
//!
//! On each stack, the frames outside of all selected calls come first, and all calls in a call that is left out are
//! left out. So the selected frames among the open ones adjoin.

use anyhow::Result;
use nopal_trace::{Clocks, ThreadInfo};

use super::{Choice, Filter};
use crate::calls::{Ending, Frame, Plain, Sink, Style};
use crate::waits::InCall;
use crate::worker::{Times, Worker};

/// Notes of frames that are left out, as are all calls in them.
const NEVER: u32 = u32::MAX;
/// Notes of frames that are outside of all selected calls.
const NOT_YET: u32 = u32::MAX - 1;

/// A worker that gets only the selected calls.
pub struct Selected<'a, W> {
    worker: &'a mut W,
    filter: &'a Filter,
    clocks: &'a Clocks,
    /// Nothing if the worker selects by time itself.
    from: Option<u64>,
    until: Option<u64>,
    /// The worker gets calls from this clock on.
    begin: u64,
    least_ns: u64,
    /// Of the call that begins next; 0 where it is not known.
    return_address: u64,
}

enum Verdict {
    Whole,
    Cut,
    Out,
}

impl<'a, W: Worker> Selected<'a, W> {
    pub fn new(worker: &'a mut W, filter: &'a Filter, clocks: &'a Clocks) -> Selected<'a, W> {
        let (from, until, least_ns) = match worker.times() {
            Times::Own | Times::Near => (None, None, 0),
            Times::Whole | Times::Parts => (filter.from, filter.until, filter.least_ns),
        };
        let begin = match worker.times() {
            Times::Parts => from.unwrap_or(0),
            Times::Whole | Times::Own | Times::Near => 0,
        };
        Selected {
            worker,
            filter,
            clocks,
            from,
            until,
            begin,
            least_ns,
            return_address: 0,
        }
    }

    /// Ends the time then, by the clocks of net times.
    pub fn until(mut self, until: Option<u64>) -> Selected<'a, W> {
        self.until = self.until.and(until);
        self
    }

    /// The selected ones of some frames of a stack.
    fn selected<'f>(&self, frames: &'f [Frame]) -> &'f [Frame] {
        if self.filter.is_everything() {
            return frames;
        }
        let first = frames.partition_point(|frame| frame.note == NOT_YET);
        let frames = &frames[first..];
        let last = frames.partition_point(|frame| frame.note != NEVER);
        &frames[..last]
    }

    fn judge(&self, begin: u64, end: u64) -> Verdict {
        let (from, until) = (self.from, self.until);
        if from.is_some_and(|from| end <= from) || until.is_some_and(|until| begin >= until) {
            return Verdict::Out;
        }
        let is_cut =
            from.is_some_and(|from| begin <= from) || until.is_some_and(|until| end >= until);
        if is_cut && self.worker.times() == Times::Parts {
            return Verdict::Cut;
        }
        let ticks = end.saturating_sub(begin);
        match self.least_ns > 0 && self.clocks.duration_ns(ticks) < self.least_ns {
            true => Verdict::Out,
            false => Verdict::Whole,
        }
    }

    fn note(&self, site: u32, caller: Option<u32>) -> Option<u32> {
        match (self.filter.choice(site), caller) {
            (Choice::No, _) | (_, Some(NEVER)) => Some(NEVER),
            (Choice::Inside, None | Some(NOT_YET)) => Some(NOT_YET),
            _ => None,
        }
    }
}

impl<W: Worker> Sink for Selected<'_, W> {
    /// Whole calls within the time are passed on as they are, unless some are left out.
    fn takes_runs(&self) -> bool {
        self.worker.takes_runs() && self.least_ns == 0 && !self.filter.has_functions()
    }

    #[inline(always)]
    fn is_plain(&self, site: u32) -> bool {
        self.worker.is_plain(site)
    }

    fn plain_within(&self) -> (u64, u64) {
        let from = self.from.map_or(0, |from| from.saturating_add(1));
        (from, self.until.unwrap_or(u64::MAX))
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        self.worker.plain(call)
    }

    /// No call is left out, but one that began behind the time, where there are no runs.
    fn begin_run(&mut self, frames: &[Frame]) {
        self.worker.begin_run(frames);
    }

    fn end_run(&mut self) {
        self.worker.end_run();
    }

    fn call_site(&mut self, return_address: u64) {
        self.return_address = return_address;
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let return_address = std::mem::take(&mut self.return_address);
        let [under @ .., frame] = frames else {
            return NEVER;
        };
        if let Some(note) = self.note(frame.site(), under.last().map(|under| under.note)) {
            return note;
        }
        if self.until.is_some_and(|until| frame.clock >= until) {
            return NEVER;
        }
        if return_address != 0 {
            self.worker.call_site(return_address);
        }
        // The last frame has no note yet.
        let first = under.partition_point(|frame| frame.note == NOT_YET);
        let is_before = self.from.is_some_and(|from| frame.clock <= from);
        match frame.style() == Style::Only && (is_before || self.least_ns > 0) {
            true => self.worker.enter_left_out(&frames[first..], arguments),
            false => self.worker.enter(&frames[first..], arguments),
        }
    }

    fn note_of_caller(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return NEVER;
        };
        let note = self.note(frame.site(), under.last().map(|under| under.note));
        note.unwrap_or_else(|| {
            let first = under.partition_point(|frame| frame.note == NOT_YET);
            self.worker.note_of_caller(&frames[first..], arguments)
        })
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        if frame.note >= NOT_YET {
            return;
        }
        match self.judge(frame.clock, ending.clock) {
            Verdict::Whole => self.worker.leave(frame, ending, self.selected(frames)),
            Verdict::Cut => self
                .worker
                .lose(&frame.since(self.begin), ending.clock, true),
            Verdict::Out => self.worker.dismiss(frame, true),
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        if frame.note >= NOT_YET {
            return;
        }
        match self.judge(frame.clock, clock) {
            Verdict::Whole | Verdict::Cut => {
                self.worker.lose(&frame.since(self.begin), clock, counted)
            }
            Verdict::Out => self.worker.dismiss(frame, counted),
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let is_selected = self.note(frame.site(), None).is_none();
        if is_selected && !matches!(self.judge(frame.clock, ending.clock), Verdict::Out) {
            self.worker.stray(&frame.since(self.begin), ending);
        }
    }

    fn waited(&mut self, frame: &Frame, clock: u64, waited: InCall) {
        if frame.note < NOT_YET && !matches!(self.judge(frame.clock, clock), Verdict::Out) {
            self.worker.waited(frame, clock, waited);
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        let is_selected = match frames.last() {
            Some(frame) => frame.note < NOT_YET,
            None => self.filter.has_outside(),
        };
        let is_within = self.from.is_none_or(|from| clock > from)
            && self.until.is_none_or(|until| clock < until);
        if is_selected && is_within {
            self.worker
                .mark(clock, event, payload, self.selected(frames));
        }
    }

    /// The callers of these calls are not known.
    fn short(&mut self, clock: u64, site: u32, calls: u32) {
        let is_within = self.from.is_none_or(|from| clock > from)
            && self.until.is_none_or(|until| clock < until);
        if is_within && self.least_ns == 0 && self.filter.choice(site) == Choice::Yes {
            self.worker.short(clock, site, calls);
        }
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        let begins_before = |until| clock.saturating_sub(ticks) < until;
        if self.from.is_none_or(|from| clock > from) && self.until.is_none_or(begins_before) {
            let within = clock.saturating_sub(self.begin);
            self.worker.missing(clock, ticks.min(within));
        }
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.worker.aside(self.selected(frames));
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.worker.resume(self.selected(frames));
    }
}

impl<W: Worker> Worker for Selected<'_, W> {
    fn times(&self) -> Times {
        self.worker.times()
    }

    fn awaits(&self, site: u32) -> bool {
        self.worker.awaits(site)
    }

    fn takes_waits(&self) -> bool {
        self.worker.takes_waits()
    }

    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.worker.begin(stream, thread);
    }

    fn pause(&mut self) -> Result<()> {
        self.worker.pause()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::CallRebuilder;
    use crate::filter::Wanted;
    use nopal_abi::{KIND_CALL_SITE, KIND_ENTRY, KIND_EXIT, Word};
    use nopal_trace::{Note, Session, Trace, Writer};

    /// The call sites and the sites of calls that are passed on.
    #[derive(Default)]
    struct Passed(Vec<u64>);

    impl Sink for Passed {
        fn call_site(&mut self, return_address: u64) {
            self.0.push(return_address);
        }

        fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
            self.0
                .extend(frames.last().map(|frame| u64::from(frame.site())));
            0
        }

        fn leave(&mut self, _: &Frame, _: Ending, _: &[Frame]) {}
        fn lose(&mut self, _: &Frame, _: u64, _: bool) {}
        fn stray(&mut self, _: &Frame, _: Ending) {}
    }

    impl Worker for Passed {}

    #[test]
    fn the_call_site_of_a_call_that_is_left_out_is_of_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace");
        let mut writer = Writer::create(&path, Session::default()).unwrap();
        let image = Note::Image {
            image: 1,
            path: "/none/program".into(),
            identity: String::new(),
        };
        let site = |site, name: &str| (site, u64::from(site) << 12, 0x40, name.to_owned());
        let sites = vec![site(1, "one"), site(2, "two")];
        for note in [image, Note::Sites { image: 1, sites }] {
            writer.note(&note).unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        let wanted = Wanted {
            not: vec!["one".into()],
            ..Wanted::default()
        };
        let filter = Filter::new(&trace, &wanted).unwrap();
        let word = |kind, site| Word::new(kind, site, 0x100, 1).0;
        let call_site = |site, address| [word(KIND_CALL_SITE, site), address];
        let call = |site| [word(KIND_ENTRY, site), word(KIND_EXIT, site)];
        let words = [
            call_site(1, 0x10),
            call(1),
            call(2),
            call_site(2, 0x20),
            call(2),
        ]
        .concat();
        let mut passed = Passed::default();
        let mut selected = Selected::new(&mut passed, &filter, trace.clocks());
        CallRebuilder::new().records(&words, 0, false, &mut selected);
        assert_eq!(passed.0, [2, 0x20, 2]);
    }
}
