//! Parquet: tables of many traces below one directory, for DuckDB, Spark and others.
//!
//! A trace is one file of each table, named after it: exporting it again replaces its files.

mod calls;
mod chunk;
mod dictionary;
mod file;
mod labels;
mod numbers;
mod pack;
mod sums;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nopal_analysis::drive::Drive;
use nopal_analysis::names::Names;
use nopal_analysis::span::begin;
use nopal_trace::Trace;
use parquet::errors::ParquetError;

use crate::Options;
use crate::requests::RequestBegin;
use crate::whole::WholeFile;
pub use labels::Label;

/// Writes the tables of a trace below `root`. Each file is written whole or not at all; that of the table `traces`
/// comes last.
pub fn write(trace: &Trace, options: &Options, drive: &Drive, root: &Path) -> Result<()> {
    let names = Names::new(trace);
    let begins = options.request.as_deref();
    let begins = begins
        .map(|text| RequestBegin::new(text, trace, &names))
        .transpose()?;
    let mut root = Root::new(root)?;
    let written = write_tables(trace, &names, begins.as_ref(), options, drive, &mut root);
    if written.is_err() {
        root.remove();
    }
    written
}

fn write_tables(
    trace: &Trace,
    names: &Names,
    begins: Option<&RequestBegin>,
    options: &Options,
    drive: &Drive,
    root: &mut Root,
) -> Result<()> {
    let mut tables = Vec::new();
    if !options.functions_only {
        tables.push(root.table("calls", |out| {
            calls::write(trace, names, begins, drive, out)
        })?);
    }
    let functions = sums::Functions::new(
        trace,
        &Drive {
            progress: None,
            ..*drive
        },
    )?;
    tables.push(root.table("durations", |out| functions.write_durations(out))?);
    tables.push(root.table("functions", |out| functions.write(out))?);
    tables.push(root.table("traces", |out| sums::write_trace(trace, drive, out))?);
    let begin_ns = trace.clocks().realtime_ns(begin(trace));
    let partition = labels::partition(trace, begin_ns, &options.labels);
    let name = format!("part-{}.parquet", trace.uuid());
    for table in tables {
        root.finish(table, &partition, &name)?;
    }
    Ok(())
}

struct Root {
    path: PathBuf,
    /// The directories that were made for the tables, each before those in it.
    made: Vec<PathBuf>,
}

/// A file of a table, not yet named.
struct Written {
    table: &'static str,
    file: WholeFile,
}

impl Root {
    fn new(path: &Path) -> Result<Root> {
        let mut root = Root {
            path: path.to_owned(),
            made: Vec::new(),
        };
        root.make(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(root)
    }

    fn make(&mut self, directory: &Path) -> io::Result<()> {
        let ancestors = directory.ancestors();
        let missing = ancestors.take_while(|one| !one.as_os_str().is_empty() && !one.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        self.made.extend(missing);
        fs::create_dir_all(directory)
    }

    /// Removes the directories that were made and are empty.
    fn remove(&self) {
        for directory in self.made.iter().rev() {
            // The others have tables.
            let _ = fs::remove_dir(directory);
        }
    }

    fn table(
        &self,
        table: &'static str,
        write: impl FnOnce(&fs::File) -> Result<()>,
    ) -> Result<Written> {
        let written = || -> Result<WholeFile> {
            let whole = WholeFile::open_in(&self.path)?;
            write(whole.file()).map_err(without_wrapping)?;
            Ok(whole)
        };
        let file = written().with_context(|| self.cannot(table))?;
        Ok(Written { table, file })
    }

    fn finish(&mut self, written: Written, partition: &Path, name: &str) -> Result<()> {
        let Written { table, file } = written;
        let directory = self.path.join(table).join(partition);
        let finished = || -> Result<()> {
            self.make(&directory)?;
            file.finish(&directory.join(name))
        };
        finished().with_context(|| self.cannot(table))
    }

    fn cannot(&self, table: &str) -> String {
        format!("cannot write the table {table} in {}", self.path.display())
    }
}

/// An error of the output as it is: `parquet` says what it is a second time.
fn without_wrapping(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<ParquetError>() {
        Ok(ParquetError::External(inner)) => anyhow!(inner),
        Ok(other) => other.into(),
        Err(other) => other,
    }
}
