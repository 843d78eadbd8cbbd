//! Handles OAuth callbacks. Each one starts to poll its consent session while the browser waits.
//!
//! A callback in the browser that started the session confirms it. In any other browser the user is
//! asked first, because the provider's page may have been sent to another person. That person can
//! also deny the session later.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Confirmation, Connection, LinkOutcome, LinkPhase};
use bellbird_providers::linking;
use bellbird_storage::{ClaimedConsentSession, ConsentSession};
use jiff::SignedDuration;
use tracing::Instrument as _;

use super::link_page::{LinkedConnection, is_used_up};
use super::poll::{self, LEASE, seal_params};
use crate::ConnectionsError;
use crate::linking::Links;
use crate::removal::Removals;
use crate::return_url::AppReturn;

/// Lease while a code is exchanged. It is short because the code is valid for a minute
/// (docs/providers/akahu.md#redirects): after a crash, another instance must still be in time to
/// exchange it.
const EXCHANGE_LEASE: Duration = Duration::from_secs(25);
/// How long a browser waits for the outcome.
const BROWSER_WAIT_MAX: Duration = Duration::from_secs(12);

/// How long a user can deny a consent session after its start. Less than the day after which
/// sessions are deleted.
const DENY_TTL: SignedDuration = SignedDuration::from_hours(24);

/// Who returned from the provider.
#[derive(Debug, Clone, Copy)]
pub enum CallbackAnswer<'a> {
    /// A browser with this cookie, which has not been asked.
    Browser(Option<&'a str>),
    /// The user has confirmed that the consent is theirs, in the browser with this cookie.
    Yes(&'a str),
    /// The user has denied it.
    No,
}

impl<'a> CallbackAnswer<'a> {
    /// The cookie of the browser. None after a denial, which binds no browser.
    fn browser(self) -> Option<&'a str> {
        match self {
            Self::Browser(browser) => browser,
            Self::Yes(browser) => Some(browser),
            Self::No => None,
        }
    }
}

/// What the callback page shows, and for whom.
#[derive(Debug)]
pub struct HandledCallback {
    /// The user of the session. Empty if no session was found.
    pub email: String,
    /// The provider of the session. Empty if no session was found.
    pub provider: String,
    /// Whether the user who gave the consent can still deny the session.
    pub can_deny: bool,
    pub outcome: CallbackOutcome,
    /// Where a link session leads back. None for a browser that the session is not bound to.
    pub app_return: Option<AppReturn>,
}

#[derive(Debug)]
pub enum CallbackOutcome {
    /// No open session has this `state`: the URL is forged, incomplete or too old.
    UnknownState,
    /// Another browser started the session: ask whose consent it is. Nothing has changed yet.
    NeedsAnswer {
        /// Whether the answer has to come within a minute, because the provider's code is no longer
        /// valid afterwards.
        is_urgent: bool,
    },
    /// The provider has not confirmed the consent yet. The session continues without the browser.
    Pending,
    /// The session has ended. The result is the same each time, while the session is stored.
    Finished(LinkResult),
    /// The session connected something that has been removed since.
    RemovedSince,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkResult {
    pub outcome: LinkOutcome,
    /// The connections that the session created, repaired or renewed. Empty for a browser that the
    /// session is not bound to.
    pub connections: Vec<LinkedConnection>,
    /// Why the session failed, as a sentence for the user.
    pub reason: Option<String>,
    /// Whether a connection has no accounts yet, and the provider may still list some.
    pub awaits_accounts: bool,
}

impl LinkResult {
    fn without_connections(outcome: LinkOutcome, reason: Option<String>) -> Self {
        Self {
            outcome,
            connections: Vec::new(),
            reason,
            awaits_accounts: false,
        }
    }
}

/// A link that leads on from the result of one of its sessions.
#[derive(Debug)]
pub struct ReturnLink {
    /// Whether it is for the repair of one connection.
    pub is_repair: bool,
    /// Whether the console made it for one of its buttons.
    pub is_of_console: bool,
    /// The connection that the session was to repair.
    pub repaired: Option<Connection>,
}

impl CallbackOutcome {
    fn withdrawn() -> Self {
        Self::Finished(LinkResult::without_connections(
            LinkOutcome::Withdrawn,
            None,
        ))
    }

    /// Whether the session has connected something, or still may.
    fn is_deniable(&self) -> bool {
        match self {
            Self::UnknownState | Self::NeedsAnswer { .. } | Self::RemovedSince => false,
            Self::Pending => true,
            Self::Finished(result) => result.outcome.is_connected(),
        }
    }
}

impl Links<'_> {
    /// Handles a callback with these decoded query parameters. Each `state` works once: afterwards,
    /// the callback only shows the result.
    ///
    /// Polls the provider for up to twelve seconds, then returns the outcome or
    /// [`CallbackOutcome::Pending`]. Without the cookie of the browser that started the session, it
    /// changes nothing and asks for an answer.
    pub async fn handle_callback(
        self,
        params: &[(String, String)],
        answer: CallbackAnswer<'_>,
    ) -> Result<HandledCallback, ConnectionsError> {
        let unknown = HandledCallback {
            email: String::new(),
            provider: String::new(),
            can_deny: false,
            outcome: CallbackOutcome::UnknownState,
            app_return: None,
        };
        let (state, params) = split_state(params);
        let Some(state) = state else {
            return Ok(unknown);
        };
        let Some(session) = self
            .0
            .unverified_read(self.0.storage.consent_sessions().find(&state))
            .await?
        else {
            return Ok(unknown);
        };
        let Some(user) = self.0.storage.users().find(session.user_id).await? else {
            return Ok(unknown);
        };
        let outcome = self
            .answer_callback(&state, &session, &params, answer)
            .await?;
        // A denial may precede or follow this callback, so the session is read again.
        let session = self.0.storage.consent_sessions().find(&state).await?;
        let is_open = |session: &ConsentSession| {
            session.confirmation != Confirmation::Denied
                && self.0.clock.now().duration_since(session.created_at) < DENY_TTL
        };
        let is_denied = session
            .as_ref()
            .is_some_and(|session| session.confirmation == Confirmation::Denied);
        let outcome = match outcome {
            // What the provider still lists until the session expires is withdrawn too.
            CallbackOutcome::Pending if is_denied => CallbackOutcome::withdrawn(),
            outcome => outcome,
        };
        let can_deny = outcome.is_deniable() && session.as_ref().is_some_and(is_open);
        let app_return = match &session {
            Some(session) => self.app_return_of(session, answer.browser()).await?,
            None => None,
        };
        let provider = session.map(|session| session.provider).unwrap_or_default();
        Ok(HandledCallback {
            email: user.email,
            provider,
            can_deny,
            outcome,
            app_return,
        })
    }

    async fn answer_callback(
        self,
        state: &str,
        session: &ConsentSession,
        params: &[(String, String)],
        answer: CallbackAnswer<'_>,
    ) -> Result<CallbackOutcome, ConnectionsError> {
        let is_waiting =
            session.phase == LinkPhase::Started && self.0.clock.now() < session.expires_at;
        let provider = self.0.provider(&session.provider);
        let linking = provider
            .as_ref()
            .ok()
            .and_then(|provider| provider.linking());
        let confirmation = match answer {
            CallbackAnswer::Yes(_) => Confirmation::Confirmed,
            CallbackAnswer::No if !is_waiting => return self.deny(state, session).await,
            CallbackAnswer::No => Confirmation::Denied,
            CallbackAnswer::Browser(Some(browser)) if session.is_bound_to(browser) => {
                Confirmation::Confirmed
            }
            // The callback was received before, or is too late: this one changes nothing.
            CallbackAnswer::Browser(_) if !is_waiting => Confirmation::Open,
            // The user returned without consent, so there is nothing to ask. What is found all the
            // same is withdrawn.
            CallbackAnswer::Browser(_)
                if linking.is_some_and(|linking| linking.hint(params).is_err()) =>
            {
                match session.confirmation {
                    Confirmation::Confirmed => Confirmation::Confirmed,
                    Confirmation::Open | Confirmation::Denied => Confirmation::Denied,
                }
            }
            CallbackAnswer::Browser(_) => {
                let is_urgent = linking.is_some_and(|linking| !linking.can_finish(&[]));
                return Ok(CallbackOutcome::NeedsAnswer { is_urgent });
            }
        };
        // Providers that register users send no code to exchange.
        let exchanges_code = linking.is_some_and(|linking| !linking.registers_users());
        let (now, lease) = self.0.lease(if exchanges_code {
            EXCHANGE_LEASE
        } else {
            LEASE
        });
        let sealed = seal_params(params);
        let browser = answer.browser();
        let confirming = browser.filter(|_| matches!(answer, CallbackAnswer::Yes(_)));
        let received = self
            .0
            .storage
            .consent_sessions()
            .receive_callback(state, &sealed, (confirmation, confirming), now, lease)
            .await?;
        if let Some(claim) = received {
            return self.run_while_browser_waits(claim, state, browser).await;
        }
        self.stored_outcome(state, browser).await
    }

    /// The result of an ended session, or that it is still open. `browser` is the cookie of the
    /// browser that asks.
    async fn stored_outcome(
        self,
        state: &str,
        browser: Option<&str>,
    ) -> Result<CallbackOutcome, ConnectionsError> {
        let Some(session) = self.0.storage.consent_sessions().find(state).await? else {
            return Ok(CallbackOutcome::UnknownState);
        };
        let Some(outcome) = outcome_of(&session) else {
            let is_started = session.phase == LinkPhase::Started;
            return Ok(if is_started {
                CallbackOutcome::UnknownState
            } else {
                CallbackOutcome::Pending
            });
        };
        let mut connections = Vec::new();
        for id in &session.connections {
            if let Some(connection) = self
                .0
                .storage
                .connections()
                .find(session.user_id, *id)
                .await?
            {
                connections.push(self.with_accounts(connection).await?);
            }
        }
        if outcome.is_connected() && connections.is_empty() {
            return Ok(CallbackOutcome::RemovedSince);
        }
        let reason = session.failure_reason.clone();
        if !browser.is_some_and(|browser| session.is_bound_to(browser)) {
            return Ok(CallbackOutcome::Finished(LinkResult::without_connections(
                outcome, reason,
            )));
        }
        let awaits_accounts = outcome.is_connected() && self.awaits_accounts(&connections).await?;
        Ok(CallbackOutcome::Finished(LinkResult {
            outcome,
            connections,
            reason,
            awaits_accounts,
        }))
    }

    async fn awaits_accounts(
        self,
        connections: &[LinkedConnection],
    ) -> Result<bool, ConnectionsError> {
        let now = self.0.clock.now();
        for LinkedConnection { connection, .. } in connections
            .iter()
            .filter(|linked| linked.accounts.is_empty())
        {
            let backfill_ends_at = self
                .0
                .storage
                .refreshes()
                .find_backfill_end(connection.user_id, connection.id)
                .await?;
            if backfill_ends_at.is_some_and(|until| now < until) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn run_while_browser_waits(
        self,
        claim: ClaimedConsentSession,
        state: &str,
        browser: Option<&str>,
    ) -> Result<CallbackOutcome, ConnectionsError> {
        let shared = Arc::clone(self.0);
        // In a task of its own, which neither a closed browser nor the timeout below cancels.
        let task = async move {
            let job = claim.job.clone();
            shared
                .run_claimed(
                    &poll::KIND,
                    &job,
                    Links(&shared).run_session(claim, BROWSER_WAIT_MAX),
                )
                .await
        };
        let task = self.0.tasks.spawn(task.in_current_span());
        match tokio::time::timeout(BROWSER_WAIT_MAX, task).await {
            Ok(Ok(Ok(Some(_)))) => self.stored_outcome(state, browser).await,
            Ok(Ok(Err(failed))) => Err(failed.error),
            Ok(Ok(Ok(None)) | Err(_)) | Err(_) => Ok(CallbackOutcome::Pending),
        }
    }

    /// Finds the link with which the user can continue from a result page: `token` is that of the
    /// link from which this browser last started a session. None unless the session of these
    /// callback parameters is bound to the browser, and the link is open and for the same user.
    pub async fn find_return_link(
        self,
        params: &[(String, String)],
        browser: Option<&str>,
        token: Option<&str>,
    ) -> Result<Option<ReturnLink>, ConnectionsError> {
        let ((Some(state), _), Some(browser), Some(token)) = (split_state(params), browser, token)
        else {
            return Ok(None);
        };
        let session = self
            .0
            .unverified_read(self.0.storage.consent_sessions().find(&state))
            .await?;
        let Some(session) = session.filter(|session| session.is_bound_to(browser)) else {
            return Ok(None);
        };
        let open = self.find_open_link(token).await?;
        let link = open
            .map(|(link, _)| link)
            .filter(|link| link.user_id == session.user_id && !is_used_up(link));
        let Some(link) = link else {
            return Ok(None);
        };
        let connections = self.0.storage.connections();
        Ok(Some(ReturnLink {
            is_repair: link.connection_id.is_some(),
            is_of_console: link.console_session.is_some(),
            repaired: match session.connection_id {
                Some(id) => connections.find(session.user_id, id).await?,
                None => None,
            },
        }))
    }

    /// Denies a session whose callback was received before, or that has ended: withdraws its
    /// consents and removes its connections. Works once, and for a day.
    async fn deny(
        self,
        state: &str,
        session: &ConsentSession,
    ) -> Result<CallbackOutcome, ConnectionsError> {
        let now = self.0.clock.now();
        if session.phase == LinkPhase::Started || now.duration_since(session.created_at) >= DENY_TTL
        {
            return Ok(CallbackOutcome::UnknownState);
        }
        if self.0.storage.consent_sessions().deny(session, now).await? {
            let Some(job) = self.0.claim(&poll::KIND, &session.job()).await? else {
                return Ok(CallbackOutcome::Pending);
            };
            return match self.0.storage.consent_sessions().find_claimed(&job).await? {
                Some(claim) => self.run_while_browser_waits(claim, state, None).await,
                None => Ok(CallbackOutcome::Pending),
            };
        }
        // It may have ended since it was read.
        let session = self.0.storage.consent_sessions().find(state).await?;
        let Some(session) = session.filter(|session| session.phase == LinkPhase::Ended) else {
            return Ok(CallbackOutcome::Pending);
        };
        let outcome = outcome_of(&session);
        if session.confirmation == Confirmation::Denied
            || !outcome.is_some_and(LinkOutcome::is_connected)
        {
            return self.stored_outcome(state, None).await;
        }
        // Recorded last: after a crash in between, the user can deny again.
        for connection in &session.connections {
            Removals(self.0)
                .remove_in_background("denied", session.user_id, *connection, &session.provider)
                .await?;
        }
        self.0
            .storage
            .consent_sessions()
            .deny_ended(&session)
            .await?;
        tracing::info!(provider = session.provider, "consent session denied");
        Ok(CallbackOutcome::withdrawn())
    }
}

pub(crate) fn outcome_of(session: &ConsentSession) -> Option<LinkOutcome> {
    session
        .outcome
        .as_ref()
        .map(|outcome| outcome.parse().unwrap_or(LinkOutcome::Failed))
}

/// Separates `state` from the other callback parameters. A repeated `state` is invalid: Bellbird
/// sends it once.
fn split_state(params: &[(String, String)]) -> (Option<String>, Vec<(String, String)>) {
    let (mut states, rest): (Vec<_>, Vec<_>) = linking::untangle_params(params)
        .into_iter()
        .partition(|(name, _)| name == "state");
    let state = states.pop().map(|(_, state)| state);
    (state.filter(|_| states.is_empty()), rest)
}
