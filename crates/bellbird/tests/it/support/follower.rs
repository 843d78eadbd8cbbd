//! A client that keeps a copy of a connection's rows by following its changes, as the documentation
//! says.

use std::collections::{BTreeMap, BTreeSet};

use bellbird_domain::Connection;
use serde_json::Value;

use crate::support::harness::{App, Person, Response};
use crate::support::process::text;
use crate::support::provider_spec::spec;

/// Changes in one go. A faulty service could always have more.
const PAGES_MAX: usize = 2_000;

#[derive(Clone)]
pub(crate) struct Follower {
    pub(crate) api: String,
    pub(crate) key: String,
    /// `transactions` or `trades`.
    pub(crate) list: String,
    /// The connection, and the account if it is one.
    pub(crate) filter: String,
    /// Further parameters, such as `&limit=2`.
    pub(crate) more: String,
    pub(crate) cursor: Option<String>,
    pub(crate) watched_from: String,
    /// By key.
    pub(crate) rows: BTreeMap<String, Value>,
    /// The keys that a first copy has so far.
    pub(crate) came: Option<BTreeSet<String>>,
}

impl Follower {
    pub(crate) fn new(app: &App, person: &Person, connection: &Connection) -> Self {
        Self::at(
            &app.url,
            &person.key,
            spec(&connection.provider).list,
            &connection.id.to_string(),
        )
    }

    pub(crate) fn at(api: &str, key: &str, list: &str, connection: &str) -> Self {
        let (api, key, list) = (api.to_owned(), key.to_owned(), list.to_owned());
        let (filter, more) = (format!("connectionId={connection}"), String::new());
        let (cursor, watched_from, rows) = (None, String::new(), BTreeMap::new());
        Self {
            api,
            key,
            list,
            filter,
            more,
            cursor,
            watched_from,
            rows,
            came: Some(BTreeSet::new()),
        }
    }

    /// The same copy, with further parameters from now on.
    pub(crate) fn with(&self, more: &str) -> Self {
        Self {
            more: more.to_owned(),
            ..self.clone()
        }
    }

    /// The same copy, as if it had come to this cursor.
    pub(crate) fn with_cursor(&self, cursor: &str) -> Self {
        Self {
            cursor: Some(cursor.to_owned()),
            ..self.clone()
        }
    }

    pub(crate) fn of_account(&self, account: &str) -> Self {
        Self {
            filter: format!("{}&accountId={account}", self.filter),
            ..self.clone()
        }
    }

    pub(crate) fn url(&self) -> String {
        let cursor = self
            .cursor
            .as_ref()
            .map(|cursor| format!("&cursor={cursor}"))
            .unwrap_or_default();
        format!(
            "{}/v1/{}/changes?{}{}{cursor}",
            self.api, self.list, self.filter, self.more
        )
    }

    /// Applies a response. Returns whether to ask again at once.
    pub(crate) fn apply(&mut self, status: u16, body: &Value) -> bool {
        if status == 410 {
            assert_eq!(body["error"]["code"], "cursor_expired", "{body}");
            (self.cursor, self.came) = (None, Some(BTreeSet::new()));
            return true;
        }
        assert_eq!(status, 200, "{body}");
        for entry in body["data"].as_array().unwrap() {
            let key = text(entry, "key").to_owned();
            if entry["op"] == "remove" {
                self.rows.remove(&key);
                continue;
            }
            assert_eq!(entry["op"], "upsert", "{entry}");
            self.came.as_mut().map(|came| came.insert(key.clone()));
            self.rows
                .insert(key, entry[self.list.trim_end_matches('s')].clone());
        }
        self.cursor = Some(text(body, "cursor").to_owned());
        self.watched_from = text(body, "watchedFrom").to_owned();
        if body["hasMore"] == true {
            return true;
        }
        if let Some(came) = self.came.take() {
            self.rows
                .retain(|key, row| came.contains(key) || day(row) < self.watched_from.as_str());
        }
        false
    }

    /// A complete first copy.
    pub(crate) async fn copied(app: &App, person: &Person, connection: &Connection) -> Self {
        let mut copy = Self::new(app, person, connection);
        copy.follow(app).await;
        copy
    }

    pub(crate) async fn ask(&self, app: &App) -> Response {
        app.send(app.http.get(self.url()).bearer_auth(&self.key))
            .await
    }

    /// Reads and applies one page. Returns whether to ask again at once, and its entries.
    pub(crate) async fn next_page(&mut self, app: &App) -> (bool, Vec<Value>) {
        let answer = self.ask(app).await;
        let body = answer.json();
        let has_more = self.apply(answer.status.as_u16(), &body);
        (
            has_more,
            body["data"].as_array().cloned().unwrap_or_default(),
        )
    }

    /// Reads and applies all pages. Returns their entries.
    pub(crate) async fn follow(&mut self, app: &App) -> Vec<Value> {
        let mut entries = Vec::new();
        for _ in 0..PAGES_MAX {
            let (has_more, page) = self.next_page(app).await;
            entries.extend(page);
            if !has_more {
                return entries;
            }
        }
        panic!("no end after {PAGES_MAX} pages");
    }

    /// Reads and applies all pages, and asserts what they have.
    pub(crate) async fn assert_finds(&mut self, app: &App, expected: &[Change<'_>], when: &str) {
        let entries = self.follow(app).await;
        assert_eq!(changes(&entries), expected, "{when}");
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.rows.keys().cloned().collect()
    }

    /// The rows of watched days, without ids.
    pub(crate) fn watched(&self, rows: impl IntoIterator<Item = Value>) -> Vec<String> {
        let is_watched = |row: &Value| match row["date"].as_str() {
            Some(date) => date >= self.watched_from.as_str(),
            // A time in UTC may be of the next day for the user.
            None => day(row) > self.watched_from.as_str(),
        };
        let without_id = |mut row: Value| {
            row.as_object_mut().unwrap().remove("id");
            row.to_string()
        };
        let mut rows: Vec<String> = rows
            .into_iter()
            .filter(is_watched)
            .map(without_id)
            .collect();
        rows.sort_unstable();
        rows
    }

    /// Asserts that the copy equals the provider's list, which `/v1` shows.
    pub(crate) async fn assert_equal(&self, app: &App, when: &str) {
        let listed = self.listed(app, &self.watched_from).await;
        assert_eq!(
            self.watched(self.rows.values().cloned()),
            self.watched(listed),
            "{when}"
        );
    }

    /// The provider's rows from a day on.
    pub(crate) async fn listed(&self, app: &App, from: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        loop {
            let path = format!(
                "/v1/{}?{}&from={from}&limit=500&offset={}",
                self.list,
                self.filter,
                rows.len()
            );
            let answer = app.get_as(&self.key, &path).await;
            rows.extend(answer.data());
            if answer.json()["pagination"]["hasMore"] == false {
                return rows;
            }
        }
    }
}

/// The day of a row.
fn day(row: &Value) -> &str {
    row["date"]
        .as_str()
        .unwrap_or_else(|| &text(row, "tradeDate")[..10])
}

/// What an entry says of its row: the kind of change, whether the row is new, and its description.
pub(crate) type Change<'e> = (&'e str, Option<bool>, &'e str);

pub(crate) const REMOVAL: Change<'static> = ("remove", None, "");

pub(crate) fn added(description: &str) -> Change<'_> {
    ("upsert", Some(true), description)
}

pub(crate) fn changed(description: &str) -> Change<'_> {
    ("upsert", Some(false), description)
}

pub(crate) fn changes(entries: &[Value]) -> Vec<Change<'_>> {
    entries
        .iter()
        .map(|entry| {
            let row = entry.get("transaction").or(entry.get("trade"));
            let description = row
                .and_then(|row| row["description"].as_str())
                .unwrap_or_default();
            (text(entry, "op"), entry["isNew"].as_bool(), description)
        })
        .collect()
}
