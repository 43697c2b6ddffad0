//! Blocks: thunks and hooks one after another, followed by their unwind table. It has one FDE for each thunk with its
//! displaced instructions, so that unwinding works at every instruction; the rows of the thunk itself are those that
//! the assembler made from `runtime/arch/x86_64/thunk.S`.

use crate::arch::{self, DISTANCE, NEVER_RUN, RED_ZONE, RETURN_ADDRESS, STACK_POINTER};
use crate::headers::{self, Mark};
use crate::process::COUNTED_BYTES;
use crate::stub::Stub;
use crate::{field, image, put, put_mirror};
use anyhow::{Result, ensure};
use nopal_abi::{
    COUNTER_SITES_SHIFT, Capture, KIND_ENTRY, KIND_ENTRY_ARGS, KIND_EXIT, KIND_EXIT_RESULT,
    KIND_ONLY, KIND_ONLY_ARGS,
};
use nopal_plan::{FrameChange, JUMP};
use std::ops::Range;
use zerocopy::IntoBytes;

pub use crate::headers::{FETCH_LOADS, FETCHES, Fetch};

/// The data that a thunk records, and whether it wraps the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorder {
    /// A call is wrapped if its end is recorded.
    pub capture: Capture,
    /// Calls nested deeper than the process's limit are not recorded.
    pub limits_depth: bool,
}

/// The data that a probe records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The number of its event.
    pub event: u32,
    /// A field of `struct nopal_mark`.
    pub shape: u64,
    pub values: Values,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// Registers in the processor's numbering, without the stack pointer.
    Registers(Vec<u8>),
    Fetched(Vec<Fetch>),
}

/// In place of a register in a [`Fetch`].
pub const FETCH_CONSTANT: u8 = headers::FETCH_CONSTANT as u8;

/// How a thunk treats calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switched {
    /// They are recorded.
    On,
    /// Each adds 1 to a counter. Only thunks of functions can do this.
    Counting,
    Off,
}

/// Addresses of one thunk or hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thunk {
    /// The target of the site's jump; its first two bytes are the switch.
    pub entry: u64,
    /// The begin of the displaced instructions.
    pub body: u64,
    /// The address to which a wrapped function returns, which is in its slot meanwhile. `None` for hooks.
    pub after_call: Option<u64>,
}

/// A finished block.
#[derive(Debug)]
pub struct Block {
    /// The bytes that were not handed over before.
    pub bytes: Vec<u8>,
    pub handed_over: usize,
    pub low: u64,
    pub high: u64,
    pub header: u64,
    pub entries_only: Vec<EntryOnly>,
}

/// Bytes by which a thunk that wraps calls becomes one that records entries only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryOnly {
    /// From the block's start.
    pub offset: usize,
    pub bytes: [u8; ENTRY_BYTES],
}

/// The record word, then the call that records.
const ENTRY_BYTES: usize = image::THUNK_ENTRY_CALL - image::THUNK_ENTRY_WORD + 4;

/// The most bytes that a thunk or hook adds to its block, with its unwind table but without `undo`, for `body` bytes of
/// displaced instructions and `rows` of unwinding.
pub const fn thunk_bound(body: usize, rows: usize) -> usize {
    // A row: DW_CFA_advance_loc2, then an instruction with two operands of up to 5 bytes.
    const ROW: usize = 3 + 1 + 2 * 5;
    const ENTRY: usize = 4 * size_of::<u32>() + 1;
    const TABLE: usize = 2 * size_of::<u32>();
    let template = image::THUNK_END - image::THUNK;
    ALIGN + template + body + ENTRY + image::THUNK_CFI.len() + rows * ROW + 8 + TABLE
}

/// The same for a detour.
pub const fn detour_bound(body: usize, rows: usize) -> usize {
    const PROBE: usize = size_of::<Mark>() + FETCHES * size_of::<Fetch>();
    thunk_bound(body, rows + 5) + 2 * FETCHES + PROBE + 8
}

/// The most bytes that a block takes besides its thunks.
pub const BLOCK_BOUND: usize = 128;

#[derive(Debug)]
pub struct BlockBuilder {
    at: u64,
    image_at: u64,
    /// The address of the tables by which calls are counted.
    counted: u64,
    /// The unwind rows of a thunk and of a hook, before their bodies.
    thunk_program: Vec<u8>,
    hook_program: Vec<u8>,
    bytes: Output,
    /// The unwind table's CIE and FDEs, without the fields that depend on its address.
    unwinding: Vec<u8>,
    /// The offset of each FDE's code in the block, and of the FDE in the table.
    frames: Vec<(usize, usize)>,
    entries_only: Vec<EntryOnly>,
}

/// The code before a body, which is described with it.
#[derive(Debug, Clone, Copy)]
enum BeforeBody {
    Thunk,
    Hook,
    /// Nothing besides the body's rows.
    Detour,
}

const ALIGN: usize = 16;

/// A block under construction.
#[derive(Debug)]
struct Output {
    /// The bytes that have not been handed over.
    bytes: Vec<u8>,
    handed_over: usize,
    /// The size limit of the block.
    room: usize,
}

impl Output {
    fn len(&self) -> usize {
        self.handed_over + self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        ensure!(self.len() + bytes.len() <= self.room, TOO_LARGE);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn fill_up_to(&mut self, length: usize, byte: u8) -> Result<()> {
        ensure!(length <= self.room, TOO_LARGE);
        self.bytes.resize(length - self.handed_over, byte);
        Ok(())
    }

    fn align(&mut self, to: usize) -> Result<()> {
        self.fill_up_to(self.len().next_multiple_of(to), 0)
    }

    /// Hands over the pending bytes.
    fn hand_over(&mut self, keep: &mut impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        keep(self.handed_over, &self.bytes)?;
        self.handed_over += self.bytes.len();
        self.bytes.clear();
        Ok(())
    }

    /// Adds and hands over bytes from elsewhere.
    fn pass(
        &mut self,
        bytes: &[u8],
        keep: &mut impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.hand_over(keep)?;
        ensure!(self.len() + bytes.len() <= self.room, TOO_LARGE);
        keep(self.handed_over, bytes)?;
        self.handed_over += bytes.len();
        Ok(())
    }

    /// Offsets are in the block, and must be pending.
    #[inline(always)]
    fn put(&mut self, offset: usize, value: &[u8]) {
        put(&mut self.bytes, offset - self.handed_over, value);
    }

    fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        field(&self.bytes, offset - self.handed_over)
    }

    fn from(&mut self, offset: usize) -> &mut [u8] {
        &mut self.bytes[offset - self.handed_over..]
    }
}

const TOO_LARGE: &str = "a block is larger than its room";

/// The least number of bytes handed over at a time: few calls, but within a processor's cache.
const PIECE: usize = 64 << 10;

impl BlockBuilder {
    /// A block for address `at`, in an arena whose image is at `image_at`, of no more than `room` bytes. `counted` is a
    /// field of the process structure.
    pub fn new(at: u64, image_at: u64, mirror: i64, counted: u64, room: usize) -> BlockBuilder {
        let with_mirror = |program: &[u8]| {
            let mut program = program.to_vec();
            put_mirror(&mut program, mirror);
            program
        };
        BlockBuilder {
            at,
            image_at,
            counted,
            thunk_program: with_mirror(image::THUNK_CFI),
            hook_program: with_mirror(image::HOOK_CFI),
            bytes: Output {
                bytes: Vec::with_capacity(room.min(2 * PIECE)),
                handed_over: 0,
                room,
            },
            unwinding: common_entry(),
            frames: Vec::new(),
            entries_only: Vec::new(),
        }
    }

    /// Announces the number of thunks.
    pub fn reserve(&mut self, thunks: usize) {
        /// The usual size of an FDE.
        const ENTRY: usize = 64;
        self.frames.reserve(thunks);
        self.entries_only.reserve(thunks);
        self.unwinding.reserve(thunks * ENTRY);
    }

    /// When many bytes are complete, `keep` gets them, with their offset in the block.
    pub fn hand_over(&mut self, mut keep: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        match self.bytes.bytes.len() {
            PIECE.. => self.bytes.hand_over(&mut keep),
            _ => Ok(()),
        }
    }

    /// Switches off the thunk or hook that was made last.
    pub fn switch_off(&mut self, last: &Thunk) {
        let offset = (last.entry - self.at) as usize;
        self.bytes.put(offset, &last.switch(Switched::Off));
    }

    /// The current size of the block, without its unwind table.
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
        rows: &[(u16, FrameChange)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        let exit = self.image_at + exit_of(recorder).1 as u64;
        self.thunk_with_exit(exit, site, recorder, body_bytes, rows, write)
    }

    /// The same with a probe where the function returns, before its exit is recorded: the thunk's call of the exit
    /// leads through a detour.
    pub fn thunk_with_probe(
        &mut self,
        probe: &Probe,
        site: u32,
        recorder: Recorder,
        body_bytes: usize,
        rows: &[(u16, FrameChange)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        let exit = self.image_at + exit_of(recorder).1 as u64;
        let called = [(
            0,
            FrameChange::Cfa {
                register: STACK_POINTER.into(),
                offset: 8,
            },
        )];
        let detour = self.detour(probe, JUMP, &called, |at, out| {
            let distance = i32::try_from(exit.wrapping_sub(at + JUMP as u64) as i64)?;
            put(out, 0, &arch::jump(distance));
            Ok(())
        })?;
        self.thunk_with_exit(detour.entry, site, recorder, body_bytes, rows, write)
    }

    fn thunk_with_exit(
        &mut self,
        exit: u64,
        site: u32,
        recorder: Recorder,
        body_bytes: usize,
        rows: &[(u16, FrameChange)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        ensure!(site < nopal_abi::SITE_LIMIT, "site numbers are used up");
        let template = &image::BYTES[image::THUNK..image::THUNK_END];
        let (only_kind, only) = only_of(recorder);
        let (entry_kind, entry) = match recorder.capture.ends {
            true => entry_of(recorder),
            false => (only_kind, only),
        };
        let exit_kind = exit_of(recorder).0;
        let begin = self.append(template, body_bytes, write)?;
        self.frame(begin..self.bytes.len(), BeforeBody::Thunk, rows);
        let at = |label: usize| begin + (label - image::THUNK);
        let word = |kind: u32| (kind | site << 4).to_le_bytes();
        self.bytes
            .put(at(image::THUNK_ENTRY_WORD) - 4, &word(entry_kind));
        self.bytes
            .put(at(image::THUNK_EXIT_WORD) - 4, &word(exit_kind));
        self.relative(at(image::THUNK_ENTRY_CALL), self.image_at + entry as u64)?;
        self.relative(at(image::THUNK_EXIT_CALL), exit)?;
        let body = self.at + (begin + template.len()) as u64;
        self.relative(at(image::THUNK_BODY_CALL), body)?;
        self.count(site, at)?;
        if recorder.capture.ends {
            let offset = at(image::THUNK_ENTRY_WORD) - 4;
            let mut bytes: [u8; ENTRY_BYTES] = self.bytes.field(offset);
            let distance =
                self.distance(at(image::THUNK_ENTRY_CALL), self.image_at + only as u64)?;
            bytes[..4].copy_from_slice(&word(only_kind));
            bytes[ENTRY_BYTES - DISTANCE..].copy_from_slice(&distance);
            self.entries_only.push(EntryOnly { offset, bytes });
        }
        Ok(Thunk {
            entry: self.at + begin as u64,
            body,
            after_call: Some(self.at + at(image::THUNK_RETURN) as u64),
        })
    }

    /// Fills in the part of a thunk that counts; `at` tells where its labels are.
    fn count(&mut self, site: u32, at: impl Fn(usize) -> usize) -> Result<()> {
        const SITES: u32 = 1 << COUNTER_SITES_SHIFT;
        let group = u64::from(site / SITES) * COUNTED_BYTES;
        let table = self.counted.wrapping_add(group);
        let counter = site % SITES * size_of::<u64>() as u32;
        self.bytes
            .put(at(image::THUNK_COUNT_TABLE) - 8, &table.to_le_bytes());
        self.bytes
            .put(at(image::THUNK_COUNT_COUNTER) - 4, &counter.to_le_bytes());
        self.bytes
            .put(at(image::THUNK_COUNT_SITE) - 4, &site.to_le_bytes());
        let slowly = self.image_at + image::COUNT_SLOWLY as u64;
        self.relative(at(image::THUNK_COUNT_CALL), slowly)
    }

    /// Appends a hook, likewise.
    pub fn hook(
        &mut self,
        stub: Stub,
        body_bytes: usize,
        rows: &[(u16, FrameChange)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        let template = &image::BYTES[image::HOOK..image::HOOK_END];
        let begin = self.append(template, body_bytes, write)?;
        self.frame(begin..self.bytes.len(), BeforeBody::Hook, rows);
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

    /// Appends a detour, likewise. `rows` begin with how to unwind at the probe.
    pub fn detour(
        &mut self,
        probe: &Probe,
        body_bytes: usize,
        rows: &[(u16, FrameChange)],
        write: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Thunk> {
        let ((pushes, pushed), stub) = match &probe.values {
            Values::Registers(registers) => (arch::pushes(registers)?, image::STUB_PROBE),
            Values::Fetched(_) => (Default::default(), image::STUB_FETCH),
        };
        let before = image::DETOUR_VALUES - image::DETOUR;
        let mut code = image::BYTES[image::DETOUR..image::DETOUR_END].to_vec();
        code.splice(before..before, pushes.iter().copied());
        let begin = self.append(&code, body_bytes, write)?;
        let at = |label: usize| begin + (label - image::DETOUR) + pushes.len();
        let end = self.bytes.len();
        self.bytes.align(8)?;
        let mark = self.at + self.bytes.len() as u64;
        self.bytes.add(&probe.to_bytes())?;
        self.relative(at(image::DETOUR_MARK), mark)?;
        self.relative(at(image::DETOUR_CALL), self.image_at + stub as u64)?;
        let values = match &probe.values {
            Values::Registers(registers) => 8 * registers.len() as u32,
            Values::Fetched(_) => 0,
        };
        let below = RED_ZONE + values;
        self.bytes
            .put(at(image::DETOUR_END) - 4, &below.to_le_bytes());
        if !rows.is_empty() {
            let mut depths = vec![(before, RED_ZONE)];
            let pushed = pushed.iter().zip(1..);
            depths.extend(pushed.map(|(end, count)| (before + end, RED_ZONE + 8 * count)));
            depths.extend([
                (at(image::DETOUR_SAVED) - begin, below + 8),
                (at(image::DETOUR_RESTORED) - begin, below),
                (code.len(), 0),
            ]);
            let rows = detour_rows(rows, &depths, code.len());
            self.frame(begin..end, BeforeBody::Detour, &rows);
        }
        Ok(Thunk {
            entry: self.at + begin as u64,
            body: self.at + (begin + code.len()) as u64,
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
        let body = begin + template.len();
        self.bytes.fill_up_to(body + body_bytes, NEVER_RUN)?;
        self.bytes.put(begin, template);
        write(self.at + body as u64, self.bytes.from(body))?;
        Ok(begin)
    }

    /// Describes code by the rows before its body, and then `rows`.
    fn frame(&mut self, code: Range<usize>, before_body: BeforeBody, rows: &[(u16, FrameChange)]) {
        let begin = self.unwinding.len();
        self.frames.push((code.start, begin));
        let mut fields = [0; FDE_PROGRAM];
        put(&mut fields, 4, &(begin as u32 + 4).to_le_bytes());
        put(
            &mut fields,
            FDE_CODE + 4,
            &(code.len() as u32).to_le_bytes(),
        );
        self.unwinding.extend_from_slice(&fields);
        match before_body {
            BeforeBody::Thunk => self.unwinding.extend_from_slice(&self.thunk_program),
            BeforeBody::Hook => self.unwinding.extend_from_slice(&self.hook_program),
            BeforeBody::Detour => {}
        }
        let mut location = 0;
        for (offset, row) in rows {
            advance(&mut self.unwinding, offset.saturating_sub(location));
            location = *offset;
            encode(*row, &mut self.unwinding);
        }
        end_entry(&mut self.unwinding, begin);
    }

    /// Fills in the bytes before `end` with the distance from there to `target`.
    fn relative(&mut self, end: usize, target: u64) -> Result<()> {
        let distance = self.distance(end, target)?;
        self.bytes.put(end - DISTANCE, &distance);
        Ok(())
    }

    fn distance(&self, end: usize, target: u64) -> Result<[u8; DISTANCE]> {
        arch::distance(self.at + end as u64, target)
    }

    /// Appends the unwind table, and before its header `undo`: the data by which the tool can take the block's sites
    /// out again, with its length in the 8 bytes behind it, aligned to 8.
    pub fn finish(self, undo: &[u8]) -> Result<Block> {
        let handed_over = self.bytes.handed_over;
        let mut bytes = Vec::new();
        let block = self.finish_into(undo, |_, piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Block {
            bytes,
            handed_over,
            ..block
        })
    }

    /// The same, but all of it is handed over.
    pub fn finish_into(
        mut self,
        undo: &[u8],
        mut keep: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<Block> {
        let out = &mut self.bytes;
        let high = self.at + out.len() as u64;
        out.align(8)?;
        let section = out.len();
        let mut point = |field: usize, target: u64| {
            let distance = target.wrapping_sub(self.at + (section + field) as u64) as i64;
            let distance = i32::try_from(distance)?.to_le_bytes();
            put(&mut self.unwinding, field, &distance);
            anyhow::Ok(())
        };
        point(CIE_PERSONALITY, self.image_at + image::PERSONALITY as u64)?;
        for (code, entry) in &self.frames {
            point(entry + FDE_CODE, self.at + *code as u64)?;
        }
        out.pass(&self.unwinding, &mut keep)?;
        out.add(&[0; 4])?;
        out.align(8)?;
        let before = out.len();
        out.pass(undo, &mut keep)?;
        let undo = out.len() - before;
        out.align(8)?;
        out.add(&(undo as u64).to_le_bytes())?;
        let header = out.len();
        out.add(&[1, PC_RELATIVE_4, UNSIGNED_4, DATA_RELATIVE_4])?;
        let pointer = i32::try_from(section as i64 - out.len() as i64)?;
        out.add(&pointer.to_le_bytes())?;
        out.add(&u32::try_from(self.frames.len())?.to_le_bytes())?;
        let from_header = |place: usize| i32::try_from(place as i64 - header as i64);
        for (code, entry) in self.frames {
            let pair = [from_header(code)?, from_header(section + entry)?];
            out.add(pair.map(i32::to_le_bytes).as_flattened())?;
        }
        out.hand_over(&mut keep)?;
        Ok(Block {
            low: self.at,
            high,
            header: self.at + header as u64,
            entries_only: self.entries_only,
            handed_over: out.handed_over,
            bytes: Vec::new(),
        })
    }
}

/// Offsets in the CIE and in an FDE: of the distances that depend on their addresses, and of an FDE's instructions.
const CIE_PERSONALITY: usize = 18;
const FDE_CODE: usize = 8;
const FDE_PROGRAM: usize = 17;

/// The CIE: at entry the frame address is 8 above the stack pointer, with the return address below it.
fn common_entry() -> Vec<u8> {
    let mut entry = vec![0; 8];
    entry.extend([1]);
    entry.extend(b"zPR\0");
    entry.extend([1, 0x78, RETURN_ADDRESS, 6, PC_RELATIVE_4]);
    debug_assert_eq!(entry.len(), CIE_PERSONALITY);
    entry.extend([0; 4]);
    entry.extend([PC_RELATIVE_4]);
    entry.extend([
        DW_CFA_DEF_CFA,
        STACK_POINTER,
        8,
        DW_CFA_OFFSET | RETURN_ADDRESS,
        1,
    ]);
    end_entry(&mut entry, 0);
    entry
}

/// Pads the last entry, which begins at `begin`, with DW_CFA_nop, and fills in its length, which does not count itself.
fn end_entry(entries: &mut Vec<u8>, begin: usize) {
    let length = (entries.len() - begin - 4).next_multiple_of(8) + 4;
    entries.resize(begin + 4 + length, 0);
    put(entries, begin, &(length as u32).to_le_bytes());
}

/// The kind of the record of a wrapped call's entry, and the function that records it.
fn entry_of(recorder: Recorder) -> (u32, usize) {
    let Recorder {
        capture: Capture {
            arguments,
            call_sites,
            ..
        },
        limits_depth,
    } = recorder;
    let kind = match arguments {
        false => KIND_ENTRY,
        true => KIND_ENTRY_ARGS,
    };
    let entry = match (arguments, call_sites, limits_depth) {
        (false, false, false) => image::ENTRY,
        (false, false, true) => image::ENTRY_DEPTH,
        (false, true, false) => image::ENTRY_SITE,
        (false, true, true) => image::ENTRY_SITE_DEPTH,
        (true, false, false) => image::ENTRY_ARGS,
        (true, false, true) => image::ENTRY_ARGS_DEPTH,
        (true, true, false) => image::ENTRY_ARGS_SITE,
        (true, true, true) => image::ENTRY_ARGS_SITE_DEPTH,
    };
    (kind, entry)
}

/// The same of a call that is not wrapped.
fn only_of(recorder: Recorder) -> (u32, usize) {
    match (recorder.capture.arguments, recorder.capture.call_sites) {
        (false, false) => (KIND_ONLY, image::ENTRY_ONLY),
        (false, true) => (KIND_ONLY, image::ENTRY_ONLY_SITE),
        (true, false) => (KIND_ONLY_ARGS, image::ENTRY_ONLY_ARGS),
        (true, true) => (KIND_ONLY_ARGS, image::ENTRY_ONLY_ARGS_SITE),
    }
}

/// The kind of an exit's record, and the function that records it.
fn exit_of(recorder: Recorder) -> (u32, usize) {
    match (recorder.capture.arguments, recorder.limits_depth) {
        (false, false) => (KIND_EXIT, image::EXIT),
        (false, true) => (KIND_EXIT, image::EXIT_DEPTH),
        (true, false) => (KIND_EXIT_RESULT, image::EXIT_RESULT),
        (true, true) => (KIND_EXIT_RESULT, image::EXIT_RESULT_DEPTH),
    }
}

impl Probe {
    /// `struct nopal_mark` and its fetches.
    fn to_bytes(&self) -> Vec<u8> {
        let fetches: &[Fetch] = match &self.values {
            Values::Registers(_) => &[],
            Values::Fetched(fetches) => fetches,
        };
        let mark = Mark {
            event: self.event.into(),
            shape: self.shape,
            probes: fetches.len() as u64,
            ..Mark::default()
        };
        [mark.as_bytes(), fetches.as_bytes()].concat()
    }
}

/// The rows of a detour whose body begins at `body`: as at the probe from its start on, and at each of `depths` with
/// the stack pointer so many bytes lower than there. The registers that it pushes keep their values.
fn detour_rows(
    rows: &[(u16, FrameChange)],
    depths: &[(usize, u32)],
    body: usize,
) -> Vec<(u16, FrameChange)> {
    let at_probe = rows.iter().take_while(|(offset, _)| *offset == 0);
    let mut all: Vec<(u16, FrameChange)> = at_probe.copied().collect();
    let by_stack = all.iter().rev().find_map(|(_, row)| match *row {
        FrameChange::Cfa { register, offset } => Some((register, offset)),
        _ => None,
    });
    if let Some((register, offset)) = by_stack.filter(|cfa| cfa.0 == u16::from(STACK_POINTER)) {
        all.extend(depths.iter().map(|&(at, depth)| {
            let offset = offset.wrapping_add(depth as i32);
            (at as u16, FrameChange::Cfa { register, offset })
        }));
    }
    let behind = rows.iter().skip_while(|(offset, _)| *offset == 0);
    all.extend(behind.map(|&(offset, row)| (offset + body as u16, row)));
    all
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

/// The CIE's factor for offsets.
const DATA_ALIGN: i32 = -8;

fn encode(change: FrameChange, program: &mut Vec<u8>) {
    match change {
        FrameChange::Cfa { register, offset } if offset >= 0 => {
            program.push(DW_CFA_DEF_CFA);
            uleb(program, u64::from(register));
            uleb(program, offset as u64);
        }
        FrameChange::Cfa { register, offset } => {
            program.push(DW_CFA_DEF_CFA_SF);
            uleb(program, u64::from(register));
            sleb(program, offset / DATA_ALIGN);
        }
        FrameChange::Saved { register, offset } => {
            program.push(DW_CFA_OFFSET_EXTENDED_SF);
            uleb(program, u64::from(register));
            sleb(program, offset / DATA_ALIGN);
        }
        FrameChange::Restored { register } => {
            program.push(DW_CFA_RESTORE_EXTENDED);
            uleb(program, u64::from(register));
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

impl Thunk {
    /// The bytes that switch any thunk on.
    pub const ON: [u8; 2] = arch::SWITCHED_ON;

    /// The bytes that make any thunk of a function count.
    pub const COUNTING: [u8; 2] = arch::switched_over((image::THUNK_COUNT - image::THUNK) as u64);

    pub fn switch(&self, to: Switched) -> [u8; 2] {
        match to {
            Switched::On => Thunk::ON,
            Switched::Counting => Thunk::COUNTING,
            Switched::Off => arch::switched_over(self.body - self.entry),
        }
    }
}
