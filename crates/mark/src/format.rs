//! Formats, parsed at compile time.

/// As `NOPAL_TYPE_*` in include/nopal.h.
pub const I8: u8 = 1;
pub const I16: u8 = 2;
pub const I32: u8 = 3;
pub const I64: u8 = 4;
pub const U8: u8 = 5;
pub const U16: u8 = 6;
pub const U32: u8 = 7;
pub const U64: u8 = 8;
pub const DOUBLE: u8 = 9;
pub const POINTER: u8 = 10;
pub const BYTES: u8 = 12;

/// The number of values of a format.
pub const fn conversions(format: &str) -> usize {
    let types = types(format);
    let mut count = 0;
    while count < types.len() && types[count] != 0 {
        count += 1;
    }
    count
}

/// The types of a format's values; 0 after the last.
pub const fn types(format: &str) -> [u8; 12] {
    let text = format.as_bytes();
    let mut types = [0; 12];
    let (mut count, mut at) = (0, 0);
    while at < text.len() {
        let is_conversion = text[at] == b'%';
        at += 1;
        if !is_conversion {
            continue;
        }
        assert!(at < text.len(), "the format ends within a conversion");
        if text[at] == b'%' {
            at += 1;
            continue;
        }
        while at < text.len() && matches!(text[at], b'#' | b'-' | b' ' | b'+' | b'.' | b'0'..=b'9')
        {
            at += 1;
        }
        let mut length: i32 = 0;
        while at < text.len() && matches!(text[at], b'h' | b'l' | b'q' | b'j' | b'z' | b't') {
            length += if text[at] == b'h' { -1 } else { 1 };
            at += 1;
        }
        assert!(at < text.len(), "the format ends within a conversion");
        assert!(count < types.len(), "a marker has at most 12 values");
        types[count] = of(text[at], length);
        count += 1;
        at += 1;
    }
    types
}

const fn of(letter: u8, length: i32) -> u8 {
    match (letter, length) {
        (b'd' | b'i', -2) => I8,
        (b'd' | b'i', -1) => I16,
        (b'd' | b'i', 0) => I32,
        (b'd' | b'i', 1..) => I64,
        (b'u' | b'x' | b'X' | b'o', -2) | (b'c', 0) => U8,
        (b'u' | b'x' | b'X' | b'o', -1) => U16,
        (b'u' | b'x' | b'X' | b'o', 0) => U32,
        (b'u' | b'x' | b'X' | b'o', 1..) => U64,
        (b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A', 0) => DOUBLE,
        (b'p', 0) => POINTER,
        (b's', 0) => BYTES,
        _ => panic!("not a conversion of markers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_printf() {
        let expected = [
            I32, I8, I16, I64, I64, U32, U32, U8, U64, U8, DOUBLE, POINTER,
        ];

        assert_eq!(
            types("a=%d 100%% %hhd%hd%ld%lld %-5u%#x%hho%zu%c %.3f%p"),
            expected
        );
    }
}
