//! Latency tracers.

use crate::beside::beside;
use nopal_tests::kernel::number_after;
use std::collections::HashMap;

const SECTION_KINDS: [&str; 8] = [
    "lock_with_irqs_off",
    "switch_irqs_off",
    "nest_irqs_off",
    "lock_with_preemption_off",
    "switch_preemption_off",
    "nest_preemption_off",
    "lock_with_softirqs_off",
    "overlap",
];

/// The tracers' lines for sections of known lengths. A line of a processor that names the section's function covers it:
/// at least its length, and at most its maker's measured time, as the machine may stand still. If no line names it, a
/// line shows a section as long.
#[test]
fn latency_tracers_tell_sections_by_place_and_length() {
    for booted in beside() {
        for (tracer, kinds) in [
            ("irqsoff", &SECTION_KINDS[..3]),
            ("preemptoff", &SECTION_KINDS[3..7]),
            ("preemptirqsoff", &SECTION_KINDS[..]),
        ] {
            let text = booted.text(tracer);
            let mut shown = HashMap::new();
            for case in text.split("case ").skip(1) {
                let words: Vec<&str> = case.lines().next().unwrap_or_default().split(' ').collect();
                let [_, kind, length, took] = words[..] else {
                    panic!("{}: {case}", booted.name);
                };
                let [length, took] =
                    [length, took].map(|word| word.parse::<u64>().expect("a number"));
                let tolerance = (length / 20).max(50);
                let lines = case
                    .lines()
                    .filter(|line| line.starts_with("#  processor "));
                let lines: Vec<(u64, bool)> = lines
                    .map(|line| {
                        let places = line
                            .split_once(" from ")
                            .and_then(|(_, places)| places.split_once(" to "));
                        let is_it =
                            places.is_some_and(|(from, _)| from.contains(&format!("{kind}+")));
                        (number_after(line, ": "), is_it)
                    })
                    .collect();
                let is_hidden = lines
                    .iter()
                    .any(|(lasted, is_it)| !is_it && *lasted >= length - tolerance);
                let mut own = lines.iter().filter(|(_, is_it)| *is_it).peekable();
                assert!(own.peek().is_some() || is_hidden, "{}: {case}", booted.name);
                for (lasted, _) in own {
                    assert!(
                        (length - tolerance..=took + tolerance).contains(lasted),
                        "{}: {case}",
                        booted.name
                    );
                    *shown.entry((kind, length)).or_default() += 1;
                }
            }
            for kind in kinds {
                for length in [200, 2000, 5000] {
                    let times = shown.get(&(*kind, length));
                    assert_eq!(
                        times,
                        Some(&2),
                        "{}: {tracer}: {kind} {length}: {text}",
                        booted.name
                    );
                }
            }
        }
    }
}

#[test]
fn sites_of_modules_that_come_later_are_seen_and_the_others_are_named() {
    for booted in beside() {
        let [with, without, again] = ["with", "without", "again"].map(|when| {
            let sites = booted.text(&format!("sites.{when}"));
            let unseen = sites
                .lines()
                .filter(|line| line.starts_with("# not seen, "));
            let numbers = unseen.map(|line| {
                let (_, rest) = line[12..].split_once(": ").expect("a reason");
                let (number, places) = rest.split_once(": ").expect("a number");
                let number: u64 = number.parse().expect("a number");
                let places = places
                    .split(' ')
                    .filter(|place| *place != "..." && !place.starts_with('['));
                assert_eq!(
                    places.count() as u64,
                    number.min(64),
                    "{}: {line}",
                    booted.name
                );
                number
            });
            let count = number_after(&sites, "ends of interrupts; ");
            assert_eq!(count, numbers.sum::<u64>(), "{}: {sites}", booted.name);
            assert!(count > 0, "{}: {sites}", booted.name);
            let seen = ["# sites: ", " cli, ", " sti, ", " off, ", " on, "];
            seen.map(|word| number_after(&sites, word))
        });
        assert_eq!(with, again, "{}", booted.name);
        for (of_all, without) in with.iter().zip(without).take(4) {
            assert!(*of_all > without, "{}: {with:?}", booted.name);
        }
    }
}

#[test]
fn cases_below_the_threshold_are_counted_and_not_kept() {
    for booted in beside() {
        let text = booted.text("thresholds");
        let lines: Vec<&str> = text.lines().collect();
        let [high, none, low, some, all] = lines[..] else {
            panic!("{}: {text}", booted.name);
        };
        assert_eq!([high, low], ["threshold 4000000000", "threshold 1000"]);
        assert!(
            none.ends_with(", 0 above the threshold"),
            "{}: {none}",
            booted.name
        );
        let above = number_after(some, " cases, ");
        assert!(
            above > 0 && number_after(some, " worst ") >= 4_750,
            "{}: {some}",
            booted.name
        );
        assert!(
            !all.contains("threshold") && all.contains(" worst "),
            "{}: {all}",
            booted.name
        );
    }
}

#[test]
fn a_tracer_that_is_reset_forgets_its_worst_case_and_keeps_its_histogram() {
    for booted in beside() {
        let text = booted.text("reset.cases");
        let cases: Vec<u64> = text
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        assert!(
            cases[0] > 0 && cases[1] >= cases[0],
            "{}: {text}",
            booted.name
        );
        let none = booted.text("latency.none");
        assert!(
            none.contains("there is no tracer none"),
            "{}: {none}",
            booted.name
        );
        let chosen = booted.said("latency.chosen");
        assert!(
            chosen.starts_with("irqsoff latency trace "),
            "{}: {chosen}",
            booted.name
        );
    }
}

/// The count of faults of a memory cgroup is a section, too, up to 6.12; in 7.3 it keeps interrupts on.
#[test]
fn page_faults_begin_sections_with_interrupts_off() {
    for booted in beside() {
        let text = booted.text("faults");
        let cases: Vec<u64> = text
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        let sections = if booted.name.starts_with("6.") { 2 } else { 1 };
        assert!(
            cases[1] - cases[0] >= sections * 20_000,
            "{}: {text}",
            booted.name
        );
    }
}

#[test]
fn the_histogram_of_a_tracer_counts_all_cases_by_their_length() {
    for booted in beside() {
        let text = booted.text("histogram");
        let lines: Vec<&str> = text.lines().collect();
        let [before, _, _, _, _, _, rows @ .., after] = &lines[..] else {
            panic!("{}: {text}", booted.name);
        };
        let rows: Vec<(u64, u64)> = rows
            .iter()
            .map(|row| {
                let (microseconds, cases) = row.trim().split_once(' ').expect("two numbers");
                let number = |word: &str| word.trim().parse().expect("a number");
                (number(microseconds), number(cases))
            })
            .collect();
        let all = number_after(&text, "#Total samples: ");
        let sum: u64 = rows.iter().map(|(_, cases)| cases).sum();
        assert_eq!(sum, all, "{}: {text}", booted.name);
        let [before, after] = [before, after].map(|cases| cases.parse::<u64>().expect("a number"));
        assert!((before..=after).contains(&all), "{}: {text}", booted.name);
        let is_ordered = rows.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(is_ordered, "{}: {text}", booted.name);
        // Sections of 5 ms, of which a bucket may begin 1/32 below.
        let long = rows
            .iter()
            .filter(|(microseconds, _)| *microseconds >= 4_600);
        let long: u64 = long.map(|(_, cases)| cases).sum();
        assert!(long >= 8, "{}: {text}", booted.name);
        let last = rows.last().map_or(0, |(microseconds, _)| *microseconds);
        let most = number_after(&text, "#Maximum latency: ");
        assert!(most >= last, "{}: {text}", booted.name);
    }
}

/// The flags of the last row are those of the section's end.
#[test]
fn latency_trace_shows_the_flags_of_interrupts_and_preemption() {
    for booted in beside() {
        for (name, expected) in [
            ("latency.functions", "d.."),
            ("flags.within_softirq", "ds."),
            ("flags.switch_preemption_off", "..1"),
            ("flags.within_interrupt", "dh"),
            ("flags.within_interrupt_of_softirq", "dH"),
        ] {
            let text = booted.text(name);
            let last = text.lines().last().unwrap_or_default();
            let flags = last.split_whitespace().nth(1).unwrap_or_default();
            let flags = flags.trim_start_matches(char::is_numeric);
            // The second one is for a switch of tasks that is due. Preemption may be off where an interrupt comes.
            let shown: String = flags
                .chars()
                .enumerate()
                .filter(|(at, _)| *at != 1)
                .map(|(_, flag)| flag)
                .take(expected.len())
                .collect();
            assert_eq!(shown, expected, "{}: {name}: {text}", booted.name);
        }
    }
}

#[test]
fn latency_trace_shows_the_longest_section() {
    for booted in beside() {
        let text = booted.text("latency_trace");
        assert!(
            text.starts_with("preemptirqsoff latency trace v1.1.5 on "),
            "{text}"
        );
        for line in [
            " => started at: ",
            " => ended at:   ",
            "  cmd     pid ||||| time  |   caller",
        ] {
            assert!(text.contains(line), "{}: {text}", booted.name);
        }
        assert!(
            number_after(&text, " latency: ") >= 4_750,
            "{}: {text}",
            booted.name
        );
    }
}

#[test]
fn latency_trace_shows_the_functions_that_ran_meanwhile() {
    for booted in beside() {
        let text = booted.text("latency.functions");
        let rows: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.contains("0us"))
            .collect();
        let begins = rows
            .first()
            .is_some_and(|row| row.contains("nest_irqs_off+"));
        let ends = rows
            .last()
            .is_some_and(|row| row.contains("nest_irqs_off+"));
        assert!(begins && ends, "{}: {text}", booted.name);
        let waits = rows
            .iter()
            .filter(|row| row.ends_with("us!: wait_for [nopal_sections] (-)"));
        assert_eq!(waits.count(), 3, "{}: {text}", booted.name);
        let count = format!("#{0}/{0}, CPU#", rows.len());
        assert!(text.contains(&count), "{}: {text}", booted.name);
        let verbose = booted.text("latency.verbose");
        let row = format!(" {:08x} [", rows.len() - 1);
        let last = verbose.lines().last().unwrap_or_default();
        assert!(
            last.contains(&row)
                && last.contains("ms (+0.000ms): nest_irqs_off+")
                && last.contains(" <ffffffff"),
            "{}: {verbose}",
            booted.name
        );
        assert!(
            verbose.contains("ms): wait_for [nopal_sections] <ffffffff"),
            "{}: {verbose}",
            booted.name
        );
        assert_ne!(
            booted.text("latency.refused.status").trim(),
            "0",
            "{}",
            booted.name
        );
    }
}

#[test]
fn each_wakeup_of_the_most_urgent_task_is_a_case() {
    for booted in beside() {
        let wakeup = booted.text("wakeup");
        let cases = number_after(&wakeup, "# wakeup: ");
        let woken: u64 = booted.text("woken").trim().parse().expect("a number");
        assert!(
            (50..=woken).contains(&cases),
            "{}: {woken} woken: {wakeup}",
            booted.name
        );
        assert!(
            wakeup.contains("# wakeup: 0 not followed for want of room, 0 never ran"),
            "{}: {wakeup}",
            booted.name
        );
    }
}

/// cyclictest has another thread as well, and a thread that wakes before it sleeps waits for no processor.
#[test]
fn wakeups_of_cyclictest_are_cases() {
    for booted in beside() {
        booted.said("cyclictest");
        let state = booted.text("cyclictest.state");
        let before = booted.text("cyclictest.before");
        let [before, after] = [&before, &state].map(|state| number_after(state, "# wakeup: "));
        let cases = after - before;
        assert!(cases >= 200, "{}: {state}", booted.name);
        assert!(
            state.contains(" us of cyclictest-"),
            "{}: {state}",
            booted.name
        );
    }
}
