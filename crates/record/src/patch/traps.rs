//! Breakpoints that lead to probes: the process's own handler of SIGTRAP, which is nopal's as long as there are any.

use crate::filters::{has_added_filter, thread_has_added_filter};
use crate::memory::inject::Injector;
use crate::patch::change::Change;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nopal_agent::{BREAKPOINTS, Breakpoint, IMAGE_TRAP, IMAGE_TRAP_RETURN, Traps};
use nopal_process::{Memory, Stopped, Thread};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// The risk of a breakpoint, printed for each.
pub const RISK: &str = "a probe by a breakpoint kills the program if a thread that blocks SIGTRAP hits it, such as a handler that blocks all signals; detach nopal before you attach a debugger";

const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// Bytes of a set of signals, as the kernel has it.
const SET_BYTES: u64 = 8;

/// `SA_RESTORER`, which libc keeps for itself.
const RESTORER: u64 = 0x0400_0000;
/// Not on an alternate stack: the words that the signal leaves there look like a handler that will return to generated
/// code.
const FLAGS: u64 = (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | RESTORER;

/// The first pause for a thread that has met a breakpoint, and has no signal yet; each is twice as long as the one
/// before, as a busy machine may let it wait for a processor. All are within the time that a thread waits for an answer
/// (`runtime/core/request.c`).
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
const ATTEMPTS: u32 = 11;

impl Tracee {
    /// As [`Tracee::handle_traps`], with a thread that is stopped for it.
    pub fn prepare_traps(&mut self) -> Result<()> {
        let mut stopped = self.stop()?;
        let prepared = match stopped.keep_one() {
            Some(thread) => self.handle_traps(thread),
            None => Err(anyhow!("no thread of the process can be stopped")),
        };
        self.held = stopped.let_go();
        prepared
    }

    /// Makes our handler that of SIGTRAP, unless it is already. `thread` is stopped. Refused where the program could
    /// not live with breakpoints.
    pub fn handle_traps(&self, thread: &mut Thread) -> Result<()> {
        let at = self.places.head + nopal_agent::traps_offset();
        let handled = held(&self.memory, at)?.ours[0] != 0;
        refuse(self.process, thread, handled)?;
        if handled {
            return Ok(());
        }
        let image = self.places.first_arena().context("no generated code")?;
        let ours = [
            image + IMAGE_TRAP,
            FLAGS,
            image + IMAGE_TRAP_RETURN,
            u64::MAX,
        ];
        let mut injector = Injector::new(thread)?;
        self.memory
            .write(at + offset_of!(Traps, ours) as u64, ours.as_bytes())?;
        let done = set_action(
            &mut injector,
            at + offset_of!(Traps, ours) as u64,
            at + offset_of!(Traps, before) as u64,
        );
        if done.is_err() {
            self.memory
                .write(at + offset_of!(Traps, ours) as u64, [0u64; 4].as_bytes())?;
        }
        done
    }

    /// Tells the handler where breakpoints lead, before they are written. No thread runs that could meet one.
    pub fn list_breakpoints(&self, changes: &[Change]) -> Result<()> {
        let mut new = changes.iter().filter(|change| change.is_breakpoint());
        let at = self.places.head + nopal_agent::traps_offset();
        new.try_for_each(|change| {
            let traps = held(&self.memory, at)?;
            let count = (traps.count as usize).min(BREAKPOINTS);
            let known = traps.breakpoints[..count]
                .iter()
                .position(|known| known.address == change.address);
            let index = known.unwrap_or(count);
            ensure!(
                index < BREAKPOINTS,
                "a process has {BREAKPOINTS} breakpoints at most"
            );
            let entry = Breakpoint {
                address: change.address,
                detour: change.entry,
            };
            let offset = offset_of!(Traps, breakpoints) + index * size_of::<Breakpoint>();
            self.memory.write(at + offset as u64, entry.as_bytes())?;
            let filled = count.max(index + 1) as u64;
            self.memory
                .write(at + offset_of!(Traps, count) as u64, &filled.to_le_bytes())
        })
    }

    /// Takes all breakpoints out and gives SIGTRAP back. Returns whether there were any.
    pub fn leave_traps(&mut self, context: &mut PatchContext) -> Result<bool> {
        let changes = self.changes.iter();
        let out: Vec<Change> = changes.filter(|it| it.is_breakpoint()).copied().collect();
        if !out.is_empty() {
            self.take_out(&out, context)?;
        }
        for change in &out {
            self.probe_sites.remove(&change.address);
        }
        self.settle_traps()?;
        Ok(!out.is_empty())
    }

    /// Gives SIGTRAP back to the program when the last breakpoint has left. If this fails now, the end of the session
    /// does it.
    pub fn settle_traps(&mut self) -> Result<()> {
        let at = self.places.head + nopal_agent::traps_offset();
        if self.changes.iter().any(Change::is_breakpoint) || held(&self.memory, at)?.ours[0] == 0 {
            return Ok(());
        }
        for attempt in 0..ATTEMPTS {
            let mut stopped = self.stop()?;
            let restored = give_back(&mut stopped, &self.memory, at)?;
            self.held = stopped.let_go();
            if restored {
                break;
            }
            // A thread that has met one takes its signal when it gets a processor.
            std::thread::sleep(PAUSE * (1 << attempt));
        }
        Ok(())
    }
}

/// The content of the structure at `at`.
pub fn held(memory: &Memory, at: u64) -> Result<Traps> {
    let mut traps = Traps::default();
    memory.read(at, traps.as_mut_bytes())?;
    Ok(traps)
}

/// Restores the former action of SIGTRAP, if it is still ours: while all threads stand still, and no breakpoint is in
/// the text. False while a thread has met one and its signal is still pending.
pub fn give_back(stopped: &mut Stopped, memory: &Memory, at: u64) -> Result<bool> {
    let traps = held(memory, at)?;
    if traps.ours[0] == 0 {
        return Ok(true);
    }
    let process = stopped.pid();
    let has_none_pending = |thread: &Thread| {
        let status = nopal_process::thread_status(process, thread.tid());
        status.is_ok_and(|status| status.pending & TRAP == 0)
    };
    let mut own = stopped.threads().iter().filter(|it| it.pid() == process);
    if !stopped.late().is_empty() || !own.all(has_none_pending) {
        return Ok(false);
    }
    let mut threads = stopped.threads_mut().iter_mut();
    let Some(thread) = threads.find(|thread| thread.pid() == process) else {
        return Ok(false);
    };
    if thread_has_added_filter(thread) {
        thread.suspend_seccomp(true)?;
    }
    let (ours, before) = (
        at + offset_of!(Traps, ours) as u64,
        at + offset_of!(Traps, before) as u64,
    );
    let mut injector = Injector::new(thread)?.without_others();
    // The present action lands in `ours`: the program may have taken the signal for itself.
    set_action(&mut injector, 0, ours)?;
    if memory.read_word(ours)? == traps.ours[0] {
        set_action(&mut injector, before, 0)?;
    }
    memory.write(ours, [0u64; 4].as_bytes())?;
    Ok(true)
}

fn set_action(injector: &mut Injector, new: u64, old: u64) -> Result<()> {
    let words = [libc::SIGTRAP as u64, new, old, SET_BYTES, 0, 0];
    injector
        .call("rt_sigaction", libc::SYS_rt_sigaction, words)
        .map(|_| ())
}

/// Refuses where breakpoints cannot be. `handled`: the handler is ours already.
fn refuse(process: i32, thread: &Thread, handled: bool) -> Result<()> {
    let status = nopal_process::status(process)?;
    ensure!(
        handled || status.caught & TRAP == 0,
        "the program handles SIGTRAP itself: it cannot have breakpoints"
    );
    ensure!(
        status.ignored & TRAP == 0,
        "the program ignores SIGTRAP: it cannot have breakpoints"
    );
    ensure!(
        !has_added_filter(process),
        "a seccomp filter may forbid returning from signal handlers: this program cannot have breakpoints"
    );
    let threads = nopal_process::threads(process)?.into_iter();
    for number in threads.filter(|&thread| nopal_process::runs_program(process, thread)) {
        let blocked = match number == thread.tid() {
            true => thread.signal_mask()?,
            // A thread that has ended meanwhile meets no breakpoint.
            false => nopal_process::thread_status(process, number).map_or(0, |it| it.blocked),
        };
        if blocked & TRAP != 0 {
            bail!("thread {number} blocks SIGTRAP: a breakpoint would kill the program");
        }
    }
    Ok(())
}
