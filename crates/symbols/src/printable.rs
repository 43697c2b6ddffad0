//! Names may hold anything: what of them may be shown.

use std::borrow::Cow;

/// `text` with U+FFFD in place of each character that may do harm.
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.chars().all(is_harmless) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.replace(|character| !is_harmless(character), "\u{fffd}")),
    }
}

/// Whether a character is nothing that a terminal would obey, that ends a line or turns it around, or that XML has no
/// place for.
pub fn is_harmless(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !turns && !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}')
}
