//! The cost of markers: reproduces the tables of Linux Kernel Markers 0.19. The original figures, from a Pentium 4, are
//! in the notes.

use crate::programs::Programs;
use crate::run::{Paths, Printed, run};
use crate::samples::Samples;
use crate::steps;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 3;

pub fn measure(paths: &Paths, programs: &Programs) -> Result<Vec<Row>> {
    let program = compile(programs)?;
    let rounds = |options: Option<&[&str]>| -> Result<Vec<Printed>> {
        let round = |_| match options {
            None => run(&mut Command::new(&program)).map(|ran| ran.printed),
            Some(options) => Ok(paths.record(options, &program, &[])?.printed),
        };
        (0..ROUNDS).map(round).collect()
    };
    let plain = rounds(None)?;
    let recorded = rounds(Some(&["-M", "*on", "--max-size", "16M"]))?;
    let of = |rounds: &[Printed], what: &dyn Fn(&Printed) -> Result<f64>| -> Result<Samples> {
        let all: Result<Vec<f64>> = rounds.iter().map(what).collect();
        Ok(Samples::from_iter(all?))
    };
    let cycles = |name: &'static str| of(&plain, &move |printed| printed.get(name));
    let added = |name: &'static str, base: &'static str| {
        of(&plain, &move |printed| {
            Ok(printed.get(name)? - printed.get(base)?)
        })
    };
    let ns = |name: &'static str| {
        of(&plain, &move |printed| {
            Ok((printed.get(name)? - printed.get("call")?) / printed.get("cycles_per_ns")?)
        })
    };
    let clocks = |name: &'static str| {
        of(&recorded, &move |printed| {
            Ok(printed.get(name)? / printed.get("clock_read")?)
        })
    };
    let row = |what: &str, samples: Samples, theirs: &str| {
        Row::new(what, "cycles", samples).note(format!("theirs: {theirs}"))
    };
    let mut rows = vec![
        row("empty loop, a turn", cycles("empty")?, "1.50"),
        row(
            "… a marker that is off, added",
            added("off", "empty")?,
            "2.50, an immediate value tested",
        ),
        row(
            "… a generic marker that is off, added",
            added("generic_off", "empty")?,
            "1.17",
        ),
        row("loop of memcpy of 4 KiB, a turn", cycles("copy")?, "1298"),
        row(
            "… a marker that is off, added",
            added("copy_off", "copy")?,
            "0.074",
        ),
        row(
            "… a generic marker that is off, added",
            added("copy_generic", "copy")?,
            "2.12",
        ),
        row("reading the clock", cycles("clock_read")?, ""),
        row(
            "marker with an empty probe of the program's own",
            added("empty_general", "empty")?,
            "48",
        )
        .bound(Bound::AtMost(48.0)),
        row(
            "… with a probe that takes its values",
            added("direct_general", "empty")?,
            "49",
        )
        .bound(Bound::AtMost(49.0)),
        row(
            "… with a probe that parses the format",
            added("parsing_general", "empty")?,
            "92",
        )
        .bound(Bound::AtMost(92.0)),
        row(
            "marker with an ordinary function, empty",
            added("empty_probe", "empty")?,
            "",
        )
        .bound(Bound::AtMost(130.0)),
        row(
            "… that takes its values",
            added("direct_probe", "empty")?,
            "",
        )
        .bound(Bound::AtMost(130.0)),
        row(
            "… that parses the format by functions of libc",
            added("parsing_probe", "empty")?,
            "",
        ),
        row(
            "marker with variable arguments, read by its format, with an empty probe",
            added("variable_probe", "empty")?,
            "96",
        ),
        Row::new(
            "function hook, empty, one function, added",
            "ns",
            ns("hook")?,
        )
        .bound(Bound::AtMost(6.0)),
        Row::new("… two hooks, through the loop", "ns", ns("two_hooks")?),
        Row::new("marker on, two values, recorded", "× clock", clocks("on")?)
            .bound(Bound::AtMost(1.2)),
        Row::new(
            "generic marker on, two values, recorded",
            "× clock",
            clocks("generic_on")?,
        ),
        Row::new(
            "marker on, a number and 16 letters, recorded",
            "× clock",
            clocks("text_on")?,
        ),
        Row::new(
            "marker with variable arguments on, two values, recorded",
            "× clock",
            clocks("variable_on")?,
        ),
    ];
    rows.extend(instructions(&program)?);
    rows.extend(sizes(&paths.directory)?);
    rows.extend(generic_sizes(&paths.directory)?);
    Ok(rows)
}

pub fn compile(programs: &Programs) -> Result<PathBuf> {
    let include = format!("-I{}", root().join("include").display());
    programs.compile("gcc", "markers", "markers", &[&include, &library()?])
}

/// The path of libnopal, to be linked.
pub fn library() -> Result<String> {
    let root = root();
    let made = Command::new("make")
        .args(["--silent", "library"])
        .current_dir(&root)
        .status()
        .context("cannot run make")?;
    ensure!(made.success(), "make library failed");
    Ok(root.join("target/library/libnopal.a").display().to_string())
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The instructions that a marker adds to a loop when they run. The papers have cycles only.
fn instructions(program: &Path) -> Result<Vec<Row>> {
    let turns = steps::of_turns(Command::new(program).arg("counted"))?;
    let turn = |name: &str| turns.get(name).copied().with_context(|| name.to_owned());
    let names = [
        ("a marker that is off", "off", "empty", "3"),
        ("a generic marker that is off", "generic_off", "empty", "3"),
        (
            "a marker with an empty probe of the program's own",
            "empty_general",
            "empty",
            "",
        ),
        (
            "… with a probe that takes its values",
            "direct_general",
            "empty",
            "",
        ),
        (
            "… with a probe that parses the format",
            "parsing_general",
            "empty",
            "",
        ),
        (
            "a marker with an ordinary function, empty",
            "empty_probe",
            "empty",
            "",
        ),
        ("… that takes its values", "direct_probe", "empty", ""),
        (
            "… that parses the format by functions of libc",
            "parsing_probe",
            "empty",
            "",
        ),
        (
            "a marker with variable arguments, with an empty function",
            "variable_probe",
            "empty",
            "",
        ),
        ("function hook, empty", "hook", "call", ""),
        ("… two hooks, through the loop", "two_hooks", "call", ""),
    ];
    let row = |(what, name, without, theirs): (&str, &str, &str, &str)| {
        let added = turn(name)? - turn(without)?;
        let row = Row::once(format!("{what}: added"), "instructions", added);
        Ok(match theirs {
            "" => row,
            theirs => row.note(format!("theirs, in their listing: {theirs}")),
        })
    };
    names.into_iter().map(row).collect()
}

/// A function with a marker of two values.
fn source(directory: &Path, marker: &str) -> Result<PathBuf> {
    let source = directory.join("marked.c");
    let text = format!(
        "#include <nopal.h>\nint marked(void) {{ {marker}(mark, \"%d %p\", 1, (void *)0); return -1; }}\n"
    );
    std::fs::write(&source, text)?;
    Ok(source)
}

/// Bytes of a marker that is tested, beside those of one that is patched.
fn generic_sizes(directory: &Path) -> Result<Vec<Row>> {
    let patched = sections(directory, &source(directory, "NOPAL_MARK")?)?;
    let tested = sections(directory, &source(directory, "NOPAL_MARK_GENERIC")?)?;
    let of = |all: &[(String, f64)], section: &str| {
        let mut all = all.iter().filter(|(name, _)| name == section);
        all.next().map_or(0.0, |(_, bytes)| *bytes)
    };
    let row = |section: &str, theirs: &str| {
        let more = of(&tested, section) - of(&patched, section);
        let what = format!("a generic marker's bytes in section {section}, more than the other's");
        Row::once(what, "bytes", more).note(format!("theirs: {theirs}"))
    };
    Ok(vec![
        row(".text", "5, of 11 on the likely path"),
        row(".bss.nopal", "1, the flag"),
    ])
}

/// Bytes that a marker of two values adds to a function.
fn sizes(directory: &Path) -> Result<Vec<Row>> {
    let source = source(directory, "NOPAL_MARK")?;
    let size = |flags: &[&str]| -> Result<f64> {
        let object = directory.join("marked.o");
        run(Command::new("gcc")
            .args(["-O2", "-c", "-I"])
            .arg(root().join("include"))
            .args(flags)
            .arg(&source)
            .arg("-o")
            .arg(&object))?;
        let output = Command::new("nm").arg("-S").arg(&object).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.ends_with(" marked"));
        let size = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(u64::from_str_radix(size.context("nm tells no size")?, 16)? as f64)
    };
    const NOP: f64 = 5.0;
    let unlikely = size(&[])? - size(&["-DNOPAL_OFF"])? - NOP;
    let sections = sections(directory, &source)?;
    let mut rows = vec![
        Row::once(
            "a marker's bytes on the likely path, with up to 5 more to align it",
            "bytes",
            NOP,
        )
        .note("theirs: 6, generic 11"),
        Row::once("… and on the unlikely path", "bytes", unlikely).note("theirs: 32"),
    ];
    rows.extend(
        sections
            .into_iter()
            .map(|(name, bytes)| Row::once(format!("… in section {name}"), "bytes", bytes)),
    );
    Ok(rows)
}

/// Its bytes in each section of an object.
fn sections(directory: &Path, source: &Path) -> Result<Vec<(String, f64)>> {
    let sizes = |flags: &[&str]| -> Result<BTreeMap<String, f64>> {
        let object = directory.join("marked.o");
        run(Command::new("gcc")
            .args(["-O2", "-c", "-I"])
            .arg(root().join("include"))
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&object))?;
        let output = Command::new("size").arg("-A").arg(&object).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next().filter(|name| name.starts_with('.'))?;
            Some((name.to_owned(), words.next()?.parse().ok()?))
        };
        Ok(text.lines().filter_map(row).collect())
    };
    let (with, without) = (sizes(&[])?, sizes(&["-DNOPAL_OFF"])?);
    let added = with.into_iter().map(|(name, bytes)| {
        let before = without.get(&name).copied().unwrap_or(0.0);
        (name, bytes - before)
    });
    Ok(added.filter(|(_, bytes)| *bytes != 0.0).collect())
}
