//! After reads of everything, neither the database nor the log contains what the API returned.

use std::collections::BTreeSet;

use bellbird::audit::texts::Texts;
use bellbird_sandbox::{Fault, FaultKind};
use reqwest::Method;
use serde_json::{Value, json};

use super::{LENGTH_MIN, contains, files, list_of};
use crate::support::deployment::{add_fault, control};
use crate::support::follower::Follower;
use crate::support::process::{Workdir, get, text};
use crate::support::provider_spec::{SPECS, spec};

/// Collects the members of rows that must not be stored or logged, such as amounts, descriptions
/// and ids.
fn collect(found: &mut BTreeSet<String>, rows: &Value, members: &[&str]) {
    for row in rows.as_array().expect("rows") {
        let values = members.iter().filter_map(|member| row[*member].as_str());
        let long = values.filter(|value| value.len() >= LENGTH_MIN);
        found.extend(long.map(str::to_owned));
    }
}

#[tokio::test]
async fn no_answer_is_stored_or_logged() {
    let mut workdir = Workdir::new();
    let database = workdir.folder.path().join("kept.db");
    let url = format!("sqlite:{}", database.display());
    workdir.set("BELLBIRD_DATABASE__URL", &url);
    workdir.set("BELLBIRD_LOG__LEVEL", "trace");
    // The test reads many accounts one by one.
    workdir.set("BELLBIRD_LIMITS__BALANCES_PER_MINUTE", "0");
    workdir.set("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "0");
    let demo = workdir.start("demo --rows 400");
    let demo_output = demo.json();
    let api = text(&demo_output, "apiUrl");
    let sandbox = &demo_output["sandbox"];
    let mut secrets = BTreeSet::new();
    for name in ["apiKey", "developerKey", "saverKey"] {
        secrets.insert(text(&demo_output, name).to_owned());
    }
    for spec in &SPECS {
        let of_provider = &sandbox[spec.name];
        secrets.extend(
            spec.secrets
                .iter()
                .map(|name| text(of_provider, name).to_owned()),
        );
    }

    for key in ["apiKey", "developerKey"] {
        read_everything(api, text(&demo_output, key), &mut secrets).await;
    }
    for credentials in sandbox["credentials"].as_array().unwrap() {
        let spec = spec(text(credentials, "provider"));
        let numbers = (spec.account_numbers)(sandbox, credentials).await;
        let long = numbers
            .into_iter()
            .filter(|number| number.len() >= LENGTH_MIN);
        secrets.extend(long);
        for member in ["endUserId", "userToken", "userId", "userSecret"] {
            secrets.extend(credentials[member].as_str().map(str::to_owned));
        }
    }
    // Failed reads are logged, too.
    let key = text(&demo_output, "apiKey");
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(key)).await;
    let connections = connections["data"].as_array().unwrap();
    let status = async |path: String| get(&format!("{api}/v1/{path}"), Some(key)).await.0;
    for spec in &SPECS {
        let (provider, list) = (spec.name, spec.list);
        let mut of_provider = connections.iter().filter(|one| one["provider"] == provider);
        let connection = text(of_provider.next().unwrap(), "id");
        let rows = format!("{list}?connectionId={connection}");
        let changes = format!("{list}/changes?connectionId={connection}");
        assert_eq!(status(format!("{rows}&from=SECRET-PARAMETER")).await, 400);
        assert_eq!(status(format!("{changes}&cursor=SECRET-CURSOR")).await, 400);
        for kind in [
            FaultKind::Malformed,
            FaultKind::Reset,
            FaultKind::ContentType,
        ] {
            add_fault(sandbox, provider, Fault::new(kind)).await;
            let failed = status(format!("{rows}&from=2024-01-01")).await;
            assert_eq!(failed, 503, "{provider}");
            control(sandbox, provider, Method::DELETE, "faults", json!({})).await;
        }
    }
    secrets.insert("SECRET-PARAMETER".to_owned());
    secrets.insert("SECRET-CURSOR".to_owned());
    let count = secrets.len();
    assert!(count > 500, "too little was read: {count}");

    let mut stored = files(workdir.folder.path());
    let log = demo.end();
    stored.extend(files(workdir.folder.path()));
    stored.push(("the log".to_owned(), log.into_bytes()));

    // The search does find texts that are stored.
    let known = text(&connections[0], "institutionName");
    for (place, found) in [("kept.db", known), ("the log", "provider_calls")] {
        let mut places = stored.iter().filter(|(path, _)| path.contains(place));
        assert!(places.any(|(_, bytes)| contains(bytes, found)), "{found}");
    }
    let secrets: Vec<_> = secrets.into_iter().collect();
    let numbered = secrets.iter().map(String::as_str).zip(0..);
    let searched = Texts::new(numbered).unwrap();
    for (path, bytes) in &stored {
        // What the simulated banks know themselves.
        if path.contains("kept.db-sandbox") {
            continue;
        }
        let found = searched.first_in(bytes).map(|number| &secrets[number]);
        assert_eq!(found, None, "in {path}");
    }
}

async fn read_everything(api: &str, key: &str, secrets: &mut BTreeSet<String>) {
    let read = async |path: String| {
        let (status, body) = get(&format!("{api}/v1/{path}"), Some(key)).await;
        assert_eq!(status, 200, "{path}");
        body
    };
    let connections = read("connections".to_owned()).await;
    let all = connections["data"].as_array().unwrap();
    let is_at_broker = |id: &str| {
        let mut found = all.iter().filter(|connection| connection["id"] == id);
        found.any(|connection| connection["category"] == "brokerage")
    };
    let accounts = read("accounts?limit=200".to_owned()).await;
    for account in accounts["data"].as_array().unwrap() {
        let (connection, id) = (text(account, "connectionId"), text(account, "id"));
        let query = format!("connectionId={connection}&accountId={id}");
        if is_at_broker(connection) {
            let rows = read(format!("holdings?{query}")).await;
            collect(secrets, &rows["data"], &["id", "marketValue"]);
            let rows = read(format!("trades?{query}&from=2020-01-01&limit=500")).await;
            collect(secrets, &rows["data"], &["id", "totalAmount"]);
        } else {
            let rows = read(format!("transactions?{query}&from=2020-01-01&limit=500")).await;
            let members = ["id", "amount", "description", "merchantName"];
            collect(secrets, &rows["data"], &members);
        }
        for _ in 0..2 {
            let balances = read(format!("balances?accountIds={id}")).await;
            let members = ["currentBalance", "availableBalance"];
            collect(secrets, &balances["data"], &members);
        }
    }
    for connection in all {
        let list = list_of(connection);
        let mut copy = Follower::at(api, key, list, text(connection, "id")).with("&limit=50");
        let mut has_more = true;
        while has_more {
            let (status, body) = get(&copy.url(), Some(key)).await;
            collect(secrets, &body["data"], &["key"]);
            has_more = copy.apply(status, &body);
            secrets.extend(copy.cursor.clone());
        }
    }
    // A text of a row may also be part of a name, and names are stored.
    let names = format!("{connections}{accounts}");
    secrets.retain(|secret| !names.contains(secret.as_str()));
}
