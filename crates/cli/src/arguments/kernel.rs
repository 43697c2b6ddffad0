//! Functions of the kernel.

use clap::Args;
use nopal_record::Kinds;

/// The selection of these functions.
#[derive(Debug, Args)]
pub struct KernelFunctions {
    /// Record the functions of the kernel that the traced threads run; with durations if nopal's module is loaded (root only)
    #[arg(short, long)]
    kernel: bool,

    /// Record only the functions of the kernel that match [may be repeated]
    #[arg(long = "kernel-functions", value_name = "GLOB")]
    pub patterns: Vec<String>,

    /// Record the markers of the kernel's modules that match, in the traced threads (root only) [may be repeated]
    #[arg(long, value_name = "GLOB")]
    pub kernel_markers: Vec<String>,

    /// Record a probe at an instruction of the kernel, in the traced threads (root only) [may be repeated]
    #[arg(
        long = "kernel-probe",
        value_name = "'WHERE [new NAME] [fetch VALUE...]'",
        allow_hyphen_values = true
    )]
    pub kernel_probes: Vec<String>,
}

impl KernelFunctions {
    /// With these kernel events.
    pub fn and(&self, events: impl IntoIterator<Item = Kinds>) -> Kinds {
        let are_wanted = self.kernel || !self.patterns.is_empty();
        let kernel = are_wanted.then_some(Kinds::FUNCTIONS);
        let have_values = !self.kernel_markers.is_empty() || !self.kernel_probes.is_empty();
        let markers = have_values.then_some(Kinds::MARKERS);
        events.into_iter().chain(kernel).chain(markers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use anyhow::{Result, bail};
    use clap::Parser;

    fn asked(words: &str) -> Result<(Kinds, Vec<String>)> {
        let words = ["nopal"].into_iter().chain(words.split(' '));
        let options = match Arguments::try_parse_from(words)?.command {
            Command::Record(record) => record.options(),
            Command::Run(run) => run.options()?,
            other => bail!("{other:?}"),
        };
        Ok((options.events, options.kernel_functions))
    }

    #[test]
    fn they_go_with_kernel_events() {
        let sched = Kinds::parse("sched").unwrap();
        let both: Kinds = [sched, Kinds::FUNCTIONS].into_iter().collect();
        let chosen = vec!["vfs_*".to_owned(), "ksys_*".to_owned()];
        let globs = "--kernel-functions vfs_* --kernel-functions ksys_*";
        for (words, expected) in [
            ("record -k ls", (Kinds::FUNCTIONS, Vec::new())),
            ("record -k -e sched ls", (both, Vec::new())),
            (
                &format!("record {globs} ls"),
                (Kinds::FUNCTIONS, chosen.clone()),
            ),
            ("run -w -k ls", (both, Vec::new())),
            ("run -w ls", (sched, Vec::new())),
            (&format!("run -p {globs} ls"), (Kinds::FUNCTIONS, chosen)),
        ] {
            assert_eq!(asked(words).unwrap(), expected, "{words}");
        }
        assert!(asked("run -k ls").is_err(), "nothing that they add to");
    }
}
