//! Tracers of latency on a running program, by the files of the tracing folder.

use nopal_tests::mounted::Mounted;
use nopal_tests::process::wait_until;
use nopal_tests::{Awake, c};

/// The program's long delays, in milliseconds.
const LONG: u64 = 30;

/// How long a thread sleeps to be off its processor for a long delay: the timer begins before the thread leaves the
/// processor, and other threads may run in between.
const SLEEP: u64 = LONG + 20;

struct Delays {
    mounted: Mounted,
    done: u32,
}

impl Delays {
    fn new() -> Delays {
        Delays {
            mounted: Mounted::new(c("delays", &[]), "done 0\n", "inside_handler"),
            done: 0,
        }
    }

    fn make(&mut self, delay: &str) {
        self.done += 1;
        let said = format!("done {}\n", self.done);
        self.mounted.tell(delay, &said);
    }

    /// The output of a script in the tracing folder.
    fn tracing(&self, script: &str) -> String {
        self.mounted.good(&format!("cd tracing; {script}"))
    }

    fn worst(&self) -> u64 {
        let shown = self.tracing("cat tracing_max_latency");
        shown.trim().parse().unwrap()
    }

    /// The number of cases in a file of histograms.
    fn samples(&self, file: &str) -> u64 {
        let text = self.tracing(&format!("cat latency_hist/{file}"));
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("#Total samples: "));
        let total: u64 = total.expect(&text).parse().unwrap();
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let rows = rows.map(|row| row.split_whitespace().nth(1).unwrap());
        let sum: u64 = rows.map(|count| count.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, total, "{text}");
        total
    }

    fn wait_for_worst(&self, ms: u64) {
        let what = format!(
            "a delay of {}",
            self.tracing("cat current_tracer").trim_end()
        );
        wait_until(&what, || self.worst() >= ms * 1000);
    }
}

/// The latencies in a latency trace, in microseconds.
fn latencies(text: &str) -> Vec<u64> {
    let values = text
        .lines()
        .filter_map(|line| line.strip_prefix(" latency: "));
    let values = values.map(|rest| rest.split(' ').next().unwrap().parse().unwrap());
    values.collect()
}

#[test]
fn each_tracer_tells_of_the_delay_that_is_its_own() {
    let _awake = Awake::new();
    let mut delays = Delays::new();
    delays
        .mounted
        .good("echo 'section get.arg1 put.arg1 new request' >ctl");
    let long = [
        ("lockhold", "hold 3", LONG),
        ("lockwait", "wait", LONG),
        ("sigoff", "block", LONG),
        ("critical", "block", LONG),
        ("request", "request 7", LONG),
        ("offcpu", "hold 1", SLEEP),
        ("blocked", "hold 1", SLEEP),
    ];
    let names = delays.tracing("cat available_tracers");
    for (tracer, delay, ms) in long {
        assert!(names.split_whitespace().any(|name| name == tracer));
        delays.tracing(&format!("echo {tracer} >current_tracer"));
        assert_eq!(delays.tracing("cat current_tracer"), format!("{tracer}\n"));
        delays.make(&format!("{delay} {ms}"));
        delays.wait_for_worst(LONG);
        // A longer case, caused by the processor, may come between the two reads.
        wait_until("the trace is of the worst case", || {
            let text = delays.tracing("cat latency_trace");
            let title = format!("{tracer} latency trace v1.1.5 on ");
            assert!(text.starts_with(&title), "{text}");
            latencies(&text) == [delays.worst()]
        });
        let file = match tracer {
            "request" => "section",
            name => name,
        };
        assert!(delays.samples(file) > 0, "{tracer}");
        // A case may come between the reads of the two files as well.
        wait_until("the histogram has the worst case", || {
            let both = delays.tracing(&format!("cat latency_hist/{file} tracing_max_latency"));
            let worst = both.lines().next_back().unwrap();
            both.contains(&format!("#Maximum latency: {worst} microseconds\n"))
        });
        delays.tracing("echo 0 >tracing_on; echo 0 >tracing_max_latency");
        assert_eq!(delays.tracing("cat tracing_on"), "1\n", "tracing is on");
        delays.make(&format!("{delay} {}", 1 + ms - LONG));
        wait_until("a delay after the reset is shown", || {
            delays.worst() >= 1000
        });
    }
    delays.tracing("echo disable >current_tracer");
    assert_eq!(delays.tracing("cat current_tracer"), "nop\n");
    assert_eq!(
        delays.tracing("cat latency_hist/lockhold"),
        "# lockhold is off\n"
    );
    delays.mounted.end(5);
}

/// The function tracer's files tell the callers' offsets. A function that another trace had before gets another jump.
#[test]
fn the_function_tracer_tells_where_in_their_callers_functions_are_called() {
    let mut delays = Delays::new();
    delays
        .mounted
        .good("echo 'trace inside_handler new before' >ctl; echo 'trace before on' >>ctl");
    delays.make("catch 1");
    delays.tracing("echo inside_handler handler >set_ftrace_filter");
    delays.tracing("echo function >current_tracer");
    delays.make("catch 1");
    for (file, between) in [("trace", " <-- "), ("latency_trace", " (")] {
        let text = delays.tracing(&format!("cat {file}"));
        let mut lines = text.lines().rev();
        let line = lines.find(|line| line.contains("inside_handler+0x0/"));
        let (_, caller) = line.expect(&text).split_once(between).expect(&text);
        let offset = caller.strip_prefix("handler+0x").expect(caller);
        let (offset, size) = offset.split_once("/0x").expect(caller);
        let [offset, size] = [offset, size.trim_end_matches(')')]
            .map(|number| u64::from_str_radix(number, 16).expect(caller));
        assert!(0 < offset && offset < size, "{caller}");
    }
    delays.tracing("echo nop >current_tracer");
    delays.mounted.end(5);
}

/// Tracers that measure nothing have header and lines in both versions, with addresses and without.
#[test]
fn what_is_only_recorded_has_a_latency_trace_too() {
    let mut delays = Delays::new();
    delays.tracing("echo inside_handler >set_ftrace_filter; echo function >current_tracer");
    delays.make("catch 1");
    for tracer in ["function", "events", "sched_switch"] {
        delays.tracing(&format!("echo {tracer} >current_tracer"));
        delays.make("catch 1");
        let title = format!("{tracer} latency trace v1.1.5 on ");
        let shown = |options: &str| {
            delays.tracing(&format!("echo '{options}' >iter_ctrl; cat latency_trace"))
        };
        let short = shown("noverbose symonly");
        assert!(short.starts_with(&title), "{short}");
        assert!(
            short.contains(" (uid:") && !short.contains("uid:-"),
            "{short}"
        );
        let line = |text: &str| {
            let line = text
                .lines()
                .find(|line| line.contains("inside_handler+0x0/"));
            line.expect(text).to_owned()
        };
        assert!(
            line(&short).contains("us") && !line(&short).contains('<'),
            "{short}"
        );
        assert!(line(&shown("nosymonly")).contains(" <"));
        let verbose = shown("verbose");
        assert!(line(&verbose).contains("ms (+"), "{verbose}");
        assert!(verbose.starts_with(&title), "{verbose}");
    }
    delays.tracing("echo nop >current_tracer");
    delays.mounted.end(5);
}

/// One descriptor is written, read to its end, and read again from its begin, as devtrace's users do.
#[test]
fn a_file_that_is_read_again_shows_what_holds_then() {
    use std::io::{Read, Seek, Write};
    let delays = Delays::new();
    let ctl = format!("mount/{}/ctl", delays.mounted.program.id());
    let ctl = delays.mounted.scratch.path().join(ctl);
    let mut open = std::fs::OpenOptions::new();
    let mut ctl = open.read(true).write(true).open(&ctl).unwrap();
    ctl.write_all(b"threshold 55\n").unwrap();
    let mut read = || {
        let mut text = String::new();
        ctl.rewind().unwrap();
        ctl.read_to_string(&mut text).unwrap();
        text
    };
    assert!(read().contains("\nthreshold 55\n"));
    delays.tracing("echo 77 >tracing_thresh");
    assert!(read().contains("\nthreshold 77\n"));
    delays.tracing("echo 0 >tracing_thresh");
    assert!(!read().contains("threshold"));
}

#[test]
fn what_is_recorded_stands_in_the_worst_case_in_either_version() {
    let mut delays = Delays::new();
    delays.mounted.good(
        "echo 'trace {handler,inside_handler} new handlers' >ctl; echo 'trace handlers on' >>ctl",
    );
    delays.tracing("echo lockhold >current_tracer");
    delays.make(&format!("catch {LONG}"));
    delays.wait_for_worst(LONG);
    let short = delays.tracing("cat latency_trace");
    let line = short
        .lines()
        .find(|line| line.contains(": inside_handler+"));
    let line = line.expect(&short);
    assert!(line.contains("----1 ") && line.contains("us!: "), "{short}");
    assert!(line.contains(" (handler+-/0x"), "{short}");
    assert!(short.contains("||||| time  |   caller"), "{short}");
    let options = delays.tracing("echo verbose >iter_ctrl; cat trace_options");
    assert_eq!(options, "symonly\nverbose\n");
    let verbose = delays.tracing("cat latency_trace");
    let line = verbose
        .lines()
        .find(|line| line.contains(": inside_handler+"));
    let line = line.expect(&verbose);
    assert!(line.contains(" 00000001 0000000"), "{verbose}");
    assert!(line.contains("ms (+"), "{verbose}");
    delays.tracing("echo noverbose >trace_options; echo nosymonly >>trace_options");
    let addresses = delays.tracing("cat latency_trace");
    let address = |text: &str| {
        text.lines()
            .any(|line| line.contains(" <") && line.contains('>'))
    };
    assert!(address(&addresses) && !address(&short), "{addresses}");
    assert_eq!(latencies(&addresses), latencies(&verbose));
    delays.mounted.end(5);
}

#[test]
fn with_a_threshold_every_case_above_it_is_kept() {
    let mut delays = Delays::new();
    delays.tracing("echo lockhold >current_tracer; echo 20000 >tracing_thresh");
    for _ in 0..3 {
        delays.make(&format!("hold 5 {LONG}"));
    }
    let kept = || latencies(&delays.tracing("cat latency_trace"));
    wait_until("all are shown", || kept().len() >= 3);
    assert!(kept().iter().all(|latency| *latency >= 20_000));
    delays.tracing("echo 0 >tracing_max_latency");
    assert!(kept().is_empty());
    assert_eq!(delays.tracing("cat tracing_thresh"), "20000\n");
    delays.mounted.end(5);
}

#[test]
fn a_case_stands_in_the_histogram_of_the_processor_that_it_ended_on() {
    let _awake = Awake::new();
    let mut delays = Delays::new();
    delays.tracing("echo wakeup >current_tracer");
    delays.make("sleep 20");
    wait_until("wake-ups are shown", || delays.samples("wakeup") >= 20);
    let folders = delays.tracing("ls -d latency_hist/cpu*");
    let folders: Vec<&str> = folders
        .lines()
        .map(|line| line.trim_start_matches("latency_hist/"))
        .collect();
    let sum = || -> u64 {
        let of = |folder: &&str| delays.samples(&format!("{folder}/wakeup"));
        folders.iter().map(of).sum()
    };
    // The program waits for a line: soon every case is counted.
    wait_until("each case is in one histogram", || {
        sum() == delays.samples("wakeup")
    });
    let file = delays.tracing("cat latency_hist/cpu0/wakeup");
    assert!(!file.contains("Not known"), "{file}");
    delays.mounted.end(5);
}

#[test]
fn what_cannot_be_traced_is_refused_and_told() {
    let delays = Delays::new();
    let before = delays.tracing("cat current_tracer");
    let section = "section get.arg1 put.arg1 new request";
    delays.mounted.good(&format!("echo '{section}' >ctl"));
    delays.mounted.good(&format!("echo '{section}' >ctl"));
    for (command, why) in [
        (
            "section get put new request",
            "there is a section \"request\" already, from get.arg1 to put.arg1",
        ),
        (
            "section get put new lockhold",
            "is the name of another tracer or trace",
        ),
        ("tracer lockhod on", "there is no tracer \"lockhod\""),
    ] {
        let said = delays.mounted.bad(&format!("echo '{command}' >>ctl"));
        assert!(said.contains("Invalid argument"), "{said}");
        let log = delays.tracing("cat error_log");
        assert!(log.lines().last().unwrap().contains(why), "{log}");
    }
    for (file, value) in [
        ("current_tracer", "lockhod"),
        ("tracing_thresh", "-1"),
        ("tracing_max_latency", "5"),
    ] {
        let said = delays.mounted.bad(&format!("echo {value} >tracing/{file}"));
        assert!(said.contains("Invalid argument"), "{file}: {said}");
    }
    delays
        .mounted
        .good("echo 'section get nothing new other' >ctl");
    let said = delays.mounted.bad("echo 'tracer other on' >>ctl");
    assert!(said.contains("Invalid argument"), "{said}");
    let log = delays.tracing("cat error_log");
    assert!(log.contains("is named \"nothing\""), "{log}");
    assert_eq!(delays.tracing("cat current_tracer"), before);
    delays.mounted.end(5);
}

#[test]
fn switches_come_through_the_pipe_where_no_function_is_recorded() {
    let _awake = Awake::new();
    let mut delays = Delays::new();
    delays.tracing("echo sched_switch >current_tracer; > trace");
    assert_eq!(delays.tracing("cat current_tracer"), "sched_switch\n");
    delays.make("sleep 20");
    let head = delays.tracing("timeout 60 head -n 5 trace_pipe 2>/dev/null");
    for line in head.lines() {
        assert!(line.starts_with("CPU ") && line.contains(" --> "), "{head}");
    }
    assert_eq!(head.lines().count(), 5, "{head}");
    let trace = delays.tracing("cat trace");
    assert!(trace.starts_with("# tracer: sched_switch\n"), "{trace}");
    assert!(trace.contains("delays:"), "{trace}");
    assert!(!trace.contains(" + "), "no wake-ups: {trace}");
    delays.tracing("echo nop >current_tracer");
    delays.mounted.end(5);
}
