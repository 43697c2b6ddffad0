//! The arguments of `nopal diff`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use nopal_record::Options;

use super::{FilterArguments, Input, More};

/// Show which functions changed between traces
///
/// For each function, before and after: self time and the change of it, self time of a call, calls, total time, median
/// and 99th percentile of the calls' durations, and the probability of such a difference by chance. The largest change
/// comes first. Functions of the same module and name are compared; the builds may differ.
///
/// `nopal diff` compares the previous recording (nopal.data.old) with the last, `nopal diff OLD NEW` two traces, and
/// `nopal diff OLD OLD … -- NEW NEW …` several runs with several: then the differences between runs tell which changes
/// are significant.
#[derive(Debug, Args)]
pub struct Diff {
    /// The old trace and the new one; before `--`, the old ones
    #[arg(value_name = "OLD NEW")]
    traces: Vec<PathBuf>,

    /// The new traces
    #[arg(value_name = "NEW", last = true)]
    after: Vec<PathBuf>,

    /// Divide numbers of calls and times by the calls of this function, such as the one that handles a request
    #[arg(long, value_name = "FUNCTION")]
    pub per: Option<String>,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// Show only the first N rows
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

impl Diff {
    /// The traces of both sides.
    pub fn sides(&self) -> Result<[Vec<Input>; 2]> {
        let inputs = |traces: &[PathBuf]| -> Vec<Input> {
            let traces = traces.iter().cloned();
            traces
                .map(|directory| Input::new([directory], &More::default()))
                .collect()
        };
        match (self.traces.as_slice(), self.after.as_slice()) {
            ([], []) => {
                let old = format!("{}.old", Options::DIRECTORY);
                Ok([old, Options::DIRECTORY.to_owned()].map(|one| inputs(&[one.into()])))
            }
            ([old, new], []) => Ok([old, new].map(|one| inputs(std::slice::from_ref(one)))),
            ([], _) | ([_], []) => bail!("name an old trace and a new one"),
            (_, []) => bail!("name the old traces before `--`, and the new ones after it"),
            (before, after) => Ok([inputs(before), inputs(after)]),
        }
    }
}
