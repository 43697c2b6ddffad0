//! A tree as text.

use std::cmp::Reverse;
use std::io::{self, Write};

use nopal_trace::Clocks;

use super::tree::{Node, ROOT, Tree};
use crate::names::Names;
use crate::off::{CALLS_OFF, WITH_UNTIMED, with_untimed};
use crate::sort;
use crate::text::{bound, bound_count, percent};
use crate::waits::PARTS;

/// The part of a tree that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub depth: usize,
    /// Calls that took a smaller part of all time are left out.
    pub least_percent: f64,
    /// Whether time on and off processors is told apart.
    pub has_waits: bool,
}

impl Default for Shown {
    fn default() -> Shown {
        Shown {
            depth: 64,
            least_percent: 0.0,
            has_waits: false,
        }
    }
}

/// A node to be written, and which of its ancestors have siblings below it.
struct Branch {
    node: u32,
    last: bool,
    bars: Vec<bool>,
}

/// A line for each path: total, its part of all time, self, calls, and the function under its caller. `*` marks
/// functions with calls that did not end, or began before tracing. Without recorded durations, these columns are
/// absent.
pub fn write_tree(
    out: &mut dyn Write,
    tree: &Tree,
    names: &Names,
    clocks: &Clocks,
    shown: Shown,
) -> io::Result<()> {
    let nodes = tree.nodes();
    let all = nodes[ROOT as usize].total;
    let all = if all > 0 {
        all
    } else {
        tree.children()[ROOT as usize]
            .iter()
            .map(|&at| nodes[at as usize].total)
            .sum()
    };
    let mut children = tree.children();
    for children in &mut children {
        sort::by_key(children, |&child| {
            let node = &nodes[child as usize];
            (
                Reverse(node.total),
                Reverse(node.calls),
                &names.functions()[node.function as usize].name,
            )
        });
    }
    let enough =
        |node: u32| nodes[node as usize].total as f64 * 100.0 >= shown.least_percent * all as f64;
    // `≥` and `†` take two columns each.
    let has = |is: fn(&Node) -> bool| nodes.iter().any(is);
    let has_untimed = has(|node| node.own_with_untimed);
    let width = match has(|node| node.own_is_least) {
        true => 10,
        false => 8,
    } + 2 * usize::from(has_untimed);
    let waited = match shown.has_waits {
        true => tree.waited(),
        false => Vec::new(),
    };
    let parts = |cpu: String, wait: String| match shown.has_waits {
        true => format!("  {cpu:>width$}  {wait:>width$}"),
        false => String::new(),
    };
    writeln!(
        out,
        "{:>width$}  {:>7}  {:>width$}{}  {:>10}  function",
        "total",
        "of all",
        "self",
        parts(PARTS[0].into(), PARTS[1].into()),
        "calls"
    )?;
    let mut left: Vec<Branch> = Vec::new();
    let push = |left: &mut Vec<Branch>, node: u32, bars: Vec<bool>| {
        let chosen: Vec<u32> = children[node as usize]
            .iter()
            .copied()
            .filter(|&child| enough(child))
            .collect();
        let branches = chosen.iter().enumerate();
        let branches = branches.map(|(at, &node)| Branch {
            node,
            last: at + 1 == chosen.len(),
            bars: bars.clone(),
        });
        left.extend(branches.rev());
    };
    push(&mut left, ROOT, Vec::new());
    while let Some(Branch {
        node: number,
        last,
        mut bars,
    }) = left.pop()
    {
        let node = &nodes[number as usize];
        let time = |ticks, is_least| match node.timed > 0 || ticks > 0 {
            true => bound(clocks.duration_ns(ticks), is_least),
            false => "-".to_string(),
        };
        let total = time(node.total, node.total_is_least);
        let own = with_untimed(time(node.own, node.own_is_least), node.own_with_untimed);
        let waited = waited.get(number as usize).copied().unwrap_or_default();
        let of_total = waited.total.parts_of(node.total);
        let [cpu, wait] = of_total.cells(node.total_is_least, time);
        let parts = parts(cpu, wait);
        let mark = if node.unfinished > 0 { " *" } else { "" };
        let mut indent = String::new();
        if node.depth > 1 {
            indent.extend(bars.iter().map(|&bar| if bar { "│  " } else { "   " }));
            indent.push_str(if last { "└─ " } else { "├─ " });
            bars.push(!last);
        }
        let part = match node.timed > 0 || node.total > 0 {
            true => percent(node.total, all),
            false => "-".to_string(),
        };
        let name = &names.functions()[node.function as usize].name;
        writeln!(
            out,
            "{total:>width$}  {part:>7}  {own:>width$}{parts}  {:>10}  {indent}{name}{mark}",
            bound_count(node.calls, node.was_off)
        )?;
        if (node.depth as usize) < shown.depth {
            push(&mut left, number, bars);
        } else if !children[number as usize].is_empty() {
            indent.clear();
            indent.extend(bars.iter().map(|&bar| if bar { "│  " } else { "   " }));
            let width = 26 + 2 * width + parts.len();
            writeln!(out, "{:width$}{indent}…", "")?;
        }
    }
    if has(|node| node.was_off) {
        writeln!(out, "{CALLS_OFF}")?;
    }
    if has_untimed {
        writeln!(out, "{WITH_UNTIMED}")?;
    }
    if tree.has_estimated_callers() {
        writeln!(out, "- no durations: callers are estimated")?;
    }
    if nodes.iter().any(|node| node.unfinished > 0) {
        writeln!(
            out,
            "* includes calls whose begin or end is not known: they count for the time in which they are known to have run; ≥ may be more"
        )?;
    }
    Ok(())
}
