//! The names of sites and threads.

use crate::callers::{CallSite, Callers};
use crate::sort;
use std::collections::HashMap;
use std::sync::OnceLock;

use anyhow::{Result, bail, ensure};
use nopal_abi::SITE_LIMIT;
use nopal_symbols::{
    Selection, demangle, demangle_as, nearest, or_nearest, short, short_with_parameters,
};
use nopal_trace::{Note, ProcessInfo, ThreadInfo, Trace};

/// How names of C++ and Rust functions are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Without what the compiler spelled out: `app::Store<int>::put`.
    #[default]
    Short,
    /// With parameters, return types and all arguments of templates.
    Full,
    /// As the file has them.
    Raw,
}

static STYLE: OnceLock<Style> = OnceLock::new();

impl Style {
    /// Chooses the style of all names of this process; the first choice stands. To be called before any name is made.
    pub fn write_global(self) {
        let _ = STYLE.set(self);
    }

    /// The chosen style, else short names.
    pub fn global() -> Style {
        STYLE.get().copied().unwrap_or_default()
    }

    /// A function's name in this style; `raw` is its name in the file.
    pub fn name(self, raw: &str) -> String {
        match self {
            Style::Short => demangle_as(raw, short).into_owned(),
            Style::Full => demangle(raw).into_owned(),
            Style::Raw => raw.to_owned(),
        }
    }
}

/// A function as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// In the global style.
    pub name: String,
    /// The name in the file.
    pub raw: String,
    /// Last part of the file's path.
    pub module: String,
    pub path: String,
    pub address: u64,
    pub size: u64,
}

impl Function {
    /// A function of a file; `raw` is its name there.
    pub fn new(path: &str, address: u64, size: u64, raw: &str) -> Function {
        Function {
            name: printable(&Style::global().name(raw)),
            raw: printable(raw),
            module: printable(path.rsplit('/').next().unwrap_or(path)),
            path: printable(path),
            address,
            size,
        }
    }
}

/// The functions of a trace. Sites of the same function (a file that several programs use) are one function.
pub struct Names {
    functions: Vec<Function>,
    /// By site; 0 if it is unknown.
    by_site: Vec<u32>,
    /// By process, site and return address: the functions that stand for calls there.
    by_call: Vec<((u32, u32, u64), u32)>,
}

impl Names {
    pub fn new(trace: &Trace) -> Names {
        let mut images: HashMap<u32, (&str, &str)> = HashMap::new();
        for note in trace.notes() {
            if let Note::Image {
                image,
                path,
                identity,
            } = note
            {
                images.insert(*image, (path, identity));
            }
        }
        let unknown = Function {
            name: "(unknown)".into(),
            raw: "(unknown)".into(),
            module: "?".into(),
            path: "?".into(),
            address: 0,
            size: 0,
        };
        let mut names = Names {
            functions: vec![unknown],
            by_site: vec![0],
            by_call: Vec::new(),
        };
        let mut known: HashMap<(&str, &str, u64), u32> = HashMap::new();
        for site in trace.sites().filter(|site| site.site < SITE_LIMIT) {
            let (path, identity) = images.get(&site.image).copied().unwrap_or(("?", ""));
            let functions = &mut names.functions;
            let number = *known
                .entry((path, identity, site.address))
                .or_insert_with(|| {
                    functions.push(Function::new(path, site.address, site.size, site.name));
                    functions.len() as u32 - 1
                });
            let at = site.site as usize;
            if names.by_site.len() <= at {
                names.by_site.resize(at + 1, 0);
            }
            names.by_site[at] = number;
        }
        if Style::global() == Style::Short {
            distinguish(&mut names.functions);
        }
        names
    }

    /// Adds a function that has no site, and returns its number.
    pub fn add(&mut self, function: Function) -> u32 {
        self.functions.push(function);
        self.functions.len() as u32 - 1
    }

    /// Calls of a function at different places are of different functions from now on: `leaf from work+0x15 (work.c:12)`.
    pub fn tell_call_sites_apart(&mut self, trace: &Trace) -> Result<()> {
        self.add_calls(trace, true, &|callee, call_site| Function {
            name: format!("{} from {}", callee.name, call_site.name()),
            ..callee.clone()
        })
    }

    /// Each place where calls are is a function from now on: `work+0x15 (work.c:12)`.
    pub(crate) fn name_call_sites(&mut self, trace: &Trace) -> Result<()> {
        self.add_calls(trace, false, &|_, call_site| Function {
            name: call_site.name(),
            ..call_site.caller.function.clone()
        })
    }

    /// The functions that stand for calls. By callee or not, those of one name in one file are one.
    fn add_calls(
        &mut self,
        trace: &Trace,
        by_callee: bool,
        function: &dyn Fn(&Function, &CallSite) -> Function,
    ) -> Result<()> {
        let call_sites = Callers::new(trace).all(trace, self);
        ensure!(
            !call_sites.is_empty(),
            "no call site is known in this trace: record them with `nopal record --call-sites`"
        );
        let functions = call_sites.iter().map(|call_site| {
            let callee = self.number(call_site.site);
            (callee, function(self.function(call_site.site), call_site))
        });
        let functions: Vec<_> = functions.collect();
        let mut known: HashMap<(&str, &str, u64), u32> = HashMap::new();
        for ((callee, function), call_site) in functions.iter().zip(&call_sites) {
            let callee = if by_callee { u64::from(*callee) } else { 0 };
            let name = (function.path.as_str(), function.name.as_str(), callee);
            let number = *known
                .entry(name)
                .or_insert_with(|| self.add(function.clone()));
            let CallSite {
                process,
                site,
                return_address,
                ..
            } = *call_site;
            self.by_call.push(((process, site, return_address), number));
        }
        sort::by_key(&mut self.by_call, |(call, _)| *call);
        Ok(())
    }

    /// The number of the function that stands for a call at a return address; none if none does.
    pub fn number_of_call(&self, process: u32, site: u32, return_address: u64) -> Option<u32> {
        let call = (process, site, return_address);
        let at = self.by_call.binary_search_by_key(&call, |(call, _)| *call);
        Some(self.by_call[at.ok()?].1)
    }

    /// One more than the highest site number.
    pub fn sites(&self) -> usize {
        self.by_site.len()
    }

    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The number of a site's function: 0 for a site that the trace does not describe.
    pub fn number(&self, site: u32) -> u32 {
        self.by_site.get(site as usize).copied().unwrap_or(0)
    }

    pub fn function(&self, site: u32) -> &Function {
        &self.functions[self.number(site) as usize]
    }

    /// The functions that match a pattern, by number.
    pub fn matching(&self, pattern: &str) -> Vec<u32> {
        let pattern = Pattern::new(pattern);
        (1..)
            .zip(&self.functions[1..])
            .filter(|(_, function)| pattern.means(function))
            .map(|(number, _)| number)
            .collect()
    }

    /// The functions that match `pattern`, at least one.
    pub fn wanted(&self, pattern: &str) -> Result<Vec<u32>> {
        let wanted = self.matching(pattern);
        if wanted.is_empty() {
            let names = self.functions.iter().map(|function| function.name.as_str());
            let near = or_nearest(&nearest(names, pattern));
            bail!("no function of this trace is named {pattern:?}{near}")
        }
        Ok(wanted)
    }
}

/// Adds parameters to short names that stand for several full names, and shows names in full if they are still the
/// same.
fn distinguish(functions: &mut [Function]) {
    for longer in [short_with_parameters, str::to_owned] {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, function) in functions.iter().enumerate() {
            by_name.entry(&function.name).or_default().push(number);
        }
        let same = by_name.into_values().filter(|numbers| {
            let raw = |number: &usize| &functions[*number].raw;
            let (first, others) = (raw(&numbers[0]), &numbers[1..]);
            let is_other = |number: &usize| raw(number) != first;
            others.iter().any(is_other)
        });
        for number in same.flatten().collect::<Vec<_>>() {
            let function = &mut functions[number];
            function.name = printable(&demangle_as(&function.raw, longer));
        }
    }
}

/// `GLOB[@MODULE]`: functions by any form of their names, as recording chooses them.
pub struct Pattern {
    text: String,
    selection: Option<Selection>,
}

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        Pattern {
            selection: Selection::new(&[text.to_owned()], &[]).ok(),
            text: text.to_owned(),
        }
    }

    pub fn means(&self, function: &Function) -> bool {
        let Function {
            name, raw, module, ..
        } = function;
        let chosen = |selection: &Selection| selection.chooses(&[raw], module);
        *name == self.text || *raw == self.text || self.selection.as_ref().is_some_and(chosen)
    }
}

/// Text from a trace, of harmless characters only.
pub fn printable(text: &str) -> String {
    nopal_symbols::printable(text).into_owned()
}

/// The names of threads, or of their processes.
pub struct ThreadNames<'a> {
    processes: Vec<ProcessInfo<'a>>,
}

impl<'a> ThreadNames<'a> {
    pub fn new(trace: &'a Trace) -> ThreadNames<'a> {
        let mut processes = trace.processes();
        sort::by_key(&mut processes, |process| (process.process, process.counter));
        ThreadNames { processes }
    }

    pub fn of(&self, thread: &ThreadInfo) -> String {
        if !thread.name.is_empty() {
            return printable(thread.name);
        }
        self.of_process(thread)
    }

    /// The name of a thread's process.
    pub fn of_process(&self, thread: &ThreadInfo) -> String {
        let before = self.processes.partition_point(|process| {
            (process.process, process.counter) <= (thread.process, thread.begin)
        });
        let around = [before.checked_sub(1), Some(before)].into_iter().flatten();
        let name = around
            .filter_map(|index| self.processes.get(index))
            .find(|process| process.process == thread.process)
            .map_or("", |process| process.name);
        match name {
            "" => "?".to_string(),
            name => printable(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_short_name_have_what_tells_them_apart() {
        let raw = [
            "_ZN2ns1fEi",
            "_ZN2ns1gEi",
            "_ZN2ns1gEc",
            "_ZN3app1hISt4lessIiEEEvv",
            "f",
            "f",
            "_ZN1A1gISaIiEEEvv",
            "_ZN1AC1Ev",
            "_ZN1AC2Ev",
        ];
        let mut functions: Vec<Function> = raw
            .iter()
            .map(|raw| Function::new("/bin/p", 0, 0, raw))
            .collect();
        distinguish(&mut functions);
        let names: Vec<&str> = functions.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ns::f",
                "ns::g(int)",
                "ns::g(char)",
                "app::h<std::less<int>>",
                "f",
                "f",
                "A::g<std::allocator<int>>",
                "A::A()",
                "A::A()"
            ]
        );
    }
}
