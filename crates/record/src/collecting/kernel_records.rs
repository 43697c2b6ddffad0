//! Writes kernel events, and notes of the tasks that they name.

use crate::collecting::collect::Collector;
use crate::collecting::naming::{Naming, task_note};
use anyhow::Result;
use nopal_kernel_events::Update;
use nopal_trace::{KernelEvent, KernelRecord, Note, Succession, Task, Writer};
use std::collections::HashSet;

/// The state of tasks as kernel events tell it.
#[derive(Default)]
pub struct FromKernelEvents {
    succession: Succession,
    tasks: NotedTasks,
}

#[derive(Default)]
struct NotedTasks {
    /// Processes and threads of those that are traced.
    traced: HashSet<(u32, u32)>,
    /// Threads of other processes.
    others: HashSet<u32>,
}

impl Collector {
    /// Kernel events are recorded again, after a pause since then.
    pub fn resume_kernel_events(&mut self, since: u64, writer: &mut Writer) -> Result<()> {
        self.from_kernel_events.succession = Succession::default();
        self.end.unless_full(writer.kernel_events_resumed(since))
    }

    /// Writes events of a processor. `processes` are those that are traced.
    pub fn system(
        &mut self,
        processor: u32,
        update: Update,
        processes: &HashSet<u32>,
        writer: &mut Writer,
    ) -> Result<()> {
        let FromKernelEvents { succession, tasks } = &mut self.from_kernel_events;
        match update {
            Update::Function(address, name) => {
                let name = name.to_owned();
                let noted = writer.note(&Note::KernelFunction { address, name });
                self.end.unless_full(noted)
            }
            Update::Lost(events) => {
                self.totals.kernel_events_lost += events;
                succession.is_broken_by(processor, &KernelEvent::Lost { events });
                let written = writer.kernel_events_lost(processor, events);
                self.end.unless_full(written)
            }
            Update::Records(records) => {
                for record in records {
                    let missed = succession.is_broken_by(processor, &record.event);
                    self.totals.kernel_events_missed += u64::from(missed);
                    let noted = tasks.meet(record, processes, &self.naming, writer);
                    self.end.unless_full(noted)?;
                }
                if self.end.is_reached() {
                    self.totals.given_up += records.len() as u64;
                    return Ok(());
                }
                self.totals.system += records.len() as u64;
                let written = writer.system(processor, records);
                self.weigh(writer);
                self.end.unless_full(written)
            }
        }
    }

    /// Writes what has been taken of processors.
    pub fn flush_kernel_events(&mut self, writer: &mut Writer) -> Result<()> {
        let written = writer.flush_kernel_events();
        self.weigh(writer);
        self.end.unless_full(written)
    }
}

impl NotedTasks {
    /// Notes the name of a thread of a traced process when it first leaves a processor.
    fn meet(
        &mut self,
        record: &KernelRecord,
        processes: &HashSet<u32>,
        naming: &Naming,
        writer: &mut Writer,
    ) -> Result<()> {
        let (process, thread) = match record.event {
            KernelEvent::Switch {
                process, previous, ..
            } => (process, previous.thread),
            KernelEvent::Out {
                process, thread, ..
            } => (process, thread),
            _ => return Ok(()),
        };
        let is_forked = naming.recording.contains_key(&process)
            && !naming.in_namespaces.contains(&(process, 0));
        let is_traced = processes.contains(&process) || is_forked;
        if let KernelEvent::Switch { previous, .. } = &record.event
            && !is_traced
        {
            return self.meet_other(record.clock, previous, writer);
        }
        if !is_traced || !self.traced.insert((process, thread)) {
            return Ok(());
        }
        let name = nopal_process::thread_name(process as i32, thread as i32).unwrap_or_default();
        writer.note(&Note::Thread {
            process,
            thread,
            begin: record.clock,
            name,
            kernel: false,
        })?;
        task_note(process, thread).map_or(Ok(()), |note| writer.note(&note))
    }

    /// Notes a task of another process when it is first met.
    fn meet_other(&mut self, clock: u64, task: &Task, writer: &mut Writer) -> Result<()> {
        if task.thread == 0 || !self.others.insert(task.thread) {
            return Ok(());
        }
        let status = nopal_process::status(task.thread as i32);
        let process = status.map_or(0, |status| status.process as u32);
        let other = Note::Other {
            process,
            thread: task.thread,
            begin: clock,
            name: String::from_utf8_lossy(task.name()).into_owned(),
        };
        let notes = [Some(other), task_note(process, task.thread)];
        let mut notes = notes.iter().flatten();
        notes.try_for_each(|note| writer.note(note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collecting::collect::Keep;
    use crate::collecting::trace_end::Limit;

    #[test]
    fn kernel_events_count_for_the_limit() {
        use nopal_trace::Session;

        let scratch = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(&scratch.path().join("trace"), Session::default()).unwrap();
        let mut collector = Collector::new(Keep::All, Some(Limit::Asked(writer.bytes() + 1)));
        let record = KernelRecord {
            clock: 1,
            event: KernelEvent::In {
                process: 7,
                thread: 7,
            },
        };
        for _ in 0..3 {
            let update = Update::Records(&[record]);
            collector
                .system(0, update, &HashSet::new(), &mut writer)
                .unwrap();
            collector.flush_kernel_events(&mut writer).unwrap();
        }
        assert_eq!([collector.totals.system, collector.totals.given_up], [1, 2]);
        assert!(collector.end.reason().unwrap().contains("--max-size"));
        assert_eq!(collector.totals.bytes, writer.bytes());
    }
}
