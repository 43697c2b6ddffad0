//! `nopal list kernel`: the functions of the running kernel, and the markers of its modules.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use nopal_analysis::names::printable;
use nopal_analysis::text::{Align, Table, count};
use nopal_kernel::{Device, EXIT_RETURN, Function, Kernel, Marker, Plan, Reason, Span, Verdict};
use nopal_symbols::Selection;
use serde_json::{Value, json};

use super::hexadecimal;
use crate::arguments::List;
use crate::output::{self, finish, width};

/// The module of the kernel's own functions, in globs.
const OWN: &str = "kernel";

/// Why a function is not traced: the tool plans nothing for it, or nopal's module does not agree to the plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Plan(Reason),
    Module(Verdict),
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Why::Plan(reason) => reason.text(),
            Why::Module(verdict) => verdict.text(),
        }
    }
}

struct Refused {
    address: u64,
    end: u64,
    why: Why,
}

pub fn run(list: &List) -> Result<()> {
    ensure!(
        list.probes.is_none(),
        "--probes is for the functions of a program or library"
    );
    let selection = Selection::new(&list.globs, &[])?;
    let kernel = Kernel::read().context("the kernel's functions cannot be listed")?;
    let mut plan = Plan::of(&kernel, |span| chooses(&selection, span));
    let mut device = Device::is_there().then(Device::open).transpose()?;
    let verdicts = device
        .as_mut()
        .map_or(Ok(HashMap::new()), Device::verdicts)?;
    let refused = refused(&mut plan, &verdicts);
    let markers = markers(device, &selection)?;
    let found = !plan.functions.is_empty() || !refused.is_empty() || !markers.is_empty();
    ensure!(found, "no function and no marker of the kernel matches");
    let mut out = output::stdout()?;
    let written = match list.json {
        true => write_json(&mut out, &kernel, &plan, &refused, &markers),
        false => write_markers(&mut out, &markers)
            .and_then(|()| write_text(&mut out, &kernel, &plan, &refused)),
    };
    finish(out, written.map_err(Into::into))
}

/// The functions that the tool refuses, and those that nopal's module does, which leave the plan; in order of their
/// addresses.
fn refused(plan: &mut Plan, verdicts: &HashMap<u64, Verdict>) -> Vec<Refused> {
    let of_plan = plan.refused.iter().map(|refused| Refused {
        address: refused.address,
        end: refused.end,
        why: Why::Plan(refused.reason),
    });
    let mut all: Vec<Refused> = of_plan.collect();
    plan.functions
        .retain(|function| match verdicts.get(&function.address) {
            Some(verdict) if !verdict.is_traced() => {
                all.push(Refused {
                    address: function.address,
                    end: function.end,
                    why: Why::Module(*verdict),
                });
                false
            }
            _ => true,
        });
    all.sort_unstable_by_key(|refused| refused.address);
    all
}

/// The markers of modules, which nopal's module finds.
fn markers(device: Option<Device>, selection: &Selection) -> Result<Vec<Marker>> {
    let Some(mut device) = device else {
        return Ok(Vec::new());
    };
    let mut markers = device.markers()?;
    markers.retain(|marker| marker.is_there && selection.chooses(&[&marker.name], &marker.module));
    Ok(markers)
}

fn chooses(selection: &Selection, span: Span) -> bool {
    let names: Vec<&str> = span.names().map(|symbol| symbol.name).collect();
    let module = span.names().next().map_or("", |symbol| symbol.module);
    selection.chooses(&names, if module.is_empty() { OWN } else { module })
}

/// All names of a function, each with its module.
fn names(kernel: &Kernel, address: u64) -> Vec<(&str, &str)> {
    let span = kernel.symbols.span_at(address);
    let names = span.into_iter().flat_map(|span| span.names());
    names.map(|symbol| (symbol.name, symbol.module)).collect()
}

/// Its name, its other names, and its module.
fn columns(kernel: &Kernel, address: u64) -> [String; 3] {
    let names = names(kernel, address);
    let name = names.first().map_or("", |(name, _)| *name);
    let module = names.first().map_or("", |(_, module)| *module);
    let others: Vec<&str> = names.iter().skip(1).map(|(name, _)| *name).collect();
    [name, &others.join(" "), module].map(printable)
}

/// How many of a function's exits are returns, and how many jumps.
fn exits(plan: &Plan, function: &Function) -> [u64; 2] {
    let exits = plan.exits_of(function);
    let returns = exits
        .iter()
        .filter(|exit| u32::from(exit.kind) == EXIT_RETURN);
    let returns = returns.count() as u64;
    [returns, exits.len() as u64 - returns]
}

fn write_markers(out: &mut dyn Write, markers: &[Marker]) -> io::Result<()> {
    if markers.is_empty() {
        return Ok(());
    }
    let columns = ["marker", "module", "format", "place"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for marker in markers {
        table.row(vec![
            printable(&marker.name),
            printable(&marker.module),
            format!("{:?}", marker.format),
            format!("{}:{}", printable(&marker.file), marker.line),
        ]);
    }
    table.write(out, width())?;
    writeln!(out)
}

fn write_text(
    out: &mut dyn Write,
    kernel: &Kernel,
    plan: &Plan,
    refused: &[Refused],
) -> io::Result<()> {
    let mut table = Table::new(&[
        ("address", Align::Right),
        ("size", Align::Right),
        ("returns", Align::Right),
        ("tail jumps", Align::Right),
        ("function", Align::Left),
        ("module", Align::Left),
        ("also", Align::Left),
    ]);
    let mut sums = [0; 2];
    for function in &plan.functions {
        let [name, others, module] = columns(kernel, function.address);
        let [returns, jumps] = exits(plan, function);
        sums = [sums[0] + returns, sums[1] + jumps];
        table.row(vec![
            hexadecimal(function.address),
            (function.end - function.address).to_string(),
            returns.to_string(),
            jumps.to_string(),
            name,
            module,
            others,
        ]);
    }
    table.write(out, width())?;
    let reasons = write_refused(out, kernel, refused)?;
    if !reasons.is_empty() {
        let mut table = Table::new(&[("refused", Align::Right), ("why", Align::Left)]);
        for (reason, number) in &reasons {
            table.row(vec![count(*number), reason.text().into()]);
        }
        writeln!(out)?;
        table.write(out, width())?;
    }
    let [traced, refused] = [plan.functions.len(), refused.len()].map(|it| count(it as u64));
    let [returns, jumps] = sums.map(count);
    writeln!(
        out,
        "\n{}: {traced} functions can be traced ({returns} returns, {jumps} tail jumps), {refused} refused",
        release()
    )
}

fn write_refused(
    out: &mut dyn Write,
    kernel: &Kernel,
    all: &[Refused],
) -> io::Result<BTreeMap<Why, u64>> {
    let mut table = Table::new(&[
        ("address", Align::Right),
        ("size", Align::Right),
        ("refused", Align::Left),
        ("module", Align::Left),
        ("why", Align::Left),
    ]);
    let mut reasons: BTreeMap<Why, u64> = BTreeMap::new();
    for refused in all {
        let [name, _, module] = columns(kernel, refused.address);
        table.row(vec![
            hexadecimal(refused.address),
            (refused.end - refused.address).to_string(),
            name,
            module,
            refused.why.text().into(),
        ]);
        *reasons.entry(refused.why).or_default() += 1;
    }
    if !all.is_empty() {
        writeln!(out)?;
        table.write(out, width())?;
    }
    Ok(reasons)
}

fn write_json(
    out: &mut dyn Write,
    kernel: &Kernel,
    plan: &Plan,
    refused: &[Refused],
    markers: &[Marker],
) -> io::Result<()> {
    let described = |address: u64, end: u64, more: Value| -> Value {
        let [name, others, module] = columns(kernel, address);
        let others: Vec<&str> = others.split_whitespace().collect();
        let mut it = json!({"function": name, "also": others, "module": module, "address": address,
            "size": end - address});
        if let (Value::Object(it), Value::Object(more)) = (&mut it, more) {
            it.extend(more);
        }
        it
    };
    let function = |function: &Function| -> Value {
        let [returns, jumps] = exits(plan, function);
        let more = json!({"returns": returns, "tail_jumps": jumps});
        described(function.address, function.end, more)
    };
    let describe = |refused: &Refused| -> Value {
        let more = json!({"reason": refused.why.text()});
        described(refused.address, refused.end, more)
    };
    let marker = |marker: &Marker| -> Value {
        json!({"marker": marker.name, "module": marker.module, "format": marker.format, "file": marker.file,
            "line": marker.line})
    };
    let whole = json!({
        "kernel": release(),
        "functions": plan.functions.iter().map(function).collect::<Vec<_>>(),
        "refused": refused.iter().map(describe).collect::<Vec<_>>(),
        "markers": markers.iter().map(marker).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *out, &whole).map_err(io::Error::from)?;
    writeln!(out)
}

/// `Linux 6.1.0-56-amd64`
fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", printable(release.trim()))
}
