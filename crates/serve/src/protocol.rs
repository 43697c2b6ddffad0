//! The protocol of a session's socket. A connection is one open file, or none.
//!
//! A request is a line, and an answer is a line and as many bytes as it says:
//!
//! ```text
//! nopal 1                 the first request: the version that the client speaks
//! list [FOLDER]           a mode, in octal, `d` or `f`, and a name a line
//! open rwt PATH           the connection becomes this file, to be read, written, truncated; or some of these;
//!                         the answer says `stream` if it is one, and is empty if not
//! read OFFSET LENGTH      the file's text when it was opened; from offset 0 again, its present text;
//!                         a stream gives its next bytes, and waits for them
//! try OFFSET LENGTH       the same, but EAGAIN in place of waiting
//! cancel                  has no answer of its own: a `read` that waits for a stream gives EINTR, or its bytes so far
//! write LENGTH            and that many bytes: lines, which are obeyed
//! flush                   a line is obeyed, too, whose end has not come
//! close                   the connection is no file any more
//! command LENGTH          and that many bytes: lines as for the file ctl, without opening it
//! find PROCESS            ESRCH unless the session traces that process, perhaps as the child of another
//! detach                  the session is to end; when it has, the connection is closed
//!
//! ok LENGTH               and that many bytes
//! error NUMBER LENGTH     errno(3), and that many bytes of text for people
//! ```
//!
//! Requests are answered in order, one at a time. Anything else is answered by an error, and the connection is closed.

use crate::tree::{Access, Entry, Failure};

pub const VERSION: u32 = 1;

/// The answer to `open` for a file from which each byte can be read only once.
pub const STREAM: &[u8] = b"stream";

/// Bytes of a line with its end.
pub const LONGEST_LINE: usize = 1024;
/// Bytes that one `read` returns.
pub const LONGEST_READ: usize = 1 << 17;
/// Bytes that one `write` takes.
pub const LONGEST_WRITE: usize = 1 << 17;
/// Bytes that one `command` takes: the state of a session with many traces.
pub const LONGEST_COMMAND: usize = 1 << 24;
/// Bytes of an answer: a folder may be long.
pub const LONGEST_ANSWER: usize = 1 << 24;
const LONGEST_PATH: usize = 512;
const LONGEST_NAME: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Version(u32),
    List(String),
    Open {
        access: Access,
        path: String,
    },
    Read {
        offset: u64,
        length: usize,
        wait: bool,
    },
    Write {
        length: usize,
    },
    Cancel,
    Flush,
    Close,
    Command {
        length: usize,
    },
    Find(i32),
    Detach,
}

impl Request {
    /// From a line without its end.
    pub fn parse(line: &[u8]) -> Option<Request> {
        let line = std::str::from_utf8(line).ok()?;
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match verb {
            "nopal" => Request::Version(number(rest)?.try_into().ok()?),
            "list" => Request::List(path(rest)?),
            "open" => {
                let (letters, rest) = rest.split_once(' ')?;
                Request::Open {
                    access: access(letters)?,
                    path: path(rest)?,
                }
            }
            "read" | "try" => {
                let (offset, length) = rest.split_once(' ')?;
                Request::Read {
                    offset: number(offset)?,
                    length: number(length)?.min(LONGEST_READ as u64) as usize,
                    wait: verb == "read",
                }
            }
            "write" => Request::Write {
                length: length(rest, LONGEST_WRITE)?,
            },
            "cancel" if rest.is_empty() => Request::Cancel,
            "flush" if rest.is_empty() => Request::Flush,
            "close" if rest.is_empty() => Request::Close,
            "command" => Request::Command {
                length: length(rest, LONGEST_COMMAND)?,
            },
            "find" => Request::Find(number(rest)?.try_into().ok()?),
            "detach" if rest.is_empty() => Request::Detach,
            _ => return None,
        })
    }

    pub fn line(&self) -> String {
        match self {
            Request::Version(version) => format!("nopal {version}\n"),
            Request::List(path) => format!("list {path}\n"),
            Request::Open { access, path } => format!("open {} {path}\n", letters(*access)),
            Request::Read {
                offset,
                length,
                wait,
            } => {
                let verb = if *wait { "read" } else { "try" };
                format!("{verb} {offset} {length}\n")
            }
            Request::Write { length } => format!("write {length}\n"),
            Request::Cancel => "cancel\n".into(),
            Request::Flush => "flush\n".into(),
            Request::Close => "close\n".into(),
            Request::Command { length } => format!("command {length}\n"),
            Request::Find(process) => format!("find {process}\n"),
            Request::Detach => "detach\n".into(),
        }
    }
}

/// The first line of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Ok { length: usize },
    Error { number: i32, length: usize },
}

impl Answer {
    /// From a line without its end.
    pub fn parse(line: &[u8]) -> Option<Answer> {
        let line = std::str::from_utf8(line).ok()?;
        let (verb, rest) = line.split_once(' ')?;
        match verb {
            "ok" => Some(Answer::Ok {
                length: length(rest, LONGEST_ANSWER)?,
            }),
            "error" => {
                let (errno, rest) = rest.split_once(' ')?;
                Some(Answer::Error {
                    number: number(errno)?.try_into().ok().filter(|errno| *errno != 0)?,
                    length: length(rest, LONGEST_ANSWER)?,
                })
            }
            _ => None,
        }
    }
}

/// An answer as it is sent.
pub fn answer(result: Result<Vec<u8>, Failure>) -> Vec<u8> {
    let (line, mut payload) = match result {
        Ok(payload) if payload.len() > LONGEST_ANSWER => {
            return answer(Err(Failure::new(libc::EFBIG, "too long to send")));
        }
        Ok(payload) => (format!("ok {}\n", payload.len()), payload),
        Err(Failure { number, message }) => {
            let mut payload = message.into_bytes();
            payload.truncate(LONGEST_ANSWER);
            (format!("error {number} {}\n", payload.len()), payload)
        }
    };
    let mut bytes = line.into_bytes();
    bytes.append(&mut payload);
    bytes
}

pub fn list_text(entries: &[Entry]) -> Vec<u8> {
    let mut text = String::new();
    for entry in entries {
        let kind = if entry.folder { 'd' } else { 'f' };
        text += &format!("{:o} {kind} {}\n", entry.mode & 0o700, entry.name);
    }
    text.into_bytes()
}

/// `None` where it is no such text: the names become names of files.
pub fn parse_list(text: &[u8]) -> Option<Vec<Entry>> {
    let entry = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mode = u32::from_str_radix(words.next()?, 8).ok()?;
        let kind = words.next()?;
        let name = words.next()?;
        (is_name(name) && matches!(kind, "d" | "f") && mode & !0o700 == 0).then(|| Entry {
            name: name.into(),
            folder: kind == "d",
            mode,
        })
    };
    std::str::from_utf8(text).ok()?.lines().map(entry).collect()
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && !name.contains(['/', '\n', '\0'])
        && name.len() <= LONGEST_NAME
}

fn path(word: &str) -> Option<String> {
    let good = word.is_empty() || word.len() <= LONGEST_PATH && word.split('/').all(is_name);
    good.then(|| word.into())
}

fn access(letters: &str) -> Option<Access> {
    let mut access = Access::default();
    for letter in letters.chars() {
        let wanted = match letter {
            'r' => &mut access.read,
            'w' => &mut access.write,
            't' => &mut access.truncate,
            _ => return None,
        };
        *wanted = true;
    }
    (access != Access::default()).then_some(access)
}

fn letters(access: Access) -> String {
    [
        (access.read, 'r'),
        (access.write, 'w'),
        (access.truncate, 't'),
    ]
    .into_iter()
    .filter_map(|(wanted, letter)| wanted.then_some(letter))
    .collect()
}

/// Digits only: no sign, no space.
fn number(word: &str) -> Option<u64> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| word.parse().ok())?
}

fn length(word: &str, longest: usize) -> Option<usize> {
    let length = number(word)?;
    (length <= longest as u64).then_some(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_meant() {
        let path = "tracing/trace".to_string();
        let read = |offset, length, wait| Request::Read {
            offset,
            length,
            wait,
        };
        let mut requests = vec![
            Request::Version(7),
            Request::List(String::new()),
            Request::List(path.clone()),
            read(u64::MAX, 5, true),
            read(0, LONGEST_READ, false),
            Request::Write { length: 0 },
            Request::Cancel,
            Request::Flush,
            Request::Close,
            Request::Command {
                length: LONGEST_COMMAND,
            },
            Request::Find(7),
            Request::Detach,
        ];
        for bits in 1..8 {
            requests.push(Request::Open {
                access: Access {
                    read: bits & 1 != 0,
                    write: bits & 2 != 0,
                    truncate: bits & 4 != 0,
                },
                path: path.clone(),
            });
        }
        for request in requests {
            let line = request.line();
            let line = line.strip_suffix('\n').unwrap();
            assert_eq!(Request::parse(line.as_bytes()), Some(request));
        }
        assert_eq!(
            Request::parse(b"list"),
            Some(Request::List(String::new())),
            "as a person would type it"
        );
    }

    #[test]
    fn what_is_not_a_request_is_none() {
        for line in [
            "",
            " ",
            "read",
            "read 1",
            "read -1 1",
            "read +1 1",
            "read 1 1 1",
            "read 99999999999999999999 1",
            "write 131073",
            "write",
            "command x",
            "flush now",
            "open",
            "open r",
            "open x ctl",
            "open r ../x",
            "open r /x",
            "open r x//y",
            "open r x/",
            "open r a\0b",
            "open r .",
            "list /",
            "nopal",
            "nopal 1 2",
            "nopal 4294967296",
            "find -7",
            "find 2147483648",
            "OPEN r x",
            "open  x",
        ] {
            assert_eq!(Request::parse(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(Request::parse(b"open r \xff"), None);
        let long = format!("open r {}", "x/".repeat(300) + "x");
        assert_eq!(Request::parse(long.as_bytes()), None);
    }

    #[test]
    fn answers_are_read_as_they_were_meant() {
        assert_eq!(answer(Ok(b"abc".to_vec())), b"ok 3\nabc");
        assert_eq!(Answer::parse(b"ok 3"), Some(Answer::Ok { length: 3 }));
        let text = answer(Err(Failure::new(libc::EINVAL, "no")));
        assert_eq!(text, b"error 22 2\nno");
        let error = Answer::Error {
            number: 22,
            length: 2,
        };
        assert_eq!(Answer::parse(b"error 22 2"), Some(error));
        for line in [
            "",
            "ok",
            "ok ",
            "ok x",
            "ok 16777217",
            "error 0 1",
            "error 1",
            "yes 1",
        ] {
            assert_eq!(Answer::parse(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn lists_are_read_as_they_were_meant() {
        let entry = |name: &str, folder, mode| Entry {
            name: name.into(),
            folder,
            mode,
        };
        let entries = vec![entry("a file", false, 0o400), entry("folder", true, 0o700)];
        assert_eq!(parse_list(&list_text(&entries)), Some(entries));
        for text in [
            "600 f ../x\n",
            "600 f \n",
            "600 x x\n",
            "4755 f x\n",
            "f x\n",
            "600 f",
        ] {
            assert_eq!(parse_list(text.as_bytes()), None, "{text:?}");
        }
    }
}
