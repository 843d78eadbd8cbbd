//! Reads the holdings of accounts of one connection, all accounts concurrently.

use bellbird_domain::{AccountId, Holding};
use bellbird_providers::CallContext;
use bellbird_providers::pages::Trades;
use futures_util::future::join_all;

use crate::connection_context::lister;
use crate::{ReadError, Reads, SelectedAccounts};

/// Adds a holding to what was made of its account so far.
pub type AddHolding<'a, T> = dyn Fn(&Holding<'_>, &mut T) + Sync + 'a;

impl Reads {
    /// Reads the holdings of each account. Returns what `add` made of them, or the error of that
    /// account. Each account takes a call of the provider.
    pub async fn holdings<T: Default + Send>(
        &self,
        call: &CallContext,
        selected: &SelectedAccounts,
        add: &AddHolding<'_, T>,
    ) -> Result<Vec<(AccountId, Result<T, ReadError>)>, ReadError> {
        let context = &selected.context;
        let provider = self.provider(&context.connection)?;
        let brokerage = lister::<Trades>(provider.as_ref())?;
        let reads = selected.accounts().map(|account| async move {
            let mut made = T::default();
            let mut sink = |holding: Holding<'_>| add(&holding, &mut made);
            let outcome = brokerage
                .holdings(call, &context.credentials, account, &mut sink)
                .await;
            let outcome = outcome
                .map_err(|error| ReadError::from_provider(&error, context.connection.status));
            (account.id, outcome.map(|()| made))
        });
        let accounts = join_all(reads).await;
        if accounts.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.record_refresh(context);
        }
        Ok(accounts)
    }
}
