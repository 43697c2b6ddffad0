//! A budget for the work on old frames.

use serde::{Deserialize, Serialize};

use super::frame::Frame;

const LIMIT: usize = 1 << 22;
const A_WORD: usize = 16;

/// Steps of a search and moves of frames spend it; each record adds to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkBudget(usize);

impl Default for WorkBudget {
    fn default() -> WorkBudget {
        WorkBudget(LIMIT)
    }
}

impl WorkBudget {
    pub fn earn(&mut self, words: usize) {
        self.0 = self
            .0
            .saturating_add(words.saturating_mul(A_WORD))
            .min(LIMIT);
    }

    /// False, and nothing is spent, if the budget does not suffice.
    pub fn pay(&mut self, steps: usize) -> bool {
        match self.0.checked_sub(steps) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    /// The topmost matching frame, within the budget.
    pub fn search(&mut self, frames: &[Frame], suits: impl Fn(&Frame) -> bool) -> Option<usize> {
        let unseen = frames.len().saturating_sub(self.0);
        let found = frames[unseen..]
            .iter()
            .rposition(suits)
            .map(|at| at + unseen);
        self.pay(frames.len() - found.unwrap_or(unseen));
        found
    }
}
