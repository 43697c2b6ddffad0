//! The description of a trace: its threads, functions and losses.

use nopal_analysis::{losses, names::ThreadNames, names::printable};
use nopal_trace::Note;
use serde::Serialize;

use crate::cases::{curves_of, tracers_of};
use crate::shown::State;

#[derive(Serialize)]
pub struct Description {
    directory: String,
    command: String,
    host: String,
    /// The duration of the whole trace.
    duration: u64,
    realtime: u64,
    is_growing: bool,
    /// Whether damage of its records is known.
    is_checked: bool,
    calls: u64,
    /// The losses of the trace, in words; empty if there are none.
    losses: String,
    threads: Vec<Thread>,
    /// Names, modules and numbers of modules by function.
    functions: Vec<(String, u32)>,
    modules: Vec<String>,
    /// Times without kernel events begin here.
    pauses: Vec<u64>,
    has_processors: bool,
    /// The tracers that may have cases, and fields of markers that are numbers.
    tracers: Vec<&'static str>,
    curves: Vec<String>,
}

#[derive(Serialize)]
pub struct Thread {
    process: u32,
    thread: u32,
    name: String,
    begin: u64,
    end: u64,
    calls: u64,
    depths: usize,
    /// Times in which its records are missing.
    missing: Vec<(u64, u64)>,
}

pub fn trace(state: &State, is_checked: bool) -> Description {
    let names = ThreadNames::new(&state.trace);
    let infos = state.trace.threads();
    let threads = infos
        .iter()
        .zip(&state.index.threads)
        .map(|(info, index)| Thread {
            process: index.process,
            thread: index.thread,
            name: names.of(info),
            begin: state.ns(index.from),
            end: state.ns(index.until()),
            calls: index.calls,
            depths: index.depths(),
            missing: index
                .missing
                .iter()
                .map(|(begin, end)| (state.ns(*begin), state.ns(*end)))
                .collect(),
        });
    let mut modules: Vec<String> = Vec::new();
    let functions = state.names.functions().iter().map(|function| {
        let known = modules.iter().position(|module| *module == function.module);
        let module = known.unwrap_or_else(|| {
            modules.push(function.module.clone());
            modules.len() - 1
        });
        (function.name.clone(), module as u32)
    });
    let functions = functions.collect();
    let session = state.trace.session();
    let pauses = state.trace.notes().iter().filter_map(|note| match note {
        Note::SystemPause { counter } => Some(state.ns(*counter)),
        _ => None,
    });
    Description {
        directory: printable(&state.trace.directory().display().to_string()),
        command: printable(&session.command.join(" ")),
        host: printable(&session.hostname),
        duration: state.ns(state.end),
        realtime: state.trace.clocks().realtime_ns(state.begin),
        is_growing: state.trace.is_growing(),
        is_checked,
        calls: state.index.threads.iter().map(|thread| thread.calls).sum(),
        losses: losses::line(&state.trace).unwrap_or_default(),
        threads: threads.collect(),
        functions,
        modules,
        pauses: pauses.collect(),
        has_processors: state.trace.processors().next().is_some(),
        tracers: tracers_of(&state.trace, &state.names),
        curves: curves_of(state.trace.markers()),
    }
}
