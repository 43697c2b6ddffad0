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
    /// The address in the session's first process that has it.
    pub address: u64,
    /// It can never be traced.
    pub is_refused: bool,
}

/// A function, as the engine describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The name as in the file, not demangled.
    pub name: String,
    /// File name of the module, without folders.
    pub module: String,
    /// Whether the module is the program itself, no library.
    pub executable: bool,
    /// The reason why it can never be traced, as `nopal list` says it.
    pub refused: Option<String>,
    /// The address of its thunk, in the session's first process that has it; `None` if it is not inserted.
    pub thunk: Option<u64>,
}

impl Function {
    /// `NAME@MODULE`, with nothing in it that a terminal would obey.
    pub fn printable(&self) -> String {
        let text = format!("{}@{}", self.name, self.module);
        nopal_symbols::printable(&text).into_owned()
    }
}

/// An address in a file, which stays the same when the program is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAddress {
    /// File name of the module, without folders.
    pub module: String,
    /// The address in the file.
    pub address: u64,
}

/// A function or marker that no loaded file has.
#[derive(Clone, Copy, Debug)]
pub enum Missing<'a> {
    Functions(&'a Location),
    Marker(&'a str),
}

/// The way in which an inserted site treats calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Its calls are not recorded, and pay a jump or two.
    #[default]
    Off,
    /// Off for the sake of a budget, with its jump out: the trace tells that its calls are missing.
    Spared,
    /// Its calls are counted, and nothing else is known of them: the trace tells how many there were, and when.
    Counted,
    /// Its calls cost as much as recorded ones, but no record of them gets into the trace.
    Silent,
    /// Its calls are recorded.
    On,
}

impl Mode {
    /// Whether calls run through the code that records them.
    pub fn pays(self) -> bool {
        matches!(self, Mode::Silent | Mode::On)
    }

    /// The mode that does the work of both.
    pub fn and(self, other: Mode) -> Mode {
        match (self, other) {
            // Otherwise the trace would not have the number of calls.
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

/// Counts since the session began, or since [`Act::ClearCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records in the trace: entries, exits, markers, probes, and tracepoints of the kernel; no switches and wake-ups.
    pub records: u64,
    /// Records of entries in the trace, since they are counted.
    pub entries: u64,
    /// Whether entries and exits are counted from now on.
    pub begins: bool,
    /// The length of all records in the trace, including those of markers and kernel events. Never cleared.
    pub bytes: u64,
    /// Events that were not recorded for want of room.
    pub lost: u64,
}

/// Counts of the calls of some sites, from the same time on.
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
    /// The reason why [`Act::Snapshot`] never can be done.
    pub no_snapshots: Option<&'static str>,
    /// The reason why [`Act::Detach`] never can be done.
    pub no_detaching: Option<&'static str>,
    /// The reason why nothing can be recorded any more.
    pub no_starting: Option<&'static str>,
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

/// A step from one setup to another.
#[derive(Clone, Debug)]
pub enum Change {
    /// Puts the jumps of sites into the text, switched to [`Mode::Off`]. Sites that are inserted already, and record as
    /// much as `capture` asks for, stay as they are. The answer names the sites that cannot be inserted; all others
    /// are.
    Insert {
        sites: Vec<SiteKey>,
        capture: Capture,
    },
    /// Takes effect on all threads of all processes before `apply` returns. Sites that are not inserted are skipped.
    Switch {
        sites: Vec<SiteKey>,
        mode: Mode,
    },
    /// Takes the jumps of sites out of the text. Sites that are [`Mode::Spared`] still are. Sites that are not inserted
    /// are skipped.
    Remove {
        sites: Vec<SiteKey>,
    },
    /// Switches each marker, now loaded or later, as the last of these that matches it says, and all others off.
    Mark(Vec<Mark>),
    /// Puts a probe in, switched off. The answer names its place, for a person; an error names the candidates where
    /// there are several. Where the module is not loaded, the probe is put in as soon as it is.
    InsertProbe(Probe),
    /// Takes effect on all threads of all processes before `apply` returns.
    SwitchProbe {
        name: String,
        on: bool,
    },
    RemoveProbe {
        name: String,
    },
    /// An error names an id that is not of the session.
    Watch(Watch),
    /// Has the kernel events recorded that these tracers need, and otherwise only those that the session was asked for.
    /// An error says what is forbidden, and how to allow it.
    RecordKernelEvents(Vec<Tracer>),
    /// Subscribes a tracer to records as they come, and to all notes from the trace's first on.
    Subscribe {
        name: String,
        live: Live,
    },
    Unsubscribe {
        name: String,
    },
    /// Sets a trigger, or moves the one of this name to another place. It is looked for in the records of sites that
    /// are [`Mode::Silent`] or [`Mode::On`]. `place` is its name in messages. When it has fired, the engine's owner
    /// calls [`crate::Control::fired`]; the engine takes snapshots itself.
    SetTrigger {
        name: String,
        place: String,
        trigger: Trigger<Arc<[SiteKey]>>,
    },
    /// Has the cost of recording measured, and [`crate::Control::spare`] called whenever the spared functions have to
    /// change.
    Budget(Option<Share>),
    /// The trigger's sites stay as they are.
    RemoveTrigger {
        name: String,
    },
    /// Notes in the trace that the user has stopped recording, or started it.
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
    /// Brings all records so far into the trace directory, where they can be read, and to the subscribers.
    Flush,
    /// Changes the size of the memory for records. It may become less than asked: [`Facts::buffer`] tells. An error
    /// names the bounds.
    Resize(u64),
    /// Writes the record of an entry into the trace, as if the calling thread of the tool had entered the function.
    Simulate(SiteKey),
    /// Writes a text into the trace, at a value of the counter, or else now.
    Write { text: &'a str, counter: Option<u64> },
    /// Writes the present content of the flight recorder into a trace of its own. The answer is the trace's name.
    Snapshot { why: &'a str },
    /// Starts all counts at 0: earlier records count no more.
    ClearCounts,
    /// Ends the session as soon as the command has been obeyed.
    Detach,
}

/// Looks up what is loaded in the processes of a session, and what is traced there.
pub trait Lookup {
    /// The functions at a location, in all that is loaded now, by module and address, each once; none is no error.
    fn find(&mut self, location: &Location) -> Result<Vec<FoundSite>>;

    /// The functions in the order of `sites`.
    fn describe(&mut self, sites: &[SiteKey]) -> Vec<Function>;

    /// The names of the markers in all that is loaded that a glob means.
    fn markers(&mut self, glob: &str) -> Result<Vec<String>>;

    /// Checks that there can be such a probe in modules that are loaded or may come. An error tells why not.
    fn place(&mut self, probe: &Probe) -> Result<()>;

    /// The names closest to the missing one, the closest first: for an error message.
    fn nearest(&mut self, missing: Missing) -> Vec<String>;

    /// The file in which an address of the session's first process is. `None` where that tells nothing: in no file, or
    /// in one that is always loaded at the same place.
    fn locate(&mut self, address: u64) -> Option<FileAddress>;

    fn facts(&self) -> Facts<'_>;
}

/// A recording in progress, of one process and of those that it made.
///
/// Where a process of the session loads a library, or executes another program, the engine's owner calls
/// [`crate::Control::refresh`], which finds all locations again.
pub trait Engine: Lookup {
    /// After an error nothing has changed, as far as can be known.
    fn apply(&mut self, change: &Change) -> Result<Applied>;

    /// The answer is text for a person.
    fn perform(&mut self, act: Act) -> Result<String>;

    fn counts(&mut self) -> Counts;

    fn calls(&mut self, sites: &[SiteKey]) -> Calls;

    /// For people: the state of the probe of this name, where it is not as was asked, or not there yet.
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
