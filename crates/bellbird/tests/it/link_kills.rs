//! The program is killed at every step of linking, repairing and looking, and started again: it ends all the same.

pub(crate) mod database;
mod processes;
mod remains;

use std::sync::atomic::{AtomicU32, Ordering};

use bellbird_connections::{Connections, LinkTo};
use bellbird_domain::{Connection, ConnectionStatus, Plan, UserId};
use bellbird_storage::UserChange;
use jiff::SignedDuration;
use reqwest::{Method, Url};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::harness::{App, Database, Person, Setup, eventually, on_both_databases};
use crate::linking::open;
use crate::processes::text;
use database::{execute, query};

/// Longer than every lease.
pub(crate) const LEASES_END: SignedDuration = SignedDuration::from_mins(3);
/// Parts into which the time of a step is cut: it is killed at the end of each.
const PARTS: u32 = 4;

/// A step of linking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The user leaves for the provider.
    Depart,
    /// The browser is back.
    Arrive,
    /// The browser was back before the service died, which goes on with the trip.
    ArriveDue,
    /// The connection is there, and is looked at for the first time.
    Look,
}

/// When the service dies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Death {
    Never,
    /// While it waits for the answer to its call after so many. `made`: the provider has done what was asked.
    AtCall {
        after: u64,
        made: bool,
    },
    /// After so many rounds of its runtime.
    After(u32),
    /// When the connection is there, but the trip has not ended.
    BeforeEnd,
}

/// What became of a copy of the service.
pub(crate) struct Ended {
    pub(crate) finished: bool,
    pub(crate) rounds: u32,
    pub(crate) calls: u64,
}

impl App {
    /// Does a piece of work in a copy of the service that is killed: all that it has begun stops where it is.
    pub(crate) async fn run<F>(
        &self,
        provider: &str,
        death: Death,
        work: impl FnOnce(Connections) -> F + Send + 'static,
    ) -> Ended
    where
        F: Future<Output = ()>,
    {
        self.forget_calls().await;
        let (kill, killed) = oneshot::channel::<()>();
        let limit = match death {
            Death::After(rounds) => Some(rounds),
            Death::Never | Death::BeforeEnd => Some(u32::MAX),
            Death::AtCall { .. } => None,
        };
        if let Death::AtCall { after, made } = death {
            if after > 0 {
                self.fault_at(provider, json!({"kind": "delay", "delayMs": 0, "times": after})).await;
            }
            let kind = if made { "drip" } else { "delay" };
            self.fault_at(provider, json!({"kind": kind, "delayMs": 60_000})).await;
        }
        if matches!(death, Death::BeforeEnd) {
            self.refuse_ends().await;
        }
        let shared = self.shared.clone();
        let program = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().event_interval(1).enable_all().build().unwrap();
            let rounds = AtomicU32::new(0);
            let death = async {
                match limit {
                    None => killed.await.unwrap_or_default(),
                    Some(limit) => {
                        while rounds.load(Ordering::Relaxed) < limit {
                            tokio::task::yield_now().await;
                            rounds.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            };
            let finished = runtime.block_on(async {
                let connections = shared.copy().await;
                tokio::select! {
                    biased;
                    () = death => false,
                    () = work(connections) => true,
                }
            });
            (finished, rounds.load(Ordering::Relaxed))
        });
        if let Death::AtCall { after, .. } = death {
            eventually(async || program.is_finished() || self.all_calls_of(provider).await > after).await;
        }
        let _ = kill.send(());
        let (finished, rounds) = program.await.unwrap();
        let calls = self.all_calls_of(provider).await;
        self.clear_faults().await;
        if matches!(death, Death::BeforeEnd) {
            execute(&self.shared.database, "DROP TRIGGER no_end", " ON link_sessions").await;
        }
        Ended { finished, rounds, calls }
    }

    async fn all_calls_of(&self, provider: &str) -> u64 {
        let calls = self.control_of(provider, Method::GET, "/calls", json!({})).await;
        calls["calls"].as_array().unwrap().iter().map(|call| call["count"].as_u64().unwrap()).sum()
    }

    /// The leases of the dead end, and who runs does what is due.
    async fn leases_end(&self) {
        self.pass(LEASES_END).await;
        self.work().await;
    }

    /// From now on no trip can end: whoever tries gets no further, as if it were killed there.
    async fn refuse_ends(&self) {
        let database = &self.shared.database;
        if database.starts_with("sqlite:") {
            let when = "CREATE TRIGGER no_end BEFORE UPDATE ON link_sessions WHEN NEW.phase = 'ended'
                BEGIN SELECT RAISE(ABORT, 'no end'); END";
            return execute(database, when, "").await;
        }
        let refuse = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no end'; END $$";
        execute(database, refuse, "").await;
        let when = "CREATE TRIGGER no_end BEFORE UPDATE ON link_sessions FOR EACH ROW
            WHEN (NEW.phase = 'ended') EXECUTE FUNCTION refuse()";
        execute(database, when, "").await;
    }

    async fn query(&self, sql: &str) -> Vec<Vec<String>> {
        query(&self.shared.database, sql).await
    }

    /// Users that are registered at a provider now under an address, and not by other tests.
    async fn registered(&self, provider: &str, email: &str) -> usize {
        match provider {
            "fiskil" => self.end_users(email).await,
            "snaptrade" => {
                let seen = self.control_of(provider, Method::GET, "/webhooks", json!({})).await;
                let events = |name: &str| {
                    let all = seen["deliveries"].as_array().unwrap().iter();
                    all.filter(|one| one["event"] == name).count()
                };
                events("USER_REGISTERED") - events("USER_DELETED")
            }
            _ => 0,
        }
    }

    async fn end_users(&self, email: &str) -> usize {
        let fiskil = serde_json::to_value(self.sandbox.description()).unwrap()["fiskil"].clone();
        let base = text(&fiskil, "baseUrl").trim_end_matches('/').to_owned();
        let body = json!({"client_id": fiskil["clientId"], "client_secret": fiskil["clientSecret"]});
        let asked = self.http.post(format!("{base}/v1/token")).json(&body).send().await.unwrap();
        let token: Value = asked.json().await.unwrap();
        let mut url: Url = format!("{base}/v1/end-users").parse().unwrap();
        url.query_pairs_mut().append_pair("email", email);
        let listed: Value =
            self.http.get(url).bearer_auth(text(&token, "token")).send().await.unwrap().json().await.unwrap();
        listed["end_users"].as_array().or(listed.as_array()).unwrap_or_else(|| panic!("{listed}")).len()
    }
}

/// Whatever somebody still has to do.
const UNDONE: &str = "SELECT 'trip' FROM link_sessions WHERE phase <> 'ended'
    UNION ALL SELECT 'look' FROM connections WHERE look_at IS NOT NULL OR look_lease_until IS NOT NULL
    UNION ALL SELECT 'removal' FROM connections WHERE status = 'deleting'
    UNION ALL SELECT 'registration' FROM provider_users WHERE lease_until IS NOT NULL
    UNION ALL SELECT 'answer' FROM secrets WHERE purpose = 'link'";

/// Whoever has this address has one login at the provider.
fn email_at(provider: &str) -> &'static str {
    if provider == "akahu" { "aroha.williams@example.com" } else { "me@example.com" }
}

/// One user's way, on which the service dies once.
struct Way<'a> {
    app: &'a App,
    provider: &'a str,
    /// How the provider gives a consent again; none: something new is linked.
    repair: Option<&'a Value>,
    step: Step,
}

impl Way<'_> {
    /// Walks it to its end, where everything has to be as if nobody had died.
    async fn walk(&self, death: Death) -> Ended {
        let (app, provider) = (self.app, self.provider);
        let person = app.add_person(email_at(provider), Plan::Professional, &[]).await;
        let user = person.user.id;
        let broken = match self.repair {
            Some(setting) => Some(self.something_broken(user, setting).await),
            None => None,
        };
        let repaired = broken.as_ref().map(|(connection, _)| connection.id);
        let address = app.address(user, repaired.map_or(LinkTo::Provider(provider), LinkTo::Connection)).await;
        let mut ended = None;
        if self.step == Step::Depart {
            let token = address.rsplit('/').next().unwrap().to_owned();
            let leave = async move |connections: Connections| {
                let _ = connections.depart(&token, LinkTo::Choice).await;
            };
            ended = Some(app.run(provider, death, leave).await);
            app.leases_end().await;
        }
        let back = app.consent(&address, "accept").await;
        if self.step != Step::Depart {
            ended = Some(self.come_back(user, &back, death).await);
        }
        self.reload(user, &address, &back).await;
        self.assert_ended(&person, broken).await;
        self.leave_nothing(&person).await;
        ended.unwrap()
    }

    /// A connection that does not work any more, and the ids of its accounts.
    async fn something_broken(&self, user: UserId, setting: &Value) -> (Connection, Vec<(String, String)>) {
        let (app, provider) = (self.app, self.provider);
        let (mut linked, shown) = app.linked(user, LinkTo::Provider(provider)).await;
        assert_eq!(linked.len(), 1, "{}", shown.text);
        let connection = linked.remove(0);
        let accounts = app.accounts_of(&connection).await;
        if !setting.is_null() {
            app.control_of(provider, Method::POST, "/relink", setting.clone()).await;
        }
        app.set_consent(&connection, "revoked").await;
        let status = app.connections.check(user, connection.id).await.unwrap();
        assert_eq!(status, ConnectionStatus::Revoked);
        (connection, accounts)
    }

    async fn come_back(&self, user: UserId, back: &Url, death: Death) -> Ended {
        let (app, provider) = (self.app, self.provider);
        let mut answer: Vec<(String, String)> = back.query_pairs().into_owned().collect();
        match self.step {
            Step::Depart | Step::Arrive => {
                let arrive = async move |connections: Connections| {
                    let _ = connections.arrive(&answer).await;
                };
                app.run(provider, death, arrive).await
            }
            Step::ArriveDue => {
                let state = answer.iter().find(|(name, _)| name == "state").unwrap().1.clone();
                answer.retain(|(name, _)| name != "state");
                let sealed = SecretString::from(serde_json::to_string(&answer).unwrap());
                let now = app.clock.now();
                app.storage.return_link_session(&state, &sealed, now, now).await.unwrap().expect("it is on its way");
                app.run(provider, death, async move |connections: Connections| {
                    let _ = connections.arrive_due().await;
                })
                .await
            }
            Step::Look => {
                open(back.as_str()).await;
                assert!(!app.connections_of(user).await.is_empty());
                app.pass(SignedDuration::from_secs(10)).await;
                app.run(provider, death, async move |connections: Connections| {
                    let _ = connections.look_due().await;
                })
                .await
            }
        }
    }

    /// What a user does who sees nothing but an error: loads the page again, and once more later.
    async fn reload(&self, user: UserId, address: &str, back: &Url) {
        let app = self.app;
        // A commit that was sent is carried out, perhaps only just now: behind it, one looks.
        app.storage.update_user(user, &UserChange::default()).await.unwrap();
        for _ in 0..2 {
            let shown = open(back.as_str()).await;
            assert!(matches!(shown.status, 200 | 409), "{}", shown.text);
            app.leases_end().await;
        }
        if !self.works(user).await {
            // A code serves once: when its exchange was interrupted, or comes late, it is lost.
            assert_eq!((self.provider, self.step == Step::Depart), ("akahu", false), "the consent led to nothing");
            let back = app.consent(address, "accept").await;
            let shown = open(back.as_str()).await;
            assert_eq!(shown.status, 200, "{}", shown.text);
        }
    }

    async fn works(&self, user: UserId) -> bool {
        self.app.connections_of(user).await.iter().any(|one| one.status == ConnectionStatus::Active)
    }

    async fn assert_ended(&self, person: &Person, broken: Option<(Connection, Vec<(String, String)>)>) {
        let (app, provider, user) = (self.app, self.provider, person.user.id);
        // The last look after a link, the end of every trip, and of one whose grant is kept longer.
        for hours in [1, 1, 12, 24, 24, 24] {
            app.pass(SignedDuration::from_hours(hours)).await;
            app.work().await;
            if app.query(UNDONE).await.is_empty() {
                break;
            }
        }
        assert_eq!(app.query(UNDONE).await, Vec::<Vec<String>>::new());
        let connections = app.connections_of(user).await;
        assert_eq!(connections.len(), 1, "{connections:?}");
        let connection = &connections[0];
        assert_eq!(connection.status, ConnectionStatus::Active);
        let accounts = app.accounts_of(connection).await;
        assert!(!accounts.is_empty());
        let steps: Vec<String> =
            app.storage.list_audit(connection.id).await.unwrap().into_iter().map(|step| step.cause).collect();
        match broken {
            None => assert_eq!(steps, ["linked"]),
            Some((before, its_accounts)) => {
                assert_eq!((connection.id, accounts), (before.id, its_accounts), "all ids are kept");
                // A look may have found out before the browser was back.
                assert_eq!(steps[..2], ["linked", "checked"]);
                assert!(matches!(steps[2].as_str(), "reconnected" | "checked") && steps.len() == 3, "{steps:?}");
            }
        }
        let rows = if connection.category.as_str() == "banking" { "transactions" } else { "trades" };
        let read = app.get_as(&person.key, &format!("/v1/{rows}?connectionId={}", connection.id)).await;
        assert_eq!(read.status, 200, "{}", read.text);
        let users = usize::from(provider != "akahu");
        assert_eq!(app.registered(provider, &person.user.email).await, users, "users in use at the provider");
    }

    /// The user goes, and is forgotten at the provider too.
    async fn leave_nothing(&self, person: &Person) {
        let (app, user) = (self.app, person.user.id);
        for connection in app.connections_of(user).await {
            app.connections.remove(connection.id).await.unwrap();
        }
        app.connections.unregister(user, false).await.unwrap();
        app.pass(SignedDuration::from_secs(2)).await;
        assert_eq!(app.registered(self.provider, &person.user.email).await, 0);
        app.storage.delete_user(user).await.expect("nothing is left of it");
    }

    /// Dies at every call, before and after the provider has done it, and in between.
    async fn die_everywhere(&self) {
        let whole = self.walk(Death::Never).await;
        assert!(whole.finished);
        let mut met = whole.calls == 0;
        for after in 0..whole.calls {
            for made in [false, true] {
                // What was asked once for all users is not asked again.
                met |= !self.walk(Death::AtCall { after, made }).await.finished;
            }
        }
        assert!(met, "it never waited for an answer");
        if matches!(self.step, Step::Arrive | Step::ArriveDue) {
            self.walk(Death::BeforeEnd).await;
        }
        for part in 0..PARTS {
            let rounds = u64::from(whole.rounds) * u64::from(part) / u64::from(PARTS);
            self.walk(Death::After(u32::try_from(rounds).unwrap())).await;
        }
    }
}

async fn die_everywhere(app: &App, provider: &str, repairs: &[Option<Value>], steps: &[Step]) {
    // Nobody listens there: what would be told is counted.
    app.control_of("snaptrade", Method::POST, "/webhooks", json!({"url": "http://127.0.0.1:9/"})).await;
    for repair in repairs {
        for step in steps.iter().copied() {
            Way { app, provider, repair: repair.as_ref(), step }.die_everywhere().await;
        }
    }
}

on_both_databases! {
    async fn a_code_whose_exchange_was_not_sent_is_exchanged_in_time_by_whoever_goes_on(app: App) {
        let person = app.add_person(email_at("akahu"), Plan::Professional, &[]).await;
        let user = person.user.id;
        let back = app.consent(&app.address(user, LinkTo::Provider("akahu")).await, "accept").await;
        let answer: Vec<(String, String)> = back.query_pairs().into_owned().collect();
        let ended = app.run("akahu", Death::AtCall { after: 0, made: false }, async move |connections: Connections| {
            let _ = connections.arrive(&answer).await;
        });
        assert!(!ended.await.finished);
        // A code is good for a minute.
        app.pass(SignedDuration::from_secs(30)).await;
        app.connections.arrive_due().await.unwrap();
        assert_eq!(app.connections_of(user).await.len(), 1);
    }
}

const ALL: [Step; 4] = [Step::Depart, Step::Arrive, Step::ArriveDue, Step::Look];

on_both_databases! {
    async fn fiskil_is_linked_whenever_the_program_dies(app: App) {
        die_everywhere(&app, "fiskil", &[None], &ALL).await;
    }
}

on_both_databases! {
    async fn akahu_is_linked_whenever_the_program_dies(app: App) {
        die_everywhere(&app, "akahu", &[None], &ALL).await;
    }
}

on_both_databases! {
    async fn snaptrade_is_linked_whenever_the_program_dies(app: App) {
        die_everywhere(&app, "snaptrade", &[None], &ALL).await;
    }
}

on_both_databases! {
    async fn fiskil_is_repaired_whenever_the_program_dies(app: App) {
        die_everywhere(&app, "fiskil", &[Some(json!({"sameIds": false}))], &ALL).await;
    }
}

on_both_databases! {
    async fn akahu_is_repaired_whenever_the_program_dies(app: App) {
        die_everywhere(&app, "akahu", &[Some(json!({"newToken": true, "newAuthorisation": true}))], &ALL).await;
    }
}

on_both_databases! {
    async fn snaptrade_is_repaired_whenever_the_program_dies(app: App) {
        die_everywhere(&app, "snaptrade", &[Some(Value::Null)], &ALL).await;
    }
}
