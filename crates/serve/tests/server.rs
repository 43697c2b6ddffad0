//! A server and its clients: those that behave, those that do not, and those without permission.

mod fake;

use fake::{LONG, runtime, session};
use nopal_serve::{Access, Client, Failure, NotTraced};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const READ: Access = Access {
    read: true,
    write: false,
    truncate: false,
};
const WRITE: Access = Access {
    read: false,
    write: true,
    truncate: false,
};
fn sockets() -> PathBuf {
    runtime().join("nopal")
}

fn opened(process: i32, path: &str, access: Access) -> Client {
    let mut client = Client::connect(process).unwrap();
    client.open(path, access).unwrap();
    client
}

fn failure(result: anyhow::Result<impl std::fmt::Debug>) -> (i32, String) {
    let error = result.unwrap_err();
    let failure = error.downcast::<Failure>().unwrap();
    (failure.number, failure.message)
}

/// Without nopal's own client.
fn raw(process: i32) -> UnixStream {
    let stream = UnixStream::connect(sockets().join(process.to_string())).unwrap();
    let patience = Some(Duration::from_secs(100));
    stream.set_read_timeout(patience).unwrap();
    stream
}

#[test]
fn files_are_listed_read_and_written() {
    let (fake, _server, process) = session();
    let mut client = Client::connect(process).unwrap();
    let names: Vec<String> = client
        .list("")
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["ctl", "long", "tracing"]);
    assert_eq!(failure(client.list("nothing")).0, libc::ENOENT);
    assert_eq!(failure(client.open("nothing", READ)).0, libc::ENOENT);
    assert_eq!(client.command("query x").unwrap(), "got query x");

    let mut writer = opened(process, "ctl", WRITE);
    writer.write(b"one\ntw").unwrap();
    assert_eq!(fake.received(), "query x|one");
    writer.write(b"o\nthree").unwrap();
    writer.flush().unwrap();
    writer.flush().unwrap();
    assert_eq!(fake.state().closed, 0);
    assert_eq!(fake.received(), "query x|one|two|three");
    assert_eq!(
        failure(writer.write(b"four\nbad\nfive\n")),
        (libc::EINVAL, "'bad': no such command".into())
    );
    assert_eq!(fake.received(), "query x|one|two|three|four");
    assert_eq!(failure(writer.read(0, 10)).0, libc::EBADF);

    writer.close().unwrap();
    assert_eq!(fake.state().closed, 1);
    assert_eq!(failure(writer.flush()).0, libc::EBADF);

    let truncate = Access {
        truncate: true,
        ..WRITE
    };
    let mut writer = opened(process, "ctl", truncate);
    assert_eq!(fake.received(), "");
    writer.write(b"unended").unwrap();
    drop(writer);
    while fake.state().closed < 2 {
        std::thread::yield_now();
    }
    assert_eq!(fake.received(), "unended", "closed by going");
}

#[test]
fn a_file_is_read_in_pieces_and_again() {
    let (fake, _server, process) = session();
    let whole = opened(process, "long", READ).read_all().unwrap();
    assert_eq!(whole.len(), LONG);
    assert!(whole.iter().enumerate().all(|(at, byte)| *byte == at as u8));

    let mut client = opened(process, "ctl", READ);
    fake.state().received.push("later".into());
    assert_eq!(client.read(0, 100).unwrap(), b"", "as it was when opened");
    assert_eq!(client.read(0, 3).unwrap(), b"lat");
    fake.state().received.push("more".into());
    assert_eq!(client.read(3, 100).unwrap(), b"er");
    assert_eq!(client.read(5, 100).unwrap(), b"", "the end");
    assert_eq!(client.read(5, 100).unwrap(), b"|more", "what came after it");
    assert_eq!(client.read(0, 100).unwrap(), b"later|more");
}

#[test]
fn a_stream_waits_and_ends_with_the_session() {
    let (fake, mut server, process) = session();
    let mut reader = opened(process, "tracing/trace_pipe", READ);
    let (sent, received) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        loop {
            let part = reader.read(0, 3).unwrap();
            sent.send(part.clone()).unwrap();
            if part.is_empty() {
                return;
            }
        }
    });
    let patience = Duration::from_secs(100);
    assert!(received.recv_timeout(Duration::from_millis(50)).is_err());
    fake.state().stream.extend(b"abcd");
    assert_eq!(received.recv_timeout(patience).unwrap(), b"abc");
    assert_eq!(received.recv_timeout(patience).unwrap(), b"d");
    fake.state().stream.extend(b"last");
    server.end(|| ());
    let mut rest = Vec::new();
    while let Ok(part) = received.recv_timeout(patience) {
        rest.extend(part);
    }
    thread.join().unwrap();
    assert_eq!(rest, b"last");
    let error = Client::connect(process).err().unwrap();
    assert!(error.is::<NotTraced>(), "{error}");
}

#[test]
fn who_ends_a_session_waits_for_its_end() {
    let (fake, mut server, process) = session();
    let client = Client::connect(process).unwrap();
    let (sent, received) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || sent.send(client.detach()));
    while fake.received() != "detach" {
        std::thread::yield_now();
    }
    server.end(|| ());
    assert!(received.recv_timeout(Duration::from_millis(50)).is_err());
    drop(server);
    received
        .recv_timeout(Duration::from_secs(100))
        .unwrap()
        .unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn who_leaves_a_stream_takes_nothing_from_it() {
    let (fake, _server, process) = session();
    let mut client = raw(process);
    client
        .write_all(b"nopal 1\nopen r tracing/trace_pipe\nread 0 10\n")
        .unwrap();
    let mut answers = [0; 16];
    client.read_exact(&mut answers).unwrap();
    assert_eq!(&answers, b"ok 0\nok 6\nstream");
    drop(client);
    let start = Instant::now();
    while fake.state().open > 0 {
        assert!(start.elapsed() < Duration::from_secs(100));
        std::thread::yield_now();
    }
    fake.state().stream.extend(b"kept");
    let mut reader = opened(process, "tracing/trace_pipe", READ);
    assert_eq!(reader.read(0, 10).unwrap(), b"kept");
}

#[test]
fn nothing_to_read_yet_is_told_to_who_does_not_wait() {
    let (_fake, _server, process) = session();
    let mut client = raw(process);
    client
        .write_all(b"nopal 1\nopen r tracing/trace_pipe\ntry 0 10\n")
        .unwrap();
    let mut answers = [0; 25];
    client.read_exact(&mut answers).unwrap();
    assert_eq!(&answers, b"ok 0\nok 6\nstreamerror 11 ");
}

#[test]
fn what_is_not_the_protocol_ends_the_connection_and_nothing_else() {
    let (fake, _server, process) = session();
    let long = vec![b'x'; 5000];
    let inputs: [&[u8]; 10] = [
        b"\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"list \n",
        b"nopal 1\nnopal\n",
        b"nopal 1\nwrite 999999999\n",
        b"nopal 1\nopen r ../../etc/passwd\n",
        b"nopal 1\nread 0 99999999999999999999999\n",
        b"nopal 1\n\xff\xfe\n",
        &[0; 100],
        &long,
    ];
    for input in inputs {
        let mut client = raw(process);
        // It may be closed before all of it is written.
        let _ = client.write_all(input);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let answer = answer.strip_prefix("ok 0\n").unwrap_or(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("error 71 "),
            "{answer:?}"
        );
    }
    assert_eq!(fake.received(), "");
    assert_eq!(
        Client::connect(process).unwrap().command("x").unwrap(),
        "got x"
    );
}

#[test]
fn another_version_is_told_which_one_it_is() {
    let (_fake, _server, process) = session();
    let mut client = raw(process);
    client.write_all(b"nopal 2\nnopal 1\nlist\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    assert!(answers.starts_with("error 71 "), "{answers:?}");
    assert!(
        answers.ends_with("600 f ctl\n400 f long\n700 d tracing\n"),
        "{answers:?}"
    );
}

#[test]
fn clients_that_stand_still_hold_nobody_up() {
    let (_fake, _server, process) = session();
    let mut still = Vec::new();
    for number in 0..60 {
        let mut client = raw(process);
        match number % 3 {
            // In the middle of a line.
            0 => client.write_all(b"nopal 1\nop").unwrap(),
            // In the middle of its bytes.
            1 => client
                .write_all(b"nopal 1\nopen w ctl\nwrite 100\nabc")
                .unwrap(),
            // Takes no answer, of which there is more than the kernel keeps for it.
            _ => {
                let many = "read 0 131072\n".repeat(20);
                let request = format!("nopal 1\nopen r long\n{many}");
                client.write_all(request.as_bytes()).unwrap();
            }
        }
        still.push(client);
    }
    for number in 0..20 {
        let word = format!("{number}");
        let mut client = Client::connect(process).unwrap();
        assert_eq!(client.command(&word).unwrap(), format!("got {word}"));
    }
    drop(still);
}

#[test]
fn too_many_clients_are_turned_away_until_others_leave() {
    let (_fake, _server, process) = session();
    let mut many = Vec::new();
    loop {
        let mut client = raw(process);
        let mut answer = Vec::new();
        // It may be closed before all of it is written.
        let _ = client.write_all(b"nopal 1\n");
        let _ = (&client).take(5).read_to_end(&mut answer);
        if answer.is_empty() {
            break;
        }
        many.push(client);
        assert!(many.len() <= 128);
    }
    drop(many);
    let served = || Client::connect(process)?.command("x");
    while served().is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn many_clients_at_once_are_each_heard() {
    let (fake, _server, process) = session();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                let mut client = Client::connect(process).unwrap();
                for number in 0..50 {
                    let word = format!("{thread}-{number}");
                    assert_eq!(client.command(&word).unwrap(), format!("got {word}"));
                }
            });
        }
    });
    assert_eq!(fake.state().received.len(), 16 * 50);
}

#[test]
fn another_user_is_not_heard() {
    // SAFETY: geteuid cannot fail.
    assert_eq!(unsafe { libc::geteuid() }, 0, "only root can try this");
    let (fake, _server, process) = session();
    let socket = sockets().join(process.to_string());
    let attempt = |socket: &Path| {
        let script = "import socket, sys\n\
            s = socket.socket(socket.AF_UNIX)\n\
            s.connect(sys.argv[1])\n\
            s.sendall(b'nopal 1\\ncommand 1\\nx')\n\
            print(s.recv(100))";
        let output = Command::new("python3")
            .args(["-c", script])
            .arg(socket)
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        let lines = output.stdout.iter().chain(&output.stderr);
        String::from_utf8(lines.copied().collect()).unwrap()
    };
    let said = attempt(&socket);
    assert!(said.contains("PermissionError"), "{said}");
    // As if neither the directory nor the mode of the socket protected it.
    let unprotected = tempfile::tempdir_in("/tmp").unwrap();
    let link = unprotected.path().join("socket");
    std::fs::hard_link(sockets().join(std::fs::read_link(&socket).unwrap()), &link).unwrap();
    for path in [link.as_path(), unprotected.path()] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let said = attempt(&link);
    assert!(
        said == "b''\n" || said.contains("ConnectionReset") || said.contains("BrokenPipe"),
        "{said}"
    );
    assert_eq!(fake.received(), "");
}

#[test]
fn sockets_are_the_users_own() {
    let (_fake, server, process) = session();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&sockets()), 0o700);
    let name = sockets().join(process.to_string());
    assert_eq!(mode(&name), 0o600);
    let socket = sockets().join(std::fs::read_link(&name).unwrap());
    drop(server);
    assert!(name.symlink_metadata().is_err() && !socket.exists());
}

#[test]
fn a_child_is_found_that_the_session_has_not_met() {
    let (fake, _server, _) = session();
    let (_other, _second, _) = session();
    let child = 3_000_000;
    assert!(Client::connect(child).err().unwrap().is::<NotTraced>());
    fake.state().children.push(child);
    Client::connect(child)
        .unwrap()
        .command("for a child")
        .unwrap();
    assert_eq!(fake.received(), "for a child");
}

#[test]
fn a_process_has_one_session_and_a_dead_one_none() {
    let (_fake, server, process) = session();
    let (_other, mut second, another) = session();
    let error = second.add(process).unwrap_err().to_string();
    assert!(error.contains(&format!("nopal ctl {process}")), "{error}");
    assert!(nopal_serve::is_traced(process));
    assert!(nopal_serve::processes().contains(&another));
    drop(server);
    assert!(!nopal_serve::is_traced(process));
    second.add(process).unwrap();
    second.remove(process);
    assert!(!nopal_serve::is_traced(process));

    second.name([process, another].into_iter());
    second.name([another].into_iter());
    assert!(!nopal_serve::is_traced(process) && nopal_serve::is_traced(another));
    let (_third, mut third, taken) = session();
    second.name([another, taken].into_iter());
    drop(second);
    assert!(nopal_serve::is_traced(taken), "not the second's to remove");
    let second = &mut third;

    // Left by a tool that was killed.
    let dead = sockets().join("session-1.0");
    drop(UnixListener::bind(&dead).unwrap());
    let link = sockets().join("7654321");
    symlink("session-1.0", &link).unwrap();
    assert!(!nopal_serve::processes().contains(&7654321));
    second.add(7654321).unwrap();
    assert!(nopal_serve::is_traced(7654321));
    assert!(!dead.exists());
}
