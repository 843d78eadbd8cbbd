//! Applies the consents that a poll of a link session found: creates connections, and repairs or renews existing ones.

use bellbird_domain::{Connection, ConnectionStatus};
use bellbird_providers::{CallContext, ConsentStatus, Error, FoundConnection, Provider};
use bellbird_storage::{AffectedRef, ClaimedLinkSession};

use crate::account_matching::match_accounts;
use crate::import::ActiveConsent;
use crate::{Connections, ConnectionsError};

/// After this many polls, a new consent is connected even if it has no accounts yet; later refreshes add them. That is
/// about six seconds while a browser waits.
const ACCOUNTS_POLLS: u32 = 6;
/// After this many polls, an unconnected consent that existed before the session is connected if the callback names it.
/// That is about four seconds while a browser waits: time for a withdrawal to take effect at the provider.
const KNOWN_CONSENT_POLLS: u32 = 4;

/// What the polls of one attempt have applied so far.
#[derive(Default)]
pub(crate) struct AppliedConsents {
    /// Created by this attempt.
    pub(crate) linked: Vec<Connection>,
    /// Repaired by this attempt.
    pub(crate) reconnected: Vec<Connection>,
    /// Active connections that got new credentials.
    pub(crate) renewed: Vec<Connection>,
    /// Created since the session started, but not by this attempt: by an earlier attempt or a concurrent session.
    pub(crate) linked_earlier: Vec<Connection>,
    /// Whether a consent is connected for another user of this service.
    pub(crate) owned_by_other_user: bool,
    /// Whether a consent needs another poll: its accounts are missing, or it may be about to disappear.
    pub(crate) undecided: bool,
}

impl AppliedConsents {
    /// Whether this attempt has neither created nor repaired a connection.
    fn is_unchanged(&self) -> bool {
        self.linked.is_empty() && self.reconnected.is_empty()
    }
}

/// The session, provider and callback for which consents are applied.
pub(crate) struct ApplyRequest<'a> {
    pub(crate) claim: &'a ClaimedLinkSession,
    pub(crate) provider: &'a dyn Provider,
    pub(crate) context: &'a CallContext,
    /// The connection that this session is to repair. Unless the user approved in this session, also those that the
    /// user's other open sessions are to repair.
    pub(crate) repair_targets: &'a [Connection],
    /// The callback parameters.
    pub(crate) params: &'a [(String, String)],
    /// Polls before this one.
    pub(crate) polls: u32,
}

impl ApplyRequest<'_> {
    fn registers_users(&self) -> bool {
        self.provider.linking().is_some_and(bellbird_providers::Linking::registers_users)
    }
}

impl Connections {
    /// Applies all active consents. A consent that fails does not stop the others.
    ///
    /// Returns the first error if it is transient, or if no connection was created or repaired.
    pub(crate) async fn apply_consents(
        &self,
        request: &ApplyRequest<'_>,
        found: &[FoundConnection],
        applied: &mut AppliedConsents,
    ) -> Result<(), ConnectionsError> {
        applied.undecided = false;
        let mut first_error: Option<ConnectionsError> = None;
        let mut consents: Vec<(&FoundConnection, Option<Connection>)> = Vec::with_capacity(found.len());
        for consent in found.iter().filter(|consent| consent.consent_status == ConsentStatus::Active) {
            let id = &consent.provider_connection_id;
            if consents.iter().all(|(other, _)| other.provider_connection_id != *id) {
                match self.find_existing(request, id).await? {
                    Existing::NotConnected => consents.push((consent, None)),
                    Existing::Connected(connection) => consents.push((consent, Some(connection))),
                    Existing::OwnedByOtherUser => applied.owned_by_other_user = true,
                }
            }
        }
        // Own consents of connections to repair come first: a new consent cannot replace that of a repaired connection.
        let is_repair_target =
            |existing: &Connection| request.repair_targets.iter().any(|target| target.id == existing.id);
        consents.sort_by_key(|(_, existing)| !existing.as_ref().is_some_and(is_repair_target));
        for (consent, existing) in consents {
            if let Err(error) = self.apply_consent(request, consent, existing, applied).await {
                first_error = first_error.or(Some(error));
            }
        }
        match first_error {
            Some(error) if error.is_transient() || applied.is_unchanged() => Err(error),
            _ => Ok(()),
        }
    }

    /// Finds the connection that a consent belongs to now.
    async fn find_existing(&self, request: &ApplyRequest<'_>, id: &str) -> Result<Existing, ConnectionsError> {
        let (user_id, name) = (request.claim.session.user_id, request.provider.name());
        let known = self.storage.find_affected_connections(name.as_str(), &[AffectedRef::Connection(id)]).await?;
        Ok(match known.first() {
            Some((user, _)) if *user != user_id => Existing::OwnedByOtherUser,
            Some((_, connection)) => {
                let found = self.storage.find_connection(user_id, *connection).await?;
                found.map_or(Existing::NotConnected, Existing::Connected)
            }
            None => Existing::NotConnected,
        })
    }

    /// Applies one consent. Ignores it if it has nothing to do with this session.
    async fn apply_consent(
        &self,
        request: &ApplyRequest<'_>,
        consent: &FoundConnection,
        existing: Option<Connection>,
        applied: &mut AppliedConsents,
    ) -> Result<(), ConnectionsError> {
        let ApplyRequest { claim, provider, context, params, polls, .. } = request;
        let user_id = claim.session.user_id;
        let id = consent.provider_connection_id.as_str();
        let is_unrepaired = |target: &&Connection| !applied.reconnected.iter().any(|repaired| repaired.id == target.id);
        let repair_targets: Vec<&Connection> = request.repair_targets.iter().filter(is_unrepaired).collect();
        let is_repair_target = |id| repair_targets.iter().any(|target| target.id == id);
        let is_in_callback = params.iter().any(|(_, value)| value == id);
        let is_active = |existing: &Connection| existing.status == ConnectionStatus::Active;
        // By an earlier attempt of this session, or by a concurrent session of the user.
        let is_created_since_start = |existing: &Connection| {
            !claim.had_consent(id) && existing.created_at >= claim.session.created_at && !is_repair_target(existing.id)
        };
        // An active connection whose consent existed before this session is not being repaired.
        let is_repair = existing
            .as_ref()
            .is_some_and(|existing| is_repair_target(existing.id) && !(claim.had_consent(id) && is_active(existing)));
        match &existing {
            // Existed before this session and has no connection: removed locally, or about to be withdrawn.
            None if claim.had_consent(id) && !is_in_callback => return Ok(()),
            // The callback names it, so the user gave it again. But a withdrawal in progress may still remove it.
            None if claim.had_consent(id) && *polls < KNOWN_CONSENT_POLLS => {
                applied.undecided = true;
                return Ok(());
            }
            // The credentials are those of the provider user. A new consent does not change them, so none are renewed.
            Some(existing) if is_active(existing) && request.registers_users() => {
                if is_created_since_start(existing) {
                    push_unique(
                        if is_in_callback { &mut applied.linked } else { &mut applied.linked_earlier },
                        existing.clone(),
                    );
                    return Ok(());
                }
                if !is_in_callback && !is_repair {
                    return Ok(());
                }
            }
            _ => {}
        }
        let accounts = match provider.accounts(context, &consent.credentials).await {
            Err(Error::ReconnectNeeded(_)) => return Ok(()),
            accounts => accounts?,
        };
        // A new consent at the institution of a connection to repair may replace that connection's consent.
        let is_replaceable =
            |target: &&Connection| existing.is_none() && target.institution_id == consent.institution_id;
        let replaceable: Vec<&Connection> = repair_targets.iter().copied().filter(is_replaceable).collect();
        let is_before_expiry = self.clock.now() < claim.session.expires_at;
        if accounts.is_empty() && is_before_expiry && (!replaceable.is_empty() || *polls < ACCOUNTS_POLLS) {
            applied.undecided = true;
            return Ok(());
        }
        let (mut replaces, mut known_as) = (None, Vec::new());
        for connection in replaceable {
            let existing_accounts = self.storage.list_connection_accounts(user_id, connection.id).await?;
            let matched = match_accounts(&existing_accounts, &accounts);
            // Without a certain match of at least one account, it is another login at the same institution.
            if matched.iter().any(Option::is_some) {
                (replaces, known_as) = (Some(connection.id), matched);
                break;
            }
        }
        let active_consent = ActiveConsent { consent, accounts: &accounts, known_as: &known_as, replaces };
        let connection = match self.store_linked(user_id, *provider, &active_consent).await {
            // The connection of this consent is being removed.
            Err(ConnectionsError::AlreadyConnected) => return Ok(()),
            stored => stored?,
        };
        let bucket = match &existing {
            _ if is_repair_target(connection.id) => &mut applied.reconnected,
            Some(existing) if is_active(existing) && is_created_since_start(existing) => &mut applied.linked_earlier,
            Some(existing) if is_active(existing) => &mut applied.renewed,
            Some(_) => &mut applied.reconnected,
            None => &mut applied.linked,
        };
        push_unique(bucket, connection);
        Ok(())
    }
}

/// The connection that a consent belongs to already, if any.
enum Existing {
    NotConnected,
    Connected(Connection),
    OwnedByOtherUser,
}

fn push_unique(list: &mut Vec<Connection>, connection: Connection) {
    if !list.iter().any(|other| other.id == connection.id) {
        list.push(connection);
    }
}
