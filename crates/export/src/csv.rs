//! Comma-separated values: a line of column names, and one for each call.
//!
//! Text stands in quotes. A `'` stands before text that begins with `=`, `+`, `-` or `@`, which a spreadsheet would
//! take for a formula.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::blocks::{self, Port};
use nopal_analysis::drive::Drive;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::text::push_u64;
use nopal_trace::{Clocks, Trace};

use crate::requests::{RequestBegin, Requests};
use crate::table::{COLUMNS, Call, Rows, State, Table};

pub fn write(
    trace: &Trace,
    names: &Names,
    begin: Option<&RequestBegin>,
    drive: &Drive,
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))?;
    let thread_names = ThreadNames::new(trace);
    let threads: Vec<Thread> = trace
        .threads()
        .iter()
        .map(|thread| {
            let mut head = Vec::new();
            push_text(&mut head, &trace.session().uuid);
            head.extend_from_slice(format!(",{},{},", thread.process, thread.thread).as_bytes());
            let mut name = Vec::new();
            push_text(&mut name, &thread_names.of(thread));
            name.push(b'\n');
            Thread { head, name }
        })
        .collect();
    let functions = names.functions().iter();
    let labels: Vec<Vec<u8>> = functions
        .map(|function| {
            let mut label = Vec::new();
            push_text(&mut label, &function.module);
            label.push(b',');
            push_text(&mut label, &function.name);
            label.push(b',');
            label
        })
        .collect();
    blocks::write(trace, drive, out, |port| {
        let lines = Lines {
            threads: &threads,
            labels: &labels,
            clocks: trace.clocks(),
            port,
            calls: Vec::new(),
            text: Vec::new(),
        };
        Table::new(trace, names, begin, lines)
    })?;
    Ok(())
}

struct Thread {
    /// The columns before the module, and those behind the state.
    head: Vec<u8>,
    name: Vec<u8>,
}

struct Lines<'a> {
    threads: &'a [Thread],
    labels: &'a [Vec<u8>],
    clocks: &'a Clocks,
    port: Port,
    calls: Vec<Call>,
    text: Vec<u8>,
}

impl Rows for Lines<'_> {
    #[inline(always)]
    fn row(&mut self, call: Call) {
        self.calls.push(call);
    }

    fn pause(&mut self, requests: &Requests) -> Result<()> {
        for call in &self.calls {
            let thread = &self.threads[call.thread as usize];
            let text = &mut self.text;
            text.extend_from_slice(&thread.head);
            text.extend_from_slice(&self.labels[call.function as usize]);
            push_u64(text, self.clocks.realtime_ns(call.begin));
            text.push(b',');
            if call.state != State::Entry {
                push_u64(text, self.clocks.duration_ns(call.ticks));
                text.push(b',');
                push_u64(text, self.clocks.duration_ns(call.own));
            } else {
                text.push(b',');
            }
            text.push(b',');
            push_u64(text, call.depth.into());
            text.push(b',');
            if call.request != 0 {
                push_text(text, requests.identity(call.request));
            }
            text.push(b',');
            text.extend_from_slice(call.state.name().as_bytes());
            text.push(b',');
            text.extend_from_slice(&thread.name);
        }
        self.calls.clear();
        let text = std::mem::take(&mut self.text);
        self.text = self.port.send(text)?;
        Ok(())
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.starts_with(['=', '+', '-', '@']) {
        out.push(b'\'');
    }
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_formula_or_two_cells() {
        for (text, cell) in [
            ("main", r#""main""#),
            ("f(int, char)", r#""f(int, char)""#),
            (r#"operator"" _s"#, r#""operator"""" _s""#),
            ("=1+1", r#""'=1+1""#),
            ("-[Dog bark]", r#""'-[Dog bark]""#),
            ("@SUM(A1)", r#""'@SUM(A1)""#),
        ] {
            let mut out = Vec::new();
            push_text(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), cell);
        }
    }
}
