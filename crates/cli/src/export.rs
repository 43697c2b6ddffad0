//! `nopal export`: a trace for viewers and tables.

use std::io::{self, IsTerminal};

use anstream::eprintln;
use anyhow::{Result, bail};
use nopal_analysis::losses;
use nopal_export::{Format, write, write_tables, write_trace};

use crate::arguments::Export;
use crate::file;
use crate::open::driven;
use crate::output::{self, finish};
use crate::signals::Ending;

pub fn run(arguments: &Export) -> Result<()> {
    let options = arguments.options();
    if arguments.output.is_none() && options.format.is_binary() && io::stdout().is_terminal() {
        bail!("this format is not for a terminal: name a file with -o");
    }
    let trace = arguments.input.open()?;
    let filter = arguments.filter.of(&trace)?;
    if !options.format.states_losses()
        && let Some(line) = losses::line_of(&trace, Some(&filter))
    {
        eprintln!("nopal: {line}");
    }
    let mut left_out = None;
    // Before any thread is there, which would not let them wait.
    let _waiting = (options.format == Format::Trace).then(Ending::new);
    driven("writing events", &filter, |drive| {
        left_out = match &arguments.output {
            Some(root) if options.format == Format::Parquet => {
                write_tables(&trace, &options, drive, root)?;
                None
            }
            Some(directory) if options.format == Format::Trace => {
                write_trace(&trace, drive, directory, &mut Ending::check)?;
                None
            }
            Some(path) => file::write(path, |out| write(&trace, &options, drive, out))?.line(),
            None => {
                let mut out = output::stdout()?;
                let written = write(&trace, &options, drive, &mut out);
                let (written, left_out) = match written {
                    Ok(left_out) => (Ok(()), left_out.line()),
                    Err(error) => (Err(error), None),
                };
                finish(out, written)?;
                left_out
            }
        };
        Ok(())
    })?;
    if let Some(line) = left_out {
        eprintln!("nopal: {line}");
    }
    Ok(())
}
