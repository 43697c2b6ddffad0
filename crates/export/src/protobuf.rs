//! Writes messages in the encoding of Protocol Buffers.

/// A message under way. Fields stand in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    #[inline]
    fn tag(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    /// A field of an unsigned type, a boolean or an enumeration.
    #[inline]
    pub fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// A field of the types `int32` or `int64`.
    pub fn signed(&mut self, field: u32, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    /// A field of the type `fixed64`, or the bits of a `double`.
    pub fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn data(&mut self, field: u32, value: &[u8]) {
        self.tag(field, BYTES);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub fn text(&mut self, field: u32, value: &str) {
        self.data(field, value.as_bytes());
    }

    /// A repeated number in the packed form.
    pub fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        self.message(field, |message| {
            values.into_iter().for_each(|value| message.varint(value));
        });
    }

    /// A message in this one.
    #[inline]
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        self.tag(field, BYTES);
        // One byte is room for the length of a short message.
        let begin = self.bytes.len();
        self.bytes.push(0);
        write(self);
        let length = self.bytes.len() - begin - 1;
        if length < 0x80 {
            self.bytes[begin] = length as u8;
        } else {
            let mut prefix = Message::default();
            prefix.varint(length as u64);
            self.bytes.splice(begin..=begin, prefix.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's documentation.
    #[test]
    fn fields_have_the_bytes_of_the_documentation() {
        let written = |write: fn(&mut Message)| {
            let mut message = Message::default();
            write(&mut message);
            message.bytes
        };
        assert_eq!(written(|message| message.number(1, 150)), [8, 0x96, 1]);
        assert_eq!(
            written(|message| message.text(2, "testing")),
            b"\x12\x07testing"
        );
        let inner = written(|message| message.message(3, |inner| inner.number(1, 150)));
        assert_eq!(inner, [0x1a, 3, 8, 0x96, 1]);
        assert_eq!(
            written(|message| message.packed(6, [3, 270, 86_942])),
            [0x32, 6, 3, 0x8e, 2, 0x9e, 0xa7, 5]
        );
        let minus_two = written(|message| message.signed(1, -2));
        assert_eq!(
            minus_two[1..],
            [254, 255, 255, 255, 255, 255, 255, 255, 255, 1]
        );
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        let mut message = Message::default();
        message.message(1, |inner| inner.data(1, &[7; 300]));
        assert_eq!(message.bytes[..6], [10, 0xaf, 2, 10, 0xac, 2]);
        assert_eq!(message.bytes.len(), 306);
    }
}
