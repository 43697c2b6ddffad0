use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

const LONGEST_RAW: usize = 8 << 10;
const LONGEST_DEMANGLED: usize = 32 << 10;
const DEEPEST: u32 = 96;

/// The name as its author wrote it, for C++ and Rust; any other name, or one beyond reason, as it is.
pub fn demangle(raw: &str) -> Cow<'_, str> {
    if raw.len() > LONGEST_RAW || !["_Z", "_R", "_GLOBAL_"].iter().any(|prefix| raw.starts_with(prefix)) {
        return Cow::Borrowed(raw);
    }
    match rust(raw).or_else(|| cpp(raw)) {
        Some(name) if name.contains(char::is_control) => Cow::Owned(name.replace(char::is_control, "\u{fffd}")),
        Some(name) => Cow::Owned(name),
        None => Cow::Borrowed(raw),
    }
}

fn rust(raw: &str) -> Option<String> {
    // The older scheme ends a C++ name with a hash: 17h and 16 digits.
    if !raw.starts_with("_R") && !raw.contains("17h") {
        return None;
    }
    let name = rustc_demangle::try_demangle(raw).ok()?;
    let mut bounded = Bounded(String::new());
    write!(bounded, "{name:#}").ok()?;
    Some(bounded.0)
}

fn cpp(raw: &str) -> Option<String> {
    let options = ParseOptions::default().recursion_limit(DEEPEST);
    let symbol = cpp_demangle::Symbol::new_with_options(raw, &options).ok()?;
    let mut bounded = Bounded(String::new());
    symbol.structured_demangle(&mut bounded, &DemangleOptions::new().recursion_limit(DEEPEST)).ok()?;
    Some(bounded.0)
}

/// Text that fails to grow beyond a limit: a short name can stand for an exponentially long one.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A demangled C++ function without its parameters, qualifiers, return type and clone suffix: `ns::f<int>` for
/// `void ns::f<int>(int) const [clone .cold]`. Names without parameters stay as they are.
pub fn without_parameters(demangled: &str) -> &str {
    let mut name = demangled;
    while let Some(clone) = name.strip_suffix(']').and_then(|rest| rest.rfind(" [clone ")) {
        name = &name[..clone];
    }
    while let Some(rest) = [" const", " volatile", " &", " &&", " noexcept"].iter().find_map(|end| name.strip_suffix(end)) {
        name = rest;
    }
    let Some(open) = opening_of_last(name) else { return demangled };
    let name = &name[..open];
    if name.is_empty() || (name.ends_with("operator") && open + 2 == demangled.len()) {
        return demangled;
    }
    &name[start_after_return_type(name)..]
}

/// Where the parenthesis opens that the text ends with.
fn opening_of_last(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' if depth == 1 => return Some(at),
            b'(' => depth -= 1,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The last space outside of brackets ends the return type, unless it belongs to the name of an operator.
fn start_after_return_type(name: &str) -> usize {
    let mut depth = 0usize;
    let mut start = None;
    for (at, byte) in name.bytes().enumerate().rev() {
        let before = &name.as_bytes()[..at];
        match byte {
            b'>' if ends_operator(before) || before.ends_with(b"-") => {}
            b')' | b'>' | b'}' | b']' => depth += 1,
            b'(' | b'<' | b'{' | b'[' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && (ends_operator(before) || before.ends_with(b"operator\"\"")) => start = None,
            b' ' if depth == 0 && start.is_none() => start = Some(at + 1),
            _ => {}
        }
    }
    start.unwrap_or(0)
}

/// Whether the text ends with `operator` and perhaps a part of its symbol.
fn ends_operator(text: &[u8]) -> bool {
    let symbol = text.iter().rev().take(3).take_while(|byte| b"<>=-*".contains(byte)).count();
    (0..=symbol).any(|symbol| text[..text.len() - symbol].ends_with(b"operator"))
}
