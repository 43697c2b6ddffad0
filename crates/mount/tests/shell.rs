//! A shell and its tools on the files.

#[path = "../../serve/tests/fake/mod.rs"]
mod fake;

use fake::{LONG, runtime, session};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Less than a shell may take.
const PATIENCE: Duration = Duration::from_secs(100);

struct Mount {
    directory: TempDir,
    end: Sender<()>,
    ended: Receiver<anyhow::Result<()>>,
}

impl Mount {
    fn new() -> Mount {
        runtime();
        let directory = tempfile::tempdir().unwrap();
        let (end, asked) = channel();
        let (said, ended) = channel();
        let path = directory.path().to_path_buf();
        std::thread::spawn(move || {
            said.send(nopal_mount::mount(
                &path,
                || (),
                move || {
                    let _ = asked.recv();
                },
            ))
        });
        let mount = Mount {
            directory,
            end,
            ended,
        };
        let start = Instant::now();
        while !mount.is_mounted() {
            if let Ok(result) = mount.ended.try_recv() {
                panic!("{result:?}");
            }
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        // Once it answers, the kernel and it have agreed.
        mount.good("ls");
        mount
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&format!(" {} fuse", self.path().display()))
    }

    /// A shell in the mounted directory.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["150", "bash", "-c", script]);
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Output {
        self.shell(script).output().unwrap()
    }

    /// The output of a script whose commands must all succeed.
    fn good(&self, script: &str) -> String {
        let output = self.run(&format!("set -eo pipefail; {script}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error output of a script that must fail.
    fn bad(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    fn background(&self, script: &str) -> Child {
        self.shell(&format!("exec {script}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.end.send(());
        let start = Instant::now();
        while self.is_mounted() && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
}

#[test]
fn sessions_appear_and_disappear() {
    let mount = Mount::new();
    let (_fake, server, process) = session();
    let (_other, _second, another) = session();
    let listed = mount.good("ls");
    let listed: Vec<&str> = listed.lines().collect();
    assert!(listed.contains(&process.to_string().as_str()));
    assert!(listed.contains(&another.to_string().as_str()));
    assert_eq!(
        mount.good(&format!("cd {process}; find . -type f | sort")),
        "./ctl\n./long\n./tracing/trace_pipe\n"
    );
    assert_eq!(
        mount.good(&format!(
            "stat -c '%a %s %U %F' . {process} {process}/ctl {process}/long"
        )),
        "700 0 root directory\n700 0 root directory\n600 0 root regular empty file\n\
         400 0 root regular empty file\n"
    );
    drop(server);
    assert!(!mount.good("ls").contains(&process.to_string()));
    let said = mount.bad(&format!("cat {process}/ctl"));
    assert!(said.contains("No such file or directory"), "{said}");
    assert!(mount.good("ls").contains(&another.to_string()));
}

#[test]
fn commands_are_written_in_all_the_ways_of_a_shell() {
    let mount = Mount::new();
    let (fake, _server, process) = session();
    let received = |script: &str| {
        fake.state().received.clear();
        assert_eq!(mount.good(&format!("cd {process}; {script}")), "");
        fake.received()
    };
    assert_eq!(received("echo one >ctl"), "one");
    assert_eq!(received("echo one >>ctl; echo two >>ctl"), "one|two");
    assert_eq!(received("{ echo one; echo two; } >ctl"), "one|two");
    assert_eq!(received("printf one >ctl"), "one");
    assert_eq!(
        received("printf 'one\\ntwo' | tee ctl >/dev/null"),
        "one|two"
    );
    assert_eq!(
        received("exec 3>ctl; echo one >&3; echo two >&3"),
        "one|two"
    );
    assert_eq!(received("exec 3<>ctl; echo one >&3"), "one");
    assert_eq!(
        received("printf 'one\\ntwo\\n' | dd of=ctl bs=1 status=none"),
        "one|two"
    );
    mount.good(&format!("cat {process}/ctl"));
    let closed = fake.state().closed;
    for number in 1..50 {
        mount.good(&format!("cd {process}; echo x >ctl; cat ctl"));
        assert_eq!(
            fake.state().closed,
            closed + number,
            "before the next is opened"
        );
    }
    let many = "for n in $(seq 100000); do echo line $n; done >$f";
    let lines = |count: u32| {
        (1..=count)
            .map(|n| format!("line {n}"))
            .collect::<Vec<_>>()
            .join("|")
    };
    let copies = format!("f=$(mktemp); {many}; cp $f ctl; rm $f");
    assert_eq!(
        received(&copies),
        lines(100_000),
        "longer than one request may be"
    );
    assert_eq!(received("echo one >ctl; : >ctl"), "", "> truncates");
    assert_eq!(received("echo one >ctl; truncate -s 0 ctl"), "");
    assert_eq!(received("touch ctl"), "");
}

#[test]
fn errors_are_what_other_files_give() {
    let mount = Mount::new();
    let (fake, _server, process) = session();
    let bad = |script: &str| mount.bad(&format!("cd {process}; {script}"));
    let said = bad("echo bad word >ctl");
    assert!(said.contains("Invalid argument"), "{said}");
    assert!(bad("/usr/bin/printf bad >>ctl").contains("Invalid argument"));
    assert!(bad("/usr/bin/printf 'good\\nbad\\nnever\\n' >>ctl").contains("Invalid argument"));
    assert_eq!(fake.received(), "good");
    assert!(bad("cat nothing").contains("No such file"));
    assert!(bad("cat ctl/nothing").contains("Not a directory"));
    assert!(bad("cat tracing").contains("Is a directory"));
    assert!(bad("echo x >long").contains("Permission denied"));
    assert!(bad("echo x >new").contains("Operation not permitted"));
    for change in [
        "mkdir d",
        "rm -f ctl",
        "rmdir tracing",
        "mv ctl c",
        "ln ctl c",
        "ln -s ctl c",
        "chmod 777 ctl",
    ] {
        let said = bad(change);
        assert!(said.contains("Operation not permitted"), "{change}: {said}");
    }
}

#[test]
fn files_are_read_whole_in_pieces_and_by_many() {
    let mount = Mount::new();
    let (fake, _server, process) = session();
    let good = |script: &str| mount.good(&format!("cd {process}; {script}"));
    let hash = good("cat long | md5sum");
    assert_eq!(good("cat long | wc -c"), format!("{LONG}\n"));
    assert_eq!(good("md5sum <long"), hash);
    assert_eq!(good("dd if=long bs=7777 status=none | md5sum"), hash);
    assert_eq!(good("f=$(mktemp); cp long $f; md5sum <$f; rm $f"), hash);
    assert_eq!(
        good("dd if=long bs=1 skip=258 count=2 status=none | od -An -tu1"),
        "   2   3\n"
    );
    let eight = "for n in 1 2 3 4 5 6 7 8; do md5sum <long & done; wait";
    assert_eq!(good(eight), hash.repeat(8));
    fake.state().received.push("one".into());
    assert_eq!(good("cat ctl ctl"), "oneone");
    assert_eq!(
        good("exec 3<ctl; read -N 2 -u 3 a; read -N 1 -u 3 b; echo $a $b"),
        "on e\n"
    );
    assert_eq!(
        good("grep -c one ctl; wc -c <ctl; head -c 2 ctl"),
        "1\n3\non"
    );
}

/// A line that a process prints.
fn line(child: &mut Child) -> String {
    let output = child.stdout.as_mut().unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn what_grows_is_followed() {
    let mount = Mount::new();
    let (fake, _server, process) = session();
    fake.state().received.push("one\n".into());
    let mut tail = mount.background(&format!("tail -s 0.05 -f {process}/ctl"));
    assert_eq!(line(&mut tail), "one");
    fake.state().received.push("two\n".into());
    assert_eq!(line(&mut tail), "|two");
    fake.state().received = vec!["new\n".into()];
    assert_eq!(line(&mut tail), "new");
    end(tail, libc::SIGTERM);
}

/// Sends a signal, and gives how long the process lived on.
fn end(mut child: Child, signal: i32) -> Duration {
    let start = Instant::now();
    // The child of `timeout`, which would pass on the signal too.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let number = std::fs::read_to_string(children).unwrap();
    let number: i32 = number.trim().parse().unwrap();
    // SAFETY: our own child's child.
    unsafe { libc::kill(number, signal) };
    child.wait().unwrap();
    start.elapsed()
}

#[test]
fn a_reader_of_a_stream_waits_and_can_be_interrupted() {
    let mount = Mount::new();
    let (fake, _server, process) = session();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let mut reader = mount.background(&format!("cat {process}/tracing/trace_pipe"));
        fake.state().stream.extend(b"one\n");
        assert_eq!(line(&mut reader), "one");
        // It waits for the second.
        std::thread::sleep(Duration::from_millis(100));
        let lived = end(reader, signal);
        assert!(lived < PATIENCE, "{lived:?}");
    }
    let now = "dd if=tracing/trace_pipe iflag=nonblock status=none";
    let said = mount.bad(&format!("cd {process}; {now}"));
    assert!(said.contains("Resource temporarily unavailable"), "{said}");
}

#[test]
fn readers_see_the_end_of_a_session() {
    let mount = Mount::new();
    let (fake, mut server, process) = session();
    let mut reader = mount.background(&format!("cat {process}/tracing/trace_pipe"));
    fake.state().stream.extend(b"one\n");
    assert_eq!(line(&mut reader), "one");
    let script = "exec 3<ctl; echo ready; read; cat <&3";
    let mut open = mount.shell(&format!("cd {process}; {script}"));
    let open = open.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut open = open.spawn().unwrap();
    assert_eq!(line(&mut open), "ready");
    server.end(|| ());
    drop(server);
    drop(open.stdin.take());
    assert!(reader.wait().unwrap().success(), "a stream just ends");
    assert!(!open.wait().unwrap().success(), "a file does not");
}

#[test]
fn a_session_that_stands_still_holds_up_nobody_else() {
    let mount = Mount::new();
    let (still, _server, process) = session();
    let (_fake, _second, another) = session();
    let held = still.state();
    let writer = mount.background(&format!("bash -c 'echo x >{process}/ctl'"));
    let stuck = mount.background(&format!("cat {process}/ctl"));
    std::thread::sleep(Duration::from_millis(100));
    mount.good(&format!(
        "echo one >{another}/ctl; cat {another}/ctl; ls; ls {process}"
    ));
    for child in [writer, stuck] {
        assert!(end(child, libc::SIGKILL) < PATIENCE);
    }
    drop(held);
    mount.good(&format!("echo one >{process}/ctl"));
}

#[test]
fn the_end_unmounts_even_while_files_are_used() {
    let mount = Mount::new();
    let (_fake, _server, process) = session();
    let mut reader = mount.background(&format!("cat {process}/tracing/trace_pipe"));
    std::thread::sleep(Duration::from_millis(100));
    mount.end.send(()).unwrap();
    mount.ended.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(!mount.is_mounted());
    // The process with the mount lives on here, and so do open files.
    let _ = reader.kill();
    let _ = reader.wait();
}

#[test]
fn fusermount_ends_it_too() {
    let mount = Mount::new();
    let status = Command::new("fusermount3")
        .arg("-u")
        .arg(mount.path())
        .status()
        .unwrap();
    assert!(status.success());
    mount.ended.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(!mount.is_mounted());
}

#[test]
fn others_see_nothing() {
    let mount = Mount::new();
    let (_fake, _server, process) = session();
    // The way there is open.
    let output = Command::new("cat")
        .arg(mount.path().join(process.to_string()).join("ctl"))
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Permission denied"), "{said}");
    let mode = std::fs::metadata(mount.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_cannot_be_mounted_is_said() {
    runtime();
    let never = || {};
    let error = nopal_mount::mount(Path::new("/nothing/here"), never, never).unwrap_err();
    assert!(format!("{error:#}").contains("/nothing/here"), "{error:#}");
    let error = nopal_mount::mount(Path::new("/etc/passwd"), never, never).unwrap_err();
    assert!(error.to_string().contains("not a directory"), "{error}");
}
