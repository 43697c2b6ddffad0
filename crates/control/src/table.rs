//! All files and all commands, each with what it is for: what is served, and the manual, come from here.

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

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Control,
    Devtrace,
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
                counters as comments.",
        example: "echo 'trace parse_* new p' > ctl",
    },
    Row {
        folder: "",
        name: "trace",
        mode: READ,
        role: Role::Devtrace,
        about: "All that has been recorded, in order of time, a line a record: E for an entry or X for an exit, the \
                address of the function, the time stamp counter, the thread id, then the first four arguments or the \
                result. Numbers have 16 hexadecimal digits; arguments and results are 0 unless the session records \
                them. Reading does not consume.",
        example: "grep ^E trace | head",
    },
    Row {
        folder: FOLDER,
        name: "README",
        mode: READ,
        role: Role::Readme,
        about: "What the files of this folder are for.",
        example: "cat README",
    },
    Row {
        folder: FOLDER,
        name: "available_tracers",
        mode: READ,
        role: Role::AvailableTracers,
        about: "What current_tracer takes.",
        example: "cat available_tracers",
    },
    Row {
        folder: FOLDER,
        name: "current_tracer",
        mode: BOTH,
        role: Role::CurrentTracer,
        about: "function records the functions that the filters choose: it makes the trace named function and \
                switches it on. nop, or disable, removes that trace; others stay. A tracer of latency, such as \
                lockhold, takes the place of function; what other traces record is in its cases. events records all \
                markers and kernel events, sched_switch who leaves a processor and who gets it; they stand in \
                trace.",
        example: "echo function > current_tracer",
    },
    Row {
        folder: FOLDER,
        name: "tracing_on",
        mode: BOTH,
        role: Role::TracingOn,
        about: "1 as the command start, 0 as stop.",
        example: "echo 0 > tracing_on",
    },
    Row {
        folder: FOLDER,
        name: "trace",
        mode: BOTH,
        role: Role::Trace,
        about: "The entries that have been recorded, a line each: function and caller. Reading does not consume. \
                Emptying the file leaves out what has been recorded until then; the trace directory keeps it.",
        example: "head trace; > trace",
    },
    Row {
        folder: FOLDER,
        name: "trace_pipe",
        mode: READ,
        role: Role::TracePipe,
        about: "As trace, but each line is given to one reader once, and a reader waits for more.",
        example: "cat trace_pipe",
    },
    Row {
        folder: FOLDER,
        name: "set_ftrace_filter",
        mode: BOTH,
        role: Role::Filter { excluded: false },
        about: "The functions that the function tracer records; empty means all. Takes places as the command trace \
                does; >> adds to them, and !PLACE takes one out again.",
        example: "echo 'parse_*' > set_ftrace_filter",
    },
    Row {
        folder: FOLDER,
        name: "set_ftrace_notrace",
        mode: BOTH,
        role: Role::Filter { excluded: true },
        about: "The functions that the function tracer leaves out of those.",
        example: "echo 'parse_char' >> set_ftrace_notrace",
    },
    Row {
        folder: FOLDER,
        name: "available_filter_functions",
        mode: READ,
        role: Role::AvailableFunctions,
        about: "All functions that can be traced, a line each. Those of libraries are written FUNCTION@LIBRARY.",
        example: "grep parse available_filter_functions",
    },
    Row {
        folder: FOLDER,
        name: "set_ftrace_pid",
        mode: BOTH,
        role: Role::Processes,
        about: "As the command watch: process and thread ids; empty means all.",
        example: "echo 4711 > set_ftrace_pid",
    },
    Row {
        folder: FOLDER,
        name: "buffer_size_kb",
        mode: BOTH,
        role: Role::BufferSize,
        about: "Memory for records that are not written out yet, of all threads together, in KiB.",
        example: "echo 65536 > buffer_size_kb",
    },
    Row {
        folder: FOLDER,
        name: "trace_options",
        mode: BOTH,
        role: Role::Options,
        about: "symonly or nosymonly: whether trace and trace_pipe show names only, or addresses behind them. \
                verbose or noverbose: whether they show the lines of the verbose latency format.",
        example: "echo nosymonly > trace_options",
    },
    Row {
        folder: FOLDER,
        name: "trace_marker",
        mode: WRITE,
        role: Role::Marker,
        about: "Each line that is written here becomes a note in the trace, at the time of writing; trace and \
                trace_pipe show it.",
        example: "echo 'request 17 begins' > trace_marker",
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
        about: "In microseconds: every case that takes longer is kept, and not the worst only; 0: the worst only.",
        example: "echo 500 > tracing_thresh",
    },
    Row {
        folder: FOLDER,
        name: "tracing_max_latency",
        mode: BOTH,
        role: Role::WorstLatency,
        about: "The microseconds of the current tracer's worst case. 0 forgets it, and those above the threshold.",
        example: "cat tracing_max_latency; echo 0 > tracing_max_latency",
    },
    Row {
        folder: FOLDER,
        name: "latency_trace",
        mode: READ,
        role: Role::Latency,
        about: "The current tracer's worst case, or the last 16 above the threshold, with what was recorded in them; \
                of function, all entries. trace_options choose the version.",
        example: "cat latency_trace",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "lockhold",
        mode: READ,
        role: of_all("lockhold"),
        about: "How often locks were held for so many microseconds, since the tracer is on. In cpu0, cpu1 and so on are \
                the same files, of the cases that ended there, as far as that is known: with kernel events.",
        example: "cat latency_hist/lockhold latency_hist/cpu0/lockhold",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "lockwait",
        mode: READ,
        role: of_all("lockwait"),
        about: "How often locks were waited for so long.",
        example: "cat latency_hist/lockwait",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "sigoff",
        mode: READ,
        role: of_all("sigoff"),
        about: "How often threads blocked signals for so long.",
        example: "cat latency_hist/sigoff",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "critical",
        mode: READ,
        role: of_all("critical"),
        about: "How often threads held a lock or blocked signals for so long.",
        example: "cat latency_hist/critical",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "wakeup",
        mode: READ,
        role: of_all("wakeup"),
        about: "How often threads that were woken waited so long for a processor.",
        example: "cat latency_hist/cpu1/wakeup",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "offcpu",
        mode: READ,
        role: of_all("offcpu"),
        about: "How often threads were without a processor for so long.",
        example: "cat latency_hist/offcpu",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "blocked",
        mode: READ,
        role: of_all("blocked"),
        about: "The same, where they waited for something.",
        example: "cat latency_hist/blocked",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: "preempted",
        mode: READ,
        role: of_all("preempted"),
        about: "The same, where they could have run on.",
        example: "cat latency_hist/preempted",
    },
    Row {
        folder: HISTOGRAMS_PATH,
        name: SECTIONS,
        mode: READ,
        role: of_all(SECTIONS),
        about: "How often the sections that are on took so long, one after the other.",
        example: "cat latency_hist/section",
    },
    Row {
        folder: FOLDER,
        name: "error_log",
        mode: BOTH,
        role: Role::Errors,
        about: "The last commands and writes that were refused, and why, which an error number cannot tell. Emptying \
                the file forgets them.",
        example: "cat error_log",
    },
];

/// What is told of a command. The forms themselves are the parser's.
pub struct Description {
    pub form: &'static str,
    pub about: &'static str,
    pub examples: &'static [&'static str],
}

pub const COMMANDS: &[Description] = &[
    Description {
        form: "trace WHAT new NAME",
        about: "Makes a trace: a named set of functions. Jumps are put into their code, switched off. Functions that \
                cannot be traced are told of with the reason, and left alone; if none can be, it is an error. Where \
                WHAT names a library that is not loaded, the trace waits for it. The same command again does nothing.",
        examples: &["trace parse_* !parse_char new p"],
    },
    Description {
        form: "trace NAME on",
        about: "Switches a trace on: its functions are recorded while the session is started. A function that several \
                traces hold is recorded while any of them is on. Takes effect on all threads at once and stops none.",
        examples: &["trace p on"],
    },
    Description {
        form: "trace NAME off",
        about: "Switches a trace off. Its jumps stay, which costs a call two jumps.",
        examples: &["trace p off"],
    },
    Description {
        form: "trace NAME remove",
        about: "Forgets a trace, and takes the jumps that no other trace holds out of the code.",
        examples: &["trace p remove"],
    },
    Description {
        form: "mark NAME on",
        about: "Records the markers with this name, a glob, or GLOB@LIBRARY, while the session is started, also in \
                libraries that are loaded later. PROVIDER:NAME means static probes (USDT). All threads stop for a moment.",
        examples: &["mark net_* on"],
    },
    Description {
        form: "mark NAME off",
        about: "Takes that back, for these markers: each is a NOP again. Of several commands that mean a marker, the \
                last decides.",
        examples: &["mark net_tx off"],
    },
    Description {
        form: "when EVENT [if COND] do ACTION [new NAME]",
        about: "Sets a trigger: does something each time that this happens, and the condition holds. It is looked for in \
                what is recorded, by nopal and not in the process, within milliseconds. The functions that it means are \
                recorded for it alone where no trace has them on. Without new, its name is the lowest number that is \
                free. The same command again does nothing.",
        examples: &[
            "when return handle_request if duration > 50ms do snapshot new slow",
            "when main.c:120 do start",
        ],
    },
    Description {
        form: "when NAME remove",
        about: "Forgets a trigger.",
        examples: &["when slow remove"],
    },
    Description {
        form: "snapshot",
        about: "Writes what the flight recorder (--flight) holds now into a trace of its own, in the trace directory.",
        examples: &["snapshot"],
    },
    Description {
        form: "size NUMBER",
        about: "Gives the buffer room for 2 to the power of NUMBER records of 8 bytes. A running session takes up to four times what --buffer gave, and no more than that or 64 MiB.",
        examples: &["size 23"],
    },
    Description {
        form: "logsize NUMBER",
        about: "The same: the state is shown by this word.",
        examples: &["logsize 23"],
    },
    Description {
        form: "watch IDS",
        about: "Records only these processes and threads; 0 means all. The others pay what recorded ones pay.",
        examples: &["watch 4711 4715"],
    },
    Description {
        form: "watch IDS children",
        about: "Records also what these processes fork from now on.",
        examples: &["watch 4711 children"],
    },
    Description {
        form: "start",
        about: "Records the traces that are on.",
        examples: &["start"],
    },
    Description {
        form: "stop",
        about: "Records nothing. The jumps stay, switched off: a call costs two jumps, as with off.",
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
        about: "Tells of each function whether it is traced, and by which traces, or why it cannot be. The answer is \
                also in ctl, as comments.",
        examples: &["query main.c:120"],
    },
    Description {
        form: "testtracein WHAT",
        about: "Records an entry of each of these functions that is being traced, as if it had been called by the \
                tool: a test of traces, and of programs that read them.",
        examples: &["testtracein parse_line"],
    },
    Description {
        form: "section FROM TO new NAME",
        about: "Makes a tracer of the time from FROM to TO: a FUNCTION, which means its entry, FUNCTION.end, its return, \
                or a MARKER. They are paired by the thread, or by a value that both have, also across threads: \
                FUNCTION.arg1 to arg6, FUNCTION.result, MARKER.FIELD.",
        examples: &["section read_request.arg1 write_reply.arg1 new request"],
    },
    Description {
        form: "section NAME remove",
        about: "Forgets a section.",
        examples: &["section request remove"],
    },
    Description {
        form: "tracer NAME on",
        about: "Switches a tracer of latency on: lockhold (how long locks of pthread are held), lockwait (how long they \
                are waited for), sigoff (how long signals are blocked), critical (either of lockhold and sigoff), or a \
                section. It records what it needs and no more, and keeps a histogram of all \
                cases and the worst of them. Several may be on.",
        examples: &["tracer lockhold on"],
    },
    Description {
        form: "tracer NAME off",
        about: "Switches it off, and takes its jumps out. What it has found is forgotten; what was recorded is in the \
                trace.",
        examples: &["tracer lockhold off"],
    },
    Description {
        form: "tracer NAME reset",
        about: "Forgets the worst case. The histogram goes on.",
        examples: &["tracer lockhold reset"],
    },
    Description {
        form: "threshold NUMBER",
        about: "In microseconds: tracers keep every case that takes longer, and not the worst only; 0: the worst only.",
        examples: &["threshold 500"],
    },
    Description {
        form: "latency NAME",
        about: "The worst case of a tracer, or the last 16 above the threshold, with what was recorded in them.",
        examples: &["latency lockhold"],
    },
    Description {
        form: "uniform on",
        about: "Lets every function that can be traced pay what a recorded one pays, recorded or not, so that their \
                times compare as they do without tracing.",
        examples: &["uniform on"],
    },
    Description {
        form: "uniform off",
        about: "Takes that back.",
        examples: &["uniform off"],
    },
    Description {
        form: "probe NAME on",
        about: "Switches a probe on: it is recorded while the session is started. Stops no thread.",
        examples: &["probe p on"],
    },
    Description {
        form: "probe NAME off",
        about: "Switches a probe off. Its jump stays, which costs two jumps.",
        examples: &["probe p off"],
    },
    Description {
        form: "probe NAME remove",
        about: "Forgets a probe, and takes its jump out of the code.",
        examples: &["probe p remove"],
    },
    Description {
        form: "probe [return|breakpoint] WHERE [new NAME] [fetch ARGS]",
        about: "Makes a probe: an event of this name, with these values, each time that the instruction there is run. \
                The jump is put into its code, switched off. WHERE is FUNCTION, FUNCTION+OFFSET, either of them with \
                @LIBRARY, FILE:LINE, or an address. With return, it is where a function returns: its calls are recorded, \
                and before each exit the event. With breakpoint, it is by a breakpoint (SIGTRAP), which needs one byte \
                where a jump needs five, and costs some microseconds each time; a thread that blocks SIGTRAP dies at it. \
                Without new, it is named WHERE, or WHERE:return. Up to 12 ARGS, each [NAME=]VALUE[:TYPE]: a register \
                ($di, %di), memory behind one (+8($si), +0(+8($si))), memory at an address (@0x404040), a variable of \
                the source (count) or what is in it (queue.head->length, values[3]); where a function begins, $arg1 to \
                $arg6; where it returns, $retval. TYPE is s8 to s64, u8 to u64, x8 to x64, or string, for the text at \
                an address.",
        examples: &[
            "probe parse_query+0x1c new p fetch $di name=+8($si):string",
            "probe return parse_query new r fetch $retval:s32",
            "probe breakpoint parse_query+0x3",
            "probe main.c:120 fetch count",
        ],
    },
];

/// What is told of an argument of commands.
pub struct Argument {
    pub name: &'static str,
    pub is: &'static str,
    /// What it may be, and what that means.
    pub forms: &'static [(&'static str, &'static str)],
}

pub const ARGUMENTS: &[Argument] = &[
    Argument {
        name: "WHAT",
        is: "is one place or more",
        forms: PLACES,
    },
    Argument {
        name: "EVENT",
        is: "is what a trigger waits for",
        forms: EVENTS,
    },
    Argument {
        name: "COND",
        is: "is a condition on it",
        forms: CONDITIONS,
    },
    Argument {
        name: "ACTION",
        is: "is what it does",
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
        "a marker with this name, or one that matches the glob, is passed; it must be on",
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
        "or !=, <, <=, >, >=. Values are signed and of 64 bits. What compares a value that is not known does not hold",
    ),
    ("FIELD == \"TEXT\"", "or !=: of a marker's text, all of it"),
    (
        "hits",
        "how often the event has happened, this time included, whether or not the condition held",
    ),
    (
        "duration, self",
        "of the call that returns: with callees, and without",
    ),
    (
        "arg1 to arg6, result",
        "of the call, which are recorded for it. int(result) is that of a function of type int",
    ),
    (
        "FIELD",
        "of the marker, or value of the probe, if it is a number",
    ),
    (
        "50ms",
        "a number, with ns, us, ms or s a time; or 0x and digits",
    ),
    ("+ - * / % & | ^ ~ << >> (…)", "between values, as in C"),
];

const ACTIONS: &[(&str, &str)] = &[
    ("start", "as the command"),
    ("stop", "as the command; triggers go on"),
    ("trace NAME on", "as the command, of a trace that there is"),
    ("trace NAME off", "as the command"),
    (
        "snapshot",
        "writes what the flight recorder (--flight) holds into a trace of its own: DIR/snapshot-1, and so on",
    ),
    (
        "mark",
        "writes a note into the trace, at the time of the event",
    ),
    (
        "count",
        "nothing else: ctl shows how often the condition held",
    ),
    ("detach", "ends the session, as nopal detach does"),
];

const PLACES: &[(&str, &str)] = &[
    (
        "NAME",
        "a function, by its name as the file has it, as C++ or Rust write it, or so without parameters",
    ),
    (
        "GLOB",
        "all functions of the program that match, and of the library functions that it imports: * ? [a-z] {a,b}",
    ),
    (
        "GLOB@LIBRARY",
        "those of a library, by its file name, whole or up to .so, or a glob: *@libz, malloc@libc*",
    ),
    (
        "FILE:LINE",
        "the function with code of this line, where the file has debug information",
    ),
    (
        "ADDRESS",
        "the function that has the address: hexadecimal, with 0x, or with a digit first, or with eight digits",
    ),
    (
        "START END",
        "two addresses: the functions that begin from START on and before END",
    ),
    (
        "MODULE+0xADDRESS",
        "the function that has the address in the file",
    ),
    (
        "MODULE+0xSTART-0xEND",
        "the functions that begin there in the file; so are addresses shown, for other processes of the program",
    ),
    ("!PLACE", "without these; alone, all others"),
    ("\"WORDS\"", "a place with blanks in it: \"operator new*\""),
];
