//! Rows that cannot be read. A read of the API rejects their page. A sync reads the other rows, and
//! shows that some are missing.

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::Error;

/// Why a row cannot be read: a closed set, because operators see the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableReason {
    /// An amount, quantity or price is not a decimal.
    InvalidAmount,
    MissingAmount,
    InvalidDate,
    /// The row is not of the documented JSON: a member is missing, or of another type.
    InvalidForm,
}

impl UnreadableReason {
    /// The word in commands, log and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidAmount => "invalid_amount",
            Self::MissingAmount => "missing_amount",
            Self::InvalidDate => "invalid_date",
            Self::InvalidForm => "invalid_form",
        }
    }

    /// The error of a page that has to be read whole. None if the page is served without the row.
    fn page_error(self) -> Option<Error> {
        match self {
            Self::InvalidAmount => Some(Error::Malformed("an amount is not a decimal")),
            Self::MissingAmount => Some(Error::Malformed("a transaction has no amount")),
            Self::InvalidDate => None,
            Self::InvalidForm => Some(Error::Malformed("not the documented JSON")),
        }
    }
}

/// A row that cannot be read. It holds nothing of the row but its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableRow {
    pub reason: UnreadableReason,
    /// None if the time cannot be read.
    pub at: Option<Timestamp>,
}

/// What becomes of the unreadable rows of a page.
#[derive(Debug, Default)]
pub(crate) struct UnreadableRows(Option<Mutex<Vec<UnreadableRow>>>);

impl UnreadableRows {
    pub(crate) fn collected() -> Self {
        Self(Some(Mutex::default()))
    }

    /// Whether a page with unreadable rows is read.
    pub(crate) fn are_collected(&self) -> bool {
        self.0.is_some()
    }

    /// Collects the rows of a page, or else fails the page. The last check of a page, because a
    /// page that fails may be read again.
    pub(crate) fn accept(&self, rows: &[UnreadableRow]) -> Result<(), Error> {
        match &self.0 {
            Some(collected) if !rows.is_empty() => collected.lock().extend_from_slice(rows),
            Some(_) => {}
            None => rows
                .iter()
                .try_for_each(|row| row.reason.page_error().map_or(Ok(()), Err))?,
        }
        Ok(())
    }

    pub(crate) fn take(&self) -> Vec<UnreadableRow> {
        self.0
            .as_ref()
            .map(|collected| std::mem::take(&mut *collected.lock()))
            .unwrap_or_default()
    }
}
