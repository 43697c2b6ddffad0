//! Values of markers, of records made by hand: the number of those left out is shown.

use std::path::Path;

use nopal_abi as abi;
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{self, By, Group, Scale};
use nopal_analysis::names::Names;
use nopal_analysis::values::ValueSelection;
use nopal_trace::synthetic::{Recorder, clock};
use nopal_trace::{Field, FieldKind, Note, Session, Trace, Writer};

const BEGIN: u64 = 0x1_0000_0000;

/// Markers of one name, with their fields, and of each its records.
type Made<'a> = &'a [(&'a [(&'a str, FieldKind)], &'a [&'a [u64]])];

const NUMBER: FieldKind = FieldKind::Unsigned(64);

fn written(directory: &Path, made: Made) -> Trace {
    let mut writer = Writer::create(directory, Session::default()).unwrap();
    let image = Note::Image {
        image: 1,
        path: "/opt/server".into(),
        identity: String::new(),
    };
    for note in [clock(BEGIN), image] {
        writer.note(&note).unwrap();
    }
    let mut recorder = Recorder::new(100, 100, BEGIN);
    recorder.resync(BEGIN, 0x7ffd_0000_8008, abi::RESYNC_CHUNK);
    let mut counter = BEGIN;
    for (at, (fields, records)) in made.iter().enumerate() {
        let words = fields.len() as u32 + 1;
        let event = (abi::EVENT_DEFINED + at as u32) | words << abi::EVENT_WORDS_SHIFT;
        let fields = fields.iter().map(|(name, kind)| Field {
            name: (*name).into(),
            kind: *kind,
            labels: Vec::new(),
        });
        let marker = Note::Marker {
            image: 1,
            event,
            name: "request".into(),
            format: String::new(),
            fields: fields.collect(),
            file: "server.c".into(),
            line: at as u32,
            tracepoint: false,
        };
        writer.note(&marker).unwrap();
        for record in *records {
            counter += 1_000;
            let word = counter & 0xffff_ffff | u64::from(abi::KIND_EXTENDED | event << 4) << 32;
            recorder.words().extend([word, counter]);
            recorder.words().extend_from_slice(record);
        }
    }
    writer.note(&clock(BEGIN + 1_000_000)).unwrap();
    recorder.finish(&mut writer).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    Trace::open(directory).unwrap()
}

struct Found {
    /// Names and counts.
    groups: Vec<(String, u64)>,
    notes: Vec<String>,
    json: serde_json::Value,
    text: String,
}

fn found(made: Made, value: &str, by: Option<&str>, filter: &Filter) -> anyhow::Result<Found> {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(&directory.path().join("made"), made);
    let names = Names::new(&trace);
    let mut what = ValueSelection::new(Some(value), &names, trace.markers())?;
    let by = match by {
        None => By::Nothing,
        Some(by) => {
            what.group_by(by, trace.markers())?;
            By::Value
        }
    };
    let drive = Drive::default();
    let (groups, notes) = hist::distributions(&trace, &names, &what, filter, by, &drive)?;
    let mut json = Vec::new();
    hist::write_json(&mut json, &trace, &what, &groups, &notes, Scale::Log2)?;
    let mut text = Vec::new();
    hist::write_text(&mut text, &what, &groups, Scale::Log2, 120)?;
    let pair = |group: &Group| (group.name.clone(), group.distribution.count());
    Ok(Found {
        groups: groups.iter().map(pair).collect(),
        notes,
        json: serde_json::from_slice(&json)?,
        text: String::from_utf8(text)?,
    })
}

/// Some have the group's field, some do not, and in one it is a text, which is no group.
const REQUESTS: Made = &[
    (
        &[("len", NUMBER), ("user", NUMBER)],
        &[&[10, 1], &[20, 2], &[30, 1]],
    ),
    (&[("len", NUMBER)], &[&[40], &[50]]),
    (&[("size", NUMBER), ("user", NUMBER)], &[&[60, 1]]),
];

#[test]
fn addresses_are_shown_as_their_field_is() {
    let made: Made = &[(
        &[("address", FieldKind::Hexadecimal(64)), ("len", NUMBER)],
        &[&[0x7f32_1000_1000, 4096], &[0x7f32_1000_3000, 4096]],
    )];
    let all = Filter::default();
    let text = |value| found(made, value, None, &all).unwrap().text;
    let addresses = text("request.address");
    assert!(
        addresses.starts_with(
            "request.address: 2 values, from 0x7f3210001000 to 0x7f3210003000, mean 0x7f3210002000\n"
        ),
        "{addresses}"
    );
    assert!(text("request.len").contains("from 4,096 to 4,096"));
}

#[test]
fn markers_without_the_field_of_the_groups_are_told() {
    let all = Filter::default();
    let found = found(REQUESTS, "request.len", Some("user"), &all).unwrap();
    assert_eq!(found.groups, [("1".to_owned(), 2), ("2".to_owned(), 1)]);
    let notes = [
        "left out: 1 of request without a number named \"len\"",
        "left out: 2 of request without a number named \"user\"",
    ];
    assert_eq!(found.notes, notes);
    assert_eq!(found.json["left_out"], serde_json::json!(notes));
}

#[test]
fn only_what_passes_the_filter_can_be_left_out() {
    #[allow(
        clippy::field_reassign_with_default,
        reason = "some of its fields are private"
    )]
    let mut first = Filter::default();
    first.until = Some(BEGIN + 3_500);
    let found = found(REQUESTS, "request.len", Some("user"), &first).unwrap();
    assert_eq!(found.groups, [("1".to_owned(), 2), ("2".to_owned(), 1)]);
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!(found.json["left_out"], serde_json::json!([]));
}

#[test]
fn where_all_lack_a_field_it_is_said() {
    let error = found(REQUESTS, "request.size", Some("len"), &Filter::default()).err();
    assert_eq!(
        error.unwrap().to_string(),
        "request.size: left out: 5 of request without a number named \"size\"; left out: 1 of request without a number named \"len\""
    );
}

#[test]
fn what_could_not_be_read_is_no_value() {
    let fields = [
        ("len", NUMBER),
        ("user", NUMBER),
        ("missing", FieldKind::Missing),
    ];
    let records: [&[u64]; 4] = [&[7, 0, 0], &[0, 1, 1], &[8, 0, 2], &[0, 0, 3]];
    let made: Made = &[(&fields, &records)];
    let all = Filter::default();
    let found = found(made, "request.len", Some("user"), &all).unwrap();
    assert_eq!(found.groups, [("0".to_owned(), 1)]);
    assert_eq!(found.json["groups"][0]["min"], 7);
    let notes = [
        "left out: 2 of request whose \"len\" could not be read",
        "left out: 1 of request whose \"user\" could not be read",
    ];
    assert_eq!(found.notes, notes);
}

#[test]
fn what_is_not_a_number_is_no_value() {
    let fields = [("load", FieldKind::Double)];
    let [half, none] = [2.5f64, f64::NAN].map(f64::to_bits);
    let made: Made = &[(&fields, &[&[half], &[none]])];
    let found = found(made, "request.load", None, &Filter::default()).unwrap();
    assert_eq!(found.groups, [(String::new(), 1)]);
    let notes = ["left out: 1 of request without a number named \"load\""];
    assert_eq!(found.notes, notes);
}

#[test]
fn names_that_nothing_has_are_told_with_the_nearest() {
    let why = |value| {
        let refused = found(REQUESTS, value, None, &Filter::default()).err();
        format!("{:#}", refused.expect(value))
    };
    for mistyped in ["requst.len", "requst"] {
        assert_eq!(
            why(mistyped),
            "no function and no marker of this trace is named \"requst\"; the nearest is request"
        );
    }
}
