//! The statements of `docs/trace-format.md` are true.

use nopal_abi::{KIND_ENTRY_ARGS, RESYNC_CLOCK};
use nopal_trace::synthetic::Recorder;
use nopal_trace::{Event, Note, Session, Trace, Writer};

const DOCUMENT: &str = include_str!("../../../docs/trace-format.md");

/// The blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("\n```{language}\n");
    DOCUMENT
        .split(&begin)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn it_shows_the_text_that_is_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    Writer::create(&path, Session::default()).unwrap();
    let metadata = std::fs::read_to_string(path.join("metadata")).unwrap();
    let [system, types, stream, event] = blocks("tsdl").try_into().unwrap();
    assert!(metadata.contains(system));
    assert!(metadata.contains(types));
    assert!(metadata.contains(stream));
    let of_functions = ["\t\t\t\"main\" = 7,\n", "\t\t\t\"foo::bar()\" = 8\n"];
    let nameless = of_functions
        .iter()
        .fold(event.to_owned(), |event, line| event.replace(line, ""));
    assert!(
        metadata.contains(&nameless.replace("= 0,", "= 0")),
        "{nameless}"
    );
}

#[test]
fn its_example_is_what_is_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let uuid = "00112233-4455-6677-8899-aabbccddeeff".into();
    let mut writer = Writer::create(
        &path,
        Session {
            uuid,
            ..Session::default()
        },
    )
    .unwrap();
    let clock = 0x5_ffff_fff0;
    let mut recorder = Recorder::new(4000, 4001, clock - 0x100);
    recorder.record(
        clock,
        KIND_ENTRY_ARGS,
        7,
        0x7ffd_1234_5678,
        &[1, 2, 3, 4, 5, 6],
    );
    recorder.exit(clock + 32, 7, 0x7ffd_1234_5678);
    recorder.finish(&mut writer).unwrap();

    let mut bytes = Vec::new();
    for line in blocks("hex")[0].lines() {
        let (offset, rest) = line.split_once(": ").unwrap();
        assert_eq!(usize::from_str_radix(offset, 16).unwrap(), bytes.len());
        bytes.extend(
            rest[..47]
                .split(' ')
                .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
        );
    }
    assert_eq!(bytes, std::fs::read(path.join("stream-0")).unwrap());

    let trace = Trace::open(&path).unwrap();
    let threads = trace.threads();
    let records: Vec<_> = threads[0]
        .packets()
        .flat_map(|packet| packet.records())
        .collect();
    assert_eq!(records.len(), 4);
    assert!(matches!(
        records[2].event,
        Event::Resync {
            reason: RESYNC_CLOCK,
            ..
        }
    ));
    assert_eq!(records[3].clock, clock + 32);
}

#[test]
fn its_notes_are_those_that_are_written() {
    let whole = blocks("json")[0].replace("\n ", "");
    let lines: Vec<&str> = whole.lines().collect();
    let kinds: std::collections::HashSet<_> = lines
        .iter()
        .map(|line| {
            let note: Note = serde_json::from_str(line).unwrap();
            assert_eq!(
                serde_json::to_string(&note).unwrap(),
                *line,
                "all members are shown"
            );
            std::mem::discriminant(&note)
        })
        .collect();
    assert_eq!(kinds.len(), lines.len(), "one example of each");
}

/// The line of notes that it shows is one that a reader takes.
#[test]
fn its_line_fits_its_check_sum() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    drop(Writer::create(&path, Session::default()).unwrap());
    let line = DOCUMENT.lines().find(|line| line.starts_with("`[\""));
    let notes = path.join("session/notes");
    let text = std::fs::read_to_string(&notes).unwrap();
    let line = line.unwrap().trim_matches('`');
    std::fs::write(&notes, format!("{text}{line}\n")).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(matches!(
        trace.notes(),
        [Note::Exit {
            status: Some(0),
            ..
        }]
    ));
}
