//! Traces that are cut short, damaged or made to harm, and chunks that a program scribbled on.
//!
//! One test, since it watches the memory of the whole program. `NOPAL_SEED` repeats a run.

mod support;

use nopal_abi::{CHUNK_BYTES, KIND_HOLE};
use nopal_trace::synthetic::{Random, Recorder, Shape, bytes_mut, notes_again, sum_again, write};
use nopal_trace::{Event, Note, Session, Trace, Writer};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::*;

/// Counts the allocated bytes, and the most at once.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: usize = 800;
const SCRIBBLED: usize = 25;

/// The most memory for one byte of a trace, and for any trace.
const PER_BYTE: usize = 32;
const ANYWAY: usize = 1 << 20;

fn seed() -> u64 {
    let given = std::env::var("NOPAL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    given.unwrap_or(time)
}

#[test]
fn nothing_harms_the_reader_or_the_writer() {
    let seed = seed();
    println!("NOPAL_SEED={seed}");
    let mut random = Random::new(seed);
    damaged_traces(&mut random);
    made_to_use_memory();
    scribbled_chunks(&mut random);
}

fn files(trace: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut names = vec!["session/notes".to_owned(), "metadata".to_owned()];
    names.extend(
        (0..)
            .map(|number| format!("stream-{number}"))
            .take_while(|name| trace.join(name).exists()),
    );
    names.extend(["cpu-0", "cpu-1"].map(String::from));
    names
        .into_iter()
        .map(|name| (trace.join(&name), fs::read(trace.join(&name)).unwrap()))
        .collect()
}

fn damaged_traces(random: &mut Random) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let shape = Shape {
        calls_per_thread: 3000,
        threads: 3,
        functions: 40,
        arguments: true,
        sleeps: 2000,
        ..Shape::default()
    };
    write(&path, &shape).unwrap();
    let files = files(&path);
    let mut readable = 0;
    for _ in 0..ROUNDS {
        let (file, content) = &files[random.below(files.len() as u64) as usize];
        let mut damaged = content.clone();
        damage(&mut damaged, random);
        fs::write(file, &damaged).unwrap();
        // Damage behind matching checksums, too.
        if random.below(2) == 0 {
            sum_again(&path).unwrap();
        }
        let bytes = files
            .iter()
            .map(|(_, content)| content.len())
            .sum::<usize>()
            + damaged.len();
        readable += usize::from(read_all(&path, bytes));
        for (file, content) in &files {
            fs::write(file, content).unwrap();
        }
    }
    assert!(
        readable > ROUNDS / 4,
        "only {readable} of {ROUNDS} could be read"
    );
    assert!(read_all(&path, usize::MAX / PER_BYTE / 2));
    assert_eq!(Trace::open(&path).unwrap().damage(), []);
}

fn damage(content: &mut Vec<u8>, random: &mut Random) {
    let length = content.len() as u64;
    match random.below(6) {
        0 => content.truncate(random.below(length) as usize),
        1 => {
            let start = random.below(length) as usize;
            let end = content.len().min(start + random.below(5000) as usize);
            content.drain(start..end);
        }
        2 => {
            let start = random.below(length) as usize;
            let piece =
                content[start..content.len().min(start + random.below(70_000) as usize)].to_vec();
            let at = random.below(length) as usize;
            content.splice(at..at, piece);
        }
        // A whole word somewhere, which headers are sensitive to.
        3 => {
            let at = random.below(length / 8) as usize * 8;
            let word = [0, 1, u64::MAX, 64, random.number()][random.below(5) as usize];
            content[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        4 => {
            let header = random.below(length / CHUNK_BYTES as u64 + 1) as usize * CHUNK_BYTES;
            let at = header + random.below(160) as usize;
            if let Some(byte) = content.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        _ => {
            for _ in 0..=random.below(30) {
                let at = random.below(length) as usize;
                content[at] ^= 1 << random.below(8);
            }
        }
    }
}

/// Reads all that a trace has to tell, when it can be opened.
fn read_all(path: &Path, bytes: usize) -> bool {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let trace = Trace::open(path);
    if let Ok(trace) = &trace {
        walk(trace, bytes);
    }
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(
        most <= PER_BYTE * bytes + ANYWAY,
        "{most} bytes of memory for {bytes} of trace"
    );
    trace.is_ok()
}

fn walk(trace: &Trace, bytes: usize) {
    let mut words = 0;
    for thread in trace.threads() {
        let mut before = 0;
        for packet in thread.packets() {
            assert!(packet.clock_begin() >= before);
            before = packet.clock_begin();
            words += packet.words().len();
            let mut records = packet.records();
            let mut clock = packet.clock_begin();
            let mut events = 0;
            for record in &mut records {
                assert!(record.clock >= clock);
                clock = record.clock;
                events += 1;
                if let Event::Entry { site, .. } | Event::Exit { site, .. } = record.event {
                    let name = trace.site(site).map(|site| site.name.len());
                    assert!(name.is_none_or(|length| length < bytes));
                }
            }
            assert!(events + records.rest().len() <= packet.words().len());
            trace.clocks().monotonic_ns(clock);
            trace.clocks().realtime_ns(clock);
            trace.clocks().duration_ns(clock);
        }
        thread.lost();
    }
    for processor in trace.processors() {
        words += processor
            .packets()
            .map(|packet| packet.words().len())
            .sum::<usize>();
        let events = processor.events().count();
        assert!(events * 8 <= bytes);
        processor.lost();
    }
    assert!(words * 8 <= bytes);
    assert!(trace.damage().len() as u64 <= trace.damage_count());
    std::hint::black_box((
        trace.lost(),
        trace.is_complete(),
        trace.sites().count(),
        trace.processes().len(),
    ));
}

/// Traces that are all headers, all threads, or notes of many small parts.
fn made_to_use_memory() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let mut chunk = Recorder::new(1, 1, 1);
    chunk.entry(BEGIN, 1, 0);
    let mut recorded = std::mem::take(chunk.words());
    recorded.resize(CHUNK_BYTES / 8, 0);
    writer.chunk(bytes_mut(&mut recorded), true).unwrap();
    drop(writer);
    let packet = fs::read(path.join("stream-0")).unwrap();
    let mut many = Vec::new();
    for number in 0..50_000u32 {
        let start = many.len();
        many.extend_from_slice(&packet[..96]);
        many[start + 40..start + 48].copy_from_slice(&(96 * 8u64).to_le_bytes());
        many[start + 48..start + 56].copy_from_slice(&(96 * 8u64).to_le_bytes());
        many[start + 64..start + 68].copy_from_slice(&number.to_le_bytes());
        many[start + 76..start + 80].copy_from_slice(&number.to_le_bytes());
    }
    fs::write(path.join("stream-0"), &many).unwrap();
    sum_again(&path).unwrap();
    assert!(read_all(&path, many.len()));
    assert_eq!(Trace::open(&path).unwrap().threads().len(), 50_000);
    fs::write(path.join("stream-0"), packet[..24].repeat(100_000)).unwrap();
    assert!(read_all(&path, 2_400_000));
    assert_eq!(Trace::open(&path).unwrap().damage().len(), 100);
    fs::write(path.join("stream-0"), packet).unwrap();

    let notes = fs::read_to_string(path.join("session/notes")).unwrap();
    let number = |count: usize| "0,".repeat(count);
    let hostile = [
        format!(
            "{{\"Sites\":{{\"image\":1,\"sites\":[{}]}}}}\n",
            vec!["[1048575,0,0,\"\"]"; 100_000].join(",")
        ),
        format!(
            "{{\"Sites\":{{\"image\":1,\"sites\":[[{}0]]}}}}\n",
            number(500_000)
        ),
        format!(
            "{{\"Refused\":{{\"image\":1,\"count\":1,\"reasons\":[{}0]}}}}\n",
            number(500_000)
        ),
        format!("{{\"Unknown\":[{}0]}}\n", number(500_000)),
        format!("{}\n", "[".repeat(500_000)),
        "\n".repeat(500_000),
        "0\n".repeat(500_000),
        "x\n".repeat(500_000),
    ];
    for text in hostile {
        // Each line as it is, and as a writer would have put it.
        let numbered = (10..).zip(text.lines());
        let framed = numbered.map(|(number, line)| format!("[\"00000000\",{number},{line}]\n"));
        let framed: String = framed.collect();
        for text in [text, framed] {
            let text = notes.clone() + &text;
            fs::write(path.join("session/notes"), &text).unwrap();
            notes_again(&path, |text| text).unwrap();
            assert!(read_all(&path, text.len() + CHUNK_BYTES));
        }
    }
}

/// babeltrace2 reads the writer's output, whatever a program wrote into its chunks.
fn scribbled_chunks(random: &mut Random) {
    for round in 0..SCRIBBLED {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace");
        let mut writer = Writer::create(&path, Session::default()).unwrap();
        writer.note(&clock(BEGIN)).unwrap();
        for thread in 0..3 {
            let mut recorder = Recorder::new(10, thread, BEGIN);
            for number in 0..600 {
                call(&mut recorder, BEGIN + number * 10_000, 1);
                if random.below(50) == 0 {
                    recorder.record(BEGIN + number * 10_000 + 20, KIND_HOLE, 0, 0, &[0; 3]);
                }
            }
            recorder.end_chunk();
            for mut words in recorder.take_full() {
                scribble(&mut words, random);
                let mut again = words.clone();
                writer
                    .chunk(bytes_mut(&mut words), random.below(2) == 0)
                    .unwrap();
                writer.chunk(bytes_mut(&mut again), true).unwrap();
            }
        }
        writer
            .note(&Note::End {
                counter: BEGIN,
                complete: true,
                why: String::new(),
            })
            .unwrap();
        writer.sync_metadata().unwrap();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.damage(), [], "round {round}");
        let records = |packet: nopal_trace::Packet| packet.records().count();
        let records: usize = trace
            .threads()
            .iter()
            .flat_map(|thread| thread.packets().map(records))
            .sum();
        assert_eq!(
            babeltrace_with_warnings(&path).0.len(),
            records,
            "round {round}"
        );
    }
}

fn scribble(words: &mut [u64], random: &mut Random) {
    let used = words
        .iter()
        .rposition(|&word| word != 0)
        .map_or(1, |last| last + 1) as u64;
    for _ in 0..random.below(6) {
        let at = random.below(used) as usize;
        match random.below(4) {
            0 => words[at] = random.number(),
            1 => words[at] = 0,
            2 => words[at] ^= 1 << random.below(64),
            _ => {
                let end = words.len().min(at + random.below(40) as usize);
                words[at..end].fill_with(|| random.number() & random.number());
            }
        }
    }
}
