//! Recognises tables of return addresses, by which a runtime finds the contents of each frame on its stacks, as OCaml's
//! collector does. The return addresses on such stacks must be the original ones.

use super::input::Input;
use crate::code::{Code, Marks, Range};

/// A program of such a runtime has hundreds of these words. Elsewhere few words point behind a call: a case of a
/// `switch` may follow the call of a function that does not return.
const LEAST: usize = 32;

/// Whether most words that point into functions point behind calls. `pointers`: words and their targets.
pub(crate) fn of_return_addresses(
    pointers: &[(u64, u64)],
    code: &Code<'_>,
    is_start: &Marks,
) -> bool {
    let (mut behind_calls, mut others) = (0, 0);
    for &(place, target) in pointers {
        let Some(range) = code.range(target) else {
            continue;
        };
        let is_function = code.number(target).is_some_and(|it| is_start.get(it));
        if is_function || code.number(place).is_some() {
            continue;
        }
        if follows_call(range, target, code) {
            behind_calls += 1;
        } else {
            others += 1;
        }
    }
    behind_calls >= LEAST && behind_calls > others
}

/// Whether the file has a table of 32-bit words most of which lead behind calls: as distances from the table's start,
/// from themselves, from the file's start or that of its code. `tables`: where tables may begin, among them jump tables;
/// both sorted. From a wrong start, the regular distances of a jump table may seem to lead behind calls.
pub(crate) fn of_distances(tables: &[u64], jump_tables: &[u64], input: &Input<'_>) -> bool {
    tables.iter().enumerate().any(|(index, &table)| {
        if jump_tables.binary_search(&table).is_ok() {
            return false;
        }
        let end = tables.get(index + 1).copied().unwrap_or(u64::MAX);
        lead_behind_calls(table, words(table, end, input), input)
    })
}

/// The words of a table, which ends at the latest at `end`, and in code where a function begins.
fn words<'a>(table: u64, mut end: u64, input: &Input<'a>) -> &'a [[u8; 4]] {
    if input.code.number(table).is_some() {
        let next = input.starts.partition_point(|it| it.address <= table);
        end = end.min(input.starts.get(next).map_or(u64::MAX, |it| it.address));
    }
    let room = usize::try_from((end - table) / 4).unwrap_or(usize::MAX);
    let bytes = input.memory.from(table).unwrap_or_default();
    let words = bytes.as_chunks().0;
    &words[..words.len().min(room)]
}

/// Whether most of the words lead behind calls, as distances from one of the origins. A program of some megabytes has a
/// million words to look at, of which a tenth or more lead somewhere into the code.
fn lead_behind_calls(table: u64, words: &[[u8; 4]], input: &Input<'_>) -> bool {
    let code = input.code.extent();
    let size = code.end - code.start;
    // In code, small numbers beside the distances lead to the table itself.
    let own = table..table + size_of_val(words) as u64;
    // No distance within the file is larger than its memory.
    let farthest = input.memory.end();
    let mut tallies: [Tally; 4] = Default::default();
    for (place, word) in own.clone().step_by(4).zip(words) {
        let distance = i64::from(i32::from_le_bytes(*word));
        if distance.unsigned_abs() >= farthest {
            continue;
        }
        for (origin, tally) in [table, place, 0, code.start].into_iter().zip(&mut tallies) {
            let target = origin.wrapping_add_signed(distance);
            if target.wrapping_sub(code.start) < size && !own.contains(&target) {
                tally.add(target, input);
            }
        }
    }
    tallies.into_iter().any(Tally::leads_behind_calls)
}

/// Words that point into functions.
#[derive(Default)]
struct Tally {
    behind_calls: Vec<u64>,
    others: usize,
}

impl Tally {
    fn add(&mut self, target: u64, input: &Input<'_>) {
        let Some(range) = input.code.range(target) else {
            return;
        };
        if input.is_start.get(range.number(target)) {
            return;
        }
        if follows_call(range, target, input.code) {
            self.behind_calls.push(target);
        } else {
            self.others += 1;
        }
    }

    fn leads_behind_calls(mut self) -> bool {
        if self.behind_calls.len() < LEAST {
            return false;
        }
        self.behind_calls.sort_unstable();
        self.behind_calls.dedup();
        self.behind_calls.len() >= LEAST && self.behind_calls.len() > self.others
    }
}

/// Whether the bytes before an address may be a call: of code of this file, or of an address that memory or a register
/// holds.
fn follows_call(range: &Range<'_>, target: u64, code: &Code<'_>) -> bool {
    let before = &range.bytes[..(target - range.address) as usize];
    // e8 rel32
    if let [.., 0xe8, a, b, c, d] = *before {
        let distance = i32::from_le_bytes([a, b, c, d]);
        if code
            .number(target.wrapping_add_signed(distance.into()))
            .is_some()
        {
            return true;
        }
    }
    // All eight bytes are looked at at once: nearly always none of them is ff.
    if before
        .last_chunk()
        .is_some_and(|last| !has_zero_byte(!u64::from_ne_bytes(*last)))
    {
        return false;
    }
    (0..before.len().min(LONGEST_INDIRECT_CALL)).any(|back| {
        let bytes = &before[before.len() - back - 1..];
        bytes[0] == 0xff && indirect_call_length(bytes) == Some(bytes.len())
    })
}

fn has_zero_byte(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    word.wrapping_sub(ONES) & !word & ONES << 7 != 0
}

/// ff, mod 010 r/m or mod 011 r/m, a scale-index-base byte where r/m is 100, and a displacement of 8 or 32 bits.
const LONGEST_INDIRECT_CALL: usize = 7;

fn indirect_call_length(bytes: &[u8]) -> Option<usize> {
    let operand = *bytes.get(1)?;
    let (mode, register) = (operand >> 6, operand & 7);
    if !matches!(operand >> 3 & 7, 2 | 3) {
        return None;
    }
    let is_scaled = mode != 3 && register == 4;
    let base = if is_scaled {
        bytes.get(2)? & 7
    } else {
        register
    };
    let displacement = match (mode, base) {
        (1, _) => 1,
        (2, _) | (0, 5) => 4,
        _ => 0,
    };
    Some(2 + usize::from(is_scaled) + displacement)
}
