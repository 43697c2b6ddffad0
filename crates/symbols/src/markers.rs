//! Markers: the notes that `include/nopal.h` writes into a file about its tracepoints.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::NoteIterator;

use crate::Image;
use crate::elf::text;
use crate::format::{Field, Type, fields};

const OWNER: &[u8] = b"nopal";
const NOTE_ALIGN: u64 = 4;
const NOTE_PLACE: u32 = 1;
const NOTE_MARKER: u32 = 2;
const NOTE_PROBE: u32 = 3;
const PLACE_PATCHED: u32 = 1;
const PLACE_TESTED: u32 = 2;

/// The size of `struct nopal_marker`.
pub const MARKER_BYTES: u64 = 40;
/// The bytes at a place that is patched, while it is off.
pub const MARKER_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

const LONGEST_TEXT: usize = 4096;
/// More are not accepted.
const MOST_NOTES: usize = 1 << 20;

/// A marker of one name, format and line. A place of an inline function or a loop may be there several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub name: String,
    pub format: String,
    pub fields: Vec<Field>,
    pub file: String,
    pub line: u32,
    pub places: Vec<MarkerSite>,
    pub states: Vec<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerSite {
    pub address: u64,
    /// The code that runs when it is on.
    pub on: u64,
    pub switch: Switch,
}

/// A `struct nopal_marker`, and a return instruction to which its `call` may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub address: u64,
    pub idle: u64,
}

/// The way in which a place is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Its NOP becomes a jump.
    Patched,
    /// Its word, which is 0, becomes another one in its first byte.
    Tested,
}

/// A marker that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMarker {
    pub name: String,
    pub file: String,
    pub line: u32,
    pub why: String,
}

/// The position of a marker in the source, which its two notes have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    name: String,
    file: String,
    line: u32,
}

pub(crate) fn of(image: &Image) -> (Vec<Marker>, Vec<BadMarker>) {
    let mut found = Found::default();
    each_note(image, |kind, fields| {
        // An unreadable note has no name to report.
        let _ = match kind {
            NOTE_PLACE => found.place(fields),
            NOTE_MARKER => found.marker(fields),
            _ => Ok(()),
        };
    });
    found.join()
}

/// The addresses of the functions that the file declares as `NOPAL_PROBE`, in order.
pub(crate) fn general_probes(image: &Image) -> Vec<u64> {
    let mut found = BTreeSet::new();
    each_note(image, |kind, fields| {
        if kind == NOTE_PROBE
            && let Ok(address) = fields.target(0)
        {
            found.insert(address);
        }
    });
    found.into_iter().collect()
}

/// Passes on the kind and the fields of each of the file's notes.
fn each_note(image: &Image, mut take: impl FnMut(u32, &Fields)) {
    let elf = image.elf();
    let mut count = 0;
    let headers = elf
        .headers
        .iter()
        .filter(|header| header.kind == elf::PT_NOTE);
    for header in headers {
        let Some(bytes) = elf.range(header.offset, header.file_size) else {
            continue;
        };
        // mold puts all notes into one segment, which is aligned as the strictest of them.
        let Ok(mut notes) = NoteIterator::<FileHeader64<LE>>::new(LE, NOTE_ALIGN, bytes) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() != OWNER || count == MOST_NOTES {
                continue;
            }
            count += 1;
            let inside = note.desc().as_ptr() as usize - bytes.as_ptr() as usize;
            let fields = Fields {
                image,
                bytes: note.desc(),
                address: header.address.wrapping_add(inside as u64),
            };
            take(note.n_type(LE).0, &fields);
        }
    }
}

#[derive(Default)]
struct Found {
    places: HashMap<Key, Vec<MarkerSite>>,
    /// By key, format and types.
    markers: BTreeMap<(Key, String, [u32; 2]), Vec<State>>,
    bad: Vec<BadMarker>,
}

impl Found {
    fn place(&mut self, fields: &Fields) -> Result<()> {
        let key = fields.key(2)?;
        match fields.place() {
            Ok(place) => self.places.entry(key).or_default().push(place),
            Err(error) => self.refuse(&key, &error),
        }
        Ok(())
    }

    fn marker(&mut self, fields: &Fields) -> Result<()> {
        let key = Key {
            name: fields.text(2)?,
            file: fields.text(4)?,
            line: fields.word(5)?,
        };
        let types = [fields.word(6)?, fields.word(7)?];
        match fields.state() {
            Ok(state) => {
                let format = fields.text(3)?;
                self.markers
                    .entry((key, format, types))
                    .or_default()
                    .push(state);
            }
            Err(error) => self.refuse(&key, &error),
        }
        Ok(())
    }

    fn refuse(&mut self, key: &Key, error: &anyhow::Error) {
        self.bad.push(BadMarker {
            name: key.name.clone(),
            file: key.file.clone(),
            line: key.line,
            why: format!("{error:#}"),
        });
    }

    fn join(mut self) -> (Vec<Marker>, Vec<BadMarker>) {
        let mut markers = Vec::new();
        for ((key, format, types), states) in std::mem::take(&mut self.markers) {
            // The code at the place was dropped, and its note with it.
            let Some(places) = self.places.get(&key) else {
                continue;
            };
            let places = places.clone();
            match unpack(types).and_then(|types| fields(&format, &types)) {
                Ok(fields) => markers.push(Marker {
                    name: key.name,
                    format,
                    fields,
                    file: key.file,
                    line: key.line,
                    places,
                    states,
                }),
                Err(error) => self.refuse(&key, &error),
            }
        }
        (markers, self.bad)
    }
}

/// The fields of a marker by its format and the types of its values, as its note holds both.
pub fn fields_of_marker(format: &str, types: [u32; 2]) -> Result<Vec<Field>> {
    crate::format::fields(format, &unpack(types)?)
}

/// Four bits a value, as `NOPAL_TYPE_*`; none ends them.
fn unpack(types: [u32; 2]) -> Result<Vec<Type>> {
    let nibbles = (0..12).map(|index| types[index / 6] >> (index % 6 * 4) & 15);
    let mut unpacked = Vec::new();
    for nibble in nibbles.take_while(|nibble| *nibble != 0) {
        unpacked.push(match nibble {
            1..=4 => Type::Signed(8 << (nibble - 1)),
            5..=8 => Type::Unsigned(8 << (nibble - 5)),
            9 => Type::Double,
            10 => Type::Pointer,
            11 => Type::String,
            12 => Type::Bytes,
            _ => anyhow::bail!("a value has an unknown type"),
        });
    }
    Ok(unpacked)
}

/// The 32-bit fields of a note, at their address.
struct Fields<'a> {
    image: &'a Image,
    bytes: &'a [u8],
    address: u64,
}

impl Fields<'_> {
    fn word(&self, index: usize) -> Result<u32> {
        let bytes = self.bytes.get(index * 4..).and_then(<[u8]>::first_chunk);
        Ok(u32::from_le_bytes(*bytes.context("its note is cut short")?))
    }

    /// The address that a field holds, relative to itself.
    fn target(&self, index: usize) -> Result<u64> {
        let distance = i64::from(self.word(index)?.cast_signed());
        Ok(self
            .address
            .wrapping_add(index as u64 * 4)
            .wrapping_add_signed(distance))
    }

    fn text(&self, index: usize) -> Result<String> {
        let bytes = self.image.bytes_from(self.target(index)?);
        let bytes = bytes.context("its text is not in the file")?;
        let bytes = &bytes[..bytes.len().min(LONGEST_TEXT)];
        let end = bytes.iter().position(|byte| *byte == 0);
        Ok(text(&bytes[..end.context("its text does not end")?]))
    }

    fn key(&self, index: usize) -> Result<Key> {
        Ok(Key {
            name: self.text(index)?,
            file: self.text(index + 1)?,
            line: self.word(index + 2)?,
        })
    }

    fn place(&self) -> Result<MarkerSite> {
        let (address, on) = (self.target(0)?, self.target(1)?);
        let switch = match self.word(5)? {
            PLACE_PATCHED => Switch::Patched,
            PLACE_TESTED => Switch::Tested,
            _ => anyhow::bail!("its kind is unknown"),
        };
        match switch {
            Switch::Patched => {
                ensure!(
                    self.image.code().end(address).is_some()
                        && self.image.bytes(address, MARKER_NOP.len()) == Some(&MARKER_NOP)
                        && address % 8 <= 3,
                    "there is something else at its place, {address:#x}"
                );
                ensure!(
                    self.image.code().end(on).is_some(),
                    "its target at {on:#x} is not code"
                );
                let distance = on.wrapping_sub(address + 5).cast_signed();
                ensure!(i32::try_from(distance).is_ok(), "its code is out of reach");
            }
            Switch::Tested => ensure!(
                address.is_multiple_of(8) && self.is_data(address, 8),
                "its word at {address:#x} is not in memory that can be written"
            ),
        }
        Ok(MarkerSite {
            address,
            on,
            switch,
        })
    }

    fn state(&self) -> Result<State> {
        const RETURN: u8 = 0xc3;
        let (address, idle) = (self.target(0)?, self.target(1)?);
        ensure!(
            address.is_multiple_of(8) && self.is_data(address, MARKER_BYTES),
            "its state at {address:#x} is not in memory that can be written"
        );
        ensure!(
            self.image.code().end(idle).is_some() && self.image.bytes(idle, 1) == Some(&[RETURN]),
            "there is no return instruction at {idle:#x}"
        );
        Ok(State { address, idle })
    }

    fn is_data(&self, address: u64, bytes: u64) -> bool {
        self.image.segments().iter().any(|segment| {
            segment.writable
                && address
                    .checked_sub(segment.address)
                    .and_then(|inside| inside.checked_add(bytes))
                    .is_some_and(|end| end <= segment.memory_size)
        })
    }
}
