//! Large numbers: of threads at once, of libraries loaded one after the other, of programs executed by a program.

use crate::programs::Programs;
use crate::resident::{Kept, wait_until};
use crate::run::{Paths, Ran, remove, run};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 5;
const THREADS: &str = "5000";
const TIMES: f64 = 300.0;
const CHILDREN: f64 = 200.0;
/// Prints the numbers of 200 processes that wait until their input ends.
const SERVERS: &str = "import os, sys
ids = [os.getpid()]
while len(ids) < 200:
    child = os.fork()
    if child == 0:
        break
    ids.append(child)
else:
    print(*ids, flush=True)
sys.stdin.read()";

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let crowd = programs.compile("gcc", "crowds", "crowds", &[])?;
    let library = paths.directory.join("libcrowds.so");
    run(Command::new("gcc")
        .args(["-O2", "-shared", "-fPIC", "-DLIBRARY", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/crowds.c")))?;
    let library = library.to_str().context("a plain path")?;
    let libraries = ["libraries", library, "300"];
    let mut rows = vec![
        threads(paths, &crowd)?,
        loading(paths, &crowd, &libraries)?,
        children(paths, &crowd)?,
    ];
    rows.extend(sleepers(paths, &crowd)?);
    rows.extend(servers(paths)?);
    Ok(rows)
}

/// The same program untraced and traced, in turn.
fn both(paths: &Paths, program: &Path, words: &[&str], options: &[&str]) -> Result<[Vec<Ran>; 2]> {
    let mut ran = in_turn(
        ROUNDS,
        &mut [&mut || run(Command::new(program).args(words)), &mut || {
            paths.record(options, program, words)
        }],
    )?
    .into_iter();
    let mut next = || ran.next().context("a measurement is missing");
    Ok([next()?, next()?])
}

fn milliseconds(ran: &[Ran]) -> Samples {
    ran.iter().map(|ran| ran.time.as_secs_f64() * 1e3).collect()
}

fn threads(paths: &Paths, program: &Path) -> Result<Row> {
    let [untraced, traced] = both(paths, program, &["threads", THREADS], &[])?;
    let [untraced, traced] = [untraced, traced].map(|ran| milliseconds(&ran));
    let note = format!(
        "{:.0} ms, untraced {:.0} ms",
        traced.median(),
        untraced.median()
    );
    let what = format!("{THREADS} threads that live at once, launched");
    Ok(Row::new(what, "× untraced", traced.over(&untraced))
        .bound(Bound::AtMost(3.0))
        .note(note))
}

fn loading(paths: &Paths, program: &Path, words: &[&str]) -> Result<Row> {
    let [untraced, traced] = both(paths, program, words, &["--libs"])?;
    let each = |ran: &[Ran]| -> Result<Samples> {
        let time = |ran: &Ran| Ok(ran.printed.get("each")? / 1e6);
        ran.iter().map(time).collect()
    };
    let (untraced, traced) = (each(&untraced)?, each(&traced)?);
    let note = format!(
        "{:.2} ms, untraced {:.2} ms, of {TIMES} in turn",
        traced.median(),
        untraced.median()
    );
    Ok(Row::new(
        "added to dlopen and dlclose of a library loaded before",
        "ms",
        traced.less(&untraced),
    )
    .bound(Bound::AtMost(2.0))
    .note(note))
}

fn children(paths: &Paths, program: &Path) -> Result<Row> {
    let words = ["children", "200", "/bin/true"];
    let [untraced, traced] = both(paths, program, &words, &[])?;
    let each = |ran: &[Ran]| -> Samples {
        let time = |ran: &Ran| ran.processors.as_secs_f64() * 1e3 / CHILDREN;
        ran.iter().map(time).collect()
    };
    let (untraced, traced) = (each(&untraced), each(&traced));
    let note = format!(
        "{:.1} ms, untraced {:.1} ms, one after the other",
        traced.median(),
        untraced.median()
    );
    Ok(Row::new(
        "added to a child of /bin/true, time of processors",
        "ms",
        traced.less(&untraced),
    )
    .bound(Bound::AtMost(8.0))
    .note(note))
}

/// Attaching to threads that mostly sleep, and leaving them: the time of the command, and the longest gaps that a
/// thread sees.
fn sleepers(paths: &Paths, program: &Path) -> Result<Vec<Row>> {
    let mut child = Command::new(program)
        .args(["sleepers", THREADS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let process = child.id();
    let mut asks = child.stdin.take().context("it has an input")?;
    let mut answers = BufReader::new(child.stdout.take().context("it has an output")?).lines();
    let _sleepers = Kept(child);
    let mut gap = || -> Result<f64> {
        writeln!(asks, "gap")?;
        let answer = answers.next().context("it has ended")??;
        Ok(answer.parse::<f64>()? / 1e6)
    };
    gap()?;
    let (mut times, mut gaps, mut last_gaps) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        remove(&paths.trace())?;
        gap()?;
        let start = Instant::now();
        let mut command = Command::new(&paths.nopal);
        command
            .args(["attach", "-o"])
            .arg(paths.trace())
            .arg(process.to_string());
        let tool = Kept::spawn(&mut command)?;
        wait_until("the process is traced", || {
            nopal_serve::is_traced(process as i32)
        })?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        gaps.push(gap()?);
        tool.end()?;
        last_gaps.push(gap()?);
    }
    let what = format!("attach to {THREADS} threads that sleep");
    let pause = format!("{what}: longest gap of another thread");
    let last_pause = format!("leave {THREADS} threads that sleep: longest gap of another thread");
    Ok(vec![
        Row::new(what, "ms", times.into_iter().collect()).bound(Bound::AtMost(2000.0)),
        Row::new(pause, "ms", gaps.into_iter().collect()).bound(Bound::AtMost(200.0)),
        Row::new(last_pause, "ms", last_gaps.into_iter().collect()).bound(Bound::AtMost(200.0)),
    ])
}

/// Attaching to 200 processes of one program with all functions, as to a server's, and leaving them.
fn servers(paths: &Paths) -> Result<Vec<Row>> {
    let child = Command::new("/usr/bin/python3")
        .args(["-c", SERVERS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut servers = Kept(child);
    let mut numbers = String::new();
    let answers = servers.0.stdout.take().context("it has an output")?;
    BufReader::new(answers).read_line(&mut numbers)?;
    let (mut attaching, mut leaving) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        remove(&paths.trace())?;
        let start = Instant::now();
        let mut command = Command::new(&paths.nopal);
        command
            .args(["attach", "-o"])
            .arg(paths.trace())
            .args(numbers.split_whitespace())
            .stderr(Stdio::piped());
        let mut tool = Kept(command.spawn()?);
        // The pipe stays open until the tool has ended, which writes more into it.
        let mut said = BufReader::new(tool.0.stderr.take().context("it has an output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        ensure!(line.contains("tracing 200 processes"), "{line}");
        attaching.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        tool.end()?;
        leaving.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let of = "200 processes of python3, all functions";
    Ok(vec![
        Row::new(
            format!("attach to {of}"),
            "ms",
            attaching.into_iter().collect(),
        )
        .bound(Bound::AtMost(2000.0)),
        Row::new(format!("leave {of}"), "ms", leaving.into_iter().collect()),
    ])
}
