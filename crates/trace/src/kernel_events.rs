//! Kernel events. Each processor has a stream of its own.

use nopal_abi::*;
use std::collections::HashMap;

/// The stream class of packets of processors.
pub const PROCESSOR_STREAM: u32 = 1;

const fn number(event: u32, words: u32) -> u32 {
    (words + 1) << EVENT_WORDS_SHIFT | event
}

/// Numbers of events, below those of markers; each includes the number of words after its clock.
pub const SCHED_SWITCH: u32 = number(17, 7);
pub const SWITCH_OUT: u32 = number(18, 2);
pub const SWITCH_IN: u32 = number(19, 1);
pub const SCHED_WAKEUP: u32 = number(20, 5);
pub const SCHED_WAKEUP_NEW: u32 = number(21, 5);
pub const KERNEL_FUNCTION: u32 = number(22, 3);

/// Words of the longest event, with its clock.
pub const MOST_WORDS: usize = 2 + 7;

/// The number of each processor's idle task.
const IDLE: u32 = 0;

/// A thread, as described by the kernel's scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    pub thread: u32,
    /// The kernel's own: 100 to 139 are the nice levels from -20 to 19, lower ones are of real time.
    pub priority: i32,
    /// Bytes up to the first 0.
    pub name: [u8; 16],
}

impl Task {
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|byte| *byte == 0);
        &self.name[..end.unwrap_or(self.name.len())]
    }
}

/// The state in which a task left its processor: a letter as in `ps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskState(pub u8);

impl TaskState {
    /// It could run on: another task was more urgent, or its time slice was over.
    pub const PREEMPTED: TaskState = TaskState(b'R');
    /// It waits in an unknown way.
    pub const BLOCKED: TaskState = TaskState(b'?');

    pub fn is_blocked(self) -> bool {
        self != TaskState::PREEMPTED
    }

    /// It has ended, and never runs again.
    pub fn is_dead(self) -> bool {
        matches!(self.0, b'X' | b'Z')
    }

    pub fn letter(self) -> char {
        match self.0 {
            letter if letter.is_ascii_alphabetic() => char::from(letter),
            _ => '?',
        }
    }
}

/// The state of a processor when an event happened there, as the kernel stamps it on each: `common_flags` and
/// `common_preempt_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFlags {
    pub flags: u8,
    pub preempt_count: u8,
}

/// The kernel's `enum trace_flag_type`.
pub mod kernel_flag {
    pub const IRQS_OFF: u8 = 0x01;
    pub const NEED_RESCHED_LAZY: u8 = 0x02;
    pub const NEED_RESCHED: u8 = 0x04;
    pub const HARDIRQ: u8 = 0x08;
    pub const SOFTIRQ: u8 = 0x10;
    pub const PREEMPT_RESCHED: u8 = 0x20;
    pub const NMI: u8 = 0x40;
    pub const BH_OFF: u8 = 0x80;
}

impl KernelFlags {
    /// It happened in an interrupt of the task that ran, and so for another reason than this task's.
    pub fn is_hard_interrupt(self) -> bool {
        self.flags & (kernel_flag::HARDIRQ | kernel_flag::NMI) != 0
    }

    /// It happened in a soft interrupt, in which work of the network, among others, is done for whatever task.
    pub fn is_soft_interrupt(self) -> bool {
        self.flags & kernel_flag::SOFTIRQ != 0
    }

    /// The bit behind both in a trace: they are known.
    const KNOWN: u8 = 1;

    /// Flags, count, and whether they are known, from bit 8 on, above `low`.
    fn above(of: Option<KernelFlags>, low: u8) -> u32 {
        let KernelFlags {
            flags,
            preempt_count,
        } = of.unwrap_or(KernelFlags {
            flags: 0,
            preempt_count: 0,
        });
        let known = if of.is_some() { KernelFlags::KNOWN } else { 0 };
        u32::from_le_bytes([low, flags, preempt_count, known])
    }

    fn of(word: u32) -> Option<KernelFlags> {
        let [_, flags, preempt_count, known] = word.to_le_bytes();
        (known == KernelFlags::KNOWN).then_some(KernelFlags {
            flags,
            preempt_count,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// The processor switches from one task to another.
    Switch {
        previous: Task,
        /// The previous task's process.
        process: u32,
        state: TaskState,
        next: Task,
        flags: Option<KernelFlags>,
    },
    /// A thread of the traced processes leaves the processor; its successor is not known.
    Out {
        process: u32,
        thread: u32,
        state: TaskState,
    },
    /// A thread of the traced processes gets the processor.
    In { process: u32, thread: u32 },
    /// A task becomes runnable. Recorded on the processor where it was woken, by the task that ran there or in an
    /// interrupt of it.
    Wakeup {
        task: Task,
        /// The processor on which it will run.
        target: u32,
        waker_process: u32,
        waker: u32,
        is_new: bool,
        flags: Option<KernelFlags>,
    },
    /// A thread of the traced processes has entered a function of the kernel. The trace's notes name the addresses.
    Function {
        thread: u32,
        function: u64,
        /// An address in its caller.
        caller: u64,
        flags: Option<KernelFlags>,
    },
    /// This many events are missing from here on; 0: unknown, since recording was paused. This is in packet headers and
    /// notes, not in records.
    Lost { events: u64 },
}

impl KernelEvent {
    /// The state of the processor, if the kernel reported it.
    pub fn flags(&self) -> Option<KernelFlags> {
        match self {
            KernelEvent::Switch { flags, .. }
            | KernelEvent::Wakeup { flags, .. }
            | KernelEvent::Function { flags, .. } => *flags,
            _ => None,
        }
    }
}

/// The task on each processor. Some kernels omit events of idle tasks: when another processor wakes one, the switch
/// away from it may be missing, and the wake-up that caused it, too. The next switch reveals this: a task leaves a
/// processor that was idle. (Between other tasks, a number may also change by an exec.)
#[derive(Debug, Default)]
pub struct Succession(HashMap<u32, u32>);

impl Succession {
    /// Takes the next event of a processor. True: a switch before it is missing.
    pub fn is_broken_by(&mut self, processor: u32, event: &KernelEvent) -> bool {
        match event {
            KernelEvent::Switch { previous, next, .. } => {
                let given = self.0.insert(processor, next.thread);
                given == Some(IDLE) && previous.thread != IDLE
            }
            // A switch that is missing here counts as lost already.
            KernelEvent::Lost { .. } => {
                self.0.remove(&processor);
                false
            }
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRecord {
    pub clock: u64,
    pub event: KernelEvent,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn push_task(task: &Task, words: &mut Vec<u64>) {
    let name = u128::from_le_bytes(task.name);
    words.extend([
        name as u64,
        (name >> 64) as u64,
        pair(task.thread, task.priority as u32),
    ]);
}

fn task(words: &[u64; 3]) -> Task {
    let (thread, priority) = halves(words[2]);
    Task {
        thread,
        priority: priority as i32,
        name: (u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes(),
    }
}

impl KernelRecord {
    /// Appends it to a packet's words; lost events append nothing.
    pub fn push(&self, words: &mut Vec<u64>) {
        if let KernelEvent::Lost { .. } = self.event {
            return;
        }
        let begin = words.len();
        words.extend([0, self.clock]);
        let event = match &self.event {
            KernelEvent::Switch {
                previous,
                process,
                state,
                next,
                flags,
            } => {
                push_task(previous, words);
                words.push(pair(*process, KernelFlags::above(*flags, state.0)));
                push_task(next, words);
                SCHED_SWITCH
            }
            KernelEvent::Out {
                process,
                thread,
                state,
            } => {
                words.extend([pair(*process, *thread), u64::from(state.0)]);
                SWITCH_OUT
            }
            KernelEvent::In { process, thread } => {
                words.push(pair(*process, *thread));
                SWITCH_IN
            }
            KernelEvent::Wakeup {
                task,
                target,
                waker_process,
                waker,
                is_new,
                flags,
            } => {
                push_task(task, words);
                let stamp = KernelFlags::above(*flags, 0);
                words.extend([pair(*waker_process, *waker), pair(*target, stamp)]);
                match is_new {
                    true => SCHED_WAKEUP_NEW,
                    false => SCHED_WAKEUP,
                }
            }
            KernelEvent::Function {
                thread,
                function,
                caller,
                flags,
            } => {
                let stamp = KernelFlags::above(*flags, 0);
                words.extend([pair(*thread, stamp), *function, *caller]);
                KERNEL_FUNCTION
            }
            KernelEvent::Lost { .. } => 0,
        };
        words[begin] = Word::extended(event, self.clock).0;
    }

    /// Decodes an extended record of a processor's packet: its event's number, and the words after its clock.
    pub fn decode(clock: u64, event: u32, payload: &[u64]) -> Option<KernelRecord> {
        let event = match (event, payload) {
            (SCHED_SWITCH, &[a, b, c, rest, d, e, f]) => {
                let (process, state) = halves(rest);
                KernelEvent::Switch {
                    previous: task(&[a, b, c]),
                    process,
                    state: TaskState(state as u8),
                    next: task(&[d, e, f]),
                    flags: KernelFlags::of(state),
                }
            }
            (SWITCH_OUT, &[who, state]) => {
                let (process, thread) = halves(who);
                KernelEvent::Out {
                    process,
                    thread,
                    state: TaskState(state as u8),
                }
            }
            (SWITCH_IN, &[who]) => {
                let (process, thread) = halves(who);
                KernelEvent::In { process, thread }
            }
            (SCHED_WAKEUP | SCHED_WAKEUP_NEW, &[a, b, c, who, target]) => {
                let (waker_process, waker) = halves(who);
                let (target, stamp) = halves(target);
                KernelEvent::Wakeup {
                    task: task(&[a, b, c]),
                    target,
                    waker_process,
                    waker,
                    is_new: event == SCHED_WAKEUP_NEW,
                    flags: KernelFlags::of(stamp),
                }
            }
            (KERNEL_FUNCTION, &[thread, function, caller]) => {
                let (thread, stamp) = halves(thread);
                KernelEvent::Function {
                    thread,
                    function,
                    caller,
                    flags: KernelFlags::of(stamp),
                }
            }
            _ => return None,
        };
        Some(KernelRecord { clock, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_leaves_an_idle_processor_shows_that_a_switch_is_missing() {
        let task = |thread| Task {
            thread,
            ..Task::default()
        };
        let switch = |from, to| KernelEvent::Switch {
            previous: task(from),
            process: from,
            state: TaskState(b'S'),
            next: task(to),
            flags: None,
        };
        let mut succession = Succession::default();
        let mut broken = |processor, event| succession.is_broken_by(processor, &event);
        assert!(!broken(0, switch(5, 0)), "nothing is known at first");
        assert!(!broken(1, switch(6, 7)), "another processor");
        assert!(!broken(0, switch(0, 5)));
        assert!(!broken(0, switch(5, 0)));
        assert!(broken(0, switch(6, 0)));
        assert!(!broken(0, KernelEvent::Lost { events: 1 }));
        assert!(!broken(0, switch(5, 8)), "counted as lost");
        assert!(!broken(0, switch(9, 0)), "an exec");
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let task = |thread, name: &[u8]| {
            let mut bytes = [0; 16];
            bytes[..name.len()].copy_from_slice(name);
            Task {
                thread,
                priority: -1,
                name: bytes,
            }
        };
        let events = [
            KernelEvent::Switch {
                previous: task(8, b"ksoftirqd/0"),
                process: 7,
                state: TaskState(b'S'),
                next: task(u32::MAX, b"sixteen bytes \xff."),
                flags: Some(KernelFlags {
                    flags: 0x25,
                    preempt_count: 2,
                }),
            },
            KernelEvent::Out {
                process: 1,
                thread: 2,
                state: TaskState::BLOCKED,
            },
            KernelEvent::In {
                process: 1,
                thread: 2,
            },
            KernelEvent::Wakeup {
                task: task(3, b""),
                target: 1,
                waker_process: 4,
                waker: 5,
                is_new: true,
                flags: Some(KernelFlags {
                    flags: 0,
                    preempt_count: 0,
                }),
            },
            KernelEvent::Function {
                thread: 6,
                function: u64::MAX,
                caller: 7,
                flags: None,
            },
        ];
        for event in events {
            let record = KernelRecord {
                clock: 0x1234_5678_9abc,
                event,
            };
            let mut words = Vec::new();
            record.push(&mut words);
            assert!(words.len() <= MOST_WORDS);
            assert_eq!(words[0] as u32, 0x5678_9abc);
            let number = Word(words[0]).event();
            assert_eq!(
                Word(words[0]).payload_words(&words[1..]),
                Some(words.len() - 2)
            );
            let decoded = KernelRecord::decode(words[1], number, &words[2..]);
            assert_eq!(decoded, Some(record));
            assert_eq!(KernelRecord::decode(1, number, &words[3..]), None);
        }
    }

    #[test]
    fn letters_are_printable() {
        let letters = [b'S', b'R', b'?', 0, 0x1b, 0xff].map(|letter| TaskState(letter).letter());
        assert_eq!(letters, ['S', 'R', '?', '?', '?', '?']);
        assert!(TaskState::BLOCKED.is_blocked() && !TaskState::PREEMPTED.is_blocked());
    }
}
