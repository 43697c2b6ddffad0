//! A file that grows by whole pieces.

use anyhow::{Context, Error, Result};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// Writes `bytes` at `length`, the file's length. A partial write is undone.
pub fn append(file: &File, length: u64, bytes: &[u8]) -> Result<()> {
    if let Err(error) = file.write_all_at(bytes, length) {
        let truncated = file.set_len(length);
        let error = Err(error).context("cannot write the trace");
        return match truncated {
            Ok(()) => error,
            Err(other) => error.context(format!("nor remove the partial write: {other}")),
        };
    }
    Ok(())
}

/// Whether an error means that the disk is full.
pub fn is_full(error: &Error) -> bool {
    let full = |kind| {
        matches!(
            kind,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
        )
    };
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| full(error.kind()))
}
