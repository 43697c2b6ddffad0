//! Functions of the kernel that some threads run, by the kernel's function tracer, which records their begin and
//! caller, but not their end.

pub mod instance;
mod names;
pub mod page;

pub use instance::remove_left_behind;

use crate::clock::Clock;
use anyhow::{Context, Result};
use instance::{Instance, ProcessorRing};
use names::Names;
use nopal_trace::{KernelEvent, KernelRecord};
use page::{Layout, PAGE, PAGES_AT_ONCE, room};
use std::collections::HashSet;
use std::io::{ErrorKind, Read};

/// Records functions until it is dropped.
pub struct Functions {
    // Dropped before the instance, which is not removed while its files are open.
    rings: Vec<ProcessorRing>,
    instance: Instance,
    layout: Layout,
    /// Whether the kernel stamps events with the counter; else with CLOCK_MONOTONIC.
    has_counter: bool,
    page: Vec<u8>,
    names: Names,
    /// Addresses that have been named.
    named: HashSet<u64>,
}

/// The reason why functions cannot be recorded, and the remedy. Tries it with one function.
pub fn missing() -> Option<String> {
    let tried = || -> Result<()> {
        let instance = Instance::create()?;
        Layout::read()?;
        nopal_kernel::are_readable()?;
        instance.only(&["schedule".into()])?;
        instance.choose(std::process::id() as i32)
    };
    tried().err().map(|error| format!("{error:#}"))
}

impl Functions {
    /// Records kernel functions in the threads of a process and in those that they start, as far as one of the globs
    /// matches. No globs: all.
    pub fn open(process: i32, processors: &[u32], only: &[String]) -> Result<Functions> {
        Functions::of_instance(process, processors, only)
            .context("functions of the kernel cannot be recorded")
    }

    fn of_instance(process: i32, processors: &[u32], only: &[String]) -> Result<Functions> {
        let instance = Instance::create()?;
        let layout = Layout::read()?;
        let names = Names::read()?;
        let has_counter = instance.write("trace_clock", "x86-tsc").is_ok();
        if !has_counter {
            instance.write("trace_clock", "mono")?;
        }
        instance.write("buffer_size_kb", &room(processors.len()).to_string())?;
        instance.only(only)?;
        instance.choose(process)?;
        // A tracer cannot be changed while rings are open.
        let rings = instance.rings(processors)?;
        instance.write("tracing_on", "1")?;
        Ok(Functions {
            rings,
            instance,
            layout,
            has_counter,
            page: vec![0; PAGE],
            names,
            named: HashSet::new(),
        })
    }

    /// Takes the events since the last call, in order of time of each processor, with the number of those lost in
    /// between.
    pub fn read(&mut self, clock: &Clock, mut take: impl FnMut(u32, KernelRecord)) -> Result<()> {
        for ring in &mut self.rings {
            for _ in 0..PAGES_AT_ONCE {
                let length = match ring.file.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error).context("reading the kernel's functions"),
                };
                let counter = |time: u64| match self.has_counter {
                    true => time,
                    false => clock.counter(time),
                };
                let (reported, processor) = (&mut ring.reported, ring.processor);
                self.layout.events(&self.page[..length], |time, event| {
                    if let KernelEvent::Lost { events } = event {
                        *reported = reported.saturating_add(events);
                    }
                    let clock = counter(time);
                    take(processor, KernelRecord { clock, event });
                });
            }
        }
        Ok(())
    }

    /// The name of the function that an address is in, when it is met for the first time.
    pub fn name(&mut self, address: u64) -> Option<&str> {
        match self.named.insert(address) {
            true => self.names.at(address),
            false => None,
        }
    }

    /// Stops recording. The remaining events can still be read.
    pub fn stop(&self) -> Result<()> {
        self.instance.write("tracing_on", "0")
    }

    /// The number of lost events beyond those reported, by processor.
    pub fn lost(&self) -> impl Iterator<Item = (u32, u64)> {
        self.rings.iter().map(|ring| {
            let lost = self.instance.lost(ring.processor);
            (ring.processor, lost.saturating_sub(ring.reported))
        })
    }
}
