//! A number of markers, and markers that do not have it.

use std::collections::HashMap;

use anyhow::{Result, bail};
use nopal_trace::{FieldKind, Markers, Value};

use crate::text::count;

/// A numeric field of all markers of a name, whose other fields may differ.
pub struct Field {
    marker: String,
    name: String,
    /// By event: the place of the field in its marker; `None` if the marker has no numeric field of this name.
    places: HashMap<u32, Option<usize>>,
    is_hexadecimal: bool,
}

/// Why a record lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Number,
    Reading,
}

/// The number of records without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    numbers: u64,
    readings: u64,
}

impl Field {
    pub fn new(markers: &Markers, marker: &str, name: &str) -> Result<Field> {
        let named = markers.iter().filter(|(_, one)| one.name == marker);
        let places: HashMap<u32, Option<usize>> = named
            .map(|(event, one)| {
                let mut fields = one.fields.iter();
                let at = fields.position(|field| field.name == name && !field.kind.has_length());
                (event, at)
            })
            .collect();
        let is_hexadecimal = places.iter().any(|(event, at)| {
            let field = at.and_then(|at| markers.get(*event)?.fields.get(at));
            field.is_some_and(|field| matches!(field.kind, FieldKind::Hexadecimal(_)))
        });
        if places.values().all(Option::is_none) {
            let numbers = numbers(marker, markers);
            bail!("the marker {marker} has no number named {name:?}; it has {numbers}");
        }
        Ok(Field {
            marker: marker.to_owned(),
            name: name.to_owned(),
            places,
            is_hexadecimal,
        })
    }

    pub fn marker(&self) -> &str {
        &self.marker
    }

    pub fn is_hexadecimal(&self) -> bool {
        self.is_hexadecimal
    }

    /// Whether an event is one of the markers.
    pub fn is_of(&self, event: u32) -> bool {
        self.places.contains_key(&event)
    }

    /// The number among a record's values; an error if it could not be read.
    pub fn number(&self, event: u32, values: &[Value]) -> std::result::Result<i64, Lack> {
        let place = self.places.get(&event).copied().flatten();
        match values.get(place.ok_or(Lack::Number)?) {
            Some(Value::Signed(value)) => Ok(*value),
            Some(Value::Unsigned(value)) => Ok(value.cast_signed()),
            Some(Value::Double(value)) if !value.is_nan() => Ok(value.round() as i64),
            Some(Value::Double(_) | Value::Bytes(..)) => Err(Lack::Number),
            Some(Value::Unread) | None => Err(Lack::Reading),
        }
    }

    /// The numbers of records left out, in lines.
    pub fn describe(&self, lacking: &Lacking) -> Vec<String> {
        let Field { marker, name, .. } = self;
        let mut notes = Vec::new();
        if lacking.numbers > 0 {
            let number = count(lacking.numbers);
            notes.push(format!(
                "left out: {number} of {marker} without a number named {name:?}"
            ));
        }
        if lacking.readings > 0 {
            let number = count(lacking.readings);
            notes.push(format!(
                "left out: {number} of {marker} whose {name:?} could not be read"
            ));
        }
        notes
    }
}

impl Lacking {
    pub fn count(&mut self, lack: Lack) {
        match lack {
            Lack::Number => self.numbers += 1,
            Lack::Reading => self.readings += 1,
        }
    }

    pub fn add(&mut self, other: &Lacking) {
        self.numbers += other.numbers;
        self.readings += other.readings;
    }
}

/// The fields that are numbers, of the markers called `name`.
pub fn numbers(name: &str, markers: &Markers) -> String {
    let named = markers.iter().filter(|(_, marker)| marker.name == name);
    let fields = named.flat_map(|(_, marker)| &marker.fields);
    let numbers = fields.filter(|field| !field.kind.has_length());
    let mut numbers: Vec<&str> = numbers.map(|field| field.name.as_str()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    match numbers.as_slice() {
        [] => "none".to_string(),
        numbers => numbers.join(", "),
    }
}
