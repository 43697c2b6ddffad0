//! Configuration files, by which nopal acts in the name of its user.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

const LARGEST: u64 = 64 << 10;

/// The text of a file that belongs to this user or to root, and that no other user may write to; none if there is no
/// file.
pub fn read(path: &Path) -> Result<Option<String>> {
    let shown = path.display();
    // Opening a pipe would wait.
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(_) if fs::symlink_metadata(path).is_err() => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{shown} cannot be read")),
    };
    let facts = file.metadata().with_context(|| shown.to_string())?;
    ensure!(facts.is_file(), "{shown} is not read: it is no file");
    let user = rustix::process::geteuid().as_raw();
    ensure!(
        facts.uid() == user || facts.uid() == 0,
        "{shown} is not read: it belongs to another user ({})",
        facts.uid()
    );
    ensure!(
        facts.mode() & 0o022 == 0,
        "{shown} is not read: others may write to it (chmod go-w would change that)"
    );
    ensure!(
        facts.len() <= LARGEST,
        "{shown} is not read: it is too large"
    );
    let mut bytes = Vec::new();
    file.by_ref()
        .take(LARGEST)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{shown} cannot be read"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let is_end = |byte: &u8| *byte == b'\n';
        let line = 1 + bytes[..at].iter().filter(|byte| is_end(byte)).count();
        let word = bytes.split(is_end).nth(line - 1).unwrap_or_default();
        anyhow!(
            "{shown}:{line}: this is no UTF-8: \"{}\"",
            word.escape_ascii()
        )
    })?;
    Ok(Some(text))
}
