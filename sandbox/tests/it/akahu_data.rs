//! Akahu's seeded data: every account type, category and date edge, and the odd values of the spare
//! user.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::akahu_client::{Akahu, akahu, answer};
use crate::client::{list_of, text_of};

#[tokio::test]
async fn first_user_has_every_type_of_account() {
    let akahu = akahu().await;
    let accounts = akahu.accounts().await;
    let types: BTreeSet<&str> = accounts
        .iter()
        .map(|account| text_of(&account["type"]))
        .collect();
    let expected = "CHECKING SAVINGS CREDITCARD LOAN KIWISAVER INVESTMENT TERMDEPOSIT FOREIGN TAX
        REWARDS WALLET";
    let expected: BTreeSet<&str> = expected.split_whitespace().collect();
    assert_eq!(types, expected);
    let logins: Vec<&str> = accounts
        .iter()
        .map(|account| text_of(&account["_authorisation"]))
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
        assert!(text_of(&account["refreshed"]["balance"]).ends_with(".000Z"));
        assert_eq!(account["connection"]["connection_type"], "classic");
        let attributes = list_of(&account["attributes"]);
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
        let path = format!("/accounts/{}/transactions", text_of(&account["_id"]));
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
    let types: BTreeSet<&str> = rows.iter().map(|row| text_of(&row["type"])).collect();
    let expected = "CREDIT, DEBIT, PAYMENT, TRANSFER, STANDING ORDER, EFTPOS, INTEREST, FEE, TAX, \
                    CREDIT CARD, DIRECT DEBIT, DIRECT CREDIT, ATM, LOAN";
    let expected: BTreeSet<&str> = expected.split(", ").collect();
    assert_eq!(types, expected);
    let categories = list_of(&answer(akahu.app("/categories")).await["items"]).clone();
    let by_id: BTreeMap<&str, &Value> = categories
        .iter()
        .map(|one| (text_of(&one["_id"]), one))
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
            assert_eq!(by_id[text_of(&category["_id"])], category);
            names.insert(text_of(&category["name"]));
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
    let pending = async |akahu: &Akahu| {
        let path = akahu.rows_path("CHECKING").await;
        akahu.json(&format!("{path}/pending")).await
    };
    assert_eq!(pending(&one).await, pending(&other).await);
}
