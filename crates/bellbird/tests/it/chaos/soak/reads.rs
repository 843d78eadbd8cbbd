//! What the API must return: the rows of the first read never change, and added rows have an amount
//! that they had once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;

use crate::support::browser::client;
use crate::support::known_rows::{DESCRIPTION, Rows};
use crate::support::process::text;
use crate::support::provider_spec::spec;

/// Longer than the service takes for any response, unless it stands still.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const REPEAT_DELAY: Duration = Duration::from_secs(2);
const REPEATED_MAX: u32 = 60;

/// A response of the API, or the error of the connection.
pub(super) type Response = Result<(u16, Value), reqwest::Error>;

pub(super) async fn get(api: &str, key: &str, path: &str) -> Response {
    let request = client()
        .get(format!("http://{api}{path}"))
        .bearer_auth(key)
        .timeout(RESPONSE_TIMEOUT);
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    Ok((status, answer.json().await?))
}

/// Trades that are equal in all parts of their id are several rows.
type KnownRows = BTreeMap<(String, String), Vec<Value>>;

/// The rows of a user.
pub(super) struct Known {
    /// The connections, each with `transactions` or `trades`.
    pub(super) connections: Vec<(String, &'static str)>,
    pub(super) accounts: Vec<Value>,
    first: KnownRows,
    pub(super) rows: Mutex<Rows>,
}

impl Known {
    /// Reads everything once, before any load.
    pub(super) async fn read(api: &str, key: &str, rows: Rows) -> Self {
        let connections = data(api, key, "/v1/connections").await;
        let connections = connections.iter().map(|connection| {
            let kind = spec(text(connection, "provider")).list;
            (text(connection, "id").to_owned(), kind)
        });
        let accounts = data(api, key, "/v1/accounts?limit=200").await;
        let mut known = Self {
            connections: connections.collect(),
            accounts,
            first: KnownRows::new(),
            rows: Mutex::new(rows),
        };
        known.first = known.walk(api, key, 100).await;
        known
    }

    /// All rows of all connections, in pages.
    async fn walk(&self, api: &str, key: &str, limit: usize) -> KnownRows {
        let mut all = KnownRows::new();
        for (connection, kind) in &self.connections {
            let mut offset = 0;
            loop {
                let path = format!(
                    "/v1/{kind}?connectionId={connection}&from=2000-01-01&limit={limit}&offset={offset}"
                );
                let body = patient_get(api, key, &path).await;
                for row in body["data"].as_array().unwrap() {
                    all.entry(key_of(row)).or_default().push(row.clone());
                }
                if body["pagination"]["hasMore"] != true {
                    break;
                }
                offset += limit;
            }
        }
        all
    }

    /// Asserts that every row of a page is right. Returns how many there are.
    pub(super) async fn check_page(&self, body: &Value) -> usize {
        let page = body["data"].as_array().unwrap();
        let rows = self.rows.lock().await;
        for row in page {
            if let Some(known) = self.first.get(&key_of(row)) {
                assert!(known.contains(row), "{row} was {known:?}");
                continue;
            }
            let is_added = text(row, "description").starts_with(DESCRIPTION);
            assert!(is_added, "invented: {row}");
            let amounts = rows.amounts(text(row, "id"));
            if let Some(amounts) = amounts.filter(|_| row["price"].is_null()) {
                let was_shown = amounts.iter().any(|amount| is_amount(row, amount));
                assert!(was_shown, "{row}: {amounts:?}");
            }
        }
        page.len()
    }

    /// Asserts that the API has exactly the rows of the start and those that were added. Returns
    /// how many there are.
    pub(super) async fn check_all(&self, api: &str, key: &str) -> usize {
        // Windows that no instance has cached.
        let now = self.walk(api, key, 99).await;
        let rows = self.rows.lock().await;
        for (key, first) in &self.first {
            let shown = now.get(key).map(|rows| sorted(rows));
            assert_eq!(shown, Some(sorted(first)), "{key:?}");
        }
        let added = now.iter().filter(|(key, _)| !self.first.contains_key(*key));
        let added: Vec<(&str, &[Value])> = added
            .map(|((_, id), shown)| (id.as_str(), &shown[..]))
            .collect();
        let ids: BTreeSet<&str> = added.iter().map(|(id, _)| *id).collect();
        let expected = rows.added_ids(false).chain(rows.added_ids(true));
        let expected: BTreeSet<&str> = expected.collect();
        assert_eq!(ids, expected);
        for (id, shown) in added {
            let [row] = shown else {
                panic!("{id}: {shown:?}")
            };
            if row["price"].is_null() {
                let amounts = rows.amounts(id).unwrap();
                let is_last = is_amount(row, amounts.last().unwrap());
                assert!(is_last, "{row}: {amounts:?}");
            }
        }
        now.values().map(Vec::len).sum()
    }
}

/// Akahu sends numbers, and the sandbox writes them without zeros at the end.
fn is_amount(row: &Value, amount: &str) -> bool {
    text(row, "amount").trim_end_matches('0') == amount.trim_end_matches('0')
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(Value::to_string).collect();
    texts.sort_unstable();
    texts
}

fn key_of(row: &Value) -> (String, String) {
    (
        text(row, "accountId").to_owned(),
        text(row, "id").to_owned(),
    )
}

/// A GET that is repeated while the provider's limit of calls is used up, and while permits of
/// killed services last.
async fn patient_get(api: &str, key: &str, path: &str) -> Value {
    for _ in 0..REPEATED_MAX {
        let (status, body) = get(api, key, path).await.unwrap();
        if status == 200 {
            return body;
        }
        assert!(matches!(status, 429 | 503), "{path}: {status} {body}");
        tokio::time::sleep(REPEAT_DELAY).await;
    }
    panic!("{path}: no answer");
}

async fn data(api: &str, key: &str, path: &str) -> Vec<Value> {
    let (status, body) = get(api, key, path).await.unwrap();
    assert_eq!(status, 200, "{body}");
    body["data"].as_array().unwrap().clone()
}
