//! Messages on standard error.

use std::io::Write;

use nopal_analysis::names::printable;
use nopal_symbols::without_numbers;

/// Writes a line on standard error. A failure to write changes nothing.
pub fn write(line: &str) {
    let _ = writeln!(
        anstream::stderr(),
        "nopal: {}",
        printable(&without_numbers(line))
    );
}
