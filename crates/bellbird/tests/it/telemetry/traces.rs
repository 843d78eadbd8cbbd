//! Traces reach a collector, which speaks OTLP over HTTP here.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Deployment;
use crate::support::process::text;
use crate::support::words::{assert_has, assert_lacks};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Taken = Arc<Mutex<Vec<Bytes>>>;

/// Takes what is sent to it. Returns its URL.
async fn collector() -> (String, Taken) {
    let taken = Taken::default();
    let take = |State(taken): State<Taken>, body: Bytes| async move {
        taken.lock().unwrap().push(body);
    };
    let router = Router::new()
        .route("/v1/traces", post(take))
        .with_state(Arc::clone(&taken));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, taken)
}

/// A request of the API, in a trace that the client names.
fn traced(
    deployment: &Deployment,
    path: &str,
    key: &str,
    traceparent: &str,
) -> reqwest::RequestBuilder {
    let url = format!("{}{path}", deployment.service.url("apiUrl"));
    let request = deployment.http.get(url).bearer_auth(key);
    request.header("traceparent", traceparent)
}

fn spans(taken: &Taken) -> Vec<Span> {
    let bodies = taken.lock().unwrap();
    let requests = bodies
        .iter()
        .map(|body| ExportTraceServiceRequest::decode(&body[..]).expect("OTLP"));
    let resources = requests.flat_map(|request| request.resource_spans);
    resources
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn attribute(span: &Span, name: &str) -> Value {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == name);
    let value = found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
    use opentelemetry_proto::tonic::common::v1::any_value::Value::{IntValue, StringValue};
    match value {
        Some(StringValue(text)) => json!(text),
        Some(IntValue(number)) => json!(number),
        _ => Value::Null,
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The access line of a request to this path that got this trace id.
fn access_lines<'a>(log: &'a str, route: &'a str) -> Vec<Value> {
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| line["message"] == "request" && line["route"] == route)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_one_trace_with_any_collector_or_none() {
    let (url, taken) = collector().await;
    let deployment = Deployment::start_with(&[
        ("BELLBIRD_TRACES__OTLP_URL", &url),
        ("BELLBIRD_API__TRUSTED_PROXIES", "127.0.0.1"),
    ])
    .await;
    let read = deployment.transactions();
    let request = traced(&deployment, &read, &deployment.key, TRACEPARENT);
    let request = request.header("tracestate", "vendor=chosen");
    let body = request.send().await.unwrap().text().await.unwrap();
    let rows: Value = serde_json::from_str(&body).unwrap();
    let own = deployment.get("apiUrl", "/v1/accounts").await;
    assert_eq!(own.status, 200);
    let unknown = traced(&deployment, &read, "bb_wrong", "00-zz-1-1");
    assert_eq!(unknown.send().await.unwrap().status(), 401);
    let (deployment, log) = deployment.restart(&[("BELLBIRD_API__TRUSTED_PROXIES", "")]);

    let all = spans(&taken);
    let requests: Vec<&Span> = all.iter().filter(|span| span.name == "request").collect();
    let of = |route: &str| {
        requests
            .iter()
            .filter(|span| attribute(span, "route") == route)
            .collect::<Vec<_>>()
    };
    let reads = of("/v1/transactions");
    // A span that a task carries on ends later.
    let with = |status: u16| {
        reads
            .iter()
            .find(|span| attribute(span, "http.response.status_code") == json!(status))
    };
    let (joined, rejected) = (with(200).unwrap(), with(401).unwrap());
    assert_eq!(hex(&joined.trace_id), TRACEPARENT[3..35]);
    assert_eq!(hex(&joined.parent_span_id), TRACEPARENT[36..52]);
    assert_eq!(joined.trace_state, "", "nobody else's text");
    assert_eq!(attribute(joined, "key_id"), json!(deployment.key_id));
    assert!(rejected.parent_span_id.is_empty() && rejected.trace_id != joined.trace_id);
    let calls: Vec<&Span> = all
        .iter()
        .filter(|span| span.name == "provider_call")
        .collect();
    assert!(!calls.is_empty());
    for call in calls.iter().filter(|call| call.trace_id == joined.trace_id) {
        assert_eq!(call.parent_span_id, joined.span_id);
        assert_eq!(attribute(call, "provider"), json!("fiskil"));
    }
    assert!(
        calls.iter().any(|call| call.trace_id == joined.trace_id
            && attribute(call, "operation") == "transactions")
    );
    // A trace of its own begins where nobody has begun one, and the log names it.
    let lines = access_lines(&log, "/v1/accounts");
    assert_eq!(lines[0]["trace_id"], hex(&of("/v1/accounts")[0].trace_id));
    let lines = access_lines(&log, "/v1/transactions");
    assert_eq!(lines[0]["trace_id"], TRACEPARENT[3..35]);

    let sent = taken
        .lock()
        .unwrap()
        .iter()
        .map(|body| String::from_utf8_lossy(body).into_owned())
        .collect::<String>();
    assert_lacks(&sent, &deployment.key);
    assert_has(&sent, "bellbird");
    for row in rows["data"].as_array().unwrap() {
        assert_lacks(&sent, text(row, "description"));
        assert_lacks(&sent, text(row, "id"));
    }

    // Nobody but a proxy chooses the trace.
    taken.lock().unwrap().clear();
    let request = traced(&deployment, "/v1/accounts", &deployment.key, TRACEPARENT);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let (deployment, log) = deployment.restart(&[
        ("BELLBIRD_TRACES__OTLP_URL", ""),
        ("BELLBIRD_API__TRUSTED_PROXIES", "127.0.0.1"),
    ]);
    assert_lacks(&log, &TRACEPARENT[3..35]);
    let all = spans(&taken);
    assert!(!all.is_empty());
    for span in all {
        assert_ne!(hex(&span.trace_id), TRACEPARENT[3..35]);
    }

    // Without a collector, the log still names the trace that a proxy began.
    let request = traced(&deployment, "/v1/accounts", &deployment.key, TRACEPARENT);
    assert_eq!(request.send().await.unwrap().status(), 200);
    deployment.get("apiUrl", "/v1/accounts").await;
    // A collector accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (deployment, log) = deployment.restart(&[("BELLBIRD_TRACES__OTLP_URL", &url)]);
    let lines = access_lines(&log, "/v1/accounts");
    assert_eq!(lines[0]["trace_id"], TRACEPARENT[3..35]);
    assert_eq!(lines[1]["trace_id"], Value::Null);

    assert_eq!(deployment.get("apiUrl", "/v1/accounts").await.status, 200);
    let (code, _, log) = deployment.service.stop("-TERM");
    assert_eq!(code, Some(0));
    assert_has(&log, "could not send the last traces");
}
