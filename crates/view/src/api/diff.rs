//! How the functions of two traces differ.

use std::slice::from_ref;

use anyhow::{Context, Result, bail};
use nopal_analysis::diff::{Run, compare, write_json};
use nopal_analysis::drive::Drive;

use super::query::Query;
use super::tables::filter;
use crate::shown::Shown;

/// `diff?from=&until=&threads=;from=&until=&threads=`: the object of `nopal diff --json`. Each trace has a selection of
/// its own.
pub fn diff(traces: &[Shown], query: &str) -> Result<Vec<u8>> {
    let [before, after] = traces else {
        bail!("two traces are compared");
    };
    let (one, other) = query
        .split_once(';')
        .context("two selections are compared")?;
    let (before, after) = (run(before, one)?, run(after, other)?);
    let comparison = compare(from_ref(&before), from_ref(&after));
    let mut text = Vec::new();
    write_json(&comparison, [&[before], &[after]], None, &mut text)?;
    Ok(text)
}

fn run(shown: &Shown, query: &str) -> Result<Run> {
    shown.with(|state| {
        let filter = filter(state, &Query::new(query))?;
        let drive = Drive {
            filter: Some(&filter),
            ..Drive::default()
        };
        let name = state.trace.directory().display().to_string();
        Run::new(&name, &state.trace, None, &drive)
    })
}
