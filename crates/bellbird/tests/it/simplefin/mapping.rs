//! The whole shape of an account set, and how texts are written.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{AccountSet, account_set, ask_as};
use crate::support::database::execute;
use crate::support::harness::{App, Person, Setup};
use crate::support::process::text;

/// The whole set of a person, without the ids that differ from run to run.
async fn redacted(app: &App, person: &Person) -> Value {
    let mut set = ask_as(app, &person.key, "").await.json();
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
async fn account_sets_are_whole_and_agree_with_v1() {
    let app = App::start(Setup::default()).await;
    for (provider, snapshot) in [
        ("akahu", "account_set_of_a_bank"),
        ("snaptrade", "account_set_of_a_broker"),
    ] {
        let person = app.person_at(provider).await;
        insta::assert_json_snapshot!(snapshot, redacted(&app, &person).await);
    }

    let set = account_set(&app, "").await;
    let mut balances = app
        .balances(&app.olivia, &app.all_accounts(&app.olivia).await)
        .await;
    let mut compared = 0;
    for account in app.all_accounts(&app.olivia).await {
        let mut accounts = set.accounts.iter();
        let shown = accounts.find(|shown| shown.id == account.id).unwrap();
        let at = balances
            .iter()
            .position(|balance| balance.account_id == account.id);
        let balance = balances.swap_remove(at.unwrap());
        assert_eq!(Some(&shown.balance), balance.current_balance.as_ref());
        assert_eq!(shown.available_balance, balance.available_balance);
        assert_eq!(Some(&shown.currency), balance.currency.as_ref());
        for row in app.transactions(&account).limit(500).rows().await {
            let mut rows = shown.transactions.iter();
            let shown = rows.find(|shown| shown.id == row.id).expect("every row");
            let (whole, fraction) = row.amount.split_once('.').unwrap_or((&row.amount, ""));
            assert_eq!(shown.amount, format!("{whole}.{fraction:0<2}"));
            assert_eq!(shown.description, row.description);
            assert_eq!(shown.mcc, row.merchant_category_code);
            assert_eq!(shown.extra.datetime, row.datetime);
            assert_eq!(shown.extra.category.is_none(), row.category.is_none());
            compared += 1;
        }
    }
    assert!(compared > 50);
}

#[tokio::test]
async fn names_begin_with_currency_and_untrusted_texts_stay() {
    let app = App::start(Setup::default()).await;
    let unknown =
        "UPDATE accounts SET masked_number = NULL, currency = 'XXX' WHERE account_type = 'loan'";
    for sql in ["UPDATE accounts SET name = 'Everyday'", unknown] {
        execute(&app.shared.database, sql, "").await;
    }
    let names = |set: AccountSet| -> BTreeMap<String, String> {
        let accounts = set.accounts.into_iter();
        accounts.map(|account| (account.id, account.name)).collect()
    };
    let accounts = app.all_accounts(&app.olivia).await;
    let all = names(account_set(&app, "?balances-only=1").await);
    let mut without_number = 0;
    for account in &accounts {
        let (id, currency) = (&account.id, &account.currency);
        let Some(number) = &account.account_number else {
            without_number += 1;
            assert_eq!(currency, "XXX");
            assert_eq!(all[id], "Everyday");
            continue;
        };
        let digits = number.trim_start_matches('x');
        assert_eq!(all[id], format!("{currency} {digits} Everyday"));
        // A name does not depend on which other accounts there are.
        let query = format!("?balances-only=1&account={id}");
        assert_eq!(names(account_set(&app, &query).await)[id], all[id]);
    }
    assert!(without_number > 0 && without_number < accounts.len());

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
    let set = account_set(&app, &format!("?account={}", account.id)).await;
    for description in texts {
        let mut rows = set.rows().into_iter();
        let is_there = rows.any(|row| row.description == description);
        assert!(is_there, "{description:?}");
    }
}

#[tokio::test]
async fn rows_beyond_the_limit_are_named() {
    let app = App::start(Setup::with_rows(10_050)).await;
    let (account, _) = app.busiest().await;
    let id = &account.id;
    let set = account_set(&app, &format!("?account={id}&start-date=0")).await;
    assert_eq!(set.rows().len(), 10_000);
    let error = &set.errlist[0];
    assert_eq!(error.code, "act.missingdata");
    assert_eq!(error.account_id.as_ref(), Some(id));
}
