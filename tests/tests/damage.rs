//! A trace that was damaged after it was recorded.

use std::fs;
use std::io::Read;
use std::process::Stdio;

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

/// What is mapped of it is gone then. The reader stands at a pipe that nobody empties until it is cut.
#[test]
fn a_trace_that_is_cut_while_it_is_read_ends_with_a_word() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let recorded = Case::new(c("lossy", &[])).arguments(["1", "40000"]);
    let recorded = recorded.options(["--block"]).traced_start(&trace).run("");
    assert_eq!(recorded.end, End::Code(0), "{}", recorded.stderr);
    for reader in [&["replay"][..], &["dump", "--as", "raw"]] {
        let copy = scratch.path().join("copy");
        let copied = std::process::Command::new("cp").arg("-r").args([&trace, &copy]).status();
        assert!(copied.unwrap().success());
        let mut command = std::process::Command::new(nopal());
        command.args(reader).arg(&copy);
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = running.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 1024]).unwrap();
        let stream = fs::File::options().write(true).open(copy.join("stream-0"));
        stream.unwrap().set_len(4096).unwrap();
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        let ended = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(3), "{reader:?}: {said}");
        assert!(said.contains("became shorter while it was read"), "{reader:?}: {said}");
        fs::remove_dir_all(&copy).unwrap();
    }
}
