//! Lines of source, from DWARF's line tables. These may be damaged or malicious: unreadable parts are ignored.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, DebugStr, EndianSlice,
    IncompleteLineProgram, LineProgramHeader, LittleEndian,
};

use crate::compressed;
use crate::elf::Elf;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

const ADDRESS_BYTES: u8 = 8;
const LINE_TABLES: &str = ".debug_line";

/// Whether a file has line tables.
pub fn has(elf: &Elf) -> bool {
    elf.section(LINE_TABLES)
        .is_some_and(|section| elf.section_bytes(section).is_some())
}

/// The addresses with code of a line, or of the next line in the same file that has code, and that line. `file` is the
/// end of a path, whole components of it.
pub fn addresses(elf: &Elf, file: &str, line: u32) -> (u32, Vec<u64>) {
    let [lines, line_strings, strings] =
        [LINE_TABLES, ".debug_line_str", ".debug_str"].map(|name| bytes(elf, name));
    let strings = Strings {
        line_strings: DebugLineStr::from(Slice::new(&line_strings, LittleEndian)),
        strings: DebugStr::from(Slice::new(&strings, LittleEndian)),
    };
    let mut best = u64::from(u32::MAX);
    let mut found = Vec::new();
    for program in programs(Slice::new(&lines, LittleEndian)) {
        let files = strings.files(program.header(), file);
        if files.is_empty() {
            continue;
        }
        let mut rows = program.rows();
        while let Ok(Some((_, row))) = rows.next_row() {
            let Some(at) = row.line().map(u64::from) else {
                continue;
            };
            let reached = (u64::from(line)..=best).contains(&at) && !row.end_sequence();
            if !reached || !files.contains(&row.file_index()) {
                continue;
            }
            if at < best {
                best = at;
                found.clear();
            }
            found.push(row.address());
        }
    }
    (best as u32, found)
}

fn bytes<'a>(elf: &'a Elf, name: &str) -> Cow<'a, [u8]> {
    let section = elf.section(name);
    let bytes = section.and_then(|section| compressed::section_bytes(elf, section));
    bytes.unwrap_or_default()
}

/// The tables of all units. The first that cannot be read ends them: nothing tells where the next would begin.
fn programs(section: Slice<'_>) -> impl Iterator<Item = IncompleteLineProgram<Slice<'_>>> {
    let lines = DebugLine::from(section);
    let mut offset = 0;
    std::iter::from_fn(move || {
        let begin = DebugLineOffset(offset);
        let program = (offset < section.len())
            .then(|| lines.program(begin, ADDRESS_BYTES, None, None).ok())??;
        let header = program.header();
        let length = usize::from(header.format().initial_length_size());
        offset += length + header.unit_length();
        Some(program)
    })
}

struct Strings<'a> {
    line_strings: DebugLineStr<Slice<'a>>,
    strings: DebugStr<Slice<'a>>,
}

impl<'a> Strings<'a> {
    /// The numbers that rows give the files whose path ends with `wanted`.
    fn files(&self, header: &LineProgramHeader<Slice<'a>>, wanted: &str) -> HashSet<u64> {
        let first = u64::from(header.version() < 5);
        let numbered = (first..).zip(header.file_names());
        let chosen = numbered.filter(|(_, file)| {
            let directory = file.directory(header).and_then(|text| self.text(text));
            let name = self.text(file.path_name());
            let path = Path::new(directory.unwrap_or_default()).join(name.unwrap_or_default());
            path.ends_with(wanted)
        });
        chosen.map(|(number, _)| number).collect()
    }

    fn text(&self, value: AttributeValue<Slice<'a>>) -> Option<&'a str> {
        let text = match value {
            AttributeValue::String(text) => text,
            AttributeValue::DebugLineStrRef(at) => self.line_strings.get_str(at).ok()?,
            AttributeValue::DebugStrRef(at) => self.strings.get_str(at).ok()?,
            _ => return None,
        };
        str::from_utf8(text.slice()).ok()
    }
}
