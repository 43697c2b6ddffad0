//! A column of values whose numbers in a dictionary are known. The crate `parquet` finds numbers by the hash of each
//! row's value, which for these columns would take two fifths of an export's processor time.

use anyhow::Result;
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use std::collections::HashMap;
use std::hash::Hash;

use super::chunk::{Chunk, PAGE};
use super::pack::pack;

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
    let (mut values, mut levels) = (Vec::with_capacity(numbers.size_hint().0), Vec::new());
    for number in numbers {
        let number = number.into();
        if is_optional {
            levels.push(u32::from(number.is_some()));
        }
        if let Some(number) = number {
            let place = &mut places[number as usize];
            if *place == NONE {
                *place = used.len() as u32;
                used.push(&dictionary[number as usize]);
            }
            values.push(*place);
        }
    }

    let ordered = |less: fn(&T, &T) -> bool| {
        let values = used.iter().copied();
        values.reduce(|best, value| if less(value, best) { value } else { best })
    };
    let statistics = T::statistics(
        ordered(|one, other| one.is_less(other)),
        ordered(|one, other| other.is_less(one)),
        levels.iter().filter(|level| **level == 0).count() as u64,
    );
    let mut plain = Vec::new();
    used.iter().for_each(|value| value.put(&mut plain));
    let mut chunk = Chunk::new(description);
    chunk.dictionary(&plain, used.len())?;
    let number = levels.len().max(values.len());
    let mut rest = values.as_slice();
    for begin in (0..number).step_by(PAGE) {
        let end = number.min(begin + PAGE);
        let levels = levels.get(begin..end).unwrap_or_default();
        let missing = levels.iter().filter(|level| **level == 0).count();
        let (values, behind) = rest.split_at(end - begin - missing);
        rest = behind;
        let packed = packed(values, used.len());
        chunk.page(end - begin, levels, Encoding::RLE_DICTIONARY, &packed)?;
    }
    chunk.finish(statistics, None)
}

/// The numbers of rows' values in a dictionary of so many.
pub fn packed(numbers: &[u32], values: usize) -> Vec<u8> {
    let width = u32::BITS - (values.saturating_sub(1) as u32).leading_zeros();
    let mut packed = vec![width as u8];
    pack(numbers, width, &mut packed);
    packed
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
