//! The state of a session, and what commands do to it. Each command is done as a whole or not at all.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use nopal_abi::Capture;

use crate::engine::{Engine, FoundSite, Mark, Mode, Refused, SiteKey};
use crate::grammar::Command;
use crate::probes::ActiveProbe;
use crate::selection::{FunctionSelection, Location, Part, word};
use crate::sites::{Site, Sites};
use crate::syntax::quoted;
use crate::tracers::{Tracers, is_of_tracer};
use crate::tracing::Tracing;
use crate::triggers::ActiveTrigger;

/// The state of a session: its traces, and whether they record. Changes go through [`Control::command`] and
/// [`Control::write`].
#[derive(Default)]
pub struct Control {
    pub(crate) traces: Vec<Trace>,
    pub(crate) probes: Vec<ActiveProbe>,
    pub(crate) sites: Sites,
    pub(crate) started: bool,
    /// All sites that can be traced, held while `uniform` is on.
    pub(crate) uniform: Option<Vec<usize>>,
    /// Where two mean the same marker, the later one decides.
    pub(crate) marks: Vec<Mark>,
    pub(crate) triggers: Vec<ActiveTrigger>,
    pub(crate) watched: Vec<u32>,
    pub(crate) children: bool,
    /// The answer of the last `query` or `testtracein`.
    pub(crate) answer: Vec<String>,
    pub(crate) tracing: Tracing,
    pub(crate) tracers: Tracers,
}

/// A named set of sites.
pub(crate) struct Trace {
    pub name: String,
    pub what: FunctionSelection,
    /// The data that it needs recorded.
    pub capture: Capture,
    pub on: bool,
    /// Numbers in [`Sites`].
    pub sites: Vec<usize>,
    /// The first of the functions that it means; `None` while there are none.
    pub first: Option<(SiteKey, u64)>,
    /// Functions that it means and that cannot be traced.
    pub refused: usize,
}

/// Records that a buffer may have room for, as a power of two.
const SIZES: std::ops::RangeInclusive<u32> = 10..=40;
const RECORD_BYTES: u64 = 8;
/// Refused functions that are reported by name.
const MOST_NAMED: usize = 3;

impl Control {
    pub fn new() -> Control {
        Control::default()
    }

    /// The answer of the command: text for a person.
    pub(crate) fn obey(&mut self, engine: &mut dyn Engine, command: Command) -> Result<String> {
        match command {
            Command::New { what, name } => self.make(engine, what, name),
            Command::Switch { name, on } => {
                let at = self.at(&name)?;
                self.switch(engine, at, on)?;
                Ok(String::new())
            }
            Command::Remove { name } => {
                let at = self.at(&name)?;
                self.remove(engine, at)?;
                Ok(String::new())
            }
            Command::Size(size) => {
                ensure!(
                    SIZES.contains(&size),
                    "expected a number from {} to {}: the buffer holds 2 to its power of records",
                    SIZES.start(),
                    SIZES.end()
                );
                engine.resize(RECORD_BYTES << size)?;
                Ok(String::new())
            }
            Command::Watch { ids, children } => self.watch(engine, ids, children),
            Command::Start => self.start(engine),
            Command::Stop => self.stop(engine),
            Command::Reset => self.reset(engine),
            Command::Query(what) => self.query(engine, &what),
            Command::Simulate(what) => self.simulate(engine, &what),
            Command::Section { name, from, to } => self.make_section(&name, &from, &to),
            Command::Tracer { name, on: true } => self.tracer_on(engine, &name),
            Command::Tracer { name, on: false } => self.tracer_off(engine, &name),
            Command::RemoveSection { name } => self.remove_section(engine, &name),
            Command::ResetTracer { name } => self.tracer_reset(&name),
            Command::Threshold(microseconds) => {
                self.tracers.set_threshold(u64::from(microseconds));
                Ok(String::new())
            }
            Command::Latency { name } => self.latency(engine, &name, self.tracing.look()),
            Command::Uniform(true) => self.uniform_on(engine),
            Command::Uniform(false) => self.uniform_off(engine),
            Command::Mark { name, on } => self.mark(engine, Mark { name, on }),
            Command::Probe(probe) => self.make_probe(engine, probe),
            Command::SwitchProbe { name, on } => self.switch_probe(engine, &name, on),
            Command::RemoveProbe { name } => self.remove_probe(engine, &name),
            Command::Snapshot => {
                engine.may_snapshot()?;
                engine.snapshot("by command")
            }
            Command::SetTrigger { trigger, name } => self.set_trigger(engine, trigger, name),
            Command::RemoveTrigger { name } => self.remove_trigger(engine, &name),
        }
    }

    pub(crate) fn logsize(engine: &dyn Engine) -> u32 {
        (engine.buffer() / RECORD_BYTES).max(1).ilog2()
    }

    pub(crate) fn trace(&self, name: &str) -> Option<&Trace> {
        self.traces.iter().find(|trace| trace.name == name)
    }

    pub(crate) fn at(&self, name: &str) -> Result<usize> {
        if let Some(at) = self.traces.iter().position(|trace| trace.name == name) {
            return Ok(at);
        }
        let names = self.traces.iter().map(|trace| &*trace.name);
        let names: Vec<&str> = names.filter(|name| !is_of_tracer(name)).collect();
        match names[..] {
            [] => bail!("there is no trace {}: none has been made", quoted(name)),
            [..] if names.len() <= 8 => {
                bail!(
                    "there is no trace {}, only {}",
                    quoted(name),
                    names.join(", ")
                )
            }
            _ => bail!("there is no trace {}", quoted(name)),
        }
    }

    // ---- traces ----

    fn make(
        &mut self,
        engine: &mut dyn Engine,
        what: FunctionSelection,
        name: String,
    ) -> Result<String> {
        let what = portable(engine, what);
        if let Some(trace) = self.trace(&name) {
            ensure!(
                trace.what == what,
                "there is a trace {} already, of {}",
                quoted(&name),
                trace.what
            );
            return Ok(String::new());
        }
        let capture = engine.capture();
        let (trace, answer) = self.hold(engine, what, name, capture)?;
        self.traces.push(trace);
        Ok(answer)
    }

    /// Inserts the sites of a trace, which is off, and says which cannot be. `more`: what is to be recorded beside what
    /// the session records of all calls.
    pub(crate) fn hold(
        &mut self,
        engine: &mut dyn Engine,
        what: FunctionSelection,
        name: String,
        capture: Capture,
    ) -> Result<(Trace, String)> {
        let found = found_or_waiting(engine, &what)?;
        let able: Vec<SiteKey> = able(&found).collect();
        let all: Vec<usize> = able.iter().map(|key| self.sites.number(*key)).collect();
        let mut refused = Vec::new();
        for (capture, numbers) in self.sites.lacking(&all, capture) {
            refused.extend(engine.insert(&self.sites.keys(&numbers), capture)?);
            // Sites that were inserted before have new thunks now, which are off.
            self.sites.inserted(&numbers);
            self.settle(engine, &numbers)?;
        }
        let answer = refusals(&found, &refused);
        let without: HashSet<SiteKey> = refused.iter().map(|refused| refused.key).collect();
        if !found.is_empty() && without.len() == able.len() {
            bail!("{answer}");
        }
        let numbers: Vec<usize> = able
            .iter()
            .filter(|key| !without.contains(key))
            .map(|key| self.sites.number(*key))
            .collect();
        self.sites.hold(&numbers, capture);
        // While `uniform` is on, those that could not be inserted when it was written.
        if let Err(error) = self.settle(engine, &numbers) {
            engine.remove(&self.sites.held_once(&numbers))?;
            self.sites.release(&numbers);
            return Err(error);
        }
        let trace = Trace {
            on: false,
            first: found.first().map(|site| (site.key, site.address)),
            refused: found.len() - numbers.len(),
            sites: numbers,
            name,
            what,
            capture,
        };
        Ok((trace, answer))
    }

    /// Switches sites to what they are to do now.
    pub(crate) fn settle(&mut self, engine: &mut dyn Engine, sites: &[usize]) -> Result<()> {
        self.settle_changed(engine, sites, |_| ())
    }

    /// The same after a change of each.
    fn settle_changed(
        &mut self,
        engine: &mut dyn Engine,
        sites: &[usize],
        change: impl Fn(&mut Site),
    ) -> Result<()> {
        let uniform = self.uniform.is_some();
        let unsettled = self.sites.settle(sites, self.started, uniform, change);
        let switches = [
            (&unsettled.silent, Mode::Silent),
            (&unsettled.on, Mode::On),
            (&unsettled.off, Mode::Off),
        ];
        let mut switches = switches.iter().filter(|(sites, _)| !sites.is_empty());
        let switched = switches.try_for_each(|(sites, mode)| engine.switch(sites, *mode));
        if switched.is_err() {
            self.sites.forget_modes();
        }
        switched
    }

    /// The same after a change of the state, which is undone where that fails.
    fn settle_or(
        &mut self,
        engine: &mut dyn Engine,
        sites: &[usize],
        undo: impl FnOnce(&mut Control),
    ) -> Result<()> {
        let settled = self.settle(engine, sites);
        if settled.is_err() {
            undo(self);
            self.settle(engine, sites)?;
        }
        settled
    }

    pub(crate) fn switch(&mut self, engine: &mut dyn Engine, at: usize, on: bool) -> Result<()> {
        if self.traces[at].on == on {
            return Ok(());
        }
        let sites = std::mem::take(&mut self.traces[at].sites);
        let enabled = |on| move |site: &mut Site| site.enable(on);
        let switched = self.settle_changed(engine, &sites, enabled(on));
        let undone = match &switched {
            Ok(()) => Ok(()),
            Err(_) => self.settle_changed(engine, &sites, enabled(!on)),
        };
        let trace = &mut self.traces[at];
        trace.sites = sites;
        if switched.is_ok() {
            trace.on = on;
        }
        undone.and(switched)
    }

    pub(crate) fn remove(&mut self, engine: &mut dyn Engine, at: usize) -> Result<()> {
        let was_on = self.traces[at].on;
        self.switch(engine, at, false)?;
        let removed = engine.remove(&self.sites.held_once(&self.traces[at].sites));
        if removed.is_err() && was_on {
            self.switch(engine, at, true)
                .context("the trace is off now and not removed")?;
        }
        removed?;
        let trace = self.traces.remove(at);
        self.sites.release(&trace.sites);
        Ok(())
    }

    // ---- markers ----

    fn mark(&mut self, engine: &mut dyn Engine, mark: Mark) -> Result<String> {
        marker_exists(engine, &mark.name)?;
        let marks = with_mark(&self.marks, mark);
        if self.started {
            engine.mark(&marks)?;
        }
        self.marks = marks;
        Ok(String::new())
    }

    /// The markers that are recorded when control begins.
    pub fn begin_marks(&mut self, names: &[String]) {
        let marks = names.iter().map(|name| Mark {
            name: name.clone(),
            on: true,
        });
        self.marks = marks.collect();
    }

    // ---- the session ----

    fn watch(&mut self, engine: &mut dyn Engine, ids: Vec<u32>, children: bool) -> Result<String> {
        let all = ids == [0];
        ensure!(
            all || !ids.contains(&0),
            "0 means all processes: expected it alone"
        );
        let ids = if all { Vec::new() } else { ids };
        engine.watch(&ids, children)?;
        self.watched = ids;
        self.children = children;
        Ok(String::new())
    }

    pub(crate) fn start(&mut self, engine: &mut dyn Engine) -> Result<String> {
        self.turn(engine, true)
    }

    pub(crate) fn stop(&mut self, engine: &mut dyn Engine) -> Result<String> {
        self.turn(engine, false)
    }

    fn turn(&mut self, engine: &mut dyn Engine, on: bool) -> Result<String> {
        if self.started != on {
            let turned = self.try_turn(engine, on);
            if turned.is_err() {
                self.try_turn(engine, !on)?;
            }
            turned?;
        }
        Ok(String::new())
    }

    fn try_turn(&mut self, engine: &mut dyn Engine, on: bool) -> Result<()> {
        self.started = on;
        self.settle(engine, &self.sites.all())?;
        self.switch_probes(engine, on)?;
        self.switch_marks(engine, on)
    }

    fn switch_marks(&self, engine: &mut dyn Engine, started: bool) -> Result<()> {
        match (self.marks.is_empty(), started) {
            (true, _) => Ok(()),
            (false, true) => engine.mark(&self.marks),
            (false, false) => engine.mark(&[]),
        }
    }

    /// Leaves nothing in the processes, and nothing but the buffer's size of the state.
    fn reset(&mut self, engine: &mut dyn Engine) -> Result<String> {
        self.all_tracers_off(engine)?;
        engine.watch(&[], false)?;
        self.switch_marks(engine, false)?;
        if let Err(error) = engine.remove(&self.sites.held()) {
            engine.watch(&self.watched, self.children)?;
            self.switch_marks(engine, self.started)?;
            return Err(error);
        }
        self.remove_probes(engine)?;
        for active in &self.triggers {
            engine.remove_trigger(&active.name);
        }
        engine.clear_counts();
        *self = Control {
            tracing: std::mem::take(&mut self.tracing).after_reset(),
            ..Control::default()
        };
        Ok(String::new())
    }

    fn uniform_on(&mut self, engine: &mut dyn Engine) -> Result<String> {
        if self.uniform.is_some() {
            return Ok(String::new());
        }
        let capture = engine.capture();
        let (trace, _) = self.hold(
            engine,
            FunctionSelection::of_names([], [], true),
            String::new(),
            capture,
        )?;
        self.uniform = Some(trace.sites.clone());
        if let Err(error) = self.settle_or(engine, &trace.sites, |control| control.uniform = None) {
            engine.remove(&self.sites.held_once(&trace.sites))?;
            self.sites.release(&trace.sites);
            return Err(error);
        }
        Ok(String::new())
    }

    fn uniform_off(&mut self, engine: &mut dyn Engine) -> Result<String> {
        let Some(sites) = self.uniform.take() else {
            return Ok(String::new());
        };
        let on = |control: &mut Control| control.uniform = Some(sites.clone());
        self.settle_or(engine, &sites, on)?;
        if let Err(error) = engine.remove(&self.sites.held_once(&sites)) {
            self.uniform = Some(sites.clone());
            self.settle(engine, &sites)?;
            return Err(error);
        }
        self.sites.release(&sites);
        Ok(String::new())
    }

    /// Finds all places again, inserts and switches what is new. To be called when a process has loaded a library or
    /// executed another program, before that runs.
    pub fn refresh(&mut self, engine: &mut dyn Engine) -> Result<()> {
        for at in 0..self.traces.len() {
            let found = find(engine, &self.traces[at].what)?;
            let new = self.new_sites(&found, &self.traces[at].sites.clone());
            let trace = &mut self.traces[at];
            trace.first = found
                .first()
                .map(|site| (site.key, site.address))
                .or(trace.first);
            trace.refused = found.iter().filter(|site| site.refused.is_some()).count();
            self.sites.hold(&new, trace.capture);
            if trace.on {
                self.sites.enable(&new);
            }
            trace.sites.extend(new);
        }
        if let Some(sites) = &self.uniform {
            let sites = sites.clone();
            let found = find(engine, &FunctionSelection::of_names([], [], true))?;
            let new = self.new_sites(&found, &sites);
            self.sites.hold(&new, engine.capture());
            self.uniform = Some([sites, new].concat());
        }
        self.refresh_triggers(engine)?;
        for (capture, held) in self.sites.held_by_capture() {
            engine.insert(&held, capture)?;
        }
        // The code of a new program does nothing yet.
        self.sites.forget_modes();
        self.settle(engine, &self.sites.all())?;
        self.set_triggers(engine)?;
        Ok(())
    }

    pub(crate) fn new_sites(&mut self, found: &[FoundSite], known: &[usize]) -> Vec<usize> {
        let known: HashSet<usize> = known.iter().copied().collect();
        let numbers = able(found).map(|key| self.sites.number(key));
        numbers.filter(|number| !known.contains(number)).collect()
    }

    // ---- questions ----

    fn query(&mut self, engine: &mut dyn Engine, what: &FunctionSelection) -> Result<String> {
        let found = find_some(engine, what)?;
        self.answer = found.iter().map(|site| self.describe_site(site)).collect();
        Ok(self.answered())
    }

    fn describe_site(&self, site: &FoundSite) -> String {
        let (address, name) = (site.address, printable(site));
        if let Some(reason) = &site.refused {
            return format!("{address:08x} {name}: cannot be traced: {reason}");
        }
        let number = self.sites.known(site.key);
        let mut traces = Vec::new();
        for trace in self
            .traces
            .iter()
            .filter(|trace| !is_of_tracer(&trace.name))
        {
            if number.is_some_and(|number| trace.sites.contains(&number)) {
                traces.push(format!(
                    "{} ({})",
                    word(&trace.name),
                    if trace.on { "on" } else { "off" }
                ));
            }
        }
        let traced = match (self.sites.is_enabled(site.key), self.started) {
            _ if traces.is_empty() => return format!("{address:08x} {name}: not traced"),
            (true, true) => "traced",
            (true, false) => "not traced until start",
            (false, _) => "not traced",
        };
        format!("{address:08x} {name}: {traced}: {}", traces.join(", "))
    }

    fn simulate(&mut self, engine: &mut dyn Engine, what: &FunctionSelection) -> Result<String> {
        let found = find_some(engine, what)?;
        let mut lines = Vec::new();
        for site in &found {
            if self.started && self.sites.is_enabled(site.key) {
                engine.simulate(site.key)?;
                lines.push(format!("{:08x} {}: entered", site.address, printable(site)));
            } else {
                lines.push(self.describe_site(site));
            }
        }
        self.answer = lines;
        Ok(self.answered())
    }

    fn answered(&self) -> String {
        self.answer.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// `NAME@MODULE`, with nothing in it that a terminal would obey.
fn printable(site: &FoundSite) -> String {
    let text = format!("{}@{}", site.name, site.module);
    nopal_symbols::printable(&text).into_owned()
}

/// An error where no marker has such a name. Those of a library may come with it.
pub(crate) fn marker_exists(engine: &mut dyn Engine, name: &str) -> Result<()> {
    if name.contains('@') || !engine.markers(name)?.is_empty() {
        return Ok(());
    }
    let nearest = engine.nearest_markers(name);
    ensure!(
        nearest.is_empty(),
        "no marker matches {name}; the nearest are {}",
        nearest.join(", ")
    );
    bail!("no marker matches {name}")
}

/// With one more, and without those that it makes superfluous.
fn with_mark(marks: &[Mark], mark: Mark) -> Vec<Mark> {
    if !mark.on && mark.name == "*" {
        return Vec::new();
    }
    let mut marks = marks.to_vec();
    marks.retain(|other| other.name != mark.name);
    marks.push(mark);
    // Nothing was on before them.
    let first_on = marks.iter().position(|mark| mark.on);
    marks.drain(..first_on.unwrap_or(marks.len()));
    marks
}

fn able(found: &[FoundSite]) -> impl Iterator<Item = SiteKey> {
    found
        .iter()
        .filter(|site| site.refused.is_none())
        .map(|site| site.key)
}

/// The selected functions, each once.
pub(crate) fn find(engine: &mut dyn Engine, what: &FunctionSelection) -> Result<Vec<FoundSite>> {
    let mut excluded = HashSet::new();
    for part in what.parts().iter().filter(|part| part.excluded) {
        let place = anywhere(&part.place);
        excluded.extend(engine.find(&place)?.into_iter().map(|site| site.key));
    }
    let mut found = Vec::new();
    let mut known = HashSet::new();
    for part in what.parts().iter().filter(|part| !part.excluded) {
        let sites = engine.find(&part.place)?.into_iter();
        found.extend(sites.filter(|site| !excluded.contains(&site.key) && known.insert(site.key)));
    }
    Ok(found)
}

/// Names to leave out are left out of all that is chosen, libraries too.
fn anywhere(place: &Location) -> Location {
    match place {
        Location::Names(names) if !names.contains('@') => Location::Names(format!("{names}@*")),
        other => other.clone(),
    }
}

fn find_some(engine: &mut dyn Engine, what: &FunctionSelection) -> Result<Vec<FoundSite>> {
    let found = find(engine, what)?;
    if found.is_empty() {
        nothing_found(engine, what)?;
    }
    Ok(found)
}

/// The functions that are meant; none only where one of the places may come to be.
pub(crate) fn found_or_waiting(
    engine: &mut dyn Engine,
    what: &FunctionSelection,
) -> Result<Vec<FoundSite>> {
    let found = find(engine, what)?;
    if found.is_empty() && !waits(engine, what)? {
        nothing_found(engine, what)?;
    }
    Ok(found)
}

/// Whether one of the places is in a module that is not loaded, and may be later.
fn waits(engine: &mut dyn Engine, what: &FunctionSelection) -> Result<bool> {
    for part in what.parts().iter().filter(|part| !part.excluded) {
        let module = match &part.place {
            Location::Names(names) => names.rsplit_once('@').map(|(_, module)| module),
            Location::InModule { module, .. } | Location::RangeInModule { module, .. } => {
                Some(&**module)
            }
            _ => None,
        };
        if let Some(module) = module
            && engine
                .find(&Location::Names(format!("@{module}")))?
                .is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn nothing_found(engine: &mut dyn Engine, what: &FunctionSelection) -> Result<()> {
    for Part { place, .. } in what.parts() {
        if let Location::Range { start, end } | Location::RangeInModule { start, end, .. } = place {
            ensure!(
                start < end,
                "the range is empty: its end is not behind its start"
            );
        }
    }
    let wanted = what.parts().iter().find(|part| !part.excluded);
    let nearest = wanted.map_or_else(Vec::new, |part| engine.nearest(&part.place));
    ensure!(
        nearest.is_empty(),
        "no function matches {what}; the nearest are {}",
        nearest.join(", ")
    );
    bail!("no function matches {what}")
}

/// The functions that cannot be traced, with reasons, in a line; empty if all can.
pub(crate) fn refusals(found: &[FoundSite], refused: &[Refused]) -> String {
    let reasons = found.iter().filter_map(|site| {
        let now = refused.iter().find(|refused| refused.key == site.key);
        let reason = site
            .refused
            .as_ref()
            .or(now.map(|refused| &refused.reason))?;
        Some(format!("{} ({reason})", printable(site)))
    });
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() {
        return String::new();
    }
    let more = match reasons.len() - reasons.len().min(MOST_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "{} of {} functions cannot be traced: {}{more}",
        reasons.len(),
        found.len(),
        reasons[..reasons.len().min(MOST_NAMED)].join(", ")
    )
}

/// With addresses as they are in the files, which other processes of the same program share.
pub(crate) fn portable(engine: &mut dyn Engine, what: FunctionSelection) -> FunctionSelection {
    what.map_locations(|place| match place {
        Location::Address(address) => match engine.locate(address) {
            Some(at) => Location::InModule {
                module: at.module,
                address: at.address,
            },
            None => place,
        },
        Location::Range { start, end } if start < end => {
            match (engine.locate(start), engine.locate(end - 1)) {
                (Some(first), Some(last)) if first.module == last.module => {
                    Location::RangeInModule {
                        module: first.module,
                        start: first.address,
                        end: last.address + 1,
                    }
                }
                _ => place,
            }
        }
        other => other,
    })
}
