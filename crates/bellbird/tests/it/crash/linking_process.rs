//! The service is killed with `kill -9` while a user links, and is started again.

use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::support::browser::{client, open, start, start_request, with_cookie};
use crate::support::database::execute;
use crate::support::harness::{Database, also_on_postgres, eventually};
use crate::support::process::{RunningCommand, Workdir, get, new_deployment, text};
use crate::support::provider_spec::spec;

/// A deployment with a user. Every service in it listens at the same address for browsers.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    database: String,
    key: String,
    console: String,
}

impl Deployment {
    async fn start(database: Database) -> Self {
        let (mut workdir, sandbox, database) = new_deployment(database).await;
        let console = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        workdir.set("BELLBIRD_CONSOLE__LISTEN", &console);
        workdir.set("BELLBIRD_ADMIN__RETURN_ORIGINS", "https://app.example");
        workdir.json(&format!("user add --email {}", spec("akahu").email));
        let key = text(
            &workdir.json(&format!("key create --user {}", spec("akahu").email)),
            "key",
        )
        .to_owned();
        Self {
            workdir,
            sandbox,
            database,
            key,
            console,
        }
    }

    /// A service, and the URL of its API.
    fn serve(&self) -> (RunningCommand, String) {
        let running = RunningCommand::start(
            &self.workdir,
            "serve --json --api-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0",
        );
        let api = text(&running.json(), "apiUrl").to_owned();
        (running, api)
    }

    async fn control(&self, provider: &str, method: Method, path: &str, body: Value) -> Value {
        let base: Url = text(&self.sandbox.json()[provider], "baseUrl")
            .parse()
            .unwrap();
        let url = base.join(&format!("/__control/{path}")).unwrap();
        let answer = client()
            .request(method, url)
            .json(&body)
            .send()
            .await
            .unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
    }

    async fn calls(&self, provider: &str, method: &str, path: &str) -> u64 {
        let seen = self
            .control(provider, Method::GET, "calls", json!({}))
            .await;
        let calls = seen["calls"].as_array().unwrap().iter();
        let matching = calls.filter(|call| call["method"] == method && call["path"] == path);
        matching.map(|call| call["count"].as_u64().unwrap()).sum()
    }

    /// Sends a request of the browser, kills the service while the provider handles its call, and
    /// starts another.
    async fn kill_during_call(
        &self,
        provider: &str,
        service: RunningCommand,
        request: reqwest::RequestBuilder,
        call: (&str, &str),
        kind: &str,
    ) -> (RunningCommand, String) {
        let (method, path) = call;
        self.control(provider, Method::DELETE, "calls", json!({}))
            .await;
        self.control(
            provider,
            Method::POST,
            "faults",
            json!({"match": path, "kind": kind, "delayMs": 60_000}),
        )
        .await;
        let request = tokio::spawn(with_cookie(request).header("accept", "text/html").send());
        eventually(async || self.calls(provider, method, path).await > 0).await;
        assert_eq!(service.stop("-KILL").0, None);
        assert!(
            request.await.unwrap().is_err(),
            "the browser gets no answer"
        );
        self.control(provider, Method::DELETE, "faults", json!({}))
            .await;
        // Ends every lease, which would take minutes.
        execute(
            &self.database,
            "UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL",
            "",
        )
        .await;
        self.serve()
    }

    /// The URL of a link session, and its id.
    fn link_session(&self, provider: &str) -> (String, String) {
        let user = spec("akahu").email;
        let line = format!(
            "connection link --user {user} --provider {provider} --return-url https://app.example/"
        );
        let link = self.workdir.json(&line);
        let link_url = text(&link, "url").to_owned();
        assert!(
            link_url.starts_with(&format!("http://{}", self.console)),
            "{link_url}"
        );
        (link_url, text(&link, "id").to_owned())
    }

    /// Asserts that the app is told the only connection.
    fn assert_connected(&self, session: &str) {
        let result = self
            .workdir
            .json(&format!("connection link-status {session}"));
        let listed = self.workdir.json("connection list");
        assert_eq!(
            (&result["status"], &result["connections"][0]["id"]),
            (&json!("connected"), &listed[0]["id"])
        );
    }

    /// Opens the link URL, approves at the provider and returns the callback URL, which is not
    /// opened.
    async fn answer_consent_page(&self, link_url: &str) -> String {
        let mut page = start(link_url).await.location();
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        open(page.as_str()).await.location().into()
    }

    async fn works(&self, api: &str, provider: &str) -> bool {
        let listed = get(&format!("{api}/v1/connections"), Some(&self.key))
            .await
            .1;
        let listed = listed["data"].as_array().unwrap().clone();
        let [connection] = &listed[..] else {
            return false;
        };
        assert_eq!(connection["provider"], provider);
        assert_eq!(connection["status"], "active");
        let rows = if connection["category"] == "banking" {
            "transactions"
        } else {
            "trades"
        };
        let path = format!("{api}/v1/{rows}?connectionId={}", text(connection, "id"));
        get(&path, Some(&self.key)).await.0 == 200
    }

    /// Removes the only connection by command.
    fn remove(&self) {
        let listed = self.workdir.json("connection list");
        assert_eq!(listed.as_array().unwrap().len(), 1);
        self.workdir
            .json(&format!("connection remove {}", text(&listed[0], "id")));
        assert_eq!(self.workdir.json("connection list"), json!([]));
    }
}

/// Whether the callback page shows the result of its session, or leads back to the app.
async fn has_ended(callback_url: &str) -> bool {
    let page = open(callback_url).await;
    page.status == 303 || page.status == 200 && !page.text.contains("Not confirmed yet")
}

async fn link_despite_kills(database: Database) {
    let deployment = Deployment::start(database).await;
    let (service, _) = deployment.serve();

    // Killed while a user is registered, and again while the consent is looked up.
    let (link_url, session) = deployment.link_session("fiskil");
    let (service, _) = deployment
        .kill_during_call(
            "fiskil",
            service,
            start_request(&link_url).await,
            ("POST", "/v1/end-users"),
            "drip",
        )
        .await;
    let callback_url = deployment.answer_consent_page(&link_url).await;
    assert_eq!(
        deployment
            .calls("fiskil", "DELETE", "/v1/end-users/{id}")
            .await,
        1,
        "the orphaned user is deleted"
    );
    assert_eq!(deployment.calls("fiskil", "POST", "/v1/end-users").await, 2);
    let (service, api) = deployment
        .kill_during_call(
            "fiskil",
            service,
            client().get(&callback_url),
            ("GET", "/v1/consent"),
            "delay",
        )
        .await;
    eventually(async || deployment.works(&api, "fiskil").await).await;
    // The session ends right after the connection is stored.
    eventually(async || has_ended(&callback_url).await).await;
    assert_eq!(
        deployment.calls("fiskil", "POST", "/v1/end-users").await,
        0,
        "no second registration"
    );
    deployment.assert_connected(&session);
    deployment.remove();

    // Killed while a code is exchanged: the code is lost, and the user starts again.
    let (link_url, session) = deployment.link_session("akahu");
    let callback_url = deployment.answer_consent_page(&link_url).await;
    let (service, api) = deployment
        .kill_during_call(
            "akahu",
            service,
            client().get(&callback_url),
            ("POST", "/v1/token"),
            "drip",
        )
        .await;
    eventually(async || has_ended(&callback_url).await).await;
    assert!(!deployment.works(&api, "akahu").await);
    assert_eq!(
        text(
            &deployment
                .workdir
                .json(&format!("connection link-status {session}")),
            "status"
        ),
        "failed"
    );
    assert_eq!(
        open(&deployment.answer_consent_page(&link_url).await)
            .await
            .status,
        303
    );
    assert!(deployment.works(&api, "akahu").await);
    deployment.assert_connected(&session);
    deployment.remove();

    // Killed while the browser is at the provider, and again during the callback, after the
    // provider has confirmed.
    let (link_url, session) = deployment.link_session("snaptrade");
    let callback_url = deployment.answer_consent_page(&link_url).await;
    assert_eq!(service.stop("-KILL").0, None);
    assert!(client().get(&callback_url).send().await.is_err());
    let (service, _) = deployment.serve();
    let (service, api) = deployment
        .kill_during_call(
            "snaptrade",
            service,
            client().get(&callback_url),
            ("GET", "/authorizations"),
            "drip",
        )
        .await;
    eventually(async || deployment.works(&api, "snaptrade").await).await;
    assert!(has_ended(&callback_url).await);
    deployment.assert_connected(&session);
    deployment.remove();

    deployment
        .workdir
        .json(&format!("user remove {}", spec("akahu").email));
    assert_eq!(
        deployment
            .calls("snaptrade", "DELETE", "/snapTrade/deleteUser")
            .await,
        1
    );
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn stopping_service_completes_the_exchange_of_a_code() {
    let deployment = Deployment::start(Database::Sqlite).await;
    let (service, _) = deployment.serve();
    let callback_url = deployment
        .answer_consent_page(&deployment.link_session("akahu").0)
        .await;
    deployment
        .control("akahu", Method::DELETE, "calls", json!({}))
        .await;
    let fault = json!({"match": "/v1/token", "kind": "delay", "delayMs": 2_000});
    deployment
        .control("akahu", Method::POST, "faults", fault)
        .await;
    // The browser leaves while the provider responds, and the operator stops the service.
    let request = tokio::spawn(with_cookie(client().get(&callback_url)).send());
    eventually(async || deployment.calls("akahu", "POST", "/v1/token").await > 0).await;
    request.abort();
    assert_eq!(service.stop("-TERM").0, Some(0));
    deployment
        .control("akahu", Method::DELETE, "faults", json!({}))
        .await;
    let (service, api) = deployment.serve();
    eventually(async || deployment.works(&api, "akahu").await).await;
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn restarted_service_resumes_linking() {
    let database = Database::of_test();
    link_despite_kills(database).await;
}

also_on_postgres! { restarted_service_resumes_linking }
