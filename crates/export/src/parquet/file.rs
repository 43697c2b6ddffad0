//! A file of the format Parquet: row groups of columns, each encoded by itself, so that several threads write one file.
//!
//! Text and most numbers are numbers of a dictionary; numbers that ascend, and those of too many values, are differences.
//! Pages are compressed in addition: programs repeat themselves.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};

use super::dictionary::{self, Distinct, distinct};
use super::numbers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    /// A number of 32 bits.
    Small,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether rows may have no value.
    pub is_optional: bool,
}

/// The properties that all files of a table share.
pub struct Layout {
    schema: TypePtr,
    columns: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    /// The column by which rows are sorted.
    ascending: Option<usize>,
}

impl Layout {
    /// `ascending`: the column by which the rows of each row group are sorted.
    pub fn new(columns: &[Column], ascending: Option<&str>) -> Result<Layout> {
        let fields = columns.iter().map(|column| Ok(Arc::new(column.field()?)));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder("nopal").with_fields(fields);
        let schema = Arc::new(schema.build()?);
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .set_created_by(concat!("nopal ", env!("CARGO_PKG_VERSION")).into());
        let ascending = ascending.and_then(|name| columns.iter().position(|c| c.name == name));
        let order = ascending.map(|at| {
            vec![SortingColumn {
                column_idx: at as i32,
                descending: false,
                nulls_first: false,
            }]
        });
        let properties = properties.set_sorting_columns(order);
        Ok(Layout {
            columns: Arc::new(SchemaDescriptor::new(schema.clone())),
            schema,
            properties: Arc::new(properties.build()),
            ascending,
        })
    }
}

impl Column {
    fn field(&self) -> Result<Type> {
        let (physical, logical) = match self.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Number => (Physical::INT64, None),
            Kind::Small => (Physical::INT32, None),
        };
        let repetition = match self.is_optional {
            true => Repetition::OPTIONAL,
            false => Repetition::REQUIRED,
        };
        let field = Type::primitive_type_builder(self.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition);
        Ok(field.build()?)
    }
}

/// Rows, encoded column after column in the order of the layout.
pub struct RowGroup<'a> {
    layout: &'a Layout,
    /// Its first column.
    first: usize,
    chunks: Vec<(Bytes, ColumnCloseResult)>,
}

impl<'a> RowGroup<'a> {
    pub fn new(layout: &'a Layout) -> RowGroup<'a> {
        RowGroup::from(layout, 0)
    }

    /// The columns from `first`, for [`Self::join`].
    pub fn from(layout: &'a Layout, first: usize) -> RowGroup<'a> {
        RowGroup {
            layout,
            first,
            chunks: Vec::new(),
        }
    }

    /// Adds the columns behind its own.
    pub fn join(&mut self, behind: RowGroup<'a>) {
        debug_assert_eq!(self.next(), behind.first);
        self.chunks.extend(behind.chunks);
    }

    fn next(&self) -> usize {
        self.first + self.chunks.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.chunks
            .iter()
            .all(|(_, closed)| closed.rows_written == 0)
    }

    pub fn texts(&mut self, texts: &[Option<&str>]) -> Result<()> {
        let (values, numbers) = distinct(texts.iter().flatten());
        let values: Vec<ByteArray> = values.into_iter().map(|text| (*text).into()).collect();
        let mut numbers = numbers.into_iter();
        let numbers = texts.iter().map(|text| text.and_then(|_| numbers.next()));
        self.numbered(&values, numbers)
    }

    pub fn flags(&mut self, values: impl Iterator<Item = bool>) -> Result<()> {
        self.numbered(&[0, 1], values.map(u32::from))
    }

    /// The values of `dictionary` with these numbers, each distinct.
    pub fn numbered<T: Distinct>(
        &mut self,
        dictionary: &[T],
        numbers: impl Iterator<Item = impl Into<Option<u32>>>,
    ) -> Result<()> {
        let description = self.layout.columns.column(self.next());
        let chunk = dictionary::chunk(description, dictionary, numbers)?;
        self.chunks.push(chunk);
        Ok(())
    }

    pub fn numbers(&mut self, values: impl Iterator<Item = Option<u64>>) -> Result<()> {
        let at = self.next();
        let ascends = self.layout.ascending == Some(at);
        let description = self.layout.columns.column(at);
        let chunk = numbers::chunk(description, values, ascends)?;
        self.chunks.push(chunk);
        Ok(())
    }
}

/// A file under way.
pub struct TableFile<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> TableFile<W> {
    pub fn new(out: W, layout: &Layout) -> Result<TableFile<W>> {
        let (schema, properties) = (layout.schema.clone(), layout.properties.clone());
        Ok(TableFile(SerializedFileWriter::new(
            out, schema, properties,
        )?))
    }

    pub fn append(&mut self, group: RowGroup) -> Result<()> {
        let mut out = self.0.next_row_group()?;
        for (bytes, closed) in group.chunks {
            out.append_column(&bytes, closed)?;
        }
        out.close()?;
        Ok(())
    }

    pub fn finish(mut self) -> Result<()> {
        self.0.finish()?;
        Ok(())
    }
}
