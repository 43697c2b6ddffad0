use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Memory;
use crate::information::{directory, read};

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    pub device: u64,
    pub inode: u64,
    /// The file, as the process would name it; without the kernel's ` (deleted)`.
    pub path: Option<PathBuf>,
    /// The kernel's name of a mapping without a file: `[stack]`, `[vdso]`, `[anon:…]`.
    pub label: Option<String>,
    pub deleted: bool,
}

/// The mappings of one file that were made together: an executable or a library as it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub path: PathBuf,
    /// Address of file offset 0, mapped or not.
    pub base: u64,
    pub device: u64,
    pub inode: u64,
    pub deleted: bool,
    /// In order of addresses.
    pub mappings: Vec<Mapping>,
}

impl Mapping {
    /// Whether it may be a copy of a file's code: in memory without a file.
    fn is_copied_code(&self) -> bool {
        let huge = Path::new("/anon_hugepage");
        let without_file = self.inode == 0 && self.path.is_none() && self.label.is_none()
            || self.deleted && self.path.as_deref() == Some(huge);
        self.executable && !self.shared && without_file
    }
}

impl Module {
    pub fn end(&self) -> u64 {
        self.mappings.last().map_or(self.base, |last| last.end)
    }

    pub fn executable(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.executable)
    }

    fn belongs(&self, mapping: &Mapping) -> bool {
        if (self.device, self.inode) != (mapping.device, mapping.inode) {
            return false;
        }
        // The same file may be loaded twice (dlmopen), perhaps side by side. A piece with offset 0 that is not first is
        // relocated read-only data of a tiny library, and that comes before the library's writable piece.
        let again = mapping.offset == 0
            && !mapping.writable
            && (self.end() != mapping.start || self.mappings.iter().any(|other| other.writable));
        !again
    }
}

/// The number of times that the list is read while the process changes its mappings.
const ATTEMPTS: u32 = 100;

/// The mappings of a process, in order of addresses. Of a process that runs, the list may lack some: the kernel writes it
/// a page at a time, between which mappings come and go.
pub fn maps(pid: i32) -> Result<Vec<Mapping>> {
    let mut mappings = listed(pid)?;
    // A file is mapped in several pieces, one behind the other.
    let mut last = None;
    for mapping in mappings.iter_mut().filter(|mapping| mapping.deleted) {
        let file = (mapping.device, mapping.inode, mapping.path.clone());
        let misleads = match &last {
            Some((known, misleads)) if *known == file => *misleads,
            _ => has_misleading_name(pid, mapping),
        };
        last = Some((file, misleads));
        if misleads {
            mapping.deleted = false;
            mapping.path = mapping.path.take().map(with_deleted);
        }
    }
    Ok(mappings)
}

/// Whether a process has such a mapping. Names are as the kernel writes them: [`maps`] asks for each file that is deleted
/// whether that is a part of its name.
pub fn has_mapping(pid: i32, is_such: impl Fn(&Mapping) -> bool) -> bool {
    listed(pid).is_ok_and(|mappings| mappings.iter().any(is_such))
}

fn listed(pid: i32) -> Result<Vec<Mapping>> {
    let path = format!("{}/maps", directory(pid));
    let parsed = || parse(&read(&path)?).with_context(|| format!("cannot understand {path}"));
    let found = (0..ATTEMPTS).find_map(|_| parsed().transpose());
    found.with_context(|| format!("the mappings in {path} change while they are read"))?
}

/// A file may really be named `x (deleted)`.
fn has_misleading_name(pid: i32, mapping: &Mapping) -> bool {
    let Some(path) = mapping.path.clone() else {
        return false;
    };
    fs::metadata(in_root(pid, &with_deleted(path))).is_ok_and(|found| found.ino() == mapping.inode)
}

fn with_deleted(path: PathBuf) -> PathBuf {
    let mut full = path.into_os_string();
    full.push(DELETED);
    PathBuf::from(full)
}

const DELETED: &str = " (deleted)";

/// `None` if mappings overlap: one has grown since the kernel wrote the page before.
fn parse(text: &[u8]) -> Result<Option<Vec<Mapping>>> {
    let mut mappings = Vec::<Mapping>::new();
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let mapping = parse_line(line)
            .with_context(|| format!("line {:?}", String::from_utf8_lossy(line)))?;
        if mappings.last().is_some_and(|last| last.end > mapping.start) {
            return Ok(None);
        }
        mappings.push(mapping);
    }
    Ok(Some(mappings))
}

/// `start-end rwxp offset major:minor inode   name`; the name may hold spaces.
fn parse_line(line: &[u8]) -> Result<Mapping> {
    let mut rest = line;
    let mut field = || -> Result<&[u8]> {
        let at = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        let (field, tail) = rest.split_at(at);
        rest = tail.strip_prefix(b" ").unwrap_or(tail);
        if field.is_empty() {
            bail!("field missing");
        }
        Ok(field)
    };
    let (start, end) = split(field()?, b'-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    if start >= end {
        bail!("empty range");
    }
    let &[read, write, execute, share] = field()? else {
        bail!("permissions not of four letters")
    };
    let offset = hexadecimal(field()?)?;
    let (major, minor) = split(field()?, b':')?;
    let major = u32::try_from(hexadecimal(major)?).context("device")?;
    let minor = u32::try_from(hexadecimal(minor)?).context("device")?;
    let inode = str::from_utf8(field()?)?.parse().context("inode")?;
    let name = &rest[rest.iter().take_while(|&&byte| byte == b' ').count()..];
    let mut mapping = Mapping {
        start,
        end,
        readable: read == b'r',
        writable: write == b'w',
        executable: execute == b'x',
        shared: share == b's',
        offset,
        device: rustix::fs::makedev(major, minor),
        inode,
        path: None,
        label: None,
        deleted: false,
    };
    if name.starts_with(b"/") {
        let kept = name.strip_suffix(DELETED.as_bytes());
        mapping.deleted = kept.is_some();
        mapping.path = Some(OsString::from_vec(unescape(kept.unwrap_or(name))).into());
    } else if !name.is_empty() {
        mapping.label = Some(String::from_utf8_lossy(name).into_owned());
    }
    Ok(mapping)
}

fn split(field: &[u8], separator: u8) -> Result<(&[u8], &[u8])> {
    let at = field
        .iter()
        .position(|&byte| byte == separator)
        .context("separator missing")?;
    Ok((&field[..at], &field[at + 1..]))
}

/// Of at most 16 digits, as the kernel writes them. There are four in each of thousands of lines, so this does not go by
/// way of text.
fn hexadecimal(field: &[u8]) -> Result<u64> {
    const DIGITS: usize = 16;
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let number = field.iter().try_fold(0, |number: u64, &byte| {
        Some(number << 4 | u64::from(digit(byte)?))
    });
    number
        .filter(|_| (1..=DIGITS).contains(&field.len()))
        .context("not a hexadecimal number")
}

/// The kernel escapes only the newline, as `\012`.
fn unescape(name: &[u8]) -> Vec<u8> {
    if !name.contains(&b'\\') {
        return name.to_vec();
    }
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                out.push(b'\n');
                rest = after;
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The files that a process has loaded, each as often as it is loaded.
pub fn modules(pid: i32) -> Result<Vec<Module>> {
    Ok(modules_among(maps(pid)?))
}

/// The same, of those mappings. Code that a process has copied to memory without a file, as it does to have it on huge
/// pages, belongs to a module if it fills the gap between two mappings of that module exactly.
pub fn modules_among(mappings: Vec<Mapping>) -> Vec<Module> {
    let mut modules = Vec::<Module>::new();
    let mut copied: Option<Mapping> = None;
    for mapping in mappings {
        if mapping.is_copied_code() {
            copied = Some(mapping);
            continue;
        }
        let copied = copied.take();
        let Some(path) = mapping.path.clone().filter(|_| mapping.inode != 0) else {
            continue;
        };
        let known = modules
            .iter_mut()
            .rev()
            .find(|module| module.belongs(&mapping));
        if let Some(module) = known {
            let fills = |copied: &Mapping| {
                module.end() == copied.start
                    && copied.end == mapping.start
                    && module.base.wrapping_add(mapping.offset) == mapping.start
            };
            if let Some(mut copied) = copied.filter(fills) {
                copied.offset = copied.start - module.base;
                module.mappings.push(copied);
            }
            module.mappings.push(mapping);
            continue;
        }
        // A data file may be mapped low in memory at a high offset; it has no base, and is no module.
        let Some(base) = mapping.start.checked_sub(mapping.offset) else {
            continue;
        };
        modules.push(Module {
            path,
            base,
            device: mapping.device,
            inode: mapping.inode,
            deleted: mapping.deleted,
            mappings: vec![mapping],
        });
    }
    modules
}

/// Opens the file that `module` was mapped from, even if the process has another root file system, or the path names
/// another file by now.
pub fn open_module(pid: i32, module: &Module) -> Result<File> {
    let path = module_file(pid, module)?;
    File::open(&path).with_context(|| format!("cannot open {}", module.path.display()))
}

/// A path by which we open that file.
pub fn module_file(pid: i32, module: &Module) -> Result<PathBuf> {
    let Some(first) = module.mappings.first() else {
        bail!("module without mappings")
    };
    let process = directory(pid);
    // Following the last needs a capability; it is exact.
    let mapped = format!("{process}/map_files/{:x}-{:x}", first.start, first.end);
    let paths = [
        module.path.clone(),
        in_root(pid, &module.path),
        format!("{process}/exe").into(),
        mapped.into(),
    ];
    let mut failure = None;
    for path in paths {
        match fs::metadata(&path) {
            Ok(found) if is_file_of(pid, module, &path, &found) => return Ok(path),
            Ok(_) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) if !module.deleted => {
            Err(error).with_context(|| format!("cannot open {}", module.path.display()))
        }
        _ => bail!(
            "{} is no longer the file that was loaded",
            module.path.display()
        ),
    }
}

/// Equal device and inode suffice. Some file systems (overlayfs, btrfs) show other numbers in `maps` than in `stat`;
/// then the first page of the file must equal the mapping.
fn is_file_of(pid: i32, module: &Module, path: &Path, found: &Metadata) -> bool {
    if (found.dev(), found.ino()) == (module.device, module.inode) {
        return true;
    }
    let Some(first) = module.mappings.iter().find(|mapping| mapping.offset == 0) else {
        return false;
    };
    if found.dev() == module.device || first.writable || !found.is_file() {
        return false;
    }
    let length = found.len().min(4096) as usize;
    let Ok(file) = File::open(path) else {
        return false;
    };
    let (mut on_disk, mut mapped) = (vec![0; length], vec![0; length]);
    let read = |memory: Memory, mapped: &mut [u8]| memory.read(first.start, mapped);
    length > 0
        && file.read_exact_at(&mut on_disk, 0).is_ok()
        && Memory::open(pid)
            .and_then(|memory| read(memory, &mut mapped))
            .is_ok()
        && on_disk == mapped
}

fn in_root(pid: i32, path: &Path) -> PathBuf {
    let mut full = OsString::from(format!("{}/root", directory(pid)));
    full.push(path.as_os_str());
    PathBuf::from(OsString::from_vec(full.as_bytes().to_vec()))
}
