//! Reads the balances of any set of accounts, from all their providers concurrently. A failure of
//! one connection does not affect the others.

use std::sync::Arc;

use bellbird_domain::{Account, Balance, Caller, Currency};
use bellbird_providers::{BalancesQuery, CallContext};
use bellbird_storage::Chain;
use futures_util::future::join_all;
use tracing::Instrument as _;

use crate::{ConnectionContext, ReadError, Reads};

/// Each requested account, sorted by connection, with its balance or why it could not be read.
pub type Balances = Vec<(Account, Result<Balance, ReadError>)>;

impl Reads {
    /// Reads the balances of `accounts`, which must belong to the caller. Queries all providers
    /// concurrently, each with as few calls as it allows.
    ///
    /// Fails with [`ReadError::Unavailable`] only if every account failed with a transient error.
    pub async fn balances(
        &self,
        call: &CallContext,
        caller: &Caller,
        mut accounts: Vec<Account>,
    ) -> Result<Balances, ReadError> {
        accounts.sort_by_key(|account| account.connection_id);
        let groups: Vec<&[Account]> = accounts
            .chunk_by(|one, other| one.connection_id == other.connection_id)
            .collect();
        let contexts = join_all(groups.iter().map(|group| self.group_context(caller, group))).await;
        let outcomes: Vec<_> = self
            .fetch_all(call, &groups, &contexts)
            .await
            .into_iter()
            .flatten()
            .collect();
        self.learn_currencies(&accounts, &outcomes);
        match outcomes.first() {
            Some(Err(first))
                if outcomes
                    .iter()
                    .all(|read| read.as_ref().is_err_and(ReadError::is_transient)) =>
            {
                Err(first.clone())
            }
            _ => Ok(accounts.into_iter().zip(outcomes).collect()),
        }
    }

    /// Loads the context of a group of accounts of one connection. `None` if the connection was
    /// removed meanwhile, which counts as an unavailable provider.
    async fn group_context(
        &self,
        caller: &Caller,
        group: &[Account],
    ) -> Option<Arc<ConnectionContext>> {
        match self
            .load_context(caller, group.first()?.connection_id)
            .await
        {
            Ok(context) => Some(context),
            Err(error) => {
                if let ReadError::Storage(error) = &error {
                    tracing::error!(error = %Chain(error), "{}", error.log_message());
                }
                None
            }
        }
    }

    /// Queries each provider once, for all groups of its connections. Returns one list of outcomes
    /// for each group.
    async fn fetch_all(
        &self,
        call: &CallContext,
        groups: &[&[Account]],
        contexts: &[Option<Arc<ConnectionContext>>],
    ) -> Vec<Vec<Result<Balance, ReadError>>> {
        // Of a connection that was removed meanwhile, or whose provider is not configured.
        let unavailable = Err(ReadError::Unavailable {
            retry_after: None,
            is_transient: true,
        });
        let mut outcomes: Vec<_> = groups
            .iter()
            .map(|group| vec![unavailable.clone(); group.len()])
            .collect();
        let now = self.inner.clock.now();
        for (outcomes, context) in outcomes.iter_mut().zip(contexts) {
            if let Some(context) = context.as_ref().filter(|context| context.is_gone(now)) {
                outcomes.fill(Err(ReadError::Reconnect(context.connection.status)));
            }
        }
        let enabled = self.inner.providers.enabled();
        let requests = enabled.iter().map(|enabled| async move {
            let provider = &enabled.provider;
            let is_served = |context: &ConnectionContext| {
                context.connection.provider == provider.name().as_str() && !context.is_gone(now)
            };
            let (positions, queries): (Vec<usize>, Vec<BalancesQuery<'_>>) = contexts
                .iter()
                .enumerate()
                .filter_map(|(at, context)| {
                    Some((at, context.as_deref().filter(|context| is_served(context))?))
                })
                .map(|(at, context)| {
                    (
                        at,
                        BalancesQuery {
                            credentials: &context.credentials,
                            accounts: groups[at],
                        },
                    )
                })
                .unzip();
            let read = if queries.is_empty() {
                Vec::new()
            } else {
                provider.balances(call, &queries).await
            };
            positions.into_iter().zip(read)
        });
        for (at, read) in join_all(requests).await.into_iter().flatten() {
            let Some(context) = &contexts[at] else {
                continue;
            };
            if read.iter().any(Result::is_ok) {
                self.record_refresh(context);
            }
            for (outcome, read) in outcomes[at].iter_mut().zip(read) {
                *outcome = read
                    .map_err(|error| ReadError::from_provider(&error, context.connection.status));
                if matches!(outcome, Err(ReadError::Reconnect(_))) {
                    context.note_gone(now);
                }
            }
        }
        outcomes
    }

    /// Stores the currency of each account whose currency was unknown, in the background.
    fn learn_currencies(&self, accounts: &[Account], outcomes: &[Result<Balance, ReadError>]) {
        for (account, outcome) in accounts.iter().zip(outcomes) {
            let learned = outcome.as_ref().ok().and_then(|balance| balance.currency);
            let Some(currency) = learned.filter(|_| account.currency == Currency::UNKNOWN) else {
                continue;
            };
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
