//! Markers of a process: chosen by name, made known to the trace, filled in, and switched on by changes to the text.

use crate::collecting::drain::Shared;
use crate::collecting::notes::note;
use crate::patch::change::Change;
use crate::sites::choose::Loaded;
use crate::sites::files::Files;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, bail, ensure};
use nopal_agent::IMAGE_MARK;
use nopal_plan::Site;
use nopal_symbols::{MARKER_BYTES, MARKER_NOP, Marker, Selection, State, Switch};
use nopal_trace::{Field, FieldKind, Note, event_number};
use std::collections::HashMap;

/// The markers that the user asked for: whether those that a pattern means are on. The last that means a marker
/// decides.
///
/// Each with whether its pattern has a colon: only such a one means static probes.
pub struct Wanted(Vec<(Selection, bool, bool)>);

impl Wanted {
    pub fn new<'a>(patterns: impl IntoIterator<Item = (&'a str, bool)>) -> Result<Wanted> {
        let rules = patterns.into_iter().map(|(pattern, on)| {
            let selection = Selection::new(&[pattern.to_owned()], &[])?;
            Ok((selection, on, pattern.contains(':')))
        });
        Ok(Wanted(rules.collect::<Result<_>>()?))
    }

    /// Whether it chooses the marker `name` of a module.
    pub fn chooses(&self, name: &str, module: &Loaded) -> bool {
        self.chooses_in(name, module.file_name())
    }

    /// The same of a file, by its name.
    pub fn chooses_in(&self, name: &str, file_name: &str) -> bool {
        let mut rules = self.0.iter().rev();
        let is_static = name.contains(':');
        let last = rules.find(|(selection, _, means_static)| {
            (*means_static || !is_static) && selection.chooses(&[name], file_name)
        });
        last.is_some_and(|(_, on, _)| *on)
    }

    /// Whether a pattern may mean static probes, whose names have a colon.
    pub fn may_choose_static(&self) -> bool {
        self.0.iter().any(|(_, on, is_static)| *on && *is_static)
    }

    fn chooses_none(&self) -> bool {
        !self.0.iter().any(|(_, on, _)| *on)
    }

    /// The changes that switch on the markers of a module, by address.
    pub fn changes(&self, module: &Loaded) -> Vec<Change> {
        let chosen = self.chosen(module);
        let places = chosen.iter().flat_map(|marker| switched_on(module, marker));
        let mut changes: Vec<Change> = places.collect();
        // The same place is several markers' where a template has several types.
        changes.sort_unstable_by_key(|change| change.address);
        changes.dedup_by_key(|change| change.address);
        changes
    }

    /// The words of data that are changed for it: to the address `stub`.
    pub fn words(&self, module: &Loaded, stub: u64) -> Vec<Change> {
        let chosen = self.chosen(module);
        let states = chosen.iter().flat_map(|marker| &marker.states);
        states
            .flat_map(|state| words(module.base, state, stub))
            .collect()
    }

    fn chosen(&self, module: &Loaded) -> Vec<Marker> {
        if self.chooses_none() {
            return Vec::new();
        }
        let (mut markers, _) = module.file.image.markers();
        markers.retain(|marker| self.chooses(&marker.name, module));
        markers
    }
}

/// The function that a marker calls, and the tool's function.
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
        let at = place_in_body(site, base, marker.address);
        let done = at.is_some_and(|at| marker.make_in_body(code, at, body));
        ensure!(
            done,
            "a marker at {:#x} was displaced wrongly",
            marker.address
        );
    }
    Ok(())
}

/// The offset, in the displaced instructions of a site loaded at `base`, of the marker's NOP that stood at `address`.
pub fn place_in_body(site: &Site, base: u64, address: u64) -> Option<usize> {
    let offset = usize::try_from(address.checked_sub(base.wrapping_add(site.address))?).ok()?;
    // The NOP may have prefixes before it, which went with it.
    let mut instructions = site.body.map().rev();
    let (from, to) = instructions.find(|(from, _)| usize::from(*from) <= offset)?;
    Some(usize::from(to) + offset - usize::from(from))
}

/// The numbers of markers in the trace, the same in every process.
pub type Numbers = HashMap<(u32, usize), u32>;

impl Tracee {
    /// Makes the trace know the chosen markers of a module, and tells of those that cannot be used. Returns the words
    /// that change when the markers are filled in.
    pub fn number_markers(
        &self,
        module: &Loaded,
        context: &mut PatchContext,
    ) -> Result<Vec<Change>> {
        let wanted = &context.settings.markers;
        if wanted.chooses_none() {
            return Ok(Vec::new());
        }
        let (markers, bad) = module.file.image.markers();
        for marker in bad.iter().filter(|bad| wanted.chooses(&bad.name, module)) {
            context.warnings.push(format!(
                "marker {} at {}:{} not traced: {}",
                marker.name, marker.file, marker.line, marker.why
            ));
        }
        for (index, marker) in markers.iter().enumerate() {
            if wanted.chooses(&marker.name, module) {
                number(module, index, marker, &mut context.files, &context.shared)?;
            }
        }
        Ok(wanted.words(module, self.marker_stub()?))
    }

    /// Makes the code of chosen markers record, and that of others not. Nothing may run it meanwhile. Only those are
    /// touched whose words generated code tells how to undo.
    pub fn fill_in_markers(&self, module: &Loaded, context: &PatchContext) -> Result<()> {
        let known = |state: &State| {
            let word = module.base.wrapping_add(state.address);
            self.marker_words.contains(&word)
        };
        let (markers, _) = module.file.image.markers();
        for (index, marker) in markers.iter().enumerate() {
            let event = context.files.markers.get(&(module.file.index, index));
            let on = context.settings.markers.chooses(&marker.name, module);
            for state in marker.states.iter().filter(|state| known(state)) {
                match event.filter(|_| on) {
                    Some(event) => self.fill_in(module.base, state, *event, marker)?,
                    None => self.empty(module.base, state)?,
                }
            }
        }
        Ok(())
    }

    fn marker_stub(&self) -> Result<u64> {
        let arena = self.places.first_arena();
        Ok(arena.context("there is no generated code that it could call")? + IMAGE_MARK)
    }

    /// Fills in a marker, and last the function that it calls: ours, unless somebody in the program has set one, which
    /// will call ours too.
    fn fill_in(&self, base: u64, state: &State, event: u32, marker: &Marker) -> Result<()> {
        let [at, idle] = [state.address, state.idle].map(|address| base.wrapping_add(address));
        let stub = self.marker_stub()?;
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
        Ok(())
    }

    /// Other users of the marker in the program no longer call our code.
    fn empty(&self, base: u64, state: &State) -> Result<()> {
        let [at, idle] = [state.address, state.idle].map(|address| base.wrapping_add(address));
        if self.memory.read_word(at + 8)? == self.marker_stub()? {
            self.memory.write(at + 8, &idle.to_le_bytes())?;
        }
        Ok(())
    }
}

fn number(
    module: &Loaded,
    index: usize,
    marker: &Marker,
    files: &mut Files,
    shared: &Shared,
) -> Result<u32> {
    let key = (module.file.index, index);
    if let Some(event) = files.markers.get(&key) {
        return Ok(*event);
    }
    let fields: Vec<Field> = marker.fields.iter().map(field).collect();
    let event = event_number(files.next_event(), &fields);
    files.markers.insert(key, event);
    note(
        &shared.writer,
        &Note::Marker {
            event,
            image: module.file.index,
            name: marker.name.clone(),
            format: marker.format.clone(),
            fields,
            file: marker.file.clone(),
            line: marker.line,
            tracepoint: false,
        },
    )?;
    Ok(event)
}

pub fn field(field: &nopal_symbols::Field) -> Field {
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

/// The `shape` of a marker, as `runtime/core/mark.h` lays it out.
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
