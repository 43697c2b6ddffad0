//! Where the files of a trace are made.

use crate::directory;
use anyhow::{Context, Result};
use nopal_beside::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone)]
pub enum Output {
    /// In a directory.
    Directory(PathBuf),
    Unnamed(Unnamed),
}

/// Files without names: whatever ends the process that has them open, nothing is left of them.
#[derive(Clone)]
pub struct Unnamed {
    /// The directory on whose file system they are.
    beside: PathBuf,
    files: Arc<Mutex<BTreeMap<String, File>>>,
}

impl Unnamed {
    pub fn new(beside: &Path) -> Unnamed {
        Unnamed {
            beside: beside.to_owned(),
            files: Arc::default(),
        }
    }

    /// The files, by their places in the directory that they would be in.
    pub fn take(self) -> BTreeMap<String, File> {
        std::mem::take(&mut self.files.lock())
    }

    /// Makes a file, in place of an older one.
    fn create(&self, name: &str) -> Result<File> {
        let make = || -> io::Result<(File, File)> {
            let file = tempfile::tempfile_in(&self.beside)?;
            Ok((file.try_clone()?, file))
        };
        let mut made = make();
        while made.as_ref().is_err_and(is_limited) && allow_more_files() {
            made = make();
        }
        let (own, file) =
            made.with_context(|| format!("cannot write a file in {}", self.beside.display()))?;
        self.files.lock().insert(name.to_owned(), own);
        Ok(file)
    }

    fn open(&self, name: &str) -> Result<File> {
        let files = self.files.lock();
        let file = files.get(name).context("a file is not there")?;
        Ok(file.try_clone()?)
    }
}

/// Whether the process has as many files open as it may have.
fn is_limited(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// Doubles that number, if the hard limit permits.
fn allow_more_files() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else {
        return false;
    };
    let more = current.saturating_mul(2);
    let more = limit.maximum.map_or(more, |most| more.min(most));
    let raised = Rlimit {
        current: Some(more),
        ..limit
    };
    more > current && setrlimit(Resource::Nofile, raised).is_ok()
}

impl Output {
    /// The directory, or that beside which the files are.
    pub fn directory(&self) -> &Path {
        match self {
            Output::Directory(directory) => directory,
            Output::Unnamed(unnamed) => &unnamed.beside,
        }
    }

    /// Makes a file that is not there.
    pub fn create(&self, name: &str) -> Result<File> {
        match self {
            Output::Directory(directory) => directory::open_to_write(&directory.join(name), true),
            Output::Unnamed(unnamed) => unnamed.create(name),
        }
    }

    /// Opens a file to write.
    pub fn open(&self, name: &str) -> Result<File> {
        match self {
            Output::Directory(directory) => directory::open_to_write(&directory.join(name), false),
            Output::Unnamed(unnamed) => unnamed.open(name),
        }
    }

    /// Gives a file another text, at once. It is made under the name `new`.
    pub fn replace(&self, name: &str, new: &str, text: &str) -> Result<()> {
        let Output::Directory(directory) = self else {
            return Ok(self.create(name)?.write_all(text.as_bytes())?);
        };
        let new = directory.join(new);
        // Left by a writer that was killed here.
        let _ = fs::remove_file(&new);
        let written = directory::open_to_write(&new, true)
            .and_then(|mut file| Ok(file.write_all(text.as_bytes())?))
            .and_then(|()| Ok(fs::rename(&new, directory.join(name))?));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }
}
