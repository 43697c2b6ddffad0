//! The cost of recording a call: of an empty function, in a recursion, and below untraced callers.

use crate::programs::{Programs, is_installed};
use crate::run::{Paths, Printed, remove, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

const ROUNDS: usize = 7;
const SLICES: &str = "50";
const CALLS: &str = "20000";
const EMPTY_CALLS: u64 = 50 * 20_000;
const FIB_CALLS: u64 = 7_049_155;

const PAIR: Bound = Bound::AtMost(1.25);
const DEEP: Bound = Bound::AtMost(1.35);

/// Otherwise sibling calls would be jumps, and fib a loop.
const PLAIN: [&str; 2] = ["-fno-optimize-sibling-calls", "-fno-inline-functions"];
/// The recorder of the kernel's module, in a program: at a fixed address, and with interrupts on.
const RECORDER: [&str; 8] = [
    "-mno-red-zone",
    "-fno-pie",
    "-no-pie",
    "-fcf-protection=none",
    "-Dcli=nop",
    "-Wa,--noexecstack",
    "-I",
    concat!(env!("CARGO_MANIFEST_DIR"), "/programs/kernel_headers"),
];
const RUNTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime");
const CHOICE: [&str; 7] = ["--block", "-F", "empty", "-F", "leaf", "-F", "fib"];

struct Variant {
    name: &'static str,
    rounds: Vec<Printed>,
}

impl Variant {
    fn samples(&self, what: &str) -> Result<Samples> {
        self.rounds
            .iter()
            .map(|printed| printed.get(what))
            .collect::<Result<Samples>>()
    }
}

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let compile = |compiler: &str, name: &str, options: &[&str]| {
        programs.compile(compiler, "pair", name, &[&PLAIN, options].concat())
    };
    let plain = compile("gcc", "pair", &[])?;
    let nops = compile("gcc", "pair-nops", &["-fpatchable-function-entry=5"])?;
    // -pg when linking would start a profile.
    let fentry = [
        "-pg",
        "-mfentry",
        "-mnop-mcount",
        "-fno-pie",
        "-no-pie",
        "-nostartfiles",
        "-l:crt1.o",
    ];
    let fentry = compile(
        "gcc",
        "pair-fentry",
        &[&fentry[..], &["-l:crti.o", "-l:crtn.o"]].concat(),
    )?;

    let core = format!("-I{RUNTIME}/core");
    let recorder = format!("{RUNTIME}/port/linux_kernel/record.S");
    let recorder = programs.compile(
        "gcc",
        "kernel_pair",
        "kernel-pair",
        &[&RECORDER[..], &[&core, &recorder]].concat(),
    )?;

    let mut untraced = || alone(&plain);
    let mut of_kernel = || alone(&recorder);
    let mut traced = || traced(paths, &[], &plain);
    let mut ordered = || self::traced(paths, &["--ordered"], &plain);
    let mut untraced_nops = || alone(&nops);
    let mut traced_nops = || self::traced(paths, &[], &nops);
    let mut untraced_fentry = || alone(&fentry);
    let mut traced_fentry = || self::traced(paths, &[], &fentry);
    let mut runs: Vec<&mut dyn FnMut() -> Result<Printed>> = vec![
        &mut untraced,
        &mut traced,
        &mut ordered,
        &mut untraced_nops,
        &mut traced_nops,
        &mut untraced_fentry,
        &mut traced_fentry,
        &mut of_kernel,
    ];
    let mut names = vec![
        "untraced",
        "nopal",
        "nopal --ordered",
        "nops",
        "nopal nops",
        "fentry",
        "nopal fentry",
        "kernel",
    ];

    let pg = compile("gcc", "pair-pg", &["-pg"])?;
    let mut uftrace = || Ok(paths.uftrace(&[], &pg, &[SLICES, CALLS])?.printed);
    let mut uftrace_nops = || {
        Ok(paths
            .uftrace(&["-P", "empty"], &nops, &[SLICES, CALLS])?
            .printed)
    };
    if is_installed("uftrace") {
        names.extend(["uftrace -pg", "uftrace -P"]);
        runs.extend([
            &mut uftrace as &mut dyn FnMut() -> Result<Printed>,
            &mut uftrace_nops,
        ]);
    }
    let xray = compile(
        "clang",
        "pair-xray",
        &["-fxray-instrument", "-fxray-instruction-threshold=1"],
    )
    .ok();
    let mut flight = || xray_flight(paths, xray.as_deref().unwrap_or(&plain));
    if xray.is_some() {
        names.push("XRay");
        runs.push(&mut flight);
    }

    let results = in_turn(ROUNDS, &mut runs)?;
    let variants: Vec<Variant> = names
        .into_iter()
        .zip(results)
        .map(|(name, rounds)| Variant { name, rounds })
        .collect();
    rows(&variants)
}

fn rows(variants: &[Variant]) -> Result<Vec<Row>> {
    let samples = |variant: &str, what: &str| match variants.iter().find(|one| one.name == variant)
    {
        Some(variant) => variant.samples(what),
        None => Ok(Samples::default()),
    };
    let clock = samples("untraced", "clock")?;
    let ratio = |what: &str, traced: &str, untraced: &str, label: &str, bound: Bound| {
        let added = samples(traced, what)?.less(&samples(untraced, what)?);
        let note = format!(
            "{:.1} ns added to {:.1} ns; two rdtsc: {:.1} ns",
            added.median(),
            samples(untraced, what)?.median(),
            clock.median()
        );
        anyhow::Ok(
            Row::new(label, "× 2 rdtsc", added.over(&clock))
                .bound(bound)
                .note(note),
        )
    };
    let mut rows = vec![
        ratio(
            "empty",
            "nopal",
            "untraced",
            "recorded pair, empty function, unmodified",
            PAIR,
        )?,
        ratio(
            "empty",
            "nopal nops",
            "nops",
            "the same, -fpatchable-function-entry=5",
            PAIR,
        )?,
        ratio(
            "empty",
            "nopal fentry",
            "fentry",
            "the same, -pg -mfentry -mnop-mcount",
            PAIR,
        )?,
        ratio("fib", "nopal", "untraced", "fib(32), added a call", DEEP)?,
        ratio(
            "leaf",
            "nopal",
            "untraced",
            "leaf under 15 untraced callers, added a call",
            DEEP,
        )?,
    ];
    let [clock_beside, traced, untraced] =
        ["clock", "traced", "untraced"].map(|what| samples("kernel", what));
    let added = traced?.less(&untraced?);
    let note = format!("{:.1} ns added", added.median());
    rows.push(
        Row::new(
            "recorded pair, empty function, by the recorder of the kernel's module",
            "× 2 rdtsc",
            added.over(&clock_beside?),
        )
        .bound(PAIR)
        .note(note),
    );
    let ordered = samples("nopal --ordered", "empty")?.less(&samples("untraced", "empty")?);
    rows.push(
        Row::new(
            "recorded pair, empty function, --ordered",
            "× 2 rdtsc",
            ordered.over(&clock),
        )
        .note(format!("{:.1} ns added", ordered.median())),
    );
    let peers = [
        ("uftrace -pg", "peer: uftrace record, -pg, empty function"),
        (
            "uftrace -P",
            "peer: uftrace record -P, -fpatchable-function-entry=5",
        ),
        (
            "XRay",
            "peer: LLVM XRay, flight data recorder, empty function",
        ),
    ];
    for (peer, label) in peers {
        if variants.iter().any(|variant| variant.name == peer) {
            let added = samples(peer, "empty")?.less(&samples("untraced", "empty")?);
            let note = format!("{:.1} ns added", added.median());
            rows.push(Row::new(label, "× 2 rdtsc", added.over(&clock)).note(note));
        }
    }
    Ok(rows)
}

fn alone(program: &Path) -> Result<Printed> {
    Ok(run(Command::new(program).args([SLICES, CALLS]))?.printed)
}

fn traced(paths: &Paths, options: &[&str], program: &Path) -> Result<Printed> {
    let ran = paths.record(&[&CHOICE, options].concat(), program, &[SLICES, CALLS])?;
    let lost = paths.lost()?;
    ensure!(
        lost == 0,
        "{lost} events were lost: the figure would be too good"
    );
    let calls = paths.calls()?;
    for (function, expected) in [
        ("empty", EMPTY_CALLS),
        ("leaf", EMPTY_CALLS),
        ("fib", FIB_CALLS),
    ] {
        let counted = calls.get(function).copied().unwrap_or(0);
        ensure!(
            counted == expected,
            "{function}: {counted} calls recorded, {expected} made"
        );
    }
    Ok(ran.printed)
}

/// Records every call, however short.
fn xray_flight(paths: &Paths, program: &Path) -> Result<Printed> {
    let directory = paths.peer_trace();
    remove(&directory)?;
    std::fs::create_dir_all(&directory)?;
    let log = directory.join("log.");
    let options = format!(
        "patch_premain=true xray_mode=xray-fdr verbosity=0 xray_logfile_base={}",
        log.display()
    );
    let mut command = Command::new(program);
    command
        .env("XRAY_OPTIONS", options)
        .env("XRAY_FDR_OPTIONS", "func_duration_threshold_us=0");
    Ok(run(command.args([SLICES, CALLS]))?.printed)
}
