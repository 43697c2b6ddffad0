//! Values of markers, as words.

use crate::format::*;

/// `struct nopal_bytes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub address: *const u8,
    pub length: usize,
}

/// A value: its word, or the object that the word points to.
#[derive(Clone, Copy)]
pub enum RawValue {
    Word(u64),
    Bytes(Bytes),
}

/// A value that matches a conversion of type `TYPE`.
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` does not fit its conversion in the format"
)]
pub trait Value<const TYPE: u8> {
    fn hold(&self) -> RawValue;
}

macro_rules! words {
    ($($kind:ident: $($type:ty),*;)*) => {$($(
        impl Value<$kind> for $type {
            #[inline(always)]
            fn hold(&self) -> RawValue {
                RawValue::Word(*self as u64)
            }
        }
    )*)*};
}

words! {
    I8: i8;
    I16: i16;
    I32: i32;
    I64: i64, isize;
    U8: u8, bool;
    U16: u16;
    U32: u32;
    U64: u64, usize;
}

impl Value<DOUBLE> for f64 {
    #[inline(always)]
    fn hold(&self) -> RawValue {
        RawValue::Word(self.to_bits())
    }
}

impl Value<DOUBLE> for f32 {
    #[inline(always)]
    fn hold(&self) -> RawValue {
        RawValue::Word(f64::from(*self).to_bits())
    }
}

impl<T> Value<POINTER> for *const T {
    #[inline(always)]
    fn hold(&self) -> RawValue {
        RawValue::Word(self.cast::<u8>() as u64)
    }
}

impl<T> Value<POINTER> for *mut T {
    #[inline(always)]
    fn hold(&self) -> RawValue {
        RawValue::Word(self.cast::<u8>() as u64)
    }
}

impl<T: AsRef<[u8]> + ?Sized> Value<BYTES> for T {
    #[inline(always)]
    fn hold(&self) -> RawValue {
        let bytes = self.as_ref();
        RawValue::Bytes(Bytes {
            address: bytes.as_ptr(),
            length: bytes.len(),
        })
    }
}

/// The words passed to a marker's call. They are valid as long as their values.
#[inline(always)]
pub fn addresses<const COUNT: usize>(held: &[RawValue; COUNT]) -> [u64; COUNT] {
    let mut words = [0; COUNT];
    let mut index = 0;
    while index < COUNT {
        words[index] = match &held[index] {
            RawValue::Word(word) => *word,
            RawValue::Bytes(bytes) => core::ptr::from_ref(bytes) as u64,
        };
        index += 1;
    }
    words
}
