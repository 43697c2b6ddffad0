//! The trace directory, written and read: a Common Trace Format 1.8 trace with a side file of notes.
//!
//! `docs/trace-format.md` describes the files. A [`Writer`] makes packets of the chunks that traced threads filled; a
//! [`Trace`] finds them again, checks them and decodes their [`Records`].

#[cfg(target_endian = "big")]
compile_error!("records are little-endian, and are read in place");

mod adopt;
mod alive;
mod append;
mod checksum;
mod chunk_cursor;
mod clocks;
mod cuts;
mod directory;
mod field;
mod files;
mod gap;
mod header;
mod index;
mod info;
mod kernel_events;
mod labels;
mod layout;
pub mod losses;
mod mapping;
mod markers;
mod merge;
mod metadata;
mod named_sites;
mod nesting;
mod note;
mod occurrences;
mod output;
mod packet;
mod packets;
mod processes;
mod processors;
mod random;
mod records;
mod scan;
mod select;
mod session;
mod short_calls;
mod site_counts;
mod states;
mod stream_file;
mod streams;
mod subscriber;
mod subscribers;
pub mod synthetic;
mod thread_key;
mod trace;
mod watched;
mod writer;

pub use chunk_cursor::{ChunkCursor, ChunkPhase};
pub use clocks::{Clocks, Snapshot};
pub use directory::{snapshot_name, snapshots};
pub use field::{Field, FieldKind};
pub use gap::Gap;
pub use info::{Damage, ProcessInfo, ProcessorInfo, SiteInfo, ThreadInfo};
pub use kernel_events::{
    KernelEvent, KernelFlags, KernelRecord, Succession, Task, TaskState, kernel_flag,
};
pub use losses::Losses;
pub use markers::{Marker, Markers, Value, event_number};
pub use merge::merge;
pub use nopal_abi::{Event, Record, Style};
pub use note::{Aside, Note, OpenCall, Place, Selection, Session, SiteState, TaskFacts};
pub use output::{Output, Unnamed};
pub use packet::Packet;
pub use packets::Packets;
pub use random::random_uuid;
pub use records::Records;
pub use select::{Select, select};
pub use site_counts::{Calls, SiteCounts};
pub use states::{SiteStates, Unrecorded, UnrecordedCalls};
pub use subscriber::{Batch, Subscriber};
pub use subscribers::SubscriberId;
pub use thread_key::ThreadKey;
pub use trace::{Cost, Trace};
pub use watched::Watched;
pub use writer::{Chunk, Seed, Writer};
