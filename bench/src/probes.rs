//! Probes at an instruction, beside the figures of kprobes with jump optimisation: the cost of reaching one by a jump
//! and by a breakpoint, the cost of recording one, and its bytes.

use crate::papers::rounds;
use crate::run::{Paths, Printed, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use memmap2::{Mmap, MmapMut};
use nopal_agent::{
    BlockBuilder, Breakpoint, IMAGE_PROBE_ACTION, IMAGE_TRAP, IMAGE_TRAP_RETURN, Immediates, Probe,
    Thunk, Traps, Values,
};
use nopal_plan::FrameChange;
use std::hint::black_box;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 9;
/// The fastest of so many runs counts, since other work of the machine slows some of them down.
const RUNS: u64 = 100;
const CALLS: u64 = 50_000;
const TRAPS: u64 = 500;

const JUMP: usize = 5;
/// An empty function with room for a jump.
const FUNCTION: [u8; 6] = [0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3];

const THEIRS: &str = "theirs: 60 ns by a jump, 910 ns by a breakpoint";

pub fn measure(paths: &Paths, program: &Path) -> Result<Vec<Row>> {
    let mut rows = empty_actions()?;
    rows.extend(recorded(paths, program)?);
    rows.push(bytes()?);
    Ok(rows)
}

// ---- an empty action ----

/// Functions without a probe, with one by a jump, and with one by a breakpoint, as in a traced process. The probes have
/// no action: they save registers and flags, and restore them.
struct Probed {
    code: Mmap,
    /// The data that the handler of SIGTRAP reads.
    _process: Box<[u8]>,
}

const UNTOUCHED: usize = 0;
const JUMPED: usize = 64;
const BROKEN: usize = 128;
const IMAGE: usize = 4096;

impl Probed {
    fn new() -> Result<Probed> {
        let mut process = vec![0; nopal_agent::process_bytes() as usize].into_boxed_slice();
        let immediates = Immediates {
            process: process.as_ptr() as u64,
            mirror: 0,
            thread_slot: 0,
            mark: 0,
            ..Immediates::default()
        };
        let mut image = nopal_agent::image(&immediates, nopal_agent::ARENA_BYTES);
        let (action, done) = (IMAGE_PROBE_ACTION.start, IMAGE_PROBE_ACTION.end);
        image[action..action + JUMP].copy_from_slice(&jump(action as u64, done as u64)?);
        let block_at = (IMAGE + image.len()).next_multiple_of(4096);
        let mut code = MmapMut::map_anon(block_at + 4096)?;
        let base = code.as_ptr() as u64;
        code[IMAGE..IMAGE + image.len()].copy_from_slice(&image);
        let (at, image_at) = (base + block_at as u64, base + IMAGE as u64);
        let mut block = BlockBuilder::new(at, image_at, 0, 0, 4096);
        let jumped = detour(&mut block, base + JUMPED as u64)?;
        let broken = detour(&mut block, base + BROKEN as u64)?;
        let bytes = block.finish(&[])?.bytes;
        code[block_at..block_at + bytes.len()].copy_from_slice(&bytes);
        for at in [UNTOUCHED, JUMPED, BROKEN] {
            code[at..at + FUNCTION.len()].copy_from_slice(&FUNCTION);
        }
        let to_detour = jump(base + JUMPED as u64, jumped.entry)?;
        code[JUMPED..JUMPED + JUMP].copy_from_slice(&to_detour);
        code[BROKEN] = 0xcc;
        let mut put = |offset: usize, word: u64| {
            let at = nopal_agent::traps_offset() as usize + offset;
            process[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        let first = offset_of!(Traps, breakpoints);
        put(offset_of!(Traps, count), 1);
        put(
            first + offset_of!(Breakpoint, address),
            base + BROKEN as u64,
        );
        put(first + offset_of!(Breakpoint, detour), broken.entry);
        let code = code.make_exec()?;
        handle_traps(base + IMAGE as u64)?;
        Ok(Probed {
            code,
            _process: process,
        })
    }

    /// The nanoseconds of a call.
    fn time(&self, at: usize, calls: u64) -> f64 {
        // SAFETY: the code at `at` is a whole function that touches nothing, and `code` outlives the calls.
        let function: extern "C" fn() = unsafe { std::mem::transmute(self.code.as_ptr().add(at)) };
        let run = |_| {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(function)();
            }
            start.elapsed().as_secs_f64() * 1e9 / calls as f64
        };
        (0..RUNS).map(run).fold(f64::MAX, f64::min)
    }
}

/// Installs the runtime's handler in this process, as the tool does in a traced one.
fn handle_traps(image: u64) -> Result<()> {
    const RESTORER: u64 = 0x0400_0000;
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | RESTORER;
    let action = [
        image + IMAGE_TRAP,
        flags,
        image + IMAGE_TRAP_RETURN,
        u64::MAX,
    ];
    // SAFETY: the action has the kernel's layout, and its code stays as long as breakpoints are met.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGTRAP,
            action.as_ptr(),
            std::ptr::null::<u64>(),
            8,
        )
    };
    ensure!(failed == 0, "SIGTRAP cannot be handled");
    Ok(())
}

fn jump(at: u64, target: u64) -> Result<[u8; JUMP]> {
    let distance = i32::try_from(target.wrapping_sub(at + JUMP as u64) as i64)?.to_le_bytes();
    Ok([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

/// The detour of a probe of two registers at the first instruction of `FUNCTION` at an address.
fn detour(block: &mut BlockBuilder, function: u64) -> Result<Thunk> {
    const DI: u8 = 7;
    const SI: u8 = 6;
    const STACK_POINTER: u16 = 7;
    let probe = Probe {
        event: 1,
        shape: 2,
        values: Values::Registers(vec![DI, SI]),
    };
    let at_entry = [(
        0,
        FrameChange::Cfa {
            register: STACK_POINTER,
            offset: 8,
        },
    )];
    block.detour(&probe, 2 * JUMP, &at_entry, |at, out| {
        out[..JUMP].copy_from_slice(&FUNCTION[..JUMP]);
        let end = JUMP as u64;
        out[JUMP..].copy_from_slice(&jump(at + end, function + end)?);
        Ok(())
    })
}

fn empty_actions() -> Result<Vec<Row>> {
    let probed = Probed::new()?;
    let times = in_turn(
        ROUNDS,
        &mut [
            &mut || Ok(probed.time(UNTOUCHED, CALLS)),
            &mut || Ok(probed.time(JUMPED, CALLS)),
            &mut || Ok(probed.time(BROKEN, TRAPS)),
        ],
    )?;
    let [untouched, jumped, broken] = times
        .into_iter()
        .map(Samples::from_iter)
        .collect::<Vec<_>>()
        .try_into()
        .ok()
        .context("three were measured")?;
    let (by_jump, by_breakpoint) = (jumped.less(&untouched), broken.less(&untouched));
    Ok(vec![
        Row::new(
            "a probe with an empty action, by a jump, added",
            "ns",
            by_jump.clone(),
        )
        .bound(Bound::AtMost(4.0))
        .note(format!("aim 2; {THEIRS}")),
        Row::new("… by a breakpoint, added", "ns", by_breakpoint.clone()),
        Row::new(
            "… that is, of the jump's cost",
            "×",
            by_breakpoint.over(&by_jump),
        )
        .bound(Bound::AtLeast(100.0))
        .note("theirs: 15"),
    ])
}

// ---- recorded ----

fn recorded(paths: &Paths, program: &Path) -> Result<Vec<Row>> {
    let plain =
        |words: &[&str]| Ok::<_, anyhow::Error>(run(Command::new(program).args(words))?.printed);
    let traced = |probe: &str, words: &[&str]| -> Result<Printed> {
        let options = ["--probe", probe, "--max-size", "16M"];
        Ok(paths.record(&options, program, words)?.printed)
    };
    let clocks = |probe: &str| -> Result<Samples> {
        let clocks = rounds(|| {
            let (with, without) = (traced(probe, &["few"])?, plain(&["few"])?);
            Ok((with.get("call")? - without.get("call")?) / without.get("clock_read")?)
        })?;
        Ok(Samples::from_iter(clocks))
    };
    let added = |probe: &str, name: &str| -> Result<(Samples, Samples)> {
        let both = rounds(|| {
            let (with, without) = (traced(probe, &["seldom"])?, plain(&["seldom"])?);
            let cycles = with.get(name)? - without.get(name)?;
            Ok((cycles, cycles / without.get("cycles_per_ns")?))
        })?;
        Ok(both.into_iter().unzip::<_, _, Vec<f64>, Vec<f64>>())
            .map(|(cycles, ns)| (Samples::from_iter(cycles), Samples::from_iter(ns)))
    };
    let (_, by_breakpoint) = added("breakpoint target fetch $di $si", "call")?;
    let (in_probe, _) = added("breakpoint direct_probe", "direct_probe")?;
    Ok(vec![
        Row::new(
            "a probe that fetches two registers, recorded, added",
            "× clock",
            clocks("target fetch $di $si")?,
        )
        .bound(Bound::AtMost(1.4))
        .note(THEIRS),
        Row::new("… by a breakpoint", "ns", by_breakpoint),
        Row::new(
            "a probe that fetches nothing, recorded, added",
            "× clock",
            clocks("target")?,
        ),
        Row::new(
            "a probe where a function returns, with its calls, recorded, added",
            "× clock",
            clocks("return target fetch $ax")?,
        )
        .note("theirs: 350 ns by a jump, 1,210 ns by a breakpoint"),
        Row::new(
            "a marker with a probe that takes its values, and a breakpoint there, added by that",
            "cycles",
            in_probe,
        )
        .note("theirs, of kernel markers: 4,178"),
    ])
}

// ---- bytes ----

/// The memory of one more probe: its detour, its unwind rules, and the data to remove it.
fn bytes() -> Result<Row> {
    const BASE: u64 = 0x5555_5555_4000;
    const UNDO: usize = 48;
    let of = |count: u64| -> Result<usize> {
        let mut block = BlockBuilder::new(BASE + (1 << 20), BASE, 0, 0, 1 << 20);
        for index in 0..count {
            detour(&mut block, BASE + (2 << 20) + 64 * index)?;
        }
        Ok(block.finish(&vec![0; UNDO * count as usize])?.bytes.len())
    };
    const MANY: u64 = 64;
    let one = (of(2 * MANY)? - of(MANY)?) as f64 / MANY as f64;
    Ok(
        Row::once("a probe of two registers, generated", "bytes", one)
            .note("theirs: about 200; by a breakpoint 16 more, in the handler's list"),
    )
}
