//! The other tables of the seeds, made again: whole programs with markers that are off (000), copying in four states
//! (003); and LTTng-UST beside a marker.

use crate::markers::{library, root};
use crate::programs::{Programs, is_installed};
use crate::run::{Places, Printed, remove, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUNDS: usize = 3;

pub fn measure(places: &Places, programs: &Programs) -> Result<Vec<Row>> {
    let mut rows = whole_programs(places, programs)?;
    rows.extend(copying(places, programs)?);
    rows.extend(lttng(places, programs)?);
    Ok(rows)
}

pub fn rounds<T>(work: impl Fn() -> Result<T>) -> Result<Vec<T>> {
    (0..ROUNDS).map(|_| work()).collect()
}

/// One by one, so that both meet the same machine.
fn compared(with: impl Fn() -> Result<f64>, without: impl Fn() -> Result<f64>) -> Result<Samples> {
    let ratios = rounds(|| Ok(with()? / without()?))?;
    Ok(Samples::from_iter(ratios))
}

// ---- 000: markers that are off ----

fn whole_programs(places: &Places, programs: &Programs) -> Result<Vec<Row>> {
    let include = format!("-I{}", root().join("include").display());
    let packets = programs.compile("gcc", "packets", "packets", &[&include])?;
    let plain = programs.compile(
        "gcc",
        "packets",
        "packets_plain",
        &[&include, "-DNOPAL_OFF"],
    )?;
    let rate = |program: &Path| run(&mut Command::new(program))?.printed.get("packets");
    let packets = compared(|| rate(&packets), || rate(&plain))?;

    let shared = ["-shared", "-fPIC", &include];
    let marked = programs.compile("gcc", "allocations", "allocations.so", &shared)?;
    let off = [&shared[..], &["-DNOPAL_OFF"]].concat();
    let plain = programs.compile("gcc", "allocations", "allocations_plain.so", &off)?;
    // All of libnopal: make, shells, compilers, assemblers and a linker, all of which allocate.
    let built = places.directory.join("built");
    let build = |library: &Path| -> Result<f64> {
        let mut make = Command::new("make");
        make.env("LD_PRELOAD", library).current_dir(root());
        make.env_remove("MAKEFLAGS");
        make.args(["--silent", "--always-make", "library"]);
        make.arg(format!("LIBRARY={}", built.display()));
        let mut least = f64::MAX;
        for _ in 0..ROUNDS {
            least = least.min(run(&mut make)?.time.as_secs_f64());
        }
        Ok(least)
    };
    let builds = compared(|| build(&marked), || build(&plain))?;
    Ok(vec![
        Row::new(
            "packets a second on the loopback, with two markers that are off",
            "× without",
            packets,
        )
        .note("theirs: 0.9997"),
        Row::new(
            "a build by make, with markers in malloc and free of all its processes, off",
            "× time without",
            builds,
        )
        .note("theirs, building a kernel: 0.998"),
    ])
}

// ---- 003, table 3 ----

fn copying(places: &Places, programs: &Programs) -> Result<Vec<Row>> {
    let include = format!("-I{}", root().join("include").display());
    let program = programs.compile("gcc", "copy", "copy", &[&include, &library()?])?;
    let record = |commands: &[&str]| -> Result<Printed> {
        remove(&places.trace())?;
        let mut command = Command::new(&places.nopal);
        command
            .args(["record", "-F", "copy_*", "-o"])
            .arg(places.trace());
        when_ready(command.arg("--").arg(&program), |_| {
            let [state] = commands else { return Ok(()) };
            control(places, &program, state)
        })
    };
    let none = || when_ready(&mut Command::new(&program), |_| Ok(()));
    let hooked = || when_ready(Command::new(&program).arg("hooked"), |_| Ok(()));
    let off = || record(&["stop"]);
    let on = || record(&[]);
    let states = [
        (
            "hooks that return at once",
            rounds(|| Ok((hooked()?, none()?)))?,
            "1.28",
        ),
        ("off", rounds(|| Ok((off()?, none()?)))?, "1.28"),
        ("on", rounds(|| Ok((on()?, none()?)))?, "2.23"),
    ];
    let mut rows = Vec::new();
    for (state, pairs, theirs) in states {
        for (what, name) in [("a megabyte", "megabyte"), ("a byte", "byte")] {
            let ratios: Result<Vec<f64>> = pairs
                .iter()
                .map(|(with, without)| Ok(with.get(name)? / without.get(name)?))
                .collect();
            let row = Row::new(
                format!("copying {what} at a time, {state}"),
                "× time without",
                Samples::from_iter(ratios?),
            );
            rows.push(row.note(format!("theirs, a megabyte: {theirs}")));
        }
    }
    Ok(rows)
}

/// Runs a program that says when it is ready and waits for a line, and does something before it gets that.
fn when_ready(command: &mut Command, work: impl FnOnce(&Child) -> Result<()>) -> Result<Printed> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(child.stderr.take().context("no pipe")?);
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        ensure!(
            said.read_line(&mut line)? > 0,
            "{command:?} ended before it was ready"
        );
    }
    let worked = work(&child);
    writeln!(child.stdin.take().context("no pipe")?)?;
    let mut text = String::new();
    child
        .stdout
        .take()
        .context("no pipe")?
        .read_to_string(&mut text)?;
    said.read_to_string(&mut line)?;
    ensure!(child.wait()?.success(), "{command:?}: {line}");
    worked?;
    Ok(Printed::of(&text))
}

/// Has the session that traces a program obey.
fn control(places: &Places, program: &Path, command: &str) -> Result<()> {
    for process in std::fs::read_dir("/proc")?.flatten() {
        let executable = std::fs::read_link(process.path().join("exe"));
        if executable.is_ok_and(|path| path == program) {
            run(Command::new(&places.nopal)
                .arg("ctl")
                .arg(process.file_name())
                .arg(command))?;
            return Ok(());
        }
    }
    anyhow::bail!("{} does not run", program.display())
}

// ---- LTTng-UST ----

/// Its session daemon, which ends with this.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

fn lttng(places: &Places, programs: &Programs) -> Result<Vec<Row>> {
    let header = Path::new("/usr/include/x86_64-linux-gnu/lttng/tracepoint.h");
    if !is_installed("lttng") || !header.exists() {
        eprintln!(
            "nopal-bench: LTTng-UST is not installed: apt-get install lttng-tools liblttng-ust-dev"
        );
        return Ok(Vec::new());
    }
    let sources = format!(
        "-I{}",
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("programs")
            .display()
    );
    let program = programs.compile("gcc", "lttng", "lttng", &[&sources, "-llttng-ust", "-ldl"])?;
    let marked = crate::markers::compile(programs)?;
    let home = places.directory.join("lttng-home");
    std::fs::create_dir_all(&home)?;
    let client = |words: &[&str]| -> Result<()> {
        let mut command = Command::new("lttng");
        // It would start a daemon of its own, which stays.
        command.env("LTTNG_HOME", &home).arg("--no-sessiond");
        run(command.args(words))?;
        Ok(())
    };
    let mut daemon = Command::new("lttng-sessiond");
    daemon.env("LTTNG_HOME", &home).arg("--no-kernel");
    let daemon = Daemon(daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let output = format!("--output={}", places.peer_trace().display());
    let measured = rounds(|| {
        remove(&places.peer_trace())?;
        let mut created = client(&["create", "nopal-bench", &output]);
        for _ in 0..50 {
            if created.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            created = client(&["create", "nopal-bench", &output]);
        }
        created?;
        client(&["enable-event", "-u", "nopal_bench:on"])?;
        client(&["add-context", "-u", "-t", "vtid"])?;
        client(&["start"])?;
        let theirs = run(Command::new(&program).env("LTTNG_HOME", &home));
        client(&["destroy", "nopal-bench"])?;
        let theirs = theirs?.printed;
        let ours = places
            .record(&["-M", "on", "--max-size", "16M"], &marked, &["few"])?
            .printed;
        let added = |printed: &Printed, name| {
            Ok::<f64, anyhow::Error>(printed.get(name)? - printed.get("empty")?)
        };
        Ok((added(&theirs, "lttng_on")?, added(&ours, "on")?))
    })?;
    drop(daemon);
    let theirs = measured.iter().map(|(theirs, _)| *theirs);
    let ratios = measured.iter().map(|(theirs, ours)| theirs / ours);
    Ok(vec![
        Row::new(
            "LTTng-UST tracepoint of two values, recorded, added",
            "cycles",
            Samples::from_iter(theirs),
        ),
        Row::new(
            "… that is, of a marker's cost",
            "×",
            Samples::from_iter(ratios),
        )
        .bound(Bound::AtLeast(4.0)),
    ])
}
