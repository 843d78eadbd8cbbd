//! Tests of the router without a listener and without providers, on a real database.

use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Extension, Router};
use bellbird_api::serve::ResponseTimeout;
use bellbird_connections::ConnectionsError;
use bellbird_domain::{Caller, ConnectionId, KeyId, Plan};
use bellbird_storage::{LEFT_OUT, OWN_TABLES, StorageError, camel_case};
use http::{HeaderValue, Request, StatusCode, Version};
use jiff::tz::TimeZone;
use secrecy::ExposeSecret as _;
use tower::ServiceExt as _;

use crate::api_client::ApiClient;
use crate::error_page::Failure;
use crate::settings::{Demo, Site};
use crate::state::PROVIDER_EVENTS_CONCURRENT_MAX;
use crate::test_support::{TestConsole, TestResponse, pending_body, settings};

const CHOICE_LINK: &str = "/link/choice-token";
const PROVIDER_LINK: &str = "/link/provider-token";
/// A form of the console at its public URL, over plain HTTP in another browser than one of today.
const OWN: [(&str, &str); 1] = [("origin", "https://example.com")];

impl TestConsole {
    async fn send(&self, request: Request<Body>) -> TestResponse {
        TestResponse::of(self.router(self.site()), request).await
    }

    async fn get(&self, path: &str) -> TestResponse {
        self.send(request("GET", path, &[], "")).await
    }
}

fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.body(body.into()).unwrap()
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let console = TestConsole::new().await;
    for path in [
        "/",
        "/nothing",
        CHOICE_LINK,
        PROVIDER_LINK,
        "/link/none",
        "/link/callback",
        "/webhooks/x",
    ] {
        let headers = console.get(path).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
            ),
            "{path}"
        );
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("form-action"),
            "{path}"
        );
        assert_eq!(headers["referrer-policy"], "same-origin", "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(
            headers["cross-origin-opener-policy"], "same-origin",
            "{path}"
        );
        assert_eq!(headers["cache-control"], "no-store", "{path}");
    }
}

#[tokio::test]
async fn errors_are_pages_for_browsers_and_json_for_programs() {
    let console = TestConsole::new().await;
    let response = console.get("/nothing").await;
    assert_eq!(response.status, 404);
    assert_eq!(response.text, r#"{"error":{"message":"Path not found"}}"#);
    let html = ("accept", "text/html,application/xhtml+xml");
    let response = console.send(request("GET", "/nothing", &[html], "")).await;
    assert_eq!(response.status, 404);
    response.assert_has("<h1><bdi>Page not found</bdi></h1>");
    for (method, path, allow) in [
        ("POST", "/", "GET,HEAD"),
        ("PUT", CHOICE_LINK, "GET,HEAD,POST"),
        ("PUT", "/link/callback", "GET,POST"),
        ("HEAD", "/link/callback?state=x", "GET,POST"),
        ("GET", "/webhooks/somebank", "POST"),
    ] {
        let response = console.send(request(method, path, &[html], "")).await;
        assert_eq!(response.status, 405, "{method} {path}");
        assert_eq!(response.headers["allow"], allow, "{method} {path}");
    }
}

#[tokio::test]
async fn a_page_is_missing_without_a_database_too() {
    for (found, is_limit) in [
        (Failure::Internal, false),
        (Failure::TooManyOfUser(1), true),
    ] {
        let answer = crate::not_found(Err(found)).await;
        assert_eq!(matches!(answer, Failure::TooManyOfUser(1)), is_limit);
        assert_eq!(matches!(answer, Failure::NotFound), !is_limit);
    }
}

#[test]
fn only_a_page_that_is_missing_says_so() {
    let gone = ConnectionsError::Storage(StorageError::NotFound("user"));
    assert!(matches!(Failure::from(gone), Failure::Refused(_)));
}

#[tokio::test]
async fn assets_are_named_by_hash_and_immutable() {
    let console = TestConsole::new().await;
    let home = console.get("/").await;
    for before in ["rel=\"stylesheet\" href=\"/console", "<img src=\"/console"] {
        let path = home
            .text
            .split_once(before)
            .unwrap()
            .1
            .split('"')
            .next()
            .unwrap();
        let file = console.get(path).await;
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(
            file.headers["cache-control"],
            "public, max-age=31536000, immutable"
        );
        assert!(
            !file.text.contains("http://") || path.ends_with(".svg"),
            "no URL of another server"
        );
    }
}

#[tokio::test]
async fn start_page_helps_the_operator_on_this_machine_only() {
    let console = TestConsole::new().await;
    let own = console
        .send(request("GET", "/", &[("host", "127.0.0.1:8081")], ""))
        .await;
    assert_eq!(own.status, 200);
    for words in [
        "bellbird connection link --user",
        "href=\"http://127.0.0.1:8080/docs\"",
        "/webhooks/PROVIDER",
    ] {
        own.assert_has(words);
    }
    let forwarded = [("host", "127.0.0.1:8081"), ("x-forwarded-for", "192.0.2.1")];
    for headers in [&[][..], &[("host", "bellbird.example")], &forwarded] {
        let public = console.send(request("GET", "/", headers, "")).await;
        assert_eq!(public.status, 200);
        public.assert_has("Open the link that you were given instead");
        assert!(
            !public.text.contains("<code>") && !public.text.contains("8080"),
            "{}",
            public.text
        );
    }
}

#[tokio::test]
async fn every_page_names_the_operator() {
    let console = TestConsole::new().await;
    for path in ["/", CHOICE_LINK, "/link/none", "/link/callback"] {
        let page = console.get(path).await;
        let operator = "Bellbird of <bdi>&#60;Acme&#62; Ltd</bdi>";
        assert!(page.text.contains(operator), "{path}: {}", page.text);
    }
}

#[tokio::test]
async fn only_the_demo_makes_link_urls_for_its_own_page() {
    let mut console = TestConsole::new().await;
    console.set_console_url("http://127.0.0.1:8081");
    let user = console.user;
    let post = async |path: &str, demo: Option<Demo>, headers: &[(&str, &str)]| {
        let site = Site {
            demo,
            ..console.site()
        };
        let mut request = request("POST", path, headers, "");
        request
            .extensions_mut()
            .insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))));
        let response = console.router(site).oneshot(request).await.unwrap();
        response.status().as_u16()
    };
    let demo = || {
        Some(Demo {
            user,
            email: "emma@example.com".to_owned(),
            database: None,
        })
    };
    let own = [
        ("host", "127.0.0.1:8081"),
        ("sec-fetch-site", "same-origin"),
    ];
    // Without providers there is nothing to link, but the request is accepted.
    for (path, accepted) in [("/demo/link", 500), ("/demo/sign-in", 303)] {
        assert_eq!(
            post(path, None, &own).await,
            404,
            "{path}: serve does not have it"
        );
        for foreign in [
            &own[..1],
            &[("host", "127.0.0.1:8081"), ("sec-fetch-site", "cross-site")],
            &[
                ("host", "rebound.example"),
                ("sec-fetch-site", "same-origin"),
            ],
        ] {
            assert_eq!(
                post(path, demo(), foreign).await,
                403,
                "{path}: {foreign:?}"
            );
        }
        assert_eq!(post(path, demo(), &own).await, accepted, "{path}");
    }
    let site = Site {
        demo: demo(),
        ..console.site()
    };
    let link = request("GET", "/link/none", &[], "");
    let expired = TestResponse::of(console.router(site), link).await;
    expired.assert_has("action=\"/console/demo/link\"");
}

#[tokio::test]
async fn choice_link_shows_providers_and_connections() {
    let console = TestConsole::new().await;
    let page = console.get(CHOICE_LINK).await;
    assert_eq!(page.status, 200);
    page.assert_has("&#60;emma&#62;@example.com");
    assert!(
        page.text.contains("20:54 Sydney time")
            && page.text.contains("No bank or broker can be linked")
    );
    assert!(
        !page.text.contains("choice-token"),
        "no page contains its own URL"
    );
    let head = console.send(request("HEAD", CHOICE_LINK, &[], "")).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(console.get("/link/none").await.status, 404);
    assert_eq!(console.get("/link/%ff").await.status, 404);
}

#[tokio::test]
async fn provider_link_shows_a_page_that_names_the_user() {
    let console = TestConsole::new().await;
    let opened = console.get(PROVIDER_LINK).await;
    assert_eq!(opened.status, 200);
    opened.assert_has("&#60;emma&#62;@example.com");
    assert!(
        opened.headers.get("set-cookie").is_none(),
        "only the button binds a browser"
    );
    assert_eq!(
        console
            .send(request("HEAD", PROVIDER_LINK, &[], ""))
            .await
            .status,
        200
    );
    let prefetch = [("sec-purpose", "prefetch;prerender")];
    let prefetched = console
        .send(request("GET", "/link/callback?state=x", &prefetch, ""))
        .await;
    assert_eq!(prefetched.status, 503);
    assert_eq!(prefetched.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn answers_are_small_and_same_site() {
    let console = TestConsole::new().await;
    let post = async |headers: &[(&str, &str)], form: String| {
        console
            .send(request("POST", "/link/callback?state=x", headers, form))
            .await
            .status
            .as_u16()
    };
    assert_eq!(
        post(&[("sec-fetch-site", "cross-site")], "answer=yes".to_owned()).await,
        403
    );
    assert_eq!(
        post(&[], "answer=yes".to_owned()).await,
        403,
        "nobody says from where"
    );
    assert_eq!(
        post(&OWN, "answer=yes".to_owned()).await,
        400,
        "no such session"
    );
    assert_eq!(post(&OWN, "answer=perhaps".to_owned()).await, 400);
    assert_eq!(post(&OWN, "x".repeat(4 * 1024 + 1)).await, 413);
}

#[tokio::test]
async fn forms_are_small_single_choice_and_same_site() {
    let console = TestConsole::new().await;
    let post = async |headers: &[(&str, &str)], form: String| {
        let response = console
            .send(request("POST", CHOICE_LINK, headers, form))
            .await;
        assert!(
            response.text.starts_with("<!doctype html>"),
            "{}",
            response.text
        );
        response.status.as_u16()
    };
    let connection = format!("connection={}", ConnectionId::new());
    assert_eq!(
        post(&[("sec-fetch-site", "cross-site")], connection.clone()).await,
        403
    );
    assert_eq!(
        post(&[], connection.clone()).await,
        403,
        "nobody says from where"
    );
    assert_eq!(post(&[("origin", "null")], connection.clone()).await, 403);
    assert_eq!(
        post(&OWN, connection.clone()).await,
        410,
        "no such connection"
    );
    assert_eq!(
        post(&OWN, "provider=somebank".to_owned()).await,
        400,
        "no provider has a consent page"
    );
    assert_eq!(post(&OWN, format!("{connection}&{connection}")).await, 400);
    assert_eq!(post(&OWN, "x".repeat(4 * 1024 + 1)).await, 413);
    assert_eq!(
        post(&[OWN[0], ("content-length", "1048577")], String::new()).await,
        413,
        "by its declared length"
    );
    let response = console
        .send(request("POST", "/link/none", &OWN, connection))
        .await;
    assert_eq!(response.status, 410);
}

#[tokio::test]
async fn unknown_callback_changes_nothing() {
    let console = TestConsole::new().await;
    let long = format!("/link/callback?state={}", "x".repeat(8 * 1024));
    let many = format!("/link/callback?{}", vec!["a=1"; 51].join("&"));
    for path in [
        "/link/callback",
        "/link/callback?state=forged&code=secret",
        &long,
        &many,
    ] {
        let page = console.get(path).await;
        assert_eq!(page.status, 400);
        page.assert_has("Nothing was changed.");
        assert!(
            !page.text.contains("forged&") && !page.text.contains("secret"),
            "{}",
            page.text
        );
    }
}

#[tokio::test]
async fn unknown_links_are_limited_by_address() {
    let console = TestConsole::new().await;
    let router = console.router(console.site());
    let get = async |path: &str, peer: &str| {
        let mut request = request("GET", path, &[], "");
        request
            .extensions_mut()
            .insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        router.clone().oneshot(request).await.unwrap()
    };
    for path in ["/link/none", "/link/callback?state=forged", "/link/other"] {
        assert!(get(path, "203.0.113.1").await.status().is_client_error());
    }
    for path in ["/link/none", "/link/callback?state=forged", CHOICE_LINK] {
        let response = get(path, "203.0.113.1").await;
        assert_eq!(response.status(), 429, "{path}");
        assert_eq!(response.headers()["retry-after"], "20");
    }
    assert_eq!(get("/", "203.0.113.1").await.status(), 200, "other pages");
    assert_eq!(
        get(CHOICE_LINK, "203.0.113.2").await.status(),
        200,
        "another address"
    );
}

#[tokio::test]
async fn provider_events_are_rejected_as_json() {
    let console = TestConsole::new().await;
    let post = async |headers: &[(&str, &str)], event: Body| {
        let response = console
            .send(request("POST", "/webhooks/somebank", headers, event))
            .await;
        let body: serde_json::Value = serde_json::from_str(&response.text).unwrap();
        assert!(body["error"]["message"].is_string());
        response.status.as_u16()
    };
    assert_eq!(post(&[("accept", "text/html")], "{}".into()).await, 404);
    assert_eq!(post(&[], vec![b' '; 256 * 1024 + 1].into()).await, 413);
    assert_eq!(
        post(&[("content-length", "1048577")], Body::empty()).await,
        413
    );
    assert_eq!(
        post(&[], vec![b' '; 256 * 1024].into()).await,
        404,
        "the whole body is read"
    );
}

#[tokio::test]
async fn concurrent_provider_events_are_bounded() {
    let console = TestConsole::new().await;
    let router = console.router(console.site());
    let post = |body| {
        router
            .clone()
            .oneshot(request("POST", "/webhooks/somebank", &[], body))
    };
    let mut waiting: Vec<_> = (0..PROVIDER_EVENTS_CONCURRENT_MAX)
        .map(|_| Box::pin(post(pending_body())))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    for event in &mut waiting {
        assert!(event.as_mut().poll(&mut context).is_pending());
    }
    let rejected = pin!(post(Body::empty())).await.unwrap();
    assert_eq!(rejected.status(), 503);
    assert_eq!(rejected.headers()["retry-after"], "1");
    let small = request(
        "POST",
        "/webhooks/somebank",
        &[("content-length", "2")],
        Body::from("{}"),
    );
    assert_eq!(
        router.clone().oneshot(small).await.unwrap().status(),
        404,
        "small events need no permit to be read"
    );
    let other = request("POST", "/webhooks/fiskil", &[], Body::empty());
    assert_eq!(
        router.clone().oneshot(other).await.unwrap().status(),
        404,
        "another provider has permits of its own"
    );
    waiting.clear();
    assert_eq!(
        post(Body::empty()).await.unwrap().status(),
        404,
        "the permits are free again"
    );
}

/// The cookie of a browser in which the user is signed in.
async fn sign_in(console: &TestConsole, router: &Router) -> String {
    let (storage, now) = (console.context.storage(), console.context.clock().now());
    let link =
        bellbird_management::sign_in::create_asked_link(storage, console.user, None, "", now)
            .await
            .unwrap();
    let signed_in = router
        .clone()
        .oneshot(request("POST", link.expose_secret(), &OWN, ""))
        .await
        .unwrap();
    let mut cookies = signed_in
        .headers()
        .get_all("set-cookie")
        .iter()
        .map(|cookie| cookie.to_str().unwrap());
    let cookie = cookies
        .find(|cookie| cookie.contains("bellbird-session="))
        .unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn own_data_is_read_while_it_is_sent() {
    let console = TestConsole::new().await;
    let router = console.router(console.site());
    let cookie = sign_in(&console, &router).await;
    let download = || {
        router.clone().oneshot(request(
            "GET",
            "/settings/data.json",
            &[("cookie", &cookie)],
            "",
        ))
    };
    let first = download().await.unwrap();
    assert_eq!(
        (first.status(), first.headers().get("content-length")),
        (StatusCode::OK, None)
    );
    assert!(first.extensions().get::<ResponseTimeout>().is_some());
    let second = download().await.unwrap();
    assert_eq!(
        (second.status().as_u16(), &second.headers()["retry-after"]),
        (429, &HeaderValue::from(5))
    );
    let body = to_bytes(first.into_body(), usize::MAX).await.unwrap();
    let data: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(data["users"][0]["email"], "<emma>@example.com");
    assert_eq!(data["links"].as_array().unwrap().len(), 2);
    let tables = OWN_TABLES.iter().map(|table| camel_case(table.name));
    let mut members: Vec<_> = tables.chain(["leftOut".to_owned()]).collect();
    members.sort_unstable();
    let mut found: Vec<_> = data.as_object().unwrap().keys().cloned().collect();
    found.sort_unstable();
    assert_eq!(found, members);
    assert_eq!(data["leftOut"].as_object().unwrap().len(), LEFT_OUT.len());
    let text = std::str::from_utf8(&body).unwrap();
    assert!(
        !text.contains("hash") && !text.contains("choice-token"),
        "{text}"
    );
    assert_eq!(download().await.unwrap().status(), 200);
}

/// The listener learns from the extension how long a file may take.
#[tokio::test]
async fn files_keep_what_the_listener_must_know() {
    let console = TestConsole::new().await;
    let router = console.router(console.site());
    let cookie = sign_in(&console, &router).await;
    for path in ["/transactions.csv", "/holdings.csv"] {
        let file = request("GET", path, &[("cookie", &cookie)], "");
        let file = router.clone().oneshot(file).await.unwrap();
        assert_eq!(file.status(), 200);
        assert!(file.extensions().get::<ResponseTimeout>().is_some());
    }

    // One of the API is passed on with it.
    let path = "/v1/export/transactions.ofx";
    let timeout = ResponseTimeout(Duration::from_secs(3_600));
    let file = move || async move { (Extension(timeout), "rows") };
    let api = ApiClient(Router::new().route(path, get(file)));
    let caller = Caller {
        key_id: KeyId::new(),
        user_id: console.user,
        plan: Plan::Developer,
        timezone: TimeZone::UTC,
        revision: 0,
    };
    let passed_on = api.open(&caller, path, Version::HTTP_11).await;
    let passed_on = passed_on.unwrap();
    assert!(passed_on.extensions().get::<ResponseTimeout>().is_some());
}

#[tokio::test]
async fn simulated_pages_are_pages_of_the_console() {
    let console = TestConsole::new().await;
    const POLICY: [(&str, &str); 1] = [("content-security-policy", "default-src 'none'")];
    let attach = |pages: Router| {
        pages
            .route(
                "/sandbox/x/panic",
                get(async || -> () { panic!("a fault") }),
            )
            .route(
                "/sandbox/x/authorize",
                get(async || POLICY).post(async || POLICY),
            )
    };
    let router = crate::router(
        console.context.clone(),
        Router::new(),
        settings(),
        console.site(),
        attach,
    );
    let send = async |method, path| {
        let mut request = request(method, path, &[], "");
        let peer = SocketAddr::from(([192, 0, 2, 1], 1));
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request).await.unwrap()
    };
    let page = send("GET", "/sandbox/x/authorize").await;
    let headers = page.headers();
    assert_eq!(headers["content-security-policy"], POLICY[0].1);
    assert_eq!(headers["x-frame-options"], "DENY");
    assert!(headers.contains_key("x-request-id"));
    assert_eq!(send("GET", "/sandbox/x/panic").await.status(), 500);
    // Each form may begin a consent.
    for _ in 0..3 {
        let begun = send("POST", "/sandbox/x/authorize").await;
        assert_eq!(begun.status(), 200);
    }
    let limited = send("POST", "/sandbox/x/authorize").await;
    assert_eq!(limited.status(), 429);
    assert_eq!(send("GET", "/").await.status(), 200);
}
