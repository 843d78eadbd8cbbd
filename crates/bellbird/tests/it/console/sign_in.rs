//! Who gets in, and who does not.

use bellbird_connections::LinkTarget;
use bellbird_domain::{Plan, TimestampExt as _};
use bellbird_storage::{Identity, IdentitySignIn, NewSession, SESSION_TTL, in_tx};
use jiff::SignedDuration;

use super::{Page, SIGNED_OUT, SignedIn, get, post, provider_of_operators, with_session};
use crate::support::browser;
use crate::support::harness::{App, Setup};
use crate::support::words::{assert_has, assert_starts};

const UNKNOWN_LINK: &str =
    "/sign-in/0000000000000000000000000000000000000000000000000000000000000000";

const PAGES: [&str; 14] = [
    "/overview",
    "/transactions",
    "/transactions.csv",
    "/investments",
    "/transactions.ofx",
    "/trades.csv",
    "/holdings.csv",
    "/programs",
    "/connections",
    "/keys",
    "/webhooks",
    "/settings",
    "/settings/leave",
    "/settings/data.json",
];

/// From the link to every end of a session.
#[tokio::test]
async fn link_begins_one_session_until_it_ends() {
    let app = App::start(Setup::default()).await;
    // There is no identity provider.
    let oidc = format!("{}/sign-in/oidc", app.console_url);
    post(&oidc, None, "").await.assert_status(404);
    let callback = app.page("/sign-in/oidc/callback", None).await;
    callback.assert_status(404);
    let shown = app.page("/sign-in", None).await;
    shown.assert_lacks("Sign in with");

    let link = app.sign_in_link(app.ben.user.id).await;
    // A scanner, a preview, or the person to whom the link was forwarded: opening it does
    // nothing.
    for _ in 0..3 {
        let opened = get(&link, None).await;
        opened.assert_signs_nobody_in(200);
        opened.assert_has("ben@example.com");
        opened.assert_has("Go on only if this is");
    }
    let signed_in = post(&link, None, "").await;
    signed_in.assert_leads_to("/keys?first");
    let set = signed_in.headers["set-cookie"].to_str().unwrap();
    assert!(
        set.ends_with("; Path=/; Max-Age=7776000; HttpOnly; SameSite=Lax"),
        "{set}"
    );
    for again in [get(&link, None).await, post(&link, None, "").await] {
        again.assert_signs_nobody_in(410);
        again.assert_lacks("href=\"/overview\"");
    }
    let cookie = signed_in.cookie.unwrap();
    let again = get(&link, Some(&cookie)).await;
    again.assert_shows(410, "href=\"/overview\">Go on to your accounts</a>");
    again.assert_has("You are signed in as ben@example.com in this browser.");
    for path in PAGES {
        let page = app.page(path, Some(&cookie)).await;
        let kept = page.headers["cache-control"].to_str().unwrap();
        assert_has(kept, "no-store");
        for other in [None, Some(&*"0".repeat(64))] {
            app.page(path, other).await.assert_needs_sign_in(path);
        }
        if path.contains('.') {
            continue;
        }
        page.assert_shows(200, "Signed in as <bdi>ben@example.com</bdi>");
    }

    // A link ends the session before, or expires.
    let before = app.sign_in(app.olivia.user.id).await;
    let link = app.sign_in_link(app.ben.user.id).await;
    let now = post(&link, Some(&before.cookie), "").await;
    let keys = before.get("/keys").await;
    keys.assert_needs_sign_in("its cookie was replaced");
    let page = app.page("/keys", now.cookie.as_deref()).await;
    page.assert_has("ben@example.com");

    let link = app.sign_in_link(app.ben.user.id).await;
    app.advance_clock(SignedDuration::from_mins(10));
    for page in [get(&link, None).await, post(&link, None, "").await] {
        page.assert_signs_nobody_in(410);
    }
    let unknown = app.page(UNKNOWN_LINK, None).await.text;
    let expired = get(&link, None).await.text;
    assert_eq!(unknown, expired, "the page does not say which");

    // Made-up cookies are looked up, so many that they would fill every place, and a new session is
    // still found.
    let url = format!("{}/keys", app.console_url);
    let made_up: Vec<String> = (0..64).map(|number| format!("{number:064x}")).collect();
    let guesses = made_up.iter().map(|cookie| get(&url, Some(cookie)));
    let (guessed, browser) = tokio::join!(
        futures_util::future::join_all(guesses),
        app.sign_in(app.ben.user.id)
    );
    for page in guessed {
        page.assert_needs_sign_in("made up");
    }
    browser.get("/keys").await.assert_status(200);

    // A session ends by sign-out, by time and with its user.
    let browser = app.sign_in(app.ben.user.id).await;
    let out = browser.post("/sign-out", "").await;
    out.assert_leads_to(SIGNED_OUT);
    assert_eq!(out.cookie.as_deref(), Some(""));
    let page = app.page(SIGNED_OUT, None).await;
    page.assert_has("You are signed out.");
    assert_eq!(out.headers["clear-site-data"], "\"cache\", \"storage\"");
    let cookie = out.headers["set-cookie"].to_str().unwrap();
    assert_has(cookie, "Max-Age=0");
    let keys = browser.get("/keys").await;
    keys.assert_needs_sign_in("after sign-out");

    // Whoever has the browser next, or had the session, links nothing by what the console left
    // there.
    let browser = app.sign_in(app.ben.user.id).await;
    let begun = browser.post("/connections", "provider=akahu").await;
    begun.assert_status(303);
    let cookies = begun.set_cookies();
    let (_, token) = cookies.split_once("bellbird-link=").unwrap();
    let token = token.split(';').next().unwrap();
    let link = format!("/link/{token}");
    app.page(&link, None).await.assert_status(200);
    let out = browser.post("/sign-out", "").await;
    app.page(&link, None).await.assert_status(404);
    let removed = out.set_cookies();
    assert_eq!(removed, "bellbird-session=; bellbird-link=; bellbird=");

    let user = app.add_user("new@example.com", Plan::Developer).await;
    let browser = app.sign_in(user.id).await;
    browser.get("/keys").await.assert_status(200);
    app.delete_user(user.id).await;
    let keys = browser.get("/keys").await;
    keys.assert_needs_sign_in("its user is gone");

    let browser = app.sign_in(app.ben.user.id).await;
    app.advance_clock(SignedDuration::from_hours(14 * 24));
    let keys = browser.get("/keys").await;
    keys.assert_needs_sign_in("two weeks later");

    // A change of the address by an app proves nothing, and pages do not say why nobody is signed
    // in.
    let browser = app.sign_in(app.ben.user.id).await;
    let link = app.sign_in_link(app.ben.user.id).await;
    app.set_console_sign_in(app.ben.user.id, false).await;
    let keys = browser.get("/keys").await;
    keys.assert_needs_sign_in("the session is over");
    let unknown = app.page(UNKNOWN_LINK, None).await;
    for page in [get(&link, None).await, post(&link, None, "").await] {
        assert_eq!((page.status, &page.text), (410, &unknown.text));
    }
    let me = app.get_as(&app.ben.key, "/v1/me").await;
    assert_eq!(me.status, 200, "keys work as before");
}

/// Whoever reads an operator's mailbox is no operator then.
#[tokio::test]
async fn link_signs_in_no_operator_who_has_to_use_the_identity_provider() {
    let oidc = Some(provider_of_operators());
    let app = App::start(Setup::with(|settings| settings.pages.oidc = oidc)).await;
    let (operator, other) = (app.ben.user.id, app.olivia.user.id);
    app.set_operator(operator, true).await;
    let link = app.sign_in_link(operator).await;
    for _ in 0..2 {
        let page = post(&link, None, "").await;
        page.assert_signs_nobody_in(403);
        page.assert_has("Sign in at the identity provider");
    }
    let user = post(&app.sign_in_link(other).await, None, "").await;
    assert!(user.cookie.is_some(), "{}", user.text);

    // Nor does a page make one.
    let (cookie, now) = ("a".repeat(64), app.clock.now());
    let session = NewSession {
        token: &cookie,
        browser: "Firefox on Linux",
        known_browser: &cookie,
        expires_at: now.plus(SESSION_TTL),
    };
    let identity = Identity {
        issuer: "http://127.0.0.1:1",
        subject: "1",
        email: "ben@example.com",
    };
    let sessions = app.storage.sessions();
    let begun = sessions.sign_in_as(&identity, None, &session, now).await;
    assert!(matches!(begun.unwrap(), IdentitySignIn::Begun(_)));
    let browser = SignedIn {
        app: &app,
        cookie: cookie.clone(),
    };
    let path = format!("/operator/users/{operator}");
    let page = browser.get(&path).await;
    page.assert_has("signs in at the identity provider only");
    page.assert_lacks("name=\"sign-in-link\"");
    browser.try_submit(&path, "sign-in-link=yes", 400).await;
    let path = format!("/operator/users/{other}");
    let page = browser.try_submit(&path, "sign-in-link=yes", 200).await;
    page.assert_has("/sign-in/");
}

/// Nobody else lets the only operator in again.
#[tokio::test]
async fn operator_without_e_mail_is_asked_before_signing_out() {
    let app = App::start(Setup::default()).await;
    app.set_operator(app.ben.user.id, true).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let asked = browser.post("/sign-out", "").await;
    asked.assert_shows(200, "bellbird console login --user ben@example.com");
    asked.assert_lacks("Another operator");
    app.set_operator(app.olivia.user.id, true).await;
    let asked = browser.post("/sign-out", "").await;
    asked.assert_has("Another operator can also make one");
    let leave = browser.get("/settings/leave").await;
    leave.assert_lacks("You are the only operator");
    let (olivia, now) = (app.olivia.user.id, app.clock.now());
    in_tx!(app.storage, removal::begin(olivia, now))
        .await
        .unwrap();
    let asked = browser.post("/sign-out", "").await;
    asked.assert_lacks("Another operator");
    let leave = browser.get("/settings/leave").await;
    leave.assert_has("You are the only operator");
    browser.get("/keys").await.assert_status(200);
    let out = browser.post("/sign-out", "sure=yes").await;
    out.assert_leads_to(SIGNED_OUT);
    browser
        .get("/keys")
        .await
        .assert_needs_sign_in("signed out");
}

/// Somebody else may have made keys before the user was ever here, who must hear of them.
#[tokio::test]
async fn sign_in_leads_to_its_page_and_forms_are_our_own() {
    let app = App::start(Setup::default()).await;
    let first = post(&app.sign_in_link(app.ben.user.id).await, None, "").await;
    let shown = first.location.unwrap();
    let page = app.page(&shown, first.cookie.as_deref()).await;
    page.assert_has("These programs read your accounts");
    page.assert_has("name=\"revoke\"");
    let next = post(&app.sign_in_link(app.ben.user.id).await, None, "").await;
    assert_eq!(next.location.as_deref(), Some("/overview"), "once");
    let user = app.add_user("new@example.com", Plan::Developer).await;
    let first = post(&app.sign_in_link(user.id).await, None, "").await;
    // Nobody made anything.
    first.assert_leads_to("/overview");

    // A page that was asked for is what follows the sign-in of that browser, once. Without an open
    // redirect: it does not depend on the URL of the request.
    app.sign_in(app.ben.user.id).await;
    for (asked, shown) in [
        ("/transactions?period=3m", "/transactions?period=3m"),
        (
            "/webhooks/endpoints/0191e7a0-7c3b-7def-8000-00aabbccddee",
            "/webhooks",
        ),
        ("/settings", "/settings"),
    ] {
        let page = app.page(asked, None).await;
        page.assert_needs_sign_in(asked);
        let link = app.sign_in_link(app.ben.user.id).await;
        let request = browser::post(&link, "").header("cookie", page.set_cookies());
        let signed_in = Page::of(request.send().await.unwrap()).await;
        signed_in.assert_leads_to(shown);
        let removed = signed_in.headers.get_all("set-cookie").iter().next_back();
        let removed = removed.unwrap().to_str().unwrap();
        assert_starts(removed, "bellbird-page=; Path=/; Max-Age=0;");
    }
    for query in [
        "?to=https://evil.example",
        "?to=//evil.example",
        "?next=%2F%2Fevil.example",
        "?return=/keys",
    ] {
        let link = app.sign_in_link(app.ben.user.id).await;
        let page = post(&format!("{link}{query}"), None, "").await;
        assert_eq!(page.location.as_deref(), Some("/overview"), "{query}");
        let path = format!("/sign-in{query}");
        let shown = app.page(&path, page.cookie.as_deref()).await;
        shown.assert_leads_to("/overview");
    }

    // Every form, with a session: another site cannot submit it, and a program that says nothing
    // about its origin neither.
    let browser = app.sign_in(app.ben.user.id).await;
    let link = app.sign_in_link(app.olivia.user.id).await;
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let [link, link_url] =
        [&link, &link_url].map(|url| url.strip_prefix(&*app.console_url).unwrap());
    let keys = app.keys_of(app.ben.user.id).await;
    for (path, form) in [
        ("/keys", "name=evil".to_owned()),
        ("/keys", format!("revoke={}", keys[0].id)),
        ("/programs", "program=My+program".to_owned()),
        ("/settings", "timezone=UTC".to_owned()),
        ("/settings", "end-others=yes".to_owned()),
        ("/connections", "provider=fiskil".to_owned()),
        ("/sign-out", String::new()),
        (link, String::new()),
        (link_url, "provider=akahu".to_owned()),
        ("/link/callback?state=x", "answer=yes".to_owned()),
    ] {
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("x-nothing", "1"),
        ] {
            let request = browser::foreign_post(&format!("{}{path}", app.console_url), &form)
                .header(name, value);
            let request = with_session(request, Some(&browser.cookie));
            let page = Page::of(request.send().await.unwrap()).await;
            let refused = (page.status, page.cookie);
            assert_eq!(refused, (403, None), "{path} {name}: {value}");
        }
    }
    assert_eq!(app.keys_of(app.ben.user.id).await, keys);
    // A browser that sends no Sec-Fetch-Site, because the console has no TLS.
    let request = browser::post(&format!("{}/settings", app.console_url), "timezone=UTC");
    let request = with_session(request, Some(&browser.cookie));
    assert_eq!(request.send().await.unwrap().status(), 303);
}

/// An address that tries many links is stopped, and the one that works is not hurt by it.
#[tokio::test]
async fn attempts_are_limited_by_address() {
    let app = App::start(Setup::with(|settings| {
        settings.pages.failed_auth_per_minute = 3;
    }))
    .await;
    let mut statuses = Vec::new();
    for at in 0..5 {
        statuses.push(app.page(&format!("/sign-in/{at:064}"), None).await.status);
    }
    assert_eq!(statuses, [410, 410, 410, 429, 429]);
}

/// A user has so many pages and forms a minute, in all browsers, and others have their own.
#[tokio::test]
async fn requests_of_a_user_are_limited() {
    let app = App::start(Setup::with(|settings| {
        settings.pages.console_per_minute = 4;
        settings.pages.console_forms_per_minute = 2;
    }))
    .await;
    let browsers = [
        app.sign_in(app.ben.user.id).await,
        app.sign_in(app.ben.user.id).await,
    ];
    let other = app.sign_in(app.olivia.user.id).await;
    for path in ["/settings", "/settings/data.json"] {
        for browser in &browsers {
            browser.get(path).await.assert_status(200);
        }
    }
    for path in ["/settings", "/settings/data.json", "/", "/sign-in"] {
        let refused = browsers[0].get(path).await;
        refused.assert_shows(429, "many pages");
        refused.assert_has("Try again in 15 seconds.");
        assert_eq!(refused.headers["retry-after"], "15", "{path}");
    }
    let save = async |browser: &SignedIn<'_>| browser.post("/settings", "timezone=UTC").await;
    for browser in &browsers {
        save(browser).await.assert_status(303);
    }
    let refused = save(&browsers[0]).await;
    refused.assert_status(429);
    assert_eq!(refused.headers["retry-after"], "30");
    other.get("/settings").await.assert_status(200);
    save(&other).await.assert_status(303);
    app.advance_clock(SignedDuration::from_secs(30));
    save(&browsers[0]).await.assert_status(303);
}

/// A page that is not there counts once, whatever finds that out. So the limit does not show which
/// pages of operators there are.
#[tokio::test]
async fn missing_pages_count_as_pages() {
    let app = App::start(Setup::with(|settings| {
        settings.pages.console_per_minute = 5;
    }))
    .await;
    let browser = app.sign_in(app.ben.user.id).await;
    let missing = async || {
        [
            browser.get("/nothing").await,
            browser.get("/operator/nothing").await,
            browser.get("/operator/users").await,
            browser.post("/operator/health", "").await,
            browser.get("/webhooks/endpoints/1").await,
        ]
    };
    for page in missing().await {
        page.assert_shows(404, "Page not found");
        page.assert_has("Signed in as");
    }
    for page in missing().await {
        page.assert_shows(429, "many pages");
        page.assert_lacks("Signed in as");
        assert_eq!(page.headers["retry-after"], "12");
    }
}
