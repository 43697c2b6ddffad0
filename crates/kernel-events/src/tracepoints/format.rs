//! The fields of any tracepoint's records, as the kernel describes them, and their values in the form of a marker's.

use nopal_trace::{Field, FieldKind};

/// The common fields of records that are kept; the others tell the tracepoint and the thread.
const COMMON: [&str; 2] = ["common_flags", "common_preempt_count"];
/// The processor on which the event happened. The kernel's record does not tell it: its ring is the processor's.
const PROCESSOR: &str = "common_cpu";
/// Elements of an array of integers that become fields of their own.
const MOST_ELEMENTS: usize = 8;
/// A marker has no more fields.
const MOST_FIELDS: usize = 190;

#[derive(Debug, PartialEq)]
pub struct Format {
    pub id: u16,
    pub fields: Vec<Field>,
    reads: Vec<Read>,
}

/// The place of a value in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Processor,
    Integer {
        offset: usize,
        size: usize,
        signed: bool,
    },
    /// Text up to its first 0, or bytes.
    Array {
        offset: usize,
        size: usize,
        is_text: bool,
    },
    /// A half with length and offset of text or bytes elsewhere in the record.
    Elsewhere {
        offset: usize,
        /// Its offset counts from its own end.
        is_relative: bool,
        is_text: bool,
    },
}

impl Format {
    pub fn parse(text: &str) -> Option<Format> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?;
        let print = text.split("print fmt:").nth(1).unwrap_or_default();
        let mut format = Format {
            id: id.trim().parse().ok()?,
            fields: Vec::new(),
            reads: Vec::new(),
        };
        let kind = FieldKind::Unsigned(32);
        format.push(PROCESSOR.to_owned(), kind, Vec::new(), Read::Processor);
        for line in text.lines().map(str::trim) {
            if let Some(line) = line.strip_prefix("field:") {
                format.add(line, print)?;
            }
        }
        (format.fields.len() <= MOST_FIELDS).then_some(format)
    }

    /// `unsigned int vec; offset:8; size:4; signed:0;`, with tabs between its parts.
    fn add(&mut self, line: &str, print: &str) -> Option<()> {
        let mut parts = line.split(';').map(str::trim);
        let declared = parts.next()?;
        let offset: usize = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size: usize = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        let signed = parts.next()?.strip_prefix("signed:")? == "1";
        let (kind, name) = declared.rsplit_once([' ', '*'])?;
        let (name, is_array) = match name.split_once('[') {
            Some((name, _)) => (name, true),
            None => (name, kind.contains('[')),
        };
        if name.starts_with("common_") && !COMMON.contains(&name) {
            return Some(());
        }
        let is_text = is_text(kind);
        for (marker, is_relative) in [("__data_loc", false), ("__rel_loc", true)] {
            if kind.starts_with(marker) {
                let read = Read::Elsewhere {
                    offset,
                    is_relative,
                    is_text,
                };
                self.push(name.to_owned(), text_or_bytes(is_text), Vec::new(), read);
                return Some(());
            }
        }
        let unit = element(kind);
        if is_array && !is_text && unit.is_some_and(|unit| size / unit <= MOST_ELEMENTS) {
            let unit = unit?;
            for index in 0..size / unit {
                let read = Read::Integer {
                    offset: offset + index * unit,
                    size: unit,
                    signed,
                };
                let kind = integer(unit, signed, true);
                self.push(format!("{name}[{index}]"), kind, Vec::new(), read);
            }
            return Some(());
        }
        if is_array || !matches!(size, 1 | 2 | 4 | 8) {
            let read = Read::Array {
                offset,
                size,
                is_text,
            };
            self.push(name.to_owned(), text_or_bytes(is_text), Vec::new(), read);
            return Some(());
        }
        // An argument of a system call stands in a word; its type tells how many bytes of that are meant.
        let (size, signed) = match kind.trim() {
            "int" | "pid_t" => (size.min(4), true),
            _ => (size, signed),
        };
        let is_hexadecimal = declared.contains('*')
            || ["=0x", "=%p"]
                .iter()
                .any(|shown| print.contains(&format!("{name}{shown}")));
        let read = Read::Integer {
            offset,
            size,
            signed,
        };
        let labels = labels(print, name);
        self.push(
            name.to_owned(),
            integer(size, signed, is_hexadecimal || name == COMMON[0]),
            labels,
            read,
        );
        Some(())
    }

    fn push(&mut self, name: String, kind: FieldKind, labels: Vec<(i64, String)>, read: Read) {
        self.fields.push(Field { name, kind, labels });
        self.reads.push(read);
    }

    /// Appends the values of a record, as a marker's record has them behind its clock. `None`: it is cut short.
    pub fn push_values(&self, raw: &[u8], processor: u32, words: &mut Vec<u64>) -> Option<()> {
        let begin = words.len();
        let has_length = self.fields.iter().any(|field| field.kind.has_length());
        if has_length {
            words.push(0);
        }
        for read in &self.reads {
            match *read {
                Read::Processor => words.push(u64::from(processor)),
                Read::Integer {
                    offset,
                    size,
                    signed,
                } => words.push(value(raw, offset, size, signed)?),
                Read::Array {
                    offset,
                    size,
                    is_text,
                } => push_bytes(raw.get(offset..)?.get(..size)?, is_text, words),
                Read::Elsewhere {
                    offset,
                    is_relative,
                    is_text,
                } => {
                    let place = value(raw, offset, 4, false)? as usize;
                    let (length, at) = (place >> 16, place & 0xffff);
                    let at = if is_relative { at + offset + 4 } else { at };
                    push_bytes(raw.get(at..)?.get(..length)?, is_text, words);
                }
            }
        }
        if has_length {
            words[begin] = (words.len() - begin) as u64;
        }
        Some(())
    }
}

fn is_text(kind: &str) -> bool {
    let words = kind.split([' ', '[']).filter(|word| !word.is_empty());
    let mut words = words.filter(|word| !matches!(*word, "const" | "__data_loc" | "__rel_loc"));
    words.next() == Some("char")
}

fn text_or_bytes(is_text: bool) -> FieldKind {
    if is_text {
        FieldKind::Text
    } else {
        FieldKind::Bytes
    }
}

/// The size of an element of an array of integers.
fn element(kind: &str) -> Option<usize> {
    let kind = kind.split('[').next()?.trim();
    Some(match kind.strip_prefix("unsigned ").unwrap_or(kind) {
        "long" | "long long" | "u64" | "s64" | "__u64" | "uint64_t" => 8,
        "int" | "u32" | "s32" | "__u32" | "uint32_t" => 4,
        "short" | "u16" | "s16" | "__u16" | "uint16_t" => 2,
        _ => return None,
    })
}

fn integer(size: usize, signed: bool, is_hexadecimal: bool) -> FieldKind {
    let bits = (size * 8) as u8;
    match (signed, is_hexadecimal) {
        (true, _) => FieldKind::Signed(bits),
        (false, true) => FieldKind::Hexadecimal(bits),
        (false, false) => FieldKind::Unsigned(bits),
    }
}

fn value(raw: &[u8], offset: usize, size: usize, signed: bool) -> Option<u64> {
    let bytes = raw.get(offset..)?.get(..size)?;
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    let unused = 64 - 8 * size as u32;
    Some(match signed {
        true => (word << unused).cast_signed() >> unused,
        false => word.cast_signed(),
    } as u64)
}

/// A word with the length, and the bytes in whole words.
fn push_bytes(bytes: &[u8], is_text: bool, words: &mut Vec<u64>) {
    let end = match is_text {
        true => bytes.iter().position(|byte| *byte == 0),
        false => None,
    };
    let bytes = &bytes[..end.unwrap_or(bytes.len())];
    words.push(bytes.len() as u64);
    words.extend(bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    }));
}

/// `__print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" })`: those that the kernel gives as numbers.
fn labels(print: &str, name: &str) -> Vec<(i64, String)> {
    let begin = format!("__print_symbolic(REC->{name}, ");
    let Some((_, rest)) = print.split_once(&begin) else {
        return Vec::new();
    };
    let mut labels = Vec::new();
    let mut rest = rest.trim_start();
    while let Some((pair, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        let label = pair.split_once(',').and_then(|(number, text)| {
            let number = number.trim();
            let number = match number.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            Some((number, text.trim().trim_matches('"').to_owned()))
        });
        labels.extend(label);
        rest = after.trim_start_matches([',', ' ']);
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::{Marker, Value};

    const COMMON_FIELDS: &str = "	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;
";

    fn format(fields: &str, print: &str) -> Format {
        let text = format!(
            "name: made\nID: 190\nformat:\n{COMMON_FIELDS}\n{fields}\nprint fmt: {print}\n"
        );
        Format::parse(&text).unwrap()
    }

    fn raw(rest: &[u8]) -> Vec<u8> {
        [&[190, 0, 0x25, 2, 7, 0, 0, 0], rest].concat()
    }

    fn values(format: &Format, raw: &[u8]) -> Vec<String> {
        let mut words = Vec::new();
        format.push_values(raw, 3, &mut words).unwrap();
        let marker = Marker {
            name: String::new(),
            format: String::new(),
            fields: format.fields.clone(),
            file: String::new(),
            line: 0,
            is_tracepoint: true,
        };
        let values = marker.values(&words).unwrap();
        let shown = |value: &Value| match value {
            Value::Bytes(bytes, 0) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Signed(value) => value.to_string(),
            Value::Unsigned(value) => value.to_string(),
            other => panic!("{other:?}"),
        };
        values.iter().map(shown).collect()
    }

    #[test]
    fn a_page_fault_has_addresses() {
        let format = format(
            "	field:unsigned long address;	offset:8;	size:8;	signed:0;
	field:unsigned long error_code;	offset:16;	size:8;	signed:0;",
            "\"address=%ps error_code=0x%lx\", (void *)REC->address, REC->error_code",
        );
        let kinds = format.fields.iter().map(|field| (&*field.name, field.kind));
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [
                ("common_cpu", FieldKind::Unsigned(32)),
                ("common_flags", FieldKind::Hexadecimal(8)),
                ("common_preempt_count", FieldKind::Unsigned(8)),
                ("address", FieldKind::Hexadecimal(64)),
                ("error_code", FieldKind::Hexadecimal(64)),
            ]
        );
        let record = raw(&[0x7000u64.to_le_bytes(), 6u64.to_le_bytes()].concat());
        assert_eq!(values(&format, &record), ["3", "37", "2", "28672", "6"]);
    }

    #[test]
    fn text_and_arrays_are_where_they_say() {
        let format = format(
            "	field:char comm[4];	offset:8;	size:4;	signed:0;
	field:__data_loc char[] dev;	offset:12;	size:4;	signed:0;
	field:__rel_loc u8[] data;	offset:16;	size:4;	signed:0;
	field:unsigned short args[2];	offset:20;	size:4;	signed:0;
	field:struct thing it;	offset:24;	size:3;	signed:0;
	field:const char * path;	offset:32;	size:8;	signed:0;
	field:int dfd;	offset:40;	size:8;	signed:0;
	field:unsigned int vec;	offset:48;	size:4;	signed:0;",
            "\"vec=%u\", __print_symbolic(REC->vec, { 0, \"HI\" }, { 0x1, \"TIMER\" }, { X, \"Y\" })",
        );
        let mut record = raw(b"ab\0d");
        record.extend(((5u32 << 16) | 52).to_le_bytes());
        record.extend(((2u32 << 16) | 37).to_le_bytes());
        record.extend([1, 0, 2, 0, b'x', b'y', b'z', 0]);
        record.extend([0; 4]);
        record.extend(0x7fff_0000_1234u64.to_le_bytes());
        record.extend((-100i64 as u64).to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(b"eth0\0hi");
        let shown = values(&format, &record);
        assert_eq!(
            shown[3..],
            [
                "ab",
                "eth0",
                "hi",
                "1",
                "2",
                "xyz",
                "140733193392692",
                "-100",
                "1"
            ]
        );
        let vec = format.fields.last().unwrap();
        assert_eq!(vec.labels, [(0, "HI".into()), (1, "TIMER".into())]);
        let mut names = format.fields.iter().map(|field| &*field.name);
        assert!(names.clone().any(|name| name == "args[1]") && names.next_back() == Some("vec"));
    }

    #[test]
    fn records_that_are_cut_short_have_no_values() {
        let format = format(
            "	field:__data_loc char[] dev;	offset:8;	size:4;	signed:0;
	field:u64 number;	offset:16;	size:8;	signed:0;",
            "\"\"",
        );
        let mut record = raw(&((4u32 << 16) | 24).to_le_bytes());
        record.extend([0; 12]);
        record.extend(b"eth0");
        assert!(format.push_values(&record, 0, &mut Vec::new()).is_some());
        for length in 0..record.len() {
            let cut = &record[..length];
            assert_eq!(
                format.push_values(cut, 0, &mut Vec::new()),
                None,
                "{length}"
            );
        }
    }

    #[test]
    fn formats_that_are_not_understood_are_refused() {
        for wrong in [
            "",
            "ID: x",
            "ID: 1\n field:int;\n",
            "ID: 1\n\tfield:int a;	offset:-1;	size:4;	signed:1;",
        ] {
            assert_eq!(Format::parse(wrong), None, "{wrong}");
        }
    }
}
