//! A short form of `make soak`.

use nopal_tests::{End, Start, nopal};
use std::time::Duration;

fn same(what: &str) {
    let mut start = Start::new([env!("CARGO_BIN_EXE_soak"), "short", what]);
    start.environment.push(("NOPAL".into(), nopal().into()));
    let mut running = start.spawn();
    drop(running.stdin());
    // The soak itself gives up on a script that takes too long.
    running.be_patient(Duration::from_secs(3600));
    let ended = running.wait();
    assert_eq!(ended.end, End::Code(0), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn gcc() {
    same("gcc");
}

#[test]
fn git() {
    same("git");
}

#[test]
fn nginx() {
    same("nginx");
}

#[test]
fn openssl() {
    same("openssl");
}

#[test]
fn python() {
    same("python");
}

#[test]
fn redis() {
    same("redis");
}

#[test]
fn sqlite() {
    same("sqlite");
}
