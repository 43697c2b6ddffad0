//! From a command to a process that stands before the first instruction of its libraries and its own.

use crate::filters::is_under_new_filter;
use crate::guardian::Guardian;
use crate::memory::control_block::{own_number, store_musl_id, thread_slot};
use crate::memory::own_memory::{OwnMemory, take_back};
use crate::memory::region::ProgramRequest;
use crate::refusal::{Refusal, is_lack};
use crate::sites::files::Files;
use crate::sites::fitting::Planned;
use crate::sites::go::ensure_not_go;
use crate::sites::modules::{self, openable};
use crate::sites::program;
use crate::tracee::Settings;
use anyhow::{Context, Result, bail, ensure};
use nopal_abi::NO_DESCRIPTOR;
use nopal_beside::both;
use nopal_process::{
    Command, Event, LaunchError, Launched, LoaderStop, Mapping, Memory, Stop, Thread,
};
use nopal_symbols::Image;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// Offset in an ELF header of bytes that say nothing.
const PADDING: u64 = 8;

/// Bits of a file's mode by which it runs with another user's rights.
const SET_ID: u32 = 0o6000;

/// Whether a process came as far as its first code.
enum Start {
    Ready,
    Ended,
}

/// A process that stands where its first code is about to run, and has memory for nopal.
pub struct Arrived {
    /// Its mappings before it got that.
    pub maps: Vec<Mapping>,
    pub own: OwnMemory,
    pub planned: Planned,
}

/// Brings a process from its exec stop to there, and plans what it loads. `None`: it has ended on the way.
pub fn arrive(
    thread: &mut Thread,
    image: Image,
    files: &mut Files,
    settings: &Settings,
    guardian: &Guardian,
) -> Result<Option<Arrived>> {
    let process = thread.pid();
    modules::expect(process, files);
    match to_first_code(thread, image, guardian) {
        Ok(Start::Ended) => return Ok(None),
        // It has ended, and could not be read any more.
        Err(_) if !nopal_process::alive(process) => return Ok(None),
        other => other?,
    };
    // It makes calls for us, and runs nothing else until it is let go.
    if is_under_new_filter(thread) {
        thread.suspend_seccomp(true)?;
    }
    let maps = nopal_process::maps(process)?;
    let (own, planned) = both(
        || OwnMemory::give(thread, &maps, settings),
        || Planned::of(process, files),
    );
    let own = own?;
    match planned {
        Ok(planned) => Ok(Some(Arrived { maps, own, planned })),
        Err(error) => {
            take_back(thread, &own.ranges())?;
            Err(error)
        }
    }
}

/// The ELF file that is about to be executed, as far as it is known. One that cannot run here is refused, with the
/// reason, before the kernel's refusal makes it a shell script.
pub fn find(program: &OsStr) -> Result<Option<PathBuf>> {
    let found = if program.as_bytes().contains(&b'/') {
        Some(PathBuf::from(program))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file())
    };
    let mut magic = [0; 4];
    let Some(found) = found else { return Ok(None) };
    let is_elf = File::open(&found)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok()
        && magic == *b"\x7fELF";
    if !is_elf {
        return Ok(None);
    }
    match Image::open(&found) {
        Ok(_) => Ok(Some(found)),
        Err(error) if is_lack(&error) => Ok(None),
        Err(error) => {
            let error = error.context(format!("cannot trace {}", found.display()));
            Err(Refusal::program(error))
        }
    }
}

/// Starts a program. `meanwhile` is called with the process while it executes the program.
pub fn launch(command: &Command, meanwhile: impl FnOnce(i32)) -> Result<Launched> {
    match nopal_process::launch(command, meanwhile) {
        Err(LaunchError::Fork(error)) => Err(Refusal::alone(command, error.into())),
        other => other.with_context(|| command.program.display().to_string()),
    }
}

/// A program, with `words` as its arguments, its name first.
pub fn command(program: &OsStr, words: &[OsString]) -> Command {
    Command {
        program: program.into(),
        arguments: words.to_vec(),
        environment: None,
        directory: None,
    }
}

/// Runs a process from its exec stop, with the file `image`, to where the loader has mapped and bound all libraries, and
/// run nothing of them.
fn to_first_code(thread: &mut Thread, mut image: Image, guardian: &Guardian) -> Result<Start> {
    loop {
        let process = thread.pid();
        let is_loader = program::is_loader(&image);
        if image.is_static() && !is_loader {
            match to_control_block(thread)? {
                Some(start) => return Ok(start),
                None => {
                    image = traceable(process)?;
                    continue;
                }
            }
        }
        let auxiliary = nopal_process::auxiliary(process)?;
        let mut modules = nopal_process::modules(process)?;
        let loader = match is_loader {
            true => program::executed(process, &auxiliary, &modules),
            false => modules
                .iter()
                .position(|module| Some(module.base) == auxiliary.loader_base),
        };
        let loader = modules.swap_remove(loader.context("the loader is not mapped")?);
        let loaders = Image::open(&openable(process, &loader))?;
        // The padding of an ELF file's identification is always 0, as if the list were not being changed.
        let state = program::loader_state(&loaders, loader.base).unwrap_or(loader.base + PADDING);
        let consistent = loaders
            .symbol(program::LOADED)
            .context("the loader does not list the loaded files")?;
        let consistent = loader.base + consistent;
        let stop = nopal_process::run_to_loader_consistent(thread, consistent, state, |change| {
            guardian.announce_loader(change);
        })?;
        match stop {
            LoaderStop::Consistent => return Ok(Start::Ready),
            LoaderStop::Executed => image = traceable(process)?,
            LoaderStop::Exited(_) | LoaderStop::Killed { .. } => return Ok(Start::Ended),
        }
    }
}

/// Runs a program without a loader from its exec stop to where its libc has made the control block of the first thread;
/// nothing but libc's own start has run then. `None`: it executes another program.
fn to_control_block(thread: &mut Thread) -> Result<Option<Start>> {
    /// More than a libc makes before it runs the program.
    const CALLS: u32 = 200;
    let memory = Memory::open(thread.pid())?;
    for _ in 0..CALLS {
        thread.resume_to_system_call()?;
        match thread.wait()? {
            Event::Ended(_) => return Ok(Some(Start::Ended)),
            Event::Stopped(Stop::Executed) => return Ok(None),
            Event::Stopped(Stop::SystemCall) => {}
            Event::Stopped(_) => continue,
        }
        let registers = thread.registers()?;
        if registers.thread_pointer() == 0 {
            continue;
        }
        let number = own_number(thread.pid(), thread.tid())?;
        if registers.system_call() == libc::SYS_set_tid_address
            && registers.result() == i64::from(number)
        {
            // It may make no other call before the program runs.
            store_musl_id(&memory, registers.thread_pointer(), number)?;
        }
        if thread_slot(&memory, registers.thread_pointer(), number).is_ok() {
            thread.settle()?;
            return Ok(Some(Start::Ready));
        }
    }
    bail!("its libc is unknown: it has no thread control block of glibc or musl")
}

/// Says what will not work before anything of the program has run.
pub fn traceable(process: i32) -> Result<Image> {
    startable(process).map_err(Refusal::program)
}

fn startable(process: i32) -> Result<Image> {
    let path = modules::executed(process);
    let name = nopal_process::executable(process)?;
    let image = Image::open(&path).with_context(|| format!("cannot trace {}", name.display()))?;
    ensure_not_go(&image, &name.display())?;
    let metadata = path.metadata()?;
    let root = rustix::process::geteuid().is_root();
    ensure!(
        root || metadata.permissions().mode() & SET_ID == 0,
        "{} runs with the rights of its owner (setuid or setgid), which the kernel withholds from a traced program; run nopal as root to trace it",
        name.display()
    );
    Ok(image)
}

/// Whether the program that a process is about to run can be followed without changing what it does. The path is in
/// its memory; what it names may change until the kernel looks, so this only avoids what is known to go wrong.
pub fn may_follow(request: &ProgramRequest) -> bool {
    let follow = || -> Result<bool> {
        let metadata = program_file(request)?.metadata()?;
        Ok(metadata.is_file() && metadata.mode() & 0o111 != 0 && keeps_rights(&metadata))
    };
    follow().unwrap_or(false)
}

/// Whether it is not followed for its rights.
pub fn is_set_id(request: &ProgramRequest) -> bool {
    let metadata = program_file(request).and_then(|path| Ok(path.metadata()?));
    metadata.is_ok_and(|metadata| metadata.is_file() && !keeps_rights(&metadata))
}

fn keeps_rights(metadata: &Metadata) -> bool {
    metadata.mode() & SET_ID == 0 || rustix::process::geteuid().is_root()
}

/// A path by which the tool finds the file that a process is about to execute.
fn program_file(request: &ProgramRequest) -> Result<PathBuf> {
    let process = PathBuf::from(nopal_process::directory(request.process));
    let from = match request.descriptor {
        NO_DESCRIPTOR => process.join("cwd"),
        descriptor => process.join(format!("fd/{descriptor}")),
    };
    if request.word == 0 {
        return Ok(from);
    }
    let path = read_path(&Memory::open(request.process)?, request.word)?;
    // There we would be ourselves, or nobody in a PID namespace that we are not in.
    if let Ok(own) = path.strip_prefix("/proc/self") {
        return Ok(process.join(own));
    }
    Ok(match path.strip_prefix("/") {
        Ok(below_root) => process.join("root").join(below_root),
        // Joined, it would ask for a directory.
        Err(_) if path.as_os_str().is_empty() => from,
        Err(_) => from.join(path),
    })
}

fn read_path(memory: &Memory, address: u64) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut path = Vec::new();
    // Page by page: the string may end right before memory that is not mapped.
    while path.len() < libc::PATH_MAX as usize {
        let at = address + path.len() as u64;
        let mut part = vec![0; (4096 - at % 4096) as usize];
        memory.read(at, &mut part)?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&part[..end]);
            return Ok(PathBuf::from(std::ffi::OsString::from_vec(path)));
        }
        path.extend_from_slice(&part);
    }
    bail!("the path is too long")
}
