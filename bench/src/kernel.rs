//! nopal's module beside the kernel's own tracers and BPF, each in one boot of a stock kernel: instructions, counted by
//! an emulated processor, and the time to switch on and off.

use crate::programs::Programs;
use crate::run::Paths;
use crate::samples::Samples;
use crate::table::{Bound, Row, Side, columns, markdown, number};
use anyhow::{Context, Result, bail, ensure};
use nopal_tests::kernel::Booted;
use nopal_tests::kernel_cost::{CALLS, Cost, TURNS, boot_cost, costs};
use serde_json::Value;
use std::path::Path;

const SCRIPT: &str = r#"
one=__do_sys_getppid
# Peers that come one by one; a system call meets none of these, nor of the thousands.
many="$one acpi_ev_* acpi_ex_* acpi_ns_*"
thousands="$one a*"
cd /sys/kernel/tracing
echo 8192 >buffer_size_kb

tracing_on() {
	grep -qw $1 available_tracers || { echo "not built into this kernel ($1)" >&2; return 1; }
	tracer=$1
	shift
	for names; do echo "$names" >>set_ftrace_filter || return 1; done
	echo $tracer >current_tracer
}
tracing_off() { echo nop >current_tracer; echo >set_ftrace_filter; }
traced() { grep -vc '^#' set_ftrace_filter; }
traceable() { wc -l <available_filter_functions; }
# Calls in a system call: those that are as often in 1,000.
pairs() {
	echo >trace
	kernel_work ask 1000
	echo 0 >tracing_on
	sed -n 's/.*: \([^ ]*\) <-.*/\1/p; s/.*|  *\([^ (}]*\)().*/\1/p' trace |
		awk '{ calls[$1]++ } END { for (name in calls) sum += int(calls[name] / 1000); print sum }'
	echo 1 >tracing_on
}

definitions() { while read line; do echo "$line" >>dynamic_events; done <$1; }
events_on() {
	definitions $1 2>/dev/null
	[ -d events/bench ] || { definitions $1; return 1; }
	echo 1 >events/bench/enable
}
fprobes_on() {
	grep -q '<func-name>\[%return\]' README || { echo "not built into this kernel (CONFIG_FPROBE_EVENTS)" >&2; return 1; }
	events_on $1
}
events_off() { [ ! -d events/bench ] || { echo 0 >events/bench/enable; echo >dynamic_events; }; }
events() { echo $(($(wc -l <dynamic_events) / ${1:-1})); }
bpf() {
	what=$1
	shift
	before=$(calls)
	if result=$(kernel_bpf "$@" sh -c "kernel_work cost $CALLS >/tmp/during" 2>/tmp/why); then
		set -- $result
		echo "$what;calls;$before;$(cat /tmp/during);$(calls);$2;$3;$1;1" >>/out/costs
	else
		cannot "$what" calls
	fi
}
marked_with() { insmod /nopal_connected.ko probe=$1; }
marked_and() { tell mark test_measured on; marked_with $1; }
marked_no_more() { rmmod nopal_connected; tell mark test_measured off; }

# Their names, of those that have one of their own.
names() {
	for names; do echo "$names" >>set_ftrace_filter; done
	awk 'NR == FNR { times[$3]++; next } times[$1] == 1 { print $1 }' /proc/kallsyms set_ftrace_filter
	echo >set_ftrace_filter
}
names $one >/tmp/one
names $many >/tmp/many
names $thousands >/tmp/thousands
for set in one many; do
	awk 'NR == FNR { wanted[$1]; next } $3 in wanted && !seen[$3]++ { print "0x" $1, $3 }' /tmp/$set /proc/kallsyms |
		while read address name; do
			echo "p:bench/p_$name $address" >>/tmp/kprobes.$set
			echo "r:bench/r_$name $address" >>/tmp/kretprobes.$set
			echo "f:bench/f_$name $name" >>/tmp/fprobes.$set
			echo "f:bench/g_$name $name%return" >>/tmp/fprobes.$set
		done
done

nopal record -o /tmp/all --kernel-functions '*@kernel' -- kernel_work ask 1000 >/dev/null 2>&1
nopal report --json /tmp/all >/out/all.json
rm -rf /tmp/all
tell trace $one new one
tell trace $many new many
tell trace $thousands new thousands
tell trace *@kernel new all
count() { sed -n "/^trace $1 on/{n;s/^#functions \([0-9]*\),.*/\1/p}" /dev/nopal; }

beside() {
	set=$1
	these=$2
	shift 2
	cost "nopal, $these" calls "tell trace $set on" "tell trace $set off" "count $set"
	[ $set = thousands ] || bpf "BPF, fentry and fexit, $these" fentry /tmp/$set
	bpf "BPF, session of kprobes, $these" session /tmp/$set
	if [ $set != thousands ]; then
		cost "fprobe events, entry and exit, $these" calls "fprobes_on /tmp/fprobes.$set" events_off "events 2"
		cost "kretprobe events, $these" calls "events_on /tmp/kretprobes.$set" events_off events
		cost "kprobe events, $these, entry only" calls "events_on /tmp/kprobes.$set" events_off events
	fi
	cost "ftrace function, $these, entry only" calls "tracing_on function $*" tracing_off traced pairs
	cost "ftrace function_graph, $these" calls "tracing_on function_graph $*" tracing_off traced pairs
}
beside one 'one function' $one
beside many hundreds $many
beside thousands thousands $thousands
cost 'nopal, all' calls 'tell trace all on' 'tell trace all off' 'count all'
sed -n 's/^# lost //p' /dev/nopal >/out/lost
cost 'ftrace function, all, entry only' calls 'tracing_on function' tracing_off traceable pairs
cost 'ftrace function_graph, all' calls 'tracing_on function_graph' tracing_off traceable pairs
cost 'cli and sti, nopal tracing irqsoff' sections 'tell tracer irqsoff on' 'tell tracer irqsoff off'
cost 'cli and sti, ftrace irqsoff' sections 'tracing_on irqsoff' tracing_off
sed -n 's/^# longest stop of all processors: \([0-9]*\) ns/\1/p' /dev/nopal >/out/stop

loops >/out/loops
cost 'marker on, recorded' marked 'tell mark test_measured on' 'tell mark test_measured off'
cost '… with an empty probe, not recorded' marked 'marked_with empty' 'rmmod nopal_connected'
cost '… with a probe that takes its values' marked 'marked_with direct' 'rmmod nopal_connected'
cost '… with a probe that parses the format' marked 'marked_with parsing' 'rmmod nopal_connected'
cost '… recorded and with an empty probe' marked 'marked_and empty' marked_no_more
"#;

/// The time of a scheduler's benchmark and of a copy, in microseconds of the guest: thousands of instructions.
const WORKLOADS: &str = r#"
timed() {
	begin=$EPOCHREALTIME
	"$@" >/dev/null 2>&1
	now=$EPOCHREALTIME
	echo $((${now/./} - ${begin/./}))
}
messages() { timed hackbench -g 1 -l 50 -s 100; }
copies() { timed dd if=/dev/zero of=/dev/null bs=512 count=4000; }
both() { for work in messages copies; do cost "$1" $work "$2" "$3"; done; }
tracer() { both "$1" "tell tracer $1 on" "tell tracer $1 off"; }
ftrace() { echo $1 >/sys/kernel/tracing/current_tracer; }
all_on() { tell trace *@kernel new all && tell trace all on; }
all_off() { tell reset; }
echo 8192 >/sys/kernel/tracing/buffer_size_kb
rmmod nopal
both 'tracers off' 'insmod /nopal.ko buffer=128' 'rmmod nopal'
insmod /nopal.ko buffer=128
nopal ctl kernel load >/out/load 2>&1
for tracer in events sched_switch wakeup irqsoff preemptoff preemptirqsoff; do
	tracer $tracer
	tell reset
done
both 'functions, with their ends' all_on all_off
sed -n 's/^# lost //p' /dev/nopal >/out/lost
both "ftrace's function" 'ftrace function' 'ftrace nop'
both "ftrace's function_graph" 'ftrace function_graph' 'ftrace nop'
"#;

/// The times that the first tracers of their kinds for kernels added to hackbench, in percent.
const THEIR_TRACERS: [(&str, &str); 7] = [
    ("events", "3.09"),
    ("sched_switch", "1.43"),
    ("wakeup", "2.79"),
    ("irqsoff", "147"),
    ("preemptoff", "119"),
    ("preemptirqsoff", "280"),
    ("ftrace's function", "501"),
];

/// The bounds, by the names of figures.
const BOUNDS: [(&str, f64); 5] = [
    ("nopal, one function", 70.0),
    ("nopal, hundreds", 70.0),
    ("nopal, thousands", 70.0),
    ("nopal, all", 70.0),
    ("cli and sti, nopal tracing irqsoff", 40.0),
];

/// The cycles in the micro-benchmark of Linux Kernel Markers 0.19.
const THEIRS: [(&str, &str); 3] = [
    ("… with an empty probe, not recorded", "48.1"),
    ("… with a probe that takes its values", "49.0"),
    ("… with a probe that parses the format", "92.2"),
];

fn of<T: Copy>(table: &[(&str, T)], what: &str) -> Option<T> {
    let found = table.iter().find(|(name, _)| *name == what);
    found.map(|(_, value)| *value)
}

/// A table for each kernel that `.ci/packages test` gets.
pub fn measure(paths: &Paths, programs: &Programs) -> Result<()> {
    let program = programs.compile("gcc", "kernel_bpf", "kernel_bpf", &["-std=c17"])?;
    let mut document = String::new();
    let hackbench = Path::new("/usr/bin/hackbench");
    let workloads = boot_cost(WORKLOADS, &[hackbench]);
    for (booted, workloads) in boot_cost(SCRIPT, &[&program]).iter().zip(&workloads) {
        for booted in [booted, workloads] {
            let lost = booted.text("lost");
            ensure!(
                lost.trim() == "0",
                "{}: {} events were lost, which cost more",
                booted.name,
                lost.trim()
            );
        }
        let (tracers, markers): (Vec<_>, Vec<_>) = costs(booted)
            .into_iter()
            .partition(|cost| cost.work != "marked");
        let tables = [
            (&TRACERS[..], self::tracers(booted, &tracers)?),
            (&MARKERS[..], self::markers(booted, &markers)?),
            (&ADDED[..], self::added(&costs(workloads))),
        ];
        for (head, cells) in &tables {
            println!("Linux {}\n\n{}", booted.name, columns(head, cells));
            document += &format!("Linux {}:\n\n{}\n", booted.name, markdown(head, cells));
        }
    }
    let path = paths.directory.join("kernel.md");
    std::fs::write(&path, document).with_context(|| path.display().to_string())
}

const TRACERS: [(&str, Side); 7] = [
    ("what", Side::Left),
    ("functions", Side::Right),
    ("instructions", Side::Right),
    ("bound", Side::Right),
    ("verdict", Side::Left),
    ("on, ms", Side::Right),
    ("off, ms", Side::Right),
];

fn tracers(booted: &Booted, costs: &[Cost]) -> Result<Vec<Vec<String>>> {
    let own_pairs = pairs(&booted.text("all.json"))?;
    let mut table = Vec::new();
    for cost in costs {
        let numbers = match &cost.numbers {
            Ok(numbers) => numbers,
            Err(why) => {
                let mut cells = vec![format!("{}: not available: {why}", cost.what)];
                cells.resize(TRACERS.len(), String::new());
                table.push(cells);
                continue;
            }
        };
        let pairs = match (cost.work.as_str(), cost.what.as_str()) {
            ("calls", "nopal, all") => CALLS * own_pairs,
            ("calls", _) => CALLS * numbers.pairs,
            _ => TURNS,
        };
        let functions = numbers.functions.map(|count| number(count as f64));
        let milliseconds = |microseconds: u64| number(microseconds as f64 / 1e3);
        let times = [numbers.on_microseconds, numbers.off_microseconds].map(milliseconds);
        let line = |row: Row, functions: String, [on, off]: [String; 2]| {
            let [what, instructions, _, bound, verdict, _] = row.cells();
            vec![what, functions, instructions, bound, verdict, on, off]
        };
        let row = Row::once(&cost.what, "", numbers.added(pairs));
        let limit = of(&BOUNDS, &cost.what);
        let row = match limit {
            Some(limit) => row.bound(Bound::AtMost(limit)),
            None => row,
        };
        table.push(line(row, functions.unwrap_or_default(), times));
        if limit.is_some() {
            let left = numbers.after as f64 - numbers.before as f64;
            let row = Row::once("… off again", "", left).bound(Bound::Exactly(0.0));
            table.push(line(row, String::new(), Default::default()));
        }
    }
    let stop = booted.text("stop");
    let stop: f64 = stop.trim().parse().context("the longest stop")?;
    let row = Row::once("nopal, longest stop of all processors", "ms", stop / 1e6);
    let [what, stopped, _, bound, verdict, _] = row.bound(Bound::AtMost(20.0)).cells();
    table.push(vec![
        what,
        String::new(),
        String::new(),
        bound,
        verdict,
        stopped,
        String::new(),
    ]);
    Ok(table)
}

/// The number of recorded pairs for each of a thousand system calls. The program's other calls do not count.
fn pairs(report: &str) -> Result<u64> {
    let rows: Vec<Value> = serde_json::from_str(report).context("nopal report")?;
    let of_kernel = rows.iter().filter(|row| row["module"] == "kernel");
    Ok(of_kernel
        .filter_map(|row| row["calls"].as_u64())
        .map(|calls| calls / 1000)
        .sum())
}

const ADDED: [(&str, Side); 4] = [
    ("what", Side::Left),
    ("hackbench, added %", Side::Right),
    ("dd, added %", Side::Right),
    ("theirs, hackbench, added %", Side::Right),
];

/// A row for both workloads of a tracer.
fn added(costs: &[Cost]) -> Vec<Vec<String>> {
    let percent = |cost: &Cost| match &cost.numbers {
        // The run before follows another program, and begins with colder memory.
        Ok(numbers) => number(100.0 * (numbers.during as f64 / numbers.after as f64 - 1.0)),
        Err(why) => format!("not available: {why}"),
    };
    let row = |pair: &[Cost]| {
        let what = pair[0].what.clone();
        let theirs = of(&THEIR_TRACERS, &what).unwrap_or_default().to_owned();
        [vec![what], pair.iter().map(percent).collect(), vec![theirs]].concat()
    };
    costs.chunks_exact(2).map(row).collect()
}

const MARKERS: [(&str, Side); 5] = [
    ("what, added to a turn of a loop", Side::Left),
    ("instructions", Side::Right),
    ("bound", Side::Right),
    ("verdict", Side::Left),
    ("theirs, cycles", Side::Right),
];

fn markers(booted: &Booted, costs: &[Cost]) -> Result<Vec<Vec<String>>> {
    let loops = booted.text("loops");
    let loops: Result<Vec<f64>, _> = loops.split_whitespace().map(str::parse).collect();
    let [empty, marked, copied, copied_marked] = loops.context("ticks of loops")?[..] else {
        bail!("{}: no ticks of four loops", booted.name);
    };
    let turn = |what, ticks: f64| Row::once(what, "", ticks / TURNS as f64);
    let off = |what, ticks| turn(what, ticks).bound(Bound::Exactly(1.0));
    let mut rows = vec![
        (turn("empty loop, itself", empty), "1.50"),
        (off("marker off", marked - empty), "2.50, generic 1.17"),
        (turn("loop of memcpy of 4 KiB, itself", copied), "1,298"),
        (
            off("marker off, in this loop", copied_marked - copied),
            "0.07, generic 2.12",
        ),
    ];
    for cost in costs {
        let theirs = of(&THEIRS, &cost.what).unwrap_or_default();
        let row = match &cost.numbers {
            Ok(numbers) => Row::once(&cost.what, "", numbers.added(TURNS)),
            Err(why) => Row::new(
                format!("{}: not available: {why}", cost.what),
                "",
                Samples::default(),
            ),
        };
        rows.push((row, theirs));
    }
    let cells = rows.iter().map(|(row, theirs)| {
        let [what, instructions, _, bound, verdict, _] = row.cells();
        vec![what, instructions, bound, verdict, (*theirs).to_owned()]
    });
    Ok(cells.collect())
}
