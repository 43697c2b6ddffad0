//! The files that a program will have mapped when it comes to its first code: a thread opens them while it is executed.

use crate::sites::files::{Facts, File, facts};
use anyhow::{Context, Result};
use nopal_plan::Plan;
use nopal_symbols::Image;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub struct Expected {
    /// `None` where there could be no thread.
    opened: Option<JoinHandle<HashMap<Facts, File>>>,
    /// The thread opens no more.
    enough: Arc<AtomicBool>,
}

impl Expected {
    /// Has a thread open and plan the file of a program, and the libraries that it needs, but for those that are
    /// `known`.
    pub fn of(program: PathBuf, cache: Option<PathBuf>, known: HashSet<Facts>) -> Expected {
        let enough = Arc::new(AtomicBool::new(false));
        let is_enough = enough.clone();
        let opened = std::thread::Builder::new().spawn(move || {
            let mut opened = HashMap::new();
            // A file that cannot be opened is reported when it is needed.
            let _ = open(&program, cache.as_deref(), &known, &is_enough, &mut opened);
            opened
        });
        Expected {
            opened: opened.ok(),
            enough,
        }
    }

    /// The files opened so far.
    pub fn opened(self) -> HashMap<Facts, File> {
        self.enough.store(true, Ordering::Relaxed);
        let opened = self.opened.and_then(|thread| thread.join().ok());
        opened.unwrap_or_default()
    }
}

/// Libraries are looked for beside the loader, where a system has its own. The process may find others instead, so
/// only plans that are kept are read: to make one takes long.
fn open(
    program: &Path,
    cache: Option<&Path>,
    known: &HashSet<Facts>,
    enough: &AtomicBool,
    opened: &mut HashMap<Facts, File>,
) -> Result<()> {
    let mut add = |facts: Facts, file: File| {
        let needs = file.image.needed().into_iter().map(str::to_owned).collect();
        opened.insert(facts, file);
        needs
    };
    // As the process will call it. Of a file that is replaced meanwhile, the facts are those of the old one, which
    // nobody will ask for.
    let program = program.canonicalize()?;
    let facts_of_it = facts(&program).context("it is gone")?;
    let file = File::open(&program, cache)?;
    // Wanted as soon as all is loaded.
    file.imports();
    let loader = file.image.interpreter().map(PathBuf::from);
    let mut wanted: Vec<String> = add(facts_of_it, file);
    let (Some(loader), Some(cache)) = (loader, cache) else {
        return Ok(());
    };
    let loader = loader.canonicalize()?;
    wanted.extend(loader.file_name().map(|name| name.display().to_string()));
    let mut seen = HashSet::new();
    while let Some(name) = wanted.pop() {
        if enough.load(Ordering::Relaxed) {
            break;
        }
        if name.contains('/') || !seen.insert(name.clone()) {
            continue;
        }
        let kept = |path: PathBuf| {
            let path = path.canonicalize().ok()?;
            let facts = facts(&path).filter(|facts| !known.contains(facts))?;
            let image = Image::open(&path).ok()?;
            let plan = Plan::kept(&image, cache)?;
            Some((facts, File::new(image, plan)))
        };
        if let Some((facts, file)) = kept(loader.with_file_name(name)) {
            wanted.extend(add(facts, file));
        }
    }
    Ok(())
}
