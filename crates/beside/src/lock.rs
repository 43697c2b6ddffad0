//! Locks that outlive a panic of who held them: what they guard is whole between any two statements, and nopal goes on
//! as long as it can.

use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// As [`std::sync::Mutex`], but never poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// As [`std::sync::RwLock`], but never poisoned.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As [`std::sync::Condvar`], for such locks.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_while(guard, condition);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the condition is false, or the time is over.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, time, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_what_is_guarded_to_others() {
        let (lock, signal) = (Mutex::new(1), Condvar::new());
        let panics = || {
            let mut held = lock.lock();
            *held = 2;
            panic!("while it is held");
        };
        std::thread::scope(|scope| scope.spawn(panics).join()).unwrap_err();
        assert_eq!(*lock.lock(), 2);
        assert_eq!(lock.try_lock().as_deref(), Some(&2));
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(*signal.wait_while(lock.lock(), |held| *held == 1), 2);
        let soon = Duration::from_millis(1);
        assert_eq!(*signal.wait_timeout_while(lock.lock(), soon, |_| true), 2);
        assert_eq!(lock.into_inner(), 2);
        let lock = RwLock::new(1);
        let panics = || {
            let mut held = lock.write();
            *held = 2;
            panic!("while it is held");
        };
        std::thread::scope(|scope| scope.spawn(panics).join()).unwrap_err();
        assert_eq!(*lock.read(), 2);
        *lock.write() = 3;
        assert_eq!(*lock.read(), 3);
    }
}
