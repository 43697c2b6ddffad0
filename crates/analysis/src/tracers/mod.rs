//! Latency tracers: the events between which they measure, and the key that pairs them.
//!
//! Records of a thread become latency events ([`Watcher`]): a lock is acquired, a section begins. The latency events of
//! all threads, in the order of their clocks, become cases ([`Cases`]), by the mechanism of `runtime/core/latency.c`.
//! [`of_trace`] does that for a finished trace, [`Live`] for one that is being recorded.

mod cases;
mod durations;
mod handlers;
mod live;
mod locks;
mod past;
mod roles;
mod scheduling;
mod section;
mod signals;
mod slowest;
mod watcher;

use nopal_abi::Capture;
use nopal_latency as latency;
use nopal_trace::{Field, Markers, ThreadInfo, Trace};

use crate::names::Names;

pub use cases::{Case, Cases, Missing, Run, Turn};
pub use durations::Histogram;
pub use handlers::handlers;
pub use live::{AskTask, Finding, Live, LiveSubscriber, Report, SlowCase};
pub use past::{Past, longest, of_trace, selected};
pub use roles::Roles;
pub use scheduling::{Numbers, Scheduling};
pub use section::{Point, Section};
pub use watcher::{LatencyEvent, State, Watcher};

/// A tracer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// From acquiring a lock to releasing it.
    LockHold,
    /// From asking for a lock to acquiring it, or giving up.
    LockWait,
    /// From blocking signals to blocking none.
    SignalsOff,
    /// From holding a lock or blocking signals to doing neither.
    Critical,
    Section(Section),
    /// From becoming runnable to running.
    Wakeup,
    /// The same for all tasks of the machine: the most urgent of those that were woken and are more urgent than the
    /// running one.
    WakeupAll,
    /// From leaving a processor to getting one again.
    OffCpu,
    /// The same, if the thread waits for something.
    Blocked,
    /// The same, if the thread could run on.
    Preempted,
}

/// Functions, and the data to record of their calls; or a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// As the control language takes it.
    pub probe: Option<&'static str>,
    /// Optional: it adds information if available.
    pub is_optional: bool,
    /// `GLOB[@MODULE]`
    pub patterns: Vec<String>,
    /// Instead of these, if they match nothing.
    pub or: Vec<String>,
    /// Arguments, and results if the calls end.
    pub capture: Capture,
}

impl Need {
    fn all_of(patterns: &[&str], ends: bool) -> Need {
        Need {
            patterns: patterns.iter().map(|one| one.to_string()).collect(),
            capture: Capture {
                arguments: true,
                ends,
                call_sites: false,
            },
            ..Need::default()
        }
    }

    fn of_probe(probe: &'static str) -> Need {
        Need {
            probe: Some(probe),
            ..Need::default()
        }
    }

    /// The functions that are signal handlers.
    fn of_handlers() -> Need {
        Need {
            is_optional: true,
            ..Need::of_probe(handlers::PROBE)
        }
    }
}

/// The tracer named by `text`, unless a function has that name.
pub fn asked(text: &str, names: &Names) -> Option<Tracer> {
    Tracer::parse(text).filter(|_| names.matching(text).is_empty())
}

/// The kinds of events of the latency mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Asked = 0,
    Answered = 1,
    Taken = 2,
    Released = 3,
    Begun = 4,
    Ended = 5,
    Woken = 6,
    Ran = 7,
    Blocked = 8,
    Preempted = 9,
    SignalsOff = 10,
    SignalsOn = 11,
    CriticalBegun = 12,
    CriticalEnded = 13,
    /// Kernel events are missing: what has begun may have ended.
    Lost = 14,
    /// Records of the thread are missing up to here: what has begun may have ended, and begun again.
    Unseen = 15,
}

impl Tracer {
    /// The tracers that need only a name.
    pub const NAMED: [(&str, Tracer); 9] = [
        ("lockhold", Tracer::LockHold),
        ("lockwait", Tracer::LockWait),
        ("sigoff", Tracer::SignalsOff),
        ("critical", Tracer::Critical),
        ("wakeup", Tracer::Wakeup),
        ("wakeup_all", Tracer::WakeupAll),
        ("offcpu", Tracer::OffCpu),
        ("blocked", Tracer::Blocked),
        ("preempted", Tracer::Preempted),
    ];

    pub fn named(name: &str) -> Option<Tracer> {
        let mut named = Tracer::NAMED.into_iter();
        named
            .find(|(known, _)| *known == name)
            .map(|(_, tracer)| tracer)
    }

    /// A name, or `FROM..TO`.
    pub fn parse(text: &str) -> Option<Tracer> {
        Tracer::named(text).or_else(|| Section::parse(text).map(Tracer::Section))
    }

    /// The functions that must be recorded for it.
    pub fn needs(&self) -> Vec<Need> {
        match self {
            Tracer::LockHold => vec![
                // First, since the release of a taken lock must be seen. The end of that call need not be.
                Need::all_of(locks::RELEASE, false),
                Need::all_of(locks::TAKE, true),
                Need::of_handlers(),
            ],
            Tracer::LockWait => vec![
                Need::all_of(locks::TAKE, true),
                Need::all_of(locks::WAIT, true),
                Need::of_handlers(),
            ],
            Tracer::SignalsOff => vec![Need::of_probe(signals::PROBE), Need::of_handlers()],
            Tracer::Critical => {
                let mut needs = Tracer::LockHold.needs();
                needs.push(Need::of_probe(signals::PROBE));
                needs
            }
            Tracer::Section(section) => [&section.from, &section.to]
                .map(section::Point::need)
                .into(),
            Tracer::Wakeup
            | Tracer::WakeupAll
            | Tracer::OffCpu
            | Tracer::Blocked
            | Tracer::Preempted => Vec::new(),
        }
    }

    /// Kernel events that must be recorded for it, as `nopal record -e` takes them.
    pub fn kernel_events(&self) -> Option<&'static str> {
        match self {
            Tracer::Wakeup | Tracer::WakeupAll => Some("sched"),
            Tracer::OffCpu | Tracer::Blocked | Tracer::Preempted => Some("sched_switch"),
            _ => None,
        }
    }

    /// Whether any task of the machine may have its cases.
    pub fn is_of_all_tasks(&self) -> bool {
        *self == Tracer::WakeupAll
    }

    /// The threads of a trace that may have its cases; cases number them in this order.
    pub fn threads<'a>(&self, trace: &'a Trace) -> Vec<ThreadInfo<'a>> {
        match self.is_of_all_tasks() {
            true => trace.tasks(),
            false => trace.threads(),
        }
    }

    /// The field of a marker whose values are the keys of its cases.
    pub fn key_field<'m>(&self, markers: &'m Markers) -> Option<&'m Field> {
        let Tracer::Section(Section { from, .. }) = self else {
            return None;
        };
        markers
            .iter()
            .find_map(|(_, marker)| match from.in_marker(marker)? {
                section::InMarker::Field(at) => marker.fields.get(at),
                _ => None,
            })
    }

    /// Whether it measures kernel events.
    pub fn is_of_kernel_events(&self) -> bool {
        self.kernel_events().is_some()
    }

    pub fn name(&self) -> &str {
        match self {
            Tracer::Section(section) => section.name(),
            _ => Tracer::NAMED
                .iter()
                .find(|(_, tracer)| tracer == self)
                .map_or("", |(name, _)| name),
        }
    }

    fn mechanism(&self, by_value: bool) -> latency::Tracer {
        let off = 1 << EventKind::Blocked as u32 | 1 << EventKind::Preempted as u32;
        let (begins, ends, key) = match self {
            Tracer::LockHold => (
                1 << EventKind::Taken as u32,
                EventKind::Released,
                latency::Key::ValueOfThread,
            ),
            Tracer::LockWait => (
                1 << EventKind::Asked as u32,
                EventKind::Answered,
                latency::Key::ValueOfThread,
            ),
            Tracer::SignalsOff => (
                1 << EventKind::SignalsOff as u32,
                EventKind::SignalsOn,
                latency::Key::Thread,
            ),
            Tracer::Critical => (
                1 << EventKind::CriticalBegun as u32,
                EventKind::CriticalEnded,
                latency::Key::Thread,
            ),
            Tracer::Section(_) => {
                let key = match by_value {
                    true => latency::Key::Value,
                    false => latency::Key::Thread,
                };
                (1 << EventKind::Begun as u32, EventKind::Ended, key)
            }
            Tracer::Wakeup | Tracer::WakeupAll => (
                1 << EventKind::Woken as u32,
                EventKind::Ran,
                latency::Key::Value,
            ),
            Tracer::OffCpu => (off, EventKind::Ran, latency::Key::Value),
            Tracer::Blocked => (
                1 << EventKind::Blocked as u32,
                EventKind::Ran,
                latency::Key::Value,
            ),
            Tracer::Preempted => (
                1 << EventKind::Preempted as u32,
                EventKind::Ran,
                latency::Key::Value,
            ),
        };
        latency::Tracer {
            begins,
            ends: 1 << ends as u32,
            key,
            // Recursive locks are counted by the watcher, which knows when records are missing.
            nesting: latency::Nesting::Again,
            most_urgent: *self == Tracer::WakeupAll,
        }
    }
}
