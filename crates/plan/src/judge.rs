//! Decides for each function of a file whether its first bytes may become a jump.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use gimli::UnwindContext;
use nopal_beside::both;
use nopal_symbols::{Function, Image, Import, Kind as ImageKind, Source};

use crate::arch::{
    self, Callee, Displaced, Flow, Frame, Input, Judged, Loops, Start, Window, relocate, sweep,
};
use crate::code::{Code, Marks, Memory};
use crate::exceptions::handled;
use crate::frames::Frames;
use crate::loader::Loader;
use crate::recovery::Recovery;
use crate::sequences::sequences;
use crate::{JUMP, LONGEST_WINDOW, Reason, Site, special};

/// Below this many functions a second thread is not worth its start.
const WORTH_A_THREAD: usize = 1024;

/// No instruction reads more bytes of memory, but those that store the processor's state.
const LONGEST_READ: u64 = 64;

pub(crate) enum Verdict {
    Possible(Site),
    /// Possible, but not for this function.
    Special(Reason, Site),
    Refused(Reason),
}

pub(crate) struct Findings {
    /// One verdict for each function, sorted, with one function for each address.
    pub verdicts: Vec<Verdict>,
    /// The file has a table by which a runtime finds its frames.
    pub finds_frames: bool,
    /// It has functions that copy stacks away and back.
    pub copies_stacks: bool,
    /// It has functions that follow frame pointers to their callers.
    pub walks_frames: bool,
}

pub(crate) fn all(image: &Image, functions: &[Function]) -> Result<Findings> {
    with(image, functions, |judge| {
        let judged = |verdicts| Findings {
            verdicts,
            finds_frames: judge.finds_frames,
            copies_stacks: judge.manners.copies_stacks,
            walks_frames: judge.walks_frames.load(Ordering::Relaxed),
        };
        let mut verdicts = if functions.len() < WORTH_A_THREAD {
            judge.several(functions)
        } else {
            let (first, second) = functions.split_at(functions.len() / 2);
            let (mut verdicts, others) = both(|| judge.several(first), || judge.several(second));
            verdicts.extend(others);
            verdicts
        };
        judge.use_padding(functions, &mut verdicts);
        Ok(judged(verdicts))
    })
}

/// The functions by which a file leaves frames: those of libc, which may be linked into it.
fn leaver(image: &Image, imports: &[Import]) -> Option<Callee> {
    const NAMES: [&str; 4] = ["longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"];
    let is_imported = |name: &&str| {
        imports
            .iter()
            .any(|it| it.name.split('@').next() == Some(*name))
    };
    let leaves = image.is_static() || NAMES.iter().any(is_imported);
    leaves.then(|| Callee::of(image, imports, &NAMES))
}

/// Reads all of the file's code once, to judge places in it. `functions`: all functions of the file.
pub(crate) fn with<T>(
    image: &Image,
    functions: &[Function],
    work: impl FnOnce(&Judge) -> Result<T>,
) -> Result<T> {
    let memory = Memory::of(image)?;
    let code = Code::of(&memory);
    let imports = image.imports();
    let loader = Loader::of(image, &imports, &memory, &code)?;
    let frames = Frames::of(&memory, loader.eh_frame_header);
    let starts = starts(functions, &frames);
    let mut is_start = Marks::new(&code);
    functions
        .iter()
        .filter_map(|function| code.number(function.address))
        .for_each(|number| is_start.set(number));
    let absolute = image.kind() == ImageKind::Executable;
    let own_slots = image.own_slots();
    let input = Input {
        memory: &memory,
        code: &code,
        starts: &starts,
        is_start: &is_start,
        absolute,
        frames: &frames,
        leaver: leaver(image, &imports),
        copier: Callee::of(
            image,
            &imports,
            &[
                "memcpy",
                "memmove",
                "mempcpy",
                "memcmp",
                "bcmp",
                "__memcpy_chk",
                "__memmove_chk",
            ],
        ),
        looks_at_caller: Callee::imported(&imports, |name| {
            special::by_name(name) == Some(Reason::LooksAtCaller)
        }),
        own_slots: &own_slots,
    };
    let mut flow = sweep(&input)?;

    let manners = std::mem::take(&mut flow.manners).judged();

    let mut pointers = loader.pointers;
    if absolute {
        memory.each_word(|place, word| {
            if code.range(word).is_some() {
                pointers.push((place, word));
            }
        });
    }
    // OCaml's runtime, if it is a library, looks at the frames of other files.
    let finds_frames = image.exported("caml_c_call").is_some()
        || arch::of_return_addresses(&pointers, &code, &is_start)
        || {
            let tables = tables(&mut flow, &pointers, &input);
            arch::of_distances(&tables, &flow.jump_tables, &input)
        };
    // Not places behind calls, which a table of return addresses has.
    let known: &[(u64, u64)] = if finds_frames { &[] } else { &pointers };
    let recovery = Recovery::of(image, &code, &is_start, &flow, known);
    let sequences = sequences(&memory, &flow.aborts, &mut pointers);
    let targets = pointers
        .iter()
        .map(|pointer| pointer.1)
        .chain(flow.aborts.iter().copied())
        .chain([image.entry()]);
    for number in targets.filter_map(|target| code.number(target)) {
        flow.reached.set(number);
    }
    let mut handled_code = Vec::new();
    handled(&memory, frames.exceptions(), |site| {
        code.number(site.pad)
            .into_iter()
            .for_each(|number| flow.reached.set(number));
        handled_code.push(site.code);
    })?;
    handled_code.sort_unstable_by_key(|code| code.start);

    let found_by_data = image.kind() == ImageKind::Library
        && imports.is_empty()
        && !loader.initialises
        && image.exports().only_data();
    let profiles_itself = profiles_itself(image, &imports);
    let judge = Judge {
        image,
        fentry: Callee::of(image, &imports, &["__fentry__"]),
        profiler: profiles_itself
            .then(|| Callee::of(image, &imports, &["mcount", "_mcount", "__fentry__"])),
        memory: &memory,
        code: &code,
        frames: &frames,
        flow: &flow,
        manners: &manners,
        starts: &starts,
        recovery: &recovery,
        sequences: &sequences,
        changed_code: &loader.changed_code,
        resolvers: &loader.resolvers,
        handled_code: &handled_code,
        finds_frames,
        found_by_data,
        // libc's hook reads its caller's frame link, which this file does not show.
        walks_frames: AtomicBool::new(profiles_itself),
    };
    work(&judge)
}

/// Whether the program was linked with -pg: its functions' calls are counted by the addresses that they return to.
fn profiles_itself(image: &Image, imports: &[Import]) -> bool {
    let mut names = imports
        .iter()
        .filter_map(|import| import.name.split('@').next());
    let is_static = imports.iter().all(|import| import.name.is_empty());
    names.any(|name| matches!(name, "__monstartup" | "monstartup"))
        || is_static && image.symbol("__monstartup").is_some()
}

/// Where tables may begin: at addresses that instructions take or the loader computes.
fn tables(flow: &mut Flow, pointers: &[(u64, u64)], input: &Input<'_>) -> Vec<u64> {
    let is_function = |address: u64| {
        let number = input.code.number(address);
        number.is_some_and(|number| input.is_start.get(number))
    };
    let mut tables = std::mem::take(&mut flow.tables);
    tables.extend(input.memory.starts());
    tables.extend(pointers.iter().map(|pointer| pointer.1));
    tables.retain(|&address| !is_function(address));
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// Functions by symbols, and those only in .eh_frame: parts of functions, and functions without symbols.
fn starts(functions: &[Function], frames: &Frames<'_>) -> Vec<Start> {
    let mut starts: Vec<Start> = functions
        .iter()
        .map(|function| Start {
            address: function.address,
            end: function.address.saturating_add(function.size),
            is_part: false,
        })
        .chain(frames.ranges().map(|range| Start {
            address: range.start,
            end: range.end,
            is_part: true,
        }))
        .collect();
    starts.sort_by_key(|start| (start.address, start.is_part));
    starts.dedup_by_key(|start| start.address);
    starts
}

pub(crate) struct Judge<'a> {
    pub image: &'a Image,
    fentry: Callee,
    /// The hook by which the program counts its own calls.
    profiler: Option<Callee>,
    memory: &'a Memory<'a>,
    pub code: &'a Code<'a>,
    pub frames: &'a Frames<'a>,
    pub flow: &'a Flow,
    manners: &'a Judged,
    pub starts: &'a [Start],
    recovery: &'a Recovery,
    sequences: &'a [Range<u64>],
    changed_code: &'a [u64],
    resolvers: &'a [u64],
    /// Code whose exceptions its own function handles, by address.
    handled_code: &'a [Range<u64>],
    finds_frames: bool,
    /// No other file's code can call into this one: its callers have read its data, as the runtimes of ahead-of-time
    /// compilers do, and may read and change its code, too.
    found_by_data: bool,
    /// One of the judged functions follows frame pointers.
    walks_frames: AtomicBool,
}

impl Judge<'_> {
    fn several(&self, functions: &[Function]) -> Vec<Verdict> {
        let mut context = UnwindContext::new();
        functions
            .iter()
            .map(|function| {
                let frame = arch::frame(self.code, function);
                if frame.walked {
                    self.walks_frames.store(true, Ordering::Relaxed);
                }
                let site = self.site(&mut context, function, frame, JUMP);
                let special = self.special(function);
                match (special.or_else(|| self.passes_flags(function)), site) {
                    (None, Ok(site)) => Verdict::Possible(site),
                    (Some(reason), Ok(site)) => Verdict::Special(reason, site),
                    (Some(reason), Err(_)) | (None, Err(reason)) => Verdict::Refused(reason),
                }
            })
            .collect()
    }

    /// The reason not to patch the function at all, if any.
    pub fn special(&self, function: &Function) -> Option<Reason> {
        let mut names = std::iter::once(&function.name).chain(&function.aliases);
        let by_name = names.find_map(|name| special::by_name(name));
        let is_restorer = self
            .memory
            .from(function.address)
            .is_some_and(arch::is_restorer);
        by_name
            .or(is_restorer.then_some(Reason::SignalReturn))
            .or(self.found_by_data.then_some(Reason::FoundByData))
            .or(self.image.is_go().then_some(Reason::Go))
    }

    /// The reason against a thunk, which changes flags, if any.
    fn passes_flags(&self, function: &Function) -> Option<Reason> {
        let passed = &self.manners.passes_flags;
        passed.get(&function.address).copied()
    }

    pub fn is_resolver(&self, function: &Function) -> bool {
        function.indirect || self.resolvers.binary_search(&function.address).is_ok()
    }

    /// `least`: the bytes of the jump at the function's start.
    pub fn site(
        &self,
        context: &mut UnwindContext<usize>,
        function: &Function,
        frame: Frame,
        least: usize,
    ) -> Result<Site, Reason> {
        let start = function.address;
        let end = start.saturating_add(function.size);
        if self.is_resolver(function) {
            return Err(Reason::Resolver);
        }
        if let Some(entry) = self.image.unwind_rows(start)
            && entry.start == start
            && !entry.starts_at_call_boundary()
        {
            return Err(Reason::NotAnEntry);
        }
        let number = self.code.number(start).ok_or(Reason::Undecodable)?;
        let jumps = &self.flow.jumps[self.flow.jumps.partition_point(|jump| jump.0 < start)..];
        let mut jumps = jumps
            .iter()
            .take_while(|jump| jump.0 == start)
            .map(|jump| jump.1);
        let is_own = |from: u64| (start..end).contains(&from);
        if (function.source == Source::Unwind || special::is_part(&function.name))
            && !self.flow.reached.get(number)
            && jumps.clone().any(|from| !is_own(from))
        {
            return Err(Reason::OnlyJumpedTo);
        }
        if has_one(&self.flow.pops, start..end) {
            return Err(Reason::PopsArguments);
        }

        let window = self.window(start, function.size, least)?;
        if self.is_read(window.start..window.end()) {
            return Err(Reason::ReadAsData);
        }
        if (number + 1..number + window.bytes.len()).any(|number| self.flow.reached.get(number)) {
            return Err(Reason::EnteredInside);
        }
        if jumps.any(|from| is_own(from) && !window.keeps_jump(from)) {
            return Err(Reason::LoopsToStart);
        }
        self.refuse_touched(&window)?;
        if self.recovers(&window, end) {
            return Err(Reason::FaultsAreKnown);
        }
        let profiled = self.profiles(&window).then_some(Reason::CountedByProfiler);
        let rules = self
            .frames
            .rules(context, start, window.bytes.len() as u64)?;
        let mut expected = [0; LONGEST_WINDOW];
        expected[..window.bytes.len()].copy_from_slice(window.bytes);
        Ok(Site {
            name: function.name.as_str().into(),
            address: start,
            size: function.size,
            window: window.bytes.len() as u8,
            expected,
            how: arch::how(&window, self.memory, &self.fentry),
            hole: None,
            keeps_frame: frame.kept,
            walks_frames: frame.walked,
            entries_only: self.manners.entries_only.get(&start).copied().or(profiled),
            body: relocate(&window, &rules, Loops::InBody)?,
        })
    }

    /// Whether these instructions call the program's own profiler.
    fn profiles(&self, window: &Window<'_>) -> bool {
        self.profiler.as_ref().is_some_and(|profiler| {
            let calls = |one: &Displaced| profiler.is_called_by(&one.instruction, self.memory);
            window.instructions.iter().any(calls)
        })
    }

    /// Whether an instruction reads some of these bytes as data.
    pub fn is_read(&self, bytes: Range<u64>) -> bool {
        let read = &self.flow.read;
        let before = read.partition_point(|read| read.0 < bytes.end);
        let near = read[..before].iter().rev();
        let mut near = near.take_while(|read| read.0.saturating_add(LONGEST_READ) > bytes.start);
        near.any(|read| read.1 > bytes.start)
    }

    /// Whether an instruction takes the address of one of these bytes.
    pub fn is_taken(&self, bytes: Range<u64>) -> bool {
        let taken = &self.flow.taken;
        let first = taken.partition_point(|taken| taken.0 < bytes.start);
        taken.get(first).is_some_and(|taken| taken.0 < bytes.end)
    }

    /// The reason against displacing these bytes, anywhere in a function, if any.
    pub fn refuse_touched(&self, window: &Window<'_>) -> Result<(), Reason> {
        self.refuse_written(window.start..window.end())?;
        if window.may_fault(|address| self.is_handled(address)) {
            return Err(Reason::HandlesFaults);
        }
        Ok(())
    }

    /// The reason against writing these bytes, if any.
    pub fn refuse_written(&self, touched: Range<u64>) -> Result<(), Reason> {
        let sequence = self
            .sequences
            .partition_point(|range| range.end <= touched.start);
        if self.sequences[sequence..]
            .first()
            .is_some_and(|range| range.start < touched.end)
        {
            return Err(Reason::RestartableSequence);
        }
        let changed = self
            .changed_code
            .partition_point(|&place| place.saturating_add(8) <= touched.start);
        if self.changed_code[changed..]
            .first()
            .is_some_and(|&place| place < touched.end)
        {
            return Err(Reason::TextRelocation);
        }
        Ok(())
    }

    /// Whether a signal handler may know a fault in the function's first instructions by its address. `end`: the
    /// function's.
    fn recovers(&self, window: &Window<'_>, end: u64) -> bool {
        let computes_jumps = || {
            let range = self.code.range(window.start);
            let bytes = range.map_or(&[][..], |range| {
                &range.bytes[(window.start - range.address) as usize..]
            });
            let length = usize::try_from(end - window.start).unwrap_or(usize::MAX);
            let bytes = bytes.get(..length).unwrap_or(bytes);
            arch::Instructions::of(bytes, window.start).computes_jumps()
        };
        window.may_fault_for_callers() && self.recovery.knows(window.start..=end, computes_jumps)
    }

    fn is_handled(&self, address: u64) -> bool {
        let behind = self
            .handled_code
            .partition_point(|code| code.start <= address);
        // Call sites do not overlap.
        self.handled_code[..behind]
            .last()
            .is_some_and(|code| code.contains(&address))
    }

    /// The window of a jump, or of anything of `least` bytes, at `start`; `size` is the rest of the function, 0 if
    /// unknown.
    pub fn window(&self, start: u64, size: u64, least: usize) -> Result<Window<'_>, Reason> {
        let range = self.code.range(start).ok_or(Reason::Undecodable)?;
        let next = self.starts.partition_point(|other| other.address <= start);
        let limit = self
            .starts
            .get(next)
            .map_or(u64::MAX, |next| next.address)
            .min(range.end());
        let bytes =
            &range.bytes[(start - range.address) as usize..(limit - range.address) as usize];
        let own = if size == 0 {
            bytes.len()
        } else {
            usize::try_from(size).unwrap_or(usize::MAX)
        };
        match Window::find(start, bytes, own, least) {
            Err(Reason::TooShort) if own > bytes.len() => Err(Reason::EnteredInside),
            Ok(_) if start.saturating_add(least as u64) > page_of(start).end => {
                Err(Reason::TwoPages)
            }
            found => found,
        }
    }
}

/// The page of an address. All bytes that lead to one thunk are on one: if the program discarded one of two pages, or a
/// write ended between them, half of these bytes would be left.
pub(crate) fn page_of(address: u64) -> Range<u64> {
    const PAGE: u64 = 4096;
    let start = address / PAGE * PAGE;
    start..start.saturating_add(PAGE)
}

/// Whether one of the sorted addresses is in the range.
fn has_one(addresses: &[u64], range: Range<u64>) -> bool {
    let first = addresses.partition_point(|&address| address < range.start);
    addresses.get(first).is_some_and(|&first| first < range.end)
}
