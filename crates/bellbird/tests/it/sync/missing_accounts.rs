//! Accounts that a provider's list lacks: for one response, for hours, for weeks, and for good.

use bellbird_domain::Connection;
use bellbird_sandbox::ConsentState;
use jiff::SignedDuration;
use serde_json::json;

use crate::support::harness::{App, Person, Setup, simulated_providers};
use crate::support::receiver::Hook;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

impl App {
    /// Lets the lists of a provider leave out these accounts, and no others.
    pub(crate) fn unlist(&self, provider: &str, provider_account_ids: &[&str]) {
        let ids = provider_account_ids.iter().map(|id| (*id).to_owned());
        self.bank(provider).unlist(ids);
    }

    /// The ids that `/v1/accounts` shows.
    async fn shown_accounts(&self, person: &Person) -> Vec<String> {
        let accounts = self.all_accounts(person).await.into_iter();
        accounts.map(|account| account.id).collect()
    }

    /// The status of a read of the account's rows, and of its balance.
    async fn read_statuses(
        &self,
        person: &Person,
        connection: &Connection,
        account: &str,
    ) -> [u16; 2] {
        let rows = self
            .rows_of(connection)
            .by(person)
            .with("accountId", account);
        let balance = format!("/v1/balances?accountIds={account}");
        let balance = self.get_as(&person.key, &balance).await;
        [rows.send().await.status.as_u16(), balance.status.as_u16()]
    }

    /// Syncs a time later. Returns the descriptions of the rows that it reported as new, and
    /// asserts that there was no update.
    async fn announced_after(
        &self,
        time: SignedDuration,
        connection: &Connection,
        hook: &Hook,
    ) -> Vec<String> {
        self.advance_clock(time);
        let report = self.sync(connection).await;
        assert_eq!(report.updated_count, 0);
        let texts = self.announced_to(hook).await;
        assert_eq!(texts.len(), report.new_count);
        texts
    }
}

const NONE: [&str; 0] = [];

#[tokio::test]
async fn missing_account_is_hidden_and_returns_with_its_rows() {
    for provider in simulated_providers() {
        let (app, person, hook) = App::synced_at(provider).await;
        let connection = &person.connections[0];
        app.advance_clock(HOUR);
        let before = app.shown_accounts(&person).await;
        let missing = app.account_at(connection).await;
        let accounts = app.stored_accounts(person.user.id, connection.id).await;
        let mut accounts = accounts.iter();
        let stored = accounts.find(|account| account.provider_account_id == missing);
        let id = stored.unwrap().id.to_string();
        let announced_after =
            async |time: SignedDuration| app.announced_after(time, connection, &hook).await;
        let shown = async || app.shown_accounts(&person).await;
        let statuses = async || app.read_statuses(&person, connection, &id).await;
        let add_row = |text: &str| {
            let at = app.clock.now() - MINUTE;
            app.add_row_to(connection, &missing, text, at);
        };
        // Missing from one list, it stays.
        app.unlist(provider, &[&missing]);
        app.assert_nothing_new(connection).await;
        assert_eq!(shown().await, before, "{provider}: while it is missing");
        app.unlist(provider, &[]);
        assert_eq!(announced_after(MINUTE).await, NONE, "{provider}: known");
        assert_eq!(shown().await, before, "{provider}: after it returned");
        app.add_recent_row(connection, "BEFORE").await;
        assert_eq!(announced_after(MINUTE).await, ["BEFORE"]);

        app.unlist(provider, &[&missing]);
        add_row("WHILE MISSING");
        assert_eq!(announced_after(MINUTE).await, NONE);
        assert_eq!(announced_after(59 * MINUTE).await, NONE);
        assert_eq!(shown().await, before, "{provider}: not yet an hour");
        assert_eq!(statuses().await, [200, 200]);
        assert_eq!(announced_after(MINUTE).await, NONE);
        let mut rest = before.clone();
        rest.retain(|other| *other != id);
        assert!(!rest.is_empty(), "{provider}");
        assert_eq!(shown().await, rest, "{provider}: hidden");
        assert_eq!(statuses().await, [404, 404]);

        // Longer than syncs overlap, and than fingerprints are kept otherwise.
        for day in 1..=20 {
            if day == 10 {
                add_row("WHILE HIDDEN");
            }
            assert_eq!(announced_after(DAY).await, NONE, "{provider}: day {day}");
        }
        app.unlist(provider, &[]);
        let mut announced = announced_after(DAY).await;
        announced.sort_unstable();
        let rows = ["WHILE HIDDEN", "WHILE MISSING"];
        assert_eq!(announced, rows, "{provider}: none twice, none left out");
        assert_eq!(shown().await, before, "{provider}: the same ids");
        assert_eq!(statuses().await, [200, 200]);
        assert_eq!(announced_after(DAY).await, NONE);
    }
}

#[tokio::test]
async fn account_missing_for_thirty_days_is_deleted() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    app.sync(connection).await;
    app.advance_clock(HOUR);
    let before = app.shown_accounts(&app.olivia).await;
    let missing = app.account_at(connection).await;
    app.unlist("fiskil", &[&missing]);
    let stored = async || {
        let sql = format!("SELECT COUNT(*) FROM accounts WHERE provider_account_id = '{missing}'");
        app.query(&sql).await[0][0].clone()
    };
    for (days, expected) in [(0, "1"), (1, "1"), (28, "1"), (1, "0")] {
        app.advance_clock(days * DAY);
        app.sync(connection).await;
        assert_eq!(stored().await, expected, "after {days} more days");
    }
    app.unlist("fiskil", &[]);
    app.sync(connection).await;
    let after = app.shown_accounts(&app.olivia).await;
    assert_eq!(after.len(), before.len());
    let new = after.iter().filter(|id| !before.contains(id));
    assert_eq!(new.count(), 1, "a new id");
}

/// A repair can give accounts new ids at the provider.
#[tokio::test]
async fn repair_finds_a_hidden_account() {
    let app = App::start(Setup::default()).await;
    let (user, linked) = app.linked_user("repair@example.com", "fiskil").await;
    let connection = &linked[0];
    // None is missing before the backfill window ends.
    app.run_jobs_after(HOUR).await;
    let before = app.accounts_of(connection).await;
    let stored = app.stored_accounts(connection.user_id, connection.id).await;
    let hidden = stored
        .iter()
        .find(|account| account.number.is_some())
        .unwrap();
    app.unlist("fiskil", &[&hidden.provider_account_id]);
    for _ in 0..2 {
        app.sync(connection).await;
        app.advance_clock(HOUR);
    }
    assert_eq!(app.accounts_of(connection).await.len(), before.len() - 1);
    app.set_options("fiskil", &json!({"sameIds": false}));
    app.change_consent(connection, ConsentState::Revoked).await;
    app.reconnect(user, connection.id).await;
    assert_eq!(app.accounts_of(connection).await, before);
}
