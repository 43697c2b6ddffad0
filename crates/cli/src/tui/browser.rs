//! The browser of a trace: its tables, and the effects of keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use nopal_analysis::graph::{Node, ROOT, Tree};
use nopal_analysis::names::Function;
use nopal_analysis::report::{Report, Row, Sort};
use nopal_analysis::sort;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use crate::terminal::{Pressed, pressed};

/// Keys, and the orders of functions that they choose.
const ORDERS: [(char, Sort); 6] = [
    ('t', Sort::Total),
    ('s', Sort::Own),
    ('c', Sort::Calls),
    ('a', Sort::Average),
    ('m', Sort::Max),
    ('n', Sort::Function),
];

/// A request of a key to other parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action<'a> {
    None,
    Quit,
    /// Show the calls of this function.
    Replay(&'a Function),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Functions,
    /// The callers and the callees of a function, by number.
    Related(u32),
    /// The tree of calls.
    Tree,
}

/// A line of a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// The number of its row.
    Function(usize),
    Heading(&'static str),
    /// The function on the other side of calls, if any.
    Related(Option<u32>, Sum),
    /// A node of the tree.
    Node(u32),
}

/// Calls on one side of a function, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub calls: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    /// They may be more.
    pub is_least: bool,
}

/// A view on the way to the one that is shown.
struct Level {
    view: View,
    items: Vec<Item>,
    selected: usize,
    filter: String,
}

pub struct Browser<'a> {
    pub functions: &'a [Function],
    pub rows: Vec<Row>,
    pub nodes: &'a [Node],
    nanoseconds: Box<dyn Fn(u64) -> u64 + 'a>,
    /// The children of each node, those with most time first.
    children: Vec<Vec<u32>>,
    open: HashSet<u32>,
    pub order: Sort,
    levels: Vec<Level>,
    /// The filter, or the text to find in the tree, is being typed.
    pub typing: bool,
    /// The first line that is shown, and how many there is room for.
    pub first: usize,
    pub page: usize,
}

impl<'a> Browser<'a> {
    /// `rows` are of the trace of `tree`, whose times are in ticks.
    pub fn new(
        functions: &'a [Function],
        rows: Vec<Row>,
        tree: &'a Tree,
        nanoseconds: impl Fn(u64) -> u64 + 'a,
    ) -> Browser<'a> {
        let nodes = tree.nodes();
        let mut children = tree.children();
        for children in &mut children {
            sort::by_key(children, |&child| {
                Reverse((nodes[child as usize].total, nodes[child as usize].calls))
            });
        }
        let mut browser = Browser {
            functions,
            rows,
            nodes,
            nanoseconds: Box::new(nanoseconds),
            children,
            open: HashSet::new(),
            order: Sort::Total,
            levels: Vec::new(),
            typing: false,
            first: 0,
            page: 1,
        };
        browser.enter(View::Functions);
        browser
    }

    fn level(&self) -> &Level {
        // The view of all functions is always there.
        &self.levels[self.levels.len() - 1]
    }

    fn level_mut(&mut self) -> &mut Level {
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    pub fn view(&self) -> View {
        self.level().view
    }

    pub fn items(&self) -> &[Item] {
        &self.level().items
    }

    pub fn selected(&self) -> usize {
        self.level().selected
    }

    pub fn filter(&self) -> &str {
        &self.level().filter
    }

    pub fn name(&self, function: u32) -> &'a str {
        self.functions
            .get(function as usize)
            .map_or("?", |function| &function.name)
    }

    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        (self.nanoseconds)(ticks)
    }

    pub fn is_open(&self, node: u32) -> bool {
        self.open.contains(&node)
    }

    pub fn has_children(&self, node: u32) -> bool {
        !self.children[node as usize].is_empty()
    }

    fn enter(&mut self, view: View) {
        self.levels.push(Level {
            view,
            items: Vec::new(),
            selected: 0,
            filter: String::new(),
        });
        self.first = 0;
        self.arrange();
        self.select(0);
    }

    /// Makes the items of the view that is shown.
    fn arrange(&mut self) {
        let items = match self.view() {
            View::Functions => {
                let wanted = self.filter().to_lowercase();
                let matches = |row: &Row| {
                    row.function.to_lowercase().contains(&wanted)
                        || row.module.to_lowercase().contains(&wanted)
                };
                let rows = self.rows.iter().enumerate();
                let rows = rows.filter(|(_, row)| matches(row));
                rows.map(|(row, _)| Item::Function(row)).collect()
            }
            View::Related(function) => self.related(function),
            View::Tree => self.visible(),
        };
        let level = self.level_mut();
        level.selected = level.selected.min(items.len().saturating_sub(1));
        level.items = items;
    }

    fn related(&self, function: u32) -> Vec<Item> {
        let mut callers: BTreeMap<Option<u32>, Sum> = BTreeMap::new();
        let mut callees: BTreeMap<Option<u32>, Sum> = BTreeMap::new();
        for node in &self.nodes[1..] {
            let parent = match node.parent {
                ROOT => None,
                parent => Some(self.nodes[parent as usize].function),
            };
            if node.function == function {
                self.add(callers.entry(parent).or_default(), node);
            }
            if parent == Some(function) {
                self.add(callees.entry(Some(node.function)).or_default(), node);
            }
        }
        let sorted = |sums: BTreeMap<Option<u32>, Sum>| {
            let mut sums: Vec<_> = sums.into_iter().collect();
            sort::by_key(&mut sums, |(_, sum)| Reverse((sum.total_ns, sum.calls)));
            sums.into_iter()
                .map(|(function, sum)| Item::Related(function, sum))
        };
        let heading = |text| std::iter::once(Item::Heading(text));
        let callers = heading("callers").chain(sorted(callers));
        callers
            .chain(heading("callees"))
            .chain(sorted(callees))
            .collect()
    }

    fn add(&self, sum: &mut Sum, node: &Node) {
        sum.calls += node.calls;
        sum.total_ns = sum.total_ns.saturating_add(self.nanoseconds(node.total));
        sum.self_ns = sum.self_ns.saturating_add(self.nanoseconds(node.own));
        sum.is_least |= node.total_is_least;
    }

    /// The nodes all of whose ancestors are open.
    fn visible(&self) -> Vec<Item> {
        let mut items = Vec::new();
        let mut left: Vec<u32> = self.children[ROOT as usize].iter().rev().copied().collect();
        while let Some(node) = left.pop() {
            items.push(Item::Node(node));
            if self.is_open(node) {
                left.extend(self.children[node as usize].iter().rev());
            }
        }
        items
    }

    /// Marks a line, or the nearest one behind it that is no heading, or before it.
    fn select(&mut self, wanted: usize) {
        let items = &self.level().items;
        let wanted = wanted.min(items.len().saturating_sub(1));
        let is_line = |at: &usize| !matches!(items[*at], Item::Heading(_));
        let behind = (wanted..items.len()).find(is_line);
        let chosen = behind
            .or_else(|| (0..wanted).rev().find(is_line))
            .unwrap_or(0);
        self.level_mut().selected = chosen;
    }

    /// As [`Browser::select`], for lines upwards.
    fn select_up(&mut self, lines: usize) {
        let selected = self.selected();
        let wanted = selected.saturating_sub(lines);
        let items = &self.level().items;
        let is_line = |at: &usize| {
            let item = items.get(*at);
            item.is_some_and(|item| !matches!(item, Item::Heading(_)))
        };
        let above = (0..=wanted).rev().find(is_line);
        if let Some(above) = above {
            self.level_mut().selected = above;
        }
    }

    /// The function of the marked line.
    fn function(&self) -> Option<u32> {
        match *self.items().get(self.selected())? {
            Item::Function(row) => Some(self.rows[row].number),
            Item::Related(function, _) => function,
            Item::Node(node) => Some(self.nodes[node as usize].function),
            Item::Heading(_) => None,
        }
    }

    pub fn key(&mut self, key: KeyEvent) -> Action<'a> {
        let code = match pressed(key) {
            Pressed::Nothing => return Action::None,
            Pressed::Quit => return Action::Quit,
            Pressed::Key(code) => code,
        };
        if self.typing {
            self.type_filter(code);
            return Action::None;
        }
        let selected = self.selected();
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('/') => {
                self.typing = true;
                self.level_mut().filter.clear();
                self.arrange();
            }
            KeyCode::Up | KeyCode::Char('k') => self.select_up(1),
            KeyCode::Down | KeyCode::Char('j') => self.select(selected + 1),
            KeyCode::PageUp => self.select_up(self.page),
            KeyCode::PageDown => self.select(selected + self.page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Esc | KeyCode::Backspace => return self.back(),
            KeyCode::Char('g') if self.view() != View::Tree => {
                let function = self.function();
                self.enter(View::Tree);
                self.reveal(function);
            }
            KeyCode::Char('r') => {
                let function = self.function();
                let function = function.and_then(|number| self.functions.get(number as usize));
                return function.map_or(Action::None, Action::Replay);
            }
            KeyCode::Enter => {
                if let Some(function) = self.function() {
                    self.enter(View::Related(function));
                }
            }
            KeyCode::Right | KeyCode::Char('+' | 'l') => self.unfold(true),
            KeyCode::Left | KeyCode::Char('-' | 'h') => self.unfold(false),
            KeyCode::Char('n') if self.view() == View::Tree => self.find(true),
            KeyCode::Char(letter) if self.view() == View::Functions => self.sort(letter),
            _ => {}
        }
        Action::None
    }

    /// To the view before this one; a filter goes first.
    fn back(&mut self) -> Action<'a> {
        if self.view() == View::Functions && !self.filter().is_empty() {
            self.level_mut().filter.clear();
            self.arrange();
        } else if self.levels.len() == 1 {
            return Action::Quit;
        } else {
            self.levels.pop();
            self.first = 0;
        }
        Action::None
    }

    fn sort(&mut self, letter: char) {
        let Some(&(_, order)) = ORDERS.iter().find(|(key, _)| *key == letter) else {
            return;
        };
        self.order = order;
        let mut report = Report {
            rows: std::mem::take(&mut self.rows),
            left_out: 0,
        };
        report.sort(order);
        self.rows = report.rows;
        self.arrange();
        self.select(0);
    }

    /// Opens the marked node, or closes it, or goes to its caller if it is closed.
    fn unfold(&mut self, open: bool) {
        let Some(&Item::Node(node)) = self.items().get(self.selected()) else {
            return;
        };
        if open {
            self.open.insert(node);
        } else if !self.open.remove(&node) {
            let parent = Item::Node(self.nodes[node as usize].parent);
            if let Some(at) = self.items().iter().position(|item| *item == parent) {
                self.select(at);
            }
        }
        self.arrange();
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => {
                self.typing = false;
                if self.view() == View::Tree {
                    self.find(false);
                }
                return;
            }
            KeyCode::Esc => {
                self.typing = false;
                self.level_mut().filter.clear();
            }
            KeyCode::Backspace => {
                self.level_mut().filter.pop();
            }
            KeyCode::Char(letter) => self.level_mut().filter.push(letter),
            _ => {}
        }
        if self.view() == View::Functions {
            self.arrange();
        }
    }

    /// Goes to the next node whose name contains the searched text, in order of the whole tree: from the marked node,
    /// or from the one behind it, and then from the first. Opens the path to it.
    fn find(&mut self, is_next: bool) {
        let wanted = self.filter().to_lowercase();
        if wanted.is_empty() {
            return;
        }
        let names: HashSet<u32> = (0u32..)
            .zip(self.functions)
            .filter(|(_, function)| function.name.to_lowercase().contains(&wanted))
            .map(|(number, _)| number)
            .collect();
        let all = self.depth_first();
        let marked = match self.items().get(self.selected()) {
            Some(Item::Node(node)) => all.iter().position(|other| other == node),
            _ => None,
        };
        let from = marked.map_or(0, |at| at + usize::from(is_next));
        let (before, behind) = all.split_at(from);
        let mut nodes = behind.iter().chain(before);
        let found = nodes.find(|&&node| names.contains(&self.nodes[node as usize].function));
        let Some(&found) = found else {
            return;
        };
        self.open_path(found);
    }

    /// Marks the node of a function with most time.
    fn reveal(&mut self, function: Option<u32>) {
        let nodes = (1u32..).zip(&self.nodes[1..]);
        let nodes = nodes.filter(|(_, node)| Some(node.function) == function);
        if let Some((node, _)) = nodes.max_by_key(|(_, node)| (node.total, node.calls)) {
            self.open_path(node);
        }
    }

    /// Opens the path to a node, and marks the node.
    fn open_path(&mut self, node: u32) {
        let mut above = self.nodes[node as usize].parent;
        while above != ROOT {
            self.open.insert(above);
            above = self.nodes[above as usize].parent;
        }
        self.arrange();
        let at = self
            .items()
            .iter()
            .position(|item| *item == Item::Node(node));
        self.select(at.unwrap_or(0));
    }

    fn depth_first(&self) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.nodes.len());
        let mut left: Vec<u32> = self.children[ROOT as usize].iter().rev().copied().collect();
        while let Some(node) = left.pop() {
            all.push(node);
            left.extend(self.children[node as usize].iter().rev());
        }
        all
    }
}
