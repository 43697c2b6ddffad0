//! All files and commands with their descriptions: the served files and the manual are made from this table.

/// The folder with the names of the kernel's tracing directory.
pub const FOLDER: &str = "tracing";
/// In it, the folder with histograms, which has one for each processor, with the same files.
pub const HISTOGRAMS: &str = "latency_hist";
pub const HISTOGRAMS_PATH: &str = "tracing/latency_hist";
pub const PROCESSOR: &str = "cpu";
/// The file with the histograms of all sections.
pub const SECTIONS: &str = "section";

pub struct Row {
    pub folder: &'static str,
    pub name: &'static str,
    /// Permission bits for the owner.
    pub mode: u32,
    pub role: Role,
    pub about: &'static str,
    pub example: &'static str,
}

/// The role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Control,
    Devtrace,
    Metrics,
    AvailableTracers,
    CurrentTracer,
    TracingOn,
    Trace,
    TracePipe,
    Filter {
        excluded: bool,
    },
    AvailableFunctions,
    Processes,
    Threshold,
    WorstLatency,
    Latency,
    /// The histogram of a tracer or of all sections, for one processor or for all.
    Histogram {
        of: &'static str,
        processor: Option<u32>,
    },
    BufferSize,
    Options,
    Marker,
    Marks,
    Errors,
    Readme,
}

const READ: u32 = 0o400;
const WRITE: u32 = 0o200;
const BOTH: u32 = READ | WRITE;

const fn of_all(of: &'static str) -> Role {
    Role::Histogram {
        of,
        processor: None,
    }
}

pub const FILES: &[Row] = &[
    Row {
        folder: "",
        name: "ctl",
        mode: BOTH,
        role: Role::Control,
        about: "Takes commands, a line each, and shows the state of the session as commands that restore it, with \
                comments: counters, and the last answer to a command that was written.",
        example: "echo 'trace parse_* new p' > ctl",
    },
    Row {
        folder: "",
        name: "trace",
        mode: READ,
        role: Role::Devtrace,
        about: "All records in order of time, one on each line: E for an entry or X for an exit, the address of the function, or a dash for an exit, whose address is not recorded, the time stamp counter, the thread id, then the first four arguments or the result. Numbers have 16 hexadecimal digits; arguments and results are 0 unless the session records them. Reading does not consume the records.",
        example: "grep ^E trace | head",
    },
    Row {
        folder: "",
        name: "metrics",
        mode: READ,
        role: Role::Metrics,
        about: "Figures of the session, in the text format of Prometheus: processes, calls and losses, how often triggers fired, and the calls of the thousand functions with most of them.",
        example: "grep nopal_lost metrics",
    },
    Row {
        folder: FOLDER,
        name: "README",
        mode: READ,
        role: Role::Readme,
        about: "Describes the files of this folder.",
        example: "cat README",
    },
    Row {
        folder: FOLDER,
        name: "available_tracers",
        mode: READ,
        role: Role::AvailableTracers,
        about: "Lists the names that current_tracer takes.",
        example: "cat available_tracers",
    },
    Row {
        folder: FOLDER,
        name: "current_tracer",
        mode: BOTH,
        role: Role::CurrentTracer,
        about: "The current tracer. function records the functions that the filters select: it makes the trace named function and switches it on. nop, or disable, removes that trace; other traces stay. A latency tracer, such as lockhold, replaces function; its cases include the events of other traces. events records all markers and kernel events, sched_switch context switches; the file trace shows them.",
        example: "echo function > current_tracer",
    },
    Row {
        folder: FOLDER,
        name: "tracing_on",
        mode: BOTH,
        role: Role::TracingOn,
        about: "1 starts recording, as the command start; 0 stops it, as stop.",
        example: "echo 0 > tracing_on",
    },
    Row {
        folder: FOLDER,
        name: "trace",
        mode: BOTH,
        role: Role::Trace,
        about: "The recorded entries, one on each line: function and caller. Reading does not consume them. Emptying the file hides all earlier entries; the trace directory keeps them.",
        example: "head trace; > trace",
    },
    Row {
        folder: FOLDER,
        name: "trace_pipe",
        mode: READ,
        role: Role::TracePipe,
        about: "Like trace, but each line is read once, by one reader, and readers wait for more lines.",
        example: "cat trace_pipe",
    },
    Row {
        folder: FOLDER,
        name: "set_ftrace_filter",
        mode: BOTH,
        role: Role::Filter { excluded: false },
        about: "The functions that the function tracer records; empty means all. Takes locations as the command trace does; >> adds to them, and !LOCATION removes one.",
        example: "echo 'parse_*' > set_ftrace_filter",
    },
    Row {
        folder: FOLDER,
        name: "set_ftrace_notrace",
        mode: BOTH,
        role: Role::Filter { excluded: true },
        about: "The functions that the function tracer leaves out.",
        example: "echo 'parse_char' >> set_ftrace_notrace",
    },
    Row {
        folder: FOLDER,
        name: "available_filter_functions",
        mode: READ,
        role: Role::AvailableFunctions,
        about: "All functions that can be traced, one on each line. Functions of libraries are written FUNCTION@LIBRARY.",
        example: "grep parse available_filter_functions",
    },
    Row {
        folder: FOLDER,
        name: "set_ftrace_pid",
        mode: BOTH,
        role: Role::Processes,
        about: "The processes and threads to record, by their ids, as the command watch; empty means all.",
        example: "echo 4711 > set_ftrace_pid",
    },
    Row {
        folder: FOLDER,
        name: "buffer_size_kb",
        mode: BOTH,
        role: Role::BufferSize,
        about: "Size of the buffer for records that are not written yet, for all threads together, in KiB. It has whole chunks of 64 KiB; where that is not the size that was written, error_log says so.",
        example: "echo 65536 > buffer_size_kb",
    },
    Row {
        folder: FOLDER,
        name: "trace_options",
        mode: BOTH,
        role: Role::Options,
        about: "symonly or nosymonly: whether trace and trace_pipe show only names, or names with addresses. verbose or noverbose: whether they use the verbose latency format.",
        example: "echo nosymonly > trace_options",
    },
    Row {
        folder: FOLDER,
        name: "trace_marker",
        mode: WRITE,
        role: Role::Marker,
        about: "Each line written to this file becomes a note in the trace, at the time of writing; trace and trace_pipe show it.",
        example: "echo 'request 17 begins' > trace_marker",
    },
    Row {
        folder: FOLDER,
        name: "mark_on",
        mode: BOTH,
        role: Role::Marks,
        about: "The markers that are on, by name, one on each line, as the command mark takes them; after ! those that are off although an earlier line matches them. A comment names those that wait for their library. >> adds to them, and !NAME switches off.",
        example: "echo 'net_*' > mark_on",
    },
    Row {
        folder: FOLDER,
        name: "iter_ctrl",
        mode: BOTH,
        role: Role::Options,
        about: "The same as trace_options.",
        example: "echo verbose > iter_ctrl",
    },
    Row {
        folder: FOLDER,
        name: "tracing_thresh",
        mode: BOTH,
        role: Role::Threshold,
        about: "A threshold in microseconds: every longer case is kept instead of only the worst; 0: only the worst.",
        example: "echo 500 > tracing_thresh",
    },
    Row {
        folder: FOLDER,
        name: "tracing_max_latency",
        mode: BOTH,
        role: Role::WorstLatency,
        about: "The duration of the current tracer's worst case in microseconds. Writing 0 forgets it and the cases above the threshold, and starts recording.",
        example: "cat tracing_max_latency; echo 0 > tracing_max_latency",
    },
    Row {
        folder: FOLDER,
        name: "latency_trace",
        mode: READ,
        role: Role::Latency,
        about: "The current tracer's worst case, or the last 16 above the threshold, with all events in them; for function, events and sched_switch, all that was recorded. trace_options selects the format.",
        example: "cat latency_trace",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "lockhold",
        mode: READ,
        role: of_all("lockhold"),
        about: "How often locks were held for how many microseconds, since the tracer was switched on. The folders cpu0, cpu1 and so on have the same files for the cases that ended on that processor, which is known with kernel events.",
        example: "cat latency_hist/lockhold latency_hist/cpu0/lockhold",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "lockwait",
        mode: READ,
        role: of_all("lockwait"),
        about: "How often threads waited for locks for how long.",
        example: "cat latency_hist/lockwait",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "sigoff",
        mode: READ,
        role: of_all("sigoff"),
        about: "How often threads blocked signals for how long.",
        example: "cat latency_hist/sigoff",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "critical",
        mode: READ,
        role: of_all("critical"),
        about: "How often threads held a lock or blocked signals for how long.",
        example: "cat latency_hist/critical",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "wakeup",
        mode: READ,
        role: of_all("wakeup"),
        about: "How often woken threads waited how long for a processor.",
        example: "cat latency_hist/cpu1/wakeup",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "wakeup_all",
        mode: READ,
        role: of_all("wakeup_all"),
        about: "The same for all tasks of the machine that were more urgent than the running one; of those that waited, the most urgent.",
        example: "cat latency_hist/wakeup_all",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "offcpu",
        mode: READ,
        role: of_all("offcpu"),
        about: "How often threads were off the processor for how long.",
        example: "cat latency_hist/offcpu",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "blocked",
        mode: READ,
        role: of_all("blocked"),
        about: "The same, for threads that waited for something.",
        example: "cat latency_hist/blocked",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "preempted",
        mode: READ,
        role: of_all("preempted"),
        about: "The same, for threads that could have run on.",
        example: "cat latency_hist/preempted",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: SECTIONS,
        mode: READ,
        role: of_all(SECTIONS),
        about: "How often the sections that are on took how long, one histogram after the other.",
        example: "cat latency_hist/section",
    },
    Row {
        folder: FOLDER,
        name: "error_log",
        mode: BOTH,
        role: Role::Errors,
        about: "The last commands and writes that were refused, with the reasons. Emptying the file forgets them.",
        example: "cat error_log",
    },
];

/// The description of a command. The forms themselves are the parser's.
pub struct Description {
    pub form: &'static str,
    pub about: &'static str,
    pub examples: &'static [&'static str],
}

pub const COMMANDS: &[Description] = &[
    Description {
        form: "trace WHAT new NAME",
        about: "Makes a trace: a named set of functions. Jumps are inserted into their code, switched off. Functions that cannot be traced are reported with the reason and left alone; if none can be traced, it is an error. If WHAT names a library that is not loaded, the trace waits for it. Repeating the command does nothing.",
        examples: &["trace parse_* !parse_char new p"],
    },
    Description {
        form: "trace NAME on",
        about: "Switches a trace on: its functions are recorded while the session is started. A function of several traces is recorded while any of them is on. Takes effect on all threads at once and stops none.",
        examples: &["trace p on"],
    },
    Description {
        form: "trace NAME off",
        about: "Switches a trace off. Its jumps stay, which costs a call two jumps.",
        examples: &["trace p off"],
    },
    Description {
        form: "trace NAME count",
        about: "Counts the calls of the trace's functions while the session is started, and records nothing of them: a counted call costs little more than one that is off. The trace tells how many there were in each tenth of a second. A function is recorded, and not counted, while another trace that has it is on, or a trigger looks at it. Functions whose calls were counted have no times.",
        examples: &["trace p count"],
    },
    Description {
        form: "trace NAME remove",
        about: "Removes a trace, and the jumps that no other trace needs.",
        examples: &["trace p remove"],
    },
    Description {
        form: "mark NAME on",
        about: "Records the markers with this name, a glob, or GLOB@LIBRARY, while the session is started, also in \
                libraries that are loaded later: if no marker of what is loaded matches, GLOB@LIBRARY waits. \
                PROVIDER:NAME means static probes (USDT). All threads stop for a moment.",
        examples: &["mark net_* on"],
    },
    Description {
        form: "mark NAME off",
        about: "Switches these markers off: each is a NOP again. The last command that matches a marker decides.",
        examples: &["mark net_tx off"],
    },
    Description {
        form: "when EVENT [if COND] do ACTION [new NAME]",
        about: "Sets a trigger: performs the action each time that the event happens and the condition holds. nopal checks the records within milliseconds; nothing runs in the process. Functions that no trace has on are recorded for the trigger only. Without new, its name is the lowest free number. Repeating the command does nothing.",
        examples: &[
            "when return handle_request if duration > 50ms do snapshot new slow",
            "when main.c:120 do start",
        ],
    },
    Description {
        form: "when NAME remove",
        about: "Removes a trigger.",
        examples: &["when slow remove"],
    },
    Description {
        form: "snapshot",
        about: "Writes the current contents of the flight recorder (--flight) into a trace of its own, in the trace directory.",
        examples: &["snapshot"],
    },
    Description {
        form: "size NUMBER",
        about: "Sets the size of the buffer to 2 to the power of NUMBER records of 8 bytes. In a running session it can grow to four times --buffer, but not beyond 64 MiB unless --buffer is larger.",
        examples: &["size 23"],
    },
    Description {
        form: "logsize NUMBER",
        about: "The same as size; the state shows this form.",
        examples: &["logsize 23"],
    },
    Description {
        form: "watch IDS",
        about: "Records only these processes and threads; 0 means all. The others are as slow as recorded ones.",
        examples: &["watch 4711 4715"],
    },
    Description {
        form: "watch IDS children",
        about: "Also records the children that these processes fork from now on.",
        examples: &["watch 4711 children"],
    },
    Description {
        form: "processors IDS",
        about: "Records on these processors only, of a kernel (nopal ctl kernel): a program's threads are chosen by watch.",
        examples: &["processors 0 2"],
    },
    Description {
        form: "processors all",
        about: "Records on all processors again.",
        examples: &["processors all"],
    },
    Description {
        form: "start",
        about: "Starts recording the traces that are on.",
        examples: &["start"],
    },
    Description {
        form: "stop",
        about: "Stops all recording. The jumps stay, switched off: a call costs two jumps, as with off. The ends of calls that had begun are recorded still, and readers say from when to when recording was stopped.",
        examples: &["stop"],
    },
    Description {
        form: "reset",
        about: "Removes all traces and all jumps, watches all processes, sets uniform off, stops, and counts from 0: \
                the processes run as if they had never been traced. The buffer keeps its size.",
        examples: &["reset"],
    },
    Description {
        form: "query WHAT",
        about: "Shows for each function whether it is traced, and by which traces, or why it cannot be traced. The answer is also in ctl, as comments.",
        examples: &["query main.c:120"],
    },
    Description {
        form: "testtracein WHAT",
        about: "Records an entry of each of these functions that is traced, as if the tool had called it: a test of traces, and of programs that read them.",
        examples: &["testtracein parse_line"],
    },
    Description {
        form: "section FROM TO new NAME",
        about: "Makes a tracer of the time from FROM to TO. Each is a FUNCTION (its entry), FUNCTION.end (its return) or a MARKER. They are paired within a thread, or across threads by a value that both have: FUNCTION.arg1 to arg6, FUNCTION.result, MARKER.FIELD.",
        examples: &["section read_request.arg1 write_reply.arg1 new request"],
    },
    Description {
        form: "section NAME remove",
        about: "Removes a section.",
        examples: &["section request remove"],
    },
    Description {
        form: "tracer NAME on",
        about: "Switches a latency tracer on: lockhold (how long pthread locks are held), lockwait (how long threads wait for them), sigoff (how long signals are blocked), critical (lockhold or sigoff), wakeup, wakeup_all, offcpu, blocked, preempted (kernel events), or a section. It records only the events that it needs, and keeps a histogram of all cases and the worst case. Several tracers may be on.",
        examples: &["tracer lockhold on"],
    },
    Description {
        form: "tracer NAME off",
        about: "Switches a tracer off and removes its jumps. Its results are forgotten; its events stay in the trace.",
        examples: &["tracer lockhold off"],
    },
    Description {
        form: "tracer NAME reset",
        about: "Forgets the worst case. The histogram continues.",
        examples: &["tracer lockhold reset"],
    },
    Description {
        form: "tracer NAME keep NUMBER",
        about: "Keeps the slowest cases of each minute, up to this number, with all that was recorded in them: each is a snapshot of the flight recorder (--flight), which a slower case replaces within the minute; 0: none.",
        examples: &["tracer request keep 20"],
    },
    Description {
        form: "threshold NUMBER",
        about: "Sets a threshold in microseconds: tracers keep every longer case instead of only the worst; 0: only the worst.",
        examples: &["threshold 500"],
    },
    Description {
        form: "latency NAME",
        about: "Shows the worst case of a tracer, or the last 16 above the threshold, with all events in them.",
        examples: &["latency lockhold"],
    },
    Description {
        form: "uniform on",
        about: "Makes every function that can be traced as slow as a recorded one, so that their times compare as they do without tracing.",
        examples: &["uniform on"],
    },
    Description {
        form: "uniform off",
        about: "Takes that back.",
        examples: &["uniform off"],
    },
    Description {
        form: "budget off",
        about: "Takes a budget back: all functions of the traces that are on are recorded again.",
        examples: &["budget off"],
    },
    Description {
        form: "budget SHARE",
        about: "Keeps the processor time that recording adds within a share of what the processes use themselves, from 0.01% to 100%. The functions whose calls cost most and show least are counted, and if even this costs too much, the jumps of those that are called most are removed; they are recorded again when there is room. Functions that somebody has named, by more than *, in a trace, a trigger or a section, are always recorded, and all are while uniform is on. The trace records which functions were counted or off, and when.",
        examples: &["budget 5%"],
    },
    Description {
        form: "arguments on",
        about: "Records arguments and results of functions of the kernel (`nopal ctl kernel`). Of a process's functions, `--args` chooses it when its session begins.",
        examples: &["arguments on"],
    },
    Description {
        form: "arguments off",
        about: "Takes that back.",
        examples: &["arguments off"],
    },
    Description {
        form: "probe NAME on",
        about: "Switches a probe on: it is recorded while the session is started. Stops no thread.",
        examples: &["probe p on"],
    },
    Description {
        form: "probe NAME off",
        about: "Switches a probe off. Its jump stays: the instruction costs two jumps.",
        examples: &["probe p off"],
    },
    Description {
        form: "probe NAME remove",
        about: "Removes a probe and its jump.",
        examples: &["probe p remove"],
    },
    Description {
        form: "probe [return|breakpoint|auto] WHERE [new NAME] [fetch ARGS]",
        about: "Makes a probe: it records an event with this name and these values each time that the instruction runs. Its jump is inserted switched off. WHERE is FUNCTION, FUNCTION+OFFSET, either of them with @LIBRARY, FILE:LINE, or an address. With return, the event is recorded before each exit of a function, whose calls are recorded too. With breakpoint, the probe is a breakpoint (SIGTRAP), which needs one byte where a jump needs five, and takes some microseconds each time; it kills a thread that blocks SIGTRAP. With auto, it is a breakpoint only where no jump fits, and the answer says why. Without new, the name is WHERE, or WHERE:return. Up to 12 ARGS, each [NAME=]VALUE[:TYPE]: a register ($di, %di), memory at an offset from one (+8($si), +0(+8($si))), memory at an address (@0x404040), a variable of the source (count) or a part of it (queue.head->length, values[3]); at the beginning of a function $arg1 to $arg6, at its return $retval. TYPE is s8 to s64, u8 to u64, x8 to x64, or string for the text at an address.",
        examples: &[
            "probe parse_query+0x1c new p fetch $di name=+8($si):string",
            "probe return parse_query new r fetch $retval:s32",
            "probe breakpoint parse_query+0x3",
            "probe auto parse_query+0x3",
            "probe main.c:120 fetch count",
        ],
    },
];

/// The description of an argument of commands.
pub struct Argument {
    pub name: &'static str,
    pub is: &'static str,
    /// Its forms, and their meanings.
    pub forms: &'static [(&'static str, &'static str)],
}

pub const ARGUMENTS: &[Argument] = &[
    Argument {
        name: "WHAT",
        is: "is one or more locations",
        forms: PLACES,
    },
    Argument {
        name: "EVENT",
        is: "is the event of a trigger",
        forms: EVENTS,
    },
    Argument {
        name: "COND",
        is: "is a condition on the event",
        forms: CONDITIONS,
    },
    Argument {
        name: "ACTION",
        is: "is the action of a trigger",
        forms: ACTIONS,
    },
];

const EVENTS: &[(&str, &str)] = &[
    ("WHAT", "one of these functions is called"),
    (
        "return WHAT",
        "one of these functions returns, or is left by an exception",
    ),
    (
        "mark NAME",
        "a marker with this name, or that matches the glob, is met; it must be on",
    ),
    ("probe NAME", "this probe is met; it must be on"),
];

const CONDITIONS: &[(&str, &str)] = &[
    ("COND or COND", "one of them holds"),
    (
        "COND and COND",
        "both of them hold; this binds more tightly",
    ),
    (
        "VALUE == VALUE",
        "or !=, <, <=, >, >=. Values are signed and have 64 bits. A comparison with an unknown value does not hold",
    ),
    (
        "FIELD == \"TEXT\"",
        "or !=: compares the whole text of a marker",
    ),
    (
        "hits",
        "the number of events, including this one, whether or not the condition held",
    ),
    (
        "duration, self",
        "the time of the call that returns: with callees, and without",
    ),
    (
        "arg1 to arg6, result",
        "values of the call, which are recorded for the trigger. int(result) is the result of a function of type int",
    ),
    (
        "FIELD",
        "a field of the marker, or a value of the probe, if it is a number",
    ),
    (
        "50ms",
        "a number; with ns, us, ms or s a time; or 0x and digits",
    ),
    ("+ - * / % & | ^ ~ << >> (…)", "between values, as in C"),
];

const ACTIONS: &[(&str, &str)] = &[
    ("start", "as the command"),
    ("stop", "as the command; triggers go on"),
    ("trace NAME on", "as the command, for an existing trace"),
    ("trace NAME off", "as the command"),
    (
        "snapshot",
        "writes the contents of the flight recorder (--flight) into a trace of its own: DIR/snapshot-1, and so on",
    ),
    (
        "mark",
        "writes a note into the trace at the time of the event",
    ),
    (
        "count",
        "does nothing else: ctl shows how often the condition held",
    ),
    ("detach", "ends the session, as nopal detach does"),
];

const PLACES: &[(&str, &str)] = &[
    (
        "NAME",
        "a function, by its name in the file, or by any form of its C++ or Rust name",
    ),
    (
        "GLOB",
        "all functions of the program that match, and of those library functions that are recorded by default: * ? [a-z] {a,b}",
    ),
    (
        "GLOB@LIBRARY",
        "functions of a library, by its file name, complete or up to .so, or by a glob: *@libz, malloc@libc*",
    ),
    (
        "FILE:LINE",
        "the function with code of this line, if the file has debug information",
    ),
    (
        "ADDRESS",
        "the function at an address, in hexadecimal: with 0x, a leading digit, or eight digits",
    ),
    (
        "START END",
        "two addresses: the functions that begin at START or later, and before END",
    ),
    (
        "MODULE+0xADDRESS",
        "the function at this address in the file",
    ),
    (
        "MODULE+0xSTART-0xEND",
        "the functions that begin in this range of the file; the state shows addresses in this form, so that it applies to other processes",
    ),
    ("!LOCATION", "without these functions; alone, all others"),
    (
        "\"WORDS\"",
        "a location with blanks in it: \"operator new*\"",
    ),
];
