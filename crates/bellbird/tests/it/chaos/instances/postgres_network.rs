//! The network loses the packets of one instance for ten seconds, and nobody says so: its
//! connections stay open.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::eventually;
use crate::support::network::Network;
use crate::support::process::{get, text};
use crate::support::servers::{Postgres, Valkey};

const INSTANCES: usize = 3;
const CUT: Duration = Duration::from_secs(10);

/// What reads of an instance got.
#[derive(Default)]
struct Reads {
    right: u32,
    unavailable: u32,
    slowest: Duration,
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_of_the_network_costs_one_instance_ten_seconds() {
    let network = Arc::new(Network::with_links(INSTANCES));
    let (postgres, valkey) = (Postgres::start_in(&network), Valkey::start_in(&network));
    let mut deployment = Deployment::start(&[("LIMITS__METADATA_PER_MINUTE", "0")]).await;
    let connect_by = |deployment: &mut Deployment, link: usize| {
        deployment.set("DATABASE__URL", &postgres.url_at(network.address(link)));
        deployment.set("REDIS__URL", &valkey.url_at(network.address(link)));
    };
    connect_by(&mut deployment, 0);
    deployment.workdir.json("migrate");
    let kept = deployment.add_user(EMAIL);
    let revoked = deployment
        .workdir
        .json(&format!("key create --user {EMAIL} --name revoked"));
    deployment.import(EMAIL, "fiskil", 1);
    let mut services = Vec::new();
    for number in 0..INSTANCES {
        connect_by(&mut deployment, number);
        services.push(deployment.serve_with_log(&format!("log-{number}")));
    }
    connect_by(&mut deployment, 0);
    let urls: Vec<String> = services
        .iter()
        .map(|service| format!("{}/v1/connections", service.api))
        .collect();
    let (_, before) = get(&urls[0], Some(&kept)).await;
    let stop = CancellationToken::new();
    let all = Arc::new(Mutex::new(Vec::from_iter(
        (0..INSTANCES).map(|_| Reads::default()),
    )));
    let mut readers = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        let (url, key, stop, all, before) = (
            url.clone(),
            kept.clone(),
            stop.clone(),
            Arc::clone(&all),
            before.clone(),
        );
        readers.push(tokio::spawn(async move {
            while !stop.is_cancelled() {
                read(&url, &key, &before, |change| {
                    change(&mut all.lock().unwrap()[number]);
                })
                .await;
            }
        }));
    }
    eventually(async || all.lock().unwrap().iter().all(|reads| reads.right > 20)).await;

    let (began, link) = (Instant::now(), 1);
    network.cut(link);
    deployment
        .workdir
        .json(&format!("key revoke {}", text(&revoked, "id")));
    // It cannot know, so it must not say that the key is valid.
    let stale = get(&urls[link], Some(text(&revoked, "key"))).await;
    assert!(matches!(stale.0, 401 | 503), "{stale:?}");
    for other in [0, 2] {
        assert_eq!(get(&urls[other], Some(text(&revoked, "key"))).await.0, 401);
    }
    tokio::time::sleep(CUT.saturating_sub(began.elapsed())).await;
    network.mend(link);
    let right = all.lock().unwrap()[link].right;
    eventually(async || all.lock().unwrap()[link].right > right + 20).await;
    assert_eq!(get(&urls[link], Some(text(&revoked, "key"))).await.0, 401);
    stop.cancel();
    for reader in readers {
        reader.await.unwrap();
    }
    for (
        number,
        Reads {
            right,
            unavailable,
            slowest,
        },
    ) in all.lock().unwrap().iter().enumerate()
    {
        println!(
            "instance {number}: {right} right, {unavailable} times 503, the slowest took {slowest:?}"
        );
        assert!(
            number == link || *unavailable == 0,
            "an instance that reaches everything"
        );
    }
    for service in services {
        service.stop();
    }
    deployment.stop();
}

/// A read, which is right, or 503 with the time of the next try.
async fn read(url: &str, key: &str, expected: &Value, change: impl Fn(&dyn Fn(&mut Reads))) {
    let began = Instant::now();
    let response = reqwest::Client::new()
        .get(url)
        .bearer_auth(key)
        .send()
        .await
        .unwrap();
    let (status, retry_after) = (
        response.status().as_u16(),
        response.headers().contains_key("retry-after"),
    );
    let body: Value = response.json().await.unwrap();
    let took = began.elapsed();
    match status {
        200 => assert_eq!(&body, expected),
        503 => assert!(retry_after),
        _ => panic!("{status}: {body}"),
    }
    change(&|reads| {
        reads.right += u32::from(status == 200);
        reads.unavailable += u32::from(status == 503);
        reads.slowest = reads.slowest.max(took);
    });
}
