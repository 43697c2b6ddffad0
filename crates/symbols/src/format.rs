//! The format of a marker: printf's, read together with the types of the values.

use anyhow::{Result, bail, ensure};

/// The type that the compiler gave to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Bits.
    Signed(u8),
    Unsigned(u8),
    Double,
    Pointer,
    /// The address of text that ends with NUL.
    String,
    /// The address of an address and a length.
    Bytes,
}

/// One value of a marker, with its conversion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: String,
    pub kind: FieldKind,
    /// Labels of some values of an integer.
    pub labels: Vec<(i64, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    Signed(u8),
    Unsigned(u8),
    Octal(u8),
    Hexadecimal(u8),
    Character,
    Double,
    Pointer,
    /// Text that ends with NUL.
    String,
    /// Text with a length.
    Text,
    /// Bytes with a length.
    Bytes,
}

const LONGEST_FIELD_NAME: usize = 64;
const MOST_LABELS: usize = 256;

/// The fields of values of these types. A word and `=` before a conversion name its field; others are `argument1` and
/// so on. A list in braces behind the conversion of an integer labels its values: `{idle,busy=4,done}`.
pub fn fields(format: &str, types: &[Type]) -> Result<Vec<Field>> {
    let mut fields: Vec<Field> = Vec::new();
    let mut types = types.iter();
    let mut rest = format;
    let mut before = String::new();
    while let Some(at) = rest.find('%') {
        before.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            before.push('%');
            rest = after;
            continue;
        }
        let (conversion, after) = conversion(rest)?;
        rest = after;
        let Some(&kind) = types.next() else {
            bail!("the format {format:?} has more conversions than values");
        };
        let kind = shown(conversion, kind)?;
        let mut labels = Vec::new();
        if let FieldKind::Signed(_) | FieldKind::Unsigned(_) = kind
            && let Some((list, after)) =
                rest.strip_prefix('{').and_then(|list| list.split_once('}'))
        {
            labels = parse_labels(list)?;
            rest = after;
        }
        let name = unique(&fields, name_before(&before), fields.len() + 1);
        fields.push(Field { name, kind, labels });
        before.clear();
    }
    ensure!(
        types.next().is_none(),
        "the format {format:?} has fewer conversions than values"
    );
    Ok(fields)
}

/// The letter of a conversion, and the rest of the format. Flags, width, precision and length do not matter for a
/// value.
fn conversion(text: &str) -> Result<(char, &str)> {
    let skipped = |c: char| "#0- +'123456789.hlqjzt".contains(c);
    let after = text.trim_start_matches(skipped);
    let Some(letter) = after.chars().next() else {
        bail!("its format ends within a conversion");
    };
    let wide = text[..text.len() - after.len()].contains('l') && "cs".contains(letter);
    ensure!(
        "diouxXcsfFeEgGaAp".contains(letter) && !wide,
        "%{}{letter} is not a conversion of markers",
        &text[..text.len() - after.len()]
    );
    Ok((letter, &after[1..]))
}

fn shown(conversion: char, value: Type) -> Result<FieldKind> {
    Ok(match (conversion, value) {
        ('d' | 'i' | 'u', Type::Signed(bits)) => FieldKind::Signed(bits),
        ('d' | 'i' | 'u', Type::Unsigned(bits)) => FieldKind::Unsigned(bits),
        ('o', Type::Signed(bits) | Type::Unsigned(bits)) => FieldKind::Octal(bits),
        ('x' | 'X', Type::Signed(bits) | Type::Unsigned(bits)) => FieldKind::Hexadecimal(bits),
        ('c', Type::Signed(_) | Type::Unsigned(_)) => FieldKind::Character,
        ('f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A', Type::Double) => FieldKind::Double,
        ('p', Type::Pointer | Type::String) => FieldKind::Pointer,
        ('p', Type::Bytes) => FieldKind::Bytes,
        ('s', Type::String) => FieldKind::String,
        ('s', Type::Bytes) => FieldKind::Text,
        _ => bail!("%{conversion} does not fit a value of type {value:?}"),
    })
}

/// `idle,busy=4,done`: a label counts on from the one before.
fn parse_labels(list: &str) -> Result<Vec<(i64, String)>> {
    let mut next = 0i64;
    let mut labels = Vec::new();
    for label in list.split(',') {
        let (name, value) = match label.split_once('=') {
            Some((name, value)) => (name, value.trim().parse()?),
            None => (label, next),
        };
        ensure!(
            is_name(name.trim()) && labels.len() < MOST_LABELS,
            "{label:?} is not a label of a value"
        );
        labels.push((value, name.trim().to_owned()));
        next = value.wrapping_add(1);
    }
    Ok(labels)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= LONGEST_FIELD_NAME
}

/// The name at the end of `length=` or `address=0x`.
fn name_before(text: &str) -> Option<&str> {
    let text = text.strip_suffix("0x").unwrap_or(text);
    let text = text.trim_end_matches(['"', '\'', '<', '(', '[']);
    let text = text.trim_end().strip_suffix('=')?.trim_end();
    let start = text
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .map_or(0, |at| {
            at + text[at..].chars().next().map_or(1, char::len_utf8)
        });
    Some(&text[start..]).filter(|name| is_name(name))
}

fn unique(fields: &[Field], name: Option<&str>, number: usize) -> String {
    let mut name = name.map_or_else(|| format!("argument{number}"), str::to_owned);
    while fields.iter().any(|field| field.name == name) {
        name = format!("{name}_{number}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(format: &str, types: &[Type]) -> Vec<String> {
        let fields = fields(format, types).unwrap();
        fields.into_iter().map(|field| field.name).collect()
    }

    #[test]
    fn fields_are_named_by_the_words_before_them() {
        let integers = [Type::Signed(32); 4];
        assert_eq!(
            names("len=%d, 100%% of size = %5d %d at=0x%08x", &integers),
            ["len", "size", "argument3", "at"]
        );
        assert_eq!(
            names("a=%d a=%d =%d é=%d", &integers),
            ["a", "a_2", "argument3", "argument4"]
        );
        assert_eq!(names("path=\"%s\"", &[Type::String]), ["path"]);
        assert!(fields("nothing at 100%%", &[]).unwrap().is_empty());
    }

    #[test]
    fn kinds_come_of_conversion_and_type() {
        let kinds = |format, types: &[Type]| -> Vec<FieldKind> {
            fields(format, types)
                .unwrap()
                .iter()
                .map(|field| field.kind)
                .collect()
        };
        let types = [
            Type::Signed(8),
            Type::Unsigned(64),
            Type::Signed(32),
            Type::Double,
            Type::String,
            Type::String,
            Type::Bytes,
            Type::Bytes,
            Type::Pointer,
            Type::Signed(8),
            Type::Signed(16),
        ];
        assert_eq!(
            kinds("%hhd %lu %#x %.3f %s %p %s %p %p %c %ho", &types),
            [
                FieldKind::Signed(8),
                FieldKind::Unsigned(64),
                FieldKind::Hexadecimal(32),
                FieldKind::Double,
                FieldKind::String,
                FieldKind::Pointer,
                FieldKind::Text,
                FieldKind::Bytes,
                FieldKind::Pointer,
                FieldKind::Character,
                FieldKind::Octal(16),
            ]
        );
    }

    #[test]
    fn labels_follow_an_integer() {
        let fields = fields("state=%d{idle,busy=4,done} %u{}", &[Type::Signed(32); 1]);
        assert!(fields.is_err(), "an empty list, and no value for it");
        let fields = super::fields("state=%d{idle, busy=4,done,off=-1}!", &[Type::Signed(32)]);
        let expected = [(0, "idle"), (4, "busy"), (5, "done"), (-1, "off")];
        assert_eq!(
            fields.unwrap()[0].labels,
            expected.map(|(value, name)| (value, name.to_owned()))
        );
    }

    #[test]
    fn what_is_no_format_of_a_marker_is_refused() {
        for (format, types) in [
            ("%d", &[][..]),
            ("", &[Type::Pointer][..]),
            ("%n", &[Type::Pointer]),
            ("%*d", &[Type::Signed(32), Type::Signed(32)]),
            ("%ls", &[Type::Pointer]),
            ("%Lf", &[Type::Double]),
            ("%1$d", &[Type::Signed(32)]),
            ("%", &[Type::Signed(32)]),
            ("%é", &[Type::Signed(32)]),
            ("%s", &[Type::Signed(32)]),
            ("%d", &[Type::Double]),
            ("%d{a b}", &[Type::Signed(32)]),
            ("%d{a=b}", &[Type::Signed(32)]),
        ] {
            assert!(fields(format, types).is_err(), "{format:?}");
        }
    }
}
