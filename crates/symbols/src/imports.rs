use object::LittleEndian as LE;
use object::elf;

use crate::Image;
use crate::dynamic::relocations_in;
use crate::elf::text;
use crate::table::is_defined;

/// A function called through a word that the loader fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The raw name; empty for `Irelative`, which has none.
    pub name: String,
    /// The address of the word.
    pub slot: u64,
    pub bound_as: Relocation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// The PLT's word: may be bound at the first call.
    JumpSlot,
    /// A word of the GOT that code calls through or takes the address from.
    GlobDat,
    /// A word of the program's data: a table of functions.
    Pointer,
    /// The result of a resolver.
    Irelative { resolver: u64 },
}

pub(crate) fn of(image: &Image) -> Vec<Import> {
    let symbols = image.dynamic().symbols_by_index(image);
    let [dynamic, plt] = image.dynamic().relocations(image);
    let of_a_static_program = static_relocations(image);
    let mut budget = symbols.map(|symbols| symbols.name_budget(dynamic.len() + plt.len()));
    let mut imports = Vec::new();
    for relocation in dynamic.iter().chain(plt).chain(of_a_static_program) {
        let slot = relocation.r_offset.get(LE);
        let bound_as = match relocation.r_type(LE, false) {
            elf::R_X86_64_JUMP_SLOT => Relocation::JumpSlot,
            elf::R_X86_64_GLOB_DAT => Relocation::GlobDat,
            elf::R_X86_64_64 => Relocation::Pointer,
            elf::R_X86_64_IRELATIVE => {
                let resolver = relocation.r_addend.get(LE).cast_unsigned();
                imports.push(Import {
                    name: String::new(),
                    slot,
                    bound_as: Relocation::Irelative { resolver },
                });
                continue;
            }
            _ => continue,
        };
        let (Some(symbols), Some(budget)) = (symbols, &mut budget) else {
            continue;
        };
        let Some(symbol) = symbols.get(relocation.r_sym(LE, false)) else {
            continue;
        };
        let kind = symbol.st_type();
        let may_be_code = match bound_as {
            Relocation::Pointer => kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC,
            _ => kind != elf::STT_OBJECT && kind != elf::STT_TLS,
        };
        if !may_be_code || is_defined(symbol) {
            continue;
        }
        let Ok(name) = symbols.name(symbol, budget) else {
            break;
        };
        if !name.is_empty() {
            imports.push(Import {
                name: text(name),
                slot,
                bound_as,
            });
        }
    }
    // Some linkers let the first table hold the second.
    imports.sort_by_key(|import| import.slot);
    imports.dedup();
    imports
}

pub(crate) fn of_own(image: &Image) -> Vec<(u64, u64)> {
    let Some(symbols) = image.dynamic().symbols_by_index(image) else {
        return Vec::new();
    };
    let [dynamic, plt] = image.dynamic().relocations(image);
    let bound = dynamic.iter().chain(plt).filter_map(|relocation| {
        let kind = relocation.r_type(LE, false);
        let symbol = symbols.get(relocation.r_sym(LE, false))?;
        (matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT)
            && is_defined(symbol)
            && symbol.st_type() == elf::STT_FUNC)
            .then(|| (relocation.r_offset.get(LE), symbol.st_value.get(LE)))
    });
    let mut bound: Vec<(u64, u64)> = bound.collect();
    bound.sort_unstable();
    bound
}

/// A static program relocates itself; only sections name these relocations.
fn static_relocations(image: &Image) -> &[object::elf::Rela64<LE>] {
    let elf = image.elf();
    if elf.header(elf::PT_DYNAMIC).is_some() {
        return &[];
    }
    elf.section_of_kind(elf::SHT_RELA)
        .filter(|section| section.flags.0 & elf::SHF_ALLOC.0 != 0)
        .and_then(|section| relocations_in(elf.section_bytes(section)?))
        .unwrap_or_default()
}
