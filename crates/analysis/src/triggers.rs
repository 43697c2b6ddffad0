//! Checks triggers on live records.

use std::collections::{HashMap, VecDeque};

use anyhow::{Result, bail};
use nopal_symbols::Selection;
use nopal_trace::{Batch, Clocks, Marker, Markers, Note, Subscriber, ThreadKey};

use crate::calls::{Arguments, CallRebuilder, Ending, Frame, Plain, Sink, Style};
use crate::live_notes::LiveNotes;
use crate::markers::push_marker;
use crate::text::duration;
use crate::values::{Condition, Met};

/// An event and its action. `Functions`: the functions as written in a command, or by their numbers in the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger<Functions> {
    pub event: Event<Functions>,
    pub condition: Option<Condition>,
    pub action: Action,
}

/// The event of a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<Functions> {
    /// These functions are called.
    Entry(Functions),
    /// They return, or are left by an exception.
    Return(Functions),
    /// A marker whose name matches this glob is met.
    Marker(String),
    /// A probe of this name is met.
    Probe(String),
}

/// The action of a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    Stop,
    Switch {
        name: String,
        on: bool,
    },
    /// The collecting thread takes it, before it drops more records.
    Snapshot,
    Mark,
    /// Only counts.
    Count,
    Detach,
}

impl<Functions> Event<Functions> {
    pub fn functions(&self) -> Option<&Functions> {
        match self {
            Event::Entry(functions) | Event::Return(functions) => Some(functions),
            Event::Marker(_) | Event::Probe(_) => None,
        }
    }
}

impl<Functions> Trigger<Functions> {
    /// The same, with the functions in another form.
    pub fn map<Others>(self, change: impl FnOnce(Functions) -> Others) -> Trigger<Others> {
        let event = match self.event {
            Event::Entry(functions) => Event::Entry(change(functions)),
            Event::Return(functions) => Event::Return(change(functions)),
            Event::Marker(name) => Event::Marker(name),
            Event::Probe(name) => Event::Probe(name),
        };
        Trigger {
            event,
            condition: self.condition,
            action: self.action,
        }
    }
}

/// The counts of a trigger so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// The number of its events.
    pub met: u64,
    /// The number of events for which its condition held.
    pub fired: u64,
    /// Hits without an action, because too many waited.
    pub passed_over: u64,
}

/// A trigger whose condition held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    pub name: String,
    /// The counter at that moment.
    pub counter: u64,
    pub thread: ThreadKey,
    /// A text that describes the event.
    pub description: String,
}

/// Most firings that may wait to be performed.
const MOST_WAITING: usize = 4096;

/// All triggers of a session. It must receive the trace's notes and records.
#[derive(Default)]
pub struct Triggers {
    list: Vec<Active>,
    sites: Sites,
    /// By event: the triggers that wait for it.
    events: HashMap<u32, Vec<usize>>,
    markers: Markers,
    notes: LiveNotes,
    threads: HashMap<ThreadKey, CallRebuilder>,
    /// Arguments of calls that a trigger needs at their return.
    arguments: Arguments,
    waiting: VecDeque<Fired>,
    /// The firings that want snapshots.
    snapshots_for: Vec<Fired>,
}

/// An active trigger.
struct Active {
    name: String,
    /// The text of its event.
    place: String,
    trigger: Trigger<Vec<u32>>,
    /// The markers and probes that it waits for, if any.
    markers: Option<Selection>,
    /// Events before this value of the counter do not count.
    since: u64,
    hits: Hits,
}

/// By site: the triggers that wait for its entry, and for its return.
#[derive(Default)]
struct Sites {
    entries: Vec<Vec<usize>>,
    returns: Vec<Vec<usize>>,
}

impl Triggers {
    /// Adds a trigger, from a value of the counter on, or changes the event of the one with this name, whose counts
    /// continue. `place` is its name in messages. An error says why no marker can have such a name, or names fields
    /// that the condition uses and the marker lacks; then nothing is changed.
    pub fn set(
        &mut self,
        name: &str,
        place: String,
        trigger: Trigger<Vec<u32>>,
        since: u64,
    ) -> Result<()> {
        let markers = match &trigger.event {
            Event::Marker(name) | Event::Probe(name) => {
                let selection = Selection::new(std::slice::from_ref(name), &[])?;
                self.check_fields(&selection, trigger.condition.as_ref())?;
                Some(selection)
            }
            Event::Entry(_) | Event::Return(_) => None,
        };
        let mut known = self.list.iter_mut();
        match known.find(|known| known.name == name) {
            Some(known) => {
                (known.place, known.trigger, known.markers) = (place, trigger, markers);
            }
            None => self.list.push(Active {
                name: name.to_owned(),
                place,
                trigger,
                markers,
                since,
                hits: Hits::default(),
            }),
        }
        self.arrange();
        Ok(())
    }

    pub fn remove(&mut self, name: &str) {
        self.list.retain(|active| active.name != name);
        self.waiting.retain(|fired| fired.name != name);
        self.arrange();
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn hits(&self, name: &str) -> Hits {
        let mut all = self.list.iter();
        all.find(|active| active.name == name)
            .map_or_else(Hits::default, |active| active.hits)
    }

    /// The firings that wait to be performed, the oldest first.
    pub fn take_fired(&mut self) -> Vec<Fired> {
        self.waiting.drain(..).collect()
    }

    /// The firings that want a snapshot: one is enough for all.
    pub fn take_snapshots(&mut self) -> Vec<Fired> {
        std::mem::take(&mut self.snapshots_for)
    }

    pub fn has_fired(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Refuses a condition with fields that a known marker of such a name lacks.
    fn check_fields(&self, name: &Selection, condition: Option<&Condition>) -> Result<()> {
        let wanted: Vec<&str> = condition.iter().flat_map(|one| one.fields()).collect();
        let mut known = self.markers.iter().map(|(_, marker)| marker);
        let lacks = |marker: &&Marker| {
            let has = |name: &&str| marker.fields.iter().any(|field| field.name == **name);
            name.chooses(&[&marker.name], "") && !wanted.iter().all(has)
        };
        let Some(marker) = known.find(lacks) else {
            return Ok(());
        };
        let fields: Vec<&str> = marker.fields.iter().map(|field| &*field.name).collect();
        let fields = match fields[..] {
            [] => "no fields".to_owned(),
            _ => fields.join(", "),
        };
        bail!(
            "the marker does not have all of {}, but {fields}",
            wanted.join(", ")
        )
    }

    fn arrange(&mut self) {
        self.sites = Sites::default();
        for (index, active) in self.list.iter().enumerate() {
            let (table, sites) = match &active.trigger.event {
                Event::Entry(sites) => (&mut self.sites.entries, sites),
                Event::Return(sites) => (&mut self.sites.returns, sites),
                Event::Marker(_) | Event::Probe(_) => continue,
            };
            for site in sites {
                let site = *site as usize;
                if table.len() <= site {
                    table.resize(site + 1, Vec::new());
                }
                table[site].push(index);
            }
        }
        self.events.clear();
        let events: Vec<u32> = self.markers.iter().map(|(event, _)| event).collect();
        events.into_iter().for_each(|event| self.add_event(event));
    }

    fn add_event(&mut self, event: u32) {
        let Some(marker) = self.markers.get(event) else {
            return;
        };
        let all = self.list.iter().enumerate();
        let wanted = all.filter(|(_, active)| {
            let names = active.markers.as_ref();
            names.is_some_and(|names| names.chooses(&[&marker.name], ""))
        });
        self.events
            .insert(event, wanted.map(|(index, _)| index).collect());
    }
}

impl Subscriber for Triggers {
    fn note(&mut self, note: &Note) {
        self.notes.learn(note);
        if let Note::Marker { event, .. } = note {
            self.markers.learn(note);
            self.add_event(*event);
        }
    }

    fn records(&mut self, batch: Batch) {
        let rebuilder = self.threads.entry(batch.thread).or_default();
        let mut sink = CallSink {
            thread: batch.thread,
            clocks: self.notes.clocks(),
            list: &mut self.list,
            sites: &self.sites,
            events: &self.events,
            markers: &self.markers,
            arguments: &mut self.arguments,
            waiting: &mut self.waiting,
            snapshots_for: &mut self.snapshots_for,
        };
        rebuilder.records(batch.words, batch.clock, batch.lossy, &mut sink);
    }

    fn thread_ended(&mut self, thread: ThreadKey) {
        self.threads.remove(&thread);
    }
}

/// Receives the calls of one thread.
struct CallSink<'a> {
    thread: ThreadKey,
    clocks: Clocks,
    list: &'a mut [Active],
    sites: &'a Sites,
    events: &'a HashMap<u32, Vec<usize>>,
    markers: &'a Markers,
    arguments: &'a mut Arguments,
    waiting: &'a mut VecDeque<Fired>,
    snapshots_for: &'a mut Vec<Fired>,
}

/// The triggers of a site; none of most.
#[inline(always)]
fn of_site(table: &[Vec<usize>], site: u32) -> &[usize] {
    table.get(site as usize).map_or(&[], Vec::as_slice)
}

impl CallSink<'_> {
    #[cold]
    fn meet(&mut self, triggers: &[usize], clock: u64, met: &Met, what: impl Fn() -> String) {
        for index in triggers {
            let Some(active) = self.list.get_mut(*index) else {
                continue;
            };
            if clock < active.since {
                continue;
            }
            active.hits.met += 1;
            let met = Met {
                hits: active.hits.met,
                ..*met
            };
            let condition = active.trigger.condition.as_ref();
            if !condition.is_none_or(|condition| condition.holds(&met)) {
                continue;
            }
            active.hits.fired += 1;
            let waits = |one: &Fired| one.name == active.name;
            // Once is enough for all but marks.
            let is_done = match active.trigger.action {
                Action::Count => true,
                Action::Mark => false,
                Action::Snapshot => self.snapshots_for.iter().any(waits),
                _ => self.waiting.back().is_some_and(waits),
            };
            if is_done {
                continue;
            }
            let fired = Fired {
                name: active.name.clone(),
                counter: clock,
                thread: self.thread,
                description: format!("{}{}", active.place, what()),
            };
            match active.trigger.action {
                Action::Snapshot => self.snapshots_for.push(fired),
                _ if self.waiting.len() >= MOST_WAITING => active.hits.passed_over += 1,
                _ => self.waiting.push_back(fired),
            }
        }
    }

    fn returned(&mut self, site: u32, clock: u64, met: Met) {
        let sites = self.sites;
        let took = met.duration_ns;
        self.meet(of_site(&sites.returns, site), clock, &met, || {
            took.map_or_else(String::new, |ns| format!(" after {}", duration(ns)))
        });
    }
}

impl Sink for CallSink<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let Plain {
            site,
            exit,
            clock,
            ticks,
            own,
            ..
        } = call;
        let sites = self.sites;
        if exit == 0 {
            let triggers = of_site(&sites.entries, site);
            if !triggers.is_empty() {
                self.meet(triggers, clock, &Met::default(), String::new);
            }
        } else if !of_site(&sites.returns, site).is_empty() {
            let met = Met {
                duration_ns: Some(self.clocks.duration_ns(ticks)),
                self_ns: Some(self.clocks.duration_ns(own)),
                ..Met::default()
            };
            self.returned(site, clock, met);
        }
        0
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last() else {
            return 0;
        };
        let (site, sites) = (frame.site(), self.sites);
        let met = Met {
            arguments,
            ..Met::default()
        };
        self.meet(
            of_site(&sites.entries, site),
            frame.clock,
            &met,
            String::new,
        );
        let returns = of_site(&sites.returns, site);
        let asks = |index: &usize| {
            let condition = self
                .list
                .get(*index)
                .and_then(|one| one.trigger.condition.as_ref());
            condition.is_some_and(|condition| condition.needs.arguments)
        };
        match arguments {
            Some(arguments) if frame.style() != Style::Only && returns.iter().any(asks) => {
                self.arguments.keep(arguments)
            }
            _ => 0,
        }
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        let arguments = self.arguments.take(frame.note);
        if of_site(&self.sites.returns, frame.site()).is_empty() || frame.style() == Style::Only {
            return;
        }
        let ticks = ending.clock.saturating_sub(frame.clock);
        let own = ticks.saturating_sub(frame.child);
        let met = Met {
            arguments,
            result: ending.result,
            duration_ns: Some(self.clocks.duration_ns(ticks)),
            self_ns: Some(self.clocks.duration_ns(own)),
            ..Met::default()
        };
        self.returned(frame.site(), ending.clock, met);
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, _counted: bool) {
        self.arguments.take(frame.note);
    }

    /// Its entry came before the subscription, or is lost.
    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let met = Met {
            result: ending.result,
            ..Met::default()
        };
        self.returned(frame.site(), ending.clock, met);
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], _frames: &[Frame]) {
        let (events, markers) = (self.events, self.markers);
        let (Some(triggers), Some(marker)) = (events.get(&event), markers.get(event)) else {
            return;
        };
        if triggers.is_empty() {
            return;
        }
        let values = marker.values(payload).unwrap_or_default();
        let met = Met {
            fields: &marker.fields,
            values: &values,
            ..Met::default()
        };
        self.meet(triggers, clock, &met, || {
            let mut text = b": ".to_vec();
            push_marker(&mut text, Some(marker), payload);
            String::from_utf8_lossy(&text).into_owned()
        });
    }
}

#[cfg(test)]
mod tests {
    use nopal_abi as abi;
    use nopal_trace::{Field, FieldKind, event_number};

    use super::*;

    const THREAD: ThreadKey = ThreadKey {
        process: 1,
        thread: 2,
        begin: 1000,
    };
    const EVENT: u32 = abi::EVENT_DEFINED + 3;

    fn word(clock: u64, kind: u32, site: u32, depth: u64) -> u64 {
        let slot = 0x7000_u64 - depth * 0x40;
        abi::Word::new(kind, site, slot, clock).0
    }

    fn resync(clock: u64) -> Vec<u64> {
        let resync = abi::Resync::new(clock, 0x7008, 0, (0, 0), abi::RESYNC_CHUNK);
        resync.words().to_vec()
    }

    /// The counter runs at half a gigahertz.
    fn triggers(all: &[(&str, Event<Vec<u32>>, &str, Action)]) -> Triggers {
        let mut triggers = Triggers::default();
        for (counter, monotonic_ns) in [(0, 0), (1000, 2000)] {
            triggers.note(&Note::Clock {
                counter,
                monotonic_ns,
                realtime_ns: 0,
            });
        }
        for (name, event, condition, action) in all {
            let trigger = Trigger {
                event: event.clone(),
                condition: (!condition.is_empty()).then(|| Condition::parse(condition).unwrap()),
                action: action.clone(),
            };
            let place = format!("at {name}");
            triggers.set(name, place, trigger, 1000).unwrap();
        }
        triggers
    }

    fn publish(triggers: &mut Triggers, clock: u64, words: &[u64]) {
        triggers.records(Batch {
            thread: THREAD,
            clock,
            words: &[&resync(clock), words].concat(),
            lossy: false,
        });
    }

    fn fired(triggers: &mut Triggers) -> Vec<(String, u64, String)> {
        let fired = triggers.take_fired().into_iter();
        fired
            .map(|one| (one.name, one.counter, one.description))
            .collect()
    }

    fn hits(met: u64, fired: u64) -> Hits {
        Hits {
            met,
            fired,
            passed_over: 0,
        }
    }

    #[test]
    fn the_call_that_is_slow_fires_when_it_returns() {
        let slow = (
            "slow",
            Event::Return(vec![1]),
            "duration > 50ns",
            Action::Mark,
        );
        let mut triggers = triggers(&[slow]);
        let mut words = Vec::new();
        // A call of 50 ns, and one of 52 ns with another function in it.
        for (begin, ticks) in [(1000, 25), (1100, 26)] {
            words.push(word(begin, abi::KIND_ENTRY, 1, 0));
            words.push(word(begin + 1, abi::KIND_ENTRY, 2, 1));
            words.push(word(begin + 2, abi::KIND_EXIT, 2, 1));
            words.push(word(begin + ticks, abi::KIND_EXIT, 1, 0));
        }
        publish(&mut triggers, 1000, &words);
        let description = "at slow after 52 ns".to_owned();
        assert_eq!(
            fired(&mut triggers),
            [("slow".to_owned(), 1126, description)]
        );
        assert_eq!(triggers.hits("slow"), hits(2, 1));
    }

    #[test]
    fn arguments_and_results_are_those_of_the_call() {
        let condition = "arg2 == 7 and int(result) < 0";
        let both = ("both", Event::Return(vec![1]), condition, Action::Mark);
        let entry = ("entry", Event::Entry(vec![1]), "arg2 == 7", Action::Mark);
        let mut triggers = triggers(&[both, entry]);
        let mut words = Vec::new();
        for (begin, argument, result) in
            [(1000, 7, 0xffff_ffff), (1010, 7, 1), (1020, 8, 0xffff_ffff)]
        {
            words.push(word(begin, abi::KIND_ENTRY_ARGS, 1, 0));
            words.extend([0, argument, 0, 0, 0, 0]);
            words.push(word(begin + 5, abi::KIND_EXIT_RESULT, 1, 0));
            words.push(result);
        }
        publish(&mut triggers, 1000, &words);
        let counters: Vec<u64> = fired(&mut triggers).iter().map(|one| one.1).collect();
        assert_eq!(counters, [1000, 1005, 1010]);
        assert_eq!(triggers.hits("both"), hits(3, 1));
        assert_eq!(triggers.hits("entry"), hits(3, 2));
    }

    #[test]
    fn markers_are_met_by_name_and_fields() {
        let name = String::from("net_*");
        let field = Field {
            name: "len".into(),
            kind: FieldKind::Signed(32),
            labels: Vec::new(),
        };
        let long = (
            "long",
            Event::Marker(name.clone()),
            "len > 1000",
            Action::Mark,
        );
        let mut triggers = triggers(&[long]);
        let asks_for = |condition: &str| Trigger {
            event: Event::Marker(name.clone()),
            condition: Some(Condition::parse(condition).unwrap()),
            action: Action::Count,
        };
        let set = |triggers: &mut Triggers, name: &str, condition: &str| {
            let set = triggers.set(name, String::new(), asks_for(condition), 1000);
            set.map_err(|error| error.to_string())
        };
        let known = set(&mut triggers, "early", "size > 1");
        assert_eq!(known, Ok(()), "no marker is known");
        let event = event_number(EVENT, std::slice::from_ref(&field));
        triggers.note(&Note::Marker {
            event,
            image: 0,
            name: "net_rx".into(),
            format: "len=%d".into(),
            fields: vec![field],
            file: "x.c".into(),
            line: 1,
            tracepoint: false,
        });
        let record = |clock: u64, len: u64| [abi::Word::extended(event, clock).0, clock, len];
        publish(
            &mut triggers,
            1000,
            &[record(1001, 1000), record(1002, 1001)].concat(),
        );
        let description = "at long: net_rx len=1001".to_owned();
        assert_eq!(
            fired(&mut triggers),
            [("long".to_owned(), 1002, description)]
        );
        let lacks = "the marker does not have all of size, but len".to_owned();
        assert_eq!(set(&mut triggers, "late", "size > 1"), Err(lacks));
        assert_eq!(set(&mut triggers, "late", "len > 1"), Ok(()));
    }

    #[test]
    fn what_once_is_enough_for_waits_once() {
        let once = ("once", Event::Entry(vec![1]), "", Action::Stop);
        let count = (
            "count",
            Event::Entry(vec![1]),
            "hits % 2 == 0",
            Action::Count,
        );
        let mut triggers = triggers(&[once, count]);
        let calls = |from: u64| -> Vec<u64> {
            let call = |at| {
                [
                    word(at, abi::KIND_ENTRY, 1, 0),
                    word(at, abi::KIND_EXIT, 1, 0),
                ]
            };
            (from..from + 5).flat_map(call).collect()
        };
        publish(&mut triggers, 990, &calls(990));
        assert_eq!(fired(&mut triggers), [], "that was before it was set");
        publish(&mut triggers, 1000, &calls(1000));
        assert_eq!(fired(&mut triggers).len(), 1);
        publish(&mut triggers, 1010, &calls(1010));
        assert_eq!(fired(&mut triggers).len(), 1);
        assert_eq!(triggers.hits("once"), hits(10, 10));
        assert_eq!(triggers.hits("count"), hits(10, 5));
        triggers.remove("once");
        publish(&mut triggers, 1020, &calls(1020));
        assert_eq!(
            (fired(&mut triggers).len(), triggers.hits("count")),
            (0, hits(15, 7))
        );
    }

    #[test]
    fn no_more_wait_than_can_be_obeyed() {
        let mark = ("mark", Event::Entry(vec![1]), "", Action::Mark);
        let mut triggers = triggers(&[mark]);
        let call = |at| {
            [
                word(at, abi::KIND_ENTRY, 1, 0),
                word(at, abi::KIND_EXIT, 1, 0),
            ]
        };
        let words: Vec<u64> = (1000..6000).flat_map(call).collect();
        publish(&mut triggers, 1000, &words);
        let waiting = triggers.take_fired().len();
        assert_eq!(waiting, MOST_WAITING);
        let passed_over = 5000 - waiting as u64;
        assert_eq!(
            triggers.hits("mark"),
            Hits {
                passed_over,
                ..hits(5000, 5000)
            }
        );
    }
}
