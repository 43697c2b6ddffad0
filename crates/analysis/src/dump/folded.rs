//! Folded stacks: `main;parse;read 1234`.

use std::io::Write;

use anyhow::Result;
use nopal_trace::Trace;

use super::Lines;
use crate::drive::Drive;
use crate::graph::{self, ROOT};
use crate::names::Names;
use crate::text::push_u64;

/// The weight of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Self time of its last function, in nanoseconds.
    Time,
    Calls,
}

pub fn dump(trace: &Trace, weight: Weight, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let tree = graph::tree(trace, &names, drive)?;
    let mut children = tree.children();
    for children in &mut children {
        children.sort_by_key(|&child| {
            let function = &names.functions()[tree.nodes()[child as usize].function as usize];
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
        let node = &tree.nodes()[number as usize];
        path.truncate(length);
        push_name(&mut path, &names.functions()[node.function as usize].name);
        let value = match weight {
            Weight::Time => trace.clocks().duration_ns(node.own),
            Weight::Calls => node.calls,
        };
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

/// A name must not look like two, or like a line's end.
fn push_name(path: &mut Vec<u8>, name: &str) {
    path.extend(name.bytes().map(|byte| match byte {
        b';' => b':',
        b'\n' | b'\r' => b' ',
        other => other,
    }));
}
