//! Carries out commands on a session, each as a whole or not at all.

use anyhow::{Context, Result, ensure};
use nopal_analysis::dump::{self, Look};
use nopal_analysis::names::Names;
use nopal_analysis::text::{bytes, count, several};
use nopal_analysis::tracers::{Case, Section};
use nopal_analysis::triggers::Action;
use nopal_symbols::without_numbers;
use nopal_trace::{ThreadKey, Trace};

use crate::command::{Command, parse};
use crate::control::{Control, Controller, Tracing};
use crate::draft::Draft;
use crate::engine::{Act, Engine, FoundSite, Function, Lookup, Mark, Mode};
use crate::selection::{FunctionSelection, word};
use crate::site_key::SiteKey;
use crate::state::{EventTracer, State};
use crate::syntax::quoted;
use crate::text::{RECORD_BYTES, logsize, mode_of, waits};
use crate::tracers::{describe, optional_probes};

/// Records that a buffer may have room for, as a power of two.
const SIZES: std::ops::RangeInclusive<u32> = 10..=40;

impl Controller<'_> {
    /// The answer is text for a person.
    pub fn obey(&mut self, command: Command) -> Result<String> {
        match command {
            Command::Size(size) => {
                ensure!(
                    SIZES.contains(&size),
                    "expected a number from {} to {}: the buffer holds 2 to its power of records",
                    SIZES.start(),
                    SIZES.end()
                );
                self.resize(size)
            }
            Command::Reset => self.reset(),
            Command::Query(what) => self.query(&what),
            Command::Simulate(what) => self.simulate(&what),
            Command::Snapshot => {
                let never = self.engine.facts().no_snapshots;
                never.map_or(Ok(()), |why| Err(anyhow::Error::msg(why)))?;
                self.engine.perform(Act::Snapshot { why: "by command" })
            }
            Command::Tracer { name, on: true } => self.tracer_on(&name),
            Command::ResetTracer { name } => {
                let running = self.control.state.tracer(&name);
                let running = running.with_context(|| self.control.state.why_off(&name))?;
                running.live.reset();
                let stopped = "the session is stopped: start records again\n";
                Ok(if self.control.state.started {
                    ""
                } else {
                    stopped
                }
                .to_owned())
            }
            Command::Section { name, from, to } => {
                let section = Section::new(&name, &from, &to);
                let answer = self.change(|draft| draft.make_section(section.clone()))?;
                let mut draft = Draft::new(self.control.state.clone(), self.engine);
                Ok(answer + &draft.missing_ends(&section)?)
            }
            Command::Latency { name } => self.latency(&name, self.control.tracing.look),
            Command::Mark { name, on: true } => {
                let mark = Mark { name, on: true };
                let answer = self.change(|draft| draft.mark(mark.clone()))?;
                let waits = waits(self.engine, &mark);
                Ok(answer + waits.as_deref().unwrap_or_default())
            }
            other => self.change(|draft| draft.obey(other)),
        }
    }

    /// Says what size the buffer has then: it has whole chunks.
    fn resize(&mut self, size: u32) -> Result<String> {
        let asked = RECORD_BYTES << size;
        self.engine.perform(Act::Resize(asked))?;
        let set = self.engine.facts().buffer;
        let room = |of: u64| format!("{} records ({})", count(of / RECORD_BYTES), bytes(of));
        let instead = match set == asked {
            true => String::new(),
            false => format!(", not for {}: it has whole chunks of memory", room(asked)),
        };
        Ok(format!(
            "logsize {}: the buffer has room for {}{instead}\n",
            logsize(self.engine),
            room(set)
        ))
    }

    /// Leaves nothing in the processes, and nothing but the buffer's size of the state.
    fn reset(&mut self) -> Result<String> {
        self.settle(State::default(), &[])?;
        self.engine.perform(Act::ClearCounts)?;
        self.control.answer.clear();
        let tracing = std::mem::take(&mut self.control.tracing);
        // Counts have begun at 0 again; earlier records remain.
        self.control.tracing = Tracing {
            taken: 0,
            ..tracing
        };
        Ok(String::new())
    }

    // ---- queries ----

    fn query(&mut self, what: &FunctionSelection) -> Result<String> {
        let found = self.described(what)?;
        let lines = found
            .iter()
            .map(|(site, function)| self.line_of(site, function));
        self.control.answer = lines.collect();
        Ok(self.answered())
    }

    fn simulate(&mut self, what: &FunctionSelection) -> Result<String> {
        let mut lines = Vec::new();
        for (site, function) in self.described(what)? {
            if self.control.setup.records(site.key) {
                self.engine.perform(Act::Simulate(site.key))?;
                let name = function.printable();
                lines.push(format!("{:08x} {name}: entered", site.address));
            } else {
                lines.push(self.not_entered(&site, &function));
            }
        }
        self.control.answer = lines;
        Ok(self.answered())
    }

    /// The reason why an entry of a function is not recorded, and the remedy.
    fn not_entered(&self, site: &FoundSite, function: &Function) -> String {
        let (address, name) = (site.address, function.printable());
        let state = &self.control.state;
        let holding = state.traces.iter();
        let mut holding = holding.filter(|trace| trace.held.sites.contains(&site.key));
        let why = match (&function.refused, holding.next()) {
            (Some(reason), _) => format!("cannot be traced: {reason}"),
            (None, None) => "no trace has it".to_owned(),
            (None, Some(first)) => {
                let all: Vec<String> = std::iter::once(first)
                    .chain(holding)
                    .map(|trace| word(&trace.name))
                    .collect();
                let is_on = |name: &String| state.trace(name).is_some_and(|trace| trace.is_on());
                let (names, off) = (all.join(", "), !all.iter().any(is_on));
                let (are, which) = match all.len() {
                    1 => ("is", "trace"),
                    _ => ("are", "traces"),
                };
                match (off, state.started) {
                    (true, true) => {
                        format!(
                            "{which} {names} {are} off: trace {} on switches it on",
                            all[0]
                        )
                    }
                    (true, false) => format!(
                        "{which} {names} {are} off, and the session is stopped: trace {} on and start record it",
                        all[0]
                    ),
                    (false, _) => format!("the session is stopped: start records {which} {names}"),
                }
            }
        };
        format!("{address:08x} {name}: not entered: {why}")
    }

    fn described(&mut self, what: &FunctionSelection) -> Result<Vec<(FoundSite, Function)>> {
        let mut draft = Draft::new(State::default(), self.engine);
        let found = draft.find_some(what)?;
        let keys: Vec<SiteKey> = found.iter().map(|site| site.key).collect();
        let functions = draft.lookup.describe(&keys);
        Ok(found.into_iter().zip(functions).collect())
    }

    fn line_of(&self, site: &FoundSite, function: &Function) -> String {
        let (address, name) = (site.address, function.printable());
        if let Some(reason) = &function.refused {
            return format!("{address:08x} {name}: cannot be traced: {reason}");
        }
        let state = &self.control.state;
        let traces = state.traces.iter();
        let traces = traces.filter(|trace| trace.held.sites.contains(&site.key));
        let traces: Vec<String> = traces
            .map(|trace| format!("{} ({})", word(&trace.name), mode_of(trace)))
            .collect();
        let parts = state.tracers.iter().flat_map(|active| &active.parts);
        let mut parts = parts.filter(|held| held.sites.contains(&site.key));
        let is_enabled = parts.next().is_some()
            || state
                .traces
                .iter()
                .any(|trace| trace.is_on() && trace.held.sites.contains(&site.key));
        let mut holding = state.traces.iter();
        let is_counted = holding
            .any(|trace| trace.mode == Mode::Counted && trace.held.sites.contains(&site.key));
        let traced = match (is_enabled, state.started) {
            _ if traces.is_empty() => return format!("{address:08x} {name}: not traced"),
            (true, true) => "traced",
            (true, false) => "not traced until start",
            (false, true) if is_counted => "counted",
            (false, false) if is_counted => "not counted until start",
            (false, _) => "not traced",
        };
        format!("{address:08x} {name}: {traced}: {}", traces.join(", "))
    }

    fn answered(&self) -> String {
        let lines = self.control.answer.iter();
        lines.map(|line| format!("{line}\n")).collect()
    }

    // ---- tracers ----

    pub fn tracer_on(&mut self, name: &str) -> Result<String> {
        let before = self.control.state.clone();
        let on = self.change(|draft| draft.tracer_on(name));
        if let Some(EventTracer::Events { .. }) = EventTracer::named(name)
            && let Err(error) = &on
        {
            // Markers need no rights.
            let only_markers = self.change(|draft| {
                draft.tracer_on(name)?;
                ensure!(draft.without_kernel_events());
                Ok(())
            });
            return match only_markers {
                Ok(_) => {
                    let why = without_numbers(&format!("{error:#}"));
                    Ok(format!("{name}: only markers: {why}"))
                }
                Err(_) => on,
            };
        }
        let mut answers = vec![on?];
        let known = before.tracer(name).is_some();
        let Some(active) = self.control.state.tracer(name).filter(|_| !known).cloned() else {
            return Ok(answers.remove(0));
        };
        if let Err(error) = active.live.check() {
            self.settle(before, &[])?;
            return Err(error);
        }
        for probe in optional_probes(&active.tracer)? {
            let more = self.change(|draft| {
                draft.add_optional(name, probe);
                Ok(())
            });
            answers.push(
                more.unwrap_or_else(|error| {
                    format!("handlers of signals are not known: {error:#}")
                }),
            );
        }
        answers.retain(|answer| !answer.is_empty());
        Ok(answers.join("\n"))
    }

    /// The worst case of a tracer, or all that are above the threshold, with the records in them.
    pub fn latency(&mut self, name: &str, look: Look) -> Result<String> {
        self.engine.perform(Act::Flush)?;
        let state = &self.control.state;
        let running = state.tracer(name);
        let running = running.with_context(|| state.why_off(name))?;
        let report = running.live.report();
        let cases = match state.threshold {
            0 => Vec::from_iter(report.worst),
            _ => report.kept.clone(),
        };
        if cases.is_empty() {
            let answer = describe(&report).join("\n# ");
            return Ok(format!("# tracer: {name}\n#\n# {answer}\n"));
        }
        let mut text = Vec::new();
        if report.kept_before > 0 && state.threshold > 0 {
            let left_out = format!(
                "# {} kept\n\n",
                several(
                    report.kept_before,
                    "case before these is not",
                    "cases before these are not"
                )
            );
            text.extend_from_slice(left_out.as_bytes());
        }
        let trace = Trace::open(self.engine.facts().directory)?;
        let names = Names::new(&trace);
        let number = |key: ThreadKey| {
            let threads = trace.tasks();
            let is = |thread: &nopal_trace::ThreadInfo| {
                (thread.process, thread.thread) == (key.process, key.thread)
            };
            let same = |thread: &nopal_trace::ThreadInfo| is(thread) && thread.begin == key.begin;
            // A thread that the system told of first may have begun to record since.
            let at = threads
                .iter()
                .position(same)
                .or_else(|| threads.iter().position(is));
            at.map(|at| at as u32)
                .context("its records are not in the trace")
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
            dump::case(
                &trace,
                &names,
                &running.tracer,
                &case,
                finding.task,
                look,
                &mut text,
            )?;
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Control {
    /// Whether a command could be obeyed, as far as that can be known without touching a process. For commands that set
    /// triggers, that is nearly all.
    pub fn could_obey(&self, lookup: &mut dyn Lookup, line: &str) -> Result<()> {
        let command = parse(line).map_err(anyhow::Error::msg)?;
        let Some(command) = command else {
            return Ok(());
        };
        let mut draft = Draft::new(self.state.clone(), lookup);
        let could = draft.obey(command);
        could.with_context(|| quoted(line.trim()))
    }

    /// Takes the action of a trigger that has fired at this value of the counter. `answer`: the event that it met, for
    /// people.
    pub fn fired(&mut self, engine: &mut dyn Engine, name: &str, counter: u64, answer: &str) {
        let active = self.state.triggers.iter().find(|one| one.name == name);
        let Some(active) = active else {
            return;
        };
        let action = active.trigger.action.clone();
        let mut controller = self.with(engine);
        let done = match action {
            Action::Start => controller.obey(Command::Start),
            Action::Stop => controller.obey(Command::Stop),
            Action::Switch { name, on } => controller.obey(Command::Switch { name, on }),
            Action::Mark => {
                let text = &format!("{}: {answer}", word(name));
                let counter = Some(counter);
                controller.engine.perform(Act::Write { text, counter })
            }
            Action::Detach => controller.engine.perform(Act::Detach),
            // The thread that collects records takes snapshots itself, at once.
            Action::Snapshot | Action::Count => Ok(String::new()),
        };
        let active = self.state.triggers.iter_mut().find(|one| one.name == name);
        if let (Err(error), Some(active)) = (done, active) {
            active.failed = Some(without_numbers(&format!("{error:#}")));
        }
    }
}
