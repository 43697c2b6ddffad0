//! What control asks of a session.

use crate::collecting::notes::{self, counter, note};
use crate::patch::remove;
use crate::patch::traps::RISK;
use crate::session::Session;
use crate::sites::catalog::{Catalog, Imports, Listed};
use crate::sites::choose::Loaded;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, ensure};
use nopal_abi::{
    CHUNK_BYTES, Capture, ChunkHeader, KIND_ONLY, RESYNC_CHUNK, RESYNC_WORDS, Resync, Word,
};
use nopal_analysis::tracers::Live;
use nopal_analysis::triggers::Hits;
use nopal_control::{
    Act, Applied, Calls, Change, Counts, Engine, Facts, FileAddress, FoundSite, Function, Location,
    Lookup, Mark, Missing, Mode, Probe, Refused, SiteKey, Spot, Watch, Way,
};
use nopal_trace::{Note, Watched};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use zerocopy::IntoBytes;

impl Session {
    /// The traced processes, the first one first.
    fn in_order(&self) -> impl Iterator<Item = &Tracee> {
        let first = self.tracees.get(&self.main);
        let mut others: Vec<&Tracee> = self.tracees.values().collect();
        others.retain(|tracee| tracee.process != self.main);
        others.sort_unstable_by_key(|tracee| tracee.process);
        first.into_iter().chain(others)
    }

    /// All modules, each file once.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&Tracee, &Loaded)> {
        let mut seen = HashSet::new();
        let all = self
            .in_order()
            .flat_map(|tracee| tracee.modules.iter().map(move |module| (tracee, module)));
        all.filter(move |(_, module)| seen.insert(module.file.index))
    }

    /// Makes forked children known that have never asked anything.
    pub(crate) fn find_forks(&mut self) {
        let ours = [std::process::id() as i32, self.guardian.process()];
        for region in self.shared.regions() {
            let processes = remove::processes_with(std::slice::from_ref(&region), &ours);
            for process in processes {
                let _ = self.requesting_process(&region, process);
            }
        }
        self.tracees
            .retain(|process, _| nopal_process::alive(*process));
    }

    /// What a process that is apart needs of the session while it is changed.
    pub(crate) fn context(&mut self) -> PatchContext<'_> {
        PatchContext {
            settings: &self.settings,
            control: &self.control,
            files: &mut self.files,
            writer: &self.shared.writer,
            warnings: &mut self.warnings,
        }
    }

    /// Does something to all processes, which may end meanwhile.
    pub(crate) fn in_all(
        &mut self,
        mut with: impl FnMut(&mut Tracee, &mut PatchContext) -> Result<()>,
    ) -> Result<()> {
        let mut context = PatchContext {
            settings: &self.settings,
            control: &self.control,
            files: &mut self.files,
            writer: &self.shared.writer,
            warnings: &mut self.warnings,
        };
        for tracee in self.tracees.values_mut() {
            match with(tracee, &mut context) {
                Err(error) if nopal_process::has_memory(tracee.process) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The number of a site in the trace, if it was ever inserted.
    pub(crate) fn number(&self, key: SiteKey) -> Option<u32> {
        let (file, address) = self.files.site(key)?;
        self.files.number_of(file.index, address)
    }
}

// ---- what control has it do ----

impl Session {
    fn insert(&mut self, sites: &[SiteKey], capture: Capture) -> Result<Applied> {
        // Whoever comes has them from the begin.
        if self.tracees.is_empty() {
            return Ok(Applied::default());
        }
        self.find_forks();
        let files = self.files.by_file(sites);
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
        let shared = self.shared.clone();
        self.any_silent |= mode == Mode::Silent;
        let numbers: Vec<u32> = match self.any_silent {
            true => sites.iter().filter_map(|site| self.number(*site)).collect(),
            false => Vec::new(),
        };
        let silence = |silent| {
            if numbers.is_empty() {
                return;
            }
            let mut writer = notes::lock(&shared.writer);
            let clock = counter();
            for number in &numbers {
                writer.site_counts().silence(*number, silent, clock);
            }
        };
        // Before sites are switched on that nobody is to hear of, and after they are off.
        if mode != Mode::Off {
            silence(mode == Mode::Silent);
        }
        self.in_all(|tracee, _| tracee.switch(sites, mode != Mode::Off))?;
        if mode == Mode::Off {
            silence(false);
        }
        Ok(())
    }

    fn remove(&mut self, sites: &[SiteKey]) -> Result<()> {
        if sites.is_empty() {
            return Ok(());
        }
        self.find_forks();
        let files = self.files.by_file(sites);
        self.in_all(|tracee, context| tracee.remove_sites(&files, context))
    }

    fn mark(&mut self, marks: &[Mark]) -> Result<()> {
        self.find_forks();
        self.switch_markers(marks)
    }

    fn insert_probe(&mut self, probe: &Probe) -> Result<String> {
        self.find_forks();
        let modules: Vec<Loaded> = self.modules().map(|(_, module)| module.clone()).collect();
        self.files.probes.want(probe.clone(), false);
        if modules.is_empty() {
            return Ok(String::new());
        }
        let inserted = self
            .files
            .place_probes(&modules, &self.shared.writer)
            .and_then(|()| {
                let placed = self.files.probes.switch(&probe.name, false);
                let mut notes = Vec::new();
                for placed in &placed {
                    self.in_all(|tracee, context| tracee.insert_probe(placed, context))?;
                    notes.push(placed.place().to_owned());
                }
                Ok(notes)
            });
        match inserted {
            Ok(places) if places.is_empty() => {
                Ok(format!("probe {} waits for its library", probe.name))
            }
            Ok(places) => {
                let risk = match probe.way {
                    Way::Breakpoint => format!("\n{RISK}"),
                    _ => String::new(),
                };
                let places = places.join(" ");
                Ok(format!("probe {} is at {places}{risk}", probe.name))
            }
            Err(error) => {
                self.remove_probe(&probe.name)?;
                Err(error)
            }
        }
    }

    fn switch_probe(&mut self, name: &str, on: bool) -> Result<()> {
        for placed in self.files.probes.switch(name, on) {
            self.in_all(|tracee, _| tracee.switch_probe(&placed, on))?;
        }
        Ok(())
    }

    fn remove_probe(&mut self, name: &str) -> Result<()> {
        self.find_forks();
        for placed in self.files.probes.switch(name, false) {
            self.in_all(|tracee, context| tracee.remove_probe(&placed, context))?;
        }
        self.files.probes.forget(name);
        Ok(())
    }

    fn watch(&mut self, Watch { ids, children }: &Watch) -> Result<()> {
        self.find_forks();
        for id in ids {
            let mut processes = self.tracees.keys();
            let is_ours =
                processes.any(|process| Path::new(&format!("/proc/{process}/task/{id}")).exists());
            ensure!(is_ours, "{id} is no process or thread of this session");
        }
        // What has been recorded before belongs to those that were watched then.
        self.shared.flush()?;
        notes::lock(&self.shared.writer).watch(Watched::new(ids, *children));
        Ok(())
    }

    fn subscribe(&mut self, name: &str, live: &Live) -> Result<()> {
        let subscriber = Box::new(live.subscriber());
        let subscriber = notes::lock(&self.shared.writer).subscribe(subscriber)?;
        self.subscribers.insert(name.to_owned(), subscriber);
        Ok(())
    }

    fn unsubscribe(&mut self, name: &str) {
        if let Some(subscriber) = self.subscribers.remove(name) {
            notes::lock(&self.shared.writer).unsubscribe(subscriber);
        }
    }

    fn resize(&mut self, bytes: u64) -> Result<()> {
        let regions = self.shared.regions();
        let room = regions.iter().map(|region| region.room()).min();
        let room = room.unwrap_or(u64::MAX);
        ensure!(
            bytes <= room,
            "the buffer can have {room} bytes at most until the recording ends (--buffer makes room when it begins)"
        );
        for region in regions {
            region.resize(bytes);
        }
        self.settings.buffer = bytes;
        Ok(())
    }

    fn simulate(&mut self, site: SiteKey) -> Result<()> {
        let number = self.number(site).context("the function is not inserted")?;
        // SAFETY: asks for a number.
        let thread = unsafe { libc::gettid() } as u32;
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
        notes::lock(&self.shared.writer).chunk(bytes, true)?;
        Ok(())
    }

    fn snapshot(&mut self, why: &str) -> Result<String> {
        let before = self.shared.snapshots().describe();
        self.shared.snapshots().asked.push(why.to_owned());
        self.shared.flush()?;
        let notes = self.shared.snapshots().describe();
        let new = notes.into_iter().filter(|line| !before.contains(line));
        Ok(new.map(|line| format!("{line}\n")).collect())
    }

    fn clear_counts(&mut self) {
        // Records are counted as they are collected. An error: nothing is any more.
        let _ = self.shared.flush();
        self.lost_before = self.shared.counts().lost;
        notes::lock(&self.shared.writer).site_counts().clear();
    }

    /// What is loaded in all processes.
    fn catalog(&self) -> Catalog<'_> {
        let modules = self.modules().map(|(tracee, module)| Listed {
            module,
            imports: Imports::Of(tracee),
        });
        Catalog::new(&self.files, modules.collect(), self.facts())
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
            let own = self.in_order().map(Tracee::own_memory);
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
        let regions = self.shared.regions();
        let chunks = regions.first().map_or(0, |region| region.in_use());
        Facts {
            directory: &self.options.directory,
            capture: self.settings.capture,
            buffer: (chunks * CHUNK_BYTES) as u64,
            clock: counter(),
            no_snapshots: self.options.no_snapshots(),
            no_detaching: self.attached.is_none().then_some(NO_DETACHING),
        }
    }
}

const NO_DETACHING: &str =
    "nopal has started this program, and traces it until it ends; stop ends the recording";

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
            Change::RemoveTrigger { name } => self.remove_trigger(name),
        }
        Ok(Applied::default())
    }

    fn perform(&mut self, act: Act) -> Result<String> {
        match act {
            Act::Flush => self.shared.flush()?,
            Act::Resize(bytes) => self.resize(bytes)?,
            Act::Simulate(site) => self.simulate(site)?,
            Act::Write {
                text,
                counter: clock,
            } => note(
                &self.shared.writer,
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
        let lost = self.shared.counts().lost;
        let mut writer = notes::lock(&self.shared.writer);
        let all = writer.site_counts().all();
        Counts {
            records: all.entries + all.exits,
            entries: all.entries,
            bytes: writer.bytes_of_records(),
            lost: lost.saturating_sub(self.lost_before),
        }
    }

    fn calls(&mut self, sites: &[SiteKey]) -> Calls {
        let numbers: Vec<u32> = sites.iter().filter_map(|site| self.number(*site)).collect();
        let mut writer = notes::lock(&self.shared.writer);
        let mut all = Calls::default();
        for number in numbers {
            let calls = writer.site_counts().calls(number);
            all.entries += calls.entries;
            all.exits += calls.exits;
        }
        all
    }

    fn hits(&mut self, trigger: &str) -> Hits {
        self.shared.triggers().hits(trigger)
    }

    fn snapshots(&mut self) -> Vec<String> {
        self.shared.snapshots().describe()
    }
}
