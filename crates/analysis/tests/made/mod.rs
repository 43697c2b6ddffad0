//! A small trace with one of everything: two processes, threads, arguments and results, tail and entry-only calls,
//! an exception, a jump, a coroutine, a stray exit, calls that do not end, loss.

use std::path::Path;

use nopal_abi as abi;
use nopal_trace::synthetic::Recorder;
use nopal_trace::{Note, Session, Trace, Writer};

const TOP: u64 = 0x7ffd_0000_8008;
const BEGIN: u64 = 0x1_ffff_0000;

pub const MAIN: u32 = 1;
pub const PARSE: u32 = 2;
pub const READ: u32 = 3;
pub const NAMED: u32 = 4;
pub const DIVE: u32 = 5;
pub const YIELD: u32 = 6;
pub const ONCE: u32 = 7;
pub const ODD: u32 = 8;

pub fn trace(directory: &Path) -> Trace {
    let session = Session {
        uuid: "6e6f7061-6c6e-4f70-a16c-6e6f70616c21".into(),
        command: vec!["./made".into(), "--up".into()],
        directory: "/home/somebody".into(),
        hostname: "host".into(),
        kernel: "Linux 6.18".into(),
        cpu: "a processor".into(),
        cores: 2,
        start_realtime_ns: 1_700_000_000_000_000_000,
        options: vec!["--args".into()],
        ..Session::default()
    };
    let mut writer = Writer::create(directory, session).unwrap();
    for note in notes() {
        writer.note(&note).unwrap();
    }
    main_thread(&mut writer);
    second_thread(&mut writer);
    child(&mut writer);
    writer
        .note(&Note::Lost {
            process: 100,
            events: 3,
            reasons: [("no_room".to_owned(), 2), ("other\u{1b}".to_owned(), 1)].into(),
        })
        .unwrap();
    writer
        .note(&Note::Exit {
            process: 101,
            counter: BEGIN + 1_000_000,
            status: Some(9),
        })
        .unwrap();
    writer
        .note(&Note::Exit {
            process: 100,
            counter: BEGIN + 9_000_000,
            status: Some(3 << 8),
        })
        .unwrap();
    writer.note(&clock(BEGIN + 10_000_000)).unwrap();
    let why = "the program ended".into();
    writer
        .note(&Note::End {
            counter: BEGIN + 10_000_000,
            complete: true,
            why,
        })
        .unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    Trace::open(directory).unwrap()
}

/// A counter of 2 GHz.
fn clock(counter: u64) -> Note {
    let ns = (counter - BEGIN) / 2;
    Note::Clock {
        counter,
        monotonic_ns: 5_000_000_000 + ns,
        realtime_ns: 1_700_000_000_000_000_000 + ns,
    }
}

fn notes() -> Vec<Note> {
    let process = |process, parent, name: &str| Note::Process {
        process,
        parent,
        counter: BEGIN,
        name: name.into(),
        executable: "/opt/made/bin/made".into(),
        arguments: vec!["./made".into(), "--up".into()],
    };
    let image = |image, path: &str| Note::Image {
        image,
        path: path.into(),
        identity: format!("{image:040x}"),
    };
    let module = |image, base, path: &str| {
        let (process, counter) = (100, BEGIN);
        Note::Module {
            process,
            image,
            counter,
            base,
            path: path.into(),
        }
    };
    let thread = |process, thread, begin, name: &str| Note::Thread {
        process,
        thread,
        begin,
        name: name.into(),
        kernel: false,
    };
    let made = vec![
        (MAIN, 0x1000, 0x84, "main".into()),
        (PARSE, 0x1100, 0x9e3, "_ZN4made5parseERKSs".into()),
        (NAMED, 0x2000, 0x40, "made+0x2000".into()),
        (DIVE, 0x3000, 0x20, "dive".into()),
        (YIELD, 0x3100, 0x30, "yield_to".into()),
        (ODD, 0x3200, 0, "odd \"name\"; with\nall".into()),
    ];
    let library = vec![
        (READ, 0xa00, 0x63, "read".into()),
        (ONCE, 0xb00, 0x10, "once".into()),
    ];
    vec![
        clock(BEGIN),
        process(100, 1, "made"),
        process(101, 100, "made"),
        image(1, "/opt/made/bin/made"),
        image(2, "/usr/lib/libmade.so.6"),
        module(1, 0x5555_5555_0000, "/opt/made/bin/made"),
        module(2, 0x7f00_0000_0000, "/usr/lib/libmade.so.6"),
        Note::Sites {
            image: 1,
            sites: made,
        },
        Note::Sites {
            image: 2,
            sites: library,
        },
        Note::Refused {
            image: 1,
            count: 2,
            reasons: vec![("shorter than 5 bytes".into(), 2)],
        },
        thread(100, 100, BEGIN, "made"),
        thread(100, 102, BEGIN + 50, "worker"),
    ]
}

/// Records with a clock that goes on.
struct Pen {
    recorder: Recorder,
    clock: u64,
}

impl Pen {
    fn new(process: u32, thread: u32, begin: u64) -> Pen {
        Pen {
            recorder: Recorder::new(process, thread, begin),
            clock: begin,
        }
    }

    fn wait(&mut self, ns: u64) -> &mut Pen {
        self.clock += 2 * ns;
        self
    }

    fn event(&mut self, kind: u32, site: u32, depth: u64) -> &mut Pen {
        self.with(kind, site, depth, &[])
    }

    fn with(&mut self, kind: u32, site: u32, depth: u64, words: &[u64]) -> &mut Pen {
        self.recorder
            .record(self.clock, kind, site, TOP - 0x40 * depth, words);
        self
    }

    fn jump(&mut self, depth: u64) -> &mut Pen {
        self.recorder
            .resync(self.clock, TOP - 0x40 * depth, abi::RESYNC_JUMP);
        self
    }

    fn finish(self, writer: &mut Writer) {
        self.recorder.finish(writer).unwrap();
    }
}

fn main_thread(writer: &mut Writer) {
    use abi::*;
    let mut pen = Pen::new(100, 100, BEGIN);
    pen.with(
        KIND_ENTRY_ARGS,
        MAIN,
        0,
        &[2, 0x7ffd_1234_5678, 0x7ffd_1234_5690, 0, 0, u64::MAX],
    );
    for call in 0..4 {
        pen.wait(500)
            .event(KIND_ENTRY, PARSE, 1)
            .wait(300)
            .event(KIND_ENTRY, READ, 2);
        pen.wait(1_000 * 10u64.pow(call))
            .with(KIND_EXIT_RESULT, READ, 2, &[u64::from(u32::MAX)]);
        pen.wait(200).event(KIND_EXIT, PARSE, 1);
    }
    // A jump out of a recursion, then calls in the same place, one of them ended by a tail call, one by an exception.
    for depth in 1..5 {
        pen.wait(10).event(KIND_ENTRY, DIVE, depth);
    }
    pen.wait(10)
        .jump(1)
        .event(KIND_ENTRY, READ, 1)
        .wait(40)
        .event(KIND_TAIL, NAMED, 1);
    pen.wait(30)
        .event(KIND_ONLY, ONCE, 2)
        .wait(30)
        .event(KIND_EXIT, READ, 1);
    pen.wait(5)
        .event(KIND_ENTRY, PARSE, 1)
        .wait(60)
        .event(KIND_ENTRY, ODD, 2);
    pen.wait(20)
        .event(KIND_UNWIND, ODD, 2)
        .wait(1)
        .event(KIND_UNWIND, PARSE, 1);
    // A recursion that returns.
    for depth in 1..4 {
        pen.wait(100).event(KIND_ENTRY, DIVE, depth);
    }
    for depth in (1..4).rev() {
        pen.wait(100).event(KIND_EXIT, DIVE, depth);
    }
    pen.wait(7).with(KIND_EXIT_RESULT, MAIN, 0, &[0]);
    pen.finish(writer);
}

/// Begins in the midst of a call, switches to a coroutine and back, loses events, and does not end.
fn second_thread(writer: &mut Writer) {
    use abi::*;
    let mut pen = Pen::new(100, 102, BEGIN + 50);
    let far = 0x10_0000;
    pen.wait(100)
        .event(KIND_EXIT, READ, 0)
        .wait(50)
        .event(KIND_ENTRY, YIELD, 1)
        .wait(25);
    pen.jump(far)
        .event(KIND_ENTRY, PARSE, far)
        .wait(2_000)
        .event(KIND_ENTRY, READ, far + 1)
        .wait(100);
    pen.jump(1)
        .event(KIND_EXIT, YIELD, 1)
        .wait(500)
        .event(KIND_ENTRY, YIELD, 1)
        .wait(25);
    pen.jump(far + 1)
        .event(KIND_EXIT, READ, far + 1)
        .wait(300)
        .event(KIND_EXIT, PARSE, far)
        .wait(75);
    pen.jump(1).event(KIND_EXIT, YIELD, 1).wait(10);
    pen.event(KIND_ENTRY, PARSE, 1)
        .wait(10)
        .event(KIND_ENTRY, READ, 2)
        .wait(10);
    pen.recorder.lose(3);
    pen.wait(1_000).event(KIND_ENTRY, DIVE, 1).wait(50);
    pen.finish(writer);
}

/// A forked child, which has its parent's modules, and a function that the trace does not describe.
fn child(writer: &mut Writer) {
    use abi::*;
    let mut pen = Pen::new(101, 101, BEGIN + 400);
    pen.wait(10)
        .event(KIND_ENTRY, ODD, 3)
        .wait(90)
        .event(KIND_ENTRY, 99, 4);
    pen.wait(50)
        .event(KIND_EXIT, 99, 4)
        .wait(1_500_000)
        .event(KIND_EXIT, ODD, 3);
    pen.finish(writer);
}

/// Characters that no reader may let through: commands for terminals, ends of lines, characters with a meaning in HTML,
/// JSON, XML or folded stacks, and those that turn text around.
#[allow(dead_code, reason = "some test programs use it")]
pub const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\u{7}\r\n\t\0\u{7f}<script>&amp;]]>;\"'\\\u{202e}\u{2066}\u{2028}\u{ffff}%s{0}";

/// Makes all texts of a trace's notes hostile, and one name of `long` characters. Names that belong to the format stay.
#[allow(dead_code, reason = "some test programs use it")]
pub fn make_hostile(trace: &Path, long: usize) {
    fn poison(value: &mut serde_json::Value) {
        const OWN: [&str; 5] = ["Text", "Bytes", "Character", "Double", "Address"];
        match value {
            serde_json::Value::String(text) if !OWN.contains(&text.as_str()) => {
                text.push_str(HOSTILE);
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(poison),
            serde_json::Value::Object(members) => members
                .iter_mut()
                .filter(|(name, _)| *name != "uuid")
                .for_each(|(_, value)| poison(value)),
            _ => {}
        }
    }
    let change = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        let lines = text.lines().map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            poison(&mut line[2]);
            if let Some(name) = line[2].pointer_mut("/Sites/sites/0/3") {
                *name = format!("{}{HOSTILE}", "x".repeat(long)).into();
            }
            // The checksum is computed again.
            format!("[\"00000000\",{},{}]\n", line[1], line[2])
        });
        lines.collect::<String>().into_bytes()
    };
    nopal_trace::synthetic::notes_again(trace, change).unwrap();
}
