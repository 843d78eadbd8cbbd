//! A sandbox that goes on with the state of an earlier one.

use bellbird_sandbox::{ConsentState, Credentials, Options, PROVIDERS, start};
use serde_json::json;

#[tokio::test]
async fn state_is_the_same_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        state: Some(folder.path().join("sandbox")),
        rows: 300,
        ..Options::default()
    };
    let read = || {
        PROVIDERS
            .map(|name| std::fs::read(folder.path().join(format!("sandbox/{name}.json"))).unwrap())
    };
    let first = start(options.clone()).await.unwrap();
    let consents = first.description().credentials.clone();
    for name in PROVIDERS {
        let credentials = consents
            .iter()
            .find(|credentials| provider(credentials) == name)
            .unwrap();
        let id = match credentials {
            Credentials::Fiskil { arrangement_id, .. } => arrangement_id,
            Credentials::Akahu { authorisation, .. } => authorisation,
            Credentials::SnapTrade {
                authorization_id, ..
            } => authorization_id,
        };
        let url = match name {
            "fiskil" => first.description().fiskil.base_url.clone(),
            "akahu" => first.description().akahu.oauth_url.clone(),
            _ => first.description().snaptrade.base_url.clone(),
        };
        // Over HTTP, because a call saves what it changed before it responds.
        let response = reqwest::Client::new()
            .post(format!("{url}/__control/consents/{id}"))
            .json(&json!({"state": ConsentState::Expired}))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 204, "{name}");
    }
    let saved = read();
    first.stop().await;
    let second = start(options).await.unwrap();
    assert!(saved == read(), "loading and saving changes nothing");
    for name in PROVIDERS {
        let count = second.bank(name).all_credentials().len();
        assert!(count > 1, "{name}: {count}");
    }
    assert_eq!(second.description().credentials, consents);
    second.stop().await;
}

fn provider(credentials: &Credentials) -> &'static str {
    match credentials {
        Credentials::Fiskil { .. } => "fiskil",
        Credentials::Akahu { .. } => "akahu",
        Credentials::SnapTrade { .. } => "snaptrade",
    }
}

#[tokio::test]
async fn damaged_state_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("akahu.json"), "{\"seed\":1").unwrap();
    let options = Options {
        state: Some(folder.path().to_owned()),
        ..Options::default()
    };
    let error = start(options).await.err().unwrap().to_string();
    assert!(
        error.contains("akahu.json cannot be read") && error.ends_with("Delete it, and link again"),
        "{error}"
    );
}
