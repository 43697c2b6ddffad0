//! What the seccomp filters of another thread permit.

use std::collections::HashSet;
use std::io;

use crate::ptrace;
use crate::thread::Thread;

/// A system call, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct PossibleCall {
    pub number: u32,
    /// The third argument. The others may be anything.
    pub third: Option<u64>,
    /// A filter may have it fail.
    pub may_fail: bool,
}

/// The filters of a thread, in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filters(Vec<Vec<Instruction>>);

/// An instruction of classic BPF, as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u16,
    /// How many instructions follow before the next one, if a condition holds, and if not.
    if_true: u8,
    if_false: u8,
    constant: u32,
}

/// Offsets in what a filter sees of a call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const THIRD_LOW: u32 = 32;
const THIRD_HIGH: u32 = 36;

const X86_64: u32 = 0xc000_003e;
/// A hostile filter could have more states than can be looked at.
const MOST_STATES: usize = 1 << 16;

impl Thread {
    /// The filters that it is under; it is stopped. The kernel tells root alone, if that is under none itself.
    pub fn filters(&self) -> io::Result<Filters> {
        let mut filters = Vec::new();
        loop {
            match ptrace::filter(self.tid(), filters.len()) {
                Ok(filter) => filters.push(filter),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    return Ok(Filters(filters));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Filters {
    /// Whether a thread can make all of these calls.
    pub fn permit(&self, calls: &[PossibleCall]) -> bool {
        let mut filters = self.0.iter();
        filters.all(|filter| calls.iter().all(|call| permits(filter, call)))
    }
}

/// Follows all ways through a filter that the call may take. The jumps of filters lead forwards only.
fn permits(filter: &[Instruction], call: &PossibleCall) -> bool {
    // The next instruction, and the accumulator if it is known.
    let mut next = vec![(0, Some(0))];
    let mut seen = HashSet::new();
    while let Some((at, accumulator)) = next.pop() {
        if !seen.insert((at, accumulator)) {
            continue;
        }
        let Some(&instruction) = filter.get(at) else {
            return false;
        };
        if seen.len() > MOST_STATES {
            return false;
        }
        let Instruction {
            code,
            if_true,
            if_false,
            constant,
        } = instruction;
        let behind = |distance: usize| at + 1 + distance;
        let operation = u32::from(code);
        match operation & 0x07 {
            libc::BPF_LD => next.push((behind(0), loaded(operation, constant, call))),
            libc::BPF_ALU => {
                let masked = operation == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
                let result = accumulator.filter(|_| masked);
                next.push((behind(0), result.map(|value| value & constant)));
            }
            libc::BPF_JMP if operation & 0xf0 == libc::BPF_JA => {
                next.push((behind(constant as usize), accumulator));
            }
            libc::BPF_JMP => {
                let holds = accumulator.and_then(|value| holds(operation, value, constant));
                if holds != Some(false) {
                    next.push((behind(if_true.into()), accumulator));
                }
                if holds != Some(true) {
                    next.push((behind(if_false.into()), accumulator));
                }
            }
            libc::BPF_RET => {
                let action = match operation & 0x18 {
                    libc::BPF_K => Some(constant),
                    _ => accumulator,
                };
                match action.map(|action| action & libc::SECCOMP_RET_ACTION_FULL) {
                    Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG) => {}
                    Some(libc::SECCOMP_RET_ERRNO) if call.may_fail => {}
                    _ => return false,
                }
            }
            // From the index register; the others leave the accumulator as it is.
            libc::BPF_MISC if operation & 0xf8 == libc::BPF_TXA => next.push((behind(0), None)),
            _ => next.push((behind(0), accumulator)),
        }
    }
    true
}

fn loaded(operation: u32, constant: u32, call: &PossibleCall) -> Option<u32> {
    match operation & 0xe0 {
        libc::BPF_IMM => Some(constant),
        libc::BPF_ABS => match constant {
            NUMBER => Some(call.number),
            ARCHITECTURE => Some(X86_64),
            THIRD_LOW => call.third.map(|third| third as u32),
            THIRD_HIGH => call.third.map(|third| (third >> 32) as u32),
            _ => None,
        },
        _ => None,
    }
}

/// `None`: not known, as of a comparison with the index register.
fn holds(operation: u32, value: u32, constant: u32) -> Option<bool> {
    if operation & 0x08 != libc::BPF_K {
        return None;
    }
    match operation & 0xf0 {
        libc::BPF_JEQ => Some(value == constant),
        libc::BPF_JGT => Some(value > constant),
        libc::BPF_JGE => Some(value >= constant),
        libc::BPF_JSET => Some(value & constant != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    const MASK: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

    fn filter(code: &[(u16, u8, u8, u32)]) -> Vec<Instruction> {
        let code = code.iter();
        let code = code.map(|&(code, if_true, if_false, constant)| Instruction {
            code,
            if_true,
            if_false,
            constant,
        });
        code.collect()
    }

    fn call(number: u32, third: Option<u64>) -> PossibleCall {
        PossibleCall {
            number,
            third,
            may_fail: false,
        }
    }

    #[test]
    fn a_filter_permits_what_it_lets_pass_with_all_arguments() {
        let by_number = filter(&[
            (LOAD, 0, 0, ARCHITECTURE),
            (EQUAL, 1, 0, X86_64),
            (RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            (LOAD, 0, 0, NUMBER),
            (EQUAL, 2, 0, 9),
            (GREATER, 0, 1, 100),
            (RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
            (RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]);
        for (number, expected) in [(9, true), (10, true), (100, true), (101, false)] {
            assert_eq!(
                permits(&by_number, &call(number, None)),
                expected,
                "{number}"
            );
        }
        let may_fail = PossibleCall {
            may_fail: true,
            ..call(101, None)
        };
        assert!(permits(&by_number, &may_fail));
        // As of systemd's MemoryDenyWriteExecute: call 9 must not ask for 2 and 4 together.
        let by_argument = filter(&[
            (LOAD, 0, 0, NUMBER),
            (EQUAL, 0, 3, 9),
            (LOAD, 0, 0, THIRD_LOW),
            (MASK, 0, 0, 6),
            (EQUAL, 1, 0, 6),
            (RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
            (RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
        ]);
        for (third, expected) in [(Some(3), true), (Some(7), false), (None, false)] {
            assert_eq!(
                permits(&by_argument, &call(9, third)),
                expected,
                "{third:?}"
            );
        }
        // All filters have to permit it.
        let both = Filters(vec![by_argument, by_number]);
        assert!(both.permit(&[call(9, Some(3))]));
        assert!(!both.permit(&[call(9, Some(3)), call(101, None)]));
        assert!(Filters::default().permit(&[call(101, None)]));
    }

    #[test]
    fn what_is_not_understood_is_not_permitted() {
        let index = (libc::BPF_MISC | libc::BPF_TXA) as u16;
        let accumulator = (libc::BPF_RET | libc::BPF_A) as u16;
        for code in [
            vec![],
            vec![(LOAD, 0, 0, NUMBER)],
            vec![(index, 0, 0, 0), (accumulator, 0, 0, 0)],
            vec![(EQUAL, 200, 200, 0)],
        ] {
            assert!(!permits(&filter(&code), &call(0, None)), "{code:?}");
        }
    }
}
