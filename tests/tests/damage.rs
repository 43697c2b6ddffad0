//! A trace that was damaged after it was recorded.

use std::fs;

use nopal_tests::{Case, End, Start, c, nopal, scratch};

/// All readers that need no more than the trace. They begin with what is missing, and end so that scripts notice it.
#[test]
fn every_reader_tells_of_damage_and_ends_with_3() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let recorded = Case::new(c("threads", &["-pthread"])).arguments(["8", "4"]);
    let recorded = recorded.traced_start(&trace).run("");
    assert_eq!(recorded.end, End::Code(0), "{}", recorded.stderr);
    let read = |words: &[&str]| {
        let words = words.iter().map(|word| word.as_ref());
        let mut start = Start::new([nopal().as_os_str()].into_iter().chain(words));
        start.words.push(trace.clone().into());
        start.directory = Some(scratch.path().to_owned());
        start.run("")
    };
    let readers: [&[&str]; 7] = [
        &["report"],
        &["graph"],
        &["replay"],
        &["info"],
        &["flame", "-o", "flame.svg"],
        &["dump", "--as", "raw"],
        &["dump", "--as", "chrome"],
    ];
    for reader in readers {
        let ended = read(reader);
        assert_eq!(ended.end, End::Code(0), "{reader:?}: {}", ended.stderr);
    }
    let stream = trace.join("stream-0");
    let mut bytes = fs::read(&stream).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&stream, bytes).unwrap();
    for reader in readers {
        let ended = read(reader);
        assert_eq!(ended.end, End::Code(3), "{reader:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("stream-0"), "{}", ended.stderr);
    }
}
