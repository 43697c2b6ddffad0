//! The recording of a program that is started. Once it has begun to run, it runs to its end, and nopal ends as it does:
//! where the recording fails, it runs untraced.

use crate::assemble::{create, drain, first_control, session};
use crate::guardian::Guardian;
use crate::heap;
use crate::launch::{self, Arrived};
use crate::memory::own_memory::{refuse_without_memory, take_back};
use crate::options::{Ended, Options, Outcome};
use crate::record::Beginning;
use crate::refusal::Refusal;
use crate::session::handle::Handle;
use crate::session::signals::{Signals, send_signal};
use crate::session::unfollowed::Unfollowed;
use crate::session::watchdog::{self, Progress};
use crate::session::{Session, ended_as};
use crate::sites::files::Files;
use crate::tracee::Settings;
use anyhow::{Error, Result, anyhow, bail};
use nopal_beside::both;
use nopal_control::Control;
use nopal_process::{ExitWatch, Launched, Thread, child_ending};
use nopal_trace::{Subscriber, Writer};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How often the end of a program is looked for that runs untraced.
const NAP: Duration = Duration::from_millis(10);

pub fn record(
    options: &Options,
    settings: Settings,
    program: &OsString,
    arguments: &[OsString],
    subscriber: Option<Box<dyn Subscriber>>,
    started: impl FnOnce(Handle, Beginning),
) -> Result<Outcome> {
    let found = launch::find(program)?;
    refuse_without_memory(&settings)?;
    Writer::could_create(&options.directory)?;
    let words: Vec<OsString> = std::iter::once(program).chain(arguments).cloned().collect();
    let command = launch::command(program, &words);
    let signals = Signals::before_launch().map_err(|error| Refusal::alone(&command, error))?;
    let mut files = Files::new();
    let mut guarded = None;
    let mut progress = Progress::default();
    let launched = launch::launch(&command, |pid| {
        // Before there are other threads, which get the signal mask of this one.
        let guardian = Guardian::start(&options.directory);
        guarded = Some(guardian.and_then(|guardian| signals.after_launch().map(|()| guardian)));
        // Those of the terminal are the program's.
        let pass_on = move |signal| send_signal(pid, signal);
        progress = watchdog::start(&signals, &[libc::SIGTERM, libc::SIGHUP], pass_on);
        // The guardian, whose parent is this process, must not wait for the program.
        nopal_process::survive(pid);
        heap::prepare();
        if let Some(found) = found {
            files.expect(found);
        }
    });
    let guarded = guarded.unwrap_or_else(|| Err(anyhow!("no process was made")));
    let Launched { pid, mut thread } = match launched {
        Ok(launched) => launched,
        Err(error) => {
            let _ = guarded.map(|mut guardian| guardian.dismiss());
            return Err(error);
        }
    };
    let begun = caught(|| {
        let wanted = (options, settings, subscriber);
        begin(wanted, &words, files, guarded?, &mut thread)
    });
    let (mut session, handle, main, failure) = match begun {
        Ok(begun) => begun,
        Err(refusal) if refusal.is::<Refusal>() => {
            // It has not run an instruction of its own.
            send_signal(pid, libc::SIGKILL);
            return Err(refusal);
        }
        Err(error) => {
            let _ = thread.detach();
            let why = format!("the program ran untraced: {error:#}");
            return Ok(Outcome::without_trace(end_of(pid, None, &signals), why));
        }
    };
    session.progress = progress;
    let beginning = Beginning {
        risk: session.context.files.probes.untold_risk(),
        missing: session.missing_ends(),
        ..Beginning::default()
    };
    session.keep_trace();
    started(handle.clone(), beginning);
    let _ = thread.detach();
    if let Some(error) = failure {
        session.let_go(pid);
        session.processes.tracees.clear();
        session
            .context
            .warnings
            .push(format!("the program ran untraced: {error:#}"));
    }
    session.serve(handle);
    Ok(to_end(session, main, &signals))
}

/// Brings the program to its first code and makes it traced. Where that fails after the trace has begun, the failure
/// stands apart: the session goes on without the program.
fn begin(
    (options, settings, subscriber): (&Options, Settings, Option<Box<dyn Subscriber>>),
    words: &[OsString],
    mut files: Files,
    mut guardian: Guardian,
    thread: &mut Thread,
) -> Result<(Session, Handle, ExitWatch, Option<Error>)> {
    let main = ExitWatch::new(thread.pid())?;
    let arrived = arrive(
        options, &settings, words, subscriber, thread, &mut files, &guardian,
    );
    let (arrived, control, created) = arrived.inspect_err(|_| guardian.dismiss())?;
    let begun = (control, created, files);
    let (mut session, handle) = session(options, settings, begun, guardian, thread.pid());
    let set_up = session.set_up_first().map_err(Refusal::choice);
    let begun = set_up.and_then(|()| match arrived? {
        Some(arrived) => {
            let is_switched = session.begin_first(thread, arrived)?;
            session.arrived(is_switched)
        }
        None => {
            session.unfollowed.add(thread.pid(), Unfollowed::ENDED);
            Ok(())
        }
    });
    let failure = match begun {
        Err(refusal) if refusal.is::<Refusal>() => {
            session.guardian.dismiss();
            return Err(refusal);
        }
        Err(_) if !nopal_process::alive(thread.pid()) => None,
        other => other.err(),
    };
    Ok((session, handle, main, failure))
}

/// Brings the program to its first code, and begins its trace. What cannot be run, or has nothing of what is asked for,
/// leaves an older trace where it is.
fn arrive(
    options: &Options,
    settings: &Settings,
    words: &[OsString],
    subscriber: Option<Box<dyn Subscriber>>,
    thread: &mut Thread,
    files: &mut Files,
    guardian: &Guardian,
) -> Result<(Result<Option<Arrived>>, Control, Writer)> {
    let image = launch::traceable(thread.pid())?;
    let control = |arrived: &Result<Option<Arrived>>, files: &Files| match arrived {
        Ok(Some(Arrived { planned, .. })) => {
            first_control(options, settings, std::slice::from_ref(planned), files)
                .map_err(Refusal::choice)
        }
        _ => Ok(Control::new()),
    };
    let chooses = !(options.only.is_empty()
        && options.markers.is_empty()
        && options.probes.is_empty()
        && options.tracers.is_empty()
        && options.snapshot_when.is_empty()
        && options.keep_slowest.is_none());
    let arrived_or_refused = |arrived: Result<Option<Arrived>>| match arrived {
        Err(refusal) if refusal.is::<Refusal>() => Err(refusal),
        arrived => Ok(arrived),
    };
    let (arrived, control, created) = if chooses {
        let arrived = launch::arrive(thread, image, files, settings, guardian);
        let arrived = arrived_or_refused(arrived)?;
        let control = control(&arrived, files)?;
        (arrived, control, create(options, words, subscriber))
    } else {
        // Nothing can be wrong with what is asked for.
        let (arrived, created) = both(
            || launch::arrive(thread, image, files, settings, guardian),
            || create(options, words, subscriber),
        );
        let arrived = arrived_or_refused(arrived)?;
        let control = control(&arrived, files)?;
        (arrived, control, created)
    };
    let (arrived, writer) = with_trace(thread, arrived, created)?;
    Ok((arrived, control, writer))
}

/// A program that has no trace has no use for memory of nopal's.
fn with_trace(
    thread: &mut Thread,
    arrived: Result<Option<Arrived>>,
    created: Result<Writer>,
) -> Result<(Result<Option<Arrived>>, Writer)> {
    match created {
        Ok(writer) => Ok((arrived, writer)),
        Err(error) => {
            if let Ok(Some(arrived)) = &arrived {
                take_back(thread, &arrived.own.ranges())?;
            }
            Err(error)
        }
    }
}

/// Serves until the program has ended, and completes the trace.
fn to_end(mut session: Session, mut main: ExitWatch, signals: &Signals) -> Outcome {
    let drain = drain(&session);
    let ran = match &drain {
        Ok(drain) => caught(|| session.run(&mut main, signals, drain)),
        Err(error) => Err(anyhow!("{error:#}")),
    };
    let (ended, left) = ran.unwrap_or_else(|error| {
        let let_go = caught(|| {
            let left = session.left();
            session.let_all_go(left);
            Ok(())
        });
        for failure in [Some(error), let_go.err()].into_iter().flatten() {
            session.context.warnings.push(format!(
                "the recording has failed, and the program ran on untraced: {failure:#}"
            ));
        }
        (end_of(main.pid(), Some(&mut main), signals), Vec::new())
    });
    let mut notes = session.context.warnings.clone();
    let finished = caught(|| {
        session.serve_no_more();
        session.finish(ended, &left, drain?)
    });
    finished.unwrap_or_else(|error| {
        notes.push(format!("the trace could not be completed: {error:#}"));
        Outcome::without_trace(ended, notes.join("; "))
    })
}

/// Waits for the end of a program that runs untraced.
fn end_of(process: i32, mut watch: Option<&mut ExitWatch>, signals: &Signals) -> Ended {
    // They may not have been blocked yet.
    let _ = signals.after_launch();
    loop {
        let seen = watch.as_mut().and_then(|watch| watch.poll().ok().flatten());
        if let Some(ending) = seen.or_else(|| child_ending(process)) {
            return ended_as(ending);
        }
        for signal in signals.take().to_forward {
            send_signal(process, signal);
        }
        std::thread::sleep(NAP);
    }
}

/// A mistake of nopal's own is an error like others.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| bail!("internal error of nopal"))
}
