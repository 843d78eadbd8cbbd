//! Polls consent sessions until the provider lists the consent of the user.
//!
//! A session is a job, so it also finishes without a callback, and after any crash. Callback
//! parameters and exchanged credentials are sealed with the session, so the next attempt does not
//! need the browser again.

use std::time::Duration;

use bellbird_domain::{Confirmation, Connection, LinkPhase};
use bellbird_providers::linking::{CallbackParams, Purpose};
use bellbird_providers::{CallContext, Cause, Error, FoundConnection, Linking, Provider};
use bellbird_storage::{
    ClaimedConsentSession, ClaimedJob, ConsentSession, JobKey, StorageError, job_kinds,
};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::apply::ApplyRequest;
use super::outcome::{self, Applied, Conclusion, Next, Poll, SessionFacts};
use super::start::CONSENT_SESSION_TTL;
use crate::ConnectionsError;
use crate::jobs::JobKind;
use crate::linking::Links;
use crate::state::linking_of;

/// Longer than the time that a browser waits and [`ATTEMPT_DEADLINE`] together.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// For the provider calls of one exchange.
const EXCHANGE_DEADLINE: Duration = Duration::from_secs(12);
/// For the provider calls of one poll.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(40);
/// Time between two polls while a browser waits. Later polls follow
/// [`crate::schedule::next_session_poll_at`].
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) static KIND: JobKind =
    JobKind::new(job_kinds::CONSENT_SESSION, LEASE, |state, claim| {
        Box::pin(Links(state).run_session_job(claim))
    });

/// A claimed session with the results of its polls.
struct SessionRun {
    claim: ClaimedConsentSession,
    params: Vec<(String, String)>,
    facts: SessionFacts,
    /// When this process began to poll in the present phase.
    phase_seen_since: Instant,
    applied: Applied,
    /// Whether another session of the user at this provider has not expired. A new consent may be
    /// that session's.
    has_open_rival: bool,
}

impl SessionRun {
    fn new(claim: ClaimedConsentSession) -> Self {
        let ConsentSession {
            phase,
            confirmation,
            created_at,
            expires_at,
            connection_id,
            ..
        } = claim.session;
        // Other phases have no parameters: there is no secret before the callback, and after the
        // exchange it holds credentials.
        let sealed = claim
            .secret
            .as_ref()
            .filter(|_| phase == LinkPhase::CallbackReceived);
        let facts = SessionFacts {
            phase,
            confirmation,
            created_at,
            expires_at,
            repairs: connection_id,
            callback_result: Ok(()),
            is_only_session: false,
        };
        let params = sealed.map(unseal_params).unwrap_or_default();
        Self {
            claim,
            params,
            facts,
            phase_seen_since: Instant::now(),
            applied: Applied::default(),
            has_open_rival: false,
        }
    }

    /// Time in the present phase, zero before the callback. The clock may be set back, or be that
    /// of another machine, so at least the time that this process has seen counts.
    fn elapsed(&self, now: Timestamp) -> Duration {
        if self.facts.phase == LinkPhase::Started {
            return Duration::ZERO;
        }
        let by_clock = Duration::try_from(now.duration_since(self.claim.session.phase_since))
            .unwrap_or_default();
        by_clock.max(self.phase_seen_since.elapsed())
    }
}

impl Links<'_> {
    /// Polls the session of a job once.
    async fn run_session_job(self, job: &ClaimedJob) -> Result<(), ConnectionsError> {
        match self.0.storage.consent_sessions().find_claimed(job).await? {
            Some(claim) => self.run_session(claim, Duration::ZERO).await.map(|_| ()),
            None => self.0.finish_job(job, None).await,
        }
    }

    /// Polls the session of a job once, unless another task runs the job.
    pub(crate) async fn run_session_now(self, key: &JobKey) -> Result<(), ConnectionsError> {
        let Some(job) = self.0.claim(&KIND, key).await? else {
            return Ok(());
        };
        let run = self.0.run_claimed(&KIND, &job, self.run_session_job(&job));
        run.await.map_err(|failed| failed.error)
    }

    /// Polls a session until it has a conclusion or `time` has passed, then finishes or postpones
    /// it.
    ///
    /// Returns None if it was postponed, or if the lease was lost.
    pub(crate) async fn run_session(
        self,
        claim: ClaimedConsentSession,
        time: Duration,
    ) -> Result<Option<Conclusion>, ConnectionsError> {
        let until = Instant::now() + time;
        let mut run = SessionRun::new(claim);
        loop {
            let result = self.poll_session(&mut run).await;
            let Some(poll) = poll_result(&run, result)? else {
                return Ok(None);
            };
            let browser_waits = Instant::now() + POLL_INTERVAL < until;
            let (attempts, state) = (run.claim.job.attempts, (&run.facts, &run.applied));
            match outcome::after_poll(poll, state, attempts, self.0.clock.now(), browser_waits) {
                Next::PollAgain => tokio::time::sleep(POLL_INTERVAL).await,
                Next::PostponeUntil(time) => {
                    self.0.storage.jobs().postpone(&run.claim.job, time).await?;
                    return Ok(None);
                }
                Next::Finish(conclusion) => {
                    let word = conclusion.outcome.as_str();
                    let session = &mut run.claim.session;
                    session.connections = conclusion
                        .connections
                        .iter()
                        .map(|connection| connection.id)
                        .collect();
                    session.failure_reason = conclusion.reason.map(str::to_owned);
                    if !self
                        .0
                        .storage
                        .consent_sessions()
                        .end(&run.claim, word)
                        .await?
                    {
                        return Ok(None);
                    }
                    metrics::counter!("bellbird_consent_sessions_total", "outcome" => word)
                        .increment(1);
                    tracing::info!(
                        provider = run.claim.session.provider,
                        outcome = word,
                        "consent session finished"
                    );
                    return Ok(Some(conclusion));
                }
            }
        }
    }

    /// Returns None if the lease was lost.
    async fn poll_session(self, run: &mut SessionRun) -> Result<Option<Poll>, ConnectionsError> {
        let ConsentSession {
            user_id, provider, ..
        } = run.claim.session.clone();
        let now = self.0.clock.now();
        // Nothing may be stored before the user has confirmed the session, so there is nothing to
        // ask the provider.
        if run.facts.confirmation == Confirmation::Open && now < run.facts.expires_at {
            return Ok(Some(Poll::Pending));
        }
        let provider = self.0.provider(&provider)?;
        let provider = provider.as_ref();
        let linking = linking_of(provider)?;
        if run.facts.phase == LinkPhase::CallbackReceived {
            run.facts.callback_result = linking.hint(&run.params);
        }
        if run.facts.phase != LinkPhase::CredentialsObtained && !linking.can_finish(&run.params) {
            return Ok(Some(
                outcome::conclude_without_polling(&run.facts)
                    .map_or(Poll::Pending, Poll::Concluded),
            ));
        }
        let repair_target = match run.facts.repairs {
            Some(id) => self.0.storage.connections().find(user_id, id).await?,
            None => None,
        };
        let Some(credentials) = self
            .session_credentials(run, linking, repair_target.as_ref())
            .await?
        else {
            return Ok(None);
        };
        let repairs = repair_target.is_some();
        let repair_targets = self.repair_targets(run, repair_target).await?;
        // Before the provider is asked, because it can be hours until the other session ends.
        if run.facts.confirmation == Confirmation::Open && run.has_open_rival {
            return Ok(Some(Poll::Failed));
        }
        let (elapsed, is_expired) = (run.elapsed(now), now >= run.facts.expires_at);
        let context = self
            .0
            .call_context_within(ATTEMPT_DEADLINE, Cause::RequestedJob(user_id));
        let mut found = self.discover(provider, &context, &credentials).await?;
        // If the provider user of the connection is gone, the consent was given with the user's
        // present provider user.
        if repairs
            && linking.registers_users()
            && let Some(provider_user) = self
                .0
                .storage
                .provider_users()
                .find_credentials(user_id, provider.name().as_str())
                .await?
        {
            found.extend(self.discover(provider, &context, &provider_user).await?);
        }
        let is_declined = run.facts.callback_result.is_err();
        // What was found may be the consent of the other session. This one has none.
        if run.facts.confirmation == Confirmation::Denied && is_declined && run.has_open_rival {
            return Ok(outcome::conclude_without_polling(&run.facts).map(Poll::Concluded));
        }
        let SessionRun {
            claim,
            params,
            applied,
            ..
        } = run;
        let request = ApplyRequest {
            claim,
            provider,
            context: &context,
            repair_targets: &repair_targets,
            params,
            elapsed,
            is_expired,
            is_declined,
        };
        match self.apply_consents(&request, &found, applied).await {
            Err(ConnectionsError::Busy) => return Ok(None),
            result => result?,
        }
        Ok(Some(
            outcome::conclude(&run.facts, applied, elapsed).map_or(Poll::Pending, Poll::Concluded),
        ))
    }

    /// Returns the connections that the found consents may repair: `own` is that of this session.
    async fn repair_targets(
        self,
        run: &mut SessionRun,
        own: Option<Connection>,
    ) -> Result<Vec<Connection>, ConnectionsError> {
        let session = &run.claim.session;
        // Sessions created before `since` had expired when this session was created.
        let since = session
            .created_at
            .saturating_sub(CONSENT_SESSION_TTL)
            .unwrap_or(Timestamp::MIN);
        let others = self
            .0
            .storage
            .consent_sessions()
            .list_other(session, since)
            .await?;
        run.facts.is_only_session = others.is_empty();
        let now = self.0.clock.now();
        run.has_open_rival = others
            .iter()
            .any(|other| other.phase != LinkPhase::Ended && now < other.expires_at);
        let mut targets: Vec<Connection> = own.into_iter().collect();
        // After an approval in this session, the found consents belong to it. Without one, they may
        // belong to another open session of the user, so the connection that the other session is
        // to repair counts too.
        if !run.facts.is_approved() && run.facts.confirmation == Confirmation::Confirmed {
            for other in others
                .iter()
                .filter(|other| other.phase != LinkPhase::Ended)
            {
                let known = |id: &_| targets.iter().any(|target| target.id == *id);
                if let Some(id) = other.connection_id.filter(|id| !known(id)) {
                    targets.extend(
                        self.0
                            .storage
                            .connections()
                            .find(session.user_id, id)
                            .await?,
                    );
                }
            }
        }
        Ok(targets)
    }

    /// Lists the consents that the credentials cover: none if the provider no longer accepts the
    /// credentials.
    pub(crate) async fn discover(
        self,
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
    /// Exchanged credentials are sealed with the session before they are used, because an exchange
    /// works once.
    async fn session_credentials(
        self,
        run: &mut SessionRun,
        linking: &dyn Linking,
        repair_target: Option<&Connection>,
    ) -> Result<Option<SecretString>, ConnectionsError> {
        let session = &run.claim.session;
        if let (LinkPhase::CredentialsObtained, Some(credentials)) =
            (run.facts.phase, &run.claim.secret)
        {
            return Ok(Some(credentials.clone()));
        }
        let credentials = match repair_target {
            Some(connection) => {
                self.0
                    .storage
                    .secrets()
                    .find_credentials(session.user_id, connection.id)
                    .await?
            }
            None => {
                self.0
                    .storage
                    .provider_users()
                    .find_credentials(session.user_id, &session.provider)
                    .await?
            }
        };
        let purpose = match (repair_target, &credentials) {
            (Some(connection), Some(credentials)) => Purpose::Repair {
                credentials,
                institution_id: &connection.institution_id,
            },
            (_, provider_user) => Purpose::Link {
                provider_user: provider_user.as_ref(),
            },
        };
        let redirect_uri = self.console_page_url("link/callback")?;
        let callback = CallbackParams {
            purpose,
            redirect_uri: &redirect_uri,
            params: &run.params,
        };
        let exchanged = linking
            .finish(
                &self
                    .0
                    .call_context_within(EXCHANGE_DEADLINE, Cause::RequestedJob(session.user_id)),
                &callback,
            )
            .await?;
        if linking.registers_users() {
            return Ok(Some(exchanged));
        }
        let (now, lease) = self.0.lease(LEASE);
        if !self
            .0
            .storage
            .consent_sessions()
            .store_credentials(&run.claim, &exchanged, now, lease)
            .await?
        {
            return Ok(None);
        }
        run.facts.phase = LinkPhase::CredentialsObtained;
        run.claim.session.phase_since = now;
        run.phase_seen_since = Instant::now();
        run.claim.secret = Some(exchanged.clone());
        Ok(Some(exchanged))
    }
}

/// Logs the error of a poll. Returns an error after which the job runs again when its lease
/// expires.
fn poll_result(
    run: &SessionRun,
    result: Result<Option<Poll>, ConnectionsError>,
) -> Result<Option<Poll>, ConnectionsError> {
    let provider = run.claim.session.provider.as_str();
    match result {
        Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => Err(error),
        // In the phase `Started`, the callback may still follow, so no error is final.
        Err(error) if error.is_transient() || run.facts.phase == LinkPhase::Started => {
            tracing::warn!(provider, %error, "could not poll consent session");
            Ok(Some(Poll::Failed))
        }
        Err(error) => {
            tracing::warn!(provider, %error, "consent session failed");
            if run.facts.confirmation == Confirmation::Denied {
                return Ok(Some(Poll::Concluded(Conclusion::not_withdrawn())));
            }
            Ok(Some(Poll::Concluded(Conclusion::failed(
                error.user_message(),
            ))))
        }
        polled => polled,
    }
}

/// Encodes callback parameters like a query, to be sealed with their session.
pub(crate) fn seal_params(params: &[(String, String)]) -> SecretString {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(params)
        .finish()
        .into()
}

/// Decodes sealed callback parameters.
fn unseal_params(sealed: &SecretString) -> Vec<(String, String)> {
    form_urlencoded::parse(sealed.expose_secret().as_bytes())
        .into_owned()
        .collect()
}
