//! Folded stacks: `main;parse;read 1234`.

use std::io::Write;

use anyhow::Result;
use nopal_trace::{Clocks, Trace};

use super::Lines;
use crate::drive::Drive;
use crate::graph::{self, Node, ROOT, Tree};
use crate::names::Names;
use crate::sort;
use crate::text::push_u64;

/// The weight of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Self time of its last function, in nanoseconds.
    Time,
    /// The part of that on the processor, and off it.
    Cpu,
    Wait,
    Calls,
}

pub fn dump(trace: &Trace, weight: Weight, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let tree = graph::tree(trace, &names, drive)?;
    write(&tree, &names, trace.clocks(), weight, 0.0, out)
}

/// Writes the paths of a tree. Paths whose functions all weigh less than this part of all count for the callers that
/// weigh more.
pub fn write(
    tree: &Tree,
    names: &Names,
    clocks: &Clocks,
    weight: Weight,
    least: f64,
    out: &mut dyn Write,
) -> Result<()> {
    let nodes = tree.nodes();
    let waited = match weight {
        Weight::Cpu | Weight::Wait => tree.waited(),
        Weight::Time | Weight::Calls => Vec::new(),
    };
    let parts = |number: usize| waited[number].own.parts_of(nodes[number].own);
    let weigh = |(number, node): (usize, &Node)| match weight {
        Weight::Time => clocks.duration_ns(node.own),
        Weight::Cpu => clocks.duration_ns(parts(number).cpu),
        Weight::Wait => clocks.duration_ns(parts(number).wait),
        Weight::Calls => node.calls,
    };
    let mut own: Vec<u64> = nodes.iter().enumerate().map(weigh).collect();
    let shown = shown(nodes, &mut own, least);
    let mut children = vec![Vec::new(); nodes.len()];
    for (number, node) in (1..).zip(&nodes[1..]) {
        if shown[number as usize] {
            children[node.parent as usize].push(number);
        }
    }
    for children in &mut children {
        sort::by_key(children, |&child: &u32| {
            let function = &names.functions()[nodes[child as usize].function as usize];
            std::cmp::Reverse((&function.name, &function.module))
        });
    }
    let mut lines = Lines::new(out);
    let mut path: Vec<u8> = Vec::new();
    let mut left: Vec<(u32, usize)> = children[ROOT as usize]
        .iter()
        .map(|&child| (child, 0))
        .collect();
    while let Some((number, length)) = left.pop() {
        let node = &nodes[number as usize];
        path.truncate(length);
        push_name(&mut path, &names.functions()[node.function as usize].name);
        let value = own[number as usize];
        if value > 0 {
            lines.text.extend_from_slice(&path);
            lines.text.push(b' ');
            push_u64(&mut lines.text, value);
            lines.end_line()?;
        }
        path.push(b';');
        left.extend(
            children[number as usize]
                .iter()
                .map(|&child| (child, path.len())),
        );
    }
    Ok(lines.flush()?)
}

/// The nodes that weigh enough with all below them. The weights of the others go to their parents.
fn shown(nodes: &[Node], own: &mut [u64], least: f64) -> Vec<bool> {
    let mut shown = vec![true; nodes.len()];
    if least == 0.0 {
        return shown;
    }
    let mut all = own.to_vec();
    for number in (1..nodes.len()).rev() {
        let parent = nodes[number].parent as usize;
        all[parent] = all[parent].saturating_add(all[number]);
    }
    let least = all[ROOT as usize] as f64 * least;
    for number in (1..nodes.len()).rev() {
        if (all[number] as f64) < least {
            shown[number] = false;
            let parent = nodes[number].parent as usize;
            own[parent] = own[parent].saturating_add(own[number]);
        }
    }
    shown
}

/// A name must not look like two, or like a line's end.
fn push_name(path: &mut Vec<u8>, name: &str) {
    path.extend(name.bytes().map(|byte| match byte {
        b';' => b':',
        b'\n' | b'\r' => b' ',
        other => other,
    }));
}
