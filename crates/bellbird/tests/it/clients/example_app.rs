//! The app of examples/app with the demo: a person signs up, links at the sandbox, and sees the
//! rows.

use std::process::{Command, Stdio};

use bellbird_domain::Decimal;
use reqwest::Client;
use serde_json::Value;

use super::receivers::installed;
use crate::linking::chromium::{UserAction, leave_consent_pages};
use crate::repository::root;
use crate::support::chromium::Browser;
use crate::support::port::free_port;
use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, text};

const EMAIL: &str = "new.person@example.com";

/// The amounts, which are the last cells of all rows.
const AMOUNTS: &str = "[...document.querySelectorAll('td.amount')].map(cell => cell.innerText)";

fn start_app(url: &str, service: &Value, operator_key: &str) -> RunningCommand {
    let mut command = Command::new(installed(
        root().join("target/clients/python/venv/bin/python"),
    ));
    command
        .arg(root().join("examples/app/app.py"))
        .env("PYTHONPATH", root().join("clients/python/src"));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BELLBIRD_OPERATOR_KEY", operator_key)
        .env("APP_URL", url);
    command
        .env("BELLBIRD_URL", text(service, "apiUrl"))
        .env("BELLBIRD_ADMIN_URL", text(service, "adminUrl"));
    command
        .env("NO_PROXY", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    RunningCommand::spawn(command, "the example app")
}

#[tokio::test(flavor = "multi_thread")]
async fn person_signs_up_links_and_sees_rows() {
    let app_url = format!("http://localhost:{}", free_port());
    let mut workdir = Workdir::new();
    let file = workdir.folder.path().join("service.db");
    workdir.set(
        "BELLBIRD_DATABASE__URL",
        &format!("sqlite:{}", file.display()),
    );
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    workdir.set("BELLBIRD_ADMIN__LISTEN", "127.0.0.1:0");
    workdir.set("BELLBIRD_ADMIN__RETURN_ORIGINS", &app_url);
    let demo = format!("demo --json --log-level warn --rows 100 {ANY_PORTS}");
    let service = RunningCommand::start(&workdir, &demo);
    let operator_key = workdir.json("operator-key create --name app");
    let app = start_app(&app_url, &service.json(), text(&operator_key, "key"));
    assert_eq!(app.ready_line.trim(), format!("listening on {app_url}"));

    let mut browser = Browser::start();
    browser.open(&app_url);
    browser.assert_accessible("example-1-sign-up");
    browser.write("#email", EMAIL);
    browser.leave("sign-up", |browser| browser.press_key("Enter"));
    browser.assert_shows(EMAIL);
    for (action, note) in [
        (UserAction::Cancel, "gave no consent"),
        (UserAction::Approve, "Your accounts are connected"),
    ] {
        browser.click("form[action='/link'] button");
        let url = browser.url();
        assert!(
            url.starts_with(text(&service.json(), "consoleUrl")),
            "at {url}"
        );
        browser.assert_shows(EMAIL);
        browser.click("button[name=provider][value=fiskil]");
        leave_consent_pages(&mut browser, action);
        assert_eq!(browser.url(), format!("{app_url}/"));
        browser.assert_shows(note);
    }
    browser.assert_accessible("example-2-accounts");
    let amounts = browser.evaluate(AMOUNTS);
    let rows = amounts.as_array().unwrap();
    assert!(rows.len() > 20, "{amounts}");
    for amount in rows {
        let (number, currency) = amount.as_str().unwrap().split_once(' ').unwrap();
        let is_amount = Decimal::parse(number).is_ok() && currency.len() == 3;
        assert!(is_amount, "{amount}");
    }
    // The note was for the return, and the rows stay.
    browser.open(&app_url);
    let shown = browser.text();
    assert!(!shown.contains("Your accounts are connected"), "{shown}");
    assert_eq!(browser.evaluate(AMOUNTS), amounts);

    // A link session of somebody else.
    browser.open(&format!(
        "{app_url}/linked?session=01a208f6-1f42-74bf-a20f-c131ab195b58&state=1"
    ));
    browser.assert_shows("This is not your link");
    browser.assert_accessible("example-3-not-yours");
    // A form of another site.
    let http = Client::builder().no_proxy().build().unwrap();
    for origin in ["http://evil.example", "null"] {
        let form = http.post(format!("{app_url}/link"));
        let form = form.header("origin", origin);
        assert_eq!(form.send().await.unwrap().status(), 403, "{origin}");
    }
}
