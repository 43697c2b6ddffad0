//! The functions that acquire and release locks. The lock is the first argument.

/// The effect of a call on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// Waits for it, and has it if it returns 0, or that its owner died.
    Take,
    /// The same, but waits for a time only.
    Timed,
    /// The same, but does not wait.
    Try,
    /// Waits for it, and has it when it returns.
    Wait,
    Release,
    /// Releases the second argument, a mutex, and has it again when it returns.
    Condition,
}

const FUNCTIONS: &[(&str, Locking)] = &[
    ("pthread_mutex_lock", Locking::Take),
    ("pthread_mutex_timedlock", Locking::Timed),
    ("pthread_mutex_clocklock", Locking::Timed),
    ("pthread_mutex_trylock", Locking::Try),
    ("pthread_mutex_unlock", Locking::Release),
    ("pthread_rwlock_rdlock", Locking::Take),
    ("pthread_rwlock_timedrdlock", Locking::Timed),
    ("pthread_rwlock_clockrdlock", Locking::Timed),
    ("pthread_rwlock_tryrdlock", Locking::Try),
    ("pthread_rwlock_wrlock", Locking::Take),
    ("pthread_rwlock_timedwrlock", Locking::Timed),
    ("pthread_rwlock_clockwrlock", Locking::Timed),
    ("pthread_rwlock_trywrlock", Locking::Try),
    ("pthread_rwlock_unlock", Locking::Release),
    ("pthread_spin_lock", Locking::Take),
    ("pthread_spin_trylock", Locking::Try),
    ("pthread_spin_unlock", Locking::Release),
    // The same code in glibc: it releases a lock that nobody holds.
    ("pthread_spin_init", Locking::Release),
    ("pthread_cond_wait", Locking::Condition),
    ("pthread_cond_timedwait", Locking::Condition),
    ("pthread_cond_clockwait", Locking::Condition),
];

/// The end of the names of those functions of Rust's standard library that wait for its locks.
const RUST: &[&str] = &[
    "futex::Mutex::lock_contended",
    "futex::RwLock::read_contended",
    "futex::RwLock::write_contended",
];

/// The functions that acquire locks, in any library.
pub const TAKE: &[&str] = &[
    "pthread_mutex_{lock,timedlock,clocklock,trylock}@*",
    "pthread_rwlock_{rdlock,timedrdlock,clockrdlock,tryrdlock,wrlock,timedwrlock,clockwrlock,trywrlock}@*",
    "pthread_spin_{lock,trylock}@*",
    "pthread_cond_{wait,timedwait,clockwait}@*",
];
pub const RELEASE: &[&str] = &["pthread_{mutex,rwlock,spin}_unlock@*"];
pub const WAIT: &[&str] = &["*::futex::{Mutex::lock,RwLock::read,RwLock::write}_contended@*"];

/// The effect of a function, by its name in the file and its readable name.
pub fn locking(raw: &str, readable: &str) -> Option<Locking> {
    // A file may name the version of a symbol, and libc its own name of it.
    let plain = raw.split('@').next().unwrap_or(raw).trim_start_matches('_');
    if let Some((_, locking)) = FUNCTIONS.iter().find(|(name, _)| *name == plain) {
        return Some(*locking);
    }
    let waits = readable.contains("futex") && RUST.iter().any(|end| readable.ends_with(end));
    waits.then_some(Locking::Wait)
}

/// The result of a call that has acquired the lock.
pub fn has_taken(result: u64) -> bool {
    const OWNER_DIED: i32 = 130;
    matches!(result as i32, 0 | OWNER_DIED)
}
