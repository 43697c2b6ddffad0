//! The operations that control needs from a recording.

use std::path::Path;

use anyhow::Result;
use nopal_abi::Capture;
use nopal_analysis::tracers::Tracer;
use nopal_analysis::triggers::{Hits, Trigger};
use nopal_trace::{Subscriber, SubscriberId};

use crate::probe::Probe;
use crate::selection::Location;

/// A function of a file that a session traces, in whichever of its processes. The engine chooses the number. It means
/// the same function until the session ends, also while the file is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteKey(pub u64);

/// A function at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSite {
    pub key: SiteKey,
    /// In the session's first process that has it.
    pub address: u64,
    /// In bytes.
    pub size: u64,
    /// As the file has it, not demangled.
    pub name: String,
    /// File name of the module, without folders.
    pub module: String,
    /// Whether the module is the program itself, no library.
    pub executable: bool,
    /// Why it can never be traced, as `nopal list` says it.
    pub refused: Option<String>,
}

/// An address of the process, by what does not change when the program is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAddress {
    /// File name of the module, without folders.
    pub module: String,
    /// In the file.
    pub address: u64,
}

/// The state of an inserted site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its calls are not recorded, and pay a jump or two.
    Off,
    /// Its calls pay what a recorded one pays, and no record of them gets into the trace.
    Silent,
    /// Its calls are recorded.
    On,
}

/// A site that stays as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub key: SiteKey,
    pub reason: String,
}

/// Since the session began, or since [`Engine::clear_counts`].
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

/// Calls of a site, since the session began, or since [`Engine::clear_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub entries: u64,
    pub exits: u64,
}

/// Markers that are switched: those whose names match the glob, or a part of them `GLOB@MODULE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub name: String,
    pub on: bool,
}

/// A recording in progress, of one process and of those that it made. An error means that nothing has changed.
///
/// Where a process of the session loads a library, or executes another program, the engine's owner calls
/// [`crate::Control::refresh`], which finds all places again.
pub trait Engine {
    /// The functions that a place means, in all that is loaded now, by module and address, each once; none is no error.
    fn find(&mut self, place: &Location) -> Result<Vec<FoundSite>>;

    /// Names close to those that a place without functions asks for, the closest first: for an error message.
    fn nearest(&mut self, place: &Location) -> Vec<String>;

    /// In which file an address of the session's first process is. `None` where that tells nothing: in no file, or in
    /// one that is always loaded at the same place.
    fn locate(&mut self, address: u64) -> Option<FileAddress>;

    /// The data that a session records of calls by default.
    fn capture(&self) -> Capture;

    /// Puts the jumps of sites into the text, switched to [`Mode::Off`]. Sites that are inserted already, and record as
    /// much as `capture` asks for, stay as they are. Gives those that could not be inserted; the others all are.
    fn insert(&mut self, sites: &[SiteKey], capture: Capture) -> Result<Vec<Refused>>;

    /// Where the thunk of a site is, in the session's first process that has it; `None` if it is not inserted.
    fn thunk(&mut self, site: SiteKey) -> Option<u64>;

    /// Has taken effect on all threads of all processes when it returns. Sites that are not inserted are passed over.
    fn switch(&mut self, sites: &[SiteKey], mode: Mode) -> Result<()>;

    /// Takes the jumps of sites out of the text. Sites that are not inserted are passed over.
    fn remove(&mut self, sites: &[SiteKey]) -> Result<()>;

    /// Has the markers on for which the last of `marks` that means them says so, and all others off, in what is loaded
    /// and in what will be.
    fn mark(&mut self, marks: &[Mark]) -> Result<()>;

    /// The names of the markers in all that is loaded that a glob means.
    fn markers(&mut self, name: &str) -> Result<Vec<String>>;

    /// Names of markers close to one that there is not.
    fn nearest_markers(&mut self, name: &str) -> Vec<String>;

    /// Puts a probe in, switched off. Says where, for a person; an error tells the candidates where there are several.
    /// Where its module is not loaded, it is put in when that is.
    fn insert_probe(&mut self, probe: &Probe) -> Result<String>;

    /// Has taken effect on all threads of all processes when it returns.
    fn switch_probe(&mut self, name: &str, on: bool) -> Result<()>;

    fn remove_probe(&mut self, name: &str) -> Result<()>;

    /// Records only what these processes and threads do; all, if there are none. With `children`, also what do the
    /// processes that these fork from now on. An error names an id that is not of the session.
    fn watch(&mut self, ids: &[u32], children: bool) -> Result<()>;

    /// Memory for records that are not written out yet. In bytes.
    fn buffer(&self) -> u64;

    /// Changes the size of that memory; it may take less than asked, and [`Engine::buffer`] tells how much. An error
    /// tells the bounds.
    fn resize(&mut self, bytes: u64) -> Result<()>;

    fn counts(&mut self) -> Counts;

    /// In the order of `sites`.
    fn calls(&mut self, sites: &[SiteKey]) -> Vec<Calls>;

    /// Writes the record of an entry into the trace, as if the calling thread of the tool had entered the function.
    fn simulate(&mut self, site: SiteKey) -> Result<()>;

    /// Writes a text into the trace, at a value of the counter, or else now.
    fn write_text(&mut self, text: &str, counter: Option<u64>) -> Result<()>;

    /// Has a trigger looked for from now on, or, if there is one of this name, at another place, in the records of sites
    /// that are [`Mode::Silent`] or [`Mode::On`]. `place` is what people are told. When it has fired, the engine's owner
    /// calls [`crate::Control::fired`]; the engine takes snapshots itself.
    fn set_trigger(
        &mut self,
        name: &str,
        place: String,
        trigger: Trigger<Vec<SiteKey>>,
    ) -> Result<()>;

    /// Sites of a trigger that is removed stay as they are.
    fn remove_trigger(&mut self, name: &str);

    fn hits(&mut self, name: &str) -> Hits;

    /// An error tells why [`Engine::snapshot`] never can.
    fn may_snapshot(&self) -> Result<()>;

    /// Writes what the flight recorder holds now into a trace of its own. Returns what it is called.
    fn snapshot(&mut self, why: &str) -> Result<String>;

    /// The results of snapshots so far, a line each, for people.
    fn snapshots(&mut self) -> Vec<String>;

    /// An error tells why [`Engine::detach`] never can.
    fn may_detach(&self) -> Result<()>;

    /// Ends the session as soon as this has been obeyed.
    fn detach(&mut self) -> Result<()>;

    /// Has kernel events recorded that these tracers need, and no others but those that the session was asked
    /// for. An error says what is forbidden, and how to allow it.
    fn record_kernel_events(&mut self, tracers: &[Tracer]) -> Result<()>;

    /// Has a listener told of records as they come, and of all notes from the trace's first on. When
    /// [`Engine::flush`] returns, it has heard of all that was recorded before.
    fn subscribe(&mut self, subscriber: Box<dyn Subscriber>) -> Result<SubscriberId>;

    fn unsubscribe(&mut self, subscriber: SubscriberId);

    /// Brings all that has been recorded into the trace directory, where it can be read.
    fn flush(&mut self) -> Result<()>;

    /// Starts all counts at 0: what has been recorded so far counts no more.
    fn clear_counts(&mut self);

    /// The current clock of records.
    fn clock(&self) -> u64;

    /// The trace directory.
    fn directory(&self) -> &Path;
}
