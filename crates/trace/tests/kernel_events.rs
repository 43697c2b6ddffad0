//! Events of processors, written and read, by babeltrace2 too.

mod support;

use nopal_trace::synthetic::{STEP, Shape, write};
use nopal_trace::{KernelEvent, KernelFlags, KernelRecord, Task, TaskState, Trace};
use std::fs;
use std::process::Command;
use support::*;

fn into(clock: u64, thread: u32) -> KernelRecord {
    KernelRecord {
        clock,
        event: KernelEvent::In { process: 1, thread },
    }
}

#[test]
fn what_is_written_is_read_in_order_and_losses_are_told_where_they_were() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    // More than fits a packet.
    let records: Vec<KernelRecord> = (0..10_000).map(|number| into(BEGIN + number, 7)).collect();
    writer.system(3, &records).unwrap();
    writer.kernel_events_lost(3, 11).unwrap();
    let later = into(BEGIN + 20_000, 8);
    writer.system(3, &[later]).unwrap();
    // Its clock has gone back.
    writer.system(3, &[into(BEGIN, 9)]).unwrap();
    writer.system(0, &[into(BEGIN, 1)]).unwrap();
    writer.kernel_events_resumed(BEGIN + 25_000).unwrap();
    writer.system(3, &[into(BEGIN + 30_000, 9)]).unwrap();
    writer.flush_kernel_events().unwrap();
    writer.kernel_events_lost(0, 5).unwrap();
    writer.end_kernel_events().unwrap();
    end(&mut writer, BEGIN + 30_000);

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.damage(), []);
    let [first, third] = trace
        .processors()
        .collect::<Vec<_>>()
        .try_into()
        .ok()
        .unwrap();
    assert_eq!((first.number, third.number), (0, 3));
    let lost = |clock, events| KernelRecord {
        clock,
        event: KernelEvent::Lost { events },
    };
    let last = BEGIN + 9_999;
    let again = [lost(BEGIN + 25_000, 0), into(BEGIN + 30_000, 9)];
    let expected: Vec<KernelRecord> = records
        .into_iter()
        .chain([lost(last, 11), later, into(BEGIN + 20_000, 9)])
        .chain(again)
        .collect();
    assert_eq!(third.events().collect::<Vec<_>>(), expected);
    assert_eq!((first.lost(), third.lost()), (5, 11));
    let losses: Vec<u64> = third.packets().map(|packet| packet.lost_before()).collect();
    assert_eq!(losses.last(), Some(&11));
    assert_eq!(losses.iter().sum::<u64>(), 11);
    assert_eq!(trace.lost(), 0, "the program's events are all there");
}

#[test]
fn babeltrace2_reads_each_event() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let task = |thread: u32, priority: i32, name: &[u8; 5]| {
        let mut bytes = [0; 16];
        bytes[..5].copy_from_slice(name);
        Task {
            thread,
            priority,
            name: bytes,
        }
    };
    let wakeup = |is_new| KernelEvent::Wakeup {
        task: task(11, 115, b"balan"),
        target: 1,
        waker_process: 7,
        waker: 8,
        is_new,
        flags: Some(KernelFlags {
            flags: 4,
            preempt_count: 1,
        }),
    };
    let events = [
        KernelEvent::Switch {
            previous: task(8, 49, b"softi"),
            process: 7,
            state: TaskState(b'S'),
            next: task(11, 115, b"balan"),
            flags: None,
        },
        KernelEvent::Out {
            process: 7,
            thread: 8,
            state: TaskState::BLOCKED,
        },
        KernelEvent::In {
            process: 7,
            thread: 8,
        },
        wakeup(false),
        wakeup(true),
    ];
    let records: Vec<KernelRecord> = (BEGIN..)
        .zip(events)
        .map(|(clock, event)| KernelRecord { clock, event })
        .collect();
    writer.system(2, &records).unwrap();
    writer.end_kernel_events().unwrap();
    end(&mut writer, BEGIN + 1000);
    let output = Command::new("babeltrace2")
        .args(["--no-delta", "--clock-seconds"])
        .arg(&path)
        .output()
        .expect("babeltrace2 is missing");
    let (text, errors) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(errors, "");
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        r#"sched_switch: { cpu_id = 2, reserved = "" }, { prev_comm = "softi", prev_pid = 8, prev_prio = 49, prev_process = 7, prev_state = ( "sleeping" : container = 83 ), flags = { common_flags = 0, common_preempt_count = 0, known = 0 }, next_comm = "balan", next_pid = 11, next_prio = 115 }"#,
        r#"switch_out: { cpu_id = 2, reserved = "" }, { process = 7, pid = 8, state = ( "blocked" : container = 63 ), reserved = [ [0] = 0, [1] = 0, [2] = 0, [3] = 0, [4] = 0, [5] = 0, [6] = 0 ] }"#,
        r#"switch_in: { cpu_id = 2, reserved = "" }, { process = 7, pid = 8 }"#,
        r#"sched_wakeup: { cpu_id = 2, reserved = "" }, { comm = "balan", pid = 11, prio = 115, waker_process = 7, waker_pid = 8, target_cpu = 1, reserved = 0, flags = { common_flags = 4, common_preempt_count = 1, known = 1 } }"#,
        r#"sched_wakeup_new: { cpu_id = 2, reserved = "" }, { comm = "balan", pid = 11, prio = 115, waker_process = 7, waker_pid = 8, target_cpu = 1, reserved = 0, flags = { common_flags = 4, common_preempt_count = 1, known = 1 } }"#,
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    // The same in all packets here, and of no use in the text.
    let (before, behind) = ("checksum = ", ", reserved_behind = 0 }");
    for (line, expected) in lines.iter().zip(expected) {
        let (line, sum) = line.split_once(before).unwrap();
        let (_, fields) = sum.split_once(behind).unwrap();
        let line = format!("{line}{fields}");
        let expected = expected.replace("reserved = \"\" }", "reserved = \"\", ");
        assert!(line.ends_with(&expected), "{line}");
    }
}

#[test]
fn files_of_other_processors_and_cut_ones_are_damage_and_no_more() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let shape = Shape {
        calls_per_thread: 10,
        sleeps: 10,
        ..Shape::default()
    };
    write(&path, &shape).unwrap();
    let first = path.join("cpu-0");
    let whole = fs::read(&first).unwrap();
    fs::write(path.join("cpu-9"), &whole).unwrap();
    fs::write(&first, &whole[..whole.len() - 4]).unwrap();
    let trace = Trace::open(&path).unwrap();
    let counts: Vec<(u32, usize)> = trace
        .processors()
        .map(|processor| (processor.number, processor.events().count()))
        .collect();
    assert_eq!(counts, [(0, 0), (1, 30)]);
    let mut damage: Vec<_> = trace.damage().iter().map(|damage| damage.what).collect();
    damage.sort_unstable();
    assert_eq!(
        damage,
        [
            "a file that does not belong to this trace",
            "a packet that is cut short",
            "an end that is cut short",
            "the end of the file is missing"
        ]
    );
    assert_eq!(trace.left_out(), 2 * whole.len() as u64);
    let second = trace.processors().nth(1).unwrap();
    let clocks: Vec<u64> = second.events().map(|record| record.clock).collect();
    assert!(clocks.windows(2).all(|pair| pair[1] - pair[0] == STEP));
}

#[test]
fn an_older_trace_with_processors_may_be_replaced() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let shape = Shape {
        calls_per_thread: 10,
        sleeps: 1,
        ..Shape::default()
    };
    for _ in 0..3 {
        write(&path, &shape).unwrap();
    }
    assert_eq!(Trace::open(&path).unwrap().processors().count(), 2);
}
