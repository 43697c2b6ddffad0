//! Tells the trace what is recorded of sites, where that is not each call with its times.

use crate::collecting::notes::{counter, note};
use crate::session::Session;
use anyhow::Result;
use nopal_control::{Mode, SiteKey};
use nopal_trace::{Note, SiteState};
use std::collections::HashMap;

/// Before sites are switched, or after.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Before,
    After,
}

/// The states of sites, by their numbers, as the trace has them; those that are not here are timed.
pub(crate) type States = HashMap<u32, SiteState>;

fn state_in(mode: Mode) -> SiteState {
    match mode {
        Mode::Spared => SiteState::Off,
        Mode::Counted => SiteState::Counted,
        Mode::Off | Mode::Silent | Mode::On => SiteState::Timed,
    }
}

impl Session {
    /// Writes the note of a change of sites' states: before the change if less is recorded then, after it if more is. So a
    /// call that is missing or only counted never lies in a time for which the trace calls its function timed. A missing
    /// call never lies in one for which the trace calls it counted.
    pub(crate) fn note_state(&mut self, sites: &[SiteKey], mode: Mode, turn: Turn) -> Result<()> {
        let state = state_in(mode);
        if state == SiteState::Timed && self.states.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u32> = sites.iter().filter_map(|site| self.number(*site)).collect();
        let changed = |number: &u32| {
            let was = self.states.get(number).copied();
            let was = was.unwrap_or(SiteState::Timed);
            let is_now = match turn {
                Turn::Before => state > was,
                Turn::After => state < was,
            };
            match state {
                _ if !is_now => {}
                SiteState::Timed => drop(self.states.remove(number)),
                _ => drop(self.states.insert(*number, state)),
            }
            is_now
        };
        let sites: Vec<u32> = numbers.into_iter().filter(changed).collect();
        if sites.is_empty() {
            return Ok(());
        }
        let kept = match &mut self.budget {
            Some(budget) => budget.went(state, &sites),
            None => false,
        };
        let counter = counter();
        let written = Note::State {
            counter,
            state,
            sites,
            kept,
            sampled: false,
        };
        note(&self.context.shared.writer, &written)
    }

    /// Writes the note from which on all recorded calls of counted sites are samples, after they have been switched; or,
    /// before they are, that from which on they are not. So no call that was recorded for another reason is taken for a
    /// sample.
    pub(crate) fn note_sampled(&mut self, sites: &[SiteKey], sampled: bool) -> Result<()> {
        if !sampled && self.sampled.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u32> = sites.iter().filter_map(|site| self.number(*site)).collect();
        let changed = |number: &u32| match sampled {
            true => {
                self.states.get(number) == Some(&SiteState::Counted) && self.sampled.insert(*number)
            }
            false => self.sampled.remove(number),
        };
        let sites: Vec<u32> = numbers.into_iter().filter(changed).collect();
        if sites.is_empty() {
            return Ok(());
        }
        let written = Note::State {
            counter: counter(),
            state: SiteState::Counted,
            sites,
            kept: false,
            sampled,
        };
        note(&self.context.shared.writer, &written)
    }
}
