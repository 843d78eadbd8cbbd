//! `bellbird webhook`, where no running service is needed.

use bellbird::instances::VERSION;
use bellbird_webhooks::delivery::sign::Signer;
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use super::instances::migrated;
use crate::support::database::execute;
use crate::support::deployment::Deployment;
use crate::support::fields::assert_fields;
use crate::support::harness::Database;
use crate::support::port::free_port;
use crate::support::process::{Workdir, errors, names, text};
use crate::support::receiver::{ReceivedEvent, Receiver, Reply};
use crate::support::transcript::{Transcript, transcript};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// A folder with a database and a user, where endpoints on this machine are allowed.
async fn workdir_with_user() -> Workdir {
    let (mut workdir, _) = migrated(Database::of_test()).await;
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    workdir.json("user add --email me@example.com");
    workdir
}

fn add(workdir: &Workdir, url: &str) -> Value {
    workdir.json(&format!("webhook add --user me@example.com --url {url}"))
}

/// Adds an endpoint to which nothing listens. Returns its id.
fn add_any(workdir: &Workdir) -> String {
    text(&add(workdir, "http://127.0.0.1:8099/"), "id").to_owned()
}

fn instant(value: &Value, name: &str) -> Timestamp {
    text(value, name).parse().unwrap()
}

/// The only request that came since the last call.
fn only_request(receiver: &Receiver) -> ReceivedEvent {
    let mut received = receiver.drain();
    assert_eq!(received.len(), 1);
    received.remove(0)
}

/// The signature of this request with one secret.
fn signature(event: &ReceivedEvent, secret: &str) -> String {
    let signer = Signer::new(&[&SecretString::from(secret)]).unwrap();
    signer.signature(event.id.parse().unwrap(), event.timestamp, &event.raw)
}

#[tokio::test]
async fn endpoints_are_added_and_listed() {
    let workdir = workdir_with_user().await;
    let mut all = Transcript::new(&workdir);
    let add = "webhook add --user me@example.com --url";
    all.json("webhook list");
    let both = all.json(&format!("{add} http://localhost:8099/hook?token=s3cret"));
    assert!(Signer::new(&[&SecretString::from(text(&both, "secret"))]).is_ok());
    all.json(&format!(
        "{add} HTTP://127.0.0.1:8099 --events trades.synced,trades.synced"
    ));
    let reconnects = all.json(&format!(
        "{add} http://127.0.0.1:8099/status --events connection.updated,trades.synced"
    ));
    all.run("webhook list");
    all.json(&format!("webhook remove {}", text(&reconnects, "id")));

    workdir.json("user add --email other@example.com");
    all.json("webhook list --user other@example.com");
    all.run("webhook add --user other@example.com --url http://127.0.0.1:8099/");
    workdir.json("user remove other@example.com");
    let list = all.json("webhook list --user me@example.com");
    assert_eq!(workdir.json("webhook list"), list);
    all.run("webhook list");

    let id = text(&both, "id");
    all.json(&format!("webhook show {id}"));
    all.run(&format!("webhook show {id}"));
    all.json(&format!(
        "webhook set {id} --url http://127.0.0.1:8099/new --events trades.synced"
    ));
    all.json(&format!(
        "webhook set {id} --events transactions.synced,trades.synced"
    ));
    for line in [
        "set ID --url http://hooks.example.com/",
        "remove ID",
        "remove ID --dry-run --json",
        "remove ID --json",
        "list",
    ] {
        all.run(&format!("webhook {}", line.replace("ID", id)));
    }
    workdir.json("user remove me@example.com");
    all.json("webhook list");
    insta::assert_snapshot!(all.finish());
}

#[tokio::test]
async fn a_user_has_twenty_endpoints_at_most() {
    let workdir = workdir_with_user().await;
    let first = add(&workdir, "http://127.0.0.1:8099/0");
    for number in 1..20 {
        add(&workdir, &format!("http://127.0.0.1:8099/{number}"));
    }
    let another = "webhook add --user me@example.com --url http://127.0.0.1:8099/20";
    assert_eq!(
        workdir.error(another, 1),
        "error: me@example.com already has 20 endpoints, which is the limit: `bellbird webhook list --user \
         me@example.com` shows them, and `bellbird webhook remove ID` removes one"
    );
    workdir.json(&format!("webhook remove {}", text(&first, "id")));
    add(&workdir, "http://127.0.0.1:8099/20");
    workdir.json("user add --email other@example.com");
    workdir.json("webhook add --user other@example.com --url http://127.0.0.1:8099/");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_for_all_users_is_managed_by_commands() {
    let workdir = workdir_with_user().await;
    let receiver = Receiver::start().await;
    let url = &receiver.url;
    let mut all = Transcript::new(&workdir);
    all.name(url, "URL");
    let add = "webhook add --all-users --url";
    let added = all.json(&format!("{add} {url} --events connection.created"));
    let id = text(&added, "id");
    all.run(&format!("webhook show {id}"));
    all.json(&format!("webhook show {id}"));
    all.json("webhook list");
    // It is not the user's.
    all.json("webhook list --user me@example.com");

    let pinged = all.json(&format!("webhook ping {id}"));
    let event = text(&pinged, "eventId");
    all.json(&format!("webhook deliveries {id}"));
    for line in [
        "redeliver ID EVENT",
        // The ping is nobody's.
        "redeliver ID EVENT --user me@example.com",
        "recover ID --since 7d --json",
        "recover ID --since 7d --user me@example.com --json",
        "disable ID",
        "recover ID --since 7d",
        "recover ID --since 7d --user me@example.com",
        "enable ID",
        "show ID",
        "remove ID --json",
        "list",
    ] {
        let line = line.replace("ID", id).replace("EVENT", event);
        all.run(&format!("webhook {line}"));
    }
    all.run(&format!("{add} {url} --user me@example.com"));
    // Nothing has failed, so no recovery changed anything.
    let audit = workdir.json("operator-key audit").to_string();
    assert_has(&audit, "webhook_endpoint.enable");
    assert_lacks(&audit, "delivery.recover");
    insta::assert_snapshot!(all.finish());
}

#[tokio::test]
async fn hostile_urls_are_rejected_and_not_echoed() {
    let mut workdir = workdir_with_user().await;
    let reject = |workdir: &Workdir, url: &str| {
        let line = ["webhook", "add", "--user", "me@example.com", "--url", url];
        let output = workdir.command("").args(line).output().unwrap();
        let error = errors(&output);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(1), 0),
            "{url}: {error}"
        );
        assert!(
            error.starts_with("error: the ") && error.lines().count() == 1,
            "{url}: {error}"
        );
        assert_lacks(&error, "s3cret");
        assert_lacks(&error, "169.254");
        assert_lacks(&error, "metadata");
    };
    // One of each kind: the crate of webhooks has all spellings. They are rejected even when
    // loopback URLs are allowed for development.
    for url in [
        "http://hooks.example.com/s3cret",
        "https://169.254.169.254/latest/s3cret",
        "https://metadata.google.internal/s3cret",
        "https://me:s3cret@hooks.example.com/",
        "https://hooks.example.com:22/s3cret",
        "https://hooks.example.com/#s3cret",
        "s3cret",
        "",
    ] {
        reject(&workdir, url);
    }
    let long = format!("https://hooks.example.com/s3cret{}", "x".repeat(2048));
    reject(&workdir, &long);
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "false");
    for url in ["http://127.0.0.1:8099/s3cret", "https://localhost/s3cret"] {
        reject(&workdir, url);
    }
    assert_eq!(workdir.json("webhook list"), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_is_sent_at_once_and_logged() {
    let workdir = workdir_with_user().await;
    let receiver = Receiver::start().await;
    receiver.reply_with(Reply::Status(200));
    let added = add(&workdir, &format!("{}?token=s3cret", receiver.url));
    let id = text(&added, "id");
    let mut all = Transcript::new(&workdir);
    let pinged = all.json(&format!("webhook ping {id}"));
    assert!(pinged["durationMs"].is_u64(), "{pinged}");

    let ping = only_request(&receiver);
    assert_eq!(ping.request_line, "POST /hook?token=s3cret HTTP/1.1");
    let event = text(&pinged, "eventId");
    assert_eq!(ping.id, event);
    assert_eq!(ping.endpoint, id);
    assert_eq!(ping.signature, signature(&ping, text(&added, "secret")));
    assert_eq!(ping.user_agent, format!("Bellbird/{VERSION}"));
    let data = json!({"new": [], "updated": []});
    let expected = json!({"type": "endpoint.ping", "id": event, "data": data});
    assert_fields(&ping.body, &expected);
    assert_eq!(ping.body["metadata"]["new_count"], 0);

    all.json(&format!("webhook deliveries {id}"));
    all.json(&format!("webhook deliveries {id} --event {event}"));
    let shown = workdir.said(&format!("webhook ping {id}"));
    assert_starts(&shown, "Delivered: the endpoint responded with 200 after ");
    for (filter, count) in [
        ("--limit 1", 1),
        ("--state delivered", 2),
        ("--state failed", 0),
    ] {
        let found = workdir.json(&format!("webhook deliveries {id} {filter}"));
        assert_eq!(found.as_array().unwrap().len(), count, "{filter}");
    }
    workdir.json(&format!("webhook disable {id}"));
    all.json(&format!("webhook ping {id}"));
    insta::assert_snapshot!(all.finish());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_ping_exits_with_1_and_explains() {
    const REFUSED: &str = "connection refused";
    let workdir = workdir_with_user().await;
    let failing = Receiver::start().await;
    failing.reply_with(Reply::Status(500));
    let closed = format!("http://127.0.0.1:{}/", free_port());
    for (url, status, stored, message, reason) in [
        (&failing.url, json!(500), "rejected", "status 500", " 500 "),
        (&closed, Value::Null, REFUSED, REFUSED, REFUSED),
    ] {
        let id = text(&add(&workdir, url), "id").to_owned();
        let output = workdir.run(&format!("webhook ping {id} --json"));
        assert_eq!(output.status.code(), Some(1));
        let pinged: Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = json!({ "message": message });
        let expected = json!({"delivered": false, "status": status, "error": error});
        assert_fields(&pinged, &expected);
        let error = errors(&output);
        assert_starts(&error, "error: not delivered: the endpoint ");
        assert_has(&error, reason);
        let error = workdir.error(&format!("webhook ping {id}"), 1);
        assert_has(&error, reason);
        assert_lacks(&error, "127.0.0.1");
        let failed = workdir.json(&format!("webhook deliveries {id} --state failed"));
        assert_eq!(failed.as_array().unwrap().len(), 2);
        assert_fields(
            &failed[0],
            &json!({"lastStatus": status, "lastError": stored}),
        );
        assert!(failed[0]["endedAt"].is_string(), "{failed}");
        assert!(
            workdir
                .text(&format!("webhook deliveries {id}"))
                .contains(reason)
        );
        // A failed ping does not count against the endpoint.
        let listed = workdir.json("webhook list");
        let endpoint = listed.as_array().unwrap().last().unwrap();
        assert_eq!(endpoint["failingSince"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_sign_while_one_is_rotated() {
    let mut workdir = workdir_with_user().await;
    let receiver = Receiver::start().await;
    let added = add(&workdir, &receiver.url);
    let id = text(&added, "id");
    let before = Timestamp::now();
    let rotated = workdir.json(&format!("webhook rotate-secret {id}"));
    assert_eq!(names(&rotated), ["id", "oldSecretExpiresAt", "secret"]);
    assert_eq!(rotated["id"], added["id"]);
    let life = instant(&rotated, "oldSecretExpiresAt").duration_since(before);
    assert_eq!(life.as_hours(), 24, "{life}");
    let (old, new) = (text(&added, "secret"), text(&rotated, "secret"));
    assert_ne!(old, new);
    let assert_signed_with = |newer: &str, older: &str| {
        workdir.json(&format!("webhook ping {id}"));
        let ping = only_request(&receiver);
        let both = format!("{} {}", signature(&ping, newer), signature(&ping, older));
        assert_eq!(ping.signature, both);
    };
    assert_signed_with(new, old);
    // The oldest of three secrets no longer signs.
    let newest = workdir.field(&format!("webhook rotate-secret {id}"), "secret");
    assert_signed_with(&newest, new);

    // With a lost master key, only the old secret is lost.
    let other = "other:BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    workdir.set("BELLBIRD_SECRETS__KEY", other);
    assert_starts(&workdir.error(&format!("webhook ping {id}"), 1), "error: ");
    assert!(!receiver.has_requests());
    let rotated = workdir.json(&format!("webhook rotate-secret {id}"));
    assert_eq!(rotated["oldSecretExpiresAt"], Value::Null);
    workdir.json(&format!("webhook ping {id}"));
    let ping = only_request(&receiver);
    assert_eq!(ping.signature, signature(&ping, text(&rotated, "secret")));
}

#[tokio::test]
async fn endpoints_are_disabled_and_enabled() {
    let workdir = workdir_with_user().await;
    let id = add_any(&workdir);
    let mut all = Transcript::new(&workdir);
    let since = "2026-11-01T00:00:00Z";
    all.name(since, "NOVEMBER");
    all.json(&format!("webhook disable {id}"));
    all.json("webhook list");
    for line in [
        "disable ID --json",
        "disable ID",
        "list",
        "recover ID --since 7d",
        "enable ID --json",
        "enable ID",
        "recover ID --since 7d --json",
        &format!("recover ID --since {since}"),
    ] {
        all.run(&format!("webhook {}", line.replace("ID", &id)));
    }
    insta::assert_snapshot!(all.finish());
}

/// Events of syncs while an endpoint is disabled can be sent later.
#[tokio::test]
async fn missed_deliveries_are_recovered() {
    let settings = [
        ("WEBHOOKS__ALLOW_LOOPBACK", "true"),
        ("WEBHOOKS__CHUNK_ROWS", "10"),
    ];
    let Deployment {
        workdir, sandbox, ..
    } = Deployment::start(&settings).await;
    workdir.json("user add --email me@example.com");
    let id = add_any(&workdir);
    workdir.json(&format!("webhook disable {id}"));
    workdir.import("me@example.com", &sandbox.json()["credentials"][0]);
    let output = workdir.run("connection sync --all");
    let why = format!("The endpoint {id} is disabled (by command)");
    assert_has(&errors(&output), &why);
    let table = String::from_utf8(output.stdout).unwrap();
    let last = table.trim_end().lines().last().unwrap();
    let last: Vec<&str> = last.split_whitespace().rev().collect();
    let [_, events, updated, new] = last[..4] else {
        panic!("{table}")
    };
    assert_eq!((events, updated), ("0", "0"), "{table}");
    assert_ne!(new, "0", "{table}");
    workdir.json("connection sync --all");
    let missed = workdir.json(&format!("webhook deliveries {id}"));
    let missed = missed.as_array().unwrap();
    assert!(missed.len() > 1, "{missed:?}");
    let failed = json!({"state": "failed", "lastError": "endpoint disabled", "attempts": 0});
    for delivery in missed {
        assert_fields(delivery, &failed);
    }
    let event = text(&missed[0], "eventId");
    let disabled = format!(
        "error: the endpoint is disabled: enable it first with `bellbird webhook enable {id}`"
    );
    let redeliver = format!("webhook redeliver {id} {event}");
    assert_eq!(workdir.error(&redeliver, 1), disabled);
    let attempts = workdir.json(&format!("webhook deliveries {id} --event {event}"));
    assert_eq!(attempts, json!([]));

    let output = workdir.run(&format!("webhook enable {id}"));
    let hint = errors(&output);
    let created = missed.iter().map(|delivery| instant(delivery, "createdAt"));
    let since = format!("{:.0}", created.min().unwrap());
    let command = format!("`bellbird webhook recover {id} --since {since}`");
    assert_starts(&hint, "Enabled: ");
    assert_has(&hint, &format!("\n{} deliveries failed", missed.len()));
    assert!(output.status.success() && hint.contains(&command), "{hint}");

    let redelivered = workdir.json(&redeliver);
    let expected = json!({"eventId": event, "endpointId": id, "state": "pending"});
    assert_eq!(redelivered, expected);
    let command = command.trim_matches('`').strip_prefix("bellbird ").unwrap();
    let expected = json!({"endpointId": id, "recovered": missed.len() - 1});
    assert_eq!(workdir.json(command), expected);
    let failed = workdir.json(&format!("webhook deliveries {id} --state failed"));
    assert_eq!(failed, json!([]));
    assert_has(&workdir.doctor("webhooks").join("\n"), "scheduled");

    // Disabling cancels the pending deliveries, and removing the endpoint deletes them.
    let output = workdir.run(&format!("webhook disable {id}"));
    assert_has(
        &errors(&output),
        &format!("\n{} deliveries cancelled", missed.len()),
    );
    workdir.json(&format!("webhook remove {id}"));
    assert_eq!(workdir.json("webhook list"), json!([]));
}

#[tokio::test]
async fn doctor_reports_due_and_failing_jobs() {
    let Deployment {
        mut workdir,
        sandbox,
        database,
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    let assert_check = |workdir: &Workdir, name: &str, verdict: &str, detail: &str| {
        let checks = workdir.doctor(name);
        let is_found = |check: &String| check.starts_with(verdict) && check.contains(detail);
        assert!(checks.iter().any(is_found), "{name}: {checks:?}");
    };
    assert_check(&workdir, "jobs", "ok", "none");
    assert_check(&workdir, "webhooks", "ok", "0 due, 0 scheduled");
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    workdir.set("BELLBIRD_SYNC__ENABLED", "false");
    assert_check(&workdir, "jobs", "note", "sync.enabled is false");
    assert_check(&workdir, "webhooks", "note", "for development only");

    workdir.json("user add --email me@example.com");
    let id = add_any(&workdir);
    workdir.import("me@example.com", &sandbox.json()["credentials"][0]);
    workdir.json("connection sync --all");
    assert_check(&workdir, "webhooks", "ok", "1 due, 0 scheduled");
    let late = "UPDATE webhook_deliveries SET next_attempt_at = next_attempt_at - 660000000";
    execute(&database, late, "").await;
    assert_check(&workdir, "webhooks", "wrong", "is the service running?");
    let failing =
        "UPDATE webhook_queues SET failing_since = (SELECT enabled_at FROM webhook_endpoints)";
    execute(&database, failing, "").await;
    assert_check(&workdir, "webhooks", "note", "failing endpoints: 1");
    assert_has(&workdir.text("webhook list"), "enabled (failing since ");
    workdir.run(&format!("webhook disable {id}"));
    let checks = workdir.doctor("webhooks");
    assert!(
        !checks.iter().any(|found| found.contains("endpoints: ")),
        "on purpose: {checks:?}"
    );
    let stopped = "UPDATE webhook_endpoints SET disabled_reason = 'gone'";
    execute(&database, stopped, "").await;
    assert_check(
        &workdir,
        "webhooks",
        "note",
        "endpoints disabled by the service or a restore: 1",
    );
    assert_check(&workdir, "webhooks", "note", "`bellbird webhook enable ID`");
    assert_check(&workdir, "webhooks", "ok", "0 due, 0 scheduled");

    sandbox.stop("-TERM");
    for (verdict, tried) in [
        ("note", "Tried once"),
        ("note", "Tried 2 times"),
        ("wrong", "Tried 3 times"),
    ] {
        assert_eq!(workdir.run("connection sync --all").status.code(), Some(1));
        assert_check(&workdir, "jobs", verdict, tried);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_id_error_names_the_list_command() {
    let workdir = workdir_with_user().await;
    let receiver = Receiver::start().await;
    receiver.reply_with(Reply::Status(500));
    let id = text(&add(&workdir, &receiver.url), "id").to_owned();
    let mut all = Transcript::new(&workdir);
    let unknown_id = Uuid::nil().to_string();
    for line in [
        "ping UNKNOWN",
        "rotate-secret UNKNOWN",
        "enable UNKNOWN",
        "disable UNKNOWN",
        "remove UNKNOWN",
        "deliveries UNKNOWN",
        "redeliver UNKNOWN UNKNOWN",
        "recover UNKNOWN --since 1h",
        "add --user you@example.com --url http://127.0.0.1:8099/",
        "redeliver ID UNKNOWN",
        "deliveries ID --event UNKNOWN",
        "ping ID",
    ] {
        let line = line.replace("UNKNOWN", &unknown_id).replace("ID", &id);
        all.run(&format!("webhook {line}"));
    }
    let deliveries = workdir.json(&format!("webhook deliveries {id}"));
    let ping = text(&deliveries[0], "eventId");
    all.run(&format!("webhook redeliver {id} {ping}"));
    // Pings are not recovered.
    all.json(&format!("webhook recover {id} --since 1h"));
    insta::assert_snapshot!(all.finish());
}

#[test]
fn usage_errors_list_accepted_values() {
    let workdir = Workdir::new();
    let mut all = Transcript::new(&workdir);
    all.name("2026-11-20T09:30:00Z", "INSTANT");
    for line in [
        "webhook",
        "webhook add --user me@example.com",
        "webhook add --url https://x.example",
        "webhook add --user me@example.com --url https://x.example --events balances.synced",
        "webhook add --user me@example.com --url https://x.example --events endpoint.ping",
        "webhook ping first",
        "webhook set ID",
        "webhook recover ID",
        "webhook recover ID --since yesterday",
        "webhook deliveries ID --limit 0",
        "webhook deliveries ID --limit 1001",
        "webhook deliveries ID --state lost",
        "webhook deliveries ID --event ID --state failed",
        "webhook redeliver ID",
    ] {
        all.run(&line.replace("ID", &Uuid::nil().to_string()));
    }
    insta::assert_snapshot!(all.finish());
}

#[test]
fn only_secrets_need_a_master_key() {
    let workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    let id = Uuid::nil();
    let lines = [
        "webhook add --user me@example.com --url https://x.example",
        &format!("webhook ping {id}"),
        &format!("webhook rotate-secret {id}"),
        "webhook list",
    ];
    insta::assert_snapshot!(transcript(&workdir, &lines));
}
