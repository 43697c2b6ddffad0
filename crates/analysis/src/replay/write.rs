//! Lines as text.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::Write;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use nopal_trace::{
    Clocks, Markers, Note, SiteStates, ThreadInfo, Trace, Unrecorded, UnrecordedCalls,
};

use super::lines::{Line, LineKind, Lines, Shown};
use crate::filter::Filter;
use crate::kernel_events::{KernelNames, Turn, name, turns};
use crate::markers::push_marker;
use crate::names::{Names, ThreadNames, printable};
use crate::off::is_of_some_threads;
use crate::prototypes::{ProcessMoment, Prototypes};
use crate::sort;
use crate::sources::Sources;
use crate::span::{begin, end};
use crate::text::{
    bound, count, duration, push_decimal, push_hex_short, push_padded, push_u64, several,
};
use crate::timeline::{ThreadEvents, timeline};

/// The look of a replay, and the selection of calls.
#[derive(Default)]
pub struct Look {
    pub color: bool,
    /// Show file and line of each function.
    pub sources: bool,
    /// Show arguments and results as they were recorded, without their types.
    pub words: bool,
    pub filter: Filter,
}

/// Deeper calls are not indented further, and show their depth.
const DEEPEST_INDENT: usize = 60;
/// Width of the third column and its mark.
const DURATION: usize = 13;
const LINES_BYTES: usize = 1 << 16;

const FAINT: Style = Style::new().dimmed();
const SLOW: Style = AnsiColor::Yellow.on_default();
const SLOWER: Style = AnsiColor::Red.on_default();
const SLOWEST: Style = AnsiColor::Red.on_default().bold();
const FUNCTION: Style = AnsiColor::Cyan.on_default();
const SYSTEM: Style = AnsiColor::Magenta.on_default();
const MARKER: Style = AnsiColor::Green.on_default();

/// One line for each call without nested calls, two for each other call, and one for each note of a user or a trigger.
/// Columns: seconds since the trace began, thread, duration, and a mark: `+` over 10 microseconds, `!` over 100, `#`
/// over 1000.
pub fn replay(trace: &Trace, look: &Look, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let filter = &look.filter;
    let shown = Shown {
        filter,
        clocks: trace.clocks(),
    };
    let thread_names = ThreadNames::new(trace);
    let threads = filter.threads(trace);
    let clocks = trace.clocks();
    let begin = begin(trace);
    let mut writer = Writer {
        names: &names,
        markers: trace.markers(),
        clocks,
        kernel: KernelNames::new(trace),
        sources: match look.sources {
            true => Sources::new(trace, &names),
            false => Sources::default(),
        },
        prototypes: match look.words {
            true => Prototypes::default(),
            false => Prototypes::new(trace, &names),
        },
        color: look.color,
        begin,
        text: Vec::new(),
    };
    let numbers: HashSet<u32> = threads.iter().map(|thread| thread.thread).collect();
    let turns = turns(trace, |thread| numbers.contains(&thread));
    let mut introduced = vec![false; threads.len()];
    // Counts are of processes with all their threads, also those without records: in which calls they were made is not
    // known.
    let unrecorded = match is_of_some_threads(trace) || filter.chooses_calls() {
        true => Vec::new(),
        false => unrecorded(trace, &names, &filter.functions(&names)),
    };
    let mut texts = texts(trace);
    texts.extend(unrecorded.iter().map(|(at, text)| (*at, text.as_str())));
    sort::by_key(&mut texts, |(at, _)| *at);
    let mut texts = texts.into_iter().peekable();
    let is_before = |clock: u64| filter.from.is_some_and(|from| clock < from);
    let is_behind = |clock: u64| filter.until.is_some_and(|until| clock > until);
    writer.heading();
    let lines = timeline(&threads, |_, thread| {
        let turns = turns_of(&turns, &threads, thread);
        ThreadEvents::selected(thread, filter, Lines::new(&shown, turns))
    });
    for (stream, clock, line) in lines {
        if is_behind(clock) {
            break;
        }
        while let Some((at, text)) = texts.next_if(|(at, _)| *at <= clock) {
            if !is_before(at) {
                writer.note(at, text);
            }
        }
        if is_before(clock) {
            continue;
        }
        let thread = &threads[stream];
        if !std::mem::replace(&mut introduced[stream], true) {
            writer.introduce(thread.process, thread.thread, &thread_names.of(thread));
        }
        writer.line(clock, thread, &line);
        if writer.text.len() >= LINES_BYTES {
            out.write_all(&writer.text)?;
            writer.text.clear();
        }
    }
    for (at, text) in texts {
        if !is_before(at) && !is_behind(at) {
            writer.note(at, text);
        }
    }
    out.write_all(&writer.text)?;
    Ok(())
}

/// The scheduling events of a thread since its first event, until another thread had its id.
fn turns_of<'a>(
    turns: &'a HashMap<u32, Vec<(u64, Turn)>>,
    threads: &[ThreadInfo],
    thread: &ThreadInfo,
) -> &'a [(u64, Turn)] {
    if thread.in_namespace {
        return &[];
    }
    let turns = turns.get(&thread.thread).map_or(&[][..], Vec::as_slice);
    let others = threads.iter().filter(|other| other.thread == thread.thread);
    let begins = others
        .map(|other| other.begin)
        .filter(|begin| *begin > thread.begin);
    let end = begins.min().unwrap_or(u64::MAX);
    let place = |clock: u64| turns.partition_point(|(at, _)| *at < clock);
    turns
        .get(place(thread.begin)..place(end))
        .unwrap_or_default()
}

/// The notes of users and triggers in the trace, by the counter.
fn texts(trace: &Trace) -> Vec<(u64, &str)> {
    let text = |note| match note {
        &Note::Text { counter, ref text } => Some((counter, text.as_str())),
        _ => None,
    };
    trace.notes().iter().filter_map(text).collect()
}

/// The calls of selected functions that are not in the records of a trace, by the end of the time in which they were made.
fn unrecorded(trace: &Trace, names: &Names, selected: &[bool]) -> Vec<(u64, String)> {
    let is_selected = |site: u32| selected[names.number(site) as usize];
    let [begin, end] = [begin(trace), end(trace)];
    let clocks = trace.clocks();
    let all = SiteStates::of(trace).unrecorded().into_iter();
    // A flight recorder has given up the records before.
    let all = all.filter(|one| *one.time.end() >= begin);
    let lines = all.filter_map(|Unrecorded { time, calls }| {
        // What was off to the end may last for longer than the records.
        let until = match *time.end() {
            u64::MAX => end.max(*time.start()),
            until => until,
        };
        let lasted = clocks.duration_ns(until.saturating_sub(*time.start()));
        let lasted = duration(lasted);
        let text = match calls {
            UnrecordedCalls::Counted(calls) => {
                let mut functions: HashMap<u32, u64> = HashMap::new();
                for (site, calls) in calls.into_iter().filter(|(site, _)| is_selected(*site)) {
                    let of = functions.entry(names.number(site)).or_default();
                    *of = of.saturating_add(calls);
                }
                let mut functions: Vec<(u32, u64)> = functions.into_iter().collect();
                sort::by_key(&mut functions, |(function, calls)| {
                    (Reverse(*calls), *function)
                });
                let sum = functions
                    .iter()
                    .fold(0, |sum: u64, (_, calls)| sum.saturating_add(*calls));
                if functions.is_empty() {
                    return None;
                }
                let calls = several(sum, "call", "calls");
                let of = some(functions.iter().map(|(function, _)| *function), names);
                format!("… {calls} of {of} not shown, in the last {lasted}")
            }
            UnrecordedCalls::Unknown(sites) => {
                let sites = sites.into_iter().filter(|site| is_selected(*site));
                let mut functions: Vec<u32> = sites.map(|site| names.number(site)).collect();
                functions.sort_unstable();
                functions.dedup();
                if functions.is_empty() {
                    return None;
                }
                let of = some(functions.into_iter(), names);
                format!("… calls of {of} not known: off in the last {lasted}")
            }
        };
        Some((until, text))
    });
    let mut lines: Vec<_> = lines.collect();
    sort::by_key(&mut lines, |(at, _)| *at);
    lines
}

/// The names of the first functions, and how many there are more: `strcmp, hash and 2 more`.
fn some(functions: impl ExactSizeIterator<Item = u32>, names: &Names) -> String {
    const SHOWN: usize = 3;
    let more = functions.len().saturating_sub(SHOWN);
    let shown = functions.take(SHOWN);
    let shown: Vec<&str> = shown
        .map(|function| names.functions()[function as usize].name.as_str())
        .collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), count(more as u64)),
    }
}

struct Writer<'a> {
    names: &'a Names,
    markers: &'a Markers,
    clocks: &'a Clocks,
    kernel: KernelNames<'a>,
    sources: Sources,
    prototypes: Prototypes<'a>,
    color: bool,
    begin: u64,
    text: Vec<u8>,
}

impl Writer<'_> {
    /// Since the trace began.
    fn ns(&self, clock: u64) -> u64 {
        let begin = self.clocks.monotonic_ns(self.begin);
        self.clocks.monotonic_ns(clock).saturating_sub(begin)
    }

    fn styled(&mut self, style: Style, write: impl FnOnce(&mut Vec<u8>)) {
        if self.color {
            self.text
                .extend_from_slice(style.render().to_string().as_bytes());
        }
        write(&mut self.text);
        if self.color {
            self.text
                .extend_from_slice(style.render_reset().to_string().as_bytes());
        }
    }

    fn heading(&mut self) {
        self.styled(FAINT, |text| {
            text.extend_from_slice(b"     seconds   thread   duration")
        });
        self.text.push(b'\n');
    }

    fn introduce(&mut self, process: u32, thread: u32, name: &str) {
        let comment = format!("/* thread {thread} of process {process}: {name} */\n");
        self.styled(FAINT, |text| text.extend_from_slice(comment.as_bytes()));
    }

    /// The first two columns, of which the second is `whose`.
    fn moment(&mut self, clock: u64, whose: impl FnOnce(&mut Vec<u8>)) {
        let ns = self.ns(clock);
        self.styled(FAINT, |text| {
            push_padded(text, 2, |text| push_u64(text, ns / 1_000_000_000));
            text.push(b'.');
            push_decimal(text, ns % 1_000_000_000, 9);
            text.push(b' ');
            push_padded(text, 8, whose);
        });
    }

    fn note(&mut self, clock: u64, note: &str) {
        self.moment(clock, |_| ());
        self.text.extend(std::iter::repeat_n(b' ', 2 + DURATION));
        let note = format!("/* {} */", printable(note));
        self.styled(MARKER, |text| text.extend_from_slice(note.as_bytes()));
        self.text.push(b'\n');
    }

    fn line(&mut self, clock: u64, thread: &ThreadInfo, line: &Line) {
        self.moment(clock, |text| push_u64(text, u64::from(thread.thread)));
        self.text.extend_from_slice(b"  ");
        self.duration(&line.what);
        if line.depth > DEEPEST_INDENT {
            self.text
                .extend_from_slice(format!("[{}] ", line.depth).as_bytes());
        }
        self.text.extend(std::iter::repeat_n(
            b' ',
            2 * line.depth.min(DEEPEST_INDENT),
        ));
        let moment = ProcessMoment {
            process: thread.process,
            clock,
        };
        self.call(line, moment);
        self.text.push(b'\n');
    }

    fn duration(&mut self, what: &LineKind) {
        if let LineKind::Unfinished { least } | LineKind::Stray { least } = what {
            let shown = match self.clocks.duration_ns(*least) {
                0 => String::new(),
                ns => bound(ns, true),
            };
            return self
                .text
                .extend_from_slice(format!("{shown:>9}    ").as_bytes());
        }
        let (LineKind::Leaf {
            duration: ticks, ..
        }
        | LineKind::Close {
            duration: ticks, ..
        }) = what
        else {
            self.text.extend(std::iter::repeat_n(b' ', DURATION));
            return;
        };
        let ns = self.clocks.duration_ns(*ticks);
        let (mark, style) = match ns {
            1_000_001.. => (b'#', SLOWEST),
            100_001.. => (b'!', SLOWER),
            10_001.. => (b'+', SLOW),
            _ => (b' ', Style::new()),
        };
        let shown = duration(ns);
        push_padded(&mut self.text, 9, |text| {
            text.extend_from_slice(shown.as_bytes())
        });
        self.text.push(b' ');
        self.styled(style, |text| text.push(mark));
        self.text.extend_from_slice(b"  ");
    }

    fn call(&mut self, line: &Line, at: ProcessMoment) {
        let names = self.names;
        let name = names.function(line.site).name.as_str();
        let unwound = matches!(
            line.what,
            LineKind::Leaf { unwound: true, .. } | LineKind::Close { unwound: true, .. }
        );
        match &line.what {
            LineKind::Mark(event, payload) => {
                let marker = self.markers.get(*event);
                self.styled(MARKER, |text| {
                    text.extend_from_slice(b"/* ");
                    push_marker(text, marker, payload);
                    text.extend_from_slice(b" */");
                });
            }
            LineKind::Turn(turn) => self.turn(turn),
            LineKind::Open | LineKind::Leaf { .. } | LineKind::Only => {
                self.styled(FUNCTION, |text| text.extend_from_slice(name.as_bytes()));
                self.arguments(line, name, at);
                match line.what {
                    LineKind::Open => self.text.extend_from_slice(b" {"),
                    _ => {
                        self.result(line, at);
                        self.text.push(b';');
                    }
                }
                if unwound {
                    self.text.extend_from_slice(b" /* unwound */");
                }
                if let Some(source) = self.sources.of(self.names.number(line.site)) {
                    let source = format!(" /* {source} */");
                    self.styled(FAINT, |text| text.extend_from_slice(source.as_bytes()));
                }
            }
            LineKind::Estimated => self.styled(MARKER, |text| {
                text.extend_from_slice(
                    b"/* estimated: only the entry of the caller was recorded */",
                );
            }),
            LineKind::Missing(ticks) => {
                let missing = duration(self.clocks.duration_ns(*ticks));
                self.styled(MARKER, |text| {
                    let remark = format!("/* records are missing, for {missing} */");
                    text.extend_from_slice(remark.as_bytes());
                });
            }
            LineKind::Close { .. } | LineKind::Unfinished { .. } | LineKind::Stray { .. } => {
                self.text.push(b'}');
                self.result(line, at);
                let remark = match line.what {
                    LineKind::Unfinished { .. } => ", end not known",
                    LineKind::Stray { .. } => ", began before",
                    _ if unwound => ", unwound",
                    _ => "",
                };
                self.styled(FAINT, |text| {
                    text.extend_from_slice(b" /* ");
                    text.extend_from_slice(name.as_bytes());
                    text.extend_from_slice(remark.as_bytes());
                    text.extend_from_slice(b" */");
                });
            }
        }
    }
}

impl Writer<'_> {
    /// `(count=1, name=0x7ffd1234)`, `(1, 0x7ffd1234)` if the types are not known; `()` without any, or nothing if the
    /// name includes its parameters.
    fn arguments(&mut self, line: &Line, name: &str, at: ProcessMoment) {
        let Some(arguments) = &line.arguments else {
            if !name.contains('(') {
                self.text.extend_from_slice(b"()");
            }
            return;
        };
        let function = self.names.number(line.site);
        if let Some(values) = self.prototypes.values(function, at) {
            return values.push_parameters(&mut self.text, arguments);
        }
        for (index, argument) in arguments.iter().enumerate() {
            self.text
                .extend_from_slice(if index == 0 { b"(" } else { b", " });
            push_value(&mut self.text, *argument);
        }
        self.text.push(b')');
    }

    fn result(&mut self, line: &Line, at: ProcessMoment) {
        let Some(result) = line.result else {
            return;
        };
        let function = self.names.number(line.site);
        if let Some(values) = self.prototypes.values(function, at) {
            return values.push_returned(&mut self.text, result);
        }
        self.text.extend_from_slice(b" = ");
        push_value(&mut self.text, result);
    }

    fn turn(&mut self, turn: &Turn) {
        let text = match turn {
            Turn::Left {
                processor,
                state,
                next,
            } => {
                let how = match state.is_blocked() {
                    true => format!("blocked ({})", state.letter()),
                    false => "preempted".to_string(),
                };
                let next = next.map_or(String::new(), |next| match next.thread {
                    0 => ", now idle".to_string(),
                    thread => format!(", by then {} {thread}", name(&next)),
                });
                format!("left CPU {processor}, {how}{next}")
            }
            Turn::Entered { function, caller } => {
                let [function, caller] = [function, caller].map(|at| self.kernel.name(*at));
                format!("kernel: {function} <-- {caller}")
            }
            Turn::Woken { by: 0 } => "woken by an interrupt of an idle CPU".to_string(),
            Turn::Woken { by } => format!("woken by {by}"),
            Turn::Ran { processor, away } => {
                let away = away.map_or(String::new(), |ticks| {
                    format!(", {} later", duration(self.clocks.duration_ns(ticks)))
                });
                format!("runs on CPU {processor}{away}")
            }
        };
        self.styled(SYSTEM, |out| {
            out.extend_from_slice(format!("/* {text} */").as_bytes());
        });
    }
}

/// Small numbers in decimal, small negative ones of 32 and 64 bits too.
fn push_value(text: &mut Vec<u8>, value: u64) {
    const SMALL: i64 = 9999;
    let wide = value as i64;
    let narrow = i64::from(value as u32 as i32);
    if (-SMALL..=SMALL).contains(&wide) {
        text.extend_from_slice(wide.to_string().as_bytes());
    } else if value >> 32 == 0 && (-SMALL..0).contains(&narrow) {
        text.extend_from_slice(narrow.to_string().as_bytes());
    } else {
        text.extend_from_slice(b"0x");
        push_hex_short(text, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_people_write_them() {
        let shown = |value| {
            let mut text = Vec::new();
            push_value(&mut text, value);
            String::from_utf8(text).unwrap()
        };
        let values = [
            0,
            9999,
            10_000,
            u64::MAX,
            0xffff_fffe,
            0x7ffd_1234_5678,
            i64::MIN as u64,
        ];
        let expected = [
            "0",
            "9999",
            "0x2710",
            "-1",
            "-2",
            "0x7ffd12345678",
            "0x8000000000000000",
        ];
        assert_eq!(values.map(shown), expected);
    }
}
