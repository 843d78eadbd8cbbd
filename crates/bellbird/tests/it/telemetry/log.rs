//! Every log line of a failure names the request that it belongs to.

use std::process::Command;

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use super::{Answered, Deployment};
use crate::support::database::execute;
use crate::support::harness::eventually;
use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, get, text};

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
    execute(
        &deployment.database,
        "ALTER TABLE accounts RENAME TO gone",
        "",
    )
    .await;
    let database = deployment.get("apiUrl", "/v1/accounts").await;
    assert_eq!(database.status, 500);
    execute(
        &deployment.database,
        "ALTER TABLE links RENAME TO gone_too",
        "",
    )
    .await;
    let token = "A".repeat(43);
    let page = deployment
        .get("consoleUrl", &format!("/link/{token}"))
        .await;
    assert_eq!(page.status, 500);

    let (key, key_id) = (deployment.key, deployment.key_id);
    let (_, _, log) = deployment.service.stop("-TERM");
    let lines = lines(&log);
    for (answer, route) in [(&provider, "/v1/transactions"), (&database, "/v1/accounts")] {
        let line = access_line(&lines, answer);
        assert_eq!(
            (&line["route"], &line["key_id"]),
            (&json!(route), &json!(key_id))
        );
        assert!(
            line["duration_us"].is_u64() && line["method"] == "GET" && line["span"].is_null(),
            "{line}"
        );
    }
    assert_caused_by(
        &lines,
        "provider call retried",
        &provider,
        "/v1/transactions",
    );
    assert_caused_by(
        &lines,
        "attempt of provider call failed",
        &provider,
        "/v1/transactions",
    );
    assert_caused_by(
        &lines,
        "provider call failed",
        &provider,
        "/v1/transactions",
    );
    let warnings: Vec<&Value> = lines
        .iter()
        .filter(|line| line["message"] == "provider call failed")
        .collect();
    assert_eq!(warnings.len(), 1, "one for a request: {warnings:?}");
    let named = ["level", "provider", "operation", "error"].map(|name| text(warnings[0], name));
    assert_eq!(
        named,
        [
            "WARN",
            "fiskil",
            "transactions",
            "the provider is unavailable: server error"
        ]
    );
    assert_caused_by(&lines, "database failed", &database, "/v1/accounts");
    assert_caused_by(&lines, "database failed", &page, "/link/{token}");
    for line in lines
        .iter()
        .filter(|line| line["level"] != "INFO" && line["level"] != "TRACE")
    {
        assert!(
            line["span"]["request_id"].is_string(),
            "belongs to no request: {line}"
        );
    }
    for line in lines
        .iter()
        .filter(|line| line["span"]["route"] == "/v1/transactions")
    {
        assert_eq!(line["span"]["key_id"], key_id, "{line}");
    }
    assert!(!log.contains(&key) && !log.contains(&token) && !log.contains("/v1/transactions?"));
}

/// Who signed in, and what was made in which session, without a secret.
#[tokio::test]
async fn console_logs_and_counts_what_its_users_do() {
    let deployment = Deployment::start().await;
    let urls = deployment.service.json();
    let console = text(&urls, "consoleUrl");
    let link = deployment
        .workdir
        .json("console login --user me@example.com");
    let link = text(&link, "url");
    let no_redirect = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let post = async |url: &str, cookie: &str, form: &'static str| {
        let request = no_redirect
            .post(url)
            .header("sec-fetch-site", "same-origin")
            .header("cookie", cookie.to_owned());
        request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form)
            .send()
            .await
            .unwrap()
    };
    let signed_in = post(link, "", "").await;
    let cookies = signed_in
        .headers()
        .get_all("set-cookie")
        .iter()
        .map(|cookie| cookie.to_str().unwrap());
    let cookies: Vec<_> = cookies
        .map(|cookie| cookie.split(';').next().unwrap())
        .collect();
    let cookie = cookies.join("; ");
    assert_eq!(post(link, "", "").await.status(), 410);
    assert_eq!(
        post(&format!("{console}/keys"), &cookie, "name=Sheet")
            .await
            .status(),
        200
    );
    let scrape = deployment
        .http
        .get(format!("{}/metrics", text(&urls, "opsUrl")))
        .send()
        .await
        .unwrap();
    let scrape = scrape.text().await.unwrap();
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
    let (_, _, log) = deployment.service.stop("-TERM");
    let lines = lines(&log);
    let of = |message: &str| {
        lines
            .iter()
            .filter(|line| line["message"] == message)
            .collect::<Vec<_>>()
    };
    let sign_ins = of("sign-in finished");
    let outcomes: Vec<_> = sign_ins
        .iter()
        .map(|line| line["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["signed_in", "link_does_not_work"]);
    let made = of("console change made");
    assert_eq!((made.len(), &made[0]["action"]), (1, &json!("key.create")));
    for field in ["user_id", "session_id"] {
        assert!(
            made[0][field].is_string() && made[0][field] == sign_ins[0][field],
            "{field}: {}",
            made[0]
        );
    }
    for secret in cookies
        .iter()
        .map(|cookie| cookie.split_once('=').unwrap().1)
    {
        assert!(!log.contains(secret));
    }
    assert!(!log.contains("me@example.com") && !log.contains(link.rsplit('/').next().unwrap()));
}

/// The likeliest first mistake of an operator. Whoever reads cannot help it, so the response does
/// not say "try again".
#[tokio::test]
async fn wrong_credentials_are_named_with_their_settings() {
    let secret = "not the one of the sandbox";
    let deployment = Deployment::start_with(&[("BELLBIRD_LOG__LEVEL", "info")]).await;
    let Deployment {
        mut workdir,
        sandbox,
        service,
        key,
        connection,
        ..
    } = deployment;
    service.end();
    workdir.set("BELLBIRD_LOG__LEVEL", "info");
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", secret);
    let service = workdir.start("serve");
    let url = format!(
        "{}/v1/transactions?connectionId={connection}",
        service.url("apiUrl")
    );
    let (status, body) = get(&url, Some(&key)).await;
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
    let warnings: Vec<&Value> = lines
        .iter()
        .filter(|line| line["message"] == "provider call failed")
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let found = ["level", "error"].map(|name| text(warnings[0], name));
    assert_eq!(
        (found, text(&warnings[0]["span"], "route")),
        (["WARN", rejects], "/v1/transactions")
    );
    assert!(!log.contains(secret));
}

#[tokio::test]
async fn file_that_is_cut_off_has_a_line_and_is_counted() {
    let deployment = Deployment::start().await;
    deployment.add_fault(Fault::delay_ms(0).times(1)).await;
    deployment.add_fault(Fault::status(500)).await;
    let route = "/v1/export/transactions.jsonl";
    let urls = deployment.service.json();
    let url = format!(
        "{}{route}?connectionId={}&from=2000-01-01",
        text(&urls, "apiUrl"),
        deployment.connection
    );
    let answer = deployment
        .http
        .get(url)
        .bearer_auth(&deployment.key)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let request_id = answer.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(answer.bytes().await.is_err(), "the file looks whole");
    let scrape = deployment
        .http
        .get(format!("{}/metrics", text(&urls, "opsUrl")))
        .send()
        .await
        .unwrap();
    let counted = format!("bellbird_exports_total{{route=\"{route}\",end=\"provider\"}} 1");
    assert!(scrape.text().await.unwrap().contains(&counted));
    let (_, _, log) = deployment.service.stop("-TERM");
    let lines = lines(&log);
    let line = lines
        .iter()
        .find(|line| line["message"] == "export cut off")
        .unwrap();
    assert_eq!(
        (&line["level"], &line["reason"], &line["route"]),
        (&json!("WARN"), &json!("provider"), &json!(route))
    );
    assert_eq!(
        (&line["span"]["request_id"], &line["key_id"]),
        (&json!(request_id), &json!(deployment.key_id))
    );
    assert!(
        line["rows"].as_u64() > Some(0) && line["bytes"].as_u64() > Some(0),
        "{line}"
    );
}

#[tokio::test]
async fn shared_read_names_the_request_that_made_it() {
    let deployment = Deployment::start().await;
    deployment.add_fault(Fault::delay_ms(1_500)).await;
    let path = deployment.transactions();
    let (one, two) = tokio::join!(
        deployment.get("apiUrl", &path),
        deployment.get("apiUrl", &path)
    );
    let (_, _, log) = deployment.service.stop("-TERM");
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
}

#[tokio::test]
async fn hangup_reads_the_log_level_again() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    let (file, log) = (
        workdir.folder.path().join("bellbird.toml"),
        workdir.folder.path().join("log"),
    );
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
        assert!(
            Command::new("kill")
                .args(["-HUP", &service.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    };
    hang_up("[log]\nlevel = \"warn\"\n");
    eventually(async || written().contains("log level set")).await;
    assert_eq!(get(&health, None).await.0, 200);
    hang_up("[log]\nlevel = \"loud\"\n");
    eventually(async || written().contains("could not read settings, log level unchanged")).await;
    assert_eq!(
        (get(&health, None).await.0, access_lines()),
        (200, 1),
        "still at warn"
    );
    hang_up("[log]\nlevel = \"info\"\n");
    eventually(async || written().matches("log level set").count() == 2).await;
    assert_eq!(get(&health, None).await.0, 200);
    eventually(async || access_lines() == 2).await;
    service.end();
}
