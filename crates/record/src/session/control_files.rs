//! The control files of a session, for its clients. The session's own thread does the work.

use crate::session::Session;
use crate::session::handle::Handle;
use crate::sites::catalog::{Boundary, Catalog, Listed};
use crate::sites::choose::Loaded;
use crate::sites::fitting::Planned;
use crate::tracee::Tracee;
use anyhow::Result;
use nopal_control::{Control, Engine, Lookup};
use nopal_serve::{Access, Content, Failure, File};
use nopal_symbols::without_numbers;

impl Session {
    /// Lets control work on the session, as somebody has asked for something.
    pub(crate) fn control<T>(
        &mut self,
        work: impl FnOnce(&mut Control, &mut dyn Engine) -> T,
    ) -> T {
        if !self.service.is_attended {
            self.service.is_attended = true;
            self.processes.tracees.values().for_each(Tracee::make_ready);
            if let Err(error) = self.with_control(Control::attend) {
                self.context.warnings.push(format!("{error:#}"));
            }
        }
        // Other functions may be wanted.
        self.expected = None;
        self.with_control(work)
    }

    pub(crate) fn with_control<T>(
        &mut self,
        work: impl FnOnce(&mut Control, &mut dyn Engine) -> T,
    ) -> T {
        let mut control = std::mem::take(&mut self.control);
        let result = work(&mut control, self);
        self.control = control;
        result
    }

    /// For people: the ends of sections that are nothing yet. What the kernel records has its names from the kernel.
    pub(crate) fn missing_ends(&mut self) -> Vec<String> {
        let options = &self.options;
        let of_kernel = [
            &options.tracepoints,
            &options.kernel_functions,
            &options.kernel_markers,
            &options.kernel_probes,
        ];
        if of_kernel.iter().any(|names| !names.is_empty()) {
            return Vec::new();
        }
        let missing = self.with_control(|control, engine| control.missing_ends(engine));
        let lines = missing.unwrap_or_else(|error| format!("{error:#}"));
        lines.lines().map(str::to_owned).collect()
    }

    /// Begins with what is wanted that needs no process.
    pub(crate) fn set_up_first(&mut self) -> Result<()> {
        self.record_kernel_events(&[])?;
        self.arrived(true)
    }

    /// Modules are about to be traced in a process: finds out what is wanted of them.
    pub(crate) fn expect(&mut self, new: &[Loaded], boundary: Boundary) -> Result<()> {
        let mut control = std::mem::take(&mut self.control);
        let modules = Listed::all(new, boundary);
        let expected = control.expect(&mut Catalog::new(
            &self.context.files,
            modules,
            self.facts(),
        ));
        self.control = control;
        expected
    }

    /// The same of all that a process has loaded. Most often another one, from which both were forked, had the same.
    pub(crate) fn expect_planned(&mut self, planned: &Planned) -> Result<()> {
        if self.expected.as_ref() != Some(planned) {
            self.expect(&planned.modules, Boundary::Known(&planned.boundary))?;
            self.expected = Some(planned.clone());
        }
        Ok(())
    }

    /// They are traced. `is_switched`: their sites are in the modes that are wanted.
    pub(crate) fn arrived(&mut self, is_switched: bool) -> Result<()> {
        self.with_control(|control, engine| control.set_up(engine, is_switched))
    }
}

/// A control file that a client has open. While the session's thread works on it, the file is there.
struct Open {
    handle: Handle,
    file: Option<nopal_control::File>,
    is_stream: bool,
    /// Since it was opened or shown again.
    was_written: bool,
}

pub fn open(handle: &Handle, path: &str, access: Access) -> Result<Box<dyn File>, Failure> {
    let path = path.to_owned();
    let file = run(handle, move |control, engine| {
        control.open(engine, &path, access)
    })??;
    Ok(Box::new(Open {
        handle: handle.clone(),
        is_stream: file.is_pipe(),
        was_written: false,
        file: Some(file),
    }))
}

pub fn command(handle: &Handle, text: &str) -> Result<String, Failure> {
    let text = text.to_owned();
    run(handle, move |control, engine| {
        control.command(engine, &text)
    })?
}

fn run<T: Send + 'static>(
    handle: &Handle,
    work: impl FnOnce(&mut Control, &mut dyn Engine) -> T + Send + 'static,
) -> Result<T, Failure> {
    let asked = handle.run(|session| session.control(work));
    asked.map_err(|error| Failure::new(libc::EIO, without_numbers(&format!("{error:#}"))))
}

impl Open {
    fn run(
        &mut self,
        work: impl FnOnce(
            &mut Control,
            &mut dyn Engine,
            &mut nopal_control::File,
        ) -> Result<(), Failure>
        + Send
        + 'static,
    ) -> Result<(), Failure> {
        let Some(mut file) = self.file.take() else {
            return Err(Failure::new(libc::EIO, "the recording is over"));
        };
        let (file, result) = run(&self.handle, move |control, engine| {
            let result = work(control, engine, &mut file);
            (file, result)
        })?;
        self.file = Some(file);
        result
    }
}

impl File for Open {
    fn is_stream(&self) -> bool {
        self.is_stream
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<Content, Failure> {
        if offset == 0 && !self.is_stream && std::mem::take(&mut self.was_written) {
            self.run(|control, engine, file| control.show_again(engine, file))?;
        }
        let Some(file) = &mut self.file else {
            return Err(Failure::new(libc::EIO, "the recording is over"));
        };
        file.read(offset, length)
    }

    fn refill(&mut self) -> Result<(), Failure> {
        self.run(|control, engine, file| control.refill(engine, file))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.was_written = true;
        let bytes = bytes.to_vec();
        self.run(move |control, engine, file| control.write(engine, file, &bytes))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.run(|control, engine, file| control.flush(engine, file))
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        run(&self.handle, move |control, engine| {
            control.close(engine, file)
        })?
    }
}
