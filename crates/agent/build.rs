//! Builds the agent's image from the runtime and records its bytes, the addresses of its symbols, the fields to fill
//! in, and the unwind rows of the thunk template.

use gimli::UnwindSection;
use nopal_headers::{Headers, Structure};
use object::{Object, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget, SectionFlags};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

type Failure = Box<dyn std::error::Error>;

/// Files of the core that a traced process does not use.
const NOT_IN_A_PROCESS: [&str; 2] = ["command_parser.c", "traces.c"];

fn main() -> Result<(), Failure> {
    let runtime =
        fs::canonicalize(Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../runtime"))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", runtime.display());

    let arch = format!("arch/{}", env::var("CARGO_CFG_TARGET_ARCH")?);
    let folders = ["core", "port/linux", &arch];
    let objects = compile(&runtime, &folders)?;
    for object in &objects {
        refuse_absolute_addresses(object)?;
    }
    headers(&runtime, &folders)?;
    let image = out.join("agent.elf");
    let status = Command::new("ld")
        .args(["-static", "--gc-sections", "--eh-frame-hdr", "-T"])
        .arg(runtime.join(&arch).join("image.ld"))
        .arg("-o")
        .arg(&image)
        .args(&objects)
        .status()?;
    if !status.success() {
        return Err("ld could not link the agent".into());
    }
    describe(&fs::read(&image)?, &out)
}

/// Translates the constants and structures that the tool writes into a process and into its generated code.
fn headers(runtime: &Path, folders: &[&str]) -> Result<(), Failure> {
    const DERIVED: &str = "Clone, Copy, Debug, PartialEq, Eq, zerocopy::FromBytes, zerocopy::Immutable, \
                           zerocopy::IntoBytes, zerocopy::KnownLayout";
    let plain = |c, rust| Structure::new(c, rust).derive(DERIVED).foreign();
    let structure = |c, rust| {
        let traits = format!("{DERIVED}, Default");
        Structure::new(c, rust).derive(&traits).foreign()
    };
    let headers = Headers::new(runtime, folders, &["mark.h", "patch.h"])
        .constants([
            "NOPAL_DEPTH_LIMIT",
            "NOPAL_THREAD_HASH",
            "NOPAL_THREAD_NONE",
        ])
        .constants(["NOPAL_THREAD_SHIFT", "NOPAL_STACK_PART_SHIFT"])
        .constants(["NOPAL_COUNTED_SHIFT", "NOPAL_COUNTED_PAGE_SHIFT"])
        .constants(["NOPAL_FETCH_CONSTANT", "MARK_MASK", "ARENA_SHIFT"])
        .constants(["PATCH_MIRROR", "PATCH_THREADS", "PATCH_THREAD_SLOT"])
        .constants([
            "PATCH_MARK",
            "PATCH_DEPTH_LIMIT",
            "PATCH_ORDER",
            "PATCH_POINTER",
            "PATCH_MAPPED",
        ])
        .counts(["NOPAL_BLOCKS", "NOPAL_UNWINDERS", "NOPAL_BREAKPOINTS"])
        .counts(["NOPAL_CONTEXTS", "NOPAL_THREADS", "NOPAL_STACK_PARTS"])
        .counts(["NOPAL_FETCHES", "NOPAL_FETCH_LOADS"])
        .structures([
            structure("nopal_process", "ProcessHead").until("blocks"),
            structure("nopal_block", "BlockEntry"),
            structure("nopal_unwinder", "UnwinderEntry"),
            structure("nopal_breakpoint", "Breakpoint"),
            plain("nopal_traps", "Traps"),
            Structure::new("nopal_process", "Process").foreign(),
            Structure::new("nopal_range", "Range").foreign(),
            Structure::new("nopal_context", "Context").foreign(),
            Structure::new("nopal_threads", "Threads").foreign(),
            Structure::new("nopal_counted", "Counted").foreign(),
            structure("nopal_mark", "Mark"),
            structure("nopal_fetch", "Fetch"),
        ])
        .enumeration("nopal_part", "stack_part", "NOPAL_PART_");
    Ok(headers.write("headers.rs")?)
}

fn compile(runtime: &Path, folders: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let mut build = cc::Build::new();
    for folder in folders {
        let mut files: Vec<_> = fs::read_dir(runtime.join(folder))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        build.files(files.iter().filter(|file| {
            let extension = file.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("c" | "S"))
                && !NOT_IN_A_PROCESS.iter().any(|name| file.ends_with(name))
        }));
        build.include(runtime.join(folder));
    }
    build
        .include(runtime.join("port"))
        .std("c17")
        .opt_level(2)
        .debug(false)
        .pic(false)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .cargo_metadata(false);
    for flag in [
        "-Wshadow",
        "-Wstrict-prototypes",
        "-Wmissing-prototypes",
        "-ffreestanding",
        "-ffunction-sections",
        "-fPIE",
        "-fno-builtin",
        "-fvisibility=hidden",
        "-mgeneral-regs-only",
        "-fno-stack-protector",
        "-fcf-protection=none",
        "-fno-jump-tables",
        "-fasynchronous-unwind-tables",
        "-U_FORTIFY_SOURCE",
    ] {
        build.flag(flag);
    }
    build.flag(frame_pointer(&build)?);
    Ok(build.try_compile_intermediates()?)
}

/// A handler of the program that interrupts the agent may follow the frame pointer to the program's frames. So the agent
/// leaves that register to the program. clang cannot do so, but can have it point to frames of the agent.
fn frame_pointer(build: &cc::Build) -> Result<&'static str, Failure> {
    let register = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "-ffixed-rbp",
        _ => "-ffixed-x29",
    };
    match build.is_flag_supported(register)? {
        true => Ok(register),
        false => Ok("-fno-omit-frame-pointer"),
    }
}

/// The image runs at an address that the linker does not know: an absolute address in it would be wrong.
fn refuse_absolute_addresses(path: &Path) -> Result<(), Failure> {
    let data = fs::read(path)?;
    let file = object::File::parse(&*data)?;
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };
        if sh_flags.0 & object::elf::SHF_ALLOC.0 == 0 {
            continue;
        }
        for (offset, relocation) in section.relocations() {
            let kind = relocation.kind();
            let relative = matches!(kind, RelocationKind::Relative | RelocationKind::PltRelative);
            if !relative && relocation.target() != RelocationTarget::Absolute {
                let name = section.name()?;
                return Err(
                    format!("{}: {kind:?} address at {name}+{offset:#x}", path.display()).into(),
                );
            }
        }
    }
    Ok(())
}

fn describe(data: &[u8], out: &Path) -> Result<(), Failure> {
    let file = object::File::parse(data)?;
    let mut image = Vec::new();
    for name in [".image", ".template", ".eh_frame_hdr", ".eh_frame"] {
        let section = file
            .section_by_name(name)
            .ok_or("a section of the agent is missing")?;
        image.resize(section.address() as usize, 0);
        image.extend_from_slice(section.data()?);
    }
    fs::write(out.join("image"), &image)?;

    let mut text = String::new();
    writeln!(
        text,
        "pub const BYTES: &[u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/image\"));"
    )?;
    let spare = file.section_by_name(".nopal_spare");
    let spare = spare.map(|section| section.index());
    for symbol in file.symbols() {
        let name = symbol.name()?;
        let is_spare = symbol.section_index() == spare;
        if let Some(name) = name.strip_prefix("nopal_").filter(|_| !is_spare) {
            writeln!(
                text,
                "#[allow(dead_code)]\npub const {}: usize = {:#x};",
                name.to_uppercase(),
                symbol.address()
            )?;
            writeln!(
                text,
                "#[allow(dead_code)]\npub const {}_BYTES: usize = {:#x};",
                name.to_uppercase(),
                symbol.size()
            )?;
        }
    }
    for (name, bytes) in spare_code(&file)? {
        writeln!(text, "pub const {name}: &[u8] = &{bytes:?};")?;
    }
    let header = file
        .section_by_name(".eh_frame_hdr")
        .ok_or("no .eh_frame_hdr")?;
    writeln!(
        text,
        "pub const EH_FRAME_HEADER: usize = {:#x};",
        header.address()
    )?;

    let patches = file
        .section_by_name(".nopal_patches")
        .ok_or("no .nopal_patches")?;
    let words: Vec<u64> = patches
        .data()?
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect();
    writeln!(
        text,
        "/// Address of the field, kind.\npub const PATCHES: &[(usize, u32)] = &["
    )?;
    for pair in words.chunks_exact(2) {
        writeln!(text, "    ({:#x}, {}),", pair[0], pair[1])?;
    }
    writeln!(text, "];")?;

    for (name, symbol) in [("THUNK_CFI", "nopal_thunk"), ("HOOK_CFI", "nopal_hook")] {
        writeln!(
            text,
            "pub const {name}: &[u8] = &{:?};",
            unwind_program(&file, symbol)?
        )?;
    }
    fs::write(out.join("image.rs"), text)?;
    Ok(())
}

/// Instructions for fields that the tool fills in, by their labels.
fn spare_code<'a>(file: &object::File<'a>) -> Result<Vec<(String, &'a [u8])>, Failure> {
    let section = file.section_by_name(".nopal_spare").ok_or("no spare")?;
    let mut all = Vec::new();
    for symbol in file.symbols() {
        if symbol.section_index() == Some(section.index())
            && let Some(name) = symbol.name()?.strip_prefix("nopal_")
        {
            let bytes = section.data_range(symbol.address(), symbol.size())?;
            all.push((name.to_uppercase(), bytes.ok_or("a label without code")?));
        }
    }
    Ok(all)
}

/// The call frame instructions of the FDE that begins at `symbol`, without the padding behind them.
fn unwind_program(file: &object::File, symbol: &str) -> Result<Vec<u8>, Failure> {
    let address = file
        .symbols()
        .find(|candidate| candidate.name() == Ok(symbol))
        .ok_or("no template")?
        .address();
    let section = file.section_by_name(".eh_frame").ok_or("no .eh_frame")?;
    let frames = gimli::EhFrame::new(section.data()?, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let fde = frames.fde_for_address(&bases, address, |section, bases, offset| {
        section.cie_from_offset(bases, offset)
    })?;
    let mut program = section.data()?[program_range(&fde, section.data()?)?].to_vec();
    while program.last() == Some(&0) {
        program.pop();
    }
    Ok(program)
}

/// In an FDE with pc-relative 4-byte pointers and empty augmentation data: length, CIE pointer, start and size, then
/// one byte, then the instructions.
fn program_range(
    fde: &gimli::FrameDescriptionEntry<gimli::EndianSlice<gimli::LittleEndian>>,
    data: &[u8],
) -> Result<std::ops::Range<usize>, Failure> {
    let begin = fde.offset();
    let length = fde.entry_len();
    let range = begin + 4 + 4 + 8 + 1..begin + 4 + length;
    if range.end > data.len() || data[range.start - 1] != 0 {
        return Err("the template's FDE is not as expected".into());
    }
    Ok(range)
}
