//! Probes of a session: found in the files that its processes have loaded, made known to the trace, and put into
//! processes.

use crate::collecting::fair_mutex::FairMutex;
use crate::collecting::notes::note;
use crate::patch::change::Change;
use crate::patch::switch::on_or_off;
use crate::patch::traps::RISK;
use crate::sites::choose::Loaded;
use crate::sites::chosen::Chosen;
use crate::sites::files::{File, Files};
use crate::sites::hooks;
use crate::sites::spots::{Found, find, may_come, named};
use crate::sites::statics::StaticProbe;
use crate::sites::values::{Surroundings, Value, fields_with_missing, shape, value};
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nopal_agent::Values;
use nopal_analysis::sort;
use nopal_control::{Fetched, Probe, Spot, Way};
use nopal_plan::{Site, Unprobed};
use nopal_trace::{Field, Note, Writer, event_number};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Candidates that an error names.
const MOST_NAMED: usize = 8;

/// The probes of a session.
#[derive(Default)]
pub struct Probes(Vec<Wanted>);

struct Wanted {
    what: ProbeOrigin,
    on: Arc<AtomicBool>,
    /// Its sites, one for each file that has it.
    placed: Vec<Arc<Placed>>,
    /// Whether the user was told the risk of its breakpoints.
    told: bool,
}

enum ProbeOrigin {
    /// A command's.
    Probe(Probe),
    /// A static probe, placed by the file's author.
    Static(StaticProbe),
}

impl ProbeOrigin {
    fn name(&self) -> &str {
        match self {
            ProbeOrigin::Probe(probe) => &probe.name,
            ProbeOrigin::Static(probe) => &probe.key,
        }
    }
}

/// A probe in a file.
pub struct Placed {
    pub file: u32,
    pub site: Arc<Site>,
    /// The number of the function where its return is probed: its calls are recorded.
    pub call: Option<u32>,
    /// Whether a breakpoint leads to it.
    pub breaks: bool,
    /// The reason why no jump fits, where one was wanted first.
    no_jump: Option<String>,
    event: u32,
    shape: u64,
    values: Vec<Value>,
    on: Arc<AtomicBool>,
    /// For people.
    place: String,
    /// The address of the file's semaphore.
    pub semaphore: Option<u64>,
}

/// The name of a probe, and its values.
pub struct Described {
    pub name: String,
    /// For people.
    pub format: String,
    pub line: u32,
    pub values: Vec<Value>,
    pub fields: Vec<Field>,
    pub call: Option<u32>,
    pub semaphore: Option<u64>,
    pub breaks: bool,
    pub no_jump: Option<String>,
}

impl Probes {
    /// Wants a probe in all modules that are loaded from now on.
    pub fn want(&mut self, probe: Probe, on: bool) {
        self.0.push(Wanted {
            what: ProbeOrigin::Probe(probe),
            on: Arc::new(AtomicBool::new(on)),
            placed: Vec::new(),
            told: false,
        });
    }

    /// The same of a static probe, on; unless it is wanted already.
    pub fn want_static(&mut self, probe: StaticProbe) {
        if self.0.iter().all(|wanted| wanted.what.name() != probe.key) {
            self.0.push(Wanted {
                what: ProbeOrigin::Static(probe),
                on: Arc::new(AtomicBool::new(true)),
                placed: Vec::new(),
                told: false,
            });
        }
    }

    /// The keys of those that are wanted.
    pub fn statics(&self) -> Vec<String> {
        let statics = self.0.iter().filter_map(|wanted| match &wanted.what {
            ProbeOrigin::Static(probe) => Some(probe.key.clone()),
            ProbeOrigin::Probe(_) => None,
        });
        statics.collect()
    }

    pub fn forget(&mut self, name: &str) {
        self.0.retain(|wanted| wanted.what.name() != name);
    }

    /// The places of a probe, which are to be switched; later places begin so.
    pub fn switch(&self, name: &str, on: bool) -> Vec<Arc<Placed>> {
        let wanted = self.0.iter().find(|wanted| wanted.what.name() == name);
        wanted.map_or_else(Vec::new, |wanted| {
            wanted.on.store(on, Ordering::Relaxed);
            wanted.placed.clone()
        })
    }

    /// For people: the state of a probe, or that it waits, where that differs from the wanted state. `None`: there is
    /// no such probe, or nothing to tell.
    pub fn note(&self, name: &str) -> Option<String> {
        let wanted = self.0.iter().find(|wanted| wanted.what.name() == name)?;
        match &wanted.placed[..] {
            [] => Some(format!("probe {name} waits for its library")),
            placed => placed.iter().find_map(|placed| placed.note(name)),
        }
    }

    /// For people: the probes for which breakpoints were taken, since no jump fits.
    pub fn by_breakpoints(&self) -> Vec<String> {
        let placed = self.0.iter().flat_map(|wanted| {
            let name = wanted.what.name();
            wanted.placed.iter().flat_map(|placed| placed.note(name))
        });
        placed.collect()
    }

    /// For people: the risk, if breakpoints were taken, or surely will be, since it was told last.
    pub fn untold_risk(&mut self) -> Option<&'static str> {
        let mut is_untold = false;
        for wanted in &mut self.0 {
            if wanted.breaks() {
                is_untold |= !std::mem::replace(&mut wanted.told, true);
            }
        }
        is_untold.then_some(RISK)
    }

    /// The probes in a file, by address.
    pub fn of(&self, file: &File) -> Vec<Arc<Placed>> {
        let placed = self.0.iter().flat_map(|wanted| &wanted.placed);
        let mut own: Vec<Arc<Placed>> = placed
            .filter(|placed| placed.file == file.index)
            .cloned()
            .collect();
        sort::by_key(&mut own, |placed| placed.site.address);
        own
    }
}

impl Wanted {
    fn is_in(&self, modules: &[Loaded]) -> bool {
        let has = |module: &Loaded| {
            let mut placed = self.placed.iter();
            placed.any(|placed| placed.file == module.file.index)
        };
        modules.iter().any(has)
    }

    /// Whether it is by breakpoints.
    fn breaks(&self) -> bool {
        match &self.what {
            ProbeOrigin::Probe(probe) if probe.way == Way::Breakpoint => true,
            _ => self.placed.iter().any(|placed| placed.breaks),
        }
    }

    /// The ways by which it may be reached, in order: whether by a breakpoint. Where a jump is wanted and none fits, its
    /// error tells whether a breakpoint would.
    fn ways(&self) -> &'static [bool] {
        match &self.what {
            ProbeOrigin::Probe(probe) => match probe.way {
                Way::Return => &[false],
                Way::Breakpoint => &[true],
                Way::Jump | Way::Auto => &[false, true],
            },
            ProbeOrigin::Static(_) => &[false],
        }
    }

    /// The selected instruction, if there is one.
    fn instruction<'a>(&self, modules: &'a [Loaded]) -> Option<Found<'a>> {
        match &self.what {
            ProbeOrigin::Probe(probe) if probe.way == Way::Return => None,
            ProbeOrigin::Probe(probe) => {
                match find(&probe.place, modules).unwrap_or_default()[..] {
                    [place] => Some(place),
                    _ => None,
                }
            }
            ProbeOrigin::Static(probe) => {
                let mut modules = modules.iter();
                let module = modules.find(|module| module.file.index == probe.file)?;
                Some(Found {
                    module,
                    address: probe.probe.address,
                })
            }
        }
    }
}

impl Probes {
    /// Judges all probes that are not in `modules` yet. Each file is read once.
    fn judged(&self, modules: &[Loaded]) -> Result<Judged> {
        let wanted = self.0.iter().filter(|wanted| !wanted.is_in(modules));
        let places: Vec<(Found, bool)> = wanted
            .filter_map(|wanted| Some((wanted.instruction(modules)?, wanted.ways())))
            .flat_map(|(place, ways)| ways.iter().map(move |breaks| (place, *breaks)))
            .collect();
        let mut judged = Judged::new();
        for module in modules {
            let index = module.file.index;
            let own = places
                .iter()
                .filter(|(place, _)| place.module.file.index == index);
            let own: Vec<ProbeAddress> = own
                .map(|(place, breaks)| (index, place.address, *breaks))
                .collect();
            if own.is_empty() || judged.contains_key(&own[0]) {
                continue;
            }
            nopal_plan::probes(&module.file.image, |probes| {
                judged.extend(own.iter().map(|place| {
                    let (_, address, breaks) = *place;
                    let site = match breaks {
                        true => probes.breakpoint(address),
                        false => probes.site(address),
                    };
                    (*place, site)
                }));
                Ok(())
            })?;
        }
        Ok(judged)
    }
}

impl Placed {
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// For people: that a breakpoint was taken.
    fn note(&self, name: &str) -> Option<String> {
        let why = self.no_jump.as_ref()?;
        Some(format!(
            "probe {name} is by a breakpoint: no jump fits at {why}"
        ))
    }

    /// The values that its detour records in a process that has the file at `base`.
    pub fn fetched(&self, base: u64) -> nopal_agent::Probe {
        let registers: Option<Vec<u8>> = self.values.iter().map(Value::plain_register).collect();
        let fetches = || {
            let fetches = self.values.iter().map(|value| {
                let mut fetch = value.fetch;
                if value.is_relative {
                    fetch.offset[0] = fetch.offset[0].wrapping_add(base);
                }
                fetch
            });
            Values::Fetched(fetches.collect())
        };
        nopal_agent::Probe {
            event: self.event,
            shape: self.shape,
            values: registers.map_or_else(fetches, Values::Registers),
        }
    }
}

impl Files {
    /// Finds those probes in `modules` that are in none of them yet, and makes them known to the trace. An error tells
    /// why the first of them cannot be placed; a probe that may come later is no error.
    pub fn place_probes(&mut self, modules: &[Loaded], writer: &FairMutex<Writer>) -> Result<()> {
        let judged = self.probes.judged(modules)?;
        for index in 0..self.probes.0.len() {
            let wanted = &self.probes.0[index];
            if wanted.is_in(modules) {
                continue;
            }
            let placed = match &wanted.what {
                ProbeOrigin::Probe(probe) => {
                    let probe = probe.clone();
                    self.place(&probe, index, modules, &judged, writer)
                        .with_context(|| format!("probe {}", probe.name))?
                }
                ProbeOrigin::Static(probe) => {
                    let probe = probe.clone();
                    self.place_static(&probe, index, modules, &judged, writer)?
                }
            };
            self.probes.0[index].placed.extend(placed);
        }
        Ok(())
    }

    /// Whether the loaded modules have the place of a probe, or later ones may.
    pub fn have_place(&self, probe: &Probe, modules: &[Loaded]) -> Result<()> {
        let place = self.place_of(probe, modules);
        place
            .map(drop)
            .with_context(|| format!("probe {}", probe.name))
    }

    /// `None` if it may come.
    fn place_of<'a>(&self, probe: &Probe, modules: &'a [Loaded]) -> Result<Option<Found<'a>>> {
        let found = find(&probe.place, modules)?;
        match found[..] {
            [place] => Ok(Some(place)),
            [] if may_come(&probe.place, modules) => Ok(None),
            [] => bail!(self.not_found(&probe.place)),
            _ => {
                let mut text = format!("{} is at several places:", probe.place);
                for place in found.iter().take(MOST_NAMED) {
                    write!(text, " {}", place.describe())?;
                }
                let more = found.len().saturating_sub(MOST_NAMED);
                bail!("{text}{}", if more > 0 { ", and more" } else { "" })
            }
        }
    }

    fn place(
        &mut self,
        probe: &Probe,
        index: usize,
        modules: &[Loaded],
        judged: &Judged,
        writer: &FairMutex<Writer>,
    ) -> Result<Option<Arc<Placed>>> {
        let Some(place) = self.place_of(probe, modules)? else {
            return Ok(None);
        };
        let file = &place.module.file;
        let mut no_jump = None;
        let site = match probe.way {
            Way::Return => {
                ensure!(
                    place.begins_function()?,
                    "{} is not the beginning of a function",
                    place.describe()
                );
                let site = file.plan.site(place.address).cloned();
                site.map_err(|reason| anyhow!("{}: {reason}", place.describe()))?
            }
            Way::Jump => instruction(&place, false, judged).map_err(|error| {
                match breakpoint(&place, judged) {
                    Ok(_) => anyhow!("{error}; a breakpoint fits there (--breakpoint=auto, or auto before the place)"),
                    Err(_) => error,
                }
            })?,
            Way::Breakpoint => breakpoint(&place, judged)?,
            Way::Auto => match self.free_jump(&place, judged) {
                Ok(site) => site,
                Err(why) => {
                    let why = why.to_string();
                    let site = breakpoint(&place, judged).map_err(|error| {
                        // A place where there is no instruction has one reason for both.
                        match error.to_string() == why {
                            true => error,
                            false => error.context(format!("no jump fits at {why}")),
                        }
                    })?;
                    no_jump = Some(why);
                    site
                }
            },
        };
        self.ensure_free(&place, &site)?;
        let mut values = Vec::new();
        let mut fields = Vec::new();
        for fetched in &probe.fetched {
            let (value, field) =
                value(fetched, probe, &place).with_context(|| fetched.source.to_string())?;
            values.push(value);
            fields.push(field);
        }
        let call = match probe.way == Way::Return {
            true => {
                let (numbers, new) = self.number(file, &[&site]);
                if new.len() > 0 {
                    new.write_notes(writer)?;
                }
                numbers.first().copied()
            }
            false => None,
        };
        let line = match &probe.place {
            Spot::Line { line, .. } => *line,
            _ => 0,
        };
        let words: Vec<String> = probe.fetched.iter().map(Fetched::to_string).collect();
        let described = Described {
            name: probe.name.clone(),
            format: words.join(" "),
            line,
            values,
            fields,
            call,
            semaphore: None,
            breaks: probe.way == Way::Breakpoint || no_jump.is_some(),
            no_jump,
        };
        self.define(index, &place, site, described, writer)
            .map(Some)
    }

    /// A static probe that cannot be placed is reported, and is no error: its name may mean others too.
    fn place_static(
        &mut self,
        probe: &StaticProbe,
        index: usize,
        modules: &[Loaded],
        judged: &Judged,
        writer: &FairMutex<Writer>,
    ) -> Result<Option<Arc<Placed>>> {
        let mut modules = modules.iter();
        let Some(module) = modules.find(|module| module.file.index == probe.file) else {
            return Ok(None);
        };
        let place = Found {
            module,
            address: probe.probe.address,
        };
        match self.free_jump(&place, judged) {
            Ok(site) => {
                let described = probe.described(&module.file.image);
                self.define(index, &place, site, described, writer)
                    .map(Some)
            }
            Err(error) => {
                self.unplaced
                    .push(format!("{} not traced: {error:#}", probe.name()));
                Ok(None)
            }
        }
    }

    /// The site of a jump at an instruction, whose bytes no other probe needs.
    fn free_jump(&self, place: &Found, judged: &Judged) -> Result<Site> {
        let site = instruction(place, false, judged)?;
        self.ensure_free(place, &site)?;
        Ok(site)
    }

    /// Probes need different bytes.
    fn ensure_free(&self, place: &Found, site: &Site) -> Result<()> {
        let window = site.address..site.address + u64::from(site.window);
        for other in self.probes.of(&place.module.file) {
            let theirs = other.site.address..other.site.address + u64::from(other.site.window);
            ensure!(
                window.end <= theirs.start || theirs.end <= window.start,
                "{}: the probe at {} needs the same bytes",
                place.describe(),
                other.place
            );
        }
        Ok(())
    }

    /// Makes a probe known to the trace.
    fn define(
        &mut self,
        index: usize,
        place: &Found,
        site: Site,
        described: Described,
        writer: &FairMutex<Writer>,
    ) -> Result<Arc<Placed>> {
        let Described {
            name,
            format,
            line,
            values,
            fields,
            call,
            semaphore,
            breaks,
            no_jump,
        } = described;
        let fields = fields_with_missing(fields, &values);
        let event = event_number(self.next_event(), &fields);
        let file = &place.module.file;
        note(
            writer,
            &Note::Marker {
                event,
                image: file.index,
                name,
                format,
                file: place.describe(),
                line,
                fields: fields.clone(),
                tracepoint: false,
            },
        )?;
        Ok(Arc::new(Placed {
            file: file.index,
            site: Arc::new(site),
            call,
            breaks,
            no_jump,
            event,
            shape: shape(&fields),
            values,
            on: self.probes.0[index].on.clone(),
            place: place.describe(),
            semaphore,
        }))
    }

    fn not_found(&self, spot: &Spot) -> String {
        match spot {
            Spot::Address(address) => {
                format!("{address:#x} is in no file that is loaded")
            }
            Spot::Line { file, line } => {
                format!(
                    "the debug information of the loaded files has no code of {file}:{line}, nor of later lines"
                )
            }
            Spot::Named { name, .. } => {
                let near = nopal_symbols::or_nearest(&self.nearest(name));
                format!("no function is named {name}{near}")
            }
        }
    }
}

/// A file, an address in it, and whether a breakpoint is to be there.
type ProbeAddress = (u32, u64, bool);

/// The sites at instructions.
type Judged = HashMap<ProbeAddress, Result<Site, Unprobed>>;

fn instruction(place: &Found, breaks: bool, judged: &Judged) -> Result<Site> {
    let file = &place.module.file;
    let judged = judged.get(&(file.index, place.address, breaks)).cloned();
    judged
        .unwrap_or(Err(Unprobed::NoFunction))
        .map_err(|reason| anyhow!(refused(file, place, reason)))
}

fn breakpoint(place: &Found, judged: &Judged) -> Result<Site> {
    ensure!(
        !hooks::is_libc(&place.module.file.image),
        "{}: the C library blocks all signals at times, and a breakpoint would kill the program",
        place.describe()
    );
    instruction(place, true, judged)
}

fn refused(file: &File, place: &Found, reason: Unprobed) -> String {
    let notes = place.describe();
    match reason {
        Unprobed::WithinInstruction { before, after } => format!(
            "{notes} is inside an instruction: the nearest ones begin at {} and {}",
            named(file, before),
            named(file, after)
        ),
        Unprobed::UnknownTargets { jump } => format!(
            "{notes}: the computed jump at {} may lead into the bytes that a jump needs",
            named(file, jump)
        ),
        reason => format!("{notes}: {reason}"),
    }
}

// ---- in a process ----

impl Chosen<'_> {
    /// Leaves out the functions whose first bytes probes need. Says which.
    pub fn leave_to_probes(&mut self, file: &File) -> Vec<String> {
        let mut left = Vec::new();
        if self.probes.is_empty() {
            return left;
        }
        let probes = self.probes.clone();
        self.sites.retain(|(site, _)| {
            let taken = probes.iter().find(|probe| {
                let theirs = &probe.site;
                site.needs(&(theirs.address..theirs.address + u64::from(theirs.window)))
            });
            if let Some(probe) = taken.filter(|probe| probe.call.is_none()) {
                left.push(format!(
                    "{}: not traced: the probe at {} needs the same bytes; one at {} would not",
                    named(file, site.address),
                    probe.place,
                    named(file, site.address + u64::from(site.window))
                ));
            }
            taken.is_none()
        });
        left
    }
}

impl Tracee {
    /// Puts a probe in, unless it is in already.
    pub fn insert_probe(&mut self, placed: &Arc<Placed>, context: &mut PatchContext) -> Result<()> {
        for module in self.modules.clone() {
            let address = module.base.wrapping_add(placed.site.address);
            if module.file.index != placed.file || self.probe_sites.contains_key(&address) {
                continue;
            }
            ensure!(
                placed.call.is_none() || !self.entry_only,
                "the calls of this process are not wrapped: returns are not recorded"
            );
            let plan = &module.file.plan;
            if placed.call.is_some()
                && let Ok(site) = plan.site(placed.site.address)
                && let Some(why) = plan.entries_only(site, self.walked)
            {
                bail!(
                    "its calls are not wrapped ({}): its returns are not recorded",
                    why.text()
                );
            }
            let window = address..address + u64::from(placed.site.window);
            if let Some(other) = self.changes.iter().find(|change| change.overlaps(&window)) {
                let there = named(&module.file, other.address.wrapping_sub(module.base));
                bail!(match other {
                    other if other.is_probe() =>
                        format!("the probe at {there} needs the same bytes"),
                    other if other.function().is_some() =>
                        format!("{there} is traced: its jump is in these bytes"),
                    _ => format!("nopal itself has a jump at {there}"),
                });
            }
            let chosen = Chosen {
                probes: vec![placed.clone()],
                ..Chosen::default()
            };
            self.have_room(&module, &chosen)?;
            if placed.breaks {
                let why = || {
                    placed
                        .no_jump
                        .as_ref()
                        .map(|why| format!("no jump fits at {why}"))
                };
                self.prepare_traps().map_err(|error| match why() {
                    Some(why) => error.context(why),
                    None => error,
                })?;
            }
            let changes = self.add_sites(&module, &chosen, false, context)?;
            self.probe_sites.insert(address, placed.site.clone());
            let waiting = self.insert(changes, context)?;
            let there = |change: &Change| change.is_probe() && change.address == address;
            if !waiting.is_empty() || !self.changes.iter().any(there) {
                self.probe_sites.remove(&address);
                bail!(
                    "{}: its code in memory differs from the file, or a thread will return into it",
                    placed.place
                );
            }
        }
        Ok(())
    }

    pub fn switch_probe(&self, placed: &Placed, on: bool) -> Result<()> {
        self.switch_changes(self.probe_changes(placed), on_or_off(on))
    }

    pub fn remove_probe(&mut self, placed: &Placed, context: &mut PatchContext) -> Result<()> {
        let out: Vec<Change> = self.probe_changes(placed).copied().collect();
        if !out.is_empty() {
            self.take_out(&out, context)?;
        }
        for change in &out {
            self.probe_sites.remove(&change.address);
        }
        self.settle_traps()
    }

    fn probe_changes(&self, placed: &Placed) -> impl Iterator<Item = &Change> {
        let modules = self.modules.iter();
        let modules = modules.filter(|module| module.file.index == placed.file);
        let addresses: Vec<u64> = modules
            .map(|module| module.base.wrapping_add(placed.site.address))
            .collect();
        let probes = self.changes.iter().filter(|change| change.is_probe());
        probes.filter(move |change| addresses.contains(&change.address))
    }
}
