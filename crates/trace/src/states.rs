//! When the sites of a trace were not recorded, for the sake of a budget.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::note::{Note, SiteState};
use crate::trace::Trace;

/// The times, by the counter, in which sites were off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteStates {
    /// The last budget, in per cent; none if there never was one.
    pub percent: Option<f64>,
    /// In order. Those that had no end last until `u64::MAX`.
    off: BTreeMap<u32, Vec<RangeInclusive<u64>>>,
    /// How often a site went from one state to another.
    pub changes: u64,
    /// Sites that began off, as they were when another session of the program ended.
    pub begun_off: u64,
}

impl SiteStates {
    pub fn of(trace: &Trace) -> SiteStates {
        SiteStates::of_notes(trace.notes())
    }

    fn of_notes(notes: &[Note]) -> SiteStates {
        let mut states = SiteStates::default();
        for note in notes {
            match note {
                Note::Budget { percent, .. } => states.percent = percent.or(states.percent),
                Note::State {
                    counter,
                    state,
                    sites,
                    kept,
                } => {
                    if *kept {
                        states.begun_off += sites.len() as u64;
                    }
                    for site in sites {
                        states.change(*site, *state, *counter);
                    }
                }
                _ => {}
            }
        }
        states
    }

    fn change(&mut self, site: u32, state: SiteState, counter: u64) {
        let times = self.off.entry(site).or_default();
        let last = times.last_mut().filter(|last| *last.end() == u64::MAX);
        match (state, last) {
            (SiteState::Off, None) => {
                // The notes of a damaged trace may go back.
                let after = times.last().map_or(0, |last| *last.end());
                times.push(counter.max(after)..=u64::MAX);
            }
            (SiteState::Timed, Some(last)) => *last = *last.start()..=counter.max(*last.start()),
            _ => return,
        }
        self.changes += 1;
    }

    /// Ticks of a time in which a site was off.
    pub fn off(&self, site: u32, within: &RangeInclusive<u64>) -> u64 {
        let times = self.off.get(&site).into_iter().flatten();
        let ticks = times.map(|time| {
            let end = *time.end().min(within.end());
            end.saturating_sub(*time.start().max(within.start()))
        });
        ticks.fold(0, u64::saturating_add)
    }

    /// The sites that were off at any time.
    pub fn sites(&self) -> impl Iterator<Item = u32> {
        let sites = self.off.iter();
        let sites = sites.filter(|(_, times)| !times.is_empty());
        sites.map(|(site, _)| *site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(counter: u64, state: SiteState, sites: &[u32]) -> Note {
        Note::State {
            counter,
            state,
            sites: sites.into(),
            kept: false,
        }
    }

    #[test]
    fn a_site_is_off_from_one_note_to_the_next() {
        use SiteState::{Off, Timed};
        let states = SiteStates::of_notes(&[
            Note::Budget {
                counter: 1,
                percent: Some(5.0),
            },
            state(10, Off, &[1, 2]),
            state(20, Timed, &[1, 3]),
            state(25, Off, &[2]),
            state(30, Off, &[1]),
            Note::Budget {
                counter: 40,
                percent: None,
            },
        ]);
        assert_eq!((states.percent, states.changes), (Some(5.0), 4));
        assert_eq!(states.sites().collect::<Vec<_>>(), [1, 2]);
        let off = |site, from, until| states.off(site, &(from..=until));
        assert_eq!(
            [off(1, 0, 100), off(2, 0, 100), off(3, 0, 100)],
            [80, 90, 0]
        );
        assert_eq!([off(1, 12, 15), off(1, 20, 30), off(1, 0, 5)], [3, 0, 0]);
        assert_eq!([off(1, 15, 35), off(2, 50, 40)], [10, 0]);
    }

    #[test]
    fn times_of_a_damaged_trace_are_in_order() {
        use SiteState::{Off, Timed};
        let states = SiteStates::of_notes(&[
            state(50, Off, &[1]),
            state(20, Timed, &[1]),
            state(10, Off, &[1]),
            state(u64::MAX, Timed, &[1]),
        ]);
        assert_eq!(states.off(1, &(0..=100)), 50);
        assert_eq!(states.off(1, &(0..=u64::MAX)), u64::MAX - 50);
    }
}
