use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde,
    CommonInformationEntry, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Pointer, Register, UnwindSection, X86_64,
};
use object::elf::PT_GNU_EH_FRAME;

use crate::Image;

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Cie<'a> = CommonInformationEntry<Reader<'a>>;
type Fde<'a> = FrameDescriptionEntry<Reader<'a>>;

/// More than any compiler writes for all functions in common, and before a place of interest.
const MOST_INITIAL: usize = 64;
const MOST_INSTRUCTIONS: usize = 4096;

/// An FDE: how to unwind from a range of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindEntry {
    pub start: u64,
    pub end: u64,
    /// False where it starts in the middle of a function: a part that was split off.
    pub entry_cfa_is_rsp_plus_8: bool,
    /// False where nothing called the code, as at `_start`.
    pub has_return_address: bool,
    /// A place that the kernel makes signal handlers return to.
    pub is_signal_frame: bool,
    offset: usize,
}

impl UnwindEntry {
    /// Whether its first instruction is reached by a call, with the return address on top of the stack.
    pub fn starts_at_call_boundary(&self) -> bool {
        self.entry_cfa_is_rsp_plus_8 && self.has_return_address && !self.is_signal_frame
    }
}

/// The rule for the canonical frame address (the caller's stack pointer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    Rsp(i64),
    Rbp(i64),
    /// By another register or by an expression, or unknown.
    Other,
}

/// From `address` on, the frame address is found as `cfa` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfaChange {
    pub address: u64,
    pub cfa: Cfa,
}

/// The FDEs of a file, by address.
pub(crate) struct Frames {
    entries: Vec<UnwindEntry>,
    section: Option<Section>,
}

/// The place of .eh_frame.
#[derive(Clone, Copy)]
struct Section {
    address: u64,
    offset: u64,
    size: u64,
}

impl Frames {
    pub fn parse(image: &Image) -> Frames {
        let section = locate(image);
        let mut entries = Vec::new();
        if let Some(data) =
            section.and_then(|section| image.elf().range(section.offset, section.size))
        {
            read(
                EhFrame::new(data, LittleEndian),
                &bases(image, section),
                &mut entries,
            );
        }
        entries.sort_by_key(|entry| entry.start);
        entries.dedup_by_key(|entry| entry.start);
        Frames { entries, section }
    }

    pub fn entries(&self) -> &[UnwindEntry] {
        &self.entries
    }

    pub fn starting_at(&self, address: u64) -> Option<&UnwindEntry> {
        let index = self
            .entries
            .binary_search_by_key(&address, |entry| entry.start)
            .ok()?;
        Some(&self.entries[index])
    }

    pub fn covering(&self, address: u64) -> Option<&UnwindEntry> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        self.entries[..after]
            .last()
            .filter(|entry| address < entry.end)
    }

    /// The first start of an entry after an address.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        self.entries.get(after).map(|entry| entry.start)
    }

    pub fn cfa_changes(&self, image: &Image, range: Range<u64>) -> Vec<CfaChange> {
        let Some(entry) = self.covering(range.start) else {
            return Vec::new();
        };
        let end = range.end.min(entry.end);
        let unknown = || {
            vec![CfaChange {
                address: range.start,
                cfa: Cfa::Other,
            }]
        };
        let Some(data) = self
            .section
            .and_then(|section| image.elf().range(section.offset, section.size))
        else {
            return unknown();
        };
        let frames = EhFrame::new(data, LittleEndian);
        let bases = bases(image, self.section);
        let Ok(fde) = frames.fde_from_offset(
            &bases,
            EhFrameOffset(entry.offset),
            EhFrame::cie_from_offset,
        ) else {
            return unknown();
        };
        changes(&frames, &bases, &fde, range.start..end)
    }
}

fn locate(image: &Image) -> Option<Section> {
    let elf = image.elf();
    if let Some(section) = elf
        .section(".eh_frame")
        .filter(|section| elf.section_bytes(section).is_some())
    {
        return Some(Section {
            address: section.address,
            offset: section.offset,
            size: section.size,
        });
    }
    // Without sections its header leads to it, and it ends with a zero length.
    let header = elf.header(PT_GNU_EH_FRAME)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let data = elf.range(header.offset, header.file_size)?;
    let Pointer::Direct(address) = EhFrameHdr::new(data, LittleEndian)
        .parse(&bases, 8)
        .ok()?
        .eh_frame_ptr()
    else {
        return None;
    };
    let (offset, size) = image.file_range_from(address)?;
    Some(Section {
        address,
        offset,
        size,
    })
}

fn bases(image: &Image, section: Option<Section>) -> BaseAddresses {
    let text = image.code().ranges().first().map_or(0, |range| range.start);
    BaseAddresses::default()
        .set_eh_frame(section.map_or(0, |section| section.address))
        .set_text(text)
}

/// Reads up to the first invalid entry, after which no start is certain.
fn read(frames: EhFrame<Reader<'_>>, bases: &BaseAddresses, entries: &mut Vec<UnwindEntry>) {
    let mut cies: HashMap<usize, (Cie<'_>, Walk)> = HashMap::new();
    let mut items = frames.entries(bases);
    while let Ok(Some(item)) = items.next() {
        let CieOrFde::Fde(partial) = item else {
            continue;
        };
        let mut at_cie = None;
        let fde = partial.parse(|frames, bases, offset| {
            let (cie, walk) = match cies.entry(offset.0) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let cie = frames.cie_from_offset(bases, offset)?;
                    let walk = Walk::of_cie(frames, bases, &cie);
                    new.insert((cie, walk))
                }
            };
            at_cie = Some(walk.clone());
            Ok(cie.clone())
        });
        let (Ok(fde), Some(mut walk)) = (fde, at_cie) else {
            continue;
        };
        let start = fde.initial_address();
        let Some(end) = start.checked_add(fde.len()).filter(|&end| end > start) else {
            continue;
        };
        walk.first_row(fde.instructions(&frames, bases), fde.cie());
        entries.push(UnwindEntry {
            start,
            end,
            entry_cfa_is_rsp_plus_8: walk.cfa() == Cfa::Rsp(8),
            has_return_address: walk.has_return_address,
            is_signal_frame: fde.is_signal_trampoline(),
            offset: fde.offset(),
        });
    }
}

fn changes(
    frames: &EhFrame<Reader<'_>>,
    bases: &BaseAddresses,
    fde: &Fde<'_>,
    range: Range<u64>,
) -> Vec<CfaChange> {
    let mut walk = Walk::of_cie(frames, bases, fde.cie());
    let mut changes: Vec<CfaChange> = Vec::new();
    let mut note = |address: u64, cfa: Cfa| {
        let address = address.max(range.start);
        match changes.last_mut() {
            Some(last) if last.address == address => last.cfa = cfa,
            Some(last) if last.cfa == cfa => {}
            _ => changes.push(CfaChange { address, cfa }),
        }
    };
    let mut address = fde.initial_address();
    let mut instructions = fde.instructions(frames, bases);
    for _ in 0..MOST_INSTRUCTIONS {
        let instruction = match instructions.next() {
            Ok(Some(instruction)) => instruction,
            Ok(None) => {
                note(address, walk.cfa());
                return changes;
            }
            Err(_) => break,
        };
        match advance(&instruction, address, fde.cie().code_alignment_factor()) {
            Some(next) => {
                note(address, walk.cfa());
                if next >= range.end {
                    return changes;
                }
                address = next;
            }
            None => walk.step(&instruction, fde.cie()),
        }
    }
    note(address, Cfa::Other);
    changes
}

/// The address to which an instruction moves that starts a new row.
fn advance(instruction: &CallFrameInstruction<usize>, address: u64, factor: u64) -> Option<u64> {
    match *instruction {
        CallFrameInstruction::SetLoc { address } => Some(address),
        CallFrameInstruction::AdvanceLoc { delta } => {
            Some(address.saturating_add(u64::from(delta).saturating_mul(factor)))
        }
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Register(Register, i64),
    Unknown,
}

/// The relevant rules at one place.
#[derive(Clone)]
struct Walk {
    cfa: Rule,
    has_return_address: bool,
    remembered: Vec<Rule>,
}

impl Walk {
    fn of_cie(frames: &EhFrame<Reader<'_>>, bases: &BaseAddresses, cie: &Cie<'_>) -> Walk {
        let mut walk = Walk {
            cfa: Rule::Unknown,
            has_return_address: true,
            remembered: Vec::new(),
        };
        walk.first_row(cie.instructions(frames, bases), cie);
        walk
    }

    /// Follows the instructions up to the first that starts another row.
    fn first_row(
        &mut self,
        mut instructions: CallFrameInstructionIter<'_, Reader<'_>>,
        cie: &Cie<'_>,
    ) {
        for _ in 0..MOST_INITIAL {
            match instructions.next() {
                Ok(Some(instruction)) if advance(&instruction, 0, 1).is_some() => return,
                Ok(Some(instruction)) => self.step(&instruction, cie),
                Ok(None) => return,
                Err(_) => break,
            }
        }
        self.cfa = Rule::Unknown;
    }

    fn step(&mut self, instruction: &CallFrameInstruction<usize>, cie: &Cie<'_>) {
        let scaled = |offset: i64| offset.checked_mul(cie.data_alignment_factor());
        let with_register = |register, offset: Option<i64>| match offset {
            Some(offset) => Rule::Register(register, offset),
            None => Rule::Unknown,
        };
        let with_offset = |rule, offset| match rule {
            Rule::Register(register, _) => with_register(register, offset),
            Rule::Unknown => Rule::Unknown,
        };
        match *instruction {
            CallFrameInstruction::DefCfa { register, offset } => {
                self.cfa = with_register(register, i64::try_from(offset).ok());
            }
            CallFrameInstruction::DefCfaSf {
                register,
                factored_offset,
            } => {
                self.cfa = with_register(register, scaled(factored_offset));
            }
            CallFrameInstruction::DefCfaRegister { register } => {
                if let Rule::Register(_, offset) = self.cfa {
                    self.cfa = Rule::Register(register, offset);
                }
            }
            CallFrameInstruction::DefCfaOffset { offset } => {
                self.cfa = with_offset(self.cfa, i64::try_from(offset).ok());
            }
            CallFrameInstruction::DefCfaOffsetSf { factored_offset } => {
                self.cfa = with_offset(self.cfa, scaled(factored_offset));
            }
            CallFrameInstruction::DefCfaExpression { .. } => self.cfa = Rule::Unknown,
            CallFrameInstruction::Undefined { register }
                if register == cie.return_address_register() =>
            {
                self.has_return_address = false;
            }
            CallFrameInstruction::RememberState => self.remembered.push(self.cfa),
            CallFrameInstruction::RestoreState => {
                self.cfa = self.remembered.pop().unwrap_or(Rule::Unknown)
            }
            _ => {}
        }
    }

    fn cfa(&self) -> Cfa {
        match self.cfa {
            Rule::Register(X86_64::RSP, offset) => Cfa::Rsp(offset),
            Rule::Register(X86_64::RBP, offset) => Cfa::Rbp(offset),
            _ => Cfa::Other,
        }
    }
}
