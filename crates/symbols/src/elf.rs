//! The parts of an ELF file that an image, its separate debug file and its embedded symbols have in common.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use memmap2::{Mmap, UncheckedAdvice};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader32, FileHeader64, Machine, ProgramHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader as _, SectionHeader as _};
use xz4rust::{DICT_SIZE_MIN, XzDecoder};

use crate::printable::printable;
use crate::stamp::Stamp;

// Longer names are cut: nothing sensible is that long, and it bounds what a hostile file can ask for.
pub(crate) const LONGEST_NAME: usize = 64 << 10;
pub(crate) const LONGEST_PATH: usize = 4 << 10;
const LONGEST_SECTION_NAME: usize = 64;
const LONGEST_BUILD_ID: usize = 64;
const MOST_NOTES: usize = 64;
/// The number of headers that fit into the 64 KiB that the kernel reads.
const MOST_HEADERS: usize = (64 << 10) / size_of::<ProgramHeader64<LE>>();

pub(crate) enum Contents {
    Mapped(Mmap),
    Memory(Vec<u8>),
}

impl std::ops::Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Contents::Mapped(map) => map,
            Contents::Memory(bytes) => bytes,
        }
    }
}

/// A program header.
pub(crate) struct Header {
    pub kind: elf::ProgramType,
    pub flags: elf::ProgramFlags,
    pub offset: u64,
    pub address: u64,
    pub file_size: u64,
    pub memory_size: u64,
    pub align: u64,
}

pub(crate) struct Section {
    pub name: String,
    pub kind: elf::SectionType,
    pub flags: elf::SectionFlags,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub align: u64,
}

pub(crate) struct Elf {
    contents: Contents,
    /// None of one that is part of another file.
    pub stamp: Option<Stamp>,
    pub device_and_inode: Option<(u64, u64)>,
    pub kind: elf::FileType,
    pub entry: u64,
    pub headers: Vec<Header>,
    /// Empty where the file has no readable section table: nothing needs it to run a program.
    pub sections: Vec<Section>,
}

impl Elf {
    /// Releases the pages of the file; reading them again maps them again.
    pub fn let_pages_go(&self) {
        if let Contents::Mapped(map) = &self.contents {
            // SAFETY: a shared mapping, which nobody writes: the same pages come back. If it fails, they stay.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }

    /// A program or a library, or the debug file of one.
    pub fn open(path: &Path) -> Result<Elf> {
        let elf = Elf::open_any(path)?;
        match elf.kind {
            elf::ET_EXEC | elf::ET_DYN => Ok(elf),
            elf::ET_REL => bail!("an object file, not a linked program"),
            elf::ET_CORE => bail!("a core dump, not a program"),
            _ => bail!("neither a program nor a library"),
        }
    }

    pub fn open_any(path: &Path) -> Result<Elf> {
        // O_NONBLOCK: a path that a hostile file names may be a FIFO.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        let facts = file.metadata()?;
        ensure!(facts.is_file(), "not a regular file");
        ensure!(facts.len() > 0, "the file is empty");
        // SAFETY: the map is private and only read as bytes. A writer that changes the file meanwhile changes what is
        // parsed, which is checked at each access; one that cuts it short ends the tool with SIGBUS, as it would end
        // every program that runs the file.
        let map = unsafe { Mmap::map(&file) }.context("cannot map the file")?;
        Ok(Elf {
            stamp: Some(Stamp::of(&facts)),
            device_and_inode: Some((facts.dev(), facts.ino())),
            ..Elf::parse(Contents::Mapped(map))?
        })
    }

    pub fn parse(contents: Contents) -> Result<Elf> {
        let data = &*contents;
        let header = parse_header(data)?;
        let headers = header
            .program_headers(LE, data)
            .map_err(|_| anyhow!("the file is truncated: its program headers are not all there"))?;
        ensure!(
            headers.len() <= MOST_HEADERS,
            "it has {} program headers, more than the kernel permits",
            headers.len()
        );
        let headers = headers
            .iter()
            .map(|header| Header {
                kind: header.p_type(LE),
                flags: header.p_flags(LE),
                offset: header.p_offset(LE),
                address: header.p_vaddr(LE),
                file_size: header.p_filesz(LE),
                memory_size: header.p_memsz(LE),
                align: header.p_align(LE),
            })
            .collect();
        let (kind, entry) = (header.e_type(LE), header.e_entry(LE));
        let sections = parse_sections(header, data);
        Ok(Elf {
            contents,
            stamp: None,
            device_and_inode: None,
            kind,
            entry,
            headers,
            sections,
        })
    }

    pub fn data(&self) -> &[u8] {
        &self.contents
    }

    /// A range of the file.
    pub fn range(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        self.contents.get(start..end)
    }

    pub fn header(&self, kind: elf::ProgramType) -> Option<&Header> {
        self.headers.iter().find(|header| header.kind == kind)
    }

    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub fn section_of_kind(&self, kind: elf::SectionType) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    pub fn section_bytes(&self, section: &Section) -> Option<&[u8]> {
        if section.kind == elf::SHT_NOBITS {
            return None;
        }
        self.range(section.offset, section.size)
    }

    pub fn build_id(&self) -> Option<&[u8]> {
        let in_sections = self
            .sections
            .iter()
            .filter(|section| section.kind == elf::SHT_NOTE);
        let in_segments = self
            .headers
            .iter()
            .filter(|header| header.kind == elf::PT_NOTE);
        in_segments
            .map(|header| (header.offset, header.file_size, header.align))
            .chain(in_sections.map(|section| (section.offset, section.size, section.align)))
            .take(MOST_NOTES)
            .find_map(|(offset, size, align)| build_id_in(self.range(offset, size)?, align))
    }
}

fn parse_header(data: &[u8]) -> Result<&FileHeader64<LE>> {
    ensure!(data.starts_with(&elf::ELFMAG), "not an ELF file");
    if let Ok(header) = FileHeader32::<LE>::parse(data) {
        bail!(
            "built for {} (32-bit); only x86-64 programs can be traced",
            machine_name(header.e_machine(LE))
        );
    }
    let header = FileHeader64::<LE>::parse(data)
        .map_err(|_| anyhow!("the file is truncated, or its ELF header is damaged"))?;
    ensure!(
        header.is_little_endian(),
        "built for a big-endian processor; only x86-64 programs can be traced"
    );
    let machine = header.e_machine(LE);
    ensure!(
        machine == elf::EM_X86_64,
        "built for {}; only x86-64 programs can be traced",
        machine_name(machine)
    );
    Ok(header)
}

fn machine_name(machine: Machine) -> String {
    let name = match machine {
        elf::EM_X86_64 => "x32",
        elf::EM_386 => "x86",
        elf::EM_ARM => "arm",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_RISCV => "riscv",
        elf::EM_PPC => "powerpc",
        elf::EM_PPC64 => "powerpc64",
        elf::EM_S390 => "s390",
        elf::EM_MIPS => "mips",
        elf::EM_LOONGARCH => "loongarch",
        elf::EM_SPARCV9 => "sparc",
        other => return format!("machine number {}", other.0),
    };
    name.to_owned()
}

fn parse_sections(header: &FileHeader64<LE>, data: &[u8]) -> Vec<Section> {
    let Ok(table) = header.section_headers(LE, data) else {
        return Vec::new();
    };
    let names = header
        .section_strings_index(LE, data)
        .ok()
        .and_then(|index| table.get(index.0)?.data(LE, data).ok())
        .unwrap_or_default();
    table
        .iter()
        .map(|section| {
            let name = string_at(names, section.sh_name(LE).into(), LONGEST_SECTION_NAME);
            Section {
                name: text(name.unwrap_or_default()),
                kind: section.sh_type(LE),
                flags: section.sh_flags(LE),
                address: section.sh_addr(LE),
                offset: section.sh_offset(LE),
                size: section.sh_size(LE),
                link: section.sh_link(LE),
                align: section.sh_addralign(LE),
            }
        })
        .collect()
}

fn build_id_in(notes: &[u8], align: u64) -> Option<&[u8]> {
    let mut notes = NoteIterator::<FileHeader64<LE>>::new(LE, align, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            let id = note.desc();
            return (1..=LONGEST_BUILD_ID).contains(&id.len()).then_some(id);
        }
    }
    None
}

/// The string that starts at `offset` of a string table, up to its NUL.
pub(crate) fn string_at(strings: &[u8], offset: u64, longest: usize) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let rest = rest.get(..longest).unwrap_or(rest);
    rest.split(|&byte| byte == 0).next()
}

/// Printable text: names in a file are bytes, and may hold anything.
pub(crate) fn text(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Inflates the xz stream in .gnu_debugdata.
pub(crate) fn inflate(compressed: &[u8]) -> Result<Vec<u8>> {
    const LARGEST_DICTIONARY: usize = 128 << 20;
    const LONGEST: usize = 128 << 20;
    const STEP: usize = 256 << 10;
    let mut decoder = XzDecoder::in_heap_with_alloc_dict_size(DICT_SIZE_MIN, LARGEST_DICTIONARY);
    let mut inflated = Vec::new();
    let mut rest = compressed;
    loop {
        let length = inflated.len();
        inflated.resize(length + STEP, 0);
        let step = decoder
            .decode(rest, &mut inflated[length..])
            .map_err(|error| anyhow!("cannot decompress .gnu_debugdata: {error}"))?;
        inflated.truncate(length + step.output_produced());
        rest = &rest[step.input_consumed()..];
        ensure!(
            inflated.len() <= LONGEST,
            ".gnu_debugdata is larger than {} MiB",
            LONGEST >> 20
        );
        if step.is_end_of_stream() {
            return Ok(inflated);
        }
        ensure!(step.made_progress(), ".gnu_debugdata is cut short");
    }
}
