//! The names and habits of the kernel's tracing directory, over the same state. Its function tracer is a trace named
//! `function`.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::dump::{Excerpt, Look};
use nopal_serve::Failure;
use nopal_symbols::is_harmless;

use crate::engine::{Engine, FoundSite, SiteKey};
use crate::files::{File, Shown, failure, invalid};
use crate::grammar::Command;
use crate::selection::{FunctionSelection, Location, Part, word};
use crate::state::{Control, find, found_or_waiting};
use crate::stream::{Format, Kept, Show, Stream};
use crate::syntax::{numbers_in, places_in, quoted};
use crate::table::{FILES, FOLDER, Role, SECTIONS};

/// The state of the tracing directory besides the traces.
pub(crate) struct Tracing {
    /// The functions that the function tracer would record, if there is no trace of that name.
    functions: FunctionSelection,
    /// Up to which counter the reader of `trace` wants to see nothing.
    emptied: u64,
    /// Up to which counter `trace_pipe` has given all, and how many records there were then, and bytes.
    piped: u64,
    taken: u64,
    bytes: u64,
    /// By when the last of these had been recorded, some of them perhaps after what `trace_pipe` has given.
    grown: u64,
    look: Look,
    errors: Vec<String>,
}

const FUNCTION: &str = "function";
const MOST_ERRORS: usize = 8;

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing {
            functions: FunctionSelection::of_names([], [], false),
            emptied: 0,
            piped: 0,
            taken: 0,
            bytes: 0,
            grown: 0,
            look: Look::default(),
            errors: Vec::new(),
        }
    }
}

impl Tracing {
    /// Records that `trace_pipe` has given.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn look(&self) -> Look {
        self.look
    }

    /// Counts have begun at 0 again; what has been recorded has not gone.
    pub fn after_reset(self) -> Tracing {
        Tracing { taken: 0, ..self }
    }
}

impl Control {
    /// Keeps an error for `error_log`.
    pub(crate) fn failed(&mut self, error: Failure) -> Failure {
        let errors = &mut self.tracing.errors;
        if errors.len() == MOST_ERRORS {
            errors.remove(0);
        }
        errors.push(error.message.clone());
        error
    }

    /// The functions that the function tracer records, or would record.
    fn functions(&self) -> &FunctionSelection {
        self.trace(FUNCTION)
            .map_or(&self.tracing.functions, |trace| &trace.what)
    }

    /// Records these functions by the function tracer, and starts. What it answers is for a person: functions that
    /// cannot be traced.
    pub fn begin(&mut self, engine: &mut dyn Engine, what: FunctionSelection) -> Result<String> {
        self.tracing.functions = what;
        let answer = self.set_function_tracer(engine, FUNCTION)?;
        self.start(engine)?;
        Ok(answer)
    }

    pub(crate) fn show(&mut self, engine: &mut dyn Engine, role: Role) -> Result<Shown, Failure> {
        let failed = |error: anyhow::Error| failure(libc::EIO, format_args!("{error:#}"));
        let text = match role {
            Role::Control => self.text(engine),
            Role::Devtrace => return self.stream(engine, Format::Devtrace, "").map_err(failed),
            Role::Trace => {
                return self
                    .stream(engine, Format::Function(self.tracing.look), self.head())
                    .map_err(failed);
            }
            Role::TracePipe => return Ok(Shown::Pipe(None, Kept::default())),
            Role::AvailableTracers => {
                let names: Vec<String> = self.tracers.names().map(word).collect();
                format!("function {} nop disable\n", names.join(" "))
            }
            Role::CurrentTracer => format!("{}\n", self.tracer()),
            Role::Threshold => format!("{}\n", self.tracers.threshold),
            Role::WorstLatency => {
                engine.flush().map_err(failed)?;
                format!("{}\n", self.tracers.worst_microseconds())
            }
            Role::Latency => match self.tracers.current().map(str::to_owned) {
                Some(name) => self
                    .latency(engine, &name, self.tracing.look)
                    .map_err(failed)?,
                None => {
                    let look = Look {
                        verbose: true,
                        ..self.tracing.look
                    };
                    return self
                        .stream(engine, Format::Function(look), self.head())
                        .map_err(failed);
                }
            },
            Role::Histogram { of, processor } => {
                engine.flush().map_err(failed)?;
                match of {
                    SECTIONS => self.tracers.section_histograms(processor),
                    _ => self.tracers.histogram(of, processor),
                }
            }
            Role::TracingOn => format!("{}\n", u32::from(self.started)),
            Role::Filter { excluded } => self.filter(engine, excluded).map_err(failed)?,
            Role::AvailableFunctions => {
                let all = engine
                    .find(&Location::Names("*@*".into()))
                    .map_err(failed)?;
                lines(&all)
            }
            Role::Processes if self.watched.is_empty() => "no pid\n".into(),
            Role::Processes => self.watched.iter().map(|id| format!("{id}\n")).collect(),
            Role::BufferSize => format!("{}\n", engine.buffer() >> 10),
            Role::Options => {
                let Look { addresses, verbose } = self.tracing.look;
                format!("{}symonly\n{}verbose\n", no(addresses), no(!verbose))
            }
            Role::Errors => self
                .tracing
                .errors
                .iter()
                .map(|error| format!("{error}\n"))
                .collect(),
            Role::Readme => readme(),
            Role::Marker => String::new(),
        };
        Ok(Shown::Text(text.into_bytes()))
    }

    fn tracer(&self) -> String {
        let recording = self.tracers.recording.last().map(|one| one.name);
        match (self.tracers.current().or(recording), self.trace(FUNCTION)) {
            (Some(name), _) => word(name),
            (None, Some(trace)) if trace.on => FUNCTION.into(),
            _ => "nop".into(),
        }
    }

    /// The head of the file `trace`.
    fn head(&self) -> &'static str {
        match self.tracers.recording.last() {
            Some(recording) => recording.head,
            None => "# tracer: function\n#\n",
        }
    }

    fn stream(&self, engine: &mut dyn Engine, format: Format, head: &'static str) -> Result<Shown> {
        engine.flush()?;
        let show = Show {
            directory: engine.directory().to_owned(),
            kept: Kept::default(),
            excerpt: Excerpt {
                after: self.tracing.emptied,
                until: u64::MAX,
            },
            format,
            head,
        };
        Ok(Shown::Stream(Stream::new(show)))
    }

    /// The new records since the last call; `None` if there are none.
    pub(crate) fn take_recorded(
        &mut self,
        engine: &mut dyn Engine,
        kept: &Kept,
    ) -> Result<Option<Stream>, Failure> {
        let until = engine.clock();
        engine
            .flush()
            .map_err(|error| failure(libc::EIO, format_args!("{error:#}")))?;
        let counts = engine.counts();
        if counts.bytes != self.tracing.bytes {
            self.tracing.grown = engine.clock();
        } else if self.tracing.piped >= self.tracing.grown {
            return Ok(None);
        }
        let show = Show {
            directory: engine.directory().to_owned(),
            kept: kept.clone(),
            excerpt: Excerpt {
                after: self.tracing.piped.max(self.tracing.emptied),
                until,
            },
            format: Format::Function(self.tracing.look),
            head: "",
        };
        (self.tracing.taken, self.tracing.bytes) = (counts.records, counts.bytes);
        self.tracing.piped = until;
        Ok(Some(Stream::new(show)))
    }

    fn filter(&self, engine: &mut dyn Engine, excluded: bool) -> Result<String> {
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
        Ok(lines(&find(
            engine,
            &FunctionSelection::parsed(parts.collect()),
        )?))
    }

    /// Truncates the file, as a shell's `>` does before it writes.
    pub(crate) fn truncate(
        &mut self,
        engine: &mut dyn Engine,
        file: &mut File,
    ) -> Result<(), Failure> {
        match file.role {
            Role::Trace => self.tracing.emptied = engine.clock(),
            Role::Errors => self.tracing.errors.clear(),
            // What is to come in its place is not known yet.
            Role::Filter { .. } | Role::Processes => file.places = Some(Vec::new()),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn write_line(
        &mut self,
        engine: &mut dyn Engine,
        file: &mut File,
        line: &str,
    ) -> Result<(), Failure> {
        let answer = match file.role {
            Role::CurrentTracer => self.set_tracer(engine, line.trim()).map(drop),
            Role::TracingOn => self.set_on(engine, line.trim()),
            Role::Threshold => self.set_threshold(line.trim()),
            Role::WorstLatency => self.forget_worst(line.trim()),
            Role::Filter { excluded } => self.edit_filter(engine, file, line, excluded),
            Role::Processes => self.edit_watched(engine, file, line),
            Role::BufferSize => self.set_buffer(engine, line.trim()),
            Role::Options => self.set_options(line),
            Role::Marker => engine.write_text(line, None),
            _ => Ok(()),
        };
        answer.map_err(|error| invalid(format_args!("{}: {error:#}", quoted(line.trim()))))
    }

    /// The effect of emptying a file without writing to it.
    pub(crate) fn finish(
        &mut self,
        engine: &mut dyn Engine,
        file: &mut File,
    ) -> Result<(), Failure> {
        let emptied = file.places.take().is_some_and(|places| places.is_empty());
        let done = match file.role {
            Role::Filter { excluded } if emptied => self.set_filter(engine, excluded, Vec::new()),
            Role::Processes if emptied => self
                .obey(
                    engine,
                    Command::Watch {
                        ids: vec![0],
                        children: false,
                    },
                )
                .map(drop),
            _ => Ok(()),
        };
        done.map_err(|error| self.failed(invalid(format_args!("{error:#}"))))
    }

    fn set_threshold(&mut self, word: &str) -> Result<()> {
        let microseconds = word
            .parse()
            .ok()
            .context("expected a number of microseconds")?;
        self.tracers.set_threshold(microseconds);
        Ok(())
    }

    fn forget_worst(&mut self, word: &str) -> Result<()> {
        ensure!(word == "0", "expected 0, which forgets the worst case");
        self.tracers.reset_current();
        Ok(())
    }

    /// There is one tracer at a time here, as in the kernel.
    fn set_tracer(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        if self.tracers.names().any(|known| known == name) {
            let answer = self.tracer_on(engine, name)?;
            self.other_tracers_off(engine, Some(name))?;
            self.set_function_tracer(engine, "nop")?;
            return Ok(answer);
        }
        if [FUNCTION, "nop", "disable"].contains(&name) {
            self.all_tracers_off(engine)?;
        }
        self.set_function_tracer(engine, name)
    }

    fn set_function_tracer(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        let at = self.traces.iter().position(|trace| trace.name == FUNCTION);
        match (name, at) {
            (FUNCTION, Some(at)) => {
                self.switch(engine, at, true)?;
                Ok(String::new())
            }
            (FUNCTION, None) => {
                let what = self.tracing.functions.clone();
                let capture = engine.capture();
                let (trace, answer) = self.hold(engine, what, FUNCTION.into(), capture)?;
                self.traces.push(trace);
                let at = self.traces.len() - 1;
                if let Err(error) = self.switch(engine, at, true) {
                    self.remove(engine, at)?;
                    return Err(error);
                }
                Ok(answer)
            }
            ("nop" | "disable", Some(at)) => {
                let what = self.traces[at].what.clone();
                self.remove(engine, at)?;
                self.tracing.functions = what;
                Ok(String::new())
            }
            ("nop" | "disable", None) => Ok(String::new()),
            _ => {
                let names: Vec<&str> = self.tracers.names().collect();
                bail!("expected function, {}, nop or disable", names.join(", "))
            }
        }
    }

    fn set_on(&mut self, engine: &mut dyn Engine, word: &str) -> Result<()> {
        match word {
            "1" => self.start(engine),
            "0" => self.stop(engine),
            _ => bail!("expected 0 or 1"),
        }
        .map(drop)
    }

    fn set_buffer(&mut self, engine: &mut dyn Engine, word: &str) -> Result<()> {
        let kilobytes: Option<u64> = word.parse().ok();
        let bytes = kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1024));
        match bytes {
            Some(bytes) if bytes > 0 => engine.resize(bytes),
            _ => bail!("expected a number of KiB"),
        }
    }

    fn set_options(&mut self, line: &str) -> Result<()> {
        let mut look = self.tracing.look;
        for word in line.split_whitespace() {
            match word {
                "symonly" => look.addresses = false,
                "nosymonly" => look.addresses = true,
                "verbose" => look.verbose = true,
                "noverbose" => look.verbose = false,
                _ => bail!("expected symonly, nosymonly, verbose or noverbose"),
            }
        }
        self.tracing.look = look;
        Ok(())
    }

    fn edit_watched(&mut self, engine: &mut dyn Engine, file: &mut File, line: &str) -> Result<()> {
        let mut ids = if file.places.is_some() {
            Vec::new()
        } else {
            self.watched.clone()
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
        self.obey(
            engine,
            Command::Watch {
                ids,
                children: self.children,
            },
        )?;
        file.places = None;
        Ok(())
    }

    fn edit_filter(
        &mut self,
        engine: &mut dyn Engine,
        file: &mut File,
        line: &str,
        excluded: bool,
    ) -> Result<()> {
        let written = places_in(line);
        if written.is_empty() {
            return Ok(());
        }
        let mut places = match &file.places {
            Some(places) => places.clone(),
            None => self.filtered(excluded),
        };
        for part in written {
            let place = Part {
                excluded,
                place: part.place,
            };
            if part.excluded {
                places = taken_out(engine, places, &place)?;
            } else if !places.contains(&place) {
                places.push(place);
            }
        }
        self.set_filter(engine, excluded, places.clone())?;
        file.places = Some(places);
        Ok(())
    }

    /// The places that one of the two filters lists.
    fn filtered(&self, excluded: bool) -> Vec<Part> {
        let parts = self.functions().parts().iter();
        let everything = Part::named("*", false);
        parts
            .filter(|part| part.excluded == excluded && **part != everything)
            .cloned()
            .collect()
    }

    fn set_filter(
        &mut self,
        engine: &mut dyn Engine,
        excluded: bool,
        places: Vec<Part>,
    ) -> Result<()> {
        let mut parts = self.filtered(!excluded);
        parts.extend(places);
        parts.sort_by_key(|part| part.excluded);
        let what = FunctionSelection::parsed(parts);
        match self.traces.iter().position(|trace| trace.name == FUNCTION) {
            Some(old) => self.replace(engine, old, what.clone())?,
            None => drop(found_or_waiting(engine, &what)?),
        }
        self.tracing.functions = what;
        Ok(())
    }

    /// Gives a trace other functions. What both have is never without its jump, or off.
    fn replace(
        &mut self,
        engine: &mut dyn Engine,
        old: usize,
        what: FunctionSelection,
    ) -> Result<()> {
        let name = self.traces[old].name.clone();
        let capture = engine.capture();
        let (trace, _) = self.hold(engine, what, name, capture)?;
        self.traces.push(trace);
        let new = self.traces.len() - 1;
        let on = self.traces[old].on;
        let changed = self
            .switch(engine, new, on)
            .and_then(|()| self.remove(engine, old));
        if changed.is_err() {
            self.remove(engine, new)?;
            return changed;
        }
        let new = self.traces.remove(new - 1);
        self.traces.insert(old, new);
        Ok(())
    }
}

/// The places without another one. A place of which only some functions are in that becomes the names of the others.
fn taken_out(engine: &mut dyn Engine, places: Vec<Part>, out: &Part) -> Result<Vec<Part>> {
    let included = |part: &Part| Part {
        excluded: false,
        ..part.clone()
    };
    let all = places.len();
    let mut left: Vec<Part> = places.into_iter().filter(|part| part != out).collect();
    if left.len() < all {
        return Ok(left);
    }
    let out_of = find(engine, &FunctionSelection::parsed(vec![included(out)]))?;
    let out_of: HashSet<SiteKey> = out_of.iter().map(|site| site.key).collect();
    let mut some = false;
    for part in std::mem::take(&mut left) {
        let found = find(engine, &FunctionSelection::parsed(vec![included(&part)]))?;
        let (gone, stay): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|site| out_of.contains(&site.key));
        if gone.is_empty() {
            left.push(part);
            continue;
        }
        some = true;
        let names = lines(&stay);
        left.extend(names.lines().flat_map(places_in).map(|name| Part {
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
fn lines(sites: &[FoundSite]) -> String {
    let traced = sites.iter().filter(|site| site.refused.is_none());
    let mut text = String::new();
    for site in traced {
        text.extend(site.name.chars().filter(|char| is_harmless(*char)));
        if !site.executable {
            text.push('@');
            text.push_str(&site.module);
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
