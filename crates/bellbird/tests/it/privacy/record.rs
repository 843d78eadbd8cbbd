//! A recording of a provider's responses has their form and none of their values.

use std::collections::BTreeSet;

use bellbird_sandbox::{Fault, FaultKind};
use reqwest::Method;
use serde_json::{Value, json};

use super::LENGTH_MIN;
use super::memory::{MARK, import_with_marked_rows};
use crate::support::deployment::{Deployment, add_fault, control};
use crate::support::harness::{Database, simulated_providers};
use crate::support::process::{Workdir, errors, text};
use crate::support::provider_spec::spec;
use crate::support::words::{assert_has, assert_lacks};

fn record(workdir: &Workdir, connection: &Value) -> String {
    let output = workdir.run(&format!("record {}", text(connection, "id")));
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_has(&errors(&output), "Read the recording before you send it");
    String::from_utf8(output.stdout).unwrap()
}

/// Every text of a value.
fn collect_values(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_values(item, found)),
        Value::Object(members) => members
            .values()
            .for_each(|member| collect_values(member, found)),
        Value::String(text) => {
            found.insert(text.clone());
        }
        _ => {}
    }
}

#[tokio::test]
async fn recording_has_no_value_also_of_a_failure() {
    let Deployment {
        workdir,
        sandbox,
        database,
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    workdir.json("user add --email me@example.com");
    let printed = sandbox.json();
    import_with_marked_rows(&workdir, &printed, &database).await;
    let connections = workdir.json("connection list");
    let (mut values, mut recordings) = (BTreeSet::new(), String::new());
    collect_values(&printed["credentials"], &mut values);
    for provider in simulated_providers() {
        collect_values(&printed[provider], &mut values);
        let credentials = printed["credentials"].as_array().unwrap();
        for own in credentials.iter().filter(|one| one["provider"] == provider) {
            values.extend((spec(provider).account_numbers)(&printed, own).await);
        }
    }
    for connection in connections.as_array().unwrap() {
        let shown = workdir.json(&format!("connection show {}", text(connection, "id")));
        for member in ["institutionName", "id"] {
            values.insert(text(&shown, member).to_owned());
        }
        let accounts = shown["accounts"].as_array().unwrap().iter();
        values.extend(accounts.map(|account| text(account, "name").to_owned()));

        let recording = record(&workdir, connection);
        let json: Value = serde_json::from_str(&recording).unwrap();
        assert_eq!(json["provider"], connection["provider"]);
        let reads = json["reads"].as_array().unwrap();
        let are_read = reads.iter().all(|read| read["error"].is_null());
        assert!(are_read, "{recording}");
        let list = spec(text(connection, "provider")).list;
        for name in ["accounts", "balances", list] {
            let found = reads
                .iter()
                .any(|read| read["read"] == name && read["found"].as_u64() > Some(0));
            assert!(found, "{name}: {recording}");
        }
        assert!(json["calls"].as_array().unwrap().len() >= 4, "{recording}");
        for kept in [
            "\"amount\": ",
            "\"description\": ",
            "\"target\": \"/",
            "/accounts",
        ] {
            assert_has(&recording, kept);
        }
        recordings.push_str(&json["calls"].to_string());
    }
    // The name of a provider is no value of it.
    values.retain(|value| {
        value.len() >= LENGTH_MIN
            && simulated_providers().all(|provider| provider != value.as_str())
    });
    assert!(values.len() > 50, "{values:?}");
    for value in values.iter().map(String::as_str).chain([MARK, &MARK[..5]]) {
        assert_lacks(&recordings, value);
    }
    let numbers = recordings.split(|character: char| !character.is_ascii_digit());
    let numbers = numbers.filter(|run| run.len() > 3 && run.bytes().any(|digit| digit != b'9'));
    let numbers: BTreeSet<_> = numbers.collect();
    assert!(numbers.is_empty(), "{numbers:?}");

    // A response that cannot be read is recorded, too.
    for connection in connections.as_array().unwrap() {
        let provider = text(connection, "provider");
        let clear_faults =
            async || control(&printed, provider, Method::DELETE, "faults", json!({})).await;
        add_fault(&printed, provider, Fault::new(FaultKind::Malformed)).await;
        let recording: Value = serde_json::from_str(&record(&workdir, connection)).unwrap();
        let mut reads = recording["reads"].as_array().unwrap().iter();
        let has_failed = reads.any(|read| read["error"].is_string());
        assert!(has_failed, "{recording}");
        let calls = recording["calls"].as_array().unwrap();
        assert!(!calls.is_empty(), "{recording}");
        clear_faults().await;
        add_fault(&printed, provider, Fault::new(FaultKind::Reset)).await;
        let error = workdir.error(&format!("record {}", text(connection, "id")), 1);
        assert_has(&error, "sent no response: the provider is unavailable");
        clear_faults().await;
    }
    let unknown = "record 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f";
    assert_has(&workdir.error(unknown, 1), "there is no connection");
}
