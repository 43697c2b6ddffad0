//! One traced process: nopal's memory in it, the thunks, and the changes to its text.

use crate::choose::{Loaded, Wanted, imported};
use crate::code::Code;
use crate::files::Files;
use crate::hooks;
use crate::inject::Injector;
use crate::notes::{counter, note};
use crate::region::Region;
use crate::remove::{Journal, mirrored_parts};
use crate::space::{Space, mark_of, reaches};
use anyhow::{Context, Result, bail, ensure};
use nopal_agent::{
    ARENA_BYTES, BLOCKS, BlockBuilder, BlockEntry, CONTEXT_BYTES, CONTEXTS, IMAGE_UNWIND_HEADER,
    Immediates, ProcessHead, Recorder, Row, STACK_PART_BYTES, STACK_PARTS, Stub, UNWINDERS,
    UnwinderEntry,
};
use nopal_plan::{Body, FrameChange, Site};
use nopal_process::{Mapping, Memory, Module, Outcome, Patch, Thread};
use nopal_trace::{Note, Writer};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;

/// What recording is asked for, the same for all processes of a session.
pub struct Settings {
    pub wanted: Wanted,
    pub recorder: Recorder,
    pub buffer: u64,
    pub when_full: u32,
    pub depth: u32,
}

/// A change to the program's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub address: u64,
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    /// The thunk's switch and body; where the displaced instructions went.
    pub body: u64,
    pub map: Vec<(u8, u16)>,
}

/// Where nopal's memory is in a process. The same in its forks.
#[derive(Debug, Clone)]
pub struct Places {
    head: u64,
    /// The process structure, the contexts and the region.
    memory: Vec<Range<u64>>,
    immediates: Immediates,
    arenas: Vec<Arena>,
    blocks: usize,
    unwinders: usize,
}

#[derive(Debug, Clone)]
struct Arena {
    base: u64,
    used: u64,
}

pub struct Traced {
    pub process: i32,
    pub memory: Memory,
    pub region: Arc<Region>,
    pub places: Places,
    pub modules: Vec<Loaded>,
    pub changes: Vec<Change>,
    /// The blocks with thunks that wrap calls, unless `entry_only`.
    code: Vec<Rc<Code>>,
    pub entry_only: bool,
}

/// What the parts of a session share with a process while it is changed.
pub struct Workshop<'a> {
    pub settings: &'a Settings,
    pub files: &'a mut Files,
    pub writer: &'a Mutex<Writer>,
    pub warnings: &'a mut Vec<String>,
}

impl Traced {
    /// Makes a stopped process traced. `thread` is its only thread, and stands before any of the program's code.
    pub fn begin(thread: &mut Thread, workshop: &mut Workshop) -> Result<Traced> {
        let process = thread.pid();
        let memory = Memory::open(process)?;
        let maps = nopal_process::maps(process)?;
        let mut space = Space::new(&maps);
        let modules = loaded_modules(process, workshop)?;
        ensure!(
            modules.iter().any(|module| module.executable),
            "the program's file cannot be read"
        );
        let extents: Vec<_> = modules.iter().map(extent).collect();
        let mark = space
            .mark(&extents)
            .context("no room for generated code near the program")?;
        let mirror = space
            .mirror(&stacks(&maps))
            .context("no room for a mirror of the stacks")?;
        let pointer = thread.fs_base()?;
        let (context_slot, thread_slot) = thread_words(&memory, pointer, process)?;

        let mut injector = Injector::new(thread)?;
        let contexts_bytes = (CONTEXTS * CONTEXT_BYTES) as u64;
        let parts_bytes = (STACK_PARTS * 8) as u64;
        let head = injector.private_memory(&mut space, head_bytes() + parts_bytes, false)?;
        let contexts =
            injector.private_memory(&mut space, contexts_bytes.next_multiple_of(PAGE), true)?;
        memory.write(head + nopal_agent::process_bytes(), MEMORY_NAME)?;
        injector.name = head + nopal_agent::process_bytes();

        let buffer = affordable(process, workshop.settings.buffer);
        let (number, file) = injector.memory_file()?;
        let region = Region::create(file, buffer, workshop.settings.when_full, process)?;
        let region_at = injector.map_shared(&mut space, number, region.bytes(), None, false)?;
        injector.close(number)?;

        let depth_limit = workshop.settings.depth;
        let immediates = Immediates {
            process: head,
            mirror,
            context_slot,
            thread_slot,
            mark,
            depth_limit,
        };
        let fields = ProcessHead {
            region: region_at,
            contexts,
            stack_parts: head + head_bytes(),
            mirror,
            context_slot,
            thread_slot,
            quiet: u32::from(under_new_filter(process)),
            process: process as u32,
            depth_limit,
            tracer: tracer_to_allow(),
            ..ProcessHead::default()
        };
        memory.write(head, as_bytes(&fields))?;
        let places = Places {
            head,
            memory: vec![
                head..head + head_bytes() + parts_bytes,
                contexts..contexts + contexts_bytes.next_multiple_of(PAGE),
                region_at..region_at + region.bytes(),
            ],
            immediates,
            arenas: Vec::new(),
            blocks: 0,
            unwinders: 0,
        };
        let mut traced = Traced {
            process,
            memory,
            region: Arc::new(region),
            places,
            modules: Vec::new(),
            changes: Vec::new(),
            code: Vec::new(),
            entry_only: !workshop.settings.recorder.wraps,
        };
        traced.add_modules(modules, &mut injector, &mut space, workshop)?;
        Ok(traced)
    }

    /// The same for a forked child of this process: all memory is where it was, and its own.
    pub fn fork(&self, process: i32) -> Result<Traced> {
        Ok(Traced {
            process,
            memory: Memory::open(process)?,
            region: self.region.clone(),
            places: self.places.clone(),
            modules: self.modules.clone(),
            changes: self.changes.clone(),
            code: self.code.clone(),
            entry_only: self.entry_only,
        })
    }

    /// The loader has changed the list of libraries; `thread` waits in the runtime.
    pub fn libraries_changed(
        &mut self,
        thread: &mut Thread,
        workshop: &mut Workshop,
    ) -> Result<()> {
        let now = loaded_modules(self.process, workshop)?;
        let same = |a: &Loaded, b: &Loaded| a.base == b.base && a.file.index == b.file.index;
        let gone: Vec<Loaded> = self
            .modules
            .iter()
            .filter(|old| !now.iter().any(|new| same(old, new)))
            .cloned()
            .collect();
        for module in &gone {
            let range = extent(module);
            self.changes
                .retain(|change| !range.contains(&change.address));
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
        let mut space = Space::new(&nopal_process::maps(self.process)?);
        let mut injector = Injector::new(thread)?;
        injector.name = self.places.head + nopal_agent::process_bytes();
        self.add_modules(new, &mut injector, &mut space, workshop)
    }

    fn add_modules(
        &mut self,
        new: Vec<Loaded>,
        injector: &mut Injector,
        space: &mut Space,
        workshop: &mut Workshop,
    ) -> Result<()> {
        let executable = self
            .modules
            .iter()
            .chain(&new)
            .find(|module| module.executable)
            .cloned();
        if !self.entry_only && new.iter().any(|module| copies_stacks(&module.name)) {
            self.entry_only = true;
            workshop.warnings.push(COPIES_STACKS.into());
        }
        let first = self.modules.len();
        self.modules.extend(new);
        let imports = executable
            .map(|executable| imported(&executable, &self.modules, &self.memory))
            .unwrap_or_default();
        for index in first..self.modules.len() {
            let module = self.modules[index].clone();
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
            let wanted = &workshop.settings.wanted;
            let sites = wanted.sites(&module, &imports);
            let refused = wanted.refused(&module, &imports);
            workshop
                .files
                .refuse(&module.file, &refused, workshop.writer)?;
            if let Err(error) = self.add_module(&module, &sites, injector, space, workshop) {
                workshop
                    .warnings
                    .push(format!("{}: not traced: {error:#}", module.name));
            }
        }
        Ok(())
    }

    fn add_module(
        &mut self,
        module: &Loaded,
        sites: &[&Site],
        injector: &mut Injector,
        space: &mut Space,
        workshop: &mut Workshop,
    ) -> Result<()> {
        let hooks = hooks::of(&module.file);
        if sites.is_empty() && hooks.is_empty() {
            return Ok(());
        }
        ensure!(
            self.places.blocks + 2 <= BLOCKS,
            "too many libraries were loaded"
        );
        let arena = self.arena_for(&extent(module), injector, space)?;
        let (numbers, new) = workshop.files.number(&module.file, sites);
        let writer = workshop.writer;
        let (block, changes) = std::thread::scope(|scope| {
            let told = new.map(|new| scope.spawn(move || note(writer, &new)));
            let made = self.make_block(arena, module, sites, &numbers, hooks, workshop.settings);
            if let Some(told) = told {
                told.join().unwrap_or_else(|_| bail!("writing failed"))?;
            }
            made
        })?;
        self.map_block(block, arena, injector, space)?;
        self.insert(changes, module, workshop)
    }

    fn make_block(
        &self,
        arena: usize,
        module: &Loaded,
        sites: &[&Site],
        numbers: &[u32],
        hooks: Vec<(&Site, Stub)>,
        settings: &Settings,
    ) -> Result<(nopal_agent::Block, Vec<Change>)> {
        let Arena { base, used } = self.places.arenas[arena];
        let mut block = BlockBuilder::new(base + used, base, self.places.immediates.mirror);
        let mut changes = Vec::with_capacity(sites.len() + hooks.len());
        for (site, number) in sites.iter().zip(numbers) {
            let recorder = Recorder {
                wraps: !self.entry_only && !site.reads_return_address,
                ..settings.recorder
            };
            let thunk = block.thunk(
                *number,
                recorder,
                site.body.code.len(),
                &rows(&site.body),
                |at, out| Ok(site.body.place(module.base, at, out)?),
            )?;
            changes.push(change(module, site, thunk.entry, thunk.body)?);
        }
        for (site, stub) in hooks {
            let hook = block.hook(stub, site.body.code.len(), &rows(&site.body), |at, out| {
                Ok(site.body.place(module.base, at, out)?)
            })?;
            changes.push(change(module, site, hook.entry, hook.body)?);
        }
        Ok((block.finish()?, changes))
    }

    /// Puts the jumps into the text. A site whose bytes are not what the file says is left alone.
    fn insert(
        &mut self,
        changes: Vec<Change>,
        module: &Loaded,
        workshop: &mut Workshop,
    ) -> Result<()> {
        let patches: Vec<Patch> = changes
            .iter()
            .map(|change| Patch {
                address: change.address,
                expected: &change.before,
                new: &change.after,
            })
            .collect();
        let outcomes = self.memory.write_patches(&patches)?;
        let count = changes.len();
        let written = changes
            .into_iter()
            .zip(outcomes)
            .filter(|(_, outcome)| *outcome == Outcome::Written);
        let before = self.changes.len();
        self.changes.extend(written.map(|(change, _)| change));
        let different = count - (self.changes.len() - before);
        if different > 0 {
            workshop.warnings.push(format!(
                "{}: {different} functions not traced: their code in memory is not the file's",
                module.name
            ));
        }
        Ok(())
    }

    /// An arena that reaches the module, with the agent's image at its start.
    fn arena_for(
        &mut self,
        module: &Range<u64>,
        injector: &mut Injector,
        space: &mut Space,
    ) -> Result<usize> {
        const ROOM: u64 = ARENA_BYTES / 8;
        let fits = |arena: &Arena| reaches(arena.base, module) && arena.used + ROOM <= ARENA_BYTES;
        if let Some(index) = self.places.arenas.iter().position(fits) {
            return Ok(index);
        }
        let immediates = self.places.immediates;
        let base = space
            .arena(module, immediates.mark)
            .context("no room for generated code in reach")?;
        debug_assert_eq!(mark_of(base), immediates.mark);
        let image = nopal_agent::image(&immediates);
        let bytes = (image.len() as u64).next_multiple_of(PAGE);
        injector.map_code(base, &image)?;
        space.take(base..base + ARENA_BYTES);
        self.places.arenas.push(Arena { base, used: bytes });
        self.publish_block(BlockEntry {
            low: base,
            high: base + image.len() as u64,
            header: base + IMAGE_UNWIND_HEADER,
        })?;
        Ok(self.places.arenas.len() - 1)
    }

    fn map_block(
        &mut self,
        block: nopal_agent::Block,
        arena: usize,
        injector: &mut Injector,
        _space: &mut Space,
    ) -> Result<()> {
        let arena = &mut self.places.arenas[arena];
        let bytes = (block.bytes.len() as u64).next_multiple_of(PAGE);
        ensure!(
            arena.used + bytes <= ARENA_BYTES,
            "the generated code does not fit into its arena"
        );
        let file = injector.map_code(block.low, &block.bytes)?;
        arena.used += bytes;
        if !block.entries_only.is_empty() {
            let code = Code::map(&file, block.bytes.len(), block.entries_only)?;
            self.code.push(Rc::new(code));
        }
        self.publish_block(BlockEntry {
            low: block.low,
            high: block.high,
            header: block.header,
        })
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
        let symbol = |name| Some(module.base.wrapping_add(module.file.image.symbol(name)?));
        let unwinder = || {
            let range = extent(module);
            Some(UnwinderEntry {
                low: range.start,
                high: range.end,
                set_register: symbol("_Unwind_SetGR")?,
                set_address: symbol("_Unwind_SetIP")?,
                resume: symbol("_Unwind_Resume")?,
                get_address: symbol("_Unwind_GetIP")?,
            })
        };
        let Some(entry) = unwinder() else {
            return Ok(());
        };
        // One that was unloaded keeps its place: nothing calls from there any more.
        if self.places.unwinders == UNWINDERS {
            bail!("too many unwinders are loaded");
        }
        let at = nopal_agent::unwinders_offset()
            + (self.places.unwinders * size_of::<UnwinderEntry>()) as u64;
        self.memory.write(self.places.head + at, as_bytes(&entry))?;
        self.places.unwinders += 1;
        self.write_head_word(
            std::mem::offset_of!(ProcessHead, unwinder_count),
            self.places.unwinders as u32,
        )
    }

    /// Makes the thunks that there are wrap no call. The process, and all that share its memory, stand still.
    pub fn record_entries_only(&self) {
        for code in &self.code {
            code.record_entries_only();
        }
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
        let arenas = self.places.arenas.iter();
        arenas.map(|arena| arena.base..arena.base + arena.used)
    }

    /// What must be known to undo all this.
    pub fn journal(&self) -> Journal {
        Journal {
            process: self.process,
            stack_parts: self.places.head + head_bytes(),
            mirror: self.places.immediates.mirror,
            arenas: self.arenas().collect(),
            changes: self.changes.clone(),
        }
    }
}

/// The process structure, and the name of our memory behind it.
const fn head_bytes() -> u64 {
    (nopal_agent::process_bytes() + NAME_BYTES).next_multiple_of(PAGE)
}

const MEMORY_NAME: &[u8] = b"nopal\0";
const NAME_BYTES: u64 = 8;

fn change(module: &Loaded, site: &Site, thunk: u64, body: u64) -> Result<Change> {
    let address = module.base.wrapping_add(site.address);
    let distance = i32::try_from(thunk.wrapping_sub(address + nopal_plan::JUMP as u64) as i64)
        .context("a thunk is out of reach")?;
    let mut after = site.expected().to_vec();
    after[0] = 0xe9;
    after[1..nopal_plan::JUMP].copy_from_slice(&distance.to_le_bytes());
    Ok(Change {
        address,
        before: site.expected().to_vec(),
        after,
        body,
        map: site.body.map.clone(),
    })
}

fn rows(body: &Body) -> Vec<(u16, Row)> {
    body.rows
        .iter()
        .map(|(offset, change)| {
            let row = match *change {
                FrameChange::Cfa { register, offset } => Row::Cfa { register, offset },
                FrameChange::Saved { register, offset } => Row::Saved { register, offset },
                FrameChange::Restored { register } => Row::Restored { register },
            };
            (*offset, row)
        })
        .collect()
}

fn extent(module: &Loaded) -> Range<u64> {
    let extent = module.file.extent();
    module.base.wrapping_add(extent.start)..module.base.wrapping_add(extent.end)
}

pub const COPIES_STACKS: &str =
    "this program copies stacks away and back: its entries only are recorded";

/// Whether a process has loaded a library that does.
pub fn process_copies_stacks(process: i32) -> Result<bool> {
    let modules = nopal_process::modules(process)?;
    let mut names = modules.iter().map(|module| module.path.to_string_lossy());
    Ok(names.any(|name| copies_stacks(&name)))
}

/// Libraries that move live frames: wrapped return addresses would come back to other calls' mirrors.
fn copies_stacks(name: &str) -> bool {
    name.rsplit('/')
        .next()
        .is_some_and(|file| file.contains("greenlet"))
}

fn loaded_modules(process: i32, workshop: &mut Workshop) -> Result<Vec<Loaded>> {
    let executable = nopal_process::executable(process)?;
    let modules: Vec<_> = nopal_process::modules(process)?
        .into_iter()
        .filter(Module::executable)
        .collect();
    let paths: Vec<(PathBuf, PathBuf)> = modules
        .iter()
        .map(|module| (openable(process, module), module.path.clone()))
        .collect();
    let mut loaded = Vec::new();
    for (file, module) in workshop
        .files
        .open(&paths, workshop.writer)
        .into_iter()
        .zip(&modules)
    {
        let Ok(file) = file else { continue };
        let base = module.base.wrapping_sub(file.extent().start);
        loaded.push(Loaded {
            executable: module.path == executable,
            name: module.path.display().to_string(),
            base,
            file,
        });
    }
    loaded.sort_by_key(|module| !module.executable);
    Ok(loaded)
}

/// A path by which the tool opens the very file that is mapped, also in another mount namespace.
pub fn openable(process: i32, module: &Module) -> PathBuf {
    let is_it = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|metadata| metadata.ino() == module.inode)
    };
    let below_root = module.path.strip_prefix("/").unwrap_or(&module.path);
    [
        module.path.clone(),
        PathBuf::from(format!("/proc/{process}/root")).join(below_root),
    ]
    .into_iter()
    .find(is_it)
    .unwrap_or_else(|| module.path.clone())
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

/// The word of glibc's thread control block that nopal uses, and where the thread id is.
///
/// tcbhead_t of glibc on x86-64 keeps 512 bytes at 0x80 that it has not used since 2.22 and keeps for sanitizers that
/// rely on the size; the last word of them, 0 in every thread, is ours.
fn thread_words(memory: &Memory, pointer: u64, thread: i32) -> Result<(i32, i32)> {
    const CONTEXT_SLOT: u64 = 0x278;
    const IDS: Range<u64> = 0x280..0x400;
    let mut block = [0; IDS.end as usize];
    memory
        .read(pointer, &mut block)
        .context("no thread control block")?;
    let word = |at: u64| u32::from_le_bytes(std::array::from_fn(|i| block[at as usize + i]));
    ensure!(
        word(CONTEXT_SLOT) == 0 && word(CONTEXT_SLOT + 4) == 0,
        "the thread control block is not glibc's, or another tracer uses it"
    );
    let id = IDS.step_by(4).find(|at| word(*at) == thread as u32);
    Ok((
        CONTEXT_SLOT as i32,
        id.context("the thread control block is not glibc's")? as i32,
    ))
}

/// Whether the process is under a seccomp filter that the tool is not under itself.
fn under_new_filter(process: i32) -> bool {
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

/// Less than asked where the process may not use much address space.
fn affordable(process: i32, buffer: u64) -> u64 {
    // SAFETY: the kernel fills the structure in; a failure leaves the limits at 0, which is tested.
    let limit = unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        libc::prlimit(process, libc::RLIMIT_AS, std::ptr::null(), &mut limit);
        limit.rlim_cur
    };
    if limit == libc::RLIM_INFINITY || limit == 0 {
        buffer
    } else {
        buffer.min(limit / 16)
    }
}

pub fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: used for #[repr(C)] structures without padding, for the length of the borrow.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
