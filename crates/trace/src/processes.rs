//! The processes of a trace, and their programs.

use crate::info::ProcessInfo;
use crate::note::Note;
use crate::thread_key::ThreadKey;
use std::collections::{HashMap, HashSet};

/// The processes in order of time.
pub fn processes(notes: &[Note], threads: impl Iterator<Item = ThreadKey>) -> Vec<ProcessInfo<'_>> {
    let mut processes: Vec<ProcessInfo> = notes.iter().filter_map(described).collect();
    let mut known: HashSet<u32> = processes.iter().map(|process| process.process).collect();
    for thread in threads {
        if known.insert(thread.process) {
            processes.push(ProcessInfo {
                process: thread.process,
                parent: 0,
                counter: thread.begin,
                name: "",
                executable: "",
                arguments: &[],
            });
        }
    }
    processes.sort_by_key(|process| process.counter);
    inherit(&mut processes);
    processes
}

fn described(note: &Note) -> Option<ProcessInfo<'_>> {
    match note {
        Note::Process {
            process,
            parent,
            counter,
            name,
            executable,
            arguments,
        } => Some(ProcessInfo {
            process: *process,
            parent: *parent,
            counter: *counter,
            name,
            executable,
            arguments,
        }),
        _ => None,
    }
}

/// Children that were only forked have their parents' programs.
fn inherit(processes: &mut [ProcessInfo]) {
    let mut running: HashMap<u32, usize> = HashMap::new();
    for index in 0..processes.len() {
        let process = processes[index];
        if process.executable.is_empty()
            && let Some(&parent) = running.get(&process.parent)
        {
            processes[index] = ProcessInfo {
                process: process.process,
                parent: process.parent,
                counter: process.counter,
                ..processes[parent]
            };
        }
        running.insert(process.process, index);
    }
}
