//! Other tables of papers, reproduced: whole programs with markers that are off (Linux Kernel Markers 0.19), text that
//! is changed in place (jump labels), copying in four states (table 3 of Plan 9's devtrace). Also LTTng-UST beside a
//! marker.

use crate::lttng::Daemon;
use crate::markers::{library, root};
use crate::programs::Programs;
use crate::run::{Paths, Printed, remove, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const ROUNDS: usize = 3;

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let mut rows = whole_programs(paths, programs)?;
    rows.extend(pokes(programs)?);
    rows.extend(copying(paths, programs)?);
    rows.extend(lttng(paths, programs)?);
    Ok(rows)
}

pub fn rounds<T>(work: impl Fn() -> Result<T>) -> Result<Vec<T>> {
    (0..ROUNDS).map(|_| work()).collect()
}

/// The ratios of pairs of runs. Both of a pair run one after the other, so that both meet the same machine.
fn compared(with: impl Fn() -> Result<f64>, without: impl Fn() -> Result<f64>) -> Result<Samples> {
    let ratios = rounds(|| Ok(with()? / without()?))?;
    Ok(Samples::from_iter(ratios))
}

// ---- Linux Kernel Markers 0.19: markers that are off ----

fn whole_programs(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
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
    // The build is that of libnopal. It runs make, shells, compilers, assemblers and a linker, which all allocate.
    let built = paths.directory.join("built");
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

// ---- Jump labels: text that is changed in place ----

fn pokes(programs: &Programs) -> Result<Vec<Row>> {
    let include = format!("-I{}", root().join("include").display());
    let program = programs.compile("gcc", "pokes", "pokes", &[&include, &library()?])?;
    let runs = rounds(|| Ok(run(&mut Command::new(&program))?.printed))?;
    let kinds = [
        ("one", "1 place"),
        ("hundred", "100 places"),
        ("many", "50,000 places"),
    ];
    let row = |name: &str, what: &str, to: &str| {
        let times: Result<Vec<f64>> = runs
            .iter()
            .map(|run| run.get(&format!("{name}_{to}")))
            .collect();
        let what =
            format!("{what} switched {to} in place by libnopal, while a thread runs through them");
        Ok(Row::new(what, "ms", Samples::from_iter(times?)))
    };
    let rows = kinds
        .into_iter()
        .flat_map(|(name, what)| [row(name, what, "on"), row(name, what, "off")]);
    rows.collect()
}

// ---- Plan 9's devtrace, table 3 ----

fn copying(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let include = format!("-I{}", root().join("include").display());
    let program = programs.compile("gcc", "copy", "copy", &[&include, &library()?])?;
    let record = |commands: &[&str]| -> Result<Printed> {
        remove(&paths.trace())?;
        let mut command = Command::new(&paths.nopal);
        command
            .args(["record", "-F", "copy_*", "-o"])
            .arg(paths.trace());
        when_ready(command.arg("--").arg(&program), |_| {
            let [state] = commands else { return Ok(()) };
            control(paths, &program, state)
        })
    };
    let none = || when_ready(&mut Command::new(&program), |_| Ok(()));
    let hooked = || when_ready(Command::new(&program).arg("hooked"), |_| Ok(()));
    let off = || record(&["stop"]);
    let on = || record(&[]);
    let states = [
        State {
            name: "hooks that return at once",
            pairs: rounds(|| Ok((hooked()?, none()?)))?,
            theirs: "1.28",
            times: ["4.13", "16.6", "20.7"],
        },
        State {
            name: "off",
            pairs: rounds(|| Ok((off()?, none()?)))?,
            theirs: "1.28",
            times: ["3.87", "16.3", "20.2"],
        },
        State {
            name: "on",
            pairs: rounds(|| Ok((on()?, none()?)))?,
            theirs: "2.23",
            times: ["5.23", "30.1", "35.3"],
        },
    ];
    let mut rows = Vec::new();
    for state in &states {
        for (what, name) in [("a megabyte", "megabyte"), ("a byte", "byte")] {
            let ratios: Result<Vec<f64>> = state
                .pairs
                .iter()
                .map(|(with, without)| Ok(with.get(name)? / without.get(name)?))
                .collect();
            let row = Row::new(
                format!("copying {what} at a time, {}", state.name),
                "× time without",
                Samples::from_iter(ratios?),
            );
            rows.push(row.note(format!("theirs, a megabyte: {}", state.theirs)));
        }
    }
    let without = states.iter().flat_map(|state| &state.pairs);
    let without: Vec<&Printed> = without.map(|(_, without)| without).collect();
    for (what, name) in [
        ("40,000 megabytes", "megabyte"),
        ("a million bytes, one at a time", "byte"),
    ] {
        rows.extend(times(
            what,
            name,
            "nothing",
            &without,
            ["2.94", "12.1", "15.8"],
        )?);
        for state in &states {
            let with: Vec<&Printed> = state.pairs.iter().map(|(with, _)| with).collect();
            rows.extend(times(what, name, state.name, &with, state.times)?);
        }
    }
    Ok(rows)
}

/// A state of the copying program: its runs in that state, each with a plain run beside it.
struct State {
    name: &'static str,
    pairs: Vec<(Printed, Printed)>,
    /// The paper's ratio of the times of a megabyte.
    theirs: &'static str,
    /// The paper's seconds: in the program, in the kernel, and by the clock.
    times: [&'static str; 3],
}

/// The rows of the seconds that copying takes.
fn times(
    what: &str,
    name: &str,
    state: &str,
    runs: &[&Printed],
    theirs: [&str; 3],
) -> Result<Vec<Row>> {
    let times = ["user", "system", "real"].into_iter().zip(theirs);
    let row = |(time, theirs): (&str, &str)| {
        let seconds: Result<Vec<f64>> = runs
            .iter()
            .map(|run| run.get(&format!("{name}_{time}")))
            .collect();
        let what = format!("copying {what}, {state}: {time}");
        let row = Row::new(what, "s", Samples::from_iter(seconds?));
        Ok(row.note(format!("theirs, megabytes: {theirs}")))
    };
    times.map(row).collect()
}

/// Runs a program that says when it is ready and waits for a line, and does some work before it sends the line.
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

/// Sends commands to the session that traces a program.
fn control(paths: &Paths, program: &Path, command: &str) -> Result<()> {
    for process in std::fs::read_dir("/proc")?.flatten() {
        let executable = std::fs::read_link(process.path().join("exe"));
        if executable.is_ok_and(|path| path == program) {
            run(Command::new(&paths.nopal)
                .arg("ctl")
                .arg(process.file_name())
                .arg(command))?;
            return Ok(());
        }
    }
    anyhow::bail!("{} does not run", program.display())
}

// ---- LTTng-UST ----

/// A tracepoint of theirs beside a marker of ours.
pub fn lttng(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let daemon = match Daemon::start(paths) {
        Ok(daemon) => daemon,
        Err(missing) => {
            eprintln!("nopal-bench: no LTTng-UST: {missing:#}");
            return Ok(Vec::new());
        }
    };
    let sources = format!(
        "-I{}",
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("programs")
            .display()
    );
    let program = programs.compile("gcc", "lttng", "lttng", &[&sources, "-llttng-ust", "-ldl"])?;
    let marked = crate::markers::compile(programs)?;
    let measured = rounds(|| {
        daemon.create("nopal_bench:on")?;
        daemon.command(&["start"])?;
        let theirs = run(Command::new(&program).env("LTTNG_HOME", &daemon.home));
        daemon.destroy()?;
        let theirs = theirs?.printed;
        let off = run(Command::new(&program).env("LTTNG_HOME", &daemon.home))?.printed;
        let ours = paths
            .record(&["-M", "on", "--max-size", "16M"], &marked, &["few"])?
            .printed;
        let ours_off = run(Command::new(&marked).arg("few"))?.printed;
        let added = |printed: &Printed, name| {
            Ok::<f64, anyhow::Error>(printed.get(name)? - printed.get("empty")?)
        };
        Ok([
            added(&theirs, "lttng_on")?,
            added(&ours, "on")?,
            added(&off, "lttng_on")?,
            added(&ours_off, "on")?,
        ])
    })?;
    let of = |what: &dyn Fn(&[f64; 4]) -> f64| measured.iter().map(what).collect::<Samples>();
    Ok(vec![
        Row::new(
            "LTTng-UST tracepoint of two values, recorded, added",
            "cycles",
            of(&|[theirs, ..]| *theirs),
        ),
        Row::new(
            "… that is, of a marker's cost",
            "×",
            of(&|[theirs, ours, ..]| theirs / ours),
        )
        .bound(Bound::AtLeast(4.0)),
        Row::new(
            "LTTng-UST tracepoint that is off, added",
            "cycles",
            of(&|[_, _, theirs, _]| *theirs),
        ),
        Row::new(
            "marker that is off, added",
            "cycles",
            of(&|[.., ours]| *ours),
        ),
    ])
}
