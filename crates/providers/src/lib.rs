//! The outside world in: one adapter a provider, behind one small trait.
//!
//! An adapter turns a provider's wire format into the domain's words and hides its paging, authentication and quirks.
//! It keeps nothing but access tokens and, for a minute, what it learned about a consent.

pub mod akahu;
mod balances;
pub mod error;
pub mod exact;
pub mod fiskil;
mod grant;
pub mod http;
pub mod linking;
pub mod notifying;
#[cfg(test)]
mod peer;
pub mod registry;
mod rows;
pub mod settings;
pub mod snaptrade;
mod standings;
pub mod sweep;
pub mod text;

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bellbird_domain::{
    Account, AccountType, Balance, ConnectionCategory, ConnectionStatus, Currency, Holding, Interval, MaskedNumber,
    ProviderName, Span, Trade, Transaction,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use tokio::time::Instant;

pub use error::Error;
pub use linking::Linking;
pub use notifying::Notifying;
pub use registry::Registry;

/// What one request may spend on providers: until when, seen from which moment, and how many calls it has made.
#[derive(Debug)]
pub struct Call {
    /// No call is made, waited for or repeated past this.
    pub deadline: Instant,
    /// The present moment, as far as this request is concerned.
    pub now: Timestamp,
    begun: Instant,
    calls: AtomicU32,
}

impl Call {
    /// A request that may spend until `deadline`.
    #[must_use]
    pub fn new(deadline: Instant, now: Timestamp) -> Self {
        Self { deadline, now, begun: Instant::now(), calls: AtomicU32::new(0) }
    }

    /// The present moment as the clock on the wall shows it: later than [`Call::now`] while a request goes on.
    #[must_use]
    pub fn wall_clock(&self) -> Timestamp {
        self.now.saturating_add(self.begun.elapsed()).unwrap_or(self.now)
    }

    /// Provider calls made so far, retries included.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection that a grant covers, found by asking the provider.
#[derive(Debug)]
pub struct FoundConnection {
    /// The provider's own id of it; unique within the provider.
    pub provider_connection_id: String,
    /// The provider's id of whose consent it is, where it has one that is no secret: events may name it.
    pub owner: Option<String>,
    /// The provider's id of the institution.
    pub institution_id: String,
    /// Display name.
    pub institution_name: String,
    /// URL.
    pub institution_logo: Option<String>,
    /// Whether it works.
    pub standing: Standing,
    /// The grant of this connection alone, as JSON, to be sealed and stored.
    pub grant: SecretString,
}

/// Whether the provider still honours a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Active,
    /// It does not, and this is the status it leads to; never `active` or `deleting`.
    Broken(ConnectionStatus),
}

/// An account of a connection, found by asking the provider. The full number has been left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAccount {
    /// The provider's own id.
    pub provider_account_id: String,
    /// Display name, never a number.
    pub name: String,
    /// One of the seven kinds.
    pub account_type: AccountType,
    /// Last four digits.
    pub number: Option<MaskedNumber>,
    /// If the provider says.
    pub currency: Option<Currency>,
}

/// Which transactions are asked for.
#[derive(Debug, Clone, Copy)]
pub struct TransactionQuery<'a> {
    /// The connection's accounts, or the one account asked for.
    pub accounts: &'a [Account],
    /// True when `accounts` is one account out of possibly several, so that the provider should be asked for it alone.
    pub one_account: bool,
    /// The days or instants. The adapter asks for at least these; the caller filters again.
    pub interval: &'a Interval,
    /// The user's zone, in which days are days.
    pub zone: &'a TimeZone,
}

/// Where a page begins and how many rows it should have.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// The end of an earlier page, or none for the newest row.
    pub cursor: Option<&'a Cursor>,
    /// As many rows as this, where the provider lets us choose; at most [`Banking::page_rows_max`].
    pub rows: u32,
}

/// A provider's own mark of a place in a list. Opaque; holds no data about rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

/// What takes the rows of a page, newest first.
pub type RowSink<'s> = dyn for<'row> FnMut(Transaction<'row>) + Send + 's;

/// The balances that are asked for of one connection.
#[derive(Clone, Copy)]
pub struct BalancesQuery<'a> {
    /// The connection's grant.
    pub grant: &'a SecretString,
    /// Accounts of the connection.
    pub accounts: &'a [Account],
}

/// A provider of accounts and their rows.
///
/// Every method makes its calls within `call.deadline`, and fails with an [`Error`] that says what to do about it.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The short name that the API shows.
    fn name(&self) -> ProviderName;

    /// What can be asked of it beyond accounts and balances.
    fn kind(&self) -> Kind<'_>;

    /// Whether the provider can be reached and takes our credentials.
    async fn check(&self, call: &Call) -> Result<(), Error>;

    /// The connections that a grant covers. `grant` is a JSON object from outside, in the form
    /// of docs/hosting.md.
    async fn discover(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundConnection>, Error>;

    /// Whether the grant of one connection still works.
    async fn standing(&self, call: &Call, grant: &SecretString) -> Result<Standing, Error>;

    /// The accounts of one connection.
    async fn accounts(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundAccount>, Error>;

    /// The balances of accounts of several connections, in the order asked for: one list a connection, one entry an
    /// account. As few calls as the provider allows, all at the same time. A failure is its account's own.
    async fn balances(&self, call: &Call, asked: &[BalancesQuery<'_>]) -> Vec<Vec<Result<Balance, Error>>>;

    /// Withdraws the user's consent. Done also when there was none any more, and where the provider knows no such thing.
    async fn withdraw(&self, call: &Call, grant: &SecretString) -> Result<(), Error>;

    /// Its consent page, where our credentials allow for one.
    fn linking(&self) -> Option<&dyn Linking> {
        None
    }

    /// The events that it sends, where our credentials let us check them.
    fn notifying(&self) -> Option<&dyn Notifying> {
        None
    }
}

/// What a provider is for.
pub enum Kind<'p> {
    /// Banks.
    Banking(&'p dyn Banking),
    /// Brokers.
    Brokerage(&'p dyn Brokerage),
}

impl Kind<'_> {
    /// The word that the API shows.
    #[must_use]
    pub fn category(&self) -> ConnectionCategory {
        match self {
            Self::Banking(_) => ConnectionCategory::Banking,
            Self::Brokerage(_) => ConnectionCategory::Brokerage,
        }
    }
}

/// What banks have.
#[async_trait]
pub trait Banking: Send + Sync {
    /// The most rows that one page can have.
    fn page_rows_max(&self) -> u32;

    /// One page of posted transactions, newest first, each given to `rows` once. Nothing is given when the page fails.
    /// The rows may lie outside the query's interval; rows of other accounts, pending rows and rows without a time are
    /// left out. Returns where the next page begins, or none at the end: of the provider's list, or, where the provider
    /// cannot be asked for the interval, once the rows lie before it, for the caller reads on until then. A page may be
    /// empty and not the last. Where the provider has no list of several accounts, the adapter merges theirs.
    async fn transactions(
        &self,
        call: &Call,
        grant: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut RowSink<'_>,
    ) -> Result<Option<Cursor>, Error>;
}

/// Which trades are asked for.
#[derive(Clone, Copy)]
pub struct TradeQuery<'a> {
    /// The account.
    pub account: &'a Account,
    /// The days or instants, where they were given. The adapter asks for at least these; the caller filters again.
    pub span: &'a Span,
    /// The user's zone, in which days are days.
    pub zone: &'a TimeZone,
}

/// A page of trades, counted as the provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TradePage {
    /// Rows on the page, those left out included.
    pub rows: u64,
    /// Rows in the provider's whole list for the query.
    pub total: u64,
}

/// What takes the trades of a page, newest first, each with its place on the page as the provider counts.
pub type TradeSink<'s> = dyn for<'row> FnMut(u64, Trade<'row>) + Send + 's;

/// What takes the holdings of an account, in the provider's order.
pub type HoldingSink<'s> = dyn for<'row> FnMut(Holding<'row>) + Send + 's;

/// What brokers have.
#[async_trait]
pub trait Brokerage: Send + Sync {
    /// What an account holds, each position given to `rows` once. Nothing is given when the call fails.
    async fn holdings(
        &self,
        call: &Call,
        grant: &SecretString,
        account: &Account,
        rows: &mut HoldingSink<'_>,
    ) -> Result<(), Error>;

    /// The most rows that one page of trades can have.
    fn trades_rows_max(&self) -> u32;

    /// The trades of an account from the `offset`th of the provider's list on, at most `limit`, newest first. Nothing
    /// is given when the page fails. The rows may lie outside the query's span; rows without a date are left out.
    async fn trades(
        &self,
        call: &Call,
        grant: &SecretString,
        query: &TradeQuery<'_>,
        offset: u64,
        limit: u32,
        rows: &mut TradeSink<'_>,
    ) -> Result<TradePage, Error>;
}
