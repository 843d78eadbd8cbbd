//! Each kind of injected fault, as a client sees it.

use std::time::Instant;

use bellbird_sandbox::{Fault, FaultKind};
use reqwest::Method;
use serde_json::Value;

use crate::client::{Client, client, text_of};

const ACCOUNTS: &str = "/v1/banking/accounts";

fn path(client: &Client) -> String {
    format!("{ACCOUNTS}?end_user_id={}", client.credentials(0).0)
}

/// The body of a response without a fault.
async fn answer_body(client: &Client) -> String {
    client.get(&path(client)).await.text().await.unwrap()
}

#[tokio::test]
async fn status_with_and_without_retry_after() {
    let client = client().await;
    client
        .bank()
        .add_fault(Fault::status(429).at(ACCOUNTS).retry_after(7).times(1));
    client
        .bank()
        .add_fault(Fault::status(503).at("/v1/consent"));
    let limited = client.get(&path(&client)).await;
    assert_eq!(
        (
            limited.status().as_u16(),
            limited.headers()["retry-after"].to_str().unwrap()
        ),
        (429, "7")
    );
    assert!(text_of(&limited.json::<Value>().await.unwrap()["id"]).starts_with("err_"));
    assert_eq!(
        client.get(&path(&client)).await.status(),
        200,
        "the fault applied once"
    );
    for _ in 0..3 {
        let down = client.get("/v1/consent").await;
        assert_eq!(down.status(), 503, "without `times` a fault stays");
        assert!(down.headers().get("retry-after").is_none());
        assert_eq!(down.json::<Value>().await.unwrap()["temporary"], true);
    }
    client.bank().clear_faults();
    assert_eq!(client.get("/v1/consent").await.status(), 200);
}

#[tokio::test]
async fn delay_postpones_the_real_answer() {
    let client = client().await;
    let expected = answer_body(&client).await;
    client.bank().add_fault(Fault::delay_ms(60).times(1));
    let begin = Instant::now();
    assert_eq!(answer_body(&client).await, expected);
    assert!(begin.elapsed().as_millis() >= 60);
}

#[tokio::test]
async fn cut_ends_within_the_body() {
    let client = client().await;
    let expected = answer_body(&client).await;
    for (after, received) in [(0, 0), (1, 1), (100, 100), (9_999_999, expected.len() - 1)] {
        client.bank().add_fault(
            Fault::new(FaultKind::Cut)
                .at(ACCOUNTS)
                .after_bytes(after)
                .times(1),
        );
        let mut response = client.get(&path(&client)).await;
        assert_eq!(
            response.content_length(),
            Some(expected.len() as u64),
            "Content-Length covers the whole body"
        );
        let mut bytes = Vec::new();
        let end = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                other => break other,
            }
        };
        assert!(end.is_err(), "a cut body must not end cleanly");
        assert_eq!(bytes, expected.as_bytes()[..received]);
    }
    assert_eq!(answer_body(&client).await, expected);
}

#[tokio::test]
async fn malformed_is_200_with_broken_json() {
    let client = client().await;
    client
        .bank()
        .add_fault(Fault::new(FaultKind::Malformed).at(ACCOUNTS));
    let response = client.get(&path(&client)).await;
    assert_eq!(
        (
            response.status().as_u16(),
            response.headers()["content-type"].to_str().unwrap()
        ),
        (200, "application/json")
    );
    let text = response.text().await.unwrap();
    assert!(text.starts_with("{\"accounts\"") && serde_json::from_str::<Value>(&text).is_err());
}

#[tokio::test]
async fn content_type_answers_html() {
    let client = client().await;
    client
        .bank()
        .add_fault(Fault::new(FaultKind::ContentType).at(ACCOUNTS));
    let response = client.get(&path(&client)).await;
    assert_eq!(response.status(), 200);
    assert!(
        response.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
}

#[tokio::test]
async fn drip_sends_byte_by_byte() {
    let client = client().await;
    client.bank().add_fault(
        Fault::new(FaultKind::Drip)
            .at("/v1/institutions")
            .delayed_ms(1),
    );
    let begin = Instant::now();
    let mut response = client.get("/v1/institutions/88888").await;
    let (mut chunks, mut bytes) = (0, Vec::new());
    while let Some(chunk) = response.chunk().await.unwrap() {
        chunks += 1;
        bytes.extend_from_slice(&chunk);
    }
    assert!(chunks > 1);
    assert!(
        begin.elapsed().as_millis() as usize >= bytes.len(),
        "one millisecond per byte"
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&bytes).unwrap()["name"],
        "Banking Sandbox Data Holder"
    );
}

#[tokio::test]
async fn huge_is_valid_json_of_fifty_megabytes() {
    let client = client().await;
    let expected: Value = serde_json::from_str(&answer_body(&client).await).unwrap();
    client
        .bank()
        .add_fault(Fault::new(FaultKind::Huge).at(ACCOUNTS).times(1));
    let response = client.get(&path(&client)).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let bytes = response.bytes().await.unwrap();
    assert!(bytes.len() > 50_000_000);
    let mut value: Value = serde_json::from_slice(&bytes).unwrap();
    value.as_object_mut().unwrap().remove("padding");
    assert_eq!(value, expected);
}

#[tokio::test]
async fn reset_breaks_the_connection() {
    let client = client().await;
    client
        .bank()
        .add_fault(Fault::new(FaultKind::Reset).at(ACCOUNTS).times(1));
    let request = client.call(Method::GET, &path(&client));
    let error = request.send().await.unwrap_err();
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    let mut reset = false;
    while let Some(cause) = source {
        let kind = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        reset |= kind == Some(std::io::ErrorKind::ConnectionReset);
        source = cause.source();
    }
    assert!(reset, "not a reset: {error:?}");
    assert_eq!(client.get(&path(&client)).await.status(), 200);
}

#[tokio::test]
async fn faults_match_a_prefix_of_path_and_query() {
    let client = client().await;
    let path = path(&client);
    client
        .bank()
        .add_fault(Fault::status(500).at(format!("{path}&page")));
    assert_eq!(client.get(&path).await.status(), 200);
    assert_eq!(
        client.get(&format!("{path}&page[size]=3")).await.status(),
        500
    );
    assert_eq!(client.bank().faults().len(), 1);
}

#[tokio::test]
async fn stopping_does_not_wait_for_slow_answers() {
    let client = client().await;
    client.bank().add_fault(Fault::delay_ms(600_000));
    let slow = client.call(Method::GET, &path(&client));
    let call = tokio::spawn(slow.send());
    // Wait until the sandbox has received the call.
    while !client.bank().calls().contains_key(ACCOUNTS) {
        tokio::task::yield_now().await;
    }
    let base = client.base.clone();
    client.sandbox.stop().await;
    assert!(call.await.unwrap().is_err());
    assert!(reqwest::get(base).await.is_err(), "the port is closed");
}
