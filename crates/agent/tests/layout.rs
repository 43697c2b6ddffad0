//! The process structure on both sides: the C compiler prints what the header says, and the mirror in Rust is compared
//! with it.

use nopal_agent::{
    BLOCKS, BREAKPOINTS, BlockEntry, Breakpoint, CONTEXT_BYTES, CONTEXTS, NO_THREAD, ProcessHead,
    STACK_PART_BYTES, STACK_PARTS, THREADS, THREADS_BYTES, Traps, UNWINDERS, UnwinderEntry,
    blocks_offset, process_bytes, thread_place, traps_offset, unwinders_offset,
};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

macro_rules! rows {
    ($( $c:literal => $rust:expr ),* $(,)?) => {
        [$( ($c, $rust as u64) ),*]
    };
}

#[test]
fn process_structure_is_the_headers() {
    let rows = rows![
        "sizeof(struct nopal_context)" => CONTEXT_BYTES,
        "sizeof(struct nopal_process)" => process_bytes(),
        "sizeof(struct nopal_block)" => size_of::<BlockEntry>(),
        "sizeof(struct nopal_unwinder)" => size_of::<UnwinderEntry>(),
        "offsetof(struct nopal_process, blocks)" => blocks_offset(),
        "offsetof(struct nopal_process, unwinders)" => unwinders_offset(),
        "offsetof(struct nopal_process, region)" => offset_of!(ProcessHead, region),
        "offsetof(struct nopal_process, contexts)" => offset_of!(ProcessHead, contexts),
        "offsetof(struct nopal_process, stack_parts)" => offset_of!(ProcessHead, stack_parts),
        "offsetof(struct nopal_process, threads)" => offset_of!(ProcessHead, threads),
        "offsetof(struct nopal_process, mirror)" => offset_of!(ProcessHead, mirror),
        "offsetof(struct nopal_process, threads_noted)" => offset_of!(ProcessHead, threads_noted),
        "offsetof(struct nopal_process, thread_slot)" => offset_of!(ProcessHead, thread_slot),
        "offsetof(struct nopal_process, quiet)" => offset_of!(ProcessHead, quiet),
        "offsetof(struct nopal_process, process)" => offset_of!(ProcessHead, process),
        "offsetof(struct nopal_process, depth_limit)" => offset_of!(ProcessHead, depth_limit),
        "offsetof(struct nopal_process, tracer)" => offset_of!(ProcessHead, tracer),
        "offsetof(struct nopal_process, block_count)" => offset_of!(ProcessHead, block_count),
        "offsetof(struct nopal_process, unwinder_count)" => offset_of!(ProcessHead, unwinder_count),
        "offsetof(struct nopal_unwinder, set_register)" => offset_of!(UnwinderEntry, set_register),
        "offsetof(struct nopal_unwinder, set_address)" => offset_of!(UnwinderEntry, set_address),
        "offsetof(struct nopal_unwinder, resume)" => offset_of!(UnwinderEntry, resume),
        "offsetof(struct nopal_unwinder, get_address)" => offset_of!(UnwinderEntry, get_address),
        "offsetof(struct nopal_process, traps)" => traps_offset(),
        "offsetof(struct nopal_traps, ours)" => offset_of!(Traps, ours),
        "offsetof(struct nopal_traps, before)" => offset_of!(Traps, before),
        "offsetof(struct nopal_traps, breakpoints)" => offset_of!(Traps, breakpoints),
        "offsetof(struct nopal_breakpoint, detour)" => offset_of!(Breakpoint, detour),
        "sizeof(struct nopal_breakpoint)" => size_of::<Breakpoint>(),
        "NOPAL_BREAKPOINTS" => BREAKPOINTS,
        "NOPAL_CONTEXTS" => CONTEXTS,
        "NOPAL_THREADS" => THREADS,
        "sizeof(struct nopal_threads)" => THREADS_BYTES,
        "NOPAL_THREAD_NONE" => NO_THREAD,
        "(uint32_t)0x12345678 * NOPAL_THREAD_HASH >> NOPAL_THREAD_SHIFT" => thread_place(0xabcd_1234_5678),
        "NOPAL_STACK_PARTS" => STACK_PARTS,
        "1ul << NOPAL_STACK_PART_SHIFT" => STACK_PART_BYTES,
        "NOPAL_BLOCKS" => BLOCKS,
        "NOPAL_UNWINDERS" => UNWINDERS,
    ];
    let folder = tempfile::tempdir().unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/core/process.h");
    let mut program = format!(
        "#include <stdio.h>\n#include <stdint.h>\n#include \"{}\"\nint main(void) {{\n",
        header.display()
    );
    for (expression, _) in &rows {
        program.push_str(&format!(
            "printf(\"%lu\\n\", (unsigned long)({expression}));\n"
        ));
    }
    program.push('}');
    let source = folder.path().join("layout.c");
    std::fs::write(&source, program).unwrap();
    let binary = folder.path().join("layout");
    assert!(
        Command::new("gcc")
            .arg("-o")
            .arg(&binary)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    let output = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    for ((expression, rust), c) in rows.iter().zip(output.lines()) {
        assert_eq!(c.parse::<u64>().unwrap(), *rust, "{expression}");
    }
    assert_eq!(output.lines().count(), rows.len());
}

/// Points at which tests let others go on: their names would be in the image with them.
#[test]
fn race_points_are_not_in_the_image() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/core");
    let immediates = nopal_agent::Immediates::default();
    let image = nopal_agent::image(&immediates);
    let mut points = 0;
    for entry in std::fs::read_dir(core).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for rest in text.split("port_race_point(\"").skip(1) {
            let name = rest.split('"').next().unwrap();
            let found = image
                .windows(name.len())
                .any(|part| part == name.as_bytes());
            assert!(!found, "{name}");
            points += 1;
        }
    }
    assert!(points > 20, "the sources name {points}");
}
