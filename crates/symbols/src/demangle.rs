use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

use crate::printable::printable;
use crate::short::made_for;

const LONGEST_RAW: usize = 8 << 10;
const LONGEST_DEMANGLED: usize = 32 << 10;
const DEEPEST: u32 = 96;

/// The demangled name, for C++ and Rust; any other name, or an unreasonably long one, unchanged.
pub fn demangle(raw: &str) -> Cow<'_, str> {
    if raw.len() > LONGEST_RAW
        || !["_Z", "_R", "_GLOBAL_"]
            .iter()
            .any(|prefix| raw.starts_with(prefix))
    {
        return Cow::Borrowed(raw);
    }
    for (prefix, made) in [
        ("_GLOBAL__sub_I_", "global constructors keyed to "),
        ("_GLOBAL__sub_D_", "global destructors keyed to "),
    ] {
        if let Some(key) = raw.strip_prefix(prefix) {
            return Cow::Owned(format!("{made}{}", demangle_key(key)));
        }
    }
    match rust(raw).or_else(|| cpp(raw)) {
        Some(name) => Cow::Owned(printable(&name).into_owned()),
        None => Cow::Borrowed(raw),
    }
}

/// A form of the demangled name, such as `short`. A name that is not mangled, as those of C, has no other form.
pub fn demangle_as(raw: &str, form: impl FnOnce(&str) -> String) -> Cow<'_, str> {
    match demangle(raw) {
        Cow::Borrowed(raw) => Cow::Borrowed(raw),
        Cow::Owned(demangled) => Cow::Owned(form(&demangled)),
    }
}

/// The symbol, demangled, or the file that initialisers are named after.
fn demangle_key(key: &str) -> Cow<'_, str> {
    match key.starts_with("_GLOBAL_") {
        true => Cow::Borrowed(key),
        false => demangle(key),
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
    symbol
        .structured_demangle(
            &mut bounded,
            &DemangleOptions::new().recursion_limit(DEEPEST),
        )
        .ok()?;
    Some(without_empty_packs(bounded.0))
}

/// The demangler leaves the comma before an empty pack of arguments, and the reference of one of parameters.
fn without_empty_packs(name: String) -> String {
    let name = match name.contains(", >") {
        true => name.replace(", >", ">"),
        false => name,
    };
    match name.strip_suffix("(&&)") {
        Some(function) => format!("{function}()"),
        None => name,
    }
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
/// `void ns::f<int>(int) const [clone .isra.0]`. Names without parameters stay as they are.
pub fn without_parameters(demangled: &str) -> &str {
    if !made_for(demangled).0.is_empty() {
        return demangled;
    }
    let mut name = demangled;
    while let Some(clone) = name
        .strip_suffix(']')
        .and_then(|rest| rest.rfind(" [clone "))
    {
        name = &name[..clone];
    }
    while let Some(rest) = [" const", " volatile", " &", " &&", " noexcept"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
    {
        name = rest;
    }
    let Some(open) = opening_of_last(name) else {
        return demangled;
    };
    let name = &name[..open];
    if name.is_empty() || (name.ends_with("operator") && open + 2 == demangled.len()) {
        return demangled;
    }
    &name[start_after_return_type(name)..]
}

/// The position of the parenthesis that matches the last character.
fn opening_of_last(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            _ if depth == 0 => return None,
            b'(' if depth == 1 => return Some(at),
            b'(' => depth -= 1,
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
            b' ' if depth == 0 && (ends_operator(before) || before.ends_with(b"operator\"\"")) => {
                start = None
            }
            b' ' if depth == 0 && is_qualifier_within(&name[at + 1..]) => {}
            b' ' if depth == 0 && start.is_none() => start = Some(at + 1),
            _ => {}
        }
    }
    start.unwrap_or(0)
}

/// The text after the parameters of the function that contains a local name: `f(int) const::{lambda()#1}`.
fn is_qualifier_within(rest: &str) -> bool {
    [
        "const::",
        "volatile::",
        "&::",
        "&&::",
        "const ",
        "volatile ",
    ]
    .iter()
    .any(|start| rest.starts_with(start))
}

/// Whether the text ends with `operator` and perhaps a part of its symbol.
fn ends_operator(text: &[u8]) -> bool {
    let symbol = text
        .iter()
        .rev()
        .take(3)
        .take_while(|byte| b"<>=-*".contains(byte))
        .count();
    (0..=symbol).any(|symbol| text[..text.len() - symbol].ends_with(b"operator"))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_DEMANGLED, demangle, without_parameters};

    #[test]
    fn names_of_each_language() {
        for (raw, expected) in [
            ("main", "main"),
            ("_Znotmangled", "_Znotmangled"),
            ("_ZN2ns1fEi", "ns::f(int)"),
            ("_ZN2ns1fIiEEvT_", "void ns::f<int>(int)"),
            ("_ZN12_GLOBAL__N_11gEv", "(anonymous namespace)::g()"),
            ("_GLOBAL__sub_I_main", "global constructors keyed to main"),
            (
                "_GLOBAL__sub_I__ZN2ns1fEi",
                "global constructors keyed to ns::f(int)",
            ),
            ("_GLOBAL__sub_D_a.cc", "global destructors keyed to a.cc"),
            ("_ZN2ns1fEi.isra.0", "ns::f(int) [clone .isra.0]"),
            (
                "_ZSt11make_uniqueIN3app6SquareEJEENSt8__detail9_MakeUniqIT_E15__single_objectEDpOT0_",
                "std::__detail::_MakeUniq<app::Square>::__single_object std::make_unique<app::Square>()",
            ),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ] {
            assert_eq!(demangle(raw), expected);
        }
    }

    #[test]
    fn parameters_are_cut_off() {
        for (demangled, expected) in [
            ("main", "main"),
            ("my prog (1)+0x10", "my prog (1)+0x10"),
            ("ns::f(int)", "ns::f"),
            ("void ns::f<int>(int)", "ns::f<int>"),
            (
                "unsigned long ns::f<int (*)(char)>(int (*)(char)) const",
                "ns::f<int (*)(char)>",
            ),
            ("ns::A::f() const &", "ns::A::f"),
            ("ns::f(int) [clone .isra.0] [clone .cold]", "ns::f"),
            ("(anonymous namespace)::g()", "(anonymous namespace)::g"),
            ("ns::A::operator()(int) const", "ns::A::operator()"),
            ("ns::A::operator()", "ns::A::operator()"),
            (
                "ns::A::operator unsigned long() const",
                "ns::A::operator unsigned long",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("ns::A::operator->()", "ns::A::operator->"),
            (
                "bool ns::operator< <int>(ns::A<int>, ns::A<int>)",
                "ns::operator< <int>",
            ),
            (
                "std::ostream& std::operator<< <char>(std::ostream&, char)",
                "std::operator<< <char>",
            ),
            ("bool operator><int>(int, int)", "operator><int>"),
            (
                "ns::f(int) const::{lambda(char)#1}::operator()(char) const",
                "ns::f(int) const::{lambda(char)#1}::operator()",
            ),
            (
                "<fn(u8) -> u8 as mycrate::T>::f",
                "<fn(u8) -> u8 as mycrate::T>::f",
            ),
            (")", ")"),
            ("(", "("),
            ("", ""),
        ] {
            assert_eq!(without_parameters(demangled), expected, "{demangled}");
        }
    }

    #[test]
    fn hostile_names_stay_short() {
        let mut doubling = "_Z1f1aIiE".to_owned();
        for level in 0..30u8 {
            let previous = char::from_digit(u32::from(level), 36)
                .unwrap_or('0')
                .to_ascii_uppercase();
            doubling += &format!("S_IS{previous}_S{previous}_E");
        }
        let deep =
            ["P", "PF", "1aI", "N1a", "T", "Dp"].map(|part| format!("_Z1f{}i", part.repeat(3000)));
        let rust = format!("_RNv{}C1a1b", "Nt".repeat(3000));
        for name in deep
            .iter()
            .chain([&doubling, &rust, &format!("_Z{}f", "9".repeat(100))])
        {
            let demangled = demangle(name);
            assert!(
                demangled.len() <= LONGEST_DEMANGLED.max(name.len()),
                "{name}"
            );
        }
        assert_eq!(
            demangle(&doubling),
            doubling,
            "the demangled name would be 2^30 long"
        );
    }

    #[test]
    fn no_control_characters() {
        // Punycode for U+0080.
        assert_eq!(demangle("_RNvC1au1a"), "a::\u{fffd}");
    }
}
