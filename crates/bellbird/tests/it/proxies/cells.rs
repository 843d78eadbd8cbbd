//! The maps of `deploy/nginx/cells.conf`, with keys and tokens of two cells.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_storage::Cell;
use secrecy::ExposeSecret as _;

use super::site::{Places, committed, free_addresses, run_nginx};
use crate::support::harness::{App, Setup, eventually};

#[tokio::test]
async fn requests_find_their_cell() {
    let app = App::start(Setup::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let (listen, unused) = free_addresses();
    let places = Places { folder: folder.path(), https: unused, http: listen, api: "", console: "" };
    let maps = committed("nginx/cells.conf");
    let _proxy = run_nginx(
        &places,
        &format!("{maps}\nserver {{ listen {listen}; location / {{ return 200 $bellbird_cell; }} }}"),
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
                assert_eq!(cell_of("/v1/accounts", Some(("authorization", value))).await, name, "{round}");
            }
            for path in [
                format!("/link/{token}"),
                format!("/sign-in/{token}"),
                format!("/simplefin/claim/{}", storage.new_setup_token().expose()),
                format!("/link/callback?code=0a00&state={token}"),
            ] {
                assert_eq!(cell_of(&path, None).await, name, "{round}");
            }
            for cookie in ["bellbird", "__Host-bellbird", "__Host-bellbird-session", "__Host-bellbird-oidc"] {
                let cookie = format!("a=b; {cookie}={token}");
                assert_eq!(cell_of("/connections", Some(("cookie", cookie))).await, name, "{round}");
            }
        }
    }
}
