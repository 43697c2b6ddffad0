//! A tree of calls.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use crate::calls::{Ending, Frame, Plain, Sink};
use crate::drive::Worker;
use crate::names::Names;
use crate::off::Off;
use crate::waits::{InCall, Waited};
use nopal_trace::ThreadInfo;

use super::per::Per;
use super::places::Places;

pub const ROOT: u32 = 0;

/// Deeper calls are added to the call that they are in.
pub(super) const DEPTH_LIMIT: u32 = 1000;
const NODES_LIMIT: usize = 1 << 22;
const NOWHERE: u32 = u32::MAX;
/// In a frame's note: the call counts with the node of its caller.
const MERGED: u32 = 1 << 31;

/// Calls of one function on one path. A call that did not end, or began before tracing, counts for the time in which it
/// is known to have run; the latter has no caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub function: u32,
    pub parent: u32,
    pub depth: u32,
    pub calls: u64,
    pub unfinished: u64,
    /// Calls with at least a known least time.
    pub timed: u64,
    /// Ticks.
    pub total: u64,
    pub own: u64,
    /// It may have been more.
    pub total_is_least: bool,
    pub own_is_least: bool,
    /// The function was off or counted for a time: calls are missing.
    pub was_off: bool,
    /// `own` may have in it the time of callees that were not timed.
    pub own_with_untimed: bool,
    /// Ticks of `total` that other nodes have, which are not below this one.
    shared: u64,
    /// For a node under the root: its `total` when the first call ended in the present period, and the number of that
    /// period.
    before: u64,
    period: u32,
}

/// Nodes; a parent comes before its children. Number [`ROOT`] is not a call.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// For each node, the child that was found last, and its function.
    last: Vec<(u32, u32)>,
    children: HashMap<u64, u32, Places>,
    /// The time that the calls of nodes waited themselves; nodes that did not wait are absent.
    waited: HashMap<u32, Waited>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            nodes: vec![Node::default()],
            last: vec![(NOWHERE, NOWHERE)],
            children: HashMap::default(),
            waited: HashMap::new(),
        }
    }
}

impl Tree {
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether any call has a duration, as far as that is known.
    pub fn has_times(&self) -> bool {
        self.nodes.iter().any(|node| node.timed > 0)
    }

    /// Whether calls were recorded, all of them without durations.
    pub fn lacks_times(&self) -> bool {
        !self.has_times() && self.nodes.iter().any(|node| node.calls > 0)
    }

    /// Whether calls seem to be in others of which only the entries were recorded, which may have ended before.
    pub fn has_estimated_callers(&self) -> bool {
        let only = |node: &Node| node.timed == 0 && node.calls > 0;
        let is_caller = |node: &Node| only(&self.nodes[node.parent as usize]);
        self.nodes.iter().any(is_caller)
    }

    /// The time that the calls of each node waited: with their callees, and themselves.
    pub fn waited(&self) -> Vec<InCall> {
        let mut waited = vec![InCall::default(); self.nodes.len()];
        for (node, own) in &self.waited {
            waited[*node as usize].own = *own;
        }
        for number in (1..self.nodes.len()).rev() {
            let total = waited[number].total + waited[number].own;
            waited[number].total = total;
            waited[self.nodes[number].parent as usize].total += total;
        }
        waited
    }

    fn wait(&mut self, node: u32, own: Waited) {
        *self.waited.entry(node).or_default() += own;
    }

    /// The children of each node.
    pub fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (number, node) in (1..).zip(&self.nodes[1..]) {
            children[node.parent as usize].push(number);
        }
        children
    }

    /// The child of `parent` for `function`; `parent` itself if the tree may not grow.
    #[inline(always)]
    fn child(&mut self, parent: u32, function: u32) -> u32 {
        match self.last[parent as usize] {
            (last, child) if last == function => child,
            _ => self.other_child(parent, function),
        }
    }

    fn other_child(&mut self, parent: u32, function: u32) -> u32 {
        let place = u64::from(parent) << 32 | u64::from(function);
        let child = match self.children.get(&place) {
            Some(&child) => child,
            None => {
                let depth = self.nodes[parent as usize].depth + 1;
                if depth > DEPTH_LIMIT || self.nodes.len() >= NODES_LIMIT {
                    return parent;
                }
                let child = self.nodes.len() as u32;
                self.nodes.push(Node {
                    function,
                    parent,
                    depth,
                    ..Node::default()
                });
                self.last.push((NOWHERE, NOWHERE));
                self.children.insert(place, child);
                child
            }
        };
        self.last[parent as usize] = (function, child);
        child
    }

    /// Adds all nodes of another tree.
    pub fn add(&mut self, other: &Tree) {
        self.gather(other, &[], ROOT);
    }

    /// A tree of the functions `wanted`, from all places where they are not called by one of themselves.
    pub fn under(&self, wanted: &[u32]) -> Tree {
        let mut tree = Tree::default();
        tree.gather(self, wanted, NOWHERE);
        tree
    }

    /// The tree without nodes all of whose calls were left out, and without all nodes below them.
    fn without_empty(self) -> Tree {
        let is_empty = |node: &Node| node.calls + node.unfinished + node.timed == 0;
        if !self.nodes[1..].iter().any(is_empty) {
            return self;
        }
        let mut tree = Tree::default();
        let mut places = vec![ROOT; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let parent = places[node.parent as usize];
            if is_empty(node) {
                places[number] = parent;
                continue;
            }
            let place = tree.child(parent, node.function);
            places[number] = place;
            tree.nodes[place as usize].add(node, place == parent);
        }
        for (node, own) in &self.waited {
            tree.wait(places[*node as usize], *own);
        }
        tree.nodes[ROOT as usize].total = self.nodes[ROOT as usize].total;
        tree
    }

    /// Adds the calls of those nodes of `other` that have a place here: its root's place is `root`, and `wanted`
    /// functions have one under the root.
    fn gather(&mut self, other: &Tree, wanted: &[u32], root: u32) {
        let mut places = vec![NOWHERE; other.nodes.len()];
        places[ROOT as usize] = root;
        for (number, node) in other.nodes.iter().enumerate().skip(1) {
            let parent = match places[node.parent as usize] {
                NOWHERE if wanted.contains(&node.function) => ROOT,
                NOWHERE => continue,
                place => place,
            };
            let place = self.child(parent, node.function);
            places[number] = place;
            self.nodes[place as usize].add(node, place == parent);
        }
        for (node, own) in &other.waited {
            let place = places[*node as usize];
            if place != NOWHERE {
                self.wait(place, *own);
            }
        }
        self.time_untimed();
    }

    /// Entry-only calls have no times of their own: theirs are those of the calls in them.
    fn time_untimed(&mut self) {
        let mut inside = vec![0u64; self.nodes.len()];
        for number in (1..self.nodes.len()).rev() {
            let node = &mut self.nodes[number];
            node.total = node.total.max(node.own.saturating_add(inside[number]));
            let parent = &mut inside[node.parent as usize];
            *parent = parent.saturating_add(node.total.saturating_sub(node.shared));
        }
        self.nodes[ROOT as usize].total = inside[ROOT as usize];
    }
}

impl Tree {
    /// Marks the nodes of functions that were off or counted, and those that may have called them.
    pub fn mark_off(mut self, off: &Off) -> Tree {
        for node in self.nodes.iter_mut().skip(1) {
            node.was_off = off.lacks_calls(node.function);
            node.total_is_least |= node.was_off;
            node.own_is_least |= node.was_off;
            node.own_with_untimed = off.may_be_in_self(node.total, node.own);
        }
        self
    }
}

impl Node {
    fn add(&mut self, other: &Node, is_parent: bool) {
        self.own = self.own.saturating_add(other.own);
        self.own_is_least |= other.own_is_least;
        if !is_parent {
            self.calls += other.calls;
            self.unfinished += other.unfinished;
            self.timed += other.timed;
            self.total = self.total.saturating_add(other.total);
            self.total_is_least |= other.total_is_least;
            self.shared = self.shared.saturating_add(other.shared);
        }
    }

    fn keep(&mut self, period: u32) {
        if self.period != period {
            self.period = period;
            self.before = self.total;
        }
    }
}

/// Makes a tree of calls. A frame's note is its node.
pub struct Grower<'a> {
    tree: Tree,
    names: &'a Names,
    per: &'a Per,
    /// The node that the thread's outermost calls are under.
    base: u32,
    process: u32,
    /// Of the call that begins next; 0 where it is not known.
    return_address: u64,
    /// The number of the period since which records are complete: each thread and each gap begins one.
    period: u32,
    /// It is full with more nodes.
    most: usize,
}

impl<'a> Grower<'a> {
    pub fn new(names: &'a Names, per: &'a Per) -> Grower<'a> {
        Grower {
            tree: Tree::default(),
            names,
            per,
            base: ROOT,
            process: 0,
            return_address: 0,
            period: 0,
            most: usize::MAX,
        }
    }

    /// Reading fails once there are more nodes than `most`.
    pub(super) fn with_limit(self, most: usize) -> Grower<'a> {
        Grower { most, ..self }
    }

    pub(super) fn is_full(&self) -> bool {
        self.tree.nodes.len() > self.most
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    #[inline(always)]
    pub(super) fn number(&self, site: u32) -> u32 {
        self.names.number(site)
    }

    /// The function of a call that begins.
    pub(super) fn number_of_call(&mut self, frame: &Frame) -> u32 {
        let address = std::mem::take(&mut self.return_address);
        self.names
            .number_of_call(self.process, frame.site(), address)
            .unwrap_or_else(|| self.names.number(frame.site()))
    }

    /// The node of the outermost calls of a function.
    pub(super) fn outermost(&mut self, function: u32) -> u32 {
        self.tree.child(self.base, function)
    }

    /// A call of this node is left out after all.
    pub(super) fn dismiss_one(&mut self, node: u32) {
        self.tree.nodes[node as usize].calls -= 1;
    }

    pub fn into_tree(mut self) -> Tree {
        self.tree.time_untimed();
        self.tree.without_empty()
    }

    /// The node of a call of a function in the one with the note `caller`.
    #[inline(always)]
    fn within(&mut self, caller: u32, function: u32) -> u32 {
        let parent = match caller & !MERGED {
            ROOT => self.base,
            parent => parent,
        };
        let node = self.tree.child(parent, function);
        match node == parent {
            true => node | MERGED,
            false => node,
        }
    }

    /// The same, for a call that begins.
    #[inline(always)]
    pub(super) fn begin(&mut self, caller: u32, function: u32) -> u32 {
        let node = self.within(caller, function);
        if node & MERGED == 0 {
            self.tree.nodes[node as usize].calls += 1;
        }
        node
    }

    #[inline(always)]
    pub(super) fn time(&mut self, note: u32, ticks: u64, own: u64) -> &mut Node {
        let node = &mut self.tree.nodes[(note & !MERGED) as usize];
        node.keep(self.period);
        node.own = node.own.saturating_add(own);
        if note & MERGED == 0 {
            node.timed += 1;
            node.total = node.total.saturating_add(ticks);
        }
        node
    }

    fn time_until(&mut self, frame: &Frame, clock: u64) -> &mut Node {
        let ticks = clock.saturating_sub(frame.clock);
        self.time(frame.note, ticks, ticks.saturating_sub(frame.child))
    }
}

impl Sink for Grower<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        if call.exit == 0 {
            return self.begin(call.note, self.names.number(call.site));
        }
        self.time(call.note, call.ticks, call.own);
        0
    }

    fn call_site(&mut self, return_address: u64) {
        self.return_address = return_address;
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return ROOT;
        };
        let function = self.number_of_call(frame);
        self.begin(under.last().map_or(ROOT, |frame| frame.note), function)
    }

    fn note_of_caller(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return ROOT;
        };
        let caller = under.last().map_or(ROOT, |frame| frame.note);
        self.within(caller, self.names.number(frame.site()))
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        let node = self.time_until(frame, ending.clock);
        node.own_is_least |= frame.is_bounded();
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        if frame.note & MERGED == 0 {
            self.dismiss_one(frame.note);
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        let node = self.time_until(frame, clock);
        node.own_is_least = true;
        node.total_is_least = true;
        if frame.note & MERGED == 0 {
            node.unfinished += 1;
        }
    }

    /// Calls that were made in it are beside it, under the root.
    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let number = self.tree.child(self.base, self.names.number(frame.site()));
        if number == self.base {
            return;
        }
        let node = &mut self.tree.nodes[number as usize];
        let ticks = ending.clock.saturating_sub(frame.clock);
        let own = ticks.saturating_sub(frame.child);
        node.keep(self.period);
        let total = node.total.max(node.before.saturating_add(ticks));
        let more = total - node.total;
        node.total = total;
        node.own = node.own.saturating_add(own);
        node.shared = node.shared.saturating_add(more.saturating_sub(own));
        node.unfinished += 1;
        node.timed += 1;
        node.total_is_least = true;
        node.own_is_least = true;
    }

    fn waited(&mut self, frame: &Frame, _clock: u64, waited: InCall) {
        let node = match frame.note & !MERGED {
            // Only the end of the call was recorded.
            ROOT => self.tree.child(self.base, self.names.number(frame.site())),
            node => node,
        };
        self.tree.wait(node, waited.own);
    }

    fn missing(&mut self, _clock: u64, _ticks: u64) {
        self.period = self.period.wrapping_add(1);
    }
}

impl Worker for Grower<'_> {
    fn pause(&mut self) -> Result<()> {
        ensure!(!self.is_full(), "too many nodes");
        Ok(())
    }

    fn takes_waits(&self) -> bool {
        true
    }

    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.process = thread.process;
        self.period = self.period.wrapping_add(1);
        self.base = match self.per.function(stream) {
            None => ROOT,
            Some(function) => self.tree.child(ROOT, function),
        };
        if self.base != ROOT {
            let node = &mut self.tree.nodes[self.base as usize];
            node.timed = 1;
        }
    }
}
