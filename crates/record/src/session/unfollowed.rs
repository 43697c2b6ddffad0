//! Programs that were executed and are not traced, and why.

use nopal_analysis::text::several;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Unfollowed {
    /// By the reason, so that a thousand of a kind have one line.
    alike: BTreeMap<String, Alike>,
    /// Executions for which the threads did not wait any longer: some may have failed.
    unanswered: u64,
}

struct Alike {
    /// One of them.
    process: i32,
    count: u64,
}

impl Unfollowed {
    pub const AMBIGUOUS: &str =
        "several forks have the same ids, each in a PID namespace of its own";
    pub const FILTERED: &str =
        "under its seccomp filter, threads do not tell nopal which of them they are";
    pub const SET_ID: &str =
        "it runs with the rights of its owner, which the kernel withholds from a traced program";
    pub const ENDED: &str = "it ended before any libc had started in it";

    pub fn add(&mut self, process: i32, reason: impl Into<String>) {
        let alike = self.alike.entry(reason.into());
        alike.or_insert(Alike { process, count: 0 }).count += 1;
    }

    pub fn add_unanswered(&mut self, count: u64) {
        self.unanswered += count;
    }

    /// How many, and why, each reason once.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        let known = self.alike.iter().map(|(reason, alike)| {
            let Alike { process, count } = alike;
            let which = match count {
                1 => format!("process {process}"),
                _ => format!("one was process {process}"),
            };
            format!("{} ({which}): {reason}", programs(*count))
        });
        let unanswered = (self.unanswered > 0).then(|| {
            let most = programs(self.unanswered);
            format!(
                "up to {most}: nopal could not follow in time, and does not know which executions failed"
            )
        });
        known.chain(unanswered)
    }
}

fn programs(count: u64) -> String {
    several(
        count,
        "program that was executed is not traced",
        "programs that were executed are not traced",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_their_reasons() {
        let mut unfollowed = Unfollowed::default();
        assert_eq!(unfollowed.describe().count(), 0);
        unfollowed.add(7, Unfollowed::ENDED);
        unfollowed.add(8, Unfollowed::ENDED);
        unfollowed.add(9, "it is secret");
        unfollowed.add_unanswered(2);
        let said: Vec<String> = unfollowed.describe().collect();
        assert_eq!(
            said,
            [
                "2 programs that were executed are not traced (one was process 7): it ended before any libc had started in it",
                "1 program that was executed is not traced (process 9): it is secret",
                "up to 2 programs that were executed are not traced: nopal could not follow in time, and does not know which executions failed",
            ]
        );
    }
}
