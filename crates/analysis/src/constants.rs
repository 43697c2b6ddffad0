//! Text at addresses of a process that its files have in parts which nobody writes to: literals of the source, names in
//! tables. Such text is the same whenever it is read; all other text may have changed since the call.

use std::collections::HashMap;

use nopal_symbols::Image;
use nopal_trace::{Note, Trace};

use crate::addresses::GENERATIONS;
use crate::images::Images;
use crate::names::printable;

/// Longer than this is no text.
const LONGEST: usize = 1 << 16;

/// A moment in a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMoment {
    pub process: u32,
    pub clock: u64,
}

/// A file that a process has loaded for a time.
struct Module {
    base: u64,
    image: u32,
    from: u64,
    until: u64,
}

/// When a process began, and from whom; or, later, another program in it.
struct Beginning {
    clock: u64,
    parent: u32,
}

/// The default knows none.
#[derive(Default)]
pub struct Constants {
    modules: HashMap<u32, Vec<Module>>,
    /// By process, in order of time.
    beginnings: HashMap<u32, Vec<Beginning>>,
    /// By number; those that are still what they were.
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
                    process,
                    parent,
                    counter,
                    ..
                } => {
                    let beginnings = constants.beginnings.entry(process).or_default();
                    beginnings.push(Beginning {
                        clock: counter,
                        parent,
                    });
                }
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
                        until: u64::MAX,
                    });
                }
                Note::Unload {
                    process,
                    image,
                    counter,
                    base,
                } => {
                    let modules = constants.modules.entry(process).or_default();
                    let of_it = modules.iter_mut().rev().find(|module| {
                        (module.base, module.image, module.until) == (base, image, u64::MAX)
                    });
                    match of_it {
                        Some(module) => module.until = counter,
                        // Its parent loaded it. From now on, it has modules of its own.
                        None => modules.push(Module {
                            base,
                            image,
                            from: counter,
                            until: counter,
                        }),
                    }
                }
                _ => {}
            }
        }
        constants
            .beginnings
            .values_mut()
            .for_each(|all| all.sort_by_key(|beginning| beginning.clock));
        constants
    }

    /// The text at an address; none where it is not a constant.
    pub fn text(&self, address: u64, at: ProcessMoment) -> Option<&[u8]> {
        let ProcessMoment {
            mut process,
            mut clock,
        } = at;
        for _ in 0..GENERATIONS {
            let beginnings = self.beginnings.get(&process)?;
            let number = beginnings.partition_point(|beginning| beginning.clock <= clock);
            let beginning = beginnings.get(number.checked_sub(1)?)?;
            let own = self.modules.get(&process).map_or(&[][..], Vec::as_slice);
            let mut own = own
                .iter()
                .filter(|module| (beginning.clock..=clock).contains(&module.from))
                .peekable();
            if own.peek().is_some() {
                let mut texts = own
                    .filter(|module| clock < module.until)
                    .filter_map(|module| {
                        let image = self.images.get(&module.image)?;
                        text_in(image, address.wrapping_sub(module.base))
                    });
                let text = texts.next()?;
                // Of two files at one place, one was removed unseen.
                return texts.next().is_none().then_some(text);
            }
            // A forked child has what its parent had.
            let is_forked = number == 1;
            if !is_forked {
                return None;
            }
            process = beginning.parent;
            clock = beginning.clock;
        }
        None
    }
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
    use nopal_trace::synthetic::clock;
    use nopal_trace::{Session, Writer};
    use std::path::Path;

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

    /// Of a trace with these notes.
    fn constants(notes: &[Note], path: &Path, identity: String) -> Constants {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(directory.path(), Session::default()).unwrap();
        let image = Note::Image {
            image: 7,
            path: path.to_str().unwrap().into(),
            identity,
        };
        for note in [&clock(BEGIN), &image].into_iter().chain(notes) {
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
            process: 20,
            image: 7,
            counter: BEGIN + 50,
            base: BASE,
        };
        let notes = [
            process(20, 1, BEGIN),
            module(20, BEGIN + 10),
            process(21, 20, BEGIN + 20),
            unload,
            process(22, 20, BEGIN + 60),
            // Another program, which has not loaded it.
            process(21, 20, BEGIN + 70),
        ];
        let known = constants(&notes, image.path(), image.identity());
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
        assert_eq!(text(20, 50), None, "not loaded any more");
        assert_eq!(text(21, 19), None, "not forked yet");
        assert_eq!(text(21, 60), literal, "its parent's at the fork");
        assert_eq!(text(21, 70), None, "executed another program");
        assert_eq!(text(22, 65), None, "its parent's at the fork");
        assert_eq!(text(23, 65), None, "unknown");
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
        let other = constants(&notes, image.path(), "0".into());
        assert_eq!(other.text(BASE + address, at), None, "another file");
    }
}
