//! The cost of tracers in the kernel: instructions, in a guest that counts them, and the time of switching on and off.

use crate::kernel::{Booted, boot_each};
use std::path::Path;

/// System calls in a run of `calls`: so few that most runs end before the next clock tick.
pub const CALLS: u64 = 250;
/// Turns of a loop with markers, and pairs of cli and sti.
pub const TURNS: u64 = 1000;

/// `cost WHAT WORK ON OFF [FUNCTIONS [PAIRS]]` prints the instructions of WORK before ON, after it, and after OFF, the
/// microseconds that ON and OFF take, the number of functions that are on, and the number of their calls in one turn of
/// WORK. The last three are commands; words of ON and OFF are separated by blanks.
const COST: &str = "
set -f
# Room for all records: no reader takes them.
insmod /nopal.ko buffer=128
insmod /nopal_sections.ko
insmod /nopal_markers.ko
nopal ctl kernel load >/out/load 2>&1
tell() { echo \"$@\" >/dev/nopal || { grep '^# error' /dev/nopal >&2; return 1; }; }
calls() { kernel_work cost $CALLS; }
sections() {
	echo measure $TURNS >/proc/nopal_sections
	dmesg | sed -n 's/.*nopal_sections: \\([0-9]*\\) ticks.*/\\1/p' | tail -n 1
}
# The loops of nopal_markers: empty, marked, copied, copied and marked.
loops() {
	echo measure $TURNS >/proc/nopal_markers
	dmesg | sed -n 's/.*nopal_markers: \\(empty.*\\) ticks/\\1/p' | tail -n 1 | tr -dc '0-9 ' | tr -s ' '
}
marked() { set -- $(loops); echo $(($2 - $1)); }
copied() { set -- $(loops); echo $(($4 - $3)); }
cannot() { echo \"$1;$2;;;;;;;$(head -n 1 /tmp/why)\" >>/out/costs; }
cost() {
	before=$($2)
	begin=$EPOCHREALTIME
	if ! $3 2>/tmp/why; then
		$4 2>/dev/null
		cannot \"$1\" $2
		return
	fi
	is_on=$EPOCHREALTIME
	during=$($2)
	functions=$(${5:-echo})
	pairs=$(${6:-echo 1})
	end=$EPOCHREALTIME
	$4
	is_off=$EPOCHREALTIME
	after=$($2)
	echo \"$1;$2;$before;$during;$after;$((${is_on/./} - ${begin/./}));$((${is_off/./} - ${end/./}));$functions;$pairs\" >>/out/costs
}
";

/// The output of one `cost`.
pub struct Cost {
    pub what: String,
    pub work: String,
    /// The numbers, or the reason why ON failed.
    pub numbers: Result<Numbers, String>,
}

pub struct Numbers {
    pub before: u64,
    pub during: u64,
    pub after: u64,
    pub on_microseconds: u64,
    pub off_microseconds: u64,
    pub functions: Option<u64>,
    pub pairs: u64,
}

impl Numbers {
    /// The instructions by which each of so many turns grows.
    pub fn added(&self, turns: u64) -> f64 {
        (self.during as f64 - self.before as f64) / turns as f64
    }
}

/// The results of a script of `cost`s in each kernel.
pub fn boot_cost(script: &str, programs: &[&Path]) -> Vec<Booted> {
    let script = format!("CALLS={CALLS}\nTURNS={TURNS}\n{COST}{script}");
    boot_each(&script, programs, 1, true)
}

pub fn costs(booted: &Booted) -> Vec<Cost> {
    let cost = |line: &str| {
        let fields: Vec<&str> = line.splitn(9, ';').collect();
        let [what, work, before, during, after, on, off, functions, last] = fields[..] else {
            panic!("{}: {line}", booted.name);
        };
        let number = |text: &str| -> u64 {
            text.parse()
                .unwrap_or_else(|error| panic!("{}: {line}: {error}", booted.name))
        };
        let numbers = || Numbers {
            before: number(before),
            during: number(during),
            after: number(after),
            on_microseconds: number(on),
            off_microseconds: number(off),
            functions: functions.parse().ok(),
            pairs: number(last),
        };
        Cost {
            what: what.to_owned(),
            work: work.to_owned(),
            numbers: match before {
                "" => Err(last.to_owned()),
                _ => Ok(numbers()),
            },
        }
    };
    booted.text("costs").lines().map(cost).collect()
}
