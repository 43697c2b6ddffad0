//! The end of wrapping, in processes that copy stacks away and back: a frame that is wrapped would come back where the
//! mirror is another call's by now.

use crate::text::journal::Journal;
use crate::text::remove::{PATIENCE, run_out, unwrap_frames};
use crate::traced::Traced;
use anyhow::Result;
use nopal_process::{StopError, Stopped};
use std::time::Duration;

/// How often threads are let go that were about to wrap a call in a place where they cannot be stepped, and for how
/// long.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Unwraps all frames of `processes`, which are forks of one another and run the same thunks, and makes the thunks
/// record entries only. Threads that are `waiting` for the tool are not about to wrap anything.
pub fn wrap_nothing_more(processes: &mut [&mut Traced], waiting: &[i32]) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let mut stopped = Vec::new();
        let mut all_out = true;
        for traced in processes.iter() {
            let Some(mut threads) = stop(traced.process)? else {
                continue;
            };
            let journal = Journal::read(traced.process, traced.region.inode())?;
            all_out &= run_out(&journal, &mut threads, waiting)?;
            stopped.push((&**traced, journal, threads));
        }
        for (traced, ..) in &stopped {
            traced.record_entries_only()?;
        }
        for (traced, journal, _) in &stopped {
            unwrap_frames(journal, &traced.memory, &[])?;
        }
        drop(stopped);
        if all_out {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for traced in processes {
        traced.entry_only = true;
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
