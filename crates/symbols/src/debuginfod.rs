//! Debug files from the servers that the user has named in `DEBUGINFOD_URLS`, by elfutils' `debuginfod-find`.
//!
//! That program speaks with the servers. It keeps the files that it has found, and the names of those that were not
//! there, in the user's cache, which it cleans. Nothing is asked without the variable.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Image;
use crate::debug::{hex, open};
use crate::elf::{Elf, LONGEST_PATH};

const PROGRAM: &str = "debuginfod-find";
const SERVERS: &str = "DEBUGINFOD_URLS";

/// The bounds of one file, unless the user has set others: bytes, and seconds in all and without an answer.
const BOUNDS: [(&str, &str); 3] = [
    ("DEBUGINFOD_MAXSIZE", "1073741824"),
    ("DEBUGINFOD_MAXTIME", "60"),
    ("DEBUGINFOD_TIMEOUT", "20"),
];

/// The debug file of an image, by its build-id.
pub(crate) fn find(image: &Image) -> Option<Elf> {
    let id = image.build_id()?;
    std::env::var_os(SERVERS).filter(|servers| !servers.is_empty())?;
    let mut command = Command::new(PROGRAM);
    command.args(["debuginfo", &hex(id)]);
    let unset = BOUNDS
        .into_iter()
        .filter(|(name, _)| std::env::var_os(name).is_none());
    command.envs(unset);
    let asked = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = asked
        .stdout
        .strip_suffix(b"\n")
        .filter(|path| path.len() <= LONGEST_PATH)?;
    let path = Path::new(OsStr::from_bytes(path));
    let is_sound = asked.status.success() && path.is_absolute();
    let elf = open(path).filter(|_| is_sound)?;
    (elf.build_id() == Some(id)).then_some(elf)
}
