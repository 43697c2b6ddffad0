//! The instructions of a program, counted by single steps: the number is exact, and the same on a busy machine.

use anyhow::{Context, Result, bail, ensure};
use libc::{c_int, c_void, pid_t};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

/// The reason why a stepped thread has stopped.
enum Stop {
    Breakpoint,
    Step,
    Signal(c_int),
    End,
}

/// The instructions of one turn of each loop that a program of `programs/loops.h` counts.
pub fn of_turns(program: &mut Command) -> Result<HashMap<String, f64>> {
    program.stdout(Stdio::piped());
    // SAFETY: the closure makes a single system call.
    unsafe {
        program.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = program.spawn()?;
    let thread = child.id() as pid_t;
    let counted = stretches(thread);
    if counted.is_err() {
        child.kill()?;
    }
    let mut text = String::new();
    let mut out = child.stdout.take().context("no pipe")?;
    out.read_to_string(&mut text)?;
    let counted = counted?;
    // Lines of loops that are not counted have a figure.
    let names = text.lines().filter_map(|line| line.strip_suffix(" 0.000"));
    let names: Vec<&str> = names.collect();
    ensure!(
        counted.len() == 2 * names.len(),
        "{} loops and {} stretches between breakpoints",
        names.len(),
        counted.len()
    );
    let turns = counted
        .chunks_exact(2)
        .map(|pair| (pair[1] - pair[0]) as f64);
    Ok(names.into_iter().map(str::to_owned).zip(turns).collect())
}

/// The instructions between each breakpoint and the next, in pairs of breakpoints.
fn stretches(thread: pid_t) -> Result<Vec<i64>> {
    let mut all = Vec::new();
    // The first stop is that of the program's start.
    let mut stop = wait(thread)?;
    loop {
        let signal = match stop {
            Stop::End => return Ok(all),
            Stop::Signal(signal) => signal,
            Stop::Step => 0,
            Stop::Breakpoint => {
                all.push(stretch(thread)?);
                0
            }
        };
        go_on(libc::PTRACE_CONT, thread, signal)?;
        stop = wait(thread)?;
    }
}

fn stretch(thread: pid_t) -> Result<i64> {
    for steps in 0.. {
        go_on(libc::PTRACE_SINGLESTEP, thread, 0)?;
        match wait(thread)? {
            Stop::Step => {}
            Stop::Breakpoint => return Ok(steps),
            Stop::Signal(signal) => bail!("signal {signal} between breakpoints"),
            Stop::End => break,
        }
    }
    bail!("the program ended between breakpoints")
}

fn go_on(how: libc::c_uint, thread: pid_t, signal: c_int) -> Result<()> {
    // SAFETY: the thread is stopped, and traced by this one.
    let done = unsafe { libc::ptrace(how, thread, null_mut::<c_void>(), signal as usize) };
    ensure!(done == 0, "ptrace: {}", std::io::Error::last_os_error());
    Ok(())
}

fn wait(thread: pid_t) -> Result<Stop> {
    let mut status = 0;
    // SAFETY: `status` is valid for the kernel's write.
    let waited = unsafe { libc::waitpid(thread, &mut status, 0) };
    ensure!(waited == thread, "{}", std::io::Error::last_os_error());
    if !libc::WIFSTOPPED(status) {
        ensure!(status == 0, "the program ended with status {status:#x}");
        return Ok(Stop::End);
    }
    let signal = libc::WSTOPSIG(status);
    if signal != libc::SIGTRAP {
        return Ok(Stop::Signal(signal));
    }
    // SAFETY: the structure holds plain numbers, for which 0 is valid; the kernel fills it.
    let code = unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let into = &raw mut information;
        libc::ptrace(libc::PTRACE_GETSIGINFO, thread, null_mut::<c_void>(), into);
        information.si_code
    };
    // The signal of a breakpoint comes from the kernel.
    const SI_KERNEL: c_int = 0x80;
    Ok(match code {
        SI_KERNEL => Stop::Breakpoint,
        _ => Stop::Step,
    })
}
