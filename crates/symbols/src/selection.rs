use anyhow::{Context, Result};
use globset::{GlobBuilder, GlobMatcher};

use crate::without_parameters;

/// Which functions are meant: those that match any of some patterns, or all, but none of others.
///
/// A pattern is `GLOB[@MODULE]`. The glob is compared with the raw name, the demangled name, and the demangled name
/// without parameters; the module's glob with its file name, whole or up to `.so`.
pub struct Selection {
    only: Vec<Pattern>,
    not: Vec<Pattern>,
}

struct Pattern {
    name: Glob,
    module: Option<Glob>,
}

/// A glob, which its own text matches too, so that names with brackets need no escapes.
struct Glob {
    text: String,
    matcher: GlobMatcher,
}

impl Selection {
    pub fn new(only: &[String], not: &[String]) -> Result<Selection> {
        let parse = |patterns: &[String]| patterns.iter().map(|text| Pattern::parse(text)).collect::<Result<_>>();
        Ok(Selection { only: parse(only)?, not: parse(not)? })
    }

    /// Whether it is all functions.
    pub fn is_everything(&self) -> bool {
        self.only.is_empty() && self.not.is_empty()
    }

    pub fn chooses(&self, raw: &str, demangled: &str, module: &str) -> bool {
        let matches = |pattern: &Pattern| pattern.matches(raw, demangled, module);
        (self.only.is_empty() || self.only.iter().any(matches)) && !self.not.iter().any(matches)
    }

    /// Whether a pattern asks for functions of this module by its name: a reason to look into a library.
    pub fn names_module(&self, module: &str) -> bool {
        self.only.iter().filter_map(|pattern| pattern.module.as_ref()).any(|glob| matches_module(glob, module))
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
            Ok(Pattern { name: Glob::parse(name)?, module: module.map(Glob::parse).transpose()? })
        };
        parse().with_context(|| format!("bad pattern {text:?}"))
    }

    fn matches(&self, raw: &str, demangled: &str, module: &str) -> bool {
        self.module.as_ref().is_none_or(|glob| matches_module(glob, module))
            && (self.name.matches(raw)
                || (raw != demangled
                    && (self.name.matches(demangled) || self.name.matches(without_parameters(demangled)))))
    }
}

impl Glob {
    fn parse(text: &str) -> Result<Glob> {
        let matcher = GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build()?.compile_matcher();
        Ok(Glob { text: text.to_owned(), matcher })
    }

    fn matches(&self, name: &str) -> bool {
        self.text == name || self.matcher.is_match(name)
    }
}

fn matches_module(glob: &Glob, module: &str) -> bool {
    let stem = module.split_once(".so").map_or(module, |(stem, _)| stem);
    glob.matches(module) || glob.matches(stem)
}
