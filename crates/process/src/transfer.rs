//! Transfers that a stop has cut short.
//!
//! A blocking `write` that has written a part of its bytes returns their number when a tracer stops its thread, as it
//! does at any signal. A program that handles no signals may take that for the whole. So the thread goes on in code that
//! makes the call again for the rest, and returns with the sum behind the program's own call. If we are killed, it does
//! the same.
//!
//! A handler that runs before the call is made again ends the transfer, as it would have without us. One with SA_RESTART
//! that runs later, before the call has moved anything, does not: the kernel makes that call again.
//!
//! The code stands where nothing else is: in the zeroes between the end of the program's text, or its loader's, and the
//! end of the page. It stays there, since the thread may wait in it as long as the call lasts, also when we have left.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use anyhow::Result;

use crate::arch::rest;
use crate::deadline::{Limit, Socket};
use crate::restart::ERESTARTNOHAND;
use crate::way_back::own_stack;
use crate::{Mapping, Memory, Registers, Thread, auxiliary};

const PAGE: u64 = 4096;

/// Below the stack pointer, where a function without a frame of its own has data.
const RED_ZONE: u64 = 128;

/// The kernel transfers no more at once.
const MOST: u64 = 0x7fff_f000;

/// The sizes of `struct iovec` and `struct msghdr`.
const PIECE: usize = 16;
const MESSAGE: usize = 56;

/// Vectors of more pieces are left as they are.
const MOST_PIECES: usize = 64;

/// Room for a frame and what is copied, on the thread's stack.
const ROOM: usize = (rest::FRAME * 8 + MESSAGE + MOST_PIECES * PIECE).next_multiple_of(64);

/// Calls that return how much they have transferred. `splice` may always transfer less than it could.
const CALLS: [i64; 8] = [
    libc::SYS_getrandom,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_sendfile,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Whether the thread's system call may have transferred less than it should.
pub(crate) fn may_be_cut_short(registers: &Registers) -> bool {
    registers.result() > 0 && CALLS.contains(&registers.system_call())
}

/// Has an interrupted thread behind such a call go on with the rest, if the call was cut short. Leaves it as it is
/// where that cannot be. `maps` are the process's mappings, if they have been read at this stop: those of its threads'
/// stacks remain.
pub(crate) fn go_on(
    thread: &mut Thread,
    registers: &Registers,
    maps: &OnceCell<Vec<Mapping>>,
) -> Result<()> {
    let memory = Memory::open(thread.pid())?;
    let returned = returned(&memory, registers)?;
    let Some(rest) = Rest::of(&memory, &returned)? else {
        return Ok(());
    };
    // A timeout of its own ends it as well. The program may take calls from elsewhere for those of other programs.
    if !gives_all(thread, &returned)
        || Limit::of(thread, &returned).is_some()
        || thread.dispatches_system_calls()
    {
        return Ok(());
    }
    let maps = match maps.get() {
        Some(maps) => maps,
        None => {
            let read = crate::maps(thread.pid())?;
            maps.get_or_init(|| read)
        }
    };
    let (stack, code) = (
        own_stack(maps, &returned),
        code(thread.pid(), &memory, maps),
    );
    let (Some(stack), Some(code)) = (stack, code) else {
        return Ok(());
    };
    // One that was cut short in that code has its frame at one of two places: it stays as it is until the registers change.
    let top = (returned.stack_pointer().saturating_sub(RED_ZONE) & !15).saturating_sub(ROOM as u64);
    let frame = match registers.stack_pointer() == top {
        true => top.saturating_sub(ROOM as u64),
        false => top,
    };
    if frame < stack.start {
        return Ok(());
    }
    let copied = frame + rest::FRAME as u64 * 8;
    let words = rest::frame(&returned).map(u64::to_le_bytes);
    memory.write(frame, words.as_flattened())?;
    memory.write(copied, &rest.copied(copied))?;
    if !is_code(&memory, code) {
        memory.write(code, &rest::REST)?;
    }
    let mut calling = returned;
    calling.set_arguments(rest.arguments(copied));
    calling.set_result(-ERESTARTNOHAND);
    calling.set_instruction_pointer(code + rest::BEHIND_CALL);
    calling.set_stack_pointer(frame);
    thread.set_registers(&calling)
}

/// The registers behind the program's own call, with the number of bytes transferred so far.
fn returned(memory: &Memory, registers: &Registers) -> Result<Registers> {
    let mut found = [0; rest::REST.len()];
    let start = registers
        .instruction_pointer()
        .wrapping_sub(rest::BEHIND_CALL);
    if memory.read(start, &mut found).is_err() || found != rest::REST {
        return Ok(*registers);
    }
    let mut frame = [0; rest::FRAME * 8];
    memory.read(registers.stack_pointer(), &mut frame)?;
    let (words, _) = frame.as_chunks();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    Ok(rest::returned(registers, std::array::from_fn(word)))
}

fn is_code(memory: &Memory, address: u64) -> bool {
    let mut found = [0; rest::REST.len()];
    memory.read(address, &mut found).is_ok() && found == rest::REST
}

/// The rest of a transfer.
struct Rest {
    /// The call's arguments, but for those that lead to what is copied.
    arguments: [u64; 6],
    /// The rest of a vector.
    pieces: Option<Vec<(u64, u64)>>,
    /// The message header that leads to the vector.
    message: Option<[u8; MESSAGE]>,
}

impl Rest {
    /// `None`: nothing is left, or the call was not one to wait for all.
    fn of(memory: &Memory, returned: &Registers) -> Result<Option<Rest>> {
        // Each call that sends without copying is notified of by its number.
        const NEVER_SENT: u64 =
            (libc::MSG_DONTWAIT | libc::MSG_OOB | libc::MSG_FASTOPEN | libc::MSG_ZEROCOPY) as u64;
        const NEVER_RECEIVED: u64 =
            (libc::MSG_DONTWAIT | libc::MSG_OOB | libc::MSG_PEEK | libc::MSG_TRUNC) as u64;
        const ALL: u64 = libc::MSG_WAITALL as u64;
        let done = returned.result() as u64;
        let arguments = returned.arguments();
        let [_, second, third, fourth, ..] = arguments;
        let is_wanted = match returned.system_call() {
            libc::SYS_recvfrom => fourth & ALL != 0 && fourth & NEVER_RECEIVED == 0,
            libc::SYS_sendto => fourth & NEVER_SENT == 0,
            libc::SYS_sendmsg => third & NEVER_SENT == 0,
            _ => true,
        };
        if !is_wanted {
            return Ok(None);
        }
        let mut rest = Rest {
            arguments,
            pieces: None,
            message: None,
        };
        // A socket that has taken a part raises no signal when its other end is closed.
        match returned.system_call() {
            libc::SYS_sendto => rest.arguments[3] |= libc::MSG_NOSIGNAL as u64,
            libc::SYS_sendmsg => rest.arguments[2] |= libc::MSG_NOSIGNAL as u64,
            _ => {}
        }
        match returned.system_call() {
            libc::SYS_writev => {
                rest.pieces = pieces_behind(memory, second, third, done)?;
                return Ok(rest.pieces.is_some().then_some(rest));
            }
            libc::SYS_sendmsg => {
                let mut message = [0; MESSAGE];
                memory.read(second, &mut message)?;
                let (words, _) = message.as_chunks();
                let word = |at: usize| u64::from_le_bytes(words[at]);
                let [vector, number, control, bytes] = [2, 3, 4, 5].map(word);
                if !has_descriptors_only(memory, control, bytes)? {
                    return Ok(None);
                }
                rest.pieces = pieces_behind(memory, vector, number, done)?;
                // Descriptors have gone with the first byte.
                message[32..48].fill(0);
                rest.message = Some(message);
                return Ok(rest.pieces.is_some().then_some(rest));
            }
            _ => {}
        }
        let (at, length) = match returned.system_call() {
            libc::SYS_getrandom => (Some(0), 1),
            // The file, or the place in it that the caller keeps, has moved on.
            libc::SYS_sendfile => (None, 3),
            _ => (Some(1), 2),
        };
        let whole = rest.arguments[length].min(MOST);
        rest.arguments[length] = whole.saturating_sub(done);
        if let Some(at) = at {
            rest.arguments[at] = rest.arguments[at].wrapping_add(done);
        }
        Ok((done < whole).then_some(rest))
    }

    /// The arguments of the call, with what is copied at an address.
    fn arguments(&self, copied: u64) -> [u64; 6] {
        let mut arguments = self.arguments;
        if let Some(pieces) = &self.pieces {
            arguments[1] = copied;
            if self.message.is_none() {
                arguments[2] = pieces.len() as u64;
            }
        }
        arguments
    }

    /// The bytes that are to be copied to an address.
    fn copied(&self, at: u64) -> Vec<u8> {
        let pieces = self.pieces.iter().flatten();
        let pieces: Vec<u8> = pieces
            .flat_map(|(from, length)| [*from, *length])
            .flat_map(u64::to_le_bytes)
            .collect();
        let Some(mut message) = self.message else {
            return pieces;
        };
        let vector = [at + MESSAGE as u64, (pieces.len() / PIECE) as u64];
        message[16..32].copy_from_slice(vector.map(u64::to_le_bytes).as_flattened());
        [&message[..], &pieces].concat()
    }
}

/// Whether control data is of descriptors, which go with the first byte. Other data is of each byte.
fn has_descriptors_only(memory: &Memory, control: u64, bytes: u64) -> Result<bool> {
    const MOST: u64 = 4096;
    const HEADER: usize = 16;
    let mut data = vec![0; bytes.min(MOST) as usize];
    memory.read(control, &mut data)?;
    let mut left = &data[..];
    while let Some((header, _)) = left.split_first_chunk::<HEADER>() {
        let word = |at: usize| i32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let length = u64::from_le_bytes(std::array::from_fn(|byte| header[byte])) as usize;
        let is_of_descriptors = (word(8), word(12)) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        if !is_of_descriptors || length < HEADER {
            return Ok(false);
        }
        let next = length.checked_next_multiple_of(8);
        left = next.and_then(|next| left.get(next..)).unwrap_or_default();
    }
    Ok(bytes <= MOST)
}

/// The pieces of a vector behind its first bytes. `None`: nothing is left, or they are too many.
fn pieces_behind(
    memory: &Memory,
    vector: u64,
    number: u64,
    mut done: u64,
) -> Result<Option<Vec<(u64, u64)>>> {
    if number > MOST_PIECES as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; number as usize * PIECE];
    memory.read(vector, &mut bytes)?;
    let (words, _) = bytes.as_chunks();
    let mut pieces = Vec::new();
    for piece in words.chunks_exact(2) {
        let (from, length) = (u64::from_le_bytes(piece[0]), u64::from_le_bytes(piece[1]));
        let before = done.min(length);
        done -= before;
        if length > before {
            pieces.push((from.wrapping_add(before), length - before));
        }
    }
    // The kernel cuts longer transfers.
    let left: u128 = pieces.iter().map(|(_, length)| u128::from(*length)).sum();
    Ok((left > 0 && left <= u128::from(MOST)).then_some(pieces))
}

/// Whether the kernel transfers all bytes unless it is interrupted: between memory and a pipe, a socket or a terminal that
/// waits for its other end; from a file to a socket; and from the devices that give zeroes and random bytes.
fn gives_all(thread: &Thread, registers: &Registers) -> bool {
    const MEMORY: u32 = 1;
    let number = registers.system_call();
    if number == libc::SYS_getrandom {
        return true;
    }
    let [number_of_file, ..] = registers.arguments();
    let number_of_file = number_of_file as i32;
    let folder = format!("/proc/{}/task/{}", thread.pid(), thread.tid());
    let of = |what: &str| format!("{folder}/{what}/{number_of_file}");
    let Ok(file) = fs::metadata(of("fd")) else {
        return false;
    };
    let kind = file.file_type();
    let device = (libc::major(file.rdev()), libc::minor(file.rdev()));
    let is_device = kind.is_char_device();
    if number == libc::SYS_read {
        return is_device && matches!(device, (MEMORY, 5 | 8 | 9));
    }
    let is_terminal = is_device && matches!(device, (4 | 5 | 136..=143, _));
    let is_stream = || Socket::open(thread, number_of_file).is_some_and(|it| it.is_stream());
    let waits = kind.is_socket() && is_stream()
        || (kind.is_fifo() || is_terminal) && number != libc::SYS_sendfile;
    let mut text = String::new();
    let read = File::open(of("fdinfo")).and_then(|mut file| file.read_to_string(&mut text));
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    waits && read.is_ok() && flags.is_some_and(|flags| flags & libc::O_NONBLOCK == 0)
}

/// The address at which the code is, or may be written: in the last bytes of the last page of the program's text, or
/// its loader's, if they belong to nothing.
fn code(pid: i32, memory: &Memory, maps: &[Mapping]) -> Option<u64> {
    const HEADER: u64 = 64;
    let known = auxiliary(pid).ok()?;
    let program = known.program_headers?.checked_sub(HEADER);
    let mut files = [program, known.loader_base].into_iter().flatten();
    files.find_map(|header| {
        let end = text_end(memory, header)?;
        let code = (end.checked_next_multiple_of(PAGE)?).checked_sub(rest::REST.len() as u64)?;
        let mut found = [0; rest::REST.len()];
        memory.read(code, &mut found).ok()?;
        let map = maps.partition_point(|map| map.end <= code);
        let map = maps.get(map)?;
        let is_text = map.executable && !map.writable && !map.shared && map.inode != 0;
        let is_free = found == rest::REST || found.iter().all(|byte| *byte == 0);
        (code >= end && map.start <= code && is_text && is_free).then_some(code)
    })
}

/// The end of the text of an ELF file whose header is at an address.
fn text_end(memory: &Memory, header: u64) -> Option<u64> {
    const TYPE_LOAD: u32 = 1;
    const EXECUTABLE: u32 = 1;
    const ENTRY: usize = 56;
    let mut bytes = [0; 64];
    memory.read(header, &mut bytes).ok()?;
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    // 64 bits, and little-endian.
    if !bytes.starts_with(b"\x7fELF\x02\x01") || usize::from(half(54)) != ENTRY {
        return None;
    }
    let table = u64::from_le_bytes(bytes[32..40].try_into().ok()?);
    let mut entries = vec![0; usize::from(half(56)) * ENTRY];
    memory.read(header.checked_add(table)?, &mut entries).ok()?;
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let loads = entries.iter().filter_map(|entry| {
        let double = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
        // Flags, offset, address, the larger length.
        let load = (double(4), word(8), word(16), word(32).max(word(40)));
        (double(0) == TYPE_LOAD).then_some(load)
    });
    let first = loads.clone().find(|(_, offset, ..)| *offset == 0)?;
    let moved = header.wrapping_sub(first.2);
    let mut texts = loads.filter(|(flags, ..)| flags & EXECUTABLE != 0);
    let (_, _, address, length) = texts.next_back()?;
    moved.wrapping_add(address).checked_add(length)
}
