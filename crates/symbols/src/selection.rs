use std::borrow::Cow;
use std::cell::OnceCell;

use anyhow::{Context, Result};

use crate::{demangle, endings, short, without_parameters};

/// A selection of functions: those that match one of some patterns, or all, without those that match others.
///
/// A pattern is `GLOB[@MODULE]`. The glob is compared with the raw name, the demangled name, also without parameters,
/// and the short name, also without the namespaces and classes that it begins with and without the arguments of the
/// function's template; the module's glob with its file name, whole or up to `.so`.
#[derive(Clone, Debug)]
pub struct Selection {
    only: Vec<Pattern>,
    not: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    name: Glob,
    module: Option<Glob>,
}

/// A glob, which its own text matches too, so that names with brackets need no escapes.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    /// For fast-glob, which is made for paths.
    pattern: String,
}

impl Selection {
    pub fn new(only: &[String], not: &[String]) -> Result<Selection> {
        let parse = |patterns: &[String]| {
            patterns
                .iter()
                .map(|text| Pattern::parse(text))
                .collect::<Result<_>>()
        };
        Ok(Selection {
            only: parse(only)?,
            not: parse(not)?,
        })
    }

    /// Whether it is all functions of this module, so that none needs to be compared by its names.
    pub fn chooses_all_of(&self, module: &str) -> bool {
        let all = |pattern: &Pattern| pattern.name.text == "*" && pattern.is_for(module);
        self.not.is_empty() && (self.only.is_empty() || self.only.iter().any(all))
    }

    /// Whether a function with all of these raw `names` is selected.
    pub fn chooses(&self, names: &[&str], module: &str) -> bool {
        let names: Vec<_> = names.iter().map(|name| Name::new(name)).collect();
        let matches = |pattern: &Pattern| names.iter().any(|name| pattern.matches(name, module));
        (self.only.is_empty() || self.only.iter().any(matches)) && !self.not.iter().any(matches)
    }

    /// Whether a pattern names this module: a reason to look into a library.
    pub fn names_module(&self, module: &str) -> bool {
        self.only
            .iter()
            .filter_map(|pattern| pattern.module.as_ref())
            .any(|glob| matches_module(glob, module))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern> {
        let (name, module) = match text.rsplit_once('@') {
            Some((name, module)) => (name, Some(module)),
            None => (text, None),
        };
        let name = if name.is_empty() { "*" } else { name };
        let parse = || -> Result<Pattern> {
            Ok(Pattern {
                name: Glob::parse(name)?,
                module: module.map(Glob::parse).transpose()?,
            })
        };
        parse().with_context(|| format!("bad pattern {text:?}"))
    }

    fn is_for(&self, module: &str) -> bool {
        let glob = self.module.as_ref();
        glob.is_none_or(|glob| matches_module(glob, module))
    }

    fn matches(&self, name: &Name, module: &str) -> bool {
        let glob = &self.name;
        self.is_for(module)
            && (glob.matches(name.raw)
                || (name.raw != name.demangled
                    && (glob.matches(&name.demangled)
                        || glob.matches(without_parameters(&name.demangled))
                        || endings(name.short()).any(|ending| glob.matches(ending)))))
    }
}

/// The forms of a name, each made once.
struct Name<'a> {
    raw: &'a str,
    demangled: Cow<'a, str>,
    short: OnceCell<String>,
}

impl Name<'_> {
    fn new(raw: &str) -> Name<'_> {
        Name {
            raw,
            demangled: demangle(raw),
            short: OnceCell::new(),
        }
    }

    fn short(&self) -> &str {
        self.short.get_or_init(|| short(&self.demangled))
    }
}

impl Glob {
    /// An error if the pattern is not well-formed.
    pub fn parse(text: &str) -> Result<Glob> {
        // A `!` at the begin would negate.
        let escape = if text.starts_with('!') { "\\" } else { "" };
        let pattern = format!("{escape}{}", without_separators(text));
        fast_glob::validate(&pattern)?;
        Ok(Glob {
            text: text.to_owned(),
            pattern,
        })
    }

    pub fn matches(&self, name: &str) -> bool {
        self.text == name || fast_glob::glob_match(&self.pattern, &*without_separators(name))
    }
}

/// The `/` in a name as another character: the `*` of a path's glob would end there.
fn without_separators(name: &str) -> Cow<'_, str> {
    match name.contains('/') {
        true => name.replace('/', "\u{1}").into(),
        false => name.into(),
    }
}

fn matches_module(glob: &Glob, module: &str) -> bool {
    let stem = module.split_once(".so").map_or(module, |(stem, _)| stem);
    glob.matches(module) || glob.matches(stem)
}

#[cfg(test)]
mod tests {
    use super::Selection;

    fn selection(only: &[&str], not: &[&str]) -> Selection {
        let owned = |patterns: &[&str]| {
            patterns
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        Selection::new(&owned(only), &owned(not)).unwrap()
    }

    fn chooses(only: &[&str], not: &[&str], raw: &str, module: &str) -> bool {
        selection(only, not).chooses(&[raw], module)
    }

    #[test]
    fn all_of_a_module_are_known_without_names() {
        let all = |only: &[&str], not: &[&str]| selection(only, not).chooses_all_of("libc.so.6");
        assert!(all(&[], &[]) && all(&["*"], &[]) && all(&["f", "*@libc"], &[]));
        assert!(!all(&[], &["f"]) && !all(&["*"], &["f@libm"]));
        assert!(!all(&["*f"], &[]) && !all(&["*@libm"], &[]));
        assert!(chooses(&[], &[], "f", "prog"));
    }

    #[test]
    fn names_are_raw_demangled_or_short() {
        let raw = "_ZN2ns1fEi";
        for pattern in [
            "ns::f",
            "ns::f*",
            "ns::f(int)",
            "ns::*",
            "_ZN2ns*",
            "*::f",
            "n[r-t]::{f,g}",
            "f",
        ] {
            assert!(chooses(&[pattern], &[], raw, "prog"), "{pattern}");
        }
        for pattern in ["ns::g*", "s::f", "ns::f(char)", "ns", "NS::f", "f(int)"] {
            assert!(!chooses(&[pattern], &[], raw, "prog"), "{pattern}");
        }
        assert!(chooses(&["ns::f<int>"], &[], "_ZN2ns1fIiEEvT_", "prog"));
        assert!(chooses(&["operator new*"], &[], "_Znam", "prog"));
        // int app::fib<15>()
        for pattern in ["fib*", "fib", "fib<15>", "app::fib", "app::fib<1?>"] {
            assert!(
                chooses(&[pattern], &[], "_ZN3app3fibILi15EEEiv", "prog"),
                "{pattern}"
            );
        }
        assert!(!chooses(&["int*"], &[], "_ZN3app3fIiEEvv", "prog"));
        assert!(chooses(
            &["write"],
            &[],
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "prog"
        ));
    }

    #[test]
    fn wildcards_match_any_text() {
        let name = "net/http.(*Server).Serve";
        for pattern in [
            "*",
            "**",
            "net*",
            "net*Serve",
            "net**Serve",
            "net?http*",
            "net/*",
            "*[!x]",
            "*.{Get,Serve}",
            "n{e{t,d},o}/*",
            "net/http.(\\*Server).Serve",
            name,
        ] {
            assert!(chooses(&[pattern], &[], name, "prog"), "{pattern}");
        }
        for pattern in ["?", "net", "net?Serve", "*[!e]", "http*", "!x"] {
            assert!(!chooses(&[pattern], &[], name, "prog"), "{pattern}");
        }
        assert!(chooses(&["!*"], &[], "!f", "prog"));
        assert!(chooses(&["operator/*"], &[], "_ZdvRK1AS1_", "prog"));
    }

    #[test]
    fn what_is_not_wanted_wins() {
        assert!(chooses(&["parse_*"], &["parse_line"], "parse_file", "prog"));
        assert!(!chooses(
            &["parse_*"],
            &["parse_line"],
            "parse_line",
            "prog"
        ));
        assert!(!chooses(&[], &["parse_*"], "parse_line", "prog"));
        assert!(!chooses(&["parse_*", "main"], &[], "run", "prog"));
    }

    #[test]
    fn any_name_of_a_function_chooses_it_and_any_takes_it_out() {
        let names = ["__libc_free", "free", "cfree"];
        let chooses =
            |only: &[&str], not: &[&str]| selection(only, not).chooses(&names, "libc.so.6");
        for name in names {
            assert!(chooses(&[name], &[]), "{name}");
            assert!(!chooses(&[], &[name]), "{name}");
            assert!(!chooses(&["free"], &[name]), "{name}");
        }
        assert!(!chooses(&["malloc"], &[]));
        assert!(chooses(&[], &["malloc"]));
    }

    #[test]
    fn modules_by_file_name() {
        for module in ["libc*", "libc.so.6", "libc", "lib[bc]*", "*"] {
            assert!(
                chooses(&[&format!("malloc@{module}")], &[], "malloc", "libc.so.6"),
                "{module}"
            );
        }
        for module in ["prog", "libc.so", "libcrypto*", "c"] {
            assert!(
                !chooses(&[&format!("malloc@{module}")], &[], "malloc", "libc.so.6"),
                "{module}"
            );
        }
        assert!(chooses(&["@prog"], &[], "main", "prog"));
        assert!(!chooses(&["*"], &["*@libc*"], "malloc", "libc.so.6"));
        assert!(chooses(&["*"], &["*@libc*"], "main", "prog"));
    }

    #[test]
    fn only_patterns_with_a_module_lead_into_libraries() {
        let selection = selection(&["main", "malloc@libc*"], &["free@libm*"]);
        assert!(selection.names_module("libc.so.6"));
        assert!(!selection.names_module("libm.so.6"));
        assert!(!selection.names_module("prog"));
    }

    #[test]
    fn a_bad_pattern_is_quoted() {
        let error = Selection::new(&["f[".to_owned()], &[]).err().unwrap();
        assert!(format!("{error:#}").contains("\"f[\""), "{error:#}");
    }
}
