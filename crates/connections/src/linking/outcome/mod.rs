//! Decides after each poll whether a consent session has an outcome, and when it is polled next.
//! Pure: no I/O and no clock.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use bellbird_domain::{
    Confirmation, Connection, ConnectionId, LinkOutcome, LinkPhase, TimestampExt as _,
};
use bellbird_providers::linking::NoConsent;
use jiff::Timestamp;

use super::decide::Effect;
use super::start::FIRST_POLL_AFTER;
use crate::schedule;

/// After this time without a new consent, the user's approval is treated as a renewal of an
/// existing consent. The browser still waits. Measured as the limits of `decide/mod.rs`.
pub(crate) const UNCHANGED_WAIT: Duration = Duration::from_secs(9);
/// The same for a repair in which another, active connection got new credentials.
pub(crate) const RENEWED_WAIT: Duration = Duration::from_secs(2);
/// How long a session is polled after its expiry while the provider fails: the user may have
/// consented, and only this session would find that. Less than the day after which sessions are
/// deleted.
pub(crate) const RETRY_AFTER_EXPIRY_MAX: Duration = Duration::from_secs(20 * 3_600);

/// How a session ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conclusion {
    pub(crate) outcome: LinkOutcome,
    /// The connections that the session created, repaired or renewed.
    pub(crate) connections: Vec<Connection>,
    /// Why the session failed, as a sentence for the user.
    pub(crate) reason: Option<&'static str>,
}

impl Conclusion {
    fn new(outcome: LinkOutcome, connections: Vec<Connection>) -> Self {
        Self {
            outcome,
            connections,
            reason: None,
        }
    }

    pub(crate) fn failed(reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            ..Self::new(LinkOutcome::Failed, Vec::new())
        }
    }

    pub(crate) fn withdrawn() -> Self {
        Self::new(LinkOutcome::Withdrawn, Vec::new())
    }

    pub(crate) fn not_withdrawn() -> Self {
        Self::new(LinkOutcome::NotWithdrawn, Vec::new())
    }

    fn no_consent(why: NoConsent) -> Self {
        match why {
            NoConsent::Declined => Self::new(LinkOutcome::Declined, Vec::new()),
            NoConsent::Failed(reason) => Self::failed(reason),
        }
    }
}

/// What the polls of one attempt have done so far.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    connections: BTreeMap<ConnectionId, (Effect, Connection)>,
    /// Whether a consent is connected for another user of this service.
    pub(crate) owned_by_other_user: bool,
    /// Whether a consent was withdrawn, because the user has not confirmed the session.
    pub(crate) withdrawn: bool,
    /// Whether a consent needs another poll.
    pub(crate) undecided: bool,
    /// The connections whose own consent failed for a moment in this poll.
    pub(crate) failed: Vec<ConnectionId>,
}

impl Applied {
    /// Adds what was done to a connection.
    pub(crate) fn add(&mut self, effect: Effect, connection: Connection) {
        let before = self
            .connections
            .get(&connection.id)
            .map(|(before, _)| *before);
        self.connections.insert(
            connection.id,
            (
                before.map_or(effect, |before| before.max(effect)),
                connection,
            ),
        );
    }

    pub(crate) fn is_repaired(&self, id: ConnectionId) -> bool {
        self.connections
            .get(&id)
            .is_some_and(|(effect, _)| *effect == Effect::Reconnected)
    }

    /// Whether a connection was created or repaired.
    pub(crate) fn has_changes(&self) -> bool {
        self.has(Effect::Linked) || self.has(Effect::Reconnected)
    }

    fn has(&self, effect: Effect) -> bool {
        self.connections.values().any(|(known, _)| *known == effect)
    }

    fn with(&self, effects: &[Effect]) -> Vec<Connection> {
        let with_effect = |effect| {
            self.connections
                .values()
                .filter(move |(known, _)| known == effect)
        };
        effects
            .iter()
            .flat_map(with_effect)
            .map(|(_, connection)| connection.clone())
            .collect()
    }
}

/// What a poll knows of its consent session, apart from the consents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionFacts {
    pub(crate) phase: LinkPhase,
    pub(crate) confirmation: Confirmation,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) repairs: Option<ConnectionId>,
    /// What the callback parameters say: a hint, because anyone can forge them.
    pub(crate) callback_result: Result<(), NoConsent>,
    /// Whether no other session of the user at this provider can explain the consents that were
    /// found.
    pub(crate) is_only_session: bool,
}

impl SessionFacts {
    pub(crate) fn is_approved(&self) -> bool {
        self.phase != LinkPhase::Started && self.callback_result.is_ok()
    }
}

/// The conclusion if the callback lacks what [`bellbird_providers::Linking::finish`] needs. None
/// before the callback.
pub(crate) fn conclude_without_polling(session: &SessionFacts) -> Option<Conclusion> {
    match session.callback_result {
        _ if session.phase == LinkPhase::Started => None,
        Ok(()) => Some(Conclusion::failed(
            "The provider returned you without a result.",
        )),
        Err(why) => Some(Conclusion::no_consent(why)),
    }
}

/// The conclusion after the consents of a poll were applied, if there is one already.
pub(crate) fn conclude(
    session: &SessionFacts,
    applied: &Applied,
    elapsed: Duration,
) -> Option<Conclusion> {
    // Before the callback, the user may still consent to more.
    if applied.undecided || session.phase == LinkPhase::Started {
        return None;
    }
    if session.confirmation != Confirmation::Confirmed {
        return conclude_denied(session, applied);
    }
    if let Some(conclusion) = conclude_changes(session, applied) {
        return Some(conclusion);
    }
    let is_renewed_only = session.repairs.is_some() && applied.has(Effect::Renewed);
    let wait = if is_renewed_only {
        RENEWED_WAIT
    } else {
        UNCHANGED_WAIT
    };
    match session.callback_result {
        Err(why) => Some(Conclusion::no_consent(why)),
        Ok(()) if session.is_only_session && applied.has(Effect::LinkedEarlier) => {
            Some(conclude_unchanged(session, applied))
        }
        Ok(()) => (elapsed >= wait).then(|| conclude_unchanged(session, applied)),
    }
}

/// The conclusion after the user denied the session. A consent may be listed late, so it has time
/// until the session expires: otherwise another session could connect it.
fn conclude_denied(session: &SessionFacts, applied: &Applied) -> Option<Conclusion> {
    match session.callback_result {
        Err(why) if !applied.withdrawn => Some(Conclusion::no_consent(why)),
        Ok(()) if !applied.withdrawn => None,
        _ => Some(Conclusion::withdrawn()),
    }
}

/// The conclusion of a session that has expired. `failed`: its last poll ended with an error.
fn conclude_expired(session: &SessionFacts, applied: &Applied, failed: bool) -> Conclusion {
    if applied.withdrawn || session.confirmation == Confirmation::Denied {
        let is_found_or_none = applied.withdrawn || !failed;
        return if is_found_or_none {
            Conclusion::withdrawn()
        } else {
            Conclusion::not_withdrawn()
        };
    }
    conclude_changes(session, applied).unwrap_or_else(|| {
        if session.is_approved() && !failed {
            conclude_unchanged(session, applied)
        } else {
            Conclusion::new(LinkOutcome::Expired, Vec::new())
        }
    })
}

/// The conclusion if connections were created or repaired.
fn conclude_changes(session: &SessionFacts, applied: &Applied) -> Option<Conclusion> {
    let is_linked = applied.has(Effect::Linked);
    let outcome = match session.repairs {
        _ if !applied.has_changes() => return None,
        Some(id) if applied.is_repaired(id) => LinkOutcome::Reconnected,
        Some(_) if is_linked => LinkOutcome::LinkedOther,
        None if is_linked => LinkOutcome::Linked,
        _ => LinkOutcome::Reconnected,
    };
    Some(Conclusion::new(
        outcome,
        applied.with(&[Effect::Linked, Effect::Reconnected]),
    ))
}

/// The conclusion if the user approved, but this attempt has neither created nor repaired a
/// connection.
fn conclude_unchanged(session: &SessionFacts, applied: &Applied) -> Conclusion {
    match session.repairs {
        None if applied.has(Effect::LinkedEarlier) => {
            Conclusion::new(LinkOutcome::Linked, applied.with(&[Effect::LinkedEarlier]))
        }
        _ if applied.owned_by_other_user => {
            Conclusion::new(LinkOutcome::OwnedByOtherUser, Vec::new())
        }
        _ => Conclusion::new(LinkOutcome::Unchanged, applied.with(&[Effect::Renewed])),
    }
}

/// The result of one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Poll {
    Concluded(Conclusion),
    Pending,
    /// The poll ended with an error that a later poll may not have.
    Failed,
}

/// What follows a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// The browser waits: poll again in a moment.
    PollAgain,
    PostponeUntil(Timestamp),
    Finish(Conclusion),
}

/// Decides what follows a poll. `attempts` counts the earlier ones in this phase for which no
/// browser waited.
pub(crate) fn after_poll(
    poll: Poll,
    (session, applied): (&SessionFacts, &Applied),
    attempts: u32,
    now: Timestamp,
    browser_waits: bool,
) -> Next {
    let failed = match poll {
        Poll::Concluded(conclusion) => return Next::Finish(conclusion),
        Poll::Pending | Poll::Failed if browser_waits => return Next::PollAgain,
        Poll::Pending => false,
        Poll::Failed => true,
    };
    let SessionFacts {
        phase,
        created_at,
        expires_at,
        ..
    } = *session;
    let ends_at = if failed {
        expires_at.plus(RETRY_AFTER_EXPIRY_MAX)
    } else {
        expires_at
    };
    if now >= ends_at {
        return Next::Finish(conclude_expired(session, applied, failed));
    }
    let first_poll_at = created_at.plus(FIRST_POLL_AFTER);
    Next::PostponeUntil(match phase {
        // Before its callback, a session is polled at these two times and after provider events,
        // unless a poll fails.
        LinkPhase::Started if !failed && now < first_poll_at => first_poll_at,
        LinkPhase::Started if !failed => ends_at,
        _ => schedule::next_session_poll_at(attempts, now, ends_at),
    })
}
