//! What control asks of a session.

use crate::collecting::notes::{counter, note};
use crate::options::WhenFull;
use crate::patch::remove;
use crate::patch::traps::RISK;
use crate::session::Session;
use crate::sites::choose::{Loaded, Wanted};
use crate::sites::functions::{by_file, key, parts};
use crate::sites::markers;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, ensure};
use nopal_abi::{
    CHUNK_BYTES, Capture, ChunkHeader, KIND_ONLY, RESYNC_CHUNK, RESYNC_WORDS, Resync, Word,
};
use nopal_analysis::tracers::Tracer;
use nopal_analysis::triggers::{Hits, Trigger};
use nopal_control::{
    Calls, Counts, Engine, FileAddress, FoundSite, Location, Mark, Mode, Probe, Refused, SiteKey,
    Spot, Way,
};
use nopal_symbols::Selection;
use nopal_trace::{Note, Subscriber, SubscriberId, Watched};
use std::collections::{BTreeMap, HashMap, HashSet};
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

    fn module(&self, address: u64) -> Option<&Loaded> {
        let mut processes = self.in_order();
        processes.find_map(|tracee| tracee.module_at(address))
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

    /// Does something to all processes, which may end meanwhile.
    pub(crate) fn in_all(
        &mut self,
        mut with: impl FnMut(&mut Tracee, &mut PatchContext) -> Result<()>,
    ) -> Result<()> {
        let mut context = PatchContext {
            settings: &self.settings,
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
        let (file, address) = parts(key);
        self.files.number_of(file, address)
    }
}

/// Tells of an address in a module's file whether a place means the function there.
enum Means {
    Nothing,
    One(u64),
    Between(u64, u64),
    Chosen(HashSet<u64>),
}

impl Means {
    fn has(&self, address: u64) -> bool {
        match self {
            Means::Nothing => false,
            Means::One(one) => *one == address,
            Means::Between(start, end) => (*start..*end).contains(&address),
            Means::Chosen(all) => all.contains(&address),
        }
    }
}

/// The address of the function that an address in the file is in.
fn function_with(module: &Loaded, address: u64) -> Means {
    let function = module.file.image.function_at(address);
    match function {
        Ok(Some(function)) => Means::One(function.address),
        _ => Means::Nothing,
    }
}

/// The name in a pattern that matches no other.
fn plain_name(pattern: &str) -> Option<&str> {
    let name = pattern.split('@').next()?;
    (!name.is_empty() && !name.contains(['*', '?', '[', '{', '\\'])).then_some(name)
}

impl Engine for Session {
    fn find(&mut self, place: &Location) -> Result<Vec<FoundSite>> {
        let wanted = match place {
            Location::Names(pattern) => Some(Wanted {
                selection: Selection::new(std::slice::from_ref(pattern), &[])?,
                libraries: false,
                functions: true,
                needs: Vec::new(),
            }),
            _ => None,
        };
        let plain = match place {
            Location::Names(pattern) => plain_name(pattern),
            _ => None,
        };
        let mut found = Vec::new();
        let mut imports = HashMap::new();
        let none = HashSet::new();
        for (tracee, module) in self.modules() {
            let of_module = |name: &str| name == module.file_name();
            let within = |address: u64| address.wrapping_sub(module.base);
            let at = |address: &u64| {
                tracee
                    .module_at(*address)
                    .is_some_and(|other| other.base == module.base)
            };
            let means = match place {
                Location::Address(address) if at(address) => {
                    function_with(module, within(*address))
                }
                Location::Range { start, end } => {
                    let low = start.saturating_sub(module.base);
                    Means::Between(low, end.saturating_sub(module.base))
                }
                Location::InModule {
                    module: name,
                    address,
                } if of_module(name) => function_with(module, *address),
                Location::RangeInModule {
                    module: name,
                    start,
                    end,
                } if of_module(name) => Means::Between(*start, *end),
                Location::Names(_) => match &wanted {
                    Some(wanted) => {
                        let candidates = plain.map(|name| module.file.named(name));
                        if candidates.is_some_and(<[u64]>::is_empty) {
                            continue;
                        }
                        // All functions of the executable are selected anyway.
                        let imports = if module.executable {
                            &none
                        } else {
                            imports
                                .entry(tracee.process)
                                .or_insert_with(|| tracee.imports(&[]))
                        };
                        Means::Chosen(wanted.functions(module, imports, candidates))
                    }
                    None => Means::Nothing,
                },
                Location::Line { file, line } => {
                    Means::Chosen(module.file.functions_at(file, *line)?)
                }
                _ => Means::Nothing,
            };
            if matches!(means, Means::Nothing) {
                continue;
            }
            let plan = &module.file.plan;
            let sites = plan
                .sites
                .iter()
                .map(|site| (site.address, site.size, None));
            let refused = plan
                .refused
                .iter()
                .map(|refused| (refused.address, refused.size, Some(&refused.reason)));
            let first = found.len();
            for (address, size, refused) in sites.chain(refused).filter(|one| means.has(one.0)) {
                let name = match module.file.image.function_at(address) {
                    Ok(Some(function)) => function.name.clone(),
                    _ => format!("{}+{address:#x}", module.file.image.file_name()),
                };
                found.push(FoundSite {
                    key: key(module, address),
                    address: module.base.wrapping_add(address),
                    size,
                    name,
                    module: module.file_name().to_owned(),
                    executable: module.executable,
                    refused: refused.map(|reason| reason.text().to_string()),
                });
            }
            found[first..].sort_unstable_by_key(|site| site.address);
        }
        Ok(found)
    }

    fn nearest(&mut self, place: &Location) -> Vec<String> {
        match place {
            Location::Names(pattern) => self.files.nearest(pattern),
            _ => Vec::new(),
        }
    }

    fn locate(&mut self, address: u64) -> Option<FileAddress> {
        let module = self.module(address)?;
        Some(FileAddress {
            module: module.file_name().to_owned(),
            address: address.wrapping_sub(module.base),
        })
    }

    fn capture(&self) -> Capture {
        self.settings.capture
    }

    fn insert(&mut self, sites: &[SiteKey], capture: Capture) -> Result<Vec<Refused>> {
        self.find_forks();
        let files = by_file(sites);
        let mut refused = BTreeMap::new();
        self.in_all(|tracee, context| {
            refused.extend(tracee.insert_sites(&files, capture, context)?);
            Ok(())
        })?;
        let refused = refused
            .into_iter()
            .map(|(key, reason)| Refused { key, reason });
        Ok(refused.collect())
    }

    fn thunk(&mut self, site: SiteKey) -> Option<u64> {
        let (file, address) = parts(site);
        let mut processes = self.in_order();
        processes.find_map(|tracee| tracee.inserted(file, address).map(|change| change.entry))
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
            let mut writer = shared.writer.lock();
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
        let files = by_file(sites);
        self.in_all(|tracee, context| tracee.remove_sites(&files, context))
    }

    fn mark(&mut self, marks: &[Mark]) -> Result<()> {
        self.find_forks();
        self.switch_markers(marks)
    }

    fn markers(&mut self, name: &str) -> Result<Vec<String>> {
        let wanted = markers::Wanted::new([(name, true)])?;
        Ok(self.names_of_markers(&wanted))
    }

    fn nearest_markers(&mut self, name: &str) -> Vec<String> {
        Session::nearest_markers(self, name)
    }

    fn insert_probe(&mut self, probe: &Probe) -> Result<String> {
        self.find_forks();
        if let Spot::Address(address) = probe.place {
            let own = self.in_order().map(Tracee::own_memory);
            let own = own.collect::<Result<Vec<_>>>()?;
            ensure!(
                !own.iter().flatten().any(|range| range.contains(&address)),
                "{address:#x} is in nopal's own memory"
            );
        }
        let modules: Vec<Loaded> = self.modules().map(|(_, module)| module.clone()).collect();
        self.files.probes.want(probe.clone(), false);
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

    fn watch(&mut self, ids: &[u32], children: bool) -> Result<()> {
        self.find_forks();
        for id in ids {
            let mut processes = self.tracees.keys();
            let is_ours =
                processes.any(|process| Path::new(&format!("/proc/{process}/task/{id}")).exists());
            ensure!(is_ours, "{id} is no process or thread of this session");
        }
        // What has been recorded before belongs to those that were watched then.
        self.shared.flush()?;
        self.shared.writer.lock().watch(Watched::new(ids, children));
        Ok(())
    }

    fn buffer(&self) -> u64 {
        let regions = self.shared.regions();
        let chunks = regions.first().map_or(0, |region| region.in_use());
        (chunks * CHUNK_BYTES) as u64
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

    fn counts(&mut self) -> Counts {
        let lost = self.shared.counts().lost;
        let mut writer = self.shared.writer.lock();
        let all = writer.site_counts().all();
        Counts {
            records: all.entries + all.exits,
            entries: all.entries,
            bytes: writer.bytes_of_records(),
            lost: lost.saturating_sub(self.lost_before),
        }
    }

    fn calls(&mut self, sites: &[SiteKey]) -> Vec<Calls> {
        let numbers: Vec<Option<u32>> = sites.iter().map(|site| self.number(*site)).collect();
        let mut writer = self.shared.writer.lock();
        let calls = numbers.into_iter().map(|number| {
            let calls = number.map(|number| writer.site_counts().calls(number));
            let calls = calls.unwrap_or_default();
            Calls {
                entries: calls.entries,
                exits: calls.exits,
            }
        });
        calls.collect()
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
        self.shared.writer.lock().chunk(bytes, true)?;
        Ok(())
    }

    fn write_text(&mut self, text: &str, at: Option<u64>) -> Result<()> {
        let note_of_it = Note::Text {
            counter: at.unwrap_or_else(counter),
            text: text.to_owned(),
        };
        note(&self.shared.writer, &note_of_it)
    }

    fn subscribe(&mut self, subscriber: Box<dyn Subscriber>) -> Result<SubscriberId> {
        self.shared.writer.lock().subscribe(subscriber)
    }

    fn unsubscribe(&mut self, subscriber: SubscriberId) {
        self.shared.writer.lock().unsubscribe(subscriber);
    }

    fn set_trigger(
        &mut self,
        name: &str,
        place: String,
        trigger: Trigger<Vec<SiteKey>>,
    ) -> Result<()> {
        self.look_for_trigger(name, place, trigger)
    }

    fn remove_trigger(&mut self, name: &str) {
        self.look_for_trigger_no_more(name);
    }

    fn hits(&mut self, name: &str) -> Hits {
        self.shared.triggers().hits(name)
    }

    fn may_snapshot(&self) -> Result<()> {
        ensure!(
            self.options.when_full == WhenFull::Flight,
            "a snapshot is of a flight recorder (--flight); this session writes everything into its trace"
        );
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

    fn snapshots(&mut self) -> Vec<String> {
        self.shared.snapshots().describe()
    }

    fn may_detach(&self) -> Result<()> {
        ensure!(
            self.attached.is_some(),
            "nopal has started this program, and traces it until it ends; stop ends the recording"
        );
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        self.end();
        Ok(())
    }

    fn record_kernel_events(&mut self, tracers: &[Tracer]) -> Result<()> {
        Session::record_kernel_events(self, tracers)
    }

    fn flush(&mut self) -> Result<()> {
        self.shared.flush()
    }

    fn clear_counts(&mut self) {
        // Records are counted as they are collected. An error: nothing is any more.
        let _ = self.shared.flush();
        self.lost_before = self.shared.counts().lost;
        self.shared.writer.lock().site_counts().clear();
    }

    fn clock(&self) -> u64 {
        counter()
    }

    fn directory(&self) -> &Path {
        &self.options.directory
    }
}
