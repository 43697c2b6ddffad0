//! The arguments of `nopal export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nopal_export::{Format, Label, Options};

use super::Input;
use super::calls::FilterArguments;

/// Write a trace for viewers and tables
///
/// A file is written whole or not at all. `nopal dump` writes formats of text.
#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub input: Input,

    /// The format to write
    #[arg(long = "as", value_name = "FORMAT", value_enum)]
    pub format: ExportFormat,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The file to write [default: standard output], or the directory: of tables, with --as parquet, or of the new trace,
    /// with --as trace
    #[arg(short, long, value_name = "FILE", required_if_eq_any([("format", "parquet"), ("format", "trace")]))]
    pub output: Option<PathBuf>,

    /// Write with each call the request that it works for [with --as otlp and tables]
    ///
    /// A request begins with a call of a function, one of whose arguments may be its identity, or with a marker, one of
    /// whose fields is.
    #[arg(long, value_name = "FUNCTION[.argN]|MARKER.FIELD")]
    request: Option<String>,

    /// Make a span of each call of these functions [with --as otlp; may be repeated]
    #[arg(long = "span", value_name = "GLOB[@MODULE]")]
    spans: Vec<String>,

    /// Make a span of each case of a section [with --as otlp; may be repeated]
    #[arg(long = "section", value_name = "FROM..TO")]
    sections: Vec<String>,

    /// Label the trace with its service, version or host, in the names of directories [with --as parquet; may be
    /// repeated]
    ///
    /// By default, the service is the program's name, and the host the machine's.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,

    /// Write no table of calls, only the small ones of functions [with --as parquet]
    #[arg(long)]
    functions_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Packets for ui.perfetto.dev
    Perfetto,
    /// JSON for profiler.firefox.com
    Firefox,
    /// JSON for speedscope
    Speedscope,
    /// A compressed profile for `go tool pprof`, Pyroscope and Grafana
    Pprof,
    /// Spans for OpenTelemetry's collectors: the calls of the functions of --span, and sections
    Otlp,
    /// A line for each call
    Csv,
    /// Tables of many traces in one directory, for DuckDB and Spark
    Parquet,
    /// A trace of the selected threads and time, for all of nopal's readers
    Trace,
}

impl Export {
    pub fn options(&self) -> Options {
        Options {
            format: match self.format {
                ExportFormat::Perfetto => Format::Perfetto,
                ExportFormat::Firefox => Format::Firefox,
                ExportFormat::Speedscope => Format::Speedscope,
                ExportFormat::Pprof => Format::Pprof,
                ExportFormat::Otlp => Format::Otlp,
                ExportFormat::Csv => Format::Csv,
                ExportFormat::Parquet => Format::Parquet,
                ExportFormat::Trace => Format::Trace,
            },
            request: self.request.clone(),
            spans: self.spans.clone(),
            sections: self.sections.clone(),
            labels: self.labels.clone(),
            functions_only: self.functions_only,
        }
    }
}
