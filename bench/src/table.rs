//! The table of results, each figure beside its bound.

use crate::samples::Samples;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(limit) => value <= limit,
            Bound::AtLeast(limit) => value >= limit,
            Bound::Exactly(limit) => value == limit,
        }
    }

    fn sign(self) -> (&'static str, f64) {
        match self {
            Bound::AtMost(limit) => ("≤", limit),
            Bound::AtLeast(limit) => ("≥", limit),
            Bound::Exactly(limit) => ("=", limit),
        }
    }
}

#[derive(Debug)]
pub struct Row {
    what: String,
    unit: &'static str,
    samples: Samples,
    bound: Option<Bound>,
    note: String,
}

impl Row {
    pub fn new(what: impl Into<String>, unit: &'static str, samples: Samples) -> Row {
        Row {
            what: what.into(),
            unit,
            samples,
            bound: None,
            note: String::new(),
        }
    }

    pub fn once(what: impl Into<String>, unit: &'static str, value: f64) -> Row {
        Row::new(what, unit, Samples::from_iter([value]))
    }

    pub fn bound(mut self, bound: Bound) -> Row {
        self.bound = Some(bound);
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    /// None: the row has no bound.
    pub fn holds(&self) -> Option<bool> {
        self.bound.map(|bound| bound.holds(self.samples.median()))
    }

    fn with_unit(&self, value: f64) -> String {
        if self.unit.is_empty() {
            number(value)
        } else {
            format!("{} {}", number(value), self.unit)
        }
    }

    /// The cells of the row, in the order of `HEAD`.
    pub fn cells(&self) -> [String; 6] {
        if self.samples.values().is_empty() {
            let [none, no_bound, no_verdict] = ["-", "", ""].map(str::to_owned);
            // The reason takes the place of the figures, since not all tables have notes.
            let why = self.note.clone();
            return [
                self.what.clone(),
                none,
                why,
                no_bound,
                no_verdict,
                String::new(),
            ];
        }
        let spread = match self.samples.values().len() {
            1 => String::new(),
            _ => format!(
                "{} to {}",
                number(self.samples.lowest()),
                number(self.samples.highest())
            ),
        };
        let bound = self.bound.map_or(String::new(), |bound| {
            let (sign, limit) = bound.sign();
            format!("{sign} {}", self.with_unit(limit))
        });
        let verdict = match self.holds() {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "",
        };
        let measured = self.with_unit(self.samples.median());
        [
            self.what.clone(),
            measured,
            spread,
            bound,
            verdict.into(),
            self.note.clone(),
        ]
    }

    pub fn json(&self) -> Value {
        let bound = self
            .bound
            .map(|bound| json!({ "sign": bound.sign().0, "limit": bound.sign().1 }));
        json!({
            "what": self.what, "unit": self.unit, "median": self.samples.median(), "lowest": self.samples.lowest(),
            "highest": self.samples.highest(), "rounds": self.samples.values(), "bound": bound, "holds": self.holds(),
            "note": self.note,
        })
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Side {
    Left,
    Right,
}

pub const HEAD: [(&str, Side); 6] = [
    ("what", Side::Left),
    ("median", Side::Right),
    ("rounds", Side::Right),
    ("bound", Side::Right),
    ("verdict", Side::Left),
    ("of which", Side::Left),
];

pub fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    rows.iter().map(|row| row.cells().to_vec()).collect()
}

pub fn markdown(head: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let rule = |(_, side): &(_, Side)| match side {
        Side::Left => "---",
        Side::Right => "---:",
    };
    let mut text = line(head.iter().map(|(name, _)| *name).collect());
    text += &line(head.iter().map(rule).collect());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// The table as text. Cells without a head are left out.
pub fn columns(head: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    let names: Vec<String> = head.iter().map(|(name, _)| (*name).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&names).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..head.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(head).zip(&widths);
        let padded = cells.map(|((cell, (_, side)), width)| match side {
            Side::Left => format!("{cell:width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        let padded: Vec<String> = padded.collect();
        text += padded.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A number with three significant digits.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let plain = format!("{value:.digits$}");
    let (sign, plain) = plain
        .strip_prefix('-')
        .map_or(("", plain.as_str()), |rest| ("-", rest));
    let (whole, fraction) = plain
        .split_once('.')
        .map_or((plain, ""), |(whole, fraction)| (whole, fraction));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.984, 1.25, 19.04, 130.4, 50_000_000.0, -1234.5, 5.0].map(number);
        assert_eq!(
            shown,
            ["0.98", "1.25", "19.0", "130", "50,000,000", "-1,234", "5"]
        );
    }

    #[test]
    fn a_figure_is_judged_by_its_median() {
        let row = Row::new("a", "ns", Samples::from_iter([1.0, 2.0, 9.0]));
        assert_eq!(row.holds(), None);
        assert_eq!(row.bound(Bound::AtMost(2.0)).holds(), Some(true));
        let row = Row::once("b", "", 3.0).bound(Bound::AtLeast(4.0));
        assert_eq!(row.holds(), Some(false));
        assert_eq!(row.cells()[3..5], ["≥ 4", "FAILS"]);
    }

    #[test]
    fn nothing_measured_holds_no_bound() {
        let row = Row::new("a", "", Samples::default()).bound(Bound::AtMost(1.0));
        assert_eq!(row.holds(), Some(false));
    }
}
