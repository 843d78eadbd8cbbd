//! The REST API over Akahu: New Zealand days, categories, one token for several logins, and pages
//! of 100 rows.

use std::collections::BTreeSet;

use bellbird_domain::{Category, Plan};
use bellbird_sandbox::ConsentState;
use serde_json::json;

use crate::support::client::{Account, Page, Transaction};
use crate::support::harness::{App, Person, Setup, assert_reconnect, eventually};
use crate::support::process::text;
use crate::support::words::{assert_has, assert_lacks};

const PROVIDER: &str = "akahu";

/// An account of this type, and its id at the provider.
async fn account_of(app: &App, person: &Person, kind: &str) -> (Account, String) {
    let accounts = app.accounts_by(person).await;
    let mut accounts = accounts.into_iter();
    accounts
        .find(|(account, _)| account.r#type == kind)
        .expect(kind)
}

fn page_calls(app: &App) -> u64 {
    let calls = app.bank(PROVIDER).calls().into_iter();
    let of_pages = calls.filter(|(path, _)| path.ends_with("/transactions"));
    of_pages.map(|(_, count)| count).sum()
}

#[tokio::test]
async fn rows_and_days_of_one_token_with_several_connections() {
    let app = App::start(Setup::default()).await;
    let token = app.credentials_of(PROVIDER)[0]["userToken"].clone();
    let credentials = json!({"provider": PROVIDER, "userToken": token});
    let kiri = app
        .add_person("kiri@example.com", Plan::Professional, &[&credentials])
        .await;
    // Every login that the token covers.
    let [one, other] = &kiri.connections[..] else {
        panic!("{:?}", kiri.connections)
    };
    assert_ne!(one.institution_id, other.institution_id);
    let accounts = app.all_accounts(&kiri).await;
    let types: BTreeSet<&str> = accounts.iter().map(|account| &*account.r#type).collect();
    let types: Vec<_> = types.into_iter().collect();
    assert_eq!(
        types.join(" "),
        "credit-card investment loan other savings term-deposit transaction"
    );
    for account in &accounts {
        if let Some(number) = &account.account_number {
            assert!(number.len() == 8 && number.starts_with("xxxx"), "{number}");
        }
    }
    // One call reads all their balances.
    app.reset_calls();
    let balances = app.balances(&kiri, &accounts).await;
    assert_eq!(balances.len(), accounts.len());
    let calls = app.bank(PROVIDER).calls();
    assert_eq!(calls, [("/v1/accounts".to_owned(), 1)].into());
    app.reset_calls();
    pending_rows_are_skipped_categories_are_mapped(&app, &kiri).await;
    timezone_never_shifts_a_day(&app, &kiri).await;
    five_thousand_rows_cost_few_extra_calls(&app, &kiri).await;
    paging_is_consistent_while_rows_appear(&app, &kiri).await;
    inactive_login_is_served_revoked_token_is_503(&app, &kiri).await;
}

async fn five_thousand_rows_cost_few_extra_calls(app: &App, kiri: &Person) {
    let (account, at_provider) = account_of(app, kiri, "transaction").await;
    app.bank(PROVIDER).fill(&at_provider, 5_000).unwrap();
    app.reset_calls();
    let read = app.transactions(&account).by(kiri).from("2020-01-01");
    let rows = read.all(200).await;
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(rows.len(), 5_000);
    assert_eq!(ids.len(), 5_000, "each row once");
    let calls = page_calls(app);
    assert!((50..=125).contains(&calls), "{calls}");
    let all_calls = app.bank(PROVIDER).total_calls();
    assert_eq!(all_calls, calls, "every call reads a page");
}

/// Most banks date a new row with a day that began hours ago, so it sorts among rows that the
/// client has read already.
async fn paging_is_consistent_while_rows_appear(app: &App, kiri: &Person) {
    let (account, at_provider) = account_of(app, kiri, "transaction").await;
    app.bank(PROVIDER).fill(&at_provider, 320).unwrap();
    let read = app.transactions(&account).by(kiri).from("2019-01-01");
    let before = read.all(500).await;
    for limit in [10, 30, 70, 200] {
        let mut rows: Vec<Transaction> = Vec::new();
        loop {
            let page = read.clone().limit(limit).offset(rows.len()).page().await;
            rows.extend(page.rows);
            if !page.pagination.has_more {
                assert_eq!(page.pagination.total, i64::try_from(rows.len()).unwrap());
                break;
            }
            let row = json!({"_account": at_provider, "date": "2026-11-19T11:00:00.000Z", "amount": -1.5,
                "description": "added meanwhile"});
            app.bank(PROVIDER).add_row(&row).unwrap();
        }
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len(), "{limit}: a row came twice");
        rows.retain(|row| row.description != "added meanwhile");
        assert_eq!(rows, before, "{limit}");
    }
    // A new reading includes the new rows.
    let after = read.clone().limit(500).rows().await;
    assert!(after.len() > before.len());
    // An empty page is not the end.
    let rows = read.all(150).await;
    app.bank(PROVIDER).empty_pages(2);
    assert_eq!(read.all(150).await, rows);
    app.bank(PROVIDER).empty_pages(0);
}

async fn timezone_never_shifts_a_day(app: &App, kiri: &Person) {
    let (account, at_provider) = account_of(app, kiri, "savings").await;
    // Midnight in New Zealand, on both sides of both changes of the clock; and 00:00 UTC, as a card
    // issuer sends it.
    let days = [
        ("2025-09-27T12:00:00.000Z", "2025-09-28"),
        ("2025-09-28T11:00:00.000Z", "2025-09-29"),
        ("2026-04-04T11:00:00.000Z", "2026-04-05"),
        ("2026-04-05T12:00:00.000Z", "2026-04-06"),
        ("2026-05-10T00:00:00.000Z", "2026-05-10"),
    ];
    let read = || app.transactions(&account).by(kiri);
    read().from("2000-01-01").limit(1).page().await;
    for (date, _) in days {
        let row = json!({"_account": at_provider, "date": date, "description": format!("day {date}"), "amount": -1});
        app.bank(PROVIDER).add_row(&row).unwrap();
    }
    for zone in [
        "Australia/Sydney",
        "Pacific/Auckland",
        "America/Los_Angeles",
        "Pacific/Kiritimati",
        "UTC",
    ] {
        app.set_timezone(kiri.user.id, zone).await;
        for (date, day) in days {
            let rows = read().from(day).to(day).rows().await;
            let of_day = format!("day {date}");
            let row = rows.iter().find(|row| row.description == of_day);
            let row = row.unwrap_or_else(|| panic!("{day} is missing in {zone}"));
            assert_eq!(row.date, day, "{zone}");
            assert_eq!(row.datetime, date, "{zone}");
            assert!(rows.iter().all(|row| row.date == day), "{zone} {day}");
        }
    }
}

async fn pending_rows_are_skipped_categories_are_mapped(app: &App, kiri: &Person) {
    let mut categories = BTreeSet::new();
    for connection in &kiri.connections {
        let read = app.all_transactions(connection.id).by(kiri);
        let (read, mut offset) = (read.from("2000-01-01").limit(500), 0);
        loop {
            let response = read.clone().offset(offset).send().await;
            assert_eq!(response.header("deprecation"), Some("true"));
            let page = response.read::<Page<Transaction>>();
            assert!(page.rows.iter().all(|row| row.status == "posted"));
            categories.extend(page.rows.into_iter().filter_map(|row| row.category));
            offset += 500;
            if !page.pagination.has_more {
                break;
            }
        }
    }
    let all = Category::ALL
        .iter()
        .map(|category| category.key().to_owned());
    assert_eq!(categories, BTreeSet::from_iter(all));
    for path in app.bank(PROVIDER).calls().keys() {
        assert_lacks(path, "pending");
    }
}

async fn inactive_login_is_served_revoked_token_is_503(app: &App, kiri: &Person) {
    let all_credentials = app.credentials_of(PROVIDER);
    let authorisation = text(&all_credentials[0], "authorisation");
    app.bank(PROVIDER)
        .set_consent(authorisation, ConsentState::Expired)
        .unwrap();
    let (account, _) = account_of(app, kiri, "transaction").await;
    let read = app.transactions(&account).by(kiri);
    // A read succeeds while the provider answers.
    assert_eq!(read.send().await.status, 200);
    // An import of it fails and says why.
    let email = "other@example.com";
    let other = app.add_person(email, Plan::Developer, &[]).await;
    let rejected = app.import(other.user.id, &all_credentials[0]).await;
    assert_has(&rejected.unwrap_err().to_string(), "invalidated");

    // An import of the whole token imports the working login and names the other.
    let whole = json!({"provider": PROVIDER, "userToken": all_credentials[0]["userToken"]});
    let renewed = app.import(kiri.user.id, &whole).await.unwrap();
    assert_eq!(renewed.connections.len(), 1);
    assert_eq!(renewed.skipped.len(), 1);
    assert_has(&renewed.skipped[0].reason.to_string(), "invalidated");

    let token = text(&all_credentials[0], "userToken");
    app.bank(PROVIDER).set_user(token, false).unwrap();
    assert_reconnect(&read.limit(3).send().await, "invalidated");
    eventually(async || {
        app.connections.jobs().run_due("refresh").await.unwrap();
        let shown = app.get_as(&kiri.key, "/v1/connections").await.data();
        let mut statuses = shown.iter().map(|connection| &connection["status"]);
        statuses.any(|status| status == "revoked")
    })
    .await;
}
