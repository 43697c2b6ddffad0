//! The cost of markers: reproduces the tables of Linux Kernel Markers 0.19. The original figures, from a Pentium 4, are
//! in the notes.

use crate::programs::Programs;
use crate::run::{Paths, Printed, run};
use crate::samples::Samples;
use crate::steps;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use nopal_symbols::{Image, MARKER_NOP, Switch};
use std::collections::BTreeMap;
use std::ops::Range;
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
            "… with an empty probe, and no values",
            added("bare_general", "empty")?,
            "40.08, two values in registers",
        ),
        row(
            "… two values on the stack, added to that",
            added("empty_general", "bare_general")?,
            "8.03, from registers to the stack",
        ),
        row(
            "… taken from the stack by the probe, added to that",
            added("direct_general", "empty_general")?,
            "0.89; 2.74 as variable arguments",
        ),
        row(
            "probe at a function's entry (nopal_probe_at), empty, added to a call",
            added("empty_at", "call")?,
            "",
        ),
        row(
            "… that takes two arguments from registers, added to that",
            added("direct_at", "empty_at")?,
            "",
        ),
        row(
            "generic marker with an empty probe of the program's own",
            added("generic_general", "empty")?,
            "",
        ),
        row(
            "marker with an empty probe, all signals blocked",
            added("blocked_general", "empty")?,
            "48.11, preemption off meanwhile",
        ),
        row(
            "… signals not blocked",
            added("empty_general", "empty")?,
            "29.63, preemption on",
        ),
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
    for (marker, what, theirs) in [
        ("NOPAL_MARK", "marker", ["6", "32"]),
        ("NOPAL_MARK_GENERIC", "generic marker", ["11", "32"]),
    ] {
        rows.extend(sizes(&paths.directory, marker, what, theirs)?);
    }
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
            "a marker without values, with an empty probe",
            "bare_general",
            "empty",
            "",
        ),
        (
            "a generic marker with an empty probe",
            "generic_general",
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

/// Bytes that a marker of two values adds to a function.
fn sizes(directory: &Path, marker: &str, what: &str, theirs: [&str; 2]) -> Result<Vec<Row>> {
    let source = source(directory, marker)?;
    let code = code_bytes(directory, &source)?;
    let row =
        |part: &str, bytes: u64| Row::once(format!("{what}: bytes {part}"), "bytes", bytes as f64);
    let likely = row("on the likely path", code.likely);
    let unlikely = row("on the unlikely path", code.unlikely);
    let own = format!(
        "theirs: {}; {} of these return from the function",
        theirs[1], code.own_end
    );
    let mut rows = vec![
        likely.note(format!("theirs: {}", theirs[0])),
        unlikely.note(own),
        row("between these, to align the latter", code.alignment),
    ];
    let sections = sections(directory, &source)?;
    rows.extend(sections.into_iter().map(|(name, bytes)| {
        Row::once(format!("{what}: bytes in section {name}"), "bytes", bytes)
    }));
    Ok(rows)
}

/// The parts of a function that consists of a marker, and returns.
struct CodeBytes {
    likely: u64,
    alignment: u64,
    unlikely: u64,
    /// Its own end, with which the unlikely path closes as well.
    own_end: u64,
}

fn code_bytes(directory: &Path, source: &Path) -> Result<CodeBytes> {
    let file = directory.join("marked.so");
    let linked = |flags: &[&str]| -> Result<(Image, Range<u64>)> {
        run(Command::new("gcc")
            .args(["-O2", "-shared", "-fPIC", "-I"])
            .arg(root().join("include"))
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&file))?;
        let image = Image::open(&file)?;
        let functions = image.functions()?;
        let marked = functions.iter().find(|one| one.name == "marked");
        let marked = marked.context("no function")?;
        let range = marked.address..marked.address + marked.size;
        Ok((image, range))
    };
    let (_, without) = linked(&["-DNOPAL_OFF"])?;
    let (image, with) = linked(&[])?;
    let (markers, _) = image.markers();
    let place = markers[0].places[0];
    let own_end = without.end - without.start;
    let likely = match place.switch {
        Switch::Patched => MARKER_NOP.len() as u64,
        Switch::Tested => test_bytes(&image, with.start)?,
    };
    Ok(CodeBytes {
        likely,
        alignment: place.on - with.start - likely - own_end,
        unlikely: with.end - place.on,
        own_end,
    })
}

/// The bytes of a comparison at `at`, and of the jump behind it.
fn test_bytes(image: &Image, at: u64) -> Result<u64> {
    const LONGEST: usize = 16;
    let code = image.bytes(at, LONGEST).context("no code")?;
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let comparison = decoder.decode();
    let jump = decoder.decode();
    ensure!(
        comparison.mnemonic() == Mnemonic::Cmp && jump.is_jcc_short_or_near(),
        "a generic marker is something else: {comparison:?}, {jump:?}"
    );
    Ok(jump.next_ip() - at)
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
