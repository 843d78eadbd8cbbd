//! A test client of the simulated SnapTrade. It signs as SnapTrade's guide describes, with its own
//! code.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_sandbox::{Bank, Credentials, Options, Sandbox, start};
use jiff::SignedDuration;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::client::{list_of, options, text_of};

pub(crate) struct Client {
    pub(crate) sandbox: Sandbox,
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) client_id: String,
    pub(crate) consumer_key: String,
    /// `userId` and `userSecret` as a query that ends with `&`.
    pub(crate) user: String,
}

/// A client for Olivia, in a sandbox whose clock begins on 21 November 2026.
pub(crate) async fn client() -> Client {
    client_of(options(1)).await
}

pub(crate) async fn client_of(options: Options) -> Client {
    let sandbox = start(options).await.unwrap();
    let access = sandbox.description().snaptrade.clone();
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let mut client = Client {
        sandbox,
        http,
        base: access.base_url,
        client_id: access.client_id,
        consumer_key: access.consumer_key,
        user: String::new(),
    };
    client.act_as_user_of(0);
    client
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self {
            status,
            headers,
            text: response.text().await.unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/json");
        self.json()
    }

    /// Status and code of an error in the documented shape.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        assert_eq!(body["status_code"], self.status, "{body}");
        assert!(body["detail"].is_string(), "{body}");
        (self.status, text_of(&body["code"]).to_owned())
    }

    /// Checks status and code of an error.
    #[track_caller]
    pub(crate) fn fails(&self, status: u16, code: &str) {
        assert_eq!(self.error(), (status, code.to_owned()), "{}", self.text);
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .unwrap_or_else(|| panic!("no {name}"))
            .to_str()
            .unwrap()
    }
}

impl Client {
    /// The seeded credentials: user id, user secret and authorization id.
    pub(crate) fn credentials(&self) -> Vec<(String, String, String)> {
        let all = self.sandbox.description().credentials.iter();
        all.filter_map(|credentials| match credentials {
            Credentials::SnapTrade {
                user_id,
                user_secret,
                authorization_id,
            } => Some((
                user_id.clone(),
                user_secret.clone(),
                authorization_id.clone(),
            )),
            _ => None,
        })
        .collect()
    }

    pub(crate) fn act_as_user_of(&mut self, index: usize) {
        let (user, secret, _) = &self.credentials()[index];
        self.user = format!("userId={user}&userSecret={secret}&");
    }

    pub(crate) fn connection(&self, index: usize) -> String {
        self.credentials()[index].2.clone()
    }

    pub(crate) fn now(&self) -> i64 {
        self.bank().now().as_second()
    }

    /// The signature of a request; `content` is the canonical JSON of its body.
    pub(crate) fn signature(&self, content: &str, path: &str, query: &str) -> String {
        let message =
            format!("{{\"content\":{content},\"path\":\"{path}\",\"query\":\"{query}\"}}");
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.consumer_key.as_bytes());
        STANDARD.encode(hmac::sign(&key, message.as_bytes()))
    }

    /// A signed call without a user. `path` may have a query.
    pub(crate) async fn signed(&self, method: &str, path: &str, body: Value) -> Answer {
        let now = self.now();
        self.signed_at(method, path, body, now).await
    }

    pub(crate) async fn signed_at(
        &self,
        method: &str,
        path: &str,
        body: Value,
        now: i64,
    ) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let and = if query.is_empty() || query.ends_with('&') {
            ""
        } else {
            "&"
        };
        let query = format!("{query}{and}clientId={}&timestamp={now}", self.client_id);
        // serde_json sorts members here and writes no blanks, which is canonical JSON for ASCII
        // text.
        let signature = self.signature(&body.to_string(), path, &query);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.send(method, &format!("{path}?{query}"), &signature, body)
            .await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        signature: &str,
        body: String,
    ) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header("Signature", signature);
        Answer::of(request.body(body).send().await.unwrap()).await
    }

    /// A signed call for the user.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        self.signed(method, &format!("{path}?{}{query}", self.user), body)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Value::Null).await
    }

    /// A POST without a body.
    pub(crate) async fn post(&self, path: &str) -> Answer {
        self.call("POST", path, Value::Null).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, Value::Null).await
    }

    /// Asks for a link.
    pub(crate) async fn login(&self, body: Value) -> Answer {
        self.call("POST", "/snapTrade/login", body).await
    }

    pub(crate) async fn register(&self, user: &str) -> Answer {
        let body = json!({"userId": user});
        self.signed("POST", "/snapTrade/registerUser", body).await
    }

    pub(crate) async fn delete_user(&self, user: &str) -> Answer {
        let path = format!("/snapTrade/deleteUser?userId={user}");
        self.signed("DELETE", &path, Value::Null).await
    }

    pub(crate) async fn ok(&self, path: &str) -> Value {
        self.get(path).await.ok()
    }

    pub(crate) fn bank(&self) -> &Bank {
        self.sandbox.bank("snaptrade")
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.bank()
            .advance_clock(SignedDuration::from_secs(seconds));
    }

    pub(crate) async fn accounts(&self) -> Vec<Value> {
        self.ok("/accounts").await.as_array().unwrap().clone()
    }

    /// The id of the account with this name.
    pub(crate) async fn account(&self, name: &str) -> String {
        let accounts = self.accounts().await;
        let found = accounts.iter().find(|account| account["name"] == name);
        text_of(&found.unwrap_or_else(|| panic!("no {name}"))["id"]).to_owned()
    }

    /// Every activity of an account, page by page.
    pub(crate) async fn activities(&self, account: &str) -> Vec<Value> {
        let mut rows: Vec<Value> = Vec::new();
        loop {
            let page = self
                .ok(&format!(
                    "/accounts/{account}/activities?offset={}",
                    rows.len()
                ))
                .await;
            let data = list_of(&page["data"]);
            rows.extend(data.iter().cloned());
            if data.is_empty() || page["pagination"]["total"] == rows.len() {
                return rows;
            }
        }
    }

    pub(crate) async fn positions(&self, account: &str) -> Vec<Value> {
        list_of(&self.ok(&format!("/accounts/{account}/positions/all")).await["results"]).clone()
    }
}
