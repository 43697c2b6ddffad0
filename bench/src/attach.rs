//! Attaching to a running process: the time until it is traced, the pauses of its threads, the cost of a call, and the
//! effect after detaching.

use crate::programs::Programs;
use crate::resident::{Kept, Resident};
use crate::run::{Paths, remove};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use nopal_serve::Client;
use nopal_trace::Trace;
use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const SITES: usize = 50_000;

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let sqlite = programs.resident("sqlite")?;
    let many = programs.resident("many")?;
    let mut rows = beginning(paths, &sqlite)?;
    for (threads, limit) in [(4, 10.0), (100, 40.0)] {
        rows.extend(pauses(paths, &sqlite, threads, limit)?);
    }
    rows.push(pair(paths, &sqlite)?);
    rows.extend(many_sites(paths, &many)?);
    rows.extend(what_is_left(paths, &sqlite)?);
    Ok(rows)
}

/// The time from the command to the first record.
fn beginning(paths: &Paths, program: &Path) -> Result<Vec<Row>> {
    let resident = Resident::start(program, 0, 1)?;
    let cold = paths.directory.join("cold-cache");
    let functions = Cell::new(0);
    let first = |fresh: bool| -> Result<f64> {
        if fresh {
            remove(&cold)?;
        }
        remove(&paths.trace())?;
        let mut command = Command::new(&paths.nopal);
        command
            .env("XDG_CACHE_HOME", &cold)
            .args(["attach", "--for", "100ms", "-o"])
            .arg(paths.trace())
            .arg(resident.process.to_string());
        let start = monotonic();
        let mut tool = Kept::spawn(&mut command)?;
        ensure!(tool.0.wait()?.success(), "nopal attach has failed");
        let trace = Trace::open(&paths.trace())?;
        functions.set(trace.sites().count());
        let threads = trace.threads();
        let begins = threads.iter().map(|thread| thread.begin);
        let begin = begins.min().context("nothing was recorded")?;
        Ok((trace.clocks().monotonic_ns(begin) as f64 - start) / 1e6)
    };
    let mut fresh = Vec::new();
    let mut cached = Vec::new();
    for _ in 0..ROUNDS {
        fresh.push(first(true)?);
        cached.push(first(false)?);
    }
    let row = |what: &str, times: Vec<f64>, limit| {
        let note = format!("{} functions", functions.get());
        Row::new(what, "ms", times.into_iter().collect())
            .bound(Bound::AtMost(limit))
            .note(note)
    };
    Ok(vec![
        row(
            "attach to SQLite, busy: command to first record",
            fresh,
            100.0,
        ),
        row("the same, plans cached", cached, 30.0),
    ])
}

/// The pauses of threads: the longest gap that they see in the clock meanwhile, less the longest in as much time
/// before.
fn pauses(paths: &Paths, program: &Path, threads: u32, limit: f64) -> Result<Vec<Row>> {
    // One thread works, and the first waits for questions.
    let mut resident = Resident::start(program, threads - 2, 1)?;
    let (mut usual, mut attaching, mut detaching) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        resident.request("gap")?;
        let start = Instant::now();
        let tool = resident.attach(paths, &[])?;
        let time = start.elapsed();
        attaching.push(resident.request("gap")? / 1e6);
        tool.end()?;
        detaching.push(resident.request("gap")? / 1e6);
        std::thread::sleep(time);
        usual.push(resident.request("gap")? / 1e6);
    }
    let [usual, attaching, detaching] = [usual, attaching, detaching].map(Samples::from_iter);
    let row = |what: String, gaps: &Samples| {
        let note = format!(
            "longest gap {:.1} ms (least {:.1}), untraced {:.1} ms (least {:.1})",
            gaps.median(),
            gaps.lowest(),
            usual.median(),
            usual.lowest()
        );
        Row::new(what, "ms", gaps.less(&usual)).note(note)
    };
    let attached = format!("longest pause while attaching, {threads} threads");
    let detached = format!("longest pause while detaching, {threads} threads");
    Ok(vec![
        row(attached, &attaching).bound(Bound::AtMost(limit)),
        row(detached, &detaching),
    ])
}

/// The cost of a recorded call, in an attached process and in a launched one.
fn pair(paths: &Paths, program: &Path) -> Result<Row> {
    const CHOICE: [&str; 2] = ["-F", "empty"];
    let (mut attached, mut launched) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut resident = Resident::start(program, 0, 0)?;
        let tool = resident.attach(paths, &CHOICE)?;
        attached.push(resident.request("call")?);
        tool.end()?;
        let mut resident = Resident::recorded(paths, &CHOICE, program, 0, 0)?;
        launched.push(resident.request("call")?);
        resident.end()?;
    }
    let [attached, launched] = [attached, launched].map(Samples::from_iter);
    let note = format!(
        "{:.1} ns a call, launched {:.1} ns",
        attached.lowest(),
        launched.lowest()
    );
    Ok(Row::new(
        "recorded pair, attached over launched",
        "×",
        attached.over(&launched),
    )
    .bound(Bound::AtMost(1.05))
    .note(note))
}

/// The time of a recorded function over that of one that does the same and is not recorded.
pub fn uniform(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let mut resident = Resident::start(&programs.resident("many")?, 0, 0)?;
    let tool = resident.attach(paths, &["-F", "empty"])?;
    let mut client = Client::connect(resident.process)?;
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (ratios, command) in ratios.iter_mut().zip(["uniform off", "uniform on"]) {
            client.command(command)?;
            ratios.push(resident.request("call")? / resident.request("other")?);
        }
    }
    tool.end()?;
    let [off, on] = ratios.map(Samples::from_iter);
    Ok(vec![
        Row::new("a recorded function over one of equal work", "×", off),
        Row::new("the same, `uniform on`", "×", on)
            .bound(Bound::AtMost(1.1))
            .note("theirs: roughly the same, traced or not"),
    ])
}

fn many_sites(paths: &Paths, program: &Path) -> Result<Vec<Row>> {
    let mut resident = Resident::start(program, 1, 1)?;
    let tool = resident.attach(paths, &["-F", "empty"])?;
    let mut client = Client::connect(resident.process)?;
    client.command("reset")?;
    client.command("start")?;
    let mut command = |resident: &mut Resident, text: &str| -> Result<(f64, f64)> {
        resident.request("gap")?;
        let start = Instant::now();
        client.command(text)?;
        let time = start.elapsed().as_secs_f64() * 1e3;
        Ok((time, resident.request("gap")? / 1e6))
    };
    let mut times: [Vec<f64>; 4] = Default::default();
    let mut gaps: [Vec<f64>; 4] = Default::default();
    let commands = [
        "trace f_* new all",
        "trace all on",
        "trace all off",
        "trace all remove",
    ];
    for _ in 0..ROUNDS {
        for (index, text) in commands.iter().enumerate() {
            let (time, gap) = command(&mut resident, text)?;
            times[index].push(time);
            gaps[index].push(gap);
        }
    }
    tool.end()?;
    let [inserting, on, off, removing] = times.map(Samples::from_iter);
    let [inserted, _, _, removed] = gaps.map(Samples::from_iter);
    let note = |time: &Samples| format!("the command takes {:.1} ms", time.median());
    Ok(vec![
        Row::new(
            format!("{SITES} sites inserted: longest gap"),
            "ms",
            inserted,
        )
        .bound(Bound::AtMost(30.0))
        .note(note(&inserting)),
        Row::new(format!("{SITES} sites switched on"), "ms", on).bound(Bound::AtMost(2.0)),
        Row::new(format!("{SITES} sites switched off"), "ms", off).bound(Bound::AtMost(2.0)),
        Row::new(format!("{SITES} sites removed: longest gap"), "ms", removed)
            .bound(Bound::AtMost(30.0))
            .note(note(&removing)),
    ])
}

/// The time of the same work after all functions were recorded, relative to that before.
fn what_is_left(paths: &Paths, program: &Path) -> Result<Vec<Row>> {
    let mut resident = Resident::start(program, 0, 0)?;
    let (mut before, mut reset, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        before.push(resident.request("work")?);
        let tool = resident.attach(paths, &[])?;
        resident.request("work")?;
        Client::connect(resident.process)?.command("reset")?;
        std::thread::sleep(Duration::from_millis(50));
        reset.push(resident.request("work")?);
        tool.end()?;
        after.push(resident.request("work")?);
    }
    let [before, reset, after] = [before, reset, after].map(Samples::from_iter);
    let row = |what: &str, times: &Samples| {
        let note = format!(
            "{:.1} µs, before {:.1} µs",
            times.lowest() / 1e3,
            before.lowest() / 1e3
        );
        Row::new(what, "×", times.over(&before))
            .bound(Bound::AtMost(1.02))
            .note(note)
    };
    Ok(vec![
        row("SQLite after `reset`, over before", &reset),
        row("SQLite after detaching, over before", &after),
    ])
}

/// The time in nanoseconds, by the clock of traces.
fn monotonic() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
