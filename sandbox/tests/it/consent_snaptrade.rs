//! The pages of SnapTrade's connection portal.

use bellbird_sandbox::ConsentState;
use serde_json::{Value, json};

use crate::browser::{Browser, parameter};
use crate::client::text_of;
use crate::snaptrade_client::{Client, client};

const REDIRECT_URI: &str = "http://127.0.0.1:9/cb?state=1";
const BLUEGUM: &str = "BLUEGUM-EXAMPLE";

/// A client for a newly registered user.
async fn new_user() -> Client {
    let mut client = client().await;
    let user = client.register("walker").await.ok();
    client.user = format!("userId=walker&userSecret={}&", text_of(&user["userSecret"]));
    client
}

/// Creates a link with `immediateRedirect`. Members of `more` override.
async fn link(client: &Client, more: Value) -> String {
    let mut body = json!({"customRedirect": REDIRECT_URI, "immediateRedirect": true});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let answer = client.login(body).await.ok();
    text_of(&answer["redirectURI"]).to_owned()
}

fn connection(location: &str) -> String {
    assert!(
        location.starts_with(&format!("{REDIRECT_URI}&status=SUCCESS&connection_id=")),
        "{location}"
    );
    parameter(location, "connection_id").unwrap()
}

async fn ids(client: &Client, connection: &str) -> Vec<String> {
    let accounts = client
        .ok(&format!("/authorizations/{connection}/accounts"))
        .await;
    accounts
        .as_array()
        .unwrap()
        .iter()
        .map(|account| text_of(&account["id"]).to_owned())
        .collect()
}

#[tokio::test]
async fn new_username_connects_and_gets_accounts() {
    let client = new_user().await;
    let browser = Browser::new(&client.base);
    let url = link(&client, json!({"immediateRedirect": false})).await;
    let page = browser.open(&url).await;
    assert_eq!(page.heading(), "Bellbird asks to see your accounts");
    let page = browser.allow(&page).await.page();
    assert_eq!(page.heading(), "Choose your broker");
    let page = browser.choose(&page, BLUEGUM).await;
    let page = browser.sign_in(&page, "mia").await.page();
    assert_eq!(
        page.accounts(),
        ["Bluegum Individual Margin", "Bluegum Cash Management"]
    );
    let last = browser.submit(&page, &page.all()).await.page();
    assert_eq!(last.heading(), "You are connected");
    let href = last
        .after("<a class=\"yes\" href=\"")
        .unwrap()
        .replace("&#38;", "&");
    let id = connection(&href);
    assert_eq!(
        browser.open(&last.url).await.heading(),
        "You are connected",
        "the last page can be opened again"
    );
    let over = browser.open(&url).await;
    assert_eq!(
        (over.status, over.html.contains("error 1006")),
        (400, true),
        "the link works once"
    );

    let shown = client.ok(&format!("/authorizations/{id}")).await;
    assert_eq!(
        (&shown["brokerage"]["slug"], &shown["disabled"]),
        (&json!(BLUEGUM), &json!(false))
    );
    let accounts = ids(&client, &id).await;
    assert_eq!(accounts.len(), 2);
    assert_eq!(client.positions(&accounts[0]).await.len(), 3);
    assert_eq!(client.activities(&accounts[0]).await.len(), 60);
    assert_eq!(client.activities(&accounts[1]).await.len(), 10);

    // The same login keeps its connection; another login gets its own.
    assert_eq!(
        connection(
            &browser
                .walk(&link(&client, json!({})).await, Some(BLUEGUM), "MIA")
                .await
                .redirect_location()
        ),
        id
    );
    assert_eq!(ids(&client, &id).await, accounts);
    let named = link(&client, json!({"broker": BLUEGUM})).await;
    let other = connection(&browser.walk(&named, None, "noor").await.redirect_location());
    assert_ne!(other, id);
    let numbers = async |id: &str| {
        let accounts = client.ok(&format!("/authorizations/{id}/accounts")).await;
        accounts
            .as_array()
            .unwrap()
            .iter()
            .map(|account| account["number"].clone())
            .collect::<Vec<_>>()
    };
    assert_ne!(numbers(&id).await, numbers(&other).await);
}

#[tokio::test]
async fn reconnect_repairs_and_rejects_another_login() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let broken = client.connection(0);
    let before = ids(&client, &broken).await;
    let bank = client.bank();
    bank.set_consent(&broken, ConsentState::Expired).unwrap();
    let reconnect = json!({"reconnect": broken, "broker": "SANDBOX"});
    let page = browser.open(&link(&client, reconnect.clone()).await).await;
    let page = browser.allow(&page).await.page();
    assert_eq!(
        page.heading(),
        "Sign in to Bluegum Example Invest",
        "a reconnect keeps the connection's broker"
    );
    let rejected = browser
        .sign_in(&page, "another user")
        .await
        .redirect_location();
    assert_eq!(
        rejected,
        format!("{REDIRECT_URI}&status=ERROR&status_code=400&error_code=1023")
    );
    assert_eq!(
        client.ok(&format!("/authorizations/{broken}")).await["disabled"],
        true
    );

    let url = link(&client, reconnect.clone()).await;
    assert_eq!(
        connection(
            &browser
                .walk(&url, None, "olivia.nguyen@example.com")
                .await
                .redirect_location()
        ),
        broken
    );
    assert_eq!(
        client.ok(&format!("/authorizations/{broken}")).await["disabled"],
        false
    );
    assert_eq!(ids(&client, &broken).await, before);

    // The connection is deleted during the visit.
    let page = browser
        .to_accounts(
            &link(&client, reconnect.clone()).await,
            None,
            "olivia.nguyen@example.com",
        )
        .await;
    let early = browser
        .allow(&browser.open(&link(&client, reconnect).await).await)
        .await
        .page();
    bank.set_consent(&broken, ConsentState::Revoked).unwrap();
    let gone = browser.submit(&page, &page.all()).await.redirect_location();
    assert_eq!(
        gone,
        format!("{REDIRECT_URI}&status=ERROR&status_code=400&error_code=1012")
    );
    let gone = browser
        .sign_in(&early, "olivia.nguyen@example.com")
        .await
        .redirect_location();
    assert_eq!(parameter(&gone, "error_code").unwrap(), "1012");
}

#[tokio::test]
async fn every_failure_has_its_code() {
    let client = new_user().await;
    let browser = Browser::new(&client.base);
    let at_broker = async |more: Value| {
        let mut body = json!({"broker": BLUEGUM});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let page = browser.open(&link(&client, body).await).await;
        browser.allow(&page).await.page()
    };
    let plain = || at_broker(json!({}));
    let error = |status: u16, code: &str| {
        format!("{REDIRECT_URI}&status=ERROR&status_code={status}&error_code={code}")
    };
    let code = |code: &'static str| [("name", "x"), ("code", code)];

    assert_eq!(
        browser.cancel(&plain().await).await.redirect_location(),
        REDIRECT_URI,
        "no result parameters"
    );
    let close = [("do", "close")];
    assert_eq!(
        browser
            .submit(&plain().await, &close)
            .await
            .redirect_location(),
        format!("{REDIRECT_URI}&status=ABANDONED")
    );
    let page = at_broker(json!({"showCloseButton": false})).await;
    assert!(!page.html.contains("value=\"close\""));
    assert!(
        browser
            .submit(&page, &close)
            .await
            .page()
            .message()
            .is_some(),
        "the page has no such button"
    );
    assert_eq!(
        browser
            .submit(&plain().await, &code("000000"))
            .await
            .redirect_location(),
        error(500, "3000")
    );
    assert_eq!(
        browser
            .submit(&plain().await, &code("111111"))
            .await
            .redirect_location(),
        error(403, "1066")
    );
    let mut page = plain().await;
    for _ in 0..2 {
        page = browser.submit(&page, &code("1")).await.page();
    }
    assert_eq!(
        browser.submit(&page, &code("1")).await.redirect_location(),
        error(400, "1086")
    );
    // Without `immediateRedirect` the visit ends on a last page.
    let page = at_broker(json!({"immediateRedirect": false})).await;
    let last = browser.submit(&page, &code("000000")).await.page();
    assert_eq!(last.heading(), "You are not connected");
    assert_eq!(
        last.after("<a class=\"yes\" href=\"")
            .unwrap()
            .replace("&#38;", "&"),
        error(500, "3000")
    );
    assert!(
        last.headers["content-security-policy"]
            .to_str()
            .unwrap()
            .ends_with("frame-ancestors *")
    );

    // A link works for five minutes, a visit for ten.
    let late = link(&client, json!({})).await;
    let page = plain().await;
    client.advance(301);
    assert_eq!(browser.open(&late).await.status, 400);
    let page = browser.sign_in(&page, "x").await.page();
    client.advance(300);
    assert_eq!(
        browser.submit(&page, &page.all()).await.redirect_location(),
        error(400, "1006")
    );
    let page = plain().await;
    client.delete_user("walker").await.ok();
    client.advance(2);
    let page = browser.sign_in(&page, "x").await.page();
    assert_eq!(
        browser.submit(&page, &page.all()).await.redirect_location(),
        error(401, "0000")
    );
}
