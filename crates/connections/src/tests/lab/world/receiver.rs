//! The simulated endpoints: what each has taken, and what a message to it must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellbird_domain::{ConnectionId, EndpointId, EventId, EventType, UserId};
use bellbird_providers::linking::Url;
use bellbird_webhooks::delivery::send::{Exchange, Receiver};
use bellbird_webhooks::delivery::sign::{Message, Signer};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::provider::{Consented, row_id};
use super::scene::{Process, Scene, State};

/// How long an exchange takes at most.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a message may be on its way that was due before.
const SENT_AFTER_MAX: Duration = Duration::from_secs(15);

/// A connection as the service has it.
pub(super) struct Connected {
    pub(super) user: UserId,
    pub(super) provider: &'static str,
    /// None: it is being linked.
    pub(super) id: Option<ConnectionId>,
    /// When the service was known to hide it.
    pub(super) removed_at: Option<Instant>,
}

impl Connected {
    /// The user and the id, unless it is being linked or is removed.
    pub(super) fn key(&self) -> Option<(UserId, ConnectionId)> {
        self.id
            .filter(|_| !self.is_removed())
            .map(|id| (self.user, id))
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed_at.is_some()
    }
}

pub(super) struct EndpointModel {
    pub(super) id: EndpointId,
    /// None: of the installation.
    pub(super) user: Option<UserId>,
    pub(super) signer: Signer,
    pub(super) is_down_until: Instant,
    /// When the service was known to have disabled it.
    pub(super) disabled_at: Option<Instant>,
    /// The newest version of each row that it has taken, by the row's id.
    pub(super) taken: BTreeMap<String, u64>,
    /// The event that reported a row as new.
    new_in: BTreeMap<String, EventId>,
    /// The rows by their key. Only later versions of the body have keys.
    pub(super) keys: BTreeMap<String, String>,
    pub(super) removed: BTreeSet<String>,
    /// The chunks that it has taken, by run.
    chunks: BTreeSet<(String, u64)>,
    /// The events that it has taken, with the number of their connection.
    pub(super) events: BTreeMap<EventId, usize>,
    /// The events that it was to get again, with the step at which that was stored. They leave once
    /// they come.
    pub(super) wanted: BTreeMap<EventId, u64>,
    /// The connections that it has heard are removed.
    pub(super) removals: BTreeSet<usize>,
    /// The changes of the status of each connection, by event.
    pub(super) changes: BTreeMap<(usize, EventId), (String, String)>,
}

/// A message to an endpoint.
struct Received<'m> {
    event: EventId,
    body: &'m Value,
    event_type: EventType,
    /// The number of its connection.
    connection: usize,
    /// When it was sent.
    step: u64,
}

impl EndpointModel {
    pub(super) fn new(id: EndpointId, user: Option<UserId>, signer: Signer) -> Self {
        Self {
            id,
            user,
            signer,
            is_down_until: Instant::now(),
            disabled_at: None,
            taken: BTreeMap::new(),
            new_in: BTreeMap::new(),
            keys: BTreeMap::new(),
            removed: BTreeSet::new(),
            chunks: BTreeSet::new(),
            events: BTreeMap::new(),
            wanted: BTreeMap::new(),
            removals: BTreeSet::new(),
            changes: BTreeMap::new(),
        }
    }

    /// Checks a message that arrives, whether or not it is taken.
    fn check(
        &self,
        of: &Connected,
        message: &Message,
        received: &Received<'_>,
    ) -> Result<(), String> {
        let Received {
            body, connection, ..
        } = *received;
        let (id, user) = (message.id, of.user);
        if self.signer.signature(id, message.timestamp, &message.body) != message.signature {
            return Err(format!("signature of {id}"));
        }
        if self.user.is_some_and(|own| own != user)
            || self.user.is_none() && body["metadata"]["user_id"] != user.to_string()
            || rows(body, "new")
                .chain(rows(body, "updated"))
                .any(|row| !row.id.starts_with(&prefix(connection)))
        {
            return Err(format!("{id} has rows of another user"));
        }
        let (run, chunk) = chunk_of(body);
        if chunk > 1 && !self.chunks.contains(&(run, chunk - 1)) {
            return Err(format!(
                "{id} is chunk {chunk}, and the chunk before it was not taken"
            ));
        }
        let reported_before =
            |row: &SentRow| self.new_in.get(&row.id).is_some_and(|event| *event != id);
        match rows(body, "new").find(reported_before) {
            Some(row) => Err(format!(
                "{} is new in {} and in {id}",
                row.id, self.new_in[&row.id]
            )),
            None => Ok(()),
        }
    }

    fn take(&mut self, received: &Received<'_>) {
        let Received {
            event,
            body,
            event_type,
            connection,
            step,
        } = *received;
        self.chunks.insert(chunk_of(body));
        self.events.insert(event, connection);
        if self.wanted.get(&event).is_some_and(|since| *since < step) {
            self.wanted.remove(&event);
        }
        match event_type {
            EventType::ConnectionRemoved => {
                self.removals.insert(connection);
            }
            EventType::ConnectionUpdated => {
                let shown = &body["data"]["updated"][0];
                let [from, to] = ["previous_status", "status"]
                    .map(|name| shown[name].as_str().unwrap_or_default());
                self.changes
                    .insert((connection, event), (from.to_owned(), to.to_owned()));
            }
            _ => {}
        }
        for row in rows(body, "new") {
            self.new_in.insert(row.id, event);
        }
        for row in rows(body, "new").chain(rows(body, "updated")) {
            if let Some(key) = row.key {
                self.keys.insert(key, row.id.clone());
            }
            let taken = self.taken.entry(row.id).or_default();
            *taken = row.version.max(*taken);
        }
        for removed in body["data"]["removed"].as_array().into_iter().flatten() {
            self.removed
                .insert(removed["key"].as_str().unwrap_or_default().to_owned());
        }
    }

    /// The owner and the id.
    pub(super) fn key(&self) -> (UserId, EndpointId) {
        (self.user.unwrap_or(UserId::INSTALLATION), self.id)
    }

    /// What it should have heard of a connection, and has not.
    pub(super) fn find_missing(&self, connection: usize, consented: &Consented) -> Option<String> {
        for row in &consented.rows {
            let id = row_id(connection, row.number);
            let taken = self.taken.get(&id);
            if taken != Some(&row.version) {
                return Some(format!("has {taken:?} of {id}, version {}", row.version));
            }
        }
        let prefix = prefix(connection);
        for (key, id) in self.keys.iter().filter(|(_, id)| id.starts_with(&prefix)) {
            let is_gone = consented
                .gone
                .iter()
                .any(|row| *id == row_id(connection, row.number));
            if is_gone != self.removed.contains(key) {
                return Some(format!(
                    "{id} is gone: {is_gone}, and it has heard otherwise"
                ));
            }
        }
        self.find_gap(connection)
    }

    /// What is wrong with the changes of a connection that was active at first and is now: each way
    /// away from a status needs one to it.
    fn find_gap(&self, connection: usize) -> Option<String> {
        let mut ways: BTreeMap<&str, i64> = BTreeMap::new();
        let of_connection = self.changes.iter().filter(|((of, _), _)| *of == connection);
        let changes: Vec<&(String, String)> = of_connection.map(|(_, change)| change).collect();
        for (from, to) in &changes {
            *ways.entry(from).or_default() -= 1;
            *ways.entry(to).or_default() += 1;
        }
        ways.values()
            .any(|balance| *balance != 0)
            .then(|| format!("{changes:?}"))
    }
}

pub(super) fn prefix(connection: usize) -> String {
    format!("c{connection}-")
}

struct SentRow {
    id: String,
    version: u64,
    key: Option<String>,
}

/// The transactions and trades of a body.
fn rows<'b>(body: &'b Value, list: &str) -> impl Iterator<Item = SentRow> + use<'b> {
    let all = body["data"][list].as_array().into_iter().flatten();
    all.filter(|row| row["object"] != "connection").map(|row| {
        let (id, version) = if row["object"] == "trade" {
            (&row["symbol"], &row["name"])
        } else {
            (&row["id"], &row["merchant_name"])
        };
        SentRow {
            // Its first id.
            id: id
                .as_str()
                .and_then(|id| id.split('.').next())
                .unwrap_or_default()
                .to_owned(),
            version: version
                .as_str()
                .and_then(|text| text.rsplit(' ').next()?.parse().ok())
                .unwrap_or(0),
            key: row["key"].as_str().map(str::to_owned),
        }
    })
}

fn chunk_of(body: &Value) -> (String, u64) {
    let metadata = &body["metadata"];
    (
        metadata["sync_run_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        metadata["chunk"].as_u64().unwrap_or(0),
    )
}

/// The number of an event's connection, and its type.
fn subject_of(state: &mut State, body: &Value) -> Option<(usize, EventType)> {
    let event_type = body["type"].as_str()?.parse().ok()?;
    let id = body["metadata"]["connection_id"].as_str()?.parse().ok()?;
    let known = state
        .connected
        .iter()
        .position(|connected| connected.id == Some(id));
    let number = known.or_else(|| {
        state
            .connected
            .iter()
            .position(|connected| connected.id.is_none())
    })?;
    state.connected[number].id = Some(id);
    Some((number, event_type))
}

/// The endpoints as a process reaches them.
pub(super) struct Link {
    pub(super) scene: Scene,
    pub(super) process: Process,
}

enum Reception {
    Taken,
    /// The response is lost.
    TakenUnheard,
    Rejected,
    Unreachable,
}

impl Link {
    fn failed(since: Instant, error: &'static str) -> Exchange {
        Exchange {
            status: None,
            retry_after: None,
            duration: since.elapsed(),
            error: Some(error),
        }
    }

    fn receive(&self, message: &Message) -> Reception {
        let mut state = self.scene.state.lock();
        let state: &mut State = &mut state;
        let Ok(body) = serde_json::from_slice::<Value>(&message.body) else {
            state.break_invariant("a body is not JSON".to_owned());
            return Reception::Rejected;
        };
        let place = state
            .endpoints
            .iter()
            .position(|endpoint| endpoint.id == message.endpoint);
        let Some((place, (connection, event_type))) = place.zip(subject_of(state, &body)) else {
            state.break_invariant(format!(
                "an unknown endpoint, connection or type: {}",
                body["metadata"]
            ));
            return Reception::Rejected;
        };
        let (reception, word) = match state.chance.below(100) {
            _ if state.endpoints[place].is_down_until > Instant::now() => {
                (Reception::Unreachable, "unreachable")
            }
            0..8 if state.is_rough => (Reception::TakenUnheard, "takes, unheard,"),
            8..16 if state.is_rough => (Reception::Rejected, "rejects"),
            _ => (Reception::Taken, "takes"),
        };
        let (run, chunk) = chunk_of(&body);
        let ids: Vec<String> = rows(&body, "new")
            .chain(rows(&body, "updated"))
            .map(|row| row.id)
            .collect();
        let Process {
            place: instance,
            number,
            ..
        } = self.process;
        let event = message.id;
        let what = format!("{} {run} {chunk} {ids:?}", event_type.as_str());
        state.note(|| format!("endpoint {place} {word} {event} of {instance}.{number}: {what}"));
        if matches!(reception, Reception::Unreachable) {
            return reception;
        }
        let received = Received {
            event,
            body: &body,
            event_type,
            connection,
            step: state.steps,
        };
        let checked =
            state.endpoints[place].check(&state.connected[connection], message, &received);
        if let Err(what) = checked.and_then(|()| self.check_sender(state, place, &received)) {
            state.break_invariant(format!("endpoint {place}: {what}"));
        }
        if matches!(reception, Reception::Taken | Reception::TakenUnheard) {
            state.endpoints[place].take(&received);
        }
        reception
    }

    /// Only the holder of the endpoint's lease sends to it, and nothing that may no longer be sent,
    /// unless it stood still.
    fn check_sender(
        &self,
        state: &mut State,
        place: usize,
        received: &Received<'_>,
    ) -> Result<(), String> {
        let now = Instant::now();
        if state
            .condition(self.process)
            .is_none_or(|own| own.is_late_until > now)
        {
            return Ok(());
        }
        let (endpoint, of, sender) = (
            &state.endpoints[place],
            &state.connected[received.connection],
            self.process.number,
        );
        let mut claims = state
            .claims
            .iter()
            .filter(|claim| claim.kind == "queue" && claim.user == of.user);
        let claim = claims.find(|claim| claim.subject == endpoint.id.to_string());
        if claim.is_none_or(|claim| {
            claim.holder != Some(self.process.id) || claim.lease_until.is_none()
        }) {
            return Err(format!("{sender} sends without its lease: {claim:?}"));
        }
        let is_over =
            |since: Option<Instant>| since.is_some_and(|since| now > since + SENT_AFTER_MAX);
        if is_over(endpoint.disabled_at) {
            return Err(format!("{sender} sends although it is disabled"));
        }
        if is_over(of.removed_at) && received.event_type != EventType::ConnectionRemoved {
            return Err(format!(
                "{sender} sends an event of a connection that is removed"
            ));
        }
        Ok(())
    }
}

impl Receiver for Link {
    fn connect<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<(), Exchange>> {
        async move {
            let since = Instant::now();
            self.scene.wait(self.process, "connects").await;
            let state = self.scene.state.lock();
            let number: usize = url
                .path()
                .trim_start_matches('/')
                .parse()
                .expect("the number of an endpoint");
            let is_down = state.endpoints[number].is_down_until > Instant::now();
            if is_down {
                Err(Self::failed(since, "not reached"))
            } else {
                Ok(())
            }
        }
        .boxed()
    }

    fn send<'a>(&'a self, _: &'a Url, message: Message) -> BoxFuture<'a, Exchange> {
        async move {
            let since = Instant::now();
            self.scene.wait(self.process, "sends").await;
            let reception = self.receive(&message);
            let delay = {
                let mut state = self.scene.state.lock();
                let slow = state.is_rough && state.chance.per_mille(100);
                if slow {
                    state.chance.millis(4_000)
                } else {
                    Duration::ZERO
                }
            };
            tokio::time::sleep(delay).await;
            let status = match reception {
                Reception::TakenUnheard => {
                    tokio::time::sleep_until(since + TIMEOUT).await;
                    return Self::failed(since, "no response in time");
                }
                Reception::Unreachable => return Self::failed(since, "not reached"),
                Reception::Taken => 200,
                Reception::Rejected => 503,
            };
            self.scene.wait(self.process, "hears the response").await;
            let error = (status != 200).then_some("rejected");
            Exchange {
                status: Some(status),
                retry_after: None,
                duration: since.elapsed(),
                error,
            }
        }
        .boxed()
    }
}
