//! Values of calls: durations, and expressions of arguments and results; values of markers; and durations of the cases
//! of tracers.

mod condition;
mod expression;
mod field;

use anyhow::{Context, Result, bail};
use nopal_symbols::{nearest, or_nearest};
use nopal_trace::{Clocks, Markers, ThreadInfo, Trace};

use crate::calls::{Arguments, Ending, Frame, Plain, Sink, Style};
use crate::drive::{Drive, Times, Worker};
use crate::filter::{Filter, LeftOut, Sieve};
use crate::names::Names;
use crate::off::Off;
use crate::text::{Quantity, several};
use crate::tracers::{self, Case, Past, Tracer};
pub use condition::{Condition, Met};
use expression::Inputs;
pub use expression::{Expression, number};
use field::{Field, Lacking, numbers};

/// A value of some functions: `read`, `read.result`, `read.arg1 >> 12`; of a marker: `net_rx.len`; or of a tracer's
/// cases: `lockhold`, `read..write`.
pub struct ValueSelection {
    /// The user's text.
    pub text: String,
    /// By number of the function.
    functions: Vec<bool>,
    pub expression: Expression,
    needs: Needs,
    /// Set for markers, not for calls.
    field: Option<Field>,
    tracer: Option<Tracer>,
    group: Option<GroupBy>,
}

/// The grouping of values.
enum GroupBy {
    Expression(Expression),
    Field(Field),
}

/// The requested value of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub arguments: bool,
    pub result: bool,
    /// Its duration, which is known when it ends.
    pub end: bool,
}

impl Needs {
    fn of(expression: &Expression) -> Needs {
        Needs {
            arguments: expression.has(|part| matches!(part, Expression::Argument(_))),
            result: expression.has(|part| *part == Expression::Result),
            end: expression.has(|part| matches!(part, Expression::Duration | Expression::Own)),
        }
    }

    fn and(self, other: Needs) -> Needs {
        Needs {
            arguments: self.arguments || other.arguments,
            result: self.result || other.result,
            end: self.end || other.end,
        }
    }
}

/// The functions that match `pattern`, at least one. The user may have meant a marker or a tracer.
fn wanted(pattern: &str, names: &Names, markers: &Markers) -> Result<Vec<u32>> {
    let wanted = names.matching(pattern);
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let mut markers = markers
        .iter()
        .map(|(_, marker)| marker.name.as_str())
        .peekable();
    let kinds = match markers.peek() {
        Some(_) => "function and no marker",
        None => "function",
    };
    let functions = names
        .functions()
        .iter()
        .map(|function| function.name.as_str());
    let tracers = Tracer::NAMED.iter().map(|(name, _)| *name);
    let near = or_nearest(&nearest(functions.chain(markers).chain(tracers), pattern));
    bail!("no {kinds} of this trace is named {pattern:?}{near}")
}

impl ValueSelection {
    /// Parses `FUNCTION`, which means its duration, `FUNCTION.EXPRESSION`, `MARKER.FIELD`, or a tracer, unless a
    /// function has its name. Without any text: the durations of all calls.
    pub fn new(text: Option<&str>, names: &Names, markers: &Markers) -> Result<ValueSelection> {
        let Some(text) = text else {
            let all = vec![true; names.functions().len()];
            return Ok(ValueSelection::of("all calls", all, Expression::Duration));
        };
        if let Some(tracer) = tracers::asked(text, names) {
            let mut what = ValueSelection::of(text, Vec::new(), Expression::Duration);
            what.tracer = Some(tracer);
            return Ok(what);
        }
        let mut functions = vec![false; names.functions().len()];
        let mut choose = |numbers: Vec<u32>| {
            for number in numbers {
                functions[number as usize] = true;
            }
        };
        let whole = names.matching(text);
        let expression = match text.rsplit_once('.') {
            _ if !whole.is_empty() => {
                choose(whole);
                Expression::Duration
            }
            Some((name, field)) if markers.iter().any(|(_, marker)| marker.name == name) => {
                let mut what = ValueSelection::of(text, functions, Expression::Number(0));
                what.field = Some(Field::new(markers, name, field)?);
                return Ok(what);
            }
            Some((function, expression)) => {
                choose(wanted(function, names, markers)?);
                Expression::parse(expression)?
            }
            None if markers.iter().any(|(_, marker)| marker.name == text) => {
                let numbers = numbers(text, markers);
                bail!("{text} is a marker: use {text}.FIELD; it has {numbers}")
            }
            None => {
                choose(wanted(text, names, markers)?);
                Expression::Duration
            }
        };
        Ok(ValueSelection::of(text, functions, expression))
    }

    /// The durations of the function with this number.
    pub fn of_function(function: u32, names: &Names) -> Result<ValueSelection> {
        let known = names.functions().get(function as usize);
        let name = &known.context("no such function")?.name;
        let mut functions = vec![false; names.functions().len()];
        functions[function as usize] = true;
        Ok(ValueSelection::of(name, functions, Expression::Duration))
    }

    fn of(text: &str, functions: Vec<bool>, expression: Expression) -> ValueSelection {
        let needs = Needs::of(&expression);
        ValueSelection {
            text: text.to_string(),
            functions,
            expression,
            needs,
            field: None,
            tracer: None,
            group: None,
        }
    }

    /// Groups the values: those of calls by an expression of the same call, those of markers by a field of the same
    /// marker.
    pub fn group_by(&mut self, text: &str, markers: &Markers) -> Result<()> {
        self.group = Some(match &self.field {
            Some(field) => GroupBy::Field(Field::new(markers, field.marker(), text)?),
            None => {
                let expression = Expression::parse(text)?;
                self.needs = self.needs.and(Needs::of(&expression));
                GroupBy::Expression(expression)
            }
        });
        Ok(())
    }

    /// The tracer whose cases it is about.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// The subject of the values.
    pub fn noun(&self) -> &'static str {
        match self.tracer {
            Some(_) => "cases",
            None if self.field.is_none() => "calls",
            None => "markers",
        }
    }

    /// Whether the values are durations of calls or cases.
    pub fn is_duration(&self) -> bool {
        self.expression == Expression::Duration
    }

    /// Whether the values are nanoseconds.
    pub fn is_time(&self) -> bool {
        matches!(self.expression, Expression::Duration | Expression::Own)
    }

    pub fn quantity(&self) -> Quantity {
        match &self.field {
            _ if self.is_time() => Quantity::Time,
            Some(field) if field.is_hexadecimal() => Quantity::Address,
            _ => Quantity::Number,
        }
    }

    /// Whether the values are an argument or a result.
    pub fn is_register(&self) -> bool {
        matches!(
            self.expression,
            Expression::Argument(_) | Expression::Result
        )
    }

    fn group_field(&self) -> Option<&Field> {
        match &self.group {
            Some(GroupBy::Field(field)) => Some(field),
            _ => None,
        }
    }
}

/// One call and its value; or one marker, with the function that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub function: u32,
    /// The counter when the call began, and when it ended; both the same if only the begin is known.
    pub begin: u64,
    pub end: u64,
    /// Its group; 0 without grouping.
    pub group: i64,
    pub value: i64,
}

/// Receives values; each worker has its own for some threads.
pub trait ValueSink: Send {
    /// The next values are of this thread, `stream` among the trace's.
    fn begin(&mut self, _stream: usize, _thread: &ThreadInfo) {}
    fn add(&mut self, value: Value);
}

/// Calls and markers that pass the filter but have no value.
#[derive(Default)]
struct Without {
    /// Calls whose arguments or result are needed, but not known.
    calls: u64,
    /// Calls whose end, or begin, is not known.
    unfinished: u64,
    /// Markers without the field, and those without the field that groups them.
    value: Lacking,
    group: Lacking,
}

impl Without {
    fn add(&mut self, other: &Without) {
        self.calls += other.calls;
        self.unfinished += other.unfinished;
        self.value.add(&other.value);
        self.group.add(&other.group);
    }

    /// In lines.
    fn describe(&self, what: &ValueSelection) -> Vec<String> {
        let mut notes = Vec::new();
        if self.calls > 0 {
            let calls = several(self.calls, "call", "calls");
            notes.push(format!(
                "left out: {calls} whose arguments or results are not known"
            ));
        }
        if self.unfinished > 0 {
            let calls = several(self.unfinished, "call", "calls");
            notes.push(format!("left out: {calls} whose begin or end is not known"));
        }
        let of_value = what.field.as_ref().map(|field| field.describe(&self.value));
        let of_group = what.group_field().map(|field| field.describe(&self.group));
        notes.extend(of_value.into_iter().chain(of_group).flatten());
        notes
    }
}

/// Gives the values that pass the filter, at least one, to a value sink for each worker. Returns lines about the values
/// that are missing, and about what a tracer missed. Reads only what is near the selected time, unless there is no value:
/// an error tells what the filter left out.
pub fn collect_values<T: ValueSink>(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    drive: &Drive,
    new: impl Fn() -> T,
) -> Result<(Vec<T>, Vec<String>)> {
    if let Some(tracer) = what.tracer() {
        let mut sink = new();
        let past = cases(trace, names, tracer, filter, &mut sink, |_| ())?;
        return Ok((vec![sink], past.describe()));
    }
    if what.needs.arguments || what.needs.result {
        run::<T, false>(trace, names, what, filter, drive, new)
    } else {
        run::<T, true>(trace, names, what, filter, drive, new)
    }
}

fn run<T: ValueSink, const PLAIN: bool>(
    trace: &Trace,
    names: &Names,
    what: &ValueSelection,
    filter: &Filter,
    drive: &Drive,
    new: impl Fn() -> T,
) -> Result<(Vec<T>, Vec<String>)> {
    let sieve = Sieve::new(filter, trace);
    let reader = |times| Reader::<T, PLAIN> {
        sites: (0..names.sites() as u32)
            .map(|site| match names.number(site) {
                number if what.functions[number as usize] => number,
                _ => NONE,
            })
            .collect(),
        what,
        names,
        markers: trace.markers(),
        clocks: trace.clocks(),
        times,
        sieve: sieve.clone(),
        arguments: Arguments::default(),
        without: Without::default(),
        found: 0,
        sink: new(),
    };
    let drive = Drive {
        filter: Some(filter),
        ..*drive
    };
    let read = |times| {
        let mut readers: Vec<_> = (0..drive.workers.max(1)).map(|_| reader(times)).collect();
        let read = drive.run(trace, &mut readers);
        read.map(|()| readers)
    };
    let found = |readers: &[Reader<T, PLAIN>]| readers.iter().map(|one| one.found).sum::<u64>();
    let mut readers = read(match filter.checkpoints {
        Some(_) => Times::Near,
        None => Times::Own,
    })?;
    if filter.checkpoints.is_some() && found(&readers) == 0 {
        // Only all calls tell what the filter left out.
        readers = read(Times::Own)?;
    }
    let found = found(&readers);
    let (mut left_out, mut without) = (LeftOut::default(), Without::default());
    for reader in &readers {
        left_out.add(&reader.sieve.left_out);
        without.add(&reader.without);
    }
    let wanted = (0..).zip(&what.functions).filter(|(_, wanted)| **wanted);
    let untimed = Off::new(trace, names, Some(filter)).left_out(wanted.map(|(number, _)| number));
    if found == 0 && left_out.seen == 0 && !untimed.is_empty() {
        bail!(
            "{}: no call was recorded; {}",
            what.text,
            untimed.join("; ")
        );
    }
    let mut notes = without.describe(what);
    notes.extend(untimed);
    if found == 0 && without.calls > 0 {
        bail!(
            "{}: the calls were recorded without arguments and results: record with --args",
            what.text
        );
    }
    if found == 0 && what.field.is_some() && !notes.is_empty() {
        bail!("{}: {}", what.text, notes.join("; "));
    }
    if found == 0 && left_out.seen == 0 && what.field.is_some() {
        bail!("{}: the marker was not recorded", what.text);
    }
    if found == 0 {
        bail!("{}: {}", what.text, left_out.why(filter, trace));
    }
    let sinks = readers.into_iter().map(|reader| reader.sink).collect();
    Ok((sinks, notes))
}

/// Gives the durations of a tracer's cases that pass the filter, at least one, to a value sink, and the cases to
/// `found`. A case belongs to the thread in which it ended, and to no function. Returns what the tracer missed.
pub fn cases<T: ValueSink>(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    filter: &Filter,
    sink: &mut T,
    mut found: impl FnMut(&Case),
) -> Result<Past> {
    let threads = tracer.threads(trace);
    tracers::selected(trace, names, tracer, filter, false, |case, _| {
        let stream = case.end_thread as usize;
        found(case);
        let ns = trace.clocks().duration_ns(case.ticks());
        sink.begin(stream, &threads[stream]);
        sink.add(Value {
            function: 0,
            begin: case.begin,
            end: case.end,
            group: 0,
            value: i64::try_from(ns).unwrap_or(i64::MAX),
        });
    })
}

const NONE: u32 = u32::MAX;

/// Makes values of calls.
struct Reader<'a, T, const PLAIN: bool> {
    /// By site: the function, if it is wanted.
    sites: Vec<u32>,
    what: &'a ValueSelection,
    names: &'a Names,
    markers: &'a Markers,
    clocks: &'a Clocks,
    times: Times,
    sieve: Sieve<'a>,
    arguments: Arguments,
    without: Without,
    found: u64,
    sink: T,
}

impl<T: ValueSink, const PLAIN: bool> Reader<'_, T, PLAIN> {
    #[inline(always)]
    fn function(&self, site: u32) -> u32 {
        self.sites.get(site as usize).copied().unwrap_or(NONE)
    }

    #[inline(always)]
    fn ended(&mut self, function: u32, clock: u64, ticks: u64, own: u64, known: Option<Inputs>) {
        let begin = clock.saturating_sub(ticks);
        if !self.sieve.passes(begin, ticks) {
            return;
        }
        let Some(known) = known else {
            self.without.calls += 1;
            return;
        };
        let inputs = Inputs {
            duration_ns: self.clocks.duration_ns(ticks),
            self_ns: self.clocks.duration_ns(own),
            ..known
        };
        self.found += 1;
        let group = match &self.what.group {
            Some(GroupBy::Expression(expression)) => expression.value(&inputs),
            _ => 0,
        };
        self.sink.add(Value {
            function,
            begin,
            end: clock,
            group,
            value: self.what.expression.value(&inputs),
        });
    }

    /// A call whose end is not needed, or not known: its value is that of its beginning.
    fn entered(&mut self, function: u32, clock: u64, arguments: Option<[u64; 6]>) {
        let known = arguments.map(|arguments| Inputs {
            arguments,
            ..Inputs::default()
        });
        self.ended(function, clock, 0, 0, known);
    }

    /// A call whose begin or end is not known has no value.
    fn unfinished(&mut self, frame: &Frame, clock: u64) {
        let is_wanted = self.what.field.is_none() && self.function(frame.site()) != NONE;
        if is_wanted && self.needs_end() && self.sieve.may_pass(frame.clock, clock) {
            self.without.unfinished += 1;
        }
    }

    fn needs_end(&self) -> bool {
        self.what.needs.end || self.what.needs.result || self.sieve.needs_end()
    }
}

impl<T: ValueSink, const PLAIN: bool> Sink for Reader<'_, T, PLAIN> {
    fn takes_runs(&self) -> bool {
        PLAIN
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let Plain {
            site,
            exit,
            clock,
            ticks,
            own,
            ..
        } = call;
        let function = self.function(site);
        if exit != 0 && function != NONE {
            self.ended(function, clock, ticks, own, Some(Inputs::default()));
        }
        0
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last() else {
            return 0;
        };
        let function = self.function(frame.site());
        if function == NONE {
            return 0;
        }
        if !self.needs_end() {
            self.entered(function, frame.clock, arguments);
            return 0;
        }
        match arguments {
            Some(arguments) if self.what.needs.arguments && frame.style() != Style::Only => {
                self.arguments.keep(arguments)
            }
            _ => 0,
        }
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        let function = self.function(frame.site());
        if function == NONE || !self.needs_end() {
            return;
        }
        let needs = self.what.needs;
        let arguments = self.arguments.take(frame.note);
        let is_known =
            (!needs.arguments || arguments.is_some()) && (!needs.result || ending.result.is_some());
        let ticks = ending.clock.saturating_sub(frame.clock);
        let known = is_known.then(|| Inputs {
            arguments: arguments.unwrap_or_default(),
            result: ending.result.unwrap_or(0),
            ..Inputs::default()
        });
        let own = ticks.saturating_sub(frame.child);
        self.ended(function, ending.clock, ticks, own, known);
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        let what = self.what;
        let Some(field) = what.field.as_ref().filter(|field| field.is_of(event)) else {
            return;
        };
        if !self.sieve.passes(clock, 0) {
            return;
        }
        let marker = self.markers.get(event);
        let values = marker.and_then(|marker| marker.values(payload));
        let values = values.unwrap_or_default();
        let group = what.group_field();
        let group = group.map_or(Ok(0), |group| group.number(event, &values));
        match (field.number(event, &values), group) {
            (Ok(value), Ok(group)) => {
                self.found += 1;
                let function = frames
                    .last()
                    .map_or(0, |frame| self.names.number(frame.site()));
                self.sink.add(Value {
                    function,
                    begin: clock,
                    end: clock,
                    group,
                    value,
                });
            }
            (Err(lack), _) => self.without.value.count(lack),
            (_, Err(lack)) => self.without.group.count(lack),
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.arguments.take(frame.note);
        self.unfinished(frame, clock);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.unfinished(frame, ending.clock);
    }
}

impl<T: ValueSink, const PLAIN: bool> Worker for Reader<'_, T, PLAIN> {
    fn times(&self) -> Times {
        self.times
    }

    fn awaits(&self, site: u32) -> bool {
        self.function(site) != NONE && self.needs_end()
    }

    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.sieve.begin(stream);
        self.sink.begin(stream, thread);
    }
}
