//! The format of `go tool pprof`: for each path, the number of calls and the self time of its last function.
//!
//! Numbers of fields are those of pprof's `profile.proto`. A profile is small: it grows with the paths, not the calls.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use nopal_analysis::drive::Drive;
use nopal_analysis::graph::{self, ROOT};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::span::{begin, end};
use nopal_trace::Trace;

use crate::protobuf::Message;

/// In `Profile`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const MAPPING: u32 = 3;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
const TIME: u32 = 9;
const DURATION: u32 = 10;
const PERIOD_TYPE: u32 = 11;
const PERIOD: u32 = 12;
const COMMENT: u32 = 13;
const DEFAULT_SAMPLE_TYPE: u32 = 14;

/// Texts by number; 0 is the empty one.
#[derive(Default)]
struct Texts<'a> {
    numbers: HashMap<&'a str, u64>,
    all: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn number(&mut self, text: &'a str) -> u64 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }
}

pub fn write(trace: &Trace, names: &Names, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let tree = graph::tree(trace, names, drive)?;
    let clocks = trace.clocks();
    let losses = losses::line(trace);
    let mut texts = Texts::default();
    texts.number("");
    let mut profile = Message::default();
    for (name, unit) in [("calls", "count"), ("time", "nanoseconds")] {
        let (name, unit) = (texts.number(name), texts.number(unit));
        profile.message(SAMPLE_TYPE, |value| {
            value.number(1, name);
            value.number(2, unit);
        });
    }
    let mut path = Vec::new();
    for number in 1..tree.nodes().len() as u32 {
        let node = &tree.nodes()[number as usize];
        path.clear();
        let mut at = number;
        while at != ROOT {
            let node = &tree.nodes()[at as usize];
            path.push(u64::from(node.function) + 1);
            at = node.parent;
        }
        profile.message(SAMPLE, |sample| {
            sample.packed(1, path.iter().copied());
            sample.packed(2, [node.calls, clocks.duration_ns(node.own)]);
        });
    }
    let mut modules: HashMap<&str, u64> = HashMap::new();
    for (number, function) in (1..).zip(names.functions()) {
        let known = modules.len() as u64 + 1;
        let module = match &*function.path {
            // "?" is no file.
            "?" => 0,
            path => *modules.entry(path).or_insert(known),
        };
        if module == known {
            let path = texts.number(&function.path);
            profile.message(MAPPING, |mapping| {
                mapping.number(1, module);
                mapping.number(5, path);
                // It has functions: pprof need not look for them.
                mapping.number(7, 1);
            });
        }
        profile.message(LOCATION, |location| {
            location.number(1, number);
            location.number(2, module);
            location.message(4, |line| line.number(1, number));
        });
        let (name, raw) = (texts.number(&function.name), texts.number(&function.raw));
        let file = texts.number(&function.module);
        profile.message(FUNCTION, |entry| {
            entry.number(1, number);
            entry.number(2, name);
            entry.number(3, raw);
            entry.number(4, file);
        });
    }
    let (first, last) = (begin(trace), end(trace));
    profile.number(TIME, clocks.realtime_ns(first));
    profile.number(
        DURATION,
        clocks
            .monotonic_ns(last)
            .saturating_sub(clocks.monotonic_ns(first)),
    );
    let (time, unit) = (texts.number("time"), texts.number("nanoseconds"));
    profile.message(PERIOD_TYPE, |value| {
        value.number(1, time);
        value.number(2, unit);
    });
    profile.number(PERIOD, 1);
    if let Some(losses) = &losses {
        let losses = texts.number(losses);
        profile.number(COMMENT, losses);
    }
    profile.number(DEFAULT_SAMPLE_TYPE, time);
    for text in &texts.all {
        profile.text(STRING, text);
    }
    let mut compressed = GzEncoder::new(out, Compression::fast());
    compressed.write_all(&profile.bytes)?;
    compressed.finish()?;
    Ok(())
}
