//! The look of a view.

use nopal_analysis::report::Sort;
use nopal_analysis::text::{bound, count, cut_middle, duration, percent, several};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::browser::{Browser, Item, View};

/// Columns of numbers of each view: names, and widths.
const FUNCTIONS: [(&str, usize, Option<Sort>); 5] = [
    ("total", 10, Some(Sort::Total)),
    ("self", 10, Some(Sort::Own)),
    ("calls", 12, Some(Sort::Calls)),
    ("avg", 8, Some(Sort::Average)),
    ("max", 8, Some(Sort::Max)),
];
const OTHERS: [(&str, usize, Option<Sort>); 4] = [
    ("total", 10, None),
    ("of all", 7, None),
    ("self", 10, None),
    ("calls", 12, None),
];

/// A narrower screen has no column of modules, and one that is narrower still only the first columns.
const WITH_MODULE: usize = 100;
const MODULE: usize = 20;
const NAME: usize = 24;

const FUNCTION_KEYS: &str =
    "q quit  ↑↓ choose  Enter callers, callees  g tree  r replay  / filter  order: t s c a m n";
const RELATED_KEYS: &str = "q quit  ↑↓ choose  Enter to that function  g tree  r replay  Esc back";
const TREE_KEYS: &str = "q quit  ↑↓ choose  → open  ← close  Enter callers, callees  r replay  / find  n next  Esc back";

pub fn draw(browser: &mut Browser, title: &str, remarks: &str, frame: &mut Frame) {
    let remarks: Vec<&str> = remarks.lines().collect();
    let [head, said, heading, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(remarks.len().min(3) as u16),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let width = usize::from(body.width);
    frame.render_widget(
        Line::from(summary(browser, title)).style(Modifier::BOLD),
        head,
    );
    frame.render_widget(Text::from_iter(remarks).style(Modifier::DIM), said);
    frame.render_widget(
        Line::from(columns(browser, width)).style(Modifier::BOLD),
        heading,
    );
    browser.page = usize::from(body.height).max(1);
    let selected = browser.selected();
    browser.first = browser
        .first
        .min(selected)
        .max((selected + 1).saturating_sub(browser.page));
    let shown = browser.items().iter().enumerate().skip(browser.first);
    let lines = shown.take(browser.page).map(|(at, item)| {
        let style = match item {
            _ if at == selected => Style::new().add_modifier(Modifier::REVERSED),
            Item::Heading(_) => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        let text = line(browser, item, width);
        Line::from(format!("{text:width$}")).style(style)
    });
    frame.render_widget(Text::from_iter(lines), body);
    frame.render_widget(Line::from(help(browser)).style(Modifier::DIM), foot);
}

fn summary(browser: &Browser, title: &str) -> String {
    match browser.view() {
        View::Functions => {
            let calls = browser.rows.iter().map(|row| row.calls).sum();
            format!(
                "nopal tui {title}: {} of {}",
                several(calls, "call", "calls"),
                several(browser.rows.len() as u64, "function", "functions")
            )
        }
        View::Related(function) => format!(
            "nopal tui {title}: callers and callees of {}",
            browser.name(function)
        ),
        View::Tree => format!("nopal tui {title}: the tree of calls"),
    }
}

fn help(browser: &Browser) -> String {
    let keys = match browser.view() {
        View::Functions => FUNCTION_KEYS,
        View::Related(_) => RELATED_KEYS,
        View::Tree => TREE_KEYS,
    };
    let what = match browser.view() {
        View::Tree => "find",
        _ => "filter",
    };
    match (browser.typing, browser.filter()) {
        (true, filter) => format!("{what}: {filter}▏  (Enter keeps it, Esc drops it)"),
        (false, "") => keys.to_owned(),
        (false, filter) => format!("{what}: {filter}  {keys}"),
    }
}

/// The columns of numbers that leave room for names.
fn fitting(browser: &Browser, width: usize) -> Vec<(&'static str, usize, Option<Sort>)> {
    let all: &[_] = match browser.view() {
        View::Functions => &FUNCTIONS,
        _ => &OTHERS,
    };
    let mut left = width.saturating_sub(NAME);
    let fits = |column: &&(&str, usize, Option<Sort>)| match left.checked_sub(column.1 + 2) {
        Some(room) => {
            left = room;
            true
        }
        None => false,
    };
    all.iter().take_while(fits).copied().collect()
}

fn columns(browser: &Browser, width: usize) -> String {
    let names = fitting(browser, width);
    let cells = names.iter().map(|(name, _, order)| match order {
        Some(order) if *order == browser.order => format!("{name}▾"),
        _ => (*name).to_owned(),
    });
    joined(browser, cells.collect(), "function", "module", width)
}

fn line(browser: &Browser, item: &Item, width: usize) -> String {
    match *item {
        Item::Heading(text) => text.to_owned(),
        Item::Function(row) => {
            let row = &browser.rows[row];
            let known = |is_known: bool, text: String| if is_known { text } else { "-".into() };
            let has_times = row.timed + row.unfinished > 0;
            let cells = vec![
                known(has_times, bound(row.total_ns, row.total_is_least)),
                known(has_times, bound(row.self_ns, row.self_is_least)),
                count(row.calls),
                known(row.timed > 0, duration(row.avg_ns)),
                known(row.timed > 0, duration(row.max_ns)),
            ];
            joined(browser, cells, &row.function, &row.module, width)
        }
        Item::Related(function, sum) => {
            let cells = vec![
                bound(sum.total_ns, sum.is_least),
                percent(sum.total_ns, all(browser)),
                bound(sum.self_ns, sum.is_least),
                count(sum.calls),
            ];
            let other = function.and_then(|number| browser.functions.get(number as usize));
            let (name, module) = match other {
                Some(function) => (function.name.as_str(), function.module.as_str()),
                None => ("(no traced function)", "-"),
            };
            joined(browser, cells, name, module, width)
        }
        Item::Node(number) => {
            let node = &browser.nodes[number as usize];
            let total = browser.nanoseconds(node.total);
            let cells = vec![
                bound(total, node.total_is_least),
                percent(total, all(browser)),
                bound(browser.nanoseconds(node.own), node.own_is_least),
                count(node.calls),
            ];
            let sign = match (browser.has_children(number), browser.is_open(number)) {
                (false, _) => ' ',
                (true, true) => '▾',
                (true, false) => '▸',
            };
            // A part of the screen is kept for the names.
            let indent = (2 * node.depth.saturating_sub(1) as usize).min(width / 4);
            let name = format!("{:indent$}{sign} {}", "", browser.name(node.function));
            let module = browser.functions.get(node.function as usize);
            joined(
                browser,
                cells,
                &name,
                module.map_or("?", |function| &function.module),
                width,
            )
        }
    }
}

/// The time of all calls.
fn all(browser: &Browser) -> u64 {
    browser.nanoseconds(browser.nodes[0].total)
}

/// Numbers, the name, and the module, if there is room.
fn joined(browser: &Browser, cells: Vec<String>, name: &str, module: &str, width: usize) -> String {
    let mut text = String::new();
    for (cell, (_, width, _)) in cells.iter().zip(fitting(browser, width)) {
        text += &format!("{cell:>width$}  ");
    }
    let left = width.saturating_sub(text.chars().count());
    if width < WITH_MODULE {
        return text + &cut_middle(name, left);
    }
    let room = left.saturating_sub(MODULE + 2);
    let name = cut_middle(name, room);
    format!("{text}{name:room$}  {}", cut_middle(module, MODULE))
}
