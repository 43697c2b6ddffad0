//! Flame graphs: a box for each path of calls, as wide as its weight.

use anyhow::{Context, Result, ensure};
use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, Direction, Options};
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{self as folded, write_folded};
use nopal_analysis::graph::{self, Per};
use nopal_analysis::losses;
use nopal_analysis::names::{Names, printable};
use nopal_analysis::waits::Waits;
use nopal_trace::Trace;

use crate::Picture;

/// The look of a flame graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Callers on top, so that stacks hang down like icicles.
    pub icicle: bool,
    pub weight: Weight,
}

/// The meaning of the boxes' widths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    #[default]
    Wall,
    /// The time in functions themselves, which are at the base, with their callers on top.
    Own,
    /// Time on the processor, and off it.
    Cpu,
    Wait,
    Calls,
}

const WHITE: Color = Color {
    r: 255,
    g: 255,
    b: 255,
};

const WITHOUT_WAITS: &str =
    "running and waiting were not recorded: `nopal record -e sched` records them";

/// Boxes narrower than this part of the picture, in percent, are left out.
const NARROWEST: f64 = 0.02;

/// `names` are those of the trace, and of what the calls are told apart `per`.
pub fn draw(trace: &Trace, names: &Names, per: &Per, look: Look, drive: &Drive) -> Result<Picture> {
    let waits = match look.weight {
        Weight::Cpu | Weight::Wait => Some(Waits::new(trace).context(WITHOUT_WAITS)?),
        Weight::Wall | Weight::Own | Weight::Calls => None,
    };
    let drive = &Drive {
        waits: waits.as_ref(),
        ..*drive
    };
    let tree = graph::tree_per(trace, names, per, drive)?;
    let mut folded = Vec::new();
    let mut look = look;
    let fold = |weight, narrowest, folded: &mut Vec<u8>| {
        let least = narrowest / 100.0;
        write_folded(&tree, names, trace.clocks(), weight, least, folded)
    };
    match look.weight {
        Weight::Calls => {}
        Weight::Wall => fold(folded::Weight::Time, NARROWEST, &mut folded)?,
        Weight::Cpu => fold(folded::Weight::Cpu, NARROWEST, &mut folded)?,
        Weight::Wait => {
            fold(folded::Weight::Wait, NARROWEST, &mut folded)?;
            ensure!(!folded.is_empty(), "no call waited");
        }
        // Narrow paths may be of one function.
        Weight::Own => fold(folded::Weight::Time, 0.0, &mut folded)?,
    }
    let untimed = folded.is_empty() && look.weight != Weight::Calls;
    if folded.is_empty() {
        look.weight = Weight::Calls;
        fold(folded::Weight::Calls, NARROWEST, &mut folded)?;
    }
    ensure!(!folded.is_empty(), "no calls were recorded");
    let (unit, factor, meaning) = match look.weight {
        Weight::Wall => ("us", 1e-3, "width: wall-clock time from entry to exit"),
        Weight::Own => (
            "us",
            1e-3,
            "width: self time of the function at the base, by its callers",
        ),
        Weight::Cpu => ("us", 1e-3, "width: time on the processor"),
        Weight::Wait => (
            "us",
            1e-3,
            "width: time off the processor: blocked, preempted, or runnable",
        ),
        Weight::Calls if untimed => (
            "calls",
            1.0,
            "width: calls; only entries were recorded: no durations, and callers are estimated",
        ),
        Weight::Calls => ("calls", 1.0, "width: calls, including nested ones"),
    };
    let are_least = waits.is_some() && tree.waited()[0].total.unknown > 0;
    let meaning = match are_least {
        true => format!("{meaning}, at least: the kernel did not tell when some threads ran again"),
        false => meaning.to_owned(),
    };
    let folded = String::from_utf8(folded).context("a name that is no text")?;
    let mut options = Options::default();
    options.title = printable(&trace.session().command.join(" "));
    options.subtitle = Some(match losses::line(trace) {
        Some(line) => {
            options.title = format!("{}, {meaning}", options.title);
            line
        }
        None => meaning,
    });
    options.name_type = "function:".into();
    options.count_name = unit.into();
    options.factor = factor;
    options.reverse_stack_order = look.weight == Weight::Own;
    options.min_width = NARROWEST;
    options.deterministic = true;
    options.font_type = "monospace".into();
    options.bgcolors = Some(BackgroundColor::Flat(WHITE));
    if look.icicle {
        options.direction = Direction::Inverted;
    }
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
        .context("cannot draw the flame graph")?;
    Ok(Picture { svg })
}
