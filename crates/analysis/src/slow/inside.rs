//! What long calls spent their time in.

use std::collections::HashMap;
use std::thread;

use nopal_beside::Mutex;
use nopal_trace::{ThreadInfo, Trace};

use super::SlowCall;
use crate::calls::{CallRebuilder, Ending, Frame, Plain, Sink};
use crate::names::Names;
use crate::waits::Waits;

/// Adds to each call its self times by function, and its time off the processor.
pub fn describe(trace: &Trace, names: &Names, calls: &mut [SlowCall], workers: usize) {
    let threads = trace.threads();
    let left = Mutex::new(calls.iter_mut());
    thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                loop {
                    let next = left.lock().next();
                    let Some(call) = next else { break };
                    call.spent = spent(&threads[call.stream], names, call);
                }
            });
        }
    });
    let Some(waits) = Waits::new(trace) else {
        return;
    };
    for call in calls {
        call.waited = Some(waits.within(call.stream, call.begin, call.end));
    }
}

fn spent(thread: &ThreadInfo, names: &Names, call: &SlowCall) -> Vec<(u32, u64)> {
    let mut inside = Inside {
        names,
        begin: call.begin,
        end: call.end,
        own: HashMap::new(),
    };
    let mut rebuilder = CallRebuilder::new();
    let packets = thread.packets();
    let packets = packets
        .filter(|packet| packet.clock_end() >= call.begin && packet.clock_begin() <= call.end);
    for packet in packets {
        rebuilder.packet(&packet, &mut inside);
        packet.release();
    }
    rebuilder.end(&mut inside);
    let mut spent: Vec<(u32, u64)> = inside.own.into_iter().filter(|(_, own)| *own > 0).collect();
    spent.sort_by_key(|(function, own)| (std::cmp::Reverse(*own), *function));
    spent
}

/// Sums up the self times of calls between two moments. A call that ends there without having begun there is not in the
/// call.
struct Inside<'a> {
    names: &'a Names,
    begin: u64,
    end: u64,
    own: HashMap<u32, u64>,
}

impl Inside<'_> {
    #[inline(always)]
    fn ended(&mut self, site: u32, begin: u64, end: u64, own: u64) {
        if begin >= self.begin && end <= self.end {
            let sum = self.own.entry(self.names.number(site)).or_default();
            *sum = sum.saturating_add(own);
        }
    }

    fn frame(&mut self, frame: &Frame, end: u64) {
        let own = end.saturating_sub(frame.clock).saturating_sub(frame.child);
        self.ended(frame.site(), frame.clock, end, own);
    }
}

impl Sink for Inside<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        if call.exit != 0 {
            let begin = call.clock.saturating_sub(call.ticks);
            self.ended(call.site, begin, call.clock, call.own);
        }
        0
    }

    fn enter(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.frame(frame, ending.clock);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.frame(frame, clock);
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}
}
