//! Moments of a trace, as users name them.

use std::collections::BinaryHeap;

use anyhow::{Result, bail, ensure};
use nopal_abi::Event;
use nopal_symbols::{nearest, or_nearest};
use nopal_trace::{ThreadInfo, Trace};

use crate::span::{begin, end};

/// More occurrences of a marker are not counted.
const MOST_OCCURRENCES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
    /// Nanoseconds since the trace began.
    Time(u64),
    /// A part of the trace's time, from 0 to 1.
    Part(f64),
    /// A marker, and which time it occurred, from 1.
    Marker(String, usize),
}

impl Moment {
    /// `50%`, `MARKER` or `MARKER#N`. Times are parsed elsewhere.
    pub fn parse(text: &str) -> Result<Moment> {
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.parse::<f64>() {
                Ok(percent) if (0.0..=100.0).contains(&percent) => {
                    Ok(Moment::Part(percent / 100.0))
                }
                _ => bail!("{text:?}: a part of the trace's time is between 0% and 100%"),
            };
        }
        let (name, number) = match text.rsplit_once('#') {
            None => (text, 1),
            Some((name, number)) => match number.parse() {
                Ok(number @ 1..=MOST_OCCURRENCES) => (name, number),
                _ => bail!("{text:?}: the occurrences of a marker are numbered from 1"),
            },
        };
        ensure!(
            !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()),
            "{text:?}: a time such as 1.5s, a part such as 50%, or a marker such as frame or frame#3 is expected"
        );
        Ok(Moment::Marker(name.into(), number))
    }

    /// Its value of the counter.
    pub fn counter(&self, trace: &Trace) -> Result<u64> {
        match self {
            Moment::Time(ns) => {
                let clocks = trace.clocks();
                Ok(clocks.counter(clocks.monotonic_ns(begin(trace)).saturating_add(*ns)))
            }
            Moment::Part(part) => {
                let (begin, end) = (begin(trace), end(trace));
                let ticks = end.saturating_sub(begin) as f64 * part;
                Ok(begin.saturating_add(ticks as u64).min(end.max(begin)))
            }
            Moment::Marker(name, number) => occurrence(trace, name, *number),
        }
    }
}

/// The clock at which a marker occurred for the `number`th time in all threads.
fn occurrence(trace: &Trace, name: &str, number: usize) -> Result<u64> {
    let events: Vec<u32> = trace
        .markers()
        .iter()
        .filter(|(_, marker)| marker.name == name)
        .map(|(event, _)| event)
        .collect();
    if events.is_empty() {
        let markers = trace
            .markers()
            .iter()
            .map(|(_, marker)| marker.name.as_str());
        let near = or_nearest(&nearest(markers, name));
        bail!("no marker of this trace is named {name:?}{near}");
    }
    // The first occurrences, the last of them on top.
    let mut first: BinaryHeap<u64> = BinaryHeap::new();
    for thread in trace.threads() {
        occurrences(&thread, &events, |clock| {
            first.push(clock);
            if first.len() > number {
                first.pop();
            }
        });
    }
    match first.len() {
        found if found == number => Ok(first.peek().copied().unwrap_or(0)),
        found => bail!("the marker {name:?} occurred {found} times"),
    }
}

fn occurrences(thread: &ThreadInfo, events: &[u32], mut found: impl FnMut(u64)) {
    for packet in thread.packets() {
        for record in packet.records() {
            if let Event::Marker { event, .. } = record.event
                && events.contains(&event)
            {
                found(record.clock);
            }
        }
        packet.release();
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;

    #[test]
    fn parts_and_markers_are_understood() {
        for (text, expected) in [
            ("50%", Moment::Part(0.5)),
            ("0%", Moment::Part(0.0)),
            ("frame", Moment::Marker("frame".into(), 1)),
            ("frame#3", Moment::Marker("frame".into(), 3)),
        ] {
            assert_eq!(Moment::parse(text).unwrap(), expected, "{text}");
        }
        for text in [
            "", "101%", "-1%", "x%", "frame#0", "frame#x", "#1", "5 apples",
        ] {
            assert!(Moment::parse(text).is_err(), "{text}");
        }
    }
}
