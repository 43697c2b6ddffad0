//! Aligned columns that fit a width.

use std::borrow::Cow;
use std::io::{self, Write};

use nopal_symbols::{is_harmless, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of cells under a heading. If the table is too wide, left-aligned columns become narrower, the last one first,
/// down to a width in which names can be told apart. If that is not enough, the columns of `give_way` are left out, and
/// then names become narrower still. A name loses its middle, so that both ends of it stay.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    give_way: &'static [&'static str],
}

const GAP: usize = 2;
/// A column of names is this wide before columns are left out, and no column is made narrower than the other.
const LEGIBLE: usize = 28;
const NARROWEST: usize = 12;

impl Table {
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
            give_way: &[],
        }
    }

    /// Names the columns that are left out if there is no room for all, the least important first.
    pub fn give_way(mut self, columns: &'static [&'static str]) -> Table {
        self.give_way = columns;
        self
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
                let Some(width) = width else {
                    continue;
                };
                let cell = cut_middle(cell, width);
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

    /// The width of each column that is shown.
    fn widths(&self, available: usize) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> = self
            .columns
            .iter()
            .map(|(name, _)| Some(display_width(name)))
            .collect();
        // No address is cut.
        let mut least: Vec<usize> = widths.iter().flatten().copied().collect();
        for row in &self.rows {
            for ((width, least), cell) in widths.iter_mut().zip(&mut least).zip(row) {
                *width = (*width).max(Some(display_width(cell)));
                *least = (*least).max(display_width(address(cell)) + 1);
            }
        }
        for name in self.give_way {
            let mut legible = widths.clone();
            self.narrow(&mut legible, &least, available, LEGIBLE);
            if total(&legible) <= available {
                break;
            }
            if let Some(at) = self.columns.iter().position(|(column, _)| column == name) {
                widths[at] = None;
            }
        }
        self.narrow(&mut widths, &least, available, NARROWEST);
        widths
    }

    /// Makes columns of names narrower, down to `narrowest`, until all fit.
    fn narrow(
        &self,
        widths: &mut [Option<usize>],
        least: &[usize],
        available: usize,
        narrowest: usize,
    ) {
        for at in (0..widths.len()).rev() {
            let too_wide = total(widths).saturating_sub(available);
            let least = least[at].max(narrowest);
            if let Some(width) = &mut widths[at]
                && self.columns[at].1 == Align::Left
                && *width > least
            {
                *width = width.saturating_sub(too_wide).max(least);
            }
        }
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
}

fn display_width(text: &str) -> usize {
    text.chars().count()
}

/// A text that is too wide without its middle: `a_functio…ong_name`. The address at the end of a name is not cut, since a
/// part of it would be another address: `redis-s…+0x64da0`.
pub fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    let length = display_width(text);
    if length <= width {
        return Cow::Borrowed(text);
    }
    let kept = width.saturating_sub(1);
    let tail = match display_width(address(text)) {
        address if address <= kept => address.max(kept / 2),
        _ => kept / 2,
    };
    let head = text.chars().take(kept - tail);
    let tail = text.chars().skip(length - tail);
    Cow::Owned(head.chain(['…']).chain(tail).collect())
}

/// `+0x64da0` at the end of a name, or nothing.
fn address(name: &str) -> &str {
    let begin = name.rfind("+0x").unwrap_or(name.len());
    let digits = name[begin..].bytes().skip(3);
    match digits.clone().count() > 0 && digits.clone().all(|digit| digit.is_ascii_hexdigit()) {
        true => &name[begin..],
        false => "",
    }
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

    #[test]
    fn columns_go_by_importance_before_names_are_illegible() {
        let names = [("function", Align::Left), ("module", Align::Left)];
        let numbers = ["total", "min", "max"].map(|name| (name, Align::Right));
        let mut table =
            Table::new(&[numbers.as_slice(), &names].concat()).give_way(&["min", "max", "module"]);
        let cells = [
            "1.00 ms",
            "1.00 ms",
            "1.00 ms",
            "a_function_with_a_rather_long_name",
            "a.out",
        ];
        table.row(cells.map(str::to_owned).into());
        let at = |width| {
            let mut out = Vec::new();
            table.write(&mut out, width).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(at(80).contains("a_function_with_a_rather_long_name  a.out"));
        assert_eq!(
            at(56),
            "  total      max  function                        module
1.00 ms  1.00 ms  a_function_with…ther_long_name  a.out
"
        );
        assert_eq!(
            at(30),
            "  total  function
1.00 ms  a_function…_long_name
"
        );
    }

    #[test]
    fn no_address_is_cut() {
        assert_eq!(cut_middle("redis-check-rdb+0x64da0", 14), "redis…+0x64da0");
        assert_eq!(
            cut_middle("redis-check-rdb+0x64da0", 18),
            "redis-che…+0x64da0"
        );
        assert_eq!(cut_middle("a+0x12_and_more_text", 9), "a+0x…text");
        let mut table = Table::new(&[("function", Align::Left)]);
        table.row(vec!["a_rather_long_file+0x7f0123456789".into()]);
        let mut out = Vec::new();
        table.write(&mut out, 4).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "function\n…+0x7f0123456789\n"
        );
    }
}
