//! From an empty folder to rows of a simulated bank: one command, and then a browser only, with
//! axe at 360 and 1280 pixels, light and dark.

use std::env;

use crate::linking::chromium::{UserAction, leave_consent_pages};
use crate::support::chromium::Browser;
use crate::support::process::{Addresses, RunningCommand, Workdir};
use crate::support::words::assert_starts;

#[test]
fn from_an_empty_folder_to_rows() {
    // `scripts/release test` starts the image, whose first page this is.
    if let Ok(setup_url) = env::var("BELLBIRD_TEST_SETUP_URL") {
        walk(&setup_url, || ());
        return;
    }
    let (workdir, addresses) = (Workdir::new(), Addresses::new());
    let line = format!("serve --json {}", addresses.options());
    let serve = || RunningCommand::start(&workdir, &line);
    let killed = serve();
    let setup_url = killed.json()["setupUrl"].as_str().unwrap().to_owned();
    assert_starts(&setup_url, &format!("http://{}/setup/", addresses.console));
    let mut service = None;
    walk(&setup_url, || {
        drop(killed);
        let next = serve();
        assert!(next.json().get("setupUrl").is_none());
        service = Some(next);
    });
    service.unwrap().end();
}

/// `interrupt` may end and start the service once there is an operator.
fn walk(setup_url: &str, interrupt: impl FnOnce()) {
    let (console, _) = setup_url.split_once("/setup/").unwrap();
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    browser.open(&format!("{console}/setup"));
    // Without the code.
    browser.assert_shows("Open the newest address in the log");
    browser.open(setup_url);
    browser.assert_accessible("setup-code");
    browser.click("button.strong");
    assert_eq!(browser.url(), format!("{console}/setup"));
    let proposed = browser.evaluate(
        "document.querySelector('#timezone').value === \
         Intl.DateTimeFormat().resolvedOptions().timeZone",
    );
    assert_eq!(proposed, true, "the timezone of the browser");
    browser.assert_accessible("setup-operator");
    browser.write("#name", "Example Ltd");
    browser.write("#email", "me@example.com");
    browser.write("#timezone", "Sidney");
    browser.click("form.stacked button");
    browser.assert_accessible("setup-operator-wrong");
    browser.write("#timezone", "Australia/Sydney");
    browser.click("form.stacked button");
    assert_eq!(browser.url(), format!("{console}/operator/setup"));
    let named = "document.querySelector('.brand').textContent.includes('of Example Ltd')";
    assert_eq!(browser.evaluate(named), true);
    browser.assert_accessible("setup-key");

    // The next start goes on.
    interrupt();
    browser.open(setup_url);
    // There is an operator.
    browser.assert_shows("Page not found");
    browser.open(&format!("{console}/operator/setup"));
    browser.press("input[name=kept]");
    browser.click("form.stacked button");
    assert_eq!(browser.url(), format!("{console}/operator/providers"));
    browser.assert_accessible("setup-providers");
    browser.click("button[name=sandbox][value=all]");
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
    browser.assert_accessible("setup-providers-sandbox");
    browser.open(&format!("{console}/overview"));
    browser.assert_shows("Finish the first start.");
    browser.click("main a[href$='/operator/setup']");
    assert_eq!(browser.url(), format!("{console}/operator/providers"));
    browser.click("button[name=finish]");
    assert_eq!(browser.url(), format!("{console}/connections"));
    browser.assert_accessible("setup-link");
    browser.click("button[name=provider][value=fiskil]");
    leave_consent_pages(&mut browser, UserAction::Approve);
    browser.wait_for("document.body.innerText.includes('Sandbox')");
    browser.assert_accessible("setup-linked");
    for path in ["overview", "connections"] {
        browser.open(&format!("{console}/{path}"));
        browser.wait_for("document.querySelector('.badge') !== null");
        browser.stay();
        browser.assert_accessible(&format!("setup-{path}"));
    }
    browser.open(&format!("{console}/transactions"));
    assert!(browser.has(".transactions > li"), "{}", browser.text());
    browser.assert_accessible("setup-rows");

    // What operators do afterwards.
    browser.open(&format!("{console}/operator/users"));
    browser.write("#email", "anna@example.com");
    browser.click("section[aria-labelledby=add] button");
    browser.assert_accessible("operator-user-added");
    browser.click("button[name=sign-in-link]");
    browser.wait_for("document.activeElement.id === 'made'");
    browser.write("#confirm-email", "ann@example.com");
    browser.click("button[name=remove]");
    browser.wait_for("document.activeElement.id === 'confirm-email'");
    browser.assert_accessible("operator-user-other-address");
    browser.write("#confirm-email", "anna@example.com");
    browser.click("button[name=remove]");
    browser.assert_accessible("operator-user-removed");
}
