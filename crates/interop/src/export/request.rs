//! What a file contains, and in which form.

use bellbird_domain::{AccountId, ConnectionCategory, ConnectionId, DateFilter};

use super::formats::{Format, Options};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Transactions,
    Trades,
    Holdings,
}

impl Resource {
    pub const ALL: [Self; 3] = [Self::Transactions, Self::Trades, Self::Holdings];

    /// As in paths and commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Trades => "trades",
            Self::Holdings => "holdings",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|resource| resource.as_str() == name)
    }

    /// The formats that can hold it.
    pub fn formats(self) -> impl Iterator<Item = Format> {
        Format::ALL
            .iter()
            .copied()
            .filter(move |format| self == Self::Transactions || format.holds_tables())
    }

    /// The category of the connections that have it.
    #[must_use]
    pub fn category(self) -> ConnectionCategory {
        match self {
            Self::Transactions => ConnectionCategory::Banking,
            Self::Trades | Self::Holdings => ConnectionCategory::Brokerage,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct FileRequest {
    pub resource: Resource,
    /// One of [`Resource::formats`].
    pub format: Format,
    /// Those of CSV.
    pub options: Options,
    /// Without an id, the file is about all accounts of the category.
    pub connection_id: Option<ConnectionId>,
    pub account_id: Option<AccountId>,
    /// Without bounds, transactions are those of the last 30 days, and the broker decides about
    /// trades. Holdings have none.
    pub dates: DateFilter,
    /// Leaves out connections that cannot be read, as long as one of several can.
    pub partial: bool,
}

impl FileRequest {
    /// Whether the file cannot be made without an account.
    #[must_use]
    pub fn lacks_account(&self) -> bool {
        let holds_several = self.resource != Resource::Transactions
            || self.format.holds_several_accounts(self.options.layout);
        !holds_several && self.account_id.is_none()
    }
}
