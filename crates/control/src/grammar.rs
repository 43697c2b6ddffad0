//! The parser of `runtime/core/control.c`, from Rust.

use std::ffi::{CStr, c_char};

use nopal_analysis::triggers::{Action, Event, Trigger};
use nopal_analysis::values::Condition;

use crate::engine::Place;
use crate::probe::{Probe, Way};
use crate::what::{Part, What};

// `enum nopal_command`, `enum nopal_probe_part` and `enum nopal_when_part`, each as a module.
include!(concat!(env!("OUT_DIR"), "/grammar.rs"));

/// What a line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    New {
        what: What,
        name: String,
    },
    Switch {
        name: String,
        on: bool,
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
    Start,
    Stop,
    Reset,
    Query(What),
    Simulate(What),
    Uniform(bool),
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
        trigger: Trigger<What>,
        /// A number, if there is none.
        name: Option<String>,
    },
    RemoveTrigger {
        name: String,
    },
}

/// What a line asks for; `None` if it is empty or a comment. An error quotes the line and says what was expected.
pub fn parse(line: &str) -> Result<Option<Command>, String> {
    let length = u32::try_from(line.len()).map_err(|_| "a line of 4 GiB".to_string())?;
    let mut parsed = Parsed::default();
    // SAFETY: the line has this many bytes, which the function only reads, and it fills in the structure.
    let is_command = unsafe { nopal_control_parse(line.as_ptr().cast(), length, &mut parsed) };
    ensure(is_command, line, &parsed)?;
    let text = |argument: usize| slice(line, parsed.arguments[argument]).to_owned();
    let what = || What::parsed(places(line, parsed.arguments[0]));
    let numbers = || numbers(line, parsed.arguments[0]);
    let switch = |on| Command::Switch { name: text(0), on };
    let mark = |on| Command::Mark { name: text(0), on };
    let watch = |children| Command::Watch {
        ids: numbers(),
        children,
    };
    let is = |part: u32| parsed.present & part != 0;
    Ok(Some(match parsed.command {
        command::NONE => return Ok(None),
        command::TRACE_NEW => Command::New {
            what: what(),
            name: text(1),
        },
        command::TRACE_ON => switch(true),
        command::TRACE_OFF => switch(false),
        command::TRACE_REMOVE => Command::Remove { name: text(0) },
        command::SIZE => Command::Size(numbers().first().copied().unwrap_or(0)),
        command::WATCH => watch(false),
        command::WATCH_CHILDREN => watch(true),
        command::START => Command::Start,
        command::STOP => Command::Stop,
        command::RESET => Command::Reset,
        command::QUERY => Command::Query(what()),
        command::TESTTRACEIN => Command::Simulate(what()),
        command::UNIFORM_ON => Command::Uniform(true),
        command::UNIFORM_OFF => Command::Uniform(false),
        command::MARK_ON => mark(true),
        command::MARK_OFF => mark(false),
        command::PROBE => {
            let way = match () {
                () if is(probe_part::RETURN) => Way::Return,
                () if is(probe_part::BREAKPOINT) => Way::Breakpoint,
                () => Way::Jump,
            };
            let name = is(probe_part::NAMED).then(|| text(1));
            let fetched = is(probe_part::FETCHES).then(|| text(2));
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
        command::WHEN => {
            let [event, condition, action, _] = parsed.arguments;
            let condition = is(when_part::IF).then_some(condition);
            Command::SetTrigger {
                trigger: trigger(line, event, condition, action)?,
                name: is(when_part::NAMED).then(|| text(3)),
            }
        }
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
        command::THRESHOLD => Command::Threshold(numbers().first().copied().unwrap_or(0)),
        command::LATENCY => Command::Latency { name: text(0) },
        other => return Err(format!("{line:?}: unknown command {other}")),
    }))
}

/// `WHERE [new NAME] [fetch ARGS]`, as the command `probe` takes it.
pub fn probe(text: &str) -> Result<Probe, String> {
    match parse(&format!("probe {text}"))? {
        Some(Command::Probe(probe)) => Ok(probe),
        _ => Err(format!(
            "{}: not a place and what to fetch there",
            quoted(text)
        )),
    }
}

/// The forms of all commands, in the order in which people are told of them.
pub fn forms() -> impl Iterator<Item = &'static str> {
    // SAFETY: the function takes any number, and gives a text that lasts for ever or null.
    let form = |row| unsafe {
        let form = nopal_control_form(row);
        (!form.is_null()).then(|| CStr::from_ptr(form).to_str().unwrap_or_default())
    };
    (0..).map_while(form)
}

/// The places in the words of `text`, such as those that are written to `set_ftrace_filter`.
pub fn places_in(text: &str) -> Vec<Part> {
    let length = u32::try_from(text.len()).unwrap_or(0);
    places(
        text,
        Span {
            begin: 0,
            end: length,
        },
    )
}

/// The numbers that `text` begins with.
pub fn numbers_in(text: &str) -> Vec<u32> {
    let length = u32::try_from(text.len()).unwrap_or(0);
    numbers(
        text,
        Span {
            begin: 0,
            end: length,
        },
    )
}

/// The error of a line, or a part of it, that is not as the grammar has it.
fn ensure(fits: bool, line: &str, parsed: &Parsed) -> Result<(), String> {
    if fits {
        return Ok(());
    }
    let expected = CStr::from_bytes_until_nul(&parsed.expected).unwrap_or_default();
    let expected = expected.to_string_lossy();
    let found = match slice(line, parsed.bad) {
        "" => "its end".to_string(),
        word => quoted(word),
    };
    Err(format!(
        "{}: expected {expected}, found {found}",
        quoted(line.trim())
    ))
}

/// `when EVENT if CONDITION do ACTION`, by where these are in the line.
fn trigger(
    line: &str,
    event: Span,
    condition: Option<Span>,
    action: Span,
) -> Result<Trigger<What>, String> {
    let failed = |error: String| format!("{}: {error}", quoted(line.trim()));
    let condition = condition.map(|span| Condition::parse(slice(line, span)));
    Ok(Trigger {
        event: self::event(line, event).map_err(failed)?,
        condition: condition
            .transpose()
            .map_err(|error| failed(format!("{error:#}")))?,
        action: self::action(line, action)?,
    })
}

/// `[return] WHAT`, `mark NAME` or `probe NAME`. What is alone, or in quotes, is a function.
fn event(line: &str, span: Span) -> Result<Event<What>, String> {
    let text = slice(line, span);
    let (first, rest) = text.split_once(is_blank).unwrap_or((text, ""));
    let behind = Span {
        begin: span.end - rest.len() as u32,
        ..span
    };
    let functions = |span| What::parsed(places(line, span));
    match (first, rest.trim_matches(is_blank)) {
        (_, "") => Ok(Event::Entry(functions(span))),
        ("return", _) => Ok(Event::Return(functions(behind))),
        ("mark" | "probe", name) if name.contains(is_blank) => Err(format!(
            "expected the name of one {first}, found {}",
            quoted(name)
        )),
        ("mark", name) => Ok(Event::Marker(name.trim_matches('"').to_owned())),
        ("probe", name) => Ok(Event::Probe(name.trim_matches('"').to_owned())),
        _ => Ok(Event::Entry(functions(span))),
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r')
}

fn action(line: &str, span: Span) -> Result<Action, String> {
    let mut parsed = Parsed::default();
    // SAFETY: `span` lies in the line, which the function only reads, and it fills in the structure.
    let is_action = unsafe { nopal_action_parse(line.as_ptr().cast(), span, &mut parsed) };
    ensure(is_action, line, &parsed)?;
    let switch = |on| Action::Switch {
        name: slice(line, parsed.arguments[0]).to_owned(),
        on,
    };
    Ok(match parsed.command {
        command::TRACE_ON => switch(true),
        command::TRACE_OFF => switch(false),
        command::START => Action::Start,
        command::STOP => Action::Stop,
        command::SNAPSHOT => Action::Snapshot,
        command::MARK => Action::Mark,
        command::COUNT => Action::Count,
        command::DETACH => Action::Detach,
        other => return Err(format!("{line:?}: unknown action {other}")),
    })
}

/// In quotes, with nothing in it that a terminal would obey.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.push(char),
            _ => quoted.extend(char.escape_debug()),
        }
    }
    quoted + "\""
}

fn places(line: &str, mut rest: Span) -> Vec<Part> {
    let mut places = Vec::new();
    let mut found = RawPlace::default();
    // SAFETY: `rest` lies in the line; the functions only read that, and fill in the structure.
    while unsafe { nopal_place_next(line.as_ptr().cast(), &mut rest, &mut found) } {
        let text = || slice(line, found.text).to_owned();
        let (first, last) = (found.first, found.last);
        // In the order of `enum nopal_place_kind`.
        let place = match found.kind {
            0 => Place::Address(first),
            1 => Place::Range {
                start: first,
                end: last,
            },
            2 => Place::InModule {
                module: text(),
                address: first,
            },
            3 => Place::RangeInModule {
                module: text(),
                start: first,
                end: last,
            },
            4 => Place::Line {
                file: text(),
                line: u32::try_from(first).unwrap_or(0),
            },
            _ => Place::Names(text()),
        };
        places.push(Part {
            place,
            excluded: found.excluded,
        });
    }
    places
}

fn numbers(line: &str, mut rest: Span) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut number = 0;
    // SAFETY: as in `places`.
    while unsafe { nopal_number_next(line.as_ptr().cast(), &mut rest, &mut number) } {
        numbers.push(number);
    }
    numbers
}

fn slice(line: &str, span: Span) -> &str {
    line.get(span.begin as usize..span.end as usize)
        .unwrap_or_default()
}

/// `struct nopal_span`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Span {
    begin: u32,
    end: u32,
}

const ARGUMENTS: usize = 4;
const EXPECTED: usize = 256;

/// `struct nopal_control`
#[repr(C)]
struct Parsed {
    command: u32,
    present: u32,
    arguments: [Span; ARGUMENTS],
    bad: Span,
    expected: [u8; EXPECTED],
}

impl Default for Parsed {
    fn default() -> Parsed {
        Parsed {
            command: 0,
            present: 0,
            arguments: [Span::default(); ARGUMENTS],
            bad: Span::default(),
            expected: [0; EXPECTED],
        }
    }
}

/// `struct nopal_place`
#[repr(C)]
#[derive(Default)]
struct RawPlace {
    kind: u32,
    excluded: bool,
    text: Span,
    first: u64,
    last: u64,
}

// control.h asserts the same.
const _: () = assert!(size_of::<Parsed>() == 304 && size_of::<RawPlace>() == 32);

unsafe extern "C" {
    fn nopal_control_parse(line: *const c_char, length: u32, parsed: *mut Parsed) -> bool;
    fn nopal_action_parse(line: *const c_char, action: Span, parsed: *mut Parsed) -> bool;
    fn nopal_control_form(row: u32) -> *const c_char;
    fn nopal_place_next(line: *const c_char, rest: *mut Span, place: *mut RawPlace) -> bool;
    fn nopal_number_next(line: *const c_char, rest: *mut Span, number: *mut u32) -> bool;
}
