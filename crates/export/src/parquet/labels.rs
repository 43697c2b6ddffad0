//! Labels: the directories `service=/version=/host=` that tell traces apart.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail, ensure};
use nopal_analysis::text::date;
use nopal_trace::Trace;

/// The longest name of a directory.
const LONGEST: usize = 255;

/// The directory level of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Service,
    Version,
    Host,
}

const KEYS: [(&str, Key); 3] = [
    ("service", Key::Service),
    ("version", Key::Version),
    ("host", Key::Host),
];

/// `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    key: Key,
    value: String,
}

impl FromStr for Label {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Label> {
        let Some((name, value)) = text.split_once('=') else {
            bail!("it is not of the form KEY=VALUE");
        };
        let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == name) else {
            bail!("the keys are service, version and host");
        };
        ensure!(!value.is_empty(), "it has no value");
        ensure!(
            directory(name, value).len() <= LONGEST,
            "its value is too long for the name of a directory"
        );
        let value = value.to_owned();
        Ok(Label { key: *key, value })
    }
}

/// `date=2026-11-21/service=cart/version=1.4/host=n17`: the day on which the trace begins, and its labels. Of several
/// labels of a key the last holds; without any, a trace has its program's name, no version, and its machine's name.
pub fn partition(trace: &Trace, begin_ns: u64, labels: &[Label]) -> PathBuf {
    let session = trace.session();
    let program = session.command.first().map_or("", String::as_str);
    let program = program.rsplit('/').next().unwrap_or_default();
    let day = date(begin_ns.max(1));
    let mut partition = PathBuf::from(format!("date={}", day.get(..10).unwrap_or_default()));
    for (name, key) in KEYS {
        let given = labels.iter().rfind(|label| label.key == key);
        let value = match (given, key) {
            (Some(label), _) => label.value.as_str(),
            (None, Key::Service) => program,
            (None, Key::Version) => "",
            (None, Key::Host) => &session.hostname,
        };
        let named = directory(name, value);
        partition.push(match value.is_empty() || named.len() > LONGEST {
            true => directory(name, "unknown"),
            false => named,
        });
    }
    partition
}

/// `version=1.4%2Frc`: as Hive, Spark and DuckDB write and read it. Only harmless characters of ASCII stand for
/// themselves, so that no value makes several directories, or has a meaning for a shell.
fn directory(name: &str, value: &str) -> String {
    let mut directory = format!("{name}=");
    for character in value.chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' => directory.push(character),
            _ if character.is_ascii() => {
                directory.push_str(&format!("%{:02X}", u32::from(character)));
            }
            _ => directory.push(character),
        }
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_directory_whatever_it_is() {
        for (value, escaped) in [
            ("1.4", "version=1.4"),
            ("..", "version=.."),
            ("../../etc/passwd", "version=..%2F..%2Fetc%2Fpasswd"),
            ("a=b/c=d", "version=a%3Db%2Fc%3Dd"),
            ("100%2F", "version=100%252F"),
            ("a b'\"\n\0*?[", "version=a%20b%27%22%0A%00%2A%3F%5B"),
            ("Grüße", "version=Grüße"),
        ] {
            assert_eq!(directory("version", value), escaped);
            let parts = std::path::Path::new(escaped).components();
            assert_eq!(parts.count(), 1);
            let label: Label = format!("version={value}").parse().unwrap();
            assert_eq!(label.value, value);
        }
    }

    #[test]
    fn labels_that_name_no_directory_are_refused() {
        let long = format!("host={}", "x".repeat(251));
        for text in [
            "",
            "host",
            "host=",
            "=x",
            "date=x",
            "../host=x",
            "Host=x",
            &long,
        ] {
            assert!(text.parse::<Label>().is_err(), "{text}");
        }
        assert!(long[..255].parse::<Label>().is_ok());
    }
}
