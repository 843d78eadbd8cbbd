//! Instances with some of the roles over one PostgreSQL.

use serde_json::Value;

use crate::support::database::{execute, query};
use crate::support::harness::{Database, eventually};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, get, new_deployment, text};

fn start(workdir: &Workdir, roles: &str) -> RunningCommand {
    RunningCommand::start(workdir, &format!("serve --json --only {roles} {ANY_PORTS}"))
}

async fn metrics(service: &RunningCommand) -> String {
    let url = format!("{}/metrics", text(&service.json(), "opsUrl"));
    reqwest::get(url).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_does_what_its_roles_say() {
    let (workdir, sandbox, database) = new_deployment(Database::Postgres).await;
    workdir.json("user add --email me@example.com");
    let key = text(
        &workdir.json("key create --user me@example.com --name test"),
        "key",
    )
    .to_owned();
    let credentials = sandbox.json()["credentials"][0].to_string();
    let import = "connection import --user me@example.com --credentials - --json";
    assert!(
        workdir
            .run_with_input(import, &credentials)
            .status
            .success()
    );
    execute(
        &database,
        "UPDATE jobs SET run_at = 0 WHERE kind = 'sync'",
        "",
    )
    .await;

    let (api, console) = (start(&workdir, "api"), start(&workdir, "console"));
    let members = |service: &RunningCommand| -> Vec<String> {
        service
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
    let connections = format!("{}/v1/connections", text(&api.json(), "apiUrl"));
    assert_eq!(get(&connections, Some(&key)).await.0, 200);
    let sign_in = format!("{}/sign-in", text(&console.json(), "consoleUrl"));
    assert_eq!(reqwest::get(sign_in).await.unwrap().status(), 200);
    for service in [&api, &console] {
        let ready = format!("{}/ready", text(&service.json(), "opsUrl"));
        assert_eq!(get(&ready, None).await.0, 200);
    }
    let findings = workdir.json("status")["differences"].to_string();
    assert!(findings.contains("no instance is a worker"), "{findings}");

    let worker = start(&workdir, "worker");
    assert_eq!(members(&worker), ["opsUrl"]);
    let unsynced = "SELECT COUNT(*) FROM jobs WHERE kind = 'sync' AND run_at = 0";
    eventually(async || query(&database, unsynced).await[0][0] == "0").await;
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
    let status = workdir.json("status");
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
    let second = start(&workdir, "worker");
    assert_eq!(
        workdir.json("status")["instances"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    for service in [api, console, worker, second] {
        assert_eq!(service.stop("-TERM").0, Some(0));
    }
    assert_eq!(sandbox.stop("-TERM").0, Some(0));
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
