//! Makes displaced instructions run at another place with the same effect.

use iced_x86::{Instruction, Register};

use super::window::{Displaced, Kind, Window, opcode};
use crate::{Body, Fixup, FrameChange, Reason};

/// The DWARF numbers of the frame pointer and the stack pointer.
pub(crate) const FRAME_POINTER: u16 = 6;
pub(crate) const STACK_POINTER: u16 = 7;

/// The new target of a jump within the window to its start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loops {
    /// The body: at a function's start, the jump is not a new call.
    InBody,
    /// The window's start: a probe must see the thread again.
    ToSite,
}

/// Most bodies have no more bytes of code than this.
const LIKELY_CODE: usize = 32;

/// `rules`: the changes of the frame by offset from the window's start, up to its end.
pub(crate) fn relocate(
    window: &Window<'_>,
    rules: &[(u64, FrameChange)],
    loops: Loops,
) -> Result<Body, Reason> {
    let mut writer = Writer {
        window,
        code: Vec::with_capacity(LIKELY_CODE),
        fixups: Vec::new(),
        map: Vec::with_capacity(window.instructions.len() + 1),
        rows: Vec::new(),
        rules,
        has_rules: !rules.is_empty(),
        frame: (STACK_POINTER, 8),
        literal: None,
        loops,
    };
    for displaced in &window.instructions {
        writer.begin(displaced.instruction.ip())?;
        writer.displace(displaced)?;
    }
    let end = window
        .instructions
        .last()
        .map_or(window.start, |last| last.instruction.next_ip());
    if writer
        .rules
        .first()
        .is_some_and(|&(at, _)| at < end - window.start)
    {
        return Err(Reason::UnwindRules);
    }
    let falls_through = window.instructions.last().is_none_or(|last| {
        !matches!(
            last.kind,
            Kind::Jump | Kind::End | Kind::Call | Kind::IndirectCall
        )
    });
    if falls_through {
        writer.begin(window.end())?;
        writer.jump_to(&[0xe9], window.end());
    }
    Ok(writer.finish())
}

struct Writer<'a> {
    window: &'a Window<'a>,
    code: Vec<u8>,
    fixups: Vec<Fixup>,
    map: Vec<(u8, u16)>,
    rows: Vec<(u16, FrameChange)>,
    rules: &'a [(u64, FrameChange)],
    has_rules: bool,
    /// The register and the offset that give the canonical frame address.
    frame: (u16, i32),
    /// The offset of the distance to the literal.
    literal: Option<usize>,
    loops: Loops,
}

impl Writer<'_> {
    fn here(&self) -> u16 {
        self.code.len() as u16
    }

    /// Records where the instruction at `address` is moved, and takes over the rules that are valid from there on.
    fn begin(&mut self, address: u64) -> Result<(), Reason> {
        let offset = address - self.window.start;
        self.map.push((offset as u8, self.here()));
        while let Some((&(at, change), rest)) = self.rules.split_first() {
            if at > offset {
                break;
            }
            if at < offset {
                return Err(Reason::UnwindRules);
            }
            if let FrameChange::Cfa { register, offset } = change {
                self.frame = (register, offset);
            }
            self.rows.push((self.here(), change));
            self.rules = rest;
        }
        Ok(())
    }

    fn displace(&mut self, displaced: &Displaced) -> Result<(), Reason> {
        let instruction = &displaced.instruction;
        let window = self.window;
        let raw = window.raw(displaced);
        match displaced.kind {
            Kind::Plain | Kind::End => self.copy(displaced, raw),
            Kind::Jump => self.jump_to(
                if instruction.has_repne_prefix() {
                    &[0xf2, 0xe9]
                } else {
                    &[0xe9]
                },
                target(instruction),
            ),
            Kind::Conditional => {
                let condition = raw[raw.len() - 1 - distance_len(instruction)] & 0x0f;
                let jump = [0xf2, 0x0f, 0x80 | condition];
                self.jump_to(
                    &jump[usize::from(!instruction.has_repne_prefix())..],
                    target(instruction),
                );
            }
            Kind::Counting => {
                // Over a short jump that goes over a long one.
                self.code.extend_from_slice(&raw[..raw.len() - 1]);
                self.code.extend_from_slice(&[2, 0xeb, 5]);
                self.jump_to(&[0xe9], target(instruction));
            }
            Kind::Call => {
                self.push_return_address()?;
                self.distance(&[0xe9], target(instruction));
            }
            Kind::IndirectCall => self.indirect_call(displaced, raw)?,
        }
        Ok(())
    }

    fn copy(&mut self, displaced: &Displaced, raw: &[u8]) {
        let start = self.code.len();
        self.code.extend_from_slice(raw);
        if displaced.instruction.memory_base() == Register::RIP {
            let hole = start + displaced.displacement;
            self.code[hole..hole + 4].fill(0);
            self.fixups.push(Fixup::Relative {
                offset: hole as u16,
                from: self.here(),
                target: displaced.instruction.ip_rel_memory_address(),
            });
        }
    }

    fn jump_to(&mut self, jump: &[u8], target: u64) {
        if target == self.window.start && self.loops == Loops::InBody {
            self.code.extend_from_slice(jump);
            let back = -(self.code.len() as i32 + 4);
            self.code.extend_from_slice(&back.to_le_bytes());
        } else {
            self.distance(jump, target);
        }
    }

    fn distance(&mut self, instruction: &[u8], target: u64) {
        self.code.extend_from_slice(instruction);
        let offset = self.here();
        self.code.extend_from_slice(&[0; 4]);
        self.fixups.push(Fixup::Relative {
            offset,
            from: self.here(),
            target,
        });
    }

    /// See `Body`.
    fn push_return_address(&mut self) -> Result<(), Reason> {
        // The call alone would change no more than the first 8 bytes below the stack pointer.
        let below = |displaced: &Displaced| {
            let displacement = displaced.instruction.memory_displacement64().cast_signed();
            displaced.instruction.memory_base() == Register::RSP && displacement < 0
        };
        if self.window.instructions.iter().any(below) {
            return Err(Reason::Immovable);
        }
        self.code.extend_from_slice(&[0xe8, 1, 0, 0, 0, 0xcc]);
        self.pushed(8);
        self.code.extend_from_slice(&[0xff, 0x35]);
        self.literal = Some(self.code.len());
        self.code.extend_from_slice(&[0; 4]);
        self.pushed(16);
        self.code.extend_from_slice(&[0x8f, 0x04, 0x24]);
        self.pushed(8);
        Ok(())
    }

    fn pushed(&mut self, bytes: i32) {
        let (register, offset) = self.frame;
        if register == STACK_POINTER && self.has_rules {
            let offset = offset.wrapping_add(bytes);
            self.rows
                .push((self.here(), FrameChange::Cfa { register, offset }));
        }
    }

    /// The jump has the call's operand, computed with the return address already pushed.
    fn indirect_call(&mut self, displaced: &Displaced, raw: &[u8]) -> Result<(), Reason> {
        const CALL: u8 = 2 << 3;
        const JUMP: u8 = 4 << 3;
        let instruction = &displaced.instruction;
        let modrm_at = opcode(raw) + 1;
        let modrm = raw[modrm_at];
        if raw[modrm_at - 1] != 0xff
            || modrm & 0x38 != CALL
            || instruction.op0_register() == Register::RSP
        {
            return Err(Reason::Immovable);
        }
        let modrm = modrm & !0x38 | JUMP;
        self.push_return_address()?;
        match instruction.memory_base() {
            Register::RSP => {
                let displacement = instruction.memory_displacement64().cast_signed();
                let displacement =
                    i32::try_from(displacement + 8).map_err(|_| Reason::Immovable)?;
                self.code.extend_from_slice(&raw[..modrm_at]);
                self.code
                    .extend_from_slice(&[modrm & 0x3f | 0x80, raw[modrm_at + 1]]);
                self.code.extend_from_slice(&displacement.to_le_bytes());
            }
            Register::ESP => return Err(Reason::Immovable),
            _ => {
                let at = self.code.len() + modrm_at;
                self.copy(displaced, raw);
                self.code[at] = modrm;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Body {
        if let Some(at) = self.literal {
            let offset = self.here();
            let distance = i32::from(offset) - (at as i32 + 4);
            self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
            self.code.extend_from_slice(&[0; 8]);
            self.fixups.push(Fixup::Absolute {
                offset,
                target: self.window.end(),
            });
        }
        Body::new(self.code, &self.fixups, &self.map, &self.rows)
    }
}

fn target(instruction: &Instruction) -> u64 {
    instruction.near_branch_target()
}

/// The length of a conditional jump's distance.
fn distance_len(instruction: &Instruction) -> usize {
    if instruction.is_jcc_short() { 1 } else { 4 }
}
