//! The text of `ctl`, and that it restores the state.

mod common;

use std::collections::BTreeMap;

use common::{Fake, PROCESS, cat, echo};
use nopal_control::{Control, Mode, SiteKey};
use nopal_trace::synthetic::Random;

/// The state that is to be restored.
fn state(fake: &Fake) -> (BTreeMap<SiteKey, Mode>, Vec<u32>, bool) {
    let children = fake.children && !fake.watched.is_empty();
    (fake.inserted.clone(), fake.watched.clone(), children)
}

/// The commands among the lines.
fn commands(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

fn compare(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("NOPAL_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{path}; NOPAL_GOLDEN=1 writes it anew");
}

#[test]
fn ctl_as_it_was_at_the_begin() {
    let text = shown(&mut Control::new(), &mut Fake::new());
    compare("begin", &text);
}

#[test]
fn ctl_as_it_has_always_been() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let line = fake.address("parse_line");
    let commands = format!(
        "size 16\ntrace {line:#x} {:#x} new fault\ntrace fault on\ntrace parse_* !parse_char new \"my trace\"\n\
         trace \"new\" \"ns::f(int)\" \"!operator new*\" main.c:20 inflate@libzz* new n\nstart\nwatch {PROCESS} {} \
         children\nuniform on",
        line + 0x80,
        PROCESS + 1,
    );
    let answer = control.command(&mut fake, &commands).unwrap_err();
    assert!(
        answer
            .message
            .starts_with("line 1: \"size 16\": the buffer has from"),
        "{answer}"
    );
    let commands = commands.replace("size 16", "size 20");
    control.command(&mut fake, &commands).unwrap();
    fake.call(&["main", "parse_line", "parse_file"]);
    fake.call(&["parse_line"]);
    let text = shown(&mut control, &mut fake);
    compare("full", &text);
}

/// Without the place of the trace, which is another in each run.
fn shown(control: &mut Control, fake: &mut Fake) -> String {
    let text = cat(control, fake, "ctl");
    let lines = text
        .lines()
        .map(|line| match line.starts_with("#tracelog ") {
            true => "#tracelog DIRECTORY\n".into(),
            false => format!("{line}\n"),
        });
    lines.collect()
}

const WHATS: [&str; 14] = [
    "main",
    "parse_*",
    "parse_* !parse_line",
    "*@libz*",
    "malloc \"new\"",
    "\"ns::f(int)\"",
    "main.c:30 main.c:40",
    "prog+0x1220",
    "prog+0x11e0-0x12e0 main",
    "55d0e4c011e0 55d0e4c012a0",
    "55d0e4c012a0 !55d0e4c011e0",
    "later@libnone*",
    "!strlen",
    "_start main",
];
const NAMES: [&str; 6] = ["a", "on", "new", "\"b c\"", "function", "\"#d\""];

fn command(random: &mut Random) -> String {
    let mut one_of = |words: &[&str]| words[random.below(words.len() as u64) as usize].to_owned();
    let (what, name) = (one_of(&WHATS), one_of(&NAMES));
    match random.below(21) {
        0..4 => format!("trace {what} new {name}"),
        4..7 => format!("trace {name} on"),
        7 => format!("trace {name} off"),
        8 => format!("trace {name} remove"),
        9 => format!("size {}", 17 + random.below(6)),
        10 => format!("watch {}", PROCESS + random.below(5) as u32),
        11 => format!(
            "watch {} {PROCESS} children",
            PROCESS + random.below(4) as u32
        ),
        12 => ["watch 0", "reset"][usize::from(random.below(8) == 0)].into(),
        13 => "start".into(),
        14 => "stop".into(),
        15..18 => format!("when return {what} do count new {name}"),
        18 => format!("when {name} remove"),
        19 => format!(
            "budget {}",
            ["off", "5%", "0.25%"][random.below(3) as usize]
        ),
        _ => format!("uniform {}", ["on", "off"][random.below(2) as usize]),
    }
}

/// Random commands; at the end of each round, the text of `ctl` brings another process of the program, and this one
/// after `reset`, into the same state, and is shown again by them.
#[test]
fn what_is_shown_restores_the_state() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut obeyed, mut refused) = (0, 0);
    for round in 0..100 {
        let (mut control, mut fake) = (Control::new(), Fake::new());
        for _ in 0..random.below(30) {
            let before = state(&fake);
            match control.command(&mut fake, &command(&mut random)) {
                Ok(_) => obeyed += 1,
                Err(_) => {
                    refused += 1;
                    assert_eq!(state(&fake), before);
                }
            }
        }
        let saved = cat(&mut control, &mut fake, "ctl");
        let was = state(&fake);

        let (mut other_control, mut other) = (Control::new(), Fake::new());
        other.modules[0].base = 0x5600_0000_0000;
        other_control.command(&mut other, &saved).unwrap();
        assert_eq!(state(&other), was, "round {round}:\n{saved}");
        let again = cat(&mut other_control, &mut other, "ctl");
        assert_eq!(commands(&again), commands(&saved), "round {round}");

        control
            .command(&mut fake, &format!("reset\n{saved}"))
            .unwrap();
        assert_eq!(state(&fake), was, "round {round}:\n{saved}");
        // Once more changes nothing.
        control.command(&mut fake, &saved).unwrap();
        assert_eq!(state(&fake), was, "round {round}:\n{saved}");
    }
    assert!(obeyed > 300 && refused > 100, "{obeyed} {refused}");
}

/// The filters of the function tracer take addresses of this process, and `ctl` says where in its file each is.
#[test]
fn a_restored_function_tracer_leaves_out_what_an_address_left_out() {
    for first in ["tracing/set_ftrace_notrace", "tracing/current_tracer"] {
        let (mut control, mut fake) = (Control::new(), Fake::new());
        let address = format!("{:x}", fake.address("parse_line"));
        let mut writes = [
            (&*address, "tracing/set_ftrace_notrace"),
            ("function", "tracing/current_tracer"),
        ];
        writes.sort_by_key(|(_, file)| *file != first);
        for (text, file) in writes {
            echo(&mut control, &mut fake, text, file, false).unwrap();
        }
        assert_eq!(fake.mode("parse_line"), None, "{first} first");
        let saved = cat(&mut control, &mut fake, "ctl");
        let (mut other_control, mut other) = (Control::new(), Fake::new());
        other.modules[0].base += 0x1000;
        other_control.command(&mut other, &saved).unwrap();
        assert_eq!(state(&other), state(&fake), "{saved}");
    }
}

/// The sites that are on are those that a simple count of the traces yields, whatever came before.
#[test]
fn sites_are_on_while_any_trace_is() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut known: BTreeMap<String, Vec<SiteKey>> = BTreeMap::new();
    for round in 0..100 {
        let (mut control, mut fake) = (Control::new(), Fake::new());
        for _ in 0..40 {
            let _ = control.command(&mut fake, &command(&mut random));
        }
        let text = cat(&mut control, &mut fake, "ctl");
        let lines = commands(&text);
        let mut expected = BTreeMap::new();
        let started = lines.contains(&"start");
        if lines.contains(&"uniform on") {
            let idle = if started { Mode::Silent } else { Mode::Off };
            // All but the one that cannot be traced.
            expected.extend((1..12).map(|key| (SiteKey(key), idle)));
        }
        for line in &lines {
            let Some((what, name)) = line.split_once(" new ") else {
                continue;
            };
            let waits = line.starts_with("when ");
            let keys = known.entry(what.to_owned()).or_insert_with(|| {
                let mut one = Fake::new();
                let alone = format!("{what} new {name}");
                Control::new().command(&mut one, &alone).unwrap();
                one.inserted.into_keys().collect::<Vec<_>>()
            });
            let on = lines.contains(&&*format!("trace {name} on"));
            for key in keys {
                let mode = expected.entry(*key).or_insert(Mode::Off);
                if waits && *mode == Mode::Off {
                    *mode = Mode::Silent;
                } else if !waits && on && started {
                    *mode = Mode::On;
                }
            }
        }
        assert_eq!(fake.inserted, expected, "round {round}:\n{text}");
    }
}
