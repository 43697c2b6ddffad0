//! Any bytes as `.eh_frame_hdr` and `.eh_frame` of a file with a few functions, one of which throws.
#![no_main]

mod common;

use common::elf::{CODE, FRAMES, library};
use libfuzzer_sys::fuzz_target;
use nopal_plan::Plan;
use nopal_symbols::Image;

/// push %rbx; mov $1,%ebx; call next; pop %rbx; ret
const FUNCTION: [u8; 16] = [
    0x53, 0xbb, 1, 0, 0, 0, 0xe8, 5, 0, 0, 0, 0x5b, 0xc3, 0x90, 0x90, 0x90,
];

/// The unwind tables that a compiler writes for four functions; the input is laid over them.
fn whole() -> Vec<u8> {
    const FRAME_SECTION: u64 = 12 + 4 * 8;
    let mut section = vec![
        20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
    ];
    section.extend([0x0c, 7, 8, 0x90, 1, 0, 0]);
    let mut table = Vec::new();
    for number in 0..4u64 {
        let at = section.len() as u64;
        table.push((CODE + number * 16, FRAMES + FRAME_SECTION + at));
        section.extend(20u32.to_le_bytes());
        section.extend((at as u32 + 4).to_le_bytes());
        let field = FRAMES + FRAME_SECTION + section.len() as u64;
        section.extend(((CODE + number * 16).wrapping_sub(field) as u32).to_le_bytes());
        section.extend(13u32.to_le_bytes());
        section.extend([0, 0x41, 0x0e, 16, 0x83, 2, 0, 0]);
    }
    section.extend([0; 4]);
    let mut bytes = vec![1, 0x1b, 3, 0x3b];
    bytes.extend((FRAME_SECTION as u32 - 4).to_le_bytes());
    bytes.extend(4u32.to_le_bytes());
    for (code, frame) in table {
        bytes.extend((code.wrapping_sub(FRAMES) as u32).to_le_bytes());
        bytes.extend((frame.wrapping_sub(FRAMES) as u32).to_le_bytes());
    }
    assert_eq!(bytes.len() as u64, FRAME_SECTION);
    bytes.extend(section);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let frames = common::patched(&whole(), common::Input(data));
    let functions = [("a", 0, 13), ("b", 16, 13), ("c", 32, 13), ("d", 48, 13)];
    let bytes = library(
        &FUNCTION.repeat(5),
        &frames[..frames.len().min(0x1000)],
        &functions,
    );
    let file = common::File::with(&bytes);
    let image = Image::open_with_debug_directories(file.path(), &[]).unwrap();
    for offset in 0..64 {
        image.unwind_rows(CODE + offset);
    }
    image.cfa_changes(CODE..CODE + 64);
    Plan::make(&image).unwrap();
});
