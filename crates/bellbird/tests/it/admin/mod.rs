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
use crate::support::process::text;

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

    /// As [`Admin::post`], with an Idempotency-Key.
    async fn post_once(&self, key: &str, path: &str, body: &Value) -> Response {
        self.send(Method::POST, path, body, Some(key)).await
    }

    async fn patch(&self, path: &str, body: &Value) -> Response {
        self.send(Method::PATCH, path, body, None).await
    }

    async fn read(&self, path: &str) -> Value {
        data(&self.get(path).await, 200)
    }

    async fn create(&self, path: &str, body: &Value) -> Value {
        data(&self.post(path, body).await, 201)
    }

    /// Asks for work that is done later.
    async fn accept(&self, path: &str, body: &Value) -> Value {
        data(&self.post(path, body).await, 202)
    }

    async fn change(&self, path: &str, body: &Value) -> Value {
        data(&self.patch(path, body).await, 200)
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await.data()
    }

    /// All rows of a list, read in pages of `limit`.
    async fn list_by(&self, limit: usize, path: &str) -> Vec<Value> {
        let first = format!("{path}?limit={limit}");
        let (mut rows, mut next) = (Vec::new(), first.clone());
        loop {
            let page = self.get(&next).await;
            rows.extend(page.data());
            match page.json()["nextCursor"].as_str() {
                Some(cursor) => next = format!("{first}&cursor={cursor}"),
                None => return rows,
            }
        }
    }

    async fn remove(&self, path: &str) {
        assert_eq!(self.delete(path).await.status, 204, "{path}");
    }

    /// The actions of the audit about this user, newest first.
    async fn actions(&self, user: &str) -> Vec<String> {
        let rows = self.list(&format!("/admin/v1/audit?userId={user}")).await;
        let actions = rows.iter().map(|row| text(row, "action").to_owned());
        actions.collect()
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
#[track_caller]
fn error(answer: &Response, status: u16, code: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("bellbird-error"), Some(code));
    let error = &answer.json()["error"];
    assert_eq!(error["code"], code);
    let details = error["details"].as_array().into_iter().flatten();
    let details: Vec<&str> = details.map(|detail| detail.as_str().unwrap()).collect();
    format!("{} {}", text(error, "message"), details.join(" "))
}

/// The `data` of a success.
#[track_caller]
fn data(answer: &Response, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text);
    answer.json()["data"].clone()
}

fn id(value: &Value) -> String {
    text(value, "id").to_owned()
}

/// What is wrong, in words, once the status and the code are as they must be.
impl Response {
    #[track_caller]
    fn invalid(&self) -> String {
        error(self, 400, "invalid_parameters")
    }

    #[track_caller]
    fn missing(&self) -> String {
        error(self, 404, "not_found")
    }

    #[track_caller]
    fn conflict(&self) -> String {
        error(self, 409, "conflict")
    }
}
