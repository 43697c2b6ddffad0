//! The files, used as a shell and other programs use them.

mod common;

use common::{Fake, PROCESS, cat, echo, read_all};
use nopal_control::{Access, Content, Control, File, Mode};

const READ: Access = Access {
    read: true,
    write: false,
    truncate: false,
};
const WRITE: Access = Access {
    read: false,
    write: true,
    truncate: false,
};

struct Session {
    control: Control,
    fake: Fake,
}

impl Session {
    fn new() -> Session {
        Session {
            control: Control::new(),
            fake: Fake::new(),
        }
    }

    fn cat(&mut self, path: &str) -> String {
        cat(&mut self.control, &mut self.fake, path)
    }

    fn echo(&mut self, text: &str, path: &str) {
        echo(&mut self.control, &mut self.fake, text, path, false)
            .unwrap_or_else(|error| panic!("echo {text} > {path}: {error}"));
    }

    fn append(&mut self, text: &str, path: &str) {
        echo(&mut self.control, &mut self.fake, text, path, true).unwrap();
    }

    fn refused(&mut self, text: &str, path: &str) -> String {
        let error = echo(&mut self.control, &mut self.fake, text, path, false).unwrap_err();
        error.message
    }

    fn open(&mut self, path: &str, access: Access) -> File {
        self.control.open(&mut self.fake, path, access).unwrap()
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) {
        self.control.write(&mut self.fake, file, bytes).unwrap();
    }
}

#[test]
fn all_that_is_listed_opens() {
    let mut session = Session::new();
    let mut names = Vec::new();
    let of_processor = "tracing/latency_hist/cpu0";
    let folders = ["", "tracing", "tracing/latency_hist", of_processor];
    for folder in folders {
        for entry in Control::list(folder).unwrap() {
            let path = format!("{folder}/{}", entry.name);
            let path = path.trim_start_matches('/');
            if entry.folder {
                assert!(folders.contains(&path) || path.starts_with("tracing/latency_hist/cpu"));
                assert_eq!(entry.mode, 0o700);
                continue;
            }
            for (access, bit) in [(READ, 0o400), (WRITE, 0o200)] {
                let opened = session.control.open(&mut session.fake, path, access);
                assert_eq!(opened.is_ok(), entry.mode & bit != 0, "{path}");
                assert!(opened.is_ok_and(|_| true) || entry.mode & bit == 0);
            }
            names.push(path.to_owned());
        }
    }
    for name in [
        "ctl",
        "trace",
        "tracing/trace_pipe",
        "tracing/set_ftrace_filter",
        "tracing/latency_hist/wakeup",
        "tracing/latency_hist/cpu0/wakeup",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    for name in [
        "tracing/latency_hist",
        "tracing/stack_trace",
        "clt",
        "tracing",
        "../ctl",
    ] {
        let error = session
            .control
            .open(&mut session.fake, name, READ)
            .err()
            .unwrap();
        assert_eq!(error.number, libc::ENOENT, "{name}");
    }
    for folder in [
        "events",
        "tracing/latency_hist/cpu",
        "tracing/latency_hist/cpu4294967295",
        "tracing/latency_hist/cpu0/cpu0",
    ] {
        assert!(Control::list(folder).is_err(), "{folder}");
    }
    assert_eq!(
        session
            .control
            .open(&mut session.fake, "trace", WRITE)
            .err()
            .unwrap()
            .number,
        libc::EACCES
    );
}

#[test]
fn devtrace_lines() {
    let mut session = Session::new();
    session.echo("trace main parse_line new p", "ctl");
    session.echo("trace p on", "ctl");
    session.echo("start", "ctl");
    session.fake.call(&["main", "parse_line"]);
    let zeroes = ["0000000000000000"; 4].join(" ");
    let expected = format!(
        "E 000055d0e4c011e0 00000001000186a0 0000000000001267 {zeroes}\n\
         E 000055d0e4c01220 0000000100030d40 0000000000001267 {zeroes}\n\
         X - 00000001000493e0 0000000000001267 {zeroes}\n\
         X - 0000000100061a80 0000000000001267 {zeroes}\n"
    );
    assert_eq!(session.cat("trace"), expected);
    assert_eq!(session.cat("trace"), expected, "reading does not consume");
    session.fake.call(&["main"]);
    assert_eq!(session.cat("trace").lines().count(), 6);
}

#[test]
fn reading_in_any_pieces_gives_the_same() {
    let mut session = Session::new();
    session.echo("function", "tracing/current_tracer");
    session.echo("1", "tracing/tracing_on");
    for _ in 0..1000 {
        session.fake.call(&["main", "parse_line", "malloc"]);
    }
    for path in ["ctl", "trace", "tracing/trace"] {
        let whole = session.cat(path);
        let mut file = session.open(path, READ);
        assert_eq!(read_all(&mut file, 1 << 20), whole);
        assert_eq!(read_all(&mut file, 77), whole, "from the begin once more");
        let middle = whole.len() as u64 / 2;
        let at = |file: &mut File, offset| match file.read(offset, 10).unwrap() {
            Content::Bytes(bytes) => bytes,
            Content::Later => panic!("{path}"),
        };
        for offset in [
            middle,
            3,
            middle,
            whole.len() as u64,
            whole.len() as u64 + 9,
            u64::MAX - 20,
        ] {
            let from = (offset as usize).min(whole.len());
            let end = (from + 10).min(whole.len());
            assert_eq!(
                at(&mut file, offset),
                whole.as_bytes()[from..end],
                "{path} at {offset}"
            );
        }
    }
    // Nobody reads the rest.
    let mut file = session.open("trace", READ);
    file.read(0, 10).unwrap();
}

#[test]
fn a_file_shows_what_held_when_it_was_opened() {
    let mut session = Session::new();
    let mut file = session.open("ctl", READ);
    let before = session.cat("ctl");
    session.echo("trace main new m", "ctl");
    assert_eq!(read_all(&mut file, 10), before);
    assert_ne!(session.cat("ctl"), before);
}

#[test]
fn lines_that_a_copy_cuts_are_put_together() {
    let mut session = Session::new();
    let mut commands = String::new();
    for number in 0..1000 {
        commands += &format!("trace parse_line new number_{number}\n");
    }
    // As `cp` does: whole blocks, and a rest.
    let mut file = session.open("ctl", WRITE);
    for block in commands.as_bytes().chunks(4096) {
        session.write(&mut file, block);
    }
    session.control.close(&mut session.fake, file).unwrap();
    assert_eq!(session.cat("ctl").matches("new number_").count(), 1000);

    // As a program that counts on `write` alone: no end of line, and it holds at once.
    let mut file = session.open("ctl", WRITE);
    session.write(&mut file, b"start");
    assert!(session.cat("ctl").ends_with("\nstart\n"));
    session.write(&mut file, b"stop");
    assert!(session.cat("ctl").ends_with("\nstop\n"));
    session.control.close(&mut session.fake, file).unwrap();

    // As `dd bs=1` does.
    let mut file = session.open("ctl", WRITE);
    for byte in b"trace main new m\ntrace m on\nuniform on" {
        session.write(&mut file, &[*byte]);
    }
    assert!(session.cat("ctl").contains("\ntrace m on\n"));
    assert!(session.cat("ctl").contains("\nuniform off\n"));
    session.control.close(&mut session.fake, file).unwrap();
    assert!(session.cat("ctl").contains("\nuniform on\n"));
    session.echo("uniform off", "ctl");

    // A last block that is full, without an end of line.
    let mut file = session.open("ctl", WRITE);
    let block = format!("{:>4096}", "start");
    session.write(&mut file, block.as_bytes());
    assert!(session.cat("ctl").ends_with("\nstop\n"));
    session.control.close(&mut session.fake, file).unwrap();
    assert!(session.cat("ctl").ends_with("\nstart\n"));
}

#[test]
fn errors_are_kept_to_be_read() {
    let mut session = Session::new();
    assert_eq!(session.cat("tracing/error_log"), "");
    let message = session.refused("trace p onn", "ctl");
    assert_eq!(session.cat("tracing/error_log"), format!("{message}\n"));
    for (text, path, expected) in [
        (
            "hwlat",
            "tracing/current_tracer",
            "\"hwlat\": expected function, events, sched_switch, lockhold, lockwait, sigoff, critical, wakeup, wakeup_all, offcpu, blocked, preempted, nop or disable",
        ),
        (
            "functon",
            "tracing/current_tracer",
            "\"functon\": expected function, events, sched_switch, lockhold, lockwait, sigoff, critical, wakeup, wakeup_all, offcpu, blocked, preempted, nop or disable; the nearest is function",
        ),
        ("2", "tracing/tracing_on", "\"2\": expected 0 or 1"),
        (
            "symnly",
            "tracing/trace_options",
            "\"symnly\": expected symonly, nosymonly, verbose or noverbose; the nearest are symonly, nosymonly",
        ),
        (
            "-1",
            "tracing/buffer_size_kb",
            "\"-1\": expected a number of KiB",
        ),
        (
            "4711 x",
            "tracing/set_ftrace_pid",
            "\"4711 x\": expected process and thread ids",
        ),
        (
            "parse_lien",
            "tracing/set_ftrace_filter",
            "\"parse_lien\": no function matches parse_lien; the nearest are parse_line, parse_file, parse_char",
        ),
    ] {
        assert_eq!(session.refused(text, path), expected);
        assert!(
            session
                .cat("tracing/error_log")
                .ends_with(&format!("{expected}\n"))
        );
    }
    session
        .control
        .open(
            &mut session.fake,
            "tracing/error_log",
            Access {
                truncate: true,
                ..WRITE
            },
        )
        .unwrap();
    assert_eq!(session.cat("tracing/error_log"), "");
    let mut file = session.open("ctl", WRITE);
    let error = session
        .control
        .write(&mut session.fake, &mut file, b"st\xffart\n")
        .unwrap_err();
    assert_eq!(error.number, libc::EINVAL);
}

#[test]
fn the_function_tracer() {
    let mut session = Session::new();
    assert_eq!(
        session.cat("tracing/available_tracers"),
        "function events sched_switch lockhold lockwait sigoff critical wakeup wakeup_all offcpu blocked preempted nop disable\n"
    );
    assert_eq!(session.cat("tracing/current_tracer"), "nop\n");
    assert_eq!(
        session.cat("tracing/set_ftrace_filter"),
        "#### all functions enabled ####\n"
    );
    assert_eq!(
        session.cat("tracing/set_ftrace_notrace"),
        "#### no functions disabled ####\n"
    );
    session.echo("parse_*", "tracing/set_ftrace_filter");
    assert!(session.fake.inserted.is_empty());
    session.echo("1", "tracing/tracing_on");
    session.echo("function", "tracing/current_tracer");
    assert_eq!(
        session.fake.in_mode(Mode::On),
        ["parse_line", "parse_file", "parse_char"]
    );
    assert_eq!(session.cat("tracing/current_tracer"), "function\n");
    assert!(
        session
            .cat("ctl")
            .contains("\ntrace parse_* new function\n")
    );

    session.append("malloc main", "tracing/set_ftrace_filter");
    assert_eq!(
        session.cat("tracing/set_ftrace_filter"),
        "parse_line\nparse_file\nparse_char\nmalloc@libc.so.6\nmain\n"
    );
    session.append("!malloc", "tracing/set_ftrace_filter");
    session.echo("parse_char", "tracing/set_ftrace_notrace");
    assert_eq!(session.cat("tracing/set_ftrace_notrace"), "parse_char\n");
    assert_eq!(
        session.fake.in_mode(Mode::On),
        ["main", "parse_line", "parse_file"]
    );
    assert_eq!(session.fake.inserted.len(), 3);

    for tracer in ["nop", "disable"] {
        session.echo(tracer, "tracing/current_tracer");
        assert!(session.fake.inserted.is_empty());
        assert_eq!(session.cat("tracing/current_tracer"), "nop\n");
        session.echo("function", "tracing/current_tracer");
        assert_eq!(
            session.fake.in_mode(Mode::On),
            ["main", "parse_line", "parse_file"],
            "the filters stay"
        );
    }
    // `> file`
    for path in ["tracing/set_ftrace_filter", "tracing/set_ftrace_notrace"] {
        let file = session.open(
            path,
            Access {
                truncate: true,
                ..WRITE
            },
        );
        session.control.close(&mut session.fake, file).unwrap();
    }
    assert_eq!(session.fake.in_mode(Mode::On).len(), 8);
    session.echo("0", "tracing/tracing_on");
    assert_eq!(session.fake.in_mode(Mode::Off).len(), 8);
    assert_eq!(session.cat("tracing/tracing_on"), "0\n");
}

#[test]
fn functions_are_taken_out_of_what_a_glob_lists() {
    let mut session = Session::new();
    let filter = "tracing/set_ftrace_filter";
    session.echo("parse_* main", filter);
    session.append("!parse_file", filter);
    assert_eq!(session.cat(filter), "parse_line\nparse_char\nmain\n");
    session.append("!*_line", filter);
    assert_eq!(session.cat(filter), "parse_char\nmain\n");
    let mut file = session.open(filter, WRITE);
    let error = session
        .control
        .write(&mut session.fake, &mut file, b"!parse_line\n");
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("none of the functions that are listed matches parse_line")
    );
    session.control.close(&mut session.fake, file).unwrap();
    assert_eq!(session.cat(filter), "parse_char\nmain\n");
    let left_out = "tracing/set_ftrace_notrace";
    session.echo("parse_*", left_out);
    session.append("!parse_char", left_out);
    assert_eq!(session.cat(left_out), "parse_line\nparse_file\n");
    assert_eq!(session.cat(filter), "parse_char\nmain\n");
}

/// A name that no command could have would make the text of `ctl` none.
#[test]
fn filters_refuse_names_that_no_command_can_have() {
    let mut session = Session::new();
    for path in ["tracing/set_ftrace_filter", "tracing/set_ftrace_notrace"] {
        let before = session.cat(path);
        for name in ["\"\"", "a\u{1}b", "\"a\tb\""] {
            let refused = session.refused(name, path);
            assert!(
                refused.contains("a function's name was expected"),
                "{refused}"
            );
        }
        assert_eq!(session.cat(path), before);
    }
}

#[test]
fn filters_take_what_is_listed() {
    let mut session = Session::new();
    let available = session.cat("tracing/available_filter_functions");
    assert_eq!(
        available,
        "main\nparse_line\nparse_file\nparse_char\n_ZN2ns1fEi\nnew\nmalloc@libc.so.6\nfree@libc.so.6\n\
         strlen@libc.so.6\ndeflate@libz.so.1\ninflate@libz.so.1\n"
    );
    session.echo(available.trim_end(), "tracing/set_ftrace_filter");
    assert_eq!(session.cat("tracing/set_ftrace_filter"), available);
}

#[test]
fn the_trace_in_lines_of_the_function_tracer() {
    let mut session = Session::new();
    session.echo("1", "tracing/tracing_on");
    session.echo("function", "tracing/current_tracer");
    session.fake.call(&["main", "parse_line"]);
    assert_eq!(
        session.cat("tracing/trace"),
        "# tracer: function\n#\n\
         CPU -: prog:4711 main+0x0/0x40 <-- -\n\
         CPU -: prog:4711 parse_line+0x0/0x40 <-- main+-/0x40\n"
    );
    assert_eq!(session.cat("tracing/trace_options"), "symonly\nnoverbose\n");
    session.echo("nosymonly", "tracing/trace_options");
    assert_eq!(
        session.cat("tracing/trace_options"),
        "nosymonly\nnoverbose\n"
    );
    assert_eq!(
        session.cat("tracing/trace"),
        "# tracer: function\n#\n\
         CPU -: prog:4711 main+0x0/0x40 <55d0e4c011e0> <-- -\n\
         CPU -: prog:4711 parse_line+0x0/0x40 <55d0e4c01220> <-- main+-/0x40 <->\n"
    );
    session.open(
        "tracing/trace",
        Access {
            truncate: true,
            ..WRITE
        },
    );
    assert_eq!(session.cat("tracing/trace"), "# tracer: function\n#\n");
    session.fake.call(&["free"]);
    assert_eq!(session.cat("tracing/trace").lines().count(), 3);
}

#[test]
fn a_pipe_gives_each_line_once() {
    let mut session = Session::new();
    session.echo("1", "tracing/tracing_on");
    session.echo("function", "tracing/current_tracer");
    session.fake.call(&["main", "parse_line"]);
    let (mut first, mut second) = (
        session.open("tracing/trace_pipe", READ),
        session.open("tracing/trace_pipe", READ),
    );
    assert!(first.is_pipe());
    assert_eq!(first.read(0, 100).unwrap(), Content::Later);
    session
        .control
        .refill(&mut session.fake, &mut first)
        .unwrap();
    let line = "CPU -: prog:4711 main+0x0/0x40 <-- -\n";
    assert_eq!(
        first.read(0, line.len()).unwrap(),
        Content::Bytes(line.into())
    );
    assert!(session.cat("ctl").contains("\n#tracehits 4, in queue 0\n"));
    session.fake.call(&["malloc"]);
    assert!(session.cat("ctl").contains("\n#tracehits 6, in queue 2\n"));
    session
        .control
        .refill(&mut session.fake, &mut second)
        .unwrap();
    let rest = "CPU -: prog:4711 malloc+0x0/0x40 <-- -\n";
    assert_eq!(read_all(&mut second, 7), rest);
    let rest = "CPU -: prog:4711 parse_line+0x0/0x40 <-- main+-/0x40\n";
    assert_eq!(first.read(5, 1000).unwrap(), Content::Bytes(rest.into()));
    for file in [&mut first, &mut second] {
        session.control.refill(&mut session.fake, file).unwrap();
        assert_eq!(file.read(0, 100).unwrap(), Content::Later);
    }
    assert_eq!(session.cat("tracing/trace").lines().count(), 5);
}

#[test]
fn markers_are_switched_by_a_file() {
    let mut session = Session::new();
    let path = "tracing/mark_on";
    session.echo("start", "ctl");
    assert_eq!(session.cat(path), "");
    session.echo("net_*", path);
    session.append("!net_rx later@libnet.so", path);
    assert_eq!(session.fake.marked, ["net_tx"]);
    let text = session.cat(path);
    assert_eq!(
        text,
        "net_*\n!net_rx\nlater@libnet.so\n#mark later@libnet.so waits for its library\n"
    );
    // Without >>, in place of what was there; of several lines, the first.
    session.echo("disk\nnet_rx", path);
    assert_eq!(session.fake.marked, ["net_rx", "disk"]);
    session.echo(&text, path);
    assert_eq!(session.fake.marked, ["net_tx"]);
    assert_eq!(session.cat(path), text, "it is valid input");
    let refused = session.refused("disk net_rxx", path);
    assert!(
        refused.contains("\"disk net_rxx\": no marker matches net_rxx; the nearest are net_rx"),
        "{refused}"
    );
    assert_eq!(session.cat(path), text, "nothing has changed");
    let emptied = Access {
        truncate: true,
        ..WRITE
    };
    let file = session.open(path, emptied);
    session.control.close(&mut session.fake, file).unwrap();
    assert!(session.fake.marked.is_empty());
}

#[test]
fn the_other_files() {
    let mut session = Session::new();
    assert_eq!(session.cat("tracing/buffer_size_kb"), "65536\n");
    session.echo("2048", "tracing/buffer_size_kb");
    assert_eq!(session.cat("tracing/buffer_size_kb"), "2048\n");
    assert!(session.cat("ctl").starts_with("logsize 18\n"));
    assert_eq!(
        session.cat("tracing/error_log"),
        "",
        "it is as it was asked for"
    );
    // A write returns no answer.
    session.echo("size 17\nthreshold 5", "ctl");
    let answer = "#logsize 17: the buffer has room for 131,072 records (1.00 MiB)\n";
    let text = session.cat("ctl");
    assert!(text.ends_with(&format!("\n{answer}")), "{text}");
    session.echo("1100", "tracing/buffer_size_kb");
    assert_eq!(session.cat("tracing/buffer_size_kb"), "1152\n");
    assert_eq!(
        session.cat("tracing/error_log"),
        "\"1100\": the buffer has 1152 KiB, not 1100: it has whole chunks of memory\n"
    );
    session.echo("2048", "tracing/buffer_size_kb");

    assert_eq!(session.cat("tracing/set_ftrace_pid"), "no pid\n");
    session.echo(&PROCESS.to_string(), "tracing/set_ftrace_pid");
    session.append("4712", "tracing/set_ftrace_pid");
    assert_eq!(session.cat("tracing/set_ftrace_pid"), "4711\n4712\n");
    session.echo("4712 4713", "tracing/set_ftrace_pid");
    assert_eq!(session.fake.watched, [4712, 4713]);
    let file = session.open(
        "tracing/set_ftrace_pid",
        Access {
            truncate: true,
            ..WRITE
        },
    );
    session.control.close(&mut session.fake, file).unwrap();
    assert!(session.fake.watched.is_empty());

    session.echo("request 17 begins", "tracing/trace_marker");
    assert_eq!(session.fake.texts, ["request 17 begins"]);
    assert!(
        session
            .cat("tracing/README")
            .contains("\ntrace_pipe\n    Like trace, but")
    );
}
