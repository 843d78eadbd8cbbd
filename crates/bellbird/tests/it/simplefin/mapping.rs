//! The whole shape of an account set, and how texts are written.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{account_set, list, rows, set_of, text};
use crate::support::database::execute;
use crate::support::harness::{App, Person, Setup};

/// Replaces the ids that differ from run to run.
fn redacted(mut set: Value, person: &Person) -> Value {
    let mut accounts = set["accounts"].take();
    for (at, account) in accounts.as_array_mut().unwrap().iter_mut().enumerate() {
        let id = text(account, "id").to_owned();
        *account =
            serde_json::from_str(&account.to_string().replace(&id, &format!("account {at}")))
                .unwrap();
        for name in ["transactions", "holdings"] {
            account[name].as_array_mut().unwrap().truncate(2);
        }
    }
    accounts.as_array_mut().unwrap().truncate(2);
    set["accounts"] = accounts;
    let mut text = set.to_string();
    for (at, connection) in person.connections.iter().enumerate() {
        text = text.replace(&connection.id.to_string(), &format!("connection {at}"));
    }
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn account_set_of_a_bank() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("akahu").await;
    insta::assert_json_snapshot!(redacted(set_of(&app, &person, "").await, &person));
}

#[tokio::test]
async fn account_set_of_a_broker() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("snaptrade").await;
    insta::assert_json_snapshot!(redacted(set_of(&app, &person, "").await, &person));
}

#[tokio::test]
async fn untrusted_texts_stay_texts() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    let long = "é".repeat(300);
    let texts = [
        "a;b,\"c\"",
        "<b>&amp;</b>",
        "line\nbreak\r\t",
        "=1+1",
        "+x",
        "@x",
        "😀 \u{202e}",
        long.as_str(),
    ];
    for description in texts {
        let row = json!({"account_id": provider_id, "amount": "-1.00", "description": description});
        app.fiskil().add_row(&row).unwrap();
    }
    app.advance_clock(SignedDuration::from_mins(1));
    let rows = rows(&account_set(&app, &format!("?account={}", account.id)).await);
    for description in texts {
        assert!(
            rows.iter().any(|row| row["description"] == description),
            "{description:?}"
        );
    }
}

#[tokio::test]
async fn names_begin_with_currency_and_last_digits() {
    let app = App::start(Setup::default()).await;
    let unknown =
        "UPDATE accounts SET masked_number = NULL, currency = 'XXX' WHERE account_type = 'loan'";
    for sql in ["UPDATE accounts SET name = 'Everyday'", unknown] {
        execute(&app.shared.database, sql, "").await;
    }
    let shown = |set: &Value| {
        let names = list(set, "accounts")
            .iter()
            .map(|account| (text(account, "id").to_owned(), account["name"].clone()));
        names.collect::<BTreeMap<_, _>>()
    };
    let accounts = app.get("/v1/accounts?limit=200").await.data();
    let all = shown(&account_set(&app, "?balances-only=1").await);
    let mut without_number = 0;
    for account in &accounts {
        let (id, currency) = (text(account, "id"), text(account, "currency"));
        let Some(number) = account["accountNumber"].as_str() else {
            without_number += 1;
            assert_eq!((currency, all[id].as_str()), ("XXX", Some("Everyday")));
            continue;
        };
        assert_eq!(
            all[id],
            format!("{currency} {} Everyday", number.trim_start_matches('x'))
        );
        // A name does not depend on which other accounts there are.
        let alone = shown(&account_set(&app, &format!("?balances-only=1&account={id}")).await);
        assert_eq!(alone[id], all[id]);
    }
    assert!(without_number > 0 && without_number < accounts.len());
}

#[tokio::test]
async fn values_agree_with_v1() {
    let app = App::start(Setup::default()).await;
    let set = account_set(&app, "").await;
    let ids: Vec<&str> = list(&set, "accounts")
        .iter()
        .map(|account| text(account, "id"))
        .collect();
    let balances = app
        .get(&format!("/v1/balances?accountIds={}", ids.join(",")))
        .await
        .data();
    let mut compared = 0;
    for account in list(&set, "accounts") {
        let balance = balances
            .iter()
            .find(|balance| balance["accountId"] == account["id"])
            .unwrap();
        assert_eq!(account["balance"], balance["currentBalance"]);
        assert_eq!(account["available-balance"], balance["availableBalance"]);
        assert_eq!(account["currency"], balance["currency"]);
        let (connection, id) = (text(account, "conn_id"), text(account, "id"));
        let path = format!("/v1/transactions?connectionId={connection}&accountId={id}&limit=500");
        for shown in app.get(&path).await.data() {
            let row = list(account, "transactions")
                .iter()
                .find(|row| row["id"] == shown["id"])
                .expect("every row");
            let (whole, fraction) = text(&shown, "amount")
                .split_once('.')
                .unwrap_or((text(&shown, "amount"), ""));
            assert_eq!(text(row, "amount"), format!("{whole}.{fraction:0<2}"));
            assert_eq!(row["description"], shown["description"]);
            assert_eq!(row["mcc"], shown["merchantCategoryCode"]);
            assert_eq!(row["extra"]["datetime"], shown["datetime"]);
            assert_eq!(
                row["extra"]["category"].is_null(),
                shown["category"].is_null()
            );
            compared += 1;
        }
    }
    assert!(compared > 50);
}

#[tokio::test]
async fn rows_beyond_the_limit_are_named() {
    let app = App::start(Setup::with_rows(10_050)).await;
    let (account, _) = app.busiest().await;
    let id = account.id.as_str();
    let set = account_set(&app, &format!("?account={id}&start-date=0")).await;
    assert_eq!(rows(&set).len(), 10_000);
    let entry = &list(&set, "errlist")[0];
    assert_eq!(
        (text(entry, "code"), text(entry, "account_id")),
        ("act.missingdata", id)
    );
}
