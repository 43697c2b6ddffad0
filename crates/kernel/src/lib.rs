//! A running kernel: its symbols, its text, and a plan of the functions that can be traced. The kernel's module
//! (`runtime/port/linux_kernel`) carries the plan out, trusts nothing of it, and is reached through `/dev/nopal`.

mod code;
mod device;
mod exits;
mod layout;
mod plan;
mod reason;
mod symbols;
mod tables;
mod text;

pub use device::{Device, Loaded, Marker, Verdict};
pub use layout::{EXIT_RETURN, EXIT_TAIL, Exit, Function};
pub use plan::{Plan, Refused};
pub use reason::Reason;
pub use symbols::{Span, Symbol, Symbols, are_readable};
pub use text::Memory;

use anyhow::{Context, Result};
use std::fs;
use std::ops::Range;
use tables::{FAULT, HiddenJumps, JUMP_LABEL, Unwinding};
use text::Text;

/// The parts of a running kernel that a plan is made of.
pub struct Kernel {
    pub symbols: Symbols,
    text: Text,
    unwinding: Unwinding,
    hidden_jumps: HiddenJumps,
    /// In order.
    static_calls: Vec<u64>,
    /// The ranges in which nothing may be traced.
    not_instrumented: Vec<Range<u64>>,
    /// Ranges in order; none is in another.
    blacklist: Vec<Range<u64>>,
}

/// Lists the functions in which the kernel itself forbids probes.
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";
/// The last function of a module ends no further behind its begin.
const LONGEST_LAST: u64 = 64 << 10;
const ALIGNED: u64 = 16;

impl Kernel {
    /// The running one.
    pub fn read() -> Result<Kernel> {
        let memory = Memory::open()?;
        let symbols = Symbols::read()?;
        let blacklist = fs::read_to_string(BLACKLIST).unwrap_or_default();
        Kernel::of(symbols, &memory, &blacklist, module_section)
    }

    /// `section` finds the place of a section of a module, and that of the next one.
    pub fn of(
        symbols: Symbols,
        memory: &Memory,
        blacklist: &str,
        section: impl Fn(&str, &str) -> Option<Range<u64>>,
    ) -> Result<Kernel> {
        let range = |begin: &str, end: &str| match symbols.addresses([begin, end]) {
            [Some(begin), Some(end)] if begin < end => Some(begin..end),
            _ => None,
        };
        let read = |range: &Range<u64>| memory.read(range.start, range.end - range.start);
        let own =
            range("_stext", "_etext").context("the kernel's text has no _stext and _etext")?;
        let mut text = Text::default();
        text.add(own.start, read(&own)?)?;
        let mut unwinding = Unwinding::default();
        if let (Some(places), Some(rows)) = (
            range("__start_orc_unwind_ip", "__stop_orc_unwind_ip"),
            range("__start_orc_unwind", "__stop_orc_unwind"),
        ) {
            unwinding.add(own.clone(), places.start, &read(&places)?, &read(&rows)?);
        }
        let mut hidden_jumps = HiddenJumps::default();
        for (begin, end, row) in [
            ("__start___jump_table", "__stop___jump_table", JUMP_LABEL),
            ("__start___ex_table", "__stop___ex_table", FAULT),
        ] {
            if let Some(table) = range(begin, end) {
                hidden_jumps.add(table.start, &read(&table)?, row);
            }
        }
        let static_calls = match range("__start_static_call_sites", "__stop_static_call_sites") {
            Some(table) => tables::static_calls(table.start, &read(&table)?),
            None => Vec::new(),
        };
        let not_instrumented = [
            range("__noinstr_text_start", "__noinstr_text_end"),
            range("__entry_text_start", "__entry_text_end"),
        ];
        for (module, range) in modules(&symbols) {
            // A module that goes meanwhile is left out.
            let Ok(mut bytes) = read(&range) else {
                continue;
            };
            let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
            bytes.truncate(used.next_multiple_of(ALIGNED as usize));
            if range.start < own.end && range.end > own.start
                || text.add(range.start, bytes).is_err()
            {
                continue;
            }
            let sections = [".orc_unwind_ip", ".orc_unwind"].map(|name| section(module, name));
            if let [Some(places), Some(rows)] = sections
                && let (Ok(place_bytes), Ok(row_bytes)) = (read(&places), read(&rows))
            {
                unwinding.add(range, places.start, &place_bytes, &row_bytes);
            }
            for (name, row) in [("__jump_table", JUMP_LABEL), ("__ex_table", FAULT)] {
                if let Some(table) = section(module, name)
                    && let Ok(bytes) = read(&table)
                {
                    hidden_jumps.add(table.start, &bytes, row);
                }
            }
        }
        Ok(Kernel {
            symbols,
            text,
            unwinding,
            hidden_jumps,
            static_calls,
            not_instrumented: not_instrumented.into_iter().flatten().collect(),
            blacklist: tables::blacklist(blacklist),
        })
    }

    fn forbids(&self, address: u64) -> Option<Reason> {
        if self
            .not_instrumented
            .iter()
            .any(|range| range.contains(&address))
        {
            return Some(Reason::NotInstrumented);
        }
        let after = self
            .blacklist
            .partition_point(|range| range.start <= address);
        let range = self.blacklist[..after].last()?;
        range.contains(&address).then_some(Reason::Blacklisted)
    }

    /// The part of a span whose bytes are known.
    fn part(&self, span: Span) -> Range<u64> {
        let known = self.text.from(span.address).unwrap_or_default();
        let end = span.address + known.len() as u64;
        span.address..span.end.map_or(end, |limit| limit.min(end))
    }

    /// Whether a call at a function's begin leads to a tracer: to ftrace, or to code that a tracer has made.
    fn is_tracer(&self, to: u64) -> bool {
        const FTRACE: [&str; 3] = ["__fentry__", "ftrace_caller", "ftrace_regs_caller"];
        let of_tracer = |symbol: Symbol| symbol.module == "nopal" || FTRACE.contains(&symbol.name);
        let span = self.symbols.span_at(to);
        self.text.from(to).is_none() || span.is_some_and(|span| span.names().any(of_tracer))
    }

    /// The address of ftrace's place, if these bytes at the begin of a function are one. A jump label looks like it.
    fn site(&self, bytes: &[u8], address: u64) -> Option<u64> {
        let place = code::site(bytes, address, |to| self.is_tracer(to))?;
        let is_label = !self.hidden_jumps.from(&(place..place + 1)).is_empty();
        (!is_label).then_some(place)
    }
}

/// The text of each module, from its first symbol of code on.
fn modules(symbols: &Symbols) -> Vec<(&str, Range<u64>)> {
    let mut modules: Vec<(&str, Range<u64>)> = Vec::new();
    for span in symbols.code() {
        let module = span.names().next().map_or("", |symbol| symbol.module);
        // Code that the kernel makes has names, too.
        if module.is_empty() || module == "bpf" || module.starts_with("__builtin__") {
            continue;
        }
        let last = span.address.saturating_add(LONGEST_LAST);
        let end = span.end.map_or(last, |end| end.min(last));
        match modules.last_mut() {
            Some((name, range)) if *name == module && range.end == span.address => range.end = end,
            _ => modules.push((module, span.address..end)),
        }
    }
    modules
}

/// The range of a section of a loaded module, up to the begin of the next one.
fn module_section(module: &str, section: &str) -> Option<Range<u64>> {
    const LARGEST: u64 = 16 << 20;
    let address = |name: &std::ffi::OsStr| -> Option<u64> {
        let path = format!("/sys/module/{module}/sections");
        let text = fs::read_to_string(std::path::Path::new(&path).join(name)).ok()?;
        u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let begin = address(section.as_ref())?;
    let entries = fs::read_dir(format!("/sys/module/{module}/sections")).ok()?;
    let others = entries
        .flatten()
        .filter_map(|entry| address(&entry.file_name()));
    let end = others
        .filter(|other| *other > begin)
        .min()
        .unwrap_or(begin + (1 << 12));
    (end - begin <= LARGEST).then_some(begin..end)
}

#[cfg(test)]
mod tests;
