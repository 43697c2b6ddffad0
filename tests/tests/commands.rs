//! The command line itself: errors, pipes, terminals, directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nopal_tests::process::wait_until;
use nopal_tests::terminal::Terminal;
use nopal_tests::{
    AttachedProgram, Case, End, Ended, Program, Report, Start, c, nopal, scratch, shell_word,
};

fn start(words: &[&str], directory: &Path) -> Start {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.directory = Some(directory.to_path_buf());
    start
}

fn run(words: &[&str], directory: &Path) -> Ended {
    start(words, directory).run("")
}

/// Asserts that a command prints one line about the error, and ends with another status than 0.
fn assert_error(words: &[&str], directory: &Path, expected: &str) {
    let ended = run(words, directory);
    assert!(matches!(ended.end, End::Code(1..)), "{words:?}: {ended:?}");
    assert!(
        ended.stderr.starts_with("nopal: ") && ended.stderr.lines().count() == 1,
        "{words:?}: {}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains(expected),
        "{words:?}: {}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "", "{words:?}");
}

#[test]
fn what_cannot_be_recorded() {
    let scratch = scratch();
    let here = scratch.path();
    fs::write(here.join("text"), "no program\n").unwrap();
    fs::write(
        here.join("noise"),
        [0x7f, b'E', b'L', b'F', 9, 9, 9, 9, 9, 9],
    )
    .unwrap();
    fs::set_permissions(here.join("noise"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut foreign = fs::read(c("end", &[]).path).unwrap();
    // The machine of the file is AArch64.
    foreign[18] = 0xb7;
    fs::write(here.join("foreign"), foreign).unwrap();
    fs::set_permissions(here.join("foreign"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_error(
        &["record", "no-such-program-at-all"],
        here,
        "no-such-program-at-all",
    );
    assert_error(&["record", "./missing"], here, "missing");
    let option = "there is no option --lbis";
    assert_error(&["record", "--lbis", "--", "true"], here, option);
    // Without a word on what is missing otherwise.
    assert_error(&["run", "-x", "true"], here, "there is no option -x");
    let behind = ["record", "--", "--lbis"];
    assert_error(&behind, here, "--lbis: No such file");
    assert_error(&["record", "./text"], here, "text");
    assert_error(&["record", "/"], here, "/");
    assert_error(&["record", "./noise"], here, "noise");
    assert_error(&["record", "./foreign"], here, "aarch64");
    assert!(
        !here.join("nopal.data").exists(),
        "a program that did not run leaves no trace"
    );
}

#[test]
fn a_static_program_is_traced() {
    let scratch = scratch();
    let program = c("end", &["-static"]).path;
    let trace = scratch.path().join("trace");
    let ended = run(
        &[
            "record",
            "-o",
            trace.to_str().unwrap(),
            program.to_str().unwrap(),
            "exit",
            "5",
        ],
        scratch.path(),
    );
    assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
    assert_eq!(Report::of(&trace).calls("work"), 1);
}

#[test]
fn what_cannot_be_read() {
    let scratch = scratch();
    let here = scratch.path();
    fs::create_dir(here.join("empty")).unwrap();
    fs::write(here.join("file"), "x").unwrap();
    for command in [
        &["report"][..],
        &["replay"],
        &["graph", "main"],
        &["info"],
        &["dump", "--as", "raw"],
    ] {
        assert_error(&[command, &["missing"]].concat(), here, "nopal record");
        assert_error(&[command, &["empty"]].concat(), here, "not a trace");
        assert_error(&[command, &["file"]].concat(), here, "file");
    }
    assert_error(
        &["list", "no-such-program-at-all"],
        here,
        "no-such-program-at-all",
    );
    assert_error(&["list", "./file"], here, "ELF");
    assert_error(&["record", "--buffer", "10", "ls"], here, "128K");
}

#[test]
fn usage_errors_end_with_status_2() {
    let scratch = scratch();
    for words in [
        &["record"][..],
        &["nonsense"],
        &["report", "--sort", "taste"],
        &["record", "--buffer", "12Q", "ls"],
    ] {
        assert_eq!(run(words, scratch.path()).end, End::Code(2), "{words:?}");
    }
}

#[test]
fn an_older_trace_is_kept_once_and_other_directories_are_left_alone() {
    let scratch = scratch();
    let here = scratch.path();
    let program = c("end", &[]).path;
    let record = || {
        let words = ["record", program.to_str().unwrap(), "exit", "0"];
        assert_eq!(run(&words, here).end, End::Code(0));
        fs::read_to_string(here.join("nopal.data/session/notes")).unwrap()
    };
    let first = record();
    let mode = |name: &str| fs::metadata(here.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("nopal.data"), mode("nopal.data/stream-0")),
        (0o700, 0o600)
    );
    let mut last = first;
    for _ in 0..2 {
        let new = record();
        let kept = fs::read_to_string(here.join("nopal.data.old/session/notes")).unwrap();
        assert!(kept == last && new != last, "the last one is kept");
        last = new;
    }

    fs::create_dir(here.join("other")).unwrap();
    fs::write(here.join("other/treasure"), "gold").unwrap();
    assert_error(
        &[
            "record",
            "-o",
            "other",
            program.to_str().unwrap(),
            "exit",
            "0",
        ],
        here,
        "other",
    );
    assert_eq!(
        fs::read_to_string(here.join("other/treasure")).unwrap(),
        "gold"
    );
}

/// A trace with records of many kinds.
fn recorded(scratch: &Path) -> String {
    let trace = scratch.join("trace").display().to_string();
    let program = c("calls", &["-lm"]).path.display().to_string();
    assert_eq!(
        run(&["record", "-o", &trace, &program], scratch).end,
        End::Code(0)
    );
    trace
}

#[test]
fn several_traces_are_read_as_one() {
    let scratch = scratch();
    let here = scratch.path();
    let program = c("calls", &["-lm"]).path.display().to_string();
    for name in ["a", "b"] {
        let ended = run(&["record", "-o", name, &program], here);
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    }
    fs::create_dir(here.join("temporary")).unwrap();
    let text = |words: &[&str]| {
        let mut start = start(words, here);
        let place = here.join("temporary").into();
        start.environment.push(("TMPDIR".into(), place));
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{words:?}: {}", ended.stderr);
        let left = fs::read_dir(here.join("temporary")).unwrap().count();
        assert_eq!(left, 0, "{words:?}");
        ended.stdout
    };
    let calls = |words: &[&str], function: &str| {
        let rows: serde_json::Value = serde_json::from_str(&text(words)).expect("valid JSON");
        let rows = rows.as_array().unwrap();
        let row = rows.iter().find(|row| row["function"] == function).unwrap();
        row["calls"].as_u64().unwrap()
    };
    let of_both = calls(&["report", "--json", "a", "b"], "fib");
    assert_eq!(of_both, 2 * calls(&["report", "--json", "a"], "fib"));
    assert_eq!(
        of_both,
        calls(&["report", "--json", "-i", "a", "-i", "b"], "fib")
    );
    assert_eq!(
        text(&["report", "--processes", "a", "b"]).lines().count(),
        4
    );
    for words in [
        &["graph", "fib", "-i", "a", "-i", "b"][..],
        &["hist", "fib", "a", "-i", "b"],
        &["replay", "-F", "main", "a", "b"],
        &["slow", "main", "-i", "a", "-i", "b"],
        &["requests", "main..main.end", "-i", "a", "-i", "b"],
        &["flame", "--per", "process", "a", "b"],
    ] {
        assert!(
            text(words).contains("main") || text(words).contains("fib"),
            "{words:?}"
        );
    }
    // Between the traces lies so much time that no call has room for a name.
    let picture = text(&["plot", "timeline", "--by", "thread", "a", "b"]);
    assert_eq!(picture.matches(">\nthread ").count(), 2, "{picture}");
    assert_error(&["report", "a", "a"], here, "that another one has, too");
}

#[test]
fn every_reader_reads() {
    let scratch = scratch();
    let trace = recorded(scratch.path());
    let text = |words: &[&str]| {
        let ended = run(&[words, &[&trace]].concat(), scratch.path());
        assert_eq!(ended.end, End::Code(0), "{words:?}: {}", ended.stderr);
        assert!(
            !ended.stdout.contains('\x1b'),
            "no colours without a terminal: {words:?}"
        );
        ended.stdout
    };
    for words in [
        &["report"][..],
        &["report", "--callers", "fib"],
        &["report", "--callees", "main"],
        &["replay"],
        &["graph"],
        &["graph", "fib"],
        &["dump", "--as", "function"],
        &["dump", "--as", "chrome"],
        &["dump", "--as", "folded"],
    ] {
        assert!(text(words).contains("fib"), "{words:?}");
    }
    assert!(text(&["report", "--threads"]).lines().count() >= 2);
    assert!(text(&["info"]).contains("calls"));
    let chrome: serde_json::Value =
        serde_json::from_str(&text(&["dump", "--as", "chrome"])).expect("valid JSON");
    assert!(
        chrome["traceEvents"]
            .as_array()
            .is_some_and(|events| events.len() > 20_000)
    );
    let records = text(&["dump", "--as", "devtrace"]);
    let begins = |letter: &str| {
        records
            .lines()
            .filter(|line| line.starts_with(letter))
            .count() as u64
    };
    assert_eq!(begins("E "), Report::of(Path::new(&trace)).total_calls());
    // Calls entered by a jump, and calls open at the program's end, have no exit of their own: both are few.
    let without_exit = begins("E ") - begins("X ");
    assert!((1..10).contains(&without_exit), "{without_exit}");

    let first = text(&["report", "-s", "calls", "-n", "1"]);
    assert!(
        first
            .lines()
            .nth(1)
            .is_some_and(|line| line.contains("fib")),
        "{first}"
    );
}

#[test]
fn a_closed_pipe_is_silent() {
    let scratch = scratch();
    let trace = recorded(scratch.path());
    for command in [
        "replay",
        "dump --as raw",
        "dump --as chrome",
        "report",
        "graph",
    ] {
        let script = format!(
            "{} {command} {} | head -n 1 >/dev/null; test ${{PIPESTATUS[0]}} -ne 1",
            shell_word(nopal()),
            shell_word(&trace)
        );
        let ended = Start::new(["bash", "-c", &script]).run("");
        assert_eq!(
            (ended.end, ended.stderr.as_str()),
            (End::Code(0), ""),
            "{command}"
        );
    }
}

#[test]
fn a_terminal_gets_colours_and_a_pager() {
    let scratch = scratch();
    let trace = recorded(scratch.path());
    let mut start = start(&["replay", &trace], scratch.path());
    start
        .environment
        .push(("PAGER".into(), "sed 's/^/paged: /' | head -n 50".into()));
    let mut terminal = Terminal::start(&start);
    assert_eq!(terminal.wait(), End::Code(0));
    terminal.wait_for("fib");
    assert!(
        terminal.text().contains("paged: ") && terminal.text().contains('\x1b'),
        "{}",
        terminal.text()
    );
}

#[test]
fn a_disk_that_fills_up_leaves_a_readable_trace_and_the_program_alone() {
    ends_on_a_small_disk("--max-size 1G", "No space left");
}

#[test]
fn a_trace_takes_half_of_a_disk_unless_more_is_asked_for() {
    ends_on_a_small_disk("", "half of what was free on the disk");
}

/// Asserts that the trace ends with a reason, and that the program runs to its end.
fn ends_on_a_small_disk(options: &str, why: &str) {
    let scratch = scratch();
    let here = scratch.path();
    fs::create_dir(here.join("disk")).unwrap();
    let program = c("full_speed", &[]).path;
    // The disk has 2 MiB, in a mount namespace of its own; the report is copied out of it.
    let script = format!(
        "mount -t tmpfs -o size=2m none disk && {nopal} record --block {options} -o disk/trace {program} 2 500000; echo $?; \
         {nopal} report --json disk/trace > report.json",
        nopal = shell_word(nopal()),
        program = shell_word(&program)
    );
    let mut start = Start::new([
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
    ]);
    start.directory = Some(here.to_path_buf());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{ended:?}");
    assert_eq!(
        ended.stdout, "calls: 1000000 leaf\ncalls: 2 hot\n0\n",
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    let rows: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.join("report.json")).unwrap()).unwrap();
    let leaf = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["function"] == "leaf")
        .expect("the trace holds calls");
    assert!((1..1_000_000).contains(&leaf["calls"].as_u64().unwrap()));
}

#[test]
fn a_trace_of_limited_size() {
    let case = Case::new(c("full_speed", &[])).arguments(["2", "500000"]);
    let traced = case.options(["--block", "--max-size", "2M"]).traced();
    assert_eq!(traced.ended.end, End::Code(0));
    let sizes = fs::read_dir(traced.directory())
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len());
    let size: u64 = sizes.sum();
    assert!((1 << 20..5 << 19).contains(&size), "{size} bytes");
    assert!((1..1_000_000).contains(&traced.report.calls("leaf")));
}

#[test]
fn nothing_is_recorded_when_the_trace_is_full() {
    let program = c("counted", &["-pthread"]);
    let mut attached = AttachedProgram::new(program, &["--max-size", "1M"]);
    wait_until("the recording is stopped", || {
        attached.run("work 100000");
        attached.state().ends_with("\nstop\n")
    });
    for command in ["start", "reset\ntrace work new w\ntrace w on\nstart"] {
        let error = attached.refused(command);
        assert!(error.contains("the trace is full"), "{error}");
    }
    assert!(
        attached
            .state()
            .contains("\n#traceactive 0: the trace is full")
    );
    let (_, ended) = attached.end();
    let expected = "(--max-size); recording was stopped then\n";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn the_last_moments_of_a_flight() {
    let case = Case::new(c("full_speed", &[])).arguments(["1", "3000000"]);
    let traced = case.options(["--flight", "--buffer", "4M"]).traced();
    assert_eq!(traced.ended.end, End::Code(0));
    let calls = traced.report.calls("leaf");
    assert!(
        (100_000..600_000).contains(&calls),
        "4 MiB are half a million events: {calls} calls"
    );
    assert_eq!(
        traced.report.rows_of("hot").count(),
        1,
        "the frame around the last calls"
    );
}

#[test]
fn a_trace_that_was_cut_anywhere_is_read_or_refused_but_never_harms() {
    let scratch = scratch();
    let trace = recorded(scratch.path());
    let stream = Path::new(&trace).join("stream-0");
    let whole = fs::read(&stream).unwrap();
    for part in 0..12 {
        fs::write(&stream, &whole[..whole.len() * part / 12 + part]).unwrap();
        for command in [
            &["report"][..],
            &["replay"],
            &["dump", "--as", "chrome"],
            &["info"],
        ] {
            let ended = run(&[command, &[&trace]].concat(), scratch.path());
            // Status 3: the reader shows the rest, and says that the trace is incomplete.
            assert!(
                matches!(ended.end, End::Code(0 | 1 | 3)),
                "{command:?} {part}: {ended:?}"
            );
            assert!(
                !ended.stderr.contains("panicked"),
                "{command:?} {part}: {}",
                ended.stderr
            );
        }
    }
}

#[test]
fn list_says_what_and_why_not() {
    let scratch = scratch();
    let program = c("calls", &["-lm"]).path;
    let ended = run(&["list", program.to_str().unwrap()], scratch.path());
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let line = |name: &str| {
        ended
            .stdout
            .lines()
            .find(|line| line.split_whitespace().any(|word| word == name))
    };
    assert!(
        line("fib").is_some_and(|line| line.contains("jump")),
        "{}",
        ended.stdout
    );
    assert!(
        line("_start").is_some_and(|line| line.contains("entry")),
        "{}",
        ended.stdout
    );
    assert!(
        ended
            .stdout
            .lines()
            .last()
            .is_some_and(|line| line.contains("functions can be traced"))
    );
}

#[test]
fn list_tells_of_all_that_a_process_has_loaded() {
    let scratch = scratch();
    let case = Case::new(c("requests", &[]));
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text == "ready\n");
    let process = program.id().to_string();
    let ended = run(&["list", &process], scratch.path());
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    for expected in [
        "/requests",
        "/libc.so.6: ",
        "served  ",
        "requests:answered",
        "requests.c:",
        "; 1 marker; 1 USDT probe\n",
    ] {
        assert!(
            ended.stdout.contains(expected),
            "{expected}: {}",
            ended.stdout
        );
    }
    let ended = run(&["list", "--json", &process], scratch.path());
    let files: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(files[0]["markers"][0]["name"], "served");
    assert!(files.as_array().unwrap().len() > 1);
    let ended = run(&["list", "--probes", "strnlen", &process], scratch.path());
    assert!(ended.stdout.contains("strnlen"), "{}", ended.stderr);
    drop(program.stdin());
    program.wait();
    assert_error(&["list", "4194305"], scratch.path(), "4194305");
}

#[test]
fn what_another_tracer_holds_is_not_waited_for() {
    let scratch = scratch();
    let follower = c("follower", &[]).path;
    let words = [follower.as_os_str(), nopal().as_os_str()];
    let mut start = Start::new(words);
    let more = ["record", "--", "/bin/true"].map(Into::into);
    start.words.extend(more);
    start.directory = Some(scratch.path().to_path_buf());
    let ended = start.run("");
    assert!(matches!(ended.end, End::Code(1..)), "{ended:?}");
    assert!(ended.stderr.starts_with("nopal: "), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("(follower): detach that first"),
        "{}",
        ended.stderr
    );
}

#[test]
fn doctor_looks_at_this_machine() {
    let scratch = scratch();
    let ended = run(&["doctor"], scratch.path());
    assert_eq!(
        ended.end,
        End::Code(0),
        "programs can be traced where these tests run: {}",
        ended.stdout
    );
    assert!(ended.stdout.contains("ptrace") && ended.stdout.contains("Linux"));
}

#[test]
fn manual_pages_are_made() {
    let scratch = scratch();
    assert_eq!(run(&["man", "pages"], scratch.path()).end, End::Code(0));
    let page = fs::read_to_string(scratch.path().join("pages/nopal-record.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("max\\-size"));
    let (_, synopsis) = page.split_once(".SH SYNOPSIS").unwrap();
    let (synopsis, _) = synopsis.split_once(".SH").unwrap();
    for part in ["\\-\\-buffer", "SIZE", "PROGRAM"] {
        assert!(synopsis.contains(part), "{part}: {synopsis}");
    }
    for page in fs::read_dir(scratch.path().join("pages")).unwrap() {
        let path = page.unwrap().path();
        let has_examples = fs::read_to_string(&path).unwrap().contains(".SH EXAMPLES");
        // The first page, and the page of a language, describe no single command.
        let must = !path.ends_with("nopal.1") && !path.ends_with("nopal-ctl.5");
        assert!(has_examples || !must, "{}", path.display());
    }
}

#[test]
fn without_a_command_ten_lines_say_what_there_is() {
    let scratch = scratch();
    let ended = run(&[], scratch.path());
    assert_eq!(ended.end, End::Code(2));
    assert_eq!(ended.stderr.lines().count(), 11);
    assert!(ended.stderr.contains("nopal record -- ./program"));
}

#[test]
fn defaults_are_set_by_variables_and_a_file_of_the_user() {
    let scratch = scratch();
    let configured = |variables: &[(&str, &str)]| {
        let mut start = Start::new([nopal().as_os_str(), "doctor".as_ref()]);
        start.directory = Some(scratch.path().into());
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        start.environment.extend(variables);
        start.run("")
    };
    let directory = scratch.path().to_str().unwrap();
    fs::write(scratch.path().join("nopal.toml"), "names = 'full'\n").unwrap();
    let here = configured(&[("XDG_CONFIG_HOME", "."), ("HOME", "")]);
    assert!(here.stdout.contains("defaults only"), "{}", here.stdout);
    let ended = configured(&[("XDG_CONFIG_HOME", directory), ("NOPAL_BUFFER", "1M")]);
    let expected = format!("names = full ({directory}/nopal.toml), buffer = 1M (NOPAL_BUFFER)");
    assert!(ended.stdout.contains(&expected), "{}", ended.stdout);
    let ended = configured(&[("XDG_CONFIG_HOME", directory), ("NOPAL_NAMES", "long")]);
    assert!(
        ended.stderr.contains("NOPAL_NAMES does not count"),
        "{}",
        ended.stderr
    );
}

#[test]
fn installed_programs_are_found_in_the_path() {
    let trace = Case::new(Program::installed("true")).traced();
    assert_eq!(trace.ended.end, End::Code(0));
}
