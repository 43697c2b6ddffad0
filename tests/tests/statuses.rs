//! nopal ends as the program ends, and with a shell's statuses if the program cannot be run.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nopal_tests::process::nopals_mappings;
use nopal_tests::{
    Case, End, Ended, Program, Start, c, compile, name_without_blanks, nopal, scratch, shell_word,
};

fn nopal_with(folder: &Path, words: &[&str]) -> Ended {
    let mut start = Start::new([nopal()]);
    start.words.extend(words.iter().map(Into::into));
    start.directory = Some(folder.to_path_buf());
    start.run("")
}

fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// The status is a shell's; for programs that only nopal refuses, 126.
#[test]
fn what_cannot_be_run() {
    let scratch = scratch();
    let folder = scratch.path();
    std::fs::create_dir(folder.join("folder")).unwrap();
    file(folder, "text", b"text", 0o644);
    file(folder, "orphan", b"#!/no/such/interpreter\n", 0o755);
    let elf = std::fs::read("/bin/true").unwrap();
    file(folder, "denied", &elf, 0o644);
    let mut other = elf.clone();
    other[18] = 183;
    file(folder, "of-another-processor", &other, 0o755);
    let mut narrow = elf;
    narrow[4] = 1;
    file(folder, "of-32-bits", &narrow, 0o755);
    let shells = |name: &str| match Start::new(["sh", "-c", name]).run("").end {
        End::Code(code) => code,
        End::Signal(_) => panic!("the shell is killed"),
    };
    assert_eq!(shells("/no/such/program"), 127);
    assert_eq!(shells("/etc/passwd"), 126);
    for (name, status) in [
        ("./missing", 127),
        ("missing-in-path", 127),
        ("./text/below", 126),
        ("./orphan", 127),
        ("./text", 126),
        ("./folder", 126),
        ("./denied", 126),
        ("./of-another-processor", 126),
        ("./of-32-bits", 126),
    ] {
        for words in [
            &["record", "--", name][..],
            &["record", "-F", "main", "--", name],
            &["run", "-f", name],
            &["probe", "main", "--", name],
        ] {
            let ended = nopal_with(folder, words);
            assert_eq!(ended.end, End::Code(status), "{words:?}: {}", ended.stderr);
            assert!(ended.stderr.starts_with("nopal: "), "{}", ended.stderr);
            assert!(!folder.join("nopal.data").exists());
        }
    }
}

/// The program does not run at all, named directly or as a script's interpreter.
#[test]
fn what_nopal_refuses_to_run() {
    let scratch = scratch();
    let source = file(
        scratch.path(),
        "go.c",
        b"__attribute__((section(\".go.buildinfo\"))) int mark = 1;\n\
          int puts(const char *);\n\
          int main(void) { return puts(\"runs\"); }\n",
        0o644,
    );
    let program = compile(source.to_str().unwrap(), &["gcc"], &[]).path;
    let (_directory, name) = name_without_blanks(&program);
    let script = format!("#!{}\n", name.display());
    let script = file(scratch.path(), "script", script.as_bytes(), 0o755);
    let by_loader = ["/lib64/ld-linux-x86-64.so.2", program.to_str().unwrap()];
    for words in [
        &[program.to_str().unwrap()][..],
        &[script.to_str().unwrap()],
        &by_loader,
    ] {
        let words = [&["record", "--"], words].concat();
        let ended = nopal_with(scratch.path(), &words);
        assert_eq!((ended.end, &*ended.stdout), (End::Code(126), ""));
        assert!(ended.stderr.contains("Go program"), "{}", ended.stderr);
    }
    let listed = nopal_with(scratch.path(), &["list", program.to_str().unwrap()]);
    assert_eq!(listed.end, End::Code(0));
    assert!(
        listed.stdout.contains("is a Go program"),
        "{}",
        listed.stdout
    );
}

#[test]
fn programs_without_a_libc() {
    for (times, runs) in [(1, 20), (5, 60), (1000, 5)] {
        let define = format!("-DTIMES={times}");
        let flags = ["gcc", "-O2", "-static", "-nostdlib", &define];
        let case = Case::new(compile("bare.c", &flags, &[]));
        for _ in 0..runs {
            let traced = case.traced();
            assert_eq!(traced.ended.end, End::Code(3), "{}", traced.said);
            assert_eq!(traced.ended.stdout, "here\n".repeat(times));
            assert_eq!(traced.ended.stderr, "");
        }
        let said = case.traced().said;
        let why = match times {
            1000 => "untraced: its libc is unknown",
            _ => "not traced (process ",
        };
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn nobody_hears_what_nopal_says() {
    let program = shell_word(c("end", &[]).path);
    for place in ["/dev/full", "&-"] {
        let scratch = scratch();
        let line = format!("{} run -f {program} exit 37 2>{place}", shell_word(nopal()));
        let mut start = Start::new(["sh", "-c", &line]);
        start.directory = Some(scratch.path().to_path_buf());
        assert_eq!(start.run("").end, End::Code(37), "{place}");
    }
}

/// An obstacle is reported before the program runs.
#[test]
fn no_trace_can_be_begun() {
    let scratch = scratch();
    let folder = scratch.path();
    let end = c("end", &[]).path.display().to_string();
    std::fs::create_dir(folder.join("own")).unwrap();
    file(folder, "own/file", b"", 0o644);
    for directory in ["own", "own/file", "own/file/below", "missing/below"] {
        let words = ["record", "-o", directory, "--", &end, "exit", "37"];
        let ended = nopal_with(folder, &words);
        assert_eq!(ended.end, End::Code(1), "{directory}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

/// The process of `program` that `tool` started.
fn process_of(program: &Path, tool: i32) -> i32 {
    let threads = std::fs::read_dir(format!("/proc/{tool}/task")).unwrap();
    let children = threads.map(|thread| {
        let list = thread.unwrap().path().join("children");
        std::fs::read_to_string(list).unwrap_or_default()
    });
    let children = children.collect::<Vec<_>>().concat();
    let mut children = children
        .split_whitespace()
        .map(|text| text.parse().unwrap());
    let runs = |process: &i32| {
        std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|path| path == program)
    };
    children.find(runs).expect("the program runs")
}

fn mapped_kib(process: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// The disk is full from the beginning, or soon: the program runs on.
#[test]
fn the_disk_is_full() {
    let program = c("phases", &[]).path;
    let mut untraced = Start::new([&program]).spawn();
    untraced.wait_for(|text| text.contains("phase 0\n"));
    let mut ran_untraced = 0;
    for (size, inodes) in [("4k", 100), ("8k", 100), ("12k", 100), ("1m", 2), ("1m", 3)] {
        let scratch = scratch();
        let folder = shell_word(scratch.path());
        let line = format!(
            "mount -t tmpfs -o size={size},nr_inodes={inodes} none {folder} && cd / && exec {} record --libs -o {folder}/trace \
             -- {program}",
            shell_word(nopal()),
            program = shell_word(&program)
        );
        let mut running = Start::new(["unshare", "--mount", "sh", "-c", &line]).spawn();
        running.wait_for(|text| text.contains("phase 0\n"));
        let process = process_of(&program, running.id());
        let (mapped, nopals) = (mapped_kib(process), nopals_mappings(process));
        drop(running.stdin().write_all(b"on\n"));
        let ended = running.wait();
        assert_eq!(ended.end, End::Code(5), "{size}: {}", ended.stderr);
        assert!(ended.stdout.ends_with("phase 1\nend\n"));
        assert!(ended.stderr.contains("nopal: "), "nopal reports it");
        if ended.stderr.contains("ran untraced") {
            let without = mapped_kib(untraced.id());
            assert!(
                mapped < without + 1024,
                "{mapped} KiB are mapped, and {without} untraced"
            );
            assert_eq!(nopals, [""; 0]);
            ran_untraced += 1;
        }
    }
    assert!(ran_untraced > 0, "some disk is too small for a trace");
}

/// A directory tree for one program may be without devices.
#[test]
fn there_are_no_devices() {
    let scratch = scratch();
    let line = format!(
        "mount -t tmpfs none /dev && exec {} record -o {} -- /bin/echo on",
        shell_word(nopal()),
        shell_word(scratch.path().join("trace")),
    );
    let ended = Start::new(["unshare", "--mount", "sh", "-c", &line]).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "on\n");
    assert!(!ended.stderr.contains("untraced"), "{}", ended.stderr);
}

#[test]
fn what_a_session_left_that_ended_early_is_in_nobodys_way() {
    let case = Case::new(Program::installed("/bin/true"));
    let lay = |folder: &Path, files: &[(&str, &str)]| {
        std::fs::create_dir_all(folder.join("session")).unwrap();
        for (name, content) in files {
            std::fs::write(folder.join(name), content).unwrap();
        }
    };
    let beginning = "[\"0123abcd\",0,{\"Session\":{\"version\":2,";
    for files in [
        &[][..],
        &[("session/notes", "")],
        &[("session/notes", "[\"0123abcd\",0,{\"Ses")],
        &[("session/notes", beginning), (".metadata.new", "/* CTF")],
    ] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        for place in [&trace, &scratch.path().join("trace.old")] {
            lay(place, files);
        }
        for _ in 0..2 {
            let ended = case.traced_start(&trace).run("");
            assert_eq!(ended.end, End::Code(0), "{files:?}: {}", ended.stderr);
        }
    }
    for files in [
        &[("session/notes", "of a session")][..],
        &[("session/mine", "")],
        &[("session/notes", beginning), ("mine", "")],
    ] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        lay(&trace, files);
        let ended = case.traced_start(&trace).run("");
        assert_eq!(ended.end, End::Code(1), "{files:?} belongs to others");
        for (name, content) in files {
            assert_eq!(&std::fs::read_to_string(trace.join(name)).unwrap(), content);
        }
    }
}

/// Whether the kernel keeps the status of a process that another one has waited for.
fn kernel_keeps_statuses() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse().ok());
    numbers.take(2).collect::<Vec<u32>>() >= vec![6, 16]
}

/// How processes ended that others than nopal started and waited for, with and without `exec`. One is left by its first
/// thread, whose status is 0.
#[test]
fn processes_that_others_wait_for_have_their_statuses() {
    let scratch = scratch();
    let first_ends = shell_word(&c("first_ends", &[]).path);
    let script = format!(
        "sh -c 'exit 7'; sh -c 'kill -9 $$'; (sleep 0.3; exit 3); {first_ends}; sh -c 'kill $$'; exit 5"
    );
    let script = file(scratch.path(), "script", script.as_bytes(), 0o644);
    let ended = nopal_with(
        scratch.path(),
        &["record", "--", "sh", script.to_str().unwrap()],
    );
    assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
    let report = nopal_with(scratch.path(), &["report", "--processes", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    let mut found: Vec<_> = rows
        .iter()
        .map(|row| (row["status"].as_u64(), row["signal"].as_u64()))
        .collect();
    found.sort_unstable();
    let all = [5, 7, 0, 3, 9].map(|status| (Some(status), None));
    let killed = [9, 15].map(|signal| (None, Some(signal)));
    let mut expected = match kernel_keeps_statuses() {
        true => [&killed[..], &all].concat(),
        // That of nopal's own child alone.
        false => [vec![(None, None); 6], all[..1].to_vec()].concat(),
    };
    expected.sort_unstable();
    assert_eq!(found, expected, "{}", report.stdout);
    // Where the status is known, so is the time of the end.
    for row in rows {
        let is_known = row["status"].is_u64() || row["signal"].is_u64();
        assert_eq!(row.get("duration_is_least").is_none(), is_known, "{row}");
    }
    let text = nopal_with(scratch.path(), &["report", "--processes"]).stdout;
    assert!(text.contains("status 5"), "{text}");
    assert_eq!(text.contains(" ? "), !kernel_keeps_statuses(), "{text}");
}

/// The last process, whose memory has gone before its files are closed and its status is known.
#[test]
fn a_process_that_ends_last_has_its_status() {
    let scratch = scratch();
    let script = "import os, resource, time
if os.fork():
    os._exit(5)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
files = 15000 if hard < 0 else min(hard, 15000)
resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
for file in range(files - 20):
    os.open('/dev/null', os.O_RDONLY)
time.sleep(0.3)
os._exit(3)";
    let command = ["record", "--", "python3", "-c", script];
    for _ in 0..8 {
        let ended = nopal_with(scratch.path(), &command);
        assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
        let report = nopal_with(scratch.path(), &["report", "--processes", "--json"]);
        let has_status = report.stdout.contains("\"status\":3");
        assert_eq!(has_status, kernel_keeps_statuses(), "{}", report.stdout);
    }
}
