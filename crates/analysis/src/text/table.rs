//! Aligned columns that fit a width.

use std::io::{self, Write};

use nopal_symbols::{is_harmless, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of cells under a heading. When the table is too wide, its last left-aligned columns give way first; a name
/// loses its middle, so that both ends of it stay.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

const GAP: usize = 2;
/// A column is not made narrower than this.
const NARROWEST: usize = 12;

impl Table {
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        let shown = |cell: String| match cell.chars().all(is_harmless) {
            true => cell,
            false => printable(&cell).into_owned(),
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    pub fn write(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let widths = self.widths(width);
        let heading: Vec<String> = self
            .columns
            .iter()
            .map(|(name, _)| name.to_string())
            .collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), &(_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let cell = shortened(cell, width);
                let padding = width - display_width(&cell);
                if align == Align::Right {
                    line.extend(std::iter::repeat_n(' ', padding));
                }
                line.push_str(&cell);
                if align == Align::Left {
                    line.extend(std::iter::repeat_n(' ', padding));
                }
                line.extend([' '; GAP]);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn widths(&self, available: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .map(|(name, _)| display_width(name))
            .collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(display_width(cell));
            }
        }
        let mut total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        for (width, (name, align)) in widths.iter_mut().zip(&self.columns).rev() {
            let least = NARROWEST.max(display_width(name));
            if *align == Align::Left && total > available && *width > least {
                let narrower = least.max(width.saturating_sub(total - available));
                total -= *width - narrower;
                *width = narrower;
            }
        }
        widths
    }
}

fn display_width(text: &str) -> usize {
    text.chars().count()
}

fn shortened(text: &str, width: usize) -> String {
    let length = display_width(text);
    if length <= width {
        return text.to_string();
    }
    let kept = width.saturating_sub(1);
    let head = kept.div_ceil(2);
    text.chars()
        .take(head)
        .chain(['…'])
        .chain(text.chars().skip(length - (kept - head)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(width: usize) -> String {
        let mut table = Table::new(&[
            ("calls", Align::Right),
            ("function", Align::Left),
            ("module", Align::Left),
        ]);
        table.row(vec!["1".into(), "main".into(), "a.out".into()]);
        table.row(vec![
            "123456".into(),
            "a_function_with_a_long_name".into(),
            "libsomething.so.6".into(),
        ]);
        let mut out = Vec::new();
        table.write(&mut out, width).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned() {
        let expected = " calls  function                     module
     1  main                         a.out
123456  a_function_with_a_long_name  libsomething.so.6
";
        assert_eq!(written(80), expected);
    }

    #[test]
    fn wide_columns_lose_their_middle() {
        let expected = " calls  function            module
     1  main                a.out
123456  a_functio…ong_name  libsom….so.6
";
        assert_eq!(written(40), expected);
    }
}
