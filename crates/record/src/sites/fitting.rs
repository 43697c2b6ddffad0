//! Whether what a recording begins with fits anything. If nothing does, it is a mistake, which is told of before a
//! process is touched.

use crate::launch;
use crate::options::Options;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::sites::choose::{Loaded, Wanted, imported};
use crate::sites::files::Files;
use crate::sites::markers;
use crate::sites::modules;
use crate::sites::statics::names_of_statics;
use crate::tracee::Settings;
use anyhow::{Context, Result, bail, ensure};
use nopal_process::Memory;
use nopal_symbols::{Selection, nearest};
use std::collections::{BTreeSet, HashSet};

/// The loaded files of a process, with their plans.
pub struct Planned {
    pub modules: Vec<Loaded>,
    /// Where the functions are that its executable imports.
    pub imports: HashSet<u64>,
}

impl Planned {
    /// Plans a process that runs on meanwhile.
    pub fn of(process: i32, files: &mut Files) -> Result<Planned> {
        let modules = modules::planned(process, files)?;
        ensure!(
            modules.iter().any(|module| module.executable),
            "the program's file cannot be read"
        );
        for program in modules.iter().filter(|module| module.executable) {
            launch::ensure_not_go(&program.file.image, &program.name).map_err(Refusal::program)?;
        }
        let imports = imported(&modules, &Memory::open(process)?);
        Ok(Planned { modules, imports })
    }
}

/// An error says what fits nothing; what may be loaded later is waited for.
pub fn something_is_chosen(
    options: &Options,
    settings: &Settings,
    planned: &Planned,
    files: &Files,
) -> Result<()> {
    let modules = || planned.modules.iter();
    // All markers beside something else: there may be none.
    let is_any =
        options.markers == ["*"] && !(options.only.is_empty() && options.tracers.is_empty());
    if !options.markers.is_empty() && !is_any && !wait(&options.markers, &planned.modules)? {
        let chosen = names_of_markers(modules(), &settings.markers);
        ensure!(
            !chosen.is_empty(),
            no_marker(modules(), &options.markers.join(" "))
        );
    }
    for line in options.triggers() {
        let marker = nopal_control::marker_awaited(&line)?;
        if let Some(name) = marker.filter(|name| !name.contains('@')) {
            let wanted = markers::Wanted::new([(&*name, true)])?;
            ensure!(
                !names_of_markers(modules(), &wanted).is_empty(),
                "{line:?}: {}",
                no_marker(modules(), &name)
            );
        }
        let (names, _) = nopal_control::needed(&line);
        for name in names {
            let is_there = modules().any(|module| module.file.has(&name));
            if !is_there && !wait(std::slice::from_ref(&name), &planned.modules)? {
                no_function(std::slice::from_ref(&name), files)
                    .with_context(|| format!("{line:?}"))?;
            }
        }
    }
    if options.only.is_empty() || options.libraries || wait(&options.only, &planned.modules)? {
        return Ok(());
    }
    let Some(wanted) = &settings.wanted else {
        return Ok(());
    };
    if modules().any(|module| wanted.has_site(module, &planned.imports)) {
        return Ok(());
    }
    let text = options.only.join(" ");
    if let Some(reason) = modules().find_map(|module| reason(wanted, module, &planned.imports)) {
        bail!("no function that matches {text} can be traced: {reason}");
    }
    let chosen = Wanted {
        functions: true,
        selection: Selection::new(&options.only, &[])?,
        libraries: options.libraries,
        needs: Vec::new(),
    };
    let fits = |module: &Loaded| chosen.has_site(module, &planned.imports);
    ensure!(
        !modules().any(fits),
        "every function that matches {text} is left out by {}",
        options.not.join(" ")
    );
    no_function(&options.only, files)
}

fn no_function(patterns: &[String], files: &Files) -> Result<()> {
    let text = patterns.join(" ");
    let mut nearest = patterns.iter().map(|pattern| files.nearest(pattern));
    let nearest = nearest.find(|names| !names.is_empty()).unwrap_or_default();
    ensure!(
        nearest.is_empty(),
        "no function matches {text}; the nearest are {}",
        nearest.join(", ")
    );
    bail!("no function matches {text}")
}

/// Whether one of `patterns` names a module that is not loaded, and may be later.
fn wait(patterns: &[String], modules: &[Loaded]) -> Result<bool> {
    let selections = patterns
        .iter()
        .filter(|pattern| pattern.contains('@'))
        .map(|pattern| Selection::new(std::slice::from_ref(pattern), &[]));
    for selection in selections {
        let selection = selection?;
        if !modules
            .iter()
            .any(|module| selection.names_module(module.file_name()))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why a function of a module that is wanted cannot be traced, if there is one.
fn reason(wanted: &Wanted, module: &Loaded, imports: &HashSet<u64>) -> Option<String> {
    let refused = *wanted.refused(module, imports).first()?;
    let name = match module.file.image.function_at(refused.address) {
        Ok(Some(function)) => function.name.clone(),
        _ => format!("{}+{:#x}", module.file_name(), refused.address),
    };
    Some(format!("{name}: {}", refused.reason.text()))
}

/// The names of all markers of `modules` that are wanted.
fn names_of_markers<'a>(
    modules: impl Iterator<Item = &'a Loaded>,
    wanted: &markers::Wanted,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for module in modules {
        let (markers, _) = module.file.image.markers();
        let chosen = markers
            .into_iter()
            .filter(|marker| wanted.chooses(&marker.name, module));
        names.extend(chosen.map(|marker| marker.name));
        names.extend(names_of_statics(module, wanted));
    }
    names
}

fn nearest_markers<'a>(modules: impl Iterator<Item = &'a Loaded>, name: &str) -> Vec<String> {
    let Ok(all) = markers::Wanted::new([("*", true), ("*:*", true)]) else {
        return Vec::new();
    };
    let names = names_of_markers(modules, &all);
    let near = nearest(names.iter().map(String::as_str), name).into_iter();
    near.map(str::to_owned).collect()
}

fn no_marker<'a>(modules: impl Iterator<Item = &'a Loaded> + Clone, wanted: &str) -> String {
    let has_some = markers::Wanted::new([("*", true), ("*:*", true)])
        .is_ok_and(|all| !names_of_markers(modules.clone(), &all).is_empty());
    match nearest_markers(modules, wanted) {
        _ if !has_some => format!("no marker matches {wanted}: the program has none"),
        near if near.is_empty() => format!("no marker matches {wanted}"),
        near => format!(
            "no marker matches {wanted}; the nearest are {}",
            near.join(", ")
        ),
    }
}

impl Session {
    /// The message that nothing appeared of what was waited for.
    pub(crate) fn nothing_came(&self) -> Option<String> {
        let some = self.files.traced_sites.values().any(|sites| *sites > 0);
        let is_asked = !self.options.only.is_empty() && !some;
        let error = is_asked.then(|| no_function(&self.options.only, &self.files).err());
        Some(format!("{:#}", error??))
    }

    /// The names of all markers that `wanted` chooses, in what is loaded.
    pub(crate) fn names_of_markers(&self, wanted: &markers::Wanted) -> Vec<String> {
        let modules = self.modules().map(|(_, module)| module);
        names_of_markers(modules, wanted).into_iter().collect()
    }

    pub(crate) fn nearest_markers(&self, name: &str) -> Vec<String> {
        nearest_markers(self.modules().map(|(_, module)| module), name)
    }
}
