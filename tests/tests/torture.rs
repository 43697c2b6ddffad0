//! A short form of `make torture`.

use nopal_tests::{End, Start, nopal};

/// A session of each kind of ending, or more, at random: the output has the seed.
#[test]
fn thousands_of_sites_are_switched_under_load() {
    let mut start = Start::new([env!("CARGO_BIN_EXE_torture"), "seconds=20"]);
    start.environment.push(("NOPAL".into(), nopal().into()));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}{}", ended.stdout, ended.stderr);
}
