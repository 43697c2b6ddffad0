//! The file `metadata`: TSDL that describes the records, for readers of the Common Trace Format 1.8.

use crate::clocks::Clocks;
use crate::field::{Field, FieldKind};
use crate::labels::{Named, labels, push_quoted, quote};
use crate::markers::{Marker, Markers};
use crate::note::Session;
use nopal_abi::*;
use std::fmt::Write;
use std::ops::Range;
use uuid::Uuid;

/// The end of each metadata file: that of the description of the last kind of record.
pub const END: &str = "};\n";
/// The first line of a CTF 1.8 metadata file in plain text.
pub const BEGINNING: &str = "/* CTF 1.8 */\n";

const TYPES: &str = include_str!("types.tsdl");
const STREAM: &str = include_str!("stream.tsdl");
const SYSTEM: &str = include_str!("kernel_events.tsdl");

/// A function that occurs.
pub struct Function<'a> {
    pub named: Named<'a>,
    /// The kinds of records in which it does, one bit each.
    pub kinds: u16,
}

/// The whole text.
pub fn text(
    session: &Session,
    uuid: Uuid,
    clocks: &Clocks,
    functions: &[Function],
    markers: &Markers,
) -> String {
    let mut text = String::from(BEGINNING);
    text += TYPES;
    text += &trace(uuid);
    text += &environment(session);
    text += &clock(clocks);
    text += STREAM;
    text += SYSTEM;
    text += &events(functions);
    for (event, marker) in markers.iter() {
        text += &marker_event(event, marker);
    }
    text
}

fn trace(uuid: Uuid) -> String {
    format!(
        "
trace {{
	major = 1;
	minor = 8;
	uuid = \"{uuid}\";
	byte_order = le;
	packet.header := struct {{
		uint32 magic;
		uint32 stream_id;
		uint8 uuid[16];
	}};
}};
"
    )
}

fn environment(session: &Session) -> String {
    format!(
        "
env {{
	tracer_name = \"nopal\";
	tracer_version = {};
	record_version = {};
	hostname = {};
	kernel = {};
	command = {};
}};
",
        quote(env!("CARGO_PKG_VERSION")),
        session.version,
        quote(&session.hostname),
        quote(&session.kernel),
        quote(&session.command.join(" ")),
    )
}

fn clock(clocks: &Clocks) -> String {
    let (seconds, ticks) = offset(clocks);
    format!(
        "
clock {{
	name = counter;
	description = \"time stamp counter\";
	freq = {};
	offset_s = {seconds};
	offset = {ticks};
	absolute = true;
}};
",
        clocks.frequency()
    )
}

/// The time of counter 0, in seconds and ticks since 1970, by the first snapshot and the mean rate of the trace.
fn offset(clocks: &Clocks) -> (i64, u64) {
    const SECOND: i128 = 1_000_000_000;
    let Some(first) = clocks.snapshots().first() else {
        return (0, 0);
    };
    let frequency = i128::from(clocks.frequency());
    let origin = i128::from(first.realtime_ns) - i128::from(first.counter) * SECOND / frequency;
    let ticks = origin.rem_euclid(SECOND) * frequency / SECOND;
    let seconds = i64::try_from(origin.div_euclid(SECOND)).unwrap_or(0);
    (seconds, u64::try_from(ticks).unwrap_or(0))
}

/// The events of functions: kind, name, and the fields after the site and the tag.
const EVENTS: [(u32, &str, &str); 13] = [
    (KIND_ENTRY, "function_entry", ""),
    (KIND_EXIT, "function_exit", ""),
    (KIND_TAIL, "tail_entry", ""),
    (KIND_ONLY, "only_entry", ""),
    (
        KIND_ENTRY_ARGS,
        "function_entry_arguments",
        "\t\tword arguments[6];\n",
    ),
    (
        KIND_TAIL_ARGS,
        "tail_entry_arguments",
        "\t\tword arguments[6];\n",
    ),
    (
        KIND_ONLY_ARGS,
        "only_entry_arguments",
        "\t\tword arguments[6];\n",
    ),
    (
        KIND_EXIT_RESULT,
        "function_exit_result",
        "\t\tword result;\n",
    ),
    (KIND_UNWIND, "function_unwind", ""),
    (
        KIND_PENDING_ARGS,
        "entry_arguments_unknown",
        "\t\tword unknown[6];\n",
    ),
    (
        KIND_PENDING_RESULT,
        "exit_result_unknown",
        "\t\tword unknown;\n",
    ),
    (KIND_CALL_SITE, "call_site", "\t\tword return_address;\n"),
    (
        KIND_PENDING_CALL_SITE,
        "call_site_unknown",
        "\t\tword unknown;\n",
    ),
];

/// Each event names the functions that occur in it and no more, since babeltrace2 takes time that grows with the
/// square of an enumeration's size, for every place where it is used.
fn events(functions: &[Function]) -> String {
    let named: Vec<Named> = functions.iter().map(|function| function.named).collect();
    // Most occur in two events: entry and exit.
    let mut lines = String::new();
    let lines_of = labels(&named)
        .into_iter()
        .zip(&named)
        .map(|(label, named)| {
            let begin = lines.len();
            lines += ",\n\t\t\t";
            push_quoted(&label, &mut lines);
            let _ = write!(lines, " = {}", named.site);
            begin..lines.len()
        });
    let lines_of: Vec<Range<usize>> = lines_of.collect();
    let mut text = String::with_capacity(2 * lines.len());
    for (kind, name, more) in EVENTS {
        text += &format!(
            "
event {{
	name = \"{name}\";
	id = {kind};
	stream_id = 0;
	fields := struct {{
		enum : site_number {{
			\"(none)\" = 0"
        );
        let occurs = |function: &Function| function.kinds >> kind & 1 != 0;
        let each = functions.iter().zip(&lines_of);
        for (_, line) in each.filter(|(function, _)| occurs(function)) {
            text += &lines[line.clone()];
        }
        text += &format!("\n\t\t}} site;\n\t\tframe_tag tag;\n{more}\t}};\n}};\n");
    }
    text
}

/// An event of a marker. Its values begin at whole words, so that a narrow one has its word to itself, and the last one
/// has all of its word: babeltrace2 refuses bits that are left over at the end of a packet. Names begin with an
/// underscore, which readers take away, so that none is a word of TSDL's.
fn marker_event(event: u32, marker: &Marker) -> String {
    let mut fields = String::new();
    if event >> EVENT_WORDS_SHIFT == EVENT_VARIABLE {
        fields += "\t\tinteger { size = 64; align = 64; signed = false; } _words;\n";
    }
    for (index, field) in marker.fields.iter().enumerate() {
        let is_last = index + 1 == marker.fields.len();
        let name = field
            .name
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let integer = |bits: u8, signed: bool, base: u8| {
            let size = if is_last { 64 } else { bits };
            let integer = format!(
                "integer {{ size = {size}; align = 64; signed = {signed}; base = {base}; }}"
            );
            match labels_of(field, bits, signed) {
                labels if labels.is_empty() => format!("\t\t{integer} _{name};\n"),
                labels => format!("\t\tenum : {integer} {{ {labels} }} _{name};\n"),
            }
        };
        let sequence = |byte: &str| {
            format!(
                "\t\tinteger {{ size = 32; align = 64; signed = false; }} _{name}_length;
\t\tinteger {{ size = 32; align = 32; signed = false; }} _{name}_cut;
\t\tinteger {{ size = 8; align = 8; signed = false; {byte} }} _{name}[_{name}_length];\n"
            )
        };
        fields += &match field.kind {
            FieldKind::Signed(bits) => integer(bits, true, 10),
            FieldKind::Unsigned(bits) => integer(bits, false, 10),
            FieldKind::Octal(bits) => integer(bits, false, 8),
            FieldKind::Hexadecimal(bits) => integer(bits, false, 16),
            FieldKind::Character => integer(8, false, 10),
            FieldKind::Double => format!(
                "\t\tfloating_point {{ exp_dig = 11; mant_dig = 53; align = 64; }} _{name};\n"
            ),
            FieldKind::Missing => integer(64, false, 16),
            FieldKind::Text => sequence("encoding = UTF8;"),
            FieldKind::Bytes => sequence("base = 16;"),
        };
        if is_last && field.kind.has_length() {
            fields += "\t\tstruct { } align(64) _end;\n";
        }
    }
    format!(
        "
event {{
	name = {};
	id = {event};
	stream_id = 0;
	fields := struct {{
{fields}\t}};
}};
",
        quote(&marker.name)
    )
}

/// The labels that a value of so many bits can have.
fn labels_of(field: &Field, bits: u8, signed: bool) -> String {
    let fits = |value: &i64| match signed {
        true => bits >= 64 || (-1i64 << (bits - 1)..1 << (bits - 1)).contains(value),
        false => *value >= 0 && (bits >= 63 || *value < 1 << bits),
    };
    let labels = field.labels.iter().filter(|(value, _)| fits(value));
    let labels: Vec<String> = labels
        .map(|(value, label)| format!("{} = {value}", quote(label)))
        .collect();
    labels.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::Snapshot;

    #[test]
    fn the_offset_is_where_the_counter_was_zero() {
        let realtime_ns = 1_700_000_000_250_000_000;
        let clocks = Clocks::new([
            Snapshot {
                counter: 6_000,
                monotonic_ns: 1_000,
                realtime_ns,
            },
            Snapshot {
                counter: 12_000,
                monotonic_ns: 3_000,
                realtime_ns: realtime_ns + 2_000,
            },
        ]);
        assert_eq!(
            offset(&clocks),
            (1_700_000_000, 749_994_000),
            "0.25 s at 3 GHz, less 6,000 ticks"
        );
        assert_eq!(offset(&Clocks::new([])), (0, 0));
        let before_1970 = Clocks::new([Snapshot {
            counter: 1_500_000_000,
            monotonic_ns: 0,
            realtime_ns: 0,
        }]);
        assert_eq!(offset(&before_1970), (-2, 500_000_000));
    }

    #[test]
    fn the_text_is_the_golden_one() {
        let session = Session {
            version: 1,
            hostname: "host".into(),
            kernel: "Linux 6.18".into(),
            command: vec!["program".into(), "an \"argument\"".into()],
            ..Session::default()
        };
        let clocks = Clocks::new([Snapshot {
            counter: 0,
            monotonic_ns: 0,
            realtime_ns: 5_000_000_000,
        }]);
        let main = Named {
            site: 1,
            name: "main",
            module: "program",
            address: 0x1000,
        };
        let literal = Named {
            site: 7,
            name: "operator\"\"_km",
            module: "program",
            address: 0x1040,
        };
        let functions = [
            Function {
                named: main,
                kinds: 0b0110,
            },
            Function {
                named: literal,
                kinds: 0b1100,
            },
        ];
        let text = text(
            &session,
            Uuid::from_u128(0x1234),
            &clocks,
            &functions,
            &Markers::default(),
        );
        let golden =
            include_str!("../tests/golden/metadata").replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(text, golden);
    }
}
