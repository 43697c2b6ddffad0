//! Follows the stack pointer through a function on every path, and finds uses of the return address.
//!
//! Only instructions are trusted. If only a computed jump or the unwinder may lead to a block, the file's unwinding
//! rules serve as a guess of its frame; a wrong guess shows where the block returns.

use std::collections::BTreeMap;
use std::ops::Range;

use gimli::UnwindContext;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use super::chains::takes_over_registers;
use super::copies::{brings_back_stacks, copies_stacks};
use super::input::{Input, Start};
use super::kind::{KINDS, Kind};
use super::manners::Manners;
use super::relocate::{FRAME_POINTER, STACK_POINTER};
use super::stack::{State, Value};
use crate::Reason;
use crate::frames::FrameRow;

/// At most this many bytes of overlapping functions are followed.
const LONGEST: u64 = 1 << 20;

/// The number of visits of each instruction, on average, after which the remaining functions count as not followed.
const PATIENCE: usize = 32;

/// Instructions outside of a function into which it is followed.
const MOST_ELSEWHERE: usize = 1 << 12;

/// Instructions of a group of functions, by address, and the state of the function being followed.
pub(crate) struct Tracker<'a> {
    input: &'a Input<'a>,
    pub manners: Manners,
    context: UnwindContext<usize>,
    /// The rule for the function's frame, from each address on.
    rows: Option<Vec<FrameRow>>,
    instructions: Vec<Instruction>,
    begin: u64,
    /// The targets of its jumps.
    targets: Vec<u64>,
    /// The number plus 1 of the instruction that begins at each byte of the group; 0 if none does.
    numbers: Vec<u32>,
    marks: Vec<Mark>,
    /// The number of instructions of the group. They are followed by those of others into which the function leads.
    own: usize,
    /// Indexed by their beginnings.
    elsewhere: BTreeMap<u64, (u64, Range<usize>)>,
    states: Vec<State>,
    /// The beginnings of paths still to follow: joins of paths. And paths after calls that may not return.
    ways: Vec<usize>,
    behind_calls: Vec<(usize, State)>,
    function: u64,
    end: u64,
    /// Both are counted from 1, and those of all groups.
    group: u32,
    round: u32,
    kinds: &'static [Kind],
    /// Calls of functions, with the numbers of the instructions behind them.
    calls: Vec<(usize, u64)>,
    /// The merged state at computed jumps, preferably of those with a non-empty stack.
    computed: Option<State>,
    /// Whether one of them must lead to otherwise unreached code, and whether there is such code.
    seeks: bool,
    finds: bool,
    /// There is no unreached code before this instruction.
    unseen: usize,
    patience: usize,
    /// The number of further instructions that may be read outside.
    budget: usize,
}

/// One of the paths through a function.
struct Way {
    state: State,
    begin: usize,
    index: usize,
    /// A call may not have returned.
    after_call: bool,
    /// Padding may be jumped to, behind a call that does not return.
    only_padding: bool,
    /// After a comparison with the stack pointer: the other operand.
    compared: (usize, Value),
}

impl Way {
    /// Begins at a join of paths.
    fn begins(&mut self, at: usize, only_padding: bool) {
        (self.begin, self.index) = (at, at);
        (self.after_call, self.only_padding) = (false, only_padding);
        self.compared = (0, Value::UNKNOWN);
    }
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// The round in which it was last passed.
    round: u32,
    /// The group in which paths join here; then the number of the state in this round, and whether it must be followed.
    meets: u32,
    state: u32,
    waits: bool,
}

impl<'a> Tracker<'a> {
    pub fn new(input: &'a Input<'a>) -> Tracker<'a> {
        Tracker {
            input,
            manners: Manners::default(),
            context: UnwindContext::new(),
            instructions: Vec::new(),
            begin: 0,
            targets: Vec::new(),
            numbers: Vec::new(),
            marks: Vec::new(),
            own: 0,
            elsewhere: BTreeMap::new(),
            states: Vec::new(),
            ways: Vec::new(),
            behind_calls: Vec::new(),
            function: 0,
            end: 0,
            group: 0,
            round: 0,
            kinds: &KINDS,
            rows: None,
            calls: Vec::new(),
            computed: None,
            seeks: false,
            finds: false,
            unseen: 0,
            patience: 0,
            budget: input.memory.len(),
        }
    }

    /// The next instruction of the group.
    #[inline]
    pub fn add(&mut self, instruction: &Instruction) {
        if self.instructions.is_empty() {
            self.begin = instruction.ip();
        }
        if instruction.ip() - self.begin < LONGEST {
            self.instructions.push(*instruction);
        }
    }

    /// Adds the target of the last instruction.
    pub fn add_jump(&mut self, target: u64) {
        self.targets.push(target);
    }

    /// Judges the functions of the group, which begin from `from` up to `to`.
    pub fn finish_group(&mut self, from: u64, to: u64) {
        let starts = self.input.starts;
        let first = starts.partition_point(|start| start.address < from);
        let functions = starts[first..]
            .iter()
            .take_while(|start| start.address < to);
        let Some(end) = self.instructions.last().map(Instruction::next_ip) else {
            return;
        };
        let begin = self.begin;
        self.own = self.instructions.len();
        self.numbers.clear();
        self.numbers.resize((end - begin) as usize, 0);
        for (it, number) in self.instructions.iter().zip(1..) {
            self.numbers[(it.ip() - begin) as usize] = number;
        }
        self.group += 1;
        if self.marks.len() < self.own {
            self.marks.resize(self.own, Mark::default());
        }
        for target in self.targets.drain(..) {
            if let Some(&number) = self.numbers.get(target.wrapping_sub(begin) as usize)
                && number != 0
            {
                self.marks[number as usize - 1].meets = self.group;
            }
        }
        self.patience = PATIENCE * (self.own + MOST_ELSEWHERE);
        // Functions of assembly are known by symbols alone, which may have been stripped.
        let known = functions.clone().map(|start| end_of(start, to));
        let behind = known.max().unwrap_or(from);
        let unknown = self.instructions.partition_point(|it| it.ip() < behind);
        self.manners.copies_stacks |= copies_stacks(self.instructions[unknown..].iter());
        for start in functions {
            let is_function = |number| self.input.is_start.get(number);
            if !self
                .input
                .code
                .number(start.address)
                .is_some_and(is_function)
            {
                continue;
            }
            if let Err(reason) = self.function(start.address, end_of(start, to)) {
                self.manners.entries_only.push((start.address, reason));
            }
        }
        self.instructions.clear();
    }

    fn function(&mut self, start: u64, end: u64) -> Result<(), Reason> {
        (self.function, self.end) = (start, end);
        self.round += 1;
        self.instructions.truncate(self.own);
        self.elsewhere.clear();
        self.states.clear();
        self.ways.clear();
        self.behind_calls.clear();
        self.rows = None;
        self.calls.clear();
        self.computed = None;
        (self.seeks, self.finds) = (false, false);
        let first = self.index(start).ok_or(Reason::StackNotFollowed)?;
        self.unseen = first;
        self.arrive(first, &State::at_entry());
        let result = self.all_ways();
        self.look_at_flags(first);
        if let Some(leaver) = &self.input.leaver {
            let memory = self.input.memory;
            let is_leaver = |it: &Instruction| leaver.is_called_by(it, memory);
            self.manners.copies_stacks |= brings_back_stacks(self.own_code(), is_leaver);
        }
        if result == Err(Reason::SwitchesStack) {
            self.manners.copies_stacks |= copies_stacks(self.own_code());
        }
        result
    }

    /// The function's instructions, from its start to its end.
    fn own_code(&self) -> impl Iterator<Item = &Instruction> {
        let first = self.index(self.function).unwrap_or(self.own);
        let code = self.instructions[first..self.own].iter();
        code.take_while(|it| it.ip() < self.end)
    }

    fn all_ways(&mut self) -> Result<(), Reason> {
        loop {
            while let Some(index) = self.ways.pop() {
                self.marks[index].waits = false;
                self.way(index)?;
            }
            if let Some((index, state)) = self.behind_calls.pop() {
                // A call that leads to where others have another stack does not return.
                if self
                    .known(index)
                    .is_none_or(|known| known.stack_pointer() == state.stack_pointer())
                {
                    self.arrive(index, &state);
                }
            } else if let Some((index, state)) = self.next_unseen() {
                self.finds = true;
                self.arrive(index, &state);
            } else if self.seeks && !self.finds {
                return Err(Reason::StackNotFollowed);
            } else {
                return Ok(());
            }
        }
    }

    /// The state of the round at a join.
    fn known(&self, index: usize) -> Option<&State> {
        let mark = self.marks[index];
        (mark.meets == self.group && mark.round == self.round)
            .then(|| &self.states[mark.state as usize])
    }

    /// Merges a path into a join. Returns whether the state changed and is not queued yet.
    fn meet(&mut self, index: usize, state: &State) -> bool {
        let mark = &mut self.marks[index];
        if mark.round == self.round && mark.meets == self.group {
            return self.states[mark.state as usize].join(state, index) && !mark.waits;
        }
        mark.state = self.states.len() as u32;
        self.states.push(*state);
        (mark.round, mark.meets, mark.waits) = (self.round, self.group, false);
        true
    }

    /// Queues the join, if the state changed.
    fn arrive(&mut self, index: usize, state: &State) {
        if self.meet(index, state) {
            self.marks[index].waits = true;
            self.ways.push(index);
        }
    }

    /// Continues at the join at once, if the state changed.
    fn go_on(&mut self, way: &mut Way) -> bool {
        let joins = self.known(way.index).is_some();
        let is_new = self.meet(way.index, &way.state);
        if is_new && joins {
            way.state = self.states[self.marks[way.index].state as usize];
        }
        way.begins(way.index, self.is_elsewhere(way.index));
        is_new
    }

    /// Follows one path until it ends, or reaches a join.
    fn way(&mut self, begin: usize) -> Result<(), Reason> {
        let mut way = Way {
            state: self.states[self.marks[begin].state as usize],
            begin,
            index: begin,
            after_call: false,
            only_padding: self.is_elsewhere(begin),
            compared: (0, Value::UNKNOWN),
        };
        loop {
            if self.straight_on(&mut way)? {
                if way.after_call {
                    self.behind_calls.push((way.index, way.state));
                    return Ok(());
                }
                if !self.go_on(&mut way) {
                    return Ok(());
                }
                continue;
            }
            let (index, state) = (way.index, &mut way.state);
            let it = self.instructions[index];
            match it.flow_control() {
                FlowControl::Next => {}
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    if it.op0_kind() == OpKind::NearBranch64 {
                        self.go_to(it.near_branch_target(), state)?;
                    }
                    let (compared_before, compared) = way.compared;
                    if compared_before == index
                        && it.mnemonic() == Mnemonic::Jne
                        && compared.is_stack()
                    {
                        state.set_stack_pointer(compared);
                    }
                    (way.after_call, way.only_padding) = (false, false);
                }
                FlowControl::UnconditionalBranch => {
                    if it.op0_kind() != OpKind::NearBranch64 {
                        return Err(Reason::StackNotFollowed);
                    }
                    let Some(target) = self.find(it.near_branch_target(), state)? else {
                        return Ok(());
                    };
                    way.index = target;
                    if !self.go_on(&mut way) {
                        return Ok(());
                    }
                    continue;
                }
                FlowControl::IndirectBranch => {
                    state.step_operand(&it)?;
                    if let Some(target) = state.register(it.op0_register()).as_code() {
                        return self.go_to(self.function.wrapping_add_signed(target), state);
                    }
                    let is_left = state.stack_pointer() == Value::SLOT;
                    if is_left && self.input.looks_at_caller.is_slot_of(&it) {
                        return Err(Reason::LooksAtCaller);
                    }
                    if is_left && let Some(target) = self.input.own_function(&it) {
                        return self.go_to(target, state);
                    }
                    if is_left {
                        self.manners.left.push(self.function);
                    }
                    if is_left && takes_over_registers(self.own_code()) {
                        return Err(Reason::SharesFrame);
                    }
                    let is_switch = it.memory_index_scale() == 8
                        || state.register(it.op0_register()) == Value::ENTRY_OF_TABLE;
                    return self.go_anywhere(*state, is_switch);
                }
                FlowControl::Return => return self.go_back(&it, *state),
                FlowControl::Call if it.op0_kind() == OpKind::NearBranch64 => {
                    let target = it.near_branch_target();
                    if self.is_within(target) {
                        state.push(Value::code(self.distance(it.next_ip())));
                        return self.go_to(target, state);
                    }
                    self.calls.push((index + 1, target));
                    state.check_escapes()?;
                    state.forget_in_call();
                    if self.is_elsewhere(index) {
                        self.put_off(index + 1, it.next_ip(), *state);
                        return Ok(());
                    }
                    way.after_call = true;
                }
                // Not a system call, which changes three registers.
                FlowControl::Call if it.code() == Code::Syscall => {
                    state.step(&it, index, self.function)?;
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    state.step_operand(&it)?;
                    state.check_escapes()?;
                    state.forget_in_call();
                    way.after_call = true;
                }
                FlowControl::Interrupt if it.code() == Code::Int_imm8 => {}
                FlowControl::Interrupt | FlowControl::Exception => return Ok(()),
            }
            if it.next_ip() == self.end && index < self.own {
                return if way.after_call {
                    Ok(())
                } else {
                    self.go_to(self.end, &way.state)
                };
            }
            if !self.is_at(index + 1, it.next_ip()) {
                let ends = way.after_call || way.only_padding;
                return if ends {
                    Ok(())
                } else {
                    self.go_to(it.next_ip(), &way.state)
                };
            }
            way.index += 1;
        }
    }

    /// Follows a way up to an instruction where control may go elsewhere, which has not been stepped over; or up to one
    /// that has, if the next one is not the function's, or not there. Or up to a join of ways: then true.
    #[inline]
    fn straight_on(&mut self, way: &mut Way) -> Result<bool, Reason> {
        let begin = way.index;
        let end = (begin.saturating_add(self.patience)).min(self.instructions.len());
        let instructions = &self.instructions[..end];
        let marks = &mut self.marks[..end];
        let (group, round) = (self.group, self.round);
        let mut meets = false;
        let mut index = begin;
        while index < end {
            let mark = &mut marks[index];
            if mark.meets == group && index != way.begin {
                meets = true;
                break;
            }
            mark.round = round;
            let it = &instructions[index];
            let kind = self.kinds[it.code() as usize];
            if kind == Kind::Flow {
                break;
            }
            if !way.state.step_over(it, kind) {
                way.state.step(it, index, self.function)?;
            }
            if way.after_call || way.only_padding {
                let is_padding = it.mnemonic() == Mnemonic::Nop;
                way.after_call &= is_padding;
                way.only_padding &= is_padding;
            }
            // A loop that probes the stack ends where the stack pointer equals the compared operand.
            if kind == Kind::Test
                && it.op0_register() == Register::RSP
                && it.mnemonic() == Mnemonic::Cmp
            {
                way.compared = (index + 1, way.state.register(it.op1_register()));
            }
            let next = it.next_ip();
            let is_next = instructions
                .get(index + 1)
                .is_some_and(|following| following.ip() == next);
            if !is_next || next == self.end {
                break;
            }
            index += 1;
        }
        way.index = index;
        // The end of the loop has been followed, too.
        self.patience = self
            .patience
            .checked_sub(index - begin + 1)
            .ok_or(Reason::StackNotFollowed)?;
        Ok(meets)
    }

    fn distance(&self, address: u64) -> i64 {
        address.wrapping_sub(self.function).cast_signed()
    }

    /// Whether an address lies in the function, and is neither another function's nor its start.
    fn is_within(&self, address: u64) -> bool {
        self.function < address && address < self.end && !self.is_start(address)
    }

    fn is_start(&self, address: u64) -> bool {
        let number = self.input.code.number(address);
        number.is_some_and(|number| self.input.is_start.get(number))
    }

    fn go_to(&mut self, target: u64, state: &State) -> Result<(), Reason> {
        if let Some(index) = self.find(target, state)? {
            self.arrive(index, state);
        }
        Ok(())
    }

    /// The number of the next instruction at an address, unless the path ends there.
    fn find(&mut self, target: u64, state: &State) -> Result<Option<usize>, Reason> {
        let is_own = self.function <= target && target < self.end;
        if !is_own && self.is_start(target) {
            if state.stack_pointer() == Value::SLOT {
                self.manners.tails.push((target, self.function));
                return Ok(None);
            }
            if let Some(address) = state.top().as_code() {
                return self.go_back_to(address, *state).map(|()| None);
            }
        }
        match self.index(target).or_else(|| self.read(target)) {
            None if state.stack_pointer() != Value::SLOT => Err(Reason::StackNotFollowed),
            found => Ok(found),
        }
    }

    fn is_at(&self, index: usize, address: u64) -> bool {
        let there = self.instructions.get(index);
        there.is_some_and(|there| there.ip() == address)
    }

    fn is_elsewhere(&self, index: usize) -> bool {
        index >= self.own
    }

    /// The path behind a call in a cold part: most of those calls do not return.
    fn put_off(&mut self, index: usize, address: u64, state: State) {
        if self.is_at(index, address) {
            self.behind_calls.push((index, state));
        }
    }

    /// Goes on at an unknown address.
    fn go_anywhere(&mut self, state: State, is_switch: bool) -> Result<(), Reason> {
        state.check_escapes()?;
        if let Some(address) = state.top().as_code() {
            return self.go_back_to(address, state);
        }
        let has_frame = state.stack_pointer() != Value::SLOT;
        self.seeks |= has_frame && !is_switch;
        match &mut self.computed {
            Some(computed) if has_frame == (computed.stack_pointer() != Value::SLOT) => {
                computed.join(&state, self.own);
            }
            Some(_) if !has_frame => {}
            computed => {
                *computed = Some(state);
                self.unseen = self.index(self.function).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Leaves by a return. A return to an address that was pushed is a jump.
    fn go_back(&mut self, it: &Instruction, mut state: State) -> Result<(), Reason> {
        if !matches!(it.code(), Code::Retnq | Code::Retnq_imm16) {
            return Err(Reason::StackNotFollowed);
        }
        if state.stack_pointer() == Value::SLOT {
            return match it.code() {
                Code::Retnq => Ok(()),
                _ => Err(Reason::PopsArguments),
            };
        }
        let target = state.top();
        state.drop_top();
        if let Some(target) = target.as_code() {
            return self.go_to(self.function.wrapping_add_signed(target), &state);
        }
        if let Some(address) = state.top().as_code() {
            return self.go_back_to(address, state);
        }
        match state.stack_pointer() {
            Value::SLOT => state.check_escapes(),
            _ => Err(Reason::StackNotFollowed),
        }
    }

    /// The function called there returns to an address of this function, on top of the stack.
    fn go_back_to(&mut self, distance: i64, mut state: State) -> Result<(), Reason> {
        state.drop_top();
        state.check_escapes()?;
        state.forget_in_call();
        self.go_to(self.function.wrapping_add_signed(distance), &state)
    }

    /// The number of the instruction at an address.
    fn index(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.wrapping_sub(self.begin)).ok()?;
        if let Some(&number) = self.numbers.get(offset) {
            return (number as usize).checked_sub(1);
        }
        let (_, (end, numbers)) = self.elsewhere.range(..=address).next_back()?;
        if *end <= address {
            return None;
        }
        let there = &self.instructions[numbers.clone()];
        let found = there.binary_search_by_key(&address, Instruction::ip).ok()?;
        Some(numbers.start + found)
    }

    /// Reads code outside of the group, up to its end.
    fn read(&mut self, address: u64) -> Option<usize> {
        let range = self.input.code.range(address)?;
        let starts = self.input.starts;
        let next = starts.partition_point(|start| start.address <= address);
        let end = starts
            .get(next)
            .map_or(u64::MAX, |next| next.address)
            .min(range.end());
        let bytes =
            &range.bytes[(address - range.address) as usize..(end - range.address) as usize];
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let first = self.instructions.len();
        while decoder.can_decode()
            && self.instructions.len() < self.own + MOST_ELSEWHERE
            && self.budget > 0
        {
            self.budget -= 1;
            let it = decoder.decode();
            if it.is_invalid() {
                break;
            }
            self.instructions.push(it);
            let ends = matches!(
                it.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
            if ends {
                break;
            }
        }
        if self.instructions.len() == first {
            return None;
        }
        self.marks.truncate(first);
        self.marks.resize(self.instructions.len(), Mark::default());
        let end = self.instructions.last()?.next_ip();
        self.elsewhere
            .insert(address, (end, first..self.instructions.len()));
        Some(first)
    }

    /// Code of the function that no path reaches, but a computed jump or the unwinder may.
    fn next_unseen(&mut self) -> Option<(usize, State)> {
        while let Some(index) = self.find_unseen() {
            self.unseen = index;
            if let Some(state) = self.state_unseen(index) {
                return Some((index, state));
            }
            self.unseen += 1;
        }
        None
    }

    fn find_unseen(&self) -> Option<usize> {
        let code = self.unseen..self.own;
        let marks = self.marks.get(code.clone())?.iter();
        let mut code = marks.zip(self.instructions.get(code)?);
        let is_padding = |it: &Instruction| matches!(it.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        let found = code.position(|(mark, it)| mark.round != self.round && !is_padding(it))?;
        let found = self.unseen + found;
        (self.instructions[found].ip() < self.end).then_some(found)
    }

    /// The state of the computed jumps, with the frame by the file's unwinding rules, if any. Without such jumps, the
    /// unwinder may lead there.
    fn state_unseen(&mut self, index: usize) -> Option<State> {
        let frame = self.frame(index);
        let mut state = match (self.computed, frame) {
            (Some(state), _) => state,
            (None, Some(_)) => State::within(index),
            (None, None) => return None,
        };
        if let Some((register, offset)) = frame {
            state.set_frame(register, offset);
        }
        Some(state)
    }

    /// The register and the offset of the frame, by the file's unwinding rules.
    fn frame(&mut self, index: usize) -> Option<(Register, i64)> {
        let Tracker { input, context, .. } = self;
        let rows = self.rows.get_or_insert_with(|| {
            let mut rows = Vec::new();
            input
                .frames
                .frame_addresses(context, self.function, &mut rows);
            rows
        });
        let address = self.instructions[index].ip();
        let after = rows.partition_point(|row| row.0 <= address);
        match rows[..after].last()?.1? {
            (STACK_POINTER, offset) => Some((Register::RSP, offset)),
            (FRAME_POINTER, offset) => Some((Register::RBP, offset)),
            _ => None,
        }
    }

    fn look_at_flags(&mut self, first: usize) {
        let code = (&self.instructions[..], self.own);
        let function = self.function..self.end;
        let flags = &mut self.manners.flags;
        flags.look(code, first, function.clone(), None);
        for (behind, called) in std::mem::take(&mut self.calls) {
            // Where other paths lead behind a call too, the call may be one that never returns.
            let marks = &self.marks[..self.instructions.len()];
            let meets = marks
                .get(behind)
                .is_none_or(|mark| mark.meets == self.group);
            if !meets && self.is_start(called) {
                let code = (&self.instructions[..], self.own);
                self.manners
                    .flags
                    .look(code, behind, function.clone(), Some(called));
            }
        }
    }
}

/// The end of a function, or the begin of the next one: the end of one without a size is not known.
fn end_of(function: &Start, next: u64) -> u64 {
    match function.end > function.address {
        true => function.end,
        false => next,
    }
}
