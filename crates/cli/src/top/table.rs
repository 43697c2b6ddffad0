//! The rows of the table, their order, and the effects of keys.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

use nopal_analysis::names::Function;
use nopal_analysis::ongoing::Sum;
use nopal_analysis::sort;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use crate::terminal::{Pressed, pressed};

/// The order of rows, the largest first; names ascend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    CallsPerSecond,
    SelfShare,
    TotalShare,
    Calls,
    Own,
    Total,
    Name,
}

/// Keys, and the orders that they choose.
pub const ORDERS: [(char, Order); 7] = [
    ('c', Order::CallsPerSecond),
    ('s', Order::SelfShare),
    ('t', Order::TotalShare),
    ('C', Order::Calls),
    ('S', Order::Own),
    ('T', Order::Total),
    ('n', Order::Name),
];

/// A function that was called.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub site: u32,
    pub name: String,
    pub module: String,
    pub sum: Sum,
    pub calls_per_second: f64,
    /// Parts of the time since the previous update, over all threads: 1 is one thread all the time.
    pub self_share: f64,
    pub total_share: f64,
    /// Events were lost in that time, so the shares may be larger.
    pub shares_are_least: bool,
}

/// A request of a key to other parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    Quit,
    /// Whether calls of this site are recorded.
    Switch(u32, bool),
}

pub struct Table {
    pub title: String,
    pub order: Order,
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    pub lost: u64,
    /// In the order in which they are shown.
    pub rows: Vec<Row>,
    /// Functions that were called, shown or not.
    pub functions: usize,
    pub calls_per_second: f64,
    /// Functions whose calls are only counted.
    pub counted: usize,
    /// Functions that are off for the sake of a budget.
    pub spared: usize,
    /// The site whose row is marked.
    pub selected: Option<u32>,
    /// How many rows the screen shows.
    pub page: usize,
    off: HashSet<u32>,
    all: HashMap<u32, Row>,
    updated: Option<Instant>,
}

impl Table {
    pub fn new(title: String) -> Table {
        Table {
            title,
            order: Order::SelfShare,
            filter: String::new(),
            typing: false,
            lost: 0,
            rows: Vec::new(),
            functions: 0,
            calls_per_second: 0.0,
            counted: 0,
            spared: 0,
            selected: None,
            page: 1,
            off: HashSet::new(),
            all: HashMap::new(),
            updated: None,
        }
    }

    /// Takes the sums of all sites so far.
    pub fn update(
        &mut self,
        sums: &HashMap<u32, Sum>,
        lost: u64,
        now: Instant,
        function: impl Fn(u32) -> Option<Function>,
    ) {
        let seconds = self.updated.map_or(f64::INFINITY, |before| {
            now.duration_since(before).as_secs_f64().max(1e-3)
        });
        for (&site, &sum) in sums {
            let row = self
                .all
                .entry(site)
                .or_insert_with(|| new_row(site, function(site)));
            let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            row.calls_per_second = per_second(sum.calls, row.sum.calls);
            row.self_share = per_second(sum.self_ns, row.sum.self_ns) / 1e9;
            row.total_share = per_second(sum.total_ns, row.sum.total_ns) / 1e9;
            row.shares_are_least = lost > self.lost || sum.is_untimed() != row.sum.is_untimed();
            row.sum = sum;
        }
        self.updated = Some(now);
        self.lost = lost;
        self.functions = self.all.len();
        self.counted = sums.values().filter(|sum| sum.counted).count();
        self.spared = sums.values().filter(|sum| sum.off_ns.is_some()).count();
        self.calls_per_second = self.all.values().map(|row| row.calls_per_second).sum();
        self.arrange();
    }

    /// Chooses the rows that are shown, and puts them in order.
    fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let matches = |row: &&Row| {
            wanted.is_empty()
                || row.name.to_lowercase().contains(&wanted)
                || row.module.to_lowercase().contains(&wanted)
        };
        self.rows = self.all.values().filter(matches).cloned().collect();
        let order = self.order;
        sort::by(&mut self.rows, |a, b| {
            by(order, a, b)
                .then_with(|| b.sum.self_ns.cmp(&a.sum.self_ns))
                .then_with(|| (&a.name, a.site).cmp(&(&b.name, b.site)))
        });
    }

    pub fn is_off(&self, site: u32) -> bool {
        self.off.contains(&site)
    }

    /// The number of the marked row: the first unless another was chosen and is still there.
    pub fn position(&self) -> usize {
        let chosen = |row: &Row| Some(row.site) == self.selected;
        self.rows.iter().position(chosen).unwrap_or(0)
    }

    fn select(&mut self, position: usize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.rows.get(position.min(last)).map(|row| row.site);
    }

    pub fn key(&mut self, key: KeyEvent) -> Action {
        let code = match pressed(key) {
            Pressed::Nothing => return Action::None,
            Pressed::Quit => return Action::Quit,
            Pressed::Key(code) => code,
        };
        if self.typing {
            self.type_filter(code);
            return Action::None;
        }
        let position = self.position();
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc if self.filter.is_empty() => return Action::Quit,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(position.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(position + 1),
            KeyCode::PageUp => self.select(position.saturating_sub(self.page)),
            KeyCode::PageDown => self.select(position + self.page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Char(' ') => return self.switch(position),
            KeyCode::Char(letter) => {
                if let Some(&(_, order)) = ORDERS.iter().find(|(key, _)| *key == letter) {
                    self.order = order;
                    self.arrange();
                }
            }
            _ => {}
        }
        Action::None
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.arrange();
    }

    fn switch(&mut self, position: usize) -> Action {
        let Some(row) = self.rows.get(position) else {
            return Action::None;
        };
        let site = row.site;
        self.selected = Some(site);
        let on = self.off.remove(&site);
        if !on {
            self.off.insert(site);
        }
        Action::Switch(site, on)
    }
}

fn new_row(site: u32, function: Option<Function>) -> Row {
    let (name, module) = function.map_or(("(unknown)".into(), "?".into()), |function| {
        (function.name, function.module)
    });
    Row {
        site,
        name,
        module,
        sum: Sum::default(),
        calls_per_second: 0.0,
        self_share: 0.0,
        total_share: 0.0,
        shares_are_least: false,
    }
}

fn by(order: Order, a: &Row, b: &Row) -> Ordering {
    match order {
        Order::CallsPerSecond => b.calls_per_second.total_cmp(&a.calls_per_second),
        Order::SelfShare => b.self_share.total_cmp(&a.self_share),
        Order::TotalShare => b.total_share.total_cmp(&a.total_share),
        Order::Calls => b.sum.calls.cmp(&a.sum.calls),
        Order::Own => b.sum.self_ns.cmp(&a.sum.self_ns),
        Order::Total => b.sum.total_ns.cmp(&a.sum.total_ns),
        Order::Name => a.name.cmp(&b.name),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyModifiers;
    use std::time::Duration;

    fn sum(calls: u64, self_ms: u64, total_ms: u64) -> Sum {
        Sum {
            calls,
            self_ns: self_ms * 1_000_000,
            total_ns: total_ms * 1_000_000,
            ..Sum::default()
        }
    }

    fn function(site: u32) -> Option<Function> {
        let (name, module) = match site {
            1 => ("main", "/bin/program"),
            2 => ("leaf", "/lib/libleaf.so"),
            _ => return None,
        };
        Some(Function::new(module, 0, 0, name))
    }

    /// Two seconds between its two updates.
    pub fn table() -> Table {
        let mut table = Table::new("7 sleep".into());
        let begin = Instant::now();
        let first = [(1, sum(10, 1500, 1500)), (2, sum(5, 10, 10))];
        table.update(&HashMap::from(first), 0, begin, function);
        let second = [
            (1, sum(30, 2500, 4500)),
            (2, sum(4005, 810, 810)),
            (3, sum(20, 0, 0)),
        ];
        let later = begin + Duration::from_secs(2);
        table.update(&HashMap::from(second), 0, later, function);
        table
    }

    fn names(table: &Table) -> Vec<&str> {
        table.rows.iter().map(|row| row.name.as_str()).collect()
    }

    fn press(table: &mut Table, keys: &str) -> Action {
        let press = |letter| match letter {
            '^' => KeyCode::Up,
            'v' => KeyCode::Down,
            '!' => KeyCode::Esc,
            '\n' => KeyCode::Enter,
            '<' => KeyCode::Backspace,
            letter => KeyCode::Char(letter),
        };
        let keys = keys.chars().map(press);
        keys.map(|code| table.key(KeyEvent::new(code, KeyModifiers::NONE)))
            .last()
            .unwrap()
    }

    #[test]
    fn rates_are_of_the_time_between_updates() {
        let table = table();
        let row = &table.rows[0];
        assert_eq!(
            (row.name.as_str(), row.module.as_str()),
            ("main", "program")
        );
        assert_eq!(row.calls_per_second, 10.0);
        assert_eq!((row.self_share, row.total_share), (0.5, 1.5));
        assert_eq!(table.calls_per_second, 10.0 + 2000.0 + 10.0);
    }

    #[test]
    fn the_first_update_has_no_rates() {
        let mut table = Table::new(String::new());
        let sums = HashMap::from([(1, sum(10, 1500, 1500))]);
        table.update(&sums, 0, Instant::now(), function);
        assert_eq!(
            (table.rows[0].calls_per_second, table.rows[0].self_share),
            (0.0, 0.0)
        );
    }

    #[test]
    fn keys_choose_the_order() {
        let mut table = table();
        assert_eq!(names(&table), ["main", "leaf", "(unknown)"]);
        for (key, first) in [
            ("c", "leaf"),
            ("t", "main"),
            ("C", "leaf"),
            ("n", "(unknown)"),
            ("S", "main"),
        ] {
            assert_eq!(press(&mut table, key), Action::None);
            assert_eq!(names(&table)[0], first, "{key}");
        }
    }

    #[test]
    fn a_filter_means_functions_and_modules() {
        let mut table = table();
        press(&mut table, "/MAx<\n");
        assert_eq!(names(&table), ["main"]);
        press(&mut table, "!/leafc");
        assert_eq!(names(&table), [""; 0], "c is text now");
        press(&mut table, "<");
        assert_eq!(names(&table), ["leaf"]);
        press(&mut table, "!");
        assert_eq!(table.rows.len(), 3);
        assert_eq!(press(&mut table, "!"), Action::Quit);
    }

    #[test]
    fn the_chosen_row_stays_chosen_and_is_switched() {
        let mut table = table();
        assert_eq!(press(&mut table, "v "), Action::Switch(2, false));
        assert!(table.is_off(2) && !table.is_off(1));
        press(&mut table, "c");
        assert_eq!(table.position(), 0);
        assert_eq!(press(&mut table, " "), Action::Switch(2, true));
        assert_eq!(press(&mut table, "vvvv "), Action::Switch(3, false));
        assert_eq!(press(&mut table, "^^^^^ "), Action::Switch(2, false));
        assert_eq!(press(&mut table, "/nothing\n "), Action::None);
    }

    #[test]
    fn the_user_may_leave() {
        assert_eq!(press(&mut table(), "q"), Action::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(table().key(control), Action::Quit);
        let mut typing = table();
        press(&mut typing, "/");
        assert_eq!(typing.key(control), Action::Quit);
    }
}
