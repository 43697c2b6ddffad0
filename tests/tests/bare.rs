//! The kernel of `tests/bare`, a minimal kernel with nopal (`runtime/port/bare`): two processors, a timer, a serial
//! line for commands and one for data. Its records become a trace that nopal reads.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::time::Duration;

use nopal_tests::{Report, Running, Start, nopal, passed, scratch, sources};
use nopal_trace::{Field, FieldKind, Note, Session, Writer, event_number, synthetic};
use tempfile::TempDir;

/// The time for each answer of an emulated machine, which is slow beside other work.
const PATIENCE: Duration = Duration::from_secs(120);
const CHUNK_BYTES: usize = 65536;
const HEADER_BYTES: usize = 96;

/// A machine of two processors that runs the kernel.
struct Machine {
    running: Running,
    stdin: ChildStdin,
    directory: TempDir,
    read: usize,
}

impl Machine {
    fn boot() -> Machine {
        // nopal is built before the machine's time begins.
        nopal();
        let directory = scratch();
        let kernel = directory.path().join("kernel");
        let built = Command::new(sources().join("../bare/build"))
            .arg(&kernel)
            .output()
            .expect("the kernel's build runs");
        let error = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success() && error.is_empty(), "{error}");
        let mut start = Start::new(["qemu-system-x86_64"]);
        // With several threads, TCG may let a processor run code for ever that another has changed.
        let fixed = "-accel tcg,thread=single -cpu max -smp 2 -m 256M -nodefaults -no-reboot -display none -serial stdio";
        start.words.extend(fixed.split(' ').map(Into::into));
        let data = format!("file:{}", directory.path().join("data").display());
        start.words.extend(["-serial".into(), data.into()]);
        for option in ["-kernel", "-initrd"] {
            start.words.extend([option.into(), kernel.clone().into()]);
        }
        let mut running = start.spawn();
        running.be_patient(PATIENCE);
        running.wait_for(|text| text.ends_with("ready\n"));
        let stdin = running.stdin();
        let read = running.stdout().len();
        Machine {
            running,
            stdin,
            directory,
            read,
        }
    }

    /// Sends a line and returns the answer, whose last line ends with one of these words.
    fn answer(&mut self, line: &str, ends: &[&str]) -> String {
        self.stdin
            .write_all(format!("{line}\n").as_bytes())
            .expect("it listens");
        self.running.be_patient(PATIENCE);
        let read = self.read;
        let text = self.running.wait_for(|text| {
            let last = text[read..].strip_suffix('\n').unwrap_or_default();
            let last = last.rsplit('\n').next().unwrap_or_default();
            assert!(!last.starts_with("exception"), "{line}: {last}");
            ends.iter().any(|end| last.ends_with(end))
                || (last.starts_with("error: ") && ends.contains(&"error"))
        });
        self.read = text.len();
        text[read..].to_owned()
    }

    fn obey(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.answer(line, &["ok", "error"]), "ok\n", "{line}");
        }
    }

    /// The numbers before a word in the answer to a command of the kernel's own.
    fn numbers(&mut self, line: &str, word: &str) -> Vec<u64> {
        let answer = self.answer(line, &[word]);
        let last = answer.trim_end().rsplit('\n').next().unwrap_or_default();
        let numbers = last.split(' ').filter_map(|number| number.parse().ok());
        numbers.collect()
    }

    fn text(&mut self) -> u64 {
        self.numbers("!text", "text")[0]
    }

    fn state(&mut self) -> String {
        self.answer("", &["ok"])
    }

    fn lost(&mut self) -> u64 {
        let state = self.state();
        let lost = state.lines().find_map(|line| line.strip_prefix("#lost "));
        lost.expect("the state has a number of losses")
            .parse()
            .expect("a number")
    }

    /// The chunks of the data file, in order for each thread.
    fn chunks(&mut self) -> Vec<Vec<u8>> {
        self.numbers("!data", "sent");
        let data = fs::read(self.directory.path().join("data")).expect("the data file");
        let (mut chunks, mut rest) = (Vec::new(), &data[..]);
        while !rest.is_empty() {
            let bytes = word(rest, 5) as usize / 8;
            chunks.push(rest[..bytes].to_owned());
            rest = &rest[bytes..];
        }
        chunks.sort_by_key(|chunk| (thread_of(chunk), word(chunk, 8)));
        chunks
    }

    fn off(mut self) {
        self.stdin.write_all(b"!off\n").expect("it listens");
        self.running.wait();
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = bytes[index * 8..][..8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

fn thread_of(chunk: &[u8]) -> u32 {
    (word(chunk, 9) >> 32) as u32
}

const ENTRY: u64 = 1;
const EXIT: u64 = 2;
const TAIL: u64 = 3;
const HOLE: u64 = 12;
const EXTENDED: u64 = 15;

/// The clock, the kind, and the number that entry and exit of a call share.
fn records(chunk: &[u8]) -> Vec<(u64, u64, u64)> {
    const RESYNC: u64 = 16;
    const VARIABLE: u64 = 255;
    let (mut at, mut high, mut records) = (HEADER_BYTES / 8, 0, Vec::new());
    while at < chunk.len() / 8 {
        let first = word(chunk, at);
        let kind = first >> 32 & 15;
        at += if kind == EXTENDED {
            high = word(chunk, at + 1) >> 32;
            match (first >> 36 & 0xfffff, first >> 56) {
                (RESYNC, _) => 6,
                (_, VARIABLE) => 2 + word(chunk, at + 2) as u32 as usize,
                (_, words) => 1 + words as usize,
            }
        } else {
            1
        };
        records.push((high << 32 | first & 0xffff_ffff, kind, first >> 36));
    }
    records
}

/// Sums of the records of all chunks.
#[derive(Default)]
struct Sums {
    entries: u64,
    open: usize,
}

/// Goes through the records of each processor: clocks never go back, and each exit ends the innermost open entry.
fn follow(chunks: &[Vec<u8>]) -> Sums {
    let mut sums = Sums::default();
    let mut open: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    let (mut thread, mut before) = (0, 0);
    for chunk in chunks {
        if thread != thread_of(chunk) {
            (thread, before) = (thread_of(chunk), 0);
        }
        let stack = open.entry(thread).or_default();
        for (clock, kind, call) in records(chunk) {
            assert!(clock >= before, "thread {thread}: {clock} after {before}");
            before = clock;
            match kind {
                EXTENDED | HOLE => {}
                ENTRY | TAIL => {
                    sums.entries += 1;
                    stack.push((kind, call));
                }
                EXIT => {
                    // A function that was entered by a jump ends with the function that jumped.
                    while stack.pop_if(|(kind, _)| *kind == TAIL).is_some() {}
                    assert_eq!(stack.pop(), Some((ENTRY, call)), "thread {thread}");
                }
                _ => panic!("{kind} is no kind of this kernel's records"),
            }
        }
    }
    sums.open = open.values().map(Vec::len).sum();
    sums
}

/// Makes a trace of a machine's records.
fn trace(machine: &mut Machine, chunks: &[Vec<u8>], directory: &Path) -> PathBuf {
    const NUMBER: FieldKind = FieldKind::Unsigned(64);
    let directory = directory.join("trace");
    let sites = machine.answer("query *", &["ok"]);
    let state = machine.state();
    let mut writer = Writer::create(&directory, Session::default()).expect("a trace");
    let begin = chunks.iter().map(|chunk| word(chunk, 3)).min();
    let begin = begin.expect("there are chunks");
    let path = || "kernel".to_owned();
    let mut notes = vec![
        synthetic::clock(begin),
        Note::Process {
            process: 1,
            parent: 0,
            counter: begin,
            name: path(),
            executable: path(),
            arguments: Vec::new(),
        },
        Note::Image {
            image: 1,
            path: path(),
            identity: "00".into(),
        },
        Note::Module {
            process: 1,
            image: 1,
            counter: begin,
            base: 0,
            path: path(),
        },
    ];
    for line in sites.lines().filter_map(|line| line.strip_prefix("#site ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let address = u64::from_str_radix(words[1].trim_start_matches("0x"), 16);
        let (number, address) = (
            words[0].parse().expect("a number"),
            address.expect("an address"),
        );
        notes.push(Note::Sites {
            image: 1,
            sites: vec![(number, address, 16, words[2].into())],
        });
    }
    for line in state
        .lines()
        .filter_map(|line| line.strip_prefix("#marker "))
    {
        let (number, name) = line.split_once(' ').expect("a number and a name");
        let (format, fields) = match name {
            "work_thousand" => (
                "processor=%u done=%lu",
                [("processor", FieldKind::Unsigned(32)), ("done", NUMBER)],
            ),
            _ => (
                "name=%s sum=%lu",
                [("name", FieldKind::Text), ("sum", NUMBER)],
            ),
        };
        let fields = fields.map(|(name, kind)| Field {
            name: name.into(),
            kind,
            labels: Vec::new(),
        });
        notes.push(Note::Marker {
            event: event_number(number.parse().expect("a number"), &fields),
            image: 1,
            name: name.into(),
            format: format.into(),
            fields: fields.into(),
            file: "work.c".into(),
            line: 1,
            tracepoint: false,
        });
    }
    for note in &notes {
        writer.note(note).expect("a note");
    }
    let mut threads = Vec::new();
    for chunk in chunks {
        let thread = thread_of(chunk);
        if !threads.contains(&thread) {
            threads.push(thread);
            let name = format!("processor {}", thread - 1);
            let note = Note::Thread {
                process: 1,
                thread,
                begin: word(chunk, 10),
                name,
                kernel: false,
            };
            writer.note(&note).expect("a note");
        }
        let mut whole = chunk.clone();
        whole.resize(CHUNK_BYTES, 0);
        writer.chunk(&mut whole, true).expect("a packet");
    }
    let lost = machine.lost();
    let end = begin + 3_600_000_000_000;
    for note in [
        Note::Lost {
            process: 1,
            events: lost,
            reasons: Default::default(),
        },
        synthetic::clock(end),
        Note::End {
            counter: end,
            complete: true,
            why: "the machine was switched off".into(),
        },
    ] {
        writer.note(&note).expect("a note");
    }
    writer.sync_metadata().expect("metadata");
    directory
}

#[test]
fn calls_on_two_processors_are_recorded_exactly_beside_their_timers() {
    const TIMES: u64 = 10_000;
    let mut machine = Machine::boot();
    let before = machine.text();
    machine.obey(&["trace * new all", "trace all on", "mark work_* on"]);
    let on = machine.state();
    assert!(
        on.starts_with("trace * new all\ntrace all on\nmark work_* on\nstart\n#marker "),
        "{on}"
    );
    let sites = machine.answer("query * !count", &["ok"]);
    assert_eq!(sites.matches(" on\n").count(), 5, "{sites}");
    assert_ne!(machine.text(), before);
    let ran = machine.numbers(&format!("!run {TIMES}"), "ran");
    let [first, first_ticks, second, second_ticks] = ran[..] else {
        panic!("{ran:?}")
    };
    // (3i + 1) + (3(i + 1) + 1) + (6i + 1), summed.
    let sum: u64 = (0..TIMES).map(|i| 12 * i + 6).sum();
    assert_eq!((first, second), (sum, sum));
    let ticks = first_ticks + second_ticks;
    assert!(first_ticks > 0 && second_ticks > 0, "{ran:?}");
    machine.obey(&["trace all off", "mark work_* off"]);
    assert_eq!(machine.text(), before, "the text has changed");

    let chunks = machine.chunks();
    let sums = follow(&chunks);
    assert_eq!(sums.open, 0);
    let directory = scratch();
    let trace = trace(&mut machine, &chunks, directory.path());
    let report = Report::of(&trace);
    let calls = [
        ("work", 2),
        ("middle", 2 * TIMES),
        ("jump", 2 * TIMES),
        ("leaf", 6 * TIMES),
        ("tick", ticks),
        ("count", ticks),
    ];
    report.assert_calls(&calls.map(|(name, calls)| (name.to_owned(), calls)).into());
    assert_eq!(sums.entries, report.total_calls());
    let marks = passed(&trace);
    let count = |what: &str| marks.iter().filter(|mark| mark.contains(what)).count();
    for processor in 0..2 {
        for done in (0..TIMES).step_by(1000) {
            let mark = format!("work_thousand processor={processor} done={done}");
            assert_eq!(
                marks.iter().filter(|it| **it == mark).count(),
                1,
                "{mark}: {marks:?}"
            );
        }
    }
    assert_eq!(
        count(&format!("work_end name=\"first\" sum={sum}")),
        1,
        "{marks:?}"
    );
    assert_eq!(
        count(&format!("work_end name=\"second\" sum={sum}")),
        1,
        "{marks:?}"
    );
    assert_eq!(marks.len(), 22);
    assert_eq!(machine.lost(), 0);
    machine.off();
}

#[test]
fn functions_come_and_go_while_both_processors_run_them() {
    let mut machine = Machine::boot();
    let before = machine.text();
    machine.obey(&[
        "trace * new all",
        "trace leaf t*k new some",
        "mark * on",
        "stop",
    ]);
    let stopped = machine.text();
    assert_eq!(stopped, before, "a stopped machine records");
    // A round's records fit into a chunk: rounds may be lost, but no exit.
    machine.answer("!begin 300", &["begun"]);
    machine.obey(&["start"]);
    let lines = "trace all on;trace some on;trace all off;trace some off;mark * off;mark * on";
    let said = machine.answer(&format!("!switch 100 {lines}"), &["switched"]);
    assert!(!said.contains("error"), "{said}");
    let ended = machine.numbers("!end", "ended");
    assert!(ended[0] > 10, "{ended:?}");
    assert_eq!(ended[1], 0, "rounds with a wrong result");
    machine.obey(&["reset"]);
    assert_eq!(machine.text(), before, "the text has changed");
    let chunks = machine.chunks();
    let sums = follow(&chunks);
    assert!(sums.entries > 1000, "{}", sums.entries);
    assert_eq!(sums.open, 0);
    machine.off();
}

#[test]
fn what_is_lost_is_counted() {
    const TIMES: u64 = 60_000;
    let mut machine = Machine::boot();
    machine.obey(&["trace leaf new leaves", "trace leaves on"]);
    machine.numbers(&format!("!run {TIMES}"), "ran");
    machine.obey(&["trace leaves remove"]);
    let chunks = machine.chunks();
    assert_eq!(chunks.len(), 32, "all chunks were full");
    let records = chunks.iter().flat_map(|chunk| records(chunk));
    let exits = records.filter(|(_, kind, _)| *kind == EXIT).count() as u64;
    // A call whose entry is lost has no exit; every other call has an exit, or lost it.
    assert_eq!(exits + machine.lost(), 6 * TIMES);
    // Collected chunks can be used again.
    machine.obey(&["trace middle new more", "trace more on"]);
    machine.numbers("!run 100", "ran");
    assert_eq!(machine.chunks().len(), 34);
    machine.off();
}

#[test]
fn what_cannot_be_done_is_refused_with_words() {
    let mut machine = Machine::boot();
    let before = machine.text();
    machine.obey(&["trace leaf new leaves", "# nothing"]);
    let state = machine.state();
    let long = "x".repeat(200);
    let cases = [
        (
            "trace leaves onn".to_owned(),
            "expected new, on, off, count or remove, found \"onn\"",
        ),
        ("trace".to_owned(), "expected"),
        ("begone".to_owned(), "found \"begone\""),
        (
            "trace nobody on".to_owned(),
            "nobody: there is no such trace",
        ),
        (
            "trace nobody new n".to_owned(),
            "nobody: no function that can be traced",
        ),
        (
            "trace work.c:12 new n".to_owned(),
            "locations are addresses, ranges and globs here",
        ),
        (
            "trace leaf new leaves".to_owned(),
            "leaves: this trace exists",
        ),
        (
            format!("trace leaf new {long}"),
            "a name has at most 31 letters",
        ),
        (
            format!("trace {long} new n"),
            "and a glob or a list of locations 127",
        ),
        (
            format!("trace {}b new n", "*a".repeat(60)),
            "no function that can be traced",
        ),
        ("watch 1".to_owned(), "this command is not for this host"),
        ("trace \"leaf new n".to_owned(), "expected"),
        ("\u{1}\u{7f}".to_owned(), "expected"),
        (long.repeat(5), "expected"),
    ];
    for (line, why) in cases {
        let answer = machine.answer(&line, &["ok", "error"]);
        assert!(
            answer.starts_with("error: ") && answer.contains(why),
            "{line}: {answer}"
        );
    }
    for number in 1..16 {
        machine.obey(&[
            &format!("trace leaf new n{number}"),
            &format!("mark m{number} on"),
        ]);
    }
    machine.obey(&["mark m0 on"]);
    for line in ["trace leaf new n", "mark m on"] {
        let answer = machine.answer(line, &["ok", "error"]);
        assert!(answer.contains("there is no room"), "{answer}");
    }
    machine.obey(&["reset", "trace leaf new leaves"]);
    assert_eq!(machine.state(), state);

    // A site with changed bytes is left alone.
    machine.answer("!damage leaf", &["done"]);
    let damaged = machine.text();
    let answer = machine.answer("trace leaves on", &["ok", "error"]);
    assert!(answer.contains("were left alone"), "{answer}");
    assert_eq!(machine.text(), damaged);
    machine.answer("!mend leaf", &["done"]);
    machine.obey(&["start", "trace leaves off", "reset"]);
    assert_eq!(machine.text(), before, "the text has changed");
    machine.off();
}

/// `docs/porting.md` states this limit.
#[test]
fn the_port_has_at_most_400_lines() {
    let folder = sources().join("../../runtime/port/bare");
    let files = fs::read_dir(folder).expect("the port is there");
    let lines = files.map(|file| {
        let text = fs::read_to_string(file.expect("a file").path());
        text.expect("its text").lines().count()
    });
    assert!(lines.sum::<usize>() <= 400);
}
