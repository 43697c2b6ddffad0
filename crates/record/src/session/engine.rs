//! Implements the engine of control for a session.

use crate::collecting::naming::task_facts;
use crate::collecting::notes::{counter, note};
use crate::patch::remove;
use crate::patch::switch::on_or_off;
use crate::session::states::Turn;
use crate::session::{Session, metrics};
use crate::sites::catalog::{Boundary, Catalog, Listed};
use crate::sites::choose::Loaded;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, ensure};
use nopal_abi::{
    CHUNK_BYTES, Capture, ChunkHeader, KIND_ONLY, RESYNC_CHUNK, RESYNC_WORDS, Resync, Word,
};
use nopal_agent::Switched;
use nopal_analysis::tracers::{Live, Tracer};
use nopal_analysis::triggers::Hits;
use nopal_control::{
    Act, Applied, Calls, Change, Counts, Engine, Facts, FileAddress, FoundSite, Function, Location,
    Lookup, Mark, Metric, Missing, Mode, Probe, Refused, SiteKey, Spot, Watch,
};
use nopal_trace::{Note, Watched, Writer};
use std::collections::BTreeMap;
use std::path::Path;
use zerocopy::IntoBytes;

impl Session {
    /// Makes forked children known that have never asked anything.
    pub(crate) fn find_forks(&mut self) {
        let ours = [std::process::id() as i32, self.guardian.process()];
        for region in self.context.shared.regions() {
            let processes = remove::processes_with(std::slice::from_ref(&region), &ours);
            for process in processes {
                let _ = self.processes.known_or_forked(&region, process);
            }
        }
        self.processes
            .tracees
            .retain(|process, _| nopal_process::alive(*process));
    }

    /// Does something to all processes, which may end meanwhile.
    fn in_all(
        &mut self,
        with: impl FnMut(&mut Tracee, &mut PatchContext) -> Result<()>,
    ) -> Result<()> {
        self.processes.in_all(&mut self.context, with)
    }

    /// The number of a site in the trace, if it was ever inserted.
    pub(crate) fn number(&self, key: SiteKey) -> Option<u32> {
        let (file, address) = self.context.files.site(key)?;
        self.context.files.number_of(file.index, address)
    }
}

impl Session {
    /// Switches the recording of a site, by its number in the trace, on or off in all processes. A call that has begun
    /// is not affected. Where it is not inserted, nothing happens.
    pub fn switch_number(&mut self, number: u32, on: bool) -> Result<()> {
        self.processes.switch_number(number, on)
    }

    /// Has kernel events recorded that the options and these tracers need.
    pub(crate) fn record_kernel_events(&mut self, tracers: &[Tracer]) -> Result<()> {
        let (main, shared) = (self.processes.main, &self.context.shared);
        let several = self.attached.len() > 1;
        let kinds = &mut self.kernel_events;
        kinds.record(tracers, &self.options, main, several, shared)
    }
}

// ---- what control has it do ----

impl Session {
    /// No record that is made later is in the trace before the note is.
    fn note_moment(&mut self, note: impl FnOnce(u64) -> Note) -> Result<()> {
        let mut writer = self.context.shared.writer.lock();
        match writer.note(&note(counter())) {
            // The trace ends before.
            Err(error) if Writer::is_full(&error) => Ok(()),
            other => other,
        }
    }

    fn insert(&mut self, sites: &[SiteKey], capture: Capture) -> Result<Applied> {
        // Processes that come later have them from their begin.
        if self.processes.tracees.is_empty() {
            return Ok(Applied::default());
        }
        self.find_forks();
        let files = self.context.files.by_file(sites);
        let mut refused = BTreeMap::new();
        self.in_all(|tracee, context| {
            refused.extend(tracee.insert_sites(&files, capture, context)?);
            Ok(())
        })?;
        let refused = refused
            .into_iter()
            .map(|(key, reason)| Refused { key, reason });
        Ok(Applied {
            refused: refused.collect(),
            ..Applied::default()
        })
    }

    fn switch(&mut self, sites: &[SiteKey], mode: Mode) -> Result<()> {
        let shared = self.context.shared.clone();
        self.any_silent |= mode == Mode::Silent;
        let numbers: Vec<u32> = match self.any_silent {
            true => sites.iter().filter_map(|site| self.number(*site)).collect(),
            false => Vec::new(),
        };
        let silence = |silent| {
            if numbers.is_empty() {
                return;
            }
            let mut writer = shared.writer.lock();
            let clock = counter();
            for number in &numbers {
                writer.site_counts().silence(*number, silent, clock);
            }
        };
        if mode != Mode::Counted {
            self.note_sampled(sites, false)?;
        }
        self.note_state(sites, mode, Turn::Before)?;
        // Before silent sites are switched on, and after they are off.
        if mode.pays() {
            silence(mode == Mode::Silent);
        }
        let to = match mode {
            Mode::Counted => Switched::Counting,
            _ => on_or_off(mode.pays()),
        };
        self.in_all(|tracee, _| tracee.switch(sites, to))?;
        if !mode.pays() {
            silence(false);
        }
        self.note_state(sites, mode, Turn::After)?;
        if mode == Mode::Counted {
            self.note_sampled(sites, true)?;
        }
        Ok(())
    }

    fn remove(&mut self, sites: &[SiteKey]) -> Result<()> {
        if sites.is_empty() {
            return Ok(());
        }
        self.find_forks();
        let files = self.context.files.by_file(sites);
        self.in_all(|tracee, context| tracee.remove_sites(&files, context))
    }

    fn mark(&mut self, marks: &[Mark]) -> Result<()> {
        self.find_forks();
        self.processes.switch_markers(marks, &mut self.context)
    }

    fn insert_probe(&mut self, probe: &Probe) -> Result<String> {
        self.find_forks();
        let modules: Vec<Loaded> = self
            .processes
            .modules()
            .map(|(_, module)| module.clone())
            .collect();
        self.context.files.probes.want(probe.clone(), false);
        if modules.is_empty() {
            return Ok(String::new());
        }
        let inserted = self
            .context
            .files
            .place_probes(&modules, &self.context.shared.writer)
            .and_then(|()| {
                let placed = self.context.files.probes.switch(&probe.name, false);
                let mut notes = Vec::new();
                for placed in &placed {
                    self.in_all(|tracee, context| tracee.insert_probe(placed, context))?;
                    notes.push(placed.place().to_owned());
                }
                Ok(notes)
            });
        match inserted {
            Ok(places) => {
                let note = self.context.files.probes.note(&probe.name);
                let mut lines = Vec::new();
                if !places.is_empty() {
                    lines.push(format!("probe {} is at {}", probe.name, places.join(" ")));
                }
                let risk = self.context.files.probes.untold_risk();
                lines.extend(risk.map(str::to_owned));
                lines.extend(note);
                Ok(lines.join("\n"))
            }
            Err(error) => {
                self.remove_probe(&probe.name)?;
                Err(error)
            }
        }
    }

    fn switch_probe(&mut self, name: &str, on: bool) -> Result<()> {
        for placed in self.context.files.probes.switch(name, on) {
            self.in_all(|tracee, _| tracee.switch_probe(&placed, on))?;
        }
        Ok(())
    }

    fn remove_probe(&mut self, name: &str) -> Result<()> {
        self.find_forks();
        for placed in self.context.files.probes.switch(name, false) {
            self.in_all(|tracee, context| tracee.remove_probe(&placed, context))?;
        }
        self.context.files.probes.forget(name);
        Ok(())
    }

    fn watch(&mut self, Watch { ids, children }: &Watch) -> Result<()> {
        self.find_forks();
        for id in ids {
            let mut processes = self.processes.tracees.keys();
            let is_ours =
                processes.any(|process| Path::new(&format!("/proc/{process}/task/{id}")).exists());
            ensure!(is_ours, "{id} is no process or thread of this session");
        }
        // Earlier records belong to those that were watched then.
        self.context.shared.flush()?;
        self.context
            .shared
            .writer
            .lock()
            .watch(Watched::new(ids, *children));
        self.context.shared.forget_threads();
        Ok(())
    }

    fn subscribe(&mut self, name: &str, live: &Live) -> Result<()> {
        let subscriber = Box::new(live.subscriber(task_facts));
        let subscriber = self.context.shared.writer.lock().subscribe(subscriber)?;
        self.context.shared.add_tracer(name, live);
        self.subscribers
            .of_tracers
            .insert(name.to_owned(), subscriber);
        Ok(())
    }

    fn unsubscribe(&mut self, name: &str) {
        self.context.shared.remove_tracer(name);
        if let Some(subscriber) = self.subscribers.of_tracers.remove(name) {
            self.context.shared.writer.lock().unsubscribe(subscriber);
        }
    }

    fn resize(&mut self, bytes: u64) -> Result<()> {
        let regions = self.context.shared.regions();
        let room = regions.iter().map(|region| region.room()).min();
        let room = room.unwrap_or(u64::MAX);
        ensure!(
            bytes <= room,
            "the buffer can have at most {room} bytes in this recording: size {}, or {} KiB (--buffer sets a larger size at \
             its start)",
            (room / size_of::<u64>() as u64).max(1).ilog2(),
            room >> 10
        );
        for region in regions {
            region.resize(bytes);
        }
        self.context.settings.buffer = bytes;
        Ok(())
    }

    fn simulate(&mut self, site: SiteKey) -> Result<()> {
        let number = self.number(site).context("the function is not inserted")?;
        let thread = rustix::thread::gettid().as_raw_pid() as u32;
        let clock = counter();
        let mut chunk = [0u64; 2 * (size_of::<ChunkHeader>() / 8)];
        let records = size_of::<ChunkHeader>() / 8;
        let resync = Resync::new(clock, 0, 0, (std::process::id(), thread), RESYNC_CHUNK);
        let entry = Word::new(KIND_ONLY, number, 0, clock);
        let (first, rest) = chunk[records..].split_at_mut(RESYNC_WORDS);
        first.copy_from_slice(&resync.words());
        rest[0] = entry.0;
        let header = ChunkHeader {
            clock_begin: clock,
            content_bits: ((records + RESYNC_WORDS + 1) * 64) as u64,
            process: std::process::id(),
            thread,
            thread_begin: clock,
            ..ChunkHeader::default()
        };
        let bytes = chunk.as_mut_bytes();
        bytes[..size_of::<ChunkHeader>()].copy_from_slice(header.as_bytes());
        self.context.shared.writer.lock().chunk(bytes, true)?;
        Ok(())
    }

    fn snapshot(&mut self, why: &str) -> Result<String> {
        let before = self.context.shared.snapshots().describe();
        self.context.shared.snapshots().asked.push(why.to_owned());
        self.context.shared.flush()?;
        let notes = self.context.shared.snapshots().describe();
        let new = notes.into_iter().filter(|line| !before.contains(line));
        Ok(new.map(|line| format!("{line}\n")).collect())
    }

    fn clear_counts(&mut self) {
        // Records are counted as they are collected. An error: nothing is any more.
        let _ = self.context.shared.flush();
        self.lost_before = self.context.shared.counts().lost.all();
        let mut writer = self.context.shared.writer.lock();
        self.events_before = writer.events();
        writer.site_counts().clear();
    }

    /// The files that are loaded in all processes.
    fn catalog(&self) -> Catalog<'_> {
        let modules = self.processes.modules().map(|(tracee, module)| Listed {
            module,
            boundary: Boundary::Of(tracee),
        });
        Catalog::new(&self.context.files, modules.collect(), self.facts())
    }
}

impl Lookup for Session {
    fn find(&mut self, location: &Location) -> Result<Vec<FoundSite>> {
        self.catalog().find(location)
    }

    fn describe(&mut self, sites: &[SiteKey]) -> Vec<Function> {
        self.catalog().describe(sites)
    }

    fn markers(&mut self, glob: &str) -> Result<Vec<String>> {
        self.catalog().markers(glob)
    }

    fn place(&mut self, probe: &Probe) -> Result<()> {
        if let Spot::Address(address) = probe.place {
            let own = self.processes.in_order().map(Tracee::own_memory);
            let own = own.collect::<Result<Vec<_>>>()?;
            ensure!(
                !own.iter().flatten().any(|range| range.contains(&address)),
                "{address:#x} is in nopal's own memory"
            );
        }
        self.catalog().place(probe)
    }

    fn nearest(&mut self, missing: Missing) -> Vec<String> {
        self.catalog().nearest(missing)
    }

    fn locate(&mut self, address: u64) -> Option<FileAddress> {
        self.catalog().locate(address)
    }

    fn facts(&self) -> Facts<'_> {
        let regions = self.context.shared.regions();
        let chunks = regions.first().map_or(0, |region| region.in_use());
        Facts {
            directory: &self.options.directory,
            capture: self.context.settings.capture,
            buffer: (chunks * CHUNK_BYTES) as u64,
            clock: counter(),
            no_snapshots: self.options.no_snapshots(),
            no_detaching: self.attached.is_empty().then_some(NO_DETACHING),
            no_starting: self.context.shared.after_end().0.then_some(NO_STARTING),
        }
    }
}

const NO_DETACHING: &str =
    "nopal started this program and traces it until it ends; stop ends the recording";
const NO_STARTING: &str =
    "the trace is full, and this session records nothing more: end it, and begin another";

impl Engine for Session {
    fn apply(&mut self, change: &Change) -> Result<Applied> {
        match change {
            Change::Insert { sites, capture } => return self.insert(sites, *capture),
            Change::InsertProbe(probe) => {
                let answer = self.insert_probe(probe)?;
                let refused = Vec::new();
                return Ok(Applied { refused, answer });
            }
            Change::Switch { sites, mode } => self.switch(sites, *mode)?,
            Change::Remove { sites } => self.remove(sites)?,
            Change::Mark(marks) => self.mark(marks)?,
            Change::SwitchProbe { name, on } => self.switch_probe(name, *on)?,
            Change::RemoveProbe { name } => self.remove_probe(name)?,
            Change::Watch(watch) => self.watch(watch)?,
            Change::RecordKernelEvents(tracers) => self.record_kernel_events(tracers)?,
            Change::Subscribe { name, live } => self.subscribe(name, live)?,
            Change::Unsubscribe { name } => self.unsubscribe(name),
            Change::SetTrigger {
                name,
                place,
                trigger,
            } => self.set_trigger(name, place, trigger)?,
            Change::Budget(share) => self.set_budget(*share)?,
            Change::RemoveTrigger { name } => self.remove_trigger(name),
            Change::Stop => self.note_moment(|counter| Note::Stopped { counter })?,
            Change::Start => self.note_moment(|counter| Note::Started { counter })?,
        }
        Ok(Applied::default())
    }

    fn perform(&mut self, act: Act) -> Result<String> {
        match act {
            Act::Flush => self.context.shared.flush()?,
            Act::Resize(bytes) => self.resize(bytes)?,
            Act::Simulate(site) => self.simulate(site)?,
            Act::Write {
                text,
                counter: clock,
            } => note(
                &self.context.shared.writer,
                &Note::Text {
                    counter: clock.unwrap_or_else(counter),
                    text: text.to_owned(),
                },
            )?,
            Act::Snapshot { why } => return self.snapshot(why),
            Act::ClearCounts => self.clear_counts(),
            Act::Detach => self.end(),
        }
        Ok(String::new())
    }

    fn counts(&mut self) -> Counts {
        let lost = self.context.shared.counts().lost.all();
        let mut writer = self.context.shared.writer.lock();
        let begins = !writer.counts_sites();
        Counts {
            records: writer.events().saturating_sub(self.events_before),
            entries: writer.site_counts().all().entries,
            begins,
            bytes: writer.bytes_of_records(),
            lost: lost.saturating_sub(self.lost_before),
        }
    }

    fn calls(&mut self, sites: &[SiteKey]) -> Calls {
        let numbers: Vec<u32> = sites.iter().filter_map(|site| self.number(*site)).collect();
        let mut writer = self.context.shared.writer.lock();
        let mut all = Calls::default();
        for number in numbers {
            let calls = writer.site_counts().calls(number);
            all.entries += calls.entries;
            all.exits += calls.exits;
        }
        all
    }

    fn probe_note(&mut self, name: &str) -> Option<String> {
        self.context.files.probes.note(name)
    }

    fn spending(&mut self) -> Option<String> {
        Some(self.budget.as_ref()?.describe())
    }

    fn hits(&mut self, trigger: &str) -> Hits {
        self.context.shared.triggers().hits(trigger)
    }

    fn snapshots(&mut self) -> Vec<String> {
        self.context.shared.snapshots().describe()
    }

    fn metrics(&mut self) -> Vec<Metric> {
        metrics::of(self)
    }
}
