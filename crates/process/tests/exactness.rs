//! A launched program finds everything as it would without us. The program that launches is this one, run again: the
//! effects of the Rust runtime of a real `main` must be undone.

mod common;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use common::{Program, compile};
use nopal_process::{Ending, ExitWatch, launch};

const LAUNCH: &str = "launch-and-wait";

fn main() {
    let mut arguments = std::env::args_os().skip(1).collect::<Vec<_>>();
    if arguments.first().is_some_and(|word| word == LAUNCH) {
        std::process::exit(launch_and_wait(arguments.split_off(1)));
    }
    let (setting, dump) = (compile("setting"), compile("dump"));
    for words in [
        "nothing",
        "ignore",
        "block",
        "files",
        "0",
        "1",
        "02",
        "012",
        "limits",
        "environment",
        "ignore block files limits environment 0",
    ] {
        let direct = run(&setting, &dump, words, &[]);
        let own = std::env::current_exe().unwrap().into_os_string();
        let launched = run(&setting, &dump, words, &[own, LAUNCH.into()]);
        for (direct, launched) in direct.lines().zip(launched.lines()) {
            assert_eq!(direct, launched, "{words}");
        }
        assert_eq!(direct.lines().count(), launched.lines().count());
        assert!(direct.contains("\nlimit 0 "));
        println!("exact: {words}");
    }
}

fn run(setting: &Program, dump: &Program, words: &str, launcher: &[OsString]) -> String {
    let out = dump.directory.path().join("out");
    let _ = std::fs::remove_file(&out);
    let mut command = Command::new(&setting.path);
    command
        .arg(words)
        .args(launcher)
        .arg(&dump.path)
        .arg(&out)
        .args(["one", "", "two words"]);
    let status = command.status().unwrap();
    // With SIGCHLD ignored, nobody could tell; the launcher can.
    assert_eq!(
        status.code(),
        Some(42),
        "{words}: {status:?} {:?}",
        status.signal()
    );
    std::fs::read_to_string(Path::new(&out)).unwrap()
}

fn launch_and_wait(arguments: Vec<OsString>) -> i32 {
    let command = nopal_process::Command {
        program: arguments[0].clone(),
        arguments,
        environment: None,
        directory: None,
    };
    let launched = launch(&command, |_| ()).unwrap();
    let mut watch = ExitWatch::new(launched.pid).unwrap();
    launched.thread.detach().unwrap();
    match watch.wait().unwrap() {
        Ending::Exited(status) => status,
        other => panic!("{other:?}"),
    }
}
