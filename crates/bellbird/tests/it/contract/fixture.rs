//! What a test of a promise needs: a simulated provider of its own, an adapter for it, and helpers
//! for both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::date::day_of;
use bellbird_domain::{
    Account, AccountId, AccountType, Bound, ConnectionId, Currency, DateFilter, DateRange,
    TradeTime, UserId,
};
use bellbird_providers::http::ClientSettings;
use bellbird_providers::registry::ProviderSettings;
use bellbird_providers::{
    BalancesQuery, CallContext, Cause, ConsentStatus, Cursor, Error, Kind, PageRequest, Provider,
    Registry, TradeQuery, TransactionQuery,
};
use bellbird_sandbox::{Bank, Sandbox};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::harness::NOW;
use crate::support::provider_spec::ProviderSpec;

pub(super) struct Fixture {
    pub(super) spec: &'static ProviderSpec,
    pub(super) provider: Arc<dyn Provider>,
    sandbox: Sandbox,
    settings: ProviderSettings,
}

/// A connection, by the credentials that discovery returned.
pub(super) struct Link {
    pub(super) id: String,
    pub(super) consent_status: ConsentStatus,
    pub(super) consent_expires_at: Option<Timestamp>,
    pub(super) credentials: SecretString,
    /// The members of the credentials.
    pub(super) members: Value,
}

/// Which rows to read.
pub(super) struct ReadRequest<'a> {
    pub(super) credentials: &'a SecretString,
    /// Exactly one for a brokerage.
    pub(super) accounts: &'a [Account],
    pub(super) interval: DateRange,
    pub(super) zone: TimeZone,
    /// Rows of a page, if the provider lets the client choose.
    pub(super) size: u32,
}

impl<'a> ReadRequest<'a> {
    /// All rows, in pages of this size.
    pub(super) fn all(credentials: &'a SecretString, accounts: &'a [Account], size: u32) -> Self {
        let bound = |day: &str| Bound::Day(day.parse().expect("a day"));
        let interval = DateRange {
            from: bound("2000-01-01"),
            to: bound("2030-01-01"),
        };
        Self {
            credentials,
            accounts,
            interval,
            zone: TimeZone::UTC,
            size,
        }
    }
}

/// A transaction or a trade, without its amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) account: AccountId,
    time: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Posted {
        instant: Timestamp,
        day: Option<Date>,
    },
    Traded(TradeTime),
}

impl Row {
    /// The time by which rows are sorted.
    pub(super) fn instant(&self) -> Timestamp {
        match self.time {
            Time::Posted { instant, .. } => instant,
            Time::Traded(time) => time.instant(),
        }
    }

    /// Whether the row is in the interval, by the rule that callers of an adapter use.
    pub(super) fn is_inside(&self, interval: &DateRange, zone: &TimeZone) -> bool {
        match self.time {
            Time::Posted { instant, day } => {
                interval.contains(instant, || day.unwrap_or_else(|| day_of(instant, zone)))
            }
            Time::Traded(time) => span(interval).contains(time, zone),
        }
    }
}

fn span(interval: &DateRange) -> DateFilter {
    DateFilter {
        from: Some(interval.from),
        to: Some(interval.to),
    }
}

/// A read with credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Discover,
    ConsentStatus,
    Accounts,
    Balances,
    Rows,
    Holdings,
}

pub(super) fn now() -> Timestamp {
    NOW.parse().expect("an instant")
}

/// A call context with the deadline of an API request.
pub(super) fn call_context() -> CallContext {
    CallContext::new(
        Instant::now() + Duration::from_secs(25),
        now(),
        Cause::Schedule,
    )
}

impl Fixture {
    pub(super) async fn start(spec: &'static ProviderSpec) -> Self {
        let options = bellbird_sandbox::Options {
            rows: 10,
            now: Some(now()),
            ..Default::default()
        };
        let sandbox = bellbird_sandbox::start(options)
            .await
            .expect("the sandbox starts");
        let settings =
            bellbird::sandbox_beside::sandbox_settings(sandbox.description()).expect("settings");
        let provider = open(&settings, spec.name, Duration::from_secs(20));
        Self {
            spec,
            provider,
            sandbox,
            settings,
        }
    }

    pub(super) fn bank(&self) -> &Bank {
        self.sandbox.bank(self.spec.name)
    }

    /// Another adapter, already authenticated, so that every later call belongs to the operation
    /// under test.
    pub(super) async fn adapter(&self, call_timeout: Duration) -> Arc<dyn Provider> {
        let provider = open(&self.settings, self.spec.name, call_timeout);
        provider
            .check(&call_context())
            .await
            .expect("the provider accepts the credentials");
        self.bank().reset_calls();
        provider
    }

    /// Advances the provider's clock past changes that take a moment.
    pub(super) fn advance_clock(&self) {
        self.bank().advance_clock(SignedDuration::from_secs(5));
    }

    /// Calls since they were reset last, by route, without those that only authenticate.
    pub(super) fn calls(&self) -> BTreeMap<String, u64> {
        let mut calls = self.bank().calls();
        calls.retain(|path, _| self.spec.authentication != Some(path.as_str()));
        calls
    }

    /// The ready-made credentials of the sandbox, as an operator imports them.
    pub(super) fn ready_made(&self) -> Vec<Value> {
        let all_credentials =
            serde_json::to_value(&self.sandbox.description().credentials).expect("JSON");
        let all_credentials = all_credentials.as_array().expect("an array").iter();
        let all_credentials: Vec<Value> = all_credentials
            .filter(|credentials| credentials["provider"] == self.spec.name)
            .cloned()
            .collect();
        assert!(
            all_credentials.len() >= 2,
            "the sandbox has at least two connections"
        );
        all_credentials
    }

    /// Credentials without the member that names one connection.
    pub(super) fn without_connection(&self, credentials: &Value) -> Value {
        let mut whole = credentials.clone();
        whole
            .as_object_mut()
            .expect("an object")
            .remove(self.spec.connection)
            .expect("one connection");
        whole
    }

    /// The connections that credentials cover.
    pub(super) async fn discover(&self, credentials: &Value) -> Vec<Link> {
        let found = self
            .provider
            .discover(
                &call_context(),
                &SecretString::from(credentials.to_string()),
            )
            .await
            .expect("connections");
        let link = |found: bellbird_providers::FoundConnection| Link {
            id: found.provider_connection_id,
            consent_status: found.consent_status,
            consent_expires_at: found.consent_expires_at,
            members: serde_json::from_str(found.credentials.expose_secret()).expect("JSON"),
            credentials: found.credentials,
        };
        found.into_iter().map(link).collect()
    }

    /// The connections of the ready-made credentials. The first two have one user, the last has
    /// another.
    pub(super) async fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for credentials in self.ready_made() {
            links.extend(self.discover(&credentials).await);
        }
        links.retain(|link| link.consent_status == ConsentStatus::Active);
        let user = |at: usize| &links[at].members[self.spec.user];
        assert!(
            user(0) == user(1) && user(0) != user(links.len() - 1),
            "two connections of one user, and one of another"
        );
        links
    }

    /// A new account of a connection, without rows.
    pub(super) fn add_account(&self, link: &Link, members: Value) -> Account {
        let spec = self.spec;
        self.account(&spec.add_account(self.bank(), &link.members, members))
    }

    /// An account as the database would know it.
    pub(super) fn account(&self, provider_account_id: &str) -> Account {
        Account {
            id: AccountId::new(),
            user_id: UserId::new(),
            connection_id: ConnectionId::new(),
            provider: self.spec.name.to_owned(),
            provider_account_id: provider_account_id.to_owned(),
            name: "An account".to_owned(),
            account_type: AccountType::Other,
            institution_name: None,
            number: None,
            currency: Currency::UNKNOWN,
        }
    }

    /// Adds a row at each of these times. Its text is the time and its number.
    pub(super) fn add_rows(&self, account: &Account, moments: &[Timestamp]) {
        let id = &account.provider_account_id;
        for (number, at) in moments.iter().enumerate() {
            let text = format!("{at} {number}");
            self.spec.add_row(self.bank(), id, *at, &text);
        }
    }

    /// A new account with `rows` rows, an hour apart.
    pub(super) fn account_with_rows(&self, link: &Link, rows: i64) -> Account {
        let account = self.add_account(link, json!({}));
        let hours = (1..=rows).map(|hour| now() - SignedDuration::from_hours(hour));
        self.add_rows(&account, &hours.collect::<Vec<_>>());
        account
    }

    /// The reads that this provider supports.
    pub(super) fn operations(&self) -> Vec<Operation> {
        let mut operations = vec![
            Operation::Discover,
            Operation::ConsentStatus,
            Operation::Accounts,
            Operation::Balances,
            Operation::Rows,
        ];
        if matches!(self.provider.kind(), Kind::Brokerage(_)) {
            operations.push(Operation::Holdings);
        }
        operations
    }
}

fn open(settings: &ProviderSettings, name: &str, call_timeout: Duration) -> Arc<dyn Provider> {
    let registry = Registry::new(
        settings,
        ClientSettings {
            call_timeout,
            user_calls_per_minute: 0,
            store: None,
        },
    )
    .expect("the settings are valid");
    registry.find(name).expect("the settings are complete")
}

/// Reads one page into `rows`, which may get rows even if the read fails. Returns the cursor of the
/// next page.
pub(super) async fn page(
    provider: &dyn Provider,
    call: &CallContext,
    request: &ReadRequest<'_>,
    cursor: Option<&Cursor>,
    rows: &mut Vec<Row>,
) -> Result<Option<Cursor>, Error> {
    let page = PageRequest {
        cursor,
        rows: request.size,
    };
    match provider.kind() {
        Kind::Banking(bank) => {
            let query = TransactionQuery {
                accounts: request.accounts,
                one_account: request.accounts.len() == 1,
                dates: &request.interval,
                zone: &request.zone,
            };
            let mut push = |row: bellbird_domain::Transaction<'_>| {
                let time = Time::Posted {
                    instant: row.instant,
                    day: row.day,
                };
                rows.push(Row {
                    text: row.description.into_owned(),
                    account: row.account.id,
                    time,
                });
            };
            bank.transactions(call, request.credentials, &query, page, &mut push)
                .await
        }
        Kind::Brokerage(broker) => {
            let [account] = request.accounts else {
                panic!("a brokerage request has one account")
            };
            let query = TradeQuery {
                account,
                dates: &span(&request.interval),
                zone: &request.zone,
            };
            let mut push = |_, row: bellbird_domain::Trade<'_>| {
                let text = row.description.unwrap_or_default().into_owned();
                rows.push(Row {
                    text,
                    account: row.account.id,
                    time: Time::Traded(row.time),
                });
            };
            let page = broker.trades(call, request.credentials, &query, page, &mut push);
            Ok(page.await?.next)
        }
    }
}

/// Reads all pages, from the newest row to the provider's last one.
pub(super) async fn walk(
    provider: &dyn Provider,
    request: &ReadRequest<'_>,
) -> Result<Vec<Row>, Error> {
    let (mut rows, mut position) = (Vec::new(), None);
    loop {
        position = page(
            provider,
            &call_context(),
            request,
            position.as_ref(),
            &mut rows,
        )
        .await?;
        if position.is_none() {
            return Ok(rows);
        }
    }
}

/// Runs a read. Asserts that a failed read gives no row.
pub(super) async fn read(
    provider: &dyn Provider,
    call: &CallContext,
    request: &ReadRequest<'_>,
    operation: Operation,
) -> Result<(), Error> {
    match operation {
        Operation::Discover => provider
            .discover(call, request.credentials)
            .await
            .map(|_| ()),
        Operation::ConsentStatus => provider
            .consent(call, request.credentials)
            .await
            .map(|_| ()),
        Operation::Accounts => provider
            .accounts(call, request.credentials)
            .await
            .map(|_| ()),
        Operation::Balances => {
            let query = BalancesQuery {
                credentials: request.credentials,
                accounts: request.accounts,
            };
            let mut answer = provider.balances(call, &[query]).await;
            assert_eq!(
                (answer.len(), answer[0].len()),
                (1, request.accounts.len()),
                "one entry for each account"
            );
            answer
                .remove(0)
                .into_iter()
                .collect::<Result<Vec<_>, Error>>()
                .map(|_| ())
        }
        Operation::Rows => {
            let mut rows = Vec::new();
            let outcome = page(provider, call, request, None, &mut rows)
                .await
                .map(|_| ());
            assert!(
                outcome.is_ok() || rows.is_empty(),
                "rows of a page that failed"
            );
            outcome
        }
        Operation::Holdings => {
            let Kind::Brokerage(broker) = provider.kind() else {
                panic!("banks have no holdings")
            };
            let mut rows = 0;
            let outcome = broker
                .holdings(call, request.credentials, &request.accounts[0], &mut |_| {
                    rows += 1;
                })
                .await;
            assert!(
                outcome.is_ok() || rows == 0,
                "holdings of a call that failed"
            );
            outcome
        }
    }
}
