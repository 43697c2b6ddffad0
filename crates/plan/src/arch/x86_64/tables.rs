//! Recognises tables of return addresses, by which a runtime finds the contents of each frame on its stacks, as OCaml's
//! collector does. The return addresses on such stacks must be the original ones.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::input::Input;
use crate::code::{Code, Marks, Range};

/// A program of such a runtime has hundreds of these words. Elsewhere few words point behind a call: a case of a
/// `switch` may follow the call of a function that does not return.
const LEAST: usize = 32;

const SHORTEST_CALL: usize = 2;
const LONGEST_CALL: usize = 8;

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
    let code = input.code.extent();
    tables.iter().enumerate().any(|(index, &table)| {
        if jump_tables.binary_search(&table).is_ok() {
            return false;
        }
        let origins = [table, 0, code.start];
        let mut end = tables.get(index + 1).copied().unwrap_or(u64::MAX);
        if input.code.number(table).is_some() {
            let next = input.starts.partition_point(|it| it.address <= table);
            end = end.min(input.starts.get(next).map_or(u64::MAX, |it| it.address));
        }
        let room = usize::try_from((end - table) / 4).unwrap_or(usize::MAX);
        let bytes = input.memory.from(table).unwrap_or_default();
        let words = &bytes.as_chunks::<4>().0;
        let words = &words[..words.len().min(room)];
        // In code, small numbers beside the distances lead to the table itself.
        let own = table..table + size_of_val(words) as u64;
        let mut tallies: [Tally; 4] = Default::default();
        for (place, word) in (table..).step_by(4).zip(words) {
            let distance = i64::from(i32::from_le_bytes(*word));
            let targets = origins.into_iter().chain([place]);
            for (origin, tally) in targets.zip(&mut tallies) {
                let target = origin.wrapping_add_signed(distance);
                if code.contains(&target) && !own.contains(&target) {
                    tally.add(target, input);
                }
            }
        }
        tallies.into_iter().any(Tally::leads_behind_calls)
    })
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
        let number = input.code.number(target);
        if number.is_some_and(|number| input.is_start.get(number)) {
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

fn follows_call(range: &Range<'_>, target: u64, code: &Code<'_>) -> bool {
    let before = &range.bytes[..(target - range.address) as usize];
    (SHORTEST_CALL..=LONGEST_CALL.min(before.len())).any(|length| {
        let from = target - length as u64;
        let bytes = &before[before.len() - length..];
        if !may_call(bytes) {
            return false;
        }
        let call = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE).decode();
        call.len() == length
            && match call.flow_control() {
                FlowControl::Call => code.number(call.near_branch_target()).is_some(),
                FlowControl::IndirectCall => true,
                _ => false,
            }
    })
}

/// Judges by the first byte that is no prefix. Decoding tells, but takes longer.
fn may_call(bytes: &[u8]) -> bool {
    let is_prefix = |byte: u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let code = bytes.iter().find(|byte| !is_prefix(**byte));
    matches!(code, Some(0x0f | 0xe8 | 0xff))
}
