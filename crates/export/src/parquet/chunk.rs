//! The pages of a column in a row group.

use std::io::Write;

use anyhow::Result;
use bytes::Bytes;
use flate2::write::GzEncoder;
use parquet::basic::{Compression, Encoding, GzipLevel, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::pack::pack;

/// Rows of a page.
pub const PAGE: usize = 1 << 16;

/// The level of compression: 1 is the fastest.
const LEVEL: u32 = 1;

/// A column under way.
pub struct Chunk {
    description: ColumnDescPtr,
    out: TrackedWrite<Vec<u8>>,
    index: OffsetIndexBuilder,
    pages: Vec<PageEncodingStats>,
    dictionary: Option<i64>,
    first: Option<i64>,
    rows: usize,
    size: usize,
    plain_size: usize,
}

impl Chunk {
    pub fn new(description: ColumnDescPtr) -> Chunk {
        Chunk {
            description,
            out: TrackedWrite::new(Vec::new()),
            index: OffsetIndexBuilder::new(),
            pages: Vec::new(),
            dictionary: None,
            first: None,
            rows: 0,
            size: 0,
            plain_size: 0,
        }
    }

    fn write(
        &mut self,
        page: Page,
        plain: usize,
        page_type: PageType,
        encoding: Encoding,
    ) -> Result<PageWriteSpec> {
        let mut writer = SerializedPageWriter::new(&mut self.out);
        let written = writer.write_page(CompressedPage::new(page, plain))?;
        self.size += written.compressed_size;
        self.plain_size += written.uncompressed_size;
        let is_same =
            |one: &&mut PageEncodingStats| (one.page_type, one.encoding) == (page_type, encoding);
        match self.pages.iter_mut().find(is_same) {
            Some(pages) => pages.count += 1,
            None => self.pages.push(PageEncodingStats {
                page_type,
                encoding,
                count: 1,
            }),
        }
        Ok(written)
    }

    /// The page of the dictionary, before all others: `plain` has that many values.
    pub fn dictionary(&mut self, plain: &[u8], values: usize) -> Result<()> {
        let page = Page::DictionaryPage {
            buf: compressed(plain)?.into(),
            num_values: values as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let (kind, encoding) = (PageType::DICTIONARY_PAGE, Encoding::PLAIN);
        let written = self.write(page, plain.len(), kind, encoding)?;
        self.dictionary = Some(written.offset as i64);
        Ok(())
    }

    /// A page of rows, with the encoded values of those that have one. `levels`: for each row, 1 if it has, else 0; empty
    /// if all have.
    pub fn page(
        &mut self,
        rows: usize,
        levels: &[u32],
        encoding: Encoding,
        values: &[u8],
    ) -> Result<()> {
        let mut page = Vec::new();
        pack(levels, 1, &mut page);
        let level_bytes = page.len();
        let missing = levels.iter().filter(|level| **level == 0).count();
        let squeezed = compressed(values)?;
        let is_compressed = squeezed.len() < values.len();
        page.extend_from_slice(if is_compressed { &squeezed } else { values });
        let page = Page::DataPageV2 {
            buf: page.into(),
            num_values: rows as u32,
            encoding,
            num_nulls: missing as u32,
            num_rows: rows as u32,
            def_levels_byte_len: level_bytes as u32,
            rep_levels_byte_len: 0,
            is_compressed,
            statistics: None,
        };
        let plain = level_bytes + values.len();
        let written = self.write(page, plain, PageType::DATA_PAGE_V2, encoding)?;
        self.first.get_or_insert(written.offset as i64);
        self.index.append_row_count(rows as i64);
        self.index
            .append_offset_and_size(written.offset as i64, written.compressed_size as i32);
        self.rows += rows;
        Ok(())
    }

    /// Ends the column.
    pub fn finish(
        self,
        statistics: Statistics,
        column_index: Option<ColumnIndexMetaData>,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        let encodings = self.pages.iter().map(|pages| pages.encoding);
        let metadata = ColumnChunkMetaData::builder(self.description)
            .set_compression(Compression::GZIP(GzipLevel::try_new(LEVEL)?))
            .set_encodings(encodings.chain([Encoding::RLE]).collect())
            .set_page_encoding_stats(self.pages)
            .set_total_compressed_size(self.size as i64)
            .set_total_uncompressed_size(self.plain_size as i64)
            .set_num_values(self.rows as i64)
            .set_dictionary_page_offset(self.dictionary)
            .set_data_page_offset(self.first.unwrap_or(self.size as i64))
            .set_statistics(statistics)
            .build()?;
        let closed = ColumnCloseResult {
            bytes_written: self.size as u64,
            rows_written: self.rows as u64,
            metadata,
            bloom_filter: None,
            column_index,
            offset_index: Some(self.index.build()),
        };
        Ok((self.out.into_inner()?.into(), closed))
    }
}

fn compressed(plain: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(LEVEL));
    encoder.write_all(plain)?;
    Ok(encoder.finish()?)
}
