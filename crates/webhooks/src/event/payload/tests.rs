//! Snapshots of event bodies, amounts by table, and texts that need escaping.

use bellbird_domain::{Account, ConnectionId, Currency};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::event::fixtures::{self, account, decimal, instant};

const KEY: RowKey = RowKey([0xab; 8]);
const VERSION: Format<'_> = Format {
    version: ApiVersion::DEFAULT,
    user: None,
};

fn sydney() -> TimeZone {
    TimeZone::get("Australia/Sydney").unwrap()
}

fn full(account: &Account) -> Transaction<'_> {
    Transaction {
        id: "bank_tx_1".into(),
        instant: instant("2026-11-20T14:00:00Z"),
        datetime: "2026-11-20T14:00:00.000Z".into(),
        description: "CAFÉ \u{2014} \"lunch\"\n\\".into(),
        currency: Currency::parse("NZD"),
        provider_type: Some("TRANSFER_OUTGOING".into()),
        executed: Some("2026-11-19T21:15:00+11:00".into()),
        ..fixtures::transaction(account)
    }
}

/// A transaction without optional fields.
fn bare(account: &Account) -> Transaction<'_> {
    Transaction {
        day: Some("2026-11-20".parse().unwrap()),
        category: None,
        merchant_name: None,
        merchant_category_code: None,
        currency: None,
        provider_type: None,
        executed: None,
        reference: None,
        extended_description: None,
        ..full(account)
    }
}

fn trades(account: &Account) -> [Trade<'_>; 2] {
    let full = Trade {
        trade_type: TradeType::Dividend,
        provider_type: "DRIP".into(),
        quantity: Some(decimal("5.20000000000000000001")),
        price: Some(decimal("0.40")),
        description: Some("BOUGHT \"VAB\"".into()),
        ..fixtures::trade(account)
    };
    let bare = Trade {
        symbol: "".into(),
        name: None,
        trade_type: TradeType::Fee,
        quantity: None,
        price: None,
        total_amount: None,
        fees: None,
        settlement_date: None,
        description: None,
        ..full.clone()
    };
    [full, bare]
}

fn envelope(event_type: EventType) -> Envelope {
    Envelope {
        id: EventId::from(Uuid::from_u128(4)),
        event_type,
        created: "2026-11-21T00:00:00.75Z".parse().unwrap(),
        sync_run_id: SyncRunId::from(Uuid::from_u128(5)),
        connection_id: (event_type != EventType::Ping)
            .then_some(ConnectionId::from(Uuid::from_u128(6))),
        chunk: 2,
        total_chunks: 3,
    }
}

fn transaction(row: &Transaction<'_>, zone: &TimeZone) -> RowJson {
    RowWriter::default().transaction(row, zone)
}

fn trade(row: &Trade<'_>) -> RowJson {
    RowWriter::default().trade(row)
}

/// The row as the first version of the body has it.
fn json(row: &RowJson) -> &[u8] {
    &row.text[..row.json_bytes]
}

fn text(json: &[u8]) -> &str {
    std::str::from_utf8(json).unwrap()
}

fn parsed(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap()
}

#[test]
fn transactions_synced() {
    let account = account(1, "Everyday \"joint\"", "AUD");
    let rows = [full(&account), bare(&account)].map(|row| (KEY, transaction(&row, &sydney())));
    let [new, updated] = rows.each_ref().map(std::slice::from_ref);
    let body = body(
        &envelope(EventType::TransactionsSynced),
        VERSION,
        new,
        updated,
    );
    insta::assert_snapshot!(text(&body));
    let data = &parsed(&body)["data"];
    let (new, updated) = (&data["new"][0], &data["updated"][0]);
    assert_eq!(new["description"], "CAFÉ \u{2014} \"lunch\"\n\\");
    // The day in the user's timezone, and the row's own day.
    assert_eq!(new["local_date"], "2026-11-21");
    assert_eq!(updated["local_date"], "2026-11-20");
}

#[test]
fn trades_synced() {
    let account = account(1, "Everyday \"joint\"", "CAD");
    let rows = trades(&account).map(|row| (KEY, trade(&row)));
    let body = body(&envelope(EventType::TradesSynced), VERSION, &rows, &[]);
    insta::assert_snapshot!(text(&body));
    parsed(&body);
}

#[test]
fn later_version_has_keys_exact_amounts_and_removed_rows() {
    let account = account(1, "Everyday \"joint\"", "AUD");
    let (later, envelope) = (
        ApiVersion::V2026_12_01.into(),
        envelope(EventType::TransactionsSynced),
    );
    let transactions = [(KEY, transaction(&bare(&account), &sydney()))];
    let [trade, _] = trades(&account).map(|row| (KEY, trade(&row)));
    let removed = [RemovedRow {
        key: KEY,
        account_id: account.id,
    }];
    insta::assert_snapshot!(
        [
            text(&body(&envelope, later, &transactions, &[])),
            text(&body(&envelope, later, &[], &[trade])),
            text(&removed_body(&envelope, later, &removed)),
        ]
        .join("\n\n")
    );
    for body in [
        body(&envelope, later, &transactions, &[]),
        removed_body(&envelope, later, &removed),
    ] {
        parsed(&body);
    }
}

#[test]
fn connection_events() {
    let change = EventConnection {
        provider: "simulated".to_owned(),
        category: ConnectionCategory::Banking,
        institution_id: "22".to_owned(),
        institution_name: "Bank of \"Example\" \u{2014} NZ".to_owned(),
        status: ConnectionStatus::PendingMfa,
        previous_status: Some(ConnectionStatus::Active),
        last_refreshed_at: Some("2026-11-20T23:59:59.123456Z".parse().unwrap()),
        consent_expires_at: None,
    };
    let never_refreshed = EventConnection {
        last_refreshed_at: None,
        ..change.clone()
    };
    let created = EventConnection {
        previous_status: None,
        ..never_refreshed.clone()
    };
    let ends_at = Some("2026-11-30T00:00:00Z".parse().unwrap());
    let expiring = EventConnection {
        previous_status: None,
        consent_expires_at: ends_at,
        ..change.clone()
    };
    let id = ConnectionId::from(Uuid::from_u128(6));
    let bodies = [
        (EventType::ConnectionUpdated, Some(change)),
        (EventType::ConnectionUpdated, Some(never_refreshed)),
        (EventType::ConnectionCreated, Some(created)),
        (EventType::ConnectionExpiring, Some(expiring)),
        (EventType::ConnectionRemoved, None),
    ]
    .map(|(event_type, shown)| {
        let connection = shown.map(|shown| connection(id, &shown));
        text(&object_body(&envelope(event_type), VERSION, connection)).to_owned()
    });
    insta::assert_snapshot!(bodies.join("\n\n"));
}

#[test]
fn endpoint_for_all_users_gets_the_user_of_each_event() {
    for (reference, expected) in [
        (Some("a \"b\"\n\u{2014}"), json!("a \"b\"\n\u{2014}")),
        (None, Value::Null),
    ] {
        let user = EventUser {
            id: Uuid::from_u128(7).into(),
            reference,
        };
        let format = Format {
            user: Some(user),
            ..VERSION
        };
        let body = body(&envelope(EventType::TransactionsSynced), format, &[], &[]);
        let metadata = &parsed(&body)["metadata"];
        assert_eq!(metadata["user_id"], json!(user.id));
        assert_eq!(metadata["user_reference"], expected);
    }
    let removed = EventUser {
        id: Uuid::from_u128(7).into(),
        reference: Some("customer-7"),
    };
    let body = object_body(
        &envelope(EventType::UserRemoved),
        Format {
            user: Some(removed),
            ..VERSION
        },
        Some(user(removed)),
    );
    let object = json!({"id": removed.id, "object": "user", "reference": "customer-7"});
    let data = json!({"new": [], "updated": [object]});
    assert_eq!(parsed(&body)["data"], data);
    let own = super::body(&envelope(EventType::TransactionsSynced), VERSION, &[], &[]);
    assert!(parsed(&own)["metadata"].get("user_id").is_none());
}

#[test]
fn ping_is_an_envelope_without_rows() {
    let body = body(
        &Envelope {
            chunk: 1,
            total_chunks: 1,
            ..envelope(EventType::Ping)
        },
        VERSION,
        &[],
        &[],
    );
    insta::assert_snapshot!(text(&body));
    parsed(&body);
}

#[test]
fn amounts_are_exact_integers_of_any_size() {
    for (amount, own, accounts, expected, currency) in [
        ("-15.90", None, "AUD", "-1590", "aud"),
        ("0.00", None, "AUD", "0", "aud"),
        ("-0.004", None, "AUD", "0", "aud"),
        ("0.015", None, "AUD", "2", "aud"),
        ("0.025", None, "AUD", "2", "aud"),
        ("1500", Some("JPY"), "AUD", "1500", "jpy"),
        ("1500.5", Some("JPY"), "AUD", "1500", "jpy"),
        ("-1.2345", Some("BHD"), "AUD", "-1234", "bhd"),
        ("1.5", None, "XXX", "150", "xxx"),
        (
            "12345678901234567890123.456789",
            None,
            "AUD",
            "1234567890123456789012346",
            "aud",
        ),
        (
            "-90071992547409.93",
            None,
            "AUD",
            "-9007199254740993",
            "aud",
        ),
    ] {
        let account = account(1, "Everyday", accounts);
        let own = own.and_then(Currency::parse);
        let row = transaction(
            &Transaction {
                amount: decimal(amount),
                currency: own,
                ..bare(&account)
            },
            &sydney(),
        );
        let expected = format!(r#""amount":{expected},"currency":"{currency}","#);
        assert!(text(json(&row)).contains(&expected), "{amount} {own:?}");
    }
    let account = account(1, "Everyday", "AUD");
    let digits = "7".repeat(5_000);
    let row = transaction(
        &Transaction {
            amount: decimal(&digits),
            ..bare(&account)
        },
        &sydney(),
    );
    assert!(text(json(&row)).contains(&format!(r#""amount":{digits}00,"#)));
}

#[test]
fn classes_have_hyphens_and_directions_follow_the_sign() {
    let account = account(1, "Everyday", "AUD");
    for (sent, class) in [
        (None, "other"),
        (Some("PAYMENT"), "payment"),
        (Some("DIRECT DEBIT"), "direct-debit"),
        (Some("TRANSFER_OUTGOING"), "transfer-outgoing"),
        (Some("in-branch"), "in-branch"),
    ] {
        let row = Transaction {
            provider_type: sent.map(Into::into),
            ..full(&account)
        };
        assert_eq!(parsed(json(&transaction(&row, &sydney())))["class"], class);
    }
    for (amount, direction) in [("-0.001", "debit"), ("0", "credit"), ("3", "credit")] {
        let row = Transaction {
            amount: decimal(amount),
            ..full(&account)
        };
        let row = transaction(&row, &sydney());
        assert_eq!(parsed(json(&row))["direction"], direction, "{amount}");
    }
}

#[test]
fn counts_match_the_rows() {
    let rows = vec![(KEY, RowJson::of(b"{}".to_vec())); 7];
    let body = body(
        &envelope(EventType::TransactionsSynced),
        VERSION,
        &rows[..3],
        &rows,
    );
    let read = parsed(&body);
    let data = json!({"new": vec![json!({}); 3], "updated": vec![json!({}); 7]});
    assert_eq!(read["data"], data);
    assert_eq!(read["metadata"]["new_count"], 3);
    assert_eq!(read["metadata"]["updated_count"], 7);
}

#[test]
fn longest_envelope_fits_its_capacity() {
    let types = EventType::SUBSCRIBABLE.iter();
    let longest = types.max_by_key(|name| name.as_str().len()).unwrap();
    let envelope = Envelope {
        chunk: u32::MAX,
        total_chunks: u32::MAX,
        created: Timestamp::MIN,
        ..envelope(*longest)
    };
    let body = body(&envelope, ApiVersion::V2026_12_01.into(), &[], &[]);
    // Each of the three counts may have 19 digits more.
    let bytes = body.len() + 3 * 19;
    assert!(bytes <= ENVELOPE_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn rows_share_memory_and_stay_apart() {
    let account = account(1, "Everyday", "AUD");
    let mut writer = RowWriter::default();
    let descriptions = [10, 100, 5_000, 100_000, 1].map(|length| "a".repeat(length));
    let rows: Vec<(&String, RowJson)> = descriptions
        .iter()
        .cycle()
        .take(200)
        .map(|description| {
            let row = Transaction {
                description: description.as_str().into(),
                ..full(&account)
            };
            (description, writer.transaction(&row, &sydney()))
        })
        .collect();
    let check = |description: &str, row: &RowJson| {
        assert_eq!(parsed(json(row))["description"], *description);
        assert_eq!(&row.text[row.json_bytes..], b"-15.90");
    };
    rows.iter()
        .for_each(|(description, row)| check(description, row));
    let mut moved: Vec<(RowKey, RowJson)> =
        rows.iter().map(|(_, row)| (KEY, row.clone())).collect();
    let (new, updated) = moved.split_at_mut(70);
    RowJson::move_together(new, updated);
    for ((description, row), (_, moved)) in rows.iter().zip(&moved) {
        check(description, moved);
        assert!(*row == *moved);
    }
}
