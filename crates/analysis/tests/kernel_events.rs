//! Kernel events in the formats of other tools.

use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Excerpt, Format, Look, dump, function};
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{By, Group, distributions, of_tracer};
use nopal_analysis::names::Names;
use nopal_analysis::tracers::Tracer;
use nopal_analysis::values::ValueSelection;
use nopal_trace::synthetic::{self, Shape};
use nopal_trace::{
    KernelEvent, KernelFlags, KernelRecord, Session, Task, TaskState, Trace, Writer,
};

fn task(thread: u32, priority: i32, name: &[u8]) -> Task {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name);
    Task {
        thread,
        priority,
        name: bytes,
    }
}

fn made() -> (tempfile::TempDir, Trace) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = Writer::create(&path, Session::default()).unwrap();
    let (softirq, balance) = (task(8, 49, b"ksoftirqd/2"), task(11, 115, b"group_balance"));
    let idle = task(0, 120, b"swapper/2");
    let switch = |previous: Task, state, next| KernelEvent::Switch {
        previous,
        process: previous.thread,
        state: TaskState(state),
        next,
        flags: Some(KernelFlags {
            flags: 1,
            preempt_count: 3,
        }),
    };
    let wakeup = |task| KernelEvent::Wakeup {
        task,
        target: 2,
        waker_process: 8,
        waker: 8,
        is_new: false,
        flags: None,
    };
    let events = [
        switch(idle, b'R', softirq),
        wakeup(balance),
        switch(softirq, b'S', balance),
        switch(balance, b'S', idle),
        wakeup(task(9, 120, b"\x1b[31m\xff")),
    ];
    let records: Vec<KernelRecord> = (1_000_000u64..)
        .step_by(1000)
        .zip(events)
        .map(|(clock, event)| KernelRecord { clock, event })
        .collect();
    writer.system(2, &records).unwrap();
    writer.end_kernel_events().unwrap();
    let trace = Trace::open(&path).unwrap();
    (place, trace)
}

#[test]
fn switches_and_wake_ups_are_lines_as_tracers_of_linux_write_them() {
    let (_place, trace) = made();
    let lines = |excerpt| {
        let mut text = Vec::new();
        function(&trace, excerpt, Look::default(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    let expected = "CPU 2: <idle>:0  0:120:R --> 8:49 ksoftirqd/2
CPU 2: ksoftirqd/2:8  8 + 11:115 group_balance
CPU 2: ksoftirqd/2:8  8:49:S --> 11:115 group_balance
CPU 2: group_balance:11  11:115:S --> 0:120 <idle>
CPU 2: ?:8  8 + 9:120 \u{fffd}[31m\u{fffd}
";
    assert_eq!(lines(Excerpt::ALL), expected);
    let later = Excerpt {
        after: 1_000_000,
        until: 1_001_000,
    };
    let second = expected.lines().nth(1).unwrap();
    assert_eq!(
        lines(later).trim_end(),
        second,
        "who runs is known from before"
    );
}

#[test]
fn each_processor_is_a_track_with_what_ran_on_it() {
    let (_place, trace) = made();
    let mut text = Vec::new();
    dump(&trace, Format::Chrome, &Drive::default(), &mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let shown: Vec<String> = events
        .iter()
        .map(|event| {
            let name = event["name"].as_str().unwrap();
            let label = event["args"]["name"].as_str().unwrap_or_default();
            format!("{} {name}{label}", event["ph"].as_str().unwrap())
        })
        .collect();
    let expected = [
        "M process_nameprocessors",
        "M thread_nameCPU 2",
        "B ksoftirqd/2 8",
        "i wakes group_balance 11",
        "E ksoftirqd/2 8",
        "B group_balance 11",
        "E group_balance 11",
        "i wakes \u{fffd}[31m\u{fffd} 9",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn histograms_are_told_apart_by_where_calls_and_cases_ended() {
    let place = tempfile::tempdir().unwrap();
    let trace = |sleeps| {
        let path = place.path().join(format!("trace-{sleeps}"));
        let shape = Shape {
            calls_per_thread: 1000,
            sleeps,
            ..Shape::default()
        };
        synthetic::write(&path, &shape).unwrap();
        Trace::open(&path).unwrap()
    };
    let filter = Filter::default();
    let calls = |trace: &Trace| {
        let names = Names::new(trace);
        let what = ValueSelection::new(None, &names, trace.markers()).unwrap();
        let drive = Drive::default();
        let found = distributions(trace, &names, &what, &filter, By::Processor, &drive);
        found.map(|(groups, _)| groups)
    };
    let with = trace(100);
    let groups = calls(&with).unwrap();
    let count = |name: &str| {
        let group = groups.iter().find(|group| group.name == name);
        group.map_or(0, |group| group.distribution.count())
    };
    let counts = ["CPU 0", "CPU 1", "CPU not known"].map(count);
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 2 * 1000);
    let names = Names::new(&with);
    let wakeup = Tracer::named("wakeup").unwrap();
    let by = By::Processor;
    let (cases, past) = of_tracer(&with, &names, &wakeup, &filter, by, |_| ()).unwrap();
    let named: Vec<&str> = cases.iter().map(|group| group.name.as_str()).collect();
    assert!(
        named.iter().all(|name| ["CPU 0", "CPU 1"].contains(name)),
        "{named:?}"
    );
    let counts = cases.iter().map(|group| group.distribution.count());
    assert_eq!(counts.sum::<u64>(), past.cases);
    let what = ValueSelection::new(Some("wakeup"), &names, with.markers()).unwrap();
    let drive = Drive::default();
    let (same, of_same) = distributions(&with, &names, &what, &filter, by, &drive).unwrap();
    assert_eq!(of_same, past.describe());
    let counts = |groups: &[Group]| -> Vec<u64> {
        let counts = groups.iter().map(|group| group.distribution.count());
        counts.collect()
    };
    assert_eq!(counts(&same), counts(&cases));
    let error = distributions(&with, &names, &what, &filter, By::Function, &drive);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("grouped by thread"), "{error}");
    let error = calls(&trace(0)).err().unwrap().to_string();
    assert!(error.contains("nopal record -e sched"), "{error}");
}
