//! The reference page in a real browser.

use serde_json::{Value, json};

use crate::support::chromium::Browser;
use crate::support::fields::assert_fields;
use crate::support::harness::{App, Setup};
use crate::support::process::text;
use crate::support::words::{assert_has, assert_lacks};

/// A function of the page: sends the form of an operation and waits for the status.
const SEND: &str = "async (id, fields) => { \
    const form = document.querySelector(`#${id} form`); \
    for (const [name, value] of Object.entries(fields)) form.querySelector(`[name=${name}]`).value = value; \
    const status = form.querySelector('[role=status]'); \
    const answered = new Promise(resolve => new MutationObserver((_, observer) => { \
        if (!/^\\d|^No/.test(status.textContent)) return; \
        observer.disconnect(); \
        resolve(); \
    }).observe(status, {childList: true})); \
    form.querySelector('button.strong').click(); \
    await answered; \
    return {status: status.textContent, body: form.querySelector('.result pre').textContent, \
        headers: form.querySelector('.result dl').innerText, visible: !form.querySelector('.result').hidden}; }";

fn open(app: &App) -> Browser {
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    browser.open(&format!("{}/docs", app.url));
    browser
}

fn send(browser: &mut Browser, operation: &str, fields: &Value) -> Value {
    browser.evaluate(&format!("({SEND})({}, {fields})", json!(operation)))
}

/// Opens every operation.
const OPEN: &str =
    "document.querySelectorAll('main details').forEach(details => { details.open = true; })";

/// JSON without white space outside of strings. Everything else stays as it is.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let mut kept = String::new();
    for character in json.chars() {
        if in_string || !character.is_whitespace() {
            kept.push(character);
        }
        in_string ^= character == '"' && !escaped;
        escaped = in_string && character == '\\' && !escaped;
    }
    kept
}

/// With closed operations, it is checked by `send_calls_with_the_key`.
#[tokio::test(flavor = "multi_thread")]
async fn reference_pages_are_accessible_by_their_menu() {
    let mut setup = Setup::default();
    setup.settings.admin_listen = Some(setup.settings.api.listen);
    let app = App::start(setup).await;
    let mut browser = open(&app);
    assert_eq!(browser.evaluate("[scrollY, location.hash]"), json!([0, ""]));
    browser.size(360, 800, false);
    browser.evaluate("document.querySelector('nav details').open = true; scrollTo(0, 0)");
    browser.assert_accessible("docs-menu");
    browser.evaluate(OPEN);
    browser.assert_accessible("docs-open");
    // For operators.
    browser.open(&format!("{}/admin/docs", app.url));
    browser.evaluate(OPEN);
    browser.assert_accessible("admin-docs-open");

    browser.open(&format!("{}/docs", app.url));
    for (width, menu) in [(360, ".narrow"), (1280, ".wide")] {
        browser.size(width, 800, false);
        let paths = &bellbird::openapi::document().value()["paths"];
        for item in paths.as_object().unwrap().values() {
            let id = text(&item["get"], "operationId");
            let link = format!("nav {menu} a[href='#{id}']");
            if width == 360 {
                browser.press("nav summary");
            }
            browser.wait_for(&format!(
                "document.querySelector(\"{link}\").checkVisibility()"
            ));
            browser.press(&link);
            browser.wait_for(&format!(
                "location.hash === '#{id}' && !document.querySelector('nav details').open"
            ));
            // The title is in the window, below the bar with the menu.
            browser.wait_for(&format!(
                "(top => top >= 0 && top < 300 && document.elementFromPoint(innerWidth / 2, top + 8).closest('#{id}')) \
                 (document.querySelector('#{id}-title').getBoundingClientRect().top)"
            ));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_page_is_used_without_a_key_and_with_one() {
    let app = App::start(Setup::default()).await;
    let mut browser = open(&app);
    use_without_a_key(&app, &mut browser);
    browser.open(&format!("{}/docs", app.url));
    send_calls_with_the_key(&app, &mut browser).await;
}

fn use_without_a_key(app: &App, browser: &mut Browser) {
    browser.press_key("Tab");
    browser.wait_for("document.activeElement.matches('.skip')");
    let is_visible = browser.evaluate("document.activeElement.getBoundingClientRect().top > 0");
    assert_eq!(is_visible, true);
    browser.press_key("Enter");
    browser.wait_for("document.activeElement.id === 'content'");
    for _ in 0..4 {
        browser.press_key("Tab");
    }
    assert_eq!(browser.evaluate("document.activeElement.id"), "key-input");
    browser.write("#list_accounts-limit", "1");
    browser.press_key("Enter");
    browser.wait_for(
        "document.querySelector('#list_accounts [role=status]').textContent.startsWith('401')",
    );

    // The curl line follows the fields.
    browser.write("#list_accounts-limit", "3");
    let line = browser.evaluate("document.querySelector('#list_accounts .copy').textContent");
    let expected = format!(
        "curl -H \"Authorization: Bearer $BELLBIRD_KEY\" \"{}/v1/accounts?limit=3\"",
        app.url
    );
    assert_eq!(line, expected);

    // It is selected if the browser denies the clipboard.
    let denied = browser.evaluate(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); \
         new Promise(shown => { \
             const button = document.querySelector('#list_accounts .copy-button'); \
             button.click(); \
             setTimeout(() => shown([button.textContent, String(getSelection().getRangeAt(0))])); \
         })",
    );
    assert_eq!(denied, json!(["Selected", expected]));

    // The search shows what contains every word.
    browser.write("#search", "Holdings positions");
    browser.wait_for("document.querySelector('#list_connections').hidden");
    let is_hidden = browser.evaluate("document.querySelector('#list_holdings').hidden");
    assert_eq!(is_hidden, false);
    browser.write("#search", "List connections");
    browser.wait_for("!document.querySelector('#list_connections').hidden");

    // Bodies are shown as sent, with digits that a parsed number would lose.
    browser.open(&format!("{}/docs", app.url));
    let body =
        r#"{"a":[1.10,-0.0,12345678901234567890.5e-7],"b":{},"c":[ ],"d":"x \" {[,:\\","e":null}"#;
    browser.evaluate(&format!(
        "fetch = async () => new Response({}, {{headers: {{'content-type': 'application/json'}}}}), null",
        json!(body)
    ));
    let shown = send(browser, "health", &json!({}));
    let expected = "{\n  \"a\": [\n    1.10,\n    -0.0,\n    12345678901234567890.5e-7\n  ],\n  \"b\": {},\n  \
                    \"c\": [ ],\n  \"d\": \"x \\\" {[,:\\\\\",\n  \"e\": null\n}";
    assert_eq!(shown["body"], expected);
}

async fn send_calls_with_the_key(app: &App, browser: &mut Browser) {
    let account = app.account("").await;
    let rejected = send(browser, "list_accounts", &json!({}));
    let status = "401 Unauthorized: enter your API key above";
    assert_eq!(rejected["status"], status);
    browser.write("#key-input", "bb_wrong");
    let rejected = send(browser, "list_accounts", &json!({}));
    assert_eq!(rejected["status"], "401 Unauthorized");
    let expected = app.get_as("bb_wrong", "/v1/accounts").await;
    let body = compact(text(&rejected, "body"));
    assert_eq!(body, expected.text.trim());

    browser.write("#key-input", &app.olivia.key);
    send(browser, "list_accounts", &json!({}));
    let script = "[...document.querySelector('#list_balances-accountIds').list.options].map(option => option.value)";
    let offered = browser.evaluate(script);
    assert!(offered.as_array().unwrap().contains(&json!(account.id)));

    let fields =
        json!({"connectionId": account.connection_id, "accountId": account.id, "limit": "7"});
    let answer = send(browser, "list_transactions", &fields);
    let sent = json!({"status": "200 OK", "visible": true});
    assert_fields(&answer, &sent);
    let path = app.transactions(&account).limit(7).path();
    let expected = app.get(&path).await;
    assert_eq!(expected.data().len(), 7);
    let body = compact(text(&answer, "body"));
    assert_eq!(body, expected.text.trim());
    let headers = text(&answer, "headers");
    assert_has(headers, "X-Cache");
    assert_has(headers, "X-Request-Id");

    browser.assert_accessible("docs-answer");

    // The key is in its input only: neither in a URL, nor in the page, nor in a store.
    let kept = browser.evaluate(
        "[document.documentElement.outerHTML, location.href, document.cookie, localStorage.length, \
         sessionStorage.length, ...performance.getEntries().map(entry => entry.name)].join(' ')",
    );
    assert_lacks(kept.as_str().unwrap(), &app.olivia.key);
    browser.evaluate("dispatchEvent(new Event('pagehide'))");
    let input = browser.evaluate("document.querySelector('#key-input').value");
    assert_eq!(input, "");
}
