//! Values of calls: how long each took, or what is computed of its arguments and its result; values of markers; and how
//! long the cases of tracers took.

mod condition;
mod expression;

use std::collections::HashMap;

use anyhow::{Result, bail};
use nopal_trace::{Clocks, Markers, ThreadInfo, Trace, Value as Recorded};

use crate::calls::{Arguments, Ending, Frame, Sink, Style};
use crate::drive::{Drive, Worker};
use crate::filter::{Filter, LeftOut, Sieve};
use crate::names::Names;
use crate::tracers::{self, Case, Past, Tracer};
pub use condition::{Condition, Met};
pub use expression::Expression;
use expression::Inputs;

/// Which value of which functions: `read`, `read.result`, `read.arg1 >> 12`; of a marker: `net_rx.len`; or of a
/// tracer's cases: `lockhold`, `read..write`.
pub struct What {
    /// As the user wrote it.
    pub text: String,
    /// By number of the function.
    functions: Vec<bool>,
    pub expression: Expression,
    needs: Needs,
    /// By event: which of its marker's fields.
    fields: HashMap<u32, usize>,
    tracer: Option<Tracer>,
    group: Option<GroupBy>,
}

/// What values are put into groups by.
enum GroupBy {
    Expression(Expression),
    /// By event: which of its marker's fields.
    Fields(HashMap<u32, usize>),
}

/// Which values of a call are asked for.
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

impl What {
    /// `FUNCTION`, which means its duration, `FUNCTION.EXPRESSION`, `MARKER.FIELD`, or a tracer, unless a function is
    /// called so. Without any text, the durations of all calls.
    pub fn new(text: Option<&str>, names: &Names, markers: &Markers) -> Result<What> {
        let Some(text) = text else {
            let all = vec![true; names.functions().len()];
            return Ok(What::of("all calls", all, Expression::Duration));
        };
        if let Some(tracer) = tracers::asked(text, names) {
            let mut what = What::of(text, Vec::new(), Expression::Duration);
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
                let mut what = What::of(text, functions, Expression::Number(0));
                what.fields = fields(markers, name, field)?;
                return Ok(what);
            }
            Some((function, expression)) => {
                choose(names.wanted(function)?);
                Expression::parse(expression)?
            }
            None if markers.iter().any(|(_, marker)| marker.name == text) => {
                let numbers = numbers(text, markers);
                bail!("{text} is a marker: ask for {text}.FIELD; it has {numbers}")
            }
            None => {
                choose(names.wanted(text)?);
                Expression::Duration
            }
        };
        Ok(What::of(text, functions, expression))
    }

    fn of(text: &str, functions: Vec<bool>, expression: Expression) -> What {
        let needs = Needs::of(&expression);
        What {
            text: text.to_string(),
            functions,
            expression,
            needs,
            fields: HashMap::new(),
            tracer: None,
            group: None,
        }
    }

    /// The values shall have groups: of calls, by an expression of the same call; of markers, by a field of the same
    /// one.
    pub fn group_by(&mut self, text: &str, markers: &Markers) -> Result<()> {
        self.group = Some(match self.text.rsplit_once('.') {
            Some((marker, _)) if !self.fields.is_empty() => {
                GroupBy::Fields(fields(markers, marker, text)?)
            }
            _ => {
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

    /// What the values are of.
    pub fn noun(&self) -> &'static str {
        match self.tracer {
            Some(_) => "cases",
            None if self.fields.is_empty() => "calls",
            None => "markers",
        }
    }

    /// Whether the values are how long calls or cases took.
    pub fn is_duration(&self) -> bool {
        self.expression == Expression::Duration
    }

    /// Whether the values are nanoseconds.
    pub fn is_time(&self) -> bool {
        matches!(self.expression, Expression::Duration | Expression::Own)
    }
}

/// The markers called `name`, by event, and which of their fields is called `wanted`.
fn fields(markers: &Markers, name: &str, wanted: &str) -> Result<HashMap<u32, usize>> {
    let mut found = HashMap::new();
    let named = || markers.iter().filter(|(_, marker)| marker.name == name);
    for (event, marker) in named() {
        let at = marker.fields.iter().position(|field| field.name == wanted);
        if let Some(at) = at.filter(|at| !marker.fields[*at].kind.has_length()) {
            found.insert(event, at);
        }
    }
    if found.is_empty() {
        let numbers = numbers(name, markers);
        bail!("the marker {name} has no number that is called {wanted:?}; it has {numbers}");
    }
    Ok(found)
}

/// The fields that are numbers, of the markers called `name`.
fn numbers(name: &str, markers: &Markers) -> String {
    let named = markers.iter().filter(|(_, marker)| marker.name == name);
    let fields = named.flat_map(|(_, marker)| &marker.fields);
    let numbers = fields.filter(|field| !field.kind.has_length());
    let numbers: Vec<&str> = numbers.map(|field| field.name.as_str()).collect();
    match numbers.as_slice() {
        [] => "none".to_string(),
        numbers => numbers.join(", "),
    }
}

/// One call and its value, or one of a marker, with the function that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub function: u32,
    /// The counter when the call began, and when it ended; the same where only the begin is known.
    pub begin: u64,
    pub end: u64,
    /// What it is grouped by; 0 where by nothing.
    pub group: i64,
    pub value: i64,
}

/// Takes values, each worker those of some threads.
pub trait Tally: Send {
    /// The values that follow are of this thread, `stream` among the trace's.
    fn begin(&mut self, _stream: usize, _thread: &ThreadInfo) {}
    fn add(&mut self, value: Value);
}

/// Gives the values that pass the filter, at least one, to a tally for each worker. Tells what a tracer missed.
pub fn tally<T: Tally>(
    trace: &Trace,
    names: &Names,
    what: &What,
    filter: &Filter,
    drive: &Drive,
    new: impl Fn() -> T,
) -> Result<(Vec<T>, Past)> {
    if let Some(tracer) = what.tracer() {
        let mut tally = new();
        let past = cases(trace, names, tracer, filter, &mut tally, |_| ())?;
        return Ok((vec![tally], past));
    }
    let tallies = (0..drive.workers.max(1)).map(|_| new());
    let tallies = if what.needs.arguments || what.needs.result {
        run::<T, false>(trace, names, what, filter, drive, tallies)?
    } else {
        run::<T, true>(trace, names, what, filter, drive, tallies)?
    };
    Ok((tallies, Past::default()))
}

fn run<T: Tally, const PLAIN: bool>(
    trace: &Trace,
    names: &Names,
    what: &What,
    filter: &Filter,
    drive: &Drive,
    tallies: impl Iterator<Item = T>,
) -> Result<Vec<T>> {
    let sieve = Sieve::new(filter, trace);
    let reader = |tally| Reader::<T, PLAIN> {
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
        sieve: sieve.clone(),
        arguments: Arguments::default(),
        unknown: 0,
        found: 0,
        tally,
    };
    let mut readers: Vec<_> = tallies.map(reader).collect();
    drive.run(trace, &mut readers)?;
    let mut left_out = LeftOut::default();
    let (mut unknown, mut found) = (0, 0);
    for reader in &readers {
        left_out.add(&reader.sieve.left_out);
        unknown += reader.unknown;
        found += reader.found;
    }
    if found == 0 && unknown > 0 {
        bail!(
            "{}: the calls were recorded without arguments and results: record with --args",
            what.text
        );
    }
    if found == 0 && left_out.seen == 0 && !what.fields.is_empty() {
        bail!("{}: the marker was not recorded", what.text);
    }
    if found == 0 {
        bail!("{}: {}", what.text, left_out.why(filter));
    }
    Ok(readers.into_iter().map(|reader| reader.tally).collect())
}

/// Gives how long the cases of a tracer took that pass the filter, at least one, to a tally, and the cases to `found`.
/// A case is of the thread in which it ended, and of no function. Tells what the tracer missed.
pub fn cases<T: Tally>(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    filter: &Filter,
    tally: &mut T,
    mut found: impl FnMut(&Case),
) -> Result<Past> {
    let threads = trace.threads();
    let mut sieve = Sieve::new(filter, trace);
    let mut has_found = false;
    let past = tracers::of_trace(trace, names, tracer, |case| {
        let stream = case.end_thread as usize;
        sieve.begin(&threads[stream]);
        if !sieve.passes(case.begin, case.ticks()) {
            return;
        }
        has_found = true;
        found(&case);
        let ns = trace.clocks().duration_ns(case.ticks());
        tally.begin(stream, &threads[stream]);
        tally.add(Value {
            function: 0,
            begin: case.begin,
            end: case.end,
            group: 0,
            value: i64::try_from(ns).unwrap_or(i64::MAX),
        });
    })?;
    if !has_found {
        bail!("{}: {}", tracer.name(), sieve.left_out.why(filter));
    }
    Ok(past)
}

const NONE: u32 = u32::MAX;

/// Makes values of calls.
struct Reader<'a, T, const PLAIN: bool> {
    /// By site: the function, if it is wanted.
    sites: Vec<u32>,
    what: &'a What,
    names: &'a Names,
    markers: &'a Markers,
    clocks: &'a Clocks,
    sieve: Sieve<'a>,
    arguments: Arguments,
    /// Calls whose arguments or result are needed, but not known.
    unknown: u64,
    found: u64,
    tally: T,
}

impl<T: Tally, const PLAIN: bool> Reader<'_, T, PLAIN> {
    #[inline(always)]
    fn function(&self, site: u32) -> u32 {
        self.sites.get(site as usize).copied().unwrap_or(NONE)
    }

    #[inline(always)]
    fn ended(&mut self, function: u32, clock: u64, ticks: u64, own: u64, known: Inputs) {
        let begin = clock.saturating_sub(ticks);
        if !self.sieve.passes(begin, ticks) {
            return;
        }
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
        self.tally.add(Value {
            function,
            begin,
            end: clock,
            group,
            value: self.what.expression.value(&inputs),
        });
    }

    /// A call whose end is not needed, or not known: its value is that of its beginning.
    fn entered(&mut self, function: u32, clock: u64, arguments: Option<[u64; 6]>) {
        let Some(arguments) = arguments else {
            self.unknown += 1;
            return;
        };
        let known = Inputs {
            arguments,
            ..Inputs::default()
        };
        self.ended(function, clock, 0, 0, known);
    }

    fn needs_end(&self) -> bool {
        self.what.needs.end || self.what.needs.result || self.sieve.needs_end()
    }
}

impl<T: Tally, const PLAIN: bool> Sink for Reader<'_, T, PLAIN> {
    const RUNS: bool = PLAIN;

    #[inline(always)]
    fn plain(&mut self, site: u32, exit: u64, clock: u64, ticks: u64, own: u64) {
        let function = self.function(site);
        if exit != 0 && function != NONE {
            self.ended(function, clock, ticks, own, Inputs::default());
        }
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
        if (needs.arguments && arguments.is_none()) || (needs.result && ending.result.is_none()) {
            self.unknown += 1;
            return;
        }
        let ticks = ending.clock.saturating_sub(frame.clock);
        let known = Inputs {
            arguments: arguments.unwrap_or_default(),
            result: ending.result.unwrap_or(0),
            ..Inputs::default()
        };
        let own = ticks.saturating_sub(frame.child);
        self.ended(function, ending.clock, ticks, own, known);
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        let Some(&field) = self.what.fields.get(&event) else {
            return;
        };
        let values = self
            .markers
            .get(event)
            .and_then(|marker| marker.values(payload));
        let number = |field: usize| match values.as_ref()?.get(field)? {
            Recorded::Signed(value) => Some(*value),
            Recorded::Unsigned(value) => Some(*value as i64),
            Recorded::Double(value) => Some(value.round() as i64),
            Recorded::Bytes(..) => None,
        };
        let group = match &self.what.group {
            Some(GroupBy::Fields(fields)) => fields.get(&event).and_then(|field| number(*field)),
            _ => Some(0),
        };
        let (Some(value), Some(group)) = (number(field), group) else {
            return;
        };
        if self.sieve.passes(clock, 0) {
            self.found += 1;
            let function = frames
                .last()
                .map_or(0, |frame| self.names.number(frame.site()));
            self.tally.add(Value {
                function,
                begin: clock,
                end: clock,
                group,
                value,
            });
        }
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, _counted: bool) {
        self.arguments.take(frame.note);
    }

    fn stray(&mut self, _key: u32, _ending: Ending) {}
}

impl<T: Tally, const PLAIN: bool> Worker for Reader<'_, T, PLAIN> {
    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.sieve.begin(thread);
        self.tally.begin(stream, thread);
    }
}
