//! The layout that the runtime (C), the tool and the trace files share: `runtime/core/abi.h`, for Rust.
//!
//! Names are those of the header without `NOPAL_`. `tests/header.rs` compares every constant, size and offset.

mod capture;
mod chunk;
mod record;
mod region;

pub use capture::Capture;
pub use chunk::*;
pub use record::*;
pub use region::*;

pub const ABI_VERSION: u32 = 1;
