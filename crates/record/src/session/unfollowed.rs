//! Programs that were executed and are not traced, and why.

use nopal_analysis::text::several;
use std::collections::BTreeMap;

/// By the reason, so that a thousand of a kind have one line.
#[derive(Default)]
pub struct Unfollowed(BTreeMap<String, Alike>);

#[derive(Default)]
struct Alike {
    /// One of them.
    process: Option<i32>,
    count: u64,
}

impl Unfollowed {
    pub const UNANSWERED: &str = "nopal could not follow it in time";
    pub const AMBIGUOUS: &str =
        "several forks have the same ids, each in a PID namespace of its own";
    pub const FILTERED: &str =
        "under its seccomp filter, threads do not tell nopal which of them they are";
    pub const SET_ID: &str =
        "it runs with the rights of its owner, which the kernel withholds from a traced program";
    pub const ENDED: &str = "it ended before any libc had started in it";

    pub fn add(&mut self, process: i32, reason: impl Into<String>) {
        let alike = self.0.entry(reason.into()).or_default();
        alike.process.get_or_insert(process);
        alike.count += 1;
    }

    pub fn add_many(&mut self, reason: &str, count: u64) {
        if count > 0 {
            self.0.entry(reason.to_owned()).or_default().count += count;
        }
    }

    /// How many, and why, each reason once.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(reason, alike)| {
            let first = alike.process;
            let first = first.map(|process| format!("process {process}"));
            let which = match (alike.count, first) {
                (_, None) => String::new(),
                (1, Some(first)) => format!(" ({first})"),
                (_, Some(first)) => format!(" (one was {first})"),
            };
            let programs = several(
                alike.count,
                "program that was executed is not traced",
                "programs that were executed are not traced",
            );
            format!("{programs}{which}: {reason}")
        })
    }
}
