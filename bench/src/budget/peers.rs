//! Other tracers that leave something out to cost less, on the same work: what they cost, and what they know then.

use super::{OPTIONS, ROWS};
use crate::programs::{Programs, is_installed};
use crate::run::{Paths, Ran, output, remove, run};
use crate::samples::{Samples, in_turn};
use crate::table::Row;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const TURNS: usize = 3;
const ROUNDS: &str = "100";
/// The rounds under tracers that make them slow.
const FEW_ROUNDS: &str = "15";
/// uftrace: bytes of the smallest function that it traces.
const SIZE: &str = "500";

/// The processor time of a round after the first second, and the number of functions of which something is known.
struct Sample {
    round: f64,
    functions: f64,
}

fn sample(ran: &Ran, functions: f64) -> Result<Sample> {
    let round = ran.printed.get("processor_then")?;
    Ok(Sample { round, functions })
}

/// The rows of one tracer: what it is, the run that it is compared with, and what the functions' number says.
struct Peer {
    what: &'static str,
    run: usize,
    untraced: usize,
    knows: &'static str,
}

pub fn measure(paths: &Paths, programs: &Programs, program: &Path) -> Result<Vec<Row>> {
    let mut untraced = || sample(&run(Command::new(program).args([ROWS, ROUNDS]))?, 0.0);
    let mut nopal = || {
        let ran = paths.record(&OPTIONS, program, &[ROWS, ROUNDS])?;
        sample(&ran, paths.calls()?.len() as f64)
    };
    let mut uftrace = || {
        let ran = paths.uftrace(&["-P", ".", "-Z", SIZE], program, &[ROWS, FEW_ROUNDS])?;
        sample(&ran, reported_by_uftrace(paths)?)
    };
    let mut perf = || {
        empty(&paths.peer_trace())?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-g", "-F", "4000", "-o"]);
        command.arg(samples_of(paths)).arg(program);
        let ran = run(command.args([ROWS, ROUNDS]))?;
        sample(&ran, sampled_by_perf(paths)?)
    };
    let compiled = compiled(programs);
    let mut by_clang = || {
        let (plain, _) = compiled.as_ref().ok().context("it was not compiled")?;
        sample(&run(Command::new(plain).args([ROWS, ROUNDS]))?, 0.0)
    };
    let mut xray = || {
        let (_, traced) = compiled.as_ref().ok().context("it was not compiled")?;
        empty(&paths.peer_trace())?;
        let log = paths.peer_trace().join("log.");
        let options = format!(
            "patch_premain=true xray_mode=xray-fdr verbosity=0 xray_logfile_base={}",
            log.display()
        );
        let mut command = Command::new(traced);
        command
            .env("XRAY_OPTIONS", options)
            .env("XRAY_FDR_OPTIONS", "func_duration_threshold_us=0");
        let ran = run(command.args([ROWS, FEW_ROUNDS]))?;
        sample(&ran, accounted_by_xray(paths, traced))
    };

    let mut runs: Vec<&mut dyn FnMut() -> Result<Sample>> = vec![&mut untraced, &mut nopal];
    let mut peers = vec![Peer {
        what: "nopal, --budget 5%, then",
        run: 1,
        untraced: 0,
        knows: "functions with calls",
    }];
    let mut rows = Vec::new();
    let mut missing = |name: &str, why: &str| {
        let what = format!("not measured: {name}");
        let why = why.lines().next().unwrap_or_default();
        rows.push(Row::new(what, "", Samples::default()).note(why));
    };
    if is_installed("perf") {
        peers.push(Peer {
            what: "peer: perf record at 4 kHz, with call stacks",
            run: runs.len(),
            untraced: 0,
            knows: "functions by samples, no calls",
        });
        runs.push(&mut perf);
    } else {
        missing("perf record", "apt-get install linux-perf");
    }
    if is_installed("uftrace") {
        peers.push(Peer {
            what: "peer: uftrace record -P . -Z 500 (functions of 500 bytes and more)",
            run: runs.len(),
            untraced: 0,
            knows: "functions with calls",
        });
        runs.push(&mut uftrace);
    } else {
        missing("uftrace", "apt-get install uftrace");
    }
    match &compiled {
        Ok(_) => {
            peers.push(Peer {
                what: "peer: XRay, functions of 200 instructions or with a loop",
                run: runs.len() + 1,
                untraced: runs.len(),
                knows: "functions with calls; 0: it wrote no log, as where the processor's frequency is not told",
            });
            runs.extend([
                &mut by_clang as &mut dyn FnMut() -> Result<Sample>,
                &mut xray,
            ]);
        }
        Err(error) => missing("XRay", &format!("{error:#}")),
    }

    let results = in_turn(TURNS, &mut runs)?;
    let round = |run: usize| -> Samples { results[run].iter().map(|one| one.round).collect() };
    let measured = peers.iter().map(|peer| {
        let percent = |with: f64, without: f64| (with / without - 1.0) * 100.0;
        let added = round(peer.run).with(&round(peer.untraced), percent);
        let functions = results[peer.run].iter().map(|one| one.functions);
        let functions = Samples::from_iter(functions).median();
        let what = format!("{}: added processor time", peer.what);
        Row::new(what, "%", added).note(format!("{functions:.0} {}", peer.knows))
    });
    Ok(measured.chain(rows).collect())
}

/// The program by clang, and the same for XRay with the threshold of its own: functions of 200 instructions, and those with
/// loops.
fn compiled(programs: &Programs) -> Result<(PathBuf, PathBuf)> {
    ensure!(
        is_installed("clang") && is_installed("llvm-xray"),
        "apt-get install clang llvm"
    );
    let plain = programs.sqlite("clang", "sqlite-clang", &[])?;
    let traced = programs.sqlite("clang", "sqlite-xray", &["-fxray-instrument"])?;
    Ok((plain, traced))
}

fn empty(directory: &Path) -> Result<()> {
    remove(directory)?;
    Ok(std::fs::create_dir_all(directory)?)
}

fn samples_of(paths: &Paths) -> PathBuf {
    paths.peer_trace().join("perf.data")
}

/// The number of functions that the last recording of uftrace has calls of.
fn reported_by_uftrace(paths: &Paths) -> Result<f64> {
    let text = output(
        Command::new("uftrace")
            .args(["report", "--no-pager", "-f", "call", "-d"])
            .arg(paths.peer_trace()),
    )?;
    // Each row begins with a number.
    Ok(count(&text, |line| {
        line.trim_start()
            .starts_with(|first: char| first.is_ascii_digit())
    }))
}

fn sampled_by_perf(paths: &Paths) -> Result<f64> {
    let text = output(
        Command::new("perf")
            .args([
                "report",
                "--stdio",
                "--no-children",
                "-g",
                "none",
                "--sort",
                "symbol",
                "-i",
            ])
            .arg(samples_of(paths)),
    )?;
    Ok(count(&text, |line| {
        line.contains("% ") && line.contains("[.]")
    }))
}

/// 0 if no log was written.
fn accounted_by_xray(paths: &Paths, program: &Path) -> f64 {
    let logs = std::fs::read_dir(paths.peer_trace()).into_iter().flatten();
    let Some(log) = logs.flatten().next() else {
        return 0.0;
    };
    let mut command = Command::new("llvm-xray");
    command.args(["account", "-format=csv", "-keep-going", "-instr_map"]);
    let text = output(command.arg(program).arg(log.path())).unwrap_or_default();
    // A heading comes first.
    (count(&text, |_| true) - 1.0).max(0.0)
}

fn count(text: &str, is_row: impl Fn(&str) -> bool) -> f64 {
    text.lines().filter(|line| is_row(line)).count() as f64
}
