//! Markers as text.

use std::io::Write;

use nopal_trace::{Field, FieldKind, KernelFlags, Marker, Value};

/// `net_rx len=1500 device="eth0"`, from the words of a record after its clock. Contains only printable characters.
pub fn push_marker(text: &mut Vec<u8>, marker: Option<&Marker>, payload: &[u64]) {
    let values = marker.and_then(|marker| Some((marker, marker.values(payload)?)));
    let Some((marker, values)) = values else {
        text.extend_from_slice(b"(unknown)");
        return;
    };
    push_printable(text, &marker.name);
    let fields = marker.fields.iter().zip(values);
    let is_shown = |field: &Field| field.kind != FieldKind::Missing && !is_of_all(marker, field);
    for (field, value) in fields.filter(|(field, _)| is_shown(field)) {
        text.push(b' ');
        push_printable(text, &field.name);
        text.push(b'=');
        push_value(text, field, value);
    }
}

/// Whether it is a field that every tracepoint of the kernel has: it describes the processor, not the event.
pub fn is_of_all(marker: &Marker, field: &Field) -> bool {
    marker.is_tracepoint && field.name.starts_with("common_")
}

/// The processor, and its state, that a tracepoint of the kernel has in its fields.
pub fn processor_state(
    marker: Option<&Marker>,
    payload: &[u64],
) -> (Option<u32>, Option<KernelFlags>) {
    let marker = marker.filter(|marker| marker.is_tracepoint);
    let values = marker.and_then(|marker| Some((marker, marker.values(payload)?)));
    let Some((marker, values)) = values else {
        return (None, None);
    };
    let value = |name: &str| {
        let at = marker.fields.iter().position(|field| field.name == name)?;
        match values.get(at)? {
            Value::Unsigned(value) => Some(*value),
            _ => None,
        }
    };
    let byte = |name: &str| u8::try_from(value(name)?).ok();
    let flags = || {
        Some(KernelFlags {
            flags: byte("common_flags")?,
            preempt_count: byte("common_preempt_count")?,
        })
    };
    let processor = value("common_cpu").and_then(|number| u32::try_from(number).ok());
    (processor, flags())
}

/// A value in the form of its conversion.
pub fn push_value(text: &mut Vec<u8>, field: &Field, value: Value) {
    let label = |value: i64| field.labels.iter().find(|label| label.0 == value);
    // Writing to memory does not fail.
    let _ = match value {
        Value::Signed(value) => match label(value) {
            Some((_, label)) => write!(text, "{}", label.escape_debug()),
            None => write!(text, "{value}"),
        },
        Value::Unsigned(value) => match field.kind {
            FieldKind::Hexadecimal(_) => write!(text, "{value:#x}"),
            FieldKind::Octal(_) => write!(text, "{value:#o}"),
            FieldKind::Character => write!(text, "{:?}", value as u8 as char),
            _ => match i64::try_from(value).ok().and_then(label) {
                Some((_, label)) => write!(text, "{}", label.escape_debug()),
                None => write!(text, "{value}"),
            },
        },
        Value::Double(value) => write!(text, "{value}"),
        Value::Unread => write!(text, "?"),
        Value::Bytes(bytes, cut) => {
            match field.kind {
                FieldKind::Bytes => push_bytes(text, bytes),
                _ => {
                    let _ = write!(text, "{:?}", String::from_utf8_lossy(bytes));
                }
            }
            match cut {
                0 => Ok(()),
                more => write!(text, "+{more}"),
            }
        }
    };
}

/// `<48 65 6c>`
fn push_bytes(text: &mut Vec<u8>, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        let before = if index == 0 { "<" } else { " " };
        let _ = write!(text, "{before}{byte:02x}");
    }
    text.extend_from_slice(if bytes.is_empty() { b"<>" } else { b">" });
}

fn push_printable(text: &mut Vec<u8>, name: &str) {
    let _ = write!(text, "{}", name.escape_debug());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_their_formats_want() {
        let field = |name: &str, kind, labels: &[(i64, &str)]| Field {
            name: name.into(),
            kind,
            labels: labels
                .iter()
                .map(|(value, label)| (*value, (*label).to_owned()))
                .collect(),
        };
        let marker = Marker {
            name: "packet".into(),
            format: String::new(),
            fields: vec![
                field("len", FieldKind::Signed(32), &[]),
                field("state", FieldKind::Unsigned(8), &[(2, "busy")]),
                field("flags", FieldKind::Hexadecimal(16), &[]),
                field("letter", FieldKind::Character, &[]),
                field("load", FieldKind::Double, &[]),
                field("device", FieldKind::Text, &[]),
                field("data", FieldKind::Bytes, &[]),
            ],
            file: "net.c".into(),
            line: 1,
            is_tracepoint: false,
        };
        let device = u64::from_le_bytes(*b"et\x1b\xff0\0\0\0");
        let payload = [
            10,
            u64::MAX,
            2,
            0xffff_ffff,
            u64::from(b'x'),
            1.25f64.to_bits(),
            5 | 7 << 32,
            device,
            2,
            0xff01,
        ];
        let mut text = Vec::new();
        push_marker(&mut text, Some(&marker), &payload);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"packet len=-1 state=busy flags=0xffff letter='x' load=1.25 device="et\u{1b}�0"+7 data=<01 ff>"#
        );
        let mut text = Vec::new();
        push_marker(&mut text, Some(&marker), &payload[..4]);
        assert_eq!(text, b"(unknown)");
    }

    /// A program may name its own fields as the kernel names those of every tracepoint.
    #[test]
    fn only_tracepoints_have_the_processor_in_their_fields() {
        let field = |name: &str, bits| Field {
            name: name.into(),
            kind: FieldKind::Unsigned(bits),
            labels: Vec::new(),
        };
        let mut marker = Marker {
            name: "read".into(),
            format: String::new(),
            fields: vec![
                field("common_cpu", 32),
                field("common_flags", 8),
                field("common_preempt_count", 8),
                field("count", 64),
            ],
            file: String::new(),
            line: 0,
            is_tracepoint: false,
        };
        let payload = [3, 1, 2, 40];
        let shown = |marker: &Marker| {
            let mut text = Vec::new();
            push_marker(&mut text, Some(marker), &payload);
            String::from_utf8(text).unwrap()
        };
        let own = "read common_cpu=3 common_flags=1 common_preempt_count=2 count=40";
        assert_eq!(shown(&marker), own);
        assert_eq!(processor_state(Some(&marker), &payload), (None, None));
        marker.is_tracepoint = true;
        assert_eq!(shown(&marker), "read count=40");
        let kernel = KernelFlags {
            flags: 1,
            preempt_count: 2,
        };
        let state = processor_state(Some(&marker), &payload);
        assert_eq!(state, (Some(3), Some(kernel)));
    }
}
