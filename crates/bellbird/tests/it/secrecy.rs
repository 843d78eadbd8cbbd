//! After everything was read, neither database nor log knows what was answered.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::Place;
use crate::processes::{ANY_PORTS, Running, get, text};

/// What must be nowhere: amounts, descriptions and ids of rows, by where they came from.
fn collect(found: &mut BTreeSet<String>, rows: &Value, members: &[&str]) {
    for row in rows.as_array().expect("rows") {
        for member in members {
            let Some(value) = row[*member].as_str() else { continue };
            // Shorter ones stand in times and ids by chance.
            if value.len() >= 6 {
                found.insert(value.to_owned());
            }
        }
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

async fn fiskil(sandbox: &Value, path: &str) -> Value {
    let fiskil = &sandbox["fiskil"];
    let base = text(fiskil, "baseUrl");
    let http = reqwest::Client::new();
    let body = json!({"client_id": fiskil["clientId"], "client_secret": fiskil["clientSecret"]});
    let token: Value = http.post(format!("{base}/v1/token")).json(&body).send().await.unwrap().json().await.unwrap();
    let request = http.get(format!("{base}{path}")).bearer_auth(text(&token, "token"));
    request.send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn nothing_that_was_answered_is_kept() {
    let mut place = Place::new();
    let database = place.folder.path().join("kept.db");
    place.set("BELLBIRD_DATABASE__URL", &format!("sqlite:{}", database.display()));
    place.set("BELLBIRD_LOG__LEVEL", "trace");
    let demo = Running::start(&place, &format!("demo --json --rows 400 {ANY_PORTS}"));
    let said = demo.json();
    let api = text(&said, "apiUrl");
    let sandbox = &said["sandbox"];
    let mut secrets = BTreeSet::new();
    for name in ["apiKey", "developerKey", "saverKey"] {
        secrets.insert(text(&said, name).to_owned());
    }
    secrets.insert(text(&sandbox["fiskil"], "clientSecret").to_owned());

    for key in [text(&said, "apiKey"), text(&said, "developerKey")] {
        read_everything(api, key, &mut secrets).await;
    }
    for grant in sandbox["grants"].as_array().unwrap() {
        let accounts = fiskil(sandbox, &format!("/v1/banking/accounts?end_user_id={}", text(grant, "endUserId"))).await;
        collect(&mut secrets, &accounts["accounts"], &["account_number", "masked_number"]);
        secrets.insert(text(grant, "endUserId").to_owned());
    }
    // Failures are logged too.
    let control = format!("{}/__control/faults", text(&sandbox["fiskil"], "baseUrl"));
    for kind in ["malformed", "reset", "content_type"] {
        let fault = json!({"match": "/v1/banking", "kind": kind, "times": 3});
        reqwest::Client::new().post(&control).json(&fault).send().await.unwrap();
        let connection = &get(&format!("{api}/v1/connections"), Some(text(&said, "apiKey"))).await.1["data"][0]["id"];
        let path = format!("{api}/v1/transactions?connectionId={}&from=SECRET-PARAMETER", connection.as_str().unwrap());
        assert_eq!(get(&path, Some(text(&said, "apiKey"))).await.0, 400);
        let path = format!("{api}/v1/transactions?connectionId={}&from=2024-01-01", connection.as_str().unwrap());
        assert_eq!(get(&path, Some(text(&said, "apiKey"))).await.0, 503);
    }
    secrets.insert("SECRET-PARAMETER".to_owned());
    assert!(secrets.len() > 500, "too little was read: {}", secrets.len());

    let (_, connections) = get(&format!("{api}/v1/connections"), Some(text(&said, "apiKey"))).await;
    let while_running = files(place.folder.path());
    let (code, _, log) = demo.stop("-TERM");
    assert_eq!(code, Some(0));
    let mut kept = while_running;
    kept.extend(files(place.folder.path()));
    kept.push(("the log".to_owned(), log.into_bytes()));

    // The search finds what is there.
    let known = text(&connections["data"][0], "institutionName");
    assert!(kept.iter().any(|(path, bytes)| path.contains("kept.db") && contains(bytes, known)));
    assert!(kept.iter().any(|(path, bytes)| path == "the log" && contains(bytes, "provider_calls")));
    for secret in &secrets {
        for (path, bytes) in &kept {
            assert!(!contains(bytes, secret), "{secret} is in {path}");
        }
    }
}

async fn read_everything(api: &str, key: &str, secrets: &mut BTreeSet<String>) {
    let (_, accounts) = get(&format!("{api}/v1/accounts?limit=200"), Some(key)).await;
    for account in accounts["data"].as_array().unwrap() {
        let (connection, id) = (text(account, "connectionId"), text(account, "id"));
        let path = format!("{api}/v1/transactions?connectionId={connection}&accountId={id}&from=2020-01-01&limit=500");
        let (status, rows) = get(&path, Some(key)).await;
        assert_eq!(status, 200);
        collect(secrets, &rows["data"], &["id", "amount", "description", "merchantName"]);
        for _ in 0..2 {
            let (status, balances) = get(&format!("{api}/v1/balances?accountIds={id}"), Some(key)).await;
            assert_eq!(status, 200);
            collect(secrets, &balances["data"], &["currentBalance", "availableBalance"]);
        }
    }
}
