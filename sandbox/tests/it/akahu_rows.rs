//! Akahu's posted and pending rows: pages, date ranges and single rows.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::akahu_client::{akahu, answer, date, error_of, ids};
use crate::client::{list_of, text_of};

#[tokio::test]
async fn pages_have_100_rows_newest_first() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let pages = akahu.pages(&path).await;
    let rows = pages.concat();
    assert!((1150..=1300).contains(&rows.len()), "{}", rows.len());
    assert!(pages.iter().rev().skip(1).all(|page| page.len() == 100));
    assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(date(row))));
    let mut unique = ids(&rows);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), rows.len());
    for pair in pages.windows(2).take(pages.len() - 2) {
        assert_eq!(
            pair[0].last().unwrap()["date"],
            pair[1][0]["date"],
            "rows of one instant are on both pages"
        );
    }
    let first = akahu.json(&path).await;
    let cursor = text_of(&first["cursor"]["next"]);
    assert!(
        cursor.len() >= 100
            && cursor
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    );
    assert_eq!(first.as_object().unwrap().len(), 3);
    let again = akahu.json(&format!("{path}?limit=5&unknown=1")).await;
    assert_eq!(
        again["items"], first["items"],
        "the limit parameter is ignored"
    );
}

#[tokio::test]
async fn cursor_is_bound_to_its_query_and_user() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let cursor = text_of(&akahu.json(&format!("{path}?start=2025-01-01")).await["cursor"]["next"])
        .to_owned();
    let status = async |query: String| akahu.get(&query).await.status().as_u16();
    assert_eq!(
        status(format!("{path}?start=2025-01-01&cursor={cursor}")).await,
        200
    );
    let mut forged = cursor.clone().into_bytes();
    forged[3] = if forged[3] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    for bad in [
        format!("{path}?cursor={cursor}"),
        format!("{path}?start=2025-01-02&cursor={cursor}"),
        format!("{path}?start=2025-01-01&end=2026-01-01&cursor={cursor}"),
        format!("/transactions?start=2025-01-01&cursor={cursor}"),
        format!("{path}?start=2025-01-01&cursor={forged}"),
        format!("{path}?cursor=abc"),
        format!("{path}?cursor="),
    ] {
        assert_eq!(status(bad.clone()).await, 400, "{bad}");
    }
    let all = text_of(&akahu.json("/transactions").await["cursor"]["next"]).to_owned();
    let spare = akahu.into_spare();
    assert_eq!(
        spare
            .get(&format!("/transactions?cursor={all}"))
            .await
            .status(),
        400
    );
}

#[tokio::test]
async fn pages_are_stable_while_rows_change() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let before = akahu.rows(&path).await;
    let first = akahu.json(&path).await;
    let cursor = text_of(&first["cursor"]["next"]);
    akahu
        .bank()
        .add_row(&json!({"_account": before[0]["_account"]}))
        .unwrap();
    akahu.bank().remove_row(ids(&before)[99]).unwrap();
    let second = akahu.json(&format!("{path}?cursor={cursor}")).await;
    assert_eq!(list_of(&second["items"]), &before[100..200]);
}

#[tokio::test]
async fn the_start_is_excluded_and_the_end_included() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let all = akahu.rows(&path).await;
    for index in [0, 1, 50, 99, 100, 101, 400, all.len() - 1] {
        let bound = date(&all[index]);
        let expected: Vec<&Value> = all.iter().filter(|row| date(row) <= bound).collect();
        let rows = akahu.rows(&format!("{path}?end={bound}")).await;
        assert_eq!(rows.iter().collect::<Vec<_>>(), expected);
        let expected: Vec<&Value> = all.iter().filter(|row| date(row) > bound).collect();
        assert_eq!(
            akahu
                .rows(&format!("{path}?start={bound}"))
                .await
                .iter()
                .collect::<Vec<_>>(),
            expected
        );
    }
    // A whole day in Auckland (docs/providers/akahu.md#date-ranges): the one on which summer time
    // ended.
    let day = akahu
        .rows(&format!(
            "{path}?start=2026-04-04T10:59:59.999Z&end=2026-04-05T11:59:59.999Z"
        ))
        .await;
    let (from, to): (Timestamp, Timestamp) = (
        "2026-04-04T11:00:00Z".parse().unwrap(),
        "2026-04-05T12:00:00Z".parse().unwrap(),
    );
    assert!(day.iter().any(|row| date(row) == from) && !day.iter().any(|row| date(row) == to));
    assert!(day.len() >= 3);
    let with_offset = "start=2026-04-04T23:59:59.999%2B13:00&end=2026-04-05T23:59:59.999%2B12:00";
    assert_eq!(akahu.rows(&format!("{path}?{with_offset}")).await, day);
    let midnight = akahu
        .rows(&format!("{path}?start=2026-04-04T00:00:00Z"))
        .await;
    assert_eq!(
        akahu.rows(&format!("{path}?start=2026-04-04")).await,
        midnight
    );
    for bad in [
        "start=yesterday",
        "end=",
        "end=2026-02-30",
        "start=2026-04-04T00:00:00+12:00",
        "start=2026-04-04T00:00",
    ] {
        assert_eq!(
            error_of(akahu.call(Method::GET, &format!("{path}?{bad}")))
                .await
                .0,
            400,
            "{bad}"
        );
    }
    let none = akahu
        .json(&format!("{path}?start=2026-11-21&end=2020-01-01"))
        .await;
    assert_eq!(
        (&none["items"], &none["cursor"]),
        (&json!([]), &json!({"next": null}))
    );
}

#[tokio::test]
async fn list_without_account_merges_all_rows() {
    let akahu = akahu().await;
    let mut expected = Vec::new();
    for account in akahu.accounts().await {
        expected.extend(
            akahu
                .rows(&format!(
                    "/accounts/{}/transactions",
                    text_of(&account["_id"])
                ))
                .await,
        );
    }
    let all = akahu.rows("/transactions").await;
    assert!(all.is_sorted_by_key(|row| std::cmp::Reverse(date(row))));
    let sorted = |rows: &[Value]| {
        let mut ids: Vec<String> = ids(rows).into_iter().map(str::to_owned).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(&all), sorted(&expected));
    assert!(all.iter().all(|row| row["_user"] == all[0]["_user"]));
}

#[tokio::test]
async fn empty_page_is_not_the_last() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let expected = akahu.rows(&path).await;
    akahu.bank().empty_pages(2);
    let pages = akahu.pages(&path).await;
    assert!(pages.iter().skip(1).step_by(2).all(Vec::is_empty));
    assert!(pages.len() > 20);
    assert_eq!(pages.concat(), expected);
    akahu.bank().empty_pages(1);
    let empty = akahu.json(&path).await;
    assert_eq!(empty["items"], json!([]));
    let cursor = text_of(&empty["cursor"]["next"]);
    let again = akahu.json(&format!("{path}?cursor={cursor}")).await;
    assert_eq!(again["items"], json!([]));
    assert_ne!(
        again["cursor"], empty["cursor"],
        "an adapter must not mistake it for a page that links to itself"
    );
    akahu.bank().empty_pages(1);
    assert_eq!(akahu.json("/transactions").await["items"], json!([]));
}

#[tokio::test]
async fn rows_are_found_by_id() {
    let akahu = akahu().await;
    let rows = akahu.items("/transactions").await;
    let one = akahu
        .json(&format!("/transactions/{}", ids(&rows)[7]))
        .await;
    assert_eq!(one["item"], rows[7]);
    let foreign = format!("trans_c{}", "1".repeat(24));
    let post = |body: Value| akahu.call(Method::POST, "/transactions/ids").json(&body);
    let found = answer(post(json!([ids(&rows)[3], foreign, ids(&rows)[1]]))).await;
    assert_eq!(found["items"], json!([rows[3], rows[1]]));
    assert!(found.get("cursor").is_none());
    for bad in [json!({"ids": []}), json!(["x"]), json!([7]), json!(null)] {
        assert_eq!(error_of(post(bad)).await.0, 400);
    }
}

#[tokio::test]
async fn pending_rows_have_text_amounts() {
    let akahu = akahu().await;
    let account = akahu.account("CHECKING").await;
    let id = text_of(&account["_id"]);
    let pending = akahu
        .json(&format!("/accounts/{id}/transactions/pending"))
        .await;
    assert!(pending.get("cursor").is_none());
    let rows = list_of(&pending["items"]);
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(text_of(&row["amount"]).starts_with('-'));
        assert!(row["meta"].is_object() && row["type"].is_string() && row["_account"] == id);
        for absent in [
            "_id",
            "created_at",
            "balance",
            "merchant",
            "category",
            "hash",
        ] {
            assert!(row.get(absent).is_none(), "{absent}");
        }
    }
}
