//! What can be told without a provider: over a real database, and the router without its listener.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use axum::body::{Body, to_bytes};
use bellbird_connections::Connections;
use bellbird_domain::{ConnectionId, Plan};
use bellbird_shared_state::Clock;
use bellbird_storage::{NewLink, NewUser, Sealer, Storage};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use crate::assets::Assets;
use crate::{Console, ConsoleSettings, EVENTS_AT_ONCE, Inner, router};

const OF_CHOICE: &str = "/link/of-choice";
const OF_ONE_PROVIDER: &str = "/link/of-one-provider";

/// A console without providers, a user, and two addresses.
struct Stage {
    connections: Connections,
    _folder: TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

fn settings() -> ConsoleSettings {
    let (api, console) = ("http://127.0.0.1:8080", "https://example.com/console/");
    ConsoleSettings { api_url: api.to_owned(), console_url: console.to_owned() }
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("console.db").display());
        let storage = Storage::open(&url, Sealer::random()).await.unwrap();
        storage.migrate().await.unwrap();
        let now: Timestamp = "2026-11-20T09:24:00Z".parse().unwrap();
        let user = NewUser { email: "<emma>@example.com", plan: Plan::Developer, timezone: None };
        let user_id = storage.insert_user(&user, now).await.unwrap().id;
        let expires_at = "2026-11-20T09:54:00Z".parse().unwrap();
        for (token, provider) in [("of-choice", None), ("of-one-provider", Some("somebank"))] {
            let link = NewLink { user_id, token, provider, connection_id: None, expires_at };
            storage.insert_link(&link, now).await.unwrap();
        }
        Self { connections: Connections::new(storage, Default::default(), Clock::standing(now)), _folder: folder }
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        let response = router(self.connections.clone(), settings()).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(request("GET", path, &[], "")).await
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(body.into()).unwrap()
}

/// A body of which nothing arrives.
pub(crate) fn body_without_end() -> Body {
    Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>())
}

/// The shared state of a console without providers.
pub(crate) async fn console() -> Console {
    let Stage { connections, .. } = Stage::new().await;
    let settings = settings();
    let assets = Assets::new(&settings.console_url);
    Console {
        inner: Arc::new(Inner {
            connections,
            settings,
            assets,
            events: Semaphore::new(1),
            large_events: Semaphore::new(1),
        }),
    }
}

#[tokio::test]
async fn every_answer_is_sealed() {
    let stage = Stage::new().await;
    for path in ["/", "/nothing", OF_CHOICE, OF_ONE_PROVIDER, "/link/none", "/link/callback", "/webhooks/x"] {
        let headers = stage.get(path).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; img-src 'self' data:;"), "{path}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("form-action"), "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_told_to_browsers_and_programs() {
    let stage = Stage::new().await;
    let answer = stage.get("/nothing").await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.text, r#"{"error":{"message":"There is nothing at this path"}}"#);
    let html = ("accept", "text/html,application/xhtml+xml");
    let answer = stage.ask(request("GET", "/nothing", &[html], "")).await;
    assert_eq!(answer.status, 404);
    assert!(answer.text.contains("<h1><bdi>There is nothing here</bdi></h1>"), "{}", answer.text);
    for (method, path, allow) in [
        ("POST", "/", "GET,HEAD"),
        ("PUT", OF_CHOICE, "GET,HEAD,POST"),
        ("POST", "/link/callback", "GET"),
        ("HEAD", "/link/callback?state=x", "GET"),
        ("GET", "/webhooks/somebank", "POST"),
    ] {
        let answer = stage.ask(request(method, path, &[html], "")).await;
        assert_eq!(answer.status, 405, "{method} {path}");
        assert_eq!(answer.headers["allow"], allow, "{method} {path}");
    }
}

#[tokio::test]
async fn files_are_named_by_their_content_and_kept() {
    let stage = Stage::new().await;
    let home = stage.get("/").await;
    assert_eq!(home.status, 200);
    assert!(home.text.contains("bellbird connection link --user"), "{}", home.text);
    assert!(home.text.contains("http://127.0.0.1:8080/docs"), "{}", home.text);
    for before in ["rel=\"stylesheet\" href=\"/console", "<img src=\"/console"] {
        let path = home.text.split_once(before).unwrap().1.split('"').next().unwrap();
        let file = stage.get(path).await;
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(file.headers["cache-control"], "public, max-age=31536000, immutable");
        assert!(!file.text.contains("http://") || path.ends_with(".svg"), "nothing comes from elsewhere");
    }
}

#[tokio::test]
async fn an_address_of_choice_shows_what_there_is() {
    let stage = Stage::new().await;
    let page = stage.get(OF_CHOICE).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("&#60;emma&#62;@example.com"), "{}", page.text);
    assert!(page.text.contains("09:54 UTC") && page.text.contains("no provider with a consent page"));
    assert!(!page.text.contains("of-choice"), "no page names its own address");
    let head = stage.ask(request("HEAD", OF_CHOICE, &[], "")).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(stage.get("/link/none").await.status, 404);
    assert_eq!(stage.get("/link/%ff").await.status, 404);
}

#[tokio::test]
async fn an_address_of_one_provider_leads_on_only_when_it_is_opened() {
    let stage = Stage::new().await;
    let opened = stage.get(OF_ONE_PROVIDER).await;
    assert_eq!(opened.status, 500, "it would lead to a provider that is not configured here");
    assert!(opened.text.contains("does not let this service link accounts"), "{}", opened.text);
    assert_eq!(stage.ask(request("HEAD", OF_ONE_PROVIDER, &[], "")).await.status, 200);
    for path in [OF_ONE_PROVIDER, "/link/callback?state=x"] {
        let ahead = stage.ask(request("GET", path, &[("sec-purpose", "prefetch;prerender")], "")).await;
        assert_eq!(ahead.status, 503, "{path}");
        assert_eq!(ahead.headers["cache-control"], "no-store");
    }
}

#[tokio::test]
async fn forms_are_small_say_one_thing_and_come_from_here() {
    let stage = Stage::new().await;
    let post = async |headers: &[(&str, &str)], form: String| {
        let answer = stage.ask(request("POST", OF_CHOICE, headers, form)).await;
        assert!(answer.text.starts_with("<!doctype html>"), "{}", answer.text);
        answer.status.as_u16()
    };
    let connection = format!("connection={}", ConnectionId::new());
    assert_eq!(post(&[("sec-fetch-site", "cross-site")], connection.clone()).await, 403);
    assert_eq!(post(&[("sec-fetch-site", "same-origin")], connection.clone()).await, 410, "nobody has this connection");
    assert_eq!(post(&[], "provider=somebank".to_owned()).await, 400, "none has a consent page");
    assert_eq!(post(&[], format!("{connection}&{connection}")).await, 400);
    assert_eq!(post(&[], "x".repeat(4 * 1024 + 1)).await, 413);
    assert_eq!(post(&[("content-length", "4097")], String::new()).await, 413, "as it says itself");
    let answer = stage.ask(request("POST", "/link/none", &[], connection)).await;
    assert_eq!(answer.status, 410);
}

#[tokio::test]
async fn a_return_that_nobody_left_for_changes_nothing() {
    let stage = Stage::new().await;
    let long = format!("/link/callback?state={}", "x".repeat(8 * 1024));
    let many = format!("/link/callback?{}", vec!["a=1"; 51].join("&"));
    for path in ["/link/callback", "/link/callback?state=forged&code=secret", &long, &many] {
        let page = stage.get(path).await;
        assert_eq!(page.status, 400);
        assert!(page.text.contains("Nothing was changed."), "{}", page.text);
        assert!(!page.text.contains("forged&") && !page.text.contains("secret"), "{}", page.text);
    }
}

#[tokio::test]
async fn events_are_refused_as_json() {
    let stage = Stage::new().await;
    let post = async |headers: &[(&str, &str)], event: Body| {
        let answer = stage.ask(request("POST", "/webhooks/somebank", headers, event)).await;
        let body: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert!(body["error"]["message"].is_string());
        answer.status.as_u16()
    };
    assert_eq!(post(&[("accept", "text/html")], "{}".into()).await, 404);
    assert_eq!(post(&[], vec![b' '; 256 * 1024 + 1].into()).await, 413);
    assert_eq!(post(&[("content-length", "262145")], Body::empty()).await, 413);
    assert_eq!(post(&[], vec![b' '; 256 * 1024].into()).await, 404, "read to its end");
}

#[tokio::test]
async fn events_at_once_are_bounded() {
    let Stage { connections, _folder } = Stage::new().await;
    let router = router(connections, settings());
    let post = |body| router.clone().oneshot(request("POST", "/webhooks/somebank", &[], body));
    let mut waiting: Vec<_> = (0..EVENTS_AT_ONCE).map(|_| Box::pin(post(body_without_end()))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for event in &mut waiting {
        assert!(event.as_mut().poll(&mut context).is_pending());
    }
    let refused = pin!(post(Body::empty())).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    let small = request("POST", "/webhooks/somebank", &[("content-length", "2")], Body::from("{}"));
    assert_eq!(router.clone().oneshot(small).await.unwrap().status(), 404, "small ones are read beside them");
    waiting.clear();
    assert_eq!(post(Body::empty()).await.unwrap().status(), 404, "there is room again");
}
