//! Fiskil's hosted consent pages, and the behaviour that all providers' pages share.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::browser::{Browser, Next, parameter};
use crate::client::{Client, client, ids, list_of, text_of};

const OLIVIA: &str = "olivia.nguyen@example.com";
const REDIRECT_URI: &str = "https://app.example/cb?state=s%201";

/// Creates an end user, and returns its id.
async fn end_user(client: &Client) -> String {
    let body = json!({"email": "walker@example.com"});
    let answer = client.post("/v1/end-users", &body).await;
    text_of(&answer.json::<Value>().await.unwrap()["end_user_id"]).to_owned()
}

/// Creates a session, and returns its URL.
async fn session(client: &Client, user: &str, more: Value) -> String {
    let mut body = json!({"end_user_id": user, "redirect_uri": REDIRECT_URI, "cancel_uri": "https://app.example/no#top"});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let answer = client.post("/v1/auth/session", &body).await;
    assert_eq!(answer.status(), 200);
    text_of(&answer.json::<Value>().await.unwrap()["auth_url"]).to_owned()
}

async fn accounts(client: &Client, user: &str) -> Vec<Value> {
    let all = client
        .json(&format!("/v1/banking/accounts?end_user_id={user}"))
        .await;
    list_of(&all["accounts"]).clone()
}

async fn rows(client: &Client, user: &str) -> Vec<Value> {
    client
        .rows(&format!("/v1/banking/transactions?end_user_id={user}"))
        .await
}

async fn consents(client: &Client, user: &str) -> Vec<Value> {
    let all = client
        .json(&format!("/v1/consent?end_user_id={user}"))
        .await;
    list_of(&all["consents"]).clone()
}

fn texts(accounts: &[Value], name: &str) -> Vec<String> {
    accounts
        .iter()
        .map(|account| text_of(&account[name]).to_owned())
        .collect()
}

#[tokio::test]
async fn new_username_consents_and_gets_accounts() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let user = end_user(&client).await;
    let url = session(&client, &user, json!({})).await;
    let id = url.split_once("?sess_id=").unwrap().1.to_owned();

    let page = browser.open(&url).await;
    assert_eq!(page.heading(), "Bellbird asks to see your accounts");
    assert!(page.html.contains("This is a sandbox."));
    let page = browser.allow(&page).await.page();
    assert_eq!(page.heading(), "Choose your bank");
    assert!(
        page.html
            .contains("value=\"1\" disabled>Farpost Example Bank<small>Not available"),
        "{}",
        page.html
    );
    assert!(!page.html.contains("Energy"));
    let page = browser.choose(&page, "22").await;
    assert_eq!(page.heading(), "Sign in to Kurrajong Example Mutual");
    let page = browser.sign_in(&page, "Walker").await.page();
    assert!(page.html.contains("signed in as <strong>"));
    assert_eq!(
        page.accounts(),
        [
            "Kurrajong Everyday",
            "Kurrajong Saver",
            "Kurrajong Low Rate Card",
            "Kurrajong Home Loan"
        ]
    );
    assert!(accounts(&client, &user).await.is_empty(), "nothing yet");
    let location = browser
        .submit(
            &page,
            &[("account", "0"), ("account", "2"), ("do", "allow")],
        )
        .await
        .redirect_location();
    assert_eq!(location, format!("{REDIRECT_URI}&session_id={id}"));

    let consents = consents(&client, &user).await;
    assert_eq!(consents.len(), 1);
    assert_eq!(
        (&consents[0]["institution_id"], &consents[0]["active"]),
        (&json!("22"), &json!(true))
    );
    let accounts = accounts(&client, &user).await;
    assert_eq!(
        texts(&accounts, "display_name"),
        ["Kurrajong Everyday", "Kurrajong Low Rate Card"]
    );
    assert!(
        accounts
            .iter()
            .all(|account| account["arrangement_id"] == consents[0]["arrangement_id"])
    );
    assert_eq!(
        consents[0]["account_ids"],
        json!(texts(&accounts, "account_id"))
    );
    let rows = rows(&client, &user).await;
    assert!(rows.len() > 400, "{}", rows.len());
    assert_eq!(
        ids(&rows).into_iter().collect::<BTreeSet<_>>().len(),
        rows.len()
    );
    let balances = client
        .json(&format!("/v1/banking/balances?end_user_id={user}"))
        .await;
    assert_eq!(list_of(&balances["balances"]).len(), 2);
    // The session works once.
    let over = browser.open(&url).await;
    assert_eq!(over.status, 400);
    assert!(over.html.contains("AUTH_SESSION_INVALID"));
}

#[tokio::test]
async fn relinking_gives_new_or_same_ids() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let user = end_user(&client).await;
    let link = async || {
        let url = session(&client, &user, json!({"institution_id": "11"})).await;
        browser.walk(&url, None, OLIVIA).await.redirect_location();
        let arrangement = consents(&client, &user).await.last().unwrap()["arrangement_id"].clone();
        let mut accounts = accounts(&client, &user).await;
        accounts.retain(|account| account["arrangement_id"] == arrangement);
        (
            arrangement,
            texts(&accounts, "account_id"),
            texts(&accounts, "masked_number"),
        )
    };
    // A row that is added to an account shows under every consent.
    let known = client.accounts(0).await[0]["account_id"].clone();
    let added = json!({"account_id": known, "description": "LATELY"});
    let added = client.bank().add_row(&added).unwrap();
    let (first, second) = (link().await, link().await);
    let lately = async || {
        let mut found = rows(&client, &user).await;
        found.retain(|row| row["description"] == "LATELY");
        found
    };
    let seen = lately().await;
    assert_eq!(seen.len(), 2, "one for each consent");
    for row in &seen {
        assert_ne!(row["fiskil_id"], added["fiskil_id"]);
        assert_eq!(
            row["transaction_id"], added["transaction_id"],
            "the bank's own"
        );
        assert!(
            first
                .1
                .iter()
                .chain(&second.1)
                .any(|id| row["account_id"] == id.as_str())
        );
    }
    assert_ne!(seen[0]["fiskil_id"], seen[1]["fiskil_id"]);
    assert_ne!(first.0, second.0, "a new arrangement");
    assert!(first.1.iter().all(|id| !second.1.contains(id)), "new ids");
    assert_eq!(first.2, second.2, "the same accounts");
    assert_eq!(
        accounts(&client, &user).await.len(),
        8,
        "both consents are active"
    );

    let before = rows(&client, &user).await.len();
    client
        .bank()
        .set_options(&json!({"sameIds": true}))
        .unwrap();
    let third = link().await;
    assert_ne!(third.0, second.0);
    assert_eq!((&third.1, &third.2), (&second.1, &second.2));
    assert_eq!(
        accounts(&client, &user).await.len(),
        8,
        "moved, not doubled"
    );
    let rows = rows(&client, &user).await;
    assert_eq!(rows.len(), before);
    assert!(rows.iter().any(|row| row["arrangement_id"] == third.0));
    assert!(rows.iter().all(|row| row["arrangement_id"] != second.0));
    assert!(
        lately()
            .await
            .iter()
            .any(|row| row["arrangement_id"] == third.0)
    );
}

#[tokio::test]
async fn data_lag_follows_the_sandbox_clock() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let user = end_user(&client).await;
    client
        .bank()
        .set_options(&json!({"lagSeconds": 30}))
        .unwrap();
    browser
        .walk(
            &session(&client, &user, json!({})).await,
            Some("88888"),
            "x",
        )
        .await
        .redirect_location();
    let consent = consents(&client, &user).await[0].clone();
    assert_eq!(
        (&consent["active"], &consent["account_ids"]),
        (&json!(true), &json!([]))
    );
    assert!(accounts(&client, &user).await.is_empty() && rows(&client, &user).await.is_empty());
    client.advance(31);
    assert_eq!(accounts(&client, &user).await.len(), 4);
    assert!(!rows(&client, &user).await.is_empty());
    assert_eq!(
        list_of(&consents(&client, &user).await[0]["account_ids"]).len(),
        4
    );
}

#[tokio::test]
async fn every_failure_has_its_error_type() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let user = end_user(&client).await;
    let assert_redirect = |next: Next, error_type: &str| {
        let location = next.redirect_location();
        let (start, rest) = location.split_once('?').unwrap();
        assert_eq!(start, "https://app.example/no");
        assert!(
            rest.starts_with(&format!(
                "error=access_denied&error_type={error_type}&error_description="
            )),
            "{rest}"
        );
        assert!(rest.ends_with("#top"), "{rest}");
    };
    let begin = async |more: Value| {
        let url = session(&client, &user, more).await;
        (browser.open(&url).await, url)
    };
    let bank = json!({"institution_id": "11"});

    // Cancel on each page.
    let (page, url) = begin(json!({})).await;
    assert_redirect(browser.cancel(&page).await, "AUTH_SESSION_CANCELLED");
    assert_eq!(browser.open(&url).await.status, 400, "single use");
    let page = browser.allow(&begin(json!({})).await.0).await.page();
    assert_redirect(browser.cancel(&page).await, "AUTH_SESSION_CANCELLED");
    let page = browser.allow(&begin(bank.clone()).await.0).await.page();
    assert_redirect(browser.cancel(&page).await, "CONSENT_ENDUSER_DENIED");
    let page = browser.allow(&begin(bank.clone()).await.0).await.page();
    let page = browser.sign_in(&page, "x").await.page();
    assert_redirect(browser.cancel(&page).await, "CONSENT_ENDUSER_DENIED");

    // Special and wrong one-time codes.
    for (code, error_type) in [
        ("000000", "CONSENT_UPSTREAM_PROCESSING_ERROR"),
        ("11 11 11", "CONSENT_ENDUSER_INELIGIBLE"),
    ] {
        let page = browser.allow(&begin(bank.clone()).await.0).await.page();
        assert_redirect(browser.enter_code(&page, code).await, error_type);
    }
    let mut page = browser.allow(&begin(bank.clone()).await.0).await.page();
    for left in ["2 times more", "once more"] {
        page = browser.enter_code(&page, "1").await.page();
        assert_eq!(
            page.message().unwrap(),
            format!("That is not the code. You can try {left}.")
        );
        assert!(page.html.contains("value=\"x\""), "the name stays");
    }
    assert_redirect(browser.enter_code(&page, "").await, "CONSENT_OTP_FAILURE");

    // Institutions that are unavailable.
    let (page, _) = begin(json!({"institution_id": "1"})).await;
    assert_redirect(
        browser.allow(&page).await,
        "CONSENT_UPSTREAM_PROCESSING_ERROR",
    );
    let (page, _) = begin(json!({"institution_id": "140"})).await;
    assert_redirect(browser.allow(&page).await, "CONSENT_ENDUSER_INELIGIBLE");
    let page = browser.allow(&begin(json!({})).await.0).await.page();
    let page = browser.choose(&page, "1").await;
    assert_eq!(page.message().unwrap(), "Choose an available institution.");

    // After the ten minutes of a visit.
    let page = browser.allow(&begin(bank).await.0).await.page();
    client.advance(601);
    assert_redirect(browser.sign_in(&page, "x").await, "CONSENT_TIMEOUT");
    assert!(consents(&client, &user).await.is_empty());
}

#[tokio::test]
async fn untrusted_input_is_escaped() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let user = end_user(&client).await;
    let more = json!({"institution_id": "11", "redirect_uri": null, "cancel_uri": null});
    let url = session(&client, &user, more).await;
    let page = browser.allow(&browser.open(&url).await).await.page();
    let evil = "\"><script>alert('1')</script>&";
    let page = browser
        .submit(&page, &[("name", evil), ("code", "1")])
        .await
        .page();
    assert!(
        !page.html.contains("<script")
            && page
                .html
                .contains("&#34;&#62;&#60;script&#62;alert(&#39;1&#39;)")
    );
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(
        policy.ends_with("frame-ancestors *"),
        "the provider's own kit frames it: {policy}"
    );
    assert!(page.headers.get("x-frame-options").is_none());
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(page.headers[name], value);
    }
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    // Without a redirect URI the session ends on a last page.
    let page = browser.sign_in(&page, evil).await.page();
    let done = browser.submit(&page, &page.all()).await.page();
    assert_eq!(done.heading(), "Done");
    assert!(done.html.contains("You may close this window"));

    for body in [
        "session=x&form_number=0".to_owned(),
        String::new(),
        "%FF=%zz".to_owned(),
    ] {
        assert_eq!(
            browser
                .post(&format!("{}/consent", client.base), body)
                .await
                .page()
                .status,
            400
        );
    }
    let huge = browser
        .post(&format!("{}/consent", client.base), "a".repeat(20_000))
        .await
        .page();
    assert_eq!(huge.status, 413);
    assert!(huge.headers.contains_key("content-security-policy"));
    for path in ["/", "/?sess_id=x", "/consent", "/consent?session=x"] {
        assert_eq!(
            browser.open(&format!("{}{path}", client.base)).await.status,
            400,
            "{path}"
        );
    }
    for bad in ["javascript:alert(1)", "/cb", "https://a.example/\r\nx: y"] {
        let body = json!({"end_user_id": user, "redirect_uri": bad});
        let answer = client.post("/v1/auth/session", &body).await;
        assert_eq!(answer.status(), 400, "{bad}");
    }
}

#[tokio::test]
async fn sessions_end_on_expiry_and_with_their_end_user() {
    let client = client().await;
    let browser = Browser::new(&client.base);
    let user = end_user(&client).await;
    let old = session(&client, &user, json!({})).await;
    let page = browser.open(&old).await;
    client.advance(5 * 86_400);
    assert_eq!(browser.open(&old).await.status, 400);
    assert_eq!(
        browser.allow(&page).await.page().status,
        400,
        "the expired session has no redirect URI"
    );

    let mut client = client;
    client.token = client.fresh_token().await;
    let url = session(&client, &user, json!({})).await;
    let page = browser.to_accounts(&url, Some("11"), "x").await;
    let gone = client.delete(&format!("/v1/end-users/{user}")).await;
    assert_eq!(gone.status(), 204);
    let location = browser.submit(&page, &page.all()).await.redirect_location();
    assert_eq!(
        parameter(&location, "error_type").unwrap(),
        "AUTH_SESSION_CANCELLED"
    );
}
