//! The names and habits of the kernel's tracing directory, over the same state. Its function tracer is a trace named
//! `function`.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::dump::{Excerpt, Look};
use nopal_analysis::sort;
use nopal_serve::Failure;
use nopal_symbols::{is_harmless, nearest, or_nearest};

use crate::begin::FUNCTION_TRACER as FUNCTION;
use crate::command::Command;
use crate::control::{Controller, Tracing};
use crate::draft::Draft;
use crate::engine::{Act, FoundSite, Function, Mark, Mode};
use crate::file::{File, Shown, failure, invalid};
use crate::metrics::{Kind, Metric};
use crate::selection::{FunctionSelection, Location, Part, word};
use crate::site_key::SiteKey;
use crate::state::{EventTracer, State, Trace};
use crate::stream::{Format, Kept, Show, Stream};
use crate::syntax::{locations_in, numbers_in, quoted};
use crate::table::{FILES, FOLDER, Role, SECTIONS};
use crate::text::waits;

const MOST_ERRORS: usize = 8;

impl Tracing {
    /// Keeps an error for `error_log`.
    pub fn failed(&mut self, error: Failure) -> Failure {
        self.tell(error.message.clone());
        error
    }

    /// Adds a line to `error_log`.
    fn tell(&mut self, line: String) {
        if self.errors.len() == MOST_ERRORS {
            self.errors.remove(0);
        }
        self.errors.push(line);
    }
}

impl Controller<'_> {
    /// The functions that the function tracer records, or would record.
    fn functions(&self) -> &FunctionSelection {
        let trace = self.control.state.trace(FUNCTION);
        trace.map_or(&self.control.tracing.functions, |trace| &trace.held.what)
    }

    pub fn show(&mut self, role: Role) -> Result<Shown, Failure> {
        let failed = |error: anyhow::Error| failure(libc::EIO, format_args!("{error:#}"));
        let text = match role {
            Role::Control => self.text(),
            Role::Metrics => self.metrics(),
            Role::Devtrace => return self.stream(Format::Devtrace, "").map_err(failed),
            Role::Trace => {
                return self
                    .stream(Format::Function(self.control.tracing.look), self.head())
                    .map_err(failed);
            }
            Role::TracePipe => return Ok(Shown::Pipe(None, Kept::default())),
            Role::AvailableTracers => {
                let names: Vec<String> = self.control.state.tracer_names().map(word).collect();
                format!("function {} nop disable\n", names.join(" "))
            }
            Role::CurrentTracer => format!("{}\n", self.tracer()),
            Role::Threshold => format!("{}\n", self.control.state.threshold),
            Role::WorstLatency => {
                self.engine.perform(Act::Flush).map_err(failed)?;
                format!("{}\n", self.control.state.worst_microseconds())
            }
            Role::Latency => match self.control.state.current_tracer() {
                Some(active) => {
                    let name = active.tracer.name().to_owned();
                    self.latency(&name, self.control.tracing.look)
                        .map_err(failed)?
                }
                None => {
                    let events = self.control.state.event_tracers.last();
                    let title = events.map_or(FUNCTION, |events| events.name());
                    let format = Format::Latency(title, self.control.tracing.look);
                    return self.stream(format, "").map_err(failed);
                }
            },
            Role::Histogram { of, processor } => {
                self.engine.perform(Act::Flush).map_err(failed)?;
                match of {
                    SECTIONS => self.control.state.section_histograms(processor),
                    _ => self.control.state.histogram(of, processor),
                }
            }
            Role::TracingOn => format!("{}\n", u32::from(self.control.state.started)),
            Role::Filter { excluded } => self.filter(excluded).map_err(failed)?,
            Role::AvailableFunctions => {
                let all = FunctionSelection::of_names([], [], true);
                self.lines_of(&all).map_err(failed)?
            }
            Role::Processes if self.control.state.watch.ids.is_empty() => "no pid\n".into(),
            Role::Processes => self
                .control
                .state
                .watch
                .ids
                .iter()
                .map(|id| format!("{id}\n"))
                .collect(),
            Role::BufferSize => format!("{}\n", self.engine.facts().buffer >> 10),
            Role::Options => {
                let Look { addresses, verbose } = self.control.tracing.look;
                format!("{}symonly\n{}verbose\n", no(addresses), no(!verbose))
            }
            Role::Errors => self
                .control
                .tracing
                .errors
                .iter()
                .map(|error| format!("{error}\n"))
                .collect(),
            Role::Readme => readme(),
            Role::Marker => String::new(),
            Role::Marks => self.marks(),
        };
        Ok(Shown::Text(text.into_bytes()))
    }

    fn metrics(&mut self) -> String {
        let mut metrics = self.engine.metrics();
        let triggers = self.control.state.triggers.iter();
        let hits = triggers.map(|active| {
            let name = active.name.clone();
            let fired = self.engine.hits(&name).fired;
            (vec![("trigger", name)], fired as f64)
        });
        metrics.push(Metric {
            name: "nopal_trigger_fired_total",
            kind: Kind::Counter,
            about: "How often the condition of a trigger held.",
            values: hits.collect(),
        });
        metrics.iter().map(Metric::to_string).collect()
    }

    fn tracer(&self) -> String {
        let state = &self.control.state;
        if let Some(active) = state.current_tracer() {
            return word(active.tracer.name());
        }
        match state.event_tracers.last() {
            Some(events) => events.name().into(),
            None if state.trace(FUNCTION).is_some_and(Trace::is_on) => FUNCTION.into(),
            None => "nop".into(),
        }
    }

    /// The head of the file `trace`.
    fn head(&self) -> &'static str {
        match self.control.state.event_tracers.last() {
            Some(EventTracer::Switches { .. }) => "# tracer: sched_switch\n#\n",
            Some(EventTracer::Events { .. }) => "# tracer: events\n#\n",
            None => "# tracer: function\n#\n",
        }
    }

    fn stream(&mut self, format: Format, head: &'static str) -> Result<Shown> {
        self.engine.perform(Act::Flush)?;
        let show = Show {
            directory: self.engine.facts().directory.to_owned(),
            kept: Kept::default(),
            excerpt: Excerpt {
                after: self.control.tracing.emptied,
                until: u64::MAX,
            },
            format,
            head,
        };
        Ok(Shown::Stream(Stream::new(show)))
    }

    /// The records since the last call; `None` if there are none.
    pub fn take_recorded(&mut self, kept: &Kept) -> Result<Option<Stream>, Failure> {
        let until = self.engine.facts().clock;
        self.engine
            .perform(Act::Flush)
            .map_err(|error| failure(libc::EIO, format_args!("{error:#}")))?;
        let counts = self.engine.counts();
        if counts.bytes != self.control.tracing.bytes {
            self.control.tracing.grown = self.engine.facts().clock;
        } else if self.control.tracing.piped >= self.control.tracing.grown {
            return Ok(None);
        }
        let show = Show {
            directory: self.engine.facts().directory.to_owned(),
            kept: kept.clone(),
            excerpt: Excerpt {
                after: self.control.tracing.piped.max(self.control.tracing.emptied),
                until,
            },
            format: Format::Function(self.control.tracing.look),
            head: "",
        };
        (self.control.tracing.taken, self.control.tracing.bytes) = (counts.records, counts.bytes);
        self.control.tracing.piped = until;
        Ok(Some(Stream::new(show)))
    }

    fn filter(&mut self, excluded: bool) -> Result<String> {
        let parts = self.functions().parts().iter();
        let parts: Vec<Part> = parts
            .filter(|part| part.excluded == excluded)
            .cloned()
            .collect();
        let everything = [Part::named("*", false)];
        if parts.is_empty() || parts == everything {
            let all = if excluded {
                "no functions disabled"
            } else {
                "all functions enabled"
            };
            return Ok(format!("#### {all} ####\n"));
        }
        let parts = parts.into_iter().map(|part| Part {
            excluded: false,
            ..part
        });
        self.lines_of(&FunctionSelection::parsed(parts.collect()))
    }

    /// The functions of a selection, one a line, as a filter takes it.
    fn lines_of(&mut self, what: &FunctionSelection) -> Result<String> {
        let mut draft = Draft::new(State::default(), self.engine);
        let found = draft.find(what)?;
        Ok(lines(&mut draft, &found))
    }

    /// Empties a file, as a shell's `>` does before it writes.
    pub fn truncate(&mut self, file: &mut File) {
        match file.role {
            Role::Trace => self.control.tracing.emptied = self.engine.facts().clock,
            Role::Errors => self.control.tracing.errors.clear(),
            // The list that replaces it is not known yet.
            Role::Filter { .. } | Role::Processes | Role::Marks => {
                file.locations = Some(Vec::new())
            }
            _ => {}
        }
    }

    pub fn write_line(&mut self, file: &mut File, line: &str) -> Result<(), Failure> {
        let answer = match file.role {
            Role::CurrentTracer => self.set_tracer(line.trim()).map(drop),
            Role::TracingOn => self.set_on(line.trim()),
            Role::Threshold => self.set_threshold(line.trim()),
            Role::WorstLatency => self.forget_worst(line.trim()),
            Role::Filter { excluded } => self.edit_filter(file, line, excluded),
            Role::Processes => self.edit_watched(file, line),
            Role::Marks => self.edit_marks(file, line),
            Role::BufferSize => self.set_buffer(line.trim()),
            Role::Options => self.set_options(line),
            Role::Marker => {
                let (text, counter) = (line, None);
                let written = self.engine.perform(Act::Write { text, counter });
                written.map(drop)
            }
            _ => Ok(()),
        };
        answer.map_err(|error| invalid(format_args!("{}: {error:#}", quoted(line.trim()))))
    }

    /// Empties the setting behind a file that was emptied, and into which nothing was written then.
    pub fn finish(&mut self, file: &mut File) -> Result<(), Failure> {
        let emptied = file
            .locations
            .take()
            .is_some_and(|locations| locations.is_empty());
        let done = match file.role {
            Role::Filter { excluded } if emptied => self.set_filter(excluded, Vec::new()),
            Role::Processes if emptied => self
                .obey(Command::Watch {
                    ids: vec![0],
                    children: false,
                })
                .map(drop),
            Role::Marks if emptied => self.change_marks(true, &[]),
            _ => Ok(()),
        };
        done.map_err(|error| {
            self.control
                .tracing
                .failed(invalid(format_args!("{error:#}")))
        })
    }

    fn set_threshold(&mut self, word: &str) -> Result<()> {
        let microseconds: u64 = word
            .parse()
            .ok()
            .context("expected a number of microseconds")?;
        self.change(|draft| {
            draft.state.threshold = microseconds;
            Ok(())
        })
        .map(drop)
    }

    /// Forgets the worst case of the tracer of latency that was switched on last. Recording goes on, or begins.
    fn forget_worst(&mut self, word: &str) -> Result<()> {
        ensure!(word == "0", "expected 0, which forgets the worst case");
        if let Some(active) = self.control.state.current_tracer() {
            active.live.reset();
        }
        self.obey(Command::Start).map(drop)
    }

    /// There is one tracer at a time here, as in the kernel.
    fn set_tracer(&mut self, name: &str) -> Result<String> {
        let is_known = self.control.state.tracer_names().any(|known| known == name);
        if is_known {
            let answer = self.tracer_on(name)?;
            self.change(|draft| {
                draft.tracers_off(|other| other != name);
                Ok(())
            })?;
            self.set_function_tracer("nop")?;
            return Ok(answer);
        }
        if [FUNCTION, "nop", "disable"].contains(&name) {
            self.change(|draft| {
                draft.tracers_off(|_| true);
                Ok(())
            })?;
        }
        self.set_function_tracer(name)
    }

    fn set_function_tracer(&mut self, name: &str) -> Result<String> {
        let known = self.control.state.trace(FUNCTION);
        match (name, known) {
            (FUNCTION, known) => {
                let what = known.is_none().then(|| self.functions().clone());
                self.change(|draft| {
                    if let Some(what) = what {
                        let what = draft.portable(what);
                        let held = draft.hold_for_function_tracer(what)?;
                        let (name, mode) = (FUNCTION.to_owned(), Mode::Off);
                        let trace = Arc::new(Trace { name, held, mode });
                        draft.state.traces.push(trace);
                    }
                    draft.switch(FUNCTION, true)
                })
            }
            ("nop" | "disable", Some(known)) => {
                let what = known.held.what.clone();
                let name = FUNCTION.to_owned();
                let answer = self.obey(Command::Remove { name })?;
                self.control.tracing.functions = what;
                Ok(answer)
            }
            ("nop" | "disable", None) => Ok(String::new()),
            _ => {
                let names: Vec<&str> = self.control.state.tracer_names().collect();
                let all = names.iter().copied().chain([FUNCTION, "nop", "disable"]);
                bail!(
                    "expected function, {}, nop or disable{}",
                    names.join(", "),
                    or_nearest(&nearest(all, name))
                )
            }
        }
    }

    fn set_on(&mut self, word: &str) -> Result<()> {
        match word {
            "1" => self.obey(Command::Start),
            "0" => self.obey(Command::Stop),
            _ => bail!("expected 0 or 1"),
        }
        .map(drop)
    }

    fn set_buffer(&mut self, word: &str) -> Result<()> {
        let kilobytes: Option<u64> = word.parse().ok();
        let bytes = kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1024));
        match bytes {
            Some(asked) if asked > 0 => {
                self.engine.perform(Act::Resize(asked))?;
                let set = self.engine.facts().buffer;
                if set != asked {
                    let instead = format!(
                        "{}: the buffer has {} KiB, not {}: it has whole chunks of memory",
                        quoted(word),
                        set >> 10,
                        asked >> 10
                    );
                    self.control.tracing.tell(instead);
                }
                Ok(())
            }
            _ => bail!("expected a number of KiB"),
        }
    }

    fn set_options(&mut self, line: &str) -> Result<()> {
        let mut look = self.control.tracing.look;
        for word in line.split_whitespace() {
            match word {
                "symonly" => look.addresses = false,
                "nosymonly" => look.addresses = true,
                "verbose" => look.verbose = true,
                "noverbose" => look.verbose = false,
                _ => {
                    let all = ["symonly", "nosymonly", "verbose", "noverbose"];
                    let near = or_nearest(&nearest(all, word));
                    bail!("expected symonly, nosymonly, verbose or noverbose{near}")
                }
            }
        }
        self.control.tracing.look = look;
        Ok(())
    }

    fn edit_watched(&mut self, file: &mut File, line: &str) -> Result<()> {
        let mut ids = if file.locations.is_some() {
            Vec::new()
        } else {
            self.control.state.watch.ids.clone()
        };
        let mut new = numbers_in(line);
        ensure!(
            new.len() == line.split_whitespace().count(),
            "expected process and thread ids"
        );
        if new.is_empty() {
            return Ok(());
        }
        new.retain(|id| !ids.contains(id));
        ids.extend(new);
        self.obey(Command::Watch {
            ids,
            children: self.control.state.watch.children,
        })?;
        file.locations = None;
        Ok(())
    }

    /// The markers that are wanted, and comments on those that wait, as the file takes them.
    fn marks(&mut self) -> String {
        let mut text = String::new();
        for mark in &self.control.state.marks {
            let off = if mark.on { "" } else { "!" };
            text.push_str(&format!("{off}{}\n", word(&mark.name)));
            if let Some(waits) = waits(self.engine, mark) {
                text.push_str(&format!("#{waits}\n"));
            }
        }
        text
    }

    fn edit_marks(&mut self, file: &mut File, line: &str) -> Result<()> {
        let words = line.split('#').next().unwrap_or("").split_whitespace();
        let marks: Vec<Mark> = words
            .map(|word| Mark {
                name: word.trim_start_matches('!').to_owned(),
                on: !word.starts_with('!'),
            })
            .collect();
        if marks.is_empty() {
            return Ok(());
        }
        // A refusal changes nothing, not even when the file is closed.
        self.change_marks(file.locations.take().is_some(), &marks)
    }

    /// `anew`: in place of the present ones.
    fn change_marks(&mut self, anew: bool, marks: &[Mark]) -> Result<()> {
        self.change(|draft| {
            if anew {
                draft.state.marks.clear();
            }
            let mut marks = marks.iter();
            marks.try_for_each(|mark| draft.mark(mark.clone()))
        })
        .map(drop)
    }

    fn edit_filter(&mut self, file: &mut File, line: &str, excluded: bool) -> Result<()> {
        let written = locations_in(line);
        if written.is_empty() {
            return Ok(());
        }
        let mut locations = match &file.locations {
            Some(locations) => locations.clone(),
            None => self.filtered(excluded),
        };
        for part in written {
            // `ctl` could not repeat it.
            let shown = part.to_string();
            let is_empty = matches!(&part.location, Location::Names(name) if name.is_empty());
            ensure!(
                !is_empty && !shown.bytes().any(|byte| byte.is_ascii_control()),
                "{}: a function's name was expected",
                quoted(&shown)
            );
            let location = Part {
                excluded,
                location: part.location,
            };
            if part.excluded {
                let mut draft = Draft::new(State::default(), self.engine);
                locations = taken_out(&mut draft, locations, &location)?;
            } else if !locations.contains(&location) {
                locations.push(location);
            }
        }
        self.set_filter(excluded, locations.clone())?;
        file.locations = Some(locations);
        Ok(())
    }

    /// The locations that one of the two filters lists.
    fn filtered(&self, excluded: bool) -> Vec<Part> {
        let parts = self.functions().parts().iter();
        let everything = Part::named("*", false);
        parts
            .filter(|part| part.excluded == excluded && **part != everything)
            .cloned()
            .collect()
    }

    fn set_filter(&mut self, excluded: bool, locations: Vec<Part>) -> Result<()> {
        let mut parts = self.filtered(!excluded);
        parts.extend(locations);
        sort::by_key(&mut parts, |part| part.excluded);
        let what = FunctionSelection::parsed(parts);
        let meant = what.clone();
        self.change(|draft| {
            let traces = &mut draft.state.traces;
            let Some(at) = traces.iter().position(|trace| trace.name == FUNCTION) else {
                return draft.found_or_waiting(&meant).map(drop);
            };
            let meant = draft.portable(meant);
            let held = draft.hold_for_function_tracer(meant)?;
            Arc::make_mut(&mut draft.state.traces[at]).held = held;
            Ok(())
        })?;
        self.control.tracing.functions = what;
        Ok(())
    }
}

/// `locations` without `out`. A location of which only some functions are in `out` becomes the names of the others.
fn taken_out(draft: &mut Draft, locations: Vec<Part>, out: &Part) -> Result<Vec<Part>> {
    let included = |part: &Part| Part {
        excluded: false,
        ..part.clone()
    };
    let all = locations.len();
    let mut left: Vec<Part> = locations.into_iter().filter(|part| part != out).collect();
    if left.len() < all {
        return Ok(left);
    }
    let out_of = draft.find(&FunctionSelection::parsed(vec![included(out)]))?;
    let out_of: HashSet<SiteKey> = out_of.iter().map(|site| site.key).collect();
    let mut some = false;
    for part in std::mem::take(&mut left) {
        let found = draft.find(&FunctionSelection::parsed(vec![included(&part)]))?;
        let (gone, stay): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|site| out_of.contains(&site.key));
        if gone.is_empty() {
            left.push(part);
            continue;
        }
        some = true;
        let names = lines(draft, &stay);
        left.extend(names.lines().flat_map(locations_in).map(|name| Part {
            excluded: out.excluded,
            ..name
        }));
    }
    ensure!(
        some,
        "none of the functions that are listed matches {}",
        included(out)
    );
    Ok(left)
}

/// A function a line, as a filter takes it.
fn lines(draft: &mut Draft, sites: &[FoundSite]) -> String {
    let traced = sites.iter().filter(|site| !site.is_refused);
    let keys: Vec<SiteKey> = traced.map(|site| site.key).collect();
    let mut text = String::new();
    for Function {
        name,
        module,
        executable,
        ..
    } in draft.lookup.describe(&keys)
    {
        text.extend(name.chars().filter(|char| is_harmless(*char)));
        if !executable {
            text.push('@');
            text.push_str(&module);
        }
        text.push('\n');
    }
    text
}

fn no(not: bool) -> &'static str {
    if not { "no" } else { "" }
}

fn readme() -> String {
    let rows = FILES.iter().filter(|row| row.folder == FOLDER);
    rows.map(|row| format!("{}\n    {}\n    {}\n", row.name, row.about, row.example))
        .collect()
}
