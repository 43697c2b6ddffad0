//! The traceable functions of a kernel, listed in a guest, beside a plain search of the same kernel's bytes. The guest
//! runs once for all of these tests.

use nopal_tests::{c, nopal, run_in_guest};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;
use tempfile::TempDir;

const SCRIPT: &str = "
mount -t debugfs debugfs /sys/kernel/debug
cat /proc/kallsyms >/out/kallsyms
cat /sys/kernel/tracing/available_filter_functions >/out/available
kernel_text /out/text
nopal list kernel --json >/out/plan 2>/out/plan.said
echo $? >/out/plan.status
for what in load query stop ''; do
	nopal ctl kernel $what </dev/null
	echo $?
done >/out/ctl 2>&1
nopal list kernel 'no_such_*' '*@no_such' >/out/none 2>&1
echo $? >>/out/none
mkdir -p /etc
echo user::1000:1000::/:/bin/sh >/etc/passwd
su user -c 'nopal list kernel' >/out/user 2>&1
echo $? >>/out/user
mount -t securityfs none /sys/kernel/security
echo integrity >/sys/kernel/security/lockdown
nopal ctl kernel load >/out/locked 2>&1
echo $? >>/out/locked
echo 2 >/proc/sys/kernel/kptr_restrict
nopal list kernel >/out/hidden 2>&1
echo $? >>/out/hidden
";

fn out(name: &str) -> Vec<u8> {
    static OUT: OnceLock<TempDir> = OnceLock::new();
    let out = OUT.get_or_init(|| {
        let program = c("kernel_text", &[]);
        run_in_guest(&[nopal(), &program.path], SCRIPT)
    });
    let path = out.path().join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(name: &str) -> String {
    String::from_utf8(out(name)).unwrap()
}

/// Addresses of the kernel's own text, each with its names; a symbol at the end of one belongs to the next.
fn symbols() -> BTreeMap<u64, Vec<String>> {
    let mut symbols: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in text("kallsyms").lines().filter(|line| !line.contains('[')) {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let name = words.nth(1).unwrap().to_owned();
        symbols.entry(address).or_default().push(name);
    }
    let at = |wanted: &str| {
        let is_it = |(_, names): &(&u64, &Vec<String>)| names.iter().any(|name| name == wanted);
        *symbols.iter().find(is_it).unwrap().0
    };
    let (begin, end) = (at("_stext"), at("_etext"));
    symbols
        .into_iter()
        .filter(|(at, _)| (begin..=end).contains(at))
        .collect()
}

struct Listed {
    address: u64,
    size: u64,
    names: Vec<String>,
    returns: u64,
    reason: String,
}

fn listed(what: &str) -> Vec<Listed> {
    let plan: Value = serde_json::from_slice(&out("plan")).unwrap();
    let all = plan[what].as_array().unwrap();
    assert!(!all.is_empty());
    let one = |it: &Value| {
        let also = it["also"].as_array().unwrap().iter();
        let names = std::iter::once(&it["function"]).chain(also);
        Listed {
            address: it["address"].as_u64().unwrap(),
            size: it["size"].as_u64().unwrap(),
            names: names
                .map(|name| name.as_str().unwrap().to_owned())
                .collect(),
            returns: it["returns"].as_u64().unwrap_or(0),
            reason: it["reason"].as_str().unwrap_or_default().to_owned(),
        }
    };
    all.iter().map(one).collect()
}

const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
const RETURN: [u8; 5] = [0xc3, 0xcc, 0xcc, 0xcc, 0xcc];

#[test]
fn all_that_begins_with_ftraces_nop_is_planned_or_refused_with_another_reason() {
    assert_eq!(text("plan.said"), "");
    assert_eq!(text("plan.status"), "0\n");
    let (symbols, bytes) = (symbols(), out("text"));
    let begin = *symbols.keys().next().unwrap();
    let has_place = |address: &u64| {
        let code = &bytes[(address - begin) as usize..];
        code.starts_with(&NOP)
            || code.get(4..).is_some_and(|code| code.starts_with(&NOP))
                && code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])
    };
    let found: BTreeSet<u64> = symbols.keys().copied().filter(has_place).collect();
    let planned: BTreeSet<u64> = listed("functions").iter().map(|it| it.address).collect();
    let missing: Vec<&u64> = planned.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:x?}");
    // The other functions are listed with a reason.
    let refused = listed("refused");
    let reasons: BTreeMap<u64, &str> = refused.iter().map(|it| (it.address, &*it.reason)).collect();
    let mut without_reason = 0;
    for address in found.difference(&planned) {
        match reasons.get(address) {
            Some(reason) => without_reason += usize::from(reason.contains("no place for ftrace")),
            // A cold part may begin with a jump label.
            None => without_reason += 1,
        }
    }
    println!("{} planned, {} found", planned.len(), found.len());
    assert!(without_reason <= 20, "{without_reason}");
    assert!(planned.len() > 20_000, "{}", planned.len());
    assert!(
        planned.len() * 100 >= found.len() * 98,
        "{} of {}",
        planned.len(),
        found.len()
    );
}

#[test]
fn what_is_planned_the_kernels_own_tracer_offers_too() {
    let available = text("available");
    let available: BTreeSet<&str> = available
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let planned = listed("functions");
    let is_missing = |it: &&Listed| !it.names.iter().any(|name| available.contains(&**name));
    let missing: Vec<&[String]> = planned
        .iter()
        .filter(is_missing)
        .map(|it| &*it.names)
        .collect();
    // NOPs of alternatives look like ftrace's; the module asks ftrace.
    assert!(missing.len() <= 20, "{missing:?}");
}

#[test]
fn each_return_is_found_and_nothing_else_is_taken_for_one() {
    let (symbols, bytes) = (symbols(), out("text"));
    let begin = *symbols.keys().next().unwrap();
    let cold: BTreeSet<&str> = symbols
        .values()
        .flatten()
        .filter_map(|name| name.split_once(".cold"))
        .map(|(whole, _)| whole)
        .collect();
    let mut compared = 0;
    for it in listed("functions") {
        if it.names.iter().any(|name| cold.contains(&**name)) {
            continue;
        }
        let from = (it.address - begin) as usize;
        let code = &bytes[from..from + it.size as usize];
        let found = |before: &[u8]| {
            let all = code.windows(6).filter(|bytes| bytes[1..] == RETURN);
            all.filter(|bytes| !before.contains(&bytes[0])).count() as u64
        };
        // `eb c3` is a jump, with its distance.
        let expected = found(&[0xeb])..=found(&[]);
        assert!(
            expected.contains(&it.returns),
            "{:?}: {expected:?}",
            it.names
        );
        compared += 1;
    }
    assert!(compared > 15_000, "{compared}");
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    let expected = "nopal: there is no /dev/nopal: nopal's module is not loaded in this kernel \
                    (as root, modprobe nopal loads it)\n1\n";
    assert_eq!(text("ctl"), expected.repeat(4));
    assert_eq!(
        text("none"),
        "nopal: no function and no marker of the kernel matches\n1\n"
    );
    let locked = text("locked");
    assert!(
        locked.contains("mokutil --import") && locked.ends_with("\n1\n"),
        "{locked}"
    );
    let user = text("user");
    assert!(
        user.contains("only root may read it") && user.ends_with("\n1\n"),
        "{user}"
    );
    let hidden = text("hidden");
    assert!(
        hidden.contains("kernel.kptr_restrict") && hidden.ends_with("\n1\n"),
        "{hidden}"
    );
}
