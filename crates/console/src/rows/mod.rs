//! Transactions of all banks and trades of all brokers, merged while they are read, with the
//! command that reads the same, and a file of what the page shows.

pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod filter_bar;
mod find;
pub(crate) mod found;
pub(crate) mod linked;
pub(crate) mod list;
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

use filter::{Period, RowFilter};
use row::Row;
pub(crate) use symbol::Symbol;

/// What the page of a kind of rows says.
pub(crate) struct Words {
    pub(crate) title: &'static str,
    /// Who lists the rows: one, and several.
    pub(crate) bank: &'static str,
    pub(crate) banks: &'static str,
    pub(crate) what_shows: &'static str,
    /// While they are asked.
    pub(crate) awaited: &'static str,
}

/// What a kind of rows has of its own: its page, its words, and what it shows of a row.
pub(crate) trait ListKind: RowKind {
    const CATEGORY: ConnectionCategory;
    /// Whether a page that was read counts for a while, as in the API.
    const IS_CACHED: bool;
    /// Of the page that lists the rows.
    const PATH: &'static str;
    /// Where they are on the page, behind a `#`. Empty: it lists nothing else.
    const ANCHOR: &'static str;
    /// In the API and in the names of files.
    const NAME: &'static str;
    const WORDS: Words;
    /// Those that the page offers, the one by default first.
    const PERIODS: &'static [Period];
    const SEARCH_PLACEHOLDER: &'static str;
    /// Whether rows have a category.
    const HAS_CATEGORIES: bool;
    const COLUMNS: &'static [&'static str];

    /// Of a read, as of the API.
    fn quota(quotas: &Quotas) -> &QuotaClass;

    /// In the user's time zone.
    fn day(row: &Self::Row<'_>, place: Self::Place, zone: &TimeZone) -> Date;

    fn is_wanted(row: &Self::Row<'_>, filter: &RowFilter) -> bool;

    /// `search` is in lower case.
    fn shown(row: &Self::Row<'_>, day: Date, zone: &TimeZone, search: &str) -> Row;

    /// The fields of the file, in the order of [`Self::COLUMNS`].
    fn write(row: &Self::Row<'_>, day: Date, lines: &mut CsvLines, out: &mut Vec<u8>);
}
