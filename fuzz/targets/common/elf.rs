//! Small ELF files: code, data and unwind tables as given, with the tables of a linker around them.

/// Link-time addresses, which equal the offsets in the file.
pub const CODE: u64 = 0x1000;
pub const DATA: u64 = 0x3000;
pub const FRAMES: u64 = 0x4000;

/// A library with `functions` (name, offset in the code, size). `frames` begins with the `.eh_frame_hdr`.
pub fn library(code: &[u8], frames: &[u8], functions: &[(&str, u64, u64)]) -> Vec<u8> {
    assert!(CODE as usize + code.len() <= DATA as usize && frames.len() <= 0x1000);
    let mut file = vec![0; FRAMES as usize + 0x1000];
    file[CODE as usize..][..code.len()].copy_from_slice(code);
    file[FRAMES as usize..][..frames.len()].copy_from_slice(frames);

    let mut strings = vec![0];
    let mut symbols = vec![0; 24];
    for (name, offset, size) in functions {
        symbols.extend((strings.len() as u32).to_le_bytes());
        const GLOBAL_FUNCTION: u8 = 0x12;
        symbols.extend([GLOBAL_FUNCTION, 0, 1, 0]);
        symbols.extend((CODE + offset).to_le_bytes());
        symbols.extend(size.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let names = b"\0.text\0.symtab\0.strtab\0";
    let symbols_at = file.len() as u64;
    file.extend(&symbols);
    let strings_at = file.len() as u64;
    file.extend(&strings);
    let names_at = file.len() as u64;
    file.extend(names);
    file.resize(file.len().next_multiple_of(8), 0);
    let sections_at = file.len() as u64;
    // Name, type, flags, address, offset, size, link, info, alignment, entry size.
    let sections: [[u64; 10]; 5] = [
        [0; 10],
        [1, 1, 6, CODE, CODE, code.len() as u64, 0, 0, 16, 0],
        [7, 2, 0, 0, symbols_at, symbols.len() as u64, 3, 1, 8, 24],
        [15, 3, 0, 0, strings_at, strings.len() as u64, 0, 0, 1, 0],
        [15, 3, 0, 0, names_at, names.len() as u64, 0, 0, 1, 0],
    ];
    for section in sections {
        for (index, value) in section.into_iter().enumerate() {
            if matches!(index, 0 | 1 | 6 | 7) {
                file.extend((value as u32).to_le_bytes());
            } else {
                file.extend(value.to_le_bytes());
            }
        }
    }

    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    const SHARED_LIBRARY: u16 = 3;
    const X86_64: u16 = 62;
    header.extend(SHARED_LIBRARY.to_le_bytes());
    header.extend(X86_64.to_le_bytes());
    header.extend(1u32.to_le_bytes());
    header.extend(0u64.to_le_bytes());
    header.extend(64u64.to_le_bytes());
    header.extend(sections_at.to_le_bytes());
    header.extend(0u32.to_le_bytes());
    for count in [64u16, 56, 3, 64, sections.len() as u16, 4] {
        header.extend(count.to_le_bytes());
    }
    const LOAD: u32 = 1;
    const UNWIND: u32 = 0x6474_e550;
    // Type, flags, address, size.
    let segments = [
        (LOAD, 5u32, 0, DATA),
        (LOAD, 6, DATA, 0x2000),
        (UNWIND, 4, FRAMES, frames.len() as u64),
    ];
    for (kind, flags, at, size) in segments {
        header.extend(kind.to_le_bytes());
        header.extend(flags.to_le_bytes());
        for value in [at, at, at, size, size, 0x1000] {
            header.extend(value.to_le_bytes());
        }
    }
    file[..header.len()].copy_from_slice(&header);
    file
}
