//! The files whose functions are traced: opened, planned and numbered once in a session, however many processes load
//! them.

use crate::collecting::fair_mutex::FairMutex;
use crate::collecting::notes::{self, note};
use crate::sites::expected::Expected;
use crate::sites::functions::ByFile;
use crate::sites::hooks::{self, Hooks};
use crate::sites::markers;
use crate::sites::probes::Probes;
use anyhow::{Context, Result, anyhow};
use nopal_abi::EVENT_DEFINED;
use nopal_agent::Stub;
use nopal_beside::Mutex;
use nopal_beside::try_spawn;
use nopal_control::SiteKey;
use nopal_plan::{Plan, Refused, Site, is_tiny_leaf};
use nopal_symbols::{
    Image, Import, Relocation, demangle, demangle_as, endings, short, without_parameters,
};
use nopal_trace::{Note, Writer};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// One file and its plan.
pub struct File {
    pub image: Image,
    pub plan: Plan,
    /// Its number in the trace.
    pub index: u32,
    /// The key of its first site; those of others follow, and those of its refused functions.
    first_key: u32,
    names: OnceLock<HashMap<String, Vec<u64>>>,
    unwinder: OnceLock<Option<[u64; 4]>>,
    hooks: OnceLock<Hooks>,
    imports: OnceLock<Vec<Import>>,
    slots: OnceLock<HashMap<u64, u64>>,
    /// The functions to which a boundary leads, by the file's functions in the boundary.
    pub reached: Mutex<HashMap<Vec<u64>, Arc<HashSet<u64>>>>,
}

impl File {
    pub fn open(path: &Path, cache: Option<&Path>) -> Result<File> {
        File::plan(Image::open(path)?, cache)
    }

    fn plan(image: Image, cache: Option<&Path>) -> Result<File> {
        let plan = match cache {
            Some(cache) => Plan::cached(&image, cache),
            None => Plan::make(&image),
        };
        let plan = plan.with_context(|| format!("cannot plan {}", image.path().display()))?;
        Ok(File::new(image, plan))
    }

    /// It has no number yet.
    pub fn new(image: Image, plan: Plan) -> File {
        let file = File {
            image,
            plan,
            index: 0,
            first_key: 0,
            names: OnceLock::new(),
            unwinder: OnceLock::new(),
            hooks: OnceLock::new(),
            imports: OnceLock::new(),
            slots: OnceLock::new(),
            reached: Mutex::default(),
        };
        // Wanted soon, and found here while other files are opened.
        file.unwinder();
        file.all_hooks();
        file
    }

    /// Its functions of these names, if it has all of them: those that an unwinder calls to set a register, to set the
    /// address, to resume, and to tell the address.
    pub fn unwinder(&self) -> Option<[u64; 4]> {
        let find = || {
            Some([
                self.image.symbol("_Unwind_SetGR")?,
                self.image.symbol("_Unwind_SetIP")?,
                self.image.symbol("_Unwind_Resume")?,
                self.image.symbol("_Unwind_GetIP")?,
            ])
        };
        *self.unwinder.get_or_init(find)
    }

    /// The functions of whose calls the runtime must know.
    pub fn hooks(&self) -> Vec<(&Site, Stub)> {
        let hooks = self.all_hooks().placed.iter();
        hooks
            .filter_map(|(address, stub)| Some((self.plan.hook(*address).ok()?, *stub)))
            .collect()
    }

    /// Those that cannot be hooked.
    pub fn hooks_refused(&self) -> &[(&'static str, Stub)] {
        &self.all_hooks().refused
    }

    fn all_hooks(&self) -> &Hooks {
        self.hooks
            .get_or_init(|| Hooks::of(&self.image, &self.plan))
    }

    /// Its imports.
    pub fn imports(&self) -> &[Import] {
        self.imports.get_or_init(|| self.image.imports())
    }

    /// The word with the choice of the function at `resolver`, where such functions are called when the file is loaded.
    pub fn slot_of(&self, resolver: u64) -> Option<u64> {
        let slots = self.slots.get_or_init(|| {
            let imports = self.imports().iter();
            let slots = imports.filter_map(|import| match import.bound_as {
                Relocation::Irelative { resolver } => Some((resolver, import.slot)),
                _ => None,
            });
            slots.collect()
        });
        slots.get(&resolver).copied()
    }

    /// The key behind its own.
    fn end_key(&self) -> u32 {
        self.first_key + (self.plan.sites.len() + self.plan.refused.len()) as u32
    }

    /// The keys of its sites, and behind them those of its refused functions, each in the plan's order.
    pub fn keys(&self) -> impl Iterator<Item = SiteKey> {
        (self.first_key..self.end_key()).map(SiteKey)
    }

    /// The functions that are never traced, with their keys.
    pub fn refused(&self) -> impl Iterator<Item = (SiteKey, &Refused)> {
        self.keys()
            .skip(self.plan.sites.len())
            .zip(&self.plan.refused)
    }

    /// The address of the function of one of its keys.
    pub fn address_of(&self, key: SiteKey) -> Option<u64> {
        let index = key.0.checked_sub(self.first_key)? as usize;
        let (sites, refused) = (&self.plan.sites, &self.plan.refused);
        match sites.get(index) {
            Some(site) => Some(site.address),
            None => Some(refused.get(index - sites.len())?.address),
        }
    }

    /// The key of the site at an address.
    pub fn key_at(&self, address: u64) -> Option<SiteKey> {
        let (key, is_refused) = self.key_of(address)?;
        (!is_refused).then_some(key)
    }

    /// The key of the function that begins at an address, and whether it is refused.
    pub fn key_of(&self, address: u64) -> Option<(SiteKey, bool)> {
        let (sites, refused) = (&self.plan.sites, &self.plan.refused);
        let site = sites.binary_search_by_key(&address, |site| site.address);
        let (index, is_refused) = match site {
            Ok(index) => (index, false),
            Err(_) => {
                let index = refused.binary_search_by_key(&address, |refused| refused.address);
                (sites.len() + index.ok()?, true)
            }
        };
        Some((SiteKey(self.first_key + index as u32), is_refused))
    }

    /// The code of the function that begins at an address.
    pub fn code_at(&self, address: u64) -> Option<&[u8]> {
        let (key, is_refused) = self.key_of(address)?;
        let index = (key.0 - self.first_key) as usize;
        let size = match is_refused {
            false => self.plan.sites[index].size,
            true => self.plan.refused[index - self.plan.sites.len()].size,
        };
        self.image.bytes(address, usize::try_from(size).ok()?)
    }

    /// The functions with sites whose calls take a few nanoseconds, as their code shows.
    pub fn tiny_leaves(&self) -> impl Iterator<Item = u64> {
        let sites = self.plan.sites.iter();
        let tiny = sites.filter(|site| {
            let code = usize::try_from(site.size)
                .ok()
                .and_then(|size| self.image.bytes(site.address, size));
            code.is_some_and(|code| is_tiny_leaf(code, site.address))
        });
        tiny.map(|site| site.address)
    }

    /// The functions that have a name: as the file has it, demangled, so without parameters, or an ending of the short
    /// name.
    pub fn named(&self, name: &str) -> &[u64] {
        let names = self.names.get_or_init(|| {
            let mut names = HashMap::<String, Vec<u64>>::new();
            for function in self.image.functions().unwrap_or_default() {
                for raw in std::iter::once(&function.name).chain(&function.aliases) {
                    let demangled = demangle(raw);
                    let is_mangled = *raw != demangled;
                    let short = if is_mangled {
                        short(&demangled)
                    } else {
                        String::new()
                    };
                    let declared = [&*demangled, without_parameters(&demangled)];
                    let more = declared.into_iter().chain(endings(&short));
                    let more = more.filter(|_| is_mangled);
                    for name in std::iter::once(raw.as_str()).chain(more) {
                        let addresses = names.entry(name.to_owned()).or_default();
                        if addresses.last() != Some(&function.address) {
                            addresses.push(function.address);
                        }
                    }
                }
            }
            names
        });
        names.get(name).map_or(&[], Vec::as_slice)
    }

    /// The functions with code of a line.
    pub fn functions_at(&self, file: &str, line: u32) -> Result<HashSet<u64>> {
        let functions = self.image.functions_at_line(file, line)?;
        Ok(functions.into_iter().map(|one| one.address).collect())
    }

    /// The executable code and all that it refers to, by link-time address.
    pub fn extent(&self) -> std::ops::Range<u64> {
        let segments = self.image.segments();
        let low = segments
            .iter()
            .map(|segment| segment.address)
            .min()
            .unwrap_or(0);
        let high = segments
            .iter()
            .map(|segment| segment.address.saturating_add(segment.memory_size))
            .max();
        low & !0xfff
            ..high
                .unwrap_or(0)
                .checked_next_multiple_of(4096)
                .unwrap_or(low)
    }
}

/// All files of a session, and the numbers of the sites in them.
pub struct Files {
    cache: Option<PathBuf>,
    by_identity: HashMap<String, Arc<File>>,
    /// The files by number in the trace, and so by key.
    all: Vec<Arc<File>>,
    /// The same, by the facts that show that a file has not changed since: it need not be opened again.
    by_facts: HashMap<Facts, Arc<File>>,
    /// Files that are needed soon; a thread opens them meanwhile.
    expected: Option<Expected>,
    /// Notes of files that are not in the trace yet.
    unwritten: Vec<Note>,
    /// The addresses and numbers of each file's sites, by address.
    numbers: HashMap<u32, Vec<(u64, u32)>>,
    next_number: u32,
    pub markers: markers::Numbers,
    pub probes: Probes,
    /// Static probes that were wanted and cannot be placed, and why.
    pub unplaced: Vec<String>,
    /// Libraries that are loaded and cannot be read: they were replaced since, and nopal has no rights to look at the
    /// old file.
    pub unread: BTreeSet<String>,
    /// The number of events that have been defined.
    events: u32,
    /// The number of sites of each file.
    pub traced_sites: BTreeMap<u32, u64>,
    /// The refused functions, by file and address.
    pub refused: HashSet<(u32, u64)>,
}

impl Files {
    pub fn new() -> Files {
        Files {
            cache: cache_directory(),
            by_identity: HashMap::new(),
            all: Vec::new(),
            by_facts: HashMap::new(),
            expected: None,
            unwritten: Vec::new(),
            numbers: HashMap::new(),
            next_number: 1,
            markers: markers::Numbers::default(),
            probes: Probes::default(),
            unplaced: Vec::new(),
            unread: BTreeSet::new(),
            events: 0,
            traced_sites: BTreeMap::new(),
            refused: HashSet::new(),
        }
    }

    /// Has a thread open and plan the file of a program that is being executed, and the libraries that it needs, unless
    /// they are known or expected already.
    pub fn expect(&mut self, program: PathBuf) {
        let is_known = facts(&program).is_some_and(|facts| self.by_facts.contains_key(&facts));
        if !is_known && self.expected.is_none() {
            let known = self.by_facts.keys().copied().collect();
            self.expected = Some(Expected::of(program, self.cache.clone(), known));
        }
    }

    /// For people: the functions that should be hooked and cannot be.
    pub fn unhooked(&self) -> impl Iterator<Item = String> {
        self.all
            .iter()
            .flat_map(|file| hooks::describe_refused(file))
    }

    /// Opens and plans files, side by side: a file's error is its own. `paths` are a path that opens each file, and its
    /// name. [`Files::write_notes`] writes their notes.
    pub fn open(&mut self, paths: &[(PathBuf, PathBuf)]) -> Vec<Result<Arc<File>>> {
        let cache = self.cache.as_deref();
        let known = &self.by_identity;
        let facts: Vec<Option<Facts>> = paths.iter().map(|(path, _)| facts(path)).collect();
        let known_by_facts = |facts: &Option<Facts>| self.by_facts.get(facts.as_ref()?).cloned();
        let expected = self.expected.take().map(Expected::opened);
        let expected = Mutex::new(expected.unwrap_or_default());
        let take_expected = |facts: &Option<Facts>| expected.lock().remove(facts.as_ref()?);
        let open = |index: usize| match known_by_facts(&facts[index]) {
            Some(file) => Ok(Opened::Known(file)),
            None => match take_expected(&facts[index]) {
                Some(file) => Ok(Opened::New(Box::new(file))),
                None => Opened::new(&paths[index], cache, known),
            },
        };
        let next = AtomicUsize::new(0);
        let open_some = || {
            let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let indices = indices.take_while(|index| *index < paths.len());
            let opened = indices.map(|index| {
                let opened = catch_unwind(AssertUnwindSafe(|| open(index)));
                let opened = opened.unwrap_or_else(|_| Err(anyhow!("planning failed")));
                (index, opened)
            });
            opened.collect::<Vec<_>>()
        };
        // A mapping without a file, such as the kernel's own, has no facts.
        let is_new = |facts: &&Option<Facts>| {
            let is_unexpected = |facts| !expected.lock().contains_key(&facts);
            facts.is_some_and(is_unexpected) && known_by_facts(facts).is_none()
        };
        let workers = match facts.iter().filter(is_new).count() {
            0 | 1 => 1,
            some => std::thread::available_parallelism().map_or(1, |most| most.get().min(some)),
        };
        let mut opened = std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers)
                .filter_map(|_| try_spawn(scope, open_some))
                .collect();
            let mut opened = open_some();
            // A panic is caught above.
            opened.extend(
                others
                    .into_iter()
                    .filter_map(|other| other.join().ok())
                    .flatten(),
            );
            opened
        });
        opened.sort_unstable_by_key(|(index, _)| *index);
        let mut files = Vec::with_capacity(paths.len());
        for (((_, opened), (_, name)), facts) in opened.into_iter().zip(paths).zip(facts) {
            let file = opened.map(|opened| match opened {
                Opened::Known(file) => file,
                Opened::New(file) => self.add(*file, name),
            });
            if let (Ok(file), Some(facts)) = (&file, facts) {
                self.by_facts.insert(facts, file.clone());
            }
            files.push(file);
        }
        files
    }

    /// Notes the files that the trace does not know, before any other note about them.
    pub fn write_notes(&mut self, writer: &FairMutex<Writer>) -> Result<()> {
        let mut unwritten = std::mem::take(&mut self.unwritten).into_iter();
        unwritten.try_for_each(|image| note(writer, &image))
    }

    /// Releases the pages of the files, which have been looked at.
    pub fn let_pages_go(&self) {
        for file in self.by_identity.values() {
            file.image.let_pages_go();
        }
    }

    fn add(&mut self, file: File, name: &Path) -> Arc<File> {
        let identity = file.image.identity();
        if let Some(file) = self.by_identity.get(&identity) {
            return file.clone();
        }
        let index = self.all.len() as u32;
        // The last file may have no functions.
        let first_key = self.all.last().map_or(0, |file| file.end_key());
        self.unwritten.push(Note::Image {
            image: index,
            path: name.display().to_string(),
            identity: identity.clone(),
        });
        let file = Arc::new(File {
            index,
            first_key,
            ..file
        });
        self.all.push(file.clone());
        self.by_identity.insert(identity, file.clone());
        file
    }

    /// Notes functions that would have been traced, each once.
    pub fn refuse(
        &mut self,
        file: &File,
        refused: &[&Refused],
        writer: &FairMutex<Writer>,
    ) -> Result<()> {
        let mut reasons = BTreeMap::<String, u64>::new();
        for refused in refused {
            if self.refused.insert((file.index, refused.address)) {
                *reasons.entry(refused.reason.text().to_owned()).or_default() += 1;
            }
        }
        if reasons.is_empty() {
            return Ok(());
        }
        note(
            writer,
            &Note::Refused {
                image: file.index,
                count: reasons.values().sum(),
                reasons: reasons.into_iter().collect(),
            },
        )
    }

    /// Whether a marker or a static probe of any file is wanted.
    pub fn have_marker(&self, wanted: &markers::Wanted) -> bool {
        self.all.iter().any(|file| {
            let file_name = file.image.file_name();
            let (markers, _) = file.image.markers();
            let markers = markers.into_iter().map(|marker| marker.name);
            let statics = file.image.probes().into_iter();
            let statics = statics.map(|probe| format!("{}:{}", probe.provider, probe.name));
            let mut names = markers.chain(statics);
            names.any(|name| wanted.chooses_in(&name, &file_name))
        })
    }

    /// The functions whose names are most like that of a pattern which means none; those of exactly this name with
    /// their libraries, which have to be named to mean them.
    pub fn nearest(&self, pattern: &str) -> Vec<String> {
        let wanted = bare(pattern);
        let files = self.by_identity.values();
        let exact = files.filter(|file| !file.named(wanted).is_empty());
        let exact = exact.map(|file| format!("{wanted}@{}", file.image.file_name()));
        let mut exact: Vec<String> = exact.collect();
        if !exact.is_empty() {
            exact.sort_unstable();
            return exact;
        }
        let names: Vec<_> = self
            .by_identity
            .values()
            .filter_map(|file| file.image.functions().ok())
            .flatten()
            .map(|function| demangle_as(&function.name, short))
            .collect();
        let nearest = nopal_symbols::nearest(names.iter().map(|name| &**name), wanted);
        nearest.into_iter().map(str::to_owned).collect()
    }

    /// The number of an event that a note is about to define.
    pub fn next_event(&mut self) -> u32 {
        self.events += 1;
        EVENT_DEFINED + self.events - 1
    }

    /// The file and the address of the function of a key.
    pub fn site(&self, key: SiteKey) -> Option<(&Arc<File>, u64)> {
        let after = self.all.partition_point(|file| file.first_key <= key.0);
        // If some files have no functions, several begin with this key: the last has the site, if any.
        let file = self.all.get(after.checked_sub(1)?)?;
        Some((file, file.address_of(key)?))
    }

    /// The functions of `keys` by file, each in the order of addresses.
    pub fn by_file(&self, keys: &[SiteKey]) -> ByFile {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let mut by_file = ByFile::new();
        for (file, address) in keys.into_iter().filter_map(|key| self.site(key)) {
            by_file.entry(file.index).or_default().push(address);
        }
        by_file
    }

    /// The directory of plans, and of all else about files that outlasts a session.
    pub fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// A file that is known, by its identity.
    pub fn identified(&self, identity: &str) -> Option<&Arc<File>> {
        self.by_identity.get(identity)
    }

    /// The same by a path that opens it.
    pub fn at(&self, path: &Path) -> Option<Arc<File>> {
        self.by_facts.get(&facts(path)?).cloned()
    }

    /// The number of a site, if it has one.
    pub fn number_of(&self, file: u32, address: u64) -> Option<u32> {
        let numbers = self.numbers.get(&file)?;
        number_in(numbers, address)
    }

    /// The keys of sites by their numbers.
    pub fn keys_by_number(&self) -> Vec<Option<SiteKey>> {
        let mut keys = vec![None; self.next_number as usize];
        for file in &self.all {
            for (address, number) in self.numbers.get(&file.index).into_iter().flatten() {
                if let Some(key) = keys.get_mut(*number as usize) {
                    *key = file.key_at(*address);
                }
            }
        }
        keys
    }

    /// The numbers of sites, the same in every process, and those of them that the trace must be told of before they
    /// are used. `sites` are in the order of addresses.
    pub fn number<'a>(&mut self, file: &'a File, sites: &[&'a Site]) -> (Vec<u32>, NewSites<'a>) {
        let known = self.numbers.entry(file.index).or_default();
        let mut all = Vec::with_capacity(sites.len());
        let mut new = NewSites {
            file,
            sites: Vec::with_capacity(sites.len()),
        };
        for site in sites {
            let number = number_in(known, site.address).unwrap_or_else(|| {
                let number = self.next_number;
                self.next_number += 1;
                new.sites.push((number, *site));
                number
            });
            all.push(number);
        }
        known.extend(
            new.sites
                .iter()
                .map(|(number, site)| (site.address, *number)),
        );
        known.sort_unstable();
        *self.traced_sites.entry(file.index).or_default() += new.sites.len() as u64;
        (all, new)
    }
}

/// Without the library.
fn bare(pattern: &str) -> &str {
    pattern.split('@').next().unwrap_or(pattern)
}

fn number_in(numbers: &[(u64, u32)], address: u64) -> Option<u32> {
    let found = numbers.binary_search_by_key(&address, |(address, _)| *address);
    Some(numbers[found.ok()?].1)
}

/// Sites with the numbers that they have just been given.
pub struct NewSites<'a> {
    file: &'a File,
    sites: Vec<(u32, &'a Site)>,
}

impl NewSites<'_> {
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Tells the trace.
    pub fn write_notes(&self, writer: &FairMutex<Writer>) -> Result<()> {
        let sites = self.sites.iter();
        let sites = sites.map(|(number, site)| (*number, site.address, site.size, site.name()));
        notes::sites(writer, self.file.index, sites)
    }
}

/// Device, inode, size, and when content and inode were changed, to the nanosecond.
pub type Facts = (u64, u64, u64, [i64; 4]);

pub fn facts(path: &Path) -> Option<Facts> {
    path.metadata().ok().as_ref().map(facts_of)
}

pub fn facts_of(file: &Metadata) -> Facts {
    let times = [
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    ];
    (file.dev(), file.ino(), file.size(), times)
}

enum Opened {
    Known(Arc<File>),
    /// Without its number.
    New(Box<File>),
}

impl Opened {
    fn new(
        (path, name): &(PathBuf, PathBuf),
        cache: Option<&Path>,
        known: &HashMap<String, Arc<File>>,
    ) -> Result<Opened> {
        let image = Image::open_as(path, name)?;
        if let Some(file) = known.get(&image.identity()) {
            return Ok(Opened::Known(file.clone()));
        }
        let file = File::plan(image, cache)?;
        Ok(Opened::New(Box::new(file)))
    }
}

/// `$XDG_CACHE_HOME/nopal/plans` or `~/.cache/nopal/plans`; never below the working directory.
fn cache_directory() -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .and_then(absolute);
    let home = || {
        std::env::var_os("HOME")
            .map(PathBuf::from)
            .and_then(absolute)
            .map(|home| home.join(".cache"))
    };
    Some(cache.or_else(home)?.join("nopal/plans"))
}
