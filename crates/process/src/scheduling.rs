//! The scheduling of a thread by the kernel.

use crate::information::thread_status;

/// The data of `sched_getattr` and `getpriority`, and the real user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    pub uid: u32,
    pub nice: i32,
    /// `SCHED_…`
    pub policy: u32,
    /// Under `SCHED_FIFO` and `SCHED_RR`; else 0.
    pub real_time_priority: u32,
}

/// The first version of the kernel's `struct sched_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    deadline: [u64; 3],
}

/// Policy, nice level and priority, for a microsecond. `None`: the thread has ended.
pub fn schedule(thread: i32) -> Option<(u32, i32, u32)> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most as many bytes as it is told there are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            &raw mut attributes,
            size_of::<Attributes>(),
            0,
        )
    };
    // A thread of a real-time policy has a nice level as well, which the call above does not tell.
    let nice = || rustix::process::getpriority_process(rustix::process::Pid::from_raw(thread));
    let nice = (done == 0).then(nice)?.ok()?;
    Some((attributes.policy, nice, attributes.priority))
}

/// `None`: the thread has ended.
pub fn scheduling(process: i32, thread: i32) -> Option<Scheduling> {
    let (policy, nice, real_time_priority) = schedule(thread)?;
    Some(Scheduling {
        uid: thread_status(process, thread).ok()?.users[0],
        nice,
        policy,
        real_time_priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_as_it_was_made() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (ends, waits) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = rustix::thread::gettid();
            rustix::process::setpriority_process(Some(own), 7).unwrap();
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: a whole structure.
            let set = unsafe {
                libc::sched_setscheduler(own.as_raw_pid(), libc::SCHED_BATCH, &parameters)
            };
            assert_eq!(set, 0);
            sender.send(own.as_raw_pid()).unwrap();
            let _ = waits.recv();
        });
        let number = receiver.recv().unwrap();
        let process = std::process::id() as i32;
        let expected = Scheduling {
            uid: rustix::process::getuid().as_raw(),
            nice: 7,
            policy: libc::SCHED_BATCH as u32,
            real_time_priority: 0,
        };
        assert_eq!(scheduling(process, number), Some(expected));
        drop(ends);
        thread.join().unwrap();
        while crate::thread_alive(process, number) {
            std::thread::yield_now();
        }
        assert_eq!(scheduling(process, number), None);
    }
}
