use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::SHT_SYMTAB;

use crate::elf::{Elf, LONGEST_PATH, inflate, string_at};
use crate::table::SymbolTable;
use crate::{Image, Source};

/// The directory for the files that dwz makes, within one of debug files.
const COMMON_FILES: &str = ".dwz";

/// Symbols that were stripped from an image, from its debug file or `.gnu_debugdata`.
pub(crate) struct Debug {
    elf: Elf,
    pub source: Source,
}

impl Debug {
    pub fn let_pages_go(&self) {
        self.elf.let_pages_go();
    }

    pub fn symbols(&self) -> Option<SymbolTable<'_>> {
        SymbolTable::of_section(&self.elf, SHT_SYMTAB)
    }
}

/// A separate debug file has every symbol; .gnu_debugdata only those that .dynsym lacks.
pub(crate) fn find(image: &Image, directories: &[PathBuf]) -> Option<Debug> {
    if let Some(elf) = file(image, directories) {
        return Some(Debug {
            elf,
            source: Source::DebugFile,
        });
    }
    let section = image.elf().section(".gnu_debugdata")?;
    let inflated = inflate(image.elf().section_bytes(section)?).ok()?;
    let elf = Elf::parse(crate::elf::Contents::Memory(inflated)).ok()?;
    Some(Debug {
        elf,
        source: Source::MiniDebugInfo,
    })
}

pub(crate) fn file(image: &Image, directories: &[PathBuf]) -> Option<Elf> {
    by_build_id(image, directories).or_else(|| by_link(image, directories))
}

fn by_build_id(image: &Image, directories: &[PathBuf]) -> Option<Elf> {
    let id = image.build_id()?;
    let (first, rest) = id.split_first()?;
    let name = format!(".build-id/{}/{}.debug", hex(&[*first]), hex(rest));
    directories
        .iter()
        .filter_map(|directory| open(&directory.join(&name)))
        .find(|elf| elf.build_id() == Some(id))
}

/// The file to which dwz has moved what this file has in common with others. `.gnu_debugaltlink`: its name, NUL, its
/// build-id.
pub(crate) fn common(elf: &Elf, directories: &[PathBuf]) -> Option<Elf> {
    let link = elf.section_bytes(elf.section(".gnu_debugaltlink")?)?;
    let name = string_at(link, 0, LONGEST_PATH)?;
    let id = link.get(name.len() + 1..)?;
    let name = Path::new(OsStr::from_bytes(name));
    let mut rest = name.components();
    let below = rest.find(|part| part.as_os_str() == COMMON_FILES);
    let elsewhere = directories.iter().map(|directory| match below {
        Some(below) => directory.join(below).join(rest.as_path()),
        None => directory.join(name),
    });
    let named = name.is_absolute().then(|| name.to_owned());
    let mut places = named.into_iter().chain(elsewhere);
    places.find_map(|place| {
        Elf::open_any(&place)
            .ok()
            .filter(|elf| elf.build_id() == Some(id))
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// .gnu_debuglink: a file name, NUL, zeroes up to a multiple of 4, the file's CRC-32.
fn by_link(image: &Image, directories: &[PathBuf]) -> Option<Elf> {
    let section = image.elf().section(".gnu_debuglink")?;
    let link = image.elf().section_bytes(section)?;
    let name = str::from_utf8(string_at(link, 0, LONGEST_PATH)?).ok()?;
    if name.is_empty() || name.contains('/') || name == ".." || name == "." {
        return None;
    }
    let sum_at = (name.len() + 1).next_multiple_of(4);
    let sum = u32::from_le_bytes(link.get(sum_at..sum_at + 4)?.try_into().ok()?);
    let belongs = |elf: &Elf| match (image.build_id(), elf.build_id()) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => crc32(elf.data()) == sum,
    };
    places(image.path(), directories)
        .into_iter()
        .map(|place| place.join(name))
        .filter(|path| path != image.path())
        .filter_map(|path| open(&path))
        .find(belongs)
}

/// The possible paths of a file with the link's name, for the path as given and with its links resolved.
fn places(path: &Path, directories: &[PathBuf]) -> Vec<PathBuf> {
    let given = path.parent().map(Path::to_owned);
    let resolved = path
        .canonicalize()
        .ok()
        .and_then(|path| path.parent().map(Path::to_owned))
        .filter(|resolved| Some(resolved) != given.as_ref());
    let mut places = Vec::new();
    for parent in given.into_iter().chain(resolved) {
        places.push(parent.clone());
        places.push(parent.join(".debug"));
        if let Ok(below_root) = parent.strip_prefix("/") {
            places.extend(
                directories
                    .iter()
                    .map(|directory| directory.join(below_root)),
            );
        }
    }
    places
}

pub(crate) fn open(path: &Path) -> Option<Elf> {
    // Most do not exist, and making an error for each takes longer than looking, especially with a backtrace.
    if !path.is_file() {
        return None;
    }
    let elf = Elf::open(path).ok()?;
    SymbolTable::of_section(&elf, SHT_SYMTAB)
        .is_some()
        .then_some(elf)
}

/// The CRC-32 of gzip and zip.
fn crc32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 0 {
                    value >> 1
                } else {
                    value >> 1 ^ 0xedb8_8320
                };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !data.iter().fold(!0, |sum, &byte| {
        sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32_is_that_of_zip() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::crc32(b""), 0);
    }
}
