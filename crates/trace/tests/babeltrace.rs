//! babeltrace2 reads the writer's output, and finds the same in it as the reader.

mod support;

use nopal_abi::*;
use nopal_trace::synthetic::{Recorder, Shape};
use nopal_trace::{Chunk, Event, Session, Style, Trace, Writer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::*;

/// Thread (process, thread, begin), and its events: clock, class, site.
type Events = BTreeMap<(u64, u64, u64), Vec<(u64, String, u64)>>;

fn number(line: &str, name: &str) -> Option<u64> {
    let start = line.rfind(&format!("{name} = "))? + name.len() + 3;
    let digits: String = line[start..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

fn class(line: &str) -> &str {
    let start = line.find(", name = ").unwrap() + 9;
    line[start..].split(',').next().unwrap()
}

fn events_of_lines(lines: &[String]) -> Events {
    let mut events = Events::new();
    let mut before = 0;
    for line in lines {
        let (header, fields) = line.split_once("}, event.fields").unwrap();
        let [process, thread, begin] =
            ["process", "thread", "thread_begin"].map(|name| number(header, name).unwrap());
        let clock = number(header, "timestamp").unwrap();
        assert!(clock >= before, "{line}");
        before = clock;
        let class = class(header);
        let has_site = !["resync", "hole", "short_calls"].contains(&class);
        let site = if has_site {
            number(fields, "container").unwrap()
        } else {
            0
        };
        events
            .entry((process, thread, begin))
            .or_default()
            .push((clock, class.to_owned(), site));
    }
    events
}

fn events_of_reader(trace: &Trace) -> Events {
    let mut events = Events::new();
    for thread in trace.threads() {
        let key = (thread.process.into(), thread.thread.into(), thread.begin);
        let list = events.entry(key).or_default();
        for packet in thread.packets() {
            let mut records = packet.records();
            for record in &mut records {
                let (class, site) = name(record.event);
                list.push((record.clock, class.to_owned(), site.into()));
            }
            assert!(records.rest().is_empty());
            assert_eq!(list.last().map(|last| last.0), Some(packet.clock_end()));
        }
    }
    events
}

fn name(event: Event) -> (&'static str, u32) {
    match event {
        Event::Resync { .. } => ("resync", 0),
        Event::ShortCalls { .. } => ("short_calls", 0),
        Event::Hole => ("hole", 0),
        Event::CallSite {
            site,
            return_address: Some(_),
            ..
        } => ("call_site", site),
        Event::CallSite { site, .. } => ("call_site_unknown", site),
        Event::Marker { event, .. } => ("marker", event),
        Event::Entry {
            site,
            style,
            arguments,
            ..
        } => {
            let class = match (style, arguments.is_some()) {
                (Style::Wrapped, false) => "function_entry",
                (Style::Tail, false) => "tail_entry",
                (Style::Only, false) => "only_entry",
                (Style::Wrapped, true) => "function_entry_arguments",
                (Style::Tail, true) => "tail_entry_arguments",
                (Style::Only, true) => "only_entry_arguments",
            };
            (class, site)
        }
        Event::Exit {
            site,
            unwound: true,
            ..
        } => ("function_unwind", site),
        Event::Exit {
            site,
            result: Some(_),
            ..
        } => ("function_exit_result", site),
        Event::Exit { site, .. } => ("function_exit", site),
    }
}

/// Checks that babeltrace2 and the reader see the same, without any warning. Returns the lines of babeltrace2.
fn agree(directory: &Path) -> Vec<String> {
    let lines = babeltrace(directory);
    agree_with(directory, &lines);
    lines
}

fn agree_with(directory: &Path, lines: &[String]) {
    let trace = Trace::open(directory).unwrap();
    assert_eq!(trace.damage(), []);
    assert_eq!(events_of_lines(lines), events_of_reader(&trace));
}

struct TraceDirectory {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> TraceDirectory {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nopal.data");
    TraceDirectory {
        _directory: directory,
        path,
    }
}

fn labels(lines: &[String]) -> Vec<&str> {
    let entries = lines.iter().filter(|line| class(line) == "function_entry");
    let label = |line: &'_ String| -> (usize, usize) {
        let start = line.find("site = ( ").unwrap() + 9;
        (start, line.rfind(" : container").unwrap())
    };
    entries
        .map(|line| &line[label(line).0..label(line).1])
        .collect()
}

#[test]
fn names_of_all_sorts_are_shown() {
    let place = place();
    let long = format!("template<{}>", "long_".repeat(100_000));
    let names = [
        "main",
        "std::map<int, \"q\\\">::operator\"\"_s",
        "größe_数",
        "new\nline\t\0",
        "",
        "same",
        &long,
    ];
    let mut writer = writer(&place.path, &names);
    image(
        &mut writer,
        2,
        "/lib/\"odd\\name\".so",
        100,
        &["same", "twin", "twin"],
    );
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for (site, clock) in (1..=7)
        .chain(100..=102)
        .chain([5000])
        .zip((BEGIN..).step_by(100))
    {
        call(&mut recorder, clock, site);
    }
    assert_eq!(recorder.finish(&mut writer).unwrap(), 22);
    end(&mut writer, BEGIN + 1000);
    let lines = agree(&place.path);
    let labels = labels(&lines);
    assert_eq!(labels[0], r#""main""#);
    assert_eq!(labels[1], r#""std::map<int, \"q\\\">::operator\"\"_s""#);
    assert_eq!(labels[2], r#""größe_数""#);
    assert_eq!(
        labels[3], r#""new\?line\?\?""#,
        "babeltrace2 escapes question marks"
    );
    assert_eq!(labels[4], r#""\?""#);
    assert_eq!(labels[5], r#""same@program""#);
    assert!(labels[6].starts_with("\"template<long_long_") && labels[6].ends_with("…\""));
    assert_eq!(labels[7], r#""same@\"odd\\name\".so""#);
    assert_eq!(labels[8], r#""twin@\"odd\\name\".so+0x6500""#);
    assert_eq!(labels[9], r#""twin@\"odd\\name\".so+0x6600""#);
    assert_eq!(labels[10], "<unknown>", "a site that nobody named");
}

#[test]
fn calls_that_were_left_out_are_counted_in_their_packet() {
    let place = place();
    let session = Session {
        least_duration_ns: 50,
        ..Session::default()
    };
    let mut writer = Writer::create(&place.path, session).unwrap();
    for counter in [BEGIN, BEGIN + 1_000_000] {
        writer.note(&clock(counter)).unwrap();
    }
    image(&mut writer, 1, "/bin/program", 1, &["main", "leaf"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    recorder.entry(BEGIN, 1, 0x7ffd_ffff_f018);
    for number in 0..20 {
        call(&mut recorder, BEGIN + 100 * number, 2);
    }
    recorder.exit(BEGIN + 5000, 1, 0x7ffd_ffff_f018);
    assert_eq!(recorder.finish(&mut writer).unwrap(), 2);
    end(&mut writer, BEGIN + 2_000_000);
    let lines = agree(&place.path);
    let counted = "left_out = [ [0] = { site = 2, calls = 20 } ]";
    assert!(lines[3].contains(counted), "{}", lines[3]);
    assert!(lines[3].contains("short_calls = 20"), "{}", lines[3]);
}

#[test]
fn clocks_are_whole_over_wraps_and_long_silences() {
    let place = place();
    let mut writer = writer(&place.path, &["main"]);
    let clocks = [
        BEGIN,
        (7 << 32) - 11,
        7 << 32,
        (7 << 32) + 50,
        (8 << 32) + 49,
        (8 << 32) + 70,
        (30 << 32) + 20,
        (30 << 32) + 0xffff_0000,
        (33 << 32) + 0xffff_0001,
        (50 << 32),
    ];
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for clock in clocks {
        call(&mut recorder, clock, 1);
    }
    recorder.finish(&mut writer).unwrap();
    let mut other = Recorder::new(10, 12, BEGIN);
    call(&mut other, BEGIN + 5, 1);
    other.end_chunk();
    call(&mut other, (50 << 32) + 5, 1);
    other.finish(&mut writer).unwrap();
    end(&mut writer, 51 << 32);
    let lines = agree(&place.path);
    let seen: Vec<u64> = lines
        .iter()
        .filter(|line| class(line) == "function_entry" && line.contains("thread = 11,"))
        .map(|line| number(line.split_once(',').unwrap().0, "timestamp").unwrap())
        .collect();
    assert_eq!(seen, clocks);
}

#[test]
fn every_kind_of_record_is_understood() {
    let place = place();
    let mut writer = writer(&place.path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    let arguments = [1, 2, u64::MAX, 0, 1 << 63, 6];
    for (kind, clock) in (KIND_ENTRY..=KIND_PENDING_CALL_SITE).zip(BEGIN..) {
        let more = match kind {
            KIND_ENTRY_ARGS | KIND_TAIL_ARGS | KIND_ONLY_ARGS | KIND_PENDING_ARGS => &arguments[..],
            KIND_EXIT_RESULT | KIND_PENDING_RESULT => &[u64::MAX - 1],
            KIND_CALL_SITE | KIND_PENDING_CALL_SITE => &[0x1234],
            _ => &[],
        };
        recorder.record(clock, kind, 1, 0xabc0, more);
    }
    recorder.resync(BEGIN + 100, 0x7ffd_1238, RESYNC_JUMP);
    recorder.finish(&mut writer).unwrap();
    end(&mut writer, BEGIN + 1000);
    let lines = babeltrace(&place.path);
    let classes: Vec<&str> = lines.iter().map(|line| class(line)).collect();
    let expected = [
        "resync",
        "function_entry",
        "function_exit",
        "tail_entry",
        "only_entry",
        "function_entry_arguments",
        "tail_entry_arguments",
        "only_entry_arguments",
        "function_exit_result",
        "function_unwind",
        "entry_arguments_unknown",
        "exit_result_unknown",
        "hole",
        "call_site",
        "call_site_unknown",
        "resync",
    ];
    assert_eq!(classes, expected);
    assert!(
        lines[5].contains("site = ( \"main\" : container = 1 ), tag = 0xBC"),
        "{}",
        lines[5]
    );
    assert!(
        lines[5]
            .contains("[2] = 0xFFFFFFFFFFFFFFFF, [3] = 0x0, [4] = 0x8000000000000000, [5] = 0x6")
    );
    assert!(lines[8].contains("result = 0xFFFFFFFFFFFFFFFE"));
    assert!(lines[13].contains("tag = 0xBC, return_address = 0x1234 "));
    assert!(lines[15].contains("slot = 0x7FFD1238"));
    assert!(lines[15].contains("reason = ( \"jump\" : container = 4 )"));
}

#[test]
fn holes_have_the_time_of_the_record_before() {
    let place = place();
    let mut writer = writer(&place.path, &["main", "handler"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    recorder.entry(BEGIN + 5, 1, 0x7000);
    recorder.words().extend([0, 0x1234]);
    call(&mut recorder, BEGIN + 9, 2);
    recorder.finish(&mut writer).unwrap();
    end(&mut writer, BEGIN + 1000);
    let lines = agree(&place.path);
    let clocks: Vec<u64> = lines
        .iter()
        .map(|line| number(line.split_once(',').unwrap().0, "timestamp").unwrap())
        .collect();
    assert_eq!(clocks, [5, 5, 5, 5, 9, 19].map(|clock| BEGIN + clock));
    assert_eq!(lines.iter().filter(|line| class(line) == "hole").count(), 2);
}

#[test]
fn lost_events_are_told() {
    let place = place();
    let mut writer = writer(&place.path, &["main"]);
    let threads = [(11, 5), (12, 7)];
    for (thread, lost) in threads {
        let begin = BEGIN + u64::from(thread) * 1000;
        let mut recorder = Recorder::new(10, thread, begin);
        call(&mut recorder, begin, 1);
        recorder.lose(lost);
        call(&mut recorder, begin + 100, 1);
        recorder.finish(&mut writer).unwrap();
    }
    end(&mut writer, BEGIN + 100_000);
    assert!(
        !place.path.join("stream-1").exists(),
        "the second thread goes on in the first one's file"
    );
    let (lines, warnings) = babeltrace_with_warnings(&place.path);
    agree_with(&place.path, &lines);
    let warnings: Vec<&str> = warnings.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("discarded 5 events"), "{warnings:?}");
    assert!(warnings[1].contains("discarded 7 events"), "{warnings:?}");
    let trace = Trace::open(&place.path).unwrap();
    assert_eq!(
        trace
            .threads()
            .iter()
            .map(|thread| thread.lost())
            .collect::<Vec<_>>(),
        [5, 7]
    );
    assert_eq!(trace.lost(), 12);
}

#[test]
fn a_chunk_that_is_missing_is_told() {
    let place = place();
    let mut writer = writer(&place.path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for number in 0..3 {
        call(&mut recorder, BEGIN + number * 100, 1);
        recorder.end_chunk();
        if number == 1 {
            recorder.take_full();
        }
        recorder.write_full(&mut writer).unwrap();
    }
    end(&mut writer, BEGIN + 1000);
    let (lines, warnings) = babeltrace_with_warnings(&place.path);
    agree_with(&place.path, &lines);
    assert!(warnings.contains("discarded 1 packet"), "{warnings}");
    let trace = Trace::open(&place.path).unwrap();
    let missing: Vec<u64> = trace.threads()[0]
        .packets()
        .map(|packet| packet.missing_before())
        .collect();
    assert_eq!(missing, [0, 1]);
}

#[test]
fn thousands_of_short_threads_share_few_files() {
    let place = place();
    let mut writer = writer(&place.path, &["main"]);
    let mut alive = Vec::new();
    for number in 0..3000 {
        let begin = BEGIN + u64::from(number) * 1000;
        // Every second thread has the number of one that ended.
        let mut recorder = Recorder::new(10, 100 + number / 2, begin);
        call(&mut recorder, begin + 1, 1);
        recorder.end_chunk();
        recorder.write_full(&mut writer).unwrap();
        alive.push((recorder, begin));
        if alive.len() > 20 {
            let (mut recorder, _) = alive.remove(number as usize % alive.len());
            call(&mut recorder, begin + 50, 1);
            assert_eq!(recorder.finish(&mut writer).unwrap(), 2);
        }
    }
    for (recorder, _) in alive {
        recorder.finish(&mut writer).unwrap();
    }
    end(&mut writer, BEGIN + 4_000_000);
    let streams = std::fs::read_dir(&place.path).unwrap().count() - 2;
    assert!(streams <= 42, "{streams} files");
    assert_eq!(agree(&place.path).len(), 3000 * 3 + 2980 * 3);
    assert_eq!(Trace::open(&place.path).unwrap().threads().len(), 3000);
}

#[test]
fn empty_chunks_and_empty_files_do_no_harm() {
    let place = place();
    let mut writer = writer(&place.path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    call(&mut recorder, BEGIN, 1);
    recorder.end_chunk();
    recorder.resync(BEGIN + 50, 0x7000, RESYNC_STACK);
    recorder.end_chunk();
    call(&mut recorder, BEGIN + 100, 1);
    assert_eq!(recorder.finish(&mut writer).unwrap(), 4);
    let mut blank = vec![0; CHUNK_BYTES / 8];
    let outcome = writer
        .chunk(nopal_trace::synthetic::bytes_mut(&mut blank), true)
        .unwrap();
    assert_eq!(outcome, Chunk::Empty);
    std::fs::write(place.path.join("stream-1"), []).unwrap();
    end(&mut writer, BEGIN + 1000);
    assert_eq!(agree(&place.path).len(), 6);
}

#[test]
fn a_trace_without_any_packet_is_read() {
    let place = place();
    let writer: Writer = writer(&place.path, &["main"]);
    drop(writer);
    assert_eq!(babeltrace(&place.path), [""; 0]);
    assert_eq!(Trace::open(&place.path).unwrap().threads().len(), 0);
}

#[test]
fn full_chunks_and_a_partial_last_one_are_read() {
    let place = place();
    let shape = Shape {
        calls_per_thread: 10_000,
        threads: 3,
        functions: 50,
        arguments: true,
        ..Shape::default()
    };
    let truth = nopal_trace::synthetic::write(&place.path, &shape).unwrap();
    assert_eq!(truth.events, 60_000);
    let lines = agree(&place.path);
    assert_eq!(
        lines.iter().filter(|line| class(line) != "resync").count() as u64,
        truth.events
    );
}
