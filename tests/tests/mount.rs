//! A traced process, controlled through files by the tools of a shell.

use std::ops::{Deref, DerefMut};

use nopal_tests::mounted::{Mounted, start};
use nopal_tests::process::{assert_nothing_left, wait_until};
use nopal_tests::{End, Running, Start, c, nopal, scratch};

/// Calls of `leaf` in a phase.
const LEAVES: usize = 1000;

/// The program `phases`, which works on command: traced, with nothing selected, and shown as files.
struct Phases {
    mounted: Mounted,
    phase: u32,
}

impl Deref for Phases {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        &self.mounted
    }
}

impl DerefMut for Phases {
    fn deref_mut(&mut self) -> &mut Mounted {
        &mut self.mounted
    }
}

impl Phases {
    fn new() -> Phases {
        Phases {
            mounted: Mounted::new(c("phases", &[]), "phase 0\n", "leaf"),
            phase: 0,
        }
    }

    fn run_phase(&mut self) {
        self.phase += 1;
        let said = format!("phase {}\n", self.phase);
        self.tell("on", &said);
    }

    /// The number of calls of `leaf` in the files.
    fn leaves(&self) -> usize {
        let shown = self.good("grep -c ' leaf+' tracing/trace || true");
        shown.trim().parse().unwrap()
    }

    fn end(self) {
        self.mounted.end(5);
    }
}

#[test]
fn the_command_file_controls_and_shows() {
    let mut mounted = Phases::new();
    mounted.good("echo reset >ctl; echo 'trace leaf new l' >ctl; echo start >ctl");
    mounted.run_phase();
    assert_eq!(mounted.leaves(), 0);
    mounted.good("echo 'trace l on' >>ctl");
    mounted.run_phase();
    assert_eq!(mounted.leaves(), LEAVES);
    mounted.good("echo stop >ctl");
    mounted.run_phase();
    assert_eq!(mounted.leaves(), LEAVES);
    assert_eq!(mounted.good("grep -c ^E trace"), format!("{LEAVES}\n"));
    let saved = "cp ctl ../../save; echo reset >ctl; grep -v '^#' ctl; cp ../../save ctl; grep -v '^#' ctl | diff - <(grep -v '^#' ../../save)";
    // The file to save lies outside of the mount.
    let saved = saved.replace("../../save", "\"$SAVE\"");
    let mut start = mounted.shell(&format!("set -e; {saved}"));
    let save = mounted.scratch.path().join("save");
    start.environment.push(("SAVE".into(), save.into()));
    let ended = start.run("");
    assert_eq!((ended.end, &*ended.stderr), (End::Code(0), ""));
    assert!(!ended.stdout.contains("trace"), "{}", ended.stdout);
    assert!(mounted.good("cat ctl").contains("trace l on\n"));
    mounted.end();
}

#[test]
fn the_tracing_folder_is_used_as_the_kernels_is() {
    let mut mounted = Phases::new();
    mounted.good("cd tracing; echo nop >current_tracer; echo leaf >set_ftrace_filter");
    assert_eq!(mounted.good("cat tracing/current_tracer"), "nop\n");
    mounted.good("cd tracing; echo function >current_tracer; echo 1 >tracing_on; >trace");
    mounted.run_phase();
    assert_eq!(mounted.leaves(), LEAVES);
    mounted.good("echo 0 >tracing/tracing_on");
    mounted.run_phase();
    assert_eq!(mounted.leaves(), LEAVES);
    mounted.good("echo descend >>tracing/set_ftrace_filter");
    assert_eq!(
        mounted.good("cat tracing/set_ftrace_filter"),
        "leaf\ndescend\n"
    );
    mounted.good("printf 1 >tracing/tracing_on; echo > tracing/trace");
    mounted.run_phase();
    assert_eq!(
        mounted.good("grep -c ':[0-9]* descend+' tracing/trace"),
        "1100\n"
    );
    mounted.good("echo 'half past' >tracing/trace_marker");
    mounted.good("grep -x 'tracing_mark_write: half past' tracing/trace");
    assert_eq!(mounted.good("wc -l <tracing/available_tracers"), "1\n");
    mounted.end();
}

#[test]
fn the_pipe_gives_each_line_once_and_waits() {
    let mut mounted = Phases::new();
    let lines = |text: &str| text.matches(" leaf+").count();
    let mut readers: Vec<Running> = (0..2)
        .map(|_| mounted.shell("exec cat tracing/trace_pipe").spawn())
        .collect();
    for phase in 1..4 {
        mounted.run_phase();
        wait_until("all is read", || {
            readers
                .iter()
                .map(|reader| lines(&reader.stdout()))
                .sum::<usize>()
                >= phase * LEAVES
        });
    }
    let mut all = 0;
    for reader in &mut readers {
        reader.signal_group(libc::SIGINT);
        all += lines(&reader.wait().stdout);
    }
    assert_eq!(all, 3 * LEAVES);
    assert_eq!(
        mounted.leaves(),
        3 * LEAVES,
        "the other file keeps every line"
    );
    mounted.end();
}

#[test]
fn what_is_refused_is_told() {
    let mounted = Phases::new();
    let said = mounted.bad("echo 'trace x onn' >ctl");
    assert!(said.contains("Invalid argument"), "{said}");
    let log = mounted.good("cat tracing/error_log");
    assert!(log.contains("trace x onn"), "{log}");
    assert!(
        mounted
            .bad("echo tracer >tracing/current_tracer")
            .contains("Invalid argument")
    );
    assert!(
        mounted
            .bad("echo x >tracing/available_tracers")
            .contains("Permission denied")
    );
    let state = mounted.good("cat ctl");
    assert!(state.contains("trace function on\n"), "{state}");
    mounted.end();
}

#[test]
fn files_go_with_their_session() {
    let mut mounted = Phases::new();
    let folder = mounted.scratch.path().join("mount");
    let number = mounted.program.id().to_string();
    let mut pipe = mounted.shell("exec cat tracing/trace_pipe").spawn();
    mounted.run_phase();
    pipe.wait_for(|text| text.contains("leaf"));
    let ended = start(mounted.scratch.path(), &["detach", &number]).run("");
    assert_eq!((ended.end, &*ended.stderr), (End::Code(0), ""));
    assert_nothing_left(mounted.program.id());
    let ended = pipe.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let lines = ended.stdout.lines().filter(|line| line.contains(" leaf+"));
    assert_eq!(lines.count(), LEAVES, "the last lines came before the end");
    assert!(!folder.join(&number).exists());
    let mut mounted = mounted.mounted;
    assert_eq!(mounted.tool.wait().end, End::Code(0));
    mounted.mount.signal_group(libc::SIGINT);
    mounted.mount.wait();
    wait_until("the mount is gone", || {
        std::fs::read_dir(&folder).unwrap().next().is_none()
    });
    drop(mounted.stdin);
    assert_eq!(mounted.program.wait().end, End::Code(5));
}

/// Plain files stand in for the devices: only their names matter. The sessions have their own directory.
#[test]
fn the_kernel_s_module_has_a_folder_while_it_is_loaded() {
    let scratch = scratch();
    let script = r#"set -e
        mkdir dev mount
        mkdir -m 700 nopal
        for device in fuse null; do touch dev/$device; mount --bind /dev/$device dev/$device; done
        mount --rbind dev /dev
        "$0" mount mount 2>/dev/null &
        until mountpoint -q mount; do sleep 0.01; done
        ls mount
        echo state >/dev/nopal
        ls mount mount/kernel
        cat mount/kernel/ctl
        echo 'trace vfs_* new v' >mount/kernel/ctl
        cat /dev/nopal
        readlink mount/kernel/trace mount/kernel/latency_trace
        ls mount/kernel/other 2>/dev/null || echo none
        rm /dev/nopal
        ls mount
        kill -INT $!
        wait $!"#;
    let mut start = Start::new(["unshare", "--map-root-user", "--mount", "bash", "-c"]);
    start.words.extend([script.into(), nopal().into()]);
    start.directory = Some(scratch.path().into());
    start
        .environment
        .push(("XDG_RUNTIME_DIR".into(), scratch.path().into()));
    let ended = start.run("");
    assert_eq!((ended.end, &*ended.stderr), (End::Code(0), ""));
    let told = "mount:\nkernel\n\nmount/kernel:\nctl\nlatency_trace\ntrace\nstate\ntrace vfs_* new v\n\
                /dev/nopal_trace\n/dev/nopal_latency\nnone\n";
    assert_eq!(ended.stdout, told);
}
