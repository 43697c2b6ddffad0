//! Self time that functions may have spent in others of their file that were not recorded.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use nopal_symbols::{Image, calls, has_system_call};
use nopal_trace::{Note, Trace};

use super::functions::Report;
use crate::names::{Function, Names, printable};
use crate::sort;
use crate::text::several;

/// A row is examined if it has at least one part in this many of all self time.
const LEAST_PART: u64 = 100;
/// The most rows that are examined, and the most functions that a list names.
const ROWS: usize = 12;
const NAMED: usize = 2;
/// Shorter functions take no time, and often cannot be recorded.
const LEAST_SIZE: u64 = 16;

/// The functions of a file that have self time and call functions that were not recorded.
#[derive(Default)]
struct Unexplained<'a> {
    functions: Vec<&'a str>,
    self_ns: u64,
    /// The functions that each calls, the largest first.
    missing: Vec<String>,
}

/// A line for each file that was not recorded whole, if the functions with most self time call functions of it that
/// were not and could be, as far as their code shows. Files that are gone, or have changed since, are left out.
/// `refused` tells the addresses of a file's functions that cannot be recorded.
pub fn unexplained(
    trace: &Trace,
    report: &Report,
    refused: impl Fn(&Image) -> HashSet<u64>,
) -> Vec<String> {
    let names = Names::new(trace);
    let functions = names.functions();
    let by_name: HashMap<(&str, &str), &Function> = functions
        .iter()
        .map(|function| ((&*function.name, &*function.module), function))
        .collect();
    let mut recorded: HashMap<&str, HashSet<u64>> = HashMap::new();
    for function in functions {
        let addresses = recorded.entry(&function.path).or_default();
        addresses.insert(function.address);
    }
    let all: u64 = report.rows.iter().map(|row| row.self_ns).sum();
    let is_much = |self_ns: u64| self_ns > 0 && self_ns >= all / LEAST_PART;
    let mut rows: Vec<_> = report.rows.iter().collect();
    rows.retain(|row| is_much(row.self_ns));
    sort::by_key(&mut rows, |row| std::cmp::Reverse(row.self_ns));
    let mut images: HashMap<&str, Option<Image>> = HashMap::new();
    let mut unrecordable: HashMap<&str, HashSet<u64>> = HashMap::new();
    let mut found: Vec<(&str, Unexplained)> = Vec::new();
    for row in rows.into_iter().take(ROWS) {
        let Some(function) = by_name.get(&(&*row.function, &*row.module)) else {
            continue;
        };
        let recorded = &recorded[&*function.path];
        let image = images
            .entry(&function.path)
            .or_insert_with(|| recorded_in_part(trace, &function.path, recorded.len()));
        let Some(image) = image else { continue };
        let mut missing = called(image, function);
        missing.retain(|called| !recorded.contains(&called.address));
        if missing.is_empty() {
            continue;
        }
        let unrecordable = unrecordable.entry(&function.path);
        let unrecordable = unrecordable.or_insert_with(|| refused(image));
        missing.retain(|called| !unrecordable.contains(&called.address));
        if missing.is_empty() {
            continue;
        }
        let at = found.iter().position(|(path, _)| *path == function.path);
        let at = at.unwrap_or_else(|| {
            found.push((&function.path, Unexplained::default()));
            found.len() - 1
        });
        let of_file = &mut found[at].1;
        of_file.functions.push(&function.name);
        of_file.self_ns += row.self_ns;
        for called in missing {
            if !of_file.missing.contains(&called.name) {
                of_file.missing.push(called.name);
            }
        }
    }
    let lines = found.into_iter().map(|(path, unexplained)| {
        let module = path.rsplit('/').next().unwrap_or(path);
        format!(
            "self time of {} ({} % of all) may be in functions of {module} that were not recorded, such as {}: --libs records all libraries, -F '*@{module}' this one",
            few(&unexplained.functions),
            (u128::from(unexplained.self_ns) * 100 + u128::from(all) / 2) / u128::from(all.max(1)),
            unexplained.missing[..unexplained.missing.len().min(NAMED)].join(", "),
        )
    });
    lines.collect()
}

fn few(names: &[&str]) -> String {
    let named = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => {
            let more = several(more as u64, "other function", "other functions");
            format!("{named} and {more}")
        }
    }
}

/// The file at `path`, if it is the one that was recorded, and more of its functions could have been than the `recorded`
/// ones.
fn recorded_in_part(trace: &Trace, path: &str, recorded: usize) -> Option<Image> {
    let notes = trace.notes().iter();
    let (number, identity) = notes.clone().find_map(|note| match note {
        Note::Image {
            image,
            path: known,
            identity,
        } if printable(known) == path => Some((image, identity)),
        _ => None,
    })?;
    // A trace may name anything.
    let path = Path::new(path);
    let image = Image::open(path.metadata().ok()?.is_file().then_some(path)?).ok()?;
    let refused = notes.map(|note| match note {
        Note::Refused { image, count, .. } if image == number => *count,
        _ => 0,
    });
    let known = recorded as u64 + refused.fold(0, u64::saturating_add);
    let is_part = (image.functions().ok()?.len() as u64) > known;
    (is_part && image.identity() == *identity).then_some(image)
}

/// The functions of its own file that a function calls or jumps to. The time of one with a system call is the kernel's.
fn called(image: &Image, function: &Function) -> Vec<Function> {
    let code = usize::try_from(function.size).ok();
    let Some(code) = code.and_then(|size| image.bytes(function.address, size)) else {
        return Vec::new();
    };
    if has_system_call(code) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut known = HashSet::from([function.address]);
    for (_, target) in calls(code, function.address) {
        if let Ok(Some(called)) = image.function_at(target)
            && called.address == target
            && called.size >= LEAST_SIZE
            && known.insert(target)
        {
            let path = &function.path;
            found.push(Function::new(path, target, called.size, &called.name));
        }
    }
    sort::by_key(&mut found, |called| std::cmp::Reverse(called.size));
    found
}
