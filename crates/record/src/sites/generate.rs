//! Generates the code of a process: finds room for it in reach, makes the thunks, and tells the runtime of them.

use crate::memory::arena::{Arena, Wrapping};
use crate::memory::groups::Left;
use crate::memory::inject::Injector;
use crate::memory::space::{Space, mark_of, reaches};
use crate::patch::change::{Change, Kind};
use crate::patch::stored::Stored;
use crate::sites::choose::Loaded;
use crate::sites::chosen::{Chosen, choose};
use crate::sites::markers;
use crate::sites::modules::extent;
use crate::tracee::{PatchContext, Settings, Tracee};
use anyhow::{Context, Result, ensure};
use nopal_abi::Capture;
use nopal_agent::{
    ARENA_BYTES, BLOCKS, BlockBuilder, BlockEntry, EntryOnly, IMAGE_UNWIND_HEADER, ProcessHead,
};
use nopal_beside::both;
use nopal_control::Control;
use nopal_plan::{Body, FrameChange, JUMP, Site};
use nopal_process::Thread;
use std::ops::Range;
use zerocopy::IntoBytes;

/// The bytes of code and text from which on the limits of control groups are looked at.
const WORTH_A_LOOK: u64 = 1 << 20;

/// With this many sites, a thread of its own writes their notes while their thunks are made.
const WORTH_A_THREAD: usize = 1000;

impl Tracee {
    /// Chooses the sites to trace in `new` modules, which are not among ours yet, and maps memory for their code.
    /// `thread` is stopped.
    pub fn make_room<'a>(
        &mut self,
        new: &'a [Loaded],
        control: &Control,
        thread: &mut Thread,
        context: &mut PatchContext,
    ) -> Result<Vec<Chosen<'a>>> {
        let chosen = new.iter().map(|module| choose(module, control, context));
        let chosen: Vec<Chosen> = chosen.collect();
        let each = new.iter().zip(&chosen);
        let wanted = each.filter_map(|(module, chosen)| {
            let needs_none = chosen.is_empty() || self.rests(module, chosen);
            (!needs_none).then(|| (module, chosen.bound()))
        });
        let wanted: Vec<_> = wanted.collect();
        self.map_room(&wanted, thread)?;
        let mut probes = chosen.iter().flat_map(|chosen| &chosen.probes);
        if probes.any(|probe| probe.breaks) {
            self.handle_traps(thread)?;
        }
        Ok(chosen)
    }

    /// Maps memory for the code of modules, each with the bytes that it takes at most. Where there is no room, the caller
    /// learns that when it generates the code. Room that was made before has been used by now, or never will be.
    pub fn map_room(&mut self, wanted: &[(&Loaded, u64)], thread: &mut Thread) -> Result<()> {
        // The process gets its own copy of the text from the first site to the last, at most of a page for each 128 bytes
        // of code, which a site has at least.
        const PAGES: u64 = 4096 / 128;
        let needed = wanted.iter().map(|(module, bytes)| {
            let sites = &module.file.plan.sites;
            let ends = sites.first().zip(sites.last());
            let text = ends.map_or(0, |(first, last)| last.address - first.address);
            bytes + (bytes * PAGES).min(text)
        });
        let needed: u64 = needed.sum();
        // Less was allowed for when the process got its memory.
        if needed >= WORTH_A_LOOK
            && let Some(left) = Left::of(self.process)
        {
            left.ensure(needed)?;
        }
        let mut space = match self.space.take() {
            Some(space) => space,
            None => Space::new(&nopal_process::maps(self.process)?),
        };
        let name = self.places.head + nopal_agent::process_bytes();
        let mut injector = Injector::again(thread, &self.memory, self.places.gadget, name)?;
        let known = self.places.arenas.len();
        for arena in &mut self.places.arenas {
            arena.forget_promises();
        }
        for (module, bytes) in wanted {
            self.promise_room(&extent(module), *bytes, &mut space);
        }
        let mapped = self.map_promised(&mut injector);
        // Where the process has refused memory there is no arena.
        self.places.arenas.retain(|arena| !arena.range().is_empty());
        for index in known..self.places.arenas.len() {
            let arena = &mut self.places.arenas[index];
            let base = arena.base;
            let range = arena.range();
            let image = nopal_agent::image(&self.places.immediates, range.end - range.start);
            arena.put(&image)?;
            self.publish_block(BlockEntry {
                low: base,
                high: base + image.len() as u64,
                header: base + IMAGE_UNWIND_HEADER,
                ..BlockEntry::default()
            })?;
        }
        mapped
    }

    fn map_promised(&mut self, injector: &mut Injector) -> Result<()> {
        let arenas = &mut self.places.arenas;
        if !arenas.iter().any(Arena::needs_more) {
            return Ok(());
        }
        injector.with_others_stopped(|injector| {
            arenas
                .iter_mut()
                .try_for_each(|arena| arena.map_promised(injector))
        })
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
            arena.promise(nopal_agent::image(immediates, 0).len() as u64);
            arena.promise(bytes);
            arenas.push(arena);
        }
    }

    /// Makes the thunks of `chosen`, for which there is room, switched on or off. The trace knows them when this
    /// returns.
    pub fn add_sites(
        &mut self,
        module: &Loaded,
        chosen: &Chosen,
        on: bool,
        context: &mut PatchContext,
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
        let maker = Maker {
            module,
            chosen,
            mirror: self.places.immediates.mirror,
            counted: self.places.counted,
            entry_only: self.entry_only,
            walked: self.walked,
            on,
            settings: &context.settings,
        };
        let arenas = &mut self.places.arenas;
        let like = context.blocks.like(&maker, &arenas[arena]);
        let (block, changes) = match like {
            Some(like) => like.again(&mut arenas[arena])?,
            None => {
                let sites: Vec<&Site> = chosen.sites.iter().map(|(site, _)| *site).collect();
                let (numbers, new) = context.files.number(&module.file, &sites);
                let writer = &context.shared.writer;
                let blocks = &mut context.blocks;
                let mut make = || blocks.make(&maker, &mut arenas[arena], &numbers);
                let (made, notes) = match new.len() {
                    WORTH_A_THREAD.. => both(make, || new.write_notes(writer)),
                    0 => (make(), Ok(())),
                    _ => (make(), new.write_notes(writer)),
                };
                let (made, ()) = (made?, notes?);
                made
            }
        };
        let arena = &self.places.arenas[arena];
        if !block.entries_only.is_empty() {
            let code = arena.piece(block.low, (block.high - block.low) as usize)?;
            self.wrapping
                .push(Wrapping::new(code, block.low, block.entries_only));
        }
        let all = changes.iter().chain(&chosen.markers);
        self.publish_block(BlockEntry {
            low: block.low,
            high: block.high,
            header: block.header,
            text_low: all.clone().map(|one| one.address).min().unwrap_or(0),
            text_high: all.map(|one| one.window().end).max().unwrap_or(0),
        })?;
        self.add_markers(&chosen.markers, &chosen.marker_words);
        let own = changes.iter().zip(&chosen.sites);
        let own = own.filter(|(_, (_, capture))| *capture != context.settings.capture);
        self.captures
            .extend(own.map(|(change, (_, capture))| (change.entry, *capture)));
        Ok(changes)
    }

    /// Whether all `chosen` sites of a module have their thunks, since it was loaded at the same place before.
    fn rests(&self, module: &Loaded, chosen: &Chosen) -> bool {
        let key = (module.file.index, module.base);
        let Some(changes) = self.resting.get(&key) else {
            return false;
        };
        let hooks = chosen.hooks.iter().map(|(site, _)| *site);
        let sites = chosen.sites.iter().map(|(site, _)| *site).chain(hooks);
        let sites = sites.map(|site| module.base.wrapping_add(site.address));
        let mut markers = chosen.markers.iter();
        let changes = changes.iter().filter(|change| !change.is_hole());
        changes.map(|change| change.address).eq(sites)
            && markers.all(|change| self.knows_marker(change))
    }

    fn publish_block(&mut self, entry: BlockEntry) -> Result<()> {
        ensure!(
            self.places.blocks < BLOCKS,
            "too many libraries were loaded"
        );
        let at =
            nopal_agent::blocks_offset() + (self.places.blocks * size_of::<BlockEntry>()) as u64;
        self.memory.write(self.places.head + at, entry.as_bytes())?;
        self.places.blocks += 1;
        let count = self.places.blocks as u32;
        self.write_head_word(std::mem::offset_of!(ProcessHead, block_count), count)
    }

    /// Makes the existing thunks record entries only. The process, and all that share its memory, stand still.
    pub fn record_entries_only(&self) -> Result<()> {
        self.wrapping
            .iter()
            .try_for_each(Wrapping::record_entries_only)
    }
}

/// The parts of a module's block.
pub struct Maker<'a> {
    pub module: &'a Loaded,
    pub chosen: &'a Chosen<'a>,
    pub mirror: i64,
    pub counted: u64,
    pub entry_only: bool,
    pub walked: bool,
    /// The thunks are switched on, or off; but those of probes know it themselves, and those of hooks are on.
    pub on: bool,
    /// The session's.
    pub settings: &'a Settings,
}

/// A block in its place.
#[derive(Clone)]
pub struct Made {
    low: u64,
    high: u64,
    header: u64,
    entries_only: Vec<EntryOnly>,
}

impl Maker<'_> {
    /// Makes it at the next place of `arena`; `numbers` are those of the sites. `keep` sees all of its bytes, in order.
    pub fn block(
        &self,
        arena: &mut Arena,
        numbers: &[u32],
        mut keep: impl FnMut(&[u8]),
    ) -> Result<(Made, Vec<Change>)> {
        let Maker {
            module, chosen, on, ..
        } = *self;
        let (at, base) = (arena.next(), arena.base);
        let mut keep = |offset: usize, bytes: &[u8]| {
            keep(bytes);
            arena.write(at + offset as u64, bytes)
        };
        let mut block =
            BlockBuilder::new(at, base, self.mirror, self.counted, chosen.bound() as usize);
        block.reserve(chosen.sites.len());
        let mut changes = Vec::with_capacity(chosen.sites.len() + chosen.hooks.len());
        let mut unwinding = Vec::new();
        for ((site, capture), number) in chosen.sites.iter().zip(numbers) {
            let plan = &module.file.plan;
            let stays = self.entry_only || plan.entries_only(site, self.walked).is_some();
            let capture = Capture {
                ends: capture.ends && !stays,
                ..*capture
            };
            let thunk = block.thunk(
                *number,
                self.settings.recorder(capture),
                site.body.code().len(),
                rows(&site.body, &mut unwinding),
                |at, out| place(module, site, &chosen.markers, at, out),
            )?;
            changes.push(Change::new(
                module.base,
                site,
                &thunk,
                Kind::Function(*number),
            )?);
            if !on {
                block.switch_off(&thunk);
            }
            block.hand_over(&mut keep)?;
        }
        for (site, stub) in &chosen.hooks {
            let rows = rows(&site.body, &mut unwinding);
            let hook = block.hook(*stub, site.body.code().len(), rows, |at, out| {
                place(module, site, &chosen.markers, at, out)
            })?;
            // Hooks are needed whatever is recorded: the runtime must know of an exec, of libraries and of unwinding.
            changes.push(Change::new(module.base, site, &hook, Kind::Hook)?);
        }
        for probe in &chosen.probes {
            let (site, fetched) = (&*probe.site, probe.fetched(module.base));
            let rows = rows(&site.body, &mut unwinding);
            let body = site.body.code().len();
            let write = |at, out: &mut [u8]| place(module, site, &chosen.markers, at, out);
            let thunk = match probe.call {
                None => block.detour(&fetched, body, rows, write)?,
                Some(number) => {
                    let capture = Capture {
                        ends: true,
                        ..self.settings.capture
                    };
                    let recorder = self.settings.recorder(capture);
                    block.thunk_with_probe(&fetched, number, recorder, body, rows, write)?
                }
            };
            let kind = match probe.breaks {
                true => Kind::Breakpoint,
                false => Kind::Probe,
            };
            changes.push(Change::new(module.base, site, &thunk, kind)?);
            if !probe.is_on() {
                block.switch_off(&thunk);
            }
        }
        let holes = changes.iter().filter(|change| change.hole().is_some());
        let holes = holes.map(|change| fill(module, change));
        // Behind the others, which are in the order of what was chosen.
        let holes = holes.collect::<Result<Vec<Change>>>()?;
        changes.extend(holes);
        let all = [&changes, &chosen.markers, &chosen.marker_words];
        let undo: Vec<Stored> = all.into_iter().flatten().map(Stored::new).collect();
        let block = block.finish_into(undo.as_bytes(), &mut keep)?;
        arena.keep(block.handed_over);
        let made = Made {
            low: block.low,
            high: block.high,
            header: block.header,
            entries_only: block.entries_only,
        };
        Ok((made, changes))
    }
}

/// The jump in a function's hole.
pub fn fill(module: &Loaded, function: &Change) -> Result<Change> {
    let hole = function.hole().unwrap_or_default();
    let padding = module
        .file
        .image
        .bytes(hole.wrapping_sub(module.base), JUMP)
        .and_then(|bytes| bytes.try_into().ok());
    Change::of_hole(function, padding.context("a hole outside of its file")?)
}

/// The displaced instructions as they must be at `at`.
fn place(module: &Loaded, site: &Site, markers: &[Change], at: u64, out: &mut [u8]) -> Result<()> {
    site.body.place(module.base, at, out)?;
    markers::switch_on_displaced(markers, site, module.base, at, out)
}

fn rows<'a>(body: &Body, into: &'a mut Vec<(u16, FrameChange)>) -> &'a [(u16, FrameChange)] {
    into.clear();
    into.extend(body.rows());
    into
}
