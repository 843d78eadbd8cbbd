//! A test client of the simulated Akahu. It sets the headers and nothing else.

use bellbird_sandbox::{AkahuAccess, Bank, Credentials, Sandbox, start};
use jiff::SignedDuration;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::client::{list_of, options, text_of};

pub(crate) struct Akahu {
    pub(crate) sandbox: Sandbox,
    pub(crate) http: reqwest::Client,
    pub(crate) access: AkahuAccess,
    /// Olivia's user token, unless a test replaces it.
    pub(crate) token: String,
}

pub(crate) async fn akahu() -> Akahu {
    let sandbox = start(options(10)).await.unwrap();
    let access = sandbox.description().akahu.clone();
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let mut akahu = Akahu {
        sandbox,
        http,
        access,
        token: String::new(),
    };
    akahu.token = akahu.credentials(0).0;
    akahu
}

impl Akahu {
    /// User token and login of the seeded credentials: 0 and 1 are Olivia's, 2 is the spare user's.
    pub(crate) fn credentials(&self, index: usize) -> (String, String) {
        let credentials = self.sandbox.description().credentials.iter();
        let mut matching = credentials.filter_map(|credentials| match credentials {
            Credentials::Akahu {
                user_token,
                authorisation,
            } => Some((user_token.clone(), authorisation.clone())),
            _ => None,
        });
        matching.nth(index).unwrap()
    }

    /// Acts as the spare user.
    pub(crate) fn into_spare(mut self) -> Self {
        self.token = self.credentials(2).0;
        self
    }

    /// A call with the user token; `path` follows `/v1`.
    pub(crate) fn call(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self
            .http
            .request(method, format!("{}{path}", self.access.base_url));
        request
            .bearer_auth(&self.token)
            .header("X-Akahu-Id", &self.access.app_token)
    }

    /// A GET with the app's own credentials.
    pub(crate) fn app(&self, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.get(format!("{}{path}", self.access.base_url));
        request.basic_auth(&self.access.app_token, Some(&self.access.app_secret))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.call(Method::GET, path).send().await.unwrap()
    }

    /// The body of a GET that must be 200.
    pub(crate) async fn json(&self, path: &str) -> Value {
        answer(self.call(Method::GET, path)).await
    }

    /// The items of a list.
    pub(crate) async fn items(&self, path: &str) -> Vec<Value> {
        let page = self.json(path).await;
        list_of(&page["items"]).clone()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        let request = self.call(Method::POST, path).json(body);
        request.send().await.unwrap()
    }

    pub(crate) async fn accounts(&self) -> Vec<Value> {
        self.items("/accounts").await
    }

    /// The first account of a type.
    pub(crate) async fn account(&self, kind: &str) -> Value {
        self.accounts()
            .await
            .into_iter()
            .find(|account| account["type"] == kind)
            .unwrap()
    }

    /// Path of the posted rows of the first account of a type.
    pub(crate) async fn rows_path(&self, kind: &str) -> String {
        format!(
            "/accounts/{}/transactions",
            text_of(&self.account(kind).await["_id"])
        )
    }

    /// All pages, by following the cursors to the end.
    pub(crate) async fn pages(&self, path: &str) -> Vec<Vec<Value>> {
        let mut pages = Vec::new();
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut next = path.to_owned();
        loop {
            let page = self.json(&next).await;
            pages.push(list_of(&page["items"]).clone());
            match &page["cursor"]["next"] {
                Value::Null => return pages,
                cursor => next = format!("{path}{separator}cursor={}", cursor.as_str().unwrap()),
            }
        }
    }

    pub(crate) async fn rows(&self, path: &str) -> Vec<Value> {
        self.pages(path).await.concat()
    }

    pub(crate) fn bank(&self) -> &Bank {
        self.sandbox.bank("akahu")
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.bank()
            .advance_clock(SignedDuration::from_secs(seconds));
    }

    /// Consents without the hosted pages. Returns the callback's parameters in order.
    pub(crate) async fn consent(&self, more: &str) -> Vec<(String, String)> {
        self.consent_as("accept", more).await
    }

    pub(crate) async fn consent_as(&self, outcome: &str, more: &str) -> Vec<(String, String)> {
        let uris = json!({"redirectUris": ["https://app.example/cb"]});
        self.bank().set_options(&uris).unwrap();
        let url = format!(
            "{}/authorize?response_type=code&client_id={}&scope=ENDURING_CONSENT&state=s%201\
             &redirect_uri=https%3A%2F%2Fapp.example%2Fcb&sandbox_auto={outcome}{more}",
            self.access.oauth_url, self.access.app_token
        );
        let response = self.http.get(url).send().await.unwrap();
        assert_eq!(response.status(), 303);
        let location = response.headers()["location"].to_str().unwrap();
        let (base, query) = location.split_once('?').unwrap();
        assert_eq!(base, "https://app.example/cb");
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The body of a valid token exchange.
    pub(crate) fn exchange(&self, code: &str) -> Value {
        json!({
            "grant_type": "authorization_code", "code": code, "redirect_uri": "https://app.example/cb",
            "client_id": self.access.app_token, "client_secret": self.access.app_secret,
        })
    }

    /// Status and body of the token response.
    pub(crate) async fn token(&self, body: &Value) -> (u16, Value) {
        let response = self
            .http
            .post(format!("{}/token", self.access.base_url))
            .json(body)
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

/// The JSON body of a response that must be 200 and successful.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let url = response.url().to_string();
    assert_eq!(
        response.headers()["content-type"],
        "application/json",
        "{url}"
    );
    let status = response.status();
    let body: Value = response.json().await.unwrap();
    assert_eq!(
        (status.as_u16(), &body["success"]),
        (200, &Value::Bool(true)),
        "{url} {body}"
    );
    body
}

/// Status and message of a response that must be an error in Akahu's shape.
pub(crate) async fn error_of(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["success"], false);
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
    (status, text_of(&body["message"]).to_owned())
}

/// The instant of a row.
pub(crate) fn date(row: &Value) -> jiff::Timestamp {
    text_of(&row["date"]).parse().unwrap()
}

pub(crate) fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| text_of(&row["_id"])).collect()
}
