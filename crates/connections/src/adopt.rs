//! Taking over a grant that was made elsewhere.

use std::time::Duration;

use bellbird_domain::{Connection, UserId};
use bellbird_providers::{Call, FoundAccount, FoundConnection, Provider, Standing};
use bellbird_storage::{NewAccount, NewConnection};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::{Connections, ConnectionsError};

/// Data lags consent: accounts that are not there yet are asked for again after this, until [`ACCOUNTS_WAIT_MAX`].
const ACCOUNTS_ASKED_AGAIN_AFTER: Duration = Duration::from_secs(2);
const ACCOUNTS_WAIT_MAX: Duration = Duration::from_secs(30);

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
    ) -> Result<Vec<Connection>, ConnectionsError> {
        let provider = self.provider(provider)?;
        let call = self.call();
        let found = provider.discover(&call, grant).await?;
        let working = working(found)?;
        let mut adopted = Vec::with_capacity(working.len());
        for connection in working {
            let accounts = accounts_when_there(provider.as_ref(), &call, &connection.grant).await?;
            adopted.push(self.store(user_id, provider.as_ref(), &connection, &accounts).await?);
        }
        Ok(adopted)
    }

    async fn store(
        &self,
        user_id: UserId,
        provider: &dyn Provider,
        found: &FoundConnection,
        accounts: &[FoundAccount],
    ) -> Result<Connection, ConnectionsError> {
        let connection = NewConnection {
            user_id,
            provider: provider.name().as_str(),
            category: provider.kind().category(),
            provider_connection_id: &found.provider_connection_id,
            institution_id: &found.institution_id,
            institution_name: &found.institution_name,
            institution_logo: found.institution_logo.as_deref(),
            grant: &found.grant,
        };
        let accounts: Vec<NewAccount<'_>> = accounts.iter().map(new_account).collect();
        Ok(self.storage.adopt_connection(&connection, &accounts, self.clock.now()).await?)
    }
}

fn new_account(found: &FoundAccount) -> NewAccount<'_> {
    NewAccount {
        provider_account_id: &found.provider_account_id,
        name: &found.name,
        account_type: found.account_type,
        number: found.number.as_ref(),
        currency: found.currency,
    }
}

/// The consents that work; an error when there is none.
fn working(found: Vec<FoundConnection>) -> Result<Vec<FoundConnection>, ConnectionsError> {
    let broken = found.iter().find_map(|connection| match connection.standing {
        Standing::Broken(status) => Some(status),
        Standing::Active => None,
    });
    let working: Vec<_> = found.into_iter().filter(|connection| connection.standing == Standing::Active).collect();
    match (working.is_empty(), broken) {
        (false, _) => Ok(working),
        (true, Some(status)) => Err(ConnectionsError::Broken(status)),
        (true, None) => Err(ConnectionsError::NoConsent),
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
