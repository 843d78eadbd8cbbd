//! Imports consents that were given outside of Bellbird: each becomes a connection with credentials
//! and accounts.
//!
//! Linking uses the same functions to store the consents that users give in the browser.

use std::time::Duration;

use bellbird_domain::{AccountId, Connection, ConnectionId, UserId};
use bellbird_providers::{
    CallContext, Cause, ConsentStatus, FoundAccount, FoundConnection, Provider,
};
use bellbird_storage::{ClaimedJob, NewConnection};
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::account_matching::new_accounts;
use crate::jobs::require_lease;
use crate::refresh::Refreshes;
use crate::state::part;
use crate::{ConnectionsError, removal, schedule};

/// For the provider calls of one step of an import.
const STEP_DEADLINE: Duration = Duration::from_secs(60);
/// Accounts may appear later than the consent. They are polled at this interval, for
/// [`ACCOUNTS_WAIT_MAX`] at most.
const ACCOUNTS_POLL_INTERVAL: Duration = Duration::from_secs(2);
const ACCOUNTS_WAIT_MAX: Duration = Duration::from_secs(30);

/// An active consent, with the accounts that have appeared so far.
pub(crate) struct ActiveConsent<'a> {
    pub(crate) consent: &'a FoundConnection,
    pub(crate) accounts: &'a [FoundAccount],
    /// For each account, the stored account that it matches. May be shorter than `accounts`.
    pub(crate) known_as: &'a [Option<AccountId>],
    /// The connection that gets this consent in place of its own.
    pub(crate) replaces: Option<ConnectionId>,
}

#[derive(Debug)]
pub struct Imported {
    pub connections: Vec<Connection>,
    /// Consents of the same credentials that could not be imported.
    pub skipped: Vec<SkippedConsent>,
}

#[derive(Debug)]
pub struct SkippedConsent {
    pub institution_name: String,
    pub reason: ConnectionsError,
}

part! {
    /// Imports of consents.
    Imports
}

impl Imports<'_> {
    /// Imports the consents that the credentials cover: a connection for each active consent, with
    /// its accounts.
    ///
    /// Importing a consent again renews its connection and keeps all ids. Each connection is stored
    /// in one transaction. Fails, and stores nothing, if none of the consents can be imported.
    pub async fn import(
        self,
        user_id: UserId,
        provider: &str,
        credentials: &SecretString,
    ) -> Result<Imported, ConnectionsError> {
        let provider = self.0.provider(provider)?;
        let context = self.0.call_context_within(STEP_DEADLINE, Cause::Schedule);
        let found = provider.discover(&context, credentials).await?;
        let (mut connections, mut skipped) = (Vec::with_capacity(found.len()), Vec::new());
        for consent in found {
            match self
                .import_consent(user_id, provider.as_ref(), &consent)
                .await
            {
                Ok(connection) => connections.push(connection),
                Err(reason) => skipped.push(SkippedConsent {
                    institution_name: consent.institution_name,
                    reason,
                }),
            }
        }
        if connections.is_empty() {
            let first = skipped.into_iter().next();
            return Err(first.map_or(ConnectionsError::ConsentNotFound, |skipped| skipped.reason));
        }
        Ok(Imported {
            connections,
            skipped,
        })
    }

    async fn import_consent(
        self,
        user_id: UserId,
        provider: &dyn Provider,
        consent: &FoundConnection,
    ) -> Result<Connection, ConnectionsError> {
        if let ConsentStatus::Broken(status) = consent.consent_status {
            return Err(ConnectionsError::ConsentInactive(status));
        }
        // A deadline of its own: waiting for the accounts of one consent must not use up the time
        // of the others.
        let context = self.0.call_context_within(STEP_DEADLINE, Cause::Schedule);
        let accounts = wait_for_accounts(provider, &context, &consent.credentials).await?;
        let active_consent = ActiveConsent {
            consent,
            accounts: &accounts,
            known_as: &[],
            replaces: None,
        };
        let connection = self
            .store_connection(user_id, provider, &active_consent, None)
            .await?;
        Refreshes(self.0)
            .subscribe(provider, user_id, &consent.credentials)
            .await;
        Ok(connection)
    }

    /// Stores a consent that the user gave just now. Its accounts may appear late, so several
    /// refreshes follow. Fails with [`ConnectionsError::Busy`] if the lease of the consent session
    /// was lost.
    pub(crate) async fn store_linked(
        self,
        session: &ClaimedJob,
        provider: &dyn Provider,
        active_consent: &ActiveConsent<'_>,
    ) -> Result<Connection, ConnectionsError> {
        self.store_connection(session.user_id(), provider, active_consent, Some(session))
            .await
    }

    /// Starts the removal of a consent that is not connected. Fails as [`Self::store_linked`].
    pub(crate) async fn withdraw_unconnected(
        self,
        session: &ClaimedJob,
        provider: &dyn Provider,
        consent: &FoundConnection,
        cause: &str,
    ) -> Result<(), ConnectionsError> {
        let now = self.0.clock.now();
        let connection = new_connection(session.user_id(), provider, consent, cause, now);
        let connections = self.0.storage.connections();
        require_lease(
            connections
                .withdraw_unconnected(session, &connection, now)
                .await?,
        )?;
        self.0.wake(&removal::KIND, provider.name().as_str());
        Ok(())
    }

    /// `session`: the job of the consent session in which the user gave the consent.
    async fn store_connection(
        self,
        user_id: UserId,
        provider: &dyn Provider,
        active_consent: &ActiveConsent<'_>,
        session: Option<&ClaimedJob>,
    ) -> Result<Connection, ConnectionsError> {
        let ActiveConsent {
            consent,
            accounts,
            known_as,
            replaces,
        } = active_consent;
        let now = self.0.clock.now();
        let backfill = session.map(|_| schedule::first_refresh_at(now));
        let cause = if session.is_some() {
            "linked"
        } else {
            "imported"
        };
        let connection = NewConnection {
            repairs: *replaces,
            next_refresh_at: backfill.map(|(next_refresh_at, _)| next_refresh_at),
            backfill_ends_at: backfill.map(|(_, backfill_ends_at)| backfill_ends_at),
            first_attempt_at: self.0.event_buffer.first_attempt_at(now),
            ..new_connection(user_id, provider, consent, cause, now)
        };
        let (accounts, connections) = (
            new_accounts(accounts, known_as),
            self.0.storage.connections(),
        );
        let stored = match session {
            Some(session) => connections
                .import_for(session, &connection, &accounts, now)
                .await?
                .ok_or(ConnectionsError::Busy)?,
            None => connections.import(&connection, &accounts, now).await?,
        };
        // A repair is a webhook event.
        self.0.event_buffer.wake();
        Ok(stored)
    }
}

fn new_connection<'a>(
    user_id: UserId,
    provider: &dyn Provider,
    consent: &'a FoundConnection,
    cause: &'a str,
    now: Timestamp,
) -> NewConnection<'a> {
    NewConnection {
        user_id,
        provider: provider.name().as_str(),
        category: provider.kind().category(),
        provider_connection_id: &consent.provider_connection_id,
        provider_user_id: consent.provider_user_id.as_deref(),
        consent_expires_at: consent.consent_expires_at,
        institution_id: &consent.institution_id,
        institution_name: &consent.institution_name,
        institution_logo: consent.institution_logo.as_deref(),
        credentials: &consent.credentials,
        repairs: None,
        next_refresh_at: None,
        backfill_ends_at: None,
        next_sync_at: schedule::first_sync_at(now),
        first_attempt_at: now,
        cause,
    }
}

async fn wait_for_accounts(
    provider: &dyn Provider,
    context: &CallContext,
    credentials: &SecretString,
) -> Result<Vec<FoundAccount>, ConnectionsError> {
    let until = Instant::now() + ACCOUNTS_WAIT_MAX;
    loop {
        let accounts = provider.accounts(context, credentials).await?;
        if !accounts.is_empty() {
            return Ok(accounts);
        }
        if Instant::now() + ACCOUNTS_POLL_INTERVAL > until {
            return Err(ConnectionsError::NoAccounts);
        }
        tokio::time::sleep(ACCOUNTS_POLL_INTERVAL).await;
    }
}
