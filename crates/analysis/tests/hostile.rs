//! Damaged traces, and outputs that fail.

mod made;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{self, Format, Latency, Weight, dump};
use nopal_analysis::graph::{self, Apart, Per, Shown};
use nopal_analysis::info::info;
use nopal_analysis::names::Names;
use nopal_analysis::prototypes::Prototypes;
use nopal_analysis::replay::{Look, replay};
use nopal_analysis::report::{self, Relation};
use nopal_analysis::slow;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Random, Shape};

const FORMATS: [Format; 5] = [
    Format::Devtrace,
    Format::Function(dump::Look {
        addresses: true,
        verbose: true,
    }),
    Format::Chrome,
    Format::Folded(Weight::Time),
    Format::Raw,
];

fn everything(trace: &Trace, out: &mut dyn Write) -> anyhow::Result<()> {
    let drive = Drive {
        workers: 2,
        ..Drive::default()
    };
    let report = report::functions(trace, &drive)?;
    report.write_table(out, 0)?;
    report.write_json(trace, out)?;
    report::write_threads(&report::threads(trace, &drive)?, out, 100)?;
    if let Some(row) = report.rows.first()
        && let Ok(rows) = report::related(trace, &row.function, Relation::Callers, &drive)
    {
        report::write_related(&rows, Relation::Callers, out, 100)?;
    }
    if let Ok(rows) = report::kernel(trace, &drive) {
        report::write_kernel(&rows, out, 100)?;
    }
    let processes = report::processes(trace, &drive)?;
    report::write_processes(&processes, out, 100)?;
    report::write_processes_json(&processes, trace, out)?;
    report::write_threads_json(&report::threads(trace, &drive)?, trace, out)?;
    let mut names = Names::new(trace);
    if let Ok(calls) = slow::slowest(trace, &names, "*", 5, &drive) {
        let prototypes = &mut Prototypes::new(trace, &names);
        let places = &slow::Places::new(trace, &names, &calls);
        slow::write_text(
            &calls,
            trace,
            &names,
            prototypes,
            places,
            &["a trace's".into()],
            out,
        )?;
        slow::write_json(&calls, trace, &names, prototypes, places, out)?;
    }
    let all = Format::Latency(Latency {
        of: Some("function".into()),
        look: dump::Look::default(),
    });
    dump(trace, all, &drive, out)?;
    let tree = graph::tree(trace, &names, &drive)?;
    graph::write_tree(out, &tree, &names, trace.clocks(), Shown::default())?;
    graph::write_hot_path(out, &tree, &names, trace.clocks(), false, 100)?;
    for apart in [Apart::Process, Apart::Thread] {
        let per = Per::new(trace, &mut names, apart);
        let tree = graph::tree_per(trace, &names, &per, &drive)?;
        graph::write_tree(out, &tree, &names, trace.clocks(), Shown::default())?;
    }
    replay(trace, &Look::default(), out)?;
    info(trace, out, 100)?;
    for format in FORMATS {
        dump(trace, format, &drive, out)?;
    }
    writeln!(out, "{}", nopal_analysis::losses::comment(trace, None))?;
    Ok(())
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_in(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

fn damage(file: &Path, random: &mut Random) {
    let mut bytes = fs::read(file).unwrap();
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len() as u64;
    match random.below(4) {
        0 => bytes.truncate(random.below(length) as usize),
        1 => {
            let at = random.below(length) as usize;
            let again = bytes[at..].to_vec();
            bytes.extend(again);
        }
        _ => {
            for _ in 0..1 + random.below(20) {
                let at = random.below(length) as usize;
                bytes[at] = random.number() as u8;
            }
        }
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn damaged_traces_are_read_as_far_as_they_go() {
    let mut read = 0;
    for seed in 0..80 {
        let mut random = Random::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        if seed % 2 == 0 {
            made::trace(&path);
        } else {
            let shape = Shape {
                seed,
                threads: 2,
                calls_per_thread: 3000,
                arguments: seed % 3 == 0,
                sleeps: 500,
                ..Shape::default()
            };
            synthetic::write(&path, &shape).unwrap();
        }
        let mut files = files_in(&path);
        files.sort();
        for file in &files {
            if random.below(2) == 0 {
                damage(file, &mut random);
            }
        }
        // Half of the damaged traces get valid checksums, so that readers reach the code behind them.
        if seed % 4 < 2 {
            synthetic::sum_again(&path).unwrap();
        }
        if let Ok(trace) = Trace::open(&path) {
            read += 1;
            everything(&trace, &mut io::sink())
                .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        }
    }
    assert!(read > 25, "{read}");
}

/// Packets whose records are any words at all.
#[test]
fn records_that_are_noise_do_no_harm() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let shape = Shape {
            seed,
            threads: 1,
            calls_per_thread: 8_000,
            ..Shape::default()
        };
        synthetic::write(&path, &shape).unwrap();
        let file = path.join("stream-0");
        let mut bytes = fs::read(&file).unwrap();
        let mut packet = 0;
        while packet + 200 < bytes.len() {
            let size = u64::from_le_bytes(bytes[packet + 48..packet + 56].try_into().unwrap())
                as usize
                / 8;
            for word in bytes[packet + 96 + 48..packet + size].chunks_exact_mut(8) {
                if random.below(3) == 0 {
                    word.copy_from_slice(&random.number().to_le_bytes());
                }
            }
            packet += size;
        }
        fs::write(&file, bytes).unwrap();
        synthetic::sum_again(&path).unwrap();
        everything(&Trace::open(&path).unwrap(), &mut io::sink()).unwrap();
    }
}

/// All texts of a trace, in all readers; also names of extreme length.
#[test]
fn no_text_of_a_trace_is_more_than_text() {
    for long in [10, 1 << 16] {
        let directory = tempfile::tempdir().unwrap();
        for (name, write) in [("made", 0), ("walk", 1)] {
            let path = directory.path().join(name);
            match write {
                0 => drop(made::trace(&path)),
                _ => drop(synthetic::write(&path, &small()).unwrap()),
            }
            made::make_hostile(&path, long);
            let trace = Trace::open(&path).unwrap();
            assert_eq!(trace.damage(), []);
            let mut out = Vec::new();
            everything(&trace, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("<script>"), "names are shown");
            let harmful = |character: &char| {
                character.is_control() && *character != '\n'
                    || "\u{202e}\u{2066}\u{2028}\u{ffff}".contains(*character)
            };
            let at = text.find(|character| harmful(&character));
            let around = at.map(|at| text[..at].lines().last());
            assert_eq!(around, None);
        }
    }
}

fn small() -> Shape {
    Shape {
        threads: 2,
        calls_per_thread: 300,
        functions: 5,
        arguments: true,
        sleeps: 20,
        ..Shape::default()
    }
}

/// Takes so many bytes, then breaks.
struct Breaking(usize);

impl Write for Breaking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_broken_pipe_comes_back_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    synthetic::write(
        &path,
        &Shape {
            threads: 3,
            calls_per_thread: 200_000,
            ..Shape::default()
        },
    )
    .unwrap();
    let trace = Trace::open(&path).unwrap();
    let drive = Drive {
        workers: 3,
        ..Drive::default()
    };
    for bytes in [0, 10, 100_000] {
        let results = FORMATS.map(|format| dump(&trace, format, &drive, &mut Breaking(bytes)));
        let replayed = replay(&trace, &Look::default(), &mut Breaking(bytes));
        // Folded stacks of this trace may be short.
        for result in results
            .into_iter()
            .chain([replayed])
            .filter(|result| result.is_err() || bytes <= 10)
        {
            let error = result.unwrap_err();
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            assert_eq!(kind, Some(io::ErrorKind::BrokenPipe), "{error:#}");
        }
    }
}
