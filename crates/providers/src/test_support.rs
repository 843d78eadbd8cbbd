//! Test support: accounts, and a mock provider on loopback with scripted responses that records all
//! requests.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency, UserId};
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use crate::http::ClientSettings;
use crate::linking::{AuthorizationRequest, CallbackParams, NoConsent, Purpose};
use crate::{CallContext, Cause, Error, Linking, Provider};

#[derive(Clone)]
pub(crate) struct RecordedRequest {
    /// Method, path and query.
    pub(crate) line: String,
    head: String,
    pub(crate) body: String,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Status and body. None closes the connection without a response.
pub(crate) type MockResponse = Option<(u16, String)>;

/// A [`MockResponse`] with header lines before its body.
type HeadedResponse = Option<(u16, &'static str, String)>;

pub(crate) fn mock_response(status: u16, body: &str) -> MockResponse {
    Some((status, body.to_owned()))
}

pub(crate) struct Peer {
    pub(crate) base_url: String,
    recorded: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Peer {
    /// `answer` gets the number of the request, from 0, and the request.
    pub(crate) async fn new(
        answer: impl Fn(usize, &RecordedRequest) -> MockResponse + Send + 'static,
    ) -> Self {
        Self::with_headers("", answer).await
    }

    /// As [`Self::new`], with these header lines in every response.
    pub(crate) async fn with_headers(
        headers: &'static str,
        answer: impl Fn(usize, &RecordedRequest) -> MockResponse + Send + 'static,
    ) -> Self {
        Self::waiting(1, move |number, recorded| {
            let (status, body) = answer(number, recorded)?;
            Some((status, headers, body))
        })
        .await
    }

    /// As [`Self::new`], but holds back responses until `together` requests have come in.
    pub(crate) async fn waiting(
        together: usize,
        answer: impl Fn(usize, &RecordedRequest) -> HeadedResponse + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&recorded);
        tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                let number = seen.lock().len();
                seen.lock().push(request.clone());
                held.push((stream, number, request));
                if held.len() < together {
                    continue;
                }
                for (mut stream, number, request) in std::mem::take(&mut held) {
                    let Some((status, headers, body)) = answer(number, &request) else {
                        continue;
                    };
                    let content_type = if body.starts_with('<') {
                        "text/html"
                    } else {
                        "application/json"
                    };
                    let length = body.len();
                    let answer = format!(
                        "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
                         {headers}connection: close\r\n\r\n{body}"
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        Self { base_url, recorded }
    }

    pub(crate) async fn always(status: u16, body: &str) -> Self {
        Self::answering(mock_response(status, body)).await
    }

    /// Gives every request the same response.
    pub(crate) async fn answering(response: MockResponse) -> Self {
        Self::new(move |_, _| response.clone()).await
    }

    pub(crate) fn recorded(&self) -> Vec<RecordedRequest> {
        self.recorded.lock().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.recorded
            .lock()
            .iter()
            .map(|recorded| recorded.line.clone())
            .collect()
    }
}

async fn read(stream: &mut TcpStream) -> RecordedRequest {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.unwrap()));
    }
    let line = head
        .lines()
        .next()
        .unwrap()
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let mut recorded = RecordedRequest {
        line,
        head,
        body: String::new(),
    };
    let mut body = vec![
        0;
        recorded
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap())
    ];
    stream.read_exact(&mut body).await.unwrap();
    recorded.body = String::from_utf8(body).unwrap();
    recorded
}

/// An account at a bank, with the id of this number.
pub(crate) fn account(number: u128, provider_account_id: &str) -> Account {
    Account {
        id: AccountId::from(Uuid::from_u128(number)),
        user_id: UserId::from(Uuid::from_u128(1_000)),
        connection_id: ConnectionId::from(Uuid::from_u128(2_000)),
        provider: "simulated".to_owned(),
        provider_account_id: provider_account_id.to_owned(),
        name: "Everyday".to_owned(),
        account_type: AccountType::Transaction,
        institution_name: None,
        number: None,
        currency: Currency::UNKNOWN,
    }
}

pub(crate) fn client_settings(call_seconds: u64) -> ClientSettings<'static> {
    ClientSettings {
        call_timeout: Duration::from_secs(call_seconds),
        user_calls_per_minute: 0,
        store: None,
    }
}

/// A call context on 21 November 2026.
pub(crate) fn context() -> CallContext {
    CallContext::new(
        Instant::now() + Duration::from_secs(20),
        "2026-11-21T00:00:00Z".parse().unwrap(),
        Cause::Schedule,
    )
}

fn redirect_uri() -> Url {
    "https://b.example/link/callback".parse().unwrap()
}

/// The URL of the consent page.
pub(crate) async fn authorize(
    provider: &dyn Provider,
    purpose: Purpose<'_>,
) -> Result<String, Error> {
    let request = AuthorizationRequest {
        purpose,
        email: "a+b@example.nz",
        redirect_uri: &redirect_uri(),
        state: "s7",
    };
    let linking = provider.linking().unwrap();
    let url = linking.authorize(&context(), &request).await;
    url.map(String::from)
}

/// The credentials after a callback with these parameters.
pub(crate) async fn finish(
    provider: &dyn Provider,
    purpose: Purpose<'_>,
    params: &[(&str, &str)],
) -> Result<String, Error> {
    let callback = CallbackParams {
        purpose,
        redirect_uri: &redirect_uri(),
        params: &parameters(params),
    };
    let linking = provider.linking().unwrap();
    let credentials = linking.finish(&context(), &callback).await;
    credentials.map(|credentials| credentials.expose_secret().to_owned())
}

/// Asserts what a callback with these parameters means: consent (None), or whether the user
/// declined.
pub(crate) fn assert_hint(linking: &dyn Linking, params: &[(&str, &str)], declined: Option<bool>) {
    let hint = linking.hint(&parameters(params));
    match declined {
        None => assert_eq!(hint, Ok(()), "{params:?}"),
        Some(true) => assert_eq!(hint, Err(NoConsent::Declined), "{params:?}"),
        Some(false) => assert!(matches!(hint, Err(NoConsent::Failed(_))), "{params:?}"),
    }
}

pub(crate) fn parameters(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
