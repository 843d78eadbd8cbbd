//! Setup tokens and the keys that claims create.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::KeyId;
use jiff::SignedDuration;
use reqwest::Method;

use super::{AccountSet, access_url, ask, ask_as, assert_plain, claim, new_token};
use crate::support::harness::{App, Setup, also_on_postgres};
use crate::support::words::{assert_has, assert_starts};

async fn audit(app: &App, key: KeyId) -> Vec<String> {
    let rows = app
        .storage
        .setup_tokens()
        .list_key_audit(app.olivia.user.id, key)
        .await
        .unwrap();
    rows.into_iter().map(|row| row.event).collect()
}

async fn claim_gives_an_access_url_once(app: &App) {
    let token = new_token(app, app.olivia.user.id).await;
    // simplefin4py sends empty credentials. Whatever is sent is ignored.
    let url = format!("{}/simplefin/claim/{}", app.url, token.expose());
    let request = app.http.post(url).header("authorization", "Basic Og==");
    let answer = app.send(request.body("x".repeat(10_000))).await;
    assert_eq!(answer.status, 200);
    let content_type = answer.header("content-type");
    assert_eq!(content_type, Some("text/plain; charset=utf-8"));
    let key = answer.text.strip_prefix("https://bellbird:").unwrap();
    let key = key.strip_suffix("@bellbird.example/simplefin").unwrap();
    let set: AccountSet = ask_as(app, key, "").await.read();
    assert_eq!(set.connections.len(), 2);

    let keys = app.keys_of(app.olivia.user.id).await;
    let created = keys.iter().find(|own| key.starts_with(&own.prefix));
    let created = created.expect("an ordinary key");
    assert_eq!(created.name, "Actual");
    assert_eq!(app.get_as(key, "/v1/accounts").await.status, 200);

    let second = claim(app, token.expose()).await;
    assert_plain(&second, 403);
    assert_starts(
        &second.text,
        "Forbidden: no setup token or access URL that is valid was sent",
    );
    let nothing = app.get_without_key("/simplefin/accounts").await;
    assert_plain(&nothing, 403);
    assert_eq!(nothing.text, second.text);
    assert_eq!(audit(app, created.id).await, ["claimed", "claim_rejected"]);
    assert_eq!(app.keys_of(app.olivia.user.id).await.len(), keys.len());

    app.revoke_key(created.id).await;
    let revoked = ask_as(app, key, "").await;
    assert_plain(&revoked, 403);
    assert_eq!(revoked.text, second.text);
}

#[tokio::test]
async fn one_of_several_concurrent_claims_gets_a_key() {
    let app = App::start(Setup::default()).await;
    let token = new_token(&app, app.olivia.user.id).await;
    let claims = (0..8).map(|_| claim(&app, token.expose()));
    let answers = futures_util::future::join_all(claims).await;
    let statuses = answers.iter().map(|answer| answer.status.as_u16());
    let mut statuses: Vec<u16> = statuses.collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403, 403, 403, 403, 403, 403, 403]);
    let keys = app.keys_of(app.olivia.user.id).await;
    let created = keys.iter().find(|key| key.name == "Actual").unwrap();
    assert_eq!(audit(&app, created.id).await.len(), 8);
}

#[tokio::test]
async fn only_a_valid_token_gives_an_access_url_and_only_once() {
    let app = App::start(Setup::default()).await;
    let expired = new_token(&app, app.olivia.user.id).await;
    app.advance_own_clock(SignedDuration::from_hours(1));
    let unknown = bellbird_storage::new_setup_token();
    let mut texts = Vec::new();
    for token in [
        expired.expose(),
        unknown.expose(),
        "x",
        "%00",
        "bbst",
        &"é".repeat(500),
    ] {
        let answer = claim(&app, token).await;
        assert_plain(&answer, 403);
        texts.push(answer.text);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_starts(&texts[0], "Forbidden: ");
    assert!(app.query("SELECT id FROM key_audit").await.is_empty());
    assert_eq!(app.keys_of(app.olivia.user.id).await.len(), 1);

    // However many they are, a good token does not fail.
    for _ in 0..70 {
        assert_plain(&claim(&app, unknown.expose()).await, 403);
        assert_plain(&claim(&app, "x").await, 403);
        assert_plain(&ask_as(&app, "bb_wrong", "").await, 403);
    }
    let token = new_token(&app, app.olivia.user.id).await;
    assert_eq!(claim(&app, token.expose()).await.status, 200);
    claim_gives_an_access_url_once(&app).await;
    paths_without_a_key_are_few_and_nothing_redirects(&app).await;
}

/// Not all clients follow a redirect, and not all send credentials again.
async fn paths_without_a_key_are_few_and_nothing_redirects(app: &App) {
    let info = app.get_without_key("/simplefin/info").await;
    assert_eq!(info.status, 200);
    assert_eq!(info.text, r#"{"versions":["1.0","2.0"]}"#);
    let page = app.get_without_key("/simplefin/create").await;
    let content_type = page.header("content-type");
    assert_eq!(content_type, Some("text/html; charset=utf-8"));
    assert_has(&page.text, "bellbird simplefin token");
    assert_has(&page.text, "--page: #f7f4ec");
    let policy = page.header("content-security-policy").unwrap();
    assert_starts(policy, "default-src 'none'");

    for (method, path, status) in [
        (Method::GET, "/simplefin", 404),
        (Method::GET, "/simplefin/", 404),
        (Method::GET, "/simplefin/accounts/", 404),
        (Method::GET, "/simplefin/info/", 404),
        (Method::GET, "/simplefin/claim/", 404),
        (Method::GET, "/simplefin/claim/x", 405),
        (Method::POST, "/simplefin/info", 405),
        (Method::POST, "/simplefin/accounts", 403),
    ] {
        let request = app.http.request(method, format!("{}{path}", app.url));
        assert_plain(&app.send(request).await, status);
    }
    let wrong = app.http.post(format!("{}/simplefin/accounts", app.url));
    let wrong = wrong.basic_auth("x", Some(&app.olivia.key));
    assert_plain(&app.send(wrong).await, 405);
    assert_eq!(ask(app, "").await.status, 200);

    // The key is the password of any user name.
    let url = access_url(app, &app.olivia).await;
    let key = url.split(['@', ':']).nth(2).unwrap();
    let url = format!("{}/simplefin/accounts?balances-only=1", app.url);
    for user in ["bellbird", "", "other"] {
        let request = app.http.get(&url).basic_auth(user, Some(key));
        assert_eq!(app.send(request).await.status, 200, "{user}");
    }
    for line in [
        &*format!("Bearer {key}"),
        "Basic",
        "Basic Og==",
        "Basic !",
        &format!("Basic {}", STANDARD.encode(key)),
    ] {
        let request = app.http.get(&url).header("authorization", line);
        assert_plain(&app.send(request).await, 403);
    }
}

also_on_postgres! { one_of_several_concurrent_claims_gets_a_key }
