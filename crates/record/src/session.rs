//! A recording from the program's start to the trace's end.

use crate::choose::Wanted;
use crate::collect::{Collector, Keep};
use crate::drain::{Drain, Shared};
use crate::files::Files;
use crate::guardian::Guardian;
use crate::launch::{self, Start};
use crate::lock;
use crate::notes::{self, counter, note, snapshot};
use crate::options::{Ended, Options, Outcome, WhenFull};
use crate::region::{Question, Region};
use crate::remove;
use crate::signals::{Signals, send_signal};
use crate::traced::{COPIES_STACKS, Settings, Traced, Workshop, process_copies_stacks};
use crate::unwrap;
use anyhow::{Context, Result, bail, ensure};
use nopal_abi::{ASK_EXEC, ASK_LIBRARIES, ASK_LOCK, WHEN_FULL_BLOCK, WHEN_FULL_DROP};
use nopal_agent::{DEPTH_LIMIT, Recorder};
use nopal_process::{Ending, ExecFollower, ExitWatch, Followed, Options as Trace, Thread};
use nopal_symbols::{Selection, demangle};
use nopal_trace::{Note, Writer};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the session sleeps at most before it looks whether the program has ended.
const TICK: Duration = Duration::from_millis(1);
/// How often processes are looked for that nobody has told of.
const LOOK_AROUND: Duration = Duration::from_millis(200);

/// Runs a program and records it.
pub fn record(options: &Options) -> Result<Outcome> {
    let settings = settings(options)?;
    launch::refuse_damaged(&options.program)?;
    let command: Vec<String> = std::iter::once(&options.program)
        .chain(&options.arguments)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let signals = Signals::before_launch()?;
    let mut guardian = Guardian::start(&options.directory)?;
    let mut launched = launch::launch(options).inspect_err(|_| guardian.dismiss())?;
    // Before the program runs, and before there are other threads, which get the signal mask of this one.
    signals.after_launch()?;
    // Only now: what cannot be run leaves an older trace where it is.
    let created = create(options, command).inspect_err(|_| {
        send_signal(launched.pid, libc::SIGKILL);
        guardian.dismiss();
    });
    let shared = Arc::new(Shared::new(created?));
    let main = ExitWatch::new(launched.pid)?;

    let mut session = Session {
        options,
        settings,
        shared: shared.clone(),
        files: Files::new(),
        traced: HashMap::new(),
        guardian,
        warnings: Vec::new(),
    };
    let begun = session
        .begin(&mut launched.thread)
        .and_then(|()| session.something_is_chosen());
    if let Err(error) = begun {
        // It has not run an instruction of its own.
        send_signal(launched.pid, libc::SIGKILL);
        session.guardian.dismiss();
        return Err(error);
    }
    let _ = launched.thread.detach();
    let keep = if options.when_full == WhenFull::Flight {
        Keep::Newest
    } else {
        Keep::All
    };
    let drain = Drain::start(shared, Collector::new(keep, options.max_bytes));
    let ended = session.run(main, &signals, &drain);
    let (ended, left) = ended?;
    session.finish(ended, &left, drain)
}

fn create(options: &Options, command: Vec<String>) -> Result<Writer> {
    let mut writer = Writer::create(&options.directory, notes::session(command, Vec::new()))?;
    writer.set_readable(demangle);
    writer.note(&snapshot())?;
    Ok(writer)
}

fn settings(options: &Options) -> Result<Settings> {
    if let Some(depth) = options.depth {
        ensure!(
            (1..=DEPTH_LIMIT).contains(&depth),
            "the depth must be from 1 to {DEPTH_LIMIT}"
        );
        ensure!(
            !options.entry_only,
            "a depth is counted by exits: it does not go with entries only"
        );
    }
    Ok(Settings {
        wanted: Wanted {
            selection: Selection::new(&options.only, &options.not)?,
            libraries: options.libraries,
        },
        recorder: Recorder {
            arguments: options.record_arguments,
            wraps: !options.entry_only,
            limits_depth: options.depth.is_some(),
        },
        buffer: options.buffer_bytes,
        // The flight recorder gives up the oldest records: threads wait for that, rather than lose the newest.
        when_full: match options.when_full {
            WhenFull::Drop => WHEN_FULL_DROP,
            WhenFull::Block | WhenFull::Flight => WHEN_FULL_BLOCK,
        },
        depth: options.depth.unwrap_or(0),
    })
}

struct Session<'a> {
    options: &'a Options,
    settings: Settings,
    shared: Arc<Shared>,
    files: Files,
    traced: HashMap<i32, Traced>,
    guardian: Guardian,
    warnings: Vec<String>,
}

impl Session<'_> {
    /// Makes a process traced that stands at the start of a new program.
    fn begin(&mut self, thread: &mut Thread) -> Result<()> {
        let process = thread.pid();
        let mut traced = match launch::to_first_code(thread)? {
            Start::Ready => {
                let mut workshop = Workshop {
                    settings: &self.settings,
                    files: &mut self.files,
                    writer: &self.shared.writer,
                    warnings: &mut self.warnings,
                };
                note(&self.shared.writer, &notes::process(process))?;
                Traced::begin(thread, &mut workshop)?
            }
            Start::Ended => return Ok(()),
        };
        self.guardian.watch(&mut traced)?;
        self.shared.add_region(traced.region.clone());
        self.traced.insert(process, traced);
        Ok(())
    }

    /// A choice that fits nothing is a mistake, unless it waits for a library that may be loaded later.
    fn something_is_chosen(&self) -> Result<()> {
        let waits = self
            .options
            .only
            .iter()
            .any(|pattern| pattern.contains('@'));
        if waits
            || self.options.only.is_empty()
            || self.files.traced.values().any(|count| *count > 0)
        {
            return Ok(());
        }
        let wanted = self.options.only.join(" ");
        let nearest = self.files.nearest(&wanted);
        ensure!(
            nearest.is_empty(),
            "no function matches {wanted}; the nearest are {}",
            nearest.join(", ")
        );
        bail!("no function matches {wanted}")
    }

    /// Serves the traced processes until the last one has ended, or the user wants no more. Returns how the program
    /// ended, and which processes run on.
    fn run(
        &mut self,
        mut main: ExitWatch,
        signals: &Signals,
        drain: &Drain,
    ) -> Result<(Ended, Vec<i32>)> {
        let mut ended = None;
        let mut looked = Instant::now();
        loop {
            let regions = self.shared.regions();
            let bells: Vec<u32> = regions.iter().map(|region| region.bell()).collect();
            for region in &regions {
                for question in region.questions() {
                    self.answer(region, &question);
                }
            }
            if ended.is_none() {
                ended = main.poll()?.map(ended_as);
                if ended.is_some() {
                    self.ended(main.pid(), ended);
                }
            }
            if let Some(ended) = ended
                && looked.elapsed() > LOOK_AROUND
            {
                looked = Instant::now();
                if self.left().is_empty() {
                    return Ok((ended, Vec::new()));
                }
            } else if let Some(ended) = ended
                && self.traced.is_empty()
                && self.left().is_empty()
            {
                return Ok((ended, Vec::new()));
            }
            let asked = signals.take();
            for signal in asked.to_forward {
                send_signal(main.pid(), signal);
            }
            if let Some(ended) = ended.filter(|_| asked.enough) {
                return Ok((ended, self.left()));
            }
            if drain.has_ended() {
                ensure!(ended.is_none(), "collecting records failed");
            }
            match regions.last().zip(bells.last()) {
                Some((region, bell)) => region.wait_for_bell(*bell, TICK),
                None => std::thread::sleep(TICK),
            }
        }
    }

    fn answer(&mut self, region: &Arc<Region>, question: &Question) {
        // In a PID namespace of its own a process has a number that is another's out here, which must not be touched.
        if !remove::has_mapped(question.process, region) {
            region.answer(question);
            self.warnings
                .push("a process in another PID namespace was not followed further".into());
            return;
        }
        // Each question is answered once: its place may be another question's by the next moment.
        let served = match question.what {
            ASK_EXEC => self.exec(region, question),
            ASK_LIBRARIES => {
                let changed = self.libraries_changed(region, question);
                region.answer(question);
                changed
            }
            ASK_LOCK => match self.lock_all(region, question) {
                Ok(true) => {
                    region.grant(question);
                    Ok(())
                }
                refused => {
                    region.answer(question);
                    refused.map(|_| ())
                }
            },
            _ => {
                region.answer(question);
                Ok(())
            }
        };
        if let Err(error) = served {
            self.warnings
                .push(format!("process {}: {error:#}", question.process));
        }
    }

    /// The process that asks: known, or a forked child of one that is.
    fn asker(&mut self, region: &Arc<Region>, process: i32) -> Result<&mut Traced> {
        if !self.traced.contains_key(&process) {
            let parent = self
                .traced
                .values()
                .find(|traced| Arc::ptr_eq(&traced.region, region))
                .context("its memory belongs to no traced process")?;
            let child = parent.fork(process)?;
            self.traced.insert(process, child);
        }
        self.traced.get_mut(&process).context("unknown process")
    }

    fn libraries_changed(&mut self, region: &Arc<Region>, question: &Question) -> Result<()> {
        if !self.asker(region, question.process)?.entry_only
            && process_copies_stacks(question.process)?
        {
            self.wrap_nothing_more(region)?;
        }
        let Some(mut traced) = self.traced.remove(&question.process) else {
            return Ok(());
        };
        let mut workshop = Workshop {
            settings: &self.settings,
            files: &mut self.files,
            writer: &self.shared.writer,
            warnings: &mut self.warnings,
        };
        let changed = with_thread(question, |thread| {
            traced.libraries_changed(thread, &mut workshop)
        });
        let watched = self.guardian.watch(&mut traced);
        self.traced.insert(question.process, traced);
        changed.and(watched)
    }

    /// A library was loaded that copies stacks. All processes with this region run the same thunks.
    fn wrap_nothing_more(&mut self, region: &Arc<Region>) -> Result<()> {
        let ours = [std::process::id() as i32, self.guardian.process()];
        for process in remove::processes_with(&[region.inode()], &ours) {
            match self.asker(region, process) {
                Err(error) if nopal_process::alive(process) => return Err(error),
                _ => {}
            }
        }
        let mut processes: Vec<&mut Traced> = self
            .traced
            .values_mut()
            .filter(|traced| Arc::ptr_eq(&traced.region, region))
            .collect();
        let waiting: Vec<i32> = region
            .questions()
            .iter()
            .map(|question| question.thread)
            .collect();
        self.warnings.push(COPIES_STACKS.into());
        unwrap::wrap_nothing_more(&mut processes, &waiting)
    }

    /// Whether the program's memory is locked now.
    fn lock_all(&mut self, region: &Arc<Region>, question: &Question) -> Result<bool> {
        let traced = self.asker(region, question.process)?;
        let Some(mappings) = lock::lockable(traced, question.word)? else {
            return Ok(false);
        };
        with_thread(question, |thread| {
            lock::lock(thread, &mappings, question.word)
        })?;
        Ok(true)
    }

    fn exec(&mut self, region: &Arc<Region>, question: &Question) -> Result<()> {
        let follows = self.options.follow_exec && launch::may_follow(question);
        let follower = follows
            .then(|| ExecFollower::seize(question.process, question.thread))
            .transpose();
        region.answer(question);
        let Some(follower) = follower? else {
            return Ok(());
        };
        match follower.run()? {
            Followed::Executed(mut thread) => {
                let process = thread.pid();
                self.traced.remove(&process);
                let begun = self.begin(&mut thread);
                let _ = thread.detach();
                begun.context("the program that it runs now is not traced")
            }
            Followed::Failed(_) | Followed::Ended(_) => Ok(()),
        }
    }

    /// Processes that still run with nopal's code in them.
    fn left(&mut self) -> Vec<i32> {
        let gone: Vec<i32> = self
            .traced
            .keys()
            .copied()
            .filter(|process| !nopal_process::alive(*process))
            .collect();
        for process in gone {
            self.ended(process, None);
        }
        let inodes: Vec<u64> = self
            .shared
            .regions()
            .iter()
            .map(|region| region.inode())
            .collect();
        remove::processes_with(
            &inodes,
            &[std::process::id() as i32, self.guardian.process()],
        )
    }

    fn ended(&mut self, process: i32, status: Option<Ended>) {
        self.traced.remove(&process);
        let status = status.map(|ended| match ended {
            Ended::Exited(code) => code << 8,
            Ended::Killed { signal } => signal,
        });
        let written = note(
            &self.shared.writer,
            &Note::Exit {
                process: process as u32,
                counter: counter(),
                status,
            },
        );
        if let Err(error) = written {
            self.warnings.push(format!("{error:#}"));
        }
    }

    /// Lets go of what still runs, and completes the trace.
    fn finish(mut self, ended: Ended, left: &[i32], drain: Drain) -> Result<Outcome> {
        for process in left {
            let region = self
                .shared
                .regions()
                .into_iter()
                .find(|region| remove::has_mapped(*process, region));
            let removed = region
                .context("its memory is not known")
                .and_then(|region| self.asker(&region, *process).and_then(remove::remove));
            if let Err(error) = removed {
                self.warnings.push(format!("process {process}: {error:#}"));
            }
        }
        if !left.is_empty() {
            let count = left.len();
            self.warnings.push(format!(
                "{count} processes that the program started still run; they are traced no more"
            ));
        }
        let mut collector = drain.stop()?;
        let regions = self.shared.regions();
        let mut writer = notes::lock(&self.shared.writer);
        let mut lost = 0;
        let (mut threads, mut stacks) = (0, 0);
        for region in &regions {
            region.say_gone();
            collector.finish(region, &mut writer)?;
            lost += region.lost();
            threads += u64::from(region.threads_untraced());
            stacks += u64::from(region.stacks_unmirrored());
        }
        lost += collector.totals.given_up;
        self.warnings.extend(collector.stopped.take());
        if threads > 0 {
            self.warnings.push(format!(
                "{threads} threads were not traced: more than can be told apart"
            ));
        }
        if stacks > 0 {
            self.warnings.push(format!(
                "{stacks} parts of stacks could not be mirrored: entries only were recorded there"
            ));
        }
        let main = 0;
        let complete = lost == 0 && self.warnings.is_empty();
        let why = match self.warnings.as_slice() {
            [] if lost > 0 => format!("{lost} events were lost"),
            [] => "the program ended".to_owned(),
            warnings => warnings.join("; "),
        };
        for last in [
            snapshot(),
            Note::Lost {
                process: main,
                events: lost,
            },
            Note::Untraced {
                process: main,
                threads,
                stacks,
            },
            Note::End {
                counter: counter(),
                complete,
                why,
            },
        ] {
            match writer.note(&last) {
                Err(error) if Writer::is_full(&error) => {}
                other => other?,
            }
        }
        match writer.sync_metadata() {
            Err(error) if Writer::is_full(&error) => {}
            other => other?,
        }
        drop(writer);
        self.guardian.dismiss();
        Ok(Outcome {
            ended,
            directory: self.options.directory.clone(),
            functions: self.files.traced.values().sum(),
            refused: self.files.refused.len() as u64,
            events: collector.totals.events,
            lost,
            bytes: collector.totals.bytes,
            warnings: self.warnings,
        })
    }
}

/// Holds the thread that asks, which waits in the runtime.
fn with_thread<T>(question: &Question, with: impl FnOnce(&mut Thread) -> Result<T>) -> Result<T> {
    let mut thread = Thread::seize(question.process, question.thread, Trace::default())?;
    thread.interrupt()?;
    thread.settle()?;
    let result = with(&mut thread);
    let _ = thread.detach();
    result
}

fn ended_as(ending: Ending) -> Ended {
    match ending {
        Ending::Exited(code) => Ended::Exited(code),
        Ending::Killed { signal, .. } => Ended::Killed { signal },
        Ending::Unknown => Ended::Exited(0),
    }
}
