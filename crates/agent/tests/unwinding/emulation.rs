//! The part of a processor that concerns frames: the stack pointer, and the places of the caller's registers and of the
//! return address.

use std::collections::BTreeMap;
use zydis::ffi::{DecodedOperand, DecodedOperandKind, MemoryInfo};
use zydis::{FullInstruction, Mnemonic, OperandAction, Register};

/// Registers by their DWARF numbers.
pub const RBX: u16 = 3;
pub const RBP: u16 = 6;
pub const RSP: u16 = 7;
pub const CALLEE_SAVED: [u16; 6] = [RBX, RBP, 12, 13, 14, 15];

const NUMBERS: [(Register, u16); 16] = [
    (Register::RAX, 0),
    (Register::RDX, 1),
    (Register::RCX, 2),
    (Register::RBX, 3),
    (Register::RSI, 4),
    (Register::RDI, 5),
    (Register::RBP, 6),
    (Register::RSP, 7),
    (Register::R8, 8),
    (Register::R9, 9),
    (Register::R10, 10),
    (Register::R11, 11),
    (Register::R12, 12),
    (Register::R13, 13),
    (Register::R14, 14),
    (Register::R15, 15),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value of this register at entry.
    Original(u16),
    /// The stack pointer at entry, plus this.
    Stack(i64),
    ReturnAddress,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    registers: [Value; 16],
    /// Words of the stack, by their distance from the stack pointer at entry.
    words: BTreeMap<i64, Value>,
    /// The frame address, in the same way.
    pub frame: i64,
    /// The mirror of the slot holds the return address.
    pub mirrored: bool,
    /// Its value, if known.
    pub carry: Option<bool>,
}

fn number(register: Register) -> Option<u16> {
    let widest = register.largest_enclosing(zydis::MachineMode::LONG_64);
    NUMBERS
        .iter()
        .find(|(name, _)| *name == widest)
        .map(|(_, number)| *number)
}

impl State {
    /// At the start of a function whose frame address is `frame` above the stack pointer.
    pub fn entered(frame: i64, mirrored: bool) -> State {
        let mut registers = std::array::from_fn(|number| Value::Original(number as u16));
        registers[usize::from(RSP)] = Value::Stack(0);
        let words = if mirrored {
            BTreeMap::new()
        } else {
            [(frame - 8, Value::ReturnAddress)].into()
        };
        State {
            registers,
            words,
            frame,
            mirrored,
            carry: None,
        }
    }

    /// The facts that hold in both states; `None` if their frames differ, and each must be followed by itself. Unless
    /// `by_rbp`, RBP is taken to walk through memory, and tells no frame.
    pub fn joined(&self, other: &State, by_rbp: bool) -> Option<State> {
        let frame = |state: &State| {
            let rbp = by_rbp.then(|| state.register(RBP));
            let pointers = (state.register(RSP), rbp);
            (pointers, state.frame, state.mirrored, state.carry)
        };
        if frame(self) != frame(other) {
            return None;
        }
        let mut joined = self.clone();
        for number in 0..16 {
            if self.register(number) != other.register(number) {
                joined.set(number, Value::Unknown);
            }
        }
        joined.words.retain(|at, value| other.word(*at) == *value);
        Some(joined)
    }

    pub fn register(&self, number: u16) -> Value {
        self.registers[usize::from(number)]
    }

    pub fn word(&self, at: i64) -> Value {
        self.words.get(&at).copied().unwrap_or(Value::Unknown)
    }

    pub fn set_word(&mut self, at: i64, value: Value) {
        self.words.insert(at, value);
    }

    fn set(&mut self, number: u16, value: Value) {
        self.registers[usize::from(number)] = value;
    }

    fn stack_pointer(&self) -> Option<i64> {
        let Value::Stack(at) = self.register(RSP) else {
            return None;
        };
        Some(at)
    }

    /// A call has come back: nothing below the stack pointer is kept, nor are the registers that calls may change.
    pub fn returned(&mut self) {
        if let Some(stack) = self.stack_pointer() {
            self.words.retain(|at, _| *at >= stack);
        }
        for number in 0..16 {
            if number != RSP && !CALLEE_SAVED.contains(&number) {
                self.set(number, Value::Unknown);
            }
        }
        self.carry = None;
    }

    fn place(&self, memory: &MemoryInfo) -> Option<i64> {
        let Value::Stack(base) = self.register(number(memory.base)?) else {
            return None;
        };
        let plain = memory.index == Register::NONE && memory.segment != Register::FS;
        plain.then_some(base + memory.disp.displacement)
    }

    fn value(&self, operand: &DecodedOperand) -> Value {
        match &operand.kind {
            DecodedOperandKind::Reg(register) if operand.size == 64 => {
                number(*register).map_or(Value::Unknown, |number| self.register(number))
            }
            DecodedOperandKind::Mem(memory) if operand.size == 64 => self
                .place(memory)
                .map_or(Value::Unknown, |at| self.word(at)),
            _ => Value::Unknown,
        }
    }

    fn assign(&mut self, operand: &DecodedOperand, value: Value) {
        match &operand.kind {
            DecodedOperandKind::Reg(register) => {
                if let Some(number) = number(*register) {
                    self.set(number, value);
                }
            }
            DecodedOperandKind::Mem(memory) => {
                if let Some(at) = self.place(memory) {
                    self.set_word(at & !7, value);
                }
            }
            _ => {}
        }
    }

    /// Executes an instruction that goes on to the next one.
    pub fn run(&mut self, instruction: &FullInstruction) {
        let operands = instruction.operands();
        match instruction.mnemonic {
            Mnemonic::PUSH => {
                let value = self.value(&operands[0]);
                if let Some(stack) = self.stack_pointer() {
                    self.set(RSP, Value::Stack(stack - 8));
                    self.set_word(stack - 8, value);
                }
            }
            // The flags.
            Mnemonic::PUSHFQ | Mnemonic::POPFQ => {
                let stack = self.stack_pointer().expect("a known stack pointer");
                let pushes = instruction.mnemonic == Mnemonic::PUSHFQ;
                if pushes {
                    self.set_word(stack - 8, Value::Unknown);
                }
                self.set(
                    RSP,
                    Value::Stack(if pushes { stack - 8 } else { stack + 8 }),
                );
            }
            Mnemonic::POP => {
                let stack = self
                    .stack_pointer()
                    .expect("pops with a known stack pointer");
                let value = self.word(stack);
                self.assign(&operands[0], value);
                self.set(RSP, Value::Stack(stack + 8));
            }
            Mnemonic::MOV => self.assign(&operands[0], self.value(&operands[1])),
            Mnemonic::LEA => {
                let DecodedOperandKind::Mem(memory) = &operands[1].kind else {
                    unreachable!()
                };
                self.assign(
                    &operands[0],
                    self.place(memory).map_or(Value::Unknown, Value::Stack),
                );
            }
            Mnemonic::ADD | Mnemonic::SUB => {
                let value = match (self.value(&operands[0]), &operands[1].kind) {
                    (Value::Stack(at), DecodedOperandKind::Imm(by))
                        if instruction.mnemonic == Mnemonic::ADD =>
                    {
                        Value::Stack(at + by.value as i64)
                    }
                    (Value::Stack(at), DecodedOperandKind::Imm(by)) => {
                        Value::Stack(at - by.value as i64)
                    }
                    _ => Value::Unknown,
                };
                self.assign(&operands[0], value);
            }
            _ => {
                let writes = OperandAction::WRITE | OperandAction::CONDWRITE;
                for operand in operands
                    .iter()
                    .filter(|operand| operand.action.intersects(writes))
                {
                    self.assign(operand, Value::Unknown);
                }
            }
        }
    }
}
