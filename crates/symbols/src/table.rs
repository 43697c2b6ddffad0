use anyhow::{Result, ensure};
use object::LittleEndian as LE;
use object::elf::{self, Sym64};
use object::pod::slice_from_all_bytes;

use crate::elf::{Elf, LONGEST_NAME, string_at};

/// A symbol table and its strings.
#[derive(Clone, Copy)]
pub(crate) struct SymbolTable<'a> {
    symbols: &'a [Sym64<LE>],
    strings: &'a [u8],
    /// A version for each symbol, or none: its highest bit hides a symbol that only old programs use.
    versions: &'a [u8],
}

impl<'a> SymbolTable<'a> {
    pub fn new(symbols: &'a [u8], strings: &'a [u8], versions: &'a [u8]) -> SymbolTable<'a> {
        let whole = symbols.len() - symbols.len() % size_of::<Sym64<LE>>();
        let symbols = slice_from_all_bytes(&symbols[..whole]).unwrap_or_default();
        SymbolTable {
            symbols,
            strings,
            versions,
        }
    }

    pub fn of_section(elf: &Elf, kind: elf::SectionType) -> Option<SymbolTable<'_>> {
        let section = elf.section_of_kind(kind)?;
        let strings = elf.sections.get(usize::try_from(section.link).ok()?)?;
        Some(SymbolTable::new(
            elf.section_bytes(section)?,
            elf.section_bytes(strings)?,
            &[],
        ))
    }

    /// Symbols with an address in this file.
    pub fn defined(&self) -> impl Iterator<Item = &'a Sym64<LE>> + use<'a> {
        self.symbols.iter().filter(|symbol| is_defined(symbol))
    }

    pub fn get(&self, index: u32) -> Option<&'a Sym64<LE>> {
        self.symbols.get(usize::try_from(index).ok()?)
    }

    /// The name without the version that some tables append (`f@VERSION`, `f@@VERSION`).
    pub fn name(&self, symbol: &Sym64<LE>, budget: &mut NameBudget) -> Result<&'a [u8]> {
        let name = string_at(self.strings, symbol.st_name.get(LE).into(), LONGEST_NAME)
            .unwrap_or_default();
        budget.spend(name.len())?;
        let version = name
            .iter()
            .position(|&byte| byte == b'@')
            .filter(|&at| at > 0);
        Ok(&name[..version.unwrap_or(name.len())])
    }

    /// The limit of bytes for reading the names of this many symbols.
    pub fn name_budget(&self, symbols: usize) -> NameBudget {
        let strings = self.strings.len().saturating_mul(2);
        NameBudget(
            symbols
                .saturating_mul(64)
                .saturating_add(strings)
                .saturating_add(64 << 10),
        )
    }

    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    pub fn find(&self, name: &[u8]) -> Option<&'a Sym64<LE>> {
        self.find_among(0..u32::try_from(self.len()).ok()?, name)
    }

    /// The symbol of a name, among those of these numbers.
    pub fn find_among(
        &self,
        numbers: impl Iterator<Item = u32>,
        name: &[u8],
    ) -> Option<&'a Sym64<LE>> {
        let mut hidden = None;
        for number in numbers {
            let symbol = self.get(number)?;
            if !self.is_named(symbol, name) || !is_place(symbol) {
                continue;
            }
            if !self.is_hidden(number as usize) {
                return Some(symbol);
            }
            hidden.get_or_insert(symbol);
        }
        hidden
    }

    fn is_named(&self, symbol: &Sym64<LE>, name: &[u8]) -> bool {
        let start = usize::try_from(symbol.st_name.get(LE)).unwrap_or(usize::MAX);
        let rest = self
            .strings
            .get(start..)
            .and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| matches!(rest.first(), Some(0 | b'@')))
    }

    fn is_hidden(&self, index: usize) -> bool {
        self.versions
            .get(2 * index + 1)
            .is_some_and(|high| high & 0x80 != 0)
    }
}

fn is_place(symbol: &Sym64<LE>) -> bool {
    let kind = symbol.st_type();
    is_defined(symbol) && kind != elf::STT_TLS && kind != elf::STT_SECTION && kind != elf::STT_FILE
}

pub(crate) fn is_defined(symbol: &Sym64<LE>) -> bool {
    !matches!(
        symbol.st_shndx.get(LE),
        elf::SHN_UNDEF | elf::SHN_ABS | elf::SHN_COMMON
    )
}

/// Strings in a table may share their ends, but not so often that reading them all takes many times the table.
pub(crate) struct NameBudget(usize);

impl NameBudget {
    fn spend(&mut self, bytes: usize) -> Result<()> {
        ensure!(
            bytes <= self.0,
            "the symbol names overlap beyond reason: the symbol table is damaged"
        );
        self.0 -= bytes;
        Ok(())
    }
}
