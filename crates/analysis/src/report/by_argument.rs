//! The calls of a function by the value of an argument, or of the result.

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::{Context, Result, bail, ensure};
use nopal_symbols::{Held, Prototype, Value, ValueKind};
use nopal_trace::{ThreadInfo, Trace};

use super::objects::Objects;
use crate::calls::{Arguments, Ending, Frame, Sink, Style};
use crate::drive::{Drive, Worker};
use crate::names::Names;
use crate::prototypes::{Prototypes, number, shown};
use crate::sort;
use crate::text::{Align, Table, bound, count, duration};

/// At most this many values have rows of their own; the calls with others share one row.
const MOST_VALUES: usize = 1 << 16;
const RESULT: &str = "result";

/// The calls with a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueRow {
    pub value: String,
    pub calls: u64,
    /// The times are as in a function's row: `total_ns` leaves out calls inside a call of the functions.
    pub total_ns: u64,
    pub self_ns: u64,
    pub max_ns: u64,
    /// Times may be longer.
    pub is_least: bool,
    /// Calls with times.
    pub timed: u64,
}

/// The value by which calls are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chosen {
    /// As the source names it; if that is not known, as the user did.
    name: String,
    is_result: bool,
    value: Value,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    timed: u64,
    total: u64,
    own: u64,
    max: u64,
    is_least: bool,
}

/// A call's value: recorded, not recorded, or one of those beyond the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Value(i128),
    NotRecorded,
    Other,
}

/// A frame's note is that of its arguments.
struct Sums<'a> {
    chosen: &'a Chosen,
    /// By site.
    wanted: &'a [bool],
    arguments: Arguments,
    /// Calls of the functions on the present stack.
    active: u64,
    by_key: HashMap<Key, Sum>,
}

impl Sums<'_> {
    fn is_wanted(&self, frame: &Frame) -> bool {
        let wanted = self.wanted.get(frame.site() as usize);
        wanted.copied().unwrap_or(false)
    }

    fn key(&self, words: Option<&[u64]>) -> Key {
        match words.and_then(|words| number(&self.chosen.value, words)) {
            Some(number) => Key::Value(number),
            None => Key::NotRecorded,
        }
    }

    fn sum(&mut self, key: Key) -> &mut Sum {
        let is_known = self.by_key.contains_key(&key);
        let key = match is_known || self.by_key.len() < MOST_VALUES {
            true => key,
            false => Key::Other,
        };
        self.by_key.entry(key).or_default()
    }

    fn ended(&mut self, frame: &Frame, ending: Ending, is_least: bool, is_entered: bool) {
        if !self.is_wanted(frame) {
            return;
        }
        let arguments = self.arguments.take(frame.note);
        if is_entered {
            self.active = self.active.saturating_sub(1);
        }
        let key = match self.chosen.is_result {
            true => self.key(ending.result.as_ref().map(std::slice::from_ref)),
            false => self.key(arguments.as_ref().map(|words| &words[..])),
        };
        let ticks = ending.clock.saturating_sub(frame.clock);
        let is_outermost = self.active == 0;
        let is_counted_now = self.chosen.is_result || !is_entered;
        let sum = self.sum(key);
        sum.calls += u64::from(is_counted_now);
        sum.timed += 1;
        sum.total = sum
            .total
            .saturating_add(if is_outermost { ticks } else { 0 });
        sum.own = sum.own.saturating_add(ticks.saturating_sub(frame.child));
        sum.max = sum.max.max(ticks);
        sum.is_least |= is_least || frame.is_bounded();
    }
}

impl Sink for Sums<'_> {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last().filter(|frame| self.is_wanted(frame)) else {
            return 0;
        };
        if !self.chosen.is_result {
            let key = self.key(arguments.as_ref().map(|words| &words[..]));
            self.sum(key).calls += 1;
        }
        if frame.style() == Style::Only {
            return 0;
        }
        self.active += 1;
        arguments.map_or(0, |words| self.arguments.keep(words))
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.ended(frame, ending, false, true);
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        if !self.is_wanted(frame) {
            return;
        }
        let arguments = self.arguments.take(frame.note);
        self.active = self.active.saturating_sub(1);
        if !self.chosen.is_result {
            let key = self.key(arguments.as_ref().map(|words| &words[..]));
            let sum = self.sum(key);
            sum.calls = sum.calls.saturating_sub(1);
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        let ending = Ending {
            clock,
            result: None,
            unwound: false,
        };
        self.ended(frame, ending, true, true);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.ended(frame, ending, true, false);
    }
}

impl Worker for Sums<'_> {
    fn begin(&mut self, _stream: usize, _thread: &ThreadInfo) {
        self.active = 0;
    }
}

/// `FUNCTION[:ARGUMENT]`; two colons are part of a name.
fn parts(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((function, argument)) if !function.ends_with(':') && !argument.is_empty() => {
            (function, Some(argument))
        }
        _ => (text, None),
    }
}

/// An argument by its number, from 1 on.
fn numbered(argument: &str) -> Option<usize> {
    let digits = argument.strip_prefix("arg").unwrap_or(argument);
    digits.parse().ok().filter(|number| *number > 0)
}

fn word(index: u8) -> Value {
    Value {
        type_name: String::new(),
        kind: ValueKind::Address,
        held: Held::Words(vec![index]),
    }
}

/// The value of a function's calls that `argument` names: the first argument, if nothing is named.
fn chosen(function: &str, prototype: Option<&Prototype>, argument: Option<&str>) -> Result<Chosen> {
    if argument == Some(RESULT) {
        return Ok(Chosen {
            name: RESULT.into(),
            is_result: true,
            value: prototype.map_or_else(|| word(0), |prototype| prototype.result.clone()),
        });
    }
    let asked = argument.unwrap_or("1");
    let Some(prototype) = prototype else {
        let index = numbered(asked).filter(|number| *number <= 6).with_context(|| {
            format!("the arguments of {function} have no names here, for lack of debug information: take 1 to 6")
        })?;
        return Ok(Chosen {
            name: format!("arg{index}"),
            is_result: false,
            value: word(index as u8 - 1),
        });
    };
    let all = &prototype.parameters;
    ensure!(!all.is_empty(), "{function} has no arguments");
    let named = all.iter().position(|one| one.name == asked);
    let index = named.or_else(|| {
        numbered(asked)?
            .checked_sub(1)
            .filter(|index| *index < all.len())
    });
    let index = index.with_context(|| {
        let names = all.iter().map(|one| match one.name.as_str() {
            "" => "(nameless)",
            name => name,
        });
        let names: Vec<&str> = names.collect();
        format!(
            "{function} has no argument {asked}; it has {}",
            names.join(", ")
        )
    })?;
    Ok(Chosen {
        name: match all[index].name.as_str() {
            "" => format!("arg{}", index + 1),
            name => name.to_owned(),
        },
        is_result: false,
        value: all[index].value.clone(),
    })
}

/// The calls of the functions that `text` names, by the argument that it names; most time first. Returns the value's
/// name with the rows.
pub fn by_argument(trace: &Trace, text: &str, drive: &Drive) -> Result<(String, Vec<ValueRow>)> {
    let names = Names::new(trace);
    // A raw name or a glob may have a colon too.
    let (pattern, argument) = match names.matching(text).is_empty() {
        true => parts(text),
        false => (text, None),
    };
    let functions = names.wanted(pattern)?;
    let mut prototypes = Prototypes::new(trace, &names);
    let mut common: Option<(String, Chosen)> = None;
    for function in &functions {
        let name = &names.functions()[*function as usize].name;
        let own = chosen(name, prototypes.of(*function), argument)?;
        match &common {
            None => common = Some((name.clone(), own)),
            Some((first, known)) if *known != own => bail!(
                "{pattern} means functions that have different arguments there: {first} has {}, {name} has {}; name one of them",
                described(known),
                described(&own)
            ),
            Some(_) => {}
        }
    }
    let (name, chosen) = common.context("no function is meant")?;
    match &chosen.value.held {
        Held::Words(words) if words.len() == 1 => {}
        Held::Nothing if chosen.is_result => bail!("{name} has no result"),
        Held::Unknown => bail!(
            "the register of {} of {name} is not certain: the compiler may have left it out",
            chosen.name
        ),
        _ => bail!(
            "{} of {name}, {}, is not in one register and was not recorded as one value",
            chosen.name,
            chosen.value.type_name
        ),
    }
    let sites = 0..names.sites() as u32;
    let wanted: Vec<bool> = sites
        .map(|site| functions.contains(&names.number(site)))
        .collect();
    let new = |_| Sums {
        chosen: &chosen,
        wanted: &wanted,
        arguments: Arguments::default(),
        active: 0,
        by_key: HashMap::new(),
    };
    let mut workers: Vec<Sums> = (0..drive.workers.max(1)).map(new).collect();
    drive.run(trace, &mut workers)?;
    let mut all: HashMap<Key, Sum> = HashMap::new();
    for (key, sum) in workers.into_iter().flat_map(|worker| worker.by_key) {
        let to = all.entry(key).or_default();
        to.calls += sum.calls;
        to.timed += sum.timed;
        to.total = to.total.saturating_add(sum.total);
        to.own = to.own.saturating_add(sum.own);
        to.max = to.max.max(sum.max);
        to.is_least |= sum.is_least;
    }
    let ns = |ticks| trace.clocks().duration_ns(ticks);
    let rows = all.into_iter().filter(|(_, sum)| sum.calls + sum.timed > 0);
    let rows = rows.map(|(key, sum)| ValueRow {
        value: match key {
            // The lower bits of a number are the word's.
            Key::Value(number) => shown(&chosen.value, &[number as u64; 6]).unwrap_or_default(),
            Key::NotRecorded => "(not recorded)".into(),
            Key::Other => "(other values)".into(),
        },
        calls: sum.calls,
        total_ns: ns(sum.total),
        self_ns: ns(sum.own),
        max_ns: ns(sum.max),
        is_least: sum.is_least,
        timed: sum.timed,
    });
    let mut rows: Vec<ValueRow> = rows.collect();
    ensure!(
        !rows.is_empty(),
        "{pattern}: no call was recorded that the options select"
    );
    let nothing = |row: &ValueRow| row.value == "(not recorded)";
    ensure!(
        !rows.iter().all(nothing),
        "no argument or result of {pattern} was recorded: record it with `nopal record --args`"
    );
    sort::by(&mut rows, |a, b| {
        (b.total_ns, b.calls)
            .cmp(&(a.total_ns, a.calls))
            .then_with(|| a.value.cmp(&b.value))
    });
    Ok((chosen.name, rows))
}

fn described(chosen: &Chosen) -> String {
    format!("{} {}", chosen.value.type_name, chosen.name)
        .trim()
        .to_owned()
}

pub fn write_by_argument(
    name: &str,
    rows: &[ValueRow],
    out: &mut dyn Write,
    width: usize,
) -> io::Result<()> {
    let numbers = ["total", "self", "calls", "max"].map(|name| (name, Align::Right));
    let columns = [numbers.as_slice(), &[("value", Align::Left)]].concat();
    let mut table = Table::new(&columns).give_way(&["self", "max"]);
    for row in rows {
        let time = |ns| match row.timed {
            0 => "-".to_owned(),
            _ => bound(ns, row.is_least),
        };
        table.row(vec![
            time(row.total_ns),
            time(row.self_ns),
            count(row.calls),
            match row.timed {
                0 => "-".to_owned(),
                _ => duration(row.max_ns),
            },
            match row.value.starts_with('(') {
                true => row.value.clone(),
                false => format!("{name}={}", row.value),
            },
        ]);
    }
    table.write(out, width)
}

/// An array of objects, one a value.
pub fn write_by_argument_json(
    name: &str,
    rows: &[ValueRow],
    trace: &Trace,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut objects = Objects::new(trace, out);
    for row in rows {
        objects.begin("argument", name)?;
        objects.text("value", &row.value);
        objects.numbers(&[
            ("calls", row.calls),
            ("total_ns", row.total_ns),
            ("self_ns", row.self_ns),
            ("max_ns", row.max_ns),
        ]);
        objects.flags(&[("is_least", row.is_least)]);
    }
    objects.end()
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn an_argument_stands_behind_one_colon() {
        assert_eq!(parts("open:flags"), ("open", Some("flags")));
        assert_eq!(parts("open"), ("open", None));
        assert_eq!(parts("app::Store::put"), ("app::Store::put", None));
        assert_eq!(
            parts("app::Store::put:key"),
            ("app::Store::put", Some("key"))
        );
    }
}
