//! Frames that the thread has left and may return to: on other stacks, or after a jump.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::callers::Callers;
use super::frame::Frame;
use super::written::{FrameReader, FrameWriter, WrittenFrame};

/// Most frames set aside; beyond this, the oldest are dropped.
const FRAMES_LIMIT: usize = 1 << 20;
const FIBERS_LIMIT: usize = 1 << 16;

/// Identifies a fiber: the slot of its innermost frame, and a number that grows.
pub type Key = (u64, u64);

#[derive(Clone, Debug)]
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

#[derive(Clone, Debug, Default)]
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

    pub fn fibers(&self) -> impl Iterator<Item = &Fiber> {
        self.by_slot.values()
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

    /// The slots of the frames must stay as they are.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Fiber> {
        self.by_slot.values_mut()
    }

    /// Whether calls of `add` can have made this state.
    pub fn is_sound(&self) -> bool {
        let falls = |pair: &[Frame]| pair[0].slot >= pair[1].slot;
        let newest = self.by_slot.keys().map(|(_, serial)| *serial).max();
        self.fibers()
            .all(|fiber| fiber.frames.windows(2).all(falls))
            && newest.is_none_or(|newest| newest <= self.serial)
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Fiber> {
        self.frames = 0;
        std::mem::take(&mut self.by_slot).into_values()
    }
}

/// The serial number less that of the fiber before, the ticks from its last entry until it was left, those until it was
/// left after it was known to be open, `counted`, the callers less those of the fiber before, and the frames.
type WrittenFiber = (i64, i64, i64, bool, i32, Vec<WrittenFrame>);

impl Serialize for Fibers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut writer = FrameWriter::default();
        let mut before = (0u64, 0u32);
        let fibers = self.by_slot.iter().map(|((_, serial), fiber)| {
            writer.begin_stack();
            let last = fiber.frames.last().map_or(0, |frame| frame.clock);
            let (serial_before, callers_before) =
                std::mem::replace(&mut before, (*serial, fiber.callers));
            (
                serial.wrapping_sub(serial_before).cast_signed(),
                fiber.since.wrapping_sub(last).cast_signed(),
                fiber.since.wrapping_sub(fiber.alive).cast_signed(),
                fiber.counted,
                fiber.callers.wrapping_sub(callers_before).cast_signed(),
                fiber
                    .frames
                    .iter()
                    .map(|frame| writer.write(frame))
                    .collect(),
            )
        });
        let fibers: Vec<WrittenFiber> = fibers.collect();
        (self.serial, fibers).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fibers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fibers, D::Error> {
        let (serial, written): (u64, Vec<WrittenFiber>) = Deserialize::deserialize(deserializer)?;
        let mut reader = FrameReader::default();
        let mut before = (0u64, 0u32);
        let mut fibers = Fibers {
            serial,
            ..Fibers::default()
        };
        for (serial, since, alive, counted, callers, frames) in written {
            reader.begin_stack();
            let frames: Vec<Frame> = frames.into_iter().map(|frame| reader.read(frame)).collect();
            before.0 = before.0.wrapping_add_signed(serial);
            before.1 = before.1.wrapping_add_signed(callers);
            let Some(last) = frames.last() else {
                return Err(serde::de::Error::custom("a stack without a call"));
            };
            let (key, since) = ((last.slot, before.0), last.clock.wrapping_add_signed(since));
            fibers.frames += frames.len();
            let fiber = Fiber {
                since,
                alive: since.wrapping_sub(alive.cast_unsigned()),
                counted,
                callers: before.1,
                frames,
            };
            if fibers.by_slot.insert(key, fiber).is_some() {
                return Err(serde::de::Error::custom("a stack twice"));
            }
        }
        Ok(fibers)
    }
}
