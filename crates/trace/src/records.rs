//! The records of a packet.

use nopal_abi::{Cursor, Record};

/// The records of a packet, in order. Clocks never go back, whatever the words say.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
    clock: u64,
}

impl<'a> Records<'a> {
    pub(crate) fn new(words: &'a [u64], clock: u64) -> Records<'a> {
        Records {
            cursor: Cursor::new(words),
            clock,
        }
    }

    /// The words that are not decoded: all the rest when the next record is unknown or cut short.
    pub fn rest(&self) -> &'a [u64] {
        self.cursor.rest()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Record<'a>> {
        let record = self.cursor.take(self.clock)?;
        self.clock = record.clock;
        Some(record)
    }
}
