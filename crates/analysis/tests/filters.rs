//! Compares what readers show of random traces under random filters with a plain scan of all calls.
//!
//! `NOPAL_SEED=N` tries one seed; each failure says its own.

use std::collections::BTreeMap;

use nopal_analysis::calls::{CallRebuilder, Ending, Frame, Sink};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::{Filter, Moment, Wanted};
use nopal_analysis::graph;
use nopal_analysis::hist::{self, By};
use nopal_analysis::names::Names;
use nopal_analysis::report;
use nopal_analysis::slow;
use nopal_analysis::span::begin;
use nopal_analysis::values::ValueSelection;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Random, Shape};

const FUNCTIONS: u32 = 8;
const THREADS: u32 = 3;

struct Call {
    thread: usize,
    begin: u64,
    end: u64,
    /// Sites, outermost first; its own is the last.
    path: Vec<u32>,
    /// The number of the caller, and of calls on the path.
    callers: Vec<usize>,
}

/// All calls, in order of their entries.
#[derive(Default)]
struct Scan {
    thread: usize,
    calls: Vec<Call>,
}

impl Sink for Scan {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            panic!("a call has a frame")
        };
        self.calls.push(Call {
            thread: self.thread,
            begin: frame.clock,
            end: 0,
            path: frames.iter().map(Frame::site).collect(),
            callers: under.iter().map(|frame| frame.note as usize).collect(),
        });
        self.calls.len() as u32 - 1
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.calls[frame.note as usize].end = ending.clock;
    }

    fn lose(&mut self, _: &Frame, _: u64, _: bool) {
        panic!("all calls end")
    }

    fn stray(&mut self, _: &Frame, _: Ending) {
        panic!("all calls begin")
    }
}

fn scan(trace: &Trace) -> Vec<Call> {
    let mut scan = Scan::default();
    for (at, thread) in trace.threads().into_iter().enumerate() {
        scan.thread = at;
        let mut rebuilder = CallRebuilder::new();
        for packet in thread.packets() {
            rebuilder.packet(&packet, &mut scan);
        }
        rebuilder.end(0, &mut scan);
    }
    scan.calls
}

/// The filter that is asked for, as plain numbers.
#[derive(Clone, Debug, Default)]
struct Asked {
    threads: Vec<u32>,
    only: Vec<u32>,
    not: Vec<u32>,
    least: u64,
    /// The time since the trace began.
    from: Option<u64>,
    until: Option<u64>,
}

impl Asked {
    fn new(random: &mut Random, span: u64) -> Asked {
        let some = |random: &mut Random, most: u64, first: u32| -> Vec<u32> {
            let number = random.below(3);
            (0..number)
                .map(|_| first + random.below(most) as u32)
                .collect()
        };
        let mut times = [random.below(span), random.below(span)];
        times.sort_unstable();
        Asked {
            threads: some(random, u64::from(THREADS), 1000),
            only: some(random, u64::from(FUNCTIONS), 1),
            not: some(random, u64::from(FUNCTIONS), 1),
            least: random.below(2) * random.below(400),
            from: (random.below(2) == 0).then_some(times[0]),
            until: (random.below(2) == 0).then_some(times[1].max(times[0] + 1)),
        }
    }

    fn wanted(&self) -> Wanted {
        let globs = |sites: &[u32]| {
            sites
                .iter()
                .map(|site| format!("function_{site}"))
                .collect()
        };
        Wanted {
            only: globs(&self.only),
            not: globs(&self.not),
            threads: self.threads.clone(),
            least_ns: self.least,
            from: self.from.map(Moment::Time),
            until: self.until.map(Moment::Time),
            ..Wanted::default()
        }
    }

    /// Whether functions and threads select a call.
    fn has(&self, call: &Call) -> bool {
        let any = |sites: &[u32]| call.path.iter().any(|site| sites.contains(site));
        let thread = 1000 + call.thread as u32;
        (self.threads.is_empty() || self.threads.contains(&thread))
            && (self.only.is_empty() || any(&self.only))
            && !any(&self.not)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    calls: u64,
    total: u64,
    own: u64,
}

/// By function: the sums of a report.
fn expected(calls: &[Call], asked: &Asked, begin: u64) -> BTreeMap<String, Sum> {
    let from = asked.from.map_or(0, |from| begin + from);
    let until = asked.until.map_or(u64::MAX, |until| begin + until);
    let part = |call: &Call| call.end.min(until).saturating_sub(call.begin.max(from));
    let is_selected = |call: &Call| {
        let is_cut = asked.from.is_some() && call.begin <= from
            || asked.until.is_some() && call.end >= until;
        let is_within = (asked.from.is_none() || call.end > from) && call.begin < until;
        asked.has(call) && is_within && (is_cut || call.end - call.begin >= asked.least)
    };
    let mut inside = vec![0; calls.len()];
    for call in calls {
        if let Some(&caller) = call.callers.last() {
            inside[caller] += part(call);
        }
    }
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (call, inside) in calls
        .iter()
        .zip(inside)
        .filter(|(call, _)| is_selected(call))
    {
        let site = call.path[call.path.len() - 1];
        let is_inner = call
            .callers
            .iter()
            .any(|&caller| is_selected(&calls[caller]) && calls[caller].path.last() == Some(&site));
        let sum = sums.entry(format!("function_{site}")).or_default();
        sum.calls += 1;
        sum.own += part(call) - inside;
        sum.total += if is_inner { 0 } else { part(call) };
    }
    sums
}

fn check(trace: &Trace, calls: &[Call], asked: &Asked, seed: u64) {
    let what = format!("seed {seed}: {asked:?}");
    let filter = match Filter::new(trace, &asked.wanted()) {
        Ok(filter) => filter,
        Err(error) => {
            let nothing = !calls.iter().any(|call| asked.has(call));
            assert!(nothing, "{what}: {error:#}");
            return;
        }
    };
    let drive = Drive {
        workers: 2,
        filter: Some(&filter),
        ..Drive::default()
    };
    let expected = expected(calls, asked, begin(trace));
    let report = report::functions(trace, &drive).unwrap();
    let found = report.rows.iter().map(|row| {
        let sum = Sum {
            calls: row.calls,
            total: row.total_ns,
            own: row.self_ns,
        };
        (row.function.clone(), sum)
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{what}");

    let names = Names::new(trace);
    let tree = graph::tree(trace, &names, &drive).unwrap();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for node in &tree.nodes()[1..] {
        let name = names.functions()[node.function as usize].name.clone();
        let (calls, own) = sums.entry(name).or_default();
        *calls += node.calls;
        *own += node.own;
    }
    let in_report = expected
        .iter()
        .map(|(name, sum)| (name.clone(), (sum.calls, sum.own)));
    assert_eq!(sums, in_report.collect(), "{what}: graph");

    let by_thread: u64 = report::threads(trace, &drive)
        .unwrap()
        .iter()
        .map(|row| row.calls)
        .sum();
    let in_report: u64 = expected.values().map(|sum| sum.calls).sum();
    assert_eq!(by_thread, in_report, "{what}: threads");

    let number = 1 + seed as usize % 40;
    let slow = slow::slowest(trace, &names, "*", number, &drive).unwrap_or_default();
    let from = asked.from.map_or(0, |from| begin(trace) + from);
    let until = asked.until.map_or(u64::MAX, |until| begin(trace) + until);
    let active = calls.iter().filter(|call| {
        let is_within = (asked.from.is_none() || call.end > from) && call.begin < until;
        asked.has(call) && is_within && call.end - call.begin >= asked.least
    });
    let mut longest: Vec<u64> = active.map(|call| call.end - call.begin).collect();
    longest.sort_unstable_by_key(|ticks| std::cmp::Reverse(*ticks));
    longest.truncate(number);
    let found: Vec<u64> = slow.iter().map(|call| call.end - call.begin).collect();
    assert_eq!(found, longest, "{what}: slow");
    let number_of = |site: Option<&u32>| names.number(*site.unwrap());
    for call in &slow {
        let mut spent: BTreeMap<u32, u64> = BTreeMap::new();
        let within = calls.iter().filter(|one| {
            one.thread == call.stream && one.begin >= call.begin && one.end <= call.end
        });
        for one in within {
            let ticks = one.end - one.begin;
            *spent.entry(number_of(one.path.last())).or_default() += ticks;
            if one.begin > call.begin || one.end < call.end {
                let caller = one.path.iter().nth_back(1);
                let own = spent.entry(number_of(caller)).or_default();
                *own = own.wrapping_sub(ticks);
            }
        }
        spent.retain(|_, own| *own > 0);
        let found: BTreeMap<u32, u64> = call.spent.iter().copied().collect();
        assert_eq!(found, spent, "{what}: {call:?}");
        let same =
            |one: &&Call| (one.thread, one.begin, one.end) == (call.stream, call.begin, call.end);
        let scanned = calls.iter().find(same).unwrap();
        let path = call.path.as_ref().unwrap();
        let whole: Vec<u32> = scanned
            .path
            .iter()
            .map(|site| names.number(*site))
            .collect();
        assert!(
            whole[..whole.len() - 1].ends_with(path),
            "{what}: {call:?} {whole:?}"
        );
    }

    // Whole calls of which a part is within the time.
    let from = asked.from.map_or(0, |from| begin(trace) + from);
    let until = asked.until.map_or(u64::MAX, |until| begin(trace) + until);
    let whole = calls.iter().filter(|call| {
        asked.has(call)
            && call.end >= from
            && call.begin <= until
            && call.end - call.begin >= asked.least
    });
    let what_of = ValueSelection::new(None, &names, trace.markers()).unwrap();
    let counted = hist::distributions(trace, &names, &what_of, &filter, By::Nothing, &drive)
        .map_or(0, |(groups, _)| groups[0].distribution.count());
    assert_eq!(counted, whole.count() as u64, "{what}: hist");
}

fn try_seed(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let shape = Shape {
        seed,
        threads: THREADS,
        calls_per_thread: 400,
        functions: FUNCTIONS,
        depth: 9,
        ..Shape::default()
    };
    let truth = synthetic::write(&path, &shape).unwrap();
    let trace = Trace::open(&path).unwrap();
    let calls = scan(&trace);
    let mut random = Random::new(seed);
    check(&trace, &calls, &Asked::default(), seed);
    for _ in 0..12 {
        let asked = Asked::new(&mut random, truth.end - begin(&trace));
        check(&trace, &calls, &asked, seed);
    }
}

#[test]
fn readers_show_the_selected_calls_and_no_others() {
    match std::env::var("NOPAL_SEED") {
        Ok(seed) => try_seed(seed.parse().unwrap()),
        Err(_) => (0..30).for_each(try_seed),
    }
}

#[test]
fn a_filter_that_selects_nothing_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    synthetic::write(&path, &Shape::default()).unwrap();
    let trace = Trace::open(&path).unwrap();
    let error = |wanted: Wanted| Filter::new(&trace, &wanted).unwrap_err().to_string();
    let comms = vec!["nobody*".to_owned()];
    let of_nobody = error(Wanted {
        comms,
        ..Wanted::default()
    });
    assert!(of_nobody.contains("--comm"), "{of_nobody}");
    let backwards = error(Wanted {
        from: Some(Moment::Part(0.6)),
        until: Some(Moment::Part(0.5)),
        ..Wanted::default()
    });
    assert_eq!(backwards, "--until is before --from");
    let unknown = error(Wanted {
        from: Some(Moment::Marker("frame".into(), 1)),
        ..Wanted::default()
    });
    assert_eq!(unknown, "no marker of this trace is named \"frame\"");
    let comms = vec!["thread 1".to_owned()];
    let one = Wanted {
        comms,
        ..Wanted::default()
    };
    let filter = Filter::new(&trace, &one).unwrap();
    assert_eq!([false, true], [0, 1].map(|stream| filter.has(stream)));
}
