//! Names of functions as labels of enumerations: printable, bounded, unique.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

/// Longer names are cut in labels; `session` has the full names.
const LONGEST: usize = 1000;

/// A function that wants a label.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub site: u32,
    pub name: &'a str,
    /// The file name of its image.
    pub module: &'a str,
    /// Its link-time address there.
    pub address: u64,
}

/// The addition to a name that is not unique.
#[derive(Clone, Copy)]
enum Detail {
    Module,
    Address,
    Site,
}

/// Labels in the order of `functions`. Equal names become `name@module`, then `name@module+0xaddress`.
pub fn labels<'a>(functions: &[Named<'a>]) -> Vec<Cow<'a, str>> {
    let names = functions.iter().map(|function| clean(function.name));
    let mut labels: Vec<Cow<str>> = names.collect();
    for more in [Detail::Module, Detail::Address, Detail::Site] {
        let mut first = HashMap::<&str, usize>::with_capacity(labels.len());
        let mut shared = BTreeSet::new();
        for (index, label) in labels.iter().enumerate() {
            let before = *first.entry(label).or_insert(index);
            if before != index {
                shared.extend([before, index]);
            }
        }
        if shared.is_empty() {
            break;
        }
        for index in shared {
            labels[index] = label(&functions[index], more).into();
        }
    }
    labels
}

fn label(function: &Named, detail: Detail) -> String {
    let Named { site, address, .. } = *function;
    let (name, module) = (clean(function.name), clean(function.module));
    match detail {
        Detail::Module => format!("{name}@{module}"),
        Detail::Address => format!("{name}@{module}+{address:#x}"),
        Detail::Site => format!("{name}@{module}+{address:#x}#{site}"),
    }
}

/// `name` without control characters, and no longer than a label may be.
fn clean(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return "?".into();
    }
    if name.len() <= LONGEST && name.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        return name.into();
    }
    let end = name.floor_char_boundary(LONGEST);
    let mut label = name[..end].to_owned();
    if label.contains(char::is_control) {
        label = label.replace(char::is_control, "?");
    }
    if end < name.len() {
        label.push('…');
    }
    label.into()
}

/// `text` as a TSDL string literal.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    push_quoted(text, &mut quoted);
    quoted
}

/// The same, at the end of `out`.
pub fn push_quoted(text: &str, out: &mut String) {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    out.push('"');
    if text.bytes().all(is_plain) {
        out.push_str(text);
    } else {
        for c in text.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if c.is_control() => out.push('?'),
                c => out.push(c),
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(site: u32, name: &'a str, module: &'a str, address: u64) -> Named<'a> {
        Named {
            site,
            name,
            module,
            address,
        }
    }

    #[test]
    fn only_shared_names_get_more_detail() {
        let functions = [
            named(1, "main", "program", 0x10),
            named(2, "init", "program", 0x20),
            named(3, "init", "libz.so.1", 0x30),
            named(4, "helper", "program", 0x40),
            named(5, "helper", "program", 0x50),
            named(6, "twin", "twin", 0x60),
            named(7, "twin", "twin", 0x60),
        ];
        let expected = [
            "main",
            "init@program",
            "init@libz.so.1",
            "helper@program+0x40",
            "helper@program+0x50",
            "twin@twin+0x60#6",
            "twin@twin+0x60#7",
        ];
        assert_eq!(labels(&functions), expected);
    }

    #[test]
    fn a_name_that_looks_like_a_detailed_one_stays_unique() {
        let functions = [
            named(1, "f", "a", 1),
            named(2, "f", "b", 2),
            named(3, "f@a", "c", 3),
        ];
        assert_eq!(labels(&functions), ["f@a+0x1", "f@b", "f@a@c+0x3"]);
    }

    #[test]
    fn labels_are_printable_and_bounded() {
        let long = "é".repeat(5000);
        let labels = labels(&[
            named(1, "a\n\"\\\u{7f}b", "m", 0),
            named(2, "", "m", 0),
            named(3, &long, "m", 0),
        ]);
        assert_eq!(labels[0], "a?\"\\?b");
        assert_eq!(labels[1], "?");
        assert!(labels[2].len() < LONGEST + 4 && labels[2].ends_with("é…"));
        assert_eq!(quote(&labels[0]), r#""a?\"\\?b""#);
    }
}
