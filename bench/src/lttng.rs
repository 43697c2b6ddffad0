//! A session daemon of LTTng-UST for this benchmark alone.

use crate::programs::is_installed;
use crate::run::{Paths, remove, run};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SESSION: &str = "nopal-bench";

/// The daemon, which ends with this value.
pub struct Daemon {
    child: Child,
    /// The directory of its sockets; its programs find it by LTTNG_HOME.
    pub home: PathBuf,
    output: PathBuf,
}

impl Daemon {
    pub fn start(paths: &Paths) -> Result<Daemon> {
        let header = Path::new("/usr/include/x86_64-linux-gnu/lttng/tracepoint.h");
        ensure!(
            is_installed("lttng") && header.exists(),
            "apt-get install lttng-tools liblttng-ust-dev"
        );
        let home = paths.directory.join("lttng-home");
        std::fs::create_dir_all(&home)?;
        let mut daemon = Command::new("lttng-sessiond");
        daemon.env("LTTNG_HOME", &home).arg("--no-kernel");
        let child = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Daemon {
            child,
            home,
            output: paths.peer_trace(),
        })
    }

    pub fn command(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("lttng");
        // Without the option, `lttng` would start another daemon, which would stay.
        command.env("LTTNG_HOME", &self.home).arg("--no-sessiond");
        run(command.args(words))?;
        Ok(())
    }

    /// A session that records `events` and the thread's number, not yet started.
    pub fn create(&self, events: &str) -> Result<()> {
        remove(&self.output)?;
        let output = format!("--output={}", self.output.display());
        let create = || self.command(&["create", SESSION, &output]);
        let mut created = create();
        for _ in 0..50 {
            if created.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            created = create();
        }
        created?;
        self.command(&["enable-event", "-u", events])?;
        self.command(&["add-context", "-u", "-t", "vtid"])
    }

    pub fn destroy(&self) -> Result<()> {
        self.command(&["destroy", SESSION])
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
    }
}
