//! Thunks and hooks, read by a disassembler and compared with the description in `runtime/arch/x86_64/thunk.S`.

mod common;

use common::{BLOCK_AT, COUNTED_AT, IMAGE_AT, MIRROR, Memory, ROOM, builder, symbols, target};
use nopal_abi::Capture;
use nopal_agent::{COUNTED_BYTES, Recorder, Stub, Switched};
use zydis::ffi::DecodedOperandKind;
use zydis::{FullInstruction, Mnemonic};

const BODY: [u8; 6] = [0x55, 0x48, 0x89, 0xe5, 0x66, 0x90];

/// The instruction with addresses by name, numbers in hex.
fn spelled(instruction: &FullInstruction, at: u64, name: &dyn Fn(u64) -> String) -> String {
    match target(instruction, at) {
        Some(target) => format!(
            "{} {}",
            instruction.mnemonic.static_string().unwrap(),
            name(target)
        ),
        None => instruction.to_string(),
    }
}

/// The instructions from `from` up to `to`.
fn listing(memory: &Memory, from: u64, to: u64, body: u64) -> Vec<String> {
    let symbols = symbols();
    let name = |address: u64| match symbols.iter().find(|(_, at)| **at == address) {
        Some((name, _)) => name.clone(),
        None if address == body => "body".into(),
        None => format!("{address:#x}"),
    };
    let mut lines = Vec::new();
    let mut at = from;
    while at < to {
        let instruction = memory.instruction(at);
        lines.push(spelled(&instruction, at, &name));
        at += u64::from(instruction.length);
    }
    assert_eq!(at, to, "an instruction goes over the end");
    lines
}

fn write_body(_: u64, out: &mut [u8]) -> anyhow::Result<()> {
    out.copy_from_slice(&BODY);
    Ok(())
}

fn expected_thunk(entry_word: u32, entry: &str, exit_word: u32, exit: &str) -> Vec<String> {
    [
        "nop".to_owned(),
        "push rcx".into(),
        format!("mov ecx, 0x{entry_word:02X}"),
        format!("call {entry}"),
        "pop rcx".into(),
        "jb body".into(),
        "add rsp, 0x08".into(),
        "call body".into(),
        "lea rsp, [rsp-0x08]".into(),
        "push rcx".into(),
        format!("mov ecx, 0x{exit_word:02X}"),
        format!("call {exit}"),
        "pop rcx".into(),
        "ret".into(),
    ]
    .into()
}

/// The counting code, which stands behind the code that a thunk runs where it knows no counter.
fn expected_count(site: u32, slowly: u64) -> Vec<String> {
    let table = COUNTED_AT + u64::from(site / 512) * COUNTED_BYTES;
    let counter = match site % 512 * 8 {
        0 => String::new(),
        number => format!("+0x{number:02X}"),
    };
    [
        "push rax".to_owned(),
        "push rcx".into(),
        "push rdx".into(),
        "mov rcx, rsp".into(),
        "shr rcx, 0x0C".into(),
        "imul eax, ecx, 0x9E3779B1".into(),
        "shr eax, 0x18".into(),
        format!("mov rdx, 0x{table:X}"),
        "cmp [rdx+rax*8], rcx".into(),
        format!("jnz {slowly:#x}"),
        "mov rax, [rdx+rax*8+0x800]".into(),
        "test rax, rax".into(),
        format!("jz {slowly:#x}"),
        "mov edx, 0x401".into(),
        "ror rdx, 0x0A".into(),
        format!("add [rax{counter}], rdx"),
        format!("jb {slowly:#x}"),
        "pop rdx".into(),
        "pop rcx".into(),
        "pop rax".into(),
    ]
    .into()
}

#[test]
fn thunks_are_as_their_layout_says() {
    let entries = [
        ((false, true, false, false), (1, "nopal_entry")),
        ((true, true, false, false), (5, "nopal_entry_args")),
        ((false, true, true, false), (1, "nopal_entry_depth")),
        ((true, true, true, false), (5, "nopal_entry_args_depth")),
        ((false, false, false, false), (4, "nopal_entry_only")),
        ((true, false, false, false), (7, "nopal_entry_only_args")),
        ((false, false, true, false), (4, "nopal_entry_only")),
        ((true, false, true, false), (7, "nopal_entry_only_args")),
        ((false, true, false, true), (1, "nopal_entry_site")),
        ((true, true, false, true), (5, "nopal_entry_args_site")),
        ((false, true, true, true), (1, "nopal_entry_site_depth")),
        ((true, true, true, true), (5, "nopal_entry_args_site_depth")),
        ((false, false, false, true), (4, "nopal_entry_only_site")),
        (
            (true, false, false, true),
            (7, "nopal_entry_only_args_site"),
        ),
    ];
    let sites = [1, 0x54321, nopal_abi::SITE_LIMIT - 1];
    for ((arguments, ends, limits_depth, call_sites), (entry_kind, entry)) in entries {
        let (exit_kind, exit) = match (arguments, limits_depth) {
            (false, false) => (2, "nopal_exit"),
            (true, false) => (8, "nopal_exit_result"),
            (false, true) => (2, "nopal_exit_depth"),
            (true, true) => (8, "nopal_exit_result_depth"),
        };
        let mut block = builder();
        let recorder = Recorder {
            capture: Capture {
                arguments,
                ends,
                call_sites,
            },
            limits_depth,
        };
        let thunks = sites.map(|site| {
            block
                .thunk(site, recorder, BODY.len(), &[], write_body)
                .unwrap()
        });
        let block = block.finish(&[]).unwrap();
        assert_eq!((block.low, block.header > block.high), (BLOCK_AT, true));
        let mut memory = Memory::default();
        memory.add(block.low, block.bytes.to_vec());
        for (site, thunk) in sites.into_iter().zip(thunks) {
            assert!(
                thunk.entry.is_multiple_of(16)
                    && thunk.entry >= block.low
                    && thunk.body < block.high
            );
            let words = [entry_kind | site << 4, exit_kind | site << 4];
            let wanted = expected_thunk(words[0], entry, words[1], exit);
            let counts = thunk.entry + u64::from(thunk.switch(Switched::Counting)[1]) + 2;
            let listed = listing(&memory, thunk.entry, counts, thunk.body);
            let (recording, slow_count) = listed.split_at(wanted.len());
            assert_eq!(recording, wanted);
            let counted = thunk.body - 3;
            let jump = format!("jnb {counted:#x}");
            let record = format!("jmp {:#x}", thunk.entry + 2);
            let expected = [
                &format!("mov ecx, 0x{site:02X}")[..],
                "call nopal_count_slowly",
                &jump,
                "pop rdx",
                "pop rcx",
                "pop rax",
                &record,
            ];
            assert_eq!(slow_count, expected);
            assert!(memory.from(thunk.body).unwrap().starts_with(&BODY));

            // The landing pad and the personality routine rely on this.
            let after_call = thunk.after_call.unwrap();
            let call = memory.instruction(after_call - 5);
            assert_eq!(
                (call.mnemonic, target(&call, after_call - 5)),
                (Mnemonic::CALL, Some(thunk.body))
            );
            assert!(
                memory
                    .from(after_call)
                    .unwrap()
                    .starts_with(&[0x48, 0x8d, 0x64, 0x24, 0xf8])
            );
            let word = &memory.from(after_call + 7).unwrap()[..4];
            assert_eq!(word, words[1].to_le_bytes());

            // The switch: two aligned bytes.
            assert!(
                memory
                    .from(thunk.entry)
                    .unwrap()
                    .starts_with(&thunk.switch(Switched::On))
            );
            let leads_to = |to| {
                let mut switched = Memory::default();
                switched.add(thunk.entry, thunk.switch(to).into());
                let jump = switched.instruction(thunk.entry);
                assert_eq!((jump.mnemonic, jump.length), (Mnemonic::JMP, 2));
                target(&jump, thunk.entry)
            };
            assert_eq!(leads_to(Switched::Off), Some(thunk.body));
            assert_eq!(leads_to(Switched::Counting), Some(counts));
            let slowly = after_call + 18;
            assert_eq!(
                listing(&memory, counts, thunk.body, thunk.body),
                expected_count(site, slowly)
            );
        }
    }
}

#[test]
fn hooks_are_as_their_layout_says() {
    let stubs = [
        (Stub::Jump, "nopal_stub_jump"),
        (Stub::Libraries, "nopal_stub_libraries"),
        (Stub::Exec, "nopal_stub_exec"),
        (Stub::Prctl, "nopal_stub_prctl"),
        (Stub::Seccomp, "nopal_stub_seccomp"),
        (Stub::SignalAction, "nopal_stub_signal_action"),
        (Stub::Protect, "nopal_stub_protect"),
        (Stub::Move, "nopal_stub_move"),
        (Stub::SystemCall, "nopal_stub_system_call"),
        (Stub::FindObject, "nopal_stub_find_object"),
        (Stub::IterateObjects, "nopal_stub_iterate_objects"),
    ];
    let mut block = builder();
    let hooks =
        stubs.map(|(stub, name)| (block.hook(stub, BODY.len(), &[], write_body).unwrap(), name));
    let block = block.finish(&[]).unwrap();
    let mut memory = Memory::default();
    memory.add(block.low, block.bytes.to_vec());
    for (hook, name) in hooks {
        assert_eq!(hook.after_call, None);
        let lines = listing(&memory, hook.entry, hook.body, hook.body);
        assert_eq!(
            [&lines[0], &lines[2], &lines[3]],
            ["push rax", "xchg [rsp], rax", &format!("jmp {name}")]
        );
        let lea = memory.instruction(hook.entry + 1);
        let DecodedOperandKind::Mem(place) = &lea.operands()[1].kind else {
            panic!("{lea}")
        };
        let address = hook.entry + 1 + u64::from(lea.length) + place.disp.displacement as u64;
        assert_eq!(
            (lea.mnemonic, address, lines.len()),
            (Mnemonic::LEA, hook.body, 4)
        );
        assert!(memory.from(hook.body).unwrap().starts_with(&BODY));
    }
}

#[test]
fn thunks_that_cannot_be_made_are_refused() {
    let recorder = Recorder {
        capture: Capture {
            arguments: false,
            ends: true,
            call_sites: false,
        },
        limits_depth: false,
    };
    let site = nopal_abi::SITE_LIMIT;
    assert!(
        builder()
            .thunk(site, recorder, BODY.len(), &[], write_body)
            .is_err()
    );
    let failing = |_: u64, _: &mut [u8]| anyhow::bail!("out of reach");
    assert!(
        builder()
            .thunk(1, recorder, BODY.len(), &[], failing)
            .is_err()
    );
    let mut far = nopal_agent::BlockBuilder::new(IMAGE_AT + (1 << 32), IMAGE_AT, 0, 0, ROOM);
    assert!(far.thunk(1, recorder, BODY.len(), &[], write_body).is_err());
    let fits = |bytes: usize| {
        let mut block = nopal_agent::BlockBuilder::new(BLOCK_AT, IMAGE_AT, MIRROR, 0, bytes);
        let thunk = block.thunk(1, recorder, BODY.len(), &[], write_body);
        let made = thunk.and_then(|_| Ok(block.finish(&[7; 24])?.bytes.len()));
        made.ok()
    };
    let needed = fits(4096).unwrap();
    assert_eq!(fits(needed), Some(needed));
    for too_few in 0..needed {
        assert_eq!(fits(too_few), None, "{too_few} of {needed} bytes");
    }
}

/// A block that is handed over while it is made holds the same bytes, those of thunks that are switched off included.
#[test]
fn blocks_are_the_same_however_they_are_handed_over() {
    const THUNKS: u32 = 3000;
    let recorder = Recorder {
        capture: Capture {
            arguments: false,
            ends: true,
            call_sites: false,
        },
        limits_depth: false,
    };
    fn keep(pieces: &mut Vec<(usize, Vec<u8>)>) -> impl FnMut(usize, &[u8]) -> anyhow::Result<()> {
        |offset, bytes| {
            pieces.push((offset, bytes.to_vec()));
            Ok(())
        }
    }
    let mut off = Vec::new();
    let mut make = |pieces: &mut Vec<(usize, Vec<u8>)>, hands_over: bool| {
        let mut block = nopal_agent::BlockBuilder::new(BLOCK_AT, IMAGE_AT, MIRROR, 0, 1 << 20);
        for site in 1..=THUNKS {
            let thunk = block.thunk(site, recorder, BODY.len(), &[], write_body);
            let thunk = thunk.unwrap();
            if site % 3 == 0 {
                block.switch_off(&thunk);
            }
            off.push((thunk, site % 3 == 0));
            if hands_over {
                block.hand_over(keep(pieces)).unwrap();
            }
        }
        let undo: &[u8] = &[7; 72];
        let block = match hands_over {
            true => block.finish_into(undo, keep(pieces)).unwrap(),
            false => block.finish(undo).unwrap(),
        };
        pieces.push((block.handed_over, block.bytes));
        (block.high, block.header)
    };
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    assert_eq!(make(&mut whole, false), make(&mut parts, true));
    assert!(parts.len() > 2, "{} pieces", parts.len());
    let mut joined = Vec::new();
    for (offset, bytes) in parts {
        assert_eq!(offset, joined.len());
        joined.extend(bytes);
    }
    let [(0, whole)] = &whole[..] else {
        panic!("one piece")
    };
    assert!(*whole == joined);
    for (thunk, off) in off {
        let at = (thunk.entry - BLOCK_AT) as usize;
        assert_eq!(
            whole[at..at + 2],
            thunk.switch(match off {
                true => Switched::Off,
                false => Switched::On,
            })
        );
    }
}
