//! The exits of a function of the kernel: the places where it is left.

use crate::Kernel;
use crate::code::{Code, SITE};
use crate::layout::{EXIT_RETURN, EXIT_TAIL, Exit};
use crate::reason::Reason;
use crate::symbols::{Span, Symbol};
use iced_x86::{Code as Opcode, FlowControl, Instruction};
use std::iter;
use std::ops::Range;

const PADDING: u8 = 0xcc;

/// The exits of a function.
pub struct Exits<'a> {
    kernel: &'a Kernel,
    function: Span<'a>,
    /// The function, and its cold parts as they are found.
    parts: Vec<Range<u64>>,
    found: Vec<Exit>,
    /// The targets of jumps within the function.
    entered: Vec<u64>,
    before: Instruction,
}

/// The target of a jump.
enum Target {
    Inside,
    /// A part of this function that the compiler has moved away.
    Cold(Range<u64>),
    ReturnThunk,
    Begin,
    Middle,
    Unnamed,
    /// A thunk that jumps to the address in a register; this one, if nothing else may be in it.
    Register {
        is_free: bool,
    },
    Nopal,
}

impl<'a> Exits<'a> {
    /// Finds the exits, in order of their addresses in each part. `code` is the function's own; `cold` is a part that
    /// certainly belongs to it.
    pub fn of(
        kernel: &'a Kernel,
        function: Span<'a>,
        code: &Code,
        cold: Option<Range<u64>>,
    ) -> Result<Exits<'a>, Reason> {
        let parts = iter::once(code.range.clone()).chain(cold);
        let mut exits = Exits {
            kernel,
            function,
            parts: parts.collect(),
            found: Vec::new(),
            entered: Vec::new(),
            before: Instruction::default(),
        };
        exits.scan(code)?;
        let mut next = 1;
        while let Some(part) = exits.parts.get(next) {
            let code = Code::of(kernel, part.clone());
            exits.scan(&code)?;
            next += 1;
        }
        exits.check()?;
        Ok(exits)
    }

    pub fn found(&self) -> &[Exit] {
        &self.found
    }

    pub fn cold_parts(&self) -> &[Range<u64>] {
        &self.parts[1..]
    }

    fn scan(&mut self, code: &Code) -> Result<(), Reason> {
        for (_, to) in self.kernel.hidden_jumps.from(&code.range) {
            match self.target(*to) {
                Target::Cold(part) => self.enter(*to, part),
                _ => self.entered.push(*to),
            }
        }
        for instruction in &code.instructions {
            if instruction.is_invalid() {
                return Err(Reason::Undecodable);
            }
            let at = (instruction.ip() - code.range.start) as usize;
            self.take(instruction, code.bytes[at..].first_chunk())?;
            self.before = *instruction;
        }
        Ok(())
    }

    /// `bytes` are the five from the instruction on, if they belong to the part.
    fn take(&mut self, it: &Instruction, bytes: Option<&[u8; 5]>) -> Result<(), Reason> {
        match it.flow_control() {
            FlowControl::Return if it.code() == Opcode::Retnq && it.len() == 1 => {
                let is_padded = |bytes: &&[u8; 5]| bytes[1..] == [PADDING; 4];
                let bytes = bytes.filter(is_padded).ok_or(Reason::ShortReturn)?;
                self.exit(it.ip(), EXIT_RETURN, 0, *bytes)
            }
            FlowControl::Return if is_return_to_next(&self.before, it) => Ok(()),
            FlowControl::Return => Err(Reason::OtherReturn),
            FlowControl::IndirectBranch => match self.kernel.unwinding.is_frame_gone(it.ip()) {
                Some(true) => Err(Reason::ComputedTail),
                _ => Err(Reason::ComputedJump),
            },
            FlowControl::UnconditionalBranch if it.near_branch_target() != 0 => {
                self.jump(it, bytes)
            }
            // A jump to another segment.
            FlowControl::UnconditionalBranch => Err(Reason::ComputedJump),
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
                if it.near_branch_target() != 0 =>
            {
                match self.target(it.near_branch_target()) {
                    Target::Inside => self.entered.push(it.near_branch_target()),
                    Target::Cold(part) => self.enter(it.near_branch_target(), part),
                    _ => return Err(Reason::ConditionalExit),
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn jump(&mut self, it: &Instruction, bytes: Option<&[u8; 5]>) -> Result<(), Reason> {
        let to = it.near_branch_target();
        let is_long = it.len() == 5 && bytes.is_some_and(|bytes| bytes[0] == 0xe9);
        let is_padded = |bytes: &[u8; 5]| bytes[0] == 0xeb && bytes[2..] == [PADDING; 3];
        let is_short = it.len() == 2 && bytes.is_some_and(is_padded);
        let kind = match self.target(to) {
            Target::Inside => {
                self.entered.push(to);
                return Ok(());
            }
            Target::Cold(part) => {
                self.enter(to, part);
                return Ok(());
            }
            Target::Nopal => return Err(Reason::Changed),
            Target::Unnamed => return Err(Reason::Unnamed),
            Target::Middle => return Err(Reason::EntersMiddle),
            Target::Register { is_free: false } => return Err(Reason::HandsOverRegister),
            Target::Register { is_free: true }
                if self.kernel.unwinding.is_frame_gone(it.ip()) != Some(true) =>
            {
                return Err(Reason::ComputedJump);
            }
            Target::ReturnThunk if is_long => EXIT_RETURN,
            Target::ReturnThunk => return Err(Reason::ShortReturn),
            Target::Begin | Target::Register { .. } => EXIT_TAIL,
        };
        match bytes {
            Some(bytes) if is_long || is_short => {
                let target = if kind == EXIT_TAIL { to } else { 0 };
                self.exit(it.ip(), kind, target, *bytes)
            }
            _ => Err(Reason::ShortJump),
        }
    }

    fn exit(&mut self, at: u64, kind: u32, target: u64, bytes: [u8; 5]) -> Result<(), Reason> {
        if self.kernel.static_calls.binary_search(&at).is_ok() {
            return Err(Reason::StaticCall);
        }
        if self.kernel.unwinding.is_frame_gone(at) == Some(false) {
            return Err(Reason::FrameRemains);
        }
        self.found.push(Exit {
            address: at,
            target,
            kind: kind as u8,
            expected: bytes,
            reserved: 0,
        });
        Ok(())
    }

    fn enter(&mut self, address: u64, part: Range<u64>) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
        self.entered.push(address);
    }

    fn target(&self, to: u64) -> Target {
        let mut parts = self.parts.iter();
        // A jump to its begin enters it again, by ftrace's place.
        if to != self.function.address && parts.any(|part| part.contains(&to)) {
            return Target::Inside;
        }
        let Some(span) = self.kernel.symbols.span_at(to) else {
            return Target::Unnamed;
        };
        let Some(symbol) = span.names().next() else {
            return Target::Unnamed;
        };
        if symbol.module == "nopal" {
            return Target::Nopal;
        }
        if self.kernel.text.from(to).is_none() {
            return Target::Unnamed;
        }
        if span.names().any(|symbol| self.is_cold_part(symbol)) {
            return Target::Cold(self.kernel.part(span));
        }
        if to != span.address {
            return Target::Middle;
        }
        if span.names().any(|symbol| is_return_thunk(symbol.name)) {
            return Target::ReturnThunk;
        }
        match span
            .names()
            .find_map(|symbol| register_of_thunk(symbol.name))
        {
            Some(register) => Target::Register {
                // nopal's own jumps use these two.
                is_free: !matches!(register, "r10" | "r11"),
            },
            None => Target::Begin,
        }
    }

    fn is_cold_part(&self, symbol: Symbol) -> bool {
        let whole = whole_of_cold(symbol.name);
        let mut names = self.function.names();
        whole.is_some_and(|whole| {
            names.any(|name| name.name == whole && name.module == symbol.module)
        })
    }

    /// Checks the exits, once all parts are known.
    fn check(&self) -> Result<(), Reason> {
        let inside = |exit: &Exit| {
            let window = exit.address + 1..exit.address + SITE;
            self.entered.iter().any(|entered| window.contains(entered))
        };
        match self.found.iter().any(inside) {
            true => Err(Reason::EnteredInside),
            false => Ok(()),
        }
    }
}

/// Whether an `iretq` returns to the instruction behind it, whose address has just been pushed: it only synchronizes the
/// processor.
fn is_return_to_next(before: &Instruction, it: &Instruction) -> bool {
    before.code() == Opcode::Pushq_imm32
        && it.code() == Opcode::Iretq
        && before.next_ip() == it.ip()
        && before.immediate32to64().cast_unsigned() == it.next_ip()
}

/// The function that a symbol such as `vfs_write.cold` is a part of.
pub fn whole_of_cold(name: &str) -> Option<&str> {
    let (whole, number) = name.rsplit_once(".cold")?;
    let digits = number.strip_prefix('.').unwrap_or(number);
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(whole)
}

/// Whether this is the name of a thunk that a kernel puts in place of returns, on any processor.
fn is_return_thunk(name: &str) -> bool {
    name.ends_with("_return_thunk") || name == "__x86_return_skl"
}

/// The register with the address to which a thunk such as `__x86_indirect_thunk_rax` jumps.
fn register_of_thunk(name: &str) -> Option<&str> {
    let (_, register) = name
        .strip_prefix("__x86_indirect_")?
        .rsplit_once("thunk_")?;
    Some(register)
}
