//! `make kernel-demo` boots a stock kernel of Debian's in QEMU, loads nopal's module into it, and shows what it tells.

use nopal_tests::kernel::boot_newest;
use std::path::Path;

const SHOWN: &str = "
exec >/out/shown 2>&1
show() {
	echo \"# $*\"
	\"$@\"
	echo
}
echo \"# uname -r\"
uname -r
echo
show insmod /nopal.ko
show nopal ctl kernel load | tail -n 3
show nopal record -o /tmp/ls --kernel-functions '*' -- /bin/ls -l /
show nopal report -n 25 /tmp/ls
echo '# nopal replay /tmp/ls'
nopal replay /tmp/ls | sed -n '/ statx() {/,/} .* statx/{p;/} .* statx/q}' | head -n 60
echo
show nopal ctl kernel 'tracer irqsoff on'
insmod /nopal_sections.ko
show sh -c 'echo lock_with_irqs_off 2000 >/proc/nopal_sections'
show cat /dev/nopal_latency
show rmmod nopal
";

fn main() {
    let booted = boot_newest(SHOWN, &[Path::new("/bin/ls")]);
    print!("{}", booted.text("shown"));
}
