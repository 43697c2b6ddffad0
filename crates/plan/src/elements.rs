//! The elements of bodies, and their bytes in a stored plan.

/// A field of the code to fill in. Targets are link-time addresses in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixup {
    /// A 4-byte distance at `offset` from the end of its instruction, `from`, to the target.
    Relative { offset: u16, from: u16, target: u64 },
    /// The target's 8-byte address at `offset`.
    Absolute { offset: u16, target: u64 },
}

/// One change of the unwinding rules. Registers have their DWARF numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameChange {
    /// The canonical frame address is now `register + offset`.
    Cfa { register: u16, offset: i32 },
    /// The caller's value of the register is now at CFA + `offset`.
    Saved { register: u16, offset: i32 },
    /// The register holds the caller's value again.
    Restored { register: u16 },
}

/// Kind, offset, from, target.
pub(crate) const FIXUP: usize = 1 + 2 * 2 + 8;
const RELATIVE: u8 = 0;
pub(crate) const ABSOLUTE: u8 = 1;
pub(crate) const PLACE: usize = 1 + 2;
/// Offset, kind, register, offset.
pub(crate) const ROW: usize = 2 + 1 + 2 + 4;
const CFA: u8 = 0;
const SAVED: u8 = 1;
pub(crate) const RESTORED: u8 = 2;

pub(crate) fn of_fixup(fixup: Fixup) -> [u8; FIXUP] {
    let (kind, offset, from, target) = match fixup {
        Fixup::Relative {
            offset,
            from,
            target,
        } => (RELATIVE, offset, from, target),
        Fixup::Absolute { offset, target } => (ABSOLUTE, offset, 0, target),
    };
    let mut stored = [0; FIXUP];
    stored[0] = kind;
    stored[1..3].copy_from_slice(&offset.to_le_bytes());
    stored[3..5].copy_from_slice(&from.to_le_bytes());
    stored[5..].copy_from_slice(&target.to_le_bytes());
    stored
}

pub(crate) fn fixup(stored: &[u8; FIXUP]) -> Fixup {
    let mut stored = Fields(stored);
    let kind = stored.u8();
    let (offset, from, target) = (stored.u16(), stored.u16(), stored.u64());
    match kind {
        RELATIVE => Fixup::Relative {
            offset,
            from,
            target,
        },
        _ => Fixup::Absolute { offset, target },
    }
}

pub(crate) fn of_place((from, to): (u8, u16)) -> [u8; PLACE] {
    let [low, high] = to.to_le_bytes();
    [from, low, high]
}

pub(crate) fn place(&[from, low, high]: &[u8; PLACE]) -> (u8, u16) {
    (from, u16::from_le_bytes([low, high]))
}

pub(crate) fn of_row((at, change): (u16, FrameChange)) -> [u8; ROW] {
    let (kind, register, offset) = match change {
        FrameChange::Cfa { register, offset } => (CFA, register, offset),
        FrameChange::Saved { register, offset } => (SAVED, register, offset),
        FrameChange::Restored { register } => (RESTORED, register, 0),
    };
    let mut stored = [0; ROW];
    stored[..2].copy_from_slice(&at.to_le_bytes());
    stored[2] = kind;
    stored[3..5].copy_from_slice(&register.to_le_bytes());
    stored[5..].copy_from_slice(&offset.to_le_bytes());
    stored
}

pub(crate) fn row(stored: &[u8; ROW]) -> (u16, FrameChange) {
    let mut stored = Fields(stored);
    let (at, kind, register) = (stored.u16(), stored.u8(), stored.u16());
    let offset = i32::from_le_bytes(stored.next());
    let change = match kind {
        CFA => FrameChange::Cfa { register, offset },
        SAVED => FrameChange::Saved { register, offset },
        _ => FrameChange::Restored { register },
    };
    (at, change)
}

/// The elements, of `N` bytes each, of an area or a part of one.
pub(crate) fn elements<const N: usize>(bytes: &[u8]) -> std::slice::Iter<'_, [u8; N]> {
    bytes.as_chunks().0.iter()
}

/// The unread bytes of an element, which are all read in turn.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    #[inline]
    pub fn next<const N: usize>(&mut self) -> [u8; N] {
        let (next, rest) = self
            .0
            .split_first_chunk()
            .expect("an element has its fields");
        self.0 = rest;
        *next
    }

    pub fn u8(&mut self) -> u8 {
        let [byte] = self.next();
        byte
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.next())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }
}
