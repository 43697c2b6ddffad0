//! Reads the file `session/notes`.

use crate::note::{Note, Session};
use anyhow::{Context, Result, bail};
use nopal_abi::ABI_VERSION;
use uuid::Uuid;

/// The notes of a trace.
pub struct Notes {
    pub session: Session,
    pub uuid: Uuid,
    /// All but the first.
    pub notes: Vec<Note>,
    /// Lines that could not be understood, counted from 1.
    pub bad_lines: Vec<u64>,
    /// Bytes of whole lines.
    pub whole: usize,
}

/// Parses a session file. A last line without its end was not written whole.
pub fn parse(text: &[u8]) -> Result<Notes> {
    let whole = text
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |end| end + 1);
    let mut lines = text[..whole].split(|&byte| byte == b'\n').zip(1..);
    let first = match lines.next() {
        Some((line, _)) if whole > 0 => line,
        _ => bail!("it is empty"),
    };
    let session = match serde_json::from_slice(first) {
        Ok(Note::Session(session)) => session,
        Ok(_) => bail!("its first line is not a session's"),
        Err(error) => return Err(error).context("its first line cannot be read"),
    };
    if session.version != ABI_VERSION {
        bail!(
            "the trace has version {}, and this nopal reads version {ABI_VERSION}",
            session.version
        );
    }
    let uuid = Uuid::parse_str(&session.uuid).context("its uuid cannot be read")?;
    let mut notes = Vec::new();
    let mut bad_lines = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(note) => notes.push(note),
            Err(_) => bad_lines.push(number),
        }
    }
    if whole < text.len() {
        bad_lines.push(text[..whole].iter().filter(|&&byte| byte == b'\n').count() as u64 + 1);
    }
    Ok(Notes {
        session,
        uuid,
        notes,
        bad_lines,
        whole,
    })
}
