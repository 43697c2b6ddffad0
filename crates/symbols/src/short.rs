//! The short form of a demangled name: it tells a function from others, without all that the compiler spelled out.

use crate::without_parameters;

/// Prefixes of the names of functions that the compiler made for other ones.
const MADE_FOR: [&str; 9] = [
    "global constructors keyed to ",
    "global destructors keyed to ",
    "non-virtual thunk to ",
    "virtual thunk to ",
    "covariant return thunk to ",
    "TLS init function for ",
    "TLS wrapper function for ",
    "guard variable for ",
    "transaction clone for ",
];

/// Namespaces of versions of the standard library, which its users do not write.
const INLINE_NAMESPACES: [&str; 3] = ["std::__cxx11::", "std::__1::", "std::__ndk1::"];

/// Arguments that templates have by default, where they are the last ones.
const DEFAULTS: [&str; 7] = [
    "std::allocator<",
    "std::char_traits<",
    "std::default_delete<",
    "std::equal_to<",
    "std::hash<",
    "std::less<",
    "alloc::alloc::Global",
];

/// Templates whose arguments are the user's own, all of them.
const WITHOUT_DEFAULTS: [&str; 2] = ["std::pair", "std::tuple"];

/// Operators with brackets in their names, each before its own beginnings.
const OPERATORS: [&str; 14] = [
    "()", "[]", "<=>", "<<=", ">>=", "->*", "->", "<<", ">>", "<=", ">=", "<", ">", "\"\"",
];

/// Longer names, in bytes, stay as they are: the work on brackets that do not close is quadratic.
const LONGEST: usize = 4 << 10;

/// Brackets within brackets, in hostile names.
const DEEPEST: usize = 64;

/// The beginning of a name that the compiler gave to a function that it made for another one, and the other one.
pub(crate) fn made_for(demangled: &str) -> (&str, &str) {
    let made = MADE_FOR.iter().find(|made| demangled.starts_with(**made));
    demangled.split_at(made.map_or(0, |made| made.len()))
}

/// `app::Store<int>::put` for `void app::Store<int, std::allocator<int> >::put(int const&)`, `std::string` for what that
/// stands for, and `Vec::drop` for `<Vec<T> as Drop>::drop` (with paths): no return types, parameters, default arguments
/// of templates, allocators, and traits. For demangled names only: others mean nothing by their brackets.
pub fn short(demangled: &str) -> String {
    let (made, name) = made_for(demangled);
    made.to_owned() + &shortened(without_parameters(name), 0)
}

/// The short form with the parameters, where the name has any: for functions whose short forms are the same.
pub fn short_with_parameters(demangled: &str) -> String {
    let (made, name) = made_for(demangled);
    let bare = without_parameters(name);
    let begin = name.rfind(bare).unwrap_or(0);
    let after = &name[begin + bare.len()..];
    format!("{made}{}{}", shortened(bare, 0), shortened_type(after, 0))
}

/// A short name and its ends at `::`, each with and without the arguments of the function's own template: `fib` may be
/// written for `app::fib<15>`.
pub fn endings(short: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let mut starts = vec![0];
    let mut arguments = None;
    let bytes = short.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'o' if is_word_begin(short, at)
                && let Some(length) = operator(&short[at..]) =>
            {
                at += length;
                continue;
            }
            b'<' | b'(' | b'{' | b'[' => {
                if depth == 0 && bytes[at] == b'<' && at > 0 {
                    arguments = Some(at);
                }
                depth += 1;
            }
            b'>' if bytes[..at].ends_with(b"-") => {}
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes[at..].starts_with(b"::") => {
                starts.push(at + 2);
                arguments = None;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    let without = arguments.filter(|_| short.ends_with('>'));
    if short.len() > LONGEST {
        starts.truncate(1);
    }
    starts.into_iter().flat_map(move |start| {
        let without = without.map(|end| short[start..end].trim_end());
        [Some(&short[start..]), without].into_iter().flatten()
    })
}

/// A name without its own parameters, as a path.
fn shortened(name: &str, depth: usize) -> String {
    Shortener::new(name, depth, true).run()
}

/// A type, or several, or parameters in parentheses.
fn shortened_type(text: &str, depth: usize) -> String {
    Shortener::new(text, depth, false).run()
}

struct Shortener<'a> {
    text: &'a str,
    at: usize,
    out: String,
    depth: usize,
    /// Parentheses are parameters of an enclosing function, not of a function type.
    is_name: bool,
}

impl<'a> Shortener<'a> {
    fn new(text: &'a str, depth: usize, is_name: bool) -> Shortener<'a> {
        Shortener {
            text,
            at: 0,
            out: String::with_capacity(text.len()),
            depth,
            is_name,
        }
    }

    fn run(mut self) -> String {
        if self.depth > DEEPEST || self.text.len() > LONGEST {
            return self.text.to_owned();
        }
        while let Some(char) = self.text[self.at..].chars().next() {
            let is_begin = is_word_begin(self.text, self.at);
            let rest = &self.text[self.at..];
            if is_begin && let Some(length) = operator(rest) {
                self.copy(length);
                continue;
            }
            if is_begin
                && let Some(namespace) =
                    INLINE_NAMESPACES.iter().find(|one| rest.starts_with(**one))
            {
                self.out.push_str("std::");
                self.at += namespace.len();
                continue;
            }
            let done = match char {
                '<' => self.angle(),
                '(' => self.parenthesis(),
                '{' => self.brace(),
                '[' if rest.starts_with("[abi:") => self.skip_tag(),
                _ => false,
            };
            if !done {
                self.copy(char.len_utf8());
            }
        }
        self.out
    }

    fn copy(&mut self, length: usize) {
        self.out.push_str(&self.text[self.at..self.at + length]);
        self.at += length;
    }

    /// The text within the brackets that open here; it is then at the first character behind them.
    fn within(&mut self) -> Option<&'a str> {
        let length = closing(&self.text[self.at..])?;
        let inner = &self.text[self.at + 1..self.at + length - 1];
        self.at += length;
        Some(inner)
    }

    /// Arguments of a template, or Rust's notation in the place of a type: `<Type>`, `<Type as Trait>`, `<impl Trait
    /// for Type>`.
    fn angle(&mut self) -> bool {
        let is_behind_path = self.out.ends_with("::");
        let begins_path = path_begin(&self.out) == self.out.len() && !is_operator(&self.out);
        let Some(inner) = self.within() else {
            return false;
        };
        let implementation = inner.strip_prefix("impl ");
        if begins_path || (is_behind_path && implementation.is_some()) {
            let of = match implementation {
                Some(implementation) => {
                    split_at_depth_0(implementation, " for ").map_or(implementation, |(_, of)| of)
                }
                None => split_at_depth_0(inner, " as ").map_or(inner, |(of, _)| of),
            };
            let begin = path_begin(&self.out);
            self.out.truncate(begin);
            let of = shortened_type(of, self.depth + 1);
            let is_path = of.starts_with(|char: char| char.is_alphabetic() || char == '_')
                && !of.contains(' ');
            match is_path {
                true => self.out.push_str(&of),
                false => self.out.extend(["<", &of, ">"]),
            }
            return true;
        }
        // `f::<T>` is Rust's way to write `f<T>`.
        let name = self.out.trim_end_matches("::").trim_end().len();
        if !is_operator(&self.out) {
            self.out.truncate(name);
        }
        self.arguments(inner);
        true
    }

    fn arguments(&mut self, inner: &str) {
        let mut arguments: Vec<String> = split_list(inner)
            .into_iter()
            .map(|argument| shortened_type(argument.trim(), self.depth + 1))
            .collect();
        let begin = path_begin(&self.out);
        let path = &self.out[begin..];
        if !WITHOUT_DEFAULTS.contains(&path) {
            let is_default = |argument: &String| {
                DEFAULTS.iter().any(|one| argument.starts_with(one))
                    // Older Rust names have the parameter instead: `Vec<T,A>`.
                    || (argument == "A" && path.starts_with("alloc::"))
            };
            let least = usize::from(!is_constructor(path));
            while arguments.len() > least && arguments.last().is_some_and(is_default) {
                arguments.pop();
            }
            if arguments.is_empty() {
                return;
            }
        }
        let character = match arguments.as_slice() {
            [only] if only == "char" => Some(""),
            [only] if only == "wchar_t" => Some("w"),
            _ => None,
        };
        if let (Some(name), Some(prefix)) = (path.strip_prefix("std::basic_"), character) {
            let (name, basic) = (format!("{prefix}{name}"), format!("basic_{name}"));
            self.out.replace_range(begin.., "std::");
            self.out.push_str(&name);
            // Constructors and destructors.
            for link in ["::", "::~"] {
                let rest = &self.text[self.at..];
                if rest
                    .strip_prefix(link)
                    .is_some_and(|rest| rest.starts_with(&basic))
                {
                    self.out.extend([link, &name]);
                    self.at += link.len() + basic.len();
                }
            }
            return;
        }
        self.out.push('<');
        self.out.push_str(&arguments.join(", "));
        self.out.push('>');
    }

    /// Parameters of a function that contains a local name go; those of a function type stay.
    fn parenthesis(&mut self) -> bool {
        let Some(inner) = self.within() else {
            return false;
        };
        if self.is_name && inner != "anonymous namespace" && !self.out.is_empty() {
            let mut rest = &self.text[self.at..];
            while let Some(after) = [" const", " volatile", " &&", " &", " noexcept"]
                .iter()
                .find_map(|word| rest.strip_prefix(word))
            {
                rest = after;
            }
            if rest.starts_with("::") {
                self.at = self.text.len() - rest.len();
                return true;
            }
        }
        let list: Vec<String> = split_list(inner)
            .into_iter()
            .map(|one| shortened_type(one.trim(), self.depth + 1))
            .collect();
        self.out.push('(');
        self.out.push_str(&list.join(", "));
        self.out.push(')');
        true
    }

    /// `{lambda(int)#1}` is `{lambda#1}`.
    fn brace(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some(parameters) = rest.strip_prefix("{lambda") else {
            return false;
        };
        let (Some(end), Some(length)) = (closing(parameters), closing(rest)) else {
            return false;
        };
        self.out.push_str("{lambda");
        self.out.push_str(&rest["{lambda".len() + end..length]);
        self.at += length;
        true
    }

    fn skip_tag(&mut self) -> bool {
        self.within().is_some()
    }
}

/// Whether a path ends with a class and its constructor: `Vec<int>::Vec`.
fn is_constructor(path: &str) -> bool {
    path.rsplit_once("::").is_some_and(|(class, name)| {
        let class = &class[path_begin(class)..];
        let class = class.split('<').next().unwrap_or(class);
        class == name || class.ends_with(&format!("::{name}"))
    })
}

/// The length of the word `operator` with a symbol that has brackets, if the text begins with that.
fn operator(text: &str) -> Option<usize> {
    let symbol = text.strip_prefix("operator")?;
    let symbol = OPERATORS.iter().find(|one| symbol.starts_with(**one))?;
    Some("operator".len() + symbol.len())
}

/// Whether the text ends with the name of an operator.
fn is_operator(text: &str) -> bool {
    let text = text.trim_end();
    text.rfind("operator")
        .is_some_and(|at| operator(&text[at..]) == Some(text.len() - at))
}

fn is_word_begin(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|char: char| char.is_alphanumeric() || char == '_')
}

/// The begin of the path with which the text ends.
fn path_begin(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b'>' | b')' | b'}' | b']' => depth += 1,
            b'<' | b'(' | b'{' | b'[' if depth == 0 => return at + 1,
            b'<' | b'(' | b'{' | b'[' => depth -= 1,
            b' ' | b',' | b'&' | b'*' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    0
}

/// The length of the text up to the bracket that closes its first character.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'o' if is_word_begin(text, at)
                && let Some(length) = operator(&text[at..]) =>
            {
                at += length;
                continue;
            }
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && matches!(bytes[at - 1], b'-' | b'=') => {}
            b'>' | b')' | b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The parts between the commas that are in no brackets.
fn split_list(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((part, after)) = split_at_depth_0(rest, ",") {
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// The text before and after the first `separator` that is in no brackets.
fn split_at_depth_0<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if let Some(behind) = rest.strip_prefix(separator) {
            return Some((&text[..at], behind));
        }
        let char = rest.chars().next()?;
        at += match char {
            'o' if is_word_begin(text, at) => operator(rest).unwrap_or(1),
            '<' | '(' | '{' | '[' => closing(rest).unwrap_or(1),
            _ => char.len_utf8(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_what_the_compiler_spelled_out() {
        for (demangled, expected) in [
            ("main", "main"),
            ("file.so+0x64da0", "file.so+0x64da0"),
            (
                "void app::Store<int, std::allocator<int> >::put(int const&)",
                "app::Store<int>::put",
            ),
            ("int app::fib<15>()", "app::fib<15>"),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_append(char const*, unsigned long)",
                "std::string::_M_append",
            ),
            (
                "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, std::less<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >, std::allocator<std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const, int> > >::operator[](std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
                "std::map<std::string, int>::operator[]",
            ),
            (
                "std::map<int, int, std::greater<int>, std::allocator<int> >::at(int)",
                "std::map<int, int, std::greater<int>>::at",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string<std::allocator<char> >(char const*, std::allocator<char> const&)",
                "std::string::string",
            ),
            (
                "std::pair<int, std::allocator<int> >::pair()",
                "std::pair<int, std::allocator<int>>::pair",
            ),
            (
                "std::allocator<int>::allocate(unsigned long)",
                "std::allocator<int>::allocate",
            ),
            (
                "std::unique_ptr<app::A, std::default_delete<app::A> >::~unique_ptr()",
                "std::unique_ptr<app::A>::~unique_ptr",
            ),
            (
                "std::ostream& std::operator<< <std::char_traits<char> >(std::basic_ostream<char, std::char_traits<char> >&, char const*)",
                "std::operator<< <std::char_traits<char>>",
            ),
            (
                "std::basic_ostream<wchar_t, std::char_traits<wchar_t> >::flush()",
                "std::wostream::flush",
            ),
            (
                "std::function<void (int)>::operator()(int) const",
                "std::function<void (int)>::operator()",
            ),
            (
                "ns::f(int) const::{lambda(char)#1}::operator()(char) const",
                "ns::f::{lambda#1}::operator()",
            ),
            (
                "bool ns::operator< <int>(ns::A<int>, ns::A<int>)",
                "ns::operator< <int>",
            ),
            ("bool operator><int>(int, int)", "operator><int>"),
            ("ns::A::operator->()", "ns::A::operator->"),
            (
                "ns::A<&(ns::operator<(int, int))>::f()",
                "ns::A<&(ns::operator<(int, int))>::f",
            ),
            ("(anonymous namespace)::g(int)", "(anonymous namespace)::g"),
            ("app::name[abi:cxx11](int)", "app::name"),
            (
                "global constructors keyed to app::table",
                "global constructors keyed to app::table",
            ),
            (
                "non-virtual thunk to app::A::f(int)",
                "non-virtual thunk to app::A::f",
            ),
            ("ns::f(int) [clone .isra.0]", "ns::f"),
            // Rust.
            (
                "<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop",
                "alloc::vec::Vec<T>::drop",
            ),
            ("<mycrate::Foo>::bar", "mycrate::Foo::bar"),
            (
                "core::fmt::num::imp::<impl core::fmt::Display for u32>::fmt",
                "u32::fmt",
            ),
            ("core::num::<impl usize>::checked_add", "usize::checked_add"),
            (
                "core::ptr::drop_in_place::<alloc::vec::Vec<i32, alloc::alloc::Global>>",
                "core::ptr::drop_in_place<alloc::vec::Vec<i32>>",
            ),
            ("<&T as core::fmt::Display>::fmt", "<&T>::fmt"),
            ("<fn(u8) -> u8 as mycrate::T>::f", "<fn(u8) -> u8>::f"),
            (
                "<F as core::ops::FnOnce<(A, B)>>::call_once",
                "F::call_once",
            ),
            ("mycrate::main::{{closure}}", "mycrate::main::{{closure}}"),
            ("mycrate::main::{closure#0}", "mycrate::main::{closure#0}"),
            // No names at all.
            ("f<", "f<"),
            (">(", ">("),
            ("", ""),
        ] {
            assert_eq!(short(demangled), expected, "{demangled}");
        }
    }

    #[test]
    fn parameters_tell_functions_of_one_name_apart() {
        for (demangled, expected) in [
            ("main", "main"),
            (
                "void app::Store<int, std::allocator<int> >::put(int const&) const",
                "app::Store<int>::put(int const&) const",
            ),
            (
                "app::f(std::vector<int, std::allocator<int> >, void (*)(int))",
                "app::f(std::vector<int>, void (*)(int))",
            ),
            ("ns::f(int) [clone .isra.0]", "ns::f(int) [clone .isra.0]"),
        ] {
            assert_eq!(short_with_parameters(demangled), expected, "{demangled}");
        }
    }

    #[test]
    fn a_name_is_known_by_its_endings() {
        let of = |short| endings(short).collect::<Vec<_>>();
        assert_eq!(of("main"), ["main"]);
        assert_eq!(
            of("app::Store<a::b>::put<int>"),
            [
                "app::Store<a::b>::put<int>",
                "app::Store<a::b>::put",
                "Store<a::b>::put<int>",
                "Store<a::b>::put",
                "put<int>",
                "put"
            ]
        );
        assert_eq!(of("ns::operator<"), ["ns::operator<", "operator<"]);
        assert_eq!(of("<&T>::fmt"), ["<&T>::fmt", "fmt"]);
    }

    #[test]
    fn hostile_names_take_no_long_time() {
        for part in [
            "<",
            "(",
            "a<",
            "{lambda(",
            "operator<",
            "::<",
            "<impl ",
            "a<b,",
            "é<",
        ] {
            let name = part.repeat(2000);
            assert!(short(&name).len() <= 2 * name.len(), "{part}");
            endings(&name).count();
        }
        let nested = "a<".repeat(2000) + &">".repeat(2000);
        assert!(short(&nested).len() <= nested.len());
    }
}
