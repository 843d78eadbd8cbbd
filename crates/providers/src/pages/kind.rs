//! What transactions and trades have in common: both are rows of a provider's list, which is read
//! page by page. Everything that reads rows is written once, for a [`RowKind`].

use std::hash::{Hash as _, Hasher};
use std::slice::Chunks;

use async_trait::async_trait;
use bellbird_domain::date::DayFinder;
use bellbird_domain::{Account, Bound, DateFilter, DateRange, Decimal, Trade, Transaction};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::List;
use crate::{
    Banking, Brokerage, CallContext, Error, Kind, Page, PageRequest, TradeQuery, TransactionQuery,
};

/// A kind of rows that providers list, newest first: [`Transactions`] or [`Trades`].
#[async_trait]
pub trait RowKind: Sized + Send + Sync + 'static {
    /// A row. It borrows the provider's page.
    type Row<'page>: Send + Sync;
    /// Comes with each row: the day of a transaction in the user's time zone, and the number of a
    /// trade in the provider's list.
    type Place: Copy + Send;
    /// Who lists such rows.
    type Provider<'p>: Copy + Send + Sync;
    type Query<'q>: Copy + Send + Sync;
    /// The dates of a query. Only those of trades may be open.
    type Dates: Copy + Send + Sync;

    /// Whether the provider has a list for each account, and none for all of a connection.
    const IS_LISTED_BY_ACCOUNT: bool;
    /// Whether rows with one id are one row. Equal trades have equal ids.
    const HAS_DISTINCT_IDS: bool;

    /// The provider, if it lists such rows.
    fn provider<'p>(kind: Kind<'p>) -> Option<Self::Provider<'p>>;

    fn page_rows_max(provider: Self::Provider<'_>) -> u32;

    /// The dates of a request, and whether no row can lie in them.
    fn dates(filter: DateFilter, zone: &TimeZone, now: Timestamp) -> (Self::Dates, bool);

    /// The accounts of each list.
    fn lists(accounts: &[Account]) -> Chunks<'_, Account> {
        accounts.chunks(match Self::IS_LISTED_BY_ACCOUNT {
            true => 1,
            false => accounts.len().max(1),
        })
    }

    /// `one_account` as in [`TransactionQuery`]. If rows are listed by account, `accounts` has one.
    fn query<'q>(
        accounts: &'q [Account],
        one_account: bool,
        dates: &'q Self::Dates,
        zone: &'q TimeZone,
    ) -> Self::Query<'q>;

    fn account<'r>(row: &'r Self::Row<'_>) -> &'r Account;

    /// The time that rows are sorted by.
    fn instant(row: &Self::Row<'_>) -> Timestamp;

    /// When the provider first saw the row, if it says so.
    fn seen_at(row: &Self::Row<'_>) -> Option<Timestamp>;

    /// Hashes the row's account and id.
    fn hash_id(row: &Self::Row<'_>, hasher: &mut impl Hasher);

    /// Reads a page from the provider, and passes on its rows that lie within the query's dates and
    /// are not later than the list's `until`.
    async fn read_page(
        list: &List<'_, Self>,
        context: &CallContext,
        page: PageRequest<'_>,
        sink: &mut RowSink<'_, Self>,
    ) -> Result<Page, Error>;
}

/// Receives rows from a page reader, newest first.
pub type RowSink<'s, K> =
    dyn for<'row> FnMut(&<K as RowKind>::Row<'row>, <K as RowKind>::Place) + Send + 's;

pub enum Transactions {}

pub enum Trades {}

#[async_trait]
impl RowKind for Transactions {
    type Row<'page> = Transaction<'page>;
    type Place = Date;
    type Provider<'p> = &'p dyn Banking;
    type Query<'q> = TransactionQuery<'q>;
    type Dates = DateRange;

    const IS_LISTED_BY_ACCOUNT: bool = false;
    const HAS_DISTINCT_IDS: bool = true;

    fn provider<'p>(kind: Kind<'p>) -> Option<&'p dyn Banking> {
        match kind {
            Kind::Banking(banking) => Some(banking),
            Kind::Brokerage(_) => None,
        }
    }

    fn page_rows_max(provider: &dyn Banking) -> u32 {
        provider.page_rows_max()
    }

    fn dates(filter: DateFilter, zone: &TimeZone, now: Timestamp) -> (DateRange, bool) {
        let dates = DateRange::resolve(filter.from, filter.to, now);
        let (first, last) = dates.instants(zone);
        (dates, first > last)
    }

    fn query<'q>(
        accounts: &'q [Account],
        one_account: bool,
        dates: &'q DateRange,
        zone: &'q TimeZone,
    ) -> TransactionQuery<'q> {
        TransactionQuery {
            accounts,
            one_account,
            dates,
            zone,
        }
    }

    fn account<'r>(row: &'r Transaction<'_>) -> &'r Account {
        row.account
    }

    fn instant(row: &Transaction<'_>) -> Timestamp {
        row.instant
    }

    fn seen_at(row: &Transaction<'_>) -> Option<Timestamp> {
        row.seen_at
    }

    fn hash_id(row: &Transaction<'_>, hasher: &mut impl Hasher) {
        (row.account.id, row.id.as_ref()).hash(hasher);
    }

    async fn read_page(
        list: &List<'_, Self>,
        context: &CallContext,
        page: PageRequest<'_>,
        sink: &mut RowSink<'_, Self>,
    ) -> Result<Page, Error> {
        let (range, until) = (list.query.dates, list.until);
        let dates = DateRange {
            to: until.map_or(range.to, Bound::Instant),
            ..*range
        };
        let query = TransactionQuery {
            dates: &dates,
            ..list.query
        };
        let mut days = DayFinder::new(query.zone);
        let mut in_range = |row: Transaction<'_>| {
            let day = row.day.unwrap_or_else(|| days.day_of(row.instant));
            if until.is_none_or(|until| row.instant <= until) && range.contains(row.instant, || day)
            {
                sink(&row, day);
            }
        };
        let next = list
            .provider
            .transactions(context, list.credentials, &query, page, &mut in_range)
            .await?;
        Ok(Page { next, total: None })
    }
}

#[async_trait]
impl RowKind for Trades {
    type Row<'page> = Trade<'page>;
    type Place = u64;
    type Provider<'p> = &'p dyn Brokerage;
    type Query<'q> = TradeQuery<'q>;
    type Dates = DateFilter;

    const IS_LISTED_BY_ACCOUNT: bool = true;
    const HAS_DISTINCT_IDS: bool = false;

    fn provider<'p>(kind: Kind<'p>) -> Option<&'p dyn Brokerage> {
        match kind {
            Kind::Banking(_) => None,
            Kind::Brokerage(brokerage) => Some(brokerage),
        }
    }

    fn page_rows_max(provider: &dyn Brokerage) -> u32 {
        provider.trades_rows_max()
    }

    fn dates(filter: DateFilter, zone: &TimeZone, _: Timestamp) -> (DateFilter, bool) {
        (filter, filter.is_empty(zone))
    }

    fn query<'q>(
        accounts: &'q [Account],
        _: bool,
        dates: &'q DateFilter,
        zone: &'q TimeZone,
    ) -> TradeQuery<'q> {
        TradeQuery {
            account: &accounts[0],
            dates,
            zone,
        }
    }

    fn account<'r>(row: &'r Trade<'_>) -> &'r Account {
        row.account
    }

    fn instant(row: &Trade<'_>) -> Timestamp {
        row.time.instant()
    }

    fn seen_at(_: &Trade<'_>) -> Option<Timestamp> {
        None
    }

    fn hash_id(row: &Trade<'_>, hasher: &mut impl Hasher) {
        fn digits<'d>(number: &'d Option<Decimal<'_>>) -> Option<&'d str> {
            number.as_ref().map(|number| number.as_str())
        }
        // The parts of the id, whose text would have to be made first.
        (
            row.account.id,
            &row.trade_date,
            &row.symbol,
            &row.provider_type,
        )
            .hash(hasher);
        (digits(&row.total_amount), digits(&row.quantity)).hash(hasher);
        (&row.settlement_date, digits(&row.fees), &row.description).hash(hasher);
    }

    async fn read_page(
        list: &List<'_, Self>,
        context: &CallContext,
        page: PageRequest<'_>,
        sink: &mut RowSink<'_, Self>,
    ) -> Result<Page, Error> {
        let (filter, until) = (list.query.dates, list.until);
        let dates = DateFilter {
            to: until.map(Bound::Instant).or(filter.to),
            ..*filter
        };
        let query = TradeQuery {
            dates: &dates,
            ..list.query
        };
        let mut in_range = |number: u64, row: Trade<'_>| {
            if until.is_none_or(|until| row.time.instant() <= until)
                && filter.contains(row.time, query.zone)
            {
                sink(&row, number);
            }
        };
        list.provider
            .trades(context, list.credentials, &query, page, &mut in_range)
            .await
    }
}
