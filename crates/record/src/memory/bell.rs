//! Bells: words that are incremented to wake the threads that wait for them. Each region has one for its process's
//! requests; a session has one of its own, for the tool's other threads.

use crate::memory::region::Region;
use rustix::io::Errno;
use rustix::thread::futex::{self, Timespec};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The kernel's limit of futexes to wait for at once.
const MOST_WAITED_FOR: usize = 128;

/// The bell of a session.
#[derive(Default)]
pub struct Bell(AtomicU32);

impl Bell {
    pub fn ring(&self) {
        // Release pairs with the acquire of the session, which reads the bell before it looks for work.
        self.0.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// The counts of the session's bell and of those of its regions.
pub struct Bells {
    own: u32,
    regions: Vec<(Arc<Region>, u32)>,
}

impl Bells {
    pub fn read(own: &Bell, regions: Vec<Arc<Region>>) -> Bells {
        let counted = regions.into_iter().map(|region| {
            let count = region.bell();
            (region, count)
        });
        Bells {
            own: own.count(),
            regions: counted.collect(),
        }
    }

    pub fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.regions.iter().map(|(region, _)| region)
    }

    /// Sleeps until one of them is rung, or has been since they were read, or `time` is over. The bell of a region
    /// beyond the kernel's limit is not heard, nor any region's before Linux 5.16: the thread that collects rings the
    /// session's for them.
    pub fn wait(&self, own: &Bell, time: Duration) {
        let wait = |word: &AtomicU32, count: u32| {
            let mut wait = futex::Wait::new();
            wait.val = u64::from(count);
            wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
            wait.flags = futex::WaitFlags::SIZE_U32;
            wait
        };
        let words = self.regions.iter();
        let regions = words.map(|(region, count)| wait(region.bell_word(), *count));
        let all = std::iter::once(wait(&own.0, self.own)).chain(regions);
        let waits: Vec<futex::Wait> = all.take(MOST_WAITED_FOR).collect();
        let time = Timespec::try_from(time).ok();
        let until = time.and_then(|time| clock_gettime(ClockId::Monotonic).checked_add(time));
        let flags = futex::WaitvFlags::empty();
        let waited = futex::waitv(&waits, flags, until.as_ref(), ClockId::Monotonic);
        // An older kernel, or a filter of system calls.
        if !matches!(
            waited,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)
        ) {
            let flags = futex::Flags::empty();
            let _ = futex::wait(&own.0, flags, self.own, time.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::channel;

    /// As a thread of a process rings: `quietly` if it may make no system call.
    fn ring(region: &Region, quietly: bool) {
        region.bell_word().fetch_add(1, Ordering::Release);
        if !quietly {
            let _ = futex::wake(region.bell_word(), futex::Flags::empty(), 1);
        }
    }

    fn region() -> Arc<Region> {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        Arc::new(Region::create(file, 1 << 20, 0, 0, 0).unwrap())
    }

    #[test]
    fn each_bell_is_heard_also_one_that_was_rung_before() {
        let own = Arc::new(Bell::default());
        let regions: Vec<Arc<Region>> = (0..3).map(|_| region()).collect();
        let rings: [&(dyn Fn() + Sync); 4] = [
            &|| own.ring(),
            &|| ring(&regions[0], false),
            &|| ring(&regions[1], true),
            &|| ring(&regions[2], false),
        ];
        for (number, rung) in rings.into_iter().enumerate() {
            for before in [true, false] {
                let is_quiet = number == 2;
                if is_quiet && !before {
                    continue;
                }
                let bells = Bells::read(&own, regions.clone());
                let (own, (heard, hears)) = (own.clone(), channel());
                if before {
                    rung();
                }
                std::thread::spawn(move || {
                    bells.wait(&own, Duration::from_secs(600));
                    let _ = heard.send(());
                });
                if !before {
                    std::thread::sleep(Duration::from_millis(50));
                    rung();
                }
                let waited = hears.recv_timeout(Duration::from_secs(60));
                assert!(waited.is_ok(), "bell {number}, rung before: {before}");
            }
        }
    }

    #[test]
    fn silence_ends() {
        let own = Bell::default();
        Bells::read(&own, vec![region()]).wait(&own, Duration::from_millis(1));
    }
}
