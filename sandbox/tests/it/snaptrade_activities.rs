//! SnapTrade's activities: the rows of the busiest account, filters and pages.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::client::{list_of, text_of};
use crate::snaptrade_client::client;

const TYPES: &str = "
    ADJUSTMENT BUY CONTRIBUTION DISTRIBUTION DIVIDEND EXTERNAL_ASSET_TRANSFER_IN
    EXTERNAL_ASSET_TRANSFER_OUT FEE INTEREST INTERNAL_ASSET_TRANSFER_IN
    INTERNAL_ASSET_TRANSFER_OUT INTERNAL_CASH_TRANSFER_IN INTERNAL_CASH_TRANSFER_OUT
    OPTIONASSIGNMENT OPTIONEXERCISE OPTIONEXPIRATION REBATE REI RETURN_OF_CAPITAL REVERSE_SPLIT
    SELL SPINOFF SPLIT STOCK_DIVIDEND STOCK_MERGER SUBSTITUTE_DIVIDEND TAX TRANSFER WITHDRAWAL";

fn instant(row: &Value) -> jiff::Timestamp {
    text_of(&row["trade_date"]).parse().unwrap()
}

#[tokio::test]
async fn the_busiest_account_shows_every_type() {
    let client = client().await;
    let rows = client
        .activities(&client.account("Bluegum Individual Margin").await)
        .await;
    assert_eq!(rows.len(), 1500);
    let types: BTreeSet<_> = rows.iter().map(|row| text_of(&row["type"])).collect();
    let expected: BTreeSet<&str> = TYPES.split_whitespace().collect();
    assert_eq!(types, expected);
    assert!(
        rows.is_sorted_by(|one, next| instant(one) >= instant(next)),
        "newest first"
    );
    assert_eq!(
        instant(&rows[0]).to_string()[..10],
        *"2026-11-20",
        "yesterday's, and never today's"
    );
    assert_eq!(
        instant(&rows[1499]).to_string()[..7],
        *"2023-11",
        "about three years"
    );
    let ids: BTreeSet<_> = rows.iter().map(|row| text_of(&row["id"])).collect();
    assert_eq!(ids.len(), 1500);
    let members: BTreeSet<_> = rows[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected =
        "id symbol currency_universal_symbol option_symbol price units amount currency type
        option_type description trade_date settlement_date fee fx_rate institution
        external_reference_id";
    let expected: BTreeSet<&str> = expected.split_whitespace().collect();
    assert_eq!(members, expected);
    for row in &rows {
        let sign = |name: &str| row[name].as_f64().unwrap();
        match text_of(&row["type"]) {
            "BUY" | "REI" => assert!(sign("units") > 0.0 && sign("amount") < 0.0, "{row}"),
            "SELL" => assert!(sign("units") < 0.0 && sign("amount") > 0.0, "{row}"),
            "SPLIT" => assert!(sign("units") > 0.0, "{row}"),
            "REVERSE_SPLIT" => assert!(sign("units") < 0.0, "{row}"),
            _ => {}
        }
    }
    let sides: BTreeSet<_> = rows
        .iter()
        .map(|row| text_of(&row["option_type"]))
        .collect();
    assert_eq!(
        sides,
        BTreeSet::from([
            "",
            "BUY_TO_CLOSE",
            "BUY_TO_OPEN",
            "SELL_TO_CLOSE",
            "SELL_TO_OPEN"
        ])
    );
    for row in rows.iter().filter(|row| row["option_type"] != "") {
        assert!(
            row["symbol"].is_null() && row["option_symbol"]["ticker"].is_string(),
            "{row}"
        );
    }
}

#[tokio::test]
async fn fills_repeat_and_days_have_several_rows() {
    let client = client().await;
    let rows = client
        .activities(&client.account("Bluegum Individual Margin").await)
        .await;
    let mut equal: BTreeMap<String, u32> = BTreeMap::new();
    for row in &rows {
        let parts = [
            "trade_date",
            "settlement_date",
            "type",
            "units",
            "price",
            "amount",
            "fee",
        ];
        let key: String =
            parts.map(|name| row[name].to_string()).concat() + &row["symbol"]["symbol"].to_string();
        *equal.entry(key).or_default() += 1;
    }
    assert!(
        equal.values().any(|count| *count >= 2),
        "two fills differ in nothing but the id"
    );
    let same_instant = rows
        .windows(2)
        .filter(|pair| pair[0]["trade_date"] == pair[1]["trade_date"]);
    assert!(same_instant.count() > 20);
    // Clocks in New York went forward on 8 March 2026 at 07:00 UTC, and back on 1 November at
    // 06:00.
    let dates: BTreeSet<_> = rows.iter().map(|row| text_of(&row["trade_date"])).collect();
    for date in [
        "2026-03-08T06:59:59Z",
        "2026-03-08T07:00:00Z",
        "2026-11-01T05:59:59Z",
        "2026-11-01T06:00:00Z",
    ] {
        assert!(dates.contains(date), "{date}");
    }
    let tfsa = client
        .activities(&client.account("Lakeshore TFSA").await)
        .await;
    for (hour, month) in [("T04:00:00Z", "-07-"), ("T05:00:00Z", "-01-")] {
        let of_month = |row: &&Value| text_of(&row["trade_date"]).contains(month);
        assert!(
            tfsa.iter()
                .filter(of_month)
                .all(|row| text_of(&row["trade_date"]).ends_with(hour))
        );
    }
    assert!(
        tfsa.iter()
            .any(|row| row["fx_rate"].is_number() && row["currency"]["code"] == "USD")
    );
}

#[tokio::test]
async fn crypto_trades_are_paid_in_crypto() {
    let client = client().await;
    let rows = client
        .activities(&client.account("Lakeshore Crypto").await)
        .await;
    assert!(rows.iter().all(|row| row["currency"].is_null()));
    assert!(
        rows.iter()
            .all(|row| row["currency_universal_symbol"]["symbol"] == "USDC")
    );
    assert!(
        rows.iter()
            .all(|row| row["symbol"].get("exchange").is_none())
    );
    let decimals = |row: &Value| {
        row["units"]
            .to_string()
            .split_once('.')
            .map_or(0, |(_, decimals)| decimals.len())
    };
    assert!(rows.iter().any(|row| decimals(row) == 9));
}

#[tokio::test]
async fn activities_are_filtered_by_day_type_and_page() {
    let client = client().await;
    let id = client.account("Bluegum Individual Margin").await;
    let all = client.activities(&id).await;
    let path = format!("/accounts/{id}/activities");
    let page = async |query: &str| client.ok(&format!("{path}?{query}")).await;

    let first = client.ok(&path).await;
    assert_eq!(
        first["pagination"],
        serde_json::json!({"offset": 0, "limit": 1000, "total": 1500})
    );
    assert_eq!(list_of(&first["data"]).len(), 1000);
    assert_eq!(page("limit=5000").await["pagination"]["limit"], 1000);
    let middle = page("offset=40&limit=7").await;
    assert_eq!(list_of(&middle["data"])[..], all[40..47]);
    let past = page("offset=1500&limit=10").await;
    assert_eq!(
        (
            list_of(&past["data"]).len(),
            past["pagination"]["total"].as_u64()
        ),
        (0, Some(1500))
    );

    let day = |row: &Value| text_of(&row["trade_date"])[..10].to_owned();
    let (from, to) = (day(&all[300]), day(&all[200]));
    let within: Vec<_> = all
        .iter()
        .filter(|row| (&from..=&to).contains(&&day(row)))
        .cloned()
        .collect();
    let shown = page(&format!("startDate={from}&endDate={to}")).await;
    assert_eq!(list_of(&shown["data"]), &within, "both ends are included");
    assert_eq!(shown["pagination"]["total"], within.len());
    let one_day = page(&format!("startDate={from}&endDate={from}")).await;
    assert!(list_of(&one_day["data"]).iter().all(|row| day(row) == from));
    assert_eq!(
        page(&format!("startDate={to}&endDate={from}")).await["pagination"]["total"],
        0
    );
    let bought: Vec<_> = within
        .iter()
        .filter(|row| row["type"] == "BUY" || row["type"] == "SPLIT")
        .cloned()
        .collect();
    let shown = page(&format!(
        "startDate={from}&endDate={to}&type=BUY%2CSPLIT&offset=3"
    ))
    .await;
    assert_eq!(list_of(&shown["data"])[..], bought[3..]);
    assert_eq!(shown["pagination"]["total"], bought.len());
    assert_eq!(page("type=NOTHING").await["data"], serde_json::json!([]));
    for bad in [
        "startDate=2026-02-30",
        "endDate=yesterday",
        "startDate=2026-1-1",
        "limit=0",
        "limit=x",
        "offset=-1",
    ] {
        assert_eq!(
            client.get(&format!("{path}?{bad}")).await.error(),
            (400, "1012".to_owned()),
            "{bad}"
        );
    }
}
