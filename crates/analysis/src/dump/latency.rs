//! The latency trace of Linux: the longest call of a function, or the worst case of a tracer, with all events in it; or
//! all records.

use std::collections::{HashMap, VecDeque};
use std::io::Write;

use anyhow::{Context, Result, bail};
use nopal_trace::{KernelEvent, KernelRecord, Note, TaskFacts, ThreadInfo, Trace};

use super::function::{known, texts, write_text};
use super::inside::{Inside, Line, Span};
use super::linux::{Flags, LineContent, LineWriter, Moment};
use super::{Excerpt, Lines, Look};
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
    /// A tracer, for its worst case or all its records; or a function, for its longest call; none for all functions.
    pub of: Option<String>,
    pub look: Look,
}

/// A tracer that measures nothing, by its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// Functions, and all other records.
    Function,
    /// Markers and kernel events.
    Events,
    /// Context switches and wake-ups.
    Switches,
}

impl Recorder {
    pub fn named(name: &str) -> Option<Recorder> {
        let all = [Recorder::Function, Recorder::Events, Recorder::Switches];
        all.into_iter().find(|one| one.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Recorder::Function => "function",
            Recorder::Events => "events",
            Recorder::Switches => "sched_switch",
        }
    }

    fn shows(self, event: &TimelineEvent<Line>) -> bool {
        let is_call = |line: &Line| matches!(line.content, LineContent::Call(..));
        let is_function = |event: &KernelEvent| matches!(event, KernelEvent::Function { .. });
        match (self, event) {
            (Recorder::Function, _) => true,
            (Recorder::Events, TimelineEvent::Thread(_, line)) => !is_call(line),
            (Recorder::Events, TimelineEvent::System(..)) => true,
            (Recorder::Switches, TimelineEvent::Thread(..)) => false,
            (Recorder::Switches, TimelineEvent::System(_, event)) => !is_function(event),
        }
    }
}

/// As the kernel's latency tracers write it, with the spaces at its ends.
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

/// A line for each call that began meanwhile and for each marker that was passed, and one for the end. A `-` stands for
/// what is not recorded: the CPU, flags, the thread and its priority, the place in a function of the call or the end.
pub fn dump(trace: &Trace, latency: &Latency, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let of = latency.of.as_deref();
    let recorder = of.filter(|of| names.matching(of).is_empty());
    if let Some(recorder) = recorder.and_then(Recorder::named) {
        let excerpt = drive.filter.map_or(Excerpt::ALL, Excerpt::of);
        return all(
            trace,
            &names,
            recorder.name(),
            recorder,
            excerpt,
            latency.look,
            out,
        );
    }
    match of.and_then(|of| tracers::asked(of, &names)) {
        Some(tracer) => {
            let (worst, _) = tracers::longest(trace, &names, &tracer)?;
            case(trace, &names, &tracer, &worst, None, latency.look, out)
        }
        None => longest_call(trace, &names, latency, drive, out),
    }
}

/// All records, as a tracer with this title shows them.
pub fn all(
    trace: &Trace,
    names: &Names,
    title: &str,
    recorder: Recorder,
    excerpt: Excerpt,
    look: Look,
    out: &mut dyn Write,
) -> Result<()> {
    let first = trace.clocks().snapshots().first();
    let shown = Shown {
        title,
        streams: (0..trace.threads().len()).collect(),
        span: Span::Time {
            begin: excerpt.after.saturating_add(1),
            end: excerpt.until,
        },
        begin: first.map_or(0, |snapshot| snapshot.counter),
        ns: None,
        recorder,
        task: None,
        look,
    };
    write(trace, names, &shown, out)
}

/// One case of a tracer. Its threads are numbered as those of the trace. `task`: the facts of the thread in which it
/// began, if they were read when the case was kept; else those of the trace.
pub fn case(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    case: &Case,
    task: Option<TaskFacts>,
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
        ns: Some(trace.clocks().duration_ns(case.ticks())),
        recorder: Recorder::Function,
        task,
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
        ns: Some(worst.ns.unsigned_abs()),
        recorder: Recorder::Function,
        task: None,
        look: latency.look,
    };
    write(trace, names, &shown, out)
}

/// The span shown, and its threads.
struct Shown<'a> {
    title: &'a str,
    streams: Vec<usize>,
    span: Span,
    begin: u64,
    /// The duration of a call or a case. Without it, all is shown, from the first line to the last.
    ns: Option<u64>,
    recorder: Recorder,
    task: Option<TaskFacts>,
    look: Look,
}

/// A line's task, flags and content.
struct Row {
    clock: u64,
    who: Who,
    flags: Flags,
    content: LineContent,
}

impl Row {
    fn moment(&self, number: u64, next: u64) -> Moment<'_> {
        let (comm, thread, process) = &self.who;
        Moment {
            comm,
            thread: *thread,
            process: *process,
            number,
            clock: self.clock,
            next,
            flags: self.flags,
        }
    }
}

fn write(trace: &Trace, names: &Names, shown: &Shown, out: &mut dyn Write) -> Result<()> {
    let is_all = shown.ns.is_none();
    let all = trace.tasks();
    let threads: Vec<ThreadInfo> = shown.streams.iter().map(|at| all[*at]).collect();
    let thread_names = ThreadNames::new(trace);
    let comms: Vec<String> = threads
        .iter()
        .map(|thread| thread_names.of(thread))
        .collect();
    let locks: Vec<Tracer> = Tracer::NAMED.map(|(_, tracer)| tracer).into();
    let roles = &Roles::of_trace(&locks, names, trace.markers());
    let handlers = &tracers::handlers(trace, names, &threads);
    let lines = || {
        let mut ended = false;
        let lines = timeline(&threads, |at, thread| {
            ThreadEvents::new(
                thread.packets(),
                Inside::new(names, roles, &handlers[at], shown.span),
            )
        });
        lines.take_while(move |(.., line)| {
            let goes_on = is_all || !ended;
            ended |= line.is_end;
            goes_on
        })
    };
    let begin_ns = trace.clocks().monotonic_ns(shown.begin);
    let mut writer = LineWriter::new(trace, shown.look, begin_ns);
    writer.executable = threads.first().map(|thread| executable(trace, thread));
    let only = match shown.span {
        Span::Call { .. } => Some(threads[0].thread),
        Span::Time { .. } => None,
    };
    let kernel = KernelNames::new(trace);
    let system = match is_all {
        true => Meanwhile::default(),
        false => Meanwhile::new(trace, shown.span, only),
    };
    let system_events = || -> Box<dyn Iterator<Item = (u32, KernelRecord)>> {
        match is_all {
            true => Box::new(kernel_events::events(trace)),
            false => Box::new(system.events.iter().copied()),
        }
    };
    let (Span::Time { begin, end } | Span::Call { begin, end, .. }) = shown.span;
    // Earlier events show where threads run.
    let row = |clock: u64,
               event: TimelineEvent<Line>,
               running: &mut Running,
               numbers: &mut HashMap<u32, String>| {
        let is_shown = shown.recorder.shows(&event) && (!is_all || (begin..=end).contains(&clock));
        let (who, flags, content) = match event {
            TimelineEvent::Thread(stream, line) => {
                let thread = &threads[stream];
                let processor = line.flags.processor;
                let flags = Flags {
                    processor: processor.or_else(|| running.processor(thread.thread)),
                    ..line.flags
                };
                let who = (comms[stream].clone(), thread.thread, thread.process);
                (who, flags, line.content)
            }
            TimelineEvent::System(processor, event) => {
                let comm = running.name(processor, &event);
                running.take(processor, &event);
                if !is_shown {
                    return None;
                }
                let thread = kernel_events::thread(&event);
                let comm = comm.unwrap_or_else(|| {
                    let name = || known(&all, &thread_names, thread);
                    numbers.entry(thread).or_insert_with(name).clone()
                });
                let flags = Flags {
                    processor: Some(processor),
                    kernel: event.flags(),
                    ..Flags::default()
                };
                let content = system_text(&event, &kernel);
                ((comm, thread, 0), flags, LineContent::Text(content))
            }
        };
        is_shown.then_some(Row {
            clock,
            who,
            flags,
            content,
        })
    };
    let row = &row;
    let rows = || {
        let mut running = system.running.clone();
        let mut numbers = HashMap::new();
        merged(lines(), system_events())
            .filter_map(move |(clock, event)| row(clock, event, &mut running, &mut numbers))
    };
    let mut ends: VecDeque<Row> = VecDeque::new();
    let mut entries = 0u64;
    for row in rows() {
        entries += 1;
        ends.truncate(1);
        ends.push_back(row);
    }
    if entries == 0 && !is_all {
        bail!(
            "{}: the events of that time are no longer in the trace",
            shown.title
        );
    }
    let mut lines = Lines::new(out);
    let text = &mut lines.text;
    let head = Head {
        entries: (entries, entries + system.left_out),
        processor: ends.back().and_then(|row| row.flags.processor),
        ns: shown.ns.unwrap_or_else(|| {
            let clock = |row: Option<&Row>| row.map_or(0, |row| row.clock);
            let [first, last] = [ends.front(), ends.back()].map(clock);
            trace.clocks().duration_ns(last.saturating_sub(first))
        }),
        thread: threads.first().zip(comms.first()),
        task: shown.task,
        end: ends.back().map_or(end, |row| row.clock),
    };
    text.extend_from_slice(head.text(trace, shown.title).as_bytes());
    let labels = [
        ("started at: ", ends.front()),
        ("ended at:   ", ends.back()),
    ];
    // A tracer that measures nothing has no begin and no end.
    for (label, row) in labels.into_iter().filter(|_| !is_all) {
        let Some(row) = row else {
            continue;
        };
        text.extend_from_slice(format!(" => {label}").as_bytes());
        match &row.content {
            LineContent::Call(entry, offset) => {
                writer.push_place(text, &row.moment(0, row.clock), entry.site, offset)
            }
            LineContent::Text(content) => text.extend_from_slice(content.trim_ascii_start()),
        }
        text.push(b'\n');
    }
    text.extend_from_slice(if shown.look.verbose { "\n" } else { LEGEND }.as_bytes());
    let written = match is_all {
        true => texts(
            trace,
            Excerpt {
                after: begin.saturating_sub(1),
                until: end,
            },
        ),
        false => Vec::new(),
    };
    let mut written = written.into_iter().peekable();
    let mut left = rows().peekable();
    let mut number = 0;
    while let Some(row) = left.next() {
        while let Some((_, text)) = written.next_if(|(counter, _)| *counter <= row.clock) {
            write_text(&mut lines, text)?;
        }
        let next = left.peek().map_or(row.clock, |next| next.clock);
        let moment = row.moment(number, next);
        match shown.look.verbose {
            true => writer.verbose(&mut lines.text, &moment, &row.content),
            false => writer.short(&mut lines.text, &moment, &row.content),
        }
        lines.end_line()?;
        number += 1;
    }
    for (_, text) in written {
        write_text(&mut lines, text)?;
    }
    Ok(lines.flush()?)
}

/// A kernel event behind the columns of its line.
fn system_text(event: &KernelEvent, kernel: &KernelNames) -> Vec<u8> {
    match event {
        KernelEvent::Function {
            function, caller, ..
        } => {
            let [function, caller] = [*function, *caller].map(|at| kernel.name(at));
            format!("{function} ({caller})").into_bytes()
        }
        _ => {
            let mut content = vec![b' '];
            push_event(&mut content, event, kernel);
            content
        }
    }
}

/// The task of a line: name, thread, and the process of a traced thread.
type Who = (String, u32, u32);

/// Kernel events that are shown of one case.
const MOST_EVENTS: usize = 2000;

/// The kernel events between two moments.
#[derive(Default)]
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
}

/// Whether an event concerns a thread, or may hide such an event.
fn concerns(event: &KernelEvent, thread: u32) -> bool {
    let (left, got) = kernel_events::left_and_got(event);
    let woken = matches!(event, KernelEvent::Wakeup { task, .. } if task.thread == thread);
    let lost = matches!(event, KernelEvent::Lost { .. });
    let ran = matches!(event, KernelEvent::Function { thread: of, .. } if *of == thread);
    lost || ran || woken || [left, got].contains(&Some(thread))
}

/// The heading above the lines.
struct Head<'a> {
    /// The number of lines, and of those that there would be without a limit.
    entries: (u64, u64),
    /// The processor on which the case ended.
    processor: Option<u32>,
    ns: u64,
    thread: Option<(&'a ThreadInfo<'a>, &'a String)>,
    task: Option<TaskFacts>,
    end: u64,
}

impl Head<'_> {
    fn text(&self, trace: &Trace, title: &str) -> String {
        let session = trace.session();
        let kernel = session.kernel.trim_start_matches("Linux ");
        let processor = self
            .processor
            .map_or_else(|| "-".to_string(), |number| number.to_string());
        let (entries, all) = self.entries;
        let thread = self.thread.map_or_else(
            || "-".to_string(),
            |(thread, comm)| format!("{comm}-{}", thread.thread),
        );
        let of_trace = || {
            self.thread
                .and_then(|(thread, _)| task(trace, thread, self.end))
        };
        let task = self.task.or_else(of_trace).map_or_else(
            || "uid:- nice:- policy:- rt_prio:-".to_string(),
            |task| {
                format!(
                    "uid:{} nice:{} policy:{} rt_prio:{}",
                    task.uid, task.nice, task.policy, task.rt_prio
                )
            },
        );
        printable(&format!("{title} latency trace v1.1.5 on {kernel}"))
            + &format!("\n latency: {} us, #{entries}/{all}, ", self.ns / 1000)
            + &format!(
                "CPU#{processor} | (M:- VP:0, KP:0, SP:0 HP:0 #P:{})\n",
                session.cores
            )
            + &format!("    | task: {thread} ({task})\n")
    }
}

/// The facts about a thread in the trace: the last that were read until `until`, or else the first.
fn task(trace: &Trace, thread: &ThreadInfo, until: u64) -> Option<TaskFacts> {
    let of_thread = |note: &Note| match note {
        Note::Task {
            process,
            thread: number,
            counter,
            facts,
        } if (*process, *number) == (thread.process, thread.thread) => Some((*counter, *facts)),
        _ => None,
    };
    let mut known = trace.notes().iter().filter_map(of_thread);
    let first = known.next()?;
    let known = std::iter::once(first).chain(known);
    let last = known.take_while(|(counter, _)| *counter <= until).last();
    Some(last.unwrap_or(first).1)
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
