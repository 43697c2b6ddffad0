//! What can be traced of a running kernel.

use crate::Kernel;
use crate::bounds::{end, site};
use crate::device::{Exit, Function};
use crate::exits::{Exits, whole_of_cold};
use crate::reason::Reason;
use crate::symbols::{Span, Symbol};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// As the module takes it.
#[derive(Default)]
pub struct Plan {
    /// In order of their addresses.
    pub functions: Vec<Function>,
    pub exits: Vec<Exit>,
    pub refused: Vec<Refused>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub address: u64,
    pub end: u64,
    pub reason: Reason,
}

/// What the kernel itself never has traced, in words of its sources. It begins in one task and ends in another.
const SWITCHES: [&str; 3] = ["__switch_to", "ret_from_fork", "ret_from_fork_asm"];

impl Plan {
    /// Of all functions.
    pub fn make(kernel: &Kernel) -> Plan {
        let mut plan = Plan::default();
        let cold = Cold::of(kernel);
        // Cold parts that belong to a function already.
        let mut taken = HashSet::new();
        for span in kernel.symbols.code() {
            if !is_function(span) || kernel.text.from(span.address).is_none() {
                continue;
            }
            let range = kernel.part(span);
            let range = range.start..end(kernel, range);
            let exits = judge(kernel, span, range.end, &cold);
            let exits = exits.and_then(|exits| {
                let mut parts = exits.cold_parts().iter();
                match parts.all(|part| taken.insert(part.start)) {
                    true => Ok(exits),
                    false => Err(Reason::SharedPart),
                }
            });
            match exits {
                Ok(exits) => {
                    plan.functions.push(Function {
                        address: range.start,
                        end: range.end,
                        first_exit: plan.exits.len() as u32,
                        exits: exits.found().len() as u32,
                    });
                    plan.exits.extend_from_slice(exits.found());
                }
                Err(reason) => plan.refused.push(Refused {
                    address: range.start,
                    end: range.end,
                    reason,
                }),
            }
        }
        plan
    }

    pub fn exits_of(&self, function: &Function) -> &[Exit] {
        let first = function.first_exit as usize;
        &self.exits[first..first + function.exits as usize]
    }
}

/// Whether it is neither a part of another function, nor the padding before one, nor a mark between two.
fn is_function(span: Span) -> bool {
    let is_other =
        |symbol: Symbol| whole_of_cold(symbol.name).is_some() || symbol.name.starts_with("__pfx_");
    !span.names().any(is_other)
}

fn judge<'a>(
    kernel: &'a Kernel,
    span: Span<'a>,
    end: u64,
    cold: &Cold,
) -> Result<Exits<'a>, Reason> {
    let forbidden = |(range, _): &&(Range<u64>, Reason)| range.contains(&span.address);
    if let Some((_, reason)) = kernel.forbidden.iter().find(forbidden) {
        return Err(*reason);
    }
    let bytes = kernel.text.between(span.address, end).unwrap_or_default();
    site(bytes, span.address, |to| kernel.is_tracer(to)).ok_or(Reason::NoSite)?;
    if span.names().any(|symbol| SWITCHES.contains(&symbol.name)) {
        return Err(Reason::SwitchesTasks);
    }
    Exits::of(kernel, span, end, cold.part_of(span))
}

/// Cold parts by the names of their functions, with all of that name. A part that no jump leads to, but an exception, is
/// found only so.
struct Cold<'a>(HashMap<(&'a str, &'a str), OneName>);

#[derive(Default)]
struct OneName {
    functions: usize,
    parts: Vec<Range<u64>>,
}

impl<'a> Cold<'a> {
    fn of(kernel: &'a Kernel) -> Cold<'a> {
        let mut all: HashMap<_, OneName> = HashMap::new();
        for span in kernel.symbols.code() {
            for symbol in span.names() {
                if let Some(whole) = whole_of_cold(symbol.name) {
                    let named = all.entry((symbol.module, whole)).or_default();
                    named.parts.push(kernel.part(span));
                }
            }
        }
        for symbol in kernel.symbols.code().flat_map(Span::names) {
            if let Some(named) = all.get_mut(&(symbol.module, symbol.name)) {
                named.functions += 1;
            }
        }
        Cold(all)
    }

    /// The one that cannot be another function's.
    fn part_of(&self, span: Span) -> Option<Range<u64>> {
        span.names().find_map(|symbol| {
            let named = self.0.get(&(symbol.module, symbol.name))?;
            match &named.parts[..] {
                [part] if named.functions == 1 => Some(part.clone()),
                _ => None,
            }
        })
    }
}
