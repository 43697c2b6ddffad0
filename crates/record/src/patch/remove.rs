//! Takes nopal out of a running process: the text is as it was, no frame returns into generated code, and memory is
//! given back.

use crate::filters::thread_has_added_filter;
use crate::members::is_frozen;
use crate::memory::inject::Injector;
use crate::memory::region::Region;
use crate::patch::change::{Change, Kind};
use crate::patch::journal::{Journal, words};
use crate::patch::restore;
use crate::patch::traps;
use crate::sites::signs::traces_itself;
use anyhow::Result;
use nopal_agent::STACK_PART_BYTES;
use nopal_process::{Event, Mapping, Memory, Pages, Search, StopError, Stopped, Thread};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that threads may take to stop.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Moments after which a thread that has not left generated code is left in it.
const MOST_MOMENTS: usize = 200;

/// The number of times that threads are let go that could not be brought out of generated code, and the first such
/// time.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(1);

/// The time in which threads do what others have waited for.
const FOR_OTHERS: Duration = Duration::from_millis(100);

/// Why a process could not be stopped, and was not waited for any longer.
#[derive(Debug)]
pub enum Held {
    /// It is frozen by its control group.
    Frozen,
    /// Another process traces it.
    Traced { tracer: i32, name: String },
}

impl fmt::Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Held::Frozen => out.write_str("it is frozen by its control group"),
            Held::Traced { tracer, name } => {
                write!(out, "it is traced by process {tracer} ({name})")
            }
        }
    }
}

impl std::error::Error for Held {}

pub fn is_held(process: i32) -> bool {
    let examined = nopal_process::examine(process);
    is_frozen(process) || matches!(examined, Err(StopError::TracedBy { .. }))
}

/// How long a process that is held is waited for: the guardian waits until it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhileHeld {
    Wait,
    GiveUp,
}

impl WhileHeld {
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Stops all threads, once nobody holds the process.
    fn stop(self, process: i32) -> Result<Stopped> {
        self.wait(|| {
            if is_frozen(process) && nopal_process::alive(process) {
                return Ok(Err(Held::Frozen));
            }
            match Stopped::stop(process, PATIENCE) {
                Err(error) => match error.downcast() {
                    Ok(StopError::TracedBy { tracer, name }) => {
                        Ok(Err(Held::Traced { tracer, name }))
                    }
                    Ok(error) => Err(error.into()),
                    Err(error) => Err(error),
                },
                Ok(stopped) => Ok(Ok(stopped)),
            }
        })
    }

    /// Waits until the process is not frozen.
    fn thaw(self, process: i32) -> Result<()> {
        self.wait(|| {
            let is_held = is_frozen(process) && nopal_process::alive(process);
            Ok(if is_held { Err(Held::Frozen) } else { Ok(()) })
        })
    }

    fn wait<T>(
        self,
        mut attempt: impl FnMut() -> Result<std::result::Result<T, Held>>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            match attempt()? {
                Ok(done) => return Ok(done),
                Err(held) if self == WhileHeld::GiveUp && begun.elapsed() >= Self::PATIENCE => {
                    return Err(held.into());
                }
                Err(_) => std::thread::sleep(WHILE_HELD),
            }
        }
    }
}

/// The time between looks at a process that is held.
const WHILE_HELD: Duration = Duration::from_millis(20);

const PAGE: usize = 4096;

/// A callback that waits in a system call has taken no more of the stack.
const NEAR: u64 = 8 << 10;

/// The bytes to search for stacks that no thread is on.
const ELSEWHERE: u64 = 8 << 20;

/// 1. no thread waits for the tool any more; one that is about to make text writable waits for step 3
/// 2. stop all threads, when the process is neither frozen nor traced by another
/// 3. put the text back, but for the hooks; no new frame is wrapped by threads that are out of generated code
/// 4. let those in it run out of it, for moments
/// 5. unwrap the frames that are: `*slot = mirror[slot]`; but not those of threads that unwind: an unwinder has copies
///    of slots on its stack, and still has to find thunks by the hooks
/// 6. where no frame is wrapped any more, and nothing can return into generated code either, put back the rest of the
///    text, give SIGTRAP back, and then the memory and the pages of text
/// 7. let go; again from 2 where something is left to do; the last time, put back the rest of the text although signal
///    handlers may return into generated code
///
/// Code that cannot be given back stays mapped, for a signal handler that will return into it. It does what is right:
/// run the body, and return to the caller by the mirror. Generated code also stays, and leads past what is recorded,
/// where the program has patched its own functions and may write jumps back, or where it may have code that calls
/// thunks. `attempted` is called before each time that threads are let go.
pub fn remove(journal: &Journal, held: WhileHeld, attempted: &dyn Fn()) -> Result<()> {
    let done = Memory::open(journal.process).and_then(|memory| {
        let done = take_out(journal, &memory, held, attempted);
        // A process that is held still has its jumps: they are taken out when it goes on.
        if done.as_ref().is_err_and(|error| !error.is::<Held>()) {
            let _ = journal.mark_text_back(&memory);
        }
        done
    });
    match done {
        // A process that has executed a program has lost all that was in it.
        Err(error) if error.downcast_ref() == Some(&StopError::Executes) => {
            let left = Journal::read_all(journal.process).unwrap_or_default();
            match left.iter().find(|left| left.inode == journal.inode) {
                Some(left) => take_out(left, &Memory::open(left.process)?, held, attempted),
                None => Ok(()),
            }
        }
        // So has one that was killed meanwhile.
        Err(_) if !nopal_process::alive(journal.process) => Ok(()),
        done => done,
    }
}

fn take_out(
    journal: &Journal,
    memory: &Memory,
    held: WhileHeld,
    attempted: &dyn Fn(),
) -> Result<()> {
    journal.mark_gone(memory)?;
    // Markers go with the hooks: the code that they call is there until nothing calls it.
    let (hooks, sites): (Vec<Change>, Vec<Change>) = journal
        .changes
        .iter()
        .partition(|change| matches!(change.kind, Kind::Hook | Kind::Marker | Kind::Word));
    // A thread may be at the jump in a hole.
    let (holes, mut sites): (Vec<Change>, Vec<Change>) = sites.iter().partition(|it| it.is_hole());
    // Two bytes may be a jump of another library's own by now: ours leads to a jump of ours.
    let is_held = |at: u64| {
        let mut holes = holes.iter();
        holes.any(|hole| hole.address == at && hole.is_made(memory))
    };
    sites.retain(|site| site.hole().is_none_or(is_held));
    let together = traces_itself(journal.process);
    for attempt in 0..ATTEMPTS {
        let mut stopped = held.stop(journal.process)?;
        restore::take_back(&sites, memory)?;
        let made = holes.iter().filter(|hole| hole.is_made(memory));
        let free = without_threads(&mut stopped, &made.copied().collect::<Vec<_>>())?;
        restore::take_back(&unneeded(&free, journal, memory), memory)?;
        journal.mark_text_back(memory)?;
        let out = run_out(journal, &mut stopped, &[])?;
        let search =
            stopped.search_stacks_and_live_ones(&journal.ways, ELSEWHERE, &journal.unwinders)?;
        let careful = attempt + 1 < ATTEMPTS;
        let unwinding = unwinding(journal, &stopped, memory, &search, careful)?;
        let wrapped = unwrap_frames(journal, memory, &unwinding)?;
        let needed = !unwinding.is_empty() || is_needed(journal, &stopped, memory, &search);
        // A signal handler that has interrupted generated code may unwind through it.
        if out && !wrapped && !(needed && careful) {
            restore::take_back(&hooks, memory)?;
            if !needed && traps::give_back(&mut stopped, memory, journal.traps).unwrap_or(false) {
                restore::take_back(&unneeded(&holes, journal, memory), memory)?;
                if journal.code_stays {
                    // Each takes more than one store, so no thread may run.
                    let changes = hooks.iter().chain(probes(&sites));
                    restore::lead_past(changes, memory)?;
                }
                return give_back(journal, stopped, memory, together);
            }
        }
        let late = stopped.detach_all();
        attempted();
        std::thread::sleep(PAUSE * (1 << attempt));
        if !let_go(journal.process, late, held)? {
            return Ok(());
        }
    }
    Ok(())
}

/// The holes to which no short jump can come back: where the program has written over one, it may have kept its bytes.
fn unneeded(holes: &[Change], journal: &Journal, memory: &Memory) -> Vec<Change> {
    let is_back = |change: &Change| {
        let mut found = vec![0; change.before().len()];
        memory.read(change.address, &mut found).is_ok() && found == change.before()
    };
    let short = journal
        .changes
        .iter()
        .filter(|change| change.hole().is_some());
    let needed: HashSet<u64> = short
        .filter(|change| journal.code_stays || !is_back(change))
        .filter_map(Change::hole)
        .collect();
    let holes = holes.iter().filter(|hole| !needed.contains(&hole.address));
    holes.copied().collect()
}

/// The holes, among these, that no thread comes to any more when their short jumps are out. A thread that is at one goes
/// on in its thunk; a signal handler may return to another.
pub fn without_threads(stopped: &mut Stopped, holes: &[Change]) -> Result<Vec<Change>> {
    if holes.is_empty() || !stopped.late().is_empty() {
        return Ok(Vec::new());
    }
    for thread in stopped.threads_mut() {
        let mut registers = thread.registers()?;
        let at = registers.instruction_pointer();
        if let Some(hole) = holes.iter().find(|hole| hole.address == at) {
            registers.set_instruction_pointer(hole.entry);
            thread.set_registers(&registers)?;
        }
    }
    let mut ways: Vec<u64> = holes.iter().map(|hole| hole.address).collect();
    ways.sort_unstable();
    ways.dedup();
    let ways: Vec<Range<u64>> = ways.into_iter().map(|way| way..way + 1).collect();
    let search = stopped.search_stacks(&ways, 0)?;
    if search.hidden {
        return Ok(Vec::new());
    }
    let returned: HashSet<u64> = search.found.iter().map(|(_, word)| *word).collect();
    let free = holes
        .iter()
        .filter(|hole| !returned.contains(&hole.address));
    Ok(free.copied().collect())
}

/// Lets threads go that did not stop, and that cannot be stopped again before: those that waited for others, in a while,
/// and those of a frozen process, when it goes on. Returns whether that was possible: others may sleep in the kernel for
/// ever.
fn let_go(process: i32, mut late: Vec<Thread>, held: WhileHeld) -> Result<bool> {
    let begun = Instant::now();
    loop {
        let was_frozen = is_frozen(process);
        late = late
            .into_iter()
            .filter_map(|thread| thread.detach().err())
            .collect();
        if late.is_empty() || !was_frozen && begun.elapsed() >= FOR_OTHERS {
            return Ok(late.is_empty());
        }
        held.thaw(process)?;
        std::thread::sleep(PAUSE);
    }
}

fn probes(sites: &[Change]) -> impl Iterator<Item = &Change> {
    sites.iter().filter(|change| change.is_probe())
}

/// The mappings with the stacks of threads that are in an unwinder, or called by it, and may be on their way through
/// generated code, of which words were found on their stacks. Words on a stack may be left from calls that are over; so
/// a thread that waits in a system call is only taken for one that unwinders have called if one is `careful`, or if it
/// has not gone far since: then it is in a callback that waits.
fn unwinding(
    journal: &Journal,
    stopped: &Stopped,
    memory: &Memory,
    search: &Search,
    careful: bool,
) -> Result<Vec<Range<u64>>> {
    if journal.unwinders.is_empty() {
        return Ok(Vec::new());
    }
    let maps = nopal_process::maps(journal.process)?;
    let containing = |address: u64| {
        let map = maps.get(maps.partition_point(|map| map.end <= address))?;
        (map.start <= address && map.writable).then_some(map.start..map.end)
    };
    let main = maps
        .iter()
        .find(|map| map.label.as_deref() == Some("[stack]"));
    let main = main.map(|map| map.start..map.end);
    let mut stacks = Vec::new();
    // Most threads of a crowd wait at the same place.
    let mut known = (0, false);
    for thread in stopped.threads() {
        let registers = thread.registers()?;
        if known.0 != registers.instruction_pointer() {
            known = (
                registers.instruction_pointer(),
                memory.has_system_call_before(registers.instruction_pointer()),
            );
        }
        let top = registers.stack_pointer();
        let Some(present) = containing(top) else {
            continue;
        };
        // A signal handler on a stack of its own may have interrupted an unwinder.
        let own = containing(registers.thread_pointer());
        let first = main.clone().filter(|_| thread.tid() == stopped.pid());
        let others = [own, first].into_iter().flatten();
        let others: Vec<Range<u64>> = others.filter(|stack| !stack.contains(&top)).collect();
        let near = top..present.end.min(top.saturating_add(NEAR));
        let used = top..present.end;
        let has = |words| {
            let mut stacks = others.iter().chain([&present]);
            stacks.any(|stack| !within(words, stack).is_empty())
        };
        let called = |part: &Range<u64>| is_called_by_unwinder(journal, memory, search, part);
        let waits = registers.system_call() >= 0 && known.1;
        let unwinds = if careful || !waits {
            journal.is_unwinder(registers.instruction_pointer())
                || has(&search.live)
                || others.iter().chain([&used]).any(called)
        } else {
            called(&near)
        };
        if unwinds && has(&search.found) {
            stacks.extend(others);
            stacks.push(present);
        }
    }
    Ok(stacks)
}

/// The words of a range.
fn within<'a>(words: &'a [(u64, u64)], range: &Range<u64>) -> &'a [(u64, u64)] {
    let first = words.partition_point(|(at, _)| *at < range.start);
    let words = &words[first..];
    &words[..words.partition_point(|(at, _)| *at < range.end)]
}

/// Whether a part of a stack has the return address of a function that an unwinder was given, such as a callback of
/// `_Unwind_Backtrace` or a personality routine. If its call is wrapped, only the mirror has that address.
fn is_called_by_unwinder(
    journal: &Journal,
    memory: &Memory,
    search: &Search,
    part: &Range<u64>,
) -> bool {
    let wrapped = within(&search.found, part).iter().any(|(at, word)| {
        let mirror = at.wrapping_add_signed(journal.mirror);
        let kept = memory.read_word(mirror);
        kept.is_ok_and(|kept| journal.is_unwinder(kept)) && is_after_call(memory, *word)
    });
    let mut live = within(&search.live, part).iter();
    wrapped || live.any(|(_, word)| may_return(memory, *word))
}

/// Lets threads that are in generated code run out of it, but for those that are `waiting` in the runtime. Returns
/// whether all have, and no thread has come meanwhile.
pub fn run_out(journal: &Journal, stopped: &mut Stopped, waiting: &[i32]) -> Result<bool> {
    let process = stopped.pid();
    let is_out = |thread: &Thread| -> Result<bool> {
        let registers = thread.registers()?;
        Ok(!journal.is_generated(registers.instruction_pointer()))
    };
    let (mut all_out, mut any_ran) = (true, false);
    // From the last one, as a thread that ends is not among them any more.
    for number in (0..stopped.threads().len()).rev() {
        if waiting.contains(&stopped.threads()[number].tid()) {
            continue;
        }
        let mut out = is_out(&stopped.threads()[number])?;
        for _ in 0..MOST_MOMENTS {
            if out {
                break;
            }
            any_ran = true;
            out = match stopped.run_for_a_moment(number)? {
                Some(Event::Ended(_)) => true,
                Some(Event::Stopped(_)) => is_out(&stopped.threads()[number])?,
                None => break,
            };
        }
        all_out &= out;
    }
    let held: HashSet<i32> = stopped.threads().iter().map(Thread::tid).collect();
    let is_held =
        |thread: &i32| held.contains(thread) || !nopal_process::runs_program(process, *thread);
    let none_came = !any_ran || nopal_process::threads(process)?.iter().all(is_held);
    Ok(all_out && none_came)
}

/// Looks through all stacks that were ever mirrored. A slot is known by its content: the address behind the call in a
/// thunk. Its mirror must hold an address too, of code that is not ours. Slots in the ranges `left` are left as they
/// are; returns whether there may be any.
pub fn unwrap_frames(journal: &Journal, memory: &Memory, left: &[Range<u64>]) -> Result<bool> {
    let mut some_left = false;
    let pages = Pages::of(journal.process).ok();
    let (mut stack, mut mirror) = ([0; PAGE], [0; PAGE]);
    for at in journal.mirrored_parts(memory)? {
        let there = at.wrapping_add_signed(journal.mirror);
        let part = there..there.saturating_add(STACK_PART_BYTES);
        // Pages of the mirror that were never written have no wrapped calls. Where the kernel does not tell, all are
        // looked at.
        let kept = pages.as_ref().map(|pages| pages.present(part.clone()));
        let kept = match kept {
            Some(Ok(kept)) => kept,
            _ => vec![part],
        };
        for there in kept.into_iter().flat_map(|run| run.step_by(PAGE)) {
            let page = there.wrapping_sub(journal.mirror as u64);
            if memory.read(page, &mut stack).is_err() || memory.read(there, &mut mirror).is_err() {
                continue;
            }
            let is_left = left.iter().any(|range| range.contains(&page));
            for (index, (held, kept)) in words(&stack).zip(words(&mirror)).enumerate() {
                let wrapped = journal.is_generated(held)
                    && is_after_call(memory, held)
                    && !journal.is_generated(kept)
                    && kept != 0;
                some_left |= wrapped && is_left;
                if wrapped && !is_left {
                    memory.write(page + index as u64 * 8, &kept.to_le_bytes())?;
                }
            }
        }
    }
    Ok(some_left)
}

fn is_after_call(memory: &Memory, address: u64) -> bool {
    let mut code = vec![0; nopal_agent::after_call().len()];
    memory.read(address, &mut code).is_ok() && code == nopal_agent::after_call()
}

/// Whether a word may be the address that a call through a register returns to. What cannot be read may be.
fn may_return(memory: &Memory, word: u64) -> bool {
    memory.has_computed_call_before(word).unwrap_or(true)
}

/// Whether a thread will return into generated code, of which words were `found` on stacks. Most of them are left from
/// calls that are over. Of those that count, two kinds can wait for long: the return addresses of signal handlers, and
/// those of functions that the runtime has called.
fn is_needed(journal: &Journal, stopped: &Stopped, memory: &Memory, search: &Search) -> bool {
    if !stopped.late().is_empty() || search.hidden {
        return true;
    }
    let calls_out: Vec<Range<u64>> = journal
        .code
        .iter()
        .flat_map(|code| {
            nopal_agent::calls_out().map(|call| code.start + call.start..code.start + call.end)
        })
        .collect();
    // A number that replaced the lower half of an address may lie there as well.
    let returns =
        |word: u64| calls_out.iter().any(|call| call.contains(&word)) && may_return(memory, word);
    let mut found = search.found.iter();
    found.any(|&(at, word)| returns(word) || is_interrupted(memory, at))
}

/// Whether the word at an address is the instruction pointer that a signal handler returns to: then the flags come
/// next, which fit into 22 bits, and after them the code segment of 64-bit programs.
fn is_interrupted(memory: &Memory, at: u64) -> bool {
    const USER_CODE: u64 = 0x33;
    let word = |offset| memory.read_word(at.wrapping_add(offset));
    word(8).is_ok_and(|flags| flags < 1 << 22)
        && word(16).is_ok_and(|segments| segments & 0xffff == USER_CODE)
}

/// By way of a stopped thread, unless a filter forbids it.
fn injector(thread: &mut Thread) -> Result<Option<Injector<'_>>> {
    if thread_has_added_filter(thread) && thread.suspend_seccomp(true).is_err() {
        return Ok(None);
    }
    Injector::new(thread).map(Some)
}

/// No thread will come into generated code any more: most of this is done while the others go on, if they may.
fn give_back(
    journal: &Journal,
    mut stopped: Stopped,
    memory: &Memory,
    together: bool,
) -> Result<()> {
    // A thread that ran could make a page writable after it was compared, and write what would be dropped.
    let text = restore::examine_text(journal, memory)?;
    if together {
        stopped.stay_together(true);
        let injector = stopped.keep_one().map(injector).transpose()?.flatten();
        return injector.map_or(Ok(()), |mut injector| {
            injector.give_back(&text.unchanged)?;
            unmap(journal, text, &mut injector, memory)
        });
    }
    let Some(mut thread) = stopped.take_one() else {
        return Ok(());
    };
    let Some(mut injector) = injector(&mut thread)? else {
        return Ok(());
    };
    injector.with_others(stopped, |injector| injector.give_back(&text.unchanged))?;
    unmap(journal, text, &mut injector, memory)
}

fn unmap(
    journal: &Journal,
    text: restore::Text,
    injector: &mut Injector,
    memory: &Memory,
) -> Result<()> {
    let mut ours = journal.memory(memory)?;
    let is_function = |change: &&Change| change.function().is_some();
    let leads_past = |change: &Change| change.function().is_some() || change.is_hole();
    if !text.patched.iter().all(leads_past) {
        // The program may write the jump to a hook back.
        return Ok(());
    }
    if journal.code_stays || !text.patched.is_empty() {
        let functions = journal.changes.iter().filter(is_function);
        restore::lead_past(functions, memory)?;
        ours.retain(|range| !journal.code.contains(range));
    }
    injector.unmap(&restore::joined(ours))
}

/// Living processes that have one of these regions mapped: forks of traced ones, which nobody else may know of.
/// `ours` have them mapped to collect from.
pub fn processes_with(regions: &[Arc<Region>], ours: &[i32]) -> Vec<i32> {
    let inodes: Vec<u64> = regions.iter().map(|region| region.inode()).collect();
    // To list the mappings of a process costs ten times as much as to see that it is older than we are, and so no fork
    // of a process that we trace.
    let since = nopal_process::start_time(std::process::id() as i32).unwrap_or(0);
    let possible = |process: &i32| {
        regions.iter().any(|region| region.process() == *process)
            || nopal_process::start_time(*process).is_ok_and(|time| time >= since)
    };
    nopal_process::processes()
        .filter(|process| !ours.contains(process) && possible(process))
        .filter(|process| nopal_process::alive(*process))
        .filter(|process| nopal_process::has_mapping(*process, |map| is_region(map, &inodes)))
        .collect()
}

pub fn has_mapped(process: i32, region: &Region) -> bool {
    nopal_process::has_mapping(process, |map| is_region(map, &[region.inode()]))
}

/// The same of the mappings of a process.
pub fn is_among(maps: &[Mapping], region: &Region) -> bool {
    maps.iter().any(|map| is_region(map, &[region.inode()]))
}

fn is_region(map: &Mapping, inodes: &[u64]) -> bool {
    map.shared && map.writable && inodes.contains(&map.inode)
}
