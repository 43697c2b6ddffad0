//! Examples of each command, for its help and its manual page.

use crate::arguments::Arguments;
use clap::CommandFactory;

/// A purpose, and the command for it.
type Example = (&'static str, &'static str);

/// Examples by command: by both words for a command of a command, and by none for those to begin with.
const ALL: &[(&str, &[Example])] = &[
    (
        "",
        &[
            (
                "Run a program and record it, into nopal.data",
                "nopal record -- ./program",
            ),
            (
                "Record a running process for a while",
                "nopal attach PID --for 5s",
            ),
            ("The functions that took the time", "nopal report -s self"),
            (
                "Look through the trace: callers, callees, tree, calls",
                "nopal tui",
            ),
            (
                "Some calls in order, with their durations",
                "nopal replay -F 'parse_*'",
            ),
            ("A flame graph", "nopal flame -o flame.svg"),
            ("A live table of a running process", "nopal top PID"),
            ("What this machine allows", "nopal doctor"),
            (
                "All commands; `nopal COMMAND --help` has more of each",
                "nopal --help",
            ),
        ],
    ),
    (
        "record",
        &[
            (
                "Record a program, and show what took the time",
                "nopal record -- ./program input",
            ),
            (
                "Record all functions of all libraries",
                "nopal record --libs -- ./program",
            ),
            (
                "Record only some functions, with arguments and results",
                "nopal record -F 'parse_*' --args -- ./program",
            ),
            (
                "Keep only the most recent events, and a snapshot of them whenever a call is slow",
                "nopal record --flight --snapshot-when 'return handle if duration > 50ms' -- ./server",
            ),
        ],
    ),
    (
        "run",
        &[
            (
                "Show the longest time that a lock was held, and all that was called meanwhile",
                "nopal run -f -p -- ./program",
            ),
            (
                "Show the longest time that a woken thread waited for a processor",
                "nopal run -w -- ./program",
            ),
        ],
    ),
    (
        "attach",
        &[
            (
                "Record a running process for ten seconds",
                "nopal attach 4711 --for 10s",
            ),
            (
                "Record only some functions, into another directory",
                "nopal attach 4711 -F 'net_*' -o net.data",
            ),
            (
                "Record a server and its workers in one trace",
                "nopal attach --children 4711 --for 10s",
            ),
            (
                "Record all processes of a name, also those that come later",
                "nopal attach nginx --for 10s",
            ),
            (
                "Record a service of systemd",
                "nopal attach --unit postgresql.service --for 10s",
            ),
        ],
    ),
    (
        "probe",
        &[
            (
                "Record variables each time that a line runs",
                "nopal probe net.c:120 fetch length name -- ./program",
            ),
            (
                "Record the second argument of a function in a running process",
                "nopal probe write fetch %si:u64 -p 4711 --for 1s",
            ),
        ],
    ),
    (
        "detach",
        &[("End the tracing of a process", "nopal detach 4711")],
    ),
    (
        "ctl",
        &[
            (
                "Switch functions on in a running session",
                "nopal ctl 4711 'trace parse_* new p' 'trace p on'",
            ),
            ("Show the state of a session", "nopal ctl 4711 </dev/null"),
        ],
    ),
    (
        "mount",
        &[("Show sessions as files", "nopal mount /tmp/nopal")],
    ),
    (
        "daemon",
        &[
            (
                "Record what the files in /etc/nopal.d describe",
                "nopal daemon",
            ),
            (
                "The same without root, with metrics for Prometheus",
                "nopal daemon --configuration ~/services --directory ~/recordings --metrics 9464",
            ),
        ],
    ),
    (
        "top",
        &[
            ("Watch a running process", "nopal top 4711"),
            (
                "Watch some functions of a library",
                "nopal top 4711 -F '*@libcrypto*'",
            ),
        ],
    ),
    (
        "report",
        &[
            (
                "Show the ten functions with most time of their own",
                "nopal report -s self -n 10",
            ),
            (
                "Show the callers of a function",
                "nopal report --callers find",
            ),
            (
                "Show each process: command line, duration, exit and self time",
                "nopal report --processes",
            ),
            (
                "Show where most of the time goes, as one list",
                "nopal report --hot-path",
            ),
            (
                "Give the table to another program",
                "nopal report --json old.data",
            ),
        ],
    ),
    (
        "tui",
        &[(
            "Look through a trace in the terminal",
            "nopal tui nopal.data",
        )],
    ),
    (
        "replay",
        &[
            (
                "Show the calls of some functions that took 10 microseconds or more",
                "nopal replay -F 'parse_*' -t 10us",
            ),
            (
                "Show the calls of a thread in the second half of the trace",
                "nopal replay --tid 4711 --from 50%",
            ),
        ],
    ),
    (
        "slow",
        &[
            (
                "Show the three longest calls of a function, and the functions that took the time",
                "nopal slow handle_request -n 3",
            ),
            (
                "Show the longest calls of a thread in the second half of the trace",
                "nopal slow 'parse_*' --comm 'worker*' --from 50%",
            ),
        ],
    ),
    (
        "requests",
        &[
            (
                "Show where the time of the three longest requests went, from one function to another",
                "nopal requests read_request.arg1..write_reply.arg1 -n 3",
            ),
            (
                "Show the path of one of them through threads and processes",
                "nopal requests read_request.arg1..write_reply.arg1 --value 17",
            ),
        ],
    ),
    (
        "graph",
        &[
            (
                "Show the calls of each process apart",
                "nopal graph --per process",
            ),
            (
                "Show the calls below a function, three deep",
                "nopal graph find -D 3",
            ),
            (
                "Leave out branches that took less than one percent of the time",
                "nopal graph --least 1",
            ),
        ],
    ),
    (
        "hist",
        &[
            (
                "Show how long the calls of a function took",
                "nopal hist read",
            ),
            (
                "Show the sizes that it was asked for, by thread",
                "nopal hist read.arg3 --by thread",
            ),
        ],
    ),
    (
        "plot",
        &[(
            "Draw the distribution of durations",
            "nopal plot cdf read -o read.svg",
        )],
    ),
    (
        "plot timeline",
        &[(
            "Draw some functions over time",
            "nopal plot timeline -F 'net_*' -o timeline.svg",
        )],
    ),
    (
        "plot latency",
        &[(
            "Draw how long a function took over time",
            "nopal plot latency read -o read.svg",
        )],
    ),
    (
        "plot scatter",
        &[
            (
                "Draw the addresses of page faults over time",
                "nopal plot scatter exceptions:page_fault_user.address -o faults.svg",
            ),
            (
                "Draw each call that took longer than a millisecond, a colour for each thread",
                "nopal plot scatter handle --values 1ms.. --by thread -o handle.png",
            ),
        ],
    ),
    (
        "plot cdf",
        &[(
            "Draw the distribution of durations, a line for each thread",
            "nopal plot cdf read --by thread -o read.svg",
        )],
    ),
    (
        "plot hist",
        &[(
            "Draw a histogram of results",
            "nopal plot hist read.result -o sizes.png",
        )],
    ),
    (
        "plot table",
        &[(
            "Count the pages that a first argument points to",
            "nopal plot table 'copy.arg1 >> 12'",
        )],
    ),
    (
        "flame",
        &[
            ("Draw a flame graph", "nopal flame -o flame.svg"),
            (
                "Draw functions that take more time than in another trace in red, and less in blue",
                "nopal flame --against old.data new.data -o change.svg",
            ),
        ],
    ),
    (
        "diff",
        &[
            (
                "Show which functions changed between the last two recordings",
                "nopal diff",
            ),
            (
                "Compare two versions by three runs of each, with a test of significance between runs",
                "nopal diff old-1 old-2 old-3 -- new-1 new-2 new-3",
            ),
            (
                "Compare two recordings of a server by the times of one request",
                "nopal diff --per handle_request old.data new.data",
            ),
        ],
    ),
    (
        "dump",
        &[
            (
                "Write stacks for other tools that draw flame graphs",
                "nopal dump --as folded",
            ),
            (
                "Write a compressed file for Perfetto",
                "nopal dump --as chrome -o trace.json.gz",
            ),
        ],
    ),
    (
        "export",
        &[
            (
                "Write a file for ui.perfetto.dev",
                "nopal export --as perfetto -o trace.perfetto",
            ),
            (
                "Write a profile of a part of the time for `go tool pprof`",
                "nopal export --as pprof --from 50% -o profile.pb.gz",
            ),
            (
                "Write the calls of a function as spans, by the identity of their requests",
                "nopal export --as otlp --span handle --request handle.arg2 -o spans.otlp",
            ),
            (
                "Add the calls to the tables of many traces, for DuckDB and Spark",
                "nopal export --as parquet --label service=cart --label version=1.4 -o tables",
            ),
        ],
    ),
    (
        "info",
        &[("Show what was recorded, and what was lost", "nopal info")],
    ),
    (
        "list",
        &[
            (
                "Show which functions of a program can be traced",
                "nopal list ./program",
            ),
            (
                "Show what can be probed in a function",
                "nopal list --probes parse_line ./program",
            ),
        ],
    ),
    (
        "view",
        &[
            ("Look at the trace in the browser", "nopal view"),
            (
                "Look at the previous recording and the last, beside each other",
                "nopal view nopal.data.old nopal.data",
            ),
            (
                "Serve it on a port that `ssh -L` forwards, without opening a browser",
                "nopal view --port 8123 --no-browser server.data",
            ),
        ],
    ),
    ("doctor", &[("Check this machine", "nopal doctor")]),
];

/// The text that `nopal` prints without arguments.
pub fn first() -> String {
    let examples = of("");
    let widest = examples.iter().map(|(_, command)| command.len()).max();
    let width = widest.unwrap_or(0);
    let lines = examples
        .iter()
        .map(|(purpose, command)| format!("\n  {command:width$}    {purpose}"));
    "nopal records every call of every function of a program, without recompiling it.\n".to_owned()
        + &lines.collect::<String>()
}

/// The examples of a command, by its words: `plot cdf`.
pub fn of(words: &str) -> &'static [Example] {
    let found = ALL.iter().find(|(known, _)| *known == words);
    found.map_or(&[], |(_, examples)| examples)
}

/// The command line with the examples at the end of each command's help.
pub fn command() -> clap::Command {
    with_examples(Arguments::command(), "")
}

fn with_examples(command: clap::Command, above: &str) -> clap::Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let mut command = command;
    for name in names {
        let words = format!("{above} {name}").trim().to_owned();
        command = command.mut_subcommand(name, |command| {
            let command = match of(&words) {
                [] => command,
                examples => command.after_help(help(examples)),
            };
            with_examples(command, &words)
        });
    }
    command
}

fn help(examples: &[Example]) -> String {
    let mut text = String::from("Examples:");
    for (purpose, command) in examples {
        text += &format!("\n  {command}\n      {purpose}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// The words of a command as a shell takes them, up to a redirection.
    fn words(command: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for char in command.split(" <").next().unwrap_or_default().chars() {
            match char {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                char => words.last_mut().unwrap().push(char),
            }
        }
        words
    }

    #[test]
    fn every_command_has_examples_that_are_understood() {
        fn check(command: &clap::Command, above: &str) {
            let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
            for command in shown {
                let path = format!("{above} {}", command.get_name()).trim().to_owned();
                let examples = of(&path);
                assert!(!examples.is_empty(), "{path}");
                for (_, example) in examples {
                    let parsed = Arguments::try_parse_from(words(example));
                    assert!(parsed.is_ok(), "{example}: {}", parsed.err().unwrap());
                    assert!(example.starts_with(&format!("nopal {path}")), "{example}");
                }
                check(command, &path);
            }
        }
        check(&Arguments::command(), "");
        for (_, example) in of("").iter().filter(|(_, one)| *one != "nopal --help") {
            let parsed = Arguments::try_parse_from(words(&example.replace("PID", "4711")));
            assert!(parsed.is_ok(), "{example}: {}", parsed.err().unwrap());
        }
        for (words, _) in ALL {
            let mut command = Arguments::command();
            for word in words.split_whitespace() {
                command = command.find_subcommand(word).expect(words).clone();
            }
        }
    }
}
