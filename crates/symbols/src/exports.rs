use object::LittleEndian as LE;
use object::elf;

use crate::Image;
use crate::hash::HashTable;
use crate::table::SymbolTable;

/// The exported names, prepared for many lookups.
pub struct Exports<'a> {
    table: Option<SymbolTable<'a>>,
    hashes: Option<HashTable<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    pub address: u64,
    /// It only chooses the function to call (STT_GNU_IFUNC).
    pub chooses: bool,
}

impl<'a> Exports<'a> {
    pub(crate) fn of(image: &'a Image) -> Exports<'a> {
        Exports {
            table: image.dynamic().symbols(image),
            hashes: image.dynamic().hash_table(image),
        }
    }

    pub fn find(&self, name: &str) -> Option<Export> {
        let (table, name) = (self.table?, name.as_bytes());
        let symbol = match &self.hashes {
            Some(hashes) => table.find_among(hashes.candidates(name), name),
            None => table.find(name),
        }?;
        Some(Export {
            address: symbol.st_value.get(LE),
            chooses: symbol.st_type() == elf::STT_GNU_IFUNC,
        })
    }

    /// The addresses of the functions, but for those that only choose another.
    pub fn functions(&self) -> impl Iterator<Item = u64> + use<'a> {
        let defined = self.table.into_iter().flat_map(|table| table.defined());
        let functions = defined.filter(|symbol| symbol.st_type() == elf::STT_FUNC);
        functions.map(|symbol| symbol.st_value.get(LE))
    }

    /// The addresses of all names.
    pub fn places(&self) -> impl Iterator<Item = u64> + use<'a> {
        let defined = self.table.into_iter().flat_map(|table| table.defined());
        let places = defined.filter(|symbol| symbol.st_type() != elf::STT_TLS);
        places.map(|symbol| symbol.st_value.get(LE))
    }

    /// Whether there are some, and all of them are data.
    pub fn only_data(&self) -> bool {
        let mut defined = self.table.iter().flat_map(SymbolTable::defined).peekable();
        defined.peek().is_some()
            && defined.all(|symbol| matches!(symbol.st_type(), elf::STT_OBJECT | elf::STT_TLS))
    }
}
