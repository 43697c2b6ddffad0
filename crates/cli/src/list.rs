//! `nopal list`: what can be traced in a file, and what not.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use nopal_analysis::text::{Align, Table, count};
use nopal_plan::{How, Plan, Refused, Site};
use nopal_symbols::{BadMarker, Image, Marker, Switch, demangle};
use serde_json::{Value, json};

use crate::arguments::List;
use crate::output::{self, finish};
use crate::program;

pub fn run(list: &List) -> Result<()> {
    let path = program::find(&list.program)?;
    let image = Image::open(&path)?;
    let plan = Plan::make(&image).with_context(|| path.display().to_string())?;
    let names = Names(&image);
    let markers = image.markers();
    let mut out = output::stdout()?;
    let written = match list.json {
        true => write_json(&mut out, &path, &plan, &names, &markers),
        false => write_text(&mut out, &path, &plan, &names, &markers),
    };
    finish(out, written.map_err(Into::into))
}

struct Names<'a>(&'a Image);

impl Names<'_> {
    fn of(&self, address: u64) -> String {
        let function = self.0.function_at(address).ok().flatten();
        function.map_or_else(
            || format!("{address:#x}"),
            |function| demangle(&function.name).into_owned(),
        )
    }
}

/// One word or two for how a function is reached.
fn how(site: &Site) -> &'static str {
    match site.how {
        How::Jump => "jump",
        How::PatchableEntry => "patchable entry",
        How::Fentry => "fentry",
        How::XraySled => "xray sled",
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
    table.write(out, usize::MAX)?;
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
        table.write(out, usize::MAX)?;
    }
    write_markers(out, markers)?;
    write!(out, "\n{}: {}", path.display(), summary(plan))?;
    match markers.0.len() {
        0 => writeln!(out),
        number => writeln!(out, "; {} markers", count(number as u64)),
    }
}

/// Markers that can be traced, and those that cannot.
type Markers = (Vec<Marker>, Vec<BadMarker>);

fn write_markers(out: &mut dyn Write, (markers, bad): &Markers) -> io::Result<()> {
    if !markers.is_empty() {
        let columns = ["marker", "how", "format", "place"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for marker in markers {
            table.row(vec![
                marker.name.clone(),
                switch(marker).into(),
                format!("{:?}", marker.format),
                format!("{}:{}", marker.file, marker.line),
            ]);
        }
        writeln!(out)?;
        table.write(out, usize::MAX)?;
    }
    if !bad.is_empty() {
        let columns = ["refused marker", "place", "why"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for marker in bad {
            table.row(vec![
                marker.name.clone(),
                format!("{}:{}", marker.file, marker.line),
                marker.why.clone(),
            ]);
        }
        writeln!(out)?;
        table.write(out, usize::MAX)?;
    }
    Ok(())
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

/// `7,000 functions can be traced (6,990 jump, 10 fentry), 90 refused`.
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
    let [traced, refused] =
        [plan.sites.len(), plan.refused.len()].map(|number| count(number as u64));
    format!("{traced} functions can be traced{ways}, {refused} refused")
}

fn write_json(
    out: &mut dyn Write,
    path: &Path,
    plan: &Plan,
    names: &Names,
    (markers, bad): &Markers,
) -> io::Result<()> {
    let function = |site: &Site| -> Value {
        json!({"function": names.of(site.address), "address": site.address, "size": site.size, "how": how(site)})
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
    let all = json!({
        "program": path.display().to_string(),
        "identity": plan.identity,
        "functions": plan.sites.iter().map(function).collect::<Vec<_>>(),
        "refused": plan.refused.iter().map(refused).collect::<Vec<_>>(),
        "markers": markers.iter().map(marker).collect::<Vec<_>>(),
        "refused_markers": bad.iter().map(bad_marker).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}
