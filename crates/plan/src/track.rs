//! Follows the stack pointer through a function, on every way that control can go, and looks for what the function does
//! with its return address.
//!
//! Only instructions are trusted. Where no instruction leads to a block, but a computed jump or the unwinder may, what
//! the file says of the frame there is a guess; a wrong one shows where the block returns.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use gimli::UnwindContext;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::Reason;
use crate::flags::Flags;
use crate::frames::FrameRow;
use crate::relocate::{FRAME_POINTER, STACK_POINTER};
use crate::stack::{State, Value};
use crate::sweep::Input;

/// Of functions that overlap, no more bytes are followed.
const LONGEST: u64 = 1 << 20;

/// So often, on average, an instruction is looked at before the functions that are left are given up.
const PATIENCE: usize = 32;

/// Instructions elsewhere that a function is followed into.
const MOST_ELSEWHERE: usize = 1 << 12;

/// What the code of functions says about their calls. All are functions' addresses.
#[derive(Default)]
pub(crate) struct Manners {
    /// Those whose return address must stay where it is.
    pub entries_only: Vec<(u64, Reason)>,
    /// Jumps with one's own return address on top of the stack: to where, from which function.
    pub tails: Vec<(u64, u64)>,
    pub flags: Flags,
}

/// Instructions of a group of functions, by address, and what is known of the function that is followed.
pub(crate) struct Tracker<'a> {
    input: &'a Input<'a>,
    pub manners: Manners,
    context: UnwindContext<usize>,
    /// How the function's frame is found, from each address on.
    rows: Option<Vec<FrameRow>>,
    instructions: Vec<Instruction>,
    /// The instruction that begins at each byte of the group, and 1; 0 where none does.
    numbers: Vec<u32>,
    marks: Vec<Mark>,
    /// How many are the group's. Behind them are parts of others, as far as the function goes there.
    own: usize,
    elsewhere: Vec<(Range<u64>, Range<usize>)>,
    states: Vec<State>,
    /// Where ways that are still to be followed begin: places where ways meet. And ways that a call leads to if it
    /// returns.
    ways: Vec<usize>,
    behind_calls: Vec<(usize, State)>,
    function: u64,
    end: u64,
    round: u32,
    /// Calls of functions, with the numbers of the instructions behind them.
    calls: Vec<(usize, u64)>,
    /// What holds at computed jumps, of those that have something on the stack as far as there are some.
    computed: Option<State>,
    /// Whether one of them must lead to code that nothing else leads to, and whether there is such code.
    seeks: bool,
    finds: bool,
    /// Before it, there is no more code that nothing leads to.
    unseen: usize,
    patience: usize,
    /// How many more instructions elsewhere are read.
    budget: usize,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// The round in which it was last passed.
    round: u32,
    /// Whether ways meet here, and then which of the states is the round's, and whether it is to be followed.
    meets: bool,
    waits: bool,
    state: u32,
}

impl<'a> Tracker<'a> {
    pub fn new(input: &'a Input<'a>) -> Tracker<'a> {
        Tracker {
            input,
            manners: Manners::default(),
            context: UnwindContext::new(),
            instructions: Vec::new(),
            numbers: Vec::new(),
            marks: Vec::new(),
            own: 0,
            elsewhere: Vec::new(),
            states: Vec::new(),
            ways: Vec::new(),
            behind_calls: Vec::new(),
            function: 0,
            end: 0,
            round: 0,
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
        let begin = self
            .instructions
            .first()
            .map_or(instruction.ip(), Instruction::ip);
        if instruction.ip() - begin < LONGEST {
            self.instructions.push(*instruction);
        }
    }

    /// Judges the functions of the group, which begin from `from` up to `to`.
    pub fn finish_group(&mut self, from: u64, to: u64) {
        let starts = self.input.starts;
        let first = starts.partition_point(|start| start.address < from);
        let functions = starts[first..]
            .iter()
            .take_while(|start| start.address < to);
        let (Some(begin), Some(end)) = (self.instructions.first(), self.instructions.last()) else {
            return;
        };
        let (begin, end) = (begin.ip(), end.next_ip());
        self.own = self.instructions.len();
        self.numbers.clear();
        self.numbers.resize((end - begin) as usize, 0);
        for (it, number) in self.instructions.iter().zip(1..) {
            self.numbers[(it.ip() - begin) as usize] = number;
        }
        self.marks.clear();
        self.marks.resize(self.own, Mark::default());
        for it in &self.instructions {
            if it.op0_kind() == OpKind::NearBranch64
                && it.mnemonic() != Mnemonic::Call
                && let Some(&number) = self
                    .numbers
                    .get(it.near_branch_target().wrapping_sub(begin) as usize)
                && number != 0
            {
                self.marks[number as usize - 1].meets = true;
            }
        }
        self.round = 0;
        self.patience = PATIENCE * (self.own + MOST_ELSEWHERE);
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
            // The end of a function without a size is not known.
            let end = if start.end > start.address {
                start.end
            } else {
                to
            };
            if let Err(reason) = self.function(start.address, end) {
                self.manners.entries_only.push((start.address, reason));
            }
        }
        self.instructions.clear();
    }

    fn function(&mut self, start: u64, end: u64) -> Result<(), Reason> {
        (self.function, self.end) = (start, end);
        self.round += 1;
        self.instructions.truncate(self.own);
        self.marks.truncate(self.own);
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
        result
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

    /// The state of the round where ways meet.
    fn known(&self, index: usize) -> Option<&State> {
        let mark = self.marks[index];
        (mark.meets && mark.round == self.round).then(|| &self.states[mark.state as usize])
    }

    /// One way comes to where ways meet. From there on it is followed later, if it brings something new.
    fn arrive(&mut self, index: usize, state: &State) {
        let mark = &mut self.marks[index];
        if mark.round == self.round && mark.meets {
            if !self.states[mark.state as usize].join(state, index) || mark.waits {
                return;
            }
        } else {
            mark.state = self.states.len() as u32;
            self.states.push(*state);
        }
        (mark.round, mark.meets, mark.waits) = (self.round, true, true);
        self.ways.push(index);
    }

    /// Follows one way until it ends, or comes to where ways meet.
    fn way(&mut self, mut index: usize) -> Result<(), Reason> {
        let mut state = self.states[self.marks[index].state as usize];
        let begin = index;
        let mut after_call = false;
        // Padding may be jumped to, behind a call that does not return.
        let mut only_padding = self.is_elsewhere(index);
        let mut compared = (0, Value::UNKNOWN);
        loop {
            self.patience = self
                .patience
                .checked_sub(1)
                .ok_or(Reason::StackNotFollowed)?;
            let mark = &mut self.marks[index];
            if mark.meets && index != begin {
                if after_call {
                    self.behind_calls.push((index, state));
                } else {
                    self.arrive(index, &state);
                }
                return Ok(());
            }
            mark.round = self.round;
            let it = self.instructions[index];
            match it.flow_control() {
                FlowControl::Next => {
                    state.step(&it, index, self.function)?;
                    if after_call || only_padding {
                        let is_padding = it.mnemonic() == Mnemonic::Nop;
                        after_call &= is_padding;
                        only_padding &= is_padding;
                    }
                    // A loop that probes the stack ends where the stack pointer is what it is compared with.
                    if it.mnemonic() == Mnemonic::Cmp && it.op0_register() == Register::RSP {
                        compared = (index + 1, state.register(it.op1_register()));
                    }
                }
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    if it.op0_kind() == OpKind::NearBranch64 {
                        self.go_to(it.near_branch_target(), &state)?;
                    }
                    if compared.0 == index
                        && it.mnemonic() == Mnemonic::Jne
                        && compared.1.is_stack()
                    {
                        state.set_stack_pointer(compared.1);
                    }
                    (after_call, only_padding) = (false, false);
                }
                FlowControl::UnconditionalBranch => {
                    return match it.op0_kind() {
                        OpKind::NearBranch64 => self.go_to(it.near_branch_target(), &state),
                        _ => Err(Reason::StackNotFollowed),
                    };
                }
                FlowControl::IndirectBranch => {
                    state.step_operand(&it)?;
                    if let Some(target) = state.register(it.op0_register()).as_code() {
                        return self.go_to(self.function.wrapping_add_signed(target), &state);
                    }
                    let is_switch = it.memory_index_scale() == 8
                        || state.register(it.op0_register()) == Value::ENTRY_OF_TABLE;
                    return self.go_anywhere(state, is_switch);
                }
                FlowControl::Return => return self.go_back(&it, state),
                FlowControl::Call if it.op0_kind() == OpKind::NearBranch64 => {
                    let target = it.near_branch_target();
                    if self.is_within(target) {
                        state.push(Value::code(self.distance(it.next_ip())));
                        return self.go_to(target, &state);
                    }
                    self.calls.push((index + 1, target));
                    state.check_escapes()?;
                    state.forget_in_call();
                    if self.is_elsewhere(index) {
                        self.put_off(index + 1, it.next_ip(), state);
                        return Ok(());
                    }
                    after_call = true;
                }
                // Not a system call, which changes three registers.
                FlowControl::Call if it.code() == Code::Syscall => {
                    state.step(&it, index, self.function)?;
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    state.step_operand(&it)?;
                    state.check_escapes()?;
                    state.forget_in_call();
                    after_call = true;
                }
                FlowControl::Interrupt if it.code() == Code::Int_imm8 => {}
                FlowControl::Interrupt | FlowControl::Exception => return Ok(()),
            }
            if it.next_ip() == self.end && index < self.own {
                return if after_call {
                    Ok(())
                } else {
                    self.go_to(self.end, &state)
                };
            }
            let next = index + 1;
            if self.is_at(next, it.next_ip()) {
                index = next;
            } else {
                let ends = after_call || only_padding;
                return if ends {
                    Ok(())
                } else {
                    self.go_to(it.next_ip(), &state)
                };
            }
        }
    }

    fn distance(&self, address: u64) -> i64 {
        address.wrapping_sub(self.function).cast_signed()
    }

    /// Whether an address lies in the function, and nobody takes it for another one's or for its start.
    fn is_within(&self, address: u64) -> bool {
        self.function < address && address < self.end && !self.is_start(address)
    }

    fn is_start(&self, address: u64) -> bool {
        let number = self.input.code.number(address);
        number.is_some_and(|number| self.input.is_start.get(number))
    }

    fn go_to(&mut self, target: u64, state: &State) -> Result<(), Reason> {
        let is_own = self.function <= target && target < self.end;
        if !is_own && self.is_start(target) {
            if state.stack_pointer() == Value::SLOT {
                self.manners.tails.push((target, self.function));
                return Ok(());
            }
            if let Some(address) = state.top().as_code() {
                return self.go_back_to(address, *state);
            }
        }
        let index = match self.index(target) {
            Some(index) => index,
            None => match self.read(target) {
                Some(index) => index,
                None if state.stack_pointer() == Value::SLOT => return Ok(()),
                None => return Err(Reason::StackNotFollowed),
            },
        };
        self.arrive(index, state);
        Ok(())
    }

    fn is_at(&self, index: usize, address: u64) -> bool {
        let there = self.instructions.get(index);
        there.is_some_and(|there| there.ip() == address)
    }

    fn is_elsewhere(&self, index: usize) -> bool {
        index >= self.own
    }

    /// The way behind a call in a part that is seldom needed: most of those do not return.
    fn put_off(&mut self, index: usize, address: u64, state: State) {
        if self.is_at(index, address) {
            self.behind_calls.push((index, state));
        }
    }

    /// To an address that is not known.
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

    /// By a return. One to an address that was pushed is a jump.
    fn go_back(&mut self, it: &Instruction, mut state: State) -> Result<(), Reason> {
        if !matches!(it.code(), Code::Retnq | Code::Retnq_imm16) {
            return Err(Reason::StackNotFollowed);
        }
        if state.stack_pointer() == Value::SLOT {
            return Ok(());
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

    /// Whoever is called there returns to an address of the function, which is on top of the stack.
    fn go_back_to(&mut self, distance: i64, mut state: State) -> Result<(), Reason> {
        state.drop_top();
        state.check_escapes()?;
        state.forget_in_call();
        self.go_to(self.function.wrapping_add_signed(distance), &state)
    }

    /// The number of the instruction at an address.
    fn index(&self, address: u64) -> Option<usize> {
        let begin = self.instructions.first()?.ip();
        let offset = usize::try_from(address.wrapping_sub(begin)).ok()?;
        if let Some(&number) = self.numbers.get(offset) {
            return (number as usize).checked_sub(1);
        }
        let mut elsewhere = self.elsewhere.iter();
        let (_, numbers) = elsewhere.find(|part| part.0.contains(&address))?;
        let there = &self.instructions[numbers.clone()];
        let found = there.binary_search_by_key(&address, Instruction::ip).ok()?;
        Some(numbers.start + found)
    }

    /// Reads code elsewhere, up to where it goes on no more.
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
        self.marks.resize(self.instructions.len(), Mark::default());
        let end = self.instructions.last()?.next_ip();
        self.elsewhere
            .push((address..end, first..self.instructions.len()));
        Some(first)
    }

    /// Code of the function that no way leads to, but a computed jump or the unwinder may.
    fn next_unseen(&mut self) -> Option<(usize, State)> {
        while self.unseen < self.own {
            let index = self.unseen;
            let it = &self.instructions[index];
            if it.ip() >= self.end {
                break;
            }
            let is_padding = matches!(it.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
            let is_unseen = self.marks[index].round != self.round && !is_padding;
            if is_unseen && let Some(state) = self.state_unseen(index) {
                return Some((index, state));
            }
            self.unseen += 1;
        }
        None
    }

    /// As at the computed jumps, with the frame that the file tells of, if it does. Where there are no such jumps, it may
    /// be that the unwinder comes.
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

    /// The register by which the file says that the frame is found, and the offset.
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
            // Where others come too, the call may be one that never returns.
            let meets = self.marks.get(behind).is_none_or(|mark| mark.meets);
            if !meets && self.is_start(called) {
                let code = (&self.instructions[..], self.own);
                self.manners
                    .flags
                    .look(code, behind, function.clone(), Some(called));
            }
        }
    }
}

/// What comes of it all, by function.
#[derive(Default)]
pub(crate) struct Judged {
    pub entries_only: HashMap<u64, Reason>,
    pub passes_flags: HashMap<u64, Reason>,
}

impl Manners {
    pub fn extend(&mut self, other: Manners) {
        self.entries_only.extend(other.entries_only);
        self.tails.extend(other.tails);
        self.flags.extend(other.flags);
    }

    pub fn judged(mut self) -> Judged {
        let mut entries_only: HashMap<u64, Reason> = self.entries_only.into_iter().collect();
        spread(&mut entries_only, &mut self.tails);
        Judged {
            entries_only,
            passes_flags: self.flags.judged(&self.tails),
        }
    }
}

/// What holds for the first of an edge holds for the second.
pub(crate) fn spread(found: &mut HashMap<u64, Reason>, edges: &mut [(u64, u64)]) {
    if found.is_empty() {
        return;
    }
    edges.sort_unstable();
    let mut new: Vec<(u64, Reason)> = found
        .iter()
        .map(|(&function, &reason)| (function, reason))
        .collect();
    while let Some((function, reason)) = new.pop() {
        let first = edges.partition_point(|edge| edge.0 < function);
        for &(_, next) in edges[first..].iter().take_while(|edge| edge.0 == function) {
            if let Entry::Vacant(vacant) = found.entry(next) {
                vacant.insert(reason);
                new.push((next, reason));
            }
        }
    }
}
