//! `/v1` as a typed client reads it: `app.transactions(&account).from("2026-01-01").rows().await`.

use std::marker::PhantomData;

use bellbird_domain::{Connection, ConnectionId};
use jiff::Timestamp;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::harness::{App, Person, Response};
use crate::support::provider_spec::spec;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Account {
    pub(crate) id: String,
    pub(crate) connection_id: String,
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) r#type: String,
    pub(crate) institution_name: Option<String>,
    pub(crate) account_number: Option<String>,
    pub(crate) currency: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Transaction {
    pub(crate) id: String,
    pub(crate) account_id: String,
    pub(crate) account_name: String,
    pub(crate) status: String,
    pub(crate) date: String,
    pub(crate) datetime: String,
    pub(crate) description: String,
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) direction: String,
    pub(crate) category: Option<String>,
    pub(crate) merchant_name: Option<String>,
    pub(crate) merchant_category_code: Option<String>,
}

impl Transaction {
    pub(crate) fn instant(&self) -> Timestamp {
        self.datetime.parse().unwrap()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Trade {
    pub(crate) id: String,
    pub(crate) account_id: String,
    pub(crate) account_name: String,
    pub(crate) symbol: String,
    pub(crate) name: Option<String>,
    pub(crate) r#type: String,
    pub(crate) quantity: String,
    pub(crate) price: String,
    pub(crate) currency: String,
    pub(crate) total_amount: String,
    pub(crate) fees: Option<String>,
    pub(crate) trade_date: String,
    pub(crate) settlement_date: Option<String>,
    pub(crate) description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Holding {
    pub(crate) id: String,
    pub(crate) account_id: String,
    pub(crate) account_name: String,
    pub(crate) symbol: String,
    pub(crate) name: Option<String>,
    pub(crate) exchange: Option<String>,
    pub(crate) currency: String,
    pub(crate) quantity: String,
    pub(crate) average_price: Option<String>,
    pub(crate) current_price: Option<String>,
    pub(crate) market_value: Option<String>,
    pub(crate) unrealized_pnl: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Pagination {
    /// -1: unknown.
    pub(crate) total: i64,
    pub(crate) limit: u32,
    pub(crate) offset: u64,
    pub(crate) has_more: bool,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page<R> {
    #[serde(rename = "data")]
    pub(crate) rows: Vec<R>,
    pub(crate) pagination: Pagination,
}

/// A request for a list, with Olivia's key unless `by` names somebody else.
#[derive(Clone)]
pub(crate) struct Query<'a, R> {
    app: &'a App,
    key: &'a str,
    list: &'static str,
    parameters: Vec<(&'static str, String)>,
    rows: PhantomData<R>,
}

impl App {
    pub(crate) fn transactions(&self, account: &Account) -> Query<'_, Transaction> {
        Query::of_account(self, "transactions", account)
    }

    pub(crate) fn all_transactions(&self, connection: ConnectionId) -> Query<'_, Transaction> {
        Query::new(self, "transactions").with("connectionId", connection)
    }

    pub(crate) fn trades(&self, account: &Account) -> Query<'_, Trade> {
        Query::of_account(self, "trades", account)
    }

    pub(crate) fn all_trades(&self, connection: ConnectionId) -> Query<'_, Trade> {
        Query::new(self, "trades").with("connectionId", connection)
    }

    /// The rows of a connection in the list of its provider, as JSON.
    pub(crate) fn rows_of(&self, connection: &Connection) -> Query<'_, Value> {
        Query::new(self, spec(&connection.provider).list).with("connectionId", connection.id)
    }

    pub(crate) fn holdings(&self, account: &Account) -> Query<'_, Holding> {
        Query::of_account(self, "holdings", account)
    }

    pub(crate) fn all_holdings(&self, connection: ConnectionId) -> Query<'_, Holding> {
        Query::new(self, "holdings").with("connectionId", connection)
    }
}

impl<'a, R> Query<'a, R> {
    fn new(app: &'a App, list: &'static str) -> Self {
        Self {
            app,
            key: &app.olivia.key,
            list,
            parameters: Vec::new(),
            rows: PhantomData,
        }
    }

    fn of_account(app: &'a App, list: &'static str, account: &Account) -> Self {
        Self::new(app, list)
            .with("connectionId", &account.connection_id)
            .with("accountId", &account.id)
    }

    pub(crate) fn by(self, person: &'a Person) -> Self {
        self.by_key(&person.key)
    }

    pub(crate) fn by_key(self, key: &'a str) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.parameters.push((name, value.to_string()));
        self
    }

    pub(crate) fn from(self, bound: impl ToString) -> Self {
        self.with("from", bound)
    }

    pub(crate) fn to(self, bound: impl ToString) -> Self {
        self.with("to", bound)
    }

    pub(crate) fn limit(self, limit: usize) -> Self {
        self.with("limit", limit)
    }

    pub(crate) fn offset(self, offset: usize) -> Self {
        self.with("offset", offset)
    }

    /// The path with its query.
    pub(crate) fn path(&self) -> String {
        let url = format!("{}/v1/{}", self.app.url, self.list);
        let url = Url::parse_with_params(&url, &self.parameters).unwrap();
        format!("{}?{}", url.path(), url.query().unwrap_or_default())
    }

    pub(crate) async fn send(&self) -> Response {
        self.app.get_as(self.key, &self.path()).await
    }
}

impl<R: DeserializeOwned> Query<'_, R> {
    /// A page, which must be there.
    pub(crate) async fn page(&self) -> Page<R> {
        self.send().await.read()
    }

    /// All rows, read in pages of `limit`.
    pub(crate) async fn all(&self, limit: usize) -> Vec<R>
    where
        R: Clone,
    {
        let mut rows = Vec::new();
        loop {
            let page = self.clone().limit(limit).offset(rows.len()).page().await;
            let is_last = !page.pagination.has_more;
            assert!(
                is_last || page.rows.len() == limit,
                "a short page, though more follow"
            );
            rows.extend(page.rows);
            if is_last {
                assert_eq!(page.pagination.total, i64::try_from(rows.len()).unwrap());
                return rows;
            }
        }
    }

    pub(crate) async fn rows(&self) -> Vec<R> {
        self.send().await.rows()
    }
}

/// With another last character, whatever it is.
pub(crate) fn misspelled(key: &str) -> String {
    let (rest, last) = key.split_at(key.len() - 1);
    format!("{rest}{}", if last == "x" { 'y' } else { 'x' })
}
