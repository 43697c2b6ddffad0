//! Servers within a budget of 5 %, every function on: what their clients notice.
//!
//! One process serves all the time. In each round it is first left alone, then attached to, with the same load: as fast as
//! it goes, by the client that comes with it, and at a fixed rate, whose latencies count from the moment at which a request
//! was due.

use crate::programs::is_installed;
use crate::run::{Paths, remove, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 20;
/// The load before that which counts: the budget's states settle.
const BEFORE: Duration = Duration::from_millis(1500);
/// The load of each kind that counts.
const SECONDS: u32 = 2;
/// The connections of a client at a fixed rate, each with a thread.
const CONNECTIONS: usize = 4;
/// The part of the untraced throughput that is the fixed rate.
const PART: f64 = 0.1;
/// How long a server may take to listen, to be attached to and to be left.
const PATIENCE: Duration = Duration::from_secs(30);

const THROUGHPUT: Bound = Bound::AtLeast(94.0);
const LATENCY: Bound = Bound::AtMost(1.10);

pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    type Start = fn(&Path) -> Result<Server>;
    let services: [(&str, Start); 3] = [
        ("redis-server", redis),
        ("nginx", nginx),
        ("PostgreSQL", postgres),
    ];
    for (name, start) in services {
        let directory = paths.directory.join("service");
        remove(&directory)?;
        std::fs::create_dir_all(&directory)?;
        match start(&directory) {
            Ok(server) => rows.extend(server.rows(paths, name)?),
            Err(error) => {
                let row = Row::new(format!("{name}, --budget 5%"), "", Samples::default());
                rows.push(row.note(format!("not measured: {error:#}")));
            }
        }
        remove(&directory)?;
    }
    Ok(rows)
}

/// A server that runs, and how to load it.
struct Server {
    process: Process,
    client: Client,
    /// The client that comes with it, for so many seconds, and its name.
    fast: Box<dyn Fn(u32) -> Result<f64>>,
    by: &'static str,
}

/// Asks at a fixed rate.
enum Client {
    /// The same bytes each time.
    Bytes {
        address: SocketAddr,
        request: Vec<u8>,
    },
    /// pgbench with these arguments, in a directory for its logs.
    Pgbench {
        command: PathBuf,
        arguments: Vec<String>,
        directory: PathBuf,
    },
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // PostgreSQL ends its sessions at SIGINT; all of them end.
        // SAFETY: the call takes numbers only, and the child has not been waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let _ = self.0.wait();
    }
}

/// The requests answered in a second as fast as it goes, and the 99th percentile of the latencies at a fixed rate, in
/// microseconds.
struct Load {
    throughput: f64,
    latency: f64,
}

impl Server {
    fn rows(&self, paths: &Paths, name: &str) -> Result<Vec<Row>> {
        (self.fast)(1)?;
        let rate = (PART * (self.fast)(SECONDS)?).round();
        let (mut alone, mut within) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(self.load(rate)?);
            let mut nopal = self.attach(paths)?;
            let load = self.load(rate);
            // SAFETY: the call takes numbers only, and the child has not been waited for.
            unsafe { libc::kill(nopal.id() as i32, libc::SIGINT) };
            let status = nopal.wait()?;
            ensure!(status.success(), "nopal attach: {status}");
            within.push(load?);
        }
        let of = |loads: &[Load], what: fn(&Load) -> f64| -> Samples {
            loads.iter().map(what).collect()
        };
        let row = |label: String,
                   unit,
                   what: fn(&Load) -> f64,
                   scale: f64,
                   bound: Bound,
                   note: &str| {
            let untraced = of(&alone, what);
            let ratio = of(&within, what).with(&untraced, |one, other| scale * one / other);
            let (low, high) = interval(&ratio);
            let differ = differ(&untraced);
            let note = format!(
                "{note}; 95 % of the median: {low:.3} to {high:.3}; two untraced loads differ by {:.1} %",
                100.0 * differ
            );
            let row = Row::new(label, unit, ratio).note(note);
            // The machine changes by more than the bound allows.
            let margin = match bound {
                Bound::AtMost(limit) | Bound::AtLeast(limit) | Bound::Exactly(limit) => {
                    (limit / scale - 1.0).abs()
                }
            };
            if differ > margin {
                row
            } else {
                row.bound(bound)
            }
        };
        let untraced = of(&alone, |load| load.throughput).median();
        let fast = format!("by {}, untraced {untraced:.0} a second", self.by);
        let slow = format!(
            "at {rate:.0} a second, untraced {:.0} µs",
            of(&alone, |load| load.latency).median()
        );
        Ok(vec![
            row(
                format!("{name}, --budget 5%: throughput"),
                "%",
                |load| load.throughput,
                100.0,
                THROUGHPUT,
                &fast,
            ),
            row(
                format!("{name}, --budget 5%: p99 latency"),
                "×",
                |load| load.latency,
                1.0,
                LATENCY,
                &slow,
            ),
        ])
    }

    fn load(&self, rate: f64) -> Result<Load> {
        let end = Instant::now() + BEFORE;
        while Instant::now() < end {
            (self.fast)(1)?;
        }
        Ok(Load {
            throughput: (self.fast)(SECONDS)?,
            latency: self.client.latency(rate)?,
        })
    }

    /// Returns when the server's processes are traced.
    fn attach(&self, paths: &Paths) -> Result<Child> {
        remove(&paths.trace())?;
        let mut nopal = Command::new(&paths.nopal)
            .env("XDG_CACHE_HOME", paths.directory.join("cache"))
            .args(["attach", "--children", "--budget", "5%", "-o"])
            .arg(paths.trace())
            .arg(self.process.0.id().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let start = Instant::now();
        let maps = format!("/proc/{}/maps", self.process.0.id());
        while !std::fs::read_to_string(&maps)?.contains("memfd:nopal") {
            ensure!(
                nopal.try_wait()?.is_none() && start.elapsed() < PATIENCE,
                "nopal attach has not begun"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(nopal)
    }
}

/// The 95 % confidence interval of the median of 20 and more values, by their order: 0.98 × √n values from the middle.
fn interval(samples: &Samples) -> (f64, f64) {
    let mut sorted = samples.values().to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, half) = (
        sorted.len() as f64 / 2.0,
        0.98 * (sorted.len() as f64).sqrt(),
    );
    let at = |place: f64| sorted[(place.max(0.0) as usize).min(sorted.len() - 1)];
    (
        at((middle - half).floor()),
        at((middle + half).ceil() - 1.0),
    )
}

/// By how much two untraced loads that follow each other differ, as the median.
fn differ(untraced: &Samples) -> f64 {
    let pairs = untraced.values().windows(2);
    pairs
        .map(|pair| (pair[1] / pair[0] - 1.0).abs())
        .collect::<Samples>()
        .median()
}

impl Client {
    /// The 99th percentile, in microseconds.
    fn latency(&self, rate: f64) -> Result<f64> {
        let mut latencies = match self {
            Client::Bytes { address, request } => at_rate(*address, request, rate)?,
            Client::Pgbench {
                command,
                arguments,
                directory,
            } => pgbench_at_rate(command, arguments, directory, rate)?,
        };
        ensure!(latencies.len() >= 100, "{} answers only", latencies.len());
        latencies.sort_by(f64::total_cmp);
        Ok(latencies[latencies.len() * 99 / 100])
    }
}

/// The latencies of requests that are due at a fixed rate, whether the ones before them are answered or not.
fn at_rate(address: SocketAddr, request: &[u8], rate: f64) -> Result<Vec<f64>> {
    let each = Duration::from_secs_f64(1.0 / rate);
    let all = (rate * f64::from(SECONDS)) as u32;
    // Each connection first learns how long an answer is, which takes 0.1 s: else all that was due meanwhile would be late.
    let start = Instant::now() + Duration::from_millis(500);
    std::thread::scope(|scope| {
        let clients = (0..CONNECTIONS as u32).map(|first| {
            scope.spawn(move || {
                let mut connection = TcpStream::connect(address)?;
                connection.set_nodelay(true)?;
                connection.set_read_timeout(Some(PATIENCE))?;
                // Every answer is as long as the first.
                let length = answer(&mut connection, request)?;
                let mut bytes = vec![0; length];
                let mut latencies = Vec::new();
                for number in (first..all).step_by(CONNECTIONS) {
                    let due = start + each * number;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    connection.write_all(request)?;
                    connection.read_exact(&mut bytes)?;
                    latencies.push(due.elapsed().as_secs_f64() * 1e6);
                }
                anyhow::Ok(latencies)
            })
        });
        let clients: Vec<_> = clients.collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.join().expect("the client's thread panicked")?);
        }
        Ok(all)
    })
}

/// The length of the answer: all that comes before a pause.
fn answer(connection: &mut TcpStream, request: &[u8]) -> Result<usize> {
    connection.write_all(request)?;
    let mut bytes = [0; 64 << 10];
    let mut length = connection.read(&mut bytes)?;
    connection.set_read_timeout(Some(Duration::from_millis(100)))?;
    while let Ok(more @ 1..) = connection.read(&mut bytes) {
        length += more;
    }
    connection.set_read_timeout(Some(PATIENCE))?;
    ensure!(length > 0, "no answer");
    Ok(length)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until a server listens.
fn listening(process: &mut Process, port: u16) -> Result<SocketAddr> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(
            process.0.try_wait()?.is_none() && start.elapsed() < PATIENCE,
            "it does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(address)
}

fn spawn(command: &mut Command) -> Result<Process> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{:?} is not installed", command.get_program()))?;
    Ok(Process(child))
}

/// The number behind a word in what a command prints.
fn number_behind(text: &str, word: &str) -> Result<f64> {
    let mut words = text
        .split_whitespace()
        .skip_while(|found| *found != word)
        .skip(1);
    let number = words.find_map(|found| found.parse().ok());
    number.with_context(|| format!("no {word} in {text:?}"))
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{:?} is not installed", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

fn redis(directory: &Path) -> Result<Server> {
    let port = free_port()?;
    let mut process = spawn(Command::new("redis-server").current_dir(directory).args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]))?;
    let address = listening(&mut process, port)?;
    Ok(Server {
        process,
        client: Client::Bytes {
            address,
            request: b"*3\r\n$6\r\nINCRBY\r\n$1\r\nn\r\n$1\r\n0\r\n".to_vec(),
        },
        fast: Box::new(move |seconds| {
            // It takes a number of requests; this many take about a second untraced.
            let requests = (60_000 * seconds).to_string();
            let text = printed(Command::new("redis-benchmark").args([
                "-p",
                &port.to_string(),
                "-t",
                "get",
                "-c",
                "20",
                "-n",
                &requests,
                "-q",
                "--csv",
            ]))?;
            let line = text
                .lines()
                .find(|line| line.starts_with("\"GET\""))
                .context("no line of GET")?;
            let figure = line.split(',').nth(1).context("no figure")?;
            Ok(figure.trim_matches('"').parse()?)
        }),
        by: "redis-benchmark -t get -c 20",
    })
}

fn nginx(directory: &Path) -> Result<Server> {
    ensure!(
        is_installed("wrk") || Command::new("wrk").arg("-v").output().is_ok(),
        "wrk is not installed"
    );
    let port = free_port()?;
    let root = directory.display();
    std::fs::write(directory.join("index.html"), "x".repeat(612))?;
    std::fs::write(
        directory.join("nginx.conf"),
        format!(
            "worker_processes 1; pid {root}/pid; error_log {root}/errors; daemon off; user root;
             events {{ worker_connections 256; }}
             http {{ access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
             fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
             keepalive_requests 1000000000;
             server {{ listen 127.0.0.1:{port}; root {root}; }} }}"
        ),
    )?;
    let mut process = spawn(Command::new("nginx").arg("-p").arg(directory).args([
        "-e",
        "errors",
        "-c",
        "nginx.conf",
    ]))?;
    let address = listening(&mut process, port)?;
    Ok(Server {
        process,
        client: Client::Bytes {
            address,
            request: b"GET /index.html HTTP/1.1\r\nHost: bench\r\n\r\n".to_vec(),
        },
        fast: Box::new(move |seconds| {
            let (time, place) = (
                format!("{seconds}s"),
                format!("http://127.0.0.1:{port}/index.html"),
            );
            let text = printed(Command::new("wrk").args(["-t1", "-c20", "-d", &time, &place]))?;
            number_behind(&text, "Requests/sec:")
        }),
        by: "wrk -c20",
    })
}

fn postgres(directory: &Path) -> Result<Server> {
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max();
    let programs = newest.context("PostgreSQL is not installed")?.join("bin");
    let (port, data) = (free_port()?, directory.join("data"));
    // It does not run as root.
    // SAFETY: the call takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let command = |program: &Path| match is_root {
        false => Command::new(program),
        true => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
                .arg(program);
            command
        }
    };
    if is_root {
        std::fs::create_dir(&data)?;
        run(Command::new("chown").arg("postgres:postgres").arg(&data))?;
        open_way(directory)?;
    }
    run(command(&programs.join("initdb"))
        .current_dir("/")
        .args(["--no-sync", "-A", "trust", "-U", "bench", "-D"])
        .arg(&data))?;
    let mut process = spawn(
        command(&programs.join("postgres"))
            .current_dir("/")
            .arg("-D")
            .arg(&data)
            .args([
                "-p",
                &port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
                "-c",
                "fsync=off",
            ]),
    )?;
    listening(&mut process, port)?;
    let arguments: Vec<String> = [
        "-h",
        "127.0.0.1",
        "-U",
        "bench",
        "-p",
        &port.to_string(),
        "postgres",
    ]
    .map(str::to_owned)
    .into();
    let pgbench = programs.join("pgbench");
    let started = Instant::now();
    while printed(
        Command::new(&pgbench)
            .args(["-i", "-q", "-s", "2"])
            .args(&arguments),
    )
    .is_err()
    {
        ensure!(started.elapsed() < PATIENCE, "pgbench -i fails");
        std::thread::sleep(Duration::from_millis(200));
    }
    let (fast, options) = (pgbench.clone(), arguments.clone());
    Ok(Server {
        process,
        client: Client::Pgbench {
            command: pgbench,
            arguments,
            directory: directory.to_owned(),
        },
        fast: Box::new(move |seconds| {
            let time = seconds.to_string();
            let text = printed(
                Command::new(&fast)
                    .args(["-S", "-n", "-c", "4", "-T", &time])
                    .args(&options),
            )?;
            number_behind(&text, "tps")
        }),
        by: "pgbench -S -c 4",
    })
}

/// Lets others pass through a directory that root has made, to what is theirs in it.
fn open_way(directory: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(
        directory,
        std::fs::Permissions::from_mode(0o711),
    )?)
}

/// pgbench counts a latency from the moment at which the transaction was due.
fn pgbench_at_rate(
    command: &Path,
    arguments: &[String],
    directory: &Path,
    rate: f64,
) -> Result<Vec<f64>> {
    let prefix = directory.join("transactions");
    let before = |entry: &std::fs::DirEntry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("transactions.")
    };
    let logs = || -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
        Ok(entries
            .iter()
            .filter(|entry| before(entry))
            .map(std::fs::DirEntry::path)
            .collect())
    };
    for old in logs()? {
        std::fs::remove_file(old)?;
    }
    printed(
        Command::new(command)
            .args([
                "-S",
                "-n",
                "-c",
                "4",
                "-T",
                &SECONDS.to_string(),
                "-R",
                &format!("{rate:.0}"),
                "-l",
            ])
            .arg(format!("--log-prefix={}", prefix.display()))
            .args(arguments),
    )?;
    let mut latencies = Vec::new();
    for log in logs()? {
        // client, transaction, latency in µs, script, time, its µs, lag behind the schedule
        let text = std::fs::read_to_string(log)?;
        latencies.extend(
            text.lines()
                .filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()),
        );
    }
    Ok(latencies)
}
