//! Taking over a grant that was made elsewhere.

use std::time::Duration;

use bellbird_domain::{AccountId, Connection, ConnectionId, UserId};
use bellbird_providers::{Call, FoundAccount, FoundConnection, Provider, Standing};
use bellbird_storage::{NewAccount, NewConnection};
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::{Connections, ConnectionsError, schedule};

/// Data lags consent: accounts that are not there yet are asked for again after this, until [`ACCOUNTS_WAIT_MAX`].
const ACCOUNTS_ASKED_AGAIN_AFTER: Duration = Duration::from_secs(2);
const ACCOUNTS_WAIT_MAX: Duration = Duration::from_secs(30);

/// A consent that works, with the accounts that are there by now.
pub(crate) struct Arrived<'a> {
    pub(crate) consent: &'a FoundConnection,
    pub(crate) accounts: &'a [FoundAccount],
    /// Which of ours each account is; may be shorter.
    pub(crate) known_as: &'a [Option<AccountId>],
    /// The connection whose place it takes.
    pub(crate) repairs: Option<ConnectionId>,
}

/// What became of a grant.
#[derive(Debug)]
pub struct Adopted {
    /// What is connected now.
    pub connections: Vec<Connection>,
    /// What the grant covers as well, but could not be taken over.
    pub left_out: Vec<LeftOut>,
}

/// A consent that was not adopted.
#[derive(Debug)]
pub struct LeftOut {
    /// Whose it is.
    pub institution_name: String,
    /// Why.
    pub reason: ConnectionsError,
}

impl Connections {
    /// Adopts what a grant covers: one connection for each consent that works, each with its accounts. Adopting the same
    /// consent again renews its connection and keeps all ids. All or nothing is stored of each connection.
    ///
    /// # Errors
    /// [`ConnectionsError`]; nothing is stored when none of the consents works.
    pub async fn adopt(
        &self,
        user_id: UserId,
        provider: &str,
        grant: &SecretString,
    ) -> Result<Adopted, ConnectionsError> {
        let provider = self.provider(provider)?;
        let call = self.call();
        let found = provider.discover(&call, grant).await?;
        let (mut connections, mut left_out) = (Vec::with_capacity(found.len()), Vec::new());
        for consent in found {
            match self.take_over(user_id, provider.as_ref(), &consent).await {
                Ok(connection) => connections.push(connection),
                Err(reason) => left_out.push(LeftOut { institution_name: consent.institution_name, reason }),
            }
        }
        if connections.is_empty() {
            let first = left_out.into_iter().next();
            return Err(first.map_or(ConnectionsError::NoConsent, |left_out| left_out.reason));
        }
        Ok(Adopted { connections, left_out })
    }

    async fn take_over(
        &self,
        user_id: UserId,
        provider: &dyn Provider,
        consent: &FoundConnection,
    ) -> Result<Connection, ConnectionsError> {
        if let Standing::Broken(status) = consent.standing {
            return Err(ConnectionsError::Broken(status));
        }
        // Time of its own: one that waits for its accounts takes none from the others.
        let accounts = accounts_when_there(provider, &self.call(), &consent.grant).await?;
        let arrived = Arrived { consent, accounts: &accounts, known_as: &[], repairs: None };
        let connection = self.store(user_id, provider, &arrived, None).await?;
        self.subscribe(provider, user_id, &consent.grant).await;
        Ok(connection)
    }

    /// Stores a consent that was given just now. Its accounts may be late: it is looked at again, soon and for a while.
    pub(crate) async fn store_arrived(
        &self,
        user_id: UserId,
        provider: &dyn Provider,
        arrived: &Arrived<'_>,
    ) -> Result<Connection, ConnectionsError> {
        let settling = schedule::looked_at_first(self.clock.now());
        self.store(user_id, provider, arrived, Some(settling)).await
    }

    async fn store(
        &self,
        user_id: UserId,
        provider: &dyn Provider,
        arrived: &Arrived<'_>,
        settling: Option<(Timestamp, Timestamp)>,
    ) -> Result<Connection, ConnectionsError> {
        let Arrived { consent, accounts, known_as, repairs } = arrived;
        let now = self.clock.now();
        let connection = NewConnection {
            user_id,
            provider: provider.name().as_str(),
            category: provider.kind().category(),
            provider_connection_id: &consent.provider_connection_id,
            owner: consent.owner.as_deref(),
            institution_id: &consent.institution_id,
            institution_name: &consent.institution_name,
            institution_logo: consent.institution_logo.as_deref(),
            grant: &consent.grant,
            repairs: *repairs,
            look_at: settling.map(|(look_at, _)| look_at),
            settles_at: settling.map(|(_, settles_at)| settles_at),
            sync_at: schedule::synced_at_first(now),
            cause: if settling.is_some() { "linked" } else { "adopted" },
        };
        let known_as = known_as.iter().copied().chain(std::iter::repeat(None));
        let accounts: Vec<NewAccount<'_>> =
            accounts.iter().zip(known_as).map(|(account, known_as)| new_account(account, known_as)).collect();
        Ok(self.storage.adopt_connection(&connection, &accounts, now).await?)
    }
}

/// An account as the provider tells it, and which of ours it is known to be.
pub(crate) fn new_account(found: &FoundAccount, known_as: Option<AccountId>) -> NewAccount<'_> {
    NewAccount {
        provider_account_id: &found.provider_account_id,
        name: &found.name,
        account_type: found.account_type,
        number: found.number.as_ref(),
        currency: found.currency,
        known_as,
    }
}

async fn accounts_when_there(
    provider: &dyn Provider,
    call: &Call,
    grant: &SecretString,
) -> Result<Vec<FoundAccount>, ConnectionsError> {
    let until = Instant::now() + ACCOUNTS_WAIT_MAX;
    loop {
        let accounts = provider.accounts(call, grant).await?;
        if !accounts.is_empty() {
            return Ok(accounts);
        }
        if Instant::now() + ACCOUNTS_ASKED_AGAIN_AFTER > until {
            return Err(ConnectionsError::NoAccounts);
        }
        tokio::time::sleep(ACCOUNTS_ASKED_AGAIN_AFTER).await;
    }
}
