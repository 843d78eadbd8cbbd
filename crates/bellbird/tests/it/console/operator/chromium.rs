//! The pages for operators in a real browser.

use bellbird_domain::Plan;

use super::PAGES;
use crate::support::chromium::Browser;
use crate::support::harness::{App, Setup};

#[tokio::test(flavor = "multi_thread")]
async fn every_page_by_the_menu() {
    let app = App::start(Setup::default()).await;
    let hook = app.disabled_endpoint().await;
    app.set_operator(app.ben.user.id, true).await;
    let mut browser = Browser::of_user(&app, app.ben.user.id, 1280, 800).await;
    // The browser's language names days and exact times. English needs no script.
    for (language, is_english) in [("de-DE", false), ("en-AU", true)] {
        browser.language(language);
        browser.open(&format!("{}/operator/health", app.console_url));
        let title = browser.evaluate("document.querySelector('time').title");
        let has_page_form = title.as_str().unwrap().contains("Sydney time");
        assert_eq!(has_page_form, is_english, "{language}: {title}");
    }
    app.fail_a_sync().await;
    for path in PAGES {
        browser.click(&format!("nav a[href='{path}']"));
        browser.assert_accessible(&format!("console{}", path.replace('/', "-")));
    }
    browser.click("nav a[href='/operator/users']");
    browser.write("input[name=search]", "livia");
    browser.click("form.search button");
    browser.assert_accessible("console-operator-users-found");
    browser.click("ul.entries a");
    browser.press("details.question summary");
    browser.assert_accessible("console-operator-user");
    browser.click("details.question button");
    browser.assert_shows("The plan is saved.");
    browser.assert_accessible("console-operator-user-saved");
    browser.click("button[name=sign-in-link]");
    browser.assert_accessible("console-operator-user-link");
    browser.click("nav a[href='/operator/deliveries']");
    browser.click("ul.entries a.what");
    browser.assert_accessible("console-operator-endpoint");
    browser.click("button[name=enable]");
    app.assert_enabled(&hook).await;
    browser.assert_shows("The endpoint gets events again.");
    browser.click("button[name=redeliver]");
    browser.assert_accessible("console-operator-endpoint-sent");
    browser.click("nav a[href='/operator/audit']");
    browser.assert_accessible("console-operator-audit-rows");
    browser.assert_shows("delivery.redeliver");
    browser.press("details.chip summary");
    browser.assert_accessible("console-operator-audit-filter");
    browser.click("details.chip[open] .panel a[href='?what=delivery']");
    browser.assert_accessible("console-operator-audit-filtered");
}

/// Nothing that a long address or name stands in is wider than a phone.
#[tokio::test(flavor = "multi_thread")]
async fn long_address_fits_on_a_phone() {
    let app = App::start(Setup::default()).await;
    let email = format!("{}@{}.example", "m".repeat(30), "n".repeat(16));
    assert_eq!(email.len(), 55);
    let user = app.add_user(&email, Plan::Professional).await.id;
    app.set_reference(user, &"r".repeat(100)).await;
    app.set_operator(user, true).await;
    app.set_operator(app.ben.user.id, true).await;
    let by_ben = app.sign_in(app.ben.user.id).await;
    let page = format!("/operator/users/{user}");
    by_ben.try_submit(&page, "plan=developer", 303).await;
    let mut browser = Browser::start();
    browser.size(360, 780, false);
    browser.open(&app.sign_in_link(user).await);
    browser.assert_accessible("console-long-sign-in");
    browser.click("button.strong");
    browser.open(&format!("{}/operator/users?search=livia", app.console_url));
    let lines = "document.querySelector('a.what bdi').getClientRects().length";
    assert_eq!(browser.evaluate(lines), 1, "olivia@example.com has a line");
    browser.size(320, 780, false);
    let room = browser.evaluate(
        "(() => { const field = document.querySelector('input[name=search]'); \
         const { font, paddingLeft, paddingRight } = getComputedStyle(field); \
         const pen = document.createElement('canvas').getContext('2d'); \
         pen.font = font; \
         return field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) \
             - pen.measureText(field.placeholder).width; })()",
    );
    // The cross that empties the field stands beside it.
    assert!(room.as_f64().unwrap() > 20.0, "the hint is cut: {room}");
    browser.size(360, 780, false);
    for path in PAGES.into_iter().chain([
        "/overview",
        "/transactions",
        "/connections",
        "/keys",
        "/settings",
        &page,
    ]) {
        browser.open(&format!("{}{path}", app.console_url));
        browser.press(".menus .avatar");
        browser.assert_accessible(&format!("console-long{}", path.replace('/', "-")));
    }
}
