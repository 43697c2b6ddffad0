//! A command on a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::run::{End, PATIENCE, Start};

/// The test's side of the terminal; the command leads the session on the other side.
pub struct Terminal {
    master: File,
    child: Child,
    text: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn start(start: &Start) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let nothing = std::ptr::null_mut();
        // SAFETY: openpty writes two descriptors into locals of ours and reads nothing through the null pointers.
        let opened = unsafe {
            libc::openpty(
                &mut master,
                &mut slave,
                nothing,
                nothing.cast(),
                nothing.cast(),
            )
        };
        assert_eq!(opened, 0, "a terminal can be had");
        // SAFETY: both descriptors are new and have no other owner.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let number = slave.as_raw_fd();
        let mut command = start.command();
        // The terminal has colours, whatever the tests run in.
        command.env("TERM", "xterm");
        for refusal in ["NO_COLOR", "CLICOLOR"] {
            command.env_remove(refusal);
        }
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                for standard in 0..3 {
                    libc::dup2(number, standard);
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("the command starts");
        drop(slave);
        let text = Arc::new(Mutex::new(Vec::new()));
        let (sink, mut source) = (
            text.clone(),
            master.try_clone().expect("a descriptor can be had"),
        );
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading ends with EIO once the other side is closed.
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                sink.lock()
                    .expect("no panic poisons it")
                    .extend_from_slice(&buffer[..count]);
            }
        });
        Terminal {
            master,
            child,
            text,
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no panic poisons it"))
            .replace("\r\n", "\n")
    }

    /// Sets the terminal's size; a new terminal has none.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: a plain system call that reads the structure.
        let done = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(done, 0, "a terminal can be resized");
    }

    /// Hangs up the terminal, as if its window were closed. Needs root.
    pub fn hang_up(&self) {
        const TIOCVHANGUP: libc::Ioctl = 0x5437;
        let mut name = [0; 64];
        // SAFETY: a buffer of that length, which holds a string then.
        let path = unsafe {
            let named = libc::ptsname_r(self.master.as_raw_fd(), name.as_mut_ptr(), name.len());
            assert_eq!(named, 0, "a terminal has a name");
            std::ffi::CStr::from_ptr(name.as_ptr()).to_str()
        };
        let path = path.expect("it is plain");
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(path)
            .expect("a terminal can be opened");
        // SAFETY: a plain system call.
        let done = unsafe { libc::ioctl(slave.as_raw_fd(), TIOCVHANGUP, 0) };
        assert_eq!(done, 0, "a terminal can be hung up");
    }

    pub fn write(&mut self, keys: &str) {
        self.master
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    pub fn wait_for(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(wanted) {
            assert!(
                Instant::now() < deadline,
                "timed out waiting for {wanted:?}:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn wait(&mut self) -> End {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status.into();
            }
            assert!(
                Instant::now() < deadline,
                "timed out waiting for its end:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // SAFETY: a plain system call; the session's group has its leader's number.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}
