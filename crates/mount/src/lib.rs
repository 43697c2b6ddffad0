//! All sessions of a user as files, by FUSE: `DIR/PID/ctl`, `DIR/PID/trace`, `DIR/PID/tracing/…`.
//!
//! A process of its own shows them. It asks a file's session for the content, over the session's socket, when the file
//! is used. Each open file is a connection of its own. The kernel keeps nothing: sizes are 0, as in `/proc`, and names
//! are looked up each time.

mod filesystem;
mod nodes;
mod open;
mod reader;
mod sessions;

use anyhow::{Context, Result, bail, ensure};
use filesystem::Sessions;
use fuser::{Config, MountOption, Session};
use rustix::mount::{UnmountFlags, unmount};
use std::path::Path;
use std::sync::mpsc::channel;

/// Serves until somebody unmounts the directory, or `wait` returns. `mounted` is called when all is in place.
pub fn mount(
    directory: &Path,
    mounted: impl FnOnce(),
    wait: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let shown = directory.display();
    match directory.metadata() {
        Ok(about) => ensure!(about.is_dir(), "{shown} is not a directory"),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => bail!(
            "{shown} is still mounted, by a nopal that was killed: `fusermount3 -u {shown}` unmounts it"
        ),
        Err(error) => return Err(error).context(shown.to_string()),
    }
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("nopal".into()),
        MountOption::Subtype("nopal".into()),
        MountOption::NoExec,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    let mut session = Session::new(Sessions::default(), directory, &config)
        .with_context(|| format!("{shown} cannot be mounted (`nopal doctor` says why)"))?;
    let mut unmounter = session.unmount_callable();
    mounted();
    let (over, either) = channel();
    let unmounted = over.clone();
    std::thread::spawn(move || unmounted.send(session.run().context("the mount has failed")));
    let path = directory.to_path_buf();
    std::thread::spawn(move || {
        wait();
        // Files may be in use: they fail from now on.
        let result = unmounter
            .unmount()
            .or_else(|_| unmount(&path, UnmountFlags::DETACH))
            .with_context(|| path.display().to_string());
        over.send(result)
    });
    either.recv()?
}
