//! Defaults that the user has set: in variables `NOPAL_…`, or in the file `nopal.toml` of the user's own configuration.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use toml::de::{DeTable, DeValue};

use crate::arguments::{Color, NamesArgument};
use crate::{size, trusted_file};

/// The settings of this process.
static OF_PROCESS: LazyLock<Settings> =
    LazyLock::new(|| Settings::read(|name| std::env::var(name).ok()));

/// The user's settings. A setting without a value has its default.
#[derive(Debug, Default, PartialEq)]
pub struct Settings {
    /// A command of the shell; an empty one means no pager.
    pub pager: Option<String>,
    pub color: Option<Color>,
    pub names: Option<NamesArgument>,
    /// Bytes.
    pub buffer: Option<u64>,
    /// Each setting with its origin: `names = full (NOPAL_NAMES)`.
    pub origins: Vec<String>,
    /// Why settings that are wrong were left out.
    pub complaints: Vec<String>,
}

/// The keys of the file.
#[derive(Debug, Default)]
struct Keys {
    pager: Option<String>,
    color: Option<String>,
    names: Option<String>,
    buffer: Option<String>,
}

impl Settings {
    pub fn of_process() -> &'static Settings {
        &OF_PROCESS
    }

    /// Reads the variables, and the file that they lead to. Each error becomes a complaint.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Settings {
        let mut settings = Settings::default();
        let path = path(&variable);
        let keys = path.as_deref().map_or(Ok(None), keys);
        let keys = keys.unwrap_or_else(|error| {
            settings.complaints.push(format!("{error:#}"));
            None
        });
        let keys = keys.unwrap_or_default();
        let file = path.unwrap_or_default().display().to_string();
        let from = |name: &'static str, of_file: Option<String>| {
            let of_variable = variable(name).map(|value| (value, name.to_owned()));
            of_variable.or_else(|| of_file.map(|value| (value, file.clone())))
        };
        settings.pager = settings.set("pager", from("NOPAL_PAGER", keys.pager), |text| {
            Ok(text.to_owned())
        });
        settings.color = settings.set("color", from("NOPAL_COLOR", keys.color), |text| {
            Color::from_str(text, false)
        });
        settings.names = settings.set("names", from("NOPAL_NAMES", keys.names), |text| {
            NamesArgument::from_str(text, false)
        });
        settings.buffer = settings.set("buffer", from("NOPAL_BUFFER", keys.buffer), size::parse);
        settings
    }

    fn set<Value>(
        &mut self,
        key: &str,
        value: Option<(String, String)>,
        parse: impl Fn(&str) -> Result<Value, String>,
    ) -> Option<Value> {
        let (text, origin) = value?;
        match parse(&text) {
            Ok(value) => {
                self.origins.push(format!("{key} = {text} ({origin})"));
                Some(value)
            }
            Err(why) => {
                let complaint = format!("{key} = {text:?} of {origin} does not count: {why}");
                self.complaints.push(complaint);
                None
            }
        }
    }
}

/// The path of the file; none if it would depend on the working directory.
fn path(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(variable(name)?);
        path.is_absolute().then_some(path)
    };
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(directory?.join("nopal.toml"))
}

/// The settings of a file, if it exists. A pager is a command, so another user who may write the file could run
/// commands as this one.
fn keys(path: &Path) -> Result<Option<Keys>> {
    let Some(text) = trusted_file::read(path)? else {
        return Ok(None);
    };
    let wrong = |why: &str| anyhow!("{} is not read: {why}", path.display());
    let table = DeTable::parse(&text).map_err(|error| wrong(error.message()))?;
    let mut keys = Keys::default();
    for (name, value) in table.into_inner() {
        let name = name.get_ref().as_ref();
        let key = match name {
            "pager" => &mut keys.pager,
            "color" => &mut keys.color,
            "names" => &mut keys.names,
            "buffer" => &mut keys.buffer,
            _ => {
                let why = format!(
                    "unknown field `{name}`, expected one of `pager`, `color`, `names`, `buffer`"
                );
                return Err(wrong(&why));
            }
        };
        let DeValue::String(text) = value.into_inner() else {
            return Err(wrong(&format!("{name}: a text is expected")));
        };
        *key = Some(text.into_owned());
    }
    Ok(Some(keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn read(file: Option<&str>, variables: &[(&str, &str)], mode: u32) -> Settings {
        let directory = tempfile::tempdir().unwrap();
        if let Some(text) = file {
            let path = directory.path().join("nopal.toml");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        Settings::read(|name| {
            let set = variables.iter().find(|(known, _)| *known == name);
            match (set, name) {
                (Some((_, value)), _) => Some((*value).to_owned()),
                (None, "XDG_CONFIG_HOME") => Some(directory.path().to_str()?.to_owned()),
                _ => None,
            }
        })
    }

    const FILE: &str = "pager = \"less -S\"\ncolor = 'never'\nnames = 'full'\nbuffer = '16M'\n";

    #[test]
    fn variables_go_before_the_file() {
        assert_eq!(read(None, &[], 0o600), Settings::default());
        let settings = read(Some(FILE), &[("NOPAL_NAMES", "raw")], 0o600);
        assert_eq!(settings.complaints, [""; 0]);
        assert_eq!(settings.pager.as_deref(), Some("less -S"));
        assert_eq!(settings.buffer, Some(16 << 20));
        assert!(matches!(settings.names, Some(NamesArgument::Raw)));
        assert!(matches!(settings.color, Some(Color::Never)));
        assert!(settings.origins[0].starts_with("pager = less -S (/"));
        assert_eq!(settings.origins[2], "names = raw (NOPAL_NAMES)");
    }

    #[test]
    fn what_is_wrong_does_not_count_and_is_told() {
        for (file, variables, mode, said) in [
            (FILE, [("", "")], 0o622, "others may write to it"),
            (
                "pagers = 'less'",
                [("", "")],
                0o600,
                "unknown field `pagers`",
            ),
            ("pager = [", [("", "")], 0o600, "is not read"),
            ("names = 'long'", [("", "")], 0o600, "\"long\""),
            (
                "",
                [("NOPAL_BUFFER", "12Q")],
                0o600,
                "\"12Q\" of NOPAL_BUFFER",
            ),
        ] {
            let settings = read(Some(file), &variables, mode);
            assert!(settings.complaints.concat().contains(said), "{settings:?}");
            assert_eq!(settings.origins, [""; 0]);
        }
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("nopal.toml")).unwrap();
        assert!(keys(&directory.path().join("nopal.toml")).is_err());
    }

    #[test]
    fn nothing_depends_on_the_working_directory() {
        let of = |variables: &[(&str, &str)]| {
            path(|name| {
                let set = variables.iter().find(|(known, _)| *known == name)?;
                Some(set.1.to_owned())
            })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("XDG_CONFIG_HOME", ""), ("HOME", ".")]), None);
        let home = [("XDG_CONFIG_HOME", "config"), ("HOME", "/home/a")];
        let expected = PathBuf::from("/home/a/.config/nopal.toml");
        assert_eq!(of(&home), Some(expected));
    }
}
