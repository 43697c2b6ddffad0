//! Records that are lost: each is counted.

use crate::used::used;
use nopal_tests::kernel::number_after;

#[test]
fn each_record_that_is_lost_is_counted_with_its_processor() {
    for booted in used() {
        let state = booted.text("lost.state");
        let hits = number_after(&state, "#tracehits ");
        let lost = number_after(&state, "# lost ");
        let new = lost - number_after(&booted.text("lost.before"), "# lost ");
        assert!(hits <= 1 << 16 && new > 0, "{}: {state}", booted.name);
        assert_eq!(hits + new, 2 * 80_000, "{}: {state}", booted.name);
        let of_each = [0, 1].map(|processor| {
            let line = format!("# lost on processor {processor}: ");
            state.contains(&line).then(|| number_after(&state, &line))
        });
        let sum: u64 = of_each.iter().flatten().sum();
        assert_eq!(sum, lost, "{}: {state}", booted.name);
        let lines: u64 = booted.text("lost.lines").trim().parse().unwrap();
        assert_eq!(lines, hits, "{}: {state}", booted.name);
    }
}

/// What was lost before the recording is not among what it lost.
#[test]
fn a_recording_tells_exactly_what_the_kernel_lost_meanwhile() {
    for booted in used() {
        let number = |text: &str, before: &str| -> u64 {
            let begin = text.split(before).next().unwrap_or_default();
            let word = begin.rsplit(' ').next().unwrap_or_default();
            let number = word.replace(',', "").parse();
            number.unwrap_or_else(|_| panic!("{}: no number {before}: {text}", booted.name))
        };
        let lost = |name: &str| {
            let info = booted.said(name);
            let line = info.lines().find(|line| line.starts_with("lost "));
            number(line.unwrap_or_else(|| panic!("{info}")), " event")
        };
        let before = booted.said("lost_before");
        assert!(!before.contains("lost"), "{}: {before}", booted.name);
        assert_eq!(lost("lost_before.info"), 0, "{}", booted.name);
        let said = booted.said("lost");
        let told = number(&said, " kernel event");
        assert!(told > 0, "{}: {said}", booted.name);
        assert_eq!(lost("lost.info"), told, "{}: {said}", booted.name);
        // The program's own are the begin and the end of `main`.
        let records = number(&said, " events of ") - 2;
        assert_eq!(records + told, 600_000, "{}: {said}", booted.name);
    }
}

#[test]
fn functions_that_interrupts_that_cannot_be_masked_call_are_recorded_or_counted_as_lost() {
    for booted in used() {
        let numbers = |name: String| -> Vec<u64> {
            let text = booted.text(&name);
            let numbers = text.lines().map(|line| line.trim().parse());
            numbers.map(|number| number.expect("a number")).collect()
        };
        const ASKED: u64 = 50_000;
        for size in [21, 15] {
            let state = booted.text(&format!("nmi.state.{size}"));
            let came = numbers(format!("nmi.came.{size}"))[0];
            assert!(came >= 8, "{}: {came}", booted.name);
            let hits = number_after(&state, "#tracehits ");
            let all = number_after(&state, "#slothits ");
            assert_eq!(all, 2 * (ASKED + came), "{}: {state}", booted.name);
            let told = numbers(format!("nmi.records.{size}"));
            let sum: u64 = told.iter().sum();
            assert_eq!(sum, hits, "{}: {told:?}: {state}", booted.name);
            if size == 21 {
                assert_eq!(told, [came, ASKED, ASKED, came], "{}", booted.name);
            } else {
                assert!(hits < all, "{}: {state}", booted.name);
            }
        }
    }
}
