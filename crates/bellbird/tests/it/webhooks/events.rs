//! Webhook events: their members and their order. Every attempt after the first reads the rows
//! again.

use bellbird_storage::in_tx;
use std::str::FromStr as _;

use bellbird_domain::{Connection, ConnectionId, DeliveryState, EventType, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use bigdecimal::{BigDecimal, RoundingMode};
use jiff::SignedDuration;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BODY_EXPIRED, DAY, HOUR, with_chunks_of};
use crate::support::harness::{App, Setup, simulated_providers};
use crate::support::process::names;
use crate::support::provider_spec::spec;
use crate::support::receiver::{ChunkPosition, Hook, ReceivedEvent, Reply, RowCounts, SyncCounts};
use crate::support::rows::all_rows;
use crate::support::schema::check;

pub(super) fn members(value: &Value) -> String {
    names(value).join(" ")
}

/// An amount of the REST API in the smallest unit of its currency.
fn minor_units(amount: &str, currency: &str) -> String {
    let places = match currency {
        "jpy" => 0,
        "bhd" => 3,
        _ => 2,
    };
    let amount = BigDecimal::from_str(amount)
        .unwrap()
        .with_scale_round(places, RoundingMode::HalfEven);
    amount.into_bigint_and_scale().0.to_string()
}

fn assert_transaction(event: &Value, shown: &Value, raw: &str) {
    assert_eq!(
        members(event),
        "account account_id account_name amount category class currency description direction extended_description id \
         local_date merchant_category_code merchant_name object post_date reference status transaction_date"
    );
    for (name, at) in [
        ("id", "id"),
        ("status", "status"),
        ("description", "description"),
        ("direction", "direction"),
        ("account_id", "accountId"),
        ("account_name", "accountName"),
        ("account", "accountName"),
        ("local_date", "date"),
        ("post_date", "datetime"),
        ("merchant_name", "merchantName"),
        ("category", "category"),
        ("merchant_category_code", "merchantCategoryCode"),
    ] {
        assert_eq!(event[name], shown[at], "{name}: {event}");
    }
    assert_eq!(event["object"], "transaction");
    let currency = event["currency"].as_str().unwrap();
    assert_eq!(currency, currency.to_lowercase());
    // `serde_json` parses very long numbers as floats, so the raw text is compared, too.
    let amount = minor_units(shown["amount"].as_str().unwrap(), currency);
    assert!(
        event["amount"].is_number() && raw.contains(&format!(r#""amount":{amount},"#)),
        "{event}"
    );
    assert!(
        event["amount"]
            .as_i64()
            .is_none_or(|units| units.to_string() == amount),
        "{event}"
    );
    let class = event["class"].as_str().unwrap();
    assert!(
        !class.is_empty() && class == class.to_lowercase() && !class.contains([' ', '_']),
        "{class}"
    );
    assert!(
        event["transaction_date"]
            .as_str()
            .is_some_and(|text| text.len() >= 10),
        "{event}"
    );
}

fn assert_trade(event: &Value, shown: &Value) {
    assert_eq!(
        members(event),
        "account account_id account_name currency description fees id name object price quantity settlement_date \
         symbol total_amount trade_date type"
    );
    for (name, at) in [
        ("id", "id"),
        ("type", "type"),
        ("name", "name"),
        ("fees", "fees"),
        ("trade_date", "tradeDate"),
        ("settlement_date", "settlementDate"),
        ("description", "description"),
        ("account_id", "accountId"),
        ("account_name", "accountName"),
        ("account", "accountName"),
    ] {
        assert_eq!(event[name], shown[at], "{name}: {event}");
    }
    assert_eq!(
        (&event["object"], &event["currency"]),
        (
            &json!("trade"),
            &json!(shown["currency"].as_str().unwrap().to_lowercase())
        )
    );
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
    assert_eq!(
        members(body),
        "api_version created data id metadata object type"
    );
    assert_eq!(members(&body["data"]), "new updated");
    let metadata = "chunk new_count sync_run_id total_chunks updated_count";
    let named = metadata.replacen(' ', " connection_id ", 1);
    let mut own = body["metadata"].clone();
    own.as_object_mut()
        .unwrap()
        .retain(|name, _| !["user_id", "user_reference"].contains(&name.as_str()));
    assert_eq!(
        members(&own),
        if connection.is_some() {
            &named
        } else {
            metadata
        }
    );
    assert_eq!(
        body["metadata"].get("connection_id").cloned(),
        connection.map(|id| json!(id))
    );
    assert_eq!(
        (&body["object"], &body["type"]),
        (&json!("event"), &json!(event_type))
    );
    assert_eq!(
        (&body["api_version"], &body["created"]),
        (&json!("2026-11-01"), &json!(created))
    );
    for id in [&body["id"], &body["metadata"]["sync_run_id"]] {
        assert!(Uuid::parse_str(id.as_str().unwrap()).is_ok(), "{id}");
    }
}

#[tokio::test]
async fn events_match_the_api() {
    let app = App::start(Setup::default()).await;
    for credentials in serde_json::to_value(&app.sandbox.description().credentials)
        .unwrap()
        .as_array()
        .unwrap()
    {
        let provider = credentials["provider"].as_str().unwrap();
        let email = format!("{}@example.com", spec(provider).connection_in(credentials));
        if [0, 1, 2]
            .iter()
            .any(|at| app.credentials(*at) == *credentials)
        {
            continue;
        }
        let person = app
            .add_person(&email, Plan::Professional, &[credentials])
            .await;
        assert_announced_as_shown(&app, &person.user, &person.key, &person.connections[0]).await;
    }
    for connection in &app.olivia.connections {
        assert_announced_as_shown(&app, &app.olivia.user, &app.olivia.key, connection).await;
    }
}

/// Asserts that the first sync of a connection reports what the REST API shows.
async fn assert_announced_as_shown(
    app: &App,
    user: &bellbird_domain::User,
    key: &str,
    connection: &Connection,
) {
    let spec = spec(&connection.provider);
    for row in (spec.odd_rows)(&app.account_at(connection).await) {
        app.put_row(connection, row);
    }
    let hook = app.hook(user).await;
    app.sync(connection).await;
    let received = app.delivered_to(&hook).await;
    let (list, event_type) = (spec.list, format!("{}.synced", spec.list));
    let path = format!(
        "/v1/{list}?connectionId={}&from=2026-10-21T09:30:00Z&limit=500",
        connection.id
    );
    let shown = app.get_as(key, &path).await.data();
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
    for event in &received {
        assert_envelope(
            event,
            &event_type,
            Some(connection.id),
            app.clock.now().as_second(),
        );
    }
    in_tx!(app.storage, endpoints::delete((user.id, hook.endpoint.id)))
        .await
        .unwrap();
}

#[tokio::test]
async fn chunks_are_delivered_in_order() {
    let app = with_chunks_of(5).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    let report = app.sync(connection).await;
    assert!(
        report.events > 3 && report.events == report.new_count.div_ceil(5),
        "{report:?}"
    );
    // The endpoint rejects the second chunk three times. Later chunks wait for it.
    hook.receiver
        .reply_next_with([204, 500, 500, 500].map(Reply::Status));
    let mut all = Vec::new();
    for _ in 0..4 {
        all.extend(app.delivered_to(&hook).await);
        app.advance_to_next_attempt(&hook).await;
    }
    let total = u64::try_from(report.events).unwrap();
    let chunks: Vec<u64> = all
        .iter()
        .map(|event| event.chunk_position().chunk)
        .collect();
    let expected: Vec<u64> = [1, 2, 2, 2].into_iter().chain(2..=total).collect();
    assert_eq!(chunks, expected);
    assert!(all.iter().all(|event| {
        let position = event.chunk_position();
        position.total == total && event.rows("new").len() == 5 || position.chunk == total
    }));
    assert_eq!(
        all[1].raw, all[4].raw,
        "the same rows, from memory and read again"
    );
    app.assert_all_delivered(&hook).await;
}

#[tokio::test]
async fn new_rows_come_before_changed_ones() {
    let app = with_chunks_of(3).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(
            app.add_recent_row(connection, &format!("OLD {number}"))
                .await,
        );
    }
    app.complete_initial_sync(connection, &hook).await;
    for id in &ids {
        app.change_row(connection, id, json!({"amount": "-99.99"}));
    }
    for number in 0..4 {
        app.add_recent_row(connection, &format!("NEW {number}"))
            .await;
    }
    let report = app.sync(connection).await;
    assert_eq!(
        SyncCounts::of(&report),
        SyncCounts {
            new: 4,
            updated: 4,
            events: 3
        }
    );
    let received = app.delivered_to(&hook).await;
    let expected = [(3, 0), (1, 2), (0, 2)].map(|(new, updated)| RowCounts { new, updated });
    assert_eq!(
        received
            .iter()
            .map(ReceivedEvent::counts)
            .collect::<Vec<_>>(),
        expected
    );
    let expected = [1, 2, 3].map(|chunk| ChunkPosition { chunk, total: 3 });
    assert_eq!(
        received
            .iter()
            .map(ReceivedEvent::chunk_position)
            .collect::<Vec<_>>(),
        expected
    );
    assert!(
        all_rows(&received, "updated")
            .iter()
            .all(|row| row["amount"] == -9999)
    );
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
        assert!(
            all.iter()
                .all(|event| event.id == first[0].id && event.body == first[0].body),
            "{provider}"
        );
        assert!(
            all.windows(2)
                .all(|two| two[0].timestamp < two[1].timestamp)
        );
        assert!(
            all.windows(2)
                .all(|two| two[0].signature != two[1].signature)
        );
    }
}

#[tokio::test]
async fn later_attempt_sends_what_the_last_sync_saw() {
    let app = App::start(Setup::default()).await;
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
        app.delivered_to(&hook)
            .await
            .into_iter()
            .find(|event| event.id == first[0].id)
            .unwrap()
    };
    let second = again().await;
    assert_eq!(second.counts(), RowCounts { new: 1, updated: 2 });
    assert_eq!(second.rows("new")[0]["id"], kept);
    assert_eq!(second.rows("new")[0]["amount"], -7700);
    let description = |id: &str| {
        second
            .rows("updated")
            .iter()
            .find(|row| row["id"] == id)
            .unwrap()["description"]
            .clone()
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
        assert_eq!(delivery.attempts, 1);
        assert_eq!(
            delivery.last_error.as_deref(),
            Some("rows not read: provider does not respond")
        );
        assert_eq!(delivery.last_status, None);
        assert_eq!(
            app.endpoint_of(&hook).await.failing_since,
            None,
            "{provider}"
        );
        app.clear_faults();

        app.advance_to_next_attempt(&hook).await;
        app.set_consent(connection, ConsentState::Revoked).await;
        // The consent status is cached for a minute. A refresh updates it.
        app.refresh(person.user.id, connection.id).await;
        assert!(app.delivered_to(&hook).await.is_empty(), "{provider}");
        let delivery = app.deliveries_to(&hook).await.remove(0);
        assert_eq!(
            delivery.last_error.as_deref(),
            Some("rows not read: connection must be reconnected"),
            "{provider}"
        );
        assert_eq!(
            app.endpoint_of(&hook).await.failing_since,
            None,
            "{provider}"
        );

        app.set_consent(connection, ConsentState::Active).await;
        app.refresh(person.user.id, connection.id).await;
        app.advance_clock(SignedDuration::from_mins(2));
        let attempts = app.attempts_of(&hook, &delivery).await;
        assert_eq!(
            attempts
                .iter()
                .map(|attempt| attempt.attempt)
                .collect::<Vec<_>>(),
            [1, 2]
        );
        let received = app.delivered_to(&hook).await;
        assert_eq!(received.len(), 1, "{provider}");
        assert!(!received[0].rows("new").is_empty(), "{provider}");
    }
}

#[tokio::test]
async fn endpoint_gets_only_subscribed_types() {
    let app = App::start(Setup::default()).await;
    let all_credentials = [
        app.credentials_of("akahu").remove(0),
        app.credentials_of("snaptrade").remove(0),
    ];
    let person = app
        .add_person(
            "both@example.com",
            Plan::Professional,
            &[&all_credentials[0], &all_credentials[1]],
        )
        .await;
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
        let mut types: Vec<String> = hook
            .drain()
            .iter()
            .map(|event| event.body["type"].as_str().unwrap().to_owned())
            .collect();
        types.sort_unstable();
        types.dedup();
        types.join(" ")
    });
    assert_eq!(
        types,
        [
            "trades.synced transactions.synced",
            "trades.synced",
            "transactions.synced"
        ]
    );
    assert!(other_user.drain().is_empty());
    // Without an endpoint, no event is written.
    assert_eq!(app.sync(&app.olivia.connections[0]).await.events, 0);
}

#[tokio::test]
async fn a_ping_is_an_event_without_rows() {
    let app = App::start(Setup::default()).await;
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
        assert_eq!(
            received[0].chunk_position(),
            ChunkPosition { chunk: 1, total: 1 }
        );
        assert_eq!(received[0].id, pinged.event_id.to_string());
        assert_envelope(
            &received[0],
            "endpoint.ping",
            None,
            app.clock.now().as_second(),
        );
        assert_eq!(app.states_at(&hook).await.last(), Some(&state));
    }
    app.advance_clock(DAY);
    assert!(
        app.delivered_to(&hook).await.is_empty(),
        "a ping is never retried"
    );
    assert_eq!(app.endpoint_of(&hook).await.failing_since, None);
}
