//! Akahu's hosted consent pages.

use reqwest::Method;
use serde_json::{Value, json};

use crate::akahu_client::{Akahu, akahu, error_of};
use crate::browser::{Browser, Next, Page, encode, parameter};
use crate::client::text_of;

const KAURI: &str = "conn_cjgaawozb000001nyd111xixr";
const TOTARA: &str = "conn_cjgab6fis000001qsytf1semy";
/// The classic twin of an official connection.
const OLD_RIMU: &str = "conn_cjgaaqcna000001ldwof8tvj0";
const REDIRECT_URI: &str = "http://127.0.0.1:9/cb?x=1";

/// URL of the first page, with more parameters.
fn url(akahu: &Akahu, more: &str) -> String {
    format!(
        "{}/?response_type=code&client_id={}&scope=ENDURING_CONSENT&state={}&redirect_uri={}{more}",
        akahu.access.oauth_url,
        akahu.access.app_token,
        encode("<s> &\"1"),
        encode(REDIRECT_URI)
    )
}

fn browser(akahu: &Akahu) -> Browser {
    Browser::new(&akahu.access.oauth_url)
}

/// Exchanges the code of a callback. Returns the user token and the callback's event.
async fn exchange(akahu: &Akahu, location: &str) -> (String, String) {
    let code = parameter(location, "code").unwrap_or_else(|| panic!("{location}"));
    let mut body = akahu.exchange(&code);
    body["redirect_uri"] = json!(REDIRECT_URI);
    let (status, token) = akahu.token(&body).await;
    assert_eq!(status, 200, "{token}");
    (
        text_of(&token["access_token"]).to_owned(),
        parameter(location, "event").unwrap(),
    )
}

/// Consents with all accounts, and uses the new token from then on.
async fn link(akahu: &mut Akahu, connection: &str, name: &str) -> String {
    let location = browser(akahu)
        .walk(&url(akahu, ""), Some(connection), name)
        .await
        .redirect_location();
    let (token, event) = exchange(akahu, &location).await;
    akahu.token = token;
    event
}

async fn names(akahu: &Akahu, member: &str) -> Vec<String> {
    akahu
        .accounts()
        .await
        .iter()
        .map(|account| text_of(&account[member]).to_owned())
        .collect()
}

#[tokio::test]
async fn new_username_consents_and_gets_accounts() {
    let mut akahu = akahu().await;
    let browser = browser(&akahu);
    let page = browser.open(&url(&akahu, "")).await;
    assert_eq!(
        (page.status, page.heading().as_str()),
        (200, "Bellbird asks to see your accounts")
    );
    let page = browser.allow(&page).await.page();
    assert!(page.html.contains(&format!(
        "value=\"{OLD_RIMU}\" disabled>Rimu Example Bank<small>Not available"
    )));
    let page = browser.choose(&page, KAURI).await;
    let page = browser.sign_in(&page, "Walker@Example.com").await.page();
    assert_eq!(
        page.accounts(),
        [
            "Kauri Everyday",
            "Kauri Saver",
            "Kauri Visa",
            "Kauri Home Loan"
        ]
    );
    let location = browser
        .submit(&page, &[("account", "1"), ("account", "2")])
        .await
        .redirect_location();
    let (start, rest) = location.split_once("&code=").unwrap();
    assert_eq!(start, REDIRECT_URI);
    let (_, rest) = rest.split_once('&').unwrap();
    assert_eq!(rest, "state=%3Cs%3E%20%26%221&source=oauth&event=ACCEPT");

    let olivia = akahu.token.clone();
    akahu.token = exchange(&akahu, &location).await.0;
    assert_ne!(akahu.token, olivia);
    assert_eq!(
        akahu.json("/me").await["item"]["email"],
        "walker@example.com"
    );
    let accounts = akahu.accounts().await;
    assert_eq!(names(&akahu, "name").await, ["Kauri Saver", "Kauri Visa"]);
    assert!(accounts.iter().all(|account| account["status"] == "ACTIVE"));
    assert_eq!(accounts[0]["_authorisation"], accounts[1]["_authorisation"]);
    let rows = akahu.rows("/transactions").await;
    assert!(rows.len() > 200, "{}", rows.len());
    let shown: Vec<&Value> = accounts.iter().map(|account| &account["_id"]).collect();
    assert!(rows.iter().all(|row| shown.contains(&&row["_account"])));
    let pending = format!("{}/pending", akahu.rows_path("CREDITCARD").await);
    assert_eq!(akahu.items(&pending).await.len(), 1);
    // Only shared accounts can be read, each on its own as well.
    assert_eq!(akahu.accounts().await.len(), 2);
    assert!(
        !akahu
            .rows(&akahu.rows_path("SAVINGS").await)
            .await
            .is_empty()
    );

    // The same user consents again, now with all accounts: shared accounts keep their ids.
    assert_eq!(
        link(&mut akahu, KAURI, "walker@example.com").await,
        "UPDATE"
    );
    let again = akahu.accounts().await;
    assert_eq!(again.len(), 4);
    assert_eq!(
        (&again[1]["_id"], &again[2]["_id"]),
        (&accounts[0]["_id"], &accounts[1]["_id"])
    );
    // Another institution gets the same token.
    let token = akahu.token.clone();
    assert_eq!(
        link(&mut akahu, TOTARA, "walker@example.com").await,
        "UPDATE"
    );
    assert_eq!(
        (akahu.token.as_str(), akahu.accounts().await.len()),
        (token.as_str(), 8)
    );
}

#[tokio::test]
async fn repaired_login_keeps_its_ids() {
    let mut akahu = akahu().await;
    let all = json!(akahu.bank().all_credentials());
    let tama = text_of(&all[3]["userToken"]).to_owned();
    akahu.token.clone_from(&tama);
    let before = akahu.accounts().await;
    assert!(before.iter().all(|account| account["status"] == "INACTIVE"));

    let page = browser(&akahu)
        .open(&url(
            &akahu,
            &format!("&connection={TOTARA}&email=tama.brown%40example.com"),
        ))
        .await;
    let page = browser(&akahu).allow(&page).await.page();
    assert_eq!(
        page.heading(),
        "Sign in to Tōtara Example Savings",
        "the picker is skipped"
    );
    assert_eq!(
        page.after("name=\"name\" value=\"").unwrap(),
        "tama.brown@example.com"
    );
    let page = browser(&akahu)
        .sign_in(&page, "tama.brown@example.com")
        .await
        .page();
    let location = browser(&akahu)
        .submit(&page, &page.all())
        .await
        .redirect_location();
    assert_eq!(
        exchange(&akahu, &location).await,
        (tama.clone(), "UPDATE".to_owned())
    );
    let after = akahu.accounts().await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(after["status"], "ACTIVE");
        assert_eq!(
            (&before["_id"], &before["_authorisation"]),
            (&after["_id"], &after["_authorisation"])
        );
    }

    // The options can ask for a new token and a new authorisation.
    let options = json!({"newToken": true, "newAuthorisation": true});
    akahu.bank().set_options(&options).unwrap();
    link(&mut akahu, TOTARA, "tama.brown@example.com").await;
    assert_ne!(akahu.token, tama);
    let third = akahu.accounts().await;
    assert_eq!(third[0]["_id"], after[0]["_id"]);
    assert_ne!(third[0]["_authorisation"], after[0]["_authorisation"]);
    akahu.token = tama;
    assert_eq!(
        error_of(akahu.call(Method::GET, "/accounts")).await.0,
        401,
        "the old token is invalid"
    );
}

#[tokio::test]
async fn unticked_accounts_are_no_longer_shared() {
    let mut akahu = akahu().await;
    let page = browser(&akahu)
        .to_accounts(&url(&akahu, ""), Some(KAURI), "olivia.nguyen@example.com")
        .await;
    assert_eq!(page.accounts().len(), 7);
    let dropped = text_of(&akahu.account("SAVINGS").await["_id"]).to_owned();
    let location = browser(&akahu)
        .submit(&page, &[("account", "0")])
        .await
        .redirect_location();
    assert_eq!(
        exchange(&akahu, &location).await,
        (akahu.token.clone(), "UPDATE".to_owned())
    );
    assert_eq!(
        akahu.accounts().await.len(),
        1 + 5,
        "one here and all five at the other institution"
    );
    for path in [
        format!("/accounts/{dropped}"),
        format!("/accounts/{dropped}/transactions"),
    ] {
        assert_eq!(
            error_of(akahu.call(Method::GET, &path)).await.0,
            404,
            "{path}"
        );
    }
    assert!(
        akahu
            .rows("/transactions")
            .await
            .iter()
            .all(|row| row["_account"] != dropped.as_str())
    );
    link(&mut akahu, KAURI, "olivia.nguyen@example.com").await;
    assert_eq!(akahu.account("SAVINGS").await["_id"], dropped);
}

#[tokio::test]
async fn every_failure_redirects_with_the_state() {
    let akahu = akahu().await;
    let browser = browser(&akahu);
    let assert_redirect = |next: Next, error: &str| {
        let location = next.redirect_location();
        assert!(
            location.starts_with(&format!("{REDIRECT_URI}&error={error}&")),
            "{location}"
        );
        assert!(location.ends_with("&state=%3Cs%3E%20%26%221"), "{location}");
    };
    let at_bank = async || {
        let page = browser
            .open(&url(&akahu, &format!("&connection={KAURI}")))
            .await;
        browser.allow(&page).await.page()
    };
    let first = browser.open(&url(&akahu, "")).await;
    let denied = format!("{REDIRECT_URI}&error=access_denied&state=%3Cs%3E%20%26%221");
    assert_eq!(browser.cancel(&first).await.redirect_location(), denied);
    assert_eq!(
        browser.cancel(&at_bank().await).await.redirect_location(),
        denied
    );
    let page = at_bank().await;
    let page = browser.sign_in(&page, "x").await.page();
    assert_eq!(browser.cancel(&page).await.redirect_location(), denied);

    for (code, error) in [
        ("000000", "temporarily_unavailable"),
        ("111111", "access_denied"),
    ] {
        let page = at_bank().await;
        assert_redirect(browser.enter_code(&page, code).await, error);
    }
    let mut page = at_bank().await;
    for _ in 0..2 {
        page = browser.enter_code(&page, "1").await.page();
        assert!(page.message().is_some());
    }
    assert_redirect(browser.enter_code(&page, "1").await, "access_denied");
    let page = browser
        .open(&url(&akahu, &format!("&connection={OLD_RIMU}")))
        .await;
    assert_redirect(browser.allow(&page).await, "temporarily_unavailable");
    let page = at_bank().await;
    akahu.advance(601);
    assert_redirect(browser.sign_in(&page, "x").await, "access_denied");
}

#[tokio::test]
async fn bad_request_shows_a_page_without_redirect() {
    let akahu = akahu().await;
    let browser = browser(&akahu);
    let good = url(&akahu, "");
    let assert_rejected = |page: &Page| {
        assert_eq!(page.status, 400, "{}", page.html);
        assert!(!page.headers.contains_key("location"));
        assert!(!page.html.contains("<form"), "{}", page.html);
        assert_eq!(page.headers["x-frame-options"], "DENY");
        assert!(
            page.headers["content-security-policy"]
                .to_str()
                .unwrap()
                .ends_with("frame-ancestors 'none'")
        );
    };
    let other = |name: &str, value: &str| {
        let (start, rest) = good.split_once(&format!("{name}=")).unwrap();
        let rest = rest.split_once('&').map_or("", |(_, rest)| rest);
        format!("{start}{name}={value}&{rest}")
    };
    for bad in [
        other("client_id", "app_token_x"),
        other("redirect_uri", "https%3A%2F%2Fapp.example%2Fcb"),
        other("redirect_uri", "http%3A%2F%2F127.0.0.1.evil.example%2F"),
        other("redirect_uri", "javascript%3Aalert(1)"),
        format!("{good}&prompt=%3Cscript%3E"),
        format!("{good}&connection=conn_x"),
        format!("{good}&sandbox_auto=perhaps"),
        format!("{good}&email={}", "x".repeat(4 * 1024)),
    ] {
        let page = browser.open(&bad).await;
        assert_rejected(&page);
        assert!(!page.html.contains("<script"));
        // Neither does a form sent to that URL.
        assert_rejected(
            &browser
                .post(&bad, "session=x&form_number=0&do=allow".to_owned())
                .await
                .page(),
        );
    }
    let rejected = browser
        .open(&other("redirect_uri", "https%3A%2F%2Fapp.example%2Fcb"))
        .await;
    let register = format!("curl {}/__control/options -d", akahu.access.oauth_url);
    assert!(rejected.html.contains(&register), "{}", rejected.html);
    akahu
        .bank()
        .set_options(&json!({"redirectUris": ["https://app.example/cb"]}))
        .unwrap();
    assert_eq!(
        browser
            .open(&other("redirect_uri", "https%3A%2F%2Fapp.example%2Fcb"))
            .await
            .status,
        200
    );
    assert_eq!(
        browser
            .open(&other("redirect_uri", "https%3A%2F%2Fapp.example%2Fcb2"))
            .await
            .status,
        400
    );
    for bad in [json!({"redirectUris": ["javascript:1"]}), json!({"x": 1})] {
        assert!(akahu.bank().set_options(&bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn made_up_people_are_limited() {
    let akahu = akahu().await;
    let browser = browser(&akahu);
    let consent = async |name: &str| browser.walk(&url(&akahu, ""), Some(KAURI), name).await;
    for index in 0..50 {
        let location = consent(&format!("person{index}@example.com")).await;
        let location = location.redirect_location();
        assert!(location.contains("event=ACCEPT"), "{location}");
    }
    let refused = consent("person50@example.com").await.page();
    assert_eq!(refused.heading(), "No further person can be made up");
    let known = consent("person49@example.com").await.redirect_location();
    assert!(known.contains("event=UPDATE"), "{known}");
}
