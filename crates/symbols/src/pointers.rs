use object::LittleEndian as LE;
use object::elf;

use crate::Image;

/// The most relocations of a file that are read.
const MOST: usize = 1 << 16;
/// The bytes of a word.
const WORD: usize = 8;

/// The addresses within the file that the loader puts into words of its data: tables of functions are made of these.
pub(crate) fn of(image: &Image) -> impl Iterator<Item = u64> {
    let [relocations, _] = image.dynamic().relocations(image);
    let relative = relocations.iter().take(MOST).filter_map(|relocation| {
        let is_relative = relocation.r_type(LE, false) == elf::R_X86_64_RELATIVE;
        is_relative.then(|| relocation.r_addend.get(LE).cast_unsigned())
    });
    let in_place = packed(image).take(MOST);
    let in_place = in_place.filter_map(|slot| words(image.bytes(slot, WORD)?).next());
    relative.chain(in_place)
}

/// The words that packed relocations relocate. An entry is the address of a word, or has bit 0 set, and a bit for each
/// of the next 63 words.
fn packed(image: &Image) -> impl Iterator<Item = u64> {
    let entries = words(image.dynamic().packed_relocations(image)).take(MOST);
    let mut next = 0_u64;
    entries.flat_map(move |entry| {
        let (first, bits, covered) = match entry & 1 {
            0 => (entry, 1, 1),
            _ => (next, entry >> 1, 63),
        };
        next = after(first, covered);
        let is_set = move |index: &u64| bits >> index & 1 == 1;
        let indices = (0..covered).filter(is_set);
        indices.map(move |index| after(first, index))
    })
}

fn after(address: u64, words: u64) -> u64 {
    address.wrapping_add(words * WORD as u64)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks::<WORD>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}
