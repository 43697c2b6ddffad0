//! Sites of a running process that are found, inserted, switched and removed by another thread of the tool.

use anyhow::{Context, Result, bail, ensure};
use nopal_control::{Act, Applied, Change, Engine, Location, Lookup, Mode, SiteKey, Watch};
use nopal_record::{Handle, Options, Session, Target, record};
use nopal_trace::{Event, ThreadInfo, Trace};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#define KEPT __attribute__((noipa))
KEPT long leaf(long x) { return x * 3 + 1; }
KEPT long middle(long x) { return leaf(x) + leaf(x + 1); }
KEPT void *run(void *n) { for (;;) { n = (void *)middle((long)n); usleep(50); } return n; }
int main(void)
{
	pthread_t thread;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, 0, run, 0);
	puts("ready");
	fflush(stdout);
	run(0);
}
"#;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recording ends, also where an assertion fails.
struct Ends(Handle);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.run(Session::end);
    }
}

fn main() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let source = scratch.path().join("controlled.c");
    let program = scratch.path().join("controlled");
    std::fs::write(&source, PROGRAM)?;
    let built = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status()?;
    ensure!(built.success(), "the program cannot be built");
    let child = Command::new(&program).stdout(Stdio::piped()).spawn()?;
    let mut child = Killed(child);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().context("piped")?).read_line(&mut line)?;

    let process = child.0.id() as i32;
    let options = Options {
        directory: scratch.path().join("trace"),
        only: vec!["leaf".into()],
        ..Options::new(Target::Processes(vec![process]))
    };
    let mut controlling = None;
    record(&options, |handle, _| {
        controlling = Some(std::thread::spawn(move || {
            let ends = Ends(handle);
            control(&ends.0, process)
        }));
    })?;
    let outcome = controlling.context("it has begun")?.join();
    outcome.expect("no assertion has failed")?;
    ensure!(child.0.try_wait()?.is_none(), "the process lives");
    println!("controlled");
    Ok(())
}

fn keys(handle: &Handle, place: Location) -> Result<Vec<SiteKey>> {
    let found = handle.run(move |session| session.find(&place))??;
    Ok(found.into_iter().map(|site| site.key).collect())
}

fn entries(handle: &Handle, sites: &[SiteKey]) -> Result<Vec<u64>> {
    handle.run(|session| session.perform(Act::Flush))??;
    let sites = sites.to_vec();
    handle.run(move |session| {
        let calls = sites.iter().map(|site| session.calls(&[*site]));
        calls.map(|calls| calls.entries).collect()
    })
}

fn apply(handle: &Handle, change: Change) -> Result<Applied> {
    handle.run(move |session| session.apply(&change))?
}

fn insert(handle: &Handle, sites: &[SiteKey]) -> Result<Applied> {
    let sites = sites.to_vec();
    let capture = handle.run(|session| session.facts().capture)?;
    apply(handle, Change::Insert { sites, capture })
}

fn control(handle: &Handle, process: i32) -> Result<()> {
    let pause = || std::thread::sleep(Duration::from_millis(100));
    let names = |name: &str| keys(handle, Location::Names(name.into()));
    let (leaf, middle) = (names("leaf")?, names("mid*")?);
    assert_eq!((leaf.len(), middle.len()), (1, 1));
    let line = Location::Line {
        file: "controlled.c".into(),
        line: 7,
    };
    assert_eq!(keys(handle, line)?, middle, "the line of middle");
    let both = vec![leaf[0], middle[0]];
    let text = || text_of(handle, process, middle[0]);
    let before = text()?;

    handle.run(|session| session.perform(Act::ClearCounts))??;
    let refused = insert(handle, &both)?.refused;
    assert_eq!(refused, []);
    assert_ne!(text()?, before, "there is a jump");
    soon("what was chosen at the start is recorded", || {
        Ok(entries(handle, &both)?[0] > 0)
    })?;
    pause();
    let counts = entries(handle, &both)?;
    assert_eq!(counts[1], 0, "what is inserted is switched off");

    let switch = |sites: &[SiteKey], mode: Mode| {
        let sites = sites.to_vec();
        apply(handle, Change::Switch { sites, mode })
    };
    switch(&middle, Mode::On)?;
    switch(&leaf, Mode::Off)?;
    let first = entries(handle, &both)?;
    soon("switched on", || Ok(entries(handle, &both)?[1] > first[1]))?;
    pause();
    assert_eq!(entries(handle, &both)?[0], first[0], "switched off");

    switch(&both, Mode::Silent)?;
    let first = entries(handle, &both)?;
    pause();
    assert_eq!(
        entries(handle, &both)?,
        first,
        "nothing gets into the trace"
    );

    switch(&both, Mode::On)?;
    let watch = |ids: &[u32]| {
        let ids = ids.to_vec();
        let children = false;
        apply(handle, Change::Watch(Watch { ids, children }))
    };
    assert!(watch(&[1]).is_err(), "not of this session");
    let threads = nopal_process::threads(process)?;
    let all: BTreeSet<u32> = threads.iter().map(|thread| *thread as u32).collect();
    let one = *all.last().context("it has threads")?;
    for (ids, expected) in [
        (&[one][..], &BTreeSet::from([one])),
        (&[process as u32], &all),
        (&[one, process as u32], &all),
        (&[], &all),
    ] {
        watch(ids)?;
        let from = handle.run(|session| session.facts().clock)?;
        soon(&format!("watched: {ids:?}"), || {
            let recorded = recorded_since(handle, from)?;
            assert!(recorded.is_subset(expected), "watched: {ids:?}");
            Ok(recorded == *expected)
        })?;
    }
    let sites = both.clone();
    apply(handle, Change::Remove { sites })?;
    assert_eq!(text()?, before, "the jump is gone");
    let first = entries(handle, &both)?;
    pause();
    assert_eq!(entries(handle, &both)?, first, "removed");

    insert(handle, &middle)?;
    switch(&middle, Mode::On)?;
    soon("inserted again", || {
        Ok(entries(handle, &both)?[1] > first[1])
    })
}

/// Until it is so, which takes as long as the process gets no processor.
fn soon(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    for _ in 0..200 {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("{what}: not in twenty seconds")
}

/// The threads of which the trace has calls since a moment.
fn recorded_since(handle: &Handle, from: u64) -> Result<BTreeSet<u32>> {
    handle.flush()?;
    let directory = handle.run(|session| session.facts().directory.to_owned())?;
    let trace = Trace::open(&directory)?;
    let calls = |thread: &ThreadInfo| {
        let mut records = thread.packets().flat_map(|packet| packet.records());
        records.any(|record| record.clock >= from && matches!(record.event, Event::Entry { .. }))
    };
    let threads = trace.threads();
    let threads = threads.iter().filter(|thread| calls(thread));
    Ok(threads.map(|thread| thread.thread).collect())
}

/// The first bytes of a function in the process.
fn text_of(handle: &Handle, process: i32, site: SiteKey) -> Result<[u8; 16]> {
    let found =
        handle.run(move |session| session.find(&Location::Names("*@controlled".into())))??;
    let site = found.into_iter().find(|found| found.key == site);
    let address = site.context("it is found")?.address;
    let mut bytes = [0; 16];
    std::fs::File::open(format!("/proc/{process}/mem"))?.read_exact_at(&mut bytes, address)?;
    Ok(bytes)
}
