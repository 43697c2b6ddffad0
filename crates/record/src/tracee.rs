//! One traced process: nopal's memory in it, the thunks, and the changes to its text.

use crate::collecting::drain::Shared;
use crate::collecting::notes::{counter, note};
use crate::filters::{Filters, Permitting, may_be_forbidden};
use crate::memory::arena::{Arena, Wrapping};
use crate::memory::control_block::{own_number, thread_slot};
use crate::memory::own_memory::{OwnMemory, head_bytes, parts_bytes};
use crate::memory::region::Region;
use crate::memory::space::Space;
use crate::patch::change::Change;
use crate::patch::inserted::Inserted;
use crate::patch::journal::mirrored_parts;
use crate::patch::restore::joined;
use crate::sites::blocks::Blocks;
use crate::sites::choose::{Loaded, boundary};
use crate::sites::chosen::Chosen;
use crate::sites::files::Files;
use crate::sites::hooks;
use crate::sites::mark::Marked;
use crate::sites::markers;
use crate::sites::modules::{self, Known, extent};
use crate::sites::program;
use crate::sites::signs::{self, entries_only};
use crate::sites::writable_text::writable_text;
use anyhow::{Context, Result};
use nopal_abi::Capture;
use nopal_agent::{
    Immediates, NO_THREAD, ProcessHead, Recorder, STACK_PART_BYTES, Stub, UNWINDERS, UnwinderEntry,
};
use nopal_analysis::text;
use nopal_control::Control;
use nopal_plan::Site;
use nopal_process::{Gadget, Mapping, Memory, Module, Thread};
use nopal_trace::Note;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The choice of what to record, equal in all processes of a session.
pub struct Settings {
    pub markers: markers::Wanted,
    /// The data of calls that are recorded for their own sake.
    pub capture: Capture,
    /// Bytes of chunks, and bytes that there may be.
    pub buffer: u64,
    pub room: u64,
    pub when_full: u32,
    pub depth: u32,
    /// Events of several threads are in order.
    pub ordered: bool,
}

impl Settings {
    /// The data of a thunk that records this.
    pub fn recorder(&self, capture: Capture) -> Recorder {
        Recorder {
            capture: Capture {
                call_sites: capture.call_sites || self.capture.call_sites,
                ..capture
            },
            limits_depth: self.depth > 0,
        }
    }
}

/// The layout of nopal's memory in a process. It is the same in its forks.
#[derive(Debug, Clone)]
pub struct MemoryLayout {
    pub head: u64,
    /// The tables by which calls are counted.
    pub counted: u64,
    /// The process structure, the contexts, these tables and the region.
    memory: Vec<Range<u64>>,
    pub immediates: Immediates,
    pub(crate) arenas: Vec<Arena>,
    pub(crate) blocks: usize,
    unwinders: Vec<UnwinderEntry>,
    /// Valid unless another has changed it.
    pub(crate) gadget: Gadget,
}

impl MemoryLayout {
    /// The address of the agent's image; none before there is room for code.
    pub fn first_arena(&self) -> Option<u64> {
        self.arenas.first().map(|arena| arena.base)
    }
}

pub struct Tracee {
    pub process: i32,
    /// Its only thread, while that is held where the program begins.
    pub held: Option<Thread>,
    pub memory: Memory,
    pub region: Arc<Region>,
    pub places: MemoryLayout,
    /// Its mappings, where they are known for the next change: those that a process had when it began to be traced and
    /// stood still, or when a thread asked that waits. Nothing is mapped over what has come since.
    pub(crate) space: Option<Space>,
    pub modules: Vec<Loaded>,
    pub(crate) known: Known,
    /// The jumps in the text, by address.
    pub changes: Inserted,
    /// The changes to libraries that were unloaded, by file and base: loaded there again, they find their thunks.
    pub(crate) resting: HashMap<(u32, u64), Vec<Change>>,
    /// Sites with thunks whose jumps were taken out again, by address.
    pub taken_out: Vec<Change>,
    /// Text that the program may write to, or could for a time: no jump is put there. In order, none touch.
    pub(crate) writable_text: Vec<Range<u64>>,
    /// The changes that were taken out of it for good.
    pub(crate) left_text: Vec<Change>,
    /// The marker sites that generated code records, by address, and the words that their code tests.
    pub markers: BTreeMap<u64, Marked>,
    pub marker_words: HashSet<u64>,
    /// The numbers of listeners that we have added ourselves to.
    pub semaphores: HashSet<u64>,
    /// The data of thunks that differ from the session's recorder, by address.
    pub captures: HashMap<u64, Capture>,
    /// Sites of the inserted probes, by address.
    pub probe_sites: HashMap<u64, Arc<Site>>,
    /// The blocks with thunks that wrap calls, unless `entry_only`.
    pub(crate) wrapping: Vec<Wrapping>,
    pub entry_only: bool,
    /// Something in the process follows frame pointers.
    pub walked: bool,
    /// The filters of its threads that permit what the agent does, by their number.
    pub(crate) permitted: Option<Filters>,
}

/// The state that the parts of a session share while the text of a tracee is changed.
pub struct PatchContext {
    pub settings: Settings,
    pub files: Files,
    pub blocks: Blocks,
    pub shared: Arc<Shared>,
    /// For the user, at the end.
    pub warnings: Vec<String>,
}

impl PatchContext {
    /// Has the region of a process collected, and tells where its buffer is smaller than wanted.
    pub fn add_region(&mut self, region: &Arc<Region>) {
        let (given, wanted) = (region.buffer(), self.settings.buffer);
        if given < wanted {
            self.warn_once(format!(
                "a buffer has {} instead of {}: a memory limit of its process allows no more",
                text::bytes(given),
                text::bytes(wanted)
            ));
        }
        self.shared.add_region(region.clone());
    }

    /// Warns of something that may be found in each of many processes.
    pub fn warn_once(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

impl Tracee {
    /// Makes a process traced that has nopal's memory. `thread`, one of its threads, is stopped; `maps` are the
    /// mappings that it had before, and `modules` are to be traced.
    pub fn begin(
        thread: &Thread,
        own: OwnMemory,
        maps: &[Mapping],
        modules: &[Loaded],
        settings: &Settings,
    ) -> Result<Tracee> {
        let process = thread.pid();
        let permitted = Permitting::default().of(thread);
        let mut space = Space::new(maps);
        for range in own.ranges() {
            space.take(range);
        }
        let extents: Vec<_> = modules.iter().map(extent).collect();
        let mark = space
            .mark(&extents)
            .context("no room for generated code near the program")?;
        let mirror = if modules.iter().any(|module| entries_only(module).is_some()) {
            NO_MIRROR
        } else {
            space
                .mirror(&stacks(maps))
                .context("no room for a mirror of the stacks")?
        };
        let pointer = thread.thread_pointer()?;
        let number = own_number(process, thread.tid())?;
        let thread_slot = thread_slot(&own.memory, pointer, number)?;
        let threads = own.head + head_bytes() + parts_bytes();
        let depth_limit = settings.depth;
        let immediates = Immediates {
            process: own.head,
            mirror,
            threads,
            thread_slot,
            mark,
            depth_limit,
            ordered: settings.ordered,
            reads_pointer: nopal_agent::reads_pointer(),
        };
        let layout = own.region.layout();
        let fields = ProcessHead {
            region: own.region_at,
            state_offset: layout.state_offset,
            chunk_offset: layout.chunk_offset,
            counter_offset: layout.counter_offset,
            chunk_limit: layout.chunks,
            contexts: own.contexts,
            counted: own.counted,
            stack_parts: own.head + head_bytes(),
            threads,
            mirror,
            mappings_left: mappings_for_mirrors(maps.len()),
            thread_slot,
            quiet: u32::from(may_be_forbidden(process, permitted)),
            process: own_number(process, process)? as u32,
            depth_limit,
            tracer: tracer_to_allow(),
            ..ProcessHead::default()
        };
        own.memory.write(own.head, fields.as_bytes())?;
        own.memory.write(threads, &NO_THREAD.to_le_bytes())?;
        own.region.set_head(own.head);
        let places = MemoryLayout {
            head: own.head,
            counted: own.counted,
            memory: own.ranges().into(),
            immediates,
            arenas: Vec::new(),
            blocks: 0,
            unwinders: Vec::new(),
            gadget: own.gadget,
        };
        Ok(Tracee {
            process,
            held: None,
            memory: own.memory,
            region: Arc::new(own.region),
            places,
            space: Some(space),
            modules: Vec::new(),
            known: Known::default(),
            changes: Inserted::default(),
            taken_out: Vec::new(),
            writable_text: joined(writable_text(maps, modules)),
            left_text: Vec::new(),
            probe_sites: HashMap::new(),
            resting: HashMap::new(),
            markers: BTreeMap::new(),
            marker_words: HashSet::new(),
            semaphores: HashSet::new(),
            captures: HashMap::new(),
            wrapping: Vec::new(),
            entry_only: !settings.capture.ends,
            walked: false,
            permitted,
        })
    }

    /// The same for a forked child of this process: all memory is where it was, and its own.
    pub fn fork(&self, process: i32) -> Result<Tracee> {
        let mut places = self.places.clone();
        places.arenas = places.arenas.iter().map(Arena::fork).collect();
        let mut child = Tracee {
            process,
            held: None,
            memory: Memory::open(process)?,
            region: self.region.clone(),
            places,
            space: None,
            modules: self.modules.clone(),
            known: self.known.clone(),
            changes: self.changes.clone(),
            taken_out: self.taken_out.clone(),
            writable_text: self.writable_text.clone(),
            left_text: self.left_text.clone(),
            probe_sites: self.probe_sites.clone(),
            resting: self.resting.clone(),
            markers: self.markers.clone(),
            marker_words: self.marker_words.clone(),
            semaphores: self.semaphores.clone(),
            captures: self.captures.clone(),
            wrapping: self.wrapping.clone(),
            entry_only: self.entry_only,
            walked: self.walked,
            permitted: self.permitted,
        };
        child.take_up_left_text();
        Ok(child)
    }

    /// The loader has changed the list of libraries, and `modules` are mapped now. Forgets what is gone, and returns
    /// what is new.
    pub fn look_at_libraries(
        &mut self,
        modules: &[Module],
        context: &mut PatchContext,
    ) -> Result<Vec<Loaded>> {
        let now = modules::loaded(self.process, modules, &mut self.known, context)?;
        let key = |module: &Loaded| (module.base, module.file.index);
        let there: HashSet<_> = now.iter().map(key).collect();
        let before: HashSet<_> = self.modules.iter().map(key).collect();
        let is_gone = |old: &&Loaded| !there.contains(&key(old));
        let gone: Vec<Loaded> = self.modules.iter().filter(is_gone).cloned().collect();
        for module in &gone {
            let range = extent(module);
            self.taken_out
                .retain(|change| !range.contains(&change.address));
            self.forget_writable_text(&range);
            self.forget_text_of_markers(&range);
            self.semaphores.retain(|address| !range.contains(address));
            let gone = self.changes.take(|change| range.contains(&change.address));
            self.resting
                .insert((module.file.index, module.base), gone.collect());
            note(
                &context.shared.writer,
                &Note::Unload {
                    process: self.process as u32,
                    image: module.file.index,
                    counter: counter(),
                    base: module.base,
                },
            )?;
        }
        self.modules.retain(|old| there.contains(&key(old)));
        let is_new = |new: &Loaded| !before.contains(&key(new));
        let new: Vec<Loaded> = now.into_iter().filter(is_new).collect();
        let maps = modules.iter().flat_map(|module| &module.mappings);
        self.add_writable_text(writable_text(maps, &new));
        Ok(new)
    }

    /// Traces what is new; `thread` stands still in the runtime. Whether all sites are switched as is wanted.
    pub fn add_libraries(
        &mut self,
        new: &[Loaded],
        control: &Control,
        thread: &mut Thread,
        context: &mut PatchContext,
    ) -> Result<bool> {
        let (is_switched, changes) = self.make_thunks(new, control, thread, context)?;
        self.insert_at_rest(changes, &[], context)?;
        context.report_unplaced();
        self.settle_semaphores(context)?;
        Ok(is_switched)
    }

    /// Makes the thunks of `new` modules while `thread` stands still. Returns whether all sites come up switched as is
    /// wanted, and the changes to the text that lead to the thunks.
    pub fn make_thunks(
        &mut self,
        new: &[Loaded],
        control: &Control,
        thread: &mut Thread,
        context: &mut PatchContext,
    ) -> Result<(bool, Vec<Change>)> {
        let known = self.modules.iter().chain(new).cloned().collect::<Vec<_>>();
        context.want_statics(new);
        if let Err(error) = context.files.place_probes(&known, &context.shared.writer) {
            context.warnings.push(format!("{error:#}"));
        }
        let chosen = self.make_room(new, control, thread, context)?;
        let is_switched = self.will_be_switched(new, &chosen);
        Ok((is_switched, self.add_modules(new, chosen, context)?))
    }

    /// Whether all sites of new modules come up switched as is wanted.
    pub fn will_be_switched(&self, new: &[Loaded], chosen: &[Chosen]) -> bool {
        let rests = |module: &Loaded| {
            let place = (module.file.index, module.base);
            self.resting.contains_key(&place)
        };
        !chosen.iter().any(|chosen| chosen.are_off) && !new.iter().any(rests)
    }

    /// Where the library functions are that are called from outside of their library, with the modules that are there and
    /// `new` ones.
    pub fn boundary(&self, new: &[Loaded]) -> HashSet<u64> {
        let all: Vec<Loaded> = self.modules.iter().chain(new).cloned().collect();
        boundary(&all, &self.memory)
    }

    /// Makes the thunks of what is `chosen` in `new` modules, for which there is room. Returns the changes to the text
    /// that lead to them.
    pub fn add_modules(
        &mut self,
        new: &[Loaded],
        chosen: Vec<Chosen>,
        context: &mut PatchContext,
    ) -> Result<Vec<Change>> {
        self.wrap_for(new, context);
        if new.iter().any(signs::follows_jumps) {
            self.write_head_word(std::mem::offset_of!(ProcessHead, code_stays), 1)?;
        }
        let mut changes = Vec::new();
        for (module, mut chosen) in new.iter().zip(chosen) {
            note(
                &context.shared.writer,
                &Note::Module {
                    process: self.process as u32,
                    image: module.file.index,
                    counter: counter(),
                    base: module.base,
                    path: module.name.clone(),
                },
            )?;
            self.add_unwinder(module)?;
            self.add_loader(module)?;
            context
                .files
                .refuse(&module.file, &chosen.refused, &context.shared.writer)?;
            context
                .warnings
                .extend(chosen.leave_to_probes(&module.file));
            let numbered = self.number_markers(module, context);
            let added = numbered.and_then(|words| {
                chosen.marker_words = words;
                self.add_sites(module, &chosen, !chosen.are_off, context)
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
                Err(error) => context
                    .warnings
                    .push(format!("{}: not traced: {error:#}", module.name)),
            }
            self.modules.push(module.clone());
        }
        self.places.arenas.iter_mut().for_each(Arena::close_file);
        Ok(changes)
    }

    /// The module that an address of the process lies in.
    pub fn module_at(&self, address: u64) -> Option<&Loaded> {
        let mut modules = self.modules.iter();
        modules.find(|module| extent(module).contains(&address))
    }

    /// Drops the changes of modules that are not there any more.
    pub fn keep_loaded(&self, changes: &mut Vec<Change>) {
        let extents: Vec<Range<u64>> = self.modules.iter().map(extent).collect();
        changes.retain(|change| {
            let mut extents = extents.iter();
            extents.any(|extent| extent.contains(&change.address))
        });
    }

    /// The plan of the site of a change.
    pub fn site_of(&self, change: &Change) -> Option<&Site> {
        if change.is_probe() {
            return self.probe_sites.get(&change.address).map(|site| &**site);
        }
        let module = self.module_at(change.address)?;
        let address = change.address.wrapping_sub(module.base);
        module.file.plan.hook(address).ok()
    }

    pub(crate) fn write_head_word(&self, offset: usize, value: u32) -> Result<()> {
        self.memory
            .write(self.places.head + offset as u64, &value.to_le_bytes())
    }

    /// No thread may make a system call for us any more.
    pub(crate) fn fall_quiet(&self) -> Result<()> {
        self.write_head_word(std::mem::offset_of!(ProcessHead, quiet), 1)
    }

    /// Tells the runtime where a loader says that it is changing its list, unless it says so now: the word may not be
    /// the one in use, where the program has a copy of it.
    fn add_loader(&self, module: &Loaded) -> Result<()> {
        let hooks = module.file.hooks().into_iter();
        if !hooks
            .map(|(_, stub)| stub)
            .any(|stub| stub == Stub::Libraries)
        {
            return Ok(());
        }
        let Some(state) = program::loader_state(&module.file.image, module.base) else {
            return Ok(());
        };
        let mut now = [0; size_of::<u32>()];
        if self.memory.read(state, &mut now).is_err() || now != [0; 4] {
            return Ok(());
        }
        let field = std::mem::offset_of!(ProcessHead, loader_state) as u64;
        let at = self.places.head + field;
        self.memory.write(at, &state.to_le_bytes())
    }

    /// Tells the runtime of a module that unwinds, whether or not any of its functions are traced.
    fn add_unwinder(&mut self, module: &Loaded) -> Result<()> {
        // An unloaded module keeps its entry: nothing calls from there any more.
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
        self.memory.write(self.places.head + at, entry.as_bytes())?;
        self.places.unwinders.push(entry);
        self.write_head_word(
            std::mem::offset_of!(ProcessHead, unwinder_count),
            count as u32 + 1,
        )
    }

    /// Wraps no more calls where `new` modules would come back to other calls' mirrors, or could not unwind through
    /// thunks.
    fn wrap_for(&mut self, new: &[Loaded], context: &mut PatchContext) {
        if self.entry_only {
            return;
        }
        let begins = self.modules.is_empty();
        let walks = !self.walked && new.iter().any(|module| module.file.plan.walks_frames);
        self.walked |= walks;
        if walks && begins {
            context.warn_once(signs::FRAMES_ARE_WALKED.into());
        }
        for note in new
            .iter()
            .filter_map(|new| signs::describe(new.file_name(), &new.file.plan))
        {
            context.warn_once(note);
        }
        let unknown = new.iter().filter_map(unwinder);
        let unknown = unknown.filter(|entry| !self.places.unwinders.contains(entry));
        let why = if let Some(reason) = new.iter().find_map(entries_only) {
            reason
        } else if walks && !begins {
            // Functions that are wrapped already may be among those that it finds.
            signs::FRAMES_ARE_WALKED_NOW.to_owned()
        } else if self.places.unwinders.len() + unknown.count() > UNWINDERS {
            MANY_UNWINDERS.to_owned()
        } else if self.asks_elsewhere(new) {
            signs::HIDES_THUNKS.to_owned()
        } else if let Some(unread) = context.files.unread.first() {
            format!(
                "{unread} was replaced after it was loaded, and only root can read the old file: it is not recorded, and only entries are recorded of all else"
            )
        } else {
            return;
        };
        self.entry_only = true;
        context.warn_once(why);
    }

    /// Whether an unwinder asks what nopal does not answer.
    fn asks_elsewhere(&self, new: &[Loaded]) -> bool {
        let modules: Vec<&Loaded> = self.modules.iter().chain(new).collect();
        hooks::asks_elsewhere(&modules, &self.memory)
    }

    /// The addresses of nopal's memory in the process.
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

    /// The ranges of its generated code.
    pub(crate) fn arenas(&self) -> impl Iterator<Item = Range<u64>> {
        self.places.arenas.iter().map(Arena::range)
    }
}

/// In place of a distance: no stack is mirrored, as no call is wrapped.
const NO_MIRROR: i64 = 0;

const MANY_UNWINDERS: &str = "there are more copies of the unwinder than nopal can describe its thunks to: only entries are recorded";

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

/// How many mappings the mirrors of stacks may take in a process that has `mapped`: the kernel allows it a number, and the
/// program may need most of what is left.
fn mappings_for_mirrors(mapped: usize) -> u64 {
    const DEFAULT: u64 = 65_530;
    const PART: u64 = 8;
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = most.ok().and_then(|most| most.trim().parse().ok());
    most.unwrap_or(DEFAULT).saturating_sub(mapped as u64) / PART
}

/// Where only descendants may be traced, a daemon that has left them must allow it.
fn tracer_to_allow() -> u32 {
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if scope.trim() == "1" => std::process::id(),
        _ => 0,
    }
}
