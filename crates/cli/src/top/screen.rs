//! The look of the table.

use nopal_analysis::text::{bound, bound_count, count, cut_middle, duration, several};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row as Cells, Table as Widget, TableState};

use super::table::{Order, Row, Table};

struct Column {
    name: &'static str,
    /// The key that orders by it.
    order: Option<Order>,
    width: u16,
    is_number: bool,
    cell: fn(&Row, bool) -> String,
}

const FUNCTION: Column = Column {
    name: "function",
    order: Some(Order::Name),
    width: 20,
    is_number: false,
    cell: |row, _| row.name.clone(),
};

/// Numbers stand before names. On a narrow screen the last columns are left out, except for the function.
const OTHERS: [Column; 7] = [
    number("calls/s", Order::CallsPerSecond, 11, |row, off| {
        match (row.sum.off_ns, off) {
            (Some(ns), false) => format!("off {}", duration(ns)),
            (_, true) => "off".to_owned(),
            (None, false) => count(row.calls_per_second as u64),
        }
    }),
    number("self %", Order::SelfShare, 7, |row, off| {
        match row.sum.counted && !off {
            true => "counted".to_owned(),
            false => percent(row, row.self_share, off),
        }
    }),
    number("total %", Order::TotalShare, 7, |row, off| {
        percent(row, row.total_share, off)
    }),
    number("calls", Order::Calls, 13, |row, _| {
        bound_count(row.sum.calls, row.sum.calls_are_least)
    }),
    number("self", Order::Own, 9, |row, _| {
        bound(row.sum.self_ns, row.sum.self_is_least)
    }),
    number("total", Order::Total, 9, |row, _| {
        bound(row.sum.total_ns, row.sum.total_is_least)
    }),
    Column {
        name: "module",
        order: None,
        width: 18,
        is_number: false,
        cell: |row, _| row.module.clone(),
    },
];

const KEYS: &str = "q quit  ↑↓ choose  space off/on  / filter  order: c calls/s  s self %  t total %  C calls  S self  T total  n name";
/// The same for a narrower screen: each letter begins the name of a column.
const KEYS_IN_SHORT: &str = "q quit  ↑↓ choose  space off/on  / filter  order: c s t C S T n";

const fn number(
    name: &'static str,
    order: Order,
    width: u16,
    cell: fn(&Row, bool) -> String,
) -> Column {
    Column {
        name,
        order: Some(order),
        width,
        is_number: true,
        cell,
    }
}

/// Where calls are not recorded there is no value.
fn percent(row: &Row, share: f64, off: bool) -> String {
    let sign = if row.shares_are_least { "≥ " } else { "" };
    match off || row.sum.is_untimed() {
        true => String::new(),
        false => format!("{sign}{:.1}", share * 100.0),
    }
}

/// The columns that fit.
fn columns(width: u16) -> Vec<&'static Column> {
    let mut left = width.saturating_sub(FUNCTION.width);
    let mut columns = Vec::new();
    for column in &OTHERS {
        match left.checked_sub(column.width + 1) {
            Some(room) => left = room,
            None => break,
        }
        columns.push(column);
    }
    let names = columns.iter().position(|column| !column.is_number);
    columns.insert(names.unwrap_or(columns.len()), &FUNCTION);
    columns
}

pub fn draw(table: &mut Table, frame: &mut Frame) {
    let [title, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    table.page = usize::from(body.height.saturating_sub(1)).max(1);
    frame.render_widget(Line::from(summary(table)).style(Modifier::BOLD), title);
    let columns = columns(body.width);
    let numbers = columns.iter().filter(|column| column.name != FUNCTION.name);
    let others: u16 = numbers.map(|column| column.width + 1).sum();
    let room = |column: &Column| match column.name == FUNCTION.name {
        true => usize::from(body.width.saturating_sub(others)),
        false => usize::from(column.width),
    };
    let row = |row: &Row| {
        let off = table.is_off(row.site);
        let style = if off || row.sum.is_untimed() {
            Modifier::DIM
        } else {
            Modifier::empty()
        };
        let cells = columns.iter().map(|column| {
            let cell = (column.cell)(row, off);
            match column.is_number {
                true => aligned(column, cell),
                false => aligned(column, cut_middle(&cell, room(column)).into_owned()),
            }
        });
        Cells::new(cells).style(style)
    };
    let head = |column: &&Column| {
        let chosen = column.order == Some(table.order);
        let underlined = if chosen {
            Modifier::UNDERLINED
        } else {
            Modifier::empty()
        };
        aligned(column, column.name.to_owned()).style(Modifier::BOLD | underlined)
    };
    let width = |column: &&Column| match column.name == FUNCTION.name {
        true => Constraint::Fill(1),
        false => Constraint::Length(column.width),
    };
    let widget = Widget::new(table.rows.iter().map(row), columns.iter().map(width))
        .header(Cells::new(columns.iter().map(head)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(table.position());
    frame.render_stateful_widget(widget, body, &mut state);
    let mut help = Line::from(help(table, KEYS));
    if help.width() > usize::from(foot.width) {
        help = Line::from(self::help(table, KEYS_IN_SHORT));
    }
    frame.render_widget(help.style(Modifier::DIM), foot);
}

fn summary(table: &Table) -> String {
    let mut text = format!(
        "nopal top {}: {} calls/s of {}",
        table.title,
        count(table.calls_per_second as u64),
        several(table.functions as u64, "function", "functions")
    );
    if table.counted > 0 {
        let functions = several(table.counted as u64, "function", "functions");
        text += &format!(", {functions} counted");
    }
    if table.spared > 0 {
        let functions = several(table.spared as u64, "function", "functions");
        text += &format!(", {functions} off to hold the budget");
    }
    if table.lost > 0 {
        text += &format!(", {}", several(table.lost, "event lost", "events lost"));
    }
    text
}

fn help(table: &Table, keys: &str) -> String {
    if table.typing {
        format!("filter: {}▏  (Enter keeps it, Esc drops it)", table.filter)
    } else if table.filter.is_empty() {
        keys.to_owned()
    } else {
        format!("filter: {}  (Esc drops it)  {keys}", table.filter)
    }
}

fn aligned(column: &Column, text: String) -> Cell<'static> {
    let alignment = if column.is_number {
        Alignment::Right
    } else {
        Alignment::Left
    };
    Cell::from(Text::from(text).alignment(alignment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::table::tests::table;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(table: &mut Table, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(table, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect()
    }

    #[test]
    fn a_wide_screen_shows_all_columns() {
        let mut table = table();
        let lines = screen(&mut table, 120, 6);
        assert_eq!(lines[0], "nopal top 7 sleep: 2,020 calls/s of 3 functions");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
            "calls/s self % total % calls self total function module"
        );
        assert_eq!(
            words(&lines[2]),
            [
                "10",
                "50.0",
                "150.0",
                "30",
                "2.50 s",
                "4.50 s main",
                "program"
            ]
        );
        assert!(lines[5].starts_with("q quit") && lines[5].ends_with("n name"));
        table.lost = 1234;
        assert!(screen(&mut table, 120, 6)[0].ends_with(", 1,234 events lost"));
    }

    #[test]
    fn what_is_off_has_no_rates() {
        use ratatui::crossterm::event::{KeyCode, KeyEvent};
        let mut table = table();
        table.key(KeyEvent::from(KeyCode::Char(' ')));
        let lines = screen(&mut table, 120, 6);
        assert_eq!(
            words(&lines[2]),
            ["off", "30", "2.50 s", "4.50 s main", "program"]
        );
    }

    #[test]
    fn what_is_off_for_a_budget_has_since_when_and_bounds() {
        let mut table = table();
        table.spared = 1;
        let sum = &mut table.rows[1].sum;
        sum.off_ns = Some(3_200_000_000);
        (sum.calls_are_least, sum.self_is_least, sum.total_is_least) = (true, true, true);
        // It was off before, and is recorded now.
        table.rows[0].sum.calls_are_least = true;
        let lines = screen(&mut table, 120, 6);
        assert!(
            lines[0].ends_with(", 1 function off to hold the budget"),
            "{}",
            lines[0]
        );
        assert_eq!(words(&lines[2])[3], "≥ 30", "{}", lines[2]);
        assert_eq!(
            words(&lines[3]),
            [
                "off 3.20 s",
                "≥ 4,005",
                "≥ 810 ms",
                "≥ 810 ms leaf",
                "libleaf.so"
            ]
        );
    }

    #[test]
    fn what_is_counted_has_calls_and_no_shares() {
        let mut table = table();
        let sum = &mut table.rows[1].sum;
        (sum.counted, sum.self_is_least) = (true, true);
        table.counted = 1;
        let lines = screen(&mut table, 120, 6);
        assert!(
            lines[0].ends_with("of 3 functions, 1 function counted"),
            "{}",
            lines[0]
        );
        let row = words(&lines[3]);
        assert_eq!(row[..3], ["2,000 counted", "4,005", "≥ 810 ms"]);
    }

    #[test]
    fn times_may_be_the_least() {
        let mut table = table();
        for row in &mut table.rows {
            row.sum.total_is_least = true;
            row.sum.self_is_least = row.name == "leaf";
            row.shares_are_least = true;
        }
        let lines = screen(&mut table, 120, 6);
        assert_eq!(
            words(&lines[2]),
            [
                "10",
                "≥ 50.0 ≥ 150.0",
                "30",
                "2.50 s",
                "≥ 4.50 s main",
                "program"
            ]
        );
        assert!(lines[3].contains("≥ 810 ms  ≥ 810 ms leaf"), "{}", lines[3]);
    }

    #[test]
    fn a_narrow_screen_keeps_function_and_calls() {
        for width in [0, 1, 10, 40, 60, 80] {
            let lines = screen(&mut table(), width, 6);
            if width >= 40 {
                assert!(lines[1].trim_start().starts_with("calls/s"));
                assert!(lines[1].contains("function"));
                assert!(lines[2].trim_start().starts_with("10 ") && lines[2].contains(" main"));
            }
            if width == 80 {
                assert!(lines[5].ends_with("order: c s t C S T n"), "{}", lines[5]);
            }
        }
        for height in 0..4 {
            screen(&mut table(), 80, height);
        }
    }
}
