use std::ffi::{CStr, CString, NulError, OsString, c_char};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::{fmt, ptr};

use crate::refusal::examine;
use crate::search::{Strings, candidates, goes_on};
use crate::start::{Start, swap_mask};
use crate::{Ending, Event, Options, Stop, StopError, Thread};

/// A program to launch.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// A path, or a name to look up in `PATH` as `execvp` does.
    pub program: OsString,
    /// `argv`, with `argv[0]`.
    pub arguments: Vec<OsString>,
    /// `NAME=value`; [`environment`] if absent.
    pub environment: Option<Vec<OsString>>,
    /// The program's working directory.
    pub directory: Option<PathBuf>,
}

/// A child that has executed its program but not run an instruction of it: stopped as [`Stop::Executed`].
#[derive(Debug)]
pub struct Launched {
    pub pid: i32,
    pub thread: Thread,
}

#[derive(Debug)]
pub enum LaunchError {
    /// A string holds a zero byte.
    Zero,
    /// `errno` of `execve`.
    Execute(i32),
    /// `errno` of `chdir`.
    Directory(i32),
    /// No child could be made.
    Fork(io::Error),
    /// The child may not be traced.
    Trace(anyhow::Error),
    /// The child ended before it executed anything.
    Ended(Ending),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            LaunchError::Zero => out.write_str("a zero byte within a string"),
            LaunchError::Execute(errno) => io::Error::from_raw_os_error(*errno).fmt(out),
            LaunchError::Directory(errno) => {
                write!(
                    out,
                    "cannot change directory: {}",
                    io::Error::from_raw_os_error(*errno)
                )
            }
            LaunchError::Fork(error) => write!(out, "cannot make a process: {error}"),
            LaunchError::Trace(error) => write!(out, "{error:#}"),
            LaunchError::Ended(ending) => write!(out, "the new process ended early: {ending:?}"),
        }
    }
}

impl std::error::Error for LaunchError {}

impl LaunchError {
    /// The exit status of a shell for this failure: 127 if the program does not exist, 126 if it cannot be executed.
    pub fn status(&self) -> Option<i32> {
        match self {
            LaunchError::Execute(libc::ENOENT) => Some(127),
            LaunchError::Execute(_) => Some(126),
            _ => None,
        }
    }
}

impl From<NulError> for LaunchError {
    fn from(_: NulError) -> LaunchError {
        LaunchError::Zero
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Our own environment, in order, including malformed entries.
pub fn environment() -> Vec<OsString> {
    let mut entries = Vec::new();
    // SAFETY: `environ` is a null-terminated array of strings; nobody may change it while others run.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(OsString::from_vec(
                CStr::from_ptr(*entry).to_bytes().to_vec(),
            ));
            entry = entry.add(1);
        }
    }
    entries
}

/// Everything that the child needs: it may not allocate.
struct Child {
    candidates: Vec<CString>,
    arguments: Strings,
    shell_arguments: Vec<*const c_char>,
    environment: Strings,
    directory: Option<CString>,
    start: Start,
    /// The child reads a byte from here before it continues.
    go: i32,
    /// The parent's end of that pipe, which the child closes first: otherwise it would never see the end of the pipe.
    parents_go: i32,
    failure: i32,
}

/// Starts a program in the same environment as without nopal: it has our standard files, other inheritable descriptors,
/// process group, terminal, limits and `umask`, and the signal actions that we were started with, not those that Rust
/// has set.
///
/// The kernel does not raise privileges of set-user-id programs that are traced, unless the tracer is privileged.
///
/// `meanwhile` is called with the new process, when that no longer needs ours, while it executes the program.
pub fn launch(command: &Command, meanwhile: impl FnOnce(i32)) -> Result<Launched, LaunchError> {
    let mut child = Child::of(command)?;
    let (go_reader, go_writer) = pipe().map_err(LaunchError::Fork)?;
    let (failure_reader, failure_writer) = pipe().map_err(LaunchError::Fork)?;
    child.go = go_reader.as_raw_fd();
    child.parents_go = go_writer.as_raw_fd();
    child.failure = failure_writer.as_raw_fd();
    keep_statuses_of_children();
    // No handler of ours may run in the child.
    let mask = swap_mask(Some(u64::MAX));
    // SAFETY: the child calls async-signal-safe functions only, until it executes or exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: this is the child, and everything that it needs is prepared.
        unsafe { child.run() }
    }
    let error = io::Error::last_os_error();
    swap_mask(Some(mask));
    drop((go_reader, failure_writer));
    if pid == -1 {
        return Err(LaunchError::Fork(error));
    }
    match Thread::seize(pid, pid, Options { executions: true }) {
        Ok(thread) => {
            // If the child has been killed, the wait reports it.
            let _ = File::from(go_writer).write_all(&[GO]);
            meanwhile(pid);
            await_program(pid, thread, failure_reader)
        }
        Err(error) => {
            let tracer = examine(pid)
                .err()
                .filter(|reason| matches!(reason, StopError::TracedBy { .. }));
            // This byte makes the child end. Under another tracer that may be much later.
            let _ = File::from(go_writer).write_all(&[END]);
            match tracer {
                None => {
                    reap(pid);
                    Err(LaunchError::Trace(error))
                }
                Some(tracer) => Err(LaunchError::Trace(tracer.into())),
            }
        }
    }
}

/// Executes a program in this process, if no child can be made. Returns only if the program cannot be run.
pub fn become_program(command: &Command) -> LaunchError {
    let mut child = match Child::of(command) {
        Ok(child) => child,
        Err(error) => return error,
    };
    child.start.restore();
    // SAFETY: everything that it needs is prepared.
    LaunchError::Execute(unsafe { child.execute() })
}

fn await_program(pid: i32, mut thread: Thread, failure: OwnedFd) -> Result<Launched, LaunchError> {
    loop {
        match thread.wait().map_err(LaunchError::Trace)? {
            Event::Stopped(Stop::Executed) => return Ok(Launched { pid, thread }),
            Event::Stopped(_) => thread.resume().map_err(LaunchError::Trace)?,
            Event::Ended(ending) => {
                reap(pid);
                let mut report = [0; 5];
                if File::from(failure).read_exact(&mut report).is_err() {
                    return Err(LaunchError::Ended(ending));
                }
                let errno = i32::from_le_bytes([report[1], report[2], report[3], report[4]]);
                return Err(match report[0] {
                    DIRECTORY => LaunchError::Directory(errno),
                    _ => LaunchError::Execute(errno),
                });
            }
        }
    }
}

fn reap(pid: i32) {
    // SAFETY: waits for our own child, whose status nobody needs.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// If SIGCHLD is ignored, as some parents leave it, the kernel discards the status of children. The child gets the
/// original action.
fn keep_statuses_of_children() {
    // SAFETY: zeroes are a valid action to fill in.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGCHLD, ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_IGN {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((read.into(), write.into()))
}

const SHELL: &CStr = c"/bin/sh";
const GO: u8 = 1;
const END: u8 = 2;
const DIRECTORY: u8 = b'd';
const EXECUTE: u8 = b'x';

impl Child {
    /// The child has no pipes yet.
    fn of(command: &Command) -> Result<Child, LaunchError> {
        let environment = command
            .environment
            .clone()
            .unwrap_or_else(self::environment);
        let arguments = Strings::new(command.arguments.iter().cloned())?;
        let directory = command
            .directory
            .as_ref()
            .map(|path| CString::new(path.as_os_str().as_bytes()));
        // The second is the script, found later. Without arguments, the null pointer is first.
        let mut shell_arguments = vec![SHELL.as_ptr(); 2];
        let given = arguments.pointers();
        shell_arguments.extend_from_slice(&given[usize::from(given.len() > 1)..]);
        Ok(Child {
            candidates: candidates(&command.program, &environment)?,
            arguments,
            shell_arguments,
            environment: Strings::new(environment)?,
            directory: directory.transpose()?,
            start: Start::of_this_process(),
            go: -1,
            parents_go: -1,
            failure: -1,
        })
    }

    /// # Safety
    /// Only in a child after `fork`, with all signals blocked.
    unsafe fn run(&mut self) -> ! {
        // SAFETY: async-signal-safe calls with pointers that were prepared before `fork`.
        unsafe {
            let mut go = 0u8;
            libc::close(self.parents_go);
            // If the tool has been killed, no byte comes, and the program runs nevertheless.
            if libc::read(self.go, (&raw mut go).cast(), 1) == 1 && go == END {
                libc::_exit(127);
            }
            if let Some(directory) = &self.directory
                && libc::chdir(directory.as_ptr()) == -1
            {
                self.fail(DIRECTORY, *libc::__errno_location());
            }
            self.start.restore();
            let errno = self.execute();
            self.fail(EXECUTE, errno)
        }
    }

    /// Tries all candidates and returns the failure to report.
    unsafe fn execute(&mut self) -> i32 {
        let mut denied = false;
        let mut errno = libc::ENOENT;
        let arguments = self.arguments.pointers().as_ptr();
        let environment = self.environment.pointers().as_ptr();
        for index in 0..self.candidates.len() {
            let path = self.candidates[index].as_ptr();
            // SAFETY: null-terminated arrays of strings that live as long as this child.
            unsafe {
                libc::execve(path, arguments, environment);
                if *libc::__errno_location() == libc::ENOEXEC {
                    self.execute_script(path);
                }
                errno = *libc::__errno_location();
            }
            denied |= errno == libc::EACCES;
            if !goes_on(errno) {
                return errno;
            }
        }
        if denied { libc::EACCES } else { errno }
    }

    /// A script without `#!`: `/bin/sh path arguments…`.
    fn execute_script(&mut self, path: *const c_char) {
        self.shell_arguments[1] = path;
        let environment = self.environment.pointers().as_ptr();
        // SAFETY: null-terminated arrays of strings that live as long as this child.
        unsafe { libc::execve(SHELL.as_ptr(), self.shell_arguments.as_ptr(), environment) };
    }

    unsafe fn fail(&self, stage: u8, errno: i32) -> ! {
        let [a, b, c, d] = errno.to_le_bytes();
        let report = [stage, a, b, c, d];
        // SAFETY: writes five bytes of our own, less than a pipe takes at once.
        unsafe {
            libc::write(self.failure, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        }
    }
}
