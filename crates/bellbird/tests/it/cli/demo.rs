//! `bellbird demo`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use standardwebhooks::Webhook;

use super::sandbox::assert_described;
use crate::console;
use crate::support::browser::client;
use crate::support::harness::eventually;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, get, text};
use crate::support::receiver::Receiver;
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// The providers of the connections that a key reads.
async fn linked(api: &str, key: &str) -> Vec<String> {
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(key)).await;
    let connections = connections["data"].as_array().unwrap().iter();
    let mut linked: Vec<String> = connections
        .map(|connection| text(connection, "provider").to_owned())
        .collect();
    linked.sort_unstable();
    linked
}

#[tokio::test]
async fn demo_does_what_it_says_and_cleans_up() {
    let (workdir, receiver) = (Workdir::new(), Receiver::start().await);
    let webhook = format!("--webhook {}", receiver.url);
    let running = workdir.start(&format!("demo --seed 7 --rows 50 {webhook}"));
    let demo = running.json();
    assert_eq!(demo["timezone"], "Australia/Sydney");
    assert!(demo["email"].is_string());
    assert_described(&demo["sandbox"]);
    let api = text(&demo, "apiUrl");
    let keys = ["apiKey", "developerKey", "saverKey"].map(|name| text(&demo, name));
    for (key, expected) in keys.iter().zip([200, 200, 403]) {
        let (status, _) = get(&format!("{api}/v1/accounts"), Some(key)).await;
        assert_eq!(status, expected);
    }
    let claim_url = STANDARD.decode(text(&demo, "simplefinToken")).unwrap();
    let claim_url = String::from_utf8(claim_url).unwrap();
    assert_starts(&claim_url, &format!("{api}/simplefin/claim/"));
    let access_url = client().post(claim_url).send().await.unwrap();
    assert_has(&access_url.text().await.unwrap(), "@127.0.0.1:");
    assert_eq!(
        linked(api, keys[0]).await.join(" "),
        "akahu akahu fiskil fiskil snaptrade snaptrade"
    );
    assert_eq!(linked(api, keys[1]).await, ["fiskil"]);

    let secret = text(&demo, "webhookSecret");
    let webhook = Webhook::new(secret).unwrap();
    let types = Mutex::new(BTreeSet::new());
    eventually(async || {
        let mut types = types.lock().unwrap();
        for event in receiver.drain() {
            let signature = webhook.sign(&event.id, event.timestamp, &event.raw);
            assert_eq!(event.signature, signature.unwrap());
            types.insert(text(&event.body, "type").to_owned());
        }
        types.len() == 2
    })
    .await;
    let types = types.into_inner().unwrap();
    let expected = ["trades.synced", "transactions.synced"];
    assert!(types.iter().eq(expected), "{types:?}");

    // It is no service of an installation.
    let installed = Workdir::migrated_with_key();
    let [api, ops] = ["apiUrl", "opsUrl"].map(|name| text(&demo, name).replace("http://", ""));
    let options = format!("--api-listen {api} --console-listen 127.0.0.1:0 --ops-listen {ops}");
    let expected = [format!("wrong the Bellbird at {api} is a demo: stop it")];
    // The doctor waits three seconds for it, in which a busy machine may not get to it.
    eventually(async || installed.doctor_with(&options, "api.listen") == expected).await;

    let _tried = do_what_pages_advise(&workdir, &demo).await;
    let is_empty = || workdir.folder.path().read_dir().unwrap().next().is_none();
    assert!(!is_empty());
    // They do not delay the end.
    let _connections = open_connections(&demo);
    let (code, rest, log) = running.stop("-INT");
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert_lacks(&log, "connections aborted");
    for secret in keys.iter().chain([&secret]) {
        assert_lacks(&log, secret);
    }
    assert!(is_empty(), "the database is still there");
    let line = format!("demo --webhook http://hooks.example.com/ {ANY_PORTS}");
    assert_has(&workdir.error(&line, 1), "https");
}

/// A developer tries a receiver on this machine without a flag.
async fn try_a_receiver(console: &str) -> Receiver {
    let receiver = Receiver::start().await;
    let signed_in = console::post(&format!("{console}/demo/sign-in"), None, "").await;
    let cookie = signed_in.cookie.expect("a session");
    let url = receiver.url.replace(':', "%3A").replace('/', "%2F");
    let form = format!("url={url}&event=transactions.synced");
    let made = console::post(&format!("{console}/webhooks"), Some(&cookie), &form).await;
    made.assert_shows(200, "whsec_");
    receiver
}

/// As a browser, which keeps connections for later, and opens some in advance.
fn open_connections(demo: &Value) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for url in ["apiUrl", "consoleUrl", "opsUrl"] {
        let address = text(demo, url).strip_prefix("http://").unwrap();
        connections.push(TcpStream::connect(address).unwrap());
        let mut used = TcpStream::connect(address).unwrap();
        write!(used, "GET /nothing HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
        assert!(used.read(&mut [0; 4096]).unwrap() > 0);
        connections.push(used);
    }
    connections
}

/// Does what the demo's pages advise, after the first link has expired. Returns the receiver that
/// was tried.
async fn do_what_pages_advise(workdir: &Workdir, demo: &Value) -> Receiver {
    let console = text(demo, "consoleUrl");
    let page = async |url: &str| {
        let request = client().get(url).header("accept", "text/html");
        request.send().await.unwrap().text().await.unwrap()
    };
    for path in ["/", "/link/expired"] {
        let html = page(&format!("{console}{path}")).await;
        assert_has(&html, "action=\"/demo/link\"");
        assert_lacks(&html, "bellbird connection link");
    }
    assert_eq!(new_link(console, "cross-site").await.status(), 403);
    let made = new_link(console, "same-origin").await;
    assert_eq!(made.status(), 303);
    let link_url = made.headers()["location"].to_str().unwrap();
    assert_starts(link_url, &format!("{console}/link/"));
    assert_ne!(link_url, text(demo, "linkUrl"));
    assert_has(&page(link_url).await, "demo@bellbird.example");

    // The command on the start page works beside the demo, and creates no database of its own.
    let start_page = page(&format!("{console}/")).await;
    let command = start_page
        .split_once("BELLBIRD_DATABASE__URL=&#39;")
        .expect(&start_page)
        .1;
    let (database, command) = command.split_once("&#39; bellbird ").unwrap();
    assert_eq!(database, text(demo, "database"));
    let output = workdir
        .command(command.split_once('<').unwrap().0)
        .arg("--json")
        .env("BELLBIRD_DATABASE__URL", database)
        .output()
        .unwrap();
    assert_eq!(errors(&output), "");
    assert_eq!(output.status.code(), Some(0));
    let created: Value = serde_json::from_slice(&output.stdout).unwrap();
    let accounts = format!("{}/v1/accounts", text(demo, "apiUrl"));
    let (status, _) = get(&accounts, Some(text(&created, "key"))).await;
    assert_eq!(status, 200);
    assert!(!workdir.folder.path().join("bellbird.db").exists());

    try_a_receiver(console).await
}

/// Presses the demo's button for another link.
async fn new_link(console: &str, site: &str) -> reqwest::Response {
    let request = client().post(format!("{console}/demo/link"));
    let request = request.header("sec-fetch-site", site);
    request.send().await.unwrap()
}

/// The demo's button needs no authentication, so it exists for this machine only.
#[tokio::test]
async fn demo_for_other_machines_makes_no_link_urls() {
    let workdir = Workdir::new();
    let line = "demo --json --rows 50 --api-listen 127.0.0.1:0 --console-listen 0.0.0.0:0 --ops-listen 127.0.0.1:0";
    let running = RunningCommand::start(&workdir, line);
    let console = running.url("consoleUrl");
    assert_eq!(new_link(&console, "same-origin").await.status(), 404);
    assert_eq!(running.stop("-INT").0, Some(0));
}

#[tokio::test]
async fn demo_output_can_be_run() {
    let mut workdir = Workdir::new();
    // The demo ignores the settings of real providers, even incomplete ones.
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "of another service");
    let mut running = RunningCommand::start(&workdir, &format!("demo --rows 50 {ANY_PORTS}"));
    let begin = "Bellbird is running at http://127.0.0.1:";
    assert_starts(&running.ready_line, begin);
    let (mut key, mut urls) = (String::new(), Vec::new());
    let mut beside = Workdir::new();
    let mut line = String::new();
    while !line.starts_with("The API reference is at") {
        if let Some(found) = line.trim().strip_prefix("export BELLBIRD_KEY=") {
            key = found.to_owned();
        }
        for name in ["BELLBIRD_DATABASE__URL", "BELLBIRD_SECRETS__KEY"] {
            if line.trim().starts_with(&format!("export {name}=")) {
                beside.set(name, line.split('\'').nth(1).unwrap());
            }
        }
        if line.contains("curl") {
            urls.push(line.split('\'').nth(1).unwrap().to_owned());
        }
        line.clear();
        assert!(running.out.read_line(&mut line).unwrap() > 0);
    }
    for path in ["accounts", "balances", "transactions", "holdings", "trades"] {
        let path = format!("/v1/{path}");
        let count = urls.iter().filter(|url| url.contains(&path)).count();
        assert_eq!(count, 1, "{path}");
    }
    let (files, urls): (Vec<_>, Vec<_>) = urls
        .into_iter()
        .partition(|url| url.contains("/v1/export/"));
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    let file = client().get(file).bearer_auth(&key).send().await.unwrap();
    assert_eq!(file.status(), 200);
    assert!(file.text().await.unwrap().lines().count() > 1);
    for url in urls {
        let (status, body) = get(&url, Some(&key)).await;
        assert_eq!(status, 200, "{url}");
        assert!(!body["data"].as_array().unwrap().is_empty(), "{url}");
    }
    // A command that seals a secret.
    beside.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    let add = "webhook add --user demo@bellbird.example --url http://127.0.0.1:8099/";
    assert_starts(&beside.field(add, "secret"), "whsec_");
    let (code, rest, _) = running.stop("-TERM");
    assert_eq!(code, Some(0));
    assert!(rest.ends_with("The demo has ended.\n"), "{rest}");
}

/// With a terminal, which `script` provides, and a browser, which writes down what it is to open.
#[tokio::test]
async fn demo_opens_the_console_in_a_browser() {
    let workdir = Workdir::new();
    let opened = workdir.path().join("opened");
    let browser = workdir.path().join("xdg-open");
    std::fs::write(
        &browser,
        format!("#!/bin/sh\necho \"$1\" >> {}\n", opened.display()),
    )
    .unwrap();
    std::fs::set_permissions(
        &browser,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let demo = format!("{} demo {ANY_PORTS}", env!("CARGO_BIN_EXE_bellbird"));
    let mut child = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &demo, "/dev/null"])
        .current_dir(workdir.path())
        .env("DISPLAY", ":0")
        .env(
            "PATH",
            format!(
                "{}:{}",
                workdir.path().display(),
                std::env::var("PATH").unwrap()
            ),
        )
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The shell makes the file before it writes the line.
    let read = || std::fs::read_to_string(&opened).unwrap_or_default();
    eventually(async || read().ends_with('\n')).await;
    let url = read();
    let page = reqwest::get(url.trim()).await.unwrap();
    assert_eq!(page.status(), 200, "{url}");
    // As Ctrl-C on the terminal.
    child.stdin.take().unwrap().write_all(&[3]).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_has(&shown, url.trim());
    assert_has(&shown, "The demo has ended.");
}
