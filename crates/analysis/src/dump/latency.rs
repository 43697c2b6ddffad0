//! The latency trace of Linux: the longest call of a function, and all that was called in it on its thread.

use std::collections::VecDeque;
use std::io::Write;

use anyhow::{Context, Result, bail};
use nopal_trace::{ThreadInfo, Trace};

use super::linux::{AT_ENTRY, Entry, LineWriter, Moment, SOMEWHERE};
use super::{Lines, Look};
use crate::calls::{Ending, Frame, Sink};
use crate::drive::Drive;
use crate::filter::Filter;
use crate::names::{Names, ThreadNames, printable};
use crate::timeline::{Teller, Telling};
use crate::values::{Tally, Value, What, tally};

/// What is dumped, and in which of the two versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The function whose longest call it is; of all functions where there is none.
    pub of: Option<String>,
    pub verbose: bool,
}

/// As the seed of all latency tracers has it, with the spaces at its ends.
const LEGEND: &str = "
                 _------=> CPU#            
                / _-----=> irqs-off        
               | / _----=> need-resched    
               || / _---=> hardirq/softirq 
               ||| / _--=> preempt-depth   
               |||| /                      
               |||||     delay             
   cmd     pid ||||| time  |   caller      
      \\   /    |||||   \\   |   /           
";

/// Of the longest call, from its entry to its exit: a line for each call in it, and one for its end. Where there is a
/// `-`, it is not recorded: CPU, flags, who ran it at which priority, where in a function the call or the end is.
pub fn dump(trace: &Trace, latency: &Latency, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let what = What::new(latency.of.as_deref(), &names, trace.markers())?;
    if !what.is_duration() {
        bail!("{}: a latency is how long a function took", what.text);
    }
    let (all, new) = (Filter::default(), Longest::default);
    let tallies = tally(trace, &names, &what, &all, drive, new)?;
    let worst = tallies
        .into_iter()
        .filter_map(|tally| tally.call)
        .max_by_key(|call| (call.ns, std::cmp::Reverse(call.begin)))
        .context("no call was recorded to its end")?;
    let threads = trace.threads();
    let thread = &threads[worst.stream];
    let moments = || {
        let inside = Inside {
            names: &names,
            call: worst,
            depth: None,
            moments: VecDeque::new(),
            ended: false,
        };
        let mut ended = false;
        Telling::new(thread.packets(), inside).take_while(move |(_, line)| {
            let goes_on = !ended;
            ended |= line.is_end;
            goes_on
        })
    };
    let begin_ns = trace.clocks().monotonic_ns(worst.begin);
    let look = Look {
        addresses: true,
        verbose: latency.verbose,
    };
    let mut writer = LineWriter::new(trace, look, begin_ns);
    writer.executable = Some(executable(trace, thread));
    let comm = ThreadNames::new(trace).of(thread);
    let moment = |number, clock, next| Moment {
        comm: &comm,
        thread,
        number,
        clock,
        next,
    };
    let mut lines = Lines::new(out);
    let (entries, ends) = moments().fold((0u64, None), |(count, _), (clock, line)| {
        (count + 1, Some((clock, line.entry)))
    });
    let first = moments().next();
    let text = &mut lines.text;
    text.extend_from_slice(header(trace, &worst, entries, &comm, thread).as_bytes());
    for (label, place, offset) in [
        (
            "started at: ",
            first.map(|(clock, line)| (clock, line.entry)),
            AT_ENTRY,
        ),
        ("ended at:   ", ends, SOMEWHERE),
    ] {
        if let Some((clock, entry)) = place {
            text.extend_from_slice(format!(" => {label}").as_bytes());
            writer.push_place(text, &moment(0, clock, clock), entry.site, offset);
            text.push(b'\n');
        }
    }
    text.extend_from_slice(if latency.verbose { "\n" } else { LEGEND }.as_bytes());
    let mut left = moments().peekable();
    let mut number = 0;
    while let Some((clock, line)) = left.next() {
        let next = left.peek().map_or(clock, |(next, _)| *next);
        let moment = moment(number, clock, next);
        let offset = if line.is_end { SOMEWHERE } else { AT_ENTRY };
        match latency.verbose {
            true => writer.verbose(&mut lines.text, &moment, &line.entry, offset),
            false => writer.short(&mut lines.text, &moment, &line.entry, offset),
        }
        lines.end_line()?;
        number += 1;
    }
    Ok(lines.flush()?)
}

fn header(trace: &Trace, worst: &Call, entries: u64, comm: &str, thread: &ThreadInfo) -> String {
    let session = trace.session();
    let kernel = session.kernel.trim_start_matches("Linux ");
    let (latency, thread) = (worst.ns / 1000, thread.thread);
    printable(&format!("function latency trace v1.1.5 on {kernel}"))
        + &format!("\n latency: {latency} us, #{entries}/{entries}, CPU#- | ")
        + &format!("(M:- VP:0, KP:0, SP:0 HP:0 #P:{})\n", session.cores)
        + &format!("    | task: {comm}-{thread} (uid:- nice:- policy:- rt_prio:-)\n")
}

/// The file that the thread's process ran.
fn executable(trace: &Trace, thread: &ThreadInfo) -> String {
    let processes = trace.processes();
    let own = || {
        processes
            .iter()
            .filter(|process| process.process == thread.process)
    };
    let before = own().take_while(|process| process.counter <= thread.begin);
    let process = before.last().or_else(|| own().next());
    process.map_or_else(String::new, |process| printable(process.executable))
}

#[derive(Clone, Copy)]
struct Call {
    stream: usize,
    function: u32,
    begin: u64,
    ns: i64,
}

#[derive(Default)]
struct Longest {
    stream: usize,
    call: Option<Call>,
}

impl Tally for Longest {
    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.stream = stream;
    }

    fn add(&mut self, value: Value) {
        if self.call.is_none_or(|call| value.value > call.ns) {
            self.call = Some(Call {
                stream: self.stream,
                function: value.function,
                begin: value.begin,
                ns: value.value,
            });
        }
    }
}

struct Line {
    entry: Entry,
    is_end: bool,
}

/// Tells of one call, of those in it, and of its end.
struct Inside<'a> {
    names: &'a Names,
    call: Call,
    /// Of the call's frame, while it lives.
    depth: Option<usize>,
    moments: VecDeque<(u64, Line)>,
    ended: bool,
}

impl Inside<'_> {
    fn is_the_call(&self, frame: &Frame) -> bool {
        frame.clock == self.call.begin && self.names.number(frame.site()) == self.call.function
    }

    fn tell(&mut self, clock: u64, frame: &Frame, under: &[Frame], is_end: bool) {
        let entry = Entry {
            site: frame.site(),
            caller: under.last().map(Frame::site),
        };
        self.moments.push_back((clock, Line { entry, is_end }));
    }
}

impl Sink for Inside<'_> {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return 0;
        };
        if self.depth.is_none() && !self.ended && self.is_the_call(frame) {
            self.depth = Some(under.len());
        }
        if self.depth.is_some() {
            self.tell(frame.clock, frame, under, false);
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        if self.depth == Some(frames.len()) && self.is_the_call(frame) {
            self.tell(ending.clock, frame, frames, true);
            self.depth = None;
            self.ended = true;
        }
    }

    fn lose(&mut self, _frame: &Frame, _clock: u64, _counted: bool) {}

    fn stray(&mut self, _key: u32, _ending: Ending) {}
}

impl Teller for Inside<'_> {
    type Moment = Line;

    fn take(&mut self) -> Option<(u64, Line)> {
        self.moments.pop_front()
    }
}
