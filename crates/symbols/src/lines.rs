//! Lines of source, from DWARF's line tables. These may be damaged or malicious: unreadable parts are ignored.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
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

/// The file and line of each of `addresses` that a line table has. Paths are relative to the directory that the
/// compiler ran in, if the files are below it.
pub fn places(elf: &Elf, addresses: &[u64]) -> HashMap<u64, (String, u32)> {
    let mut wanted = addresses.to_vec();
    wanted.sort_unstable();
    let [lines, line_strings, strings] =
        [LINE_TABLES, ".debug_line_str", ".debug_str"].map(|name| bytes(elf, name));
    let strings = Strings {
        line_strings: DebugLineStr::from(Slice::new(&line_strings, LittleEndian)),
        strings: DebugStr::from(Slice::new(&strings, LittleEndian)),
    };
    let mut found = HashMap::new();
    for program in programs(Slice::new(&lines, LittleEndian)) {
        let mut rows = program.rows();
        // The row before this one, which holds up to this one's address: its address, the file, and the line.
        let mut before: Option<(u64, u64, u32)> = None;
        while let Ok(Some((header, row))) = rows.next_row() {
            if let Some((begin, file, line)) = before {
                let first = wanted.partition_point(|address| *address < begin);
                let held = wanted[first..].iter();
                for &address in held.take_while(|address| **address < row.address()) {
                    if let Some(path) = strings.path(header, file) {
                        found.entry(address).or_insert((path, line));
                    }
                }
            }
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
            before = line
                .filter(|_| !row.end_sequence())
                .map(|line| (row.address(), row.file_index(), line));
        }
    }
    found
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

    /// The path of a file by its number in rows.
    fn path(&self, header: &LineProgramHeader<Slice<'a>>, number: u64) -> Option<String> {
        let file = header.file(number)?;
        let name = self.text(file.path_name())?;
        let directory = match file.directory_index() {
            0 => None,
            _ => file.directory(header).and_then(|text| self.text(text)),
        };
        let path = Path::new(directory.unwrap_or_default()).join(name);
        let of_compiler = header.directory(0).and_then(|text| self.text(text));
        let below = of_compiler.and_then(|directory| path.strip_prefix(directory).ok());
        Some(below.unwrap_or(&path).display().to_string())
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
