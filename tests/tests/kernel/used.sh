kernel_text /tmp/text.before
insmod /nopal_sections.ko
say missing nopal ctl kernel query
say loaded insmod /nopal.ko
say user su user -c 'cat /dev/nopal; nopal ctl kernel load'
say load nopal ctl kernel load
refused=$(sed -n 2p /out/load | cut -d' ' -f1)
say listed_refused nopal list kernel "${refused:-vfs_read}"
say again nopal ctl kernel load

say record nopal record -o /tmp/record --kernel-functions '*sys_getppid' -- kernel_work ask 10000
say report nopal report --json /tmp/record
say after_record nopal ctl kernel
step few sites under load
nopal ctl kernel 'trace __do_sys_getppid new asked'
taskset 2 kernel_work until 300000 &
asking=$!
taskset 1 sh -c 'for time in 1 2 3 4 5; do echo trace asked on; echo trace asked off; done >/dev/nopal'
kill $asking
wait $asking
echo $? >/out/few.status
cat /dev/nopal >/out/few.state
nopal ctl kernel reset
say pipe nopal record -o /tmp/pipe --kernel-functions 'vfs_*' -- kernel_work pipe 100
say pipe.report nopal report --json /tmp/pipe
say pipe.graph nopal graph /tmp/pipe
say pipe.replay nopal replay /tmp/pipe
say pipe.hist nopal hist vfs_write /tmp/pipe
say pipe.plot nopal plot timeline -F vfs_write -o /out/pipe.plot.svg /tmp/pipe
say pipe.flame nopal flame -o /out/pipe.flame.svg /tmp/pipe
say pipe.chrome nopal dump --as chrome -o /out/pipe.json /tmp/pipe

step devtrace
begin=$(grep ' __do_sys_getppid$' /proc/kallsyms | cut -d' ' -f1)
echo trace $begin $(printf %x $((0x$begin + 16))) new asked >/dev/nopal
echo trace asked on >/dev/nopal
echo arguments on >/dev/nopal
echo start >/dev/nopal
kernel_work ask 863
echo stop >/dev/nopal
cat /dev/nopal >/out/devtrace.state
head -n 1 /dev/nopal_trace >/out/devtrace.first
cat /dev/nopal_trace >/out/devtrace.rest
cat /dev/nopal >/out/devtrace.after
returned=$(sed -n 's/^X \([^ ]*\) .*/\1/p' /out/devtrace.rest | head -n 1)
text=$(grep ' _stext$' /proc/kallsyms | cut -d' ' -f1)
dd if=/tmp/text.before bs=1 skip=$((0x$returned - 0x$text)) count=5 | hexdump -v -e '1/1 "%02x"' >/out/devtrace.return
nopal ctl kernel reset
cat /out/devtrace.state >/dev/nopal
cat /dev/nopal >/out/devtrace.again
echo reset >/dev/nopal
echo start >/dev/nopal

nopal ctl kernel 'trace vfs_* new some' 'trace some on'
kernel_work pipe 20
echo stop >/dev/nopal
cat /dev/nopal_trace >/out/exits.trace
echo reset >/dev/nopal
say exits nopal list --json kernel 'vfs_*'
echo start >/dev/nopal

step losses
grep '^# lost' /dev/nopal >/out/lost.before
nopal ctl kernel 'size 16' 'trace __do_sys_getppid new asked' 'trace asked on'
taskset 1 kernel_work ask 50000
taskset 2 kernel_work ask 30000
cat /dev/nopal >/out/lost.state
wc -l </dev/nopal_trace >/out/lost.lines
nopal ctl kernel reset
say lost_before nopal record -o /tmp/none --kernel-functions '*sys_getppid' -- kernel_work ask 100
say lost_before.info nopal info /tmp/none
say lost taskset 1 nopal record -o /tmp/lost -F main --kernel-functions '*sys_getppid' -- kernel_work ask 300000
say lost.info nopal info /tmp/lost
rm -r /tmp/none /tmp/lost
nopal ctl kernel 'size 21'

grep -v '^#' /out/devtrace.state >/dev/nopal
echo start >/dev/nopal
for processors in 1 0 all; do
	step processors $processors
	echo processors $processors >/dev/nopal
	grep -v '^#' /dev/nopal >/tmp/state
	echo reset >/dev/nopal
	cat /tmp/state >/dev/nopal
	grep '^processors' /dev/nopal
	taskset 1 kernel_work ask 100
	taskset 2 kernel_work ask 1000
	sed -n 's/^#traceinhits //p' /dev/nopal
done >/out/processors
echo reset >/dev/nopal

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
# On a busy machine, all functions make more records than are collected meanwhile.
nopal ctl kernel 'logsize 22'
for what in vfs_write '*'; do
	step arguments of "$what"
	say arguments nopal record --args -o /tmp/arguments --kernel-functions "$what" -- kernel_work pipe 100
	nopal replay /tmp/arguments | grep vfs_write
	rm -r /tmp/arguments
done >/out/arguments.replay
nopal ctl kernel 'logsize 21' reset
step probes
for at in $(seq 5 60); do
	nopal ctl kernel "probe vfs_write+$at new inside" 2>>/out/probe.refused && break
done
cat /dev/nopal >/out/probe.state
nopal ctl kernel 'probe vfs_read new other' 'probe other on' 'probe inside on' 'probe other remove'
cat /dev/nopal >/out/probe.on
nopal ctl kernel reset
grep -v '^#' /out/probe.on >/dev/nopal
cat /dev/nopal >/out/probe.again
nopal ctl kernel reset
say probed nopal record -o /tmp/probed --kernel-probe 'vfs_write new w fetch count=$arg3:u64 first=+0($arg2):u32' --kernel-probe "vfs_write+$at new inside fetch \$ip" -F main --kernel-functions vfs_write -- kernel_work pipe 100
say probed.replay nopal replay /tmp/probed
say opened nopal record -o /tmp/opened --kernel-probe 'do_sys_openat2 new open fetch name=+0($arg2):string none=+0($arg1):u8' -- cat /etc/passwd
say opened.replay nopal replay /tmp/opened
rm -r /tmp/probed /tmp/opened
step what is refused
for probe in 'vfs_read new a b' 'no_such_function new x' 'return vfs_read new x' 'vfs_read new x fetch count' 'asm_exc_page_fault new x' 'vfs_read+9000 new x' 'none on'; do
	echo "== $probe"
	nopal ctl kernel "probe $probe"
	echo $?
done >/out/probes.refused 2>&1
for command in 'size 3' 'size 50' 'processors 0 99' 'section vfs_read vfs_write new s' 'trace' 'trace x on' 'trace no_such_function new n' 'tracer none on' 'watch x' 'query' 'begone' 'trace vfs_* new a b'; do
	echo "== $command"
	nopal ctl kernel "$command"
	echo $?
done >/out/refused 2>&1
nopal ctl kernel reset

say begun nopal record -o /tmp/begun --kernel-markers 'test_*' -- insmod /nopal_markers.ko
say begun.replay nopal replay /tmp/begun
rm -r /tmp/begun
say listed nopal list kernel 'test_*@nopal_markers'
echo 'echo typed 1 >/proc/nopal_markers; echo met 5000 >/proc/nopal_markers; echo interrupted 1 >/proc/nopal_markers' >/tmp/meet
say marked nopal record -o /tmp/marked --kernel-markers 'test_*' --kernel-functions proc_reg_write --kernel-functions be_typed@nopal_markers -- sh /tmp/meet
say marked.replay nopal replay /tmp/marked
rm -r /tmp/marked
say switched nopal record -o /tmp/switched --kernel-markers 'sched_*@nopal' -F main -- kernel_work pipe 100
say switched.replay nopal replay /tmp/switched
rm -r /tmp/switched
step tracers of events
echo tracer sched_switch on >/dev/nopal
taskset 1 kernel_work pipe 20
cat /dev/nopal_latency >/out/switches
echo tracer events on >/dev/nopal
usleep 1000
echo met 3 >/proc/nopal_markers
cat /dev/nopal_latency >/out/events
taskset 1 kernel_work pipe 1000
echo met 1 >/proc/nopal_markers
cat /dev/nopal_latency >/out/events.many
{ grep '^tracer ' /dev/nopal; echo reset >/dev/nopal; grep '^tracer ' /dev/nopal; } >/out/events.state
echo size 17 >/dev/nopal
say unfinished kernel_work unfinished 0
taskset 1 kernel_work pipe 5000
usleep 100000
taskset 1 sh -c 'echo met 1 >/proc/nopal_markers'
cat /dev/nopal_latency >/out/events.unfinished
echo size 21 >/dev/nopal
echo mark test_met off >/dev/nopal
echo met 1 >/proc/nopal_markers
cat /dev/nopal_latency >/out/events.refused
for tracer in events sched_switch; do echo tracer $tracer off >/dev/nopal; done
echo reset >/dev/nopal
usleep 1000
cat /dev/nopal_latency >/out/events.off
step markers
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
echo '
insmod /nopal_markers.ko
for times in 30 20; do
	until grep -q "^#functions [1-9]" /dev/nopal; do usleep 50000; done
	for time in $(seq $times); do echo met 1 >/proc/nopal_markers; done
	rmmod nopal_markers
	grep "^#functions" /dev/nopal
	insmod /nopal_markers.ko
done
rmmod nopal_markers
' >/tmp/come
say came nopal record -o /tmp/came --kernel-functions '*@nopal_markers' -- sh /tmp/come
say came.report nopal report --json /tmp/came
rm -r /tmp/came
step modules that come, by text
say later nopal ctl kernel 'trace meet@nopal_markers new later' 'trace later on'
for times in 300 200; do
	insmod /nopal_markers.ko
	echo met 1 >/proc/nopal_markers
	nopal ctl kernel load >/dev/null
	grep '^#functions' /dev/nopal
	for time in $(seq $times); do echo met 1 >/proc/nopal_markers; done
	rmmod nopal_markers
	sed -n 's/^#traceinhits //p' /dev/nopal
done >/out/later.counts
nopal ctl kernel reset
step modules that go
insmod /nopal_markers.ko
nopal ctl kernel load >/dev/null
nopal ctl kernel 'trace *@nopal_markers new all' 'trace all on'
while echo met 1 >/proc/nopal_markers; do :; done 2>/dev/null &
meeting=$!
usleep 100000
rmmod nopal_markers
wait $meeting
grep -E '^#(functions|tracehits|traceinhits)' /dev/nopal >/out/gone.state
insmod /nopal_markers.ko
echo met 10 >/proc/nopal_markers
grep -E '^#(functions|tracehits|traceinhits)' /dev/nopal >/out/gone.again
nopal ctl kernel reset
echo met 10 >/proc/nopal_markers
rmmod nopal_markers

nopal ctl kernel 'logsize 22'
say all_record nopal record -o /tmp/all --kernel-functions '*' -- kernel_work fork 5
say all_report nopal report --json /tmp/all
rm -r /tmp/all
nopal ctl kernel 'logsize 21'

step sleepers
# The stack of a sleeping process.
stack_of() {
	for time in $(seq 600); do
		grep -q nanosleep /proc/$1/stack && break
		usleep 100000
	done
	cat /proc/$1/stack
}
kernel_work sleep 1000 &
early=$!
stack_of $early >/out/stack.before
nopal ctl kernel 'trace *@kernel new all'
say all_on nopal ctl kernel 'trace all on'
grep -c 'tramp: nopal_entry+' /sys/kernel/tracing/enabled_functions >/out/all_calls
say in_use nopal record -o /tmp/all --kernel-functions 'vfs_*' -- kernel_work fork 5
kernel_work sleep 1000 &
sleeper=$!
stack_of $early >/out/stack.early
stack_of $sleeper >/out/stack.sleeper
end=$(($(cut -d. -f1 /proc/uptime) + 60))
rounds=0
while [ $(cut -d. -f1 /proc/uptime) -lt $end ]; do
	step load $rounds
	kernel_work ask 1000 && kernel_work fork 20 && kernel_work pipe 200 && ls -R /sys/kernel >/tmp/list || echo failed >>/out/load.failed
	rounds=$((rounds + 1))
done
echo $rounds >/out/load.rounds
cat /dev/nopal >/out/all_state
step interrupts that cannot be masked
# Non-maskable interrupts come anywhere on the other processor, in the recorder too.
dmesg -c >/tmp/kernel.log
kernel_work ask 100000000 &
asking=$!
for time in $(seq 20); do echo l >/proc/sysrq-trigger; done
kill $asking
dmesg -c >/out/interrupted.log
# The same, with few functions: one that only they call, and one that they interrupt. Then without room for all records.
taskset -p 1 $$
for size in 21 15; do
	step what they record in $size
	nopal ctl kernel reset "size $size" 'trace show_regs __do_sys_getppid new both' 'trace both on'
	taskset 2 kernel_work until 50000 &
	asking=$!
	until grep -q '^#tracehits [1-9]' /dev/nopal; do usleep 10000; done
	for time in $(seq 10); do echo l >/proc/sysrq-trigger; done
	kill $asking
	wait $asking
	dmesg -c | grep 'NMI backtrace for cpu 1' | grep -vc skipped >/out/nmi.came.$size
	cat /dev/nopal >/out/nmi.state.$size
	cat /dev/nopal_trace >/tmp/records
	{
		for function in show_regs __do_sys_getppid; do
			grep -c "^E $(sed -n "s/ . $function$//p" /proc/kallsyms)" /tmp/records
		done
		grep -c "^X $returned" /tmp/records
		grep ^X /tmp/records | grep -vc "^X $returned"
	} >/out/nmi.records.$size
done
taskset -p 3 $$
rm /tmp/records
nopal ctl kernel reset 'logsize 21'
say unload rmmod nopal
step unloaded
cat /proc/$sleeper/stack >/out/stack.after
kill -USR1 $early $sleeper
wait $sleeper
echo $? >/out/sleeper.status
wait $early
echo $? >/out/early.status
kernel_work fork 20 && kernel_work pipe 200
as_before
{ cat /tmp/kernel.log; dmesg; } >/out/kernel.log
