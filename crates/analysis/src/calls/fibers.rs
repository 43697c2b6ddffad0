//! Frames that the thread has left and may return to: on other stacks, or after a jump.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use serde::{Deserialize, Serialize};

use super::frame::Frame;

/// Most frames set aside; beyond this, the oldest are dropped.
const FRAMES_LIMIT: usize = 1 << 20;
const FIBERS_LIMIT: usize = 1 << 16;

/// Identifies a fiber: the slot of its innermost frame, and a number that grows.
pub type Key = (u64, u64);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fiber {
    /// Never empty.
    pub frames: Vec<Frame>,
    pub since: u64,
    /// The clock at which its frames were last known to be open.
    pub alive: u64,
    /// The sink does not know that these frames were left.
    pub counted: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fibers {
    by_slot: BTreeMap<Key, Fiber>,
    frames: usize,
    serial: u64,
}

impl Fibers {
    pub fn add(&mut self, fiber: Fiber) {
        let Some(innermost) = fiber.frames.last() else {
            return;
        };
        self.serial += 1;
        self.frames += fiber.frames.len();
        self.by_slot.insert((innermost.slot, self.serial), fiber);
    }

    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    pub fn remove(&mut self, key: Key) -> Option<Fiber> {
        let fiber = self.by_slot.remove(&key)?;
        self.frames -= fiber.frames.len();
        Some(fiber)
    }

    /// The older half, when there are too many.
    pub fn surplus(&mut self) -> Vec<Fiber> {
        if self.frames <= FRAMES_LIMIT && self.by_slot.len() <= FIBERS_LIMIT {
            return Vec::new();
        }
        let mut serials: Vec<u64> = self.by_slot.keys().map(|&(_, serial)| serial).collect();
        serials.sort_unstable();
        let middle = serials[serials.len() / 2];
        let keys: Vec<Key> = self
            .by_slot
            .keys()
            .copied()
            .filter(|&(_, serial)| serial <= middle)
            .collect();
        keys.into_iter()
            .filter_map(|key| self.remove(key))
            .collect()
    }

    /// The fiber with the frame nearest above `slot`, and how far above.
    pub fn nearest_above(&self, slot: u64) -> Option<(u64, Key)> {
        let around = self
            .by_slot
            .range((Unbounded, Included((slot, u64::MAX))))
            .next_back();
        let above = self
            .by_slot
            .range((Excluded((slot, u64::MAX)), Unbounded))
            .next();
        let around = around.and_then(|(&key, fiber)| {
            let under = fiber.frames.partition_point(|frame| frame.slot > slot);
            Some((fiber.frames[..under].last()?.slot - slot, key))
        });
        let above = above.map(|(&key, _)| (key.0 - slot, key));
        around.into_iter().chain(above).min()
    }

    /// The fiber that ends at or below `slot` and reaches highest: the one that can have a frame there.
    pub fn around(&self, slot: u64) -> Option<(Key, &[Frame])> {
        let (key, fiber) = self
            .by_slot
            .range((Unbounded, Included((slot, u64::MAX))))
            .next_back()?;
        Some((*key, &fiber.frames))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &[Frame])> {
        self.by_slot
            .iter()
            .map(|(&key, fiber)| (key, fiber.frames.as_slice()))
    }

    /// All of them, in the order of `add`.
    pub fn in_order(&self) -> Vec<&Fiber> {
        let mut all: Vec<_> = self.by_slot.iter().collect();
        all.sort_unstable_by_key(|((_, serial), _)| *serial);
        all.into_iter().map(|(_, fiber)| fiber).collect()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Fiber> {
        self.by_slot.values_mut()
    }

    /// Whether calls of `add` can have made this state.
    pub fn is_sound(&self) -> bool {
        let sound = |(key, fiber): (&Key, &Fiber)| {
            let falls = |pair: &[Frame]| pair[0].slot >= pair[1].slot;
            fiber.frames.windows(2).all(falls)
                && fiber.frames.last().is_some_and(|last| last.slot == key.0)
        };
        let frames = self.by_slot.values().map(|fiber| fiber.frames.len());
        self.by_slot.iter().all(sound) && frames.sum::<usize>() == self.frames
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Fiber> {
        self.frames = 0;
        std::mem::take(&mut self.by_slot).into_values()
    }
}
