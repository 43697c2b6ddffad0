//! Tracers of latency: which run, and what they have found. What one needs of a program are traces, of names that
//! nobody can write.

use std::fmt::Write;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nopal_analysis::dump::{self, Look};
use nopal_analysis::names::Names;
use nopal_analysis::tracers::{Case, Finding, Live, Need, Report, Section, Tracer};
use nopal_trace::{SubscriberId, ThreadKey, Trace};

use crate::engine::Engine;
use crate::event_tracers::{self, Recording};
use crate::grammar::{self, Command};
use crate::selection::{FunctionSelection, Location, word};
use crate::state::Control;
use crate::syntax::quoted;

#[derive(Default)]
pub(crate) struct Tracers {
    /// The last to be switched on is the last.
    running: Vec<Running>,
    pub recording: Vec<Recording>,
    sections: Vec<Section>,
    /// In microseconds; 0: none.
    pub threshold: u64,
}

struct Running {
    tracer: Tracer,
    live: Live,
    subscriber: SubscriberId,
    /// The names of its traces.
    parts: Vec<String>,
    /// The names of its probes, which others may need too.
    probes: Vec<String>,
}

/// The prefix of names of traces that belong to tracers.
const OF_TRACER: char = '\0';

/// Whether a trace or a probe is what a tracer needs, and nobody's own.
pub(crate) fn is_of_tracer(name: &str) -> bool {
    name.starts_with(OF_TRACER) || name.starts_with("nopal:")
}

impl Tracers {
    fn find(&self, name: &str) -> Option<&Running> {
        self.running.iter().find(|one| one.tracer.name() == name)
    }

    /// The tracers that need kernel events: those that are on, and one more.
    pub fn of_kernel_events(&self, more: Option<&Tracer>) -> Vec<Tracer> {
        let running = self.running.iter().map(|one| &one.tracer);
        let of_kernel_events = running
            .chain(more)
            .filter(|tracer| tracer.is_of_kernel_events());
        let recording = self.recording.iter().map(Recording::needs);
        of_kernel_events.cloned().chain(recording).collect()
    }

    /// The names of all that can be switched on.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let named = Tracer::NAMED.iter().map(|(name, _)| *name);
        let named = event_tracers::NAMES.into_iter().chain(named);
        named.chain(self.sections.iter().map(Section::name))
    }

    /// The name of the one of latency that was switched on last.
    pub fn current(&self) -> Option<&str> {
        self.running.last().map(|one| one.tracer.name())
    }

    /// Forgets the worst case of the current one.
    pub fn reset_current(&self) {
        if let Some(running) = self.running.last() {
            running.live.reset();
        }
    }

    pub fn worst_microseconds(&self) -> u64 {
        let report = self.running.last().map(|one| one.live.report());
        let worst = report.and_then(|report| report.worst);
        worst.map_or(0, |worst| worst.ns / 1000)
    }

    /// Keeps every case that takes more microseconds, of all tracers; 0: the worst only.
    pub fn set_threshold(&mut self, microseconds: u64) {
        self.threshold = microseconds;
        for running in &self.running {
            running
                .live
                .set_threshold(microseconds.saturating_mul(1000));
        }
    }

    /// As valid commands, with comments.
    pub fn push_text(&self, out: &mut String) {
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
        for recording in &self.recording {
            let _ = writeln!(out, "tracer {} on", recording.name);
        }
        for running in &self.running {
            let _ = writeln!(out, "tracer {} on", word(running.tracer.name()));
            for line in describe(&running.live.report()) {
                let _ = writeln!(out, "#{line}");
            }
        }
    }

    /// The histograms of all sections that are on.
    pub fn section_histograms(&self, processor: Option<u32>) -> String {
        let running = self.running.iter().map(|one| &one.tracer);
        let sections = running.filter(|tracer| matches!(tracer, Tracer::Section(_)));
        sections
            .map(|section| {
                let histogram = self.histogram(section.name(), processor);
                format!("# {}\n{histogram}", section.name())
            })
            .collect()
    }

    /// How often the cases of a tracer took so many microseconds, of those that ended on a processor, or of all.
    pub fn histogram(&self, name: &str, processor: Option<u32>) -> String {
        let Some(running) = self.find(name) else {
            return format!("# {name} is off\n");
        };
        let wanted = |on: Option<u32>| processor.is_none() || on == processor;
        let counts = running.live.histogram(wanted);
        let elsewhere = running.live.histogram(|on| on.is_none());
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let sum: u128 = counts
            .iter()
            .map(|(microseconds, count)| u128::from(*microseconds) * u128::from(*count))
            .sum();
        let least = counts.first().map_or(0, |first| first.0);
        let most = counts.last().map_or(0, |last| last.0);
        let mut text = format!(
            "#Minimum latency: {least} microseconds\n\
             #Average latency: {} microseconds\n\
             #Maximum latency: {most} microseconds\n\
             #Total samples: {all}\n",
            sum.checked_div(u128::from(all)).unwrap_or(0)
        );
        let unknown: u64 = elsewhere.iter().map(|(_, count)| count).sum();
        if processor.is_some() && unknown > 0 {
            let _ = writeln!(text, "#Not known on which CPU: {unknown}");
        }
        text.push_str("#usecs         samples\n");
        for (microseconds, count) in counts {
            let _ = writeln!(text, "{microseconds:>6} {count:>15}");
        }
        text
    }
}

/// The results of a tracer, in lines.
fn describe(report: &Report) -> Vec<String> {
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

impl Control {
    pub(crate) fn tracer_on(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        if self.tracers.find(name).is_some() {
            return Ok(String::new());
        }
        if let Some(name) = event_tracers::NAMES.into_iter().find(|one| *one == name) {
            return self.recording_on(engine, name);
        }
        let mut sections = self.tracers.sections.iter();
        let section = sections.find(|section| section.name() == name).cloned();
        let tracer = section.map(Tracer::Section).or_else(|| Tracer::named(name));
        let Some(tracer) = tracer else {
            let names: Vec<&str> = self.tracers.names().collect();
            bail!(
                "there is no tracer {}, only {}",
                quoted(name),
                names.join(", ")
            );
        };
        let system = self.tracers.of_kernel_events(Some(&tracer));
        let (live, subscriber) = Live::new(&tracer);
        live.set_threshold(self.tracers.threshold.saturating_mul(1000));
        let mut running = Running {
            subscriber: engine.subscribe(Box::new(subscriber))?,
            tracer,
            live,
            parts: Vec::new(),
            probes: Vec::new(),
        };
        let answer = self.insert_parts(engine, &mut running);
        let begun = answer.and_then(|answer| {
            engine.record_kernel_events(&system)?;
            running.live.check()?;
            for part in &running.parts {
                let at = self.at(part)?;
                self.switch(engine, at, true)?;
            }
            Ok(answer)
        });
        match begun {
            Ok(answer) => {
                self.tracers.running.push(running);
                Ok(answer)
            }
            Err(error) => {
                self.end(engine, running)?;
                Err(error)
            }
        }
    }

    /// The tracers whose events are recorded when control begins.
    pub fn begin_tracers(&mut self, engine: &mut dyn Engine, tracers: &[Tracer]) -> Result<()> {
        for tracer in tracers
            .iter()
            .filter(|tracer| !tracer.is_of_kernel_events())
        {
            self.tracer_on(engine, tracer.name())?;
        }
        Ok(())
    }

    /// Inserts what a tracer needs. What it answers is for a person: what cannot be traced.
    fn insert_parts(&mut self, engine: &mut dyn Engine, running: &mut Running) -> Result<String> {
        let mut answer = Vec::new();
        for (number, need) in running.tracer.needs().into_iter().enumerate() {
            if let Some(text) = need.probe {
                let probe = grammar::probe(text).map_err(|error| anyhow!("{error}"))?;
                let name = probe.name.clone();
                match self.make_probe(engine, probe) {
                    Err(error) if need.is_optional => {
                        answer.push(format!("handlers of signals are not known: {error:#}"));
                        continue;
                    }
                    made => made?,
                };
                running.probes.push(name.clone());
                self.switch_probe(engine, &name, true)?;
                continue;
            }
            let Some(what) = functions(engine, &need)? else {
                self.mark_instead(engine, &need)?;
                continue;
            };
            let name = format!("{OF_TRACER}{}/{number}", running.tracer.name());
            let (trace, refused) = self.hold(engine, what, name.clone(), need.capture)?;
            self.traces.push(trace);
            running.parts.push(name);
            answer.extend((!refused.is_empty()).then_some(refused));
        }
        Ok(answer.join("\n"))
    }

    /// What is no function may be a marker, which is to be recorded.
    fn mark_instead(&mut self, engine: &mut dyn Engine, need: &Need) -> Result<()> {
        for text in &need.patterns {
            let stem = text.rsplit_once('.').map_or(&**text, |(stem, _)| stem);
            for name in [text, stem] {
                if !engine.markers(name)?.is_empty() {
                    let (name, on) = (name.to_owned(), true);
                    return self.obey(engine, Command::Mark { name, on }).map(drop);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn tracer_off(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        if event_tracers::NAMES.contains(&name) {
            return self.recording_off(engine, name);
        }
        let mut running = self.tracers.running.iter();
        let at = running.position(|one| one.tracer.name() == name);
        let at = at.with_context(|| format!("the tracer {} is off", quoted(name)))?;
        let running = self.tracers.running.remove(at);
        self.end(engine, running)?;
        Ok(String::new())
    }

    pub(crate) fn other_tracers_off(
        &mut self,
        engine: &mut dyn Engine,
        kept: Option<&str>,
    ) -> Result<()> {
        let running = self
            .tracers
            .running
            .iter()
            .map(|one| one.tracer.name().to_owned());
        let recording = self.tracers.recording.iter();
        let recording = recording.map(|one| one.name.to_owned());
        let both = running.chain(recording);
        let others: Vec<String> = both.filter(|name| Some(&**name) != kept).collect();
        for name in others {
            self.tracer_off(engine, &name)?;
        }
        Ok(())
    }

    pub(crate) fn all_tracers_off(&mut self, engine: &mut dyn Engine) -> Result<()> {
        self.other_tracers_off(engine, None)
    }

    fn end(&mut self, engine: &mut dyn Engine, running: Running) -> Result<()> {
        engine.unsubscribe(running.subscriber);
        engine.record_kernel_events(&self.tracers.of_kernel_events(None))?;
        for probe in &running.probes {
            let mut others = self.tracers.running.iter();
            if !others.any(|other| other.probes.contains(probe)) {
                self.remove_probe(engine, probe)?;
            }
        }
        for part in &running.parts {
            let at = self.at(part)?;
            self.remove(engine, at)?;
        }
        Ok(())
    }

    pub(crate) fn make_section(&mut self, name: &str, from: &str, to: &str) -> Result<String> {
        let section = Section::new(name, from, to);
        let mut known = self.tracers.sections.iter();
        if let Some(known) = known.find(|known| known.name() == name) {
            ensure!(
                *known == section,
                "there is a section {} already, from {} to {}",
                quoted(name),
                known.from.text,
                known.to.text
            );
            return Ok(String::new());
        }
        ensure!(
            Tracer::named(name).is_none()
                && self.trace(name).is_none()
                && !RESERVED.contains(&name)
                && !event_tracers::NAMES.contains(&name),
            "{} is the name of another tracer or trace",
            quoted(name)
        );
        self.tracers.sections.push(section);
        Ok(String::new())
    }

    pub(crate) fn remove_section(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        let mut sections = self.tracers.sections.iter();
        let at = sections.position(|section| section.name() == name);
        let at = at.with_context(|| format!("there is no section {}", quoted(name)))?;
        if self.tracers.find(name).is_some() {
            self.tracer_off(engine, name)?;
        }
        self.tracers.sections.remove(at);
        Ok(String::new())
    }

    pub(crate) fn tracer_reset(&self, name: &str) -> Result<String> {
        let running = self.tracers.find(name);
        let running = running.with_context(|| format!("the tracer {} is off", quoted(name)))?;
        running.live.reset();
        Ok(String::new())
    }

    /// The worst case of a tracer, or all that are above the threshold, with what was recorded in them.
    pub(crate) fn latency(
        &self,
        engine: &mut dyn Engine,
        name: &str,
        look: Look,
    ) -> Result<String> {
        engine.flush()?;
        let running = self.tracers.find(name);
        let running = running.with_context(|| format!("the tracer {} is off", quoted(name)))?;
        let report = running.live.report();
        let cases = match self.tracers.threshold {
            0 => Vec::from_iter(report.worst),
            _ => report.kept.clone(),
        };
        if cases.is_empty() {
            let answer = describe(&report).join("\n# ");
            return Ok(format!("# tracer: {name}\n#\n# {answer}\n"));
        }
        let mut text = Vec::new();
        if report.kept_before > 0 && self.tracers.threshold > 0 {
            let left_out = format!(
                "# {} cases before these are not kept\n\n",
                report.kept_before
            );
            text.extend_from_slice(left_out.as_bytes());
        }
        let trace = Trace::open(engine.directory())?;
        let names = Names::new(&trace);
        let number = |key: ThreadKey| {
            let threads = trace.threads();
            let is = |thread: &nopal_trace::ThreadInfo| {
                (thread.process, thread.thread) == (key.process, key.thread)
            };
            let same = |thread: &nopal_trace::ThreadInfo| is(thread) && thread.begin == key.begin;
            // One that the system told of first may have begun to record since.
            let at = threads
                .iter()
                .position(same)
                .or_else(|| threads.iter().position(is));
            at.map(|at| at as u32)
                .context("what was recorded in it is not in the trace")
        };
        for (index, finding) in cases.iter().enumerate() {
            if index > 0 {
                text.push(b'\n');
            }
            let case = Case {
                begin_thread: number(finding.begin_thread)?,
                end_thread: number(finding.end_thread)?,
                ..finding.case
            };
            dump::case(&trace, &names, &running.tracer, &case, look, &mut text)?;
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Words that mean something else where a tracer is named.
const RESERVED: [&str; 4] = ["function", "nop", "disable", "section"];

/// The functions that a tracer needs, if there are any.
fn functions(engine: &mut dyn Engine, need: &Need) -> Result<Option<FunctionSelection>> {
    for patterns in [&need.patterns, &need.or] {
        let mut meant = Vec::new();
        for pattern in patterns {
            if !engine.find(&Location::Names(pattern.clone()))?.is_empty() {
                meant.push(pattern.as_str());
            }
        }
        if !meant.is_empty() {
            return Ok(Some(FunctionSelection::of_names(meant, [], false)));
        }
    }
    Ok(None)
}
