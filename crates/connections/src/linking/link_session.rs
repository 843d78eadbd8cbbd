//! Link sessions: links that an app creates for its users. A link session connects once, leads the
//! browser back to the app, and has a result for which the app asks.

use bellbird_domain::{
    Confirmation, Connection, ConnectionCategory, ConnectionId, LinkOutcome, LinkPhase, LinkStatus,
    UserId,
};
use bellbird_storage::{ConsentSession, Link, NewLinkSession};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::callback::outcome_of;
use super::link_page::is_result;
use super::start::{LinkTarget, PreparedLink};
use crate::linking::Links;
use crate::return_url::{AppReturn, ReturnUrl};
use crate::{ConnectionsError, ProviderSchema};

const STATE_CHARS_MAX: usize = 500;

/// A link session with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkSession {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: Uuid,
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub user_id: UserId,
    /// `open`, `waiting`, `connected`, `declined`, `failed` or `expired`.
    #[schema(inline, example = "connected")]
    pub status: LinkStatus,
    /// What it has connected, reconnected or renewed, and what is still connected.
    pub connections: Vec<SessionConnection>,
    /// Why there is none. Null until the status says so.
    #[schema(required = true)]
    pub reason: Option<NoConnection>,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:40:00Z")]
    pub expires_at: Timestamp,
}

/// A connection of a link session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = LinkedConnection)]
pub struct SessionConnection {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: ConnectionId,
    #[schema(inline, value_type = ProviderSchema, example = "fiskil")]
    pub provider: String,
    #[schema(inline, example = "banking")]
    pub category: ConnectionCategory,
}

/// Why a link session has no connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = LinkSessionReason)]
pub struct NoConnection {
    /// A word for programs. More may come.
    // The outcome of its last consent session, or `removed`.
    #[schema(example = "declined")]
    pub code: &'static str,
    /// A sentence for people.
    #[schema(example = "The person gave no consent.")]
    pub message: String,
}

/// A consent session of a link session.
#[derive(Debug, Clone, Copy)]
struct Visit<'a> {
    phase: LinkPhase,
    confirmation: Confirmation,
    outcome: Option<LinkOutcome>,
    is_expired: bool,
    connections: &'a [ConnectionId],
    failure_reason: Option<&'a str>,
}

impl<'a> Visit<'a> {
    fn of(session: &'a ConsentSession, now: Timestamp) -> Self {
        Self {
            phase: session.phase,
            confirmation: session.confirmation,
            outcome: match session.confirmation {
                // What the provider still lists until the session expires is withdrawn too.
                Confirmation::Denied => outcome_of(session).or(Some(LinkOutcome::Withdrawn)),
                _ => outcome_of(session),
            },
            is_expired: now >= session.expires_at,
            connections: &session.connections,
            failure_reason: session.failure_reason.as_deref(),
        }
    }

    /// Also if it renewed a consent, or has not ended.
    fn has_connected(&self) -> bool {
        let is_withdrawn = matches!(
            self.outcome,
            Some(LinkOutcome::Withdrawn | LinkOutcome::NotWithdrawn)
        );
        self.outcome.is_some_and(LinkOutcome::is_connected)
            || !self.connections.is_empty() && !is_withdrawn
    }

    fn awaits_provider(&self) -> bool {
        let is_answered =
            self.phase != LinkPhase::Started || self.confirmation == Confirmation::Confirmed;
        self.outcome.is_none() && is_answered
    }

    fn is_at_provider(&self) -> bool {
        self.outcome.is_none() && !self.is_expired
    }
}

impl Links<'_> {
    /// Checks a link session for a user, for a caller who stores it in a transaction of its own.
    ///
    /// Fails with [`ConnectionsError::ReturnUrl`] or [`ConnectionsError::InvalidState`] if the
    /// browser could not return with these.
    pub async fn prepare_link_session<'a>(
        self,
        user: UserId,
        to: LinkTarget<'_>,
        session: NewLinkSession<'a>,
    ) -> Result<PreparedLink<'a>, ConnectionsError> {
        if let Some(url) = session.return_url {
            ReturnUrl::check(url, &self.0.return_origins).map_err(ConnectionsError::ReturnUrl)?;
        }
        let is_valid = |state: &str| {
            state.chars().count() <= STATE_CHARS_MAX && !state.chars().any(char::is_control)
        };
        if !session.state.is_none_or(is_valid) {
            return Err(ConnectionsError::InvalidState);
        }
        self.prepare_link(user, to, Some(session)).await
    }

    /// Finds a link session of any user, with its result, for a day after it has expired. For the
    /// operator.
    pub async fn find_link_session(
        self,
        id: Uuid,
    ) -> Result<Option<LinkSession>, ConnectionsError> {
        let Some(link) = self.0.storage.links().find_any_session(id).await? else {
            return Ok(None);
        };
        let mut sessions = self
            .0
            .storage
            .consent_sessions()
            .list_of_link(link.user_id, id)
            .await?;
        let connections = self.0.storage.connections().list(link.user_id).await?;
        // A session that was confirmed on the link's page has no callback, after which it could end
        // with a result.
        for session in sessions
            .iter_mut()
            .filter(|session| session.confirmation == Confirmation::Confirmed)
        {
            if session.phase == LinkPhase::Started
                || outcome_of(session) == Some(LinkOutcome::Expired)
            {
                let is_result = |connection: &&Connection| {
                    let is_in_time = session.connection_id.is_some()
                        || connection.created_at < session.expires_at;
                    is_in_time && is_result(connection, session)
                };
                let results = connections.iter().filter(is_result);
                session.connections = results.map(|connection| connection.id).collect();
            }
        }
        let now = self.0.clock.now();
        let visits: Vec<_> = sessions
            .iter()
            .map(|session| Visit::of(session, now))
            .collect();
        let (status, reason) = result_of(&visits, now >= link.expires_at);
        let is_of_session = |connection: &&Connection| {
            visits
                .iter()
                .any(|visit| visit.has_connected() && visit.connections.contains(&connection.id))
        };
        let linked = connections.iter().filter(is_of_session);
        let connections: Vec<_> = linked
            .map(|connection| SessionConnection {
                id: connection.id,
                provider: connection.provider.clone(),
                category: connection.category,
            })
            .collect();
        let reason = match status {
            LinkStatus::Connected if connections.is_empty() => Some(NoConnection {
                code: "removed",
                message: "What was connected has been removed since.".to_owned(),
            }),
            _ => reason,
        };
        let Link {
            user_id,
            expires_at,
            ..
        } = link;
        Ok(Some(LinkSession {
            id,
            user_id,
            status,
            connections,
            reason,
            expires_at,
        }))
    }

    /// Where the browser returns from a link. None if it is no link session with a return URL that
    /// the settings allow now.
    pub(crate) fn app_return(self, link: &Link) -> Option<AppReturn> {
        match ReturnUrl::check(link.return_url.as_deref()?, &self.0.return_origins) {
            Ok(url) => Some(url.of_session(link.id, link.app_state.as_deref())),
            Err(error) => {
                tracing::warn!(%error, "return URL no longer allowed");
                None
            }
        }
    }

    /// As [`Self::app_return`], from a consent session, for the browser to which it is bound.
    pub(crate) async fn app_return_of(
        self,
        session: &ConsentSession,
        browser: Option<&str>,
    ) -> Result<Option<AppReturn>, ConnectionsError> {
        if !browser.is_some_and(|browser| session.is_bound_to(browser)) {
            return Ok(None);
        }
        let link = self
            .0
            .storage
            .links()
            .find_any_session(session.link_id)
            .await?;
        Ok(link
            .filter(|link| link.user_id == session.user_id)
            .and_then(|link| self.app_return(&link)))
    }
}

/// The status of a link session with these consent sessions, newest first, and why it has no
/// connection.
fn result_of(visits: &[Visit<'_>], is_expired: bool) -> (LinkStatus, Option<NoConnection>) {
    if visits.iter().any(Visit::has_connected) {
        return (LinkStatus::Connected, None);
    }
    if visits.iter().any(Visit::awaits_provider) {
        return (LinkStatus::Waiting, None);
    }
    let last = visits.iter().find(|visit| {
        visit.is_at_provider()
            || visit
                .outcome
                .is_some_and(|outcome| outcome != LinkOutcome::Expired)
    });
    match last.map(|visit| (visit.outcome, visit.failure_reason)) {
        Some((Some(outcome), failure)) => {
            let is_declined = outcome == LinkOutcome::Declined;
            let status = if is_declined {
                LinkStatus::Declined
            } else {
                LinkStatus::Failed
            };
            (status, Some(no_connection(outcome, failure)))
        }
        None if is_expired => (
            LinkStatus::Expired,
            Some(no_connection(LinkOutcome::Expired, None)),
        ),
        Some((None, _)) | None => (LinkStatus::Open, None),
    }
}

fn no_connection(outcome: LinkOutcome, failure: Option<&str>) -> NoConnection {
    let message = match outcome {
        LinkOutcome::Declined => "The person gave no consent.",
        LinkOutcome::Expired => "Nobody gave a consent in time.",
        LinkOutcome::OwnedByOtherUser => "Another user has connected these accounts.",
        LinkOutcome::Withdrawn => {
            "The person denied the consent or did not confirm it in time, so it is withdrawn."
        }
        LinkOutcome::NotWithdrawn => {
            "The person denied the consent or did not confirm it in time, and the provider does not withdraw it."
        }
        LinkOutcome::Unchanged => "Everything that the person consented to was connected already.",
        LinkOutcome::Failed
        | LinkOutcome::Linked
        | LinkOutcome::Reconnected
        | LinkOutcome::LinkedOther => failure.unwrap_or("The provider could not complete it."),
    };
    NoConnection {
        code: outcome.as_str(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linking::fixtures::connection_id;

    /// A browser that is at the provider.
    const STARTED: Visit<'_> = Visit {
        phase: LinkPhase::Started,
        confirmation: Confirmation::Open,
        outcome: None,
        is_expired: false,
        connections: &[],
        failure_reason: None,
    };

    fn ended(outcome: LinkOutcome) -> Visit<'static> {
        Visit {
            phase: LinkPhase::Ended,
            confirmation: Confirmation::Confirmed,
            outcome: Some(outcome),
            ..STARTED
        }
    }

    #[test]
    fn status_follows_the_newest_visit_unless_one_has_connected() {
        use LinkStatus::{Connected, Declined, Expired, Open, Waiting};
        let abandoned = Visit {
            is_expired: true,
            ..STARTED
        };
        let returned = Visit {
            phase: LinkPhase::CallbackReceived,
            ..abandoned
        };
        let confirmed = Visit {
            confirmation: Confirmation::Confirmed,
            ..STARTED
        };
        let linked = ended(LinkOutcome::Linked);
        let declined = ended(LinkOutcome::Declined);
        let noticed = ended(LinkOutcome::Expired);
        for (name, visits) in [
            ("nobody came", &[][..]),
            ("left", &[abandoned]),
            ("left, noticed", &[noticed]),
        ] {
            assert_eq!(result_of(visits, false).0, Open, "{name}");
            assert_eq!(result_of(visits, true).0, Expired, "{name}, expired");
        }
        for (name, visits, status) in [
            ("at the provider", &[STARTED][..], Open),
            ("came back", &[returned], Waiting),
            ("says so on the link's page", &[confirmed], Waiting),
            ("came back in an older tab", &[STARTED, confirmed], Waiting),
            ("declined", &[declined], Declined),
            ("tries again", &[STARTED, declined], Open),
            ("declined in a newer tab", &[declined, STARTED], Declined),
            ("tried again, and left", &[abandoned, declined], Declined),
            ("connected", &[linked], Connected),
            (
                "connected in another tab",
                &[declined, STARTED, linked],
                Connected,
            ),
        ] {
            for is_expired in [false, true] {
                let (found, _) = result_of(visits, is_expired);
                assert_eq!(found, status, "{name}, expired: {is_expired}");
            }
        }
    }

    #[test]
    fn every_outcome_has_a_status_and_a_reason() {
        use LinkOutcome::{
            Declined, Expired, Failed, Linked, LinkedOther, NotWithdrawn, OwnedByOtherUser,
            Reconnected, Unchanged, Withdrawn,
        };
        for outcome in LinkOutcome::ALL {
            let (status, reason) = result_of(&[ended(*outcome)], true);
            let expected = match outcome {
                Linked | Reconnected | LinkedOther => LinkStatus::Connected,
                Declined => LinkStatus::Declined,
                Failed | OwnedByOtherUser | Unchanged | Withdrawn | NotWithdrawn => {
                    LinkStatus::Failed
                }
                Expired => LinkStatus::Expired,
            };
            assert_eq!(status, expected, "{outcome}");
            let code = (status != LinkStatus::Connected).then_some(outcome.as_str());
            assert_eq!(reason.as_ref().map(|reason| reason.code), code);
            assert!(
                reason.is_none_or(|reason| reason.message.ends_with('.')),
                "{outcome}"
            );
        }
        let failed = Visit {
            failure_reason: Some("The bank is down."),
            ..ended(Failed)
        };
        assert_eq!(
            result_of(&[failed], false).1.expect("a reason").message,
            "The bank is down."
        );
        let found_before_its_end = Visit {
            connections: &[connection_id(1)],
            ..STARTED
        };
        let result = result_of(&[found_before_its_end], true);
        assert_eq!(result, (LinkStatus::Connected, None));
        let renewed = Visit {
            connections: &[connection_id(1)],
            ..ended(Unchanged)
        };
        let result = result_of(&[renewed], false);
        assert_eq!(result, (LinkStatus::Connected, None), "a renewed consent");
    }
}
