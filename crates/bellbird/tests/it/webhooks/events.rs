//! Webhook events: their members and their order. Every attempt after the first reads the rows
//! again.

use std::collections::BTreeSet;
use std::str::FromStr as _;

use bellbird_domain::{Connection, ConnectionId, DeliveryState, EventType, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use bigdecimal::{BigDecimal, RoundingMode};
use jiff::SignedDuration;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BODY_EXPIRED, DAY, HOUR};
use crate::support::harness::{App, Person, Setup, simulated_providers};
use crate::support::process::{names, text};
use crate::support::provider_spec::spec;
use crate::support::receiver::{ChunkPosition, Hook, ReceivedEvent, Reply, RowCounts};
use crate::support::rows::all_rows;
use crate::support::schema::check;

fn members(value: &Value) -> String {
    names(value).join(" ")
}

/// An amount of the REST API in the smallest unit of its currency.
fn minor_units(amount: &str, currency: &str) -> String {
    let places = match currency {
        "jpy" => 0,
        "bhd" => 3,
        _ => 2,
    };
    let amount = BigDecimal::from_str(amount).unwrap();
    let amount = amount.with_scale_round(places, RoundingMode::HalfEven);
    amount.into_bigint_and_scale().0.to_string()
}

/// Asserts that an event has these members as the REST API shows them, `account_id` as `accountId`.
fn assert_same(event: &Value, shown: &Value, names: &str) {
    for name in names.split(' ') {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        let at = words.fold(first, |at, word| {
            at + &word[..1].to_uppercase() + &word[1..]
        });
        assert_eq!(event[name], shown[&at], "{name}: {event}");
    }
    assert_eq!(event["account"], shown["accountName"], "{event}");
}

fn assert_transaction(event: &Value, shown: &Value, raw: &str) {
    assert_eq!(
        members(event),
        "account account_id account_name amount category class currency description direction extended_description id \
         local_date merchant_category_code merchant_name object post_date reference status transaction_date"
    );
    let same = "id status description direction account_id account_name merchant_name category \
                merchant_category_code";
    assert_same(event, shown, same);
    for (name, at) in [("local_date", "date"), ("post_date", "datetime")] {
        assert_eq!(event[name], shown[at], "{name}: {event}");
    }
    assert_eq!(event["object"], "transaction");
    let currency = text(event, "currency");
    assert_eq!(currency, currency.to_lowercase());
    // `serde_json` parses very long numbers as floats, so the raw text is compared, too.
    let units = &event["amount"];
    let amount = minor_units(text(shown, "amount"), currency);
    assert!(units.is_number(), "{event}");
    assert!(raw.contains(&format!(r#""amount":{amount},"#)), "{event}");
    let short = units.as_i64().map(|units| units.to_string());
    assert!(short.is_none_or(|units| units == amount), "{event}");
    let class = text(event, "class");
    let is_lower_case = class == class.to_lowercase() && !class.contains([' ', '_']);
    assert!(!class.is_empty() && is_lower_case, "{class}");
    assert!(text(event, "transaction_date").len() >= 10, "{event}");
}

fn assert_trade(event: &Value, shown: &Value) {
    assert_eq!(
        members(event),
        "account account_id account_name currency description fees id name object price quantity settlement_date \
         symbol total_amount trade_date type"
    );
    let same = "id type name fees trade_date settlement_date description account_id account_name";
    assert_same(event, shown, same);
    assert_eq!(event["object"], "trade");
    assert_eq!(event["currency"], text(shown, "currency").to_lowercase());
    // An absent value is null in an event. The REST API shows a default instead.
    for (name, at, absent) in [
        ("symbol", "symbol", ""),
        ("quantity", "quantity", "0"),
        ("price", "price", "0"),
        ("total_amount", "totalAmount", "0"),
    ] {
        let same = event[name] == shown[at] && event[name] != ""
            || event[name].is_null() && shown[at] == absent;
        assert!(same, "{name}: {event} {shown}");
    }
}

/// Asserts that the OpenAPI document describes a body of this type so.
fn assert_described(event_type: &str, body: &Value) {
    let document = bellbird::openapi::document().value();
    let request = &document["webhooks"][event_type]["post"]["requestBody"];
    check(
        document,
        event_type,
        &request["content"]["application/json"]["schema"],
        body,
    );
}

/// `connection` is the id of the event's connection. A ping has none.
pub(super) fn assert_envelope(
    received: &ReceivedEvent,
    event_type: &str,
    connection: Option<ConnectionId>,
    created: i64,
) {
    let body = &received.body;
    assert_described(event_type, body);
    assert_eq!(members(&body["data"]), "new updated");
    let mut own = body["metadata"].clone();
    own.as_object_mut()
        .unwrap()
        .retain(|name, _| !["user_id", "user_reference"].contains(&name.as_str()));
    let metadata = match connection {
        Some(_) => "chunk connection_id new_count sync_run_id total_chunks updated_count",
        None => "chunk new_count sync_run_id total_chunks updated_count",
    };
    assert_eq!(members(&own), metadata);
    let connection_id = own.get("connection_id").cloned();
    assert_eq!(connection_id, connection.map(|id| json!(id)));
    let expected = json!({
        "id": body["id"], "object": "event", "type": event_type, "api_version": "2026-11-01",
        "created": created, "data": body["data"], "metadata": body["metadata"],
    });
    assert_eq!(*body, expected);
    for id in [text(body, "id"), text(&own, "sync_run_id")] {
        assert!(Uuid::parse_str(id).is_ok(), "{id}");
    }
}

#[tokio::test]
async fn events_match_the_api() {
    let app = App::start(Setup::default()).await;
    let known = [0, 1, 2].map(|at| app.credentials(at));
    for credentials in simulated_providers().flat_map(|provider| app.credentials_of(provider)) {
        if known.contains(&credentials) {
            continue;
        }
        let spec = spec(text(&credentials, "provider"));
        let email = format!("{}@example.com", spec.connection_in(&credentials));
        let person = app
            .add_person(&email, Plan::Professional, &[&credentials])
            .await;
        assert_announced_as_shown(&app, &person, &person.connections[0]).await;
    }
    for connection in &app.olivia.connections {
        assert_announced_as_shown(&app, &app.olivia, connection).await;
    }
}

/// Asserts that the first sync of a connection reports what the REST API shows.
async fn assert_announced_as_shown(app: &App, person: &Person, connection: &Connection) {
    let spec = spec(&connection.provider);
    for row in (spec.odd_rows)(&app.account_at(connection).await) {
        app.put_row(connection, row);
    }
    let hook = app.hook(&person.user).await;
    app.sync(connection).await;
    let received = app.delivered_to(&hook).await;
    let shown = app
        .rows_of(connection)
        .by(person)
        .from("2026-10-21T09:30:00Z");
    let shown = shown.limit(500).page().await.rows;
    let delivered = all_rows(&received, "new");
    assert_eq!(delivered.len(), shown.len(), "{}", connection.provider);
    let raw: String = received
        .iter()
        .map(|event| str::from_utf8(&event.raw).unwrap())
        .collect();
    for (delivered, shown) in delivered.into_iter().zip(&shown) {
        if spec.is_brokerage() {
            assert_trade(delivered, shown);
        } else {
            assert_transaction(delivered, shown, &raw);
        }
    }
    let event_type = format!("{}.synced", spec.list);
    let now = app.clock.now().as_second();
    for event in &received {
        assert_envelope(event, &event_type, Some(connection.id), now);
    }
    app.delete_hook(&hook).await;
}

#[tokio::test]
async fn only_the_first_attempt_is_from_memory() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        app.sync(connection).await;
        app.reset_calls();
        hook.receiver.reply_with(Reply::Status(500));
        let first = app.delivered_to(&hook).await;
        assert_eq!(app.bank(provider).total_calls(), 0, "{provider}");
        let mut all = first.clone();
        for _ in 0..2 {
            app.reset_calls();
            assert!(app.advance_to_next_attempt(&hook).await);
            all.extend(app.delivered_to(&hook).await);
            assert!(app.bank(provider).total_calls() > 0, "{provider}");
        }
        assert_eq!(all.len(), 3 * first.len());
        let is_same =
            |event: &ReceivedEvent| event.id == first[0].id && event.body == first[0].body;
        assert!(all.iter().all(is_same), "{provider}");
        for two in all.windows(2) {
            assert!(two[0].timestamp < two[1].timestamp);
            assert_ne!(two[0].signature, two[1].signature);
        }
    }
}

#[tokio::test]
async fn read_failures_do_not_count_against_the_endpoint() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        app.sync(connection).await;
        app.advance_clock(BODY_EXPIRED);
        app.bank(provider).add_fault(Fault::status(503).at("/"));
        assert!(app.delivered_to(&hook).await.is_empty());
        let delivery = app.deliveries_to(&hook).await.remove(0);
        assert_eq!(delivery.state, DeliveryState::Pending);
        assert_eq!((delivery.attempts, delivery.last_status), (1, None));
        let expected = Some("rows not read: provider does not respond");
        assert_eq!(delivery.last_error.as_deref(), expected, "{provider}");
        let failing_since = async || app.endpoint_of(&hook).await.failing_since;
        assert_eq!(failing_since().await, None, "{provider}");
        app.clear_faults();

        app.advance_to_next_attempt(&hook).await;
        app.set_consent(connection, ConsentState::Revoked).await;
        // The consent status is cached for a minute. A refresh updates it.
        app.refresh(person.user.id, connection.id).await;
        assert!(app.delivered_to(&hook).await.is_empty(), "{provider}");
        let delivery = app.deliveries_to(&hook).await.remove(0);
        let expected = Some("rows not read: connection must be reconnected");
        assert_eq!(delivery.last_error.as_deref(), expected, "{provider}");
        assert_eq!(failing_since().await, None, "{provider}");

        app.set_consent(connection, ConsentState::Active).await;
        app.refresh(person.user.id, connection.id).await;
        app.advance_clock(SignedDuration::from_mins(2));
        let attempts = app.attempts_of(&hook, &delivery).await;
        let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.attempt).collect();
        assert_eq!(numbers, [1, 2]);
        let received = app.delivered_to(&hook).await;
        assert_eq!(received.len(), 1, "{provider}");
        assert!(!received[0].rows("new").is_empty(), "{provider}");
    }
}

#[tokio::test]
async fn endpoint_gets_its_types_pings_and_what_the_last_sync_saw() {
    let app = App::start(Setup::default()).await;
    let [bank, broker] = ["akahu", "snaptrade"].map(|name| app.credentials_of(name).remove(0));
    let (email, plan) = ("both@example.com", Plan::Professional);
    let person = app.add_person(email, plan, &[&bank, &broker]).await;
    let hooks: [Hook; 3] = [
        app.hook(&person.user).await,
        app.hook_for(&person.user, &[EventType::TradesSynced]).await,
        app.hook_for(&person.user, &[EventType::TransactionsSynced])
            .await,
    ];
    let other_user = app.hook(&app.ben.user).await;
    for connection in &person.connections {
        app.sync(connection).await;
    }
    app.webhooks.run_due_deliveries().await;
    let types = hooks.each_ref().map(|hook| {
        let events = hook.drain();
        let types: BTreeSet<&str> = events
            .iter()
            .map(|event| text(&event.body, "type"))
            .collect();
        Vec::from_iter(types).join(" ")
    });
    let expected = [
        "trades.synced transactions.synced",
        "trades.synced",
        "transactions.synced",
    ];
    assert_eq!(types, expected);
    assert!(other_user.drain().is_empty());
    // Without an endpoint, no event is written.
    assert_eq!(app.sync(&app.olivia.connections[0]).await.events, 0);

    // A ping is an event without rows.
    let hook = app.hook(&app.olivia.user).await;
    for (status, state) in [
        (204, DeliveryState::Delivered),
        (500, DeliveryState::Failed),
    ] {
        hook.receiver.reply_with(Reply::Status(status));
        let pinged = app.webhooks.ping(&hook.endpoint).await.unwrap();
        assert_eq!(pinged.exchange.status, Some(status));
        let received = hook.drain();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].counts(), RowCounts { new: 0, updated: 0 });
        let only = ChunkPosition { chunk: 1, total: 1 };
        assert_eq!(received[0].chunk_position(), only);
        assert_eq!(received[0].id, pinged.event_id.to_string());
        let now = app.clock.now().as_second();
        assert_envelope(&received[0], "endpoint.ping", None, now);
        assert_eq!(app.states_at(&hook).await.last(), Some(&state));
    }
    app.advance_clock(DAY);
    let retried = app.delivered_to(&hook).await;
    assert!(retried.is_empty(), "a ping is never retried");
    assert_eq!(app.endpoint_of(&hook).await.failing_since, None);

    // A later attempt sends what the last sync saw.
    app.delete_hook(&hook).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    let at = app.clock.now() - HOUR;
    let changed = app.add_row(connection, "CHANGED BEFORE", at).await;
    let untouched = app.add_row(connection, "UNTOUCHED BEFORE", at).await;
    app.complete_initial_sync(connection, &hook).await;
    let kept = app.add_row(connection, "KEPT", at).await;
    let removed = app.add_row(connection, "REMOVED", at).await;
    app.change_row(connection, &changed, json!({"description": "CHANGED ONCE"}));
    app.change_row(
        connection,
        &untouched,
        json!({"description": "UNTOUCHED NOW"}),
    );
    hook.receiver.reply_next_with([Reply::Status(500)]);
    app.sync(connection).await;
    let first = app.delivered_to(&hook).await;
    assert_eq!(first[0].counts(), RowCounts { new: 2, updated: 2 });

    app.change_row(connection, &kept, json!({"amount": "-77.00"}));
    app.change_row(
        connection,
        &changed,
        json!({"description": "CHANGED TWICE"}),
    );
    app.remove_row(connection, &removed);
    // The second attempt, which waits for a sync.
    app.advance_to_next_attempt(&hook).await;
    assert_eq!(app.delivered_to(&hook).await.len(), 0);
    let sync_until_gone = async || {
        for _ in 0..3 {
            app.sync(connection).await;
            app.advance_clock(13 * HOUR);
        }
    };
    sync_until_gone().await;
    hook.receiver.reply_with(Reply::Status(500));
    // Beside events of the syncs since.
    let again = async || {
        let mut received = app.delivered_to(&hook).await.into_iter();
        received.find(|event| event.id == first[0].id).unwrap()
    };
    let second = again().await;
    assert_eq!(second.counts(), RowCounts { new: 1, updated: 2 });
    assert_eq!(second.rows("new")[0]["id"], kept);
    assert_eq!(second.rows("new")[0]["amount"], -7700);
    let description = |id: &str| {
        let mut updated = second.rows("updated").iter();
        text(updated.find(|row| row["id"] == id).unwrap(), "description")
    };
    assert_eq!(description(&changed), "CHANGED TWICE");
    assert_eq!(description(&untouched), "UNTOUCHED NOW");

    for id in [&kept, &changed, &untouched] {
        app.remove_row(connection, id);
    }
    sync_until_gone().await;
    assert_eq!(again().await.counts(), RowCounts { new: 0, updated: 0 });
    // Removed rows are not reported in this version of the body.
    assert_eq!(app.sync(connection).await.events, 0);
}
