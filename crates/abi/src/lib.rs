//! The layout that the runtime (C), the tool and the trace files share: `runtime/core/abi.h`, for Rust.
//!
//! Names are those of the header without `NOPAL_`. `tests/header.rs` compares every constant, size and offset. Only
//! [`Word`] and [`Cursor`] interpret records.

mod capture;
mod chunk;
mod cursor;
mod record;
mod region;
mod word;

pub use capture::Capture;
pub use chunk::*;
pub use cursor::*;
pub use record::*;
pub use region::*;
pub use word::*;

pub const ABI_VERSION: u32 = 1;
