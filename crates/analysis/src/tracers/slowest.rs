//! The slowest cases of each minute, so that their records can be kept before they are dropped.

use super::Case;

/// The cases that are among the slowest of their minute, and those of them that have not been taken. Slower cases of
/// its minute may follow a case that was taken: it is outrun then.
#[derive(Default)]
pub struct Slowest {
    most: usize,
    /// The clock at which the first case of this minute ended.
    minute: Option<u64>,
    /// The slowest of this minute so far, the slowest first.
    kept: Vec<Kept>,
    /// The cases of earlier minutes that have not been taken.
    past: Vec<(u64, Case)>,
    outrun: Vec<u64>,
    next_id: u64,
}

struct Kept {
    id: u64,
    case: Case,
    is_taken: bool,
}

impl Slowest {
    /// Keeps so many of each minute from now on.
    pub fn keep(&mut self, most: usize) {
        if most != self.most {
            self.end_minute();
            self.most = most;
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.most > 0
    }

    /// Takes a case that has ended, by a clock that counts so many ticks a minute. Cases come in the order of their
    /// ends, except for late ones.
    pub fn offer(&mut self, case: Case, minute: u64) {
        let is_past = |begin: u64| case.end.saturating_sub(begin) >= minute;
        if self.minute.is_none_or(is_past) {
            self.end_minute();
            self.minute = Some(case.end);
        }
        let at = self
            .kept
            .partition_point(|kept| kept.case.ticks() >= case.ticks());
        if at >= self.most {
            return;
        }
        if self.kept.len() == self.most
            && let Some(last) = self.kept.pop()
            && last.is_taken
        {
            self.outrun.push(last.id);
        }
        let (id, is_taken) = (self.next_id, false);
        self.next_id += 1;
        self.kept.insert(at, Kept { id, case, is_taken });
    }

    fn end_minute(&mut self) {
        let kept = self.kept.drain(..).filter(|kept| !kept.is_taken);
        self.past.extend(kept.map(|kept| (kept.id, kept.case)));
    }

    /// The cases that have not been taken.
    pub fn waiting(&self) -> impl Iterator<Item = &Case> {
        let kept = self.kept.iter().filter(|kept| !kept.is_taken);
        let past = self.past.iter().map(|(_, case)| case);
        kept.map(|kept| &kept.case).chain(past)
    }

    /// Takes all that have not been taken, each with a number of its own.
    pub fn take(&mut self) -> Vec<(u64, Case)> {
        let mut taken = std::mem::take(&mut self.past);
        for kept in self.kept.iter_mut().filter(|kept| !kept.is_taken) {
            kept.is_taken = true;
            taken.push((kept.id, kept.case));
        }
        taken
    }

    /// The numbers of those that were taken, and that slower ones of their minute have outrun since this was asked last.
    pub fn take_outrun(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.outrun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn case(ticks: u64, end: u64) -> Case {
        Case {
            key: 0,
            begin: end - ticks,
            end,
            begin_thread: 0,
            end_thread: 0,
        }
    }

    fn ticks(taken: &[(u64, Case)]) -> Vec<u64> {
        taken.iter().map(|(_, case)| case.ticks()).collect()
    }

    #[test]
    fn the_slowest_of_each_minute_are_kept_and_others_are_outrun() {
        let mut slowest = Slowest::default();
        let offer = |slowest: &mut Slowest, ticks: &[u64], end| {
            let cases = ticks.iter().map(|ticks| case(*ticks, end));
            cases.for_each(|case| slowest.offer(case, MINUTE));
        };
        offer(&mut slowest, &[50], 1000);
        assert!(slowest.take().is_empty(), "none is wanted");
        slowest.keep(2);
        offer(&mut slowest, &[5, 7, 6, 3], 1000);
        assert_eq!(slowest.waiting().count(), 2);
        let first = slowest.take();
        assert_eq!(ticks(&first), [7, 6]);
        assert!(slowest.take_outrun().is_empty());
        // If two take equally long, the first stays.
        offer(&mut slowest, &[6], 2000);
        assert!(slowest.take().is_empty());
        offer(&mut slowest, &[9, 8], 1000 + MINUTE - 1);
        assert_eq!(slowest.take_outrun(), [first[1].0, first[0].0]);
        // Another minute: waiting cases of the last one are still taken, and can no longer be outrun.
        offer(&mut slowest, &[1], 1000 + MINUTE);
        assert_eq!(ticks(&slowest.take()), [9, 8, 1]);
        offer(&mut slowest, &[4, 5], 2000 + MINUTE);
        assert_eq!(slowest.take_outrun().len(), 1);
        // A late one of the minute before counts in this one.
        offer(&mut slowest, &[100], 2000);
        assert_eq!(ticks(&slowest.take()), [100, 5]);
        offer(&mut slowest, &[60], 3000 + MINUTE);
        slowest.keep(0);
        offer(&mut slowest, &[200], 3000 + MINUTE);
        assert_eq!(ticks(&slowest.take()), [60]);
    }
}
