//! The generated code itself: the time of a site that is switched off, the instructions of one that is on, and the
//! memory of all.

use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use memmap2::MmapMut;
use nopal_abi::Capture;
use nopal_agent::{
    BlockBuilder, COUNTED_BYTES, COUNTED_PAGE_SHIFT, Immediates, Recorder, Switched, Thunk,
    counted_place,
};
use nopal_plan::Plan;
use nopal_symbols::Image;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 9;
const CALLS: u64 = 20_000_000;
const WRAPS: Recorder = Recorder {
    capture: Capture {
        arguments: false,
        ends: true,
        call_sites: false,
    },
    limits_depth: false,
};

/// An empty function, compiled with room for a jump.
const FUNCTION: [u8; 6] = [0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3];
const WINDOW: usize = 5;

pub fn measure(sqlite: &Path) -> Result<Vec<Row>> {
    let mut rows = vec![switched_off()?, counted()?];
    rows.extend(instructions()?);
    rows.extend(memory(sqlite)?);
    Ok(rows)
}

/// The body of `FUNCTION` at address `function`: its NOP, and a jump back.
fn write_body(function: u64, at: u64, out: &mut [u8]) -> Result<()> {
    out[..WINDOW].copy_from_slice(&FUNCTION[..WINDOW]);
    out[WINDOW..].copy_from_slice(&jump(at + WINDOW as u64, function + WINDOW as u64)?);
    Ok(())
}

fn jump(at: u64, target: u64) -> Result<[u8; 5]> {
    let distance = i32::try_from(target.wrapping_sub(at + 5) as i64)?.to_le_bytes();
    Ok([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

/// A thunk for the function at `function`, in a block at `at`, with the runtime's image at `image_at`. Calls are
/// counted by the tables at `counted`.
fn thunk(at: u64, image_at: u64, function: u64, counted: u64) -> Result<(Thunk, Vec<u8>)> {
    let mut block = BlockBuilder::new(at, image_at, 0, counted, 4096);
    let thunk = block.thunk(1, WRAPS, 2 * WINDOW, &[], |body, out| {
        write_body(function, body, out)
    })?;
    Ok((thunk, block.finish(&[])?.bytes))
}

fn switched_off() -> Result<Row> {
    switched("a site inserted and switched off", Switched::Off)
}

fn counted() -> Result<Row> {
    switched("a counted call", Switched::Counting)
}

fn switched(what: &str, to: Switched) -> Result<Row> {
    const UNTOUCHED: usize = 0;
    const PATCHED: usize = 64;
    const BLOCK: usize = 4096;
    /// The counters of all pages of the stack.
    const COUNTERS: usize = 2 * BLOCK;
    /// The table that leads to them.
    const TABLE: usize = 3 * BLOCK;
    let mut memory = MmapMut::map_anon(TABLE + COUNTED_BYTES as usize)?;
    let mut counters = MmapMut::map_anon(TABLE + COUNTED_BYTES as usize)?;
    let (base, counted) = (memory.as_ptr() as u64, counters.as_ptr() as u64);
    let page = (&raw const memory) as u64 >> COUNTED_PAGE_SHIFT;
    // The calls are made from one of these.
    for page in page - 8..page + 2 {
        let place = TABLE + 8 * counted_place(page);
        ensure!(
            counters[place..place + 8] == [0; 8],
            "two pages of the stack have one place"
        );
        counters[place..place + 8].copy_from_slice(&page.to_le_bytes());
        let place = place + COUNTED_BYTES as usize / 2;
        let at = counted + COUNTERS as u64;
        counters[place..place + 8].copy_from_slice(&at.to_le_bytes());
    }
    let table = counted + TABLE as u64;
    let (thunk, bytes) = thunk(base + BLOCK as u64, base, base + PATCHED as u64, table)?;
    memory[BLOCK..BLOCK + bytes.len()].copy_from_slice(&bytes);
    memory[BLOCK..BLOCK + 2].copy_from_slice(&thunk.switch(to));
    for at in [UNTOUCHED, PATCHED] {
        memory[at..at + FUNCTION.len()].copy_from_slice(&FUNCTION);
    }
    memory[PATCHED..PATCHED + WINDOW].copy_from_slice(&jump(base + PATCHED as u64, thunk.entry)?);
    let memory = memory.make_exec()?;

    let time = |at: usize| {
        // SAFETY: a whole function that touches nothing but its counter is at `at`, and the memory outlives the calls.
        let function: extern "C" fn() = unsafe { std::mem::transmute(memory.as_ptr().add(at)) };
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(function)();
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64)
    };
    let times: Vec<Samples> = in_turn(
        ROUNDS,
        &mut [&mut || time(UNTOUCHED), &mut || time(PATCHED)],
    )?
    .into_iter()
    .map(Samples::from_iter)
    .collect();
    let note = format!(
        "{:.2} ns a call, untouched {:.2} ns",
        times[1].median(),
        times[0].median()
    );
    Ok(Row::new(
        format!("{what}, added a call"),
        "ns",
        times[1].less(&times[0]),
    )
    .bound(Bound::AtMost(2.5))
    .note(note))
}

/// Generated code, as it would lie in a traced process.
struct Code64 {
    parts: Vec<(u64, Vec<u8>)>,
}

impl Code64 {
    fn instruction(&self, at: u64) -> Result<Instruction> {
        let (start, bytes) = self
            .parts
            .iter()
            .find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&at))
            .context("no code")?;
        let instruction = Decoder::with_ip(
            64,
            &bytes[(at - start) as usize..],
            at,
            DecoderOptions::NONE,
        )
        .decode();
        ensure!(
            instruction.code() != Code::INVALID,
            "no instruction at {at:#x}"
        );
        Ok(instruction)
    }

    /// Follows the path on which no conditional jump is taken, from `at` to the call of `until` or the return of the
    /// function that `at` is in.
    fn straight(&self, at: u64, until: u64) -> Result<Path64> {
        const LONGEST: u32 = 1000;
        let mut path = Path64::default();
        let mut returns = Vec::new();
        let mut at = at;
        while path.instructions < LONGEST {
            let instruction = self.instruction(at)?;
            path.instructions += 1;
            path.bytes += instruction.len() as u32;
            path.next = instruction.next_ip();
            at = match instruction.flow_control() {
                FlowControl::Next => instruction.next_ip(),
                FlowControl::ConditionalBranch => {
                    path.branches += 1;
                    instruction.next_ip()
                }
                FlowControl::Call if instruction.near_branch_target() == until => return Ok(path),
                FlowControl::Call => {
                    returns.push(instruction.next_ip());
                    instruction.near_branch_target()
                }
                FlowControl::Return => match returns.pop() {
                    Some(back) => back,
                    None => return Ok(path),
                },
                other => {
                    bail!("the recording of an event does not go straight on at {at:#x}: {other:?}")
                }
            };
        }
        bail!("the recording of an event does not end")
    }
}

#[derive(Default)]
struct Path64 {
    instructions: u32,
    branches: u32,
    bytes: u32,
    next: u64,
}

/// The instructions of the fast path, counted in its code: it takes no conditional jump.
fn instructions() -> Result<Vec<Row>> {
    const IMAGE: u64 = 0x7000_0000_0000;
    const BLOCK: u64 = IMAGE + (1 << 20);
    const FUNCTION_AT: u64 = IMAGE + (1 << 24);
    let immediates = Immediates {
        process: IMAGE,
        mirror: 1 << 40,
        ..Immediates::default()
    };
    let (thunk, block) = thunk(BLOCK, IMAGE, FUNCTION_AT, 0)?;
    let code = Code64 {
        parts: vec![
            (
                IMAGE,
                nopal_agent::image(&immediates, nopal_agent::ARENA_BYTES),
            ),
            (BLOCK, block),
        ],
    };
    let entry = code.straight(thunk.entry, thunk.body)?;
    let exit = code.straight(entry.next, thunk.body)?;
    let row = |what: &str, path: &Path64, more: u32| {
        Row::once(what, "instructions", f64::from(path.instructions + more)).note(format!(
            "{} of them conditional jumps, none taken; {} bytes",
            path.branches, path.bytes
        ))
    };
    // Two jumps are not in the thunk: that to it, and the one back from the displaced instructions.
    Ok(vec![
        row(
            "the mechanism: from the site's jump to the call of its body",
            &entry,
            1,
        ),
        row("the mechanism: from the jump back to the return", &exit, 1),
    ])
}

fn memory(file: &Path) -> Result<Vec<Row>> {
    const BASE: u64 = 0x5555_5555_4000;
    const IMAGE: u64 = BASE + (64 << 20);
    let plan = Plan::make(&Image::open(file)?)?;
    let mut block = BlockBuilder::new(IMAGE + (1 << 20), IMAGE, 0, 0, 8 << 20);
    for (number, site) in plan.sites.iter().enumerate() {
        let rows: Vec<_> = site.body.rows().collect();
        block.thunk(
            number as u32 + 1,
            WRAPS,
            site.body.code().len(),
            &rows,
            |at, out| Ok(site.body.place(BASE, at, out)?),
        )?;
    }
    let count = plan.sites.len() as f64;
    let code = block.code_bytes() as f64;
    let all = block.finish(&[])?.bytes.len() as f64;
    let displaced: usize = plan.sites.iter().map(|site| site.body.code().len()).sum();
    let immediates = Immediates::default();
    let image = nopal_agent::image(&immediates, nopal_agent::ARENA_BYTES).len();
    Ok(vec![Row::once("generated memory a function, SQLite", "bytes", all / count).note(format!(
        "{:.0} of code, of which {:.0} displaced, and {:.0} of unwind table; {} functions; {image} bytes for the runtime, once",
        code / count,
        displaced as f64 / count,
        (all - code) / count,
        plan.sites.len(),
    ))])
}
