//! Programs as Debian ships them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nopal_tests::{Case, End, Program, Report, Running, Start, nopal, scratch};

fn installed(path: &str) -> Case {
    assert!(Path::new(path).exists(), "{path} must be installed");
    Case::new(Program::installed(path))
}

#[test]
fn python() {
    let script = "import json, re, hashlib, threading, subprocess, collections\n\
         print(json.dumps({'a': [1, 2.5, None]}), re.sub('a+', 'b', 'caaat'), hashlib.sha256(b'x').hexdigest())\n\
         threads = [threading.Thread(target=sorted, args=([3, 1, 2],)) for _ in range(8)]\n\
         [thread.start() for thread in threads]; [thread.join() for thread in threads]\n\
         print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout)\n\
         def fail(n): return 1 / 0 if n == 0 else fail(n - 1)\n\
         try: fail(100)\n\
         except ZeroDivisionError as error: print(error)\n\
         raise SystemExit(21)\n";
    let traced = installed("/usr/bin/python3")
        .arguments(["-c", script])
        .options(["--block"])
        .check();
    assert_eq!(traced.report.calls("Py_BytesMain"), 1);
}

/// It jumps back into a call that then returns; the places on the stack of its calls were estimated.
#[test]
fn a_shell_that_exits() {
    let traced = installed("/bin/dash").arguments(["-c", "exit 4"]).traced();
    assert_eq!(traced.ended.end, End::Code(4), "{}", traced.said);
    let mut replay = Start::new([nopal().as_os_str(), "replay".as_ref()]);
    replay.words.push(traced.directory().into());
    let replay = replay.run("").stdout;
    assert!(replay.contains("_Exit"), "{replay}");
    assert!(!replay.contains("began before"), "{replay}");
}

#[test]
fn python_with_every_library_traced() {
    let script = "import sqlite3, zlib\n\
         base = sqlite3.connect(':memory:')\n\
         base.execute('create table t (a)')\n\
         base.executemany('insert into t values (?)', [(i,) for i in range(100)])\n\
         print(base.execute('select sum(a) from t').fetchone(), zlib.crc32(b'nopal'))\n";
    let traced = installed("/usr/bin/python3")
        .arguments(["-c", script])
        .options(["--libs", "--block"])
        .check();
    assert_eq!(traced.report.calls("sqlite3_open_v2"), 1);
}

/// Greenlets copy the stack away and back, in the process that loads them and in its forks.
const GREENLETS: &str = "\
import greenlet, os, sys
def deep(levels, other):
    return deep(levels - 1, other) + 1 if levels else other.switch()
def worker(depth, rounds):
    parent = greenlet.getcurrent().parent
    return sum(sorted(deep(depth, parent) for _ in range(rounds)))
def thrown():
    try: greenlet.getcurrent().parent.switch()
    except ValueError as error: return str(error)
def run():
    living = [greenlet.greenlet(worker) for _ in range(10)]
    for number, one in enumerate(living): one.switch(5 + 3 * number, 10)
    step, results = 0, []
    while living:
        step += 1
        one = living[step * 7 % len(living)]
        value = one.switch(1)
        if one.dead:
            results.append(value)
            living.remove(one)
    one = greenlet.greenlet(thrown)
    one.switch()
    print(step, results, one.throw(ValueError('thrown in')))
    sys.stdout.flush()
run()
if os.fork() == 0:
    run()
    os._exit(5)
print(os.waitstatus_to_exitcode(os.wait()[1]))
raise SystemExit(23)
";

#[test]
fn greenlets() {
    for options in [&[][..], &["--libs"], &["--args", "--depth", "50"]] {
        let traced = installed("/usr/bin/python3")
            .arguments(["-c", GREENLETS])
            .options(options)
            .check();
        assert_eq!(traced.report.calls("Py_BytesMain"), 1, "{options:?}");
    }
}

/// Some forks have wrapped frames when another fork loads greenlets, and threads run meanwhile.
#[test]
fn greenlets_loaded_late() {
    let script = "\
import os, sys, threading, time
def count(levels): return count(levels - 1) + 1 if levels else 0
inner, outer = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.read(inner[0], 1)
    exec(sys.argv[1].split('run()\\nif')[0])
    run()
    os._exit(7)
stop = False
def busy():
    while not stop:
        count(50)
        time.sleep(0.002)
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
exec(sys.argv[1].split('run()\\nif')[0])
os.write(inner[1], b'x')
status = os.wait()[1]
run()
stop = True
for thread in threads: thread.join()
print(os.waitstatus_to_exitcode(status))
raise SystemExit(24)
";
    for options in [&[][..], &["--libs"]] {
        let traced = installed("/usr/bin/python3")
            .arguments(["-c", script, GREENLETS])
            .options(options)
            .check();
        assert_eq!(traced.ended.end, End::Code(24), "{}", traced.ended.stderr);
    }
}

#[test]
fn sqlite() {
    let script = "create table t (a integer primary key, b text);\n\
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)\n\
         insert into t select i, hex(i * 7919) from n;\n\
         select count(*), sum(a), max(b) from t where b like '%3%';\n\
         delete from t where a % 3 = 0;\nselect count(*) from t;\n.schema\n";
    let traced = installed("/usr/bin/sqlite3")
        .input(script)
        .options(["--block"])
        .check();
    assert_eq!(
        traced.report.calls("main") + traced.report.calls("sqlite3_open_v2"),
        1
    );
}

#[test]
fn git() {
    let scratch = scratch();
    let script = "set -e\ngit init -q .\ngit config user.name tester\ngit config user.email tester@localhost\n\
         for i in 1 2 3; do echo $i > file; git add file; git commit -q -m \"change $i\"; done\n\
         git log --format='%s %an' -p\ngit gc -q\ngit fsck\ngit grep -n 3\n";
    let case = |name: &str| {
        let directory = scratch.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        installed("/bin/sh")
            .arguments(["-c", script])
            .directory(&directory)
            .environment("GIT_CONFIG_GLOBAL", "/dev/null")
            .environment("GIT_AUTHOR_DATE", "2001-02-03T04:05:06Z")
            .environment("GIT_COMMITTER_DATE", "2001-02-03T04:05:06Z")
            .options(["--block"])
    };
    let (untraced, traced) = (case("untraced").untraced(), case("traced").traced());
    assert_eq!(traced.ended, untraced);
    assert_eq!(traced.ended.end, End::Code(0));
    assert!(
        traced.report.rows.iter().any(|row| row["module"] == "git"),
        "git's own functions are recorded"
    );
}

fn wait_for_socket(path: &Path, running: &Running) -> UnixStream {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            stream
                .set_read_timeout(Some(Duration::from_secs(120)))
                .unwrap();
            return stream;
        }
        assert!(
            Instant::now() < deadline,
            "the server does not listen: {}{}",
            running.stdout(),
            running.stderr()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn exchange(stream: &mut UnixStream, question: &str, wanted: &str) {
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut buffer = [0; 4096];
    while !answer.contains(wanted) {
        let count = stream.read(&mut buffer).expect("an answer in time");
        assert!(count > 0, "the server closed after {answer:?}");
        answer.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[test]
fn redis() {
    let scratch = scratch();
    let (trace, socket) = (scratch.path().join("trace"), scratch.path().join("socket"));
    let words = [
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
        socket.to_str().unwrap(),
    ];
    let case = installed("/usr/bin/redis-server")
        .arguments(words)
        .directory(scratch.path())
        .options(["--block"]);
    let mut running = case.spawn(&trace);
    let mut stream = wait_for_socket(&socket, &running);
    for i in 0..200 {
        exchange(&mut stream, &format!("SET key{i} {i}\r\n"), "+OK\r\n");
    }
    exchange(
        &mut stream,
        "EVAL \"return redis.call('GET', 'key7')\" 0\r\n",
        "$1\r\n7\r\n",
    );
    exchange(&mut stream, "BGSAVE\r\n", "+Background saving started\r\n");
    exchange(&mut stream, "DBSIZE\r\n", ":200\r\n");
    stream.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
    assert_eq!(running.wait().end, End::Code(0));
    let report = Report::of(&trace);
    assert!(
        report.total_calls() > 200 * 10,
        "{} calls",
        report.total_calls()
    );
}

#[test]
fn nginx() {
    let scratch = scratch();
    let root = scratch.path();
    let (trace, socket) = (root.join("trace"), root.join("socket"));
    std::fs::write(root.join("page"), "a page\n".repeat(1000)).unwrap();
    let configuration = format!(
        "daemon off; master_process on; worker_processes 2; pid '{0}/pid'; error_log '{0}/errors';\nuser root;\n\
         events {{}}\nhttp {{ access_log off; client_body_temp_path '{0}/b'; proxy_temp_path '{0}/p';\n\
         fastcgi_temp_path '{0}/f'; uwsgi_temp_path '{0}/u'; scgi_temp_path '{0}/s';\n\
         server {{ listen 'unix:{0}/socket'; root '{0}'; gzip on; gzip_types *; }} }}\n",
        root.display()
    );
    let file = root.join("configuration");
    std::fs::write(&file, configuration).unwrap();
    let words = [
        "-p",
        root.to_str().unwrap(),
        "-c",
        file.to_str().unwrap(),
        "-e",
        "errors",
    ];
    let mut running = installed("/usr/sbin/nginx")
        .arguments(words)
        .options(["--block"])
        .spawn(&trace);
    for _ in 0..20 {
        let mut stream = wait_for_socket(&socket, &running);
        exchange(
            &mut stream,
            "GET /page HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n",
            "Content-Encoding: gzip\r\n",
        );
    }
    let master = std::fs::read_to_string(root.join("pid"))
        .unwrap()
        .trim()
        .parse::<i32>()
        .unwrap();
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(master, libc::SIGQUIT) }, 0);
    assert_eq!(running.wait().end, End::Code(0), "{}", running.stderr());
    assert!(Report::of(&trace).total_calls() > 1000);
}

#[test]
fn shells_and_small_tools() {
    let script = "for i in 1 2 3; do (echo $i; exit $i) || true; done; seq 100 | sort -rn | head -3; ls / | wc -l";
    installed("/bin/bash").arguments(["-c", script]).check();
    installed("/usr/bin/sort")
        .input("pear\napple\nfig\n")
        .check();
    installed("/usr/bin/env")
        .arguments(["-i", "A=1", "/usr/bin/env"])
        .check();
}
