//! `/dev/nopal`, by which the kernel's module is reached.

use crate::Kernel;
use crate::layout::*;
use crate::plan::Plan;
use anyhow::{Context, Error, Result, anyhow, bail};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Updater, ioctl};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::FromBytes;

const DEVICE: &str = "/dev/nopal";
/// The beginning of the state's line that says why the last command failed.
const ERROR: &str = "# error: ";
const OTHER_VERSION: &str = "the module in the kernel is of another version of nopal";

/// How often the kernel is read again because modules have come meanwhile.
const LOADS: usize = 10;

pub struct Device(File);

/// The functions of a kernel that the module did not know, and how it judges them.
pub struct Loaded {
    pub kernel: Kernel,
    pub plan: Plan,
    /// The number of functions that the module could trace before.
    pub known: usize,
    /// The site number of the plan's first function; each that has one has the next: see [`Verdict::has_site`].
    pub first_site: u32,
    pub verdicts: Vec<Verdict>,
}

/// A marker of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its number in records.
    pub event: u32,
    /// The types of its values, as its note has them in a program.
    pub types: [u32; 2],
    pub module: String,
    pub name: String,
    pub format: String,
    pub file: String,
    pub line: u32,
    /// Its module is loaded.
    pub is_there: bool,
}

impl Marker {
    fn all(mut bytes: &[u8]) -> Option<Vec<Marker>> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (head, _) = DeviceMarker::read_from_prefix(bytes).ok()?;
            let (one, rest) = bytes.split_at_checked(head.bytes as usize)?;
            let mut texts = one
                .get(size_of::<DeviceMarker>()..)?
                .split(|byte| *byte == 0);
            let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
            all.push(Marker {
                event: head.event,
                types: head.types,
                module: text()?,
                name: text()?,
                format: text()?,
                file: text()?,
                line: head.line,
                is_there: head.is_there != 0,
            });
            bytes = rest;
        }
        Some(all)
    }
}

/// The module's verdict on a function of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Traced,
    Address,
    Bytes,
    Place,
    Held,
    Never,
    Room,
    Twice,
    Gone,
    Near,
    Target,
    Unknown,
}

impl Verdict {
    fn of(number: u32) -> Verdict {
        match number {
            VERDICT_TRACED => Verdict::Traced,
            VERDICT_ADDRESS => Verdict::Address,
            VERDICT_BYTES => Verdict::Bytes,
            VERDICT_PLACE => Verdict::Place,
            VERDICT_HELD => Verdict::Held,
            VERDICT_NEVER => Verdict::Never,
            VERDICT_ROOM => Verdict::Room,
            VERDICT_TWICE => Verdict::Twice,
            VERDICT_GONE => Verdict::Gone,
            VERDICT_NEAR => Verdict::Near,
            VERDICT_TARGET => Verdict::Target,
            _ => Verdict::Unknown,
        }
    }

    /// Whether the function can be traced from now on.
    pub fn is_traced(self) -> bool {
        matches!(self, Verdict::Traced | Verdict::Twice)
    }

    /// Whether the function has a site number.
    pub fn has_site(self) -> bool {
        !matches!(self, Verdict::Twice | Verdict::Gone)
    }

    /// One line, for people.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Traced => "can be traced",
            Verdict::Address => "ftrace has no place at its begin",
            Verdict::Bytes => "other bytes stand at an exit than were planned",
            Verdict::Place => "an exit is not at an instruction of it or of its cold part",
            Verdict::Held => {
                "the kernel changes these bytes itself (jump labels, static calls, alternatives), or a kprobe is there"
            }
            Verdict::Never => "the recorder, or a path that must not be interrupted, needs it",
            Verdict::Room => "there is no room for more functions or exits",
            Verdict::Twice => "the module knows it already",
            Verdict::Gone => "its module is being loaded, or was unloaded",
            Verdict::Near => "another function begins in the same 16 bytes",
            Verdict::Target => "an exit leads to where the module does not follow",
            Verdict::Unknown => "the module says so, for a reason that this nopal does not know",
        }
    }
}

impl Device {
    pub fn open() -> Result<Device> {
        let opened = File::options().read(true).write(true).open(DEVICE);
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!(
                "there is no {DEVICE}: nopal's module is not loaded in this kernel ({})",
                how_to_load()
            ),
            ErrorKind::PermissionDenied if lockdown().contains("[confidentiality]") => anyhow!(
                "the kernel is locked down for confidentiality: nobody may read its memory, not even root"
            ),
            ErrorKind::PermissionDenied => anyhow!("only root may open {DEVICE}"),
            _ => Error::from(error).context(DEVICE),
        })?;
        Ok(Device(file))
    }

    /// Whether the module is loaded.
    pub fn is_there() -> bool {
        std::path::Path::new(DEVICE).exists()
    }

    /// For mapping the region.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The addresses of the functions of all plans: that of site number 1 first; 0 of those that cannot be traced.
    pub fn sites(&mut self) -> Result<Vec<u64>> {
        let mut addresses = vec![0u64; DEVICE_FUNCTIONS];
        let mut message = DeviceSites {
            room: u32::try_from(addresses.len())?,
            count: 0,
            addresses: addresses.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the number is the one of this message. The module writes as many addresses as there is room for.
        match unsafe { ioctl(&self.0, Updater::<DEVICE_SITES, _>::new(&mut message)) } {
            Err(Errno::PERM) => Err(anyhow!(
                "the kernel hides its addresses from you (kptr_restrict, CAP_SYSLOG)"
            )),
            done => done.context(DEVICE),
        }?;
        addresses.truncate(message.count as usize);
        Ok(addresses)
    }

    /// The module's verdicts on the functions of all plans, by address. A function of several plans has the last one's.
    /// Functions of modules that have gone have none. An earlier version of nopal's module gives no verdicts.
    pub fn verdicts(&mut self) -> Result<HashMap<u64, Verdict>> {
        let mut all = vec![DeviceVerdict::default(); DEVICE_FUNCTIONS];
        let mut message = DeviceVerdicts {
            room: u32::try_from(all.len())?,
            count: 0,
            verdicts: all.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the number is the one of this message. The module writes as many verdicts as there is room for.
        match unsafe { ioctl(&self.0, Updater::<DEVICE_VERDICTS, _>::new(&mut message)) } {
            Err(Errno::NOTTY) => return Ok(HashMap::new()),
            done => done.context(DEVICE),
        }?;
        all.truncate(message.count as usize);
        let all = all
            .into_iter()
            .map(|it| (it.address, Verdict::of(it.verdict)));
        Ok(all
            .filter(|(_, verdict)| *verdict != Verdict::Gone)
            .collect())
    }

    /// The markers of modules, also of modules that have gone.
    pub fn markers(&mut self) -> Result<Vec<Marker>> {
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let mut message = DeviceMarkers {
                room: u32::try_from(buffer.len())?,
                bytes: 0,
                markers: buffer.as_mut_ptr().expose_provenance() as u64,
            };
            // SAFETY: the number is the one of this message. The module writes no more bytes than there is room for.
            unsafe { ioctl(&self.0, Updater::<DEVICE_MARKERS, _>::new(&mut message)) }
                .context(DEVICE)?;
            let bytes = message.bytes as usize;
            if bytes <= buffer.len() {
                buffer.truncate(bytes);
                return Marker::all(&buffer).context("the module's markers cannot be read");
            }
            buffer.resize(bytes, 0);
        }
    }

    /// Makes a probe, off: a command of the control language, the address of its instruction, and `struct nopal_fetch` of
    /// each value. Returns its event.
    pub fn probe(
        &mut self,
        command: &str,
        address: u64,
        fetches: &[u8],
        count: usize,
    ) -> Result<u32> {
        let text = CString::new(command)?;
        let mut message = DeviceProbe {
            version: DEVICE_VERSION,
            count: u32::try_from(count)?,
            fetches: fetches.as_ptr().expose_provenance() as u64,
            address,
            text: text.as_ptr().expose_provenance() as u64,
            event: 0,
            reserved: 0,
        };
        // SAFETY: the number is the one of this message. The module reads the text up to its NUL and as many values as
        // are counted; both live until it is done.
        let done = unsafe { ioctl(&self.0, Updater::<DEVICE_PROBE, _>::new(&mut message)) };
        match done {
            Ok(()) => Ok(message.event),
            Err(Errno::EXIST) => Err(anyhow!("there is a probe of this name already")),
            Err(Errno::PERM) => Err(anyhow!("nopal's own code cannot be probed")),
            Err(Errno::NOSPC) => Err(anyhow!("the module has no room for more probes")),
            Err(Errno::PROTO) => Err(anyhow!(OTHER_VERSION)),
            Err(Errno::NOTTY) => Err(anyhow!("{DEVICE} is not nopal's")),
            Err(Errno::INVAL | Errno::ILSEQ | Errno::BUSY) => Err(anyhow!(
                "the kernel takes no probe there: no instruction begins there, or it forbids probes in this code, or \
                 changes it itself (jump labels, static calls, alternatives)"
            )),
            Err(error) => Err(Error::from(error).context(DEVICE)),
        }
    }

    /// The present setup, as commands that set it up again.
    pub fn state(&mut self) -> Result<String> {
        self.0.rewind().context(DEVICE)?;
        let mut state = Vec::new();
        self.0.read_to_end(&mut state).context(DEVICE)?;
        Ok(String::from_utf8_lossy(&state).into_owned())
    }

    /// Carries out commands, a line each, up to the first that fails.
    pub fn command(&mut self, lines: &str) -> Result<()> {
        let written = self.0.write_all(lines.as_bytes());
        let Err(error) = written else { return Ok(()) };
        let state = self.state().unwrap_or_default();
        let reason = state.lines().find_map(|line| line.strip_prefix(ERROR));
        Err(match reason {
            Some(reason) => anyhow!("{reason}"),
            None => Error::from(error).context(DEVICE),
        })
    }

    fn modules(&self) -> Result<DeviceModules> {
        // SAFETY: the number is the one of this message, which the module writes.
        match unsafe { ioctl(&self.0, Getter::<DEVICE_MODULES, DeviceModules>::new()) } {
            Err(Errno::NOTTY) => Err(anyhow!(OTHER_VERSION)),
            done => done.context(DEVICE),
        }
    }

    /// Whether there is no plan, or modules have come since the kernel was read for the last one.
    pub fn needs_plan(&self) -> Result<bool> {
        let modules = self.modules()?;
        Ok(modules.come != modules.planned)
    }

    /// Plans the functions that the module cannot trace yet: all of them, or those that it has not refused before. Each
    /// that it refuses again takes room.
    pub fn plan(&mut self, all: bool) -> Result<Loaded> {
        let modules = self.modules()?.come;
        let kernel = Kernel::read()?;
        let mut known = self.verdicts()?;
        known.retain(|_, verdict| !all || verdict.is_traced());
        let mut plan = Plan::of(&kernel, |span| !known.contains_key(&span.address));
        plan.modules = modules;
        Ok(Loaded {
            kernel,
            plan,
            known: known.values().filter(|it| it.is_traced()).count(),
            first_site: 0,
            verdicts: Vec::new(),
        })
    }

    /// Tells the module of the functions that it cannot trace yet, as planned.
    pub fn load(&mut self, all: bool) -> Result<Loaded> {
        for _ in 0..LOADS {
            let mut loaded = self.plan(all)?;
            if self.upload(&mut loaded)? {
                return Ok(loaded);
            }
        }
        bail!("modules came each time that the kernel was read")
    }

    /// Gives the module a plan, and gets its verdicts. False: modules have come since the kernel was read for it.
    pub fn upload(&mut self, loaded: &mut Loaded) -> Result<bool> {
        let plan = &loaded.plan;
        // A value that the module does not set is no verdict.
        let mut verdicts = vec![u8::MAX; plan.functions.len()];
        let mut message = DevicePlan {
            version: DEVICE_VERSION,
            modules: plan.modules,
            function_count: u32::try_from(plan.functions.len())?,
            exit_count: u32::try_from(plan.exits.len())?,
            first_site: 0,
            reserved: 0,
            functions: plan.functions.as_ptr().expose_provenance() as u64,
            exits: plan.exits.as_ptr().expose_provenance() as u64,
            verdicts: verdicts.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the number is the one of this message. The module reads as many functions and exits as are counted,
        // writes a verdict for each function, and all of these live until it is done.
        let done = unsafe { ioctl(&self.0, Updater::<DEVICE_PLAN, _>::new(&mut message)) };
        match done {
            Ok(()) => {
                let verdicts = verdicts.into_iter().map(|it| Verdict::of(it.into()));
                loaded.verdicts = verdicts.collect();
                loaded.first_site = message.first_site;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::PROTO) => Err(anyhow!(OTHER_VERSION)),
            Err(Errno::TOOBIG) => Err(anyhow!(
                "the module has room for {DEVICE_FUNCTIONS} functions and {DEVICE_EXITS} exits; \
                 as root, rmmod nopal and modprobe nopal begin anew"
            )),
            Err(error) => Err(Error::from(error).context(DEVICE)),
        }
    }
}

/// `[none] integrity confidentiality`, with brackets around the present one.
fn lockdown() -> String {
    std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default()
}

/// A kernel that is locked down loads signed modules alone.
fn how_to_load() -> &'static str {
    let lockdown = lockdown();
    match lockdown.contains('[') && !lockdown.contains("[none]") {
        false => "as root, modprobe nopal loads it",
        true => {
            "it is locked down, as with Secure Boot, and loads modules only if they are signed by a key that it knows: \
             sign nopal.ko with the kernel's scripts/sign-file, enrol the key by mokutil --import, restart, and \
             modprobe nopal as root"
        }
    }
}
