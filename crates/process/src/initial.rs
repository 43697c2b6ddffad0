//! The libraries that stay in a process: those of its initial namespace. Copies of them in namespaces that `dlmopen` makes
//! may be unloaded at any moment.

use std::collections::HashSet;

use crate::{Auxiliary, Memory, Module, auxiliary};

/// Sizes and offsets of `Elf64_Phdr`, `Elf64_Dyn`, `struct r_debug` and `struct link_map`.
const HEADER: u64 = 56;
const HEADER_ADDRESS: u64 = 16;
const ENTRY: u64 = 16;
const MODULES: u64 = 8;
const DYNAMIC: u64 = 16;
const NEXT: u64 = 24;

const HEADERS: u32 = 6;
const DEBUG: u64 = 21;

/// More than these are not looked at: the process may have damaged its lists.
const MOST: usize = 4096;

/// The addresses of the dynamic sections of what the program's loader has in its first list. Empty if that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Initial(HashSet<u64>);

impl Initial {
    pub fn of(pid: i32, memory: &Memory) -> Initial {
        let auxiliary = auxiliary(pid).unwrap_or_default();
        Initial(listed(&auxiliary, memory).unwrap_or_default())
    }

    pub fn has(&self, module: &Module) -> bool {
        let mut mappings = module.mappings.iter();
        mappings.any(|mapping| {
            let mut dynamic = self.0.iter();
            dynamic.any(|at| (mapping.start..mapping.end).contains(at))
        })
    }
}

fn listed(auxiliary: &Auxiliary, memory: &Memory) -> Option<HashSet<u64>> {
    let word = |address: u64| memory.read_word(address).ok();
    let dynamic = dynamic_section(auxiliary, memory)?;
    let mut entries = (0..MOST as u64).map(|index| dynamic.wrapping_add(index * ENTRY));
    let debug = entries.find_map(|entry| match word(entry)? {
        0 => Some(None),
        DEBUG => Some(word(entry + 8)),
        _ => None,
    })??;
    let mut found = HashSet::new();
    let mut module = word(debug.wrapping_add(MODULES))?;
    while module != 0 && found.len() < MOST {
        if !found.insert(word(module.wrapping_add(DYNAMIC))?) {
            break;
        }
        module = word(module.wrapping_add(NEXT))?;
    }
    Some(found)
}

/// Of the program.
fn dynamic_section(auxiliary: &Auxiliary, memory: &Memory) -> Option<u64> {
    let headers = auxiliary.program_headers?;
    let count = auxiliary.program_header_count?.min(MOST as u64);
    let header = |kind: u32| {
        let mut places = (0..count).map(|index| headers.wrapping_add(index * HEADER));
        places.find(|place| {
            memory
                .read_word(*place)
                .is_ok_and(|word| word as u32 == kind)
        })
    };
    let address = |place: u64| memory.read_word(place.wrapping_add(HEADER_ADDRESS)).ok();
    let bias = headers.wrapping_sub(address(header(HEADERS)?)?);
    Some(address(header(libc::PT_DYNAMIC)?)?.wrapping_add(bias))
}
