//! What a connection's accounts hold: all accounts at once.

use bellbird_domain::{AccountId, Holding};
use bellbird_providers::Call;
use futures_util::future::join_all;

use crate::{ReadError, Reads, Scope};

/// Writes a holding.
pub type WriteHolding = fn(&Holding<'_>, &mut Vec<u8>);

impl Reads {
    /// Reads what each account of the connection holds: its holdings as `write` writes them, separated by commas, or
    /// why there are none.
    ///
    /// # Errors
    /// [`ReadError::WrongCategory`]; [`ReadError::Unavailable`] when the provider is not offered.
    pub async fn holdings(
        &self,
        call: &Call,
        scope: &Scope,
        write: WriteHolding,
    ) -> Result<Vec<(AccountId, Result<Vec<u8>, ReadError>)>, ReadError> {
        let brokerage = self.brokerage(&scope.connection)?;
        let reads = scope.accounts.iter().map(|account| async move {
            let mut written = Vec::new();
            let mut sink = |holding: Holding<'_>| {
                if !written.is_empty() {
                    written.push(b',');
                }
                write(&holding, &mut written);
            };
            let outcome = brokerage.holdings(call, &scope.grant, account, &mut sink).await;
            let outcome = outcome.map_err(|error| ReadError::from_provider(&error, scope.connection.status));
            (account.id, outcome.map(|()| written))
        });
        let accounts = join_all(reads).await;
        if accounts.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.note_answered(scope);
        }
        Ok(accounts)
    }
}
