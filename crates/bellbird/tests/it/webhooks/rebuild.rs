//! How many provider calls it costs to send bodies again, and who waits for whom.

use std::time::Duration;

use bellbird_domain::{Connection, DeliveryState, User};
use bellbird_sandbox::Fault;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::net::TcpSocket;

use super::{BODY_EXPIRED, DAY, HOUR, with_chunks_of};
use crate::support::database::execute;
use crate::support::harness::{App, Setup, eventually, simulated_providers};
use crate::support::process::text;
use crate::support::provider_spec::spec;
use crate::support::receiver::{Hook, ReceivedEvent, Receiver, Reply};
use crate::support::rows::{all_rows, descriptions};

const INCOMPLETE: &str = "rows not read: provider lists other ones than the last sync saw";
/// Past the second attempt, and before the third.
const RETRY: SignedDuration = SignedDuration::from_secs(7);

impl App {
    async fn enable_and_recover(&self, hook: &Hook) -> u64 {
        self.enable_hook(hook).await;
        let recovered = self.recover(hook, self.clock.now() - DAY).await;
        recovered.unwrap_or(0)
    }

    /// Redelivers one event. Returns the calls that read rows.
    async fn calls_to_redeliver(&self, hook: &Hook, connection: &Connection, event: &str) -> u64 {
        self.advance_clock(BODY_EXPIRED);
        self.reset_calls();
        self.redeliver(hook, event.parse().unwrap()).await.unwrap();
        self.webhooks.run_due_deliveries().await;
        self.row_calls(&connection.provider)
    }
}

/// An application whose first syncs read all rows: 10,000 at Fiskil.
async fn with_long_runs(rows: u32, chunk_rows: u32) -> App {
    let setup = Setup::with(|settings| {
        settings.sync.first = Duration::from_secs(10_000 * 86_400);
        settings.webhooks.chunk_rows = chunk_rows;
    });
    App::start(Setup { rows, ..setup }).await
}

async fn person_with_rows(app: &App, provider: &str) -> (User, Connection) {
    if provider != "fiskil" {
        let person = app.person_at(provider).await;
        return (person.user, person.connections.into_iter().next().unwrap());
    }
    let (account, _) = app.busiest().await;
    let is_busiest = |connection: &&Connection| connection.id.to_string() == account.connection_id;
    let connection = app.olivia.connections.iter().find(is_busiest);
    (app.olivia.user.clone(), connection.unwrap().clone())
}

#[tokio::test]
async fn redelivered_run_costs_at_most_twice_its_sync() {
    for provider in simulated_providers() {
        let app = with_long_runs(10_000, if provider == "fiskil" { 500 } else { 100 }).await;
        let (user, connection) = person_with_rows(&app, provider).await;
        let (from_memory, again) = (app.hook(&user).await, app.hook(&user).await);
        app.disable_hook(&again, "by command").await;
        app.reset_calls();
        let report = app.sync(&connection).await;
        let of_sync = app.row_calls(provider);
        assert!(
            provider != "fiskil" || report.new_count > 10_000,
            "{report:?}"
        );
        assert!(report.events > 3, "{provider}: {report:?}");
        let sent = app.delivered_to(&from_memory).await;
        assert_eq!(sent.len(), report.events);

        app.advance_clock(BODY_EXPIRED);
        app.reset_calls();
        assert_eq!(app.enable_and_recover(&again).await, report.events as u64);
        let received = app.delivered_to(&again).await;
        let of_recovery = app.row_calls(provider);
        assert_eq!(received.len(), sent.len());
        for (received, sent) in received.iter().zip(&sent) {
            assert_eq!(received.raw, sent.raw, "{provider}");
        }
        let calls = format!("{provider}: {of_recovery} calls, the sync had {of_sync}");
        assert!(of_recovery <= 2 * of_sync, "{calls}");

        // One event from the middle of the run: its own pages, and one at each border.
        let event = &sent[sent.len() / 2];
        let single = app.calls_to_redeliver(&again, &connection, &event.id).await;
        assert_eq!(again.drain()[0].raw, event.raw);
        let few = if spec(provider).is_brokerage() {
            app.accounts_of(&connection).await.len() as u64
        } else {
            3
        };
        assert!(
            single <= few,
            "{provider}: {single} calls, the sync had {of_sync}"
        );
    }
}

#[tokio::test]
async fn rows_that_moved_are_found_by_reading_everything() {
    let app = with_chunks_of(5).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    let at = app.clock.now() - HOUR;
    let mut ids = Vec::new();
    for text in ["ROW 0", "ROW 1", "ROW 2"] {
        ids.push(app.add_row(connection, text, at).await);
    }
    app.complete_initial_sync(connection, &hook).await;
    let first = app
        .deliveries_to(&hook)
        .await
        .remove(0)
        .event_id
        .to_string();
    let moved = (at - 20 * DAY).to_string();
    app.change_row(connection, &ids[1], json!({"posting_date_time": moved}));
    assert_eq!(app.sync(connection).await.updated_count, 1);
    app.delivered_to(&hook).await;
    app.calls_to_redeliver(&hook, connection, &first).await;
    let received = hook.drain().remove(0);
    let rows = received.rows("new").iter();
    let found: Vec<&str> = rows.map(|row| text(row, "id")).collect();
    let is_found = |id: &String| found.contains(&id.as_str());
    assert!(ids.iter().all(is_found), "{found:?}");

    // A locator that does not open is none.
    let damage = "UPDATE webhook_events SET row_locator = row_keys";
    execute(&app.shared.database, damage, "").await;
    app.calls_to_redeliver(&hook, connection, &first).await;
    assert_eq!(hook.drain()[0].body, received.body);
}

#[tokio::test]
async fn endpoints_share_reads_and_unreachable_ones_cost_none() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let mut hooks = Vec::new();
    for _ in 0..20 {
        hooks.push(app.hook(&app.olivia.user).await);
    }
    app.sync(connection).await;
    app.webhooks.run_due_deliveries().await;
    let first: Vec<_> = hooks.iter().map(|hook| hook.drain().remove(0)).collect();
    app.add_recent_row(connection, "REJECTED ONCE").await;
    app.sync(connection).await;
    for hook in &hooks {
        hook.receiver.reply_next_with([Reply::Status(500)]);
    }
    app.webhooks.run_due_deliveries().await;
    app.advance_clock(RETRY);
    app.reset_calls();
    app.webhooks.run_due_deliveries().await;
    for (hook, first) in hooks.iter().zip(&first) {
        let received = hook.drain();
        assert_eq!(received.len(), 2, "both attempts");
        assert_eq!(received[0].raw, received[1].raw);
        assert_ne!(received[0].id, first.id);
        app.assert_all_delivered(hook).await;
    }
    assert_eq!(app.transaction_calls(), 1);
    // A minute later the rows are read again.
    let event = app.last_delivery(&hooks[0]).await.event_id.to_string();
    assert!(app.calls_to_redeliver(&hooks[0], connection, &event).await > 0);

    // A user has twenty endpoints at most.
    app.delete_hook(&hooks[0]).await;
    let connection = &app.olivia.connections[1];
    let mut hook = app.hook(&app.olivia.user).await;
    app.complete_initial_sync(connection, &hook).await;
    app.add_recent_row(connection, "UNDELIVERED").await;
    app.sync(connection).await;
    // The dropped receiver closes its port, which this socket takes without listening, so that
    // nobody else gets it.
    hook.receiver = Receiver::start().await;
    let url: reqwest::Url = hook.endpoint.url.parse().unwrap();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let closed = TcpSocket::new_v4().unwrap();
    closed.set_reuseaddr(true).unwrap();
    eventually(async || closed.bind(address).is_ok()).await;
    for attempt in 1..=2 {
        app.reset_calls();
        app.webhooks.run_due_deliveries().await;
        let delivery = app.last_delivery(&hook).await;
        let last = (delivery.attempts, delivery.last_error.as_deref());
        assert_eq!(last, (attempt, Some("connection refused")));
        assert_eq!(app.fiskil().total_calls(), 0);
        app.advance_to_next_attempt(&hook).await;
    }
    assert!(app.endpoint_of(&hook).await.failing_since.is_some());
}

#[tokio::test]
async fn hanging_provider_blocks_no_retry_at_another() {
    let app = with_chunks_of(5).await;
    let hung = app.hook(&app.olivia.user).await;
    let connection = &app.olivia.connections[0];
    app.complete_initial_sync(connection, &hung).await;
    let (_, hook) = app.synced_person("akahu").await;
    hung.receiver.reply_with(Reply::Status(500));
    for number in 0..12 {
        app.add_recent_row(connection, &format!("HUNG {number}"))
            .await;
        app.sync(connection).await;
    }
    app.webhooks.run_due_deliveries().await;
    hung.drain();
    app.advance_clock(RETRY);
    app.fiskil()
        .add_fault(Fault::delay_ms(600_000).at("/v1/banking"));
    let webhooks = app.webhooks.clone();
    let hanging = tokio::spawn(async move { webhooks.run_due_deliveries().await });
    eventually(async || app.transaction_calls() > 0).await;
    // More than all rebuilds of a provider wait now.
    let event = app.deliveries_to(&hook).await[0].event_id;
    app.redeliver(&hook, event).await.unwrap();
    let webhooks = app.webhooks.clone();
    let delivering = tokio::spawn(async move { webhooks.run_due_deliveries().await });
    eventually(async || hook.receiver.has_requests()).await;
    assert!(!hung.receiver.has_requests());
    hanging.abort();
    delivering.abort();
}

/// A row that is missing now may be returned later, so no attempt goes without it.
#[tokio::test]
async fn event_waits_for_a_missing_account_and_a_renewal() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, hook) = app.synced_person(provider).await;
        let connection = &person.connections[0];
        app.advance_clock(HOUR);
        let accounts = app.stored_accounts(person.user.id, connection.id).await;
        let missing = app.account_at(connection).await;
        let mut ids = accounts.iter().map(|account| &account.provider_account_id);
        let other = ids.find(|id| **id != missing).expect("another account");
        for (account, text) in [(other, "LISTED"), (&missing, "MISSING")] {
            app.add_row_to(connection, account, text, app.clock.now() - HOUR);
        }
        hook.receiver.reply_next_with([Reply::Status(500)]);
        assert_eq!(app.sync(connection).await.new_count, 2, "{provider}");
        app.delivered_to(&hook).await;
        app.unlist(provider, &[&missing]);
        for _ in 0..2 {
            app.refresh(person.user.id, connection.id).await;
            app.advance_clock(HOUR);
        }
        app.refresh(person.user.id, connection.id).await;
        let listed = app.accounts_of(connection).await.len();
        assert_eq!(listed, accounts.len() - 1, "{provider}: hidden");
        assert_eq!(app.announced_to(&hook).await, [""; 0], "{provider}");
        let delivery = app.last_delivery(&hook).await;
        let last = (delivery.attempts, delivery.last_error.as_deref());
        assert_eq!(last, (2, Some(INCOMPLETE)), "{provider}");

        app.unlist(provider, &[]);
        app.sync(connection).await;
        assert!(app.advance_to_next_attempt(&hook).await);
        let mut delivered = app.announced_to(&hook).await;
        delivered.sort_unstable();
        assert_eq!(delivered, ["LISTED", "MISSING"], "{provider}: once");
    }

    // After a renewal, each row has another id, which no sync has seen yet.
    for provider in simulated_providers() {
        let (person, connection) = app.linked_at(provider).await;
        let hook = app.hook(&person.user).await;
        app.complete_initial_sync(&connection, &hook).await;
        let ids = app.add_rejected(&connection, &hook, &["ONE", "TWO"]).await;
        let is_renumbered = provider == "fiskil";
        app.renew_in_browser(&connection).await;
        if is_renumbered {
            app.assert_incomplete(&hook).await;
        }
        app.sync(&connection).await;
        // At the sandbox, a renewal also changes some rows, of which there is an event before.
        let mut received = app.announced_to(&hook).await;
        if received.is_empty() {
            received = descriptions(&app.next_attempt(&hook).await, "new");
        }
        received.sort_unstable();
        assert_eq!(received, ["ONE", "TWO"], "{provider}");

        // An event of a row that has its second id by then.
        if is_renumbered {
            let listed = app.all_transactions(connection.id).by(&person);
            let mut listed = listed.rows().await.into_iter();
            let row = listed.find(|row| row.description == "ONE");
            let id = row.unwrap().id;
            assert_ne!(id, ids[0]);
            app.set_amount(&connection, &id, 4_711);
            hook.receiver.reply_next_with([Reply::Status(500)]);
            assert_eq!(app.sync(&connection).await.updated_count, 1);
            app.delivered_to(&hook).await;
            app.renew_in_browser(&connection).await;
            app.assert_incomplete(&hook).await;
            app.sync(&connection).await;
            app.delivered_to(&hook).await;
            let received = app.next_attempt(&hook).await;
            assert_eq!(all_rows(&received, "updated")[0]["description"], "ONE");
            assert_eq!(all_rows(&received, "updated")[0]["amount"], 4_711);
        }
    }
}

impl App {
    /// Adds rows, of which the endpoint rejects the event once.
    async fn add_rejected(
        &self,
        connection: &Connection,
        hook: &Hook,
        texts: &[&str],
    ) -> Vec<String> {
        let mut ids = Vec::new();
        for text in texts {
            ids.push(self.add_recent_row(connection, text).await);
        }
        hook.receiver.reply_next_with([Reply::Status(500)]);
        assert_eq!(self.sync(connection).await.new_count, texts.len());
        assert_eq!(self.delivered_to(hook).await.len(), 1);
        ids
    }

    /// Makes the next attempt, which sends nothing.
    async fn assert_incomplete(&self, hook: &Hook) {
        assert!(self.advance_to_next_attempt(hook).await);
        assert_eq!(self.announced_to(hook).await, [""; 0]);
        let last_error = self.last_delivery(hook).await.last_error;
        assert_eq!(last_error.as_deref(), Some(INCOMPLETE));
    }

    async fn next_attempt(&self, hook: &Hook) -> Vec<ReceivedEvent> {
        assert!(self.advance_to_next_attempt(hook).await);
        self.delivered_to(hook).await
    }

    /// Puts a row back that was removed.
    async fn put_back(&self, connection: &Connection, id: &str, text: &str, at: Timestamp) {
        let account = self.account_at(connection).await;
        let row = spec(&connection.provider).row_at(&account, at, text);
        self.put_row_back(connection, row, id);
    }
}

#[tokio::test]
async fn only_syncs_decide_that_a_row_is_gone_or_changed() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook_on(connection).await;
    let at = app.clock.now() - HOUR;
    let rows = ["STAYS", "IS LEFT OUT"];
    let ids = app.add_rejected(connection, &hook, &rows).await;
    app.remove_row(connection, &ids[1]);
    app.assert_incomplete(&hook).await;
    // Nor is it lost if a sync lacks it too.
    app.assert_nothing_new(connection).await;
    app.assert_incomplete(&hook).await;
    app.put_back(connection, &ids[1], "IS LEFT OUT", at).await;
    let mut received = descriptions(&app.next_attempt(&hook).await, "new");
    received.sort_unstable();
    assert_eq!(received, ["IS LEFT OUT", "STAYS"]);

    let rows = ["STAYS TOO", "IS REMOVED"];
    let ids = app.add_rejected(connection, &hook, &rows).await;
    app.remove_row(connection, &ids[1]);
    for _ in 0..3 {
        app.assert_incomplete(&hook).await;
        app.sync(connection).await;
        app.advance_clock(13 * HOUR);
    }
    assert_eq!(app.announced_to(&hook).await, ["STAYS TOO"]);

    // A content that changes back before the next sync would stay at the receiver.
    let ids = app.add_rejected(connection, &hook, &["CHANGES"]).await;
    app.change_row(connection, &ids[0], json!({"description": "FOR A MOMENT"}));
    app.assert_incomplete(&hook).await;
    app.change_row(connection, &ids[0], json!({"description": "CHANGES"}));
    let received = app.next_attempt(&hook).await;
    assert_eq!(descriptions(&received, "new"), ["CHANGES"]);

    // The attempt that does not send it requests a sync.
    let rows = ["CHANGES FOR GOOD"];
    let ids = app.add_rejected(connection, &hook, &rows).await;
    app.set_amount(connection, &ids[0], 888);
    app.assert_incomplete(&hook).await;
    app.advance_clock(SignedDuration::from_mins(10));
    app.connections.jobs().run_due("sync").await.unwrap();
    let received = app.delivered_to(&hook).await;
    // Another connection of the user has had its first sync.
    for list in ["new", "updated"] {
        let mut rows = all_rows(&received, list).into_iter();
        let row = rows.find(|row| row["description"] == "CHANGES FOR GOOD");
        assert_eq!(row.unwrap()["amount"], 888, "{list}");
    }

    // It is not known whether a row is gone, or cannot be read: an event without it would be the
    // last word.
    let rows = ["LEFT", "UNREADABLE"];
    let ids = app.add_rejected(connection, &hook, &rows).await;
    app.change_row(connection, &ids[1], json!({"amount": "twelve"}));
    while app.advance_to_next_attempt(&hook).await {
        assert_eq!(app.announced_to(&hook).await, [""; 0]);
        app.sync(connection).await;
    }
    let delivery = app.last_delivery(&hook).await;
    assert_eq!(
        (delivery.attempts, delivery.state),
        (10, DeliveryState::Failed)
    );
    assert_eq!(delivery.last_error.as_deref(), Some(INCOMPLETE));
    app.assert_enabled(&hook).await;

    app.set_amount(connection, &ids[1], 1_200);
    app.sync(connection).await;
    let recovered = app.recover(&hook, app.clock.now() - 3 * DAY).await;
    assert_eq!(recovered, Some(1));
    let mut received = app.announced_to(&hook).await;
    received.sort_unstable();
    assert_eq!(received, ["LEFT", "UNREADABLE"]);
}

/// An hour after linking, syncs read a week, so none says what becomes of older rows.
#[tokio::test]
async fn row_that_no_sync_reads_is_sent_as_it_is_listed_or_gone() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    app.add_recent_row(connection, "RECENT").await;
    let at = app.clock.now() - 20 * DAY;
    let mut ids = Vec::new();
    for text in ["CHANGES", "GOES", "STAYS"] {
        ids.push(app.add_row(connection, text, at).await);
    }
    hook.receiver.reply_next_with([Reply::Status(500)]);
    app.sync(connection).await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    app.advance_clock(2 * HOUR);
    app.assert_nothing_new(connection).await;
    app.change_row(connection, &ids[0], json!({"description": "CHANGED"}));
    app.remove_row(connection, &ids[1]);
    // It may be back within the hour.
    app.assert_incomplete(&hook).await;
    app.advance_clock(DAY);
    let received = app.announced_to(&hook).await;
    let has = |text: &str| received.iter().any(|row| row == text);
    assert!(has("CHANGED") && has("STAYS"), "{received:?}");
    assert!(!has("GOES") && !has("CHANGES"), "{received:?}");
    app.assert_all_delivered(&hook).await;

    // An event is first sent days later, while the provider leaves rows out.
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let hook = app.hook(&person.user).await;
    app.add_recent_row(connection, "RECENT").await;
    let at = app.clock.now() - 20 * DAY;
    let mut ids = Vec::new();
    for text in ["IS LEFT OUT", "GOES"] {
        ids.push(app.add_row(connection, text, at).await);
    }
    app.disable_hook(&hook, "by command").await;
    app.sync(connection).await;
    app.advance_clock(2 * DAY);
    app.assert_nothing_new(connection).await;
    for id in &ids {
        app.remove_row(connection, id);
    }
    app.enable_hook(&hook).await;
    let recovered = app.recover(&hook, app.clock.now() - 3 * DAY).await;
    assert_eq!(recovered, Some(1));
    // An hour lies between the last two.
    for _ in 0..6 {
        app.assert_incomplete(&hook).await;
    }
    app.put_back(connection, &ids[0], "IS LEFT OUT", at).await;
    let received = descriptions(&app.next_attempt(&hook).await, "new");
    let has = |text: &str| received.iter().any(|row| row == text);
    assert!(has("RECENT") && has("IS LEFT OUT"), "{received:?}");
    assert!(!has("GOES"), "{received:?}");
    app.assert_all_delivered(&hook).await;
}
