//! Loads of which the best choice is known.

use super::policy::{JUMPS, Load, Look, Policy, State};
use nopal_trace::synthetic::Random;
use std::collections::HashMap;

/// Seconds that the recording of a call takes.
const CALL: f64 = 25e-9;
const LOOK: f64 = 0.1;

/// A function of a program: calls in a second of the program's own processor time, and nanoseconds of each.
#[derive(Clone, Copy)]
struct Function {
    calls: f64,
    worth: f64,
    is_named: bool,
}

fn function(calls: f64, worth: f64) -> Function {
    let is_named = false;
    Function {
        calls,
        worth,
        is_named,
    }
}

/// A program that a policy watches, on one processor.
struct World {
    policy: Policy,
    functions: Vec<Function>,
    now: f64,
    /// Part of the time that it runs.
    load: f64,
    /// From timed to off, and back.
    changes: HashMap<u32, u32>,
    pauses: u32,
    /// Processor time of the program itself, and of tracing.
    own: f64,
    added: f64,
}

impl World {
    fn new(budget: f64, functions: &[Function]) -> World {
        World {
            policy: Policy::new(budget),
            functions: functions.to_vec(),
            now: 0.0,
            load: 1.0,
            changes: HashMap::new(),
            pauses: 0,
            own: 0.0,
            added: 0.0,
        }
    }

    fn states(&self) -> HashMap<u32, State> {
        self.policy.off().collect()
    }

    /// What tracing adds to a second of the program.
    fn cost(&self) -> f64 {
        let states = self.states();
        let each = (0u32..).zip(&self.functions).map(|(site, function)| {
            let call = match states.get(&site) {
                None => CALL,
                Some(State::Switched) => CALL * JUMPS,
                _ => 0.0,
            };
            call * function.calls
        });
        each.sum()
    }

    /// A look, after a time in which calls vary by so much.
    fn look(&mut self, noise: &mut dyn FnMut() -> f64) {
        let states = self.states();
        // The program gets done what tracing leaves room for.
        let used = LOOK * self.load;
        let own = used / (1.0 + self.cost());
        let mut loads = Vec::new();
        let mut recorded = 0.0;
        for (site, function) in (0u32..).zip(&self.functions) {
            let calls = function.calls * own * noise();
            if !states.contains_key(&site) && calls >= 1.0 {
                recorded += calls * CALL;
                loads.push(Load {
                    site,
                    cost: calls * CALL,
                    worth: Some(function.worth),
                    may_be_off: !function.is_named,
                });
            }
        }
        self.now += LOOK;
        self.own += used - recorded;
        self.added += self.cost() * own;
        let loads = &loads;
        let now = self.now;
        self.policy.look(&Look { now, used, loads });
        let after = self.states();
        let mut has_paused = false;
        for site in 0..self.functions.len() as u32 {
            let state =
                |states: &HashMap<u32, State>| states.get(&site).copied().unwrap_or(State::Timed);
            let (was, is) = (state(&states), state(&after));
            if was != is {
                let is_told = [was, is].contains(&State::Timed);
                *self.changes.entry(site).or_default() += u32::from(is_told);
                has_paused |= [was, is].contains(&State::Removed);
            }
        }
        self.pauses += u32::from(has_paused);
        if has_paused {
            self.policy.paused(self.now, 0.002);
        }
    }

    fn run(&mut self, seconds: f64) {
        self.run_with(seconds, &mut || 1.0);
    }

    fn run_with(&mut self, seconds: f64, noise: &mut dyn FnMut() -> f64) {
        let end = self.now + seconds;
        while self.now < end - LOOK / 2.0 {
            self.look(noise);
        }
    }

    /// What was added per second of the program since this was asked last.
    fn added(&mut self) -> f64 {
        let added = self.added / self.own;
        (self.own, self.added) = (0.0, 0.0);
        added
    }

    fn all_changes(&mut self) -> u32 {
        std::mem::take(&mut self.changes).into_values().sum()
    }
}

fn random() -> Random {
    let seed = std::env::var("NOPAL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("NOPAL_SEED={seed}");
    Random::new(seed)
}

#[test]
fn a_hot_tiny_function_goes_and_slow_ones_stay() {
    let mut world = World::new(
        0.05,
        &[
            function(2e7, 10.0),
            function(1000.0, 500_000.0),
            function(200_000.0, 900.0),
        ],
    );
    world.run(3.0);
    assert_eq!(world.states().keys().collect::<Vec<_>>(), [&0]);
    world.all_changes();
    world.added();
    world.run(300.0);
    assert!(world.added() <= 0.05);
    // Tried again, less and less often.
    let changes = world.all_changes();
    assert!(changes <= 18, "{changes}");
}

/// Three tiny functions that the same policy has off, from cold and as another session ended.
#[test]
fn a_session_begins_within_the_budget_where_another_one_ended() {
    let functions = [
        function(2e7, 10.0),
        function(1e7, 20.0),
        function(5e6, 15.0),
        function(1000.0, 500_000.0),
    ];
    let mut cold = World::new(0.05, &functions);
    cold.run(1.0);
    let first = cold.added();
    cold.run(20.0);
    let mut again = World::new(0.05, &functions);
    for (number, kept) in cold.policy.kept() {
        again.policy.begin_off(number, kept);
    }
    assert_eq!(again.states().len(), 3);
    again.run(1.0);
    let added = again.added();
    assert!(added < 0.05 && added < first, "{added}, {first}");
    assert!(!again.states().contains_key(&3));
    // What costs less by now is recorded again.
    again.functions[1].calls = 1000.0;
    again.run(300.0);
    assert!(!again.states().contains_key(&1));
    assert!(again.states().contains_key(&0));
}

#[test]
fn of_equal_cost_what_tells_least_goes() {
    let mut world = World::new(
        0.05,
        &[
            function(1e6, 900.0),
            function(1e6, 20.0),
            function(1e6, 300.0),
        ],
    );
    world.run(1.0);
    let mut off: Vec<u32> = world.states().into_keys().collect();
    off.sort_unstable();
    assert_eq!(off, [1, 2]);
}

#[test]
fn what_is_within_the_budget_is_left_alone() {
    let mut world = World::new(0.05, &[function(1e6, 20.0), function(1e5, 20.0)]);
    world.run(60.0);
    assert_eq!((world.all_changes(), world.policy.off().count()), (0, 0));
}

#[test]
fn random_loads_are_held_with_nearly_as_many_timed_as_can_be() {
    let mut random = random();
    for round in 0..9 {
        let functions: Vec<Function> = (0..200)
            .map(|_| {
                let calls = 10f64.powf(random.below(75) as f64 / 10.0);
                let share = random.below(900) as f64 / 1000.0 + 0.05;
                function(calls, (share * 1e9 / calls).min(1e5))
            })
            .collect();
        let budget = [0.01, 0.05, 0.2][round % 3];
        let mut world = World::new(budget, &functions);
        world.run(30.0);
        world.added();
        world.run(60.0);
        let added = world.added();
        assert!(added <= budget, "round {round}: {added} of {budget}");
        // The most that fit, by their costs alone, into the part that is used at least.
        let mut costs: Vec<f64> = functions.iter().map(|one| one.calls * CALL).collect();
        costs.sort_by(f64::total_cmp);
        let mut left = budget * 0.5;
        let best = costs.iter().take_while(|cost| {
            left -= **cost;
            left >= 0.0
        });
        let (best, timed) = (best.count(), 200 - world.policy.off().count());
        assert!(
            timed as f64 >= best as f64 * 0.95,
            "round {round}: {timed} of {best}"
        );
    }
}

#[test]
fn a_step_in_load_is_held_within_half_a_second() {
    let functions: Vec<Function> = (1..100)
        .map(|at| function(1e5 * f64::from(at), 50.0))
        .collect();
    let idle: Vec<Function> = functions
        .iter()
        .map(|one| function(one.calls / 1e4, 50.0))
        .collect();
    let mut world = World::new(0.05, &idle);
    world.load = 0.05;
    world.run(20.0);
    assert_eq!(world.policy.off().count(), 0);
    world.functions = functions;
    world.load = 1.0;
    world.run(0.4);
    assert!(world.cost() - jumps(&world) <= 0.05);
    world.run(1.5);
    assert!(world.cost() <= 0.05, "with the jumps of those that are off");
}

fn jumps(world: &World) -> f64 {
    let states = world.states();
    let switched = states
        .iter()
        .filter(|(_, state)| **state == State::Switched);
    let calls = switched.map(|(site, _)| world.functions[*site as usize].calls);
    calls.sum::<f64>() * CALL * JUMPS
}

#[test]
fn noise_makes_nothing_go_to_and_fro() {
    let mut random = random();
    let functions: Vec<Function> = (1..50)
        .map(|at| function(3e4 * f64::from(at), 50.0))
        .collect();
    let mut world = World::new(0.05, &functions);
    let mut noise = || 0.7 + random.below(600) as f64 / 1000.0;
    world.run_with(120.0, &mut noise);
    world.all_changes();
    world.run_with(600.0, &mut noise);
    // In ten minutes: none is tried more than once a minute.
    let most = world.changes.values().max().copied().unwrap_or(0);
    assert!(most <= 20, "{:?}", world.changes);
    assert!(world.added() <= 0.05);
}

#[test]
fn a_load_that_comes_and_goes_costs_few_changes() {
    let calm = [function(1e5, 50.0), function(100.0, 1e5)];
    let busy = [function(3e7, 50.0), function(100.0, 1e5)];
    let mut world = World::new(0.05, &calm);
    for _ in 0..200 {
        world.functions = busy.to_vec();
        world.run(1.5);
        world.functions = calm.to_vec();
        world.run(1.5);
    }
    let changes = world.all_changes();
    assert!(changes <= 24, "{changes}");
    assert_eq!(world.states().get(&1), None);
}

#[test]
fn what_is_called_less_is_timed_again() {
    let mut world = World::new(0.05, &[function(2e7, 10.0), function(1000.0, 50_000.0)]);
    world.run(60.0);
    assert!(world.states().contains_key(&0));
    world.functions[0].calls = 1000.0;
    world.run(130.0);
    assert_eq!(world.policy.off().count(), 0);
}

#[test]
fn what_is_named_stays_and_it_is_said_that_the_budget_does_not_hold() {
    let named = Function {
        is_named: true,
        ..function(1e7, 10.0)
    };
    let mut world = World::new(0.05, &[named, function(1e6, 10.0)]);
    world.run(5.0);
    assert_eq!(world.states().keys().collect::<Vec<_>>(), [&1]);
    let (site, share) = world.policy.too_much.unwrap();
    assert_eq!(site, 0);
    assert!((0.2..0.3).contains(&share), "{share}");
    world.functions[0].calls = 10.0;
    world.run(5.0);
    assert_eq!(world.policy.too_much, None);
}

#[test]
fn jumps_that_cost_too_much_go_and_threads_stop_seldom() {
    let mut functions = vec![function(8e7, 5.0)];
    functions.extend((0..100).map(|_| function(5e5, 100.0)));
    let mut world = World::new(0.05, &functions);
    world.run(3.0);
    assert_eq!(world.states()[&0], State::Removed);
    assert!(world.cost() <= 0.05, "{}", world.cost());
    world.run(297.0);
    assert!(world.pauses <= 300, "{}", world.pauses);
    world.added();
    world.run(60.0);
    assert!(world.added() <= 0.05);
}
