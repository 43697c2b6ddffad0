//! The layout that the runtime (C), the tool and the trace files share: `runtime/core/abi.h`, as `build.rs` has it from
//! the C compiler.
//!
//! Names are those of the header without `NOPAL_`, which says what they mean. What records mean is told once, by [`Word`]
//! and [`Cursor`].
//!
//! Both sides write the region at once, so it is read and written by atomic operations on the fields' addresses, never
//! through a reference to a whole structure.

mod capture;
mod cursor;
mod word;

pub use capture::Capture;
pub use cursor::*;
pub use word::*;

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
