//! Reads the file `session/notes`.

use crate::note::{Note, Session};
use anyhow::{Context, Result, bail};
use nopal_abi::ABI_VERSION;
use serde::de::IgnoredAny;
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

/// Parses a session file. A last line without its end was not written whole. A line that is JSON but no note is one of
/// a later version.
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
            Err(_) if serde_json::from_slice::<IgnoredAny>(line).is_ok() => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session(lines: &str) -> Result<Notes> {
        let first = Session {
            version: ABI_VERSION,
            uuid: Uuid::nil().to_string(),
            ..Session::default()
        };
        let first = serde_json::to_string(&Note::Session(first))?;
        parse(format!("{first}\n{lines}").as_bytes())
    }

    const CLOCK: &str = r#"{"Clock":{"counter":1,"monotonic_ns":2,"realtime_ns":3}}"#;

    #[test]
    fn notes_that_cannot_be_read_are_told_and_later_ones_skipped() {
        let lines = format!(
            "{CLOCK}\n{{\"Clock\":\n\n{{\"Comet\":[1,{{}}]}}\n\u{0}\n{CLOCK}\n{{\"Exit\":{{\"proc"
        );
        let notes = session(&lines).unwrap();
        assert_eq!(
            notes.notes,
            [const {
                Note::Clock {
                    counter: 1,
                    monotonic_ns: 2,
                    realtime_ns: 3,
                }
            }; 2]
        );
        assert_eq!(notes.bad_lines, [3, 6, 8]);
    }

    #[test]
    fn notes_are_written_as_they_are_documented() {
        let sites = Note::Sites {
            image: 1,
            sites: vec![(7, 0x1000, 16, "main".into())],
        };
        assert_eq!(
            serde_json::to_string(&sites).unwrap(),
            r#"{"Sites":{"image":1,"sites":[[7,4096,16,"main"]]}}"#
        );
        let clock: Note = serde_json::from_str(CLOCK).unwrap();
        assert_eq!(serde_json::to_string(&clock).unwrap(), CLOCK);
        let exit = Note::Exit {
            process: 1,
            counter: 2,
            status: None,
        };
        assert_eq!(
            serde_json::to_string(&exit).unwrap(),
            r#"{"Exit":{"process":1,"counter":2,"status":null}}"#
        );
    }

    #[test]
    fn what_does_not_begin_with_a_session_is_refused() {
        for text in ["", "\n", CLOCK, "{\"Session\":{}}\n", "[[[["] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(format!("{CLOCK}\n").as_bytes()).is_err());
        assert!(
            parse("[".repeat(1_000_000).as_bytes()).is_err(),
            "deep nesting"
        );
        assert_eq!(session("").unwrap().notes, []);
    }
}
