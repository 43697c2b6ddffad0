//! A trace, browsed on a terminal.

use std::time::{Duration, Instant};

use nopal_tests::terminal::Terminal;
use nopal_tests::{Case, End, Recording, Start, cxx, nopal};

fn recorded() -> Recording {
    Case::new(cxx("templates", &["-O1"]))
        .options(["-F", "*@templates*"])
        .traced()
}

fn tui(recording: &Recording) -> Start {
    let mut start = Start::new([nopal().as_os_str(), "tui".as_ref()]);
    start.words.push(recording.directory().into());
    let pager = "cat; echo the pager waits; read line < /dev/tty";
    start.environment.push(("PAGER".into(), pager.into()));
    start
}

/// The content of a screen, which is redrawn as a whole when its size changes.
struct Screen {
    terminal: Terminal,
    columns: u16,
}

impl Screen {
    /// Presses keys, and waits for all of `wanted`. The keys of a call act on the view for which the previous call
    /// waited.
    fn press(&mut self, keys: &str, wanted: &[&str]) {
        self.terminal.write(keys);
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let before = self.terminal.text().len();
            self.columns ^= 1;
            self.terminal.resize(self.columns, 50);
            std::thread::sleep(Duration::from_millis(300));
            let text = self.terminal.text();
            let shown = without_escapes(text.get(before..).unwrap_or_default());
            if wanted.iter().all(|wanted| shown.contains(wanted)) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{keys:?}: no {wanted:?} in\n{shown}"
            );
        }
    }
}

/// Words with one space between them: gaps in lines are movements of the cursor.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|char: char| char.is_ascii_alphabetic());
        plain.push(' ');
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn functions_lead_to_callers_callees_the_tree_and_calls() {
    let recording = recorded();
    let mut screen = Screen {
        terminal: Terminal::start(&tui(&recording)),
        columns: 120,
    };
    screen.press("", &["48 calls of 29 functions", "app::join templates"]);
    screen.press("/fib<4>\r", &["filter: fib<4>", "app::fib<4> templates"]);
    screen.press(
        "\r",
        &[
            "callers and callees of app::fib<4>",
            "callers",
            "app::fib<5> templates",
            "app::fib<3> templates",
        ],
    );
    // The tree is open down to the marked function: the caller.
    screen.press("g", &["the tree of calls", "▾ main", "▸ app::fib<5>"]);
    screen.press(
        "/fib<0>\r",
        &[
            "▾ app::fib<5>",
            "▾ app::fib<4>",
            "▾ app::fib<2>",
            "app::fib<0> templates",
        ],
    );
    screen.terminal.write("r");
    screen.terminal.wait_for("the pager waits");
    // The terminal has colours.
    let calls = without_escapes(&screen.terminal.text());
    assert!(calls.contains("app::fib<0> ();"), "{calls}");
    screen.press("\r", &["the tree of calls"]);
    screen.press("\x1b", &["callers and callees of app::fib<4>"]);
    screen.terminal.write("q");
    assert_eq!(screen.terminal.wait(), End::Code(0));
}

#[test]
fn without_a_terminal_it_is_refused() {
    let ended = tui(&recorded()).run("");
    assert_eq!(ended.end, End::Code(1));
    assert!(ended.stderr.contains("terminal"), "{}", ended.stderr);
}
