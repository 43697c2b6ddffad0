//! The services that the daemon follows: a file each, `NAME.toml`. Its keys are the long options of `nopal attach`, and
//! some of the daemon's own.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use clap::error::ErrorKind;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::arguments::Arguments;
use crate::{size, time, trusted_file};
use nopal_analysis::sort;

const SUFFIX: &str = ".toml";

/// How many bytes of a service's recordings are kept, and how long, if its file does not say.
const KEEP: u64 = 1 << 30;
const KEEP_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// The least that a file may ask for.
const LEAST_KEPT: u64 = 16 << 20;
/// A recording ends after this, and the next one begins, if its file does not say.
const FOR: &str = "1h";

/// Options of `nopal attach` that are not for a service: the daemon chooses them, or a person would.
const NOT_KEYS: [&str; 5] = ["output", "max-size", "help", "color", "names"];
/// The option that takes two words; the key has both in one text.
const PAIR: &str = "keep-slowest";

/// A service, as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The name of the file.
    pub name: String,
    /// The words behind `nopal attach -o DIR`.
    pub words: Vec<String>,
    /// Commands for the session, as `nopal ctl` takes them.
    pub control: Vec<String>,
    /// Bytes of traces that are kept at most.
    pub keep: u64,
    /// How long they are kept.
    pub keep_for: Duration,
}

/// A key of a service's file, with its values.
struct Key {
    name: String,
    place: Range<usize>,
    values: Vec<String>,
    /// Whether the value is `true`, not a text.
    is_flag: bool,
}

/// The services that the files of a directory describe.
#[derive(Default)]
pub struct Described {
    pub services: Vec<Service>,
    /// The names of the others, and the errors in their files.
    pub wrong: Vec<(String, String)>,
}

pub fn read(directory: &Path) -> Result<Described> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(SUFFIX)).collect();
    sort::by(&mut names, Ord::cmp);
    let mut described = Described::default();
    let wrong = &mut described.wrong;
    for file in names {
        let path = directory.join(&file);
        let name = file.strip_suffix(SUFFIX).unwrap_or(&file);
        let text = match trusted_file::read(&path) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(error) => {
                wrong.push((name.to_owned(), format!("{error:#}")));
                continue;
            }
        };
        match service(name, &text) {
            Ok(service) => described.services.push(service),
            Err((at, why)) => {
                let line = 1 + text[..at.min(text.len())].matches('\n').count();
                let why = format!("{}:{line}: {why}", path.display());
                wrong.push((name.to_owned(), why));
            }
        }
    }
    Ok(described)
}

/// The place of an error, in bytes, and its text.
type Wrong = (usize, String);

fn service(name: &str, text: &str) -> Result<Service, Wrong> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
    if name.starts_with('.') || name.is_empty() || !name.chars().all(is_plain) {
        let why = "a service's file has a name of letters, digits and - _ . @";
        return Err((0, why.into()));
    }
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (at, error.message().to_owned())
    })?;
    let mut service = Service {
        name: name.into(),
        words: Vec::new(),
        control: Vec::new(),
        keep: KEEP,
        keep_for: KEEP_FOR,
    };
    let (mut processes, mut options) = (Vec::new(), Vec::new());
    for (name, value) in table.into_inner() {
        let key = key(name, value)?;
        let at = key.place.start;
        let wrong = |why: String| (at, format!("{}: {why}", key.name));
        let text = || match key.values.as_slice() {
            [text] if !key.is_flag => Ok(text.as_str()),
            _ => Err(wrong("one text is expected".into())),
        };
        match key.name.as_str() {
            "process" => processes = key.values,
            "control" => service.control = key.values,
            "keep" => {
                service.keep = size::parse(text()?).map_err(wrong)?;
                if service.keep < LEAST_KEPT {
                    return Err(wrong("at least 16M are expected".into()));
                }
            }
            "keep-for" => service.keep_for = time::parse(text()?).map_err(wrong)?,
            name if NOT_KEYS.contains(&name) => {
                return Err(wrong("this is not for a service".into()));
            }
            _ => options.push(key),
        }
    }
    let has = |name: &str| {
        options
            .iter()
            .any(|key| key.name == name && !key.values.is_empty())
    };
    if processes.is_empty() && !["unit", "cgroup", "container"].iter().any(|name| has(name)) {
        let why = "nothing to follow: process, unit, cgroup or container is expected";
        return Err((0, why.into()));
    }
    if !has("for") {
        service.words.push(format!("--for={FOR}"));
    }
    service.words.extend(options.iter().flat_map(Key::words));
    service.words.push("--".into());
    service.words.extend(processes);
    check(&service.words).map_err(|(_, why)| {
        let alone = |key: &Key| {
            let words = [key.words(), vec!["1".into()]].concat();
            Some((check(&words).err()?.0, key.place.start))
        };
        let mut wrong: Vec<(ErrorKind, usize)> = options.iter().filter_map(alone).collect();
        // An option that needs another is refused alone, and may be accepted beside it.
        sort::by_key(&mut wrong, |(kind, _)| {
            *kind == ErrorKind::MissingRequiredArgument
        });
        (wrong.first().map_or(0, |(_, at)| *at), why)
    })?;
    Ok(service)
}

fn key(name: Spanned<Cow<str>>, value: Spanned<DeValue>) -> Result<Key, Wrong> {
    let place = name.span();
    let name = name.into_inner().into_owned();
    let wrong = |what: &str| (place.start, format!("{name}: {what}"));
    let text = |value: &DeValue| {
        let text = match value {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix());
                number.ok().map(|number| number.to_string())
            }
            _ => None,
        };
        text.ok_or_else(|| wrong("a text, a number, true, false, or a list of texts is expected"))
    };
    let value = value.into_inner();
    let values = match &value {
        DeValue::Boolean(false) => Vec::new(),
        DeValue::Boolean(true) => vec![String::new()],
        DeValue::Array(values) => {
            let values = values.iter().map(|value| text(value.get_ref()));
            values.collect::<Result<_, _>>()?
        }
        value => vec![text(value)?],
    };
    Ok(Key {
        is_flag: value.is_bool(),
        place,
        name,
        values,
    })
}

impl Key {
    fn words(&self) -> Vec<String> {
        let name = || format!("--{}", self.name);
        let words = |value: &String| match value.split_once(' ') {
            _ if self.is_flag => vec![name()],
            Some((first, second)) if self.name == PAIR => {
                vec![name(), first.to_owned(), second.to_owned()]
            }
            _ => vec![format!("{}={value}", name())],
        };
        self.values.iter().flat_map(words).collect()
    }
}

/// Whether `nopal attach` takes these words.
fn check(words: &[String]) -> Result<(), (ErrorKind, String)> {
    let attach = ["nopal", "attach"].into_iter().map(str::to_owned);
    let parsed = Arguments::try_parse_from(attach.chain(words.iter().cloned()));
    let Err(error) = parsed else {
        return Ok(());
    };
    let (kind, error) = (error.kind(), error.to_string());
    // The rest is usage and help, which are of the command line.
    let said = error.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more").next().unwrap_or_default();
    let said = said.trim_start_matches("error: ");
    let words: Vec<&str> = said.split_whitespace().collect();
    Err((kind, words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_options_of_attach_and_those_of_the_daemon() {
        let text = "unit = 'postgresql'\nflight = true\nlibs = false\nsnapshot-when = ['return a if duration > 1ms', 'b']\n\
                    depth = 5\nkeep = '2G'\nkeep-for = '3h'\ncontrol = ['trace x new y', 'trace y count']\nprocess = 'nginx'\n";
        let found = service("pg", text).unwrap();
        let mut words = found.words.clone();
        words.sort();
        assert_eq!(
            words,
            [
                "--",
                "--depth=5",
                "--flight",
                "--for=1h",
                "--snapshot-when=b",
                "--snapshot-when=return a if duration > 1ms",
                "--unit=postgresql",
                "nginx"
            ]
        );
        assert_eq!(found.words.last().unwrap(), "nginx");
        assert_eq!((found.keep, found.keep_for.as_secs()), (2 << 30, 3 * 3600));
        assert_eq!(found.control, ["trace x new y", "trace y count"]);
        let slowest = service("a", "process = 'a'\nkeep-slowest = '20 a..b'").unwrap();
        let words = ["--keep-slowest", "20", "a..b"];
        assert!(slowest.words.windows(3).any(|three| three == words));
        let plain = service("a", "process = 'a'").unwrap();
        assert_eq!(plain.words, ["--for=1h", "--", "a"]);
        assert_eq!((plain.keep, plain.keep_for), (KEEP, KEEP_FOR));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = |text: &str| {
            let (at, why) = service("a", text).unwrap_err();
            format!("{}: {why}", 1 + text[..at].matches('\n').count())
        };
        for (text, said) in [
            (
                "process = 'a'\nbuffer = '12Q'",
                "2: invalid value '12Q' for '--buffer <SIZE>'",
            ),
            (
                "process = 'a'\n\nbufer = '1M'",
                "3: unexpected argument '--bufer' found tip: a similar argument exists: '--buffer'",
            ),
            ("process = 'a'\nkeep = 'x'", "2: keep: "),
            (
                "process = 'a'\nkeep = true",
                "2: keep: one text is expected",
            ),
            (
                "process = 'a'\nkeep-for = '7q'",
                "2: keep-for: unknown unit",
            ),
            (
                "process = 'a'\noutput = 'x'",
                "2: output: this is not for a service",
            ),
            ("flight = true", "1: nothing to follow"),
            (
                "process = 'a'\nsnapshot-when = 'f'",
                "2: the following required arguments were not provided: --flight",
            ),
            (
                "process = 'a'\nflight = true\nsnapshot-when = 'f'\nzzz = 1",
                "4: unexpected argument '--zzz'",
            ),
            (
                "process = 'a'\nmax-size = '1G'",
                "2: max-size: this is not for a service",
            ),
            ("process = 'a'\nunit = 1.5", "2: unit: a text"),
            (
                "process = 'a'\nlibs = 'yes'",
                "2: unexpected value 'yes' for '--libs'",
            ),
            ("process = 'a'\nprocess = 'b'", "2: duplicate key"),
            ("process = 'a", "1: invalid"),
            (
                "process = 'a'\nhelp = true",
                "2: help: this is not for a service",
            ),
        ] {
            assert!(wrong(text).starts_with(said), "{text:?}: {}", wrong(text));
        }
        assert!(
            service("a b", "process = 'a'").is_err() && service("..", "process = 'a'").is_err()
        );
    }
}
