//! Commands, from the parts of a line.

use nopal_analysis::triggers::{Action, Event, Trigger};
use nopal_analysis::values::Condition;

use crate::budget::Share;
use crate::probe::{Probe, Way};
use crate::selection::FunctionSelection;
use crate::syntax::{self, Line, command, locations_in, numbers_in, probe_part, quoted, when_part};

/// The command of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    New {
        what: FunctionSelection,
        name: String,
    },
    Switch {
        name: String,
        on: bool,
    },
    Count {
        name: String,
    },
    Remove {
        name: String,
    },
    /// The buffer has room for two to the power of this many records.
    Size(u32),
    Watch {
        ids: Vec<u32>,
        children: bool,
    },
    Processors,
    Start,
    Stop,
    Reset,
    Query(FunctionSelection),
    Simulate(FunctionSelection),
    Uniform(bool),
    Budget(Option<Share>),
    Arguments,
    Section {
        name: String,
        from: String,
        to: String,
    },
    RemoveSection {
        name: String,
    },
    Tracer {
        name: String,
        on: bool,
    },
    ResetTracer {
        name: String,
    },
    /// Keeps this many of its slowest cases of each minute.
    KeepSlowest {
        name: String,
        most: u32,
    },
    /// In microseconds.
    Threshold(u32),
    Latency {
        name: String,
    },
    Mark {
        name: String,
        on: bool,
    },
    Probe(Probe),
    SwitchProbe {
        name: String,
        on: bool,
    },
    RemoveProbe {
        name: String,
    },
    Snapshot,
    SetTrigger {
        trigger: Trigger<FunctionSelection>,
        /// A number, if there is none.
        name: Option<String>,
    },
    RemoveTrigger {
        name: String,
    },
}

/// The command of a line; `None` if it is empty or a comment. An error quotes the line and says what was expected.
pub fn parse(line: &str) -> Result<Option<Command>, String> {
    let line = syntax::line(line)?;
    let text = |number: usize| line.argument(number).to_owned();
    let what = || FunctionSelection::parsed(locations_in(line.argument(0)));
    let numbers = || numbers_in(line.argument(0));
    let switch = |on| Command::Switch { name: text(0), on };
    let mark = |on| Command::Mark { name: text(0), on };
    let watch = |children| Command::Watch {
        ids: numbers(),
        children,
    };
    Ok(Some(match line.command {
        command::NONE => return Ok(None),
        command::TRACE_NEW => Command::New {
            what: what(),
            name: text(1),
        },
        command::TRACE_ON => switch(true),
        command::TRACE_OFF => switch(false),
        command::TRACE_COUNT => Command::Count { name: text(0) },
        command::TRACE_REMOVE => Command::Remove { name: text(0) },
        command::SIZE => Command::Size(numbers().first().copied().unwrap_or(0)),
        command::WATCH => watch(false),
        command::WATCH_CHILDREN => watch(true),
        command::PROCESSORS | command::PROCESSORS_ALL => Command::Processors,
        command::START => Command::Start,
        command::STOP => Command::Stop,
        command::RESET => Command::Reset,
        command::QUERY => Command::Query(what()),
        command::TESTTRACEIN => Command::Simulate(what()),
        command::UNIFORM_ON => Command::Uniform(true),
        command::UNIFORM_OFF => Command::Uniform(false),
        command::BUDGET => {
            let share = line.argument(0).parse();
            Command::Budget(Some(share.map_err(|error| line.failed(error))?))
        }
        command::BUDGET_OFF => Command::Budget(None),
        command::ARGUMENTS_ON | command::ARGUMENTS_OFF => Command::Arguments,
        command::MARK_ON => mark(true),
        command::MARK_OFF => mark(false),
        command::PROBE => {
            let way = match () {
                () if line.has(probe_part::RETURN) => Way::Return,
                () if line.has(probe_part::BREAKPOINT) => Way::Breakpoint,
                () if line.has(probe_part::AUTO) => Way::Auto,
                () => Way::Jump,
            };
            let name = line.has(probe_part::NAMED).then(|| text(1));
            let fetched = line.has(probe_part::FETCHES).then(|| text(2));
            let fetched = fetched.unwrap_or_default();
            Command::Probe(Probe::parsed(&text(0), way, name.as_deref(), &fetched)?)
        }
        command::PROBE_ON => Command::SwitchProbe {
            name: text(0),
            on: true,
        },
        command::PROBE_OFF => Command::SwitchProbe {
            name: text(0),
            on: false,
        },
        command::PROBE_REMOVE => Command::RemoveProbe { name: text(0) },
        command::SNAPSHOT => Command::Snapshot,
        command::WHEN => Command::SetTrigger {
            trigger: trigger(&line)?,
            name: line.has(when_part::NAMED).then(|| text(3)),
        },
        command::WHEN_REMOVE => Command::RemoveTrigger { name: text(0) },
        command::SECTION_NEW => Command::Section {
            from: text(0),
            to: text(1),
            name: text(2),
        },
        command::SECTION_REMOVE => Command::RemoveSection { name: text(0) },
        command::TRACER_ON => Command::Tracer {
            name: text(0),
            on: true,
        },
        command::TRACER_OFF => Command::Tracer {
            name: text(0),
            on: false,
        },
        command::TRACER_RESET => Command::ResetTracer { name: text(0) },
        command::TRACER_KEEP => Command::KeepSlowest {
            name: text(0),
            most: numbers_in(line.argument(1)).first().copied().unwrap_or(0),
        },
        command::THRESHOLD => Command::Threshold(numbers().first().copied().unwrap_or(0)),
        command::LATENCY => Command::Latency { name: text(0) },
        other => return Err(line.failed(format!("unknown command {other}"))),
    }))
}

/// `WHERE [new NAME] [fetch ARGS]`, as the command `probe` takes it.
pub fn probe(text: &str) -> Result<Probe, String> {
    match parse(&format!("probe {text}"))? {
        Some(Command::Probe(probe)) => Ok(probe),
        _ => Err(format!(
            "{}: expected a place and the values to fetch there",
            quoted(text)
        )),
    }
}

/// `when EVENT if CONDITION do ACTION`
fn trigger(line: &Line) -> Result<Trigger<FunctionSelection>, String> {
    let condition = line.has(when_part::IF).then(|| line.argument(1));
    let condition = condition.map(Condition::parse).transpose();
    Ok(Trigger {
        event: event(line.argument(0)).map_err(|error| line.failed(error))?,
        condition: condition.map_err(|error| line.failed(format!("{error:#}")))?,
        action: action(&line.action(2)?)?,
    })
}

/// `[return] WHAT`, `mark NAME` or `probe NAME`. A single word, or one in quotes, is a function.
fn event(text: &str) -> Result<Event<FunctionSelection>, String> {
    let (first, rest) = text.split_once(is_blank).unwrap_or((text, ""));
    let functions = |text| FunctionSelection::parsed(locations_in(text));
    match (first, rest.trim_matches(is_blank)) {
        (_, "") => Ok(Event::Entry(functions(text))),
        _ if is_off_by_one(first, "return") => Err(format!(
            "expected return or functions, found {} before {}",
            quoted(first),
            quoted(rest)
        )),
        ("return", _) => Ok(Event::Return(functions(rest))),
        ("mark" | "probe", name) if name.contains(is_blank) => Err(format!(
            "expected the name of one {first}, found {}",
            quoted(name)
        )),
        ("mark", name) => Ok(Event::Marker(name.trim_matches('"').to_owned())),
        ("probe", name) => Ok(Event::Probe(name.trim_matches('"').to_owned())),
        _ => Ok(Event::Entry(functions(text))),
    }
}

/// Whether a word is another one but for one letter that is missing, too much, or different, or two that are swapped.
fn is_off_by_one(word: &str, other: &str) -> bool {
    let (mut a, mut b) = (word.as_bytes(), other.as_bytes());
    while let ([first, rest @ ..], [same, others @ ..]) = (a, b)
        && first == same
    {
        (a, b) = (rest, others);
    }
    while let ([rest @ .., last], [others @ .., same]) = (a, b)
        && last == same
    {
        (a, b) = (rest, others);
    }
    match (a, b) {
        ([], []) => false,
        ([_] | [], [_] | []) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r')
}

fn action(line: &Line) -> Result<Action, String> {
    let switch = |on| Action::Switch {
        name: line.argument(0).to_owned(),
        on,
    };
    Ok(match line.command {
        command::TRACE_ON => switch(true),
        command::TRACE_OFF => switch(false),
        command::START => Action::Start,
        command::STOP => Action::Stop,
        command::SNAPSHOT => Action::Snapshot,
        command::MARK => Action::Mark,
        command::COUNT => Action::Count,
        command::DETACH => Action::Detach,
        other => return Err(line.failed(format!("unknown action {other}"))),
    })
}
