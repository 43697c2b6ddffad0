//! Processors that do not become idle: some kernels report nothing of what a processor does while it is idle.

use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// While this lives, each processor has something to run, which gives way to everything else.
pub struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    #[expect(clippy::new_without_default, reason = "it starts threads")]
    pub fn new() -> Awake {
        let over = Arc::new(AtomicBool::new(false));
        let spin = |processor: usize| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                give_way();
                // This process may not be allowed to use every processor.
                if stay_on(processor) {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            })
        };
        // SAFETY: asks for a number.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as usize;
        Awake {
            threads: (0..processors).map(spin).collect(),
            over,
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread that only spins");
        }
    }
}

/// The first processor that this process may use.
pub fn first_processor() -> usize {
    // SAFETY: a set of nothing is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of that size; 0 is the calling thread.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    assert_eq!(got, 0, "sched_getaffinity: {}", Error::last_os_error());
    let mut all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the number is within the set.
    all.find(|processor| unsafe { libc::CPU_ISSET(*processor, &set) })
        .expect("a processor")
}

/// Has the calling thread run only where nothing else can.
fn give_way() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: a valid pointer; 0 is the calling thread.
    let given = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) };
    assert_eq!(given, 0, "SCHED_IDLE: {}", Error::last_os_error());
}

/// Binds the calling thread to a processor. Returns whether it may run there.
fn stay_on(processor: usize) -> bool {
    // SAFETY: a set of nothing is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if processor >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: the number is within the set; 0 is the calling thread.
    unsafe {
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
    }
}
