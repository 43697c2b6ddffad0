//! The scheduler's tracepoints as markers, and the tracers that show them.

use crate::used::used;
use nopal_tests::kernel::number_after;

/// The processor and the flags of a row, and its text.
fn row_of(row: &str) -> Option<(u32, &str, &str)> {
    let (head, text) = row.split_once(": ")?;
    let flags = head.split_whitespace().rev().nth(1)?;
    let digits = flags.find(|letter: char| !letter.is_ascii_digit())?;
    let (processor, flags) = flags.split_at(digits);
    Some((processor.parse().ok()?, flags, text))
}

/// Of a switch: the processor, the flags, the task that leaves, and the task that comes.
fn switch_of(row: &str) -> Option<(u32, &str, u32, u32)> {
    let (processor, flags, text) = row_of(row)?;
    let (left, next) = text.split_once(" --> ")?;
    let number = |text: &str| text.split(':').next()?.parse().ok();
    Some((processor, flags, number(left)?, number(next)?))
}

#[test]
fn each_switch_of_tasks_follows_the_one_before() {
    for booted in used() {
        let text = booted.text("switches");
        assert!(
            text.starts_with("sched_switch latency trace v1.1.5 on "),
            "{}: {text}",
            booted.name
        );
        let rows: Vec<_> = text.lines().filter_map(switch_of).collect();
        let count = format!("#{0}/{0}, CPU#-", rows.len());
        assert!(text.contains(&count), "{}: {count}: {text}", booted.name);
        for processor in 0..2 {
            let here: Vec<_> = rows.iter().filter(|row| row.0 == processor).collect();
            for pair in here.windows(2) {
                assert_eq!(pair[0].3, pair[1].2, "{}: {text}", booted.name);
            }
        }
        for (_, flags, ..) in &rows {
            let is_known = flags.starts_with('d') && !flags.ends_with(['-', '.']);
            assert!(is_known, "{}: {flags}: {text}", booted.name);
        }
        let to_work = text.lines().filter(|row| row.ends_with(":120 kernel_work"));
        assert!(to_work.count() >= 30, "{}: {text}", booted.name);
        let named = text
            .lines()
            .filter(|row| row.starts_with("kernel_w-") && row.contains(":120:S --> "));
        assert!(named.count() >= 10, "{}: {text}", booted.name);
    }
}

#[test]
fn wakeups_and_markers_of_modules_are_events_with_their_flags() {
    for booted in used() {
        let text = booted.text("events");
        assert!(
            text.starts_with("events latency trace v1.1.5 on "),
            "{}: {text}",
            booted.name
        );
        // A timer wakes `usleep`, which has the name of the shell's file.
        let woken = text.lines().filter_map(row_of).filter(|(_, flags, text)| {
            let is_it = text.ends_with(":120 exe") || text.ends_with(":120 usleep");
            is_it && text.contains(" + ") && flags.contains(['h', 'H'])
        });
        assert!(woken.count() >= 1, "{}: {text}", booted.name);
        for number in 0..3 {
            let end = format!(": test_met number={number} device=\"eth0\"");
            let rows = text
                .lines()
                .filter(|row| row.ends_with(&end) && row.contains("----"));
            assert_eq!(rows.count(), 1, "{}: {text}", booted.name);
        }
        let state = "tracer sched_switch on\ntracer events on\n";
        assert_eq!(
            booted.text("events.state"),
            state.repeat(2),
            "{}",
            booted.name
        );
        let refused = booted.text("events.refused");
        assert!(
            refused.contains(" --> ") && !refused.contains("test_met"),
            "{}: {refused}",
            booted.name
        );
        let off = booted.text("events.off");
        assert!(
            off.contains(" latency: 0 us, #0/0, "),
            "{}: {off}",
            booted.name
        );
    }
}

#[test]
fn switches_of_tasks_are_recorded_in_the_calls_of_the_task_that_leaves() {
    for booted in used() {
        booted.said("switched");
        let replay = booted.said("switched.replay");
        let mut switches = 0;
        for line in replay
            .lines()
            .filter(|line| line.contains("/* sched_switch "))
        {
            let thread = line.split_whitespace().nth(1).unwrap_or_default();
            let of_thread = format!(" prev_pid={thread} ");
            assert!(line.contains(&of_thread), "{}: {line}", booted.name);
            switches += usize::from(line.contains("prev_comm=\"kernel_work\""));
        }
        assert!(switches >= 20, "{}: {replay}", booted.name);
        let wakes = "/* sched_wakeup comm=\"kernel_work\" pid=";
        assert!(replay.contains(wakes), "{}: {replay}", booted.name);
    }
}

#[test]
fn the_newest_events_are_shown_in_order_of_time() {
    for booted in used() {
        let text = booted.text("events.many");
        let all = number_after(&text, "#2000/");
        assert!(all > 2000, "{}: {text}", booted.name);
        let times: Vec<u64> = text
            .lines()
            .filter(|row| row_of(row).is_some())
            .filter_map(|row| row.split_once("us")?.0.rsplit(' ').next()?.parse().ok())
            .collect();
        assert_eq!(times.len(), 2000, "{}: {text}", booted.name);
        assert!(times.is_sorted(), "{}: {text}", booted.name);
        let newest = text.lines().rev().take(100);
        let met = newest.filter(|row| row.contains(": test_met number=0 "));
        assert_eq!(met.count(), 1, "{}: {text}", booted.name);
    }
}

#[test]
fn a_record_that_is_never_stored_keeps_no_newer_events_out_of_the_buffer() {
    for booted in used() {
        booted.said("unfinished");
        let text = booted.text("events.unfinished");
        let newest = text.lines().rev().take(100);
        let met = newest.filter(|row| row.contains(": test_met number=0 "));
        assert_eq!(met.count(), 1, "{}: {text}", booted.name);
    }
}
