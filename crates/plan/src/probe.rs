//! Sites at any instruction of a function: whether a jump there may displace instructions.
//!
//! Unlike at a function's start, the function itself may jump into the bytes that the jump needs. So the targets of its
//! computed jumps must be known: through tables that the sweep has followed, or as addresses in memory. A window of one
//! instruction can have no jump into it.

use std::fmt;

use anyhow::Result;
use gimli::UnwindContext;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use nopal_symbols::{Function, Image};

use crate::judge::{self, Judge};
use crate::relocate::{Loops, relocate};
use crate::{How, JUMP, LONGEST_WINDOW, Reason, Site};

/// How many instructions before a computed jump are searched for its address.
const LOOK_BACK: usize = 16;

/// Bytes of a breakpoint.
const BREAKPOINT: usize = 1;

/// Why there can be no probe at an address. Addresses are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprobed {
    /// It is in no function.
    NoFunction,
    /// It is inside an instruction, which begins at `before`; the next one begins at `after`.
    WithinInstruction { before: u64, after: u64 },
    /// The function may not be patched.
    Untouchable(Reason),
    /// The bytes that the jump needs.
    Bytes(Reason),
    /// A computed jump of the function, at this address, may lead into the bytes that the jump needs.
    UnknownTargets { jump: u64 },
    /// A thread may wait in a system call for long, in displaced instructions that could not be freed meanwhile.
    SystemCall,
}

impl fmt::Display for Unprobed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Unprobed::NoFunction => out.write_str("there is no function"),
            Unprobed::WithinInstruction { before, after } => write!(
                out,
                "it is inside an instruction: the nearest ones begin at {before:#x} and {after:#x}"
            ),
            Unprobed::Untouchable(reason) => {
                write!(out, "its function may not be patched: {}", reason.text())
            }
            Unprobed::Bytes(reason) => out.write_str(match reason {
                Reason::TooShort => "the function ends within the bytes that a jump needs",
                Reason::EnteredInside => "a jump leads into the bytes that a jump needs",
                Reason::Undecodable => "the instructions there are unknown",
                Reason::Traps => "an instruction traps",
                Reason::Immovable => "an instruction there cannot run elsewhere",
                Reason::RestartableSequence => "it is in a restartable sequence (rseq)",
                Reason::TextRelocation => "the loader changes these bytes",
                Reason::HandlesFaults => "faults of these instructions are handled as exceptions",
                Reason::Transaction => "a hardware transaction begins there",
                other => other.text(),
            }),
            Unprobed::UnknownTargets { jump } => write!(
                out,
                "the computed jump at {jump:#x} may lead into the bytes that a jump needs"
            ),
            Unprobed::SystemCall => {
                out.write_str("there is a system call, in which a thread may wait for long")
            }
        }
    }
}

impl std::error::Error for Unprobed {}

/// An instruction, and the verdicts on a probe there: by a jump, and by a breakpoint.
pub struct Judged {
    pub address: u64,
    pub site: Result<Site, Unprobed>,
    pub breakpoint: bool,
}

/// Judges places of one file.
pub struct Probes<'a, 'b> {
    judge: &'a Judge<'b>,
}

/// Reads all of the file's code once, and lets `work` query places in it.
pub fn probes<T>(image: &Image, work: impl FnOnce(&Probes) -> Result<T>) -> Result<T> {
    judge::with(image, image.functions()?, |judge| work(&Probes { judge }))
}

impl Probes<'_, '_> {
    /// The site of a jump at an instruction.
    pub fn site(&self, address: u64) -> Result<Site, Unprobed> {
        self.site_of(address, JUMP)
    }

    /// The same for a breakpoint, which needs one byte: the window is one instruction.
    pub fn breakpoint(&self, address: u64) -> Result<Site, Unprobed> {
        self.site_of(address, BREAKPOINT)
    }

    fn site_of(&self, address: u64, least: usize) -> Result<Site, Unprobed> {
        let function = self.function(address)?;
        let code = self.function_code(function);
        boundary(&code, address)?;
        self.judged(function, &code, address, least)
    }

    /// The same for all instructions of the function that has an address.
    pub fn of_function(&self, address: u64) -> Result<Vec<Judged>, Unprobed> {
        let function = self.function(address)?;
        let code = self.function_code(function);
        let places = code.iter().map(|instruction| instruction.ip());
        let judged = places.map(|address| {
            let site = self.judged(function, &code, address, JUMP);
            // If a jump fits, so does one byte.
            let breakpoint =
                site.is_ok() || self.judged(function, &code, address, BREAKPOINT).is_ok();
            Judged {
                address,
                site,
                breakpoint,
            }
        });
        Ok(judged.collect())
    }

    fn function(&self, address: u64) -> Result<&Function, Unprobed> {
        let found = self.judge.image.function_at(address).ok().flatten();
        found.ok_or(Unprobed::NoFunction)
    }

    /// Its instructions, up to the first invalid one.
    fn function_code(&self, function: &Function) -> Vec<Instruction> {
        let Some(range) = self.judge.code.range(function.address) else {
            return Vec::new();
        };
        let begin = (function.address - range.address) as usize;
        let size = usize::try_from(function.size.max(1)).unwrap_or(usize::MAX);
        let bytes = &range.bytes[begin..begin.saturating_add(size).min(range.bytes.len())];
        let mut decoder = Decoder::with_ip(64, bytes, function.address, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            instructions.push(instruction);
        }
        instructions
    }

    fn judged(
        &self,
        function: &Function,
        code: &[Instruction],
        address: u64,
        least: usize,
    ) -> Result<Site, Unprobed> {
        let judge = self.judge;
        if let Some(reason) = judge.special(function) {
            return Err(Unprobed::Untouchable(reason));
        }
        if judge.is_resolver(function) {
            return Err(Unprobed::Untouchable(Reason::Resolver));
        }
        let end = function.address.saturating_add(function.size.max(1));
        let window = judge
            .window(address, end - address, least)
            .map_err(Unprobed::Bytes)?;
        let number = judge.code.number(address);
        let number = number.ok_or(Unprobed::Bytes(Reason::Undecodable))?;
        let mut inside = number + 1..number + window.bytes.len();
        if inside.any(|number| judge.flow.reached.get(number)) {
            return Err(Unprobed::Bytes(Reason::EnteredInside));
        }
        let only = window.instructions.len() == 1
            && window.instructions[0].instruction.len() == window.bytes.len();
        if !only && let Some(jump) = unknown_jump(code) {
            return Err(Unprobed::UnknownTargets { jump });
        }
        let waits = |displaced: &crate::window::Displaced| {
            matches!(
                displaced.instruction.mnemonic(),
                Mnemonic::Syscall | Mnemonic::Sysenter
            )
        };
        if window.instructions.iter().any(waits) {
            return Err(Unprobed::SystemCall);
        }
        judge.refuse_touched(&window).map_err(Unprobed::Bytes)?;
        let rules = judge.frames.rules_within(
            &mut UnwindContext::new(),
            address,
            window.bytes.len() as u64,
        );
        let rules = rules.map_err(Unprobed::Bytes)?;
        let mut expected = [0; LONGEST_WINDOW];
        expected[..window.bytes.len()].copy_from_slice(window.bytes);
        Ok(Site {
            name: "".into(),
            address,
            size: window.bytes.len() as u64,
            window: window.bytes.len() as u8,
            expected,
            how: How::Jump,
            keeps_frame: false,
            walks_frames: false,
            entries_only: None,
            body: relocate(&window, &rules, Loops::ToSite).map_err(Unprobed::Bytes)?,
        })
    }
}

fn boundary(code: &[Instruction], address: u64) -> Result<(), Unprobed> {
    let after = code.partition_point(|instruction| instruction.ip() <= address);
    match after.checked_sub(1).map(|index| &code[index]) {
        Some(it) if it.ip() == address => Ok(()),
        Some(it) if address < it.next_ip() => Err(Unprobed::WithinInstruction {
            before: it.ip(),
            after: it.next_ip(),
        }),
        _ => Err(Unprobed::Bytes(Reason::Undecodable)),
    }
}

/// A computed jump whose targets are unknown.
fn unknown_jump(code: &[Instruction]) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let jumps = code.iter().enumerate();
    let mut computed = jumps.filter(|(_, it)| it.flow_control() == FlowControl::IndirectBranch);
    let unknown = computed.find(|(index, jump)| !is_known(&code[..*index], jump, &mut factory));
    unknown.map(|(_, jump)| jump.ip())
}

/// Whether the address was loaded from memory, where the loader or the file put it, or from a table of distances that
/// the sweep knows.
fn is_known(
    before: &[Instruction],
    jump: &Instruction,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let is_pointer =
        |it: &Instruction| it.memory_index() == Register::None || it.memory_index_scale() == 8;
    if jump.op0_kind() == OpKind::Memory {
        return is_pointer(jump);
    }
    let mut register = jump.op0_register();
    let near = before.iter().rev().take(LOOK_BACK);
    // Extended by the load, or after it.
    let is_distance = |it: &Instruction| match it.mnemonic() {
        Mnemonic::Movsxd => it.op1_kind() == OpKind::Memory,
        mnemonic => mnemonic == Mnemonic::Cdqe,
    };
    let has_table = near.clone().any(is_distance);
    for it in near {
        let info = factory.info(it);
        let writes = info.used_registers().iter().any(|used| {
            used.register().full_register() == register
                && matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
        });
        if !writes {
            continue;
        }
        match it.mnemonic() {
            Mnemonic::Mov if it.op1_kind() == OpKind::Memory => return is_pointer(it),
            Mnemonic::Mov if it.op1_kind() == OpKind::Register => register = it.op1_register(),
            Mnemonic::Pop => return true,
            Mnemonic::Add => return has_table,
            _ => return it.flow_control() == FlowControl::Call,
        }
    }
    // An argument, or a value from further up: computed addresses are not kept for long.
    !has_lea_of_code(before)
}

/// Whether the function takes an address within itself, as hand-written code with computed jumps does.
fn has_lea_of_code(before: &[Instruction]) -> bool {
    let (Some(first), Some(last)) = (before.first(), before.last()) else {
        return false;
    };
    let own = first.ip()..last.next_ip();
    before.iter().any(|it| {
        it.mnemonic() == Mnemonic::Lea
            && it.is_ip_rel_memory_operand()
            && own.contains(&it.ip_rel_memory_address())
    })
}
