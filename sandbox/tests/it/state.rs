//! A sandbox that goes on with the state of an earlier one.

use std::collections::BTreeMap;

use bellbird_sandbox::{ConsentState, Credentials, Options, PROVIDERS, start};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::client::list_of;

#[tokio::test]
async fn state_is_the_same_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        state: Some(folder.path().join("sandbox")),
        // Another day would have more rows.
        now: Some("2026-11-20T09:24:00Z".parse().unwrap()),
        rows: 300,
        ..Options::default()
    };
    let read = || {
        PROVIDERS
            .map(|name| std::fs::read(folder.path().join(format!("sandbox/{name}.json"))).unwrap())
    };
    let first = start(options.clone()).await.unwrap();
    let consents = first.description().credentials.clone();
    for (name, url) in first.origins() {
        let credentials = consents
            .iter()
            .find(|credentials| provider(credentials) == name)
            .unwrap();
        let id = match credentials {
            Credentials::Fiskil { arrangement_id, .. } => arrangement_id,
            Credentials::Akahu { authorisation, .. } => authorisation,
            Credentials::SnapTrade {
                authorization_id, ..
            } => authorization_id,
        };
        // Over HTTP, because a call saves what it changed before it responds.
        let response = reqwest::Client::new()
            .post(format!("{url}/__control/consents/{id}"))
            .json(&json!({"state": ConsentState::Expired}))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 204, "{name}");
    }
    let saved = read();
    first.stop().await;
    let second = start(options).await.unwrap();
    assert!(saved == read(), "loading and saving changes nothing");
    for name in PROVIDERS {
        let count = second.bank(name).all_credentials().len();
        assert!(count > 1, "{name}: {count}");
    }
    assert_eq!(second.description().credentials, consents);
    second.stop().await;
}

/// Rows of a saved state end today, whenever it was made.
#[tokio::test]
async fn rows_go_on_where_the_state_ends() {
    let folder = tempfile::tempdir().unwrap();
    let began: Timestamp = "2026-11-20T09:24:00Z".parse().unwrap();
    let restarted = began + SignedDuration::from_hours(40 * 24);
    // The number of each row, and when it was.
    let run = async |now: Timestamp, name: &str| -> BTreeMap<u64, i64> {
        let sandbox = start(Options {
            state: Some(folder.path().to_owned()),
            rows: 300,
            now: Some(now),
            ..Options::default()
        });
        sandbox.await.unwrap().stop().await;
        let state = std::fs::read(folder.path().join(format!("{name}.json"))).unwrap();
        let state: Value = serde_json::from_slice(&state).unwrap();
        let accounts = list_of(&state["accounts"]).iter();
        let entries = accounts.flat_map(|account| list_of(&account["entries"]));
        let rows = entries.filter_map(|entry| {
            let row = &entry[1]["Drawn"];
            let at = row["posted"].as_i64().or(row["at"].as_i64())?;
            Some((entry[0].as_u64().unwrap(), at))
        });
        rows.collect()
    };
    for name in ["fiskil", "akahu"] {
        let before = run(began, name).await;
        let after = run(restarted, name).await;
        assert!(
            before
                .iter()
                .all(|(number, at)| after.get(number) == Some(at))
        );
        let newest = Timestamp::from_millisecond(*after.values().max().unwrap()).unwrap();
        let age = restarted.duration_since(newest);
        assert!(
            !age.is_negative() && age < SignedDuration::from_hours(72),
            "{name}: {age}"
        );
        assert_eq!(run(restarted, name).await, after, "once");
        std::fs::remove_dir_all(folder.path()).unwrap();
    }
}

fn provider(credentials: &Credentials) -> &'static str {
    match credentials {
        Credentials::Fiskil { .. } => "fiskil",
        Credentials::Akahu { .. } => "akahu",
        Credentials::SnapTrade { .. } => "snaptrade",
    }
}

#[tokio::test]
async fn damaged_or_older_state_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (state, why) in [
        ("{\"seed\":1", "akahu.json cannot be read: "),
        (
            "{\"seed\":1,\"accounts\":[]}",
            "akahu.json is of another version of the sandbox. ",
        ),
        (
            "{\"version\":0,\"seed\":1}",
            "akahu.json is of another version of the sandbox. ",
        ),
    ] {
        std::fs::write(folder.path().join("akahu.json"), state).unwrap();
        let options = Options {
            state: Some(folder.path().to_owned()),
            ..Options::default()
        };
        let error = start(options).await.err().unwrap().to_string();
        assert!(
            error.contains(why) && error.ends_with("Delete it, start again, and link again"),
            "{error}"
        );
    }
}
