//! Chunks that are written while their threads still fill them.

mod support;

use nopal_abi::*;
use nopal_trace::synthetic::{self, Random, Recorder, bytes_mut};
use nopal_trace::{
    Batch, Chunk, ChunkCursor, ChunkPhase, Event, Note, Record, Subscriber, ThreadKey, Trace,
    Writer,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use support::*;

/// A chunk of calls of all kinds, over a change of the counter's upper half.
fn chunk(random: &mut Random) -> Vec<u64> {
    let mut recorder = Recorder::new(10, 11, BEGIN);
    recorder.lose(3);
    let mut clock = BEGIN;
    for call in 0..1 + random.below(1500) {
        clock += random.below(3000);
        let (site, slot) = (
            1 + random.below(3) as u32,
            0x7ffd_0000_f008 - 16 * (call % 50),
        );
        match random.below(12) {
            0 => recorder.record(
                clock,
                KIND_ENTRY_ARGS,
                site,
                slot,
                &[0, 1, 0, u64::MAX, 13, 0],
            ),
            1 => recorder.record(clock, KIND_EXIT_RESULT, site, slot, &[0]),
            2 => recorder.resync(clock, slot, RESYNC_JUMP),
            3 => recorder.record(clock, KIND_TAIL, site, slot, &[]),
            4..8 => recorder.exit(clock, site, slot),
            _ => recorder.entry(clock, site, slot),
        }
    }
    recorder.end_chunk();
    recorder.take_full().remove(0)
}

/// The begins of a chunk's records, but for the first.
fn starts(chunk: &[u64]) -> Vec<usize> {
    let mut starts = vec![CHUNK_HEADER_BYTES / 8 + RESYNC_BYTES / 8];
    loop {
        let start = starts[starts.len() - 1];
        let length = match (chunk.get(start).unwrap_or(&0) >> 32) as u32 & 15 {
            0 => return starts,
            KIND_ENTRY_ARGS => 1 + ARGUMENTS,
            KIND_EXIT_RESULT => 2,
            KIND_EXTENDED => RESYNC_BYTES / 8,
            _ => 1,
        };
        starts.push(start + length);
    }
}

/// The chunk as it is when its thread has stored so many records, with one that it has reserved only, or half stored.
fn grown(chunk: &[u64], starts: &[usize], records: usize, random: &mut Random) -> Vec<u64> {
    let mut grown = chunk.to_vec();
    grown[starts[records]..].fill(0);
    if records > 20 && random.below(2) == 0 {
        let half = records - 1 - random.below(12) as usize;
        let first = grown[starts[half]];
        grown[starts[half]..starts[half + 1]].fill(0);
        // The lower half of the clock is stored first; of records of several words, the first word with another kind.
        let kind = match (first >> 32) as u32 & 15 {
            KIND_ENTRY_ARGS => KIND_PENDING_ARGS,
            KIND_EXIT_RESULT => KIND_PENDING_RESULT,
            KIND_EXTENDED => KIND_EXTENDED,
            _ => 0,
        };
        let upper = match kind {
            0 => 0,
            kind => first >> 36 << 36 | u64::from(kind) << 32,
        };
        grown[starts[half]] = [0, first & 0xffff_ffff | upper][random.below(2) as usize];
    }
    grown
}

/// Records without those that say that a packet begins.
fn records(path: &Path) -> Vec<(u64, String)> {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.damage(), []);
    let [thread] = &trace.threads()[..] else {
        panic!("one thread")
    };
    let first = thread.packets().next().unwrap();
    assert_eq!(first.lost_before(), 3);
    for packet in thread.packets().skip(1) {
        assert_eq!((packet.lost_before(), packet.missing_before()), (0, 0));
    }
    let own = |record: &Record| {
        !matches!(
            record.event,
            Event::Resync {
                reason: RESYNC_PART,
                ..
            }
        )
    };
    thread
        .packets()
        .flat_map(|packet| packet.records().filter(own).collect::<Vec<_>>())
        .map(|record| (record.clock, format!("{:?}", record.event)))
        .collect()
}

fn whole(path: &Path, chunk: &[u64]) -> Vec<(u64, String)> {
    let mut writer = writer(path, &["one", "two", "three"]);
    writer.chunk(bytes_mut(&mut chunk.to_vec()), false).unwrap();
    records(path)
}

/// A chunk, and a trace that is to have its records.
struct RandomChunk {
    random: Random,
    chunk: Vec<u64>,
    expected: Vec<(u64, String)>,
    path: PathBuf,
    writer: Writer,
}

impl RandomChunk {
    fn new(place: &Path, seed: u64) -> RandomChunk {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let chunk = chunk(&mut random);
        let path = place.join(format!("parts {seed}"));
        RandomChunk {
            random,
            expected: whole(&place.join(format!("whole {seed}")), &chunk),
            chunk,
            writer: writer(&path, &["one", "two", "three"]),
            path,
        }
    }
}

/// Writes parts of a chunk as it grows, up to some size of it. Returns how many events they have.
fn write_parts(
    writer: &mut Writer,
    chunk: &[u64],
    random: &mut Random,
    cursor: &mut ChunkCursor,
) -> u64 {
    let starts = starts(chunk);
    let mut records = 0;
    let mut sum = 0;
    while records < starts.len() - 1 && random.below(20) > 0 {
        records = (records + random.below(300) as usize).min(starts.len() - 1);
        let mut grown = grown(chunk, &starts, records, random);
        match writer.rest(bytes_mut(&mut grown), ChunkPhase::Growing, cursor) {
            Ok(Chunk::Written {
                events,
                holes: 0,
                damage: 0,
                short: 0,
            }) => sum += events,
            Ok(Chunk::Empty) => {}
            other => panic!("{other:?}"),
        }
    }
    sum
}

#[test]
fn parts_make_up_the_whole() {
    let place = tempfile::tempdir().unwrap();
    let (mut parts, mut with_parts) = (0, 0);
    for seed in 1..60 {
        let RandomChunk {
            mut random,
            chunk,
            expected,
            path,
            mut writer,
        } = RandomChunk::new(place.path(), seed);
        let mut cursor = ChunkCursor::default();
        let early = write_parts(&mut writer, &chunk, &mut random, &mut cursor);
        let before = cursor;
        let rest = writer.rest(
            bytes_mut(&mut chunk.clone()),
            ChunkPhase::HandedOver,
            &mut cursor,
        );
        let late = match rest.unwrap() {
            Chunk::Written { events, .. } => events,
            Chunk::Empty => 0,
            other => panic!("{other:?}"),
        };
        assert!(before.bytes() <= cursor.bytes());
        end(&mut writer, BEGIN + (1 << 33));
        drop(writer);
        assert_eq!(records(&path), expected);
        let resyncs = |(_, event): &&(u64, String)| !event.starts_with("Resync");
        assert_eq!(expected.iter().filter(resyncs).count() as u64, early + late);
        let trace = Trace::open(&path).unwrap();
        parts += trace.threads()[0].packets().len();
        with_parts += u64::from(early > 0);
    }
    assert!(with_parts > 30 && parts > 150, "{with_parts} {parts}");
}

/// The writer that takes over knows of parts only what is in the files.
#[test]
fn the_rest_of_a_chunk_is_written_by_who_takes_over() {
    let place = tempfile::tempdir().unwrap();
    for seed in 1..60 {
        let RandomChunk {
            mut random,
            chunk,
            expected,
            path,
            writer: mut first,
        } = RandomChunk::new(place.path(), seed);
        write_parts(&mut first, &chunk, &mut random, &mut ChunkCursor::default());
        drop(first);
        let mut second = Writer::adopt(&path).unwrap();
        second.chunk(bytes_mut(&mut chunk.clone()), true).unwrap();
        // Once more: it may be killed before it can say that the chunk is written.
        drop(second);
        let mut third = Writer::adopt(&path).unwrap();
        let again = third.chunk(bytes_mut(&mut chunk.clone()), true).unwrap();
        assert_eq!(again, Chunk::Repeated);
        end(&mut third, BEGIN + (1 << 33));
        assert_eq!(records(&path), expected);
    }
}

/// The writer that takes over does not know which sites were silent, nor which records were left out for that.
#[test]
fn who_takes_over_repeats_nothing_where_sites_were_silent() {
    let place = tempfile::tempdir().unwrap();
    let (mut left_out, mut taken_over) = (0, 0);
    for seed in 1..60 {
        let RandomChunk {
            mut random,
            chunk,
            expected,
            path,
            writer: mut first,
        } = RandomChunk::new(place.path(), seed);
        for site in [2, 3] {
            first.site_counts().silence(site, true, 0);
        }
        write_parts(&mut first, &chunk, &mut random, &mut ChunkCursor::default());
        drop(first);
        let mut second = Writer::adopt(&path).unwrap();
        let rest = second.chunk(bytes_mut(&mut chunk.clone()), true).unwrap();
        taken_over += u64::from(matches!(rest, Chunk::Written { .. }));
        end(&mut second, BEGIN + (1 << 33));
        drop(second);
        let found = records(&path);
        // The RESYNC records of a part that has only silent sites are left out, too.
        let may_be_left_out = |(_, event): &&(u64, String)| {
            ["site: 2", "site: 3", "Resync"]
                .iter()
                .any(|word| event.contains(word))
        };
        let mut written = found.iter().peekable();
        for record in &expected {
            match written.next_if_eq(&record) {
                None if may_be_left_out(&record) => left_out += 1,
                found => assert_eq!(found, Some(record)),
            }
        }
        assert_eq!(written.next(), None);
    }
    assert!(
        left_out > 1000 && taken_over > 30,
        "{left_out} {taken_over}"
    );
}

#[test]
fn a_part_needs_an_event_and_time() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = writer(&place.path().join("trace"), &["one"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    recorder.entry(BEGIN, 1, 0x7ffd_0000_f008);
    recorder.entry(BEGIN, 1, 0x7ffd_0000_f008);
    recorder.entry(BEGIN + 1, 1, 0x7ffd_0000_f008);
    recorder.end_chunk();
    let chunk = recorder.take_full().remove(0);
    let header = CHUNK_HEADER_BYTES / 8;
    let mut cursor = ChunkCursor::default();
    for words in [header, header + 3, header + 6, header + 7, header + 8] {
        let mut grown = chunk.clone();
        grown[words..].fill(0);
        let part = writer.rest(bytes_mut(&mut grown), ChunkPhase::Growing, &mut cursor);
        assert_eq!(part.unwrap(), Chunk::Empty);
    }
    let part = writer.rest(
        bytes_mut(&mut chunk.clone()),
        ChunkPhase::Growing,
        &mut cursor,
    );
    assert!(matches!(part.unwrap(), Chunk::Written { events: 3, .. }));
    let part = writer.rest(
        bytes_mut(&mut chunk.clone()),
        ChunkPhase::HandedOver,
        &mut cursor,
    );
    assert_eq!(part.unwrap(), Chunk::Empty);
}

/// Keeps all records but the RESYNC at the begin of a part.
#[derive(Clone, Default)]
struct KeepingSubscriber(Arc<Mutex<Kept>>);

#[derive(Clone, Default)]
struct Kept {
    words: Vec<u64>,
    lossy: Vec<bool>,
    notes_of_sites: u32,
}

impl Subscriber for KeepingSubscriber {
    fn note(&mut self, note: &Note) {
        self.0.lock().unwrap().notes_of_sites += u32::from(matches!(note, Note::Sites { .. }));
    }

    fn records(&mut self, batch: Batch) {
        let mut kept = self.0.lock().unwrap();
        let part = batch.words[5] == u64::from(RESYNC_PART);
        let resync = RESYNC_BYTES / 8;
        kept.words
            .extend(&batch.words[if part { resync } else { 0 }..]);
        kept.lossy.push(batch.lossy);
    }

    fn thread_ended(&mut self, _: ThreadKey) {}
}

#[test]
fn many_sites_are_told_as_a_note_tells_them_and_the_first_of_a_number_counts() {
    let place = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| place.path().join(name));
    let described = [
        (8, 0x80, 4, "late"),
        (7, 0x70, 4, "\"early\\\n"),
        (8, 0x90, 4, "again"),
    ];
    let last_line = |path: &Path| {
        let notes = std::fs::read_to_string(path.join("session/notes")).unwrap();
        notes.lines().last().unwrap().to_owned()
    };

    let mut by_note = writer(&one, &[]);
    let owned = described.map(|(site, address, size, name)| (site, address, size, name.to_owned()));
    let note = Note::Sites {
        image: 1,
        sites: owned.to_vec(),
    };
    by_note.note(&note).unwrap();
    let expected = last_line(&one);

    let mut writer = writer(&other, &[]);
    let subscriber = KeepingSubscriber::default();
    writer.subscribe(Box::new(subscriber.clone())).unwrap();
    let before = subscriber.0.lock().unwrap().notes_of_sites;
    let sites = described
        .iter()
        .map(|(site, address, size, name)| (*site, *address, *size, (*name).into()));
    writer.sites(1, sites).unwrap();
    assert_eq!(last_line(&other), expected);
    assert_eq!(subscriber.0.lock().unwrap().notes_of_sites, before + 1);

    for (thread, more) in [(1, "after the metadata"), (2, "and again")] {
        let mut recorder = Recorder::new(1, thread, BEGIN);
        call(&mut recorder, BEGIN, 6 + thread);
        call(&mut recorder, BEGIN + 20, 8);
        recorder.finish(&mut writer).unwrap();
        end(&mut writer, BEGIN + 100);
        let metadata = std::fs::read_to_string(other.join("metadata")).unwrap();
        assert!(metadata.contains("\"late\" = 8") && !metadata.contains("again"));
        assert!(!metadata.contains("after the metadata"));
        let described = [(8, 0xa0, 4, more.into())];
        writer.sites(1, described.into_iter()).unwrap();
    }
}

#[test]
fn a_subscriber_gets_everything_once_whatever_is_written() {
    let place = tempfile::tempdir().unwrap();
    for seed in 1..60 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let chunk = chunk(&mut random);
        let path = place.path().join(format!("trace {seed}"));
        let mut writer = writer(&path, &["one", "two", "three"]);
        let subscriber = KeepingSubscriber::default();
        let id = writer.subscribe(Box::new(subscriber.clone())).unwrap();
        let starts = starts(&chunk);
        let (mut published, mut cursor, mut records) =
            (ChunkCursor::default(), ChunkCursor::default(), 0);
        while records < starts.len() - 1 && random.below(20) > 0 {
            records = (records + random.below(300) as usize).min(starts.len() - 1);
            let grown = grown(&chunk, &starts, records, &mut random);
            let all = writer.publish(
                bytes_mut(&mut grown.clone()),
                ChunkPhase::Growing,
                &mut published,
            );
            assert!(all.unwrap());
            if random.below(2) == 0 {
                let part = writer.rest(
                    bytes_mut(&mut grown.clone()),
                    ChunkPhase::Growing,
                    &mut cursor,
                );
                part.unwrap();
            }
        }
        for state in [ChunkPhase::HandedOver, ChunkPhase::HandedOver] {
            let all = writer.publish(bytes_mut(&mut chunk.clone()), state, &mut published);
            assert!(all.unwrap());
        }
        let rest = writer.rest(
            bytes_mut(&mut chunk.clone()),
            ChunkPhase::HandedOver,
            &mut cursor,
        );
        rest.unwrap();
        let Kept {
            words,
            lossy,
            notes_of_sites,
        } = subscriber.0.lock().unwrap().clone();
        let end = starts[starts.len() - 1];
        assert_eq!(words, chunk[CHUNK_HEADER_BYTES / 8..end]);
        assert!(lossy[0], "the chunk says that events were lost before it");
        assert!(!lossy[1..].contains(&true));
        assert_eq!(notes_of_sites, 1, "earlier notes are passed on too");
        writer.unsubscribe(id);
        assert!(!writer.has_subscribers());
    }
}

/// A reader that looks again sees the same as one that comes later, wherever the files ended when it looked first.
#[test]
fn what_has_grown_is_read_on() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let shape = synthetic::Shape {
        threads: 2,
        calls_per_thread: 20_000,
        ..synthetic::Shape::default()
    };
    synthetic::write(&path, &shape).unwrap();
    let whole = packets(&Trace::open(&path).unwrap());
    assert!(whole.len() > 6, "{}", whole.len());
    let streams = ["stream-0", "stream-1"].map(|name| path.join(name));
    let contents = streams.clone().map(|file| std::fs::read(file).unwrap());
    for _ in 0..50 {
        for (file, content) in streams.iter().zip(&contents) {
            let length = random.below(content.len() as u64) as usize;
            std::fs::write(file, &content[..length]).unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        for (file, content) in streams.iter().zip(&contents) {
            std::fs::write(file, content).unwrap();
        }
        assert!(packets(&trace.again().unwrap()) == whole);
    }
}

/// The records of each packet, and which thread's they are.
fn packets(trace: &Trace) -> Vec<(ThreadKey, Vec<u64>, u64)> {
    let threads = trace.threads();
    let packets = threads.iter().flat_map(|thread| thread.packets());
    let packets = packets.map(|one| (one.thread(), one.words().to_vec(), one.missing_before()));
    packets.collect()
}
