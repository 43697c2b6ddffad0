//! The unwinding rules of functions in the file.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, EhFrame, EhFrameHdr, EhFrameOffset,
    EndianSlice, FrameDescriptionEntry, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection,
};

use crate::arch::{RETURN_ADDRESS, STACK_POINTER};
use crate::code::Memory;
use crate::{FrameChange, Reason};

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Cie<'a> = CommonInformationEntry<Reader<'a>>;

/// The most bytes of a valid common entry, which is interpreted for each function.
const LONGEST_COMMON_ENTRY: usize = 1024;

/// The most bytes of an entry in which functions may begin: it is interpreted from its start for each.
const LONGEST_SHARED_ENTRY: usize = 4096;

/// From an address on: the register and the offset that give the canonical frame address, if it has this form.
pub(crate) type FrameRow = (u64, Option<(u16, i64)>);

pub(crate) struct Frames<'a> {
    section: EhFrame<Reader<'a>>,
    bases: BaseAddresses,
    /// By start.
    entries: Vec<Entry>,
    cies: HashMap<usize, Cie<'a>>,
}

struct Entry {
    start: u64,
    end: u64,
    offset: EhFrameOffset,
    exceptions: Option<u64>,
}

/// The unwinding rules at one address, limited to those that a function's first instructions can change.
#[derive(Clone, PartialEq)]
struct Rules {
    cfa: (u16, i32),
    /// Register and offset, sorted.
    saved: Vec<(u16, i32)>,
}

impl<'a> Frames<'a> {
    /// Reads up to the first invalid entry.
    pub fn of(memory: &Memory<'a>, header: Option<u64>) -> Frames<'a> {
        let bases = BaseAddresses::default();
        let empty = EhFrame::new(&[], LittleEndian);
        let Some((address, bytes)) = header.and_then(|header| locate(memory, header)) else {
            return Frames {
                section: empty,
                bases,
                entries: Vec::new(),
                cies: HashMap::new(),
            };
        };
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = bases.set_eh_frame(address);
        let mut entries = Vec::new();
        let mut cies = HashMap::new();
        let mut items = section.entries(&bases);
        while let Ok(Some(item)) = items.next() {
            let CieOrFde::Fde(partial) = item else {
                continue;
            };
            let fde = partial.parse(|section, bases, offset| match cies.get(&offset.0) {
                Some(cie) => Ok(Cie::clone(cie)),
                None => {
                    let cie = section.cie_from_offset(bases, offset)?;
                    cies.insert(offset.0, cie.clone());
                    Ok(cie)
                }
            });
            let Ok(fde) = fde else { continue };
            if fde.cie().entry_len() > LONGEST_COMMON_ENTRY {
                continue;
            }
            let exceptions = match fde.lsda() {
                Some(Pointer::Direct(address)) => Some(address),
                _ => None,
            };
            entries.push(Entry {
                start: fde.initial_address(),
                end: fde.end_address(),
                offset: EhFrameOffset(fde.offset()),
                exceptions,
            });
        }
        entries.sort_by_key(|entry| entry.start);
        entries.dedup_by_key(|entry| entry.start);
        Frames {
            section,
            bases,
            entries,
            cies,
        }
    }

    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.entries.iter().map(|entry| entry.start..entry.end)
    }

    /// Whether an entry covers the address.
    pub fn cover(&self, address: u64) -> bool {
        self.entry_at(address).is_some()
    }

    /// The functions with exception tables and where the tables are.
    pub fn exceptions(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry.start, entry.exceptions?)))
    }

    /// The canonical frame address from each address on, for the entry that begins at `start`: a register and an
    /// offset. Ends where the entry cannot be read.
    pub fn frame_addresses(
        &self,
        context: &mut UnwindContext<usize>,
        start: u64,
        found: &mut Vec<FrameRow>,
    ) {
        let Ok(index) = self
            .entries
            .binary_search_by_key(&start, |entry| entry.start)
        else {
            return;
        };
        let entry = &self.entries[index];
        let Some(fde) = self.fde(entry) else { return };
        let Ok(mut rows) = fde.rows(&self.section, &self.bases, context) else {
            return;
        };
        while let Ok(Some(row)) = rows.next_row() {
            let address = match *row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => Some((register.0, offset)),
                CfaRule::Expression(_) => None,
            };
            found.push((row.start_address(), address));
        }
        found.push((entry.end, None));
    }

    fn fde(&self, entry: &Entry) -> Option<FrameDescriptionEntry<Reader<'a>>> {
        let cie = |_: &EhFrame<Reader<'a>>, _: &BaseAddresses, offset: EhFrameOffset| {
            self.cies
                .get(&offset.0)
                .cloned()
                .ok_or(gimli::Error::NoUnwindInfoForAddress)
        };
        self.section
            .fde_from_offset(&self.bases, entry.offset, cie)
            .ok()
    }

    /// The changes from the function's start up to and including `length` bytes after it. Empty without an entry.
    pub fn rules(
        &self,
        context: &mut UnwindContext<usize>,
        start: u64,
        length: u64,
    ) -> Result<Vec<(u64, FrameChange)>, Reason> {
        self.rules_from(context, start, length, Some(&Rules::at_entry()))
    }

    /// The changes from an instruction on, beginning with all rules valid there.
    pub fn rules_within(
        &self,
        context: &mut UnwindContext<usize>,
        start: u64,
        length: u64,
    ) -> Result<Vec<(u64, FrameChange)>, Reason> {
        self.rules_from(context, start, length, None)
    }

    fn rules_from(
        &self,
        context: &mut UnwindContext<usize>,
        start: u64,
        length: u64,
        at_start: Option<&Rules>,
    ) -> Result<Vec<(u64, FrameChange)>, Reason> {
        let Some(entry) = self.entry_at(start) else {
            return Ok(Vec::new());
        };
        self.changes(context, entry, start, length, at_start)
            .unwrap_or(Err(Reason::UnwindRules))
    }

    fn entry_at(&self, address: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        self.entries[..after]
            .last()
            .filter(|entry| address < entry.end)
    }

    /// None if the entry cannot be read. `at_start`: the rules required at the start.
    fn changes(
        &self,
        context: &mut UnwindContext<usize>,
        entry: &Entry,
        start: u64,
        length: u64,
        at_start: Option<&Rules>,
    ) -> Option<Result<Vec<(u64, FrameChange)>, Reason>> {
        let fde = self.fde(entry)?;
        if at_start.is_some() && entry.start != start && fde.entry_len() > LONGEST_SHARED_ENTRY {
            return None;
        }
        let mut rows = fde.rows(&self.section, &self.bases, context).ok()?;
        let mut changes = Vec::new();
        let mut current: Option<Rules> = None;
        while let Some(row) = rows.next_row().ok()? {
            if row.end_address() <= start {
                continue;
            }
            let offset = row.start_address().max(start) - start;
            if offset > length {
                break;
            }
            let rules = Rules::of(row.cfa(), row.registers())?;
            match &current {
                Some(current) => rules.since(current, offset, &mut changes),
                None if at_start.is_some_and(|wanted| *wanted != rules) => {
                    return Some(Err(Reason::NotAnEntry));
                }
                None => {
                    let (register, offset) = rules.cfa;
                    changes.push((0, FrameChange::Cfa { register, offset }));
                    rules.since(&Rules::at_entry_with(rules.cfa), 0, &mut changes);
                }
            }
            current = Some(rules);
        }
        Some(Ok(changes))
    }
}

impl Rules {
    fn at_entry() -> Rules {
        Rules::at_entry_with((STACK_POINTER, 8))
    }

    fn at_entry_with(cfa: (u16, i32)) -> Rules {
        Rules {
            cfa,
            saved: vec![(RETURN_ADDRESS, -8)],
        }
    }

    /// None if a rule is not a register and an offset.
    fn of<'r>(
        cfa: &CfaRule<usize>,
        registers: impl Iterator<Item = &'r (Register, RegisterRule<usize>)>,
    ) -> Option<Rules> {
        let CfaRule::RegisterAndOffset { register, offset } = *cfa else {
            return None;
        };
        let mut saved = Vec::new();
        for &(register, ref rule) in registers {
            match *rule {
                RegisterRule::Offset(offset) => {
                    saved.push((register.0, i32::try_from(offset).ok()?))
                }
                RegisterRule::SameValue => {}
                RegisterRule::Undefined if register.0 != RETURN_ADDRESS => {}
                _ => return None,
            }
        }
        saved.sort_unstable();
        Some(Rules {
            cfa: (register.0, i32::try_from(offset).ok()?),
            saved,
        })
    }

    fn since(&self, before: &Rules, at: u64, changes: &mut Vec<(u64, FrameChange)>) {
        if self.cfa != before.cfa {
            changes.push((
                at,
                FrameChange::Cfa {
                    register: self.cfa.0,
                    offset: self.cfa.1,
                },
            ));
        }
        for &(register, offset) in self
            .saved
            .iter()
            .filter(|saved| !before.saved.contains(saved))
        {
            changes.push((at, FrameChange::Saved { register, offset }));
        }
        for &(register, _) in before
            .saved
            .iter()
            .filter(|was| !self.saved.iter().any(|is| is.0 == was.0))
        {
            changes.push((at, FrameChange::Restored { register }));
        }
    }
}

fn locate<'a>(memory: &Memory<'a>, header: u64) -> Option<(u64, &'a [u8])> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(header);
    let parsed = EhFrameHdr::new(memory.from(header)?, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
        return None;
    };
    Some((address, memory.from(address)?))
}
