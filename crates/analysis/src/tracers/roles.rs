//! The functions and markers that matter to some tracers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, bail, ensure};
use nopal_trace::{Marker, Markers, Note, SiteState};

use super::locks::{Locking, locking};
use super::section::{CallEnd, InMarker, Point, Section, ValueOf};
use super::signals::Change;
use super::{Tracer, Turn};
use crate::names::{Function, Names, Pattern};

/// The role of a function for the tracers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub locking: Option<Locking>,
    pub points: Vec<InCall>,
}

/// An end of a section that is in calls of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCall {
    pub section: usize,
    pub is_end: bool,
    pub place: CallEnd,
    pub value: Option<ValueOf>,
}

/// An end of a section that is a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMarker {
    pub section: usize,
    pub is_end: bool,
    pub value: InMarker,
}

/// A possible end of a section.
struct Candidate {
    section: usize,
    is_end: bool,
    places: Vec<(Pattern, CallEnd, Option<ValueOf>)>,
}

pub struct Roles {
    tracers: Vec<Tracer>,
    candidates: Vec<Candidate>,
    /// By site number, of sites that have one: it is looked up for every record.
    sites: Vec<Option<Box<Role>>>,
    /// By event number.
    events: HashMap<u32, Vec<AtMarker>>,
    markers: BTreeMap<u32, Marker>,
    /// The names of functions, for an error; only where a section may be in calls.
    functions: BTreeSet<String>,
    /// The events that report changes of signal masks, if any.
    signals: Vec<u32>,
    /// By tracer: whether the begin and the end have a value; `None` while no function or marker is known to be one.
    values: Vec<[Option<bool>; 2]>,
}

impl Roles {
    /// Sections are numbered as their tracers are.
    pub fn new(tracers: &[Tracer]) -> Roles {
        let mut candidates = Vec::new();
        for (section, tracer) in tracers.iter().enumerate() {
            if let Tracer::Section(Section { from, to, .. }) = tracer {
                // An event that ends one case and begins the next does so in this order.
                candidates.extend(
                    [(true, to), (false, from)].map(|(is_end, point)| Candidate {
                        section,
                        is_end,
                        places: point.in_calls(),
                    }),
                );
            }
        }
        Roles {
            tracers: tracers.to_vec(),
            candidates,
            sites: Vec::new(),
            events: HashMap::new(),
            markers: BTreeMap::new(),
            functions: BTreeSet::new(),
            signals: Vec::new(),
            values: vec![[None; 2]; tracers.len()],
        }
    }

    /// The roles in a trace.
    pub fn of_trace(tracers: &[Tracer], names: &Names, markers: &Markers) -> Roles {
        let mut roles = Roles::new(tracers);
        for site in 0..names.sites() as u32 {
            roles.learn_function(site, names.function(site));
        }
        for (event, marker) in markers.iter() {
            roles.learn_marker(event, marker);
        }
        roles
    }

    pub fn tracers(&self) -> &[Tracer] {
        &self.tracers
    }

    pub fn learn_function(&mut self, site: u32, function: &Function) {
        if !self.candidates.is_empty() {
            self.functions.insert(function.name.clone());
        }
        let is_section = |tracer: &Tracer| matches!(tracer, Tracer::Section(_));
        let mut role = Role::default();
        if !self.tracers.iter().all(is_section) {
            role.locking = locking(&function.raw, &function.name);
        }
        for candidate in &self.candidates {
            let mut places = candidate.places.iter();
            let Some((_, place, value)) = places.find(|(pattern, ..)| pattern.means(function))
            else {
                continue;
            };
            let Candidate {
                section, is_end, ..
            } = *candidate;
            self.values[section][usize::from(is_end)] = Some(value.is_some());
            role.points.push(InCall {
                section,
                is_end,
                place: *place,
                value: *value,
            });
        }
        if role != Role::default() {
            let site = site as usize;
            if self.sites.len() <= site {
                self.sites.resize(site + 1, None);
            }
            self.sites[site] = Some(Box::new(role));
        }
    }

    pub fn learn_marker(&mut self, event: u32, marker: &Marker) {
        self.markers.insert(event, marker.clone());
        if Change::is_marked_by(marker) {
            self.signals.push(event);
        }
        let mut points = Vec::new();
        for (section, tracer) in self.tracers.iter().enumerate() {
            let Tracer::Section(Section { from, to, .. }) = tracer else {
                continue;
            };
            for (is_end, point) in [(true, to), (false, from)] {
                let Some(value) = point.in_marker(marker) else {
                    continue;
                };
                if value != InMarker::Lacking {
                    let has_value = value != InMarker::Place;
                    self.values[section][usize::from(is_end)] = Some(has_value);
                }
                points.push(AtMarker {
                    section,
                    is_end,
                    value,
                });
            }
        }
        if !points.is_empty() {
            self.events.insert(event, points);
        }
    }

    #[inline(always)]
    pub fn site(&self, site: u32) -> Option<&Role> {
        self.sites.get(site as usize)?.as_deref()
    }

    /// What a note says of the ends of sections.
    pub fn turns(&self, note: &Note) -> Vec<Turn> {
        match note {
            Note::State {
                counter,
                state,
                sites,
                ..
            } => {
                let points = sites.iter().flat_map(|site| {
                    let points = self.site(*site).map_or(&[][..], |role| &role.points);
                    points.iter().map(|point| (*site, point.section))
                });
                let turns = points.map(|(site, section)| Turn {
                    clock: *counter,
                    section,
                    site: Some(site),
                    is_timed: *state == SiteState::Timed,
                });
                turns.collect()
            }
            Note::Started { counter } => {
                let turn = |section| Turn {
                    clock: *counter,
                    section,
                    site: None,
                    is_timed: true,
                };
                let tracers = self.tracers.iter().enumerate();
                let sections = tracers.filter(|(_, one)| matches!(one, Tracer::Section(_)));
                sections.map(|(section, _)| turn(section)).collect()
            }
            _ => Vec::new(),
        }
    }

    pub fn event(&self, event: u32) -> &[AtMarker] {
        self.events.get(&event).map_or(&[], Vec::as_slice)
    }

    pub fn marker(&self, event: u32) -> Option<&Marker> {
        self.markers.get(&event)
    }

    pub fn knows_locks(&self) -> bool {
        let mut roles = self.sites.iter().flatten();
        roles.any(|role| role.locking.is_some())
    }

    pub fn knows_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// The change of a signal mask that a record tells.
    pub fn change(&self, event: u32, payload: &[u64]) -> Option<Change> {
        if !self.signals.contains(&event) {
            return None;
        }
        Change::read(self.marker(event)?, payload)
    }

    /// Whether the cases of a tracer are paired by a value, which both ends have, or neither.
    pub fn by_value(&self, tracer: usize) -> bool {
        let [from, to] = self.values[tracer];
        from.or(to) == Some(true)
    }

    /// An error if a tracer lacks the records to find any case.
    pub fn check(&self) -> Result<()> {
        for (at, tracer) in self.tracers.iter().enumerate() {
            let Tracer::Section(section) = tracer else {
                let name = tracer.name();
                ensure!(
                    self.knows_locks()
                        || tracer.is_of_kernel_events()
                        || *tracer == Tracer::SignalsOff,
                    "{name}: no function that acquires a lock was recorded: `nopal run -p` records those of the program"
                );
                ensure!(
                    self.knows_signals()
                        || ![Tracer::SignalsOff, Tracer::Critical].contains(tracer),
                    "{name}: no change of a signal mask was recorded: `nopal run -i` records those of programs that load \
                     libc.so.6"
                );
                continue;
            };
            let functions = || self.functions.iter().map(String::as_str);
            let why = |point: &Point| point.why_nothing(functions(), self.markers.values());
            match self.values[at] {
                [None, _] => bail!("{}", why(&section.from)),
                [_, None] => bail!("{}", why(&section.to)),
                [from, to] => ensure!(from == to, "{}", section.why_unpaired()),
            }
        }
        Ok(())
    }
}
