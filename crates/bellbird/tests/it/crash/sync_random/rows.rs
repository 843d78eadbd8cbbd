//! The rows that the simulated providers are given while services die, and what the endpoints have to say of them.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::endpoint::{Endpoint, number};
use super::random::Random;
use crate::support::browser::client;
use crate::support::database::query;
use crate::support::process::{RunningCommand, text};

/// An account that rows are added to.
struct Account {
    provider: String,
    /// The provider's id.
    id: String,
}

/// A row that was added.
struct Added {
    provider: String,
    /// The provider's id.
    handle: String,
    /// As events name it.
    id: String,
    /// What an event shows of the last change; none: it was not changed.
    changed_to: Option<(&'static str, Value)>,
}

/// All that was added.
pub(super) struct Rows {
    accounts: Vec<Account>,
    added: Vec<Added>,
    /// How many rows and changes there were: what makes each of them differ.
    count: u64,
}

impl Rows {
    /// For the accounts that are there, one of each connection.
    pub(super) async fn new(database: &str) -> Self {
        let sql = "SELECT c.provider, MIN(a.provider_account_id) FROM accounts a
            JOIN connections c ON c.user_id = a.user_id AND c.id = a.connection_id
            WHERE c.category = 'brokerage' OR a.account_type IN ('transaction', 'savings')
            GROUP BY c.provider, c.id ORDER BY c.provider, c.id";
        let account = |row: Vec<String>| {
            let [provider, id] = row.try_into().unwrap();
            Account { provider, id }
        };
        let accounts: Vec<_> = query(database, sql).await.into_iter().map(account).collect();
        let providers: BTreeSet<_> = accounts.iter().map(|account| account.provider.as_str()).collect();
        assert_eq!((providers.len(), accounts.len()), (3, 5));
        Self { accounts, added: Vec::new(), count: 0 }
    }

    /// A few new rows on one account.
    pub(super) async fn add(&mut self, sandbox: &RunningCommand, random: &mut Random) {
        let account = random.below(self.accounts.len());
        for _ in 0..=random.below(8) {
            self.count += 1;
            let Account { provider, id } = &self.accounts[account];
            let (cents, description) = (self.count + 1_000, format!("ROW {}", self.count));
            let (path, row) = match provider.as_str() {
                "fiskil" => {
                    ("transactions", json!({"account_id": id, "amount": text_of(cents), "description": description}))
                }
                "akahu" => {
                    ("transactions", json!({"_account": id, "amount": decimal(cents), "description": description}))
                }
                _ => ("trades", json!({"account": id, "units": self.count, "description": description})),
            };
            let row = control(sandbox, provider, Method::POST, path, row).await;
            let added = match provider.as_str() {
                "fiskil" => (text(&row, "fiskil_id"), text(&row, "fiskil_id").to_owned()),
                "akahu" => (text(&row, "_id"), text(&row, "_id").to_owned()),
                _ => (text(&row, "id"), trade_id(&row)),
            };
            let (provider, (handle, id)) = (provider.clone(), (added.0.to_owned(), added.1));
            self.added.push(Added { provider, handle, id, changed_to: None });
        }
    }

    /// Changes one of the rows that `endpoint` was told of.
    pub(super) async fn change(&mut self, sandbox: &RunningCommand, random: &mut Random, endpoint: &Endpoint) {
        let known_ids = endpoint.new_rows();
        let known: Vec<usize> = self
            .added
            .iter()
            .enumerate()
            .filter(|(_, row)| known_ids.contains(&row.id))
            .map(|(index, _)| index)
            .collect();
        if known.is_empty() {
            return;
        }
        self.count += 1;
        let cents = self.count + 1_000;
        let row = &mut self.added[known[random.below(known.len())]];
        let (path, change, shown) = match row.provider.as_str() {
            "fiskil" => ("transactions", json!({"amount": text_of(cents)}), ("amount", json!(cents))),
            "akahu" => ("transactions", json!({"amount": decimal(cents)}), ("amount", json!(cents))),
            // The price is no part of a trade's id.
            _ => ("trades", json!({"price": cents}), ("price", json!(cents.to_string()))),
        };
        let path = format!("{path}/{}", row.handle);
        control(sandbox, &row.provider, Method::PATCH, &path, change).await;
        row.changed_to = Some(shown);
    }

    /// Every row was announced, each in one event only, and every change was told. `fingerprints`: what is remembered.
    pub(super) fn assert_announced(&self, endpoint: &Endpoint, fingerprints: u64) {
        let accepted = endpoint.accepted();
        // What was accepted more than once is one event.
        let events: BTreeMap<&str, &Value> = accepted.iter().map(|event| (text(event, "id"), event)).collect();
        let announced: u64 = events.values().map(|event| number(&event["metadata"], "new_count")).sum();
        assert_eq!(announced, fingerprints, "as many rows were announced as are remembered");

        let mut as_new: BTreeMap<(&str, &str), BTreeSet<(&str, &str)>> = BTreeMap::new();
        let mut as_updated: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for event in &accepted {
            let (id, run) = (text(event, "id"), text(&event["metadata"], "sync_run_id"));
            for row in event["data"]["new"].as_array().unwrap() {
                as_new.entry((text(row, "account_id"), text(row, "id"))).or_default().insert((id, run));
            }
            for row in event["data"]["updated"].as_array().unwrap() {
                as_updated.entry(text(row, "id")).or_default().push(row);
            }
        }
        let added_ids: BTreeSet<&str> = self.added.iter().map(|row| row.id.as_str()).collect();
        for ((_, row), sightings) in &as_new {
            // Trades of the simulated world that are equal in all that their id is made of are several rows.
            let runs: BTreeSet<&str> = sightings.iter().map(|(_, run)| *run).collect();
            let is_trade = events[sightings.first().unwrap().0]["type"] == "trades.synced";
            let once = if is_trade && !added_ids.contains(row) { runs.len() } else { sightings.len() };
            assert_eq!(once, 1, "{row}: {sightings:?}");
        }
        let new_ids: BTreeSet<&str> = as_new.keys().map(|(_, row)| *row).collect();
        for row in &self.added {
            assert!(new_ids.contains(row.id.as_str()), "{} of {} was never announced", row.id, row.provider);
            let updated = as_updated.remove(row.id.as_str());
            match (&row.changed_to, updated) {
                (None, updated) => assert_eq!(updated, None, "{} did not change", row.id),
                (Some((name, value)), updated) => {
                    let is_announced = updated.is_some_and(|all| all.iter().any(|row| row[*name] == *value));
                    assert!(is_announced, "{} of {}: {name} {value} was never told", row.id, row.provider);
                }
            }
        }
        assert_eq!(as_updated.keys().collect::<Vec<_>>(), Vec::<&&str>::new(), "they did not change");
    }

    /// How many were added, and how many of them were changed.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.added.len(), self.added.iter().filter(|row| row.changed_to.is_some()).count())
    }
}

/// `10.01`, as text.
fn text_of(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// `10.01`, as a number.
fn decimal(cents: u64) -> Value {
    serde_json::from_str(&text_of(cents)).unwrap()
}

/// The eight parts of which our id of a trade is made.
fn trade_id(row: &Value) -> String {
    format!(
        "{}-{}-{}-{}-{}-{}-{}-{}",
        text(row, "trade_date"),
        text(&row["symbol"], "symbol"),
        text(row, "type"),
        row["amount"],
        row["units"],
        text(row, "settlement_date"),
        row["fee"],
        text(row, "description")
    )
}

/// A call of the control interface of a simulated provider.
pub(super) async fn control(
    sandbox: &RunningCommand,
    provider: &str,
    method: Method,
    path: &str,
    body: Value,
) -> Value {
    let base: Url = text(&sandbox.json()[provider], "baseUrl").parse().unwrap();
    let url = base.join(&format!("/__control/{path}")).unwrap();
    let answer = client().request(method, url).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
}
