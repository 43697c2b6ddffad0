//! Changes as generated code holds them, so that they can be undone without other knowledge.

use crate::patch::change::{Change, Kind};
use nopal_plan::LONGEST_WINDOW;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A stored change. It is read from memory that anybody may have written, so any bytes are one.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Stored {
    address: [u8; 8],
    entry: [u8; 8],
    /// The distance of the displaced instructions behind `entry`.
    body: [u8; 4],
    /// The function's.
    number: [u8; 4],
    kind: u8,
    window: u8,
    before: [u8; LONGEST_WINDOW],
    reach: i8,
    reserved: [u8; 2],
}

impl Stored {
    pub fn new(change: &Change) -> Stored {
        let (kind, number) = match change.kind {
            Kind::Function(number) => (0, number),
            Kind::Hook => (1, 0),
            Kind::Marker => (2, 0),
            Kind::Word => (3, 0),
            Kind::Probe => (4, 0),
            Kind::Breakpoint => (5, 0),
            Kind::Hole => (6, 0),
        };
        Stored {
            address: change.address.to_le_bytes(),
            entry: change.entry.to_le_bytes(),
            // The two are in one thunk, whose switch jumps from one to the other.
            body: (change.body.wrapping_sub(change.entry) as u32).to_le_bytes(),
            number: number.to_le_bytes(),
            kind,
            window: change.window,
            before: change.before,
            reach: change.reach,
            reserved: [0; 2],
        }
    }

    /// `None` where no window and jump can be like this.
    pub fn change(&self) -> Option<Change> {
        let entry = u64::from_le_bytes(self.entry);
        let change = Change {
            address: u64::from_le_bytes(self.address),
            entry,
            body: entry.wrapping_add(u32::from_le_bytes(self.body).into()),
            kind: match self.kind {
                0 => Kind::Function(u32::from_le_bytes(self.number)),
                1 => Kind::Hook,
                2 => Kind::Marker,
                3 => Kind::Word,
                4 => Kind::Probe,
                5 => Kind::Breakpoint,
                6 => Kind::Hole,
                _ => return None,
            },
            reach: self.reach,
            window: self.window,
            before: self.before,
        };
        change.is_possible().then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_symbols::MARKER_NOP;

    fn same(change: &Change) -> Option<Change> {
        let bytes = [Stored::new(change)];
        let read = Stored::read_from_bytes(bytes.as_bytes()).ok()?;
        read.change()
    }

    #[test]
    fn changes_are_read_as_they_were_stored() {
        let kinds = [
            Kind::Function(0),
            Kind::Function(u32::MAX),
            Kind::Hook,
            Kind::Probe,
            Kind::Breakpoint,
            Kind::Hole,
        ];
        let jumps = kinds.map(|kind| Change {
            address: 0x7f00_0000_1000,
            entry: 0x7f00_4000_1000,
            body: 0x7f00_4000_1040,
            kind,
            reach: 0,
            window: 6,
            before: [7; LONGEST_WINDOW],
        });
        let short = Change {
            reach: -5,
            window: 2,
            ..jumps[0]
        };
        let marker = Change::of_marker(0x1000, MARKER_NOP, 0x2000).unwrap();
        let word = Change::of_word(0x1000, 1, u64::MAX);
        for change in jumps.into_iter().chain([short, marker, word]) {
            assert_eq!(same(&change), Some(change));
        }
    }

    #[test]
    fn what_nobody_stored_is_left_out() {
        let change = Change::of_marker(0x1000, MARKER_NOP, 0x2000).unwrap();
        let all = |change: &dyn Fn(&mut Stored)| {
            let mut stored = Stored::new(&Change::of_word(0x1000, 1, 2));
            change(&mut stored);
            stored.change()
        };
        assert_eq!(all(&|stored| stored.kind = 7), None);
        assert_eq!(all(&|stored| stored.window = 4), None);
        assert_eq!(
            all(&|stored| stored.window = LONGEST_WINDOW as u8 + 1),
            None
        );
        assert_eq!(all(&|stored| stored.address = [0xff; 8]), None);
        let mut marker = Stored::new(&change);
        marker.before[0] ^= 1;
        assert_eq!(marker.change(), None, "neither a NOP nor a word that is 0");
        let mut far = Stored::new(&change);
        far.entry[5] = 1;
        assert_eq!(far.change(), None, "no jump reaches it");
    }
}
