use nopal_beside::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use object::LittleEndian as LE;
use object::elf as abi;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::dynamic::Dynamic;
use crate::elf::{Elf, LONGEST_PATH, string_at};
use crate::exports::Exports;
use crate::functions::{self, Function};
use crate::imports::{self, Import};
use crate::markers::{self, BadMarker, Marker};
use crate::path::VariablePath;
use crate::pointers;
use crate::probes::{self, Probe};
use crate::prototypes::{self, Prototype};
use crate::stamp::Stamp;
use crate::table::SymbolTable;
use crate::unwind::{CfaChange, Frames, UnwindEntry};
use crate::variables::{self, Variable};
use crate::{debug, debuginfod, lines, table};

/// The placement of a file by the kernel and the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loaded at the addresses in the file.
    Executable,
    /// A position-independent program.
    PositionIndependent,
    Library,
}

/// A part of the file that is loaded into memory. Addresses are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub address: u64,
    pub offset: u64,
    pub file_size: u64,
    pub memory_size: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
}

type Remembered = Box<dyn FnOnce() -> Option<Vec<Function>> + Send>;

/// An x86-64 program or library. All addresses are link-time addresses, as in the file.
pub struct Image {
    path: PathBuf,
    elf: Elf,
    segments: Vec<Segment>,
    dynamic: Dynamic,
    code: Code,
    debug_directories: Vec<PathBuf>,
    debug: OnceLock<Option<debug::Debug>>,
    frames: OnceLock<Frames>,
    functions: OnceLock<Result<Vec<Function>>>,
    remembered: Mutex<Option<Remembered>>,
    content_hash: OnceLock<u64>,
}

impl Image {
    pub fn open(path: &Path) -> Result<Image> {
        Image::open_with_debug_directories(path, &[Path::new("/usr/lib/debug")])
    }

    /// Opens the file at `path`; `known_as` is its path for naming functions and finding debug files.
    pub fn open_as(path: &Path, known_as: &Path) -> Result<Image> {
        let image = Image::open(path)?;
        Ok(Image {
            path: known_as.to_owned(),
            ..image
        })
    }

    /// As `open`, with other search directories for separate debug files.
    pub fn open_with_debug_directories(path: &Path, directories: &[&Path]) -> Result<Image> {
        Image::parse(path, directories).with_context(|| format!("cannot read {}", path.display()))
    }

    fn parse(path: &Path, directories: &[&Path]) -> Result<Image> {
        let elf = Elf::open(path)?;
        let segments = parse_segments(&elf)?;
        let dynamic = Dynamic::parse(&elf);
        let code = Code::of(&elf, &segments);
        Ok(Image {
            path: path.to_owned(),
            elf,
            segments,
            dynamic,
            code,
            debug_directories: directories
                .iter()
                .map(|&directory| directory.to_owned())
                .collect(),
            debug: OnceLock::new(),
            frames: OnceLock::new(),
            functions: OnceLock::new(),
            remembered: Mutex::default(),
            content_hash: OnceLock::new(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file_name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        crate::elf::text(name.as_encoded_bytes())
    }

    pub fn build_id(&self) -> Option<&[u8]> {
        self.elf.build_id()
    }

    /// Releases the pages of the file until it is read again.
    pub fn let_pages_go(&self) {
        self.elf.let_pages_go();
        if let Some(Some(debug)) = self.debug.get() {
            debug.let_pages_go();
        }
    }

    /// The identity of the file: its build-id, or else a hash of its content. A stripped file keeps its build-id, so
    /// the same identity may have fewer names.
    pub fn identity(&self) -> String {
        match self.build_id() {
            Some(id) => id.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            }),
            None => format!(
                "x-{:016x}",
                self.content_hash.get_or_init(|| xxh3_64(self.elf.data()))
            ),
        }
    }

    /// A library that can be run, as libc.so.6 can, has an interpreter too; unlike a program it has a name for the
    /// loader.
    pub fn kind(&self) -> Kind {
        if self.elf.kind == abi::ET_EXEC {
            Kind::Executable
        } else if self.dynamic.says_position_independent()
            || (self.elf.header(abi::PT_INTERP).is_some() && self.soname().is_none())
        {
            Kind::PositionIndependent
        } else {
            Kind::Library
        }
    }

    pub fn interpreter(&self) -> Option<&str> {
        let header = self.elf.header(abi::PT_INTERP)?;
        let path = string_at(
            self.elf.range(header.offset, header.file_size)?,
            0,
            LONGEST_PATH,
        )?;
        str::from_utf8(path).ok()
    }

    /// Whether Go's toolchain made it.
    pub fn is_go(&self) -> bool {
        [".go.buildinfo", ".note.go.buildid"]
            .iter()
            .any(|name| self.elf.section(name).is_some())
    }

    /// Whether it is a static program, without a loader.
    pub fn is_static(&self) -> bool {
        self.kind() != Kind::Library
            && self.elf.header(abi::PT_INTERP).is_none()
            && self.needed().is_empty()
    }

    /// The libraries that it needs, in order.
    pub fn needed(&self) -> Vec<&str> {
        self.dynamic.strings(self, abi::DT_NEEDED).collect()
    }

    pub fn soname(&self) -> Option<&str> {
        self.dynamic.strings(self, abi::DT_SONAME).next()
    }

    /// The loaded segments, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub fn entry(&self) -> u64 {
        self.elf.entry
    }

    /// Whether the unwinder finds this file's frames (PT_GNU_EH_FRAME).
    pub fn has_unwind_header(&self) -> bool {
        self.elf.header(abi::PT_GNU_EH_FRAME).is_some()
    }

    /// The file's device and inode, which identify its mappings.
    pub fn device_and_inode(&self) -> Option<(u64, u64)> {
        self.elf.device_and_inode
    }

    /// Bytes of the file, wherever they are loaded.
    pub fn file_bytes(&self, offset: u64, size: u64) -> Option<&[u8]> {
        self.elf.range(offset, size)
    }

    /// The file's bytes for an address; they lie within one segment.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.bytes_from(address)?.get(..len)
    }

    /// The file's bytes from an address to the end of its segment.
    pub(crate) fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        let (offset, size) = self.file_range_from(address)?;
        self.elf.range(offset, size)
    }

    /// The offset in the file and the size of the bytes from `bytes_from`.
    pub(crate) fn file_range_from(&self, address: u64) -> Option<(u64, u64)> {
        let segment = self.segments.iter().find(|segment| {
            address
                .checked_sub(segment.address)
                .is_some_and(|inside| inside < segment.file_size)
        })?;
        let inside = address - segment.address;
        Some((
            segment.offset.checked_add(inside)?,
            segment.file_size - inside,
        ))
    }

    /// The address of a function or an object that the file defines, by its raw name.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        let find_in = |table: SymbolTable<'_>| {
            let symbol = table.find(name.as_bytes())?;
            Some(symbol.st_value.get(LE))
        };
        self.exported(name)
            .or_else(|| SymbolTable::of_section(&self.elf, abi::SHT_SYMTAB).and_then(find_in))
            .or_else(|| {
                self.debug()
                    .and_then(|debug| debug.symbols())
                    .and_then(find_in)
            })
    }

    /// The address of an exported name.
    pub fn exported(&self, name: &str) -> Option<u64> {
        Some(self.exports().find(name)?.address)
    }

    pub fn exports(&self) -> Exports<'_> {
        Exports::of(self)
    }

    /// A stamp of all files that the functions come from, and of the name for nameless functions.
    pub fn stamp(&self) -> Option<Stamp> {
        let stamp = self.elf.stamp?.with(self.file_name().as_bytes());
        match self.debug_file() {
            Some(debug) => Some(stamp.and(debug.stamp?)),
            None => Some(stamp),
        }
    }

    /// A hash of the content of all that `stamp` covers.
    pub fn content_hash(&self) -> u64 {
        let own = *self.content_hash.get_or_init(|| xxh3_64(self.elf.data()));
        let debug = self.debug_file();
        debug.map_or(own, |debug| xxh3_64_with_seed(debug.data(), own))
    }

    fn debug_file(&self) -> Option<Elf> {
        match SymbolTable::of_section(&self.elf, abi::SHT_SYMTAB) {
            Some(_) => None,
            None => debug::file(self, &self.debug_directories),
        }
    }

    /// Sets the result of `functions`, from a file of the same stamp, to be loaded only when needed.
    pub fn remember(&self, functions: impl FnOnce() -> Option<Vec<Function>> + Send + 'static) {
        let mut remembered = self.remembered.lock();
        *remembered = Some(Box::new(functions));
    }

    fn recall(&self) -> Option<Vec<Function>> {
        let mut remembered = self.remembered.lock();
        remembered.take()?()
    }

    /// All functions, one for each address, sorted. Computed once.
    pub fn functions(&self) -> Result<&[Function]> {
        let functions = || self.recall().map_or_else(|| functions::of(self), Ok);
        match self.functions.get_or_init(functions) {
            Ok(functions) => Ok(functions),
            Err(error) => Err(anyhow!("{error:#}"))
                .with_context(|| format!("cannot read {}", self.path.display())),
        }
    }

    /// The function that holds an address.
    pub fn function_at(&self, address: u64) -> Result<Option<&Function>> {
        let functions = self.functions()?;
        let after = functions.partition_point(|function| function.address <= address);
        Ok(functions[..after]
            .last()
            .filter(|function| address - function.address < function.size.max(1)))
    }

    /// The functions with code of a line of source, by address; if it has none, of the next line that has. None where
    /// the file has no debug information that can be read. `file` is the end of a path, whole components of it.
    pub fn functions_at_line(&self, file: &str, line: u32) -> Result<Vec<&Function>> {
        let (_, addresses) = self.line(file, line);
        let mut functions = Vec::new();
        for address in addresses {
            functions.extend(self.function_at(address)?);
        }
        functions.sort_unstable_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        Ok(functions)
    }

    /// The first place with code of a line in each function that has some, and that line, as above.
    pub fn places_of_line(&self, file: &str, line: u32) -> Result<(u32, Vec<u64>)> {
        let (line, addresses) = self.line(file, line);
        let mut first = BTreeMap::new();
        for address in addresses {
            if let Some(function) = self.function_at(address)? {
                let known = first.entry(function.address).or_insert(address);
                *known = address.min(*known);
            }
        }
        Ok((line, first.into_values().collect()))
    }

    /// The location of a variable, or of a part of it, at an instruction, by the debug information; the error says why
    /// there is none.
    pub fn variable(&self, address: u64, path: &VariablePath) -> Result<Variable> {
        let file;
        let elf = match self.elf.section(".debug_info") {
            Some(_) => &self.elf,
            None => {
                file = debug::file(self, &self.debug_directories);
                file.as_ref().with_context(|| {
                    format!(
                        "{} has no debug information to find {path} (compile with -g)",
                        self.file_name()
                    )
                })?
            }
        };
        let common = debug::common(elf, &self.debug_directories);
        variables::find(self, elf, common.as_ref(), address, path)
    }

    fn line(&self, file: &str, line: u32) -> (u32, Vec<u64>) {
        if lines::has(&self.elf) {
            return lines::addresses(&self.elf, file, line);
        }
        debug::file(self, &self.debug_directories).map_or_else(
            || (line, Vec::new()),
            |elf| lines::addresses(&elf, file, line),
        )
    }

    /// The file and line of each of `addresses` of which the debug information tells. Paths are relative to the directory
    /// that the compiler ran in, if the files are below it.
    pub fn places(&self, addresses: &[u64]) -> HashMap<u64, (String, u32)> {
        if lines::has(&self.elf) {
            return lines::places(&self.elf, addresses);
        }
        let elf = self.debug_file_of_any_place();
        elf.map_or_else(HashMap::new, |elf| lines::places(&elf, addresses))
    }

    /// The parameters and results of the functions at these addresses, by address, as debug information tells them.
    pub fn prototypes(&self, addresses: &[u64]) -> HashMap<u64, Prototype> {
        let Ok(all) = self.functions() else {
            return HashMap::new();
        };
        let function = |address: &u64| {
            let place = all.binary_search_by_key(address, |function| function.address);
            place.ok().map(|place| &all[place])
        };
        let functions: Vec<&Function> = addresses.iter().filter_map(function).collect();
        let file;
        let elf = match self.elf.section(".debug_info") {
            Some(_) => &self.elf,
            None => {
                file = self.debug_file_of_any_place();
                match &file {
                    Some(elf) => elf,
                    None => return HashMap::new(),
                }
            }
        };
        let common = debug::common(elf, &self.debug_directories);
        prototypes::of(elf, common.as_ref(), &functions)
    }

    /// The debug file, perhaps from a server. This takes time, so nothing that is recorded depends on it.
    fn debug_file_of_any_place(&self) -> Option<Elf> {
        debug::file(self, &self.debug_directories).or_else(|| debuginfod::find(self))
    }

    /// The markers in the file, by name, and those with invalid notes.
    pub fn markers(&self) -> (Vec<Marker>, Vec<BadMarker>) {
        markers::of(self)
    }

    /// The addresses of the functions that the file declares as `NOPAL_PROBE`, in order.
    pub fn general_probes(&self) -> Vec<u64> {
        markers::general_probes(self)
    }

    /// The static probes of `sys/sdt.h` (USDT), by provider and name.
    pub fn probes(&self) -> Vec<Probe> {
        probes::of(self)
    }

    /// The file's imports, and the words in which the loader puts their addresses.
    pub fn imports(&self) -> Vec<Import> {
        imports::of(self)
    }

    /// The words for calls that the loader binds to functions by symbols of the file itself, unless another file has
    /// one of that name before it: the word's address, and that of the file's function. Sorted.
    pub fn own_slots(&self) -> Vec<(u64, u64)> {
        imports::of_own(self)
    }

    /// The addresses within the file that the loader stores in its data, as in tables of functions.
    pub fn pointers(&self) -> impl Iterator<Item = u64> {
        pointers::of(self)
    }

    /// The unwinding entry (FDE) that covers an address.
    pub fn unwind_rows(&self, address: u64) -> Option<UnwindEntry> {
        self.frames().covering(address).copied()
    }

    /// The rules for the canonical frame address at the start of the range and at each change within it. Empty if no
    /// entry covers the start.
    pub fn cfa_changes(&self, range: Range<u64>) -> Vec<CfaChange> {
        self.frames().cfa_changes(self, range)
    }

    pub(crate) fn frames(&self) -> &Frames {
        self.frames.get_or_init(|| Frames::parse(self))
    }

    pub(crate) fn elf(&self) -> &Elf {
        &self.elf
    }

    pub(crate) fn dynamic(&self) -> &Dynamic {
        &self.dynamic
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Symbols from outside the file's own tables; searched only if the file has no full table.
    pub(crate) fn debug(&self) -> Option<&debug::Debug> {
        self.debug
            .get_or_init(
                || match table::SymbolTable::of_section(&self.elf, abi::SHT_SYMTAB) {
                    Some(_) => None,
                    None => debug::find(self, &self.debug_directories),
                },
            )
            .as_ref()
    }
}

fn parse_segments(elf: &Elf) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for header in elf
        .headers
        .iter()
        .filter(|header| header.kind == abi::PT_LOAD)
    {
        ensure!(
            elf.range(header.offset, header.file_size).is_some(),
            "the file is truncated: the segment at {:#x} is not all there",
            header.address
        );
        ensure!(
            header.file_size <= header.memory_size
                && header.address.checked_add(header.memory_size).is_some(),
            "the segment at {:#x} has an impossible size",
            header.address
        );
        segments.push(Segment {
            address: header.address,
            offset: header.offset,
            file_size: header.file_size,
            memory_size: header.memory_size,
            readable: header.flags.0 & abi::PF_R.0 != 0,
            writable: header.flags.0 & abi::PF_W.0 != 0,
            executable: header.flags.0 & abi::PF_X.0 != 0,
        });
    }
    ensure!(!segments.is_empty(), "the file has nothing to load");
    segments.sort_by_key(|segment| segment.address);
    Ok(segments)
}

/// The ranges in which functions may be.
pub(crate) struct Code {
    /// Executable sections without the linker's jump stubs.
    all: Ranges,
    /// The ranges that hold only parts split off functions.
    cold: Ranges,
}

impl Code {
    fn of(elf: &Elf, segments: &[Segment]) -> Code {
        let wanted = abi::SHF_ALLOC.0 | abi::SHF_EXECINSTR.0;
        let executable: Vec<Range<u64>> = segments
            .iter()
            .filter(|segment| segment.executable)
            .map(|segment| segment.address..segment.address + segment.file_size)
            .collect();
        let (mut all, mut cold) = (Vec::new(), Vec::new());
        for section in &elf.sections {
            let Some(end) = section.address.checked_add(section.size) else {
                continue;
            };
            let is_loaded = executable
                .iter()
                .any(|segment| segment.start <= section.address && end <= segment.end);
            let is_stubs = section.name.starts_with(".plt") || section.name.starts_with(".iplt");
            if section.flags.0 & wanted != wanted
                || section.kind == abi::SHT_NOBITS
                || !is_loaded
                || is_stubs
            {
                continue;
            }
            all.push(section.address..end);
            if [".text.cold", ".text.split"].contains(&section.name.as_str()) {
                cold.push(section.address..end);
            }
        }
        if all.is_empty() {
            all = executable;
        }
        Code {
            all: Ranges::of(all),
            cold: Ranges::of(cold),
        }
    }

    pub fn ranges(&self) -> &[Range<u64>] {
        &self.all.0
    }

    /// The end of the code that an address lies in.
    pub fn end(&self, address: u64) -> Option<u64> {
        self.all.end(address)
    }

    /// Whether a section of code begins here.
    pub fn begins_at(&self, address: u64) -> bool {
        self.all
            .0
            .binary_search_by_key(&address, |range| range.start)
            .is_ok()
    }

    pub fn is_cold(&self, address: u64) -> bool {
        self.cold.end(address).is_some()
    }
}

/// Sorted, disjoint and not empty.
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn of(mut ranges: Vec<Range<u64>>) -> Ranges {
        ranges.sort_by_key(|range| range.start);
        let mut end = 0;
        for range in &mut ranges {
            range.start = range.start.max(end);
            end = end.max(range.end);
        }
        ranges.retain(|range| range.start < range.end);
        Ranges(ranges)
    }

    fn end(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|range| range.start <= address);
        self.0[..after]
            .last()
            .filter(|range| address < range.end)
            .map(|range| range.end)
    }
}
