//! Transactions of all banks and trades of all brokers, merged while they are read, with the
//! command that reads the same, and a file of what the page shows.

pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod find;
pub(crate) mod found;
pub(crate) mod linked;
pub(crate) mod list;
pub(crate) mod page;
mod row;
mod search;
mod symbol;
mod trades;
pub(crate) mod transactions;

use bellbird_api::http::{QuotaClass, Quotas};
use bellbird_domain::ConnectionCategory;
use bellbird_interop::export::formats::CsvLines;
use bellbird_reads::RowKind;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use filter::{Filter, Period};
use row::Row;
pub(crate) use symbol::Symbol;

/// The page of a kind of rows, and its words.
pub(crate) struct RowsPage {
    category: ConnectionCategory,
    /// Whether a page that was read counts for a while, as in the API.
    is_cached: bool,
    path: &'static str,
    /// Where the rows are on the page, behind a `#`. Empty: it lists nothing else.
    anchor: &'static str,
    /// Of the rows in the API and in the names of files.
    name: &'static str,
    title: &'static str,
    /// Who lists the rows. Several have an `s` behind it.
    bank: &'static str,
    what_shows: &'static str,
    /// While they are asked.
    awaited: &'static str,
    /// Those that the page offers, the one by default first.
    periods: &'static [Period],
    search_placeholder: &'static str,
    /// Whether rows have a category.
    has_categories: bool,
    /// Of the file.
    columns: &'static [&'static str],
}

/// What a kind of rows has of its own: its page, and what it shows of a row.
pub(crate) trait ListKind: RowKind {
    const PAGE: &'static RowsPage;

    /// Of a read, as of the API.
    fn quota(quotas: &Quotas) -> &QuotaClass;

    /// In the user's time zone.
    fn day(row: &Self::Row<'_>, place: Self::Place, zone: &TimeZone) -> Date;

    fn is_wanted(row: &Self::Row<'_>, filter: &Filter) -> bool;

    fn shown(row: &Self::Row<'_>, day: Date, zone: &TimeZone) -> Row;

    /// The fields of the file behind the day, the account and the bank, as its columns.
    fn write(row: &Self::Row<'_>, lines: &mut CsvLines, out: &mut Vec<u8>);
}
