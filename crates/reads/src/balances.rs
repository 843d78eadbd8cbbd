//! Reads the balances of any set of accounts, from all their providers concurrently. A failure of one connection does
//! not affect the others.

use std::sync::Arc;

use bellbird_domain::{Account, AccountId, Balance, Caller, ConnectionId, Currency};
use bellbird_providers::{BalancesQuery, CallContext, Error};
use bellbird_storage::Chain;
use futures_util::future::join_all;
use tracing::Instrument as _;

use crate::{ConnectionContext, ReadError, Reads};

/// What was read of the balances of a request.
pub struct BalancesRead {
    /// Each requested account. `None` if the provider failed for it.
    pub balances: Vec<(AccountId, Option<Balance>)>,
    /// Connections whose consent turned out to be gone.
    pub broken: Vec<ConnectionId>,
}

impl BalancesRead {
    /// Whether every account has a balance.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.balances.iter().all(|(_, balance)| balance.is_some())
    }
}

impl Reads {
    /// Reads the balances of `accounts`, which must belong to the caller. Queries all providers concurrently, each with
    /// as few calls as it allows.
    ///
    /// Fails with [`ReadError::Unavailable`] only if every account failed with a transient error.
    pub async fn balances(
        &self,
        call: &CallContext,
        caller: &Caller,
        mut accounts: Vec<Account>,
    ) -> Result<BalancesRead, ReadError> {
        accounts.sort_by_key(|account| account.connection_id);
        let groups: Vec<&[Account]> =
            accounts.chunk_by(|one, other| one.connection_id == other.connection_id).collect();
        let contexts = join_all(groups.iter().map(|group| self.group_context(caller, group))).await;
        let mut outcomes: Vec<Result<Balance, Error>> =
            self.fetch_all(call, &groups, &contexts).await.into_iter().flatten().collect();
        self.learn_currencies(&accounts, &outcomes);

        if !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(Error::is_transient)) {
            let error = outcomes.swap_remove(0).err().unwrap_or(Error::Deadline);
            return Err(ReadError::from_provider(&error, bellbird_domain::ConnectionStatus::Active));
        }
        let mut broken: Vec<ConnectionId> = accounts
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| matches!(outcome, Err(Error::ReconnectNeeded(_))))
            .map(|(account, _)| account.connection_id)
            .collect();
        broken.dedup();
        let balances = accounts.iter().map(|account| account.id).zip(outcomes.into_iter().map(Result::ok)).collect();
        Ok(BalancesRead { balances, broken })
    }

    /// Loads the context of a group of accounts of one connection. `None` if the connection was removed meanwhile,
    /// which counts as an unavailable provider.
    async fn group_context(&self, caller: &Caller, group: &[Account]) -> Option<Arc<ConnectionContext>> {
        match self.connection_context(caller, group.first()?.connection_id).await {
            Ok(context) => Some(context),
            Err(error) => {
                if let ReadError::Storage(error) = &error {
                    tracing::error!(error = %Chain(error), "{}", error.log_message());
                }
                None
            }
        }
    }

    /// Queries each provider once, for all groups of its connections. Returns one list of outcomes for each group.
    async fn fetch_all(
        &self,
        call: &CallContext,
        groups: &[&[Account]],
        contexts: &[Option<Arc<ConnectionContext>>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        let mut outcomes: Vec<Vec<Result<Balance, Error>>> =
            groups.iter().map(|group| vec![Err(Error::unavailable("provider not configured")); group.len()]).collect();
        let requests = self.inner.providers.iter().map(|provider| async move {
            let is_served = |context: &ConnectionContext| context.connection.provider == provider.name().as_str();
            let (positions, queries): (Vec<usize>, Vec<BalancesQuery<'_>>) = contexts
                .iter()
                .enumerate()
                .filter_map(|(at, context)| Some((at, context.as_deref().filter(|context| is_served(context))?)))
                .map(|(at, context)| (at, BalancesQuery { credentials: &context.credentials, accounts: groups[at] }))
                .unzip();
            let read = if queries.is_empty() { Vec::new() } else { provider.balances(call, &queries).await };
            positions.into_iter().zip(read)
        });
        for (at, read) in join_all(requests).await.into_iter().flatten() {
            if let Some(context) = contexts[at].as_deref().filter(|_| read.iter().any(Result::is_ok)) {
                self.record_refresh(context);
            }
            for (outcome, read) in outcomes[at].iter_mut().zip(read) {
                *outcome = read;
            }
        }
        outcomes
    }

    /// Stores the currency of each account whose currency was unknown, in the background.
    fn learn_currencies(&self, accounts: &[Account], outcomes: &[Result<Balance, Error>]) {
        for (account, outcome) in accounts.iter().zip(outcomes) {
            let learned = outcome.as_ref().ok().and_then(|balance| balance.currency);
            let Some(currency) = learned.filter(|_| account.currency == Currency::UNKNOWN) else { continue };
            let storage = self.inner.storage.clone();
            let (user_id, id) = (account.user_id, account.id);
            let write = async move {
                if let Err(error) = storage.accounts().set_currency(user_id, id, currency).await {
                    tracing::warn!(account_id = %id, error = %error, "could not store account currency");
                }
            };
            tokio::spawn(write.in_current_span());
        }
    }
}
