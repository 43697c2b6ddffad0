//! `export?as=FORMAT&from=&until=&threads=`: the output of `nopal export`, as a file to keep.

use std::sync::Arc;

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_export::{Format, Options, write, write_archive};
use nopal_index::Index;
use nopal_trace::{ThreadKey, Trace};

use super::query::Query;
use super::tables::filter;
use crate::http::Response;
use crate::shown::State;

fn format(name: &str) -> Option<(Format, &'static str)> {
    Some(match name {
        "perfetto" => (Format::Perfetto, "trace.perfetto"),
        "firefox" => (Format::Firefox, "trace.firefox.json"),
        "speedscope" => (Format::Speedscope, "trace.speedscope.json"),
        "pprof" => (Format::Pprof, "trace.pb.gz"),
        "csv" => (Format::Csv, "calls.csv"),
        "trace" => (Format::Trace, "nopal.data.tar"),
        _ => return None,
    })
}

pub fn export(state: &State, query: &Query) -> Result<Response> {
    let (format, name) = format(query.text("as").unwrap_or_default()).context("no such format")?;
    let mut filter = filter(state, query)?;
    // Places change as a trace grows.
    let threads = query.text("threads").map(|_| query.numbers("threads"));
    let threads = threads
        .transpose()?
        .map(|places| keys(&state.trace, &places));
    let directory = state.trace.directory().to_owned();
    let options = Options::new(format);
    // A client may be slow, and others need a growing trace to be read again meanwhile.
    let work = move |out: &mut dyn std::io::Write| {
        let trace = Trace::open(&directory)?;
        filter.checkpoints = Index::kept(&trace).map(|index| Arc::new(index.checkpoints()));
        if let Some(threads) = &threads {
            filter.select_threads(&places(&trace, threads), &trace);
        }
        let drive = Drive {
            filter: Some(&filter),
            ..Drive::default()
        };
        match format {
            Format::Trace => write_archive(&trace, &drive, out),
            _ => write(&trace, &options, &drive, out).map(drop),
        }
    };
    Ok(Response::file(name, work))
}

fn keys(trace: &Trace, places: &[u64]) -> Vec<ThreadKey> {
    let threads = (0..).zip(trace.threads());
    let chosen = threads.filter(|(place, _)| places.contains(place));
    chosen.map(|(_, thread)| thread.key()).collect()
}

fn places(trace: &Trace, keys: &[ThreadKey]) -> Vec<u64> {
    let threads = (0..).zip(trace.threads());
    let chosen = threads.filter(|(_, thread)| keys.contains(&thread.key()));
    chosen.map(|(place, _)| place).collect()
}
