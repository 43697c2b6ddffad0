//! Pictures in the form in which they are sent.

use nopal_analysis::names::Names;

use crate::grid::{Grid, GridCell};

/// Bytes of a cell.
const CELL: usize = 8;

impl Grid {
    /// The rows, each with eight bytes a column: the function (4), the covered part of the column (1; 255 is all of it,
    /// and 0 only if there is none), the part that the function covers (1), and the calls that begin (2; 65,535 or more).
    pub fn packed(&self, names: &Names) -> Vec<u8> {
        let (rows, columns) = (self.depths.len(), self.columns());
        let mut bytes = vec![0; rows * columns * CELL];
        for column in 0..columns {
            let width = (self.bounds[column + 1] - self.bounds[column]).max(1) as f64;
            for (row, cell) in self.column(column).iter().enumerate() {
                let at = (row * columns + column) * CELL;
                if cell.covered > 0.0 || cell.calls > 0.0 {
                    bytes[at..at + CELL].copy_from_slice(&packed(names, cell, width));
                }
            }
        }
        bytes
    }

    /// The number of markers in each column (4 bytes).
    pub fn packed_markers(&self) -> impl Iterator<Item = [u8; 4]> {
        let markers = self.markers.iter();
        markers.map(|markers| up(*markers).to_le_bytes())
    }
}

fn packed(names: &Names, cell: &GridCell, width: f64) -> [u8; CELL] {
    let part = |ticks: f64| match ticks > 0.0 {
        true => (ticks / width * 255.0).clamp(1.0, 255.0) as u8,
        false => 0,
    };
    let mut bytes = [0; CELL];
    bytes[..4].copy_from_slice(&names.number(cell.site).to_le_bytes());
    bytes[4] = part(cell.covered);
    bytes[5] = part(cell.most);
    bytes[6..].copy_from_slice(&(up(cell.calls).min(65535) as u16).to_le_bytes());
    bytes
}

/// Rounded up.
fn up(number: f64) -> u32 {
    let whole = number as u32;
    whole.saturating_add(u32::from(f64::from(whole) < number))
}
