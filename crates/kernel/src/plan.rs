//! Finds the functions of a running kernel that can be traced.

use crate::Kernel;
use crate::code::Code;
use crate::exits::{Exits, whole_of_cold};
use crate::layout::{Exit, Function};
use crate::reason::Reason;
use crate::symbols::{Span, Symbol};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A plan in the form that the module takes.
#[derive(Default)]
pub struct Plan {
    /// The functions to trace, in order of their addresses.
    pub functions: Vec<Function>,
    pub exits: Vec<Exit>,
    pub refused: Vec<Refused>,
    /// How many modules had come before the kernel was read, as the module counts them.
    pub modules: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub address: u64,
    pub end: u64,
    pub reason: Reason,
}

/// Functions that the kernel's own sources except from tracing: each begins in one task and ends in another.
const SWITCHES: [&str; 3] = ["__switch_to", "ret_from_fork", "ret_from_fork_asm"];

/// Places in ftrace's own code that look like those in functions.
const OF_FTRACE: [&str; 4] = [
    "ftrace_call",
    "ftrace_regs_call",
    "ftrace_graph_call",
    "ftrace_stub",
];

impl Plan {
    /// A plan of all functions.
    pub fn make(kernel: &Kernel) -> Plan {
        Plan::of(kernel, |_| true)
    }

    /// A plan of the functions that are chosen.
    pub fn of(kernel: &Kernel, is_chosen: impl Fn(Span) -> bool) -> Plan {
        let mut plan = Plan::default();
        let cold = Cold::of(kernel);
        // Cold parts that belong to a function already.
        let mut taken = HashSet::new();
        for span in kernel.symbols.code() {
            if !is_function(span) || kernel.text.from(span.address).is_none() || !is_chosen(span) {
                continue;
            }
            let mut code = kernel.part(span);
            let exits = judge(kernel, span, &mut code, &cold).and_then(|exits| {
                let mut parts = exits.cold_parts().iter();
                match parts.all(|part| taken.insert(part.start)) {
                    true => Ok(exits),
                    false => Err(Reason::SharedPart),
                }
            });
            let Range {
                start: address,
                end,
            } = code;
            match exits {
                Ok(exits) => {
                    plan.functions.push(Function {
                        address,
                        end,
                        first_exit: plan.exits.len() as u32,
                        exits: exits.found().len() as u32,
                    });
                    plan.exits.extend_from_slice(exits.found());
                }
                Err(reason) => plan.refused.push(Refused {
                    address,
                    end,
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

/// The exits of a function. `range` is the known part of it, and is cut where it ends.
fn judge<'a>(
    kernel: &'a Kernel,
    span: Span<'a>,
    range: &mut Range<u64>,
    cold: &Cold,
) -> Result<Exits<'a>, Reason> {
    if let Some(reason) = kernel.forbids(span.address) {
        return Err(reason);
    }
    let bytes = kernel.text.between(range.start, range.end);
    let place = kernel.site(bytes.unwrap_or_default(), range.start);
    let is_label = span.names().any(|symbol| OF_FTRACE.contains(&symbol.name));
    place.filter(|_| !is_label).ok_or(Reason::NoSite)?;
    if span.names().any(|symbol| SWITCHES.contains(&symbol.name)) {
        return Err(Reason::SwitchesTasks);
    }
    let mut code = Code::of(kernel, range.clone());
    code.cut(kernel);
    range.end = code.range.end;
    Exits::of(kernel, span, &code, cold.part_of(span))
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
