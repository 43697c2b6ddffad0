//! A trace that was damaged after it was recorded.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nopal_tests::{Case, End, Start, c, nopal, scratch};

/// Every reader that needs only the trace begins with what is missing, and ends with a status that scripts notice.
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
    let whole = trace.to_str().unwrap();
    let readers: [&[&str]; 14] = [
        &["report"],
        &["diff", whole],
        &["flame", "--against", whole, "-o", "change.svg"],
        &["report", "--processes"],
        &["report", "--hot-path"],
        &["slow", "*"],
        &["requests", "body..body.end"],
        &["graph", "--per", "process"],
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

/// The mapped part of the trace is gone then. The reader blocks at a pipe that is not emptied until the cut.
#[test]
fn a_trace_that_is_cut_while_it_is_read_ends_with_a_word() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let recorded = Case::new(c("lossy", &[])).arguments(["1", "40000"]);
    let recorded = recorded.options(["--block"]).traced_start(&trace).run("");
    assert_eq!(recorded.end, End::Code(0), "{}", recorded.stderr);
    for reader in [&["replay"][..], &["dump", "--as", "raw"]] {
        let copy = scratch.path().join("copy");
        let copied = Command::new("cp").arg("-r").args([&trace, &copy]).status();
        assert!(copied.unwrap().success());
        let mut command = Command::new(nopal());
        command.args(reader).arg(&copy);
        let mut running = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = running.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 1024]).unwrap();
        let stream = fs::File::options().write(true).open(copy.join("stream-0"));
        stream.unwrap().set_len(4096).unwrap();
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        let ended = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(3), "{reader:?}: {said}");
        assert!(
            said.contains("became shorter while it was read"),
            "{reader:?}: {said}"
        );
        fs::remove_dir_all(&copy).unwrap();
    }
}

/// The damage to a file of a trace.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Removed,
    Emptied,
    Cut,
    Flipped,
    Longer,
    Filled,
    OfAnother,
    Linked,
    Fifo,
    Directory,
}

const HARMS: [Harm; 10] = [
    Harm::Removed,
    Harm::Emptied,
    Harm::Cut,
    Harm::Flipped,
    Harm::Longer,
    Harm::Filled,
    Harm::OfAnother,
    Harm::Linked,
    Harm::Fifo,
    Harm::Directory,
];

fn harm(file: &Path, another: &Path, harm: Harm, random: &mut fastrand::Rng) {
    let mut bytes = fs::read(file).unwrap();
    let at = random.usize(..bytes.len());
    match harm {
        Harm::Emptied => bytes.clear(),
        // Notes that end with a whole line would be those of a recording that was cut off there.
        Harm::Cut => bytes.truncate(at - usize::from(bytes[..at].ends_with(b"\n"))),
        Harm::Flipped => bytes[at] ^= 1 << random.u8(..8),
        Harm::Longer => bytes.extend_from_within(at..),
        Harm::Filled => {
            let end = bytes.len().min(at + 4096);
            bytes[at..end].fill(0xff);
        }
        Harm::OfAnother => bytes = fs::read(another).unwrap(),
        Harm::Removed | Harm::Linked | Harm::Fifo | Harm::Directory => {}
    }
    fs::remove_file(file).unwrap();
    match harm {
        Harm::Removed => {}
        Harm::Linked => std::os::unix::fs::symlink(another, file).unwrap(),
        Harm::Fifo => {
            let name = CString::new(file.as_os_str().as_bytes()).unwrap();
            // SAFETY: a plain system call with a string that ends.
            assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        }
        Harm::Directory => fs::create_dir(file).unwrap(),
        _ => fs::write(file, bytes).unwrap(),
    }
}

/// For any damage to a file, readers end soon, with a status of damage, and with little memory. `NOPAL_SEED` chooses
/// the places.
#[test]
fn readers_tell_of_any_damage() {
    const MOST_MEMORY: u64 = 512 << 20;
    let seed = std::env::var("NOPAL_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("NOPAL_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let scratch = scratch();
    let [trace, another] = ["trace", "another"].map(|name| scratch.path().join(name));
    for place in [&trace, &another] {
        let case = Case::new(c("threads", &["-pthread"])).arguments(["4", "2"]);
        let recorded = case.traced_start(place).run("");
        assert_eq!(recorded.end, End::Code(0), "{}", recorded.stderr);
    }
    let readers: [&[&str]; 12] = [
        &["report", "--json"],
        &["report", "--processes", "--json"],
        &["slow", "*", "--json"],
        &["requests", "body..body.end", "--json"],
        &[
            "flame",
            "--per",
            "thread",
            "--from",
            "50%",
            "-o",
            "flame.svg",
        ],
        &["graph"],
        &["replay"],
        &["info"],
        &["hist"],
        &["flame", "-o", "flame.svg"],
        &["dump", "--as", "raw"],
        &["dump", "--as", "chrome"],
    ];
    for name in ["stream-0", "session/notes", "metadata"] {
        for what in HARMS {
            let copy: PathBuf = scratch.path().join("copy");
            let copied = Command::new("cp").arg("-r").args([&trace, &copy]).status();
            assert!(copied.unwrap().success());
            harm(&copy.join(name), &another.join(name), what, &mut random);
            let reader = readers[random.usize(..readers.len())];
            let mut start = Start::new([nopal().as_os_str()]);
            start.words.extend(reader.iter().map(Into::into));
            start.words.push(copy.clone().into());
            start.directory = Some(scratch.path().to_owned());
            start.limits.push((libc::RLIMIT_DATA, MOST_MEMORY));
            let ended = start.run("");
            let expected = match ended.end {
                End::Code(0) => name == "metadata",
                End::Code(1 | 3) => ended.stderr.starts_with("nopal: "),
                _ => false,
            };
            assert!(
                expected,
                "seed {seed}: {reader:?}, {name}, {what:?}: {ended:?}"
            );
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

/// Readers that may be given a function before the trace say so, too.
#[test]
fn a_trace_that_may_not_be_read() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let ended = Case::new(c("tail", &[])).spawn(&trace).wait();
    assert_eq!(ended.end, End::Code(0));
    let allow = |mode| fs::set_permissions(&trace, fs::Permissions::from_mode(mode)).unwrap();
    allow(0);
    for reader in ["report", "info", "graph", "flame", "replay"] {
        let before = [
            "setpriv",
            "--bounding-set",
            "-dac_override,-dac_read_search",
        ];
        let mut start = Start::new(before);
        start
            .words
            .extend([nopal().into(), reader.into(), trace.clone().into()]);
        let ended = start.run("");
        assert!(
            ended.stderr.contains("the trace is not readable"),
            "{reader}: {}",
            ended.stderr
        );
        assert_eq!(ended.end, End::Code(1), "{reader}");
    }
    allow(0o700);
}
