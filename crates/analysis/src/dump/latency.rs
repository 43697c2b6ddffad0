//! The latency trace of Linux: the longest call of a function, or the worst case of a tracer, with all events in it.

use std::collections::VecDeque;
use std::io::Write;

use anyhow::{Context, Result, bail};
use nopal_trace::{KernelEvent, KernelRecord, ThreadInfo, Trace};

use super::function::known;
use super::inside::{Inside, Line, Span};
use super::linux::{Flags, LineContent, LineWriter, Moment};
use super::{Lines, Look};
use crate::drive::Drive;
use crate::filter::Filter;
use crate::kernel_events::{self, KernelNames, Running, TimelineEvent, merged, push_event};
use crate::names::{Names, ThreadNames, printable};
use crate::timeline::{ThreadEvents, timeline};
use crate::tracers::{self, Case, Roles, Tracer};
use crate::values::{Value, ValueSelection, ValueSink, collect_values};

/// The subject of the dump, and its format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// A tracer, for its worst case, or a function, for its longest call; without it, all functions.
    pub of: Option<String>,
    pub verbose: bool,
}

impl Latency {
    fn look(&self) -> Look {
        Look {
            addresses: true,
            verbose: self.verbose,
        }
    }
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

/// A line for each call that began meanwhile and for each marker that was passed, and one for the end. Where there is a
/// `-`, it is not recorded: CPU, flags, who ran it at which priority, where in a function the call or the end is.
pub fn dump(trace: &Trace, latency: &Latency, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let of = latency.of.as_deref();
    match of.and_then(|of| tracers::asked(of, &names)) {
        Some(tracer) => {
            let mut worst: Option<Case> = None;
            tracers::of_trace(trace, &names, &tracer, |case| {
                if worst.is_none_or(|worst| case.ticks() > worst.ticks()) {
                    worst = Some(case);
                }
            })?;
            let worst = worst.context("no case has ended")?;
            case(trace, &names, &tracer, &worst, latency.look(), out)
        }
        None => longest_call(trace, &names, latency, drive, out),
    }
}

/// One case of a tracer. Its threads are numbered as those of the trace.
pub fn case(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    case: &Case,
    look: Look,
    out: &mut dyn Write,
) -> Result<()> {
    let mut streams = vec![case.begin_thread as usize];
    if case.end_thread != case.begin_thread {
        streams.push(case.end_thread as usize);
    }
    let shown = Shown {
        title: tracer.name(),
        streams,
        span: Span::Time {
            begin: case.begin,
            end: case.end,
        },
        begin: case.begin,
        ns: trace.clocks().duration_ns(case.ticks()),
        look,
    };
    write(trace, names, &shown, out)
}

fn longest_call(
    trace: &Trace,
    names: &Names,
    latency: &Latency,
    drive: &Drive,
    out: &mut dyn Write,
) -> Result<()> {
    let what = ValueSelection::new(latency.of.as_deref(), names, trace.markers())?;
    if !what.is_duration() {
        bail!("{}: a latency needs the duration of a function", what.text);
    }
    let (all, new) = (Filter::default(), Longest::default);
    let filter = drive.filter.unwrap_or(&all);
    let (sinks, _) = collect_values(trace, names, &what, filter, drive, new)?;
    let worst = sinks
        .into_iter()
        .filter_map(|sink| sink.call)
        .max_by_key(|call| (call.ns, std::cmp::Reverse(call.begin)))
        .context("no call was recorded to its end")?;
    let shown = Shown {
        title: "function",
        streams: vec![worst.stream],
        span: Span::Call {
            begin: worst.begin,
            end: worst.end,
            function: worst.function,
        },
        begin: worst.begin,
        ns: worst.ns.unsigned_abs(),
        look: latency.look(),
    };
    write(trace, names, &shown, out)
}

/// The span shown, and its threads.
struct Shown<'a> {
    title: &'a str,
    streams: Vec<usize>,
    span: Span,
    begin: u64,
    ns: u64,
    look: Look,
}

fn write(trace: &Trace, names: &Names, shown: &Shown, out: &mut dyn Write) -> Result<()> {
    let all = trace.threads();
    let threads: Vec<ThreadInfo> = shown.streams.iter().map(|at| all[*at]).collect();
    let thread_names = ThreadNames::new(trace);
    let comms: Vec<String> = threads
        .iter()
        .map(|thread| thread_names.of(thread))
        .collect();
    let locks: Vec<Tracer> = Tracer::NAMED.map(|(_, tracer)| tracer).into();
    let roles = &Roles::of_trace(&locks, names, trace.markers());
    let handlers = &tracers::handlers(trace, names, &threads);
    let moments = || {
        let mut ended = false;
        let lines = timeline(&threads, |at, thread| {
            ThreadEvents::new(
                thread.packets(),
                Inside::new(names, roles, &handlers[at], shown.span),
            )
        });
        lines.take_while(move |(.., line)| {
            let goes_on = !ended;
            ended |= line.is_end;
            goes_on
        })
    };
    let begin_ns = trace.clocks().monotonic_ns(shown.begin);
    let mut writer = LineWriter::new(trace, shown.look, begin_ns);
    writer.executable = Some(executable(trace, &threads[0]));
    let only = match shown.span {
        Span::Call { .. } => Some(threads[0].thread),
        Span::Time { .. } => None,
    };
    let kernel = KernelNames::new(trace);
    let system = Meanwhile::new(trace, shown.span, only);
    let moments = || merged(moments(), system.events());
    // The task, the flags and the content of a line.
    let content = |timeline_event: TimelineEvent<Line>, running: &mut Running| match timeline_event
    {
        TimelineEvent::Thread(stream, line) => {
            let thread = &threads[stream];
            let flags = Flags {
                processor: running.processor(thread.thread),
                ..line.flags
            };
            let who = (comms[stream].clone(), thread.thread, thread.process);
            (who, flags, line.content)
        }
        TimelineEvent::System(processor, event) => {
            let thread = kernel_events::thread(&event);
            let comm = running.name(processor, &event);
            let comm = comm.unwrap_or_else(|| known(&all, &thread_names, thread));
            running.take(processor, &event);
            let flags = Flags {
                processor: Some(processor),
                ..Flags::default()
            };
            let mut content = Vec::new();
            match event {
                KernelEvent::Function {
                    function, caller, ..
                } => {
                    let [function, caller] = [function, caller].map(|at| kernel.name(at));
                    content.extend_from_slice(format!("{function} ({caller})").as_bytes());
                }
                _ => {
                    content.push(b' ');
                    push_event(&mut content, &event, &kernel);
                }
            }
            ((comm, thread, 0), flags, LineContent::Text(content))
        }
    };
    let mut ends = VecDeque::new();
    let mut entries = 0u64;
    let mut running = system.running.clone();
    for (clock, timeline_event) in moments() {
        entries += 1;
        ends.truncate(1);
        ends.push_back((clock, content(timeline_event, &mut running)));
    }
    if entries == 0 {
        bail!(
            "{}: the events of that time are no longer in the trace",
            shown.title
        );
    }
    let mut lines = Lines::new(out);
    let text = &mut lines.text;
    let ended_on = ends.back().and_then(|(_, (_, flags, _))| flags.processor);
    let count = (entries, entries + system.left_out);
    text.extend_from_slice(
        header(trace, shown, count, ended_on, &comms[0], &threads[0]).as_bytes(),
    );
    let labels = [
        ("started at: ", ends.front()),
        ("ended at:   ", ends.back()),
    ];
    for (label, place) in labels {
        let Some((clock, (who, flags, content))) = place else {
            continue;
        };
        text.extend_from_slice(format!(" => {label}").as_bytes());
        let moment = moment(who, 0, (*clock, *clock), *flags);
        match content {
            LineContent::Call(entry, offset) => {
                writer.push_place(text, &moment, entry.site, offset)
            }
            LineContent::Text(content) => text.extend_from_slice(content.trim_ascii_start()),
        }
        text.push(b'\n');
    }
    text.extend_from_slice(if shown.look.verbose { "\n" } else { LEGEND }.as_bytes());
    let mut left = moments().peekable();
    let mut number = 0;
    let mut running = system.running.clone();
    while let Some((clock, timeline_event)) = left.next() {
        let next = left.peek().map_or(clock, |(next, _)| *next);
        let (who, flags, content) = content(timeline_event, &mut running);
        let moment = moment(&who, number, (clock, next), flags);
        match shown.look.verbose {
            true => writer.verbose(&mut lines.text, &moment, &content),
            false => writer.short(&mut lines.text, &moment, &content),
        }
        lines.end_line()?;
        number += 1;
    }
    Ok(lines.flush()?)
}

/// The task of a line: name, thread, and the process of a traced thread.
type Who = (String, u32, u32);

fn moment(
    (comm, thread, process): &Who,
    number: u64,
    (clock, next): (u64, u64),
    flags: Flags,
) -> Moment<'_> {
    Moment {
        comm,
        thread: *thread,
        process: *process,
        number,
        clock,
        next,
        flags,
    }
}

/// Kernel events that are shown of one case.
const MOST_EVENTS: usize = 2000;

/// The kernel events between two moments.
struct Meanwhile {
    events: Vec<(u32, KernelRecord)>,
    /// Lines beyond the limit.
    left_out: u64,
    /// The tasks on the processors before.
    running: Running,
}

impl Meanwhile {
    /// `only`: of this thread.
    fn new(trace: &Trace, span: Span, only: Option<u32>) -> Meanwhile {
        let mut meanwhile = Meanwhile {
            events: Vec::new(),
            left_out: 0,
            running: Running::default(),
        };
        let (Span::Time { begin, end } | Span::Call { begin, end, .. }) = span;
        let is_other = |event: &KernelEvent| only.is_some_and(|only| !concerns(event, only));
        for (processor, record) in kernel_events::events(trace) {
            match record.clock {
                clock if clock < begin => meanwhile.running.take(processor, &record.event),
                clock if clock > end => break,
                _ if is_other(&record.event) => {}
                clock if clock < end && meanwhile.events.len() >= MOST_EVENTS => {
                    meanwhile.left_out += 1;
                }
                _ => meanwhile.events.push((processor, record)),
            }
        }
        meanwhile
    }

    fn events(&self) -> impl Iterator<Item = (u32, KernelRecord)> {
        self.events.iter().copied()
    }
}

/// Whether an event concerns a thread, or may hide such an event.
fn concerns(event: &KernelEvent, thread: u32) -> bool {
    let (left, got) = kernel_events::left_and_got(event);
    let woken = matches!(event, KernelEvent::Wakeup { task, .. } if task.thread == thread);
    let lost = matches!(event, KernelEvent::Lost { .. });
    let ran = matches!(event, KernelEvent::Function { thread: of, .. } if *of == thread);
    lost || ran || woken || [left, got].contains(&Some(thread))
}

fn header(
    trace: &Trace,
    shown: &Shown,
    (entries, all): (u64, u64),
    processor: Option<u32>,
    comm: &str,
    thread: &ThreadInfo,
) -> String {
    let session = trace.session();
    let kernel = session.kernel.trim_start_matches("Linux ");
    let processor = processor.map_or_else(|| "-".to_string(), |number| number.to_string());
    let (latency, thread, title) = (shown.ns / 1000, thread.thread, shown.title);
    printable(&format!("{title} latency trace v1.1.5 on {kernel}"))
        + &format!("\n latency: {latency} us, #{entries}/{all}, CPU#{processor} | ")
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
    end: u64,
    ns: i64,
}

#[derive(Default)]
struct Longest {
    stream: usize,
    call: Option<Call>,
}

impl ValueSink for Longest {
    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.stream = stream;
    }

    fn add(&mut self, value: Value) {
        if self.call.is_none_or(|call| value.value > call.ns) {
            self.call = Some(Call {
                stream: self.stream,
                function: value.function,
                begin: value.begin,
                end: value.end,
                ns: value.value,
            });
        }
    }
}
