//! Functions of the kernel and their ends, markers and probes, from the kernel's module. Records of a task are a thread of the trace, beside
//! those that its program records.

use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::kernel_modules::{Follower, KernelFunction};
use crate::collecting::kernel_probes::KernelProbe;
use crate::collecting::notes::counter;
use crate::collecting::tasks::{TaskChunk, Tasks};
use crate::memory::lost::Lost;
use crate::memory::region::Region;
use crate::options::Options;
use crate::sites::markers::field;
use anyhow::{Context, Result, ensure};
use nopal_abi::*;
use nopal_control::word;
use nopal_kernel::{Device, Symbols};
use nopal_kernel_events::Kinds;
use nopal_symbols::fields_of_marker;
use nopal_trace::{Note, Writer};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The kernel among the images of a trace, and its sites, which are numbered from the last number down.
pub const IMAGE: u32 = u32::MAX;
const LAST_SITE: u32 = SITE_LIMIT - 1;

/// How often chunks that are not full are written.
const FLUSH: Duration = Duration::from_secs(1);

pub struct KernelFunctions {
    /// Before the others: it may have begun to tell the module of functions. None where only markers are recorded.
    follower: Option<Follower>,
    // Before the device: what it asks for is taken back while that is open.
    region: Region,
    device: Device,
    tasks: Tasks,
    symbols: Symbols,
    /// By the module's site numbers, from 1 on: those that were there at the begin.
    addresses: Vec<u64>,
    /// The trace's numbers of the module's sites.
    sites: HashMap<u32, u32>,
    /// The events of markers that have notes, and probes that have none yet.
    markers: HashSet<u32>,
    probes: Vec<(u32, KernelProbe)>,
    /// Whether the kernel has a note as an image.
    is_named: bool,
    /// How many functions are traced.
    traced: u64,
    /// For the user.
    warnings: Vec<String>,
    /// What was lost before the recording.
    lost_before: Lost,
    next_flush: Instant,
    buffer: Box<[u64; CHUNK_BYTES / 8]>,
}

impl KernelFunctions {
    /// Records functions and markers of the kernel in the threads of a process and in what they start. None: the kernel
    /// does not have the module.
    pub fn open(process: i32, kinds: Kinds, options: &Options) -> Result<Option<KernelFunctions>> {
        if !Device::is_there() {
            return Ok(None);
        }
        let opened = KernelFunctions::of_module(process, kinds, options);
        opened
            .context("functions and markers of the kernel cannot be recorded")
            .map(Some)
    }

    fn of_module(process: i32, kinds: Kinds, options: &Options) -> Result<KernelFunctions> {
        let mut device = Device::open()?;
        let state = device.state()?;
        ensure!(
            !state.lines().any(
                |line| ["trace ", "mark ", "probe ", "processors ", "uniform on"]
                    .iter()
                    .any(|begin| line.starts_with(begin))
            ),
            "the kernel's module is in use: `nopal ctl kernel` shows for what, `nopal ctl kernel reset` ends it"
        );
        let planned = match kinds.functions() && device.needs_plan()? {
            true => device.load(false).map(drop),
            false => Ok(()),
        };
        let addresses = device.sites()?;
        let mut warnings = Vec::new();
        match planned {
            Err(error) if addresses.iter().any(|address| *address != 0) => warnings.push(format!(
                "functions of modules that came since the last plan are not recorded: {error:#}"
            )),
            planned => planned?,
        }
        let region = Region::of_kernel(device.file().try_clone_to_owned()?)?;
        let mut functions = KernelFunctions {
            follower: None,
            lost_before: region.lost(),
            region,
            tasks: Tasks::default(),
            symbols: Symbols::read()?,
            addresses,
            device,
            sites: HashMap::new(),
            markers: HashSet::new(),
            probes: Vec::new(),
            is_named: false,
            traced: 0,
            warnings,
            next_flush: Instant::now() + FLUSH,
            buffer: Box::new([0; CHUNK_BYTES / 8]),
        };
        functions.take_chunks();
        functions.tasks.forget();
        let mut commands = format!("watch {process} children\n");
        for glob in &options.kernel_markers {
            commands += &format!("mark {glob} on\n");
        }
        for text in &options.kernel_probes {
            let probe = KernelProbe::parsed(text, &functions.symbols)?;
            let event = probe.make(&mut functions.device)?;
            commands += &format!("probe {} on\n", word(probe.name()));
            functions.probes.push((event, probe));
        }
        if kinds.functions() {
            let what = match &options.kernel_functions[..] {
                [] => "*".to_owned(),
                globs => globs.join(" "),
            };
            if options.record_arguments {
                commands += "arguments on\n";
            }
            commands += &format!("trace {what} new record\ntrace record on\n");
        }
        commands += "start\n";
        functions.device.command(&commands)?;
        functions.traced = traced(&functions.device.state()?);
        if kinds.functions() {
            functions.follower = Some(Follower::start(Device::open()?)?);
        }
        Ok(functions)
    }

    /// Writes what has come. Returns of how many chunks.
    pub fn read(&mut self, shared: &Shared, collector: &mut Collector) -> Result<u64> {
        self.write(shared, collector, false)
    }

    /// Ends the recording, and writes what is left.
    pub fn finish(&mut self, shared: &Shared, collector: &mut Collector) -> Result<()> {
        if let Some(Err(error)) = self.follower.as_mut().map(Follower::end) {
            self.warnings.push(format!("{error:#}"));
        }
        let state = self.device.state().unwrap_or_default();
        self.traced = self.traced.max(traced(&state));
        let ended = self.device.command("reset\n");
        self.write(shared, collector, true)?;
        ended
    }

    fn write(&mut self, shared: &Shared, collector: &mut Collector, all: bool) -> Result<u64> {
        collector.warnings.append(&mut self.warnings);
        let before = counter();
        let freed = self.take_chunks();
        let mut chunks = Vec::new();
        if all {
            let (processors, last) = self.tasks.end();
            collector.totals.kernel_processors_cut = processors;
            chunks.extend(last);
        }
        let flushes = all || Instant::now() >= self.next_flush;
        chunks.extend(match flushes {
            true => self.tasks.flush(if all { u64::MAX } else { before }),
            false => self.tasks.settle(before),
        });
        if flushes {
            self.next_flush = Instant::now() + FLUSH;
        }
        collector.totals.kernel_functions = self.traced;
        let mut writer = shared.writer.lock();
        for chunk in chunks {
            self.write_chunk(chunk, collector, &mut writer)?;
        }
        if all {
            let lost = self.region.lost().since(&self.lost_before);
            collector.totals.lost_by_module = lost;
            collector.totals.kernel_events_lost += lost.all();
        }
        Ok(freed)
    }

    /// Takes what processors have recorded. Returns how many chunks are free again.
    fn take_chunks(&mut self) -> u64 {
        let until = counter();
        let mut chunks: Vec<_> = (0..self.region.chunks())
            // The state is looked at first: what a processor stores in the header of a full chunk is there then.
            .map(|chunk| (self.region.chunk_state(chunk), chunk))
            .filter(|(state, _)| *state != CHUNK_FREE)
            .map(|(state, chunk)| (self.region.header(chunk), state, chunk))
            // A processor that has just taken the chunk has not filled in the header.
            .filter(|(header, ..)| header.thread_begin != 0)
            .collect();
        chunks.sort_unstable_by_key(|(header, ..)| (header.thread_begin, header.sequence));
        let mut freed = 0;
        let of_one = |one: &(ChunkHeader, u32, usize), other: &(ChunkHeader, u32, usize)| {
            one.0.thread_begin == other.0.thread_begin
        };
        for chunks in chunks.chunk_by(of_one) {
            for (header, state, chunk) in chunks {
                let is_full = *state == CHUNK_FULL;
                let bytes: &mut [u8; CHUNK_BYTES] = zerocopy::transmute_mut!(&mut *self.buffer);
                let used = match is_full {
                    true => self.region.copy(*chunk, bytes),
                    false => self.region.copy_growing(*chunk, 0, bytes),
                };
                // A processor that has just taken the chunk was filling in the header.
                let now = self.region.header(*chunk);
                if (now.thread_begin, now.sequence) != (header.thread_begin, header.sequence) {
                    continue;
                }
                let end = match is_full {
                    true => used.min((header.content_bits / 8) as usize),
                    false => used,
                };
                let records = &self.buffer[CHUNK_HEADER_BYTES / 8..end.max(CHUNK_HEADER_BYTES) / 8];
                if !self.tasks.take(header, records) {
                    break;
                }
                // One behind it is younger than this look, and may have had a chunk before it that was not seen.
                if !is_full {
                    break;
                }
                self.region.free(*chunk, used);
                freed += 1;
            }
            self.tasks.complete(chunks[0].0.thread_begin, until);
        }
        freed
    }

    fn write_chunk(
        &mut self,
        mut chunk: TaskChunk,
        collector: &mut Collector,
        writer: &mut Writer,
    ) -> Result<()> {
        self.name_sites(&mut chunk.words, writer)?;
        chunk.write(collector, writer)
    }

    /// Gives records the trace's numbers of their sites, and tells the trace of the sites and markers that are new to it.
    fn name_sites(&mut self, words: &mut [u64], writer: &mut Writer) -> Result<()> {
        let mut new = Vec::new();
        let mut unknown = false;
        let mut at = 0;
        while let Some((&first, rest)) = words.get(at..).and_then(<[u64]>::split_first) {
            let word = Word(first);
            let Some(length) = word.words(rest) else {
                break;
            };
            if word.kind() == KIND_EXTENDED && !word.is_resync() {
                unknown |= !self.markers.contains(&word.event());
            } else if word.has_site() {
                let next = LAST_SITE - self.sites.len() as u32;
                let site = *self.sites.entry(word.site()).or_insert_with(|| {
                    new.push((next, word.site()));
                    next
                });
                words[at] = word.with_site(site).0;
            }
            at += length;
        }
        if (unknown || !new.is_empty()) && !self.is_named {
            writer.note(&Note::Image {
                image: IMAGE,
                path: "kernel".into(),
                identity: release(),
            })?;
            self.is_named = true;
        }
        if unknown {
            self.name_markers(writer)?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let mut sites = Vec::new();
        for (number, site) in new {
            let function = self.function(site)?;
            sites.push((number, function.address, function.size, function.name));
        }
        writer.note(&Note::Sites {
            image: IMAGE,
            sites,
        })
    }

    fn function(&mut self, site: u32) -> Result<KernelFunction> {
        let known = self.addresses.get(site as usize - 1);
        let (None, Some(follower)) = (known, &self.follower) else {
            return Ok(KernelFunction::of(
                &self.symbols,
                known.copied().unwrap_or(0),
            ));
        };
        if let Some(function) = follower.function(site) {
            return Ok(function);
        }
        // The follower is about to name it, or `nopal ctl kernel load` was first.
        let first = self.addresses.len();
        let sites = self.device.sites()?;
        let later = sites.get(first..).unwrap_or_default();
        follower.name(first as u32 + 1, later)?;
        let function = follower.function(site);
        Ok(function.unwrap_or_else(|| KernelFunction::of(&self.symbols, 0)))
    }

    /// Tells the trace of the probes and markers that are new to it.
    fn name_markers(&mut self, writer: &mut Writer) -> Result<()> {
        for (event, probe) in std::mem::take(&mut self.probes) {
            self.markers.insert(event);
            writer.note(&probe.note(event, IMAGE))?;
        }
        for marker in self.device.markers()? {
            if !self.markers.insert(marker.event) {
                continue;
            }
            let fields = fields_of_marker(&marker.format, marker.types)
                .with_context(|| format!("marker {} of {}", marker.name, marker.module))?;
            writer.note(&Note::Marker {
                event: marker.event,
                image: IMAGE,
                name: marker.name,
                format: marker.format,
                fields: fields.iter().map(field).collect(),
                file: marker.file,
                line: marker.line,
                tracepoint: false,
            })?;
        }
        Ok(())
    }
}

/// The number of functions that the recording has, by the module's state.
fn traced(state: &str) -> u64 {
    let line = state
        .lines()
        .find_map(|line| line.strip_prefix("#functions "));
    let number = line.and_then(|line| line.split(',').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The running kernel's release.
pub fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim_end().to_owned()
}
