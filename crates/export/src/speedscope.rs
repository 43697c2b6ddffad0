//! The format of speedscope: JSON with a profile for each thread, of the begins and ends of its calls.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::blocks::{self, Port};
use nopal_analysis::calls::{Ending, Frame, Sink, Style};
use nopal_analysis::drive::{Drive, Worker};
use nopal_analysis::losses;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::span::begin;
use nopal_analysis::text::{push_json_string, push_u64};
use nopal_trace::{Clocks, ThreadInfo, Trace};

use crate::LeftOut;
use crate::pending::Pending;

pub fn write(trace: &Trace, names: &Names, drive: &Drive, out: &mut dyn Write) -> Result<LeftOut> {
    out.write_all(&head(trace, names))?;
    let thread_names = ThreadNames::new(trace);
    // The profile of a thread is one piece.
    let drive = Drive {
        workers: 1,
        ..*drive
    };
    let mut written = blocks::write(trace, &drive, out, |port| Profiles {
        names,
        thread_names: &thread_names,
        clocks: trace.clocks(),
        begin_ns: trace.clocks().monotonic_ns(begin(trace)),
        port,
        open: Vec::new(),
        pending: Vec::new(),
        profiles: 0,
        from: drive.filter.and_then(|filter| filter.from).unwrap_or(0),
        events: 0,
        end_ns: 0,
        at_ns: 0,
        text: Vec::new(),
        left_out: LeftOut::default(),
    })?;
    let mut left_out = LeftOut::default();
    for profiles in &mut written {
        profiles.end_profile();
        out.write_all(&profiles.text)?;
        left_out.add(&profiles.left_out);
    }
    writeln!(out, "\n]}}")?;
    Ok(left_out)
}

/// All that stands before the profiles.
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
    names: &'a Names,
    thread_names: &'a ThreadNames<'a>,
    clocks: &'a Clocks,
    begin_ns: u64,
    port: Port,
    /// Sites of the calls whose begins have been written, and whose ends have not.
    open: Vec<u32>,
    pending: Vec<Pending>,
    profiles: u64,
    /// Where the selected time begins.
    from: u64,
    /// The events of the present profile, and its end.
    events: u64,
    end_ns: u64,
    at_ns: u64,
    text: Vec<u8>,
    left_out: LeftOut,
}

impl Profiles<'_> {
    fn ns(&self, clock: u64) -> u64 {
        self.clocks
            .monotonic_ns(clock)
            .saturating_sub(self.begin_ns)
    }

    fn push(&mut self, kind: u8, site: u32, clock: u64) {
        // Times never go back, and none is behind the profile's end.
        let ns = self.ns(clock).min(self.end_ns).max(self.at_ns);
        self.push_at(kind, site, ns);
    }

    fn push_at(&mut self, kind: u8, site: u32, ns: u64) {
        self.at_ns = ns;
        self.text.extend_from_slice(if self.events == 0 {
            b"\n{\"type\":\""
        } else {
            b",\n{\"type\":\""
        });
        self.events += 1;
        self.text.push(kind);
        self.text.extend_from_slice(b"\",\"frame\":");
        push_u64(&mut self.text, self.names.number(site).into());
        self.text.extend_from_slice(b",\"at\":");
        push_u64(&mut self.text, self.at_ns);
        self.text.push(b'}');
    }

    /// Ends the present profile, if there is one.
    fn end_profile(&mut self) {
        if self.profiles == 0 {
            return;
        }
        while let Some(site) = self.open.pop() {
            self.push_at(b'C', site, self.at_ns);
        }
        self.text.extend_from_slice(b"]}");
    }

    fn begin_call(&mut self, site: u32, clock: u64) {
        self.push(b'O', site, clock);
        self.open.push(site);
    }

    fn end_call(&mut self, clock: u64) {
        if let Some(site) = self.open.pop() {
            self.push(b'C', site, clock);
        }
    }

    /// The begins of pending frames, before an event at `clock`.
    fn begin_pending(&mut self, clock: u64) {
        for pending in std::mem::take(&mut self.pending) {
            self.begin_call(pending.frame.site(), pending.begin(clock));
        }
    }

    /// Whether the frame was pending, and is no longer.
    fn drop_pending(&mut self) -> bool {
        self.pending.pop().is_some()
    }
}

impl Sink for Profiles<'_> {
    fn enter_left_out(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last() else {
            return 0;
        };
        if frame.style() == Style::Only {
            self.left_out.entries += 1;
        } else if frame.clock <= self.from {
            self.pending.push(Pending::open(frame));
        } else {
            self.begin_pending(frame.clock);
            self.begin_call(frame.site(), frame.clock);
        }
        0
    }

    #[inline(always)]
    fn leave(&mut self, _frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.begin_pending(ending.clock);
        self.end_call(ending.clock);
    }

    fn lose(&mut self, _frame: &Frame, clock: u64, counted: bool) {
        if Pending::goes_on(&self.pending, clock) {
            self.begin_pending(clock);
        }
        if counted && !self.drop_pending() {
            self.end_call(clock);
        }
    }

    fn dismiss(&mut self, frame: &Frame, counted: bool) {
        if counted && frame.style() != Style::Only {
            self.drop_pending();
        }
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {
        self.left_out.began_before += 1;
    }

    fn mark(&mut self, _clock: u64, _event: u32, _payload: &[u64], _frames: &[Frame]) {
        self.left_out.markers += 1;
    }

    fn missing(&mut self, _clock: u64, _ticks: u64) {
        self.pending.clear();
    }

    fn aside(&mut self, frames: &[Frame]) {
        for _ in frames.iter().filter(|frame| frame.style() != Style::Only) {
            if !self.drop_pending() {
                let at_ns = self.at_ns;
                if let Some(site) = self.open.pop() {
                    self.push_at(b'C', site, at_ns);
                }
            }
        }
    }

    fn resume(&mut self, frames: &[Frame]) {
        let timed = frames.iter().filter(|frame| frame.style() != Style::Only);
        self.pending.extend(timed.map(Pending::resumed));
    }
}

impl Worker for Profiles<'_> {
    fn begin(&mut self, _stream: usize, thread: &ThreadInfo) {
        self.end_profile();
        self.pending.clear();
        let first = thread
            .packets()
            .next()
            .map_or(0, |packet| packet.clock_begin());
        let last = thread.packets().next_back();
        self.at_ns = self.ns(first);
        self.end_ns = self.ns(last.map_or(0, |packet| packet.clock_end()));
        self.text.extend_from_slice(match self.profiles {
            0 => b"\n{\"type\":\"evented\",\"name\":",
            _ => b",\n{\"type\":\"evented\",\"name\":",
        });
        self.profiles += 1;
        self.events = 0;
        let name = format!("{} {}", self.thread_names.of(thread), thread.thread);
        push_json_string(&mut self.text, &name);
        let times = format!(
            ",\"unit\":\"nanoseconds\",\"startValue\":{},\"endValue\":{},\"events\":[",
            self.at_ns, self.end_ns
        );
        self.text.extend_from_slice(times.as_bytes());
    }

    fn pause(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        self.text = self.port.send(text)?;
        Ok(())
    }
}
