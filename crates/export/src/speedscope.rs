//! The format of speedscope: JSON with a profile for each thread, of the begins and ends of its calls.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::blocks::{self, Port};
use nopal_analysis::drive::Drive;
use nopal_analysis::losses;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::text::{push_json_string, push_u64};
use nopal_trace::{ThreadInfo, Trace};

use crate::LeftOut;
use crate::evented::{Evented, Events};

pub fn write(trace: &Trace, names: &Names, drive: &Drive, out: &mut dyn Write) -> Result<LeftOut> {
    out.write_all(&head(trace, names))?;
    let thread_names = ThreadNames::new(trace);
    // The profile of a thread is one piece.
    let drive = Drive {
        workers: 1,
        ..*drive
    };
    let mut written = blocks::write(trace, &drive, out, |port| {
        let profiles = Profiles {
            thread_names: &thread_names,
            port,
            profiles: 0,
            events: 0,
            text: Vec::new(),
        };
        Evented::new(trace, names, &drive, profiles)
    })?;
    let mut left_out = LeftOut::default();
    for evented in &mut written {
        out.write_all(&evented.end())?;
        left_out.add(&evented.left_out);
    }
    writeln!(out, "\n]}}")?;
    Ok(left_out)
}

/// The text before the profiles.
fn head(trace: &Trace, names: &Names) -> Vec<u8> {
    let mut text =
        b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"nopal\",\"name\":"
            .to_vec();
    let command = trace.session().command.join(" ");
    let name = match losses::line(trace) {
        Some(line) => format!("{command} ({line})"),
        None => command,
    };
    push_json_string(&mut text, &name);
    text.extend_from_slice(b",\"shared\":{\"frames\":[");
    for (at, function) in names.functions().iter().enumerate() {
        text.extend_from_slice(if at == 0 {
            b"\n{\"name\":"
        } else {
            b",\n{\"name\":"
        });
        push_json_string(&mut text, &function.name);
        text.extend_from_slice(b",\"file\":");
        push_json_string(&mut text, &function.module);
        text.push(b'}');
    }
    text.extend_from_slice(b"]},\"profiles\":[");
    text
}

struct Profiles<'a> {
    thread_names: &'a ThreadNames<'a>,
    port: Port,
    profiles: u64,
    /// The number of events of the present profile.
    events: u64,
    text: Vec<u8>,
}

impl Profiles<'_> {
    fn push(&mut self, kind: u8, function: u32, ns: u64) {
        self.text.extend_from_slice(if self.events == 0 {
            b"\n{\"type\":\""
        } else {
            b",\n{\"type\":\""
        });
        self.events += 1;
        self.text.push(kind);
        self.text.extend_from_slice(b"\",\"frame\":");
        push_u64(&mut self.text, function.into());
        self.text.extend_from_slice(b",\"at\":");
        push_u64(&mut self.text, ns);
        self.text.push(b'}');
    }
}

impl Events for Profiles<'_> {
    fn begin_thread(&mut self, thread: &ThreadInfo, begin_ns: u64, end_ns: u64) {
        self.text.extend_from_slice(match self.profiles {
            0 => b"\n{\"type\":\"evented\",\"name\":",
            _ => b",\n{\"type\":\"evented\",\"name\":",
        });
        self.profiles += 1;
        self.events = 0;
        let name = format!("{} {}", self.thread_names.of(thread), thread.thread);
        push_json_string(&mut self.text, &name);
        let times = format!(
            ",\"unit\":\"nanoseconds\",\"startValue\":{begin_ns},\"endValue\":{end_ns},\"events\":["
        );
        self.text.extend_from_slice(times.as_bytes());
    }

    fn begin_call(&mut self, function: u32, ns: u64) {
        self.push(b'O', function, ns);
    }

    fn end_call(&mut self, function: u32, ns: u64) {
        self.push(b'C', function, ns);
    }

    fn end_thread(&mut self) {
        self.text.extend_from_slice(b"]}");
    }

    fn pause(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        self.text = self.port.send(text)?;
        Ok(())
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }
}
