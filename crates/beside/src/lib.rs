//! Two things at once, where a second thread can be had: limits may leave none. And locks for what they share.

mod lock;

pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};

/// Runs `other` in a thread beside `own`, or after it if no thread can be started.
pub fn both<Own, Other: Send>(
    own: impl FnOnce() -> Own,
    other: impl FnOnce() -> Other + Send,
) -> (Own, Other) {
    // If a thread cannot be started, its closure is lost: so it only borrows the task.
    let other = Mutex::new(Some(other));
    let take = || other.lock().take();
    let (own, other) = scope(|scope| {
        let theirs = try_spawn(scope, || take().map(|work| work()));
        let own = own();
        let theirs =
            theirs.and_then(|theirs| theirs.join().unwrap_or_else(|why| resume_unwind(why)));
        (own, theirs)
    });
    match other.or_else(|| take().map(|work| work())) {
        Some(other) => (own, other),
        None => unreachable!("it is done by one of both"),
    }
}

/// Starts a thread, if possible.
pub fn try_spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_done() {
        let own = std::thread::current().id();
        let (first, second) = both(|| 1, || (2, std::thread::current().id()));
        assert_eq!((first, second.0), (1, 2));
        assert_ne!(second.1, own);
    }

    #[test]
    #[should_panic(expected = "theirs")]
    fn a_panic_is_passed_on() {
        both(|| (), || panic!("theirs"));
    }
}
