//! Parquet: the columns of CSV with their types.
//!
//! `amount` is the provider's text, because no decimal type holds every amount. `amountDecimal` is null where it does
//! not fit.

use std::mem::take;
use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use bellbird_domain::{Category, Transaction};
use jiff::civil::Date;

use super::{FormatError, Head, WriteTransactions, amounts};

const SCHEMA: &str = "message transactions {
    required binary id (STRING);
    required binary accountId (STRING);
    required binary accountName (STRING);
    required binary status (STRING);
    required int32 date (DATE);
    required binary datetime (STRING);
    required binary description (STRING);
    required binary amount (STRING);
    optional fixed_len_byte_array(16) amountDecimal (DECIMAL(38, 18));
    required binary currency (STRING);
    required binary direction (STRING);
    optional binary category (STRING);
    optional binary merchantName (STRING);
    optional binary merchantCategoryCode (STRING);
}";

/// Rows of a group are held in memory until it is full.
const GROUP_ROWS_MAX: usize = 5_000;
/// Limit of their texts.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Default)]
pub(super) struct Transactions {
    writer: Option<SerializedFileWriter<Vec<u8>>>,
    group: Group,
}

impl WriteTransactions for Transactions {
    fn start(&mut self, _head: &Head<'_>, _out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.writer = Some(open()?);
        Ok(())
    }

    fn row(&mut self, row: &Transaction<'_>, date: Date, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.group.push(row, date);
        if self.group.dates.len() < GROUP_ROWS_MAX && self.group.bytes < GROUP_BYTES_MAX {
            return Ok(());
        }
        let writer = self.writer.as_mut().ok_or(FormatError::Internal)?;
        take(&mut self.group).write(writer)?;
        // The writer may keep the last bytes back. It counts what it wrote, so the Vec can be emptied.
        out.append(writer.inner_mut());
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let mut writer = self.writer.take().ok_or(FormatError::Internal)?;
        if !self.group.dates.is_empty() {
            take(&mut self.group).write(&mut writer)?;
        }
        out.append(&mut writer.into_inner()?);
        Ok(())
    }
}

fn open() -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))
}

impl From<ParquetError> for FormatError {
    fn from(_: ParquetError) -> Self {
        Self::Internal
    }
}

/// The columns of a row group. The values of an optional column leave out nulls.
#[derive(Default)]
struct Group {
    ids: Vec<ByteArray>,
    account_ids: Vec<ByteArray>,
    account_names: Vec<ByteArray>,
    statuses: Vec<ByteArray>,
    dates: Vec<i32>,
    datetimes: Vec<ByteArray>,
    descriptions: Vec<ByteArray>,
    amounts: Vec<ByteArray>,
    decimals: Optional<FixedLenByteArray>,
    currencies: Vec<ByteArray>,
    directions: Vec<ByteArray>,
    categories: Optional<ByteArray>,
    merchants: Optional<ByteArray>,
    merchant_codes: Optional<ByteArray>,
    bytes: usize,
}

struct Optional<T> {
    values: Vec<T>,
    /// 1 for a value, 0 for null.
    levels: Vec<i16>,
}

impl<T> Default for Optional<T> {
    fn default() -> Self {
        Self { values: Vec::new(), levels: Vec::new() }
    }
}

impl<T> Optional<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

impl Group {
    fn push(&mut self, row: &Transaction<'_>, date: Date) {
        let account = row.account;
        let (merchant, code) = (row.merchant_name.as_deref(), row.merchant_category_code.as_deref());
        let texts = [&*row.id, &account.name, &row.datetime, &row.description, row.amount.as_str()];
        let optional = [merchant, code].into_iter().flatten();
        self.bytes += texts.into_iter().chain(optional).map(str::len).sum::<usize>();
        self.ids.push((&*row.id).into());
        self.account_ids.push(account.id.to_string().as_str().into());
        self.account_names.push(account.name.as_str().into());
        self.statuses.push("posted".into());
        self.dates.push((date - Date::constant(1970, 1, 1)).get_days());
        self.datetimes.push((&*row.datetime).into());
        self.descriptions.push((&*row.description).into());
        self.amounts.push(row.amount.as_str().into());
        let decimal = amounts::scaled(&row.amount);
        self.decimals.push(decimal.map(|number| ByteArray::from(number.to_be_bytes().to_vec()).into()));
        self.currencies.push(row.currency.unwrap_or(account.currency).as_str().into());
        self.directions.push(row.direction().into());
        self.categories.push(row.category.map(Category::key).map(ByteArray::from));
        self.merchants.push(merchant.map(ByteArray::from));
        self.merchant_codes.push(code.map(ByteArray::from));
    }

    fn write(self, file: &mut SerializedFileWriter<Vec<u8>>) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for texts in [&self.ids, &self.account_ids, &self.account_names, &self.statuses] {
            write_column::<ByteArrayType>(&mut group, texts, None)?;
        }
        write_column::<Int32Type>(&mut group, &self.dates, None)?;
        for texts in [&self.datetimes, &self.descriptions, &self.amounts] {
            write_column::<ByteArrayType>(&mut group, texts, None)?;
        }
        write_column::<FixedLenByteArrayType>(&mut group, &self.decimals.values, Some(&self.decimals.levels))?;
        for texts in [&self.currencies, &self.directions] {
            write_column::<ByteArrayType>(&mut group, texts, None)?;
        }
        for Optional { values, levels } in [&self.categories, &self.merchants, &self.merchant_codes] {
            write_column::<ByteArrayType>(&mut group, values, Some(levels))?;
        }
        group.close()?;
        Ok(())
    }
}

/// Writes the next column. An optional one has a level for each row.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("a column is missing".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
