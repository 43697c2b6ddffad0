//! Memory of a traced process: nopal's own in it, and the part that tool and process share.

pub mod arena;
pub mod bell;
pub mod code;
pub mod control_block;
pub mod groups;
pub mod inject;
pub mod lost;
pub mod numbers;
pub mod occupancy;
pub mod own_memory;
pub mod region;
pub mod shared_memory;
pub mod space;
