//! Everything that can interfere: other tracers, livepatches, hostile writers, killed tools, a kernel that is locked down.

use nopal_tests::c;
use nopal_tests::kernel::{Booted, boot_each, commands, is_torture, number_after, row};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

const BESIDE: &str = "
insmod /nopal_sections.ko
cd /sys/kernel/tracing
graph() { echo __do_sys_getppid >set_graph_function; echo function_graph >current_tracer; }
# A call that ends on the other processor has a second line, with its name and without parentheses.
no_graph() { grep -c 'sys_getppid()' trace; echo nop >current_tracer; echo >set_graph_function; }
probes() {
	echo 'p:entered __do_sys_getppid' >kprobe_events
	echo 'r:returned __do_sys_getppid' >>kprobe_events
	if echo 'f:fentered __do_sys_getppid' >>dynamic_events; then
		echo 'f:freturned __do_sys_getppid%return' >>dynamic_events
		echo 1 >events/fprobes/enable
	fi 2>/dev/null
	echo 1 >events/kprobes/enable
}
no_probes() {
	for event in entered returned fentered freturned; do grep -c \" $event: \" trace; done
	[ -d events/fprobes ] && echo 0 >events/fprobes/enable
	echo 0 >events/kprobes/enable
	echo >dynamic_events
	echo >trace
}
functions() { echo __do_sys_getppid >set_ftrace_filter; echo function >current_tracer; }
no_functions() { grep -c sys_getppid trace; echo nop >current_tracer; echo >set_ftrace_filter; }
# Text that the kernel leaves changed after its own tracers does not count as changed by nopal.
for other in graph probes functions; do
	step without: $other
	$other
	no_$other >/dev/null
done
kernel_text /tmp/text.before
cd /tmp

insmod /nopal.ko
say load nopal ctl kernel load
tell() { echo \"$@\" >/dev/nopal || cat /dev/nopal >>/out/tell.failed; }
sites() { grep -E '^# (sites:|not seen,) ' /dev/nopal; }
# The worst case, read as a whole before another program starts.
worst() {
	exec 3</dev/nopal_latency
	read -r first <&3
	{ echo \"$first\"; cat <&3; } >$1
	exec 3<&-
}
cases() {
	exec 3</dev/nopal
	read -r first <&3
	sed -n \"s/^# $1: \\([0-9]*\\) cases.*/\\1/p\" <&3
	exec 3<&-
}
sections() {
	tracer=$1
	shift
	tell tracer $tracer on
	if [ $tracer = preemptirqsoff ]; then
		sites >/out/sites.with
		rmmod nopal_sections
		sites >/out/sites.without
		insmod /nopal_sections.ko
		sites >/out/sites.again
	fi
	for kind in \"$@\"; do
		for length in 200 2000 5000; do
			told=0
			step $tracer $kind $length
			# A longer section on the same processor hides it: when the machine stood still, for example. The first line
			# read makes the whole state, without a program start in between.
			for try in $(seq 40); do
				tell tracer $tracer reset
				echo $kind $length >/proc/nopal_sections
				exec 3</dev/nopal
				read -r first <&3
				echo \"case $tracer $kind $length $(cat /proc/nopal_sections)\"
				grep -A3 \"^# $tracer: \" <&3 >/tmp/told
				exec 3<&-
				cat /tmp/told
				grep -q \" from .*$kind+.* to \" /tmp/told && told=$((told + 1))
				[ $told = 2 ] && break
			done
		done
	done
	for case in irqsoff/within_interrupt/switch_irqs_off irqsoff/within_interrupt_of_softirq/switch_irqs_off \\
		preemptoff/within_softirq/softirq preemptoff/switch_preemption_off/switch_preemption_off; do
		[ $tracer = ${case%%/*} ] || continue
		kind=${case#*/}
		from=${kind#*/}
		kind=${kind%/*}
		for try in $(seq 40); do
			tell tracer $tracer reset
			echo $kind 5000 >/proc/nopal_sections
			worst /out/flags.$kind
			grep -q \"=> started at: .*$from\" /out/flags.$kind && break
		done
	done
	[ $tracer = irqsoff ] && { cases $tracer; kernel_work fault 20000; cases $tracer; } >/out/faults
	tell tracer $tracer off
}
of_irqs='lock_with_irqs_off switch_irqs_off nest_irqs_off'
of_preemption='lock_with_preemption_off switch_preemption_off nest_preemption_off lock_with_softirqs_off'
sections irqsoff $of_irqs >/out/irqsoff
sections preemptoff $of_preemption >/out/preemptoff
sections preemptirqsoff $of_irqs $of_preemption overlap >/out/preemptirqsoff
step latency_trace
tell tracer preemptirqsoff on
cat /dev/nopal_latency >/out/latency_trace
nopal ctl kernel load >/dev/null
tell trace wait_for@nopal_sections new waits
tell trace waits on
for try in $(seq 40); do
	tell tracer preemptirqsoff reset
	echo nest_irqs_off 5000 >/proc/nopal_sections
	exec 3</dev/nopal_latency
	read -r first <&3
	echo verbose >/dev/nopal_latency
	exec 4</dev/nopal_latency
	read -r second <&4
	echo noverbose >/dev/nopal_latency
	{ echo \"$first\"; cat <&3; } >/out/latency.functions
	{ echo \"$second\"; cat <&4; } >/out/latency.verbose
	exec 3<&- 4<&-
	grep -q ': wait_for' /out/latency.functions && grep -q ': wait_for' /out/latency.verbose && break
done
say latency.refused sh -c 'echo frobnicate >/dev/nopal_latency'
{ cases preemptirqsoff; tell tracer preemptirqsoff reset; cases preemptirqsoff; } >/out/reset.cases
echo histogram >/dev/nopal_latency
{ cases preemptirqsoff; cat /dev/nopal_latency; cases preemptirqsoff; } >/out/histogram
echo nohistogram >/dev/nopal_latency
say latency.none nopal ctl kernel 'latency none'
say latency.chosen nopal ctl kernel 'latency irqsoff'
tell latency preemptirqsoff
step thresholds
for threshold in 4000000000 1000 0; do
	tell threshold $threshold
	tell tracer preemptirqsoff reset
	echo nest_irqs_off 5000 >/proc/nopal_sections
	grep -E '^(threshold|# preemptirqsoff:) ' /dev/nopal
done >/out/thresholds
tell trace waits remove
step wakeup
# The kernel has its own urgent tasks: its events show how many woke.
events=/sys/kernel/tracing/instances/urgent
mkdir $events
for event in sched_wakeup sched_wakeup_new; do
	echo 'prio < 120' >$events/events/sched/$event/filter
	echo 1 >$events/events/sched/$event/enable
done
tell tracer wakeup on
tell tracer wakeup reset
kernel_work ask 300000 &
kernel_work urgent 50
cat /dev/nopal >/out/wakeup
grep -c sched_wakeup $events/trace >/out/woken
rmdir $events
wait
tell reset
tell tracer preemptirqsoff off
tell tracer wakeup off

cd /sys/kernel/tracing
asks() {
	name=$1
	step $name first
	kernel_work ask 1000
	say beside_$name nopal record -o /tmp/beside --kernel-functions '*sys_getppid' -- kernel_work ask 1000
	say beside_$name.report nopal report --json /tmp/beside
	rm -rf /tmp/beside
}
mine_first() {
	step $1 after
	nopal ctl kernel 'trace *sys_getppid new mine' 'trace mine on'
	\"$@\"
	kernel_work ask 100
	nopal ctl kernel reset
	kernel_work ask 100
}
for other in graph probes functions; do
	$other
	asks $other
	no_$other >/out/$other.after
	mine_first $other
	no_$other >/out/$other.first
done
cd /tmp
say perf_inside nopal record -o /tmp/beside --kernel-functions '*sys_getppid' -- kernel_work count 1000
say perf_inside.report nopal report --json /tmp/beside
rm -rf /tmp/beside
echo __do_sys_getppid >/tmp/one
for kind in fentry session; do
	say ${kind}_first kernel_bpf $kind /tmp/one nopal record -o /tmp/beside --kernel-functions '*sys_getppid' -- kernel_work ask 1000
	say ${kind}_first.report nopal report --json /tmp/beside
	rm -rf /tmp/beside
	nopal ctl kernel 'trace *sys_getppid new mine' 'trace mine on'
	say ${kind}_after kernel_bpf $kind /tmp/one kernel_work ask 1000
	kernel_work ask 100
	sed -n 's/^#traceinhits //p' /dev/nopal >/out/${kind}_after.entries
	nopal ctl kernel reset
done
tell tracer wakeup on
tell tracer wakeup reset
cat /dev/nopal >/out/cyclictest.before
say cyclictest cyclictest -t1 -p 90 -i 2000 -l 300 -q
cat /dev/nopal >/out/cyclictest.state
tell tracer wakeup off
# perf traces before the functions are inserted, and after.
step perf_around
kernel_work count 300000 >/out/perf_around &
for times in 1 2 3; do
	nopal ctl kernel 'trace *sys_getppid new mine' 'trace mine on'
	nopal ctl kernel reset
done
wait

patched() { until grep -q livepatched /proc/cmdline; do usleep 10000; done; }
unpatched() {
	echo 0 >/sys/kernel/livepatch/nopal_livepatch/enabled
	until rmmod nopal_livepatch 2>/dev/null; do usleep 10000; done
	cat /proc/cmdline
}
shows() {
	say livepatch_$1 nopal record -o /tmp/shown --kernel-functions cmdline_proc_show -- cat /proc/cmdline
	say livepatch_$1.report nopal report --json /tmp/shown
	rm -rf /tmp/shown
}
step livepatch after
nopal ctl kernel 'trace cmdline_proc_show new shown' 'trace shown on'
insmod /nopal_livepatch.ko && patched
entries() { sed -n 's/^#traceinhits //p' /dev/nopal; }
{ entries; cat /proc/cmdline /proc/cmdline; entries; } >/out/livepatch.replaced
unpatched >/out/livepatch.first 2>&1
nopal ctl kernel reset
step livepatch first
insmod /nopal_livepatch.ko
patched
shows during
step livepatch goes
unpatched >/out/livepatch.after 2>&1
shows after

seed=$(cut -c1-8 /proc/sys/kernel/random/uuid)
echo $seed >/out/seed
for number in 1 2 3; do
	step hostile $((0x$seed + number))
	kernel_work hostile $((0x$seed + number)) || echo $number >>/out/hostile.failed
done
step meddle $((0x$seed))
kernel_work meddle $((0x$seed)) || echo meddle >>/out/hostile.failed
tell reset

# Kills until none is left: killall misses a process that is forked meanwhile.
no_work() {
	for wait in $(seq 500); do
		killall -KILL kernel_work 2>/dev/null || break
		usleep 10000
	done
}

# The tool dies while it records.
step killed
nopal record -o /tmp/killed --kernel-functions 'vfs_*' -- kernel_work sleep 600 >/dev/null 2>&1 &
tool=$!
for wait in $(seq 1500); do
	grep -q '^trace .* on' /dev/nopal && break
	usleep 20000
done
cat /dev/nopal >/out/killed.recording
kill -KILL $tool
for wait in $(seq 500); do
	grep -q '^trace' /dev/nopal || break
	usleep 20000
done
cat /dev/nopal >/out/killed.after
wc -c </dev/nopal_trace >/out/killed.left
no_work
rm -rf /tmp/killed

# The tool dies while it starts, while it records, and while it ends.
moment() { usleep $((0x$(cut -c1-4 /proc/sys/kernel/random/uuid) * $1)); }
until_recording() {
	for wait in $(seq 3000); do
		grep -q '^trace .* on' /dev/nopal && break
		usleep 10000
	done
}
# The tool may have ended before its moment: then there is another try.
kill_once() {
	times=30000
	[ $1 = 2 ] && times=1000
	nopal record -o /tmp/killed --kernel-functions 'vfs_*' -- kernel_work pipe $times >/dev/null 2>&1 &
	tool=$!
	case $1 in
	0) moment 40 ;;
	1) until_recording; moment 10 ;;
	2) until_recording; for wait in $(seq 3000); do killall -0 kernel_work || break; done; usleep $((number * 500)) ;;
	esac
	traces=$(grep -c '^trace .* on' /dev/nopal)
	kill -KILL $tool && echo $1 $traces >>/out/killed.when
	killed=$?
	for wait in $(seq 500); do
		grep -q '^trace' /dev/nopal || break
		usleep 20000
	done
	no_work
	rm -rf /tmp/killed
	return $killed
}
for number in $(seq KILLS); do
	step killed $number
	for try in $(seq 5); do
		kill_once $((number % 3)) && break
	done
done >/dev/null 2>&1
cat /dev/nopal >/out/killed.state

while :; do kernel_work fork 5; kernel_work pipe 50; usleep 300000; done >/out/load.failed 2>&1 &
load=$!
step under load
tell reset
rmmod nopal
as_before
for number in $(seq WHOLE); do
	step all functions under load $number
	insmod /nopal.ko && nopal ctl kernel load >/dev/null && nopal ctl kernel 'trace * new all' 'trace all on' && rmmod nopal || echo $number
done >/out/reload 2>&1
step uniform
insmod /nopal.ko && nopal ctl kernel load >/dev/null && nopal ctl kernel 'trace vfs_write new written' 'trace written on' reset \
	'trace vfs_write new written' 'trace written on' \\
	stop 'uniform on' start || echo uniform >>/out/reload
kernel_work pipe 2
tell stop
cat /dev/nopal >/out/uniform.state
cat /dev/nopal_trace >/out/uniform.trace
rmmod nopal || echo uniform >>/out/reload
for number in $(seq LOADS); do
	step loaded under load $number
	insmod /nopal.ko && echo tracer preemptirqsoff on >/dev/nopal && rmmod nopal || echo $number
done >>/out/reload 2>&1
kill $load
step plans
insmod /nopal.ko
insmod /nopal_leaves.ko
kernel_plans >/out/plans
rmmod nopal nopal_leaves
step locked
dmesg >/out/kernel.log

insmod /nopal.ko
nopal ctl kernel load >/dev/null
tell trace vfs_read new reads
stat -c %a /dev/nopal /dev/nopal_trace /dev/nopal_latency >/out/modes
chmod 666 /dev/nopal /dev/nopal_trace /dev/nopal_latency
say unprivileged kernel_work unprivileged 1000
mount -t securityfs securityfs /sys/kernel/security
echo confidentiality >/sys/kernel/security/lockdown
say locked nopal ctl kernel
rmmod nopal
say unsigned insmod /nopal.ko
say locked_out nopal ctl kernel
";

pub fn beside() -> &'static [Booted] {
    static BOOTED: OnceLock<Vec<Booted>> = OnceLock::new();
    BOOTED.get_or_init(|| {
        // The script itself makes one more load.
        let (kills, whole, loads) = if is_torture() {
            ("50", "2", "97")
        } else {
            ("3", "1", "8")
        };
        let script = BESIDE
            .replace("KILLS", kills)
            .replace("WHOLE", whole)
            .replace("LOADS", loads);
        let bpf = c("../../bench/programs/kernel_bpf", &[]);
        let plans = c("kernel_plans", &[]);
        let programs = [&bpf.path, &plans.path, Path::new("/usr/bin/cyclictest")];
        boot_each(&script, &programs, 2, false)
    })
}

#[test]
fn while_all_functions_are_as_slow_only_those_of_traces_are_told() {
    for booted in beside() {
        let state = booted.text("uniform.state");
        assert!(state.contains("\nuniform on\n"), "{}: {state}", booted.name);
        let begin = state
            .lines()
            .find_map(|line| line.strip_prefix("#trace "))
            .and_then(|line| line.split(' ').next());
        let begin = begin.unwrap_or_else(|| panic!("{}: {state}", booted.name));
        let trace = booted.text("uniform.trace");
        let places = |letter: &str| -> BTreeSet<&str> {
            let lines = trace.lines().map(|line| line.split(' '));
            let lines = lines.filter_map(|mut words| {
                (words.next() == Some(letter)).then(|| words.next().expect("a place"))
            });
            lines.collect()
        };
        assert_eq!(places("E"), BTreeSet::from([begin]), "{}", booted.name);
        assert_eq!(places("X").len(), 1, "{}: {trace}", booted.name);
        let queued = number_after(&state, "in queue ");
        assert!(queued > 0, "{}: {state}", booted.name);
        assert_eq!(trace.lines().count() as u64, queued, "{}", booted.name);
    }
}

#[test]
fn the_module_is_for_those_who_may_use_perf_and_addresses_for_those_who_may_see_them() {
    for booted in beside() {
        let expected = [
            "open by CAP_SYS_ADMIN permitted",
            "open permitted",
            "addresses hidden",
            "sites Operation not permitted",
            "verdicts Operation not permitted",
            "map Operation not permitted",
            "trace Operation not permitted",
            "open without Operation not permitted",
            "latency without Operation not permitted",
        ];
        assert_eq!(booted.text("modes"), "600\n400\n600\n", "{}", booted.name);
        let shown = booted.said("unprivileged");
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            expected,
            "{}",
            booted.name
        );
    }
}

#[test]
fn a_kernel_that_is_locked_down_is_refused_with_what_to_do() {
    for booted in beside() {
        for (name, words) in [
            ("locked", "locked down for confidentiality"),
            ("unsigned", "can't insert"),
            (
                "locked_out",
                "sign nopal.ko with the kernel's scripts/sign-file, enrol the key by mokutil --import",
            ),
        ] {
            let shown = booted.text(name);
            assert!(shown.contains(words), "{}: {shown}", booted.name);
            assert_ne!(
                booted.text(&format!("{name}.status")).trim(),
                "0",
                "{}",
                booted.name
            );
        }
    }
}

#[test]
fn other_tracers_of_the_same_function_see_all_calls_in_either_order() {
    for booted in beside() {
        let has_fprobe = !booted.name.starts_with("6.1.");
        for other in ["graph", "probes", "functions"] {
            booted.said(&format!("beside_{other}"));
            let report = booted.said(&format!("beside_{other}.report"));
            let asked = row(&report, "__do_sys_getppid");
            assert_eq!(
                (&asked["calls"], &asked["unfinished"]),
                (&1000.into(), &0.into()),
                "{}: {other}",
                booted.name
            );
            for (order, calls) in [("after", 2000), ("first", 200)] {
                let hits = booted.text(&format!("{other}.{order}"));
                let hits: Vec<u64> = hits
                    .lines()
                    .map(|line| line.parse().expect("a number"))
                    .collect();
                let expected = match other {
                    "probes" if has_fprobe => vec![calls; 4],
                    "probes" => vec![calls, calls, 0, 0],
                    _ => vec![calls],
                };
                assert_eq!(hits, expected, "{}: {other} {order}", booted.name);
            }
        }
    }
}

#[test]
fn probes_of_perf_see_all_calls_in_either_order() {
    for booted in beside() {
        let inside = booted.said("perf_inside");
        assert!(
            inside.starts_with("1000 1000\n"),
            "{}: {inside}",
            booted.name
        );
        let asked = row(&booted.said("perf_inside.report"), "__do_sys_getppid");
        assert_eq!(
            (&asked["calls"], &asked["unfinished"]),
            (&1000.into(), &0.into()),
            "{}",
            booted.name
        );
        assert_eq!(
            booted.text("perf_around"),
            "300000 300000\n",
            "{}",
            booted.name
        );
    }
}

/// One at both ends of a function has the one direct call that ftrace has for it.
#[test]
fn programs_of_bpf_see_all_calls_in_either_order() {
    for booted in beside() {
        let name = &booted.name;
        let has_sessions = !name.starts_with("6.1.");
        for kind in ["fentry", "session"] {
            if kind == "session" && !has_sessions {
                continue;
            }
            // The columns are functions that are on, microseconds, records.
            let records = |shown: &str| shown.lines().last()?.split(' ').nth(3)?.parse().ok();
            let shown = booted.said(&format!("{kind}_first"));
            assert_eq!(records(&shown), Some(2000), "{name}: {kind}: {shown}");
            let report = booted.said(&format!("{kind}_first.report"));
            let asked = row(&report, "__do_sys_getppid");
            let counts = (&asked["calls"], &asked["unfinished"]);
            assert_eq!(
                counts,
                (&1000.into(), &0.into()),
                "{name}: {kind}: {report}"
            );
            let shown = booted.said(&format!("{kind}_after"));
            assert_eq!(records(&shown), Some(2000), "{name}: {kind}: {shown}");
            let entries = booted.text(&format!("{kind}_after.entries"));
            assert_eq!(entries, "1100\n", "{name}: {kind}");
        }
    }
}

#[test]
fn a_livepatch_replaces_a_function_that_is_recorded_in_either_order() {
    for booted in beside() {
        for order in ["first", "after"] {
            let shown = booted.text(&format!("livepatch.{order}"));
            let is_own = shown.contains("console=") && !shown.contains("livepatched");
            assert!(is_own, "{}: {order}: {shown}", booted.name);
        }
        let replaced = booted.text("livepatch.replaced");
        let [before, "livepatched", "livepatched", after] =
            replaced.lines().collect::<Vec<_>>()[..]
        else {
            panic!("{}: {replaced}", booted.name);
        };
        assert_eq!(before, after, "{}", booted.name);
        let during = booted.said("livepatch_during");
        assert!(
            during.starts_with("livepatched\n"),
            "{}: {during}",
            booted.name
        );
        booted.said("livepatch_during.report");
        booted.said("livepatch_after");
        let shown = row(&booted.said("livepatch_after.report"), "cmdline_proc_show");
        assert_eq!(
            (&shown["calls"], &shown["unfinished"]),
            (&1.into(), &0.into()),
            "{}",
            booted.name
        );
    }
}

#[test]
fn the_module_does_not_take_exits_that_lead_to_elsewhere_than_a_plan_says() {
    for booted in beside() {
        let told = booted.text("plans");
        let numbers = |kind: &str| -> [u32; 3] {
            let line = told.lines().find_map(|line| line.strip_prefix(kind));
            let numbers = line.unwrap().split_whitespace().map(|it| it.parse());
            let numbers: Result<Vec<u32>, _> = numbers.collect();
            numbers.unwrap().try_into().unwrap()
        };
        let ([_, traced, _], returns, registers) = (
            numbers("tails "),
            numbers("returns "),
            numbers("registers "),
        );
        assert_eq!(traced, 100, "{}: {told}", booted.name);
        for [plans, traced, elsewhere] in [returns, registers] {
            let is_refused = plans > 0 && traced == 0 && elsewhere > 0;
            assert!(is_refused, "{}: {told}", booted.name);
        }
    }
}

#[test]
fn nothing_is_left_of_killed_tools_hostile_writers_and_modules_that_went_under_load() {
    for booted in beside() {
        let seed = booted.text("seed");
        let nothing = |name: &str| {
            let text = fs::read_to_string(booted.out.path().join(name)).unwrap_or_default();
            assert_eq!(text, "", "{}: {name}, seed {seed}", booted.name);
        };
        nothing("tell.failed");
        nothing("hostile.failed");
        let has_traces = |name: &str| {
            let state = booted.text(name);
            commands(&state)
                .iter()
                .any(|line| line.starts_with("trace "))
        };
        assert!(has_traces("killed.recording"), "{}", booted.name);
        for name in ["killed.after", "killed.state"] {
            let state = booted.text(name);
            assert!(!has_traces(name), "{}: {state}", booted.name);
            assert!(!state.contains("watch 1"), "{}: {state}", booted.name);
        }
        assert_eq!(booted.text("killed.left").trim(), "0", "{}", booted.name);
        let when = booted.text("killed.when");
        assert!(
            ["0 ", "1 1", "2 "]
                .iter()
                .all(|moment| when.lines().any(|line| line.starts_with(moment))),
            "{}: while it starts, records and ends: {when}",
            booted.name
        );
        nothing("reload");
        nothing("load.failed");
        booted.is_as_before();
    }
}
