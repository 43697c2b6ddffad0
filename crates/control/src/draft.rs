//! A draft: a copy of the state that commands change. They look up what they name, and touch no process.

use nopal_analysis::sort;
use nopal_analysis::tracers::Section;
use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use nopal_abi::Capture;
use nopal_symbols::or_nearest;

use crate::budget::{Share, Spared};
use crate::command::Command;
use crate::engine::{FoundSite, Lookup, Mark, Missing, Mode, Refused, Watch};
use crate::probe::Probe;
use crate::selection::{FunctionSelection, Location, Part};
use crate::site_key::SiteKey;
use crate::state::{ActiveFunctions, ActiveProbe, State, Trace};
use crate::syntax::quoted;

/// At most this many refused functions are named.
const MOST_NAMED: usize = 3;

/// A copy of the state that commands change.
pub struct Draft<'a> {
    pub state: State,
    pub lookup: &'a mut dyn Lookup,
    /// No command came before: functions and markers that are missing may come, or need not.
    pub begins: bool,
    /// The functions that the draft holds anew, a list for each holder.
    found: Vec<Vec<FoundSite>>,
}

impl Draft<'_> {
    pub fn new(state: State, lookup: &mut dyn Lookup) -> Draft<'_> {
        Draft {
            state,
            lookup,
            begins: false,
            found: Vec::new(),
        }
    }

    /// The state, and the functions that are held anew in it.
    pub fn done(self) -> (State, Vec<Vec<FoundSite>>) {
        (self.state, self.found)
    }

    /// After an error the draft may be half changed: it is to be thrown away.
    pub fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::New { what, name } => self.make(what, name),
            Command::Switch { name, on } => self.switch(&name, on),
            Command::Count { name } => self.set_mode(&name, Mode::Counted),
            Command::Remove { name } => self.remove(&name),
            Command::Watch { ids, children } => self.watch(ids, children),
            Command::Start => self.start(true),
            Command::Stop => self.start(false),
            Command::Uniform(on) => self.uniform(on),
            Command::Budget(share) => self.budget(share),
            Command::Arguments => bail!(
                "whether arguments are recorded is chosen when a session begins: nopal record --args, nopal attach --args"
            ),
            Command::Processors => {
                bail!("only a kernel is recorded by processors: nopal ctl kernel 'processors IDS'")
            }
            Command::Mark { name, on } => self.mark(Mark { name, on }),
            Command::Probe(probe) => self.make_probe(probe),
            Command::SwitchProbe { name, on } => {
                let at = self.probe_at(&name)?;
                self.state.probes[at].on = on;
                Ok(())
            }
            Command::RemoveProbe { name } => {
                let at = self.probe_at(&name)?;
                self.state.probes.remove(at);
                Ok(())
            }
            Command::SetTrigger { trigger, name } => self.set_trigger(trigger, name),
            Command::RemoveTrigger { name } => self.remove_trigger(&name),
            Command::Section { name, from, to } => {
                self.make_section(Section::new(&name, &from, &to))
            }
            Command::RemoveSection { name } => self.remove_section(&name),
            Command::Tracer { name, on: true } => self.tracer_on(&name),
            Command::Tracer { name, on: false } => self.tracer_off(&name),
            Command::KeepSlowest { name, most } => self.keep_slowest(&name, most),
            Command::Threshold(microseconds) => {
                self.state.threshold = u64::from(microseconds);
                Ok(())
            }
            Command::Size(_)
            | Command::Reset
            | Command::Query(_)
            | Command::Simulate(_)
            | Command::Snapshot
            | Command::ResetTracer { .. }
            | Command::Latency { .. } => Ok(()),
        }
    }

    // ---- traces ----

    pub fn trace_at(&self, name: &str) -> Result<usize> {
        let mut traces = self.state.traces.iter();
        if let Some(at) = traces.position(|trace| trace.name == name) {
            return Ok(at);
        }
        let names = self.state.traces.iter().map(|trace| &*trace.name);
        let names: Vec<&str> = names.collect();
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

    fn make(&mut self, what: FunctionSelection, name: String) -> Result<()> {
        let what = self.portable(what);
        if let Some(trace) = self.state.trace(&name) {
            ensure!(
                trace.held.what == what,
                "there is a trace {} already, of {}",
                quoted(&name),
                trace.held.what
            );
            return Ok(());
        }
        let capture = self.lookup.facts().capture;
        // A program may have no function that can be traced.
        let held = match self.begins && what.names_none() {
            true => self.hold_any(what, capture)?,
            false => self.hold(what, capture)?,
        };
        let mode = Mode::Off;
        let trace = Arc::new(Trace { name, held, mode });
        self.state.traces.push(trace);
        Ok(())
    }

    pub fn switch(&mut self, name: &str, on: bool) -> Result<()> {
        let mode = match on {
            true => Mode::On,
            false => Mode::Off,
        };
        self.set_mode(name, mode)
    }

    fn set_mode(&mut self, name: &str, mode: Mode) -> Result<()> {
        let at = self.trace_at(name)?;
        Arc::make_mut(&mut self.state.traces[at]).mode = mode;
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        let at = self.trace_at(name)?;
        self.state.traces.remove(at);
        Ok(())
    }

    pub fn uniform(&mut self, on: bool) -> Result<()> {
        if !on {
            self.state.uniform = None;
        } else if self.state.uniform.is_none() {
            let capture = self.lookup.facts().capture;
            let all = FunctionSelection::of_names([], [], true);
            self.state.uniform = Some(self.hold(all, capture)?);
            // Nobody has asked for those of them that cannot be traced.
            self.found.pop();
        }
        Ok(())
    }

    fn budget(&mut self, share: Option<Share>) -> Result<()> {
        self.state.budget = share;
        if share.is_none() {
            self.state.spared = Spared::default();
        }
        Ok(())
    }

    /// Functions to be inserted for a holder: those that can be.
    pub fn hold(&mut self, what: FunctionSelection, capture: Capture) -> Result<ActiveFunctions> {
        let found = self.found_or_waiting(&what)?;
        let held = held(what, capture, &found);
        if !found.is_empty() && held.sites.is_empty() {
            bail!("{}", self.none_able(&held.what, &found));
        }
        self.found.push(found);
        Ok(held)
    }

    /// The same for the function tracer, whose lines tell where in their callers functions are called.
    pub fn hold_for_function_tracer(&mut self, what: FunctionSelection) -> Result<ActiveFunctions> {
        let capture = Capture {
            call_sites: true,
            ..self.lookup.facts().capture
        };
        self.hold(what, capture)
    }

    /// The same, where it is no mistake to find none.
    pub fn hold_any(
        &mut self,
        what: FunctionSelection,
        capture: Capture,
    ) -> Result<ActiveFunctions> {
        let found = self.find(&what)?;
        Ok(held(what, capture, &found))
    }

    fn none_able(&mut self, what: &FunctionSelection, found: &[FoundSite]) -> String {
        if !self.begins {
            return self.refusals(found, &[]);
        }
        let first = self.lookup.describe(&[found[0].key]);
        let reasons = first.into_iter().map(|function| {
            let reason = function.refused.unwrap_or_default();
            format!("{}: {reason}", function.name)
        });
        let reasons: String = reasons.collect();
        let only = what.without_exclusions();
        format!("no function that matches {only} can be traced: {reasons}")
    }

    /// Adds the functions in the modules of `lookup` to those that holders had found before.
    pub fn find_more(&mut self) -> Result<()> {
        let mut holders: Vec<ActiveFunctions> =
            self.state.holders_mut().map(|held| held.clone()).collect();
        for held in &mut holders {
            let found = self.find(&held.what)?;
            held.first = held.first.or(first(&found));
            let new = able(&found).filter(|site| held.sites.binary_search(site).is_err());
            let new: Vec<SiteKey> = new.collect();
            if !new.is_empty() {
                let mut sites: Vec<SiteKey> = held.sites.iter().copied().chain(new).collect();
                sort::by(&mut sites, Ord::cmp);
                held.sites = sites.into();
            }
            held.refused.extend(refused(&found));
            sort::by(&mut held.refused, Ord::cmp);
            held.refused.dedup();
        }
        for (held, more) in self.state.holders_mut().zip(holders) {
            *held = more;
        }
        Ok(())
    }

    // ---- the session ----

    pub fn start(&mut self, on: bool) -> Result<()> {
        if let (true, Some(why)) = (on, self.lookup.facts().no_starting) {
            bail!(why);
        }
        self.state.started = on;
        Ok(())
    }

    pub fn watch(&mut self, ids: Vec<u32>, children: bool) -> Result<()> {
        let all = ids == [0];
        ensure!(
            all || !ids.contains(&0),
            "0 means all processes: expected it alone"
        );
        let ids = if all { Vec::new() } else { ids };
        self.state.watch = Watch { ids, children };
        Ok(())
    }

    // ---- markers ----

    pub fn mark(&mut self, mark: Mark) -> Result<()> {
        self.marker_exists(&mark.name)?;
        let marks = &mut self.state.marks;
        if !mark.on && mark.name == "*" {
            marks.clear();
            return Ok(());
        }
        marks.retain(|other| other.name != mark.name);
        marks.push(mark);
        // Nothing was on before them.
        let first_on = marks.iter().position(|mark| mark.on);
        marks.drain(..first_on.unwrap_or(marks.len()));
        Ok(())
    }

    /// An error where no marker has such a name, nor will one come with a library.
    pub fn marker_exists(&mut self, name: &str) -> Result<()> {
        if !self.lookup.markers(name)?.is_empty() || self.may_come(name)? {
            return Ok(());
        }
        let nearest = self.lookup.nearest(Missing::Marker(name));
        ensure!(
            nearest.is_empty(),
            "no marker matches {name}{}",
            or_nearest(&nearest)
        );
        let has_none =
            self.lookup.markers("*")?.is_empty() && self.lookup.markers("*:*")?.is_empty();
        let none = if has_none {
            ": the program has none"
        } else {
            ""
        };
        let hint = match name.contains('@') {
            true => String::new(),
            false => format!("; {name}@LIBRARY waits for a library"),
        };
        bail!("no marker matches {name}{none}{hint}")
    }

    /// Whether the library of `NAME@LIBRARY` is not loaded, or can be several.
    pub fn may_come(&mut self, name: &str) -> Result<bool> {
        let Some((_, module)) = name.rsplit_once('@') else {
            return Ok(false);
        };
        let all_of_it = Location::Names(format!("@{module}"));
        Ok(is_glob(module) || self.lookup.find(&all_of_it)?.is_empty())
    }

    // ---- probes ----

    fn make_probe(&mut self, probe: Probe) -> Result<()> {
        let mut probes = self.state.probes.iter();
        if let Some(known) = probes.find(|active| active.probe.name == probe.name) {
            ensure!(
                known.probe == probe,
                "there is a probe {} already: {}",
                quoted(&probe.name),
                known.probe
            );
            return Ok(());
        }
        self.lookup.place(&probe)?;
        let on = false;
        self.state.probes.push(ActiveProbe { probe, on });
        Ok(())
    }

    pub fn probe_at(&self, name: &str) -> Result<usize> {
        let mut probes = self.state.probes.iter();
        if let Some(at) = probes.position(|active| active.probe.name == name) {
            return Ok(at);
        }
        let names = self.state.probes.iter().map(|active| &*active.probe.name);
        let names: Vec<&str> = names.collect();
        match names[..] {
            [] => bail!("there is no probe {}: none has been made", quoted(name)),
            _ => bail!(
                "there is no probe {}, only {}",
                quoted(name),
                names.join(", ")
            ),
        }
    }
}

/// Whether a word may mean several names.
fn is_glob(word: &str) -> bool {
    word.contains(['*', '?', '[', '{'])
}

fn held(what: FunctionSelection, capture: Capture, found: &[FoundSite]) -> ActiveFunctions {
    let mut sites: Vec<SiteKey> = able(found).collect();
    sort::by(&mut sites, Ord::cmp);
    ActiveFunctions {
        what,
        capture,
        sites: sites.into(),
        first: first(found),
        refused: refused(found).collect(),
        left_out: 0,
    }
}

fn able(found: &[FoundSite]) -> impl Iterator<Item = SiteKey> {
    let able = found.iter().filter(|site| !site.is_refused);
    able.map(|site| site.key)
}

fn refused(found: &[FoundSite]) -> impl Iterator<Item = SiteKey> {
    let refused = found.iter().filter(|site| site.is_refused);
    refused.map(|site| site.key)
}

fn first(found: &[FoundSite]) -> Option<(SiteKey, u64)> {
    found.first().map(|site| (site.key, site.address))
}

// ---- what is meant ----

impl Draft<'_> {
    /// The functions of a selection, each once.
    pub fn find(&mut self, what: &FunctionSelection) -> Result<Vec<FoundSite>> {
        if let [only] = what.parts() {
            return self.lookup.find(&only.location);
        }
        let mut known = HashSet::new();
        for part in what.parts().iter().filter(|part| part.excluded) {
            let excluded = self.lookup.find(&anywhere(&part.location))?;
            known.extend(excluded.into_iter().map(|site| site.key));
        }
        let mut found = Vec::new();
        for part in what.parts().iter().filter(|part| !part.excluded) {
            let sites = self.lookup.find(&part.location)?.into_iter();
            found.extend(sites.filter(|site| known.insert(site.key)));
        }
        Ok(found)
    }

    pub fn find_some(&mut self, what: &FunctionSelection) -> Result<Vec<FoundSite>> {
        let found = self.find(what)?;
        if found.is_empty() {
            self.nothing_found(what)?;
        }
        Ok(found)
    }

    /// The functions of a selection; none only where one of its locations may come to be.
    pub fn found_or_waiting(&mut self, what: &FunctionSelection) -> Result<Vec<FoundSite>> {
        let found = self.find(what)?;
        if found.is_empty() && !self.waits(what)? {
            self.nothing_found(what)?;
        }
        Ok(found)
    }

    /// Whether one of the locations is in a module that is not loaded, and may be later.
    fn waits(&mut self, what: &FunctionSelection) -> Result<bool> {
        for part in what.parts().iter().filter(|part| !part.excluded) {
            let module = match &part.location {
                Location::Names(names) => names.rsplit_once('@').map(|(_, module)| module),
                Location::InModule { module, .. } | Location::RangeInModule { module, .. } => {
                    Some(&**module)
                }
                _ => None,
            };
            let Some(module) = module else { continue };
            // Any library: one may come.
            if self.begins && module == "*" {
                return Ok(true);
            }
            let all_of_it = Location::Names(format!("@{module}"));
            if self.lookup.find(&all_of_it)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn nothing_found(&mut self, what: &FunctionSelection) -> Result<()> {
        for Part { location, .. } in what.parts() {
            if let Location::Range { start, end } | Location::RangeInModule { start, end, .. } =
                location
            {
                ensure!(
                    start < end,
                    "the range is empty: its end is not behind its start"
                );
            }
        }
        let only = what.without_exclusions();
        ensure!(
            only == *what || self.find(&only)?.is_empty(),
            "every function that matches {only} is left out by {}",
            what.exclusions()
        );
        let wanted = what.parts().iter().find(|part| !part.excluded);
        let nearest = wanted.map_or_else(Vec::new, |part| {
            self.lookup.nearest(Missing::Functions(&part.location))
        });
        let only: Vec<String> = only.parts().iter().map(as_typed).collect();
        bail!(
            "no function matches {}{}",
            only.join(" "),
            or_nearest(&nearest)
        )
    }

    /// The functions that cannot be traced and why, in a line; empty if all can.
    pub fn refusals(&mut self, found: &[FoundSite], refused: &[Refused]) -> String {
        refusals(self.lookup, found, refused)
    }

    /// The selection with addresses in files, which other processes of the same program share.
    pub fn portable(&mut self, what: FunctionSelection) -> FunctionSelection {
        let mut locate = |address| self.lookup.locate(address);
        what.map_locations(|location| match location {
            Location::Address(address) => match locate(address) {
                Some(at) => Location::InModule {
                    module: at.module,
                    address: at.address,
                },
                None => location,
            },
            Location::Range { start, end } if start < end => {
                match (locate(start), locate(end - 1)) {
                    (Some(first), Some(last)) if first.module == last.module => {
                        Location::RangeInModule {
                            module: first.module,
                            start: first.address,
                            end: last.address + 1,
                        }
                    }
                    _ => location,
                }
            }
            other => other,
        })
    }
}

/// As it is likely to have been written: without the zeros that make a short number an address.
fn as_typed(part: &Part) -> String {
    match part.location {
        Location::Address(address) => format!("{address:#x}"),
        Location::Range { start, end } => format!("{start:#x} {end:#x}"),
        _ => part.to_string(),
    }
}

/// An excluded name is excluded from all modules, libraries too.
fn anywhere(location: &Location) -> Location {
    match location {
        Location::Names(names) if !names.contains('@') => Location::Names(format!("{names}@*")),
        other => other.clone(),
    }
}

/// The functions of `found` that cannot be traced, ever or now, and why, in a line; empty if all can.
pub fn refusals(lookup: &mut dyn Lookup, found: &[FoundSite], refused: &[Refused]) -> String {
    let now = |site: &FoundSite| refused.iter().find(|refused| refused.key == site.key);
    let not = found
        .iter()
        .filter(|site| site.is_refused || now(site).is_some());
    let not: Vec<&FoundSite> = not.collect();
    if not.is_empty() {
        return String::new();
    }
    let named = &not[..not.len().min(MOST_NAMED)];
    let keys: Vec<SiteKey> = named.iter().map(|site| site.key).collect();
    let reasons = lookup.describe(&keys).into_iter().zip(named);
    let reasons = reasons.map(|(function, site)| {
        let now = now(site).map(|refused| refused.reason.clone());
        let reason = function.refused.clone().or(now).unwrap_or_default();
        format!("{} ({reason})", function.printable())
    });
    let reasons: Vec<String> = reasons.collect();
    let more = match not.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "{} of {} functions cannot be traced: {}{more}",
        not.len(),
        found.len(),
        reasons.join(", ")
    )
}
