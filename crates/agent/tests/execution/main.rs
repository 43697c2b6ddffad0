//! Runs thunks, hooks and the code behind them in this process, and checks their records and the registers that they
//! preserve.

mod machine;
mod steps;
mod world;

use machine::{OBSERVED, Registers, enter, observer};
use nopal_abi::Capture;
use nopal_abi::*;
use nopal_agent::{Recorder, Stub, Switched, Thunk};
use std::sync::Barrier;
use steps::{count_steps, wipe_before};
use world::{Record, World, put};

const PLAIN: Recorder = Recorder {
    capture: Capture {
        arguments: false,
        ends: true,
        call_sites: false,
    },
    limits_depth: false,
};
const ARGUMENTS: Recorder = Recorder {
    capture: Capture {
        arguments: true,
        ends: true,
        call_sites: false,
    },
    ..PLAIN
};
const ONLY: Recorder = Recorder {
    capture: Capture {
        arguments: false,
        ends: false,
        call_sites: false,
    },
    ..PLAIN
};

fn with_call_sites(recorder: Recorder) -> Recorder {
    let capture = Capture {
        call_sites: true,
        ..recorder.capture
    };
    Recorder {
        capture,
        ..recorder
    }
}

/// jmp *(%rip); the address: reaches anywhere, and changes nothing.
fn jump_to(address: u64) -> Vec<u8> {
    let mut code = vec![0xff, 0x25, 0, 0, 0, 0];
    code.extend(address.to_le_bytes());
    code
}

fn observed() -> Vec<u8> {
    jump_to(observer as *const () as u64)
}

/// test %edi, %edi; je done; dec %edi; call *thunk(%rip); done: ret; thunk: its address
fn recursion(thunk: u64) -> Vec<u8> {
    let mut code = vec![
        0x85, 0xff, 0x74, 8, 0xff, 0xcf, 0xff, 0x15, 1, 0, 0, 0, 0xc3,
    ];
    code.extend(thunk.to_le_bytes());
    code
}

/// A traced function that calls itself.
fn recursive_thunk(world: &mut World, recorder: Recorder) -> Thunk {
    let function = world.function_memory();
    let thunk = world.thunk(1, recorder, jump_to(function));
    put(function, &recursion(thunk.entry));
    thunk
}

fn kinds(records: &[Record]) -> Vec<(u32, u32)> {
    let events = records.iter().filter(|record| record.kind != KIND_EXTENDED);
    events.map(|record| (record.kind, record.site)).collect()
}

/// The reasons of resyncs, except for the clock, whose upper half may change between any two records.
fn resyncs(records: &[Record]) -> Vec<u32> {
    let found = records.iter().filter(|record| record.kind == KIND_EXTENDED);
    let reasons = found.map(|record| record.words[4] as u32);
    reasons.filter(|reason| *reason != RESYNC_CLOCK).collect()
}

/// Calls the thunk of an observed function, and checks that the function and its caller see the same as without it.
/// Returns whether the call was wrapped.
fn call(thunk: &Thunk) -> bool {
    let given = Registers::distinct(1);
    let mut registers = given.clone();
    let _observing = OBSERVED.lock();
    let stack = enter(thunk.entry, &mut registers);
    let seen = OBSERVED.registers();
    assert_eq!(
        seen.general(),
        given.general(),
        "registers at the function's start"
    );
    assert_eq!(
        seen.vectors, given.vectors,
        "vector registers at the function's start"
    );
    assert_eq!(seen.direction(), given.direction());
    assert_eq!(
        OBSERVED.stack(),
        stack,
        "the stack pointer at the function's start"
    );
    assert_eq!(OBSERVED.argument(), Registers::STACK_ARGUMENT);
    let left = OBSERVED.left(&given);
    assert_eq!(
        registers.general(),
        left.general(),
        "registers after the return"
    );
    assert_eq!(
        registers.vectors, left.vectors,
        "vector registers after the return"
    );
    assert_eq!(registers.direction(), given.direction());
    Some(OBSERVED.return_address()) == thunk.after_call
}

#[test]
fn call_is_recorded_and_registers_are_kept() {
    let mut world = World::new(4, 0);
    let thunk = world.thunk(7, PLAIN, observed());
    for _ in 0..3 {
        assert!(call(&thunk));
    }
    let records = world.records();
    assert_eq!(kinds(&records), [(KIND_ENTRY, 7), (KIND_EXIT, 7)].repeat(3));
    assert_eq!(resyncs(&records), [RESYNC_CHUNK, RESYNC_STACK]);
    assert!(records.is_sorted_by_key(|record| record.clock));
    let slot = records[0].words[1];
    let events = records.iter();
    let mut events = events.filter(|record| record.kind != KIND_EXTENDED);
    assert!(events.all(|record| u64::from(record.tag) == slot >> 4 & 0xff));
}

#[test]
fn every_way_of_recording_keeps_registers() {
    for bits in 0..16 {
        let [arguments, ends, limits_depth, call_sites] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let mut world = World::new(4, 3);
        let thunk = world.thunk(
            1 + bits,
            Recorder {
                capture: Capture {
                    arguments,
                    ends,
                    call_sites,
                },
                limits_depth,
            },
            observed(),
        );
        // The first takes the slow path, the others the fast one.
        for _ in 0..3 {
            assert_eq!(call(&thunk), ends);
        }
        let records = world.records();
        let events: Vec<&Record> = records
            .iter()
            .filter(|record| record.kind != KIND_EXTENDED)
            .collect();
        let each = 1 + usize::from(ends) + usize::from(call_sites);
        assert_eq!(events.len(), 3 * each);
        let given = Registers::distinct(1);
        for (record, place) in events.into_iter().zip((0..each).cycle()) {
            match record.kind {
                KIND_CALL_SITE => assert_eq!((place, call_sites), (0, true)),
                KIND_ENTRY_ARGS | KIND_ONLY_ARGS => assert_eq!(record.words, given.arguments()),
                KIND_EXIT_RESULT => assert_eq!(record.words, [OBSERVED.left(&given).rax]),
                KIND_ENTRY | KIND_ONLY | KIND_EXIT => assert!(!arguments),
                other => panic!("a record of kind {other}"),
            }
        }
    }
}

#[test]
fn call_sites_are_recorded_before_their_entries() {
    for recorder in [PLAIN, ARGUMENTS, ONLY] {
        let mut world = World::new(4, 0);
        let only = with_call_sites(recorder);
        let thunk = world.thunk(7, only, observed());
        let plain = world.thunk(8, ONLY, observed());
        let expected = {
            let _observing = OBSERVED.lock();
            enter(plain.entry, &mut Registers::distinct(1));
            OBSERVED.return_address()
        };
        for _ in 0..3 {
            call(&thunk);
            let records = world.records();
            let mut last = records.iter().rev().filter(|record| record.site == 7);
            if recorder.capture.ends {
                last.next();
            }
            let (entry, call_site) = (last.next().unwrap(), last.next().unwrap());
            assert_eq!(call_site.kind, KIND_CALL_SITE);
            assert_eq!(call_site.words, [expected]);
            let of = |record: &Record| (record.site, record.tag, record.clock);
            assert_eq!(of(call_site), of(entry));
        }
    }
}

#[test]
fn thunk_that_is_switched_off_records_nothing() {
    let mut world = World::new(4, 0);
    let thunk = world.thunk(7, PLAIN, observed());
    world.write(thunk.entry, &thunk.switch(Switched::Off));
    assert!(!call(&thunk));
    assert_eq!(kinds(&world.records()), []);
    world.write(thunk.entry, &thunk.switch(Switched::On));
    assert!(call(&thunk));
    assert_eq!(kinds(&world.records()), [(KIND_ENTRY, 7), (KIND_EXIT, 7)]);
}

#[test]
fn thunk_that_counts_keeps_registers() {
    let mut world = World::new(4, 0);
    let sites = [1, 511, 512, 0x54321, SITE_LIMIT - 1];
    let thunks = sites.map(|site| world.thunk(site, PLAIN, observed()));
    for (thunk, calls) in thunks.iter().zip(1..) {
        world.write(thunk.entry, &thunk.switch(Switched::Counting));
        for _ in 0..calls {
            call_counted(thunk);
        }
    }
    let counted = (1..).zip(sites).map(|(calls, site)| (site, vec![calls]));
    assert_eq!(world.counters(), counted.collect());

    // Then it goes on as before.
    let before = world.records().len();
    world.write(thunks[0].entry, &thunks[0].switch(Switched::On));
    assert!(call(&thunks[0]));
    let records = kinds(&world.records());
    assert!(records.ends_with(&[(KIND_ENTRY, 1), (KIND_EXIT, 1)]));
    assert!(world.records().len() > before);
}

/// Calls a thunk that counts until it has counted a call.
fn call_counted(thunk: &Thunk) {
    while call(thunk) {}
}

#[test]
fn thunk_that_counts_records_some_calls_instead() {
    for (recorder, entry, exit) in [
        (PLAIN, KIND_ENTRY, KIND_EXIT),
        (ARGUMENTS, KIND_ENTRY_ARGS, KIND_EXIT_RESULT),
    ] {
        let mut world = World::new(4, 0);
        let thunk = world.thunk(7, recorder, observed());
        world.write(thunk.entry, &thunk.switch(Switched::Counting));
        call_counted(&thunk);
        let before = kinds(&world.records()).len();
        for round in 1..4 {
            world.sample_in(7, 3);
            assert_eq!([(); 3].map(|()| call(&thunk)), [false, false, true]);
            assert_eq!(world.counters()[&7], [1 + 2 * round], "it is not counted");
        }
        let records = kinds(&world.records());
        assert_eq!(records[before..], [(entry, 7), (exit, 7)].repeat(3));
        let calls = 100_000;
        let sampled = (0..calls).filter(|_| call(&thunk)).count() as u64;
        assert_eq!(world.counters()[&7], [1 + 6 + calls - sampled]);
        assert!((150..250).contains(&sampled), "{sampled}");
    }
}

#[test]
fn each_stack_has_counters_of_its_own() {
    const CALLS: u64 = 1000;
    let mut world = World::new(4, 0);
    let thunk = world.thunk(7, PLAIN, observed());
    world.write(thunk.entry, &thunk.switch(Switched::Counting));
    // A thread that has ended leaves its stack to the next.
    let all_run = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                all_run.wait();
                (0..CALLS).for_each(|_| call_counted(&thunk));
            });
        }
    });
    let counters = &world.counters()[&7];
    assert_eq!(counters.iter().sum::<u64>(), 3 * CALLS);
    assert!(counters.len() >= 3, "{counters:?}");
}

#[test]
fn calls_are_counted_where_all_counters_are_given_out() {
    let mut world = World::new(4, 0);
    let thunk = world.thunk(7, PLAIN, observed());
    world.write(thunk.entry, &thunk.switch(Switched::Counting));
    call_counted(&thunk);
    world.use_up_counters();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..1000).for_each(|_| call_counted(&thunk)));
        }
    });
    assert_eq!(world.counters()[&7], [1, 2000]);
}

/// A signal handler may fork at any instruction of a counted call.
#[test]
fn a_child_that_is_forked_during_a_counted_call_goes_on_and_counts() {
    for (has_counters, is_sampled) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new(4, 0);
        let thunk = world.thunk(7, PLAIN, observed());
        world.write(thunk.entry, &thunk.switch(Switched::Counting));
        let mut calls = 0;
        for step in 0.. {
            world.wipe_counted();
            if has_counters {
                call(&thunk);
                calls += 1;
            }
            if is_sampled {
                world.sample_in(7, 1);
            }
            let observing = OBSERVED.lock();
            let steps = wipe_before(step, world.counted(), world.code(), || {
                enter(thunk.entry, &mut Registers::distinct(1).stepped());
            });
            drop(observing);
            call(&thunk);
            calls += 2;
            let counted: u64 = world.counters()[&7].iter().sum();
            let records = kinds(&world.records());
            let entries = records.iter().filter(|(kind, _)| *kind == KIND_ENTRY);
            let sampled = entries.count() as u64;
            assert_eq!(counted + sampled, calls, "{step}");
            if step >= steps {
                // All that were interrupted after the counters had been found.
                assert!(!is_sampled || sampled > u64::from(steps) / 2, "{sampled}");
                break;
            }
        }
    }
}

#[test]
fn tail_calls_end_with_their_caller() {
    for (recorder, entry, tail, exit) in [
        (PLAIN, KIND_ENTRY, KIND_TAIL, KIND_EXIT),
        (ARGUMENTS, KIND_ENTRY_ARGS, KIND_TAIL_ARGS, KIND_EXIT_RESULT),
        (with_call_sites(PLAIN), KIND_ENTRY, KIND_TAIL, KIND_EXIT),
        (
            Recorder {
                limits_depth: true,
                ..PLAIN
            },
            KIND_ENTRY,
            KIND_TAIL,
            KIND_EXIT,
        ),
    ] {
        let mut world = World::new(4, 3);
        let last = world.thunk(3, recorder, observed());
        let middle = world.thunk(2, recorder, jump_to(last.entry));
        let first = world.thunk(1, recorder, jump_to(middle.entry));
        for _ in 0..2 {
            let mut registers = Registers::distinct(1);
            let _observing = OBSERVED.lock();
            enter(first.entry, &mut registers);
            assert_eq!(
                registers.general(),
                OBSERVED.left(&Registers::distinct(1)).general()
            );
            assert_eq!(OBSERVED.return_address(), first.after_call.unwrap());
        }
        let call_site = recorder.capture.call_sites.then_some((KIND_CALL_SITE, 1));
        let round = [(entry, 1), (tail, 2), (tail, 3), (exit, 1)];
        let round: Vec<(u32, u32)> = call_site.into_iter().chain(round).collect();
        assert_eq!(kinds(&world.records()), round.repeat(2));
    }
}

#[test]
fn calls_from_addresses_like_the_arenas_are_no_tail_calls() {
    let mut world = World::mistakable(4);
    let last = world.thunk(2, PLAIN, observed());
    let first = world.thunk(1, PLAIN, jump_to(last.entry));
    for _ in 0..2 {
        assert!(call(&last));
        let _observing = OBSERVED.lock();
        enter(first.entry, &mut Registers::distinct(1));
        assert_eq!(OBSERVED.return_address(), first.after_call.unwrap());
    }
    let round = [
        (KIND_ENTRY, 2),
        (KIND_EXIT, 2),
        (KIND_ENTRY, 1),
        (KIND_TAIL, 2),
        (KIND_EXIT, 1),
    ];
    assert_eq!(kinds(&world.records()), round.repeat(2));
}

/// The kernel may put a library where the arena has no memory yet.
#[test]
fn calls_from_a_library_in_the_place_of_an_arena_are_no_tail_calls() {
    let mut world = World::new(4, 0);
    let thunk = world.thunk(1, PLAIN, observed());
    let caller = world.code().start + world::FIRST_PIECE;
    // sub $8, %rsp; mov $entry, %rax; call *%rax; add $8, %rsp; ret
    let entry = thunk.entry.to_le_bytes();
    let around: [&[u8]; 3] = [
        &[0x48, 0x83, 0xec, 0x08, 0x48, 0xb8],
        &entry,
        &[0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3],
    ];
    world.write(caller, &around.concat());
    let _observing = OBSERVED.lock();
    enter(caller, &mut Registers::distinct(1));
    assert_eq!(kinds(&world.records()), [(KIND_ENTRY, 1), (KIND_EXIT, 1)]);
}

#[test]
fn entries_only_leave_the_return_address_alone() {
    let mut world = World::new(4, 0);
    let inner = world.thunk(2, ONLY, observed());
    let outer = world.thunk(1, PLAIN, jump_to(inner.entry));
    assert!(!call(&inner));
    let mut registers = Registers::distinct(1);
    let observing = OBSERVED.lock();
    enter(outer.entry, &mut registers);
    drop(observing);
    let expected = [
        (KIND_ONLY, 2),
        (KIND_ENTRY, 1),
        (KIND_ONLY, 2),
        (KIND_EXIT, 1),
    ];
    assert_eq!(kinds(&world.records()), expected);
}

#[test]
fn depth_is_limited_exactly() {
    for limit in [1, 2, 5, 256] {
        let mut world = World::new(4, limit);
        let recorder = Recorder {
            limits_depth: true,
            ..PLAIN
        };
        let thunk = recursive_thunk(&mut world, recorder);
        for calls in [0, limit - 1, limit, 3 * limit] {
            let before = world.records().len();
            let mut registers = Registers {
                rdi: u64::from(calls),
                ..Registers::distinct(1)
            };
            enter(thunk.entry, &mut registers);
            let depth = (calls + 1).min(limit) as usize;
            let expected = [vec![(KIND_ENTRY, 1); depth], vec![(KIND_EXIT, 1); depth]].concat();
            assert_eq!(
                kinds(&world.records()[before..]),
                expected,
                "{calls} calls, limit {limit}"
            );
        }
    }
}

/// Over many parts of a stack, and over many chunks.
#[test]
fn deep_recursion_is_recorded_whole() {
    const CALLS: u32 = 400_000;
    let deep = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
        let mut world = World::new(200, 0);
        let thunk = recursive_thunk(&mut world, PLAIN);
        for _ in 0..2 {
            let mut registers = Registers {
                rdi: u64::from(CALLS),
                ..Registers::distinct(1)
            };
            enter(thunk.entry, &mut registers);
        }
        let once = [
            vec![(KIND_ENTRY, 1); CALLS as usize + 1],
            vec![(KIND_EXIT, 1); CALLS as usize + 1],
        ]
        .concat();
        let records = world.records();
        assert!(kinds(&records) == once.repeat(2));
        assert!(records.is_sorted_by_key(|record| record.clock));
        assert_eq!(
            resyncs(&records)
                .iter()
                .filter(|reason| **reason == RESYNC_STACK)
                .count(),
            1
        );
        assert_eq!(world.lost(), 0);
    });
    deep.unwrap().join().unwrap();
}

#[test]
fn what_cannot_be_recorded_is_counted_and_called_all_the_same() {
    let mut world = World::new(1, 0);
    let thunk = world.thunk(1, PLAIN, observed());
    let calls = (CHUNK_BYTES / 16) as u64;
    for _ in 0..calls {
        call(&thunk);
    }
    let recorded = kinds(&world.records()).len() as u64;
    assert!(world.lost() > 0);
    // An entry that is lost has no exit.
    let entries = kinds(&world.records())
        .iter()
        .filter(|(kind, _)| *kind == KIND_ENTRY)
        .count() as u64;
    let exits = recorded - entries;
    assert_eq!(world.lost(), (calls - entries) + (entries - exits));
}

#[test]
fn hooks_keep_registers() {
    let mut world = World::new(4, 0);
    let hooks = [
        Stub::Jump,
        Stub::Prctl,
        Stub::Seccomp,
        Stub::SignalAction,
        Stub::Protect,
        Stub::Move,
        Stub::SystemCall,
    ]
    .map(|stub| world.hook(stub, observed()));
    for hook in hooks {
        assert!(!call(&hook));
    }
    assert_eq!(kinds(&world.records()), []);
}

#[test]
fn event_after_a_jump_says_where_it_is() {
    let mut world = World::new(4, 0);
    let thunk = world.thunk(1, PLAIN, observed());
    let jump = world.hook(Stub::Jump, observed());
    assert!(call(&thunk));
    assert!(!call(&jump));
    assert!(call(&thunk));
    assert_eq!(
        resyncs(&world.records()),
        [RESYNC_CHUNK, RESYNC_STACK, RESYNC_JUMP]
    );
}

/// As `runtime/arch/x86_64/record.S` says.
const INSTRUCTIONS_OF_A_RECORDED_CALL: u32 = 115;

#[test]
fn recorded_call_takes_the_instructions_that_are_written_down() {
    let mut world = World::new(4, 0);
    let thunk = world.thunk(1, PLAIN, observed());
    assert!(call(&thunk));
    let observing = OBSERVED.lock();
    let left_out = thunk.body..thunk.body + observed().len() as u64;
    // The first call after the clock's upper half has changed takes more, and may be one of these.
    let steps = std::array::from_fn::<_, 3, _>(|_| {
        count_steps(world.code(), left_out.clone(), || {
            enter(thunk.entry, &mut Registers::distinct(1).stepped());
        })
    });
    drop(observing);
    assert_eq!(
        steps.into_iter().min(),
        Some(INSTRUCTIONS_OF_A_RECORDED_CALL)
    );
    assert_eq!(
        kinds(&world.records()),
        [(KIND_ENTRY, 1), (KIND_EXIT, 1)].repeat(4)
    );
}
