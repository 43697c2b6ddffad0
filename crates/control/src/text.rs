//! The text of `ctl`: the state as commands that restore it, and counters as comments.

use std::fmt::Write;

use crate::engine::{Engine, SiteKey};
use crate::selection::word;
use crate::state::{Control, Trace};
use crate::tracers::is_of_tracer;
use crate::triggers::written;

impl Control {
    /// In the manner of Plan 9's devtrace.
    pub(crate) fn text(&self, engine: &mut dyn Engine) -> String {
        // What is counted is what has been written. Where that fails, the session has ended.
        let _ = engine.flush();
        let mut out = String::new();
        line(
            &mut out,
            format_args!("logsize {}", Control::logsize(engine)),
        );
        for trace in self
            .traces
            .iter()
            .filter(|trace| !is_of_tracer(&trace.name))
        {
            self.push_trace(&mut out, engine, trace);
        }
        self.tracers.push_text(&mut out);
        for mark in &self.marks {
            let (name, on) = (word(&mark.name), on_or_off(mark.on));
            line(&mut out, format_args!("mark {name} {on}"));
        }
        for active in self
            .probes
            .iter()
            .filter(|active| !is_of_tracer(&active.probe.name))
        {
            line(&mut out, format_args!("{}", active.probe));
            let name = word(&active.probe.name);
            line(
                &mut out,
                format_args!("probe {name} {}", on_or_off(active.on)),
            );
        }
        for active in &self.triggers {
            let name = word(&active.name);
            let when = written(&active.trigger);
            line(&mut out, format_args!("{when} new {name}"));
            let hits = engine.hits(&active.name);
            line(
                &mut out,
                format_args!("#when {name} met {}, fired {}", hits.met, hits.fired),
            );
            if hits.passed_over > 0 {
                let note = format_args!("#when {name} passed over {}: too fast", hits.passed_over);
                line(&mut out, note);
            }
            if let Some(error) = &active.failed {
                line(&mut out, format_args!("#when {name} failed: {error}"));
            }
        }
        for snapshot in engine.snapshots() {
            line(&mut out, format_args!("#{snapshot}"));
        }
        let counts = engine.counts();
        let queued = counts.records.saturating_sub(self.tracing.taken());
        line(
            &mut out,
            format_args!("#tracehits {}, in queue {queued}", counts.records),
        );
        line(
            &mut out,
            format_args!("#tracelog {}", engine.directory().display()),
        );
        line(
            &mut out,
            format_args!("#traceactive {}", u32::from(self.started)),
        );
        line(
            &mut out,
            format_args!("#slothits {}", counts.records.saturating_add(counts.lost)),
        );
        line(&mut out, format_args!("#traceinhits {}", counts.entries));
        out.push_str("watch");
        for id in &self.watched {
            let _ = write!(out, " {id}");
        }
        out.push_str(match (self.watched.is_empty(), self.children) {
            (true, _) => " 0\n",
            (false, true) => " children\n",
            (false, false) => "\n",
        });
        line(
            &mut out,
            format_args!("uniform {}", on_or_off(self.uniform.is_some())),
        );
        out.push_str(if self.started { "start\n" } else { "stop\n" });
        for answer in &self.answer {
            line(&mut out, format_args!("#{answer}"));
        }
        out
    }

    fn push_trace(&self, out: &mut String, engine: &mut dyn Engine, trace: &Trace) {
        let name = word(&trace.name);
        line(out, format_args!("trace {} new {name}", trace.what));
        if let Some((site, address)) = trace.first {
            let thunk = engine.thunk(site).unwrap_or(0);
            line(
                out,
                format_args!("#trace {address:08x} traced? {thunk:08x}"),
            );
        }
        line(out, format_args!("trace {name} {}", on_or_off(trace.on)));
        let keys: Vec<SiteKey> = self.sites.keys(&trace.sites);
        let (mut entries, mut exits) = (0, 0);
        for calls in engine.calls(&keys) {
            entries += calls.entries;
            exits += calls.exits;
        }
        line(
            out,
            format_args!(
                "#functions {}, refused {}, entries {entries}, exits {exits}",
                keys.len(),
                trace.refused
            ),
        );
    }
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A line, with nothing in it that would end it or that a terminal would obey.
fn line(out: &mut String, text: std::fmt::Arguments) {
    out.push_str(&nopal_symbols::printable(&text.to_string()));
    out.push('\n');
}
