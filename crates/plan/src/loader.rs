//! The loader's instructions in the file: the dynamic section and its relocations.

use anyhow::{Result, ensure};
use nopal_symbols::{Image, Import, Kind, Relocation};

use crate::arch;
use crate::code::{Code, Memory};

const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const DT_PLTRELSZ: u64 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_INIT: u64 = 12;
const DT_JMPREL: u64 = 23;
const DT_INIT_ARRAY: u64 = 25;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;

#[derive(Default)]
pub(crate) struct Loader {
    /// Words that the loader relocates: the word's address, and its target.
    pub pointers: Vec<(u64, u64)>,
    /// Code that the loader changes, sorted.
    pub changed_code: Vec<u64>,
    /// IFUNC resolvers that only relocations name, sorted.
    pub resolvers: Vec<u64>,
    pub eh_frame_header: Option<u64>,
    /// It calls functions of the file when that is loaded.
    pub initialises: bool,
}

impl Loader {
    pub fn of(
        image: &Image,
        imports: &[Import],
        memory: &Memory<'_>,
        code: &Code<'_>,
    ) -> Result<Loader> {
        ensure!(
            image.kind() == Kind::Executable || headers(image).is_some(),
            "the file's headers are not loaded: what the loader changes is not known"
        );
        let resolver = |import: &Import| match import.bound_as {
            Relocation::Irelative { resolver } => Some(resolver),
            _ => None,
        };
        let mut loader = Loader {
            eh_frame_header: header(image, PT_GNU_EH_FRAME).map(|(address, _)| address),
            resolvers: imports.iter().filter_map(resolver).collect(),
            ..Loader::default()
        };
        let dynamic = header(image, PT_DYNAMIC)
            .and_then(|(address, size)| memory.from(address)?.get(..usize::try_from(size).ok()?))
            .unwrap_or_default();
        let entries: Vec<(u64, u64)> = pairs(dynamic).take_while(|&(tag, _)| tag != 0).collect();
        let value = |wanted| {
            let entry = entries.iter().find(|&&(tag, _)| tag == wanted);
            entry.map(|&(_, value)| value)
        };
        loader.initialises = [DT_INIT, DT_INIT_ARRAY]
            .iter()
            .any(|tag| value(*tag).is_some());
        let table = |address, size| {
            memory
                .from(value(address)?)?
                .get(..usize::try_from(value(size)?).ok()?)
        };
        for (address, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            loader.with_addends(table(address, size).unwrap_or_default(), code);
        }
        loader.packed(table(DT_RELR, DT_RELRSZ).unwrap_or_default(), memory, code)?;
        loader.changed_code.sort_unstable();
        loader.resolvers.sort_unstable();
        Ok(loader)
    }

    fn with_addends(&mut self, table: &[u8], code: &Code<'_>) {
        for entry in table.as_chunks::<24>().0 {
            let (place, kind, addend) = (
                word(entry, 0),
                word(entry, 8) & 0xffff_ffff,
                word(entry, 16),
            );
            if code.number(place).is_some() {
                self.changed_code.push(place);
            }
            if arch::RELATIVE.contains(&kind) {
                self.pointers.push((place, addend));
            }
        }
    }

    /// DT_RELR: an even word is an address, whose word is relocated; an odd word has a bit for each of the 63 words
    /// that follow, from bit 1 up.
    fn packed(&mut self, table: &[u8], memory: &Memory<'_>, code: &Code<'_>) -> Result<()> {
        let most = self.pointers.len() + memory.len() / 8;
        let mut next: u64 = 0;
        for entry in table.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*entry);
            if entry & 1 == 0 {
                self.pointer_at(entry, memory, code);
                next = entry.wrapping_add(8);
            } else {
                for bit in (0..63).filter(|bit| entry >> (bit + 1) & 1 != 0) {
                    self.pointer_at(next.wrapping_add(8 * bit), memory, code);
                }
                next = next.wrapping_add(8 * 63);
            }
            ensure!(
                self.pointers.len() <= most,
                "the file claims more relocations than it has words"
            );
        }
        Ok(())
    }

    fn pointer_at(&mut self, place: u64, memory: &Memory<'_>, code: &Code<'_>) {
        if let Some(target) = memory.word(place) {
            self.pointers.push((place, target));
            self.changed_code.extend(code.number(place).map(|_| place));
        }
    }
}

/// The address and the size in a program header.
fn header(image: &Image, kind: u32) -> Option<(u64, u64)> {
    let mut headers = headers(image)?.as_chunks::<56>().0.iter();
    let found = headers.find(|header| word(*header, 0) as u32 == kind)?;
    Some((word(found, 16), word(found, 32)))
}

/// The program headers, 56 bytes each, which are loaded with the start of the file.
fn headers(image: &Image) -> Option<&[u8]> {
    let mut segments = image.segments().iter();
    let first = segments.find(|segment| segment.offset == 0)?;
    let file = image.bytes(first.address, 64)?;
    let count = u16::from_le_bytes([file[56], file[57]]);
    let table = first.address.checked_add(word(file, 32))?;
    image.bytes(table, usize::from(count) * 56)
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    bytes
        .as_chunks::<16>()
        .0
        .iter()
        .map(|pair| (word(pair, 0), word(pair, 8)))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
