//! Exports of tables.

use crate::run::{Paths, remove, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const ROUNDS: usize = 3;
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = "import json; print(len(json.dumps([{'n': n} for n in range(60000)])))";

/// Exports a recording of every function of a program: the columns of a made trace would be random numbers.
pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    let python = Path::new(PYTHON);
    if !python.exists() {
        return Ok(Vec::new());
    }
    paths.record(&["--block", "-F", "*"], python, &["-c", SCRIPT])?;
    let calls = paths.calls()?.values().sum::<u64>() as f64;
    let tables = paths.directory.join("tables");
    let times: Result<Samples> = (0..ROUNDS)
        .map(|_| {
            remove(&tables)?;
            let mut export = Command::new(&paths.nopal);
            export
                .args(["export", "--as", "parquet", "-o"])
                .arg(&tables);
            let ran = run(export.arg(paths.trace()))?;
            Ok(calls / ran.time.as_secs_f64() / 1e6)
        })
        .collect();
    let size = size(&tables.join("calls"))? as f64 / calls;
    remove(&tables)?;
    Ok(vec![
        Row::new("export --as parquet, python3", "M calls/s", times?)
            .bound(Bound::AtLeast(3.0))
            .note(format!("{:.1} million calls", calls / 1e6)),
        Row::once("its table of calls", "bytes a call", size).bound(Bound::AtMost(3.5)),
    ])
}

/// The bytes of all files in a directory.
fn size(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in directory.read_dir()? {
        let (path, metadata) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        sum += match metadata.is_dir() {
            true => size(&path)?,
            false => metadata.len(),
        };
    }
    Ok(sum)
}
