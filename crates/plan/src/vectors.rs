//! Whether a function changes registers other than general ones: one that is declared not to must not.

use nopal_symbols::Image;

use crate::arch;

/// The reason why a function is not known to change general registers only. Addresses are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorUse {
    /// An instruction changes another register.
    Instruction { address: u64 },
    /// It calls code that is no function of this file.
    Elsewhere { address: u64 },
    /// It calls or jumps through a pointer at this address, or cannot be read from there on.
    Unknown { address: u64 },
}

/// Looks at a function and all that it calls within the file. None: they change general registers only.
pub fn vector_use(image: &Image, function: u64) -> Option<VectorUse> {
    arch::vector_use(image, function)
}
