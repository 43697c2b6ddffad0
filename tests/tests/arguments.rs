//! Arguments and results by their types, compared with the program's own output about its calls.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use nopal_tests::{Case, End, Program, Start, compile, nopal};

/// A call's name, its arguments and its result, as `name(a=1, b=2) = 3`.
#[derive(Debug, PartialEq)]
struct Call {
    name: String,
    values: Vec<String>,
}

impl Call {
    fn parsed(text: &str) -> Option<Call> {
        let (begin, end) = (text.rfind('(')?, text.rfind(')')?);
        let name = text[..begin].split('(').next()?;
        let name = name.rsplit("::").next()?;
        // Copies of a function have suffixes; instances have arguments.
        let name = name.split(['.', '<']).next()?;
        let mut values = vec![String::new()];
        let mut depth = 0;
        for letter in text[begin + 1..end].chars() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            match values.last_mut() {
                Some(_) if letter == ',' && depth == 0 => values.push(String::new()),
                Some(last) if letter != ' ' || depth > 0 => last.push(letter),
                _ => {}
            }
        }
        values.push(text[end + 1..].trim().to_owned());
        Some(Call {
            name: name.to_owned(),
            values,
        })
    }
}

fn read(words: &[&str], trace: &Path) -> String {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.words.push(trace.into());
    start.run("").stdout
}

/// The calls of a replay, in order of their begins.
fn replayed(trace: &Path) -> Vec<Call> {
    const COLUMNS: usize = 36;
    let (mut calls, mut open) = (Vec::<String>::new(), Vec::new());
    for line in read(&["replay"], trace).lines() {
        let line: String = line.chars().skip(COLUMNS).collect();
        let line = line.trim();
        let line = match line.strip_suffix("*/").and_then(|line| line.rfind("/*")) {
            Some(remark) => line[..remark].trim(),
            None => line,
        };
        if let Some(begin) = line.strip_suffix(" {") {
            open.push(calls.len());
            calls.push(begin.to_owned());
        } else if let Some(end) = line.strip_prefix('}') {
            if let Some(index) = open.pop() {
                calls[index] += end;
            }
        } else if let Some(whole) = line.strip_suffix(';') {
            calls.push(whole.to_owned());
        }
    }
    calls.iter().filter_map(|call| Call::parsed(call)).collect()
}

/// Asserts that each value shown equals the program's output; "?" may stand for any. Returns how many values were
/// shown, and how many were not.
fn compared(program: Program) -> (usize, usize) {
    let case = Case::new(program).options(["--args", "-N", "*@lib*"]);
    let traced = case.traced();
    let mut shown: HashMap<String, VecDeque<Call>> = HashMap::new();
    for call in replayed(&traced.directory()) {
        shown.entry(call.name.clone()).or_default().push_back(call);
    }
    let (mut known, mut unknown) = (0, 0);
    for line in traced.ended.stdout.lines() {
        let printed = Call::parsed(&line.replace("(nil)", "0x0")).expect(line);
        let call = shown.get_mut(&printed.name).and_then(VecDeque::pop_front);
        let call = call.unwrap_or_else(|| panic!("{line}: not in the replay"));
        assert_eq!(printed.values.len(), call.values.len(), "{line}: {call:?}");
        for (printed, shown) in printed.values.iter().zip(&call.values) {
            if shown.ends_with('?') {
                unknown += 1;
            } else if !printed.ends_with('?') {
                assert_eq!(shown, printed, "{line}: {call:?}");
                known += 1;
            }
        }
    }
    assert!(known > 0, "{:?}", traced.ended);
    (known, unknown)
}

fn gcc(flags: &[&str]) -> Program {
    compile("typed.c", &["gcc", "-std=gnu17", "-g"], flags)
}

#[test]
fn all_values_of_a_c_program_that_is_not_optimised_are_shown() {
    for flags in [
        &["-O0"][..],
        &["-O0", "-gdwarf-4", "-gz"],
        &["-O0", "-fomit-frame-pointer"],
    ] {
        let (known, unknown) = compared(gcc(flags));
        // A value is unknown after one that needed two registers when one was left.
        assert!(unknown <= 1 && known > 100, "{flags:?}: {known}, {unknown}");
    }
}

#[test]
fn no_value_of_an_optimised_c_program_is_false() {
    for flags in [
        &["-O1"][..],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-fwhole-program"],
        &["-O3", "-flto"],
        &["-Os", "-fno-omit-frame-pointer"],
    ] {
        let (known, unknown) = compared(gcc(flags));
        assert!(known > unknown, "{flags:?}: {known}, {unknown}");
    }
}

#[test]
fn no_value_of_clang_is_false() {
    for flags in [&["-O0"][..], &["-O1"], &["-O2", "-gdwarf-4"], &["-Os"]] {
        let (known, unknown) = compared(compile("typed.c", &["clang", "-g"], flags));
        assert!(known > unknown, "{flags:?}: {known}, {unknown}");
        let (known, unknown) = compared(compile("typed.cc", &["clang++", "-g"], flags));
        assert!(known > unknown, "{flags:?}: {known}, {unknown}");
    }
}

#[test]
fn no_value_of_a_cxx_program_is_false() {
    for flags in [
        &["-O0"][..],
        &["-O0", "-gdwarf-4"],
        &["-O1"],
        &["-O2"],
        &["-Os"],
    ] {
        let (known, unknown) = compared(compile("typed.cc", &["g++", "-g"], flags));
        assert!(known > unknown, "{flags:?}: {known}, {unknown}");
    }
}

/// Few values of optimised Rust programs are certain, since LLVM changes their functions.
#[test]
fn no_value_of_a_rust_program_is_false() {
    let rust = |flags| compile("typed.rs", &["rustc", "--edition=2024", "-g"], flags);
    let (known, unknown) = compared(rust(&[]));
    assert!(known > 2 * unknown, "{known}, {unknown}");
    for flags in [
        &["-Copt-level=1"][..],
        &["-Copt-level=2", "-Cforce-frame-pointers=yes"],
        &["-Copt-level=3", "-Clto=fat"],
        &["-Copt-level=s"],
    ] {
        compared(rust(flags));
    }
}

#[test]
fn the_longest_calls_have_types_beside_the_words() {
    let traced = Case::new(gcc(&["-O0"])).options(["--args"]).traced();
    let directory = traced.directory();
    let json = read(&["slow", "named", "--json"], &directory);
    let calls: serde_json::Value = serde_json::from_str(&json).expect(&json);
    let call = &calls[0];
    assert_eq!(call["arguments"].as_array().unwrap().len(), 6);
    let parameters = call["parameters"].as_array().unwrap();
    let row = |name: &str, kind: &str, value: &str| serde_json::json!({"name": name, "type": kind, "value": value});
    assert!(
        parameters.contains(&row("access", "enum access", "WRITE|TRUNCATE")),
        "{json}"
    );
    assert_eq!(
        call["returned"],
        serde_json::json!([{"type": "enum colour", "value": "RED"}])
    );
    let json = read(&["slow", "pointed", "--json"], &directory);
    let calls: serde_json::Value = serde_json::from_str(&json).expect(&json);
    let text = &calls[0]["parameters"][0];
    assert_eq!(text["text"], "text", "{json}");
    assert!(text["value"].as_str().unwrap().starts_with("0x"), "{json}");
    assert_eq!(calls[0]["returned"][0]["text"], "ext", "{json}");
    let json = read(&["slow", "floating", "--json"], &directory);
    let calls: serde_json::Value = serde_json::from_str(&json).expect(&json);
    assert!(calls[0]["parameters"][1]["value"].is_null(), "{json}");

    let text = read(&["slow", "many"], &directory);
    assert!(
        text.contains("many(a=1, b=-2, c=3, d=-4, e=5, f=-6, g=…, h=…) = -1"),
        "{text}"
    );
    let source = text.lines().find(|line| line.starts_with("     source  "));
    let source = source.unwrap_or_else(|| panic!("{text}"));
    let call = include_str!("../programs/typed.c").lines();
    let call = 1 + call
        .clone()
        .position(|line| line == "\tmany(1, -2, 3, -4, 5, -6, 7, -8);")
        .unwrap();
    assert!(
        source.contains("typed.c:") && source.contains("; main calls it at "),
        "{text}"
    );
    assert!(source.contains(&format!("typed.c:{call}")), "{text}");
    let text = read(&["slow", "many", "--words"], &directory);
    assert!(text.contains("many(0x1, 0x"), "{text}");
    let text = read(&["replay", "-F", "many", "--words"], &directory);
    assert!(text.contains("many(1, -2, 3, -4, 5, -6)"), "{text}");
}

#[test]
fn calls_are_summed_up_by_the_values_of_an_argument() {
    let traced = Case::new(gcc(&["-O0"])).options(["--args"]).traced();
    let directory = traced.directory();
    let rows = |what: &str| {
        let json = read(&["report", "--json", "--by-arg", what], &directory);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&json).expect(&json);
        let mut rows: Vec<(String, u64)> = rows
            .iter()
            .map(|row| {
                assert!(row["max_ns"].as_u64() <= row["total_ns"].as_u64(), "{row}");
                let value = row["value"].as_str().unwrap().to_owned();
                (value, row["calls"].as_u64().unwrap())
            })
            .collect();
        rows.sort();
        rows
    };
    let one = |value: &str, calls| (value.to_owned(), calls);
    assert_eq!(rows("named:colour"), [one("BLUE", 1), one("GREEN", 1)]);
    assert_eq!(rows("named:2"), [one("WRITE|TRUNCATE", 2)]);
    assert_eq!(rows("local"), [one("17", 1), one("20", 1)]);
    assert_eq!(rows("wide:result"), [one("0", 1), one("9", 1)]);
    let text = read(&["report", "--by-arg", "named:colour"], &directory);
    assert!(text.contains("colour=GREEN"), "{text}");

    let refused = |what: &str| {
        let mut start = Start::new([nopal().as_os_str()]);
        let words = ["report", "--by-arg", what];
        start.words.extend(words.iter().map(Into::into));
        start.words.push(directory.clone().into());
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(1), "{ended:?}");
        ended.stderr
    };
    assert!(
        refused("n*@typed").contains("different arguments"),
        "{}",
        refused("n*@typed")
    );
    assert!(refused("floating:single").contains("not in one register"));
    assert!(refused("named:shape").contains("colour, access, unknown"));
    assert!(refused("none").contains("no arguments"));
    assert!(refused("none:result").contains("no result"));
}
