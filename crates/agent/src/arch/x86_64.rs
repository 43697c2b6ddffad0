//! x86-64.

use anyhow::{Result, ensure};
use nopal_plan::{JUMP, SHORT_JUMP};

/// `int3`
pub const BREAKPOINT: u8 = 0xcc;

/// Fills places that no thread reaches.
pub(crate) const NEVER_RUN: u8 = 0xcc;

/// The bytes below its stack pointer that a leaf function may use.
pub(crate) const RED_ZONE: u32 = 128;

/// Numbers of DWARF.
pub(crate) const STACK_POINTER: u8 = 7;
pub(crate) const RETURN_ADDRESS: u8 = 16;

/// The first bytes of a thunk that is on: a NOP.
pub const SWITCHED_ON: [u8; 2] = [0x66, 0x90];

/// A short jump to `distance` bytes behind its start.
pub const fn switched_over(distance: u64) -> [u8; 2] {
    [0xeb, (distance - 2) as u8]
}

/// A short jump over `distance`, from its end.
pub const fn short_jump(distance: i8) -> [u8; SHORT_JUMP] {
    [0xeb, distance as u8]
}

/// A jump over `distance`, from its end.
pub fn jump(distance: i32) -> [u8; JUMP] {
    let [a, b, c, d] = distance.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Bytes of the constant at the end of an instruction that loads one.
pub(crate) const IMMEDIATE: usize = 4;

/// Bytes of the distance at the end of a call or a jump.
pub(crate) const DISTANCE: usize = 4;

/// The distance of a call or a jump that ends at `end`.
pub(crate) fn distance(end: u64, target: u64) -> Result<[u8; DISTANCE]> {
    let distance = target.wrapping_sub(end) as i64;
    Ok(i32::try_from(distance)?.to_le_bytes())
}

/// Code that pushes registers so that the first one lies lowest, and the offset of each push.
pub(crate) fn pushes(registers: &[u8]) -> Result<(Vec<u8>, Vec<usize>)> {
    /// In the processor's numbering.
    const STACK_POINTER: u8 = 4;
    let mut code = Vec::with_capacity(2 * registers.len());
    let mut ends = Vec::with_capacity(registers.len());
    for register in registers.iter().rev() {
        ensure!(
            *register < 16 && *register != STACK_POINTER,
            "register {register} cannot be pushed"
        );
        if *register >= 8 {
            code.push(0x41);
        }
        code.push(0x50 | register & 7);
        ends.push(code.len());
    }
    Ok((code, ends))
}

/// Whether the kernel says that programs may read their thread pointer by an instruction (`rdfsbase`).
pub fn reads_pointer() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: looks a number up that the kernel has given to this process.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}
