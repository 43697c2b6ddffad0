//! A recording of a program that does not run: it checks that it is asked for nothing impossible, and writes a real
//! trace of calls that tests make.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use nopal_analysis::tracers::Tracer;
use nopal_analysis::triggers::{Hits, Trigger};
use nopal_control::{
    Access, Act, Applied, Calls, Capture, Change, Content, Control, Counts, Engine, Facts, Failure,
    File, FileAddress, FoundSite, Kind, Location, Lookup, Metric, Missing, Mode, Probe, Refused,
    Share, SiteKey, Spot, Watch,
};
use nopal_symbols::{Selection, nearest};
use nopal_trace::synthetic::Recorder;
use nopal_trace::{Note, Session, SubscriberId, Writer};

pub const PROCESS: u32 = 4711;
const SLOT: u64 = 0x7ffd_0000_8008;
const BEGIN: u64 = 1 << 32;
/// A tenth of a millisecond.
const CALL_TICKS: u64 = 100_000;
const FUNCTION_BYTES: u64 = 0x40;

pub struct Module {
    pub name: &'static str,
    pub base: u64,
    pub loaded: bool,
}

pub struct Function {
    pub name: &'static str,
    module: usize,
    address: u64,
    /// Chosen without naming its module.
    near: bool,
    refused: Option<&'static str>,
    /// The reason, if its site cannot be inserted now.
    pub busy: Option<&'static str>,
    line: u32,
}

pub struct Fake {
    pub modules: Vec<Module>,
    pub functions: Vec<Function>,
    /// The mode of each inserted site.
    pub inserted: BTreeMap<SiteKey, Mode>,
    /// Whether each probe is on.
    pub probes: BTreeMap<String, bool>,
    /// The data recorded of each.
    pub details: BTreeMap<SiteKey, Capture>,
    pub watched: Vec<u32>,
    pub budget: Option<Share>,
    pub children: bool,
    pub texts: Vec<String>,
    /// Each with its place.
    pub triggers: BTreeMap<String, (String, Trigger<Vec<SiteKey>>)>,
    pub hits: Hits,
    /// It is a flight recorder.
    pub flight: bool,
    /// Its trace is full.
    pub full: bool,
    pub detached: bool,
    /// The markers that are on, of [`MARKERS`].
    pub marked: Vec<&'static str>,
    /// The tracers for which kernel events are recorded.
    pub system: Vec<Tracer>,
    subscribers: BTreeMap<String, SubscriberId>,
    buffer: u64,
    counts: Counts,
    calls: Vec<Calls>,
    clock: u64,
    /// After this many changes that work, one fails.
    pub fails_after: Option<u32>,
    _folder: tempfile::TempDir,
    trace: PathBuf,
    writer: Option<Writer>,
    recorder: Recorder,
}

impl Fake {
    pub fn new() -> Fake {
        let modules = [
            ("prog", 0x55d0_e4c0_0000),
            ("libc.so.6", 0x7f00_1000_0000),
            ("libz.so.1", 0x7f00_2000_0000),
        ];
        let modules = modules.map(|(name, base)| Module {
            name,
            base,
            loaded: true,
        });
        let mut functions = Vec::new();
        let mut add = |module, address, name, near, refused| {
            functions.push(Function {
                name,
                module,
                address,
                near,
                refused,
                busy: None,
                line: 10 * (functions.len() as u32 + 1),
            });
        };
        add(
            0,
            0x1000,
            "_start",
            true,
            Some("the program's entry: nothing called it"),
        );
        add(0, 0x11e0, "main", true, None);
        add(0, 0x1220, "parse_line", true, None);
        add(0, 0x1260, "parse_file", true, None);
        add(0, 0x12a0, "parse_char", true, None);
        add(0, 0x12e0, "_ZN2ns1fEi", true, None);
        add(0, 0x1320, "new", true, None);
        add(1, 0x2000, "malloc", true, None);
        add(1, 0x2040, "free", true, None);
        add(1, 0x2080, "strlen", false, None);
        add(2, 0x3000, "deflate", false, None);
        add(2, 0x3040, "inflate", false, None);
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("nopal.data");
        Fake {
            modules: modules.into(),
            calls: vec![Calls::default(); functions.len()],
            functions,
            inserted: BTreeMap::new(),
            probes: BTreeMap::new(),
            details: BTreeMap::new(),
            watched: Vec::new(),
            budget: None,
            children: false,
            texts: Vec::new(),
            triggers: BTreeMap::new(),
            hits: Hits::default(),
            flight: false,
            full: false,
            detached: false,
            marked: Vec::new(),
            system: Vec::new(),
            subscribers: BTreeMap::new(),
            buffer: 64 << 20,
            counts: Counts::default(),
            clock: BEGIN,
            fails_after: None,
            _folder: folder,
            trace,
            writer: None,
            recorder: Recorder::new(PROCESS, PROCESS, BEGIN),
        }
    }

    pub fn key(&self, name: &str) -> SiteKey {
        let at = self
            .functions
            .iter()
            .position(|function| function.name == name);
        SiteKey(at.unwrap() as u32)
    }

    pub fn mode(&self, name: &str) -> Option<Mode> {
        self.inserted.get(&self.key(name)).copied()
    }

    /// Whether arguments and ends of an inserted function are recorded.
    pub fn capture(&self, name: &str) -> (bool, bool) {
        let capture = self.details[&self.key(name)];
        (capture.arguments, capture.ends)
    }

    pub fn address(&self, name: &str) -> u64 {
        let function = &self.functions[self.key(name).0 as usize];
        self.modules[function.module].base + function.address
    }

    /// Names of the functions in a mode.
    pub fn in_mode(&self, mode: Mode) -> Vec<&'static str> {
        let found = self.inserted.iter().filter(|(_, found)| **found == mode);
        found
            .map(|(key, _)| self.functions[key.0 as usize].name)
            .collect()
    }

    /// Has the program call these functions, each from the one before it.
    pub fn call(&mut self, names: &[&str]) {
        for (depth, name) in (0..).zip(names) {
            self.event(name, depth, true);
        }
        for (depth, name) in (0..).zip(names).collect::<Vec<_>>().into_iter().rev() {
            self.event(name, depth, false);
        }
    }

    fn event(&mut self, name: &str, depth: u64, entry: bool) {
        self.clock += CALL_TICKS;
        let key = self.key(name);
        if self.inserted.get(&key) != Some(&Mode::On) {
            return;
        }
        let (site, slot) = (key.0 + 1, SLOT - 32 * depth);
        let calls = &mut self.calls[key.0 as usize];
        self.counts.records += 1;
        if entry {
            self.recorder.entry(self.clock, site, slot);
            self.counts.entries += 1;
            calls.entries += 1;
        } else {
            self.recorder.exit(self.clock, site, slot);
            calls.exits += 1;
        }
    }

    /// The writer of its trace, which is begun when it is needed.
    fn writer(&mut self) -> &mut Writer {
        self.writer.get_or_insert_with(|| {
            let mut writer = Writer::create(&self.trace, Session::default()).unwrap();
            for note in notes(&self.modules, &self.functions) {
                writer.note(&note).unwrap();
            }
            writer
        })
    }

    fn may_change(&mut self) -> Result<()> {
        match &mut self.fails_after {
            Some(0) => {
                self.fails_after = None;
                bail!("no memory for a thunk")
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn found(&self, place: &Location, number: usize) -> bool {
        let function = &self.functions[number];
        let module = &self.modules[function.module];
        let address = module.base + function.address;
        let at = |base: u64, wanted: u64| {
            let begin = base + function.address;
            (begin..begin + FUNCTION_BYTES).contains(&wanted)
        };
        match place {
            Location::Address(wanted) => at(module.base, *wanted),
            Location::Range { start, end } => (*start..*end).contains(&address),
            Location::InModule {
                module: name,
                address,
            } => module.name == name && at(0, *address),
            Location::RangeInModule {
                module: name,
                start,
                end,
            } => module.name == name && (*start..*end).contains(&function.address),
            Location::Names(names) => {
                let Ok(selection) = Selection::new(std::slice::from_ref(names), &[]) else {
                    return false;
                };
                (function.near || selection.names_module(module.name))
                    && selection.chooses(&[function.name], module.name)
            }
            Location::Line { file, line } => {
                file == "main.c" && function.module == 0 && function.line == *line
            }
        }
    }
}

pub const MARKERS: [&str; 3] = ["net_rx", "net_tx", "disk"];

fn is_meant(pattern: &str, marker: &str) -> bool {
    let selection = Selection::new(&[pattern.to_owned()], &[]);
    selection.is_ok_and(|selection| selection.chooses(&[marker], "prog"))
}

fn notes(modules: &[Module], functions: &[Function]) -> Vec<Note> {
    let mut notes = vec![
        Note::Clock {
            counter: BEGIN,
            monotonic_ns: 0,
            realtime_ns: 0,
        },
        Note::Clock {
            counter: BEGIN + 1_000_000_000,
            monotonic_ns: 1_000_000_000,
            realtime_ns: 1_000_000_000,
        },
        Note::Process {
            process: PROCESS,
            parent: 1,
            counter: BEGIN,
            name: "prog".into(),
            executable: "/usr/bin/prog".into(),
            arguments: Vec::new(),
        },
        Note::Thread {
            process: PROCESS,
            thread: PROCESS,
            begin: BEGIN,
            name: "prog".into(),
            kernel: false,
        },
    ];
    for (image, module) in (0..).zip(modules) {
        let path = format!("/usr/lib/{}", module.name);
        notes.push(Note::Image {
            image,
            path: path.clone(),
            identity: module.name.into(),
        });
        notes.push(Note::Module {
            process: PROCESS,
            image,
            counter: BEGIN,
            base: module.base,
            path,
        });
        let sites = (1..)
            .zip(functions)
            .filter(|(_, function)| function.module == image as usize)
            .map(|(site, function)| {
                let name = function.name.to_owned();
                (site, function.address, FUNCTION_BYTES, name)
            });
        notes.push(Note::Sites {
            image,
            sites: sites.collect(),
        });
    }
    notes
}

impl Lookup for Fake {
    fn find(&mut self, place: &Location) -> Result<Vec<FoundSite>> {
        let all = (0..self.functions.len()).filter(|number| {
            self.modules[self.functions[*number].module].loaded && self.found(place, *number)
        });
        let found = all.map(|number| {
            let function = &self.functions[number];
            let module = &self.modules[function.module];
            FoundSite {
                key: SiteKey(number as u32),
                address: module.base + function.address,
                is_refused: function.refused.is_some(),
            }
        });
        Ok(found.collect())
    }

    fn describe(&mut self, sites: &[SiteKey]) -> Vec<nopal_control::Function> {
        let functions = sites.iter().map(|key| {
            let function = &self.functions[key.0 as usize];
            nopal_control::Function {
                name: function.name.into(),
                module: self.modules[function.module].name.into(),
                executable: function.module == 0,
                refused: function.refused.map(Into::into),
                thunk: self
                    .inserted
                    .get(key)
                    .map(|_| 0x55d0_e3c0_0040 + 0x40 * u64::from(key.0)),
            }
        });
        functions.collect()
    }

    fn nearest(&mut self, missing: Missing) -> Vec<String> {
        let near = match missing {
            Missing::Functions(Location::Names(wanted)) => {
                let names = self.functions.iter().map(|function| function.name);
                nearest(names, wanted)
            }
            Missing::Functions(_) => Vec::new(),
            Missing::Marker(name) => nearest(MARKERS, name),
        };
        near.into_iter().map(Into::into).collect()
    }

    fn locate(&mut self, address: u64) -> Option<FileAddress> {
        let module = self
            .modules
            .iter()
            .find(|module| (module.base..module.base + 0x10000).contains(&address))?;
        Some(FileAddress {
            module: module.name.into(),
            address: address - module.base,
        })
    }

    fn markers(&mut self, name: &str) -> Result<Vec<String>> {
        let meant = MARKERS.iter().filter(|marker| is_meant(name, marker));
        Ok(meant.map(|marker| marker.to_string()).collect())
    }

    fn place(&mut self, probe: &Probe) -> Result<()> {
        let known = match &probe.place {
            Spot::Named { name, .. } => self.functions.iter().any(|one| one.name == name),
            _ => true,
        };
        ensure!(known, "no function is named {}", probe.place);
        Ok(())
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            directory: &self.trace,
            capture: Capture {
                arguments: false,
                ends: true,
                call_sites: false,
            },
            buffer: self.buffer,
            clock: self.clock,
            no_snapshots: (!self.flight).then_some("the session keeps everything"),
            no_detaching: None,
            no_starting: self.full.then_some("the trace is full"),
        }
    }
}

impl Engine for Fake {
    fn apply(&mut self, change: &Change) -> Result<Applied> {
        let mut refused = Vec::new();
        match change {
            Change::Subscribe { name, live } => {
                let subscriber = Box::new(live.subscriber(|_, _| None));
                let subscriber = self.writer().subscribe(subscriber)?;
                self.subscribers.insert(name.clone(), subscriber);
            }
            Change::Unsubscribe { name } => {
                let subscriber = self.subscribers.remove(name).expect("it has subscribed");
                self.writer().unsubscribe(subscriber);
            }
            Change::RecordKernelEvents(tracers) => self.system = tracers.to_vec(),
            Change::RemoveTrigger { name } => {
                self.triggers.remove(name);
            }
            Change::Stop | Change::Start => {}
            Change::Insert { sites, capture } => refused = self.insert(sites, *capture)?,
            Change::Switch { sites, mode } => {
                self.may_change()?;
                for site in sites {
                    if let Some(is) = self.inserted.get_mut(site) {
                        *is = *mode;
                    }
                }
            }
            Change::Remove { sites } => {
                self.may_change()?;
                for site in sites {
                    self.inserted.remove(site);
                }
            }
            Change::Mark(marks) => {
                self.may_change()?;
                let is_on = |marker: &&str| {
                    let mut marks = marks.iter().rev();
                    let last = marks.find(|mark| is_meant(&mark.name, marker));
                    last.is_some_and(|mark| mark.on)
                };
                self.marked = MARKERS.into_iter().filter(is_on).collect();
            }
            Change::InsertProbe(probe) => {
                self.may_change()?;
                let old = self.probes.insert(probe.name.clone(), false);
                assert!(old.is_none(), "{} is in already", probe.name);
            }
            Change::SwitchProbe { name, on } => {
                self.may_change()?;
                *self.probes.get_mut(name).expect("it is in") = *on;
            }
            Change::RemoveProbe { name } => {
                self.may_change()?;
                self.probes.remove(name).expect("it is in");
            }
            Change::Watch(Watch { ids, children }) => {
                self.may_change()?;
                for id in ids {
                    ensure!(
                        (PROCESS..PROCESS + 4).contains(id),
                        "no thread or process {id} in this session"
                    );
                }
                self.watched = ids.clone();
                self.children = *children;
            }
            Change::Budget(share) => {
                self.may_change()?;
                self.budget = *share;
            }
            Change::SetTrigger {
                name,
                place,
                trigger,
            } => {
                self.may_change()?;
                let trigger = trigger.clone().map(|sites| sites.to_vec());
                self.triggers.insert(name.clone(), (place.clone(), trigger));
            }
        }
        let answer = String::new();
        Ok(Applied { refused, answer })
    }

    fn perform(&mut self, act: Act) -> Result<String> {
        match act {
            Act::Flush => {
                self.writer();
                self.recorder.end_chunk();
                if let Some(writer) = &mut self.writer {
                    self.recorder.write_full(writer)?;
                }
            }
            Act::Resize(bytes) => {
                self.may_change()?;
                ensure!(
                    (1 << 20..=1 << 34).contains(&bytes),
                    "the buffer has from 1 MiB to 16 GiB"
                );
                self.buffer = bytes.next_multiple_of(64 << 10);
            }
            Act::Simulate(site) => {
                let name = self.functions[site.0 as usize].name;
                self.event(name, 0, true);
            }
            Act::Write { text, counter } => {
                let at = counter.map_or_else(String::new, |counter| format!("{counter} "));
                self.texts.push(format!("{at}{text}"));
            }
            Act::Snapshot { why } => return Ok(format!("snapshot-1: {why}")),
            Act::ClearCounts => {
                self.counts = Counts::default();
                self.calls.fill(Calls::default());
            }
            Act::Detach => self.detached = true,
        }
        Ok(String::new())
    }

    fn counts(&mut self) -> Counts {
        Counts {
            bytes: 8 * self.counts.records,
            ..self.counts
        }
    }

    fn calls(&mut self, sites: &[SiteKey]) -> Calls {
        let mut all = Calls::default();
        for site in sites {
            let calls = self.calls[site.0 as usize];
            all.entries += calls.entries;
            all.exits += calls.exits;
        }
        all
    }

    fn probe_note(&mut self, _: &str) -> Option<String> {
        None
    }

    fn spending(&mut self) -> Option<String> {
        None
    }

    fn hits(&mut self, name: &str) -> Hits {
        assert!(self.triggers.contains_key(name), "{name}");
        self.hits
    }

    fn snapshots(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn metrics(&mut self) -> Vec<Metric> {
        let lost = self.counts.lost as f64;
        vec![Metric::plain(
            "nopal_lost_events_total",
            Kind::Counter,
            "Lost.",
            lost,
        )]
    }
}

impl Fake {
    fn insert(&mut self, sites: &[SiteKey], capture: Capture) -> Result<Vec<Refused>> {
        self.may_change()?;
        let mut refused = Vec::new();
        for &key in sites {
            let function = &self.functions[key.0 as usize];
            ensure!(
                function.refused.is_none(),
                "{} cannot be traced",
                function.name
            );
            match function.busy {
                Some(reason) => refused.push(Refused {
                    key,
                    reason: reason.into(),
                }),
                None if self.inserted.contains_key(&key)
                    && self.details[&key].and(capture) == self.details[&key] => {}
                None => {
                    let inserted = self.inserted.contains_key(&key);
                    let known = self.details.get(&key).copied().filter(|_| inserted);
                    let wanted = known.unwrap_or_default().and(capture);
                    if known != Some(wanted) {
                        self.inserted.insert(key, Mode::Off);
                        self.details.insert(key, wanted);
                    }
                }
            }
        }
        Ok(refused)
    }
}

// ---- what a shell does ----

/// `cat`
pub fn cat(control: &mut Control, fake: &mut Fake, path: &str) -> String {
    let access = Access {
        read: true,
        ..Access::default()
    };
    let mut file = control.open(fake, path, access).unwrap();
    let text = read_all(&mut file, 1000);
    control.close(fake, file).unwrap();
    text
}

/// All that can be read now, in pieces.
pub fn read_all(file: &mut File, piece: usize) -> String {
    let mut bytes = Vec::new();
    loop {
        match file.read(bytes.len() as u64, piece).unwrap() {
            Content::Bytes(more) if more.is_empty() => break,
            Content::Bytes(more) => bytes.extend(more),
            Content::Later => break,
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// `echo TEXT >`, or with `append` `>>`
pub fn echo(
    control: &mut Control,
    fake: &mut Fake,
    text: &str,
    path: &str,
    append: bool,
) -> Result<(), Failure> {
    let access = Access {
        write: true,
        truncate: !append,
        ..Access::default()
    };
    let mut file = control.open(fake, path, access)?;
    let written = control.write(fake, &mut file, format!("{text}\n").as_bytes());
    written.and(control.close(fake, file))
}
