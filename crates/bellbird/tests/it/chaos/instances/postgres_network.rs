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
#[derive(Debug, Default)]
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
    let create = format!("key create --user {EMAIL} --name revoked");
    let revoked = deployment.workdir.json(&create);
    deployment.import(EMAIL, "fiskil", 1);
    let mut services = Vec::new();
    for number in 0..INSTANCES {
        connect_by(&mut deployment, number);
        services.push(deployment.serve_with_log(&format!("log-{number}")));
    }
    connect_by(&mut deployment, 0);
    let apis = services.iter().map(|service| &service.api);
    let urls: Vec<String> = apis.map(|api| format!("{api}/v1/connections")).collect();
    let (_, before) = get(&urls[0], Some(&kept)).await;
    let stop = CancellationToken::new();
    let all: Arc<Mutex<[Reads; INSTANCES]>> = Arc::default();
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
    let revoke = format!("key revoke {}", text(&revoked, "id"));
    deployment.workdir.json(&revoke);
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
    for (number, reads) in all.lock().unwrap().iter().enumerate() {
        println!("instance {number}: {reads:?}");
        let reaches_all = number != link;
        assert!(!reaches_all || reads.unavailable == 0, "{number}");
    }
    for service in services {
        service.stop();
    }
    deployment.stop();
}

/// A read, which is right, or 503 with the time of the next try.
async fn read(url: &str, key: &str, expected: &Value, change: impl Fn(&dyn Fn(&mut Reads))) {
    let began = Instant::now();
    let request = reqwest::Client::new().get(url).bearer_auth(key);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let retry_after = response.headers().contains_key("retry-after");
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
