//! The rules, one by one.

use nopal_abi as abi;

use super::tape::{CallText, Tape, run};
use crate::calls::CallRebuilder;

const TOP: u64 = 0x7ffd_0000_8008;

#[test]
fn calls_nest_and_share_out_time() {
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP).entry(1, TOP);
    tape.wait(10)
        .entry(2, TOP - 0x40)
        .wait(5)
        .entry(2, TOP - 0x80);
    tape.wait(3)
        .exit(2, TOP - 0x80)
        .wait(1)
        .exit(2, TOP - 0x40)
        .wait(1)
        .exit(1, TOP);
    assert_eq!(tape.describe(), "+1 .+2 ..+2 ..-2:3/3 .-2:9/6 -1:20/11");
}

#[test]
fn tail_frames_end_with_the_wrapped_frame_of_their_slot() {
    let mut tape = Tape::default();
    tape.entry(1, TOP)
        .wait(1)
        .entry(2, TOP - 0x40)
        .wait(1)
        .tail(3, TOP - 0x40)
        .wait(1)
        .tail(4, TOP - 0x40);
    tape.wait(1)
        .entry(5, TOP - 0x80)
        .wait(1)
        .exit(5, TOP - 0x80)
        .wait(1)
        .exit(2, TOP - 0x40)
        .wait(1)
        .exit(1, TOP);
    assert_eq!(
        tape.describe(),
        "+1 .+2 ..+3 ...+4 ....+5 ....-5:1/1 ...-4:3/2 ..-3:4/1 .-2:5/1 -1:7/2"
    );
}

#[test]
fn tail_frames_without_their_wrapped_frame_end_with_its_stray_exit() {
    let mut tape = Tape::default();
    tape.tail(3, TOP).wait(2).exit(2, TOP).wait(1).entry(1, TOP);
    assert_eq!(tape.describe(), "+3 -3:2/2 !2:2/0 +1 ?1:0");
}

#[test]
fn a_function_without_exit_does_not_hide_a_tail_frame_from_a_stray_exit() {
    let mut tape = Tape::default();
    tape.tail(3, TOP).wait(1).only(4, TOP - 0x40).wait(1);
    tape.exit(2, TOP).wait(1).entry(1, TOP);
    assert_eq!(tape.describe(), "+3 .+4 -3:2/2 !2:2/0 +1 ?1:0");
}

#[test]
fn a_loop_of_tail_calls_does_not_grow_the_stack() {
    let mut tape = Tape::default();
    tape.entry(1, TOP);
    for turn in 0..100_000u32 {
        tape.wait(1).tail(2 + turn % 2, TOP);
    }
    let mut rebuilder = CallRebuilder::default();
    run(&mut rebuilder, &tape.words, false, &mut ());
    assert!(
        rebuilder.frames().len() < 1000,
        "{} frames",
        rebuilder.frames().len()
    );
    let mut text = CallText::default();
    tape.words.clear();
    tape.wait(1).exit(1, TOP);
    run(&mut rebuilder, &tape.words, false, &mut text);
    assert!(text.text.ends_with("-1:100001/1"), "{}", text.text);
}

#[test]
fn an_exit_ends_the_topmost_equal_entry_and_frames_above_are_unfinished() {
    let mut tape = Tape::default();
    tape.entry(1, TOP)
        .entry(2, TOP - 0x40)
        .wait(1)
        .entry(2, TOP - 0x40 - 0x1000)
        .entry(3, TOP - 0x1090);
    tape.wait(1).exit(2, TOP - 0x40).wait(1).exit(1, TOP);
    assert_eq!(
        tape.describe(),
        "+1 .+2 ..+2 ...+3 < ..-2:1/0 < -1:3/0 ?3:0 ?2:2"
    );
}

#[test]
fn exits_of_calls_from_before_tracing_are_strays() {
    let mut tape = Tape::default();
    tape.exit(7, TOP)
        .entry(1, TOP)
        .entry(2, TOP - 0x40)
        .exit(9, TOP - 0x80)
        .wait(1)
        .exit(2, TOP - 0x40)
        .exit(1, TOP);
    assert_eq!(tape.describe(), "!7 +1 .+2 !9 .-2:1/1 -1:1/0");
}

#[test]
fn a_jump_kills_the_frames_that_the_next_entry_overwrites() {
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP)
        .entry(1, TOP)
        .entry(2, TOP - 0x40)
        .entry(3, TOP - 0x80)
        .wait(4);
    tape.jump(TOP - 0x40)
        .entry(4, TOP - 0x40)
        .wait(1)
        .exit(4, TOP - 0x40)
        .exit(1, TOP);
    assert_eq!(tape.describe(), "+1 .+2 ..+3 ?3:0 ?2:0 .+4 .-4:1/1 -1:5/0");
}

/// Between an entry and its exit, after a jump, and where a tail call has just been made.
#[test]
fn a_packet_that_goes_on_with_a_chunk_changes_nothing() {
    let mut pieces = [Tape::default(), Tape::default()];
    for (tape, part) in pieces.iter_mut().zip([false, true]) {
        let resume = |tape: &mut Tape| {
            if part {
                tape.resync(abi::RESYNC_PART, 0);
            }
        };
        tape.resync(abi::RESYNC_CHUNK, TOP).entry(1, TOP).wait(1);
        resume(tape);
        tape.entry(2, TOP - 0x40).wait(1).tail(3, TOP - 0x40);
        resume(tape);
        tape.wait(1).entry(4, TOP - 0x80).jump(TOP - 0x40);
        resume(tape);
        tape.exit(2, TOP - 0x40).wait(1).exit(1, TOP);
    }
    let [whole, parts] = pieces.map(|tape| tape.describe());
    assert_eq!(whole, parts);
    assert!(whole.contains("-1:4/"), "{whole}");
}

#[test]
fn a_jump_through_recursion_returns_from_the_right_level() {
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP);
    for level in 0..100 {
        tape.entry(1, TOP - level * 0x60).wait(1);
    }
    tape.jump(TOP - 10 * 0x60).exit(1, TOP - 10 * 0x60);
    for level in (0..10).rev() {
        tape.wait(1).exit(1, TOP - level * 0x60);
    }
    let text = tape.describe();
    assert!(
        text.contains(&format!("{}-1:90/1", ".".repeat(10))),
        "{text}"
    );
    assert!(text.contains(" -1:110/2"), "{text}");
    assert_eq!(text.matches('?').count(), 89);
}

#[test]
fn a_coroutine_keeps_its_calls_over_switches() {
    let other = TOP - 0x100_0000;
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP)
        .entry(1, TOP)
        .wait(1)
        .entry(2, TOP - 0x40)
        .wait(1);
    tape.jump(other)
        .entry(5, other)
        .wait(1)
        .entry(6, other - 0x40)
        .wait(2);
    tape.jump(TOP - 0x40)
        .exit(2, TOP - 0x40)
        .wait(4)
        .entry(3, TOP - 0x60)
        .wait(8);
    tape.jump(other - 0x40)
        .exit(6, other - 0x40)
        .wait(16)
        .exit(5, other)
        .wait(32);
    tape.jump(TOP - 0x60).exit(3, TOP - 0x60).exit(1, TOP);
    assert_eq!(
        tape.describe(),
        "+1 .+2 ..+5 ...+6 < .-2:4/1 .+3 < > .-6:14/2 -5:31/17 > .-3:56/8 -1:65/5"
    );
}

#[test]
fn a_coroutine_has_ended_when_another_begins_on_its_stack() {
    let other = TOP - 0x100_0000;
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP).entry(1, TOP).wait(1);
    tape.jump(other)
        .entry(5, other)
        .wait(1)
        .entry(6, other - 0x40)
        .wait(2);
    tape.jump(TOP - 0x40).entry(2, TOP - 0x40).wait(4);
    tape.jump(other).entry(7, other).wait(8).exit(7, other);
    tape.jump(TOP - 0x40).exit(2, TOP - 0x40).exit(1, TOP);
    assert_eq!(
        tape.describe(),
        "+1 .+5 ..+6 < .+2 ?6:0 ?5:1 ..+7 ..-7:8/8 .-2:12/4 -1:16/1"
    );
}

#[test]
fn a_switch_that_nobody_told_of_is_found_by_the_exits() {
    let other = TOP - 0x8000;
    let mut tape = Tape::default();
    tape.entry(1, TOP)
        .wait(1)
        .entry(5, other)
        .wait(1)
        .entry(6, other - 0x40)
        .wait(1);
    tape.exit(1, TOP)
        .wait(1)
        .entry(2, TOP)
        .wait(1)
        .exit(6, other - 0x40)
        .exit(5, other)
        .exit(2, TOP);
    assert_eq!(
        tape.describe(),
        "+1 .+5 ..+6 < -1:3/1 +2 < > .-6:3/1 -5:4/1 > -2:1/1"
    );
}

#[test]
fn a_signal_handler_on_its_own_stack_is_left_by_return_or_jump() {
    for alternate in [TOP - 0x7000_0000, TOP + 0x7000_0000] {
        let mut tape = Tape::default();
        tape.resync(abi::RESYNC_CHUNK, TOP)
            .entry(1, TOP)
            .entry(2, TOP - 0x40)
            .wait(1);
        tape.resync(abi::RESYNC_STACK, alternate)
            .entry(8, alternate)
            .wait(5)
            .exit(8, alternate)
            .wait(1);
        tape.resync(abi::RESYNC_STACK, TOP - 0x40)
            .exit(2, TOP - 0x40)
            .wait(1)
            .exit(1, TOP);
        let text = tape.describe();
        assert!(
            text.contains("-8:5/5") && text.contains(".-2:7/") && text.ends_with("-1:8/1"),
            "{text}"
        );

        let mut tape = Tape::default();
        tape.resync(abi::RESYNC_CHUNK, TOP)
            .entry(1, TOP)
            .entry(2, TOP - 0x40)
            .wait(1);
        tape.resync(abi::RESYNC_STACK, alternate)
            .entry(8, alternate)
            .wait(5);
        tape.jump(TOP - 0x40)
            .entry(3, TOP - 0x40)
            .wait(1)
            .exit(3, TOP - 0x40)
            .wait(1)
            .exit(1, TOP);
        let text = tape.describe();
        assert!(text.contains(".-3:1/1") && text.contains("-1:8/"), "{text}");
        assert!(text.contains("?8") && text.contains("?2"), "{text}");
    }
}

#[test]
fn entry_only_calls_take_their_place_by_slot() {
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP)
        .only(1, TOP)
        .only(2, TOP - 0x40)
        .only(3, TOP - 0x80)
        .only(4, TOP - 0x40)
        .only(5, TOP - 0x20);
    tape.entry(6, TOP - 0x60)
        .wait(2)
        .only(7, TOP - 0xa0)
        .wait(1)
        .exit(6, TOP - 0x60)
        .only(8, TOP);
    assert_eq!(
        tape.describe(),
        "+1 .+2 ..+3 .+4 .+5 ..+6 ...+7 ..-6:3/3 +8"
    );
}

/// A jump may have left a call of which no later record tells.
#[test]
fn calls_from_before_a_jump_are_not_known_to_be_open_later() {
    let open_until = |jumps: bool| {
        let mut tape = Tape::default();
        tape.resync(abi::RESYNC_CHUNK, TOP).entry(1, TOP).wait(9);
        if jumps {
            tape.jump(TOP - 0x80);
        }
        tape.entry(2, TOP - 0x80);
        let mut rebuilder = CallRebuilder::default();
        run(&mut rebuilder, &tape.words, false, &mut CallText::default());
        rebuilder.open_until(100)
    };
    assert_eq!(open_until(false), 100);
    assert_eq!(open_until(true), 9);
}

/// Three calls deep, then a gap to the clock 100, and the records behind it.
fn behind_a_gap(write: impl FnOnce(&mut Tape)) -> String {
    let mut rebuilder = CallRebuilder::default();
    let mut text = CallText::default();
    let mut tape = Tape::default();
    tape.resync(abi::RESYNC_CHUNK, TOP)
        .entry(1, TOP)
        .entry(2, TOP - 0x40)
        .wait(9)
        .entry(2, TOP - 0x80);
    run(&mut rebuilder, &tape.words, false, &mut text);
    let mut tape = Tape {
        clock: 100,
        ..Tape::default()
    };
    tape.resync(abi::RESYNC_CHUNK, TOP - 0x40);
    write(&mut tape);
    run(&mut rebuilder, &tape.words, true, &mut text);
    rebuilder.end(0, &mut text);
    let text = text.text.strip_prefix(" +1 .+2 ..+2 ?2:0 ?2:9 ?1:9 ~91");
    text.expect("all calls were lost at the gap").to_string()
}

/// The exits may be those of other calls than the ones that were open before.
#[test]
fn no_call_goes_on_behind_a_gap() {
    let text = behind_a_gap(|tape| {
        tape.entry(4, TOP - 0x40).exit(4, TOP - 0x40).exit(1, TOP);
    });
    assert_eq!(text, " +4 -4:0/0 !1");
}

#[test]
fn calls_from_before_a_gap_last_at_least_since_its_end() {
    let text = behind_a_gap(|tape| {
        tape.wait(5).exit(2, TOP - 0x40).wait(3);
        tape.entry(4, TOP - 0x40).wait(1).exit(4, TOP - 0x40);
        tape.wait(2).exit(1, TOP);
    });
    assert_eq!(text, " !2:5/5 +4 -4:1/1 !1:11/5");
}

/// Any of the old calls may have run before.
#[test]
fn a_switch_behind_a_gap_leaves_no_own_time_before_it() {
    let other = TOP - 0x100_0000;
    let text = behind_a_gap(|tape| {
        tape.wait(5).resync(abi::RESYNC_STACK, other);
        tape.wait(2).exit(7, other);
    });
    assert_eq!(text, " !7:7/2");
}

#[test]
fn the_exit_of_a_call_that_was_given_up_tells_no_time() {
    let text = behind_a_gap(|tape| {
        tape.entry(4, TOP - 0x40).wait(5).entry(5, TOP - 0x80);
        tape.wait(3).jump(TOP - 0x40).entry(6, TOP - 0x40);
        tape.exit(6, TOP - 0x40).wait(2).exit(4, TOP - 0x40);
        tape.wait(1).exit(1, TOP);
    });
    assert_eq!(text, " +4 .+5 ?5:0 ?4:5 +6 -6:0/0 !4 !1:11/1");
}

#[test]
fn a_hole_is_a_gap() {
    let mut tape = Tape::default();
    tape.entry(1, TOP).wait(2).entry(1, TOP - 0x40);
    tape.wait(3).event(abi::KIND_HOLE, 0, 0);
    tape.wait(4).exit(1, TOP - 0x40).wait(5).exit(1, TOP);
    assert_eq!(tape.describe(), "+1 .+1 ?1:0 ?1:2 ~7 !1 !1:5/5");
}

#[test]
fn values_and_kinds_are_told_apart() {
    let mut tape = Tape::default();
    let arguments = [1, 2, 3, 4, 5, 6];
    let mut with = |kind, site, slot, words: &[u64]| {
        tape.event(kind, site, slot);
        tape.words.extend_from_slice(words);
        tape.wait(1);
    };
    with(abi::KIND_HOLE, 0, 0, &[]);
    with(abi::KIND_ENTRY_ARGS, 1, TOP, &arguments);
    with(abi::KIND_TAIL_ARGS, 2, TOP, &arguments);
    with(abi::KIND_PENDING_ARGS, 3, TOP - 0x40, &arguments);
    with(abi::KIND_ONLY_ARGS, 4, TOP - 0x60, &arguments);
    with(abi::KIND_PENDING_RESULT, 3, TOP - 0x40, &[99]);
    with(abi::KIND_ENTRY, 5, TOP - 0x80, &[]);
    with(abi::KIND_UNWIND, 5, TOP - 0x80, &[]);
    with(abi::KIND_EXIT_RESULT, 1, TOP, &[42]);
    let values = "[1, 2, 3, 4, 5, 6]";
    let expected = format!(
        "+1{values} .+2{values} ..+3 ...+4{values} ..-3:2/2 ..+5 ..-5:1/1u .-2:6/3=42 -1:7/1=42"
    );
    assert_eq!(tape.describe(), expected);
}

#[test]
fn a_call_site_is_that_of_the_entry_right_behind_it_only() {
    let call_site = |tape: &mut Tape, kind, site, slot| {
        tape.event(kind, site, slot).word(0x1234);
    };
    let mut tape = Tape::default();
    call_site(&mut tape, abi::KIND_CALL_SITE, 1, TOP);
    tape.entry(1, TOP).wait(1);
    tape.entry(2, TOP - 0x40).wait(1);
    // Of another site, of another slot, not stored, of an exit, behind a hole.
    call_site(&mut tape, abi::KIND_CALL_SITE, 9, TOP - 0x80);
    tape.entry(3, TOP - 0x80).wait(1);
    call_site(&mut tape, abi::KIND_CALL_SITE, 3, TOP - 0xc0);
    tape.entry(3, TOP - 0x100).wait(1);
    call_site(&mut tape, abi::KIND_PENDING_CALL_SITE, 4, TOP - 0x140);
    tape.entry(4, TOP - 0x140).wait(1);
    call_site(&mut tape, abi::KIND_CALL_SITE, 4, TOP - 0x140);
    tape.exit(4, TOP - 0x140).wait(1);
    call_site(&mut tape, abi::KIND_CALL_SITE, 5, TOP - 0x140);
    tape.only(5, TOP - 0x140).wait(1);
    tape.event(abi::KIND_HOLE, 0, 0);
    let expected = "@1234 +1 .+2 ..+3 ...+3 ....+4 ....-4:1/1 @1234 ....+5 ?3:3 ?3:4 ?2:5 ?1:6";
    assert_eq!(tape.describe(), expected);
}

#[test]
fn the_upper_half_of_the_clock_comes_from_resyncs() {
    let mut tape = Tape {
        clock: 0x1_ffff_fff0,
        ..Tape::default()
    };
    tape.resync(abi::RESYNC_CHUNK, TOP).entry(1, TOP).wait(0x20);
    tape.resync(abi::RESYNC_CLOCK, TOP)
        .exit(1, TOP)
        .entry(2, TOP)
        .wait(5 << 32);
    tape.resync(abi::RESYNC_CLOCK, TOP).exit(2, TOP);
    assert_eq!(
        tape.describe(),
        format!("+1 -1:32/32 +2 -2:{0}/{0}", 5u64 << 32)
    );
}

#[test]
fn records_that_cannot_be_understood_end_a_packet() {
    for kind in [0, abi::KIND_EXTENDED] {
        let mut tape = Tape::default();
        tape.entry(1, TOP).event(kind, 77, TOP).exit(1, TOP);
        assert_eq!(tape.describe(), "+1 ?1:0", "kind {kind}");
    }
    let mut tape = Tape::default();
    tape.entry(1, TOP)
        .event(abi::KIND_ENTRY_ARGS, 2, TOP)
        .word(1)
        .word(2);
    assert_eq!(tape.describe(), "+1 ?1:0");
}
