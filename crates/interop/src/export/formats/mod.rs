//! The formats of files. Pure: a writer is given rows one after the other and appends bytes.
//!
//! docs/exports.md says what each format holds and leaves out, and why.

mod accounts;
mod amounts;
mod beancount;
mod csv;
mod journal;
mod jsonl;
mod ofx;
mod qif;
#[cfg(test)]
mod tests;
mod text;
mod ynab;

use bellbird_domain::{
    Account, Balance, ConnectionCategory, ConnectionId, Currency, Decimal, Holding, Trade,
    Transaction,
};
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;

pub use csv::CsvLines;

/// What a file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Transactions,
    Trades,
    Holdings,
}

impl Resource {
    pub const ALL: [Self; 3] = [Self::Transactions, Self::Trades, Self::Holdings];

    /// As in paths and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Trades => "trades",
            Self::Holdings => "holdings",
        }
    }

    /// The formats that can hold it.
    pub fn formats(self) -> impl Iterator<Item = Format> {
        Format::ALL
            .iter()
            .copied()
            .filter(move |format| self == Self::Transactions || format.holds_tables())
    }

    /// The category of the connections that have it.
    pub fn category(self) -> ConnectionCategory {
        match self {
            Self::Transactions => ConnectionCategory::Banking,
            Self::Trades | Self::Holdings => ConnectionCategory::Brokerage,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    Jsonl,
    Ofx,
    Qif,
    /// For hledger and ledger.
    Journal,
    Beancount,
}

/// The columns of a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// The names of `/v1`.
    #[default]
    Wide,
    /// The columns that YNAB's import expects.
    Ynab,
}

/// Choices of CSV. Other formats ignore them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    pub layout: Layout,
    /// Begins the file with a byte order mark, by which Excel recognises UTF-8.
    pub byte_order_mark: bool,
    /// Puts `'` before texts that spreadsheets would run as formulas.
    pub quote_formulas: bool,
}

/// What is known before the rows.
pub struct Head<'a> {
    pub resource: Resource,
    /// `None` if the file has rows of several accounts.
    pub account: Option<&'a Account>,
    /// The user's accounts. See [`Format::names_accounts`].
    pub accounts: &'a [Account],
    /// The balance of `account`. See [`Format::uses_balance`].
    pub balance: Option<&'a Balance>,
    /// The first and the last requested day. `None` if it is open.
    pub days: (Option<Date>, Option<Date>),
    pub read_at: Timestamp,
    /// The day of `read_at` in the user's timezone.
    pub today: Date,
}

impl Head<'_> {
    /// The account of the file with its balance and the currency of that, as far as the provider
    /// sent them.
    fn known_balance(&self) -> Option<(&Account, &Decimal<'static>, Currency)> {
        let (account, balance) = self.account.zip(self.balance)?;
        let currency = balance.currency.unwrap_or(account.currency);
        Some((account, balance.current.as_ref()?, currency))
    }
}

/// A connection that a file leaves out because it cannot be read.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    pub connection_id: ConnectionId,
    /// Untrusted text.
    pub institution_name: String,
    /// Why, in the words of the header `Bellbird-Error`.
    pub error: &'static str,
}

/// A file cannot hold what it should. Names no amount and no text of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("this format holds one account a file: name it with accountId")]
    OneAccount,
    #[error(
        "OFX needs a balance in the account's currency, and the provider did not send it: take another format"
    )]
    NoBalance,
    #[error(
        "a transaction is not in the account's currency, which this format cannot say: take csv, journal or beancount"
    )]
    OtherCurrency,
    #[error("an amount has more than two decimals, which programs misread in QIF: take ofx or csv")]
    TooManyPlaces,
    #[error(
        "an amount has more digits than programs read exactly in this format: take csv or jsonl"
    )]
    TooManyDigits,
    #[error("could not write the file")]
    Internal,
}

/// Writes a file. Call `start` once, the method of the resource for each row in the order of `/v1`,
/// and `end` once.
///
/// Each call appends to `out`, which the caller may empty between calls. After an error the file
/// cannot be continued.
pub trait WriteFile: Send {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError>;

    /// `date` is the day of posting in the user's timezone.
    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError>;

    /// Fails in formats that do not hold trades: see [`Resource::formats`].
    fn trade(&mut self, _trade: &Trade<'_>, _out: &mut Vec<u8>) -> Result<(), FormatError> {
        Err(FormatError::Internal)
    }

    /// As [`Self::trade`].
    fn holding(&mut self, _holding: &Holding<'_>, _out: &mut Vec<u8>) -> Result<(), FormatError> {
        Err(FormatError::Internal)
    }

    /// What follows the last of all rows: nothing in formats that have no place for it. `left_out`
    /// is `None` for files that leave nothing out.
    fn end(&mut self, _rows: u64, _left_out: Option<&[LeftOut]>, _out: &mut Vec<u8>) {}
}

impl Format {
    pub const ALL: &'static [Self] = &[
        Self::Csv,
        Self::Jsonl,
        Self::Ofx,
        Self::Qif,
        Self::Journal,
        Self::Beancount,
    ];

    /// The suffix of paths and files, and the name in commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Ofx => "ofx",
            Self::Qif => "qif",
            Self::Journal => "journal",
            Self::Beancount => "beancount",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.as_str() == name)
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Jsonl => "application/x-ndjson",
            Self::Ofx => "application/x-ofx",
            Self::Qif => "application/qif; charset=utf-8",
            Self::Journal | Self::Beancount => "text/plain; charset=utf-8",
        }
    }

    /// Whether a file may have rows of several accounts. With [`Layout::Ynab`] it may not: it has
    /// no column for them.
    pub const fn holds_several_accounts(self, layout: Layout) -> bool {
        match self {
            Self::Csv => matches!(layout, Layout::Wide),
            Self::Ofx | Self::Qif => false,
            _ => true,
        }
    }

    /// Whether a file of one account says its balance. OFX cannot do without; journals leave it out
    /// if it is unknown.
    pub const fn uses_balance(self) -> bool {
        matches!(self, Self::Ofx | Self::Journal | Self::Beancount)
    }

    /// Whether a file has names of accounts that only differ if the user's other accounts are
    /// known.
    pub const fn names_accounts(self) -> bool {
        matches!(self, Self::Journal | Self::Beancount)
    }

    /// Whether it holds trades and holdings. CSV does with [`Layout::Wide`] only.
    pub const fn holds_tables(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl)
    }

    pub fn writer(self, options: Options) -> Box<dyn WriteFile> {
        match self {
            Self::Csv if options.layout == Layout::Ynab => Box::new(ynab::Ynab::new(options)),
            Self::Csv => Box::new(csv::Csv::new(options)),
            Self::Jsonl => Box::new(jsonl::Jsonl),
            Self::Ofx => Box::new(ofx::Ofx::default()),
            Self::Qif => Box::new(qif::Qif::default()),
            Self::Journal => Box::new(journal::Journal::new()),
            Self::Beancount => Box::new(beancount::Beancount::new()),
        }
    }
}
