//! Launching, and how launched programs end.

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Program, compile, eventually};
use nopal_process::{
    Command, Ending, Event, ExitWatch, LaunchError, Launched, LoaderStop, Memory, Stop, SystemCall,
    Thread, auxiliary, environment, find_system_call_gadget, launch, run_to_loader_consistent,
};

fn command(program: &str, arguments: &[&str]) -> Command {
    let given = std::iter::once(&program).chain(arguments);
    Command {
        program: program.into(),
        arguments: given.map(OsString::from).collect(),
        environment: None,
        directory: None,
    }
}

fn finish(launched: Launched) -> Ending {
    let mut watch = ExitWatch::new(launched.pid).unwrap();
    launched.thread.detach().unwrap();
    watch.wait().unwrap()
}

/// Launches it once nothing writes to it: a test beside this one may have forked while a script was being written, and
/// not have executed anything yet.
fn try_launch(command: &Command) -> Result<Launched, LaunchError> {
    let mut launched = launch(command, |_| ());
    eventually("nothing writes to it", || {
        let is_busy = matches!(launched, Err(LaunchError::Execute(libc::ETXTBSY)));
        if is_busy {
            launched = launch(command, |_| ());
        }
        !is_busy
    });
    launched
}

fn end_of(command: &Command) -> Ending {
    finish(try_launch(command).unwrap())
}

fn failure_of(command: &Command) -> i32 {
    match try_launch(command) {
        Err(LaunchError::Execute(errno)) => errno,
        other => panic!("{other:?}"),
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_launched_program_has_not_begun() {
    let launched = launch(&command("true", &[]), |_| ()).unwrap();
    assert_eq!(launched.thread.stop(), Some(Stop::Executed));
    assert_eq!(nopal_process::name(launched.pid).unwrap(), "true");
    let entry = auxiliary(launched.pid).unwrap().entry;
    assert!(
        entry.is_some_and(
            |entry| entry != launched.thread.registers().unwrap().instruction_pointer()
        )
    );
    assert_eq!(launched.thread.thread_pointer().unwrap(), 0);
    assert_eq!(finish(launched), Ending::Exited(0));
}

#[test]
fn the_end_is_told() {
    assert_eq!(
        end_of(&command("sh", &["-c", "exit 42"])),
        Ending::Exited(42)
    );
    let killed = end_of(&command("sh", &["-c", "kill -9 $$"]));
    assert_eq!(
        killed,
        Ending::Killed {
            signal: 9,
            core: false
        }
    );
}

#[test]
fn failures_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let searched = Command {
        environment: Some(vec!["PATH=/usr/bin:/bin".into()]),
        ..command("nopal-no-such-program", &[])
    };
    assert_eq!(failure_of(&searched), libc::ENOENT);
    assert_eq!(failure_of(&command(&path("missing"), &[])), libc::ENOENT);
    assert_eq!(failure_of(&command("", &[])), libc::ENOENT);
    assert_eq!(failure_of(&command("/etc/passwd", &[])), libc::EACCES);
    assert_eq!(failure_of(&command("/tmp", &[])), libc::EACCES);
    assert_eq!(failure_of(&command("/etc/passwd/x", &[])), libc::ENOTDIR);
    script(&directory.path().join("lost"), "#!/nopal/no/interpreter\n");
    assert_eq!(failure_of(&command(&path("lost"), &[])), libc::ENOENT);
    let zero = launch(&command("tr\0ue", &[]), |_| ());
    assert!(matches!(zero, Err(LaunchError::Zero)));
    let nowhere = Command {
        directory: Some(path("nowhere").into()),
        ..command("true", &[])
    };
    assert!(matches!(
        launch(&nowhere, |_| ()),
        Err(LaunchError::Directory(libc::ENOENT))
    ));
}

#[test]
fn scripts_run_as_execvp_runs_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain");
    script(
        &path,
        "test \"$1 $2 $#\" = 'a b c 2' && test \"$0\" = \"$EXPECTED\" && exit 9\n",
    );
    let name = path.to_str().unwrap();
    let mut entries = environment();
    entries.push(format!("EXPECTED={name}").into());
    let plain = Command {
        environment: Some(entries),
        ..command(name, &["a b", "c"])
    };
    assert_eq!(end_of(&plain), Ending::Exited(9));
    let marked = directory.path().join("marked");
    script(&marked, "#!/bin/sh\nexit $1\n");
    assert_eq!(
        end_of(&command(marked.to_str().unwrap(), &["8"])),
        Ending::Exited(8)
    );
    // Not even argv[0]: the kernel supplies an empty one.
    let bare = Command {
        program: name.into(),
        ..Command::default()
    };
    assert_eq!(end_of(&bare), Ending::Exited(1));
}

#[test]
fn programs_are_searched_as_execvp_searches_them() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str, text: &str, mode: u32| {
        let folder = directory.path().join(name);
        fs::create_dir(&folder).unwrap();
        script(&folder.join("tool"), text);
        fs::set_permissions(folder.join("tool"), fs::Permissions::from_mode(mode)).unwrap();
        folder.to_str().unwrap().to_owned()
    };
    let denied = make("denied", "", 0o644);
    let first = make("first", "exit 11", 0o755);
    let second = make("second", "exit 12", 0o755);
    let search = |path: &str, directory: Option<&str>| Command {
        environment: Some(vec![format!("PATH={path}").into()]),
        directory: directory.map(Into::into),
        ..command("tool", &[])
    };
    let end = |path: &str| end_of(&search(path, None));
    assert_eq!(end(&format!("{first}:{second}")), Ending::Exited(11));
    assert_eq!(end(&format!("{second}:{first}")), Ending::Exited(12));
    assert_eq!(
        end(&format!("/nowhere:/etc/passwd:{denied}:{second}")),
        Ending::Exited(12)
    );
    assert_eq!(
        failure_of(&search(&format!("{denied}:/nowhere"), None)),
        libc::EACCES
    );
    assert_eq!(failure_of(&search("/nowhere", None)), libc::ENOENT);
    // An empty element is the current directory, which is the program's.
    assert_eq!(
        end_of(&search("/nowhere:", Some(&second))),
        Ending::Exited(12)
    );
}

/// Address of a symbol of the loader, by `nm`.
fn loader_symbol(name: &str) -> u64 {
    let mut names = std::process::Command::new("nm");
    names.args(["-D", "/lib64/ld-linux-x86-64.so.2"]);
    let names = String::from_utf8(names.output().unwrap().stdout).unwrap();
    let found = names.lines().find(|line| {
        line.split('@')
            .next()
            .unwrap()
            .ends_with(&format!(" {name}"))
    });
    u64::from_str_radix(found.unwrap().split(' ').next().unwrap(), 16).unwrap()
}

fn to_consistent(thread: &mut Thread) -> LoaderStop {
    let base = auxiliary(thread.pid()).unwrap().loader_base.unwrap();
    let breakpoint = base + loader_symbol("_dl_debug_state");
    // struct r_debug: version, map, breakpoint, state
    let state = base + loader_symbol("_r_debug") + 24;
    run_to_loader_consistent(thread, breakpoint, state, |_| {}).unwrap()
}

fn loaded() -> Program {
    let program = compile_library();
    let out = program.directory.path().join("loaded");
    let flags = [
        program.path.to_str().unwrap().to_owned(),
        "-Wl,-rpath,$ORIGIN".to_owned(),
    ];
    common::compile_into(&out, "loaded", &flags.each_ref().map(String::as_str));
    Program {
        path: out,
        ..program
    }
}

fn compile_library() -> Program {
    let program = common::compile_with("loaded", &["-shared", "-fPIC", "-DLIBRARY"]);
    let path = program.directory.path().join("libloaded.so");
    fs::rename(&program.path, &path).unwrap();
    Program { path, ..program }
}

/// Runs `words` in a shell that writes into a file, up to where the loader is done with `program`.
fn run_loaded(program: &Program, before: &[&str]) -> (Vec<String>, Ending) {
    let out = program.directory.path().join("out");
    let path = program.path.to_str().unwrap();
    let shell = format!("exec \"$@\" >{}", out.display());
    let mut arguments = vec!["-c", &shell, "sh"];
    arguments.extend(before);
    arguments.push(path);
    let mut launched = launch(&command("sh", &arguments), |_| ()).unwrap();
    for _ in 0..1 + usize::from(!before.is_empty()) {
        launched.thread.resume().unwrap();
        loop {
            match launched.thread.wait().unwrap() {
                Event::Stopped(Stop::Executed) => break,
                Event::Stopped(_) => launched.thread.resume().unwrap(),
                Event::Ended(ending) => panic!("{ending:?}"),
            }
        }
    }
    assert_eq!(to_consistent(&mut launched.thread), LoaderStop::Consistent);
    let pid = launched.pid;
    assert_eq!(launched.thread.stop(), Some(Stop::Interrupted));
    assert_ne!(launched.thread.thread_pointer().unwrap(), 0);
    // Everything is mapped and relocated, the breakpoint is gone, and nothing has run.
    let modules = nopal_process::modules(pid).unwrap();
    assert!(
        modules
            .iter()
            .any(|module| module.path.ends_with("libloaded.so"))
    );
    let loader = auxiliary(pid).unwrap().loader_base.unwrap();
    let mut byte = [0];
    let memory = Memory::open(pid).unwrap();
    memory
        .read(loader + loader_symbol("_dl_debug_state"), &mut byte)
        .unwrap();
    assert_ne!(byte, [0xcc]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "");
    makes_calls(&mut launched.thread);
    let ending = finish(launched);
    let said = fs::read_to_string(&out).unwrap();
    (said.lines().map(str::to_owned).collect(), ending)
}

/// It makes system calls up to one that fails, and stands as before.
fn makes_calls(thread: &mut Thread) {
    let before = thread.registers().unwrap();
    let gadget = find_system_call_gadget(thread.pid()).unwrap();
    let call = |number, word| SystemCall {
        number,
        arguments: [word, 0, 0, 0, 0, 0],
        expected: None,
    };
    let calls = [
        call(libc::SYS_getpid, 0),
        call(libc::SYS_getpgid, 0),
        call(libc::SYS_close, u64::MAX),
        call(libc::SYS_getpid, 0),
    ];
    let results = thread.remote_system_calls(gadget, &calls).unwrap();
    let own_group = unsafe { libc::getpgid(0) };
    assert_eq!(
        results,
        [thread.pid(), own_group, -libc::EBADF].map(i64::from)
    );
    assert_eq!(thread.stop(), Some(Stop::Interrupted));
    assert_eq!(
        format!("{before:?}"),
        format!("{:?}", thread.registers().unwrap())
    );
}

#[test]
fn signals_that_come_before_calls_are_not_lost() {
    let program = loaded();
    for signal in [libc::SIGTERM, libc::SIGTRAP] {
        let mut launched = launch(&command(program.path.to_str().unwrap(), &[]), |_| ()).unwrap();
        assert_eq!(to_consistent(&mut launched.thread), LoaderStop::Consistent);
        unsafe { libc::kill(launched.pid, signal) };
        if signal == libc::SIGTERM {
            makes_calls(&mut launched.thread);
        } else {
            // It cannot be held back.
            let gadget = find_system_call_gadget(launched.pid).unwrap();
            let made = launched
                .thread
                .remote_system_call(gadget, libc::SYS_getpid, [0; 6]);
            assert!(made.is_err());
        }
        let ending = finish(launched);
        assert!(
            matches!(ending, Ending::Killed { signal: by, .. } if by == signal),
            "{ending:?}"
        );
    }
}

#[test]
fn the_loader_is_done_before_any_constructor_runs() {
    let program = loaded();
    let (said, ending) = run_loaded(&program, &[]);
    assert_eq!(
        said,
        [
            "library constructor",
            "constructor",
            "main",
            "trap default, free"
        ]
    );
    assert_eq!(ending, Ending::Exited(5));
}

#[test]
fn a_breakpoint_leaves_the_handling_of_traps_alone() {
    let program = loaded();
    let setting = compile("setting");
    for (words, state) in [
        ("ignore", "trap ignored, free"),
        ("block", "trap default, blocked"),
        ("ignore block", "trap ignored, blocked"),
    ] {
        let (said, ending) = run_loaded(&program, &[setting.path.to_str().unwrap(), words]);
        assert_eq!(said.last().unwrap(), state);
        assert_eq!(ending, Ending::Exited(5));
    }
}

#[test]
fn the_loader_is_waited_for_whatever_signals_do() {
    let program = loaded();
    for option in [
        "--ignore-signal=URG,WINCH",
        "--block-signal=URG",
        "--block-signal=URG,WINCH",
    ] {
        let (said, ending) = run_loaded(&program, &["env", option]);
        assert_eq!(
            said.first().unwrap(),
            "library constructor",
            "with {option}"
        );
        assert_eq!(ending, Ending::Exited(5));
    }
}

#[test]
fn a_program_that_cannot_be_loaded_ends() {
    let program = loaded();
    fs::remove_file(program.directory.path().join("libloaded.so")).unwrap();
    let mut launched = launch(&command(program.path.to_str().unwrap(), &[]), |_| ()).unwrap();
    assert_eq!(to_consistent(&mut launched.thread), LoaderStop::Exited(127));
    let mut watch = ExitWatch::new(launched.pid).unwrap();
    assert_eq!(watch.wait().unwrap(), Ending::Exited(127));
}

#[test]
fn a_program_killed_while_it_is_loaded_ends() {
    let mut launched = launch(&command("true", &[]), |_| ()).unwrap();
    unsafe { libc::kill(launched.pid, libc::SIGTERM) };
    let killed = LoaderStop::Killed {
        signal: libc::SIGTERM,
        core: false,
    };
    assert_eq!(to_consistent(&mut launched.thread), killed);
    assert_eq!(
        ExitWatch::new(launched.pid).unwrap().wait().unwrap(),
        Ending::Killed {
            signal: libc::SIGTERM,
            core: false
        }
    );
}
