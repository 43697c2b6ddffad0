use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    pub code: Part<u8>,
    pub fixups: Part<Fixup>,
    /// For each displaced instruction, and for the address after the window where the body gets there: its offset from
    /// the site's address, and its offset in `code`. Both ascend. A thread at any of them may be moved to the other.
    pub map: Part<(u8, u16)>,
    /// What changes in the frame, by offset in `code`, beginning with the CFA at offset 0, rsp + 8. There the return
    /// address lies at CFA - 8, where it stays, and every register is the caller's. Empty where the file does not say
    /// how the function is unwound.
    pub rows: Part<(u16, FrameChange)>,
}

/// Elements that lie among those of other bodies: a plan that is read takes a few allocations, not some for each site.
#[derive(Clone)]
pub struct Part<T> {
    all: Arc<Vec<T>>,
    range: Range<u32>,
}

impl<T> Part<T> {
    /// None: there are not as many.
    pub(crate) fn of(all: &Arc<Vec<T>>, range: Range<u32>) -> Option<Part<T>> {
        all.get(range.start as usize..range.end as usize)?;
        Some(Part {
            all: all.clone(),
            range,
        })
    }
}

impl<T> Deref for Part<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all[self.range.start as usize..self.range.end as usize]
    }
}

impl<T> From<Vec<T>> for Part<T> {
    fn from(all: Vec<T>) -> Part<T> {
        Part {
            range: 0..all.len() as u32,
            all: Arc::new(all),
        }
    }
}

impl<T> Default for Part<T> {
    fn default() -> Part<T> {
        Vec::new().into()
    }
}

impl<T: fmt::Debug> fmt::Debug for Part<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(formatter)
    }
}

impl<T: PartialEq> PartialEq for Part<T> {
    fn eq(&self, other: &Part<T>) -> bool {
        self[..] == other[..]
    }
}

impl<T: Eq> Eq for Part<T> {}

/// A hole in the code. Targets are link-time addresses in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixup {
    /// A 4-byte distance at `offset` from the end of its instruction, `from`, to the target.
    Relative { offset: u16, from: u16, target: u64 },
    /// The target's 8-byte address at `offset`.
    Absolute { offset: u16, target: u64 },
}

/// One step of the unwinding rules. Registers have their DWARF numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameChange {
    /// The canonical frame address is now `register + offset`.
    Cfa { register: u16, offset: i32 },
    /// The caller's value of the register is now at CFA + `offset`.
    Saved { register: u16, offset: i32 },
    /// The register holds the caller's value again.
    Restored { register: u16 },
}

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
    /// Writes the code as it must be at address `at`, for a module loaded at `module_base` (its load address less its
    /// link-time address).
    pub fn place(&self, module_base: u64, at: u64, out: &mut [u8]) -> Result<(), PlaceError> {
        let out = out.get_mut(..self.code.len()).ok_or(PlaceError::NoRoom)?;
        out.copy_from_slice(&self.code);
        for fixup in &*self.fixups {
            match *fixup {
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

fn fill(out: &mut [u8], offset: u16, bytes: &[u8]) -> Result<(), PlaceError> {
    let start = usize::from(offset);
    let hole = out
        .get_mut(start..start + bytes.len())
        .ok_or(PlaceError::Damaged)?;
    hole.copy_from_slice(bytes);
    Ok(())
}
