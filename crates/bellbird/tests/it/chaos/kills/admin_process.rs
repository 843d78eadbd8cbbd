//! The service is killed with `kill -9` while an operator creates users, keys and link sessions,
//! and is started again.

use std::time::Duration;

use serde_json::{Value, json};

use super::kill_factor;
use crate::support::browser::client;
use crate::support::deployment::{Deployment, Service};
use crate::support::harness::also_on_postgres;
use crate::support::process::{get_list, text};

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
        let (email, name) = (format!("{round}@example.com"), round.to_string());
        let requests = [
            ("users".to_owned(), json!({"email": email})),
            (format!("users/{user}/keys"), json!({"name": name})),
            ("link-sessions".to_owned(), json!({"userId": user})),
        ];
        let send = |admin: &str| {
            let admin = admin.to_owned();
            requests.each_ref().map(|(path, body)| {
                let url = format!("{admin}/admin/v1/{path}");
                let idempotency_key = format!("{path} {round}");
                tokio::spawn(post(url, key.clone(), idempotency_key, body.clone()))
            })
        };
        let first = send(&admin);
        tokio::time::sleep(Duration::from_millis(u64::from(round % ROUNDS) * 3)).await;
        service.kill();
        (service, admin) = serve(&deployment);
        for (first, repeated) in first.into_iter().zip(send(&admin)) {
            let repeated = repeated.await.unwrap().expect("a response");
            assert_eq!(repeated.0, 201, "{}", repeated.1);
            if let Some(first) = first.await.unwrap() {
                assert_eq!(first, repeated);
            }
        }
    }
    let list = async |path: &str| get_list(&format!("{admin}/admin/v1/{path}"), &key).await;
    let rounds = usize::try_from(rounds).unwrap();
    assert_eq!(list("users?limit=200").await.len(), (rounds + 1).min(200));
    assert_eq!(list(&format!("users/{user}/keys")).await.len(), rounds);
    // Those of the two commands too.
    let audit = list("audit?limit=200").await;
    assert_eq!(audit.len(), (3 * rounds + 2).min(200));
    // The command shows what the API shows.
    let shown = workdir.json("operator-key audit --user me@example.com --limit 1");
    let newest = audit.iter().find(|row| row["userId"] == user.as_str());
    assert_eq!(Some(&shown[0]), newest);
}

also_on_postgres! { repeated_request_changes_once_after_a_kill }
