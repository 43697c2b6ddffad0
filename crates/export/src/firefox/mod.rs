//! The format of profiler.firefox.com: JSON with the stacks of each thread, and their durations.
//!
//! It is the processed profile format, version 55, which the profiler brings up to date when it opens a file. A
//! sample's duration is that of its stack, from one begin or end of a call to the next. Sums are exact, also where
//! stacks are merged.

mod samples;
mod stacks;

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::losses;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::sort;
use nopal_analysis::span::begin;
use nopal_analysis::text::{duration, push_decimal, push_json_string, push_u64};
use nopal_trace::{ThreadInfo, Trace};

use crate::LeftOut;
use crate::evented::{Evented, Events};
use samples::{Profile, Samples};
use stacks::{NOTHING, Stacks};

/// More than these are merged. The profiler keeps all in memory, and goes over all at each click.
const SAMPLES: usize = 1 << 20;

const VERSION: u64 = 55;

pub fn write(trace: &Trace, names: &Names, drive: &Drive, out: &mut dyn Write) -> Result<LeftOut> {
    let mut threads = Threads {
        thread_names: &ThreadNames::new(trace),
        all: Samples::new(SAMPLES),
    };
    // All threads share the number of samples.
    let drive = Drive {
        workers: 1,
        ..*drive
    };
    let mut left_out = {
        let mut workers = [Evented::new(trace, names, &drive, &mut threads)];
        drive.run(trace, &mut workers)?;
        let [evented] = &mut workers;
        evented.end();
        evented.left_out
    };
    let all = threads.all;
    left_out.deep += all.deep();
    left_out.merged_ns = all.merged_ns();
    let mut json = Json {
        out,
        text: Vec::new(),
    };
    json.profile(trace, names, all)?;
    Ok(left_out)
}

struct Threads<'a> {
    thread_names: &'a ThreadNames<'a>,
    all: Samples,
}

impl Events for &mut Threads<'_> {
    fn begin_thread(&mut self, thread: &ThreadInfo, begin_ns: u64, end_ns: u64) {
        self.all.begin(Profile {
            name: self.thread_names.of(thread),
            process_name: self.thread_names.of_process(thread),
            process: thread.process,
            thread: thread.thread,
            begin_ns,
            end_ns,
            stacks: Stacks::default(),
            samples: Vec::new(),
        });
    }

    fn begin_call(&mut self, function: u32, ns: u64) {
        self.all.push(function, ns);
    }

    fn end_call(&mut self, _function: u32, ns: u64) {
        self.all.pop(ns);
    }

    fn end_thread(&mut self) {
        self.all.end();
    }
}

/// The functions of one thread, and their modules, in the order in which its stacks have them.
#[derive(Default)]
struct Functions {
    all: Vec<u32>,
    numbers: HashMap<u32, usize>,
    modules: Vec<usize>,
    module_numbers: HashMap<usize, usize>,
}

impl Functions {
    fn of(stacks: &Stacks, modules: &Modules) -> Functions {
        let mut functions = Functions::default();
        for stack in stacks.all() {
            let known = functions.all.len();
            if *functions.numbers.entry(stack.function).or_insert(known) == known {
                functions.all.push(stack.function);
                if let Some(module) = modules.of[stack.function as usize] {
                    let known = functions.modules.len();
                    if *functions.module_numbers.entry(module).or_insert(known) == known {
                        functions.modules.push(module);
                    }
                }
            }
        }
        functions
    }
}

/// The files of functions.
struct Modules<'a> {
    /// The name and the path of each.
    all: Vec<(&'a str, &'a str)>,
    /// The module of each function.
    of: Vec<Option<usize>>,
}

impl<'a> Modules<'a> {
    fn new(names: &'a Names) -> Modules<'a> {
        let mut all = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let of = names.functions().iter().map(|function| {
            // "?" is no file.
            (function.path != "?").then(|| {
                *numbers.entry(&function.path).or_insert_with(|| {
                    all.push((&*function.module, &*function.path));
                    all.len() - 1
                })
            })
        });
        let of = of.collect();
        Modules { all, of }
    }
}

/// Writes pieces of JSON.
struct Json<'a> {
    out: &'a mut dyn Write,
    text: Vec<u8>,
}

impl Json<'_> {
    fn raw(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        push_json_string(&mut self.text, text);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    /// Values between commas.
    fn list(&mut self, length: usize, push: &mut dyn FnMut(&mut Vec<u8>, usize)) -> io::Result<()> {
        self.text.push(b'[');
        for at in 0..length {
            if at > 0 {
                self.text.push(b',');
            }
            push(&mut self.text, at);
            if self.text.len() > 1 << 16 {
                self.flush()?;
            }
        }
        self.text.push(b']');
        Ok(())
    }

    /// A member of a table: the values of all its rows.
    fn column(
        &mut self,
        name: &str,
        length: usize,
        push: &mut dyn FnMut(&mut Vec<u8>, usize),
    ) -> io::Result<()> {
        self.raw(&format!(",\"{name}\":"));
        self.list(length, push)
    }

    /// Columns with the same value in each row.
    fn columns_of(&mut self, names: &[&str], length: usize, value: &str) -> io::Result<()> {
        for name in names {
            self.column(name, length, &mut |text, _| {
                text.extend_from_slice(value.as_bytes());
            })?;
        }
        Ok(())
    }

    fn table(&mut self, name: &str, length: usize) {
        self.raw(&format!(",\"{name}\":{{\"length\":{length}"));
    }

    fn profile(&mut self, trace: &Trace, names: &Names, samples: Samples) -> io::Result<()> {
        self.meta(trace, samples.merged_ns());
        let modules = Modules::new(names);
        self.raw(",\n\"libs\":");
        self.list(modules.all.len(), &mut |text, at| {
            let (name, path) = modules.all[at];
            for (key, value) in [
                ("{\"name\":", name),
                (",\"path\":", path),
                (",\"debugName\":", name),
                (",\"debugPath\":", path),
            ] {
                text.extend_from_slice(key.as_bytes());
                push_json_string(text, value);
            }
            let rest = format!(
                ",\"breakpadId\":\"{:033}\",\"codeId\":null,\"arch\":null}}",
                0
            );
            text.extend_from_slice(rest.as_bytes());
        })?;
        self.raw(",\n\"threads\":[");
        let mut profiles = samples.profiles;
        sort::by_key(&mut profiles, |profile| {
            let is_other = profile.process != profile.thread;
            (profile.process, is_other, profile.begin_ns, profile.thread)
        });
        let mut before: HashMap<u32, u32> = HashMap::new();
        for (at, profile) in profiles.iter().enumerate() {
            self.raw(if at == 0 { "\n{" } else { ",\n{" });
            let before = before.entry(profile.thread).or_default();
            self.thread(profile, *before, names, &modules)?;
            *before += 1;
        }
        self.raw("],\n\"pages\":[],\"profilerOverhead\":[],\"counters\":[]}\n");
        self.flush()
    }

    fn meta(&mut self, trace: &Trace, merged_ns: u64) {
        let merged = (merged_ns > 0).then(|| {
            let cell = duration(merged_ns);
            format!("within {cell} stacks are summed up, in no order")
        });
        let remarks: Vec<String> = losses::line(trace).into_iter().chain(merged).collect();
        let command = trace.session().command.join(" ");
        let product = match remarks.is_empty() {
            true => command,
            false => format!("{command} ({})", remarks.join("; ")),
        };
        self.raw("{\"meta\":{\"product\":");
        self.string(&product);
        let start = trace.clocks().realtime_ns(begin(trace));
        self.raw(",\"startTime\":");
        push_milliseconds(&mut self.text, start);
        self.raw(&format!(
            ",\"version\":24,\"preprocessedProfileVersion\":{VERSION},\"interval\":0.001,\"processType\":0,\"debug\":false,\
             \"oscpu\":\"Linux\",\"symbolicated\":true,\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,\
             \"categories\":[{{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]}}],\"markerSchema\":[],\
             \"pausedRanges\":[],\"extensions\":{{\"length\":0,\"id\":[],\"name\":[],\"baseURL\":[]}}}}"
        ));
    }

    /// `before`: how many threads before it had the same number.
    fn thread(
        &mut self,
        profile: &Profile,
        before: u32,
        names: &Names,
        modules: &Modules,
    ) -> io::Result<()> {
        let tid = match before {
            0 => profile.thread.to_string(),
            _ => format!("{}.{before}", profile.thread),
        };
        self.raw(&format!(
            "\"processType\":\"default\",\"pid\":\"{}\",\"tid\":\"{tid}\",\"isMainThread\":{},\"showMarkersInTimeline\":false,\
             \"pausedRanges\":[],\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":",
            profile.process,
            profile.process == profile.thread
        ));
        push_milliseconds(&mut self.text, profile.begin_ns);
        self.raw(",\"unregisterTime\":");
        push_milliseconds(&mut self.text, profile.end_ns);
        self.raw(",\"name\":");
        self.string(&profile.name);
        self.raw(",\"processName\":");
        self.string(&profile.process_name);

        let functions = Functions::of(&profile.stacks, modules);
        let length = functions.all.len();
        self.raw(",\"stringArray\":");
        let texts = functions.all.iter();
        let texts = texts.map(|function| &*names.functions()[*function as usize].name);
        let texts: Vec<&str> = texts
            .chain(
                functions
                    .modules
                    .iter()
                    .map(|module| modules.all[*module].0),
            )
            .collect();
        self.list(texts.len(), &mut |text, at| {
            push_json_string(text, texts[at]);
        })?;

        self.table("resourceTable", functions.modules.len());
        self.column("lib", functions.modules.len(), &mut |text, at| {
            push_u64(text, functions.modules[at] as u64);
        })?;
        self.column("name", functions.modules.len(), &mut |text, at| {
            push_u64(text, (length + at) as u64);
        })?;
        self.columns_of(&["host"], functions.modules.len(), "null")?;
        // A library.
        self.columns_of(&["type"], functions.modules.len(), "1")?;
        self.raw("}");

        self.table("funcTable", length);
        self.column("name", length, &mut |text, at| push_u64(text, at as u64))?;
        self.column(
            "resource",
            length,
            &mut |text, at| match modules.of[functions.all[at] as usize] {
                Some(module) => push_u64(text, functions.module_numbers[&module] as u64),
                None => text.extend_from_slice(b"-1"),
            },
        )?;
        self.columns_of(&["isJS", "relevantForJS"], length, "false")?;
        self.columns_of(&["fileName", "lineNumber", "columnNumber"], length, "null")?;
        self.raw("}");

        self.table("frameTable", length);
        self.column("func", length, &mut |text, at| push_u64(text, at as u64))?;
        self.columns_of(&["address"], length, "-1")?;
        let none = ["inlineDepth", "category", "subcategory", "innerWindowID"];
        self.columns_of(&none, length, "0")?;
        self.columns_of(&["nativeSymbol", "line", "column"], length, "null")?;
        self.raw("}");

        let stacks = profile.stacks.all();
        self.table("stackTable", stacks.len());
        self.column("prefix", stacks.len(), &mut |text, at| {
            push_stack(text, stacks[at].prefix);
        })?;
        self.column("frame", stacks.len(), &mut |text, at| {
            push_u64(text, functions.numbers[&stacks[at].function] as u64);
        })?;
        self.raw("}");

        let samples = &profile.samples;
        self.table("samples", samples.len());
        self.raw(",\"weightType\":\"tracing-ms\"");
        self.column("stack", samples.len(), &mut |text, at| {
            push_stack(text, samples[at].stack);
        })?;
        self.column("timeDeltas", samples.len(), &mut |text, at| {
            let ns = match at {
                0 => profile.begin_ns,
                _ => samples[at - 1].ns,
            };
            push_milliseconds(text, ns);
        })?;
        self.column("weight", samples.len(), &mut |text, at| {
            push_milliseconds(text, samples[at].ns);
        })?;
        self.raw("}");

        for (table, columns) in [
            (
                "nativeSymbols",
                &["libIndex", "address", "name", "functionSize"][..],
            ),
            (
                "markers",
                &["data", "name", "startTime", "endTime", "phase", "category"],
            ),
        ] {
            self.table(table, 0);
            self.columns_of(columns, 0, "")?;
            self.raw("}");
        }
        self.raw("}");
        Ok(())
    }
}

fn push_stack(text: &mut Vec<u8>, stack: u32) {
    match stack {
        NOTHING => text.extend_from_slice(b"null"),
        stack => push_u64(text, stack.into()),
    }
}

fn push_milliseconds(text: &mut Vec<u8>, ns: u64) {
    push_u64(text, ns / 1_000_000);
    if !ns.is_multiple_of(1_000_000) {
        text.push(b'.');
        push_decimal(text, ns % 1_000_000, 6);
    }
}
