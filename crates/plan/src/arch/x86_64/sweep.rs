//! Reads all code once and records the targets of jumps and calls.

use anyhow::{Result, ensure};
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use nopal_beside::both;

use super::held::Held;
use super::input::{Input, Start};
use super::manners::Manners;
use super::track::Tracker;
use crate::code::{Marks, Range};

/// With less code, starting a second thread does not pay.
const WORTH_A_THREAD: usize = 256 << 10;

/// The signature that the kernel requires before the abort handler of a restartable sequence.
const RSEQ_SIGNATURE: u64 = 0x5305_3053;

pub(crate) struct Flow {
    /// At a function's start: it is called, or its address is taken. Elsewhere: a jump may lead there.
    pub reached: Marks,
    /// Jumps to starts of functions: target and source. Sorted.
    pub jumps: Vec<(u64, u64)>,
    /// Places amid functions or behind them whose addresses instructions take: target and source. Sorted.
    pub taken: Vec<(u64, u64)>,
    /// Addresses that instructions take, and the ends of jump tables.
    pub tables: Vec<u64>,
    /// The beginnings of jump tables, sorted.
    pub jump_tables: Vec<u64>,
    /// Code that instructions read as data: the first byte, and the end. Sorted.
    pub read: Vec<(u64, u64)>,
    /// Addresses of `ret imm16`, sorted.
    pub pops: Vec<u64>,
    /// Abort handlers of restartable sequences.
    pub aborts: Vec<u64>,
    /// The ways in which functions are called and left.
    pub manners: Manners,
}

pub(crate) fn sweep<'a>(input: &'a Input<'a>) -> Result<Flow> {
    let parts: Vec<(&Range<'_>, u64, u64)> = input
        .code
        .ranges()
        .iter()
        .map(|range| (range, range.address, range.end()))
        .collect();
    let Some(split) = (input.code.len() >= WORTH_A_THREAD)
        .then(|| middle(input))
        .flatten()
    else {
        return follow(input, &parts);
    };
    let below: Vec<_> = parts
        .iter()
        .map(|&(range, from, to)| (range, from, to.min(split)))
        .collect();
    let above: Vec<_> = parts
        .iter()
        .map(|&(range, from, to)| (range, from.max(split), to))
        .collect();
    let (below, above) = both(|| follow(input, &below), || follow(input, &above));
    let (mut flow, above) = (below?, above?);
    flow.reached.join(&above.reached);
    flow.jumps.extend(above.jumps);
    flow.jumps.sort_unstable();
    flow.taken.extend(above.taken);
    flow.taken.sort_unstable();
    flow.tables.extend(above.tables);
    flow.jump_tables.extend(above.jump_tables);
    flow.jump_tables.sort_unstable();
    flow.read.extend(above.read);
    flow.read.sort_unstable();
    flow.pops.extend(above.pops);
    flow.aborts.extend(above.aborts);
    flow.manners.extend(above.manners);
    Ok(flow)
}

/// A function start near the middle of the code, which no function spans.
fn middle(input: &Input<'_>) -> Option<u64> {
    let half = input.starts.len() / 2;
    let (before, after) = input.starts.split_at(half);
    let mut end = before.iter().map(|start| start.end).max()?;
    for start in after {
        if start.address >= end {
            return Some(start.address);
        }
        end = end.max(start.end);
    }
    None
}

fn follow<'a>(input: &'a Input<'a>, parts: &[(&Range<'_>, u64, u64)]) -> Result<Flow> {
    let mut follower = Follower {
        input,
        flow: Flow {
            reached: Marks::new(input.code),
            jumps: Vec::new(),
            taken: Vec::new(),
            tables: Vec::new(),
            jump_tables: Vec::new(),
            read: Vec::new(),
            pops: Vec::new(),
            aborts: Vec::new(),
            manners: Manners::default(),
        },
        group: Group::default(),
        held: Held::default(),
        budget: input.memory.len(),
        tracker: Tracker::new(input),
    };
    for &(range, from, to) in parts.iter().filter(|part| part.1 < part.2) {
        follower.range(
            &range.bytes[(from - range.address) as usize..(to - range.address) as usize],
            from,
        )?;
    }
    follower.flow.jumps.sort_unstable();
    follower.flow.taken.sort_unstable();
    follower.flow.jump_tables.sort_unstable();
    follower.flow.read.sort_unstable();
    follower.flow.manners = follower.tracker.manners;
    Ok(follower.flow)
}

struct Follower<'a> {
    input: &'a Input<'a>,
    flow: Flow,
    group: Group,
    held: Held,
    /// The number of further entries of jump tables that the file can hold.
    budget: usize,
    tracker: Tracker<'a>,
}

/// Overlapping functions, up to the next that does not overlap.
#[derive(Default)]
struct Group {
    start: u64,
    /// The end of its functions, by their sizes.
    end: u64,
    is_part: bool,
    /// Not a jump through a word, as to another file.
    indirect_jump: Option<u64>,
    /// Addresses that it takes: some may be jump tables.
    tables: Vec<u64>,
}

impl Follower<'_> {
    fn range(&mut self, bytes: &[u8], from: u64) -> Result<()> {
        let starts = self.input.starts;
        let to = from + bytes.len() as u64;
        let mut next = starts.partition_point(|start| start.address < from);
        let address_of = |index: usize| starts.get(index).map_or(to, |start| start.address.min(to));
        let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        self.group = Group {
            start: from,
            ..Group::default()
        };
        let mut next_address = address_of(next);
        while decoder.can_decode() {
            if decoder.ip() >= next_address {
                let start = starts[next];
                go_to(&mut decoder, from, start.address)?;
                if start.address >= self.group.end {
                    self.finish_group(start.address)?;
                    self.group.start = start.address;
                    self.group.is_part = start.is_part;
                }
                self.group.end = self.group.end.max(start.end);
                next += 1;
                next_address = address_of(next);
            }
            let at = decoder.ip();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                go_to(&mut decoder, from, at + 1)?;
            } else {
                self.tracker.add(&instruction);
                self.note(&instruction);
            }
        }
        self.finish_group(to)
    }

    fn note(&mut self, instruction: &Instruction) {
        if !self.held.is_empty() {
            self.held.step(instruction, self.input, &mut self.flow.read);
        }
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::XbeginXabortXend => {
                if instruction.op0_kind() == OpKind::NearBranch64 {
                    self.tracker.add_jump(instruction.near_branch_target());
                    self.jump(instruction.near_branch_target(), instruction.ip());
                }
                return;
            }
            FlowControl::Call => {
                if instruction.op0_kind() == OpKind::NearBranch64 {
                    self.reach(instruction.near_branch_target());
                }
                return;
            }
            FlowControl::IndirectBranch if instruction.memory_base() != Register::RIP => {
                self.group.indirect_jump = Some(instruction.ip());
            }
            FlowControl::Return => {
                if instruction.code() == Opcode::Retnq_imm16 {
                    self.flow.pops.push(instruction.ip());
                }
                return;
            }
            _ => {}
        }
        if instruction.memory_base() == Register::RIP {
            let address = instruction.ip_rel_memory_address();
            if address.wrapping_sub(instruction.next_ip()) == RSEQ_SIGNATURE {
                self.flow.aborts.push(instruction.next_ip());
            } else if instruction.mnemonic() == Mnemonic::Lea {
                self.take(address, instruction.ip());
                self.group.tables.push(address);
                self.hold(address, instruction);
            } else if instruction.flow_control() == FlowControl::Next
                && instruction.mnemonic() != Mnemonic::Nop
                && self.input.code.number(address).is_some()
            {
                let bytes = instruction.memory_size().size() as u64;
                self.flow
                    .read
                    .push((address, address.saturating_add(bytes.max(1))));
            }
        }
        if self.input.absolute && instruction.len() > size_of::<u32>() {
            self.numbers(instruction);
        }
    }

    /// Numbers in an instruction that may be addresses.
    fn numbers(&mut self, instruction: &Instruction) {
        if let Some(last) = instruction.op_count().checked_sub(1)
            && matches!(
                instruction.op_kind(last),
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
            )
        {
            self.take(instruction.immediate(last), instruction.ip());
            self.hold(instruction.immediate(last), instruction);
        }
        if instruction.mnemonic() == Mnemonic::Lea && instruction.memory_base() == Register::None {
            self.take(instruction.memory_displacement64(), instruction.ip());
        }
    }

    fn hold(&mut self, address: u64, instruction: &Instruction) {
        let number = self.input.code.number(address);
        if number.is_some_and(|number| self.input.is_start.get(number)) {
            self.held.hold(instruction.op0_register(), address);
        }
    }

    fn reach(&mut self, target: u64) {
        if let Some(number) = self.input.code.number(target) {
            self.flow.reached.set(number);
        }
    }

    fn take(&mut self, target: u64, from: u64) {
        if let Some(number) = self.input.code.number(target) {
            self.flow.reached.set(number);
            if !self.input.is_start.get(number) {
                self.flow.taken.push((target, from));
            }
        }
    }

    fn jump(&mut self, target: u64, from: u64) {
        match self.input.code.number(target) {
            Some(number) if self.input.is_start.get(number) => self.flow.jumps.push((target, from)),
            Some(number) => self.flow.reached.set(number),
            None => {}
        }
    }

    /// Follows the group's jump tables: 4-byte distances from the table's start, up to the first that leads out of
    /// the group or to the next table.
    fn finish_group(&mut self, next: u64) -> Result<()> {
        self.tracker.finish_group(self.group.start, next);
        self.held = Held::default();
        let mut tables = std::mem::take(&mut self.group.tables);
        tables.sort_unstable();
        tables.dedup();
        if let Some(from) = self.group.indirect_jump {
            for (index, &table) in tables.iter().enumerate() {
                let bytes = self.input.memory.from(table).unwrap_or_default();
                let before = self.budget;
                let most = tables
                    .get(index + 1)
                    .map_or(u64::MAX, |next| (next - table) / 4);
                for (entry, _) in bytes.as_chunks::<4>().0.iter().zip(0..most) {
                    let target = table.wrapping_add_signed(i32::from_le_bytes(*entry).into());
                    if !self.is_in_group(target, next) {
                        break;
                    }
                    ensure!(
                        self.budget > 0,
                        "the file claims more jump tables than fit into it"
                    );
                    self.budget -= 1;
                    self.jump(target, from);
                }
                if self.budget != before {
                    self.flow.jump_tables.push(table);
                    let bytes = 4 * (before - self.budget) as u64;
                    self.flow.tables.push(table.saturating_add(bytes));
                }
            }
        }
        self.flow.tables.extend_from_slice(&tables);
        tables.clear();
        self.group = Group {
            tables,
            ..Group::default()
        };
        Ok(())
    }

    /// `next` is where the next group begins. The parts of functions that lie elsewhere belong to every group.
    fn is_in_group(&self, target: u64, next: u64) -> bool {
        if self.group.start <= target && target < next {
            return true;
        }
        let after = self
            .input
            .starts
            .partition_point(|start| start.address <= target);
        let holds = |start: &Start| target < start.end && (start.is_part || self.group.is_part);
        self.input.starts[..after].last().is_some_and(holds)
    }
}

fn go_to(decoder: &mut Decoder<'_>, from: u64, address: u64) -> Result<()> {
    if decoder.ip() != address {
        decoder.set_position((address - from) as usize)?;
        decoder.set_ip(address);
    }
    Ok(())
}
