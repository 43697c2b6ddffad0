//! The wanted state of a session: plain values, which commands change, and which become a setup of the engine.

use std::sync::Arc;

use nopal_abi::Capture;
use nopal_analysis::tracers::{Live, Section, Tracer};
use nopal_analysis::triggers::Trigger;

use crate::budget::{Share, Spared};
use crate::engine::{Mark, Mode, Watch};
use crate::probe::Probe;
use crate::selection::FunctionSelection;
use crate::setup::{Setup, TriggerSetup};
use crate::site_key::SiteKey;
use crate::written::place;

/// The wanted state of a session.
#[derive(Clone, Default)]
pub struct State {
    pub started: bool,
    /// Shared by the states of which one is drafted from another: there may be thousands.
    pub traces: Vec<Arc<Trace>>,
    /// All sites that can be traced, held while `uniform` is on.
    pub uniform: Option<ActiveFunctions>,
    pub budget: Option<Share>,
    /// The functions that are not timed for its sake.
    pub spared: Spared,
    pub probes: Vec<ActiveProbe>,
    /// Where two mean the same marker, the later one decides.
    pub marks: Vec<Mark>,
    pub triggers: Vec<ActiveTrigger>,
    pub watch: Watch,
    /// The last to be switched on is the last.
    pub tracers: Vec<ActiveTracer>,
    pub event_tracers: Vec<EventTracer>,
    /// All markers are on for the sake of the tracer of events.
    pub marks_of_events: bool,
    pub sections: Vec<Section>,
    /// The threshold of latencies, in microseconds; 0: none.
    pub threshold: u64,
    /// Nobody reads the findings of tracers yet: they need no records.
    pub is_unattended: bool,
}

/// Functions that are inserted for a holder, such as a trace.
#[derive(Clone)]
pub struct ActiveFunctions {
    pub what: FunctionSelection,
    /// The data that is to be recorded of them.
    pub capture: Capture,
    pub sites: Arc<[SiteKey]>,
    /// The first of the functions that are meant, and its address; `None` while there are none.
    pub first: Option<(SiteKey, u64)>,
    /// Functions that are meant and that can never be traced.
    pub refused: Vec<SiteKey>,
    /// The number of functions that could not be inserted.
    pub left_out: usize,
}

/// A named set of sites.
#[derive(Clone)]
pub struct Trace {
    pub name: String,
    pub held: ActiveFunctions,
    /// While the session is started: on, counted or off.
    pub mode: Mode,
}

impl Trace {
    pub fn is_on(&self) -> bool {
        self.mode == Mode::On
    }
}

/// A probe of the session.
#[derive(Clone)]
pub struct ActiveProbe {
    pub probe: Probe,
    pub on: bool,
}

/// A trigger of the session.
#[derive(Clone)]
pub struct ActiveTrigger {
    pub name: String,
    pub trigger: Trigger<FunctionSelection>,
    /// The functions that it means, if it is of functions.
    pub held: Option<ActiveFunctions>,
    /// The reason why its action failed the last time.
    pub failed: Option<String>,
}

/// A tracer of latency that is on, with its needs.
#[derive(Clone)]
pub struct ActiveTracer {
    pub tracer: Tracer,
    pub live: Live,
    pub parts: Vec<ActiveFunctions>,
    /// Others may need the same.
    pub probes: Vec<Probe>,
    /// The number of the slowest cases of each minute that are kept.
    pub slowest: u32,
}

/// A tracer that measures nothing: its records stand in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTracer {
    /// All markers, and kernel events where these can be had.
    Events { with_kernel_events: bool },
    /// Context switches alone.
    Switches { with_kernel_events: bool },
}

impl EventTracer {
    pub const NAMES: [&str; 2] = ["events", "sched_switch"];

    pub fn name(self) -> &'static str {
        match self {
            EventTracer::Events { .. } => EventTracer::NAMES[0],
            EventTracer::Switches { .. } => EventTracer::NAMES[1],
        }
    }

    pub fn named(name: &str) -> Option<EventTracer> {
        let with_kernel_events = true;
        let all = [
            EventTracer::Events { with_kernel_events },
            EventTracer::Switches { with_kernel_events },
        ];
        all.into_iter().find(|one| one.name() == name)
    }

    /// The tracer of latency that needs the same of kernel events.
    fn of_kernel_events(&self) -> Option<Tracer> {
        match self {
            EventTracer::Events { with_kernel_events } => {
                with_kernel_events.then_some(Tracer::Wakeup)
            }
            EventTracer::Switches { with_kernel_events } => {
                with_kernel_events.then_some(Tracer::OffCpu)
            }
        }
    }
}

impl State {
    pub fn trace(&self, name: &str) -> Option<&Trace> {
        let mut traces = self.traces.iter();
        traces
            .find(|trace| trace.name == name)
            .map(|trace| &**trace)
    }

    pub fn tracer(&self, name: &str) -> Option<&ActiveTracer> {
        self.tracers.iter().find(|one| one.tracer.name() == name)
    }

    pub fn event_tracer(&self, name: &str) -> Option<EventTracer> {
        let mut tracers = self.event_tracers.iter();
        tracers.find(|one| one.name() == name).copied()
    }

    /// All holders of inserted functions.
    pub fn holders_mut(&mut self) -> impl Iterator<Item = &mut ActiveFunctions> {
        let traces = self.traces.iter_mut();
        let traces = traces.map(|trace| &mut Arc::make_mut(trace).held);
        let triggers = self.triggers.iter_mut();
        let triggers = triggers.filter_map(|active| active.held.as_mut());
        let parts = self.tracers.iter_mut();
        let parts = parts.flat_map(|active| &mut active.parts);
        traces.chain(triggers).chain(parts).chain(&mut self.uniform)
    }

    /// The holders, each with its mode.
    fn holders(&self) -> impl Iterator<Item = (&ActiveFunctions, Mode)> {
        let started = self.started;
        let once_started = move |mode| if started { mode } else { Mode::Off };
        let traces = self.traces.iter();
        let traces = traces.map(move |trace| (&trace.held, once_started(trace.mode)));
        let triggers = self.triggers.iter();
        // A trigger sees calls even when these are not recorded.
        let triggers = triggers.filter_map(|active| Some((active.held.as_ref()?, Mode::Silent)));
        let parts = self.tracers.iter().flat_map(|active| &active.parts);
        let parts = parts.map(move |held| (held, once_started(Mode::On)));
        let uniform = self.uniform.iter().map(|held| (held, Mode::Off));
        traces.chain(triggers).chain(parts).chain(uniform)
    }

    /// Functions that somebody has named for their own sake.
    fn named(&self) -> impl Iterator<Item = &ActiveFunctions> {
        let traces = self.traces.iter().map(|trace| &trace.held);
        let traces = traces.filter(|held| held.what.names_some());
        let triggers = self.triggers.iter();
        let triggers = triggers.filter_map(|active| active.held.as_ref());
        let parts = self.tracers.iter().flat_map(|active| &active.parts);
        traces.chain(triggers).chain(parts)
    }

    /// Tells the tracers which cases to keep.
    pub fn instruct_tracers(&self) {
        for active in &self.tracers {
            active
                .live
                .set_threshold(self.threshold.saturating_mul(1000));
            active.live.keep_slowest(active.slowest as usize);
        }
    }

    /// The setup of the engine that meets this state.
    pub fn setup(&self) -> Setup {
        let mut setup = Setup::default();
        setup.is_stopped = !self.started;
        setup.watch.clone_from(&self.watch);
        setup.kernel_events = self.of_kernel_events();
        // While `uniform` is on, the calls of all inserted sites cost as much as recorded ones.
        let least = match self.started && self.uniform.is_some() {
            true => Mode::Silent,
            false => Mode::Off,
        };
        for (held, mode) in self.holders() {
            setup.hold(&held.sites, held.capture, mode.and(least));
        }
        // While all are to pay, none is spared.
        if self.budget.is_some() && self.uniform.is_none() {
            setup.budget = self.budget;
            let named = self.named().flat_map(|held| held.sites.iter().copied());
            setup.named = named.collect();
            setup.spare(&self.spared);
        }
        if self.started {
            setup.marks.clone_from(&self.marks);
        }
        for active in &self.probes {
            setup.add_probe(&active.probe, active.on && self.started);
        }
        for active in &self.tracers {
            if !self.is_unattended || active.slowest > 0 {
                let name = active.tracer.name().to_owned();
                setup.tracers.push((name, active.live.clone()));
            }
            for probe in &active.probes {
                setup.add_probe(probe, self.started);
            }
        }
        setup.triggers.extend(self.triggers.iter().map(|active| {
            let sites = active.held.as_ref().map(|held| held.sites.clone());
            TriggerSetup {
                name: active.name.clone(),
                place: place(&active.trigger.event),
                trigger: active.trigger.clone().map(|_| sites.unwrap_or_default()),
            }
        }));
        setup
    }

    /// The tracers that need kernel events.
    fn of_kernel_events(&self) -> Vec<Tracer> {
        let running = self.tracers.iter().map(|one| &one.tracer);
        let running = running.filter(|tracer| tracer.is_of_kernel_events());
        let events = self.event_tracers.iter();
        let events = events.filter_map(EventTracer::of_kernel_events);
        running.cloned().chain(events).collect()
    }

    /// Takes these sites from the holders that have begun to hold them since `before`, and counts them there.
    pub fn leave_out(&mut self, refused: &[SiteKey], before: &State) {
        let known: Vec<Arc<[SiteKey]>> = before
            .holders()
            .map(|(held, _)| held.sites.clone())
            .collect();
        let is_new = |held: &&mut ActiveFunctions| {
            !known.iter().any(|sites| Arc::ptr_eq(sites, &held.sites))
        };
        for held in self.holders_mut().filter(is_new) {
            let left = held.sites.iter().filter(|site| !refused.contains(site));
            let left: Arc<[SiteKey]> = left.copied().collect();
            held.left_out += held.sites.len() - left.len();
            held.sites = left;
        }
    }
}
