//! The services that the daemon follows: a file each, `NAME.toml`. Its keys are the long options of `nopal attach`, and
//! some of the daemon's own.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::arguments::{Arguments, Command};
use crate::{size, time, trusted_file};
use nopal_analysis::sort;
use nopal_control::begin;
use nopal_symbols::{nearest, or_nearest, printable};

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

impl Service {
    /// Whether its recordings may have snapshots.
    pub fn has_snapshots(&self) -> bool {
        let is_of_flight =
            |word: &String| word == "--flight" || word.starts_with(&format!("--{PAIR}"));
        self.words.iter().any(is_of_flight)
    }
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
    /// The errors in the files of the others, with the names of these.
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
            Err(all) => {
                for (at, why) in all {
                    let line = 1 + text[..at.min(text.len())].matches('\n').count();
                    let why = format!("{}:{line}: {why}", path.display());
                    wrong.push((name.to_owned(), why));
                }
            }
        }
    }
    Ok(described)
}

/// The place of an error, in bytes, and its text.
type Wrong = (usize, String);

/// All that is wrong is told, in the order of the text.
fn service(name: &str, text: &str) -> Result<Service, Vec<Wrong>> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
    if name.starts_with('.') || name.is_empty() || !name.chars().all(is_plain) {
        let why = "a service's file has a name of letters, digits and - _ . @";
        return Err(vec![(0, why.into())]);
    }
    let (sound, mut wrong) = sound(text);
    let Ok(table) = DeTable::parse(&sound) else {
        return Err(wrong);
    };
    let mut service = Service {
        name: name.into(),
        words: Vec::new(),
        control: Vec::new(),
        keep: KEEP,
        keep_for: KEEP_FOR,
    };
    let (mut processes, mut options) = (Vec::new(), Vec::new());
    let known = known_keys();
    for (name, value) in table.into_inner() {
        let read = key(text, name, value);
        let taken = read.and_then(|key| service.take(key, &mut processes, &mut options, &known));
        wrong.extend(taken.err());
    }
    let has = |name: &str| {
        options
            .iter()
            .any(|key| key.name == name && !key.values.is_empty())
    };
    let follows = !processes.is_empty() || ["unit", "cgroup", "container"].into_iter().any(has);
    // What follows something may be among the errors.
    if !follows && wrong.is_empty() {
        let why = "nothing to follow: process, unit, cgroup or container is expected";
        wrong.push((0, why.into()));
    }
    wrong.extend(wrong_options(&options, &processes, !wrong.is_empty()));
    if !has("for") {
        service.words.push(format!("--for={FOR}"));
    }
    service.words.extend(options.iter().flat_map(Key::words));
    service.words.push("--".into());
    service.words.extend(processes);
    sort::by_key(&mut wrong, |(at, _)| *at);
    match wrong.is_empty() {
        true => Ok(service),
        false => Err(wrong),
    }
}

/// The text with blanks in place of lines that are no TOML, and the errors in these. That in a line right behind another
/// one may come from it, as behind a bracket that was not closed, and is not told.
fn sound(text: &str) -> (String, Vec<Wrong>) {
    let mut sound = text.to_owned();
    let mut wrong = Vec::new();
    let mut last_end = None;
    while let Err(error) = DeTable::parse(&sound) {
        let span = error.span().unwrap_or_default();
        let line = line_around(&sound, span.start);
        if sound[line.clone()].trim().is_empty() {
            // An error of the whole: nothing is known of the rest.
            sound.clear();
        }
        if wrong.is_empty() || last_end.is_none_or(|end| line.start > end + 1) {
            let word = text.get(span.clone()).map_or("", str::trim);
            let word = match word {
                "" => text[line.clone()].trim(),
                word => word,
            };
            let why = format!("{}: {}", error.message(), quoted(word));
            wrong.push((span.start, why));
        }
        last_end = Some(line.end);
        if !sound.is_empty() {
            sound.replace_range(line.clone(), &" ".repeat(line.len()));
        }
    }
    (sound, wrong)
}

/// What `nopal attach` does not take. `is_incomplete`: an option that others need may be missing, as it has an error.
fn wrong_options(options: &[Key], processes: &[String], is_incomplete: bool) -> Vec<Wrong> {
    let needs_another = |kind| kind == Some(ErrorKind::MissingRequiredArgument);
    let (mut good, mut in_need) = (Vec::new(), None);
    let mut wrong = Vec::new();
    for key in options {
        let found = check(&[key.words(), vec!["1".into()]].concat());
        match found {
            Err((kind, why)) if !needs_another(kind) => {
                wrong.push((key.place.start, format!("{}: {why}", key.name)));
                continue;
            }
            Err(_) => in_need = in_need.or(Some(key)),
            Ok(()) => {}
        }
        good.extend(key.words());
    }
    let is_incomplete = is_incomplete || !wrong.is_empty();
    let all = [&good, &["--".to_owned()][..], processes].concat();
    if let Err((kind, why)) = check(&all)
        && !(is_incomplete && needs_another(kind))
    {
        wrong.push(match in_need {
            Some(key) => (key.place.start, format!("{}: {why}", key.name)),
            None => (0, why),
        });
    }
    wrong
}

impl Service {
    /// Takes a key of its file. Those that are options of `nopal attach` go to `options`.
    fn take(
        &mut self,
        key: Key,
        processes: &mut Vec<String>,
        options: &mut Vec<Key>,
        known: &[String],
    ) -> Result<(), Wrong> {
        let at = key.place.start;
        let wrong = |why: String| (at, format!("{}: {why}", key.name));
        let text = || match key.values.as_slice() {
            [text] if !key.is_flag => Ok(text.as_str()),
            _ => Err(wrong("one text is expected".into())),
        };
        match key.name.as_str() {
            "process" => *processes = key.values,
            "control" => {
                let errors = key
                    .values
                    .iter()
                    .filter_map(|one| begin::command(one).err());
                let errors: Vec<String> = errors.map(|error| format!("{error:#}")).collect();
                if !errors.is_empty() {
                    return Err(wrong(errors.join("; ")));
                }
                self.control = key.values;
            }
            "keep" => {
                self.keep = size::parse(text()?).map_err(wrong)?;
                if self.keep < LEAST_KEPT {
                    return Err(wrong("at least 16M are expected".into()));
                }
            }
            "keep-for" => self.keep_for = time::parse(text()?).map_err(wrong)?,
            name if NOT_KEYS.contains(&name) => {
                return Err(wrong("this is not for a service".into()));
            }
            name if !known.iter().any(|known| known == name) => {
                let nearest = nearest(known.iter().map(String::as_str), name);
                let why = format!("there is no such key{}", or_nearest(&nearest));
                return Err(wrong(why));
            }
            _ => options.push(key),
        }
        Ok(())
    }
}

/// The keys that a service may have: the long options of `nopal attach`, but for those that are not for a service, and
/// the daemon's own.
fn known_keys() -> Vec<String> {
    let own = ["process", "control", "keep", "keep-for"];
    let mut known: Vec<String> = own.map(str::to_owned).into();
    let command = Arguments::command();
    if let Some(attach) = command.find_subcommand("attach") {
        let names = attach.get_arguments().filter_map(|one| one.get_long());
        let names = names.filter(|name| !NOT_KEYS.contains(name));
        known.extend(names.map(str::to_owned));
    }
    known
}

/// The line of a text in which a place is.
fn line_around(text: &str, at: usize) -> Range<usize> {
    let at = text.floor_char_boundary(at);
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[begin..].find('\n');
    begin..end.map_or(text.len(), |length| begin + length)
}

fn quoted(word: &str) -> String {
    format!("{:?}", printable(word.lines().next().unwrap_or_default()))
}

fn key(text: &str, name: Spanned<Cow<str>>, value: Spanned<DeValue>) -> Result<Key, Wrong> {
    let place = name.span();
    let name = name.into_inner().into_owned();
    let takes_texts = ["process", "control"].contains(&name.as_str());
    let wrong = |at: &Range<usize>| {
        let expected = match takes_texts {
            true => "a text or a list of texts is expected",
            false => "a text, a number, true, false, or a list of texts is expected",
        };
        let found = quoted(text.get(at.clone()).unwrap_or_default());
        (at.start, format!("{name}: {expected}, found {found}"))
    };
    let text_of = |value: &Spanned<DeValue>, is_in_list: bool| {
        let text = match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) if !is_in_list && !takes_texts => {
                let number = i64::from_str_radix(number.as_str(), number.radix());
                number.ok().map(|number| number.to_string())
            }
            _ => None,
        };
        text.ok_or_else(|| wrong(&value.span()))
    };
    let values = match value.get_ref() {
        DeValue::Boolean(_) if takes_texts => return Err(wrong(&value.span())),
        DeValue::Boolean(false) => Vec::new(),
        DeValue::Boolean(true) => vec![String::new()],
        DeValue::Array(values) => {
            let values = values.iter().map(|value| text_of(value, true));
            values.collect::<Result<_, _>>()?
        }
        _ => vec![text_of(&value, false)?],
    };
    Ok(Key {
        is_flag: value.get_ref().is_bool(),
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

/// Whether `nopal attach` takes these words, and a session could begin with them as far as that is known without a process.
fn check(words: &[String]) -> Result<(), (Option<ErrorKind>, String)> {
    let attach = ["nopal", "attach"].into_iter().map(str::to_owned);
    let parsed = Arguments::try_parse_from(attach.chain(words.iter().cloned()));
    let error = match parsed {
        Ok(Arguments {
            command: Command::Attach(attach),
            ..
        }) => {
            let commands = attach.commands();
            return commands.map_err(|error| (None, format!("{error:#}")));
        }
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let (kind, error) = (error.kind(), error.to_string());
    // The rest is usage and help, which are of the command line.
    let said = error.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more").next().unwrap_or_default();
    let said = said.trim_start_matches("error: ");
    let words: Vec<&str> = said.split_whitespace().collect();
    Err((Some(kind), words.join(" ")))
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
        assert!(slowest.has_snapshots() && found.has_snapshots());
        let plain = service("a", "process = 'a'").unwrap();
        assert_eq!(plain.words, ["--for=1h", "--", "a"]);
        assert_eq!((plain.keep, plain.keep_for), (KEEP, KEEP_FOR));
        assert!(!plain.has_snapshots());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = |text: &str| {
            let all = service("a", text).unwrap_err();
            let (at, why) = &all[0];
            format!("{}: {why}", 1 + text[..*at].matches('\n').count())
        };
        for (text, said) in [
            (
                "process = 'a'\nbuffer = '12Q'",
                "2: buffer: invalid value '12Q' for '--buffer <SIZE>'",
            ),
            (
                "process = 'a'\n\nbufer = '1M'",
                "3: bufer: there is no such key; the nearest is buffer",
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
                "2: snapshot-when: the following required arguments were not provided: --flight",
            ),
            (
                "process = 'a'\nflight = true\nsnapshot-when = 'f'\nzzz = 1",
                "4: zzz: there is no such key",
            ),
            (
                "process = 'a'\nmax-size = '1G'",
                "2: max-size: this is not for a service",
            ),
            (
                "process = 'a'\nunit = 1.5",
                "2: unit: a text, a number, true, false, or a list of texts is expected, found \"1.5\"",
            ),
            (
                "process = 'a'\nlibs = 'yes'",
                "2: libs: unexpected value 'yes' for '--libs'",
            ),
            (
                "process = 'a'\nprocess = 'b'",
                "2: duplicate key: \"process\"",
            ),
            (
                "process = 'a'\nkeeep = '1G'",
                "2: keeep: there is no such key; the nearest is keep",
            ),
            ("process = 'a'\n  keep =\ndepth = 5", "2: "),
            (
                "process = ['a', 5]",
                "1: process: a text or a list of texts is expected, found \"5\"",
            ),
            (
                "process = true",
                "1: process: a text or a list of texts is expected, found \"true\"",
            ),
            (
                "process = 'a'\ncontrol = ['trace p on', 'trace p onn']",
                "2: control: \"trace p onn\": expected ",
            ),
            (
                "process = 'a'\nflight = true\nsnapshot-when = 'retrn call'",
                "3: snapshot-when: \"when retrn call do snapshot\": expected return or functions, found \"retrn\"",
            ),
            (
                "process = 'a'\nkeep-slowest = '0 a..b'",
                "2: keep-slowest: --keep-slowest 0 a..b: expected a number of cases a minute",
            ),
            (
                "process = 'a'\nkeep-slowest = '20 ab'",
                "2: keep-slowest: --keep-slowest 20 ab: expected a section",
            ),
            ("process = 'a", "1: invalid"),
            (
                "process = 'a'\nhelp = true",
                "2: help: this is not for a service",
            ),
        ] {
            assert!(wrong(text).starts_with(said), "{text:?}: {}", wrong(text));
        }
        for (text, word) in [
            ("process = 'a'\n  keep =\ndepth = 5", "\"keep =\""),
            ("process = 'a'\nkeep '1G'", "\"keep '1G'\""),
        ] {
            assert!(wrong(text).contains(word), "{text:?}: {}", wrong(text));
        }
        assert!(
            service("a b", "process = 'a'").is_err() && service("..", "process = 'a'").is_err()
        );
    }

    #[test]
    fn all_errors_of_a_file_are_told() {
        let text = "keeep = '1G'\nprocess = 'a'\nbuffer = '12Q'\nlibs = 'yes'\ncontrol 'trace p on'\nkeep = '1M'\n\
                    depth = 'deep'\nsnapshot-when = 'retrn call'\nflight = true\n";
        let found = service("a", text).unwrap_err();
        let line = |(at, why): (usize, String)| {
            let line = 1 + text[..at].matches('\n').count();
            let key = why.split(':').next().unwrap_or_default().to_owned();
            (line, key)
        };
        let found: Vec<(usize, String)> = found.into_iter().map(line).collect();
        let found: Vec<(usize, &str)> = found.iter().map(|(at, key)| (*at, &key[..])).collect();
        let [first @ .., last] = &found[..] else {
            panic!()
        };
        assert_eq!(
            (first, last),
            (
                &[
                    (1, "keeep"),
                    (3, "buffer"),
                    (4, "libs"),
                    (5, "key with no value, expected `=`"),
                    (6, "keep"),
                    (7, "depth"),
                ][..],
                &(8, "snapshot-when")
            )
        );
        // Lines behind a bracket that was not closed may be right.
        let open = service("a", "process = ['a'\nkeep = '1M'\nfor = '1h'\n").unwrap_err();
        assert_eq!(open.len(), 1, "{open:?}");
        // What is missing may be among what is wrong.
        assert_eq!(service("a", "unit = 5.5").unwrap_err().len(), 1);
    }
}
