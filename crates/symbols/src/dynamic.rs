use object::LittleEndian as LE;
use object::elf::{self, Dyn64, DynamicTag, Rela64, Sym64};
use object::pod::{slice_from_all_bytes, slice_from_bytes};

use crate::Image;
use crate::elf::{Elf, LONGEST_PATH, string_at};
use crate::hash::HashTable;
use crate::table::SymbolTable;

/// The data for the loader: PT_DYNAMIC. Files without sections have it too.
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

    /// .dynsym. No tag has its length: a section gives it, or else the hash table, which covers the definitions.
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

    /// .dynsym and the bytes after it, for symbols that a relocation gives by index.
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
        self.hash_table(image)?.symbols()
    }

    pub fn hash_table<'a>(&self, image: &'a Image) -> Option<HashTable<'a>> {
        HashTable::parse(image.bytes_from(self.get(elf::DT_GNU_HASH)?)?)
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

    /// DT_RELR.
    pub fn packed_relocations<'a>(&self, image: &'a Image) -> &'a [u8] {
        let table = || {
            let size = usize::try_from(self.get(elf::DT_RELRSZ)?).ok()?;
            image.bytes(self.get(elf::DT_RELR)?, size)
        };
        table().unwrap_or_default()
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
