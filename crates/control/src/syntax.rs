//! A line of the control language in its parts, as the parser of `runtime/core/command_parser.c` finds them.

use std::ffi::CStr;

use nopal_symbols::{nearest, or_nearest};

use crate::selection::{Location, Part};

/// The declarations of `runtime/core/command_parser.h`; each enumeration as a module.
#[allow(dead_code)]
mod grammar {
    include!(concat!(env!("OUT_DIR"), "/grammar.rs"));
}

use grammar::{CONTROL_ARGUMENTS, CONTROL_EXPECTED, Parsed, RawLocation, Span, location_kind};
pub use grammar::{command, probe_part, when_part};
use grammar::{
    nopal_action_parse, nopal_control_form, nopal_control_parse, nopal_location_next,
    nopal_number_next,
};

/// A command, or an action, with its arguments.
pub struct Line<'a> {
    text: &'a str,
    /// A number of the module [`command`].
    pub command: u32,
    /// The optional parts that are there.
    present: u32,
    arguments: [Span; CONTROL_ARGUMENTS],
}

/// The parts of a line. An error quotes it and says what was expected.
pub fn line(text: &str) -> Result<Line<'_>, String> {
    let length = u32::try_from(text.len()).map_err(|_| "a line of 4 GiB".to_string())?;
    let mut parsed = Parsed::default();
    // SAFETY: the line has this many bytes, which the function only reads, and it fills in the structure.
    let fits = unsafe { nopal_control_parse(text.as_ptr().cast(), length, &mut parsed) };
    parsed.line(text, fits)
}

impl<'a> Line<'a> {
    pub fn has(&self, part: u32) -> bool {
        self.present & part != 0
    }

    /// An argument as it is written, without the quotes of a single word; empty where its part is absent.
    pub fn argument(&self, number: usize) -> &'a str {
        slice(self.text, self.arguments[number])
    }

    /// The action of a trigger, which is an argument.
    pub fn action(&self, number: usize) -> Result<Line<'a>, String> {
        let (text, span) = (self.text, self.arguments[number]);
        let mut parsed = Parsed::default();
        // SAFETY: `span` lies in the line, which the function only reads, and it fills in the structure.
        let fits = unsafe { nopal_action_parse(text.as_ptr().cast(), span, &mut parsed) };
        parsed.line(text, fits)
    }

    /// An error in the line's meaning.
    pub fn failed(&self, error: String) -> String {
        format!("{}: {error}", quoted(self.text.trim()))
    }
}

/// The forms of all commands, in the order of the manual.
pub fn forms() -> impl Iterator<Item = &'static str> {
    // SAFETY: the function takes any number, and gives a text that lasts for ever or null.
    let form = |row| unsafe {
        let form = nopal_control_form(row);
        (!form.is_null()).then(|| CStr::from_ptr(form).to_str().unwrap_or_default())
    };
    (0..).map_while(form)
}

/// The locations in the words of `text`: an argument, or a line written to `set_ftrace_filter`.
pub fn locations_in(text: &str) -> Vec<Part> {
    let mut rest = Span::of(text);
    let mut locations = Vec::new();
    let mut found = RawLocation::default();
    // SAFETY: `rest` lies in the text; the functions only read that, and fill in the structure.
    while unsafe { nopal_location_next(text.as_ptr().cast(), &mut rest, &mut found) } {
        let named = || slice(text, found.text).to_owned();
        let (first, last) = (found.first, found.last);
        let location = match found.kind {
            location_kind::ADDRESS => Location::Address(first),
            location_kind::RANGE => Location::Range {
                start: first,
                end: last,
            },
            location_kind::IN_MODULE => Location::InModule {
                module: named(),
                address: first,
            },
            location_kind::RANGE_IN_MODULE => Location::RangeInModule {
                module: named(),
                start: first,
                end: last,
            },
            location_kind::LINE => Location::Line {
                file: named(),
                line: u32::try_from(first).unwrap_or(0),
            },
            _ => Location::Names(named()),
        };
        locations.push(Part {
            location,
            excluded: found.excluded,
        });
    }
    locations
}

/// The numbers that `text` begins with.
pub fn numbers_in(text: &str) -> Vec<u32> {
    let mut rest = Span::of(text);
    let mut numbers = Vec::new();
    let mut number = 0;
    // SAFETY: as in `locations_in`.
    while unsafe { nopal_number_next(text.as_ptr().cast(), &mut rest, &mut number) } {
        numbers.push(number);
    }
    numbers
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

fn slice(line: &str, span: Span) -> &str {
    line.get(span.begin as usize..span.end as usize)
        .unwrap_or_default()
}

impl Span {
    fn of(text: &str) -> Span {
        Span {
            begin: 0,
            end: u32::try_from(text.len()).unwrap_or(0),
        }
    }
}

impl Parsed {
    fn line(self, text: &str, fits: bool) -> Result<Line<'_>, String> {
        if fits {
            return Ok(Line {
                text,
                command: self.command,
                present: self.present,
                arguments: self.arguments,
            });
        }
        let expected = CStr::from_bytes_until_nul(&self.expected).unwrap_or_default();
        let expected = expected.to_string_lossy();
        let found = match slice(text, self.bad) {
            "" => "its end".to_string(),
            word => quoted(word) + &nearest_word(&expected, word),
        };
        let before = text.get(..self.bad.begin as usize).unwrap_or_default();
        let mistaken = mistaken_word(before);
        Err(format!(
            "{}: expected {expected}, found {found}{mistaken}",
            quoted(text.trim())
        ))
    }
}

/// The words of the language among the expected ones that one may have been meant to be.
fn nearest_word(expected: &str, word: &str) -> String {
    let of_language = |one: &&str| one.bytes().all(|byte| byte.is_ascii_lowercase());
    let expected = expected.split(", ").flat_map(|some| some.split(" or "));
    or_nearest(&nearest(expected.filter(of_language), word))
}

/// A word that was taken for an argument may have been meant to be one of the words that can stand before it.
fn mistaken_word(before: &str) -> String {
    let [first, word] = before.split_whitespace().collect::<Vec<_>>()[..] else {
        return String::new();
    };
    let group = |form: &'static str| {
        let rest = form.strip_prefix(first)?.strip_prefix(" [")?;
        Some(rest.split_once(']')?.0.split('|'))
    };
    let near = nearest(forms().filter_map(group).flatten(), word);
    match near[..] {
        [] => String::new(),
        _ => format!(
            "; for {}{}",
            quoted(word),
            or_nearest(&near).replacen(';', "", 1)
        ),
    }
}

impl Default for Parsed {
    fn default() -> Parsed {
        Parsed {
            command: 0,
            present: 0,
            arguments: [Span::default(); CONTROL_ARGUMENTS],
            bad: Span::default(),
            expected: [0; CONTROL_EXPECTED],
        }
    }
}
