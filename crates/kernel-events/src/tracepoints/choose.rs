//! The tracepoints that words mean, as perf and trace-cmd take them.

use super::events;
use anyhow::{Context, Result, bail, ensure};
use nopal_symbols::{Glob, nearest, or_nearest};
use std::fs;
use std::path::Path;

/// A tracepoint of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tracepoint {
    pub group: String,
    pub name: String,
}

/// Whether a word may mean tracepoints. An error says what it should look like.
pub fn check(word: &str) -> Result<()> {
    let is_part = |part: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_*?[]-.".contains(&byte);
        !part.is_empty() && part.bytes().all(is_known)
    };
    let parts: Vec<&str> = word.split(':').collect();
    ensure!(
        parts.len() <= 2 && parts.iter().all(|part| is_part(part)),
        "{word:?}: expected a group of the kernel's tracepoints (irq), or GROUP:NAME (irq:irq_handler_entry), where NAME may be a \
         glob; sched_switch, sched_wakeup, or sched for both, are of all tasks"
    );
    parts
        .iter()
        .try_for_each(|part| Glob::parse(part).map(drop))
}

/// The tracepoints that words mean, each once.
pub fn choose(words: &[String]) -> Result<Vec<Tracepoint>> {
    choose_below(&events()?, words)
}

fn choose_below(events: &Path, words: &[String]) -> Result<Vec<Tracepoint>> {
    let all = all(events)?;
    let mut chosen = Vec::new();
    for word in words {
        check(word)?;
        let before = chosen.len();
        let is_group = |name: &str| all.iter().any(|one| one.group == name);
        let (group, name) = match word.split_once(':') {
            Some((group, name)) => (group, name),
            None if is_group(word) => (&**word, "*"),
            None => ("*", &**word),
        };
        let (groups, names) = (Glob::parse(group)?, Glob::parse(name)?);
        let means = |one: &&Tracepoint| groups.matches(&one.group) && names.matches(&one.name);
        chosen.extend(all.iter().filter(means).cloned());
        if chosen.len() == before {
            bail!("this kernel has no tracepoint {word:?}{}", near(&all, word));
        }
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

/// The tracepoints that the word may have been meant for.
fn near(all: &[Tracepoint], word: &str) -> String {
    let full: Vec<String> = all
        .iter()
        .map(|one| format!("{}:{}", one.group, one.name))
        .collect();
    let mut groups: Vec<&str> = all.iter().map(|one| &*one.group).collect();
    groups.dedup();
    let names = all.iter().map(|one| &*one.name);
    let nearest = match word.contains(':') {
        true => nearest(full.iter().map(String::as_str), word),
        false => nearest(groups.into_iter().chain(names), word),
    };
    match nearest[..] {
        [] => "; `ls /sys/kernel/tracing/events` lists the groups".to_owned(),
        _ => or_nearest(&nearest),
    }
}

/// All tracepoints that can be switched on, in order.
fn all(events: &Path) -> Result<Vec<Tracepoint>> {
    let mut all = Vec::new();
    for group in folders(events)? {
        for name in folders(&events.join(&group))? {
            if events.join(&group).join(&name).join("enable").exists() {
                let group = group.clone();
                all.push(Tracepoint { group, name });
            }
        }
    }
    all.sort();
    Ok(all)
}

fn folders(path: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(path)
        .with_context(|| format!("cannot list {}: it needs root", path.display()))?;
    let folders = entries.flatten().filter(|entry| {
        let kind = entry.file_type();
        kind.is_ok_and(|kind| kind.is_dir())
    });
    Ok(folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect())
}

pub fn read(group: &str, name: &str, file: &str) -> Result<String> {
    let path = events()?.join(group).join(name).join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for tracepoint in [
            "exceptions/page_fault_user",
            "exceptions/page_fault_kernel",
            "irq/softirq_entry",
            "irq/softirq_exit",
            "syscalls/sys_enter_read",
        ] {
            let folder = place.path().join(tracepoint);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("enable"), "0\n").unwrap();
        }
        // The kernel's own records have no switch.
        fs::create_dir_all(place.path().join("ftrace/function")).unwrap();
        fs::write(place.path().join("enable"), "0\n").unwrap();
        place
    }

    fn chosen(words: &[&str]) -> Result<Vec<String>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let chosen = choose_below(kernel().path(), &words)?;
        let names = chosen
            .iter()
            .map(|one| format!("{}:{}", one.group, one.name));
        Ok(names.collect())
    }

    #[test]
    fn words_are_those_of_perf_and_trace_cmd() {
        let irq = ["irq:softirq_entry", "irq:softirq_exit"];
        assert_eq!(chosen(&["irq"]).unwrap(), irq);
        assert_eq!(chosen(&["irq:*", "irq:softirq_entry"]).unwrap(), irq);
        assert_eq!(chosen(&["softirq_*"]).unwrap(), irq);
        assert_eq!(chosen(&["irq:*_exit"]).unwrap(), irq[1..]);
        assert_eq!(
            chosen(&["syscalls:sys_enter_read", "page_fault_user"]).unwrap(),
            ["exceptions:page_fault_user", "syscalls:sys_enter_read"]
        );
        assert_eq!(chosen(&["*"]).unwrap().len(), 5);
    }

    #[test]
    fn what_there_is_not_names_the_nearest() {
        let error = |word: &str| format!("{:#}", chosen(&[word]).unwrap_err());
        assert_eq!(
            error("exceptions:page_fault_usr"),
            "this kernel has no tracepoint \"exceptions:page_fault_usr\"; the nearest are exceptions:page_fault_user, exceptions:page_fault_kernel"
        );
        assert!(
            error("irk").contains("the nearest is irq"),
            "{}",
            error("irk")
        );
        assert!(error("ftrace:function").contains("no tracepoint"));
        for wrong in ["", "a:b:c", "irq:", "a b", "../x"] {
            assert!(error(wrong).contains("expected a group"), "{wrong}");
        }
    }
}
