//! A good trace with many kinds of damage, before every reader: each ends with a message, and shows no more than the
//! good trace holds. `NOPAL_SEED` chooses the places.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nopal_tests::{Case, End, Ended, Start, announced_calls, c, nopal, scratch};
use serde_json::Value;

/// Offset of `packet_size`, in bits, in the header of a packet.
const PACKET_SIZE: usize = 48;
/// Parts in a thousand by which the clocks of the program and of the trace may differ.
const CLOCKS: u64 = 1;

const READERS: [&[&str]; 14] = [
    &["report", "--json"],
    &["dump", "--as", "chrome"],
    &["report"],
    &["report", "--net"],
    &["graph"],
    &["replay"],
    &["info"],
    &["hist"],
    &["flame", "-o", "flame.svg"],
    &["plot", "timeline", "-o", "timeline.svg"],
    &["plot", "cdf", "-o", "cdf.svg"],
    &["dump", "--as", "raw"],
    &["dump", "--as", "folded"],
    &["dump", "--as", "function"],
];

/// A trace without losses, and its program's own counts and duration.
struct Good {
    scratch: tempfile::TempDir,
    calls: BTreeMap<String, u64>,
    elapsed: u64,
}

impl Good {
    fn new() -> Good {
        let scratch = scratch();
        let case = Case::new(c("lossy", &[])).options(["--block"]);
        let start = case.arguments(["2", "4000"]);
        let ended = start.traced_start(&scratch.path().join("good")).run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let (rest, calls) = announced_calls(&ended.stdout);
        let elapsed = rest.strip_prefix("elapsed ").expect("a time").trim();
        Good {
            scratch,
            calls,
            elapsed: elapsed.parse().expect("a number"),
        }
    }

    fn copy(&self) -> PathBuf {
        let copy = self.scratch.path().join("trace");
        let _ = fs::remove_dir_all(&copy);
        let mut command = Command::new("cp");
        command.arg("-r").arg(self.scratch.path().join("good"));
        assert!(command.arg(&copy).status().expect("cp").success());
        copy
    }

    fn read(&self, reader: &[&str], trace: &Path) -> Ended {
        let mut start = Start::new([nopal().as_os_str()]);
        start.words.extend(reader.iter().map(Into::into));
        start.words.push(trace.into());
        start.directory = Some(self.scratch.path().to_owned());
        start.run("")
    }

    /// Asserts that every reader ends with a message and a status of damage, and invents nothing.
    fn check(&self, trace: &Path, what: &str) {
        for reader in READERS {
            let ended = self.read(reader, trace);
            let what = format!("{what}: {reader:?}: {:?}, {}", ended.end, ended.stderr);
            assert!(matches!(ended.end, End::Code(1 | 3)), "{what}");
            assert!(ended.stderr.starts_with("nopal: "), "{what}");
            if ended.end == End::Code(3) && reader.contains(&"--json") {
                self.check_rows(&json(&ended, &what), &what);
            }
            if ended.end == End::Code(3) && reader.contains(&"chrome") {
                self.check_nesting(&json(&ended, &what), &what);
            }
        }
    }

    /// The greatest duration, from the program's own clock.
    fn most(&self) -> u64 {
        self.elapsed + self.elapsed * CLOCKS / 1000
    }

    fn check_rows(&self, rows: &Value, what: &str) {
        let mut own = 0;
        for row in rows.as_array().expect("rows") {
            let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{row}"));
            let [total, alone, calls] = ["total_ns", "self_ns", "calls"].map(number);
            assert!(alone <= total, "{what}: {row}");
            let known = row["function"]
                .as_str()
                .and_then(|name| self.calls.get(name));
            if let Some(most) = known {
                assert!(calls <= *most, "{what}: {row}");
                assert!(
                    total <= self.most(),
                    "{what}: {row}, it ran for {}",
                    self.elapsed
                );
                own += alone;
            }
        }
        assert!(own <= self.most(), "{what}: {own} of {}", self.elapsed);
    }

    /// Asserts that no call extends beyond its caller.
    fn check_nesting(&self, chrome: &Value, what: &str) {
        let mut calls = Vec::new();
        for event in chrome["traceEvents"].as_array().expect("events") {
            if event["ph"] == "X" {
                let [begin, length] = ["ts", "dur"].map(|name| event[name].as_f64().unwrap());
                let [begin, length] = [begin, length].map(|us| (us * 1000.0).round() as u64);
                calls.push((begin, begin + length));
            }
        }
        calls.sort_by_key(|&(begin, end)| (begin, std::cmp::Reverse(end)));
        let mut open: Vec<(u64, u64)> = Vec::new();
        for call in calls {
            while open.pop_if(|caller| caller.1 <= call.0).is_some() {}
            if let Some(caller) = open.last() {
                // Both times are rounded.
                assert!(call.1 <= caller.1 + 1, "{what}: {call:?} in {caller:?}");
            }
            open.push(call);
        }
    }
}

fn json(ended: &Ended, what: &str) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn random() -> fastrand::Rng {
    let seed = std::env::var("NOPAL_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("NOPAL_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// The offsets of the packets of a stream, and its end.
fn boundaries(stream: &[u8]) -> Vec<usize> {
    let mut all = vec![0];
    while let Some(header) = stream
        .get(all[all.len() - 1]..)
        .filter(|rest| !rest.is_empty())
    {
        let bits = header[PACKET_SIZE..][..8].try_into().expect("eight bytes");
        all.push(all[all.len() - 1] + u64::from_le_bytes(bits) as usize / 8);
    }
    assert_eq!(all.last(), Some(&stream.len()));
    all
}

#[test]
fn a_stream_that_is_cut_or_overwritten() {
    let good = Good::new();
    let mut random = random();
    let stream = fs::read(good.scratch.path().join("good/stream-0")).unwrap();
    let packets = boundaries(&stream);
    assert!(packets.len() > 3, "{} packets", packets.len() - 1);
    let mut cuts: Vec<usize> = packets[..packets.len() - 1].to_vec();
    random.shuffle(&mut cuts);
    cuts.truncate(6);
    cuts.extend((0..4).map(|_| random.usize(1..stream.len())));
    for cut in cuts {
        let trace = good.copy();
        fs::write(trace.join("stream-0"), &stream[..cut]).unwrap();
        good.check(&trace, &format!("cut at {cut} of {}", stream.len()));
    }
    for length in [1, 8, 96, 4096, 50_000] {
        let trace = good.copy();
        let mut bytes = stream.clone();
        let at = random.usize(..bytes.len());
        let end = bytes.len().min(at + length);
        for byte in &mut bytes[at..end] {
            *byte ^= random.u8(1..);
        }
        fs::write(trace.join("stream-0"), bytes).unwrap();
        good.check(&trace, &format!("{length} bytes overwritten at {at}"));
    }
    // One packet occurs twice, and two packets change places.
    let [one, other] = [
        &stream[packets[0]..packets[1]],
        &stream[packets[1]..packets[2]],
    ];
    let rest = &stream[packets[2]..];
    for (parts, what) in [
        (vec![one, one, other, rest], "twice"),
        (vec![other, one, rest], "exchanged"),
        (vec![one, rest], "without the second"),
    ] {
        let trace = good.copy();
        fs::write(trace.join("stream-0"), parts.concat()).unwrap();
        good.check(&trace, &format!("packets: {what}"));
    }
}

#[test]
fn files_that_are_missing_and_notes_that_are() {
    let good = Good::new();
    for file in ["stream-0", "metadata", "session/notes"] {
        let trace = good.copy();
        fs::remove_file(trace.join(file)).unwrap();
        good.check(&trace, &format!("{file} removed"));
    }
    let notes = fs::read_to_string(good.scratch.path().join("good/session/notes")).unwrap();
    for kind in [
        "Clock", "Sites", "Image", "Module", "Process", "Thread", "Cost",
    ] {
        let sign = format!("{{\"{kind}\":");
        assert!(notes.contains(&sign), "there are notes of {kind}");
        let trace = good.copy();
        let kept: Vec<&str> = notes.lines().filter(|line| !line.contains(&sign)).collect();
        fs::write(trace.join("session/notes"), kept.join("\n") + "\n").unwrap();
        good.check(&trace, &format!("no notes of {kind}"));
    }
}

/// The trace is as a killed tool and guardian leave it.
#[test]
fn a_trace_without_its_end_is_told_to_be_cut_off() {
    let good = Good::new();
    let trace = good.copy();
    let notes = fs::read_to_string(trace.join("session/notes")).unwrap();
    let kept = notes.lines().filter(|line| !line.contains("{\"End\":"));
    let kept = kept.map(|line| line.to_owned() + "\n").collect::<String>();
    assert_ne!(notes, kept);
    fs::write(trace.join("session/notes"), kept).unwrap();
    for reader in [
        &["report"][..],
        &["report", "--json"],
        &["graph"],
        &["replay"],
        &["info"],
    ] {
        let ended = good.read(reader, &trace);
        assert_eq!(ended.end, End::Code(0), "{reader:?}: {}", ended.stderr);
        assert!(
            ended.stdout.contains("cut off"),
            "{reader:?}: {}",
            ended.stdout
        );
    }
}

#[test]
fn a_newer_version_is_named() {
    let good = Good::new();
    let trace = good.copy();
    let notes = fs::read_to_string(trace.join("session/notes")).unwrap();
    let newer = notes.replacen("\"version\":2", "\"version\":3", 1);
    assert_ne!(notes, newer);
    fs::write(trace.join("session/notes"), newer).unwrap();
    for reader in READERS {
        let ended = good.read(reader, &trace);
        assert_eq!(ended.end, End::Code(1), "{reader:?}");
        assert!(
            ended.stderr.contains("version 3"),
            "{reader:?}: {}",
            ended.stderr
        );
    }
}

/// The files of a recording are removed meanwhile, and a second recording tries its directory.
#[test]
fn a_directory_is_one_recordings_and_its_files_may_vanish() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("echo_upper", &[]));
    let mut first = case.spawn(&trace);
    let mut input = first.stdin();
    std::io::Write::write_all(&mut input, b"one\n").unwrap();
    first.wait_until(|| trace.join("stream-0").exists());
    let second = case.traced_start(&trace).run("");
    assert_eq!(second.end, End::Code(1), "{second:?}");
    let reported = second
        .stderr
        .contains("is being written by another process");
    assert!(reported, "{}", second.stderr);
    fs::remove_file(trace.join("stream-0")).unwrap();
    std::io::Write::write_all(&mut input, b"two\n").unwrap();
    drop(input);
    let ended = first.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    for reader in READERS {
        let mut start = Start::new([nopal().as_os_str()]);
        start.words.extend(reader.iter().map(Into::into));
        start.words.push(trace.clone().into());
        start.directory = Some(scratch.path().to_owned());
        let ended = start.run("");
        assert!(
            matches!(ended.end, End::Code(1 | 3)),
            "{reader:?}: {}",
            ended.stderr
        );
        assert!(
            ended.stderr.contains("stream-0"),
            "{reader:?}: {}",
            ended.stderr
        );
    }
}
