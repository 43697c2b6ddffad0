//! The recording of processes that run.

use crate::assemble::{create, drain, first_control, session};
use crate::attach;
use crate::collecting::notes::processor_time;
use crate::guardian::Guardian;
use crate::memory::own_memory::refuse_without_memory;
use crate::options::{Options, Outcome};
use crate::record::Beginning;
use crate::session::Session;
use crate::session::handle::Handle;
use crate::session::signals::{ENDING, Signals};
use crate::session::watchdog;
use crate::sites::files::Files;
use crate::sites::fitting::Planned;
use crate::tracee::Settings;
use anyhow::{Error, Result, bail, ensure};
use nopal_kernel_events::{Allowed, allowed};
use nopal_process::{Auxiliary, ExitWatch, StopError, gone};
use nopal_trace::Subscriber;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// A process that runs, as it was when it was looked at first.
struct Candidate {
    process: i32,
    watch: ExitWatch,
    program: Auxiliary,
}

impl Candidate {
    fn of(process: i32) -> Result<Candidate> {
        let examine = || {
            attach::refuse_what_cannot_be(process)?;
            let watch = ExitWatch::new(process)?;
            let program = nopal_process::auxiliary(process)?;
            // A process has memory for its next program before it has the program.
            ensure!(program.entry.is_some(), gone(process));
            Ok(Candidate {
                process,
                watch,
                program,
            })
        };
        examine().map_err(|error: Error| {
            let cause = error.root_cause();
            let number = cause.downcast_ref::<io::Error>();
            let number = number.and_then(io::Error::raw_os_error);
            let is_missing =
                number == Some(libc::ESRCH) || cause.downcast_ref() == Some(&Errno::SRCH);
            match is_missing {
                true => gone(process).into(),
                false => error,
            }
        })
    }
}

/// The processes that are not traced, and why.
#[derive(Default)]
struct LeftOut(Vec<(i32, Error)>);

impl LeftOut {
    /// The result for a process, unless it is left out.
    fn unless<T>(&mut self, process: i32, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.0.push((process, error))).ok()
    }

    /// Whether a process is left out as it executed, and may be looked at again.
    fn executes(&self, process: i32) -> bool {
        let mut left_out = self.0.iter();
        left_out.any(|(left_out, error)| *left_out == process && executes(error))
    }

    /// `may_grow`: the session looks for processes that come, and so for those that execute.
    fn describe(&self, may_grow: bool) -> Vec<String> {
        let lines = self.0.iter().map(|(process, error)| {
            let yet = match may_grow && executes(error) {
                true => " yet, and looked at again each second",
                false => "",
            };
            format!("process {process} is not traced{yet}: {error:#}")
        });
        lines.collect()
    }

    /// None is traced.
    fn all(mut self) -> Error {
        match self.0.len() {
            1 => {
                let (process, error) = self.0.remove(0);
                error.context(format!("process {process} is not traced"))
            }
            _ => Error::msg(self.describe(false).join("; ")),
        }
    }
}

/// Kernel events of the scheduler are those of all tasks, where this is permitted; all others are of one process and what
/// it starts. An error: they are wanted, and cannot be recorded of several processes.
fn takes_several(options: &Options) -> Result<()> {
    let kinds = options.events;
    ensure!(
        options.tracepoints.is_empty() && kinds == kinds.of_perf(),
        "functions, markers and tracepoints of the kernel can be recorded with one process only (-k, -e GROUP)"
    );
    if kinds.scheduling()
        && let Allowed::Own(missing) | Allowed::Nothing(missing) = allowed()
    {
        bail!("kernel events can be recorded with one process only: {missing}");
    }
    Ok(())
}

impl Options {
    /// Whether a session looks for processes that come to those that it is attached to.
    pub fn may_grow(&self) -> bool {
        !self.memberships.is_empty() && self.follow_exec && takes_several(self).is_ok()
    }
}

/// Attaches to each process; one that cannot be traced does not stop the others.
pub(crate) fn record(
    options: &Options,
    settings: Settings,
    processes: &[i32],
    subscriber: Option<Box<dyn Subscriber>>,
    started: impl FnOnce(Handle, Beginning),
) -> Result<Outcome> {
    if processes.len() > 1 {
        takes_several(options)?;
    }
    let mut left_out = LeftOut::default();
    let examine = |process: &i32| left_out.unless(*process, Candidate::of(*process));
    let candidates: Vec<Candidate> = processes.iter().filter_map(examine).collect();
    if candidates.is_empty() {
        return Err(left_out.all());
    }
    refuse_without_memory(&settings)?;
    let signals = Signals::before_launch()?;
    let mut guardian = Guardian::start(&options.directory)?;
    signals.after_launch()?;
    let progress = watchdog::start(&signals, &ENDING, |_| ());
    let mut files = Files::new();
    let plan = |candidate: Candidate| {
        let planned = Planned::of(candidate.process, &mut files);
        let planned = planned.map_err(|error| or_gone(&candidate, error));
        Some((left_out.unless(candidate.process, planned)?, candidate))
    };
    let (plans, candidates): (Vec<Planned>, Vec<Candidate>) =
        candidates.into_iter().filter_map(plan).unzip();
    let Some(first) = candidates.first() else {
        guardian.dismiss();
        return Err(left_out.all());
    };
    let begun = first_control(options, &settings, &plans, &files).and_then(|control| {
        let command = nopal_process::arguments(first.process).unwrap_or_default();
        Ok((control, create(options, &command, subscriber)?))
    });
    let (control, created) = begun.map_err(|error| {
        guardian.dismiss();
        or_gone(first, error)
    })?;
    let begun = (control, created, files);
    let (mut session, handle) = session(options, settings, begun, guardian, first.process);
    session.progress = progress;
    if let Err(error) = session.set_up_first() {
        session.guardian.dismiss();
        return Err(error);
    }
    let drain = drain(&session).inspect_err(|_| session.guardian.dismiss())?;
    let mut main = None;
    // Control was begun with the first one's.
    session.expected = plans.first().cloned();
    if plans.len() > 1 {
        session.context.blocks.keep();
    }
    for (candidate, planned) in candidates.into_iter().zip(plans) {
        let attached = match session.enough {
            true => Err(Error::msg("the session was ended before")),
            false => session.attach_candidate(&candidate, planned),
        };
        if left_out.unless(candidate.process, attached).is_none() {
            continue;
        }
        if main.is_none() {
            session.keep_trace();
            session.processes.main = candidate.process;
            main = Some(candidate.watch);
            session.serve(handle.clone());
        }
        // Each process takes milliseconds, or much longer where there are many for a processor.
        session.has_come(candidate.process);
        if signals.take().enough {
            session.progress.begin();
            session.enough = true;
        }
    }
    session.context.blocks.forget();
    let Some(mut main) = main else {
        let _ = drain.stop();
        session.guardian.dismiss();
        return Err(left_out.all());
    };
    let settled = processes
        .iter()
        .filter(|process| !left_out.executes(**process));
    settled
        .filter_map(|process| Began::of(*process))
        .for_each(|process| session.met.settle(process));
    let may_grow = session.may_grow();
    let beginning = Beginning {
        left_out: left_out.describe(may_grow),
        risk: session.context.files.probes.untold_risk(),
        missing: session.missing_ends(),
    };
    started(handle, beginning);
    let ran = session.run(&mut main, &signals, &drain);
    let (ended, left) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            let left = session.left();
            session.let_all_go(left);
            session.dismiss_guardian();
            return Err(drain.stop().err().unwrap_or(error));
        }
    };
    session.serve_no_more();
    session.finish(ended, &left, drain)
}

impl Session {
    /// Makes a process traced. Where that fails, nothing is left in it.
    fn attach_candidate(&mut self, candidate: &Candidate, planned: Planned) -> Result<()> {
        let process = candidate.process;
        // Another process may call other functions of the same library from outside of it.
        let attached = self
            .expect_planned(&planned)
            .and_then(|()| self.attach(process, &candidate.program, planned))
            .and_then(|is_switched| self.arrived(is_switched));
        attached.map_err(|error| {
            self.let_go(process);
            self.processes.tracees.remove(&process);
            or_gone(candidate, error)
        })
    }
}

impl Session {
    /// A process that ran before is traced now. Those that are get what they need meanwhile.
    fn has_come(&mut self, process: i32) {
        self.attached.push(process);
        self.count_against_budget(process);
        self.begin_budget(process);
        self.look_after();
    }

    /// Makes the processes traced that have come to those that are. Children of a traced process have nopal's memory and
    /// are recorded without this. Returns the processor time that it took to find them.
    pub(crate) fn attach_newcomers(&mut self) -> Duration {
        let begun = processor_time();
        let due = self.looks.due(nopal_process::processes().collect());
        let members = self.options.memberships.iter();
        let members: Vec<i32> = members
            .flat_map(|membership| membership.members_among(&due))
            .collect();
        let took = processor_time().saturating_sub(begun);
        for process in members {
            let Some(began) = Began::of(process).filter(|began| self.met.look_at(*began)) else {
                continue;
            };
            if attach::is_followed(process) {
                self.met.settle(began);
                continue;
            }
            let attached = Candidate::of(process).and_then(|candidate| {
                let planned = Planned::of(process, &mut self.context.files)
                    .map_err(|error| or_gone(&candidate, error))?;
                self.attach_candidate(&candidate, planned)
            });
            match attached {
                Ok(()) => self.has_come(process),
                // A process that ended at once was no member.
                Err(_) if !nopal_process::has_memory(process) => {}
                // It is the same process afterwards.
                Err(error) if executes(&error) && self.met.may_look_again(began) => {
                    self.looks.begin_again(process);
                    continue;
                }
                Err(error) => self
                    .context
                    .warnings
                    .push(format!("process {process} is not traced: {error:#}")),
            }
            self.met.settle(began);
        }
        took
    }

    /// Whether others are looked for.
    pub(crate) fn may_grow(&self) -> bool {
        self.options.may_grow()
    }
}

/// Whose names are read at a look. A process executes its program and takes its name soon after its begin, if ever: so
/// those that were there at the last looks are read in turns. One that does it later, or has the number of another one
/// that has ended between two looks, is found when its turn comes.
#[derive(Default)]
pub(crate) struct Looks {
    now: u64,
    /// By process, the first look that found it.
    first: HashMap<i32, u64>,
}

impl Looks {
    /// The looks at which a process is read, from the first one on.
    const EACH: u64 = 3;
    /// How many looks make a turn.
    const TURN: u64 = 10;

    /// Of the processes that there are, those whose names are to be read.
    fn due(&mut self, mut processes: Vec<i32>) -> Vec<i32> {
        let now = self.now;
        self.now += 1;
        let before = std::mem::take(&mut self.first);
        let first = |process| (process, before.get(&process).copied().unwrap_or(now));
        self.first = processes.iter().copied().map(first).collect();
        processes.retain(|process| {
            let is_new = self.first[process] + Self::EACH > now;
            is_new || (now + process.unsigned_abs() as u64).is_multiple_of(Self::TURN)
        });
        processes
    }

    /// A process is read at the next looks, too.
    fn begin_again(&mut self, process: i32) {
        self.first.insert(process, self.now);
    }
}

/// A process and when it began: no other one has both.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Began(i32, u64);

impl Began {
    fn of(process: i32) -> Option<Began> {
        Some(Began(process, nopal_process::start_time(process).ok()?))
    }
}

/// How many looks are left for the processes that were looked at. One that executes is looked at again, with a bound: one
/// that stands still at its first instruction does so for ever.
#[derive(Default)]
pub(crate) struct Met(HashMap<Began, u32>);

impl Met {
    /// Looks at a process, of which there is at most one a second.
    const LOOKS: u32 = 60;

    /// Whether a process is to be looked at, which counts as a look.
    fn look_at(&mut self, process: Began) -> bool {
        let left = self.0.entry(process).or_insert(Self::LOOKS);
        let any_left = *left > 0;
        *left = left.saturating_sub(1);
        any_left
    }

    fn may_look_again(&self, process: Began) -> bool {
        self.0.get(&process).is_none_or(|left| *left > 0)
    }

    /// It is not looked at again.
    fn settle(&mut self, process: Began) {
        self.0.insert(process, 0);
    }
}

/// An error of a process, which may be that it has ended, or executed another program than this.
fn or_gone(candidate: &Candidate, error: Error) -> Error {
    match nopal_process::auxiliary(candidate.process) {
        Ok(now) if now == candidate.program => error,
        _ => gone(candidate.process).into(),
    }
}

fn executes(error: &Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(StopError::Executes | StopError::NoControlBlock)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_soon_after_a_process_has_come_and_then_in_turns() {
        let mut looks = Looks::default();
        let all: Vec<i32> = (1..=100).collect();
        for _ in 0..Looks::EACH {
            assert_eq!(looks.due(all.clone()), all);
        }
        let mut read: Vec<i32> = Vec::new();
        for _ in 0..Looks::TURN {
            let due = looks.due(all.clone());
            assert_eq!(due.len(), 10);
            read.extend(due);
        }
        read.sort_unstable();
        assert_eq!(read, all, "each has its turn");
        let with = |process: i32| [&all[..], &[process]].concat();
        for _ in 0..Looks::EACH {
            assert!(looks.due(with(500)).contains(&500), "it has come");
        }
        let reads = |looks: &mut Looks| {
            (0..Looks::EACH)
                .filter(|_| looks.due(with(500)).contains(&500))
                .count()
        };
        assert!(reads(&mut looks) <= 1);
        looks.begin_again(500);
        assert_eq!(reads(&mut looks) as u64, Looks::EACH);
        looks.due(all.clone());
        assert_eq!(
            reads(&mut looks) as u64,
            Looks::EACH,
            "it has ended, and another came"
        );
    }

    #[test]
    fn a_process_that_executes_is_looked_at_again_with_a_bound() {
        let process = Began(7, 1);
        let mut met = Met::default();
        for look in 1..=Met::LOOKS {
            assert!(met.look_at(process));
            assert_eq!(met.may_look_again(process), look < Met::LOOKS);
        }
        assert!(!met.look_at(process));
    }

    #[test]
    fn a_process_that_is_settled_is_not_looked_at_again() {
        let (process, next) = (Began(7, 1), Began(7, 2));
        let mut met = Met::default();
        assert!(met.look_at(process));
        met.settle(process);
        assert!(!met.look_at(process) && !met.may_look_again(process));
        assert!(met.look_at(next), "another one with its number");
    }
}
