//! The number of calls of each function, beside callgrind's count in a simulated processor.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use nopal_tests::{Case, End, Ended, Program, Start, c, cxx, nopal, scratch};
use serde_json::Value;

/// The calls of each function, by its symbol and the path of its file, summed over all callers.
type Calls = BTreeMap<(String, String), u64>;

/// A line `calls=NUMBER …` follows `cfn=FUNCTION`, and `cob=FILE` unless the file is the caller's, which `ob=` names.
/// Levels of recursion append `'2` and so on to the name.
fn callgrind_calls(output: &str) -> Calls {
    let mut calls = Calls::new();
    let (mut object, mut called_object, mut called) = ("", None, "");
    for line in output.lines() {
        if let Some(file) = line.strip_prefix("ob=") {
            object = file;
        } else if let Some(file) = line.strip_prefix("cob=") {
            called_object = Some(file);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = name.split('\'').next().unwrap_or(name);
        } else if let Some(rest) = line.strip_prefix("calls=") {
            let number = rest.split(' ').next().and_then(|word| word.parse().ok());
            let number: u64 = number.expect("a number of calls");
            let key = (called_object.take().unwrap_or(object), called);
            *calls.entry((key.0.into(), key.1.into())).or_default() += number;
        }
    }
    calls
}

fn simulated(program: &Path, input: &str) -> (Ended, Calls) {
    let scratch = scratch();
    let file = scratch.path().join("callgrind");
    let mut valgrind = Start::new([
        "valgrind",
        "--tool=callgrind",
        "--demangle=no",
        "--compress-strings=no",
        "--compress-pos=no",
    ]);
    valgrind
        .words
        .push(format!("--callgrind-out-file={}", file.display()).into());
    valgrind.words.push(program.into());
    let ended = valgrind.run(input);
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let output = std::fs::read_to_string(file).expect("callgrind has written it");
    (ended, callgrind_calls(&output))
}

#[test]
fn sqlite() {
    let script = "create table t (a integer primary key, b text);\n\
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 300)\n\
         insert into t select i, hex(i * 7919) from n;\n\
         select count(*), sum(a), max(b) from t where b like '%3%';\n\
         delete from t where a % 3 = 0;\n";
    let program = Path::new("/usr/bin/sqlite3");
    assert!(program.exists(), "{} must be installed", program.display());
    let (simulated, calls) = simulated(program, script);
    let traced = Case::new(Program::installed(program))
        .input(script)
        .options(["--libs", "--block"])
        .traced();
    assert_eq!(traced.ended.stdout, simulated.stdout);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for ((_, function), number) in calls {
        *expected.entry(function).or_default() += number;
    }
    // Both tools name the other functions of a library without symbols by address, each in its own way.
    let is_named = |name: &&str| name.starts_with("sqlite3") && !name.contains('+');
    let functions = traced.report.functions();
    let names: Vec<&str> = functions.into_iter().filter(is_named).collect();
    assert!(names.len() > 100, "{} functions to compare", names.len());
    let calls = names.iter().map(|&name| {
        let calls = expected.get(name).copied().unwrap_or(0);
        (name.to_owned(), calls)
    });
    traced.report.assert_calls(&calls.collect());
}

/// Compares all functions of the program's own file. A function may have several symbols, and several functions may
/// share one name: the calls are added up for each name of nopal's.
#[test]
fn a_program_in_cxx() {
    let case = Case::new(cxx("objects", &[])).options(["--block"]);
    let program = case.program().path.clone();
    let (simulated, calls) = simulated(&program, "");
    let traced = case.traced();
    assert_eq!(traced.ended.stdout, simulated.stdout);

    let mut list = Start::new([nopal().as_os_str(), "list".as_ref(), "--json".as_ref()]);
    list.words.extend(["--names", "full"].map(Into::into));
    list.words.push(program.clone().into());
    let list: Value = serde_json::from_str(&list.run("").stdout).expect("the list is JSON");
    let field = |entry: &Value, name| entry[name].as_str().map(str::to_owned).unwrap_or_default();
    let listed = |what: &str| list[what].as_array().expect("a list").clone();
    let refused = listed("refused");
    let named: BTreeMap<u64, String> = listed("functions")
        .iter()
        .chain(&refused)
        .map(|entry| {
            let address = entry["address"].as_u64().expect("an address");
            (address, field(entry, "function"))
        })
        .collect();

    let symbols = symbols(&program);
    let own = program.to_str().expect("a plain path");
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for ((file, function), number) in calls {
        if file != own {
            continue;
        }
        let address = match function.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None if function == "(below main)" => symbols.addresses.get("_start").copied(),
            None => symbols.addresses.get(&function).copied(),
        };
        let name = address.and_then(|address| named.get(&address));
        *expected
            .entry(name.unwrap_or(&function).clone())
            .or_default() += number;
    }
    let has_size = |name: &str| {
        let mut addresses = named.iter().filter(|(_, one)| *one == name);
        addresses.any(|(address, _)| symbols.sized.contains(address))
    };

    let functions = traced.report.rows.iter();
    let functions = functions.filter(|row| own.ends_with(&field(row, "module")));
    let counted: BTreeSet<String> = functions.map(|row| field(row, "function")).collect();
    let (mut same, mut wrong) = (0, Vec::new());
    for name in expected.keys().chain(&counted).collect::<BTreeSet<_>>() {
        let (theirs, ours) = (expected.get(name).copied(), traced.report.calls(name));
        let refusal = refused.iter().find(|one| field(one, "function") == *name);
        let why = match (theirs, ours, refusal) {
            (Some(theirs), ours, _) if theirs == ours => {
                same += 1;
                continue;
            }
            (Some(_), 0, Some(refusal)) => format!("not traced: {}", field(refusal, "reason")),
            (None, _, _) if !has_size(name) => {
                "a symbol without a size, which callgrind takes for no function".into()
            }
            _ => {
                wrong.push(format!("{name}: {ours}, and callgrind {theirs:?}"));
                continue;
            }
        };
        println!("{name}: {why}");
    }
    assert!(wrong.is_empty(), "calls differ:\n{}", wrong.join("\n"));
    assert!(same > 25, "{same} functions are the same");
}

struct Symbols {
    addresses: BTreeMap<String, u64>,
    sized: BTreeSet<u64>,
}

/// Symbols as nm prints them: address, size if there is one, kind, name.
fn symbols(program: &Path) -> Symbols {
    let words: [&OsStr; 3] = ["nm".as_ref(), "-S".as_ref(), program.as_os_str()];
    let mut symbols = Symbols {
        addresses: BTreeMap::new(),
        sized: BTreeSet::new(),
    };
    for line in Start::new(words).run("").stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (Ok(address), Some(name)) = (u64::from_str_radix(words[0], 16), words.last()) else {
            continue;
        };
        symbols.addresses.insert((*name).into(), address);
        if words.len() == 4 {
            symbols.sized.insert(address);
        }
    }
    symbols
}

/// For each function, the calls left out and the calls recorded make up all calls; and each reader reports that some
/// are left out.
#[test]
fn calls_that_are_too_short_are_counted() {
    for name in ["calls", "longjmp", "fork", "coroutines"] {
        let case = Case::new(c(name, &[])).options(["--block", "-t", "30us"]);
        let traced = case.unchanged();
        let number = |row: &Value, member: &str| row[member].as_u64().unwrap_or(0);
        let mut left_out = 0;
        let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &traced.report.rows {
            let function = row["function"].as_str().expect("a row has a function");
            let some = number(row, "left_out");
            *calls.entry(function).or_default() += number(row, "calls") + some;
            left_out += some;
        }
        assert!(left_out > 0, "{name}");
        for (function, expected) in case.expected(&traced.ended) {
            let found = calls.get(function.as_str()).copied().unwrap_or(0);
            assert_eq!(found, expected, "{name}: {function}");
        }
        let losses = &traced.report.rows[0]["losses"];
        assert_eq!(number(losses, "short_calls"), left_out, "{name}");
        assert_eq!(number(losses, "least_duration_ns"), 30_000, "{name}");
        assert!(
            traced.said.contains(" shorter than 30.0 us left out"),
            "{}",
            traced.said
        );
        for reader in ["report", "graph", "replay", "info"] {
            let mut start = Start::new([nopal().as_os_str(), OsStr::new(reader)]);
            start.words.push(traced.directory().into());
            let read = start.run("");
            assert_eq!(read.end, End::Code(0), "{name}: {}", read.stderr);
            assert!(
                read.stdout.contains(" shorter than 30.0 us"),
                "{name}: {reader}"
            );
        }
    }
}
