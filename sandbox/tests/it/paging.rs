//! Fiskil's pages and filters, and their stability while rows change.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::client::{client, client_of, ids, list_of, options, text_of, time};

#[tokio::test]
async fn every_page_size_gives_each_row_once_in_order() {
    let client = client_of(options(120)).await;
    let path = client.busiest().await;
    let all = ids(&client.rows(&path).await);
    assert_eq!(all.len(), 123, "and three pending ones");
    for size in [1, 2, 3, 7, 60, 61, 62, 99, 100, 122, 123, 124, 1000, 5000] {
        for brackets in [
            format!("page[size]={size}"),
            format!("page%5Bsize%5D={size}"),
        ] {
            assert_eq!(
                ids(&client
                    .walk(&format!("{path}&{brackets}"), "transactions")
                    .await),
                all,
                "{size}"
            );
        }
    }
    let first = client.json(&path).await;
    assert_eq!(list_of(&first["transactions"]).len(), 100, "the default");
    let next = text_of(&first["links"]["next"]);
    assert!(next.contains("account_id="), "the filters stay: {next}");
}

#[tokio::test]
async fn large_page_size_is_capped() {
    let client = client_of(options(1200)).await;
    let page = client
        .json(&format!(
            "{}&page[size]=99999999999999999999999",
            client.busiest().await
        ))
        .await;
    assert_eq!(list_of(&page["transactions"]).len(), 1000);
}

#[tokio::test]
async fn rows_of_all_accounts_are_sorted() {
    let client = client().await;
    let path = format!(
        "/v1/banking/transactions?end_user_id={}",
        client.credentials(0).0
    );
    let rows = client.rows(&path).await;
    assert_eq!(
        ids(&client
            .walk(&format!("{path}&page[size]=77"), "transactions")
            .await),
        ids(&rows)
    );
    let pending = rows
        .iter()
        .take_while(|row| row["status"] == "PENDING")
        .count();
    assert_eq!(pending, 7);
    assert!(rows[pending..].iter().all(|row| row["status"] == "POSTED"));
    let timed: Vec<_> = rows[pending..].iter().map(time).collect();
    assert!(
        timed.windows(2).all(|pair| pair[0] >= pair[1]),
        "newest first, without time last"
    );
    assert_eq!(timed.iter().filter(|time| time.is_none()).count(), 1);
}

#[tokio::test]
async fn filters_by_time_and_status() {
    let client = client().await;
    let path = client.busiest().await;
    let all = client.rows(&path).await;
    let (pending, posted): (Vec<Value>, Vec<Value>) = all
        .iter()
        .cloned()
        .partition(|row| row["status"] == "PENDING");
    assert_eq!((pending.len(), posted.len()), (3, 300));
    assert!(pending.iter().all(|row| time(row).is_none()));
    assert_eq!(
        ids(&client.rows(&format!("{path}&status=PENDING")).await),
        ids(&pending)
    );
    assert_eq!(
        ids(&client.rows(&format!("{path}&status=POSTED")).await),
        ids(&posted)
    );
    let (from, to) = (time(&posted[200]).unwrap(), time(&posted[50]).unwrap());
    let sydney = from.to_zoned(jiff::tz::TimeZone::get("Australia/Sydney").unwrap());
    let from_text = sydney
        .strftime("%Y-%m-%dT%H:%M:%S%.f%:z")
        .to_string()
        .replace('+', "%2B");
    let expected: Vec<_> = posted
        .iter()
        .filter(|row| (from..=to).contains(&time(row).unwrap()))
        .cloned()
        .collect();
    assert!(expected.len() >= 151);
    let window = format!("{path}&from={from_text}&to={to}");
    assert_eq!(
        ids(&client.rows(&window).await),
        ids(&expected),
        "ends included, pending dropped"
    );
    assert_eq!(
        ids(&client
            .walk(&format!("{window}&page[size]=13"), "transactions")
            .await),
        ids(&expected)
    );
    let later = to + SignedDuration::from_millis(1);
    assert_eq!(
        client.rows(&format!("{path}&from={later}&to={from}")).await,
        Vec::<Value>::new(),
        "an empty window"
    );
}

#[tokio::test]
async fn filters_by_account() {
    let client = client().await;
    let (user, _) = client.credentials(0);
    let account = &client.accounts(0).await[0];
    let by = async |id: &str| {
        ids(&client
            .rows(&format!(
                "/v1/banking/transactions?end_user_id={user}&account_id={id}"
            ))
            .await)
    };
    let rows = by(text_of(&account["account_id"])).await;
    assert_eq!(
        rows,
        by(text_of(&account["fiskil_id"])).await,
        "either id will do"
    );
    assert!(by("unknown").await.is_empty());
}

#[tokio::test]
async fn paging_survives_new_changed_and_removed_rows() {
    let client = client_of(options(60)).await;
    let path = format!("{}&status=POSTED&page[size]=10", client.busiest().await);
    let before = ids(&client.rows(&path).await);
    let first = client.json(&path).await;
    let next = text_of(&first["links"]["next"])
        .strip_prefix(&client.base)
        .unwrap()
        .to_owned();
    let account = &client.accounts(0).await[0]["account_id"];
    let added = client
        .bank()
        .add_row(&json!({"account_id": account}))
        .unwrap();
    // Delete the row of the cursor, and one after it.
    client.bank().remove_row(&before[9]).unwrap();
    client.bank().remove_row(&before[20]).unwrap();
    client
        .bank()
        .change_row(&before[30], &json!({"description": "X"}))
        .unwrap();
    let rest = client.walk(&next, "transactions").await;
    let mut expected = before[10..].to_vec();
    expected.remove(10);
    assert_eq!(ids(&rest), expected);
    assert_eq!(rest[19]["description"], "X");
    let again = ids(&client.rows(&path).await);
    assert_eq!(
        (again.len(), Some(again[0].as_str())),
        (59, added["fiskil_id"].as_str())
    );
}

#[tokio::test]
async fn empty_page_is_not_the_last() {
    let client = client_of(options(60)).await;
    let path = client.busiest().await;
    let all = ids(&client.rows(&path).await);
    client.bank().empty_pages(2);
    let first = client.json(&format!("{path}&page[size]=10")).await;
    let next = text_of(&first["links"]["next"])
        .strip_prefix(&client.base)
        .unwrap();
    let second = client.json(next).await;
    assert_eq!(second["transactions"], json!([]));
    // An adapter must not mistake it for a page that links to itself.
    assert_ne!(second["links"]["next"], first["links"]["next"]);
    assert!(second["links"]["next"].is_string());
    assert_eq!(
        ids(&client
            .walk(&format!("{path}&page[size]=10"), "transactions")
            .await),
        all
    );
    client.bank().empty_pages(1);
    assert_eq!(client.json(&path).await["transactions"], json!([]));
    client.bank().empty_pages(0);
    assert_eq!(ids(&client.rows(&path).await), all);
}

#[tokio::test]
async fn the_last_thirty_days_are_never_empty() {
    for now in [
        "2026-11-21T01:30:00Z",
        "2026-10-03T16:30:00Z",
        "2027-04-03T14:00:00Z",
        "2028-02-29T13:59:59Z",
    ] {
        let now: Timestamp = now.parse().unwrap();
        let client = client_of(bellbird_sandbox::Options {
            now: Some(now),
            ..options(10)
        })
        .await;
        let since = now - SignedDuration::from_hours(720);
        let path = client.busiest().await;
        assert!(
            !client
                .rows(&format!("{path}&from={since}&to={now}"))
                .await
                .is_empty(),
            "{now}"
        );
        let posted = client.rows(&format!("{path}&status=POSTED")).await;
        assert_eq!(posted.len(), 10);
        let everything = client
            .rows(&format!(
                "/v1/banking/transactions?end_user_id={}",
                client.credentials(0).0
            ))
            .await;
        assert!(
            everything.iter().filter_map(time).all(|time| time < now),
            "nothing lies ahead at {now}"
        );
    }
}
