use object::LittleEndian as LE;
use object::elf::{self, Dyn64, DynamicTag, Rela64, Sym64};
use object::pod::{slice_from_all_bytes, slice_from_bytes};

use crate::Image;
use crate::elf::{Elf, LONGEST_PATH, string_at};
use crate::table::SymbolTable;

/// What the loader reads: PT_DYNAMIC. It is there in files without sections too.
pub(crate) struct Dynamic(Vec<(DynamicTag, u64)>);

impl Dynamic {
    pub fn parse(elf: &Elf) -> Dynamic {
        let bytes = elf
            .header(elf::PT_DYNAMIC)
            .and_then(|header| elf.range(header.offset, header.file_size))
            .unwrap_or_default();
        let count = bytes.len() / size_of::<Dyn64<LE>>();
        let entries =
            slice_from_bytes::<Dyn64<LE>>(bytes, count).map_or(&[][..], |(entries, _)| entries);
        Dynamic(
            entries
                .iter()
                .map(|entry| (entry.d_tag.get(LE), entry.d_val.get(LE)))
                .take_while(|&(tag, _)| tag != elf::DT_NULL)
                .collect(),
        )
    }

    fn get(&self, tag: DynamicTag) -> Option<u64> {
        self.0
            .iter()
            .find(|entry| entry.0 == tag)
            .map(|entry| entry.1)
    }

    pub fn says_position_independent(&self) -> bool {
        self.get(elf::DT_FLAGS_1)
            .is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0)
    }

    /// The values of a tag that names strings.
    pub fn strings<'a>(
        &'a self,
        image: &'a Image,
        tag: DynamicTag,
    ) -> impl Iterator<Item = &'a str> {
        let strings = self.string_table(image).unwrap_or_default();
        let values = self.0.iter().filter(move |entry| entry.0 == tag);
        values.filter_map(|&(_, offset)| {
            str::from_utf8(string_at(strings, offset, LONGEST_PATH)?).ok()
        })
    }

    fn string_table<'a>(&self, image: &'a Image) -> Option<&'a [u8]> {
        let size = usize::try_from(self.get(elf::DT_STRSZ)?).ok()?;
        image.bytes(self.get(elf::DT_STRTAB)?, size)
    }

    /// .dynsym. Its length is in no tag: a section says it, or else the hash table that covers the definitions.
    pub fn symbols<'a>(&self, image: &'a Image) -> Option<SymbolTable<'a>> {
        let address = self.get(elf::DT_SYMTAB)?;
        let section = image
            .elf()
            .section_of_kind(elf::SHT_DYNSYM)
            .filter(|section| section.address == address);
        let size = match section {
            Some(section) => usize::try_from(section.size).ok()?,
            None => self
                .symbol_count(image)?
                .checked_mul(size_of::<Sym64<LE>>())?,
        };
        self.symbol_table(image, image.bytes(address, size)?)
    }

    /// .dynsym with whatever follows it, for symbols that a relocation gives by index.
    pub fn symbols_by_index<'a>(&self, image: &'a Image) -> Option<SymbolTable<'a>> {
        self.symbol_table(image, image.bytes_from(self.get(elf::DT_SYMTAB)?)?)
    }

    fn symbol_table<'a>(&self, image: &'a Image, symbols: &'a [u8]) -> Option<SymbolTable<'a>> {
        let versions = self
            .get(elf::DT_VERSYM)
            .and_then(|address| image.bytes_from(address))
            .unwrap_or_default();
        Some(SymbolTable::new(
            symbols,
            self.string_table(image)?,
            versions,
        ))
    }

    fn symbol_count(&self, image: &Image) -> Option<usize> {
        if let Some(table) = self.get(elf::DT_HASH) {
            // Words: number of buckets, number of symbols, …
            return usize::try_from(word(image.bytes(table, 8)?, 1)?).ok();
        }
        // Words: number of buckets, first symbol, size of the filter, shift; the filter (8 bytes each); the buckets
        // (highest chains start there); the chains, one word a symbol, an odd word ends a chain.
        let table = image.bytes_from(self.get(elf::DT_GNU_HASH)?)?;
        let buckets = usize::try_from(word(table, 0)?).ok()?;
        let first = usize::try_from(word(table, 1)?).ok()?;
        let filter = usize::try_from(word(table, 2)?).ok()?;
        let start = filter.checked_mul(2)?.checked_add(4)?;
        let chains = start.checked_add(buckets)?;
        let words = table.len() / 4;
        if chains > words {
            return None;
        }
        let last = (start..chains)
            .filter_map(|index| word(table, index))
            .max()?;
        let mut last = usize::try_from(last).ok()?;
        if last < first {
            return Some(first);
        }
        while word(table, chains.checked_add(last - first)?)? & 1 == 0 {
            last = last.checked_add(1)?;
        }
        last.checked_add(1)
    }

    /// The relocations that the loader does, those of the PLT last.
    pub fn relocations<'a>(&self, image: &'a Image) -> [&'a [Rela64<LE>]; 2] {
        let table = |address, size| {
            let size = usize::try_from(self.get(size)?).ok()?;
            relocations_in(image.bytes(self.get(address)?, size)?)
        };
        [
            table(elf::DT_RELA, elf::DT_RELASZ).unwrap_or_default(),
            table(elf::DT_JMPREL, elf::DT_PLTRELSZ).unwrap_or_default(),
        ]
    }
}

pub(crate) fn relocations_in(bytes: &[u8]) -> Option<&[Rela64<LE>]> {
    slice_from_all_bytes(bytes).ok()
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let start = index.checked_mul(4)?;
    let word = bytes.get(start..start.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}
