//! `nopal export`: a trace in the formats of viewers and of tables.
//!
//! A format is written as the trace is read, in memory that does not grow with it. Formats with all paths of calls
//! (`pprof`, `firefox`) grow with these, up to a limit.

mod csv;
mod evented;
mod firefox;
mod otlp;
mod parquet;
mod pending;
mod perfetto;
mod pprof;
mod protobuf;
mod requests;
mod speedscope;
mod table;
mod trace;
mod whole;

use std::io::Write;

use anyhow::{Result, bail};
use nopal_analysis::drive::Drive;
use nopal_analysis::names::Names;
use nopal_analysis::text::{duration, several};
use nopal_trace::Trace;

use requests::RequestBegin;

pub use self::parquet::{Label, write as write_tables};
pub use trace::{write_archive, write_trace};
pub use whole::WholeFile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Packets for ui.perfetto.dev.
    Perfetto,
    /// JSON for profiler.firefox.com.
    Firefox,
    /// JSON for speedscope.
    Speedscope,
    /// A profile for `go tool pprof`, compressed.
    Pprof,
    /// Spans for OpenTelemetry's collectors.
    Otlp,
    /// A line for each call.
    Csv,
    /// Tables below a directory, by [`write_tables`].
    Parquet,
    /// A trace, by [`write_trace`], or by [`write_archive`].
    Trace,
}

impl Format {
    /// Whether it is binary, not text.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Perfetto | Format::Pprof | Format::Otlp)
    }

    /// Whether it has a place for the trace's losses.
    pub fn states_losses(self) -> bool {
        self != Format::Csv
    }
}

/// The options of an export.
#[derive(Clone, Debug)]
pub struct Options {
    pub format: Format,
    /// The begin of requests, for the formats that tell them.
    pub request: Option<String>,
    /// Functions (`GLOB[@MODULE]`) whose calls are spans.
    pub spans: Vec<String>,
    /// Sections that are spans.
    pub sections: Vec<String>,
    /// The place of a trace's tables among those of others.
    pub labels: Vec<Label>,
    /// No table of calls.
    pub functions_only: bool,
}

impl Options {
    /// All calls, without more.
    pub fn new(format: Format) -> Options {
        Options {
            format,
            request: None,
            spans: Vec::new(),
            sections: Vec::new(),
            labels: Vec::new(),
            functions_only: false,
        }
    }
}

/// The numbers of calls and markers that a format has no place for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Calls without a known begin.
    pub began_before: u64,
    /// Calls of which only entries were recorded.
    pub entries: u64,
    pub markers: u64,
    /// Calls in too many others, or on too many paths.
    pub deep: u64,
    /// The order of calls within times of so many nanoseconds.
    pub merged_ns: u64,
}

impl LeftOut {
    fn add(&mut self, other: &LeftOut) {
        self.began_before += other.began_before;
        self.entries += other.entries;
        self.markers += other.markers;
        self.deep += other.deep;
        self.merged_ns = self.merged_ns.max(other.merged_ns);
    }

    /// `left out, since this format has no place for them: 2 calls that had begun before, …`; none if nothing is.
    pub fn line(&self) -> Option<String> {
        let parts = [
            (
                self.began_before,
                "call without a known begin",
                "calls without a known begin",
            ),
            (self.entries, "call without an end", "calls without ends"),
            (self.markers, "marker", "markers"),
            (
                self.deep,
                "call nested too deep or on a path too many",
                "calls nested too deep or on paths too many",
            ),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(number, ..)| *number > 0)
            .map(|(number, one, more)| several(number, one, more))
            .chain((self.merged_ns > 0).then(|| {
                let within = duration(self.merged_ns);
                format!("the order of calls within each {within}")
            }))
            .collect();
        (!parts.is_empty()).then(|| {
            format!(
                "left out, since the format has no place for them: {}",
                parts.join(", ")
            )
        })
    }
}

/// Writes a trace in a format.
pub fn write(
    trace: &Trace,
    options: &Options,
    drive: &Drive,
    out: &mut dyn Write,
) -> Result<LeftOut> {
    let is_of_begins = matches!(
        options.format,
        Format::Perfetto | Format::Firefox | Format::Speedscope
    );
    if is_of_begins && drive.filter.is_some_and(|filter| filter.least_ns > 0) {
        bail!(
            "-t is not for this format, which has the begin of a call before its duration is known"
        );
    }
    let names = Names::new(trace);
    let begin = options.request.as_deref();
    let begin = begin
        .map(|text| RequestBegin::new(text, trace, &names))
        .transpose()?;
    match options.format {
        Format::Perfetto => perfetto::write(trace, &names, drive, out).map(|()| LeftOut::default()),
        Format::Firefox => firefox::write(trace, &names, drive, out),
        Format::Speedscope => speedscope::write(trace, &names, drive, out),
        Format::Pprof => pprof::write(trace, &names, drive, out).map(|()| LeftOut::default()),
        Format::Csv => {
            csv::write(trace, &names, begin.as_ref(), drive, out).map(|()| LeftOut::default())
        }
        Format::Parquet | Format::Trace => bail!("this format is no one file"),
        Format::Otlp => {
            let (spans, sections) = (&options.spans, &options.sections);
            otlp::write(trace, &names, spans, sections, begin.as_ref(), drive, out)
        }
    }
}
