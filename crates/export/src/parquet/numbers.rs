//! A column of numbers of 64 bits: numbers of a dictionary as long as that is small, then differences.

use anyhow::Result;
use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Encoding, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::chunk::{Chunk, PAGE};
use super::dictionary::packed;
use super::pack::pack_differences;

/// The most values of a dictionary.
const LARGEST: usize = 1 << 15;

/// A column. One that ascends has no dictionary, and the least and the greatest value of each page.
pub fn chunk(
    description: ColumnDescPtr,
    rows: impl Iterator<Item = Option<u64>>,
    ascends: bool,
) -> Result<(Bytes, ColumnCloseResult)> {
    let is_optional = description.max_def_level() > 0;
    let (mut values, mut levels) = (Vec::with_capacity(rows.size_hint().0), Vec::new());
    let mut dictionary = (!ascends).then(Dictionary::new);
    // The rows before the first value that the dictionary has no room for.
    let (mut number, mut known) = (0, 0);
    for row in rows {
        if is_optional {
            levels.push(u32::from(row.is_some()));
        }
        if let Some(value) = row {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            values.push(value);
            if let Some(dictionary) = &mut dictionary
                && dictionary.numbers.len() + 1 == values.len()
            {
                dictionary.add(value);
            }
        }
        number += 1;
        let is_known = |dictionary: &Dictionary| dictionary.numbers.len() == values.len();
        if dictionary.as_ref().is_some_and(is_known) {
            known = number;
        }
    }

    let ends = |values: &[i64]| {
        let least = values.iter().copied().min();
        (least, values.iter().copied().max())
    };
    let (least, most) = ends(&values);
    let missing = Some((number - values.len()) as u64);
    let statistics = Statistics::int64(least, most, None, missing, false);
    let mut chunk = Chunk::new(description);
    let mut rest = values.as_slice();
    // The begin of a page, its levels, and the values of its rows.
    let mut next = |begin: usize, end: usize| {
        let levels = levels.get(begin..end).unwrap_or_default();
        let missing = levels.iter().filter(|level| **level == 0).count();
        let (values, behind) = rest.split_at(end - begin - missing);
        rest = behind;
        (levels, values)
    };
    if let Some(dictionary) = dictionary.filter(|_| known > 0) {
        let plain = dictionary
            .values
            .iter()
            .flat_map(|value| value.to_le_bytes());
        chunk.dictionary(&plain.collect::<Vec<_>>(), dictionary.values.len())?;
        let mut numbers = dictionary.numbers.as_slice();
        for begin in (0..known).step_by(PAGE) {
            let end = known.min(begin + PAGE);
            let (levels, values) = next(begin, end);
            let (own, behind) = numbers.split_at(values.len());
            numbers = behind;
            let packed = packed(own, dictionary.values.len());
            chunk.page(end - begin, levels, Encoding::RLE_DICTIONARY, &packed)?;
        }
    }
    let mut index = ColumnIndexBuilder::new(Physical::INT64);
    let (mut before, mut order) = ((i64::MIN, i64::MIN), BoundaryOrder::ASCENDING);
    for begin in (known..number).step_by(PAGE) {
        let end = number.min(begin + PAGE);
        let (levels, values) = next(begin, end);
        let mut packed = Vec::new();
        pack_differences(values, &mut packed);
        chunk.page(end - begin, levels, Encoding::DELTA_BINARY_PACKED, &packed)?;
        if let (Some(least), Some(most)) = ends(values) {
            let bytes = |value: i64| value.to_le_bytes().to_vec();
            index.append(false, bytes(least), bytes(most), 0, None);
            if least < before.0 || most < before.1 {
                order = BoundaryOrder::UNORDERED;
            }
            before = (least, most);
        }
    }
    index.set_boundary_order(order);
    let index = ascends.then(|| index.build()).transpose()?;
    chunk.finish(statistics, index)
}

/// Values, each once, and the number of each row's.
struct Dictionary {
    values: Vec<i64>,
    numbers: Vec<u32>,
    /// Numbers and one by the values' hash, or behind that place; 0: none.
    places: Vec<u32>,
}

const PLACES: usize = 4 * LARGEST;

impl Dictionary {
    fn new() -> Dictionary {
        Dictionary {
            values: Vec::new(),
            numbers: Vec::new(),
            places: vec![0; PLACES],
        }
    }

    /// Adds the value of the next row, if it is known or there is room for it.
    #[inline(always)]
    fn add(&mut self, value: i64) {
        let hash = (value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut place = (hash >> (u64::BITS - PLACES.ilog2())) as usize;
        loop {
            let Some(number) = self.places[place].checked_sub(1) else {
                if self.values.len() < LARGEST {
                    self.numbers.push(self.values.len() as u32);
                    self.values.push(value);
                    self.places[place] = self.values.len() as u32;
                }
                return;
            };
            if self.values[number as usize] == value {
                return self.numbers.push(number);
            }
            place = (place + 1) % PLACES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::file::{Column, Kind, Layout, RowGroup, TableFile};
    use parquet::file::page_index::column_index::ColumnIndexMetaData;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::serialized_reader::ReadOptionsBuilder;
    use parquet::record::RowAccessor;

    /// Read back by the crate's reader, with the index of pages: few values and too many, small and large, all and some.
    #[test]
    fn numbers_are_read_back() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let column = |name, is_optional| Column {
            name,
            kind: Kind::Number,
            is_optional,
        };
        let columns = [column("sorted", false), column("some", true)];
        let layout = Layout::new(&columns, Some("sorted")).unwrap();
        for different in [1, 2, 100, 1 << 20, i64::MAX as u64] {
            for number in [1, 2, 64, 65, 257, PAGE, 2 * PAGE + 5] {
                let mut sorted: Vec<u64> = (0..number).map(|_| random.u64(..different)).collect();
                sorted.sort_unstable();
                let missing = [0.0, 0.1, 0.9, 1.0][random.usize(..4)];
                let some = (0..number).map(|_| random.u64(..different));
                let some: Vec<u64> = some.collect();
                let some = some.into_iter();
                let some = some.map(|value| Some(value).filter(|_| random.f64() >= missing));
                let some: Vec<Option<u64>> = some.collect();
                let mut group = RowGroup::new(&layout);
                group.numbers(sorted.iter().copied().map(Some)).unwrap();
                group.numbers(some.iter().copied()).unwrap();
                let mut written = tempfile::tempfile().unwrap();
                let mut file = TableFile::new(&mut written, &layout).unwrap();
                file.append(group).unwrap();
                file.finish().unwrap();

                let options = ReadOptionsBuilder::new().with_page_index().build();
                let file = SerializedFileReader::new_with_options(written, options).unwrap();
                let pages = || sorted.chunks(PAGE);
                let index = file.metadata().page_index().unwrap();
                let begins = index.offset_index(0, 0).unwrap().page_locations();
                let index = index.column_index(0, 0).unwrap();
                let ColumnIndexMetaData::INT64(index) = index else {
                    panic!("no index of pages");
                };
                let values = |of: fn(&[u64]) -> Option<&u64>| -> Vec<i64> {
                    pages().map(|page| *of(page).unwrap() as i64).collect()
                };
                assert_eq!(index.min_values(), values(<[u64]>::first), "seed {seed}");
                assert_eq!(index.max_values(), values(<[u64]>::last), "seed {seed}");
                let begins = begins.iter();
                let begins = begins.map(|page| page.first_row_index as usize);
                assert!(begins.eq((0..number).step_by(PAGE)), "seed {seed}");
                let mut rows = 0;
                for (at, row) in file.get_row_iter(None).unwrap().enumerate() {
                    let row = row.unwrap();
                    let case = format!("seed {seed}: {different}, {number}, row {at}");
                    assert_eq!(row.get_long(0).unwrap() as u64, sorted[at], "{case}");
                    let found = row.get_long(1).ok().map(|value| value as u64);
                    assert_eq!(found, some[at], "{case}");
                    rows += 1;
                }
                assert_eq!(rows, number, "seed {seed}");
                let chunks = file.metadata().row_group(0).columns();
                let ends = |column: usize| match chunks[column].statistics() {
                    Some(Statistics::Int64(found)) => {
                        let as_u64 = |value: &i64| *value as u64;
                        (
                            found.min_opt().map(as_u64),
                            found.max_opt().map(as_u64),
                            found.null_count_opt(),
                        )
                    }
                    _ => panic!("no statistics"),
                };
                let (first, last) = (sorted.first().copied(), sorted.last().copied());
                assert_eq!(ends(0), (first, last, Some(0)));
                let present = || some.iter().flatten().copied();
                let missing = (number - present().count()) as u64;
                assert_eq!(ends(1), (present().min(), present().max(), Some(missing)));
            }
        }
    }
}
