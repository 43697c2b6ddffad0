//! Blocks: thunks and hooks one after another, and behind them the unwind table that describes them. One FDE stands
//! for each thunk with its displaced instructions, so that an unwinder finds its way at every instruction; the rows
//! of the thunk itself are those that the assembler made from `runtime/arch/x86_64/thunk.S`.

use crate::{field, image, put, put_mirror};
use anyhow::{Result, ensure};
use nopal_abi::{
    KIND_ENTRY, KIND_ENTRY_ARGS, KIND_EXIT, KIND_EXIT_RESULT, KIND_ONLY, KIND_ONLY_ARGS,
};
use std::ops::Range;

/// What a thunk records, and whether it wraps the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorder {
    pub arguments: bool,
    pub wraps: bool,
    /// Calls nested deeper than the process's limit are not recorded.
    pub limits_depth: bool,
}

/// What the runtime does when a hooked function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stub {
    Jump,
    Libraries,
    Exec,
    ExecAt,
    ExecDescriptor,
    LockAll,
    Prctl,
    Seccomp,
    SystemCall,
    FindObject,
    IterateObjects,
}

impl Stub {
    fn offset(self) -> usize {
        match self {
            Stub::Jump => image::STUB_JUMP,
            Stub::Libraries => image::STUB_LIBRARIES,
            Stub::Exec => image::STUB_EXEC,
            Stub::ExecAt => image::STUB_EXEC_AT,
            Stub::ExecDescriptor => image::STUB_EXEC_DESCRIPTOR,
            Stub::LockAll => image::STUB_LOCK_ALL,
            Stub::Prctl => image::STUB_PRCTL,
            Stub::Seccomp => image::STUB_SECCOMP,
            Stub::SystemCall => image::STUB_SYSTEM_CALL,
            Stub::FindObject => image::STUB_FIND_OBJECT,
            Stub::IterateObjects => image::STUB_ITERATE_OBJECTS,
        }
    }
}

/// How unwinding changes from an offset in a body on. Registers have DWARF's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The canonical frame address is `register + offset`.
    Cfa { register: u16, offset: i32 },
    /// The caller's value of `register` is at the frame address plus `offset`.
    Saved { register: u16, offset: i32 },
    /// `register` holds the caller's value.
    Restored { register: u16 },
}

/// Addresses of one thunk or hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thunk {
    /// Where the site's jump goes; the switch is its first two bytes.
    pub entry: u64,
    /// Where the displaced instructions begin.
    pub body: u64,
    /// Where a wrapped function returns to: the word that stands in its slot meanwhile. `None` for hooks.
    pub after_call: Option<u64>,
}

/// A finished block, to be put at the address that it was made for.
#[derive(Debug)]
pub struct Block {
    pub bytes: Vec<u8>,
    pub low: u64,
    pub high: u64,
    pub header: u64,
    pub entries_only: Vec<EntryOnly>,
}

/// Bytes for a thunk that wraps calls, after which it records entries only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryOnly {
    /// From the block's start.
    pub offset: usize,
    pub bytes: [u8; ENTRY_BYTES],
}

/// The record word, then the call that records: the operand of `mov imm32, %ecx`, then `e8 rel32`.
const ENTRY_BYTES: usize = image::THUNK_ENTRY_CALL - image::THUNK_ENTRY_WORD + 4;

/// What a thunk or hook adds to its block at most, unwind table included, `undo` not: for `body` bytes of displaced instructions,
/// and `rows` of unwinding.
pub const fn thunk_bound(body: usize, rows: usize) -> usize {
    // A row: DW_CFA_advance_loc2, then an instruction with two operands of up to 5 bytes.
    const ROW: usize = 3 + 1 + 2 * 5;
    const ENTRY: usize = 4 * size_of::<u32>() + 1;
    const TABLE: usize = 2 * size_of::<u32>();
    let template = image::THUNK_END - image::THUNK;
    ALIGN + template + body + ENTRY + image::THUNK_CFI.len() + rows * ROW + 8 + TABLE
}

/// What a block takes at most besides its thunks.
pub const BLOCK_BOUND: usize = 128;

#[derive(Debug)]
pub struct BlockBuilder {
    at: u64,
    image_at: u64,
    /// How to unwind in a thunk and in a hook, before their bodies.
    thunk_program: Vec<u8>,
    hook_program: Vec<u8>,
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    /// The unwinding programs of the frames, one after another.
    programs: Vec<u8>,
    entries_only: Vec<EntryOnly>,
}

#[derive(Debug)]
struct Frame {
    begin: usize,
    end: usize,
    /// In the programs.
    program: Range<usize>,
}

const ALIGN: usize = 16;
const NOP2: [u8; 2] = [0x66, 0x90];
const INT3: u8 = 0xcc;

impl BlockBuilder {
    /// A block for address `at`, in an arena whose image is at `image_at`.
    pub fn new(at: u64, image_at: u64, mirror: i64) -> BlockBuilder {
        let with_mirror = |program: &[u8]| {
            let mut program = program.to_vec();
            put_mirror(&mut program, mirror);
            program
        };
        BlockBuilder {
            at,
            image_at,
            thunk_program: with_mirror(image::THUNK_CFI),
            hook_program: with_mirror(image::HOOK_CFI),
            bytes: Vec::new(),
            frames: Vec::new(),
            programs: Vec::new(),
            entries_only: Vec::new(),
        }
    }

    /// Makes room for a block of so many bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Bytes that the block takes so far, without its unwind table.
    pub fn code_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a thunk for `site`, switched on, with room for a body, which `write` fills in: it gets the body's
    /// address. `rows` tell how to unwind in the body.
    pub fn thunk(
        &mut self,
        site: u32,
        recorder: Recorder,
        body_bytes: usize,
        rows: &[(u16, Row)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        ensure!(site < nopal_abi::SITE_LIMIT, "site numbers are used up");
        let template = &image::BYTES[image::THUNK..image::THUNK_END];
        let (only_kind, only) = if recorder.arguments {
            (KIND_ONLY_ARGS, image::ENTRY_ONLY_ARGS)
        } else {
            (KIND_ONLY, image::ENTRY_ONLY)
        };
        let (entry_kind, entry) = match (recorder.wraps, recorder.arguments, recorder.limits_depth)
        {
            (true, false, false) => (KIND_ENTRY, image::ENTRY),
            (true, false, true) => (KIND_ENTRY, image::ENTRY_DEPTH),
            (true, true, false) => (KIND_ENTRY_ARGS, image::ENTRY_ARGS),
            (true, true, true) => (KIND_ENTRY_ARGS, image::ENTRY_ARGS_DEPTH),
            (false, _, _) => (only_kind, only),
        };
        let (exit_kind, exit) = match (recorder.arguments, recorder.limits_depth) {
            (false, false) => (KIND_EXIT, image::EXIT),
            (false, true) => (KIND_EXIT, image::EXIT_DEPTH),
            (true, false) => (KIND_EXIT_RESULT, image::EXIT_RESULT),
            (true, true) => (KIND_EXIT_RESULT, image::EXIT_RESULT_DEPTH),
        };
        let begin = self.append(template, body_bytes, write)?;
        let program = self.programs.len();
        self.programs.extend_from_slice(&self.thunk_program);
        self.frame(begin, program, rows);
        let at = |label: usize| begin + (label - image::THUNK);
        let word = |kind: u32| (kind | site << 4).to_le_bytes();
        put(
            &mut self.bytes,
            at(image::THUNK_ENTRY_WORD) - 4,
            &word(entry_kind),
        );
        put(
            &mut self.bytes,
            at(image::THUNK_EXIT_WORD) - 4,
            &word(exit_kind),
        );
        self.relative(at(image::THUNK_ENTRY_CALL), self.image_at + entry as u64)?;
        self.relative(at(image::THUNK_EXIT_CALL), self.image_at + exit as u64)?;
        let body = self.at + (begin + template.len()) as u64;
        self.relative(at(image::THUNK_BODY_CALL), body)?;
        if recorder.wraps {
            let offset = at(image::THUNK_ENTRY_WORD) - 4;
            let mut bytes: [u8; ENTRY_BYTES] = field(&self.bytes, offset);
            let distance =
                self.distance(at(image::THUNK_ENTRY_CALL), self.image_at + only as u64)?;
            bytes[..4].copy_from_slice(&word(only_kind));
            bytes[ENTRY_BYTES - 4..].copy_from_slice(&distance);
            self.entries_only.push(EntryOnly { offset, bytes });
        }
        Ok(Thunk {
            entry: self.at + begin as u64,
            body,
            after_call: Some(self.at + at(image::THUNK_RETURN) as u64),
        })
    }

    /// Appends a hook, likewise.
    pub fn hook(
        &mut self,
        stub: Stub,
        body_bytes: usize,
        rows: &[(u16, Row)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        let template = &image::BYTES[image::HOOK..image::HOOK_END];
        let begin = self.append(template, body_bytes, write)?;
        let program = self.programs.len();
        self.programs.extend_from_slice(&self.hook_program);
        self.frame(begin, program, rows);
        let at = |label: usize| begin + (label - image::HOOK);
        let body = self.at + (begin + template.len()) as u64;
        self.relative(at(image::HOOK_BODY), body)?;
        self.relative(at(image::HOOK_STUB), self.image_at + stub.offset() as u64)?;
        Ok(Thunk {
            entry: self.at + begin as u64,
            body,
            after_call: None,
        })
    }

    fn append(
        &mut self,
        template: &[u8],
        body_bytes: usize,
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<usize> {
        let begin = self.bytes.len().next_multiple_of(ALIGN);
        self.bytes.resize(begin, INT3);
        self.bytes.extend_from_slice(template);
        let body = self.bytes.len();
        self.bytes.resize(body + body_bytes, INT3);
        write(self.at + body as u64, &mut self.bytes[body..])?;
        Ok(begin)
    }

    /// Describes what begins at `begin` and goes on to the end, by the last of the programs and `rows`.
    fn frame(&mut self, begin: usize, program: usize, rows: &[(u16, Row)]) {
        let mut location = 0;
        for (offset, row) in rows {
            advance(&mut self.programs, offset.saturating_sub(location));
            location = *offset;
            row.encode(&mut self.programs);
        }
        self.frames.push(Frame {
            begin,
            end: self.bytes.len(),
            program: program..self.programs.len(),
        });
    }

    /// Fills in the 4 bytes before `end` with the distance from there to `target`.
    fn relative(&mut self, end: usize, target: u64) -> Result<()> {
        let distance = self.distance(end, target)?;
        put(&mut self.bytes, end - 4, &distance);
        Ok(())
    }

    fn distance(&self, end: usize, target: u64) -> Result<[u8; 4]> {
        let distance = target.wrapping_sub(self.at + end as u64) as i64;
        Ok(i32::try_from(distance)?.to_le_bytes())
    }

    /// Appends the unwind table, and before its header `undo`: whatever the tool must know to take the block's sites out
    /// again, with its length in the 8 bytes behind it, aligned to 8.
    pub fn finish(mut self, undo: &[u8]) -> Result<Block> {
        let high = self.at + self.bytes.len() as u64;
        let frames = std::mem::take(&mut self.frames);
        self.align(8);
        let frame_section = self.bytes.len();
        self.common_entry()?;
        let mut table = Vec::with_capacity(frames.len());
        for frame in &frames {
            table.push((frame.begin, self.bytes.len()));
            self.frame_entry(frame, frame_section)?;
        }
        self.bytes.extend_from_slice(&[0; 4]);
        self.align(8);
        self.bytes.extend_from_slice(undo);
        self.align(8);
        self.bytes
            .extend_from_slice(&(undo.len() as u64).to_le_bytes());
        let header = self.bytes.len();
        self.bytes
            .extend_from_slice(&[1, PC_RELATIVE_4, UNSIGNED_4, DATA_RELATIVE_4]);
        let pointer = i32::try_from(frame_section as i64 - self.bytes.len() as i64)?;
        self.bytes.extend_from_slice(&pointer.to_le_bytes());
        self.bytes
            .extend_from_slice(&u32::try_from(table.len())?.to_le_bytes());
        for (code, frame) in table {
            self.bytes
                .extend_from_slice(&i32::try_from(code as i64 - header as i64)?.to_le_bytes());
            self.bytes
                .extend_from_slice(&i32::try_from(frame as i64 - header as i64)?.to_le_bytes());
        }
        Ok(Block {
            low: self.at,
            high,
            header: self.at + header as u64,
            entries_only: self.entries_only,
            bytes: self.bytes,
        })
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// The CIE: at entry the frame address is rsp + 8, with the return address below it.
    fn common_entry(&mut self) -> Result<()> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[0, 0, 0, 0, 1]);
        self.bytes.extend_from_slice(b"zPR\0");
        self.bytes
            .extend_from_slice(&[1, 0x78, RETURN_ADDRESS, 6, PC_RELATIVE_4]);
        let personality = self.image_at + image::PERSONALITY as u64;
        self.bytes.extend_from_slice(&[0; 4]);
        self.relative_to_field(personality)?;
        self.bytes.push(PC_RELATIVE_4);
        self.bytes
            .extend_from_slice(&[DW_CFA_DEF_CFA, RSP, 8, DW_CFA_OFFSET | RETURN_ADDRESS, 1]);
        self.end_entry(begin);
        Ok(())
    }

    fn frame_entry(&mut self, frame: &Frame, section: usize) -> Result<()> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes
            .extend_from_slice(&u32::try_from(begin + 4 - section)?.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.relative_to_field(self.at + frame.begin as u64)?;
        self.bytes
            .extend_from_slice(&u32::try_from(frame.end - frame.begin)?.to_le_bytes());
        self.bytes.push(0);
        self.bytes
            .extend_from_slice(&self.programs[frame.program.clone()]);
        self.end_entry(begin);
        Ok(())
    }

    /// Fills in the last 4 bytes with the distance from themselves to `target`.
    fn relative_to_field(&mut self, target: u64) -> Result<()> {
        let field = self.bytes.len() - 4;
        let distance = i32::try_from(target.wrapping_sub(self.at + field as u64) as i64)?;
        put(&mut self.bytes, field, &distance.to_le_bytes());
        Ok(())
    }

    /// Pads with DW_CFA_nop, and fills in the length, which does not count itself.
    fn end_entry(&mut self, begin: usize) {
        let length = (self.bytes.len() - begin - 4).next_multiple_of(8) + 4;
        self.bytes.resize(begin + 4 + length, 0);
        put(&mut self.bytes, begin, &(length as u32).to_le_bytes());
    }
}

const PC_RELATIVE_4: u8 = 0x1b;
const DATA_RELATIVE_4: u8 = 0x3b;
const UNSIGNED_4: u8 = 0x03;
const DW_CFA_DEF_CFA: u8 = 0x0c;
const DW_CFA_DEF_CFA_SF: u8 = 0x12;
const DW_CFA_OFFSET: u8 = 0x80;
const DW_CFA_OFFSET_EXTENDED_SF: u8 = 0x11;
const DW_CFA_RESTORE_EXTENDED: u8 = 0x06;
const DW_CFA_ADVANCE_LOC2: u8 = 0x03;
const DW_CFA_ADVANCE_LOC: u8 = 0x40;
const RETURN_ADDRESS: u8 = 16;
const RSP: u8 = 7;

/// The CIE's factor for offsets.
const DATA_ALIGN: i32 = -8;

impl Row {
    fn encode(&self, program: &mut Vec<u8>) {
        match *self {
            Row::Cfa { register, offset } if offset >= 0 => {
                program.push(DW_CFA_DEF_CFA);
                uleb(program, u64::from(register));
                uleb(program, offset as u64);
            }
            Row::Cfa { register, offset } => {
                program.push(DW_CFA_DEF_CFA_SF);
                uleb(program, u64::from(register));
                sleb(program, offset / DATA_ALIGN);
            }
            Row::Saved { register, offset } => {
                program.push(DW_CFA_OFFSET_EXTENDED_SF);
                uleb(program, u64::from(register));
                sleb(program, offset / DATA_ALIGN);
            }
            Row::Restored { register } => {
                program.push(DW_CFA_RESTORE_EXTENDED);
                uleb(program, u64::from(register));
            }
        }
    }
}

fn sleb(program: &mut Vec<u8>, mut value: i32) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            program.push(byte);
            return;
        }
        program.push(byte | 0x80);
    }
}

fn advance(program: &mut Vec<u8>, bytes: u16) {
    if bytes == 0 {
    } else if bytes < 64 {
        program.push(DW_CFA_ADVANCE_LOC | bytes as u8);
    } else {
        program.push(DW_CFA_ADVANCE_LOC2);
        program.extend_from_slice(&bytes.to_le_bytes());
    }
}

fn uleb(program: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            program.push(byte);
            return;
        }
        program.push(byte | 0x80);
    }
}

/// The two bytes that switch a thunk on, or off.
impl Thunk {
    pub fn switch(&self, on: bool) -> [u8; 2] {
        if on {
            NOP2
        } else {
            [0xeb, (self.body - self.entry - 2) as u8]
        }
    }
}
