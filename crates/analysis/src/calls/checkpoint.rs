//! The state of a rebuilder between two packets, kept so that a reader can begin there.

use anyhow::{Result, ensure};

use super::rebuilder::{CallRebuilder, DEPTH_LIMIT};

impl CallRebuilder {
    /// The state, for [`CallRebuilder::resume`]. Its length grows with the number of open calls.
    pub fn checkpoint(&self) -> Result<Vec<u8>> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// A rebuilder in the state that [`CallRebuilder::checkpoint`] gave. Any other bytes are refused, or give a state
    /// that is wrong, but as safe to use as any.
    pub fn resume(checkpoint: &[u8]) -> Result<CallRebuilder> {
        let rebuilder: CallRebuilder = postcard::from_bytes(checkpoint)?;
        let depth = rebuilder.frames.len();
        let is_sound = rebuilder.frames.is_sound()
            && rebuilder.fibers.is_sound()
            && depth <= DEPTH_LIMIT
            && rebuilder.stay.is_none_or(|stay| stay.from <= depth);
        ensure!(is_sound, "no state of calls");
        Ok(rebuilder)
    }
}
