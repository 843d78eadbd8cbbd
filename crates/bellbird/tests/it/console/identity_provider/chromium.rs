//! Signing in at the identity provider in a real browser, which comes back from another site.

use serde_json::json;

use super::IdentityProvider;
use crate::console::SIGNED_OUT;
use crate::support::chromium::Browser;

#[tokio::test(flavor = "multi_thread")]
async fn from_the_button_to_the_overview_and_out() {
    let provider = IdentityProvider::start();
    let app = provider.app(None).await;
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    let sign_in = format!("{}/sign-in", app.console_url);
    browser.open(&sign_in);
    browser.assert_accessible("console-oidc-sign-in");
    for (account, name) in [
        (
            json!({"sub": "o", "email": "olivia@example.com"}),
            "unverified",
        ),
        (
            json!({"sub": "o", "email": "a.long.address@example.com", "email_verified": true}),
            "unknown",
        ),
    ] {
        provider.control(json!({ "account": account })).await;
        browser.click("form[action$='/sign-in/oidc'] button");
        assert!(
            browser.url().contains("/sign-in/oidc/callback?code="),
            "{}",
            browser.url()
        );
        browser.assert_accessible(&format!("console-oidc-{name}"));
        browser.click("a.button");
        assert_eq!(browser.url(), sign_in);
    }
    provider.choose("o", "olivia@example.com").await;
    browser.click("form[action$='/sign-in/oidc'] button");
    browser.assert_at("/keys?first");
    assert_eq!(
        browser.evaluate("document.querySelector('.who').textContent"),
        "Signed in as olivia@example.com"
    );
    browser.click("form[action$='/sign-out'] button");
    assert_eq!(browser.url(), format!("{}{SIGNED_OUT}", app.console_url));
    browser.open(&format!("{}/overview", app.console_url));
    assert_eq!(browser.url(), sign_in);
}
