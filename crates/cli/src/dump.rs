//! `nopal dump`: every event as text.

use std::io::{self, Write};

use anstream::eprintln;
use anyhow::Result;
use nopal_analysis::dump::{self, Format, LossNotice};
use nopal_analysis::filter::Filter;
use nopal_analysis::graph;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::text::bytes;
use nopal_trace::Trace;

use crate::arguments::Dump;
use crate::file;
use crate::open::driven;
use crate::output::{self, finish};

/// Larger outputs are announced.
const LARGE: u64 = 1 << 30;

pub fn run(arguments: &Dump) -> Result<()> {
    let trace = arguments.input.open()?;
    let filter = arguments.filter.of(&trace)?;
    let format = arguments.format();
    let size = dump::estimate(&trace, &format);
    if size > LARGE && filter.is_everything() {
        let less = match format {
            Format::Chrome => "-t 10us, or --from and --until, write less",
            _ => "--from and --until write less",
        };
        eprintln!("nopal: this writes about {} of text; {less}", bytes(size));
    }
    if let Some(file) = &arguments.output {
        return file::write(file, |out| write(arguments, &trace, &filter, out));
    }
    let mut out = output::stdout()?;
    let written = write(arguments, &trace, &filter, &mut out);
    finish(out, written)
}

fn write(arguments: &Dump, trace: &Trace, filter: &Filter, out: &mut dyn Write) -> Result<()> {
    let format = arguments.format();
    match format.losses() {
        LossNotice::Comment => out.write_all(losses::comment(trace, Some(filter)).as_bytes())?,
        LossNotice::Apart => {
            if let Some(line) = losses::line_of(trace, Some(filter)) {
                eprintln!("nopal: {line}");
            }
        }
        LossNotice::Within => {}
    }
    let has_callers = matches!(format, Format::Function(_) | Format::Latency(_));
    let mut out = Noticing {
        out,
        is_empty: true,
        looks_for_callers: has_callers && !trace.session().options.contains(&CALL_SITES.to_owned()),
        lacks_caller: false,
    };
    let written = driven("writing events", filter, |drive| {
        dump::dump(trace, format, drive, &mut out)
    });
    if out.is_empty && arguments.weighs_time() {
        let names = Names::new(trace);
        let tree = driven("reading calls", filter, |drive| {
            graph::tree(trace, &names, drive)
        })?;
        let why = losses::untimed(trace, tree.lacks_times());
        match why.trim_end().strip_prefix("# ") {
            Some(why) => eprintln!("nopal: {why}; --calls weighs stacks by calls"),
            None => eprintln!("nopal: no call was recorded that the options select"),
        }
    }
    if out.lacks_caller {
        eprintln!(
            "nopal: `+-` is a place in a caller, and `-` a caller, that was not recorded: `nopal record {CALL_SITES}` records them"
        );
    }
    written
}

/// The option that records where calls return to.
const CALL_SITES: &str = "--call-sites";

/// The ends of a line whose caller, or the place in it, is not known.
const UNKNOWN: [&[u8]; 3] = [b"+-/0x", b" <-- -\n", b" (-)\n"];

/// Notices whether anything is written, and whether callers are missing.
struct Noticing<W> {
    out: W,
    is_empty: bool,
    looks_for_callers: bool,
    lacks_caller: bool,
}

impl<W: Write> Write for Noticing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_empty &= bytes.is_empty();
        let is_unknown = |end: &&[u8]| bytes.windows(end.len()).any(|part| part == *end);
        self.lacks_caller |=
            self.looks_for_callers && !self.lacks_caller && UNKNOWN.iter().any(is_unknown);
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
