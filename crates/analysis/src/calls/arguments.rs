//! Arguments of calls that have not ended.

use serde::{Deserialize, Serialize};

/// Keeps them by the note of a call's frame, which is their index plus one; 0 if they are not known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Arguments {
    all: Vec<[u64; 6]>,
    free: Vec<u32>,
}

impl Arguments {
    pub fn keep(&mut self, arguments: [u64; 6]) -> u32 {
        match self.free.pop() {
            Some(note) => {
                self.all[note as usize - 1] = arguments;
                note
            }
            None => {
                self.all.push(arguments);
                self.all.len() as u32
            }
        }
    }

    /// Whether all free notes were given before.
    pub(super) fn is_sound(&self) -> bool {
        let given = 1..=self.all.len();
        self.free
            .iter()
            .all(|note| given.contains(&(*note as usize)))
    }

    pub fn get(&self, note: u32) -> Option<[u64; 6]> {
        self.all.get((note as usize).checked_sub(1)?).copied()
    }

    pub fn take(&mut self, note: u32) -> Option<[u64; 6]> {
        let arguments = self.get(note)?;
        self.free.push(note);
        Some(arguments)
    }
}
