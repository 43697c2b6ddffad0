//! The timeline in the browser: its index, its answers, and its page.

use crate::readers;
use crate::run::{Paths, Printed, anonymous, remove, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use nopal_tests::node_packages;
use nopal_trace::synthetic::Random;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const EVENTS: u64 = 100_000_000;
/// Of each of two traces beside each other.
const BESIDE: u64 = 10_000_000;
const MANY: u64 = 1_000_000_000;

const VIEWS: u64 = 1000;
const COLUMNS: u64 = 2000;
/// Events of a range that somebody selects, of all threads, and what the page asks about it.
const SELECTED: u64 = 10_000_000;
const PANELS: [(&str, &str); 3] = [
    ("table of functions", "functions?"),
    ("call tree and flame graph", "graph?"),
    ("histogram of a function", "hist?function=1&"),
];
/// Depths of each thread: 40 rows in all.
const DEPTHS: u64 = 10;
/// The narrowest view has about one part in 2 to this power of the time.
const ZOOMS: u64 = 24;

const MIB: f64 = (1 << 20) as f64;
const SECONDS: &str = "s";
const MILLISECONDS: &str = "ms";
const NO_BROWSER: &str = "chromium, node or npm is not installed";

pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    let mut rows = one(paths, "100 million events", EVENTS)?;
    let traces = ["beside-a", "beside-b"].map(|name| readers::make(paths, name, BESIDE));
    let [one, other] = traces;
    let traces = [one?, other?];
    let pages = rounds(|| page(&Viewer::start(paths, &traces)?))?;
    rows.extend(of_page("two traces of 10 million events", &pages));
    traces.iter().try_for_each(|trace| remove(trace))?;
    Ok(rows)
}

/// The bounds of 100 million events, except that of making the index, for a trace of 8 GB.
pub fn measure_many(paths: &Paths) -> Result<Vec<Row>> {
    one(paths, "1 billion events", MANY)
}

fn one(paths: &Paths, name: &str, events: u64) -> Result<Vec<Row>> {
    let trace = readers::make(paths, "viewed", events)?;
    let traces = [trace.clone()];
    let index = trace.join("session/index");
    let made = rounds(|| {
        if index.exists() {
            std::fs::remove_file(&index)?;
        }
        Opened::new(paths, &traces)
    })?;
    let kept = rounds(|| Opened::new(paths, &traces))?;
    let answers = rounds(|| answers(&Viewer::start(paths, &traces)?))?;
    let selected = rounds(|| selected(&Viewer::start(paths, &traces)?, events))?;
    let size = index.metadata()?.len() as f64 / events as f64;
    remove(&trace)?;

    let is_large = events > EVENTS;
    let bound = |row: Row, bound| if is_large { row } else { row.bound(bound) };
    let starts = |opened: &[Opened]| opened.iter().map(|one| one.start).collect::<Samples>();
    let (slow, fast) = (starts(&made), starts(&kept));
    // The rest of the start is the same with an index and without.
    let rate = slow
        .less(&fast)
        .with(&slow, |making, _| events as f64 / making / 1e6);
    let anonymous = made.iter().map(|one| one.anonymous).collect();
    let mut rows = vec![
        bound(
            Row::new(format!("view, {name}: index made"), "M events/s", rate),
            Bound::AtLeast(100.0),
        )
        .note(format!(
            "{:.2} s, written to a file",
            slow.less(&fast).median()
        )),
        Row::once("its size", "bytes an event", size).bound(Bound::AtMost(0.1)),
        Row::new(
            "anonymous memory, making it and answering",
            "MiB",
            anonymous,
        )
        .bound(Bound::AtMost(300e6 / MIB)),
        bound(
            first(format!("view, {name}: first picture, no index"), &made),
            Bound::AtMost(1.5),
        ),
        first(format!("view, {name}: first picture, index there"), &kept).bound(Bound::AtMost(0.3)),
        Row::new(
            format!("view, {name}: 1,000 random views, p99"),
            MILLISECONDS,
            answers
                .iter()
                .map(|times| times[VIEWS as usize * 99 / 100])
                .collect(),
        )
        .bound(Bound::AtMost(10.0))
        .note(format!("p50 {:.2} ms", answers[0][VIEWS as usize / 2])),
    ];
    for (at, (panel, _)) in PANELS.iter().enumerate() {
        rows.push(
            Row::new(
                format!("view, {name}: {panel} of 10 million events"),
                MILLISECONDS,
                selected.iter().map(|times| times[at]).collect(),
            )
            .bound(Bound::AtMost(300.0)),
        );
    }
    let pages: Vec<Option<Page>> = kept.into_iter().map(|one| one.page).collect();
    rows.extend(of_page(&format!("view, {name}"), &pages));
    Ok(rows)
}

fn rounds<T>(mut once: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    (0..ROUNDS).map(|_| once()).collect()
}

/// The first picture: in the page if there is a browser, otherwise as far as the tool answers.
fn first(what: String, opened: &[Opened]) -> Row {
    let picture = |one: &Opened| one.start + one.page.as_ref().map_or(0.0, |page| page.picture);
    let start: Samples = opened.iter().map(|one| one.start).collect();
    let note = match opened.iter().all(|one| one.page.is_some()) {
        true => format!(
            "{:.2} s until the tool listens, then the page",
            start.median()
        ),
        false => format!("until the tool listens: {NO_BROWSER}"),
    };
    Row::new(what, SECONDS, opened.iter().map(picture).collect()).note(note)
}

fn of_page(what: &str, pages: &[Option<Page>]) -> Vec<Row> {
    let Some(pages) = pages.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
        let row = Row::new(
            format!("{what}: frame while panning, p95"),
            MILLISECONDS,
            Samples::default(),
        );
        return vec![row.note(NO_BROWSER)];
    };
    let of = |value: fn(&Page) -> f64| pages.iter().map(|page| value(page)).collect::<Samples>();
    vec![
        Row::new(
            format!("{what}: frame while panning, p95"),
            MILLISECONDS,
            of(|page| page.frame),
        )
        .bound(Bound::AtMost(33.0))
        .note(format!(
            "of which drawing {:.1} ms",
            of(|page| page.drawing).median()
        )),
        Row::new(
            format!("{what}: anonymous memory of the page"),
            "MiB",
            of(|page| page.memory),
        )
        .bound(Bound::AtMost(200e6 / MIB))
        .note(format!(
            "an empty page has {:.0} MiB",
            of(|page| page.blank).median()
        )),
    ]
}

/// A tool that has been started, shown a picture, and ended.
struct Opened {
    /// Seconds from its start until it listens.
    start: f64,
    anonymous: f64,
    page: Option<Page>,
}

impl Opened {
    fn new(paths: &Paths, traces: &[PathBuf]) -> Result<Opened> {
        let viewer = Viewer::start(paths, traces)?;
        let page = page(&viewer)?;
        Ok(Opened {
            start: viewer.start.as_secs_f64(),
            anonymous: viewer.anonymous.load(Ordering::Relaxed) as f64 / MIB,
            page,
        })
    }
}

/// What a browser measures in the page (tests/browser/speed.mjs).
struct Page {
    /// Seconds from the request of the page until its first picture.
    picture: f64,
    frame: f64,
    drawing: f64,
    memory: f64,
    /// That of an empty page.
    blank: f64,
}

fn page(viewer: &Viewer) -> Result<Option<Page>> {
    let is_installed = crate::programs::is_installed;
    if !["chromium", "node", "npm"].into_iter().all(is_installed) {
        return Ok(None);
    }
    let mut node = Command::new("node");
    let ran = run(node
        .arg(node_packages().join("speed.mjs"))
        .arg(&viewer.address))?;
    let of = |name: &str| Printed::get(&ran.printed, name);
    Ok(Some(Page {
        picture: of("picture_ms")? / 1e3,
        frame: of("frame_ms")?,
        drawing: of("drawing_ms")?,
        memory: of("anonymous_bytes")? / MIB,
        blank: of("blank_bytes")? / MIB,
    }))
}

/// Milliseconds from the request of each panel to the end of the answer, for a range in the middle of the trace.
fn selected(viewer: &Viewer, events: u64) -> Result<Vec<f64>> {
    let mut client = Client::new(&viewer.address)?;
    let trace: Value = serde_json::from_slice(&client.get("api/0/trace")?)?;
    let duration = trace["duration"].as_u64().context("no duration")?;
    let width = (u128::from(duration) * u128::from(SELECTED) / u128::from(events)) as u64;
    let from = (duration - width) / 2;
    let until = from + width;
    let panels = PANELS.iter().map(|(_, request)| {
        let start = Instant::now();
        client.get(&format!("api/0/{request}from={from}&until={until}"))?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    });
    panels.collect()
}

/// Sorted milliseconds from the request of a random view to the end of the answer.
fn answers(viewer: &Viewer) -> Result<Vec<f64>> {
    let mut client = Client::new(&viewer.address)?;
    let trace: Value = serde_json::from_slice(&client.get("api/0/trace")?)?;
    let duration = trace["duration"].as_u64().context("no duration")?;
    let threads = trace["threads"].as_array().context("no threads")?.len();
    let rows: Vec<String> = (0..threads)
        .map(|thread| format!("{thread}:0:{DEPTHS}"))
        .collect();
    let rows = rows.join(",");
    let mut random = Random::new(1);
    let mut times = Vec::new();
    for _ in 0..VIEWS {
        let width = (duration >> random.below(ZOOMS)).max(COLUMNS).min(duration);
        let from = random.below(duration - width + 1);
        let until = from + width;
        let start = Instant::now();
        let cells = client.get(&format!(
            "api/0/cells?from={from}&until={until}&columns={COLUMNS}&rows={rows}&exact=0"
        ))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let whole = 8 * COLUMNS * DEPTHS * threads as u64;
        ensure!(
            cells.len() as u64 > whole,
            "an answer of {} bytes",
            cells.len()
        );
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// `nopal view`, until it is dropped.
struct Viewer {
    child: Child,
    address: String,
    /// The time until it listened.
    start: Duration,
    /// The peak of its anonymous memory, by samples.
    anonymous: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    sampling: Option<JoinHandle<()>>,
}

impl Viewer {
    fn start(paths: &Paths, traces: &[impl AsRef<Path>]) -> Result<Viewer> {
        let begin = Instant::now();
        let mut command = Command::new(&paths.nopal);
        command.args(["view", "--no-browser"]);
        command.args(traces.iter().map(AsRef::as_ref));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (anonymous_peak, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (peak, over, process) = (
            Arc::clone(&anonymous_peak),
            Arc::clone(&is_over),
            child.id(),
        );
        let sampling = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous(process), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut address = String::new();
        let output = child.stdout.take().context("no output")?;
        let read = BufReader::new(output).read_line(&mut address);
        let viewer = Viewer {
            child,
            address: address.trim_end().to_owned(),
            start: begin.elapsed(),
            anonymous: anonymous_peak,
            is_over,
            sampling: Some(sampling),
        };
        ensure!(read? > 0, "nopal view does not listen");
        Ok(viewer)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(sampling) = self.sampling.take() {
            let _ = sampling.join();
        }
    }
}

/// A connection to the tool.
struct Client {
    host: String,
    /// The path of the page.
    path: String,
    stream: BufReader<TcpStream>,
}

impl Client {
    fn new(address: &str) -> Result<Client> {
        let rest = address.strip_prefix("http://").context("no address")?;
        let (host, path) = rest.split_once('/').context("no path")?;
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        Ok(Client {
            host: host.to_owned(),
            path: path.to_owned(),
            stream: BufReader::new(stream),
        })
    }

    /// The body of an answer.
    fn get(&mut self, name: &str) -> Result<Vec<u8>> {
        let Client { host, path, stream } = self;
        let request = format!("GET /{path}{name} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200 "), "{name}: {line}");
        let mut length = None;
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = Some(value.parse()?);
            }
        }
        let mut body = vec![0; length.context("no length")?];
        stream.read_exact(&mut body)?;
        Ok(body)
    }
}
