//! Prototypes of functions of the C library, for systems without its debug information.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use nopal_symbols::{Held, Parameter, Prototype, Value, ValueKind};

use crate::names::Function;

const TABLE: &str = include_str!("libc.txt");
/// The libraries whose functions have these names' meaning, by the begins of their file names.
const LIBRARIES: [&str; 6] = [
    "libc.so.",
    "libc-2.",
    "libpthread",
    "librt.so.",
    "ld-musl-",
    "libc.musl-",
];
/// Suffixes of variants of a function for some processors.
const VARIANTS: [&str; 7] = ["avx", "evex", "sse", "erms", "unaligned", "ssse", "generic"];

/// The prototype of a function of the C library, if it is known.
pub fn prototype(function: &Function) -> Option<&'static Prototype> {
    static KNOWN: OnceLock<HashMap<&'static str, Prototype>> = OnceLock::new();
    if !LIBRARIES
        .iter()
        .any(|begin| function.module.starts_with(begin))
    {
        return None;
    }
    let known = KNOWN.get_or_init(|| parsed(TABLE));
    let name = function.raw.as_str();
    let own = name.strip_prefix("__libc_").unwrap_or(name);
    let own = own.trim_start_matches('_');
    let without_variant = || {
        let at = VARIANTS
            .iter()
            .filter_map(|variant| own.find(&format!("_{variant}")))
            .min();
        known.get(&own[..at?])
    };
    known
        .get(own)
        .or_else(|| known.get(own.strip_suffix("64")?))
        .or_else(without_variant)
}

fn parsed(table: &'static str) -> HashMap<&'static str, Prototype> {
    let mut values = HashMap::new();
    let mut all = HashMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("values ") {
            Some(line) => {
                let mut words = line.split(' ');
                let name = words.next().unwrap_or_default();
                let named = words.filter_map(|word| {
                    let (name, value) = word.split_once('=')?;
                    let value = match value.strip_prefix("0x") {
                        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
                        None => value.parse().ok()?,
                    };
                    Some((value, name.to_owned()))
                });
                values.insert(name, Arc::new(named.collect::<Vec<_>>()));
            }
            None => all.extend(function(line, &values)),
        }
    }
    all
}

type Values = HashMap<&'static str, Arc<Vec<(i64, String)>>>;

fn function(line: &'static str, values: &Values) -> Option<(&'static str, Prototype)> {
    let (head, rest) = line.split_once('(')?;
    let (result, name) = declared(head)?;
    let mut next = 0;
    let mut parameters = Vec::new();
    let mut is_variadic = false;
    for text in rest.strip_suffix(')')?.split(", ") {
        match text {
            "void" => {}
            "..." => is_variadic = true,
            _ => {
                let (type_name, name) = declared(text)?;
                let kind = kind(type_name, values)?;
                parameters.push(Parameter {
                    name: name.to_owned(),
                    value: Value {
                        type_name: type_name.to_owned(),
                        kind,
                        held: Held::Words(vec![next]),
                    },
                });
                next += 1;
            }
        }
    }
    let result = match result {
        "void" => Value {
            type_name: String::new(),
            kind: ValueKind::Bits(64),
            held: Held::Nothing,
        },
        "double" => Value {
            type_name: result.to_owned(),
            kind: ValueKind::Bits(64),
            held: Held::Elsewhere,
        },
        _ => Value {
            type_name: result.to_owned(),
            kind: kind(result, values)?,
            held: Held::Words(vec![0]),
        },
    };
    let prototype = Prototype {
        parameters,
        is_variadic,
        result,
    };
    Some((name, prototype))
}

/// A type and a name.
fn declared(text: &str) -> Option<(&str, &str)> {
    let at = text.rfind([' ', '*'])? + 1;
    Some((text[..at].trim_end(), &text[at..]))
}

fn kind(type_name: &str, values: &Values) -> Option<ValueKind> {
    Some(match type_name {
        _ if type_name.ends_with('*') => ValueKind::Address,
        "int" | "pid_t" => ValueKind::Signed(32),
        "unsigned" | "uint32_t" | "mode_t" | "uid_t" | "gid_t" | "socklen_t" | "useconds_t"
        | "pthread_key_t" => ValueKind::Unsigned(32),
        "long" | "ssize_t" | "off_t" | "time_t" | "intptr_t" => ValueKind::Signed(64),
        "unsigned long" | "size_t" | "nfds_t" => ValueKind::Unsigned(64),
        "pthread_t" => ValueKind::Address,
        _ => ValueKind::Enumeration {
            bits: 32,
            enumerators: values.get(type_name)?.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let lines = TABLE
            .lines()
            .filter(|line| !line.starts_with(['#', 'v']) || line.starts_with("void"));
        let known = parsed(TABLE);
        for line in lines {
            let name = line.split_once('(').and_then(|(head, _)| declared(head));
            let (_, name) = name.unwrap_or_else(|| panic!("{line}"));
            let prototype = known.get(name).unwrap_or_else(|| panic!("{line}"));
            assert!(prototype.parameters.len() <= 6, "{line}");
        }
    }

    #[test]
    fn variants_are_the_functions_that_they_are_of() {
        let named = |module: &str, raw: &str| {
            let function = Function::new(&format!("/lib/{module}"), 0, 0, raw);
            prototype(&function).map(|prototype| prototype.parameters.len())
        };
        assert_eq!(named("libc.so.6", "__memcpy_avx_unaligned_erms"), Some(3));
        assert_eq!(named("libc.so.6", "__strcmp_evex"), Some(2));
        assert_eq!(named("libc.so.6", "open64"), Some(2));
        assert_eq!(named("libc.so.6", "__libc_malloc"), Some(1));
        assert_eq!(named("ld-musl-x86_64.so.1", "getpid"), Some(0));
        assert_eq!(named("libc.so.6", "__strcmp"), Some(2));
        assert_eq!(named("libc.so.6", "no_such"), None);
        assert_eq!(named("program", "open"), None);
    }
}
