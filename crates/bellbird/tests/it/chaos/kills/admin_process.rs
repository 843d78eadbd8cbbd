//! The service is killed with `kill -9` while an operator creates users, keys and link sessions,
//! and is started again.

use std::time::Duration;

use serde_json::{Value, json};

use super::kill_factor;
use crate::support::browser::client;
use crate::support::deployment::{Deployment, Service};
use crate::support::harness::also_on_postgres;
use crate::support::process::{get, text};

const ROUNDS: u32 = 6;

fn serve(deployment: &Deployment) -> (Service, String) {
    let service = deployment.serve();
    let admin = text(&service.running.json(), "adminUrl").to_owned();
    (service, admin)
}

async fn post(
    url: String,
    key: String,
    idempotency_key: String,
    body: Value,
) -> Option<(u16, String)> {
    let request = client()
        .post(url)
        .bearer_auth(key)
        .header("idempotency-key", idempotency_key)
        .json(&body);
    let response = request.send().await.ok()?;
    Some((response.status().as_u16(), response.text().await.ok()?))
}

#[tokio::test]
async fn repeated_request_changes_once_after_a_kill() {
    let deployment = Deployment::start(&[("ADMIN__LISTEN", "127.0.0.1:0")]).await;
    let workdir = &deployment.workdir;
    let key = text(&workdir.json("operator-key create --name backend"), "key").to_owned();
    let user = text(&workdir.json("user add --email me@example.com"), "id").to_owned();
    let (mut service, mut admin) = serve(&deployment);
    let rounds = ROUNDS * kill_factor();
    for round in 0..rounds {
        let requests = [
            (
                "users".to_owned(),
                json!({"email": format!("{round}@example.com")}),
            ),
            (
                format!("users/{user}/keys"),
                json!({"name": format!("{round}")}),
            ),
            ("link-sessions".to_owned(), json!({"userId": user})),
        ];
        let send = |admin: &str| {
            let admin = admin.to_owned();
            requests.each_ref().map(|(path, body)| {
                let url = format!("{admin}/admin/v1/{path}");
                tokio::spawn(post(
                    url,
                    key.clone(),
                    format!("{path} {round}"),
                    body.clone(),
                ))
            })
        };
        let first = send(&admin);
        tokio::time::sleep(Duration::from_millis(u64::from(round % ROUNDS) * 3)).await;
        service.kill();
        (service, admin) = serve(&deployment);
        for (first, repeated) in first.into_iter().zip(send(&admin)) {
            let (first, repeated) = (
                first.await.unwrap(),
                repeated.await.unwrap().expect("a response"),
            );
            assert_eq!(repeated.0, 201, "{}", repeated.1);
            if let Some(first) = first {
                assert_eq!(first, repeated);
            }
        }
    }
    let users = get(&format!("{admin}/admin/v1/users?limit=200"), Some(&key))
        .await
        .1;
    let keys = get(&format!("{admin}/admin/v1/users/{user}/keys"), Some(&key))
        .await
        .1;
    let audit = get(&format!("{admin}/admin/v1/audit?limit=200"), Some(&key))
        .await
        .1;
    let count = |list: &Value| u32::try_from(list["data"].as_array().unwrap().len()).unwrap();
    assert_eq!(
        (count(&users), count(&keys)),
        ((rounds + 1).min(200), rounds)
    );
    // Those of the two commands too.
    assert_eq!(count(&audit), (3 * rounds + 2).min(200));
    let shown = workdir.json("operator-key audit --user me@example.com --limit 1");
    let newest = audit["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["userId"] == user.as_str());
    assert_eq!(
        Some(&shown[0]),
        newest,
        "the command shows what the API shows"
    );
}

also_on_postgres! { repeated_request_changes_once_after_a_kill }
