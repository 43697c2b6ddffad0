//! The control files of a session, for its clients. The session's own thread does the work.

use crate::session::Session;
use crate::session::handle::Handle;
use crate::tracee::Tracee;
use anyhow::Result;
use nopal_control::{Control, Engine, FunctionSelection};
use nopal_serve::{Access, Content, Failure, File};

impl Session {
    /// Lets control work on the session.
    pub(crate) fn control<T>(
        &mut self,
        work: impl FnOnce(&mut Control, &mut dyn Engine) -> T,
    ) -> T {
        let mut control = match self.control.take() {
            Some(control) => control,
            None => {
                let (control, begun) = self.begin_control();
                self.settings.wanted = None;
                if let Err(error) = begun {
                    self.warnings.push(format!("{error:#}"));
                }
                control
            }
        };
        let result = work(&mut control, self);
        self.control = Some(control);
        result
    }

    /// Inserts the sites that control wants in new code.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        match self.control {
            Some(_) => self.control(|control, engine| control.refresh(engine)),
            None => Ok(()),
        }
    }

    /// From then on decides which functions are traced, in place of `settings.wanted`: at first the same ones. Likewise
    /// for probes.
    pub(crate) fn begin_control(&mut self) -> (Control, Result<()>) {
        self.tracees.values().for_each(Tracee::make_ready);
        let options = &self.options;
        let what = FunctionSelection::of_names(
            options.only.iter().map(String::as_str),
            options.not.iter().map(String::as_str),
            options.libraries,
        );
        let mut control = Control::new();
        control.begin_with_probes(self.files.probes.all().cloned());
        let marks = options.markers.clone();
        let tracers = options.tracers.clone();
        // Without functions, as with -M alone, only markers begin.
        let begun = match self.settings.wanted.as_ref() {
            Some(wanted) if wanted.functions => control.begin(self, what).map(|_| ()),
            _ => control
                .command(self, "start")
                .map(|_| ())
                .map_err(Into::into),
        };
        let begun = begun.and_then(|()| control.begin_tracers(self, &tracers));
        control.begin_marks(&marks);
        (control, begun)
    }
}

/// A control file that a client has open. While the session's thread works on it, the file is there.
struct Open {
    handle: Handle,
    file: Option<nopal_control::File>,
    is_stream: bool,
}

pub fn open(handle: &Handle, path: &str, access: Access) -> Result<Box<dyn File>, Failure> {
    let path = path.to_owned();
    let file = ask(handle, move |control, engine| {
        control.open(engine, &path, access)
    })??;
    Ok(Box::new(Open {
        handle: handle.clone(),
        is_stream: file.is_pipe(),
        file: Some(file),
    }))
}

pub fn command(handle: &Handle, text: &str) -> Result<String, Failure> {
    let text = text.to_owned();
    ask(handle, move |control, engine| {
        control.command(engine, &text)
    })?
}

fn ask<T: Send + 'static>(
    handle: &Handle,
    work: impl FnOnce(&mut Control, &mut dyn Engine) -> T + Send + 'static,
) -> Result<T, Failure> {
    let asked = handle.ask(|session| session.control(work));
    asked.map_err(|error| Failure::new(libc::EIO, format!("{error:#}")))
}

impl Open {
    fn ask(
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
        let (file, result) = ask(&self.handle, move |control, engine| {
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
        let Some(file) = &mut self.file else {
            return Err(Failure::new(libc::EIO, "the recording is over"));
        };
        file.read(offset, length)
    }

    fn refill(&mut self) -> Result<(), Failure> {
        self.ask(|control, engine, file| control.refill(engine, file))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let bytes = bytes.to_vec();
        self.ask(move |control, engine, file| control.write(engine, file, &bytes))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.ask(|control, engine, file| control.flush(engine, file))
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        ask(&self.handle, move |control, engine| {
            control.close(engine, file)
        })?
    }
}
