//! Where calls are in the program, by the addresses that they return to.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use nopal_symbols::Image;
use nopal_trace::{Event, Note, Trace};

use crate::addresses::GENERATIONS;
use crate::images::Images;
use crate::names::{Function, Names, printable};
use crate::sort;

/// A place in a function that calls another one.
pub struct Caller {
    pub function: Function,
    /// The return address, from the function's begin.
    pub offset: u64,
    image: u32,
}

/// Where calls of a site are in a process.
pub struct CallSite {
    pub process: u32,
    pub return_address: u64,
    /// Of the function that is called there.
    pub site: u32,
    pub caller: Rc<Caller>,
    /// `FILE:LINE`, where the debug information of the file tells.
    line: Option<String>,
}

/// A file that processes have loaded.
struct File {
    image: u32,
    path: String,
    /// The sites in it, by address.
    sites: Vec<(u64, u32)>,
    opened: OnceCell<Option<Image>>,
}

/// The files that a process has loaded, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Module {
    process: u32,
    image: u32,
    base: u64,
    from: u64,
    until: u64,
}

/// A program that a process has executed, or has from its parent.
#[derive(Clone, Copy)]
struct Beginning {
    process: u32,
    from: u64,
    /// Of one that was forked.
    parent: Option<u32>,
}

/// Call sites of a trace that are told apart, and bytes of the names of a function that has some: a trace may say anything.
const MOST_CALL_SITES: usize = 1 << 17;
const LONGEST_NAMES: usize = 1 << 12;

/// By image and address in it.
type Found = HashMap<(u32, u64), Option<Rc<Caller>>>;

/// Finds functions by return addresses. An address that is in no function of a file that the process had loaded at that
/// time, such as one in generated code, has none.
pub struct Callers<'a> {
    images: Images<'a>,
    /// By image.
    files: Vec<File>,
    /// By process.
    modules: Vec<Module>,
    /// By process and time.
    beginnings: Vec<Beginning>,
    found: RefCell<Found>,
}

impl<'a> Callers<'a> {
    pub fn new(trace: &'a Trace) -> Callers<'a> {
        let mut callers = Callers {
            images: Images::new(trace),
            files: Vec::new(),
            modules: Vec::new(),
            beginnings: Vec::new(),
            found: RefCell::default(),
        };
        for note in trace.notes() {
            callers.take(note);
        }
        sort::by_key(&mut callers.files, |file| file.image);
        sort::by_key(&mut callers.modules, |module| module.process);
        sort::by_key(&mut callers.beginnings, |one| (one.process, one.from));
        for site in trace.sites() {
            if let Ok(at) = callers.file_at(site.image) {
                callers.files[at].sites.push((site.address, site.site));
            }
        }
        for file in &mut callers.files {
            sort::by_key(&mut file.sites, |site| *site);
        }
        callers
    }

    fn take(&mut self, note: &Note) {
        match note {
            Note::Image { image, path, .. } => self.files.push(File {
                image: *image,
                path: printable(path),
                sites: Vec::new(),
                opened: OnceCell::new(),
            }),
            Note::Process {
                process,
                parent,
                counter,
                executable,
                ..
            } => self.beginnings.push(Beginning {
                process: *process,
                from: *counter,
                parent: executable.is_empty().then_some(*parent),
            }),
            Note::Module {
                process,
                image,
                counter,
                base,
                ..
            } => self.modules.push(Module {
                process: *process,
                image: *image,
                base: *base,
                from: *counter,
                until: u64::MAX,
            }),
            Note::Unload {
                process,
                image,
                counter,
                base,
            } => {
                let is_it = |module: &&mut Module| {
                    (module.process, module.image) == (*process, *image)
                        && (module.base, module.until) == (*base, u64::MAX)
                };
                if let Some(module) = self.modules.iter_mut().rev().find(is_it) {
                    module.until = *counter;
                }
            }
            _ => {}
        }
    }

    fn file_at(&self, image: u32) -> Result<usize, usize> {
        self.files.binary_search_by_key(&image, |file| file.image)
    }

    fn file(&self, image: u32) -> Option<&File> {
        self.files.get(self.file_at(image).ok()?)
    }

    fn opened<'f>(&self, file: &'f File) -> Option<&'f Image> {
        let opened = file.opened.get_or_init(|| self.images.open(&file.path));
        opened.as_ref()
    }

    /// The file at an address in a process: of those that it has loaded, or its parent had when it forked, the last
    /// that begins before.
    fn module(&self, mut process: u32, address: u64, clock: u64) -> Option<Module> {
        let mut before = clock;
        for _ in 0..GENERATIONS {
            let beginnings = of_process(&self.beginnings, process, |one| one.process);
            let number = beginnings.partition_point(|beginning| beginning.from <= before);
            let beginning = beginnings.get(number.saturating_sub(1))?;
            let since = match beginning.parent {
                Some(_) => 0,
                None => beginning.from,
            };
            let modules = of_process(&self.modules, process, |one| one.process);
            let there = modules.iter().filter(|module| {
                (since..=before).contains(&module.from)
                    && module.until > before
                    && module.base <= address
            });
            if let Some(module) = there.max_by_key(|module| module.base) {
                return Some(*module);
            }
            process = beginning.parent?;
            before = beginning.from;
        }
        None
    }

    /// The caller of a call that returns to an address.
    pub fn find(
        &self,
        names: &Names,
        process: u32,
        return_address: u64,
        clock: u64,
    ) -> Option<Rc<Caller>> {
        let Module { base, image, .. } = self.module(process, return_address, clock)?;
        let address = return_address - base;
        let mut found = self.found.borrow_mut();
        if found.len() >= MOST_CALL_SITES {
            found.clear();
        }
        let new = || self.caller(names, image, address).map(Rc::new);
        found.entry((image, address)).or_insert_with(new).clone()
    }

    /// All call sites of the trace, but those of which one file was unloaded and another is there now.
    pub fn all(&self, trace: &Trace, names: &Names) -> Vec<CallSite> {
        let mut found = Vec::new();
        for ((process, site, return_address), (first, last)) in return_addresses(trace) {
            let at = |clock| self.module(process, return_address, clock);
            if at(first) == at(last)
                && let Some(caller) = self.find(names, process, return_address, first)
            {
                found.push(CallSite {
                    process,
                    return_address,
                    site,
                    caller,
                    line: None,
                });
            }
        }
        sort::by_key(&mut found, |one| {
            let Caller { image, .. } = *one.caller;
            (image, one.caller.call(), one.site, one.process)
        });
        for of_file in found.chunk_by_mut(|one, next| one.caller.image == next.caller.image) {
            self.find_lines(of_file);
        }
        found
    }

    fn find_lines(&self, of_file: &mut [CallSite]) {
        let calls: Vec<u64> = of_file.iter().map(|one| one.caller.call()).collect();
        let file = of_file.first().and_then(|one| self.file(one.caller.image));
        let Some(image) = file.and_then(|file| self.opened(file)) else {
            return;
        };
        let places = image.places(&calls);
        for CallSite { caller, line, .. } in of_file {
            let place = places.get(&caller.call());
            *line = place.map(|(file, line)| printable(&format!("{file}:{line}")));
        }
    }

    fn caller(&self, names: &Names, image: u32, return_address: u64) -> Option<Caller> {
        // A call that never returns may be the last instruction of its function.
        let call = return_address.checked_sub(1)?;
        let file = self.file(image)?;
        let holds = |address: u64, size: u64| call.checked_sub(address).is_some_and(|at| at < size);
        let after = file.sites.partition_point(|(address, _)| *address <= call);
        let known = file.sites[..after].last();
        let known = known.map(|(_, site)| names.function(*site));
        let function = match known.filter(|function| holds(function.address, function.size)) {
            Some(function) if function.name.len() + function.raw.len() > LONGEST_NAMES => {
                return None;
            }
            Some(function) => function.clone(),
            None => {
                let function = self.opened(file)?.function_at(call).ok()??;
                let (address, size) = (function.address, function.size);
                let is_in = holds(address, size);
                is_in.then(|| Function::new(&file.path, address, size, &function.name))?
            }
        };
        Some(Caller {
            offset: return_address - function.address,
            function,
            image,
        })
    }
}

impl Caller {
    /// An address in the call, as the file has it.
    fn call(&self) -> u64 {
        self.function.address + self.offset - 1
    }
}

impl CallSite {
    /// `FUNCTION+OFFSET`, and the line where it is known.
    pub fn name(&self) -> String {
        let Caller {
            function, offset, ..
        } = &*self.caller;
        match &self.line {
            Some(line) => format!("{}+{offset:#x} ({line})", function.name),
            None => format!("{}+{offset:#x}", function.name),
        }
    }
}

/// Those of a process, of what is in the order of processes.
fn of_process<T>(all: &[T], process: u32, process_of: impl Fn(&T) -> u32) -> &[T] {
    let all = &all[all.partition_point(|one| process_of(one) < process)..];
    &all[..all.partition_point(|one| process_of(one) == process)]
}

/// By process, site and return address: the clocks of the first call and of the last.
fn return_addresses(trace: &Trace) -> HashMap<(u32, u32, u64), (u64, u64)> {
    let mut all = HashMap::new();
    for thread in trace.threads() {
        for packet in thread.packets() {
            for record in packet.records() {
                if let Event::CallSite {
                    site,
                    return_address: Some(address),
                    ..
                } = record.event
                {
                    let clock = record.clock;
                    let key = (thread.process, site, address);
                    let has_room = all.len() < MOST_CALL_SITES;
                    let (first, last) = match all.entry(key) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) if has_room => new.insert((clock, clock)),
                        Entry::Vacant(_) => continue,
                    };
                    (*first, *last) = (clock.min(*first), clock.max(*last));
                }
            }
            packet.release();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::{Session, Writer};

    const BASE: u64 = 0x5555_0000_0000;

    fn process(process: u32, parent: u32, counter: u64, executable: &str) -> Note {
        Note::Process {
            process,
            parent,
            counter,
            name: executable.into(),
            executable: executable.into(),
            arguments: Vec::new(),
        }
    }

    fn module(process: u32, image: u32, counter: u64) -> Note {
        Note::Module {
            process,
            image,
            counter,
            base: BASE,
            path: format!("/none/{image}"),
        }
    }

    fn callers_of(notes: &[Note], look: impl Fn(&Callers, &Names)) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace");
        let mut writer = Writer::create(&path, Session::default()).unwrap();
        for (image, name) in [(1, "first"), (2, "second")] {
            let path = format!("/none/{image}");
            let identity = String::new();
            let sites = vec![(image, 0x1000, 0x40, name.to_owned())];
            let image_note = Note::Image {
                image,
                path,
                identity,
            };
            for note in [image_note, Note::Sites { image, sites }] {
                writer.note(&note).unwrap();
            }
        }
        for note in notes {
            writer.note(note).unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        look(&Callers::new(&trace), &Names::new(&trace));
    }

    /// A function's name, and the offset in it.
    type Place = (String, u64);

    fn found(seen: (&Callers, &Names), process: u32, address: u64, clock: u64) -> Option<Place> {
        let caller = seen.0.find(seen.1, process, BASE + address, clock)?;
        Some((caller.function.name.clone(), caller.offset))
    }

    #[test]
    fn addresses_are_in_what_was_loaded_at_that_time() {
        let unload = Note::Unload {
            process: 7,
            image: 1,
            counter: 200,
            base: BASE,
        };
        let notes = [
            process(7, 1, 100, "/none/program"),
            module(7, 1, 110),
            process(8, 7, 150, ""),
            unload,
            module(7, 2, 300),
            process(7, 1, 400, "/none/other"),
        ];
        let first = Some(("first".to_owned(), 0x10));
        callers_of(&notes, |callers, names| {
            let at = |process, clock| found((callers, names), process, 0x1010, clock);
            assert_eq!(at(7, 105), None, "not loaded yet");
            assert_eq!([at(7, 110), at(7, 199)], [first.clone(), first.clone()]);
            assert_eq!(at(7, 200), None, "unloaded");
            assert_eq!(at(7, 399), Some(("second".to_owned(), 0x10)));
            assert_eq!(at(7, 400), None, "another program");
            assert_eq!([at(8, 160), at(8, 500)], [first.clone(), first.clone()]);
            assert_eq!(at(9, 150), None, "no such process");
        });
    }

    #[test]
    fn a_return_address_is_behind_its_call() {
        let notes = [process(7, 1, 100, "/none/program"), module(7, 1, 110)];
        callers_of(&notes, |callers, names| {
            let at = |address| found((callers, names), 7, address, 120).map(|found| found.1);
            let call = [at(0x1000), at(0x1001), at(0x1040), at(0x1041), at(0)];
            assert_eq!(call, [None, Some(1), Some(0x40), None, None]);
        });
    }
}
