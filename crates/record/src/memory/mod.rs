//! Memory of a traced process: where nopal has its own, and what tool and process share.

pub mod arena;
pub mod bell;
pub mod code;
pub mod control_block;
pub mod inject;
pub mod own_memory;
pub mod region;
pub mod shared_memory;
pub mod space;
