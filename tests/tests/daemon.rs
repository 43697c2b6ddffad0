//! The daemon records a service whenever it runs, reports its metrics, and leaves nothing behind, however it ends.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use nopal_tests::process::{assert_nothing_left, nopals_mappings, wait_until};
use nopal_tests::{End, Report, Running, Start, c, nopal, scratch};
use tempfile::TempDir;

/// A daemon with one service, a program with a unique name.
struct Scene {
    place: TempDir,
    service: String,
}

impl Scene {
    fn new(keys: &str) -> Scene {
        let place = scratch();
        let number = place.path().file_name().unwrap().to_str().unwrap();
        // The name of a process has at most 15 bytes.
        let service: String = format!("s{}", number.replace('.', ""));
        let scene = Scene { place, service };
        // A build may take longer than a program may run.
        nopal();
        std::fs::copy(c("phases", &[]).path, scene.program()).unwrap();
        std::fs::create_dir(scene.place.path().join("nopal.d")).unwrap();
        scene.describe(&format!("process = {:?}\n{keys}", scene.service));
        scene
    }

    fn describe(&self, text: &str) {
        let file = self.place.path().join("nopal.d/service.toml");
        std::fs::write(file, text).unwrap();
    }

    fn program(&self) -> PathBuf {
        self.place.path().join(&self.service)
    }

    fn recordings(&self) -> PathBuf {
        self.place.path().join("recordings")
    }

    fn start(&self) -> Start {
        let path = |name: &str| self.place.path().join(name).into_os_string();
        let mut start = Start::new([nopal().as_os_str()]);
        start.words.extend([
            "daemon".into(),
            "--configuration".into(),
            path("nopal.d"),
            "--directory".into(),
            path("recordings"),
            "--metrics".into(),
            path("metrics"),
        ]);
        start
    }

    fn daemon(&self) -> Running {
        let mut daemon = self.start().spawn();
        daemon.wait_for_error(|text| text.contains("following 1 service: service\n"));
        wait_until("metrics", || self.metrics().is_some());
        daemon
    }

    fn run(&self) -> Running {
        let mut running = Start::new([self.program().into_os_string(), "busy".into()]).spawn();
        running.wait_for(|text| text.contains("phase 0\n"));
        running
    }

    fn answer(&self, request: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.place.path().join("metrics")).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn metrics(&self) -> Option<String> {
        self.answer("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }

    /// The value of a metric whose labels contain this text.
    fn value(&self, metric: &str, labels: &str) -> Option<f64> {
        let metrics = self.metrics()?;
        let is_it = |line: &&str| line.starts_with(metric) && line.contains(labels);
        let line = metrics.lines().find(is_it)?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn wait_for(&self, metric: &str, labels: &str, least: f64) {
        let what = format!("{metric} of {labels}");
        wait_until(&what, || {
            self.value(metric, labels)
                .is_some_and(|value| value >= least)
        });
    }

    /// The traces, oldest first.
    fn traces(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.recordings().join("service")).unwrap();
        let mut traces: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        traces.sort();
        traces
    }
}

/// Sends a signal to a process.
fn signal(process: &Running, signal: i32) {
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(process.id(), signal) }, 0);
}

fn assert_ends(mut program: Running) {
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// Records the waiting functions only, and counts the calls of the leaf.
const COUNTED: &str =
    "filter = 'waits'\ncontrol = ['trace leaf new leaves', 'trace leaves count']\n";

#[test]
fn a_service_is_recorded_whenever_it_is_there() {
    let scene = Scene::new(COUNTED);
    let mut daemon = scene.daemon();
    daemon.wait_for_error(|text| text.contains("service: no process is named"));
    wait_until("the service's metrics", || {
        scene.value("nopal_service_recording", "") == Some(0.0)
    });
    let first = scene.run();
    scene.wait_for("nopal_function_calls_total", "function=\"leaf\"", 1.0);
    assert_eq!(
        scene.value("nopal_processes", "service=\"service\""),
        Some(1.0)
    );
    assert_eq!(scene.value("nopal_service_recording", ""), Some(1.0));
    assert_ends(first);
    wait_until("the first recording's end", || {
        scene.value("nopal_service_recording", "") == Some(0.0)
    });
    let second = scene.run();
    scene.wait_for("nopal_service_recordings_total", "", 2.0);
    signal(&daemon, libc::SIGTERM);
    let ended = daemon.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("service: tracing process").count(), 2);
    assert_nothing_left(second.id());
    assert_ends(second);
    let traces = scene.traces();
    assert_eq!(traces.len(), 2, "{traces:?}");
    assert!(Report::of(&traces[0]).calls("leaf") > 0);
}

/// Asked by signal, the daemon looks at once whether the recording is full.
#[test]
fn a_full_recording_is_followed_by_another_one() {
    let scene = Scene::new("keep = '16M'\n");
    let mut daemon = scene.daemon();
    let program = scene.run();
    scene.wait_for("nopal_trace_full", "", 1.0);
    let process = program.id().to_string();
    let ctl = [
        nopal().as_os_str(),
        "ctl".as_ref(),
        process.as_ref(),
        "start".as_ref(),
    ];
    let refused = Start::new(ctl).run("");
    assert!(refused.stderr.contains("the trace is full"), "{refused:?}");
    signal(&daemon, libc::SIGHUP);
    scene.wait_for("nopal_service_recordings_total", "", 2.0);
    let traces = scene.traces();
    assert_eq!(traces.len(), 2, "the full one is not kept: {traces:?}");
    signal(&daemon, libc::SIGTERM);
    let ended = daemon.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let told = "service: the recording is full, and another one begins";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    assert_nothing_left(program.id());
    assert_ends(program);
}

/// A recording may go on when its daemon is killed.
#[test]
fn a_daemon_ends_the_recordings_of_a_former_one() {
    let scene = Scene::new(COUNTED);
    let program = scene.run();
    let trace = scene.recordings().join("service/2026-11-28T00-00-00");
    std::fs::create_dir_all(trace.parent().unwrap()).unwrap();
    let process = program.id().to_string();
    let words = [
        "attach".as_ref(),
        "-o".as_ref(),
        trace.as_os_str(),
        process.as_ref(),
    ];
    let mut former = Start::new([nopal().as_os_str()].into_iter().chain(words)).spawn();
    former.wait_for_error(|text| text.contains("tracing process"));
    let mut daemon = scene.daemon();
    assert_eq!(former.wait().end, End::Code(0));
    scene.wait_for("nopal_service_recordings_total", "", 1.0);
    signal(&daemon, libc::SIGTERM);
    assert_eq!(daemon.wait().end, End::Code(0));
    assert_eq!(scene.traces().len(), 2);
    assert_nothing_left(program.id());
    assert_ends(program);
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_behind() {
    let scene = Scene::new(COUNTED);
    let mut daemon = scene.daemon();
    let program = scene.run();
    scene.wait_for("nopal_service_recordings_total", "", 1.0);
    signal(&daemon, libc::SIGKILL);
    daemon.wait();
    wait_until("the recording's end", || {
        nopals_mappings(program.id()).is_empty()
    });
    assert_nothing_left(program.id());
    // The next daemon records the service again, and replaces the socket that was left.
    let mut daemon = scene.daemon();
    scene.wait_for("nopal_service_recordings_total", "", 1.0);
    // Another daemon is refused.
    let other = scene.start().run("");
    assert_eq!(other.end, End::Code(1));
    assert!(
        other.stderr.contains("another daemon records into"),
        "{other:?}"
    );
    signal(&daemon, libc::SIGINT);
    assert_eq!(daemon.wait().end, End::Code(0));
    assert_nothing_left(program.id());
    assert_ends(program);
}

/// The processes that a daemon has started.
fn tools(daemon: &Running) -> Vec<i32> {
    let process = daemon.id();
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap();
    let numbers = children.split_whitespace();
    numbers.map(|number| number.parse().unwrap()).collect()
}

#[test]
fn a_recording_that_is_killed_is_told_of() {
    let scene = Scene::new(COUNTED);
    let mut daemon = scene.daemon();
    let program = scene.run();
    let kill = |daemon: &Running| {
        let [tool] = tools(daemon)[..] else { panic!() };
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::kill(tool, libc::SIGKILL) }, 0);
    };
    scene.wait_for("nopal_service_recordings_total", "", 1.0);
    assert_eq!(
        scene.value("nopal_service_recordings_cut_off_total", ""),
        Some(0.0)
    );
    kill(&daemon);
    let told = daemon.wait_for_error(|text| text.contains("signal 9 ended its nopal\n"));
    let [first] = &scene.traces()[..] else {
        panic!()
    };
    let expected = format!("service: the recording {} is cut off: ", first.display());
    assert!(told.contains(&expected), "{told}");
    // The next recording begins, and is killed while the daemon cannot see it.
    scene.wait_for("nopal_service_recordings_total", "", 2.0);
    assert_eq!(
        scene.value("nopal_service_recordings_cut_off_total", ""),
        Some(1.0)
    );
    signal(&daemon, libc::SIGSTOP);
    kill(&daemon);
    signal(&daemon, libc::SIGKILL);
    daemon.wait();
    let traces = scene.traces();
    let mut daemon = scene.daemon();
    let expected = format!(
        "service: the last recording, {}, was cut off",
        traces[1].display()
    );
    daemon.wait_for_error(|text| text.contains(&expected));
    scene.wait_for("nopal_service_recordings_cut_off_total", "", 1.0);
    scene.wait_for("nopal_service_recordings_total", "", 1.0);
    signal(&daemon, libc::SIGTERM);
    assert_eq!(daemon.wait().end, End::Code(0));
    assert_nothing_left(program.id());
    assert_ends(program);
}

#[test]
fn its_files_are_read_again_and_what_is_wrong_is_told() {
    let scene = Scene::new(COUNTED);
    let mut daemon = scene.daemon();
    let program = scene.run();
    scene.wait_for("nopal_service_recordings_total", "", 1.0);
    scene.describe("process = 'x'\nbufer = '1M'\nkeep = '1Q'\n");
    signal(&daemon, libc::SIGHUP);
    for told in [
        "service.toml:2: bufer: there is no such key",
        "service.toml:3: keep: ",
    ] {
        daemon.wait_for_error(|text| text.contains(told));
    }
    // The recording of the service goes on.
    assert_eq!(scene.value("nopal_service_recording", ""), Some(1.0));
    std::fs::remove_file(scene.place.path().join("nopal.d/service.toml")).unwrap();
    signal(&daemon, libc::SIGHUP);
    wait_until("the end of what is not described any more", || {
        scene
            .metrics()
            .is_some_and(|text| !text.contains("service=\""))
    });
    assert_nothing_left(program.id());
    assert_ends(program);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "400"),
    ] {
        let answer = scene.answer(request).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    signal(&daemon, libc::SIGTERM);
    assert_eq!(daemon.wait().end, End::Code(0));
    // Without a service, the daemon does not begin.
    let ended = scene.start().run("");
    assert_eq!(ended.end, End::Code(1));
    assert!(
        ended.stderr.contains("no service is described in"),
        "{ended:?}"
    );
}
