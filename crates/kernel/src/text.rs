//! The running text of the kernel and of its modules, by `/proc/kcore`: an ELF file whose segments are the kernel's
//! memory.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

const CORE: &str = "/proc/kcore";

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const MOST_SEGMENTS: usize = 4096;
const LOADED: u32 = 1;
const CORE_FILE: u16 = 4;
const X86_64: u16 = 62;

/// The kernel's memory.
pub struct Memory {
    file: File,
    segments: Vec<Segment>,
}

struct Segment {
    address: u64,
    size: u64,
    offset: u64,
}

/// Bytes of the memory as they were.
#[derive(Default)]
pub struct Text {
    /// In order of their addresses, without overlap.
    ranges: Vec<(u64, Vec<u8>)>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

impl Memory {
    pub fn open() -> Result<Memory> {
        let file = File::open(CORE).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow::anyhow!(
                "this kernel has no {CORE}, by which its text is read: it was built without CONFIG_PROC_KCORE"
            ),
            ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => anyhow::anyhow!(
                "{CORE} may not be read, even by root: the kernel is locked down, or this is a container"
            ),
            _ => anyhow::Error::from(error).context(format!("{CORE} (only root may read it)")),
        })?;
        Memory::of(file).context(CORE)
    }

    /// The memory in such a file, nothing of which is trusted.
    pub fn of(file: File) -> Result<Memory> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        ensure!(
            header.starts_with(b"\x7fELF\x02\x01"),
            "not an ELF file of 64 bits"
        );
        let [kind, machine] = [16, 18].map(|at| u16::from_le_bytes(number(&header, at)));
        ensure!(
            (kind, machine) == (CORE_FILE, X86_64),
            "not the memory of an x86-64 kernel"
        );
        let table = u64::from_le_bytes(number(&header, 32));
        let [size, count] = [54, 56].map(|at| usize::from(u16::from_le_bytes(number(&header, at))));
        ensure!(
            size == PROGRAM_HEADER,
            "its program headers have {size} bytes"
        );
        ensure!(count <= MOST_SEGMENTS, "it has {count} segments");
        let mut headers = vec![0; count * PROGRAM_HEADER];
        file.read_exact_at(&mut headers, table)?;
        let segments = headers.chunks_exact(PROGRAM_HEADER).filter_map(|header| {
            let is_loaded = u32::from_le_bytes(number(header, 0)) == LOADED;
            let [offset, address, size] =
                [8, 16, 32].map(|at| u64::from_le_bytes(number(header, at)));
            let fits = address.checked_add(size).is_some() && offset.checked_add(size).is_some();
            (is_loaded && fits).then_some(Segment {
                address,
                size,
                offset,
            })
        });
        Ok(Memory {
            segments: segments.collect(),
            file,
        })
    }

    pub fn read(&self, address: u64, size: u64) -> Result<Vec<u8>> {
        const MOST: u64 = 256 << 20;
        ensure!(size <= MOST, "{size} bytes at {address:#x} are too many");
        let holds = |segment: &&Segment| {
            let from = address.checked_sub(segment.address);
            from.is_some_and(|from| from <= segment.size && size <= segment.size - from)
        };
        let Some(segment) = self.segments.iter().find(holds) else {
            bail!("it does not have the {size} bytes at {address:#x}");
        };
        let mut bytes = vec![0; size as usize];
        let offset = segment.offset + (address - segment.address);
        self.file
            .read_exact_at(&mut bytes, offset)
            .with_context(|| format!("{size} bytes at {address:#x}"))?;
        Ok(bytes)
    }
}

impl Text {
    /// Adds bytes behind all that are there.
    pub fn add(&mut self, address: u64, bytes: Vec<u8>) -> Result<()> {
        let end = self
            .ranges
            .last()
            .map_or(0, |(begin, bytes)| begin + bytes.len() as u64);
        ensure!(
            address >= end && address.checked_add(bytes.len() as u64).is_some(),
            "text at {address:#x} lies in other text"
        );
        self.ranges.push((address, bytes));
        Ok(())
    }

    /// The bytes from an address to the end of its range.
    pub fn from(&self, address: u64) -> Option<&[u8]> {
        let after = self.ranges.partition_point(|(begin, _)| *begin <= address);
        let (begin, bytes) = self.ranges[..after].last()?;
        let bytes = bytes.get(usize::try_from(address - begin).ok()?..)?;
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The bytes from an address to `end`, or to the end of its range before that.
    pub fn between(&self, address: u64, end: u64) -> Option<&[u8]> {
        let bytes = self.from(address)?;
        let size = usize::try_from(end.checked_sub(address)?).unwrap_or(usize::MAX);
        Some(&bytes[..size.min(bytes.len())])
    }
}
