//! Limits are the program's: nopal lifts its own, and if it may not, the program runs on without it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use nopal_tests::{Case, End, Program, Start, c, nopal, scratch};

const KIB: u64 = 1 << 10;

/// A program that needs little, and does the same traced and untraced.
fn small() -> Case {
    Case::new(c("phases", &[])).input("on\n")
}

fn assert_unharmed(case: &Case, what: &str) -> String {
    let scratch = scratch();
    let ended = case.traced_start(&scratch.path().join("trace")).run("on\n");
    assert_eq!(ended.end, End::Code(5), "{what}: {}", ended.stderr);
    assert!(ended.stdout.ends_with("phase 1\nend\n"), "{what}");
    let expected = ["untraced", " events of ", "could not be completed"];
    let is_reported = expected.iter().any(|part| ended.stderr.contains(part));
    assert!(is_reported, "{what}: {}", ended.stderr);
    ended.stderr
}

#[test]
fn whatever_is_limited_the_program_runs() {
    for (resource, values) in [
        (libc::RLIMIT_FSIZE, &[1, 512, 4 * KIB, 64 * KIB][..]),
        (
            libc::RLIMIT_NOFILE,
            &[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24],
        ),
        (libc::RLIMIT_AS, &[100_000 * KIB, 200_000 * KIB]),
        (
            libc::RLIMIT_DATA,
            &[
                3000 * KIB,
                4000 * KIB,
                5000 * KIB,
                10_000 * KIB,
                20_000 * KIB,
            ],
        ),
        (libc::RLIMIT_STACK, &[64 * KIB, 128 * KIB, 256 * KIB]),
        (libc::RLIMIT_NPROC, &[1]),
        (libc::RLIMIT_MEMLOCK, &[0]),
        (libc::RLIMIT_CORE, &[0]),
        (libc::RLIMIT_SIGPENDING, &[0]),
        (libc::RLIMIT_CPU, &[60]),
    ] {
        for &value in values {
            let case = small().limit(resource, value);
            assert_unharmed(&case, &format!("limit {value} of resource {resource}"));
        }
    }
}

/// Root lifts hard limits; other users reach them somewhere in nopal's work, perhaps in several threads at once.
#[test]
fn where_memory_runs_out_the_programs_status_remains() {
    let scratch = scratch();
    let folder = scratch.path();
    let own = folder.join("own");
    let program = folder.join("program");
    fs::copy(nopal(), folder.join("nopal")).unwrap();
    fs::copy(c("phases", &[]).path, &program).unwrap();
    fs::create_dir(&own).unwrap();
    for (path, mode) in [(folder, 0o755), (&own, 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mut ran = 0;
    let limits = (1200..6000).step_by(100).chain((6000..16_000).step_by(500));
    for limit in limits {
        for backtrace in ["0", "1"] {
            let mut start = Start::new([
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ]);
            start.words.extend([
                folder.join("nopal").into(),
                "record".into(),
                "-o".into(),
                own.join("trace").into(),
                "--".into(),
                program.clone().into(),
            ]);
            let variables = [
                ("XDG_CACHE_HOME".into(), own.clone().into()),
                ("RUST_BACKTRACE".into(), backtrace.into()),
            ];
            start.environment.extend(variables);
            start.limits.push((libc::RLIMIT_DATA, limit * KIB));
            let ended = start.run("on\n");
            if ended.stdout.ends_with("phase 1\nend\n") {
                assert_eq!(ended.end, End::Code(5), "{limit} KiB: {}", ended.stderr);
                ran += 1;
            }
        }
    }
    assert!(ran > 40, "{ran}");
}

/// A stack that is too small for nopal's own work does not prevent recording.
#[test]
fn a_small_stack_and_few_files_suffice() {
    for (resource, value) in [(libc::RLIMIT_STACK, 64 * KIB), (libc::RLIMIT_NOFILE, 24)] {
        let said = assert_unharmed(&small().limit(resource, value), "small");
        assert!(said.contains(" events of "), "{said}");
    }
}

#[test]
fn a_limit_of_the_size_of_files_is_no_obstacle_for_the_next_recording() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    for limit in [1, 512, 2 * KIB, 64 * KIB] {
        let limited = small().limit(libc::RLIMIT_FSIZE, limit);
        for case in [limited, small()] {
            let ended = case.traced_start(&trace).run("on\n");
            assert_eq!(ended.end, End::Code(5), "{limit}: {}", ended.stderr);
        }
    }
}

#[test]
fn the_program_has_the_limits_that_it_was_given() {
    let shell = Case::new(Program::installed("/bin/bash"));
    let case = shell.arguments(["-c", "ulimit -S -a; ulimit -H -a; exit 3"]);
    let limits = [
        (libc::RLIMIT_NOFILE, 77),
        (libc::RLIMIT_STACK, 6000 * KIB),
        (libc::RLIMIT_CPU, 1000),
        (libc::RLIMIT_FSIZE, 50_000 * KIB),
        (libc::RLIMIT_NPROC, 5000),
    ];
    let case = limits
        .into_iter()
        .fold(case, |case, (resource, value)| case.limit(resource, value));
    let traced = case.traced();
    assert_eq!(traced.ended.end, End::Code(3));
    assert_eq!(traced.ended.stdout, case.untraced().stdout);
}

/// The program ends by the signal of a limit that it reaches itself.
#[test]
fn a_limit_ends_the_program_as_ever() {
    let shell = Case::new(Program::installed("/bin/sh"));
    let case = shell
        .arguments([
            "-c",
            "exec dd if=/dev/zero of=/dev/shm/nopal-limits-$$ bs=4096 count=64",
        ])
        .limit(libc::RLIMIT_FSIZE, 16 * KIB);
    let untraced = case.untraced();
    assert_eq!(untraced.end, End::Signal(libc::SIGXFSZ));
    let scratch = scratch();
    let traced = case.traced_start(&scratch.path().join("trace")).run("");
    assert_eq!(traced.end, End::Signal(libc::SIGXFSZ), "{}", traced.stderr);
    for entry in fs::read_dir("/dev/shm").unwrap().flatten() {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("nopal-limits-")
        {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}
