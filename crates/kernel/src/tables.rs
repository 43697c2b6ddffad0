//! Tables that the kernel keeps of its own text.

use std::ops::Range;

/// The table by which the kernel's own unwinder finds return addresses (ORC).
#[derive(Default)]
pub struct Unwinding {
    tables: Vec<UnwindTable>,
}

struct UnwindTable {
    text: Range<u64>,
    /// By the address from which on it holds: whether the return address is on top of the stack.
    rows: Vec<(u64, bool)>,
}

const ORC_ROW: usize = 6;
/// The distance of the frame above from a register, and the number of that register, in the lower half of the fifth
/// byte.
fn frame_of(row: &[u8]) -> (i16, u8) {
    (i16::from_le_bytes([row[0], row[1]]), row[4] & 0xf)
}

/// The stack pointer's number: 5, and in later kernels 3. Each function begins 8 bytes from the frame above.
fn stack_pointer(rows: &[u8]) -> u8 {
    let mut times = [0u32; 16];
    for row in rows.chunks_exact(ORC_ROW) {
        let (offset, register) = frame_of(row);
        times[usize::from(register)] += u32::from(offset == 8);
    }
    let registers = (0..16).max_by_key(|register| times[usize::from(*register)]);
    registers.unwrap_or_default()
}

/// The addresses that rows of `step` bytes have `at` bytes behind their begin, each as its distance from itself; the
/// table is at `address`.
fn addresses(address: u64, table: &[u8], step: usize, at: usize) -> impl Iterator<Item = u64> {
    let rows = table.chunks_exact(step).enumerate();
    rows.filter_map(move |(index, row)| {
        let distance = i32::from_le_bytes(*row[at..].first_chunk()?);
        let place = address.wrapping_add((index * step + at) as u64);
        Some(place.wrapping_add_signed(i64::from(distance)))
    })
}

impl Unwinding {
    /// Adds the table of a text: places, which are at `address`, and a row for each.
    pub fn add(&mut self, text: Range<u64>, address: u64, places: &[u8], rows: &[u8]) {
        let at_begin = (8, stack_pointer(rows));
        let rows = rows
            .chunks_exact(ORC_ROW)
            .map(|row| frame_of(row) == at_begin);
        let rows = addresses(address, places, 4, 0).zip(rows);
        let mut rows: Vec<(u64, bool)> = rows.filter(|(place, _)| text.contains(place)).collect();
        rows.sort_by_key(|(place, _)| *place);
        self.tables.push(UnwindTable { text, rows });
    }

    /// Whether the return address is on top of the stack at an instruction, as at the function's begin. Not known
    /// where there is no table.
    pub fn is_frame_gone(&self, address: u64) -> Option<bool> {
        let table = self
            .tables
            .iter()
            .find(|table| table.text.contains(&address))?;
        let after = table.rows.partition_point(|(place, _)| *place <= address);
        let (_, is_gone) = table.rows[..after].last()?;
        Some(*is_gone)
    }
}

/// The calls and tail jumps that the kernel changes when their targets change; `table` is at `address`. In order.
pub fn static_calls(address: u64, table: &[u8]) -> Vec<u64> {
    const ROW: usize = 8;
    let mut calls: Vec<u64> = addresses(address, table, ROW, 0).collect();
    calls.sort_unstable();
    calls
}

/// Jumps that no instruction shows: those of jump labels, which are NOPs when they are off, and those to the places
/// where the kernel goes on after a fault.
#[derive(Default)]
pub struct HiddenJumps(Vec<(u64, u64)>);

/// The size of a row of each table.
pub const JUMP_LABEL: usize = 16;
pub const FAULT: usize = 12;

impl HiddenJumps {
    /// Adds a table, which is at `address`.
    pub fn add(&mut self, address: u64, table: &[u8], row: usize) {
        let [from, to] = [0, 4].map(|at| addresses(address, table, row, at));
        self.0.extend(from.zip(to));
        self.0.sort_unstable();
    }

    /// The jumps from a range, each with its target.
    pub fn from(&self, range: &Range<u64>) -> &[(u64, u64)] {
        let first = self.0.partition_point(|(from, _)| *from < range.start);
        let jumps = &self.0[first..];
        &jumps[..jumps.partition_point(|(from, _)| *from < range.end)]
    }
}

/// The ranges of lines such as `0xffffffff81a00990-0xffffffff81a009b0<TAB>asm_exc_divide_error`, in order.
pub fn blacklist(text: &str) -> Vec<Range<u64>> {
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let ranges = text.lines().filter_map(|line| {
        let (first, end) = line.split_whitespace().next()?.split_once('-')?;
        let range = number(first)?..number(end)?;
        (!range.is_empty()).then_some(range)
    });
    let mut ranges: Vec<Range<u64>> = ranges.collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}
