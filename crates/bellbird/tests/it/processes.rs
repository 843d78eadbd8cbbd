//! The commands that run until they are told to stop.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command};

use serde_json::{Value, json};

use crate::cli::{Place, errors};
use crate::harness::{Database, postgres_database, pretended};

pub(crate) const ANY_PORTS: &str = "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
pub(crate) const ANY_SANDBOX_PORTS: &str =
    "--fiskil-listen 127.0.0.1:0 --akahu-listen 127.0.0.1:0 --snaptrade-listen 127.0.0.1:0";
pub(crate) const MASTER_KEY: &str = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// A running command. Killed when a test fails before it was stopped.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The line that says that it is ready.
    said: String,
}

impl Running {
    pub(crate) fn start(place: &Place, line: &str) -> Self {
        let mut child = place.command(line).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        if out.read_line(&mut said).unwrap() == 0 {
            panic!("{line}: {}", errors(&child.wait_with_output().unwrap()));
        }
        Self { child, out, said }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.said).unwrap()
    }

    /// Sends a signal; gives the exit status, the rest of standard output, and the log.
    pub(crate) fn stop(mut self, signal: &str) -> (Option<i32>, String, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let (mut rest, mut log) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), rest, log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host's machine: a migrated database, the pretended providers, and the settings that lead to both.
pub(crate) async fn machine(database: Database) -> (Place, Running, String) {
    let mut place = Place::new();
    let database = match database {
        Database::Sqlite => format!("sqlite:{}", place.folder.path().join("host.db").display()),
        Database::Postgres => postgres_database().await,
    };
    place.set("BELLBIRD_DATABASE__URL", &database);
    place.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    place.json("migrate");
    let sandbox = Running::start(&place, &format!("sandbox --json --rows 50 {ANY_SANDBOX_PORTS}"));
    for provider in pretended() {
        for (member, value) in sandbox.json()[provider].as_object().unwrap() {
            let name: String =
                member.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain([c])).collect();
            place.set(&format!("BELLBIRD_{provider}__{name}").to_uppercase(), value.as_str().unwrap());
        }
    }
    (place, sandbox, database)
}

pub(crate) async fn get(url: &str, key: Option<&str>) -> (u16, Value) {
    let mut request = reqwest::Client::new().get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[tokio::test]
async fn serve_says_when_it_is_ready_and_stops_when_told_to() {
    let mut place = Place::new();
    place.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    let running = Running::start(&place, &format!("serve --json {ANY_PORTS}"));
    let urls = running.json();
    assert_eq!(get(&format!("{}/health", text(&urls, "apiUrl")), None).await, (200, json!({ "status": "ok" })));
    assert_eq!(get(&format!("{}/v1/accounts", text(&urls, "apiUrl")), None).await.0, 401);
    assert_eq!(get(&format!("{}/live", text(&urls, "opsUrl")), None).await, (200, json!({ "status": "ok" })));
    assert_eq!(get(&format!("{}/ready", text(&urls, "opsUrl")), None).await.0, 200);
    for url in ["opsUrl", "consoleUrl"] {
        let (status, body) = get(&format!("{}/nowhere", text(&urls, url)), None).await;
        assert!(status == 404 && body["error"]["message"].is_string(), "{body}");
    }
    let (code, rest, log) = running.stop("-TERM");
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert!(!log.contains(&MASTER_KEY[5..]));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "ready"));
    assert_eq!(lines.last().unwrap()["message"], "stopped");
}

/// Asserts that this is the description of all pretended providers, and of nothing else.
fn assert_described(sandbox: &Value) {
    let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(members(sandbox), "akahu fiskil grants snaptrade");
    assert_eq!(members(&sandbox["fiskil"]), "baseUrl clientId clientSecret webhookSecret");
    assert_eq!(members(&sandbox["akahu"]), "appSecret appToken baseUrl oauthUrl");
    assert_eq!(members(&sandbox["snaptrade"]), "baseUrl clientId consumerKey");
    let all = ["fiskil", "akahu", "snaptrade"].map(|name| sandbox[name].as_object().unwrap().values());
    assert!(all.into_iter().flatten().all(|value| value.as_str().is_some_and(|text| !text.is_empty())));
    let grants: Vec<_> = sandbox["grants"].as_array().unwrap().iter().collect();
    assert!(
        grants.is_sorted_by_key(|grant| ["fiskil", "akahu", "snaptrade"]
            .iter()
            .position(|name| grant["provider"] == *name))
    );
    for grant in grants {
        let form = match text(grant, "provider") {
            "fiskil" => "arrangementId endUserId provider",
            "akahu" => "authorisation provider userToken",
            _ => "authorizationId provider userId userSecret",
        };
        assert_eq!(members(grant), form);
    }
}

#[tokio::test]
async fn the_demo_is_ready_at_once_and_leaves_nothing_behind() {
    let place = Place::new();
    let running = Running::start(&place, &format!("demo --json --seed 7 --rows 50 {ANY_PORTS}"));
    let demo = running.json();
    assert_eq!((text(&demo, "timezone"), demo["email"].is_string()), ("Australia/Sydney", true));
    assert_described(&demo["sandbox"]);
    let api = text(&demo, "apiUrl");
    let keys = ["apiKey", "developerKey", "saverKey"].map(|name| text(&demo, name));
    for (key, expected) in keys.iter().zip([200, 200, 403]) {
        assert_eq!(get(&format!("{api}/v1/accounts"), Some(key)).await.0, expected);
    }
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(keys[0])).await;
    let mut linked: Vec<_> = connections["data"].as_array().unwrap().iter().map(|one| text(one, "provider")).collect();
    linked.sort_unstable();
    assert_eq!(linked, ["akahu", "akahu", "fiskil", "fiskil", "snaptrade", "snaptrade"]);
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(keys[1])).await;
    assert_eq!((&connections["data"][0]["provider"], &connections["data"][1]), (&json!("fiskil"), &Value::Null));
    assert!(place.folder.path().read_dir().unwrap().next().is_some());
    let (code, rest, log) = running.stop("-INT");
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert!(keys.iter().all(|key| !log.contains(key)), "a key is in the log");
    assert!(place.folder.path().read_dir().unwrap().next().is_none(), "the database is still there");
}

#[tokio::test]
async fn what_the_demo_says_can_be_tried() {
    let mut place = Place::new();
    // The real providers' settings are left aside, whole or not.
    place.set("BELLBIRD_FISKIL__CLIENT_ID", "of another service");
    let mut running = Running::start(&place, &format!("demo --rows 50 {ANY_PORTS}"));
    assert!(running.said.starts_with("Bellbird runs at http://127.0.0.1:"));
    let (mut key, mut urls) = (String::new(), Vec::new());
    loop {
        let mut line = String::new();
        assert!(running.out.read_line(&mut line).unwrap() > 0);
        if line.starts_with("The reference is at") {
            break;
        }
        if let Some(found) = line.trim().strip_prefix("export BELLBIRD_KEY=") {
            key = found.to_owned();
        }
        urls.extend(line.contains("curl").then(|| line.split('\'').nth(1).unwrap().to_owned()));
    }
    for path in ["accounts", "balances", "transactions", "holdings", "trades"] {
        assert_eq!(urls.iter().filter(|url| url.contains(&format!("/v1/{path}"))).count(), 1, "{path}");
    }
    for url in urls {
        let (status, body) = get(&url, Some(&key)).await;
        assert!(status == 200 && !body["data"].as_array().unwrap().is_empty(), "{url}: {body}");
    }
    assert_eq!(running.stop("-TERM").0, Some(0));
}

#[test]
fn a_connection_is_adopted_shown_and_removed() {
    let mut place = Place::migrated();
    let sandbox = Running::start(&place, &format!("sandbox --json --rows 50 {ANY_SANDBOX_PORTS}"));
    let description = sandbox.json();
    assert_described(&description);
    let fiskil = &description["fiskil"];
    place.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    place.set("BELLBIRD_FISKIL__BASE_URL", text(fiskil, "baseUrl"));
    place.set("BELLBIRD_FISKIL__CLIENT_ID", text(fiskil, "clientId"));
    place.set("BELLBIRD_FISKIL__CLIENT_SECRET", text(fiskil, "clientSecret"));
    place.json("user add --email me@example.com");

    let grant = description["grants"][0].to_string();
    let adopt = "connection adopt --user me@example.com --provider fiskil --grant - --json";
    let output = place.run_with_input(adopt, &grant);
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
    let adopted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let connection = &adopted[0];
    assert_eq!((&connection["provider"], &connection["status"]), (&json!("fiskil"), &json!("active")));
    assert_eq!(place.json("connection list"), adopted);
    let id = text(connection, "id");
    let mut shown = place.json(&format!("connection show {id}"));
    let accounts = shown.as_object_mut().unwrap().remove("accounts").unwrap();
    assert!(accounts.as_array().unwrap().iter().all(|account| account["connectionId"] == id));
    let sync = shown.as_object_mut().unwrap().remove("sync").unwrap();
    assert!(sync["syncedAt"].is_null() && sync["nextAt"].is_string() && sync["problem"].is_null(), "{sync}");
    let history = shown.as_object_mut().unwrap().remove("history").unwrap();
    let adopted = json!([{"at": connection["createdAt"], "from": null, "to": "active", "cause": "adopted"}]);
    assert_eq!(history, adopted);
    assert_eq!(shown, *connection);
    let shown = place.text(&format!("connection show {id}"));
    assert!(shown.contains("me@example.com") && shown.contains("xxxx"), "{shown}");

    // Again, from a file: the same connection.
    std::fs::write(place.folder.path().join("grant.json"), &grant).unwrap();
    let again = place.json("connection adopt --user me@example.com --grant grant.json");
    assert_eq!(again[0]["id"], connection["id"]);

    assert_eq!(
        place.error("user remove me@example.com", 1),
        "error: me@example.com still has connections: `bellbird connection list --user me@example.com` shows them, \
         and `bellbird connection remove ID` withdraws the consent of each"
    );
    place.json(&format!("connection remove {id}"));
    assert_eq!(place.json("connection list --user me@example.com"), json!([]));
    place.json("user remove me@example.com");
    assert_eq!(sandbox.stop("-TERM").0, Some(0));
}

/// What `sandbox` says is pasted into a shell: every provider then takes the credentials and its grants.
#[test]
fn what_the_sandbox_says_can_be_pasted() {
    let mut place = Place::migrated();
    place.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    place.json("user add --email me@example.com");
    let mut sandbox = Running::start(&place, &format!("sandbox --rows 50 {ANY_SANDBOX_PORTS}"));
    let (mut grants, mut line) = (Vec::new(), String::new());
    while !line.starts_with("Stop it") {
        line.clear();
        assert!(sandbox.out.read_line(&mut line).unwrap() > 0);
        if let Some((name, value)) = line.trim().strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
            place.set(name, value.trim_matches('\''));
        }
        grants.extend(serde_json::from_str::<Value>(&line).ok());
    }
    let report = place.json(&format!("doctor {ANY_PORTS}"));
    let checks = report["checks"].as_array().unwrap();
    for name in pretended() {
        assert!(checks.iter().any(|check| check["name"] == name && check["verdict"] == "ok"), "{name}: {report}");
        let grant =
            grants.iter().find(|grant| grant["provider"] == name).unwrap_or_else(|| panic!("no grant of {name}"));
        let output =
            place.run_with_input("connection adopt --user me@example.com --grant - --json", &grant.to_string());
        assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
        let adopted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&adopted[0]["provider"], &adopted[0]["status"]), (&json!(name), &json!("active")));
    }
    assert_eq!(place.json("connection list").as_array().unwrap().len(), pretended().count());
    assert_eq!(sandbox.stop("-TERM").0, Some(0));
}
