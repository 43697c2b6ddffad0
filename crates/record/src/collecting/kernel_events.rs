//! Kernel events of a session: from its beginning if requested, or while tracers need them.

use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::kernel_functions::KernelFunctions;
use crate::collecting::tracepoints::TracepointReading;
use crate::options::{Options, WhenFull};
use anyhow::{Result, bail, ensure};
use nopal_analysis::tracers::Tracer;
use nopal_kernel_events::{KernelEvents, Kinds, Update};

/// The kernel events that tracers need, in the form of `nopal record -e`.
pub fn kinds_of(tracers: &[Tracer]) -> Kinds {
    let words = tracers.iter().filter_map(Tracer::kernel_events);
    words.filter_map(Kinds::parse).collect()
}

/// The kernel events that a session records.
#[derive(Default)]
pub struct KernelEventKinds {
    kinds: Kinds,
    has_tracepoints: bool,
    /// Why not all that were asked for are.
    pub limited: Option<String>,
}

impl KernelEventKinds {
    /// Records what the options and these tracers ask for, from now on. An error says what is forbidden, and how to
    /// allow it. `several`: processes are traced that `main` did not start.
    pub fn record(
        &mut self,
        tracers: &[Tracer],
        options: &Options,
        main: i32,
        several: bool,
        shared: &Shared,
    ) -> Result<()> {
        let kinds: Kinds = [options.events, kinds_of(tracers)].into_iter().collect();
        let begins_tracepoints = !options.tracepoints.is_empty() && !self.has_tracepoints;
        ensure!(
            options.when_full != WhenFull::Flight || kinds == self.kinds && !begins_tracepoints,
            "kernel events cannot be combined with --flight"
        );
        // From the beginning to the end: another beginning would not find the children that have begun meanwhile.
        if begins_tracepoints {
            shared.begin_tracepoints(TracepointReading::open(main, options)?);
            self.has_tracepoints = true;
        }
        if kinds == self.kinds {
            return Ok(());
        }
        // Another beginning would not find the children that the process has started meanwhile.
        ensure!(
            self.kinds == self.kinds.of_perf(),
            "while functions or markers of the kernel are recorded, no other kernel events can be switched on: -k with -e sched \
             records both from the beginning"
        );
        let mut system = None;
        let mut perf = kinds;
        if kinds != kinds.of_perf()
            && let Some(functions) = KernelFunctions::open(main, kinds, options)?
        {
            perf = kinds.of_perf();
            shared.begin_kernel_functions(functions);
        }
        if perf != Kinds::default() {
            let (opened, missing) = KernelEvents::open(perf, main, &options.kernel_functions)?;
            if let Some(missing) = missing {
                ensure!(
                    !several,
                    "kernel events can be recorded with one process only: {missing}"
                );
                if tracers.contains(&Tracer::Wakeup) || tracers.contains(&Tracer::WakeupAll) {
                    bail!("wake-ups cannot be recorded: {missing}");
                }
                self.limited = Some(format!(
                    "only the traced processes' own context switches are recorded: {missing}"
                ));
            }
            system = Some(opened);
        }
        self.kinds = kinds;
        shared.change_kernel_events(system);
        Ok(())
    }
}

/// The events that are recorded, read by the thread that collects all records.
#[derive(Default)]
pub struct Reading {
    system: Option<KernelEvents>,
    functions: Option<KernelFunctions>,
    tracepoints: Option<TracepointReading>,
    /// Since when nobody records, after somebody did.
    pause: Option<u64>,
}

impl Reading {
    /// Writes what has come. Returns how many events these were.
    pub fn read(&mut self, shared: &Shared, collector: &mut Collector) -> Result<u64> {
        if let Some(next) = shared.changed_kernel_events() {
            self.end(shared, collector, next.as_ref())?;
            if let (Some(_), Some(since)) = (&next, self.pause.take()) {
                collector.resume_kernel_events(since, &mut shared.writer.lock())?;
            }
            self.system = next;
        }
        self.functions = shared.begun_kernel_functions().or(self.functions.take());
        self.tracepoints = shared.begun_tracepoints().or(self.tracepoints.take());
        let chunks = match &mut self.functions {
            Some(functions) => functions.read(shared, collector)?,
            None => 0,
        };
        let events = match &mut self.tracepoints {
            Some(tracepoints) => tracepoints.read(shared, collector)?,
            None => 0,
        };
        let Some(system) = &mut self.system else {
            return Ok(chunks + events);
        };
        let processes = shared.processes();
        let mut writer = shared.writer.lock();
        system.read(|processor, update: Update| {
            collector.system(processor, update, &processes, &mut writer)
        })
    }

    pub fn is_active(&self) -> bool {
        self.system.is_some() || self.functions.is_some() || self.tracepoints.is_some()
    }

    /// Writes what is left, also of events that a short program had recorded before anybody began to read.
    pub fn finish(&mut self, shared: &Shared, collector: &mut Collector) -> Result<()> {
        self.read(shared, collector)?;
        if let Some(mut functions) = self.functions.take() {
            functions.finish(shared, collector)?;
        }
        if let Some(mut tracepoints) = self.tracepoints.take() {
            tracepoints.finish(shared, collector)?;
        }
        self.end(shared, collector, None)
    }

    fn end(
        &mut self,
        shared: &Shared,
        collector: &mut Collector,
        next: Option<&KernelEvents>,
    ) -> Result<()> {
        let Some(system) = self.system.take() else {
            return Ok(());
        };
        let processes = shared.processes();
        let mut writer = shared.writer.lock();
        let ended = system.end(next, |processor, update| {
            collector.system(processor, update, &processes, &mut writer)
        });
        self.pause = next.is_none().then(nopal_kernel_events::counter);
        ended
    }
}
