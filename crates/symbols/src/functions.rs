use std::cmp::Reverse;
use std::ops::Range;

use anyhow::Result;
use object::LittleEndian as LE;
use object::elf::{self, SHT_SYMTAB};
use serde::{Deserialize, Serialize};

use crate::elf::text;
use crate::table::SymbolTable;
use crate::{Image, cold};

/// Code that is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub address: u64,
    pub size: u64,
    /// Not demangled. In a stripped file `file+0xaddress`.
    pub name: String,
    /// Other names of the same address.
    pub aliases: Vec<String>,
    pub source: Source,
    /// Whether it is exported by this name.
    pub global: bool,
    /// It only chooses the function to call (STT_GNU_IFUNC): its own callers are the loader.
    pub indirect: bool,
}

/// The place where a function was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    Symtab,
    Dynsym,
    MiniDebugInfo,
    DebugFile,
    Unwind,
}

/// The role of a symbol at an address in code.
struct Named<'a> {
    address: u64,
    size: u64,
    name: &'a [u8],
    source: Source,
    global: bool,
    indirect: bool,
    cold: bool,
}

impl Named<'_> {
    /// The best name of an address comes first.
    fn preference(&self) -> impl Ord {
        let underscores = self.name.iter().take_while(|&&byte| byte == b'_').count();
        (
            self.cold,
            Reverse(self.global),
            underscores,
            self.name.len(),
            self.name,
            self.source,
        )
    }
}

pub(crate) fn of(image: &Image) -> Result<Vec<Function>> {
    let mut named = Vec::new();
    if let Some(table) = SymbolTable::of_section(image.elf(), SHT_SYMTAB) {
        collect(image, table, Source::Symtab, &mut named)?;
    }
    if let Some(debug) = image.debug()
        && let Some(table) = debug.symbols()
    {
        collect(image, table, debug.source, &mut named)?;
    }
    if let Some(table) = image.dynamic().symbols(image) {
        collect(image, table, Source::Dynsym, &mut named)?;
    }
    named.sort_unstable_by(|a, b| {
        a.address
            .cmp(&b.address)
            .then_with(|| a.preference().cmp(&b.preference()))
    });

    let (mut functions, covered) = merge(image, &named);
    functions.extend(unnamed(image, &covered));
    functions.sort_by_key(|function| function.address);
    Ok(functions)
}

fn collect<'a>(
    image: &Image,
    table: SymbolTable<'a>,
    source: Source,
    named: &mut Vec<Named<'a>>,
) -> Result<()> {
    let mut budget = table.name_budget(table.len());
    for symbol in table.defined() {
        let address = symbol.st_value.get(LE);
        let indirect = symbol.st_type() == elf::STT_GNU_IFUNC;
        let is_code = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => image.code().end(address).is_some(),
            // A label in assembly: a function only where one begins.
            elf::STT_NOTYPE => {
                image
                    .frames()
                    .starting_at(address)
                    .is_some_and(|entry| entry.starts_at_call_boundary())
                    && image.code().end(address).is_some()
            }
            _ => false,
        };
        if !is_code {
            continue;
        }
        let name = table.name(symbol, &mut budget)?;
        if name.is_empty() {
            continue;
        }
        named.push(Named {
            address,
            size: symbol.st_size.get(LE),
            name,
            source,
            global: symbol.st_bind() != elf::STB_LOCAL,
            indirect,
            cold: is_cold(name),
        });
    }
    Ok(())
}

/// The part of a function that the compiler moved away because it rarely runs: `f.cold`, `f.cold.1`.
fn is_cold(name: &[u8]) -> bool {
    let end = name
        .iter()
        .rposition(|&byte| !byte.is_ascii_digit())
        .map_or(0, |last| last + 1);
    let without_number = if end < name.len() {
        name[..end].strip_suffix(b".")
    } else {
        Some(name)
    };
    without_number.is_some_and(|name| name.ends_with(b".cold"))
}

/// One function for each address, and the ranges of named code.
fn merge(image: &Image, named: &[Named<'_>]) -> (Vec<Function>, Vec<Range<u64>>) {
    let mut functions = Vec::new();
    let mut covered = Vec::new();
    let mut groups = named.chunk_by(|a, b| a.address == b.address).peekable();
    while let Some(group) = groups.next() {
        let best = &group[0];
        let next = groups.peek().map_or(u64::MAX, |next| next[0].address);
        let size = size_of_group(image, group, next);
        covered.push(best.address..best.address + size);
        if best.cold {
            continue;
        }
        let mut aliases: Vec<&[u8]> = group
            .iter()
            .filter(|other| !other.cold)
            .map(|other| other.name)
            .filter(|&name| name != best.name)
            .collect();
        aliases.sort_unstable();
        aliases.dedup();
        functions.push(Function {
            address: best.address,
            size,
            name: text(best.name),
            aliases: aliases.into_iter().map(text).collect(),
            source: best.source,
            global: best.global,
            indirect: group.iter().any(|named| named.indirect),
        });
    }
    (functions, covered)
}

/// A function without a size, as assembly often is, ends where the next one begins or its unwinding entry ends.
fn size_of_group(image: &Image, group: &[Named<'_>], next: u64) -> u64 {
    let address = group[0].address;
    let end = image.code().end(address).unwrap_or(address);
    let size = group.iter().map(|named| named.size).max().unwrap_or(0);
    if size > 0 {
        return size.min(end - address);
    }
    let frames = image.frames();
    let entry_end = frames.covering(address).map_or(u64::MAX, |entry| entry.end);
    let next_entry = frames.next_start(address).unwrap_or(u64::MAX);
    end.min(next).min(entry_end).min(next_entry) - address
}

/// Functions that are only in .eh_frame. `covered` is sorted by start.
fn unnamed(image: &Image, covered: &[Range<u64>]) -> Vec<Function> {
    let mut covered = covered.iter().peekable();
    let mut covered_to = 0;
    let mut entries = Vec::new();
    for entry in image.frames().entries() {
        while let Some(range) = covered.next_if(|range| range.start <= entry.start) {
            // A name without bytes of its own still names the code that starts there.
            covered_to = range.end.max(range.start + 1).max(covered_to);
        }
        let is_code = image.code().end(entry.start).is_some() && !image.code().is_cold(entry.start);
        if is_code && entry.start >= covered_to && entry.starts_at_call_boundary() {
            entries.push(*entry);
        }
    }
    cold::remove(image, &mut entries);
    let file = image.file_name();
    entries
        .into_iter()
        .map(|entry| {
            let end = image.code().end(entry.start).unwrap_or(entry.start);
            Function {
                address: entry.start,
                size: entry.end.min(end) - entry.start,
                name: format!("{file}+{:#x}", entry.start),
                aliases: Vec::new(),
                source: Source::Unwind,
                global: false,
                indirect: false,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_cold;

    #[test]
    fn cold_parts_are_told_by_their_names() {
        for name in [
            "f.cold",
            "f.cold.0",
            "f.cold.123",
            "f.part.0.cold",
            "f.constprop.0.cold.7",
        ] {
            assert!(is_cold(name.as_bytes()), "{name}");
        }
        for name in [
            "cold",
            "f_cold",
            "f.cold.x",
            "f.colder",
            "f.part.0",
            "f.cold.1x",
            "",
        ] {
            assert!(!is_cold(name.as_bytes()), "{name}");
        }
    }
}
