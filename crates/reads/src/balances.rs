//! Balances of any mix of accounts: all connections at once, each failure confined to its accounts.

use bellbird_domain::{Account, AccountId, Balance, Caller, ConnectionId, Currency};
use bellbird_providers::{Call, Error};
use bellbird_storage::Chain;
use futures_util::future::join_all;

use crate::{ReadError, Reads};

/// What was found out.
pub struct BalancesAnswer {
    /// Each account asked for; none where the provider failed for it.
    pub balances: Vec<(AccountId, Option<Balance>)>,
    /// Connections that turned out to have lost their consent.
    pub broken: Vec<ConnectionId>,
}

impl BalancesAnswer {
    /// Whether every account has an answer.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.balances.iter().all(|(_, balance)| balance.is_some())
    }
}

impl Reads {
    /// The caller's accounts with these ids.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] unless every one exists and is the caller's.
    pub async fn own_accounts(&self, caller: &Caller, ids: &[AccountId]) -> Result<Vec<Account>, ReadError> {
        let accounts = self.inner.storage.find_accounts(caller.user_id, ids).await?;
        if accounts.len() == ids.len() { Ok(accounts) } else { Err(ReadError::NotFound) }
    }

    /// Reads the balances of the caller's own `accounts`, one provider call a connection, all at the same time.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] when every account failed, each for a reason that may pass.
    pub async fn balances(
        &self,
        call: &Call,
        caller: &Caller,
        mut accounts: Vec<Account>,
    ) -> Result<BalancesAnswer, ReadError> {
        accounts.sort_by_key(|account| account.connection_id);
        let groups = accounts.chunk_by(|one, other| one.connection_id == other.connection_id);
        let outcomes = join_all(groups.map(|group| self.connection_balances(call, caller, group))).await;
        let mut outcomes: Vec<Result<Balance, Error>> = outcomes.into_iter().flatten().collect();
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
        Ok(BalancesAnswer { balances, broken })
    }

    async fn connection_balances(
        &self,
        call: &Call,
        caller: &Caller,
        group: &[Account],
    ) -> Vec<Result<Balance, Error>> {
        let all_fail = || vec![Err(Error::unavailable("not offered here")); group.len()];
        let Some(first) = group.first() else { return Vec::new() };
        // Gone since its accounts were found: the same as a provider that does not answer.
        let scope = match self.scope(caller, first.connection_id).await {
            Ok(scope) => scope,
            Err(error) => {
                if let ReadError::Storage(error) = &error {
                    tracing::error!(error = %Chain(error), "database failed");
                }
                return all_fail();
            }
        };
        let Ok(provider) = self.provider(&scope.connection) else { return all_fail() };
        let outcomes = provider.balances(call, &scope.grant, group).await;
        if outcomes.iter().any(Result::is_ok) {
            self.note_answered(&scope);
        }
        outcomes
    }

    /// Keeps the currency of an account that had none yet.
    fn learn_currencies(&self, accounts: &[Account], outcomes: &[Result<Balance, Error>]) {
        for (account, outcome) in accounts.iter().zip(outcomes) {
            let learned = outcome.as_ref().ok().and_then(|balance| balance.currency);
            let Some(currency) = learned.filter(|_| account.currency == Currency::UNKNOWN) else { continue };
            let storage = self.inner.storage.clone();
            let (user_id, id) = (account.user_id, account.id);
            tokio::spawn(async move {
                if let Err(error) = storage.set_account_currency(user_id, id, currency).await {
                    tracing::warn!(account_id = %id, error = %error, "currency not kept");
                }
            });
        }
    }
}
