//! Random programs whose records are lost at random: no reader shows more than there was.
//!
//! `NOPAL_SEED=N` tries one seed; each failure says its own.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use nopal_abi as abi;
use nopal_analysis::diff::{self, Run};
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{self, Format, Weight, dump};
use nopal_analysis::filter::Filter;
use nopal_analysis::graph;
use nopal_analysis::hist::{self, By};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::ongoing::Ongoing;
use nopal_analysis::replay::{Look, replay};
use nopal_analysis::report::{self, Relation, Report};
use nopal_analysis::requests;
use nopal_analysis::selection;
use nopal_analysis::slow::{self, SlowCall};
use nopal_analysis::values::ValueSelection;
use nopal_trace::synthetic::{Random, Recorder, bytes_mut};
use nopal_trace::{Batch, Losses, Note, Session, Subscriber, ThreadKey, Trace, Writer};

const SITES: u32 = 6;
const TOP: u64 = 0x7ffd_0000_8008;
const DEEPEST: usize = 25;

#[derive(Clone, Copy)]
struct Call {
    site: u32,
    slot: u64,
    /// The call whose return address it has: itself, or the call from which a jump led to it.
    owner: usize,
}

#[derive(Clone, Copy)]
enum Step {
    Enter(usize),
    /// The exit of a call that has a return address of its own.
    Leave(usize),
}

/// The greatest times that some calls can have taken: a jump that ended them came before the next step.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    /// The ticks of all, of those that were not in another call of their function, and of the longest.
    all: u64,
    total: u64,
    longest: u64,
    own: u64,
}

/// By function, and by caller and callee; 0 is nobody.
#[derive(Debug, Default)]
struct Truth {
    functions: HashMap<u32, Sum>,
    pairs: HashMap<(u32, u32), Sum>,
    /// From the first step to the last.
    spans: Vec<u64>,
}

impl Truth {
    fn call(&mut self, caller: u32, site: u32, ticks: u64, own: u64, outermost: bool) {
        let pair = self.pairs.entry((caller, site)).or_default();
        for sum in [self.functions.entry(site).or_default(), pair] {
            sum.calls += 1;
            sum.all += ticks;
            sum.total += if outermost { ticks } else { 0 };
            sum.longest = sum.longest.max(ticks);
            sum.own += own;
        }
    }

    fn of(&self, name: &str) -> Sum {
        let site = name.strip_prefix('f').and_then(|site| site.parse().ok());
        self.functions
            .get(&site.unwrap())
            .copied()
            .unwrap_or_default()
    }
}

/// A call that goes on.
struct Open {
    number: usize,
    /// The slots of its callees are so much lower.
    size: u64,
    begin: u64,
    own: u64,
    caller: u32,
    outermost: bool,
}

/// The steps of a thread, and their times.
struct Program {
    calls: Vec<Call>,
    /// The last part is whether the thread has jumped before.
    steps: Vec<(u64, Step, bool)>,
}

impl Program {
    fn new(random: &mut Random, truth: &mut Truth) -> Program {
        let mut program = Program {
            calls: Vec::new(),
            steps: Vec::new(),
        };
        let mut open: Vec<Open> = Vec::new();
        // Left by a jump, until the next step.
        let mut left: Vec<Open> = Vec::new();
        let mut last = 1000 + random.below(1000);
        let begin = last;
        let mut clock = last;
        for _ in 0..200 + random.below(1500) {
            clock += 1 + random.below(50) + random.below(2) * random.below(400);
            let what = random.below(100);
            if what < 3 && open.len() > 3 && left.is_empty() {
                // A jump does not lead to a frame that was entered by a jump.
                let kept = 1 + random.below(open.len() as u64 - 1) as usize;
                if program.calls[open[kept].number].owner == open[kept].number {
                    left = open.split_off(kept);
                }
                continue;
            }
            let jumped = !left.is_empty();
            for top in [open.last_mut(), left.last_mut()].into_iter().flatten() {
                top.own += clock - last;
            }
            let ended = |calls: &[Call], truth: &mut Truth, call: Open| {
                let site = calls[call.number].site;
                truth.call(
                    call.caller,
                    site,
                    clock - call.begin,
                    call.own,
                    call.outermost,
                );
            };
            for call in left.drain(..) {
                ended(&program.calls, truth, call);
            }
            last = clock;
            if !open.is_empty() && (open.len() == DEEPEST || random.below(2) == 0) {
                let owner = program.calls[open[open.len() - 1].number].owner;
                let at = open.iter().position(|call| call.number == owner).unwrap();
                for call in open.drain(at..) {
                    ended(&program.calls, truth, call);
                }
                program.steps.push((clock, Step::Leave(owner), jumped));
                continue;
            }
            let number = program.calls.len();
            let is_tail = what < 10 && !open.is_empty() && !jumped;
            let (slot, owner) = match open.last() {
                Some(caller) if is_tail => {
                    let caller = program.calls[caller.number];
                    (caller.slot, caller.owner)
                }
                Some(caller) => (program.calls[caller.number].slot - caller.size, number),
                None => (TOP, number),
            };
            let site = 1 + random.below(u64::from(SITES)) as u32;
            let sites = open.iter().map(|call| program.calls[call.number].site);
            let sites: Vec<u32> = sites.collect();
            open.push(Open {
                number,
                size: 16 * (2 + random.below(60)),
                begin: clock,
                own: 0,
                caller: sites.last().copied().unwrap_or(0),
                outermost: !sites.contains(&site),
            });
            program.calls.push(Call { site, slot, owner });
            program.steps.push((clock, Step::Enter(number), jumped));
        }
        for call in open.into_iter().chain(left) {
            let site = program.calls[call.number].site;
            truth.call(
                call.caller,
                site,
                last - call.begin,
                call.own,
                call.outermost,
            );
        }
        truth.spans.push(last - begin);
        program
    }
}

/// How likely each loss is at each step, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Harm {
    gap: u64,
    hole: u64,
    packet: u64,
    damage: u64,
    /// Packets of the beginning.
    before: usize,
}

/// The losses, as far as a trace must tell them.
#[derive(Debug, Default)]
struct Lost {
    events: u64,
    packets: u64,
    holes: u64,
}

/// Writes the records of a thread. A call whose entry is lost is not wrapped, and has no exit; a function that is
/// jumped to from there counts as called.
fn record(
    program: &Program,
    thread: u32,
    harm: Harm,
    shape: &mut Random,
    random: &mut Random,
    writer: &mut Writer,
) -> Lost {
    let mut lost = Lost::default();
    let mut recorder = Recorder::new(1, thread, 500);
    let mut wrapped: HashMap<usize, usize> = HashMap::new();
    let (mut losing, mut owed) = (0, false);
    let mut last: Option<usize> = None;
    for &(clock, step, jumped) in &program.steps {
        owed |= jumped;
        if shape.below(60) == 0 {
            recorder.end_chunk();
            last = None;
        }
        if losing == 0 && random.below(1000) < harm.gap {
            losing = 1 + random.below(60);
        }
        let call = |number: usize| program.calls[number];
        let (kind, number) = match step {
            Step::Enter(number) => match wrapped.get(&call(number).owner) {
                Some(_) if call(number).owner != number => (abi::KIND_TAIL, number),
                _ => (abi::KIND_ENTRY, number),
            },
            Step::Leave(owner) => match wrapped.get(&owner) {
                Some(number) => (abi::KIND_EXIT, *number),
                None => continue,
            },
        };
        if losing > 0 {
            losing -= 1;
            lost.events += 1;
            recorder.lose(1);
            last = None;
            continue;
        }
        let Call { site, slot, owner } = call(number);
        if kind == abi::KIND_ENTRY {
            wrapped.insert(owner, number);
        }
        if std::mem::take(&mut owed) {
            if recorder.words().is_empty() {
                recorder.resync(clock, slot, abi::RESYNC_CHUNK);
            }
            recorder.resync(clock, slot, abi::RESYNC_JUMP);
            last = None;
        }
        recorder.record(clock, kind, site, slot, &[]);
        let words = recorder.words();
        if let Some(before) = last.filter(|before| words.len() == before + 2)
            && random.below(1000) < harm.hole
        {
            words[before] = 0;
            lost.holes += 1;
        }
        last = Some(words.len() - 1);
    }
    recorder.end_chunk();
    let chunks = recorder.take_full();
    let count = chunks.len();
    let mut missing = 0;
    for (at, mut words) in chunks.into_iter().enumerate() {
        if at < harm.before || random.below(1000) < harm.packet * 10 && at + 1 < count {
            missing += 1;
            continue;
        }
        lost.packets += std::mem::take(&mut missing);
        writer.chunk(bytes_mut(&mut words), true).unwrap();
    }
    writer.thread_ended(1, thread, 500);
    lost
}

fn write(path: &Path, programs: &[Program], harm: Harm, seed: u64) -> (Trace, Lost) {
    let mut writer = Writer::create(path, Session::default()).unwrap();
    for (counter, monotonic_ns) in [(0, 0), (1_000_000_000, 1_000_000_000)] {
        let realtime_ns = monotonic_ns;
        let clock = Note::Clock {
            counter,
            monotonic_ns,
            realtime_ns,
        };
        writer.note(&clock).unwrap();
    }
    let image = Note::Image {
        image: 1,
        path: "/program".into(),
        identity: String::new(),
    };
    writer.note(&image).unwrap();
    let sites = (1..=SITES).map(|site| (site, u64::from(site) << 12, 16, format!("f{site}")));
    let sites = Note::Sites {
        image: 1,
        sites: sites.collect(),
    };
    writer.note(&sites).unwrap();
    let (mut shape, mut random) = (Random::new(seed), Random::new(seed + 1));
    let mut all = Lost::default();
    for (thread, program) in (10..).zip(programs) {
        let lost = record(program, thread, harm, &mut shape, &mut random, &mut writer);
        all.events += lost.events;
        all.packets += lost.packets;
        all.holes += lost.holes;
    }
    let events = Note::Lost {
        process: 1,
        events: all.events,
        reasons: Default::default(),
    };
    writer.note(&events).unwrap();
    let end = Note::End {
        counter: 1_000_000,
        complete: true,
        why: String::new(),
    };
    writer.note(&end).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    damage(path, harm, &mut random);
    (Trace::open(path).unwrap(), all)
}

/// Overwrites headers of packets.
fn damage(path: &Path, harm: Harm, random: &mut Random) {
    for number in 0.. {
        let file = path.join(format!("stream-{number}"));
        let Ok(mut bytes) = fs::read(&file) else {
            break;
        };
        let mut at = 0;
        while at < bytes.len() {
            let size = u64::from_le_bytes(bytes[at + 48..at + 56].try_into().unwrap()) as usize / 8;
            if random.below(1000) < harm.damage * 10 {
                bytes[at..at + 64].fill(random.number() as u8);
            }
            at += size;
        }
        fs::write(&file, bytes).unwrap();
    }
}

fn drive() -> Drive<'static> {
    Drive {
        workers: 2,
        ..Drive::default()
    }
}

/// No reader may find more of a trace than there was.
fn check(trace: &Trace, truth: &Truth, what: &str) {
    let report = report::functions(trace, &drive()).unwrap();
    for row in &report.rows {
        let whole = truth.of(&row.function);
        assert!(row.self_ns <= row.total_ns, "{what}: {row:?}");
        assert!(row.self_ns <= whole.own, "{what}: {row:?} {whole:?}");
        assert!(row.total_ns <= whole.total, "{what}: {row:?} {whole:?}");
        assert!(row.calls <= whole.calls, "{what}: {row:?} {whole:?}");
        assert!(row.max_ns <= whole.longest, "{what}: {row:?} {whole:?}");
    }
    check_threads(trace, truth, &report, what);
    check_diff(trace, &report, what);
    check_graph(trace, truth, what);
    check_related(trace, truth, what);
    check_texts(trace, truth, what);
    check_hist(trace, truth, what);
    check_slow(trace, truth, what);
    check_requests(trace, truth, what);
    check_ongoing(trace, truth, what);
}

/// If a trace is compared with itself, both sides have the same losses.
fn check_diff(trace: &Trace, report: &Report, what: &str) {
    let run = || [Run::new("trace", trace, None, &drive()).unwrap()];
    let comparison = diff::compare(&run(), &run());
    assert_eq!(comparison.rows.len(), report.rows.len(), "{what}");
    for row in &comparison.rows {
        let reported = report.rows.iter().find(|one| one.function == row.function);
        let (reported, side) = (reported.unwrap(), row.before.as_ref().unwrap());
        assert_eq!(row.before, row.after, "{what}: {row:?}");
        assert!(!row.significant && row.change_ns == 0.0, "{what}: {row:?}");
        assert_eq!(side.self_ns, reported.self_ns as f64, "{what}: {row:?}");
        assert_eq!(side.total_ns, reported.total_ns as f64, "{what}: {row:?}");
        assert_eq!(
            side.self_is_least, reported.self_is_least,
            "{what}: {row:?}"
        );
    }
    let losses = losses::line(trace);
    let told = run()[0].losses.as_ref().map(|(line, _)| line.clone());
    assert_eq!(told, losses, "{what}");
}

fn check_threads(trace: &Trace, truth: &Truth, report: &Report, what: &str) {
    let rows = report::threads(trace, &drive()).unwrap();
    for row in &rows {
        assert!(row.busy_ns <= row.span_ns, "{what}: {row:?}");
        let span = truth.spans[row.thread as usize - 10];
        assert!(row.span_ns <= span, "{what}: {row:?} of {span}");
    }
    let processes = report::processes(trace, &drive()).unwrap();
    let sums = processes.iter().map(|row| (row.calls, row.self_ns));
    let threads = rows.iter().map(|row| (row.calls, row.busy_ns));
    let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
    assert_eq!(sums.reduce(add), threads.reduce(add), "{what}: processes");
    let own: u64 = report.rows.iter().map(|row| row.self_ns).sum();
    let recorded: u64 = rows.iter().map(|row| row.span_ns).sum();
    assert!(own <= recorded, "{what}: {own} of {recorded} recorded");
}

fn check_graph(trace: &Trace, truth: &Truth, what: &str) {
    let names = Names::new(trace);
    let tree = graph::tree(trace, &names, &drive()).unwrap();
    let mut own: HashMap<&str, u64> = HashMap::new();
    for (node, children) in tree.nodes().iter().zip(tree.children()).skip(1) {
        let inside: u64 = children
            .iter()
            .map(|&child| tree.nodes()[child as usize].total)
            .sum();
        assert!(node.total >= node.own + inside, "{what}: {node:?}");
        let name = names.functions()[node.function as usize].name.as_str();
        *own.entry(name).or_default() += node.own;
        let whole = truth.of(name);
        assert!(node.total <= whole.all, "{what}: {node:?} {whole:?}");
    }
    for (name, own) in own {
        assert!(
            own <= truth.of(name).own,
            "{what}: self of {name} in the graph"
        );
    }
}

fn check_related(trace: &Trace, truth: &Truth, what: &str) {
    for caller in 1..=SITES {
        let pattern = format!("f{caller}");
        let rows = report::related(trace, &pattern, Relation::Callees, &drive());
        for row in rows.unwrap_or_default() {
            let callee: u32 = row.function[1..].parse().unwrap();
            let whole = truth.pairs.get(&(caller, callee)).copied();
            let whole = whole.unwrap_or_default();
            assert!(
                row.self_ns <= row.total_ns && row.total_ns <= whole.all,
                "{what}: {pattern} {row:?} {whole:?}"
            );
            assert!(
                row.self_ns <= whole.own && row.calls <= whole.calls,
                "{what}: {pattern} {row:?} {whole:?}"
            );
        }
    }
}

fn check_texts(trace: &Trace, truth: &Truth, what: &str) {
    let text = |format| {
        let mut out = Vec::new();
        dump(trace, format, &drive(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let mut own: HashMap<String, u64> = HashMap::new();
    for line in text(Format::Folded(Weight::Time)).lines() {
        let (path, weight) = line.rsplit_once(' ').unwrap();
        let name = path.rsplit(';').next().unwrap();
        *own.entry(name.to_string()).or_default() += weight.parse::<u64>().unwrap();
    }
    for (name, own) in own {
        assert!(own <= truth.of(&name).own, "{what}: self of {name}, folded");
    }
    let chrome: serde_json::Value = serde_json::from_str(&text(Format::Chrome)).unwrap();
    for event in chrome["traceEvents"].as_array().unwrap() {
        if let Some(duration) = event["dur"].as_f64() {
            let longest = truth.of(event["name"].as_str().unwrap()).longest;
            assert!(duration * 1000.0 < longest as f64 + 0.5, "{what}: {event}");
        }
    }
    let notes = chrome["otherData"].get("losses").is_some();
    assert_eq!(notes, losses::line(trace).is_some(), "{what}");
    for format in [
        Format::Devtrace,
        Format::Function(dump::Look::default()),
        Format::Raw,
    ] {
        text(format);
    }
    let mut out = Vec::new();
    replay(trace, &Look::default(), &mut out).unwrap();
    let replayed = String::from_utf8(out).unwrap();
    let lines = replayed.lines().skip(1);
    let times: Vec<&str> = lines
        .filter(|line| !line.starts_with("/*"))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    let back = times.windows(2).find(|pair| pair[0] > pair[1]);
    assert_eq!(back, None, "{what}: a replay goes back in time");
}

fn check_hist(trace: &Trace, truth: &Truth, what: &str) {
    let names = Names::new(trace);
    let (filter, whole) = (Filter::default(), truth.of("f1"));
    let found = ValueSelection::new(Some("f1"), &names, trace.markers())
        .and_then(|of| hist::distributions(trace, &names, &of, &filter, By::Nothing, &drive()));
    if let Ok((groups, _)) = found {
        let found = &groups[0].distribution;
        assert!(found.count() <= whole.calls, "{what}: calls of f1");
        assert!(
            found.most() as u64 <= whole.longest,
            "{what}: longest of f1"
        );
    }
}

fn check_slow(trace: &Trace, truth: &Truth, what: &str) {
    let names = Names::new(trace);
    let Ok(calls) = slow::slowest(trace, &names, "*", 5, &drive()) else {
        return;
    };
    let order = calls.windows(2);
    let ticks = |call: &SlowCall| call.end - call.begin;
    assert!(
        order
            .into_iter()
            .all(|pair| ticks(&pair[0]) >= ticks(&pair[1]))
    );
    for call in calls {
        let name = |function: u32| names.functions()[function as usize].name.as_str();
        let whole = truth.of(name(call.function));
        assert!(ticks(&call) <= whole.longest, "{what}: {call:?} {whole:?}");
        let spent: u64 = call.spent.iter().map(|(_, own)| own).sum();
        assert!(spent <= ticks(&call), "{what}: {call:?}");
        for (function, own) in &call.spent {
            let whole = truth.of(name(*function));
            assert!(*own <= whole.own, "{what}: {} {call:?}", name(*function));
        }
    }
}

fn check_requests(trace: &Trace, truth: &Truth, what: &str) {
    let names = Names::new(trace);
    let filter = Filter::default();
    let Ok(found) = requests::longest(trace, &names, "f1..f1.end", None, 5, &filter, &drive())
    else {
        return;
    };
    let ticks: Vec<u64> = found
        .longest
        .iter()
        .map(|one| one.end - one.begin)
        .collect();
    assert!(ticks.is_sorted_by(|a, b| a >= b), "{what}: {ticks:?}");
    for request in &found.longest {
        let spent = request.spent();
        let all: u64 = spent.iter().map(|one| one.ticks).sum();
        assert_eq!(all, request.end - request.begin, "{what}: {request:?}");
        for one in spent {
            let Some(function) = one.function else {
                continue;
            };
            let name = names.functions()[function as usize].name.as_str();
            assert!(
                one.ticks <= truth.of(name).own,
                "{what}: {name} {request:?}"
            );
        }
    }
}

fn check_ongoing(trace: &Trace, truth: &Truth, what: &str) {
    let mut ongoing = Ongoing::default();
    trace.notes().iter().for_each(|note| ongoing.note(note));
    for info in trace.threads() {
        let thread = ThreadKey {
            process: info.process,
            thread: info.thread,
            begin: info.begin,
        };
        for packet in info.packets() {
            ongoing.records(Batch {
                thread,
                clock: packet.clock_begin(),
                words: packet.words(),
                lossy: packet.is_behind_loss(),
            });
        }
    }
    for (site, sum) in ongoing.sums(0, |_| false) {
        let whole = truth.functions[&site];
        assert!(sum.self_ns <= sum.total_ns, "{what}: {sum:?}");
        assert!(
            sum.self_ns <= whole.own && sum.total_ns <= whole.total,
            "{what}: {sum:?} {whole:?}"
        );
    }
}

/// A part of a trace, as a trace of its own.
fn part(trace: &Trace, random: &mut Random, directory: &Path) -> (Trace, String) {
    let mut filter = Filter::default();
    filter.from = Some(random.below(60_000));
    filter.until = filter.from.map(|from| from + random.below(60_000));
    let drive = Drive {
        filter: Some(&filter),
        ..drive()
    };
    let output = nopal_trace::Output::Directory(directory.to_owned());
    selection::write(trace, &drive, output, &mut || Ok(())).unwrap();
    let part = Trace::open(directory).unwrap();
    assert_eq!(part.damage(), []);
    (
        part,
        format!("from {:?} until {:?}", filter.from, filter.until),
    )
}

fn try_seed(seed: u64) {
    let mut random = Random::new(seed);
    let threads = 1 + random.below(3) as usize;
    let mut truth = Truth::default();
    let programs: Vec<Program> = (0..threads)
        .map(|_| Program::new(&mut random, &mut truth))
        .collect();
    let chosen = |random: &mut Random, most: u64| random.below(2) * random.below(most);
    let harm = Harm {
        gap: chosen(&mut random, 20),
        hole: chosen(&mut random, 10),
        packet: chosen(&mut random, 30),
        damage: chosen(&mut random, 10),
        before: chosen(&mut random, 8) as usize,
    };
    let what = format!("seed {seed}, {harm:?}");
    let directory = tempfile::tempdir().unwrap();
    let (complete, none) = write(
        &directory.path().join("all"),
        &programs,
        Harm::default(),
        seed,
    );
    assert_eq!((none.events, none.packets), (0, 0));
    assert_eq!(Losses::of(&complete), Losses::default(), "{what}");
    let (trace, lost) = write(&directory.path().join("some"), &programs, harm, seed);
    let notes = Losses::of(&trace);
    if harm.damage == 0 {
        assert_eq!(
            (notes.events, notes.packets),
            (lost.events, lost.packets),
            "{what}"
        );
    }
    check(&complete, &truth, &what);
    check(&trace, &truth, &what);
    for (name, trace) in [("part of all", &complete), ("part of some", &trace)] {
        let (part, time) = part(trace, &mut random, &directory.path().join(name));
        check(&part, &truth, &format!("{what}, {name}, {time}"));
    }
}

#[test]
fn losses_leave_bounds_and_no_inventions() {
    match std::env::var("NOPAL_SEED") {
        Ok(seed) => try_seed(seed.parse().unwrap()),
        Err(_) => (0..60).for_each(try_seed),
    }
}
