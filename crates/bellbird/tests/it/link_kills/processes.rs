//! A service that was killed with `kill -9` while somebody links, and is started again.

use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::database::execute;
use super::email_at;
use crate::cli::Place;
use crate::harness::{Database, eventually};
use crate::linking::{client, open};
use crate::processes::{Running, get, machine, text};

/// A host's machine: the pretended providers, a database, a user, and a service on one address for browsers.
struct Host {
    place: Place,
    sandbox: Running,
    database: String,
    key: String,
    console: String,
}

impl Host {
    async fn start(database: Database) -> Self {
        let (mut place, sandbox, database) = machine(database).await;
        let console = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        place.set("BELLBIRD_CONSOLE__LISTEN", &console);
        place.json(&format!("user add --email {}", email_at("akahu")));
        let key = text(&place.json(&format!("key create --user {}", email_at("akahu"))), "key").to_owned();
        Self { place, sandbox, database, key, console }
    }

    /// A service, and the address of its API.
    fn serve(&self) -> (Running, String) {
        let running = Running::start(&self.place, "serve --json --api-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0");
        let api = text(&running.json(), "apiUrl").to_owned();
        (running, api)
    }

    async fn control(&self, provider: &str, method: Method, path: &str, body: Value) -> Value {
        let base: Url = text(&self.sandbox.json()[provider], "baseUrl").parse().unwrap();
        let url = base.join(&format!("/__control/{path}")).unwrap();
        let answer = client().request(method, url).json(&body).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
    }

    async fn calls(&self, provider: &str, method: &str, path: &str) -> u64 {
        let seen = self.control(provider, Method::GET, "calls", json!({})).await;
        let calls = seen["calls"].as_array().unwrap().iter();
        let wanted = calls.filter(|call| call["method"] == method && call["path"] == path);
        wanted.map(|call| call["count"].as_u64().unwrap()).sum()
    }

    /// The browser opens a page; the service is killed when its call is at the provider. Then another one runs.
    async fn killed(
        &self,
        provider: &str,
        service: Running,
        url: &str,
        at: (&str, &str),
        kind: &str,
    ) -> (Running, String) {
        let (method, path) = at;
        self.control(provider, Method::DELETE, "calls", json!({})).await;
        self.control(provider, Method::POST, "faults", json!({"match": path, "kind": kind, "delayMs": 60_000})).await;
        let request = tokio::spawn(client().get(url).header("accept", "text/html").send());
        eventually(async || self.calls(provider, method, path).await > 0).await;
        assert_eq!(service.stop("-KILL").0, None);
        assert!(request.await.unwrap().is_err(), "the browser is shown nothing");
        self.control(provider, Method::DELETE, "faults", json!({})).await;
        // The time of every lease passes, which is minutes.
        for table in ["provider_users", "link_sessions"] {
            let sql = format!("UPDATE {table} SET lease_until = 0 WHERE lease_until IS NOT NULL");
            execute(&self.database, &sql, "").await;
        }
        self.serve()
    }

    fn address(&self, provider: &str) -> String {
        let line = format!("connection link --user {} --provider {provider}", email_at("akahu"));
        let address = text(&self.place.json(&line), "url").to_owned();
        assert!(address.starts_with(&format!("http://{}", self.console)), "{address}");
        address
    }

    /// From our address over the provider's page back to ours, which is not opened.
    async fn consent(&self, address: &str) -> String {
        let mut page = open(address).await.location();
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        open(page.as_str()).await.location().into()
    }

    async fn works(&self, api: &str, provider: &str) -> bool {
        let listed = get(&format!("{api}/v1/connections"), Some(&self.key)).await.1;
        let listed = listed["data"].as_array().unwrap().clone();
        let [one] = &listed[..] else { return false };
        assert_eq!((&one["provider"], &one["status"]), (&json!(provider), &json!("active")));
        let rows = if one["category"] == "banking" { "transactions" } else { "trades" };
        let path = format!("{api}/v1/{rows}?connectionId={}", text(one, "id"));
        get(&path, Some(&self.key)).await.0 == 200
    }

    /// Removes the connection by command; nothing is left of it.
    fn remove(&self) {
        let listed = self.place.json("connection list");
        assert_eq!(listed.as_array().unwrap().len(), 1);
        self.place.json(&format!("connection remove {}", text(&listed[0], "id")));
        assert_eq!(self.place.json("connection list"), json!([]));
    }
}

async fn the_service_is_killed(database: Database) {
    let host = Host::start(database).await;
    let (service, _) = host.serve();

    // When a user is registered, and again when the consent is looked up.
    let address = host.address("fiskil");
    let (service, _) = host.killed("fiskil", service, &address, ("POST", "/v1/end-users"), "drip").await;
    let back = host.consent(&address).await;
    assert_eq!(host.calls("fiskil", "DELETE", "/v1/end-users/{id}").await, 1, "nobody is left behind");
    assert_eq!(host.calls("fiskil", "POST", "/v1/end-users").await, 2);
    let (service, api) = host.killed("fiskil", service, &back, ("GET", "/v1/consent"), "delay").await;
    eventually(async || host.works(&api, "fiskil").await).await;
    assert_eq!(open(&back).await.status, 409);
    assert_eq!(host.calls("fiskil", "POST", "/v1/end-users").await, 0, "not again");
    host.remove();

    // When a code is exchanged: it is lost, and the user begins again.
    let address = host.address("akahu");
    let back = host.consent(&address).await;
    let (service, api) = host.killed("akahu", service, &back, ("POST", "/v1/token"), "drip").await;
    eventually(async || open(&back).await.status == 409).await;
    assert!(!host.works(&api, "akahu").await);
    assert_eq!(open(&host.consent(&address).await).await.status, 200);
    assert!(host.works(&api, "akahu").await);
    host.remove();

    // While the browser is away; and when it is back, after the provider has confirmed.
    let address = host.address("snaptrade");
    let back = host.consent(&address).await;
    assert_eq!(service.stop("-KILL").0, None);
    assert!(client().get(&back).send().await.is_err());
    let (service, _) = host.serve();
    let (service, api) = host.killed("snaptrade", service, &back, ("GET", "/authorizations"), "drip").await;
    eventually(async || host.works(&api, "snaptrade").await).await;
    assert_eq!(open(&back).await.status, 409);
    host.remove();

    host.place.json(&format!("user remove {}", email_at("akahu")));
    assert_eq!(host.calls("snaptrade", "DELETE", "/snapTrade/deleteUser").await, 1);
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(host.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn a_service_that_was_killed_links_on_when_it_starts_again_on_sqlite() {
    the_service_is_killed(Database::Sqlite).await;
}

#[tokio::test]
async fn a_service_that_was_killed_links_on_when_it_starts_again_on_postgres() {
    the_service_is_killed(Database::Postgres).await;
}
