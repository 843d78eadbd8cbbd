//! Decides what becomes of each consent that a poll of a consent session found. Pure: no I/O and no
//! clock.
//!
//! [`decide`] needs no provider call. Where it returns [`Action::ReadAccounts`], the caller reads
//! the accounts, and [`place`] decides where the consent is stored.
//!
//! The limits are times in the session's phase after the callback, measured when the poll begins.
//! So they say how long the provider has had to show the user's consent, however many polls that
//! took: the first poll after a crash decides at once, and a slow response is never older than its
//! limit. Before the callback the time is zero, because the user may still be at the provider.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use bellbird_domain::{
    Account, AccountId, Confirmation, Connection, ConnectionId, ConnectionStatus,
};
use bellbird_providers::{ConsentStatus, FoundAccount, FoundConnection};
use jiff::Timestamp;

use crate::account_matching::match_accounts;

/// After this time, a new consent is connected even if it has no accounts yet; later refreshes add
/// them.
pub(crate) const ACCOUNTS_WAIT: Duration = Duration::from_secs(6);
/// After this time, an unconnected consent that existed before the session is connected if the
/// callback names it. Until then, a withdrawal may still take effect at the provider.
pub(crate) const WITHDRAWAL_WAIT: Duration = Duration::from_secs(4);

/// The consent session for which a poll found the consents.
pub(crate) struct Session<'a> {
    pub(crate) created_at: Timestamp,
    pub(crate) is_expired: bool,
    /// Nothing is stored before the user has confirmed the session.
    pub(crate) confirmation: Confirmation,
    /// Whether the callback says that the user gave no consent.
    pub(crate) is_declined: bool,
    /// Whether the credentials are those of a provider user, and cover all consents of that user.
    pub(crate) registers_users: bool,
    /// The connection that this session is to repair, unless it has done so. If the user has not
    /// approved in this session, also those that the user's other open sessions are to repair.
    pub(crate) repair_targets: Vec<&'a Connection>,
}

impl Session<'_> {
    fn is_to_repair(&self, connection: &Connection) -> bool {
        self.repair_targets
            .iter()
            .any(|target| target.id == connection.id)
    }
}

/// A consent that the provider lists as active.
pub(crate) struct Consent<'a> {
    pub(crate) found: &'a FoundConnection,
    /// Whether it existed before the session.
    pub(crate) is_known: bool,
    /// Whether the callback names it. Only a hint, because anyone can forge a callback.
    pub(crate) is_named: bool,
    pub(crate) existing: Existing,
}

/// The connection that a consent belongs to already, if any.
#[derive(Clone)]
pub(crate) enum Existing {
    NotConnected,
    Connected(Connection),
    OwnedByOtherUser,
}

/// What a session does to a connection. If it does several things to one, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// An active connection got new credentials.
    Renewed,
    /// The connection was created after the session, but not by this attempt: by an earlier attempt
    /// or a concurrent session.
    LinkedEarlier,
    Reconnected,
    Linked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The consent has nothing to do with this session.
    Ignore,
    /// The next poll decides.
    Wait,
    OwnedByOtherUser,
    /// The user denied the session, or did not confirm it before it expired: withdraw the consent,
    /// and remove its connection if there is one.
    Withdraw,
    /// The connection is as it should be, and counts as this.
    Count(Effect),
    /// The accounts are needed for [`place`], which gets this effect.
    ReadAccounts(Effect),
}

/// Where an active consent is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The next poll decides.
    Wait,
    /// In the connection that it belongs to, or in a new one.
    Store(Effect),
    /// In this connection, in place of its own consent. Lists the stored account that each found
    /// one matches.
    Replace(ConnectionId, Vec<Option<AccountId>>),
}

/// Returns the active consents, each once, in an order that does not depend on the provider's.
pub(crate) fn active_consents(found: &[FoundConnection]) -> Vec<&FoundConnection> {
    let mut by_id = BTreeMap::new();
    for consent in found
        .iter()
        .filter(|consent| consent.consent_status == ConsentStatus::Active)
    {
        by_id
            .entry(consent.provider_connection_id.as_str())
            .or_insert(consent);
    }
    by_id.into_values().collect()
}

/// Puts the consents of the connections to repair first: a new consent cannot replace that of a
/// repaired connection.
pub(crate) fn put_repairs_first(consents: &mut [Consent<'_>], session: &Session<'_>) {
    consents.sort_by_key(|consent| match &consent.existing {
        Existing::Connected(connection) => !session.is_to_repair(connection),
        Existing::NotConnected | Existing::OwnedByOtherUser => true,
    });
}

pub(crate) fn decide(consent: &Consent<'_>, session: &Session<'_>, elapsed: Duration) -> Action {
    match session.confirmation {
        Confirmation::Confirmed => decide_confirmed(consent, session, elapsed),
        Confirmation::Open if !session.is_expired => Action::Wait,
        Confirmation::Open | Confirmation::Denied => decide_withdrawal(consent, session),
    }
}

fn decide_confirmed(consent: &Consent<'_>, session: &Session<'_>, elapsed: Duration) -> Action {
    match &consent.existing {
        Existing::OwnedByOtherUser => Action::OwnedByOtherUser,
        Existing::Connected(connection) => decide_connected(consent, connection, session),
        // Removed here, or about to be withdrawn.
        Existing::NotConnected if consent.is_known && !consent.is_named => Action::Ignore,
        // The user gave it again, but a withdrawal in progress may still remove it.
        Existing::NotConnected if consent.is_known && elapsed < WITHDRAWAL_WAIT => Action::Wait,
        Existing::NotConnected => Action::ReadAccounts(Effect::Linked),
    }
}

/// A connection is removed only after a denial. If the user gave no answer or no consent, its
/// consent may be that of another session, or the same login may have become active again.
fn decide_withdrawal(consent: &Consent<'_>, session: &Session<'_>) -> Action {
    let is_of_session = !consent.is_known || consent.is_named;
    match &consent.existing {
        Existing::NotConnected if is_of_session => Action::Withdraw,
        Existing::Connected(connection)
            if session.confirmation == Confirmation::Denied
                && !session.is_declined
                && is_of_session
                && (session.is_to_repair(connection)
                    || connection.created_at >= session.created_at) =>
        {
            Action::Withdraw
        }
        // Another user's consent is not this session's to withdraw.
        Existing::NotConnected | Existing::Connected(_) | Existing::OwnedByOtherUser => {
            Action::Ignore
        }
    }
}

fn decide_connected(
    consent: &Consent<'_>,
    connection: &Connection,
    session: &Session<'_>,
) -> Action {
    let is_active = connection.status == ConnectionStatus::Active;
    let is_repair = session.is_to_repair(connection);
    let effect = if is_repair || !is_active {
        Effect::Reconnected
    } else if !consent.is_known && connection.created_at >= session.created_at {
        Effect::LinkedEarlier
    } else {
        Effect::Renewed
    };
    // A new consent does not change the credentials of a provider user, so none are renewed.
    match effect {
        _ if !is_active || !session.registers_users => Action::ReadAccounts(effect),
        Effect::LinkedEarlier if consent.is_named => Action::Count(Effect::Linked),
        Effect::LinkedEarlier => Action::Count(effect),
        // An active connection whose consent existed before this session is not being repaired.
        _ if consent.is_named || is_repair && !consent.is_known => Action::ReadAccounts(effect),
        _ => Action::Ignore,
    }
}

/// Returns the connections whose consent this one may replace: those to repair at its institution,
/// if it is new.
pub(crate) fn replaceable<'a>(consent: &Consent<'_>, session: &Session<'a>) -> Vec<&'a Connection> {
    let is_new = matches!(consent.existing, Existing::NotConnected);
    let targets = session.repair_targets.iter().copied();
    targets
        .filter(|target| is_new && target.institution_id == consent.found.institution_id)
        .collect()
}

/// Decides where a consent is stored. `found` are its accounts, and `replaceable` are the
/// connections of [`replaceable`] with their stored accounts.
pub(crate) fn place(
    effect: Effect,
    found: &[FoundAccount],
    replaceable: &[(ConnectionId, Vec<Account>)],
    session: &Session<'_>,
    elapsed: Duration,
) -> Placement {
    // Without accounts, a repair looks like another login: it has time until the session expires.
    if found.is_empty()
        && !session.is_expired
        && (!replaceable.is_empty() || elapsed < ACCOUNTS_WAIT)
    {
        return Placement::Wait;
    }
    // Without a certain match of at least one account, it is another login at the same institution.
    let mut matches = replaceable
        .iter()
        .map(|(id, existing)| (*id, match_accounts(existing, found)));
    match matches.find(|(_, known_as)| known_as.iter().any(Option::is_some)) {
        Some((id, known_as)) => Placement::Replace(id, known_as),
        None => Placement::Store(effect),
    }
}
