//! Measures the cost of recording a call, with thunks like those of traced processes, run in a thread of this one.

use anyhow::{Context, Result, ensure};
use nopal_abi::*;
use nopal_agent::{
    ARENA_BYTES, BlockBuilder, BlockEntry, CONTEXT_BYTES, CONTEXTS, Immediates, NO_THREAD,
    ProcessHead, Recorder, STACK_PART_BYTES, STACK_PARTS, THREADS_BYTES, Thunk,
};
use nopal_process::Memory;
use nopal_trace::Note;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::mem::offset_of;

use crate::memory::control_block::thread_slot;
use crate::memory::space::mark_of;
use crate::patch::journal::mirrored;
use zerocopy::IntoBytes;

/// Calls at a time, and how often: the shortest counts, as nothing came between.
const CALLS: u64 = 20;
const ROUNDS: usize = 40;

/// mov $turns, %eax; 1: dec %eax; jnz 1b; ret.
const fn function(turns: u16) -> [u8; 10] {
    let [low, high] = turns.to_le_bytes();
    [0xb8, low, high, 0, 0, 0xff, 0xc8, 0x75, 0xfc, 0xc3]
}

/// Functions of about 20 to 160 ns. A processor does more or less of recording beside what else it has to do: most
/// where it foresees the end of a loop, as of the shorter ones, less where it does not, and least in a function that
/// does nothing, whose caller waits for recording alone. The mean counts.
const FUNCTIONS: [[u8; 10]; 4] = [function(75), function(150), function(300), function(600)];

/// Room for the records of all calls, with arguments too.
const CHUNKS: u64 = 8;

/// Where the mirror is: far below all that the kernel maps by itself. Where something is there, nothing is measured.
const MIRROR: i64 = -(1 << 44);

const BLOCKS_AT: u64 = 1 << 20;
const CODE_BYTES: u64 = 2 << 20;
/// More than the thunks and their unwind table take.
const BLOCK_BYTES: usize = 4096;

/// Measures for some tenths of a millisecond, with this thread's control block.
pub fn measure(recorder: Recorder, ordered: bool) -> Result<Note> {
    ensure!(recorder.capture.ends, "entries have no duration");
    let model = Model::new(recorder, ordered)?;
    let (mut call, mut within) = (0, 0);
    for (site, thunk) in (1..).zip(&model.thunks) {
        // SAFETY: a thunk of the model, which is there until the end of this function.
        let round = || unsafe { round(thunk) };
        let (mut plain, mut recorded) = round();
        for _ in 1..ROUNDS {
            let next = round();
            (plain, recorded) = (plain.min(next.0), recorded.min(next.1));
        }
        call += recorded as i64 - plain as i64;
        within += least_of_rounds(&model.durations(site))? as i64 - plain as i64;
    }
    // Both are of CALLS calls of each function.
    let parts = |ticks: i64| ticks * 1000 / (CALLS as i64 * model.thunks.len() as i64);
    let call = parts(call).max(0);
    let within = parts(within).clamp(0, call);
    Ok(Note::Cost {
        call: call as u64,
        within: within as u64,
    })
}

/// The durations of a round's calls are added up, as a counter may count many ticks at once.
fn least_of_rounds(durations: &[u64]) -> Result<u64> {
    let rounds = durations.chunks_exact(CALLS as usize);
    let least = rounds.map(|round| round.iter().sum()).min();
    least.context("the calls were not recorded as calls")
}

/// This process as a traced one: a function, its thunk, and what the runtime needs.
struct Model {
    /// Both are kept as long as the thunk.
    _memory: Mapping,
    _code: Mapping,
    thunks: Vec<Thunk>,
    parts: u64,
    chunks: u64,
}

impl Model {
    fn new(recorder: Recorder, ordered: bool) -> Result<Model> {
        let pointer = thread_pointer();
        let thread = rustix::thread::gettid().as_raw_pid();
        let own = Memory::open(std::process::id() as i32)?;
        let thread_slot = thread_slot(&own, pointer, thread)?;

        let sizes = [
            nopal_agent::process_bytes().next_multiple_of(4096),
            (STACK_PARTS * 8) as u64,
            THREADS_BYTES,
            ((CONTEXTS * CONTEXT_BYTES) as u64).next_multiple_of(4096),
            size_of::<Region>() as u64 + 4 * CHUNKS,
            (CHUNKS + 1) * CHUNK_BYTES as u64,
        ];
        let memory = Mapping::new(sizes.iter().sum())?;
        let mut at = memory.at;
        let [process, parts, threads, contexts, region, chunks] = sizes.map(|size| {
            at += size;
            at - size
        });
        let chunks = chunks.next_multiple_of(CHUNK_BYTES as u64);
        let count = region + offset_of!(Region, chunk_count) as u64;
        memory.put(count, &(CHUNKS as u32).to_le_bytes());
        let states = region + offset_of!(Region, state_offset) as u64;
        memory.put(states, &size_of::<Region>().to_le_bytes());
        let offset = region + offset_of!(Region, chunk_offset) as u64;
        memory.put(offset, &(chunks - region).to_le_bytes());
        let freed = region + offset_of!(Region, freed) as u64;
        memory.put(freed, &1u32.to_le_bytes());
        let head = ProcessHead {
            region,
            state_offset: size_of::<Region>() as u64,
            chunk_offset: chunks - region,
            chunk_limit: CHUNKS as u32,
            contexts,
            stack_parts: parts,
            threads,
            mirror: MIRROR,
            mappings_left: 1,
            thread_slot,
            process: std::process::id(),
            block_count: 1,
            ..ProcessHead::default()
        };
        memory.put(process, head.as_bytes());
        memory.put(threads, &NO_THREAD.to_le_bytes());

        // Callers' addresses must not look like the arena's, as those of traced programs do not: thunks would look
        // twice. Of two places that follow each other one has other bits.
        let code = Mapping::new(2 * ARENA_BYTES + CODE_BYTES)?;
        let first = code.at.next_multiple_of(ARENA_BYTES);
        let callers = mark_of(call as *const () as u64);
        let arena = [first, first + ARENA_BYTES]
            .into_iter()
            .find(|arena| mark_of(*arena) != callers)
            .expect("their bits are different");
        let immediates = Immediates {
            process,
            mirror: MIRROR,
            threads,
            thread_slot,
            mark: mark_of(arena),
            depth_limit: 0,
            ordered,
            reads_pointer: nopal_agent::reads_pointer(),
        };
        code.put(arena, &nopal_agent::image(&immediates, ARENA_BYTES));
        let mut block = BlockBuilder::new(arena + BLOCKS_AT, arena, MIRROR, 0, BLOCK_BYTES);
        let mut thunks = Vec::new();
        for (site, function) in (1..).zip(&FUNCTIONS) {
            thunks.push(block.thunk(site, recorder, function.len(), &[], |_, out| {
                out.copy_from_slice(function);
                Ok(())
            })?);
        }
        let block = block.finish(&[])?;
        code.put(block.low, &block.bytes);
        let published = BlockEntry {
            low: block.low,
            high: block.high,
            header: block.header,
            ..BlockEntry::default()
        };
        memory.put(process + nopal_agent::blocks_offset(), published.as_bytes());
        code.make_executable(arena, CODE_BYTES)?;
        Ok(Model {
            _memory: memory,
            _code: code,
            thunks,
            parts,
            chunks,
        })
    }

    /// Ticks from the clock of each entry of a function to that of its exit.
    fn durations(&self, of: u32) -> Vec<u64> {
        let words = CHUNK_BYTES / 8;
        // SAFETY: the chunks lie in memory of ours, and nobody writes there any more.
        let all = unsafe {
            std::slice::from_raw_parts(self.chunks as *const u64, CHUNKS as usize * words)
        };
        let mut durations = Vec::new();
        for chunk in all.chunks(words) {
            let mut records = Cursor::new(&chunk[CHUNK_HEADER_BYTES / 8..]);
            let mut entry = None;
            let mut clock = 0;
            while let Some(record) = records.take(clock) {
                clock = record.clock;
                match (record.event, entry) {
                    (Event::Entry { .. }, _) => entry = Some(clock),
                    (Event::Exit { site, .. }, Some(begin)) if site == of => {
                        durations.push(clock - begin);
                    }
                    _ => {}
                }
            }
        }
        durations
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the table, which nobody writes any more.
        let table = unsafe { std::slice::from_raw_parts(self.parts as *const u64, STACK_PARTS) };
        for part in mirrored(table.iter().copied()) {
            let mirror = part.wrapping_add_signed(MIRROR) as *mut c_void;
            // SAFETY: the runtime has mapped it, and no frame is wrapped any more.
            let _ = unsafe { munmap(mirror, STACK_PART_BYTES as usize) };
        }
    }
}

/// Ticks of some calls that are not recorded, and of as many that are.
///
/// # Safety
/// The thunk is of a [`Model`] that is there.
unsafe fn round(thunk: &Thunk) -> (u64, u64) {
    let before = ticks();
    // SAFETY: both are code of one of `FUNCTIONS`.
    unsafe { call(thunk.body) };
    let between = ticks();
    // SAFETY: as above.
    unsafe { call(thunk.entry) };
    (between - before, ticks() - between)
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has them.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    }
}

fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: on x86-64 Linux the word at fs:0 holds the thread pointer.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(readonly, nostack, preserves_flags));
    }
    pointer
}

/// Calls a function. A loop of instructions, whatever is compiled how, and all calls are from one place.
///
/// # Safety
/// What stands at `address` is a function that changes nothing but %eax.
#[inline(never)]
unsafe fn call(address: u64) {
    // SAFETY: the function changes nothing that is not named here.
    unsafe {
        std::arch::asm!(
            // Below what the compiler may keep under the stack pointer.
            "sub rsp, 128",
            "2:",
            "call {address}",
            "dec {calls}",
            "jnz 2b",
            "add rsp, 128",
            address = in(reg) address,
            calls = inout(reg) CALLS => _,
            out("eax") _,
        );
    }
}

/// Private memory, zeroed.
struct Mapping {
    at: u64,
    bytes: u64,
}

impl Mapping {
    fn new(bytes: u64) -> Result<Mapping> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes as usize, access, flags)? };
        Ok(Mapping {
            at: at as u64,
            bytes,
        })
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let offset = at.checked_sub(self.at).expect("it is in the mapping");
        assert!(offset + bytes.len() as u64 <= self.bytes);
        // SAFETY: within the mapping, which nobody else has.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }

    fn make_executable(&self, at: u64, bytes: u64) -> Result<()> {
        let access = MprotectFlags::READ | MprotectFlags::EXEC;
        let offset = at.checked_sub(self.at).expect("it is in the mapping");
        assert!(offset + bytes <= self.bytes);
        // SAFETY: within the mapping, which nobody has a reference to.
        Ok(unsafe { mprotect(at as *mut c_void, bytes as usize, access) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours alone, and nothing refers to it any more.
        let _ = unsafe { munmap(self.at as *mut c_void, self.bytes as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_costs_is_measured_and_leaves_nothing() {
        let recorder = Recorder {
            capture: Capture {
                arguments: false,
                ends: true,
                call_sites: false,
            },
            limits_depth: false,
        };
        let maps = || {
            std::fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count()
        };
        let measured = || {
            std::thread::spawn(move || measure(recorder, false).unwrap())
                .join()
                .unwrap()
        };
        measured();
        let before = maps();
        let mut most = 0;
        for _ in 0..20 {
            let Note::Cost { call, within } = measured() else {
                panic!("another note");
            };
            assert!(within <= call, "{within} of {call}");
            most = most.max(call);
        }
        // On a machine that is busy with other work, one measurement may come to nothing.
        assert!(most > 0);
        assert!(maps() < before + 20, "mappings are left behind");
        let arguments = true;
        let with_arguments = Recorder {
            capture: Capture {
                arguments,
                ends: true,
                call_sites: false,
            },
            ..recorder
        };
        assert!(
            std::thread::spawn(move || measure(with_arguments, false).is_ok())
                .join()
                .unwrap()
        );
    }
}
