//! Instances with some of the roles over one PostgreSQL.

use serde_json::{Value, json};

use crate::support::deployment::{Deployment, EMAIL, Service};
use crate::support::harness::{Database, eventually};
use crate::support::process::{ANY_PORTS, get, metrics, names, text};

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_does_what_its_roles_say() {
    let deployment = Deployment::start_on(Database::Postgres, 50, &[]).await;
    let key = deployment.add_user(EMAIL);
    deployment.import(EMAIL, "fiskil", 1);
    let due = "UPDATE jobs SET run_at = 0 WHERE kind = 'sync'";
    deployment.execute(due).await;

    let start = |roles: &str| deployment.serve_with(&format!("--only {roles} {ANY_PORTS}"));
    let (api, console) = (start("api"), start("console"));
    let members = |service: &Service| names(&service.running.json()).join(" ");
    assert_eq!(members(&api), "apiUrl opsUrl");
    assert_eq!(members(&console), "consoleUrl opsUrl");
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
    assert_eq!(members(&worker), "opsUrl");
    let unsynced = "SELECT COUNT(*) FROM jobs WHERE kind = 'sync' AND run_at = 0";
    eventually(async || deployment.count(unsynced).await == 0).await;
    let synced = "bellbird_job_runs_total{kind=\"sync\"";
    eventually(async || metrics(&worker.ops).await.contains(synced)).await;
    for service in [&api, &console] {
        let page = metrics(&service.ops).await;
        assert!(
            !page.contains("bellbird_job_runs_total"),
            "only a worker runs jobs"
        );
    }
    let roles = |status: &Value| -> Vec<Value> {
        let instances = status["instances"].as_array().unwrap().iter();
        instances.map(|each| each["roles"].clone()).collect()
    };
    let status = deployment.workdir.json("status");
    let expected = ["api", "console", "worker"].map(|role| json!([role]));
    assert_eq!(roles(&status), expected);
    let findings = status["differences"].to_string();
    assert!(!findings.contains("no instance is a worker"), "{findings}");
    // Two workers of one machine are two instances, although neither has an API.
    let second = start("worker");
    assert_eq!(roles(&deployment.workdir.json("status")).len(), 4);
    for service in [api, console, worker, second] {
        service.stop();
    }
    deployment.stop();
}
