//! The places of slow calls in the source.

use std::collections::HashSet;

use nopal_trace::Trace;

use super::SlowCall;
use crate::names::Names;
use crate::sources::{CallSites, Sources};

/// Call sites of one call that are named.
const MOST: usize = 3;

/// The lines of functions, and of the places where their callers call them, if these are known.
pub struct Places {
    functions: Sources,
    calls: CallSites,
}

impl Places {
    pub fn new(trace: &Trace, names: &Names, calls: &[SlowCall]) -> Places {
        let functions: HashSet<u32> = calls.iter().map(|call| call.function).collect();
        let callers = calls
            .iter()
            .filter_map(|call| Some((caller(call)?, call.function)));
        Places {
            functions: Sources::of_functions(trace, names, |function| {
                functions.contains(&function)
            }),
            calls: CallSites::new(trace, names, callers.collect()),
        }
    }

    pub fn of_function(&self, call: &SlowCall) -> Option<&str> {
        self.functions.of(call.function)
    }

    /// The lines of all calls that its caller makes to its function: it is one of them.
    pub fn of_calls(&self, call: &SlowCall) -> &[String] {
        caller(call).map_or(&[], |caller| self.calls.of(caller, call.function))
    }

    /// For people.
    pub fn describe<'n>(&self, call: &SlowCall, name: impl Fn(u32) -> &'n str) -> Option<String> {
        let function = self.of_function(call);
        let sites = self.of_calls(call);
        let named = sites.get(..MOST).unwrap_or(sites).join(" or ");
        let more = match sites.len().saturating_sub(MOST) {
            0 => String::new(),
            more => format!(" or {more} more"),
        };
        let calls = caller(call)
            .filter(|_| !sites.is_empty())
            .map(|caller| format!("{} calls it at {named}{more}", name(caller)));
        let parts: Vec<String> = function
            .map(str::to_owned)
            .into_iter()
            .chain(calls)
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn caller(call: &SlowCall) -> Option<u32> {
    call.path.as_ref()?.last().copied()
}
