//! Where the rows of an event are read: its connection, as it is now.

use std::collections::HashSet;
use std::sync::Arc;

use bellbird_domain::{Account, AccountTag, Fingerprints, RowDigests, UtcDay};
use bellbird_providers::pages::{List, Pages, Trades, Transactions};
use bellbird_providers::{CallContext, Provider};
use bellbird_storage::{ClaimedEndpoint, WebhookEvent};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::RebuildError;
use super::reread_rows::RereadRows;
use crate::Webhooks;
use crate::event::digest::RowHasher;
use crate::event::row_kind::EventRowKind;
use crate::event::row_locator::RowLocator;

/// Where the rows of a connection are read.
pub(super) struct RowSource {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) fingerprints: Fingerprints,
    credentials: SecretString,
    pub(super) hasher: RowHasher,
    accounts: Vec<Account>,
    /// As in [`bellbird_storage::SyncState`].
    pub(super) rows_backfill_began_at: Timestamp,
    /// Syncs read the days from this one on.
    watched_from: UtcDay,
    /// The accounts that the provider's last list has.
    listed: HashSet<AccountTag>,
    zone: TimeZone,
    deadline: Instant,
}

impl Webhooks {
    /// Loads what reading the rows of an event needs.
    pub(super) async fn row_source(
        &self,
        claim: &ClaimedEndpoint,
        event: &WebhookEvent,
        deadline: Instant,
    ) -> Result<RowSource, RebuildError> {
        let (storage, user) = (&self.inner.storage, claim.user_id);
        let id = event.connection_id.ok_or(RebuildError::Postponed)?;
        let connection = storage
            .connections()
            .find(user, id)
            .await?
            .ok_or(RebuildError::Postponed)?;
        let key = storage
            .syncs()
            .fingerprint_key(user, id)
            .await?
            .ok_or(RebuildError::Postponed)?;
        let provider = self
            .inner
            .providers
            .find(&connection.provider)
            .ok_or(RebuildError::Provider)?;
        let sync = storage
            .syncs()
            .find(user, id)
            .await?
            .ok_or(RebuildError::Postponed)?;
        let listed = storage.accounts().list_visible(user, id).await?;
        // After an account has returned, the next sync reads back to when it went missing.
        let covered_from = sync.covered_from.filter(|_| sync.reread_from.is_none());
        Ok(RowSource {
            provider,
            fingerprints: storage.syncs().fingerprints(user, id).await?,
            rows_backfill_began_at: sync.rows_backfill_began_at,
            watched_from: covered_from.map_or(UtcDay(0), UtcDay::first_whole),
            listed: listed.iter().map(|account| account.id.into()).collect(),
            credentials: storage
                .secrets()
                .find_credentials(user, id)
                .await?
                .ok_or(RebuildError::Postponed)?,
            hasher: RowHasher::new(key.expose_secret().as_bytes()),
            accounts: storage.accounts().list_of_connection(user, id).await?,
            zone: storage
                .users()
                .find_zone(user)
                .await?
                .ok_or(RebuildError::Postponed)?,
            deadline,
        })
    }
}

impl RowSource {
    /// Whether no sync reads the day of a row any more, so that none will say what became of it.
    /// When an account returns that is missing, syncs read back.
    pub(super) fn is_unwatched(&self, row: &RowDigests) -> bool {
        row.day < self.watched_from && self.listed.contains(&row.account)
    }

    /// Whether a row that could not be read may be one of a day that no sync reads any more.
    pub(super) fn may_be_unwatched(&self, at: Option<Timestamp>) -> bool {
        at.is_none_or(|at| UtcDay::of(at) < self.watched_from)
    }

    /// Reads the rows of an event's date range, or the part of it that a locator names.
    pub(super) async fn read(
        &self,
        event: &WebhookEvent,
        locator: Option<&RowLocator>,
        context: &CallContext,
        found: &mut RereadRows<'_>,
    ) -> Result<(), RebuildError> {
        if found.is_done() {
            return Ok(());
        }
        let reading = async {
            match event.event_type {
                Transactions::EVENT_TYPE => {
                    self.read_rows::<Transactions>(event, locator, context, found)
                        .await
                }
                Trades::EVENT_TYPE => {
                    self.read_rows::<Trades>(event, locator, context, found)
                        .await
                }
                _ => Ok(()),
            }
        };
        tokio::time::timeout_at(self.deadline, reading)
            .await
            .unwrap_or(Err(bellbird_providers::Error::Deadline))?;
        found.take_changed();
        Ok(())
    }

    async fn read_rows<K: EventRowKind>(
        &self,
        event: &WebhookEvent,
        locator: Option<&RowLocator>,
        context: &CallContext,
        found: &mut RereadRows<'_>,
    ) -> Result<(), bellbird_providers::Error> {
        let dates = locator.map_or_else(
            || K::sync_dates(event.date_range, &self.zone),
            |locator| {
                let around = K::dates_around(locator.from, locator.to, locator.to);
                K::dates(around, &self.zone, context.now).0
            },
        );
        let is_located = |account: &Account| {
            locator.is_none_or(|locator| locator.accounts.contains(&account.id))
        };
        let Some(provider) = K::provider(self.provider.kind()) else {
            return Ok(());
        };
        for accounts in K::lists(&self.accounts) {
            if !accounts.iter().any(is_located) {
                continue;
            }
            let list = List::<K> {
                provider,
                credentials: &self.credentials,
                query: K::query(accounts, false, &dates, &self.zone),
                until: None,
            };
            let mut take = |row: &K::Row<'_>| {
                let digests = K::digests(&self.hasher, row, |_, _| None);
                found.take(&digests, |writer| K::write(writer, row, &self.zone))
            };
            Pages::default()
                .read_to_end(&list, context, &mut take)
                .await?;
            if found.is_done() {
                break;
            }
        }
        Ok(())
    }
}
