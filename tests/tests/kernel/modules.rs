//! Functions and markers of modules.

use crate::used::used;
use nopal_tests::kernel::{commands, number_after, row};

#[test]
fn functions_of_modules_are_recorded_as_they_come_and_go() {
    for booted in used() {
        let name = &booted.name;
        let came = booted.said("came");
        let left = came
            .lines()
            .filter(|line| line.starts_with("#functions 0,"));
        assert_eq!(left.count(), 2, "{name}: {came}");
        let report = booted.said("came.report");
        for function in ["meet", "order"] {
            let calls = row(&report, function);
            let counts = (&calls["calls"], &calls["unfinished"]);
            assert_eq!(
                counts,
                (&50.into(), &0.into()),
                "{name}: {function}: {report}"
            );
        }
        booted.said("later");
        let counts = booted.text("later.counts");
        let expected = [
            "#functions 1, refused 0",
            "300",
            "#functions 1, refused 0",
            "500",
        ];
        assert_eq!(counts.lines().collect::<Vec<_>>(), expected, "{name}");
    }
}

/// If the module left something behind, a module that comes to the same place would be recorded.
#[test]
fn functions_of_a_module_that_goes_while_they_are_recorded_are_let_go() {
    for booted in used() {
        let state = booted.text("gone.state");
        let hits = number_after(&state, "#tracehits ");
        let entries = number_after(&state, "#traceinhits ");
        assert!(
            entries > 0 && hits == 2 * entries,
            "{}: {state}",
            booted.name
        );
        assert_eq!(
            number_after(&state, "#functions "),
            0,
            "{}: {state}",
            booted.name
        );
        assert_eq!(state, booted.text("gone.again"), "{}", booted.name);
    }
}

#[test]
fn markers_of_modules_are_recorded_with_their_values() {
    for booted in used() {
        let listed = booted.said("listed");
        let met = listed.lines().find(|line| line.starts_with("test_met "));
        let met: Vec<&str> = met.expect("it is listed").split_whitespace().collect();
        assert_eq!(
            met[1..4],
            ["nopal_markers", "\"number=%u", "device=%s\""],
            "{}",
            booted.name
        );
        booted.said("begun");
        let begun = booted.said("begun.replay");
        let text = "/* test_begun module=\"nopal_markers\" */";
        assert!(begun.contains(text), "{}: {begun}", booted.name);
        booted.said("marked");
        let replay = booted.said("marked.replay");
        let shown = |text: &str| replay.lines().filter(|line| line.contains(text)).count();
        assert_eq!(shown("be_typed() {"), 1, "{}: {replay}", booted.name);
        for values in [
            "/* test_typed byte=-1 wide=18446744073709551615 state=busy bytes=<01 02 03> null=\"(null)\" unmapped=\"(efault)\" */",
            "/* test_lone */",
            "/* test_met number=0 device=\"eth0\" */",
            "/* test_met number=4999 device=\"eth0\" */",
        ] {
            assert_eq!(shown(values), 1, "{}: {values}\n{replay}", booted.name);
        }
        assert_eq!(shown("/* test_met "), 5000, "{}", booted.name);
        // An interrupt within another task is not recorded.
        let interrupted = shown("/* test_interrupted processor=");
        assert!((1..=2).contains(&interrupted), "{}", booted.name);
        let lines: Vec<&str> = replay.lines().collect();
        let last = lines.iter().position(|line| line.contains("number=4999"));
        let after = lines[last.expect("it is shown") + 1];
        assert!(
            after.contains("} /* proc_reg_write */"),
            "{}: {after}",
            booted.name
        );
    }
}

#[test]
fn markers_are_switched_by_name_also_in_modules_that_come_later() {
    for booted in used() {
        booted.said("marks");
        let state = booted.text("marks.read");
        let expected = ["mark test_* on", "mark test_met off", "mark test_b* off"];
        assert_eq!(commands(&state)[1..4], expected, "{}: {state}", booted.name);
        let again = booted.text("marks.again");
        assert_eq!(commands(&state), commands(&again), "{}", booted.name);
        let count = |file: &str| number_after(&booted.text(file), "# test_*: ");
        assert_eq!(
            ["marks.read", "marks.gone", "marks.back"].map(count),
            [7, 0, 7],
            "{}",
            booted.name
        );
    }
}

#[test]
fn functions_of_modules_are_connected_to_markers() {
    for booted in used() {
        booted.said("connected");
        let keeps = booted.text("connected_keeps.status");
        assert_ne!(keeps.trim(), "0", "{}: the module is in use", booted.name);
        for name in ["connected_ends", "connected_again", "connected_alone"] {
            booted.said(name);
        }
        let begin = "unknown -2, other format -22, connected 0, again -17";
        let log = booted.text("connected.log");
        let expected = [
            begin,
            "disconnected 0, again -2, 100 calls, sum 4950",
            begin,
            "disconnected -2, again -2, 0 calls, sum 0",
        ];
        assert_eq!(log.lines().collect::<Vec<_>>(), expected, "{}", booted.name);
    }
}
