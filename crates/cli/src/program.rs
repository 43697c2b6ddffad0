//! Finds the file of a program named on the command line.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A script's interpreter may be a script too; the kernel gives up at this depth as well.
const DEEPEST_SCRIPT: usize = 5;

/// A word with a slash is a path; any other is looked up as a shell does. A script gives its interpreter.
pub fn find(word: &OsStr) -> Result<PathBuf> {
    let mut path = look_up(word)?;
    for _ in 0..DEEPEST_SCRIPT {
        match interpreter(&path)? {
            Some(interpreter) => path = interpreter,
            None => return Ok(path),
        }
    }
    bail!("{}: too many nested interpreters", word.display())
}

fn look_up(word: &OsStr) -> Result<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(word));
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories)
        .map(|directory| directory.join(word))
        .find(|path| is_program(path));
    found.with_context(|| format!("{}: no such program in PATH", word.display()))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// The path after `#!`.
fn interpreter(path: &Path) -> Result<Option<PathBuf>> {
    let mut start = Vec::new();
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    file.take(256)
        .read_to_end(&mut start)
        .with_context(|| path.display().to_string())?;
    let Some(line) = start.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii_start();
    let word = line
        .split(|byte| byte.is_ascii_whitespace())
        .next()
        .unwrap_or_default();
    Ok(Some(PathBuf::from(OsStr::from_bytes(word))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert!(find(OsStr::new("no-such-program-at-all")).is_err());
        assert!(find(OsStr::new("/no/such/program")).is_err());
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let path = std::env::current_exe().unwrap();
        assert_eq!(find(path.as_os_str()).unwrap(), path);
    }
}
