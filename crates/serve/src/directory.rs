//! The directories of a user's sockets. If `XDG_RUNTIME_DIR` names one that is not the login's, it is the only one, with
//! `nopal` below it. Else they are `/run/nopal` for root, `/run/user/UID/nopal` for other users, and `/tmp/nopal-UID`. A
//! session uses the first that can be had. For users it changes with their logins, so clients look into all. Nobody else
//! may have made one or may look into it.

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long others may change the directory, and how often they are asked. They take a millisecond, and longer on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(3);
const BETWEEN: Duration = Duration::from_millis(1);

pub struct Directory {
    file: OwnedFd,
    /// Whether its lock could not be had the last time. Then nobody waits for it again until it is free.
    is_held: Cell<bool>,
}

impl Directory {
    /// Makes it where there is none yet.
    pub fn create() -> Result<Directory> {
        let user = geteuid().as_raw();
        for path in candidates(user) {
            match rustix::fs::mkdirat(CWD, &path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => return open(&path, user),
                Err(_) => {}
            }
        }
        bail!(
            "there is no directory for control sockets: XDG_RUNTIME_DIR, /run and /tmp cannot be used"
        )
    }

    /// The directories of this user's sessions. An error: all that exist are unusable.
    pub fn own() -> Result<Vec<Directory>> {
        Directory::of(geteuid().as_raw())
    }

    /// The directories of another user, which root may use.
    pub fn of(user: u32) -> Result<Vec<Directory>> {
        let mut found = Vec::new();
        let mut no_good = None;
        let exists = |path: &PathBuf| rustix::fs::lstat(path).is_ok();
        for path in candidates(user).into_iter().filter(exists) {
            match open(&path, user) {
                Ok(directory) => found.push(directory),
                Err(error) => no_good = Some(error),
            }
        }
        match no_good {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// A path to a name in it that does not change its meaning, and that fits a socket's address however long the
    /// directory's own path is.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.file.as_raw_fd()))
    }

    pub fn names(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path(""))?;
        Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect())
    }

    pub fn link(&self, target: &str, name: &str) -> rustix::io::Result<()> {
        rustix::fs::symlinkat(target, &self.file, name)
    }

    /// Whether the last attempt to lock it failed because another process has the lock.
    pub fn is_held(&self) -> bool {
        self.is_held.get()
    }

    pub fn remove(&self, name: &str) {
        // It may be gone already.
        let _ = rustix::fs::unlinkat(&self.file, name, AtFlags::empty());
    }

    /// Names are added and stale ones removed by one process at a time, which does not wait for anything meanwhile. But it
    /// may have been stopped: then the others do without, after a while.
    pub fn locked<T>(&self, change: impl FnOnce() -> T) -> Result<T> {
        let begin = Instant::now();
        let patience = if self.is_held.get() {
            Duration::ZERO
        } else {
            PATIENCE
        };
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if begin.elapsed() < patience => {
                    std::thread::sleep(BETWEEN);
                }
                Err(Errno::WOULDBLOCK) => {
                    self.is_held.set(true);
                    bail!(
                        "another nopal, which is stopped or frozen, holds the directory of control sockets"
                    )
                }
                other => {
                    other.context("the directory of control sockets cannot be locked")?;
                    break;
                }
            }
        }
        self.is_held.set(false);
        let result = change();
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        Ok(result)
    }
}

fn candidates(user: u32) -> Vec<PathBuf> {
    let is_private = |base: &PathBuf| {
        rustix::fs::lstat(base).is_ok_and(|about| {
            is_directory(&about) && about.st_uid == user && about.st_mode & 0o022 == 0
        })
    };
    let of_login = PathBuf::from(format!("/run/user/{user}"));
    let named = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && *path != of_login && is_private(path));
    if let Some(named) = named {
        return vec![named.join("nopal")];
    }
    // Root's tracing goes on when root logs out.
    let lasting = if user == 0 { "/run".into() } else { of_login };
    let lasting = is_private(&lasting).then(|| lasting.join("nopal"));
    let temporary = PathBuf::from(format!("/tmp/nopal-{user}"));
    lasting.into_iter().chain([temporary]).collect()
}

fn open(path: &Path, user: u32) -> Result<Directory> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .with_context(|| path.display().to_string())?;
    let about = rustix::fs::fstat(&file)?;
    ensure!(
        about.st_uid == user,
        "{} belongs to user {}: it is not used for control sockets",
        path.display(),
        about.st_uid
    );
    ensure!(
        about.st_mode & 0o077 == 0,
        "{} is open to other users: it is not used for control sockets (chmod 700 makes it private)",
        path.display()
    );
    let is_held = Cell::new(false);
    Ok(Directory { file, is_held })
}

fn is_directory(about: &Stat) -> bool {
    FileType::from_raw_mode(about.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_process_that_is_stopped_with_the_lock_does_not_stop_others() {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), Permissions::from_mode(0o700)).unwrap();
        let open = || open(place.path(), geteuid().as_raw()).unwrap();
        let (stopped, other) = (open(), open());
        rustix::fs::flock(&stopped.file, FlockOperation::LockExclusive).unwrap();
        let error = other.locked(|| ()).unwrap_err().to_string();
        assert!(error.contains("stopped or frozen"), "{error}");
        // A thousand more attempts take no thousand times as long.
        for _ in 0..1000 {
            other.locked(|| ()).unwrap_err();
        }
        assert!(other.is_held());
        rustix::fs::flock(&stopped.file, FlockOperation::Unlock).unwrap();
        other.locked(|| ()).unwrap();
    }
}
