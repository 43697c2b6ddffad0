//! Blocks of text from several workers to one writer, and back to be filled again.

use nopal_beside::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use anyhow::{Result, bail};

/// Blocks under way to the writer.
const UNDER_WAY: usize = 2;

/// A worker's port to the writer.
#[derive(Clone)]
pub struct Port {
    full: SyncSender<Vec<u8>>,
    empty: Arc<Mutex<Receiver<Vec<u8>>>>,
}

/// The writer's end. Ends when all ports are gone.
pub struct Blocks {
    full: Receiver<Vec<u8>>,
    empty: Sender<Vec<u8>>,
}

impl Blocks {
    pub fn open() -> (Port, Blocks) {
        let (full_in, full_out) = sync_channel(UNDER_WAY);
        let (empty_in, empty_out) = channel();
        let port = Port {
            full: full_in,
            empty: Arc::new(Mutex::new(empty_out)),
        };
        let blocks = Blocks {
            full: full_out,
            empty: empty_in,
        };
        (port, blocks)
    }

    pub fn next(&self) -> Option<Vec<u8>> {
        self.full.recv().ok()
    }

    pub fn give_back(&self, mut block: Vec<u8>) {
        block.clear();
        // An error means that nobody writes any more.
        let _ = self.empty.send(block);
    }
}

impl Port {
    /// Passes on a block, and returns another one to fill.
    pub fn send(&self, block: Vec<u8>) -> Result<Vec<u8>> {
        if self.full.send(block).is_err() {
            bail!("the output has ended");
        }
        let empty = self.empty.lock();
        Ok(empty.try_recv().unwrap_or_default())
    }
}
