//! What the processes and threads of a region are called here. Those in a PID namespace of their own put other numbers
//! into it: those by which they know themselves.

use crate::memory::control_block::{own_number, thread_with};
use nopal_beside::Mutex;
use nopal_trace::ThreadKey;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of a thread that has, or may have, other numbers in its own PID namespace than here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Those there are these, and it is known by those that it has here.
    Known { process: u32, thread: u32 },
    /// So it is with its process. The thread had ended when it was looked for, and is known by its own number.
    Thread { process: u32 },
    /// Process and thread are known by their own numbers.
    Process,
}

#[derive(Debug)]
pub struct Numbers {
    /// The process that the region was made for, and what that calls itself; 0: it is no process's.
    process: u32,
    own: u32,
    /// Whether a process with the region has another number than here.
    any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Threads by what they are called in the region, and by what they are called here.
    by_own: HashMap<ThreadKey, Named>,
    by_here: HashMap<ThreadKey, Named>,
    /// The processes that have the region, and what they call themselves; and those that have not.
    processes: Vec<(i32, i32)>,
    strangers: HashSet<i32>,
    /// Threads, with their processes before, and what they call themselves.
    tasks: Vec<(i32, i32, i32)>,
    /// The number of names from which on some are forgotten, if it is above [`MOST_NAMED`].
    most: usize,
}

/// Each thread of a fork has a name, for the life of the region.
const MOST_NAMED: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Named {
    here: ThreadKey,
    inside: Option<Inside>,
}

/// The processes of a region.
pub trait Members {
    /// Whether a process is one, and has the region not to collect from it; none if that cannot be seen now.
    fn has(&self, process: i32) -> Option<bool>;

    /// Whether it is the process of a thread that calls itself so, and lives.
    fn has_thread(&self, process: i32, key: ThreadKey) -> bool;
}

impl Numbers {
    pub fn new(process: i32) -> Numbers {
        let own = own_number(process, process).unwrap_or(process);
        Numbers {
            process: process as u32,
            own: own as u32,
            any: AtomicBool::new(own != process),
            known: Mutex::default(),
        }
    }

    /// What a thread is called here.
    pub fn here(&self, key: ThreadKey, members: &dyn Members) -> ThreadKey {
        let is_plain = key.process == self.process && !self.has_any();
        let is_whole = key.process != 0 && key.thread != 0 && key.begin != 0;
        if self.process == 0 || is_plain || !is_whole {
            return key;
        }
        let mut known = self.known.lock();
        if let Some(named) = known.by_own.get(&key) {
            return named.here;
        }
        let found = self.find(&mut known, key, members);
        let (here, inside) = found.map_or((key, None), |(here, inside)| (here, Some(inside)));
        known.name(key, Named { here, inside });
        here
    }

    /// What is known of a thread that may have ended.
    pub fn remember(&self, here: ThreadKey, inside: Inside) {
        let (process, thread) = match inside {
            Inside::Known { process, thread } => (process, thread),
            Inside::Thread { process } => (process, here.thread),
            Inside::Process => (here.process, here.thread),
        };
        let key = ThreadKey {
            process,
            thread,
            begin: here.begin,
        };
        let inside = Some(inside);
        self.known.lock().name(key, Named { here, inside });
    }

    /// What is known of a thread by what it is called here; none: it has no other numbers.
    pub fn inside(&self, here: ThreadKey) -> Option<Inside> {
        self.known.lock().by_here.get(&here)?.inside
    }

    /// Whether a process is known that has another number than here.
    pub fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The processes and threads that call themselves so.
    pub fn called(&self, process: i32, thread: i32, members: &dyn Members) -> Vec<(i32, i32)> {
        let mut known = self.known.lock();
        // Another process may have the number of one that has ended.
        let is_still = |&(process, own): &(i32, i32)| {
            own_number(process, process).is_ok_and(|number| number == own)
        };
        known.processes.retain(is_still);
        self.look(&mut known, members);
        if known.called(process).is_empty() {
            known.strangers.clear();
            self.look(&mut known, members);
        }
        let processes = known.called(process).into_iter();
        let find = |found: i32| Some((found, thread_with(found, process, thread)?));
        processes.filter_map(find).collect()
    }

    /// None: it is called the same here.
    fn find(
        &self,
        known: &mut Known,
        key: ThreadKey,
        members: &dyn Members,
    ) -> Option<(ThreadKey, Inside)> {
        if !self.has_any() && !is_no_fork(key.process as i32) {
            return None;
        }
        self.look(known, members);
        let mut processes = known.called(key.process as i32);
        if processes.len() > 1 {
            processes.retain(|process| members.has_thread(*process, key));
        }
        let [process] = processes[..] else {
            return Some((key, Inside::Process));
        };
        if process == key.process as i32 {
            return None;
        }
        let thread = match key.thread == key.process {
            true => Some(process),
            false => known.task(process, key.thread as i32),
        };
        let here = ThreadKey {
            process: process as u32,
            thread: thread.map_or(key.thread, |thread| thread as u32),
            begin: key.begin,
        };
        let inside = match thread {
            Some(_) => Inside::Known {
                process: key.process,
                thread: key.thread,
            },
            None => Inside::Thread {
                process: key.process,
            },
        };
        Some((here, inside))
    }

    /// Looks for processes that have come and gone.
    fn look(&self, known: &mut Known, members: &dyn Members) {
        let listed: HashSet<i32> = nopal_process::processes().collect();
        // The first is known as long as there are records of it.
        let first = (self.process as i32, self.own as i32);
        known
            .processes
            .retain(|one| *one != first && listed.contains(&one.0));
        known.processes.push(first);
        known.strangers.retain(|process| listed.contains(process));
        known.tasks.retain(|(process, ..)| listed.contains(process));
        for process in listed {
            let mut processes = known.processes.iter();
            if processes.any(|(one, _)| *one == process) || known.strangers.contains(&process) {
                continue;
            }
            let is_member = match is_no_fork(process) {
                true => Some(false),
                false => members.has(process),
            };
            match is_member {
                Some(true) => {
                    let own = own_number(process, process).ok();
                    known.processes.extend(own.map(|own| (process, own)));
                }
                Some(false) => drop(known.strangers.insert(process)),
                None => {}
            }
        }
        let mut numbers = known.processes.iter();
        if numbers.any(|(process, own)| process != own) {
            self.any.store(true, Ordering::Relaxed);
        }
    }
}

impl Known {
    fn name(&mut self, own: ThreadKey, named: Named) {
        if self.by_own.len() >= self.most.max(MOST_NAMED) {
            // A thread that has the same number here can be looked for again.
            for names in [&mut self.by_own, &mut self.by_here] {
                names.retain(|_, named| named.inside.is_some());
            }
            self.most = 2 * self.by_own.len();
        }
        self.by_own.insert(own, named);
        self.by_here.insert(named.here, named);
    }

    fn called(&self, number: i32) -> Vec<i32> {
        let processes = self.processes.iter();
        let called = processes.filter(|(_, own)| *own == number);
        called.map(|(process, _)| *process).collect()
    }

    /// The thread of a process that calls itself so.
    fn task(&mut self, process: i32, own: i32) -> Option<i32> {
        /// The kernel may leave threads out of a list while others end.
        const LOOKS: usize = 3;
        let is_called = |task: i32| own_number(process, task).is_ok_and(|number| number == own);
        let is_its = |one: &&(i32, i32, i32)| (one.0, one.2) == (process, own);
        for _ in 0..LOOKS {
            let mut called = self.tasks.iter().filter(is_its);
            if let Some((_, task, _)) = called.find(|(_, task, _)| is_called(*task)) {
                return Some(*task);
            }
            let listed = nopal_process::threads(process).unwrap_or_default();
            self.tasks.retain(|(of, task, number)| {
                *of != process || *number != own && listed.binary_search(task).is_ok()
            });
            let known: HashSet<i32> = self.tasks.iter().map(|(_, task, _)| *task).collect();
            for task in listed.into_iter().filter(|task| !known.contains(task)) {
                let number = own_number(process, task).ok();
                self.tasks
                    .extend(number.map(|number| (process, task, number)));
            }
        }
        None
    }
}

/// Whether a process is this one, or began before: no fork of a process that we trace has.
fn is_no_fork(process: i32) -> bool {
    let own = std::process::id() as i32;
    process == own || nopal_process::start_time(process).is_ok_and(|begin| begin < own_start())
}

/// When this process began.
fn own_start() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(|| {
        let own = std::process::id() as i32;
        nopal_process::start_time(own).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unasked;

    impl Members for Unasked {
        fn has(&self, _: i32) -> Option<bool> {
            panic!("nobody is looked for")
        }

        fn has_thread(&self, _: i32, _: ThreadKey) -> bool {
            panic!("nobody is looked for")
        }
    }

    /// No process but that which the region was made for.
    struct Nobody;

    impl Members for Nobody {
        fn has(&self, _: i32) -> Option<bool> {
            Some(false)
        }

        fn has_thread(&self, _: i32, _: ThreadKey) -> bool {
            false
        }
    }

    fn first_thread(process: u32) -> ThreadKey {
        ThreadKey {
            process,
            thread: process,
            begin: 1,
        }
    }

    #[test]
    fn nobody_is_looked_for_where_all_have_one_number() {
        let numbers = Numbers::new(std::process::id() as i32);
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        for process in [std::process::id(), child.id()] {
            let key = first_thread(process);
            assert_eq!(numbers.here(key, &Unasked), key);
            assert_eq!(numbers.inside(key), None);
        }
        assert!(!numbers.has_any());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// Whether the region is there.
    struct All(bool);

    impl Members for All {
        fn has(&self, _: i32) -> Option<bool> {
            Some(self.0)
        }

        fn has_thread(&self, _: i32, _: ThreadKey) -> bool {
            self.0
        }
    }

    #[test]
    fn a_fork_is_found_that_has_the_number_of_a_stranger_which_has_ended() {
        let numbers = Numbers::new(std::process::id() as i32);
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = child.id() as i32;
        assert_eq!(numbers.called(process, process, &All(false)), []);
        let found = numbers.called(process, process, &All(true));
        assert_eq!(found, [(process, process)]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// A fork of ours has its number inside of a namespace.
    #[test]
    fn who_has_the_number_of_an_older_process_is_not_taken_for_that_one() {
        let numbers = Numbers::new(std::process::id() as i32);
        let oldest = first_thread(1);
        assert_eq!(numbers.here(oldest, &Nobody), oldest);
        assert_eq!(numbers.inside(oldest), Some(Inside::Process));
    }
}
