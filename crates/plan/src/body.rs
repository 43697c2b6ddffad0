use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::elements::{self, FIXUP, Fixup, FrameChange, PLACE, ROW};

/// The displaced instructions, made ready to run elsewhere. The last one jumps back to the first instruction after the
/// window, unless the flow never gets there. Literals may follow the code.
///
/// A call at the end of the window returns to where it did before. With `S` the stack pointer before it:
///
/// ```text
///         call  over          [S-8] = the next line; the return predictor counts one call
///         int3                never reached
/// over:   push  literal       [S-16] = address + window
///         pop   [rsp]         [S-8] = address + window: no register and no flag has changed
///         jmp   target
/// ```
///
/// `push literal; jmp target` would be shorter, but then every return up the stack is mispredicted, not only this one.
///
/// The bodies of a plan that was read have its bytes in common, and look at their parts there.
#[derive(Clone)]
pub struct Body {
    all: Arc<Vec<u8>>,
    parts: Parts,
}

/// The position of a body's parts among bytes; all parts except the code have the bytes of `elements`.
#[derive(Clone)]
pub(crate) struct Parts {
    pub code: Range<u32>,
    pub fixups: Range<u32>,
    pub map: Range<u32>,
    pub rows: Range<u32>,
}

impl Body {
    pub(crate) fn new(
        code: Vec<u8>,
        fixups: &[Fixup],
        map: &[(u8, u16)],
        rows: &[(u16, FrameChange)],
    ) -> Body {
        let mut all = code;
        let parts = fixups.len() * FIXUP + map.len() * PLACE + rows.len() * ROW;
        all.reserve_exact(parts);
        let end = |all: &Vec<u8>| all.len() as u32;
        let code = end(&all);
        for &fixup in fixups {
            all.extend_from_slice(&elements::of_fixup(fixup));
        }
        let fixups = end(&all);
        for &place in map {
            all.extend_from_slice(&elements::of_place(place));
        }
        let map = end(&all);
        for &row in rows {
            all.extend_from_slice(&elements::of_row(row));
        }
        let parts = Parts {
            code: 0..code,
            fixups: code..fixups,
            map: fixups..map,
            rows: map..end(&all),
        };
        Body::among(&Arc::new(all), parts)
    }

    /// All parts must lie within the bytes.
    pub(crate) fn among(all: &Arc<Vec<u8>>, parts: Parts) -> Body {
        let all = all.clone();
        Body { all, parts }
    }

    pub fn code(&self) -> &[u8] {
        part(&self.all, &self.parts.code)
    }

    pub fn fixups(&self) -> impl ExactSizeIterator<Item = Fixup> {
        elements::elements(part(&self.all, &self.parts.fixups)).map(elements::fixup)
    }

    /// For each displaced instruction, and for the address after the window if the body reaches it: its offset from the
    /// site's address, and its offset in the code. Both ascend. A thread at one of them may be moved to the other.
    pub fn map(&self) -> impl DoubleEndedIterator<Item = (u8, u16)> + ExactSizeIterator {
        elements::elements(part(&self.all, &self.parts.map)).map(elements::place)
    }

    /// Changes of the frame, by offset in the code. At offset 0, the CFA is rsp + 8, the return address is at CFA - 8,
    /// where it stays, and every register is the caller's. Empty if the file does not describe the unwinding of the
    /// function.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (u16, FrameChange)> {
        elements::elements(part(&self.all, &self.parts.rows)).map(elements::row)
    }

    /// The stored form: fixups, map and rows.
    pub(crate) fn stored(&self) -> [&[u8]; 3] {
        let Parts {
            fixups, map, rows, ..
        } = &self.parts;
        [fixups, map, rows].map(|range| part(&self.all, range))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Body")
            .field("code", &self.code())
            .field("fixups", &self.fixups().collect::<Vec<_>>())
            .field("map", &self.map().collect::<Vec<_>>())
            .field("rows", &self.rows().collect::<Vec<_>>())
            .finish()
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.code() == other.code() && self.stored() == other.stored()
    }
}

impl Eq for Body {}

/// The bytes within `range`.
pub(crate) fn part<'a>(all: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    &all[range.start as usize..range.end as usize]
}

/// A function's name, not demangled.
#[derive(Clone)]
pub(crate) struct Name {
    all: Arc<Vec<u8>>,
    range: Range<u32>,
}

impl Name {
    /// It must lie within the bytes.
    pub fn among(all: &Arc<Vec<u8>>, range: Range<u32>) -> Name {
        let all = all.clone();
        Name { all, range }
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        part(&self.all, &self.range)
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Name {
        let range = 0..name.len() as u32;
        Name::among(&Arc::new(name.into()), range)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self).fmt(formatter)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Name {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// More than 2 GiB from what the code refers to.
    OutOfReach { at: u64, target: u64 },
    /// The output is shorter than the code.
    NoRoom,
    /// A fixup lies outside the code: the plan is damaged.
    Damaged,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::OutOfReach { at, target } => {
                write!(
                    formatter,
                    "{target:#x} is more than 2 GiB away from {at:#x}"
                )
            }
            PlaceError::NoRoom => formatter.write_str("no room for the displaced instructions"),
            PlaceError::Damaged => {
                formatter.write_str("the plan of the displaced instructions is damaged")
            }
        }
    }
}

impl std::error::Error for PlaceError {}

impl Body {
    /// Writes the code for address `at`, for a module loaded at `module_base` (its load address less its link-time
    /// address).
    pub fn place(&self, module_base: u64, at: u64, out: &mut [u8]) -> Result<(), PlaceError> {
        let code = self.code();
        let out = out.get_mut(..code.len()).ok_or(PlaceError::NoRoom)?;
        out.copy_from_slice(code);
        for fixup in self.fixups() {
            match fixup {
                Fixup::Relative {
                    offset,
                    from,
                    target,
                } => {
                    let target = module_base.wrapping_add(target);
                    let distance = target
                        .wrapping_sub(at.wrapping_add(u64::from(from)))
                        .cast_signed();
                    let distance = i32::try_from(distance)
                        .map_err(|_| PlaceError::OutOfReach { at, target })?;
                    fill(out, offset, &distance.to_le_bytes())?;
                }
                Fixup::Absolute { offset, target } => {
                    fill(out, offset, &module_base.wrapping_add(target).to_le_bytes())?;
                }
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn fill(out: &mut [u8], offset: u16, bytes: &[u8]) -> Result<(), PlaceError> {
    let start = usize::from(offset);
    let hole = out
        .get_mut(start..start + bytes.len())
        .ok_or(PlaceError::Damaged)?;
    hole.copy_from_slice(bytes);
    Ok(())
}
