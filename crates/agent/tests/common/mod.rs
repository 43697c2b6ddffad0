//! The built image, and blocks beside it, laid out for addresses of an imaginary process.

#![allow(dead_code)]

use nopal_agent::{BlockBuilder, Immediates};
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use zydis::{AllOperands, Decoder, FullInstruction};

pub const IMAGE_AT: u64 = 0x7000_0000_0000;
pub const BLOCK_AT: u64 = IMAGE_AT + 0x10_0000;
pub const MIRROR: i64 = -0x1230_0000_0000;
pub const COUNTED_AT: u64 = 0x2000_2000_0000;

pub const IMMEDIATES: Immediates = Immediates {
    process: 0x2000_0000_0000,
    mirror: MIRROR,
    threads: 0x2000_1000_0000,
    thread_slot: 0x2d0,
    mark: 0,
    depth_limit: 5,
    ordered: false,
    reads_pointer: true,
};

/// Symbols of the image, with their addresses in it.
pub fn symbols() -> BTreeMap<String, u64> {
    let data = std::fs::read(concat!(env!("OUT_DIR"), "/agent.elf")).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let named = file
        .symbols()
        .filter(|symbol| !symbol.name().unwrap().is_empty());
    named
        .map(|symbol| {
            (
                symbol.name().unwrap().to_owned(),
                IMAGE_AT + symbol.address(),
            )
        })
        .collect()
}

pub fn builder() -> BlockBuilder {
    BlockBuilder::new(BLOCK_AT, IMAGE_AT, MIRROR, COUNTED_AT, ROOM)
}

pub const ROOM: usize = 1 << 16;

/// Bytes at addresses.
#[derive(Default)]
pub struct Memory {
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Memory {
    pub fn add(&mut self, at: u64, bytes: Vec<u8>) {
        self.pieces.push((at, bytes));
    }

    /// The bytes from `address` to the end of its piece.
    pub fn from(&self, address: u64) -> Option<&[u8]> {
        self.pieces
            .iter()
            .find_map(|(at, bytes)| bytes.get(usize::try_from(address.checked_sub(*at)?).ok()?..))
    }

    pub fn instruction(&self, address: u64) -> FullInstruction {
        let bytes = self
            .from(address)
            .unwrap_or_else(|| panic!("{address:#x} is nowhere"));
        let decoded = Decoder::new64().decode_first::<AllOperands>(bytes);
        decoded
            .ok()
            .flatten()
            .unwrap_or_else(|| panic!("no instruction at {address:#x}"))
    }
}

/// The target of a jump or call with a distance.
pub fn target(instruction: &FullInstruction, at: u64) -> Option<u64> {
    let relative = |operand: &&zydis::ffi::DecodedOperand| matches!(&operand.kind, zydis::ffi::DecodedOperandKind::Imm(immediate) if immediate.is_relative);
    let operand = instruction.operands().iter().find(relative)?;
    Some(instruction.calc_absolute_address(at, operand).unwrap())
}
