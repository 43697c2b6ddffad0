//! Processors in the trace event format of Chrome: a track for each, with the tasks that ran on it. Functions of the
//! kernel are in the tracks of the threads that ran them.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use nopal_trace::{KernelEvent, Trace};

use crate::kernel_events::{KernelNames, name};
use crate::names::ThreadNames;
use crate::text::{push_fraction, push_json_string};

const BLOCK_BYTES: usize = 1 << 16;

/// The processors are threads of process 0, which no program has. Each event begins with a comma, unless it `is_first`.
pub fn push_processors(
    trace: &Trace,
    begin_ns: u64,
    mut is_first: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let thread_names = ThreadNames::new(trace);
    let threads = trace.threads();
    let named = threads
        .iter()
        .map(|thread| (thread.thread, thread_names.of(thread)));
    let names: HashMap<u32, String> = named.collect();
    let processes = threads.iter().filter(|thread| !thread.in_namespace);
    let processes: HashMap<u32, u32> = processes
        .map(|thread| (thread.thread, thread.process))
        .collect();
    let kernel = KernelNames::new(trace);
    for processor in trace.processors() {
        let number = processor.number;
        let track = (0, number);
        let mut text = format!(
            "{},\n{}",
            label(number, "process", "processors"),
            label(number, "thread", &format!("CPU {number}"))
        )
        .into_bytes();
        if !std::mem::take(&mut is_first) {
            text.splice(..0, *b",\n");
        }
        // The task that has the processor, unless it is idle.
        let mut open: Option<String> = None;
        for record in processor.events() {
            let got = match record.event {
                KernelEvent::Switch { next, .. } if next.thread == 0 => None,
                KernelEvent::Switch { next, .. } => {
                    Some(format!("{} {}", name(&next), next.thread))
                }
                KernelEvent::Out { .. } | KernelEvent::Lost { .. } => None,
                KernelEvent::In { thread, .. } => {
                    let name = names.get(&thread).map_or("?", String::as_str);
                    Some(format!("{name} {thread}"))
                }
                KernelEvent::Wakeup { .. } | KernelEvent::Function { .. } => open.clone(),
            };
            let ns = trace
                .clocks()
                .monotonic_ns(record.clock)
                .saturating_sub(begin_ns);
            if let KernelEvent::Wakeup { task, .. } = record.event {
                let woken = format!("wakes {} {}", name(&task), task.thread);
                push_event(&mut text, b'i', track, ns, &woken);
            } else if let KernelEvent::Function {
                thread, function, ..
            } = record.event
            {
                let of_thread = processes.get(&thread).map(|process| (*process, thread));
                let name = kernel.name(function);
                push_event(&mut text, b'i', of_thread.unwrap_or(track), ns, &name);
            } else {
                if let Some(left) = open.take() {
                    push_event(&mut text, b'E', track, ns, &left);
                }
                if let Some(got) = &got {
                    push_event(&mut text, b'B', track, ns, got);
                }
                open = got;
            }
            if text.len() >= BLOCK_BYTES {
                out.write_all(&text)?;
                text.clear();
            }
        }
        out.write_all(&text)?;
    }
    Ok(())
}

fn label(number: u32, of: &str, name: &str) -> String {
    format!(
        "{{\"ph\":\"M\",\"pid\":0,\"tid\":{number},\"name\":\"{of}_name\",\"args\":{{\"name\":\"{name}\"}}}}"
    )
}

/// In the track of a process's thread.
fn push_event(text: &mut Vec<u8>, kind: u8, (process, thread): (u32, u32), ns: u64, name: &str) {
    text.extend_from_slice(b",\n{\"ph\":\"");
    text.push(kind);
    text.extend_from_slice(format!("\",\"pid\":{process},\"tid\":{thread},\"ts\":").as_bytes());
    push_fraction(text, ns);
    text.extend_from_slice(b",\"name\":");
    push_json_string(text, name);
    text.extend_from_slice(if kind == b'i' {
        b",\"s\":\"t\"}".as_slice()
    } else {
        b"}"
    });
}
