//! Names as they may be shown: in a file, they may hold anything.

use std::borrow::Cow;

/// `text` with U+FFFD in place of each character that may do harm.
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.chars().all(is_harmless) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.replace(|character| !is_harmless(character), "\u{fffd}")),
    }
}

/// A message without the numbers that Rust adds to errors of the system: ` (os error 2)`.
pub fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|char: char| char.is_ascii_digit());
        match rest.strip_prefix(')').filter(|_| rest.len() < part.len()) {
            Some(rest) => text.push_str(rest),
            None => text.extend([" (os error ", part]),
        }
    }
    text
}

/// Whether a character is harmless: no terminal obeys it, it neither ends a line nor turns it around, and XML can hold
/// it.
pub fn is_harmless(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !turns && !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn causes_are_words_only() {
        let said = "cannot read f: No such file or directory (os error 2): gone";
        assert_eq!(
            without_numbers(said),
            "cannot read f: No such file or directory: gone"
        );
        for kept in ["", "a (os error )", "a (os error 2", "f (os error x)"] {
            assert_eq!(without_numbers(kept), kept);
        }
    }
}
