//! Markers of this very test's program, as its file describes them.

use nopal_mark::mark;
use nopal_symbols::{FieldKind, Image, MARKER_NOP, Marker};

#[inline(never)]
fn leaf(a: i32, b: i64, text: &str) -> i64 {
    mark!(leaf, "a=%d b=%ld text=%s", a, b, text);
    i64::from(a) + b
}

fn generic<T: Copy + Into<u64>>(value: T) -> u64 {
    mark!(generic, "value=%lu", value.into());
    value.into()
}

fn types() {
    let text = String::from("owned");
    let pointer = &raw const text;
    mark!(
        types,
        "%hhd %hd u=%u %c bool=%hhu f=%f g=%g p=%p owned=%s bytes=%s state=%u{idle,busy}",
        -1i8,
        -2i16,
        3u32,
        b'c',
        true,
        1.5f64,
        2.5f32,
        pointer,
        text,
        b"bytes",
        1u32,
    );
    mark!(nothing, "");
}

fn own() -> Vec<Marker> {
    let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
    let (markers, bad) = image.markers();
    assert_eq!(bad, []);
    for place in markers.iter().flat_map(|marker| &marker.places) {
        assert_eq!(image.bytes(place.address, 5), Some(&MARKER_NOP[..]));
    }
    markers
}

#[test]
fn they_do_nothing_and_are_described() {
    assert_eq!(leaf(1, 2, "text"), 3);
    assert_eq!(generic(4u8) + generic(5u32), 9);
    types();
    let markers = own();
    let find = |name: &str| -> Vec<&Marker> {
        markers
            .iter()
            .filter(|marker| marker.name == name)
            .collect()
    };
    let [leaf] = find("leaf")[..] else {
        panic!("one marker leaf")
    };
    assert!(leaf.file.ends_with("markers.rs"));
    let names: Vec<&str> = leaf
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "text"]);
    assert!(!find("generic").is_empty());
    use FieldKind::*;
    let kinds: Vec<FieldKind> = find("types")[0]
        .fields
        .iter()
        .map(|field| field.kind)
        .collect();
    let expected = [
        Signed(8),
        Signed(16),
        Unsigned(32),
        Character,
        Unsigned(8),
        Double,
        Double,
        Pointer,
        Text,
        Text,
        Unsigned(32),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(find("types")[0].fields[10].labels.len(), 2);
    assert!(find("nothing")[0].fields.is_empty());
}
