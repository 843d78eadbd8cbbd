//! Where promises are tried: a pretended provider of its own for every test, an adapter that leads to it, and what tests
//! ask of both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::date::day_of;
use bellbird_domain::{
    Account, AccountId, AccountType, Bound, ConnectionId, Currency, Interval, Span, TradeTime, UserId,
};
use bellbird_providers::registry::ProviderSettings;
use bellbird_providers::{
    BalancesQuery, Call, Cursor, Error, Kind, PageRequest, Provider, Registry, Standing, TradeQuery, TransactionQuery,
};
use bellbird_sandbox::Sandbox;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::subjects::{Control, Subject};
use crate::harness::NOW;

/// A pretended provider and an adapter for it.
pub(super) struct Stage {
    pub(super) subject: Subject,
    pub(super) provider: Arc<dyn Provider>,
    sandbox: Sandbox,
    settings: ProviderSettings,
    http: reqwest::Client,
    control: Url,
}

/// A connection, by the grant that finding it gave.
pub(super) struct Link {
    pub(super) id: String,
    pub(super) standing: Standing,
    pub(super) grant: SecretString,
    /// The members of the grant.
    pub(super) members: Value,
}

/// Which rows are asked for.
pub(super) struct Asked<'a> {
    pub(super) grant: &'a SecretString,
    /// One for brokers.
    pub(super) accounts: &'a [Account],
    pub(super) interval: Interval,
    pub(super) zone: TimeZone,
    /// Rows of a page, where the provider lets us choose.
    pub(super) size: u32,
}

impl<'a> Asked<'a> {
    /// All rows, in pages of this size.
    pub(super) fn all(grant: &'a SecretString, accounts: &'a [Account], size: u32) -> Self {
        let bound = |day: &str| Bound::Day(day.parse().expect("a day"));
        let interval = Interval { from: bound("2000-01-01"), to: bound("2030-01-01") };
        Self { grant, accounts, interval, zone: TimeZone::UTC, size }
    }
}

/// Where a page begins, in either way of counting.
pub(super) enum Place {
    Cursor(Cursor),
    Offset(u64),
}

/// A row of either kind, without its amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) account: AccountId,
    time: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Posted { instant: Timestamp, day: Option<Date> },
    Traded(TradeTime),
}

impl Row {
    /// Its place in the order.
    pub(super) fn instant(&self) -> Timestamp {
        match self.time {
            Time::Posted { instant, .. } => instant,
            Time::Traded(time) => time.instant(),
        }
    }

    /// Whether it belongs, as the caller of an adapter decides it.
    pub(super) fn is_inside(&self, interval: &Interval, zone: &TimeZone) -> bool {
        match self.time {
            Time::Posted { instant, day } => {
                interval.contains(instant, || day.unwrap_or_else(|| day_of(instant, zone)))
            }
            Time::Traded(time) => span(interval).contains(time, zone),
        }
    }
}

fn span(interval: &Interval) -> Span {
    Span { from: Some(interval.from), to: Some(interval.to) }
}

/// What can be read with a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Discover,
    Standing,
    Accounts,
    Balances,
    Rows,
    Holdings,
}

/// The present moment.
pub(super) fn now() -> Timestamp {
    NOW.parse().expect("an instant")
}

/// As much time as a request has.
pub(super) fn call() -> Call {
    Call::new(Instant::now() + Duration::from_secs(25), now())
}

impl Stage {
    pub(super) async fn start(subject: Subject) -> Self {
        let options = bellbird_sandbox::Options { rows: 10, now: Some(now()), ..Default::default() };
        let sandbox = bellbird_sandbox::start(options).await.expect("the sandbox starts");
        let settings = bellbird::wiring::sandbox_settings(sandbox.description()).expect("settings");
        let description = serde_json::to_value(sandbox.description()).expect("JSON");
        let base: Url = description[subject.name]["baseUrl"].as_str().expect("an address").parse().expect("a URL");
        let control = base.join("/__control/").expect("a URL");
        let provider = open(&settings, subject.name, Duration::from_secs(20));
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { subject, provider, sandbox, settings, http, control }
    }

    /// Another adapter, one that has been let in already, so that what it does next is only what it is asked for.
    pub(super) async fn adapter(&self, call_timeout: Duration) -> Arc<dyn Provider> {
        let provider = open(&self.settings, self.subject.name, call_timeout);
        provider.check(&call()).await.expect("the provider takes our credentials");
        self.forget_calls().await;
        provider
    }

    pub(super) async fn control(&self, control: Control) -> Value {
        let Control { method, path, body } = control;
        let url = self.control.join(path.trim_start_matches('/')).expect("a URL");
        let response = self.http.request(method, url).body(body).send().await.expect("the sandbox answers");
        let (status, text) = (response.status(), response.text().await.expect("a body"));
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    async fn plain(&self, method: &str, path: &str, body: Value) -> Value {
        let method = method.parse().expect("a method");
        self.control(Control { method, path: path.to_owned(), body: body.to_string() }).await
    }

    pub(super) async fn fault(&self, fault: Value) {
        self.plain("POST", "faults", fault).await;
    }

    pub(super) async fn clear_faults(&self) {
        self.plain("DELETE", "faults", json!({})).await;
    }

    /// Every `every`th page of rows is empty.
    pub(super) async fn empty_pages(&self, every: u64) {
        self.plain("POST", "pages", json!({"emptyEvery": every})).await;
    }

    /// What takes a moment at the provider has happened.
    pub(super) async fn a_moment_later(&self) {
        self.plain("POST", "clock", json!({"advanceSeconds": 5})).await;
    }

    pub(super) async fn forget_calls(&self) {
        self.plain("DELETE", "calls", json!({})).await;
    }

    /// Calls since the last [`Stage::forget_calls`] by route, those that only let us in apart.
    pub(super) async fn calls(&self) -> BTreeMap<String, u64> {
        let calls = self.plain("GET", "calls", json!({})).await;
        let calls = calls["calls"].as_array().expect("calls").iter();
        let counted = calls
            .map(|call| (call["path"].as_str().expect("a path").to_owned(), call["count"].as_u64().expect("a count")));
        counted.filter(|(path, _)| self.subject.authentication != Some(path.as_str())).collect()
    }

    /// The ready-made grants, as a person would give them.
    pub(super) fn given(&self) -> Vec<Value> {
        let grants = serde_json::to_value(&self.sandbox.description().grants).expect("JSON");
        let grants = grants.as_array().expect("an array").iter();
        let grants: Vec<Value> = grants.filter(|grant| grant["provider"] == self.subject.name).cloned().collect();
        assert!(grants.len() >= 2, "the sandbox has two connections at least");
        grants
    }

    /// A grant without the member that names one connection.
    pub(super) fn whole(&self, grant: &Value) -> Value {
        let mut whole = grant.clone();
        whole.as_object_mut().expect("an object").remove(self.subject.connection).expect("one connection");
        whole
    }

    /// What a grant covers.
    pub(super) async fn discover(&self, grant: &Value) -> Vec<Link> {
        let found = self.provider.discover(&call(), &SecretString::from(grant.to_string())).await.expect("found");
        let link = |found: bellbird_providers::FoundConnection| Link {
            id: found.provider_connection_id,
            standing: found.standing,
            members: serde_json::from_str(found.grant.expose_secret()).expect("JSON"),
            grant: found.grant,
        };
        found.into_iter().map(link).collect()
    }

    /// The connections of the ready-made grants. The first two have one user, the last has another.
    pub(super) async fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for grant in self.given() {
            links.extend(self.discover(&grant).await);
        }
        links.retain(|link| link.standing == Standing::Active);
        let user = |at: usize| &links[at].members[self.subject.user];
        assert!(user(0) == user(1) && user(0) != user(links.len() - 1), "the connections that promises need");
        links
    }

    /// A new account of a connection, without rows.
    pub(super) async fn add_account(&self, link: &Link, members: Value) -> Account {
        let added = self.control((self.subject.add_account)(&link.members, members)).await;
        self.account(added[self.subject.account_id].as_str().expect("an id"))
    }

    /// An account as the database would know it.
    pub(super) fn account(&self, provider_account_id: &str) -> Account {
        Account {
            id: AccountId::new(),
            user_id: UserId::new(),
            connection_id: ConnectionId::new(),
            provider: self.subject.name.to_owned(),
            provider_account_id: provider_account_id.to_owned(),
            name: "An account".to_owned(),
            account_type: AccountType::Other,
            institution_name: None,
            number: None,
            currency: Currency::UNKNOWN,
        }
    }

    /// Adds a row at each of these moments; its text is the moment and its number among them.
    pub(super) async fn add_rows(&self, account: &Account, moments: &[Timestamp]) {
        for (number, at) in moments.iter().enumerate() {
            let text = format!("{at} {number}");
            self.control((self.subject.add_row)(&account.provider_account_id, *at, &text)).await;
        }
    }

    /// A new account with so many rows, an hour apart.
    pub(super) async fn account_with_rows(&self, link: &Link, rows: i64) -> Account {
        let account = self.add_account(link, json!({})).await;
        let hours = (1..=rows).map(|hour| now() - SignedDuration::from_hours(hour));
        self.add_rows(&account, &hours.collect::<Vec<_>>()).await;
        account
    }

    /// What can be read of this provider with a grant.
    pub(super) fn whats(&self) -> Vec<What> {
        let mut whats = vec![What::Discover, What::Standing, What::Accounts, What::Balances, What::Rows];
        if matches!(self.provider.kind(), Kind::Brokerage(_)) {
            whats.push(What::Holdings);
        }
        whats
    }
}

fn open(settings: &ProviderSettings, name: &str, call_timeout: Duration) -> Arc<dyn Provider> {
    let registry = Registry::new(settings, call_timeout).expect("the settings are good");
    Arc::clone(registry.find(name).expect("the settings are enough"))
}

/// One page; the rows are added to `rows` also when it fails. Returns where the next one begins.
pub(super) async fn page(
    provider: &dyn Provider,
    call: &Call,
    asked: &Asked<'_>,
    place: Option<&Place>,
    rows: &mut Vec<Row>,
) -> Result<Option<Place>, Error> {
    match provider.kind() {
        Kind::Banking(bank) => {
            let query = TransactionQuery {
                accounts: asked.accounts,
                one_account: asked.accounts.len() == 1,
                interval: &asked.interval,
                zone: &asked.zone,
            };
            let cursor = place.map(|place| match place {
                Place::Cursor(cursor) => cursor,
                Place::Offset(_) => panic!("banks have cursors"),
            });
            let page = PageRequest { cursor, rows: asked.size };
            let mut take = |row: bellbird_domain::Transaction<'_>| {
                let time = Time::Posted { instant: row.instant, day: row.day };
                rows.push(Row { text: row.description.into_owned(), account: row.account.id, time });
            };
            Ok(bank.transactions(call, asked.grant, &query, page, &mut take).await?.map(Place::Cursor))
        }
        Kind::Brokerage(broker) => {
            let [account] = asked.accounts else { panic!("brokers are asked for one account") };
            let query = TradeQuery { account, span: &span(&asked.interval), zone: &asked.zone };
            let offset = match place {
                None => 0,
                Some(Place::Offset(offset)) => *offset,
                Some(Place::Cursor(_)) => panic!("brokers have offsets"),
            };
            let mut take = |_, row: bellbird_domain::Trade<'_>| {
                let text = row.description.unwrap_or_default().into_owned();
                rows.push(Row { text, account: row.account.id, time: Time::Traded(row.time) });
            };
            let page = broker.trades(call, asked.grant, &query, offset, asked.size, &mut take).await?;
            let end = offset + page.rows;
            Ok((end < page.total).then_some(Place::Offset(end)))
        }
    }
}

/// All pages, from the newest row to the provider's end.
pub(super) async fn walk(provider: &dyn Provider, asked: &Asked<'_>) -> Result<Vec<Row>, Error> {
    let (mut rows, mut place) = (Vec::new(), None);
    loop {
        place = page(provider, &call(), asked, place.as_ref(), &mut rows).await?;
        if place.is_none() {
            return Ok(rows);
        }
    }
}

/// Whether a read succeeds. One that fails gives no row.
pub(super) async fn read(provider: &dyn Provider, call: &Call, asked: &Asked<'_>, what: What) -> Result<(), Error> {
    match what {
        What::Discover => provider.discover(call, asked.grant).await.map(|_| ()),
        What::Standing => provider.standing(call, asked.grant).await.map(|_| ()),
        What::Accounts => provider.accounts(call, asked.grant).await.map(|_| ()),
        What::Balances => {
            let query = BalancesQuery { grant: asked.grant, accounts: asked.accounts };
            let mut answer = provider.balances(call, &[query]).await;
            assert_eq!((answer.len(), answer[0].len()), (1, asked.accounts.len()), "one entry an account");
            answer.remove(0).into_iter().collect::<Result<Vec<_>, Error>>().map(|_| ())
        }
        What::Rows => {
            let mut rows = Vec::new();
            let outcome = page(provider, call, asked, None, &mut rows).await.map(|_| ());
            assert!(outcome.is_ok() || rows.is_empty(), "rows of a page that failed");
            outcome
        }
        What::Holdings => {
            let Kind::Brokerage(broker) = provider.kind() else { panic!("banks have no holdings") };
            let mut rows = 0;
            let outcome = broker.holdings(call, asked.grant, &asked.accounts[0], &mut |_| rows += 1).await;
            assert!(outcome.is_ok() || rows == 0, "holdings of a call that failed");
            outcome
        }
    }
}
