//! Frames that the thread has left and may return to: on other stacks, or after a jump.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use serde::{Deserialize, Serialize};

use super::budget::WorkBudget;
use super::frame::Frame;

/// Most frames set aside; beyond this, the oldest are dropped.
const FRAMES_LIMIT: usize = 1 << 20;
const FIBERS_LIMIT: usize = 1 << 16;
/// Most callers known of one stack, and of all stacks together.
const CALLERS_LIMIT: usize = 1 << 10;
const ALL_CALLERS_LIMIT: usize = 1 << 18;

/// Identifies a fiber: the slot of its innermost frame, and a number that grows.
pub type Key = (u64, u64);

/// The callers of a stack's outermost call, which are on other stacks: as they were when it was called, outermost first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Callers {
    frames: Vec<Frame>,
    is_unknown: bool,
}

/// Those of a thread's outermost call.
pub static NO_CALLERS: Callers = Callers {
    frames: Vec::new(),
    is_unknown: false,
};

impl Callers {
    pub fn unknown() -> Callers {
        Callers {
            frames: Vec::new(),
            is_unknown: true,
        }
    }

    /// With more callers, the inner ones. Those with arguments are not known: their notes are of use only while they are
    /// open.
    pub fn and(&self, inner: &[Frame], budget: &mut WorkBudget) -> Callers {
        let length = self.frames.len() + inner.len();
        if self.is_unknown
            || length > CALLERS_LIMIT
            || !budget.pay_from_surplus(length)
            || inner.iter().any(|frame| frame.note != 0)
        {
            return Callers::unknown();
        }
        Callers {
            frames: [&self.frames, inner].concat(),
            is_unknown: false,
        }
    }

    /// None if they are not known.
    pub fn known(&self) -> Option<&[Frame]> {
        (!self.is_unknown).then_some(&self.frames)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fiber {
    /// Never empty.
    pub frames: Vec<Frame>,
    pub callers: Callers,
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
    callers: usize,
    serial: u64,
}

impl Fibers {
    pub fn add(&mut self, mut fiber: Fiber) {
        let Some(innermost) = fiber.frames.last() else {
            return;
        };
        self.serial += 1;
        self.frames += fiber.frames.len();
        if self.callers + fiber.callers.frames.len() > ALL_CALLERS_LIMIT {
            fiber.callers = Callers::unknown();
        }
        self.callers += fiber.callers.frames.len();
        self.by_slot.insert((innermost.slot, self.serial), fiber);
    }

    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    pub fn remove(&mut self, key: Key) -> Option<Fiber> {
        let fiber = self.by_slot.remove(&key)?;
        self.frames -= fiber.frames.len();
        self.callers -= fiber.callers.frames.len();
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

    pub fn fibers(&self) -> impl Iterator<Item = &Fiber> {
        self.by_slot.values()
    }

    /// The slots of the frames must stay as they are.
    pub fn fibers_mut(&mut self) -> impl Iterator<Item = &mut Fiber> {
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
        let callers = self.fibers().map(|fiber| fiber.callers.frames.len());
        self.by_slot.iter().all(sound)
            && frames.sum::<usize>() == self.frames
            && callers.sum::<usize>() == self.callers
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Fiber> {
        self.frames = 0;
        self.callers = 0;
        std::mem::take(&mut self.by_slot).into_values()
    }
}
