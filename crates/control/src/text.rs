//! The text of `ctl`: the state as commands that restore it, and counters as comments.

use std::fmt::Write;

use crate::control::Controller;
use crate::engine::{Act, Calls, Engine, Mark, Mode};
use crate::selection::word;
use crate::state::Trace;
use crate::written::written;

pub const RECORD_BYTES: u64 = 8;

impl Controller<'_> {
    /// The text of `ctl`, in the manner of Plan 9's devtrace.
    pub fn text(&mut self) -> String {
        let engine = &mut *self.engine;
        let state = &self.control.state;
        // Only written records are counted. Where writing fails, the session has ended.
        let _ = engine.perform(Act::Flush);
        let mut out = String::new();
        line(&mut out, format_args!("logsize {}", logsize(engine)));
        // Before those of the traces, which begin them, too.
        let counts = engine.counts();
        for trace in &state.traces {
            push_trace(&mut out, engine, trace);
        }
        state.push_tracers(&mut out);
        for mark in &state.marks {
            let (name, on) = (word(&mark.name), on_or_off(mark.on));
            line(&mut out, format_args!("mark {name} {on}"));
            if let Some(waits) = waits(engine, mark) {
                line(&mut out, format_args!("#{waits}"));
            }
        }
        for active in &state.probes {
            line(&mut out, format_args!("{}", active.probe));
            if let Some(note) = engine.probe_note(&active.probe.name) {
                line(&mut out, format_args!("#{note}"));
            }
            let name = word(&active.probe.name);
            line(
                &mut out,
                format_args!("probe {name} {}", on_or_off(active.on)),
            );
        }
        for active in &state.triggers {
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
        let queued = counts.records.saturating_sub(self.control.tracing.taken);
        line(
            &mut out,
            format_args!("#tracehits {}, in queue {queued}", counts.records),
        );
        line(
            &mut out,
            format_args!("#tracelog {}", engine.facts().directory.display()),
        );
        let active = u32::from(state.started);
        match engine.facts().no_starting {
            Some(why) => line(&mut out, format_args!("#traceactive {active}: {why}")),
            None => line(&mut out, format_args!("#traceactive {active}")),
        }
        line(
            &mut out,
            format_args!("#slothits {}", counts.records.saturating_add(counts.lost)),
        );
        line(&mut out, format_args!("#traceinhits {}", counts.entries));
        if counts.begins {
            line(
                &mut out,
                format_args!("#entries and exits are counted from now on"),
            );
        }
        out.push_str("watch");
        for id in &state.watch.ids {
            let _ = write!(out, " {id}");
        }
        out.push_str(match (state.watch.ids.is_empty(), state.watch.children) {
            (true, _) => " 0\n",
            (false, true) => " children\n",
            (false, false) => "\n",
        });
        line(
            &mut out,
            format_args!("uniform {}", on_or_off(state.uniform.is_some())),
        );
        match state.budget {
            Some(share) => line(&mut out, format_args!("budget {share}")),
            None => line(&mut out, format_args!("budget off")),
        }
        if let Some(spending) = engine.spending() {
            line(&mut out, format_args!("#budget {spending}"));
        }
        out.push_str(if state.started { "start\n" } else { "stop\n" });
        for answer in &self.control.answer {
            line(&mut out, format_args!("#{answer}"));
        }
        out
    }
}

fn push_trace(out: &mut String, engine: &mut dyn Engine, trace: &Trace) {
    let (name, held) = (word(&trace.name), &trace.held);
    line(out, format_args!("trace {} new {name}", held.what));
    if let Some((site, address)) = held.first {
        let functions = engine.describe(&[site]);
        let thunk = functions.first().and_then(|function| function.thunk);
        let thunk = thunk.unwrap_or(0);
        line(
            out,
            format_args!("#trace {address:08x} traced? {thunk:08x}"),
        );
    }
    line(out, format_args!("trace {name} {}", mode_of(trace)));
    let Calls { entries, exits } = engine.calls(&held.sites);
    let counted = match trace.mode {
        Mode::Counted => ", its calls are counted",
        _ => "",
    };
    line(
        out,
        format_args!(
            "#functions {}, refused {}, entries {entries}, exits {exits}{counted}",
            held.sites.len(),
            held.refused.len() + held.left_out
        ),
    );
}

/// The number of records for which the buffer has room, as a power of two.
pub fn logsize(engine: &dyn Engine) -> u32 {
    (engine.facts().buffer / RECORD_BYTES).max(1).ilog2()
}

/// For people: that no marker matches a mark now, so that it waits for a library.
pub fn waits(engine: &mut dyn Engine, mark: &Mark) -> Option<String> {
    let is_there = engine
        .markers(&mark.name)
        .is_ok_and(|names| !names.is_empty());
    (mark.on && !is_there).then(|| format!("mark {} waits for its library", word(&mark.name)))
}

/// The word that brings a trace into its mode.
pub fn mode_of(trace: &Trace) -> &'static str {
    match trace.mode {
        Mode::Counted => "count",
        _ => on_or_off(trace.is_on()),
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
