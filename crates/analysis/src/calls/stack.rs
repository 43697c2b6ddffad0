//! The frames of the current stack.

use std::ops::{Deref, DerefMut};

use nopal_abi::Style;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::callers::{Callers, NO_CALLERS};
use super::frame::Frame;
use super::written::{FrameReader, FrameWriter, WrittenFrame};

/// Dummy frames below the first, so that a run of plain calls need not check for an empty stack. No exit ends them.
pub const GROUND: usize = 2;

const NOBODY: Frame = Frame::new(0, 0, 0, Style::Only);

#[derive(Clone, Debug)]
pub struct Stack {
    frames: Vec<Frame>,
    callers: Callers,
}

impl Default for Stack {
    fn default() -> Stack {
        Stack {
            frames: vec![NOBODY; GROUND],
            callers: NO_CALLERS,
        }
    }
}

impl Deref for Stack {
    type Target = [Frame];

    #[inline(always)]
    fn deref(&self) -> &[Frame] {
        self.frames.get(GROUND..).unwrap_or_default()
    }
}

impl DerefMut for Stack {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Frame] {
        self.frames.get_mut(GROUND..).unwrap_or_default()
    }
}

impl Stack {
    /// The callers of its outermost call.
    pub fn callers(&self) -> Callers {
        match self.is_empty() {
            true => NO_CALLERS,
            false => self.callers,
        }
    }

    #[inline(always)]
    pub fn has_callers(&self) -> bool {
        self.callers != NO_CALLERS
    }

    pub fn callers_mut(&mut self) -> &mut Callers {
        &mut self.callers
    }

    /// Its next outermost call begins on it.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.callers = NO_CALLERS;
    }

    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        if self.frames.len() == GROUND {
            self.begin();
        }
        self.frames.push(frame);
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<Frame> {
        if self.frames.len() > GROUND {
            self.frames.pop()
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
        self.frames.split_off(GROUND + index)
    }

    /// Replaces the frames and their callers, and returns the old frames.
    pub fn replace(&mut self, frames: &[Frame], callers: Callers) -> Vec<Frame> {
        let left = self.split_off(0);
        self.frames.extend_from_slice(frames);
        self.callers = callers;
        left
    }

    /// All frames, including the dummies, with room for `more` above them.
    pub fn with_room(&mut self, more: usize) -> &mut [Frame] {
        self.frames.resize(self.frames.len() + more, NOBODY);
        &mut self.frames
    }

    /// Ends what `with_room` began. Returns the ticks in the outermost frames that ended since.
    pub fn keep(&mut self, depth: usize) -> u64 {
        self.frames.truncate(GROUND + depth);
        let spent = self.frames[GROUND - 1].child;
        self.frames[..GROUND].fill(NOBODY);
        spent
    }
}

impl Serialize for Stack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut writer = FrameWriter::default();
        let frames: Vec<WrittenFrame> = self.iter().map(|frame| writer.write(frame)).collect();
        (frames, self.callers()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Stack {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stack, D::Error> {
        let (written, callers): (Vec<WrittenFrame>, _) = Deserialize::deserialize(deserializer)?;
        let mut reader = FrameReader::default();
        let mut stack = Stack {
            callers,
            ..Stack::default()
        };
        let frames = written.into_iter().map(|frame| reader.read(frame));
        stack.frames.extend(frames);
        Ok(stack)
    }
}
