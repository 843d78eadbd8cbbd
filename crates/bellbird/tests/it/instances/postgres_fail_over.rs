//! A standby of PostgreSQL takes over while the service runs.

use reqwest::Url;

use crate::support::database::query;
use crate::support::harness::{Database, eventually};
use crate::support::process::{ANY_PORTS, RunningCommand, get, new_deployment, text};
use crate::support::servers::Postgres;

fn port(url: &str) -> u16 {
    url.parse::<Url>().unwrap().port().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn service_follows_a_standby_that_takes_over() {
    let server = Postgres::start();
    let primary = server.url.clone();
    let (mut workdir, sandbox, _) = new_deployment(Database::Sqlite).await;
    workdir.set("BELLBIRD_DATABASE__URL", &primary);
    workdir.json("migrate");
    workdir.json("user add --email me@example.com");
    let key = text(
        &workdir.json("key create --user me@example.com --name test"),
        "key",
    )
    .to_owned();
    let import = "connection import --user me@example.com --credentials - --json";
    assert!(
        workdir
            .run_with_input(import, &sandbox.json()["credentials"][0].to_string())
            .status
            .success()
    );
    let standby = server.script("standby");

    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", port(&primary), port(&standby));
    let both = format!("postgres://bellbird@{hosts}/postgres?target_session_attrs=read-write");
    workdir.set("BELLBIRD_DATABASE__URL", &both);
    workdir.set("BELLBIRD_LIMITS__METADATA_PER_MINUTE", "0");
    let log = workdir.folder.path().join("log");
    let service =
        RunningCommand::start_with_log(&workdir, &format!("serve --json {ANY_PORTS}"), &log);
    let connections = format!("{}/v1/connections", text(&service.json(), "apiUrl"));
    let ready = format!("{}/ready", text(&service.json(), "opsUrl"));
    let (status, before) = get(&connections, Some(&key)).await;
    assert_eq!(status, 200);
    assert_eq!(
        query(&primary, "SELECT count(*) FROM instances").await,
        [["1"]]
    );
    eventually(async || query(&standby, "SELECT count(*) FROM instances").await == [["1"]]).await;

    server.script("fail-over");
    eventually(async || {
        let (status, body) = get(&connections, Some(&key)).await;
        assert!(status == 200 || status == 503, "{status}: {body}");
        status == 200
    })
    .await;
    assert_eq!(get(&connections, Some(&key)).await, (200, before));
    // Writes arrive, by commands and by the service.
    workdir.json("key create --user me@example.com --name after");
    let synced = workdir.json("connection sync --all");
    assert!(synced[0]["newCount"].as_u64() > Some(0), "{synced}");
    eventually(async || get(&ready, None).await.0 == 200).await;
    assert_eq!(
        query(&standby, "SELECT count(*) FROM api_keys").await,
        [["2"]]
    );
    assert_eq!(service.stop("-TERM").0, Some(0));
    sandbox.stop("-TERM");
}
