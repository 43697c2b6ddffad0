use serde::{Deserialize, Serialize};

/// One value of a marker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    pub name: String,
    pub kind: FieldKind,
    /// Labels of some values of an integer.
    pub labels: Vec<(i64, String)>,
}

/// The form in which a value is shown. Integers have 8, 16, 32 or 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FieldKind {
    Signed(u8),
    Unsigned(u8),
    Octal(u8),
    Hexadecimal(u8),
    Character,
    Double,
    Text,
    Bytes,
    /// A bit for each of the fields before it, from bit 0 on: the field could not be read.
    Missing,
}

impl FieldKind {
    pub fn has_length(self) -> bool {
        matches!(self, FieldKind::Text | FieldKind::Bytes)
    }
}
