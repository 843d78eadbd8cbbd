//! The browser comes back, or does not: in either case the provider is asked what the user has consented to.
//!
//! A trip is due work of its own row. Each step of it may be the last that a program does: the next one, here or in
//! another copy of the service, finds the answer or the grant sealed with the trip, and goes on.

use std::time::Duration;

use bellbird_domain::{Account, Connection};
use bellbird_providers::linking::{self, NoConsent, Purpose, Return};
use bellbird_providers::{Call, Error, FoundConnection, Linking, Provider};
use bellbird_storage::{ClaimedLinkSession, LinkPhase, LinkSession, StorageError};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::gather::{Gathered, Gathering};
use crate::link::{FIRST_LOOK, TRIP_LIFE};
use crate::{Connections, ConnectionsError, for_each, schedule};

/// How long a trip is somebody's: as long as a browser waits, and then one attempt.
const LEASE: Duration = Duration::from_secs(60);
/// The same, while a code is exchanged that is good for a minute (docs/providers/akahu.md#redirects): whoever goes on
/// after a crash must not be too late.
const EXCHANGE_LEASE: Duration = Duration::from_secs(25);
/// How long an exchange, and how long one attempt, may ask the provider.
const EXCHANGE_DEADLINE: Duration = Duration::from_secs(12);
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(40);
/// How long a browser waits for the outcome, and how long between two attempts meanwhile.
const BROWSER_WAITS: Duration = Duration::from_secs(12);
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Trips that one copy of the service works on at the same time.
const AT_ONCE: u32 = 8;
/// Attempts without anything new after which a provider that said yes is believed to have meant what is there already:
/// within the time that a browser waits. The second, when it shows that this is what was to be repaired.
const UNCHANGED_AFTER: u32 = 9;
const RENEWED_AFTER: u32 = 2;
/// A trip whose provider does not answer is tried for so long after its time is over: nobody else knows of its consent.
/// Less than the day after which trips are forgotten.
const TRIED_FOR: Duration = Duration::from_secs(20 * 3_600);

/// How a trip ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Connections are there that were not before.
    Linked,
    /// A connection works again.
    Reconnected,
    /// One was to work again, but what the user consented to is something else: it is connected beside it.
    LinkedBeside,
    /// The user consented, to nothing new.
    Unchanged,
    /// The user did not consent.
    Declined,
    /// It did not work, for a reason that was told to the browser when it came back.
    Failed,
    /// Nobody came back in time, and the provider knows of no consent.
    Expired,
    /// What the user consented to is connected for somebody else.
    Taken,
}

impl Outcome {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Linked, "linked"),
        (Self::Reconnected, "reconnected"),
        (Self::LinkedBeside, "linked_beside"),
        (Self::Unchanged, "unchanged"),
        (Self::Declined, "declined"),
        (Self::Failed, "failed"),
        (Self::Expired, "expired"),
        (Self::Taken, "taken"),
    ];

    fn word(&self) -> &'static str {
        Self::ALL.iter().find(|(outcome, _)| outcome == self).map_or("failed", |(_, word)| word)
    }

    fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map_or(Self::Failed, |(outcome, _)| outcome)
    }
}

/// What a browser that comes back is told.
#[derive(Debug)]
pub enum Arrival {
    /// There is no such trip, or it took too long: the address is forged, or old.
    Unknown,
    /// The address has done its work before; the outcome of that, if it is known yet.
    Used(Option<Outcome>),
    /// The provider has not confirmed the consent yet. Work goes on without the browser.
    Pending,
    /// This is the outcome.
    Ended {
        /// How the trip ended.
        outcome: Outcome,
        /// What is connected by it.
        connections: Vec<Connection>,
        /// The accounts of these that are there by now.
        accounts: Vec<Account>,
        /// Why it failed, as a sentence for the user.
        reason: Option<String>,
    },
}

/// How one attempt at a trip ended.
enum Attempt {
    Ended {
        outcome: Outcome,
        connections: Vec<Connection>,
        reason: Option<String>,
    },
    /// Nothing yet: the provider has not answered, or not with what is waited for.
    Waiting {
        failed: bool,
    },
    Overtaken,
}

impl Attempt {
    const NOTHING_YET: Self = Self::Waiting { failed: false };

    fn without(outcome: Outcome, reason: Option<&str>) -> Self {
        Self::Ended { outcome, connections: Vec::new(), reason: reason.map(str::to_owned) }
    }
}

/// A trip that is being worked on.
struct Work {
    claim: ClaimedLinkSession,
    answer: Vec<(String, String)>,
    /// What the answer says.
    hint: Result<(), NoConsent>,
    /// Attempts so far.
    tries: u32,
    /// No other trip of the user to the provider has to do with what is found.
    alone: bool,
    gathered: Gathered,
}

impl Connections {
    /// The browser is back with this answer: the parameters of the address, decoded. Asks the provider, for a few
    /// seconds if need be, and says what came of it. Serves once for each `state`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn arrive(&self, answer: &[(String, String)]) -> Result<Arrival, ConnectionsError> {
        let (state, answer) = take_state(answer);
        let Some(state) = state else { return Ok(Arrival::Unknown) };
        let Some(session) = self.storage.find_link_session(&state).await? else { return Ok(Arrival::Unknown) };
        let sealed = serde_json::to_string(&answer).map_err(|_| ConnectionsError::NotFound)?;
        let exchanges = self.linking_of(&session.provider).is_ok_and(|linking| !linking.registers_users());
        let (now, lease) = self.lease(if exchanges { EXCHANGE_LEASE } else { LEASE });
        let Some(claim) = self.storage.return_link_session(&state, &sealed.into(), now, lease).await? else {
            return Ok(match self.storage.find_link_session(&state).await? {
                None | Some(LinkSession { phase: LinkPhase::Begun, .. }) => Arrival::Unknown,
                Some(session) => Arrival::Used(session.outcome.as_deref().map(Outcome::of)),
            });
        };
        let connections = self.clone();
        // A task of its own: a browser that goes away does not end it, nor does one that waits no longer.
        let work = tokio::spawn(async move { connections.see_through(claim, BROWSER_WAITS).await });
        match tokio::time::timeout(BROWSER_WAITS, work).await {
            Ok(Ok(Ok(Attempt::Ended { outcome, connections, reason }))) => {
                let mut accounts = Vec::new();
                for connection in &connections {
                    accounts.extend(self.storage.list_connection_accounts(connection.user_id, connection.id).await?);
                }
                Ok(Arrival::Ended { outcome, connections, accounts, reason })
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Ok(Ok(Attempt::Waiting { .. } | Attempt::Overtaken)) | Err(_)) | Err(_) => Ok(Arrival::Pending),
        }
    }

    /// Makes an attempt at every trip that is due, a few at a time, and returns when none is. To be called again and
    /// again by a running service; any number of copies may do so at once.
    ///
    /// # Errors
    /// Those of the database. What was claimed by then is due again when its lease ends.
    pub async fn arrive_due(&self) -> Result<(), ConnectionsError> {
        loop {
            let (now, lease) = self.lease(LEASE);
            let claims = self.storage.claim_due_link_sessions(now, lease, AT_ONCE).await?;
            if claims.is_empty() {
                return Ok(());
            }
            for_each(claims, |claim| {
                let connections = self.clone();
                async move { connections.see_through(claim, Duration::ZERO).await.map(|_| ()) }
            })
            .await?;
        }
    }

    /// Waits until an event has made a trip due.
    pub async fn trip_wanted(&self) {
        self.due.trips.notified().await;
    }

    /// Attempts, until one is the last or the time is over; the trip is then ended, or put off.
    async fn see_through(&self, claim: ClaimedLinkSession, time: Duration) -> Result<Attempt, ConnectionsError> {
        let until = Instant::now() + time;
        let (answer, tries) = (read_answer(&claim), claim.attempts);
        let mut work = Work { claim, answer, hint: Ok(()), tries, alone: false, gathered: Gathered::default() };
        loop {
            let attempt = match self.attempt_trip(&mut work).await {
                // The lease ends, and it is tried again.
                Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => return Err(error),
                // The browser may still come back with an answer that helps.
                Err(error) if error.is_passing() || work.claim.session.phase == LinkPhase::Begun => {
                    tracing::warn!(provider = work.claim.session.provider, %error, "a consent is not confirmed yet");
                    Attempt::Waiting { failed: true }
                }
                Err(error) => {
                    tracing::warn!(provider = work.claim.session.provider, %error, "a consent led to nothing");
                    Attempt::without(Outcome::Failed, Some(error.for_people()))
                }
                Ok(attempt) => attempt,
            };
            work.tries = work.tries.saturating_add(1);
            let (now, session) = (self.clock.now(), &work.claim.session);
            let failed = matches!(attempt, Attempt::Waiting { failed: true });
            let tried_for = if failed { TRIED_FOR } else { Duration::ZERO };
            let ends_at = session.expires_at.saturating_add(tried_for).unwrap_or(session.expires_at);
            match attempt {
                Attempt::Waiting { .. } if Instant::now() + ASKED_AGAIN_AFTER < until => {
                    tokio::time::sleep(ASKED_AGAIN_AFTER).await;
                }
                Attempt::Waiting { .. } if now >= ends_at => {
                    return self.end_trip(&work.claim, at_the_end(&work, failed)).await;
                }
                Attempt::Waiting { .. } => {
                    let first_look = session.created_at.saturating_add(FIRST_LOOK).unwrap_or(now);
                    let later = match session.phase {
                        // One from which nobody is back is looked into twice, and when an event asks for it.
                        LinkPhase::Begun if !failed && now < first_look => first_look,
                        LinkPhase::Begun if !failed => ends_at,
                        _ => schedule::trip_looked_at_next(work.claim.attempts, now, ends_at),
                    };
                    self.storage.postpone_link_session(&work.claim, later).await?;
                    return Ok(attempt);
                }
                ended => return self.end_trip(&work.claim, ended).await,
            }
        }
    }

    async fn end_trip(&self, claim: &ClaimedLinkSession, attempt: Attempt) -> Result<Attempt, ConnectionsError> {
        let Attempt::Ended { outcome, .. } = &attempt else { return Ok(attempt) };
        let ended = self.storage.end_link_session(claim, outcome.word()).await?;
        tracing::info!(provider = claim.session.provider, outcome = outcome.word(), "a trip to a provider ended");
        Ok(if ended { attempt } else { Attempt::Overtaken })
    }

    async fn attempt_trip(&self, work: &mut Work) -> Result<Attempt, ConnectionsError> {
        let LinkSession { user_id, provider, connection_id, phase, .. } = work.claim.session.clone();
        let provider = self.provider(&provider)?;
        let linking = self.linking_of(provider.name().as_str())?;
        if phase == LinkPhase::Returned {
            work.hint = linking.hint(&work.answer);
        }
        if phase != LinkPhase::Granted && !linking.can_finish(&work.answer) {
            return Ok(match work.hint {
                _ if phase == LinkPhase::Begun => Attempt::NOTHING_YET,
                Err(NoConsent::Declined) => Attempt::without(Outcome::Declined, None),
                Err(NoConsent::Failed(reason)) => Attempt::without(Outcome::Failed, Some(reason)),
                Ok(()) => Attempt::without(Outcome::Failed, Some("The provider sent you back without an answer.")),
            });
        }
        let repairs = match connection_id {
            Some(id) => self.storage.find_connection(user_id, id).await?,
            None => None,
        };
        let Some(grant) = self.grant_of_trip(work, linking, repairs.as_ref()).await? else {
            return Ok(Attempt::Overtaken);
        };
        let call = self.call_within(ATTEMPT_DEADLINE);
        let mut found = self.discover(provider.as_ref(), &call, &grant).await?;
        // Where a connection's own user at the provider is gone, ours there has consented in its place.
        if repairs.is_some()
            && linking.registers_users()
            && let Some(owner) = self.storage.find_owner(user_id, provider.name().as_str()).await?
        {
            found.extend(self.discover(provider.as_ref(), &call, &owner).await?);
        }
        let since = work.claim.session.created_at.saturating_sub(TRIP_LIFE).unwrap_or(Timestamp::MIN);
        let others = self.storage.list_other_trips(&work.claim.session, since).await?;
        let mut repairs: Vec<Connection> = repairs.into_iter().collect();
        // What the user said yes to on this trip is meant as it was said. Anything else may be another trip's.
        let said_yes = phase != LinkPhase::Begun && work.hint.is_ok();
        for other in others.iter().filter(|other| !said_yes && other.phase != LinkPhase::Ended) {
            let Some(id) = other.connection_id.filter(|id| repairs.iter().all(|known| known.id != *id)) else {
                continue;
            };
            repairs.extend(self.storage.find_connection(user_id, id).await?);
        }
        work.alone = others.is_empty();
        let Work { claim, answer, tries, gathered, .. } = work;
        let (provider, tries) = (provider.as_ref(), *tries);
        let gathering = Gathering { claim, provider, call: &call, repairs: &repairs, answer, tries };
        self.gather(&gathering, &found, gathered).await?;
        Ok(conclude(work, phase))
    }

    /// What a grant covers; nothing, when whoever gave it is gone.
    pub(crate) async fn discover(
        &self,
        provider: &dyn Provider,
        call: &Call,
        grant: &SecretString,
    ) -> Result<Vec<FoundConnection>, ConnectionsError> {
        match provider.discover(call, grant).await {
            Err(Error::ReconnectNeeded(_)) => Ok(Vec::new()),
            found => Ok(found?),
        }
    }

    /// The grant to ask with. Where something is exchanged for it, it is sealed with the trip before it is used. None
    /// when somebody else has overtaken the claim.
    async fn grant_of_trip(
        &self,
        work: &mut Work,
        linking: &dyn Linking,
        repairs: Option<&Connection>,
    ) -> Result<Option<SecretString>, ConnectionsError> {
        let session = &work.claim.session;
        if let (LinkPhase::Granted, Some(grant)) = (session.phase, &work.claim.sealed) {
            return Ok(Some(grant.clone()));
        }
        let grant = match repairs {
            Some(connection) => self.storage.find_grant(session.user_id, connection.id).await?,
            None => self.storage.find_owner(session.user_id, &session.provider).await?,
        };
        let purpose = match (repairs, &grant) {
            (Some(connection), Some(grant)) => Purpose::Repair { grant, institution_id: &connection.institution_id },
            (_, owner) => Purpose::Link { owner: owner.as_ref() },
        };
        let return_url = self.page("link/callback")?;
        let returned = Return { purpose, return_url: &return_url, answer: &work.answer };
        let granted = linking.finish(&self.call_within(EXCHANGE_DEADLINE), &returned).await?;
        if linking.registers_users() {
            return Ok(Some(granted));
        }
        let (_, lease) = self.lease(LEASE);
        if !self.storage.grant_link_session(&work.claim, &granted, lease).await? {
            return Ok(None);
        }
        work.claim.session.phase = LinkPhase::Granted;
        work.claim.sealed = Some(granted.clone());
        Ok(Some(granted))
    }
}

/// What an attempt came to.
fn conclude(work: &mut Work, phase: LinkPhase) -> Attempt {
    // While the browser is away, the user may consent to more.
    if work.gathered.undecided || phase == LinkPhase::Begun {
        return Attempt::NOTHING_YET;
    }
    if let Some(ended) = gathered(work) {
        return ended;
    }
    let is_repair = work.claim.session.connection_id.is_some();
    let patience = if is_repair && !work.gathered.renewed.is_empty() { RENEWED_AFTER } else { UNCHANGED_AFTER };
    match work.hint {
        Err(NoConsent::Declined) => Attempt::without(Outcome::Declined, None),
        Err(NoConsent::Failed(reason)) => Attempt::without(Outcome::Failed, Some(reason)),
        Ok(()) if work.alone && !work.gathered.meanwhile.is_empty() => meant(work),
        Ok(()) if work.tries >= patience => meant(work),
        Ok(()) => Attempt::NOTHING_YET,
    }
}

/// What a yes meant that led to nothing which this trip connected.
fn meant(work: &Work) -> Attempt {
    let Gathered { meanwhile, renewed, taken, .. } = &work.gathered;
    let (outcome, connections) = match work.claim.session.connection_id {
        // Connected by this trip, before it was interrupted, or by another one at the same time.
        None if !meanwhile.is_empty() => (Outcome::Linked, meanwhile.clone()),
        _ if *taken => (Outcome::Taken, Vec::new()),
        _ => (Outcome::Unchanged, renewed.clone()),
    };
    Attempt::Ended { outcome, connections, reason: None }
}

/// The end of a trip that led to connections.
fn gathered(work: &Work) -> Option<Attempt> {
    let Gathered { linked, reconnected, .. } = &work.gathered;
    let repaired = |id| reconnected.iter().any(|connection| connection.id == id);
    let outcome = match work.claim.session.connection_id {
        _ if linked.is_empty() && reconnected.is_empty() => return None,
        Some(id) if repaired(id) => Outcome::Reconnected,
        Some(_) if !linked.is_empty() => Outcome::LinkedBeside,
        _ if linked.is_empty() => Outcome::Reconnected,
        _ => Outcome::Linked,
    };
    let connections = linked.iter().chain(reconnected).cloned().collect();
    Some(Attempt::Ended { outcome, connections, reason: None })
}

/// The end of a trip whose time is over. `failed`: the provider did not answer at last.
fn at_the_end(work: &Work, failed: bool) -> Attempt {
    let said_yes = work.claim.session.phase != LinkPhase::Begun && work.hint.is_ok() && !failed;
    let nothing = || if said_yes { meant(work) } else { Attempt::without(Outcome::Expired, None) };
    gathered(work).unwrap_or_else(nothing)
}

/// The answer that is sealed with a trip; a grant is none.
fn read_answer(claim: &ClaimedLinkSession) -> Vec<(String, String)> {
    let sealed = claim.sealed.as_ref().filter(|_| claim.session.phase == LinkPhase::Returned);
    sealed.and_then(|sealed| serde_json::from_str(sealed.expose_secret()).ok()).unwrap_or_default()
}

/// Takes `state` out of an answer. Given twice, it is none: nobody was sent off like that.
fn take_state(answer: &[(String, String)]) -> (Option<String>, Vec<(String, String)>) {
    let (mut states, rest): (Vec<_>, Vec<_>) =
        linking::untangled(answer).into_iter().partition(|(name, _)| name == "state");
    let state = states.pop().map(|(_, state)| state);
    (state.filter(|_| states.is_empty()), rest)
}
