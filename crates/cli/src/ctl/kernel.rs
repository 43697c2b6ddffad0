//! `nopal ctl kernel`: commands for nopal's module in the kernel.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use anyhow::Result;
use nopal_analysis::names::printable;
use nopal_analysis::text::{Align, Table, count};
use nopal_kernel::{Device, Kernel, Plan, Verdict};

use crate::output;

/// The tool's own command: the module cannot find the functions itself.
const LOAD: &str = "load";

pub fn run(commands: Option<&str>) -> Result<()> {
    let mut device = Device::open()?;
    let mut out = output::stdout()?;
    let Some(commands) = commands else {
        let written = out.write_all(device.state()?.as_bytes());
        return output::finish(out, written.map_err(Into::into));
    };
    for line in commands.lines() {
        match line.trim() {
            LOAD => load(&mut device, &mut out)?,
            command => device.command(&format!("{command}\n"))?,
        }
    }
    output::finish(out, Ok(()))
}

fn load(device: &mut Device, out: &mut dyn Write) -> Result<()> {
    let kernel = Kernel::read()?;
    let known: HashSet<u64> = device.sites()?.into_iter().filter(|at| *at != 0).collect();
    let plan = Plan::of(&kernel, |span| !known.contains(&span.address));
    let verdicts = device.upload(&plan)?;
    Ok(write(out, &kernel, &plan, &verdicts, known.len() as u64)?)
}

fn write(
    out: &mut dyn Write,
    kernel: &Kernel,
    plan: &Plan,
    verdicts: &[Verdict],
    known: u64,
) -> io::Result<()> {
    let traced = verdicts.iter().filter(|verdict| verdict.is_traced());
    let mut refused: BTreeMap<Verdict, u64> = BTreeMap::new();
    let columns = [("refused", Align::Left), ("why", Align::Left)];
    let mut table = Table::new(&columns);
    for (function, verdict) in plan.functions.iter().zip(verdicts) {
        if !verdict.is_traced() {
            let symbol = kernel.symbols.at(function.address);
            let name = symbol.map_or("", |symbol| symbol.name);
            table.row(vec![printable(name), verdict.text().into()]);
            *refused.entry(*verdict).or_default() += 1;
        }
    }
    if !refused.is_empty() {
        table.write(out, usize::MAX)?;
        writeln!(out)?;
    }
    let (traced, by_module) = (known + traced.count() as u64, refused.values().sum());
    writeln!(
        out,
        "{} functions of the kernel can be traced; {} refused by nopal's module, {} before (`nopal list kernel` says \
         which and why)",
        count(traced),
        count(by_module),
        count(plan.refused.len() as u64)
    )
}
