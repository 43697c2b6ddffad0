//! Tracers: their needs of a program, and the findings of those that are on.

use std::fmt::Write;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use nopal_analysis::tracers::{Finding, Live, Need, Point, Report, Section, Tracer};
use nopal_symbols::{nearest, or_nearest};

use crate::command;
use crate::draft::Draft;
use crate::engine::{Mark, Missing};
use crate::probe::Probe;
use crate::selection::{FunctionSelection, Location, word};
use crate::state::{ActiveFunctions, ActiveTracer, EventTracer, State};
use crate::syntax::quoted;

/// Words that mean something else where a tracer is named.
const RESERVED: [&str; 4] = ["function", "nop", "disable", "section"];
/// The most of the slowest cases of a minute that may be kept.
const MOST_SLOWEST: u32 = 1000;
/// Markers, and static probes.
const ALL_MARKERS: [&str; 2] = ["*", "*:*"];

// ---- switched on and off ----

impl Draft<'_> {
    /// The tracer's optional needs are left to [`Draft::add_optional`].
    pub fn tracer_on(&mut self, name: &str) -> Result<()> {
        if let Some(tracer) = EventTracer::named(name) {
            return self.event_tracer_on(tracer);
        }
        if self.state.tracer(name).is_some() {
            return Ok(());
        }
        let mut sections = self.state.sections.iter();
        let section = sections.find(|section| section.name() == name).cloned();
        let tracer = section.map(Tracer::Section).or_else(|| Tracer::named(name));
        let Some(tracer) = tracer else {
            bail!(self.state.no_tracer(name));
        };
        let (mut parts, mut probes) = (Vec::new(), Vec::new());
        for need in tracer.needs() {
            match need.probe {
                Some(text) if need.is_optional => {
                    let probe = probe(text)?;
                    let can_be = self.begins && self.lookup.place(&probe).is_ok();
                    probes.extend(can_be.then_some(probe));
                }
                Some(text) => probes.push(probe(text)?),
                None => parts.extend(self.part(&need)?),
            }
        }
        self.state.tracers.push(ActiveTracer {
            live: Live::new(&tracer),
            tracer,
            parts,
            probes,
            slowest: 0,
        });
        Ok(())
    }

    /// Has this many of the slowest cases of each minute kept, each as a snapshot.
    pub fn keep_slowest(&mut self, name: &str, most: u32) -> Result<()> {
        let never = self.lookup.facts().no_snapshots;
        never.map_or(Ok(()), |why| bail!(why))?;
        ensure!(
            most <= MOST_SLOWEST,
            "expected a number of snapshots a minute up to {MOST_SLOWEST}; 0 keeps none"
        );
        let why_off = self.state.why_off(name);
        let mut tracers = self.state.tracers.iter_mut();
        let active = tracers.find(|one| one.tracer.name() == name);
        active.ok_or_else(|| Error::msg(why_off))?.slowest = most;
        Ok(())
    }

    /// Adds an optional probe to a tracer that is on.
    pub fn add_optional(&mut self, name: &str, probe: Probe) {
        let mut tracers = self.state.tracers.iter_mut();
        if let Some(active) = tracers.find(|one| one.tracer.name() == name) {
            active.probes.push(probe);
        }
    }

    /// The functions that a tracer needs, if there are any. A name of no function may be that of a marker, which is to
    /// be recorded.
    fn part(&mut self, need: &Need) -> Result<Option<ActiveFunctions>> {
        if self.begins {
            // The patterns hold also in libraries that are called by others alone, or come later: so do both, where the
            // first may be a function and its value.
            let patterns = need.patterns.iter().chain(&need.or).map(String::as_str);
            let what = FunctionSelection::of_names(patterns, [], true);
            return self.hold_any(what, need.capture).map(Some);
        }
        for patterns in [&need.patterns, &need.or] {
            let mut meant = Vec::new();
            for pattern in patterns {
                let location = Location::Names(pattern.clone());
                if !self.lookup.find(&location)?.is_empty() {
                    meant.push(pattern.as_str());
                }
            }
            if !meant.is_empty() {
                let what = FunctionSelection::of_names(meant, [], false);
                return self.hold(what, need.capture).map(Some);
            }
        }
        for text in &need.patterns {
            let stem = text.rsplit_once('.').map_or(&**text, |(stem, _)| stem);
            for name in [text, stem] {
                if !self.lookup.markers(name)?.is_empty() {
                    let (name, on) = (name.to_owned(), true);
                    self.mark(Mark { name, on })?;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn event_tracer_on(&mut self, tracer: EventTracer) -> Result<()> {
        if self.state.event_tracer(tracer.name()).is_some() {
            return Ok(());
        }
        // At the beginning, the kernel events that the options ask for are recorded, from there to the end.
        let with_kernel_events = !self.begins;
        let tracer = match tracer {
            EventTracer::Events { .. } => {
                self.all_markers_on()?;
                EventTracer::Events { with_kernel_events }
            }
            EventTracer::Switches { .. } => EventTracer::Switches { with_kernel_events },
        };
        self.state.event_tracers.push(tracer);
        Ok(())
    }

    /// Markers that somebody else has switched stay as they are.
    fn all_markers_on(&mut self) -> Result<()> {
        let marks = &self.state.marks;
        let all_on = marks.iter().any(|mark| is_all(mark) && mark.on);
        if all_on {
            return Ok(());
        }
        let mut all = Vec::new();
        for name in ALL_MARKERS {
            // At the beginning there may be none: they may come with a library.
            if self.begins || !self.lookup.markers(name)?.is_empty() {
                let (name, on) = (name.to_owned(), true);
                all.push(Mark { name, on });
            }
        }
        self.state.marks_of_events |= !all.is_empty();
        self.state.marks.retain(|mark| !is_all(mark));
        self.state.marks.splice(0..0, all);
        Ok(())
    }

    /// Has the tracer of events go on without kernel events. Returns whether it has anything else to record.
    pub fn without_kernel_events(&mut self) -> bool {
        let with_kernel_events = false;
        for tracer in &mut self.state.event_tracers {
            if let EventTracer::Events { .. } = tracer {
                *tracer = EventTracer::Events { with_kernel_events };
            }
        }
        self.state.marks_of_events
    }

    pub fn tracer_off(&mut self, name: &str) -> Result<()> {
        let is_on = self.state.tracer(name).is_some() || self.state.event_tracer(name).is_some();
        ensure!(is_on, self.state.why_off(name));
        self.tracers_off(|other| other == name);
        Ok(())
    }

    pub fn tracers_off(&mut self, is_meant: impl Fn(&str) -> bool) {
        let state = &mut self.state;
        state.tracers.retain(|one| !is_meant(one.tracer.name()));
        state.event_tracers.retain(|one| !is_meant(one.name()));
        let events = EventTracer::NAMES[0];
        if state.marks_of_events && state.event_tracer(events).is_none() {
            state.marks.retain(|mark| !is_all(mark));
            state.marks_of_events = false;
        }
    }

    pub fn make_section(&mut self, section: Section) -> Result<()> {
        let name = section.name();
        let mut known = self.state.sections.iter();
        if let Some(known) = known.find(|known| known.name() == name) {
            ensure!(
                *known == section,
                "there is a section {} already, from {} to {}",
                quoted(name),
                known.from.text,
                known.to.text
            );
            return Ok(());
        }
        ensure!(
            Tracer::named(name).is_none()
                && self.state.trace(name).is_none()
                && !RESERVED.contains(&name)
                && EventTracer::named(name).is_none(),
            "{} is the name of another tracer or trace",
            quoted(name)
        );
        self.state.sections.push(section);
        Ok(())
    }

    /// For people: the ends of a section that are nothing yet, and whether the ends can be paired. They may come with a
    /// library.
    pub fn missing_ends(&mut self, section: &Section) -> Result<String> {
        let mut lines = String::new();
        let mut values = Vec::new();
        for point in [&section.from, &section.to] {
            match self.value_of_end(point)? {
                Some(has_value) => values.push(has_value),
                None => {
                    let _ = writeln!(lines, "{}", self.why_no_end(point)?);
                }
            }
        }
        if let [from, to] = values[..]
            && from != to
        {
            let _ = writeln!(lines, "{}", section.why_unpaired());
        }
        Ok(lines)
    }

    /// Whether an end of a section has a value; `None`: it is nothing yet.
    fn value_of_end(&mut self, point: &Point) -> Result<Option<bool>> {
        let need = point.need();
        let (whole, stem) = (&*point.text, point.stem());
        if self.is_function(whole)? || self.is_marker(whole)? {
            return Ok(Some(false));
        }
        for name in &need.or {
            if self.is_function(name)? {
                return Ok(Some(need.capture.arguments));
            }
        }
        Ok(self.is_marker(stem)?.then_some(true))
    }

    fn is_function(&mut self, name: &str) -> Result<bool> {
        let found = self.lookup.find(&Location::Names(name.to_owned()))?;
        Ok(!found.is_empty())
    }

    /// A probe is one, too.
    fn is_marker(&mut self, name: &str) -> Result<bool> {
        let mut probes = self.state.probes.iter();
        Ok(
            probes.any(|active| active.probe.name == name)
                || !self.lookup.markers(name)?.is_empty(),
        )
    }

    /// Why an end of a section is nothing yet.
    fn why_no_end(&mut self, point: &Point) -> Result<String> {
        let (need, stem) = (point.need(), point.stem());
        let whole = need.or.first().unwrap_or(&point.text);
        if self.may_come(whole)? {
            return Ok(format!("{} waits for its library", quoted(&point.text)));
        }
        if let Some(why) = point.why_no_part()
            && self.is_function(stem)?
        {
            return Ok(why);
        }
        let location = Location::Names(stem.to_owned());
        let mut near = self.lookup.nearest(Missing::Functions(&location));
        let markers = self.lookup.nearest(Missing::Marker(stem));
        near.retain(|name| !markers.contains(name));
        near.extend(markers);
        Ok(format!(
            "no function or marker is named {} yet{}",
            quoted(stem),
            or_nearest(&near)
        ))
    }

    /// For people: the ends that are nothing yet, of all sections that are measured.
    pub fn all_missing_ends(&mut self) -> Result<String> {
        let tracers = self.state.tracers.clone();
        let sections = tracers.iter().filter_map(|active| match &active.tracer {
            Tracer::Section(section) => Some(section),
            _ => None,
        });
        sections.map(|section| self.missing_ends(section)).collect()
    }

    pub fn remove_section(&mut self, name: &str) -> Result<()> {
        let mut sections = self.state.sections.iter();
        let at = sections.position(|section| section.name() == name);
        let at = at.with_context(|| format!("there is no section {}", quoted(name)))?;
        self.state.sections.remove(at);
        self.tracers_off(|other| other == name);
        Ok(())
    }
}

fn is_all(mark: &Mark) -> bool {
    ALL_MARKERS.contains(&&*mark.name)
}

/// A tracer's optional probes, where they can be had.
pub fn optional_probes(tracer: &Tracer) -> Result<Vec<Probe>> {
    let needs = tracer.needs().into_iter().filter(|need| need.is_optional);
    needs.filter_map(|need| need.probe).map(probe).collect()
}

fn probe(text: &str) -> Result<Probe> {
    command::probe(text).map_err(|error| anyhow!("{error}"))
}

// ---- what they have found ----

impl State {
    /// The names of all tracers that can be switched on.
    pub fn tracer_names(&self) -> impl Iterator<Item = &str> {
        let named = Tracer::NAMED.iter().map(|(name, _)| *name);
        let named = EventTracer::NAMES.into_iter().chain(named);
        named.chain(self.sections.iter().map(Section::name))
    }

    /// Why a tracer cannot be asked for anything.
    pub fn why_off(&self, name: &str) -> String {
        match self.tracer_names().any(|known| known == name) {
            true => format!("the tracer {} is off", quoted(name)),
            false => self.no_tracer(name),
        }
    }

    fn no_tracer(&self, name: &str) -> String {
        let names: Vec<&str> = self.tracer_names().collect();
        format!(
            "there is no tracer {}, only {}{}",
            quoted(name),
            names.join(", "),
            or_nearest(&nearest(names.iter().copied(), name))
        )
    }

    /// The tracer of latency that was switched on last.
    pub fn current_tracer(&self) -> Option<&ActiveTracer> {
        self.tracers.last()
    }

    pub fn worst_microseconds(&self) -> u64 {
        let report = self.current_tracer().map(|one| one.live.report());
        let worst = report.and_then(|report| report.worst);
        worst.map_or(0, |worst| worst.ns / 1000)
    }

    /// Appends the tracers as valid commands, with comments.
    pub fn push_tracers(&self, out: &mut String) {
        for section in &self.sections {
            let ends = [&section.from, &section.to].map(|point| word(&point.text));
            let _ = writeln!(
                out,
                "section {} {} new {}",
                ends[0],
                ends[1],
                word(section.name())
            );
        }
        if self.threshold > 0 {
            let _ = writeln!(out, "threshold {}", self.threshold);
        }
        for tracer in &self.event_tracers {
            let _ = writeln!(out, "tracer {} on", tracer.name());
        }
        for active in &self.tracers {
            let name = word(active.tracer.name());
            let _ = writeln!(out, "tracer {name} on");
            if active.slowest > 0 {
                let _ = writeln!(out, "tracer {name} keep {}", active.slowest);
            }
            for line in describe(&active.live.report()) {
                let _ = writeln!(out, "#{line}");
            }
        }
    }

    /// The histograms of all sections that are on.
    pub fn section_histograms(&self, processor: Option<u32>) -> String {
        let running = self.tracers.iter().map(|one| &one.tracer);
        let sections = running.filter(|tracer| matches!(tracer, Tracer::Section(_)));
        sections
            .map(|section| {
                let histogram = self.histogram(section.name(), processor);
                format!("# {}\n{histogram}", section.name())
            })
            .collect()
    }

    /// The number of a tracer's cases for each duration in microseconds, of those that ended on a processor, or of all.
    pub fn histogram(&self, name: &str, processor: Option<u32>) -> String {
        let Some(running) = self.tracer(name) else {
            return format!("# {name} is off\n");
        };
        let wanted = |on: Option<u32>| processor.is_none() || on == processor;
        let histogram = running.live.histogram(wanted);
        let mut text = format!(
            "#Minimum latency: {} microseconds\n\
             #Average latency: {} microseconds\n\
             #Maximum latency: {} microseconds\n\
             #Total samples: {}\n",
            histogram.least,
            histogram.average,
            histogram.most,
            histogram.count()
        );
        let unknown = running.live.histogram(|on| on.is_none()).count();
        if processor.is_some() && unknown > 0 {
            let _ = writeln!(text, "#Not known on which CPU: {unknown}");
        }
        text.push_str("#usecs         samples\n");
        for (microseconds, count) in histogram.rows {
            let _ = writeln!(text, "{microseconds:>6} {count:>15}");
        }
        text
    }
}

/// The findings of a tracer, in lines.
pub fn describe(report: &Report) -> Vec<String> {
    let thread = |finding: &Finding| finding.begin_thread.thread;
    let missing = report.missing;
    let worst = report.worst.map_or_else(String::new, |worst| {
        format!(
            ", worst {} us of thread {}",
            worst.ns / 1000,
            thread(&worst)
        )
    });
    let mut lines = vec![format!("cases {}{worst}", report.cases)];
    let counts = [
        ("begun and never ended", missing.never_ended),
        ("ended without a begin", missing.ends_alone),
        ("begun when too many were open", missing.begins_lost),
        (
            "ended before they began: the clock went back",
            missing.clock_went_back,
        ),
        ("recorded without what they need", report.unknown),
        ("left out: calls were counted or off then", report.untimed),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    lines.extend(counts.map(|(what, count)| format!("{what}: {count}")));
    lines.extend(report.given_up.iter().map(|case| {
        let (key, begin) = (case.case.key, case.case.begin);
        format!(
            "no end: {key:#x}, begun by thread {} at {begin}",
            thread(case)
        )
    }));
    lines
}
