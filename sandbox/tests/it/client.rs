//! A test client of the simulated Fiskil. It fetches a token and sets the headers, and nothing
//! else.

use bellbird_sandbox::{Bank, Credentials, Description, Options, Sandbox, start};
use jiff::SignedDuration;
use reqwest::{Method, Response};
use serde_json::{Value, json};

pub(crate) struct Client {
    pub(crate) sandbox: Sandbox,
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) token: String,
}

pub(crate) fn options(rows: u32) -> Options {
    Options {
        rows,
        now: Some("2026-11-21T01:30:00Z".parse().unwrap()),
        ..Options::default()
    }
}

/// Starts a sandbox with 300 rows, whose clock begins at a fixed time.
pub(crate) async fn client() -> Client {
    client_of(options(300)).await
}

pub(crate) async fn client_of(options: Options) -> Client {
    let sandbox = start(options).await.unwrap();
    let base = sandbox.description().fiskil.base_url.clone();
    let http = reqwest::Client::new();
    let mut client = Client {
        sandbox,
        http,
        base,
        token: String::new(),
    };
    client.token = client.fresh_token().await;
    client
}

impl Client {
    pub(crate) fn description(&self) -> &Description {
        self.sandbox.description()
    }

    pub(crate) async fn fresh_token(&self) -> String {
        let access = &self.description().fiskil;
        let body = json!({"client_id": access.client_id, "client_secret": access.client_secret});
        let response = self
            .http
            .post(format!("{}/v1/token", self.base))
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let issued: Value = response.json().await.unwrap();
        assert_eq!(issued["expires_in"], 900);
        text_of(&issued["token"]).to_owned()
    }

    pub(crate) fn call(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        request
            .bearer_auth(&self.token)
            .header("X-Fiskil-Version", "v3")
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.call(Method::GET, path).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        let request = self.call(Method::POST, path).json(body);
        request.send().await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.call(Method::DELETE, path).send().await.unwrap()
    }

    /// The body of a GET that must be 200.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "application/json");
        response.json().await.unwrap()
    }

    pub(crate) fn bank(&self) -> &Bank {
        self.sandbox.bank("fiskil")
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.bank()
            .advance_clock(SignedDuration::from_secs(seconds));
    }

    pub(crate) fn credentials(&self, index: usize) -> (String, String) {
        let Credentials::Fiskil {
            end_user_id,
            arrangement_id,
        } = &self.description().credentials[index]
        else {
            panic!("credentials {index} are not Fiskil's");
        };
        (end_user_id.clone(), arrangement_id.clone())
    }

    /// The accounts of these credentials.
    pub(crate) async fn accounts(&self, index: usize) -> Vec<Value> {
        let (user, arrangement) = self.credentials(index);
        let all = self
            .json(&format!("/v1/banking/accounts?end_user_id={user}"))
            .await;
        let mut accounts = list_of(&all["accounts"]).clone();
        accounts.retain(|account| account["arrangement_id"] == arrangement.as_str());
        accounts
    }

    /// Path of the transactions of the busiest account.
    pub(crate) async fn busiest(&self) -> String {
        let account = text_of(&self.accounts(0).await[0]["account_id"]).to_owned();
        format!(
            "/v1/banking/transactions?end_user_id={}&account_id={account}",
            self.credentials(0).0
        )
    }

    /// Follows `links.next` to the end.
    pub(crate) async fn walk(&self, path: &str, name: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let page = self.json(&path).await;
            rows.extend(list_of(&page[name]).iter().cloned());
            next = page["links"]["next"]
                .as_str()
                .map(|url| url.strip_prefix(&self.base).unwrap().to_owned());
        }
        rows
    }

    pub(crate) async fn rows(&self, path: &str) -> Vec<Value> {
        self.walk(&format!("{path}&page[size]=1000"), "transactions")
            .await
    }
}

pub(crate) fn ids(rows: &[Value]) -> Vec<String> {
    rows.iter()
        .map(|row| text_of(&row["fiskil_id"]).to_owned())
        .collect()
}

/// The instant by which the sandbox sorts a row.
pub(crate) fn time(row: &Value) -> Option<jiff::Timestamp> {
    let text = row["posting_date_time"]
        .as_str()
        .or(row["execution_date_time"].as_str())?;
    Some(text.parse().unwrap())
}

/// A member that must be a text.
#[track_caller]
pub(crate) fn text_of(value: &Value) -> &str {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("no text: {value}"))
}

/// A member that must be a list.
#[track_caller]
pub(crate) fn list_of(value: &Value) -> &Vec<Value> {
    let list = value.as_array();
    list.unwrap_or_else(|| panic!("no list: {value}"))
}
