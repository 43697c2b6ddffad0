//! The kernel's tracepoints: their numbers, and the places of the fields in their records, by tracefs.

use crate::kinds::Kinds;
use crate::tracefs::tracing;
use anyhow::{Context, Result, ensure};
use nopal_trace::{KernelEvent, KernelFlags, Task, TaskState};
use std::fs;

/// A record is no longer than this.
const LONGEST: usize = 4096;

const NAME_BYTES: usize = 16;

#[derive(Debug)]
pub struct Tracepoints(Vec<Tracepoint>);

#[derive(Debug)]
struct Tracepoint {
    id: u64,
    stamp: Stamp,
    fields: Fields,
}

/// The offsets of the processor's state in each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    flags: usize,
    preempt_count: usize,
}

impl Stamp {
    pub fn parse(format: &str) -> Option<Stamp> {
        Some(Stamp {
            flags: offset(format, "common_flags", 1)?,
            preempt_count: offset(format, "common_preempt_count", 1)?,
        })
    }

    pub fn of(self, raw: &[u8]) -> Option<KernelFlags> {
        Some(KernelFlags {
            flags: *raw.get(self.flags)?,
            preempt_count: *raw.get(self.preempt_count)?,
        })
    }
}

#[derive(Debug)]
enum Fields {
    Switch {
        previous: TaskFields,
        next: TaskFields,
        /// The offset of a long.
        state: usize,
        letters: Vec<(u64, u8)>,
    },
    Wakeup {
        task: TaskFields,
        target: usize,
        is_new: bool,
    },
}

/// Offsets.
#[derive(Debug)]
struct TaskFields {
    name: usize,
    thread: usize,
    priority: usize,
}

impl Tracepoints {
    pub fn none() -> Tracepoints {
        Tracepoints(Vec::new())
    }

    pub fn read(kinds: Kinds) -> Result<Tracepoints> {
        let place = tracing()?;
        let read = |name: &str, file: &str| {
            let path = place.join(format!("events/sched/{name}/{file}"));
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let tracepoint = |name: &str| {
            let (id, format) = (read(name, "id")?, read(name, "format")?);
            let id = id.trim().parse().ok();
            let parsed = || {
                Some(Tracepoint {
                    id: id?,
                    stamp: Stamp::parse(&format)?,
                    fields: fields(name, &format)?,
                })
            };
            parsed().with_context(|| format!("the kernel describes {name} in an unknown format"))
        };
        let found: Result<Vec<Tracepoint>> = kinds.tracepoints().map(tracepoint).collect();
        let found = found?;
        ensure!(!found.is_empty(), "no event is requested");
        Ok(Tracepoints(found))
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|tracepoint| tracepoint.id)
    }

    /// The event of a tracepoint's record, which came while a thread of `process` ran.
    pub fn decode(&self, raw: &[u8], process: u32, thread: u32) -> Option<KernelEvent> {
        let id = u64::from(u16::from_le_bytes(bytes(raw, 0)?));
        let tracepoint = self.0.iter().find(|tracepoint| tracepoint.id == id)?;
        let flags = tracepoint.stamp.of(raw);
        Some(match &tracepoint.fields {
            Fields::Switch {
                previous,
                next,
                state,
                letters,
            } => KernelEvent::Switch {
                previous: task(raw, previous)?,
                process,
                state: letter(u64::from_le_bytes(bytes(raw, *state)?), letters),
                next: task(raw, next)?,
                flags,
            },
            Fields::Wakeup {
                task: fields,
                target,
                is_new,
            } => KernelEvent::Wakeup {
                task: task(raw, fields)?,
                target: u32::from_le_bytes(bytes(raw, *target)?),
                waker_process: process,
                waker: thread,
                is_new: *is_new,
                flags,
            },
        })
    }
}

fn bytes<const N: usize>(raw: &[u8], offset: usize) -> Option<[u8; N]> {
    raw.get(offset..)?.first_chunk().copied()
}

fn task(raw: &[u8], fields: &TaskFields) -> Option<Task> {
    Some(Task {
        name: bytes::<NAME_BYTES>(raw, fields.name)?,
        thread: u32::from_le_bytes(bytes(raw, fields.thread)?),
        priority: i32::from_le_bytes(bytes(raw, fields.priority)?),
    })
}

/// The letter of the lowest bit that is set.
fn letter(state: u64, letters: &[(u64, u8)]) -> TaskState {
    let set = letters.iter().filter(|(bit, _)| state & bit != 0);
    let all = letters.iter().fold(0, |all, (bit, _)| all | bit);
    match set.min_by_key(|(bit, _)| *bit) {
        Some((_, letter)) => TaskState(*letter),
        // The bit above all others says that it could run on.
        None if state == 0 || state == all + 1 => TaskState::PREEMPTED,
        None => TaskState::BLOCKED,
    }
}

fn fields(name: &str, format: &str) -> Option<Fields> {
    let offset = |field: &str, size: usize| offset(format, field, size);
    let task = |prefix: &str| {
        let offset = |field: &str, size| offset(&format!("{prefix}{field}"), size);
        Some(TaskFields {
            name: offset("comm[16]", NAME_BYTES)?,
            thread: offset("pid", 4)?,
            priority: offset("prio", 4)?,
        })
    };
    Some(match name {
        "sched_switch" => Fields::Switch {
            previous: task("prev_")?,
            next: task("next_")?,
            state: offset("prev_state", 8)?,
            letters: letters(format),
        },
        _ => Fields::Wakeup {
            task: task("")?,
            target: offset("target_cpu", 4)?,
            is_new: name == "sched_wakeup_new",
        },
    })
}

/// The offset in a line such as `field:pid_t prev_pid; offset:24; size:4; signed:1;`, with tabs between its parts.
pub fn offset(format: &str, field: &str, size: usize) -> Option<usize> {
    let mut lines = format.lines().map(str::trim);
    lines.find_map(|line| {
        let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
        let is_it = parts.next()?.rsplit(' ').next()? == field;
        let offset: usize = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let is_size = parts.next()?.strip_prefix("size:")?.parse() == Ok(size);
        (is_it && is_size && offset <= LONGEST).then_some(offset)
    })
}

/// The letters of a task's state: `{ 0x00000001, "S" }`, …
fn letters(format: &str) -> Vec<(u64, u8)> {
    let print = format.split("print fmt:").nth(1).unwrap_or_default();
    let pairs = print.split('{').skip(1).filter_map(|pair| {
        let (number, rest) = pair.trim().strip_prefix("0x")?.split_once(',')?;
        let letter = rest.split('"').nth(1)?.bytes().next()?;
        Some((u64::from_str_radix(number.trim(), 16).ok()?, letter))
    });
    pairs.take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sched_switch
ID: 372
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;

	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:int prev_prio;	offset:28;	size:4;	signed:1;
	field:long prev_state;	offset:32;	size:8;	signed:1;
	field:char next_comm[16];	offset:40;	size:16;	signed:0;
	field:pid_t next_pid;	offset:56;	size:4;	signed:1;
	field:int next_prio;	offset:60;	size:4;	signed:1;

print fmt: \"prev_state=%s%s\", __print_flags(REC->prev_state & 3, \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }) : \"R\"
";

    fn tracepoints() -> Tracepoints {
        Tracepoints(vec![Tracepoint {
            id: 372,
            stamp: Stamp::parse(FORMAT).unwrap(),
            fields: fields("sched_switch", FORMAT).unwrap(),
        }])
    }

    fn record() -> Vec<u8> {
        let mut raw = vec![0; 64];
        raw[..2].copy_from_slice(&372u16.to_le_bytes());
        raw[2..4].copy_from_slice(&[0x25, 2]);
        raw[8..13].copy_from_slice(b"first");
        raw[24..28].copy_from_slice(&8u32.to_le_bytes());
        raw[28..32].copy_from_slice(&49i32.to_le_bytes());
        raw[32] = 2;
        raw[40..46].copy_from_slice(b"second");
        raw[56..60].copy_from_slice(&11u32.to_le_bytes());
        raw[60..].copy_from_slice(&115i32.to_le_bytes());
        raw
    }

    #[test]
    fn fields_are_where_the_format_says() {
        let Some(KernelEvent::Switch {
            previous,
            process: 7,
            state,
            next,
            flags,
        }) = tracepoints().decode(&record(), 7, 8)
        else {
            panic!("no switch");
        };
        assert_eq!((previous.thread, previous.priority), (8, 49));
        assert_eq!((next.thread, next.priority), (11, 115));
        assert_eq!(
            (previous.name(), next.name()),
            (&b"first"[..], &b"second"[..])
        );
        assert_eq!(state, TaskState(b'D'));
        let stamp = KernelFlags {
            flags: 0x25,
            preempt_count: 2,
        };
        assert_eq!(flags, Some(stamp));
    }

    #[test]
    fn what_is_cut_short_or_another_tracepoints_is_nothing() {
        let raw = record();
        for length in 0..raw.len() {
            assert_eq!(tracepoints().decode(&raw[..length], 7, 8), None, "{length}");
        }
        let mut other = raw;
        other[0] += 1;
        assert_eq!(tracepoints().decode(&other, 7, 8), None);
    }

    #[test]
    fn formats_of_other_kernels_are_refused() {
        for (from, to) in [
            ("size:8", "size:4"),
            ("prev_pid", "prev_tid"),
            ("offset:24", "offset:99999"),
            ("offset:24", "offset:-1"),
        ] {
            assert!(
                fields("sched_switch", &FORMAT.replace(from, to)).is_none(),
                "{from}"
            );
        }
    }

    #[test]
    fn states_are_letters() {
        let letters = letters(FORMAT);
        assert_eq!(letters, [(1, b'S'), (2, b'D')]);
        let states = [0, 4, 1, 3, 8].map(|state| letter(state, &letters));
        let expected = [b'R', b'R', b'S', b'S', b'?'].map(TaskState);
        assert_eq!(states, expected);
    }
}
