//! Blocks of text from several workers, each thread's in order, to one writer.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};

use anyhow::{Result, bail};

/// Blocks under way to the writer.
const BLOCKS: usize = 2;

pub struct Ordered {
    turns: Mutex<Turns>,
    changed: Condvar,
    written: Mutex<Vec<Vec<u8>>>,
}

/// A worker's way to the writer. When all are gone, the writer's receiver ends.
#[derive(Clone)]
pub struct Port<'a> {
    ordered: &'a Ordered,
    sender: SyncSender<Vec<u8>>,
}

struct Turns {
    /// By thread: the number of the block that is next.
    next: Vec<u64>,
    failed: bool,
}

impl Ordered {
    pub fn new(streams: usize) -> Ordered {
        let turns = Turns {
            next: vec![0; streams],
            failed: false,
        };
        Ordered {
            turns: Mutex::new(turns),
            changed: Condvar::new(),
            written: Mutex::new(Vec::new()),
        }
    }

    pub fn open(&self) -> (Port<'_>, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(BLOCKS);
        (
            Port {
                ordered: self,
                sender,
            },
            receiver,
        )
    }

    /// Writes one block, and keeps it to be filled again.
    pub fn write(&self, block: Vec<u8>, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&block)?;
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(block);
        Ok(())
    }
}

impl Port<'_> {
    /// Hands on block `number` of a thread once those before it have been. Gives another block to fill.
    pub fn send(&self, stream: usize, number: u64, block: Vec<u8>) -> Result<Vec<u8>> {
        let ordered = self.ordered;
        let turns = ordered.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |turns: &mut Turns| turns.next[stream] != number && !turns.failed;
        let turns = ordered
            .changed
            .wait_while(turns, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        let failed = turns.failed;
        drop(turns);
        let sent = !failed && self.sender.send(block).is_ok();
        let mut turns = ordered.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.next[stream] = number + 1;
        turns.failed |= !sent;
        ordered.changed.notify_all();
        if !sent {
            bail!("the output has ended");
        }
        let mut block = ordered
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        block.clear();
        Ok(block)
    }
}
