//! Markers of a process: chosen by name, made known to the trace, filled in, and switched on by changes to the text.

use crate::change::Change;
use crate::choose::Loaded;
use crate::notes::note;
use crate::traced::{Traced, Workshop};
use anyhow::{Context, Result, bail, ensure};
use nopal_abi::EVENT_DEFINED;
use nopal_agent::IMAGE_MARK;
use nopal_plan::Site;
use nopal_symbols::{MARKER_BYTES, MARKER_NOP, Marker, Selection, State, Switch, nearest};
use nopal_trace::{Field, FieldKind, Note, event_number};
use std::collections::{BTreeSet, HashMap};

/// The markers that the user asked for.
pub struct Wanted(Option<Selection>);

impl Wanted {
    /// No patterns choose none.
    pub fn new(patterns: &[String]) -> Result<Wanted> {
        let selection = match patterns {
            [] => None,
            _ => Some(Selection::new(patterns, &[])?),
        };
        Ok(Wanted(selection))
    }

    fn chooses(&self, name: &str, module: &Loaded) -> bool {
        let file_name = module.name.rsplit('/').next().unwrap_or(&module.name);
        let selection = self.0.as_ref();
        selection.is_some_and(|selection| selection.chooses(&[name], file_name))
    }

    /// What switches the markers of a module on, by address.
    pub fn changes(&self, module: &Loaded) -> Vec<Change> {
        if self.0.is_none() {
            return Vec::new();
        }
        let (markers, _) = module.file.image.markers();
        let chosen = markers
            .iter()
            .filter(|marker| self.chooses(&marker.name, module));
        let mut changes: Vec<Change> = chosen
            .flat_map(|marker| switched_on(module, marker))
            .collect();
        // The same place is several markers' where a template has several types.
        changes.sort_unstable_by_key(|change| change.address);
        changes.dedup_by_key(|change| change.address);
        changes
    }

    /// The words of data that are changed for it.
    pub fn words(&self, module: &Loaded) -> Vec<Change> {
        if self.0.is_none() {
            return Vec::new();
        }
        let (markers, _) = module.file.image.markers();
        let chosen = markers
            .iter()
            .filter(|marker| self.chooses(&marker.name, module));
        let states = chosen.flat_map(|marker| &marker.states);
        states
            .flat_map(|state| words(module.base, state, 0))
            .collect()
    }
}

/// What a marker calls, and what it calls for the tool.
fn words(base: u64, state: &State, stub: u64) -> [Change; 2] {
    let [at, idle] = [state.address, state.idle].map(|address| base.wrapping_add(address));
    [at, at + 8].map(|word| Change::of_word(word, idle, stub))
}

fn switched_on(module: &Loaded, marker: &Marker) -> impl Iterator<Item = Change> {
    marker.places.iter().filter_map(|place| {
        let off = match place.switch {
            Switch::Patched => MARKER_NOP,
            Switch::Tested => [0; MARKER_NOP.len()],
        };
        let [address, on] = [place.address, place.on].map(|at| module.base.wrapping_add(at));
        Change::of_marker(address, off, on).ok()
    })
}

/// Switches on those of `markers` that are among the displaced instructions of `site`, whose body runs at `body`.
pub fn switch_on_displaced(
    markers: &[Change],
    site: &Site,
    base: u64,
    body: u64,
    code: &mut [u8],
) -> Result<()> {
    let start = base.wrapping_add(site.address);
    let window = start..start + u64::from(site.window);
    let first = markers.partition_point(|marker| marker.address < window.start);
    let inside = markers[first..]
        .iter()
        .take_while(|marker| window.contains(&marker.address));
    for marker in inside {
        // The NOP may have prefixes before it, which went with it.
        let offset = (marker.address - start) as usize;
        let instruction = site.body.map.iter().rev();
        let mut instruction = instruction.filter(|(from, _)| usize::from(*from) <= offset);
        let done = instruction.next().is_some_and(|(from, to)| {
            let at = usize::from(*to) + offset - usize::from(*from);
            marker.make_in_body(code, at, body)
        });
        ensure!(
            done,
            "a marker at {:#x} was displaced wrongly",
            marker.address
        );
    }
    Ok(())
}

/// The numbers of markers in the trace, the same in every process.
#[derive(Default)]
pub struct Numbers {
    events: HashMap<(u32, usize), u32>,
    /// All that were found, chosen or not.
    names: BTreeSet<String>,
}

impl Numbers {
    pub fn something_is_chosen(&self, patterns: &[String]) -> Result<()> {
        if !self.events.is_empty() {
            return Ok(());
        }
        let wanted = patterns.join(" ");
        ensure!(
            !self.names.is_empty(),
            "no marker matches {wanted}: the program has none"
        );
        match nearest(self.names.iter().map(String::as_str), &wanted) {
            near if near.is_empty() => bail!("no marker matches {wanted}"),
            near => bail!(
                "no marker matches {wanted}; the nearest are {}",
                near.join(", ")
            ),
        }
    }
}

impl Traced {
    /// Makes the chosen markers of a module ready to be switched on. The trace knows them when this returns.
    /// Gives the words that were changed for it.
    pub fn fill_in_markers(&self, module: &Loaded, workshop: &mut Workshop) -> Result<Vec<Change>> {
        let mut words = Vec::new();
        let wanted = &workshop.settings.markers;
        if wanted.0.is_none() {
            return Ok(words);
        }
        let (markers, bad) = module.file.image.markers();
        for marker in bad.iter().filter(|bad| wanted.chooses(&bad.name, module)) {
            workshop.warnings.push(format!(
                "marker {} at {}:{} not traced: {}",
                marker.name, marker.file, marker.line, marker.why
            ));
        }
        for (index, marker) in markers.iter().enumerate() {
            workshop.files.markers.names.insert(marker.name.clone());
            if wanted.chooses(&marker.name, module) {
                let event = number(module, index, marker, workshop)?;
                for state in &marker.states {
                    words.extend(self.fill_in(module.base, state, event, marker)?);
                }
            }
        }
        Ok(words)
    }

    /// Fills in a marker, and last what it calls: that is ours unless somebody in the program has it, who will call
    /// ours too.
    fn fill_in(
        &self,
        base: u64,
        state: &State,
        event: u32,
        marker: &Marker,
    ) -> Result<[Change; 2]> {
        let [at, idle] = [state.address, state.idle].map(|address| base.wrapping_add(address));
        let arena = self.places.first_arena();
        let stub = arena.context("no generated code for it to call")? + IMAGE_MARK;
        let mut bytes = [0; MARKER_BYTES as usize];
        self.memory.read(at, &mut bytes)?;
        let [call, record, ..] = bytes.as_chunks::<8>().0 else {
            bail!("a marker is too short");
        };
        for (offset, word) in [(8, stub), (16, event.into()), (24, shape(marker))] {
            self.memory.write(at + offset, &word.to_le_bytes())?;
        }
        let nobody = [[0; 8], idle.to_le_bytes(), *record];
        if nobody.contains(call) {
            self.memory.write(at, &stub.to_le_bytes())?;
        }
        Ok(words(base, state, stub))
    }
}

fn number(module: &Loaded, index: usize, marker: &Marker, workshop: &mut Workshop) -> Result<u32> {
    let events = &mut workshop.files.markers.events;
    let key = (module.file.index, index);
    if let Some(event) = events.get(&key) {
        return Ok(*event);
    }
    let fields: Vec<Field> = marker.fields.iter().map(field).collect();
    let event = event_number(EVENT_DEFINED + events.len() as u32, &fields);
    events.insert(key, event);
    note(
        workshop.writer,
        &Note::Marker {
            event,
            image: module.file.index,
            name: marker.name.clone(),
            format: marker.format.clone(),
            fields,
            file: marker.file.clone(),
            line: marker.line,
        },
    )?;
    Ok(event)
}

fn field(field: &nopal_symbols::Field) -> Field {
    use nopal_symbols::FieldKind as Kind;
    let kind = match field.kind {
        Kind::Signed(bits) => FieldKind::Signed(bits),
        Kind::Unsigned(bits) => FieldKind::Unsigned(bits),
        Kind::Octal(bits) => FieldKind::Octal(bits),
        Kind::Hexadecimal(bits) => FieldKind::Hexadecimal(bits),
        Kind::Character => FieldKind::Character,
        Kind::Double => FieldKind::Double,
        Kind::Pointer => FieldKind::Hexadecimal(64),
        Kind::String | Kind::Text => FieldKind::Text,
        Kind::Bytes => FieldKind::Bytes,
    };
    Field {
        name: field.name.clone(),
        kind,
        labels: field.labels.clone(),
    }
}

/// What `runtime/core/mark.h` has in `shape`.
fn shape(marker: &Marker) -> u64 {
    use nopal_symbols::FieldKind;
    const VALUES: usize = 8;
    const STRING: u64 = 1;
    const BYTES: u64 = 2;
    let count = marker.fields.len() as u64;
    let fields = marker.fields.iter().enumerate();
    fields.fold(count, |shape, (index, field)| {
        let kind = match field.kind {
            FieldKind::String => STRING,
            FieldKind::Text | FieldKind::Bytes => BYTES,
            _ => 0,
        };
        shape | kind << (VALUES + 2 * index)
    })
}
