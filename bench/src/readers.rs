//! The speed of readers.

use crate::run::{Paths, Peak, remove, run, watch};
use crate::samples::{Samples, in_turn};
use crate::table::{Bound, Row};
use anyhow::Result;
use nopal_trace::synthetic::{self, Shape};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: usize = 3;
const LARGE: u64 = 50_000_000;
const SMALL: u64 = 5_000_000;
const THREADS: u32 = 4;
const PEER_ROWS: &str = "12000";

/// The permitted growth of anonymous memory, which depends on when threads release their buffers.
const GROWTH: f64 = 1.25;

/// Histograms and pictures of the large trace: their names, and the arguments of nopal. Each reads all records.
const SHOWN: [(&str, &[&str]); 6] = [
    ("hist, all calls", &["hist"]),
    ("hist of a function", &["hist", "function_7"]),
    ("hist of a section", &["hist", "function_7..function_8.end"]),
    ("plot timeline", &["plot", "timeline"]),
    ("plot cdf", &["plot", "cdf"]),
    (
        "plot table",
        &["plot", "table", "function_*.duration >> 12"],
    ),
];

pub fn measure(
    paths: &Paths,
    sqlite: &Path,
    sqlite_for_uftrace: Option<&Path>,
) -> Result<Vec<Row>> {
    let large = make(paths, "synthetic-50M", LARGE)?;
    let small = make(paths, "synthetic-5M", SMALL)?;
    let text = paths.directory.join("chrome.json");
    let read = |arguments: &[&str], trace: &Path, output: Stdio| {
        watch(
            Command::new(&paths.nopal).args(arguments).arg(trace),
            output,
        )
    };
    let chrome = ["dump", "--as", "chrome"];
    let results = in_turn(
        ROUNDS,
        &mut [
            &mut || read(&["report"], &large, Stdio::null()),
            &mut || read(&["report"], &small, Stdio::null()),
            &mut || read(&chrome, &large, Stdio::null()),
            &mut || read(&chrome, &small, File::create(&text)?.into()),
        ],
    )?;
    let rate = |index: usize, records: u64| -> Samples {
        let rate = |peak: &Peak| records as f64 / peak.time.as_secs_f64() / 1e6;
        results[index].iter().map(rate).collect()
    };
    let memory = |index: usize| -> Samples {
        results[index]
            .iter()
            .map(|peak| peak.anonymous as f64 / f64::from(1 << 20))
            .collect()
    };
    let written = text.metadata()?.len() as f64 / 1e6;
    let shown = SHOWN.map(|(name, arguments)| -> Result<Row> {
        let once = || Ok(read(arguments, &large, Stdio::null())?.time.as_secs_f64());
        let seconds: Result<Samples> = (0..ROUNDS).map(|_| once()).collect();
        let row = Row::new(format!("{name}, 50 million records"), "s", seconds?);
        Ok(row.bound(Bound::AtMost(2.0)))
    });
    const RATE: &str = "M records/s";
    let mut rows = vec![
        Row::new("report, 50 million records", RATE, rate(0, LARGE)).bound(Bound::AtLeast(60.0)),
        Row::new(
            "its memory, against that for 5 million",
            "×",
            memory(0).over(&memory(1)),
        )
        .bound(Bound::AtMost(GROWTH))
        .note(format!(
            "{:.1} MiB anonymous, {:.1} MiB for 5 million",
            memory(0).median(),
            memory(1).median()
        )),
        Row::new(
            "dump --as chrome, 50 million records, discarded",
            RATE,
            rate(2, LARGE),
        )
        .bound(Bound::AtLeast(15.0))
        .note(format!("{:.1} MiB anonymous", memory(2).median())),
        Row::new(
            "dump --as chrome, 5 million records, to a file",
            RATE,
            rate(3, SMALL),
        )
        .bound(Bound::AtLeast(15.0))
        .note(format!(
            "{written:.0} MB of text, {:.1} MiB anonymous",
            memory(3).median()
        )),
    ];
    for row in shown {
        rows.push(row?);
    }
    std::fs::remove_file(&text)?;
    for trace in [large, small] {
        remove(&trace)?;
    }
    if let Some(program) = sqlite_for_uftrace {
        let records = recorded(paths, sqlite)?;
        paths.uftrace(&[], program, &[PEER_ROWS])?;
        let peer = |arguments: &[&str]| -> Result<f64> {
            let mut command = Command::new("uftrace");
            command
                .args(arguments)
                .args(["--no-pager", "-d"])
                .arg(paths.peer_trace());
            Ok(records as f64 / watch(&mut command, Stdio::null())?.time.as_secs_f64() / 1e6)
        };
        rows.push(Row::once(
            "peer: uftrace report, SQLite",
            RATE,
            peer(&["report"])?,
        ));
        rows.push(Row::once(
            "peer: uftrace dump --chrome, SQLite",
            RATE,
            peer(&["dump", "--chrome"])?,
        ));
    }
    Ok(rows)
}

/// Makes a trace of some threads with this many records.
pub fn make(paths: &Paths, name: &str, records: u64) -> Result<PathBuf> {
    let directory = paths.directory.join(name);
    remove(&directory)?;
    let calls_per_thread = records / 2 / u64::from(THREADS);
    let shape = Shape {
        threads: THREADS,
        calls_per_thread,
        functions: 500,
        ..Shape::default()
    };
    synthetic::write(&directory, &shape)?;
    Ok(directory)
}

/// The number of records that nopal makes of the same calls.
fn recorded(paths: &Paths, program: &Path) -> Result<u64> {
    run(Command::new(program).arg(PEER_ROWS))?;
    paths.record(&["--block"], program, &[PEER_ROWS])?;
    Ok(2 * paths.calls()?.values().sum::<u64>())
}
