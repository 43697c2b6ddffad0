//! The end of wrapping, in processes that copy stacks away and back: a frame that is wrapped would come back where the
//! mirror is another call's by now.

use crate::collecting::fair_mutex::FairMutex;
use crate::collecting::notes::counter;
use crate::memory::control_block::own_number;
use crate::patch::journal::Journal;
use crate::patch::remove::{PATIENCE, run_out, unwrap_frames};
use crate::tracee::Tracee;
use anyhow::Result;
use nopal_process::{StopError, Stopped};
use nopal_trace::{Note, Writer};
use std::time::Duration;

/// The number of times that threads are let go that were about to wrap a call where they cannot be stepped, and the
/// length of each.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Unwraps all frames of `processes`, which are forks of one another and run the same thunks, and makes the thunks
/// record entries only. Threads that are `waiting` for the tool are not about to wrap anything. The trace tells when,
/// before any record that is made later.
pub fn wrap_nothing_more(
    processes: &mut [&mut Tracee],
    waiting: &[i32],
    writer: &FairMutex<Writer>,
) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let mut stopped = Vec::new();
        let mut all_out = true;
        for tracee in processes.iter() {
            let Some(mut threads) = stop(tracee.process)? else {
                continue;
            };
            let journal = Journal::read(tracee.process, tracee.region.inode())?;
            all_out &= match run_out(&journal, &mut threads, waiting) {
                // It is gone with its frames; the others' remain.
                Err(error) if error.downcast_ref() == Some(&StopError::Executes) => continue,
                out => out?,
            };
            stopped.push((&**tracee, journal, threads));
        }
        for (tracee, ..) in &stopped {
            tracee.record_entries_only()?;
        }
        for (tracee, journal, _) in &stopped {
            unwrap_frames(journal, &tracee.memory, &[])?;
            writer.lock().note(&Note::Unwrapped {
                process: own_number(tracee.process, tracee.process)? as u32,
                counter: counter(),
            })?;
        }
        drop(stopped);
        if all_out {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for tracee in processes {
        tracee.entry_only = true;
    }
    Ok(())
}

/// `None`: it has ended, or executes another program.
fn stop(process: i32) -> Result<Option<Stopped>> {
    match Stopped::stop(process, PATIENCE) {
        Ok(stopped) => Ok(Some(stopped)),
        Err(error) => match error.downcast_ref::<StopError>() {
            Some(StopError::Ended | StopError::Executes) => Ok(None),
            _ => Err(error),
        },
    }
}
