//! The tracers that can be measured here.

use super::tracer::Tracer;
use super::{frida, lttng, nopal, uftrace, uprobes, xray};
use crate::programs::Programs;
use crate::run::Paths;
use anyhow::Result;

/// A tracer that cannot be measured.
pub struct Missing {
    pub name: &'static str,
    pub why: String,
}

pub fn all<'a>(
    paths: &'a Paths,
    programs: &'a Programs,
) -> Vec<Result<Box<dyn Tracer + 'a>, Missing>> {
    let mut made: Vec<Result<Box<dyn Tracer + 'a>, Missing>> = Vec::new();
    let mut put = |name, tracer: Result<Box<dyn Tracer + 'a>>| {
        let missing = |error: anyhow::Error| Missing {
            name,
            why: format!("{error:#}"),
        };
        made.push(tracer.map_err(missing));
    };
    put(nopal::NAME, nopal::new(paths, programs));
    put(uftrace::COMPILED, uftrace::compiled(paths, programs));
    put(uftrace::PATCHED, uftrace::patched(paths, programs));
    put(xray::NAME, xray::new(paths, programs));
    put(lttng::NAME, lttng::new(paths, programs));
    put(frida::C, frida::new(programs, frida::C));
    put(frida::SCRIPT, frida::new(programs, frida::SCRIPT));
    put(uprobes::NAME, uprobes::new(paths, programs));
    put(uprobes::BPF, uprobes::bpf(programs));
    made
}
