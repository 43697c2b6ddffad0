//! Calls in the kernel stand inside the calls of the program that led there.

use std::collections::HashMap;
use std::path::Path;

use nopal_analysis::drive::Drive;
use nopal_analysis::report;
use nopal_trace::synthetic::{self, Random, Recorder};
use nopal_trace::{Note, Session, Trace, Writer};

const PROCESS: u32 = 700;
const BEGIN: u64 = 0x1_fff0_0000;
/// Sites below are the program's.
const FIRST_OF_KERNEL: u32 = 100;
const USER_STACK: u64 = 0x7ffd_0000_8000;
const KERNEL_STACK: u64 = 0xffff_c900_0001_4000;
const INTERRUPT_STACK: u64 = 0xffff_c900_0000_0ff0;

#[derive(Default)]
struct Sum {
    calls: u64,
    total: u64,
    own: u64,
}

struct Call {
    site: u32,
    slot: u64,
    begin: u64,
    inside: u64,
}

/// Makes calls at random, and records those of the kernel in packets of their own.
struct Thread {
    own: Recorder,
    kernel: Recorder,
    calls: Vec<Call>,
    sums: HashMap<u32, Sum>,
    random: Random,
}

impl Thread {
    fn new(begin: u64, kernel_begin: u64, seed: u64) -> Thread {
        Thread {
            own: Recorder::new(PROCESS, PROCESS, begin),
            kernel: Recorder::new(PROCESS, PROCESS, kernel_begin),
            calls: Vec::new(),
            sums: HashMap::new(),
            random: Random::new(seed),
        }
    }

    fn is_in_kernel(&self) -> bool {
        self.calls
            .last()
            .is_some_and(|call| call.site >= FIRST_OF_KERNEL)
    }

    fn step(&mut self, clock: u64, may_enter: bool) {
        let deeper = self.calls.len() < 20 && self.random.below(2) == 0;
        if may_enter && (deeper || self.calls.is_empty()) {
            self.enter(clock);
        } else if !self.calls.is_empty() {
            self.leave(clock);
        }
    }

    fn enter(&mut self, clock: u64) {
        let stays = self.is_in_kernel();
        let to_kernel = stays || self.random.below(3) == 0;
        let depth = 0x30 * self.calls.len() as u64;
        let (first, stack) = match to_kernel {
            false => (1, USER_STACK),
            true if stays && self.random.below(8) == 0 => (FIRST_OF_KERNEL, INTERRUPT_STACK),
            true => (FIRST_OF_KERNEL, KERNEL_STACK),
        };
        let site = first + self.random.below(5) as u32;
        let slot = stack - depth;
        let recorder = if to_kernel {
            &mut self.kernel
        } else {
            &mut self.own
        };
        recorder.entry(clock, site, slot);
        self.calls.push(Call {
            site,
            slot,
            begin: clock,
            inside: 0,
        });
    }

    fn leave(&mut self, clock: u64) {
        let in_kernel = self.is_in_kernel();
        let Some(call) = self.calls.pop() else { return };
        let recorder = if in_kernel {
            &mut self.kernel
        } else {
            &mut self.own
        };
        recorder.exit(clock, call.site, call.slot);
        let took = clock - call.begin;
        let sum = self.sums.entry(call.site).or_default();
        sum.calls += 1;
        // A call within one of the same function adds nothing.
        if self.calls.iter().all(|under| under.site != call.site) {
            sum.total += took;
        }
        sum.own += took - call.inside;
        if let Some(under) = self.calls.last_mut() {
            under.inside += took;
        }
    }
}

fn writer(path: &Path) -> Writer {
    let mut writer = Writer::create(path, Session::default()).unwrap();
    // A counter of 1 GHz.
    writer.note(&synthetic::clock(BEGIN)).unwrap();
    for (image, path, first) in [(1, "/program", 1), (2, "kernel", FIRST_OF_KERNEL)] {
        let note = Note::Image {
            image,
            path: path.into(),
            identity: String::new(),
        };
        writer.note(&note).unwrap();
        let sites =
            (first..first + 5).map(|site| (site, u64::from(site) << 8, 16, format!("f{site}")));
        let sites = sites.collect();
        writer.note(&Note::Sites { image, sites }).unwrap();
    }
    writer
}

fn name(writer: &mut Writer, begin: u64, kernel: bool) {
    let note = Note::Thread {
        process: PROCESS,
        thread: PROCESS,
        begin,
        name: "worker".into(),
        kernel,
    };
    writer.note(&note).unwrap();
}

/// Two threads that had the same number, one after the other.
#[test]
fn the_kernel_s_calls_are_inside_the_program_s() {
    for seed in 1..30 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut writer = writer(&path);
        let mut clock = BEGIN;
        let mut sums: HashMap<u32, Sum> = HashMap::new();
        let mut of_kernel = None;
        let mut begins = Vec::new();
        for life in 0..2 {
            begins.push(clock);
            name(&mut writer, clock, false);
            let mut thread = Thread::new(clock, BEGIN + 1, seed * 2 + life);
            if let Some(kernel) = of_kernel.take() {
                thread.kernel = kernel;
            }
            for step in 0.. {
                let may_enter = step < 30_000;
                if !may_enter && thread.calls.is_empty() {
                    break;
                }
                clock += 1 + thread.random.below(1000);
                thread.step(clock, may_enter);
            }
            thread.own.finish(&mut writer).unwrap();
            for (site, sum) in thread.sums {
                let all = sums.entry(site).or_default();
                all.calls += sum.calls;
                all.total += sum.total;
                all.own += sum.own;
            }
            of_kernel = Some(thread.kernel);
            clock += 1_000_000;
        }
        name(&mut writer, BEGIN + 1, true);
        of_kernel.unwrap().finish(&mut writer).unwrap();
        drop(writer);

        let trace = Trace::open(&path).unwrap();
        let threads: Vec<u64> = trace.threads().iter().map(|thread| thread.begin).collect();
        assert_eq!(threads, begins, "seed {seed}");
        let report = report::functions(&trace, &Drive::default()).unwrap();
        assert_eq!(report.rows.len(), sums.len(), "seed {seed}");
        for row in &report.rows {
            let sum = &sums[&row.function[1..].parse::<u32>().unwrap()];
            let found = (row.calls, row.unfinished, row.total_ns, row.self_ns);
            assert_eq!(
                found,
                (sum.calls, 0, sum.total, sum.own),
                "seed {seed}: {row:?}"
            );
        }
    }
}

/// A call that never returned is not the caller of what follows, and a return of a call that began before counts.
#[test]
fn calls_in_the_kernel_without_an_end_or_a_begin() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let mut writer = writer(&path);
    name(&mut writer, BEGIN, false);
    name(&mut writer, BEGIN + 1, true);
    let mut own = Recorder::new(PROCESS, PROCESS, BEGIN);
    let mut kernel = Recorder::new(PROCESS, PROCESS, BEGIN + 1);
    let at = |time: u64| BEGIN + time;
    own.entry(at(10), 1, USER_STACK);
    kernel.exit(at(20), 100, KERNEL_STACK);
    own.entry(at(30), 2, USER_STACK - 0x30);
    kernel.entry(at(40), 101, KERNEL_STACK);
    kernel.entry(at(50), 102, KERNEL_STACK - 0x40);
    own.exit(at(70), 2, USER_STACK - 0x30);
    kernel.entry(at(80), 103, KERNEL_STACK);
    kernel.entry(at(81), 104, KERNEL_STACK - 0x40);
    kernel.exit(at(90), 103, KERNEL_STACK);
    own.exit(at(100), 1, USER_STACK);
    own.finish(&mut writer).unwrap();
    kernel.finish(&mut writer).unwrap();
    drop(writer);
    let trace = Trace::open(&path).unwrap();
    let report = report::functions(&trace, &Drive::default()).unwrap();
    let row = |site: u32| {
        let row = report
            .rows
            .iter()
            .find(|row| row.function == format!("f{site}"));
        let row = row.unwrap_or_else(|| panic!("f{site}: {report:?}"));
        (row.calls, row.unfinished, row.total_ns, row.self_ns)
    };
    assert_eq!(row(1), (1, 0, 90, 90 - 40 - 10));
    assert_eq!(row(2), (1, 0, 40, 30));
    assert_eq!(row(100), (0, 1, 0, 0));
    assert_eq!(row(101), (1, 1, 10, 10));
    assert_eq!(row(102), (1, 1, 0, 0));
    assert_eq!(row(103), (1, 0, 10, 1));
    assert_eq!(row(104), (1, 1, 9, 9));
}
