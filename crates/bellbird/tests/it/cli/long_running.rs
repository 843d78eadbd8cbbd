//! Commands that run until a signal stops them.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::console;
use crate::support::database::execute;
use crate::support::deployment::Deployment;
use crate::support::harness::{Database, also_on_postgres, eventually, simulated_providers};
use crate::support::process::{
    ANY_PORTS, ANY_SANDBOX_PORTS, MASTER_KEY, RunningCommand, Workdir, errors, get, text,
};
use crate::support::receiver::Receiver;
use crate::support::words::{assert_has, assert_lacks, assert_starts};

#[tokio::test]
async fn serve_prints_ready_and_stops_on_sigterm() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    let running = workdir.start("serve");
    let urls = running.json();
    assert_eq!(
        get(&format!("{}/health", text(&urls, "apiUrl")), None).await,
        (200, json!({ "status": "ok" }))
    );
    assert_eq!(
        get(&format!("{}/v1/accounts", text(&urls, "apiUrl")), None)
            .await
            .0,
        401
    );
    assert_eq!(
        get(&format!("{}/live", text(&urls, "opsUrl")), None).await,
        (200, json!({ "status": "ok" }))
    );
    assert_eq!(
        get(&format!("{}/ready", text(&urls, "opsUrl")), None)
            .await
            .0,
        200
    );
    for url in ["opsUrl", "consoleUrl"] {
        let (status, body) = get(&format!("{}/nowhere", text(&urls, url)), None).await;
        assert!(
            status == 404 && body["error"]["message"].is_string(),
            "{body}"
        );
    }
    let (code, rest, log) = running.stop("-TERM");
    assert_eq!(code, Some(0));
    assert_eq!(rest, "");
    assert!(!log.contains(&MASTER_KEY[5..]));
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().any(|line| line["message"] == "ready"));
    assert!(
        lines
            .iter()
            .any(|line| line["message"] == "stopping: finishing requests in flight, at most 30 s")
    );
    assert_eq!(lines.last().unwrap()["message"], "stopped");
}

/// As `rm` does, or a volume that is mounted over the folder. The steps are those of
/// docs/alerts.md.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn deleted_database_fails_readiness_and_can_be_rescued() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    workdir.json("migrate");
    let service = workdir.start("serve");
    workdir.json("user add --email me@example.com");
    let file = workdir.path().join("bellbird.db");
    std::fs::remove_file(&file).unwrap();
    let ops = text(&service.json(), "opsUrl").to_owned();
    let ready = async || get(&format!("{ops}/ready"), None).await;
    eventually(async || ready().await.0 == 503).await;
    let body = ready().await.1;
    let reason = format!(
        "the SQLite database {} was deleted: its rows are only in this process",
        file.display()
    );
    assert_starts(text(&body, "database"), &reason);
    let page = reqwest::get(format!("{ops}/metrics"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        page.lines()
            .any(|line| line == "bellbird_database_available 0"),
        "{page}"
    );
    // A command must not bury it.
    let error = workdir.error("user list", 1);
    assert_has(&error, "does not exist: is this the right folder");

    let id = service.id().to_string();
    let signal = |name: &str| {
        assert!(
            std::process::Command::new("kill")
                .args([name, &id])
                .status()
                .unwrap()
                .success()
        );
    };
    signal("-STOP");
    for fd in std::fs::read_dir(format!("/proc/{id}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        let target = std::fs::read_link(&fd).unwrap_or_default();
        let target = target.to_string_lossy();
        for (end, copy) in [
            ("bellbird.db", "rescued.db"),
            ("bellbird.db-wal", "rescued.db-wal"),
        ] {
            if target.trim_end_matches(" (deleted)").ends_with(end) {
                std::fs::copy(&fd, workdir.path().join(copy)).unwrap();
            }
        }
    }
    signal("-CONT");
    workdir.set("BELLBIRD_DATABASE__URL", "sqlite:rescued.db");
    workdir.json("backup rescued-backup.db");
    assert_eq!(workdir.json("user list")[0]["email"], "me@example.com");
    let (_, _, log) = service.stop("-TERM");
    assert_eq!(
        log.matches("was deleted").count(),
        1,
        "the reason is logged once: {log}"
    );
}

/// Everybody may ask, so it costs no query. The reason is for the operator.
#[tokio::test]
async fn outside_readiness_follows_the_renewals_of_the_instance() {
    let database = Database::of_test();
    let Deployment {
        mut workdir,
        sandbox: _sandbox,
        database,
    } = Deployment::start_on(database, 50, &[]).await;
    let service = workdir.start("serve");
    let urls = service.json();
    let status = async |listener: &str| {
        let url = format!("{}/health/ready", text(&urls, listener));
        reqwest::get(url).await.unwrap().status().as_u16()
    };
    assert_eq!(
        (status("apiUrl").await, status("consoleUrl").await),
        (200, 200)
    );
    execute(&database, "ALTER TABLE instances RENAME TO taken", "").await;
    eventually(async || status("apiUrl").await == 503).await;
    assert_eq!(status("consoleUrl").await, 503);
    let (_, body) = get(&format!("{}/health/ready", text(&urls, "apiUrl")), None).await;
    assert_eq!(
        body,
        json!({"error": {"message": "The service is temporarily unavailable: try again later"}})
    );
    assert_eq!(
        get(&format!("{}/health", text(&urls, "apiUrl")), None)
            .await
            .0,
        200,
        "the process runs"
    );
    execute(&database, "ALTER TABLE taken RENAME TO instances", "").await;
    eventually(async || status("apiUrl").await == 200).await;

    workdir.set(
        "BELLBIRD_OPS__LISTEN",
        text(&urls, "opsUrl").strip_prefix("http://").unwrap(),
    );
    assert_eq!(
        (workdir.text("ready"), workdir.json("ready")),
        ("Ready.\n".to_owned(), json!({"status": "ok"}))
    );
    execute(
        &database,
        "UPDATE schema_migrations SET oldest_compatible = 9999, version = 9999
            WHERE version = (SELECT MAX(version) FROM schema_migrations)",
        "",
    )
    .await;
    let error = workdir.error("ready", 1);
    assert_eq!(
        error,
        "error: Not ready: the database schema has an unknown version."
    );
    drop(service);
    let error = workdir.error("ready", 1);
    assert_has(&error, "is it running, and with this ops.listen?");
}

/// As systemd does for a unit with `Type=notify`.
#[test]
fn service_says_that_it_is_ready() {
    let mut workdir = Workdir::new();
    let path = workdir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    workdir.set("NOTIFY_SOCKET", path.to_str().unwrap());
    let service = workdir.start("serve");
    let mut message = [0; 64];
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    service.end();
}

/// While instances are upgraded one after another, the newest one migrates and the others go
/// on.
#[tokio::test]
async fn instance_works_with_a_newer_schema() {
    let database = Database::of_test();
    let Deployment {
        workdir,
        sandbox: _sandbox,
        database,
    } = Deployment::start_on(database, 50, &[]).await;
    let serve = || workdir.start("serve");
    let running = serve();
    let ready = async |running: &RunningCommand| {
        get(&format!("{}/ready", text(&running.json(), "opsUrl")), None).await
    };
    execute(
        &database,
        "INSERT INTO schema_migrations VALUES (9999, '9999_later', 'x', 1, 0)",
        "",
    )
    .await;
    assert_eq!(ready(&running).await.0, 200);
    // SQLite serves one at a time.
    let running = if database.starts_with("sqlite:") {
        running.end();
        serve()
    } else {
        assert_eq!(ready(&serve()).await.0, 200, "another starts, too");
        running
    };
    assert_eq!(ready(&running).await.0, 200, "it starts, too");
    execute(
        &database,
        "UPDATE schema_migrations SET oldest_compatible = 9999 WHERE version = 9999",
        "",
    )
    .await;
    let (status, body) = ready(&running).await;
    assert_eq!(
        (status, text(&body, "database")),
        (503, "the database schema has an unknown version")
    );
    drop(running);
    let error = workdir.error(&format!("serve {ANY_PORTS}"), 1);
    assert_has(&error, "9999_later");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn service_writes_no_core_file() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    let running = workdir.start("serve");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(
        core.split_whitespace().collect::<Vec<_>>()[4..6],
        ["0", "0"],
        "{core}"
    );
}

/// Asserts that this describes all simulated providers, and nothing else.
fn assert_described(sandbox: &Value) {
    let members = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        members(sandbox),
        "akahu credentials fiskil people snaptrade"
    );
    assert_eq!(
        members(&sandbox["fiskil"]),
        "baseUrl clientId clientSecret webhookSecret"
    );
    assert_eq!(
        members(&sandbox["akahu"]),
        "appSecret appToken baseUrl oauthUrl"
    );
    assert_eq!(
        members(&sandbox["snaptrade"]),
        "baseUrl clientId consumerKey"
    );
    let all =
        ["fiskil", "akahu", "snaptrade"].map(|name| sandbox[name].as_object().unwrap().values());
    assert!(
        all.into_iter()
            .flatten()
            .all(|value| value.as_str().is_some_and(|text| !text.is_empty()))
    );
    let all_credentials: Vec<_> = sandbox["credentials"].as_array().unwrap().iter().collect();
    assert!(all_credentials.is_sorted_by_key(|credentials| {
        ["fiskil", "akahu", "snaptrade"]
            .iter()
            .position(|name| credentials["provider"] == *name)
    }));
    let people = sandbox["people"].as_array().unwrap();
    assert_eq!(people.len(), all_credentials.len());
    assert!(
        people
            .iter()
            .all(|person| person.as_str().is_some_and(|person| person.contains(", "))),
        "{people:?}"
    );
    for credentials in all_credentials {
        let form = match text(credentials, "provider") {
            "fiskil" => "arrangementId endUserId provider",
            "akahu" => "authorisation provider userToken",
            _ => "authorizationId provider userId userSecret",
        };
        assert_eq!(members(credentials), form);
    }
}

#[tokio::test]
async fn demo_starts_ready_and_cleans_up() {
    let workdir = Workdir::new();
    let running = workdir.start("demo --seed 7 --rows 50");
    let demo = running.json();
    assert_eq!(demo["timezone"], "Australia/Sydney");
    assert!(demo["email"].is_string());
    assert_described(&demo["sandbox"]);
    let api = text(&demo, "apiUrl");
    let keys = ["apiKey", "developerKey", "saverKey"].map(|name| text(&demo, name));
    for (key, expected) in keys.iter().zip([200, 200, 403]) {
        assert_eq!(
            get(&format!("{api}/v1/accounts"), Some(key)).await.0,
            expected
        );
    }
    let claim_url =
        String::from_utf8(STANDARD.decode(text(&demo, "simplefinToken")).unwrap()).unwrap();
    assert_starts(&claim_url, &format!("{api}/simplefin/claim/"));
    let access_url = reqwest::Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .post(claim_url)
        .send()
        .await
        .unwrap();
    assert_has(&access_url.text().await.unwrap(), "@127.0.0.1:");
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(keys[0])).await;
    let mut linked: Vec<_> = connections["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|connection| text(connection, "provider"))
        .collect();
    linked.sort_unstable();
    assert_eq!(
        linked,
        [
            "akahu",
            "akahu",
            "fiskil",
            "fiskil",
            "snaptrade",
            "snaptrade"
        ]
    );
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(keys[1])).await;
    assert_eq!(connections["data"][0]["provider"], "fiskil");
    assert_eq!(connections["data"][1], Value::Null);
    assert!(workdir.folder.path().read_dir().unwrap().next().is_some());
    let (code, rest, log) = running.stop("-INT");
    assert_eq!(code, Some(0));
    assert_eq!(rest, "");
    assert!(
        keys.iter().all(|key| !log.contains(key)),
        "a key is in the log"
    );
    assert!(
        workdir.folder.path().read_dir().unwrap().next().is_none(),
        "the database is still there"
    );
}

#[tokio::test]
async fn demo_sends_webhook_events() {
    let receiver = Receiver::start().await;
    let workdir = Workdir::new();
    let demo = format!(
        "demo --json --rows 50 --webhook {} {ANY_PORTS}",
        receiver.url
    );
    let running = RunningCommand::start(&workdir, &demo);
    let printed = running.json();
    let webhook = Webhook::new(text(&printed, "webhookSecret")).unwrap();
    let types = Mutex::new(BTreeSet::new());
    eventually(async || {
        let mut types = types.lock().unwrap();
        for event in receiver.drain() {
            assert_eq!(
                event.signature,
                webhook
                    .sign(&event.id, event.timestamp, &event.raw)
                    .unwrap()
            );
            types.insert(text(&event.body, "type").to_owned());
        }
        types.len() == 2
    })
    .await;
    assert_eq!(
        types.into_inner().unwrap().into_iter().collect::<Vec<_>>(),
        ["trades.synced", "transactions.synced"]
    );
    let (code, _, log) = running.stop("-INT");
    assert_eq!(code, Some(0));
    assert!(
        !log.contains(text(&printed, "webhookSecret")),
        "the secret is in the log"
    );
    let error = workdir.error(
        &format!("demo --webhook http://hooks.example.com/ {ANY_PORTS}"),
        1,
    );
    assert_has(&error, "https");
}

/// A developer tries a receiver on this machine without a flag.
#[tokio::test]
async fn demo_takes_a_receiver_on_this_machine() {
    let (receiver, workdir) = (Receiver::start().await, Workdir::new());
    let running = workdir.start("demo --rows 50");
    let demo = running.json();
    let console = text(&demo, "consoleUrl");
    let signed_in = console::post(&format!("{console}/demo/sign-in"), None, "").await;
    let cookie = signed_in.cookie.expect("a session");
    let url = receiver.url.replace(':', "%3A").replace('/', "%2F");
    let form = format!("url={url}&event=transactions.synced");
    let made = console::post(&format!("{console}/webhooks"), Some(&cookie), &form).await;
    made.assert_shows(200, "whsec_");
}

/// A browser keeps connections for later, and opens some in advance.
#[test]
fn open_connections_do_not_delay_the_end() {
    let workdir = Workdir::new();
    let running = workdir.start("demo --rows 50");
    let demo = running.json();
    let mut connections = Vec::new();
    for url in ["apiUrl", "consoleUrl", "opsUrl"] {
        let address = text(&demo, url).strip_prefix("http://").unwrap();
        connections.push(TcpStream::connect(address).unwrap());
        let mut used = TcpStream::connect(address).unwrap();
        write!(used, "GET /nothing HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
        assert!(used.read(&mut [0; 4096]).unwrap() > 0);
        connections.push(used);
    }
    let (code, _, log) = running.stop("-INT");
    assert_eq!(code, Some(0));
    assert_lacks(&log, "connections aborted");
}

/// Does what the demo's pages advise, after the first link has expired.
#[tokio::test]
async fn demo_makes_new_link_urls_and_names_its_database() {
    let workdir = Workdir::new();
    let running = workdir.start("demo --rows 50");
    let demo = running.json();
    let console = text(&demo, "consoleUrl");
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let page = async |path: &str| {
        let answer = http
            .get(format!("{console}{path}"))
            .header("accept", "text/html")
            .send()
            .await
            .unwrap();
        answer.text().await.unwrap()
    };
    for path in ["/", "/link/expired"] {
        let html = page(path).await;
        assert_has(&html, "action=\"/demo/link\"");
        assert_lacks(&html, "bellbird connection link");
    }
    let new_link = || http.post(format!("{console}/demo/link"));
    assert_eq!(
        new_link()
            .header("sec-fetch-site", "cross-site")
            .send()
            .await
            .unwrap()
            .status(),
        403
    );
    let made = new_link()
        .header("sec-fetch-site", "same-origin")
        .send()
        .await
        .unwrap();
    assert_eq!(made.status(), 303);
    let link_url = made.headers()["location"].to_str().unwrap();
    assert!(
        link_url.starts_with(&format!("{console}/link/")) && link_url != text(&demo, "linkUrl")
    );
    let link = http
        .get(link_url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_has(&link, "demo@bellbird.example");

    // The command on the start page works beside the demo, and creates no database of its own.
    let start_page = page("/").await;
    let command = start_page
        .split_once("BELLBIRD_DATABASE__URL=&#39;")
        .expect(&start_page)
        .1;
    let (database, command) = command.split_once("&#39; bellbird ").unwrap();
    assert_eq!(database, text(&demo, "database"));
    let output = workdir
        .command(command.split_once('<').unwrap().0)
        .arg("--json")
        .env("BELLBIRD_DATABASE__URL", database)
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), errors(&output).as_str()),
        (Some(0), "")
    );
    let created: Value = serde_json::from_slice(&output.stdout).unwrap();
    let api = text(&demo, "apiUrl");
    assert_eq!(
        get(&format!("{api}/v1/accounts"), Some(text(&created, "key")))
            .await
            .0,
        200
    );
    assert!(!workdir.folder.path().join("bellbird.db").exists());
    assert_eq!(running.stop("-INT").0, Some(0));
}

/// The demo's button needs no authentication, so it exists for this machine only.
#[tokio::test]
async fn demo_for_other_machines_makes_no_link_urls() {
    let workdir = Workdir::new();
    let line = "demo --json --rows 50 --api-listen 127.0.0.1:0 --console-listen 0.0.0.0:0 --ops-listen 127.0.0.1:0";
    let running = RunningCommand::start(&workdir, line);
    let demo = running.json();
    let new_link = reqwest::Client::new().post(format!("{}/demo/link", text(&demo, "consoleUrl")));
    assert_eq!(
        new_link
            .header("sec-fetch-site", "same-origin")
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    assert_eq!(running.stop("-INT").0, Some(0));
}

#[tokio::test]
async fn demo_output_can_be_run() {
    let mut workdir = Workdir::new();
    // The demo ignores the settings of real providers, even incomplete ones.
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "of another service");
    let mut running = RunningCommand::start(&workdir, &format!("demo --rows 50 {ANY_PORTS}"));
    assert_starts(
        &running.ready_line,
        "Bellbird is running at http://127.0.0.1:",
    );
    let (mut key, mut urls) = (String::new(), Vec::new());
    loop {
        let mut line = String::new();
        assert!(running.out.read_line(&mut line).unwrap() > 0);
        if line.starts_with("The API reference is at") {
            break;
        }
        if let Some(found) = line.trim().strip_prefix("export BELLBIRD_KEY=") {
            key = found.to_owned();
        }
        urls.extend(
            line.contains("curl")
                .then(|| line.split('\'').nth(1).unwrap().to_owned()),
        );
    }
    for path in ["accounts", "balances", "transactions", "holdings", "trades"] {
        assert_eq!(
            urls.iter()
                .filter(|url| url.contains(&format!("/v1/{path}")))
                .count(),
            1,
            "{path}"
        );
    }
    let (files, urls): (Vec<_>, Vec<_>) = urls
        .into_iter()
        .partition(|url| url.contains("/v1/export/"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .get(&files[0])
        .bearer_auth(&key)
        .send()
        .await
        .unwrap();
    assert!(
        files.len() == 1
            && answer.status() == 200
            && answer.text().await.unwrap().lines().count() > 1
    );
    for url in urls {
        let (status, body) = get(&url, Some(&key)).await;
        assert!(
            status == 200 && !body["data"].as_array().unwrap().is_empty(),
            "{url}: {body}"
        );
    }
    let (code, rest, _) = running.stop("-TERM");
    assert_eq!(code, Some(0));
    assert!(rest.ends_with("The demo has ended.\n"), "{rest}");
}

#[test]
fn connection_is_imported_shown_and_removed() {
    let mut workdir = Workdir::migrated();
    let sandbox = RunningCommand::start(
        &workdir,
        &format!("sandbox --json --rows 50 {ANY_SANDBOX_PORTS}"),
    );
    let description = sandbox.json();
    assert_described(&description);
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    workdir.set_fiskil(&description);
    workdir.json("user add --email me@example.com");

    let credentials = description["credentials"][0].to_string();
    let import = "connection import --user me@example.com --provider fiskil --credentials - --json";
    let output = workdir.run_with_input(import, &credentials);
    assert_eq!(
        (output.status.code(), errors(&output).as_str()),
        (Some(0), "")
    );
    let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let connection = &imported[0];
    assert_eq!(connection["provider"], "fiskil");
    assert_eq!(connection["status"], "active");
    let id = text(connection, "id");
    let mut shown = workdir.json(&format!("connection show {id}"));
    let accounts = shown.as_object_mut().unwrap().remove("accounts").unwrap();
    assert_eq!(
        shown.as_object_mut().unwrap().remove("user").unwrap(),
        "me@example.com"
    );
    let mut listed = connection.clone();
    listed["user"] = json!("me@example.com");
    listed["accounts"] = json!(accounts.as_array().unwrap().len());
    assert_eq!(workdir.json("connection list"), json!([listed]));
    let table = workdir.text("connection list");
    assert_starts(&table, "USER ");
    assert_has(&table, "\nme@example.com  ");
    assert!(
        accounts
            .as_array()
            .unwrap()
            .iter()
            .all(|account| account["connectionId"] == id)
    );
    let sync = shown.as_object_mut().unwrap().remove("sync").unwrap();
    assert!(
        sync["syncedAt"].is_null() && sync["nextAt"].is_string() && sync["lastError"].is_null(),
        "{sync}"
    );
    let history = shown.as_object_mut().unwrap().remove("history").unwrap();
    let imported =
        json!([{"at": connection["createdAt"], "from": null, "to": "active", "cause": "imported"}]);
    assert_eq!(history, imported);
    assert_eq!(shown, *connection);
    let shown = workdir.text(&format!("connection show {id}"));
    assert_has(&shown, "me@example.com");
    assert_has(&shown, "xxxx");

    // A second import, from a file, gives the same connection.
    std::fs::write(workdir.folder.path().join("credentials.json"), &credentials).unwrap();
    let again =
        workdir.json("connection import --user me@example.com --credentials credentials.json");
    assert_eq!(again[0]["id"], connection["id"]);

    assert_eq!(
        workdir.error("user remove me@example.com --yes", 1),
        "error: me@example.com still has connections: `bellbird connection list --user me@example.com` shows them, \
         and `bellbird connection remove ID` withdraws the consent of each"
    );
    let synced = workdir.json("connection sync --user me@example.com");
    assert_eq!(synced[0]["connectionId"], id);
    assert_has(
        &workdir.error(&format!("connection remove {id}"), 2),
        "--dry-run",
    );
    let planned = workdir.json(&format!("connection remove {id} --dry-run"));
    assert_eq!(
        (&planned["user"], &planned["dryRun"]),
        (&json!("me@example.com"), &json!(true))
    );
    assert_eq!(
        (&planned["accounts"], &planned["withdrawsConsent"]),
        (&accounts, &json!(true))
    );
    let planned = workdir.text(&format!("connection remove {id} --dry-run --local-only"));
    assert_has(&planned, "xxxx");
    assert_has(&planned, "the consent stays active");
    assert_eq!(
        workdir.json(&format!("connection show {id}"))["status"],
        "active"
    );
    workdir.json(&format!("connection remove {id}"));
    assert_eq!(
        workdir.json("connection list --user me@example.com"),
        json!([])
    );
    workdir.json("user remove me@example.com");
    sandbox.end();
}

/// Exports the variables that `sandbox` prints and imports the credentials that it prints, for
/// every provider.
#[test]
fn sandbox_output_can_be_pasted() {
    let mut workdir = Workdir::migrated();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    workdir.json("user add --email me@example.com");
    let mut sandbox =
        RunningCommand::start(&workdir, &format!("sandbox --rows 50 {ANY_SANDBOX_PORTS}"));
    let (mut all_credentials, mut line) = (Vec::new(), String::new());
    while !line.starts_with("Press Ctrl-C") {
        line.clear();
        assert!(sandbox.out.read_line(&mut line).unwrap() > 0);
        if let Some((name, value)) = line
            .trim()
            .strip_prefix("export ")
            .and_then(|rest| rest.split_once('='))
        {
            workdir.set(name, value.trim_matches('\''));
        }
        all_credentials.extend(serde_json::from_str::<Value>(&line).ok());
    }
    for name in simulated_providers() {
        let found = workdir.doctor(name);
        assert_starts(&found[0], "ok ");
        let credentials = all_credentials
            .iter()
            .find(|credentials| credentials["provider"] == name)
            .unwrap_or_else(|| panic!("no credentials of {name}"));
        let id = workdir.import("me@example.com", credentials);
        let imported = workdir.json(&format!("connection show {id}"));
        assert_eq!(imported["provider"], name);
        assert_eq!(imported["status"], "active");
    }
    assert_eq!(
        workdir.json("connection list").as_array().unwrap().len(),
        simulated_providers().count()
    );
    sandbox.end();
}

/// Ten years, at every provider.
#[tokio::test]
async fn first_sync_reads_as_far_back_as_set() {
    let Deployment {
        mut workdir,
        sandbox,
        ..
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    workdir.json("user add --email me@example.com");
    for provider in simulated_providers() {
        let description = sandbox.json();
        let mut all = description["credentials"].as_array().unwrap().iter();
        let credentials = all
            .find(|credentials| credentials["provider"] == provider)
            .unwrap();
        let new_count = |workdir: &Workdir| {
            workdir.import("me@example.com", credentials);
            let synced = workdir.json("connection sync --all");
            let id = text(&synced[0], "connectionId").to_owned();
            workdir.json(&format!("connection remove {id} --local-only"));
            synced[0]["newCount"].as_u64().unwrap()
        };
        workdir.set("BELLBIRD_SYNC__FIRST_DAYS", "30");
        let month = new_count(&workdir);
        workdir.set("BELLBIRD_SYNC__FIRST_DAYS", "3650");
        let decade = new_count(&workdir);
        assert!(
            month > 0 && decade > month * 2,
            "{provider}: {month} rows of a month, {decade} of ten years"
        );
    }
    sandbox.end();
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
    eventually(async || opened.exists()).await;
    let url = std::fs::read_to_string(&opened).unwrap();
    let page = reqwest::get(url.trim()).await.unwrap();
    assert_eq!(page.status(), 200, "{url}");
    // As Ctrl-C on the terminal.
    child.stdin.take().unwrap().write_all(&[3]).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_has(&shown, url.trim());
    assert_has(&shown, "The demo has ended.");
}

also_on_postgres! { outside_readiness_follows_the_renewals_of_the_instance instance_works_with_a_newer_schema }
