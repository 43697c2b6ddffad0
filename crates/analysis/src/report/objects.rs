//! Rows of a report as a JSON array of objects.

use std::io::{self, Write};

use nopal_trace::Trace;

use crate::losses;
use crate::text::{push_json_string, push_u64};
use crate::waits::Waited;

/// Writes the objects one by one. The first has the member `losses`, if the trace is incomplete.
pub struct Objects<'a> {
    out: &'a mut dyn Write,
    losses: Option<String>,
    /// The current object, without its end.
    text: Vec<u8>,
    is_first: bool,
}

impl Objects<'_> {
    pub fn new<'a>(trace: &Trace, out: &'a mut dyn Write) -> Objects<'a> {
        Objects {
            out,
            losses: losses::json(trace),
            text: Vec::new(),
            is_first: true,
        }
    }

    /// The next object, with its first member.
    pub fn begin(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.write()?;
        self.text
            .extend_from_slice(if self.is_first { b"[\n {" } else { b",\n {" });
        self.is_first = false;
        push_json_string(&mut self.text, name);
        self.text.push(b':');
        push_json_string(&mut self.text, value);
        Ok(())
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        push_json_string(&mut self.text, value);
    }

    pub fn numbers(&mut self, members: &[(&str, u64)]) {
        for (name, value) in members {
            self.name(name);
            push_u64(&mut self.text, *value);
        }
    }

    /// How much of a time was on a processor, and how much was not. All are nanoseconds.
    pub fn waited(&mut self, time_ns: u64, waited_ns: Waited) {
        let parts = waited_ns.parts_of(time_ns);
        self.numbers(&[
            ("cpu_ns", parts.cpu),
            ("wait_ns", parts.wait),
            ("cpu_or_wait_ns", waited_ns.unknown),
            ("blocked_ns", waited_ns.blocked),
            ("preempted_ns", waited_ns.preempted),
            ("runnable_ns", waited_ns.runnable),
        ]);
    }

    pub fn texts<'t>(&mut self, name: &str, values: impl Iterator<Item = &'t str>) {
        self.name(name);
        self.text.push(b'[');
        for (at, value) in values.enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            push_json_string(&mut self.text, value);
        }
        self.text.push(b']');
    }

    /// An object of numbers.
    pub fn numbers_by_name<'t>(
        &mut self,
        name: &str,
        members: impl Iterator<Item = (&'t str, u64)>,
    ) {
        self.name(name);
        self.text.push(b'{');
        for (at, (name, value)) in members.enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            push_json_string(&mut self.text, name);
            self.text.push(b':');
            push_u64(&mut self.text, value);
        }
        self.text.push(b'}');
    }

    /// Those that are true.
    pub fn flags(&mut self, members: &[(&str, bool)]) {
        for (name, _) in members.iter().filter(|(_, is_set)| *is_set) {
            self.name(name);
            self.text.extend_from_slice(b"true");
        }
    }

    fn name(&mut self, name: &str) {
        self.text.push(b',');
        push_json_string(&mut self.text, name);
        self.text.push(b':');
    }

    /// Writes the current object.
    fn write(&mut self) -> io::Result<()> {
        if self.is_first {
            return Ok(());
        }
        if let Some(losses) = self.losses.take() {
            self.text.extend_from_slice(b",\"losses\":");
            self.text.extend_from_slice(losses.as_bytes());
        }
        self.text.push(b'}');
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    pub fn end(mut self) -> io::Result<()> {
        self.write()?;
        let end: &[u8] = if self.is_first { b"[]\n" } else { b"\n]\n" };
        self.out.write_all(end)
    }
}
