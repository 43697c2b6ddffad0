//! The `.eh_frame_hdr` and `.eh_frame` of generated code, as an unwinder reads them.

use crate::common::Memory;
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection,
};
use std::collections::BTreeMap;
use std::ops::Range;

const RETURN_ADDRESS: u16 = 16;

/// DW_OP_const8s, 8 bytes, DW_OP_plus
const MIRROR_EXPRESSION: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Unchanged,
    /// In memory, at this distance from the frame address.
    AtFrame(i64),
    /// The same, for the mirror.
    Mirrored(i64),
    /// In this register.
    In(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRow {
    /// Register and offset.
    pub cfa: (u16, i64),
    pub return_address: Rule,
    rules: BTreeMap<u16, Rule>,
}

impl FrameRow {
    pub fn rule(&self, register: u16) -> Rule {
        self.rules
            .get(&register)
            .copied()
            .unwrap_or(Rule::Unchanged)
    }
}

/// The table of the code in `range`.
pub struct Table {
    pub range: Range<u64>,
    header: u64,
    header_bytes: Vec<u8>,
}

type Section<'a> = EndianSlice<'a, LittleEndian>;

impl Table {
    pub fn new(memory: &Memory, range: Range<u64>, header: u64) -> Table {
        Table {
            range,
            header,
            header_bytes: frames_and_header(memory, header),
        }
    }

    fn read<T>(
        &self,
        answer: impl FnOnce(&EhFrameHdr<Section>, &EhFrame<Section>, &BaseAddresses) -> T,
    ) -> T {
        let before = usize::try_from(u64::from_le_bytes(
            self.header_bytes[..8].try_into().unwrap(),
        ))
        .unwrap();
        let bytes = &self.header_bytes[8..];
        let section_at = self.header - before as u64;
        let header = EhFrameHdr::new(&bytes[before..], LittleEndian);
        let mut bases = BaseAddresses::default().set_eh_frame_hdr(self.header);
        let parsed = header.parse(&bases, 8).expect("the header can be read");
        let gimli::Pointer::Direct(frames_at) = parsed.eh_frame_ptr() else {
            panic!("an indirect pointer")
        };
        bases = bases.set_eh_frame(frames_at);
        let frames = EhFrame::new(&bytes[(frames_at - section_at) as usize..], LittleEndian);
        answer(&header, &frames, &bases)
    }

    /// The row for an address, found by the header's table, as unwinders do.
    pub fn row(&self, address: u64) -> Option<FrameRow> {
        self.read(|header, frames, bases| {
            let parsed = header.parse(bases, 8).unwrap();
            let mut context = UnwindContext::new();
            let table = parsed.table().expect("there is a table");
            let row = table
                .unwind_info_for_address(
                    frames,
                    bases,
                    &mut context,
                    address,
                    EhFrame::cie_from_offset,
                )
                .ok()?
                .clone();
            let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
                panic!("a computed frame")
            };
            let rule = |rule: &RegisterRule<usize>| match rule {
                RegisterRule::Undefined | RegisterRule::SameValue => Rule::Unchanged,
                RegisterRule::Offset(offset) => Rule::AtFrame(*offset),
                RegisterRule::Register(register) => Rule::In(register.0),
                RegisterRule::Expression(expression) => {
                    let expression = expression.get(frames).unwrap();
                    let bytes = expression.0.slice();
                    assert_eq!(
                        (bytes.len(), bytes[0], bytes[9]),
                        (MIRROR_EXPRESSION, 0x0f, 0x22)
                    );
                    Rule::Mirrored(i64::from_le_bytes(bytes[1..9].try_into().unwrap()))
                }
                other => panic!("{other:?}"),
            };
            let rules: BTreeMap<u16, Rule> = row
                .registers()
                .map(|(register, found)| (register.0, rule(found)))
                .collect();
            let return_address = rules
                .get(&RETURN_ADDRESS)
                .copied()
                .unwrap_or(Rule::Unchanged);
            Some(FrameRow {
                cfa: (register.0, offset),
                return_address,
                rules,
            })
        })
    }

    /// The ranges of the entries, in order. The header's table has each of them. None restores the return address to
    /// the rule of the common entry: libgcc takes that for "saved nowhere".
    pub fn functions(&self) -> Vec<Range<u64>> {
        let ranges = self.read(|_, frames, bases| {
            let mut ranges = Vec::new();
            let mut entries = frames.entries(bases);
            while let Some(entry) = entries.next().unwrap() {
                if let gimli::CieOrFde::Fde(partial) = entry {
                    let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
                    let mut instructions = fde.instructions(frames, bases);
                    while let Some(instruction) = instructions.next().unwrap() {
                        let restores = matches!(instruction, CallFrameInstruction::Restore { register }
                            if register.0 == RETURN_ADDRESS);
                        assert!(!restores, "in the entry for {:#x}", fde.initial_address());
                    }
                    ranges.push(fde.initial_address()..fde.initial_address() + fde.len());
                }
            }
            ranges.sort_by_key(|range| range.start);
            ranges
        });
        for range in &ranges {
            assert!(self.range.start <= range.start && range.end <= self.range.end);
            assert!(self.row(range.start).is_some() && self.row(range.end - 1).is_some());
        }
        assert!(
            ranges.windows(2).all(|pair| pair[0].end <= pair[1].start),
            "entries overlap"
        );
        ranges
    }
}

/// The bytes from the lower of header and frames on, after the header's distance from their begin.
fn frames_and_header(memory: &Memory, header: u64) -> Vec<u8> {
    let bytes = memory.from(header).unwrap();
    let frames = i32::from_le_bytes(bytes[4..8].try_into().unwrap());
    let before = i64::from(frames + 4).min(0).unsigned_abs();
    let mut all = before.to_le_bytes().to_vec();
    all.extend(memory.from(header - before).unwrap());
    all
}
