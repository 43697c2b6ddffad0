//! A column of values whose numbers in a dictionary are known. The crate `parquet` finds numbers by the hash of each row's
//! value: with these columns, two fifths of an export's processor time.

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

use super::file::{LEVEL, PAGE};

/// What a dictionary has.
pub trait Distinct {
    fn put(&self, plain: &mut Vec<u8>);
    fn statistics(least: Option<&Self>, most: Option<&Self>) -> Statistics;
    /// As columns are ordered.
    fn is_less(&self, other: &Self) -> bool;
}

impl Distinct for ByteArray {
    fn put(&self, plain: &mut Vec<u8>) {
        plain.extend_from_slice(&(self.len() as u32).to_le_bytes());
        plain.extend_from_slice(self.data());
    }

    fn statistics(least: Option<&Self>, most: Option<&Self>) -> Statistics {
        Statistics::byte_array(least.cloned(), most.cloned(), None, Some(0), false)
    }

    fn is_less(&self, other: &Self) -> bool {
        self.data() < other.data()
    }
}

impl Distinct for i32 {
    fn put(&self, plain: &mut Vec<u8>) {
        plain.extend_from_slice(&self.to_le_bytes());
    }

    fn statistics(least: Option<&Self>, most: Option<&Self>) -> Statistics {
        Statistics::int32(least.copied(), most.copied(), None, Some(0), false)
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

/// A column without missing values. Its dictionary has those of `dictionary` that rows have, in the order in which they
/// appear.
pub fn chunk<T: Distinct>(
    description: ColumnDescPtr,
    dictionary: &[T],
    numbers: impl Iterator<Item = u32>,
) -> Result<(Bytes, ColumnCloseResult)> {
    const NONE: u32 = u32::MAX;
    let mut places = vec![NONE; dictionary.len()];
    let mut used = Vec::new();
    let rows: Vec<u32> = numbers
        .map(|number| {
            let place = &mut places[number as usize];
            if *place == NONE {
                *place = used.len() as u32;
                used.push(&dictionary[number as usize]);
            }
            *place
        })
        .collect();

    let mut out = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut out);
    let mut plain = Vec::new();
    used.iter().for_each(|value| value.put(&mut plain));
    let page = Page::DictionaryPage {
        buf: compressed(&plain)?,
        num_values: used.len() as u32,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    let first = writer.write_page(CompressedPage::new(page, plain.len()))?;
    let (mut size, mut plain_size) = (first.compressed_size, first.uncompressed_size);
    let mut index = OffsetIndexBuilder::new();
    let width = u32::BITS - (used.len().saturating_sub(1) as u32).leading_zeros();
    for rows in rows.chunks(PAGE) {
        let mut packed = vec![width as u8];
        pack(rows, width, &mut packed);
        let squeezed = compressed(&packed)?;
        let plain = packed.len();
        let is_compressed = squeezed.len() < plain;
        let page = Page::DataPageV2 {
            buf: if is_compressed {
                squeezed
            } else {
                packed.into()
            },
            num_values: rows.len() as u32,
            encoding: Encoding::RLE_DICTIONARY,
            num_nulls: 0,
            num_rows: rows.len() as u32,
            def_levels_byte_len: 0,
            rep_levels_byte_len: 0,
            is_compressed,
            statistics: None,
        };
        let written = writer.write_page(CompressedPage::new(page, plain))?;
        index.append_row_count(rows.len() as i64);
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
    let data_pages = rows.len().div_ceil(PAGE) as i32;
    let ordered = |less: fn(&T, &T) -> bool| {
        let values = used.iter().copied();
        values.reduce(|best, value| if less(value, best) { value } else { best })
    };
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
        .set_num_values(rows.len() as i64)
        .set_dictionary_page_offset(Some(first.offset as i64))
        .set_data_page_offset((first.offset + first.bytes_written) as i64)
        .set_statistics(T::statistics(
            ordered(|one, other| one.is_less(other)),
            ordered(|one, other| other.is_less(one)),
        ))
        .build()?;
    let closed = ColumnCloseResult {
        bytes_written: size as u64,
        rows_written: rows.len() as u64,
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

    /// Rows of each shape that `pack` tells apart, read back by the crate's reader.
    #[test]
    fn rows_are_read_back() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let column = |name, kind| Column {
            name,
            kind,
            is_optional: false,
        };
        let columns = [column("text", Kind::Text), column("small", Kind::Small)];
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
                let mut group = RowGroup::new(&layout);
                group.numbered(&texts, rows.iter().copied()).unwrap();
                let mut behind = RowGroup::from(&layout, 1);
                behind.numbered(&smalls, rows.iter().copied()).unwrap();
                group.join(behind);
                let mut written = tempfile::tempfile().unwrap();
                let mut file = TableFile::new(&mut written, &layout).unwrap();
                file.append(group).unwrap();
                file.finish().unwrap();

                let file = SerializedFileReader::new(written).unwrap();
                let wanted = rows.iter().map(|row| smalls[*row as usize]);
                let read = file.get_row_iter(None).unwrap();
                assert_eq!(file.metadata().file_metadata().num_rows(), number as i64);
                let read = read.map(|row| {
                    use parquet::record::RowAccessor;
                    let row = row.unwrap();
                    let small = row.get_int(1).unwrap();
                    assert_eq!(*row.get_string(0).unwrap(), small.to_string());
                    small
                });
                assert!(read.eq(wanted.clone()), "seed {seed}: {values}, {number}");
                let chunks = file.metadata().row_group(0).columns();
                let Some(Statistics::Int32(found)) = chunks[1].statistics() else {
                    panic!("no statistics");
                };
                assert_eq!(found.min_opt().copied(), wanted.clone().min());
                assert_eq!(found.max_opt().copied(), wanted.max());
            }
        }
    }
}
