//! Builds the agent's image from the runtime and records its bytes, the addresses of its symbols, the fields to fill
//! in, and the unwind rows of the thunk template.

use gimli::UnwindSection;
use object::{Object, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget, SectionFlags};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

type Failure = Box<dyn std::error::Error>;

const FOLDERS: [&str; 3] = ["core", "port/linux", "arch/x86_64"];
/// Part of the core that a process under control of the tool has no use for.
const NOT_IN_A_PROCESS: &str = "control.c";

fn main() -> Result<(), Failure> {
    let runtime =
        fs::canonicalize(Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../runtime"))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", runtime.display());

    let objects = compile(&runtime)?;
    for object in &objects {
        refuse_absolute_addresses(object)?;
    }
    let image = out.join("agent.elf");
    let status = Command::new("ld")
        .args(["-static", "--gc-sections", "--eh-frame-hdr", "-T"])
        .arg(runtime.join("arch/x86_64/image.ld"))
        .arg("-o")
        .arg(&image)
        .args(&objects)
        .status()?;
    if !status.success() {
        return Err("ld could not link the agent".into());
    }
    describe(&fs::read(&image)?, &out)
}

fn compile(runtime: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut build = cc::Build::new();
    for folder in FOLDERS {
        let mut files: Vec<_> = fs::read_dir(runtime.join(folder))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        build.files(files.iter().filter(|file| {
            let extension = file.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("c" | "S")) && !file.ends_with(NOT_IN_A_PROCESS)
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
        "-fomit-frame-pointer",
        "-U_FORTIFY_SOURCE",
    ] {
        build.flag(flag);
    }
    Ok(build.try_compile_intermediates()?)
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
    for symbol in file.symbols() {
        let name = symbol.name()?;
        if let Some(name) = name.strip_prefix("nopal_") {
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
        "/// Address of the field, kind.\npub const PATCHES: &[(usize, u64)] = &["
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
