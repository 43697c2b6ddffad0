//! Each reason for which a function is refused.

use super::*;
use crate::{EXIT_RETURN, EXIT_TAIL};

/// The plan of a function with this code, which is made for its address.
fn planned(code: impl Fn(u64) -> Vec<u8>) -> Result<Vec<(u32, u64)>, Reason> {
    let mut small = Small::new();
    small.code("__x86_indirect_thunk_rax", &[&RETURN]);
    small.code("__x86_indirect_thunk_r11", &[&RETURN]);
    small.function("other", &[&RETURN, &NOP, &RETURN]);
    let address = small.here();
    small.function("f", &[&code(address + 5)]);
    small.code("f_helper.cold", &[&RETURN]);
    small.code("__x86_return_thunk", &[&RETURN]);
    small.symbols += &format!("{:x} T gone\n", TEXT + 0x10_0000);
    small.table(
        ["__start_static_call_sites", "__stop_static_call_sites"],
        8,
        &[[address + 7, 0], [address + 8, 0]],
    );
    let frame = [(TEXT, 0), (address + 10, 8), (address + 15, 0)];
    small.unwinding(&frame);
    of(&small.plan(), address)
}

const THUNK_OF_RAX: u64 = TEXT;
const THUNK_OF_R11: u64 = TEXT + SLOT;
const OTHER: u64 = TEXT + 2 * SLOT;
const RETURN_THUNK: u64 = TEXT + 5 * SLOT;

/// A reason, and code that is refused for it, made for its address.
type Case<'a> = (Reason, &'a dyn Fn(u64) -> Vec<u8>);

#[test]
fn each_reason_is_told() {
    let then = |first: &[u8], rest: &[u8]| [first, rest].concat();
    // Alone, each of these is an exit.
    assert_eq!(planned(|_| RETURN.into()), Ok(vec![(EXIT_RETURN, 5)]));
    assert_eq!(
        planned(|at| jump(at, OTHER).into()),
        Ok(vec![(EXIT_TAIL, 5)])
    );
    assert_eq!(
        planned(|at| jump(at, THUNK_OF_RAX).into()),
        Ok(vec![(EXIT_TAIL, 5)])
    );
    let cases: [Case; 19] = [
        (Reason::Undecodable, &|_| then(&[0x06], &RETURN)),
        (Reason::OtherReturn, &|_| vec![0xc2, 8, 0, 0xcc, 0xcc]),
        (Reason::OtherReturn, &|_| vec![0x48, 0xcf]),
        // The pushed address is not the next instruction's.
        (Reason::OtherReturn, &|_| vec![0x68, 1, 2, 3, 4, 0x48, 0xcf]),
        (Reason::ShortReturn, &|_| vec![0xc3, 0xcc, 0x66, 0x90, 0xcc]),
        (Reason::ShortReturn, &|at| {
            short_jump(at, RETURN_THUNK).into()
        }),
        (Reason::ShortJump, &|at| {
            then(&short_jump(at, OTHER), &RETURN)
        }),
        (Reason::ConditionalExit, &|at| {
            then(&to::<6>(at, &[0x0f, 0x84], OTHER), &RETURN)
        }),
        // A cold part, but not its own.
        (Reason::ConditionalExit, &|at| {
            then(&to::<6>(at, &[0x0f, 0x84], at - 5 + SLOT), &RETURN)
        }),
        (Reason::ConditionalExit, &|at| {
            then(&to::<6>(at, &[0x0f, 0x84], at - 5), &RETURN)
        }),
        (Reason::ComputedTail, &|_| {
            vec![0xff, 0xe0, 0xcc, 0xcc, 0xcc]
        }),
        // notrack jmp *%rax, with a frame
        (Reason::ComputedJump, &|_| {
            then(&RETURN, &[0x3e, 0xff, 0xe0, 0xcc, 0xcc])
        }),
        (Reason::ComputedJump, &|at| {
            then(&RETURN, &jump(at + 5, THUNK_OF_RAX))
        }),
        (Reason::EntersMiddle, &|at| jump(at, OTHER + 10).into()),
        (Reason::Unnamed, &|at| jump(at, TEXT + 0x10_0000).into()),
        (Reason::HandsOverRegister, &|at| {
            jump(at, THUNK_OF_R11).into()
        }),
        (Reason::StaticCall, &|at| {
            then(&[0x66, 0x90], &jump(at + 2, OTHER))
        }),
        // A static call to nothing is a return.
        (Reason::StaticCall, &|_| then(&[0x0f, 0x1f, 0], &RETURN)),
        (Reason::FrameRemains, &|_| then(&RETURN, &RETURN)),
    ];
    for (index, (reason, code)) in cases.iter().enumerate() {
        assert_eq!(planned(code), Err(*reason), "case {index}");
    }
}

#[test]
fn a_jump_into_the_bytes_of_an_exit_is_told() {
    let mut small = Small::new();
    let entered = small.function("entered", &[&[0x75, 3], &RETURN]);
    let hidden = small.function("hidden", &[&NOP, &RETURN]);
    let label = [[hidden + 5, hidden + 13]];
    small.table(["__start___jump_table", "__stop___jump_table"], 16, &label);
    let plan = small.plan();
    for address in [entered, hidden] {
        assert_eq!(of(&plan, address), Err(Reason::EnteredInside));
    }
}

#[test]
fn without_the_tables_of_the_unwinder_computed_jumps_are_not_believed_to_leave() {
    let mut small = Small::new();
    let thunk = small.code("__x86_indirect_thunk_rax", &[&RETURN]);
    let address = small.here();
    small.function("f", &[&jump(address + 5, thunk)]);
    assert_eq!(of(&small.plan(), address), Err(Reason::ComputedJump));
}

#[test]
fn where_nothing_may_be_traced_nothing_is() {
    let mut small = Small::new();
    small.mark("__noinstr_text_start");
    let early = small.function("early", &[&RETURN]);
    small.mark("__noinstr_text_end");
    let usual = small.function("usual", &[&RETURN]);
    let listed = small.function("listed", &[&RETURN]);
    let switch = small.function("__switch_to", &[&RETURN]);
    let traced = small.here();
    small.function("traced", &[&jump(traced + 5, TEXT + 0x20_0000)]);
    small.symbols += &format!("{:x} t nopal_slots\t[nopal]\n", TEXT + 0x1f_0000);
    small.blacklist = format!(
        "0x{listed:x}-0x{:x}\tlisted\nrubbish\n0x1-\n-\n",
        listed + SLOT
    );
    let plan = small.plan();
    assert_eq!(of(&plan, early), Err(Reason::NotInstrumented));
    assert_eq!(of(&plan, usual), Ok(vec![(EXIT_RETURN, 5)]));
    assert_eq!(of(&plan, listed), Err(Reason::Blacklisted));
    assert_eq!(of(&plan, switch), Err(Reason::SwitchesTasks));
    assert_eq!(of(&plan, traced), Err(Reason::Changed));
}

#[test]
fn a_cold_part_of_two_functions_is_the_first_ones() {
    let mut small = Small::new();
    let first = small.here();
    let cold = first + 2 * SLOT;
    let second = first + SLOT;
    for address in [first, second] {
        small.function("f", &[&to::<6>(address + 5, &[0x0f, 0x84], cold), &RETURN]);
    }
    small.code("f.cold", &[&RETURN]);
    let plan = small.plan();
    check(&plan, TEXT..TEXT + 0x1000);
    assert!(of(&plan, first).is_ok());
    assert_eq!(of(&plan, second), Err(Reason::SharedPart));
}
