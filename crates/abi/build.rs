//! Gives the layout that the runtime shares its names in Rust.

use nopal_headers::{Headers, Structure};
use std::path::Path;

const DERIVED: &str = "Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromBytes, zerocopy::Immutable, \
                       zerocopy::IntoBytes, zerocopy::KnownLayout";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let structure = |c, rust| Structure::new(c, rust).derive(DERIVED).foreign();
    let headers = Headers::new(Path::new("../../runtime"), &["core"], &["abi.h"])
        .all_constants()?
        .counts([
            "NOPAL_ARGUMENTS",
            "NOPAL_CHUNK_BYTES",
            "NOPAL_CHUNK_HEADER_BYTES",
            "NOPAL_COUNTERS_AT",
            "NOPAL_COUNTERS_BYTES",
            "NOPAL_COUNTER_GROUPS",
            "NOPAL_COUNTER_PAGES",
            "NOPAL_COUNTER_PAGE_BYTES",
            "NOPAL_LOST_ALL",
            "NOPAL_LOST_COUNTERS",
            "NOPAL_LOST_INTERRUPTED",
            "NOPAL_LOST_NO_CLOCK",
            "NOPAL_LOST_NO_ROOM",
            "NOPAL_LOST_REASONS",
            "NOPAL_LOST_TOO_MANY_THREADS",
            "NOPAL_LOST_UNKNOWN_THREAD",
            "NOPAL_REQUESTS",
            "NOPAL_REQUEST_PAGE_BYTES",
            "NOPAL_RESYNC_BYTES",
            "NOPAL_TEXT_COUNTED",
            "NOPAL_TEXT_LIMIT",
        ])
        .structures([
            structure("nopal_resync", "Resync"),
            structure("nopal_chunk_header", "ChunkHeader"),
            structure("nopal_request", "Request"),
            structure("nopal_lost_counter", "LostCounter"),
            Structure::new("nopal_region", "Region")
                .derive("Clone, Copy, Debug")
                .foreign(),
        ]);
    Ok(headers.write("abi.rs")?)
}
