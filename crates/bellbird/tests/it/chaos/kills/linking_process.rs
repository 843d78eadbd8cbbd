//! The service is killed with `kill -9` while a user links, and is started again.

use bellbird_sandbox::{Fault, FaultKind};
use serde_json::{Value, json};

use crate::support::browser::{client, open, start, start_request, with_cookie};
use crate::support::deployment::{Deployment, Service};
use crate::support::harness::{also_on_postgres, eventually};
use crate::support::process::{Addresses, get, get_list, text};
use crate::support::provider_spec::spec;

/// A user who links. Every service listens at the same address for browsers.
struct Linking {
    deployment: Deployment,
    key: String,
    console: String,
}

impl Linking {
    async fn start() -> Self {
        let mut deployment = Deployment::start(&[]).await;
        let console = Addresses::new().console;
        deployment.set("CONSOLE__LISTEN", &console);
        deployment.set("ADMIN__RETURN_ORIGINS", "https://app.example");
        let key = deployment.add_user(spec("akahu").email);
        Self {
            deployment,
            key,
            console,
        }
    }

    fn serve(&self) -> Service {
        self.deployment
            .serve_with("--api-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0")
    }

    async fn calls(&self, provider: &str, method: &str, path: &str) -> u64 {
        let is_counted = |m: &str, p: &str| m == method && p == path;
        self.deployment.calls(provider, is_counted).await
    }

    /// Sends a request of the browser, kills the service while the provider handles its call, and
    /// starts another.
    async fn kill_amid(
        &self,
        provider: &str,
        service: Service,
        request: reqwest::RequestBuilder,
        (method, path, kind): (&str, &str, FaultKind),
    ) -> Service {
        self.deployment.reset_calls(provider).await;
        let fault = Fault::new(kind).delayed_ms(60_000).at(path);
        self.deployment.add_fault(provider, fault).await;
        let request = tokio::spawn(with_cookie(request).header("accept", "text/html").send());
        eventually(async || self.calls(provider, method, path).await > 0).await;
        service.kill();
        let answer = request.await.unwrap();
        assert!(answer.is_err(), "the browser gets no answer");
        self.deployment.clear_faults(provider).await;
        // Ends every lease, which would take minutes.
        let leases = "UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL";
        self.deployment.execute(leases).await;
        self.serve()
    }

    /// The URL of a link session, and its id.
    fn link_session(&self, provider: &str) -> (String, String) {
        let user = spec("akahu").email;
        let line = format!(
            "connection link --user {user} --provider {provider} --return-url https://app.example/"
        );
        let link = self.deployment.workdir.json(&line);
        let link_url = text(&link, "url").to_owned();
        let console = format!("http://{}", self.console);
        assert!(link_url.starts_with(&console), "{link_url}");
        (link_url, text(&link, "id").to_owned())
    }

    /// What the app receives.
    fn result(&self, session: &str) -> Value {
        let line = format!("connection link-status {session}");
        self.deployment.workdir.json(&line)
    }

    /// Asserts that the app receives the only connection.
    fn assert_connected(&self, session: &str) {
        let result = self.result(session);
        let listed = self.deployment.workdir.json("connection list");
        assert_eq!(result["status"], "connected");
        assert_eq!(result["connections"][0]["id"], listed[0]["id"]);
    }

    /// Opens the link URL, approves at the provider and returns the callback URL, which is not
    /// opened.
    async fn answer_consent_page(&self, link_url: &str) -> String {
        let mut page = start(link_url).await.location();
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        open(&page).await.location().into()
    }

    async fn works(&self, api: &str, provider: &str) -> bool {
        let listed = get_list(&format!("{api}/v1/connections"), &self.key).await;
        let [connection] = &listed[..] else {
            return false;
        };
        assert_eq!(connection["provider"], provider);
        assert_eq!(connection["status"], "active");
        let (list, id) = (spec(provider).list, text(connection, "id"));
        let path = format!("{api}/v1/{list}?connectionId={id}");
        get(&path, Some(&self.key)).await.0 == 200
    }

    /// Removes the only connection by command.
    fn remove(&self) {
        let workdir = &self.deployment.workdir;
        let listed = workdir.json("connection list");
        assert_eq!(listed.as_array().unwrap().len(), 1);
        workdir.json(&format!("connection remove {}", text(&listed[0], "id")));
        assert_eq!(workdir.json("connection list"), json!([]));
    }
}

/// Whether the callback page shows the result of its session, or leads back to the app.
async fn has_ended(callback_url: &str) -> bool {
    let page = open(callback_url).await;
    page.status == 303 || page.status == 200 && !page.text.contains("Not confirmed yet")
}

#[tokio::test]
async fn restarted_service_resumes_linking() {
    let linking = Linking::start().await;
    let service = linking.serve();

    // Killed while a user is registered, and again while the consent is looked up.
    let (link_url, session) = linking.link_session("fiskil");
    let call = ("POST", "/v1/end-users", FaultKind::Drip);
    let request = start_request(&link_url).await;
    let service = linking.kill_amid("fiskil", service, request, call).await;
    let callback_url = linking.answer_consent_page(&link_url).await;
    let deleted = linking.calls("fiskil", "DELETE", "/v1/end-users/{id}");
    assert_eq!(deleted.await, 1, "the orphaned user is deleted");
    assert_eq!(linking.calls("fiskil", "POST", "/v1/end-users").await, 2);
    let call = ("GET", "/v1/consent", FaultKind::Delay);
    let request = client().get(&callback_url);
    let service = linking.kill_amid("fiskil", service, request, call).await;
    eventually(async || linking.works(&service.api, "fiskil").await).await;
    // The session ends right after the connection is stored.
    eventually(async || has_ended(&callback_url).await).await;
    let registered = linking.calls("fiskil", "POST", "/v1/end-users");
    assert_eq!(registered.await, 0, "no second registration");
    linking.assert_connected(&session);
    linking.remove();

    // Killed while a code is exchanged: the code is lost, and the user starts again.
    let (link_url, session) = linking.link_session("akahu");
    let callback_url = linking.answer_consent_page(&link_url).await;
    let call = ("POST", "/v1/token", FaultKind::Drip);
    let request = client().get(&callback_url);
    let service = linking.kill_amid("akahu", service, request, call).await;
    eventually(async || has_ended(&callback_url).await).await;
    assert!(!linking.works(&service.api, "akahu").await);
    assert_eq!(linking.result(&session)["status"], "failed");
    let callback_url = linking.answer_consent_page(&link_url).await;
    assert_eq!(open(&callback_url).await.status, 303);
    assert!(linking.works(&service.api, "akahu").await);
    linking.assert_connected(&session);
    linking.remove();

    // The browser leaves while a code is exchanged, and the operator stops the service, which
    // completes that.
    let (link_url, _) = linking.link_session("akahu");
    let callback_url = linking.answer_consent_page(&link_url).await;
    linking.deployment.reset_calls("akahu").await;
    let fault = Fault::delay_ms(2_000).at("/v1/token");
    linking.deployment.add_fault("akahu", fault).await;
    let request = tokio::spawn(with_cookie(client().get(&callback_url)).send());
    eventually(async || linking.calls("akahu", "POST", "/v1/token").await > 0).await;
    request.abort();
    service.stop();
    linking.deployment.clear_faults("akahu").await;
    let service = linking.serve();
    eventually(async || linking.works(&service.api, "akahu").await).await;
    eventually(async || has_ended(&callback_url).await).await;
    linking.remove();

    // Killed while the browser is at the provider, and again during the callback, after the
    // provider has confirmed.
    let (link_url, session) = linking.link_session("snaptrade");
    let callback_url = linking.answer_consent_page(&link_url).await;
    service.kill();
    assert!(client().get(&callback_url).send().await.is_err());
    let service = linking.serve();
    let call = ("GET", "/authorizations", FaultKind::Drip);
    let request = client().get(&callback_url);
    let service = linking.kill_amid("snaptrade", service, request, call).await;
    eventually(async || linking.works(&service.api, "snaptrade").await).await;
    eventually(async || has_ended(&callback_url).await).await;
    linking.assert_connected(&session);
    linking.remove();

    let remove = format!("user remove {}", spec("akahu").email);
    linking.deployment.workdir.json(&remove);
    let deleted = linking.calls("snaptrade", "DELETE", "/snapTrade/deleteUser");
    assert_eq!(deleted.await, 1);
    service.stop();
    linking.deployment.stop();
}

also_on_postgres! { restarted_service_resumes_linking }
