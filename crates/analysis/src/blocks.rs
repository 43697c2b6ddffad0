//! Blocks of output from several workers to one writer, and back to be filled again.

use nopal_beside::Mutex;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use anyhow::{Result, bail};
use nopal_trace::Trace;

use crate::drive::{Drive, Worker};

/// Blocks under way to the writer.
const UNDER_WAY: usize = 2;

/// A worker's port to the writer.
#[derive(Clone)]
pub struct Port {
    full: SyncSender<Option<Vec<u8>>>,
    empty: Arc<Mutex<Receiver<Vec<u8>>>>,
}

/// The writer's end.
struct Blocks {
    full: Receiver<Option<Vec<u8>>>,
    empty: Sender<Vec<u8>>,
}

/// Runs workers that `worker` makes, and writes their blocks to `out`. The blocks of a worker stay in their order.
/// Returns the workers.
pub fn write<W: Worker>(
    trace: &Trace,
    drive: &Drive,
    out: &mut dyn Write,
    mut worker: impl FnMut(Port) -> W,
) -> Result<Vec<W>> {
    let (port, blocks) = Blocks::open();
    let workers = (0..drive.workers.max(1)).map(|_| worker(port.clone()));
    let mut workers: Vec<W> = workers.collect();
    thread::scope(|scope| {
        let formatting = scope.spawn(move || {
            let formatted = drive.run(trace, &mut workers);
            // The workers live on, and hold ports. An error means that the writer has ended.
            let _ = port.full.send(None);
            formatted.map(|()| workers)
        });
        let mut written = Ok(());
        while let Some(block) = blocks.next() {
            written = out.write_all(&block);
            if written.is_err() {
                break;
            }
            blocks.give_back(block);
        }
        drop(blocks);
        let formatted = match formatting.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        written?;
        formatted
    })
}

impl Blocks {
    fn open() -> (Port, Blocks) {
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

    fn next(&self) -> Option<Vec<u8>> {
        self.full.recv().ok().flatten()
    }

    fn give_back(&self, mut block: Vec<u8>) {
        block.clear();
        // An error means that no worker is left.
        let _ = self.empty.send(block);
    }
}

impl Port {
    /// Passes on a block, and returns another one to fill.
    pub fn send(&self, block: Vec<u8>) -> Result<Vec<u8>> {
        if self.full.send(Some(block)).is_err() {
            bail!("the output has ended");
        }
        let empty = self.empty.lock();
        Ok(empty.try_recv().unwrap_or_default())
    }
}
