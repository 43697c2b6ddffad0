//! Flame graphs: a box for each path of calls, as wide as its weight.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, Direction, Options};
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{self as folded, write_folded};
use nopal_analysis::graph::{self, Per};
use nopal_analysis::losses;
use nopal_analysis::names::{Names, printable};
use nopal_analysis::text::{count, duration};
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

/// The stacks of an older trace, with which those of another are compared.
pub struct Old {
    folded: String,
    /// The user's name for it.
    name: String,
    losses: Option<String>,
}

impl Old {
    /// The stacks with the weights of a picture of this look.
    pub fn new(
        name: &str,
        trace: &Trace,
        names: &Names,
        per: &Per,
        look: Look,
        drive: &Drive,
    ) -> Result<Old> {
        let waits = waits(trace, look)?;
        let drive = &Drive {
            waits: waits.as_ref(),
            ..*drive
        };
        let tree = graph::tree_per(trace, names, per, drive)?;
        let weight = match look.weight {
            Weight::Wall | Weight::Own => folded::Weight::Time,
            Weight::Cpu => folded::Weight::Cpu,
            Weight::Wait => folded::Weight::Wait,
            Weight::Calls => folded::Weight::Calls,
        };
        let mut folded = Vec::new();
        write_folded(&tree, names, trace.clocks(), weight, 0.0, &mut folded)?;
        ensure!(
            !folded.is_empty(),
            "nothing in {name} has such a weight; --by calls compares numbers of calls"
        );
        Ok(Old {
            folded: String::from_utf8(folded).context("a name that is no text")?,
            name: printable(name),
            losses: losses::line_of(trace, drive.filter),
        })
    }

    /// Lines with both weights, for differential flame graphs, and the weight of stacks that the new trace lacks.
    fn beside(&self, new: &str) -> (String, u64) {
        let mut stacks: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for (side, lines) in [&self.folded, new].into_iter().enumerate() {
            let lines = lines.lines().filter_map(|line| line.rsplit_once(' '));
            for (stack, weight) in lines {
                stacks.entry(stack).or_default()[side] += weight.parse().unwrap_or(0);
            }
        }
        let gone = stacks.values().filter(|[_, new]| *new == 0);
        let gone = gone.map(|[old, _]| old).sum();
        let lines = stacks.iter();
        let lines = lines.map(|(stack, [old, new])| format!("{stack} {old} {new}\n"));
        (lines.collect(), gone)
    }
}

fn waits(trace: &Trace, look: Look) -> Result<Option<Waits>> {
    Ok(match look.weight {
        Weight::Cpu | Weight::Wait => Some(Waits::new(trace).context(WITHOUT_WAITS)?),
        Weight::Wall | Weight::Own | Weight::Calls => None,
    })
}

/// `names` are those of the trace, and of what the calls are grouped `per`. With an old trace, colours show the change.
pub fn draw(
    trace: &Trace,
    names: &Names,
    per: &Per,
    look: Look,
    old: Option<&Old>,
    drive: &Drive,
) -> Result<Picture> {
    let waits = waits(trace, look)?;
    let drive = &Drive {
        waits: waits.as_ref(),
        ..*drive
    };
    let tree = graph::tree_per(trace, names, per, drive)?;
    let mut folded = Vec::new();
    let mut look = look;
    let fold = |weight, narrowest, folded: &mut Vec<u8>| {
        // A stack that is narrow in one trace may not be so in the other.
        let least = if old.is_some() {
            0.0
        } else {
            narrowest / 100.0
        };
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
        // Narrow paths may end in one function, whose box is wide.
        Weight::Own => fold(folded::Weight::Time, 0.0, &mut folded)?,
    }
    let untimed = folded.is_empty() && look.weight != Weight::Calls;
    ensure!(
        !untimed || old.is_none(),
        "only entries were recorded; --by calls compares numbers of calls"
    );
    if folded.is_empty() {
        look.weight = Weight::Calls;
        fold(folded::Weight::Calls, NARROWEST, &mut folded)?;
    }
    ensure!(
        !folded.is_empty(),
        "no calls were recorded{}",
        losses::reason(trace, drive.filter)
    );
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
            "width: calls; only entries were recorded: no durations",
        ),
        Weight::Calls => ("calls", 1.0, "width: calls, including nested ones"),
    };
    let are_least = waits.is_some() && tree.waited()[0].total.unknown > 0;
    let meaning = match are_least {
        true => format!("{meaning}, at least: the kernel did not tell when some threads ran again"),
        false => meaning.to_owned(),
    };
    let meaning = match tree.has_estimated_callers() {
        true => format!("{meaning}; callers of which only entries were recorded are estimated"),
        false => meaning,
    };
    let mut folded = String::from_utf8(folded).context("a name that is no text")?;
    let mut meaning = meaning;
    if let Some(old) = old {
        let (both, gone) = old.beside(&folded);
        folded = both;
        let what = if look.weight == Weight::Calls {
            "calls"
        } else {
            "self time"
        };
        let gone = match look.weight {
            Weight::Calls => count(gone),
            _ => duration(gone),
        };
        meaning = format!(
            "{meaning}; red: more {what} than in {}, blue: less; stacks that are no more had {gone}",
            old.name
        );
    }
    let mut options = Options::default();
    options.title = printable(&trace.session().command.join(" "));
    let old_losses = old.and_then(|old| Some(format!("{}: {}", old.name, old.losses.as_ref()?)));
    let lines: Vec<String> = losses::line_of(trace, drive.filter)
        .into_iter()
        .chain(old_losses)
        .collect();
    options.subtitle = Some(match lines.is_empty() {
        false => {
            let line = lines.join("; ");
            options.title = format!("{}, {meaning}", options.title);
            line
        }
        true => meaning,
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
