//! Selections of functions: some locations without others.

use std::fmt;

/// A location as it is written in a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The function that this address of the process is in.
    Address(u64),
    /// The functions that begin at `start` or behind it, and before `end`, in the process.
    Range { start: u64, end: u64 },
    /// `MODULE+0xADDRESS`: the same as `Address`, by the address in the file.
    InModule { module: String, address: u64 },
    /// `MODULE+0xSTART-0xEND`: the same as `Range`, by addresses in the file.
    RangeInModule {
        module: String,
        start: u64,
        end: u64,
    },
    /// `GLOB[@MODULE]`, as `nopal_symbols::Selection` takes it; nothing before the `@` means all of the module.
    /// Without a module, the functions that are recorded by default (`docs/limits.md`).
    Names(String),
    /// The functions that have code of this line, by DWARF. `file` is the end of a path, whole components of it.
    Line { file: String, line: u32 },
}

/// The functions at some locations without those at others. Its text is that of a command, and parses to the same
/// selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSelection {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub location: Location,
    pub excluded: bool,
}

impl Part {
    /// The functions that match a pattern `GLOB[@MODULE]`.
    pub fn named(pattern: &str, excluded: bool) -> Part {
        Part {
            location: Location::Names(pattern.to_owned()),
            excluded,
        }
    }
}

impl FunctionSelection {
    /// With exclusions alone, all other functions are selected.
    pub fn parsed(mut parts: Vec<Part>) -> FunctionSelection {
        if parts.iter().all(|part| part.excluded) {
            parts.insert(0, Part::named("*", false));
        }
        FunctionSelection { parts }
    }

    /// By patterns `GLOB[@MODULE]`: those that match any of `only`, or all, but none of `not`. With `libraries`, a
    /// pattern without a module means all modules, not only the functions that are recorded by default.
    pub fn of_names<'a>(
        only: impl IntoIterator<Item = &'a str>,
        not: impl IntoIterator<Item = &'a str>,
        libraries: bool,
    ) -> FunctionSelection {
        let mut parts: Vec<Part> = only
            .into_iter()
            .map(|name| Part::named(name, false))
            .collect();
        if parts.is_empty() {
            parts.push(Part::named("*", false));
        }
        for part in &mut parts {
            if let Location::Names(names) = &mut part.location
                && libraries
                && !names.contains('@')
            {
                names.push_str("@*");
            }
        }
        parts.extend(not.into_iter().map(|name| Part::named(name, true)));
        FunctionSelection { parts }
    }

    pub fn without_exclusions(&self) -> FunctionSelection {
        let parts = self.parts.iter().filter(|part| !part.excluded);
        FunctionSelection {
            parts: parts.cloned().collect(),
        }
    }

    /// The excluded parts, as they are written without exclamation marks.
    pub fn exclusions(&self) -> FunctionSelection {
        let parts = self.parts.iter().filter(|part| part.excluded);
        let parts = parts.map(|part| Part {
            excluded: false,
            ..part.clone()
        });
        FunctionSelection {
            parts: parts.collect(),
        }
    }

    /// Whether it is of all functions but those that are left out: nobody has named one.
    pub fn names_none(&self) -> bool {
        let mut parts = self.parts.iter().filter(|part| !part.excluded);
        let all = ["*", "*@*"].map(|all| Location::Names(all.to_owned()));
        parts.all(|part| all.contains(&part.location))
    }

    /// Whether a function is meant for its own sake, not as one of all, or of all of a file.
    pub fn names_some(&self) -> bool {
        let mut parts = self.parts.iter().filter(|part| !part.excluded);
        parts.any(|part| match &part.location {
            Location::Names(names) => !matches!(names.split('@').next(), Some("*" | "")),
            _ => true,
        })
    }

    pub fn map_locations(self, mut change: impl FnMut(Location) -> Location) -> FunctionSelection {
        let parts = self.parts.into_iter().map(|part| Part {
            location: change(part.location),
            ..part
        });
        FunctionSelection {
            parts: parts.collect(),
        }
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl fmt::Display for FunctionSelection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                out.write_str(" ")?;
            }
            part.fmt(out)?;
        }
        Ok(())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.excluded { "!" } else { "" };
        // Eight digits or more are an address without 0x.
        match &self.location {
            Location::Address(address) => write!(out, "{not}{address:08x}"),
            Location::Range { start, end } => write!(out, "{not}{start:08x} {end:08x}"),
            Location::InModule { module, address } => {
                out.write_str(&word(&format!("{not}{module}+{address:#x}")))
            }
            Location::RangeInModule { module, start, end } => {
                out.write_str(&word(&format!("{not}{module}+{start:#x}-{end:#x}")))
            }
            Location::Line { file, line } => out.write_str(&word(&format!("{not}{file}:{line}"))),
            Location::Names(names) if is_address(names) => write!(out, "\"{not}{names}\""),
            Location::Names(names) => out.write_str(&word(&format!("{not}{names}"))),
        }
    }
}

/// Whether a name would be taken for an address. It may say so of a few others.
fn is_address(name: &str) -> bool {
    let digits = name.strip_prefix("0x").unwrap_or(name);
    let short = name.len() < 8 && !name.starts_with(|char: char| char.is_ascii_digit());
    !short && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A word as it is written in a command: in quotes where it would be taken for something else.
pub fn word(text: &str) -> String {
    let plain = !text.is_empty()
        && !["new", "if", "do", "return", "mark", "probe"].contains(&text)
        && !text.starts_with(['#', '"'])
        && !text.contains([' ', '\t', '\r']);
    if plain {
        text.to_owned()
    } else {
        // There is no way to write a quote between quotes; in a glob, `?` matches it.
        format!("\"{}\"", text.replace('"', "?"))
    }
}
