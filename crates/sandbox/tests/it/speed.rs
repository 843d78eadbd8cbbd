//! Not a benchmark, but a way to look: `cargo nextest run -p bellbird-sandbox --release --run-ignored all speed`.

use std::time::Instant;

use crate::client::{client_of, options};

#[tokio::test]
#[ignore = "prints numbers; run it in release"]
async fn numbers() {
    for rows in [2000, 100_000] {
        let begin = Instant::now();
        let sandbox = bellbird_sandbox::start(options(rows)).await.unwrap();
        println!("start with {rows} rows: {:?}", begin.elapsed());
        sandbox.stop().await;
    }
    let client = client_of(options(100_000)).await;
    for (name, path) in [
        ("one account", client.busiest().await),
        ("all accounts", format!("/v1/banking/transactions?end_user_id={}", client.grant(0).0)),
    ] {
        let path = format!("{path}&page[size]=200&from=2024-11-21T00:00:00Z&to=2025-11-21T00:00:00Z");
        assert_eq!(client.json(&path).await["transactions"].as_array().unwrap().len(), 200);
        let begin = Instant::now();
        for _ in 0..500 {
            client.get(&path).await.bytes().await.unwrap();
        }
        println!("a page of 200 rows over HTTP, {name}: {:?}", begin.elapsed() / 500);
    }
    let begin = Instant::now();
    let rows = client.rows(&client.busiest().await).await;
    println!("walking {} rows by 1000, client's parsing included: {:?}", rows.len(), begin.elapsed());
}
