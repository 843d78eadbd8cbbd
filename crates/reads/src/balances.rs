//! Balances of any mix of accounts: all connections at once, each failure confined to its accounts.

use std::sync::Arc;

use bellbird_domain::{Account, AccountId, Balance, Caller, ConnectionId, Currency};
use bellbird_providers::{BalancesQuery, Call, Error};
use bellbird_storage::Chain;
use futures_util::future::join_all;

use crate::{ReadError, Reads, Scope};

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

    /// Reads the balances of the caller's own `accounts`: all providers at the same time, each with as few calls as it
    /// allows.
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
        let groups: Vec<&[Account]> =
            accounts.chunk_by(|one, other| one.connection_id == other.connection_id).collect();
        let scopes = join_all(groups.iter().map(|group| self.scope_of(caller, group))).await;
        let mut outcomes: Vec<Result<Balance, Error>> =
            self.ask_all(call, &groups, &scopes).await.into_iter().flatten().collect();
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

    /// The scope of a group of accounts of one connection. None when it is gone since its accounts were found: the same
    /// as a provider that does not answer.
    async fn scope_of(&self, caller: &Caller, group: &[Account]) -> Option<Arc<Scope>> {
        match self.scope(caller, group.first()?.connection_id).await {
            Ok(scope) => Some(scope),
            Err(error) => {
                if let ReadError::Storage(error) = &error {
                    tracing::error!(error = %Chain(error), "database failed");
                }
                None
            }
        }
    }

    /// One question to each provider, about all groups that are its own. One list of outcomes a group.
    async fn ask_all(
        &self,
        call: &Call,
        groups: &[&[Account]],
        scopes: &[Option<Arc<Scope>>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        let mut outcomes: Vec<Vec<Result<Balance, Error>>> =
            groups.iter().map(|group| vec![Err(Error::unavailable("not offered here")); group.len()]).collect();
        let questions = self.inner.providers.iter().map(|provider| async move {
            let is_its = |scope: &Scope| scope.connection.provider == provider.name().as_str();
            let (places, asked): (Vec<usize>, Vec<BalancesQuery<'_>>) = scopes
                .iter()
                .enumerate()
                .filter_map(|(at, scope)| Some((at, scope.as_deref().filter(|scope| is_its(scope))?)))
                .map(|(at, scope)| (at, BalancesQuery { grant: &scope.grant, accounts: groups[at] }))
                .unzip();
            let answers = if asked.is_empty() { Vec::new() } else { provider.balances(call, &asked).await };
            places.into_iter().zip(answers)
        });
        for (at, answers) in join_all(questions).await.into_iter().flatten() {
            if let Some(scope) = scopes[at].as_deref().filter(|_| answers.iter().any(Result::is_ok)) {
                self.note_answered(scope);
            }
            for (outcome, answer) in outcomes[at].iter_mut().zip(answers) {
                *outcome = answer;
            }
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
