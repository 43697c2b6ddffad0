//! The module in the kernels that Debian ships, each in a guest of two processors, and in one whose instructions are
//! counted. The guests run once for all of these tests.

mod beside;
mod events;
mod latency;
mod losses;
mod modules;
mod used;

use nopal_tests::kernel::{Booted, number_after};
use nopal_tests::kernel_cost::{CALLS, Numbers, TURNS, boot_cost, costs};
use std::sync::OnceLock;

/// Measures calls of the kernel, pairs of cli and sti, a marker, and the stops of all processors by which all functions are
/// switched.
const COST: &str = "
tell trace __do_sys_getppid new asked
cost calls calls 'tell trace asked on' 'tell trace asked off'
cost sections sections 'tell tracer irqsoff on' 'tell tracer irqsoff off'
cost markers marked 'tell mark test_measured on' 'tell mark test_measured off'
tell trace *@kernel new all
tell trace all on
tell trace all off
cat /dev/nopal >/out/state
";

fn cost() -> &'static [Booted] {
    static BOOTED: OnceLock<Vec<Booted>> = OnceLock::new();
    BOOTED.get_or_init(|| boot_cost(COST, &[]))
}

#[test]
fn a_call_costs_few_instructions_and_nothing_when_it_is_off() {
    for booted in cost() {
        let costs: Vec<Numbers> = costs(booted)
            .into_iter()
            .map(|cost| {
                let cannot = |why| panic!("{}: {}: {why}", booted.name, cost.what);
                cost.numbers.unwrap_or_else(cannot)
            })
            .collect();
        let [calls, sections, markers] = &costs[..] else {
            panic!("{}: {}", booted.name, booted.text("costs"));
        };
        for (cost, turns, most) in [(calls, CALLS, 70.0), (sections, TURNS, 40.0)] {
            let added = cost.added(turns);
            assert!(
                added > 0.0 && added <= most,
                "{}: {added}, at most {most}",
                booted.name
            );
        }
        for cost in &costs {
            assert_eq!(cost.before, cost.after, "{}", booted.name);
        }
        // The compiler of 7.3 puts an address before the loop.
        let before = u64::from(!booted.name.starts_with("6."));
        assert_eq!(markers.before, TURNS + before, "{}", booted.name);
        assert!(markers.added(TURNS) > 1.0, "{}", booted.name);
    }
}

/// A nanosecond of the guest is an instruction.
#[test]
fn all_functions_are_switched_without_a_long_stop() {
    for booted in cost() {
        let state = booted.text("state");
        let of_all = state.rfind("#functions ").unwrap_or_default();
        assert!(
            number_after(&state[of_all..], "#functions ") > 30_000,
            "{}: {state}",
            booted.name
        );
        let stop = number_after(&state, "# longest stop of all processors: ");
        assert!(
            (1..=20_000_000).contains(&stop),
            "{}: {stop} ns",
            booted.name
        );
    }
}
