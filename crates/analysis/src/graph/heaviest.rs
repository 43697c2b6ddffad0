//! The nodes of a tree that take most time, without the others.
//!
//! If a trace has few paths, its tree is made as usual. Else most paths are of few calls, and to find their nodes takes
//! much longer than to read them. So the calls are listed, each with those made in it, and nodes are made from the list
//! from the outermost inwards, those with most time first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use anyhow::Result;
use nopal_trace::Trace;

use super::list::{CallList, Member};
use super::per::Per;
use super::tree::{DEPTH_LIMIT, Grower, Node, ROOT, Tree};
use crate::drive::Drive;
use crate::names::Names;

/// The most calls that all workers list: 240 MB.
const ALL_CALLS: usize = 12 << 20;

/// How much memory one worker may take: about 10 MB for nodes, and 120 MB for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most nodes of a tree that is made as usual.
    pub nodes: usize,
    /// The most calls that are listed.
    pub calls: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            nodes: 1 << 16,
            calls: 6 << 20,
        }
    }
}

/// A node, and what is left out below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heavy {
    pub function: u32,
    /// Its place among the nodes.
    pub parent: u32,
    pub calls: u64,
    /// Ticks.
    pub total: u64,
    pub own: u64,
    /// Ticks of the calls made in it whose nodes are left out.
    pub left_out: u64,
}

/// The nodes of [`super::tree`] that have most time, a parent before its children. The first is not a call; its total is
/// that of all outermost calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heaviest {
    pub nodes: Vec<Heavy>,
    /// Calls whose nodes are left out.
    pub left_out: u64,
}

/// At most `most` nodes. Of those with the same time, any may be left out. Whatever the limits are, the nodes are the
/// same.
pub fn heaviest(
    trace: &Trace,
    names: &Names,
    drive: &Drive,
    most: usize,
    limits: Limits,
) -> Result<Heaviest> {
    let per = Per::default();
    let workers = drive.workers.max(1);
    let grower = |most| Grower::new(names, &per).with_limit(most);
    let mut growers: Vec<Grower> = (0..workers).map(|_| grower(limits.nodes)).collect();
    let ran = drive.run(trace, &mut growers);
    if !growers.iter().any(Grower::is_full) {
        ran?;
        return Ok(of_tree(&super::sum(growers), most));
    }
    let list = || CallList::new(grower(usize::MAX), limits.calls.min(ALL_CALLS / workers));
    let mut lists: Vec<CallList> = (0..workers).map(|_| list()).collect();
    let ran = drive.run(trace, &mut lists);
    if !lists.iter().any(CallList::is_full) {
        ran?;
        lists.iter_mut().for_each(CallList::sum_up_untimed);
        if let Some(found) = Groups::new(&lists).heaviest(most) {
            return Ok(found);
        }
    }
    Ok(of_tree(&super::tree(trace, names, drive)?, most))
}

/// The heaviest nodes of a tree.
fn of_tree(tree: &Tree, most: usize) -> Heaviest {
    let all = tree.nodes();
    let mut totals: Vec<_> = all[1..].iter().map(|node| Reverse(node.total)).collect();
    // Nodes with more are found, and some of those with as much.
    let (least, mut some) = match totals.len() > most {
        true => {
            let (above, next, _) = totals.select_nth_unstable(most);
            let is_more = |total: &&Reverse<u64>| total.0 > next.0;
            (next.0, most - above.iter().filter(is_more).count())
        }
        false => (0, most),
    };
    let mut is_found = |node: &Node| match node.total > least {
        true => true,
        false if node.total == least && some > 0 => {
            some -= 1;
            true
        }
        false => false,
    };
    let mut found = Heaviest {
        nodes: vec![Heavy::default()],
        left_out: 0,
    };
    let mut places = vec![None; all.len()];
    places[ROOT as usize] = Some(0);
    for (number, node) in all.iter().enumerate().skip(1) {
        let parent: Option<u32> = places[node.parent as usize];
        if parent == Some(0) {
            found.nodes[0].total = found.nodes[0].total.saturating_add(node.total);
        }
        let Some(parent) = parent.filter(|_| is_found(node)) else {
            found.left_out += node.calls;
            if let Some(parent) = parent {
                let left_out = &mut found.nodes[parent as usize].left_out;
                *left_out = left_out.saturating_add(node.total);
            }
            continue;
        };
        places[number] = Some(found.nodes.len() as u32);
        found.nodes.push(Heavy {
            function: node.function,
            parent,
            calls: node.calls,
            total: node.total,
            own: node.own,
            left_out: 0,
        });
    }
    found
}

/// The calls of a node.
struct Group {
    heavy: Heavy,
    /// Its parent among the groups.
    parent: usize,
    depth: u32,
    members: Range<usize>,
}

/// The nodes that were made from lists of calls.
struct Groups<'a> {
    lists: &'a [CallList<'a>],
    groups: Vec<Group>,
    members: Vec<Member>,
}

impl<'a> Groups<'a> {
    /// The node that is not a call.
    fn new(lists: &'a [CallList<'a>]) -> Groups<'a> {
        let members: Vec<Member> = (0..lists.len()).map(Member::root).collect();
        let root = Group {
            heavy: Heavy::default(),
            parent: 0,
            depth: 0,
            members: 0..members.len(),
        };
        Groups {
            lists,
            groups: vec![root],
            members,
        }
    }

    /// None if the list does not say enough.
    fn heaviest(mut self, most: usize) -> Option<Heaviest> {
        let calls: u64 = self.lists.iter().map(CallList::calls).sum();
        let mut found = Heaviest {
            nodes: Vec::new(),
            left_out: calls,
        };
        let mut places: HashMap<usize, u32> = HashMap::new();
        let mut heap = BinaryHeap::from([(u64::MAX, u64::MAX, Reverse(0))]);
        while let Some((_, _, Reverse(number))) = heap.pop() {
            let parent = self.groups[number].parent;
            let mut heavy = self.groups[number].heavy;
            if number > 0 {
                heavy.parent = places[&parent];
                let above = &mut found.nodes[heavy.parent as usize].left_out;
                *above = above.saturating_sub(heavy.total);
            }
            found.left_out = found.left_out.saturating_sub(heavy.calls);
            places.insert(number, found.nodes.len() as u32);
            let first = self.groups.len();
            self.expand(number)?;
            for (at, group) in self.groups.iter().enumerate().skip(first) {
                heavy.left_out = heavy.left_out.saturating_add(group.heavy.total);
                heap.push((group.heavy.total, group.heavy.calls, Reverse(at)));
            }
            if number == 0 {
                heavy.total = heavy.left_out;
            }
            found.nodes.push(heavy);
            if found.nodes.len() > most {
                break;
            }
        }
        Some(found)
    }

    /// Makes the nodes below one.
    fn expand(&mut self, number: usize) -> Option<()> {
        let Group { depth, members, .. } = &self.groups[number];
        let depth = depth + 1;
        let mut below = Vec::new();
        self.below(&self.members[members.clone()], depth, &mut below)?;
        below.sort_unstable();
        let outer = match number {
            0 => self.outermost(),
            _ => Tree::default(),
        };
        let mut outermost: HashMap<u32, &Node> = HashMap::new();
        outermost.extend(outer.nodes()[1..].iter().map(|node| (node.function, node)));
        let add = |this: &mut Groups, function, members: &[(u32, Member)], node: Option<&Node>| {
            let mut heavy = Heavy {
                function,
                ..Heavy::default()
            };
            if let Some(node) = node {
                (heavy.calls, heavy.total, heavy.own) = (node.calls, node.total, node.own);
            }
            let first = this.members.len();
            for (_, member) in members {
                let call = member.of(this.lists);
                heavy.calls += call.calls;
                heavy.total = heavy.total.saturating_add(call.ticks);
                heavy.own = heavy.own.saturating_add(call.own);
                this.members.push(*member);
            }
            if this.lists.iter().any(|list| list.has_strays(function)) {
                let inside = members.iter().map(|(_, member)| member.inside(this.lists));
                let parts = inside.fold(heavy.own, u64::saturating_add);
                heavy.total = heavy.total.max(parts);
            }
            this.groups.push(Group {
                heavy,
                parent: number,
                depth,
                members: first..this.members.len(),
            });
        };
        for members in below.chunk_by(|one, next| one.0 == next.0) {
            let function = members[0].0;
            let node = outermost.remove(&function);
            add(self, function, members, node);
        }
        // Only the ends of their calls are known.
        let mut others: Vec<&Node> = outermost.into_values().collect();
        others.retain(|node| node.calls + node.timed > 0);
        others.sort_unstable_by_key(|node| node.function);
        for node in others {
            add(self, node.function, &[], Some(node));
        }
        (depth <= DEPTH_LIMIT || self.groups.last()?.depth < depth).then_some(())
    }

    fn outermost(&self) -> Tree {
        let mut sum = Tree::default();
        for list in self.lists {
            sum.add(list.outermost());
        }
        sum
    }

    /// The calls made in some calls of a node, with their functions. Those made in a node all of whose calls are left out
    /// count as made in the node above.
    fn below(&self, members: &[Member], depth: u32, below: &mut Vec<(u32, Member)>) -> Option<()> {
        let first = below.len();
        let mut is_any_left_out = false;
        for member in members {
            for (call, function, is_left_out) in member.callees(self.lists) {
                is_any_left_out |= is_left_out;
                below.push((function, call));
            }
        }
        if !is_any_left_out {
            return Some(());
        }
        let mut own = below.split_off(first);
        own.sort_unstable();
        for group in own.chunk_by(|one, next| one.0 == next.0) {
            if group
                .iter()
                .any(|(_, member)| !member.is_left_out(self.lists))
            {
                below.extend(group);
                continue;
            }
            let deeper = depth + 1;
            let members: Vec<Member> = group.iter().map(|(_, member)| *member).collect();
            (deeper <= DEPTH_LIMIT).then_some(())?;
            self.below(&members, deeper, below)?;
        }
        Some(())
    }
}
