//! The order of rows.

use crate::sort;
use std::cmp::Reverse;

use anyhow::{Result, bail};

/// A column by which rows can be ordered, and its values.
pub type Column<Row> = (&'static str, fn(&Row) -> u64);

/// Orders rows by a column, the largest value first. Rows with the same one stay in their order.
pub fn order<Row>(rows: &mut [Row], columns: &[Column<Row>], by: &str) -> Result<()> {
    let Some((_, value)) = columns.iter().find(|(name, _)| *name == by) else {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        bail!(
            "these rows cannot be ordered by {by}, but by {}",
            names.join(", ")
        );
    };
    sort::by_key(rows, |row| Reverse(value(row)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ordered_by_a_column_that_they_have() {
        let columns: [Column<(u64, char)>; 1] = [("calls", |row| row.0)];
        let mut rows = [(1, 'a'), (3, 'b'), (1, 'c'), (2, 'd')];
        order(&mut rows, &columns, "calls").unwrap();
        assert_eq!(rows, [(3, 'b'), (2, 'd'), (1, 'a'), (1, 'c')]);
        let refused = order(&mut rows, &columns, "min").unwrap_err().to_string();
        assert_eq!(refused, "these rows cannot be ordered by min, but by calls");
    }
}
