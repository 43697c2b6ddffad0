//! Until when the calls were open that are open at the last records of threads.

use crate::cuts::stops;
use crate::note::Note;
use crate::packet::PacketId;
use crate::thread_key::ThreadKey;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Alive {
    /// What the last note of each thread says.
    threads: HashMap<ThreadKey, (u64, u64)>,
    /// When calls were unwrapped, or recording was stopped: from then on they may have ended without a record, or their own
    /// times are not known. In order.
    changes: Vec<u64>,
}

impl Alive {
    pub fn of(notes: &[Note]) -> Alive {
        let mut alive = Alive {
            threads: HashMap::new(),
            changes: stops(notes).into_iter().map(|(from, _)| from).collect(),
        };
        for note in notes {
            match *note {
                Note::Alive {
                    process,
                    thread,
                    begin,
                    since,
                    counter,
                } => {
                    let key = ThreadKey {
                        process,
                        thread,
                        begin,
                    };
                    alive.threads.insert(key, (since, counter));
                }
                Note::Unwrapped { counter, .. } => alive.changes.push(counter),
                _ => {}
            }
        }
        alive.changes.sort_unstable();
        alive
    }

    /// See [`crate::ThreadInfo::alive_until`].
    pub fn until(&self, thread: &ThreadKey, last: Option<&PacketId>) -> u64 {
        let Some(last) = last else { return 0 };
        let end = last.clock_end;
        let before = self.changes.partition_point(|change| *change < end);
        let change = self.changes.get(before).copied();
        match self.threads.get(thread) {
            Some((since, until)) if *since <= end && !last.is_of_kernel && !last.is_stopped => {
                change.unwrap_or(u64::MAX).min(*until)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ThreadKey = ThreadKey {
        process: 1,
        thread: 2,
        begin: 3,
    };

    #[test]
    fn calls_are_open_until_the_thread_was_seen_or_recording_changed() {
        let note = |since, counter| Note::Alive {
            process: 1,
            thread: 2,
            begin: 3,
            since,
            counter,
        };
        let stopped = |counter| Note::Stopped { counter };
        let started = |counter| Note::Started { counter };
        let unwrapped = |counter| Note::Unwrapped {
            process: 1,
            counter,
        };
        let last = PacketId {
            stream: 0,
            index: 0,
            first: 0,
            end: 1,
            clock_begin: 50,
            clock_end: 100,
            is_of_kernel: false,
            is_behind_unwrapping: false,
            stopped_before: 0,
            is_stopped: false,
        };
        let until = |notes: &[Note], last: PacketId| Alive::of(notes).until(&KEY, Some(&last));
        assert_eq!(until(&[], last), 0);
        assert_eq!(until(&[note(0, 900)], last), 900);
        assert_eq!(until(&[note(0, 900), note(0, 800)], last), 800);
        assert_eq!(until(&[note(100, 900)], last), 900);
        assert_eq!(until(&[note(101, 900)], last), 0);
        let stop = [
            stopped(10),
            started(20),
            note(0, 900),
            stopped(300),
            started(400),
        ];
        assert_eq!(until(&stop, last), 300);
        assert_eq!(
            until(&[note(0, 900), unwrapped(99), unwrapped(700)], last),
            700
        );
        let is_stopped = PacketId {
            is_stopped: true,
            ..last
        };
        assert_eq!(until(&stop, is_stopped), 0);
        let is_of_kernel = PacketId {
            is_of_kernel: true,
            ..last
        };
        assert_eq!(until(&[note(0, 900)], is_of_kernel), 0);
        let other = ThreadKey { begin: 4, ..KEY };
        assert_eq!(Alive::of(&stop).until(&other, Some(&last)), 0);
        assert_eq!(Alive::of(&stop).until(&KEY, None), 0);
    }
}
