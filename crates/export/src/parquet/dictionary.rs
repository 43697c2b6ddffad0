//! A column of values whose numbers in a dictionary are known. The crate `parquet` finds numbers by the hash of each
//! row's value, which for these columns would take two fifths of an export's processor time.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;

use anyhow::Result;
use bytes::Bytes;
use flate2::write::GzEncoder;
use parquet::basic::{Compression, Encoding, GzipLevel, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// Rows of a page.
pub const PAGE: usize = 1 << 16;

/// The level of compression: 1 is the fastest.
pub const LEVEL: u32 = 1;

/// The type of a dictionary's values.
pub trait Distinct {
    fn put(&self, plain: &mut Vec<u8>);
    fn statistics(least: Option<&Self>, most: Option<&Self>, missing: u64) -> Statistics;
    /// As columns are ordered.
    fn is_less(&self, other: &Self) -> bool;
}

impl Distinct for ByteArray {
    fn put(&self, plain: &mut Vec<u8>) {
        plain.extend_from_slice(&(self.len() as u32).to_le_bytes());
        plain.extend_from_slice(self.data());
    }

    fn statistics(least: Option<&Self>, most: Option<&Self>, missing: u64) -> Statistics {
        Statistics::byte_array(least.cloned(), most.cloned(), None, Some(missing), false)
    }

    fn is_less(&self, other: &Self) -> bool {
        self.data() < other.data()
    }
}

impl Distinct for i32 {
    fn put(&self, plain: &mut Vec<u8>) {
        plain.extend_from_slice(&self.to_le_bytes());
    }

    fn statistics(least: Option<&Self>, most: Option<&Self>, missing: u64) -> Statistics {
        Statistics::int32(least.copied(), most.copied(), None, Some(missing), false)
    }

    fn is_less(&self, other: &Self) -> bool {
        self < other
    }
}

/// Values, each once, and the number of each of `all` among them.
pub fn distinct<T: Clone + Eq + Hash>(all: impl Iterator<Item = T>) -> (Vec<T>, Vec<u32>) {
    let (mut values, mut known) = (Vec::new(), HashMap::new());
    let numbers = all.map(|value| {
        *known.entry(value).or_insert_with_key(|value: &T| {
            values.push(value.clone());
            values.len() as u32 - 1
        })
    });
    let numbers = numbers.collect();
    (values, numbers)
}

/// A column: rows without a number have no value. Its dictionary has those of `dictionary` that rows have, in the order in
/// which they appear.
pub fn chunk<T: Distinct>(
    description: ColumnDescPtr,
    dictionary: &[T],
    numbers: impl Iterator<Item = impl Into<Option<u32>>>,
) -> Result<(Bytes, ColumnCloseResult)> {
    const NONE: u32 = u32::MAX;
    let mut places = vec![NONE; dictionary.len()];
    let is_optional = description.max_def_level() > 0;
    let mut used = Vec::new();
    let mut rows = Rows::default();
    rows.values.reserve(numbers.size_hint().0);
    for number in numbers {
        let number = number.into();
        if is_optional {
            rows.levels.push(u32::from(number.is_some()));
        }
        if let Some(number) = number {
            let place = &mut places[number as usize];
            if *place == NONE {
                *place = used.len() as u32;
                used.push(&dictionary[number as usize]);
            }
            rows.values.push(*place);
        }
    }

    let ordered = |less: fn(&T, &T) -> bool| {
        let values = used.iter().copied();
        values.reduce(|best, value| if less(value, best) { value } else { best })
    };
    let statistics = T::statistics(
        ordered(|one, other| one.is_less(other)),
        ordered(|one, other| other.is_less(one)),
        (rows.number() - rows.values.len()) as u64,
    );
    let mut plain = Vec::new();
    used.iter().for_each(|value| value.put(&mut plain));
    encode(description, &plain, used.len(), statistics, &rows)
}

#[derive(Default)]
struct Rows {
    /// For each row, 1 if it has a value, else 0; empty if all have.
    levels: Vec<u32>,
    /// Numbers in the dictionary.
    values: Vec<u32>,
}

impl Rows {
    fn number(&self) -> usize {
        self.levels.len().max(self.values.len())
    }
}

/// `plain`: the values of the dictionary, `distinct` of them.
fn encode(
    description: ColumnDescPtr,
    plain: &[u8],
    distinct: usize,
    statistics: Statistics,
    rows: &Rows,
) -> Result<(Bytes, ColumnCloseResult)> {
    let mut out = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut out);
    let page = Page::DictionaryPage {
        buf: compressed(plain)?,
        num_values: distinct as u32,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    let first = writer.write_page(CompressedPage::new(page, plain.len()))?;
    let (mut size, mut plain_size) = (first.compressed_size, first.uncompressed_size);
    let mut index = OffsetIndexBuilder::new();
    let width = u32::BITS - (distinct.saturating_sub(1) as u32).leading_zeros();
    let number = rows.number();
    let mut rest = rows.values.as_slice();
    for begin in (0..number).step_by(PAGE) {
        let count = PAGE.min(number - begin);
        let mut page = Vec::new();
        let present = match rows.levels.get(begin..begin + count) {
            None => count,
            Some(levels) => {
                pack(levels, 1, &mut page);
                levels.iter().sum::<u32>() as usize
            }
        };
        let levels = page.len();
        let (values, behind) = rest.split_at(present);
        rest = behind;
        let mut packed = vec![width as u8];
        pack(values, width, &mut packed);
        let plain = levels + packed.len();
        let squeezed = compressed(&packed)?;
        let is_compressed = squeezed.len() < packed.len();
        page.extend_from_slice(if is_compressed { &squeezed } else { &packed });
        let page = Page::DataPageV2 {
            buf: page.into(),
            num_values: count as u32,
            encoding: Encoding::RLE_DICTIONARY,
            num_nulls: (count - present) as u32,
            num_rows: count as u32,
            def_levels_byte_len: levels as u32,
            rep_levels_byte_len: 0,
            is_compressed,
            statistics: None,
        };
        let written = writer.write_page(CompressedPage::new(page, plain))?;
        index.append_row_count(count as i64);
        index.append_offset_and_size(written.offset as i64, written.compressed_size as i32);
        size += written.compressed_size;
        plain_size += written.uncompressed_size;
    }
    writer.close()?;

    let pages = |page_type, encoding, count| PageEncodingStats {
        page_type,
        encoding,
        count,
    };
    let data_pages = number.div_ceil(PAGE) as i32;
    let metadata = ColumnChunkMetaData::builder(description)
        .set_compression(Compression::GZIP(GzipLevel::try_new(LEVEL)?))
        .set_encodings(vec![
            Encoding::PLAIN,
            Encoding::RLE,
            Encoding::RLE_DICTIONARY,
        ])
        .set_page_encoding_stats(vec![
            pages(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
            pages(PageType::DATA_PAGE_V2, Encoding::RLE_DICTIONARY, data_pages),
        ])
        .set_total_compressed_size(size as i64)
        .set_total_uncompressed_size(plain_size as i64)
        .set_num_values(number as i64)
        .set_dictionary_page_offset(Some(first.offset as i64))
        .set_data_page_offset((first.offset + first.bytes_written) as i64)
        .set_statistics(statistics)
        .build()?;
    let closed = ColumnCloseResult {
        bytes_written: size as u64,
        rows_written: number as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: Some(index.build()),
    };
    Ok((out.into_inner()?.into(), closed))
}

fn compressed(plain: &[u8]) -> Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(LEVEL));
    encoder.write_all(plain)?;
    Ok(encoder.finish()?.into())
}

/// Numbers of `width` bits: runs of at least eight equal ones, and between them groups of eight, packed. The last group
/// may have less than eight.
fn pack(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut from, mut at) = (0, 0);
    while at < numbers.len() {
        let first = numbers[at];
        let equal = numbers[at..].iter().take_while(|number| **number == first);
        let equal = equal.count();
        if equal < 8 {
            at = (at + 8).min(numbers.len());
            continue;
        }
        pack_groups(&numbers[from..at], width, out);
        push_varint(out, (equal as u64) << 1);
        out.extend_from_slice(&first.to_le_bytes()[..width.div_ceil(8) as usize]);
        at += equal;
        from = at;
    }
    pack_groups(&numbers[from..], width, out);
}

fn pack_groups(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    push_varint(out, (numbers.len().div_ceil(8) as u64) << 1 | 1);
    for group in numbers.chunks(8) {
        let (mut bits, mut number_of_bits) = (0_u64, 0);
        for index in 0..8 {
            bits |= u64::from(group.get(index).copied().unwrap_or(0)) << number_of_bits;
            number_of_bits += width;
            while number_of_bits >= 8 {
                out.push(bits as u8);
                bits >>= 8;
                number_of_bits -= 8;
            }
        }
    }
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::file::{Column, Kind, Layout, RowGroup, TableFile};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    /// Rows of each shape that `pack` treats differently, read back by the crate's reader.
    #[test]
    fn rows_are_read_back() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let column = |name, kind, is_optional| Column {
            name,
            kind,
            is_optional,
        };
        let columns = [
            column("text", Kind::Text, false),
            column("small", Kind::Small, false),
            column("some", Kind::Text, true),
        ];
        let layout = Layout::new(&columns, None).unwrap();
        for values in [1, 2, 3, 255, 256, 257, 70_000] {
            let all = (0..values).map(|value| value % 60_000);
            let (smalls, of) = distinct(all.map(|value: i32| value - 7));
            let texts: Vec<ByteArray> = smalls
                .iter()
                .map(|small| small.to_string().as_str().into())
                .collect();
            for number in [1, 7, 8, 9, PAGE - 1, PAGE, 3 * PAGE + 5] {
                let mut rows: Vec<u32> = Vec::new();
                while rows.len() < number {
                    let value = of[random.usize(..of.len())];
                    let run = [1, 1, 1, 2, 7, 8, 9, 500][random.usize(..8)];
                    rows.extend(std::iter::repeat_n(value, run));
                }
                rows.truncate(number);
                let missing = [0.0, 0.1, 0.9, 1.0][random.usize(..4)];
                let some = rows.iter().copied();
                let some: Vec<Option<u32>> = some
                    .map(|row| Some(row).filter(|_| random.f64() >= missing))
                    .collect();
                let mut group = RowGroup::new(&layout);
                group.numbered(&texts, rows.iter().copied()).unwrap();
                let mut behind = RowGroup::from(&layout, 1);
                behind.numbered(&smalls, rows.iter().copied()).unwrap();
                behind.numbered(&texts, some.iter().copied()).unwrap();
                group.join(behind);
                let mut written = tempfile::tempfile().unwrap();
                let mut file = TableFile::new(&mut written, &layout).unwrap();
                file.append(group).unwrap();
                file.finish().unwrap();

                let file = SerializedFileReader::new(written).unwrap();
                let wanted = rows.iter().map(|row| smalls[*row as usize]);
                let read = file.get_row_iter(None).unwrap();
                assert_eq!(file.metadata().file_metadata().num_rows(), number as i64);
                let read = read.zip(&some).map(|(row, some)| {
                    use parquet::record::RowAccessor;
                    let row = row.unwrap();
                    let small = row.get_int(1).unwrap();
                    let text = small.to_string();
                    assert_eq!(*row.get_string(0).unwrap(), text);
                    assert_eq!(row.get_string(2).ok(), some.map(|_| &text), "seed {seed}");
                    small
                });
                assert!(read.eq(wanted.clone()), "seed {seed}: {values}, {number}");
                let chunks = file.metadata().row_group(0).columns();
                let Some(Statistics::Int32(found)) = chunks[1].statistics() else {
                    panic!("no statistics");
                };
                assert_eq!(found.min_opt().copied(), wanted.clone().min());
                assert_eq!(found.max_opt().copied(), wanted.max());
                let missing = some.iter().filter(|row| row.is_none()).count();
                let found = chunks[2].statistics().unwrap();
                assert_eq!(found.null_count_opt(), Some(missing as u64));
            }
        }
    }
}
