use super::*;
use crate::field::{Field, FieldKind};
use crate::markers::{Markers, event_number};
use crate::note::Note;

const BEGIN: u64 = 5 << 32 | 1000;

fn word(clock: u64, kind: u32, site: u32) -> u64 {
    Word::new(kind, site, 0, clock).0
}

fn resync(clock: u64) -> [u64; RESYNC_WORDS] {
    Resync::new(clock, 0x7000, 0x6000, (1, 0), RESYNC_CHUNK).words()
}

/// A chunk's records: a RESYNC, `words`, and some room.
fn records(words: &[u64]) -> Vec<u64> {
    let mut records = resync(BEGIN).to_vec();
    records.extend_from_slice(words);
    records.resize(records.len() + 8, 0);
    records
}

const KNOWN: Known = Known {
    reserved: 0,
    begin: BEGIN,
    future: 9 << 32,
    state: ChunkPhase::HandedOver,
    task: 1,
};

fn scan_all(words: &mut [u64], settled: bool) -> (Result<Content, Unfinished>, Vec<(u32, u16)>) {
    let mut occurrences = Occurrences::new();
    let state = if settled {
        ChunkPhase::Settled
    } else {
        ChunkPhase::HandedOver
    };
    let content = scan(
        words,
        Known { state, ..KNOWN },
        &Markers::default(),
        &mut occurrences,
    );
    (content, occurrences.iter().collect())
}

#[test]
fn whole_records_are_left_as_they_are() {
    let mut words = vec![
        word(BEGIN + 1, KIND_ENTRY, 3),
        word(BEGIN + 2, KIND_ENTRY_ARGS, 4),
    ];
    // Arguments that look like records, and like none.
    words.extend([0, word(0, KIND_ENTRY, 99), u64::MAX, 0, 13 << 32, 0]);
    words.extend([
        word(BEGIN + 2, KIND_EXIT_RESULT, 4),
        0,
        word(BEGIN + 9, KIND_UNWIND, 3),
    ]);
    words.extend(resync(6 << 32));
    words.push(word(6 << 32 | 7, KIND_TAIL, 5));
    let mut records = records(&words);
    let before = records.clone();
    let (content, occurring) = scan_all(&mut records, false);
    let end = 6 << 32 | 7;
    let expected = Content {
        words: 6 + words.len(),
        events: 5,
        holes: 0,
        damage: 0,
        begin: BEGIN,
        end,
        sum: Sum::new().words(&before[..6 + words.len()]),
    };
    assert_eq!(content, Ok(expected));
    assert_eq!(records, before);
    assert_eq!(
        occurring,
        [(3, 1 << 1 | 1 << 9), (4, 1 << 5 | 1 << 8), (5, 1 << 3)]
    );
}

#[test]
fn a_resync_names_the_thread_of_its_chunk() {
    let mut words = records(&resync(BEGIN + 8));
    let known = Known {
        task: 70 | 71 << 32,
        ..KNOWN
    };
    let (markers, mut occurrences) = (Markers::default(), Occurrences::new());
    let content = scan(&mut words, known, &markers, &mut occurrences).unwrap();
    assert_eq!(content.sum, Sum::new().words(&words[..content.words]));
    let named = |clock| Resync::new(clock, 0x7000, 0x6000, (70, 71), RESYNC_CHUNK).words();
    let expected = [named(BEGIN), named(BEGIN + 8)].concat();
    assert_eq!(words[..content.words], expected);
}

#[test]
fn what_is_reserved_and_not_stored_is_waited_for_and_then_filled() {
    let entry = word(BEGIN + 7, KIND_ENTRY, 3);
    let exit = word(BEGIN + 9, KIND_EXIT, 3);
    let mut half_a_resync = resync(BEGIN + 8);
    half_a_resync[1] = 0;
    let reserved: [&[u64]; 4] = [&[0], &[0x1234], &[0; 7], &half_a_resync];
    for words in reserved {
        let mut records = records(&[&[entry], words, &[exit]].concat());
        assert_eq!(scan_all(&mut records, false).0, Err(Unfinished));
        let (content, _) = scan_all(&mut records, true);
        let content = content.unwrap();
        assert_eq!(
            (content.events, content.holes, content.damage),
            (2, words.len() as u64, 0)
        );
        assert!(
            records[7..7 + words.len()]
                .iter()
                .all(|&word| word == Word::hole(BEGIN + 7).0),
            "{words:?}"
        );
        assert_eq!(records[7 + words.len()], exit);
    }
}

#[test]
fn pending_records_are_waited_for_and_then_kept() {
    for (kind, length) in [(KIND_PENDING_ARGS, 7), (KIND_PENDING_RESULT, 2)] {
        let mut words = vec![0; length];
        words[0] = word(BEGIN + 3, kind, 3);
        let mut records = records(&words);
        assert_eq!(scan_all(&mut records, false).0, Err(Unfinished));
        let content = scan_all(&mut records, true).0.unwrap();
        assert_eq!(
            (content.words, content.events, content.holes),
            (6 + length, 1, 0)
        );
    }
}

/// A call site is no event, and stays with its entry, which its thread stores right behind it.
#[test]
fn call_sites_are_waited_for_with_their_entries() {
    let call_site = word(BEGIN + 3, KIND_CALL_SITE, 3);
    let entry = word(BEGIN + 3, KIND_ENTRY, 3);
    for (words, is_whole) in [
        ([word(BEGIN + 3, KIND_PENDING_CALL_SITE, 3), 0, 0], false),
        ([call_site, 9, 0], false),
        ([call_site, 9, entry], true),
    ] {
        let mut records = records(&words);
        let growing = scan_all(&mut records, false).0;
        assert_eq!(growing.is_ok(), is_whole, "{words:x?}");
        let content = scan_all(&mut records, true).0.unwrap();
        let events = u64::from(is_whole);
        assert_eq!(
            (content.words, content.events),
            (6 + 2 + events as usize, events)
        );
    }
}

#[test]
fn the_content_ends_with_the_last_record_that_is_written() {
    let entry = word(BEGIN + 7, KIND_ENTRY, 3);
    let mut torn = records(&[entry, 0x1234]);
    assert_eq!(
        scan_all(&mut torn, false).0,
        Err(Unfinished),
        "its lower half is stored"
    );
    assert_eq!(
        scan_all(&mut torn, true).0.map(|content| content.words),
        Ok(7)
    );

    let mut reserved = records(&[entry, 0]);
    let mut occurrences = Occurrences::new();
    let content = scan(
        &mut reserved,
        Known {
            reserved: 8,
            ..KNOWN
        },
        &Markers::default(),
        &mut occurrences,
    );
    assert_eq!(
        content,
        Err(Unfinished),
        "its thread says that it has reserved it"
    );
    let content = scan(
        &mut reserved,
        Known {
            reserved: 7,
            ..KNOWN
        },
        &Markers::default(),
        &mut occurrences,
    );
    assert_eq!(content.map(|content| content.words), Ok(7));
}

#[test]
fn what_makes_no_sense_is_cut_off() {
    let entry = word(BEGIN + 7, KIND_ENTRY, 3);
    let event = extended(BEGIN + 8, EVENT_RESYNC + 1);
    for nonsense in [word(BEGIN + 8, KIND_NONE, 3), event] {
        let mut records = records(&[entry, nonsense, 0, entry]);
        let content = scan_all(&mut records, true).0.unwrap();
        assert_eq!(
            (content.words, content.events, content.damage),
            (7, 1, 2),
            "{nonsense:x}"
        );
    }
    let mut records = records(&[entry]);
    let long = records.len() - 6;
    records[long] = word(BEGIN + 9, KIND_ONLY_ARGS, 3);
    records[7..long].fill(entry);
    let content = scan_all(&mut records, true).0.unwrap();
    assert_eq!(
        (content.words, content.damage),
        (long, 1),
        "it runs past the end of the chunk"
    );
}

#[test]
fn a_clock_never_goes_back() {
    let words = [
        word(BEGIN + 7, KIND_ENTRY, 3),
        word(BEGIN + 6, KIND_EXIT, 3),
    ];
    let mut records = records(
        &[
            &words[..],
            &resync(BEGIN + 6),
            &[word(BEGIN + 8, KIND_ENTRY, 4)],
        ]
        .concat(),
    );
    let content = scan_all(&mut records, true).0.unwrap();
    assert_eq!(records[7], word(BEGIN + 7, KIND_EXIT, 3));
    assert_eq!(records[8..14], [Word::hole(BEGIN + 7).0; 6]);
    assert_eq!(
        (content.events, content.holes, content.damage, content.end),
        (3, 6, 7, BEGIN + 8)
    );
}

#[test]
fn a_clock_is_not_of_the_future() {
    let future = KNOWN.future | 5;
    let mut records = records(&[&resync(future)[..], &[word(BEGIN + 8, KIND_ENTRY, 4)]].concat());
    assert_eq!(
        scan_all(&mut records, false).0.map(|content| content.end),
        Ok(BEGIN + 8)
    );
    assert_eq!(records[6..12], [Word::hole(BEGIN).0; 6]);
}

#[test]
fn a_chunk_that_was_not_begun_has_nothing() {
    let mut records = vec![0; 100];
    assert_eq!(scan_all(&mut records, false).0, Err(Unfinished));
    assert_eq!(
        scan_all(&mut records, true)
            .0
            .map(|content| (content.words, content.damage)),
        Ok((0, 0))
    );
    records[50] = word(3, KIND_ENTRY, 1);
    for begin in [0, KNOWN.future] {
        let known = Known {
            begin,
            state: ChunkPhase::Settled,
            ..KNOWN
        };
        let content = scan(
            &mut records,
            known,
            &Markers::default(),
            &mut Occurrences::new(),
        )
        .unwrap();
        assert_eq!(
            (content.words, content.damage),
            (0, 1),
            "records of an unknown time"
        );
    }
}

#[test]
fn scanning_again_finds_the_same() {
    let mut records = records(&[
        0,
        word(BEGIN + 7, KIND_ENTRY, 3),
        word(BEGIN + 6, KIND_EXIT, 3),
    ]);
    let first = scan_all(&mut records, true).0.unwrap();
    let second = scan_all(&mut records, true).0.unwrap();
    assert_eq!(second, Content { damage: 0, ..first });
}

fn markers() -> (Markers, u32, u32) {
    let field = |kind| Field {
        name: "field".into(),
        kind,
        labels: Vec::new(),
    };
    let mut markers = Markers::default();
    let mut learn = |which, kind| {
        let fields = vec![field(kind)];
        let event = event_number(which, &fields);
        markers.learn(&Note::Marker {
            event,
            image: 0,
            name: "marker".into(),
            format: String::new(),
            fields,
            file: String::new(),
            line: 0,
            tracepoint: false,
        });
        event
    };
    let fixed = learn(32, FieldKind::Signed(32));
    let variable = learn(33, FieldKind::Text);
    (markers, fixed, variable)
}

fn scan_markers(records: &[u64], settled: bool) -> (Result<Content, Unfinished>, Vec<u64>) {
    let mut words = resync(BEGIN).to_vec();
    words.extend_from_slice(records);
    let content = scan(
        &mut words,
        Known {
            state: if settled {
                ChunkPhase::Settled
            } else {
                ChunkPhase::HandedOver
            },
            ..KNOWN
        },
        &markers().0,
        &mut Occurrences::new(),
    );
    (content, words[RESYNC_WORDS..].to_vec())
}

fn extended(clock: u64, event: u32) -> u64 {
    Word::extended(event, clock).0
}

#[test]
fn markers_are_events() {
    let (_, fixed, variable) = markers();
    let text = u64::from_le_bytes(*b"text\0\0\0\0");
    let (first, second) = (BEGIN + 1, BEGIN + 2);
    let records = [
        extended(first, fixed),
        first,
        7,
        extended(second, variable),
        second,
        3,
        4,
        text,
    ];
    let (content, words) = scan_markers(&records, false);
    let content = content.unwrap();
    assert_eq!(
        (content.events, content.damage, content.end),
        (2, 0, second)
    );
    assert_eq!(words, records);
}

#[test]
fn a_marker_without_a_clock_may_yet_be_finished() {
    let (_, fixed, variable) = markers();
    for record in [
        &[extended(BEGIN + 1, fixed), 0, 0][..],
        &[extended(BEGIN + 1, variable), 0, 0, 0],
        &[extended(BEGIN + 1, variable), 0, 3, 4, 0],
    ] {
        let mut records = record.to_vec();
        records.push(word(BEGIN + 9, KIND_ENTRY, 3));
        assert_eq!(scan_markers(&records, false).0, Err(Unfinished));
        let (content, words) = scan_markers(&records, true);
        let content = content.unwrap();
        assert_eq!((content.events, content.holes), (1, record.len() as u64));
        assert!(
            words[..record.len()]
                .iter()
                .all(|word| Word(*word).kind() == KIND_HOLE)
        );
    }
}

#[test]
fn markers_that_make_no_sense_are_not_let_through() {
    let (_, fixed, variable) = markers();
    let clock = BEGIN + 1;
    for record in [
        &[extended(clock, fixed + 2), clock, 7][..],
        &[extended(clock, fixed), BEGIN - 1, 7],
        &[extended(clock, variable), clock, 2, 4],
        &[extended(clock, variable), clock, 3, 400, 0],
        &[extended(clock, variable), clock, 300, 4, 0],
        &[extended(clock, variable), clock, 0, 4, 0],
        &[extended(clock, 40), clock],
    ] {
        let (content, _) = scan_markers(record, true);
        let content = content.unwrap();
        assert_eq!(content.events, 0, "{record:x?}");
        assert!(content.damage > 0, "{record:x?}");
    }
}

#[test]
fn a_sum_is_that_of_the_words_that_are_let_through() {
    let mut random = crate::synthetic::Random::new(7);
    for round in 0..2000 {
        let mut words = Vec::new();
        for number in 0..random.below(40) {
            let kind = random.below(16) as u32;
            words.push(word(BEGIN + number, kind, 3));
            words.extend((0..random.below(8)).map(|_| random.number() << (32 * (round % 2))));
        }
        let mut records = records(&words);
        for state in [
            ChunkPhase::Growing,
            ChunkPhase::HandedOver,
            ChunkPhase::Settled,
        ] {
            let known = Known { state, ..KNOWN };
            let found = scan(&mut records, known, &markers().0, &mut Occurrences::new());
            if let Ok(content) = found {
                let sum = Sum::new().words(&records[..content.words]);
                assert_eq!(content.sum, sum, "{records:x?}");
            }
        }
    }
}

/// Nearly all records are entries and exits of one word; the others come at any distance.
#[test]
fn a_long_run_of_plain_events_is_passed_like_a_short_one() {
    let mut random = crate::synthetic::Random::new(8);
    for round in 0..200 {
        let every = 1 + random.below(2000);
        let mut clock = BEGIN;
        let mut words = Vec::new();
        let (mut events, mut damage) = (0, 0);
        for _ in 0..random.below(3000) {
            clock += 1;
            let kind = [KIND_ENTRY, KIND_EXIT][random.below(2) as usize];
            match random.below(every) {
                0 => words.push(Word::hole(clock).0),
                1 => {
                    clock -= 1;
                    words.push(word(clock, kind, 3));
                    events += 1;
                }
                2 if clock > BEGIN + 9 => {
                    words.push(word(clock - 9, kind, 3));
                    (events, damage) = (events + 1, damage + 1);
                    clock -= 1;
                }
                _ => {
                    words.push(word(clock, kind, 3 + random.below(5) as u32));
                    events += 1;
                }
            }
        }
        let mut records = records(&words);
        let (content, _) = scan_all(&mut records, true);
        let content = content.unwrap();
        let found = (content.events, content.damage, content.words);
        let expected = (events, damage, RESYNC_WORDS + words.len());
        assert_eq!(found, expected, "round {round}");
        let records = &records[..content.words];
        let clocks = records[RESYNC_WORDS..]
            .iter()
            .map(|word| Word(*word).low_clock());
        assert!(clocks.is_sorted(), "round {round}");
        assert_eq!(content.end, clock, "round {round}");
        assert_eq!(content.sum, Sum::new().words(records), "round {round}");
    }
}
