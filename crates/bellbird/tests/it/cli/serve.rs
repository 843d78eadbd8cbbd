//! `bellbird serve`: what it prints and says while it runs, and how it ends.

use serde_json::{Value, json};

use super::instances::migrated;
use crate::support::database::execute;
use crate::support::harness::{Database, also_on_postgres, eventually};
use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, text};
use crate::support::words::{assert_has, assert_lacks};

/// A service asks its database for two seconds, in which a busy machine may not get to it.
async fn assert_ready(service: &RunningCommand) {
    eventually(async || service.get("opsUrl", "/ready").await.0 == 200).await;
}

/// As above, with the reason that it gives.
async fn assert_not_ready(service: &RunningCommand, reason: &str) {
    eventually(async || {
        let (status, body) = service.get("opsUrl", "/ready").await;
        status == 503 && text(&body, "database").starts_with(reason)
    })
    .await;
}

#[tokio::test]
async fn serve_says_that_it_is_ready_and_stops_on_sigterm() {
    let mut workdir = Workdir::with_key();
    let path = workdir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    workdir.set("NOTIFY_SOCKET", path.to_str().unwrap());
    let service = workdir.start("serve");
    // The environment names the whole installation, so this is no first start.
    assert!(service.json().get("setupUrl").is_none());
    assert!(!workdir.data_folder().exists());
    assert!(workdir.path().join("bellbird.db").exists());
    // To systemd, for a unit with `Type=notify`.
    let mut message = [0; 64];
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    let ok = (200, json!({"status": "ok"}));
    assert_eq!(service.get("apiUrl", "/health").await, ok);
    assert_eq!(service.get("opsUrl", "/live").await, ok);
    assert_ready(&service).await;
    assert_eq!(service.get("apiUrl", "/v1/accounts").await.0, 401);
    for listener in ["opsUrl", "consoleUrl"] {
        let (status, body) = service.get(listener, "/nowhere").await;
        assert_eq!(status, 404);
        assert!(body["error"]["message"].is_string(), "{body}");
    }
    for path in ["/live", "/ready", "/metrics", "/nowhere"] {
        let response = reqwest::get(format!("{}{path}", service.url("opsUrl")));
        let headers = response.await.unwrap().headers().clone();
        assert!(headers.contains_key("x-request-id"), "{path}");
    }
    if cfg!(target_os = "linux") {
        // It writes no core file.
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", service.id())).unwrap();
        let mut lines = limits.lines();
        let core = lines.find(|line| line.starts_with("Max core file size"));
        let values: Vec<&str> = core.unwrap().split_whitespace().collect();
        assert_eq!(values[4..6], ["0", "0"], "{values:?}");
    }

    let (code, rest, log) = service.stop("-TERM");
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert_lacks(&log, &MASTER_KEY[5..]);
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let messages: Vec<Value> = lines.map(|line: Value| line["message"].clone()).collect();
    assert!(messages.contains(&json!("ready")));
    let no_operator =
        json!("no operator: make one with `bellbird init` or `bellbird user set USER --operator`");
    assert!(messages.contains(&no_operator));
    let stopping = json!("stopping: finishing requests in flight, at most 30 s");
    assert!(messages.contains(&stopping));
    assert_eq!(messages.last().unwrap(), "stopped");
}

/// As `rm` does, or a volume that is mounted over the folder. The steps are those of
/// docs/alerts.md.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn deleted_database_fails_readiness_and_can_be_rescued() {
    let mut workdir = Workdir::with_key();
    workdir.json("migrate");
    let service = workdir.start("serve");
    workdir.json("user add --email me@example.com");
    let file = workdir.path().join("bellbird.db");
    std::fs::remove_file(&file).unwrap();
    let reason = format!(
        "the SQLite database {} was deleted: its rows are only in this process",
        file.display()
    );
    assert_not_ready(&service, &reason).await;
    let metrics = reqwest::get(format!("{}/metrics", service.url("opsUrl")));
    let metrics = metrics.await.unwrap().text().await.unwrap();
    let mut lines = metrics.lines();
    assert!(lines.any(|line| line == "bellbird_database_available 0"));
    // A command must not bury it, nor ask to stop the service.
    let [listed, restored] = ["user list", "restore backup.db"].map(|line| workdir.error(line, 1));
    for text in [listed, restored, workdir.doctor("database").join("")] {
        assert_has(&text, "its rows are only in the service that runs on it");
        assert_has(&text, "docs/alerts.md#when-the-database-file-is-gone");
    }

    let id = service.id().to_string();
    let signal = |name: &str| {
        let kill = std::process::Command::new("kill")
            .args([name, &id])
            .status();
        assert!(kill.unwrap().success());
    };
    signal("-STOP");
    for fd in std::fs::read_dir(format!("/proc/{id}/fd")).unwrap() {
        let fd = fd.unwrap().path();
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
    let count = log.matches("was deleted").count();
    assert_eq!(count, 1, "the reason is logged once: {log}");
}

/// Everybody may ask, so it costs no query. The reason is for the operator.
#[tokio::test]
async fn readiness_follows_renewals_and_the_schema() {
    let (mut workdir, database) = migrated(Database::of_test()).await;
    let service = workdir.start("serve");
    let status = async |listener: &str| {
        let url = format!("{}/health/ready", service.url(listener));
        reqwest::get(url).await.unwrap().status().as_u16()
    };
    for listener in ["apiUrl", "consoleUrl"] {
        assert_eq!(status(listener).await, 200);
    }
    execute(&database, "ALTER TABLE instances RENAME TO taken", "").await;
    eventually(async || status("apiUrl").await == 503).await;
    assert_eq!(status("consoleUrl").await, 503);
    let (_, body) = service.get("apiUrl", "/health/ready").await;
    assert_eq!(
        body,
        json!({"error": {"message": "The service is temporarily unavailable: try again later"}})
    );
    let (health, _) = service.get("apiUrl", "/health").await;
    assert_eq!(health, 200, "the process runs");
    execute(&database, "ALTER TABLE taken RENAME TO instances", "").await;
    eventually(async || status("apiUrl").await == 200).await;

    // While instances are upgraded one after another, the newest one migrates and the others go
    // on.
    execute(
        &database,
        "INSERT INTO schema_migrations VALUES (9999, '9999_later', 'x', 1, 0)",
        "",
    )
    .await;
    assert_ready(&service).await;
    // SQLite serves one at a time.
    let service = if database.starts_with("sqlite:") {
        service.end();
        workdir.start("serve")
    } else {
        // Another starts, too.
        assert_ready(&workdir.start("serve")).await;
        service
    };
    // It starts, too.
    assert_ready(&service).await;
    let ops = service.url("opsUrl");
    workdir.set("BELLBIRD_OPS__LISTEN", ops.strip_prefix("http://").unwrap());
    eventually(async || workdir.run("ready").status.success()).await;
    assert_eq!(workdir.said("ready"), "Ready.\n");
    assert_eq!(workdir.json("ready"), json!({"status": "ok"}));
    execute(
        &database,
        "UPDATE schema_migrations SET oldest_compatible = 9999 WHERE version = 9999",
        "",
    )
    .await;
    let reason = "the database schema has an unknown version";
    assert_not_ready(&service, reason).await;
    let error = workdir.error("ready", 1);
    assert_eq!(error, format!("error: Not ready: {reason}."));
    drop(service);
    let error = workdir.error("ready", 1);
    let refused = "(connection refused): is it running, and with this ops.listen?";
    assert_has(&error, refused);
    let error = workdir.error(&format!("serve {ANY_PORTS}"), 1);
    assert_has(&error, "9999_later");
}

also_on_postgres! { readiness_follows_renewals_and_the_schema }
