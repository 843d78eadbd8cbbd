//! Akahu's seeded data: every account type, category and date edge, and the odd values of the spare
//! user.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use serde_json::{Value, json};

use crate::akahu_client::{NOW, akahu, answer, date};

#[tokio::test]
async fn first_user_has_every_type_of_account() {
    let akahu = akahu().await;
    let accounts = akahu.accounts().await;
    let types: BTreeSet<&str> = accounts
        .iter()
        .map(|account| account["type"].as_str().unwrap())
        .collect();
    let expected = BTreeSet::from([
        "CHECKING",
        "SAVINGS",
        "CREDITCARD",
        "LOAN",
        "KIWISAVER",
        "INVESTMENT",
        "TERMDEPOSIT",
        "FOREIGN",
        "TAX",
        "REWARDS",
        "WALLET",
    ]);
    assert_eq!(types, expected);
    let logins: Vec<&str> = accounts
        .iter()
        .map(|account| account["_authorisation"].as_str().unwrap())
        .collect();
    assert_eq!(
        (logins[0], logins[logins.len() - 1]),
        (
            akahu.credentials(0).1.as_str(),
            akahu.credentials(1).1.as_str()
        )
    );
    let known = ["TRANSACTIONS", "PAYMENT_TO", "PAYMENT_FROM"];
    for account in &accounts {
        assert_eq!(account["status"], "ACTIVE");
        assert!(
            account["balance"]["current"].is_number() && account["balance"]["currency"].is_string()
        );
        assert!(
            account["refreshed"]["balance"]
                .as_str()
                .unwrap()
                .ends_with(".000Z")
        );
        assert_eq!(account["connection"]["connection_type"], "classic");
        let attributes = account["attributes"].as_array().unwrap();
        assert!(
            attributes
                .iter()
                .all(|one| known.contains(&one.as_str().unwrap()))
        );
        let has_rows = attributes.contains(&json!("TRANSACTIONS"));
        assert_eq!(
            account["refreshed"].get("transactions").is_some(),
            has_rows,
            "{}",
            account["name"]
        );
        let path = format!(
            "/accounts/{}/transactions",
            account["_id"].as_str().unwrap()
        );
        assert_eq!(
            !akahu.rows(&path).await.is_empty(),
            has_rows,
            "{}",
            account["name"]
        );
    }
    let card = akahu.account("CREDITCARD").await;
    assert_eq!(card["formatted_account"], "4988-****-****-1267");
    assert_eq!(
        (&card["balance"]["current"], &card["balance"]["overdrawn"]),
        (&json!(-1842.67), &json!(false))
    );
    assert!(
        akahu.account("LOAN").await["balance"]["current"]
            .as_f64()
            .unwrap()
            < 0.0
    );
    assert_eq!(akahu.account("FOREIGN").await["balance"]["currency"], "USD");
    assert_eq!(
        akahu.account("TAX").await["formatted_account"],
        "049-091-850"
    );
    assert!(
        akahu
            .account("WALLET")
            .await
            .get("formatted_account")
            .is_none()
    );
}

#[tokio::test]
async fn rows_surround_midnights_and_clock_changes() {
    let akahu = akahu().await;
    let rows = akahu.rows(&akahu.rows_path("CHECKING").await).await;
    let now: Timestamp = NOW.parse().unwrap();
    let auckland = TimeZone::get("Pacific/Auckland").unwrap();
    let day = |row: &Value| auckland.to_datetime(date(row)).date();
    assert_eq!(
        day(&rows[0]),
        auckland.to_datetime(now).date().yesterday().unwrap(),
        "the newest is yesterday's"
    );
    for row in &rows {
        assert!(date(row) < now);
        for name in ["created_at", "updated_at", "date"] {
            let text = row[name].as_str().unwrap();
            assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
            assert!(text.parse::<Timestamp>().unwrap() <= now);
        }
        assert!(row["created_at"].as_str() <= row["updated_at"].as_str());
    }
    let dates: BTreeSet<Timestamp> = rows.iter().map(date).collect();
    let has = |text: &str| {
        assert!(
            dates.contains(&text.parse::<Timestamp>().unwrap()),
            "{text}"
        )
    };
    // Midnights around the end of summer time on 5 April 2026 and its start on 27 September 2026.
    for midnight in [
        "2026-04-03T11:00:00Z",
        "2026-04-04T11:00:00Z",
        "2026-04-05T12:00:00Z",
    ] {
        has(midnight);
    }
    for midnight in [
        "2026-09-25T12:00:00Z",
        "2026-09-26T12:00:00Z",
        "2026-09-27T11:00:00Z",
    ] {
        has(midnight);
    }
    for change in [
        "2026-04-04T13:59:59.999Z",
        "2026-04-04T14:00:00Z",
        "2026-09-26T13:59:59.999Z",
    ] {
        has(change);
    }
    for zone in ["Pacific/Auckland", "Australia/Sydney", "UTC"] {
        let zone = TimeZone::get(zone).unwrap();
        let today = zone.to_datetime(now).date();
        for back in [2, 5, 30] {
            let day = today.saturating_sub(jiff::ToSpan::days(back));
            let midnight = zone.to_timestamp(day.at(0, 0, 0, 0)).unwrap();
            has(&midnight.to_string());
            has(&(midnight - jiff::SignedDuration::from_millis(1)).to_string());
        }
    }
    let mut per_instant: BTreeMap<Timestamp, usize> = BTreeMap::new();
    rows.iter()
        .for_each(|row| *per_instant.entry(date(row)).or_default() += 1);
    assert!(per_instant.values().any(|count| *count >= 6));
    let is_midnight =
        |row: &&Value| auckland.to_datetime(date(row)).time() == civil::Time::midnight();
    let days_only = rows.iter().filter(is_midnight).count();
    assert!(
        days_only * 3 > rows.len() && days_only < rows.len() * 9 / 10,
        "{days_only} of {}",
        rows.len()
    );
    let oldest = date(rows.last().unwrap());
    assert!(now.duration_since(oldest).as_hours() / 24 > 1000);
    assert!(
        rows.iter()
            .any(|row| row["updated_at"] != row["created_at"]),
        "enriched later"
    );
}

#[tokio::test]
async fn amounts_are_plain_and_balances_add_up() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let text = akahu.get(&path).await.text().await.unwrap();
    let amounts: Vec<&str> = text
        .split("\"amount\":")
        .skip(1)
        .map(|rest| rest.split([',', '}']).next().unwrap())
        .collect();
    assert!(amounts.iter().all(|amount| !amount.starts_with('"')));
    assert!(
        amounts
            .iter()
            .all(|amount| !amount.contains('.') || !amount.ends_with('0')),
        "{amounts:?}"
    );
    assert!(amounts.iter().any(|amount| !amount.contains('.')));
    let rows = akahu.rows(&path).await;
    let cents = |value: &Value| (value.as_f64().unwrap() * 100.0).round() as i64;
    assert_eq!(
        rows[0]["balance"],
        akahu.account("CHECKING").await["balance"]["current"]
    );
    for pair in rows.windows(2) {
        assert_eq!(
            cents(&pair[0]["balance"]) - cents(&pair[0]["amount"]),
            cents(&pair[1]["balance"])
        );
    }
    let card = akahu.rows(&akahu.rows_path("CREDITCARD").await).await;
    assert!(card.iter().all(|row| row.get("balance").is_none()));
    assert!(
        card.iter()
            .any(|row| row["type"] == "CREDIT CARD" && row["amount"].as_f64().unwrap() > 0.0)
    );
}

#[tokio::test]
async fn every_type_and_category_key_occurs() {
    let akahu = akahu().await;
    let rows = akahu.rows("/transactions").await;
    let types: BTreeSet<&str> = rows
        .iter()
        .map(|row| row["type"].as_str().unwrap())
        .collect();
    let expected = BTreeSet::from([
        "CREDIT",
        "DEBIT",
        "PAYMENT",
        "TRANSFER",
        "STANDING ORDER",
        "EFTPOS",
        "INTEREST",
        "FEE",
        "TAX",
        "CREDIT CARD",
        "DIRECT DEBIT",
        "DIRECT CREDIT",
        "ATM",
        "LOAN",
    ]);
    assert_eq!(types, expected);
    let categories = answer(akahu.app("/categories")).await["items"]
        .as_array()
        .unwrap()
        .clone();
    let by_id: BTreeMap<&str, &Value> = categories
        .iter()
        .map(|one| (one["_id"].as_str().unwrap(), one))
        .collect();
    let main = akahu.rows(&akahu.rows_path("CHECKING").await).await;
    let mut names = BTreeSet::new();
    for row in &main {
        assert_eq!(
            row.get("merchant").is_some(),
            row.get("category").is_some(),
            "they come together"
        );
        assert!(row["meta"].is_object());
        if let Some(category) = row.get("category") {
            assert_eq!(by_id[category["_id"].as_str().unwrap()], category);
            names.insert(category["name"].as_str().unwrap());
        }
    }
    // One name for each category key that a spending code maps to
    // (docs/providers/akahu.md#spending-codes).
    for name in [
        "Cinemas",
        "Supermarkets and grocery stores",
        "Local government",
        "Building supplies",
        "Debt repayments",
        "Pharmacies",
        "General retail stores",
        "Haircuts and treatments",
        "Rent for permanent accommodation",
        "Insurance",
        "Fuel stations",
        "Hotels, motels, and other temporary accommodation",
    ] {
        assert!(names.contains(name), "{name}");
    }
    assert!(names.len() >= 40, "{}", names.len());
    // These categories follow from type and sign alone (docs/providers/akahu.md#category-rules).
    for (kind, incoming) in [
        ("FEE", false),
        ("FEE", true),
        ("INTEREST", false),
        ("INTEREST", true),
        ("TAX", false),
        ("TAX", true),
        ("TRANSFER", false),
        ("TRANSFER", true),
        ("LOAN", false),
        ("LOAN", true),
        ("ATM", false),
    ] {
        let found = main.iter().any(|row| {
            row["type"] == kind
                && row.get("category").is_none()
                && (row["amount"].as_f64().unwrap() > 0.0) == incoming
        });
        assert!(found, "{kind} {incoming}");
    }
    let conversion = main
        .iter()
        .find_map(|row| row["meta"].get("conversion"))
        .unwrap();
    assert!(conversion["amount"].as_f64().unwrap() > 0.0 && conversion["rate"].is_number());
    for name in [
        "card_suffix",
        "particulars",
        "code",
        "reference",
        "other_account",
        "logo",
    ] {
        assert_eq!(
            rows.iter().any(|row| row["meta"].get(name).is_some()),
            name != "code",
            "{name}"
        );
    }
    assert!(rows.iter().any(|row| row["meta"] == json!({})));
    assert!(rows.iter().any(|row| row["merchant"].get("nzbn").is_some()));
}

#[tokio::test]
async fn spare_accounts_have_odd_values() {
    let akahu = akahu().await.into_spare();
    let accounts = akahu.accounts().await;
    assert!(
        accounts
            .iter()
            .all(|account| account["_authorisation"] == akahu.credentials(2).1)
    );
    assert!(
        accounts
            .iter()
            .all(|account| account["connection"]["connection_type"] == "official")
    );
    let lacks = |name: &str| {
        accounts
            .iter()
            .filter(|account| account.get(name).is_none())
            .count()
    };
    assert_eq!(
        (
            lacks("balance"),
            lacks("formatted_account"),
            lacks("_migrated")
        ),
        (1, 1, 4)
    );
    assert_eq!(
        accounts
            .iter()
            .filter(|account| account["refreshed"].get("transactions").is_none())
            .count(),
        1
    );
    let odd = accounts
        .iter()
        .find(|account| account["type"] == "BUY_NOW_PAY_LATER")
        .unwrap();
    assert!(
        odd["attributes"]
            .as_array()
            .unwrap()
            .contains(&json!("LOYALTY_FROM"))
    );
    let card = akahu.rows(&akahu.rows_path("CREDITCARD").await).await;
    assert!(
        !card.is_empty()
            && card
                .iter()
                .all(|row| row["date"].as_str().unwrap().ends_with("T00:00:00.000Z"))
    );

    let path = akahu.rows_path("CHECKING").await;
    assert!(akahu.pages(&path).await.len() > 2);
    let text = akahu.get(&path).await.text().await.unwrap();
    for odd in [
        "-1000,",
        "-1.59e1,",
        "2E3,",
        "-12.500,",
        "-0.00,",
        "0,",
        "-12345678901234567890123456789012345678.91,",
        "1234567.8900,",
        "-3.141,",
    ] {
        assert!(text.contains(&format!("\"amount\":{odd}")), "{odd}");
    }
    let rows = akahu.rows(&format!("{path}?start=2026-10-22")).await;
    let has = |what: &str, is: &dyn Fn(&Value) -> bool| assert!(rows.iter().any(is), "{what}");
    let groups = |row: &Value| row["category"].get("groups").cloned();
    has("category without groups", &|row| {
        row.get("category").is_some() && groups(row).is_none()
    });
    has("empty groups", &|row| groups(row) == Some(json!({})));
    has("unknown code, known group", &|row| {
        row["category"]["_id"]
            .as_str()
            .is_some_and(|id| id.contains("spare"))
            && row["category"]["groups"]["personal_finance"]["name"] == "Transport"
    });
    has("unknown group", &|row| {
        row["category"]["groups"]["personal_finance"]["name"] == "Inner life"
    });
    has("salary", &|row| {
        row["category"]["name"] == "Salary or wages" && row["amount"].as_f64().unwrap() > 0.0
    });
    has("refund", &|row| {
        row["category"]["name"] == "Refunds and reimbursements"
    });
    has("empty meta", &|row| {
        row["meta"] == json!({}) && row.get("merchant").is_none()
    });
    has("no meta", &|row| row.get("meta").is_none());
    has("migrated", &|row| {
        row.get("_migrated").is_some() && row.get("_migrated_account").is_some()
    });
    has("unknown type", &|row| row["type"] == "CRYPTO SWAP");
    assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(date(row))));
}

#[tokio::test]
async fn ids_have_the_documented_form() {
    let akahu = akahu().await.into_spare();
    let all = [akahu.accounts().await, akahu.rows("/transactions").await].concat();
    let mut seen = BTreeSet::new();
    let is_good = |id: &str| {
        let rest = id.rsplit('_').next().unwrap();
        (25..=27).contains(&rest.len())
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    for value in &all {
        for name in [
            "_id",
            "_account",
            "_connection",
            "_user",
            "_authorisation",
            "_migrated",
            "_migrated_account",
        ] {
            if let Some(id) = value.get(name) {
                assert!(is_good(id.as_str().unwrap()), "{id}");
                seen.insert(name);
            }
        }
        for part in ["connection", "merchant", "category"] {
            if let Some(id) = value.get(part).and_then(|part| part.get("_id")) {
                assert!(is_good(id.as_str().unwrap()), "{id}");
            }
        }
    }
    assert_eq!(seen.len(), 7);
    assert!(akahu.token.starts_with("user_token_") && is_good(&akahu.token));
    assert!(akahu.access.app_token.starts_with("app_token_") && is_good(&akahu.access.app_token));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_world() {
    let [one, other] = [akahu().await, akahu().await];
    assert_eq!(
        (one.credentials(0), &one.access.app_secret),
        (other.credentials(0), &other.access.app_secret)
    );
    assert_eq!(one.accounts().await, other.accounts().await);
    assert_eq!(
        one.rows("/transactions").await,
        other.rows("/transactions").await
    );
    assert_eq!(
        one.json("/transactions/pending").await,
        other.json("/transactions/pending").await
    );
}
