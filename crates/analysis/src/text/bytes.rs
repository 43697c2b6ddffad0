//! Numbers and strings put into byte buffers.

use nopal_symbols::is_harmless;

/// A number in decimal.
#[inline]
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Thousandths in decimal with three places: 1234567 is `1234.567`.
#[inline]
pub fn push_fraction(out: &mut Vec<u8>, thousandths: u64) {
    push_u64(out, thousandths / 1000);
    let rest = (thousandths % 1000) as u32;
    let digit = |value: u32| b'0' + (value % 10) as u8;
    out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

/// Decimal, with zeroes in front up to `width`.
pub fn push_decimal(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    out.extend(std::iter::repeat_n(
        b'0',
        width.saturating_sub(digits.len()),
    ));
    out.extend_from_slice(digits);
}

/// 16 hexadecimal digits.
#[inline]
pub fn push_hex(out: &mut Vec<u8>, value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let text: [u8; 16] = std::array::from_fn(|at| DIGITS[(value >> (60 - 4 * at)) as usize & 15]);
    out.extend_from_slice(&text);
}

/// Hexadecimal digits, as few as needed.
pub fn push_hex_short(out: &mut Vec<u8>, value: u64) {
    let start = out.len();
    push_hex(out, value);
    let zeroes = (value.leading_zeros() as usize / 4).min(15);
    out.drain(start..start + zeroes);
}

/// Pads the text that `write` writes with spaces in front, up to `width`.
pub fn push_padded(out: &mut Vec<u8>, width: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let length = out.len() - start;
    if length < width {
        out.extend(std::iter::repeat_n(b' ', width - length));
        out[start..].rotate_right(width - length);
    }
}

/// A string in quotes, as JSON wants it.
pub fn push_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\t' => out.extend_from_slice(b"\\t"),
            // All of these have four digits.
            harmful if !is_harmless(harmful) => {
                out.extend_from_slice(format!("\\u{:04x}", harmful as u32).as_bytes())
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers() {
        assert_eq!(
            written(|out| push_u64(out, u64::MAX)),
            "18446744073709551615"
        );
        assert_eq!(written(|out| push_fraction(out, 1_234_007)), "1234.007");
        assert_eq!(written(|out| push_fraction(out, 90)), "0.090");
        assert_eq!(written(|out| push_decimal(out, 42, 6)), "000042");
        assert_eq!(written(|out| push_decimal(out, 1234567, 6)), "1234567");
        assert_eq!(
            written(|out| push_hex(out, 0x0000_8829_7eec_d2e7)),
            "000088297eecd2e7"
        );
        assert_eq!(written(|out| push_hex_short(out, 0x2e7)), "2e7");
        assert_eq!(written(|out| push_hex_short(out, 0)), "0");
        assert_eq!(
            written(|out| push_padded(out, 4, |out| push_u64(out, 12))),
            "  12"
        );
        assert_eq!(
            written(|out| push_padded(out, 2, |out| push_u64(out, 123))),
            "123"
        );
    }

    #[test]
    fn strings_survive_a_json_parser() {
        let hostile: String = (0..300)
            .filter_map(char::from_u32)
            .chain("\u{2028}𝒻\u{10ffff}".chars())
            .collect();
        let json = written(|out| push_json_string(out, &hostile));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }
}
