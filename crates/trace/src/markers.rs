//! Markers: events whose fields a note describes.

use crate::field::{Field, FieldKind};
use crate::note::Note;
use nopal_abi::*;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// A value as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    /// The bytes, and how many more there were.
    Bytes(&'a [u8], u32),
    /// It could not be read when it was recorded.
    Unread,
}

/// The known markers of a trace, by event number.
#[derive(Clone, Debug, Default)]
pub struct Markers(BTreeMap<u32, Marker>);

#[derive(Clone, Debug)]
pub struct Marker {
    pub name: String,
    pub format: String,
    pub fields: Vec<Field>,
    /// Its position in the source.
    pub file: String,
    pub line: u32,
    /// It is a tracepoint of the kernel.
    pub is_tracepoint: bool,
}

impl Markers {
    /// Adds the marker of a note.
    pub fn learn(&mut self, note: &Note) {
        let Note::Marker {
            event,
            name,
            format,
            fields,
            file,
            line,
            tracepoint,
            ..
        } = note
        else {
            return;
        };
        if is_event_of(*event, fields) {
            self.0.entry(*event).or_insert_with(|| Marker {
                name: name.clone(),
                format: format.clone(),
                fields: fields.clone(),
                file: file.clone(),
                line: *line,
                is_tracepoint: *tracepoint,
            });
        }
    }

    pub fn get(&self, event: u32) -> Option<&Marker> {
        self.0.get(&event)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Marker)> {
        self.0.iter().map(|(event, marker)| (*event, marker))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Marker {
    /// The values of a record; `payload` begins after the clock. None if they do not match the fields.
    pub fn values<'a>(&self, payload: &'a [u64]) -> Option<Vec<Value<'a>>> {
        let mut rest = match has_length(&self.fields) {
            true => payload.split_first()?.1,
            false => payload,
        };
        let mut values = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let (&word, after) = rest.split_first()?;
            rest = after;
            values.push(match field.kind {
                FieldKind::Text | FieldKind::Bytes => {
                    let (length, cut) = (word as u32 as usize, (word >> 32) as u32);
                    let (words, after) = rest.split_at_checked(length.div_ceil(8))?;
                    rest = after;
                    Value::Bytes(&words.as_bytes()[..length], cut)
                }
                FieldKind::Double => Value::Double(f64::from_bits(word)),
                FieldKind::Signed(bits) => Value::Signed(widen(word, bits)),
                FieldKind::Unsigned(bits)
                | FieldKind::Octal(bits)
                | FieldKind::Hexadecimal(bits) => Value::Unsigned(word & mask(bits)),
                FieldKind::Missing => Value::Unsigned(word),
                FieldKind::Character => Value::Unsigned(word & mask(8)),
            });
        }
        if let (Some(field), Some(&Value::Unsigned(bits))) = (self.fields.last(), values.last())
            && field.kind == FieldKind::Missing
        {
            let before = values.len() - 1;
            let of_bits = values.iter_mut().take(before).zip(0..u64::BITS);
            let unread = of_bits.filter(|(_, bit)| bits >> bit & 1 != 0);
            unread.for_each(|(value, _)| *value = Value::Unread);
        }
        rest.is_empty().then_some(values)
    }
}

fn has_length(fields: &[Field]) -> bool {
    fields.iter().any(|field| field.kind.has_length())
}

fn mask(bits: u8) -> u64 {
    u64::MAX >> (64 - u32::from(bits.clamp(1, 64)))
}

fn widen(word: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits.clamp(1, 64));
    (word << unused).cast_signed() >> unused
}

/// The number of an event with these fields; `which` distinguishes it from others.
pub fn event_number(which: u32, fields: &[Field]) -> u32 {
    let words = match has_length(fields) {
        true => EVENT_VARIABLE,
        false => fields.len() as u32 + 1,
    };
    words << EVENT_WORDS_SHIFT | which
}

fn is_event_of(event: u32, fields: &[Field]) -> bool {
    let which = event % EVENT_LIMIT;
    which >= EVENT_DEFINED && fields.len() < 200 && event == event_number(which, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: FieldKind) -> Field {
        Field {
            name: "field".into(),
            kind,
            labels: Vec::new(),
        }
    }

    fn marker(kinds: &[FieldKind]) -> Marker {
        Marker {
            name: "marker".into(),
            format: String::new(),
            fields: kinds.iter().copied().map(field).collect(),
            file: "file".into(),
            line: 1,
            is_tracepoint: false,
        }
    }

    #[test]
    fn values_have_the_width_of_their_types() {
        let marker = marker(&[
            FieldKind::Signed(8),
            FieldKind::Hexadecimal(32),
            FieldKind::Unsigned(64),
            FieldKind::Double,
        ]);
        let payload = [
            0xffff_ffff_ffff_ffff,
            0xffff_ffff_ffff_fffe,
            u64::MAX,
            1.5f64.to_bits(),
        ];
        let expected = [
            Value::Signed(-1),
            Value::Unsigned(0xffff_fffe),
            Value::Unsigned(u64::MAX),
            Value::Double(1.5),
        ];
        assert_eq!(marker.values(&payload).unwrap(), expected);
        assert_eq!(marker.values(&payload[..3]), None);
    }

    #[test]
    fn what_could_not_be_read_has_no_value() {
        let kinds = [FieldKind::Unsigned(64), FieldKind::Text, FieldKind::Missing];
        let values = |bits| {
            let payload = [6, 7, 0, bits];
            let marker = marker(&kinds);
            let values = marker.values(&payload).unwrap();
            values[..2]
                .iter()
                .map(|value| *value == Value::Unread)
                .collect::<Vec<_>>()
        };
        assert_eq!(values(0), [false, false]);
        assert_eq!(values(1), [true, false]);
        assert_eq!(values(2), [false, true]);
        assert_eq!(values(u64::MAX), [true, true]);
    }

    #[test]
    fn text_tells_its_length_and_what_was_left_out() {
        let marker = marker(&[FieldKind::Text, FieldKind::Signed(32)]);
        let text = u64::from_le_bytes(*b"a string");
        let payload = [5, 9 | 3 << 32, text, u64::from(b'!'), 7];
        let expected = [Value::Bytes(b"a string!", 3), Value::Signed(7)];
        assert_eq!(marker.values(&payload).unwrap(), expected);
        for wrong in [17, 8, 1 << 31] {
            let payload = [5, wrong, text, u64::from(b'!'), 7];
            assert_eq!(marker.values(&payload), None, "{wrong}");
        }
    }

    #[test]
    fn a_record_tells_how_long_it_is() {
        let fixed = event_number(40, &[field(FieldKind::Double), field(FieldKind::Double)]);
        let variable = event_number(41, &[field(FieldKind::Text)]);
        let words = |event, rest: &[u64]| Word::extended(event, 0).payload_words(rest);
        assert_eq!(words(fixed, &[1]), Some(2));
        assert_eq!(words(event_number(42, &[]), &[]), Some(0));
        assert_eq!(words(variable, &[0, 5, 0]), Some(5));
        assert_eq!(words(variable, &[0, 0, 0]), None);
        assert_eq!(words(EVENT_RESYNC, &[1]), None);
    }
}
