//! Instructions of a process that nopal borrows to make system calls.

use std::collections::HashMap;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use nopal_beside::Mutex;

use crate::arch::{LONGEST_OF_GADGET, RESTORERS, SYSTEM_CALL, SYSTEM_CALL_AND_RETURN};
use crate::initial::Initial;
use crate::{Mapping, Memory, Module, auxiliary, modules};

/// Existing instructions of a process at which its threads make system calls for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gadget {
    /// A `syscall`, followed by a `ret` if there is a restorer.
    pub call: u64,
    /// The code to which signal handlers return: `rt_sigreturn`.
    pub restorer: Option<u64>,
}

impl Gadget {
    /// Whether the instructions are still there.
    pub fn is_in(&self, memory: &Memory) -> bool {
        let holds = |address: u64, bytes: &[u8]| {
            let mut found = vec![0; bytes.len()];
            memory.read(address, &mut found).is_ok() && found == bytes
        };
        match self.restorer {
            None => holds(self.call, &SYSTEM_CALL),
            Some(restorer) => {
                holds(self.call, &SYSTEM_CALL_AND_RETURN)
                    && RESTORERS.iter().any(|bytes| holds(restorer, bytes))
            }
        }
    }
}

/// Instructions in the text of libc, the loader, or any other file that the process has mapped.
pub fn find_system_call_gadget(pid: i32) -> Result<Gadget> {
    find_system_call_gadget_in(pid, modules(pid)?)
}

/// The same, in one of the files that the process is known to have mapped. Of several copies of libc, the one that stays
/// is taken.
pub fn find_system_call_gadget_in(pid: i32, mut modules: Vec<Module>) -> Result<Gadget> {
    let memory = Memory::open(pid)?;
    let loader = auxiliary(pid)?.loader_base;
    let rank = |module: &Module| {
        let name = module
            .path
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        (
            !name.starts_with("libc.so") && !name.starts_with("libc-"),
            Some(module.base) != loader,
        )
    };
    modules.sort_by_key(rank);
    let is_librarys = |module: &&Module| !rank(module).0;
    if modules.iter().filter(is_librarys).count() > 1 {
        let initial = Initial::of(pid, &memory);
        modules.sort_by_cached_key(|module| (rank(module), !initial.has(module)));
    }
    let texts = modules.iter().flat_map(|module| &module.mappings);
    // Text that the process itself cannot read is read like any other.
    let texts = texts.filter(|mapping| mapping.executable);
    let mut known = KNOWN.lock();
    let mut remembered = texts
        .clone()
        .filter_map(|text| known.get(&text_of(text))?.at(text.start));
    if let Some(gadget) = remembered.find(|gadget| gadget.is_in(&memory)) {
        return Ok(gadget);
    }
    let mut found = Found::default();
    for text in texts {
        let begun = found.any.is_some();
        found.look_in(&memory, text.start, text.end);
        if let Found {
            returning: Some(call),
            restorer: Some(restorer),
            ..
        } = found
        {
            if !begun && known.len() < MOST_KNOWN {
                let within = Within {
                    call: call - text.start,
                    restorer: restorer - text.start,
                };
                known.insert(text_of(text), within);
            }
            return Ok(Gadget {
                call,
                restorer: Some(restorer),
            });
        }
    }
    let call = found.any;
    let call = call.with_context(|| {
        format!("process {pid} has no system call instruction in a mapped file")
    })?;
    Ok(Gadget {
        call,
        restorer: None,
    })
}

/// Gadgets found in earlier searches, by text, since a search reads hundreds of KiB. They are checked again, since a
/// process may have changed its text.
static KNOWN: LazyLock<Mutex<HashMap<Text, Within>>> = LazyLock::new(Mutex::default);
const MOST_KNOWN: usize = 256;

/// Device, inode, and which part.
type Text = (u64, u64, u64, u64);

fn text_of(mapping: &Mapping) -> Text {
    let bytes = mapping.end - mapping.start;
    (mapping.device, mapping.inode, mapping.offset, bytes)
}

/// Distances from the start of the text.
#[derive(Clone, Copy)]
struct Within {
    call: u64,
    restorer: u64,
}

impl Within {
    fn at(self, start: u64) -> Option<Gadget> {
        Some(Gadget {
            call: start.checked_add(self.call)?,
            restorer: Some(start.checked_add(self.restorer)?),
        })
    }
}

/// The first of each kind.
#[derive(Default)]
struct Found {
    any: Option<u64>,
    returning: Option<u64>,
    restorer: Option<u64>,
}

impl Found {
    fn look_in(&mut self, memory: &Memory, start: u64, end: u64) {
        /// The length of the searched instructions, less one byte.
        const OVERLAP: usize = LONGEST_OF_GADGET - 1;
        let mut piece = [0; 16 << 10];
        let mut at = start;
        while at < end && (self.returning.is_none() || self.restorer.is_none()) {
            let length = piece.len().min((end - at) as usize);
            let piece = &mut piece[..length];
            if memory.read(at, piece).is_err() {
                return;
            }
            let calls = piece.windows(SYSTEM_CALL.len()).enumerate();
            for (offset, _) in calls.filter(|(_, bytes)| **bytes == SYSTEM_CALL) {
                let address = at + offset as u64;
                self.any.get_or_insert(address);
                if piece[offset..].starts_with(&SYSTEM_CALL_AND_RETURN) {
                    self.returning.get_or_insert(address);
                }
                let before = &piece[..offset + SYSTEM_CALL.len()];
                let mut restorers = RESTORERS.iter();
                if let Some(bytes) = restorers.find(|bytes| before.ends_with(bytes)) {
                    let length = (bytes.len() - SYSTEM_CALL.len()) as u64;
                    self.restorer.get_or_insert(address - length);
                }
            }
            if length <= OVERLAP {
                return;
            }
            at += (length - OVERLAP) as u64;
        }
    }
}
