//! The setup of the engine, and the changes that bring it from one setup to another.

use std::collections::HashSet;
use std::sync::Arc;

use nopal_abi::Capture;
use nopal_analysis::tracers::{Live, Tracer};
use nopal_analysis::triggers::Trigger;

use crate::budget::{Share, Spared};
use crate::engine::{Change, Mark, Mode, Watch};
use crate::probe::Probe;
use crate::site_key::SiteKey;

/// Everything that the engine is to have set up.
#[derive(Clone, Default)]
pub struct Setup {
    /// Nothing is recorded, by the user's wish.
    pub is_stopped: bool,
    /// The sites, by key.
    sites: Vec<SiteSetup>,
    probes: Vec<(Probe, bool)>,
    pub marks: Vec<Mark>,
    /// Some processes may have other markers on.
    doubts_marks: bool,
    pub watch: Watch,
    pub budget: Option<Share>,
    /// Functions that somebody has named, which a budget does not spare.
    pub named: HashSet<SiteKey>,
    pub kernel_events: Vec<Tracer>,
    pub tracers: Vec<(String, Live)>,
    pub triggers: Vec<TriggerSetup>,
}

#[derive(Clone, PartialEq)]
pub struct TriggerSetup {
    pub name: String,
    pub place: String,
    pub trigger: Trigger<Arc<[SiteKey]>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SiteSetup {
    jump: Jump,
    /// `None`: not known.
    mode: Option<Mode>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Jump {
    #[default]
    Out,
    In(Capture),
    /// In some processes, or in none.
    Unknown,
}

impl Setup {
    /// Has sites, which are in order, inserted that record as much as `capture`, in this mode or one that records more.
    pub fn hold(&mut self, sites: &[SiteKey], capture: Capture, mode: Mode) {
        // They are in order.
        let end = sites.last().map(|site| site.0 as usize + 1);
        self.make_room(end.unwrap_or(0));
        for site in sites {
            let site = &mut self.sites[site.0 as usize];
            site.jump = match site.jump {
                Jump::In(other) => Jump::In(other.and(capture)),
                _ => Jump::In(capture),
            };
            site.mode = Some(site.mode.map_or(mode, |other| other.and(mode)));
        }
    }

    /// Has these sites counted or off, if they are to be recorded and nobody has named them.
    pub fn spare(&mut self, spared: &Spared) {
        let counted = spared.counted.iter().map(|site| (site, Mode::Counted));
        let off = spared.off.iter().map(|site| (site, Mode::Spared));
        for (key, mode) in counted.chain(off) {
            // A function that the user has counted stays counted.
            if !self.records(*key) || !self.may_spare(*key) {
                continue;
            }
            let site = &mut self.sites[key.0 as usize];
            site.mode = Some(mode);
            if mode == Mode::Spared {
                site.jump = Jump::Out;
            }
        }
    }

    /// Whether a budget may spare a site, or does.
    pub fn may_spare(&self, site: SiteKey) -> bool {
        let mode = self.site(site).mode;
        matches!(mode, Some(Mode::On | Mode::Counted | Mode::Spared)) && !self.is_named(site)
    }

    /// Whether somebody has asked for a site by name: a budget does not spare it.
    pub fn is_named(&self, site: SiteKey) -> bool {
        self.named.contains(&site)
    }

    fn make_room(&mut self, sites: usize) {
        if self.sites.len() < sites {
            self.sites.resize(sites, SiteSetup::default());
        }
    }

    /// A probe is on if any of its owners says so.
    pub fn add_probe(&mut self, probe: &Probe, on: bool) {
        match self.probes.iter_mut().find(|(one, _)| one == probe) {
            Some((_, is_on)) => *is_on |= on,
            None => self.probes.push((probe.clone(), on)),
        }
    }

    /// The data that is recorded of a site, and the site's mode; `None` if it is not inserted.
    pub fn of(&self, site: SiteKey) -> Option<(Capture, Mode)> {
        let site = self.site(site);
        match site.jump {
            Jump::In(capture) => Some((capture, site.mode.unwrap_or_default())),
            _ => None,
        }
    }

    /// Whether the calls of a site are recorded.
    pub fn records(&self, site: SiteKey) -> bool {
        self.site(site).mode == Some(Mode::On)
    }

    fn site(&self, site: SiteKey) -> SiteSetup {
        self.sites.get(site.0 as usize).copied().unwrap_or_default()
    }

    /// This setup, after `old`: a thunk that records more than is wanted stays while its site is held.
    pub fn after(mut self, old: &Setup) -> Setup {
        for (site, old) in self.sites.iter_mut().zip(&old.sites) {
            if let (Jump::In(capture), Jump::In(had)) = (site.jump, old.jump) {
                site.jump = Jump::In(capture.and(had));
            }
        }
        self
    }

    /// Code is about to come that has, from its begin, all that is new in `wanted`.
    pub fn expect(&mut self, wanted: &Setup) {
        self.make_room(wanted.sites.len());
        for (site, wanted) in self.sites.iter_mut().zip(&wanted.sites) {
            if site.jump == Jump::Out {
                *site = *wanted;
            }
        }
    }

    /// Code has come in which nothing may be set up.
    pub fn doubt_code(&mut self) {
        for site in &mut self.sites {
            if site.jump != Jump::Out {
                (site.jump, site.mode) = (Jump::Unknown, None);
            }
        }
    }

    /// The code of the sites has come. `is_switched`: each of them is in its mode.
    pub fn arrived(&mut self, is_switched: bool) {
        if !is_switched {
            self.sites.iter_mut().for_each(|site| {
                if site.jump != Jump::Out {
                    site.mode = None;
                }
            });
        }
        // The numbers of its sites are known now.
        self.triggers.clear();
    }

    /// These sites could not be inserted; `wanted` is the setup without them.
    pub fn correct(&mut self, refused: &[SiteKey], wanted: &Setup) {
        for site in refused {
            if let Some(is) = self.sites.get_mut(site.0 as usize) {
                *is = wanted.site(*site);
            }
        }
    }

    /// A change was made.
    pub fn note(&mut self, change: &Change) {
        match change {
            Change::Insert { sites, capture } => {
                let jump = Jump::In(*capture);
                let mode = Some(Mode::Off);
                self.each(sites, |site| *site = SiteSetup { jump, mode });
            }
            Change::Switch { sites, mode } => self.each(sites, |site| {
                let is_kept = site.jump != Jump::Out || *mode == Mode::Spared;
                site.mode = is_kept.then_some(*mode);
            }),
            Change::Remove { sites } => self.each(sites, |site| {
                let mode = site.mode.filter(|mode| *mode == Mode::Spared);
                let jump = Jump::Out;
                *site = SiteSetup { jump, mode };
            }),
            Change::Mark(marks) => {
                self.marks.clone_from(marks);
                self.doubts_marks = false;
            }
            Change::InsertProbe(probe) => self.probes.push((probe.clone(), false)),
            Change::SwitchProbe { name, on } => {
                let mut probes = self.probes.iter_mut();
                if let Some(probe) = probes.find(|(probe, _)| probe.name == *name) {
                    probe.1 = *on;
                }
            }
            Change::RemoveProbe { name } => self.probes.retain(|(probe, _)| probe.name != *name),
            Change::Budget(budget) => self.budget = *budget,
            Change::Watch(watch) => self.watch.clone_from(watch),
            Change::RecordKernelEvents(tracers) => self.kernel_events.clone_from(tracers),
            Change::Subscribe { name, live } => self.tracers.push((name.clone(), live.clone())),
            Change::Unsubscribe { name } => self.tracers.retain(|(known, _)| known != name),
            Change::SetTrigger {
                name,
                place,
                trigger,
            } => {
                self.triggers.retain(|known| known.name != *name);
                self.triggers.push(TriggerSetup {
                    name: name.clone(),
                    place: place.clone(),
                    trigger: trigger.clone(),
                });
            }
            Change::RemoveTrigger { name } => self.triggers.retain(|known| known.name != *name),
            Change::Stop => self.is_stopped = true,
            Change::Start => self.is_stopped = false,
        }
    }

    /// A change has failed: some of its sites may have changed, in some processes.
    pub fn doubt(&mut self, change: &Change) {
        match change {
            Change::Insert { sites, .. } | Change::Remove { sites } => {
                self.each(sites, |site| {
                    (site.jump, site.mode) = (Jump::Unknown, None);
                });
            }
            Change::Switch { sites, .. } => self.each(sites, |site| site.mode = None),
            Change::Mark(_) => self.doubts_marks = true,
            // The trigger is to be set again.
            Change::SetTrigger { name, .. } => self.triggers.retain(|known| known.name != *name),
            _ => {}
        }
    }

    fn each(&mut self, sites: &[SiteKey], change: impl Fn(&mut SiteSetup)) {
        let end = sites.iter().map(|site| site.0 as usize + 1).max();
        self.make_room(end.unwrap_or(0));
        for site in sites {
            change(&mut self.sites[site.0 as usize]);
        }
    }
}

/// The changes that bring the engine from `old` to `new`, in this order: new parts are inserted, remaining ones
/// switched, and unwanted ones removed. So a site of both is never without its jump. A stop is noted before anything is
/// switched off, and a start when all is on.
pub fn reconcile(old: &Setup, new: &Setup) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut gone = Vec::new();
    if new.is_stopped && !old.is_stopped {
        changes.push(Change::Stop);
    }
    for (name, live) in &new.tracers {
        if !old.tracers.iter().any(|(known, _)| known == name) {
            let (name, live) = (name.clone(), live.clone());
            changes.push(Change::Subscribe { name, live });
        }
    }
    if old.kernel_events != new.kernel_events {
        changes.push(Change::RecordKernelEvents(new.kernel_events.clone()));
    }
    // Functions that were spared for the budget's sake are on again before it ends.
    if old.budget != new.budget {
        let list = match new.budget {
            Some(_) => &mut changes,
            None => &mut gone,
        };
        list.push(Change::Budget(new.budget));
    }
    if old.watch != new.watch {
        changes.push(Change::Watch(new.watch.clone()));
    }
    reconcile_sites(old, new, &mut changes, &mut gone);
    reconcile_probes(old, new, &mut changes, &mut gone);
    if old.marks != new.marks || old.doubts_marks {
        changes.push(Change::Mark(new.marks.clone()));
    }
    for wanted in new
        .triggers
        .iter()
        .filter(|one| !old.triggers.contains(one))
    {
        changes.push(Change::SetTrigger {
            name: wanted.name.clone(),
            place: wanted.place.clone(),
            trigger: wanted.trigger.clone(),
        });
    }
    changes.append(&mut gone);
    for TriggerSetup { name, .. } in &old.triggers {
        if !new.triggers.iter().any(|wanted| wanted.name == *name) {
            changes.push(Change::RemoveTrigger { name: name.clone() });
        }
    }
    for (name, _) in &old.tracers {
        if !new.tracers.iter().any(|(wanted, _)| wanted == name) {
            changes.push(Change::Unsubscribe { name: name.clone() });
        }
    }
    if old.is_stopped && !new.is_stopped {
        changes.push(Change::Start);
    }
    changes
}

fn reconcile_sites(old: &Setup, new: &Setup, changes: &mut Vec<Change>, gone: &mut Vec<Change>) {
    let mut inserted: Vec<(Capture, Vec<SiteKey>)> = Vec::new();
    let mut removed = Vec::new();
    // In this order. Sites that are to be removed are off before.
    let modes = [
        Mode::Silent,
        Mode::On,
        Mode::Counted,
        Mode::Spared,
        Mode::Off,
    ];
    let mut switched = modes.map(|mode| (mode, Vec::new()));
    let mut switch = |mode: Option<Mode>, key| {
        let mut lists = switched.iter_mut();
        if let Some((_, list)) = lists.find(|(known, _)| Some(*known) == mode) {
            list.push(key);
        }
    };
    let end = old.sites.len().max(new.sites.len()) as u32;
    for key in (0..end).map(SiteKey) {
        let (was, wanted) = (old.site(key), new.site(key));
        if was == wanted {
            continue;
        }
        let Jump::In(capture) = wanted.jump else {
            if was.jump != Jump::Out {
                removed.push(key);
            }
            // Silent sites stay silent until the last call has returned.
            let is_off = matches!(was.mode, Some(Mode::Off | Mode::Silent));
            match wanted.mode {
                Some(mode) if was.mode != Some(mode) => switch(Some(mode), key),
                None if !is_off => switch(Some(Mode::Off), key),
                _ => {}
            }
            continue;
        };
        let stays = matches!(was.jump, Jump::In(had) if had.has(capture));
        if !stays {
            match inserted.iter_mut().find(|(known, _)| *known == capture) {
                Some((_, sites)) => sites.push(key),
                None => inserted.push((capture, vec![key])),
            }
        }
        let mode = match was.jump {
            Jump::In(_) if stays => was.mode,
            Jump::Unknown => None,
            // Its thunk is new.
            _ => Some(Mode::Off),
        };
        if mode != wanted.mode {
            switch(wanted.mode, key);
        }
    }
    let inserted = inserted.into_iter();
    changes.extend(inserted.map(|(capture, sites)| Change::Insert { sites, capture }));
    let switched = switched.into_iter().filter(|(_, sites)| !sites.is_empty());
    changes.extend(switched.map(|(mode, sites)| Change::Switch { sites, mode }));
    if !removed.is_empty() {
        gone.push(Change::Remove { sites: removed });
    }
}

fn reconcile_probes(old: &Setup, new: &Setup, changes: &mut Vec<Change>, gone: &mut Vec<Change>) {
    for (probe, on) in &new.probes {
        let known = old.probes.iter().find(|(one, _)| one == probe);
        if known.is_none() {
            changes.push(Change::InsertProbe(probe.clone()));
        }
        if known.is_some_and(|(_, on)| *on) != *on {
            let (name, on) = (probe.name.clone(), *on);
            changes.push(Change::SwitchProbe { name, on });
        }
    }
    for (probe, _) in &old.probes {
        if !new.probes.iter().any(|(one, _)| one == probe) {
            let name = probe.name.clone();
            gone.push(Change::RemoveProbe { name });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::synthetic::Random;

    const SITES: u64 = 20;
    const MODES: [Mode; 4] = [Mode::Off, Mode::Counted, Mode::Silent, Mode::On];

    /// A setup that a state could have, after `old`.
    fn random_setup(random: &mut Random, old: &Setup) -> Setup {
        let mut setup = Setup::default();
        for _ in 0..random.below(4) {
            let capture = Capture {
                arguments: random.below(2) == 0,
                ends: random.below(2) == 0,
                call_sites: random.below(2) == 0,
            };
            let first = random.below(SITES) as u32;
            let sites: Vec<SiteKey> = (first..SITES as u32).map(SiteKey).collect();
            setup.hold(&sites, capture, MODES[random.below(4) as usize]);
        }
        let mut spared = Spared::default();
        let some = |random: &mut Random| -> Arc<[SiteKey]> {
            let first = random.below(SITES) as u32;
            (first..first + 5).map(SiteKey).collect()
        };
        (spared.counted, spared.off) = (some(random), some(random));
        setup.named = some(random).iter().copied().collect();
        setup.spare(&spared);
        for name in ["a", "b", "c"] {
            if random.below(2) == 0 {
                let probe = crate::command::probe(name).unwrap();
                setup.add_probe(&probe, random.below(2) == 0);
            }
        }
        setup.watch.ids = (0..random.below(3) as u32).collect();
        setup.marks = (0..random.below(3))
            .map(|number| Mark {
                name: number.to_string(),
                on: random.below(2) == 0,
            })
            .collect();
        setup.after(old)
    }

    /// The setup to which the changes lead from `old`; one fails, if `fails` says which, and may have been made or not.
    fn applied(old: &Setup, new: &Setup, random: &mut Random, fails: bool) -> Setup {
        let mut is = old.clone();
        let changes = reconcile(old, new);
        let end = match fails {
            true => random.below(changes.len() as u64 + 1) as usize,
            false => changes.len(),
        };
        changes[..end].iter().for_each(|change| is.note(change));
        if let Some(failed) = changes.get(end) {
            is.doubt(failed);
        }
        is
    }

    fn assert_same(is: &Setup, wanted: &Setup) {
        let end = is.sites.len().max(wanted.sites.len()) as u32;
        for key in (0..end).map(SiteKey) {
            assert_eq!(is.site(key), wanted.site(key), "{key:?}");
        }
        for (probe, on) in &wanted.probes {
            assert!(is.probes.contains(&(probe.clone(), *on)), "{probe}");
        }
        assert_eq!(is.probes.len(), wanted.probes.len());
        assert_eq!((&is.marks, &is.watch), (&wanted.marks, &wanted.watch));
        assert!(reconcile(is, wanted).is_empty(), "nothing is left to do");
    }

    #[test]
    fn changes_lead_from_any_setup_to_any_other_and_back() {
        let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut is = Setup::default();
        for _ in 0..2000 {
            let before = is.clone();
            let wanted = random_setup(&mut random, &is);
            if random.below(3) == 0 {
                let between = applied(&is, &wanted, &mut random, true);
                // A thunk that records more stays.
                let before = before.after(&between);
                is = applied(&between, &before, &mut random, false);
                assert_same(&is, &before);
            } else {
                is = applied(&is, &wanted, &mut random, false);
                assert_same(&is, &wanted);
            }
        }
    }

    #[test]
    fn what_is_spared_is_said_to_be_until_it_is_on_or_nobody_wants_it() {
        let site = SiteKey(7);
        let sites: Arc<[SiteKey]> = [site].into();
        let mut on = Setup::default();
        on.hold(&sites, Capture::default(), Mode::On);
        let mut named = on.clone();
        named.named = [site].into();
        let [counted, off] = [false, true].map(|is_off| {
            let mut spared = Spared::default();
            match is_off {
                true => spared.off = sites.clone(),
                false => spared.counted = sites.clone(),
            }
            let mut setup = on.clone();
            setup.spare(&spared);
            named.spare(&spared);
            setup
        });
        assert!(counted.may_spare(site) && off.may_spare(site) && !named.may_spare(site));
        assert!(named.records(site) && !counted.records(site) && !off.records(site));
        let said = |old: &Setup, new: &Setup| -> Vec<String> {
            let changes = reconcile(old, new);
            let said = changes.iter().map(|change| match change {
                Change::Insert { .. } => "in".to_owned(),
                Change::Remove { .. } => "out".to_owned(),
                Change::Switch { mode, .. } => format!("{mode:?}"),
                other => panic!("{other:?}"),
            });
            said.collect()
        };
        let none = Setup::default();
        assert_eq!(said(&on, &counted), ["Counted"]);
        assert_eq!(said(&counted, &off), ["Spared", "out"]);
        assert_eq!(said(&on, &off), ["Spared", "out"]);
        assert_eq!(said(&off, &counted), ["in", "Counted"]);
        assert_eq!(said(&off, &on), ["in", "On"]);
        assert_eq!(said(&off, &none), ["Off"]);
        assert_eq!(said(&counted, &none), ["Off", "out"]);

        // A site that somebody counts is not switched off.
        let mut theirs = Setup::default();
        theirs.hold(&sites, Capture::default(), Mode::Counted);
        let before = theirs.clone();
        theirs.spare(&Spared {
            off: sites,
            ..Spared::default()
        });
        assert_eq!(said(&before, &theirs), [""; 0]);
    }

    #[test]
    fn what_both_have_is_never_without_its_jump() {
        let capture = Capture::default();
        let sites = [1, 2, 3, 4].map(SiteKey);
        let (mut old, mut new) = (Setup::default(), Setup::default());
        old.hold(&sites[..3], capture, Mode::On);
        new.hold(&sites[1..], capture, Mode::On);
        let changes = reconcile(&old, &new);
        let mut inserted: Vec<SiteKey> = sites[..3].into();
        for change in &changes {
            match change {
                Change::Insert { sites, .. } => inserted.extend(sites),
                Change::Switch { sites: off, mode } => {
                    assert!(*mode == Mode::On || *off == sites[..1]);
                }
                Change::Remove { sites } => inserted.retain(|site| !sites.contains(site)),
                other => panic!("{other:?}"),
            }
            assert!(inserted.contains(&sites[1]) && inserted.contains(&sites[2]));
        }
        assert_eq!(inserted, sites[1..]);
    }
}
