//! The request that each call works for. It begins with a call of a function or at a marker, and an argument or a field
//! gives its identity.

use std::collections::HashMap;

use anyhow::{Result, bail};
use nopal_analysis::calls::Frame;
use nopal_analysis::markers::push_value;
use nopal_analysis::names::{Names, printable};
use nopal_trace::Trace;

/// The most identities that are kept; later requests have none.
const MOST: usize = 1 << 22;

/// The begin of requests: `FUNCTION`, `FUNCTION.argN`, `MARKER.FIELD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBegin {
    /// By function number; the argument that identifies it.
    Calls(Vec<bool>, Option<usize>),
    /// An event, and the field that identifies it.
    Marker(u32, usize),
}

impl RequestBegin {
    pub fn new(text: &str, trace: &Trace, names: &Names) -> Result<RequestBegin> {
        let of_functions = |pattern: &str| {
            let matching = names.matching(pattern);
            (!matching.is_empty()).then(|| {
                let mut functions = vec![false; names.functions().len()];
                for number in matching {
                    functions[number as usize] = true;
                }
                functions
            })
        };
        if let Some(functions) = of_functions(text) {
            return Ok(RequestBegin::Calls(functions, None));
        }
        if let Some((stem, end)) = text.rsplit_once('.') {
            for (event, marker) in trace.markers().iter().filter(|(_, one)| one.name == stem) {
                let mut fields = marker.fields.iter();
                if let Some(at) = fields.position(|field| field.name == end) {
                    return Ok(RequestBegin::Marker(event, at));
                }
            }
            let argument = end.strip_prefix("arg").and_then(|digit| digit.parse().ok());
            if let Some(argument @ 1..=6) = argument
                && let Some(functions) = of_functions(stem)
            {
                return Ok(RequestBegin::Calls(functions, Some(argument - 1)));
            }
        }
        bail!(
            "{text}: no recorded function or field of a marker has this name: requests begin at FUNCTION, FUNCTION.arg1 to arg6, or MARKER.FIELD"
        )
    }
}

/// The requests of the calls that one worker has seen. A frame's note is the number of its request.
pub struct Requests<'a> {
    trace: &'a Trace,
    names: &'a Names,
    begin: Option<&'a RequestBegin>,
    identities: Vec<String>,
    numbers: HashMap<String, u32>,
    /// A frame in which a marker began a request, by its clock and site.
    marked: Option<(u64, u32, u32)>,
}

impl<'a> Requests<'a> {
    pub fn new(
        trace: &'a Trace,
        names: &'a Names,
        begin: Option<&'a RequestBegin>,
    ) -> Requests<'a> {
        Requests {
            trace,
            names,
            begin,
            identities: vec![String::new()],
            numbers: HashMap::new(),
            marked: None,
        }
    }

    /// Begins another thread.
    pub fn begin(&mut self) {
        self.marked = None;
    }

    /// Whether no call is of a request.
    #[inline(always)]
    pub fn are_none(&self) -> bool {
        self.begin.is_none()
    }

    /// The identity of a request; empty: none.
    pub fn identity(&self, number: u32) -> &str {
        self.identities.get(number as usize).map_or("", |one| one)
    }

    fn number(&mut self, identity: String) -> u32 {
        if let Some(number) = self.numbers.get(&identity) {
            return *number;
        }
        if self.identities.len() >= MOST {
            return 0;
        }
        let number = self.identities.len() as u32;
        self.identities.push(identity.clone());
        self.numbers.insert(identity, number);
        number
    }

    /// The note of the last of `frames`, which has begun.
    #[inline(always)]
    pub fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        match self.begin {
            None => 0,
            Some(begin) => self.number_at(begin, frames, arguments),
        }
    }

    fn number_at(
        &mut self,
        begin: &RequestBegin,
        frames: &[Frame],
        arguments: Option<[u64; 6]>,
    ) -> u32 {
        let [under @ .., frame] = frames else {
            return 0;
        };
        if let Some(caller) = under.last() {
            let number = self.of(caller);
            if number != 0 {
                return number;
            }
        }
        let RequestBegin::Calls(functions, argument) = begin else {
            return 0;
        };
        if !functions[self.names.number(frame.site()) as usize] {
            return 0;
        }
        let identity = match argument {
            Some(argument) => match arguments {
                Some(values) => values[*argument].to_string(),
                None => return 0,
            },
            None => {
                format!(
                    "{}:{:x}:{}",
                    self.trace.session().hostname,
                    frame.clock,
                    frame.site()
                )
            }
        };
        self.number(identity)
    }

    pub fn leave(&mut self, frame: &Frame) {
        if self
            .marked
            .is_some_and(|(clock, site, _)| (clock, site) == (frame.clock, frame.site()))
        {
            self.marked = None;
        }
    }

    /// The request of a frame.
    #[inline(always)]
    pub fn of(&self, frame: &Frame) -> u32 {
        match self.marked {
            Some((clock, site, number)) if (clock, site) == (frame.clock, frame.site()) => number,
            _ => frame.note,
        }
    }

    /// A marker in the last of `frames`.
    pub fn mark(&mut self, event: u32, payload: &[u64], frames: &[Frame]) {
        let Some(RequestBegin::Marker(wanted, at)) = self.begin else {
            return;
        };
        let marker = self.trace.markers().get(event).filter(|_| event == *wanted);
        let (Some(marker), Some(frame)) = (marker, frames.last()) else {
            return;
        };
        let values = marker.values(payload).unwrap_or_default();
        let (Some(field), Some(value)) = (marker.fields.get(*at), values.get(*at)) else {
            return;
        };
        let mut text = Vec::new();
        match value {
            nopal_trace::Value::Bytes(bytes, _) => text.extend_from_slice(bytes),
            value => push_value(&mut text, field, *value),
        }
        let number = self.number(printable(&String::from_utf8_lossy(&text)));
        self.marked = Some((frame.clock, frame.site(), number));
    }
}
