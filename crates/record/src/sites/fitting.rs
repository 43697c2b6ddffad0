//! Examines what a process has loaded before it is touched, and whether the sites that a recording asked for ever came.

use crate::options::Options;
use crate::refusal::Refusal;
use crate::sites::choose::{Loaded, boundary};
use crate::sites::files::Files;
use crate::sites::go::ensure_not_go;
use crate::sites::markers;
use crate::sites::modules;
use crate::sites::statics::names_of_statics;
use anyhow::{Result, bail, ensure};
use nopal_process::Memory;
use nopal_symbols::nearest;
use std::collections::{BTreeSet, HashSet};

/// The loaded files of a process, with their plans.
#[derive(Clone, PartialEq)]
pub struct Planned {
    pub modules: Vec<Loaded>,
    /// The addresses of the library functions that are called from outside of their library.
    pub boundary: HashSet<u64>,
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
            ensure_not_go(&program.file.image, &program.name).map_err(Refusal::program)?;
        }
        let boundary = boundary(&modules, &Memory::open(process)?);
        Ok(Planned { modules, boundary })
    }
}

fn no_function(patterns: &[String], files: &Files) -> Result<()> {
    let text = patterns.join(" ");
    let mut nearest = patterns.iter().map(|pattern| files.nearest(pattern));
    let nearest = nearest.find(|names| !names.is_empty()).unwrap_or_default();
    bail!(
        "no function matches {text}{}",
        nopal_symbols::or_nearest(&nearest)
    )
}

/// The names of all markers of `modules` that are wanted.
pub fn names_of_markers<'a>(
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

pub fn nearest_markers<'a>(modules: impl Iterator<Item = &'a Loaded>, name: &str) -> Vec<String> {
    let Ok(all) = markers::Wanted::new([("*", true), ("*:*", true)]) else {
        return Vec::new();
    };
    let names = names_of_markers(modules, &all);
    let near = nearest(names.iter().map(String::as_str), name).into_iter();
    near.map(str::to_owned).collect()
}

/// For people: the markers that were waited for and have not come.
pub fn waited_in_vain(options: &Options, files: &Files) -> Vec<String> {
    let waiting = options
        .markers
        .iter()
        .filter(|pattern| pattern.contains('@'));
    let in_vain = waiting.filter(|pattern| {
        let wanted = markers::Wanted::new([(pattern.as_str(), true)]);
        wanted.is_ok_and(|wanted| !files.have_marker(&wanted))
    });
    in_vain
        .map(|pattern| format!("no marker matched {pattern} in all that was loaded"))
        .collect()
}

/// The message that none of the functions that were waited for has come.
pub fn nothing_came(options: &Options, files: &Files) -> Option<String> {
    let some = files.traced_sites.values().any(|sites| *sites > 0);
    let is_asked = !options.only.is_empty() && !some;
    let error = is_asked.then(|| no_function(&options.only, files).err());
    Some(format!("{:#}", error??))
}
