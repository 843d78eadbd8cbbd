//! Clients that take their response slowly, or not to its end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{account_set, list};
use crate::export::Download;
use crate::support::harness::{App, Setup, eventually};

/// Enough for an account that does not fit into the buffers of a connection.
const MANY_ROWS: u32 = 10_000;
const QUERY: &str = "?start-date=0";
/// Of the other provider, so that its reads last longer than that of the large account.
const SLOW_PATH: &str = "/transactions";

/// Olivia has a large account at Fiskil, and others at Akahu.
struct Case {
    app: App,
}

async fn case() -> Case {
    let app = App::start(Setup {
        rows: MANY_ROWS,
        ..Setup::default()
    })
    .await;
    let akahu = SecretString::from(app.credentials_of("akahu")[0].to_string());
    app.connections
        .imports()
        .import(app.olivia.user.id, "akahu", &akahu)
        .await
        .unwrap();
    Case { app }
}

impl Case {
    async fn start(&self) -> Download {
        let credentials = STANDARD.encode(format!("bellbird:{}", self.app.olivia.key));
        let path = format!("/simplefin/accounts{QUERY}");
        let mut download =
            Download::start_as(&self.app, &format!("Basic {credentials}"), &path).await;
        download.begin().await;
        download
    }

    async fn calls(&self) -> [u64; 2] {
        [
            self.app.total_calls("fiskil").await,
            self.app.total_calls("akahu").await,
        ]
    }
}

#[tokio::test]
async fn client_that_pauses_gets_all_accounts() {
    let case = case().await;
    let app = &case.app;
    // The first request also reads what the service then keeps.
    let whole = account_set(app, QUERY).await;
    app.reset_calls().await;
    assert_eq!(account_set(app, QUERY).await["errlist"], json!([]));
    let calls = case.calls().await;
    app.reset_calls().await;
    app.fault_at(
        "akahu",
        json!({"match": SLOW_PATH, "kind": "delay", "delayMs": 300}),
    )
    .await;
    let mut download = case.start().await;
    // The client takes nothing, and all is read.
    eventually(async || case.calls().await == calls).await;
    assert!(download.finish().await);
    let set: Value = serde_json::from_str(&download.file()).unwrap();
    assert_eq!(set["errlist"], json!([]));
    assert_eq!(list(&set, "accounts").len(), list(&whole, "accounts").len());
}

#[tokio::test]
async fn reads_end_with_their_client() {
    let case = case().await;
    case.app
        .fault_at(
            "akahu",
            json!({"match": SLOW_PATH, "kind": "delay", "delayMs": 600_000}),
        )
        .await;
    let download = case.start().await;
    assert!(!case.app.connections.tasks().is_empty());
    drop(download);
    eventually(async || case.app.connections.tasks().is_empty()).await;
}
