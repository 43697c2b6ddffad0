//! The frames of the current stack.

use std::ops::{Deref, DerefMut};

use nopal_abi::Style;
use serde::{Deserialize, Serialize};

use super::frame::Frame;

/// Dummy frames below the first, so that a run of plain calls need not check for an empty stack. No exit ends them.
pub const GROUND: usize = 2;

const NOBODY: Frame = Frame::new(0, 0, 0, Style::Only);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stack(Vec<Frame>);

impl Default for Stack {
    fn default() -> Stack {
        Stack(vec![NOBODY; GROUND])
    }
}

impl Deref for Stack {
    type Target = [Frame];

    #[inline(always)]
    fn deref(&self) -> &[Frame] {
        self.0.get(GROUND..).unwrap_or_default()
    }
}

impl DerefMut for Stack {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Frame] {
        self.0.get_mut(GROUND..).unwrap_or_default()
    }
}

impl Stack {
    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        self.0.push(frame);
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<Frame> {
        if self.0.len() > GROUND {
            self.0.pop()
        } else {
            None
        }
    }

    pub fn pop_if(&mut self, suits: impl FnOnce(&Frame) -> bool) -> Option<Frame> {
        if self.last().is_some_and(suits) {
            self.pop()
        } else {
            None
        }
    }

    pub fn split_off(&mut self, index: usize) -> Vec<Frame> {
        self.0.split_off(GROUND + index)
    }

    /// Replaces the frames, and returns the old ones.
    pub fn replace(&mut self, frames: &[Frame]) -> Vec<Frame> {
        let left = self.split_off(0);
        self.0.extend_from_slice(frames);
        left
    }

    /// Whether the dummies are in their places.
    pub fn is_sound(&self) -> bool {
        self.0.get(..GROUND) == Some(&[NOBODY; GROUND])
    }

    /// All frames, including the dummies, with room for `more` above them.
    pub fn with_room(&mut self, more: usize) -> &mut [Frame] {
        self.0.resize(self.0.len() + more, NOBODY);
        &mut self.0
    }

    /// Ends what `with_room` began. Returns the ticks in the outermost frames that ended since.
    pub fn keep(&mut self, depth: usize) -> u64 {
        self.0.truncate(GROUND + depth);
        let spent = self.0[GROUND - 1].child;
        self.0[..GROUND].fill(NOBODY);
        spent
    }
}
