//! Odette's rows: texts and amounts are served exactly as the world defines them, at Fiskil and at
//! Akahu.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::akahu_client::akahu;
use crate::client::{client, list_of, text_of, time};

/// Position of Odette's credentials among those of Fiskil, and among those of Akahu.
const FISKIL: usize = 5;
const AKAHU: usize = 3;

/// The odd part of some texts. A change of any of them must be deliberate.
const PARTS: [&str; 15] = [
    ";; id: forged",
    "</STMTTRN> ]]>",
    "COLON: TAB\tEND",
    "LINE\r\nSECOND LINE\nTHIRD LINE\rFOURTH",
    "\n^\nD2026-01-01\n",
    "\u{85}LINE\u{2028}",
    "\0\u{1}\u{7}",
    "TWO  BLANKS   THREE ",
    "🥝",
    "\u{202e}LEFT\u{202c} ZERO\u{200b}",
    "東京",
    "=HYPERLINK(\"",
    "{{tags}}",
    "#tag ^link",
    "\r=RETURN",
];

const AMOUNTS: [&str; 6] = [
    "-7",
    "-12.5",
    "-11.125",
    "-0.123456789012345678",
    "1.000000000000000001",
    "12345678901234567890123456789012345.67",
];

fn assert_odd(rows: &[Value], amounts: &BTreeSet<String>) {
    let texts: Vec<&str> = rows
        .iter()
        .map(|row| text_of(&row["description"]))
        .collect();
    for part in PARTS {
        assert!(texts.iter().any(|text| text.contains(part)), "{part:?}");
    }
    for start in ["=", "+", "-", "@", "\t", "\r"] {
        assert!(
            texts.iter().any(|text| text.starts_with(start)),
            "{start:?}"
        );
    }
    assert!(texts.iter().any(|text| text.chars().count() == 300));
    assert!(texts.contains(&""), "an empty text");
    for amount in AMOUNTS {
        assert!(amounts.contains(amount), "{amount}");
    }
}

#[tokio::test]
async fn odd_rows_at_fiskil() {
    let client = client().await;
    assert_eq!(
        client.description().people[FISKIL],
        "Odette Rowe, Tidewater Example Credit Union"
    );
    let accounts = client.accounts(FISKIL).await;
    let rows = async |account: &Value| {
        let (user, id) = (
            client.credentials(FISKIL).0,
            text_of(&account["account_id"]),
        );
        client
            .rows(&format!(
                "/v1/banking/transactions?end_user_id={user}&account_id={id}"
            ))
            .await
    };
    let all = rows(&accounts[0]).await;
    assert_odd(
        &all,
        &all.iter()
            .map(|row| text_of(&row["amount"]).to_owned())
            .collect(),
    );
    assert!(
        all.is_sorted_by_key(|row| std::cmp::Reverse(time(row).unwrap())),
        "newest first"
    );
    let days: BTreeMap<String, usize> = all.iter().fold(BTreeMap::new(), |mut days, row| {
        *days
            .entry(text_of(&row["posting_date_time"])[..10].to_owned())
            .or_default() += 1;
        days
    });
    assert!(days.values().any(|count| *count > 1), "several rows a day");
    let two_places = |row: &Value| {
        text_of(&row["amount"])
            .split_once('.')
            .is_some_and(|it| it.1.len() == 2)
    };
    let card = rows(&accounts[1]).await;
    assert!(
        card.len() > 20 && card.iter().all(two_places),
        "a format for cents can express the card's rows"
    );
}

#[tokio::test]
async fn odd_rows_at_akahu() {
    let mut akahu = akahu().await;
    akahu.token = akahu.credentials(AKAHU).0;
    let accounts = akahu.accounts().await;
    let ids: Vec<&str> = accounts
        .iter()
        .map(|account| text_of(&account["_id"]))
        .collect();
    let path = format!("/accounts/{}/transactions", ids[0]);
    let body = akahu.get(&path).await.text().await.unwrap();
    let amounts = body
        .split("\"amount\":")
        .skip(1)
        .map(|rest| rest[..rest.find([',', '}']).unwrap()].to_owned());
    let page: Value = serde_json::from_str(&body).unwrap();
    let rows = list_of(&page["items"]);
    assert_odd(rows, &amounts.collect());
    let day_only = rows
        .iter()
        .filter(|row| text_of(&row["date"]).ends_with("T11:00:00.000Z"))
        .count();
    assert!(
        day_only > 10 && day_only < rows.len(),
        "some rows have only a day"
    );
    assert_eq!(accounts[1]["balance"]["currency"], "JPY");
    assert!(accounts[2].get("balance").is_none());
}
