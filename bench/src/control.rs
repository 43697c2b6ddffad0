//! The time of a command: through the socket of a session, and through a file of its mount.

use crate::resident::{Kept, wait_until};
use crate::run::{Paths, remove};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::Result;
use nopal_serve::Client;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 501;
/// A program that calls functions and mostly waits.
const PROGRAM: [&str; 3] = [
    "/usr/bin/python3",
    "-c",
    "import time\nwhile True: time.sleep(0.001)",
];

pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    if !Path::new(PROGRAM[0]).exists() {
        return Ok(Vec::new());
    }
    remove(&paths.trace())?;
    let program = Kept(quiet(PROGRAM[0]).args(&PROGRAM[1..]).spawn()?);
    let process = program.0.id() as i32;
    let _session = Kept(
        quiet(&paths.nopal)
            .args(["attach", "-F", "_PyEval_*", "-o"])
            .arg(paths.trace())
            .arg(process.to_string())
            .spawn()?,
    );
    wait_until("attaching", || nopal_serve::is_traced(process))?;
    let mut client = Client::connect(process)?;
    let mut connected = |command: &str| client.command(command).map(drop);
    let open = timed(&mut connected)?;
    let fresh = timed(&mut |command| Client::connect(process)?.command(command).map(drop))?;
    let row =
        |what: &str, samples, limit| Row::new(what, "µs", samples).bound(Bound::AtMost(limit));
    let mut rows = vec![
        row("a command through the socket", open, 1000.0),
        row("the same, with connecting", fresh, 1000.0),
    ];
    if Path::new("/dev/fuse").exists() {
        let written = by_file(paths, process)?;
        rows.push(row(
            "a command through FUSE: open, write, close",
            written,
            2000.0,
        ));
    }
    Ok(rows)
}

fn by_file(paths: &Paths, process: i32) -> Result<Samples> {
    let directory = paths.directory.join("mount");
    std::fs::create_dir_all(&directory)?;
    let mount = Kept(quiet(&paths.nopal).arg("mount").arg(&directory).spawn()?);
    let file = directory.join(format!("{process}/ctl"));
    let samples = wait_until("mounting", || file.exists())
        .and_then(|()| timed(&mut |command| Ok(std::fs::write(&file, format!("{command}\n"))?)));
    // At this signal it unmounts; killed, it would not.
    // SAFETY: the process is a child of this one.
    unsafe { libc::kill(mount.0.id() as i32, libc::SIGTERM) };
    let gone = || !file.parent().is_some_and(Path::exists);
    wait_until("unmounting", gone)?;
    samples
}

/// The times of a command that takes effect in the process, in microseconds.
fn timed(send: &mut dyn FnMut(&str) -> Result<()>) -> Result<Samples> {
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let command = if round % 2 == 0 { "stop" } else { "start" };
        let start = Instant::now();
        send(command)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times.into_iter().collect())
}

fn quiet(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
