//! `nopal list --probes`: the instructions of a function that can be probed.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, bail};
use nopal_analysis::text::{Align, Table};
use nopal_plan::Judged;
use nopal_symbols::{
    Function, Image, demangle, demangle_as, nearest, or_nearest, short, without_parameters,
};
use serde_json::{Value, json};

use crate::output::{finish, width};

/// Lists the probe places of the function, in the first of these files that has it.
pub fn run(
    mut out: impl Write,
    files: &[(PathBuf, Image)],
    wanted: &str,
    as_json: bool,
) -> Result<()> {
    let mut found = None;
    let mut names = Vec::new();
    for (_, image) in files {
        let functions = image.functions()?;
        names.extend(functions.iter().map(|one| &*one.name));
        let function = functions.iter().find(|one| is_called(one, wanted));
        found = found.or(function.map(|function| (image, function)));
    }
    let Some((image, function)) = found else {
        let near = or_nearest(&nearest(names, wanted));
        bail!("no function is named {wanted}{near}")
    };
    let judged = nopal_plan::probes(image, |probes| Ok(probes.of_function(function.address)?))?;
    let written = match as_json {
        true => write_json(&mut out, function, &judged),
        false => write_text(&mut out, function, &judged),
    };
    finish(out, written.map_err(Into::into))
}

fn is_called(function: &Function, wanted: &str) -> bool {
    let mut names = std::iter::once(&function.name).chain(&function.aliases);
    names.any(|name| {
        let demangled = demangle(name);
        name == wanted
            || demangled == wanted
            || without_parameters(&demangled) == wanted
            || demangle_as(name, short) == wanted
    })
}

/// `FUNCTION+0xOFFSET`
fn place(function: &Function, address: u64) -> String {
    match address - function.address {
        0 => function.name.clone(),
        offset => format!("{}+{offset:#x}", function.name),
    }
}

fn write_text(out: &mut dyn Write, function: &Function, judged: &[Judged]) -> io::Result<()> {
    let columns = [
        ("address", Align::Right),
        ("bytes", Align::Right),
        ("probe", Align::Left),
        ("why not", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for one in judged {
        let place = place(function, one.address);
        let (bytes, probe, why) = match &one.site {
            Ok(site) => (site.window.to_string(), place, String::new()),
            Err(reason) if one.breakpoint => (
                "1".to_owned(),
                format!("breakpoint {place}"),
                reason.to_string(),
            ),
            Err(reason) => (String::new(), place, reason.to_string()),
        };
        table.row(vec![format!("{:#x}", one.address), bytes, probe, why]);
    }
    table.write(out, width())
}

fn write_json(out: &mut dyn Write, function: &Function, judged: &[Judged]) -> io::Result<()> {
    let one = |one: &Judged| -> Value {
        let (address, breakpoint) = (one.address, one.breakpoint);
        let place = place(function, address);
        match &one.site {
            Ok(site) => {
                json!({"address": address, "place": place, "bytes": site.window, "breakpoint": breakpoint})
            }
            Err(reason) => {
                json!({"address": address, "place": place, "reason": reason.to_string(), "breakpoint": breakpoint})
            }
        }
    };
    let all: Vec<Value> = judged.iter().map(one).collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}
