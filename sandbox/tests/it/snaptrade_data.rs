//! SnapTrade's seeded data: connections, accounts, balances and positions in the documented shapes.

use std::collections::BTreeSet;

use bellbird_sandbox::Options;
use serde_json::{Value, json};

use crate::client::{options, text_of};
use crate::snaptrade_client::{client, client_of};

fn texts(rows: &[Value], name: &str) -> BTreeSet<String> {
    rows.iter()
        .filter_map(|row| row[name].as_str())
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn credentials_are_two_of_olivia_and_one_spare() {
    let client = client().await;
    let credentials = client.credentials();
    let users: Vec<_> = credentials.iter().map(|(user, ..)| user.as_str()).collect();
    assert_eq!(users, ["olivia-nguyen", "olivia-nguyen", "priya-sharma"]);
    for (_, secret, connection) in &credentials {
        uuid::Uuid::try_parse(secret).unwrap();
        uuid::Uuid::try_parse(connection).unwrap();
    }
    let all = json!(client.bank().all_credentials());
    assert_eq!(all[2]["authorizationId"], client.connection(2).as_str());
    assert_eq!(all[3]["userId"], "jack-thompson");
    let access = &client.sandbox.description().snaptrade;
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    assert!(
        plain(&access.client_id) && plain(&access.consumer_key) && access.consumer_key.len() == 50
    );
}

#[tokio::test]
async fn accounts_are_of_every_category() {
    let client = client().await;
    let accounts = client.accounts().await;
    let shown: Vec<_> = accounts
        .iter()
        .map(|one| (one["name"].as_str(), text_of(&one["account_category"])))
        .collect();
    assert_eq!(
        shown,
        [
            (Some("Bluegum Individual Margin"), "INVESTMENT"),
            (Some("Bluegum Futures"), "INVESTMENT"),
            (Some("Bluegum Cash Management"), "DEPOSIT"),
            (Some("Bluegum Line of Credit"), "LOC"),
            (Some("Lakeshore TFSA"), "INVESTMENT"),
            (Some("Lakeshore Crypto"), "INVESTMENT"),
            (None, "INVESTMENT"),
        ]
    );
    let first = &accounts[0];
    assert_eq!(
        first["brokerage_authorization"],
        client.connection(0).as_str()
    );
    assert_eq!(
        first["balance"],
        json!({"total": {"amount": 152_363.23, "currency": "USD"}})
    );
    assert!(
        text_of(&first["sync_status"]["holdings"]["last_successful_sync"])
            .starts_with("2026-11-21 00:43:")
    );
    let of_first = client
        .ok(&format!(
            "/authorizations/{}/accounts",
            client.connection(0)
        ))
        .await;
    assert_eq!(of_first.as_array().unwrap()[..], accounts[..4]);
}

#[tokio::test]
async fn balances_are_numbers_in_several_currencies() {
    let client = client().await;
    let id = client.account("Bluegum Individual Margin").await;
    let answer = client.get(&format!("/accounts/{id}/balances")).await;
    for digits in [
        "\"cash\":-4210.71",
        "\"buying_power\":18400.05",
        "\"cash\":0.0",
    ] {
        assert!(answer.text.contains(digits), "{digits} in {}", answer.text);
    }
    let codes: Vec<_> = answer
        .ok()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["currency"]["code"].clone())
        .collect();
    assert_eq!(codes, ["USD", "CAD", "AUD"]);
}

#[tokio::test]
async fn positions_are_of_every_kind() {
    let client = client().await;
    let mut kinds = BTreeSet::new();
    for account in client.accounts().await {
        let positions = client.positions(text_of(&account["id"])).await;
        let shown = |position: &Value| text_of(&position["instrument"]["kind"]).to_owned();
        kinds.extend(positions.iter().map(shown));
        for position in &positions {
            for name in ["units", "price", "cost_basis", "currency"] {
                assert!(position[name].is_string(), "{name} of {position}");
            }
            uuid::Uuid::try_parse(text_of(&position["instrument"]["id"])).unwrap();
        }
    }
    let expected = [
        "adr",
        "bond",
        "cef",
        "cfd",
        "crypto",
        "etf",
        "future",
        "future_option",
        "mutualfund",
        "option",
        "other",
        "stock",
        "tokenized_asset",
    ];
    assert_eq!(kinds, expected.map(str::to_owned).into());

    let margin = client
        .positions(&client.account("Bluegum Individual Margin").await)
        .await;
    let of = |symbol: &str| {
        margin
            .iter()
            .find(|one| one["instrument"]["symbol"] == symbol)
            .unwrap()
    };
    assert_eq!(of("EXRB")["units"], "10.53817");
    assert_eq!(of("FABL")["units"], "-75");
    assert_eq!(
        (
            of("EXMXX")["cash_equivalent"].as_bool(),
            of("EXMXX")["instrument"]["exchange"].is_null()
        ),
        (Some(true), true)
    );
    // Options expire on the third Friday, two and four months after November 2026.
    let call = of("EXRB  270115C00200000");
    assert_eq!(
        (
            call["units"].as_str(),
            call["instrument"]["multiplier"].as_str()
        ),
        (Some("3"), Some("100"))
    );
    assert_eq!(call["instrument"]["expiration_date"], "2027-01-15");
    assert_eq!(
        call["instrument"]["underlying"]["id"],
        of("EXRB")["instrument"]["id"]
    );
    assert_eq!(of("EXTM  270319P00280000")["units"], "-2");

    let futures = client
        .positions(&client.account("Bluegum Futures").await)
        .await;
    assert_eq!(futures[0]["instrument"]["multiplier"], "50");
    assert!(
        futures[1]["instrument"]["multiplier"].is_null()
            && futures[1]["instrument"]["expiration_date"].is_null()
    );
    assert_eq!(
        futures[2]["instrument"]["underlying"],
        futures[0]["instrument"]
    );
    let crypto = client
        .positions(&client.account("Lakeshore Crypto").await)
        .await;
    assert!(crypto[0]["instrument"].get("exchange").is_none());
    assert_eq!(crypto[1]["units"], "3.500000000000000001");
    let tfsa = client
        .positions(&client.account("Lakeshore TFSA").await)
        .await;
    assert_eq!(
        texts(&tfsa, "currency"),
        BTreeSet::from(["CAD".to_owned(), "USD".to_owned()])
    );
    assert_eq!(tfsa[0]["instrument"]["symbol"], "VXB.TO");
    let path = format!(
        "/accounts/{}/positions/all",
        client.account("Lakeshore TFSA").await
    );
    assert_eq!(
        text_of(&client.ok(&path).await["data_freshness"]["as_of"]).len(),
        "2026-06-02T14:30:00Z".len()
    );
    assert_eq!(
        client
            .positions(&client.account("Bluegum Line of Credit").await)
            .await,
        [] as [Value; 0]
    );
}

#[tokio::test]
async fn retired_endpoints_answer_410() {
    let client = client().await;
    let id = client.account("Lakeshore TFSA").await;
    let of_account = |end: &str| format!("/accounts/{id}/{end}");
    let retired = [
        of_account("holdings"),
        of_account("options"),
        of_account("positions"),
        "/activities".to_owned(),
        "/holdings".to_owned(),
    ];
    let paths = retired.map(|path| [path.clone(), format!("/api/v1{path}")]);
    for path in paths.concat() {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 410, "{path}");
        assert_eq!(
            answer.text,
            "{\"detail\":\"This endpoint is no longer available for your account.\"}"
        );
    }
}

#[tokio::test]
async fn disabled_connection_still_answers() {
    let mut client = client().await;
    let all = json!(client.bank().all_credentials());
    let text = |name: &str| text_of(&all[3][name]).to_owned();
    client.user = format!(
        "userId={}&userSecret={}&",
        text("userId"),
        text("userSecret")
    );
    let connection = client.ok("/authorizations").await[0].clone();
    assert!(connection["disabled"] == true && connection["disabled_date"].is_string());
    let accounts = client.accounts().await;
    assert_eq!(accounts[1]["account_category"], "ANNUITY");
    let id = text_of(&accounts[0]["id"]);
    assert_eq!(client.positions(id).await.len(), 1);
    assert_eq!(client.activities(id).await.len(), 40);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_world_on_another_day() {
    let all = async |seed: u64, now: &str| {
        let client = client_of(Options {
            seed,
            now: Some(now.parse().unwrap()),
            ..options(1)
        })
        .await;
        let id = client.account("Bluegum Individual Margin").await;
        let rows = client.activities(&id).await;
        let of = |row: &Value| {
            ["id", "type", "amount", "units", "description"].map(|name| row[name].to_string())
        };
        let mut rows: Vec<_> = rows.iter().map(of).collect();
        rows.sort();
        let held = client
            .positions(&id)
            .await
            .iter()
            .map(|one| one["instrument"]["id"].clone())
            .collect::<Vec<_>>();
        (client.credentials(), client.client_id, held, rows)
    };
    let one = all(7, "2026-11-21T01:30:00Z").await;
    assert!(one == all(7, "2027-06-13T22:00:00Z").await);
    let other = all(8, "2026-11-21T01:30:00Z").await;
    assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2 && one.3 != other.3);
}
