//! `nopal list`: the functions of a file, or of the kernel, that can be traced, and those that cannot.

mod kernel;
mod probes;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nopal_analysis::names::{Style, printable};
use nopal_analysis::text::{Align, Table, count, several};
use nopal_plan::{EntriesOnly, How, Plan, Refused, Site, VectorUse, vector_use};
use nopal_serve::{Access, Client};
use nopal_symbols::{Argument, BadMarker, Image, Marker, Probe, Switch};
use serde_json::{Value, json};

use crate::arguments::List;
use crate::output::{self, finish, width};
use crate::program;

pub fn run(list: &List) -> Result<()> {
    if list.program == "kernel" {
        return kernel::run(list);
    }
    ensure!(
        list.globs.is_empty(),
        "a glob goes with `nopal list kernel`"
    );
    let process = process(&list.program);
    let files = match process {
        Some(process) => loaded(process)?,
        None => {
            let path = program::find(&list.program)?;
            let image = Image::open(&path)?;
            vec![(path, image)]
        }
    };
    let mut out = output::stdout()?;
    if let Some(function) = &list.probes {
        return probes::run(out, &files, function, list.json);
    }
    let mut all = Vec::with_capacity(files.len());
    let mut written = Ok(());
    for (index, (path, image)) in files.iter().enumerate() {
        let plan = Plan::make(image).with_context(|| path.display().to_string())?;
        let (good, bad) = image.markers();
        let markers = Markers {
            good,
            bad,
            probes: image.probes(),
            general: image
                .general_probes()
                .into_iter()
                .map(|address| (address, vector_use(image, address)))
                .collect(),
        };
        if list.json {
            all.push(described(path, &plan, &Names(image), &markers));
        } else {
            let between = if index > 0 { "\n" } else { "" };
            written = written
                .and_then(|()| out.write_all(between.as_bytes()))
                .and_then(|()| write_text(&mut out, path, &plan, &Names(image), &markers));
        }
    }
    if list.json {
        let whole = match process {
            Some(process) => {
                if let Some(program) = all.first_mut() {
                    program["waiting_markers"] = waiting(process).into();
                }
                Value::from(all)
            }
            None => all.pop().unwrap_or_default(),
        };
        written = serde_json::to_writer_pretty(&mut out, &whole).map_err(io::Error::from);
        written = written.and_then(|()| writeln!(out));
    }
    if let Some(process) = process.filter(|_| !list.json) {
        written = written.and_then(|()| write_waiting(&mut out, process));
    }
    finish(out, written.map_err(Into::into))
}

fn write_waiting(out: &mut dyn Write, process: i32) -> io::Result<()> {
    let mut all = waiting(process).into_iter();
    all.try_for_each(|name| writeln!(out, "mark {name} waits for its library"))
}

/// The markers that the session of a process waits for, as its control file tells in comments.
fn waiting(process: i32) -> Vec<String> {
    let access = Access {
        read: true,
        ..Access::default()
    };
    let text = Client::connect(process).and_then(|mut client| {
        client.open("ctl", access)?;
        client.read_all()
    });
    // The process is not traced, or is traced by another user.
    let Ok(text) = text else { return Vec::new() };
    let text = String::from_utf8_lossy(&text);
    let name = |line: &str| {
        let name = line.strip_prefix("#mark ")?;
        Some(printable(name.strip_suffix(" waits for its library")?))
    };
    text.lines().filter_map(name).collect()
}

fn process(word: &OsStr) -> Option<i32> {
    let number = word.to_str()?.parse().ok();
    number.filter(|process| *process > 0)
}

/// The files with code that a process has mapped and that can be read, as a recording finds them.
fn loaded(process: i32) -> Result<Vec<(PathBuf, Image)>> {
    let modules = nopal_record::with_code(process)?.into_iter();
    let files: Vec<(PathBuf, Image)> = modules
        .filter_map(|module| {
            let path = nopal_record::openable(process, &module);
            let image = Image::open_as(&path, &module.path).ok()?;
            Some((module.path, image))
        })
        .collect();
    ensure!(
        !files.is_empty(),
        "process {process} has no file with code that can be read"
    );
    Ok(files)
}

struct Names<'a>(&'a Image);

impl Names<'_> {
    fn of(&self, address: u64) -> String {
        let function = self.0.function_at(address).ok().flatten();
        function.map_or_else(
            || format!("{address:#x}"),
            |function| Style::global().name(&function.name),
        )
    }
}

/// The kind of a function's window, in one or two words.
fn how(site: &Site) -> &'static str {
    match site.how {
        How::Jump => "jump",
        How::PatchableEntry => "patchable entry",
        How::Fentry => "fentry",
        How::XraySled => "xray sled",
        How::ShortJump => "short jump",
    }
}

fn write_text(
    out: &mut dyn Write,
    path: &Path,
    plan: &Plan,
    names: &Names,
    markers: &Markers,
) -> io::Result<()> {
    let columns = [
        ("address", Align::Right),
        ("size", Align::Right),
        ("how", Align::Left),
        ("function", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for site in &plan.sites {
        table.row(vec![
            hexadecimal(site.address),
            site.size.to_string(),
            how(site).into(),
            names.of(site.address),
        ]);
    }
    table.write(out, width())?;
    write_entries_only(out, plan, names)?;
    if !plan.refused.is_empty() {
        let columns = [
            ("address", Align::Right),
            ("size", Align::Right),
            ("refused", Align::Left),
            ("why", Align::Left),
        ];
        let mut table = Table::new(&columns);
        for refused in &plan.refused {
            let reason = refused.reason.text().to_string();
            table.row(vec![
                hexadecimal(refused.address),
                refused.size.to_string(),
                names.of(refused.address),
                reason,
            ]);
        }
        writeln!(out)?;
        table.write(out, width())?;
    }
    write_markers(out, markers)?;
    write_general_probes(out, &markers.general, names)?;
    write_probes(out, &markers.probes)?;
    let path = printable(&path.display().to_string());
    write!(out, "\n{path}: {}", summary(plan))?;
    for (number, one, more) in [
        (markers.good.len(), "marker", "markers"),
        (markers.probes.len(), "USDT probe", "USDT probes"),
    ] {
        if number > 0 {
            write!(out, "; {}", several(number as u64, one, more))?;
        }
    }
    writeln!(out)?;
    let runtime = nopal_record::runtime_of(names.0, &names.0.imports());
    if plan.copies_stacks || runtime.is_some() {
        let why = nopal_record::handles_stacks_because(runtime);
        writeln!(out, "{path}: {why}")?;
    }
    if let Err(refusal) = nopal_record::ensure_not_go(names.0, &path) {
        writeln!(out, "{refusal}")?;
    }
    Ok(())
}

/// The functions of which only entries are recorded, whichever other files the process has loaded.
fn write_entries_only(out: &mut dyn Write, plan: &Plan, names: &Names) -> io::Result<()> {
    let columns = [
        ("address", Align::Right),
        ("entries only", Align::Left),
        ("why", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let mut rows = 0;
    for site in &plan.sites {
        if let Some(why) = entries_only(plan, site) {
            table.row(vec![hexadecimal(site.address), names.of(site.address), why]);
            rows += 1;
        }
    }
    if rows > 0 {
        writeln!(out)?;
        table.write(out, width())?;
    }
    Ok(())
}

fn entries_only(plan: &Plan, site: &Site) -> Option<String> {
    if site.walks_frames {
        return Some("follows frame pointers to its callers' return addresses".to_owned());
    }
    plan.entries_only(site, plan.walks_frames)
        .map(EntriesOnly::text)
}

/// The markers and static probes of a file, and the functions that it declares as `NOPAL_PROBE`.
struct Markers {
    good: Vec<Marker>,
    bad: Vec<BadMarker>,
    probes: Vec<Probe>,
    general: Vec<(u64, Option<VectorUse>)>,
}

fn write_markers(out: &mut dyn Write, markers: &Markers) -> io::Result<()> {
    if !markers.good.is_empty() {
        let columns = ["marker", "how", "format", "place"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for marker in &markers.good {
            table.row(vec![
                marker.name.clone(),
                switch(marker).into(),
                format!("{:?}", marker.format),
                format!("{}:{}", marker.file, marker.line),
            ]);
        }
        writeln!(out)?;
        table.write(out, width())?;
    }
    if !markers.bad.is_empty() {
        let columns = ["refused marker", "place", "why"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for marker in &markers.bad {
            table.row(vec![
                marker.name.clone(),
                format!("{}:{}", marker.file, marker.line),
                marker.why.clone(),
            ]);
        }
        writeln!(out)?;
        table.write(out, width())?;
    }
    Ok(())
}

fn write_general_probes(
    out: &mut dyn Write,
    probes: &[(u64, Option<VectorUse>)],
    names: &Names,
) -> io::Result<()> {
    if probes.is_empty() {
        return Ok(());
    }
    let columns = ["address", "NOPAL_PROBE", "registers that it changes"];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for (address, used) in probes {
        let registers = used.map_or_else(
            || "general ones only".to_owned(),
            |used| vectors(used, names),
        );
        table.row(vec![hexadecimal(*address), names.of(*address), registers]);
    }
    writeln!(out)?;
    table.write(out, width())
}

fn vectors(used: VectorUse, names: &Names) -> String {
    match used {
        VectorUse::Instruction { address } => {
            format!("others: {} does, at {address:#x}", names.of(address))
        }
        VectorUse::Elsewhere { address } => {
            format!("unknown: it calls a function of another file, at {address:#x}")
        }
        VectorUse::Unknown { address } => format!(
            "unknown: {} calls or jumps through a pointer, at {address:#x}",
            names.of(address)
        ),
    }
}

fn write_probes(out: &mut dyn Write, probes: &[Probe]) -> io::Result<()> {
    if probes.is_empty() {
        return Ok(());
    }
    let columns = ["address", "semaphore", "USDT probe", "arguments"];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for probe in probes {
        let arguments: Vec<String> = probe.arguments.iter().map(Argument::to_string).collect();
        table.row(vec![
            hexadecimal(probe.address),
            probe.semaphore.map_or_else(|| "none".into(), hexadecimal),
            format!("{}:{}", probe.provider, probe.name),
            arguments.join(", "),
        ]);
    }
    writeln!(out)?;
    table.write(out, width())
}

fn switch(marker: &Marker) -> &'static str {
    match marker.places.first().map(|place| place.switch) {
        Some(Switch::Tested) => "test",
        _ => "nop",
    }
}

fn hexadecimal(address: u64) -> String {
    format!("{address:#x}")
}

/// `7,000 functions can be traced (6,990 jump, 10 fentry), 5 of them by their entries only, 90 refused`.
fn summary(plan: &Plan) -> String {
    let mut ways: BTreeMap<&str, u64> = BTreeMap::new();
    for site in &plan.sites {
        *ways.entry(how(site)).or_default() += 1;
    }
    let ways: Vec<String> = ways
        .iter()
        .map(|(way, &number)| format!("{} {way}", count(number)))
        .collect();
    let ways = if ways.is_empty() {
        String::new()
    } else {
        format!(" ({})", ways.join(", "))
    };
    let traced = several(
        plan.sites.len() as u64,
        "function can be traced",
        "functions can be traced",
    );
    let refused = count(plan.refused.len() as u64);
    let entries = plan
        .sites
        .iter()
        .filter_map(|site| entries_only(plan, site));
    let entries = match entries.count() as u64 {
        0 => String::new(),
        number => format!(", {} of them with entries only", count(number)),
    };
    format!("{traced}{ways}{entries}, {refused} refused")
}

fn described(path: &Path, plan: &Plan, names: &Names, markers: &Markers) -> Value {
    let function = |site: &Site| -> Value {
        json!({"function": names.of(site.address), "address": site.address, "size": site.size, "how": how(site),
            "entries_only": entries_only(plan, site)})
    };
    let refused = |refused: &Refused| -> Value {
        let (address, reason) = (refused.address, refused.reason.text());
        json!({"function": names.of(address), "address": address, "size": refused.size, "reason": reason})
    };
    let marker = |marker: &Marker| -> Value {
        let fields: Vec<&str> = marker
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect();
        let addresses: Vec<u64> = marker.places.iter().map(|place| place.address).collect();
        json!({"name": marker.name, "format": marker.format, "fields": fields, "file": marker.file,
            "line": marker.line, "how": switch(marker), "addresses": addresses})
    };
    let bad_marker = |marker: &BadMarker| -> Value {
        json!({"name": marker.name, "file": marker.file, "line": marker.line, "reason": marker.why})
    };
    let general = |(address, used): &(u64, Option<VectorUse>)| -> Value {
        json!({"function": names.of(*address), "address": address, "general_registers_only": used.is_none(),
            "reason": used.map(|used| vectors(used, names))})
    };
    let probe = |probe: &Probe| -> Value {
        let arguments: Vec<String> = probe.arguments.iter().map(Argument::to_string).collect();
        json!({"provider": probe.provider, "name": probe.name, "address": probe.address,
            "semaphore": probe.semaphore, "arguments": arguments})
    };
    json!({
        "program": path.display().to_string(),
        "identity": plan.identity,
        "functions": plan.sites.iter().map(function).collect::<Vec<_>>(),
        "refused": plan.refused.iter().map(refused).collect::<Vec<_>>(),
        "markers": markers.good.iter().map(marker).collect::<Vec<_>>(),
        "refused_markers": markers.bad.iter().map(bad_marker).collect::<Vec<_>>(),
        "nopal_probes": markers.general.iter().map(general).collect::<Vec<_>>(),
        "usdt": markers.probes.iter().map(probe).collect::<Vec<_>>(),
    })
}
