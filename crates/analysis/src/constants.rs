//! Text at addresses of a process, in parts of its files that are never written to: literals of the source, names in
//! tables. Such text is the same whenever it is read; all other text may have changed since the call. It is shown only
//! if nothing else can have been at that address. So files that were unloaded are left out, since another may have
//! taken their place before the trace says so; and so are files that a process has from its parent, which may have
//! loaded them after the fork.

use std::collections::HashMap;
use std::os::linux::fs::MetadataExt;

use nopal_symbols::Image;
use nopal_trace::{Note, Trace};

use crate::images::Images;
use crate::names::printable;

/// Longer strings are not text.
const LONGEST: usize = 1 << 16;

/// A moment in a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMoment {
    pub process: u32,
    pub clock: u64,
}

/// A file that a process has loaded.
struct Module {
    base: u64,
    image: u32,
    from: u64,
    is_unloaded: bool,
}

/// The default knows none.
#[derive(Default)]
pub struct Constants {
    modules: HashMap<u32, Vec<Module>>,
    /// The begins of each process, and of other programs in it: by process, in order of time.
    beginnings: HashMap<u32, Vec<u64>>,
    /// By number; only unchanged files.
    images: HashMap<u32, Image>,
}

impl Constants {
    pub fn new(trace: &Trace) -> Constants {
        let files = Images::new(trace);
        let mut constants = Constants::default();
        for note in trace.notes() {
            match *note {
                Note::Image {
                    image, ref path, ..
                } => {
                    let file = files.open(&printable(path));
                    constants.images.extend(file.map(|file| (image, file)));
                }
                Note::Process {
                    process, counter, ..
                } => constants
                    .beginnings
                    .entry(process)
                    .or_default()
                    .push(counter),
                Note::Module {
                    process,
                    image,
                    counter,
                    base,
                    ..
                } => {
                    let modules = constants.modules.entry(process).or_default();
                    modules.push(Module {
                        base,
                        image,
                        from: counter,
                        is_unloaded: false,
                    });
                }
                Note::Unload {
                    process,
                    image,
                    base,
                    ..
                } => {
                    let modules = constants.modules.entry(process).or_default();
                    let all = modules.iter_mut().rev();
                    let mut of_it =
                        all.filter(|module| (module.base, module.image) == (base, image));
                    if let Some(module) = of_it.next() {
                        module.is_unloaded = true;
                    }
                }
                _ => {}
            }
        }
        let beginnings = constants.beginnings.values_mut();
        beginnings.for_each(|beginnings| beginnings.sort_unstable());
        let mut first_loaded: HashMap<u32, u64> = HashMap::new();
        for module in constants.modules.values().flatten() {
            let first = first_loaded.entry(module.image).or_insert(u64::MAX);
            *first = module.from.min(*first);
        }
        constants.images.retain(|number, image| {
            let first = first_loaded.get(number);
            first.is_some_and(|first| !is_changed_after(image, trace.clocks().realtime_ns(*first)))
        });
        constants
    }

    /// The text at an address; none if it is not a constant.
    pub fn text(&self, address: u64, at: ProcessMoment) -> Option<&[u8]> {
        let ProcessMoment { process, clock } = at;
        let beginnings = self.beginnings.get(&process)?;
        let number = beginnings.partition_point(|beginning| *beginning <= clock);
        let beginning = beginnings.get(number.checked_sub(1)?)?;
        let modules = self.modules.get(&process)?.iter();
        let loaded = modules.filter(|module| (*beginning..=clock).contains(&module.from));
        let mut there = loaded.filter_map(|module| {
            let image = self.images.get(&module.image)?;
            let address = address.checked_sub(module.base)?;
            covers(image, address).then_some((module, image, address))
        });
        let (module, image, address) = there.next()?;
        // If two files are at one place, one was removed unseen.
        let is_alone = there.next().is_none();
        (is_alone && !module.is_unloaded).then(|| text_in(image, address))?
    }
}

/// The file may have other constants than when it was loaded: a build-id stays where a file is edited.
fn is_changed_after(image: &Image, realtime_ns: u64) -> bool {
    let Ok(facts) = std::fs::metadata(image.path()) else {
        return true;
    };
    let changed = i128::from(facts.st_ctime()) * 1_000_000_000 + i128::from(facts.st_ctime_nsec());
    changed > i128::from(realtime_ns)
}

fn covers(image: &Image, address: u64) -> bool {
    let mut segments = image.segments().iter();
    segments.any(|segment| {
        let inside = address.checked_sub(segment.address);
        inside.is_some_and(|inside| inside < segment.memory_size)
    })
}

fn text_in(image: &Image, address: u64) -> Option<&[u8]> {
    let segment = image.segments().iter().find(|segment| {
        address
            .checked_sub(segment.address)
            .is_some_and(|inside| inside < segment.file_size)
    })?;
    if segment.writable || !segment.readable {
        return None;
    }
    let left = segment.file_size - (address - segment.address);
    let bytes = image.bytes(address, usize::try_from(left).ok()?.min(LONGEST))?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::{Session, Writer};
    use std::path::Path;
    use std::time::SystemTime;

    const LITERAL: &[u8] = b"a literal of this test\0";
    const BASE: u64 = 0x5555_0000_0000;
    const BEGIN: u64 = 1 << 32;

    /// This test's own program, and the link-time address of its literal.
    fn own_image() -> (Image, u64) {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let mut places = image.segments().iter().filter(|one| !one.writable);
        let address = places.find_map(|segment| {
            let bytes = image.bytes(segment.address, segment.file_size as usize)?;
            let place = bytes.windows(LITERAL.len()).position(|at| at == LITERAL)?;
            Some(segment.address + place as u64)
        });
        (image, address.unwrap())
    }

    fn process(process: u32, parent: u32, counter: u64) -> Note {
        Note::Process {
            process,
            parent,
            counter,
            name: "made".into(),
            executable: "made".into(),
            arguments: Vec::new(),
        }
    }

    fn module(process: u32, counter: u64) -> Note {
        Note::Module {
            process,
            image: 7,
            counter,
            base: BASE,
            path: "made".into(),
        }
    }

    /// The constants of a trace with these notes, which began then.
    fn constants(notes: &[Note], path: &Path, identity: String, begin: SystemTime) -> Constants {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(directory.path(), Session::default()).unwrap();
        let since = begin.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let clock = Note::Clock {
            counter: BEGIN,
            monotonic_ns: BEGIN,
            realtime_ns: since.as_nanos() as u64,
        };
        let image = Note::Image {
            image: 7,
            path: path.to_str().unwrap().into(),
            identity,
        };
        for note in [&clock, &image].into_iter().chain(notes) {
            writer.note(note).unwrap();
        }
        writer.sync_metadata().unwrap();
        drop(writer);
        Constants::new(&Trace::open(directory.path()).unwrap())
    }

    #[test]
    fn only_constants_of_files_that_are_loaded_are_texts() {
        let (image, address) = own_image();
        let data = image.segments().iter().find(|one| one.writable).unwrap();
        let unload = Note::Unload {
            process: 22,
            image: 7,
            counter: BEGIN + 50,
            base: BASE,
        };
        let notes = [
            process(20, 1, BEGIN),
            module(20, BEGIN + 10),
            process(21, 20, BEGIN + 20),
            // The process runs another program, which has not loaded the file.
            process(20, 1, BEGIN + 70),
            process(22, 1, BEGIN),
            module(22, BEGIN + 10),
            unload,
            process(24, 1, BEGIN),
            module(24, BEGIN + 10),
            module(24, BEGIN + 30),
        ];
        let now = SystemTime::now();
        let known = constants(&notes, image.path(), image.identity(), now);
        let text = |process, after: u64| {
            let at = ProcessMoment {
                process,
                clock: BEGIN + after,
            };
            known.text(BASE + address, at)
        };
        let literal = LITERAL.strip_suffix(b"\0");
        assert_eq!(text(20, 5), None, "not loaded yet");
        assert_eq!(text(20, 10), literal);
        assert_eq!(text(20, 70), None, "executed another program");
        assert_eq!(
            text(21, 60),
            None,
            "its parent's, perhaps later than the fork"
        );
        assert_eq!(text(22, 20), None, "unloaded before the trace says so");
        assert_eq!(text(23, 65), None, "unknown");
        assert_eq!(text(24, 20), literal, "alone");
        assert_eq!(text(24, 30), None, "two at one place");
        let at = ProcessMoment {
            process: 20,
            clock: BEGIN + 10,
        };
        assert_eq!(
            known.text(BASE + address + 2, at),
            Some(&literal.unwrap()[2..])
        );
        for elsewhere in [0, address, BASE + data.address, BASE + (1 << 40), u64::MAX] {
            assert_eq!(known.text(elsewhere, at), None, "{elsewhere:#x}");
        }
        let other = constants(&notes, image.path(), "0".into(), now);
        assert_eq!(other.text(BASE + address, at), None, "another file");
        let built = std::fs::metadata(image.path()).unwrap().modified().unwrap();
        let before = built - std::time::Duration::from_secs(60);
        let edited = constants(&notes, image.path(), image.identity(), before);
        assert_eq!(edited.text(BASE + address, at), None, "written to since");
    }
}
