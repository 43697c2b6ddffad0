//! Frames as a checkpoint has them: by how they differ from others, so that most fields take a byte or two.

use nopal_abi::key_of;

use super::frame::Frame;

/// The clock and the slot above those of the frame before; the child; the marks, without a tag that is the slot's, that
/// differ from those of the frame at the same depth of the stack before, with what is not site nor tag lowest; the note.
pub type WrittenFrame = (i64, i64, u64, u32, u32);

/// Bits of the marks above the key.
const STYLE_BITS: u32 = 4;

/// What frames are written or read by.
#[derive(Default)]
struct Known {
    clock: u64,
    slot: u64,
    marks: Vec<u32>,
    depth: usize,
}

impl Known {
    fn marks(&mut self) -> &mut u32 {
        if self.depth == self.marks.len() {
            self.marks.push(0);
        }
        self.depth += 1;
        &mut self.marks[self.depth - 1]
    }
}

#[derive(Default)]
pub struct FrameWriter(Known);

impl FrameWriter {
    pub fn begin_stack(&mut self) {
        self.0.depth = 0;
    }

    pub fn write(&mut self, frame: &Frame) -> WrittenFrame {
        let clock = std::mem::replace(&mut self.0.clock, frame.clock);
        let slot = std::mem::replace(&mut self.0.slot, frame.slot);
        let marks = frame.marks ^ tag(frame.slot);
        let before = std::mem::replace(self.0.marks(), marks);
        (
            frame.clock.wrapping_sub(clock).cast_signed(),
            frame.slot.wrapping_sub(slot).cast_signed(),
            frame.child,
            (marks ^ before).rotate_left(STYLE_BITS),
            frame.note,
        )
    }
}

#[derive(Default)]
pub struct FrameReader(Known);

impl FrameReader {
    pub fn begin_stack(&mut self) {
        self.0.depth = 0;
    }

    pub fn read(&mut self, (clock, slot, child, marks, note): WrittenFrame) -> Frame {
        self.0.clock = self.0.clock.wrapping_add_signed(clock);
        self.0.slot = self.0.slot.wrapping_add_signed(slot);
        let known = self.0.marks();
        *known ^= marks.rotate_right(STYLE_BITS);
        let marks = *known ^ tag(self.0.slot);
        Frame {
            clock: self.0.clock,
            child,
            slot: self.0.slot,
            marks,
            note,
        }
    }
}

/// The tag of a slot, where marks have it.
fn tag(slot: u64) -> u32 {
    key_of(0, slot as u8)
}
