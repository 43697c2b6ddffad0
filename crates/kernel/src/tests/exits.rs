//! Each kind of exit, and where functions end.

use super::*;
use crate::{EXIT_RETURN, EXIT_TAIL};

#[test]
fn returns_and_tail_jumps_are_exits_in_all_their_forms() {
    let mut small = Small::new();
    let thunk = small.code("__x86_return_thunk", &[&RETURN]);
    let srso = small.code("srso_alias_return_thunk", &[&RETURN]);
    let other = small.function("other", &[&RETURN]);
    let short = small.here();
    small.function("short", &[&short_jump(short + 5, other), &[0xcc; 3]]);
    // test %edi, %edi; jne to the second return
    let at = small.here();
    let plain = small.function("plain", &[&[0x85, 0xff, 0x75, 5], &RETURN, &RETURN]);
    let patched = small.here();
    small.function(
        "patched",
        &[&jump(patched + 5, thunk), &jump(patched + 10, srso)],
    );
    let tail = small.here();
    small.function("tail", &[&jump(tail + 5, other)]);
    let again = small.here();
    small.function("again", &[&jump(again + 5, again)]);
    // ud2
    let never = small.function("never", &[&[0x0f, 0x0b]]);
    let plan = small.plan();
    check(&plan, TEXT..TEXT + 0x1000);
    assert_eq!(plain, at);
    assert_eq!(
        of(&plan, plain),
        Ok(vec![(EXIT_RETURN, 9), (EXIT_RETURN, 14)])
    );
    assert_eq!(
        of(&plan, patched),
        Ok(vec![(EXIT_RETURN, 5), (EXIT_RETURN, 10)])
    );
    assert_eq!(of(&plan, tail), Ok(vec![(EXIT_TAIL, 5)]));
    assert_eq!(of(&plan, short), Ok(vec![(EXIT_TAIL, 5)]));
    assert_eq!(
        of(&plan, again),
        Ok(vec![(EXIT_TAIL, 5)]),
        "it begins again"
    );
    assert_eq!(of(&plan, never), Ok(vec![]));
    let targets = plan
        .exits
        .iter()
        .filter(|exit| u32::from(exit.kind) == EXIT_TAIL);
    assert_eq!(
        targets.map(|exit| exit.target).collect::<Vec<_>>(),
        [other, other, again]
    );
}

#[test]
fn ftraces_place_is_found_behind_a_landing_and_while_ftrace_is_on() {
    let mut small = Small::new();
    let tracer = small.code("ftrace_caller", &[&RETURN]);
    let stranger = small.code("stranger", &[&RETURN]);
    let call = |at: u64, address: u64| to::<5>(at, &[0xe8], address);
    let landing = small.code("landing", &[&ENDBR, &NOP, &RETURN]);
    let sealed = small.code("sealed", &[&[0x66, 0x0f, 0x1f, 0], &NOP, &RETURN]);
    let on = small.here();
    small.code("on", &[&ENDBR, &call(on + 4, tracer), &RETURN]);
    // Memory that a tracer has made has no name.
    let made = small.here();
    small.code("made", &[&call(made, TEXT - 0x10_0000), &RETURN]);
    let none = small.here();
    small.code("none", &[&call(none, stranger), &RETURN]);
    let written = small.code("written", &[&ENDBR, &RETURN]);
    let label = small.function("label", &[&RETURN]);
    let own = small.function("ftrace_call", &[&RETURN]);
    let jump = [[label, label + 5]];
    small.table(["__start___jump_table", "__stop___jump_table"], 16, &jump);
    let plan = small.plan();
    for (address, exit) in [(landing, 9), (sealed, 9), (on, 9), (made, 5)] {
        assert_eq!(of(&plan, address), Ok(vec![(EXIT_RETURN, exit)]));
    }
    for address in [none, written, label, own] {
        assert_eq!(of(&plan, address), Err(Reason::NoSite));
    }
}

#[test]
fn a_cold_part_belongs_to_its_function() {
    let mut small = Small::new();
    let other = small.function("other", &[&RETURN]);
    let function = small.here();
    let cold = function + SLOT;
    // jne cold; ret; and there: jump back, or return.
    small.function(
        "f.part.0",
        &[&to::<6>(function + 5, &[0x0f, 0x85], cold), &RETURN],
    );
    let back = short_jump(cold + 2, function + 11);
    small.code(
        "f.part.0.cold",
        &[&[0x75, 2], &back, &RETURN, &jump(cold + 9, other)],
    );
    // A part that only an exception leads to.
    let apart = small.function("g", &[&RETURN]);
    small.code("g.cold", &[&RETURN]);
    // Two functions have this name: the jump tells whose part it is.
    let first = small.function("h", &[&RETURN]);
    let second = small.here();
    small.function(
        "h",
        &[&to::<6>(second + 5, &[0x0f, 0x84], second + SLOT), &RETURN],
    );
    small.code("h.cold", &[&RETURN]);
    let plan = small.plan();
    check(&plan, TEXT..TEXT + 0x1000);
    let expected = vec![
        (EXIT_RETURN, 11),
        (EXIT_RETURN, SLOT + 4),
        (EXIT_TAIL, SLOT + 9),
    ];
    assert_eq!(of(&plan, function), Ok(expected));
    assert_eq!(
        of(&plan, apart),
        Ok(vec![(EXIT_RETURN, 5), (EXIT_RETURN, SLOT)])
    );
    assert_eq!(of(&plan, first), Ok(vec![(EXIT_RETURN, 5)]));
    assert_eq!(
        of(&plan, second),
        Ok(vec![(EXIT_RETURN, 11), (EXIT_RETURN, SLOT)])
    );
    assert_eq!(plan.functions.len(), 5, "cold parts are no functions");
}

#[test]
fn a_function_ends_before_another_one_without_a_name() {
    let begin = [&NOP[..], &RETURN, &[0x90; 6]].concat();
    let mut small = Small::new();
    let replaced = small.code("replaced", &[&begin, &ENDBR, &NOP, &RETURN]);
    // Its own code, to which a jump leads: a jump label at a multiple of 16.
    let jumped = small.code(
        "jumped",
        &[&NOP, &[0x75, 9], &RETURN, &[0x90; 4], &NOP, &RETURN],
    );
    let labelled = small.code("labelled", &[&NOP, &NOP, &RETURN, &[0x90], &NOP, &RETURN]);
    // call, and a loop
    let call = to::<5>(small.here() + 5, &[0xe8], replaced);
    let looped = small.code(
        "looped",
        &[&NOP, &call, &[0x90; 6], &NOP, &[0x75, 0xf9], &RETURN],
    );
    small.table(
        ["__start___jump_table", "__stop___jump_table"],
        16,
        &[[labelled + 5, labelled + 16]],
    );
    let plan = small.plan();
    assert_eq!(of(&plan, replaced), Ok(vec![(EXIT_RETURN, 5)]));
    assert_eq!(
        of(&plan, jumped),
        Ok(vec![(EXIT_RETURN, 7), (EXIT_RETURN, 21)])
    );
    assert_eq!(
        of(&plan, labelled),
        Ok(vec![(EXIT_RETURN, 10), (EXIT_RETURN, 21)])
    );
    assert_eq!(of(&plan, looped), Ok(vec![(EXIT_RETURN, 23)]));
}

#[test]
fn synchronizing_the_processor_is_no_exit() {
    let mut small = Small::new();
    let next = small.here() + 5 + 5 + 2;
    let push = [&[0x68][..], &(next as u32).to_le_bytes()].concat();
    let function = small.function("sync_core", &[&push, &[0x48, 0xcf], &RETURN]);
    assert_eq!(of(&small.plan(), function), Ok(vec![(EXIT_RETURN, 12)]));
}

#[test]
fn functions_of_modules_are_planned_and_code_that_the_kernel_makes_is_not() {
    const MODULE: u64 = 0xffff_ffff_c000_0000;
    let symbols = format!(
        "{TEXT:x} T _stext\n{:x} T _etext\n{MODULE:x} t in_module\t[ext4]\n{:x} t made\t[bpf]\n{:x} t after\t[loop]\n",
        TEXT + SLOT,
        MODULE + SLOT,
        MODULE + 2 * SLOT,
    );
    let code = [&NOP[..], &RETURN].concat();
    let slot = |code: &[u8]| [code, &vec![0; SLOT as usize - code.len()]].concat();
    let module = [slot(&code), slot(&code), slot(&code), vec![0; 0x1_0000]].concat();
    let memory = Memory::of(core(&[(TEXT, &slot(&code)), (MODULE, &module)])).unwrap();
    let symbols = Symbols::parse(symbols.as_bytes());
    let kernel = Kernel::of(symbols, &memory, "", |_, _| None).unwrap();
    let plan = Plan::make(&kernel);
    check(&plan, TEXT..MODULE + 3 * SLOT);
    let found: Vec<u64> = plan
        .functions
        .iter()
        .map(|function| function.address)
        .collect();
    assert_eq!(found, [TEXT, MODULE, MODULE + 2 * SLOT]);
    let last = plan.functions[2];
    assert_eq!(
        (last.end, last.exits),
        (last.address + 16, 1),
        "behind it there is nothing"
    );
}
