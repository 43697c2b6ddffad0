//! A trace looked through on a terminal.

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
    start.environment.push(("PAGER".into(), "cat; read".into()));
    start
}

#[test]
fn functions_lead_to_callers_callees_the_tree_and_calls() {
    let recording = recorded();
    let mut terminal = Terminal::start(&tui(&recording));
    terminal.resize(120, 50);
    terminal.wait_for("app::join");
    terminal.wait_for("app::detail::Store<std::string>::put");
    // Filter, then callers and callees.
    terminal.write("/fib<4>\r");
    terminal.wait_for("filter: fib<4>");
    terminal.write("\r");
    terminal.wait_for("callers and callees of app::fib<4>");
    terminal.wait_for("callees");
    terminal.wait_for("app::fib<3>");
    // The tree is open down to the marked caller; n finds another function below it.
    terminal.write("g");
    terminal.wait_for("the tree of calls");
    terminal.wait_for("▾ app::fib<5>");
    terminal.write("/fib<0>\r");
    terminal.wait_for("    app::fib<0>");
    terminal.write("r");
    terminal.wait_for("app::fib<0>();");
    terminal.write("\r");
    terminal.write("q");
    assert_eq!(terminal.wait(), End::Code(0));
}

#[test]
fn without_a_terminal_it_is_refused() {
    let ended = tui(&recorded()).run("");
    assert_eq!(ended.end, End::Code(1));
    assert!(ended.stderr.contains("terminal"), "{}", ended.stderr);
}
