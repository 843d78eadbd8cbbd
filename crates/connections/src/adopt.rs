//! Taking over a grant that was made elsewhere.

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionStatus, UserId};
use bellbird_providers::{Call, FoundAccount, FoundConnection, Provider, Standing};
use bellbird_storage::{NewAccount, NewConnection};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::{Connections, ConnectionsError};

/// Data lags consent: accounts that are not there yet are asked for again after this, until [`ACCOUNTS_WAIT_MAX`].
const ACCOUNTS_ASKED_AGAIN_AFTER: Duration = Duration::from_secs(2);
const ACCOUNTS_WAIT_MAX: Duration = Duration::from_secs(30);

/// What became of a grant.
#[derive(Debug)]
pub struct Adopted {
    /// What is connected now.
    pub connections: Vec<Connection>,
    /// What the grant covers as well, but does not work.
    pub left_out: Vec<LeftOut>,
}

/// A consent that was not adopted because it does not work.
#[derive(Debug)]
pub struct LeftOut {
    /// Whose it is.
    pub institution_name: String,
    /// What it would be.
    pub status: ConnectionStatus,
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
        let (working, left_out) = working(found)?;
        let mut connections = Vec::with_capacity(working.len());
        for connection in working {
            let accounts = accounts_when_there(provider.as_ref(), &call, &connection.grant).await?;
            connections.push(self.store(user_id, provider.as_ref(), &connection, &accounts).await?);
        }
        Ok(Adopted { connections, left_out })
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

/// The consents that work, and those that do not; an error when none works.
fn working(found: Vec<FoundConnection>) -> Result<(Vec<FoundConnection>, Vec<LeftOut>), ConnectionsError> {
    let (mut working, mut left_out) = (Vec::new(), Vec::new());
    for connection in found {
        match connection.standing {
            Standing::Active => working.push(connection),
            Standing::Broken(status) => {
                left_out.push(LeftOut { institution_name: connection.institution_name, status });
            }
        }
    }
    match (working.is_empty(), left_out.first()) {
        (false, _) => Ok((working, left_out)),
        (true, Some(broken)) => Err(ConnectionsError::Broken(broken.status)),
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
