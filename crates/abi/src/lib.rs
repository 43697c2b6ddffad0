//! The layout that the runtime (C), the tool and the trace files share: `runtime/core/abi.h`, as `build.rs` has it from
//! the C compiler.
//!
//! Names are those of the header without `NOPAL_`. `tests/header.rs` compares every constant, size and offset. Only
//! [`Word`] and [`Cursor`] interpret records.

mod capture;
mod cursor;
mod word;

pub use capture::Capture;
pub use cursor::*;
pub use word::*;

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
