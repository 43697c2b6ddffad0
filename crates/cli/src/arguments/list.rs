use std::ffi::OsString;

use clap::Args;

/// Show which functions of a program, a library or the kernel can be traced, and why others cannot
#[derive(Debug, Args)]
pub struct List {
    /// A program, looked up in PATH unless it contains a slash, or a library; or a process, for all files that it has
    /// loaded; or `kernel`, for the running kernel (root only)
    #[arg(value_name = "PROGRAM|PID|kernel")]
    pub program: OsString,

    /// With `kernel`: show only functions that match; those of the kernel itself are of the module `kernel`
    #[arg(value_name = "GLOB[@MODULE]")]
    pub globs: Vec<String>,

    /// Print a JSON object; for a process, an array of them
    #[arg(long)]
    pub json: bool,

    /// Show which instructions of this function can be probed, and why others cannot
    #[arg(long, value_name = "FUNCTION")]
    pub probes: Option<String>,
}
