//! Fiskil's seeded data: categories, gaps, date edges and odd values.

use std::collections::BTreeSet;

use bellbird_sandbox::{Options, start};
use serde_json::Value;

use crate::client::{client_of, options, text_of, time};

const CATEGORIES: &str = "
    BANK_FEES ENTERTAINMENT FOOD_AND_DRINK GOVERNMENT_AND_NON_PROFIT HOME_IMPROVEMENT INCOME
    LOAN_PAYMENTS MEDICAL MERCHANDISE PERSONAL_CARE RENT_AND_UTILITIES SERVICES TRANSFER_IN
    TRANSFER_OUT TRANSPORTATION TRAVEL";

#[tokio::test]
async fn busiest_account_has_every_category_and_gap() {
    let client = client_of(options(2000)).await;
    let rows = client
        .rows(&format!("{}&status=POSTED", client.busiest().await))
        .await;
    assert_eq!(rows.len(), 2000);
    assert!(rows.iter().all(|row| row["posting_date_time"].is_string()));
    let seen: BTreeSet<_> = rows
        .iter()
        .filter_map(|row| row["category"]["primary_category"].as_str())
        .collect();
    let mut expected: BTreeSet<_> = CATEGORIES.split_whitespace().collect();
    expected.insert("PETS");
    assert_eq!(seen, expected);
    let any = |check: &dyn Fn(&Value) -> bool| rows.iter().any(check);
    assert!(any(&|row| row.get("category").is_none()));
    assert!(any(&|row| row.get("category").is_some_and(Value::is_null)));
    assert!(any(&|row| row.get("merchant_name").is_none()));
    assert!(any(
        &|row| row.get("merchant_name").is_some() && row.get("merchant_category_code").is_none()
    ));
    assert!(any(&|row| row.get("transaction_id").is_none()));
    assert!(any(&|row| row.get("extended_data").is_some()));
    assert!(any(&|row| row.get("enrichment_version").is_some()));
    for ending in ["+10:00", "+11:00", "Z"] {
        assert!(
            any(&|row| text_of(&row["posting_date_time"]).ends_with(ending)),
            "{ending}"
        );
    }
    assert!(any(&|row| text_of(&row["posting_date_time"]).contains('.')));
    let oldest = time(rows.last().unwrap()).unwrap();
    assert!(
        oldest.to_string().starts_with("2023-11"),
        "about three years: {oldest}"
    );
    for row in &rows {
        let id = text_of(&row["fiskil_id"]).strip_prefix("bank_tx_").unwrap();
        assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_eq!(
        rows.iter()
            .map(|row| &row["fiskil_id"])
            .map(Value::to_string)
            .collect::<BTreeSet<_>>()
            .len(),
        2000
    );
}

#[tokio::test]
async fn the_same_seed_gives_the_same_world_on_another_day() {
    let all = async |seed: u64, now: &str| {
        let now = Some(now.parse().unwrap());
        let client = client_of(Options {
            seed,
            now,
            ..options(300)
        })
        .await;
        let rows = client
            .rows(&format!(
                "/v1/banking/transactions?end_user_id={}",
                client.credentials(0).0
            ))
            .await;
        let of = |row: &Value| {
            ["fiskil_id", "amount", "description", "account_id"].map(|name| row[name].to_string())
        };
        let mut rows: Vec<_> = rows.iter().map(of).collect();
        rows.sort();
        (
            serde_json::to_value(&client.description().credentials).unwrap(),
            rows,
            client.accounts(0).await[0]["account_id"].clone(),
        )
    };
    let one = all(7, "2026-11-21T01:30:00Z").await;
    assert_eq!(one, all(7, "2027-06-13T22:00:00Z").await);
    let other = all(8, "2026-11-21T01:30:00Z").await;
    assert_ne!(
        (&one.0, &one.1[0], &one.2),
        (&other.0, &other.1[0], &other.2)
    );
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "compared with the system clock")]
async fn the_system_clock_is_the_default() {
    let sandbox = start(Options {
        rows: 10,
        ..Options::default()
    })
    .await
    .unwrap();
    let now = sandbox.bank("fiskil").now();
    assert!(now.duration_since(jiff::Timestamp::now()).abs().as_secs() < 60);
    sandbox.stop().await;
}
