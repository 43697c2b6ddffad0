//! Loads of which the best choice is known.

use super::policy::{COUNTING, Load, Look, Policy, State};
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
    /// The number of changes from one state to another, by function.
    changes: HashMap<u32, u32>,
    pauses: u32,
    /// The length of each.
    pause: f64,
    /// The cost of counting a call, as a part of that of recording it.
    counting: f64,
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
            pause: 0.002,
            counting: COUNTING,
            own: 0.0,
            added: 0.0,
        }
    }

    fn state(&self, site: u32) -> State {
        self.policy.state(site)
    }

    fn untimed(&self) -> HashMap<u32, State> {
        self.policy.untimed().collect()
    }

    /// The functions in a state.
    fn all(&self, state: State) -> Vec<u32> {
        let sites = 0..self.functions.len() as u32;
        sites.filter(|site| self.state(*site) == state).collect()
    }

    /// The time that tracing adds to a second of the program.
    fn cost(&self) -> f64 {
        let each = (0u32..).zip(&self.functions).map(|(site, function)| {
            let call = match self.state(site) {
                State::Timed => CALL,
                State::Counted => CALL * self.counting,
                State::Off => 0.0,
            };
            call * function.calls
        });
        each.sum()
    }

    /// A look, after the usual time, in which calls vary by so much.
    fn look(&mut self, noise: &mut dyn FnMut() -> f64) {
        self.look_after(LOOK, noise);
    }

    fn look_after(&mut self, seconds: f64, noise: &mut dyn FnMut() -> f64) {
        let before = self.untimed();
        // The program does as much as tracing leaves room for.
        let used = seconds * self.load;
        let own = used / (1.0 + self.cost());
        let mut loads = Vec::new();
        for (site, function) in (0u32..).zip(&self.functions) {
            let cost = (function.calls * own * noise()).floor() * CALL;
            let (recorded, counted) = match self.state(site) {
                State::Timed => (cost, 0.0),
                State::Counted => (0.0, cost),
                State::Off => continue,
            };
            if cost > 0.0 {
                loads.push(Load {
                    site,
                    recorded,
                    counted,
                    worth: (recorded > 0.0).then_some(function.worth),
                    may_be_spared: !function.is_named,
                });
            }
        }
        self.now += seconds;
        self.own += own;
        self.added += self.cost() * own;
        let loads = &loads;
        let now = self.now;
        let counting = self.counting;
        self.policy.look(&Look {
            now,
            used,
            counting,
            loads,
        });
        let after = self.untimed();
        let mut has_paused = false;
        for site in 0..self.functions.len() as u32 {
            let state = |states: &HashMap<u32, State>| {
                let known = states.get(&site).copied();
                known.unwrap_or(State::Timed)
            };
            let (was, is) = (state(&before), state(&after));
            if was != is {
                *self.changes.entry(site).or_default() += 1;
                has_paused |= [was, is].contains(&State::Off);
            }
        }
        self.pauses += u32::from(has_paused);
        if has_paused {
            self.policy.paused(self.now, self.pause);
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

    /// The time that was added per second of the program since the last call.
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

/// 50 % recorded, of which counting takes 3.75: with the slow ones, it is within 5 %.
#[test]
fn a_hot_tiny_function_is_counted_and_slow_ones_stay() {
    let mut world = World::new(
        0.05,
        &[
            function(1.6e7, 10.0),
            function(1000.0, 500_000.0),
            function(20_000.0, 900.0),
        ],
    );
    world.run(3.0);
    assert_eq!(world.untimed(), [(0, State::Counted)].into());
    world.all_changes();
    world.added();
    world.run(300.0);
    assert!(world.added() <= 0.05);
    // The number of its calls is known: it is never recorded in vain.
    assert_eq!((world.all_changes(), world.pauses), (0, 0));
}

/// Counting one of them would take all that there is, and more.
#[test]
fn what_counting_alone_makes_too_dear_is_off_and_the_others_are_not() {
    let mut world = World::new(
        0.05,
        &[
            function(4e7, 10.0),
            function(5e6, 20.0),
            function(4e6, 15.0),
            function(100_000.0, 900.0),
        ],
    );
    world.run(5.0);
    assert_eq!(world.state(0), State::Off);
    assert_eq!(world.all(State::Counted), [1, 2]);
    world.all_changes();
    world.added();
    world.run(600.0);
    assert!(world.added() <= 0.05);
    // It is counted again, less and less often, to see whether it is called less; the others stay as they are.
    assert_eq!(world.changes.keys().collect::<Vec<_>>(), [&0]);
    let changes = world.all_changes();
    assert!(changes <= 20, "{changes}");
}

/// As between the code of a large program: nearly all of counting is waiting for code and counters that are in no cache.
#[test]
fn the_budget_holds_where_counting_takes_a_third_of_recording() {
    let functions: Vec<Function> = (1..200)
        .map(|at| function(4e3 * f64::from(at), 50.0))
        .collect();
    let mut usual = World::new(0.05, &functions);
    usual.run(10.0);
    let mut dear = World::new(0.05, &functions);
    dear.counting = 0.33;
    dear.run(10.0);
    dear.added();
    dear.run(60.0);
    let added = dear.added();
    assert!(added <= 0.05, "{added}");
    let off = |world: &World| world.all(State::Off).len();
    assert!(
        off(&dear) > off(&usual),
        "{} of {}",
        off(&dear),
        off(&usual)
    );
}

/// Tiny functions that the same policy does not time, from cold and as another session ended.
#[test]
fn a_session_begins_within_the_budget_where_another_one_ended() {
    let functions = [
        function(6e6, 10.0),
        function(4e6, 20.0),
        function(2e6, 15.0),
        function(1000.0, 500_000.0),
        function(8e7, 5.0),
    ];
    let mut cold = World::new(0.05, &functions);
    cold.run(1.0);
    let first = cold.added();
    cold.run(20.0);
    let mut again = World::new(0.05, &functions);
    for (number, kept) in cold.policy.kept() {
        again.policy.begin(number, kept);
    }
    assert_eq!(again.untimed(), cold.untimed());
    assert_eq!(again.state(4), State::Off);
    again.run(1.0);
    let added = again.added();
    assert!(added < 0.05 && added < first, "{added}, {first}");
    assert_eq!(again.state(4), State::Off);
    assert_eq!(again.state(3), State::Timed);
    // A function that costs less by now is recorded again.
    again.functions[1].calls = 1000.0;
    again.run(300.0);
    assert_eq!(again.state(1), State::Timed);
    assert_eq!(again.state(0), State::Counted);
}

#[test]
fn of_equal_cost_what_tells_least_is_counted() {
    let mut world = World::new(
        0.05,
        &[
            function(1e6, 900.0),
            function(1e6, 20.0),
            function(1e6, 300.0),
        ],
    );
    world.run(1.0);
    assert_eq!(world.all(State::Counted), [1, 2]);
}

/// As when the tool did not run, between the look at a process' time and that at its calls.
#[test]
fn one_look_that_sees_too_many_calls_takes_no_jump_out() {
    let mut world = World::new(0.05, &[function(4e6, 10.0), function(1000.0, 500_000.0)]);
    for _ in 0..20 {
        world.run(2.0);
        world.look(&mut || 8.0);
    }
    assert_eq!((world.state(0), world.pauses), (State::Counted, 0));
    assert_eq!(world.state(1), State::Timed);
}

/// As where other work keeps threads stopped for long: counting functions that are called more since the last stop
/// takes more than the next stop.
#[test]
fn a_long_stop_does_not_wait_longer_than_counting_takes() {
    let mut world = World::new(0.05, &[function(4e7, 10.0), function(1000.0, 10.0)]);
    world.pause = 0.1;
    world.run(5.0);
    assert_eq!((world.state(0), world.pauses), (State::Off, 1));
    world.functions[1].calls = 1e8;
    world.run(1.5);
    assert_eq!(world.state(1), State::Off);
    // This one takes a fiftieth more than there is: as much as a stop after five seconds.
    world.functions.push(function(2.8e7, 10.0));
    world.run(3.0);
    assert_eq!(world.state(2), State::Counted);
    world.run(5.0);
    assert_eq!(world.state(2), State::Off);
}

/// As when a program begins to work: what it calls in the first moments is not all.
#[test]
fn what_is_hot_right_after_a_stop_does_not_wait_for_long() {
    let mut world = World::new(0.05, &[function(4e7, 10.0)]);
    world.run(0.4);
    assert_eq!(world.state(0), State::Off);
    world.functions.push(function(4e7, 10.0));
    world.run(0.5);
    assert_eq!(world.state(1), State::Off);
    assert_eq!(world.pauses, 2);
    // Later stops make up for it.
    world.functions.push(function(4e6, 10.0));
    world.run(1.0);
    assert_eq!(world.pauses, 2);
}

/// A function that takes more than all by itself, and was asked for by name, is no reason to stop the threads for
/// functions that take little.
#[test]
fn stops_are_apart_where_counting_takes_little_of_what_is_overrun() {
    let mut named = function(1e7, 10.0);
    named.is_named = true;
    let mut world = World::new(0.05, &[named]);
    world.pause = 0.1;
    for _ in 0..15 {
        world.functions.push(function(10_000.0, 10.0));
        world.run(2.0);
    }
    assert_eq!(world.pauses, 1);
}

#[test]
fn what_is_within_the_budget_is_left_alone() {
    let mut world = World::new(0.05, &[function(1e6, 20.0), function(1e5, 20.0)]);
    world.run(60.0);
    assert_eq!(
        (world.all_changes(), world.policy.untimed().count()),
        (0, 0)
    );
}

#[test]
fn random_loads_are_held_with_nearly_as_many_timed_and_counted_as_can_be() {
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
        // The most that fit, by their costs alone, into the part that is used at least: half of it for those that are
        // timed, if counting takes more.
        let mut costs: Vec<f64> = functions.iter().map(|one| one.calls * CALL).collect();
        costs.sort_by(f64::total_cmp);
        let fit = |part: f64, call: f64| {
            let mut left = budget * part;
            let fit = costs.iter().take_while(|cost| {
                left -= **cost * call;
                left >= 0.0
            });
            fit.count() as f64
        };
        let timed = world.all(State::Timed).len() as f64;
        let known = timed + world.all(State::Counted).len() as f64;
        let (most_timed, most_known) = (fit(0.3, 1.0), fit(0.3, COUNTING));
        assert!(
            timed >= most_timed * 0.95 && known >= most_known * 0.95,
            "round {round}: {timed} timed of {most_timed}, and {known} counted, too, of {most_known}"
        );
        // Where all that are not timed could be counted, none is off.
        let counting: f64 = costs.iter().sum::<f64>() * COUNTING;
        if counting < budget * 0.3 {
            assert_eq!(world.all(State::Off), [0; 0], "round {round}");
        }
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
    assert_eq!(world.policy.untimed().count(), 0);
    world.functions = functions;
    world.load = 1.0;
    world.run(0.4);
    assert!(world.cost() <= 0.05, "{}", world.cost());
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
    assert_eq!(world.state(1), State::Timed);
}

#[test]
fn what_is_called_less_is_timed_again() {
    let mut world = World::new(0.05, &[function(2e7, 10.0), function(1000.0, 50_000.0)]);
    world.run(60.0);
    assert_eq!(world.state(0), State::Counted);
    world.functions[0].calls = 1000.0;
    // Nothing has to be tried: that is seen at once.
    world.run(2.0);
    assert_eq!(world.policy.untimed().count(), 0);
}

#[test]
fn what_was_off_and_is_called_less_is_timed_again() {
    let mut world = World::new(0.05, &[function(8e7, 10.0), function(1000.0, 50_000.0)]);
    world.run(20.0);
    assert_eq!(world.state(0), State::Off);
    world.functions[0].calls = 1000.0;
    world.run(130.0);
    assert_eq!(world.policy.untimed().count(), 0);
}

#[test]
fn what_is_named_stays_and_it_is_said_that_the_budget_does_not_hold() {
    let named = Function {
        is_named: true,
        ..function(1e7, 10.0)
    };
    let mut world = World::new(0.05, &[named, function(1e6, 10.0)]);
    world.run(5.0);
    // Nothing is left for the other one.
    assert_eq!(world.untimed(), [(1, State::Off)].into());
    let much = world.policy.too_much.unwrap();
    assert_eq!((much.site, much.share), (0, much.named));
    assert!((0.2..0.3).contains(&much.share), "{much:?}");
    world.functions[0].calls = 10.0;
    world.run(5.0);
    assert_eq!(world.policy.too_much, None);
}

#[test]
fn threads_stop_seldom() {
    let mut functions = vec![function(8e7, 5.0)];
    functions.extend((0..100).map(|_| function(5e5, 100.0)));
    let mut world = World::new(0.05, &functions);
    world.run(3.0);
    assert_eq!(world.state(0), State::Off);
    assert!(world.cost() <= 0.05, "{}", world.cost());
    world.run(297.0);
    assert!(world.pauses <= 300, "{}", world.pauses);
    world.added();
    world.run(60.0);
    assert!(world.added() <= 0.05);
}

/// As SQLite does: hundreds of functions are called while the program begins, and never again; then a hundred make
/// nearly all calls. The first looks are early, as what the budget allows for a while is spent at once.
#[test]
fn what_is_called_only_while_a_program_begins_stays_timed_and_little_is_moved_twice() {
    const BEGIN: usize = 600;
    const HOT: usize = 100;
    let mut random = random();
    let mut calls = |most: u64| random.below(most) as f64;
    let begin: Vec<Function> = (0..BEGIN).map(|_| function(calls(40_000), 200.0)).collect();
    let hot = (0..HOT as i32).map(|at| function(4e6 / 1.05f64.powi(at), 50.0));
    let rare = (0..60).map(|_| function(calls(500), 1000.0));
    let work: Vec<Function> = hot.chain(rare).collect();
    let idle = function(0.0, 50.0);
    let mut world = World::new(0.05, &begin);
    world.functions.resize(BEGIN + work.len(), idle);
    world.load = 0.3;
    for _ in 0..3 {
        world.look_after(0.01, &mut || 1.0);
    }
    world.functions[..BEGIN].fill(idle);
    world.functions[BEGIN..].copy_from_slice(&work);
    world.load = 1.0;
    world.run(0.97);
    world.added();
    world.run(9.0);
    let added = world.added();
    assert!(added <= 0.05, "{added}");
    // The hottest, and no more than have to be: with 87 gone, the others take 1.5 %, and counting some of the 87 the rest.
    let mut untimed: Vec<u32> = world.untimed().into_keys().collect();
    untimed.sort_unstable();
    let hottest = BEGIN as u32..(BEGIN + untimed.len()) as u32;
    assert_eq!(untimed, hottest.collect::<Vec<_>>());
    assert!(untimed.len() <= 90, "{}", untimed.len());
    // Each is counted once, and off once; then some are tried.
    let changes = world.all_changes();
    assert!(changes <= 180, "{changes}");
    assert!(world.pauses <= 10, "{}", world.pauses);
}

/// Functions that were counted cost nothing then, but their means fade only with the little that the program uses.
#[test]
fn a_program_that_is_nearly_idle_after_hot_work_has_few_changes() {
    const HOT: usize = 50;
    let hot = [function(4e5, 50.0); HOT];
    let mut world = World::new(0.05, &hot);
    world.functions.push(function(1000.0, 1000.0));
    world.run(10.0);
    world.functions[..HOT].fill(function(0.0, 50.0));
    world.load = 0.02;
    world.all_changes();
    world.run(60.0);
    let changes = world.all_changes();
    assert!(changes <= 2 * HOT as u32, "{changes}");
    assert_eq!(world.untimed().len(), 0);
}
