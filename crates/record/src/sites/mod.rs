//! The traced sites in the files of a process: functions, markers, probes.

pub mod blocks;
pub mod catalog;
pub mod choose;
pub mod chosen;
pub mod expected;
pub mod files;
pub mod fitting;
pub mod functions;
pub mod generate;
pub mod go;
pub mod hooks;
pub mod mark;
pub mod markers;
pub mod modules;
pub mod probes;
pub mod program;
pub mod signs;
pub mod spots;
pub mod statics;
pub mod values;
pub mod writable_text;
