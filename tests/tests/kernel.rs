//! The module in the kernels that Debian ships, each in a guest of two processors, and in one whose instructions are
//! counted. The guests run once for all of these tests.

use nopal_tests::kernel::{Booted, boot_each, commands, number_after, row};
use nopal_tests::kernel_cost::{CALLS, Numbers, TURNS, boot_cost, costs};
use std::fs;
use std::sync::OnceLock;

/// What a person does with the module, and what others do beside it.
const USE: &str = "
kernel_text /tmp/text.before
insmod /nopal_sections.ko
say missing nopal ctl kernel query
say loaded insmod /nopal.ko
say user su user -c 'cat /dev/nopal; nopal ctl kernel load'
say load nopal ctl kernel load
say again nopal ctl kernel load

say record nopal record -o /tmp/record --kernel-functions '*sys_getppid' -- kernel_work ask 10000
say report nopal report --json /tmp/record
say after_record nopal ctl kernel
say pipe nopal record -o /tmp/pipe --kernel-functions 'vfs_*' -- kernel_work pipe 100
say pipe.report nopal report --json /tmp/pipe
say pipe.graph nopal graph /tmp/pipe
say pipe.replay nopal replay /tmp/pipe

say text nopal ctl kernel 'trace vfs_read new reads' 'trace reads on' 'trace vfs_w* new writes' 'watch 1'
cat /dev/nopal >/out/text.read
nopal ctl kernel reset
grep -v '^#' /out/text.read >/dev/nopal
cat /dev/nopal >/out/text.again
nopal ctl kernel reset
say asked nopal ctl kernel 'trace vfs_r* new reads' 'trace reads on' 'trace vfs_w* new writes' 'query vfs_read vfs_write proc_reg_write'
cat /dev/nopal >/out/asked.read
nopal ctl kernel reset
say resized nopal ctl kernel 'size 18'
say simulated nopal record -o /tmp/simulated --kernel-functions '*sys_getpgid' -- sh -c 'cat /dev/nopal; echo logsize 20 >/dev/nopal || echo testtracein __x64_sys_getpgid >/dev/nopal; cat /dev/nopal'
say simulated.report nopal report --json /tmp/simulated
say resized_again nopal ctl kernel 'logsize 21'
for what in vfs_write '*'; do
	say arguments nopal record --args -o /tmp/arguments --kernel-functions \"$what\" -- kernel_work pipe 100
	nopal replay /tmp/arguments | grep vfs_write
	rm -r /tmp/arguments
done >/out/arguments.replay
nopal ctl kernel reset
for at in $(seq 5 60); do
	nopal ctl kernel \"probe vfs_write+$at new inside\" 2>>/out/probe.refused && break
done
cat /dev/nopal >/out/probe.state
nopal ctl kernel 'probe vfs_read new other' 'probe other on' 'probe inside on' 'probe other remove'
cat /dev/nopal >/out/probe.on
nopal ctl kernel reset
say probed nopal record -o /tmp/probed --kernel-probe 'vfs_write new w fetch count=$arg3:u64 first=+0($arg2):u32' --kernel-probe \"vfs_write+$at new inside fetch \\$ip\" \
	-F main --kernel-functions vfs_write -- kernel_work pipe 100
say probed.replay nopal replay /tmp/probed
say opened nopal record -o /tmp/opened --kernel-probe 'do_sys_openat2 new open fetch name=+0($arg2):string none=+0($arg1):u8' -- cat /etc/passwd
say opened.replay nopal replay /tmp/opened
rm -r /tmp/probed /tmp/opened
for probe in 'vfs_read new a b' 'no_such_function new x' 'return vfs_read new x' 'vfs_read new x fetch count' 'asm_exc_page_fault new x' \
	'vfs_read+9000 new x' 'none on'; do
	echo \"== $probe\"
	nopal ctl kernel \"probe $probe\"
	echo $?
done >/out/probes.refused 2>&1
for command in 'size 3' 'size 50' 'uniform on' 'trace' 'trace x on' 'trace no_such_function new n' 'tracer none on' 'watch x' 'query' 'begone' 'trace vfs_* new a b'; do
	echo \"== $command\"
	nopal ctl kernel \"$command\"
	echo $?
done >/out/refused 2>&1
nopal ctl kernel reset

say begun nopal record -o /tmp/begun --kernel-markers 'test_*' -- insmod /nopal_markers.ko
say begun.replay nopal replay /tmp/begun
rm -r /tmp/begun
say listed nopal list kernel 'test_*@nopal_markers'
echo 'echo typed 1 >/proc/nopal_markers; echo met 5000 >/proc/nopal_markers; echo interrupted 1 >/proc/nopal_markers' >/tmp/meet
say marked nopal record -o /tmp/marked --kernel-markers 'test_*' --kernel-functions proc_reg_write -- sh /tmp/meet
say marked.replay nopal replay /tmp/marked
rm -r /tmp/marked
echo met 10 >/proc/nopal_markers
say marks nopal ctl kernel 'mark test_* on' 'mark test_met off' 'mark test_b* on' 'mark test_b* off'
cat /dev/nopal >/out/marks.read
nopal ctl kernel reset
grep -v '^#' /out/marks.read >/dev/nopal
cat /dev/nopal >/out/marks.again
rmmod nopal_markers
cat /dev/nopal >/out/marks.gone
insmod /nopal_markers.ko
cat /dev/nopal >/out/marks.back
nopal ctl kernel reset
say connected insmod /nopal_connected.ko
echo met 100 >/proc/nopal_markers
say connected_keeps rmmod nopal
say connected_ends rmmod nopal_connected
echo met 100 >/proc/nopal_markers
say connected_again insmod /nopal_connected.ko
rmmod nopal_markers
say connected_alone rmmod nopal_connected
dmesg | sed -n 's/.*nopal_connected: //p' >/out/connected.log

say all_record nopal record -o /tmp/all --kernel-functions '*' -- kernel_work fork 5
say all_report nopal report --json /tmp/all
rm -r /tmp/all

kernel_work sleep 1000 &
early=$!
nopal ctl kernel 'trace *@kernel new all'
say all_on nopal ctl kernel 'trace all on'
say in_use nopal record -o /tmp/all --kernel-functions 'vfs_*' -- kernel_work fork 5
kernel_work sleep 1000 &
sleeper=$!
cat /proc/$early/stack >/out/stack.early
cat /proc/$sleeper/stack >/out/stack.sleeper
end=$(($(cut -d. -f1 /proc/uptime) + 60))
rounds=0
while [ $(cut -d. -f1 /proc/uptime) -lt $end ]; do
	kernel_work ask 1000 && kernel_work fork 20 && kernel_work pipe 200 && ls -R /sys/kernel >/tmp/list || echo failed >>/out/load.failed
	rounds=$((rounds + 1))
done
echo $rounds >/out/load.rounds
cat /dev/nopal >/out/all_state
say unload rmmod nopal
cat /proc/$sleeper/stack >/out/stack.after
kill -USR1 $early $sleeper
wait $sleeper
echo $? >/out/sleeper.status
wait $early
echo $? >/out/early.status
kernel_work fork 20 && kernel_work pipe 200
as_before
dmesg >/out/kernel.log
";

/// Latency tracers, and whatever else can come in the way.
const BESIDE: &str = "
insmod /nopal_sections.ko
cd /sys/kernel/tracing
graph() { echo __do_sys_getppid >set_graph_function; echo function_graph >current_tracer; }
# A call that ends on the other processor has a second line, with the name and without the parentheses.
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
# What the kernel itself keeps changed after its own tracers is not nopal's.
for other in graph probes functions; do
	$other
	no_$other >/dev/null
done
kernel_text /tmp/text.before
cd /tmp

insmod /nopal.ko
nopal ctl kernel load >/out/load 2>&1
tell() { echo \"$@\" >/dev/nopal || cat /dev/nopal >>/out/tell.failed; }
sections() {
	tracer=$1
	shift
	tell tracer $tracer on
	for kind in \"$@\"; do
		for length in 200 2000 5000; do
			for try in 1 2 3 4; do
				tell tracer $tracer reset
				echo $kind $length >/proc/nopal_sections
				echo \"case $tracer $kind $length $(cat /proc/nopal_sections)\"
				grep -A3 \"^# $tracer: \" /dev/nopal
			done
		done
	done
	tell tracer $tracer off
}
of_irqs='lock_with_irqs_off switch_irqs_off nest_irqs_off'
of_preemption='lock_with_preemption_off switch_preemption_off nest_preemption_off lock_with_softirqs_off'
sections irqsoff $of_irqs >/out/irqsoff
sections preemptoff $of_preemption >/out/preemptoff
sections preemptirqsoff $of_irqs $of_preemption overlap >/out/preemptirqsoff
tell tracer preemptirqsoff on
cat /dev/nopal_latency >/out/latency_trace
# The kernel has urgent tasks of its own: its events tell how many woke.
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
	kernel_work ask 1000
	say beside_$name nopal record -o /tmp/beside --kernel-functions '*sys_getppid' -- kernel_work ask 1000
	say beside_$name.report nopal report --json /tmp/beside
	rm -rf /tmp/beside
}
mine_first() {
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
nopal ctl kernel 'trace cmdline_proc_show new shown' 'trace shown on'
insmod /nopal_livepatch.ko && patched && unpatched >/out/livepatch.first 2>&1
nopal ctl kernel reset
insmod /nopal_livepatch.ko
patched
shows during
unpatched >/out/livepatch.after 2>&1
shows after

seed=$(cut -c1-8 /proc/sys/kernel/random/uuid)
echo $seed >/out/seed
for number in 1 2 3; do
	kernel_work hostile $((0x$seed + number)) || echo $number >>/out/hostile.failed
done
tell reset

moment() { usleep $(((0x$(cut -c1-4 /proc/sys/kernel/random/uuid)) * 10)); }
for number in $(seq 25); do
	nopal record -o /tmp/killed --kernel-functions 'vfs_*' -- kernel_work pipe 3000 >/dev/null 2>&1 &
	tool=$!
	moment
	kill -KILL $tool
	for wait in $(seq 500); do
		grep -q '^trace' /dev/nopal || break
		usleep 20000
	done
	killall -KILL kernel_work
	rm -rf /tmp/killed
done >/dev/null 2>&1
cat /dev/nopal >/out/killed.state

while :; do kernel_work fork 5; kernel_work pipe 50; usleep 300000; done >/out/load.failed 2>&1 &
load=$!
tell reset
rmmod nopal
as_before
for number in 1 2 3; do
	insmod /nopal.ko && nopal ctl kernel load >/dev/null && nopal ctl kernel 'trace * new all' 'trace all on' && rmmod nopal || echo $number
done >/out/reload 2>&1
for number in $(seq 47); do
	insmod /nopal.ko && echo tracer preemptirqsoff on >/dev/nopal && rmmod nopal || echo $number
done >>/out/reload 2>&1
kill $load
dmesg >/out/kernel.log
";

/// Of calls of the kernel, of pairs of cli and sti, and of a marker.
const COST: &str = "
tell trace __do_sys_getppid new asked
cost calls calls 'tell trace asked on' 'tell trace asked off'
cost sections sections 'tell tracer irqsoff on' 'tell tracer irqsoff off'
cost markers marked 'tell mark test_measured on' 'tell mark test_measured off'
";

fn used() -> &'static [Booted] {
    static BOOTED: OnceLock<Vec<Booted>> = OnceLock::new();
    BOOTED.get_or_init(|| boot_each(USE, &[], 2, false))
}

fn beside() -> &'static [Booted] {
    static BOOTED: OnceLock<Vec<Booted>> = OnceLock::new();
    BOOTED.get_or_init(|| boot_each(BESIDE, &[], 2, false))
}

fn cost() -> &'static [Booted] {
    static BOOTED: OnceLock<Vec<Booted>> = OnceLock::new();
    BOOTED.get_or_init(|| boot_cost(COST, &[]))
}

#[test]
fn calls_in_the_kernel_are_counted_exactly() {
    for booted in used() {
        let asked = row(&booted.said("report"), "__do_sys_getppid");
        assert_eq!(
            (&asked["calls"], &asked["unfinished"]),
            (&10_000.into(), &0.into()),
            "{}",
            booted.name
        );
        let report = booted.said("pipe.report");
        let written = row(&report, "vfs_write");
        assert_eq!(
            (&written["calls"], &written["unfinished"]),
            (&200.into(), &0.into()),
            "{}",
            booted.name
        );
        assert!(
            row(&report, "vfs_read")["calls"].as_u64() >= Some(200),
            "{}",
            booted.name
        );
        let graph = booted.said("pipe.graph");
        assert!(graph.contains("└─ vfs_write"), "{}: {graph}", booted.name);
        assert_eq!(
            commands(&booted.said("after_record")),
            ["logsize 21", "start"],
            "{}",
            booted.name
        );
    }
}

#[test]
fn calls_in_the_kernel_stand_inside_the_call_that_led_there() {
    for booted in used() {
        let replay = booted.said("pipe.replay");
        // What stands behind the times.
        let functions: Vec<&str> = replay.lines().filter_map(|line| line.get(38..)).collect();
        let written = functions.windows(3).filter(|lines| {
            let depth = |line: &str| line.len() - line.trim_start().len();
            let [call, inside, end] = lines else {
                return false;
            };
            [call.trim(), inside.trim(), end.trim()]
                == ["write() {", "vfs_write();", "} /* write */"]
                && depth(inside) == depth(call) + 2
                && depth(end) == depth(call)
        });
        // The others were interrupted by a line of the other process.
        let written = written.count();
        assert!(written >= 20, "{}: {written}: {replay}", booted.name);
    }
}

#[test]
fn tasks_that_never_return_are_told_with_all_functions_recorded() {
    for booted in used() {
        let report = booted.said("all_report");
        for (function, calls, unfinished) in [
            ("kernel_clone", 5, 0),
            ("wake_up_new_task", 5, 0),
            ("kernel_wait4", 5, 0),
            ("schedule_tail", 5, 0),
            ("do_exit", 6, 6),
            ("do_task_dead", 6, 6),
        ] {
            let row = row(&report, function);
            assert_eq!(
                (&row["calls"], &row["unfinished"]),
                (&calls.into(), &unfinished.into()),
                "{}: {function}",
                booted.name
            );
        }
    }
}

#[test]
fn the_module_s_state_sets_it_up_again() {
    for booted in used() {
        let read = booted.text("text.read");
        assert_eq!(
            commands(&read),
            [
                "logsize 21",
                "watch 1",
                "trace vfs_read new reads",
                "trace reads on",
                "trace vfs_w* new writes",
                "start"
            ],
            "{}",
            booted.name
        );
        assert_eq!(
            commands(&read),
            commands(&booted.text("text.again")),
            "{}",
            booted.name
        );
    }
}

#[test]
fn the_module_answers_which_functions_are_traced() {
    for booted in used() {
        let answer = booted.said("asked");
        let told: Vec<(&str, &str)> = answer
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        let names: Vec<&str> = told.iter().map(|(_, told)| *told).collect();
        let mut expected = [
            "vfs_read: traced: reads (on)",
            "vfs_write: not traced: writes (off)",
            "proc_reg_write: not traced",
        ];
        let mut sorted = names.clone();
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected, "{}", booted.name);
        let state = booted.text("asked.read");
        for (address, told) in told {
            assert!(address.starts_with("ffffffff"), "{}: {answer}", booted.name);
            assert!(
                state.contains(&format!("#{address} {told}\n")),
                "{}: {state}",
                booted.name
            );
        }
        assert!(
            state.contains("trace reads on\n#functions "),
            "{}: {state}",
            booted.name
        );
    }
}

#[test]
fn the_module_s_buffer_is_resized_while_no_recording_has_it() {
    for booted in used() {
        booted.said("resized");
        let simulated = booted.said("simulated");
        assert!(
            simulated.contains("logsize 18\n") && !simulated.contains("logsize 20"),
            "{}: {simulated}",
            booted.name
        );
        let reason = "# error: a recording has the buffer: its size cannot be changed now";
        assert!(
            simulated.contains("Device or resource busy"),
            "{}: {simulated}",
            booted.name
        );
        assert!(
            !simulated.contains(reason),
            "{}: the next command went well: {simulated}",
            booted.name
        );
        let called = row(&booted.said("simulated.report"), "__x64_sys_getpgid");
        assert_eq!(
            (&called["calls"], &called["unfinished"]),
            (&1.into(), &1.into()),
            "{}",
            booted.name
        );
        booted.said("resized_again");
    }
}

#[test]
fn probes_in_the_kernel_are_recorded_with_what_they_fetch() {
    for booted in used() {
        let state = booted.text("probe.state");
        let made = state
            .lines()
            .find(|line| line.starts_with("probe vfs_write+0x"));
        assert!(
            made.is_some_and(|line| line.ends_with(" new inside")),
            "{}: {state}",
            booted.name
        );
        assert!(
            !state.contains("probe inside on"),
            "{}: {state}",
            booted.name
        );
        let state = booted.text("probe.on");
        assert!(
            state.contains("probe inside on\n") && !state.contains("other"),
            "{}: {state}",
            booted.name
        );
        booted.said("probed");
        let replay = booted.said("probed.replay");
        for number in 0..100 {
            let text = format!("/* w count=4 first={number} */");
            let times = replay.lines().filter(|line| line.contains(&text)).count();
            // The parent's and the child's.
            assert_eq!(times, 2, "{}: {number}: {replay}", booted.name);
        }
        let inside = replay
            .lines()
            .filter(|line| line.contains("/* inside ip=0xffffffff"));
        assert_eq!(inside.count(), 200, "{}: {replay}", booted.name);
        booted.said("opened");
        let opened = booted.said("opened.replay");
        let text = "/* open name=\"/etc/passwd\" none=? */";
        assert!(opened.contains(text), "{}: {opened}", booted.name);
        let refused = booted.text("probes.refused");
        for reason in [
            "not b, expected",
            "no function of the kernel is named no_such_function",
            "is recorded with its calls",
            "variables are not known",
            "the kernel takes no probe there",
            "bytes long",
            "there is no probe none",
        ] {
            let told = refused.split("== ").find(|told| told.contains(reason));
            let told = told.unwrap_or_else(|| panic!("{}: {reason}: {refused}", booted.name));
            assert!(told.ends_with("\n1\n"), "{}: {told}", booted.name);
        }
    }
}

#[test]
fn arguments_and_results_of_calls_in_the_kernel_are_recorded() {
    for booted in used() {
        let replay = booted.text("arguments.replay");
        let mut written = 0;
        for line in replay.lines() {
            // The file, the buffer, its bytes; the others are what the registers had.
            let arguments: Vec<&str> = line
                .split_once('(')
                .map_or(Vec::new(), |(_, rest)| rest.split(", ").collect());
            let [file, buffer, bytes, ..] = arguments[..] else {
                // Of those that have others inside, the end has the result.
                assert!(
                    line.contains("} = 4 /* vfs_write */"),
                    "{}: {line}",
                    booted.name
                );
                continue;
            };
            // nopal's own writes are not the program's.
            written +=
                u32::from(file.starts_with("0xff") && buffer.starts_with("0x7ff") && bytes == "4");
            assert!(
                !line.ends_with(';') || line.ends_with(" = 4;"),
                "{}: {line}",
                booted.name
            );
        }
        assert_eq!(written, 400, "{}: {replay}", booted.name);
    }
}

#[test]
fn markers_of_modules_are_recorded_with_their_values() {
    for booted in used() {
        let listed = booted.said("listed");
        let met = listed.lines().find(|line| line.starts_with("test_met "));
        let met: Vec<&str> = met.expect("it is listed").split_whitespace().collect();
        assert_eq!(
            met[1..4],
            ["nopal_markers", "\"number=%u", "device=%s\""],
            "{}",
            booted.name
        );
        booted.said("begun");
        let begun = booted.said("begun.replay");
        let text = "/* test_begun module=\"nopal_markers\" */";
        assert!(begun.contains(text), "{}: {begun}", booted.name);
        booted.said("marked");
        let replay = booted.said("marked.replay");
        let shown = |text: &str| replay.lines().filter(|line| line.contains(text)).count();
        for values in [
            "/* test_typed byte=-1 wide=18446744073709551615 state=busy bytes=<01 02 03> null=\"(null)\" unmapped=\"(efault)\" */",
            "/* test_lone */",
            "/* test_met number=0 device=\"eth0\" */",
            "/* test_met number=4999 device=\"eth0\" */",
        ] {
            assert_eq!(shown(values), 1, "{}: {values}\n{replay}", booted.name);
        }
        assert_eq!(shown("/* test_met "), 5000, "{}", booted.name);
        // Of another task where the interrupt came, it is not recorded.
        let interrupted = shown("/* test_interrupted processor=");
        assert!((1..=2).contains(&interrupted), "{}", booted.name);
        let lines: Vec<&str> = replay.lines().collect();
        let last = lines.iter().position(|line| line.contains("number=4999"));
        let after = lines[last.expect("it is shown") + 1];
        assert!(
            after.contains("} /* proc_reg_write */"),
            "{}: {after}",
            booted.name
        );
    }
}

#[test]
fn markers_are_switched_by_name_also_in_modules_that_come_later() {
    for booted in used() {
        booted.said("marks");
        let state = booted.text("marks.read");
        let expected = ["mark test_* on", "mark test_met off", "mark test_b* off"];
        assert_eq!(commands(&state)[1..4], expected, "{}: {state}", booted.name);
        let again = booted.text("marks.again");
        assert_eq!(state, again, "{}", booted.name);
        let count = |file: &str| number_after(&booted.text(file), "# test_*: ");
        assert_eq!(
            ["marks.read", "marks.gone", "marks.back"].map(count),
            [7, 0, 7],
            "{}",
            booted.name
        );
    }
}

#[test]
fn functions_of_modules_are_connected_to_markers() {
    for booted in used() {
        booted.said("connected");
        let keeps = booted.text("connected_keeps.status");
        assert_ne!(keeps.trim(), "0", "{}: the module is in use", booted.name);
        for name in ["connected_ends", "connected_again", "connected_alone"] {
            booted.said(name);
        }
        let begin = "unknown -2, other format -22, connected 0, again -17";
        let log = booted.text("connected.log");
        let expected = [
            begin,
            "disconnected 0, again -2, 100 calls, sum 4950",
            begin,
            "disconnected -2, again -2, 0 calls, sum 0",
        ];
        assert_eq!(log.lines().collect::<Vec<_>>(), expected, "{}", booted.name);
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    for booted in used() {
        let missing = booted.text("missing");
        assert!(
            missing.contains("nopal's module is not loaded in this kernel"),
            "{missing}"
        );
        let user = booted.text("user");
        assert!(
            user.contains("nopal: only root may open /dev/nopal"),
            "{user}"
        );
        assert_ne!(booted.text("user.status").trim(), "0");
        let in_use = booted.text("in_use");
        assert!(in_use.contains("the kernel's module is in use"), "{in_use}");
        let refused = booted.text("refused");
        for reason in [
            "trace: expected WHAT or NAME",
            "there is no trace x",
            "no_such_function: no function of the plan",
            "there is no tracer none: a kernel has irqsoff, preemptoff, preemptirqsoff and wakeup",
            "watch x: not x, expected IDS",
            "begone: not begone, expected trace, mark,",
            "2 to the power of 3 records: each processor needs two chunks",
            "2 to the power of 50 records: at most a quarter of the memory is its",
            "this command is not for kernels",
            "not b, expected the end of the line",
        ] {
            let told = refused.split("== ").find(|told| told.contains(reason));
            let told = told.unwrap_or_else(|| panic!("{}: {reason}: {refused}", booted.name));
            assert!(told.ends_with("\n1\n"), "{}: {told}", booted.name);
        }
        assert_eq!(booted.said("load"), booted.said("again"), "{}", booted.name);
    }
}

#[test]
fn a_kernel_works_with_all_functions_recorded_and_is_as_before_after_it() {
    for booted in used() {
        booted.said("all_on");
        let state = booted.text("all_state");
        assert!(
            number_after(&state, "#functions ") > 30_000,
            "{}: {state}",
            booted.name
        );
        // Nobody took what was recorded.
        assert!(
            number_after(&state, "# lost ") > 0,
            "{}: {state}",
            booted.name
        );
        assert!(
            number_after(&booted.text("load.rounds"), "") > 0,
            "{}",
            booted.name
        );
        assert!(
            !booted.out.path().join("load.failed").exists(),
            "{}",
            booted.name
        );
        booted.said("unload");
        for name in ["stack.early", "stack.sleeper", "stack.after"] {
            let stack = booted.text(name);
            let whole = stack.contains("hrtimer_nanosleep+")
                && stack.contains("entry_SYSCALL_64_after_hwframe+");
            assert!(
                whole && !stack.contains("nopal"),
                "{}: {name}: {stack}",
                booted.name
            );
        }
        for name in ["early.status", "sleeper.status"] {
            assert_eq!(booted.text(name).trim(), "138", "{}: {name}", booted.name);
        }
        booted.is_as_before();
    }
}

const SECTION_KINDS: [&str; 8] = [
    "lock_with_irqs_off",
    "switch_irqs_off",
    "nest_irqs_off",
    "lock_with_preemption_off",
    "switch_preemption_off",
    "nest_preemption_off",
    "lock_with_softirqs_off",
    "overlap",
];

/// The tracers' lines for sections of known lengths. A line of a processor that names the section's function tells of
/// it: at least its length, and at most what its maker took for all of it, as the machine may stand still.
#[test]
fn latency_tracers_tell_sections_by_place_and_length() {
    for booted in beside() {
        for (tracer, kinds) in [
            ("irqsoff", &SECTION_KINDS[..3]),
            ("preemptoff", &SECTION_KINDS[3..7]),
            ("preemptirqsoff", &SECTION_KINDS[..]),
        ] {
            let text = booted.text(tracer);
            let mut told = 0;
            for case in text.split("case ").skip(1) {
                let words: Vec<&str> = case.lines().next().unwrap_or_default().split(' ').collect();
                let [_, kind, length, took] = words[..] else {
                    panic!("{}: {case}", booted.name);
                };
                let [length, took] =
                    [length, took].map(|word| word.parse::<u64>().expect("a number"));
                let tolerance = (length / 20).max(50);
                for line in case
                    .lines()
                    .filter(|line| line.starts_with("#  processor "))
                {
                    let from = line
                        .split(" from ")
                        .nth(1)
                        .and_then(|line| line.split(" to ").next());
                    if from.is_some_and(|from| from.contains(&format!("{kind}+"))) {
                        let lasted = number_after(line, ": ");
                        assert!(
                            (length - tolerance..=took + tolerance).contains(&lasted),
                            "{}: {case}",
                            booted.name
                        );
                        told += 1;
                    }
                }
            }
            // Something that lasted longer on the same processor hides a short one.
            let cases = kinds.len() * 12;
            assert!(
                told * 4 >= cases * 3,
                "{}: {tracer}: {told} of {cases}",
                booted.name
            );
        }
    }
}

#[test]
fn latency_trace_shows_the_longest_section() {
    for booted in beside() {
        let text = booted.text("latency_trace");
        assert!(
            text.starts_with("preemptirqsoff latency trace v1.1.5 on "),
            "{text}"
        );
        for line in [
            " => started at: ",
            " => ended at:   ",
            "  cmd     pid ||||| time  |   caller",
        ] {
            assert!(text.contains(line), "{}: {text}", booted.name);
        }
        assert!(
            number_after(&text, " latency: ") >= 4_750,
            "{}: {text}",
            booted.name
        );
    }
}

#[test]
fn each_wakeup_of_the_most_urgent_task_is_a_case() {
    for booted in beside() {
        let wakeup = booted.text("wakeup");
        let cases = number_after(&wakeup, "# wakeup: ");
        let woken: u64 = booted.text("woken").trim().parse().expect("a number");
        assert!(
            (50..=woken).contains(&cases),
            "{}: {woken} woken: {wakeup}",
            booted.name
        );
        assert!(
            wakeup.contains("# wakeup: 0 not followed for want of room, 0 never ran"),
            "{}: {wakeup}",
            booted.name
        );
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
fn a_livepatch_replaces_a_function_that_is_recorded_in_either_order() {
    for booted in beside() {
        for order in ["first", "after"] {
            let shown = booted.text(&format!("livepatch.{order}"));
            let is_own = shown.contains("console=") && !shown.contains("livepatched");
            assert!(is_own, "{}: {order}: {shown}", booted.name);
        }
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
fn nothing_is_left_of_killed_tools_hostile_writers_and_modules_that_went_under_load() {
    for booted in beside() {
        let seed = booted.text("seed");
        let nothing = |name: &str| {
            let text = fs::read_to_string(booted.out.path().join(name)).unwrap_or_default();
            assert_eq!(text, "", "{}: {name}, seed {seed}", booted.name);
        };
        nothing("tell.failed");
        nothing("hostile.failed");
        let state = booted.text("killed.state");
        assert!(
            commands(&state)
                .iter()
                .all(|line| !line.starts_with("trace ")),
            "{}: {state}",
            booted.name
        );
        nothing("reload");
        nothing("load.failed");
        booted.is_as_before();
    }
}

#[test]
fn a_call_costs_few_instructions_and_nothing_when_it_is_off() {
    for booted in cost() {
        let costs: Vec<Numbers> = costs(booted)
            .into_iter()
            .map(|cost| {
                let cannot = |why| panic!("{}: {}: {why}", booted.name, cost.what);
                cost.numbers.unwrap_or_else(cannot)
            })
            .collect();
        let [calls, sections, markers] = &costs[..] else {
            panic!("{}: {}", booted.name, booted.text("costs"));
        };
        for (cost, turns, most) in [(calls, CALLS, 70.0), (sections, TURNS, 40.0)] {
            let added = cost.added(turns);
            assert!(
                added > 0.0 && added <= most,
                "{}: {added}, at most {most}",
                booted.name
            );
        }
        for cost in &costs {
            assert_eq!(cost.before, cost.after, "{}", booted.name);
        }
        assert_eq!(markers.before, TURNS, "{}", booted.name);
        assert!(markers.added(TURNS) > 1.0, "{}", booted.name);
    }
}
