//! Instances with some of the roles over one PostgreSQL.

use serde_json::Value;

use crate::support::deployment::{Deployment, EMAIL, Service};
use crate::support::harness::{Database, eventually};
use crate::support::process::{ANY_PORTS, get, text};

async fn metrics(service: &Service) -> String {
    reqwest::get(format!("{}/metrics", service.ops))
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_does_what_its_roles_say() {
    let deployment = Deployment::start_on(Database::Postgres, 50, &[]).await;
    let key = deployment.add_user(EMAIL);
    deployment.import(EMAIL, "fiskil", 1);
    let due = "UPDATE jobs SET run_at = 0 WHERE kind = 'sync'";
    deployment.execute(due).await;

    let start = |roles: &str| deployment.serve_with(&format!("--only {roles} {ANY_PORTS}"));
    let (api, console) = (start("api"), start("console"));
    let members = |service: &Service| -> Vec<String> {
        service
            .running
            .json()
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(
        (members(&api), members(&console)),
        (
            owned(&["apiUrl", "opsUrl"]),
            owned(&["consoleUrl", "opsUrl"])
        )
    );
    let connections = format!("{}/v1/connections", api.api);
    assert_eq!(get(&connections, Some(&key)).await.0, 200);
    let sign_in = format!("{}/sign-in", text(&console.running.json(), "consoleUrl"));
    assert_eq!(reqwest::get(sign_in).await.unwrap().status(), 200);
    for service in [&api, &console] {
        let ready = format!("{}/ready", service.ops);
        assert_eq!(get(&ready, None).await.0, 200);
    }
    let findings = deployment.workdir.json("status")["differences"].to_string();
    assert!(findings.contains("no instance is a worker"), "{findings}");

    let worker = start("worker");
    assert_eq!(members(&worker), ["opsUrl"]);
    let unsynced = "SELECT COUNT(*) FROM jobs WHERE kind = 'sync' AND run_at = 0";
    eventually(async || deployment.count(unsynced).await == 0).await;
    eventually(async || {
        metrics(&worker)
            .await
            .contains("bellbird_job_runs_total{kind=\"sync\"")
    })
    .await;
    for service in [&api, &console] {
        assert!(
            !metrics(service).await.contains("bellbird_job_runs_total"),
            "only a worker runs jobs"
        );
    }
    let status = deployment.workdir.json("status");
    let roles: Vec<&Value> = status["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| &each["roles"])
        .collect();
    assert_eq!(
        roles,
        [
            &serde_json::json!(["api"]),
            &serde_json::json!(["console"]),
            &serde_json::json!(["worker"])
        ]
    );
    assert!(
        !status["differences"]
            .to_string()
            .contains("no instance is a worker"),
        "{status}"
    );
    // Two workers of one machine are two instances, although neither has an API.
    let second = start("worker");
    assert_eq!(
        deployment.workdir.json("status")["instances"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    for service in [api, console, worker, second] {
        service.stop();
    }
    deployment.stop();
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
