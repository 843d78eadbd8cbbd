//! A standby of PostgreSQL takes over while the service runs.

use reqwest::Url;

use crate::support::database::query;
use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::eventually;
use crate::support::process::get;
use crate::support::servers::Postgres;

fn port(url: &str) -> u16 {
    url.parse::<Url>().unwrap().port().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn service_follows_a_standby_that_takes_over() {
    let server = Postgres::start();
    let primary = server.url.clone();
    let mut deployment = Deployment::start(&[("LIMITS__METADATA_PER_MINUTE", "0")]).await;
    deployment.set("DATABASE__URL", &primary);
    deployment.workdir.json("migrate");
    let key = deployment.add_user(EMAIL);
    deployment.import(EMAIL, "fiskil", 1);
    let standby = server.script("standby");

    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", port(&primary), port(&standby));
    let both = format!("postgres://bellbird@{hosts}/postgres?target_session_attrs=read-write");
    deployment.set("DATABASE__URL", &both);
    let service = deployment.serve_with_log("log");
    let connections = format!("{}/v1/connections", service.api);
    let ready = format!("{}/ready", service.ops);
    let (status, before) = get(&connections, Some(&key)).await;
    assert_eq!(status, 200);
    let instances = "SELECT count(*) FROM instances";
    assert_eq!(query(&primary, instances).await, [["1"]]);
    eventually(async || query(&standby, instances).await == [["1"]]).await;

    server.script("fail-over");
    eventually(async || {
        let (status, body) = get(&connections, Some(&key)).await;
        assert!(status == 200 || status == 503, "{status}: {body}");
        status == 200
    })
    .await;
    assert_eq!(get(&connections, Some(&key)).await, (200, before));
    // Writes arrive, by commands and by the service.
    let workdir = &deployment.workdir;
    workdir.json("key create --user me@example.com --name after");
    let synced = workdir.json("connection sync --all");
    assert!(synced[0]["newCount"].as_u64() > Some(0), "{synced}");
    eventually(async || get(&ready, None).await.0 == 200).await;
    let keys = query(&standby, "SELECT count(*) FROM api_keys").await;
    assert_eq!(keys, [["2"]]);
    service.stop();
    deployment.stop();
}
