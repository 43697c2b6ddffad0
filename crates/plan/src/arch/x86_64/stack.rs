//! Tracks the values in a function's registers and stack that are related to its return address, instruction by
//! instruction. The slot is the place of the return address, to which the stack pointer points at the function's entry.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::implicit::changed_implicitly;
use super::kind::Kind;
use crate::Reason;

const RSP: usize = 4;
const RBP: usize = 5;
/// Registers that a call does not preserve.
const LOST_IN_CALLS: u16 = 0b1111_1100_0111;

/// A base and a distance: the upper and the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value(u64);

const UNKNOWN: u32 = 0;
const SLOT: u32 = 1;
const RETURN_ADDRESS: u32 = 2;
const FRAME_POINTER: u32 = 3;
const CODE: u32 = 4;
const ENTRY_OF_TABLE: u32 = 5;
/// From this base on, there are two for each instruction that makes a stack address at an unknown distance from the
/// slot: one for any address, and one for an aligned one. The offset is the largest possible distance.
const BELOW: u32 = 6;

impl Value {
    pub const UNKNOWN: Value = Value::new(UNKNOWN, 0);
    pub const SLOT: Value = Value::new(SLOT, 0);
    /// One of several pointers, or of several distances to code.
    pub const ENTRY_OF_TABLE: Value = Value::new(ENTRY_OF_TABLE, 0);
    const RETURN_ADDRESS: Value = Value::new(RETURN_ADDRESS, 0);
    /// The caller's.
    const FRAME_POINTER: Value = Value::new(FRAME_POINTER, 0);

    const fn new(base: u32, offset: i32) -> Value {
        Value((base as u64) << 32 | offset as u32 as u64)
    }

    fn base(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn offset(self) -> i32 {
        self.0 as i32
    }

    /// An address of code, by its distance from the function's start.
    pub fn code(distance: i64) -> Value {
        i32::try_from(distance).map_or(Value::UNKNOWN, |distance| Value::new(CODE, distance))
    }

    pub fn slot(distance: i64) -> Value {
        Value::SLOT.plus(distance)
    }

    /// A stack address that only the instruction with this number determines, not above `offset`.
    fn below(number: usize, aligned: bool, offset: i32) -> Value {
        Value::new(BELOW + 2 * number as u32 + u32::from(aligned), offset)
    }

    pub fn as_code(self) -> Option<i64> {
        (self.base() == CODE).then_some(self.offset().into())
    }

    pub fn plus(self, distance: i64) -> Value {
        let offset = i32::try_from(distance)
            .ok()
            .and_then(|by| self.offset().checked_add(by));
        match (self.base(), offset) {
            (UNKNOWN | RETURN_ADDRESS | FRAME_POINTER | ENTRY_OF_TABLE, _) if distance != 0 => {
                Value::UNKNOWN
            }
            (_, Some(offset)) => Value::new(self.base(), offset),
            (_, None) => Value::UNKNOWN,
        }
    }

    pub fn is_stack(self) -> bool {
        self.base() == SLOT || self.base() >= BELOW
    }

    fn is_aligned(self) -> bool {
        self.base() >= BELOW && (self.base() - BELOW) % 2 == 1
    }

    /// Whether this many bytes from there on may overlap the slot.
    fn meets_slot(self, size: usize) -> bool {
        self.base() == SLOT
            && self.offset() < 8
            && self.offset().saturating_add(size.max(1) as i32) > 0
    }
}

/// The number of stack places that are tracked at once. Further ones are dropped.
const PLACES: usize = 4;

const REGISTERS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The registers; then places of 8 bytes, each with its value.
    values: [Value; REGISTERS + 2 * PLACES],
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        // Without an early exit, this compiles to a few wide instructions.
        let mut differs = 0;
        for number in 0..self.values.len() {
            differs |= self.values[number].0 ^ other.values[number].0;
        }
        differs == 0
    }
}

impl State {
    pub fn at_entry() -> State {
        let mut values = [Value::UNKNOWN; REGISTERS + 2 * PLACES];
        values[RSP] = Value::SLOT;
        values[RBP] = Value::FRAME_POINTER;
        State { values }
    }

    /// Somewhere inside a function: nothing is known.
    pub fn within(number: usize) -> State {
        let mut state = State::at_entry();
        state.values[RBP] = Value::UNKNOWN;
        state.values[RSP] = Value::below(number, false, 0);
        state
    }

    /// The canonical frame address, the end of the slot, is a register and an offset.
    pub fn set_frame(&mut self, register: Register, offset: i64) {
        self.set(register, Value::slot(8 - offset));
    }

    pub fn stack_pointer(&self) -> Value {
        self.values[RSP]
    }

    pub fn set_stack_pointer(&mut self, value: Value) {
        self.values[RSP] = value;
    }

    pub fn register(&self, register: Register) -> Value {
        number(register).map_or(Value::UNKNOWN, |number| self.values[number])
    }

    /// The value to which the stack pointer points.
    pub fn top(&self) -> Value {
        self.load(self.values[RSP])
    }

    pub fn push(&mut self, value: Value) {
        self.values[RSP] = self.values[RSP].plus(-8);
        self.store(self.values[RSP], 8, value);
    }

    pub fn drop_top(&mut self) {
        let top = self.values[RSP];
        self.store(top, 8, Value::UNKNOWN);
        self.values[RSP] = top.plus(8);
    }

    /// Merges the state of another path to the instruction with this number. Returns whether anything changed.
    pub fn join(&mut self, other: &State, number: usize) -> bool {
        if self == other {
            return false;
        }
        let before = *self;
        for (mine, theirs) in self.values[..REGISTERS].iter_mut().zip(&other.values) {
            if mine != theirs {
                *mine = Value::UNKNOWN;
            }
        }
        let (mine, theirs) = (before.values[RSP], other.values[RSP]);
        if mine != theirs && mine.is_stack() && theirs.is_stack() {
            self.values[RSP] = Value::below(number, false, mine.offset().max(theirs.offset()));
        }
        self.keep(|place, value| other.load(place) == value);
        *self != before
    }

    fn keep(&mut self, wanted: impl Fn(Value, Value) -> bool) {
        for pair in self.values[REGISTERS..].as_chunks_mut().0 {
            let [place, value] = *pair;
            if place != Value::UNKNOWN && !wanted(place, value) {
                *pair = [Value::UNKNOWN; 2];
            }
        }
    }

    fn load(&self, place: Value) -> Value {
        let mut pairs = self.values[REGISTERS..].as_chunks().0.iter();
        match pairs.find(|[known, _]| *known == place) {
            Some([_, value]) if place != Value::UNKNOWN => *value,
            _ => Value::UNKNOWN,
        }
    }

    fn store(&mut self, place: Value, size: usize, value: Value) {
        let end = place.offset().saturating_add(size.max(1) as i32);
        self.keep(|known, _| {
            known.base() != place.base()
                || known.offset() >= end
                || known.offset().saturating_add(8) <= place.offset()
        });
        if value != Value::UNKNOWN && place.is_stack() {
            let mut pairs = self.values[REGISTERS..].as_chunks_mut().0.iter_mut();
            if let Some(free) = pairs.find(|[known, _]| *known == Value::UNKNOWN) {
                *free = [place, value];
            }
        }
    }

    /// A new place below; it differs from that of an earlier pass through the instruction.
    fn new_below(&mut self, above: Value, number: usize, aligned: bool) -> Value {
        let value = Value::below(number, aligned, above.offset());
        for register in &mut self.values[..REGISTERS] {
            if register.base() == value.base() {
                *register = Value::UNKNOWN;
            }
        }
        self.keep(|place, held| place.base() != value.base() && held.base() != value.base());
        value
    }

    /// Checks the state before control goes to another function, or to an unknown place.
    pub fn check_escapes(&self) -> Result<(), Reason> {
        let others = |(number, _): &(usize, &Value)| *number != RSP && *number != RBP;
        let mut registers = self.values[..REGISTERS].iter().enumerate().filter(others);
        if registers.any(|(_, value)| self.leads_to_slot(*value)) {
            return Err(Reason::ReadsReturnAddress);
        }
        Ok(())
    }

    /// The address of the slot, or of a frame, from which it can be found.
    fn leads_to_slot(&self, value: Value) -> bool {
        let frame = Value::slot(-8);
        value.meets_slot(1)
            || value == frame
                && self.values[RBP] == frame
                && self.load(frame) == Value::FRAME_POINTER
    }

    pub fn forget_in_call(&mut self) {
        self.forget(LOST_IN_CALLS);
    }

    fn forget(&mut self, registers: u16) {
        let mut left = registers;
        while left != 0 {
            self.values[left.trailing_zeros() as usize] = Value::UNKNOWN;
            left &= left - 1;
        }
    }

    /// The place of a memory operand, if it is on the stack and known.
    fn place(&self, instruction: &Instruction) -> Value {
        let base = instruction.memory_base();
        if base == Register::None || !base.is_gpr64() {
            return Value::UNKNOWN;
        }
        let base = self.register(base);
        match base.is_stack() && instruction.memory_index() == Register::None {
            true => base.plus(instruction.memory_displacement64().cast_signed()),
            false => Value::UNKNOWN,
        }
    }

    /// A jump or a call through memory.
    pub fn step_operand(&self, it: &Instruction) -> Result<(), Reason> {
        match self.place(it) {
            Value::UNKNOWN => Ok(()),
            place => self.check_access(it, place),
        }
    }

    /// As [`State::step`], for the many instructions that do not access the stack: false for others, with nothing
    /// changed.
    #[inline]
    pub fn step_over(&mut self, it: &Instruction, kind: Kind) -> bool {
        let mut stepped = *self;
        let is_over = self.is_over(it, kind);
        debug_assert!(!is_over || stepped.step(it, 0, 0).is_ok() && stepped == *self);
        is_over
    }

    #[inline]
    fn is_over(&mut self, it: &Instruction, kind: Kind) -> bool {
        let base = wide(it.memory_base());
        if kind == Kind::Other || base.is_some_and(|base| self.values[base].is_stack()) {
            return false;
        }
        let value = match kind {
            Kind::Test => return true,
            Kind::Move => match (wide(it.op1_register()), it.memory_index_scale()) {
                (Some(from), _) => self.values[from],
                (None, 8) => return false,
                (None, _) => Value::UNKNOWN,
            },
            _ => Value::UNKNOWN,
        };
        let is_register = it.op0_kind() == OpKind::Register;
        match number(it.op0_register()) {
            Some(RSP) => return false,
            Some(to) if is_register => self.values[to] = value,
            // The address of the slot may be handed on.
            _ if value != Value::UNKNOWN => return false,
            _ => {}
        }
        true
    }

    /// An instruction that neither jumps, calls nor returns. `at` is its number; code is known by its distance from
    /// `start`.
    pub fn step(&mut self, it: &Instruction, at: usize, start: u64) -> Result<(), Reason> {
        let mnemonic = it.mnemonic();
        let place = self.place(it);
        if place != Value::UNKNOWN {
            self.check_access(it, place)?;
        }
        let before = self.values[RSP];
        let wide = it.op0_kind() == OpKind::Register && it.op0_register().is_gpr64();
        match mnemonic {
            Mnemonic::Mov if it.op1_kind() == OpKind::Register && it.op1_register().is_gpr64() => {
                let value = self.register(it.op1_register());
                if wide {
                    self.set(it.op0_register(), value);
                } else if place != Value::UNKNOWN {
                    self.store(place, 8, value);
                } else if self.leads_to_slot(value) {
                    return Err(Reason::ReadsReturnAddress);
                }
            }
            Mnemonic::Movsxd if wide && it.memory_index_scale() == 4 => {
                self.set(it.op0_register(), Value::ENTRY_OF_TABLE);
            }
            Mnemonic::Mov if wide && it.op1_kind() == OpKind::Memory => {
                let value = match it.memory_index_scale() {
                    8 => Value::ENTRY_OF_TABLE,
                    _ => self.load(place),
                };
                if value == Value::RETURN_ADDRESS {
                    return Err(Reason::ReadsReturnAddress);
                }
                self.set(it.op0_register(), value);
            }
            Mnemonic::Lea if wide => {
                let value = match it.is_ip_rel_memory_operand() {
                    true => {
                        Value::code(it.ip_rel_memory_address().wrapping_sub(start).cast_signed())
                    }
                    false => place,
                };
                self.set(it.op0_register(), value);
            }
            Mnemonic::Push => {
                let value = match it.op0_kind() {
                    OpKind::Register => self.register(it.op0_register()),
                    OpKind::Memory if place.meets_slot(8) => Value::RETURN_ADDRESS,
                    OpKind::Memory => self.load(place),
                    _ => Value::UNKNOWN,
                };
                match it.stack_pointer_increment() {
                    -8 => self.push(value),
                    bytes => self.values[RSP] = before.plus(bytes.into()),
                }
            }
            Mnemonic::Pop => {
                if before.meets_slot(8) {
                    return Err(Reason::PopsReturnAddress);
                }
                let value = self.top();
                if value == Value::RETURN_ADDRESS {
                    return Err(Reason::ReadsReturnAddress);
                }
                self.store(before, 8, Value::UNKNOWN);
                self.values[RSP] = before.plus(it.stack_pointer_increment().into());
                match it.op0_kind() {
                    OpKind::Register if wide => self.set(it.op0_register(), value),
                    OpKind::Register => self.set(it.op0_register(), Value::UNKNOWN),
                    _ => self.store(place, 8, Value::UNKNOWN),
                }
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::And if wide => self.calculate(it, at),
            Mnemonic::Xchg if wide && it.op1_kind() == OpKind::Register => {
                let values = [it.op1_register(), it.op0_register()].map(|of| self.register(of));
                self.set(it.op0_register(), values[0]);
                self.set(it.op1_register(), values[1]);
            }
            Mnemonic::Leave => {
                self.values[RSP] = self.values[RBP];
                if self.values[RSP].meets_slot(8) {
                    return Err(Reason::PopsReturnAddress);
                }
                self.values[RBP] = self.top();
                self.drop_top();
            }
            Mnemonic::Enter => {
                self.push(self.values[RBP]);
                self.values[RBP] = self.values[RSP];
                self.values[RSP] = before.plus(it.stack_pointer_increment().into());
            }
            Mnemonic::Pushfq => self.push(Value::UNKNOWN),
            Mnemonic::Popfq if before.meets_slot(8) => return Err(Reason::PopsReturnAddress),
            Mnemonic::Popfq => self.drop_top(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Nop => {}
            _ => {
                if it.op0_kind() == OpKind::Register {
                    self.set(it.op0_register(), Value::UNKNOWN);
                } else if place != Value::UNKNOWN {
                    self.store(place, it.memory_size().size(), Value::UNKNOWN);
                }
                if matches!(mnemonic, Mnemonic::Xchg | Mnemonic::Xadd | Mnemonic::Mulx) {
                    self.set(it.op1_register(), Value::UNKNOWN);
                }
                self.forget(changed_implicitly(mnemonic));
            }
        }
        let now = self.values[RSP];
        if now == before {
            Ok(())
        } else if !now.is_stack() {
            Err(Reason::SwitchesStack)
        } else if now.base() == SLOT && now.offset() > 0 {
            Err(Reason::PopsReturnAddress)
        } else {
            Ok(())
        }
    }

    /// A memory operand on the stack.
    fn check_access(&self, it: &Instruction, place: Value) -> Result<(), Reason> {
        let mnemonic = it.mnemonic();
        // A barrier, or a stack probe: it uses no value.
        let is_barrier = matches!(mnemonic, Mnemonic::Or | Mnemonic::Add)
            && it.op_count() == 2
            && is_immediate(it)
            && it.immediate(1) == 0;
        let only_address = matches!(
            mnemonic,
            Mnemonic::Lea
                | Mnemonic::Nop
                | Mnemonic::Prefetchnta
                | Mnemonic::Prefetcht0
                | Mnemonic::Prefetcht1
                | Mnemonic::Prefetcht2
                | Mnemonic::Prefetchw
        );
        if only_address || is_barrier {
            return Ok(());
        }
        if place.meets_slot(it.memory_size().size()) {
            // A frame that begins with a copy of the return address for debuggers, as in an aligned `main`.
            let is_copied = mnemonic == Mnemonic::Push && self.values[RSP].is_aligned();
            return if is_copied {
                Ok(())
            } else {
                Err(Reason::ReadsReturnAddress)
            };
        }
        let size = it.memory_size().size() as i32;
        let perhaps_slot = place.is_aligned() && place.offset().saturating_add(size) > 0;
        if perhaps_slot && it.memory_base() == Register::RSP && it.op0_kind() == OpKind::Register {
            return Err(Reason::StackNotFollowed);
        }
        Ok(())
    }

    fn calculate(&mut self, it: &Instruction, at: usize) {
        let value = self.register(it.op0_register());
        let new = match it.mnemonic() {
            Mnemonic::Add
                if [value, self.register(it.op1_register())].contains(&Value::ENTRY_OF_TABLE) =>
            {
                Value::ENTRY_OF_TABLE
            }
            _ if !value.is_stack() => Value::UNKNOWN,
            Mnemonic::Add if is_immediate(it) => value.plus(it.immediate(1).cast_signed()),
            // The target is not in the function: another stack, or another part of this one.
            Mnemonic::Add if it.op0_register() == Register::RSP && value.base() == SLOT => {
                Value::UNKNOWN
            }
            Mnemonic::Sub if is_immediate(it) => {
                value.plus(it.immediate(1).cast_signed().saturating_neg())
            }
            mnemonic => self.new_below(value, at, mnemonic == Mnemonic::And),
        };
        self.set(it.op0_register(), new);
    }

    /// Any register; a part of one makes all of it unknown.
    fn set(&mut self, register: Register, value: Value) {
        if let Some(number) = number(register) {
            self.values[number] = value;
        }
    }
}

fn is_immediate(it: &Instruction) -> bool {
    matches!(
        it.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate32to64
    )
}

#[inline]
fn number(register: Register) -> Option<usize> {
    let half = (register as usize).wrapping_sub(Register::EAX as usize);
    if half < REGISTERS {
        return Some(half);
    }
    wide(register).or_else(|| small(register))
}

/// The number of a register of 8 bytes.
#[inline]
fn wide(register: Register) -> Option<usize> {
    let number = (register as usize).wrapping_sub(Register::RAX as usize);
    (number < REGISTERS).then_some(number)
}

/// The number of the register that one of one or two bytes is a part of.
fn small(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}
