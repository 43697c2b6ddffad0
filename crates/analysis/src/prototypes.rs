//! Arguments and results of calls by the types that the source gives them.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use nopal_symbols::{Held, Prototype, Value, ValueKind};
use nopal_trace::Trace;

use crate::constants::Constants;
pub use crate::constants::ProcessMoment;
use crate::images::Images;
use crate::libc;
use crate::names::{Names, printable};
use crate::text::push_hex_short;

/// Stands for a value that is not recorded: of floating point, or in memory.
const NOT_RECORDED: &str = "…";
/// Stands for a value whose place is not certain.
const NOT_KNOWN: &str = "?";
/// Bytes of a text that are shown.
const SHOWN: usize = 64;

/// The prototypes of a trace's functions, each file's read when the first of its functions is asked for.
#[derive(Default)]
pub struct Prototypes<'a> {
    from: Option<(&'a Trace, Images<'a>, &'a Names)>,
    known: KnownPrototypes,
}

/// The prototypes that have been read of a trace. The default is of any.
#[derive(Default)]
pub struct KnownPrototypes {
    constants: OnceCell<Constants>,
    /// Files that have been read.
    read: HashSet<String>,
    /// By the function's number.
    by_function: HashMap<u32, Prototype>,
}

impl<'a> Prototypes<'a> {
    /// The default knows none.
    pub fn new(trace: &'a Trace, names: &'a Names) -> Prototypes<'a> {
        Prototypes::with(trace, names, KnownPrototypes::default())
    }

    /// The same, with those that an earlier one has read of the same trace.
    pub fn with(trace: &'a Trace, names: &'a Names, known: KnownPrototypes) -> Prototypes<'a> {
        Prototypes {
            from: Some((trace, Images::new(trace), names)),
            known,
        }
    }

    pub fn into_known(self) -> KnownPrototypes {
        self.known
    }

    /// The prototype of a function, by its number in the names.
    pub fn of(&mut self, function: u32) -> Option<&Prototype> {
        self.read_file_of(function);
        self.known_of(function)
    }

    /// The values of the calls of a function at a moment.
    pub fn values(&mut self, function: u32, at: ProcessMoment) -> Option<Values<'_>> {
        self.read_file_of(function);
        let (trace, ..) = self.from.as_ref()?;
        Some(Values {
            prototype: self.known_of(function)?,
            trace,
            constants: &self.known.constants,
            at,
        })
    }

    fn read_file_of(&mut self, function: u32) {
        let Some((_, images, names)) = &self.from else {
            return;
        };
        let Some(function) = names.functions().get(function as usize) else {
            return;
        };
        let path = function.path.as_str();
        if self.known.read.insert(path.to_owned())
            && let Some(image) = images.open(path)
        {
            let numbered = (0..).zip(names.functions());
            let own: Vec<(u32, u64)> = numbered
                .filter(|(_, function)| function.path == path)
                .map(|(number, function)| (number, function.address))
                .collect();
            let addresses: Vec<u64> = own.iter().map(|(_, address)| *address).collect();
            let mut found = image.prototypes(&addresses);
            for (number, address) in own {
                if let Some(prototype) = found.remove(&address) {
                    self.known.by_function.insert(number, prototype);
                }
            }
        }
    }

    fn known_of(&self, function: u32) -> Option<&Prototype> {
        let (.., names) = self.from.as_ref()?;
        let own = self.known.by_function.get(&function);
        own.or_else(|| libc::prototype(names.functions().get(function as usize)?))
    }
}

/// How the words of calls at a moment are shown.
pub struct Values<'a> {
    pub prototype: &'a Prototype,
    trace: &'a Trace,
    constants: &'a OnceCell<Constants>,
    at: ProcessMoment,
}

impl Values<'_> {
    /// `(count=1, name=0x7ffd1234, mode="r")`.
    pub fn push_parameters(&self, text: &mut Vec<u8>, words: &[u64; 6]) {
        text.push(b'(');
        let mut is_first = true;
        let mut separate = |text: &mut Vec<u8>| {
            if !std::mem::take(&mut is_first) {
                text.extend_from_slice(b", ");
            }
        };
        for parameter in &self.prototype.parameters {
            separate(text);
            if !parameter.name.is_empty() {
                text.extend_from_slice(printable(&parameter.name).as_bytes());
                text.push(b'=');
            }
            self.push(text, &parameter.value, words);
        }
        if self.prototype.is_variadic {
            separate(text);
            text.extend_from_slice(b"...");
        }
        text.push(b')');
    }

    /// ` = 5`; nothing of a function without a result.
    pub fn push_returned(&self, text: &mut Vec<u8>, word: u64) {
        let result = &self.prototype.result;
        if result.held != Held::Nothing {
            text.extend_from_slice(b" = ");
            self.push(text, result, &[word]);
        }
    }

    fn push(&self, text: &mut Vec<u8>, value: &Value, words: &[u64]) {
        let pushed = match self.constant(value, words) {
            Some(constant) => {
                let shown = constant.get(..SHOWN).unwrap_or(constant);
                let more = if constant.len() > SHOWN { "…" } else { "" };
                format!("\"{}\"{more}", shown.escape_ascii())
            }
            None => shown(value, words).unwrap_or_else(|| absent(value).to_owned()),
        };
        text.extend_from_slice(pushed.as_bytes());
    }

    /// The text that a value is the address of, if it is a constant.
    pub fn constant(&self, value: &Value, words: &[u64]) -> Option<&[u8]> {
        if !is_text(value) {
            return None;
        }
        let Held::Words(held) = &value.held else {
            return None;
        };
        let [word] = held[..] else {
            return None;
        };
        let address = *words.get(usize::from(word))?;
        let constants = self.constants.get_or_init(|| Constants::new(self.trace));
        constants.text(address, self.at)
    }
}

/// Whether it is the address of characters, by the name of its type.
fn is_text(value: &Value) -> bool {
    const QUALIFIERS: [&str; 2] = ["const ", "volatile "];
    if value.kind != ValueKind::Address {
        return false;
    }
    let mut name = value.type_name.as_str();
    while let Some(rest) = QUALIFIERS.iter().find_map(|one| name.strip_prefix(one)) {
        name = rest;
    }
    name.trim_end_matches(" const") == "char *"
}

fn absent(value: &Value) -> &'static str {
    match value.held {
        Held::Unknown => NOT_KNOWN,
        _ => NOT_RECORDED,
    }
}

/// A value as text, from the recorded words; none if they do not hold it.
pub fn shown(value: &Value, words: &[u64]) -> Option<String> {
    let held = match &value.held {
        Held::Words(held) => held,
        Held::Nothing => return Some("{}".into()),
        Held::Elsewhere | Held::Unknown => return None,
    };
    let held = held
        .iter()
        .map(|word| words.get(usize::from(*word)).copied());
    let held: Option<Vec<u64>> = held.collect();
    match held?.as_slice() {
        [word] => Some(shown_word(&value.kind, *word)),
        several => {
            let several: Vec<String> = several.iter().map(|word| hex(*word)).collect();
            Some(format!("{{{}}}", several.join(", ")))
        }
    }
}

/// The number in one word that stands for the value, if it is in one: equal values have equal numbers.
pub fn number(value: &Value, words: &[u64]) -> Option<i128> {
    match &value.held {
        Held::Words(held) => match held.as_slice() {
            [word] => Some(value.kind.number(*words.get(usize::from(*word))?)),
            _ => None,
        },
        _ => None,
    }
}

fn shown_word(kind: &ValueKind, word: u64) -> String {
    let number = kind.number(word);
    match kind {
        ValueKind::Signed(_) | ValueKind::Unsigned(_) => number.to_string(),
        ValueKind::Boolean => match number {
            0 => "false".into(),
            1 => "true".into(),
            other => other.to_string(),
        },
        ValueKind::Character(_) => {
            let character = u32::try_from(number).ok().and_then(char::from_u32);
            match character.filter(|one| nopal_symbols::is_harmless(*one)) {
                // A larger number is no byte of a text.
                Some(one) if !matches!(kind, ValueKind::Character(8)) || one.is_ascii() => {
                    format!("'{one}'")
                }
                _ => number.to_string(),
            }
        }
        ValueKind::Address => hex(word),
        ValueKind::Enumeration { enumerators, .. } => {
            named(enumerators, number).unwrap_or_else(|| number.to_string())
        }
        ValueKind::Bits(_) => format!("{{{}}}", hex(number as u64)),
    }
}

fn hex(word: u64) -> String {
    let mut text = b"0x".to_vec();
    push_hex_short(&mut text, word);
    String::from_utf8(text).unwrap_or_default()
}

/// The enumerator with this value, or those that it is made of, if the enumeration is one of flags.
fn named(enumerators: &[(i64, String)], number: i128) -> Option<String> {
    let is = |(value, _): &&(i64, String)| i128::from(*value) == number;
    if let Some((_, name)) = enumerators.iter().find(is) {
        return Some(printable(name));
    }
    let single = |value: i64| value > 0 && value.count_ones() == 1;
    let mut singles: Vec<i64> = enumerators.iter().map(|one| one.0).collect();
    singles.retain(|value| single(*value));
    singles.sort_unstable();
    singles.dedup();
    let others = enumerators
        .iter()
        .filter(|(value, _)| *value != 0 && !single(*value))
        .count();
    // An enumeration of consecutive numbers has more other numbers than powers of two.
    let are_flags = singles.len() >= 3 && (others == 0 || singles.len() > others + 2);
    let number = i64::try_from(number).ok()?;
    let known = singles.iter().fold(0, |all, one| all | one);
    if !are_flags || number <= 0 || number & !known != 0 {
        return None;
    }
    let parts = singles.iter().filter(|one| number & **one != 0);
    let parts = parts.filter_map(|one| enumerators.iter().find(|(value, _)| value == one));
    let parts: Vec<String> = parts.map(|(_, name)| printable(name)).collect();
    Some(parts.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enumeration(names: &[(i64, &str)]) -> Vec<(i64, String)> {
        let owned = names
            .iter()
            .map(|(value, name)| (*value, (*name).to_owned()));
        owned.collect()
    }

    #[test]
    fn flags_are_named_only_where_the_enumeration_is_one_of_flags() {
        let flags = enumeration(&[(0, "NONE"), (1, "READ"), (2, "WRITE"), (4, "APPEND")]);
        assert_eq!(named(&flags, 5).as_deref(), Some("READ|APPEND"));
        assert_eq!(named(&flags, 0).as_deref(), Some("NONE"));
        assert_eq!(named(&flags, 8), None);
        assert_eq!(named(&flags, 9), None);
        assert_eq!(named(&flags, -1), None);
        for last in 2..40 {
            let counted: Vec<(i64, String)> =
                (0..=last).map(|one| (one, format!("E{one}"))).collect();
            for number in last + 1..100 {
                assert_eq!(
                    named(&counted, number.into()),
                    None,
                    "{number} of 0 to {last}"
                );
            }
        }
    }

    #[test]
    fn bits_above_a_type_mean_nothing() {
        let garbage = 0xdead_beef_0000_0000u64;
        let shown = |kind, word| shown_word(&kind, word);
        assert_eq!(shown(ValueKind::Signed(32), garbage | 0xffff_fffe), "-2");
        assert_eq!(
            shown(ValueKind::Unsigned(32), garbage | 0xffff_fffe),
            "4294967294"
        );
        assert_eq!(shown(ValueKind::Unsigned(8), garbage | 0x1ff), "255");
        assert_eq!(shown(ValueKind::Signed(16), garbage | 0x8000), "-32768");
        assert_eq!(shown(ValueKind::Boolean, garbage | 0x100), "false");
        assert_eq!(shown(ValueKind::Boolean, garbage | 1), "true");
        assert_eq!(
            shown(ValueKind::Character(8), garbage | 0x100 | u64::from(b'x')),
            "'x'"
        );
        assert_eq!(shown(ValueKind::Character(8), 10), "10");
        assert_eq!(shown(ValueKind::Character(8), 0xe4), "228");
        assert_eq!(shown(ValueKind::Character(32), 0xe4), "'ä'");
        assert_eq!(
            shown(ValueKind::Bits(24), garbage | 0xff12_3456),
            "{0x123456}"
        );
        assert_eq!(shown(ValueKind::Address, 0), "0x0");
    }
}
