//! Every log line of a failure names the request that it belongs to.

use std::process::Command;

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use super::{Answered, Deployment};
use crate::console::Page;
use crate::support::browser;
use crate::support::database::{execute, query};
use crate::support::fields::assert_fields;
use crate::support::harness::eventually;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, get, text};
use crate::support::words::{assert_has, assert_lacks};

/// The lines of a log, each a JSON object.
fn lines(log: &str) -> Vec<Value> {
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
        .collect()
}

fn access_line<'a>(lines: &'a [Value], answer: &Answered) -> &'a Value {
    let mut found = lines
        .iter()
        .filter(|line| line["request_id"] == *answer.request_id);
    let line = found
        .next()
        .unwrap_or_else(|| panic!("no access line of {}", answer.request_id));
    assert!(found.next().is_none(), "one line a request");
    assert_eq!(line["status"], answer.status.as_u16());
    line
}

/// The line with this message, of which there is one.
fn only_line<'a>(lines: &'a [Value], message: &str) -> &'a Value {
    let mut found = lines.iter().filter(|line| line["message"] == message);
    let line = found.next().unwrap_or_else(|| panic!("no {message}"));
    assert!(found.next().is_none(), "{message} twice");
    line
}

/// Asserts that lines with this message exist, and that all of them are in the span of this
/// request.
fn assert_caused_by(lines: &[Value], message: &str, answer: &Answered, route: &str) {
    let found: Vec<&Value> = lines
        .iter()
        .filter(|line| line["message"] == message && line["span"]["route"] == route)
        .collect();
    assert!(!found.is_empty(), "no line `{message}` of {route}");
    for line in found {
        assert_eq!(line["span"]["request_id"], *answer.request_id, "{line}");
    }
}

#[tokio::test]
async fn failures_have_the_id_of_their_request() {
    let deployment = Deployment::start().await;
    deployment.add_fault(Fault::status(500)).await;
    let provider = deployment.get("apiUrl", &deployment.transactions()).await;
    assert_eq!(provider.status, 503);
    // The cleanup at the start needs these tables too, and belongs to no request.
    let cleaned_up = "SELECT COUNT(*) FROM jobs
        WHERE kind = 'cleanup' AND started_at IS NOT NULL AND lease_until IS NULL";
    eventually(async || query(&deployment.database, cleaned_up).await == [["1"]]).await;
    let rename = async |sql: &str| execute(&deployment.database, sql, "").await;
    rename("ALTER TABLE accounts RENAME TO gone").await;
    let database = deployment.get("apiUrl", "/v1/accounts").await;
    assert_eq!(database.status, 500);
    rename("ALTER TABLE links RENAME TO gone_too").await;
    let token = "A".repeat(43);
    let link = format!("/link/{token}");
    let page = deployment.get("consoleUrl", &link).await;
    assert_eq!(page.status, 500);

    let (key, key_id) = (deployment.key, deployment.key_id);
    let (_, _, log) = deployment.service.stop("-TERM");
    let lines = lines(&log);
    for (answer, route) in [(&provider, "/v1/transactions"), (&database, "/v1/accounts")] {
        let line = access_line(&lines, answer);
        let expected = json!({"route": route, "key_id": key_id, "method": "GET", "span": null});
        assert_fields(line, &expected);
        assert!(line["duration_us"].is_u64(), "{line}");
    }
    for message in [
        "provider call retried",
        "attempt of provider call failed",
        "provider call failed",
    ] {
        assert_caused_by(&lines, message, &provider, "/v1/transactions");
    }
    let warning = only_line(&lines, "provider call failed");
    let expected = json!({
        "level": "WARN", "provider": "fiskil", "operation": "transactions",
        "error": "the provider is unavailable: server error",
    });
    assert_fields(warning, &expected);
    assert_caused_by(&lines, "database failed", &database, "/v1/accounts");
    assert_caused_by(&lines, "database failed", &page, "/link/{token}");
    for line in &lines {
        let (level, span) = (&line["level"], &line["span"]);
        let belongs_to_request = span["request_id"].is_string();
        let of_start = text(line, "message").starts_with("no operator");
        let may_belong_to_none = level == "INFO" || level == "TRACE" || of_start;
        assert!(belongs_to_request || may_belong_to_none, "{line}");
        if span["route"] == "/v1/transactions" {
            assert_eq!(span["key_id"], key_id, "{line}");
        }
    }
    for secret in [&*key, &token, "/v1/transactions?"] {
        assert_lacks(&log, secret);
    }
}

/// The likeliest first mistake of an operator. Whoever reads cannot help it, so the response does
/// not say "try again".
async fn wrong_credentials_are_named_with_their_settings(
    mut workdir: Workdir,
    sandbox: &RunningCommand,
    key: &str,
    connection: &str,
) {
    let secret = "not the one of the sandbox";
    workdir.set("BELLBIRD_LOG__LEVEL", "info");
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", secret);
    let service = workdir.start("serve");
    let url = format!(
        "{}/v1/transactions?connectionId={connection}",
        service.url("apiUrl")
    );
    let (status, body) = get(&url, Some(key)).await;
    let message =
        "The provider cannot be used until the operator of this service corrects its settings";
    assert_eq!((status, text(&body["error"], "message")), (503, message));
    let rejects = "the provider rejects fiskil.client_id and fiskil.client_secret (status 401): copy the credentials \
                   again from its dashboard";
    let place = text(&sandbox.json()["fiskil"], "baseUrl").to_owned();
    let wrong = format!("wrong Fiskil at {place}: {rejects}");
    assert_eq!(workdir.doctor("fiskil"), [wrong]);
    let (_, _, log) = service.stop("-TERM");
    let lines = lines(&log);
    let warning = only_line(&lines, "provider call failed");
    assert_fields(warning, &json!({"level": "WARN", "error": rejects}));
    assert_eq!(warning["span"]["route"], "/v1/transactions");
    assert_lacks(&log, secret);
}

#[tokio::test]
async fn reads_files_and_forms_have_their_lines() {
    let deployment = Deployment::start().await;
    // Two requests share a read, which takes longer than a slow machine to begin both.
    deployment.add_fault(Fault::delay_ms(6_000).times(1)).await;
    let path = deployment.transactions();
    let (one, two) = tokio::join!(
        deployment.get("apiUrl", &path),
        deployment.get("apiUrl", &path)
    );

    // A file is cut off.
    deployment.add_fault(Fault::delay_ms(0).times(1)).await;
    deployment.add_fault(Fault::status(500)).await;
    let route = "/v1/export/transactions.jsonl";
    let url = format!(
        "{}{route}?connectionId={}&from=2000-01-01",
        deployment.service.url("apiUrl"),
        deployment.connection
    );
    let request = deployment.http.get(url).bearer_auth(&deployment.key);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let request_id = answer.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(answer.bytes().await.is_err(), "the file looks whole");
    let counted = format!("bellbird_exports_total{{route=\"{route}\",end=\"provider\"}} 1");
    assert_has(&deployment.scrape().await, &counted);

    // Somebody signs in and creates a key.
    let urls = deployment.service.json();
    let console = text(&urls, "consoleUrl");
    let login = "console login --user me@example.com";
    let link = &deployment.workdir.field(login, "url");
    let post = async |url: &str, cookies: &str, form: &str| {
        let request = browser::post(url, form).header("sec-fetch-site", "same-origin");
        let request = request.header("cookie", cookies);
        Page::of(request.send().await.unwrap()).await
    };
    let all_cookies = post(link, "", "").await.set_cookies();
    let cookies: Vec<&str> = all_cookies.split("; ").collect();
    assert_eq!(post(link, "", "").await.status, 410);
    let keys = format!("{console}/keys");
    assert_eq!(post(&keys, &all_cookies, "name=Sheet").await.status, 200);
    let scrape = deployment.scrape().await;
    for counted in [
        r#"bellbird_console_sign_ins_total{by="link",outcome="signed_in"} 1"#,
        r#"bellbird_console_sign_ins_total{by="link",outcome="link_does_not_work"} 1"#,
        r#"bellbird_console_requests_total{route="/sign-in/{token}",status="4xx"} 1"#,
        r#"bellbird_console_requests_total{route="/keys",status="2xx"} 1"#,
    ] {
        assert!(
            scrape.lines().any(|line| line == counted),
            "{counted} in {scrape}"
        );
    }

    let Deployment {
        workdir,
        sandbox,
        service,
        key,
        key_id,
        connection,
        ..
    } = deployment;
    let log = service.end();
    let lines = lines(&log);
    let (mut leader, mut follower) = (
        (&one, access_line(&lines, &one)),
        (&two, access_line(&lines, &two)),
    );
    if leader.1["provider_calls"] == 0 {
        std::mem::swap(&mut leader, &mut follower);
    }
    assert!(
        leader.1["provider_calls"].as_u64() > Some(0) && leader.1["read_by"].is_null(),
        "{}",
        leader.1
    );
    assert_eq!(follower.1["provider_calls"], 0);
    assert_eq!(follower.1["read_by"], *leader.0.request_id);

    let line = only_line(&lines, "export cut off");
    let expected = json!({
        "level": "WARN", "reason": "provider", "route": route, "key_id": key_id,
    });
    assert_fields(line, &expected);
    assert_eq!(line["span"]["request_id"], request_id);
    for name in ["rows", "bytes"] {
        assert!(line[name].as_u64() > Some(0), "{line}");
    }

    let sign_ins = lines
        .iter()
        .filter(|line| line["message"] == "sign-in finished");
    let sign_ins: Vec<&Value> = sign_ins.collect();
    let outcomes: Vec<&str> = sign_ins.iter().map(|line| text(line, "outcome")).collect();
    assert_eq!(outcomes, ["signed_in", "link_does_not_work"]);
    let made = only_line(&lines, "console change made");
    assert_eq!(made["action"], "key.create");
    for field in ["user_id", "session_id"] {
        assert_eq!(text(made, field), text(sign_ins[0], field));
    }
    let secrets = cookies
        .iter()
        .map(|cookie| cookie.split_once('=').unwrap().1);
    let token = link.rsplit('/').next().unwrap();
    // Without a secret.
    for secret in secrets.chain(["me@example.com", token]) {
        assert_lacks(&log, secret);
    }

    wrong_credentials_are_named_with_their_settings(workdir, &sandbox, &key, &connection).await;
}

#[tokio::test]
async fn hangup_reads_the_log_level_again() {
    let workdir = Workdir::with_key();
    let [file, log] = ["bellbird.toml", "log"].map(|name| workdir.folder.path().join(name));
    std::fs::write(&file, "[log]\nlevel = \"info\"\n").unwrap();
    let service =
        RunningCommand::start_with_log(&workdir, &format!("serve --json {ANY_PORTS}"), &log);
    let health = format!("{}/health", service.url("apiUrl"));
    let written = || std::fs::read_to_string(&log).unwrap();
    let access_lines = || written().matches("bellbird::access").count();
    assert_eq!(get(&health, None).await.0, 200);
    eventually(async || access_lines() == 1).await;

    let hang_up = |settings: &str| {
        std::fs::write(&file, settings).unwrap();
        let kill = Command::new("kill")
            .args(["-HUP", &service.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
    };
    hang_up("[log]\nlevel = \"warn\"\n");
    eventually(async || written().contains("log level set")).await;
    assert_eq!(get(&health, None).await.0, 200);
    hang_up("[log]\nlevel = \"loud\"\n");
    eventually(async || written().contains("could not read settings, log level unchanged")).await;
    assert_eq!(get(&health, None).await.0, 200);
    assert_eq!(access_lines(), 1, "still at warn");
    hang_up("[log]\nlevel = \"info\"\n");
    eventually(async || written().matches("log level set").count() == 2).await;
    assert_eq!(get(&health, None).await.0, 200);
    eventually(async || access_lines() == 2).await;
    service.end();
}
