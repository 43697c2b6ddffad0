//! Sections compressed by compilers (`-gz`). They may be malicious: sections that are longer than stated, or
//! unreasonably long, are ignored.

use std::borrow::Cow;
use std::io::Read;

use object::LittleEndian as LE;
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, SHF_COMPRESSED};
use object::pod::from_bytes;

use crate::elf::{Elf, Section};

/// Larger than the line tables of large programs.
const LONGEST: u64 = 256 << 20;

/// The content of a section, `None` if it cannot be read.
pub(crate) fn section_bytes<'a>(elf: &'a Elf, section: &Section) -> Option<Cow<'a, [u8]>> {
    let bytes = elf.section_bytes(section)?;
    if section.flags.0 & SHF_COMPRESSED.0 == 0 {
        return Some(Cow::Borrowed(bytes));
    }
    let (header, packed) = from_bytes::<CompressionHeader64<LE>>(bytes).ok()?;
    let length = header.ch_size.get(LE);
    if length > LONGEST {
        return None;
    }
    let inflated = match header.ch_type.get(LE) {
        ELFCOMPRESS_ZLIB => inflate(flate2::read::ZlibDecoder::new(packed), length),
        ELFCOMPRESS_ZSTD => inflate(
            ruzstd::decoding::StreamingDecoder::new(packed).ok()?,
            length,
        ),
        _ => None,
    };
    inflated.map(Cow::Owned)
}

/// Memory grows with the data, not by the header.
fn inflate(packed: impl Read, length: u64) -> Option<Vec<u8>> {
    let mut inflated = Vec::new();
    packed.take(length).read_to_end(&mut inflated).ok()?;
    (inflated.len() as u64 == length).then_some(inflated)
}
