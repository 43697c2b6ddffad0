//! A section: from any function or marker to any other.

use std::fmt;

use nopal_abi::Capture;
use nopal_symbols::{nearest, or_nearest};
use nopal_trace::Marker;

use super::Need;
use crate::names::Pattern;

/// The begin or the end of a section, as the user wrote it: `FUNCTION`, its entry; `FUNCTION.end`, its return;
/// `FUNCTION.arg1` to `arg6` and `FUNCTION.result`, the same with a value; `MARKER`; `MARKER.FIELD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    name: String,
    pub from: Point,
    pub to: Point,
}

/// The entry or the return of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Entry,
    End,
}

/// The key that pairs the two ends of a section, besides the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOf {
    Argument(usize),
    Result,
}

/// Whether a marker is an end of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMarker {
    Place,
    /// With the value of this field.
    Field(usize),
    /// It has the name, but no such number.
    Lacking,
}

impl Section {
    pub fn new(name: &str, from: &str, to: &str) -> Section {
        let point = |text: &str| Point {
            text: text.to_owned(),
        };
        Section {
            name: name.to_owned(),
            from: point(from),
            to: point(to),
        }
    }

    /// `FROM..TO`
    pub fn parse(text: &str) -> Option<Section> {
        let (from, to) = text.split_once("..")?;
        let is_whole = !from.is_empty() && !to.is_empty();
        is_whole.then(|| Section::new(text, from, to))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it has no cases if one end has a value, and the other one none.
    pub fn why_unpaired(&self) -> String {
        format!(
            "a section is paired by a value that both ends have, or by the thread: only one of {} and {} has a value",
            self.from.text, self.to.text
        )
    }
}

impl fmt::Display for Section {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.from.text, self.to.text)
    }
}

impl Point {
    /// The parts before and after the last dot.
    fn parts(&self) -> Option<(&str, &str)> {
        self.text.rsplit_once('.')
    }

    /// The function or marker, without what it is of it.
    pub fn stem(&self) -> &str {
        self.parts().map_or(&self.text, |(stem, _)| stem)
    }

    /// What is wrong with it if the part before its last dot is a function.
    pub fn why_no_part(&self) -> Option<String> {
        let (stem, end) = self.parts()?;
        in_call(end).is_none().then(|| {
            format!("the function {stem} has no {end:?}, only end, result and arg1 to arg6")
        })
    }

    /// The places in calls that it may be, with patterns of functions. The first pattern that matches any function
    /// holds.
    pub fn in_calls(&self) -> Vec<(Pattern, CallEnd, Option<ValueOf>)> {
        let mut places = vec![(Pattern::new(&self.text), CallEnd::Entry, None)];
        let part = self
            .parts()
            .and_then(|(stem, end)| Some((stem, in_call(end)?)));
        if let Some((stem, (place, value))) = part {
            places.push((Pattern::new(stem), place, value));
        }
        places
    }

    /// The data to record for it, if it is in calls.
    pub fn need(&self) -> Need {
        let part = self
            .parts()
            .and_then(|(stem, end)| Some((stem, in_call(end)?)));
        let or = part.map(|(stem, _)| stem.to_owned());
        Need {
            patterns: vec![self.text.clone()],
            or: or.into_iter().collect(),
            capture: Capture {
                arguments: part.is_some_and(|(_, (_, value))| value.is_some()),
                ends: part.is_some_and(|(_, (place, _))| place == CallEnd::End),
                call_sites: false,
            },
            probe: None,
            is_optional: false,
        }
    }

    /// Whether a marker is such a point.
    pub fn in_marker(&self, marker: &Marker) -> Option<InMarker> {
        if marker.name == self.text {
            return Some(InMarker::Place);
        }
        let (name, wanted) = self.parts()?;
        let mut fields = marker.fields.iter();
        let field = fields.position(|field| field.name == wanted && !field.kind.has_length());
        (marker.name == name).then_some(field.map_or(InMarker::Lacking, InMarker::Field))
    }

    /// Why nothing is such a point, of these functions and markers.
    pub fn why_nothing<'a>(
        &self,
        functions: impl Iterator<Item = &'a str> + Clone,
        markers: impl Iterator<Item = &'a Marker>,
    ) -> String {
        let text = &self.text;
        let markers: Vec<&str> = markers.map(|marker| &*marker.name).collect();
        let is_function = |stem: &str| functions.clone().any(|function| function == stem);
        match self.parts() {
            Some((name, field)) if markers.contains(&name) => {
                format!("the marker {name} has no number named {field:?}")
            }
            Some((stem, _)) if is_function(stem) => self.why_no_part().unwrap_or_default(),
            _ => {
                let near = nearest(functions.chain(markers), self.stem());
                let near = or_nearest(&near);
                format!("no recorded function or marker is named {text:?}{near}")
            }
        }
    }
}

/// `end`, `result`, `arg1` to `arg6`.
fn in_call(end: &str) -> Option<(CallEnd, Option<ValueOf>)> {
    match end {
        "end" => Some((CallEnd::End, None)),
        "result" => Some((CallEnd::End, Some(ValueOf::Result))),
        _ => {
            let number: usize = end.strip_prefix("arg")?.parse().ok()?;
            let is_recorded = (1..=6).contains(&number);
            is_recorded.then(|| (CallEnd::Entry, Some(ValueOf::Argument(number - 1))))
        }
    }
}
