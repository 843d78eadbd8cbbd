//! Handles OAuth callbacks, and polls link sessions until the provider lists the consent of the user.
//!
//! A session is a job, so it also finishes without a callback, and after any crash. Callback parameters and exchanged
//! credentials are sealed with the session, so the next attempt does not need the browser again.

use std::time::Duration;

use bellbird_domain::{Account, Connection};
use bellbird_providers::linking::{self, CallbackParams, NoConsent, Purpose};
use bellbird_providers::{CallContext, Error, FoundConnection, Linking, Provider};
use bellbird_storage::{ClaimedLinkSession, LinkPhase, LinkSession, StorageError};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::apply_consents::{AppliedConsents, ApplyRequest};
use super::start::{FIRST_POLL_AFTER, LINK_SESSION_TTL};
use crate::{Connections, ConnectionsError, run_claims, schedule};

/// Longer than [`BROWSER_WAIT_MAX`] and [`ATTEMPT_DEADLINE`] together.
const LEASE: Duration = Duration::from_secs(60);
/// Lease while a code is exchanged. It is short because the code is valid for a minute
/// (docs/providers/akahu.md#redirects): after a crash, another instance must still be in time to exchange it.
const EXCHANGE_LEASE: Duration = Duration::from_secs(25);
/// For the provider calls of one exchange.
const EXCHANGE_DEADLINE: Duration = Duration::from_secs(12);
/// For the provider calls of one poll.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(40);
/// How long a browser waits for the outcome.
const BROWSER_WAIT_MAX: Duration = Duration::from_secs(12);
/// Time between two polls while a browser waits. Later polls follow [`schedule::next_session_poll_at`].
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Link sessions that one instance works on at the same time.
const CONCURRENCY_MAX: u32 = 8;
/// After this many polls without a new consent, the user's approval is treated as a renewal of an existing consent.
/// That takes about nine seconds, while the browser still waits.
const UNCHANGED_POLLS: u32 = 9;
/// The same for a repair in which another, active connection got new credentials: about two seconds.
const RENEWED_POLLS: u32 = 2;
/// How long a session is polled after its expiry while the provider fails: the user may have consented, and only this
/// session would find that. Less than the day after which sessions are deleted.
const RETRY_AFTER_EXPIRY_MAX: Duration = Duration::from_secs(20 * 3_600);

/// The outcome of a link session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkOutcome {
    /// The consent led to new connections.
    Linked,
    /// A connection is active again.
    Reconnected,
    /// The session was to repair a connection, but the user shared other accounts, which became a new connection.
    LinkedOther,
    /// The user consented, but everything was connected already.
    Unchanged,
    Declined,
    /// The session failed; the callback page showed the reason.
    Failed,
    /// The session expired without approval, and the provider has no new consent.
    Expired,
    /// The consent is connected for another user of this service.
    OwnedByOtherUser,
}

impl LinkOutcome {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Linked, "linked"),
        (Self::Reconnected, "reconnected"),
        (Self::LinkedOther, "linked_other"),
        (Self::Unchanged, "unchanged"),
        (Self::Declined, "declined"),
        (Self::Failed, "failed"),
        (Self::Expired, "expired"),
        (Self::OwnedByOtherUser, "owned_by_other_user"),
    ];

    fn as_str(&self) -> &'static str {
        Self::ALL.iter().find(|(outcome, _)| outcome == self).map_or("failed", |(_, word)| word)
    }

    fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map_or(Self::Failed, |(outcome, _)| outcome)
    }
}

/// What the callback page shows.
#[derive(Debug)]
pub enum CallbackOutcome {
    /// No open session has this `state`: the URL is forged, incomplete or too old.
    UnknownState,
    /// The callback was handled before. Holds its outcome if the session has ended.
    AlreadyUsed(Option<LinkOutcome>),
    /// The provider has not confirmed the consent yet. The session continues without the browser.
    Pending,
    Finished {
        outcome: LinkOutcome,
        /// The connections that the session created, repaired or renewed.
        connections: Vec<Connection>,
        /// The accounts of these connections that have appeared so far.
        accounts: Vec<Account>,
        /// Why the session failed, as a sentence for the user.
        reason: Option<String>,
    },
}

/// How far a session has come after a poll.
enum Progress {
    Finished {
        outcome: LinkOutcome,
        connections: Vec<Connection>,
        reason: Option<String>,
    },
    /// No outcome yet. `failed`: the poll ended with an error.
    Pending {
        failed: bool,
    },
    LeaseLost,
}

impl Progress {
    const PENDING: Self = Self::Pending { failed: false };

    fn without_connections(outcome: LinkOutcome, reason: Option<&str>) -> Self {
        Self::Finished { outcome, connections: Vec::new(), reason: reason.map(str::to_owned) }
    }
}

/// A claimed session with the results of its polls.
struct SessionRun {
    claim: ClaimedLinkSession,
    params: Vec<(String, String)>,
    /// What the callback parameters say: a hint, because anyone can forge them.
    callback_result: Result<(), NoConsent>,
    /// Earlier attempts in the same phase, plus the polls of this run.
    polls: u32,
    /// Whether no other session of the user at this provider can explain the consents that were found.
    is_only_session: bool,
    applied: AppliedConsents,
}

impl Connections {
    /// Handles a callback with these decoded query parameters. Each `state` works once.
    ///
    /// Polls the provider for up to twelve seconds, then returns the outcome or [`CallbackOutcome::Pending`].
    pub async fn handle_callback(&self, params: &[(String, String)]) -> Result<CallbackOutcome, ConnectionsError> {
        let (state, params) = split_state(params);
        let Some(state) = state else { return Ok(CallbackOutcome::UnknownState) };
        let Some(session) = self.storage.find_link_session(&state).await? else {
            return Ok(CallbackOutcome::UnknownState);
        };
        let sealed = serde_json::to_string(&params).map_err(|_| ConnectionsError::NotFound)?;
        // Providers that register users send no code to exchange.
        let exchanges_code = self.linking_for(&session.provider).is_ok_and(|linking| !linking.registers_users());
        let (now, lease) = self.lease(if exchanges_code { EXCHANGE_LEASE } else { LEASE });
        let Some(claim) = self.storage.receive_link_callback(&state, &sealed.into(), now, lease).await? else {
            return Ok(match self.storage.find_link_session(&state).await? {
                None | Some(LinkSession { phase: LinkPhase::Started, .. }) => CallbackOutcome::UnknownState,
                Some(session) => CallbackOutcome::AlreadyUsed(session.outcome.as_deref().map(LinkOutcome::parse)),
            });
        };
        let this = self.clone();
        // In a task of its own, which neither a closed browser nor the timeout below cancels.
        let task = tokio::spawn(async move { this.run_session(claim, BROWSER_WAIT_MAX).await }.in_current_span());
        match tokio::time::timeout(BROWSER_WAIT_MAX, task).await {
            Ok(Ok(Ok(Progress::Finished { outcome, connections, reason }))) => {
                let mut accounts = Vec::new();
                for connection in &connections {
                    accounts.extend(self.storage.list_connection_accounts(connection.user_id, connection.id).await?);
                }
                Ok(CallbackOutcome::Finished { outcome, connections, accounts, reason })
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Ok(Ok(Progress::Pending { .. } | Progress::LeaseLost)) | Err(_)) | Err(_) => {
                Ok(CallbackOutcome::Pending)
            }
        }
    }

    /// Polls every due link session, a few at a time, and returns when none is due.
    ///
    /// Every instance calls this periodically. On a database error, the claimed jobs run again when their leases
    /// expire.
    pub async fn run_due_link_sessions(&self) -> Result<(), ConnectionsError> {
        loop {
            let (now, lease) = self.lease(LEASE);
            let claims = self.storage.claim_due_link_sessions(now, lease, CONCURRENCY_MAX).await?;
            if claims.is_empty() {
                return Ok(());
            }
            run_claims(claims, |claim| {
                let connections = self.clone();
                async move { connections.run_session(claim, Duration::ZERO).await.map(|_| ()) }
            })
            .await?;
        }
    }

    /// Waits until a provider event requests polls of link sessions in this process.
    pub async fn link_session_requested(&self) {
        self.job_signals.link_sessions.notified().await;
    }

    /// Polls a session until it has an outcome or `time` has passed, then finishes or postpones it.
    async fn run_session(&self, claim: ClaimedLinkSession, time: Duration) -> Result<Progress, ConnectionsError> {
        let until = Instant::now() + time;
        let (params, polls) = (sealed_params(&claim), claim.attempts);
        let mut run = SessionRun {
            claim,
            params,
            callback_result: Ok(()),
            polls,
            is_only_session: false,
            applied: AppliedConsents::default(),
        };
        loop {
            let progress = match self.poll_session(&mut run).await {
                // The lease expires, and the job runs again.
                Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => return Err(error),
                // In the phase `Started`, the callback may still follow, so no error is final.
                Err(error) if error.is_transient() || run.claim.session.phase == LinkPhase::Started => {
                    tracing::warn!(provider = run.claim.session.provider, %error, "could not poll link session");
                    Progress::Pending { failed: true }
                }
                Err(error) => {
                    tracing::warn!(provider = run.claim.session.provider, %error, "link session failed");
                    Progress::without_connections(LinkOutcome::Failed, Some(error.user_message()))
                }
                Ok(progress) => progress,
            };
            run.polls = run.polls.saturating_add(1);
            let (now, session) = (self.clock.now(), &run.claim.session);
            let failed = matches!(progress, Progress::Pending { failed: true });
            let extra_time = if failed { RETRY_AFTER_EXPIRY_MAX } else { Duration::ZERO };
            let ends_at = session.expires_at.saturating_add(extra_time).unwrap_or(session.expires_at);
            match progress {
                Progress::Pending { .. } if Instant::now() + POLL_INTERVAL < until => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Progress::Pending { .. } if now >= ends_at => {
                    return self.finish_session(&run.claim, outcome_at_expiry(&run, failed)).await;
                }
                Progress::Pending { .. } => {
                    let first_poll_at = session.created_at.saturating_add(FIRST_POLL_AFTER).unwrap_or(now);
                    let next_poll_at = match session.phase {
                        // Before its callback, a session is polled at these two times and after provider events,
                        // unless a poll fails.
                        LinkPhase::Started if !failed && now < first_poll_at => first_poll_at,
                        LinkPhase::Started if !failed => ends_at,
                        _ => schedule::next_session_poll_at(run.claim.attempts, now, ends_at),
                    };
                    self.storage.postpone_link_session(&run.claim, next_poll_at).await?;
                    return Ok(progress);
                }
                finished_or_lost => return self.finish_session(&run.claim, finished_or_lost).await,
            }
        }
    }

    /// Stores the outcome. Without one, returns `progress` unchanged.
    async fn finish_session(
        &self,
        claim: &ClaimedLinkSession,
        progress: Progress,
    ) -> Result<Progress, ConnectionsError> {
        let Progress::Finished { outcome, .. } = &progress else { return Ok(progress) };
        let ended = self.storage.end_link_session(claim, outcome.as_str()).await?;
        tracing::info!(provider = claim.session.provider, outcome = outcome.as_str(), "link session finished");
        Ok(if ended { progress } else { Progress::LeaseLost })
    }

    async fn poll_session(&self, run: &mut SessionRun) -> Result<Progress, ConnectionsError> {
        let LinkSession { user_id, provider, connection_id, phase, .. } = run.claim.session.clone();
        let provider = self.provider(&provider)?;
        let linking = self.linking_for(provider.name().as_str())?;
        if phase == LinkPhase::CallbackReceived {
            run.callback_result = linking.hint(&run.params);
        }
        if phase != LinkPhase::CredentialsObtained && !linking.can_finish(&run.params) {
            return Ok(match run.callback_result {
                _ if phase == LinkPhase::Started => Progress::PENDING,
                Err(NoConsent::Declined) => Progress::without_connections(LinkOutcome::Declined, None),
                Err(NoConsent::Failed(reason)) => Progress::without_connections(LinkOutcome::Failed, Some(reason)),
                Ok(()) => Progress::without_connections(
                    LinkOutcome::Failed,
                    Some("The provider returned you without a result."),
                ),
            });
        }
        let repair_target = match connection_id {
            Some(id) => self.storage.find_connection(user_id, id).await?,
            None => None,
        };
        let Some(credentials) = self.session_credentials(run, linking, repair_target.as_ref()).await? else {
            return Ok(Progress::LeaseLost);
        };
        let context = self.call_context_within(ATTEMPT_DEADLINE);
        let mut found = self.discover(provider.as_ref(), &context, &credentials).await?;
        // If the provider user of the connection is gone, the consent was given with the user's present provider user.
        if repair_target.is_some()
            && linking.registers_users()
            && let Some(provider_user) =
                self.storage.find_provider_user_credentials(user_id, provider.name().as_str()).await?
        {
            found.extend(self.discover(provider.as_ref(), &context, &provider_user).await?);
        }
        // Sessions created before `since` had expired when this session was created.
        let since = run.claim.session.created_at.saturating_sub(LINK_SESSION_TTL).unwrap_or(Timestamp::MIN);
        let other_sessions = self.storage.list_other_link_sessions(&run.claim.session, since).await?;
        let mut repair_targets: Vec<Connection> = repair_target.into_iter().collect();
        // After an approval in this session, the found consents belong to it. Without one, they may belong to another
        // open session of the user, so the connection that the other session is to repair counts too.
        let approved = phase != LinkPhase::Started && run.callback_result.is_ok();
        for other in other_sessions.iter().filter(|other| !approved && other.phase != LinkPhase::Ended) {
            let Some(id) = other.connection_id.filter(|id| repair_targets.iter().all(|known| known.id != *id)) else {
                continue;
            };
            repair_targets.extend(self.storage.find_connection(user_id, id).await?);
        }
        run.is_only_session = other_sessions.is_empty();
        let SessionRun { claim, params, polls, applied, .. } = run;
        let (provider, polls) = (provider.as_ref(), *polls);
        let request =
            ApplyRequest { claim, provider, context: &context, repair_targets: &repair_targets, params, polls };
        self.apply_consents(&request, &found, applied).await?;
        Ok(conclude(run, phase))
    }

    /// Lists the consents that the credentials cover: none if the provider no longer accepts the credentials.
    pub(crate) async fn discover(
        &self,
        provider: &dyn Provider,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundConnection>, ConnectionsError> {
        match provider.discover(context, credentials).await {
            Err(Error::ReconnectNeeded(_)) => Ok(Vec::new()),
            found => Ok(found?),
        }
    }

    /// Returns the credentials to poll with, or `None` if the lease was lost.
    ///
    /// Exchanged credentials are sealed with the session before they are used, because an exchange works once.
    async fn session_credentials(
        &self,
        run: &mut SessionRun,
        linking: &dyn Linking,
        repair_target: Option<&Connection>,
    ) -> Result<Option<SecretString>, ConnectionsError> {
        let session = &run.claim.session;
        if let (LinkPhase::CredentialsObtained, Some(credentials)) = (session.phase, &run.claim.secret) {
            return Ok(Some(credentials.clone()));
        }
        let credentials = match repair_target {
            Some(connection) => self.storage.find_credentials(session.user_id, connection.id).await?,
            None => self.storage.find_provider_user_credentials(session.user_id, &session.provider).await?,
        };
        let purpose = match (repair_target, &credentials) {
            (Some(connection), Some(credentials)) => {
                Purpose::Repair { credentials, institution_id: &connection.institution_id }
            }
            (_, provider_user) => Purpose::Link { provider_user: provider_user.as_ref() },
        };
        let redirect_uri = self.console_page_url("link/callback")?;
        let callback = CallbackParams { purpose, redirect_uri: &redirect_uri, params: &run.params };
        let exchanged = linking.finish(&self.call_context_within(EXCHANGE_DEADLINE), &callback).await?;
        if linking.registers_users() {
            return Ok(Some(exchanged));
        }
        let (_, lease) = self.lease(LEASE);
        if !self.storage.store_link_credentials(&run.claim, &exchanged, lease).await? {
            return Ok(None);
        }
        run.claim.session.phase = LinkPhase::CredentialsObtained;
        run.claim.secret = Some(exchanged.clone());
        Ok(Some(exchanged))
    }
}

/// Decides from the applied consents whether the session has an outcome.
fn conclude(run: &mut SessionRun, phase: LinkPhase) -> Progress {
    // Before the callback, the user may still consent to more.
    if run.applied.undecided || phase == LinkPhase::Started {
        return Progress::PENDING;
    }
    if let Some(finished) = outcome_of_applied(run) {
        return finished;
    }
    let is_repair = run.claim.session.connection_id.is_some();
    let polls_max = if is_repair && !run.applied.renewed.is_empty() { RENEWED_POLLS } else { UNCHANGED_POLLS };
    match run.callback_result {
        Err(NoConsent::Declined) => Progress::without_connections(LinkOutcome::Declined, None),
        Err(NoConsent::Failed(reason)) => Progress::without_connections(LinkOutcome::Failed, Some(reason)),
        Ok(()) if run.is_only_session && !run.applied.linked_earlier.is_empty() => outcome_without_changes(run),
        Ok(()) if run.polls >= polls_max => outcome_without_changes(run),
        Ok(()) => Progress::PENDING,
    }
}

/// The outcome if the user approved, but this attempt has neither created nor repaired a connection.
fn outcome_without_changes(run: &SessionRun) -> Progress {
    let AppliedConsents { linked_earlier, renewed, owned_by_other_user, .. } = &run.applied;
    let (outcome, connections) = match run.claim.session.connection_id {
        // Created by an earlier attempt of this session, or by a concurrent session.
        None if !linked_earlier.is_empty() => (LinkOutcome::Linked, linked_earlier.clone()),
        _ if *owned_by_other_user => (LinkOutcome::OwnedByOtherUser, Vec::new()),
        _ => (LinkOutcome::Unchanged, renewed.clone()),
    };
    Progress::Finished { outcome, connections, reason: None }
}

/// The outcome if connections were created or repaired.
fn outcome_of_applied(run: &SessionRun) -> Option<Progress> {
    let AppliedConsents { linked, reconnected, .. } = &run.applied;
    let repaired = |id| reconnected.iter().any(|connection| connection.id == id);
    let outcome = match run.claim.session.connection_id {
        _ if linked.is_empty() && reconnected.is_empty() => return None,
        Some(id) if repaired(id) => LinkOutcome::Reconnected,
        Some(_) if !linked.is_empty() => LinkOutcome::LinkedOther,
        _ if linked.is_empty() => LinkOutcome::Reconnected,
        _ => LinkOutcome::Linked,
    };
    let connections = linked.iter().chain(reconnected).cloned().collect();
    Some(Progress::Finished { outcome, connections, reason: None })
}

/// The outcome of a session that has expired. `failed`: its last poll ended with an error.
fn outcome_at_expiry(run: &SessionRun, failed: bool) -> Progress {
    let approved = run.claim.session.phase != LinkPhase::Started && run.callback_result.is_ok() && !failed;
    let no_connection = || {
        if approved { outcome_without_changes(run) } else { Progress::without_connections(LinkOutcome::Expired, None) }
    };
    outcome_of_applied(run).unwrap_or_else(no_connection)
}

/// Returns the callback parameters that are sealed with a session. Empty in other phases: there is no secret before the
/// callback, and after the exchange it holds credentials.
fn sealed_params(claim: &ClaimedLinkSession) -> Vec<(String, String)> {
    let sealed = claim.secret.as_ref().filter(|_| claim.session.phase == LinkPhase::CallbackReceived);
    sealed.and_then(|sealed| serde_json::from_str(sealed.expose_secret()).ok()).unwrap_or_default()
}

/// Separates `state` from the other callback parameters. A repeated `state` is invalid: Bellbird sends it once.
fn split_state(params: &[(String, String)]) -> (Option<String>, Vec<(String, String)>) {
    let (mut states, rest): (Vec<_>, Vec<_>) =
        linking::untangle_params(params).into_iter().partition(|(name, _)| name == "state");
    let state = states.pop().map(|(_, state)| state);
    (state.filter(|_| states.is_empty()), rest)
}
