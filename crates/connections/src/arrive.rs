//! The browser comes back, or does not: in either case the provider is asked what the user has consented to.
//!
//! A trip is due work of its own row. Each step of it may be the last that a program does: the next one, here or in
//! another copy of the service, finds the answer or the grant sealed with the trip, and goes on.

use std::time::Duration;

use bellbird_domain::{Account, Connection, ConnectionStatus};
use bellbird_providers::linking::{NoConsent, Purpose, Return};
use bellbird_providers::{Error, FoundConnection, Linking, Provider, Standing};
use bellbird_storage::{ClaimedLinkSession, Concerned, LinkPhase, LinkSession};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::adopt::Arrived;
use crate::matching::match_accounts;
use crate::schedule;
use crate::{Connections, ConnectionsError};

/// How long a trip is somebody's: longer than one attempt.
const LEASE: Duration = Duration::from_secs(60);
/// How long one attempt may ask the provider.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(30);
/// How long a browser waits for the outcome, and how long between two attempts meanwhile.
const BROWSER_WAITS: Duration = Duration::from_secs(12);
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Trips that one copy of the service works on at the same time.
const AT_ONCE: u32 = 8;
/// Attempts without anything new after which a provider that said yes is believed to have meant what is there already;
/// the second, when it shows that it is there.
const UNCHANGED_AFTER: u32 = 16;
const RENEWED_AFTER: u32 = 2;
/// Attempts after which a new consent is taken without its accounts. They come later.
const ACCOUNTS_TRIES: u32 = 6;

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
    /// Nothing yet.
    Waiting,
    Overtaken,
}

impl Attempt {
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
    gathered: Gathered,
}

/// What came of asking the provider so far.
#[derive(Default)]
struct Gathered {
    linked: Vec<Connection>,
    reconnected: Vec<Connection>,
    /// Worked before, and have a new grant.
    renewed: Vec<Connection>,
    /// One of the consents is connected for somebody else.
    taken: bool,
    /// A consent that cannot be judged before its accounts are there.
    undecided: bool,
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
        let sealed = serde_json::to_string(&answer).map_err(|_| ConnectionsError::NotFound)?;
        let (now, lease) = self.lease(LEASE);
        let Some(claim) = self.storage.return_link_session(&state, &sealed.into(), now, lease).await? else {
            return Ok(match self.storage.find_link_session(&state).await? {
                None => Arrival::Unknown,
                Some(LinkSession { phase: LinkPhase::Begun, .. }) => Arrival::Unknown,
                Some(session) => Arrival::Used(session.outcome.as_deref().map(Outcome::of)),
            });
        };
        let connections = self.clone();
        // A task of its own: a browser that goes away does not end it.
        let work = tokio::spawn(async move { connections.see_through(claim, BROWSER_WAITS).await });
        match work.await {
            Ok(Ok(Attempt::Ended { outcome, connections, reason })) => {
                let mut accounts = Vec::new();
                for connection in &connections {
                    accounts.extend(self.storage.list_connection_accounts(connection.user_id, connection.id).await?);
                }
                Ok(Arrival::Ended { outcome, connections, accounts, reason })
            }
            Ok(Ok(Attempt::Waiting | Attempt::Overtaken)) | Err(_) => Ok(Arrival::Pending),
            Ok(Err(error)) => Err(error),
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
            let mut attempts = JoinSet::new();
            for claim in claims {
                let connections = self.clone();
                attempts.spawn(async move { connections.see_through(claim, Duration::ZERO).await.map(|_| ()) });
            }
            while let Some(attempt) = attempts.join_next().await {
                if let Ok(attempt) = attempt {
                    attempt?;
                }
            }
        }
    }

    /// Attempts, until one is the last or the time is over; the trip is then ended, or put off.
    async fn see_through(&self, claim: ClaimedLinkSession, time: Duration) -> Result<Attempt, ConnectionsError> {
        let until = Instant::now() + time;
        let (answer, tries) = (read_answer(&claim), claim.attempts);
        let mut work = Work { claim, answer, hint: Ok(()), tries, gathered: Gathered::default() };
        loop {
            let attempt = match self.attempt_trip(&mut work).await {
                Err(ConnectionsError::Storage(error)) => return Err(ConnectionsError::Storage(error)),
                Err(error) if error.is_passing() => {
                    tracing::warn!(provider = work.claim.session.provider, %error, "a consent is not confirmed yet");
                    Attempt::Waiting
                }
                Err(error) => {
                    tracing::warn!(provider = work.claim.session.provider, %error, "a consent led to nothing");
                    Attempt::without(Outcome::Failed, Some(&error.to_string()))
                }
                Ok(attempt) => attempt,
            };
            work.tries = work.tries.saturating_add(1);
            let (now, session) = (self.clock.now(), &work.claim.session);
            match attempt {
                Attempt::Waiting if Instant::now() + ASKED_AGAIN_AFTER < until => {
                    tokio::time::sleep(ASKED_AGAIN_AFTER).await;
                }
                Attempt::Waiting if now >= session.expires_at => {
                    return self.end_trip(&work.claim, Attempt::without(Outcome::Expired, None)).await;
                }
                Attempt::Waiting => {
                    let later = schedule::trip_looked_at_next(work.claim.attempts, now, session.expires_at);
                    self.storage.postpone_link_session(&work.claim, later).await?;
                    return Ok(Attempt::Waiting);
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
                _ if phase == LinkPhase::Begun => Attempt::Waiting,
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
        let mut found = self.discover(provider.as_ref(), &grant).await?;
        // Where a connection's own user at the provider is gone, ours there has consented in its place.
        if repairs.is_some()
            && linking.registers_users()
            && let Some(owner) = self.storage.find_owner(user_id, provider.name().as_str()).await?
        {
            found.extend(self.discover(provider.as_ref(), &owner).await?);
        }
        self.gather(provider.as_ref(), repairs.as_ref(), found, work).await?;
        Ok(conclude(work, phase))
    }

    /// What a grant covers; nothing, when whoever gave it is gone.
    async fn discover(
        &self,
        provider: &dyn Provider,
        grant: &SecretString,
    ) -> Result<Vec<FoundConnection>, ConnectionsError> {
        match provider.discover(&self.call_within(ATTEMPT_DEADLINE), grant).await {
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
        let granted = linking.finish(&self.call_within(ATTEMPT_DEADLINE), &returned).await?;
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

    /// Connects what was found and works: what is new, what is repaired, and what was broken and works again. One
    /// consent that fails ends no other.
    async fn gather(
        &self,
        provider: &dyn Provider,
        mut repairs: Option<&Connection>,
        found: Vec<FoundConnection>,
        work: &mut Work,
    ) -> Result<(), ConnectionsError> {
        work.gathered.undecided = false;
        let mut failed = None;
        for consent in found.iter().filter(|consent| consent.standing == Standing::Active) {
            match self.take_in(provider, repairs, consent, work).await {
                Ok(true) => repairs = None,
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Connects one consent, unless there is nothing to do. True when it repaired what was to be repaired.
    async fn take_in(
        &self,
        provider: &dyn Provider,
        repairs: Option<&Connection>,
        consent: &FoundConnection,
        work: &mut Work,
    ) -> Result<bool, ConnectionsError> {
        let user_id = work.claim.session.user_id;
        let id = consent.provider_connection_id.as_str();
        let known = self.storage.find_concerned(provider.name().as_str(), &[Concerned::Connection(id)]).await?;
        let before = match known.first() {
            Some((owner, _)) if *owner != user_id => {
                work.gathered.taken = true;
                return Ok(false);
            }
            Some((_, connection)) => self.storage.find_connection(user_id, *connection).await?,
            None => None,
        };
        let worked = before.as_ref().is_some_and(|before| before.status == ConnectionStatus::Active);
        let is_meant = work.answer.iter().any(|(_, value)| value == id)
            || before.as_ref().zip(repairs).is_some_and(|(before, repairs)| before.id == repairs.id);
        // Where users are registered, a grant stays as it was.
        if worked && !is_meant && provider.linking().is_some_and(Linking::registers_users) {
            return Ok(false);
        }
        let accounts = match provider.accounts(&self.call_within(ATTEMPT_DEADLINE), &consent.grant).await {
            Err(Error::ReconnectNeeded(_)) => return Ok(false),
            accounts => accounts?,
        };
        // A consent that was not seen before, at the institution of what is to be repaired, may take its place.
        let may_inherit =
            |connection: &&Connection| before.is_none() && connection.institution_id == consent.institution_id;
        let in_place_of = repairs.filter(may_inherit);
        let in_time = self.clock.now() < work.claim.session.expires_at;
        if accounts.is_empty() && in_time && (in_place_of.is_some() || work.tries < ACCOUNTS_TRIES) {
            work.gathered.undecided = true;
            return Ok(false);
        }
        let known_as = match in_place_of {
            Some(connection) => {
                let ours = self.storage.list_connection_accounts(user_id, connection.id).await?;
                match_accounts(&ours, &accounts)
            }
            None => Vec::new(),
        };
        // At least one account is certainly one of its, or it is another login at the same institution.
        let in_place_of = in_place_of.filter(|_| known_as.iter().any(Option::is_some)).map(|connection| connection.id);
        let arrived = Arrived { consent, accounts: &accounts, known_as: &known_as, repairs: in_place_of };
        let connection = match self.store_arrived(user_id, provider, &arrived).await {
            // It is being removed.
            Err(ConnectionsError::Taken) => return Ok(false),
            stored => stored?,
        };
        let repaired = repairs.is_some_and(|repairs| repairs.id == connection.id);
        let list = match before {
            _ if repaired => &mut work.gathered.reconnected,
            Some(_) if worked => &mut work.gathered.renewed,
            Some(_) => &mut work.gathered.reconnected,
            None => &mut work.gathered.linked,
        };
        if !list.iter().any(|other| other.id == connection.id) {
            list.push(connection);
        }
        Ok(repaired)
    }
}

/// What an attempt came to.
fn conclude(work: &mut Work, phase: LinkPhase) -> Attempt {
    let Gathered { linked, reconnected, renewed, taken, undecided } = &mut work.gathered;
    if *undecided {
        return Attempt::Waiting;
    }
    if !linked.is_empty() || !reconnected.is_empty() {
        let repaired = |id| reconnected.iter().any(|connection| connection.id == id);
        let outcome = match work.claim.session.connection_id {
            Some(id) if repaired(id) => Outcome::Reconnected,
            Some(_) if !linked.is_empty() => Outcome::LinkedBeside,
            _ if linked.is_empty() => Outcome::Reconnected,
            _ => Outcome::Linked,
        };
        let connections = linked.drain(..).chain(reconnected.drain(..)).collect();
        return Attempt::Ended { outcome, connections, reason: None };
    }
    let patience = if renewed.is_empty() { UNCHANGED_AFTER } else { RENEWED_AFTER };
    match work.hint {
        Err(NoConsent::Declined) => Attempt::without(Outcome::Declined, None),
        Err(NoConsent::Failed(reason)) => Attempt::without(Outcome::Failed, Some(reason)),
        Ok(()) if phase == LinkPhase::Begun => Attempt::Waiting,
        Ok(()) if *taken => Attempt::without(Outcome::Taken, None),
        Ok(()) if work.tries >= patience => {
            let connections = std::mem::take(renewed);
            Attempt::Ended { outcome: Outcome::Unchanged, connections, reason: None }
        }
        Ok(()) => Attempt::Waiting,
    }
}

/// The answer that is sealed with a trip; a grant is none.
fn read_answer(claim: &ClaimedLinkSession) -> Vec<(String, String)> {
    let sealed = claim.sealed.as_ref().filter(|_| claim.session.phase == LinkPhase::Returned);
    sealed.and_then(|sealed| serde_json::from_str(sealed.expose_secret()).ok()).unwrap_or_default()
}

/// Takes `state` out of an answer. Given twice, it is none: nobody was sent off like that.
fn take_state(answer: &[(String, String)]) -> (Option<String>, Vec<(String, String)>) {
    let mut state = None;
    let mut rest = Vec::with_capacity(answer.len());
    for (name, value) in answer {
        if name != "state" {
            rest.push((name.clone(), value.clone()));
        } else if state.replace(value.clone()).is_some() {
            return (None, Vec::new());
        }
    }
    (state, rest)
}
