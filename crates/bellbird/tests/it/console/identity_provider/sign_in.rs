//! Whom an identity signs in, and what signs nobody in.

use bellbird_console::{OidcSettings, check_identity_provider};
use bellbird_domain::Plan;
use jiff::SignedDuration;
use reqwest::Url;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::IdentityProvider;
use super::visitor::Visitor;
use crate::console::Page;
use crate::support::browser;
use crate::support::fields::assert_fields;
use crate::support::harness::{App, Setup};
use crate::support::words::assert_starts;

impl Page {
    #[track_caller]
    fn assert_signed_in(&self) {
        // The first time, a user of the tests sees the keys that others have made.
        let is_known = matches!(self.location.as_deref(), Some("/overview" | "/keys?first"));
        assert!(self.status == 303 && is_known, "{}", self.text);
        assert!(self.cookie.is_some());
    }

    #[track_caller]
    fn assert_rejected(&self, status: u16, words: &str, what: &str) {
        assert_eq!(
            (self.status, &self.cookie),
            (status, &None),
            "{what}: {}",
            self.text
        );
        self.assert_has(words);
        self.assert_has("/sign-in\"");
    }
}

async fn email_of(app: &App, page: &Page) -> String {
    let settings = app.page("/settings", page.cookie.as_deref()).await;
    let (_, rest) = settings
        .text
        .split_once("Signed in as <bdi>")
        .expect("a page for a user");
    rest.split_once('<').unwrap().0.to_owned()
}

#[tokio::test]
async fn verified_identity_signs_in_once() {
    let provider = IdentityProvider::start();
    let app = provider.app(None).await;
    let shown = app.page("/sign-in", None).await;
    shown.assert_has("Sign in with\n<bdi>localhost</bdi>");
    for (alg, is_in_token) in [
        ("RS256", true),
        ("PS256", false),
        ("ES256", false),
        ("EdDSA", true),
    ] {
        provider
            .control(json!({"alg": alg, "claimsInIdToken": is_in_token}))
            .await;
        provider.choose("o", "Olivia@Example.com").await;
        let mut visitor = Visitor::default();
        let asked: Url = visitor.leave(&app).await.location.unwrap().parse().unwrap();
        let asked: Vec<_> = asked
            .query_pairs()
            .map(|(name, _)| name.into_owned())
            .collect();
        for name in ["state", "nonce", "code_challenge", "code_challenge_method"] {
            assert!(asked.iter().any(|one| one == name), "{name}: {asked:?}");
        }
        let signed_in = visitor.sign_in(&app).await;
        signed_in.assert_signed_in();
        let cookies: Vec<_> = signed_in
            .headers
            .get_all("set-cookie")
            .iter()
            .map(|one| one.to_str().unwrap())
            .collect();
        assert!(
            cookies[0].ends_with("; Path=/; Max-Age=7776000; HttpOnly; SameSite=Lax"),
            "{cookies:?}"
        );
        assert_starts(cookies[1], "bellbird-known=");
        assert_eq!(
            cookies[2],
            "bellbird-oidc=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
        );
        assert_eq!(email_of(&app, &signed_in).await, "olivia@example.com");
        let before = signed_in.cookie;
        visitor.sign_in(&app).await.assert_signed_in();
        app.page("/keys", before.as_deref())
            .await
            .assert_needs_sign_in("replaced");
    }

    // A callback works once, in the browser that has left.
    provider.choose("o", "olivia@example.com").await;
    let (mut visitor, mut other) = (Visitor::default(), Visitor::default());
    let words = "This sign-in does not work any more";
    let url = visitor.callback_url(&app).await;
    // Whoever is sent the URL of somebody else is not signed in as that person.
    other
        .open(&url)
        .await
        .assert_rejected(410, words, "without a cookie");
    other.leave(&app).await;
    other
        .open(&url)
        .await
        .assert_rejected(410, words, "with another cookie");
    for (name, value) in [
        ("state", None),
        ("state", Some("9999999999.00")),
        ("iss", Some("https://evil.example")),
    ] {
        let mut changed = url.clone();
        changed.query_pairs_mut().clear();
        let kept = url.query_pairs().filter(|(key, _)| key != name);
        changed
            .query_pairs_mut()
            .extend_pairs(kept)
            .extend_pairs(value.map(|value| (name, value)));
        visitor
            .open(&changed)
            .await
            .assert_rejected(410, words, changed.as_str());
    }
    let mut twice = url.clone();
    for _ in 0..2 {
        twice.query_pairs_mut().append_pair("iss", &provider.issuer);
    }
    visitor
        .open(&twice)
        .await
        .assert_rejected(410, words, "the issuer twice");
    visitor.open(&url).await.assert_signed_in();
    visitor.open(&url).await.assert_rejected(410, words, "used");

    let url = visitor.callback_url(&app).await;
    app.advance_clock(SignedDuration::from_mins(10));
    visitor
        .open(&url)
        .await
        .assert_rejected(410, words, "expired");
    // The code of another browser, as an attacker would inject it: it is bound to that browser's
    // verifier.
    let (url, mut own) = (
        other.callback_url(&app).await,
        visitor.callback_url(&app).await,
    );
    let code = url
        .query_pairs()
        .find(|(name, _)| name == "code")
        .unwrap()
        .1;
    let pairs: Vec<_> = own
        .query_pairs()
        .into_owned()
        .filter(|(name, _)| name != "code")
        .collect();
    own.query_pairs_mut()
        .clear()
        .extend_pairs(pairs)
        .append_pair("code", &code);
    visitor
        .open(&own)
        .await
        .assert_rejected(400, "could not be confirmed", "injected code");

    provider.control(json!({"declines": true})).await;
    let url = visitor.callback_url(&app).await;
    visitor
        .open(&url)
        .await
        .assert_rejected(403, "has not signed you in", url.as_str());
}

#[tokio::test]
async fn address_is_trusted_if_verified_and_once() {
    let provider = IdentityProvider::start();
    let app = provider.app(None).await;
    for account in [
        json!({"sub": "o", "email": "olivia@example.com", "email_verified": false}),
        json!({"sub": "o", "email": "olivia@example.com", "email_verified": "true"}),
        json!({"sub": "o", "email": "olivia@example.com"}),
        json!({"sub": "o", "email_verified": true}),
        json!({"sub": "o"}),
    ] {
        for is_in_token in [true, false] {
            provider
                .control(json!({"account": account, "claimsInIdToken": is_in_token}))
                .await;
            let page = Visitor::default().sign_in(&app).await;
            // What is no boolean cannot be read.
            if account["email_verified"] == "true" {
                assert!(page.status >= 400 && page.cookie.is_none(), "{}", page.text);
            } else {
                page.assert_rejected(403, "address is not verified", &account.to_string());
            }
        }
    }
    for email in [
        "new@example.com",
        "olivia@example.com.evil.example",
        "not an address",
        "<b>@example.com",
    ] {
        provider.choose("n", email).await;
        let page = Visitor::default().sign_in(&app).await;
        page.assert_rejected(403, "You are not a user of this service", email);
        page.assert_lacks("<b>");
    }
    assert_eq!(app.storage.users().list().await.unwrap().len(), 2);
    token_is_checked_with_the_newest_keys(&provider, &app).await;

    // It is trusted once, and the subject from then on.
    let issuer = &provider.issuer;
    let user = app.add_user("new@example.com", Plan::Developer).await;
    provider.choose("n", "new@example.com").await;
    Visitor::default().sign_in(&app).await.assert_signed_in();
    let signed_in = Visitor::default().sign_in(&app).await;
    let data = app
        .page("/settings/data.json", signed_in.cookie.as_deref())
        .await;
    let data: serde_json::Value = serde_json::from_str(&data.text).unwrap();
    let identity = json!({"subject": "n", "issuer": issuer});
    assert_fields(&data["identities"][0], &identity);

    app.set_console_sign_in(user.id, false).await;
    let page = Visitor::default().sign_in(&app).await;
    page.assert_rejected(
        403,
        "nobody may sign in here as that",
        "the address is not verified",
    );
    app.set_console_sign_in(user.id, true).await;
    Visitor::default().sign_in(&app).await.assert_signed_in();

    provider.choose("x", "new@example.com").await;
    let page = Visitor::default().sign_in(&app).await;
    page.assert_rejected(
        403,
        "signs in with another account",
        "another subject with the same address",
    );
    // The address of another user at the provider leads to no other account.
    provider.choose("n", "ben@example.com").await;
    let signed_in = Visitor::default().sign_in(&app).await;
    assert_eq!(email_of(&app, &signed_in).await, "new@example.com");

    app.delete_user(user.id).await;
    app.page("/keys", signed_in.cookie.as_deref())
        .await
        .assert_needs_sign_in("deleted");
    provider.choose("n", "new@example.com").await;
    Visitor::default().sign_in(&app).await.assert_rejected(
        403,
        "You are not a user of this service",
        "deleted",
    );
    provider.choose("n", "ben@example.com").await;
    assert_eq!(
        email_of(&app, &Visitor::default().sign_in(&app).await).await,
        "ben@example.com"
    );
}

#[tokio::test]
async fn unknown_address_becomes_a_user_if_the_operator_says_so() {
    let provider = IdentityProvider::start();
    let app = provider.app(Some(Plan::Developer)).await;
    provider
        .control(
            json!({"account": {"sub": "n", "email": "new@example.com", "email_verified": false}}),
        )
        .await;
    Visitor::default().sign_in(&app).await.assert_rejected(
        403,
        "address is not verified",
        "unverified",
    );
    for _ in 0..2 {
        provider.choose("n", "New@example.com").await;
        let signed_in = Visitor::default().sign_in(&app).await;
        signed_in.assert_signed_in();
        assert_eq!(email_of(&app, &signed_in).await, "New@example.com");
    }
    let users = app.storage.users().list().await.unwrap();
    assert_eq!((users.len(), users[1].plan), (3, Plan::Developer));
    provider.choose("b", "ben@example.com").await;
    assert_eq!(
        email_of(&app, &Visitor::default().sign_in(&app).await).await,
        "ben@example.com"
    );
}

async fn token_is_checked_with_the_newest_keys(provider: &IdentityProvider, app: &App) {
    provider.control(json!({"claimsInIdToken": true})).await;
    provider.choose("o", "olivia@example.com").await;
    for tamper in [
        json!({"isForged": true}),
        json!({"alg": "none"}),
        json!({"alg": "HS256"}),
        json!({"claims": {"iss": "https://evil.example"}}),
        json!({"claims": {"aud": "another"}}),
        json!({"claims": {"aud": ["bellbird", "another"]}}),
        json!({"claims": {"nonce": "0"}}),
        json!({"claims": {"nonce": null}}),
        json!({"claims": {"exp": 1}}),
        json!({"claims": {"sub": ""}}),
        json!({"claims": {"sub": "a".repeat(256)}}),
    ] {
        provider.control(json!({"tamper": tamper})).await;
        let page = Visitor::default().sign_in(app).await;
        page.assert_rejected(400, "could not be confirmed", &tamper.to_string());
    }
    provider.control(json!({"tamper": {}})).await;
    for _ in 0..3 {
        provider.choose("o", "olivia@example.com").await;
        Visitor::default().sign_in(app).await.assert_signed_in();
        provider.control(json!({"rotate": true})).await;
    }
}

#[tokio::test]
async fn provider_that_is_away_is_said_and_links_still_work() {
    let provider = IdentityProvider::start();
    let app = provider.app(None).await;
    only_the_own_page_leads_to_the_provider(&app).await;
    let (mut visitor, oidc) = (Visitor::default(), provider.settings());
    let url = visitor.callback_url(&app).await;
    drop(provider);
    let away = visitor.open(&url).await;
    away.assert_rejected(
        503,
        "The identity provider does not respond",
        "at the callback",
    );
    // One that has not answered since the start.
    let oidc = OidcSettings {
        issuer: "http://127.0.0.1:1".to_owned(),
        ..oidc
    };
    let app = App::start(Setup::with(|settings| settings.pages.oidc = Some(oidc))).await;
    for _ in 0..2 {
        let away = visitor.leave(&app).await;
        away.assert_rejected(
            503,
            "The identity provider does not respond",
            "at the start",
        );
        assert_eq!(away.headers["retry-after"], "10");
    }
    app.page("/sign-in", None)
        .await
        .assert_has("<bdi>127.0.0.1</bdi>");
    app.sign_in(app.ben.user.id).await;
}

async fn only_the_own_page_leads_to_the_provider(app: &App) {
    for site in ["cross-site", "same-site", "none"] {
        let request = browser::post(&format!("{}/sign-in/oidc", app.console_url), "");
        let page = Page::of(request.header("sec-fetch-site", site).send().await.unwrap()).await;
        assert_eq!((page.status, &page.location), (403, &None), "{site}");
    }
    let prefetch = browser::client().get(format!("{}/sign-in/oidc/callback", app.console_url));
    let prefetch = prefetch.header("sec-purpose", "prefetch").send();
    assert_eq!(prefetch.await.unwrap().status(), 503);
}

#[tokio::test]
async fn wrong_settings_are_said_to_the_operator() {
    let provider = IdentityProvider::start();
    let checked = async |issuer: &str| {
        let settings = OidcSettings {
            issuer: issuer.to_owned(),
            ..provider.settings()
        };
        check_identity_provider(&settings, "https://bellbird.example/console/").await
    };
    let redirect_uri = "https://bellbird.example/console/sign-in/oidc/callback";
    assert_eq!(checked(&provider.issuer).await.as_deref(), Ok(redirect_uri));
    let slash = format!("{}/", provider.issuer);
    let elsewhere = format!("{}/elsewhere", provider.issuer);
    for (issuer, expected) in [
        (
            &*slash,
            "its metadata names another issuer than oidc.issuer",
        ),
        (&elsewhere, "it has no metadata below oidc.issuer"),
        ("http://127.0.0.1:1", "it does not respond"),
        // Without TLS.
        ("http://login.example", "it does not respond"),
    ] {
        assert_eq!(checked(issuer).await, Err(expected), "{issuer}");
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let large = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        let _ = stream
            .write_all(format!("{head}{}", " ".repeat(300_000)).as_bytes())
            .await;
    });
    assert_eq!(
        checked(&large).await,
        Err("it does not respond"),
        "more than a provider says"
    );

    let settings = OidcSettings {
        client_secret: "wrong".to_owned().into(),
        ..provider.settings()
    };
    let app = provider.app_with(settings).await;
    Visitor::default().sign_in(&app).await.assert_rejected(
        400,
        "could not be confirmed",
        "another secret",
    );
}
