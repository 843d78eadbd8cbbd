//! Reads the holdings of a connection, all accounts concurrently.

use bellbird_domain::{AccountId, Holding};
use bellbird_providers::CallContext;
use futures_util::future::join_all;

use crate::{ConnectionContext, ReadError, Reads};

/// Appends a holding to what was written of its account so far.
pub type WriteHolding<'w> = dyn Fn(&Holding<'_>, &mut Vec<u8>) + Sync + 'w;

impl Reads {
    /// Reads the holdings of each account of the connection. Returns what `write` wrote, or the error of that account.
    pub async fn holdings(
        &self,
        call: &CallContext,
        context: &ConnectionContext,
        write: &WriteHolding<'_>,
    ) -> Result<Vec<(AccountId, Result<Vec<u8>, ReadError>)>, ReadError> {
        let all: Vec<_> = context.accounts.iter().map(|account| account.id).collect();
        self.holdings_of(call, context, &all, write).await
    }

    /// As [`Self::holdings`], of these accounts. Each takes a call of the provider.
    pub async fn holdings_of(
        &self,
        call: &CallContext,
        context: &ConnectionContext,
        accounts: &[AccountId],
        write: &WriteHolding<'_>,
    ) -> Result<Vec<(AccountId, Result<Vec<u8>, ReadError>)>, ReadError> {
        let brokerage = self.brokerage(&context.connection)?;
        let requested = context.accounts.iter().filter(|account| accounts.contains(&account.id));
        let reads = requested.map(|account| async move {
            let mut written = Vec::new();
            let mut sink = |holding: Holding<'_>| write(&holding, &mut written);
            let outcome = brokerage.holdings(call, &context.credentials, account, &mut sink).await;
            let outcome = outcome.map_err(|error| ReadError::from_provider(&error, context.connection.status));
            (account.id, outcome.map(|()| written))
        });
        let accounts = join_all(reads).await;
        if accounts.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.record_refresh(context);
        }
        Ok(accounts)
    }
}
