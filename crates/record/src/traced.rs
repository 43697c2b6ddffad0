//! One traced process: nopal's memory in it, the thunks, and the changes to its text.

use crate::arena::{Arena, Wrapping};
use crate::change::{Change, PROBE};
use crate::choose::{Loaded, Wanted, imported};
use crate::control_block::{own_number, thread_words};
use crate::files::Files;
use crate::inject::Injector;
use crate::journal::mirrored_parts;
use crate::mark::Marked;
use crate::markers;
use crate::modules::{self, entries_only, extent};
use crate::notes::{counter, note};
use crate::probes::Placed;
use crate::region::{PRESENCE_BYTES, Region};
use crate::space::{Space, mark_of, reaches};
use anyhow::{Context, Result, bail, ensure};
use nopal_agent::{
    ARENA_BYTES, BLOCK_BOUND, BLOCKS, BlockBuilder, BlockEntry, CONTEXT_BYTES, CONTEXTS,
    IMAGE_UNWIND_HEADER, Immediates, ProcessHead, Recorder, Row, STACK_PART_BYTES, STACK_PARTS,
    Stub, UNWINDERS, UnwinderEntry, detour_bound, thunk_bound,
};
use nopal_control::Probe;
use nopal_plan::{Body, FrameChange, Site};
use nopal_process::{Mapping, Memory, Thread};
use nopal_trace::{Note, Writer};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;

/// What recording is asked for, the same for all processes of a session.
pub struct Settings {
    pub wanted: Wanted,
    pub markers: markers::Wanted,
    /// Those that the recording begins with.
    pub probes: Vec<Probe>,
    pub recorder: Recorder,
    /// Bytes of chunks, and bytes that there may be.
    pub buffer: u64,
    pub room: u64,
    pub when_full: u32,
    pub depth: u32,
}

/// Where nopal's memory is in a process. The same in its forks.
#[derive(Debug, Clone)]
pub struct Places {
    pub head: u64,
    /// The process structure, the contexts and the region.
    memory: Vec<Range<u64>>,
    pub immediates: Immediates,
    pub(crate) arenas: Vec<Arena>,
    blocks: usize,
    unwinders: Vec<UnwinderEntry>,
}

impl Places {
    /// Where the agent's image is; none before there is room for any code.
    pub fn first_arena(&self) -> Option<u64> {
        self.arenas.first().map(|arena| arena.base)
    }
}

pub struct Traced {
    pub process: i32,
    /// Its only thread, while that is held where the program begins.
    pub held: Option<Thread>,
    pub memory: Memory,
    pub region: Arc<Region>,
    pub places: Places,
    pub modules: Vec<Loaded>,
    /// The jumps in the text, by address.
    pub changes: Vec<Change>,
    /// The changes to libraries that were unloaded, by file and base: loaded there again, they find their thunks.
    resting: HashMap<(u32, u64), Vec<Change>>,
    /// Sites with thunks whose jumps were taken out again, by address.
    pub taken_out: Vec<Change>,
    /// The places of markers that generated code tells of, by address, and the words that their code looks at.
    pub markers: BTreeMap<u64, Marked>,
    pub marker_words: HashSet<u64>,
    /// The numbers of listeners that we have added ourselves to.
    pub semaphores: HashSet<u64>,
    /// What thunks record that do not record what the session does, by their addresses.
    pub recorders: HashMap<u64, Recorder>,
    /// Of the probes that are in, by where they are.
    pub probe_sites: HashMap<u64, Arc<Site>>,
    /// The blocks with thunks that wrap calls, unless `entry_only`.
    wrapping: Vec<Wrapping>,
    pub entry_only: bool,
}

/// What the parts of a session share with a process while it is changed.
pub struct Workshop<'a> {
    pub settings: &'a Settings,
    pub files: &'a mut Files,
    pub writer: &'a Mutex<Writer>,
    pub warnings: &'a mut Vec<String>,
}

/// What is to be traced in a module, and hooked.
#[derive(Default)]
pub struct Chosen<'a> {
    /// With what is recorded of each.
    pub sites: Vec<(&'a Site, Recorder)>,
    pub hooks: Vec<(&'a Site, Stub)>,
    pub probes: Vec<Arc<Placed>>,
    /// What switches its markers on.
    pub markers: Vec<Change>,
    /// And the words of data that their code looks at, with the addresses that they will hold once these are known.
    pub marker_words: Vec<Change>,
}

impl Chosen<'_> {
    /// Room that it takes in an arena, at most.
    pub fn bound(&self) -> u64 {
        let hooks = self.hooks.iter().map(|(site, _)| *site);
        let sites = self.sites.iter().map(|(site, _)| *site).chain(hooks);
        let bound = |site: &Site| {
            thunk_bound(site.body.code.len(), site.body.rows.len()) + size_of::<Change>()
        };
        let markers = (self.markers.len() + self.marker_words.len()) * size_of::<Change>();
        let probe = |probe: &Arc<Placed>| {
            let body = &probe.site.body;
            2 * detour_bound(body.code.len(), body.rows.len()) + size_of::<Change>()
        };
        let probes = self.probes.iter().map(probe).sum::<usize>();
        (BLOCK_BOUND + markers + probes + sites.map(bound).sum::<usize>()) as u64
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
            && self.hooks.is_empty()
            && self.probes.is_empty()
            && self.markers.is_empty()
    }
}

/// Nopal's memory in a process, before anything is in it.
pub struct OwnMemory {
    memory: Memory,
    region: Region,
    region_at: u64,
    head: u64,
    contexts: u64,
}

impl OwnMemory {
    /// Gives a process this memory. `thread`, one of its threads, is stopped.
    pub fn give(thread: &mut Thread, settings: &Settings) -> Result<OwnMemory> {
        let process = thread.pid();
        let memory = Memory::open(process)?;
        let mut space = Space::new(&nopal_process::maps(process)?);
        let mut injector = Injector::new(thread)?;
        let head = injector.private_memory(&mut space, head_end(), contexts_bytes())?;
        memory.write(head + nopal_agent::process_bytes(), MEMORY_NAME)?;
        injector.name = head + nopal_agent::process_bytes();

        let (buffer, room) = affordable(process, settings);
        let (number, file) = injector.memory_file()?;
        let (presence_number, presence) = injector.memory_file()?;
        let region = Region::create(file.into(), buffer, room, settings.when_full, process)?;
        let region = region.with_presence(presence.into());
        let region_at =
            injector.map_region(&mut space, (number, region.bytes()), presence_number)?;
        Ok(OwnMemory {
            memory,
            region,
            region_at,
            head,
            contexts: head + head_end(),
        })
    }
}

impl Traced {
    /// Makes a process traced that has nopal's memory. `thread`, one of its threads, is stopped; `modules` are to be
    /// traced.
    pub fn begin(
        thread: &Thread,
        own: OwnMemory,
        modules: &[Loaded],
        settings: &Settings,
    ) -> Result<Traced> {
        let process = thread.pid();
        let OwnMemory { memory, region, .. } = own;
        ensure!(
            modules.iter().any(|module| module.executable),
            "the program's file cannot be read"
        );
        let maps = nopal_process::maps(process)?;
        let space = Space::new(&maps);
        let extents: Vec<_> = modules.iter().map(extent).collect();
        let mark = space
            .mark(&extents)
            .context("no room for generated code near the program")?;
        let mirror = if modules.iter().any(|module| entries_only(module).is_some()) {
            NO_MIRROR
        } else {
            space
                .mirror(&stacks(&maps))
                .context("no room for a mirror of the stacks")?
        };
        let pointer = thread.fs_base()?;
        let number = own_number(process, thread.tid())?;
        let (context_slot, thread_slot) = thread_words(&memory, pointer, number)?;
        let depth_limit = settings.depth;
        let immediates = Immediates {
            process: own.head,
            mirror,
            context_slot,
            thread_slot,
            mark,
            depth_limit,
        };
        let fields = ProcessHead {
            region: own.region_at,
            contexts: own.contexts,
            stack_parts: own.head + head_bytes(),
            thread_pointers: own.head + head_bytes() + parts_bytes(),
            mirror,
            context_slot,
            thread_slot,
            quiet: u32::from(under_new_filter(process)),
            process: own_number(process, process)? as u32,
            depth_limit,
            tracer: tracer_to_allow(),
            ..ProcessHead::default()
        };
        memory.write(own.head, as_bytes(&fields))?;
        region.set_head(own.head);
        let places = Places {
            head: own.head,
            memory: vec![
                own.head..own.contexts + contexts_bytes(),
                own.region_at..own.region_at + region.bytes() + PRESENCE_BYTES,
            ],
            immediates,
            arenas: Vec::new(),
            blocks: 0,
            unwinders: Vec::new(),
        };
        Ok(Traced {
            process,
            held: None,
            memory,
            region: Arc::new(region),
            places,
            modules: Vec::new(),
            changes: Vec::new(),
            taken_out: Vec::new(),
            probe_sites: HashMap::new(),
            resting: HashMap::new(),
            markers: BTreeMap::new(),
            marker_words: HashSet::new(),
            semaphores: HashSet::new(),
            recorders: HashMap::new(),
            wrapping: Vec::new(),
            entry_only: !settings.recorder.wraps,
        })
    }

    /// The same for a forked child of this process: all memory is where it was, and its own.
    pub fn fork(&self, process: i32) -> Result<Traced> {
        let mut places = self.places.clone();
        places.arenas = places.arenas.iter().map(Arena::fork).collect();
        Ok(Traced {
            process,
            held: None,
            memory: Memory::open(process)?,
            region: self.region.clone(),
            places,
            modules: self.modules.clone(),
            changes: self.changes.clone(),
            taken_out: self.taken_out.clone(),
            probe_sites: self.probe_sites.clone(),
            resting: self.resting.clone(),
            markers: self.markers.clone(),
            marker_words: self.marker_words.clone(),
            semaphores: self.semaphores.clone(),
            recorders: self.recorders.clone(),
            wrapping: self.wrapping.clone(),
            entry_only: self.entry_only,
        })
    }

    /// The loader has changed the list of libraries; `thread` waits in the runtime.
    pub fn libraries_changed(
        &mut self,
        thread: &mut Thread,
        workshop: &mut Workshop,
    ) -> Result<()> {
        let now = modules::loaded(self.process, workshop)?;
        let same = |a: &Loaded, b: &Loaded| a.base == b.base && a.file.index == b.file.index;
        let gone: Vec<Loaded> = self
            .modules
            .iter()
            .filter(|old| !now.iter().any(|new| same(old, new)))
            .cloned()
            .collect();
        for module in &gone {
            let range = extent(module);
            self.taken_out
                .retain(|change| !range.contains(&change.address));
            self.forget_text_of_markers(&range);
            self.semaphores.retain(|address| !range.contains(address));
            let gone = self
                .changes
                .extract_if(.., |change| range.contains(&change.address));
            self.resting
                .insert((module.file.index, module.base), gone.collect());
            note(
                workshop.writer,
                &Note::Unload {
                    process: self.process as u32,
                    image: module.file.index,
                    counter: counter(),
                    base: module.base,
                },
            )?;
        }
        self.modules
            .retain(|old| now.iter().any(|new| same(old, new)));
        let new: Vec<Loaded> = now
            .into_iter()
            .filter(|new| !self.modules.iter().any(|old| same(old, new)))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let known = self.modules.iter().chain(&new).cloned().collect::<Vec<_>>();
        workshop.want_statics(&new);
        if let Err(error) = workshop.files.place_probes(&known, workshop.writer) {
            workshop.warnings.push(format!("{error:#}"));
        }
        let imports = self.imports(&new);
        self.make_room(&new, &imports, thread, workshop)?;
        let changes = self.add_modules(new, &imports, workshop)?;
        self.insert_at_rest(changes, workshop)?;
        workshop.tell_unplaced();
        self.settle_semaphores(workshop)
    }

    /// Maps memory for the code that `new` modules, which are not among ours yet, will have. `thread` is stopped;
    /// `imports` are the functions that the executable imports.
    pub fn make_room(
        &mut self,
        new: &[Loaded],
        imports: &HashSet<u64>,
        thread: &mut Thread,
        workshop: &mut Workshop,
    ) -> Result<()> {
        let chosen = new.iter().filter_map(|module| {
            let chosen = choose(module, imports, workshop);
            let needs_none = chosen.is_empty() || self.rests(module, &chosen);
            (!needs_none).then(|| (module, chosen.bound()))
        });
        let wanted: Vec<_> = chosen.collect();
        self.map_room(&wanted, thread)
    }

    /// Maps memory for the code of modules, each with the bytes that it takes at most; who puts it in finds out where
    /// there is no room. What room was made for before has been put in by now, or never will.
    pub fn map_room(&mut self, wanted: &[(&Loaded, u64)], thread: &mut Thread) -> Result<()> {
        let mut space = Space::new(&nopal_process::maps(self.process)?);
        let mut injector = Injector::new(thread)?;
        injector.name = self.places.head + nopal_agent::process_bytes();
        let known = self.places.arenas.len();
        for arena in &mut self.places.arenas {
            arena.forget_promises();
        }
        for (module, bytes) in wanted {
            self.promise_room(&extent(module), *bytes, &mut space);
        }
        let image = nopal_agent::image(&self.places.immediates);
        for index in 0..self.places.arenas.len() {
            let arena = &mut self.places.arenas[index];
            arena.map_promised(&mut injector)?;
            if index < known {
                continue;
            }
            let base = arena.base;
            arena.put(&image)?;
            self.publish_block(BlockEntry {
                low: base,
                high: base + image.len() as u64,
                header: base + IMAGE_UNWIND_HEADER,
            })?;
        }
        Ok(())
    }

    /// Finds an arena that reaches a module and has a place for its code, or a place for another one, if there is any.
    fn promise_room(&mut self, module: &Range<u64>, bytes: u64, space: &mut Space) {
        let immediates = &self.places.immediates;
        let arenas = &mut self.places.arenas;
        let fits = |arena: &Arena| reaches(arena.base, module) && arena.has_place(bytes);
        if let Some(arena) = arenas.iter_mut().find(|arena| fits(arena)) {
            arena.promise(bytes);
        } else if let Some(base) = space.arena(module, immediates.mark) {
            debug_assert_eq!(mark_of(base), immediates.mark);
            space.take(base..base + ARENA_BYTES);
            let mut arena = Arena::new(base);
            arena.promise(nopal_agent::image(immediates).len() as u64);
            arena.promise(bytes);
            arenas.push(arena);
        }
    }

    /// Where the functions are that the executable imports, with the modules that are there and `new` ones.
    pub fn imports(&self, new: &[Loaded]) -> HashSet<u64> {
        let all: Vec<Loaded> = self.modules.iter().chain(new).cloned().collect();
        all.iter()
            .find(|module| module.executable)
            .map(|executable| imported(executable, &all, &self.memory))
            .unwrap_or_default()
    }

    /// Makes the thunks of `new` modules, for which there is room. Returns the changes to the text that lead to them.
    pub fn add_modules(
        &mut self,
        new: Vec<Loaded>,
        imports: &HashSet<u64>,
        workshop: &mut Workshop,
    ) -> Result<Vec<Change>> {
        self.wrap_for(&new, workshop.warnings);
        let mut changes = Vec::new();
        for module in new {
            note(
                workshop.writer,
                &Note::Module {
                    process: self.process as u32,
                    image: module.file.index,
                    counter: counter(),
                    base: module.base,
                    path: module.name.clone(),
                },
            )?;
            self.add_unwinder(&module)?;
            let refused = workshop.settings.wanted.refused(&module, imports);
            workshop
                .files
                .refuse(&module.file, &refused, workshop.writer)?;
            let mut chosen = choose(&module, imports, workshop);
            workshop
                .warnings
                .extend(chosen.leave_to_probes(&module.file));
            let numbered = self.number_markers(&module, workshop);
            let added = numbered.and_then(|words| {
                chosen.marker_words = words;
                self.add_sites(&module, &chosen, true, workshop)
            });
            match added {
                Ok(new) => {
                    let sites = chosen.probes.iter().map(|probe| {
                        let address = module.base.wrapping_add(probe.site.address);
                        (address, probe.site.clone())
                    });
                    self.probe_sites.extend(sites);
                    changes.extend(new);
                }
                Err(error) => workshop
                    .warnings
                    .push(format!("{}: not traced: {error:#}", module.name)),
            }
            self.modules.push(module);
        }
        Ok(changes)
    }

    /// Makes the thunks of `chosen`, for which there is room, switched on or off. The trace knows them when this returns.
    pub fn add_sites(
        &mut self,
        module: &Loaded,
        chosen: &Chosen,
        on: bool,
        workshop: &mut Workshop,
    ) -> Result<Vec<Change>> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        if self.rests(module, chosen)
            && let Some(changes) = self.resting.remove(&(module.file.index, module.base))
        {
            return Ok(changes);
        }
        ensure!(
            self.places.blocks < BLOCKS,
            "too many libraries were loaded"
        );
        let (bytes, extent) = (chosen.bound(), extent(module));
        let fits = |arena: &Arena| reaches(arena.base, &extent) && arena.has_room(bytes);
        let arena = self.places.arenas.iter().position(fits);
        let arena = arena.context("no room for generated code in reach")?;
        let sites: Vec<&Site> = chosen.sites.iter().map(|(site, _)| *site).collect();
        let (numbers, new) = workshop.files.number(&module.file, &sites);
        let writer = workshop.writer;
        let (block, changes) = std::thread::scope(|scope| {
            let told = (!new.is_empty()).then(|| scope.spawn(move || note(writer, &new.note())));
            let (mut block, changes) =
                self.make_block(arena, module, chosen, &numbers, workshop.settings.recorder)?;
            let is_off = |change: &&Change| {
                let probe = chosen.probes.iter().find(|probe| {
                    change.is_probe()
                        && module.base.wrapping_add(probe.site.address) == change.address
                });
                !probe.map_or(on, |probe| probe.is_on())
            };
            for change in changes.iter().filter(is_off) {
                let at = (change.entry - block.low) as usize;
                block.bytes[at..at + 2].copy_from_slice(&change.switch(false));
            }
            self.places.arenas[arena].put(&block.bytes)?;
            if let Some(told) = told {
                told.join().unwrap_or_else(|_| bail!("writing failed"))?;
            }
            anyhow::Ok((block, changes))
        })?;
        let arena = &self.places.arenas[arena];
        if !block.entries_only.is_empty() {
            let code = arena.piece(block.low, block.bytes.len())?;
            self.wrapping
                .push(Wrapping::new(code, block.low, block.entries_only));
        }
        self.publish_block(BlockEntry {
            low: block.low,
            high: block.high,
            header: block.header,
        })?;
        self.add_markers(&chosen.markers, &chosen.marker_words);
        let own = changes.iter().zip(&chosen.sites);
        let own = own.filter(|(_, (_, recorder))| *recorder != workshop.settings.recorder);
        self.recorders
            .extend(own.map(|(change, (_, recorder))| (change.entry, *recorder)));
        Ok(changes)
    }

    /// Whether all that is `chosen` of a module has its thunks, since it was loaded at the same place before.
    fn rests(&self, module: &Loaded, chosen: &Chosen) -> bool {
        let key = (module.file.index, module.base);
        let Some(changes) = self.resting.get(&key) else {
            return false;
        };
        let hooks = chosen.hooks.iter().map(|(site, _)| *site);
        let sites = chosen.sites.iter().map(|(site, _)| *site).chain(hooks);
        let sites = sites.map(|site| module.base.wrapping_add(site.address));
        let mut markers = chosen.markers.iter();
        changes.iter().map(|change| change.address).eq(sites)
            && markers.all(|change| self.knows_marker(change))
    }

    fn make_block(
        &self,
        arena: usize,
        module: &Loaded,
        chosen: &Chosen,
        numbers: &[u32],
        usual: Recorder,
    ) -> Result<(nopal_agent::Block, Vec<Change>)> {
        let arena = &self.places.arenas[arena];
        let mirror = self.places.immediates.mirror;
        let mut block = BlockBuilder::new(arena.next(), arena.base, mirror);
        block.reserve(chosen.bound() as usize);
        let mut changes = Vec::with_capacity(chosen.sites.len() + chosen.hooks.len());
        let mut unwinding = Vec::new();
        for ((site, recorder), number) in chosen.sites.iter().zip(numbers) {
            let recorder = Recorder {
                wraps: recorder.wraps && !self.entry_only && !site.reads_return_address,
                ..*recorder
            };
            let thunk = block.thunk(
                *number,
                recorder,
                site.body.code.len(),
                rows(&site.body, &mut unwinding),
                |at, out| place(module, site, &chosen.markers, at, out),
            )?;
            changes.push(Change::new(module.base, site, &thunk, *number)?);
        }
        for (site, stub) in &chosen.hooks {
            let rows = rows(&site.body, &mut unwinding);
            let hook = block.hook(*stub, site.body.code.len(), rows, |at, out| {
                place(module, site, &chosen.markers, at, out)
            })?;
            changes.push(Change::new(module.base, site, &hook, 0)?);
        }
        for probe in &chosen.probes {
            let (site, fetched) = (&*probe.site, probe.fetched(module.base));
            let rows = rows(&site.body, &mut unwinding);
            let body = site.body.code.len();
            let write = |at, out: &mut [u8]| place(module, site, &chosen.markers, at, out);
            let thunk = match probe.call {
                None => block.detour(&fetched, body, rows, write)?,
                Some(number) => {
                    let recorder = Recorder {
                        wraps: true,
                        ..usual
                    };
                    block.thunk_with_probe(&fetched, number, recorder, body, rows, write)?
                }
            };
            changes.push(Change::new(module.base, site, &thunk, PROBE)?);
        }
        let all = [&changes[..], &chosen.markers, &chosen.marker_words].concat();
        Ok((block.finish(Change::to_bytes(&all))?, changes))
    }

    /// The module that an address of the process lies in.
    pub fn module_at(&self, address: u64) -> Option<&Loaded> {
        let mut modules = self.modules.iter();
        modules.find(|module| extent(module).contains(&address))
    }

    /// What the file says of the site of a change.
    pub fn site_of(&self, change: &Change) -> Option<&Site> {
        if change.is_probe() {
            return self.probe_sites.get(&change.address).map(|site| &**site);
        }
        let module = self.module_at(change.address)?;
        let address = change.address.wrapping_sub(module.base);
        module.file.plan.hook(address).ok()
    }

    fn publish_block(&mut self, entry: BlockEntry) -> Result<()> {
        ensure!(
            self.places.blocks < BLOCKS,
            "too many libraries were loaded"
        );
        let at =
            nopal_agent::blocks_offset() + (self.places.blocks * size_of::<BlockEntry>()) as u64;
        self.memory.write(self.places.head + at, as_bytes(&entry))?;
        self.places.blocks += 1;
        let count = self.places.blocks as u32;
        self.write_head_word(std::mem::offset_of!(ProcessHead, block_count), count)
    }

    fn write_head_word(&self, offset: usize, value: u32) -> Result<()> {
        self.memory
            .write(self.places.head + offset as u64, &value.to_le_bytes())
    }

    /// Tells the runtime of a module that unwinds, whether or not any of its functions are traced.
    fn add_unwinder(&mut self, module: &Loaded) -> Result<()> {
        // One that was unloaded keeps its place: nothing calls from there any more.
        let Some(entry) = unwinder(module).filter(|entry| !self.places.unwinders.contains(entry))
        else {
            return Ok(());
        };
        let count = self.places.unwinders.len();
        if count == UNWINDERS {
            // It finds no thunk, and need not: see `wrap_for`.
            return Ok(());
        }
        let at = nopal_agent::unwinders_offset() + (count * size_of::<UnwinderEntry>()) as u64;
        self.memory.write(self.places.head + at, as_bytes(&entry))?;
        self.places.unwinders.push(entry);
        self.write_head_word(
            std::mem::offset_of!(ProcessHead, unwinder_count),
            count as u32 + 1,
        )
    }

    /// Wraps no more calls where `new` modules would come back to other calls' mirrors, or could not unwind through
    /// thunks.
    fn wrap_for(&mut self, new: &[Loaded], warnings: &mut Vec<String>) {
        if self.entry_only {
            return;
        }
        let unknown = new.iter().filter_map(unwinder);
        let unknown = unknown.filter(|entry| !self.places.unwinders.contains(entry));
        let why = if let Some(reason) = new.iter().find_map(entries_only) {
            reason
        } else if self.places.unwinders.len() + unknown.count() > UNWINDERS {
            MANY_UNWINDERS
        } else {
            return;
        };
        self.entry_only = true;
        warnings.push(why.into());
    }

    /// Makes the thunks that there are wrap no call. The process, and all that share its memory, stand still.
    pub fn record_entries_only(&self) -> Result<()> {
        self.wrapping
            .iter()
            .try_for_each(Wrapping::record_entries_only)
    }

    /// Where nopal's memory is in the process.
    pub fn own_memory(&self) -> Result<Vec<Range<u64>>> {
        let mut own = self.places.memory.clone();
        own.extend(self.arenas());
        let table = self.places.head + head_bytes();
        for part in mirrored_parts(&self.memory, table)? {
            let mirror = part.wrapping_add_signed(self.places.immediates.mirror);
            own.push(mirror..mirror.saturating_add(STACK_PART_BYTES));
        }
        Ok(own)
    }

    fn arenas(&self) -> impl Iterator<Item = Range<u64>> {
        self.places.arenas.iter().map(Arena::range)
    }
}

/// A distance at which no stack has a mirror: beyond user addresses, where nothing can be mapped.
const NO_MIRROR: i64 = 1 << 47;

/// The process structure, and the name of our memory behind it.
const fn head_bytes() -> u64 {
    (nopal_agent::process_bytes() + NAME_BYTES).next_multiple_of(PAGE)
}

/// The table of stack parts.
pub const fn parts_bytes() -> u64 {
    (STACK_PARTS * 8) as u64
}

/// The table of thread pointers.
pub const fn pointers_bytes() -> u64 {
    (CONTEXTS * 8) as u64
}

/// All of these.
const fn head_end() -> u64 {
    (head_bytes() + parts_bytes() + pointers_bytes()).next_multiple_of(PAGE)
}

const fn contexts_bytes() -> u64 {
    ((CONTEXTS * CONTEXT_BYTES) as u64).next_multiple_of(PAGE)
}

const MEMORY_NAME: &[u8] = b"nopal\0";
const NAME_BYTES: u64 = 8;

/// What is to be traced in `module`. `imports` are the addresses that the executable calls.
const MANY_UNWINDERS: &str = "more copies of the unwinder are loaded than nopal can tell of its thunks: entries only are recorded";

/// The functions of a module that unwinds.
fn unwinder(module: &Loaded) -> Option<UnwinderEntry> {
    let functions = module.file.unwinder()?;
    let [set_register, set_address, resume, get_address] =
        functions.map(|address| module.base.wrapping_add(address));
    let range = extent(module);
    Some(UnwinderEntry {
        low: range.start,
        high: range.end,
        set_register,
        set_address,
        resume,
        get_address,
    })
}

fn choose<'a>(module: &'a Loaded, imports: &HashSet<u64>, workshop: &Workshop) -> Chosen<'a> {
    let settings = workshop.settings;
    Chosen {
        probes: workshop.files.probes.of(&module.file),
        sites: settings.wanted.sites(module, imports, settings.recorder),
        hooks: module.file.hooks(),
        markers: settings.markers.changes(module),
        marker_words: settings.markers.words(module, 0),
    }
}

/// The displaced instructions as they must be at `at`.
fn place(module: &Loaded, site: &Site, markers: &[Change], at: u64, out: &mut [u8]) -> Result<()> {
    site.body.place(module.base, at, out)?;
    markers::switch_on_displaced(markers, site, module.base, at, out)
}

fn rows<'a>(body: &Body, into: &'a mut Vec<(u16, Row)>) -> &'a [(u16, Row)] {
    let row = |(offset, change): &(u16, FrameChange)| {
        let row = match *change {
            FrameChange::Cfa { register, offset } => Row::Cfa { register, offset },
            FrameChange::Saved { register, offset } => Row::Saved { register, offset },
            FrameChange::Restored { register } => Row::Restored { register },
        };
        (*offset, row)
    };
    into.clear();
    into.extend(body.rows.iter().map(row));
    into
}

/// The main stack with room to grow, the heap with room, and where threads' stacks are mapped.
fn stacks(maps: &[Mapping]) -> Vec<Range<u64>> {
    const GROWTH: u64 = 1 << 30;
    let named = |name: &str| maps.iter().find(|map| map.label.as_deref() == Some(name));
    let mut stacks = Vec::new();
    if let Some(stack) = named("[stack]") {
        stacks.push(stack.start.saturating_sub(GROWTH)..stack.end);
    }
    if let Some(heap) = named("[heap]").filter(|heap| heap.start > 1 << 40) {
        stacks.push(heap.start..heap.end + GROWTH);
    }
    let libraries = maps
        .iter()
        .filter(|map| map.executable && (1 << 40..1 << 47).contains(&map.start));
    if let Some(highest) = libraries.map(|map| map.end).max() {
        stacks.push(highest.saturating_sub(64 * GROWTH)..highest);
    }
    stacks
}

/// Whether the process is under a seccomp filter that the tool is not under itself.
pub fn under_new_filter(process: i32) -> bool {
    let filters = |process| {
        nopal_process::status(process).map(|status| (status.seccomp, status.seccomp_filters))
    };
    match (filters(process), filters(std::process::id() as i32)) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        _ => true,
    }
}

/// Where only descendants may be traced, a daemon that has left them must allow it.
fn tracer_to_allow() -> u32 {
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if scope.trim() == "1" => std::process::id(),
        _ => 0,
    }
}

/// Bytes of chunks that a process gets, and bytes for which there is room: less than asked where it may not use much
/// address space, and no room that may never be used where all it maps is locked into memory.
fn affordable(process: i32, settings: &Settings) -> (u64, u64) {
    // SAFETY: the kernel fills the structure in; a failure leaves the limits at 0, which is tested.
    let limit = unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        libc::prlimit(process, libc::RLIMIT_AS, std::ptr::null(), &mut limit);
        limit.rlim_cur
    };
    if limit != libc::RLIM_INFINITY && limit != 0 {
        let most = limit / 16;
        return (settings.buffer.min(most), most.min(settings.room));
    }
    let locks = nopal_process::status(process).map_or(true, |status| status.locked > 0);
    let room = if locks {
        settings.buffer
    } else {
        settings.room
    };
    (settings.buffer, room)
}

pub fn as_bytes_mut<T: Copy>(value: &mut T) -> &mut [u8] {
    // SAFETY: used for #[repr(C)] structures of integers, for which any bytes are valid.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}

pub fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: used for #[repr(C)] structures without padding, for the length of the borrow.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
