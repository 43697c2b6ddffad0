//! Any text as commands, and as text written to the files of a session. A refused command changes nothing, and the text
//! of `ctl` brings another process of the program into the same state.
//!
//! The input: a byte below 128 stands for itself, others for words of the language, so that whole commands are
//! frequent. The text is written line by line, each to the file whose name follows the last `\x01`, or first to `ctl`.
#![no_main]

#[path = "../../crates/control/tests/common/mod.rs"]
mod recording;

use libfuzzer_sys::fuzz_target;
use nopal_control::{Access, Control};
use recording::{Fake, PROCESS, cat};

const WORDS: [&str; 68] = [
    "trace ",
    " new ",
    " on\n",
    " off\n",
    " remove\n",
    "size ",
    "logsize ",
    "watch ",
    " children",
    "start\n",
    "stop\n",
    "reset\n",
    "query ",
    "testtracein ",
    "uniform ",
    "mark ",
    "when ",
    "return ",
    " if ",
    "hits % 3 == 0",
    "duration > 50ms",
    " and arg1 < -1",
    " or ",
    " == \"x\"",
    " do ",
    "count",
    "trace a on",
    "int(result)",
    "main",
    "parse_*",
    "parse_line",
    "!parse_line",
    "*",
    "*@libz*",
    "malloc",
    "\"new\"",
    "\"ns::f(int)\"",
    "main.c:30",
    "prog+0x1220",
    "prog+0x11e0-0x12e0",
    "55d0e4c011e0",
    "55d0e4c012a0",
    "later@libnone*",
    "_start",
    "0x",
    "18446744073709551615",
    "4294967295",
    "4711",
    "4712",
    "16",
    "20",
    "a",
    "b",
    "function",
    "nop",
    "disable",
    "#",
    "\"",
    "'",
    "1",
    "0",
    "symonly ",
    "noverbose ",
    " ",
    "\n",
    "ä",
    "\\",
    "?",
];

const FILES: [&str; 12] = [
    "ctl",
    "trace",
    "tracing/current_tracer",
    "tracing/tracing_on",
    "tracing/trace",
    "tracing/set_ftrace_filter",
    "tracing/set_ftrace_notrace",
    "tracing/set_ftrace_pid",
    "tracing/buffer_size_kb",
    "tracing/trace_options",
    "tracing/trace_marker",
    "tracing/error_log",
];

fn text(data: &[u8]) -> String {
    let mut text = String::new();
    for byte in data {
        match byte.checked_sub(128) {
            None => text.push(char::from(*byte)),
            Some(word) => text.push_str(WORDS[usize::from(word) % WORDS.len()]),
        }
    }
    text
}

/// The state that commands can change, without the counters.
fn state(control: &mut Control, fake: &mut Fake) -> (Vec<String>, String) {
    let shown = cat(control, fake, "ctl");
    let lines = shown.lines().filter(|line| !line.starts_with('#'));
    let inserted = format!("{:?} {:?} {}", fake.inserted, fake.watched, fake.children);
    (lines.map(str::to_owned).collect(), inserted)
}

fuzz_target!(|data: &[u8]| {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let text = text(data);
    for (number, part) in text.split('\u{1}').enumerate() {
        let (file, lines) = match part.chars().next() {
            Some(first) if number > 0 => (
                FILES[first as usize % FILES.len()],
                &part[first.len_utf8()..],
            ),
            _ => ("ctl", part),
        };
        if file == "ctl" {
            for line in lines.lines() {
                let before = state(&mut control, &mut fake);
                if control.command(&mut fake, line).is_err() {
                    assert_eq!(state(&mut control, &mut fake), before, "{line:?}");
                }
            }
            continue;
        }
        let access = Access {
            read: false,
            write: true,
            truncate: lines.len() % 2 == 0,
        };
        let Ok(mut open) = control.open(&mut fake, file, access) else {
            continue;
        };
        let _ = control.write(&mut fake, &mut open, lines.as_bytes());
        let _ = control.close(&mut fake, open);
    }
    let was = state(&mut control, &mut fake);
    let saved = was.0.join("\n");
    let (mut other_control, mut other) = (Control::new(), Fake::new());
    other.modules[0].base = 0x5600_0000_0000;
    if let Err(error) = other_control.command(&mut other, &saved) {
        panic!("{error}\n{saved}\nof process {PROCESS}");
    }
    assert_eq!(state(&mut other_control, &mut other), was, "{saved}");
});
