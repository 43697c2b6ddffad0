//! The operations that control needs from a recording.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use nopal_abi::Capture;
use nopal_analysis::tracers::{Live, Tracer};
use nopal_analysis::triggers::{Hits, Trigger};

use crate::budget::Share;
use crate::metrics::Metric;
use crate::probe::Probe;
use crate::selection::Location;
use crate::site_key::SiteKey;

/// A function at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSite {
    pub key: SiteKey,
    /// In the session's first process that has it.
    pub address: u64,
    /// It can never be traced.
    pub is_refused: bool,
}

/// A function, as the engine describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// As the file has it, not demangled.
    pub name: String,
    /// File name of the module, without folders.
    pub module: String,
    /// Whether the module is the program itself, no library.
    pub executable: bool,
    /// Why it can never be traced, as `nopal list` says it.
    pub refused: Option<String>,
    /// Where its thunk is, in the session's first process that has it; `None` if it is not inserted.
    pub thunk: Option<u64>,
}

impl Function {
    /// `NAME@MODULE`, with nothing in it that a terminal would obey.
    pub fn printable(&self) -> String {
        let text = format!("{}@{}", self.name, self.module);
        nopal_symbols::printable(&text).into_owned()
    }
}

/// An address of the process, by what does not change when the program is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAddress {
    /// File name of the module, without folders.
    pub module: String,
    /// In the file.
    pub address: u64,
}

/// A function or marker that no loaded file has.
#[derive(Clone, Copy, Debug)]
pub enum Missing<'a> {
    Functions(&'a Location),
    Marker(&'a str),
}

/// How an inserted site treats calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Its calls are not recorded, and pay a jump or two.
    #[default]
    Off,
    /// Like that, for the sake of a budget, which has its jump out then: the trace tells that its calls are missing.
    Spared,
    /// Its calls are counted, and nothing else is known of them: the trace tells how many there were, and when.
    Counted,
    /// Its calls pay what a recorded one pays, and no record of them gets into the trace.
    Silent,
    /// Its calls are recorded.
    On,
}

impl Mode {
    /// Whether calls run through what records them.
    pub fn pays(self) -> bool {
        matches!(self, Mode::Silent | Mode::On)
    }

    /// The mode that does what both do.
    pub fn and(self, other: Mode) -> Mode {
        match (self, other) {
            // How many calls there were would not be in the trace.
            (Mode::Counted, Mode::Silent) | (Mode::Silent, Mode::Counted) => Mode::On,
            _ => self.max(other),
        }
    }
}

/// A site that stays as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub key: SiteKey,
    pub reason: String,
}

/// Since the session began, or since [`Act::ClearCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of entries and exits in the trace.
    pub records: u64,
    /// Records of entries in the trace.
    pub entries: u64,
    /// The length of all records in the trace, including those of markers and kernel events. Never cleared.
    pub bytes: u64,
    /// Events that came to nothing because no room was left.
    pub lost: u64,
}

/// Calls of some sites, likewise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub entries: u64,
    pub exits: u64,
}

/// Other facts about a session.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The trace directory.
    pub directory: &'a Path,
    /// The data that it records of calls, unless a command asks for more or less.
    pub capture: Capture,
    /// Memory for records that are not written out yet. In bytes.
    pub buffer: u64,
    /// The timestamp of records of this moment.
    pub clock: u64,
    /// Why [`Act::Snapshot`] never can be done.
    pub no_snapshots: Option<&'static str>,
    /// Why [`Act::Detach`] never can be done.
    pub no_detaching: Option<&'static str>,
}

/// Markers that are switched: those whose names match the glob, or a part of them `GLOB@MODULE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub name: String,
    pub on: bool,
}

/// The processes and threads whose records are kept; all, if there are none. With `children`, also the records of
/// the processes that these fork from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    pub ids: Vec<u32>,
    pub children: bool,
}

/// A step from what is set up to what is wanted.
#[derive(Clone, Debug)]
pub enum Change {
    /// Puts the jumps of sites into the text, switched to [`Mode::Off`]. Sites that are inserted already, and record as
    /// much as `capture` asks for, stay as they are. The answer names the sites that cannot be inserted; all others
    /// are.
    Insert {
        sites: Vec<SiteKey>,
        capture: Capture,
    },
    /// Has taken effect on all threads of all processes when it returns. Sites that are not inserted are passed over.
    Switch {
        sites: Vec<SiteKey>,
        mode: Mode,
    },
    /// Takes the jumps of sites out of the text. Sites that are [`Mode::Spared`] still are. Sites that are not inserted
    /// are skipped.
    Remove {
        sites: Vec<SiteKey>,
    },
    /// Has the markers on for which the last of these that means them says so, and all others off, in what is loaded
    /// and in what will be.
    Mark(Vec<Mark>),
    /// Puts a probe in, switched off. The answer is where, for a person; an error tells the candidates where there are
    /// several. Where its module is not loaded, it is put in when that is.
    InsertProbe(Probe),
    /// Has taken effect on all threads of all processes when it returns.
    SwitchProbe {
        name: String,
        on: bool,
    },
    RemoveProbe {
        name: String,
    },
    /// An error names an id that is not of the session.
    Watch(Watch),
    /// Has kernel events recorded that these tracers need, and no others but those that the session was asked for. An
    /// error says what is forbidden, and how to allow it.
    RecordKernelEvents(Vec<Tracer>),
    /// Subscribes a tracer to records as they come, and to all notes from the trace's first on.
    Subscribe {
        name: String,
        live: Live,
    },
    Unsubscribe {
        name: String,
    },
    /// Has a trigger looked for from now on, or, if there is one of this name, at another place, in the records of sites
    /// that are [`Mode::Silent`] or [`Mode::On`]. `place` is its name in messages. When it has fired, the engine's owner
    /// calls [`crate::Control::fired`]; the engine takes snapshots itself.
    SetTrigger {
        name: String,
        place: String,
        trigger: Trigger<Arc<[SiteKey]>>,
    },
    /// Has the cost of recording measured, and [`crate::Control::spare`] called as often as it has to change.
    Budget(Option<Share>),
    /// Its sites stay as they are.
    RemoveTrigger {
        name: String,
    },
    /// Tells in the trace that the user has recording stopped from now on, or started.
    Stop,
    Start,
}

/// The outcome of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Sites that could not be inserted.
    pub refused: Vec<Refused>,
    /// For a person; often nothing.
    pub answer: String,
}

/// An action that leaves the setup as it is.
#[derive(Clone, Copy, Debug)]
pub enum Act<'a> {
    /// Brings all that has been recorded into the trace directory, where it can be read, and to those who subscribed.
    Flush,
    /// Changes the size of the memory for records; it may take less than asked, and [`Facts::buffer`] tells how much.
    /// An error tells the bounds.
    Resize(u64),
    /// Writes the record of an entry into the trace, as if the calling thread of the tool had entered the function.
    Simulate(SiteKey),
    /// Writes a text into the trace, at a value of the counter, or else now.
    Write { text: &'a str, counter: Option<u64> },
    /// Writes what the flight recorder holds now into a trace of its own. The answer is what it is called.
    Snapshot { why: &'a str },
    /// Starts all counts at 0: what has been recorded so far counts no more.
    ClearCounts,
    /// Ends the session as soon as this has been obeyed.
    Detach,
}

/// Looks up what is loaded in the processes of a session, and what is traced there.
pub trait Lookup {
    /// The functions at a location, in all that is loaded now, by module and address, each once; none is no error.
    fn find(&mut self, location: &Location) -> Result<Vec<FoundSite>>;

    /// In the order of `sites`.
    fn describe(&mut self, sites: &[SiteKey]) -> Vec<Function>;

    /// The names of the markers in all that is loaded that a glob means.
    fn markers(&mut self, glob: &str) -> Result<Vec<String>>;

    /// An error tells why a probe can be nowhere, in what is loaded and in what may come.
    fn place(&mut self, probe: &Probe) -> Result<()>;

    /// Names close to that of what is missing, the closest first: for an error message.
    fn nearest(&mut self, missing: Missing) -> Vec<String>;

    /// In which file an address of the session's first process is. `None` where that tells nothing: in no file, or in
    /// one that is always loaded at the same place.
    fn locate(&mut self, address: u64) -> Option<FileAddress>;

    fn facts(&self) -> Facts<'_>;
}

/// A recording in progress, of one process and of those that it made.
///
/// Where a process of the session loads a library, or executes another program, the engine's owner calls
/// [`crate::Control::refresh`], which finds all locations again.
pub trait Engine: Lookup {
    /// An error means that nothing has changed, as far as can be known.
    fn apply(&mut self, change: &Change) -> Result<Applied>;

    /// The answer is text for a person.
    fn perform(&mut self, act: Act) -> Result<String>;

    fn counts(&mut self) -> Counts;

    fn calls(&mut self, sites: &[SiteKey]) -> Calls;

    /// For people: how the probe of this name is there, where that is not as was asked, or not yet.
    fn probe_note(&mut self, name: &str) -> Option<String>;

    /// The present cost of recording, and the budget, in a line for people, if there is a budget.
    fn spending(&mut self) -> Option<String>;

    /// The hits of the trigger of this name.
    fn hits(&mut self, trigger: &str) -> Hits;

    /// The results of snapshots so far, a line each, for people.
    fn snapshots(&mut self) -> Vec<String>;

    /// The session's figures, for a machine.
    fn metrics(&mut self) -> Vec<Metric>;
}
