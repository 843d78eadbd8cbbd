//! The commands that run until they are told to stop.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command};

use serde_json::{Value, json};

use crate::cli::{Place, errors};

pub(crate) const ANY_PORTS: &str = "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
const MASTER_KEY: &str = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

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

#[tokio::test]
async fn the_demo_is_ready_at_once_and_leaves_nothing_behind() {
    let place = Place::new();
    let running = Running::start(&place, &format!("demo --json --seed 7 --rows 50 {ANY_PORTS}"));
    let demo = running.json();
    assert_eq!((text(&demo, "timezone"), demo["email"].is_string()), ("Australia/Sydney", true));
    assert!(demo["sandbox"]["fiskil"]["baseUrl"].is_string() && demo["sandbox"]["grants"].is_array());
    let api = text(&demo, "apiUrl");
    let keys = ["apiKey", "developerKey", "saverKey"].map(|name| text(&demo, name));
    for (key, expected) in keys.iter().zip([200, 200, 403]) {
        assert_eq!(get(&format!("{api}/v1/accounts"), Some(key)).await.0, expected);
    }
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(keys[0])).await;
    assert!(!connections["data"].as_array().unwrap().is_empty());
    assert!(place.folder.path().read_dir().unwrap().next().is_some());
    let (code, rest, log) = running.stop("-INT");
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert!(keys.iter().all(|key| !log.contains(key)), "a key is in the log");
    assert!(place.folder.path().read_dir().unwrap().next().is_none(), "the database is still there");
}

#[tokio::test]
async fn what_the_demo_says_can_be_tried() {
    let place = Place::new();
    let mut running = Running::start(&place, &format!("demo --rows 50 {ANY_PORTS}"));
    assert!(running.said.starts_with("Bellbird runs at http://127.0.0.1:"));
    let (mut key, mut urls) = (String::new(), Vec::new());
    while urls.len() < 3 {
        let mut line = String::new();
        assert!(running.out.read_line(&mut line).unwrap() > 0);
        if let Some(found) = line.trim().strip_prefix("export BELLBIRD_KEY=") {
            key = found.to_owned();
        }
        urls.extend(line.contains("curl").then(|| line.split('\'').nth(1).unwrap().to_owned()));
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
    let sandbox = Running::start(&place, "sandbox --json --rows 50 --fiskil-listen 127.0.0.1:0");
    let description = sandbox.json();
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
