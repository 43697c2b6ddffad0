//! Tracers that measure nothing: what they record stands in the trace.

use anyhow::{Context, Result};
use nopal_analysis::tracers::Tracer;

use crate::engine::{Engine, Mark};
use crate::state::Control;
use crate::syntax::quoted;

/// An event tracer that is on.
pub(crate) struct Recording {
    pub name: &'static str,
    /// The first lines of what it has recorded.
    pub head: &'static str,
    /// All markers are on for its sake.
    marks: bool,
}

/// `events`: all markers and kernel events. `sched_switch`: context switches alone.
const EVENTS: &str = "events";
const SWITCHES: &str = "sched_switch";
pub(crate) const NAMES: [&str; 2] = [EVENTS, SWITCHES];

const ALL_MARKERS: &str = "*";

impl Recording {
    /// The tracer of latency that needs the same of kernel events.
    pub fn needs(&self) -> Tracer {
        match self.name {
            SWITCHES => Tracer::OffCpu,
            _ => Tracer::Wakeup,
        }
    }
}

impl Control {
    pub(crate) fn recording_on(
        &mut self,
        engine: &mut dyn Engine,
        name: &'static str,
    ) -> Result<String> {
        if self.tracers.recording.iter().any(|one| one.name == name) {
            return Ok(String::new());
        }
        let marks = name == EVENTS
            && !self.marks.iter().any(|mark| is_all(mark) && mark.on)
            && !engine.markers(ALL_MARKERS)?.is_empty();
        let head = match name {
            SWITCHES => "# tracer: sched_switch\n#\n",
            _ => "# tracer: events\n#\n",
        };
        let recording = Recording { name, head, marks };
        let needs = recording.needs();
        let answer = match engine.record_kernel_events(&self.tracers.of_kernel_events(Some(&needs)))
        {
            // Markers need no rights.
            Err(error) if marks => format!("{name}: only markers: {error:#}"),
            other => other.map(|()| String::new())?,
        };
        self.tracers.recording.push(recording);
        if marks {
            self.mark_all(engine, true)?;
        }
        Ok(answer)
    }

    pub(crate) fn recording_off(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        let mut recording = self.tracers.recording.iter();
        let at = recording.position(|one| one.name == name);
        let at = at.with_context(|| format!("the tracer {} is off", quoted(name)))?;
        let ended = self.tracers.recording.remove(at);
        engine.record_kernel_events(&self.tracers.of_kernel_events(None))?;
        if ended.marks {
            self.mark_all(engine, false)?;
        }
        Ok(String::new())
    }

    /// Markers that somebody else has switched stay as they were.
    fn mark_all(&mut self, engine: &mut dyn Engine, on: bool) -> Result<()> {
        let mut marks = self.marks.clone();
        marks.retain(|mark| !is_all(mark));
        if on {
            let name = ALL_MARKERS.to_owned();
            marks.insert(0, Mark { name, on });
        }
        if self.started {
            engine.mark(&marks)?;
        }
        self.marks = marks;
        Ok(())
    }
}

fn is_all(mark: &Mark) -> bool {
    mark.name == ALL_MARKERS
}
