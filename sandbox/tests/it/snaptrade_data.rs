//! SnapTrade's seeded data: connections, accounts, balances and positions in the documented shapes.

use std::collections::BTreeSet;

use bellbird_sandbox::Options;
use serde_json::{Value, json};

use crate::client::options;
use crate::snaptrade_client::{Client, client, client_of};

fn texts(rows: &[Value], name: &str) -> BTreeSet<String> {
    rows.iter()
        .filter_map(|row| row[name].as_str())
        .map(str::to_owned)
        .collect()
}

fn names(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
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
    let shown = client.control("GET", "/credentials", Value::Null).await;
    assert_eq!(shown["credentials"].as_array().unwrap().len(), 3);
    assert_eq!(
        shown["credentials"][2]["authorizationId"],
        client.connection(2).as_str()
    );
    assert_eq!(
        shown["all"].as_array().unwrap()[..3],
        shown["credentials"].as_array().unwrap()[..]
    );
    assert_eq!(shown["all"][3]["userId"], "jack-thompson");
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
async fn connections_have_one_square_logo_and_one_wide() {
    let client = client().await;
    let connections = client.ok("/authorizations").await;
    let ids: Vec<_> = connections
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [client.connection(0), client.connection(1)]);
    let brokers: Vec<_> = connections
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["brokerage"])
        .collect();
    assert!(
        brokers[0]["aws_s3_square_logo_url"].is_string()
            && brokers[1]["aws_s3_square_logo_url"].is_null()
    );
    assert!(
        brokers
            .iter()
            .all(|broker| broker["aws_s3_logo_url"].is_string())
    );
    assert!(
        brokers
            .iter()
            .all(|broker| broker["name"].as_str().unwrap().contains("Example"))
    );
    let expected = BTreeSet::from([
        "id",
        "created_date",
        "updated_date",
        "brokerage",
        "name",
        "type",
        "disabled",
        "disabled_date",
        "meta",
        "is_eligible_for_payout",
        "data_freshness_mode",
    ]);
    assert_eq!(names(&connections[0]), expected);
    assert_eq!(
        connections[0]["data_freshness_mode"],
        json!({"institution": "realtime", "snaptrade": "delayed"})
    );
    assert_eq!(
        client.ok(&format!("/authorizations/{}", ids[1])).await,
        connections[1]
    );
    let all = client.signed("GET", "/brokerages", Value::Null).await.ok();
    assert!(all.as_array().unwrap().contains(brokers[0]));
    let types = client.signed(
        "GET",
        "/brokerageAuthorizationTypes?brokerage=SANDBOX,LAKESHORE-EXAMPLE",
        Value::Null,
    );
    let types = types.await.ok();
    assert_eq!(
        texts(types.as_array().unwrap(), "type"),
        BTreeSet::from(["read".to_owned()])
    );
    let partner = client
        .signed("GET", "/snapTrade/partners", Value::Null)
        .await
        .ok();
    assert_eq!(
        (
            &partner["allowed_brokerages"],
            &partner["can_access_trades"]
        ),
        (&all, &json!(false))
    );
    let catalogue: Value = client
        .http
        .get(format!("{}/institutions", client.base))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(catalogue[0]["slug"], "BLUEGUM-EXAMPLE");
}

#[tokio::test]
async fn accounts_are_of_every_category() {
    let client = client().await;
    let accounts = client.accounts().await;
    let shown: Vec<_> = accounts
        .iter()
        .map(|one| {
            (
                one["name"].as_str(),
                one["account_category"].as_str().unwrap(),
            )
        })
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
        first["sync_status"]["holdings"]["last_successful_sync"]
            .as_str()
            .unwrap()
            .starts_with("2026-11-21 00:43:")
    );
    let of_first = client
        .ok(&format!(
            "/authorizations/{}/accounts",
            client.connection(0)
        ))
        .await;
    assert_eq!(of_first.as_array().unwrap()[..], accounts[..4]);
    let id = first["id"].as_str().unwrap();
    assert_eq!(client.ok(&format!("/accounts/{id}")).await, *first);

    let tagged = client.ok("/accounts/all").await["results"].clone();
    let kinds: Vec<_> = tagged
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds[..5],
        [
            "investment",
            "investment",
            "deposit",
            "line_of_credit",
            "investment"
        ]
    );
    assert_eq!(
        client.ok(&format!("/accounts/{id}/details")).await,
        tagged[0]
    );
    let of_second = client
        .ok(&format!("/connections/{}/accounts", client.connection(1)))
        .await;
    assert_eq!(
        of_second["results"].as_array().unwrap()[..],
        tagged.as_array().unwrap()[4..]
    );
    assert_eq!(tagged[0]["masked_account_number"], "****3307");
    assert_eq!(tagged[1]["masked_account_number"], "****5521");
    assert_eq!(tagged[0]["cash_or_margin"], "margin");
    assert_eq!(tagged[0]["net_value"], first["balance"]["total"]);
    assert!(tagged[6]["display_name"].is_null());
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
        let positions = client.positions(account["id"].as_str().unwrap()).await;
        let shown = |position: &Value| position["instrument"]["kind"].as_str().unwrap().to_owned();
        kinds.extend(positions.iter().map(shown));
        for position in &positions {
            for name in ["units", "price", "cost_basis", "currency"] {
                assert!(position[name].is_string(), "{name} of {position}");
            }
            uuid::Uuid::try_parse(position["instrument"]["id"].as_str().unwrap()).unwrap();
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
        client.ok(&path).await["data_freshness"]["as_of"]
            .as_str()
            .unwrap()
            .len(),
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
    let below = ["positions", "options", "holdings"].map(|end| format!("/accounts/{id}/{end}"));
    for path in
        below
            .iter()
            .map(String::as_str)
            .chain(["/activities", "/holdings", "/api/v1/holdings"])
    {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 410, "{path}");
        assert_eq!(
            answer.text,
            "{\"detail\":\"This endpoint is no longer available for your account.\"}"
        );
    }
}

/// The JSON text of a response without blanks between members.
async fn compact(client: &Client, path: &str) -> String {
    client
        .get(path)
        .await
        .text
        .replace(": ", ":")
        .replace(", ", ",")
}

async fn spare_client() -> Client {
    let mut client = client().await;
    client.act_as_user_of(2);
    client
}

#[tokio::test]
async fn spare_accounts_have_odd_values() {
    let client = spare_client().await;
    let accounts = client.accounts().await;
    let (first, wallet, last) = (&accounts[0], &accounts[1], &accounts[2]);
    assert!(
        first["name"]
            .as_str()
            .unwrap()
            .contains(first["number"].as_str().unwrap())
    );
    assert!(first["account_category"].is_null() && first["raw_type"].is_null());
    assert_eq!(
        (
            wallet["number"].as_str(),
            wallet["account_category"].as_str()
        ),
        (Some("123"), Some("SOMETHING_NEW"))
    );
    assert!(
        wallet["balance"]["total"].is_null()
            && wallet["sync_status"]["transactions"]["initial_sync_completed"] == false
    );
    assert!(last["name"].is_null() && last.get("raw_type").is_none() && last["status"] == "closed");
    let id = |account: &Value| account["id"].as_str().unwrap().to_owned();
    assert_eq!(
        client
            .ok(&format!("/accounts/{}/balances", id(wallet)))
            .await,
        json!([])
    );
    let details = client.ok("/accounts/all").await;
    assert_eq!(
        (
            &details["results"][0]["kind"],
            &details["results"][1]["masked_account_number"]
        ),
        (&json!("investment"), &json!("****123"))
    );

    let text = compact(&client, "/accounts").await;
    assert!(
        text.contains("\"amount\":123456789012345678901234567890.123456789,"),
        "{text}"
    );
    let text = compact(&client, &format!("/accounts/{}/balances", id(first))).await;
    assert!(
        text.contains("\"cash\":-98765432109876543210987654321.0987654321"),
        "{text}"
    );

    let text = compact(&client, &format!("/accounts/{}/positions/all", id(first))).await;
    for odd in [
        "\"kind\":\"hologram\"",
        "\"units\":2,\"price\":64.250,\"cost_basis\":\"128.39\"",
        "\"units\":\"12\",\"price\":null,\"cost_basis\":null",
        "\"units\":null",
        "\"description\":null",
        "\"units\":1.25e3,\"price\":\"9.9E1\",\"cost_basis\":1E+2",
        "\"currency\":null}",
    ] {
        assert!(text.contains(odd), "{odd} in {text}");
    }
    let positions = client.positions(&id(first)).await;
    let twice = positions
        .iter()
        .filter(|one| one["instrument"]["symbol"] == "TWC");
    assert_eq!(twice.count(), 2);
    assert!(positions.iter().any(|one| one.get("currency").is_none()));
    assert!(
        positions
            .iter()
            .any(|one| one["units"].as_str().is_some_and(|units| units.len() > 30))
    );
}

#[tokio::test]
async fn spare_activities_have_odd_values() {
    let client = spare_client().await;
    let id = client.accounts().await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let rows = client.activities(&id).await;
    let dates: Vec<_> = rows.iter().map(|row| row["trade_date"].as_str()).collect();
    assert_eq!(
        dates,
        [
            Some("2026-11-19T00:00:00.000Z"),
            Some("2026-11-18 16:27:55.123456+00:00"),
            Some("2026-11-17"),
            Some("2026-11-16T23:59:59.999999+00:00"),
            Some("2026-11-15T15:00:00Z"),
            Some("2026-11-14T00:00:00+00:00"),
            // Clocks in New York went back on 1 November 2026, and forward on 8 March.
            Some("2026-11-02T05:00:00Z"),
            Some("2026-11-01T04:00:00Z"),
            Some("2026-03-09T04:00:00Z"),
            Some("2026-03-08T05:00:00Z"),
            None,
        ]
    );
    for name in ["price", "units", "fee", "settlement_date"] {
        assert!(rows[0][name].is_null(), "{name}");
    }
    assert_eq!(rows[1]["type"], "spend");
    assert!(rows[1]["description"].as_str().unwrap().contains("- Café"));
    assert!(rows[4]["symbol"].is_object() && rows[4]["option_symbol"].is_object());
    let path = format!("/accounts/{id}/activities");
    let text = client.get(&path).await.text;
    for odd in [
        "-123456789012345678901234567890.12345678901234567890",
        "1.0E-10",
        "2.5e3",
        "0.000000000000000000000000000000001",
    ] {
        assert!(text.contains(odd), "{odd}");
    }
    let page = client
        .ok(&format!("{path}?startDate=2026-11-17&endDate=2026-11-18"))
        .await;
    assert_eq!(page["data"].as_array().unwrap()[..], rows[1..3]);
    assert_eq!(
        client.ok(&format!("{path}?type=spend,JOURNAL")).await["pagination"]["total"],
        2
    );
}

#[tokio::test]
async fn disabled_connection_still_answers() {
    let mut client = client().await;
    let all = client.control("GET", "/credentials", Value::Null).await["all"].clone();
    let text = |name: &str| all[3][name].as_str().unwrap().to_owned();
    client.user = format!(
        "userId={}&userSecret={}&",
        text("userId"),
        text("userSecret")
    );
    let connection = client.ok("/authorizations").await[0].clone();
    assert!(connection["disabled"] == true && connection["disabled_date"].is_string());
    let accounts = client.accounts().await;
    assert_eq!(accounts[1]["account_category"], "ANNUITY");
    let id = accounts[0]["id"].as_str().unwrap();
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
