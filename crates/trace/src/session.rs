//! The lines of the file `session/notes`: `["SUM",NUMBER,NOTE]`, where the sum covers the bytes after its comma.

use crate::checksum::Sum;
use crate::note::{Note, Session};
use anyhow::{Context, Result, bail};
use serde::de::IgnoredAny;
use uuid::Uuid;

/// The version of traces that are written.
pub const FORMAT_VERSION: u32 = 2;
/// The version without checksums, with a note alone in each line.
const UNCHECKED_VERSION: u32 = 1;

/// A last line without its end.
pub const CUT_SHORT: &str = "a line that is cut short";

/// Characters of a line before the summed bytes.
const BEFORE: usize = r#"["12345678","#.len();

/// A line that is being written.
pub struct Line(pub Vec<u8>);

impl Line {
    /// The note follows. `room`: its usual length.
    pub fn begin(number: u64, room: usize) -> Line {
        let mut line = Vec::with_capacity(room + 2 * BEFORE);
        line.extend_from_slice(&[b' '; BEFORE]);
        line.extend_from_slice(format!("{number},").as_bytes());
        Line(line)
    }

    pub fn end(self) -> Vec<u8> {
        let mut line = self.0;
        let (before, rest) = line.split_at_mut(BEFORE);
        before.copy_from_slice(&before_summed(rest));
        line.extend_from_slice(b"]\n");
        line
    }
}

/// The characters of a line before its summed bytes.
fn before_summed(rest: &[u8]) -> Vec<u8> {
    format!("[\"{:08x}\",", Sum::new().bytes(rest).value()).into()
}

/// The number of a line and its note, or its damage.
fn parts(line: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let cut = "a line that cannot be read";
    let (before, rest) = line.split_at_checked(BEFORE).ok_or(cut)?;
    let rest = rest.strip_suffix(b"]").ok_or(cut)?;
    if before != before_summed(rest) {
        return Err("a line that does not match its checksum");
    }
    let comma = rest.iter().position(|&byte| byte == b',').ok_or(cut)?;
    let number = str::from_utf8(&rest[..comma]).ok();
    let number = number.and_then(|number| number.parse().ok()).ok_or(cut)?;
    Ok((number, &rest[comma + 1..]))
}

/// Recomputes the sum of a line, for tests that change notes.
pub fn sum_again(line: &[u8]) -> Vec<u8> {
    match line.split_at_checked(BEFORE) {
        Some((before, rest)) if before.starts_with(b"[\"") && rest.ends_with(b"]") => {
            let mut line = Line(line[..line.len() - 1].to_vec()).end();
            line.pop();
            line
        }
        _ => line.to_vec(),
    }
}

/// The notes of a trace.
pub struct Notes {
    pub session: Session,
    pub uuid: Uuid,
    /// All notes after the first.
    pub notes: Vec<Note>,
    /// Lines that were left out, counted from 1, and their damage.
    pub bad_lines: Vec<(u64, &'static str)>,
    /// Bytes of whole lines.
    pub whole: usize,
    /// The number of the next line.
    pub next: u64,
}

impl Session {
    /// Whether lines and packets have checksums.
    pub(crate) fn has_sums(&self) -> bool {
        self.version != UNCHECKED_VERSION
    }
}

/// Parses a session file. A last line without its end was not written whole. A line that is JSON but no note is one of
/// a later version.
pub fn parse(text: &[u8]) -> Result<Notes> {
    let whole = text
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |end| end + 1);
    let lines = &text[..whole.saturating_sub(1)];
    let mut lines = lines.split(|&byte| byte == b'\n').zip(1..);
    let first = match lines.next() {
        Some((line, _)) if whole > 0 => line,
        _ => bail!("it is empty"),
    };
    let mut notes = Notes {
        session: Session::default(),
        uuid: Uuid::nil(),
        notes: Vec::new(),
        bad_lines: Vec::new(),
        whole,
        next: 1,
    };
    notes.begin(first)?;
    let mut since = 0;
    for (line, number) in lines {
        if let Err(what) = notes.line(line, &mut since) {
            since += 1;
            notes.bad_lines.push((number, what));
        }
    }
    notes.next += since;
    if whole < text.len() {
        let number = text[..whole].iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
        notes.bad_lines.push((number, CUT_SHORT));
    }
    Ok(notes)
}

impl Notes {
    /// The first line is used even if damaged, as far as it can be parsed: without it nothing can be read.
    fn begin(&mut self, line: &[u8]) -> Result<()> {
        let sum = parts(line);
        let note = match line {
            [b'{', ..] => line,
            _ => sum.map_or_else(|_| bare(line), |(_, note)| note),
        };
        self.session = match serde_json::from_slice(note) {
            Ok(Note::Session(session)) => session,
            Ok(_) => bail!("its first line is not a session's"),
            Err(error) => return Err(error).context("its first line cannot be read"),
        };
        let version = self.session.version;
        if ![UNCHECKED_VERSION, FORMAT_VERSION].contains(&version) {
            bail!("the trace has version {version}, and this nopal reads version {FORMAT_VERSION}");
        }
        self.uuid = Uuid::parse_str(&self.session.uuid).context("its uuid cannot be read")?;
        if self.session.has_sums()
            && let Err(what) = sum
        {
            self.bad_lines.push((1, what));
        }
        Ok(())
    }

    /// `since`: bad lines since the last good one.
    fn line(&mut self, line: &[u8], since: &mut u64) -> Result<(), &'static str> {
        let mut text = line;
        if self.session.has_sums() {
            let (number, note) = parts(line)?;
            if number < self.next {
                return Err("a line that was there before");
            }
            let missing = number > self.next.saturating_add(*since);
            if missing {
                self.bad_lines.push((number, "lines are missing before it"));
            }
            self.next = number.saturating_add(1);
            *since = 0;
            text = note;
        }
        match serde_json::from_slice(text) {
            Ok(note) => self.notes.push(note),
            Err(_) if serde_json::from_slice::<IgnoredAny>(text).is_ok() => {}
            Err(_) => return Err("a line that cannot be read"),
        }
        Ok(())
    }
}

/// The note in a first line that does not match its sum.
fn bare(line: &[u8]) -> &[u8] {
    let begin = line.iter().position(|&byte| byte == b'{').unwrap_or(0);
    let end = line
        .iter()
        .rposition(|&byte| byte == b'}')
        .map_or(0, |end| end + 1);
    line.get(begin..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64, note: &str) -> String {
        let mut line = Line::begin(number, 0);
        line.0.extend_from_slice(note.as_bytes());
        String::from_utf8(line.end()).unwrap()
    }

    fn first(version: u32) -> String {
        let first = Session {
            version,
            uuid: Uuid::nil().to_string(),
            ..Session::default()
        };
        serde_json::to_string(&Note::Session(first)).unwrap()
    }

    fn session(lines: &str) -> Result<Notes> {
        parse(format!("{}{lines}", line(0, &first(FORMAT_VERSION))).as_bytes())
    }

    const CLOCK: &str = r#"{"Clock":{"counter":1,"monotonic_ns":2,"realtime_ns":3}}"#;
    const CLOCKS: [Note; 2] = [const {
        Note::Clock {
            counter: 1,
            monotonic_ns: 2,
            realtime_ns: 3,
        }
    }; 2];

    #[test]
    fn notes_that_cannot_be_read_are_told_and_later_ones_skipped() {
        let lines = [
            line(1, CLOCK),
            line(2, "{\"Clock\":"),
            "\n".into(),
            line(3, "{\"Comet\":[1,{}]}"),
            "\u{0}\n".into(),
            line(5, CLOCK),
            "[\"12345678\",6,{\"Exit\":{\"proc".into(),
        ];
        let notes = session(&lines.concat()).unwrap();
        assert_eq!(notes.notes, CLOCKS);
        let numbers: Vec<u64> = notes.bad_lines.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, notes.next), (vec![3, 4, 6, 8], 6));
    }

    /// Each byte of a line in turn, and whole lines.
    #[test]
    fn lines_that_were_changed_are_left_out() {
        let good = line(2, CLOCK);
        for at in 0..good.len() - 1 {
            let mut changed = good.clone().into_bytes();
            changed[at] ^= 1;
            if changed[at] == b'\n' {
                continue;
            }
            let changed = String::from_utf8(changed).unwrap();
            let lines = [line(1, CLOCK), changed, line(3, CLOCK)].concat();
            let notes = session(&lines).unwrap();
            assert_eq!(notes.notes, CLOCKS, "byte {at}");
            assert_eq!((notes.bad_lines.len(), notes.next), (1, 4), "byte {at}");
        }
        let what = |numbers: &[u64]| {
            let lines: String = numbers.iter().map(|number| line(*number, CLOCK)).collect();
            let notes = session(&lines).unwrap();
            let what: Vec<&str> = notes.bad_lines.iter().map(|(_, what)| *what).collect();
            (notes.notes.len(), what)
        };
        assert_eq!(what(&[1, 2, 3]), (3, vec![]));
        assert_eq!(what(&[1, 3]), (2, vec!["lines are missing before it"]));
        assert_eq!(what(&[1, 1, 2]), (2, vec!["a line that was there before"]));
    }

    #[test]
    fn a_first_line_that_does_not_fit_is_used_and_told() {
        let text = line(0, &first(FORMAT_VERSION)).replace("\"cores\":0", "\"cores\":7");
        let notes = parse(format!("{text}{}", line(1, CLOCK)).as_bytes()).unwrap();
        assert_eq!((notes.session.cores, notes.notes.len()), (7, 1));
        assert_eq!(notes.bad_lines.len(), 1);
    }

    #[test]
    fn the_first_version_has_no_sums() {
        let lines = format!("{}\n{CLOCK}\n{CLOCK}\n{{\"Clo\n", first(1));
        let notes = parse(lines.as_bytes()).unwrap();
        assert_eq!(notes.notes, CLOCKS);
        assert_eq!(
            (notes.bad_lines.len(), notes.session.has_sums()),
            (1, false)
        );
        let later = parse(line(0, &first(3)).as_bytes()).err().unwrap();
        assert!(later.to_string().contains("version 3"), "{later}");
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
        assert!(parse(line(0, CLOCK).as_bytes()).is_err());
        assert!(
            parse("[".repeat(1_000_000).as_bytes()).is_err(),
            "deep nesting"
        );
        assert_eq!(session("").unwrap().notes, []);
    }
}
