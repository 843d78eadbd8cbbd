//! `deploy/nginx/cells.conf` with keys and tokens of two cells, and `cells-events.conf` with
//! provider events.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_storage::Cell;
use secrecy::ExposeSecret as _;
use tokio::net::TcpListener;

use super::site::{Places, committed, free_addresses, run_nginx};
use crate::support::harness::{App, Setup, eventually};

#[tokio::test]
async fn requests_find_their_cell() {
    let app = App::start(Setup::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let (listen, unused) = free_addresses();
    let places = Places::new(folder.path(), unused, listen);
    let maps = committed("nginx/cells.conf");
    let _proxy = run_nginx(
        &places,
        &format!(
            "{maps}\nserver {{ listen {listen}; location / {{ return 200 $bellbird_cell; }} }}"
        ),
    );
    let client = reqwest::Client::new();
    let cell_of = async |path: &str, header: Option<(&str, String)>| {
        let mut request = client.get(format!("http://{listen}{path}"));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request.send().await.unwrap().text().await.unwrap()
    };
    eventually(async || client.get(format!("http://{listen}/")).send().await.is_ok()).await;

    assert_eq!(cell_of("/health", None).await, "00", "names no cell");
    // Random characters follow, and some of them look like a cell.
    for round in 0..20 {
        for name in ["00", "0a"] {
            let storage = app.storage.clone().in_cell(Cell::parse(name).unwrap());
            let key = storage.new_key();
            let token = storage.new_token();
            let token = token.expose_secret();
            let basic = STANDARD.encode(format!("bellbird:{}", key.expose()));
            for value in [
                format!("Bearer {}", key.expose()),
                format!("bearer {}", storage.new_operator_key().expose()),
                format!("Basic {basic}"),
            ] {
                assert_eq!(
                    cell_of("/v1/accounts", Some(("authorization", value))).await,
                    name,
                    "{round}"
                );
            }
            for path in [
                format!("/link/{token}"),
                format!("/sign-in/{token}"),
                format!("/simplefin/claim/{}", storage.new_setup_token().expose()),
                format!("/link/callback?code=0a00&state={token}"),
            ] {
                assert_eq!(cell_of(&path, None).await, name, "{round}");
            }
            for cookie in [
                "__Host-bellbird",
                "__Host-bellbird-session",
                "__Host-bellbird-oidc",
            ] {
                let cookie = format!("a=b; {cookie}={token}");
                assert_eq!(
                    cell_of("/connections", Some(("cookie", cookie))).await,
                    name,
                    "{round}"
                );
            }
            // Another host of the domain may set these.
            for cookie in [
                "bellbird-session",
                "x__Host-bellbird-session",
                "a=__Host-bellbird-session",
            ] {
                let cookie = format!("{cookie}=0a; __Host-bellbird-session={token}");
                assert_eq!(
                    cell_of("/connections", Some(("cookie", cookie))).await,
                    name,
                    "{round}"
                );
            }
        }
    }
}

/// What one request carried: path with query, signature and body.
type Events = Arc<Mutex<Vec<(String, String, String)>>>;

/// Takes what a cell's console would get, and responds with this status.
async fn cell(status: StatusCode) -> (SocketAddr, Events) {
    let events = Events::default();
    let taken = Arc::clone(&events);
    let take = async move |uri: Uri, headers: HeaderMap, body: String| {
        let signature = headers["x-akahu-signature"].to_str().unwrap().to_owned();
        taken
            .lock()
            .unwrap()
            .push((uri.to_string(), signature, body));
        status
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
    (address, events)
}

#[tokio::test]
async fn provider_events_reach_every_cell() {
    let folder = tempfile::tempdir().unwrap();
    let (listen, unused) = free_addresses();
    let places = Places::new(folder.path(), unused, listen);
    let (first, first_events) = cell(StatusCode::NO_CONTENT).await;
    let (second, second_events) = cell(StatusCode::SERVICE_UNAVAILABLE).await;
    let _proxy = run_nginx(
        &places,
        &format!(
            "upstream bellbird_console_00 {{ server {first}; }}\nupstream bellbird_console_0a {{ server {second}; }}\n\
             server {{ listen {listen}; location / {{ return 200 page; }} {} }}",
            committed("nginx/cells-events.conf")
        ),
    );
    let client = reqwest::Client::new();
    let url = format!("http://{listen}/webhooks/akahu?from=akahu");
    let send = || {
        client
            .post(&url)
            .header("X-Akahu-Signature", "c2ln")
            .body(r#"{"webhook_type":"ACCOUNT"}"#)
            .send()
    };
    eventually(async || send().await.is_ok()).await;

    assert_eq!(send().await.unwrap().status(), 204, "of the first cell");
    let event = (
        "/webhooks/akahu?from=akahu",
        "c2ln",
        r#"{"webhook_type":"ACCOUNT"}"#,
    );
    let event = (event.0.to_owned(), event.1.to_owned(), event.2.to_owned());
    for events in [&first_events, &second_events] {
        eventually(async || events.lock().unwrap().len() >= 2).await;
        assert!(events.lock().unwrap().iter().all(|found| *found == event));
    }
    for page in ["/webhooks", "/webhooks/endpoints/1"] {
        let found = client
            .post(format!("http://{listen}{page}"))
            .send()
            .await
            .unwrap();
        assert_eq!(found.text().await.unwrap(), "page", "{page}");
    }
    let hidden = client
        .post(format!("http://{listen}/events-of-0a"))
        .send()
        .await
        .unwrap();
    assert_eq!(hidden.status(), 404);
}
