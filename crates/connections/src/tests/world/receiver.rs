//! The simulated endpoints: what each has taken, and what a message to it must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellbird_domain::{EndpointId, EventId, UserId};
use bellbird_providers::linking::Url;
use bellbird_webhooks::delivery::client::{Exchange, Message, Receiver};
use bellbird_webhooks::delivery::sign::Signer;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::scene::{Process, Scene, State};

/// How long an exchange takes at most.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct EndpointModel {
    pub(super) id: EndpointId,
    /// None: of the installation.
    pub(super) user: Option<UserId>,
    pub(super) signer: Signer,
    pub(super) is_down_until: Instant,
    /// The newest version of each row that it has taken, by the row's id.
    pub(super) taken: BTreeMap<String, u64>,
    /// The event that reported a row as new.
    new_in: BTreeMap<String, EventId>,
    /// The rows by their key. Only later versions of the body have keys.
    pub(super) keys: BTreeMap<String, String>,
    pub(super) removed: BTreeSet<String>,
    /// The chunks that it has taken, by run.
    chunks: BTreeSet<(String, u64)>,
    pub(super) messages: u64,
}

#[derive(Default)]
pub(super) struct Endpoints {
    pub(super) list: Vec<EndpointModel>,
    /// The user of each connection, by its number, with the connection's id.
    pub(super) users: Vec<(UserId, String)>,
}

impl EndpointModel {
    pub(super) fn new(id: EndpointId, user: Option<UserId>, signer: Signer) -> Self {
        Self {
            id,
            user,
            signer,
            is_down_until: Instant::now(),
            taken: BTreeMap::new(),
            new_in: BTreeMap::new(),
            keys: BTreeMap::new(),
            removed: BTreeSet::new(),
            chunks: BTreeSet::new(),
            messages: 0,
        }
    }

    /// Checks a message that arrives, whether or not it is taken.
    fn check(&self, users: &[(UserId, String)], message: &Message<'_>, body: &Value) -> Result<(), String> {
        let id = message.id;
        if self.signer.signature(id, message.timestamp, &message.body) != message.signature {
            return Err(format!("signature of {id}"));
        }
        let metadata = &body["metadata"];
        let connection = users.iter().position(|(_, id)| metadata["connection_id"] == id.as_str());
        let Some(connection) = connection else { return Err(format!("connection of {id}")) };
        let user = users[connection].0;
        if self.user.is_some_and(|own| own != user)
            || self.user.is_none() && metadata["user_id"] != user.to_string()
            || rows(body, "new").chain(rows(body, "updated")).any(|row| !row.id.starts_with(&prefix(connection)))
        {
            return Err(format!("{id} has rows of another user"));
        }
        let (run, chunk) = chunk_of(body);
        if chunk > 1 && !self.chunks.contains(&(run, chunk - 1)) {
            return Err(format!("{id} is chunk {chunk}, and the chunk before it was not taken"));
        }
        let reported_before = |row: &SentRow| self.new_in.get(&row.id).is_some_and(|event| *event != id);
        match rows(body, "new").find(reported_before) {
            Some(row) => Err(format!("{} is new in {} and in {id}", row.id, self.new_in[&row.id])),
            None => Ok(()),
        }
    }

    fn take(&mut self, event: EventId, body: &Value) {
        self.messages += 1;
        self.chunks.insert(chunk_of(body));
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
            self.removed.insert(removed["key"].as_str().unwrap_or_default().to_owned());
        }
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

fn rows<'b>(body: &'b Value, list: &str) -> impl Iterator<Item = SentRow> + use<'b> {
    body["data"][list].as_array().into_iter().flatten().map(|row| SentRow {
        id: row["id"].as_str().unwrap_or_default().to_owned(),
        version: row["description"].as_str().and_then(|text| text.rsplit(' ').next()?.parse().ok()).unwrap_or(0),
        key: row["key"].as_str().map(str::to_owned),
    })
}

fn chunk_of(body: &Value) -> (String, u64) {
    let metadata = &body["metadata"];
    (metadata["sync_run_id"].as_str().unwrap_or_default().to_owned(), metadata["chunk"].as_u64().unwrap_or(0))
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
        Exchange { status: None, retry_after: None, duration: since.elapsed(), error: Some(error) }
    }

    fn receive(&self, message: &Message<'_>) -> Reception {
        let mut state = self.scene.state.lock();
        let state: &mut State = &mut state;
        let Ok(body) = serde_json::from_slice::<Value>(&message.body) else {
            state.break_invariant("a body is not JSON".to_owned());
            return Reception::Rejected;
        };
        let place = state.endpoints.list.iter().position(|endpoint| endpoint.id == message.endpoint);
        let Some(place) = place else {
            state.break_invariant("a message for an unknown endpoint".to_owned());
            return Reception::Rejected;
        };
        let (reception, word) = match state.chance.below(100) {
            _ if state.endpoints.list[place].is_down_until > Instant::now() => (Reception::Unreachable, "unreachable"),
            0..8 if state.is_rough => (Reception::TakenUnheard, "takes, unheard,"),
            8..16 if state.is_rough => (Reception::Rejected, "rejects"),
            _ => (Reception::Taken, "takes"),
        };
        let (run, chunk) = chunk_of(&body);
        let ids: Vec<String> = rows(&body, "new").chain(rows(&body, "updated")).map(|row| row.id).collect();
        let Process { place: instance, number, .. } = self.process;
        let event = message.id;
        state.note(|| format!("endpoint {place} {word} {event} of {instance}.{number}: {run} {chunk} {ids:?}"));
        if matches!(reception, Reception::Unreachable) {
            return reception;
        }
        if let Err(what) = state.endpoints.list[place].check(&state.endpoints.users, message, &body) {
            state.break_invariant(format!("endpoint {place}: {what}"));
        }
        self.check_server(state, message.endpoint, &body);
        if matches!(reception, Reception::Taken | Reception::TakenUnheard) {
            state.endpoints.list[place].take(event, &body);
        }
        reception
    }

    /// Only the holder of the endpoint's lease sends to it, unless it stood still.
    fn check_server(&self, state: &mut State, endpoint: EndpointId, body: &Value) {
        let connection = |(_, id): &&(UserId, String)| body["metadata"]["connection_id"] == id.as_str();
        let Some((user, _)) = state.endpoints.users.iter().find(connection).cloned() else { return };
        let is_late = state.condition(self.process).is_none_or(|own| own.is_late_until > Instant::now());
        let mut claims = state.claims.iter().filter(|claim| claim.kind == "endpoint" && claim.user == user);
        let claim = claims.find(|claim| claim.subject == endpoint.to_string());
        let is_holder = claim.is_some_and(|claim| claim.holder == Some(self.process.id) && claim.lease_until.is_some());
        if !is_late && !is_holder {
            state
                .break_invariant(format!("{:?} sends to {endpoint} without its lease: {claim:?}", self.process.number));
        }
    }
}

impl Receiver for Link {
    fn connect<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<(), Exchange>> {
        async move {
            let since = Instant::now();
            self.scene.wait(self.process, "connects").await;
            let state = self.scene.state.lock();
            let number: usize = url.path().trim_start_matches('/').parse().expect("the number of an endpoint");
            let is_down = state.endpoints.list[number].is_down_until > Instant::now();
            if is_down { Err(Self::failed(since, "not reached")) } else { Ok(()) }
        }
        .boxed()
    }

    fn post<'a>(&'a self, _: &'a Url, message: Message<'a>) -> BoxFuture<'a, Exchange> {
        async move {
            let since = Instant::now();
            self.scene.wait(self.process, "sends").await;
            let reception = self.receive(&message);
            let delay = {
                let mut state = self.scene.state.lock();
                let slow = state.is_rough && state.chance.per_mille(100);
                if slow { state.chance.millis(4_000) } else { Duration::ZERO }
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
            Exchange { status: Some(status), retry_after: None, duration: since.elapsed(), error }
        }
        .boxed()
    }
}
