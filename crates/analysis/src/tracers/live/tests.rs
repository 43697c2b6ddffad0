use nopal_abi as abi;

use super::*;

const LOCK: u32 = 1;
const UNLOCK: u32 = 2;
const GET: u32 = 3;
const PUT: u32 = 4;
const SLOT: u64 = 0x7008;
const TASK: TaskFacts = TaskFacts {
    uid: 1000,
    nice: -5,
    policy: 1,
    rt_prio: 50,
};
/// A counter of 1 GHz.
const SECOND: u64 = 1_000_000_000;

fn live(tracer: &str) -> (Live, LiveSubscriber) {
    let live = Live::new(&Tracer::parse(tracer).unwrap());
    let mut subscriber = live.subscriber(|_, _| Some(TASK));
    let names = [
        (LOCK, "pthread_mutex_lock"),
        (UNLOCK, "pthread_mutex_unlock"),
        (GET, "get"),
        (PUT, "put"),
    ];
    for (counter, monotonic_ns) in [(1000, 1000), (SECOND, SECOND)] {
        subscriber.note(&Note::Clock {
            counter,
            monotonic_ns,
            realtime_ns: 0,
        });
    }
    subscriber.note(&Note::Sites {
        image: 1,
        sites: names
            .map(|(site, name)| (site, 0x10, 5, name.to_owned()))
            .into(),
    });
    live.check().unwrap();
    (live, subscriber)
}

fn key(thread: u32) -> ThreadKey {
    ThreadKey {
        process: 1,
        thread,
        begin: 1,
    }
}

/// A record, behind a resync, which tells its whole clock.
fn publish(
    subscriber: &mut LiveSubscriber,
    thread: u32,
    clock: u64,
    kind: u32,
    site: u32,
    more: &[u64],
) {
    let resync = abi::Resync::new(clock, SLOT, 0, (0, 0), abi::RESYNC_CHUNK);
    let mut words = resync.words().to_vec();
    words.push(abi::Word::new(kind, site, SLOT, clock).0);
    words.extend_from_slice(more);
    subscriber.records(Batch {
        thread: key(thread),
        clock,
        words: &words,
        lossy: false,
    });
}

fn hold(subscriber: &mut LiveSubscriber, thread: u32, lock: u64, from: u64, until: Option<u64>) {
    let arguments = [lock, 0, 0, 0, 0, 0];
    publish(
        subscriber,
        thread,
        from - 1,
        abi::KIND_ENTRY_ARGS,
        LOCK,
        &arguments,
    );
    publish(subscriber, thread, from, abi::KIND_EXIT_RESULT, LOCK, &[0]);
    if let Some(until) = until {
        publish(
            subscriber,
            thread,
            until,
            abi::KIND_ONLY_ARGS,
            UNLOCK,
            &arguments,
        );
    }
}

#[test]
fn the_worst_is_known_when_all_has_been_heard() {
    let (live, mut subscriber) = live("lockhold");
    hold(&mut subscriber, 7, 0xa0, SECOND, Some(SECOND + 5_000));
    hold(&mut subscriber, 8, 0xa0, SECOND + 10, Some(SECOND + 90_000));
    subscriber.complete_until(SECOND + 6_000);
    let report = live.report();
    assert_eq!(report.cases, 1);
    subscriber.complete_until(SECOND + 90_000);
    subscriber.thread_ended(key(8));
    let worst = live.report().worst.unwrap();
    assert_eq!(
        (worst.ns, worst.case.key, worst.begin_thread),
        (89_990, 0xa0, key(8))
    );
    assert_eq!(worst.task, Some(TASK));
    let histogram = live.histogram(|_| true);
    assert_eq!(histogram.rows, [(5, 1), (89, 1)]);
    assert_eq!(histogram.most, worst.ns / 1000);
    live.reset();
    assert_eq!(live.report().worst, None);
    hold(
        &mut subscriber,
        7,
        0xa0,
        2 * SECOND,
        Some(2 * SECOND + 1_000),
    );
    subscriber.complete_until(3 * SECOND);
    assert_eq!(live.report().worst.unwrap().ns, 1_000);
    assert_eq!(live.report().cases, 3);
}

/// Kernel events come later than the records, and in another order.
#[test]
fn each_processor_has_a_histogram_of_the_cases_that_ended_on_it() {
    let (live, mut subscriber) = live("lockhold");
    let got = |clock: u64, thread: u32| {
        let event = KernelEvent::In { process: 1, thread };
        KernelRecord { clock, event }
    };
    hold(&mut subscriber, 7, 0xa0, SECOND, Some(SECOND + 5_000));
    hold(
        &mut subscriber,
        7,
        0xa0,
        SECOND + 6_000,
        Some(SECOND + 9_500),
    );
    hold(&mut subscriber, 8, 0xb0, SECOND, Some(SECOND + 7_000));
    subscriber.system(1, &[got(SECOND + 8_000, 7)]);
    subscriber.system(0, &[got(SECOND + 1_000, 7)]);
    subscriber.complete_until(SECOND + 10_000);
    let on = |processor| live.histogram(|on| on == processor).rows;
    assert_eq!(on(Some(0)), [(5, 1)]);
    assert_eq!(on(Some(1)), [(3, 1)]);
    assert_eq!(on(None), [(7, 1)]);
}

#[test]
fn with_a_threshold_the_last_cases_above_it_are_kept() {
    let (live, mut subscriber) = live("lockhold");
    live.set_threshold(2_000);
    for case in 1..=20 {
        let from = case * SECOND;
        hold(&mut subscriber, 7, 0xa0, from, Some(from + case * 1_000));
    }
    subscriber.complete_until(30 * SECOND);
    let report = live.report();
    let kept: Vec<u64> = report
        .kept
        .iter()
        .map(|finding| finding.ns / 1_000)
        .collect();
    assert_eq!(kept, Vec::from_iter(5..=20));
    assert_eq!(report.kept_before, 2);
}

#[test]
fn a_begin_without_an_end_is_given_up_and_told() {
    let (live, mut subscriber) = live("lockhold");
    hold(&mut subscriber, 7, 0xa0, SECOND, None);
    subscriber.complete_until(SECOND + TIMEOUT_NS);
    assert_eq!(live.report().given_up, []);
    subscriber.complete_until(SECOND + TIMEOUT_NS + 1);
    let report = live.report();
    let given_up = report.given_up[0];
    let notes = (
        given_up.case.key,
        given_up.case.begin,
        given_up.begin_thread,
    );
    assert_eq!(notes, (0xa0, SECOND, key(7)));
    assert_eq!((report.missing.never_ended, report.worst), (1, None));
}

/// One processor's counter is behind another's.
#[test]
fn a_clock_that_went_back_makes_no_case() {
    let (live, mut subscriber) = live("get.arg1..put.arg1");
    let request = [5, 0, 0, 0, 0, 0];
    publish(
        &mut subscriber,
        7,
        SECOND,
        abi::KIND_ONLY_ARGS,
        GET,
        &request,
    );
    subscriber.complete_until(SECOND + 100);
    publish(
        &mut subscriber,
        8,
        SECOND - 50,
        abi::KIND_ONLY_ARGS,
        PUT,
        &request,
    );
    subscriber.complete_until(SECOND + 200);
    let report = live.report();
    assert_eq!((report.cases, report.missing.clock_went_back), (0, 1));
}

#[test]
fn ends_that_are_counted_make_no_case() {
    use nopal_trace::SiteState::{Counted, Timed};
    let (live, mut subscriber) = live("get.arg1..put.arg1");
    let turn = |counter, state| Note::State {
        counter,
        state,
        sites: vec![PUT],
        kept: false,
        sampled: false,
    };
    let request = [5, 0, 0, 0, 0, 0];
    let call = |subscriber: &mut LiveSubscriber, clock, site| {
        publish(subscriber, 7, clock, abi::KIND_ONLY_ARGS, site, &request);
    };
    call(&mut subscriber, SECOND, GET);
    // Its end is not among the records; the next ones belong to another case.
    subscriber.note(&turn(SECOND + 10, Counted));
    call(&mut subscriber, SECOND + 20, PUT);
    subscriber.note(&turn(SECOND + 30, Timed));
    call(&mut subscriber, SECOND + 40, PUT);
    call(&mut subscriber, SECOND + 50, GET);
    call(&mut subscriber, SECOND + 57, PUT);
    subscriber.complete_until(SECOND + 100);
    let report = live.report();
    assert_eq!((report.cases, report.untimed), (1, 1));
    assert_eq!(report.worst.unwrap().ns, 7);
    assert_eq!(report.missing.ends_alone, 1);
}

#[test]
fn what_a_section_needs_may_be_inserted_after_it_listens() {
    let live = Live::new(&Tracer::parse("get.arg1..put.arg1").unwrap());
    let mut subscriber = live.subscriber(|_, _| Some(TASK));
    for (counter, monotonic_ns) in [(1000, 1000), (SECOND, SECOND)] {
        subscriber.note(&Note::Clock {
            counter,
            monotonic_ns,
            realtime_ns: 0,
        });
    }
    subscriber.complete_until(SECOND - 1);
    subscriber.note(&Note::Sites {
        image: 1,
        sites: [(GET, "get"), (PUT, "put")]
            .map(|(site, name)| (site, 0x10, 5, name.to_owned()))
            .into(),
    });
    let request = [5, 0, 0, 0, 0, 0];
    publish(
        &mut subscriber,
        7,
        SECOND,
        abi::KIND_ONLY_ARGS,
        GET,
        &request,
    );
    let later = SECOND + 70;
    publish(
        &mut subscriber,
        8,
        later,
        abi::KIND_ONLY_ARGS,
        PUT,
        &request,
    );
    subscriber.complete_until(SECOND + 100);
    assert_eq!(live.report().worst.unwrap().ns, 70);
}

#[test]
fn threads_are_put_in_order() {
    let (live, mut subscriber) = live("get.arg1..put.arg1");
    let request = [5, 0, 0, 0, 0, 0];
    publish(
        &mut subscriber,
        8,
        SECOND + 70,
        abi::KIND_ONLY_ARGS,
        PUT,
        &request,
    );
    publish(
        &mut subscriber,
        7,
        SECOND,
        abi::KIND_ONLY_ARGS,
        GET,
        &request,
    );
    subscriber.complete_until(SECOND + 100);
    let worst = live.report().worst.unwrap();
    assert_eq!(
        (worst.ns, worst.begin_thread, worst.end_thread),
        (70, key(7), key(8))
    );
}
