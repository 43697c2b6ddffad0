//! The file `session/notes`: facts about a trace besides its records, one JSON object a line.

use crate::field::Field;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// One line of `session/notes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// The first line of every trace.
    Session(Session),
    /// The counter and the kernel's clocks, read at one moment.
    Clock {
        counter: u64,
        monotonic_ns: u64,
        realtime_ns: u64,
    },
    /// The cost of recording a call, measured when the recording began, in thousandths of a tick of the counter: in
    /// all, and the part between the clocks of entry and exit.
    Cost {
        call: u64,
        within: u64,
    },
    /// From this counter on, recording is kept within this part of the processor time that the processes use themselves,
    /// by having functions off; none: not any more.
    Budget {
        counter: u64,
        percent: Option<f64>,
    },
    /// From this counter on, the calls of these sites are all recorded, or counted, or neither. Sites without such a
    /// note are timed.
    State {
        counter: u64,
        #[serde(flatten)]
        state: SiteState,
        sites: Vec<u32>,
        /// They begin off, as they were when another session of the program ended.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kept: bool,
        /// They are counted, but for calls at random, and until the next state these are all calls that are recorded.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sampled: bool,
    },
    /// The total counts of sites up to this counter, in the processes that have the memory of this number: of the sites
    /// whose counts have grown since the last such note.
    Counted {
        counter: u64,
        memory: u64,
        calls: Vec<(u32, u64)>,
    },
    /// A process began, or (the same process again) replaced its program by exec.
    Process {
        process: u32,
        parent: u32,
        counter: u64,
        name: String,
        executable: String,
        arguments: Vec<String>,
    },
    /// A thread, or (the same again) its new name. `begin` is the packets' `thread_begin`. `kernel`: its records were
    /// made in the kernel.
    Thread {
        process: u32,
        thread: u32,
        begin: u64,
        name: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kernel: bool,
    },
    /// A task of no traced process that kernel events tell of, from this counter on.
    Other {
        process: u32,
        thread: u32,
        begin: u64,
        name: String,
    },
    /// The user a thread runs for and its scheduling, read at this counter, and again when that has changed.
    Task {
        process: u32,
        thread: u32,
        counter: u64,
        facts: TaskFacts,
    },
    /// A thread is called by this number in its own PID namespace; a process by that of its first thread.
    Inside {
        process: u32,
        thread: u32,
        number: u32,
    },
    /// A process and its threads, or only this thread of it, are known by the numbers of a PID namespace of their own,
    /// since they had ended when they were looked for outside. Kernel events have others for them.
    Namespace {
        process: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<u32>,
    },
    /// An image was loaded into a process.
    Module {
        process: u32,
        image: u32,
        counter: u64,
        base: u64,
        path: String,
    },
    Unload {
        process: u32,
        image: u32,
        counter: u64,
        base: u64,
    },
    /// A file with code. `identity` is its build-id, or a hash of its content.
    Image {
        image: u32,
        path: String,
        identity: String,
    },
    /// Site number, link-time address, size in bytes and raw name. Written before a site is switched on; a number
    /// means the same site in the whole trace.
    Sites {
        image: u32,
        sites: Vec<(u32, u64, u64, String)>,
    },
    /// A marker that may occur, and the number of its events. Written before it is switched on.
    Marker {
        event: u32,
        image: u32,
        name: String,
        format: String,
        fields: Vec<Field>,
        file: String,
        line: u32,
        /// It is a tracepoint of the kernel: fields whose names begin with `common_` are of the processor.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tracepoint: bool,
    },
    /// The number of functions of an image that are not traced, and why.
    Refused {
        image: u32,
        count: u64,
        reasons: Vec<(String, u64)>,
    },
    /// Events that were not recorded, since the process's previous such note.
    Lost {
        process: u32,
        events: u64,
        /// The number of them for each known reason, by its name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        reasons: BTreeMap<String, u64>,
    },
    /// A thread lived at this counter, and of its events from `since` until then none is missing: calls that are open at its
    /// last record were open, unless that is before `since`.
    Alive {
        process: u32,
        thread: u32,
        begin: u64,
        #[serde(default, skip_serializing_if = "is_nothing")]
        since: u64,
        counter: u64,
    },
    /// Calls of a thread that began before its first packet, the outermost first. `sequence` is that packet's number: those
    /// before it were given up.
    Open {
        process: u32,
        thread: u32,
        begin: u64,
        sequence: u64,
        calls: Vec<OpenCall>,
        #[serde(default, skip_serializing_if = "is_default")]
        place: Place,
    },
    /// At this counter, while its threads stood still, the open calls of a process were unwrapped: their ends are not
    /// in the trace.
    Unwrapped {
        process: u32,
        counter: u64,
    },
    /// From this counter on nothing was recorded but the ends of calls that had begun, since a user had stopped it, until
    /// it was started again.
    Stopped {
        counter: u64,
    },
    Started {
        counter: u64,
    },
    /// A function of the kernel in kernel events, or a caller of one, by an address in it.
    KernelFunction {
        address: u64,
        name: String,
    },
    /// The current lengths of files of threads and of processors, by number: those that have grown since the last such
    /// note.
    Files {
        streams: Vec<(u32, u64)>,
        processors: Vec<(u32, u64)>,
    },
    /// Kernel events paused at this clock, until they were recorded again.
    SystemPause {
        counter: u64,
    },
    /// All events of a processor that are not in the trace.
    SystemLost {
        processor: u32,
        events: u64,
    },
    /// Threads not traced at all, and stacks traced entry only.
    Untraced {
        process: u32,
        threads: u64,
        stacks: u64,
    },
    /// A line that a user wrote into the trace.
    Text {
        counter: u64,
        text: String,
    },
    /// `status` as `waitpid` gives it, when known.
    Exit {
        process: u32,
        counter: u64,
        status: Option<i32>,
    },
    /// The last line of a trace that was ended in order.
    End {
        counter: u64,
        complete: bool,
        why: String,
    },
}

impl Note {
    /// Why a trace ended whose guardian has written its end.
    pub const KILLED: &str = "nopal was killed";
}

/// The recording of a site, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "WrittenState", into = "WrittenState")]
pub enum SiteState {
    /// Each call, with its times.
    Timed,
    /// The number of calls: [`Note::Counted`].
    Counted,
    /// Nothing.
    Off,
}

/// To readers that do not know of counting, a site that is counted is off.
#[derive(Serialize, Deserialize)]
struct WrittenState {
    state: Recorded,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    counted: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Recorded {
    Timed,
    Off,
}

impl From<WrittenState> for SiteState {
    fn from(written: WrittenState) -> SiteState {
        match (written.state, written.counted) {
            (Recorded::Timed, _) => SiteState::Timed,
            (Recorded::Off, true) => SiteState::Counted,
            (Recorded::Off, false) => SiteState::Off,
        }
    }
}

impl From<SiteState> for WrittenState {
    fn from(state: SiteState) -> WrittenState {
        WrittenState {
            state: match state {
                SiteState::Timed => Recorded::Timed,
                SiteState::Counted | SiteState::Off => Recorded::Off,
            },
            counted: state == SiteState::Counted,
        }
    }
}

/// A thread's scheduling, as the kernel has it: the real user, the nice level, `SCHED_…`, and the priority under
/// `SCHED_FIFO` and `SCHED_RR`, else 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFacts {
    pub uid: u32,
    pub nice: i32,
    pub policy: u32,
    pub rt_prio: u32,
}

/// A call that had not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    pub site: u32,
    pub tag: u8,
    /// It was entered by a jump.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tail: bool,
    /// Only its entry is recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// The counter at its entry.
    pub clock: u64,
    /// The address of its return slot, in units of 16 bytes: too high, unless it is `exact`.
    pub slot: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<[u64; 6]>,
}

impl OpenCall {
    /// Whether calls that a note has as open at `until` are of sites, in order, and have begun before.
    pub(crate) fn are_sound(calls: &[OpenCall], until: u64) -> bool {
        let is_sound = |call: &OpenCall| {
            (1..nopal_abi::SITE_LIMIT).contains(&call.site) && call.clock <= until
        };
        calls.iter().all(is_sound) && calls.is_sorted_by_key(|call| call.clock)
    }
}

/// What is known of the place of a thread on its stack where its records begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The counter at the last event before, and its slot, as in [`OpenCall`]; 0: those of the innermost call.
    pub clock: u64,
    pub slot: u64,
    /// The counter at its last jump.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub jumped: u64,
    /// Jumps may have left those of its calls that began after the one counter, and up to the other: these are known to
    /// have been open until the latter only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<(u64, u64)>,
    /// Records were missing before, and whether the slots of its calls are uncertain since.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gaps: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub astray: bool,
    /// Keys of calls that were given up since the records are complete: exits of equal keys may be theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<u32>,
    /// The slot of the next event, if a record has told it, and whether that may be on another stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<(u64, bool)>,
    /// Calls on other stacks, in the order in which the thread has left them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<Aside>,
}

/// Calls of one stack that a thread has left, and may go back to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// The outermost first.
    pub calls: Vec<OpenCall>,
    /// The counter when it left them, and when they were last known to be open.
    pub since: u64,
    pub alive: u64,
}

fn is_default<T: Default + PartialEq>(what: &T) -> bool {
    *what == T::default()
}

/// [`Note::Sites`] as it is written, of sites that lie elsewhere.
#[derive(Serialize)]
pub(crate) enum SitesLine<I: Iterator<Item: Serialize> + Clone> {
    Sites {
        image: u32,
        #[serde(serialize_with = "each")]
        sites: I,
    },
}

fn each<I: Iterator<Item: Serialize> + Clone, S: Serializer>(
    elements: &I,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(elements.clone())
}

/// The origin of a trace: where, when and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The version of the trace's format.
    pub version: u32,
    /// Identifies the trace in every packet. The writer makes one if it is empty.
    pub uuid: String,
    pub command: Vec<String>,
    pub directory: String,
    pub hostname: String,
    pub kernel: String,
    pub cpu: String,
    pub cores: u32,
    pub start_realtime_ns: u64,
    pub options: Vec<String>,
    /// The largest packet.
    pub chunk_bytes: u32,
    /// Calls that took less were left out, but for those that lie in several packets.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub least_duration_ns: u64,
    /// It has a part of another trace only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Box<Selection>>,
}

/// The part of another trace that a trace has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The identity of that trace, the place where it was, and the counter at which it began.
    pub uuid: String,
    pub directory: String,
    pub begin: u64,
    /// Only events after the one and before the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Only these of its threads, each by its numbers and its begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<(u32, u32, u64)>>,
}

fn is_nothing(number: &u64) -> bool {
    *number == 0
}
