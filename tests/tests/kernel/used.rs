//! A person's use of the module.

use nopal_tests::kernel::{Booted, boot_each, commands, number_after, row};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const USE: &str = include_str!("used.sh");

pub fn used() -> &'static [Booted] {
    static BOOTED: OnceLock<Vec<Booted>> = OnceLock::new();
    BOOTED.get_or_init(|| boot_each(USE, &[], 2, false))
}

/// `load` prints the functions that the module refuses, with the reasons.
#[test]
fn functions_that_the_module_refuses_are_listed_with_its_reason() {
    let mut found = 0;
    for booted in used() {
        let load = booted.said("load");
        let listed = booted.said("listed_refused");
        let Some(line) = load.lines().nth(1) else {
            continue;
        };
        let (name, why) = line.split_once(' ').expect("a name and a reason");
        let row = listed.lines().find(|line| {
            line.split_whitespace().any(|word| word == name) && line.ends_with(why.trim())
        });
        assert!(row.is_some(), "{}: {line}: {listed}", booted.name);
        found += 1;
    }
    assert!(found > 0, "no module refused anything");
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
            ["logsize 21", "watch 0", "uniform off", "start"],
            "{}",
            booted.name
        );
    }
}

/// Breakpoints stand at the sites meanwhile, and a program runs into them.
#[test]
fn few_functions_are_switched_while_the_processors_go_on() {
    for booted in used() {
        assert_eq!(booted.text("few.status").trim(), "0", "{}", booted.name);
        const ASKED: u64 = 300_000;
        let state = booted.text("few.state");
        let entries = number_after(&state, "#traceinhits ");
        let exits = number_after(&state, "#tracehits ") - entries;
        assert!((1..ASKED).contains(&entries), "{}: {state}", booted.name);
        // Exits come on before entries and go after them; a call that goes on when its exit goes has one end only.
        let is_whole = (entries..=ASKED + 5).contains(&(exits + 5));
        assert!(is_whole, "{}: {state}", booted.name);
        let stop = "# longest stop of all processors: 0 ns\n";
        assert!(state.contains(stop), "{}: {state}", booted.name);
    }
}

#[test]
fn each_reader_has_the_calls_in_the_kernel() {
    for booted in used() {
        let hist = booted.said("pipe.hist");
        assert!(
            hist.starts_with("vfs_write: 200 values, "),
            "{}: {hist}",
            booted.name
        );
        booted.said("pipe.chrome");
        let spans: Value = serde_json::from_str(&booted.text("pipe.json")).unwrap();
        let spans = spans["traceEvents"].as_array().unwrap();
        let of = |name: &'static str| {
            let spans = spans.iter().filter(move |span| span["name"] == name);
            spans.map(|span| {
                let number = |field: &str| span[field].as_f64().unwrap();
                (span["tid"].clone(), number("ts"), number("dur"))
            })
        };
        // Times are rounded to nanoseconds.
        let within = of("vfs_write").filter(|(thread, begin, length)| {
            of("write").any(|(of, from, whole)| {
                of == *thread && from <= *begin && begin + length <= from + whole + 0.002
            })
        });
        assert_eq!(
            (of("vfs_write").count(), within.count()),
            (200, 200),
            "{}",
            booted.name
        );
        for name in ["pipe.plot", "pipe.flame"] {
            booted.said(name);
            let picture = booted.text(&format!("{name}.svg"));
            assert!(picture.contains("vfs_write"), "{}: {picture}", booted.name);
        }
    }
}

#[test]
fn calls_in_the_kernel_stand_inside_the_call_that_led_there() {
    for booted in used() {
        let replay = booted.said("pipe.replay");
        let mut lines = replay.lines();
        // The text stands behind the times and their marks.
        let text = lines.next().unwrap().len() + 4;
        let mut threads = BTreeMap::<&str, Vec<&str>>::new();
        for (times, text) in lines.filter_map(|line| line.split_at_checked(text)) {
            if let Some(thread) = times.split_whitespace().nth(1) {
                threads.entry(thread).or_default().push(text);
            }
        }
        let written = threads.values().flat_map(|lines| lines.windows(3));
        let written = written.filter(|lines| {
            let depth = |line: &str| line.len() - line.trim_start().len();
            let [call, inside, end] = lines else {
                return false;
            };
            [call.trim(), inside.trim(), end.trim()]
                == ["write() {", "vfs_write();", "} /* write */"]
                && depth(inside) == depth(call) + 2
                && depth(end) == depth(call)
        });
        assert_eq!(written.count(), 200, "{}: {replay}", booted.name);
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
                "{}: {function}: {}",
                booted.name,
                booted.text("all_record")
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
                "trace vfs_read new reads",
                "trace reads on",
                "trace vfs_w* new writes",
                "trace writes off",
                "watch 1",
                "uniform off",
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

/// The commands of the paper on devtrace, with their output: ranges of addresses, counts, and `E` and `X` lines.
#[test]
fn a_range_of_addresses_is_traced_and_read_as_text() {
    for booted in used() {
        let state = booted.text("devtrace.state");
        let begin = state
            .lines()
            .find_map(|line| line.strip_prefix("#trace "))
            .and_then(|line| line.split_once(" traced? "));
        let Some((begin, to)) = begin else {
            panic!("{}: {state}", booted.name);
        };
        let address = u64::from_str_radix(begin, 16).expect("an address");
        assert!(
            to.starts_with("ffffffff") && to != begin,
            "{}: {state}",
            booted.name
        );
        let counts = |queued: u32| {
            format!(
                "#tracehits 1726, in queue {queued}\n#tracelog /dev/nopal_trace\n#traceactive 0\n#slothits 1726\n\
                 #traceinhits 863\nwatch 0\nuniform off\nstop\n"
            )
        };
        for line in [
            format!("trace {begin} {:x} new asked\n", address + 16),
            "trace asked on\n".to_owned(),
            counts(1726),
        ] {
            assert!(state.contains(&line), "{}: {line}: {state}", booted.name);
        }
        let first = booted.text("devtrace.first");
        let rest = booted.text("devtrace.rest");
        let after = booted.text("devtrace.after");
        let left = rest.lines().count();
        assert!((1..1726).contains(&left), "{}: {left}", booted.name);
        assert!(after.contains(&counts(0)), "{}: {after}", booted.name);
        let returned = booted.text("devtrace.return");
        assert!(
            returned == "c3cccccccc" || returned.starts_with("e9"),
            "{}: {returned}",
            booted.name
        );
        let mut before = 0;
        for (index, line) in first.lines().chain(rest.lines()).enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let [letter, place, clock, task, values @ ..] = &words[..] else {
                panic!("{}: {line}", booted.name);
            };
            let is_even = (index == 0) || (index - 1 + 1726 - left) % 2 == 0;
            assert_eq!(*letter, if is_even { "E" } else { "X" }, "{line}");
            assert_eq!((*place == begin, values.len()), (is_even, 4), "{line}");
            let numbers =
                [clock, task].map(|word| u64::from_str_radix(word, 16).expect("a number"));
            assert!(numbers[0] > before && numbers[1] > 0, "{line}");
            before = numbers[0];
            assert!(
                line.split(' ').skip(1).all(|word| word.len() == 16),
                "{line}"
            );
            // The result is the number of the parent.
            assert!(
                is_even || u64::from_str_radix(values[0], 16) == Ok(1),
                "{line}"
            );
        }
        assert_eq!(
            commands(&state),
            commands(&booted.text("devtrace.again")),
            "{}",
            booted.name
        );
    }
}

#[test]
fn the_address_of_an_exit_is_told_where_its_function_has_no_other() {
    for booted in used() {
        let list: Value = serde_json::from_str(&booted.said("exits")).expect("a list");
        let functions: BTreeMap<u64, (u64, u64)> = list["functions"]
            .as_array()
            .expect("functions")
            .iter()
            .map(|function| {
                let number = |field: &str| function[field].as_u64().expect("a number");
                let exits = number("returns") + number("tail_jumps");
                (number("address"), (number("size"), exits))
            })
            .collect();
        let hex = |word: &str| u64::from_str_radix(word, 16).expect("a number");
        let trace = booted.text("exits.trace");
        let mut open: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        let mut told = [0, 0];
        for line in trace.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [letter, place, _, task, ..] = &words[..] else {
                panic!("{}: {line}", booted.name);
            };
            let calls = open.entry(task).or_default();
            if *letter == "E" {
                calls.push(hex(place));
                continue;
            }
            // The others began before the trace.
            let Some(begin) = calls.pop() else { continue };
            let (size, exits) = functions[&begin];
            let is_right = match exits {
                1 => (begin + 1..begin + size).contains(&hex(place)),
                _ => *place == "-",
            };
            assert!(is_right, "{}: {begin:x}: {line}", booted.name);
            told[usize::from(exits == 1)] += 1;
        }
        assert!(told.iter().all(|times| *times > 0), "{told:?}: {trace}");
    }
}

#[test]
fn only_the_processors_that_are_chosen_record() {
    for booted in used() {
        let shown = booted.text("processors");
        let expected = ["processors 1", "1000", "processors 0", "100", "1100"];
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            expected,
            "{}",
            booted.name
        );
    }
}

#[test]
fn the_module_answers_which_functions_are_traced() {
    for booted in used() {
        let answer = booted.said("asked");
        let shown: Vec<(&str, &str)> = answer
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        let names: Vec<&str> = shown.iter().map(|(_, shown)| *shown).collect();
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
        for (address, shown) in shown {
            assert!(address.starts_with("ffffffff"), "{}: {answer}", booted.name);
            assert!(
                state.contains(&format!("#{address} {shown}\n")),
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
        let again = booted.text("probe.again");
        assert_eq!(commands(&state), commands(&again), "{}", booted.name);
        booted.said("probed");
        let replay = booted.said("probed.replay");
        for number in 0..100 {
            let text = format!("/* w count=4 first={number} */");
            let times = replay.lines().filter(|line| line.contains(&text)).count();
            // One line is the parent's, one the child's.
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
            let shown = refused.split("== ").find(|shown| shown.contains(reason));
            let shown = shown.unwrap_or_else(|| panic!("{}: {reason}: {refused}", booted.name));
            assert!(shown.ends_with("\n1\n"), "{}: {shown}", booted.name);
        }
    }
}

#[test]
fn arguments_and_results_of_calls_in_the_kernel_are_recorded() {
    for booted in used() {
        let replay = booted.text("arguments.replay");
        let mut written = 0;
        for line in replay.lines() {
            // The first three are the file, the buffer and the bytes; the others are the registers' contents.
            let arguments: Vec<&str> = line
                .split_once('(')
                .map_or(Vec::new(), |(_, rest)| rest.split(", ").collect());
            let [file, buffer, bytes, ..] = arguments[..] else {
                // A call with others inside has its result at its end.
                assert!(
                    line.contains("} = 4 /* vfs_write */"),
                    "{}: {line}\n{}",
                    booted.name,
                    booted.text("arguments")
                );
                continue;
            };
            // nopal's own writes are left out.
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
            "there is no tracer none: a kernel has irqsoff, preemptoff, preemptirqsoff, wakeup, sched_switch and events",
            "watch x: not x, expected IDS",
            "begone: not begone, expected trace, mark,",
            "2 to the power of 3 records: each processor needs two chunks",
            "2 to the power of 50 records: at most a quarter of the memory is its",
            "there is no processor 99",
            "this command is not for kernels",
            "not b, expected the end of the line",
        ] {
            let shown = refused.split("== ").find(|shown| shown.contains(reason));
            let shown = shown.unwrap_or_else(|| panic!("{}: {reason}: {refused}", booted.name));
            assert!(shown.ends_with("\n1\n"), "{}: {shown}", booted.name);
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
        // No reader took the records.
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
        for name in [
            "stack.before",
            "stack.early",
            "stack.sleeper",
            "stack.after",
        ] {
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

/// Not a trampoline of ftrace's, which would save registers, and look for all tracers of the function.
#[test]
fn entries_call_the_recorder_itself() {
    for booted in used() {
        let calls: u64 = booted.text("all_calls").trim().parse().expect("a number");
        let functions = number_after(&booted.text("all_state"), "#functions ");
        assert_eq!(calls, functions, "{}", booted.name);
    }
}

#[test]
fn interrupts_that_cannot_be_masked_find_whole_stacks_in_the_recorder() {
    for booted in used() {
        let log = booted.text("interrupted.log");
        let stacks: Vec<&str> = log.split("NMI backtrace for cpu").skip(1).collect();
        assert!(stacks.len() >= 20, "{}: {log}", booted.name);
        let in_recorder = stacks
            .iter()
            .filter(|stack| stack.contains("RIP: 0010:nopal_") && stack.contains("kernel_work"));
        let in_recorder: Vec<_> = in_recorder.collect();
        // The unwinder marks doubtful entries by `?`. A stack begins at a system call, an exception, or a task's begin.
        let begins = ["entry_SYSCALL_64_after_hwframe+", "  asm_", "ret_from_fork"];
        let is_begin =
            |line: &str| !line.contains("? ") && begins.iter().any(|begin| line.contains(begin));
        assert!(!in_recorder.is_empty(), "{}: {log}", booted.name);
        for stack in in_recorder {
            assert!(stack.lines().any(is_begin), "{}: {stack}", booted.name);
        }
    }
}
