//! The functions of an ELF file. Everything in the file is checked and nothing is trusted.

mod calls;
mod cold;
mod compressed;
mod debug;
mod debuginfod;
mod demangle;
mod dynamic;
mod elf;
mod exports;
mod format;
mod functions;
mod hash;
mod image;
mod imports;
mod lines;
mod markers;
mod nearest;
mod path;
mod pointers;
mod printable;
mod probes;
mod prototypes;
mod selection;
mod short;
mod stamp;
mod table;
mod types;
mod unwind;
mod variables;

pub use calls::{calls, has_system_call};
pub use demangle::{demangle, demangle_as, without_parameters};
pub use exports::{Export, Exports};
pub use format::{Field, FieldKind};
pub use functions::{Function, Source};
pub use image::{Image, Kind, Segment};
pub use imports::{Import, Relocation};
pub use markers::{
    BadMarker, MARKER_BYTES, MARKER_NOP, Marker, MarkerSite, State, Switch, fields_of_marker,
};
pub use nearest::{nearest, or_nearest};
pub use path::VariablePath;
pub use printable::{is_harmless, printable, without_numbers};
pub use probes::{Argument, Probe};
pub use prototypes::{Held, Parameter, Prototype, Value, ValueKind};
pub use selection::{Glob, Selection};
pub use short::{endings, short, short_with_parameters};
pub use stamp::Stamp;
pub use types::VariableKind;
pub use unwind::{Cfa, CfaChange, UnwindEntry};
pub use variables::{Base, Variable};
