//! Markers: places in a program that nopal traces by name, with values.
//!
//! ```
//! let (length, device) = (1500, "eth0");
//! nopal_mark::mark!(net_rx, "len=%d device=%s", length, device);
//! ```
//!
//! While it is off, a marker is one NOP, and its values are not computed. The format is that of `include/nopal.h`, as
//! printf has it: `%d` is an `i32`, `%hhd` an `i8`, `%hd` an `i16`, `%ld` an `i64` or `isize`; `%u` (and `%x`, `%o`)
//! with the same lengths are unsigned, `%hhu` also a `bool`; `%f` an `f64` or `f32`; `%c` a `u8`; `%p` a raw pointer;
//! `%s` text: `&str`, `String` or `&[u8]`. What does not fit does not compile:
//!
//! ```compile_fail
//! nopal_mark::mark!(net_rx, "len=%d", 1u64);
//! ```
//! ```compile_fail
//! nopal_mark::mark!(net_rx, "len=%d", "text");
//! ```
//! ```compile_fail
//! nopal_mark::mark!(net_rx, "len=%d");
//! ```
//! ```compile_fail
//! nopal_mark::mark!(net_rx, "%d", 1, 2);
//! ```
//! ```compile_fail
//! nopal_mark::mark!(net_rx, "%n", 1);
//! ```
//!
//! On other systems than x86-64 Linux, markers compile to nothing.

#![no_std]

mod format;
mod value;

pub use format::{conversions, types};
pub use value::{Bytes, RawValue, Value, addresses};

/// `bytes`, which are as long as the array.
pub const fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    let mut index = 0;
    while index < N {
        array[index] = bytes[index];
        index += 1;
    }
    array
}

/// A place that can be traced by name: `mark!(name, "format", values…)`, up to 12 values.
#[macro_export]
macro_rules! mark {
    ($name:ident, $format:literal $(, $value:expr)* $(,)?) => {{
        const FORMAT: &str = $format;
        const COUNT: usize = 0 $(+ { let _ = stringify!($value); 1 })*;
        const TYPES: [u8; 12] = $crate::types(FORMAT);
        const {
            assert!($crate::conversions(FORMAT) == COUNT, "as many values as the format has conversions");
        }
        $crate::place!($name, $format, TYPES, COUNT $(, $value)*)
    }};
}

/// The values of a marker, each checked against its type.
#[doc(hidden)]
#[macro_export]
macro_rules! held {
    ($types:ident, $index:expr, [$($held:expr,)*]) => {
        [$($held,)*]
    };
    ($types:ident, $index:expr, [$($held:expr,)*], $value:expr $(, $rest:expr)*) => {
        $crate::held!(
            $types,
            $index + 1,
            [$($held,)* $crate::Value::<{ $types[$index] }>::hold(&$value),]
            $(, $rest)*
        )
    };
}

/// docs/markers.md describes the layout, include/nopal.h each step.
#[doc(hidden)]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[macro_export]
macro_rules! place {
    ($name:ident, $format:literal, $types:ident, $count:ident $(, $value:expr)*) => {{
        const LOW: u32 = $crate::packed(&$types, 0);
        const HIGH: u32 = $crate::packed(&$types, 6);
        static NAME: [u8; concat!(stringify!($name), "\0").len()] =
            $crate::array(concat!(stringify!($name), "\0").as_bytes());
        static FORMAT_TEXT: [u8; concat!($format, "\0").len()] =
            $crate::array(concat!($format, "\0").as_bytes());
        static FILE: [u8; concat!(file!(), "\0").len()] =
            $crate::array(concat!(file!(), "\0").as_bytes());
        // SAFETY: a NOP, while it is off.
        unsafe {
            core::arch::asm!(
                ".p2align 1, 0x2e",
                ".p2align 3, 0x2e, 4",
                "7701: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                ".pushsection .note.nopal, \"a?\", @note",
                ".balign 4",
                ".long 6, 7703f - 7702f, 1",
                ".asciz \"nopal\"",
                ".balign 4",
                "7702: .long 7701b - ., {on} - ., {name} - ., {file} - ., {line}, 1",
                "7703:",
                ".popsection",
                name = sym NAME,
                file = sym FILE,
                line = const line!(),
                on = label {
                    match $crate::held!($types, 0, [] $(, $value)*) {
                        held => {
                            let words = $crate::addresses::<$count>(&held);
                            // SAFETY: what is called preserves all registers and, as its word is kept, the red zone.
                            unsafe {
                                core::arch::asm!(
                                    "mov -8(%rsp), %r10",
                                    "lea 7704f(%rip), %r11",
                                    // In any register, so that %rax stays free.
                                    "xchg %rax, {values}",
                                    "call *(%r11)",
                                    "xchg %rax, {values}",
                                    "mov %r10, -8(%rsp)",
                                    ".byte 0x0f, 0x1f, 0x40",
                                    "7705: .byte 0xc3",
                                    ".pushsection .bss.nopal, \"aw?\", @nobits",
                                    ".balign 8",
                                    "7704: .zero 40",
                                    ".popsection",
                                    // Tells libnopal of the file, as NOPAL_ANNOUNCE of nopal.h.
                                    ".ifndef .Lnopal_announced",
                                    ".set .Lnopal_announced, 1",
                                    ".weak nopal_loaded",
                                    ".pushsection .text.nopal_announce, \"axG\", @progbits, nopal_announce, comdat",
                                    "7706: endbr64",
                                    "mov nopal_loaded@GOTPCREL(%rip), %rax",
                                    "test %rax, %rax",
                                    "jz 7707f",
                                    "jmp *%rax",
                                    "7707: ret",
                                    ".popsection",
                                    ".pushsection .init_array.00101, \"awG\", @init_array, nopal_announce, comdat",
                                    ".balign 8",
                                    ".quad 7706b",
                                    ".popsection",
                                    ".endif",
                                    ".pushsection .note.nopal, \"a?\", @note",
                                    ".balign 4",
                                    ".long 6, 7703f - 7702f, 2",
                                    ".asciz \"nopal\"",
                                    ".balign 4",
                                    "7702: .long 7704b - ., 7705b - ., {name} - ., {format} - ., {file} - .",
                                    ".long {line}, {low}, {high}",
                                    "7703:",
                                    ".popsection",
                                    name = sym NAME,
                                    format = sym FORMAT_TEXT,
                                    file = sym FILE,
                                    line = const line!(),
                                    low = const LOW,
                                    high = const HIGH,
                                    values = in(reg) words.as_ptr(),
                                    out("r10") _,
                                    out("r11") _,
                                    options(att_syntax, nostack),
                                );
                            }
                        }
                    }
                },
                options(att_syntax, nostack, nomem, preserves_flags),
            );
        }
    }};
}

#[doc(hidden)]
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[macro_export]
macro_rules! place {
    ($name:ident, $format:literal, $types:ident, $count:ident $(, $value:expr)*) => {
        if false {
            let _ = $crate::held!($types, 0, [] $(, $value)*);
        }
    };
}

/// Six types from the `first` on, four bits each.
pub const fn packed(types: &[u8; 12], first: usize) -> u32 {
    let mut packed = 0;
    let mut index = 0;
    while index < 6 {
        packed |= (types[first + index] as u32) << (index * 4);
        index += 1;
    }
    packed
}
