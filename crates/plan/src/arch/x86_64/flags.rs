//! Finds functions that take flags from their callers, or return flags, since a thunk changes the flags. Compilers do
//! not make such functions.

use std::collections::HashMap;
use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, RflagsBits};

use super::spread::spread;
use crate::Reason;

/// The flags that calculations set. The direction flag is clear at a call and at a return.
const RESULTS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// Flags are not followed beyond this many instructions.
const LONG: usize = 64;

/// All fields are addresses of functions.
#[derive(Default)]
pub(crate) struct Flags {
    /// Functions that read flags that they have not set.
    take: Vec<u64>,
    /// Functions after whose calls flags are read.
    give: Vec<u64>,
    /// If the first function takes flags, so does the second.
    handed_on: Vec<(u64, u64)>,
    /// If the first function takes flags, the second returns them.
    handed: Vec<(u64, u64)>,
    /// If the first function returns flags, they are those of the second.
    left: Vec<(u64, u64)>,
}

/// Whether the instruction may leave the flags unchanged, since a count may be zero.
fn may_keep(it: &Instruction) -> bool {
    let shifts = matches!(
        it.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sal
            | Mnemonic::Sar
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd
    );
    let last = it.op_count().saturating_sub(1);
    let is_wide = it.op0_register().is_gpr64() || it.memory_size().size() == 8;
    let by_zero = match it.op_kind(last) {
        OpKind::Register => true,
        OpKind::Immediate8 => it.immediate8() & if is_wide { 63 } else { 31 } == 0,
        _ => false,
    };
    shifts && by_zero || it.has_rep_prefix() || it.has_repne_prefix()
}

impl Flags {
    /// Follows flags from the instruction with the number `from` on: those at the entry of function `own`, or those
    /// left by `called`. The code is sorted up to a number.
    pub fn look(
        &mut self,
        (code, sorted): (&[Instruction], usize),
        from: usize,
        own: Range<u64>,
        called: Option<u64>,
    ) {
        let function = own.start;
        let mut live = RESULTS;
        let mut next = from;
        for _ in 0..LONG {
            let Some(it) = code.get(next) else { return };
            let is_system_call = it.code() == Code::Syscall;
            if it.rflags_read() & live != 0 && !is_system_call {
                match called {
                    Some(called) => self.give.push(called),
                    None => self.take.push(function),
                }
                return;
            }
            if !is_system_call && !may_keep(it) {
                live &= !it.rflags_modified();
            }
            if live == 0 {
                return;
            }
            let target = match it.flow_control() {
                _ if is_system_call => None,
                FlowControl::Call | FlowControl::UnconditionalBranch
                    if it.op0_kind() == OpKind::NearBranch64 =>
                {
                    Some(it.near_branch_target())
                }
                FlowControl::Return => {
                    if let Some(called) = called {
                        self.left.push((function, called));
                    }
                    return;
                }
                FlowControl::Next | FlowControl::ConditionalBranch => None,
                _ => return,
            };
            next += 1;
            let Some(target) = target else { continue };
            if !own.contains(&target) || target == function {
                match called {
                    Some(called) => self.handed.push((target, called)),
                    None => self.handed_on.push((target, function)),
                }
                return;
            }
            let Ok(within) = code[..sorted].binary_search_by_key(&target, Instruction::ip) else {
                return;
            };
            next = within;
        }
    }

    pub fn extend(&mut self, other: Flags) {
        self.take.extend(other.take);
        self.give.extend(other.give);
        self.handed_on.extend(other.handed_on);
        self.handed.extend(other.handed);
        self.left.extend(other.left);
    }

    /// The functions that take or return flags. `tails`: the second function returns the flags of the first.
    pub fn judged(mut self, tails: &[(u64, u64)]) -> HashMap<u64, Reason> {
        let known = |functions: Vec<u64>| -> HashMap<u64, Reason> {
            let functions = functions.into_iter();
            functions
                .map(|function| (function, Reason::PassesFlags))
                .collect()
        };
        let mut take = known(self.take);
        spread(&mut take, &mut self.handed_on);
        let handed = self
            .handed
            .iter()
            .filter(|handed| take.contains_key(&handed.0));
        self.give.extend(handed.map(|handed| handed.1));
        let mut give = known(self.give);
        self.left.extend(tails.iter().map(|&(to, from)| (from, to)));
        spread(&mut give, &mut self.left);
        give.extend(take);
        give
    }
}
