//! The disk of the database fills while the service runs, and has space again later.

use std::fs;

use serde_json::{Value, json};

use crate::support::browser::client;
use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::{Database, eventually};
use crate::support::process::{MASTER_KEY, get, text};
use crate::support::small_disk::SmallDisk;

/// Room for an empty database and the 16 MiB that a service wants to be free.
const DISK_MEBIBYTES: u32 = 40;
const WRITES: usize = 5;

/// What a client acts on.
#[derive(Debug)]
struct Seen {
    status: u16,
    retry_after: Option<String>,
    request_id: String,
    body: Value,
}

impl Seen {
    fn is_refused(&self) -> bool {
        self.status == 503
            && self.body["error"]["code"] == "service_unavailable"
            && self.retry_after.is_some()
    }
}

async fn send(request: reqwest::RequestBuilder, key: &str) -> Seen {
    let response = request.bearer_auth(key).send().await.unwrap();
    let header = |name: &str| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    Seen {
        status: response.status().as_u16(),
        retry_after: header("retry-after"),
        request_id: header("x-request-id").expect("an id"),
        body: response.json().await.unwrap(),
    }
}

#[tokio::test]
async fn full_disk_is_named_and_space_is_noticed_without_a_restart() {
    let disk = SmallDisk::new(DISK_MEBIBYTES);
    let settings = [("ADMIN__LISTEN", "127.0.0.1:0"), ("SYNC__ENABLED", "false")];
    let mut deployment = Deployment::start_on(Database::Sqlite, 50, &settings).await;
    let file = disk.path().join("bellbird.db");
    deployment.set("DATABASE__URL", &format!("sqlite:{}", file.display()));
    deployment.workdir.json("migrate");
    let key = deployment.add_user(EMAIL);
    let connection = deployment.import(EMAIL, "fiskil", 1).remove(0);
    let create = "operator-key create --name backend";
    let created = deployment.workdir.json(create);
    let operator_key = text(&created, "key").to_owned();

    let service = deployment.serve_with_log("log");
    let (api, ops) = (service.api.clone(), service.ops.clone());
    let admin = text(&service.running.json(), "adminUrl").to_owned();
    let ready = async || get(&format!("{ops}/ready"), None).await;
    let add_user = async |name: &str| {
        let user = json!({"email": format!("{name}@example.com")});
        let request = client().post(format!("{admin}/admin/v1/users"));
        send(request.json(&user), &operator_key).await
    };
    let read = async |path: &str| send(client().get(format!("{api}{path}")), &key).await;
    let rows = format!("/v1/transactions?connectionId={connection}");
    let reads = ["/v1/accounts", "/v1/connections", "/v1/me", rows.as_str()];
    // It has never been synced, so a request for changes writes.
    let changes = format!("/v1/transactions/changes?connectionId={connection}");
    assert_eq!(ready().await.0, 200);
    assert_eq!(add_user("before").await.status, 201);
    for path in reads {
        assert_eq!(read(path).await.status, 200, "{path}");
    }

    disk.fill();
    let mut refused = Vec::new();
    for number in 0..WRITES {
        refused.push(add_user(&format!("refused{number}")).await);
    }
    refused.push(read(&changes).await);
    assert!(refused.iter().all(Seen::is_refused), "{refused:?}");
    for path in reads {
        let seen = read(path).await;
        assert_eq!(seen.status, 200, "{path}: {}", seen.body);
    }
    eventually(async || ready().await.0 == 503).await;
    let reason = ready().await.1;
    let expected = format!(
        "the disk of the SQLite database {} is full (less than 16 MiB are free): make space",
        file.display()
    );
    assert_eq!(text(&reason, "database"), expected);
    let add = "user add --email command@example.com";
    let error = deployment.workdir.error(add, 1);
    assert!(error.contains("the disk is full: make space"), "{error}");

    disk.empty();
    eventually(async || ready().await.0 == 200).await;
    // Nothing of a refused request is left, so it can be repeated.
    for number in 0..WRITES {
        let seen = add_user(&format!("refused{number}")).await;
        assert_eq!(seen.status, 201, "{}", seen.body);
    }
    let seen = read(&changes).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    service.stop();

    let log = fs::read_to_string(deployment.log_file("log")).unwrap();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    let lines: Vec<Value> = log.lines().map(parse).collect();
    let reasons = |is_wanted: &dyn Fn(&Value) -> bool| {
        let failures = lines.iter().filter(|line| line["level"] != "INFO");
        failures.filter(|line| is_wanted(line)).count()
    };
    for Seen { request_id, .. } in &refused {
        let count = reasons(&|line| line["span"]["request_id"] == request_id.as_str());
        assert_eq!(count, 1, "the reason of {request_id}: {log}");
    }
    let count = reasons(&|line| line["error"] == expected.as_str());
    assert_eq!(count, 1, "what /ready says is logged once: {log}");
    for secret in [&*key, &operator_key, &MASTER_KEY[5..], "@example.com"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}
