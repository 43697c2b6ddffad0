//! A session that only remembers its commands.

use nopal_serve::{Access, Content, Entry, Failure, File, Server, Tree};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tempfile::TempDir;

/// Bytes of the file `long`.
pub const LONG: usize = 1_000_000;

#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    pub received: Vec<String>,
    pub stream: Vec<u8>,
    pub children: Vec<i32>,
    /// The number of closed files that were opened to be written.
    pub closed: usize,
    /// The number of open files.
    pub open: usize,
}

impl Fake {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn received(&self) -> String {
        self.state().received.join("|")
    }
}

impl Tree for Fake {
    fn list(&self, folder: &str) -> Result<Vec<Entry>, Failure> {
        let names: &[(&str, bool, u32)] = match folder {
            "" => &[
                ("ctl", false, 0o600),
                ("long", false, 0o400),
                ("tracing", true, 0o700),
            ],
            "tracing" => &[("trace_pipe", false, 0o400)],
            _ => return Err(Failure::new(libc::ENOENT, "no such folder")),
        };
        let entry = |&(name, folder, mode): &(&str, bool, u32)| Entry {
            name: name.into(),
            folder,
            mode,
        };
        Ok(names.iter().map(entry).collect())
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn File>, Failure> {
        if access.truncate {
            self.state().received.clear();
        }
        let shown = match path {
            "ctl" => self.received().into_bytes(),
            "long" => (0..LONG).map(|at| at as u8).collect(),
            "tracing/trace_pipe" => Vec::new(),
            _ => return Err(Failure::new(libc::ENOENT, format!("{path}: no such file"))),
        };
        self.state().open += 1;
        Ok(Box::new(FakeFile {
            session: self.clone(),
            stream: path.ends_with("pipe"),
            shown,
            line: Vec::new(),
            written: access.write,
        }))
    }

    fn command(&self, text: &str) -> Result<String, Failure> {
        self.state().received.push(text.into());
        Ok(format!("got {text}"))
    }

    fn find(&self, process: i32) -> Result<(), Failure> {
        match self.state().children.contains(&process) {
            true => Ok(()),
            false => Err(Failure::new(libc::ESRCH, "no such process here")),
        }
    }

    fn detach(&self) -> Result<(), Failure> {
        self.state().received.push("detach".into());
        Ok(())
    }
}

struct FakeFile {
    session: Fake,
    stream: bool,
    shown: Vec<u8>,
    line: Vec<u8>,
    written: bool,
}

impl File for FakeFile {
    fn is_stream(&self) -> bool {
        self.stream
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<Content, Failure> {
        if self.stream {
            let length = length.min(self.shown.len());
            let bytes: Vec<u8> = self.shown.drain(..length).collect();
            return Ok(match bytes.is_empty() {
                true => Content::Later,
                false => Content::Bytes(bytes),
            });
        }
        let start = (offset as usize).min(self.shown.len());
        let end = (start + length).min(self.shown.len());
        Ok(Content::Bytes(self.shown[start..end].to_vec()))
    }

    fn refill(&mut self) -> Result<(), Failure> {
        self.shown.append(&mut self.session.state().stream);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut self.line)).unwrap();
            if line.starts_with("bad") {
                let message = format!("'{line}': no such command");
                return Err(Failure::new(libc::EINVAL, message));
            }
            self.session.state().received.push(line);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        match self.line.is_empty() {
            true => Ok(()),
            false => self.write(b"\n"),
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let flushed = self.flush();
        self.session.state().closed += usize::from(self.written);
        flushed
    }
}

impl Drop for FakeFile {
    fn drop(&mut self) {
        self.session.state().open -= 1;
    }
}

/// The one directory of this test's process, below which all sockets are.
pub fn runtime() -> &'static Path {
    static RUNTIME: OnceLock<TempDir> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let made = tempfile::tempdir().unwrap();
        std::fs::set_permissions(made.path(), Permissions::from_mode(0o700)).unwrap();
        // SAFETY: each test comes here before it does anything else, and the others wait for this.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", made.path()) };
        made
    });
    made.path()
}

/// A session of a process that exists only by its number.
pub fn session() -> (Fake, Server, i32) {
    static NEXT: AtomicI32 = AtomicI32::new(1_000_000);
    runtime();
    let fake = Fake::default();
    let mut server = Server::start(Arc::new(fake.clone())).unwrap();
    let process = NEXT.fetch_add(1, Ordering::Relaxed);
    server.add(process).unwrap();
    (fake, server, process)
}
