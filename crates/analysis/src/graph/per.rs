//! Separate trees for threads or processes: each of these is a function above its calls.

use std::collections::HashMap;

use nopal_trace::Trace;

use crate::names::{Function, Names, ThreadNames, printable};

/// The units whose calls are summed up separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Apart {
    #[default]
    Nothing,
    Process,
    Thread,
}

/// The functions that stand for threads or processes.
#[derive(Clone, Debug, Default)]
pub struct Per {
    /// By thread of the trace.
    functions: Vec<u32>,
}

impl Per {
    /// Adds functions named `PROGRAM PID` or `THREAD TID` to the names.
    pub fn new(trace: &Trace, names: &mut Names, apart: Apart) -> Per {
        let thread_names = ThreadNames::new(trace);
        let programs: HashMap<u32, &str> = trace
            .processes()
            .into_iter()
            .map(|process| (process.process, process.name))
            .collect();
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut function = |thread: &nopal_trace::ThreadInfo| {
            let name = match apart {
                Apart::Nothing => return None,
                Apart::Thread => format!("{} {}", thread_names.of(thread), thread.thread),
                Apart::Process => {
                    if let Some(&number) = known.get(&thread.process) {
                        return Some(number);
                    }
                    let program = match programs.get(&thread.process) {
                        None | Some(&"") => thread_names.of(thread),
                        Some(name) => printable(name),
                    };
                    format!("{program} {}", thread.process)
                }
            };
            let number = names.add(Function {
                raw: name.clone(),
                name,
                module: String::new(),
                path: String::new(),
                address: 0,
                size: 0,
            });
            known.insert(thread.process, number);
            Some(number)
        };
        let threads = trace.threads();
        Per {
            functions: threads.iter().filter_map(&mut function).collect(),
        }
    }

    /// The function that stands for a thread, or its process.
    pub fn function(&self, stream: usize) -> Option<u32> {
        self.functions.get(stream).copied()
    }
}
