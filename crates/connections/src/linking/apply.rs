//! Applies the consents that a poll of a consent session found, as `decide/mod.rs` decides: creates
//! connections, and repairs or renews existing ones.

use std::time::Duration;

use bellbird_domain::{Confirmation, Connection};
use bellbird_providers::{CallContext, Error, FoundConnection, Provider};
use bellbird_storage::{AffectedRef, ClaimedConsentSession};

use super::decide::{self, Action, Consent, Effect, Existing, Placement, Session};
use super::outcome::Applied;
use crate::ConnectionsError;
use crate::import::ActiveConsent;
use crate::import::Imports;
use crate::jobs::require_lease;
use crate::linking::Links;
use crate::removal::Removals;

/// The session, provider and callback for which consents are applied.
pub(crate) struct ApplyRequest<'a> {
    pub(crate) claim: &'a ClaimedConsentSession,
    pub(crate) provider: &'a dyn Provider,
    pub(crate) context: &'a CallContext,
    /// As [`Session::repair_targets`], also those that are repaired already.
    pub(crate) repair_targets: &'a [Connection],
    pub(crate) params: &'a [(String, String)],
    /// See `decide/mod.rs`.
    pub(crate) elapsed: Duration,
    pub(crate) is_expired: bool,
    pub(crate) is_declined: bool,
}

impl<'a> ApplyRequest<'a> {
    fn session(&self, applied: &Applied) -> Session<'a> {
        Session {
            created_at: self.claim.session.created_at,
            is_expired: self.is_expired,
            confirmation: self.claim.session.confirmation,
            is_declined: self.is_declined,
            registers_users: self
                .provider
                .linking()
                .is_some_and(bellbird_providers::Linking::registers_users),
            repair_targets: self
                .repair_targets
                .iter()
                .filter(|target| !applied.is_repaired(target.id))
                .collect(),
        }
    }
}

impl Links<'_> {
    /// Applies all active consents. A consent that fails does not stop the others. But if that of a
    /// connection to repair fails for a moment, no other one replaces it in this poll: it would be
    /// withdrawn, and may be what the user has just renewed.
    ///
    /// Returns the first error if it is transient, or if no connection was created or repaired.
    /// Fails with [`ConnectionsError::Busy`] at once if the lease of the session was lost.
    pub(crate) async fn apply_consents(
        self,
        request: &ApplyRequest<'_>,
        found: &[FoundConnection],
        applied: &mut Applied,
    ) -> Result<(), ConnectionsError> {
        applied.undecided = false;
        applied.failed.clear();
        let mut consents = Vec::with_capacity(found.len());
        for found in decide::active_consents(found) {
            let id = found.provider_connection_id.as_str();
            consents.push(Consent {
                found,
                is_known: request.claim.had_consent(id),
                is_named: request.params.iter().any(|(_, value)| value == id),
                existing: self.find_existing(request, id).await?,
            });
        }
        decide::put_repairs_first(&mut consents, &request.session(applied));
        let mut first_error: Option<ConnectionsError> = None;
        for consent in consents {
            let connection = match &consent.existing {
                Existing::Connected(connection) => Some(connection.id),
                Existing::NotConnected | Existing::OwnedByOtherUser => None,
            };
            if let Err(error) = self.apply_consent(request, consent, applied).await {
                if matches!(error, ConnectionsError::Busy) {
                    return Err(error);
                }
                applied
                    .failed
                    .extend(connection.filter(|_| error.is_transient()));
                first_error = first_error.or(Some(error));
            }
        }
        match first_error {
            Some(error) if error.is_transient() || !applied.has_changes() => Err(error),
            _ => Ok(()),
        }
    }

    /// Finds the connection that a consent belongs to now.
    async fn find_existing(
        self,
        request: &ApplyRequest<'_>,
        id: &str,
    ) -> Result<Existing, ConnectionsError> {
        let (user_id, name) = (request.claim.session.user_id, request.provider.name());
        let known = self
            .0
            .storage
            .provider_events()
            .find_affected(name.as_str(), &[AffectedRef::Connection(id)])
            .await?;
        Ok(match known.first() {
            Some((user, _)) if *user != user_id => Existing::OwnedByOtherUser,
            Some((_, connection)) => {
                let found = self
                    .0
                    .storage
                    .connections()
                    .find(user_id, *connection)
                    .await?;
                found.map_or(Existing::NotConnected, Existing::Connected)
            }
            None => Existing::NotConnected,
        })
    }

    async fn apply_consent(
        self,
        request: &ApplyRequest<'_>,
        consent: Consent<'_>,
        applied: &mut Applied,
    ) -> Result<(), ConnectionsError> {
        let session = request.session(applied);
        match (
            decide::decide(&consent, &session, request.elapsed),
            &consent.existing,
        ) {
            (Action::Wait, _) => applied.undecided = true,
            (Action::OwnedByOtherUser, _) => applied.owned_by_other_user = true,
            (Action::Withdraw, existing) => {
                self.withdraw_unconfirmed(request, &consent, existing)
                    .await?;
                applied.withdrawn = true;
            }
            (Action::Count(effect), Existing::Connected(connection)) => {
                applied.add(effect, connection.clone());
            }
            (Action::ReadAccounts(effect), _) => {
                return self
                    .place_consent(request, &consent, &session, effect, applied)
                    .await;
            }
            (Action::Ignore | Action::Count(_), _) => {}
        }
        Ok(())
    }

    /// Starts the removal of what a denied or unconfirmed session found. The removal is a job, so
    /// it is retried until the provider has withdrawn the consent.
    async fn withdraw_unconfirmed(
        self,
        request: &ApplyRequest<'_>,
        consent: &Consent<'_>,
        existing: &Existing,
    ) -> Result<(), ConnectionsError> {
        let session = &request.claim.session;
        let cause = if session.confirmation == Confirmation::Denied {
            "denied"
        } else {
            "unconfirmed"
        };
        match existing {
            Existing::Connected(connection) => {
                let now = self.0.clock.now();
                let removals = self.0.storage.removals();
                require_lease(
                    removals
                        .begin_for(&request.claim.job, "denied", connection.id, now)
                        .await?,
                )?;
                Removals(self.0).wake(&connection.provider);
            }
            _ => {
                Imports(self.0)
                    .withdraw_unconnected(
                        &request.claim.job,
                        request.provider,
                        consent.found,
                        cause,
                    )
                    .await?;
            }
        }
        tracing::info!(
            provider = session.provider,
            cause,
            "withdrawal of consent planned"
        );
        Ok(())
    }

    /// Reads the accounts of a consent, and stores it where they belong.
    async fn place_consent(
        self,
        request: &ApplyRequest<'_>,
        consent: &Consent<'_>,
        session: &Session<'_>,
        effect: Effect,
        applied: &mut Applied,
    ) -> Result<(), ConnectionsError> {
        let user_id = request.claim.session.user_id;
        let accounts = match request
            .provider
            .accounts(request.context, &consent.found.credentials)
            .await
        {
            Err(Error::ReconnectNeeded(_)) => return Ok(()),
            accounts => accounts?,
        };
        let mut replaceable = Vec::new();
        for target in decide::replaceable(consent, session) {
            if applied.failed.contains(&target.id) && !session.is_expired {
                applied.undecided = true;
                return Ok(());
            }
            replaceable.push((
                target.id,
                self.0
                    .storage
                    .accounts()
                    .list_with_hidden(user_id, target.id)
                    .await?,
            ));
        }
        let (effect, replaces, known_as) =
            match decide::place(effect, &accounts, &replaceable, session, request.elapsed) {
                Placement::Wait => {
                    applied.undecided = true;
                    return Ok(());
                }
                Placement::Store(effect) => (effect, None, Vec::new()),
                Placement::Replace(id, known_as) => (Effect::Reconnected, Some(id), known_as),
            };
        let active_consent = ActiveConsent {
            consent: consent.found,
            accounts: &accounts,
            known_as: &known_as,
            replaces,
        };
        match Imports(self.0)
            .store_linked(&request.claim.job, request.provider, &active_consent)
            .await
        {
            // The connection of this consent is being removed.
            Err(ConnectionsError::AlreadyConnected) => {}
            stored => applied.add(effect, stored?),
        }
        Ok(())
    }
}
