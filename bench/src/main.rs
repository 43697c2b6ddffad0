//! Measures nopal's speed, beside untraced programs and other tracers, and compares each figure with its bound:
//! `nopal-bench [pairs|sqlite|budget|services|net|start|readers|view|tables|collect|threads|locks|markers|probes|papers|attach|uniform|crowds|control|hackbench|code]…`,
//! all of these by default. `nopal-bench billion` views a trace of 8 GB; `nopal-bench peers [TRACER]…` measures nopal beside the other tracers of the machine, or those
//! named; `nopal-bench kernel` measures its kernel module beside the kernel's tracers.

mod attach;
mod budget;
mod code;
mod collect;
mod control;
mod crowds;
mod hackbench;
mod kernel;
mod locks;
mod lttng;
mod markers;
mod net;
mod pairs;
mod papers;
mod peers;
mod probes;
mod programs;
mod readers;
mod resident;
mod run;
mod samples;
mod services;
mod sqlite;
mod start;
mod steps;
mod table;
mod tables;
mod threads;
mod view;

use anyhow::{Context, Result, anyhow, ensure};
use programs::Programs;
use run::{Paths, remove};
use serde_json::json;
use std::cell::LazyCell;
use table::{HEAD, Row};

fn main() -> Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |group: &str| chosen.is_empty() || chosen.iter().any(|one| one == group);
    let paths = Paths::new()?;
    let programs = Programs::new(&paths.directory);
    if chosen == ["kernel"] {
        return kernel::measure(&paths, &programs);
    }
    // The compilation takes a minute: only the groups that need it start it.
    let binaries = LazyCell::new(|| sqlite::compile(&programs).context("SQLite"));
    let binaries = || binaries.as_ref().map_err(|error| anyhow!("{error:#}"));

    let mut rows: Vec<Row> = Vec::new();
    // If a group cannot be measured, the rows of the others are still printed.
    let mut failures = Vec::new();
    let mut group = |name: &str, measure: &dyn Fn() -> Result<Vec<Row>>| {
        if wanted(name) {
            eprintln!("nopal-bench: {name}");
            match measure() {
                Ok(measured) => rows.extend(measured),
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
        }
    };
    group("pairs", &|| pairs::measure(&paths, &programs));
    group("sqlite", &|| sqlite::measure(&paths, binaries()?));
    group("budget", &|| {
        budget::measure(&paths, &programs, &binaries()?.plain)
    });
    group("services", &|| services::measure(&paths));
    group("net", &|| net::measure(&paths, &programs));
    group("start", &|| start::measure(&paths));
    group("readers", &|| {
        let binaries = binaries()?;
        readers::measure(&paths, &binaries.plain, binaries.mcount.as_deref())
    });
    group("view", &|| view::measure(&paths));
    group("tables", &|| tables::measure(&paths));
    group("collect", &|| collect::measure(&paths));
    group("threads", &|| threads::measure(&paths, &programs));
    group("locks", &|| locks::measure(&paths, &programs));
    group("markers", &|| markers::measure(&paths, &programs));
    group("probes", &|| {
        probes::measure(&paths, &markers::compile(&programs)?)
    });
    group("papers", &|| papers::measure(&paths, &programs));
    group("attach", &|| attach::measure(&paths, &programs));
    group("uniform", &|| attach::uniform(&paths, &programs));
    group("crowds", &|| crowds::measure(&paths, &programs));
    group("control", &|| control::measure(&paths));
    group("hackbench", &|| hackbench::measure(&paths));
    if chosen.iter().any(|one| one == "billion") {
        group("billion", &|| view::measure_many(&paths));
    }
    if chosen.iter().any(|one| one == "peers") {
        group("peers", &|| peers::measure(&paths, &programs, &chosen));
    }
    group("code", &|| code::measure(&binaries()?.plain));

    remove(&paths.trace())?;
    remove(&paths.peer_trace())?;
    let machine = machine();
    // With the notes of all groups, lines would be too long for a terminal: the document has them.
    let cells = table::cells(&rows);
    let results =
        json!({ "machine": machine, "rows": rows.iter().map(Row::json).collect::<Vec<_>>() });
    std::fs::write(
        paths.directory.join("results.json"),
        serde_json::to_string_pretty(&results)? + "\n",
    )?;
    std::fs::write(
        paths.directory.join("results.md"),
        format!("{machine}\n\n{}", table::markdown(&HEAD, &cells)),
    )?;
    let head = if chosen.is_empty() {
        &HEAD[..5]
    } else {
        &HEAD[..]
    };
    println!("{machine}\n\n{}", table::columns(head, &cells));
    let judged: Vec<bool> = rows.iter().filter_map(Row::holds).collect();
    println!(
        "{} of {} bounds hold",
        judged.iter().filter(|holds| **holds).count(),
        judged.len()
    );
    ensure!(failures.is_empty(), "not measured: {}", failures.join("; "));
    Ok(())
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = read("/proc/sys/kernel/osrelease");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = model.map_or("an unknown processor", |(_, model)| model);
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}
