//! The kernel's requests. Requests that wait for a session are answered by threads of their own.

use crate::nodes::{FOLDER, Kind, Location, Nodes, ROOT};
use crate::open::{self, OpenFile};
use crate::reader::Reader;
use crate::sessions::Lines;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use nopal_beside::{Condvar, Mutex};
use nopal_serve::{Access, LONGEST_WRITE};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The time for which the kernel may cache answers: sessions come and go.
const KEEP: Duration = Duration::ZERO;
/// The time for which opening a file waits for another one to be closed.
const CLOSING: Duration = Duration::from_millis(500);
const NO_GENERATION: Generation = Generation(0);
const BLOCK: u32 = 4096;

#[derive(Default)]
pub struct Sessions {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    nodes: Mutex<Nodes>,
    lines: Lines,
    files: Mutex<HashMap<u64, Arc<Opened>>>,
    /// Sessions of files that are being closed, once for each.
    closing: Mutex<Vec<i32>>,
    closed: Condvar,
    folders: Mutex<HashMap<u64, Arc<Listing>>>,
    next: AtomicU64,
}

/// The names in a folder when it was opened.
type Listing = Vec<(String, Kind)>;

struct Opened {
    number: u64,
    process: i32,
    /// It is written, or truncated.
    changes: bool,
    file: Mutex<OpenFile>,
}

impl Sessions {
    /// Runs a task that may wait for a session.
    fn aside(&self, request: &Request, work: impl FnOnce(&Shared, Reader) + Send + 'static) {
        let (shared, reader) = (self.shared.clone(), Reader(request.pid()));
        // Without a thread the reply is dropped, and the caller gets EIO.
        let _ = std::thread::Builder::new().spawn(move || work(&shared, reader));
    }
}

impl Shared {
    fn node(&self, number: INodeNo) -> Result<(Location, Kind), Errno> {
        self.nodes.lock().get(number.0).ok_or(Errno::ESTALE)
    }

    fn new_handle(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<Opened>, Errno> {
        self.files
            .lock()
            .get(&handle.0)
            .cloned()
            .ok_or(Errno::EBADF)
    }

    fn open(
        &self,
        number: INodeNo,
        access: Access,
        reader: Reader,
    ) -> Result<(u64, FopenFlags), Errno> {
        let (place, kind) = self.node(number)?;
        let Location::Session { process, path } = place else {
            return Err(Errno::EISDIR);
        };
        let wanted = [
            (access.read, 0o400),
            (access.write || access.truncate, 0o200),
        ];
        if kind.is_folder() {
            return Err(Errno::EISDIR);
        }
        if wanted
            .iter()
            .any(|(wanted, bit)| *wanted && kind.mode & bit == 0)
        {
            return Err(Errno::EACCES);
        }
        self.wait_for_closing(process);
        let file = OpenFile::open(process, &path, access, reader);
        let file = file.map_err(|error| open::number(&error))?;
        let mut flags = FopenFlags::FOPEN_DIRECT_IO;
        if file.is_stream() {
            flags |= FopenFlags::FOPEN_STREAM | FopenFlags::FOPEN_NONSEEKABLE;
        }
        let opened = Opened {
            number: number.0,
            process,
            changes: file.changes(),
            file: Mutex::new(file),
        };
        let handle = self.new_handle();
        self.files.lock().insert(handle, Arc::new(opened));
        Ok((handle, flags))
    }

    /// The kernel does not wait for the last close of a file, which may change what other files show: a process that
    /// opens one afterwards is to see the change.
    fn wait_for_closing(&self, process: i32) {
        let closing = self.closing.lock();
        // A close that takes longer is not worth more waiting.
        let closes = |closing: &mut Vec<i32>| closing.contains(&process);
        drop(self.closed.wait_timeout_while(closing, CLOSING, closes));
    }

    fn close(&self, opened: &Opened, reader: Reader) {
        // Its errors have no reader any more.
        let _ = opened.file.lock().close(reader);
        let mut closing = self.closing.lock();
        if let Some(at) = closing
            .iter()
            .position(|process| *process == opened.process)
        {
            closing.swap_remove(at);
        }
        self.closed.notify_all();
    }

    fn change<T>(
        &self,
        handle: FileHandle,
        change: impl FnOnce(&mut OpenFile) -> anyhow::Result<T>,
    ) -> Result<T, Errno> {
        let opened = self.file(handle)?;
        let mut file = opened.file.lock();
        change(&mut file).map_err(|error| open::number(&error))
    }

    /// No file has a size, as in `/proc`, except one whose end a reader has seen, and which `tail -f` follows.
    fn attributes(&self, number: u64, kind: Kind, look: Option<Reader>) -> FileAttr {
        let opened: Vec<Arc<Opened>> = self
            .files
            .lock()
            .values()
            .filter(|opened| opened.number == number)
            .cloned()
            .collect();
        let sizes = opened.iter().filter_map(|opened| {
            // A file that is being used is not waited for.
            let mut file = opened.file.try_lock()?;
            if let Some(reader) = look {
                // If this fails, the file keeps the size that it had.
                let _ = file.look(reader);
            }
            Some(file.size())
        });
        attributes(number, kind, sizes.max().unwrap_or(0))
    }

    fn look_up(&self, folder: INodeNo, name: &OsStr, reader: Reader) -> Result<FileAttr, Errno> {
        let (place, kind) = self.node(folder)?;
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        if !kind.is_folder() {
            return Err(Errno::ENOTDIR);
        }
        let (place, kind) = self.lines.find(&place, name, reader)?;
        let number = self.nodes.lock().look_up(place, kind);
        Ok(self.attributes(number, kind, None))
    }
}

/// The kernel checks nothing but whose mount it is: it is the user's alone.
fn attributes(number: u64, kind: Kind, size: u64) -> FileAttr {
    // A file's text may have changed at any moment, which `tail -f` wants to know.
    let now = SystemTime::now();
    FileAttr {
        ino: INodeNo(number),
        size,
        // No holes to look for.
        blocks: size.div_ceil(512),
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind: kind.form,
        perm: kind.mode as u16,
        nlink: if kind.is_folder() { 2 } else { 1 },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

impl Filesystem for Sessions {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // O_TRUNC comes with `open`, which fails with it or not at all.
        let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC | InitFlags::FUSE_PARALLEL_DIROPS;
        // Kernels since 4.7 can do both.
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(LONGEST_WRITE as u32);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.aside(request, move |shared, reader| {
            match shared.look_up(parent, &name, reader) {
                Ok(attributes) => reply.entry(&KEEP, &attributes, NO_GENERATION),
                Err(error) => reply.error(error),
            }
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.shared.nodes.lock().forget(number.0, lookups);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.shared.node(number) {
            Err(error) => reply.error(error),
            Ok((_, kind)) if kind.is_folder() => {
                reply.attr(&KEEP, &self.shared.attributes(number.0, kind, None));
            }
            Ok((_, kind)) => self.aside(request, move |shared, reader| {
                reply.attr(&KEEP, &shared.attributes(number.0, kind, Some(reader)));
            }),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.shared.node(number) {
            Ok((Location::Device(path), _)) => reply.data(path.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    /// Handles only `truncate` to nothing, and `touch`, which changes nothing.
    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.aside(request, move |shared, reader| {
            let access = Access {
                read: false,
                write: false,
                truncate: true,
            };
            let result = match size {
                None => Ok(()),
                Some(0) => shared.open(number, access, reader).map(|(handle, _)| {
                    let opened = shared.files.lock().remove(&handle);
                    if let Some(opened) = opened {
                        shared.close(&opened, reader);
                    }
                }),
                Some(_) => Err(Errno::EINVAL),
            };
            match result.and_then(|()| shared.node(number)) {
                Ok((_, kind)) => reply.attr(&KEEP, &shared.attributes(number.0, kind, None)),
                Err(error) => reply.error(error),
            }
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mode = flags.acc_mode();
        let access = Access {
            read: mode != OpenAccMode::O_WRONLY,
            write: mode != OpenAccMode::O_RDONLY,
            truncate: flags.0 & libc::O_TRUNC != 0,
        };
        self.aside(request, move |shared, reader| {
            match shared.open(number, access, reader) {
                Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
                Err(error) => reply.error(error),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let wait = flags.0 & libc::O_NONBLOCK == 0;
        self.aside(request, move |shared, reader| {
            let read = shared.change(handle, |file| {
                file.read(offset, size as usize, wait, reader)
            });
            match read {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(error),
            }
        });
    }

    /// The offset makes no difference: commands are written, one after the other.
    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        self.aside(request, move |shared, reader| {
            match shared.change(handle, |file| file.write(&data, reader)) {
                Ok(()) => reply.written(data.len() as u32),
                Err(error) => reply.error(error),
            }
        });
    }

    /// Each close of a descriptor, also of one that others share.
    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        match self.shared.file(handle) {
            // A close must not wait for another reader.
            Ok(opened) if opened.changes => {}
            _ => return reply.ok(),
        }
        self.aside(request, move |shared, reader| {
            match shared.change(handle, |file| file.flush(reader)) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            }
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let opened = self.shared.files.lock().remove(&handle.0);
        reply.ok();
        if let Some(opened) = opened.filter(|opened| opened.changes) {
            // Noted before the next request is looked at.
            self.shared.closing.lock().push(opened.process);
            self.aside(request, move |shared, reader| shared.close(&opened, reader));
        }
    }

    /// Reads the folder as a whole, so that the pieces of a listing fit together.
    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.aside(request, move |shared, reader| {
            let all = shared
                .node(number)
                .and_then(|(place, _)| shared.lines.all(&place, reader));
            match all {
                Ok(mut names) => {
                    names.splice(0..0, [(".".into(), FOLDER), ("..".into(), FOLDER)]);
                    let handle = shared.new_handle();
                    shared.folders.lock().insert(handle, Arc::new(names));
                    reply.opened(FileHandle(handle), FopenFlags::empty());
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(names) = self.shared.folders.lock().get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        for (index, (name, kind)) in names.iter().enumerate().skip(offset as usize) {
            // Numbers are given out by `lookup`; any but 0 will do here.
            let number = INodeNo(ROOT + 1);
            if reply.add(number, index as u64 + 1, kind.form, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.shared.folders.lock().remove(&handle.0);
        reply.ok();
    }

    // Only sessions create and remove files.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
