//! `nopal ctl kernel`: commands for nopal's module in the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result};
use nopal_analysis::names::printable;
use nopal_analysis::text::{Align, Table, count};
use nopal_kernel::{Device, Loaded, Symbols, Verdict};
use nopal_record::KernelProbe;

use crate::output::{self, width};

/// The tool's own command: the module cannot find the functions itself.
const LOAD: &str = "load";
/// Chooses the tracer whose worst case a device shows.
const LATENCY: &str = "latency ";
const WORST: &str = "/dev/nopal_latency";
/// Commands whose answers are in the state.
const QUESTIONS: [&str; 2] = ["query ", "testtracein "];

pub fn run(commands: Option<&str>) -> Result<()> {
    let mut device = Device::open()?;
    let mut out = output::stdout()?;
    let Some(commands) = commands else {
        let written = out.write_all(device.state()?.as_bytes());
        return output::finish(out, written.map_err(Into::into));
    };
    for line in commands.lines() {
        match line.trim() {
            LOAD => write(&mut out, &device.load(true)?)?,
            command if let Some(probe) = probe_of(command) => {
                KernelProbe::parsed(probe, &Symbols::read()?)?.make(&mut device)?;
            }
            command => {
                device.command(&format!("{command}\n"))?;
                if QUESTIONS.iter().any(|query| command.starts_with(query)) {
                    answer(&device.state()?, &mut out)?;
                } else if command.starts_with(LATENCY) {
                    out.write_all(&fs::read(WORST).context(WORST)?)?;
                }
            }
        }
    }
    output::finish(out, Ok(()))
}

/// The text of a probe in a command that makes one. The tool works out its values, since the module cannot.
fn probe_of(command: &str) -> Option<&str> {
    let probe = command.strip_prefix("probe ")?;
    nopal_control::probe(probe).is_ok().then_some(probe)
}

/// Prints the comments of the state that were asked for.
fn answer(state: &str, out: &mut dyn Write) -> Result<()> {
    for line in state.lines().filter_map(|line| line.strip_prefix('#')) {
        let address = line.split(' ').next().unwrap_or_default();
        if address.len() >= 8 && u64::from_str_radix(address, 16).is_ok() {
            writeln!(out, "{}", printable(line))?;
        }
    }
    Ok(())
}

fn write(out: &mut dyn Write, loaded: &Loaded) -> io::Result<()> {
    let Loaded { plan, verdicts, .. } = loaded;
    let traced = verdicts.iter().filter(|verdict| verdict.is_traced());
    let mut refused: BTreeMap<Verdict, u64> = BTreeMap::new();
    let columns = [("refused", Align::Left), ("why", Align::Left)];
    let mut table = Table::new(&columns);
    for (function, verdict) in plan.functions.iter().zip(verdicts) {
        if !verdict.is_traced() {
            let symbol = loaded.kernel.symbols.at(function.address);
            let name = symbol.map_or("", |symbol| symbol.name);
            table.row(vec![printable(name), verdict.text().into()]);
            *refused.entry(*verdict).or_default() += 1;
        }
    }
    if !refused.is_empty() {
        table.write(out, width())?;
        writeln!(out)?;
    }
    let (traced, by_module) = (
        (loaded.known + traced.count()) as u64,
        refused.values().sum(),
    );
    writeln!(
        out,
        "{} functions of the kernel can be traced; {} refused by nopal's module, {} before (`nopal list kernel` says \
         which and why)",
        count(traced),
        count(by_module),
        count(plan.refused.len() as u64)
    )
}
