//! Opens traces, and goes over them with the progress shown.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::names::{Names, printable};
use nopal_analysis::text::bytes;
use nopal_analysis::values::ValueSelection;
use nopal_index::Index;
use nopal_trace::Trace;

use crate::arguments::{Input, Subject};
use crate::progress::Progress;

/// Ends a command that has shown the intact part of a damaged trace: neither success nor failure.
pub const OF_DAMAGED: i32 = 3;

static IS_DAMAGED: AtomicBool = AtomicBool::new(false);

/// The status of a command that has shown everything intact.
pub fn status() -> i32 {
    if IS_DAMAGED.load(Ordering::Relaxed) {
        OF_DAMAGED
    } else {
        0
    }
}

impl Input {
    /// Opens the trace, or several as one, and reports damage in one line.
    pub fn open(&self) -> Result<Trace> {
        self.read(Index::open_trace)
    }

    /// The same, whose checksums are all compared, whatever an index says.
    pub fn open_and_compare(&self) -> Result<Trace> {
        self.read(Trace::open)
    }

    fn read(&self, one: fn(&Path) -> Result<Trace>) -> Result<Trace> {
        let directories = self.directories();
        if let [directory] = directories.as_slice() {
            return open(directory, one);
        }
        let traces = directories.iter().map(|directory| open(directory, one));
        let traces = traces.collect::<Result<Vec<_>>>()?;
        let place = Temporary::new()?;
        nopal_trace::merge(&traces, &place.0).context("cannot read these traces as one")?;
        // An open trace is mapped, and needs no name.
        Trace::open(&place.0)
    }
}

/// A directory for the one trace that is made of several. It takes as much room as all of them.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Temporary> {
        let asked = std::env::var_os("TMPDIR").map(PathBuf::from);
        let place = asked.unwrap_or_else(|| "/var/tmp".into());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = now.map_or(0, |since| since.as_nanos());
        let name = format!("nopal-{}-{number}", std::process::id());
        let directory = place.join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Temporary(directory))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(directory: &Path, read: fn(&Path) -> Result<Trace>) -> Result<Trace> {
    if directory.try_exists().is_ok_and(|exists| !exists) {
        bail!(
            "there is no {}: record a trace with `nopal record PROGRAM`",
            directory.display()
        );
    }
    let trace = read(directory)?;
    tell_damage(&trace);
    Ok(trace)
}

/// Reports the damage of a trace, if there is some, in one line.
pub fn tell_damage(trace: &Trace) {
    if let Some(first) = trace.damage().first() {
        let more = match trace.damage_count() {
            0 | 1 => String::new(),
            all => format!(", and {} more places", all - 1),
        };
        let file = printable(&first.file.display().to_string());
        let (offset, what) = (first.offset, first.what);
        let left_out = bytes(trace.left_out());
        eprintln!(
            "nopal: the trace is damaged: {file} at {offset}: {what}{more}; {left_out} are left out or missing"
        );
        IS_DAMAGED.store(true, Ordering::Relaxed);
    }
}

impl Subject {
    /// The trace, and the requested value of its calls.
    pub fn open(&self) -> Result<(Trace, Names, ValueSelection)> {
        let (text, input) = self.parts();
        let trace = input.open()?;
        let names = Names::new(&trace);
        let what = ValueSelection::new(text, &names, trace.markers())?;
        Ok((trace, names, what))
    }
}

/// Runs `work` on all cores, on the selected calls.
pub fn driven<T>(
    what: &'static str,
    filter: &Filter,
    work: impl FnOnce(&Drive) -> Result<T>,
) -> Result<T> {
    let progress = Progress::new(what);
    let update = |done, all| progress.update(done, all);
    work(&Drive {
        progress: Some(&update),
        filter: Some(filter),
        ..Drive::default()
    })
}
