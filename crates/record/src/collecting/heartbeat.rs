//! The heartbeat, which shows threads that the tool is alive.

use crate::memory::region::Region;
use nopal_beside::Mutex;
use std::sync::Arc;

/// The regions that beat: all of a session together, since whoever waits in one must not take long work for another for
/// the tool's end.
#[derive(Clone, Default)]
pub struct Heartbeat(Arc<Mutex<Vec<Arc<Region>>>>);

impl Heartbeat {
    pub fn of(regions: Arc<Mutex<Vec<Arc<Region>>>>) -> Heartbeat {
        Heartbeat(regions)
    }

    pub fn beat(&self) {
        self.0.lock().iter().for_each(|region| region.beat());
    }
}
