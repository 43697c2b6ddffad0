//! A short form of `make soak`.

use nopal_tests::{End, Start, nopal};

fn same(what: &str) {
    let mut start = Start::new([env!("CARGO_BIN_EXE_soak"), "short", what]);
    start.environment.push(("NOPAL".into(), nopal().into()));
    let ended = start.run("");
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
