//! Requests to sessions about their files, except those of open files.

use crate::nodes::{FOLDER, Kind, LINK, Location};
use crate::open;
use crate::reader::{LOOK, Reader};
use anyhow::Result;
use fuser::{Errno, FileType};
use nopal_beside::Mutex;
use nopal_serve::{Client, Entry, Failure, Request};
use std::collections::HashMap;
use std::path::Path;

/// The folder of the kernel's module, which is there while the module is loaded.
const KERNEL: &str = "kernel";
const DEVICES: [(&str, &str); 3] = [
    ("ctl", "/dev/nopal"),
    ("trace", "/dev/nopal_trace"),
    ("latency_trace", "/dev/nopal_latency"),
];

fn has_module() -> bool {
    Path::new(DEVICES[0].1).exists()
}

/// Idle connections for the next request, one for each session.
#[derive(Default)]
pub struct Lines {
    idle: Mutex<HashMap<i32, Client>>,
}

impl Lines {
    /// The content of a folder of a session. ENOENT if the session has ended.
    pub fn list(&self, process: i32, folder: &str, reader: Reader) -> Result<Vec<Entry>, Errno> {
        let kept = self.idle().remove(&process);
        // A kept connection may be to a session that has ended, and the process may have another by now.
        let listed = kept.and_then(|client| list(client, folder, reader).ok());
        let (client, entries) = match listed {
            Some(listed) => listed,
            None => Client::connect(process)
                .and_then(|client| list(client, folder, reader))
                .map_err(|error| match error.is::<Failure>() {
                    true => open::number(&error),
                    false => Errno::ENOENT,
                })?,
        };
        self.idle().insert(process, client);
        Ok(entries)
    }

    /// The kind of a name in a folder.
    pub fn find(
        &self,
        folder: &Location,
        name: &str,
        reader: Reader,
    ) -> Result<(Location, Kind), Errno> {
        match folder {
            Location::Root if name == KERNEL && has_module() => Ok((Location::Kernel, FOLDER)),
            Location::Kernel => {
                let device = DEVICES.iter().find(|(own, _)| *own == name);
                let (_, path) = device.ok_or(Errno::ENOENT)?;
                Ok((Location::Device(path), LINK))
            }
            Location::Device(_) => Err(Errno::ENOTDIR),
            Location::Root => {
                let process: i32 = name.parse().map_err(|_| Errno::ENOENT)?;
                let exists = process.to_string() == name && nopal_serve::is_traced(process);
                let path = String::new();
                exists
                    .then_some((Location::Session { process, path }, FOLDER))
                    .ok_or(Errno::ENOENT)
            }
            Location::Session { process, path } => {
                let entries = self.list(*process, path, reader)?;
                let found = entries.iter().find(|entry| entry.name == name);
                let kind = kind(found.ok_or(Errno::ENOENT)?);
                let path = match path.as_str() {
                    "" => name.into(),
                    folder => format!("{folder}/{name}"),
                };
                let process = *process;
                Ok((Location::Session { process, path }, kind))
            }
        }
    }

    /// Names and kinds of all that is in a folder.
    pub fn all(&self, folder: &Location, reader: Reader) -> Result<Vec<(String, Kind)>, Errno> {
        match folder {
            Location::Root => Ok(nopal_serve::processes()
                .into_iter()
                .map(|process| (process.to_string(), FOLDER))
                .chain(has_module().then(|| (KERNEL.to_owned(), FOLDER)))
                .collect()),
            Location::Kernel => Ok(DEVICES
                .iter()
                .map(|(name, _)| ((*name).to_owned(), LINK))
                .collect()),
            Location::Device(_) => Err(Errno::ENOTDIR),
            Location::Session { process, path } => {
                let entries = self.list(*process, path, reader)?;
                Ok(entries
                    .into_iter()
                    .map(|entry| {
                        let kind = kind(&entry);
                        (entry.name, kind)
                    })
                    .collect())
            }
        }
    }

    fn idle(&self) -> nopal_beside::MutexGuard<'_, HashMap<i32, Client>> {
        self.idle.lock()
    }
}

fn list(mut client: Client, folder: &str, reader: Reader) -> Result<(Client, Vec<Entry>)> {
    client.send(&Request::List(folder.into()), &[])?;
    let text = client.answer_while(|| !reader.is_killed(), LOOK)?;
    let text = text.ok_or_else(open::interrupted)?;
    let entries = nopal_serve::parse_list(&text)
        .ok_or_else(|| Failure::new(libc::EIO, "the session's answer is not a list of files"))?;
    Ok((client, entries))
}

fn kind(entry: &Entry) -> Kind {
    Kind {
        form: match entry.folder {
            true => FileType::Directory,
            false => FileType::RegularFile,
        },
        mode: entry.mode,
    }
}
