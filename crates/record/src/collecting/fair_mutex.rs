//! A lock that its holder does not take again before those who wait for it.

use nopal_beside::{Mutex, MutexGuard};

/// A thread that waits for an ordinary mutex is woken when it is released, and finds it taken again by one that holds it
/// nearly all the time, as the thread that collects records does; for seconds, where there are many threads for a
/// processor. Here a waiting thread has the turn, without which nobody takes the lock.
pub struct FairMutex<T> {
    turn: Mutex<()>,
    held: Mutex<T>,
}

impl<T> FairMutex<T> {
    pub fn new(value: T) -> FairMutex<T> {
        FairMutex {
            turn: Mutex::new(()),
            held: Mutex::new(value),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _turn = self.turn.lock();
        self.held.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_next() {
        let lock = FairMutex::new(0);
        std::thread::scope(|scope| {
            for round in 1..=100 {
                let held = lock.lock();
                scope.spawn(|| *lock.lock() += 1);
                while lock.turn.try_lock().is_some() {
                    std::thread::yield_now();
                }
                drop(held);
                assert_eq!(*lock.lock(), round);
            }
        });
    }
}
