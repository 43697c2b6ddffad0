//! Rows of a report as a JSON array of objects.

use std::io::{self, Write};

use nopal_symbols::{Held, Value};
use nopal_trace::Trace;

use crate::losses;
use crate::prototypes::{Values, shown};
use crate::text::{push_json_string, push_u64};
use crate::waits::{InCall, Waited};

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

    /// Numbers that only some rows have.
    pub fn numbers_if(&mut self, known: bool, members: &[(&str, u64)]) {
        if known {
            return self.numbers(members);
        }
        for (name, _) in members {
            self.name(name);
            self.text.extend_from_slice(b"null");
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

    /// The same of the total and of the self time of calls.
    pub fn waited_in_calls(&mut self, total_ns: u64, self_ns: u64, waited_ns: InCall) {
        self.waited(total_ns, waited_ns.total);
        let parts = waited_ns.own.parts_of(self_ns);
        self.numbers(&[("self_cpu_ns", parts.cpu), ("self_wait_ns", parts.wait)]);
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

    /// An array of objects with the type and the value of each, which is null if `words` do not have it, and the text of
    /// those that are addresses of constants. Values of no bytes are left out.
    pub fn typed_values<'t>(
        &mut self,
        name: &str,
        values: impl Iterator<Item = (Option<&'t str>, &'t Value)>,
        words: &[u64],
        shown_by: &Values,
    ) {
        self.name(name);
        self.text.push(b'[');
        let mut separator: &[u8] = b"";
        for (name, value) in values.filter(|(_, value)| value.held != Held::Nothing) {
            self.text.extend_from_slice(separator);
            separator = b",";
            self.text.push(b'{');
            if let Some(name) = name {
                self.text.extend_from_slice(b"\"name\":");
                push_json_string(&mut self.text, name);
                self.text.push(b',');
            }
            self.text.extend_from_slice(b"\"type\":");
            push_json_string(&mut self.text, &value.type_name);
            self.text.extend_from_slice(b",\"value\":");
            match shown(value, words) {
                Some(shown) => push_json_string(&mut self.text, &shown),
                None => self.text.extend_from_slice(b"null"),
            }
            if let Some(constant) = shown_by.constant(value, words) {
                self.text.extend_from_slice(b",\"text\":");
                push_json_string(&mut self.text, &String::from_utf8_lossy(constant));
            }
            self.text.push(b'}');
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

    /// An array of objects, to each of which `write` adds members, at least one.
    pub fn objects<T>(
        &mut self,
        name: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.name(name);
        self.text.push(b'[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            // In place of the comma before the first member.
            let begin = self.text.len();
            write(self, item);
            self.text[begin] = b'{';
            self.text.push(b'}');
        }
        self.text.push(b']');
    }

    /// Adds the flags that are true.
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
