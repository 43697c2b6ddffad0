//! A small kernel whose symbols, memory and list of forbidden functions the input is laid over: a plan is made of it.
#![no_main]

mod common;

use common::{Input, patched};
use libfuzzer_sys::fuzz_target;
use nopal_kernel::{EXIT_RETURN, EXIT_TAIL, Kernel, Memory, Plan, Symbols};
use std::os::unix::fs::FileExt;

const TEXT: u64 = 0xffff_ffff_8100_0000;
const MODULE: u64 = 0xffff_ffff_c000_0000;
const SEGMENT: usize = 0x200;

const SYMBOLS: &str = "ffffffff81000000 T _stext
ffffffff81000000 t one
ffffffff81000020 t one.cold
ffffffff81000040 T two
ffffffff81000040 T also_two
ffffffff81000060 T __x86_return_thunk
ffffffff81000080 T __x86_indirect_thunk_rax
ffffffff810000a0 T __noinstr_text_start
ffffffff810000c0 T __noinstr_text_end
ffffffff810000c0 T three
ffffffff810000e0 T _etext
ffffffff81000100 D __start_static_call_sites
ffffffff81000110 D __stop_static_call_sites
ffffffff81000110 D __start___jump_table
ffffffff81000130 D __stop___jump_table
ffffffff81000130 D __start_orc_unwind_ip
ffffffff81000140 D __stop_orc_unwind_ip
ffffffff81000140 D __start_orc_unwind
ffffffff81000158 D __stop_orc_unwind
ffffffffc0000000 t in_module\t[ext4]
ffffffffc0000040 t last\t[ext4]
";

/// Places for ftrace, jumps and returns.
fn text() -> Vec<u8> {
    let function = [
        0x0f, 0x1f, 0x44, 0, 0, 0x75, 0x19, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xe9, 0x2f, 0, 0, 0,
        0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
    ];
    function.repeat(SEGMENT / function.len())
}

fn core() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    file.extend(0u64.to_le_bytes());
    file.extend(64u64.to_le_bytes());
    file.resize(52, 0);
    for number in [64u16, 56, 2, 0, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    let size = SEGMENT as u64;
    for (address, offset) in [(TEXT, 176), (MODULE, 176 + size)] {
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        for number in [offset, address, 0, size, size, 0x1000] {
            file.extend(u64::to_le_bytes(number));
        }
    }
    file.extend(text().repeat(2));
    file
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let [symbols, memory, blacklist, module] = std::array::from_fn(|_| {
        let length = usize::from(input.byte());
        input.bytes(length)
    });
    let symbols = Symbols::parse(&patched(SYMBOLS.as_bytes(), Input(symbols)));
    let file = std::fs::File::from(common::memory(c"core"));
    file.write_all_at(&patched(&core(), Input(memory)), 0)
        .unwrap();
    let Ok(memory) = Memory::of(file) else {
        return;
    };
    let blacklist = patched(
        b"0xffffffff810000c0-0xffffffff810000c8\tthree\n",
        Input(blacklist),
    );
    let section = |_: &str, name: &str| {
        let mut input = Input(module.get(name.len() % 4..)?);
        let begin = MODULE + u64::from(input.word() % 0x200);
        Some(begin..begin + u64::from(input.byte()))
    };
    let Ok(kernel) = Kernel::of(
        symbols,
        &memory,
        &String::from_utf8_lossy(&blacklist),
        section,
    ) else {
        return;
    };
    let plan = Plan::make(&kernel);
    let mut taken = std::collections::BTreeSet::new();
    for function in &plan.functions {
        assert!(function.address < function.end);
        for exit in plan.exits_of(function) {
            // Each planned place exists, and belongs to one function.
            assert_eq!(memory.read(exit.address, 5).unwrap(), exit.expected);
            assert!(taken.insert(exit.address));
            assert!([EXIT_RETURN, EXIT_TAIL].contains(&u32::from(exit.kind)));
        }
    }
});
