//! What a file contains, and in which form.

use bellbird_domain::{AccountId, ConnectionId, DateFilter};

use super::formats::{Format, Options, Resource};

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
    pub fn lacks_account(&self) -> bool {
        let holds_several = self.resource != Resource::Transactions
            || self.format.holds_several_accounts(self.options.layout);
        !holds_several && self.account_id.is_none()
    }
}
