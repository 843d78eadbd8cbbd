//! The operator's API, on the real listener.

mod connections;
mod document;
mod guard;
mod hostile;
mod idempotency;
mod keys;
mod link_sessions;
mod many_users;
mod users;
mod webhooks;

use bellbird_storage::in_tx;
use reqwest::Method;
use serde_json::Value;

use crate::support::harness::{App, Response, Setup};

/// The service with the operator's API on its API listener, and an operator key.
struct Admin {
    app: App,
    key: String,
}

impl Admin {
    async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    async fn start_with(mut setup: Setup) -> Self {
        setup.settings.admin_listen = Some(setup.settings.api.listen);
        let app = App::start(setup).await;
        let key = operator_key(&app, "backend").await;
        Self { app, key }
    }

    async fn call(&self, method: Method, path: &str) -> Response {
        self.app.method_as(method, &self.key, path).await
    }

    async fn get(&self, path: &str) -> Response {
        self.call(Method::GET, path).await
    }

    async fn delete(&self, path: &str) -> Response {
        self.call(Method::DELETE, path).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        idempotency_key: Option<&str>,
    ) -> Response {
        let request = self
            .app
            .http
            .request(method, format!("{}{path}", self.app.url))
            .bearer_auth(&self.key);
        let request = match idempotency_key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        self.app.send(request.json(body)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Method::POST, path, body, None).await
    }

    async fn patch(&self, path: &str, body: &Value) -> Response {
        self.send(Method::PATCH, path, body, None).await
    }

    /// The actions of the audit about this user, newest first.
    async fn actions(&self, user: &str) -> Vec<String> {
        let rows = self
            .get(&format!("/admin/v1/audit?userId={user}"))
            .await
            .data();
        rows.iter()
            .map(|row| row["action"].as_str().unwrap().to_owned())
            .collect()
    }
}

async fn operator_key(app: &App, name: &str) -> String {
    let key = bellbird_storage::new_operator_key();
    in_tx!(
        app.storage,
        operator_keys::insert(&key, name, None, app.clock.now())
    )
    .await
    .unwrap();
    key.expose().to_owned()
}

/// Asserts an error with its code, in the header and in the body. Returns its message and details.
fn error(answer: &Response, status: u16, code: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("bellbird-error"), Some(code));
    let body = answer.json();
    assert_eq!(body["error"]["code"], code);
    let details = body["error"]["details"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let details: Vec<_> = details
        .iter()
        .map(|detail| detail.as_str().unwrap())
        .collect();
    format!(
        "{} {}",
        body["error"]["message"].as_str().unwrap(),
        details.join(" ")
    )
}

/// The `data` of a success.
fn data(answer: &Response, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text);
    answer.json()["data"].clone()
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}
